"""The state of each system: the latest result of each of its test cases."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plumbline.check.record import FAILED, OUTSIDE, FigureRecord, NoticeRecord
from plumbline.core.errors import Fault
from plumbline.history.history import History
from plumbline.history.rows import CaseId, CaseRow, RanRow, SessionRow
from plumbline.history.series import ALL, Key, Selection
from plumbline.output.report import text
from plumbline.site.inventory import Inventory

#: Results and verdicts that need attention today.
RED = (*FAILED, "invalid", "error", "aborted", "unfinished", "vanished")
#: Those that a test case of a session can have, the worst first.
WORST_FIRST = (*RED, "waived", "skip", "not-asserted", "pass")
#: A case that the latest session did not run keeps its state this long.
WINDOW = np.timedelta64(7, "D")
#: How far back the first night of a red case is searched.
BACK = datetime.timedelta(days=60)
#: A session without an end counts as running this long after its last result.
RUNS = datetime.timedelta(hours=24)
#: A case vanishes only if it was in this many sessions.
USUAL = 3


@dataclass
class FigureState:
    """One figure of a test case that is red, waived, or near its bound.

    :ivar beyond: relative distance to the bound, negative outside of it.
    :ivar identity: metric, size, place and placement.
    """

    name: str
    value: float
    unit: str
    verdict: str
    bound: float | None
    beyond: float
    reference: str
    waiver: str
    identity: tuple
    better: str


@dataclass
class CaseState:
    """The state of a test case. If its session repeated it (``--repeat``), its worst repeat counts,
    and it has the figures and warnings of all.

    :ivar status: its result; or ``above-ceiling``; or ``not-asserted`` if it passed without any
        reference; or ``vanished`` if sessions no longer run it; or ``never-run``.
    :ivar since: when the first of the sessions in a row in which it is red ended.
    :ivar sessions: number of those sessions.
    :ivar late: its system's latest session did not run it.
    :ivar swept: the node, if its session is one of a sweep.
    """

    system: str
    partition: str
    environment: str
    check: str
    node: str
    placement: str
    status: str
    reason: str = ""
    waiver: str = ""
    nodes: list[str] = field(default_factory=list)
    session: str = ""
    time: np.datetime64 | None = None
    findings: list[FigureState] = field(default_factory=list)
    near_bound: list[FigureState] = field(default_factory=list)
    warnings: list[NoticeRecord] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)
    unasserted: Counter = field(default_factory=Counter)
    headlines: list[tuple] = field(default_factory=list)
    since: np.datetime64 | None = None
    sessions: int = 0
    late: bool = False
    swept: str = ""

    @property
    def identity(self) -> CaseId:
        return CaseId(self.system, self.partition, self.environment, self.check, self.node)

    @property
    def red(self) -> bool:
        return self.status in RED

    @property
    def waived(self) -> bool:
        """Whether it is waived, or any of its figures."""
        return self.status == "waived" or bool(self.counts["waived"])


@dataclass
class SystemState:
    """The state of a system.

    :ivar latest: the last of its sessions; one in the future only if all are.
    :ivar old: hours since the latest session ended, if that is too long ago.
    :ivar ahead: the sessions in the future.
    """

    system: str
    latest: SessionRow
    cases: list[CaseState]
    old: float | None
    ahead: list[SessionRow]

    @property
    def skipped(self) -> list[CaseState]:
        return [case for case in self.cases if case.status in ("skip", "never-run")]

    @property
    def red(self) -> list[CaseState]:
        return [case for case in self.cases if case.red]

    @property
    def states(self) -> Counter:
        """Number of cases with a warning, by its state."""
        return Counter(state for case in self.cases for state in {w.state for w in case.warnings})

    @property
    def results(self) -> Counter:
        return Counter(case.status for case in self.cases)


def of_systems(
    history: History,
    sessions: list[SessionRow],
    select: Selection,
    now: datetime.datetime,
    stale: datetime.timedelta,
    inventory: Callable[[str], Inventory],
    waive: Callable[[list[CaseState]], None] = lambda cases: None,
) -> list[SystemState]:
    """Return the state of each system, those with something red first.

    :arg sessions: those of the selection, oldest first.
    :arg stale: age above which a latest session is old.
    :arg inventory: returns that of a system.
    :arg waive: applies the waivers of today to the cases of a system.
    """
    by_system: dict[str, list[SessionRow]] = {}
    for row in sessions:
        by_system.setdefault(row.system, []).append(row)
    found = [
        _of_system(history, system, rows, select, now, stale, inventory(system), waive)
        for system, rows in by_system.items()
    ]
    return sorted(found, key=lambda state: (not state.red, state.system))


def _of_system(
    history: History,
    system: str,
    sessions: list[SessionRow],
    select: Selection,
    now: datetime.datetime,
    stale: datetime.timedelta,
    listed: Inventory,
    waive: Callable[[list[CaseState]], None],
) -> SystemState:
    latest = max(sessions, key=lambda row: (not row.is_ahead(now), row.end))
    # What a clock that is wrong puts in the future counts as the oldest: it must not hide what
    # other sessions found, nor be hidden.
    later = [row.session for row in sessions if row.end > latest.end]
    recent = [row.session for row in sessions if latest.end - WINDOW <= row.end <= latest.end]
    order = {name: place for place, name in enumerate([*later, *recent])}
    chosen = dataclasses.replace(select, system=literal(system), sessions=tuple(order))
    # Each session of a sweep measures one node.
    swept = {row.session: row.extras.get("node", "") for row in sessions if "sweep" in row.extras}
    found = sorted(cases_of(history, chosen), key=lambda row: (order[row.session], -row.attempt))
    last = {_place(row, swept): row.session for row in found}
    # The first attempt of each case counts. The repeats of a case are cases with one identity.
    first = {
        (row.session, row.case): row for row in found if row.session == last[_place(row, swept)]
    }
    rows = {(row.session, row.case, row.attempt): row for row in first.values()}
    states = {key: of_row(row, [], []) for key, row in rows.items()}
    chosen = dataclasses.replace(chosen, sessions=tuple({session for session, *_ in rows}))
    for key, foms, warnings in _figures(history, chosen) if rows else ():
        if key in rows:
            states[key] = of_row(rows[key], foms, warnings)
    cases = list(states.values())
    for case in cases:
        case.swept = swept.get(case.session, "")
        case.late = case.session != latest.session and not case.swept
    back = latest.end - np.timedelta64(BACK)
    names = tuple(row.session for row in sessions if back <= row.end <= latest.end)
    chosen = dataclasses.replace(chosen, sessions=names)
    _fill_since(cases, history, chosen, swept)
    waive(cases)
    cases = _of_repeats(cases)
    ran = history.ran(chosen)
    cases += _vanished(listed, cases, ran)
    if dataclasses.replace(select, system="") == ALL:
        run = {case.identity for case in cases} | {row.identity for row in ran}
        cases += _never_run(system, listed, run)
    past = latest.age(now)
    old = past.total_seconds() / 3600 if past > stale else None
    ahead = [row for row in sessions if row.is_ahead(now)]
    return SystemState(system, latest, sorted(cases, key=_order), old, ahead)


def missing(row: SessionRow, select: Selection) -> int:
    """Return the number of planned cases of a session without a record, 0 if the selection is of
    single cases."""
    names = ("partition", "environment", "check", "benchmark", "metric", "placement", "node")
    if any(getattr(select, name) for name in names):
        return 0
    return max(0, row.planned - row.ended)


def running(history: History, row: SessionRow, select: Selection, now: datetime.datetime) -> bool:
    """Return whether a session seems to be running: cases are missing, it has no end, and its last
    result is not old."""
    return bool(missing(row, select)) and row.age(now) < RUNS and bool(history.unended([row]))


def cases_of(history: History, chosen: Selection) -> list[CaseRow]:
    """Return the cases of a selection, which may be none."""
    return selected(lambda: history.cases(chosen))


def selected(read: Callable[[], list[Any]]) -> list[Any]:
    """Return what is read of a history, nothing if nothing is selected.

    :raises Fault: if the history cannot be read.
    """
    try:
        return read()
    except Fault as err:
        if err.code != "history.nothing-selected":
            raise
        return []


def _place(row: CaseRow, swept: Mapping[str, str]) -> tuple:
    """Return what a case has in common in all sessions, with the node if a sweep measured it."""
    return (*row.identity, swept.get(row.session, ""))


def identity_of(key: Key) -> tuple:
    """Return the identity of a series' test case and figure."""
    return (*key.case, key.metric, key.size, key.location, key.placement)


def _figures(history: History, chosen: Selection) -> Iterator[tuple[tuple, list, list]]:
    """Yield the session, case and attempt of each case, its figures, and its warnings."""
    if history.from_csv:
        yield from _of_csv(history, chosen)
        return
    for fields in history.records(chosen):
        key = (fields.session, fields.case, fields.attempt)
        yield key, fields.foms, fields.warnings


def _of_csv(history: History, chosen: Selection) -> Iterator[tuple[tuple, list, list]]:
    """Yield the same of a CSV file, which has neither headlines nor warnings."""
    names, *rows = selected(lambda: history.rows(chosen)) or [()]
    cells = (dict(zip(names, row, strict=True)) for row in rows)
    for key, listed in itertools.groupby(cells, operator.itemgetter("session", "case", "attempt")):
        yield key, [_of_cells(row) for row in listed if row["metric"] is not None], []


def _of_cells(row: Mapping[str, Any]) -> FigureRecord:
    """Return the figure of a row of a CSV file."""
    names = ("metric", "location", "placement", "value", "unit", "better", "verdict", "lower",
             "upper", "ceiling", "reference", "waiver")  # fmt: skip
    return FigureRecord.model_construct(
        **{name: row[name] for name in names}, size=None if row["size"] < 0 else row["size"],
        near_bound=row["near_bound"] == "true", reason="", headline=False,
    )  # fmt: skip


def literal(name: str) -> str:
    """Return a pattern that matches only this name."""
    return "".join(f"[{char}]" if char in "*?" else char for char in name)


def _order(case: CaseState) -> tuple:
    place = RED.index(case.status) if case.red else len(RED)
    return (place, case.check, case.partition, case.environment, case.node)


def of_row(row: CaseRow, figures: list[FigureRecord], warnings: list[NoticeRecord]) -> CaseState:
    """Return the state of a test case, from its row of the history and its record."""
    names = ("system", "partition", "environment", "check", "node", "placement", "reason")
    case = CaseState(
        **{name: getattr(row, name) for name in names},
        status=row.result,
        waiver=row.waiver,
        nodes=row.nodes,
        session=row.session,
        time=row.time,
        warnings=warnings,
    )
    for fom in figures:
        case.counts[fom.verdict] += 1
        if fom.headline:
            case.headlines.append(_identity_of(fom))
        if fom.verdict in OUTSIDE:
            case.findings.append(_finding(fom))
        elif fom.verdict == "not-asserted":
            case.unasserted[fom.reason or "no reference"] += 1
        elif fom.near_bound:
            case.near_bound.append(_finding(fom))
    case.findings.sort(key=lambda finding: finding.beyond)
    case.near_bound.sort(key=lambda finding: finding.beyond)
    if case.status == "fail" and case.counts["above-ceiling"] and not case.counts["fail"]:
        case.status = "above-ceiling"
    if case.status == "pass" and figures and not case.counts["pass"]:
        # Nothing of it could have failed.
        case.status = "not-asserted"
    return case


def _finding(fom: FigureRecord) -> FigureState:
    value = fom.value
    bound: float | None
    if fom.verdict == "above-ceiling":
        bound = fom.ceiling
        distance = -abs(value - bound) / abs(bound) if bound else 0.0
    else:
        low = fom.better == "higher" or fom.upper is None
        bound = fom.lower if low else fom.upper
        margin = 0.0 if bound is None else (value - bound if low else bound - value)
        distance = margin / abs(bound) if bound else 0.0
    name = text.figure(fom.metric, fom.size, fom.location)
    return FigureState(name, value, fom.unit, fom.verdict, bound, distance, fom.reference or "",
                       fom.waiver or "", _identity_of(fom), fom.better)  # fmt: skip


def _identity_of(fom: FigureRecord) -> tuple:
    return (fom.metric, -1 if fom.size is None else fom.size, fom.location, fom.placement)


def _fill_since(
    cases: list[CaseState], history: History, chosen: Selection, swept: Mapping[str, str]
) -> None:
    """Set since when each red case is red without interruption.

    :arg swept: the node of each session of a sweep.
    """
    red = [case for case in cases if case.red]
    by_case: dict[tuple, dict[str, CaseRow]] = {}
    identities = {case.identity for case in red}
    for row in selected(lambda: history.cases(chosen, identities)) if red else ():
        if not row.attempt and row.result != "skip":
            of_sessions = by_case.setdefault(_place(row, swept), {})
            if row.result in RED or row.session not in of_sessions:
                of_sessions[row.session] = row
    for case in red:
        rows = by_case.get((*case.identity, case.swept), {}).values()
        for row in sorted(rows, key=lambda row: row.time, reverse=True):
            if row.result not in RED:
                break
            case.since, case.sessions = row.time, case.sessions + 1


def _of_repeats(cases: list[CaseState]) -> list[CaseState]:
    """Return one case for all repeats of each: the worst, with what was found in all of them.

    Waivers are applied before: one that covers the worst repeat need not cover the others.
    """
    found: dict[tuple, CaseState] = {}
    for case in sorted(cases, key=lambda case: WORST_FIRST.index(case.status)):
        worst = found.setdefault((case.identity, case.swept), case)
        if worst is case:
            continue
        if case.status == worst.status:
            worst.nodes = [*dict.fromkeys(worst.nodes + case.nodes)]
        worst.findings = _worst_of_each(worst.findings + case.findings)
        worst.near_bound = _worst_of_each(worst.near_bound + case.near_bound)
        worst.warnings = worst.warnings + case.warnings
        worst.headlines += case.headlines
        # The numbers are of figures, not of values.
        worst.counts |= case.counts
        worst.unasserted |= case.unasserted
    return [*found.values()]


def _worst_of_each(findings: list[FigureState]) -> list[FigureState]:
    """Return the worst of the findings of each figure and verdict, the worst first."""
    found: dict[tuple, FigureState] = {}
    for one in sorted(findings, key=lambda finding: finding.beyond):
        found.setdefault((one.identity, one.verdict), one)
    return [*found.values()]


def _inventory_name(identity: CaseId) -> str:
    """Return the name of a case in inventories."""
    system, partition, environment, check, _ = identity
    return f"{check} @{system}:{partition}+{environment}"


def _vanished(known: Inventory, cases: list[CaseState], ran: list[RanRow]) -> list[CaseState]:
    """Return the cases of earlier sessions that have not run recently."""
    current = {case.identity for case in cases}
    found = []
    for last in ran:
        expected = last.sessions >= USUAL or _inventory_name(last.identity) in known.all_cases
        if last.identity not in current and expected:
            reason = (
                f"it was in {last.sessions} sessions, the last of them {last.session}, and in none "
                f"of the last {WINDOW.astype(int)} days"
            )
            found.append(CaseState(*last.identity, last.placement, "vanished", reason,
                                   session=last.session, time=last.time, late=True))  # fmt: skip
    return found


def _never_run(system: str, known: Inventory, run: set[CaseId]) -> Iterator[CaseState]:
    """Yield the cases of the inventory that no session ran, which only a whole history tells."""
    # Not `every`: cases of published scale run only on request.
    for name in sorted(known.cases.keys() - {*map(_inventory_name, run)}):
        check, _, place = name.rpartition(" @")
        partition, _, environment = place.partition(":")[2].partition("+")
        yield CaseState(
            system, partition, environment, check, "", "", "never-run",
            f"the inventory has it, but no session of the last {BACK.days} days ran it", late=True,
        )  # fmt: skip
