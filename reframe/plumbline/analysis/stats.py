"""Robust statistics of a few or of many values, over numpy and scipy.

Nothing here knows what a regression is. Values are plain numbers; functions that say so want
logarithms, so that differences are relative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import ndimage, stats

#: Makes the median absolute deviation of normal values their standard deviation.
MAD_TO_STD = 1.4826


def spread(values: np.ndarray) -> float:
    """Robust standard deviation: the scaled median absolute deviation from the median."""
    values = np.asarray(values, dtype=float)
    return float(MAD_TO_STD * np.median(np.abs(values - np.median(values))))


def noise(values: np.ndarray) -> float:
    """Robust standard deviation from the differences of neighbours: steps and slow wander do not
    count. Zero with fewer than two values."""
    differences = np.diff(np.asarray(values, dtype=float))
    if not len(differences):
        return 0.0
    return float(MAD_TO_STD * np.median(np.abs(differences)) / math.sqrt(2))


def hampel(values: np.ndarray, half_width: int = 5, sigmas: float = 3.0) -> np.ndarray:
    """The values, each moved to within `sigmas` of the median of its neighbours on both sides.

    The scale is the robust spread of the distances from those medians over all values.
    """
    values = np.asarray(values, dtype=float)
    middle = ndimage.median_filter(values, size=2 * half_width + 1, mode="nearest")
    limit = sigmas * MAD_TO_STD * np.median(np.abs(values - middle))
    return np.clip(values, middle - limit, middle + limit)


def running_median(values: np.ndarray, width: int) -> np.ndarray:
    """Median of the `width` values before each, of fewer where there are not so many; the first
    one is itself."""
    values = np.asarray(values, dtype=float)
    padded = np.concatenate([np.full(width, np.nan), values[:-1]])
    windows = np.sort(sliding_window_view(padded, width), axis=1)
    count = np.minimum(np.arange(len(values)), width)
    row = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    found = (windows[row, low] + windows[row, np.minimum(high, width - 1)]) / 2
    found[0] = values[0]
    return found


def autocorrelation(values: np.ndarray, lags: int) -> np.ndarray:
    """Autocorrelation at the lags 1 to `lags`, of values clipped at three robust sigma.

    Corrected for the bias of short series (about ``(1 + 3 r) / n``); zero where nothing varies.
    """
    values = np.asarray(values, dtype=float)
    limit = 3 * spread(values)
    centred = np.clip(values - np.median(values), -limit, limit)
    centred = centred - centred.mean() if len(centred) else centred
    total = float(centred @ centred)
    n = len(centred)
    if total <= 0 or n < 4:
        return np.zeros(lags)
    raw = [float(centred[:-lag] @ centred[lag:]) / total if lag < n else 0.0
           for lag in range(1, lags + 1)]  # fmt: skip
    return np.array([min(r + (1 + 3 * max(r, 0.0)) / n, 0.99) for r in raw])


def effective_size(values: np.ndarray) -> float:
    """How many independent values would tell the mean as well as these, which may wander.

    Sums the autocorrelation until it first falls below what chance makes of it.
    """
    n = len(values)
    if n < 8:
        return float(n)
    inflation = 1.0
    for lag, r in enumerate(autocorrelation(values, min(n // 3, 30)), start=1):
        if r < 2 / math.sqrt(n):
            break
        inflation += 2 * (1 - lag / n) * r
    return max(n / inflation, 1.0)


@dataclass(frozen=True)
class Shift:
    """Hodges-Lehmann shift from one sample to another, its interval, and the Mann-Whitney p."""

    shift: float
    low: float
    high: float
    p: float


def shift(
    before: np.ndarray, after: np.ndarray, level: float = 0.95, inflate: float = 1.0
) -> Shift:
    """How far `after` lies from `before`: the median of all pairs' differences.

    The interval is that of the Mann-Whitney test (normal approximation), widened by `inflate`
    (square root of values per independent value) where the values are not independent.

    :raises ValueError: if a side is empty.
    """
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    n, m = len(before), len(after)
    if not n or not m:
        raise ValueError("a shift needs values on both sides")
    pairs = np.sort(np.subtract.outer(after, before).ravel())
    width = stats.norm.ppf(0.5 + level / 2) * math.sqrt(n * m * (n + m + 1) / 12) * inflate
    low = max(math.floor(n * m / 2 - width), 0)
    found = stats.mannwhitneyu(after, before, alternative="two-sided")
    return Shift(
        float(np.median(pairs)),
        float(pairs[low]),
        float(pairs[n * m - 1 - low]),
        float(found.pvalue),
    )


def split(values: np.ndarray, least: int = 1) -> int:
    """Where two levels explain the values best, by least squares: the index at which the second
    begins.

    :arg least: values that a level has at least.

    :raises ValueError: if there are fewer than ``2 * least`` values.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2 * least:
        raise ValueError(f"{len(values)} values make no two levels of {least}")
    centred = values - values.mean()
    first = np.arange(least, len(values) - least + 1)
    # What a level takes off the squared distances is its sum squared over its length; the two sums
    # are opposite.
    gain = np.cumsum(centred)[first - 1] ** 2 * (1 / first + 1 / (len(values) - first))
    return int(first[np.argmax(gain)])
