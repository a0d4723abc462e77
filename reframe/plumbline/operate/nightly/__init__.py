"""``plumbline nightly``: the night, or the look after a maintenance, unattended.

The measuring sessions are processes of their own. All that follows reads their records, in this
process; a part that breaks reports that and takes none of the others with it.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.text import printable
from plumbline.history import retention
from plumbline.operate.nightly import page, parts
from plumbline.session import plan, preflight, recovery
from plumbline.site import configuration, host

#: Seconds beyond its budget after which a session that did not end is interrupted, and then killed.
_PATIENCE = 300, 60


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    :ivar arguments: ReFrame's own, for each session.
    :ivar budget: seconds for all sessions together; no limit if 0.
    :ivar maintenance: name of the maintenance that was; empty for a nightly.
    :ivar sessions: how many are run, one after the other.
    :ivar nights: sessions before the maintenance that it is held against.
    :ivar untold: per cent of the figures that may have too little data in a go.
    :ivar report: folder of the report that is written anew.
    :ivar out: folder of the page; the last session's if ``None``.
    """

    system: str | None
    mode: str
    arguments: tuple[str, ...]
    strict: bool
    budget: float
    orphans: str
    maintenance: str
    sessions: int
    nights: int
    untold: float
    screen: bool
    report: Path | None
    out: Path | None
    keep: retention.RetentionRules

    @property
    def name(self) -> str:
        """What the page is called."""
        return "post-maintenance" if self.maintenance else "nightly"


def run(wanted: Wanted, say: Callable[[str], None]) -> int:
    """Runs it all, writes the page, and gives the exit code.

    :raises Fault: if another one of the same system runs, the configuration is faulty, it is not
        certain which system this host is, or there is no such system, mode or option.
    """
    host.here(wanted.system)
    # A mode or an option that there is none of is told now, and not by each session.
    configuration.check_mode(wanted.mode)
    asked = "--show-config=systems/0/name"
    settings = plan.reframe([asked], wanted.system)
    if wanted.arguments:
        plan.reframe([*wanted.arguments, asked], wanted.system)
    system = json.loads(settings.strip().splitlines()[-1])
    with _alone(paths.results(), system) as lock:
        found, names = _measured(wanted, lock)
        if names and not wanted.maintenance:
            found.append(parts.trend(system, names[-1]))
        if names and wanted.maintenance:
            found.append(parts.compared(wanted, system))
            if wanted.screen:
                found.append(parts.screened(system, names))
        if wanted.report:
            found.append(parts.reported(wanted.report))
        if wanted.keep:
            found.append(parts.pruned(wanted.keep, say))
        return page.write(wanted, system, names, found, say)


# -- one at a time -------------------------------------------------------------------------------


@contextlib.contextmanager
def _alone(folder: Path, system: str) -> Iterator[int]:
    """The lock of a system's nightly in a results folder, as a file descriptor.

    By flock(2), which the session inherits: where the nightly is killed, its session runs on to its
    end or its budget's, and none other starts before.

    :raises Fault: if another one holds it; it is named.
    """
    path = folder / f"nightly-{system}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = files.opened(path, os.O_RDWR | os.O_CREAT)
    except OSError as err:
        raise Fault(preflight.unwritable(path, err), code="files.not-writable") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        told = os.pread(file, 4096, 0).decode(errors="replace").strip() or "that is starting"
        os.close(file)
        raise Fault(
            f"{path}: a nightly of {system} runs already, {printable(told)}{_without(told)}: "
            f"this one ends",
            code="session.already-running",
        ) from None
    except OSError as err:
        os.close(file)
        raise Fault(
            f"{path}: cannot be locked ({err.strerror}), so that two could run at once: set "
            f"PLUMBLINE_RESULTS to a folder on a file system with locks",
            code="files.no-locks",
        ) from None
    try:
        since = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        # On a disk that is full it stays unnamed; the lock itself needs no room.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {platform.node()} since {since}".encode(), 0)
        yield file
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
        os.close(file)


def _without(told: str) -> str:
    """Whether the nightly that a lock names is gone, and only its session runs."""
    known = re.fullmatch(r"process (\d+) on (\S+) since \S+", told)
    if known and known[2] == platform.node() and not Path("/proc", known[1]).exists():
        return " (it was killed, and its session still runs)"
    return ""


# -- sessions ------------------------------------------------------------------------------------


def _measured(wanted: Wanted, lock: int) -> tuple[list[parts.Part], list[str]]:
    """Runs the sessions; what each said, and the names of those that have a plan."""
    end = time.monotonic() + wanted.budget
    found, names = [], []
    with _Stop() as stop:
        for number in range(1, wanted.sessions + 1):
            title = "session" + (f" {number} of {wanted.sessions}" if wanted.sessions > 1 else "")
            left = end - time.monotonic() if wanted.budget else 0.0
            if stop.asked or (wanted.budget and left <= 0):
                why = "stopped" if stop.asked else "budget spent"
                found.append(parts.Part(title, 2, f"not run: {why}"))
                continue
            name = configuration.new_name()
            code, errors = _session(wanted, name, left, lock, stop)
            found.append(parts.exported(title, name, code, errors))
            if (paths.results() / "sessions" / name / "plan.json").exists():
                names.append(name)
    return found, names


class _Stop:
    """Ends the session that runs, and starts no other, when told to stop; the page is written."""

    def __init__(self):
        self.asked = False
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> _Stop:
        self._before = {s: signal.signal(s, self._stop) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    def _stop(self, which: int, _) -> None:
        self.asked = True
        # A terminal's interrupt reaches the session without us.
        if which == signal.SIGTERM and self.process:
            self.process.send_signal(signal.SIGINT)


def _session(
    wanted: Wanted, name: str, left: float, lock: int, stop: _Stop
) -> tuple[int, list[str]]:
    """Runs one session under its name; its exit code, and what it said of errors."""
    extras = f"run={'maintenance' if wanted.maintenance else 'nightly'}"
    extras += f",maintenance={wanted.maintenance}" if wanted.maintenance else ""
    command = [
        parts.plumbline(),
        "run",
        *(["--strict"] if wanted.strict else []),
        *([f"--budget={max(1, round(left))}s"] if wanted.budget else []),
        f"--orphans={wanted.orphans}",
        *([f"--system={wanted.system}"] if wanted.system else []),
        f"--mode={wanted.mode}",
        f"--session-extras={extras}",
        *wanted.arguments,
    ]
    sys.stdout.flush()
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        stop.process = subprocess.Popen(
            command,
            env={**os.environ, configuration.NAME: name},
            stdin=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[lock],
        )
        code, told = _waited(stop.process, left)
        stop.process = None
        errors.seek(0)
        said = errors.read()
    sys.stderr.write(said)
    sys.stderr.flush()
    if told:
        # What it left is dealt with now: the page is to tell of it.
        recovery.settle(paths.results(), wanted.orphans, lambda line: told.append(line))
    return code, [*told, *said.splitlines()]


def _waited(process: subprocess.Popen, left: float) -> tuple[int, list[str]]:
    """Waits for a session's end; one that does not keep to its budget is ended."""
    told = []
    patience = [left + _PATIENCE[0], _PATIENCE[1], None] if left else [None]
    for seconds, way in zip(patience, (signal.SIGINT, signal.SIGKILL, None), strict=False):
        try:
            code = process.wait(seconds)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(way)
            told.append(f"it did not end when its budget was spent: {way.name}")
    if code < 0:
        told.append(f"it was ended by {signal.Signals(-code).name}")
    return code, told
