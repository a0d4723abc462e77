"""Changes in a figure's history: lasting ones, transients that came back, slow drifts.

:func:`judge` takes the nights of one series; :func:`judge_history` takes series of the history.
The levels of a series are found in :mod:`plumbline.analysis.trend.partition`, and read as
episodes in :mod:`plumbline.analysis.trend.episodes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plumbline.analysis import stats
from plumbline.analysis.distributions import chi2_sf
from plumbline.analysis.trend import episodes
from plumbline.analysis.trend.episodes import BACK, LONGEST, WINDOW, Episode, Reader
from plumbline.analysis.trend.partition import CHANGE, WARM_UP
from plumbline.history.series import Series

#: Fewest measured nights of a series that is judged.
NIGHTS = WARM_UP + 1
#: Last nights that give the size of a drift, and show whether a change slowly came back.
RECENT = 2 * LONGEST


@dataclass(eq=False)
class Change:
    """One episode; nights are indices into the values as they were given.

    :ivar kind: ``regression`` or ``improvement`` (of a figure without a better side: ``change``),
        ``transient`` (it came back), ``drift``, or ``suspect`` (the newest night is far off in a
        series with outliers: measure it again).
    :ivar start: first changed night. :ivar detected: night of the first report.
    :ivar end: last night of a transient, or the last on which a drift went on.
    :ivar size: relative; negative: the value went down. ``low`` to ``high``: its 95 % interval.
    :ivar first: the kind first reported, if night ``revised`` changed it.
    :ivar confirmed: whether a retest or a later night agrees.
    :ivar active: it lasts, and no later change took it back.
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
    active: bool = False

    @property
    def failing(self) -> bool:
        """Whether it makes the exit code 1: a confirmed, active regression or drift."""
        return (
            self.kind in ("regression", "drift") and self.worse and self.active and self.confirmed
        )


@dataclass
class SeriesJudgement:
    """The changes of one series.

    :ivar outliers: first and last night of each run that stood out and came back unconfirmed.
    :ivar judged: whether there were enough nights.
    """

    changes: list[Change]
    outliers: list[tuple[int, int]]
    judged: bool


#: Values, better side (``higher``, ``lower`` or ``neither``) and second measurements of a series.
Work = tuple[np.ndarray, str, np.ndarray | None]


def judge(
    values: np.ndarray, better: str, second: np.ndarray | None = None, hindsight: bool = True
) -> SeriesJudgement:
    """Judge a series night by night, in the order given: see :func:`judge_all`."""
    return judge_all([(values, better, second)], hindsight)[0]


def judge_all(series: Sequence[Work], hindsight: bool = True) -> list[SeriesJudgement]:
    """Judge series night by night, in the order given; many at once are faster than one by one.

    :arg series: positive values, one a night, NaN for a missing night; the better side; second
        measurements of the same nights, NaN where there is no such value.
    :arg hindsight: start and size from the whole series, instead of from what was known when the
        change was first certain. Which changes there are, and when, is the same.
    """
    read = episodes.read([(values, second) for values, _, second in series])
    return [
        SeriesJudgement([], [], False) if one is None else _judgement(one, better, hindsight)
        for one, (_, better, _) in zip(read, series, strict=True)
    ]


def _judgement(read: Reader, better: str, hindsight: bool) -> SeriesJudgement:
    logs, episodes, measured = read.x, read.episodes, read.nights
    for episode in episodes if hindsight else ():
        episode.start = episode.moved
    usual = np.ones(len(logs), dtype=bool)
    for transient in (e for e in episodes if e.kind == "transient"):
        usual[transient.start : (transient.end or 0) + 1] = False
    bounds = [0, *(e.start for e in episodes if e.kind != "transient"), len(logs)]
    changes = []
    for episode in episodes:
        previous = max((b for b in bounds[:-1] if b < episode.start), default=0)
        following = min(b for b in bounds if b > episode.start)
        end = following if hindsight else None
        size, low, high = _size(episode, logs, usual, previous, end)
        changes.append(_change(episode, measured, better, size, low, high))
    for number, change in enumerate(changes):
        later = [f for f in changes[number + 1 :] if f.kind != "transient" and f.confirmed]
        # On logarithms: half of a loss of a half is +41 %.
        since = np.cumsum([math.log1p(f.size) for f in later]) / math.log1p(change.size)
        change.active = change.kind not in ("transient", "suspect") and not any(since <= -BACK)
        if change.active and not later:
            change.active = not _slowly_came_back(logs, usual, episodes[number])
    runs = [(int(measured[a]), int(measured[b])) for a, b in read.outliers]
    return SeriesJudgement(changes, runs, True)


def _slowly_came_back(logs: np.ndarray, usual: np.ndarray, episode: Episode) -> bool:
    """Return whether the last nights are nearer to the level before a change than to the one after,
    though no step back was detected."""
    since = logs[episode.start :][usual[episode.start :]][-RECENT:]
    if len(since) < RECENT:
        return False
    left = (float(np.median(since)) - episode.before) / episode.size
    return left < 1 - BACK


def _size(
    episode: Episode, logs: np.ndarray, usual: np.ndarray, previous: int, following: int | None
) -> tuple[float, float, float]:
    """Return the size of a change with its 95 % interval, on logarithms.

    :arg previous: first night of the level before. :arg following: first night of the next change;
        ``None`` for what was known when it was dated.
    """
    transient, start = episode.kind == "transient", episode.start
    early = slice(max(previous, start - WINDOW), start)
    # A drift may have begun with the series, or with the level that the last change led to.
    early = early if usual[early].any() else slice(start, start + RECENT)
    before = logs[early][usual[early]]
    for late in _nights_of_size(episode, following):
        after = logs[late][usual[late] | transient]
        if not len(before) or not len(after):
            continue
        inflate = math.sqrt(len(before) / stats.effective_size(before))
        size, low, high = stats.shift(before, after, inflate=inflate)
        if size * episode.size > 0:
            return size, low, high
    return episode.size, math.nan, math.nan


def _nights_of_size(episode: Episode, following: int | None) -> list[slice]:
    """Return the nights that a change's size is computed from, alternatives in order of preference.

    Of a lasting change these are the last before the next one, since a loss may go on slowly.
    """
    start = episode.start
    if episode.kind == "transient":
        return [slice(start, (episode.end or start) + 1)]
    drifts = episode.kind == "drift"
    if following is None:
        following = ((episode.end or 0) if drifts else episode.dated) + 1
    last = max(following, start + 1)
    late = slice(max(last - (RECENT if drifts else WINDOW), start), last)
    return [late] if drifts else [late, slice(start, min(last, start + WINDOW))]


def _change(
    episode: Episode, measured: np.ndarray, better: str, size: float, low: float, high: float
) -> Change:
    down = episode.size < 0
    worse = down if better == "higher" else better == "lower" and not down
    lasting = "regression" if worse else "improvement" if better != "neither" else "change"
    # A month has about so many independent chances to look like a change.
    chance = WINDOW * chi2_sf(2 * max(episode.evidence + CHANGE, 0.0), 1)
    revised = episode.revised
    return Change(
        kind=lasting if episode.kind == "step" else episode.kind,
        start=int(measured[episode.start]),
        detected=int(measured[episode.detected]),
        end=None if episode.end is None else int(measured[episode.end]),
        size=math.expm1(size),
        confidence=float(1 - min(chance, 1.0)),
        worse=worse,
        low=math.expm1(low),
        high=math.expm1(high),
        first=lasting if episode.first == "step" else episode.first,
        revised=None if revised is None else int(measured[min(revised, len(measured) - 1)]),
        confirmed=episode.confirmed,
    )


@dataclass
class Nightly:
    """A series of the history with one value a night: the median, if a night has several.

    :ivar first: index in the series of each night's first value; ``last``: of its last.
    """

    dates: np.ndarray
    values: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @property
    def days(self) -> list[int | str]:
        """The dates as text."""
        return [str(date) for date in self.dates]


def nightly(series: Series) -> Nightly:
    """Return one value for each night that has a positive one which is not in the future."""
    good = np.flatnonzero(np.isfinite(series.values) & (series.values > 0) & ~series.ahead)
    days = series.nights[good]
    # They are out of order if a clock was set back over midnight.
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


def judge_history(every: Sequence[Series], hindsight: bool = True) -> list[SeriesJudgement]:
    """Judge series of the history; indices are into the values of each."""
    dated = [nightly(series) for series in every]
    work = [(night.values, one.better, None) for night, one in zip(dated, every, strict=True)]
    found = judge_all(work, hindsight)
    for nights, judgement in zip(dated, found, strict=True):
        first, last = nights.first.tolist(), nights.last.tolist()
        judgement.outliers = [(first[begin], last[end]) for begin, end in judgement.outliers]
        for change in judgement.changes:
            change.start, change.detected = first[change.start], last[change.detected]
            change.end = None if change.end is None else last[change.end]
            change.revised = None if change.revised is None else last[change.revised]
    return found
