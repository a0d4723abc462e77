"""Bounds of figures: those of their class, exceptions from it, and distributions."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from plumbline.reference.lookup import References
from plumbline.reference.tables import load
from reference_tables import (
    CASE,
    LATENCY,
    REGISTERS,
    RING,
    ROW,
    SHIPPED,
    decided,
    folder_,  # noqa: F401 - a fixture
    references,
    refused,
)

INF = math.inf

#: Cells of the row, number of runs -> reference, lower and upper bound.
BOUNDS = [
    # Higher is better: minus the larger of 5 % and three spreads.
    ({}, 1, (1000, 950, INF)),
    ({"spread": "0"}, 1, (1000, 950, INF)),
    ({"spread": "10"}, 1, (1000, 950, INF)),
    ({"spread": "20"}, 1, (1000, 940, INF)),
    ({"unit": "GB/s", "value": "2.00", "spread": "0.1"}, 1, (2000, 1700, INF)),
    ({"unit": "MiB/s", "value": "1000"}, 1, (1048.576, 996.1472, INF)),
    ({"value_used": "500"}, 1, (500, 475, INF)),
    ({"unit_used": "GB/s", "value_used": "3.0", "spread": "0.1"}, 1, (3000, 2700, INF)),
    # Lower is better: plus the larger of 10 % and three spreads, at least the resolution.
    (LATENCY, 1, (10, -INF, 11)),
    (LATENCY | {"spread": "0.1"}, 1, (10, -INF, 11)),
    (LATENCY | {"spread": "0.5"}, 1, (10, -INF, 11.5)),
    (LATENCY | {"value": "0.05"}, 1, (0.05, -INF, 0.06)),
    (LATENCY | {"value": "0.050"}, 1, (0.05, -INF, 0.06)),
    (LATENCY | {"value": "0.10"}, 1, (0.1, -INF, 0.11)),
    (LATENCY | {"value": "0.0020", "unit": "ms"}, 1, (2, -INF, 2.2)),
    # Never less than the last printed digit: what is printed as 2 may have been 1.5.
    ({"value": "2", "unit": "GB/s"}, 1, (2000, 1000, INF)),
    ({"value": "2.0", "unit": "GB/s"}, 1, (2000, 1900, INF)),
    ({"value": "9.9e2"}, 1, (990, 940.5, INF)),
    ({"value": "1e3", "unit_used": "GB/s", "value_used": "7"}, 1, (7000, 6000, INF)),
    (LATENCY | {"value": "0.1"}, 1, (0.1, -INF, 0.2)),
]


@pytest.mark.parametrize(("cells", "runs", "expected"), BOUNDS)
def test_bounds(folder: Path, cells: dict, runs: int, expected: tuple) -> None:
    row = ROW | cells
    bounds = references(folder, cells).bounds(CASE, row["metric"], None, runs)
    assert (bounds.value, bounds.lower, bounds.upper) == pytest.approx(expected, rel=1e-12)
    assert (bounds.decides, bounds.statistic) == ("r1", "unstated")
    assert bounds.source == "A paper, SC, 2030, table 1"


def excepting(folder: Path, **fields: object) -> None:
    """Writes an exception for row r1 into the folder's tolerances."""
    found = REGISTERS["tolerance.yaml"] | {"exceptions": [{"rows": ["r1"], **fields}]}
    (folder / "tolerance.yaml").write_text(yaml.safe_dump(found))


VARIATION = {"id": "v", "metric": "share", "unit": "%", "value": "9", "conditions": "bound=upper"}


def test_an_exception_takes_the_place_of_the_floor_of_its_class(folder: Path) -> None:
    excepting(folder, floor=0.02, reason="it repeats well")
    found = references(folder, {}, {"metric": "capped"})
    assert found.bounds(CASE, "bandwidth", None).lower == pytest.approx(980)
    assert found.bounds(CASE, "capped", 4096).lower == pytest.approx(950)
    # The printed spread is as it was.
    wide = references(folder, {"spread": "10"})
    assert wide.bounds(CASE, "bandwidth", None).lower == pytest.approx(970)


def test_an_exception_may_be_a_printed_variation_also_for_another_program(folder: Path) -> None:
    excepting(folder, variation="v", reason="so it is printed")
    found = references(folder, {}, VARIATION)
    assert found.bounds(CASE, "bandwidth", None).lower == pytest.approx(910)
    other = replace(CASE, benchmark="other")
    assert found.bounds(other, "stream", None).lower == pytest.approx(0.910)


def test_an_exception_may_be_the_statistic_that_decides_of_a_distribution(folder: Path) -> None:
    """By the rule of its class, of as many samples; the mean is data then."""
    excepting(folder, rows=["r?"], statistic="median", reason="an outlier")
    median = RING | {"statistic": "median", "value": "8.0", "spread": ""}
    refs = references(folder, RING, median)
    assert decided(refs, CASE, "ring") == ("r2",)
    bounds = refs.bounds(CASE, "ring", None)
    assert (bounds.upper, bounds.statistic) == (pytest.approx(8.1), "median")
    assert refs.judge(CASE, "ring", None, [8, 99, 8]).verdict == "pass"
    assert refs.judge(CASE, "ring", None, [8, 9, 9]).verdict == "fail"
    assert refs.judge(CASE, "ring", None, [8, 9]).verdict == "not-asserted"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"floor": 0.1, "variation": "v"}, "input.wrong-file", ["exceptions.0: "]),
        ({"floor": 0.1, "statistic": "median"}, "input.wrong-file", ["exceptions.0: "]),
        ({}, "input.wrong-file", ["exceptions.0: "]),
        ({"variation": "w"}, "reference.wrong-table", ["exceptions.0.variation: ", "'w'"]),
        ({"variation": "r1"}, "reference.wrong-table", ["exceptions.0.variation: r1 ", "'MB/s'"]),
        ({"floor": 0.1, "rows": ["q*"]}, "reference.wrong-table", ["exceptions.0.rows: ", "'q*'"]),
    ],
)
def test_faulty_exception(folder: Path, fields: dict, code: str, words: list[str]) -> None:
    excepting(folder, reason="why not", **fields)
    with refused(*words, code=code):
        references(folder, {}, VARIATION)


def test_a_row_has_one_exception(folder: Path) -> None:
    excepting(folder, floor=0.1, reason="one", rows=["r1"])
    content = yaml.safe_load((folder / "tolerance.yaml").read_text())
    content["exceptions"] *= 2
    (folder / "tolerance.yaml").write_text(yaml.safe_dump(content))
    with refused("exceptions: r1 "):
        references(folder, {})


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("peak-stream-triad-44c", 0.09),
        ("sierra-stream-copy-40c", 0.09),
        ("peak-babelstream-triad", 0.10),
        ("summit-osu-latency-tm-on-1024", 0.03),
        ("summit-osu-latency-tm-on-512", 0.10),
    ],
)
def test_printed_variation_is_the_tolerance_of_its_rows(name: str, share: float) -> None:
    found = References(load(SHIPPED))
    bounds = found.bounds_of(found.tables.rows[name])
    bound = bounds.lower if math.isinf(bounds.upper) else bounds.upper
    assert abs(bound / bounds.value - 1) == pytest.approx(share)


#: Cells of a distribution's row, number of runs -> reference, lower and upper bound: three standard
#: errors, sqrt(1/runs + 1/n), of the spread and half of its last digit, and half of the value's.
DISTRIBUTIONS = [
    ({"conditions": "runs=3"}, 3, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(2 / 3))),
    ({"conditions": "runs=4"}, 4, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(1 / 2))),
    ({"conditions": "runs=20"}, 10, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(3 / 20))),
    # A row that tells no runs is one run, and a caller that tells none has as few as must be.
    ({}, 4, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(5 / 4))),
    ({"conditions": "runs=6"}, None, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(1 / 2))),
    # A spread printed as 0.0 is anything below 0.05.
    ({"spread": "0.0", "conditions": "runs=4"}, 4, (10, -INF, 10.05 + 0.15 * math.sqrt(1 / 2))),
    # The printed digit is the least, as of any class.
    ({"spread": "0.00", "value": "10", "conditions": "runs=9"}, 9, (10, -INF, 11)),
    ({"spread": "2", "unit": "ms", "value": "10"}, 4, (1e4, -INF, 10500 + 7500 * 5**0.5 / 2)),
    ({"metric": "ring_bandwidth", "unit": "MB/s", "value": "1000", "spread": "100",
      "conditions": "runs=9"}, 16, (1000, 999.5 - 301.5 * 5 / 12, INF)),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "runs", "expected"), DISTRIBUTIONS)
def test_bounds_of_a_distribution(
    folder: Path, cells: dict, runs: int | None, expected: tuple
) -> None:
    row = RING | cells
    bounds = references(folder, row).bounds(CASE, row["metric"], None, runs)
    assert (bounds.value, bounds.lower, bounds.upper) == pytest.approx(expected, rel=1e-12)
    assert bounds.statistic == "mean"


def test_a_distribution_has_the_floor_of_other_figures() -> None:
    """Sierra's ten runs of 7.1 ± 0.0 us were of one night, on one set of nodes."""
    found = References(load(SHIPPED))
    bounds = found.bounds_of(
        found.tables.rows["sierra-gpcnet-random-ring-latency-p99-isolated-03-mean"]
    )
    assert bounds.upper == pytest.approx(7.1 * 1.1)
    classes = found.tables.rules.classes
    for kind in ("bandwidth", "latency"):
        assert classes[f"distribution-{kind}"].floor == classes[kind].floor


@pytest.mark.parametrize("statistic", ["median", "best", "single", "unstated"])
def test_of_a_distribution_only_the_mean_decides(folder: Path, statistic: str) -> None:
    """A median printed without a spread would allow no more than its last digit."""
    other = RING | {"statistic": statistic, "value": "8", "spread": ""}
    assert decided(references(folder, other, RING), CASE, "ring") == ("r2",)
    assert decided(references(folder, other), CASE, "ring") == ()
    # One that states more conditions does not shadow the mean either.
    assert decided(references(folder, other | {"nodes": "1"}, RING), CASE, "ring") == ("r2",)


def test_a_distribution_is_asserted_from_some_samples_on(folder: Path) -> None:
    refs = references(folder, RING)
    few = refs.judge(CASE, "ring", None, [99.0, 90.0])
    assert (few.verdict, few.bounds) == ("not-asserted", None)
    assert (few.statistic, few.value) == ("mean", 94.5)
    assert re.findall(r"r1|\d", few.reason) == ["r1", "3", "2"]
    enough = refs.judge(CASE, "ring", None, [99.0, 90.0, 90.0])
    assert (enough.verdict, enough.statistic, enough.value) == ("fail", "mean", 93)
    assert enough.reason == ""
    # What no row tells of is not asserted either, and there is nothing to add to it.
    assert references(folder).judge(CASE, "ring", None, [99.0]).reason == ""
