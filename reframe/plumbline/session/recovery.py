"""Clean-up after killed sessions: their processes, jobs, and cases that never finished.

A running session holds a lock on the file ``running`` of its folder, and removes the file at its
end. A lock ends with its process. So a file without a lock belongs to a session that was killed.

A file system may have separate locks for each host. So the file has the host's name, and a session
of another host is left to the next session there.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from plumbline.check import record, result, session_files
from plumbline.core import files
from plumbline.core.errors import Fault, WrongOption
from plumbline.core.process import untranslated
from plumbline.core.text import shorten
from plumbline.history import running
from plumbline.session import summary
from plumbline.site import configuration

#: Variable with the session's folder, in all processes that it starts on its own machine.
MARK = "PLUMBLINE_SESSION"
#: Variable with what to do about jobs and processes: one of :data:`CHOICES`.
ORPHANS = "PLUMBLINE_ORPHANS"
CHOICES = ("cancel", "keep")
#: Seconds from SIGTERM to SIGKILL, as of ReFrame's own local scheduler.
_GRACE = 2
#: Names in one message.
_MOST_SHOWN = 8
#: Seconds that a scheduler may take to answer, and a process to be gone after SIGKILL: on a busy
#: machine, or with much memory or a slow file system, longer than a moment.
_PATIENCE = 60
#: Schedulers whose jobs are Slurm's.
_SLURM = ("slurm", "squeue")


def unfinished(results: Path) -> list[str]:
    """Return the sessions with planned cases that have no record, a line each."""
    found = []
    for folder in session_files.sessions(results):
        if running.is_locked(folder):
            continue
        try:
            planned = session_files.read_plan(folder)["cases"]
        except (OSError, record.Damaged) as err:
            found.append(f"{folder.name}: {_unreadable(err)}")
            continue
        path = folder / "records.jsonl"
        try:
            records = record.read(path, found.append) if path.exists() else ()
            ended = {fields.case for fields in records}
        except Fault as err:
            found.append(f"{folder.name}: which cases ended is not known: {err}")
            continue
        missing = [case for case in planned if case not in ended]
        if missing:
            host = running.other_host(folder)
            where = f"; it may still run on {host}" if host else ""
            found.append(f"{folder.name}: {len(missing)} of {len(planned)} cases have no "
                         f"result{where}")  # fmt: skip
    return found


def _unreadable(err: Exception) -> str:
    return f"its plan cannot be read ({err}): which cases it had is not known"


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Claim a killed session, and yield whether that succeeded."""
    held = False
    with contextlib.suppress(OSError):
        lock = running._lock(folder)
        held = bool(running._acquired(lock))
    try:
        # The previous holder may have cleaned up already.
        yield held and (folder / running.FILE).exists()
    finally:
        if held:
            lock.release()


def clean_up(results: Path, orphans: str, say: Callable[[str], None]) -> None:
    """Clean up after killed sessions: end their processes, cancel their jobs, and record the cases
    that never finished. Sessions of another host are only reported.

    :arg results: the folder of sessions and records.
    :arg orphans: ``cancel``; or ``keep``, which reports them and does nothing.
    :arg say: gets each message, before anything is done.
    :raises Fault: if ``orphans`` is neither, processes are to be kept, or do not end.
    """
    if orphans not in CHOICES:
        raise WrongOption(f"{ORPHANS}: {orphans!r} is not {' or '.join(CHOICES)}")
    for name, left in _processes(results, inside=True).items():
        message = f"session {name} no longer runs, but its processes do: {_listed(left)}"
        if orphans == "keep":
            raise Fault(
                f"{message}; they would disturb the measurements: end them, or use "
                f"--orphans=cancel",
                code="session.leftover-jobs",
            )
        say(f"{message}: ending them")
        _end(results, name)
    for name, left in _processes(results, inside=False).items():
        say(
            f"session {name} no longer runs, but its processes outside its folder do: "
            f"{_listed(left)}: not ended, as they are daemons; they may disturb the measurements"
        )
    others = []
    for path in sorted(results.glob(f"sessions/*/{running.FILE}")):
        folder = path.parent
        if folder.is_symlink() or path.is_symlink() or (path.exists() and not path.is_file()):
            say(
                f"{path}: not a regular file, so it is unknown whether session {folder.name} was "
                f"killed: inspect it and remove it"
            )
            continue
        if running.is_locked(folder):
            continue
        if host := running.other_host(folder):
            others.append(f"{folder.name} on {host}")
            continue
        with _claimed(folder) as claimed:
            if claimed:
                _clean_up_session(folder, orphans, say)
    if others:
        say(
            f"it is unknown whether these sessions were killed: {shorten(others, _MOST_SHOWN)}: "
            f"the next session on the same host cleans up; if that host no longer exists, remove "
            f"the session's file {running.FILE!r}"
        )


# -- processes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Process:
    """A process that a session started.

    :ivar inside: whether its working directory is in the session's folder, as that of jobs. That of
        a daemon is the root folder: daemon(3).
    """

    session: str
    name: str
    inside: bool


def _process(results: Path, number: int) -> _Process | None:
    """Return a process by its id; ``None`` if it is another user's, or was not started by a session
    of these results.

    Processes of another Slurm job are skipped, as Slurm ends them, and the job may be kept.
    """
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
    # The variable may have any value, such as a path outside the results.
    if session == folder or not configuration.is_session_name(session) or Path(folder).is_symlink():
        return None
    if job not in ("", os.environ.get("SLURM_JOB_ID", "")):
        return None
    return _Process(session, name, f"{place}/".startswith(f"{folder}/"))


def _own(proc: Path) -> bool:
    """Return whether the real, effective and saved user of a process are this user. A process that
    another user started with root's rights has root's files in /proc too.

    :raises OSError: if it has ended.
    """
    ids = re.search(r"^Uid:\s+(.*)$", (proc / "status").read_text(errors="replace"), re.M)
    return ids is not None and {*ids[1].split()} == {str(os.geteuid())}


def _value(environ: bytes, variable: str) -> bytes:
    """Return the value of a variable in an environment; empty if it is not set."""
    return environ.partition(f"\0{variable}=".encode())[2].partition(b"\0")[0]


def _processes(results: Path, inside: bool) -> dict[str, dict[int, str]]:
    """Return the processes of sessions that no longer run: session -> id -> name. Only those of
    this user, for root too."""
    found: dict[str, dict[int, str]] = {}
    # A shell that a session started, or the script of its job, may have started this one.
    for number in {int(proc.name) for proc in Path("/proc").glob("[0-9]*")} - _ancestors():
        process = _process(results, number)
        if process and process.inside == inside:
            found.setdefault(process.session, {})[number] = process.name
    return {
        name: left
        for name, left in found.items()
        if not running.is_running(results / "sessions" / name)
    }


def _ancestors() -> set[int]:
    """Return this process and its ancestors."""
    found, process = set(), os.getpid()
    while process and process not in found:
        found.add(process)
        try:
            # proc(5): id, name in parentheses, which may have any character, state, parent.
            status = Path(f"/proc/{process}/stat").read_text(errors="replace")
        except OSError:
            break
        process = int(status.rpartition(")")[2].split()[1])
    return found


def _listed(left: dict[int, str]) -> str:
    return shorten([f"{pid} ({name})" for pid, name in sorted(left.items())], _MOST_SHOWN)


def _end(results: Path, name: str) -> None:
    """End the processes of a session, by SIGTERM and then SIGKILL."""
    for way, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _PATIENCE)):
        deadline = time.monotonic() + seconds
        left = _processes(results, inside=True).get(name, {})
        for number in left:
            try:
                _signal(results, name, number, way)
            except ProcessLookupError:
                continue
            except PermissionError:
                raise Fault(
                    f"session {name}: this user may not end its process "
                    f"{_listed({number: left[number]})}: end it as root, or as the user it runs as",
                    code="session.leftover-processes",
                ) from None
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = _processes(results, inside=True).get(name, {})
        if not left:
            return
    raise Fault(
        f"session {name}: these processes are still running after SIGTERM and SIGKILL: "
        f"{_listed(left)}",
        code="session.leftover-processes",
    )


def _signal(results: Path, session: str, number: int, way: int) -> None:
    """Signal a process of a session, unless its id now belongs to another process.

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


def _jobs(folder: Path, plan: session_files.Plan) -> tuple[list[str], str]:
    """Return the ids of a session's jobs in Slurm, and a message about jobs that are not known.

    They are found by their working directory, which is in the session's folder.
    """
    schedulers = set(plan.get("schedulers", ())) - {"local"}
    unknown = [f"its jobs in {name} may still exist" for name in sorted(schedulers - {*_SLURM})]
    found: list[str] = []
    if schedulers & {*_SLURM}:
        listed, error = _asked(
            "squeue", "--all", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%Z"
        )
        if error:
            unknown.append(f"its jobs could not be listed: {error}")
        inside = os.path.realpath(folder) + "/"
        jobs = [line.split("|", 1) for line in listed.splitlines() if "|" in line]
        found = [job for job, place in jobs if (os.path.realpath(place) + "/").startswith(inside)]
    return found, "; ".join(unknown)


def _asked(*command: str) -> tuple[str, str]:
    """Return what a command of Slurm prints, and if it fails, its last line or why."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=True,
            env=untranslated(),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as err:
        text = (getattr(err, "stderr", None) or str(err)).strip()
        return "", text.splitlines()[-1] if text else type(err).__name__
    return done.stdout, ""


# -- records -------------------------------------------------------------------------------------


def _clean_up_session(folder: Path, orphans: str, say: Callable[[str], None]) -> None:
    """Clean up jobs and records of one session that was killed."""
    if (folder / "end.json").exists():
        # It had ended; testing its lock may have made the file again.
        (folder / running.FILE).unlink(missing_ok=True)
        return
    try:
        plan = session_files.read_plan(folder)
    except FileNotFoundError:
        # Killed before its plan: nothing was submitted.
        (folder / running.FILE).unlink(missing_ok=True)
        return
    except OSError as err:
        say(f"session {folder.name} was killed; {_unreadable(err)}")
        return
    except record.Damaged as err:
        # Reported once: the plan will not be repaired, and without it the jobs are not known.
        say(f"session {folder.name} was killed; {_unreadable(err)}, nor whether it left jobs")
        (folder / running.FILE).unlink(missing_ok=True)
        return
    notes = ["it was killed: what it had not finished was recorded when the next one started"]
    jobs, unknown = _jobs(folder, plan)
    if jobs:
        # A sweep's jobs run separate sessions, which continue; the sweep reports them.
        kept = orphans == "keep" or "sweep" in plan["extras"]
        message = f"its jobs are still in the queue: {' '.join(jobs)}"
        say(f"session {folder.name} was killed; {message}: {'kept' if kept else 'cancelling them'}")
        notes.append(f"{message}: {'kept' if kept else 'cancelled'}")
        _, error = ("", "") if kept else _asked("scancel", *jobs)
        unknown = "; ".join(filter(None, [unknown, error and f"scancel: {error}"]))
    if unknown:
        say(f"session {folder.name} was killed; {unknown}")
        notes.append(unknown)
    try:
        results = _record_missing(folder, plan, say)
        code = summary.exit_code(results)
        session_files.write_end(folder, {"code": code, "notes": notes, "faults": []})
        (folder / running.FILE).unlink(missing_ok=True)
    except (OSError, session_files.RecordError, Fault) as err:
        say(f"session {folder.name} was killed, and its unfinished cases cannot be recorded: {err}")


def _record_missing(folder: Path, plan: session_files.Plan, say: Callable) -> Counter:
    """Record each planned case that has no record as never finished.

    :returns: the session's records by result, all attempts of a case as in one that ends itself.
    """
    path, planned = folder / "records.jsonl", plan["cases"]
    killed = SimpleNamespace(name=folder.name, extras=plan["extras"])
    if _truncate(path):
        say(f"{path}: its last line was cut off with the session, and is removed")
    # The case of a damaged line counts as one without a record.
    records = list(record.read(path, say)) if path.exists() else []
    ended = {fields.case for fields in records}
    missing = [case for case in planned if case not in ended]
    # Not the present time, as the session belongs to the night of its run.
    then = records[-1].time if records else f"{configuration.began(folder):%Y-%m-%dT%H:%M:%SZ}"
    for case in missing:
        missed = result.unfinished(killed, case, planned[case], result.KILLED, then)
        session_files.append(path, record.dumps(missed))
    say(f"session {folder.name} was killed: {len(ended)} of {len(planned)} test cases had ended; "
        f"{len(missing)} are recorded as never finished")  # fmt: skip
    return Counter([*(fields.result for fields in records), *["unfinished"] * len(missing)])


def _truncate(path: Path) -> bool:
    """Remove a last line that is not complete, and return whether there was one."""
    if not path.exists():
        return False
    with open(path, "r+b", opener=files.open_regular) as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        file.truncate(whole)
    return whole < len(data)
