"""What the best partitions of a series mean: changes, transients, drifts, nights that stood out.

Nights are indices of the measured values, and sizes are differences of logarithms. What is reported
on a night depends on the nights up to it. :func:`read` is the entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from plumbline.analysis import stats
from plumbline.analysis.trend import partition
from plumbline.analysis.trend.partition import (
    CONFIRMED,
    LEAST_SIGMAS,
    NOISES,
    OUTLIERS,
    WARM_UP,
    Partitions,
)

#: Against a division by zero where values never vary.
TINY = 1e-12
#: Least size of a change (relative). Less reports smaller ones, and more of what does not matter.
LEAST = 0.008
#: Evidence (nats) that a change needs beside its cost; the second, in its first three nights, when
#: two outliers look like it. More make fewer false alarms, and report changes later.
EVIDENCE, EARLY = 0.5, 4.0
#: A night is reported at once if it is so many sigma off, and off by so much or as far as an
#: outlier. Less reports more losses on their first night, and more nights that come back.
FAR, FAR_SIZE = 3.2, 0.045
#: The report holds while the value is so many sigma off, or off by half of it. More keep outliers
#: for longer; fewer drop a loss whose second night looks better.
HOLDS = 2.0
#: Longest transient, and most nights by which later nights may date a change anew. More take a
#: repaired loss for a transient; fewer take a long transient for two changes.
LONGEST = 7
#: A level is back if less than this share of the change is left. More call a partial repair a
#: return; less, a return with noise a second change.
BACK = 0.5
#: Up to this share of outliers, an unconfirmed night is reported as a change, not as a suspect.
#: More report losses in series with outliers, and outliers as losses.
CLEAN = 0.007
#: Nights of the level before a change that its size is computed from: more know it better, fewer
#: follow what moves slowly. Twice as many are the most between two changes that may be one drift;
#: half as many, the fewest of a drift, and of a change that autocorrelated noise looks like.
WINDOW = 30
#: A change is a drift if a ramp explains it better by so much (twice the nats), asked on every
#: so many nights. More call a drift a step; less, a step with noise a drift. Seldom is faster.
RAMP, EVERY = 15.0, 5
#: Autocorrelated noise moves the level of two weeks by so many standard deviations at most. More
#: miss drifts in such noise; fewer report the noise.
DRIFTED = 3.0
#: Series that are read at once: more do not fit the processor's cache, fewer cost more calls.
TOGETHER = 32


@dataclass
class Episode:
    """Something that happened.

    :ivar kind: ``step``, ``pulse`` (a transient), ``ramp`` (a drift) or ``suspect`` (a night far
        off, in a series with outliers).
    :ivar detected: night of the first report; ``dated``: night whose value confirmed it.
    :ivar end: last night of a transient, or the last on which a drift went on.
    :ivar first: the kind first reported, if it was revised; ``revised``: the night of that.
    :ivar regime: first night of the level before; ``before``: that level.
    :ivar moved: first changed night, as later nights date it.
    """

    kind: str
    start: int
    detected: int
    size: float
    evidence: float
    end: int | None = None
    first: str = ""
    revised: int | None = None
    confirmed: bool = True
    regime: int = 0
    before: float = 0.0
    dated: int = field(init=False)
    moved: int = field(init=False)

    def __post_init__(self) -> None:
        self.dated, self.moved = self.detected, self.start


def needed(found: Partitions, series: int, start: int, night: int) -> float:
    """Return the evidence (nats) that the last change needs on a night to be reported."""
    if found.weight[series, night] < CONFIRMED + 2:
        return EARLY
    # Autocorrelated noise looks like a change that shows only so late, or that began in the second
    # half of the first nights, from which the noise is known.
    return 2 * EARLY if night - start > WINDOW // 2 or start < WARM_UP else EVIDENCE


@dataclass
class _Alert:
    """A night far off that no change explains yet."""

    night: int
    off: float
    expected: float
    sigma: float


class Reader:
    """Reads one series, night by night.

    :ivar outliers: first and last night of each run that stood out and came back unconfirmed.
    """

    def __init__(
        self, values: np.ndarray, nights: np.ndarray, found: Partitions, series: int
    ) -> None:
        self.x, self.nights, self.found, self.series = values, nights, found, series
        self.episodes: list[Episode] = []
        self.outliers: list[tuple[int, int]] = []
        #: First nights of changes that are known, with the episode that reported each.
        self.known: dict[int, Episode | None] = {}
        self.alert: _Alert | None = None

    def read(self) -> Reader:
        """Read all nights after the warm-up."""
        starts, noise = self.found.start[self.series], self.found.noise[self.series]
        for night in range(WARM_UP - 1, len(self.x)):
            changes = None
            last = slice(night - 1, night + 1)
            if night < WARM_UP or np.ptp(starts[last]) or np.ptp(noise[last]):
                changes = self.found.changes(self.series, night)
                self._follow(changes, night)
            start = int(starts[night])
            if night < WARM_UP:
                self.known = dict.fromkeys(c for c in changes or () if c < WARM_UP // 2)
            elif start and start not in self.known:
                self._last_change(start, night)
            self._same_night(night)
            if night % EVERY == 0:
                self._drift(night)
                self._slow(night)
        self._finish()
        return self

    # -- changes -----------------------------------------------------------------------------------

    def _follow(self, changes: list[int], night: int) -> None:
        """Date the known changes anew."""
        known: dict[int, Episode | None] = {}
        for start in changes:
            before = [
                k for k, episode in self.known.items()
                if abs(k - start) <= LONGEST and self._same_side(episode, start, changes, night)
            ]  # fmt: skip
            if before:
                nearest = min(before, key=lambda k: abs(k - start))
                known[start] = self.known.pop(nearest)
        for start, episode in known.items():
            if episode is not None and episode.kind == "step":
                episode.moved = start
        lost = {k: e for k, e in self.known.items() if e is not None and k not in known}
        self.known = known | {k: e for k, e in lost.items() if night - k <= 10 * LONGEST}

    def _same_side(
        self, episode: Episode | None, start: int, changes: list[int], night: int
    ) -> bool:
        if episode is None:
            return True
        number = changes.index(start)
        before = changes[number - 1] if number else 0
        until = changes[number + 1] if number + 1 < len(changes) else night + 1
        return self._size(before, start, until) * episode.size > 0

    def _size(self, before: int, start: int, until: int) -> float:
        return float(np.median(self.x[start:until]) - self._level(before, start))

    def _level(self, begin: int, end: int) -> float:
        return float(np.median(self.x[max(begin, end - WINDOW) : end]))

    def _last_change(self, start: int, night: int) -> None:
        """Report the last change, once it is confirmed and large enough."""
        at = self.series, night
        if self.found.weight[at] < CONFIRMED or self.found.evidence[at] < needed(
            self.found, self.series, start, night
        ):
            return
        before = int(self.found.before[self.series, start, self.found.noise[at]])
        size = self._size(before, start, night + 1)
        if self._continues(start, size, night) or self._returned(before, start, night):
            self.alert = None
        elif not self._small(size, night):
            episode = Episode("step", start, night, size, self._evidence(night), regime=before,
                              before=self._level(before, start))  # fmt: skip
            self._of_alert(episode)
            self.known[start] = episode
            self.episodes.append(episode)

    def _small(self, size: float, night: int) -> bool:
        return abs(size) < max(LEAST, LEAST_SIGMAS * self.found.sigma[self.series, night])

    def _evidence(self, night: int) -> float:
        return float(self.found.evidence[self.series, night])

    def _of_alert(self, episode: Episode) -> None:
        """Date the report to the night that was reported at once."""
        alert = self.alert
        if alert is None or abs(alert.night - episode.start) > 1 or alert.off * episode.size < 0:
            return
        if abs(alert.off - episode.size) <= BACK * abs(alert.off) + HOLDS * alert.sigma:
            episode.detected = min(episode.detected, alert.night)
            episode.start = min(episode.start, alert.night)
        self.alert = None

    def _returned(self, begin: int, start: int, night: int) -> bool:
        """Make a transient of the change before, if the level is back to that before it."""
        if not begin or start - begin > LONGEST:
            return False
        regime = int(self.found.before[self.series, begin, self.found.noise[self.series, night]])
        before = self._level(max(regime, 0), begin)
        gone = float(np.median(self.x[begin:start])) - before
        left = float(np.median(self.x[start : night + 1])) - before
        if abs(left) > BACK * abs(gone):
            return False
        self.known[start] = None
        episode = self.known.get(begin)
        if self._small(gone, night):
            return True
        if episode is None:
            episode = Episode("pulse", begin, night, gone, self._evidence(night),
                              regime=max(regime, 0), before=before)  # fmt: skip
            self._of_alert(episode)
            self.episodes.append(episode)
            self.known[begin] = episode
        elif episode.kind == "step":
            episode.first, episode.revised = "step", night
        episode.kind, episode.end = "pulse", start - 1
        return True

    def _continues(self, start: int, size: float, night: int) -> bool:
        """Return whether the change continues a transient, which only seemed to have come back."""
        last = self.episodes[-1] if self.episodes else None
        if last is None or last.kind != "pulse" or last.end is None or last.size * size <= 0:
            return False
        lasts = float(np.median(self.x[start : night + 1])) - last.before
        if (
            start - last.end > LONGEST
            or lasts * last.size <= 0
            or abs(lasts) < BACK * abs(last.size)
        ):
            return False
        last.kind, last.end, last.dated = "step", None, night
        last.first, last.revised = "", None
        self.known[start] = last
        return True

    def _drift(self, night: int) -> None:
        """Make a drift of the last change, if a ramp explains all nights since better."""
        last = next((e for e in reversed(self.episodes) if e.kind in ("step", "ramp")), None)
        if last is None or night - last.dated > 2 * WINDOW or last.moved < last.regime + 2:
            return
        if night - last.moved < WINDOW // 2:
            return
        nights, part = _usual(self.x[last.regime : night + 1])
        step = last.moved - last.regime
        ramp, begin = _ramp(nights, part, step + LONGEST)
        if last.kind == "step" and len(part) * math.log(ramp / _levels(nights, part, step)) > -RAMP:
            return
        if last.kind == "step":
            last.kind, last.first, last.revised = "ramp", "step", night
            last.start = last.moved = min(last.regime + begin, last.detected)
        elif self._went_on(last, night):
            last.end, last.dated = night, night
        last.end = last.end or night

    def _slow(self, night: int) -> None:
        """Report a drift that autocorrelated noise seems to explain, but is too large for."""
        regime = max(self.known, default=0)
        if night - regime < 2 * WINDOW:
            return
        at = self.series, night
        _, share = NOISES[self.found.noise[at]]
        before = float(np.median(self.x[regime : regime + WINDOW]))
        size = float(np.median(self.x[night + 1 - 2 * LONGEST : night + 1])) - before
        # Standard deviation of the difference of two such means, of noise that keeps for weeks.
        spread = self.found.sigma[at] * math.sqrt(1.4 * share + 0.16)
        if abs(size) < max(DRIFTED * spread, LEAST) or share == 0:
            return
        if any(e.kind == "ramp" and e.size * size > 0 and e.start >= regime for e in self.episodes):
            return
        nights, part = _usual(self.x[regime : night + 1])
        begin = regime + _ramp(nights, part, len(part))[1]
        evidence = (size / spread) ** 2 / 2
        self.episodes.append(Episode("ramp", begin, night, size, evidence, end=night,
                                     regime=regime, before=before))  # fmt: skip

    def _went_on(self, drift: Episode, night: int) -> bool:
        """Return whether the value moved further since the drift was last seen to go on."""
        end = drift.end or drift.dated
        if night - end < 2 * EVERY:
            return False
        further = self._level(end, night + 1) - self._level(
            max(drift.start, end - 2 * LONGEST), end
        )
        return further * drift.size > 0 and abs(further) > 0.1 * abs(drift.size)

    # -- single nights -----------------------------------------------------------------------------

    def _same_night(self, night: int) -> None:
        """Report a night far off at once, until it is confirmed or the value is back."""
        alert, at = self.alert, (self.series, night)
        if alert:
            left = (self.x[night] - alert.expected) * np.sign(alert.off)
            half, noise = BACK * abs(alert.off), HOLDS * alert.sigma
            if left >= max(half - noise, min(half, noise)):
                return
            # Refuted by the second value of its own night, it was never reported.
            if self.nights[alert.night] < self.nights[night]:
                self.outliers.append((alert.night, night - 1))
            self.alert = None
        off = self.x[night] - self.found.expected[at]
        sigma = float(self.found.sigma[at])
        far = abs(off) >= FAR * sigma and (abs(off) >= FAR_SIZE or abs(off) >= OUTLIERS[1] * sigma)
        reported = any(night in (e.dated, e.revised) for e in self.episodes)
        if night >= WARM_UP and far and abs(off) >= LEAST and not reported:
            self.alert = _Alert(night, float(off), float(self.found.expected[at]), sigma)

    def _finish(self) -> None:
        if self.alert:
            alert = self.alert
            dirty = self.found.outliers[self.series, alert.night - 1] > CLEAN
            episode = Episode("suspect" if dirty else "step", alert.night, alert.night, alert.off,
                              (alert.off / alert.sigma) ** 2 / 2, confirmed=False,
                              before=alert.expected)  # fmt: skip
            self.episodes.append(episode)
        for episode in self.episodes:
            last = self.found.start[self.series] == episode.moved
            if last.any() and episode.kind != "pulse":
                best = float(self.found.evidence[self.series][last].max())
                episode.evidence = max(episode.evidence, best)
            # Later nights may date it later, but it had begun when it was first reported.
            episode.start = min(episode.start, episode.detected)
            episode.moved = min(episode.moved, episode.detected)
        self.episodes.sort(key=lambda episode: (episode.start, episode.detected))
        self.episodes = _merged(self.x, self.episodes)


def _merged(x: np.ndarray, episodes: list[Episode]) -> list[Episode]:
    """Return the episodes; changes to the same side that one slow drift explains become one."""
    found: list[Episode] = []
    for episode in episodes:
        last = next((e for e in reversed(found) if e.kind != "pulse"), None)
        if last is None or episode.kind == "pulse" or not _one_drift(x, last, episode):
            found.append(episode)
            continue
        if last.kind != "ramp":
            last.kind, last.first, last.revised = "ramp", last.kind, episode.detected
        last.end = max(last.end or 0, episode.detected)
        last.size += episode.size
        last.evidence = max(last.evidence, episode.evidence)
    return found


def _one_drift(x: np.ndarray, first: Episode, then: Episode) -> bool:
    """Return whether two changes to the same side are one slow drift.

    A drift absorbs steps that are no larger than what it moves in four weeks; of two steps, a ramp
    explains them as well (Bayes' criterion).
    """
    if first.size * then.size <= 0 or not (first.confirmed and then.confirmed):
        return False
    if then.kind == "ramp" and then.start <= (first.end or first.start) + 2 * LONGEST:
        return True
    if first.kind == "ramp" and first.end:
        reached = np.median(x[first.end - LONGEST : first.end + 1]) - first.before
        month = abs(reached) / max(first.end - first.start, 1) * 4 * LONGEST
        return then.start - first.end <= 2 * WINDOW and abs(then.size) <= month
    if not 2 * LONGEST <= then.start - first.start <= 2 * WINDOW:
        return False
    nights, part = _usual(x[first.regime : then.detected + 1])
    a, b, n = first.start - first.regime, then.start - first.regime, len(part)
    if not 0 < a < b < nights[-1]:
        return False
    ramp, _ = _ramp(nights, part, b)
    # Two steps have two more parameters than a ramp; one step has as many.
    one = min(_levels(nights, part, a), _levels(nights, part, b))
    levels = _levels(nights, part, a, b)
    return ramp < one and n * math.log(ramp / levels) < 2 * math.log(n)


def _usual(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nights that are no outliers, counted from the first, and their values."""
    nights = np.flatnonzero(stats.hampel(values) == values)
    return nights, values[nights]


def _levels(nights: np.ndarray, values: np.ndarray, *bounds: int) -> float:
    """Return the sum of squares about the levels between the bounds."""
    parts = np.split(values, np.searchsorted(nights, bounds))
    return sum(float(np.sum((p - p.mean()) ** 2)) for p in parts if len(p)) + TINY


def _ramp(nights: np.ndarray, values: np.ndarray, last: int) -> tuple[float, int]:
    """Return the sum of squares about a level that becomes a slope, and the night on which it does:
    one of the first `last`."""
    ramps = np.maximum(nights - np.arange(0, max(last, 1), 3)[:, None], 0.0)
    ramps -= ramps.mean(axis=1, keepdims=True)
    centred = values - values.mean()
    gain = (ramps @ centred) ** 2 / np.maximum((ramps**2).sum(axis=1), TINY)
    best = int(gain.argmax())
    return max(float(centred @ centred - gain[best]), 0.0) + TINY, 3 * best


@dataclass(frozen=True)
class Reading:
    """What happened in a series.

    :ivar values: logarithms of all measurements, in order; ``nights``: the night of each.
    :ivar outliers: first and last value of each run that stood out and came back unconfirmed.
    """

    values: np.ndarray
    nights: np.ndarray
    episodes: list[Episode]
    outliers: list[tuple[int, int]]
    partitions: Partitions
    row: int


def read(series: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> list[Reading | None]:
    """Return what happened in each series; none in one with no more than :data:`WARM_UP` nights.

    :arg series: positive values and second measurements of the same nights, NaN where there is
        none.
    """
    found: list[Reading | None] = [None] * len(series)
    rows = [_in_order(np.asarray(values, dtype=float), second) for values, second in series]
    long = [i for i, (_, nights) in enumerate(rows) if len(set(nights.tolist())) > WARM_UP]
    # Of like length, since all of a group take as long as the longest.
    long.sort(key=lambda i: len(rows[i][0]))
    for begin in range(0, len(long), TOGETHER):
        group = long[begin : begin + TOGETHER]
        table = np.full((len(group), max(len(rows[i][0]) for i in group)), np.nan)
        for number, i in enumerate(group):
            table[number, : len(rows[i][0])] = rows[i][0]
        partitions = partition.best(table)
        for number, i in enumerate(group):
            reader = Reader(*rows[i], partitions, number).read()
            found[i] = Reading(*rows[i], reader.episodes, reader.outliers, partitions, number)
    return found


def _in_order(values: np.ndarray, second: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms of all measured values, and the night of each.

    A second measurement is a further value of its night. The one nearer to the nights before is
    the later, so that it confirms or refutes the other.
    """
    nights = np.flatnonzero(~np.isnan(values))
    logs = np.log(values[nights])
    if second is None or np.isnan(second[nights]).all():
        return logs, nights
    again = np.log(np.asarray(second, dtype=float)[nights])
    usual = stats.running_median(logs, WARM_UP)
    swap = np.abs(logs - usual) < np.abs(again - usual)
    pairs = np.column_stack([np.where(swap, again, logs), np.where(swap, logs, again)]).ravel()
    measured = ~np.isnan(pairs)
    return pairs[measured], np.repeat(nights, 2)[measured]
