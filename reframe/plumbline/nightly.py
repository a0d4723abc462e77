"""``plumbline nightly``: the night, or the look after a maintenance, unattended.

Each part is another command of Plumbline, so that one that breaks is told of and takes nothing with
it.
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
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import junitparser

from plumbline import configuration, leftovers, paths, refusals, survey
from plumbline.errors import Fault
from plumbline.export import UNASSERTED
from plumbline.history import History, SessionRow, retention
from plumbline.series import Selection
from plumbline.words import counted, escaped, printable

#: Seconds beyond its budget after which a session that did not end is interrupted, and then killed.
_PATIENCE = 300, 60
#: What the page's first line says of an exit code.
_NIGHT = {0: "as it should be", 1: "faults found", 2: "could not tell"}
_MAINTENANCE = {0: "go", 1: "no-go", 2: "not enough data"}
#: Lines of a command's errors that the page shows, and of a part.
_SHOWN, _MOST = 5, 40


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
    keep: retention.Rules

    @property
    def name(self) -> str:
        """What the page is called."""
        return "post-maintenance" if self.maintenance else "nightly"


@dataclass
class Part:
    """What one of the commands said.

    :ivar told: in a line.
    :ivar page: in Markdown.
    :ivar suites: as JUnit XML has it, where there is more than this line.
    :ivar command: that says all of it.
    :ivar skipped: whether there was nothing to judge, so that it did not pass either.
    :ivar unasserted: whether it is a session that passed, and was held against nothing.
    """

    title: str
    code: int
    told: str
    page: str = ""
    suites: list[junitparser.TestSuite] = field(default_factory=list)
    command: str = ""
    skipped: bool = False
    unasserted: bool = False


def worst(codes: list[int]) -> int:
    """The exit code of a whole: what was found counts more than what could not be told."""
    return 1 if 1 in codes else 2 if any(codes) else 0


def run(wanted: Wanted, say: Callable[[str], None]) -> int:
    """Runs it all, writes the page, and gives the exit code.

    :raises Fault: if another one of the same system runs, the configuration is faulty, or there is
        no such system or mode.
    """
    # A mode that there is none of is told now, and not by each session.
    configuration.check_mode(wanted.mode)
    settings = survey.reframe(["--show-config=systems/0/name"], wanted.system)
    system = json.loads(settings.strip().splitlines()[-1])
    with _alone(paths.results(), system) as lock:
        parts, names = _measured(wanted, lock)
        if names and not wanted.maintenance:
            parts.append(_trend(system, names[-1]))
        if names and wanted.maintenance:
            parts.append(_compared(wanted, system))
            if wanted.screen:
                parts.append(_screened(system, names))
        if wanted.report:
            parts.append(_reported(wanted.report))
        if wanted.keep:
            parts.append(_pruned(wanted.keep, say))
        return _told(wanted, system, names, parts, say)


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
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as err:
        raise Fault(refusals.unwritable(path, err)) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        told = os.pread(file, 4096, 0).decode(errors="replace").strip() or "that is starting"
        os.close(file)
        raise Fault(
            f"{path}: a nightly of {system} runs already, {printable(told)}{_without(told)}: "
            f"this one ends"
        ) from None
    except OSError as err:
        os.close(file)
        raise Fault(
            f"{path}: cannot be locked ({err.strerror}), so that two could run at once: set "
            f"PLUMBLINE_RESULTS to a folder on a file system with locks"
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


def _measured(wanted: Wanted, lock: int) -> tuple[list[Part], list[str]]:
    """Runs the sessions; what each said, and the names of those that have a plan."""
    end = time.monotonic() + wanted.budget
    parts, names = [], []
    with _Stop() as stop:
        for number in range(1, wanted.sessions + 1):
            title = "session" + (f" {number} of {wanted.sessions}" if wanted.sessions > 1 else "")
            left = end - time.monotonic() if wanted.budget else 0.0
            if stop.asked or (wanted.budget and left <= 0):
                why = "stopped" if stop.asked else "budget spent"
                parts.append(Part(title, 2, f"not run: {why}"))
                continue
            name = configuration.new_name()
            code, errors = _session(wanted, name, left, lock, stop)
            parts.append(_exported(title, name, code, errors))
            if (paths.results() / "sessions" / name / "plan.json").exists():
                names.append(name)
    return parts, names


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
        _plumbline(),
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
        leftovers.settle(paths.results(), wanted.orphans, lambda line: told.append(line))
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


def _exported(title: str, name: str, code: int, errors: list[str]) -> Part:
    """What a session said, from its records."""
    # Before its word on an option, ReFrame prints all that there are.
    refused = [line for line in errors if line.startswith("reframe: error: ")]
    shown = refused or errors[-_SHOWN:]
    last = "; ".join(line.removeprefix("plumbline: ") for line in shown)
    folder = paths.results() / "sessions" / name
    if not (folder / "plan.json").exists():
        return Part(title, 2, f"no test case was run: {last or 'the log says why'}")
    found, page, said = _asked("export", name, "--format=markdown")
    _, xml, _ = _asked("export", name, "--format=junit")
    code = code if code in (0, 1, 2) else 2
    told = f"{name}: {_NIGHT[code]}"
    if errors and code:
        told += f": {last}"
    if not (folder / "end.json").exists():
        told += (
            "; its end is not in its folder: look for lines `plumbline-record` in the log, and "
            "`plumbline history recover` them"
        )
        code = code or 2
    if found:
        return Part(title, worst([code, 2]), f"{told}; {' '.join(said)}")
    suites = list(junitparser.JUnitXml.fromstring(xml))
    part = Part(title, code, told, page, suites, f"plumbline export {name} --format=markdown")
    part.unasserted = page.splitlines()[0].endswith(UNASSERTED)
    return part


def _plumbline() -> str:
    return str(Path(sys.executable).with_name("plumbline"))


def _asked(*arguments: str) -> tuple[int, str, list[str]]:
    """Another command's exit code, output, and lines of errors."""
    done = subprocess.run([_plumbline(), *arguments], capture_output=True, text=True, check=False)
    errors = [line.removeprefix("plumbline: ") for line in done.stderr.splitlines()]
    if "Traceback (most recent call last):" in errors:
        errors = [f"plumbline {arguments[0]} broke: {errors[-1]}"]
    return (done.returncode if done.returncode in (0, 1, 2) else 2), done.stdout, errors


def _json(text: str) -> list[dict] | None:
    try:
        return json.loads(text)
    except ValueError:
        return None


# -- what it comes to ----------------------------------------------------------------------------


def _trend(system: str, name: str) -> Part:
    """What the night changed: what was told first tonight is a fault, what is still on is told."""
    code, out, said = _asked("trend", f"--system={system}", "--format=json")
    rows = _json(out)
    if rows is None:
        return Part("trend", 2, "; ".join(said[-_SHOWN:]) or "it gave no answer")
    bad = _bad(rows)
    fresh = _fresh(bad, system, name) if bad else []
    left_out = [line for line in said if line.startswith("left out:")]
    suite = junitparser.TestSuite("trend")
    lines = []
    for row in sorted(bad, key=lambda row: row not in fresh):
        told = f"{row['kind']} of {row['size']:+.1%} since {row['start']}, found {row['night']}"
        lines.append(f"- {'**new** ' if row in fresh else ''}{escaped(row['series'])}: {told}")
        case = junitparser.TestCase(printable(row["series"]), "trend")
        new = junitparser.Failure(told, row["kind"])
        case.result = [new if row in fresh else junitparser.Skipped(f"known: {told}", "known")]
        suite.add_testcase(case)
    short = "; ".join(line for line in said if line.startswith("not judged:"))
    told = f"{len(fresh)} new, {len(bad) - len(fresh)} known and still on"
    told = "; ".join(filter(None, [told, short, *left_out[:1]]))
    # Too few nights are no fault of this one.
    unread = 2 if left_out or (code == 2 and not short) else 0
    nothing = code == 2 and not rows and not unread
    return Part(
        "trend",
        1 if fresh else unread,
        told,
        "\n".join(lines),
        [suite],
        f"plumbline trend --system={system}",
        nothing,
    )


def _bad(rows: list[dict]) -> list[dict]:
    """What makes the exit code of `plumbline trend` 1."""
    kinds = ("regression", "drift")
    return [r for r in rows if r["kind"] in kinds and r["worse"] and r["on"] and r["confirmed"]]


def _fresh(bad: list[dict], system: str, name: str) -> list[dict]:
    """Those of which nothing was said the night before: the newest of each series that has more."""
    tonight = configuration.began(paths.results() / "sessions" / name)
    _, out, _ = _asked("trend", f"--system={system}", f"--until={tonight:%Y-%m-%dT00:00}",
                       "--format=json")  # fmt: skip
    known = Counter(row["series"] for row in _bad(_json(out) or []))
    found = []
    for row in sorted(bad, key=lambda row: row["start"]):
        known[row["series"]] -= 1
        if known[row["series"]] < 0:
            found.append(row)
    return found


def _sides(wanted: Wanted, rows: list[SessionRow]) -> tuple[list[str], list[str]]:
    """The sessions before a maintenance and after: the newest nights, or what there is."""
    after = [row for row in rows if row.extras.get("maintenance") == wanted.maintenance]
    earlier = [row for row in rows if row not in after and row.start < after[0].start]
    nights = [row for row in earlier if row.extras.get("run") == "nightly"] or earlier
    return [row.session for row in nights[-wanted.nights :]], [row.session for row in after]


def _compared(wanted: Wanted, system: str) -> Part:
    """Before and after the maintenance."""
    title = "before and after"
    try:
        with History() as history:
            before, after = _sides(wanted, history.sessions(Selection(system=system)))
    except Fault as err:
        return Part(title, 2, str(err))
    enough = (
        f"Three sessions before and three after are the least, five of each are better; each "
        f"counts once. Before count those of `plumbline nightly` (all others of the system where "
        f"there is none), after those with `--maintenance={wanted.maintenance}`; and of both only "
        f"the test cases that both measured: `--mode={wanted.mode}` after, so with its tags before "
        f"too."
    )
    if not before:
        told = "there is no session before the maintenance to hold it against"
        return Part(title, 2, told, enough)
    words = [",".join(before), ",".join(after), f"--system={system}", f"--untold={wanted.untold}"]
    code, page, said = _asked("compare", *words, "--format=markdown")
    _, xml, _ = _asked("compare", *words, "--format=junit")
    if not page:
        return Part(title, 2, "; ".join(said[-_SHOWN:]))
    told = (
        f"{_MAINTENANCE[code]}: {counted(len(after), 'session')} after against {len(before)} before"
    )
    page = f"{enough}\n\n{page}" if code == 2 else page
    suites = list(junitparser.JUnitXml.fromstring(xml))
    command = f"plumbline compare {words[0]} {words[1]}"
    return Part(title, code, told, page, suites, command)


def _screened(system: str, names: list[str]) -> Part:
    """Nodes, pairs and links that are slow now."""
    code, out, said = _asked("screen", *names, f"--system={system}", "--format=json")
    rows = _json(out)
    if rows is None:
        return Part("slow nodes", 2, "; ".join(said[-_SHOWN:]))
    suite = junitparser.TestSuite("slow nodes")
    lines = []
    for row in rows:
        name = row["name"] if isinstance(row["name"], str) else ":".join(row["name"])
        told = f"{row['kind']} {name}: slower by {row['size']:.1%} since {row['since']}"
        lines.append(f"- {escaped(told)}")
        case = junitparser.TestCase(printable(name), f"slow {row['kind']}")
        case.result = [junitparser.Failure(printable(told), "slow")]
        suite.add_testcase(case)
    more = [f"and {len(said) - 1} more such lines"] if said[1:] else []
    alone = code == 2 and any("too few peers" in line for line in said)
    more += ["--no-screen leaves this out, as for one node, which has no peers"] if alone else []
    told = "; ".join([f"{len(rows)} named", *said[:1], *more])
    command = f"plumbline screen {' '.join(names)}"
    return Part("slow nodes", code, told, "\n".join(lines), [suite], command)


def _reported(folder: Path) -> Part:
    code, out, said = _asked("report", f"--out={folder}")
    last = out.strip().splitlines()[-1:] or said[-1:]
    return Part("report", 2 if code else 0, "; ".join([*last, *said[:_SHOWN]] if code else last))


def _pruned(rules: retention.Rules, say: Callable[[str], None]) -> Part:
    done = retention.prune(paths.results(), rules, say)
    told = f"{done.count} of them, {done.bytes / 1e6:.1f} MB freed"
    return Part("what is old", 2 if done.faults else 0, "; ".join([told, *done.faults[:_SHOWN]]))


# -- the page ------------------------------------------------------------------------------------


def _told(
    wanted: Wanted, system: str, names: list[str], parts: list[Part], say: Callable[[str], None]
) -> int:
    """Writes the page and the JUnit XML, or prints the page where it cannot be written."""
    code = worst([part.code for part in parts])
    verdict = (_MAINTENANCE if wanted.maintenance else _NIGHT)[code]
    if not code and not wanted.maintenance and any(p.unasserted for p in parts):
        verdict += UNASSERTED
    head = f"{system}, after maintenance {wanted.maintenance}" if wanted.maintenance else system
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"
    rows = [f"| {part.title} | {part.code} | {escaped(part.told)} |" for part in parts]
    lines = [
        f"# {escaped(head)}: {verdict}",
        "",
        f"{now}, {platform.node()}, {wanted.name}, exit code {code}",
        "",
        "| part | exit code | says |",
        "| --- | ---: | --- |",
        *rows,
    ]
    for part in parts:
        if part.page:
            told = part.page.strip().splitlines()
            rest = len(told) - _MOST
            more = ["", f"and {rest} more lines, of `{part.command}`"] if rest > 0 else []
            lines += ["", f"## {part.title.capitalize()}", "", *told[:_MOST], *more]
    page = "\n".join(lines) + "\n"
    folder = wanted.out
    if folder is None and names:
        folder = paths.results() / "sessions" / names[-1]
    for part in parts:
        say(f"{part.title}: {part.told}")
    say(f"{head}: {verdict}")
    try:
        if folder is None:
            raise OSError(0, "there is no session")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{wanted.name}.md").write_text(page, encoding="utf-8")
        (folder / f"{wanted.name}.xml").write_text(_junit(parts), encoding="utf-8")
        say(f"{folder / wanted.name}.md")
    except OSError as err:
        say(f"{folder or 'no folder'}: the page is not written ({err.strerror}); here it is:")
        print(page)
        code = worst([code, 2])
    return code


def _junit(parts: list[Part]) -> str:
    """All parts; those that are in order pass, and what each is made of stands in its own suite."""
    whole = junitparser.TestSuite("nightly")
    found = junitparser.JUnitXml()
    for part in parts:
        case = junitparser.TestCase(part.title, "nightly")
        told = printable(part.told)
        if part.skipped:
            case.result = [junitparser.Skipped(told, "not judged")]
        elif part.code:
            kind = junitparser.Failure if part.code == 1 else junitparser.Error
            case.result = [kind(told, _NIGHT[part.code])]
        case.system_out = told
        whole.add_testcase(case)
    for suite in [whole, *(suite for part in parts for suite in part.suites)]:
        found.add_testsuite(suite)
    return found.tostring().decode()
