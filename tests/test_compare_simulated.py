"""The test of `plumbline compare`, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from bench.compare import Family, Noise, alone, family, gaussian, lognormal, outliers
from plumbline.analysis import compare
from plumbline.analysis.compare import judge, sides

COUNT = 20_000


def share(verdicts: np.ndarray, *names: str) -> float:
    return float(np.isin(verdicts, names).mean())


@pytest.mark.parametrize("noise", [gaussian, lognormal, outliers])
@pytest.mark.parametrize("past", [0, 30])
def test_a_healthy_figure_seldom_regresses(noise: Noise, past: int):
    """At most one in a thousand; a few more may come by chance here."""
    healthy = alone(noise, 0.02, 5, past, 0.0, COUNT, seed=past)
    assert (healthy == "regressed").sum() <= 20 + 3 * 20**0.5


@pytest.mark.parametrize("noise", [gaussian, lognormal])
def test_a_loss_is_found_with_a_past(noise: Noise):
    found = alone(noise, 0.02, 5, 30, 0.05, COUNT // 4, seed=1)
    assert share(found, "regressed") >= 0.95
    assert share(found, "unchanged", "improved") <= 0.03


@pytest.mark.parametrize("noise", [gaussian, lognormal])
def test_a_loss_is_seldom_passed_without_one(noise: Noise):
    """Five a side cannot show it, but they can say that they cannot."""
    lost, healthy = (alone(noise, 0.02, 5, 0, loss, COUNT // 4, seed=2) for loss in (0.05, 0.0))
    assert share(lost, "unchanged", "improved") <= 0.055
    assert share(healthy, "unchanged", "improved") >= 0.95


def test_a_loss_of_all_figures_is_found_without_a_past():
    (found, *_), _ = family(Family("all", 200, 1.0), 0.05, comparisons=5, seed=1)
    assert found >= 0.95


def test_many_healthy_figures_seldom_have_one_that_regressed():
    """Corrected for their number: in one comparison of a hundred at most, and a few by chance."""
    _, alarms = family(Family("all", 100, 1.0), 0.0, comparisons=200, seed=2)
    assert alarms <= 0.01 + 3 * (0.01 / 200) ** 0.5


def test_healthy_figures_with_common_mode_variation_do_not_regress_together():
    """What all figures of a session share is no evidence for each of them."""
    chance = np.random.default_rng(5)
    alarms = 0
    for _ in range(150):
        common = chance.normal(0, 0.02, (1, 10))
        values = common + chance.normal(0, 0.002, (40, 10))
        before, after, signs = values[:, :5], values[:, 5:], np.ones(40)
        found = judge.estimate(before, after, values[:, :0], np.zeros(40))
        as_one = judge.group_change(before, after, signs, found.noise, found.difference)
        moved = np.full(40, as_one.direction)
        alarms += (judge.verdicts(found, signs, moved, 0.02, 0.05) == "regressed").any()
    assert alarms <= 2


def test_the_interval_covers_the_truth():
    chance = np.random.default_rng(3)
    values = chance.normal(0, 0.02, (20_000, 10))
    found = judge.estimate(values[:, :5], values[:, 5:], values[:, :0], np.arange(20_000))
    low, high = found.interval()
    assert 0.94 < np.mean((low < 0) & (high > 0)) < 0.965


def test_the_smallest_loss_seen_is_that_which_is_found():
    chance = np.random.default_rng(4)
    values = chance.normal(0, 0.02, (4000, 40))
    past, before, after = values[:, :30], values[:, 30:35], values[:, 35:]
    seen = np.median(judge.detectable(judge.estimate(before, after, past, np.arange(4000)), 1))
    found = judge.estimate(before, after - seen, past, np.arange(4000))
    signs = np.ones(4000)
    verdicts = judge.verdicts(found, signs, 0 * signs, 0.02, 0.05, adjusted=found.p)
    assert share(verdicts, "regressed") == pytest.approx(judge.POWER, abs=0.02)


def test_two_values_of_zero_noise_do_not_make_certainty():
    same = np.zeros((1, 5))
    found = judge.estimate(same, same - 0.004, same[:, :0], np.zeros(1))
    assert found.noise[0] == judge.FLOOR
    assert judge.verdicts(found, np.ones(1), np.zeros(1), 0.02, 0.05) == ["unchanged"]


def test_a_comparison_of_nothing_is_not_a_go():
    nothing = {"before": [], "after": [], "past": []}
    found = compare.compare(sides.Sides(nothing, nothing), compare.Rules())
    assert found.verdict == "not enough data"
