"""The same-night rule: a night that is far off is reported at once.

The report is confirmed or withdrawn by a second measurement, or by the nights that follow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from plumbline.analysis.trend.episode import Episode

if TYPE_CHECKING:
    from plumbline.analysis.trend.watch import Walker

#: The same-night rule: so many sigma, and at least this much.
SIGMAS, LEAST = 2.9, 0.056
#: With a second measurement, the mean must be so many sigma off, and each of the two so many.
SECOND_MEAN, SECOND_EACH = 4.5, 2.2
#: A report holds while the nights after it are beyond half of it. If noise explains less, it holds
#: while they are HOLDS sigma off, and at most DIFFERS sigma from it.
HOLDS, DIFFERS = 2.0, 5.0
#: A step that begins within so many nights of a report that still holds is what was reported.
NEAR = 10
#: A measurement so many sigma off is an outlier. Two of them in one night must be rarer than PAIR
#: (nats) to confirm it; PRIOR: outliers per measurements that are assumed before any.
APART, PAIR, PRIOR = 5.0, 10.5, (0.5, 60.0)
#: Up to this share of outliers, an unconfirmed night is reported as a change, not as a suspect.
CLEAN = 0.007


class ImmediateRule:
    """The same-night rule over one series."""

    def __init__(self, walker: Walker, first: np.ndarray, second: np.ndarray):
        self.walker, self.first, self.second = walker, first, second
        both = ~np.isnan(second)
        #: Where most nights have two measurements, the noise is already that of their mean.
        self.factor = np.where(both & (both.mean() < 0.5), math.sqrt(0.5), 1.0)

    def apply(self) -> list[tuple[int, int]]:
        """Add episodes to the walker, and return the outliers: first and last night of each run."""
        walker = self.walker
        off = walker.x - walker.expected
        with np.errstate(invalid="ignore"):
            far = (np.abs(off) >= SIGMAS * walker.sigma * self.factor) & (np.abs(off) >= LEAST)
        outliers, passed = [], -1
        for night in np.flatnonzero(far).tolist():
            if night <= passed:
                continue
            last = self._last(night, off[night])
            episode = self._episode(night, last, off[night])
            if episode is None and self._known(night, off[night]):
                continue
            passed = last
            if episode is not None:
                episode.detected = min(episode.detected, night)
                if episode.kind == "pulse" and not episode.first:
                    episode.first, episode.revised = "step", None
            elif last == len(walker.x) - 1 or self._confirmed(night, off[night]):
                self._add(night, last, float(off[night]))
            else:
                outliers.append((night, last))
        return outliers

    def _last(self, night: int, off: float) -> int:
        """Return the last night of the run in which a report of this night holds."""
        walker = self.walker
        beyond = (walker.x[night:] - walker.expected[night]) * np.sign(off)
        noise = max(abs(off) - DIFFERS * walker.sigma[night], HOLDS * walker.sigma[night])
        inside = np.flatnonzero(beyond < min(abs(off) / 2, noise))
        return int(night + inside[0] - 1) if len(inside) else len(walker.x) - 1

    def _known(self, night: int, off: float) -> bool:
        """Return whether the night belongs to an episode that began before."""
        return any(
            e.size * off > 0 and e.start + 1 < night <= max(e.detected, e.last)
            for e in self.walker.episodes
        )

    def _episode(self, night: int, last: int, off: float) -> Episode | None:
        """Return the later episode that a report of this night was the first sign of."""
        for e in self.walker.episodes:
            near = night - 1 <= e.start <= night + NEAR or e.start < night <= e.detected
            until = e.detected if e.kind == "step" else e.last
            if near and e.size * off > 0 and until <= last:
                return e
        return None

    def _confirmed(self, night: int, off: float) -> bool:
        """Return whether the second measurement of the night confirms it."""
        if np.isnan(self.second[night]):
            return False
        expected, sigma = self.walker.expected, self.walker.sigma[night]
        each = np.array([self.first[night], self.second[night]]) - expected[night]
        single = sigma if self.factor[night] < 1 else sigma * math.sqrt(2)
        past = np.concatenate([m[:night] - expected[:night] for m in (self.first, self.second)])
        past = past[~np.isnan(past)]
        rate = (PRIOR[0] + np.sum(np.abs(past) > APART * single)) / (PRIOR[1] + len(past))
        return bool(
            -2 * math.log(rate) >= PAIR
            and abs(off) >= SECOND_MEAN * sigma * self.factor[night]
            and (each * np.sign(off)).min() >= max(SECOND_EACH * sigma, LEAST / 2)
        )

    def _add(self, night: int, last: int, off: float) -> None:
        walker = self.walker
        evidence = (off / (walker.sigma[night] * self.factor[night])) ** 2 / 2
        episode = Episode("step", night, night, off, float(evidence), regime=night,
                          before=float(walker.expected[night]),
                          confirmed=self._confirmed(night, off))  # fmt: skip
        if last < len(walker.x) - 1:
            episode.kind, episode.end = "pulse", last
            episode.first, episode.revised = "step", last + 1
        elif not episode.confirmed and walker.rate[night] > CLEAN:
            episode.kind = "suspect"
        walker.episodes.append(episode)
