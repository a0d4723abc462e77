"""How each system stands: of every test case the latest result, and what is to be said of it."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from plumbline.check.record import FigureRecord, NoticeRecord
from plumbline.core.errors import Fault
from plumbline.history.history import CaseRow, History, SessionRow
from plumbline.history.series import Selection
from plumbline.output.report import text
from plumbline.site import inventory

#: Results and verdicts that somebody should look at today.
RED = ("fail", "above-ceiling", "invalid", "error", "aborted", "unfinished", "vanished")
#: Cases not measured in the latest session still stand as they last did, for so long.
WINDOW = np.timedelta64(7, "D")
#: How far back is looked for the night since which a case is red.
BACK = datetime.timedelta(days=60)
#: For so long after its last sign of life, a session without an end is taken to run.
RUNS = datetime.timedelta(hours=24)
#: Further ahead than this, a session's clock was wrong.
AHEAD = datetime.timedelta(hours=1)
#: Sessions of a system that a case must have been in, before it is missed.
USUAL = 3


@dataclass
class FigureState:
    """One figure of a test case that is red, waived, or near its bound.

    :ivar beyond: relative distance to the bound, negative outside of it.
    :ivar about: metric, size, place and placement.
    """

    name: str
    value: float
    unit: str
    verdict: str
    bound: float | None
    beyond: float
    reference: str
    waiver: str
    about: tuple


@dataclass
class CaseState:
    """A test case as it stands.

    :ivar status: its result; or ``above-ceiling``; or ``not-asserted``, where it passed and nothing
        was asserted; or ``vanished``, that is, sessions ran it and no longer do; or ``never-run``.
    :ivar warnings: what should be looked at, as its record has it.
    :ivar since: end of the first of the sessions in a row that it is red in.
    :ivar sessions: how many those are.
    :ivar late: it is not of its system's latest session.
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
    near: list[FigureState] = field(default_factory=list)
    warnings: list[NoticeRecord] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)
    unasserted: Counter = field(default_factory=Counter)
    headlines: list[tuple] = field(default_factory=list)
    since: np.datetime64 | None = None
    sessions: int = 0
    late: bool = False

    @property
    def identity(self) -> tuple:
        return self.system, self.partition, self.environment, self.check, self.node

    @property
    def red(self) -> bool:
        return self.status in RED


@dataclass
class Standing:
    """A system as it stands.

    :ivar missing: planned cases of the latest session that no record tells of.
    :ivar running: whether the latest session seems to run still.
    :ivar old: hours since the latest session ended, where that is too long ago.
    :ivar ahead: whether the latest session is of the future.
    """

    system: str
    latest: SessionRow
    cases: list[CaseState]
    missing: int
    running: bool
    old: float | None
    ahead: bool

    def having(self, *statuses: str) -> list[CaseState]:
        return [case for case in self.cases if case.status in statuses]

    @property
    def red(self) -> list[CaseState]:
        return [case for case in self.cases if case.red]

    @property
    def waived(self) -> list[CaseState]:
        return [case for case in self.cases if case.status == "waived" or case.counts["waived"]]

    @property
    def near(self) -> list[CaseState]:
        return [case for case in self.cases if case.near]

    @property
    def noticed(self) -> list[CaseState]:
        return [case for case in self.cases if case.warnings]

    @property
    def states(self) -> Counter:
        """How many cases have a warning of each state."""
        return Counter(state for case in self.cases for state in {w.state for w in case.warnings})

    @property
    def unasserted(self) -> list[CaseState]:
        return [case for case in self.cases if case.unasserted]

    @property
    def results(self) -> Counter:
        return Counter(case.status for case in self.cases)


def of_all(
    history: History,
    sessions: list[SessionRow],
    select: Selection,
    now: datetime.datetime,
    stale: datetime.timedelta,
) -> list[Standing]:
    """How each system stands, those with something red first.

    :arg sessions: those of the selection, oldest first.
    :arg stale: age from which a latest session is old.
    """
    by_system: dict[str, list[SessionRow]] = {}
    for row in sessions:
        by_system.setdefault(row.system, []).append(row)
    found = [
        _of_system(history, system, rows, select, now, stale) for system, rows in by_system.items()
    ]
    return sorted(found, key=lambda one: (not one.red, one.system))


def _of_system(history, system, rows, select, now, stale) -> Standing:
    latest = max(rows, key=lambda row: row.end)
    recent = [row.session for row in rows if row.end >= latest.end - WINDOW]
    chosen = dataclasses.replace(select, system=_literal(system), sessions=tuple(recent))
    order = {name: place for place, name in enumerate(recent)}
    newest: dict[tuple, CaseRow] = {}
    for row in cases_of(history, chosen):
        # A retry never replaces the first verdict of its session.
        rank = (order[row.session], -row.attempt)
        known = newest.get(_identity(row))
        if known is None or rank > (order[known.session], -known.attempt):
            newest[_identity(row)] = row
    rows = {(row.session, row.case, row.attempt): row for row in newest.values()}
    told = {about: of_row(row, [], []) for about, row in rows.items()}
    chosen = dataclasses.replace(chosen, sessions=tuple({session for session, *_ in rows}))
    for about, foms, warnings in _figures(history, chosen) if rows else ():
        if about in rows:
            told[about] = of_row(rows[about], foms, warnings)
    cases = list(told.values())
    for case in cases:
        case.late = case.session != latest.session
    since = (latest.end - np.timedelta64(BACK)).astype(datetime.datetime)
    since = since.replace(tzinfo=datetime.timezone.utc)
    chosen = dataclasses.replace(
        select, system=_literal(system), since=max(filter(None, (select.since, since)))
    )
    listed = cases_of(history, chosen)
    _tell_since(cases, listed)
    cases += _vanished(system, cases, listed, latest)
    past = age(latest, now)
    old = past.total_seconds() / 3600 if past > stale else None
    return Standing(
        system, latest, sorted(cases, key=_order), missing(latest, select),
        running(history, latest, select, now), old, past < -AHEAD,
    )  # fmt: skip


def age(row: SessionRow, now: datetime.datetime) -> datetime.timedelta:
    """How long ago a session ended, or gave its last sign of life."""
    return now.astimezone(datetime.timezone.utc).replace(tzinfo=None) - row.end.astype(
        datetime.datetime
    )


def missing(row: SessionRow, select: Selection) -> int:
    """Planned cases of a session that no record tells of; none is told where the selection leaves
    cases out."""
    names = ("partition", "environment", "check", "benchmark", "metric", "placement", "node")
    if any(getattr(select, name) for name in names):
        return 0
    return max(0, row.planned - row.ended)


def running(history: History, row: SessionRow, select: Selection, now: datetime.datetime) -> bool:
    """Whether a session seems to run still: cases are missing, it wrote no end, and its last sign
    of life is not old."""
    return bool(missing(row, select)) and age(row, now) < RUNS and bool(history.unended([row]))


def cases_of(history: History, chosen: Selection) -> list[CaseRow]:
    """The cases of a selection, none of sessions that were cut off before the first ended."""
    try:
        return history.cases(chosen)
    except Fault:
        return []


def _identity(row: CaseRow) -> tuple:
    return row.system, row.partition, row.environment, row.check, row.node


def _figures(history: History, chosen: Selection) -> Iterator[tuple[tuple, list, list]]:
    """Session, case and attempt of each case, its figures and its warnings, from the records."""
    if history.source.is_file():
        yield from ((about, foms, []) for about, foms in _from_series(history, chosen).items())
        return
    for fields in history.records(chosen):
        about = (fields.session, fields.case, fields.attempt)
        yield about, fields.foms, fields.warnings


def _from_series(history: History, chosen: Selection) -> dict[tuple, list[FigureRecord]]:
    """As much of the figures as a CSV file tells: neither headlines nor the warning band."""
    cases = {(row.session, *_identity(row)): row for row in history.cases(chosen)}
    found: dict[tuple, list[FigureRecord]] = {}
    try:
        series = history.series(chosen, samples=False)
    except Fault:
        return found
    for one in series:
        key = one.key
        about = (key.system, key.partition, key.environment, key.check, key.node)
        for at, session in enumerate(one.sessions):
            row = cases[(str(session), *about)]
            bounds = {
                name: None if np.isnan(getattr(one, name)[at]) else float(getattr(one, name)[at])
                for name in ("lower", "upper", "ceiling")
            }
            fom = FigureRecord.model_construct(
                metric=key.metric, size=None if key.size < 0 else key.size, at=key.at,
                placement=key.placement, value=float(one.values[at]), unit=one.unit,
                verdict=str(one.verdicts[at]), better=one.better, near=False,
                reference=str(one.references[at]), waiver=row.waiver, reason="",
                headline=False, **bounds,
            )  # fmt: skip
            found.setdefault((row.session, row.case, row.attempt), []).append(fom)
    return found


def _literal(name: str) -> str:
    """A name as a pattern that matches only it."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _order(case: CaseState) -> tuple:
    place = RED.index(case.status) if case.red else len(RED)
    return (place, case.check, case.partition, case.environment, case.node)


def of_row(row: CaseRow, figures: list[FigureRecord], warnings: list[NoticeRecord]) -> CaseState:
    """A test case as the history has it, with its figures and warnings as records have them."""
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
            case.headlines.append(_about(fom))
        if fom.verdict in ("fail", "above-ceiling", "waived"):
            case.findings.append(_finding(fom))
        elif fom.verdict == "not-asserted":
            case.unasserted[fom.reason or "no reference for it"] += 1
        elif fom.near:
            case.near.append(_finding(fom))
    case.findings.sort(key=lambda finding: finding.beyond)
    case.near.sort(key=lambda finding: finding.beyond)
    if case.status == "fail" and case.counts["above-ceiling"] and not case.counts["fail"]:
        case.status = "above-ceiling"
    if case.status == "pass" and figures and not case.counts["pass"]:
        # Nothing that could have failed: no pass.
        case.status = "not-asserted"
    return case


def _finding(fom: FigureRecord) -> FigureState:
    value = fom.value
    if fom.verdict == "above-ceiling":
        bound = fom.ceiling
        distance = -abs(value - bound) / abs(bound) if bound else 0.0
    else:
        low = fom.better == "higher" or fom.upper is None
        bound = fom.lower if low else fom.upper
        away = 0.0 if bound is None else (value - bound if low else bound - value)
        distance = away / abs(bound) if bound else 0.0
    name = text.figure(fom.metric, fom.size, fom.at)
    return FigureState(name, value, fom.unit, fom.verdict, bound, distance,
                   fom.reference or "", fom.waiver or "", _about(fom))  # fmt: skip


def _about(fom: FigureRecord) -> tuple:
    return (fom.metric, -1 if fom.size is None else fom.size, fom.at, fom.placement)


def _tell_since(cases: list[CaseState], listed: list[CaseRow]) -> None:
    """Fills in since when each red case is red, without a break."""
    by_case: dict[tuple, list[CaseRow]] = {}
    for row in listed:
        if not row.attempt and row.result != "skip":
            by_case.setdefault(_identity(row), []).append(row)
    for case in cases:
        if not case.red:
            continue
        rows = sorted(by_case.get(case.identity, ()), key=lambda row: row.time)
        for row in reversed(rows):
            if row.result not in RED:
                break
            case.since, case.sessions = row.time, case.sessions + 1


def _listed(identity: tuple) -> str:
    """A case as inventories list it."""
    system, partition, environment, check, _ = identity
    return f"{check} @{system}:{partition}+{environment}"


def _vanished(
    system: str, cases: list[CaseState], listed: list[CaseRow], latest
) -> list[CaseState]:
    """Cases that should be there and are not: of the inventory, or of sessions before."""
    seen: dict[tuple, list[CaseRow]] = {}
    for row in listed:
        seen.setdefault(_identity(row), []).append(row)
    there = {case.identity for case in cases}
    known = inventory.read(system) or inventory.Inventory()
    found = [
        CaseState(*identity, rows[-1].placement, "vanished",
             f"it was in {len({row.session for row in rows})} sessions, the last of them "
             f"{rows[-1].session}, and in none of the last {WINDOW.astype(int)} days",
             session=rows[-1].session, time=rows[-1].time, late=True)
        for identity, rows in seen.items()
        if identity not in there
        and (len({row.session for row in rows}) >= USUAL or _listed(identity) in known.every)
    ]  # fmt: skip
    # At published scale, what is not asked for is not missed.
    for name in sorted(known.cases.keys() - {_listed(identity) for identity in (*seen, *there)}):
        check, _, place = name.rpartition(" @")
        partition, _, environment = place.partition(":")[2].partition("+")
        found.append(CaseState(system, partition, environment, check, "", "", "never-run",
                          "the inventory has it, and no session of the last "
                          f"{BACK.days} days ran it", late=True))  # fmt: skip
    return found
