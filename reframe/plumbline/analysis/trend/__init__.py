"""Findings in a figure's history: lasting changes, blips that came back, slow drifts.

:func:`judge` takes the nights of one series; :func:`findings` and :func:`online` a series of the
history. The walk over the nights is in :mod:`plumbline.analysis.trend.watch`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats as distributions

from plumbline.analysis import stats
from plumbline.analysis.trend import watch
from plumbline.analysis.trend.episode import Episode
from plumbline.analysis.trend.watch import NIGHTS
from plumbline.history.series import Series

#: Nights before a change, and last ones until the next, that its size is taken from.
WINDOW = 30
#: About how many independent chances a night has to look like a change.
CHANCES = 30
#: A later change back by at least this share ends a finding.
BACK = 0.5
#: Last nights that tell how far a drift went, and whether a change has slowly come back.
RECENT = 14


@dataclass
class Finding:
    """One episode; nights are indices into the values as they were given.

    :ivar kind: ``regression`` or ``improvement`` (of a figure without a better side: ``change``),
        ``transient`` (it came back), ``drift``, or ``suspect`` (the newest night is far off in a
        series with outliers: measure it again).
    :ivar start: first changed night. :ivar detected: night of the first report.
    :ivar end: last night of a transient, or the last on which a drift was seen to go on.
    :ivar size: relative; negative: the value went down. :ivar low, high: its 95 % interval.
    :ivar first: the kind first reported, where another became of it on night `revised`.
    :ivar confirmed: False for a newest night that no retest and no later night bears out yet.
    :ivar on: lasting, and nothing since took it back.
    """

    kind: str
    start: int
    detected: int
    end: int | None
    size: float
    confidence: float
    worse: bool
    low: float = math.nan
    high: float = math.nan
    first: str = ""
    revised: int | None = None
    confirmed: bool = True
    on: bool = False

    @property
    def bad(self) -> bool:
        """Whether it makes the exit code 1: a lasting loss or drift, confirmed and still active."""
        kinds = ("regression", "drift")
        return self.kind in kinds and self.worse and self.on and self.confirmed


@dataclass
class SeriesJudgement:
    """:ivar judged: whether there were enough nights. :ivar outliers: first and last night of each
    run that stood out and came back before anything bore it out."""

    findings: list[Finding]
    outliers: list[tuple[int, int]]
    judged: bool


def judge(
    values: np.ndarray, better: str, second: np.ndarray | None = None, hindsight: bool = True
) -> SeriesJudgement:
    """Judges a series night by night, in the order given.

    :arg values: positive, one a night; NaN is a missing night.
    :arg better: ``higher``, ``lower`` or ``neither``.
    :arg second: second measurements of the same nights, NaN where there is none.
    :arg hindsight: start and size from the whole series, instead of from what was known when the
        finding was first sure. Which findings there are, and when, is the same.
    """
    values = np.asarray(values, dtype=float)
    at = np.flatnonzero(~np.isnan(values))
    logs = np.log(values[at])
    again = None if second is None else np.log(np.asarray(second, dtype=float)[at])
    if len(at) < NIGHTS:
        return SeriesJudgement([], [], False)
    found = watch.walk(logs, again)
    combined = logs if again is None else watch.combine(logs, again)
    episodes = found.episodes
    if hindsight:
        _redate(combined, episodes)
    usual = np.ones(len(logs), dtype=bool)
    for blip in (e for e in episodes if e.kind == "pulse"):
        usual[blip.start : blip.end + 1] = False
    bounds = [0, *(e.start for e in episodes if e.kind != "pulse"), len(logs)]
    told = []
    for episode in episodes:
        previous = max((b for b in bounds[:-1] if b < episode.start), default=0)
        following = min(b for b in bounds if b > episode.start)
        told.append(_finding(episode, combined, usual, at, better, previous, following, hindsight))
    for number, finding in enumerate(told):
        later = [f for f in told[number + 1 :] if f.kind != "transient" and f.confirmed]
        finding.on = finding.kind not in ("transient", "suspect") and not any(
            f.size * finding.size < 0 and abs(f.size) >= BACK * abs(finding.size) for f in later
        )
        if finding.on and not later:
            finding.on = not _wandered_back(combined, usual, episodes[number])
    return SeriesJudgement(told, [(int(at[a]), int(at[b])) for a, b in found.outliers], True)


def _redate(logs: np.ndarray, episodes: list[Episode]) -> None:
    """Dates steps anew with the nights since: KernelCPD's best split between the neighbours."""
    for number, episode in enumerate(episodes):
        if episode.kind != "step" or episode.detected == episode.start:
            continue
        low = max(episodes[number - 1].start if number else 0, episode.start - WINDOW)
        high = episodes[number + 1].start if number + 1 < len(episodes) else len(logs)
        part = stats.hampel(logs[low : min(high, episode.start + WINDOW)])
        if len(part) >= 2 * watch.SAME:
            start = low + stats.split(part, 2)
            if abs(start - episode.start) <= watch.BLIP and start <= episode.detected:
                episode.start = start


def _wandered_back(logs: np.ndarray, usual: np.ndarray, episode: Episode) -> bool:
    """Whether the last nights lie nearer to the level before a change than to the one after: what
    came back slowly is no step that could be told."""
    since = logs[episode.start :][usual[episode.start :]][-RECENT:]
    if len(since) < RECENT:
        return False
    left = (float(np.median(since)) - episode.before) / episode.size
    return left < 1 - BACK


def _late(episode: Episode, following: int, hindsight: bool) -> list[slice]:
    """Nights that a change's size is taken from, the first that lie to its side: of a lasting one
    the last before the next change, since a loss may go on slowly."""
    start = episode.start
    if episode.kind == "pulse":
        return [slice(start, (episode.end or start) + 1)]
    drifts = episode.kind == "ramp"
    known = episode.end if drifts else episode.sure
    last = max(following if hindsight else known + 1, start + 1)
    late = slice(max(last - (RECENT if drifts else WINDOW), start), last)
    return [late] if drifts else [late, slice(start, min(last, start + WINDOW))]


def _finding(episode, logs, usual, at, better, previous, following, hindsight) -> Finding:
    down = episode.size < 0
    worse = down if better == "higher" else better == "lower" and not down
    lasting = "regression" if worse else "improvement" if better != "neither" else "change"
    names = {"pulse": "transient", "ramp": "drift", "step": lasting, "suspect": "suspect"}
    early = slice(max(previous, episode.start - WINDOW), episode.start)
    before = logs[early][usual[early]]
    size, low, high = episode.size, math.nan, math.nan
    for late in _late(episode, following, hindsight):
        after = logs[late][usual[late] | (episode.kind == "pulse")]
        if not len(before) or not len(after):
            continue
        inflate = math.sqrt(len(before) / stats.effective_size(before))
        both = stats.shift(before, after, inflate=inflate)
        if both.shift * episode.size > 0:
            size, low, high = both.shift, both.low, both.high
            break
    chance = CHANCES * distributions.chi2.sf(2 * max(episode.evidence, 0.0), 1)
    return Finding(
        kind=names[episode.kind],
        start=int(at[episode.start]),
        detected=int(at[episode.detected]),
        end=None if episode.end is None else int(at[episode.end]),
        size=math.expm1(size),
        confidence=float(1 - min(chance, 1.0)),
        worse=worse,
        low=math.expm1(low),
        high=math.expm1(high),
        first={"step": lasting, "": ""}.get(episode.first, episode.first),
        revised=None if episode.revised is None else int(at[min(episode.revised, len(at) - 1)]),
        confirmed=episode.confirmed,
    )


@dataclass
class Nightly:
    """A series of the history with one value a night: the median, where a night has several."""

    dates: np.ndarray
    values: np.ndarray
    #: First and last index of each night's values in the series.
    first: np.ndarray
    last: np.ndarray


def nightly(series: Series) -> Nightly:
    """One value for each date (UTC) that has a positive one."""
    good = np.flatnonzero(np.isfinite(series.values) & (series.values > 0))
    days = series.times[good].astype("datetime64[D]")
    # Where a clock jumped back over midnight they are not in order.
    order = np.argsort(days, kind="stable")
    good, days = good[order], days[order]
    dates, begin = np.unique(days, return_index=True)
    groups = np.split(good, begin[1:]) if len(good) else []
    return Nightly(
        dates,
        np.array([np.median(series.values[group]) for group in groups]),
        np.array([group[0] for group in groups], dtype=int),
        np.array([group[-1] for group in groups], dtype=int),
    )


def findings(series: Series) -> list[Finding]:
    """Findings of a series of the history, with hindsight; indices are into its values."""
    return _of(series, True)


def online(series: Series) -> list[Finding]:
    """The same with start and size from what was known when each finding was first sure."""
    return _of(series, False)


def _of(series: Series, hindsight: bool) -> list[Finding]:
    nights = nightly(series)
    found = judge(nights.values, series.better, hindsight=hindsight).findings
    for finding in found:
        finding.start = int(nights.first[finding.start])
        finding.detected = int(nights.last[finding.detected])
        finding.end = None if finding.end is None else int(nights.last[finding.end])
        finding.revised = None if finding.revised is None else int(nights.last[finding.revised])
    return found


def enough(series: Series) -> bool:
    """Whether the series has the nights that a judgement needs."""
    return len(nightly(series).values) >= NIGHTS
