"""What is kept of old sessions, and records taken back from a log."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import records
from conftest import Done
from histories import holding, line, results_, rows_of, run, store  # noqa: F401 - a fixture
from plumbline.check import record
from plumbline.history import retention
from records import records_of
from test_linear import MOST, ratio


def session(results: Path, days: float, **fields: object) -> Path:
    """A session of some days ago, with all that one leaves."""
    began = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=days)
    name = f"{began:%Y%m%dT%H%M%SZ}-{abs(int(days)):06x}"
    folder = store(results, line(session=name, time=f"{began:%Y-%m-%dT%H:%M:%SZ}", **fields))
    for place in ("stage/a/b", "output/a"):
        (folder / place).mkdir(parents=True)
        (folder / place / "sample-0.out").write_bytes(b"x" * 50_000)
    (folder / "reframe.log").write_text("a line\n" * 20_000)
    (folder / "report.json").write_text("{}" * 20_000)
    return folder


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def items(done: Done) -> list[str]:
    """The files and folders that were removed or compressed, or would be."""
    return re.findall(r": (\S+) \([\d.]+ [kM]B\)$", done.out, re.M)


def counts(done: Done) -> list[int]:
    """Of ``history recover``: how many records were stored, and how many were there."""
    return [*map(int, re.findall(r"\d+", done.out.splitlines()[-1]))]


WHOLE = {"plan.json", "records.jsonl", "stage", "output", "reframe.log", "report.json"}
RULES = ["--keep-stage=14d", "--keep-output=90d", "--keep-logs=30d", "--keep-sessions=400d"]


def test_each_rule_has_its_age(results: Path):
    sessions = {days: session(results, days) for days in (1, 20, 40, 100, 500)}
    before = (sessions[100] / "records.jsonl").read_bytes()
    prune = ["prune", "--from", results, *RULES]
    dry = run(*prune, "--dry-run")
    assert (dry.code, dry.err, len(items(dry))) == (0, "", 9)
    assert all(left(folder) == WHOLE for folder in sessions.values())
    done = run(*prune)
    assert (done.code, done.err, items(done)) == (0, "", items(dry))
    assert left(sessions[1]) == WHOLE
    assert left(sessions[20]) == WHOLE - {"stage"}
    packed = {"plan.json", "records.jsonl", "reframe.log.gz", "report.json.gz"}
    assert left(sessions[40]) == packed | {"output"}
    assert left(sessions[100]) == packed
    assert left(sessions[500]) == set()
    assert (sessions[100] / "records.jsonl").read_bytes() == before
    with gzip.open(sessions[40] / "reframe.log.gz", "rt") as file:
        assert file.read() == "a line\n" * 20_000
    # The index has what there is, and nothing is left to do.
    assert len(rows_of("--from", results)) == 4
    again = run(*prune)
    assert (again.code, items(again)) == (0, [])


def test_records_go_only_when_that_is_asked_for(results: Path):
    folder = session(results, 4000)
    assert run("prune", "--from", results, *RULES[:3]).code == 0
    assert {"plan.json", "records.jsonl"} <= left(folder)
    done = run("prune", "--from", results)
    assert (done.code, done.codes) == (2, ["input.wrong-option"])


def test_running_sessions_and_links_are_kept(results: Path, tmp_path: Path):
    runs = session(results, 500)
    (runs / "running").touch()
    with holding(runs / "running"):
        elsewhere = session(tmp_path / "other", 500)
        (results / "sessions" / elsewhere.name.replace("Z-", "Z-9")).symlink_to(elsewhere)
        linked = session(results, 499)
        shutil.rmtree(linked / "stage")
        (linked / "stage").symlink_to(elsewhere / "stage")
        done = run("prune", "--from", results, "--keep-stage=1d")
        assert left(runs) == WHOLE | {"running"}
        assert left(elsewhere) == WHOLE and (elsewhere / "stage" / "a").is_dir()
        # A folder that is a link is not followed, and that is reported.
        assert done.code == 2 and str(linked / "stage") in done.err
    assert run("prune", "--from", results, "--keep-sessions=1d").code == 0
    assert not runs.exists()


def test_a_session_that_goes_meanwhile_stops_nothing(
    results: Path, monkeypatch: pytest.MonkeyPatch
):
    old = session(results, 500)
    gone = old.rename(old.with_name("0-named-otherwise"))
    old = session(results, 500)

    def running(folder: Path) -> bool:
        shutil.rmtree(gone, ignore_errors=True)
        return False

    monkeypatch.setattr(retention.running, "is_running", running)
    rules = retention.RetentionRules(sessions=datetime.timedelta(days=1))
    done = retention.prune(results, rules, print)
    assert (done.count, old.exists()) == (1, False)
    assert done.faults == [f"{gone}: No such file or directory"]


def test_only_sessions_are_removed(results: Path):
    """A results folder that is a home, say, has other things among what it calls sessions."""
    early = results / "sessions" / "20200101T000000Z-0a1b2c"
    theirs = results / "sessions" / "thesis"
    for folder in (early, theirs):
        folder.mkdir(parents=True)
        (folder / "notes").write_text("kept")
        os.utime(folder, (1, 1))
    (results / "sessions" / "a-file").touch()
    os.utime(results / "sessions" / "a-file", (1, 1))
    done = run("prune", "--from", results, "--keep-sessions=1d", "--keep-stage=1d")
    assert done.code == 0, done.err
    assert (theirs / "notes").exists() and not early.exists()


def test_what_cannot_be_removed_is_reported(results: Path, monkeypatch: pytest.MonkeyPatch):
    """With the place that stays, since what fails in it may be named without its folder."""
    folder = session(results, 20)
    monkeypatch.chdir(results)
    (folder / "stage" / "a").chmod(0o500)
    with unprivileged(results):
        done = retention.prune(
            Path(), retention.RetentionRules(stage=datetime.timedelta(days=14)), print
        )
    (folder / "stage" / "a").chmod(0o700)
    stays = Path("sessions", folder.name, "stage")
    assert (done.count, done.faults) == (0, [f"{stays}: Permission denied"])
    assert (folder / "stage" / "a" / "b").exists()


@pytest.mark.parametrize("option", [["--from", "gone"], []])
def test_a_missing_folder_is_a_fault(option: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "gone"))
    done = run("prune", *option, "--keep-stage=1d")
    assert (done.code, done.out, done.codes) == (2, "", ["history.not-found"])
    assert "gone: " in done.err


@contextlib.contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Without the rights of root, who may remove anything; the folder is then its own."""
    if os.geteuid():
        yield
        return
    for place in (folder, *folder.rglob("*")):
        os.chown(place, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("wrong", ["19700101T000012Z-0a1b2c", "20991231T235959Z-0a1b2c"])
def test_a_session_whose_clock_was_wrong_has_no_age(results: Path, wrong: str):
    """It is not taken for old, and makes no other one old."""
    sessions = {days: session(results, days) for days in (0, 20)}
    odd = store(results, line(session=wrong))
    (odd / "stage").mkdir()
    rules = ["--keep-stage=14d", "--keep-sessions=30d"]
    done = run("prune", "--from", results, *rules)
    assert (done.code, items(done)) == (0, [str(sessions[20] / "stage")])
    assert f"{odd}: " in done.out
    assert (odd / "records.jsonl").exists() and (odd / "stage").exists()
    assert left(sessions[0]) == WHOLE and left(sessions[20]) == WHOLE - {"stage"}


# -- records from a log --------------------------------------------------------------------------


def logged(folder: Path, *lines: dict) -> Path:
    """A session's output with these records."""
    log = folder / "log"
    log.write_text("".join(f"plumbline-record {records.dumps(fields)}\n" for fields in lines))
    return log


def test_records_come_back_from_a_log(results: Path, tmp_path: Path):
    kept = line(case="a @alpha:cpu+gnu")
    lost = line(case="b @alpha:cpu+gnu", second=5)
    folder = store(results, kept, plan=2)
    log = tmp_path / "log"
    text = records.dumps(lost)
    log.write_text(
        f"a line\n12:00:00 host plumbline[7]: plumbline-record {text}\x1b[0m\n"
        f"plumbline-record {records.dumps(kept)}\nplumbline-record {text[:-20]}\n"
        f'plumbline-record {{"schema": 3}}\n'
        f"plumbline-record {records.dumps(lost | {'session': '../../out'})}\n"
    )
    done = run("recover", log, "--from", results)
    assert (done.code, counts(done), done.codes) == (2, [1, 1], ["history.damaged"] * 3)
    assert [f"{log}:{number}: " in done.err for number in (4, 5, 6)] == [True] * 3
    assert records_of(folder) == [kept, lost]
    assert not (tmp_path / "out").exists()
    assert counts(run("recover", log, "--from", results)) == [0, 2]
    assert records_of(folder) == [kept, lost]
    (tmp_path / "none").write_text("nothing\n")
    for name, code in (("none", "input.wrong-file"), ("gone", "input.unreadable-file")):
        done = run("recover", tmp_path / name, "--from", results)
        assert (done.code, done.codes) == (2, [code]) and str(tmp_path / name) in done.err


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../a", "a\nb"])
def test_a_record_of_a_log_stays_among_the_sessions(results: Path, tmp_path: Path, name: str):
    log = logged(tmp_path, line(session=name))
    stored, existing, (fault,) = retention.recover(results, log, print)
    assert (stored, existing) == (0, 0) and fault.startswith(f"{log}:1: session: ")
    assert not [*results.glob("records.jsonl")]


@pytest.mark.holds("results-files")
def test_records_are_not_stored_through_a_link(results: Path, tmp_path: Path):
    elsewhere, lost = tmp_path / "elsewhere", line()
    elsewhere.mkdir()
    (results / "sessions").mkdir()
    (results / "sessions" / lost["session"]).symlink_to(elsewhere)
    done = run("recover", logged(tmp_path, lost), "--from", results)
    assert (done.code, done.codes) == (2, ["files.not-writable"])
    assert [*elsewhere.iterdir()] == []


def test_a_separator_in_a_text_does_not_end_a_record(results: Path, tmp_path: Path):
    lost = line(result="error", reason="one\u2028two", foms=[])
    (tmp_path / "log").write_text(f"plumbline-record {json.dumps(lost, ensure_ascii=False)}\n")
    assert retention.recover(results, tmp_path / "log", print) == (1, 0, [])


def test_each_attempt_comes_back_once(results: Path, tmp_path: Path):
    """Of a case that was run again, in a log that holds each line twice, as two journals make."""
    first = line(case="b @alpha:cpu+gnu", result="fail")
    again = line(case="b @alpha:cpu+gnu", second=5, attempt=1)
    folder = store(results, line(case="a @alpha:cpu+gnu"))
    log = logged(tmp_path, first, again, first, again)
    for expected in ([2, 2], [0, 4]):
        done = run("recover", log, "--from", results)
        assert (done.code, counts(done)) == (0, expected)
        assert records_of(folder)[1:] == [first, again]


@pytest.mark.holds("linear")
def test_records_are_not_compared_with_all_others(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lost = [line(case=f"{number} @alpha:cpu+gnu") for number in range(100)]
    unfinished = {"result": "unfinished", "foms": [], "reason": "killed"}
    folder = store(results, *(fields | unfinished for fields in lost))
    log, comparisons = logged(tmp_path, *lost), 0

    def compare(one: record.Record, other: object) -> bool:
        nonlocal comparisons
        comparisons += 1
        return one is other

    monkeypatch.setattr(record.Record, "__eq__", compare)
    assert retention.recover(results, log, print) == (100, 0, [])
    assert records_of(folder) == lost and comparisons == 0


@pytest.mark.holds("linear")
def test_a_line_with_many_beginnings_is_read_once(results: Path, tmp_path: Path):
    def recover(count: int) -> None:
        log = tmp_path / f"{count}"
        log.write_text("plumbline-record {" * count)
        (fault,) = retention.recover(results, log, print)[2]
        assert fault.startswith(f"{log}:1: ")

    assert ratio(recover, 1000) < MOST


def test_a_record_of_an_older_plumbline_comes_back_as_what_it_stands_for(
    results: Path, tmp_path: Path
):
    now = line()
    old = {key: value for key, value in now.items() if key != "waiver"} | {"schema": 2}
    old["foms"] = [
        {key: value for key, value in fom.items() if key not in ("better", "near_bound", "waiver")}
        for fom in now["foms"]
    ]
    log = logged(tmp_path, old)
    done = run("recover", log, "--from", results)
    assert done.code == 0, done.err
    (folder,) = (results / "sessions").iterdir()
    (found,) = records_of(folder)
    assert found["schema"] == record.SCHEMA and found["foms"][0]["near_bound"] is False


def test_a_record_that_cannot_be_stored_is_reported(results: Path, tmp_path: Path):
    lost = line()
    log = logged(tmp_path, lost)
    in_its_place = results / "sessions" / lost["session"]
    in_its_place.parent.mkdir(parents=True)
    in_its_place.touch()
    done = run("recover", log, "--from", results)
    assert (done.code, done.codes) == (2, ["files.not-writable"])
    assert str(in_its_place / "records.jsonl") in done.err


def test_nothing_is_stored_into_a_running_session(results: Path, tmp_path: Path):
    folder = store(results, line(case="a @alpha:cpu+gnu"))
    (folder / "running").touch()
    log = logged(tmp_path, line(case="b @alpha:cpu+gnu"))
    with holding(folder / "running"):
        done = run("recover", log, "--from", results)
        assert (done.code, done.codes) == (2, ["history.not-ended"])
        assert len(records_of(folder)) == 1
    assert run("recover", log, "--from", results).code == 0
    assert len(records_of(folder)) == 2


def test_a_result_takes_the_place_of_never_finished(results: Path, tmp_path: Path):
    lost = line(case="b @alpha:cpu+gnu")
    unfinished = lost | {"result": "unfinished", "foms": [], "reason": "killed"}
    folder = store(results, unfinished)
    log = logged(tmp_path, lost)
    assert run("recover", log, "--from", results).code == 0
    assert records_of(folder) == [lost]
    # Never the other way round.
    assert run("recover", logged(tmp_path, unfinished), "--from", results).code == 0
    assert records_of(folder) == [lost]
