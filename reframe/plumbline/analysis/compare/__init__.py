"""Before and after: two sets of sessions, figure by figure, and go or no-go.

A session counts once for a figure, with the median of its cases. Several cases of one session share
its nodes and its hour, so they are not independent evidence.
:mod:`plumbline.analysis.compare.judge` has the statistics, and
:mod:`plumbline.analysis.compare.sides` selects the sessions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from plumbline.analysis import trend
from plumbline.analysis.compare import hostfacts, judge, sides
from plumbline.analysis.compare.hostfacts import Surroundings
from plumbline.analysis.compare.judge import GroupChange
from plumbline.analysis.compare.sides import Sides, Unmeasured, per_session
from plumbline.analysis.stats import MAD_TO_STD
from plumbline.check.record import FAILED
from plumbline.core.text import pluralize, shorten
from plumbline.history.history import History
from plumbline.history.series import Key, Selection, Series

#: Verdicts of a figure, in the order of the output.
ORDER = ("regressed", "changed", "only before", "too little data", "improved", "only after",
         "unchanged")  # fmt: skip
#: Overall verdict -> exit code.
EXIT = {"go": 0, "no-go": 1, "not enough data": 2}
_SIGN = {"higher": 1, "lower": -1, "neither": 0}
_PROBLEMS = {
    "regressed": "{} of {} figures regressed",
    "changed": "{} of {} figures changed, and neither direction is better",
    "only before": "{} of {} figures were measured before and not after",
    "too little data": "{} of {} figures have too little data",
}


@dataclass(frozen=True)
class Rules:
    """What counts as a change, and what a ``go`` needs.

    :ivar min_effect: relative difference below which a figure counts as unchanged.
    :ivar equivalence_margin: relative loss that must be excluded for ``unchanged``.
    :ivar allow_inconclusive: share of the figures that may have too little data in a ``go``.
    :ivar each_sample: count each sample as a session of its own.
    """

    min_effect: float = 0.02
    equivalence_margin: float = 0.05
    allow_inconclusive: float = 0.0
    each_sample: bool = False


@dataclass
class FigureRow:
    """One figure on both sides. Numbers that are not known are NaN.

    :ivar n_before: sessions that measured it. :ivar n_past: earlier sessions used for its level.
    :ivar median_before: in ``unit``.
    :ivar spread_before: robust standard deviation of a session's value, relative to the median.
    :ivar noise: relative standard deviation used by the test, from both sides, past and peers.
    :ivar difference: relative, 0.02 for 2 % more; ``low`` to ``high`` is its 95 % interval.
    :ivar p: two-sided. :ivar adjusted: ``p`` corrected for the number of figures compared.
    :ivar detectable: smallest detectable loss, relative, positive.
    :ivar needed: sessions a side that would show the equivalence margin at this noise; 0 unless
        there is too little data.
    :ivar failed_before: sessions in which it was outside its bounds.
    :ivar together: whether its verdict follows from its group, which moved as one.
    :ivar aside: sessions with a value so far off that it was set aside.
    """

    key: Key
    benchmark: str
    unit: str
    better: str
    verdict: str
    reason: str = ""
    n_before: int = 0
    n_after: int = 0
    n_past: int = 0
    median_before: float = np.nan
    median_after: float = np.nan
    spread_before: float = np.nan
    spread_after: float = np.nan
    noise: float = np.nan
    difference: float = np.nan
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    adjusted: float = np.nan
    detectable: float = np.nan
    needed: int = 0
    failed_before: int = 0
    failed_after: int = 0
    together: bool = False
    aside: list[str] = field(default_factory=list)

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is, 0 where neither is."""
        return _SIGN[self.better]

    @property
    def gain(self) -> float:
        """Sort key, the worst first; 0 without a difference."""
        gain = self.sign * self.difference if self.sign else -abs(self.difference)
        return 0.0 if np.isnan(gain) else gain

    @property
    def one_sided(self) -> tuple[str, str] | None:
        """The verdict of a figure that only one side measured, and the reason, if it is one."""
        if not self.n_after:
            return "only before", "not measured after"
        return None if self.n_before else ("only after", "not measured before")

    def add_side(self, side: str, values: np.ndarray, failed: int) -> None:
        """Set the numbers of a side, ``before`` or ``after``, from the values of its sessions.

        :arg failed: number of sessions in which it was outside its bounds.
        """
        median = float(np.median(values))
        spread = MAD_TO_STD * float(np.median(np.abs(values - median)))
        setattr(self, f"n_{side}", len(values))
        setattr(self, f"median_{side}", median)
        setattr(self, f"spread_{side}", spread / abs(median) if median else np.nan)
        setattr(self, f"failed_{side}", failed)


@dataclass
class Comparison:
    """All figures of both sides, and the overall verdict.

    :ivar before: names of the sessions, oldest first; ``after`` likewise.
    :ivar verdict: ``go``, ``no-go`` or ``not enough data``, for ``reasons``.
    :ivar whole: the change of all figures as one, relative; NaN with fewer than three figures.
    :ivar surroundings: what else differs; ``None`` if the source does not have it.
    """

    rows: list[FigureRow]
    before: list[str]
    after: list[str]
    verdict: str
    reasons: list[str]
    whole: GroupChange
    rules: Rules
    unmeasured: list[Unmeasured]
    surroundings: Surroundings | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]

    @property
    def worst(self) -> FigureRow | None:
        """The figure with the largest loss."""
        known = [row for row in self.rows if row.sign and not np.isnan(row.difference)]
        return min(known, key=lambda row: row.gain, default=None)

    @property
    def counts(self) -> dict[str, int]:
        """Number of figures by verdict."""
        found = Counter(row.verdict for row in self.rows)
        return {name: found[name] for name in ORDER if found[name]}


def compare_sessions(
    history: History,
    select: Selection,
    before: str,
    after: str,
    rules: Rules,
    past: bool = True,
) -> Comparison:
    """Compare sessions of the history, and collect what else differs between them.

    :arg before: which sessions, as :func:`plumbline.analysis.compare.sides.sessions_of` reads it;
        ``after`` likewise.
    :arg past: use earlier sessions for noise and level.
    :raises Fault: if a side has no session, a session is on both, or nothing is selected.
    """
    both = sides.load(history, select, before, after, past)
    found = compare(both, rules)
    if both.unended:
        found.notes.append(
            f"last:N skips sessions without an end (still running, or killed): "
            f"{', '.join(both.unended)}"
        )
    systems = sorted({row.system for rows in both.sessions.values() for row in rows})
    if len(systems) > 1:
        found.notes.append(f"sessions of {shorten(systems)} are compared: `--system` chooses one")
    if both.retried:
        found.notes.append(
            f"{pluralize(both.retried, 'retry', 'retries')} skipped: the first attempt counts"
        )
    if rules.each_sample:
        found.notes.append(
            "each sample counts as a session: the intervals do not include the variation between "
            "sessions"
        )
    if history.source.is_dir():
        records = history.records(replace(select, sessions=(*found.before, *found.after)))
        found.surroundings = hostfacts.differences(records, {*found.before}, {*found.after})
    else:
        found.notes.append(
            "of a CSV file: changes of hosts and builds, and cases without a record, are not known"
        )
    heed_skipped(found, history.faults)
    return found


def heed_skipped(found: Comparison, skipped: list[str]) -> None:
    """Turn a go into ``not enough data`` if a part of the history was skipped."""
    if skipped and found.verdict == "go":
        found.verdict = "not enough data"
        what = f"{pluralize(len(skipped), 'place')} of the history skipped"
        found.reasons = [f"{what}: {skipped[0]}", *found.reasons]


def compare(both: Sides, rules: Rules) -> Comparison:
    """Compare two sets of sessions. The past gives the noise and, if nothing changed since, the
    level."""
    known_before, known_after, known_past = (
        {series.key: series for series in both.series[side]} for side in ("before", "after", "past")
    )
    rows = [
        _row(key, known_before.get(key), known_after.get(key), rules.each_sample)
        for key in sorted(known_before.keys() | known_after.keys())
    ]
    comparable = [row for row in rows if not row.reason]
    whole = judge.NO_GROUP
    if comparable:
        earlier = {
            row.key: _comparable_past(known_past[row.key], known_before[row.key])
            for row in comparable
            if row.key in known_past
        }
        whole = _judge(comparable, known_before, known_after, earlier, rules)
    before, after = ([row.session for row in both.sessions[side]] for side in ("before", "after"))
    lost = sum(case.more_often for case in both.unmeasured)
    return conclude(rows, whole, before, after, rules, both.unmeasured, lost)


def conclude(
    rows: list[FigureRow],
    whole: GroupChange,
    before: list[str],
    after: list[str],
    rules: Rules,
    unmeasured: list[Unmeasured],
    lost: int,
) -> Comparison:
    """Return the comparison of figures that have their verdicts.

    :arg whole: the change of all as one.
    :arg before: names of the sessions; ``after`` likewise.
    :arg lost: number of test cases that did not measure more often after than before.
    """
    rows.sort(key=lambda row: (ORDER.index(row.verdict), row.gain, row.key))
    verdict, reasons = _verdict(rows, whole, rules, lost)
    return Comparison(rows, before, after, verdict, reasons, whole.relative(), rules, unmeasured)


def _row(key: Key, before: Series | None, after: Series | None, each_sample: bool) -> FigureRow:
    """Return a figure with the numbers of each side, and the reason if it cannot be compared."""
    known = after or before
    assert known is not None
    row = FigureRow(key, known.benchmark, known.unit, known.better, "too little data")
    for name, series in (("before", before), ("after", after)):
        if series is not None:
            values = np.concatenate(list(per_session(series, each_sample).values()))
            failed = np.isin(series.verdicts.astype(str), FAILED)
            row.add_side(name, values, len(set(series.sessions[failed])))
    if row.one_sided:
        row.verdict, row.reason = row.one_sided
    elif any((one.values <= 0).any() for one in (before, after) if one):
        row.reason = "a value that is not positive has no relative difference"
    return row


def _judge(
    rows: list[FigureRow],
    before: Mapping[Key, Series | None],
    after: Mapping[Key, Series | None],
    past: Mapping[Key, Series | None],
    rules: Rules,
) -> GroupChange:
    """Fill in each row's estimate and verdict, and return the change of all as one."""
    (y, y_sessions), (z, z_sessions), (earlier, _) = (
        _matrix([side.get(row.key) for row in rows], rules.each_sample)
        for side in (before, after, past)
    )
    found = judge.estimate(y, z, earlier, peers_of(rows))
    what = "samples" if rules.each_sample else "sessions"
    whole = decide(rows, found, judge.group_change, (y, z), rules, what)
    for row, *aside in zip(rows, *found.aside, strict=True):
        for far, names in zip(aside, (y_sessions, z_sessions), strict=True):
            row.aside += sorted({name for name, out in zip(names, far, strict=True) if out})
    return whole


def decide(
    rows: list[FigureRow],
    found: judge.Estimate,
    group_change: Callable[..., GroupChange],
    values: Sequence[np.ndarray],
    rules: Rules,
    what: str,
) -> GroupChange:
    """Fill in the verdict of each row from its estimate, and return the change of all as one.

    :arg group_change: tests a group of figures: takes rows of ``values``, and the figures' signs,
        noise and differences.
    :arg what: what a side has several of, for messages.
    """

    def change(members: np.ndarray, signs: np.ndarray) -> GroupChange:
        noise, difference = found.noise[members], found.difference[members]
        return group_change(*(one[members] for one in values), signs, noise, difference)

    signs = np.array([row.sign for row in rows])
    whole = change(np.arange(len(rows)), signs)
    direction = np.full(len(rows), whole.direction)
    groups = defaultdict(list)
    for number, row in enumerate(rows):
        key = row.key
        groups[key.system, key.partition, key.environment, key.check].append(number)
    for numbers in groups.values():
        members = np.array(numbers)
        if sign := change(members, signs[members]).direction:
            direction[members] = sign
    adjusted = judge.corrected(found.p)
    effect, margin = rules.min_effect, rules.equivalence_margin
    verdicts = judge.verdicts(found, signs, direction, effect, margin, adjusted)
    alone = judge.verdicts(found, signs, np.zeros(len(rows)), effect, margin, adjusted)
    low, high = found.interval()
    compared = int(np.sum(~np.isnan(found.p)))
    detectable = judge.detectable(found, compared)
    log_margin = np.where(signs < 0, np.log1p(margin), -np.log1p(-margin))
    needed = judge.sessions_needed(found, compared, log_margin)
    for n, row in enumerate(rows):
        row.verdict = str(verdicts[n])
        row.together = row.verdict in ("regressed", "improved") and verdicts[n] != alone[n]
        if np.isnan(found.difference[n]):
            row.reason = f"fewer than {judge.LEAST} {what} on a side"
            continue
        row.n_past = int(found.past[n])
        row.noise = float(found.noise[n])
        row.difference, row.low, row.high = (
            float(np.expm1(value[n])) for value in (found.difference, low, high)
        )
        row.p, row.adjusted = float(found.p[n]), float(adjusted[n])
        size = detectable[n]
        row.detectable = float(np.expm1(size) if row.better == "lower" else -np.expm1(-size))
        if row.verdict == "too little data":
            row.needed = int(needed[n])
            if row.low < 0 < row.high:
                row.reason = f"a loss of {100 * margin:g} % can neither be shown nor excluded"
            elif judge.certain(found.p[n], adjusted[n]):
                row.reason = f"it moved, but not in most of the {what} after"
                row.needed = 0
            else:
                figures = pluralize(compared, "figure")
                row.reason = f"it moved, but of {figures} one may move so far by chance"
    return whole


def peers_of(rows: list[FigureRow]) -> np.ndarray:
    """Return a number for each figure, equal for peers: the figures of one benchmark, or all
    figures of benchmarks that have few."""
    counts = Counter(row.benchmark for row in rows)
    names = [row.benchmark if counts[row.benchmark] >= judge.LEAST_PEERS else "" for row in rows]
    return np.unique(names, return_inverse=True)[1]


def _matrix(figures: list[Series | None], each_sample: bool) -> tuple[np.ndarray, list[str]]:
    """Return logarithms: a row for each figure and a column for each session (or sample), oldest
    first, and the names of the sessions. Missing values are NaN."""
    when: dict[tuple[str, int], np.datetime64] = {}
    cells = []
    for row, series in enumerate(figures):
        if series is None:
            continue
        start = dict(zip(map(str, series.sessions[::-1]), series.times[::-1], strict=True))
        for session, values in per_session(series, each_sample).items():
            for number, value in enumerate(values):
                column = session, number
                when[column] = min(start[session], when.get(column, start[session]))
                cells.append((row, column, float(np.log(value))))
    order = sorted(when, key=lambda column: (when[column], column))
    place = {column: number for number, column in enumerate(order)}
    matrix = np.full((len(figures), len(order)), np.nan)
    for row, column, value in cells:
        matrix[row, place[column]] = value
    return matrix, [session for session, _ in order]


def _comparable_past(past: Series, before: Series) -> Series | None:
    """Return the part of a past that is comparable with BEFORE: same build, since the last
    confirmed lasting change, without transients."""
    if not (past.values > 0).all():
        return None
    same = np.isin(past.builds.astype(str), before.builds.astype(str))
    since = np.flatnonzero(~same)[-1] + 1 if not same.all() else 0
    past = past.at(np.arange(since, len(past.values)))
    if len(past.values) < judge.LEAST_PAST:
        return None
    start, keep = 0, np.ones(len(past.values), bool)
    (found,) = trend.judge_history([past])
    for change in found.changes:
        if change.end is not None and change.kind == "transient":
            keep[change.start : change.end + 1] = False
        elif change.confirmed:
            start = max(start, change.start)
    keep[:start] = False
    return past.at(np.flatnonzero(keep)) if keep.any() else None


def _verdict(
    rows: list[FigureRow], whole: GroupChange, rules: Rules, lost: int
) -> tuple[str, list[str]]:
    """Return the overall verdict, and the reasons for it."""
    counts = Counter(row.verdict for row in rows)
    total = counts.total()
    reasons = [text.format(counts[name], total) for name, text in _PROBLEMS.items() if counts[name]]
    as_one = whole.direction < 0 and whole.difference <= np.log1p(-rules.min_effect)
    if as_one:
        reasons.insert(0, f"all figures as one lost {-np.expm1(whole.difference):.1%}")
    if lost:
        often = "did not measure, more often after than before"
        reasons.append(f"{pluralize(lost, 'test case')} {often}")
    judged = counts["unchanged"] + counts["improved"]
    if counts["regressed"] or as_one:
        return "no-go", reasons
    inconclusive = counts["too little data"]
    few = inconclusive <= rules.allow_inconclusive * (judged + inconclusive)
    if counts["changed"] or counts["only before"] or lost or not few or not judged:
        return "not enough data", reasons or ["no figure was measured on both sides"]
    return "go", [f"no loss in {judged} of {total} figures", *reasons]
