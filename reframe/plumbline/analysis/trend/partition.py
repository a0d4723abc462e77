r"""Optimal partitioning of nightly series, as it was known on each night.

A series of logarithms :math:`y_t` is a level that changes on some nights, plus noise:

.. math:: y_t = \mu_t + n_t + \varepsilon_t, \qquad n_t = \varphi n_{t-1} + \eta_t

:math:`\varepsilon` is white with variance :math:`\sigma^2`; :math:`n` is autocorrelated noise with
variance :math:`s \sigma^2`. Each pair :math:`(\varphi, s)` of :data:`NOISES` is tried. On a night
with probability :math:`\epsilon` the value is an outlier, anywhere within :data:`OUTLIERS`.

For each noise and each night on which the present level may have begun, a Kalman filter predicts
the next night from those before. The cost of a partition is the sum over its nights of the negative
logarithm of the predicted density (nats), plus that of each change (:func:`_cost_of_change`) and
each night of autocorrelated noise (:data:`DOUBT`). Dynamic programming (optimal partitioning,
Jackson et al. 2005) finds the partition of least cost on each night:

.. math:: F_t = \min_{\tau < t} \{ F_\tau + C(\tau, t) + \beta(\tau) \}

The density of an outlier bounds what one night can cost (Fearnhead and Rigaill 2019), and the
autocorrelated noise is part of the cost (as in DeCAFS, Romano et al. 2022). Sigma and the share of
outliers are those of the nights before. So nothing of an earlier night changes when one is added,
and any number of changes is natural.

Many series are computed at once. :mod:`plumbline.analysis.trend.episodes` makes episodes of it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from plumbline.analysis import stats

# A constant with a value is calibrated by tests/bench/constants.py, if its comment has no other
# reason; docs/trend-constants.md shows what more and less of it decide. The others are derived.

#: First measured nights, from which the noise is known; no change is looked for in them.
WARM_UP = 20
#: Autocorrelated noise that is tried: correlation from one night to the next, and variance as a
#: multiple of the white noise's. The first is none. More kinds explain more of what is no change,
#: and take time in proportion.
NOISES = ((0.0, 0.0), (0.9, 4.0), (0.96, 0.5), (0.96, 4.0))
#: Nights from which a series is known: its noise is that of so many, and what costs more in a young
#: series does so in these.
MEMORY = 100
#: Nats that a change costs one night after another (see :func:`_cost_of_change`): its odds, and a
#: new level that may be anywhere within 50 sigma.
CHANGE = 4.6
#: Nats that a change needs to be reported, beside its cost.
EVIDENCE = 0.5
#: Nats that autocorrelated noise costs on each of the first nights, together as much as a change
#: that is reported: until it is known well, it explains changes too easily.
DOUBT = (CHANGE + EVIDENCE) / MEMORY
#: Most autocorrelated noise (relative standard deviation); a nat for each night that has more. What
#: moves further is a change.
SLOW = 0.03
#: Outliers are spread over so much (relative).
OUTLIERS = 0.30
#: Outliers among MEMORY nights that are assumed before any night is known.
ASSUMED = 0.5
#: Partitions that are kept for each noise. Fewer are faster, and may lose the best one.
KEPT = 24
#: Least size of a change (relative), and in sigma of a night. Less does not matter to a site.
LEAST = 0.008
LEAST_SIGMAS = 1.2
#: Least standard deviation of a night (relative): in less noise, one night shows such a change.
FLOOR = LEAST / 8
#: A level is certain with so many nights that are no outliers: two, of which none is quite certain.
CONFIRMED = 1.8


@dataclass(frozen=True)
class Partitions:
    """The best partition of a series on each night but the first: arrays of nights.

    :ivar start: first night of the last level. :ivar noise: index into :data:`NOISES`.
    :ivar weight: nights of that level that are no outliers.
    :ivar evidence: nats by which it is better than all without the last change; infinite if none
        of those is kept.
    :ivar expected: prediction of the night from those before; ``sigma``: its standard deviation.
    :ivar outliers: estimated share of outliers.
    :ivar before: nights x noises: first night of the level before one that begins there.
    """

    start: np.ndarray
    noise: np.ndarray
    weight: np.ndarray
    evidence: np.ndarray
    expected: np.ndarray
    sigma: np.ndarray
    outliers: np.ndarray
    before: np.ndarray

    def changes(self, night: int) -> list[int]:
        """Return the first nights of all levels but the first, as they were known on a night."""
        noise, start = self.noise[night], int(self.start[night])
        found: list[int] = []
        while start > 0:
            found.append(start)
            start = int(self.before[start, noise])
        return found[::-1]


@functools.cache
def _gains(count: int) -> np.ndarray:
    """Return the filter's gains for a level's nights: (later or first level) x noise x 3 x night.

    The three are the gain of the level, that of the noise, and the variance of the prediction, in
    units of the white noise's. The variance of a level's first night is without that of the level.
    """
    found = np.empty((2, len(NOISES), 3, count))
    for number, (memory, share) in enumerate(NOISES):
        fresh = share * (1 - memory**2)
        # The noise's variance when it is predicted from all nights before: k = m² k / (k + 1) + f.
        root = memory**2 + fresh - 1
        known = (root + math.sqrt(root**2 + 4 * fresh)) / 2
        for first, noise in enumerate((known, share)):
            # The level is not known at all: it is what the first night shows.
            level, both, rest = noise + 1.0, -noise * memory, noise * memory**2 + fresh
            found[first, number, :, 0] = 1.0, 0.0, noise + 1.0
            for night in range(1, count):
                variance = level + 2 * both + rest + 1.0
                up, down = (level + both) / variance, (both + rest) / variance
                found[first, number, :, night] = up, down, variance
                level, both, rest = (
                    level - up * up * variance,
                    memory * (both - up * down * variance),
                    memory**2 * (rest - down * down * variance) + fresh,
                )
    return found


def _cost_of_change(age: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the nats that a change costs after a level of so many nights.

    Changes come in groups: after one, the next is as likely in nights 1 to 2 as in 10 to 20, so its
    chance on a night falls as 1 / age (a scale-free prior), until the series is known.
    """
    return CHANGE + np.log(np.where(first, MEMORY, np.minimum(age, MEMORY)))


class PartitionSearch:
    """The partitions that are kept, as arrays of series x noises x :data:`KEPT`.

    :arg values: logarithms, series x more nights than :data:`WARM_UP`; NaN after a shorter one.
    :ivar cost: nats. :ivar level: of the last level; ``drift``: the autocorrelated noise predicted
        for the next night. :ivar variance: of the white noise. :ivar outliers: number until now.
    :ivar weight: nights of the last level that are no outliers. :ivar start: its first night.
    :ivar known: nights that the variance counts, for each night; ``height``: Student's t at zero.
    """

    def __init__(self, values: np.ndarray):
        self.values = np.nan_to_num(values)
        self.series, self.nights = values.shape
        self.memory, self.share = np.array(NOISES).T
        self.gains = _gains(self.nights + 1)
        steps = np.median(np.abs(np.diff(values[:, :WARM_UP])), axis=1)
        # With so much noise, a change by one unit of the last digit is below LEAST_SIGMAS.
        floor = np.maximum(FLOOR, 1.02 / LEAST_SIGMAS * _resolution(values[:, :WARM_UP]))
        self.floor = floor[:, None, None] ** 2
        sigma = np.maximum(stats.MAD_TO_STD * steps / math.sqrt(2), floor)
        usual = sigma[:, None] ** 2 / (1 + self.share * (1 - self.memory))
        # Until a change, one partition of each noise: the first night begins its only level.
        shape = self.series, len(NOISES), KEPT
        self.cost = np.full(shape, np.inf)
        self.cost[:, :, 0] = np.log(usual) / 2
        self.level = np.zeros(shape) + self.values[:, :1, None]
        self.variance = np.repeat(usual[:, :, None], KEPT, axis=2)
        self.drift, self.outliers, self.weight = np.zeros(shape), np.zeros(shape), np.ones(shape)
        self.start = np.zeros(shape, dtype=np.intp)
        self.known = np.minimum(np.arange(self.nights) + 5.0, MEMORY)
        self.height = -np.log(self.known) / 2 - special.betaln(0.5, self.known / 2)

    def run(self) -> list[Partitions]:
        """Return each series' best partitions, from the nights up to each."""
        shape = self.series, self.nights
        start, noise = np.zeros(shape, dtype=np.intp), np.zeros(shape, dtype=np.intp)
        weight, evidence, expected, sigma, share = (np.zeros(shape) for _ in range(5))
        before = np.full((*shape, len(NOISES)), -1, dtype=np.intp)
        for night in range(1, self.nights):
            # A level of one night may be an outlier: what it was before is expected.
            firm = (self.weight >= CONFIRMED) | (self.start == 0)
            top = self._least(np.where(firm, self.cost, np.inf))
            expected[:, night] = self.level[top] + self.drift[top]
            spread = self.gains[(self.start[top] == 0) * 1, top[1], 2, night - self.start[top]]
            sigma[:, night] = np.sqrt(self.variance[top] * spread)
            newest = self._newest(night)
            before[:, night] = newest.pop("before")
            self._see(night)
            self._insert(night, newest)
            top = self._least(self.cost)
            start[:, night], noise[:, night] = self.start[top], top[1]
            weight[:, night] = self.weight[top]
            share[:, night] = (ASSUMED + self.outliers[top]) / (MEMORY + night)
            last = before[top[0], self.start[top], top[1]]
            without = np.where(self.start <= last[:, None, None], self.cost, np.inf)
            evidence[:, night] = without.reshape(self.series, -1).min(axis=1) - self.cost[top]
        fields = start, noise, weight, evidence, expected, sigma, share, before
        return [Partitions(*rows) for rows in zip(*fields, strict=True)]

    def _least(self, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where each series has its partition of least cost."""
        flat = cost.reshape(self.series, -1).argmin(axis=1)
        return np.arange(self.series), flat // KEPT, flat % KEPT

    def _newest(self, night: int) -> dict[str, np.ndarray]:
        """Return, for each series and noise, the partition whose last level begins tonight."""
        age, first = night - self.start, self.start == 0
        cost = self.cost + _cost_of_change(age, first)
        # A single night is an outlier.
        cost[(age < CONFIRMED) & ~first] = np.inf
        parent = cost.argmin(axis=2)[:, :, None]

        def of(field: np.ndarray) -> np.ndarray:
            return np.take_along_axis(field, parent, axis=2)[:, :, 0]

        drift, variance = of(self.drift), of(self.variance)
        return {
            "before": of(self.start),
            "cost": of(cost) + np.log(variance * self.gains[0, :, 2, 0]) / 2,
            "level": self.values[:, night, None] - drift,
            "drift": self.memory * drift,
            "variance": variance,
            "outliers": of(self.outliers),
        }

    def _see(self, night: int) -> None:
        """Let all partitions see tonight's value as a further night of their last level."""
        age, first = night - self.start, (self.start == 0) * 1
        where = (first * len(NOISES) + np.arange(len(NOISES))[:, None]) * 3
        flat = self.gains.reshape(-1)
        at = where * self.gains.shape[-1] + age
        up, down = flat[at], flat[at + self.gains.shape[-1]]
        spread = flat[at + 2 * self.gains.shape[-1]]
        known = self.known[night]
        off = self.values[:, night, None, None] - self.level - self.drift
        square = off * off / spread
        often = (ASSUMED + self.outliers) / (MEMORY + night)
        sigma = np.log(self.variance * spread) / 2
        # Student's t, since the variance is that of so many nights.
        usual = np.log1p(-often) + self.height[night]
        usual -= (known + 1) / 2 * np.log1p(square / self.variance / known)
        wide = np.maximum(math.log(OUTLIERS) - sigma, 0.0)
        seen = np.logaddexp(usual, np.log(often) - wide)
        weight = np.exp(usual - seen)
        self.cost += sigma - seen
        if night <= MEMORY:
            self.cost[:, self.memory > 0] += DOUBT
        self.cost[self.share[:, None] * self.variance > SLOW**2] += 1
        off *= weight
        self.level += up * off
        self.drift = self.memory[:, None] * (self.drift + down * off)
        self.variance += weight * (square - self.variance) / known
        np.maximum(self.variance, self.floor, out=self.variance)
        self.outliers += 1 - weight
        self.weight += weight

    def _insert(self, night: int, newest: dict[str, np.ndarray]) -> None:
        """Replace the worst partition of each noise; young ones had no chance yet."""
        young = night - self.start < 4
        worst = np.where(young & np.isfinite(self.cost), -np.inf, self.cost).argmax(axis=2)
        where = (*np.ogrid[: self.series, : len(NOISES)], worst)
        for name, field in newest.items():
            getattr(self, name)[where] = field
        self.weight[where], self.start[where] = 1.0, night


def _resolution(values: np.ndarray) -> np.ndarray:
    """Return each series' least difference of values: a unit of the last digit, if they have few
    digits; 0 if none differ, or only by outliers."""
    steps = np.diff(np.sort(np.round(values, 9), axis=1), axis=1)
    # One value that is further from all others than noise moves is an outlier.
    again = np.pad(steps == 0, ((0, 0), (1, 1)))
    digit = (steps > 0) & ((steps <= SLOW) | (again[:, :-2] & again[:, 2:]))
    least = np.where(digit, steps, np.inf).min(axis=1)
    return np.where(np.isfinite(least), least, 0.0)
