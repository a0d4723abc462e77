"""``plumbline nightly``: measures a system unattended, and writes a page about it.

The sessions are separate processes. The parts after them read the records, in this process.
"""

from __future__ import annotations

import contextlib
import datetime
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
from dataclasses import dataclass, replace
from pathlib import Path

from plumbline.core import files, paths, process
from plumbline.core.errors import Fault
from plumbline.history import retention
from plumbline.operate.nightly import page, parts
from plumbline.session import plan, preflight, recovery
from plumbline.site import configuration, host

#: Seconds after the end of the budget until a session is interrupted, and until it is killed.
_GRACE = 300, 60


@dataclass(frozen=True)
class NightlyOptions:
    """The options of one ``plumbline nightly``.

    :ivar arguments: ReFrame's own, for each session.
    :ivar budget: seconds for all sessions together; 0 for no limit.
    :ivar maintenance: the maintenance's name; empty for a nightly.
    :ivar sessions: how many sessions are run, one after the other.
    :ivar nights: how many sessions before the maintenance are compared.
    :ivar allow_inconclusive: per cent of the figures that may be inconclusive in a go.
    :ivar report: folder of the report.
    :ivar out: folder of the page; by default that of the last session.
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
    allow_inconclusive: float
    screen: bool | None
    report: Path | None
    out: Path | None
    keep: retention.RetentionRules

    @property
    def name(self) -> str:
        """Name of the page's file."""
        return "post-maintenance" if self.maintenance else "nightly"


def run(options: NightlyOptions, say: Callable[[str], None]) -> int:
    """Run all parts, write the page, and return the exit code.

    :raises Fault: if another nightly of the system runs, the configuration is faulty, or the
        system, the mode or an option is unknown.
    """
    try:
        return _run(options, say)
    except Exception as err:
        # A page of an earlier night would pass for tonight's. A nightly that runs writes its own.
        if options.out and getattr(err, "code", "") != "session.already-running":
            system = "unknown"
            with contextlib.suppress(Fault):
                system = host.current_system(options.system)
            start = parts.Part("start", 2, parts.reason_of(err))
            page.write(options, system, [], [start], say)
        raise


def _run(options: NightlyOptions, say: Callable[[str], None]) -> int:
    preflight.refuse_dry_run(options.arguments)
    arguments = configuration.take_config_files(options.arguments)
    options = replace(options, arguments=tuple(arguments))
    if not configuration.config_files():
        host.current_system(options.system)
    # Checked once, before any session.
    configuration.check_mode(options.mode)
    query = "--show-config=systems/0/name"
    settings = plan.reframe([*options.arguments, query], options.system)
    system = json.loads(settings.strip().splitlines()[-1])
    with _locked(paths.results(), system) as lock:
        done, sessions = _run_sessions(options, lock)
        if sessions and not options.maintenance:
            done.append(parts.trend(system, sessions[-1]))
        if sessions and options.maintenance:
            done.append(parts.comparison(options, system))
            if options.screen is not False:
                done.append(parts.screening(system, sessions, required=bool(options.screen)))
        if options.report:
            done.append(parts.report_site(options.report))
        if options.keep:
            done.append(parts.prune(options.keep, say))
        code = page.write(options, system, sessions, done, say)
        if any(part.title == "trend" and part.done for part in done):
            # Where it cannot be written, the next night reports once more what it finds.
            with contextlib.suppress(OSError):
                (paths.results() / "sessions" / sessions[-1] / parts.REPORTED).touch()
        return code


# -- one at a time -------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(folder: Path, system: str) -> Iterator[int]:
    """Hold the lock of a system's nightly in a results folder, and yield its file descriptor.

    Sessions inherit the flock(2): after a nightly is killed, no other starts before its session
    has ended.

    :raises Fault: if another nightly holds it, or it cannot be locked.
    """
    path = folder / f"nightly-{system}.lock"
    with preflight.writable(path):
        folder.mkdir(parents=True, exist_ok=True)
        file = files.open_regular(path, os.O_RDWR | os.O_CREAT)
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    remedy = (
        ", so two nightlies could run at once: set PLUMBLINE_RESULTS to a folder on a file system "
        "with locks"
    )
    try:
        owner = f"process {os.getpid()} on {platform.node()} since {now}"
        lock = files.OwnedLock(path, file, owner, remedy)
    except files.Held as held:
        raise Fault(
            f"{path}: another nightly of {system} is running{_described(str(held))}: wait until "
            f"it ends",
            code="session.already-running",
        ) from None
    try:
        yield file
    finally:
        lock.release()


def _described(owner: str) -> str:
    """Return the owner of a lock for a message, and whether only its session is left."""
    if not owner:
        return ""
    process = re.fullmatch(r"process (\d+) on (\S+) since \S+", owner)
    gone = process and process[2] == platform.node() and not Path("/proc", process[1]).exists()
    killed = "; it was killed, but its session is still running" if gone else ""
    return f" ({owner}{killed})"


# -- sessions ------------------------------------------------------------------------------------


def _run_sessions(options: NightlyOptions, lock: int) -> tuple[list[parts.Part], list[str]]:
    """Run the sessions. Return their parts, and the names of those that have a plan."""
    end = time.monotonic() + options.budget
    done, names = [], []
    with _StopHandler() as stop:
        for number in range(1, options.sessions + 1):
            title = "session" + (f" {number} of {options.sessions}" if options.sessions > 1 else "")
            left = end - time.monotonic() if options.budget else 0.0
            if stop.stopped or (options.budget and left <= 0):
                reason = "stopped" if stop.stopped else "budget spent"
                done.append(parts.Part(title, 2, f"not run: {reason}"))
                continue
            name = configuration.new_name()
            code, errors = _run_session(options, name, left, lock, stop)
            done.append(parts.session(title, name, code, errors))
            if (paths.results() / "sessions" / name / "plan.json").exists():
                names.append(name)
    return done, names


class _StopHandler:
    """On SIGINT or SIGTERM, ends the running session and starts no other; the page is written."""

    def __init__(self) -> None:
        self.stopped = False
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> _StopHandler:
        self._before = {s: signal.signal(s, self._stop) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _: object) -> None:
        self.stopped = True
        # A terminal sends its interrupt to the session, too.
        if number == signal.SIGTERM and self.process:
            self.process.send_signal(signal.SIGINT)


def _run_session(
    options: NightlyOptions, name: str, left: float, lock: int, stop: _StopHandler
) -> tuple[int, list[str]]:
    """Run one session. Return its exit code and the lines of its standard error."""
    extras = f"run={'maintenance' if options.maintenance else 'nightly'}"
    extras += f",maintenance={options.maintenance}" if options.maintenance else ""
    command = [
        process.command("plumbline"),
        "run",
        *(["--strict"] if options.strict else []),
        *([f"--budget={max(1, round(left))}s"] if options.budget else []),
        f"--orphans={options.orphans}",
        *([f"--system={options.system}"] if options.system else []),
        f"--mode={options.mode}",
        f"--session-extras={extras}",
        *options.arguments,
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
        if stop.stopped:
            # While the session was started.
            stop.process.send_signal(signal.SIGINT)
        code, messages = _wait(stop.process, left)
        stop.process = None
        errors.seek(0)
        text = errors.read()
    sys.stderr.write(text)
    sys.stderr.flush()
    if messages:
        # What the session left behind is handled now, so that the page reports it.
        try:
            recovery.clean_up(paths.results(), options.orphans, messages.append)
        except Fault as err:
            messages.append(err.coded())
    stopped = ["the nightly was stopped by a signal"] if stop.stopped else []
    return code, [*messages, *text.splitlines(), *stopped]


def _wait(process: subprocess.Popen, left: float) -> tuple[int, list[str]]:
    """Wait for a session's end, and end it if it exceeds its budget.

    Return its exit code, and what was done to it.
    """
    messages = []
    steps = ((left + _GRACE[0], signal.SIGINT), (_GRACE[1], signal.SIGKILL)) if left else ()
    for seconds, number in steps:
        try:
            process.wait(seconds)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            messages.append(f"it did not end when its budget was spent: sent {number.name}")
    code = process.wait()
    if code < 0:
        messages.append(f"it was ended by {signal.Signals(-code).name}")
    return code, messages
