"""What the history cannot read is skipped and reported."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import records
from histories import (
    NIGHT,
    fom,
    holding,
    line,
    results_,  # noqa: F401 - a fixture
    rows_of,
    run,
    store,
    values_of,
)
from plumbline.core.errors import Fault
from plumbline.history import history, index, statements
from plumbline.history.history import History
from plumbline.history.series import Selection, moment

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


def test_a_folder_whose_name_is_not_utf_8_is_refused(results: Path, monkeypatch):
    folder = results / os.fsdecode(b"caf\xe9")
    store(folder, line())
    assert (run("list", "--from", folder).code, run("list", "--from", folder).codes) == (
        2, ["input.wrong-option"])  # fmt: skip
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(folder))
    assert run("list").codes == ["input.wrong-option"]


def test_a_session_of_another_account_has_its_owner_and_the_remedy(
    results: Path, monkeypatch: pytest.MonkeyPatch
):
    """Who measured with umask 077; root may read all, so the error is made up."""
    closed = store(results, line())
    stats = index._stats

    def denied(folder: Path):
        if folder == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder / "records"))
        return stats(folder)

    monkeypatch.setattr(index, "_stats", denied)
    with History(results) as found:
        (fault,) = found.faults
    assert f"owner {closed.owner()} can run `chmod -R g+rX {closed}`" in fault
