"""The same-night rule of :mod:`plumbline.analysis.trend.watch`: a night far off is told at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from plumbline.analysis.trend.episode import Episode

if TYPE_CHECKING:
    from plumbline.analysis.trend.watch import Walker

#: The same-night rule: so many sigma, and at least this much. With a second measurement the mean
#: must be so many sigma off, and each of the two at least so many.
SUDDEN_SIGMAS, SUDDEN = 2.9, 0.056
SECOND_MEAN, SECOND_EACH = 4.5, 2.2
#: A report stands while the nights after it are beyond half of it, or noise makes the difference:
#: they are so many sigma off, and at most so many from it.
STANDS, DIFFERS = 2.0, 5.0
#: A step that begins within so many nights of a report that still stands is what was reported.
NEAR = 10
#: A measurement so many sigma off is an outlier. Two of them in one night must be rarer than this
#: (nats) for the two to bear a night out; before any measurement, so many of so many are assumed.
APART, PAIR, PRIOR = 5.0, 10.5, (0.5, 60.0)
#: Up to this share of outliers, a night that nothing bears out yet is told as a change, not as a
#: suspect.
CLEAN = 0.007


class Sudden:
    """The same-night rule: a night far off is reported at once, and borne out or taken back by a
    second measurement or by the nights that follow."""

    def __init__(self, walker: Walker, first: np.ndarray, second: np.ndarray):
        self.walker, self.first, self.second = walker, first, second
        both = ~np.isnan(second)
        #: Where most nights have two measurements, the noise is that of their mean already.
        self.factor = np.where(both & (both.mean() < 0.5), math.sqrt(0.5), 1.0)

    def apply(self) -> list[tuple[int, int]]:
        w = self.walker
        off = w.x - w.expected
        with np.errstate(invalid="ignore"):
            far = (np.abs(off) >= SUDDEN_SIGMAS * w.sigma * self.factor) & (np.abs(off) >= SUDDEN)
        outliers, passed = [], -1
        for night in np.flatnonzero(far):
            if night <= passed:
                continue
            last = self.last(night, off[night])
            episode = self.episode(night, last, off[night])
            if episode is None and self.told(night, off[night]):
                continue
            if episode is not None:
                episode.detected = min(episode.detected, int(night))
                if episode.kind == "pulse" and not episode.first:
                    episode.first, episode.revised = "step", None
                passed = last
            elif last == len(w.x) - 1 or self.confirmed(night, off[night]):
                self.add(int(night), last, float(off[night]))
                passed = last
            else:
                outliers.append((int(night), last))
                passed = last
        return outliers

    def last(self, night: int, off: float) -> int:
        """Last night of the run that stays beyond half of it, or that noise makes less."""
        w = self.walker
        beyond = (w.x[night:] - w.expected[night]) * np.sign(off)
        noise = max(abs(off) - DIFFERS * w.sigma[night], STANDS * w.sigma[night])
        inside = np.flatnonzero(beyond < min(abs(off) / 2, noise))
        return int(night + inside[0] - 1) if len(inside) else len(w.x) - 1

    def told(self, night: int, off: float) -> bool:
        """Whether the night belongs to what had begun before it."""
        return any(
            e.size * off > 0 and e.start + 1 < night <= max(e.detected, e.end or 0)
            for e in self.walker.episodes
        )

    def episode(self, night: int, last: int, off: float) -> Episode | None:
        """What came of it, if the report could stand from this night on."""
        for episode in self.walker.episodes:
            near = (
                night - 1 <= episode.start <= night + NEAR
                or episode.start < night <= episode.detected
            )
            near = near and episode.size * off > 0
            until = episode.detected if episode.kind == "step" else (episode.end or 0)
            if near and until <= last:
                return episode
        return None

    def confirmed(self, night: int, off: float) -> bool:
        """Whether the second measurement of the night bears it out."""
        if np.isnan(self.second[night]):
            return False
        w = self.walker
        sigma = w.sigma[night]
        each = np.array([self.first[night], self.second[night]]) - w.expected[night]
        single = sigma if self.factor[night] < 1 else sigma * math.sqrt(2)
        past = np.concatenate([m[:night] - w.expected[:night] for m in (self.first, self.second)])
        past = past[~np.isnan(past)]
        rate = (PRIOR[0] + np.sum(np.abs(past) > APART * single)) / (PRIOR[1] + len(past))
        pair = -2 * math.log(rate)
        return bool(
            pair >= PAIR
            and abs(off) >= SECOND_MEAN * sigma * self.factor[night]
            and (each * np.sign(off)).min() >= max(SECOND_EACH * sigma, SUDDEN / 2)
        )

    def add(self, night: int, last: int, off: float) -> None:
        w = self.walker
        over = last < len(w.x) - 1
        evidence = (off / (w.sigma[night] * self.factor[night])) ** 2 / 2
        episode = Episode("pulse" if over else "step", night, night, off, float(evidence),
                          last if over else None, regime=night, before=float(w.expected[night]),
                          confirmed=self.confirmed(night, off))  # fmt: skip
        if over:
            episode.first, episode.revised = "step", last + 1
        elif not episode.confirmed and w.rate[night] > CLEAN:
            episode.kind = "suspect"
        w.episodes.append(episode)
