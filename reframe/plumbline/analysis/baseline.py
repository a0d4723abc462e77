"""Site baselines: reference rows from a facility's own records."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np

from plumbline.analysis.distributions import chi2_isf, t_isf
from plumbline.analysis.stats import MAD_TO_STD
from plumbline.check.record import Record, case_name, short_name
from plumbline.check.states import WARNINGS
from plumbline.core import paths, units
from plumbline.core.text import base_name, pluralize
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.parse import Figure
from plumbline.reference import lookup
from plumbline.reference.row import PLAIN, SETVAR, SITE, Case, Row, key_of
from plumbline.reference.tolerance import Baseline, Tolerance, Tolerances

#: Sessions are clipped at so many robust standard deviations, from so many sessions on.
_FAR, _FAR_FROM = 5, 10
#: Message sizes on each side whose noise is compared with a size's own: the median of five spreads
#: follows noise that changes with the size, and one that is small by chance does not matter.
_NEXT = 2
#: Upper limit of the number of further sessions that is reported.
_MOST = 100
#: Why a test case or figure gets no row: reason code -> its message.
REASONS = {
    "baseline.waived": "waived: a known fault is no baseline",
    "baseline.busy": "measured while others used the same cores or network",
    "baseline.warnings": "measured with warnings",
    "baseline.figure-failed": "a figure failed, although the case passed (ReFrame's strict_check)",
    "baseline.figure-warnings": "not measured, or with a warning about the figure",
    "baseline.no-bounds": "no bounds can be derived",
    "baseline.no-hosts": "its records do not have the hosts of its tasks",
    "baseline.too-few-sessions": "too few sessions passed with the build, conditions and samples "
    "of the newest",
    "baseline.not-in-each-session": "not measured in every session",
    "baseline.too-noisy": "its spread is too large for a bound",
    "baseline.too-noisy-yet": "its spread, widened for so few sessions, is too large for a bound: "
    "run more",
    "baseline.measured-twice": "measured by another check too",
}
#: What records of the same measurement have in common.
_SAME = ("build", "conditions", "samples", "warmups", "placement")


def records_of(system: str, history: History, last: int) -> list[Record]:
    """Return the records of a system that a baseline may use, oldest session first.

    These are, for each test case, the newest sessions in which its first attempt passed with its
    newest build.

    :arg last: number of sessions that are needed. Three times as many are returned, since some may
        have measured something else.
    :raises Fault: if the system has none.
    """
    cases = defaultdict(list)
    for row in history.cases(Selection(system=system)):
        if row.result == "pass" and not row.attempt:
            cases[row.case].append(row)
    sessions = set()
    for rows in cases.values():
        same = dict.fromkeys(row.session for row in rows if row.build == rows[-1].build)
        sessions |= {*[*same][-3 * last :]}
    if not sessions:
        return []
    return list(history.records(Selection(system=system, sessions=tuple(sorted(sessions)))))


def waived(system: str, history: History, last: int) -> list[str]:
    """Return the test cases of a system that were waived in their newest sessions.

    A baseline must not use them: a known fault would become its own reference.

    :arg last: number of sessions of a case that are checked.
    """
    found: dict[str, list[bool]] = defaultdict(list)
    for row in history.cases(Selection(system=system)):
        if not row.attempt:
            found[short_name(row)].append(row.result == "waived")
    return [
        f"{name}: {pluralize(sum(cases[-last:]), 'time')}"
        for name, cases in found.items()
        if any(cases[-last:])
    ]


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A row that a baseline would have.

    :ivar case: the test case that it applies to.
    :ivar more: how many more sessions would make its bound as tight as its noise allows.
    """

    row: Row
    case: Case
    more: int


def propose(
    system: str, records: Iterable[Record], rules: Baseline, last: int
) -> tuple[list[Proposal], dict[str, list[str]]]:
    """Return baseline rows, and what was skipped: key of :data:`REASONS` -> cases or figures.

    A row is the median and the spread over sessions. Only first attempts that passed count, with
    the build, conditions and samples of the newest of the case (on the system `local` also its
    host). A session counts once, with the median of its cases. Measurements on a busy machine, or
    with warnings on standard error, are skipped, and so are figures that a warning is about: a
    fault would become its own reference.

    :arg last: how many of the newest sessions of a case count.
    """
    cases: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    unusable: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fields in records:
        if fields.foms and fields.result == "pass" and not fields.attempt:
            if reason := _unusable(fields):
                unusable[reason, _name(fields)].add(fields.session)
            else:
                # The same on all nodes of --distribute, and each time of --repeat.
                name = case_name(
                    base_name(fields.check), system, fields.partition, fields.environment
                )
                case = name, *_settings(fields)
                cases[case].append(fields)
    found: dict[tuple[object, ...], Proposal] = {}
    skipped: dict[str, list[str]] = defaultdict(list)
    for (reason, name), of_case in unusable.items():
        skipped[reason].append(f"{name}: {pluralize(len(of_case), 'session')}")
    for runs in cases.values():
        newest = runs[-1]
        same = [run for run in runs if _alike(run, newest)]
        sessions = [*dict.fromkeys(run.session for run in same)][-last:]
        same = [run for run in same if run.session in sessions]
        name = _name(newest)
        if not (newest.tasks or newest.plain):
            skipped["baseline.no-hosts"].append(name)
            continue
        if len(sessions) < rules.sessions:
            count = f"{len(sessions)} of {rules.sessions} sessions"
            skipped["baseline.too-few-sessions"].append(f"{name}: {count}")
            continue
        seen = {(run.session, fom.figure.variable, fom.unit): 0 for run in same for fom in run.foms}
        measured = Counter((figure, unit) for _, figure, unit in seen)
        doubted = _doubted(same)
        skipped["baseline.figure-warnings"] += [
            f"{name}: {figure}: {pluralize(len(found_in), 'session')}"
            for figure, found_in in doubted.items()
        ]
        missing = [
            f"{figure} in {unit}"
            for (figure, unit), count in measured.items()
            if count < len(sessions) and figure not in doubted
        ]
        skipped["baseline.not-in-each-session"] += [f"{name}: {f}" for f in missing]
        unfit = _unfit(newest)
        for metric, reason in unfit.items():
            skipped["baseline.no-bounds"].append(f"{name}: {metric}: {reason}")
        without = {*unfit, *doubted}
        for proposal, reason in _proposals_of(system, newest, same, sessions, rules, without):
            if reason:
                skipped[reason].append(f"{proposal.row.id} ({_noise(proposal, reason, rules)})")
            elif key_of(proposal.row) in found:
                skipped["baseline.measured-twice"].append(proposal.row.id)
            else:
                found[key_of(proposal.row)] = proposal
    return list(found.values()), {reason: names for reason, names in skipped.items() if names}


def _unusable(fields: Record) -> str:
    """Return the code of why a record that passed is not used for a baseline; empty if it is.

    Two warning states are accepted. An unstable sample does not change the median. A suspicious
    value may be of a machine that is better than its reference, which a baseline corrects.
    """
    if fields.busy:
        return "baseline.busy"
    if any(fom.verdict == "fail" for fom in fields.foms):
        return "baseline.figure-failed"
    if any(notice.state == WARNINGS and not notice.figure for notice in fields.warnings):
        return "baseline.warnings"
    return ""


def _doubted(runs: Iterable[Record]) -> dict[str, set[str]]:
    """Return the figures that warnings are about, each with the sessions."""
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for notice in run.warnings:
            if notice.state == WARNINGS and notice.figure:
                found[notice.figure].add(run.session)
    return found


def _name(fields: Record) -> str:
    return short_name(fields) + "".join(f" -S {setting}" for setting in _settings(fields))


def _settings(fields: Record) -> list[str]:
    """Return what ``-S`` set in a plain check, which with other values is another case."""
    conditions = sorted(fields.conditions.items())
    return [
        f"{key.removeprefix(SETVAR)}={value}" for key, value in conditions if key.startswith(SETVAR)
    ]


def _alike(run: Record, newest: Record) -> bool:
    same_host = newest.system != "local" or run.nodes == newest.nodes
    return same_host and all(getattr(run, name) == getattr(newest, name) for name in _SAME)


def spread_of(values: list[float]) -> tuple[float, float]:
    """Return the median and the standard deviation of sessions' values, outliers clipped."""
    middle = statistics.median(values)
    if len(values) >= _FAR_FROM:
        limit = _FAR * MAD_TO_STD * statistics.median(abs(value - middle) for value in values)
        values = np.clip(values, middle - limit, middle + limit).tolist()
    return middle, statistics.stdev(values)


def raised(spreads: dict[Figure, float], sessions: int, rules: Baseline) -> dict[Figure, float]:
    """Return the relative spreads that are small by chance, raised.

    In noise of 8 %, three sessions are close enough to each other for a bound at one message size
    in 26, and there the next session fails in 23 of 1,000 cases, not in one. The sizes next to it
    have much the same noise. So a spread is at least the median of its own and of those of the next
    sizes, unless its own sessions exclude that: the ratio of their variance to the true one is
    chi-squared.

    :arg spreads: of the figures of one test case.
    """
    degrees = sessions - 1
    most = math.sqrt(degrees / float(chi2_isf(1 - rules.alarms, degrees)))
    by_metric: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    for figure in sorted(spreads, key=lambda figure: figure.size or 0):
        by_metric[figure.metric, figure.location].append(figure)
    found = {}
    for figures in by_metric.values():
        for at, figure in enumerate(figures):
            near = figures[max(0, at - _NEXT) : at + _NEXT + 1]
            usual = statistics.median(spreads[one] for one in near)
            if usual > spreads[figure]:
                found[figure] = min(usual, most * spreads[figure])
    return found


def widening(sessions: int, rule: Tolerance, rules: Baseline) -> float:
    """Return the factor on the spread of a few sessions.

    With it, the next session of a healthy system lies beyond the bound no more often than allowed,
    if the noise is normal. The distance of a new value from the median of n has the variance
    1 + pi/2n. Its ratio to the standard deviation of the n is Student's, with n - 1 degrees of
    freedom.
    """
    if not rule.spreads:
        return 1.0
    allowed = t_isf(rules.alarms, sessions - 1) * math.sqrt(1 + math.pi / (2 * sessions))
    return max(1.0, float(allowed) / rule.spreads)


def _sessions_needed(
    sessions: int, least: float, spread: float, rule: Tolerance, rules: Baseline
) -> int:
    """Return how many more sessions would bring the bound to the least distance of its class, or
    within a quarter of its limit for very many sessions of the same spread."""
    enough = max(least, 1.25 * rule.spreads * spread)
    for more in range(_MOST):
        if rule.spreads * widening(sessions + more, rule, rules) * spread <= enough:
            return more
    return _MOST


def _proposals_of(
    system: str,
    newest: Record,
    runs: list[Record],
    sessions: list[str],
    rules: Baseline,
    without: set[str],
) -> Iterator[tuple[Proposal, str]]:
    """Yield the rows of a test case, each with the reason why it is skipped, or an empty one.

    :arg without: names of figures that give no row.
    """
    tables = lookup.loaded(paths.reference())
    values: dict[tuple[Figure, str, str], dict[str, list[float]]]
    values = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for fom in run.foms:
            values[fom.figure, fom.placement, fom.unit][run.session] += fom.samples
    per_node = Counter(task.host for task in newest.tasks)
    conditions = {**newest.conditions}
    if system == "local":
        conditions["host"] = newest.nodes[0]
    whole = {
        key: by_session
        for key, by_session in values.items()
        if len(by_session) == len(sessions) and key[0].variable not in without
    }
    noise = _noise_of(whole, len(sessions), rules)
    for (figure, placement, unit), by_session in whole.items():
        here = conditions | ({"location": figure.location} if figure.location else {})
        case = Case(
            system,
            newest.partition,
            newest.environment,
            _benchmark(newest),
            placement,
            len(per_node),
            max(per_node.values(), default=0),
            here,
        )
        entry = tables.fom(case.benchmark, figure.metric)
        rule = tables.rule(entry)
        least = noise.get((figure, placement, unit), 0.0)
        row, more = _row(newest, case, figure, unit, by_session, rule, rules, least)
        if (case.benchmark, figure.metric) in tables.tables.derived:
            row = _with_class(row, entry.tolerance, tables.tables.rules)
        if newest.plain:
            row = _of_plain(row, newest, entry.tolerance)
        yield Proposal(row, case, more), _skipped(row, more, rule, rules)


def _noise_of(
    values: dict[tuple[Figure, str, str], dict[str, list[float]]], sessions: int, rules: Baseline
) -> dict[tuple[Figure, str, str], float]:
    """Return the relative spreads of a test case by :func:`raised`, for each placement and unit."""
    spreads: dict[tuple[str, str], dict[Figure, float]] = defaultdict(dict)
    for (figure, placement, unit), by_session in values.items():
        middle, spread = spread_of([statistics.median(found) for found in by_session.values()])
        spreads[placement, unit][figure] = spread / middle if middle else 0.0
    return {
        (figure, *where): spread
        for where, of_figures in spreads.items()
        for figure, spread in raised(of_figures, sessions, rules).items()
    }


def _benchmark(fields: Record) -> str:
    """Return the benchmark of a row: of a plain check, its name with parameters."""
    return PLAIN + base_name(fields.check) if fields.plain else fields.benchmark or ""


def _unfit(newest: Record) -> dict[str, str]:
    """Register the figures of a site's own check as its record has them: a plain check's by their
    units. Return why some of a plain check cannot be: metric -> reason."""
    tables, found = lookup.loaded(paths.reference()).tables, {}
    tables.allow(newest.conditions)
    for fom in newest.foms:
        tolerance = fom.tolerance or tables.rules.of_unit(fom.unit, fom.better)
        entry = tables.register(_benchmark(newest), fom.metric, fom.unit, tolerance)
        if not newest.plain:
            continue
        if fom.better == "neither":
            found[fom.metric] = (
                "neither the unit shows which values are better, nor a reference of the check with "
                "one open side"
            )
        elif fom.value <= 0:
            found[fom.metric] = "its value is not above zero"
        elif not units.convertible(fom.unit, entry.unit):
            found[fom.metric] = (
                f"the unit {fom.unit!r} cannot be converted to {entry.unit!r} of its other rows"
            )
    return found


def _with_class(row: Row, tolerance: str, rules: Tolerances) -> Row:
    """Return the row with the class of its figure, if its unit does not show it: later sessions may
    be without the check that declares it."""
    if rules.of_unit(row.unit, units.better(row.unit)) == tolerance:
        return row
    return row.model_copy(update={"conditions": {**row.conditions, "class": tolerance}})


def _of_plain(row: Row, newest: Record, tolerance: str) -> Row:
    """Return the row of a plain check: known by its name, in any number of nodes and tasks."""
    by = "the check's own reference" if "class" in row.conditions else f"its unit {row.unit}"
    name = "-".join([base_name(newest.check).replace(" %", "-"), *_settings(newest)])
    partition = row.conditions["partition"]
    return row.model_copy(
        update={
            "id": "-".join([row.system, partition, row.toolchain, name, row.metric]),
            "nodes": None,
            "ppn": None,
            "note": "; ".join(filter(None, [f"class {tolerance}, by {by}", row.note])),
        }
    )


def _row(
    newest: Record,
    case: Case,
    figure: Figure,
    unit: str,
    by_session: dict[str, list[float]],
    rule: Tolerance,
    rules: Baseline,
    least: float,
) -> tuple[Row, int]:
    """Return a figure's row, and how many more sessions it needs.

    :arg least: its relative spread by :func:`raised`.
    """
    metric, size, location = figure
    case_conditions = {"partition": case.partition, **case.conditions}
    note, more, count = "", 0, len(by_session)
    statistic: Literal["mean", "median"]
    if rule.distribution:
        single = [sample for found in by_session.values() for sample in found]
        middle, spread = statistics.fmean(single), statistics.stdev(single)
        statistic, case_conditions["runs"] = "mean", str(len(single))
    else:
        middle, spread = spread_of([statistics.median(found) for found in by_session.values()])
        statistic, factor = "median", widening(count, rule, rules)
        own, spread = spread, max(spread, least * middle)
        more = _sessions_needed(count, rule.floor * middle, spread, rule, rules)
        if factor > 1 and spread:
            by_next = f", raised to {spread:.3g} by the next sizes" if spread > own else ""
            note = (
                f"spread of {count} sessions {own:.3g}{by_next}, widened by {factor:.3g} for so few"
            )
        spread *= factor
    what = [case.environment, newest.check.split()[0], metric, size, location or None]
    parts = [case.system, case.partition, *(str(part) for part in what if part is not None)]
    parts += [case.placement, *newest.conditions.values()]
    row = Row(
        id="-".join(parts),
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
        conditions=case_conditions,
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


def _skipped(row: Row, more: int, rule: Tolerance, rules: Baseline) -> str:
    """Return the code of why a row is skipped; empty if it is not."""
    if rule.distribution or row.spread is None or row.spread <= rules.noise * row.value:
        return ""
    if rule.better != "neither" and row.note and more:
        return "baseline.too-noisy-yet"
    return "baseline.too-noisy"


def _noise(proposal: Proposal, reason: str, rules: Baseline) -> str:
    """Return how noisy a skipped row is, and how many more sessions it needs if that would help."""
    spread = (proposal.row.spread or 0) / proposal.row.value
    noise = f"spread {spread:.0%}, allowed {rules.noise:.0%}"
    return f"{noise}; {proposal.more} more" if reason == "baseline.too-noisy-yet" else noise
