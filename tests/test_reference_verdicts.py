"""Verdicts on figures: by bounds and ceilings, of single samples, and near a bound."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from plumbline.reference.lookup import summarize
from plumbline.reference.row import Row, key_of
from reference_tables import (
    CASE,
    LATENCY,
    RING,
    ROW,
    changed,
    decided,
    folder_,  # noqa: F401 - a fixture
    references,
)

PEAK = {"kind": "peak", "value": "2000"}
OTHER_PEAK = [{"metric": "capped"}, PEAK | {"metric": "peak_bandwidth"}]
REPEATED = RING | {"spread": "1.0", "conditions": "runs=100"}

#: Rows, metric, samples -> verdict.
VERDICTS = [
    ([{}], "bandwidth", [950.0], "pass"),
    ([{}], "bandwidth", [949.999], "fail"),
    ([{}], "bandwidth", [1e9], "pass"),
    ([{}], "bandwidth", [math.nan], "fail"),
    ([{"spread": "100"}], "bandwidth", [700.0], "pass"),
    ([{"spread": "100"}], "bandwidth", [699.999], "fail"),
    ([LATENCY], "latency", [11.0], "pass"),
    ([LATENCY], "latency", [11.001], "fail"),
    ([LATENCY], "latency", [0.01], "pass"),
    ([LATENCY | {"value": "0.05"}], "latency", [0.06], "pass"),
    ([LATENCY | {"value": "0.05"}], "latency", [0.0601], "fail"),
    # The summary is compared with the bounds, each sample against the ceiling.
    ([{"statistic": "median"}], "bandwidth", [900.0, 950.0, 2000.0], "pass"),
    ([{"statistic": "mean"}], "bandwidth", [900.0, 900.0, 1050.0], "pass"),
    ([{"statistic": "mean"}], "bandwidth", [900.0, 900.0, 1049.0], "fail"),
    ([{"statistic": "best"}], "bandwidth", [1.0, 950.0], "pass"),
    ([LATENCY | {"statistic": "best"}], "latency", [11.0, 99.0], "pass"),
    ([{}, PEAK], "bandwidth", [2000.5], "pass"),
    ([{}, PEAK], "bandwidth", [1000.0, 1000.0, 2000.6], "above-ceiling"),
    ([{}, PEAK], "bandwidth", [900.0], "fail"),
    ([PEAK], "bandwidth", [2000.6], "above-ceiling"),
    ([PEAK], "bandwidth", [1999.0], "not-asserted"),
    # A device whose printed peak is what was measured, 2.1 GB/s, may be a little faster.
    ([PEAK | {"value": "2.1", "unit": "GB/s"}], "bandwidth", [2149.0], "not-asserted"),
    ([PEAK | {"value": "2.1", "unit": "GB/s"}], "bandwidth", [2151.0], "above-ceiling"),
    ([LATENCY | {"kind": "peak"}], "latency", [9.5], "not-asserted"),
    ([LATENCY | {"kind": "peak"}], "latency", [10.0, 9.4], "above-ceiling"),
    ([PEAK, PEAK | {"value": "1500", "source": "other"}], "bandwidth", [1600.0], "above-ceiling"),
    ([{}, PEAK | {"placement": "on-socket"}], "bandwidth", [3000.0], "pass"),
    ([{}, PEAK | {"conditions": "bound=lower"}], "bandwidth", [3000.0], "pass"),
    # The peak of another metric caps this one, whatever size it has.
    (OTHER_PEAK, "capped", [2001.0], "above-ceiling"),
    (OTHER_PEAK, "capped", [1999.0], "pass"),
    # The more samples of a distribution, the closer their mean must be, whatever their median.
    ([REPEATED], "ring", [11.5] * 3, "pass"),
    ([REPEATED], "ring", [11.5] * 9, "fail"),
    ([REPEATED], "ring", [10.0, 10.0, 10.0, 10.0, 30.0], "fail"),
    ([RING | {"spread": ""}], "ring", [99.0] * 9, "not-asserted"),
    # Three spreads below the value are less than nothing.
    ([{"spread": "400"}], "bandwidth", [0.001], "not-asserted"),
    # It has no direction.
    ([{"metric": "share", "unit": "%", "value": "50"}], "share", [99.0], "not-asserted"),
    ([], "bandwidth", [1.0], "not-asserted"),
    ([{"system": "elsewhere"}], "bandwidth", [1.0], "not-asserted"),
    ([{"kind": "target"}], "bandwidth", [1.0], "not-asserted"),
]


@pytest.mark.parametrize(("rows", "metric", "samples", "verdict"), VERDICTS)
def test_verdict(folder: Path, rows: list, metric: str, samples: list, verdict: str) -> None:
    refs = references(folder, *rows)
    size = 4096 if metric == "capped" else None
    judged = refs.judge(CASE, metric, size, samples)
    assert judged.verdict == verdict
    assert (judged.bounds is None) == (not any(decided(refs, CASE, metric, size)))


#: Row, metric, samples -> whether it passes and is too good to be credible: more than twice the
#: distance to its bound away (50 MB/s, 1 us), and half as good again.
TOO_GOOD = [
    ({}, "bandwidth", 1499, False),
    ({}, "bandwidth", 1500, True),
    ({"spread": "200"}, "bandwidth", 2199, False),
    ({"spread": "200"}, "bandwidth", 2201, True),
    ({}, "bandwidth", 940, False),
    (LATENCY, "latency", 6.67, False),
    (LATENCY, "latency", 6.66, True),
    (LATENCY, "latency", 1.0, True),
    (LATENCY | {"spread": "1.5"}, "latency", 1.1, False),
    (LATENCY | {"spread": "1.5"}, "latency", 0.9, True),
]


@pytest.mark.parametrize(("row", "metric", "value", "suspicious"), TOO_GOOD)
def test_a_figure_that_is_too_good(
    folder: Path, row: dict, metric: str, value: float, suspicious: bool
) -> None:
    size = 8 if metric == "latency" else None
    assert references(folder, row).judge(CASE, metric, size, [value]).suspicious == suspicious
    # Above its ceiling it has failed already.
    peak = ROW | row | {"id": "peak", "kind": "peak"}
    assert not references(folder, row, peak).judge(CASE, metric, size, [value]).suspicious


#: Row, metric, samples -> those beyond the bound of a single one, of a figure that passes.
BEYOND = [
    ({}, "bandwidth", [1000, 100, 1010, 95, 1001], (2, 4)),
    ({}, "bandwidth", [1000, 951, 2000], ()),
    ({}, "bandwidth", [100, 100, 1000], ()),  # It fails: its verdict tells of it.
    (LATENCY, "latency", [10, 10, 100], (3,)),
    ({"statistic": "best"}, "bandwidth", [100, 1000], (1,)),
    # A single run of a distribution lies as far as 3 x 2.0 x sqrt(2) off; the mean of three less.
    (RING, "ring", [10, 10, 18], ()),
    (RING, "ring", [1, 1, 19], (3,)),
]


@pytest.mark.parametrize(("row", "metric", "samples", "beyond"), BEYOND)
def test_single_samples_beyond_the_bound(
    folder: Path, row: dict, metric: str, samples: list[float], beyond: tuple[int, ...]
) -> None:
    refs = references(folder, row)
    judged = refs.judge(CASE, metric, 8 if metric == "latency" else None, samples)
    assert judged.beyond == beyond
    nothing = references(folder, row | {"system": "other"})
    assert nothing.judge(CASE, metric, None, samples).beyond == ()


#: Row, metric, single sample -> whether it passes near its bound, with four fifths allowed. The
#: bandwidth's bound is 950, the latency's 11, and with a spread of 1 it is 13.
NEAR = [
    ({}, "bandwidth", 961, False),
    ({}, "bandwidth", 959, True),
    ({}, "bandwidth", 949, None),
    ({}, "bandwidth", 1100, False),
    (LATENCY, "latency", 10.79, False),
    (LATENCY, "latency", 10.81, True),
    (LATENCY, "latency", 11.01, None),
    (LATENCY, "latency", 5, False),
    (LATENCY | {"spread": "1"}, "latency", 12.39, False),
    (LATENCY | {"spread": "1"}, "latency", 12.41, True),
]


@pytest.mark.parametrize(("row", "metric", "value", "near_bound"), NEAR)
def test_warning_band(
    folder: Path, row: dict, metric: str, value: float, near_bound: bool | None
) -> None:
    judged = references(folder, row).judge(CASE, metric, None if not row else 8, [value])
    assert (judged.verdict, judged.near_bound) == (
        "fail" if near_bound is None else "pass",
        bool(near_bound),
    )
    assert judged.better == ("higher" if metric == "bandwidth" else "lower")


def test_warning_band_of_a_class(folder: Path) -> None:
    text = changed("tolerance.yaml", "classes", "up", "warning_share", 0.5)
    (folder / "tolerance.yaml").write_text(text)
    known = references(folder, {})
    assert known.judge(CASE, "bandwidth", None, [974]).near_bound
    assert not known.judge(CASE, "bandwidth", None, [976]).near_bound


def test_what_is_not_asserted_is_near_no_bound(folder: Path) -> None:
    judged = references(folder).judge(CASE, "bandwidth", None, [959])
    assert (judged.verdict, judged.near_bound) == ("not-asserted", False)


def test_judgement_has_its_ceiling(folder: Path) -> None:
    judged = references(folder, PEAK | {"unit": "GB/s", "value": "2"}).judge(
        CASE, "bandwidth", None, [3.0, 1.0, 2.0]
    )
    assert (judged.ceiling, judged.ceiling_id) == (2500, "r1")
    assert (judged.value, judged.statistic, judged.bounds) == (2.0, "median", None)


@pytest.mark.parametrize(
    ("statistic", "metric", "expected"),
    [
        ("best", "bandwidth", 9.0),
        ("best", "latency", 1.0),
        ("best", "share", 2.0),
        ("mean", "bandwidth", 3.75),
        ("median", "latency", 2.5),
        ("single", "latency", 2.5),
        ("unstated", "bandwidth", 2.5),
    ],
)
def test_summary(folder: Path, statistic: str, metric: str, expected: float) -> None:
    refs = references(folder)
    rule = refs.rule(refs.fom("bench", metric))
    samples = [3.0, 1.0, 9.0, 2.0] if metric != "share" else [3.0, 1.0, 2.0]
    assert summarize(samples, statistic, rule) == expected


def test_row_is_frozen() -> None:
    row = Row.model_validate(ROW)
    with pytest.raises(ValueError, match="frozen"):
        row.value = 1.0
    assert key_of(row) == key_of(Row.model_validate(ROW | {"id": "other"}))
