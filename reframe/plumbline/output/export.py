"""One session in the forms that other programs read: Prometheus' text file, JUnit XML, Markdown.

None of them shows as passed what was not measured and asserted. Names come from check files,
schedulers and site files, and may hold anything.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import junitparser
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from plumbline.check import record
from plumbline.check.record import FigureRecord, Record, Seconds
from plumbline.core import files, suites
from plumbline.core.errors import Fault
from plumbline.core.text import counted, escaped, printable, some
from plumbline.history.history import History, SessionRow
from plumbline.history.series import ALL, Selection
from plumbline.reference.lookup import told
from plumbline.session import summary

#: Every result and verdict that there is, so that a count of none is told as 0.
_RESULTS = ("pass", "fail", "waived", "invalid", "error", "skip", "aborted", "unfinished")
_VERDICTS = ("pass", "fail", "above-ceiling", "waived", "not-asserted")

#: Lines of each part that a summary shows.
_SHOWN = 15


@dataclass
class ExportedSession:
    """What is exported of one session.

    :ivar records: one of each planned test case, by the first verdict, which counts; of cases
        without a record one that says so.
    :ivar faults: what the session found beside its records, such as a check that vanished.
    :ivar unread: lines that are no records, and were left out.
    """

    name: str
    system: str
    extras: dict[str, str]
    records: list[Record]
    faults: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def results(self) -> Counter:
        """How many test cases there are of each result."""
        return Counter(fields.result for fields in self.records)

    @property
    def verdicts(self) -> Counter:
        """How many figures there are of each verdict."""
        return Counter(fom.verdict for fields in self.records for fom in fields.foms)

    @property
    def near(self) -> int:
        """How many figures passed near their bound."""
        return sum(fom.near for fields in self.records for fom in fields.foms)

    @property
    def code(self) -> int:
        """0 as it should be, 1 a fault found, 2 could not tell."""
        code = summary.exit_code(self.results)
        return 1 if self.faults or code == 1 else 2 if self.unread else code

    @property
    def unasserted(self) -> bool:
        """Whether it passed, and nothing of it was compared with a reference."""
        return not self.code and not self.verdicts.keys() - {"not-asserted"}


def load(
    history: History,
    name: str | None,
    among: Selection = ALL,
    say: Callable[[str], None] = lambda line: None,
) -> ExportedSession:
    """A session of the history.

    :arg name: its id; if ``None``, the newest that has ended.
    :arg among: which sessions the newest is taken of.
    :arg say: is told of newer sessions that have not ended.
    :raises Fault: if there is no such session, or its plan is not whole.
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
    records = [first.get(case) or _missing(plan) for case, plan in planned.items()]
    records += [found for case, found in first.items() if case not in planned]
    unread = [fault for fault in history.faults if fault.startswith(f"{folder}/")]
    return ExportedSession(row.session, row.system, row.extras, records, _end(folder), unread)


def _planned(folder: Path) -> dict[str, record.Planned]:
    """The cases of a session's plan.

    :raises Fault: if it cannot be read.
    """
    try:
        return record.plan(folder)["cases"]
    except (OSError, record.Damaged) as err:
        path = folder / "plan.json"
        raise Fault(
            f"{path}: no whole plan ({err}): which cases ran is not known", code="history.damaged"
        ) from None


def _newest(
    history: History, among: Selection, say: Callable[[str], None]
) -> tuple[SessionRow, dict[str, record.Planned]]:
    """The newest session that has ended, and its planned cases. One that still runs would be told
    as cut off, night after night, whenever monitoring asks at the wrong time; of one whose plan
    cannot be read nobody knows what it should have."""
    rows = history.sessions(among)
    unended = history.unended(rows)
    for row in reversed(rows):
        if row.session in unended:
            say(f"{row.session}: left out: it still runs or was cut off; name it to have it")
            continue
        try:
            return row, _planned(_folder(history, row))
        except Fault as err:
            say(f"left out: {err}")
    raise Fault(
        f"{history.source}: no session there has ended: name one to have it as it is",
        code="history.not-ended",
    )


def _folder(history: History, row: SessionRow) -> Path:
    return history.source / "sessions" / row.session


def _end(folder: Path) -> list[str]:
    """The faults that a session told at its end; one that was cut off, or is older, told none.

    :raises Fault: if its end cannot be read.
    """
    try:
        return record.end(folder)["faults"]
    except FileNotFoundError:
        return []
    except (OSError, record.Damaged) as err:
        raise Fault(
            f"{folder / 'end.json'}: {err}: what the session found is not known",
            code="history.damaged",
        ) from None


def _missing(planned: record.Planned) -> Record:
    """What stands for the record of a planned case that has none."""
    return Record.model_construct(
        system=planned["system"],
        partition=planned["partition"],
        environment=planned["environment"],
        check=planned["check"],
        placement="",
        result="unfinished",
        reason="planned, and there is no record of it: the session was cut off, or still runs",
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


def _variable(fom: FigureRecord) -> str:
    return fom.figure.variable


def _unasserted(fields: Record) -> bool:
    """Whether a test case passed that asserted nothing of what it should measure."""
    asserted = any(fom.verdict != "not-asserted" for fom in fields.foms)
    return fields.result == "pass" and fields.benchmark is not None and not asserted


# -- Prometheus ----------------------------------------------------------------------------------

_CASE = ["system", "partition", "environment", "check", "placement"]
_FOM = ["system", "partition", "environment", "check", "metric", "size", "at", "placement", "unit"]


def registry(session: ExportedSession) -> CollectorRegistry:
    """The session's metrics."""
    metrics = CollectorRegistry()

    def gauge(name: str, help: str, labels: list[str]):
        return Gauge(f"plumbline_{name}", help, labels, registry=metrics)

    in_unit = "in the unit of its label, which is no base unit: compare within one metric only"
    values = gauge("fom", f"Figure of merit, {in_unit}.", _FOM)
    bounds = gauge("fom_bound", f"Bound of a figure of merit, {in_unit}.", [*_FOM, "side"])
    verdicts = gauge("fom_verdict", "1 for the verdict that a figure has.", [*_FOM, "verdict"])
    near = gauge("fom_near_bound", "1 for a figure that passed near its bound.", _FOM)
    results = gauge("case_result", "1 for the result that a test case has.",
                    [*_CASE, "result", "waiver"])  # fmt: skip
    cases = gauge("session_cases", "Test cases of the session by result.", ["system", "result"])
    figures = gauge("session_figures", "Figures of merit of the session by verdict.",
                    ["system", "verdict"])  # fmt: skip
    code = gauge("session_exit_code", "0 as it should be, 1 a fault found, 2 could not tell.",
                 ["system"])  # fmt: skip
    ended = gauge("session_timestamp_seconds", "When the session's last test case ended.",
                  ["system"])  # fmt: skip
    notices = gauge("case_warnings", "Warnings of a test case, by state and code.",
                    [*_CASE, "state", "code"])  # fmt: skip
    info = gauge("session_info", "1; which session this is.", ["system", "session"])
    for fields in session.records:
        case = [printable(getattr(fields, name) or "") for name in _CASE]
        results.labels(*case, fields.result, printable(fields.waiver or "")).set(1)
        for notice in fields.warnings:
            notices.labels(*case, notice.state, notice.code).inc()
        for fom in fields.foms:
            size = "" if fom.size is None else str(fom.size)
            what = [fom.metric, size, fom.at, fom.placement, fom.unit]
            of = [*case[:4], *map(printable, what)]
            values.labels(*of).set(fom.value)
            verdicts.labels(*of, fom.verdict).set(1)
            for side, bound in (("lower", fom.lower), ("upper", fom.upper)):
                if bound is not None:
                    bounds.labels(*of, side).set(bound)
            if fom.near:
                near.labels(*of).set(1)
    system = printable(session.system)
    for result in _RESULTS:
        cases.labels(system, result).set(session.results[result])
    for verdict in _VERDICTS:
        figures.labels(system, verdict).set(session.verdicts[verdict])
    code.labels(system).set(session.code)
    ends = [fields.time for fields in session.records if fields.time]
    if ends:
        ended.labels(system).set(_seconds(max(ends)))
    info.labels(system, session.name).set(1)
    return metrics


def _seconds(time: str) -> float:
    return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def prometheus(session: ExportedSession) -> str:
    """The text that node_exporter's textfile collector reads."""
    return generate_latest(registry(session)).decode()


def write_prometheus(session: ExportedSession, path: Path) -> None:
    """Writes that text, whole or not at all, since the collector may read at any moment.

    :raises Fault: if it cannot be written.
    """
    try:
        files.store(path, prometheus(session))
    except OSError as err:
        raise Fault(
            f"{path}: cannot be written: {err.strerror}: name another file",
            code="files.not-writable",
        ) from None


# -- JUnit XML -----------------------------------------------------------------------------------


def suite_of(session: ExportedSession) -> junitparser.TestSuite:
    """A JUnit test case for each, of which only those passed that asserted something."""
    cases = []
    for fields in session.records:
        place = f"{fields.system}:{fields.partition}+{fields.environment}"
        out, seconds = "\n".join(map(printable, _lines(fields))), fields.seconds.total
        cases.append(suites.case(fields.check, place, _outcome(fields), out, seconds or 0.0))
    for kind, found in (("fault", session.faults), ("not read", session.unread)):
        for line in found:
            fault = junitparser.Error(printable(line), kind)
            cases.append(suites.case(line, f"{session.system}: session", fault))
    return suites.suite(f"plumbline {session.system} {session.name}", cases, session.extras)


def junit(session: ExportedSession) -> str:
    """JUnit XML."""
    return suites.as_junit([suite_of(session)])


def _outcome(fields: Record) -> junitparser.junitparser.FinalResult | None:
    """What a test case is that is no plain pass."""
    result, reason = fields.result, printable(fields.why)
    if result == "fail":
        return junitparser.Failure(reason, result)
    if result in ("skip", "waived"):
        return junitparser.Skipped(f"{result}: {reason}", result)
    if result != "pass":
        return junitparser.Error(reason, result)
    if _unasserted(fields):
        figures = counted(len(fields.foms), "figure")
        return junitparser.Skipped(f"measured, nothing asserted: {figures}", "not-asserted")
    return None


def _lines(fields: Record) -> Iterator[str]:
    """What a test case measured, a line for each figure, and for each warning."""
    for fom in fields.foms:
        yield f"{_variable(fom)} = {fom.value:.6g} {fom.unit}: {_verdict(fom)}"
    for notice in fields.warnings:
        yield f"{notice.state}: {notice.detail} [{notice.code}]"


def _verdict(fom: FigureRecord) -> str:
    near = ", near its bound" if fom.near else ""
    by = f" of {_interval(fom)} by {fom.reference}" if fom.reference else ""
    return f"{fom.verdict}{near}{by}"


def _interval(fom: FigureRecord) -> str:
    lower = "open" if fom.lower is None else told(fom.lower)
    upper = "open" if fom.upper is None else told(fom.upper)
    return f"[{lower}, {upper}]"


# -- Markdown ------------------------------------------------------------------------------------

_HEADLINE = {0: "as it should be", 1: "faults found", 2: "could not tell"}
#: Ends the headline of a session that was held against nothing.
UNASSERTED = ", but nothing was asserted"


def markdown(session: ExportedSession) -> str:
    """A summary of one page for a merge request or a chat: what is red comes first."""
    counts = ", ".join(f"{session.results[r]} {r}" for r in _RESULTS if session.results[r])
    verdicts = session.verdicts
    figures = ", ".join(f"{verdicts[v]} {v}" for v in _VERDICTS if verdicts[v]) or "none"
    if session.near:
        figures += f" ({session.near} near their bound)"
    unasserted = UNASSERTED if session.unasserted else ""
    lines = [
        f"### {escaped(session.system)}: {_HEADLINE[session.code]}{unasserted}",
        "",
        f"- session {escaped(session.name)}"
        + "".join(f", {escaped(k)}={escaped(v)}" for k, v in session.extras.items()),
        f"- {counted(len(session.records), 'test case')}: {counts or 'none'}",
        f"- figures of merit: {figures}",
    ]
    for title, found in _parts(session):
        if found:
            rest = len(found) - _SHOWN
            lines += ["", f"**{title}**", "", *(f"- {line}" for line in found[:_SHOWN])]
            lines += [f"- and {rest} more"] if rest > 0 else []
    return "\n".join(lines) + "\n"


def _parts(session: ExportedSession) -> Iterator[tuple[str, list[str]]]:
    """The parts of a summary, and the lines of each."""
    yield "Not as expected", [escaped(line) for line in session.faults]
    yield "Lines that are no records", [escaped(line) for line in session.unread]
    for verdict, title in (("fail", "Failed"), ("above-ceiling", "Above a ceiling")):
        yield title, list(_figures(session, lambda fom, v=verdict: fom.verdict == v))
    for result in ("fail", "invalid", "error", "aborted", "unfinished"):
        found = [f for f in session.records if f.result == result]
        # What failed by a figure stands above.
        found = [f for f in found if result != "fail" or not f.foms]
        yield result.capitalize(), list(_reasons(found))
    yield "Waived", list(_reasons([f for f in session.records if f.result == "waived"]))
    yield "Near a bound", list(_figures(session, lambda fom: fom.near))
    yield (
        "To be looked at",
        [
            f"{_case(fields)} on {escaped(some(fields.nodes, most=4))}: {notice.state}: "
            f"{escaped(notice.detail)}"
            for fields in session.records
            for notice in fields.warnings
        ],
    )
    yield "Measured, nothing asserted", [_case(f) for f in session.records if _unasserted(f)]
    yield "Skipped", list(_reasons([f for f in session.records if f.result == "skip"]))


def _case(fields: Record) -> str:
    return escaped(f"{fields.check} @{fields.partition}+{fields.environment}")


def _figures(session: ExportedSession, wanted) -> Iterator[str]:
    for fields in session.records:
        for fom in filter(wanted, fields.foms):
            nodes = some(fields.nodes, most=4)
            bound = f"{_interval(fom)} by {fom.reference}"
            if fom.verdict == "above-ceiling":
                bound = f"ceiling {told(fom.ceiling)}"
            value = f"{_variable(fom)} = {fom.value:.6g} {fom.unit}, {bound}"
            yield f"{_case(fields)} on {escaped(nodes)}: {escaped(value)}"


def _reasons(found: list[Record]) -> Iterator[str]:
    """A line for each reason, with the test cases that have it."""
    cases: dict[str, list[str]] = {}
    for fields in found:
        cases.setdefault(fields.why, []).append(_case(fields))
    for reason, names in cases.items():
        yield f"{some(names, most=1)}: {escaped(reason)}"


#: Format -> how a session is told in it.
FORMATS = {"prometheus": prometheus, "junit": junit, "markdown": markdown}
