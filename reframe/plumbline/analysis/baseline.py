"""Site baselines: from a facility's own records to reference rows."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from plumbline.analysis.stats import MAD_TO_STD
from plumbline.check.record import Record
from plumbline.check.states import WARNINGS
from plumbline.core import paths
from plumbline.core.text import counted
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.parse import Figure
from plumbline.reference import lookup
from plumbline.reference.row import Case, Row
from plumbline.reference.tables import SITE, key_of
from plumbline.reference.tolerance import Baseline, Tolerance

#: Sessions beyond so many robust spreads are drawn in to there, from so many sessions on.
_FAR, _FAR_FROM = 5, 10

#: Most sessions that are said to be still wanting.
_MOST = 100


def records_of(system: str, history: History, last: int) -> list[Record]:
    """The records of a system that a baseline may come from, oldest session first: of each test
    case, the newest sessions that passed with its newest build.

    :arg last: how many of them are wanted; three times as many are looked at, since some may have
        measured otherwise.
    :raises Fault: if there is none of the system.
    """
    cases = defaultdict(list)
    for row in history.cases(Selection(system=system)):
        if row.result == "pass":
            cases[row.case].append(row)
    sessions = set()
    for rows in cases.values():
        same = dict.fromkeys(row.session for row in rows if row.build == rows[-1].build)
        sessions |= {*[*same][-3 * last :]}
    if not sessions:
        return []
    return list(history.records(Selection(system=system, sessions=tuple(sorted(sessions)))))


def waived(system: str, history: History, last: int) -> list[str]:
    """The test cases of a system that were waived in their newest sessions, which no baseline may
    come from: a known fault would be its own reference.

    :arg last: how many sessions of a case are looked at.
    """
    found: dict[str, list] = defaultdict(list)
    for row in history.cases(Selection(system=system)):
        found[f"{row.check} @{row.partition}+{row.environment}"].append(row.result == "waived")
    return [
        f"{name}: {counted(sum(cases[-last:]), 'time')}"
        for name, cases in found.items()
        if any(cases[-last:])
    ]


#: What two records must have in common to be of one measurement.
_SAME = ("build", "conditions", "samples", "warmups", "placement")


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A row that a baseline would have.

    :ivar case: what it would be held against.
    :ivar more: how many more sessions would let its bound lie where its noise alone puts it.
    """

    row: Row
    case: Case
    more: int


def propose(
    system: str, records: Iterable[Record], rules: Baseline, last: int
) -> tuple[list[Proposal], dict[str, list[str]]]:
    """Baseline rows, median and spread over the sessions; and what was left out: reason -> cases or
    figures.

    Only sessions that passed count, and only those that measured as the newest of the case did:
    with its build, conditions and samples, and on a system `local` on its host. A session counts
    once, with the median of its cases. What a busy machine measured is no baseline, nor what was
    measured while standard error told of a fault: it would be its own reference.

    :arg last: how many sessions of a case count, the newest.
    """
    cases: dict[str, list[Record]] = defaultdict(list)
    unfit: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fields in records:
        if fields.foms and fields.result == "pass":
            if reason := _unfit(fields):
                unfit[reason, _name(fields)].add(fields.session)
            else:
                cases[fields.case].append(fields)
    found: dict[tuple, Proposal] = {}
    left_out: dict[str, list[str]] = defaultdict(list)
    for (reason, name), sessions in unfit.items():
        left_out[reason].append(f"{name}: {counted(len(sessions), 'session')}")
    for runs in cases.values():
        newest = runs[-1]
        same = [run for run in runs if _alike(run, newest)]
        sessions = [*dict.fromkeys(run.session for run in same)][-last:]
        same = [run for run in same if run.session in sessions]
        name = _name(newest)
        if not newest.tasks:
            left_out["its records do not tell where its tasks ran"].append(name)
            continue
        if len(sessions) < rules.sessions:
            reason = (
                f"fewer than {rules.sessions} sessions that passed and measured as its newest did "
                f"(build, conditions, samples)"
            )
            left_out[reason].append(f"{name}: {counted(len(sessions), 'session')}")
            continue
        measured = Counter(
            figure
            for session in sessions
            for figure in {f for run in same if run.session == session for f in _figures(run)}
        )
        missing = [f.variable for f, count in measured.items() if count < len(sessions)]
        left_out["not measured in every session"] += [f"{name}: {f}" for f in missing]
        for proposal, reason in _proposals_of(system, newest, same, sessions, rules):
            if reason:
                wanted = f" ({proposal.more} more)" if reason.endswith("run more") else ""
                left_out[reason].append(f"{proposal.row.id}{wanted}")
            elif key_of(proposal.row) in found:
                left_out["measured by another check too"].append(proposal.row.id)
            else:
                found[key_of(proposal.row)] = proposal
    return list(found.values()), {reason: names for reason, names in left_out.items() if names}


def _unfit(fields: Record) -> str:
    """Why a record that passed may not be part of a baseline; empty where it may.

    Of the warning states, two are no reason: an unstable sample does not move the median, and a
    suspicious value may be that of a machine better than its reference, which a baseline mends.
    """
    if fields.busy:
        return "measured while other processes ran on the same cores"
    if any(notice.state == WARNINGS for notice in fields.warnings):
        return "measured with warnings on standard error"
    return ""


def _figures(run: Record) -> list[Figure]:
    return [fom.figure for fom in run.foms]


def _name(fields: Record) -> str:
    return f"{fields.check} @{fields.partition}+{fields.environment}"


def _alike(run: Record, newest: Record) -> bool:
    same_host = newest.system != "local" or run.nodes == newest.nodes
    return same_host and all(getattr(run, name) == getattr(newest, name) for name in _SAME)


def spread_of(values: list[float]) -> tuple[float, float]:
    """Median and standard deviation of sessions' values, those far out drawn in."""
    middle = statistics.median(values)
    if len(values) >= _FAR_FROM:
        far = _FAR * MAD_TO_STD * statistics.median(abs(value - middle) for value in values)
        values = np.clip(values, middle - far, middle + far).tolist()
    return middle, statistics.stdev(values)


def widening(sessions: int, rule: Tolerance, rules: Baseline) -> float:
    """What the spread of so few sessions is multiplied with, so that the next session of a healthy
    system lies beyond the bound no more often than is allowed, where the noise is normal.

    The distance of a new value from the median of n has the variance 1 + pi/2n; its ratio to the
    standard deviation of the n is Student's, with n - 1 degrees of freedom.
    """
    # It takes longer to load than all else here, and only this needs it.
    from scipy import stats

    if not rule.spreads:
        return 1.0
    allowed = stats.t.isf(rules.alarms, sessions - 1) * math.sqrt(1 + math.pi / (2 * sessions))
    return max(1.0, float(allowed) / rule.spreads)


def _more(sessions: int, least: float, spread: float, rule: Tolerance, rules: Baseline) -> int:
    """How many more sessions would let the bound lie at the least distance of its class, or within
    a quarter of where the same spread of very many would put it."""
    enough = max(least, 1.25 * rule.spreads * spread)
    for more in range(_MOST):
        if rule.spreads * widening(sessions + more, rule, rules) * spread <= enough:
            return more
    return _MOST


def _proposals_of(
    system: str, newest: Record, runs: list[Record], sessions: list[str], rules: Baseline
) -> Iterator[tuple[Proposal, str]]:
    """The rows of a test case, each with the reason why it is left out, or none."""
    tables = lookup.loaded(paths.reference())
    values: dict[tuple, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for fom in run.foms:
            figure = fom.metric, fom.size, fom.at, fom.placement, fom.unit
            values[figure][run.session] += fom.samples
    per_node = Counter(task.host for task in newest.tasks)
    conditions = {**newest.conditions}
    if system == "local":
        conditions["host"] = newest.nodes[0]
    for (metric, size, at, placement, unit), by_session in values.items():
        if len(by_session) < len(sessions):
            continue
        here = {**conditions, **({"at": at} if at else {})}
        case = Case(
            system,
            newest.partition,
            newest.environment,
            newest.benchmark,
            placement,
            len(per_node),
            max(per_node.values()),
            here,
        )
        rule = tables.rule(tables.fom(case.benchmark, metric))
        row, more = _row(newest, case, (metric, size, at, unit), by_session, rule, rules)
        yield Proposal(row, case, more), _left_out(row, more, rule, rules)


def _row(
    newest: Record,
    case: Case,
    figure: tuple[str, int | None, str, str],
    by_session: dict[str, list[float]],
    rule: Tolerance,
    rules: Baseline,
) -> tuple[Row, int]:
    """A figure's row; and how many more sessions it wants."""
    metric, size, at, unit = figure
    here = {"partition": case.partition, **case.conditions}
    note, more, count = "", 0, len(by_session)
    if rule.distribution:
        single = [sample for found in by_session.values() for sample in found]
        middle, spread = statistics.fmean(single), statistics.stdev(single)
        statistic, here["runs"] = "mean", str(len(single))
    else:
        middle, spread = spread_of([statistics.median(found) for found in by_session.values()])
        statistic, factor = "median", widening(count, rule, rules)
        more = _more(count, rule.floor * middle, spread, rule, rules)
        if factor > 1 and spread:
            note = f"spread of {count} sessions {spread:.3g}, widened by {factor:.3g} for so few"
        spread *= factor
    what = [case.environment, newest.check.split()[0], metric, size, at or None]
    told = [str(part) for part in [case.system, case.partition, *what] if part is not None]
    told += [case.placement, *newest.conditions.values()]
    row = Row(
        id="-".join(told),
        source=SITE,
        locator=f"{statistic} of {count} sessions",
        system=case.system,
        toolchain=case.environment,
        benchmark=case.benchmark,
        metric=metric,
        placement=case.placement,
        message_size=size,
        nodes=case.nodes,
        ppn=case.ppn,
        conditions=here,
        value=float(f"{middle:.6g}"),
        spread=float(f"{min(spread, middle):.3g}"),
        unit=unit,
        statistic=statistic,
        kind="measured",
        note=note,
        sessions=" ".join(by_session),
        date=newest.time[:10],
    )
    return row, more


def _left_out(row: Row, more: int, rule: Tolerance, rules: Baseline) -> str:
    """Why a row is no baseline, empty if it is one."""
    if rule.distribution or row.spread <= rules.noise * row.value:
        return ""
    if rule.better != "neither" and row.note and more:
        return f"spread above {rules.noise:.0%} as widened for so few sessions: run more"
    return f"spread above {rules.noise:.0%}"
