"""The nodes of the history, and which of them a sweep measures next."""

from __future__ import annotations

import csv
import datetime
import functools
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from bench import sweep as bench_sweep
from conftest import codes_in, fault_of
from plumbline.cli import history as of_nodes
from plumbline.history.history import History
from plumbline.history.rows import NodeRow
from plumbline.operate import clear as operating
from plumbline.operate import sweep as sweeps
from plumbline.operate.sweep import due
from weekly import Fleet, fleet_  # noqa: F401 - a fixture


def test_the_nodes_of_the_history(fleet: Fleet):
    fleet.weeks(2)
    fleet.measure(10, "n003", result="fail")
    fleet.measure(3, "n004", result="error", reason="broken", foms=[])
    # Its modules do not load: it is on no node's list.
    fleet.measure(9, "n005", result="error", reason="broken", foms=[], nodes=[])
    done = fleet.plumbline("history", "nodes", "--format=json")
    rows = json.loads(done.out)
    assert (done.code, len(rows)) == (0, 12)
    assert (rows[-1]["node"], rows[-1]["result"], rows[-1]["sessions"]) == ("n003", "fail", 3)
    # Without any measurement it was not measured.
    assert {row["sessions"] for row in rows[:-1]} == {2}
    assert all(row["days"] > 0 for row in rows)
    results = {row["node"]: row["result"] for row in rows}
    assert (results["n004"], results["n005"]) == ("pass", "error")
    done = fleet.plumbline("history", "nodes", "--format=csv", "--flags")
    assert len(list(csv.DictReader(io.StringIO(done.out)))) == 12
    text = fleet.plumbline("history", "nodes").out
    assert max(map(len, text.splitlines())) <= 100


def test_a_node_whose_cases_were_aborted_has_not_passed():
    rows = {"pass": 1, "aborted": 9}, {"pass": 1, "unfinished": 1}, {"aborted": 1, "fail": 1}
    found = [replace(row("n1", "2026-11-20"), results=results) for results in rows]
    assert [one.result for one in found] == ["aborted", "unfinished", "fail"]


def test_flags_are_those_of_screening(fleet: Fleet):
    fleet.weeks(8, n003=(5, 0.1))
    rows = json.loads(fleet.plumbline("history", "nodes", "--flags", "--format=json").out)
    assert {row["node"]: row["flagged"][:8] for row in rows if row["flagged"]} == {
        "n003": f"{fleet.start + datetime.timedelta(days=35):%Y%m%d}"
    }


def test_a_node_is_flagged_in_its_own_system():
    """Nodes of two systems may have one name."""
    cells = [of_nodes._node_cells(row("n1", "2026-11-20"), {(system, "n1"): "2026"})
             for system in ("s", "other")]  # fmt: skip
    assert [one["flagged"] for one in cells] == ["2026", ""]


_TODAY = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"


def row(node: str, day: str, partition: str = "p") -> NodeRow:
    time = np.datetime64(day, "s")
    return NodeRow("s", partition, node, 1, "", time, {}, time)


def test_the_oldest_come_first_and_before_them_what_was_never_measured():
    rows = [
        row("n1", "2026-11-10"),
        row("n2", "2026-11-05"),
        row("n3", "2026-11-20"),
        row("n4", "2026-11-01", "other"),
    ]
    until = np.datetime64("2026-11-15", "s")
    found = due.oldest_first(["n1", "n2", "n3", "n4"], rows, until, "p", {})
    assert (found.nodes, found.never, found.recent) == (["n4", "n2", "n1"], 1, 1)


def test_a_session_that_was_cut_off_or_is_in_the_future_is_no_measurement(fleet: Fleet):
    """n000 was measured as a whole before, n001 also since, and the others never."""
    fleet.measure(0, "n000")
    for node, result in (("n000", "aborted"), ("n002", "unfinished"), ("n003", "aborted")):
        session = fleet.measure(9, node)
        about = {"extras": {"sweep": "s", "node": node}, "nodes": [node], "phase": "run"}
        fleet.add(session, "other", result=result, reason="cut off", **about)
    for day, node in ((9, "n001"), (36500, "n001"), (36500, "n004")):
        fleet.measure(day, node)
    with History(fleet.results) as history:
        rows = history.nodes()
    until = np.datetime64("2026-09-08", "s")
    found = due.oldest_first(fleet.nodes[:5], rows, until, "cpu", {})
    assert (found.nodes, found.recent) == (["n002", "n003", "n004", "n000"], 1)


@pytest.mark.parametrize(
    ("budget", "jobs", "durations", "nodes"),
    [(0, 2, [], 5), (3600, 2, [], 2), (3599, 2, [], 0), (3600, 2, [885] * 9 + [5000], 8),
     (3600, 1, [885] * 20, 4)],
)  # fmt: skip
def test_as_many_nodes_as_fit_in_the_budget(monkeypatch, budget, jobs, durations, nodes):
    """By the durations of earlier sweeps, or else by the time limit, an hour here."""
    sweep = sweeps.Sweep("x", "s", "p", [], "", jobs, [], 3600, [f"n{k}" for k in range(10)], {})
    recent = [row(f"n{k}", _TODAY) for k in range(5)] if budget == 0 else []
    monkeypatch.setattr(due, "_history", lambda *_: (recent, durations))
    found = due.select(sweep, datetime.timedelta(days=7), budget)
    assert len(found.nodes) == nodes and len(found.nodes) + len(found.later) + found.recent == 10


def test_nodes_that_are_tried_in_vain_take_no_place_from_the_others(tmp_path, monkeypatch):
    """A sweep has room for two of four, and the cases of n0 and n1 always end in errors: they are
    tried once more, and then the others are."""
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    rows: dict[str, NodeRow] = {}
    monkeypatch.setattr(due, "_history", lambda *_: ([*rows.values()], []))
    found = []
    for day in range(1, 10):
        name = f"202001{day:02}T000000Z-000000"
        nodes = ["n0", "n1", "n2", "n3"]
        sweep = sweeps.Sweep(name, "s", "p", [], "", 2, [], 3600, nodes, {})
        chosen = due.select(sweep, datetime.timedelta(0), 3600).nodes
        sweep.write()
        for node in chosen:
            sweep.claim(node).mkdir()
            if node in ("n2", "n3"):
                rows[node] = row(node, f"2020-01-{day:02}")
        found.append(chosen)
    bad, good = ["n0", "n1"], ["n2", "n3"]
    assert found == [bad, bad, good] * 3


def test_a_sweep_that_cannot_be_read_does_not_stop_the_next(tmp_path, monkeypatch):
    """As one that was cut off, or a newer Plumbline's."""
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    sweep = sweeps.Sweep("x", "s", "p", [], "", 2, [], 3600, ["n1"], {})
    for name, content in (("a", '{"name'), ("b", '{"name": "b", "later": 1}')):
        folder = tmp_path / "sweeps" / name
        folder.mkdir(parents=True)
        (folder / "sweep.json").write_text(content)
    found = due.select(sweep, datetime.timedelta(0), 3600)
    assert (found.nodes, [codes_in(line) for line in found.unread]) == (
        ["n1"], [["input.wrong-file"]] * 2)  # fmt: skip


def test_an_enforced_weekly_screen_covers_all_and_takes_what_its_jobs_take(monkeypatch):
    """The simulation of docs/sweep-cost.md, of a small machine."""
    small = {"NODES": 200, "DAYS": 14, "BINS": [(1, 100, 12, 1.0)], "QUEUE": 10}
    for name, value in small.items():
        monkeypatch.setattr(bench_sweep, name, value)
    ways = {way.name: way for way in bench_sweep.WAYS}
    found = bench_sweep.simulate(ways["enforced weekly"], 10, 3)
    assert found.oldest <= 7 and found.covered == 1
    # One job of ten minutes a node, every six and a half days to seven.
    assert 200 / 6 <= found.hours <= 200 / 6 * 7 / 6.5
    scavenged = bench_sweep.simulate(replace(ways["all idle nodes, again and again"], most=200),
                                     10, 3)  # fmt: skip
    assert scavenged.hours > 3 * found.hours


def test_the_partition_is_that_of_the_last_measurement():
    rows = [row("n1", "2026-11-10"), row("n1", "2026-11-12", "new"), row("n2", "2026-11-10")]
    assert operating.place_of(["n1"], rows, "", "") == ("s", "new")
    assert operating.place_of(["n1", "n2"], rows, "", "p") == ("s", "p")
    assert operating.place_of(["n3"], rows, "s", "p") == ("s", "p")
    for names, code in ((["n1", "n2"], "input.wrong-option"), (["n3"], "history.unknown-node")):
        fault_of(functools.partial(operating.place_of, names, rows, "", ""), code)
