"""Bounds and ceilings from the same quantity of another program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plumbline.reference.lookup import References
from plumbline.reference.row import Case
from plumbline.reference.tables import load
from reference_tables import (
    CASE,
    SHIPPED,
    decided,
    folder_,  # noqa: F401 - a fixture
    references,
)

STREAM = replace(CASE, benchmark="other")

OWN = {"benchmark": "other", "metric": "stream", "unit": "GB/s", "value": "1.000"}

#: Rows -> the row that decides `other stream`, and its equals.
SAME = [
    ([{}], "r1"),
    ([{"metric": "peak_bandwidth"}], ""),
    ([{"toolchain": "intel"}], ""),
    ([{"statistic": "std"}], ""),
    # Of several that are the same, the one that matches best, or all.
    ([{}, {"metric": "capped", "message_size": "8"}], "r1"),
    ([{}, {"toolchain": "gnu"}], "r2"),
    ([{}, {"source": "site", "id": "s"}], "s"),
    # Its own win: less specific, or published beside a site's own of the other program.
    ([{"toolchain": "gnu", "nodes": "1"}, OWN], "r2"),
    ([{"source": "site", "id": "s"}, OWN], "r2"),
    ([{}, OWN | {"toolchain": "intel"}], "r1"),
    ([{}, OWN | {"kind": "target"}], "r1"),
]


@pytest.mark.parametrize(("rows", "ids"), SAME)
def test_same_quantity(folder: Path, rows: list, ids: str) -> None:
    assert decided(references(folder, *rows), STREAM, "stream") == tuple(ids.split())


def test_same_quantity_is_judged_in_its_own_unit_by_its_own_class(folder: Path) -> None:
    refs = references(folder, {"spread": "100"})
    judged = refs.judge(STREAM, "stream", None, [0.69])
    assert (judged.verdict, judged.bounds.decides) == ("fail", "r1")
    assert (judged.bounds.value, judged.bounds.lower) == pytest.approx((1.0, 0.7))
    assert judged.bounds.source == "A paper, SC, 2030, table 1"
    assert refs.judge(STREAM, "stream", None, [0.71]).verdict == "pass"


def test_same_quantity_does_not_bound_the_other_way(folder: Path) -> None:
    assert decided(references(folder, OWN)) == ()


#: Rows -> the ceiling of `other stream` in its unit, with half of the last printed digit.
SAME_CEILINGS = [
    ([{"kind": "peak", "value": "2000"}], 2.0005),
    ([{"kind": "peak", "value": "2000"}, OWN | {"kind": "peak", "value": "3"}], 2.0005),
    ([{"kind": "peak", "value": "2000"}, OWN | {"kind": "peak", "value": "1.5"}], 1.55),
    # What caps the other program's metric caps this one.
    ([{"kind": "peak", "value": "1800", "metric": "peak_bandwidth"}], 1.8005),
    ([{"kind": "peak", "value": "1800", "placement": "on-socket"}], None),
]


@pytest.mark.parametrize(("rows", "ceiling"), SAME_CEILINGS)
def test_ceiling_of_the_same_quantity(folder: Path, rows: list, ceiling: float | None) -> None:
    found = references(folder, *rows).ceiling(STREAM, "stream", None)
    assert (found and found.value) == (ceiling and pytest.approx(ceiling))


def test_shipped_babelstream_kernels_are_streams() -> None:
    """Each is bound by the STREAM kernel of the same arithmetic: Cielo's triad by NUMA domain."""
    tables = load(SHIPPED)
    kernels = {"copy": "copy", "mul": "scale", "add": "add", "triad": "triad"}
    for ours, theirs in kernels.items():
        assert tables.foms["babelstream"][ours].same_as == (f"stream/{theirs}",)
    case = Case("cielo", "compute", "gcc", "babelstream", "numa-2-2", 1, 1)
    assert decided(References(tables), case, "triad") == ("cielo-stream-triad-numa-2-2",)
