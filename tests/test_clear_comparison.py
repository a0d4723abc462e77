"""The statistics of `plumbline clear`: rates of right and wrong verdicts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from bench.clear import Site, outcomes
from plumbline.analysis.clear import comparison


def test_holm_corrects_for_the_number_of_tests():
    assert comparison.holm(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    assert comparison.holm(np.array([0.5, 0.9])) == pytest.approx([1.0, 1.0])


def test_repeats_that_vary_together_do_not_count_as_independent():
    """The same values, once within a night that is as wide as all nights, once all alike."""
    chance = np.random.default_rng(3)
    values = chance.normal(0, 0.02, (20, 30))

    def error(now: np.ndarray) -> float:
        inside = float(np.sum((now - now.mean()) ** 2)), len(now) - 1
        recent = np.arange(20) >= 18
        made = [comparison.NodeFigure(values, np.ones(values.shape), recent, -1, now, inside=inside,
                             family=f"{family}") for family in range(20)]  # fmt: skip
        own, _ = comparison.compare(made)[0]
        assert own is not None
        return own.error

    assert error(np.full(9, 0.01)) > 1.2 * error(chance.normal(0, 0.02, 9))


def test_healthy_nodes_are_hardly_ever_no_go_and_slow_ones_are():
    """Other seeds than the page's (docs/clearing-power.md)."""
    found = outcomes(Site(), {0: 60, 12: 30}, seed=5)
    assert found[0]["no-go"] <= 2 and found[12]["no-go"] >= 28
    # What is not shown is not passed either.
    assert outcomes(Site(noise=0.02), {1: 30}, seed=6)[1]["go"] <= 3


def missed(gain: float, nights: int, noise: float, follows: bool, seed: int) -> Counter:
    """Verdicts on 60 nodes that were away for so many nights, since which their peers are faster by
    a gain, and that have it too, or not."""
    found: Counter[str] = Counter()
    for number in range(60):
        chance = np.random.default_rng((seed, number))
        values = chance.normal(0, noise, (20, 12))
        if nights:
            values[-nights:, 1:] += np.log1p(gain)
            values[-nights:, 0] = np.nan
        now = chance.normal(np.log1p(gain) if follows else 0.0, noise, 5)
        recent = np.arange(20) >= 7
        one = comparison.NodeFigure(values, np.ones(values.shape), recent, -1, now)
        names, _ = comparison.verdicts(comparison.compare([one]), ["higher"], 0.05)
        found[names[0]] += 1
    return found


@pytest.mark.parametrize("nights", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.005, 0.01])
def test_a_gain_that_a_node_missed_is_hardly_ever_passed(nights: int, noise: float):
    found = missed(0.06, nights, noise, False, 9301)
    assert found["unchanged"] <= 2
    assert nights == 1 or found["regressed"] >= 57
    assert missed(0.06, nights, noise, True, 9302)["unchanged"] >= 57
    assert missed(0.0, 0, noise, True, 9303)["unchanged"] >= 59
