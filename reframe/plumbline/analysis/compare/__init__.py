"""Before and after: two sets of sessions, figure by figure, and go or no-go.

A session counts once for a figure, with the median of its cases: what one session measures several
times shares its nodes and its hour, and is no evidence of its own.
:mod:`plumbline.analysis.compare.judge` has the test, :mod:`plumbline.analysis.compare.sides` which
sessions are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from plumbline.analysis.compare import hostfacts, judge, sides
from plumbline.analysis.compare.hostfacts import Surroundings
from plumbline.analysis.compare.sides import Unmeasured, part, per_session
from plumbline.analysis.stats import MAD_TO_STD
from plumbline.core import units
from plumbline.core.text import counted, some
from plumbline.history.history import History
from plumbline.history.series import Key, Selection, Series
from plumbline.parse import Figure

#: Verdicts of a figure, in the order in which they are told.
ORDER = ("regressed", "changed", "only before", "too little data", "improved", "only after",
         "unchanged")  # fmt: skip
#: Verdict of the whole -> exit code.
EXIT = {"go": 0, "no-go": 1, "not enough data": 2}
_SIGN = {"higher": 1, "lower": -1, "neither": 0}


@dataclass
class FigureRow:
    """One figure on both sides.

    :ivar n_before: sessions that measured it; ``n_past``: earlier ones that its level rests on too.
    :ivar median_before: in ``unit``; NaN where it was not measured.
    :ivar spread_before: robust standard deviation of a session's value, relative to the median.
    :ivar noise: that the test used: from both sides, the past and the peers; relative.
    :ivar difference: relative, 0.02 for 2 % more; ``low`` to ``high`` is its 95 % interval.
    :ivar p: two-sided; ``adjusted`` for the number of figures compared.
    :ivar detectable: the smallest loss that would have been seen, relative, positive.
    :ivar needed: sessions a side that would show the loss asked for, at this noise; 0 unless there
        is too little data.
    :ivar failed_before: sessions in which it was outside its bounds.
    :ivar together: whether it is judged with its group, which moved as one.
    :ivar aside: sessions whose value was so far off that it was set aside.
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
    def figure(self) -> str:
        """The figure's name: metric, size and which of several."""
        size = None if self.key.size < 0 else self.key.size
        return Figure(self.key.metric, size, self.key.at).variable

    @property
    def place(self) -> str:
        """Where: system, partition, environment, and node where there is one."""
        node = f" on {self.key.node}" if self.key.node else ""
        return f"{self.key.system}:{self.key.partition}+{self.key.environment}{node}"


@dataclass(frozen=True)
class Whole:
    """What all figures did as one, each session once; relative, worse being negative. NaN where
    there are fewer than three figures."""

    difference: float
    low: float
    high: float
    p: float
    detectable: float


@dataclass
class Comparison:
    """All figures of both sides, and the verdict on the whole.

    :ivar before: names of the sessions, oldest first; ``after`` too.
    :ivar verdict: ``go``, ``no-go`` or ``not enough data``, for ``reasons``.
    :ivar surroundings: what else differs; ``None`` where the source does not tell.
    """

    rows: list[FigureRow]
    before: list[str]
    after: list[str]
    verdict: str
    reasons: list[str]
    whole: Whole
    within: float
    loss: float
    unmeasured: list[Unmeasured] = field(default_factory=list)
    surroundings: Surroundings | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]

    @property
    def worst(self) -> FigureRow | None:
        """The figure that lost most."""
        known = [row for row in self.rows if _SIGN[row.better] and not np.isnan(row.difference)]
        return min(known, key=_worst_first, default=None)

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
    within: float = 0.02,
    loss: float = 0.05,
    untold: float = 0.0,
    single: bool = False,
    past: bool = True,
) -> Comparison:
    """Compares sessions of the history, with what else differs between them.

    :arg before: which sessions, as :func:`plumbline.analysis.compare.sides.sessions_of` reads it;
        ``after`` too.
    :arg past: whether earlier sessions count too. The others are those of :func:`compare`.
    :raises Fault: if a side has no session, a session is on both, or nothing is selected.
    """
    both = sides.load(history, select, before, after, past)
    found = compare(
        both.series["before"],
        both.series["after"],
        both.series["past"],
        within,
        loss,
        untold,
        single,
    )
    found.before, found.after = (
        [row.session for row in both.sessions[side]] for side in ("before", "after")
    )
    found.unmeasured = both.unmeasured
    if both.unended:
        found.notes.append(
            f"last:N skips what has not ended (it still runs, or was cut off): "
            f"{', '.join(both.unended)}"
        )
    systems = sorted({row.system for rows in both.sessions.values() for row in rows})
    if len(systems) > 1:
        found.notes.append(f"sessions of {some(systems)} are compared: `--system` chooses one")
    if both.retried:
        found.notes.append(
            f"{counted(both.retried, 'value')} of a retry skipped: the first attempt counts"
        )
    if single:
        found.notes.append(
            "each sample counts as a session of its own: what sessions differ by is not in the "
            "intervals"
        )
    if history.source.is_dir():
        records = history.records(replace(select, sessions=(*found.before, *found.after)))
        found.surroundings = hostfacts.differences(records, {*found.before}, {*found.after})
    else:
        found.notes.append("a CSV file has neither host facts nor builds")
    return found


def compare(
    before: list[Series],
    after: list[Series],
    past: list[Series] = (),
    within: float = 0.02,
    loss: float = 0.05,
    untold: float = 0.0,
    single: bool = False,
) -> Comparison:
    """Holds two sets of sessions against each other.

    :arg past: earlier sessions, that tell the noise and, where nothing changed since, the level.
    :arg within: relative difference below which a figure counts as unchanged.
    :arg loss: relative loss that must not be missed.
    :arg untold: share of the figures that may have too little data in a ``go``.
    :arg single: each sample counts, as if it were a session of its own.
    """
    sides = [{series.key: series for series in side} for side in (before, after, past)]
    keys = sorted(sides[0].keys() | sides[1].keys())
    rows = [_row(key, *(side.get(key) for side in sides[:2]), single) for key in keys]
    both = [row for row in rows if not row.reason]
    whole = judge.NOT_TOLD
    if both:
        whole = _judge(both, sides, within, loss, single)
    rows.sort(key=lambda row: (ORDER.index(row.verdict), _worst_first(row), row.key))
    names = [sorted({str(name) for series in side for name in series.sessions})
             for side in (before, after)]  # fmt: skip
    verdict, reasons = _verdict(rows, whole, within, untold)
    # Worse is negative here, whichever way the figures go.
    told = [float(np.expm1(value)) for value in (whole.difference, whole.low, whole.high)]
    smallest = float(-np.expm1(-whole.detectable))
    return Comparison(rows, *names, verdict, reasons, Whole(*told, whole.p, smallest), within, loss)


def _worst_first(row: FigureRow) -> float:
    sign = _SIGN[row.better] * row.difference if row.better != "neither" else -abs(row.difference)
    return 0.0 if np.isnan(sign) else sign


def _row(key: Key, before: Series | None, after: Series | None, single: bool) -> FigureRow:
    """A figure with what each side says alone; its reason says why it cannot be compared."""
    known = after or before
    row = FigureRow(key, known.benchmark, known.unit, known.better, "too little data")
    for name, series in (("before", before), ("after", after)):
        if series is not None:
            values = np.concatenate(list(per_session(series, single).values()))
            middle = float(np.median(values))
            spread = MAD_TO_STD * float(np.median(np.abs(values - middle)))
            failed = np.isin(series.verdicts.astype(str), ["fail", "above-ceiling"])
            setattr(row, f"n_{name}", len(values))
            setattr(row, f"median_{name}", middle)
            setattr(row, f"spread_{name}", spread / abs(middle) if middle else np.nan)
            setattr(row, f"failed_{name}", len(set(series.sessions[failed])))
    if after is None:
        row.verdict, row.reason = "only before", "not measured after"
    elif before is None:
        row.verdict, row.reason = "only after", "not measured before"
    elif not units.same(before.unit, after.unit):
        row.reason = f"in {before.unit} before and in {after.unit} after"
    elif (before.values <= 0).any() or (after.values <= 0).any():
        row.reason = "a value that is not positive has no relative difference"
    return row


def _judge(
    rows: list[FigureRow], sides, within: float, loss: float, single: bool
) -> judge.Together:
    """Gives each row its estimate and verdict; and tells what they did as one."""
    matrices, columns = [], []
    for side, only in zip(sides, (None, None, _comparable), strict=True):
        found = [_logs(side.get(row.key), row, single, only, sides[0]) for row in rows]
        matrix, names = _matrix(found)
        matrices.append(matrix)
        columns.append(names)
    before, after, past = matrices
    peers = _peers(rows)
    signs = np.array([_SIGN[row.better] for row in rows])
    found = judge.estimate(before, after, past, peers)
    whole = judge.together(before, after, signs, found.noise, found.difference)
    moved = np.full(len(rows), whole.moved)
    groups: dict[tuple, list[int]] = {}
    for number, row in enumerate(rows):
        key = row.key
        groups.setdefault((key.system, key.partition, key.environment, key.check), []).append(
            number
        )
    for members in groups.values():
        as_one = judge.together(
            before[members], after[members], signs[members], found.noise[members],
            found.difference[members],
        )  # fmt: skip
        if as_one.moved:
            moved[members] = as_one.moved
    adjusted = judge.corrected(found.p)
    verdicts = judge.verdicts(found, signs, moved, within, loss, adjusted)
    alone = judge.verdicts(found, signs, np.zeros(len(rows)), within, loss, adjusted)
    low, high = found.interval()
    compared = int(np.sum(~np.isnan(found.p)))
    seen = judge.detectable(found, compared)
    margin = np.where(signs < 0, np.log1p(loss), -np.log1p(-loss))
    needed = judge.sessions_needed(found, compared, margin)
    for n, row in enumerate(rows):
        row.verdict = str(verdicts[n])
        row.together = row.verdict in ("regressed", "improved") and verdicts[n] != alone[n]
        if np.isnan(found.difference[n]):
            row.reason = f"fewer than {judge.LEAST} {'samples' if single else 'sessions'} on a side"
            continue
        row.n_past = int(found.past[n])
        row.noise = float(found.noise[n])
        row.difference, row.low, row.high = (
            float(np.expm1(value[n])) for value in (found.difference, low, high)
        )
        row.p, row.adjusted = float(found.p[n]), float(adjusted[n])
        row.detectable = float(np.expm1(seen[n]) if row.better == "lower" else -np.expm1(-seen[n]))
        for far, names in zip(found.aside, columns[:2], strict=True):
            row.aside += sorted({name for name, out in zip(names, far[n], strict=True) if out})
        if row.verdict == "too little data":
            row.needed = int(needed[n])
            if row.low < 0 < row.high:
                row.reason = f"a loss of {100 * loss:g} % cannot be told from none"
            elif judge.certain(found.p[n], adjusted[n]):
                row.reason = "it moved, but not in most of the sessions after"
                row.needed = 0
            else:
                row.reason = (
                    f"it moved, but of {counted(compared, 'figure')} one may move so far by chance"
                )
    return whole


def _peers(rows: list[FigureRow]) -> np.ndarray:
    """A number for each figure, equal for peers: those of its benchmark, or, where these are few,
    all figures of such benchmarks."""
    counts = Counter(row.benchmark for row in rows)
    names = [row.benchmark if counts[row.benchmark] >= judge.LEAST_PEERS else "" for row in rows]
    return np.unique(names, return_inverse=True)[1]


def _logs(
    series: Series | None, row: FigureRow, single: bool, only: Callable | None, known: dict
) -> dict[tuple[np.datetime64, str, int], float]:
    """Logarithms of a figure's values, by time, session and number within it."""
    if series is not None and only is not None:
        series = only(series, known[row.key])
    if series is None:
        return {}
    start = {str(name): time for name, time in zip(series.sessions[::-1], series.times[::-1],
                                                   strict=True)}  # fmt: skip
    return {
        (start[session], session, number): float(np.log(value))
        for session, values in per_session(series, single).items()
        for number, value in enumerate(values)
    }


def _matrix(found: list[dict]) -> tuple[np.ndarray, list[str]]:
    """One row a figure, one column a session (or sample), oldest first; NaN where it is missing."""
    when: dict[tuple[str, int], np.datetime64] = {}
    for values in found:
        for time, session, number in values:
            known = when.get((session, number), time)
            when[session, number] = min(known, time)
    order = sorted(when, key=lambda column: (when[column], column))
    place = {column: number for number, column in enumerate(order)}
    matrix = np.full((len(found), len(order)), np.nan)
    for row, values in enumerate(found):
        for (_, session, number), value in values.items():
            matrix[row, place[session, number]] = value
    return matrix, [session for session, _ in order]


def _comparable(past: Series, before: Series) -> Series | None:
    """The part of a past that measured what BEFORE did: the same build and unit, since the last
    lasting change, without the nights of blips. What nothing bears out yet is no change."""
    from plumbline.analysis import trend

    if not units.same(past.unit, before.unit) or not (past.values > 0).all():
        return None
    same = np.isin(past.builds.astype(str), before.builds.astype(str))
    since = np.flatnonzero(~same)[-1] + 1 if not same.all() else 0
    past = part(past, np.arange(len(past.values)) >= since)
    if len(past.values) < judge.LEAST_PAST:
        return None
    start, keep = 0, np.ones(len(past.values), bool)
    for finding in trend.findings(past):
        if finding.kind == "transient":
            keep[finding.start : finding.end + 1] = False
        elif finding.confirmed:
            start = max(start, finding.start)
    keep[:start] = False
    return part(past, keep) if keep.any() else None


def _verdict(
    rows: list[FigureRow], whole: judge.Together, within: float, untold: float
) -> tuple[str, list[str]]:
    """The verdict on the whole, and why."""
    counts = Counter(row.verdict for row in rows)
    total = counts.total()
    told = {
        "regressed": "{} of {} figures regressed",
        "changed": "{} of {} figures changed, and neither direction is better",
        "only before": "{} of {} figures were measured before and not after",
        "too little data": "{} of {} figures have too little data",
    }
    reasons = [text.format(counts[name], total) for name, text in told.items() if counts[name]]
    as_one = whole.moved < 0 and whole.difference <= np.log1p(-within)
    if as_one:
        reasons.insert(0, f"all figures as one lost {-np.expm1(whole.difference):.1%}")
    judged = counts["unchanged"] + counts["improved"]
    if counts["regressed"] or as_one:
        return "no-go", reasons
    few = counts["too little data"] <= untold * (judged + counts["too little data"])
    if counts["changed"] or counts["only before"] or not few or not judged:
        return "not enough data", reasons or ["no figure was measured on both sides"]
    return "go", [f"{judged} of {total} figures have lost nothing that matters", *reasons]
