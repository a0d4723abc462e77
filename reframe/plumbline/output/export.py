"""Exports one session as Prometheus' text file, JUnit XML, or Markdown.

A case passes in an export only if it was measured and asserted. Names come from check files,
schedulers and site files, so they may contain any character.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import junitparser
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from plumbline.check import record, session_files
from plumbline.check.record import FigureRecord, Record, Seconds
from plumbline.core import files, suites
from plumbline.core.errors import Fault
from plumbline.core.text import pluralize, printable, quote_markdown, shorten
from plumbline.history.history import History
from plumbline.history.rows import SessionRow
from plumbline.history.series import ALL, Selection
from plumbline.reference.lookup import format_bound
from plumbline.session import summary

#: In the order of a summary; an export has a count for each, also for 0.
_VERDICTS = ("pass", "fail", "above-ceiling", "waived", "not-asserted")

#: What an exit code means.
OUTCOMES = {0: "OK", 1: "faults found", 2: "inconclusive"}

#: Appended to the outcome of a session that compared nothing with a reference.
UNASSERTED = ", but nothing was asserted"

#: A summary shows at most this many lines of each part.
_MAX_LINES = 15


@dataclass
class ExportedSession:
    """The content of one session.

    :ivar records: the first attempt of each planned case; a case without one is ``unfinished``.
    :ivar faults: what the session found besides its records, such as a check that vanished.
    :ivar unread: lines of the records that were skipped.
    :ivar ended: exit code of the session, which also counts cases that were repeated.
    :ivar notes: what else it reported, such as a clock that jumped.
    """

    name: str
    system: str
    extras: dict[str, str]
    records: list[Record]
    faults: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    ended: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def results(self) -> Counter[str]:
        """Number of test cases by result."""
        return Counter(fields.result for fields in self.records)

    @property
    def verdicts(self) -> Counter[str]:
        """Number of figures by verdict."""
        return Counter(fom.verdict for fields in self.records for fom in fields.foms)

    @property
    def near_bound(self) -> int:
        """Number of figures that passed near their bound."""
        return sum(fom.near_bound for fields in self.records for fom in fields.foms)

    @property
    def code(self) -> int:
        """Exit code, with the meaning of :data:`OUTCOMES`."""
        codes = {summary.exit_code(self.results), self.ended}
        return 1 if self.faults or 1 in codes else 2 if self.unread or 2 in codes else 0

    @property
    def unasserted(self) -> bool:
        """Whether it passed although it compared nothing with a reference."""
        return not self.code and not self.verdicts.keys() - {"not-asserted"}


def load(
    history: History,
    name: str | None,
    among: Selection = ALL,
    say: Callable[[str], None] = lambda line: None,
) -> ExportedSession:
    """Read a session of the history.

    :arg name: its id; by default the newest session that has ended.
    :arg among: the sessions that the newest one is taken from.
    :arg say: receives a line for each newer session that is skipped.
    :raises Fault: if there is no such session, or its plan cannot be read.
    """
    if name:
        (row,) = history.sessions(Selection(sessions=(name,)))
        planned = _planned(_folder(history, row))
    else:
        row, planned = _newest(history, among, say)
    folder = _folder(history, row)
    first: dict[str, Record] = {}
    if row.results:
        for fields in history.records(Selection(sessions=(row.session,))):
            known = first.setdefault(fields.case, fields)
            if fields.attempt < known.attempt:
                first[fields.case] = fields
    records = [first.get(case) or _unfinished(plan) for case, plan in planned.items()]
    records += [found for case, found in first.items() if case not in planned]
    unread = [fault for fault in history.faults if fault.startswith(f"{folder}/")]
    code, faults, notes = _end(folder)
    of = (row.session, row.system, row.extras)
    return ExportedSession(*of, records, faults, unread, code, notes)


def _planned(folder: Path) -> dict[str, session_files.Planned]:
    """Return the planned cases of a session.

    :raises Fault: if its plan cannot be read.
    """
    try:
        return session_files.read_plan(folder)["cases"]
    except (OSError, record.Damaged) as err:
        path = folder / "plan.json"
        raise Fault(
            f"{path}: cannot be read ({err}), so the session's test cases are unknown",
            code="history.damaged",
        ) from None


def _newest(
    history: History, among: Selection, say: Callable[[str], None]
) -> tuple[SessionRow, dict[str, session_files.Planned]]:
    """Return the newest session that has ended and has a plan, and its planned cases.

    A session that still runs would be exported as unfinished whenever monitoring asks too early.
    One in the future, by a clock that is wrong, would be the newest until that time.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    rows = history.sessions(among)
    unended = history.unended(rows)
    all_ahead = all(row.is_ahead(now) for row in rows)
    for row in reversed(rows):
        if row.is_ahead(now) and not all_ahead:
            say(
                f"{row.session}: skipped, as it is in the future, {row.end} UTC: set the clock of "
                f"its nodes, or of this host. To export it, give its name as SESSION"
            )
        elif row.session in unended:
            say(
                f"{row.session}: skipped, as it has not ended: to export it, give its name as "
                f"SESSION"
            )
        else:
            try:
                return row, _planned(_folder(history, row))
            except Fault as err:
                say(f"skipped: {err}")
    raise Fault(
        f"{history.source}: no session has ended: to export one that is still running, give its "
        f"name as SESSION",
        code="history.not-ended",
    )


def _folder(history: History, row: SessionRow) -> Path:
    return history.source / "sessions" / row.session


def _end(folder: Path) -> tuple[int, list[str], list[str]]:
    """Return the exit code, the faults and the notes of a session at its end; none if it was cut
    off.

    :raises Fault: if they cannot be read.
    """
    try:
        end = session_files.read_end(folder)
        return end["code"], end["faults"], end["notes"]
    except FileNotFoundError:
        return 0, [], []
    except (OSError, record.Damaged) as err:
        raise Fault(
            f"{folder / 'end.json'}: {err}, so it is unknown which faults the session found; "
            f"restore the file",
            code="history.damaged",
        ) from None


def _unfinished(planned: session_files.Planned) -> Record:
    """Return a record for a planned case that has none."""
    return Record.model_construct(
        system=planned["system"],
        partition=planned["partition"],
        environment=planned["environment"],
        check=planned["check"],
        placement="",
        result="unfinished",
        reason="planned, but it has no record: the session was cut off, or is still running",
        code="case.unfinished",
        waiver=None,
        attempt=0,
        foms=[],
        warnings=[],
        benchmark=None,
        seconds=Seconds(),
        time="",
        nodes=[],
    )


def _is_unasserted(fields: Record) -> bool:
    """Return whether a case passed although none of its figures was asserted."""
    asserted = any(fom.verdict != "not-asserted" for fom in fields.foms)
    return fields.result == "pass" and fields.benchmark is not None and not asserted


# -- Prometheus ----------------------------------------------------------------------------------

#: Permissions of the file, whatever the umask: the collector is another user's.
PROMETHEUS_MODE = 0o644
_CASE = ["system", "partition", "environment", "check", "placement"]
_FOM = [*_CASE[:4], "metric", "size", "location", "placement", "unit"]
_UNIT = "in the unit of its label, which is no base unit: compare within one metric only"
#: Metric, without its prefix -> its labels and help text.
_GAUGES = {
    "fom": (_FOM, f"Figure of merit, {_UNIT}."),
    "fom_bound": ([*_FOM, "side"], f"Bound of a figure of merit, {_UNIT}."),
    "fom_verdict": ([*_FOM, "verdict"], "1 for the verdict that a figure has."),
    "fom_near_bound": (_FOM, "1 for a figure that passed near its bound."),
    "case_result": ([*_CASE, "result", "waiver"], "1 for the result that a test case has."),
    "session_cases": (["system", "result"], "Test cases of the session by result."),
    "session_figures": (["system", "verdict"], "Figures of merit of the session by verdict."),
    "session_exit_code": (["system"], "0: OK, 1: faults found, 2: inconclusive."),
    "session_timestamp_seconds": (["system"], "When the session's last test case ended."),
    "case_warnings": ([*_CASE, "state", "code"], "Warnings of a test case, by state and code."),
    "session_info": (["system", "session"], "1; which session this is."),
}


def prometheus(session: ExportedSession) -> str:
    """Return the text that node_exporter's textfile collector reads."""
    metrics = CollectorRegistry()
    gauges = {
        name: Gauge(f"plumbline_{name}", text, labels, registry=metrics)
        for name, (labels, text) in _GAUGES.items()
    }
    for fields in session.records:
        case = [printable(getattr(fields, name) or "") for name in _CASE]
        waiver = printable(fields.waiver or "")
        gauges["case_result"].labels(*case, fields.result, waiver).set(1)
        for notice in fields.warnings:
            gauges["case_warnings"].labels(*case, notice.state, notice.code).inc()
        for fom in fields.foms:
            size = "" if fom.size is None else str(fom.size)
            figure = [*case[:4], *map(printable, [fom.metric, size, fom.location, fom.placement,
                                                  fom.unit])]  # fmt: skip
            gauges["fom"].labels(*figure).set(fom.value)
            gauges["fom_verdict"].labels(*figure, fom.verdict).set(1)
            for side, bound in (("lower", fom.lower), ("upper", fom.upper)):
                if bound is not None:
                    gauges["fom_bound"].labels(*figure, side).set(bound)
            if fom.near_bound:
                gauges["fom_near_bound"].labels(*figure).set(1)
    system = printable(session.system)
    for result in record.RESULTS:
        gauges["session_cases"].labels(system, result).set(session.results[result])
    for verdict in _VERDICTS:
        gauges["session_figures"].labels(system, verdict).set(session.verdicts[verdict])
    gauges["session_exit_code"].labels(system).set(session.code)
    end = max((fields.time for fields in session.records), default="")
    if end:
        seconds = datetime.datetime.fromisoformat(end.replace("Z", "+00:00")).timestamp()
        gauges["session_timestamp_seconds"].labels(system).set(seconds)
    gauges["session_info"].labels(system, session.name).set(1)
    return generate_latest(metrics).decode()


def write_prometheus(session: ExportedSession, path: Path) -> None:
    """Write that text atomically, since the collector may read it at any moment.

    :raises Fault: if it cannot be written.
    """
    with files.writing(path):
        files.write_atomically(path, prometheus(session), PROMETHEUS_MODE)


# -- JUnit XML -----------------------------------------------------------------------------------


def suite_of(session: ExportedSession, title: str = "") -> junitparser.TestSuite:
    """Return a JUnit suite with one case for each test case, fault and unreadable line.

    :arg title: what distinguishes it from other sessions of the same file.
    """
    among = f"{title}: " if title else ""
    cases = []
    for fields in session.records:
        group = f"{among}{fields.system}:{fields.partition}+{fields.environment}"
        lines = [f"{fom.figure.variable} = {fom.value:.6g} {fom.unit}: {_verdict(fom)}"
                 for fom in fields.foms]  # fmt: skip
        lines += [f"{notice.state}: {notice.detail} [{notice.code}]" for notice in fields.warnings]
        output = "\n".join(map(printable, lines))
        seconds = fields.seconds.total or 0.0
        cases.append(suites.case(fields.check, group, _outcome(fields), output, seconds))
    # No test case shows why such a session is inconclusive.
    unshown = session.notes if (session.ended, summary.exit_code(session.results)) == (2, 0) else []
    for kind, messages in (
        ("fault", session.faults),
        ("inconclusive", unshown),
        ("not read", session.unread),
    ):
        for message in messages:
            error = junitparser.Error(printable(message), kind)
            cases.append(suites.case(message, f"{among}{session.system}: session", error))
    return suites.suite(f"plumbline {session.system} {session.name}", cases, session.extras)


def junit(session: ExportedSession) -> str:
    """Return the session as JUnit XML."""
    return suites.as_junit([suite_of(session)])


def _outcome(fields: Record) -> junitparser.junitparser.FinalResult | None:
    """Return a test case's failure, error or skip, or ``None`` if it passed."""
    result, reason = fields.result, printable(fields.why)
    if result == "fail":
        return junitparser.Failure(reason, result)
    if result in ("skip", "waived"):
        return junitparser.Skipped(f"{result}: {reason}", result)
    if result != "pass":
        return junitparser.Error(reason, result)
    if _is_unasserted(fields):
        figures = pluralize(len(fields.foms), "figure")
        message = f"measured, but nothing asserted: {figures}{_why_unasserted(fields)}"
        return junitparser.Skipped(printable(message), "not-asserted")
    return None


def _why_unasserted(fields: Record) -> str:
    """Return why figures with a reference were not compared; empty if none has one."""
    reasons = dict.fromkeys(fom.reason for fom in fields.foms)
    return "".join(f"; {reason}" for reason in reasons if reason)


def _verdict(fom: FigureRecord) -> str:
    near_bound = ", near its bound" if fom.near_bound else ""
    lower, upper = ("open" if b is None else format_bound(b) for b in (fom.lower, fom.upper))
    by = f" of [{lower}, {upper}] by {fom.reference}" if fom.reference else ""
    return f"{fom.verdict}{near_bound}{by}"


# -- Markdown ------------------------------------------------------------------------------------


def markdown(session: ExportedSession) -> str:
    """Return a summary of one page for a merge request or a chat, faults first."""
    results, verdicts = session.results, session.verdicts
    counts = ", ".join(f"{results[r]} {r}" for r in record.RESULTS if results[r]) or "none"
    figures = ", ".join(f"{verdicts[v]} {v}" for v in _VERDICTS if verdicts[v]) or "none"
    if session.near_bound:
        figures += f" ({session.near_bound} near their bound)"
    outcome = OUTCOMES[session.code] + (UNASSERTED if session.unasserted else "")
    extras = "".join(
        f", {quote_markdown(k)}={quote_markdown(v)}" for k, v in session.extras.items()
    )
    lines = [
        f"### {quote_markdown(session.system)}: {outcome}",
        "",
        f"- session {quote_markdown(session.name)}{extras}",
        f"- {pluralize(len(session.records), 'test case')}: {counts}",
        f"- figures of merit: {figures}",
    ]
    for title, part in _parts(session):
        if part:
            rest = len(part) - _MAX_LINES
            lines += ["", f"**{title}**", "", *(f"- {line}" for line in part[:_MAX_LINES])]
            lines += [f"- and {rest} more"] if rest > 0 else []
    return "\n".join(lines) + "\n"


def _parts(session: ExportedSession) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each part of a summary, and its lines."""

    def cases(result: str) -> list[Record]:
        return [fields for fields in session.records if fields.result == result]

    yield "Faults of the session", [*map(quote_markdown, session.faults)]
    yield "Lines that cannot be read", [*map(quote_markdown, session.unread)]
    yield "Failed", _figures(session, lambda fom: fom.verdict == "fail")
    yield "Above a ceiling", _figures(session, lambda fom: fom.verdict == "above-ceiling")
    # The cases that failed by a figure are listed above.
    yield "Fail", _reasons([
        fields for fields in cases("fail")
        if not any(fom.verdict in record.FAILED for fom in fields.foms)
    ])  # fmt: skip
    for result in ("invalid", "error", "aborted", "unfinished", "waived"):
        yield result.capitalize(), _reasons(cases(result))
    yield "Near a bound", _figures(session, lambda fom: fom.near_bound)
    warnings = [
        f"{_case(fields)}{quote_markdown(fields.place_of(notice))}: {notice.state}: "
        f"{quote_markdown(notice.detail)}"
        for fields in session.records
        for notice in fields.warnings
    ]
    yield "Warnings", warnings
    unasserted = [
        _case(fields) + quote_markdown(_why_unasserted(fields))
        for fields in session.records
        if _is_unasserted(fields)
    ]
    yield "Measured, but nothing asserted", unasserted
    yield "Skipped", _reasons(cases("skip"))
    yield "Notes", [*map(quote_markdown, session.notes)]


def _case(fields: Record) -> str:
    return quote_markdown(record.short_name(fields))


def _figures(session: ExportedSession, wanted: Callable[[FigureRecord], bool]) -> list[str]:
    lines = []
    for fields in session.records:
        for fom in filter(wanted, fields.foms):
            nodes = shorten(fields.nodes, most=4)
            value = f"{fom.figure.variable} = {fom.value:.6g} {fom.unit}"
            bound = f"{_limits(fom)} by {fom.reference}"
            if fom.verdict == "above-ceiling" and fom.ceiling is not None:
                bound = f"at most {format_bound(fom.ceiling)} by its ceiling"
            about = f"{_case(fields)} on {quote_markdown(nodes)}"
            lines.append(f"{about}: {quote_markdown(value)}, expected {quote_markdown(bound)}")
    return lines


def _limits(fom: FigureRecord) -> str:
    """Return the bounds in words, which need no quotes in Markdown."""
    lower, upper = (None if b is None else format_bound(b) for b in (fom.lower, fom.upper))
    if lower and upper:
        return f"{lower} to {upper}"
    return f"at least {lower}" if lower else f"at most {upper}" if upper else "any value"


def _reasons(records: list[Record]) -> list[str]:
    """Return a line for each reason, with the cases that have it."""
    cases: dict[str, list[str]] = {}
    for fields in records:
        cases.setdefault(fields.why, []).append(_case(fields))
    return [
        f"{shorten(names, most=1)}: {quote_markdown(reason)}" for reason, names in cases.items()
    ]


#: Format -> function that writes it.
FORMATS = {"prometheus": prometheus, "junit": junit, "markdown": markdown}
