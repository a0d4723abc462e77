"""What a session that was killed left behind: processes, jobs, and cases that never finished.

A session that runs holds a lock on the file ``running`` of its folder, and takes the file away at
its end. A lock goes with its process, whatever ended it: so a file that nobody holds is that of a
session that was killed.

A file system may keep the locks of each host apart. So the file names the host, too, and a session
of another one is left to the next session there.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from plumbline.check import record, result
from plumbline.core import files
from plumbline.core.errors import Fault
from plumbline.history import running
from plumbline.session import summary
from plumbline.site import configuration

#: Variable of all that a session starts on its own machine: the session's folder.
MARK = "PLUMBLINE_SESSION"
#: Variable that says what becomes of what is found: one of :data:`CHOICES`.
ORPHANS = "PLUMBLINE_ORPHANS"
CHOICES = ("cancel", "keep")
#: Seconds from SIGTERM to SIGKILL, as of ReFrame's own local scheduler.
_GRACE = 2
#: Seconds that a scheduler may take to answer, and a lock to be had.
_PATIENCE = 60
#: Schedulers whose jobs are Slurm's.
_SLURM = ("slurm", "squeue")


def cut_off(results: Path) -> list[str]:
    """Sessions that were cut off, a line each: planned cases have no record."""
    found = []
    for folder in record.sessions(results):
        if running.held(folder):
            continue
        try:
            planned = record.plan(folder)["cases"]
        except (OSError, record.Damaged) as err:
            found.append(f"{folder.name}: {_unread(err)}")
            continue
        path = folder / "records.jsonl"
        try:
            there = record.read(path, found.append) if path.exists() else ()
            ended = {fields.case for fields in there}
        except Fault as err:
            found.append(f"{folder.name}: which cases ended is not known: {err}")
            continue
        missing = [case for case in planned if case not in ended]
        if missing:
            host = running.elsewhere(folder)
            where = f"; it may still run on {host}" if host else ""
            found.append(f"{folder.name}: {len(missing)} of {len(planned)} cases have no "
                         f"result{where}")  # fmt: skip
    return found


def _unread(err: Exception) -> str:
    return f"its plan cannot be read ({err}): which cases it had is not known"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether a killed session is ours to settle; nobody else does so meanwhile."""
    held = False
    with contextlib.suppress(OSError):
        lock = running._lock(folder)
        held = bool(running._had(lock))
    try:
        # Whoever held it before may have settled it.
        yield held and (folder / running.FILE).exists()
    finally:
        if held:
            lock.release()


def settle(results: Path, orphans: str, say: Callable[[str], None]) -> None:
    """Deals with what killed sessions left: ends their processes, cancels their jobs, and records
    the cases that never finished. Those of another host are told, and left alone.

    :arg results: the folder of sessions and records.
    :arg orphans: ``cancel``; or ``keep``, which tells of them and leaves them running.
    :arg say: is told what is found, before anything is done about it.
    :raises Fault: if ``orphans`` is neither, processes are to be kept, or do not end.
    """
    if orphans not in CHOICES:
        raise Fault(
            f"{ORPHANS}: {orphans!r} is not {' or '.join(CHOICES)}", code="input.wrong-option"
        )
    for name, left in _processes(results, inside=True).items():
        told = f"session {name} no longer runs, and processes that it started do: {_listed(left)}"
        if orphans == "keep":
            raise Fault(
                f"{told}; they would be measured too: end them, or say --orphans=cancel",
                code="session.leftover-jobs",
            )
        say(f"{told}: ending them")
        _end(results, name)
    for name, left in _processes(results, inside=False).items():
        say(f"session {name} no longer runs, and processes that it started do, outside its folder: "
            f"{_listed(left)}: left alone, as daemons; they are measured too")  # fmt: skip
    apart = []
    for path in sorted(results.glob(f"sessions/*/{running.FILE}")):
        folder = path.parent
        if folder.is_symlink() or path.is_symlink() or (path.exists() and not path.is_file()):
            say(f"{path}: is a link or no regular file: whether session {folder.name} was killed "
                f"is not known: look at what it is and remove it")  # fmt: skip
            continue
        if running.held(folder):
            continue
        if host := running.elsewhere(folder):
            apart.append(f"{folder.name} on {host}")
            continue
        with _alone(folder) as ours:
            if ours:
                _settle(folder, orphans, say)
    if apart:
        say(f"not known whether they were killed: session {_some(apart)}: the next session on the "
            f"same host settles it; if that host is gone, remove the session's file "
            f"{running.FILE!r}")  # fmt: skip


# -- processes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Process:
    """A process that a session started.

    :ivar inside: whether it works in the session's folder, as jobs do. One that somebody's program
        started to outlive it has left it: daemon(3) goes to the root folder.
    """

    session: str
    name: str
    inside: bool


def _process(results: Path, number: int) -> _Process | None:
    """A process by its id; ``None`` if it is another user's, or no session of these results
    started it. Those of another Slurm job than this one's are Slurm's to end: where jobs run on
    this host too, the job may be one that is kept."""
    sessions = os.path.realpath(results / "sessions") + "/"
    proc = Path("/proc", str(number))
    try:
        if not _own(proc):
            return None
        environ = b"\0" + (proc / "environ").read_bytes()
        name = (proc / "comm").read_text(errors="replace").strip()
        place = (proc / "cwd").readlink()
    except OSError:
        return None
    folder, job = (os.fsdecode(_value(environ, variable)) for variable in (MARK, "SLURM_JOB_ID"))
    session = folder.removeprefix(sessions)
    # The variable may say anything: a path that leads out of the results, say.
    if session == folder or not configuration.named(session) or Path(folder).is_symlink():
        return None
    if job not in ("", os.environ.get("SLURM_JOB_ID", "")):
        return None
    return _Process(session, name, f"{place}/".startswith(f"{folder}/"))


def _own(proc: Path) -> bool:
    """Whether a process is this user's alone: its real, effective and saved user, as one that
    another user started and that has root's rights has root's files in /proc, too.

    :raises OSError: if it has ended.
    """
    told = re.search(r"^Uid:\s+(.*)$", (proc / "status").read_text(errors="replace"), re.M)
    return told is not None and {*told[1].split()} == {str(os.geteuid())}


def _value(environ: bytes, variable: str) -> bytes:
    """What a variable is in an environment; empty if it is not there."""
    return environ.partition(f"\0{variable}=".encode())[2].partition(b"\0")[0]


def _processes(results: Path, inside: bool) -> dict[str, dict[int, str]]:
    """Processes of sessions that no longer run: session -> id -> name. Those of the same user
    alone, for root too."""
    found: dict[str, dict[int, str]] = {}
    # A shell that a session started, or the script of its job, may have started this one.
    for number in {int(proc.name) for proc in Path("/proc").glob("[0-9]*")} - _line():
        process = _process(results, number)
        if process and process.inside == inside:
            found.setdefault(process.session, {})[number] = process.name
    return {
        name: left
        for name, left in found.items()
        if not running.running(results / "sessions" / name)
    }


def _line() -> set[int]:
    """This process, and all that it descends from."""
    found, process = set(), os.getpid()
    while process and process not in found:
        found.add(process)
        try:
            # Of proc(5): id, name in parentheses, which may hold any character, state, parent.
            told = Path(f"/proc/{process}/stat").read_text(errors="replace")
        except OSError:
            break
        process = int(told.rpartition(")")[2].split()[1])
    return found


def _listed(left: dict[int, str]) -> str:
    return _some([f"{pid} ({name})" for pid, name in sorted(left.items())])


def _some(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _end(results: Path, name: str) -> None:
    """Ends the processes of a session, gently first."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE
        left = _processes(results, inside=True).get(name, {})
        for number in left:
            try:
                _signal(results, name, number, way)
            except ProcessLookupError:
                continue
            except PermissionError:
                raise Fault(
                    f"session {name}: process {_listed({number: left[number]})} that it left may "
                    f"not be ended by this user: end it as root, or as the user it runs as",
                    code="session.leftover-processes",
                ) from None
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = _processes(results, inside=True).get(name, {})
        if not left:
            return
    raise Fault(
        f"session {name}: its processes do not end: {_listed(left)}",
        code="session.leftover-processes",
    )


def _signal(results: Path, session: str, number: int, way: int) -> None:
    """Signals a process of a session, unless its id is another's by now.

    :raises ProcessLookupError, PermissionError: as kill(2).
    """
    try:
        held = os.pidfd_open(number)
    except OSError as err:
        if err.errno != errno.ENOSYS:
            raise
        held = -1  # Linux before 5.3
    try:
        now = _process(results, number)
        if now and now.session == session:
            if held < 0:
                os.kill(number, way)
            else:
                signal.pidfd_send_signal(held, way)
    finally:
        if held >= 0:
            os.close(held)


# -- jobs ----------------------------------------------------------------------------------------


def _jobs(folder: Path, plan: record.Plan) -> tuple[list[str], str]:
    """Ids of the jobs that a session left in Slurm, and what could not be told of its jobs.

    A job that was submitted from a session's folder works in there: no name or comment is needed.
    """
    schedulers = set(plan.get("schedulers", ())) - {"local"}
    told = [f"its jobs in {name} may still be there" for name in sorted(schedulers - {*_SLURM})]
    found: list[str] = []
    if schedulers & {*_SLURM}:
        command = ["squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%Z"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PATIENCE, check=True
            )
        except (OSError, subprocess.SubprocessError) as err:
            told.append(f"its jobs could not be looked for: {_said(err)}")
        else:
            inside = os.path.realpath(folder) + "/"
            jobs = [line.split("|", 1) for line in done.stdout.splitlines() if "|" in line]
            found = [
                job for job, place in jobs if (os.path.realpath(place) + "/").startswith(inside)
            ]
    return found, "; ".join(told)


def _said(err: Exception) -> str:
    """What a command said that failed, or why it could not be run."""
    text = (getattr(err, "stderr", None) or str(err)).strip()
    return text.splitlines()[-1] if text else type(err).__name__


def _cancel(jobs: list[str]) -> str:
    """Cancels jobs of Slurm; says what could not be done."""
    try:
        subprocess.run(
            ["scancel", *jobs], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError) as err:
        return f"scancel: {_said(err)}"
    return ""


# -- records -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Killed:
    """A session that was killed, as a record knows it."""

    name: str
    extras: dict[str, str] = field(default_factory=dict)


def _settle(folder: Path, orphans: str, say: Callable[[str], None]) -> None:
    """Jobs and records of one session that was killed."""
    if (folder / "end.json").exists():
        # It came to its end: to look at its lock may have made the file anew.
        (folder / running.FILE).unlink(missing_ok=True)
        return
    try:
        plan = record.plan(folder)
        planned, killed = plan["cases"], _Killed(folder.name, plan["extras"])
    except FileNotFoundError:
        # Killed before its plan: nothing was submitted.
        (folder / running.FILE).unlink(missing_ok=True)
        return
    except OSError as err:
        say(f"session {folder.name} was killed; {_unread(err)}")
        return
    except record.Damaged as err:
        # Told once: it will not be whole later, and its jobs are not looked for without it.
        say(f"session {folder.name} was killed; {_unread(err)}, nor whether it left jobs")
        (folder / running.FILE).unlink(missing_ok=True)
        return
    notes = ["it was killed: what it had not finished was recorded when the next one started"]
    jobs, untold = _jobs(folder, plan)
    if jobs:
        # A sweep's jobs are sessions of their own, which go on, and are told by the sweep.
        kept = orphans == "keep" or "sweep" in killed.extras
        told = f"its jobs are still in the queue: {' '.join(jobs)}"
        say(f"session {folder.name} was killed; {told}: {'kept' if kept else 'cancelling them'}")
        notes.append(f"{told}: {'kept' if kept else 'cancelled'}")
        untold = "; ".join(filter(None, [untold, "" if kept else _cancel(jobs)]))
    if untold:
        say(f"session {folder.name} was killed; {untold}")
        notes.append(untold)
    try:
        results = _account(folder, killed, planned, say)
        end = {"code": summary.exit_code(results), "notes": notes, "faults": []}
        files.store(folder / "end.json", json.dumps(end, indent=1))
        (folder / running.FILE).unlink(missing_ok=True)
    except (OSError, record.RecordError, Fault) as err:
        say(f"session {folder.name} was killed, and what it left cannot be recorded: {err}")


def _account(folder: Path, killed: _Killed, planned: dict, say: Callable) -> Counter:
    """Records each planned case that has no record, as never finished.

    :returns: the session's cases by result.
    """
    path = folder / "records.jsonl"
    if _mended(path):
        say(f"{path}: its last line was cut off with the session, and is taken back")
    # What a line that is no record was to tell is not known: its case is as if it had none.
    there = list(record.read(path, say)) if path.exists() else []
    ended = {fields.case for fields in there}
    missing = [case for case in planned if case not in ended]
    # Not of today: the session belongs to the night on which it ran.
    then = there[-1].time if there else f"{configuration.began(folder):%Y-%m-%dT%H:%M:%SZ}"
    for case in missing:
        missed = result.unfinished(killed, case, planned[case], result.KILLED, then)
        record.append(path, record.dumps(missed))
    say(f"session {folder.name} was killed: {len(ended)} of {len(planned)} test cases had ended; "
        f"{len(missing)} are recorded as never finished")  # fmt: skip
    first = {fields.case: fields.result for fields in reversed(there)}
    return Counter([*first.values(), *["unfinished"] * len(missing)])


def _mended(path: Path) -> bool:
    """Takes back a last line that was not written whole; it was no result yet."""
    if not path.exists():
        return False
    with open(path, "r+b", opener=files.opened) as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        file.truncate(whole)
    return whole < len(data)
