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
from plumbline.analysis.trend.partition import CONFIRMED, LEAST, LEAST_SIGMAS, NOISES, WARM_UP

#: Against a division by zero where values never vary.
TINY = 1e-12
#: Nats that a change needs in its first three nights, when two outliers look like it.
EARLY = 4.0
#: Nats for what autocorrelated noise looks like: a change that shows late, and a drift.
LATE = 2 * EARLY
#: A night is reported at once if it is so many sigma off,
FAR = 3.2
#: and by so much (relative), which autocorrelated noise hardly is, or by twice as many sigma.
FAR_SIZE = 1.5 * partition.SLOW
#: Longest transient, and most nights by which later nights may date a change anew.
LONGEST = 7
#: A level is back if less than this share of the change is left: it is nearer to the one before.
BACK = 0.5
#: Up to this share of outliers, an unconfirmed night is reported as a change, not as a suspect:
#: what is assumed before any night is known. So of no outlier, or of one in a long series.
CLEAN = partition.ASSUMED / partition.MEMORY
#: Nights of the level before a change that its size is computed from. Twice as many are the most
#: between two changes that may be one drift; half as many, the fewest of a drift, and of a change
#: that autocorrelated noise looks like.
WINDOW = 4 * LONGEST
#: Nights from one search for drifts to the next: more are faster.
EVERY = 5
#: Series that are read at once: more do not fit the processor's cache, fewer cost more calls.
TOGETHER = 32


@dataclass
class Episode:
    """Something that happened.

    :ivar kind: ``step``, ``transient``, ``drift`` or ``suspect`` (a night far off, in a series with
        outliers).
    :ivar detected: night of the first report; ``dated``: night whose value confirmed it.
    :ivar end: last night of a transient, or the last on which a drift went on.
    :ivar first: the kind first reported, if it was revised; ``revised``: the night of that.
    :ivar regime: first night of the level before; ``before``: that level.
    :ivar moved: first changed night, as later nights date it.
    :ivar steps: first nights of all steps that it consists of.
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
    steps: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.dated, self.moved, self.steps = self.detected, self.start, [self.start]


def needed(found: partition.Partitions, start: int, night: int) -> float:
    """Return the evidence (nats) that the last change needs on a night to be reported."""
    if found.weight[night] < CONFIRMED + 2:
        return EARLY
    # Autocorrelated noise looks like a change that shows only so late, or that began in the second
    # half of the first nights, from which the noise is known.
    return LATE if night - start > WINDOW // 2 or start < WARM_UP else partition.EVIDENCE


class Reader:
    """Reads one series, night by night.

    :ivar x: logarithms of all measurements, in order; ``nights``: the night of each.
    :ivar outliers: first and last value of each run that stood out and came back unconfirmed.
    :ivar known: first nights of changes that are known, with the episode that reported each.
    :ivar alert: a night far off that no change explains yet.
    """

    def __init__(self, values: np.ndarray, nights: np.ndarray, found: partition.Partitions) -> None:
        self.x, self.nights, self.found = values, nights, found
        self.episodes: list[Episode] = []
        self.outliers: list[tuple[int, int]] = []
        self.known: dict[int, Episode | None] = {}
        self.alert: int | None = None

    def read(self) -> Reader:
        """Read all nights after the warm-up."""
        starts, noise = self.found.start, self.found.noise
        self.known = dict.fromkeys(c for c in self.found.changes(WARM_UP - 1) if c < WARM_UP // 2)
        for night in range(WARM_UP, len(self.x)):
            start = int(starts[night])
            if start != starts[night - 1] or noise[night] != noise[night - 1]:
                self._follow(night)
            if start and start not in self.known:
                self._last_change(start, night)
            self._same_night(night)
            if night % EVERY == 0:
                self._drift(night)
                self._slow(night)
        self._finish()
        return self

    # -- changes -----------------------------------------------------------------------------------

    def _follow(self, night: int) -> None:
        """Date the known changes anew, each to the nearest change to the same side."""
        known: dict[int, Episode | None] = {}
        bounds = [0, *self.found.changes(night), night + 1]
        for before, start, until in zip(bounds, bounds[1:], bounds[2:], strict=False):
            size = self._size(before, start, until)
            near = [k for k, episode in self.known.items() if abs(k - start) <= LONGEST
                    and (episode is None or size * episode.size > 0)]  # fmt: skip
            if near:
                known[start] = self.known.pop(min(near, key=lambda k: abs(k - start)))
        for start, episode in known.items():
            if episode is not None and episode.kind == "step":
                episode.moved = start
        lost = {k: e for k, e in self.known.items() if e is not None and k not in known}
        self.known = known | {k: e for k, e in lost.items() if night - k <= 10 * LONGEST}

    def _size(self, before: int, start: int, until: int) -> float:
        return float(np.median(self.x[start:until]) - self._level(before, start))

    def _level(self, begin: int, end: int) -> float:
        return float(np.median(self.x[max(begin, end - WINDOW) : end]))

    def _small(self, size: float, night: int) -> bool:
        return abs(size) < max(LEAST, LEAST_SIGMAS * self.found.sigma[night])

    def _last_change(self, start: int, night: int) -> None:
        """Report the last change, once it is confirmed and large enough."""
        found = self.found
        if found.weight[night] < CONFIRMED or found.evidence[night] < needed(found, start, night):
            return
        before = int(found.before[start, found.noise[night]])
        size = self._size(before, start, night + 1)
        if self._continues(start, size, night) or self._returned(before, start, night):
            self.alert = None
        elif not self._small(size, night):
            self._report("step", start, night, size, before)

    def _report(self, kind: str, start: int, night: int, size: float, regime: int) -> Episode:
        evidence, before = float(self.found.evidence[night]), self._level(regime, start)
        episode = Episode(kind, start, night, size, evidence, regime=regime, before=before)
        self._of_alert(episode)
        self.known[start] = episode
        self.episodes.append(episode)
        return episode

    def _of_alert(self, episode: Episode) -> None:
        """Date the report to the night that was reported at once, which it explains."""
        night, start = self.alert, episode.start
        if night is None or night < start - 1 or self._off(night) * episode.size < 0:
            return
        off, noise = self._off(night), LEAST_SIGMAS * self.found.sigma[night]
        alike, soon = abs(off - episode.size) <= BACK * abs(off) + noise, night <= start + 1
        if alike and soon:
            episode.detected = min(episode.detected, night)
            episode.start = min(episode.start, night)
        if alike or soon:
            self.alert = None

    def _returned(self, begin: int, start: int, night: int) -> bool:
        """Make a transient of the change before, if the level is back to that before it."""
        if not begin or start - begin > LONGEST:
            return False
        regime = max(int(self.found.before[begin, self.found.noise[night]]), 0)
        gone, left = (float(np.median(part)) - self._level(regime, begin)
                      for part in (self.x[begin:start], self.x[start : night + 1]))  # fmt: skip
        if abs(left) > BACK * abs(gone):
            return False
        self.known[start] = None
        episode = self.known.get(begin)
        if self._small(gone, night):
            return True
        if episode is None:
            episode = self._report("transient", begin, night, gone, regime)
        elif episode.kind == "step":
            episode.first, episode.revised = "step", night
        episode.kind, episode.end = "transient", start - 1
        return True

    def _continues(self, start: int, size: float, night: int) -> bool:
        """Return whether the change continues a transient, which only seemed to have come back."""
        last = self.episodes[-1] if self.episodes else None
        if last is None or last.kind != "transient" or last.end is None or last.size * size <= 0:
            return False
        lasts = float(np.median(self.x[start : night + 1])) - last.before
        if start - last.end > LONGEST or lasts / last.size < BACK:
            return False
        last.kind, last.end, last.dated = "step", None, night
        last.first, last.revised = "", None
        self.known[start] = last
        return True

    # -- drifts ------------------------------------------------------------------------------------

    def _drift(self, night: int) -> None:
        """Make a drift of the last change, if a ramp explains all nights since better."""
        last = next((e for e in reversed(self.episodes) if e.kind in ("step", "drift")), None)
        if last is None or night - last.dated > 2 * WINDOW or night - last.moved < WINDOW // 2:
            return
        if last.kind == "drift":
            if self._went_on(last, night):
                last.end, last.dated = night, night
            return
        if last.moved < last.regime + 2:
            return
        nights, part = _usual(self.x[last.regime : night + 1])
        step = last.moved - last.regime
        ramp, begin = _ramp(nights, part, step + LONGEST)
        if len(part) * math.log(ramp / _levels(nights, part, step)) <= -2 * LATE:
            last.kind, last.first, last.revised, last.end = "drift", "step", night, night
            last.start = last.moved = min(last.regime + begin, last.detected)

    def _went_on(self, drift: Episode, night: int) -> bool:
        """Return whether the value moved further since the drift was last seen to go on."""
        end = drift.end or drift.dated
        if night - end < 2 * EVERY:
            return False
        before = self._level(max(drift.start, end - 2 * LONGEST), end)
        return (self._level(end, night + 1) - before) / drift.size > 0.1

    def _slow(self, night: int) -> None:
        """Report a drift that autocorrelated noise seems to explain, but is too large for."""
        regime = max(self.known, default=0)
        if night - regime < 2 * WINDOW:
            return
        _, share = NOISES[self.found.noise[night]]
        before = self._level(regime, regime + WINDOW)
        size = self._level(night + 1 - 2 * LONGEST, night + 1) - before
        # Standard deviation of the difference of two such means, of noise that keeps for weeks.
        spread = self.found.sigma[night] * math.sqrt(1.4 * share + 0.16)
        if abs(size) < max(FAR * spread, LEAST) or share == 0:
            return
        drifts = [e for e in self.episodes if e.kind == "drift" and e.start >= regime]
        if any(drift.size * size > 0 for drift in drifts):
            return
        nights, part = _usual(self.x[regime : night + 1])
        begin = regime + _ramp(nights, part, len(part))[1]
        evidence = (size / spread) ** 2 / 2 - partition.CHANGE
        self.episodes.append(Episode("drift", begin, night, size, evidence, end=night,
                                     regime=regime, before=before))  # fmt: skip

    # -- single nights -----------------------------------------------------------------------------

    def _off(self, night: int) -> float:
        return float(self.x[night] - self.found.expected[night])

    def _same_night(self, night: int) -> None:
        """Report a night far off at once, until it is confirmed or the value is back."""
        first = self.alert
        if first is not None:
            left = (self.x[night] - self.found.expected[first]) * np.sign(self._off(first))
            half, noise = BACK * abs(self._off(first)), LEAST_SIGMAS * self.found.sigma[first]
            if left >= max(half - noise, min(half, noise)):
                return
            # Refuted by the second value of its own night, it was never reported.
            if self.nights[first] < self.nights[night]:
                self.outliers.append((first, night - 1))
            self.alert = None
        off, sigma = abs(self._off(night)), self.found.sigma[night]
        far = off >= max(FAR * sigma, min(FAR_SIZE, 2 * FAR * sigma), LEAST)
        if far and not any(night in (e.dated, e.revised) for e in self.episodes):
            self.alert = night

    def _finish(self) -> None:
        night = self.alert
        if night is not None:
            kind = "step" if self.found.outliers[night - 1] <= CLEAN else "suspect"
            off = self._off(night)
            evidence = float((off / self.found.sigma[night]) ** 2 / 2) - partition.CHANGE
            self.episodes.append(Episode(kind, night, night, off, evidence, confirmed=False,
                                         before=float(self.found.expected[night])))  # fmt: skip
        for episode in self.episodes:
            last = self.found.start == episode.moved
            if last.any() and episode.kind != "transient":
                episode.evidence = max(episode.evidence, float(self.found.evidence[last].max()))
            # Later nights may date it later, but it had begun when it was first reported.
            episode.start = min(episode.start, episode.detected)
            episode.moved = min(episode.moved, episode.detected)
        self.episodes.sort(key=lambda episode: (episode.start, episode.detected))
        self.episodes = _merged(self.x, self.episodes)


def _merged(x: np.ndarray, episodes: list[Episode]) -> list[Episode]:
    """Return the episodes; changes to the same side that one slow drift explains become one."""
    found: list[Episode] = []
    for episode in episodes:
        episode.steps = [episode.moved]
        last = next((e for e in reversed(found) if e.kind != "transient"), None)
        if last is None or episode.kind == "transient" or not _one_drift(x, last, episode):
            found.append(episode)
            continue
        if last.kind != "drift":
            last.kind, last.first, last.revised = "drift", last.kind, episode.detected
        last.end = max(last.end or 0, episode.detected)
        last.size += episode.size
        last.steps += episode.steps
        last.evidence = max(last.evidence, episode.evidence)
    return found


def _one_drift(x: np.ndarray, first: Episode, then: Episode) -> bool:
    """Return whether two changes to the same side are one slow drift.

    A ramp explains the nights as well as all the steps do (Bayes' criterion), and better than any
    one of them.
    """
    if first.size * then.size <= 0 or not (first.confirmed and then.confirmed):
        return False
    if then.kind == "drift" and then.start <= (first.end or first.start) + 2 * LONGEST:
        return True
    apart = then.start - (first.end or first.start)
    if apart > 2 * WINDOW or (first.kind == "step" and apart < 2 * LONGEST):
        return False
    nights, part = _usual(x[first.regime : then.detected + 1])
    steps = [step - first.regime for step in (*first.steps, then.start)]
    if not 0 < steps[0] < steps[-1] < nights[-1]:
        return False
    ramp, _ = _ramp(nights, part, steps[-1])
    # Each step has two parameters, and a ramp has as many as one step.
    one = min(_levels(nights, part, step) for step in steps)
    levels, more = _levels(nights, part, *steps), 2 * (len(steps) - 1)
    return ramp < one and len(part) * math.log(ramp / levels) < more * math.log(len(part))


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


def read(series: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> list[Reader | None]:
    """Return what happened in each series; none in one with no more than :data:`WARM_UP` nights.

    :arg series: positive values and second measurements of the same nights, NaN where there is
        none.
    """
    found: list[Reader | None] = [None] * len(series)
    rows = [_in_order(np.asarray(values, dtype=float), second) for values, second in series]
    long = [i for i, (_, nights) in enumerate(rows) if len(set(nights.tolist())) > WARM_UP]
    # Of like length, since all of a group take as long as the longest.
    long.sort(key=lambda i: len(rows[i][0]))
    for begin in range(0, len(long), TOGETHER):
        group = long[begin : begin + TOGETHER]
        table = np.full((len(group), max(len(rows[i][0]) for i in group)), np.nan)
        for number, i in enumerate(group):
            table[number, : len(rows[i][0])] = rows[i][0]
        for i, partitions in zip(group, partition.PartitionSearch(table).run(), strict=True):
            found[i] = Reader(*rows[i], partitions).read()
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
