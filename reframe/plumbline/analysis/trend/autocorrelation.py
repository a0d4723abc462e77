"""Likelihood of a change in a series whose noise may be autocorrelated.

A value's logarithm is a level plus noise. The noise is white, or a share of it has the correlation
``share * memory ** nights``. For each such model, the values are whitened with the Cholesky factor
of its correlation (generalised least squares). Row ``t`` of the factor's inverse needs only the
values up to ``t``, so one product gives the evidence of every night.

Independent of the rules for regressions, which are in :mod:`plumbline.analysis.trend`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import linalg

#: Most nights of one analysis.
NIGHTS = 400
#: Nights since a step that are tried.
LENGTHS = np.array([3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 34, 40, 50, 60])
#: Lengths of a pulse in nights, and nights after its end in which it is looked for.
PULSES = range(2, 8)
AFTER = 8
#: Night-to-night correlation of the autocorrelated noise, and its share of the variance.
MODELS = ((0.0, 0.0), *((m, s) for m in (0.6, 0.9, 0.98) for s in (0.5, 0.85)))
#: Evidence (nats) by which an autocorrelated model must beat white noise.
DOUBT = 1.0
#: Weight of the evidence against a model before a change, and its upper limit (nats).
TWICE, MOST = 1.5, 8.0
#: A change of this size (share of the value; growing between the two) is less likely autocorrelated
#: noise, which then needs so many nats more.
LARGE, LARGE_DOUBT = (0.03, 0.045), 4.0
#: Nats more that a smaller change needs on the first night, decreasing to 0 on the last one:
#: autocorrelated noise cannot be recognized yet.
EARLY, EARLY_UNTIL = 5.0, 60
#: Where autocorrelated noise leads over white noise by so much (nats; growing between the two), a
#: step below so many sigma (SOFT: the width of that limit) is treated as a small one, and this part
#: of EARLY remains.
OPEN, SMALL_OPEN, SOFT, EARLY_OPEN = (1.0, 3.0), 1.8, 0.5, 0.5
#: Nats more that a step smaller than so many sigma of a night needs; the first limit is for noise
#: below, the second for noise above NOISY.
SMALL, NOISY, SMALL_DOUBT = (1.25, 1.65), (0.012, 0.016), 5.0
#: Nats more that a step needs, by the nights since: short steps are tried often, and long ones may
#: be autocorrelated noise.
EXTRA = np.select(
    [LENGTHS <= 4, LENGTHS <= 6, LENGTHS <= 8, LENGTHS <= 14], [1.0, 0.2, -0.6, -1.3], SMALL_DOUBT
)
#: Nats less that a step needs if the nights before it have no autocorrelation.
CLEAR = np.select([LENGTHS <= 8, LENGTHS <= 14], [0.0, 0.4], 0.0)
#: Nats more that a step needs if the nights before it have autocorrelation.
CORRELATED = 6.0
#: Smallest noise of a figure that is assumed (relative), such as that of its last digit.
FLOOR = 0.001
#: Starts and ends of ramps are tried every so many nights; SHORTEST is the length of a ramp.
GRID = 5
SHORTEST = 20


_Ratio = Callable[..., tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class ModelTables:
    """What does not depend on the values: arrays of models x nights x ...

    :ivar steps: whitened step that begins at night k: models x nights x k.
    :ivar since: the same from its beginning: models x k x nights since.
    """

    white: np.ndarray
    steps: np.ndarray
    since: np.ndarray
    squares: np.ndarray
    ramps: np.ndarray
    log_det: np.ndarray
    penalty: np.ndarray


@dataclass
class Evidence:
    """Log likelihood ratios (nats) from the data up to each night; one item a night.

    :ivar expected: value of the night as predicted from the nights before it.
    :ivar sigma: standard deviation of the value from that prediction.
    :ivar autocorrelated: whether autocorrelated noise explains the nights before better than white
        noise does.
    """

    step: np.ndarray
    step_start: np.ndarray
    step_size: np.ndarray
    pulse: np.ndarray
    pulse_start: np.ndarray
    pulse_end: np.ndarray
    pulse_size: np.ndarray
    ramp: np.ndarray
    ramp_start: np.ndarray
    ramp_slope: np.ndarray
    expected: np.ndarray
    sigma: np.ndarray
    autocorrelated: np.ndarray


@functools.cache
def tables() -> ModelTables:
    """Return the tables for up to :data:`NIGHTS` nights."""
    lags = np.arange(NIGHTS)
    white = np.empty((len(MODELS), NIGHTS, NIGHTS))
    log_det = np.empty((len(MODELS), NIGHTS))
    for number, (memory, share) in enumerate(MODELS):
        correlation = share * memory**lags
        correlation[0] = 1.0
        factor = linalg.cholesky(linalg.toeplitz(correlation), lower=True)
        white[number] = linalg.solve_triangular(factor, np.eye(NIGHTS), lower=True)
        log_det[number] = np.cumsum(np.log(np.diag(factor)))
    steps = np.cumsum(white[:, :, ::-1], axis=2)[:, :, ::-1].copy()
    ramps = np.cumsum(steps[:, :, ::-1], axis=2)[:, :, ::-1][:, :, ::GRID].copy()
    width = LENGTHS[-1]
    since = np.zeros((len(MODELS), NIGHTS, width))
    for start in range(NIGHTS):
        column = steps[:, start : start + width, start]
        since[:, start, : column.shape[1]] = column
    return ModelTables(
        white=white,
        steps=steps,
        since=since,
        squares=np.cumsum(since**2, axis=2),
        ramps=ramps,
        log_det=log_det,
        penalty=np.where([share > 0 for _, share in MODELS], DOUBT, 0.0),
    )


@functools.cache
def _pulse_squares(length: int) -> np.ndarray:
    """Return the squares of pulses of a length: models x start x nights since."""
    found = tables()
    width = length + AFTER
    pulse = found.since[:, :, :width].copy()
    pulse[:, :-length, length:] -= found.since[:, length:, :AFTER]
    pulse[:, -length:, length:] = 0.0
    return np.cumsum(pulse**2, axis=2)


def evidence(values: np.ndarray, regime: int, first: int = 0) -> Evidence:
    """Return the evidence of a change against none, for each night from `first` on.

    :arg values: logarithms, outliers clipped, at most :data:`NIGHTS`; those before `regime`
        relative to their own level, so that they show the noise alone.
    :arg regime: first night of the present level.
    :arg first: first night for which changes are looked for.
    """
    known = tables()
    nights = len(values)
    t = np.arange(nights)
    e = known.white[:, :nights, :nights] @ values
    u = known.steps[:, :nights, regime]
    uu, ue = np.cumsum(u * u, axis=1), np.cumsum(u * e, axis=1)
    ee = np.cumsum(e * e, axis=1) + FLOOR**2 * (t + 1)
    uu_safe = np.maximum(uu, 1e-12)
    rss = np.maximum(ee - ue * ue / uu_safe, 1e-15)
    half = np.maximum((t - 2) / 2, 0.5)
    offset = known.log_det[:, :nights] + known.penalty[:, None]
    none = -half * np.log(rss) - offset
    model = none.argmax(axis=0)
    # A model that contradicts the nights before the change is not rescued by the change itself.
    against = TWICE * np.clip(none[0] - none - DOUBT, 0, MOST)

    def ratio(
        num: np.ndarray,
        den: np.ndarray,
        ends: np.ndarray,
        begin: np.ndarray,
        large_matters: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the best ratio over the models, and its size; items: models x n x k."""
        gain = num * num / den
        white_size = np.abs(num[0] / den[0])
        large = np.clip((white_size - LARGE[0]) / (LARGE[1] - LARGE[0]), 0, 1)
        large = large * np.clip((begin - 15) / 20, 0, 1)
        doubt = against[:, np.maximum(begin - 1, 0)] + (known.penalty > 0)[:, None, None] * (
            LARGE_DOUBT * large if large_matters else 0.0
        )
        base = (none[:, ends] - doubt).max(axis=0)
        left = np.maximum(rss[:, ends] - gain, 1e-15)
        with_change = -half[ends] * np.log(left) - offset[:, ends] - doubt
        best = with_change.argmax(axis=0)[None]
        size = np.take_along_axis(num, best, 0)[0] / np.take_along_axis(den, best, 0)[0]
        return np.take_along_axis(with_change, best, 0)[0] - base, size

    # Steps: models x start x nights since; no start is further back than the longest step.
    width = LENGTHS[-1]
    low = max(first - width, 0)
    since, squares = known.since[:, low:nights], known.squares[:, low:nights]
    dot_e = np.cumsum(since * _windows(e[:, low:], width), axis=2)
    dot_u = np.cumsum(since * _windows(u[:, low:], width), axis=2)

    judged = t[first:]
    end = np.broadcast_to(judged[:, None], (len(judged), len(LENGTHS)))
    start = end - LENGTHS[None] + 1
    valid = start > regime
    begin = np.where(valid, start, low)
    last = (LENGTHS - 1)[None]
    cross = dot_u[:, begin - low, last]
    num = dot_e[:, begin - low, last] - cross * (ue / uu_safe)[:, end]
    den = squares[:, begin - low, last] - cross * cross / uu_safe[:, end]
    den = np.maximum(den, 1e-9)
    found, size = ratio(num, den, end, begin)
    spread = np.sqrt(rss[0] / np.maximum(t, 1))[judged, None]
    noisy = np.clip((spread - NOISY[0]) / (NOISY[1] - NOISY[0]), 0, 1)
    enough = (SMALL[0] + (SMALL[1] - SMALL[0]) * noisy) * spread
    small = (np.abs(size) < enough) * 1.0
    # Lead of the best autocorrelated model over white noise in the nights before.
    lead = (none[1:].max(axis=0) - none[0] + DOUBT)[np.maximum(start - 1, 0)]
    open_ = np.clip((lead - OPEN[0]) / (OPEN[1] - OPEN[0]), 0, 1)
    correlated = np.clip((lead - 2) / 3, 0, 1)
    small = np.maximum(small, open_ * np.clip((SMALL_OPEN - np.abs(size) / spread) / SOFT, 0, 1))
    extra = (
        EXTRA
        - CLEAR * (1 - open_)
        + SMALL_DOUBT * small * (EXTRA < SMALL_DOUBT)
        + CORRELATED * correlated
    )
    large = np.clip((np.abs(size) - LARGE[0]) / (LARGE[1] - LARGE[0]), 0, 1)
    young = np.maximum(open_ * EARLY_OPEN, np.clip((EARLY_UNTIL - start) / EARLY_UNTIL, 0, 1))
    found = np.where(valid, found - extra - EARLY * young * (1 - large), -np.inf)
    step = _best(found, nights, start, size)

    pulses = _pulses(dot_e, dot_u, low, regime, nights, first, ue, uu_safe, ratio)
    ramp = _ramps(e, u, regime, nights, first, ue, uu_safe, ratio)
    level = ue / uu_safe
    before = np.maximum(t - 1, 0)
    chosen = model[before]
    diagonal = known.white[chosen, t, t]
    miss = (e[chosen, t] - u[chosen, t] * level[chosen, before]) / diagonal
    sigma = np.sqrt(rss[chosen, before] / np.maximum(before, 1)) / diagonal
    return Evidence(
        *step, *pulses, *ramp, values - miss, sigma, chosen > 0,  # type: ignore[call-arg]
    )  # fmt: skip


def unchanged(values: np.ndarray, regime: int) -> float:
    """Return the log likelihood of no change since `regime`, under the best model."""
    known = tables()
    n = len(values)
    e = known.white[:, :n, :n] @ values
    u = known.steps[:, :n, regime]
    rss = (e * e).sum(axis=1) + FLOOR**2 * n - (u * e).sum(axis=1) ** 2 / (u * u).sum(axis=1)
    found = -(n - 2) / 2 * np.log(np.maximum(rss, 1e-15)) - known.log_det[:, n - 1]
    return float((found - known.penalty).max())


def _windows(white: np.ndarray, width: int) -> np.ndarray:
    """Return the windows from each start: models x start x nights since; zero beyond the end."""
    padded = np.pad(white, ((0, 0), (0, width - 1)))
    return sliding_window_view(padded, width, axis=1)


def _best(found: np.ndarray, nights: int, *more: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the largest of each row, and the items of `more` at the same place, padded at the
    beginning to so many nights."""
    row, best = np.arange(len(found)), found.argmax(axis=1)
    chosen = []
    for part, none in ((found, -np.inf), *((part, 0) for part in more)):
        whole = np.full(nights, none, dtype=part.dtype)
        whole[nights - len(found) :] = part[row, best]
        chosen.append(whole)
    return tuple(chosen)


def _pulses(
    dot_e: np.ndarray,
    dot_u: np.ndarray,
    low: int,
    regime: int,
    nights: int,
    first: int,
    ue: np.ndarray,
    uu: np.ndarray,
    ratio: _Ratio,
) -> tuple[np.ndarray, ...]:
    """Return the evidence of pulses that ended at least one night before."""
    judged = np.arange(first, nights)
    after = np.arange(1, AFTER + 1)[None]
    end = np.broadcast_to(judged[:, None], (len(judged), AFTER))
    tried = []
    for length in PULSES:
        start = end - after - length + 1
        valid = start > regime
        begin = np.where(valid, start, low)
        back = np.where(valid, start + length, low) - low
        cross = dot_u[:, begin - low, length + after - 1] - dot_u[:, back, after - 1]
        num = dot_e[:, begin - low, length + after - 1] - dot_e[:, back, after - 1]
        num = num - cross * (ue / uu)[:, end]
        den = _pulse_squares(length)[:, begin, length + after - 1] - cross * cross / uu[:, end]
        found, size = ratio(num, np.maximum(den, 1e-9), end, begin)
        early = EARLY * np.clip((EARLY_UNTIL - start) / EARLY_UNTIL, 0, 1)
        tried.append((np.where(valid, found - early, -np.inf), start, start + length - 1, size))
    found, start, last, size = (np.concatenate(part, axis=1) for part in zip(*tried, strict=True))
    return _best(found, nights, start, last, size)


def _ramps(
    e: np.ndarray,
    u: np.ndarray,
    regime: int,
    nights: int,
    first: int,
    ue: np.ndarray,
    uu: np.ndarray,
    ratio: _Ratio,
) -> tuple[np.ndarray, ...]:
    """Return the evidence of ramps, on every fifth night."""
    best = np.full(nights, -np.inf), np.zeros(nights, dtype=int), np.zeros(nights)
    ends = np.arange(GRID - 1, nights, GRID)
    starts = np.arange(0, nights, GRID)
    if not len(ends):
        return best
    ramps = tables().ramps[:, :nights, : len(starts)]

    def upto(product: np.ndarray) -> np.ndarray:
        whole = product[:, : len(ends) * GRID]
        return np.cumsum(np.add.reduceat(whole, ends - GRID + 1, axis=1), axis=1)

    dot_e, dot_u = upto(ramps * e[:, :, None]), upto(ramps * u[:, :, None])
    squares = upto(ramps * ramps)
    judged = ends >= first
    ends, squares = ends[judged], squares[:, judged]
    dot_e, dot_u = dot_e[:, judged], dot_u[:, judged]
    uu_at = uu[:, ends, None]
    num = dot_e - dot_u * (ue[:, ends, None] / uu_at)
    den = np.maximum(squares - dot_u * dot_u / uu_at, 1e-9)
    end = np.broadcast_to(ends[:, None], (len(ends), len(starts)))
    found, slope = ratio(
        num, den, end, np.broadcast_to(starts[None], end.shape), large_matters=False
    )
    valid = (starts[None] >= regime) & (end - starts[None] >= SHORTEST)
    found = np.where(valid, found, -np.inf)
    k = found.argmax(axis=1)
    row = np.arange(len(ends))
    best[0][ends], best[1][ends], best[2][ends] = found[row, k], starts[k], slope[row, k]
    return best
