"""The walk over the nights of one series: what is known on each night, from the nights up to it.

The values are logarithms, one for each measured night; missing nights are not counted.
:func:`walk` is the entry. :mod:`plumbline.analysis.trend` makes findings of it, and
:mod:`plumbline.analysis.trend.autocorrelation` has the likelihoods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from plumbline.analysis import stats
from plumbline.analysis.trend import autocorrelation
from plumbline.analysis.trend.autocorrelation import Evidence
from plumbline.analysis.trend.episode import Episode
from plumbline.analysis.trend.immediate import ImmediateRule

#: Measured nights before the first judgement.
WARM_UP = 20
#: Fewest measured nights of a series that is judged.
NIGHTS = WARM_UP + 1
#: Evidence (nats) that a step, a transient that has ended, and a drift need.
STEP, PULSE, RAMP = 9.0, 11.5, 15.0
#: Least size of a change, and of a step in sigma of a night.
LEAST, LEAST_SIGMAS = 0.008, 1.2
#: Longest transient, in measured nights.
LONGEST = 7
#: A step found within so many nights of one to the same side is the same one, with a better date.
SAME = 10
#: Least share of a transient's size that a step after it has, to be the same change.
BACK = 0.4
#: Evidence (nats) for a return to the old level, and the most that one night adds to it.
RETURN, RETURN_NIGHT = 8.0, 3.0
#: A run of nights that are all so many sigma off is a change if chance outliers make such a run
#: with less than this evidence (nats); the last is for a run of two nights.
RUN_SIGMAS, RUN, RUN_OF_TWO = 3.0, 9.0, 11.5
#: The same for the first night of the run, under autocorrelated noise.
RUN_CORRELATED = 4.5
#: Nights of the running median that is the reference.
REFERENCE = 21
#: A night so many sigma off is an outlier; a single one is ignored.
OUTLIER = 4.0
#: Outliers per nights that are assumed before any night is known.
PRIOR = 0.5, 60.0
#: Least share of a change's size that its median night has, compared with so many nights before.
MOST, WINDOW = 0.6, 30
#: Evidence (nats) of a change's nights if each may be an outlier by chance.
MIXED = 6.5
#: An outlier lies anywhere within so many sigma.
WIDE = 25.0
#: Bounds of the limit at which outliers are clipped, in sigma.
CLIP = 3.0, 3.5
#: Evidence (nats) that each change costs, against autocorrelated noise without any.
CHANGE = 7.0
#: Most nights between two changes to the same side that may be one drift.
STAIRS = 60

#: First night of the regime, night on which its level became known, last night judged.
State = tuple[int, int, int]


def walk(
    values: np.ndarray, first: np.ndarray, second: np.ndarray
) -> tuple[list[Episode], list[tuple[int, int]]]:
    """Judge each night after the first :data:`WARM_UP` from the nights up to it.

    :arg values: logarithms, one a night, as :func:`combine` makes them of the first and second
        measurements (NaN without one).
    :returns: the episodes, and first and last night of runs that came back unconfirmed.
    """
    walker = Walker(values)
    walker.run()
    outliers = ImmediateRule(walker, first, second).apply()
    for episode in walker.episodes:
        # Later nights may date it later, but it had begun when it was first reported.
        episode.start = min(episode.start, episode.detected)
    walker.episodes.sort(key=lambda episode: (episode.start, episode.detected))
    return _merged(walker), outliers


def combine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one value a night: the mean of the two measurements.

    If they differ by more than the noise, it is the one nearer to the nights before.
    """
    both = np.flatnonzero(~np.isnan(second))
    if not len(both):
        return first
    found = first.copy()
    before = stats.running_median(first, REFERENCE)
    distance = np.abs(first - second)[both]
    usual = np.full(len(both), stats.noise(first[:WARM_UP]) * math.sqrt(2))
    if len(both) >= WARM_UP:
        usual = expanding_scale(distance)
    agree = distance <= 4 * np.maximum(usual, autocorrelation.FLOOR)
    nearer = np.where(np.abs(first - before) <= np.abs(second - before), first, second)[both]
    found[both] = np.where(agree, (first + second)[both] / 2, nearer)
    return found


def expanding_scale(deviation: np.ndarray) -> np.ndarray:
    """Return the robust standard deviation of the deviations before each, updated every ten nights.

    The first :data:`WARM_UP` nights share theirs.
    """
    scale = np.empty(len(deviation))
    size = np.abs(deviation)
    for block in range(0, len(deviation), 10):
        scale[block : block + 10] = stats.MAD_TO_STD * np.median(size[: max(block, WARM_UP)])
    return np.maximum(scale, autocorrelation.FLOOR)


@dataclass
class _View:
    """The nights that a pass looks at; arrays of one item for each of them.

    :ivar nights: their indices. :ivar s: position of the regime's first night. :ivar until:
        position of the first night after the level became known.
    :ivar x: logarithms. :ivar level: of the regime. :ivar raw: logarithms relative to the level
        (before the regime, to theirs). :ivar y: the same with outliers clipped.
    :ivar rate: share of outliers before. :ivar alone: single outliers. :ivar clipped: where.
    """

    nights: np.ndarray
    s: int
    until: int
    x: np.ndarray
    raw: np.ndarray
    y: np.ndarray
    level: float
    rate: np.ndarray
    alone: np.ndarray
    clipped: np.ndarray


class Walker:
    """The state of the walk over one series.

    :ivar keep: nights of no transient. :ivar single: nights that are single outliers.
    :ivar level: level (or ramp) of the nights before the regime.
    :ivar expected: prediction of each night from the nights before it; ``sigma``: standard
        deviation of the night from that.
    :ivar rate: share of outliers among the nights before.
    :ivar origin: first night that is looked at; a long series is looked at in parts.
    """

    def __init__(self, x: np.ndarray):
        self.x = x
        n = len(x)
        self.episodes: list[Episode] = []
        self.keep = np.ones(n, dtype=bool)
        self.single = np.zeros(n, dtype=bool)
        self.level = np.zeros(n)
        self.expected = np.full(n, np.nan)
        self.sigma = np.full(n, np.nan)
        self.rate = np.full(n, np.nan)
        self.origin = 0

    def run(self) -> None:
        """Judge all nights."""
        state: State = (0, WARM_UP - 1, WARM_UP - 1)
        while state[2] < len(self.x) - 1:
            state = self.next(*state)

    def kept(self) -> np.ndarray:
        """Return the nights from the origin on that are of no transient, and no single outlier."""
        nights = np.flatnonzero(self.keep & ~self.single)
        return nights[nights >= self.origin]

    def view(self, regime: int, known: int) -> _View:
        """Return the nights from the origin on, outliers clipped about the reference of each night.

        :arg known: night on which the regime's level became known. Until then its nights are taken
            together; from there on each is compared with the nights before it.
        """
        nights = self.kept()[: autocorrelation.NIGHTS]
        x = self.x[nights]
        s = int(np.searchsorted(nights, regime))
        until = max(int(np.searchsorted(nights, known, side="right")), s + 1)
        reference = self.level[nights].copy()
        reference[s:] = stats.running_median(x[s:], REFERENCE)
        level = float(np.median(x[s:until]))
        reference[s:until] = level
        deviation = x - reference
        scale = expanding_scale(deviation)
        far = np.abs(deviation) > OUTLIER * scale
        calm = np.abs(deviation) < 2.5 * scale
        alone = np.zeros(len(x), dtype=bool)
        alone[1:-2] = far[1:-2] & calm[:-3] & calm[2:-1] & calm[3:]
        alone[:s] = False
        outlier = self.single.copy()
        outlier[nights[far]] = True
        detected = np.cumsum(outlier[self.origin :]) - outlier[self.origin :]
        rate = (PRIOR[0] + detected) / (PRIOR[1] + np.arange(len(detected)))
        rate = np.minimum(rate[nights - self.origin], 0.1)
        limit = np.clip(np.sqrt(-2 * np.log(rate)), *CLIP) * scale
        limit = np.maximum(limit, 2 * LEAST)
        y = np.clip(deviation, -limit, limit) + reference
        base = np.where(np.arange(len(x)) < s, self.level[nights], level)
        far = np.abs(deviation) > limit
        return _View(nights, s, until, x, x - base, y - base, level, rate, alone, far)

    def next(self, regime: int, known: int, judged: int) -> State:
        """Continue after the night `judged`, up to the first event, and record it."""
        view = self.view(regime, known)
        nights, s = view.nights, view.s
        if s >= len(nights) or nights[-1] <= judged:
            return self.onward(regime, known, judged, nights)
        first = int(np.searchsorted(nights, judged, side="right"))
        # Two nights later an outlier is known to be single; that night is judged without it.
        alone = np.flatnonzero(view.alone)
        upto = max(int(alone[0]) + 2, first) if len(alone) else len(nights)
        found = autocorrelation.evidence(view.y[:upto], s, first)
        night = np.arange(len(found.sigma))
        open_ = night >= first
        step = (found.step >= STEP) & (
            np.abs(found.step_size) >= np.maximum(LEAST, LEAST_SIGMAS * found.sigma)
        )
        pulse = (found.pulse >= PULSE) & (
            np.abs(found.pulse_size) >= 1.5 * np.maximum(LEAST, LEAST_SIGMAS * found.sigma)
        )
        ramp = found.ramp >= RAMP
        run_start, run_size = _runs(view, found)
        for t in np.flatnonzero((step | pulse) & open_).tolist():
            step[t] = step[t] and _majority(
                view, int(found.step_start[t]), t, found.step_size[t], found.sigma[t],
                found.step[t] - STEP,
            )  # fmt: skip
            pulse[t] = pulse[t] and _majority(
                view, int(found.pulse_start[t]), int(found.pulse_end[t]), found.pulse_size[t],
                found.sigma[t], found.pulse[t] - PULSE,
            )  # fmt: skip
        hits = np.flatnonzero((step | pulse | ramp | (run_start >= 0)) & open_)
        end = int(hits[0]) if len(hits) else upto - 1
        new = slice(first, end + 1)
        self.expected[nights[new]] = (
            found.expected[new] + np.where(night >= s, view.level, 0.0)[new]
        )
        self.sigma[nights[new]] = found.sigma[new]
        self.rate[nights[new]] = view.rate[new]
        if not len(hits) and upto < len(nights):
            self.single[nights[: upto - 1][view.alone[: upto - 1]]] = True
            return regime, known, int(nights[upto]) - 1
        if not len(hits):
            return self.onward(regime, known, judged, nights)
        scores = [found.step[end] if step[end] else -1.0, found.pulse[end] if pulse[end] else -1.0,
                  found.ramp[end] if ramp[end] else -1.0]  # fmt: skip
        what = int(np.argmax(scores))
        if max(scores) < 0:
            what = 0
            found.step_start[end], found.step_size[end] = run_start[end], run_size[end]
            found.step[end] = STEP
        if self.is_autocorrelated(view, end, [found.step, found.pulse, found.ramp][what][end]):
            self.level[self.origin :] = 0.0
            return self.origin, self.origin_known(), int(nights[end])
        act = (self.on_step, self.on_pulse, self.on_ramp)[what]
        return act(view, found, end, regime, known)

    def onward(self, regime: int, known: int, judged: int, nights: np.ndarray) -> State:
        """Return the state for the next part of a long series, or the end."""
        if len(nights) < autocorrelation.NIGHTS:
            return regime, known, len(self.x) - 1
        self.origin = int(nights[len(nights) // 2])
        if regime < self.origin:
            regime, known = self.origin, self.origin_known()
        return regime, known, max(judged, int(nights[-1]))

    def origin_known(self) -> int:
        """Return the night on which the level at the origin is known."""
        kept = self.kept()
        return int(kept[min(WARM_UP, len(kept)) - 1])

    def is_autocorrelated(self, view: _View, t: int, gain: float) -> bool:
        """Return whether autocorrelated noise explains all nights better than the changes do."""
        lasting = sum(e.kind != "pulse" and e.start >= self.origin for e in self.episodes)
        if not lasting:
            return False
        level = self.level.copy()
        self.level[:] = 0.0
        plain = self.view(int(view.nights[0]), self.origin_known()).y
        self.level = level
        changed = autocorrelation.unchanged(view.y[: t + 1], view.s) + gain - CHANGE * (lasting + 1)
        return autocorrelation.unchanged(plain[: t + 1], 0) > changed

    # -- events; each returns the new state --------------------------------------------------

    def on_step(self, view: _View, found: Evidence, t: int, regime: int, known: int) -> State:
        nights, x, s = view.nights, view.x, view.s
        k, size = int(found.step_start[t]), float(found.step_size[t])
        before = float(np.median(x[s:k]))
        episode = Episode("step", int(nights[k]), int(nights[t]), size, float(found.step[t]),
                          regime=regime, before=before)  # fmt: skip
        last = self.last_step(episode.start, SAME)
        if last is not None and last.size * size > 0:
            self.episodes.remove(last)
            episode.detected, episode.regime = last.detected, last.regime
            before = episode.before = last.before
        transient = self.episodes[-1] if self.episodes else None
        if transient is not None and _continues_transient(
            transient, episode, self.x, int(nights[t])
        ):
            # It only seemed to have come back.
            self.episodes.remove(transient)
            self.keep[transient.start : transient.last + 1] = True
            episode.start = transient.start
            if transient.first == "step":
                episode.detected = transient.detected
        after = float(np.median(x[k : t + 1]))
        if last is not None and last.size * size < 0 and last in self.episodes:
            began = int(np.searchsorted(nights, last.start))
            returned = abs(after - last.before) < BACK * abs(before - last.before)
            if 0 < k - began <= LONGEST and returned:
                return self.ended(last, int(nights[k]), int(nights[t]))
        self.episodes.append(episode)
        back = _came_back(x, k, t, before, after, float(found.sigma[t]))
        if back is not None:
            return self.ended(episode, int(nights[back[0]]), int(nights[back[1]]))
        between = (nights >= episode.regime) & (nights < nights[k])
        self.level[nights[between]] = before
        return int(nights[k]), int(nights[t]), int(nights[t])

    def last_step(self, start: int, within: int) -> Episode | None:
        """Return the last episode if it is a step, so many nights before at most."""
        if not self.episodes or self.episodes[-1].kind != "step":
            return None
        return self.episodes[-1] if start - self.episodes[-1].start <= within else None

    def ended(self, episode: Episode, back: int, detected: int) -> State:
        """Make a transient of a step that came back on night `back`."""
        kept = self.keep & ~self.single
        kept[: episode.start] = kept[back:] = False
        episode.kind, episode.first, episode.revised = "pulse", "step", detected
        episode.end = int(np.flatnonzero(kept)[-1])
        self.keep[episode.start : back] = False
        self.level[episode.regime :] = 0.0
        return episode.regime, max(episode.start - 1, self.origin_known()), detected

    def on_pulse(self, view: _View, found: Evidence, t: int, regime: int, known: int) -> State:
        nights = view.nights
        a, b = int(nights[found.pulse_start[t]]), int(nights[found.pulse_end[t]])
        size = float(found.pulse_size[t])
        episode = Episode("pulse", a, int(nights[t]), size, float(found.pulse[t]), b,
                          regime=regime, before=view.level)  # fmt: skip
        last = self.last_step(a, SAME)
        if last is not None and last.size * size > 0:
            self.episodes.remove(last)
            episode.detected, episode.first, episode.revised = last.detected, "step", int(nights[t])
            self.level[last.regime :] = 0.0
            regime, known = last.regime, max(last.start - 1, self.origin_known())
        self.episodes.append(episode)
        self.keep[a : b + 1] = False
        return regime, known, int(nights[t])

    def on_ramp(self, view: _View, found: Evidence, t: int, regime: int, known: int) -> State:
        nights, x, s = view.nights, view.x, view.s
        k, slope = int(found.ramp_start[t]), float(found.ramp_slope[t])
        before = float(np.median(x[s : max(k, s + 5)]))
        size = slope * (t - k + 1)
        start, now = int(nights[k]), int(nights[t])
        self.episodes.append(Episode("ramp", start, now, size, float(found.ramp[t]), now,
                                     regime=regime, before=before))  # fmt: skip
        self.level[nights[s:k]] = before
        self.level[nights[k : t + 1]] = before + slope * np.arange(1, t - k + 2)
        return int(nights[t - 4]), int(nights[t]), int(nights[t])


def _continues_transient(transient: Episode, step: Episode, x: np.ndarray, now: int) -> bool:
    """Return whether the step continues the transient before it, which had not ended."""
    if transient.kind != "pulse" or step.start - transient.last > SAME:
        return False
    was = float(np.median(x[transient.start : transient.last + 1])) - transient.before
    lasts = float(np.median(x[step.start : now + 1])) - transient.before
    return lasts * was > 0 and step.size * was > 0 and abs(lasts) > BACK * abs(was)


def _majority(view: _View, start: int, end: int, size: float, sigma: float, spare: float) -> bool:
    """Return whether most nights support the change, and not only a few outliers.

    :arg spare: evidence (nats) beyond what the change needs. A clipped night counts as one at the
        limit. Its evidence beyond that of an outlier must not decide.
    """
    nights, rate = slice(start, end + 1), view.rate[start]
    before = np.median(view.y[max(start - WINDOW, 0) : start])
    off, raw = ((part[nights] - before) * np.sign(size) / sigma for part in (view.y, view.raw))
    shift = abs(size) / sigma
    if np.median(off) < MOST * shift:
        return False
    gave = shift * off - shift**2 / 2
    if np.minimum(gave, -math.log(rate)).sum() < MIXED:
        return False
    # Likelihoods of a night that is normal, or lies anywhere, relative to a normal one's height.
    anywhere = math.log(rate / (1 - rate) * math.sqrt(2 * math.pi) / WIDE)
    shift = max(shift, np.median(raw))
    changed, none = (np.logaddexp(-(z**2) / 2, anywhere) for z in (raw - shift, raw))
    return bool(np.maximum(gave - (changed - none), 0)[view.clipped[nights]].sum() <= spare)


def _runs(view: _View, found: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Return where each run of nights far off on one side began, and its size, at the night that
    completes it; -1 elsewhere.

    Under autocorrelated noise the run must begin with a jump.
    """
    n = len(found.expected)
    expected = found.expected.copy()
    expected[view.s :] += view.level
    start, size = np.full(n, -1), np.zeros(n)
    far = (view.x[:n] - expected) / found.sigma
    limit = np.where(found.autocorrelated, RUN_CORRELATED, RUN_SIGMAS)
    for begin in np.flatnonzero(np.abs(far) > limit):
        surprise = -math.log(view.rate[begin])
        need = 2 if 2 * surprise >= RUN_OF_TWO else max(3, math.ceil(RUN / surprise))
        t = begin + need - 1
        if begin < view.until or t >= n or start[t] >= 0:
            continue
        off = (view.x[begin : t + 1] - expected[begin]) * np.sign(far[begin])
        if off.min() > RUN_SIGMAS * found.sigma[begin]:
            start[t], size[t] = begin, np.sign(far[begin]) * np.median(off)
    return start, size


def _came_back(
    x: np.ndarray, k: int, t: int, before: float, after: float, sigma: float
) -> tuple[int, int] | None:
    """Return the first night back at the old level and the night that showed it, within the length
    of a transient."""
    total, begin = 0.0, None
    for i in range(t + 1, min(len(x), k + LONGEST + 7)):
        gain = (x[i] - (before + after) / 2) * (before - after) / sigma**2
        total += min(max(gain, -RETURN_NIGHT), RETURN_NIGHT)
        if total <= 0:
            total, begin = 0.0, None
        elif begin is None:
            begin = i
        if begin is not None and begin - k > LONGEST:
            return None
        if total >= RETURN and begin is not None:
            return begin, i
    return None


def _merged(walker: Walker) -> list[Episode]:
    """Return the episodes; changes to the same side that one slow drift explains become one."""
    found: list[Episode] = []
    for episode in walker.episodes:
        last = next((e for e in reversed(found) if e.kind != "pulse"), None)
        if last is None or episode.kind == "pulse" or not _one_drift(walker.x, last, episode):
            found.append(episode)
            continue
        if last.kind != "ramp":
            last.kind, last.first, last.revised = "ramp", last.kind, episode.detected
        last.detected = min(last.detected, episode.detected)
        last.end = max(last.last, episode.detected)
        last.size += episode.size
        last.evidence = max(last.evidence, episode.evidence)
    return found


def _one_drift(x: np.ndarray, first: Episode, then: Episode) -> bool:
    """Return whether one ramp explains two changes as well as two steps do (Bayes' criterion)."""
    if first.size * then.size <= 0 or not (first.confirmed and then.confirmed):
        return False
    if "ramp" in (first.kind, then.kind) and then.start <= max(first.detected, first.last):
        # Found again, after autocorrelated noise had seemed to explain it.
        return True
    if then.start - (first.end or first.start) > STAIRS:
        return False
    part = stats.hampel(x[first.regime : then.detected + 1])
    a, b = first.start - first.regime, then.start - first.regime
    n = len(part)
    if not 0 < a < b < n:
        return False
    levels = sum(float(np.sum((p - p.mean()) ** 2)) for p in (part[:a], part[a:b], part[b:]))
    one = min(
        float(np.sum((p - p.mean()) ** 2) + np.sum((q - q.mean()) ** 2))
        for p, q in ((part[:k], part[k:]) for k in (a, b))
    )
    night = np.arange(n)
    hinges = []
    for begin in range(0, b, 3):
        ramp = np.maximum(night - begin, 0.0)
        design = np.column_stack([np.ones(n), ramp])
        rest = part - design @ np.linalg.lstsq(design, part, rcond=None)[0]
        hinges.append(float(rest @ rest))
    # Two steps have two more parameters than a ramp; one step has as many.
    return min(hinges) < one and n * math.log(min(hinges) / levels) < 2 * math.log(n)
