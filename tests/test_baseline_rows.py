"""The rows of `plumbline baseline`: one for each location of a figure, and scale of a check."""

from __future__ import annotations

from pathlib import Path

from conftest import Testbed
from plumbline.analysis import baseline, baseline_diff
from reference_tables import CASE, LATENCY, registers
from reference_tables import references as of_rows
from test_baseline import NEW, changes, figure, make, remember, remember_all, table


def test_each_of_several_has_a_baseline_of_its_own(testbed: Testbed) -> None:
    """The GPUs, pairs and domains that one case measures differ, and are not averaged; each is
    known by the placement that references know it by."""
    rates = {("gpu0", "per-gpu"): 800, ("gpu1", "per-gpu"): 700, ("numa0-numa8", "numa-0-1"): 20}
    for number in (1, 2, 3):
        foms = [
            figure(value + number / 100, metric="triad", location=location, placement=placement)
            for (location, placement), value in rates.items()
        ]
        remember(testbed, number, None, foms=foms, benchmark="babelstream")
    done = make(testbed)
    assert done.code == 0, done.output
    rows = {
        row["conditions"].partition("location=")[2].partition(";")[0]: row for row in table(testbed)
    }
    assert {
        (location, row["placement"]): float(row["value"]) for location, row in rows.items()
    } == {key: value + 0.02 for key, value in rates.items()}
    assert len({row["id"] for row in rows.values()}) == 3


#: Test cases of one check at two scales.
ONE = {"check": "fio %scale=1x1", "case": "1 @testbed:node+disk-io"}
TWO = {
    "check": "fio %scale=2x1",
    "case": "2 @testbed:node+disk-io",
    "nodes": ["n1", "n2"],
    "tasks": [
        {"rank": rank, "host": host, "cpus": "0-1", "given": "", "gpus": ""}
        for rank, host in enumerate(["n1", "n2"])
    ],
}


def rows_by_nodes(testbed: Testbed) -> dict[str, tuple[str, float]]:
    """Number of nodes -> id and value of the row."""
    return {row["nodes"]: (row["id"], float(row["value"])) for row in table(testbed)}


def test_each_scale_of_a_check_has_a_row(testbed: Testbed) -> None:
    remember_all(testbed, (1, 2, 3), 1000, **ONE)
    remember_all(testbed, (1, 2, 3), 1800, **TWO)
    assert make(testbed).code == 0
    rows = rows_by_nodes(testbed)
    base = rows["1"][0].removesuffix("-1x1")
    assert rows == {"1": (f"{base}-1x1", 1000), "2": (f"{base}-2x1", 1800)}
    again, result = changes(testbed)
    assert (again.code, result["written"]) == (0, False)
    assert [change["change"] for change in result["changes"]] == ["unchanged"] * 2
    # What is measured anew replaces the value of its own scale.
    remember_all(testbed, (4, 5, 6), 1900, **TWO)
    assert make(testbed, "--last=3").code == 0
    assert rows_by_nodes(testbed) == {"1": rows["1"], "2": (rows["2"][0], 1900)}


def test_a_further_scale_renames_and_replaces_no_row(testbed: Testbed) -> None:
    remember_all(testbed, (1, 2, 3), 1000, **ONE)
    assert make(testbed).code == 0
    ((name, _),) = rows_by_nodes(testbed).values()
    remember_all(testbed, (4, 5, 6), 1800, **TWO)
    remember_all(testbed, (4, 5, 6), 1100, **ONE)
    done, result = changes(testbed, "--last=3")
    assert (done.code, [change["change"] for change in result["changes"]]) == (
        0, ["tightened", "new"],
    )  # fmt: skip
    rows = rows_by_nodes(testbed)
    assert rows == {"1": (name, 1100), "2": (f"{name}-2x1", 1800)}
    # A scale that has too few sessions of its new build keeps its row until somebody accepts that.
    for number in (7, 8):
        remember(testbed, number, 1800, **TWO, **NEW)
    done, result = changes(testbed, "--last=3")
    assert (done.code, [change["change"] for change in result["changes"]]) == (
        1, ["gone", "unchanged"],
    )  # fmt: skip
    assert rows_by_nodes(testbed) == rows


def test_a_row_of_another_scale_is_dropped_only_when_that_is_accepted(testbed: Testbed) -> None:
    """Although a new row would have its id."""
    remember_all(testbed, (1, 2, 3), 1000, **ONE)
    assert make(testbed).code == 0
    first = rows_by_nodes(testbed)
    remember(testbed, 4, 1000, **ONE, **NEW)
    remember_all(testbed, (4, 5, 6), 1800, **TWO)
    done, result = changes(testbed)
    assert (done.code, [change["change"] for change in result["changes"]]) == (1, ["gone", "new"])
    assert rows_by_nodes(testbed) == first
    assert make(testbed, "--accept").code == 0
    assert rows_by_nodes(testbed) == {"2": (first["1"][0], 1800)}


def test_ids_are_unique_whatever_rows_have_in_common(tmp_path: Path) -> None:
    """Also with that of a row by hand, and of plain checks, whose rows have no nodes."""
    row = LATENCY | {"id": "own", "nodes": "7", "spread": "0.5"}
    references = of_rows(registers(tmp_path), row)
    (by_hand,) = references.tables.rows.values()
    same = {"nodes": 1, "ppn": 1}
    fields = [same, same | {"placement": "on-socket"}, same | {"ppn": 2},
              {"nodes": None, "ppn": None}]  # fmt: skip
    rows = [by_hand.model_copy(update=one) for one in fields]
    proposals = [baseline.Proposal(row, CASE, 0) for row in rows]
    path = Path(references.tables.where[by_hand.id].rpartition(":")[0])
    found = baseline_diff.changes(proposals, references, path)
    assert {change.row.id for change in found} == {"own-1x1", "own-1x1-2", "own-1x2", "own-2"}
