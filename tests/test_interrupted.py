"""A session that is interrupted or killed in the middle, or finds that another one runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import CHECKS, Testbed, records_of
from halfway import PINGPONG, halfway

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
            told = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if words.encode() in told:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_in_the_middle(running: Running, name: str):
    testbed, process, release = running
    if name == "SIGTERM":
        # ReFrame loses a SIGTERM that comes while it writes its log: until it only waits.
        time.sleep(1)
    os.killpg(process.pid, getattr(signal, name))
    done = testbed.ended(process, set())
    assert done.code == 2, done.said
    ended = {fields["environment"]: fields["result"] for fields in done.records}
    assert len(done.records) == 2
    assert ended["quick"] == "pass"
    assert ended["waits"] in ("aborted", "unfinished")
    (reason,) = [fields["reason"] for fields in done.records if fields["result"] != "pass"]
    assert re.search(r"\w\w", reason)
    assert "2 of 2 test cases" in done.out
    assert str(done.session / "records.jsonl") in done.out
    # The job went with its session.
    wait_for_end_of(f"STANDIN_WAIT={release}")


def wait_for_end_of(words: str) -> None:
    """Waits until no process has these words any more."""
    deadline = time.monotonic() + 10
    while _running(words):
        assert time.monotonic() < deadline, "the job still runs"
        time.sleep(0.05)


def test_killed_in_the_middle(running: Running):
    testbed, process, release = running
    os.killpg(process.pid, signal.SIGKILL)
    done = testbed.ended(process, set())
    assert done.code == -signal.SIGKILL
    # Whole lines, none doubled: records_of() holds each against the schema.
    assert [(f["environment"], f["result"]) for f in done.records] == [("quick", "pass")]
    plan = json.loads((done.session / "plan.json").read_text())
    assert len(plan["cases"]) == 2
    doctor = testbed.plumbline("doctor", "--format=json")
    assert doctor.code == 0, doctor.said
    (cut_off,) = json.loads(doctor.out)["cut off"]
    assert done.session.name in cut_off and "1 of 2" in cut_off
    later = testbed.plumbline("run", *PINGPONG, "-p", "quick")
    assert later.code == 0, later.said
    wait_for_end_of(f"STANDIN_WAIT={release}")
    assert [fields["result"] for fields in later.records] == ["pass"]
    # The next session ended what the killed one had started, and recorded what it had not finished.
    assert re.search(rf"session {done.session.name} no longer runs, .*: ending them", later.out)
    kept = [(f["environment"], f["result"]) for f in records_of(done.session)]
    assert kept == [("quick", "pass"), ("waits", "unfinished")]
    assert "1 of 2 test cases had ended" in later.out
    assert json.loads((done.session / "end.json").read_text())["code"] == 2


def test_two_sessions_at_once(running: Running):
    testbed, process, release = running
    (first,) = testbed.session_folders()
    second = testbed.plumbline("run", *PINGPONG, "-p", "quick")
    assert second.code == 2, second.said
    assert first.name in second.err and "measures on this machine" in second.err
    assert len(second.err.strip().splitlines()) <= 2 and "Traceback" not in second.said
    assert second.sessions == []
    plain = testbed.reframe("-c", CHECKS, "-r", *PINGPONG, "-p", "quick")
    assert plain.code == 2 and first.name in plain.err
    # Nor of another checkout, whose results are elsewhere: the lock is the host's.
    elsewhere = {"PLUMBLINE_RESULTS": testbed.folder / "elsewhere"}
    other = testbed.plumbline("run", *PINGPONG, "-p", "quick", **elsewhere)
    assert other.code == 2 and first.name in other.err, other.said
    # What measures nothing may run beside it.
    assert testbed.reframe("-c", CHECKS, "-l").code == 0
    release.touch()
    done = testbed.ended(process, set())
    assert done.code == 0, done.said
    assert [fields["result"] for fields in done.records] == ["pass", "pass"]
    assert testbed.plumbline("run", *PINGPONG).code == 0
