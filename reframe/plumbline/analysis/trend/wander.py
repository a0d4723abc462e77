"""Likelihood of a change in a series whose noise may wander.

A value's logarithm is a level plus noise; the noise is white, or a share of it wanders, with
correlation ``share * memory ** nights``. For each such model, the values are made white with the
Cholesky factor of its correlation (generalised least squares). Row ``t`` of the factor's inverse
needs the values up to ``t`` alone, so that one product gives what every night knew.

Nothing here knows what a regression is; the rules are in :mod:`plumbline.analysis.trend`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import linalg

#: Most nights that are looked at together.
NIGHTS = 400
#: Nights since a step that are tried.
LENGTHS = np.array([3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 34, 40, 50, 60])
#: Nights that a pulse lasts, and most nights after it ended that it is looked for.
PULSES = range(2, 8)
AFTER = 8
#: Night to night correlation of the wander, and its share of the variance.
MODELS = ((0.0, 0.0), *((m, s) for m in (0.6, 0.9, 0.98) for s in (0.5, 0.85)))
#: A model with wander must explain the values better by this (nats) to be believed over none.
DOUBT = 1.0
#: What the nights before a change say against a model counts so often more, up to so many nats.
TWICE, MOST = 1.5, 8.0
#: A change of this size (share of the value; growing between the two) is less likely wander:
#: wander must explain it better by so many nats more.
LARGE, LARGE_DOUBT = (0.03, 0.045), 4.0
#: A change smaller than that needs so many nats more if it begins on the first night, ever fewer
#: until this one: what wanders has not shown it yet.
EARLY, EARLY_UNTIL = 5.0, 60
#: Where wander leads over none by so much (nats; growing between the two), a step smaller than so
#: many sigma (less, by this much) is doubted as a small one, and part of EARLY holds on.
OPEN, SMALL_OPEN, SOFT, EARLY_OPEN = (1.0, 3.0), 1.8, 0.5, 0.5
#: A step smaller than so many sigma of a night needs so many nats more; the first holds where the
#: noise is below, the second where it is above these two.
SMALL, NOISY, SMALL_DOUBT = (1.25, 1.65), (0.012, 0.016), 5.0
#: Nats more that a step needs by the nights since: few nights are often tried, many may be wander.
EXTRA = np.select(
    [LENGTHS <= 4, LENGTHS <= 6, LENGTHS <= 8, LENGTHS <= 14], [1.0, 0.2, -0.6, -1.3], SMALL_DOUBT
)
#: Nats less that it needs where the nights before it show no wander.
CLEAR = np.select([LENGTHS <= 8, LENGTHS <= 14], [0.0, 0.4], 0.0)
#: Nats more that a step needs where the nights before it wandered.
WANDERED = 6.0
#: Noise that every figure has at least (of its value), such as that of its last digit.
FLOOR = 0.001
#: A ramp is tried from every so many nights, each so many nights, and has at least so many.
GRID = 5
SHORTEST = 20


@dataclass(frozen=True)
class ModelTables:
    """What does not depend on the values: arrays of models x nights x ..."""

    white: np.ndarray
    #: Step that begins at night k, made white: models x nights x k.
    steps: np.ndarray
    #: The same from its beginning: models x k x nights since.
    since: np.ndarray
    squares: np.ndarray
    ramps: np.ndarray
    log_det: np.ndarray
    penalty: np.ndarray


@dataclass
class Evidence:
    """What each night knew; arrays of one item a night, log likelihood ratios in nats.

    :ivar expected: the night's value as the nights before it let expect, and :ivar sigma: its
        standard deviation about that.
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
    #: Whether the nights before are better explained with wander than without.
    wanders: np.ndarray


@functools.cache
def tables() -> ModelTables:
    """The tables for up to :data:`NIGHTS` nights."""
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
    """Squares of pulses of that length: models x start x nights since."""
    found = tables()
    width = length + AFTER
    pulse = found.since[:, :, :width].copy()
    pulse[:, :-length, length:] -= found.since[:, length:, :AFTER]
    pulse[:, -length:, length:] = 0.0
    return np.cumsum(pulse**2, axis=2)


def evidence(values: np.ndarray, regime: int, first: int = 0) -> Evidence:
    """Evidence of a change against none, for each night from `first` on.

    :arg values: logarithms, outliers clipped, at most :data:`NIGHTS`; those before `regime` less
        the level that they had, so that they tell of the noise alone.
    :arg regime: first night of the level that holds now.
    :arg first: of the nights before it, nothing is said of changes.
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
    # A model that the nights before the change speak against is not saved by the change itself.
    against = TWICE * np.clip(none[0] - none - DOUBT, 0, MOST)

    def ratio(num, den, at, begin, span=None) -> tuple[np.ndarray, np.ndarray]:
        """Best ratio over the models, and the size that goes with it; items: models x n x k."""
        gain = num * num / den
        white_size = np.abs(num[0] / den[0])
        large = np.clip((white_size - LARGE[0]) / (LARGE[1] - LARGE[0]), 0, 1)
        large = large * np.clip((begin - 15) / 20, 0, 1)
        doubt = against[:, np.maximum(begin - 1, 0)] + (known.penalty > 0)[:, None, None] * (
            LARGE_DOUBT * large if span is None else 0.0
        )
        base = (none[:, at] - doubt).max(axis=0)
        left = np.maximum(rss[:, at] - gain, 1e-15)
        with_change = -half[at] * np.log(left) - offset[:, at] - doubt
        best = with_change.argmax(axis=0)[None]
        size = np.take_along_axis(num, best, 0)[0] / np.take_along_axis(den, best, 0)[0]
        return np.take_along_axis(with_change, best, 0)[0] - base, size

    # Steps: models x start x nights since; no start is further back than the longest step.
    width = LENGTHS[-1]
    low = max(first - width, 0)
    since, squares = known.since[:, low:nights], known.squares[:, low:nights]
    dot_e = np.cumsum(since * _windows(e[:, low:], width), axis=2)
    dot_u = np.cumsum(since * _windows(u[:, low:], width), axis=2)

    asked = t[first:]
    end = np.broadcast_to(asked[:, None], (len(asked), len(LENGTHS)))
    start = end - LENGTHS[None] + 1
    fits = start > regime
    begin = np.where(fits, start, low)
    last = (LENGTHS - 1)[None]
    cross = dot_u[:, begin - low, last]
    num = dot_e[:, begin - low, last] - cross * (ue / uu_safe)[:, end]
    den = squares[:, begin - low, last] - cross * cross / uu_safe[:, end]
    den = np.maximum(den, 1e-9)
    found, size = ratio(num, den, end, begin)
    spread = np.sqrt(rss[0] / np.maximum(t, 1))[asked, None]
    noisy = np.clip((spread - NOISY[0]) / (NOISY[1] - NOISY[0]), 0, 1)
    enough = (SMALL[0] + (SMALL[1] - SMALL[0]) * noisy) * spread
    small = (np.abs(size) < enough) * 1.0
    # How far the nights before let wander be: by what its best model leads over none.
    lead = (none[1:].max(axis=0) - none[0] + DOUBT)[np.maximum(start - 1, 0)]
    open_ = np.clip((lead - OPEN[0]) / (OPEN[1] - OPEN[0]), 0, 1)
    wandered = np.clip((lead - 2) / 3, 0, 1)
    small = np.maximum(small, open_ * np.clip((SMALL_OPEN - np.abs(size) / spread) / SOFT, 0, 1))
    extra = (
        EXTRA
        - CLEAR * (1 - open_)
        + SMALL_DOUBT * small * (EXTRA < SMALL_DOUBT)
        + WANDERED * wandered
    )
    large = np.clip((np.abs(size) - LARGE[0]) / (LARGE[1] - LARGE[0]), 0, 1)
    young = np.maximum(open_ * EARLY_OPEN, np.clip((EARLY_UNTIL - start) / EARLY_UNTIL, 0, 1))
    found = np.where(fits, found - extra - EARLY * young * (1 - large), -np.inf)
    step = _best(found, nights, start, size)

    pulses = _pulses(known, dot_e, dot_u, low, regime, nights, first, ue, uu_safe, ratio)
    ramp = _ramps(known, e, u, regime, nights, first, ue, uu_safe, ratio)
    level = ue / uu_safe
    before = np.maximum(t - 1, 0)
    chosen = model[before]
    diagonal = known.white[chosen, t, t]
    miss = (e[chosen, t] - u[chosen, t] * level[chosen, before]) / diagonal
    sigma = np.sqrt(rss[chosen, before] / np.maximum(before, 1)) / diagonal
    return Evidence(
        *step, *pulses, *ramp, values - miss, sigma, chosen > 0,
    )  # fmt: skip


def unchanged(values: np.ndarray, regime: int) -> float:
    """Log likelihood of no change since `regime` at the last night, under the best model."""
    known = tables()
    n = len(values)
    e = known.white[:, :n, :n] @ values
    u = known.steps[:, :n, regime]
    rss = (e * e).sum(axis=1) + FLOOR**2 * n - (u * e).sum(axis=1) ** 2 / (u * u).sum(axis=1)
    found = -(n - 2) / 2 * np.log(np.maximum(rss, 1e-15)) - known.log_det[:, n - 1]
    return float((found - known.penalty).max())


def _windows(white: np.ndarray, width: int) -> np.ndarray:
    """models x start x nights since; zero beyond the end."""
    padded = np.pad(white, ((0, 0), (0, width - 1)))
    return sliding_window_view(padded, width, axis=1)


def _best(found: np.ndarray, nights: int, *more: np.ndarray) -> tuple[np.ndarray, ...]:
    """The largest of each row, and what `more` has beside it, for the last of so many nights."""
    row, best = np.arange(len(found)), found.argmax(axis=1)
    chosen = []
    for part, none in ((found, -np.inf), *((part, 0) for part in more)):
        whole = np.full(nights, none, dtype=part.dtype)
        whole[nights - len(found) :] = part[row, best]
        chosen.append(whole)
    return tuple(chosen)


def _pulses(known, dot_e, dot_u, low, regime, nights, first, ue, uu, ratio):
    """Pulses, which ended at least a night ago."""
    asked = np.arange(first, nights)
    after = np.arange(1, AFTER + 1)[None]
    end = np.broadcast_to(asked[:, None], (len(asked), AFTER))
    tried = []
    for length in PULSES:
        start = end - after - length + 1
        fits = start > regime
        begin = np.where(fits, start, low)
        back = np.where(fits, start + length, low) - low
        cross = dot_u[:, begin - low, length + after - 1] - dot_u[:, back, after - 1]
        num = dot_e[:, begin - low, length + after - 1] - dot_e[:, back, after - 1]
        num = num - cross * (ue / uu)[:, end]
        den = _pulse_squares(length)[:, begin, length + after - 1] - cross * cross / uu[:, end]
        found, size = ratio(num, np.maximum(den, 1e-9), end, begin)
        early = EARLY * np.clip((EARLY_UNTIL - start) / EARLY_UNTIL, 0, 1)
        tried.append((np.where(fits, found - early, -np.inf), start, start + length - 1, size))
    found, start, last, size = (np.concatenate(part, axis=1) for part in zip(*tried, strict=True))
    return _best(found, nights, start, last, size)


def _ramps(known, e, u, regime, nights, first, ue, uu, ratio):
    """On every fifth night; between them nothing is said of ramps."""
    best = np.full(nights, -np.inf), np.zeros(nights, dtype=int), np.zeros(nights)
    at = np.arange(GRID - 1, nights, GRID)
    starts = np.arange(0, nights, GRID)
    if not len(at):
        return best
    ramps = known.ramps[:, :nights, : len(starts)]

    def upto(product: np.ndarray) -> np.ndarray:
        whole = product[:, : len(at) * GRID]
        return np.cumsum(np.add.reduceat(whole, at - GRID + 1, axis=1), axis=1)

    dot_e, dot_u = upto(ramps * e[:, :, None]), upto(ramps * u[:, :, None])
    squares = upto(ramps * ramps)
    asked = at >= first
    at, dot_e, dot_u, squares = at[asked], dot_e[:, asked], dot_u[:, asked], squares[:, asked]
    uu_at = uu[:, at, None]
    num = dot_e - dot_u * (ue[:, at, None] / uu_at)
    den = np.maximum(squares - dot_u * dot_u / uu_at, 1e-9)
    end = np.broadcast_to(at[:, None], (len(at), len(starts)))
    found, slope = ratio(
        num, den, end, np.broadcast_to(starts[None], end.shape), end - starts[None]
    )
    fits = (starts[None] >= regime) & (end - starts[None] >= SHORTEST)
    found = np.where(fits, found, -np.inf)
    k = found.argmax(axis=1)
    row = np.arange(len(at))
    best[0][at], best[1][at], best[2][at] = found[row, k], starts[k], slope[row, k]
    return best
