"""Nights that run at once, are stopped or killed, or end for a budget, a disk or the clock."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE, Testbed, fault_of
from halfway import (
    FILLING,
    PINGPONG,
    filling_disk_,  # noqa: F401 - a fixture
    halfway,
)
from nightly_pages import page_of
from plumbline.operate import nightly
from records import records_of


@pytest.fixture
def running(
    make_testbed: Callable[..., Testbed],
) -> Iterator[tuple[Testbed, subprocess.Popen, Path]]:
    testbed = make_testbed("local")
    with halfway(testbed, "nightly", "--no-strict") as (process, release):
        yield testbed, process, release


def test_nights_of_two_systems_share_a_results_folder(tmp_path: Path):
    again = nightly._locked(tmp_path, "one")
    with nightly._locked(tmp_path, "one"), nightly._locked(tmp_path, "two"):
        fault_of(again.__enter__, "session.already-running")
    # The next one can have it, and finds nobody named in it.
    assert (tmp_path / "nightly-one.lock").read_text() == ""
    with nightly._locked(tmp_path, "one"):
        assert f"process {os.getpid()} on " in (tmp_path / "nightly-one.lock").read_text()


def test_a_lock_that_cannot_be_had_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(file: int, way: int):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "file").touch()
    for folder, code in ((tmp_path / "file", "files.not-writable"), (tmp_path, "files.no-locks")):
        fault_of(nightly._locked(folder, "one").__enter__, code, "nightly-one.lock: ")
        monkeypatch.setattr(fcntl, "flock", flock)


def test_a_second_night_is_refused_and_a_stopped_one_writes_its_page(running):
    testbed, process, _ = running
    out = testbed.folder / "out"
    out.mkdir()
    (out / "nightly.md").write_text("# of the first\n")
    second = testbed.plumbline("nightly", "--no-strict", *PINGPONG, "--out", out)
    assert second.code == 2 and second.sessions == []
    assert (out / "nightly.md").read_text() == "# of the first\n"
    (line,) = second.err.strip().splitlines()
    owner = rf"\(process {process.pid} on {platform.node()} since 20\S+Z\)"
    assert re.search(rf"{owner}.* \[session\.already-running\]$", line)
    process.send_signal(signal.SIGTERM)
    done = testbed.ended(process, set())
    assert done.code == 2, done.output
    (session,) = testbed.session_folders()
    results = {f["environment"]: f["result"] for f in records_of(session)}
    assert results == {"quick": "pass", "waits": "aborted"}
    page = (session / "nightly.md").read_text()
    assert page.startswith("# local: inconclusive\n") and "stopped by a signal" in page


def test_a_killed_night_leaves_its_session_and_blocks_no_longer_than_that(running):
    testbed, process, release = running
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (first,) = testbed.session_folders()
    second = testbed.plumbline("nightly", "--no-strict", *PINGPONG)
    assert (second.code, second.codes) == (2, ["session.already-running"])
    assert f"process {process.pid} " in second.err and "killed" in second.err
    release.touch()
    process.communicate(timeout=PATIENCE)
    # The session went on to its own end.
    assert [f["result"] for f in records_of(first)] == ["pass", "pass"]
    with nightly._locked(testbed.results, "local"):
        pass


def test_a_night_and_its_session_killed(running):
    testbed, process, _ = running
    (first,) = testbed.session_folders()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    # The lock's line still names it, and the lock is free.
    assert f"process {process.pid} " in (testbed.results / "nightly-local.lock").read_text()
    done = testbed.plumbline("nightly", "--no-strict", *PINGPONG, "-p", "quick")
    assert done.code == 0, done.output
    assert first.name in done.out
    found = [(f["result"], f["code"]) for f in records_of(first)]
    assert found == [("pass", None), ("unfinished", "case.unfinished")]


def test_a_budget_that_is_spent(testbed: Testbed):
    for name in ("one", "other"):
        testbed.environment(name, "imb", STANDIN_WAIT=testbed.folder / "never")
    testbed.write(max_jobs=1)
    done = testbed.plumbline("nightly", "--no-strict", *PINGPONG, "--sessions=2", "--budget=6s")
    assert done.code == 2, done.output
    assert [(f["result"], f["code"]) for f in done.records] == [
        ("aborted", "case.budget-spent")
    ] * 2
    page = page_of(done)
    assert page.startswith("# testbed: inconclusive\n")
    assert "| session 2 of 2 | 2 | " in page
    assert "budget spent" in page.partition("## Session 1 of 2")[2]


def test_what_has_run_is_judged_though_the_budget_is_spent(testbed: Testbed):
    """The budget ends while the last program runs its last moment."""
    testbed.environment("quick", "imb")
    testbed.write(max_jobs=1)
    hook = testbed.folder / "late" / "sitecustomize.py"
    hook.parent.mkdir()
    # Every case ends as the budget does.
    hook.write_text(
        "import sys\n"
        "if sys.argv[:1] and 'plumbline' in sys.argv[0]:\n"
        "    import plumbline.session.session as session\n"
        "    exits = session.Session.on_task_exit\n"
        "    def on_task_exit(self, task):\n"
        "        exits(self, task)\n"
        "        self.budget = 0.001\n"
        "    session.Session.on_task_exit = on_task_exit\n"
    )
    done = testbed.plumbline("run", *PINGPONG, "--budget=10m", PYTHONPATH=hook.parent)
    assert [f["result"] for f in done.records] == ["pass"], done.output


def test_a_night_on_a_disk_that_fills_up(testbed: Testbed, filling_disk: Path):
    out = testbed.folder / "out"
    done = testbed.plumbline("nightly", "--no-strict", *FILLING, "--out", out)
    assert done.code in (1, 2), done.output
    assert "plumbline-record {" in done.out and "Traceback" not in done.output
    assert "plumbline history recover" in (out / "nightly.md").read_text()
    # The disk is freed, and the log brings back what it could not take.
    stored = len(records_of(done.session))
    filling_disk.unlink()
    log = testbed.folder / "nightly.log"
    log.write_text("".join(f"Nov 22 01:00:00 login1 {line}\n" for line in done.out.splitlines()))
    assert stored < 2
    # A second time, there is nothing to do.
    for _ in range(2):
        assert testbed.asked("history", "recover", log).code == 0
        assert sorted(f["environment"] for f in records_of(done.session)) == ["fills", "quick"]


def test_records_that_turn_read_only(
    make_testbed: Callable[..., Testbed], small_disk: Callable[[str], Path]
):
    disk = small_disk("8m")
    testbed = make_testbed("local")
    testbed.results = disk
    testbed.env["PLUMBLINE_RESULTS"] = str(disk)
    with halfway(testbed, "nightly", "--no-strict") as (process, release):
        try:
            # Not the file system itself, which stays writable while ReFrame's log is open.
            for words in (["--bind", str(disk), str(disk)], ["-o", "remount,bind,ro", str(disk)]):
                subprocess.run(["mount", *words], check=True)
            release.touch()
            done = testbed.ended(process, set())
            # Another one does not even begin.
            refused = testbed.plumbline("nightly", "--no-strict", *PINGPONG)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)
    assert done.code == 2, done.output
    assert "Traceback" not in done.output, done.output
    assert os.strerror(errno.EROFS) in done.out
    assert "plumbline-record {" in done.out, done.output
    assert (refused.code, refused.codes) == (2, ["files.not-writable"])
    assert str(disk) in refused.err
    # What could not be stored is brought back once the disk can be written.
    log = testbed.folder / "nightly.log"
    log.write_text(done.out)
    assert testbed.asked("history", "recover", log).code == 0
    (session,) = testbed.session_folders()
    assert sorted(f["environment"] for f in records_of(session)) == ["quick", "waits"]


CLOCK = """\
import os, pathlib, time
real, real_gmtime = time.time, time.gmtime
def now():
    return real() - (7200 if pathlib.Path(os.environ["JUMP"]).exists() else 0)
time.time = now
time.gmtime = lambda seconds=None: real_gmtime(now() if seconds is None else seconds)
"""

#: The job's `date` of the same clock.
DATE = """\
#!/bin/sh
PATH=/usr/bin:/bin
[ -e "$JUMP" ] && exec date -d '7200 seconds ago' "$@"
exec date "$@"
"""


def test_a_clock_that_jumps_back(make_testbed: Callable[..., Testbed]):
    testbed = make_testbed("local")
    hook = testbed.folder / "clock" / "sitecustomize.py"
    hook.parent.mkdir()
    hook.write_text(CLOCK)
    date = hook.with_name("date")
    date.write_text(DATE)
    date.chmod(0o755)
    jump = testbed.folder / "jump"
    before = testbed.session_folders()
    path = f"{hook.parent}:{os.environ['PATH']}"
    env = {"PYTHONPATH": hook.parent, "PATH": path, "JUMP": jump}
    with halfway(testbed, "run", **env) as (process, release):
        jump.touch()
        release.touch()
        during = testbed.ended(process, before)
    assert during.code == 0, during.output
    assert [f["result"] for f in during.records] == ["pass", "pass"]
    assert re.search(r" -7[12]\d\d s ", during.out)
    after = testbed.plumbline("run", *PINGPONG, "-p", "quick", **env)
    assert after.code == 0, after.output
    first, second = during.session.name, after.session.name
    assert second < first
    assert first in after.out
    listed = testbed.asked("history", "list", "--format=json")
    assert listed.code == 0 and f"plumbline: {first}: " in listed.err
    assert {row["session"] for row in json.loads(listed.out)} == {first, second}
