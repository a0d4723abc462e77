"""Robust statistics of a few or of many values, over numpy and scipy.

Independent of the rules for regressions. Pass logarithms if differences are to be relative.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from plumbline.analysis.distributions import normal_isf

#: Factor from the median absolute deviation of normal values to their standard deviation.
MAD_TO_STD = 1.4826


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore NumPy's warnings about means and medians of no values: they are NaN, as intended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def hampel(values: np.ndarray) -> np.ndarray:
    """Clip each value to within three sigma of the median of it and five neighbours on each side.

    The scale is the robust standard deviation of all values from those medians.
    """
    median = np.median(sliding_window_view(np.pad(values, 5, mode="edge"), 11), axis=1)
    limit = 3.0 * MAD_TO_STD * np.median(np.abs(values - median))
    return np.clip(values, median - limit, median + limit)


def running_median(values: np.ndarray, width: int) -> np.ndarray:
    """Return the median of the `width` values before each, or of fewer at the beginning; the first
    is the value itself."""
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


def shift(
    before: np.ndarray, after: np.ndarray, inflate: float = 1.0
) -> tuple[float, float, float]:
    """Return how far `after` lies from `before`, the median of all pairs' differences (Hodges and
    Lehmann), with its 95 % interval. Neither side is empty.

    :arg inflate: factor on the width of the interval, which is that of the Mann-Whitney test
        (normal approximation): the square root of values per independent value.
    """
    n, m = len(before), len(after)
    pairs = np.sort(np.subtract.outer(after, before).ravel())
    width = normal_isf(0.025) * math.sqrt(n * m * (n + m + 1) / 12) * inflate
    low = max(math.floor(n * m / 2 - width), 0)
    return float(np.median(pairs)), float(pairs[low]), float(pairs[n * m - 1 - low])
