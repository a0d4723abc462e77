"""What a session that was killed left: processes, jobs, and cases that never finished."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import fasteners
import pytest
import records
from conftest import fault_of
from histories import line, results_, store  # noqa: F401 - a fixture
from plumbline.core import files
from plumbline.history import running
from plumbline.session import preflight, recovery
from plumbline.session import session as sessions
from plumbline.site import configuration
from plumbline.site import slurm as slurm_commands
from records import records_of
from test_sbatch import MISSING, Cluster, controller, of_system

#: The id of an unprivileged user.
NOBODY = 65534


def killed(results: Path, tail: bytes = b"", **plan: object) -> Path:
    """A session that was killed: one of its two cases had ended."""
    done = line(case="a @alpha:cpu+gnu")
    folder = store(results, done, tail)
    about = {"check": "c", "system": "alpha", "partition": "cpu", "environment": "gnu", "tags": [],
             "nodes": 1, "hours": 0.1}  # fmt: skip
    planned = json.loads((folder / "plan.json").read_text())
    planned["cases"] = dict.fromkeys(("a @alpha:cpu+gnu", "b @alpha:cpu+gnu"), about)
    (folder / "plan.json").write_text(json.dumps(planned | plan))
    (folder / "running").touch()
    return folder


def cleaned_up(results: Path, orphans: str = "cancel") -> list[str]:
    """Cleans up after killed sessions; the messages of that."""
    messages: list[str] = []
    recovery.clean_up(results, orphans, messages.append)
    return messages


#: The same in a process of its own, with a results folder as argument.
CLEAN_UP = (
    "import sys; from pathlib import Path; from plumbline.session import recovery; "
    "recovery.clean_up(Path(sys.argv[1]), 'cancel', print)"
)


def test_a_line_that_was_cut_off_is_taken_back(results: Path):
    folder = killed(results, tail=b'{"schema":3,"sess')
    assert any(str(folder / "records.jsonl") in line for line in cleaned_up(results))
    assert [f["result"] for f in records_of(folder)] == ["pass", "unfinished"]
    assert not (folder / "running").exists()
    # It belongs to the night on which it ran.
    first, last = records_of(folder)
    assert last["time"] == first["time"]
    before = (folder / "records.jsonl").read_bytes()
    cleaned_up(results)
    assert (folder / "records.jsonl").read_bytes() == before


@pytest.mark.parametrize("again, missing, code", [
    ("fail", False, 1), ("fail", True, 1), ("aborted", False, 2), ("pass", True, 2),
    ("pass", False, 0),
])  # fmt: skip
def test_what_reruns_found_counts_in_a_killed_session(
    results: Path, again: str, missing: bool, code: int
):
    """As in one that was not killed."""
    folder = killed(results)
    ended = [line(n, case="a @alpha:cpu+gnu", result=r, attempt=n)
             for n, r in enumerate(["pass", again])]  # fmt: skip
    if not missing:
        ended.append(line(2, case="b @alpha:cpu+gnu"))
    (folder / "records.jsonl").write_text("".join(f"{records.dumps(one)}\n" for one in ended))
    cleaned_up(results)
    assert json.loads((folder / "end.json").read_text())["code"] == code


def test_a_session_that_runs_is_not_cleaned_up(results: Path):
    folder = killed(results)
    holder = fasteners.InterProcessLock(folder / "running")
    with holder:
        done = subprocess.run(
            [sys.executable, "-c", CLEAN_UP, str(results)], capture_output=True, text=True
        )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert len(records_of(folder)) == 1


def test_a_lock_that_others_look_at_is_had_all_the_same(tmp_path: Path, monkeypatch):
    """Of hundreds of sessions that begin at once, each looks whether the others run."""
    had = fasteners.InterProcessLock.trylock
    looked = []

    def trylock(lock):
        if not looked:
            # Another one took it for that of a session that was killed before its plan.
            looked.append(tmp_path / "running")
            looked[0].unlink()
        return had(lock)

    monkeypatch.setattr(fasteners.InterProcessLock, "trylock", trylock)
    lock = running.claim(tmp_path)
    assert looked and lock and (tmp_path / "running").exists()
    code = "import sys; from pathlib import Path; from plumbline.history import running; " \
           "sys.exit(not running.is_running(Path(sys.argv[1])))"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 0
    running.release(tmp_path, lock)
    assert not running.is_running(tmp_path)


def test_a_lock_that_another_one_holds_for_a_moment_is_waited_for(tmp_path: Path):
    code = "import sys, time, fasteners\n" \
           "with fasteners.InterProcessLock(sys.argv[1]):\n" \
           "    print('held', flush=True); sys.stdin.read(1)"  # fmt: skip
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "running")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert other.stdout.readline() == b"held\n"
    soon = threading.Timer(0.2, other.stdin.close)
    soon.start()
    try:
        lock = running.claim(tmp_path)
        assert lock and lock.acquired
        running.release(tmp_path, lock)
    finally:
        soon.join()
        other.wait()


@pytest.mark.parametrize("kind", [OSError, threading.ThreadError])
def test_without_locks_a_session_runs_as_long_as_its_file_is_there(
    results: Path, monkeypatch, kind: type
):
    """So that nobody ends its processes, or records its cases as never finished."""

    def acquire(lock, *args, **options):
        raise kind("no locks available")

    monkeypatch.setattr(fasteners.InterProcessLock, "acquire", acquire)
    folder = killed(results)
    (folder / "running").unlink()
    assert running.claim(folder) is None
    assert running.is_running(folder)
    cleaned_up(results)
    assert len(records_of(folder)) == 1
    running.release(folder, None)
    assert not running.is_running(folder)


@contextlib.contextmanager
def marked(session: Path, place: Path, **env: str) -> Iterator[subprocess.Popen]:
    """A process that a session started, which works in a folder, with other variables."""
    env = {**os.environ, recovery.MARK: os.path.realpath(session), **env}
    child = subprocess.Popen(["sleep", "600"], cwd=place, env=env)
    proc = Path("/proc", str(child.pid))
    try:
        # Linux names the program before it has its variables.
        while (proc / "comm").read_text() != "sleep\n" or not (proc / "environ").read_bytes():
            time.sleep(0.01)
        yield child
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("host, boot, queue, theirs", [
    ("other", "b", "", True),
    # This host, since started again; and another name of the same kernel.
    (platform.node(), "b", "", False), ("other", "here", "", False),
    # In a job of Slurm, which is gone, runs, or cannot be asked for.
    ("other", "b", "8|RUNNING\n", False), ("other", "b", "7|RUNNING\n", True),
    ("other", "b", None, True),
])  # fmt: skip
def test_a_session_of_another_host_is_left_to_that_host(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, boot: str,
    queue: str | None, theirs: bool,
):  # fmt: skip
    """Where each host has locks of its own, it looks like one that was killed."""
    (tmp_path / "boot_id").write_text("here\n")
    monkeypatch.setattr(running, "_BOOT", tmp_path / "boot_id")
    answers = {"squeue": queue, "scontrol": "ClusterName             = one\n"}
    monkeypatch.setattr(slurm_commands, "capture", lambda *words, **_: answers[words[0]])
    folder = killed(results)
    job = {"job": "7", "cluster": "one"} if queue != "" else {"job": "", "cluster": ""}
    (folder / "running").write_text(json.dumps({"host": host, "boot": boot} | job))
    with marked(folder, folder) as child:
        messages = cleaned_up(results)
        assert (child.poll() is None) == theirs
    assert running.is_running(folder) == (folder / "running").exists() == theirs
    assert len(records_of(folder)) == (1 if theirs else 2)
    assert bool(recovery.unfinished(results)) == theirs
    if theirs:
        (message,) = messages
        assert folder.name in message and " on other" in message
        assert " on other" in recovery.unfinished(results)[0]


@pytest.mark.parametrize("plan", ["", '{"cases": {"a', "[]", '{"cases": [1], "extras": {}}'])
def test_a_plan_that_is_not_whole_is_reported_once(results: Path, plan: str):
    folder = killed(results)
    (folder / "plan.json").write_text(plan)
    (message,) = [*cleaned_up(results), *cleaned_up(results)]
    assert folder.name in message and "plan" in message
    assert len(records_of(folder)) == 1
    (line,) = recovery.unfinished(results)
    assert line.startswith(f"{folder.name}: ") and "plan" in line


def test_a_file_is_stored_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "plan.json"
    files.write_atomically(path, "whole")

    def fsync(_: int):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError) as full:
        files.write_atomically(path, "more")
    assert full.value.errno == errno.ENOSPC
    assert path.read_text() == "whole" and [*tmp_path.iterdir()] == [path]


def test_a_session_that_runs_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    lock = running.claim(tmp_path)
    place = json.loads((tmp_path / "running").read_text())
    assert (place["host"], place["job"]) == (platform.node(), "7")
    running.release(tmp_path, lock)


def test_a_session_that_came_to_its_end_was_not_killed(results: Path):
    folder = killed(results)
    (folder / "end.json").write_text("{}")
    cleaned_up(results)
    assert (folder / "end.json").read_text() == "{}" and not (folder / "running").exists()


def test_what_a_process_descends_from_is_not_ended(results: Path):
    """A shell that a killed session left, from which the next one is started."""
    folder = killed(results)
    done = subprocess.run(
        ["sh", "-c", 'sleep 60 & "$@"; echo "there: $?"', "sh", sys.executable, "-c", CLEAN_UP,
         str(results)],
        cwd=folder, env={**os.environ, recovery.MARK: os.path.realpath(folder)}, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert done.stdout.endswith("there: 0\n") and "(sleep)" in done.stdout, done


def test_a_process_that_may_not_be_ended_is_refused(results: Path, monkeypatch: pytest.MonkeyPatch):
    """One that has become another user's, say."""
    folder = killed(results)

    def send(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", send)
    with marked(folder, folder) as child:
        name = f"{child.pid} (sleep)"
        fault_of(lambda: cleaned_up(results), "session.leftover-processes", name)


def test_a_process_that_ends_some_time_after_sigkill_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    clock, sent = itertools.count(), []
    ticking = SimpleNamespace(monotonic=clock.__next__, sleep=lambda _: None)
    monkeypatch.setattr(recovery, "time", ticking)
    monkeypatch.setattr(
        recovery, "_processes", lambda *_, **__: {"s": {7: "x"}} if next(clock) < 20 else {}
    )
    monkeypatch.setattr(recovery, "_signal", lambda *given: sent.append(given[-1]))
    recovery._end(Path(), "s")
    assert sent == [signal.SIGTERM, signal.SIGKILL]


def test_processes_that_are_to_be_kept_are_refused(results: Path):
    """They would disturb the measurements."""
    folder = killed(results)
    with marked(folder, folder) as child:
        name = f"{child.pid} (sleep)"
        fault_of(lambda: cleaned_up(results, "keep"), "session.leftover-jobs", name)


@pytest.mark.parametrize("ended", [False, True])
def test_a_daemon_that_left_its_sessions_folder_goes_on(results: Path, tmp_path: Path, ended: bool):
    folder = killed(results)
    stage = folder / "stage" / "case"
    stage.mkdir(parents=True)
    if ended:
        (folder / "running").unlink()
        (folder / "end.json").write_text("{}")
    with marked(folder, stage) as job, marked(folder, tmp_path) as daemon:
        # What works there does so also once its folder is gone.
        shutil.rmtree(stage)
        messages = cleaned_up(results)
        assert job.poll() is not None and daemon.poll() is None
    for child, message in zip((job, daemon), messages[:2], strict=True):
        assert f"{child.pid} (sleep)" in message


@pytest.mark.parametrize("pidfd", [True, False])
def test_an_id_that_has_become_another_process_is_not_signalled(
    results: Path, monkeypatch: pytest.MonkeyPatch, pidfd: bool
):
    """Between the look at all processes and the signal."""
    folder = killed(results)

    def unknown(_: int):
        raise OSError(errno.ENOSYS, "Function not implemented")

    if not pidfd:
        monkeypatch.setattr(os, "pidfd_open", unknown)
    with marked(folder, folder, **{recovery.MARK: ""}) as other, monkeypatch.context() as patch:
        stale = [{folder.name: {other.pid: "sleep"}}] * 2
        patch.setattr(
            recovery, "_processes", lambda *_, inside: stale.pop() if inside and stale else {}
        )
        cleaned_up(results)
        assert other.poll() is None
    with marked(folder, folder) as child:
        cleaned_up(results)
        assert child.poll() is not None


class Hangs(BaseException):
    """A clean-up waits for what never comes; no `except` of the package takes it."""


def cleaned_up_in_time(results: Path) -> list[str]:
    """The messages of a clean-up, and the sessions that are unfinished after it."""

    def ring(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    try:
        return [*cleaned_up(results), *recovery.unfinished(results)]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.holds("processes-own")
def test_a_process_of_another_user_is_left_alone(results: Path, monkeypatch: pytest.MonkeyPatch):
    """Also by root, who may end it."""
    folder = killed(results)
    with marked(folder, folder) as child:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        messages = cleaned_up(results)
        assert child.poll() is None and not any(str(child.pid) in line for line in messages)


@pytest.mark.holds("processes-own")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
@pytest.mark.parametrize("ids", [(NOBODY, NOBODY, NOBODY), (NOBODY, 0, 0)])
def test_root_leaves_processes_that_another_user_started_alone(
    results: Path, monkeypatch: pytest.MonkeyPatch, ids: tuple[int, int, int]
):
    """The second has root's rights and keeps that user's environment, as a set-uid program."""
    folder = killed(results)
    monkeypatch.setenv(recovery.MARK, os.path.realpath(folder))
    code = f"import os, sys; os.setresuid{ids}; print('there', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=folder,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert child.stdout.readline() == b"there\n"
        cleaned_up(results)
        assert child.poll() is None
    finally:
        child.communicate()


@pytest.mark.holds("processes-session")
@pytest.mark.parametrize("where", ["sessions/../../evil", "sessions/evil", "sessions/{link}"])
def test_a_process_names_no_folder_but_a_sessions(results: Path, tmp_path: Path, where: str):
    """A lock that is a FIFO, whose other end nobody opens, lies where its variable leads."""
    folder = killed(results)
    evil = tmp_path / "evil"
    evil.mkdir()
    os.mkfifo(evil / "running")
    link = "20261101T000000Z-00000e"
    for name in ("evil", link):
        (results / "sessions" / name).symlink_to(evil)
    place = f"{os.path.realpath(results)}/{where.format(link=link)}"
    with marked(folder, evil, **{recovery.MARK: place}) as child:
        messages = cleaned_up_in_time(results)
        assert child.poll() is None
    assert len(records_of(folder)) == 2
    assert not any(str(child.pid) in line for line in messages)


@pytest.mark.holds("results-files")
@pytest.mark.parametrize("kind", ["fifo", "link"])
@pytest.mark.parametrize("name", ["running", "plan.json", "records.jsonl"])
def test_a_file_of_a_session_that_is_none_is_reported(results: Path, tmp_path: Path, kind, name):
    """Whoever may write there could have it hang, or cut another file short."""
    folder = killed(results)
    (tmp_path / "victim").write_text("mine, and it ends without a newline")
    (folder / name).unlink()
    if kind == "fifo":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to(tmp_path / "victim")
    assert any(folder.name in line for line in cleaned_up_in_time(results))
    assert not (folder / "end.json").exists()
    assert (tmp_path / "victim").read_text() == "mine, and it ends without a newline"


def begun(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that begins in a results folder, up to its plan."""
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(results))
    # What it locks stays locked until this process ends.
    monkeypatch.setenv("PLUMBLINE_LOCKS", str(results))
    monkeypatch.setattr(preflight, "check_host", lambda named: None)
    local = SimpleNamespace(scheduler=SimpleNamespace(is_local=True))
    case = (SimpleNamespace(local=False), local, None)
    made = sessions.Session("20261122T000000Z-00000f", dry_run=False, extras={})
    made.folder.mkdir(parents=True)
    made.begin([case])


def test_a_file_system_without_locks_is_refused(results: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    results.mkdir(exist_ok=True)
    monkeypatch.setattr(files.fcntl, "flock", flock)
    reason = os.strerror(errno.ENOLCK)
    fault_of(lambda: begun(results, monkeypatch), "files.no-locks", reason)


@pytest.mark.parametrize("on_node", [False, True])
def test_a_node_of_a_sweep_deals_with_nothing_that_others_left(
    results: Path, monkeypatch: pytest.MonkeyPatch, on_node: bool
):
    """It would end the script of its own job, where the sweep was killed."""

    def claim(folder: Path):
        raise InterruptedError

    cleaned = []
    monkeypatch.setattr(recovery, "clean_up", lambda *_: cleaned.append(1))
    monkeypatch.setattr(running, "claim", claim)
    monkeypatch.delenv(configuration.ON_NODE, raising=False)
    if on_node:
        monkeypatch.setenv(configuration.ON_NODE, "alpha:cpu")
    results.mkdir(exist_ok=True)
    # The claim that follows is refused.
    fault_of(lambda: begun(results, monkeypatch), "files.not-writable")
    assert bool(cleaned) != on_node


def test_a_choice_that_is_none(results: Path):
    fault_of(lambda: cleaned_up(results, "drop"), "input.wrong-option", "'drop'")


def test_jobs_of_other_schedulers_are_reported(results: Path):
    folder = killed(results, schedulers=["flux-batch"])
    messages = cleaned_up(results)
    notes = json.loads((folder / "end.json").read_text())["notes"]
    assert [sum("flux-batch" in line for line in lines) for lines in (messages, notes)] == [1, 1]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """A real controller, whose nodes are off: a job stays in its queue."""
    if MISSING:
        pytest.skip(f"not installed: {', '.join(MISSING)} (apt-get install slurmctld munge)")
    with controller("eagle", of_system("eagle", 1)) as found:
        yield found


@pytest.mark.parametrize("orphans, extras, kept", [
    ("cancel", {}, False), ("keep", {}, True), ("cancel", {"sweep": "one"}, True),
])  # fmt: skip
def test_jobs_of_slurm_are_found_and_cancelled(
    results: Path, slurm: Cluster, monkeypatch: pytest.MonkeyPatch, orphans: str, extras: dict,
    kept: bool,
):  # fmt: skip
    """Those of a sweep are sessions of their own, and are not."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    # By which squeue(1) would not list them.
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    folder = killed(results, schedulers=["slurm"], extras=extras)
    elsewhere = results / "elsewhere"
    jobs = []
    for place in (folder / "stage" / "case", elsewhere):
        place.mkdir(parents=True)
        script = place / "rfm_job.sh"
        script.write_text("#!/bin/bash\n#SBATCH --nodes=1 --time=10 --hold\nsleep 600\n")
        done = subprocess.run(
            ["sbatch", script.name], cwd=place, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        jobs.append(done.stdout.split()[-1])
    try:
        messages = cleaned_up(results, orphans)
        queue = subprocess.run(
            ["squeue", "-h", "-t", "PENDING", "-o", "%i"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert (jobs[0] in queue) == kept and jobs[1] in queue
    finally:
        subprocess.run(["scancel", *jobs], capture_output=True)
    (message,) = [line for line in messages if f": {jobs[0]}:" in line]
    assert ("kept" in message) == kept
    assert [f["result"] for f in records_of(folder)] == ["pass", "unfinished"]


def test_a_queue_that_cannot_be_asked_is_reported(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = killed(results, schedulers=["slurm"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert any("squeue" in line for line in cleaned_up(results))
    assert len(records_of(folder)) == 2


def test_processes_of_another_job_are_left_to_slurm(tmp_path: Path):
    session = tmp_path / "sessions" / "20260101T000000Z-000000"
    session.mkdir(parents=True)
    of_none = marked(session, session, SLURM_JOB_ID="")
    with of_none as alone, marked(session, session, SLURM_JOB_ID="77"):
        (found,) = recovery._processes(tmp_path, inside=True).values()
        assert [*found] == [alone.pid]
