"""Likelihood ratio tests of a step that know what ours has to estimate.

They know the standard deviation of the noise, and that there is nothing but steps; the levels and
the size of the step they estimate. One assumes white noise. Another has to distinguish steps from
autocorrelated noise, whose size and memory it knows too. The third looks for the last of several
losses in white noise, and knows on which nights all changes before it began. The fourth knows only
how many changes there are at most, and has to distinguish them from autocorrelated noise.
Nights are judged one by one, from the 21st on.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import nights
import numpy as np
from nights import Plan
from scipy import linalg

#: Nights back that a step is looked for, and nights that there are before it at least.
BACK, BEFORE = 60, 5
#: False alarms per 1,000 series-nights that a test may raise: in white and in autocorrelated noise,
#: and in series with several changes.
WHITE, SLOW, OTHERS = 0.1, 0.5, 0.2
#: Series that the limits are taken from.
SERIES = 4000
#: Sizes of the autocorrelated noise that several changes may be, and its memory, as in the cells of
#: false alarms.
SIZES, MEMORY = (0.5, 1.0, 2.0), 0.95


@dataclass(frozen=True)
class Autocorrelated:
    """AR(1) noise.

    :ivar size: its standard deviation, in standard deviations of the white noise.
    :ivar memory: its correlation from one night to the next.
    """

    size: float
    memory: float

    def factor(self, count: int) -> np.ndarray:
        """Cholesky factor of the covariance of so many nights, white and autocorrelated noise."""
        lags = np.arange(count)
        covariance = self.size**2 * self.memory**lags
        covariance[0] += 1.0
        return linalg.cholesky(linalg.toeplitz(covariance), lower=True)


def step_ratio(
    z: np.ndarray, first: int = 21, before: int = BEFORE, down: bool = False
) -> np.ndarray:
    """Log likelihood ratio of the best step against none in white noise of unit standard
    deviation: series x nights, as each night knew it.

    :param first: number of nights of the first that is judged. :param before: fewest before a step.
    :param down: only steps down count.
    """
    total = np.pad(np.cumsum(z, axis=1), ((0, 0), (1, 0)))
    found = np.full(z.shape, -np.inf)
    for end in range(first, z.shape[1] + 1):
        start = np.arange(max(end - BACK, before), end)
        gap = (total[:, [end]] - total[:, start]) / (end - start) - total[:, start] / start
        gap = np.minimum(gap, 0.0) if down else gap
        found[:, end - 1] = (gap**2 / 2 / (1 / start + 1 / (end - start))).max(axis=1)
    return found


def white_ratio(z: np.ndarray, noise: Autocorrelated) -> np.ndarray:
    """Log likelihood ratio of white noise against autocorrelated noise, both of a level that is not
    known: series x nights."""
    count = np.arange(1, z.shape[1] + 1)
    white = np.cumsum(z**2, axis=1) - np.cumsum(z, axis=1) ** 2 / count
    factor = noise.factor(z.shape[1])
    e = linalg.solve_triangular(factor, z.T, lower=True).T
    u = linalg.solve_triangular(factor, np.ones(z.shape[1]), lower=True)
    uu = np.cumsum(u * u)
    correlated = np.cumsum(e * e, axis=1) - np.cumsum(u * e, axis=1) ** 2 / uu
    scale = np.cumsum(np.log(np.diag(factor))) + np.log(uu / count) / 2
    return (correlated - white) / 2 + scale


def _units(made: nights.Nights) -> np.ndarray:
    """Logarithms in standard deviations of the white noise, from the first level."""
    return np.log(made.values / nights.LEVEL) / made.plan.level


@functools.cache
def limits(count: int, noise: Autocorrelated | None, seed: int) -> tuple[float, float]:
    """What the ratio against none, and that against autocorrelated noise, must
    reach in so many nights."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((SERIES, count))
    white = float(np.quantile(step_ratio(z).max(axis=1), 1 - WHITE * count / 1000))
    if noise is None:
        return white, -np.inf
    z = rng.standard_normal((SERIES, count)) @ noise.factor(count).T
    steps = step_ratio(z)
    most = np.where(steps >= white, steps + white_ratio(z, noise), -np.inf).max(axis=1)
    return white, float(np.quantile(most, 1 - SLOW * count / 1000))


def found_by(
    plan: Plan, count: int, seed: int, *within: int, noise: Autocorrelated | None = None
) -> list[float]:
    """Share of the steps of a plan, without missing nights, detected in the first so many
    changed nights.

    :param noise: what the test has to distinguish steps from; the series have none.
    """
    made = nights.make(plan.but(gaps=0.0), count, seed)
    z = _units(made)
    white, least = limits(plan.nights, noise, seed)
    steps = step_ratio(z)
    detected = steps >= white
    if noise is not None:
        detected &= steps + white_ratio(z, noise) >= least
    late = np.arange(plan.nights) - made.start[:, None]
    first = np.where(detected & (late >= 0), late, plan.nights).min(axis=1)
    return [float(np.mean(first < n)) for n in within]


def last_loss_found_by(plan: Plan, count: int, seed: int, within: int) -> float:
    """Share of a plan's last losses that are detected in their first so many nights."""
    made = nights.make(plan, count, seed)
    before = np.column_stack([np.zeros(count, dtype=int), made.starts])[:, -2]
    # From the change before the last one on: what is earlier says nothing of these two levels.
    at = np.minimum(before[:, None] + np.arange(plan.nights), plan.nights - 1)
    steps = step_ratio(np.take_along_axis(_units(made), at, axis=1), first=2, before=1, down=True)
    late = np.arange(plan.nights) - (made.start - before)[:, None]
    found = (steps >= limit_of_losses(plan.nights)) & (late >= 0) & (late < within)
    return float(np.mean(found.any(axis=1)))


@functools.cache
def limit_of_losses(count: int) -> float:
    """What the ratio of a loss must reach after a change, in series of so many nights."""
    z = np.random.default_rng(count).standard_normal((SERIES, count))
    most = step_ratio(z, first=2, before=1, down=True).max(axis=1)
    return float(np.quantile(most, 1 - OTHERS * count / 1000))


def _losses(z: np.ndarray, most: int) -> np.ndarray:
    """Log likelihood ratio of several changes, the last of which is a loss, against autocorrelated
    noise of any of the sizes: series x nights. Optimal partitioning finds the best nights. Each
    change costs what the parameter of a new level does by Bayes' criterion.

    :param most: greatest number of changes.
    """
    cost = np.log(z.shape[1]) / 2
    nights = np.arange(1, z.shape[1] + 1)
    total = np.pad(np.cumsum(z, axis=1), ((0, 0), (1, 0)))
    slow = [white_ratio(z, Autocorrelated(size, MEMORY)) for size in SIZES]
    base = total[:, 1:] ** 2 / nights / 2
    enough, found = limit_of_losses(z.shape[1]), np.full(z.shape, -np.inf)
    best, level = base, total[:, 1:] / nights
    for changes in range(1, most + 1):
        fewer, before = best, level
        best, level = np.full(z.shape, -np.inf), np.zeros(z.shape)
        for end in range(2, z.shape[1] + 1):
            start = np.arange(1, end)
            last = (total[:, [end]] - total[:, start]) / (end - start)
            fit = fewer[:, : end - 1] + last**2 * (end - start) / 2
            loss = np.where(last < before[:, : end - 1], fit, -np.inf).max(axis=1)
            better = loss > fewer[:, end - 1] + enough
            ratio = loss - base[:, end - 1] + np.min([one[:, end - 1] for one in slow], axis=0)
            found[:, end - 1] = np.maximum(
                found[:, end - 1], np.where(better, ratio - cost * changes, -np.inf)
            )
            # Only the last level may have a single night.
            fit[:, -1] = -np.inf
            top = (np.arange(len(z)), fit.argmax(axis=1))
            best[:, end - 1], level[:, end - 1] = fit[top], last[top]
    return found


@functools.cache
def limit_beside(count: int, most: int) -> float:
    """What that ratio must reach, so that no size of autocorrelated noise has more false alarms."""
    rng = np.random.default_rng([count, most])
    limits = []
    for size in SIZES:
        factor = Autocorrelated(size, MEMORY).factor(count)
        ratio = _losses(rng.standard_normal((SERIES // 4, count)) @ factor.T, most)
        highest = np.sort(ratio[:, 20:].max(axis=1))
        limits.append(highest[int(len(highest) * (1 - SLOW * count / 1000))])
    return float(max(limits))


def last_loss_distinguished(plan: Plan, count: int, seed: int, within: int) -> float:
    """Share of a plan's last losses that are distinguished from autocorrelated noise, which the
    series do not have, in their first so many nights."""
    made = nights.make(plan, count, seed)
    ratio = _losses(_units(made), len(plan.steps))
    late = np.arange(plan.nights) - made.start[:, None]
    found = (ratio >= limit_beside(plan.nights, len(plan.steps))) & (late >= 0) & (late < within)
    return float(np.mean(found.any(axis=1)))
