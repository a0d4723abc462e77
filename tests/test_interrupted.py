"""A session that is interrupted or killed in the middle, or finds that another one runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import records
from conftest import CHECKS, PATIENCE, Testbed, refused
from halfway import PINGPONG, halfway
from plumbline.check import record
from plumbline.check.result import CaseResult
from plumbline.session import session
from records import records_of

Running = tuple[Testbed, subprocess.Popen, Path]


@pytest.fixture
def running(make_testbed: Callable[..., Testbed]) -> Iterator[Running]:
    testbed = make_testbed("local")
    with halfway(testbed, "run") as (process, release):
        yield testbed, process, release


def _running(words: str) -> list[int]:
    """Processes whose environment or command line has these words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if words.encode() in text:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_in_the_middle(running: Running, name: str):
    testbed, process, release = running
    os.killpg(process.pid, getattr(signal, name))
    done = testbed.ended(process, set())
    assert done.code == 2, done.output
    ended = {fields["environment"]: fields["result"] for fields in done.records}
    assert len(done.records) == 2
    assert ended["quick"] == "pass"
    assert ended["waits"] in ("aborted", "unfinished")
    ((code, reason),) = [
        (fields["code"], fields["reason"]) for fields in done.records if fields["result"] != "pass"
    ]
    assert code in ("case.stopped", "case.unfinished")
    assert code != "case.stopped" or ("Ctrl-C" if name == "SIGINT" else "signal 15") in reason
    assert str(done.session / "records.jsonl") in done.out
    # The job went with its session.
    wait_for_end_of(f"STANDIN_WAIT={release}")


def wait_for_end_of(words: str) -> None:
    """Waits until no process has these words any more."""
    deadline = time.monotonic() + PATIENCE
    while _running(words):
        assert time.monotonic() < deadline, "the job still runs"
        time.sleep(0.05)


def test_interrupted_while_a_scratch_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The record of its case is stored."""

    def rmtree(*_, **__):
        raise KeyboardInterrupt

    fields = record.validate(records.case("s", "2026-11-01T00:00:00Z"))
    monkeypatch.setattr(session, "of_check", lambda _: CaseResult(scratch="/scratch/s"))
    monkeypatch.setattr(session, "of_task", lambda *_: fields)
    monkeypatch.setattr(session.shutil, "rmtree", rmtree)
    ended = session.Session("s", dry_run=False, extras={})
    ended.folder = tmp_path
    with pytest.raises(KeyboardInterrupt):
        ended.keep(SimpleNamespace(check=None), "pass")
    assert [found["case"] for found in records_of(tmp_path)] == [fields.case]


def test_killed_in_the_middle(running: Running):
    testbed, process, release = running
    os.killpg(process.pid, signal.SIGKILL)
    done = testbed.ended(process, set())
    assert done.code == -signal.SIGKILL
    # Whole lines, none doubled: records_of() validates each.
    assert [(f["environment"], f["result"]) for f in done.records] == [("quick", "pass")]
    plan = json.loads((done.session / "plan.json").read_text())
    assert len(plan["cases"]) == 2
    doctor = testbed.plumbline("doctor", "--format=json")
    assert doctor.code == 0, doctor.output
    (cut_off,) = json.loads(doctor.out)["cut off"]
    assert done.session.name in cut_off and "1 of 2" in cut_off
    later = testbed.plumbline("run", *PINGPONG, "-p", "quick")
    assert later.code == 0, later.output
    wait_for_end_of(f"STANDIN_WAIT={release}")
    assert [fields["result"] for fields in later.records] == ["pass"]
    # The next session ended what the killed one had started, and recorded what it had not finished.
    assert done.session.name in later.out
    kept = [(f["environment"], f["result"]) for f in records_of(done.session)]
    assert kept == [("quick", "pass"), ("waits", "unfinished")]
    assert json.loads((done.session / "end.json").read_text())["code"] == 2


def test_two_sessions_at_once(running: Running):
    testbed, process, release = running
    (first,) = testbed.session_folders()
    second = testbed.plumbline("run", *PINGPONG, "-p", "quick")
    refused(second, first.name, "[session.already-running]")
    assert second.sessions == []
    # Nor by the plain command, of another checkout, whose results are elsewhere: the lock is the
    # host's.
    elsewhere = {"PLUMBLINE_RESULTS": testbed.folder / "elsewhere"}
    other = testbed.reframe("-c", CHECKS, "-r", *PINGPONG, "-p", "quick", **elsewhere)
    refused(other, first.name, "[session.already-running]")
    # What measures nothing may run beside it.
    assert testbed.reframe("-c", CHECKS, "-l").code == 0
    release.touch()
    done = testbed.ended(process, set())
    assert done.code == 0, done.output
    assert [fields["result"] for fields in done.records] == ["pass", "pass"]
