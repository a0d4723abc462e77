"""The parts of a night: the sessions, and what is done with their records afterwards."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import junitparser
import numpy as np

from plumbline.analysis import causes, compare, screen
from plumbline.analysis.compare import formats
from plumbline.analysis.trend import series_changes
from plumbline.analysis.trend.series_changes import night_of
from plumbline.core import paths, suites
from plumbline.core.errors import Fault
from plumbline.core.text import pluralize, printable, quote_markdown, shorten
from plumbline.history import retention
from plumbline.history.history import History
from plumbline.history.rows import SessionRow
from plumbline.history.series import Selection
from plumbline.output import export, report
from plumbline.reference import waivers
from plumbline.site import configuration

if TYPE_CHECKING:
    from plumbline.operate.nightly import NightlyOptions

#: The verdict for each exit code: of a night, and after a maintenance.
NIGHT = export.OUTCOMES
MAINTENANCE = {0: "go", 1: "no-go", 2: "not enough data"}
#: File in a session's folder: a page has what the trend was at its end.
REPORTED = "reported"
#: A part's message lists at most this many lines of one kind.
_MAX_LISTED = 5
#: What to do about nodes that were not compared.
_UNSCREENED = "not screened: too few nodes were measured; plumbline sweep measures each of them"


@dataclass
class Part:
    """The result of one part.

    :ivar message: the result in one line.
    :ivar page: details, as Markdown.
    :ivar suites: details, as JUnit XML.
    :ivar command: the command that prints all details.
    :ivar skipped: there was nothing to judge, so the part neither passed nor failed.
    :ivar unasserted: a session that passed, but compared nothing with a reference.
    :ivar done: it ran to its end.
    :ivar exported: the session.
    :ivar findings: number of changes for the worse that are active, by state.
    """

    title: str
    code: int = 0
    message: str = ""
    page: str = ""
    suites: list[junitparser.TestSuite] = field(default_factory=list)
    command: str = ""
    skipped: bool = False
    unasserted: bool = False
    done: bool = False
    exported: export.ExportedSession | None = None
    findings: dict[str, int] = field(default_factory=dict)


def worst(codes: list[int]) -> int:
    """Return the exit code of the whole: a fault takes precedence over an inconclusive part."""
    return 1 if 1 in codes else 2 if any(codes) else 0


@contextlib.contextmanager
def _contained(part: Part) -> Iterator[Part]:
    """Turn an exception into the part's message, so that the other parts still run."""
    try:
        yield part
        part.done = True
    except Exception as err:
        if not isinstance(err, Fault):
            traceback.print_exc()
        part.code = worst([part.code, 2])
        part.message = _joined(part.message, reason_of(err))


def reason_of(error: Exception) -> str:
    """Return an exception as the message of a part, in one line."""
    if isinstance(error, Fault):
        return "; ".join(error.coded().splitlines())
    return f"internal error: {type(error).__name__}: {error}"


def _joined(*messages: str) -> str:
    return "; ".join(filter(None, messages))


def _skipped_lines(history: History) -> str:
    """Return which lines of the history could not be read."""
    more = len(history.faults) - _MAX_LISTED
    listed = [f"skipped: {fault}" for fault in history.faults[:_MAX_LISTED]]
    return "; ".join(listed) + (f" (and {pluralize(more, 'more place')})" if more > 0 else "")


def session(title: str, name: str, code: int, errors: list[str]) -> Part:
    """Return the part of a session, from its records.

    :arg code: the session's exit code.
    :arg errors: the lines of its standard error.
    """
    last = "; ".join(line.removeprefix("plumbline: ") for line in errors[-_MAX_LISTED:])
    folder = paths.results() / "sessions" / name
    if not (folder / "plan.json").exists():
        return Part(title, 2, f"no test case was run: {last or 'see the log'}")
    code = code if code in (0, 1, 2) else 2
    part = Part(title, code, _joined(f"{name}: {NIGHT[code]}", last if code else ""))
    if not (folder / "end.json").exists():
        part.code = code or 2
        part.message += (
            "; its folder has no end.json: if the log has lines with `plumbline-record`, store "
            "them with `plumbline history recover LOG`"
        )
    with _contained(part), History() as history:
        part.exported = exported = export.load(history, name)
        part.page = export.markdown(exported)
        # GitLab shows only the first of several test cases with one class and name.
        part.suites = [export.suite_of(exported, "" if title == "session" else title)]
        part.command = f"plumbline export {name} --format=markdown"
        part.unasserted = exported.unasserted
        if exported.code == 1 and part.code == 2:
            # It was killed, or cut off, after it had found a fault.
            part.code = 1
            part.message = _joined(part.message, "a test case had failed before")
    return part


def trend(system: str, name: str) -> Part:
    """Return the changes for the worse that are active: the new ones, which are faults, those that
    the last night has reported, and those that are waived.

    :arg name: the session of tonight.
    """
    part = Part("trend", command=f"plumbline trend --system={system} --active")
    with _contained(part), History() as history:
        select = Selection(system=system)
        listed = history.series(select, samples=False)
        found = series_changes.of_history(listed)
        series = {series_changes.name_of(item): item for item in listed}
        causes.waive(found.changes, waivers.load(paths.reference()))
        failing = [change for change in found.changes if change.failing]
        known = [change for change in failing if not change.waiver]
        new = causes.new(known, series, _reported(history, select, name))
        shown = causes.of(failing, new, series)
        lines, cases = [], []
        for cause in shown:
            lines.append(f"- {_described(cause)}")
            for one in cause.by_size:
                began, night = night_of(one.began), night_of(one.found)
                change = f"{one.kind} of {one.size:+.1%} since {began}, found {night}"
                state = "waived" if one.waiver else "known"
                outcome = junitparser.Skipped(f"{state}: {change}", state)
                if one in new:
                    outcome = junitparser.Failure(change, one.kind)
                case = f"{one.series}, found {night}"
                cases.append(suites.case(case, part.title, outcome))
        part.page, part.suites = "\n".join(lines), [suites.suite(part.title, cases)]
        fresh = sum(cause.marked for cause in shown)
        accepted = sum(cause.state == "waived" for cause in shown)
        old = len(shown) - fresh - accepted
        part.findings = {"new": fresh, "known": old, "waived": accepted}
        counts = f"{fresh} new, {old} known and active"
        counts += f", {accepted} waived" if accepted else ""
        part.message = _joined(counts, found.unjudged, _skipped_lines(history))
        ahead = any(name in item.sessions[item.ahead] for item in listed)
        if ahead:
            part.message += ": the clock of this session was wrong"
        part.code = 1 if new else 2 if history.faults or ahead else 0
        part.skipped = not found.judged and not part.code
    return part


def _reported(history: History, select: Selection, name: str) -> np.datetime64:
    """Return the time up to which the last night has reported what it found: the end of the newest
    nightly before tonight whose page has its trend. Without one, it is the beginning of today.
    One whose clock jumped may end after tonight began, and does not count.

    Nightlies of before :data:`REPORTED` count if they have ended, as long as there is no other.
    """
    folder = paths.results() / "sessions"
    tonight = configuration.began(folder / name)
    # Not by their start: the first case of a night may end after midnight.
    rows = [row for row in history.sessions(select) if row.extras.get("run") == "nightly"
            and configuration.began(folder / row.session).date() < tonight.date()
            and row.end < np.datetime64(tonight.replace(tzinfo=None), "s")]  # fmt: skip
    unended = history.unended(rows)
    ended = [row for row in rows if row.session not in unended]
    reported = [row for row in ended if (folder / row.session / REPORTED).exists()]
    ends = [row.end for row in reported or ended]
    return max(ends) + np.timedelta64(1, "s") if ends else np.datetime64(tonight.date(), "s")


def _described(cause: causes.Cause) -> str:
    """Return a cause in one line of Markdown."""
    largest = cause.by_size[0]
    mark = "**new** " if cause.marked else "waived: " if cause.state == "waived" else ""
    figures = shorten(filter(None, map(cause.figure, cause.by_size)), _MAX_LISTED)
    nodes = f" on {shorten(cause.nodes, _MAX_LISTED)}" if cause.nodes else ""
    return (
        f"{mark}{largest.kind} of {largest.size:+.1%} since {cause.since}: "
        f"{quote_markdown(cause.title)}: {quote_markdown(figures)}{quote_markdown(nodes)}"
    )


def _sides(options: NightlyOptions, rows: list[SessionRow]) -> tuple[list[str], list[str]]:
    """Return the sessions before a maintenance and those after it.

    :raises Fault: if there is none after.
    """
    rows = [row for row in rows if not row.is_duet]
    after = [row for row in rows if row.extras.get("maintenance") == options.maintenance]
    if not after:
        raise Fault("no session after the maintenance could be read", code="history.damaged")
    earlier = [row for row in rows if row not in after and row.start < after[0].start]
    nights = [row for row in earlier if row.extras.get("run") == "nightly"] or earlier
    return [row.session for row in nights[-options.nights :]], [row.session for row in after]


def comparison(options: NightlyOptions, system: str) -> Part:
    """Compare the sessions before the maintenance with those after it."""
    part = Part("before and after")
    with _contained(part), History() as history:
        select = Selection(system=system)
        before, after = map(",".join, _sides(options, history.sessions(select)))
        part.page = (
            f"A comparison needs at least three sessions before and three after; five of each "
            f"are better. Sessions of `plumbline nightly` count as before (if there is none, all "
            f"earlier sessions of the system), those with `--maintenance={options.maintenance}` "
            f"as after. Only test cases that both sides measured are compared, so use the same "
            f"`--mode={options.mode}` on both sides."
        )
        if not before:
            part.code, part.message = 2, "there is no session before the maintenance"
            return part
        rules = compare.Rules(allow_inconclusive=options.allow_inconclusive / 100)
        found = compare.compare_sessions(history, select, before, after, rules)
        part.code = found.exit_code
        page = formats.markdown(found)
        part.page = f"{part.page}\n\n{page}" if part.code == 2 else page
        part.suites = [formats.suite_of(found)]
        part.command = f"plumbline compare {before} {after}"
        sides = f"{pluralize(len(found.after), 'session')} after against {len(found.before)} before"
        part.message = _joined(f"{MAINTENANCE[part.code]}: {sides}", _skipped_lines(history))
    return part


def screening(system: str, names: list[str], required: bool) -> Part:
    """Return the nodes, pairs and links that are slow in these sessions.

    :arg required: whether it is inconclusive that they measured too few nodes to compare. Sessions
        whose cases run on a node each, wherever the scheduler starts them, always do.
    """
    part = Part("slow nodes", command=f"plumbline screen {' '.join(names)}")
    with _contained(part), History() as history:
        known = waivers.load(paths.reference())
        select = Selection(system=system)
        try:
            found = screen.screen_history(history, select, names, accepted=known)
        except Fault as fault:
            if required or fault.code != "history.no-peers":
                raise
            found = screen.Screening([])
        too_few = not found.sure and not found.fell
        unsure = found.fell or (found.unsure and required)
        part.code = 1 if found.failing else 2 if history.faults or unsure else 0
        part.skipped = too_few and not part.code
        lines, cases = [], []
        for finding in found.flagged:
            what = f"slower by {finding.loss} since {finding.since}"
            if finding.kind == "setting":
                what = "; ".join(finding.evidence)
            message = f"{finding.kind} {finding.label}: {what}"
            outcome = junitparser.Failure(printable(message), "slow")
            if finding.waiver:
                message = f"waived: {message}"
                outcome = junitparser.Skipped(printable(message), "waived")
            lines.append(f"- {quote_markdown(message)}")
            cases.append(suites.case(finding.label, f"slow {finding.kind}", outcome))
        part.page, part.suites = "\n".join(lines), [suites.suite(part.title, cases)]
        more = len(found.messages) - 1
        accepted = len(found.flagged) - len(found.failing)
        counts = f"{len(found.flagged)} flagged" + (f", {accepted} waived" if accepted else "")
        part.message = _joined(
            counts if found.flagged or not too_few else "",
            _UNSCREENED if too_few else "",
            *found.messages[:1],
            f"and {pluralize(more, 'more message')}" if more > 0 else "",
            _skipped_lines(history),
        )
    return part


def report_site(folder: Path) -> Part:
    """Write the report."""
    part = Part("report")
    with _contained(part), History() as history:
        written = report.write(history, folder, Selection())
        skipped = f"skipped: {shorten(written.faults, _MAX_LISTED)}" if written.faults else ""
        part.message = _joined(str(written), _skipped_lines(history), skipped)
        part.code = 2 if history.faults or written.faults else 0
    return part


def prune(rules: retention.RetentionRules, say: Callable[[str], None]) -> Part:
    """Remove and compress what is old in the results folder."""
    part = Part("retention")
    with _contained(part):
        done = retention.prune(paths.results(), rules, say)
        freed = f"{pluralize(done.count, 'item')}, {done.bytes / 1e6:.1f} MB freed"
        part.message = _joined(freed, *done.faults[:_MAX_LISTED])
        part.code = 2 if done.faults else 0
    return part
