"""Robust statistics of a few or of many values, over numpy and scipy.

Independent of the rules for regressions. Pass logarithms if differences are to be relative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from plumbline.analysis.distributions import normal_isf

#: Factor from the median absolute deviation of normal values to their standard deviation.
MAD_TO_STD = 1.4826


def noise(values: np.ndarray) -> float:
    """Return the robust standard deviation from the differences of neighbours, which ignores steps
    and slow variation; 0 with fewer than two values."""
    differences = np.diff(np.asarray(values, dtype=float))
    if not len(differences):
        return 0.0
    return float(MAD_TO_STD * np.median(np.abs(differences)) / math.sqrt(2))


def hampel(values: np.ndarray, half_width: int = 5, sigmas: float = 3.0) -> np.ndarray:
    """Clip each value to within `sigmas` of the median of its neighbours on both sides.

    The scale is the robust standard deviation of all values from those medians.
    """
    values = np.asarray(values, dtype=float)
    neighbours = sliding_window_view(np.pad(values, half_width, mode="edge"), 2 * half_width + 1)
    median = np.median(neighbours, axis=1)
    limit = sigmas * MAD_TO_STD * np.median(np.abs(values - median))
    return np.clip(values, median - limit, median + limit)


def running_median(values: np.ndarray, width: int) -> np.ndarray:
    """Return the median of the `width` values before each, or of fewer at the beginning; the first
    is the value itself."""
    values = np.asarray(values, dtype=float)
    padded = np.concatenate([np.full(width, np.nan), values[:-1]])
    windows = np.sort(sliding_window_view(padded, width), axis=1)
    row = np.arange(len(values))
    count = np.minimum(row, width)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    found = (windows[row, low] + windows[row, np.minimum(high, width - 1)]) / 2
    found[0] = values[0]
    return found


def autocorrelation(values: np.ndarray, lags: int) -> np.ndarray:
    """Return the autocorrelation at the lags 1 to `lags`, of values clipped at three robust sigma.

    Corrected for the bias of short series (about ``(1 + 3 r) / n``); zero if nothing varies.
    """
    values = np.asarray(values, dtype=float)
    n = len(values)
    if n < 4:
        return np.zeros(lags)
    centred = values - np.median(values)
    limit = 3 * (MAD_TO_STD * float(np.median(np.abs(centred))))
    centred = np.clip(centred, -limit, limit)
    centred = centred - centred.mean()
    total = float(centred @ centred)
    if total <= 0:
        return np.zeros(lags)
    raw = [float(centred[:-lag] @ centred[lag:]) / total if lag < n else 0.0
           for lag in range(1, lags + 1)]  # fmt: skip
    return np.array([min(r + (1 + 3 * max(r, 0.0)) / n, 0.99) for r in raw])


def effective_size(values: np.ndarray) -> float:
    """Return the number of independent values with as precise a mean as these, which may be
    autocorrelated.

    Sums the autocorrelation up to the first lag at which it may be chance.
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
    """Hodges-Lehmann shift from one sample to another, with its 95 % interval."""

    shift: float
    low: float
    high: float


def shift(before: np.ndarray, after: np.ndarray, inflate: float = 1.0) -> Shift:
    """Return how far `after` lies from `before`: the median of all pairs' differences.

    :arg inflate: factor on the width of the interval, which is that of the Mann-Whitney test
        (normal approximation): the square root of values per independent value.
    :raises ValueError: if a side is empty.
    """
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    n, m = len(before), len(after)
    if not n or not m:
        raise ValueError("a shift needs values on both sides")
    pairs = np.sort(np.subtract.outer(after, before).ravel())
    width = normal_isf(0.025) * math.sqrt(n * m * (n + m + 1) / 12) * inflate
    low = max(math.floor(n * m / 2 - width), 0)
    return Shift(float(np.median(pairs)), float(pairs[low]), float(pairs[n * m - 1 - low]))
