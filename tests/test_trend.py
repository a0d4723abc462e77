"""`plumbline trend`: what it finds in nights of known truth, and what it makes of bad input."""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
from pathlib import Path

import nights
import numpy as np
import pytest
import records
from conftest import Done, asked
from nights import Plan
from plumbline.analysis import stats, trend
from plumbline.analysis.trend import episodes, nights_file, partition, series_changes, why
from plumbline.analysis.trend.episodes import Episode
from plumbline.core.errors import Fault
from plumbline.history.series import Key, Series
from scipy import stats as distributions

#: Seeds that no rule was tuned to.
SEED = 70_000
#: A series that was known well when it changed: for a hundred nights.
KNOWN = {"nights": 220, "earliest": 100, "latest": 180}


def judged(plan: Plan, count: int, seed: int, **options) -> tuple[nights.Nights, list]:
    made = nights.make(plan, count, SEED + seed)
    work = [(values, plan.better, second)
            for values, second in zip(made.values, made.second, strict=True)]  # fmt: skip
    return made, [one.changes for one in trend.judge_all(work, **options)]


def at_least(hits: int, count: int, aim: float) -> bool:
    """Whether so many hits agree with a rate of the aim (chance of fewer above 1 in 1,000)."""
    return distributions.binom.cdf(hits, count, aim) > 1e-3


# -- the aims, in few series -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "aim"),
    [
        (Plan(noise="gaussian", level=0.02, gaps=0.03), 0.1),
        (Plan(noise="lognormal", level=0.01), 0.1),
        (Plan(noise="outlier", level=0.01), 0.1),
        (Plan(slow=0.02, memory=0.9), 0.5),
        (Plan(slow=0.02, memory=60, shape="sine"), 0.5),
    ],
)
def test_false_alarms_are_few(plan, aim):
    made, found = judged(plan, 150, 1)
    alarms = sum(f.confirmed for one in found for f in one)
    expected = aim * made.values.size / 1000
    assert distributions.poisson.sf(alarms - 1, expected) > 1e-3, alarms


FIVE = Plan(change="step", size=-0.05, level=0.02, gaps=0.02)
TWO = Plan(change="step", size=-0.02)
TEN = Plan(change="step", size=-0.10, level=0.02, retest=True)


@pytest.mark.parametrize(
    ("plan", "count", "aims"),
    [
        *((FIVE.but(level=level, better=better), 100, {7: 0.90, 14: 0.98})
          for level in (0.01, 0.02) for better in ("higher", "lower")),
        *((FIVE.but(noise=noise, gaps=0.03, **KNOWN), 100, {7: 0.90, 14: 0.98})
          for noise in ("gaussian", "outlier")),
        (TWO.but(**KNOWN), 150, {14: 0.98}),
        # Less than the aim of 0.98, which is missed in young series: see docs/detection.md.
        (TWO.but(nights=180, earliest=40, latest=150), 150, {14: 0.92}),
        (TEN.but(level=0.01), 100, {1: 0.95}),
        (TEN, 100, {1: 0.95}),
        (TEN.but(size=0.10), 100, {1: 0.95}),
    ],
)  # fmt: skip
def test_steps_are_found_within_nights(plan, count, aims):
    """Of 5 % in one and two weeks, of 2 % in two weeks, of 10 % on the same night."""
    made, found = judged(plan, count, 2)
    kind = "regression" if (plan.size < 0) == (plan.better == "higher") else "improvement"
    for within, aim in aims.items():
        hits = sum(
            any(f.kind == kind and 0 <= f.detected - start < within for f in one)
            for start, one in zip(made.start, found, strict=True)
        )
        assert at_least(hits, count, aim)


@pytest.mark.parametrize("noise", ["gaussian", "outlier"])
def test_transients_are_found(noise):
    plan = Plan(noise=noise, level=0.01, change="transient", size=-0.10)
    made, found = judged(plan, 100, 5)
    hits = sum(
        any(f.kind == "transient" and abs(f.start - start) <= 2 for f in one)
        for start, one in zip(made.start, found, strict=True)
    )
    assert at_least(hits, 100, 0.95)


def test_slow_drifts_are_found():
    plan = Plan(nights=240, change="drift", size=-0.10, over=90, latest=80)
    _, found = judged(plan, 40, 6)
    found = [[f for f in one if f.kind in ("drift", "regression")] for one in found]
    assert all(found)
    assert sum(any(f.kind == "drift" for f in one) for one in found) >= 25
    assert all(f.worse for one in found for f in one)
    # The whole loss until now, and reported once.
    sizes = [f.size for one in found for f in one if f.kind == "drift"]
    assert len(sizes) <= 42
    assert np.percentile(np.abs(np.array(sizes) + 0.10), 80) < 0.01


@pytest.mark.parametrize("hindsight", [False, True])
@pytest.mark.parametrize(
    "fields",
    [{"noise": "outlier", "change": "drift", "size": -0.1, "over": 20}, {"slow": 0.02}],
)
def test_nothing_is_found_before_it_began(fields, hindsight):
    _, found = judged(Plan(level=0.02).but(**fields), 60, 8, hindsight=hindsight)
    changes = [one for several in found for one in several]
    assert changes
    for one in changes:
        assert one.start <= one.detected <= (one.revised or one.detected)
        assert one.start <= (one.end or one.start)
        assert (one.size < 0) == one.worse


# -- single rules ----------------------------------------------------------------------------------


def flat(count: int = 120, seed: int = 1, level: float = 0.01) -> np.ndarray:
    return 100 * np.exp(level * np.random.default_rng(SEED + seed).standard_normal(count))


def stepped(start: int, factor: float, count: int = 120) -> np.ndarray:
    values = flat(count)
    values[start:] *= factor
    return values


def test_later_nights_change_no_earlier_report():
    values = stepped(70, 0.94)
    whole = trend.judge(values, "higher", hindsight=False).changes[0]
    for upto in range(whole.detected, len(values), 7):
        part = trend.judge(values[: upto + 1], "higher", hindsight=False).changes
        assert [(f.start, f.detected, f.kind) for f in part] == [
            (whole.start, whole.detected, whole.kind)
        ]
    assert not trend.judge(values[: whole.detected], "higher").changes


@pytest.mark.parametrize(
    ("size", "better", "kind", "worse"),
    [
        (0.9, "higher", "regression", True),
        (1.1, "higher", "improvement", False),
        (0.9, "lower", "improvement", False),
        (1.1, "lower", "regression", True),
        (0.9, "neither", "change", False),
    ],
)
def test_a_step_by_direction_and_better_side(size, better, kind, worse):
    (found,) = trend.judge(stepped(60, size), better).changes
    assert (found.kind, found.worse, found.start) == (kind, worse, 60)
    assert found.size == pytest.approx(size - 1, abs=0.01)
    assert found.low < size - 1 < found.high
    assert found.active and found.confirmed and found.confidence > 0.99


def test_a_regression_that_comes_back_becomes_a_transient():
    values = flat()
    values[60:63] *= 0.9
    (during,) = trend.judge(values[:62], "higher").changes
    assert (during.kind, during.detected, during.active) == ("regression", 60, True)
    (after,) = trend.judge(values, "higher").changes
    assert (after.kind, after.first, after.start, after.end) == ("transient", "regression", 60, 62)
    assert after.detected == 60 < after.revised
    assert not after.active


def test_a_change_that_slowly_came_back_is_not_active():
    # Too slowly for an improvement to be detected.
    noise = np.random.default_rng(8).standard_normal(180)
    values = 100 * np.exp(0.02 * noise)
    values[100:115] *= 0.95
    values[115:165] *= 0.95 + 0.05 * np.arange(50) / 50
    (found,) = trend.judge(values, "higher").changes
    assert (found.kind, found.start, found.active) == ("regression", 100, False)
    (before,) = trend.judge(values[:115], "higher").changes
    assert before.active


@pytest.mark.parametrize(
    ("changes", "better", "active"),
    [
        # The level is still 37 % below that before, and 28 % of it.
        ({60: 0.5, 100: 1.25}, "higher", {60: True, 100: True}),
        ({60: 0.2, 100: 1.4}, "higher", {60: True, 100: True}),
        ({60: 2.1, 100: 1 / 2.1}, "lower", {60: False, 100: True}),
        # Taken back in two steps; and one of two losses.
        ({60: 0.9, 85: 1.04, 110: 1.04}, "higher", {60: False, 85: True, 110: True}),
        ({60: 0.95, 85: 0.95, 110: 1 / 0.95}, "higher", {60: True, 85: False, 110: True}),
        # It only seemed to come back.
        ({60: 0.95, 63: 1 / 0.95, 66: 0.95}, "higher", {60: True}),
        # Upgrades, and a loss of the last one.
        ({30: 1.04, 45: 1.04, 58: 1.04, 74: 1.04, 90: 0.95}, "higher",
         {30: True, 45: True, 58: True, 74: False, 90: True}),
    ],
)  # fmt: skip
def test_a_change_is_active_until_half_of_it_is_taken_back(changes, better, active):
    values = flat(140, level=0.005)
    for night, factor in changes.items():
        values[night:] *= factor
    found = trend.judge(values, better).changes
    assert {f.start: f.active for f in found} == active
    assert [f.worse for f in found] == [(changes[f.start] < 1) == (better == "higher")
                                        for f in found]  # fmt: skip
    assert all(f.failing == (f.worse and f.active) for f in found)


def test_a_size_ignores_a_transient_before_the_change():
    values = flat()
    values[57:60] *= 0.8
    values[68:] *= 0.93
    transient, step = trend.judge(values, "higher").changes
    assert (transient.kind, step.kind) == ("transient", "regression")
    assert step.size == pytest.approx(-0.07, abs=0.01)


def test_a_slow_loss_after_a_step_counts_in_its_size():
    values = flat(180)
    values[60:] *= 0.96
    values[60:120] *= 1 - 0.02 * np.arange(60) / 60
    values[120:] *= 0.98
    found = trend.judge(values, "higher").changes
    total = np.prod([1 + f.size for f in found]) - 1 if len(found) > 1 else found[0].size
    assert total == pytest.approx(-0.06, abs=0.006)


def test_an_outlier_confirms_no_small_step():
    """A night far beyond a step is no evidence for it."""
    more = 0
    for seed in range(60):
        values = flat(87, seed=100 + seed)
        values[80:] *= 0.987
        before = trend.judge(values[:-1], "higher").changes
        values[-1] *= 0.8
        after = [f for f in trend.judge(values, "higher").changes if f.confirmed]
        more += len(after) - len(before)
    assert more <= 1


@pytest.mark.parametrize(
    ("first", "second", "detected"),
    [
        # The noise makes the second night's loss less than half of the first's.
        (0.96, 1.05, 60),
        # An outlier before a step is not the step.
        (0.80, 1.00, 61),
    ],
)
def test_a_report_holds_while_nights_are_off(first, second, detected):
    values = flat(level=0.02)
    values[[25, 45]] *= 0.8
    values[60:62] = 90 * first, 90 * second
    values[62:] *= 0.9
    for hindsight in (False, True):
        (found,) = trend.judge(values, "higher", hindsight=hindsight).changes
        assert (found.kind, found.detected) == ("regression", detected)
        assert found.start in (60, 61)
        assert found.size == pytest.approx(-0.10, abs=0.03)


@pytest.mark.parametrize(
    ("noise", "count", "seed", "number"),
    [
        # After some nights that autocorrelated noise explains better.
        ("outlier", 400, 14_000, 353),
        # With a noisy first night, it is not over the next.
        ("outlier", 500, 14_000, 154),
        ("gaussian", 500, 79, 99),
    ],
)
def test_a_step_is_one_finding(noise, count, seed, number):
    """10 % in noise of 2 %."""
    made = nights.make(Plan(noise=noise, level=0.02, change="step", size=-0.10), count, seed)
    (found,) = trend.judge(made.values[number], "higher").changes
    assert (found.kind, found.start) == ("regression", made.start[number])


def test_an_outlier_soon_after_a_step_does_not_hide_it():
    """It looks like a further level for some nights; the step is still to be reported."""
    plan = Plan(noise="outlier", level=0.02, change="step", size=-0.10, **KNOWN)
    made = nights.make(plan, 100, 777)
    for values, start in zip(made.values, made.start, strict=True):
        values[start + 2] *= 0.92
    work = [(values, "higher", None) for values in made.values]
    found = [one.changes for one in trend.judge_all(work)]
    hits = [any(f.worse and f.confirmed and 0 <= f.detected - start < 14 for f in one)
            for one, start in zip(found, made.start, strict=True)]  # fmt: skip
    assert at_least(sum(hits), 100, 0.98)


def test_early_outliers_cost_no_small_step():
    """They count as missing nights."""
    plan = Plan(change="step", size=-0.02, nights=90, earliest=60, latest=60)
    found = []
    for outlier in (math.nan, 0.8):
        made = nights.make(plan, 200, 78)
        made.values[:, [30, 45]] *= outlier
        changes = [trend.judge(values, "higher").changes for values in made.values]
        found.append(sum(any(60 <= f.detected < 74 for f in one) for one in changes))
    assert found[1] >= 0.95 * found[0]


@pytest.mark.parametrize("apart", [4, 8, 25])
def test_a_second_loss_is_a_second_finding(apart):
    values = stepped(60, 0.95)
    values[60 + apart :] *= 0.95
    first, second = trend.judge(values, "higher", hindsight=False).changes
    assert (first.kind, second.kind) == ("regression", "regression")
    assert (first.start, second.start) == (60, 60 + apart)
    assert second.detected <= 60 + apart + 5


def test_a_drift_does_not_absorb_a_later_loss():
    values = flat(200, level=0.005)
    values[40:120] *= 1 - 0.06 * np.arange(80) / 80
    values[120:] *= 0.94
    values[150:] *= 0.95
    *drifts, loss = trend.judge(values, "higher").changes
    assert [f.kind for f in drifts] == ["drift"]
    assert (loss.kind, loss.start) == ("regression", 150)


@pytest.mark.parametrize("seed", range(5))
def test_a_drift_that_begins_with_the_series_goes_on(seed: int):
    """There is no level before it, so that the first nights are what it is compared with."""
    slope = 1 - 0.0015 * np.arange(180)
    found = [f for f in trend.judge(flat(180, seed) * slope, "higher").changes if f.active]
    lost = sum(math.log1p(f.size) for f in found)
    assert "drift" in {f.kind for f in found} and lost == pytest.approx(math.log(0.75), abs=0.05)
    assert not any(math.isnan(f.low) for f in found)


def test_confidence_counts_the_price_of_a_change():
    """A loss that is reported at all is likelier than noise in at most 0.1 of 1,000 nights."""
    made = [flat(98, seed) * np.where(np.arange(98) < 90, 1, 0.98) for seed in range(20)]
    found = [f for one in trend.judge_all([(x, "higher", None) for x in made]) for f in one.changes]
    assert len(found) > 9 and min(f.confidence for f in found if f.confirmed) > 0.9


def test_the_last_of_five_losses_is_no_part_of_a_drift():
    values = flat(140, seed=9, level=0.02)
    for start in (40, 55, 70, 85, 100):
        values[start:] *= 0.95
    *_, last = trend.judge(values, "higher").changes
    assert (last.kind, last.detected in range(100, 107)) == ("regression", True)


def test_a_far_night_of_a_change_is_no_finding_of_its_own():
    values = flat(60, level=0.02)
    values[40:45] = 100 * np.exp([-0.045, -0.03, -0.085, -0.06, -0.06])
    values[45:] *= 0.94
    (found,) = trend.judge(values, "higher").changes
    assert (found.kind, found.start, found.confirmed) == ("regression", 40, True)


@pytest.mark.parametrize("level", [0, 0.001, 0.003])
def test_values_of_three_digits(level):
    """A change of one digit is none; a loss of 5 % is reported at once and confirmed next night."""
    values = np.round(11.94 * flat(120, level=level) / 100, 1)
    assert len(set(values)) <= 3
    assert not trend.judge(values, "higher").changes
    values[60:] = np.round(0.95 * values[60:], 1)
    (first,) = trend.judge(values[:61], "higher").changes
    (second,) = trend.judge(values[:62], "higher").changes
    assert (first.kind, first.detected) == (second.kind, second.detected) == ("regression", 60)
    assert second.confirmed


@pytest.mark.parametrize("early", [0.95, 0.9])
@pytest.mark.parametrize("loss", [0.95, 0.9])
def test_an_outlier_of_the_first_nights_is_no_digit(early, loss):
    """Else a loss as large as the outlier was less than a digit, and never reported."""
    values = np.full(62, 11.92)
    values[7] = round(early * 11.92, 2)
    values[60:] = round(loss * 11.92, 2)
    (first,) = trend.judge(values[:61], "higher").changes
    (second,) = trend.judge(values, "higher").changes
    assert (first.kind, first.detected, first.confirmed) == ("suspect", 60, False)
    assert (second.kind, second.detected, second.confirmed) == ("regression", 60, True)


def test_what_autocorrelated_noise_cannot_be_is_a_change():
    """It is 3 % at most: levels that are further apart are reported."""
    values = flat(140, level=0.02)
    for start in (40, 55, 70, 85):
        values[start:] *= 1.08
    found = trend.judge(values, "higher").changes
    assert [f.start for f in found] == pytest.approx([40, 55, 70, 85], abs=1)


def test_two_steps_of_which_one_is_noise_are_no_drift():
    walked = np.log(np.r_[np.full(60, 100.0), np.full(60, 95.0)]) + np.log(flat()) - np.log(100)
    first, noise = (Episode("step", start, start + 5, size, 20.0) for start, size in
                    ((60, -0.05), (75, -0.01)))  # fmt: skip
    assert not episodes._one_drift(walked, first, noise)
    slope = walked - walked + np.linspace(0, -0.1, 120) + np.log(flat()) - np.log(100)
    assert episodes._one_drift(slope, first, noise)


def test_one_far_night_is_unconfirmed_until_the_next():
    values = flat()
    values[-1] *= 0.88
    (found,) = trend.judge(values, "higher").changes
    assert (found.kind, found.confirmed, found.detected) == ("regression", False, 119)
    assert not found.failing
    judgement = trend.judge(np.append(values, 100.0), "higher")
    assert not judgement.changes
    assert judgement.outliers == [(119, 119)]


def test_a_far_night_in_a_series_with_outliers_is_a_suspect():
    values = flat()
    values[[25, 45, 65, 85]] *= 0.8
    values[-1] *= 0.88
    (found,) = trend.judge(values, "higher").changes
    assert (found.kind, found.active) == ("suspect", False)


def test_a_retest_confirms_or_refutes_a_far_night():
    values, second = flat(), flat(seed=2)
    values[-1] *= 0.88
    assert not trend.judge(values, "higher", second).changes
    second[-1] *= 0.88
    (found,) = trend.judge(values, "higher", second).changes
    assert (found.kind, found.confirmed, found.detected) == ("regression", True, 119)
    # The same with retests of the suspicious nights alone.
    second[:-1] = np.nan
    (found,) = trend.judge(values, "higher", second).changes
    assert found.confirmed


def test_a_series_is_judged_from_the_21st_measured_night_on():
    """Judged is only what could have been found."""
    values = flat(60)
    values[5:30] = np.nan
    values[45:] *= 0.5
    assert np.isfinite(values[:45]).sum() == partition.WARM_UP
    assert not trend.judge(values[:45], "higher").judged
    (found,) = trend.judge(values[:46], "higher").changes
    assert found.start == 45


def test_a_long_series_is_judged_to_its_end():
    values = flat(1500)
    values[1400:] *= 0.95
    found = trend.judge(values, "higher").changes
    assert [f.kind for f in found if f.start >= 1395] == ["regression"]
    assert len(found) <= 2


def test_values_that_never_vary():
    values = np.full(100, 5.0)
    assert not trend.judge(values, "higher").changes
    values[60:] = 4.5
    (found,) = trend.judge(values, "higher").changes
    assert (found.kind, found.start) == ("regression", 60)


@pytest.mark.parametrize("loss", [0.107, 0.05])
@pytest.mark.parametrize("other", [(11.91, 11.93), (11.93, 11.93), (11.90, 11.91)])
def test_a_loss_after_printed_values_that_hardly_vary(loss, other):
    """As of a shaped link: the same value on 20 of 22 nights, then a loss. It is reported on its
    first night, and confirmed on the second."""
    values = np.full(25, 11.92)
    values[[7, 15]] = other
    values[22:] = np.round(11.92 * (1 - loss), 2)
    assert not trend.judge(values[:22], "higher").changes
    for count, confirmed in ((23, False), (24, True), (25, True)):
        (found,) = trend.judge(values[:count], "higher").changes
        assert (found.kind, found.start, found.detected, found.confirmed) == (
            "regression", 22, 22, confirmed,
        )  # fmt: skip
        assert found.size == pytest.approx(-loss, abs=0.001)


# -- why -------------------------------------------------------------------------------------------


def test_why_has_the_levels_and_the_evidence(tmp_path, broken):
    path = write_nights(tmp_path / "n.csv", {"a": flat(), "b": broken}, dates=True)
    done = run("--input", path, "--why", "b")
    first, second = json.loads(done.out)
    assert done.code == 0
    assert (first["start"], second["start"], second["end"]) == (
        "2026-01-01", "2026-03-02", "2026-04-30",
    )  # fmt: skip
    assert first["values"] == second["values"] == 60
    assert second["change"] == pytest.approx(-0.07, abs=0.01)
    assert (first["change"], first["evidence"]) == (None, None)
    assert second["evidence"] >= second["needed"] > 0
    assert second["sigma"] == pytest.approx(0.01, rel=0.3)
    rows = [*csv.DictReader(run("--input", path, "--why", "b", "--format", "csv").out.splitlines())]
    assert [row["start"] for row in rows] == ["2026-01-01", "2026-03-02"]
    text = run("--input", path, "--why", "", "--format", "text").out
    assert max(map(len, text.splitlines())) <= 100 and {"a", "b"} <= {*text.splitlines()}


def test_why_has_a_number_for_a_change_beyond_doubt():
    """Where no partition without the change is kept: JSON has none for infinity."""
    count = 60
    zero, start, sure = np.zeros(count), np.full(count, 30), np.full(count, np.inf)
    found = partition.Partitions(start, start, zero + 9, sure, zero, zero, zero, start[:, None])
    assert why._evidence(found, 30, count - 1) == (200, partition.EVIDENCE)


def test_why_names_the_autocorrelated_noise(tmp_path):
    made = nights.make(Plan(nights=300, level=0.003, slow=0.02, memory=0.95), 1, SEED)
    path = write_nights(tmp_path / "n.csv", {"a": made.values[0]})
    (level, *_) = json.loads(run("--input", path, "--why", "a").out)
    assert level["memory"] >= 0.9 and level["slow"] > 2 * 0.003


@pytest.mark.parametrize("arguments", [["c"], ["b", "--new"], ["b", "--active"], ["b", "--online"]])
def test_why_refuses_what_it_cannot_explain(tmp_path, broken, arguments):
    path = write_nights(tmp_path / "n.csv", {"b": broken, "c": flat(15)})
    done = run("--input", path, "--why", *arguments)
    assert (done.code, done.out, done.codes) == (2, "", ["input.wrong-option"])
    many = write_nights(tmp_path / "m.csv", {f"b{n}": broken for n in range(21)})
    assert run("--input", many, "--why", "b").codes == ["input.wrong-option"]
    assert run("--input", many, "--why", "nothing").codes == ["input.wrong-option"]


# -- statistics ------------------------------------------------------------------------------------


def test_hampel_moves_only_what_stands_out():
    values = flat(seed=3)
    values[40] = 50
    clipped = stats.hampel(values)
    assert clipped[40] > 90
    assert np.mean(clipped == values) > 0.9


def test_running_median_looks_back_only():
    values = np.arange(30.0)
    found = stats.running_median(values, 5)
    assert list(found[:4]) == [0, 0, 0.5, 1]
    assert found[20] == np.median(values[15:20])


def test_autocorrelated_values_count_less():
    plan = Plan(nights=300, level=0.003, slow=0.02, memory=0.95)
    correlated = np.log(nights.make(plan, 1, SEED).values[0])
    assert stats.effective_size(correlated) < 40
    assert stats.effective_size(flat(300)) > 200
    assert stats.autocorrelation(correlated, 1)[0] > 0.85


def test_shift_is_hodges_lehmann_with_its_interval():
    before, after = np.array([1.0, 2, 3, 4, 5]), np.array([3.0, 4, 5, 6, 70])
    middle, low, high = stats.shift(before, after)
    assert low <= middle == 2 <= high
    assert stats.shift(before, after, inflate=2)[1] <= low


# -- the command over a file -----------------------------------------------------------------------


def run(*arguments: object) -> Done:
    return asked("trend", *arguments)


def write_nights(path: Path, series: dict, better: str = "higher", dates: bool = False) -> Path:
    first = datetime.date(2026, 1, 1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["series", "night", "value", "better"])
        for name, values in series.items():
            for night, value in enumerate(values):
                date = first + datetime.timedelta(night) if dates else night
                writer.writerow([name, date, "" if np.isnan(value) else value, better])
    return path


@pytest.fixture
def broken() -> np.ndarray:
    return stepped(60, 0.93)


def test_a_file_of_nights_prints_findings_as_json(tmp_path, broken):
    path = write_nights(tmp_path / "n.csv", {"a": flat(), "b": broken})
    done = run("--input", path, "--online")
    (change,) = json.loads(done.out)
    assert done.code == 1
    assert (change["series"], change["kind"], change["start"]) == ("b", "regression", 60)
    assert change["night"] >= 60
    assert run("--input", path, "--online") == done


def test_files_of_spreadsheets(tmp_path, broken):
    """A byte order mark, ends of lines as Windows has them, blanks, nan for a gap, columns that are
    empty, and nights in any order."""
    path = write_nights(tmp_path / "n.csv", {"b": broken})
    plain = run("--input", path)
    head, *lines = path.read_text().replace(",", ", ").splitlines()
    text = "\n".join([head, *reversed(lines), "b, 999, nan, higher", ""])
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", ",,\r\n").encode())
    assert run("--input", path) == plain
    assert plain.code == 1


def test_dates_are_printed_as_dates(tmp_path, broken):
    path = write_nights(tmp_path / "n.csv", {"b": broken}, dates=True)
    assert json.loads(run("--input", path).out)[0]["start"] == "2026-03-02"


def test_many_series_on_all_cores_are_as_one_by_one(tmp_path, broken):
    series = {f"s{n}": flat(60, seed=n) for n in range(series_changes.MANY)} | {"b": broken}
    path = write_nights(tmp_path / "n.csv", series)
    rows = [row for row in json.loads(run("--input", path).out) if row["series"] == "b"]
    alone = write_nights(tmp_path / "b.csv", {"b": broken})
    assert rows == json.loads(run("--input", alone).out)


def test_text_and_csv(tmp_path, broken):
    path = write_nights(tmp_path / "n.csv", {"a": flat(), "b": broken})
    done = run("--input", path, "--format", "text")
    assert done.code == 1
    heads, _, series, change, total = filter(None, done.out.splitlines())
    assert heads.split()[:3] == ["kind", "since", "found"] and series == "b"
    assert change.index("regression") == heads.index("kind")
    assert re.findall(r"\d+", total) == ["1", "1", "2"]
    (row,) = csv.DictReader(run("--input", path, "--format", "csv").out.splitlines())
    assert float(row["size"]) == pytest.approx(-0.07, abs=0.01)
    assert (row["worse"], row["confirmed"]) == ("true", "true")


def test_exit_codes(tmp_path, broken):
    assert run("--input", write_nights(tmp_path / "a.csv", {"a": flat()})).code == 0
    assert run("--input", write_nights(tmp_path / "b.csv", {"b": broken}, "lower")).code == 0
    short = run("--input", write_nights(tmp_path / "c.csv", {"c": flat(20)}))
    assert (short.code, json.loads(short.out)) == (2, [])
    assert "1 series" in short.err and "21 nights" in short.err


HEAD = "series,night,value,better"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ":1: no column series, night, value, better"),
        ("series,night,value\na,1,2\n", ":1: no column better"),
        (f"{HEAD}\n", "no row"),
        (f"{HEAD}\na,1,inf,higher\n", ":2: value inf"),
        (f"{HEAD}\na,1,-3,higher\n", ":2: value -3"),
        (f"{HEAD}\na,1,0,higher\n", ":2: value 0"),
        (f"{HEAD}\na,1,fast,higher\n", ":2: value 'fast'"),
        (f"{HEAD}\na,1,1_01,higher\n", ":2: value '1_01'"),
        (f"{HEAD}\na,1,2,up\n", ":2: better 'up'"),
        (f"{HEAD}\na,1,2,higher\na,2,2,lower\n", ":3: better 'lower'"),
        (f"{HEAD}\na,1,2,higher\na,1,3,higher\n", ":3: night 1"),
        (f"{HEAD}\na,monday,2,higher\n", ":2: night 'monday'"),
        (f"{HEAD}\na,1_0,2,higher\n", ":2: night '1_0'"),
        (f"{HEAD}\na,2026-W01-1,2,higher\n", ":2: night '2026-W01-1'"),
        (f"{HEAD}\na,2026-02-30,2,higher\n", ":2: night '2026-02-30'"),
        (f"{HEAD}\na,1,2,higher\na,2026-01-01,2,higher\n", ":3: night 2026-01-01"),
        (f"{HEAD}\n,1,2,higher\n", ":2: no series"),
        (f"{HEAD}\na,1,2\n", ":2: 3 cells"),
        (f"{HEAD}\na,1,2,higher,9\n", ":2: 5 cells"),
        (f"{HEAD},value\na,1,2,higher,3\n", ":1: column value"),
        (f"{HEAD}\na,1,2,higher\n".replace(",", ";"), "';'"),
        (f"{HEAD}\na,1,2,higher\n".replace(",", "\t"), "'\\t'"),
        (f'{HEAD}\n"a,1,2,higher\n', ":2: "),
        (f"{HEAD},retest\na,1,,higher,9\n", ":2: a retest"),
    ],
)
def test_bad_input_is_reported_with_its_line(tmp_path, text, where):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = run("--input", path)
    assert (done.code, done.out, done.codes) == (2, "", ["input.wrong-file"])
    assert where in done.err and done.err.startswith(f"plumbline: {path}")


def test_an_unreadable_file_and_one_with_a_selection_are_refused(tmp_path, broken):
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("none.csv", "binary.csv"):
        assert run("--input", tmp_path / name).codes == ["input.unreadable-file"]
    path = write_nights(tmp_path / "n.csv", {"b": broken})
    for more in (["--system", "x"], ["--from", tmp_path]):
        done = run("--input", path, *more)
        assert (done.code, done.out, done.codes) == (2, "", ["input.wrong-option"])


def test_the_first_ten_faults_are_listed(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(f"{HEAD}\n" + "".join(f"a,{n},x,higher\n" for n in range(30)))
    with pytest.raises(Fault) as fault:
        nights_file.read(path)
    assert len(str(fault.value).splitlines()) == 11
    assert " 20 " in str(fault.value).splitlines()[-1]


# -- over the history ------------------------------------------------------------------------------


def of_history(values: np.ndarray, per_night: int = 1) -> Series:
    night, of_night = np.divmod(np.arange(len(values)), per_night)
    times = np.datetime64("2026-01-01T02:00:00", "s") + night * np.timedelta64(86400, "s")
    key = Key("sys", "cpu", "gnu", "imb", "latency", 8, "", "on-socket", "")
    builds = np.where(night < 60, "old", "new")
    return records.series(key, values, better="lower", times=times + of_night, builds=builds)


def test_findings_of_the_history_are_indices_of_its_values():
    values = stepped(60, 1.08)
    ((found,),) = (one.changes for one in trend.judge_history([of_history(values)]))
    assert (found.kind, found.start, found.worse) == ("regression", 60, True)
    assert not trend.judge_history([of_history(values[60:79])])[0].judged


def test_sessions_of_a_night_are_one_value():
    values = np.repeat(flat(), 3)
    values[180:] *= 1.08
    values[100] *= 5
    ((found,),) = (one.changes for one in trend.judge_history([of_history(values, 3)]))
    assert (found.start, found.detected % 3) == (180, 2)


def test_rows_of_the_history_have_sessions_and_build():
    values = stepped(60, 1.08)
    found = series_changes.of_history([of_history(values), of_history(values[:10])], online=False)
    (row,) = found.changes
    assert (row.before, row.after, row.build, row.nodes) == ("s59", "s60", "old to new", "n1,n2")
    assert (row.start, row.fields()["start"]) == (60, "2026-03-02")
    assert "sys:cpu+gnu imb latency 8 B on-socket" in row.series
    assert found.too_short == 1
    assert row.failing


def test_values_without_a_relative_change_are_counted():
    values = flat()
    values[[3, 50]] = 0.0, -1.0
    found = series_changes.of_history([of_history(values)], online=False)
    assert (found.judged, found.skipped) == (1, 2) and "2 values" in found.unjudged
    assert not series_changes.of_history([of_history(flat())], online=False).unjudged


def test_a_retry_does_not_hide_a_loss(tmp_path):
    """Which passes each night, after the first attempt of each night failed."""
    for night, level in enumerate(flat(31)):
        ended = datetime.datetime(2026, 11, 1, 2) + datetime.timedelta(night)
        session = f"{ended:%Y%m%dT%H%M%SZ}-{night:06x}"
        tries = [(level, "pass")] if night < 21 else [(0.8 * level, "fail"), *[(level, "pass")] * 2]
        for attempt, (value, result) in enumerate(tries):
            foms = [records.figure(float(value), verdict=result)]
            about = {"attempt": attempt, "result": result, "foms": foms}
            line = records.case(session, f"{ended:%Y-%m-%dT%H:%M:%SZ}", **about)
            records.write(tmp_path, [line])
    done = run("--from", tmp_path, "--format=json")
    (found,) = json.loads(done.out)
    assert (done.code, found["kind"], found["start"]) == (1, "regression", "2026-11-22")
    assert found["size"] == pytest.approx(-0.2, abs=0.02)
