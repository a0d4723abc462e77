"""The walk over one series' nights: what each night lets one say, from what was known then.

The values are logarithms, one a measured night; a missing night is left out, so that nights are
counted as measured. :func:`walk` is the entry; :mod:`plumbline.analysis.trend` makes
findings of it, and :mod:`plumbline.analysis.trend.wander` has the likelihoods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from plumbline.analysis import stats
from plumbline.analysis.trend import sudden, wander
from plumbline.analysis.trend.episode import Episode

#: Measured nights before the first judgement.
WARM_UP = 20
#: Measured nights that a series has at least, for its last to be judged.
NIGHTS = WARM_UP + 1
#: Evidence (nats) that makes a step, a blip that has ended, and a drift.
STEP, PULSE, RAMP = 9.0, 11.5, 15.0
#: A change has at least this size, and a step at least so many sigma of a night.
LEAST, LEAST_SIGMAS = 0.008, 1.2
#: Longest blip, in measured nights.
BLIP = 7
#: A step found within so many nights of one to the same side is the same, dated better.
SAME = 10
#: A step after a blip has at least this share of its size, to be the same change.
BACK = 0.4
#: Evidence (nats) for a return to the old level, and the most that one night gives of it.
RETURN, RETURN_NIGHT = 8.0, 3.0
#: A run of nights that are all so many sigma off is a change if chance outliers make one with less
#: than this evidence (nats); a run of two nights with more.
RUN_SIGMAS, RUN, RUN_OF_TWO = 3.0, 9.0, 11.5
#: Where the nights wander, the first of the run is so many sigma off.
RUN_WANDERS = 4.5
#: Nights that the running reference is the median of.
REFERENCE = 21
#: A night so many sigma off is an outlier; one that stood alone is left out.
OUTLIER = 4.0
#: Outliers per nights that are assumed before any night was seen.
PRIOR = 0.5, 60.0
#: The median night of a change has at least this share of its size, against that of the nights
#: before.
MOST, WINDOW = 0.6, 30
#: Evidence (nats) of a change's nights if each may be a chance outlier, so that none gives more
#: than outliers are rare.
MIXED = 6.5
#: An outlier lies anywhere within so many sigma.
WIDE = 25.0
#: Bounds of where outliers are clipped, in sigma.
CLIP = 3.0, 3.5
#: What each change costs (nats) against wander that explains all the nights without them.
CHANGE = 7.0


@dataclass
class Walk:
    """What :func:`walk` found.

    :ivar outliers: single runs that came back before anything bore them out: first and last night.
    """

    episodes: list[Episode]
    outliers: list[tuple[int, int]]


def walk(logs: np.ndarray, second: np.ndarray | None = None) -> Walk:
    """Judges each night after the first :data:`WARM_UP` from the nights up to it.

    :arg logs: logarithms of the first measurements.
    :arg second: logarithms of second measurements of the same nights, NaN where there is none.
    """
    if second is None:
        second = np.full(len(logs), np.nan)
    if len(logs) < NIGHTS:
        return Walk([], [])
    walker = Walker(combine(logs, second))
    walker.run()
    outliers = sudden.Sudden(walker, logs, second).apply()
    for episode in walker.episodes:
        # Dated later by the nights since, it had still begun when it was told.
        episode.start = min(episode.start, episode.detected)
    walker.episodes.sort(key=lambda episode: (episode.start, episode.detected))
    return Walk(_merged(walker), outliers)


def combine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One value a night: the mean of the two measurements, or, where they are further apart than
    noise makes them, the one nearer to the nights before."""
    both = np.flatnonzero(~np.isnan(second))
    if not len(both):
        return first
    found = first.copy()
    before = stats.running_median(first, REFERENCE)
    apart = np.abs(first - second)[both]
    usual = np.full(len(both), stats.noise(first[:WARM_UP]) * math.sqrt(2))
    if len(both) >= WARM_UP:
        usual = expanding_scale(apart)
    agree = apart <= 4 * np.maximum(usual, wander.FLOOR)
    nearer = np.where(np.abs(first - before) <= np.abs(second - before), first, second)[both]
    found[both] = np.where(agree, (first + second)[both] / 2, nearer)
    return found


def expanding_scale(deviation: np.ndarray) -> np.ndarray:
    """Robust standard deviation of the deviations before each, renewed every ten; that of the
    first :data:`WARM_UP` is of them all."""
    scale = np.empty(len(deviation))
    size = np.abs(deviation)
    for block in range(0, len(deviation), 10):
        scale[block : block + 10] = stats.MAD_TO_STD * np.median(size[: max(block, WARM_UP)])
    return np.maximum(scale, wander.FLOOR)


@dataclass
class _View:
    """The nights that a pass looks at; arrays of one item for each of them.

    :ivar at: the nights' indices. :ivar s: position of the regime's first night. :ivar until:
        position of the first night after those that made its level known.
    :ivar level: the level of the regime, that ``raw`` is counted from. :ivar y: the same, with
        outliers clipped.
    """

    at: np.ndarray
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
    """One series on its way: what is known of it so far."""

    def __init__(self, x: np.ndarray):
        self.x = x
        n = len(x)
        self.episodes: list[Episode] = []
        #: Nights that are of no blip, and that did not stand alone.
        self.keep = np.ones(n, dtype=bool)
        self.single = np.zeros(n, dtype=bool)
        #: Level (or ramp) of the nights before the regime.
        self.level = np.zeros(n)
        #: What the nights before let expect of each, and the standard deviation about that.
        self.expected = np.full(n, np.nan)
        self.sigma = np.full(n, np.nan)
        #: Share of the nights before that were outliers.
        self.rate = np.full(n, np.nan)
        #: First night that is looked at: a long series is looked at in parts.
        self.origin = 0

    def run(self) -> None:
        regime, known, judged = 0, WARM_UP - 1, WARM_UP - 1
        while judged < len(self.x) - 1:
            regime, known, judged = self.next(regime, known, judged)

    def view(self, regime: int, known: int) -> _View:
        """The nights from the origin on, outliers clipped about the reference of each night.

        :arg known: the night on which the regime was known: until then its nights are taken
            together, from there on each is held against the nights before it.
        """
        at = np.flatnonzero(self.keep & ~self.single)
        at = at[at >= self.origin][: wander.NIGHTS]
        x = self.x[at]
        s = int(np.searchsorted(at, regime))
        until = max(int(np.searchsorted(at, known, side="right")), s + 1)
        reference = self.level[at].copy()
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
        outlier[at[far]] = True
        seen = np.cumsum(outlier[self.origin :]) - outlier[self.origin :]
        rate = (PRIOR[0] + seen) / (PRIOR[1] + np.arange(len(seen)))
        rate = np.minimum(rate[at - self.origin], 0.1)
        limit = np.clip(np.sqrt(-2 * np.log(rate)), *CLIP) * scale
        limit = np.maximum(limit, 2 * LEAST)
        y = np.clip(deviation, -limit, limit) + reference
        base = np.where(np.arange(len(x)) < s, self.level[at], level)
        far = np.abs(deviation) > limit
        return _View(at, s, until, x, x - base, y - base, level, rate, alone, far)

    def next(self, regime: int, known: int, judged: int) -> tuple[int, int, int]:
        """Judges on from the night after `judged`, up to the first event, and notes it.

        :returns: regime, the night on which it was known, and the last night judged.
        """
        view = self.view(regime, known)
        at, s = view.at, view.s
        if s >= len(at) or at[-1] <= judged:
            return self.onward(regime, known, judged, at)
        first = int(np.searchsorted(at, judged, side="right"))
        # Known as alone on the second night after it, which is judged without it.
        alone = np.flatnonzero(view.alone)
        told = max(int(alone[0]) + 2, first) if len(alone) else len(at)
        found = wander.evidence(view.y[:told], s, first)
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
        for t in np.flatnonzero((step | pulse) & open_):
            step[t] = step[t] and _most(view, int(found.step_start[t]), t, found.step_size[t],
                                        found.sigma[t], found.step[t] - STEP)  # fmt: skip
            pulse[t] = pulse[t] and _most(view, int(found.pulse_start[t]), int(found.pulse_end[t]),
                                          found.pulse_size[t], found.sigma[t],
                                          found.pulse[t] - PULSE)  # fmt: skip
        hits = np.flatnonzero((step | pulse | ramp | (run_start >= 0)) & open_)
        end = int(hits[0]) if len(hits) else told - 1
        new = slice(first, end + 1)
        self.expected[at[new]] = found.expected[new] + np.where(night >= s, view.level, 0.0)[new]
        self.sigma[at[new]] = found.sigma[new]
        self.rate[at[new]] = view.rate[new]
        if not len(hits) and told < len(at):
            self.single[at[: told - 1][view.alone[: told - 1]]] = True
            return regime, known, int(at[told]) - 1
        if not len(hits):
            return self.onward(regime, known, judged, at)
        scores = [found.step[end] if step[end] else -1.0, found.pulse[end] if pulse[end] else -1.0,
                  found.ramp[end] if ramp[end] else -1.0]  # fmt: skip
        what = int(np.argmax(scores))
        if max(scores) < 0:
            what = 0
            found.step_start[end], found.step_size[end] = run_start[end], run_size[end]
            found.step[end] = STEP
        if self.wanders(view, end, [found.step, found.pulse, found.ramp][what][end]):
            self.level[self.origin :] = 0.0
            return self.origin, self.origin_known(), int(at[end])
        act = (self.on_step, self.on_pulse, self.on_ramp)[what]
        return act(view, found, end, regime, known)

    def onward(self, regime: int, known: int, judged: int, at: np.ndarray) -> tuple[int, int, int]:
        """Nothing more in these nights: to the next part of a long series, or to the end."""
        if len(at) < wander.NIGHTS:
            return regime, known, len(self.x) - 1
        self.origin = int(at[len(at) // 2])
        if regime < self.origin:
            regime, known = self.origin, self.origin_known()
        return regime, known, max(judged, int(at[-1]))

    def origin_known(self) -> int:
        kept = np.flatnonzero(self.keep & ~self.single)
        kept = kept[kept >= self.origin]
        return int(kept[min(WARM_UP, len(kept)) - 1])

    def wanders(self, view: _View, t: int, gain: float) -> bool:
        """Whether wander explains all the nights better than the changes found until now do."""
        lasting = sum(e.kind != "pulse" and e.start >= self.origin for e in self.episodes)
        if not lasting:
            return False
        level = self.level.copy()
        self.level[:] = 0.0
        plain = self.view(int(view.at[0]), self.origin_known()).y
        self.level = level
        changed = wander.unchanged(view.y[: t + 1], view.s) + gain - CHANGE * (lasting + 1)
        return wander.unchanged(plain[: t + 1], 0) > changed

    # -- what an event makes of the regime -----------------------------------------------------

    def on_step(self, view, found, t, regime, known):
        at, x, s = view.at, view.x, view.s
        k, size = int(found.step_start[t]), float(found.step_size[t])
        before = float(np.median(x[s:k]))
        episode = Episode("step", int(at[k]), int(at[t]), size, float(found.step[t]),
                          regime=regime, before=before)  # fmt: skip
        last = self.last_step(episode.start, SAME)
        if last is not None and last.size * size > 0:
            self.episodes.remove(last)
            episode.detected, episode.before, episode.regime = (
                last.detected,
                last.before,
                last.regime,
            )
            before = last.before
        blip = self.episodes[-1] if self.episodes else None
        if blip is not None and _went_on(blip, episode, self.x, int(at[t])):
            # It only seemed to have come back.
            self.episodes.remove(blip)
            self.keep[blip.start : blip.end + 1] = True
            episode.start = blip.start
            if blip.first == "step":
                episode.detected = blip.detected
        after = float(np.median(x[k : t + 1]))
        if last is not None and last.size * size < 0 and last in self.episodes:
            began = int(np.searchsorted(at, last.start))
            if 0 < k - began <= BLIP and abs(after - last.before) < 0.4 * abs(before - last.before):
                return self.ended(last, int(at[k]), int(at[t]))
        self.episodes.append(episode)
        back = _came_back(x, k, t, before, after, float(found.sigma[t]))
        if back is not None:
            return self.ended(episode, int(at[back[0]]), int(at[back[1]]))
        between = (at >= episode.regime) & (at < at[k])
        self.level[at[between]] = before
        return int(at[k]), int(at[t]), int(at[t])

    def last_step(self, start: int, within: int) -> Episode | None:
        """The step before, if it is the last episode and that near."""
        if not self.episodes or self.episodes[-1].kind != "step":
            return None
        return self.episodes[-1] if start - self.episodes[-1].start <= within else None

    def ended(self, episode: Episode, back: int, seen: int) -> tuple[int, int, int]:
        """The step came back on night `back`, told on night `seen`: it was a blip."""
        kept = self.keep & ~self.single
        kept[: episode.start] = kept[back:] = False
        episode.kind, episode.first, episode.revised = "pulse", "step", seen
        episode.end = int(np.flatnonzero(kept)[-1])
        self.keep[episode.start : back] = False
        self.level[episode.regime :] = 0.0
        return episode.regime, max(episode.start - 1, self.origin_known()), seen

    def on_pulse(self, view, found, t, regime, known):
        at = view.at
        a, b = int(at[found.pulse_start[t]]), int(at[found.pulse_end[t]])
        size = float(found.pulse_size[t])
        episode = Episode("pulse", a, int(at[t]), size, float(found.pulse[t]), b,
                          regime=regime, before=view.level)  # fmt: skip
        last = self.last_step(a, SAME)
        if last is not None and last.size * size > 0:
            self.episodes.remove(last)
            episode.detected, episode.first, episode.revised = last.detected, "step", int(at[t])
            self.level[last.regime :] = 0.0
            regime, known = last.regime, max(last.start - 1, self.origin_known())
        self.episodes.append(episode)
        self.keep[a : b + 1] = False
        return regime, known, int(at[t])

    def on_ramp(self, view, found, t, regime, known):
        at, x, s = view.at, view.x, view.s
        k, slope = int(found.ramp_start[t]), float(found.ramp_slope[t])
        before = float(np.median(x[s : max(k, s + 5)]))
        size = slope * (t - k + 1)
        self.episodes.append(Episode("ramp", int(at[k]), int(at[t]), size, float(found.ramp[t]),
                                     int(at[t]), regime=regime, before=before))  # fmt: skip
        self.level[at[s:k]] = before
        self.level[at[k : t + 1]] = before + slope * np.arange(1, t - k + 2)
        return int(at[t - 4]), int(at[t]), int(at[t])


def _went_on(blip: Episode, step: Episode, x: np.ndarray, now: int) -> bool:
    """Whether the step is the blip before it, which had not ended."""
    if blip.kind != "pulse" or step.start - blip.end > SAME:
        return False
    was = float(np.median(x[blip.start : blip.end + 1])) - blip.before
    lasts = float(np.median(x[step.start : now + 1])) - blip.before
    return lasts * was > 0 and step.size * was > 0 and abs(lasts) > BACK * abs(was)


def _most(view: _View, start: int, end: int, size: float, sigma: float, spare: float) -> bool:
    """Whether most nights bear the change out, not a few that stand out.

    :arg spare: evidence (nats) beyond what the change needs. A clipped night still counts as one
        at the limit; what it gave more than an outlier does must not be what the change lives from.
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


def _runs(view: _View, found: wander.Evidence) -> tuple[np.ndarray, np.ndarray]:
    """For nights that end a run of nights far off on one side: where it began (else -1), its size.

    Where the nights wander, the likelihood has to say it, unless the run begins with a jump."""
    n = len(found.expected)
    expected = found.expected.copy()
    expected[view.s :] += view.level
    start, size = np.full(n, -1), np.zeros(n)
    far = (view.x[:n] - expected) / found.sigma
    for begin in np.flatnonzero(np.abs(far) > np.where(found.wanders, RUN_WANDERS, RUN_SIGMAS)):
        surprise = -math.log(view.rate[begin])
        need = 2 if 2 * surprise >= RUN_OF_TWO else max(3, math.ceil(RUN / surprise))
        t = begin + need - 1
        if begin < view.until or t >= n or start[t] >= 0:
            continue
        off = (view.x[begin : t + 1] - expected[begin]) * np.sign(far[begin])
        if off.min() > RUN_SIGMAS * found.sigma[begin]:
            start[t], size[t] = begin, np.sign(far[begin]) * np.median(off)
    return start, size


def _came_back(x, k, t, before, after, sigma) -> tuple[int, int] | None:
    """First night back at the old level and the night that told it, if within a blip's time."""
    total, begin = 0.0, None
    for i in range(t + 1, min(len(x), k + BLIP + 7)):
        gain = (x[i] - (before + after) / 2) * (before - after) / sigma**2
        total += min(max(gain, -RETURN_NIGHT), RETURN_NIGHT)
        if total <= 0:
            total, begin = 0.0, None
        elif begin is None:
            begin = i
        if begin is not None and begin - k > BLIP:
            return None
        if total >= RETURN and begin is not None:
            return begin, i
    return None


#: Changes to the same side, at most so many nights apart, may be one drift.
STAIRS = 60


def _merged(walker: Walker) -> list[Episode]:
    """Changes to the same side that a slow drift explains as well become one."""
    found: list[Episode] = []
    for episode in walker.episodes:
        last = next((e for e in reversed(found) if e.kind != "pulse"), None)
        if last is None or episode.kind == "pulse" or not _one_drift(walker.x, last, episode):
            found.append(episode)
            continue
        if last.kind != "ramp":
            last.kind, last.first, last.revised = "ramp", last.kind, episode.detected
        last.detected = min(last.detected, episode.detected)
        last.end = max(last.end or 0, episode.detected)
        last.size += episode.size
        last.evidence = max(last.evidence, episode.evidence)
    return found


def _one_drift(x: np.ndarray, first: Episode, then: Episode) -> bool:
    if first.size * then.size <= 0 or not (first.confirmed and then.confirmed):
        return False
    if "ramp" in (first.kind, then.kind) and then.start <= max(first.detected, first.end or 0):
        # Seen again, after wander had seemed to explain it.
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
    # Bayes' criterion: the stairs have two more parameters than a ramp, one step has as many.
    return min(hinges) < one and n * math.log(min(hinges) / levels) < 2 * math.log(n)
