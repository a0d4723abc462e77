"""Before and after in one job: the two sides of duets, figure by figure.

A job ran both sides in turns, so the observation is the difference of the logarithms of the two
values of each pair of neighbouring samples. What the nodes and the hour add to both cancels. A job
counts once, with the mean of its pairs, and the test is one of Student's kind over jobs: five jobs
alone have four degrees of freedom, with which hardly any loss can be shown at one false alarm in a
thousand. The pairs within the jobs show how much the mean of a job varies if nothing but its runs
does; they count as :data:`PRIOR` more degrees of freedom. Two things guard against jobs that differ
by more than their runs explain:

* if the variance between the jobs is larger, beyond chance, it alone is used;
* if that of many peers is larger, their common factor applies to each of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from plumbline.analysis import compare
from plumbline.analysis.compare import Comparison, FigureRow, Rules, hostfacts, judge
from plumbline.analysis.compare.sides import NOT_ENDED, NOT_STORED, unmeasured
from plumbline.analysis.distributions import f_median, f_sf, t_sf
from plumbline.analysis.stats import MAD_TO_STD, without_warnings
from plumbline.check.record import DUET, FAILED, MEASURED, SIDES, FigureRecord, Record
from plumbline.core import units
from plumbline.core.text import base_name, pluralize
from plumbline.history.history import History
from plumbline.history.series import Key, Selection

#: Degrees of freedom that the pairs within the jobs count for, at most. They say nothing about how
#: the difference itself varies from job to job: `tests/bench/compare.py` has the false alarms if it
#: does, which are fewer the smaller this number, and so is the share of the losses that are found.
PRIOR = 12
#: Probability by chance of a variance between jobs, above which the pairs explain it.
UNEXPLAINED = 0.005
#: Pairs are clipped to this distance from their job's median, in standard deviations: a single bad
#: run moves the mean of six pairs by at most half of one.
CLIP = 2.5


#: Of a figure: job -> side -> what it measured.
Jobs = dict[tuple[str, str], dict[str, FigureRecord]]


@without_warnings()
def estimate(pairs: np.ndarray, peers: np.ndarray) -> judge.Estimate:
    """Estimate the change of each figure from side A to side B.

    :arg pairs: differences of logarithms, B less A; figures by jobs by pairs of samples, NaN where
        one was not measured.
    :arg peers: a number for each figure, equal for peers.
    """
    clipped = _clipped(pairs)
    count = np.sum(~np.isnan(pairs), 2)
    jobs = np.sum(count > 0, 1)
    enough = jobs >= judge.LEAST
    shifts = np.where((count > 0) & enough[:, None], np.nanmean(clipped, 2), np.nan)
    rest = clipped - shifts[:, :, None]
    df_within = np.sum(np.maximum(count - 1, 0), 1)
    df = np.maximum(jobs - 1, 1)
    difference = np.nanmean(shifts, 1)
    between = np.nansum((shifts - difference[:, None]) ** 2, 1) / df
    # Of the mean of a job, as between.
    size = count.sum(1) / np.maximum(jobs, 1)
    within = np.nansum(rest**2, (1, 2)) / np.maximum(df_within * size, 1)
    within = np.maximum(within, judge.FLOOR**2)
    for group in np.unique(peers):
        rows = (peers == group) & enough
        if rows.sum() >= judge.LEAST_PEERS:
            usual = f_median(np.median(df[rows]), np.median(df_within[rows]))
            within[rows] *= max(1.0, np.median(between[rows] / within[rows]) / usual)
    weight = np.minimum(df_within, PRIOR)
    variance = (df * between + weight * within) / (df + weight)
    alone = f_sf(between / within, df, np.maximum(df_within, 1)) < UNEXPLAINED
    variance = np.where(alone, between, variance)
    total = np.where(alone, df, df + weight).astype(float)
    error = np.where(enough, np.sqrt(variance / np.maximum(jobs, 1)), np.nan)
    return judge.Estimate(
        difference=difference,
        error=error,
        df=total,
        # As for two sides whose values are independent.
        noise=np.where(enough, np.sqrt(variance / 2), np.nan),
        past=np.zeros(len(pairs)),
        p=2 * t_sf(np.abs(difference) / error, total),
        shifts=shifts,
        aside=(np.zeros(shifts.shape, bool), np.zeros(shifts.shape, bool)),
    )


def _clipped(pairs: np.ndarray) -> np.ndarray:
    """Clip each pair to :data:`CLIP` about the median of its job."""
    middle = np.nanmedian(pairs, 2, keepdims=True)
    spread = MAD_TO_STD * np.nanmedian(np.abs(pairs - middle), (1, 2), keepdims=True)
    size = np.maximum(np.nanmedian(np.sum(~np.isnan(pairs), 2), 1)[:, None, None], 2)
    # The pairs of a job are nearer to their own median than to the true one.
    reach = CLIP * spread * np.sqrt(size / (size - 1))
    return np.clip(pairs, middle - reach, middle + reach)


def group_change(
    pairs: np.ndarray, signs: np.ndarray, noise: np.ndarray, difference: np.ndarray
) -> judge.GroupChange:
    """Test whether figures moved as one: their weighted mean is tested as a figure of its own.

    :arg signs: 1 where higher is better, -1 where lower is, 0 of figures that take no part.
    """
    part = (signs != 0) & ~np.isnan(difference)
    if part.sum() < judge.LEAST_GROUP:
        return judge.NO_GROUP
    pairs, noise, difference = pairs[part], noise[part], (signs * difference)[part]
    weight = (1 / np.maximum(noise, np.median(noise)) ** 2)[:, None, None]
    known = ~np.isnan(pairs)
    total = np.sum(known * weight, 0)
    sums = np.nansum(signs[part][:, None, None] * pairs * weight, 0)
    mean = np.where(total > 0, sums / np.maximum(total, 1e-300), np.nan)
    found = estimate(mean[None], np.zeros(1))
    if np.isnan(found.p[0]):
        return judge.NO_GROUP
    moved, error, df = (float(one[0]) for one in (found.difference, found.error, found.df))
    return judge.moved_as_one(moved, error, df, difference)


def compare_duets(
    history: History, select: Selection, first: str, second: str, rules: Rules
) -> Comparison:
    """Compare the two sides of all duets of a selection.

    :arg first: side A, as on the command line of the duets; ``second`` likewise.
    :raises Fault: if there is none.
    """
    names = dict(zip(SIDES, (first, second), strict=True))
    wanted = {f"{DUET}-{side}": name for side, name in names.items()}
    chosen = replace(select, extras={**select.extras, **wanted})
    records = [
        record
        for record in history.records(chosen)
        if not record.attempt and record.extras.get(DUET) in names
    ]
    planned = history.missing(chosen)
    running = history.unended(history.sessions(chosen)) if planned else set()
    found = of_records(
        records,
        rules,
        [
            (f"{base_name(case.check)} @{case.system}:{case.partition}", "after",
             f"{session} {case.check} {case.environment}", "no record",
             NOT_ENDED if session in running else NOT_STORED)
            for session, case in planned
        ],
    )  # fmt: skip
    measured = Counter(
        (one.session, one.partition, one.check) for one in records if one.result in MEASURED
    )
    jobs = sum(sides == len(SIDES) for sides in measured.values())
    found.notes.append(
        f"before is {first}, after is {second}: {pluralize(jobs, 'job')} ran both in turns; a job "
        f"counts as a session"
    )
    compare.heed_skipped(found, history.faults)
    return found


def of_records(
    records: list[Record], rules: Rules, unrecorded: Iterable[tuple[str, str, str, str, str]] = ()
) -> Comparison:
    """Compare the two sides of duets.

    :arg records: of both sides, with the side among the extras of each.
    :arg unrecorded: planned cases without a record, as :func:`unmeasured` takes them.
    """
    jobs: dict[tuple[str, ...], dict[str, Record]] = defaultdict(dict)
    for record in records:
        if record.result in MEASURED:
            place = record.session, record.system, record.partition, record.check
            jobs[place][record.extras[DUET]] = record
    figures: dict[Key, Jobs] = defaultdict(dict)
    benchmarks: dict[Key, str] = {}
    for (session, _, _, check), sides in jobs.items():
        # The same for all checks that are repeated together.
        column = session, check.removeprefix(base_name(check))
        for key, found in _figures(sides).items():
            figures[key][column] = found
            benchmarks[key] = next(iter(sides.values())).benchmark or ""
    rows = [_row(key, benchmarks[key], found) for key, found in sorted(figures.items())]
    comparable = [row for row in rows if not row.reason]
    whole = judge.NO_GROUP
    if comparable:
        pairs = _pairs([figures[row.key] for row in comparable])
        estimated = estimate(pairs, compare.peers_of(comparable))
        whole = compare.decide(comparable, estimated, group_change, (pairs,), rules, "jobs")
    sessions = sorted({record.session for record in records})
    of_sides = [
        record.model_copy(update={"session": record.extras[DUET], "check": base_name(record.check)})
        for record in records
    ]
    side_of = dict(zip(SIDES, ("before", "after"), strict=True))
    recorded = [
        (f"{base_name(one.check)} @{one.system}:{one.partition}", side_of[one.extras[DUET]],
         f"{one.session} {one.check}", one.result, one.reason)
        for one in records
    ]  # fmt: skip
    cases = [*recorded, *unrecorded]
    # A side that fails ends the other one's job: what measured in some jobs and not in others.
    outcomes: dict[str, set[bool]] = defaultdict(set)
    for name, _, _, outcome, _ in cases:
        outcomes[name].add(outcome in MEASURED)
    lost = sum(len(seen) == 2 for seen in outcomes.values())
    result = compare.conclude(rows, whole, sessions, sessions, rules, unmeasured(cases), lost)
    result.surroundings = hostfacts.differences(of_sides, {SIDES[0]}, {SIDES[1]})
    return result


def _figures(sides: dict[str, Record]) -> dict[Key, dict[str, FigureRecord]]:
    """Return the figures of a job, each with those of its sides that have it."""
    environments = dict.fromkeys(sides[side].environment for side in sorted(sides))
    found: dict[Key, dict[str, FigureRecord]] = defaultdict(dict)
    for side, record in sides.items():
        conditions = ";".join(f"{key}={text}" for key, text in sorted(record.conditions.items()))
        for figure in record.foms:
            key = Key(
                record.system, record.partition, " vs ".join(environments),
                base_name(record.check), figure.metric,
                -1 if figure.size is None else figure.size, figure.location, figure.placement,
                conditions,
            )  # fmt: skip
            found[key][side] = figure
    return found


def _row(key: Key, benchmark: str, measured: Jobs) -> FigureRow:
    """Return a figure with the numbers of each side, and the reason if it cannot be compared."""
    jobs = [*measured.values()]
    newest = next(iter(jobs[-1].values()))
    row = FigureRow(key, benchmark, newest.unit, newest.better, "too little data")
    for name, side in zip(("before", "after"), SIDES, strict=True):
        found = [sides[side] for sides in jobs if side in sides]
        if found:
            values = np.array([figure.summary.median for figure in found])
            row.add_side(name, values, sum(figure.verdict in FAILED for figure in found))
    both = [sides for sides in jobs if len(sides) == len(SIDES)]
    if row.one_sided:
        row.verdict, row.reason = row.one_sided
    elif not both:
        row.reason = "no job measured it on both sides"
    elif not all(units.same(sides["a"].unit, sides["b"].unit) for sides in both):
        row.reason = "in another unit after than before"
    elif any(min(figure.samples) <= 0 for sides in both for figure in sides.values()):
        row.reason = "a value that is not positive has no relative difference"
    return row


def _pairs(figures: list[Jobs]) -> np.ndarray:
    """Return the differences of logarithms, B less A, of figures by jobs by samples."""
    columns = {
        job: number for number, job in enumerate(dict.fromkeys(j for f in figures for j in f))
    }
    both = [
        (row, columns[job], [np.log(sides[side].samples) for side in SIDES])
        for row, jobs in enumerate(figures)
        for job, sides in jobs.items()
        if len(sides) == len(SIDES)
    ]
    most = max(min(map(len, logs)) for _, _, logs in both)
    pairs = np.full((len(figures), len(columns), most), np.nan)
    for row, column, logs in both:
        count = min(map(len, logs))
        pairs[row, column, :count] = logs[1][:count] - logs[0][:count]
    return pairs
