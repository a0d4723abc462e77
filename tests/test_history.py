"""The history: what is read of the sessions' lines, its index, its selection and its CSV."""

from __future__ import annotations

import contextlib
import csv
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import fasteners
import numpy as np
import pytest
import records
from bench import history as bench_history
from conftest import BIN, Done, asked
from plumbline.check import record
from plumbline.core import paths, pool
from plumbline.core.errors import Fault
from plumbline.history import history, index, statements
from plumbline.history.history import History
from plumbline.history.series import Selection, moment
from records import valid
from reports import demo_  # noqa: F401 - a fixture

NIGHT, DAY_2 = "20261101T010000Z-000001", "20261102T010000Z-000002"


def fom(value: float = 10.0, **fields: object) -> dict:
    """A figure of merit as a record has it, of two samples."""
    about = {
        "metric": "latency",
        "size": 8,
        "placement": "on-node",
        "unit": "us",
        "samples": [value, value + 1],
        "summary": {"min": value, "median": value, "mean": value, "max": value + 1, "std": 0.0},
        "better": "lower",
        "verdict": "pass",
        "upper": 12.5,
        "reference": "r1",
    }
    return records.figure(value, **{**about, **fields})


def line(second: int = 0, day: int = 1, foms: list[dict] | None = None, **fields: object) -> dict:
    """A record; its case ended some seconds after the day's first hour."""
    ended = datetime.datetime(2026, 11, day, 1) + datetime.timedelta(seconds=second)
    about = {
        "session": f"202611{day:02}T010000Z-{day:06x}",
        "time": f"{ended:%Y-%m-%dT%H:%M:%SZ}",
        "system": "alpha",
        "check": "osu_latency %placement=on-node",
        "case": f"{second & 0xFFFFFFFF:08x} @alpha:cpu+gnu",
        "benchmark": "osu",
        "program": "osu_latency",
        "version": "7.5",
        "placement": "on-node",
        "conditions": {"window": "64", "buffers": "host"},
        "tags": ["nightly"],
        "nodes": ["n1", "n2"],
        "jobid": "7",
        "samples": 2,
        "warmups": 1,
        "build": {"sha256": "a" * 64},
        "extras": {"maintenance": "before"},
        "output": "output/x",
        "seconds": {"total": 1.0, "samples": [0.5]},
        "foms": [fom()] if foms is None else foms,
    }
    return records.unvalidated(**{**about, **fields})


def store(results: Path, *lines: dict | bytes | str, plan: int | None = 1, name: str = "") -> Path:
    """Writes a session's folder with these lines, and a plan of as many cases."""
    session = name or next((x["session"] for x in lines if isinstance(x, dict)), NIGHT)
    folder = results / "sessions" / session
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "records.jsonl").open("wb") as file:
        for fields in lines:
            if isinstance(fields, dict):
                fields = records.dumps(fields | {"session": session}) + "\n"
            file.write(fields if isinstance(fields, bytes) else fields.encode())
    if plan is not None:
        extras = next((x["extras"] for x in lines if isinstance(x, dict)), {})
        cases = [*(x["case"] for x in lines if isinstance(x, dict)), *map(str, range(plan))]
        planned = records.plan(session, cases[:plan], extras=extras, system="alpha")
        (folder / "plan.json").write_text(planned)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PLUMBLINE_RESULTS", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def run(*arguments: object) -> Done:
    """Runs ``plumbline history``."""
    return asked("history", *arguments)


def rows_of(*arguments: object) -> list[dict]:
    """The sessions that it lists, as JSON."""
    return json.loads(run("list", "--format=json", *arguments).out)


def values_of(results: Path, select: Selection | None = None) -> list[float]:
    with History(results) as found:
        return [v for series in found.series(select or Selection()) for v in series.values]


# -- what is read -----------------------------------------------------------------------------


def links_of(*arguments: object) -> dict[tuple[str, str], tuple[str, int]]:
    """The links that it lists: day and number of sessions."""
    rows = json.loads(run("links", "--format=json", *arguments).out)
    return {(row["kind"], row["name"]): (row["last"][:10], row["sessions"]) for row in rows}


def test_links_and_when_they_were_last_measured(results: Path, tmp_path: Path):
    """Of nodes by any case on several, of switches by pairs of their nodes."""
    pairs = [fom(location=where) for where in ("a1:a2", "a1:b1", "a2:b1")]
    store(results, line(0, 1, pairs, nodes=["a1", "a2", "b1"]), line(1, 1, nodes=["c1"]))
    store(results, line(0, 2, nodes=["b1", "c1"]), name="20261102T010000Z-000002")
    # What failed to run measured nothing.
    wrong = {"result": "invalid", "reason": "x", "code": "output.garbled", "foms": []}
    store(results, line(0, 3, nodes=["a1", "c1"], **wrong), name="20261103T010000Z-000003")
    nodes = {("node", "a1"): ("2026-11-01", 1), ("node", "a2"): ("2026-11-01", 1),
             ("node", "b1"): ("2026-11-02", 2), ("node", "c1"): ("2026-11-02", 1)}  # fmt: skip
    assert links_of("--from", results) == nodes
    topology = tmp_path / "topology.conf"
    topology.write_text("SwitchName=a Nodes=a[1-2]\nSwitchName=b Nodes=b1\nSwitchName=c Nodes=c1\n")
    assert links_of("--from", results, "--topology", topology) == nodes | {
        ("link", "a:b"): ("2026-11-01", 1), ("link", "b:c"): ("2026-11-02", 1)
    }  # fmt: skip
    # The longest ago first.
    done = run("links", "--from", results, "--topology", topology, "--format=csv")
    names = [row["name"] for row in csv.DictReader(done.out.splitlines())]
    assert {*names[:3]} == {"a1", "a2", "a:b"} and done.code == 0
    text = run("links", "--from", results).out
    assert "c1" in text and max(map(len, text.splitlines())) <= 100


def test_a_series_has_what_the_lines_say(results: Path):
    """One series over two sessions, its arrays in the order of time."""
    store(results, line(day=2, foms=[fom(11.0, upper=None, verdict="not-asserted", reference=None,
                                         ceiling=20.0)], nodes=["n3"], build={}))  # fmt: skip
    store(results, line(day=1, foms=[fom(10.0)]))
    with History(results) as found:
        (series,) = found.series()
        assert found.faults == found.notes == []
    assert series.key == history.Key(
        "alpha", "cpu", "gnu", "osu_latency %placement=on-node", "latency", 8, "", "on-node",
        "buffers=host;window=64", "",
    )  # fmt: skip
    assert (series.benchmark, series.unit, series.better) == ("osu", "us", "lower")
    assert series.sessions.tolist() == ["20261101T010000Z-000001", "20261102T010000Z-000002"]
    assert series.times.dtype == "datetime64[s]"
    assert series.times.tolist() == [datetime.datetime(2026, 11, day, 1) for day in (1, 2)]
    assert series.values.tolist() == [10.0, 11.0]
    assert np.isnan(series.lower).all()
    np.testing.assert_array_equal(series.upper, [12.5, np.nan])
    np.testing.assert_array_equal(series.ceiling, [np.nan, 20.0])
    assert series.verdicts.tolist() == ["pass", "not-asserted"]
    assert series.references.tolist() == ["r1", ""]
    sha = hashlib.md5(f"sha256={'a' * 64}".encode()).hexdigest()[:12]
    assert series.builds.tolist() == [sha, ""]
    assert series.nodes.tolist() == ["n1,n2", "n3"]
    assert series.samples == [[10.0, 11.0], [11.0, 12.0]]


def test_series_hold_only_what_was_measured(results: Path):
    """A case that was skipped, or whose output cannot be trusted, gives no value; but is a case."""
    kinds = ["pass", "fail", "waived", "invalid", "error", "skip", "aborted", "unfinished"]
    store(results, *(line(n, result=kind, foms=[fom(float(n))]) for n, kind in enumerate(kinds)))
    assert values_of(results) == [0.0, 1.0, 2.0]
    with History(results) as found:
        assert [case.result for case in found.cases()] == kinds
        (session,) = found.sessions()
    assert session.results == dict.fromkeys(kinds, 1)
    assert session.verdicts == {"pass": 8}


def test_figures_of_one_case_are_series_of_their_own(results: Path):
    """By metric, size, position and placement; and the node of ``--distribute`` by itself."""
    foms = [fom(1.0), fom(2.0, size=16), fom(3.0, location="gpu0-gpu1"),
            fom(4.0, placement="numa-0-1"), fom(5.0, metric="bandwidth", size=None)]  # fmt: skip
    pinned = "osu_latency %placement=on-node %.part=alpha:cpu %.nid=n7 %.repeat_no=2"
    store(results, line(foms=foms), line(1, check=pinned, foms=[fom(6.0)]))
    with History(results) as found:
        series = found.series()
    assert [s.key for s in series] == sorted(s.key for s in series)
    assert {s.values[0]: (s.key.metric, s.key.size, s.key.location, s.key.placement, s.key.node)
            for s in series} == {
        1.0: ("latency", 8, "", "on-node", ""),
        2.0: ("latency", 16, "", "on-node", ""),
        3.0: ("latency", 8, "gpu0-gpu1", "on-node", ""),
        4.0: ("latency", 8, "", "numa-0-1", ""),
        5.0: ("bandwidth", -1, "", "on-node", ""),
        6.0: ("latency", 8, "", "on-node", "n7"),
    }  # fmt: skip
    assert {s.key.check for s in series} == {"osu_latency %placement=on-node"}


def test_reframe_names_a_distributed_case_as_is_read_here(tmp_path: Path):
    """The real name of ``reframe --distribute`` gives check and node."""
    (tmp_path / "check.py").write_text(
        "import reframe as rfm\n"
        "@rfm.simple_test\n"
        "class Hello(rfm.RunOnlyRegressionTest):\n"
        "    size = parameter([1])\n"
        "    valid_systems = ['*']\n"
        "    valid_prog_environs = ['*']\n"
    )
    (tmp_path / "settings.py").write_text("site_configuration = {}\n")
    done = subprocess.run(
        [BIN / "reframe", "-c", "check.py", "-C", "settings.py", "--distribute=all", "-L"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "RFM_COLORIZE": "0", "HOME": str(tmp_path)},
    )  # fmt: skip
    names = [text[2:].split(" /")[0] for text in done.stdout.splitlines() if ".nid" in text]
    assert names, done.stdout + done.stderr
    store(tmp_path, line(check=names[0]))
    with History(tmp_path) as found:
        (case,) = found.cases()
    assert case.check == "Hello %size=1"
    assert case.node and f"%.nid={case.node}" in names[0]


def test_lines_of_older_schemas_are_read_as_what_they_stand_for(results: Path):
    """Schema 1 had one placement for the whole case; neither 1 nor 2 said what is better."""
    one = line(schema=1, benchmark="imb", placement="on-socket",
               foms=[fom(1.0, metric="pingpong_latency")])  # fmt: skip
    for name in ("location", "placement", "summary", "reason", "better", "near_bound", "waiver"):
        del one["foms"][0][name]
    two = line(1, schema=2, foms=[fom(2.0, metric="made_up")])
    for name in ("better", "near_bound", "waiver"):
        del two["foms"][0][name]
    for fields in (one, two):
        del fields["waiver"]
    store(results, one, two)
    with History(results) as found:
        series = {s.key.metric: s for s in found.series()}
        assert found.faults == []
        assert [fields.schema_version for fields in found.records()] == [record.SCHEMA] * 2
    assert series["pingpong_latency"].better == "lower"
    assert series["pingpong_latency"].key.placement == "on-socket"
    assert series["made_up"].better == "neither"


def test_values_are_converted_to_the_newest_unit(results: Path):
    """With their bounds and samples. What cannot be converted is skipped and reported."""
    bounds = {"lower": None, "upper": 1500.0, "ceiling": 500.0}
    store(results, line(day=1, foms=[fom(1.0, unit="MB/s")]))
    store(results, line(day=2, foms=[fom(1000.0, unit="ns", samples=[900.0, 1000.0], **bounds)]))
    store(results, line(day=3, foms=[fom(1.0, unit="us")]))
    with History(results) as found:
        (series,) = found.series()
        assert (series.unit, series.values.tolist()) == ("us", pytest.approx([1.0, 1.0]))
        assert series.samples == [pytest.approx([0.9, 1.0]), [1.0, 2.0]]
        assert (series.upper[0], series.ceiling[0]) == pytest.approx((1.5, 0.5))
        assert np.isnan(series.lower[0])
        (fault,) = found.faults
        assert fault.startswith(f"{series.key.check} @alpha latency: 1 ")
        (series,) = found.series(samples=False)
        assert series.values.tolist() == pytest.approx([1.0, 1.0])


def test_sessions_are_in_the_order_of_their_times(results: Path):
    """Not of their names: a clock may have been wrong when they were named."""
    store(results, line(day=5, foms=[fom(5.0)]), name="20200101T000000Z-000000")
    store(results, line(day=4, foms=[fom(4.0)]), name="20300101T000000Z-000000")
    assert values_of(results) == [4.0, 5.0]


def test_a_clock_that_jumped_back_is_reported(results: Path):
    """The lines' order is kept, and the session counts to the time of its first."""
    store(
        results, line(10, foms=[fom(1.0)]), line(-7200, foms=[fom(2.0)]), line(20, foms=[fom(3.0)])
    )
    messages = []
    with History(results, say=messages.append) as found:
        (series,) = found.series()
        assert series.values.tolist() == [1.0, 2.0, 3.0]
        assert found.faults == []
        (note,) = found.notes
        assert note.startswith(f"{NIGHT}: ")
        assert messages == [note]
        (session,) = found.sessions()
    assert session.start == np.datetime64("2026-11-01T01:00:10")


# -- what cannot be read ----------------------------------------------------------------------

#: Lines that are no record -> the field that the reason names, if one alone is wrong. More kinds of
#: damage are in test_damaged.py.
WRONG = {
    "garbage": (bytes(range(128, 200)) + b"\n", ""),
    "empty object": ("{}\n", ""),
    "list": ("[1, 2]\n", ""),
    "perflog of ReFrame": ('{"job_completion_time": "x", "version": "4.10"}\n', ""),
    "no time": (line(time="yesterday"), "time: "),
    "not UTC": (line(time="2026-11-01T01:00:00+01:00"), "time: "),
    "value": (line(foms=[fom() | {"value": "fast"}]), "foms[0].value: "),
    "no value": (line(foms=[{k: v for k, v in fom().items() if k != "value"}]), "foms[0].value: "),
    "not finite": ('{"x":1,' + records.dumps(line())[1:].replace("10.0", "NaN") + "\n", ""),
    "foms": (line(foms={"a": 1}), "foms"),
    "no samples": (line(foms=[fom() | {"samples": None}]), "foms[0].samples"),
    "result": (line(result="perfect"), "result: "),
    "nodes": (line(nodes="n1"), "nodes"),
    "conditions": (line(conditions=[]), "conditions"),
    "surrogate": (json.dumps(line(reason="x\ud800y")) + "\n", "reason: "),
}


@pytest.mark.holds("records")
def test_invalid_lines_are_skipped_and_reported(results: Path):
    """With file, line and field; all others are kept. A session has each of them."""
    good = [line(foms=[fom(1.0)]), line(2, foms=[fom(2.0)])]
    folders = {
        name: store(results, good[0], wrong, good[1], plan=3, name=f"{number:02}")
        for number, (name, (wrong, _)) in enumerate(WRONG.items())
    }
    with History(results) as found:
        (series,) = found.series()
        assert series.values.tolist() == [1.0, 2.0] * len(WRONG)
        assert [fields.foms[0].value for fields in found.records()] == [1.0, 2.0] * len(WRONG)
        faults = sorted(found.faults)
    assert len(faults) == len(WRONG)
    for fault, (name, (_, field)) in zip(faults, WRONG.items(), strict=True):
        assert fault.startswith(f"{folders[name] / 'records.jsonl'}:2: {field}"), name
    done = run("list", "--from", results)
    assert (done.code, done.codes) == (2, ["history.damaged"] * len(WRONG))
    assert len(rows_of("--from", results)) == len(WRONG)


def test_a_half_written_last_line_is_read_once_it_is_whole(results: Path):
    """Nothing is lost, nothing doubled; and it is no fault of a session that still runs."""
    whole = records.dumps(line(1, foms=[fom(2.0)])) + "\n"
    folder = store(results, line(foms=[fom(1.0)]), whole[:200])
    with holding(folder / "running"), History(results) as found:
        assert [s.values.tolist() for s in found.series()] == [[1.0]]
        assert found.faults == []
    with History(results) as found:
        assert [s.values.tolist() for s in found.series()] == [[1.0]]
        assert len(found.faults) == 1
    with (folder / "records.jsonl").open("a") as file:
        file.write(whole[200:])
    with History(results) as found:
        assert [s.values.tolist() for s in found.series()] == [[1.0, 2.0]]
        assert found.faults == []


def test_many_wrong_lines_of_a_file_are_summarized(results: Path):
    """A file of garbage is some lines, with their number."""
    store(results, line(), *["{]\n"] * 500)
    with History(results) as found:
        found.cases()
    assert len(found.faults) == 21
    assert ":22: " in found.faults[-1] and " 479 " in found.faults[-1]


def test_what_is_skipped_is_asked_for_once(results: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever else is asked of the same sessions, and of some of them."""
    store(results, line(), "{}\n")
    asked: list[str] = []
    fetch = History.fetch

    def counted(self: History, question: str, *arguments: Any, **more: Any) -> Any:
        asked.append(question)
        return fetch(self, question, *arguments, **more)

    monkeypatch.setattr(History, "fetch", counted)
    with History(results) as found:
        found.sessions(Selection(until=moment("2026-11-02")))
        assert (asked.count(statements.FAULTS), len(found.faults)) == (1, 1)
        for select in (Selection(), Selection(system="alpha"), Selection(sessions=(NIGHT,))):
            found.sessions(select)
            found.cases(select)
            found.nodes(select)
        assert (asked.count(statements.FAULTS), len(found.faults)) == (2, 1)


class Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


@pytest.mark.holds("linear")
def test_messages_are_not_compared_with_all_earlier_ones():
    lines = history._Lines()
    for _ in range(2):
        for number in range(1000):
            lines.add([Counted(f"line {number}"), Counted(f"line {number}")])
    assert lines == [f"line {number}" for number in range(1000)]
    assert Counted.comparisons < 10 * 1000


def test_faults_are_reported_only_for_selected_sessions(results: Path):
    """A line that was cut off a year ago does not make every later query inconclusive."""
    store(results, line(day=1), "{half\n")
    store(results, line(day=2))
    assert run("list", "--from", results, "--since", "2026-11-02").code == 0
    assert run("list", "--from", results, "--until", "2026-11-01").code == 2


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00" * 1000])
def test_files_without_a_record(results: Path, content: bytes):
    """Alone they are no history; beside others they do no harm."""
    store(results, content, plan=2)
    done = run("list", "--from", results, "--metric", "latency")
    assert (done.code, done.codes) == (2, ["history.nothing-selected"])
    assert "metric=latency" in done.err
    assert ("records.jsonl:1" in done.err) == (b"\xff" in content)
    store(results, line(day=2))
    assert values_of(results) == [10.0]
    with History(results) as found:
        planned = {row.session: (row.planned, row.results) for row in found.sessions()}
    assert planned[NIGHT] == (2, {})


def test_plans_that_are_missing_or_broken(results: Path):
    """Without one the cases that ended are counted, and that is a note."""
    store(results, line(), line(1, case="other"), plan=None)
    folder = store(results, line(day=2))
    (folder / "plan.json").write_text('{"cases": {')
    with History(results) as found:
        assert [row.planned for row in found.sessions()] == [2, 1]
        (fault,) = found.faults
        assert fault.startswith(f"{folder / 'plan.json'}: ")
        assert [note.split(":")[0] for note in found.notes] == [NIGHT, folder.name]


@pytest.mark.parametrize("name", ["a'; DROP TABLE cases; --", "[x]*?", "%{a,b}", "ä ö", '"', "..."])
def test_odd_names_of_session_folders(results: Path, name: str):
    """Nothing in a name is a pattern or a statement."""
    store(results, line(), name=name)
    store(results, line(day=2), name="x")
    with History(results) as found:
        assert [row.session for row in found.sessions(Selection(sessions=(name,)))] == [name]
        assert len(list(found.records(Selection(sessions=(name,))))) == 1
        with pytest.raises(Fault) as fault:
            found.sessions(Selection(sessions=(name + "'",)))
        assert fault.value.code == "history.unknown-session"


def test_hostile_text_in_a_line_stays_text(results: Path):
    """It comes back as it was written, also through a CSV."""
    hostile = '\'; DROP TABLE cases; -- "quoted", \n<script>\t%s {x} \\ \u2028 é'
    store(results, line(reason=hostile, result="fail", conditions={hostile: hostile}))
    with History(results) as found:
        (case,) = found.cases()
        (series,) = found.series()
    assert case.reason == hostile
    assert series.key.conditions == f"{hostile}={hostile}"
    (results / "all.csv").write_text(run("export", "--from", results).out)
    with History(results / "all.csv") as found:
        assert found.cases() == [case]


def test_bad_sources_are_faults(tmp_path: Path):
    """No folder, no session, a file that is no CSV."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.csv").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "none.csv").write_bytes(b"")
    for name, code in [
        ("absent", "history.not-found"),
        ("empty", "history.empty"),
        ("file.csv", "input.unreadable-file"),
        ("none.csv", "input.wrong-file"),
    ]:
        done = run("list", "--from", tmp_path / name)
        assert (done.code, done.out, done.codes) == (2, "", [code])
        assert done.err.startswith(f"plumbline: {tmp_path / name}")


# -- the index --------------------------------------------------------------------------------


def test_only_changed_sessions_are_read_again(results: Path, monkeypatch: pytest.MonkeyPatch):
    """New, grown and rewritten ones; and those that are gone leave the index."""
    read = []
    true_read = index.intake.read
    monkeypatch.setattr(
        index.intake, "read", lambda db, folder, files, states: (
            read.extend(files), true_read(db, folder, files, states))
    )  # fmt: skip
    first, second = store(results, line(day=1)), store(results, line(day=2, foms=[fom(2.0)]))
    assert values_of(results) == [10.0, 2.0]
    assert sorted(read) == [first.name, second.name]
    read.clear()
    assert values_of(results) == [10.0, 2.0]
    assert read == []
    store(results, line(day=3, foms=[fom(3.0)]))
    with (second / "records.jsonl").open("a") as file:
        file.write(records.dumps(line(9, day=2, foms=[fom(2.5)])) + "\n")
    assert values_of(results) == [10.0, 2.0, 2.5, 3.0]
    assert sorted(read) == [second.name, "20261103T010000Z-000003"]
    read.clear()
    shutil.rmtree(first)
    assert values_of(results) == [2.0, 2.5, 3.0]
    assert read == []


def test_an_open_history_is_not_disturbed_by_a_renewed_index(results: Path):
    """Two in one process: the older keeps what it knew, the newer knows all."""
    store(results, line(day=1))
    with History(results) as older:
        store(results, line(day=2, foms=[fom(2.0)]))
        with History(results) as newer:
            assert [s.values.tolist() for s in newer.series()] == [[10.0, 2.0]]
        assert [s.values.tolist() for s in older.series()] == [[10.0]]


#: Other content of an index -> it, from what it was.
DAMAGED = {
    "text": lambda data: b"not a database",
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "header": lambda data: data[:8] + b"\xff" * 32 + data[40:],
    "middle": lambda data: data[:12288] + bytes(b ^ 0x55 for b in data[12288:-4096]) + data[-4096:],
}
#: What is done to an index that stays a database.
CHANGED = {"version": "UPDATE about SET version = '0'", "no table": "DROP TABLE figures"}


def damage(path: Path, how: str) -> None:
    if how in CHANGED:
        with duckdb.connect(path) as db:
            db.execute(CHANGED[how])
        return
    data = path.read_bytes()
    path.unlink()
    if how in DAMAGED:
        path.write_bytes(DAMAGED[how](data))
    elif how == "folder":
        path.mkdir()


@pytest.mark.parametrize("how", [*DAMAGED, *CHANGED, "folder", "missing"])
def test_a_damaged_or_missing_index_is_rebuilt(results: Path, how: str):
    """With a message if it was damaged; the answers are the same."""
    store(results, *(line(n, foms=[fom(float(n))]) for n in range(50)))
    assert len(values_of(results)) == 50
    damage(results / index.NAME, how)
    messages = []
    with History(results, say=messages.append) as found:
        assert [s.values.tolist() for s in found.series()] == [[float(n) for n in range(50)]]
        assert found.faults == []
    if how not in ("folder", "missing"):
        assert len(messages) == 1, messages
        assert messages[0].startswith(f"{results / index.NAME}: ")
        assert list((results).glob("*.partial*")) == []
        with History(results, say=messages.append) as found:
            found.series()
        assert len(messages) == 1


@pytest.mark.holds("temporary-files")
def test_what_does_not_fit_into_memory_goes_to_a_folder_of_ones_own(results, tmp_path, monkeypatch):
    """Others may write where it lies, and plant links under any name that they can foresee."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir(mode=0o777)
    store(results, line())
    code = "import os, sys; from pathlib import Path; from plumbline.history import index\n" \
           "db, place, faults = index.open_index(Path(sys.argv[1]), print)\n" \
           "ask = \"SELECT current_setting('temp_directory')\"\n" \
           "(folder,) = db.execute(ask).fetchone()\n" \
           "mode = os.stat(folder).st_mode & 0o777\n" \
           "print(folder, oct(mode), str(os.getpid()) in folder)"  # fmt: skip
    runs = [subprocess.run([sys.executable, "-c", code, str(results)], capture_output=True,
                           text=True, check=True).stdout.split() for _ in range(2)]  # fmt: skip
    assert [run[1:] for run in runs] == [["0o700", "False"]] * 2
    assert runs[0][0] != runs[1][0]
    assert [*(tmp_path / "tmp").iterdir()] == []


@pytest.mark.holds("results-files")
@pytest.mark.parametrize(
    "planted",
    [
        "OR REPLACE VIEW flat AS "
        "SELECT * REPLACE ((SELECT content FROM read_text('{}')) AS reason) "
        "FROM files LEFT JOIN cases USING (file) LEFT JOIN figures USING (file, line)",
        "OR REPLACE MACRO plain(name) AS (SELECT content FROM read_text('{}'))",
    ],
)
def test_an_index_of_others_reads_no_file(results: Path, tmp_path: Path, planted: str):
    """Its views and macros run as the user who asks, and new rows are written with them."""
    store(results, line())
    values_of(results)
    (tmp_path / "secret").write_text("sesame")
    with duckdb.connect(str(results / index.NAME)) as db:
        db.execute(f"CREATE {planted.format(tmp_path / 'secret')}")
    for day in (1, 2):
        store(results, line(day=day))
        done = run("export", "--from", results)
        assert done.code == 0 and len(done.out.splitlines()) == 1 + day
        assert "sesame" not in done.out
    assert b"sesame" not in (results / index.NAME).read_bytes()


@pytest.mark.holds("results-files")
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_an_index_that_is_no_file_neither_hangs_nor_leads_elsewhere(tmp_path, kind):
    """A results folder for each of its files."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folders = [tmp_path / name for name in (
        "history.duckdb", "history.duckdb.wal", "history.lock", "history.partial",
        "history.partial.wal")]  # fmt: skip
    for folder in folders:
        store(folder, line())
        if kind == "fifo":
            os.mkfifo(folder / folder.name)
        else:
            (folder / folder.name).symlink_to(victim)
    code = "import sys; from pathlib import Path; from plumbline.history.history import History\n" \
           "for folder in sys.argv[1:]:\n" \
           "    with History(Path(folder)) as found: print(len(found.series()))"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *folders], capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stdout) == (0, "1\n" * len(folders)), done.stderr
    assert victim.read_text() == "mine"
    assert [*tmp_path.glob("*/*.*.partial*")] == []


def test_rebuild(results: Path):
    store(results, line())
    done = run("rebuild", "--from", results)
    assert (done.code, re.findall(r" (\d+) ", done.out)) == (0, ["1", "1", "1"])
    assert str(results / index.NAME) in done.out


def test_without_leave_to_write_the_index_is_elsewhere(
    results: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """In the user's cache folder, and without that in memory, with a message."""
    store(results, line())
    (results / "history.lock").mkdir()
    messages = []
    with History(results, say=messages.append) as found:
        assert len(found.series()) == 1
    assert messages == []
    assert len(list(own_cache.rglob("*.duckdb"))) == 1
    assert not (results / index.NAME).exists()
    shutil.rmtree(own_cache)
    own_cache.write_text("no folder")
    with History(results, say=messages.append) as found:
        assert len(found.series()) == 1
    assert len(messages) == 1
    assert own_cache.read_text() == "no folder" and not (results / index.NAME).exists()


def test_without_locks_the_index_is_in_memory(results: Path, monkeypatch: pytest.MonkeyPatch):
    """As on Lustre without `flock`."""

    def acquire(*_, **__):
        raise threading.ThreadError("Function not implemented")

    store(results, line())
    monkeypatch.setattr(fasteners.InterProcessLock, "acquire", acquire)
    messages = []
    with History(results, say=messages.append) as found:
        assert len(found.series()) == 1
    assert len(messages) == 1 and str(results / index.NAME) in messages[0]


def test_a_full_disk_leaves_the_old_index_whole(results: Path, monkeypatch: pytest.MonkeyPatch):
    """And the command answers from memory."""
    store(results, line(day=1))
    values_of(results)
    before = (results / index.NAME).read_bytes()
    store(results, line(day=2))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index.shutil, "copyfile", full)
    monkeypatch.setattr(index, "_cache", lambda folder: [])
    messages = []
    with History(results, say=messages.append) as found:
        assert [s.values.tolist() for s in found.series()] == [[10.0, 10.0]]
    assert "No space left on device" in messages[0]
    assert (results / index.NAME).read_bytes() == before


def test_two_commands_at_once(results: Path):
    """Both answer, with all there is, however their reading and writing falls together."""
    for day in range(1, 25):
        store(results, *(line(n, day=day) for n in range(20)))
    code = ("import sys; from pathlib import Path; from plumbline.history.history import History; "
            "print(sum(len(s.values) for s in History(Path(sys.argv[1])).series()))")  # fmt: skip
    running = [
        subprocess.Popen([sys.executable, "-c", code, results], stdout=-1, stderr=-1, text=True)
        for _ in range(3)
    ]
    ended = [process.communicate(timeout=60) for process in running]
    assert [out for out, _ in ended] == ["480\n"] * 3, ended


@contextlib.contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen]:
    """Another process, which holds a lock until its input ends."""
    code = (
        "import sys, fasteners\n"
        "with fasteners.InterProcessLock(sys.argv[1]): print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def test_who_waits_for_another_command_says_so(results: Path):
    """The lock is another's: the wait has a message, and then the index is made."""
    store(results, line())
    messages = []
    with holding(results / "history.lock") as process:

        def say(message: str) -> None:
            messages.append(message)
            process.communicate()

        with History(results, say=say) as found:
            assert len(found.series()) == 1
    assert len(messages) == 1


# -- selection --------------------------------------------------------------------------------


@pytest.fixture
def mixed(results: Path) -> Path:
    """Three sessions of two systems."""
    store(results, line(day=1), line(1, placement="off-node", check="osu_bw %placement=off-node",
          foms=[fom(metric="bw", placement="off-node", value=20.0), fom(30.0)]))  # fmt: skip
    store(results, line(day=2, extras={"maintenance": "after", "who": "x"}, foms=[fom(40.0)]))
    store(results, line(day=3, system="beta", partition="gpu", environment="cray", benchmark="ior",
                        foms=[fom(50.0)]), line(4, day=3, foms=[], result="skip",
                        placement="off-node", reason="no GPU"))  # fmt: skip
    return results


@pytest.mark.parametrize(
    ("select", "values"),
    [
        ({}, [10.0, 20.0, 30.0, 40.0, 50.0]),
        ({"system": "alpha"}, [10.0, 20.0, 30.0, 40.0]),
        ({"system": "b*"}, [50.0]),
        ({"system": "[ab]*"}, None),
        ({"system": "' OR true --"}, None),
        ({"partition": "g?u"}, [50.0]),
        ({"environment": "cray"}, [50.0]),
        ({"check": "osu_bw*"}, [20.0, 30.0]),
        ({"check": "osu_bw"}, [20.0, 30.0]),
        ({"check": "osu_bw %placement=off-node"}, [20.0, 30.0]),
        ({"check": "osu_b"}, None),
        ({"benchmark": "ior"}, [50.0]),
        ({"metric": "bw"}, [20.0]),
        ({"placement": "off-node"}, [20.0]),
        ({"since": "2026-11-02"}, [40.0, 50.0]),
        ({"until": "2026-11-01"}, [10.0, 20.0, 30.0]),
        ({"since": "2026-11-02", "until": "2026-11-02"}, [40.0]),
        ({"since": "2026-11-02T01:00:00Z"}, [40.0, 50.0]),
        ({"since": "2026-11-02T01:00:01"}, [50.0]),
        ({"until": "2026-11-02T02:00:00+01:00"}, [10.0, 20.0, 30.0]),
        ({"extras": {"maintenance": "after"}}, [40.0]),
        ({"extras": {"maintenance": "before", "who": "x"}}, None),
        ({"sessions": (NIGHT,)}, [10.0, 20.0, 30.0]),
    ],
)
def test_selection(mixed: Path, select: dict, values: list[float] | None):
    """Each option alone; ``None`` is nothing selected."""
    for name in ("since", "until"):
        if name in select:
            select |= {name: moment(select[name], name == "until")}
    chosen = Selection(**select)
    if values is None:
        with pytest.raises(Fault) as fault:
            values_of(mixed, chosen)
        assert fault.value.code == "history.nothing-selected"
    else:
        assert sorted(values_of(mixed, chosen)) == values


@pytest.mark.parametrize(
    ("select", "suggested"),
    [
        ({"system": "alpa"}, ["'alpa'", "alpha"]),
        ({"check": "osu_latncy"}, ["'osu_latncy'", "osu_latency"]),
        ({"check": "osu_bw %placement=of-node"}, ["osu_bw %placement=off-node, osu_"]),
        ({"placement": "of-node"}, ["'of-node'", "off-node, on-node"]),
        ({"benchmark": "stream"}, ["'stream'", "ior, osu"]),
        ({"system": "gamma", "metric": "latencies"},
         ["'gamma'", "alpha, beta", "'latencies'", "latency"]),
        ({"system": "beta", "metric": "bw"}, []),
        ({"system": "alpha*", "node": "n7"}, []),
    ],
)  # fmt: skip
def test_a_selection_of_nothing_is_a_fault_with_suggestions(mixed, select: dict, suggested: list):
    """Of the names that nothing has; where each name is there, only not together, of none."""
    with pytest.raises(Fault) as fault:
        values_of(mixed, Selection(**select))
    assert fault.value.code == "history.nothing-selected"
    chosen = ", ".join(f"{name}={value}" for name, value in select.items())
    _, _, hints = str(fault.value).partition(chosen)
    assert [name for name in suggested if name not in hints] == []
    assert bool(hints) == bool(suggested)


def test_an_unknown_session_is_a_fault_with_suggestions(mixed: Path):
    with pytest.raises(Fault) as fault:
        values_of(mixed, Selection(sessions=("20261102",)))
    assert fault.value.code == "history.unknown-session"
    assert "20261102T010000Z-000002" in str(fault.value)


def test_cases_and_sessions_are_selected_by_what_they_measured(mixed: Path):
    """By a metric that a case has; by a placement that it, or one of its figures, has."""
    with History(mixed) as found:
        assert [case.check for case in found.cases(Selection(metric="bw"))] == [
            "osu_bw %placement=off-node"
        ]
        away = found.cases(Selection(placement="off-node"))
        assert [case.result for case in away] == ["pass", "skip"]
        assert [row.results for row in found.sessions(Selection(placement="off-node"))] == [
            {"pass": 1}, {"skip": 1}]  # fmt: skip
        assert len(list(found.records(Selection(metric="bw")))) == 1


def test_the_cases_that_ran_and_the_rows_of_some(results: Path):
    """Each with its number of sessions and its last one; a case of two attempts ran once."""
    store(results, line(1, check="a"), line(2, check="b %.part=alpha:cpu %.nid=n7"))
    store(results, line(3, day=2, check="a"), line(4, day=2, check="a", attempt=1))
    with History(results) as found:
        first, second = found.ran()
        assert (first.identity.check, first.sessions, first.session) == ("a", 2, DAY_2)
        assert str(first.time) == "2026-11-02T01:00:04" and first.placement == "on-node"
        assert (second.identity.node, second.sessions, second.session) == ("n7", 1, NIGHT)
        rows = found.cases(only=[first.identity])
        assert [(row.session, row.attempt) for row in rows] == [(NIGHT, 0), (DAY_2, 0), (DAY_2, 1)]
        assert [row.check for row in found.cases(only=[first.identity, second.identity])] == [
            "a", "b", "a", "a"]  # fmt: skip


def test_what_a_retry_measured_counts_nowhere(results: Path):
    """Whether or not the first attempt measured something: it is in no series, and no result of
    its session."""
    invalid = {"result": "invalid", "reason": "x", "code": "output.garbled", "foms": []}
    first = line(1, check="a"), line(2, check="b", **invalid)
    again = [fields | {"attempt": 1, "result": "pass", "foms": [fom(20.0)]} for fields in first]
    store(results, *first, *again)
    assert values_of(results) == [10.0]
    with History(results) as found:
        assert [row.check for row in found.measured()] == ["a"]
        (row,) = found.sessions()
        assert (row.ended, row.results) == (2, {"pass": 1, "invalid": 1})
        assert row.verdicts == {"pass": 1}


def test_two_threads_get_the_answers_to_their_own_questions(results: Path):
    """A report reads the next check while it writes the pages of one."""
    store(results, *(line(n, foms=[fom(float(n))]) for n in range(50)))
    with History(results) as found, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(lambda: [len(found.cases()) for _ in range(200)])
        answers = [len(found.sessions()) for _ in range(200)]
        assert {*answers} == {1} and {*asked.result()} == {50}


def test_what_is_read_ahead_ends_with_its_reader(results: Path):
    """With what its thread raised; and a history that is closed meanwhile rebuilds no index."""
    assert [*pool.ahead(range(3))] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        [*pool.ahead(1 // left for left in (1, 0))]
    store(results, line())
    messages: list[str] = []
    with pytest.raises(KeyError), History(results, say=messages.append) as found:
        asked = pool.ahead(found.sessions() for _ in range(1000))
        next(asked)
        raise KeyError
    asked.close()
    assert messages == []


def test_a_folder_whose_name_is_not_utf_8_is_refused(results: Path, monkeypatch):
    folder = results / os.fsdecode(b"caf\xe9")
    store(folder, line())
    assert (run("list", "--from", folder).code, run("list", "--from", folder).codes) == (
        2, ["input.wrong-option"])  # fmt: skip
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(folder))
    assert run("list").codes == ["input.wrong-option"]


def test_a_session_that_has_not_ended_is_listed_as_such(results: Path):
    """Two cases are planned, and one has a record: it runs, or was cut off, until it has an end."""
    store(results, line(day=1))
    folder = store(results, line(day=2), plan=2)

    def listed() -> list[list[object]]:
        cells = csv.DictReader(run("list", "--from", results, "--format", "csv").out.splitlines())
        return [
            [row["unended"] for row in rows_of("--from", results)],
            [row["unended"] for row in cells],
        ]

    def more_words() -> int:
        """How many more words of text the second session has than the first."""
        _, _, first, second, *_ = run("list", "--from", results).out.splitlines()
        return len(second.split()) - len(first.split())

    assert listed() == [[False, True], ["false", "true"]]
    assert more_words() > 0
    (folder / "end.json").write_text('{"code": 0, "notes": [], "faults": []}')
    assert listed() == [[False, False], ["false", "false"]]
    assert more_words() == 0


def test_the_time_of_the_cases_is_listed_without_waiting(results: Path):
    """The sum of what each record says, and nothing where none says it."""
    lines = [line(day=1, seconds={"total": total, "samples": []}) for total in (3605.25, 60.25)]
    lines[1]["case"] = "other"
    store(results, *lines)
    store(results, line(day=2, seconds={"total": None, "samples": []}))
    assert [row["seconds"] for row in rows_of("--from", results)] == [3665.5, None]
    shown = run("list", "--from", results).out.splitlines()
    assert "measured" in shown[0] and "1:01:06" in shown[2] and ":01:" not in shown[3]


def test_figures_above_their_ceiling_are_listed_as_failed(results: Path):
    verdicts = ["pass", "fail", "above-ceiling", "above-ceiling"]
    store(results, line(foms=[fom(metric=f"m{n}", verdict=v) for n, v in enumerate(verdicts)]))
    head, _, row = run("list", "--from", results).out.splitlines()[:3]
    assert row[head.index("failed") :][: len("failed")].strip() == "3"


def test_options_of_the_command_line(mixed: Path):
    """They reach the selection; what is no time or pair is refused with exit code 2."""
    (row,) = rows_of("--from", mixed, "--extras", "who=x")
    assert row["start"] == "2026-11-02T01:00:00Z"
    found = run("list", "--from", mixed, "--since", "2026-11-02", "--format", "csv")
    assert [row["system"] for row in csv.DictReader(found.out.splitlines())] == ["alpha", "alpha"]
    for option, wrong in (("--since", "last week"), ("--since", "2026-13-01"), ("--extras", "who")):
        done = run("list", "--from", mixed, option, wrong)
        assert done.code == 2 and f"'{option}'" in done.err and f"'{wrong}'" in done.err
    assert run("list", "--from", mixed, "--system", "gamma").code == 2


def test_ages_count_back_from_now():
    """``30d``, ``2w`` and ``12h``."""
    now = datetime.datetime.now(datetime.timezone.utc)
    for text, hours in [("30d", 720), ("2w", 336), ("12h", 12)]:
        assert abs(now - moment(text) - datetime.timedelta(hours=hours)).total_seconds() < 60


def test_a_date_means_its_day_also_without_dashes():
    """Session ids are written so."""
    for end, day in ((False, 15), (True, 16)):
        dashed = moment("2026-11-15", end=end)
        assert moment("20261115", end=end) == dashed and dashed.day == day


# -- CSV --------------------------------------------------------------------------------------


def exported(source: Path) -> list[list[str]]:
    """The names of the columns, and the rows."""
    return list(csv.reader(run("export", "--from", source).out.splitlines()))


def written(folder: Path, rows: list[list[str]]) -> Path:
    """A CSV file of these rows."""
    path = folder / "some.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def everything(source: Path) -> tuple:
    with History(source) as found:
        series = [
            (s.key, s.benchmark, s.unit, s.better, s.samples, *(
                str(array.tolist()) for array in (s.sessions, s.times, s.values, s.lower, s.upper,
                s.ceiling, s.verdicts, s.references, s.builds, s.nodes)))
            for s in found.series()
        ]  # fmt: skip
        return series, found.cases(), found.sessions(), found.notes


def test_a_csv_brings_back_the_same_history(mixed: Path, tmp_path: Path):
    """Exactly: every digit, empty cells, cases without figures and sessions without cases."""
    odd = [0.1 + 0.2, 1e-300, 1 / 3, 12345678901234567.0, 5e-324]
    foms = [fom(v, size=n, lower=v, samples=[v / 7]) for n, v in enumerate(odd)]
    store(mixed, line(day=9, foms=foms, nodes=[], output=None, build={"b": "1", "a": "2"}), plan=7)
    store(mixed, b"", name="killed at once", plan=3)
    store(mixed, line(10, day=12), line(5, day=12), plan=None)
    out = tmp_path / "all.csv"
    assert run("export", "--from", mixed, "-o", out).code == 0
    assert everything(out) == everything(mixed)
    again = run("export", "--from", out)
    assert (again.code, again.out) == (0, out.read_text())
    with History(out) as found, pytest.raises(Fault) as fault:
        list(found.records())
    assert fault.value.code == "history.csv-only"


@pytest.mark.holds("spreadsheet")
def test_a_csv_brings_back_what_would_end_a_cell_or_a_line(results: Path, tmp_path: Path):
    texts = ["a\rb", "a\r\nb", 'a\n"b,c', "'=1+1", "=1+1\r", '\\"', "\u2028|"]
    store(results, *(line(number, case=text, check=text, reason=text, nodes=[text, "n2"],
                          foms=[fom(location=text, unit=text)], extras={text: text})
                     for number, text in enumerate(texts)), plan=None)  # fmt: skip
    file = tmp_path / "out.csv"
    assert run("export", "--from", results, "-o", file).code == 0
    assert everything(file) == everything(results)
    with History(file) as found:
        assert [case.check for case in found.cases()] == texts and found.faults == []


def test_a_csv_of_an_earlier_export_is_read(mixed: Path, tmp_path: Path):
    """It has no column `seconds`: all else is as it was, and that is not known."""
    rows = exported(mixed)
    column = rows[0].index("seconds")
    path = written(tmp_path, [row[:column] + row[column + 1 :] for row in rows])
    with History(path) as earlier, History(mixed) as now:
        assert earlier.series()[0].values.tolist() == now.series()[0].values.tolist()
        assert {row.seconds for row in earlier.sessions()} == {None}
        assert None not in {row.seconds for row in now.sessions() if row.ended}


def test_a_csv_with_other_columns_is_refused(mixed: Path, tmp_path: Path):
    """The columns are named; a cell of another type is skipped and reported."""
    rows = exported(mixed)
    # As JSON and the other CSVs spell it.
    assert {row[rows[0].index("near_bound")] for row in rows[1:]} <= {"true", "false", ""}
    assert "false" in {row[rows[0].index("near_bound")] for row in rows[1:]}

    path = written(tmp_path, [["Value" if cell == "value" else cell for cell in rows[0]]])
    with pytest.raises(Fault) as fault:
        History(path)
    assert fault.value.code == "input.wrong-file"
    assert "'value'" in str(fault.value) and "'Value'" in str(fault.value)
    # A CSV of something else is reported with a few of its columns.
    path.write_text("night,value,node\n")
    done = run("list", "--from", path)
    assert (done.code, done.codes) == (2, ["input.wrong-file"]) and len(done.err.splitlines()) == 1
    # Not missing are two that it has, and two that earlier exports did not write.
    left = len(rows[0]) - 2 - 2 - 3
    assert f"'session', 'session_system', 'start' and {left} " in done.err
    written(tmp_path, [rows[0] + ["unit"]])
    with pytest.raises(Fault) as fault:
        History(path)
    assert fault.value.code == "input.wrong-file"
    shuffled = [row[::-1] for row in rows]
    shuffled[2][shuffled[0].index("value")] = "fast"
    shuffled[3][shuffled[0].index("value")] = ""
    shuffled[4][shuffled[0].index("samples")] = ""
    written(tmp_path, shuffled)
    with History(path) as found:
        series = found.series()
        assert sum(len(s.values) for s in series) == 3
        assert f"{path}:3: value: " in found.faults[0]
        (lost,) = found.faults[1:]
        assert lost.startswith(f"{path}: 1 ")
    assert [40.0] in [samples for s in series for samples in s.samples]
    assert run("list", "--from", path).code == 2


def test_words_that_plumbline_does_not_write_are_reported(mixed: Path, tmp_path: Path):
    """The rows of an edited file that have them are skipped, and the report is still made."""
    head, *rows = exported(mixed)
    first, second, *_ = (row for row in rows if row[head.index("metric")])
    first[head.index("verdict")], second[head.index("result")] = "passed", "ok"
    path = written(tmp_path, [head, *rows])
    with History(path) as edited, History(mixed) as whole:
        assert len(edited.faults) == 2
        assert ["'ok'" in fault for fault in edited.faults] == [True, False]
        assert ["'passed'" in fault for fault in edited.faults] == [False, True]
        of_file, of_records = (
            sum(len(s.values) for s in found.series()) for found in (edited, whole)
        )
        assert of_file == of_records - 2
    assert run("report", "--from", path, "-o", tmp_path / "site").code == 2


def test_rows_without_a_start_are_reported(mixed: Path, tmp_path: Path):
    """No command can place them in time: they are skipped, and the others are compared."""
    head, *rows = exported(mixed)
    for row in rows[:2]:
        row[head.index("start")] = ""
    with History(written(tmp_path, [head, *rows])) as edited, History(mixed) as whole:
        assert len(edited.faults) == 1
        assert {row.session for row in edited.sessions()} <= {
            row.session for row in whole.sessions()
        }
        of_file, of_records = (
            sum(len(s.values) for s in found.series()) for found in (edited, whole)
        )
        assert of_file == of_records - 2


def test_records_of_the_tests_keep_to_the_schema():
    """What these tests write is what Plumbline writes."""
    valid(json.loads(records.dumps(line())))


# -- the oldest DuckDB ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the oldest DuckDB that pyproject.toml allows; Spack's is not much newer."""
    version = re.search(r'"duckdb>=([^"]+)"', (paths.ROOT / "pyproject.toml").read_text())[1]
    folder = tmp_path_factory.mktemp("duckdb")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--retries=0"]
    done = subprocess.run([*command, f"--target={folder}", f"duckdb=={version}.0"],
                          capture_output=True, text=True, check=False, timeout=300)  # fmt: skip
    if done.returncode:
        pytest.skip(f"DuckDB {version} cannot be downloaded: {done.stderr.strip()[-200:]}")
    return folder


#: Prints where DuckDB is, and what each command of standard input ends with and prints.
ASKED = """\
import json, sys
import duckdb
from conftest import asked
done = [asked(*words) for words in json.load(sys.stdin)]
print(json.dumps([duckdb.__file__, *((one.code, one.out, one.err) for one in done)]))
"""


def test_what_the_oldest_duckdb_reads_is_the_same(
    oldest: Path, mixed: Path, demo: Path, tmp_path: Path
):
    """Of cases without nodes, too."""
    store(mixed, line(day=9, nodes=[], conditions={}, foms=[fom(3.0)]))
    commands = [
        ("history", "export", "--from", mixed),
        ("history", "export", "--from", demo),
        ("history", "list", "--format=json", "--from", mixed),
        ("history", "nodes", "--format=json", "--from", demo),
        ("show", "--format=json", "--from", demo, "--system=alder"),
        ("trend", "--format=json", "--from", demo),
        ("screen", "--format=json", "--from", demo),
        ("compare", "--format=json", "--from", demo, "--system=alder", "last:20", "last:5"),
    ]
    env = os.environ | {"PYTHONPATH": f"{oldest}:{Path(__file__).parent}"}
    done = subprocess.run([sys.executable, "-c", ASKED], env=env, capture_output=True, text=True,
                          input=json.dumps(commands, default=str))  # fmt: skip
    assert done.returncode == 0, done.stderr
    used, *found = json.loads(done.stdout)
    assert Path(used).is_relative_to(oldest)
    for words, (code, out, err) in zip(commands, found, strict=True):
        newest = asked(*words)
        # Without their age in days, which may pass the next tenth meanwhile.
        outputs = [re.sub(r'"days": [\d.]+', "", text) for text in (out, newest.out)]
        assert (code, outputs[0]) == (newest.code, outputs[1]), err


# -- the benchmark ----------------------------------------------------------------------------


def test_the_bench_writes_lines_as_plumbline_does(tmp_path: Path):
    """A small year of it: each record keeps to the schema, and the index has every figure."""
    written = bench_history.write_year(tmp_path, 400, nights=5, systems=2)
    assert written == 400
    with History(tmp_path) as found:
        records = list(found.records())
        series = found.series()
        assert len(found.cases()) == 400
        assert found.faults == found.notes == []
    assert [valid(json.loads(record.dumps(fields))) for fields in records[::40]]
    figures = [fom for fields in records for fom in fields.foms]
    assert sum(len(s.values) for s in series) == len(figures) == 5 * 2 * 4 * (6 * 1 + 3 * 4 + 12)
    assert sorted(v for s in series for v in s.values) == sorted(fom.value for fom in figures)
    assert {len(s.values) for s in series} == {5}


_LIMIT = "SELECT current_setting('memory_limit')"
_LARGE = "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(4000000))"


def test_before_nodes_are_judged_the_memory_of_queries_is_given_back(results):
    """DuckDB would keep it meanwhile, and judging them needs the most memory of all."""
    store(results, line(nodes=["a"]))

    def resident() -> int:
        return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])

    with History(results) as found:
        limit = found.fetch(_LIMIT, Selection())
        least = resident()
        found.fetch(_LARGE, Selection())
        most = resident()
        assert len(found.of_units()) == 1
        assert resident() - least < (most - least) / 2
        # The next query has its memory again.
        assert found.fetch(_LIMIT, Selection()) == limit


def test_memory_that_cannot_be_given_back_is_kept():
    """Without a folder for what does not fit, DuckDB refuses a limit."""
    with duckdb.connect(config={"temp_directory": ""}) as db:
        db.execute("CREATE TABLE large AS SELECT hash(range) AS text FROM range(6000000)")
        limit = db.execute(_LIMIT).fetchall()
        index.release(db)
        assert db.execute(_LIMIT).fetchall() == limit


def test_an_index_in_memory_stays_there(results, tmp_path, monkeypatch):
    """A limit would have DuckDB write it to temporary files."""
    store(results, line(nodes=["a"]))
    exported = tmp_path / "history.csv"
    assert run("export", "--from", results, "-o", exported).code == 0
    monkeypatch.setitem(index._SETTINGS, "memory_limit", "400MB")
    with History(exported) as found:
        monkeypatch.setitem(index._SETTINGS, "memory_limit", "300MB")
        limit = found.fetch(_LIMIT, Selection())
        assert len(found.of_units()) == 1
        assert found.fetch(_LIMIT, Selection()) == limit
