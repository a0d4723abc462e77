"""Who is slow among peers: the mathematics of screening, night by night.

A value is the night's own level (the weather, which all peers share), plus what the unit always has
above or below its peers, plus noise. Weather, the spread of the units' levels and the noise are
estimated from the fleet, robustly. A unit is slow if its last nights lie below what its earlier
nights and its peers let expect. Each test over the last 1, 2, 3 … nights has a share of the one
rate of false names, so that the sum of all keeps to it whatever depends on what.

Pure: arrays in, findings out. Rows are nights, columns units; differences of values are relative
differences of what was measured (:func:`relative`); larger is better; NaN is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from scipy import stats

from plumbline.analysis.stats import MAD_TO_STD

#: Fewest units that can be compared.
FEWEST = 5
#: False names that are accepted, of a unit and night.
RATE = 7e-6
#: Smallest slowness that is named, relative.
LEAST = 0.02
#: Most of a fleet that is named; more is no outlier any more.
MOST = 0.25
#: Nights that are looked back.
MEMORY = 60
#: Length of a test in nights -> its share of the rate. 0 is all nights there are.
SHARES = {1: 0.6, 2: 0.1, 3: 0.2} | dict.fromkeys((4, 6, 8, 12, 16, 24, 32, 48, 0), 0.1 / 9)

#: No machine's values repeat more closely than this, relative.
LEAST_NOISE = 1e-3
#: Variance of a median over that of a mean; its inverse, nearly, for a standard deviation by MAD.
MEDIAN = np.pi / 2
_MAD_EFFICIENCY = 0.37
#: Two means this many standard deviations apart (Ashman's D) are two groups.
_APART = 4.0
_FEW = 50
#: Differences of which a tenth are several.
_MANY = 20
#: A value this many standard deviations out is rare; more such than noise has are heavy tails.
_RARE = 4.0
_SOME = 5
#: A single night, and several, below this p-value make a suspect.
_SUSPECT = {1: 0.03}
SUSPECT_LONG = 1e-3


@dataclass
class Night:
    """What the last night of a window says, an item for each unit.

    :ivar p: smallest p-value of its tests, each divided by its share; 1 where not judged.
    :ivar slow: whether it is named.
    :ivar suspect: whether a repeat tonight would tell more.
    :ivar start: first row of the nights that are slow.
    :ivar size: how much slower than expected.
    :ivar expected: what its value would be above the night's level if it were well.
    :ivar residual: the values above the night's level, all rows.
    :ivar noise: standard deviation of a value of variance factor 1.
    :ivar judged: whether it was measured, among enough peers.
    :ivar together: share of the judged that would be named, where that is too many for outliers.
    :ivar fallen: which units fell together where they are two groups now; else ``None``.
    """

    p: np.ndarray
    slow: np.ndarray
    suspect: np.ndarray
    start: np.ndarray
    size: np.ndarray
    expected: np.ndarray
    residual: np.ndarray
    noise: float
    judged: np.ndarray
    together: float = 0.0
    fallen: np.ndarray | None = None


def judge(
    values: np.ndarray,
    factors: np.ndarray,
    kinds: np.ndarray,
    known: np.ndarray,
    rate: float = RATE,
    least: float = LEAST,
    floor: float = LEAST_NOISE,
) -> Night:
    """Judges the last row by itself and what was there before it.

    :arg values: nights x units.
    :arg factors: variance of each over that of a single measurement.
    :arg kinds: number of each unit's group of peers, counted from 0.
    :arg known: values that are known to be slow: neither peers nor baseline.
    :arg floor: noise that the values have at least, as of their last digit (:func:`floor_of`).
    """
    out = known.copy()
    for last in (False, True):
        found = _test(values, factors, kinds, out, known, rate, least, floor)
        # Those who are far out are no measure of the others: once more without them.
        far = found.p < 1e-3
        if last or far.mean() > MOST:
            break
        out = known | (far & (np.arange(len(values))[:, None] >= found.start))
    share = found.slow.sum() / max(found.judged.sum(), 1)
    if len(values) > 1:
        change = np.where(found.judged, found.residual[-1] - found.expected, np.nan)
        found.fallen = two_groups(change, 1.2 * found.noise)
    if found.fallen is not None:
        share = found.fallen.sum() / found.judged.sum()
    if share > MOST:
        found.together = share
        found.slow[:] = False
    return found


def _test(values, factors, kinds, out, known, rate, least, floor) -> Night:
    nights, units = values.shape
    peers = np.where(out, np.nan, values)
    common, count = weather(peers, kinds, passes=2)
    measured = np.isfinite(values[-1])
    # One of the fewest may itself be far out, and is no peer then.
    enough = np.bincount(kinds[measured], minlength=count.shape[1]) >= FEWEST
    enough &= count[-1] >= FEWEST - 1
    judged = measured & ~known[-1] & enough[kinds]
    residual = values - common[:, kinds]
    noise, freedom = _noise(peers - common[:, kinds], factors, floor)
    own = np.where(known, np.nan, residual)
    precise = np.where(np.isfinite(own), 1 / factors, 0.0)
    spread = _spread(np.where(out, np.nan, residual), factors, noise)
    clipped = _clipped(own, residual, factors, noise, spread)
    before = np.vstack([np.zeros(units), np.cumsum(precise, axis=0)])
    summed = np.vstack([np.zeros(units), np.cumsum(precise * np.nan_to_num(clipped), axis=0)])
    # A level that was not seen is the peers', give or take their spread.
    prior = noise**2 / spread**2 if spread > 0 else np.inf
    p, starts, sizes, levels = [], [], [], []
    suspect = np.zeros(units, bool)
    for first, share in _tests(nights):
        weight = before[-1] - before[first]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (summed[-1] - summed[first]) / weight
            level = summed[first] / (before[first] + prior) if prior < np.inf else 0 * mean
            doubt = 1 / (before[first] + prior) + 1 / weight
            # The weather of the few is not known well either.
            doubt += MEDIAN * np.median(factors) / np.maximum(count[-1, kinds], 1) / (
                nights - first)  # fmt: skip
            z = (level - mean) / (noise * np.sqrt(doubt))
        z = np.where(judged & (weight > 0), z, np.nan)
        z = z / _unruly(z)
        chance = np.nan_to_num(stats.t.sf(z, freedom), nan=1.0)
        suspect |= chance < _SUSPECT.get(nights - first, SUSPECT_LONG)
        p.append(chance / share)
        starts.append(np.full(units, first))
        sizes.append(np.where(judged, level - mean, 0.0))
        levels.append(level)
    best = np.argmin(p, axis=0)
    pick = lambda rows: np.asarray(rows)[best, np.arange(units)]  # noqa: E731
    size = pick(sizes)
    slow = (pick(p) < rate) & (size >= least)
    return Night(
        pick(p), slow, suspect & judged & ~slow, pick(starts), size, pick(levels), residual,
        noise, judged,
    )  # fmt: skip


def _tests(nights: int) -> list[tuple[int, float]]:
    """First row and share of each test; that of all nights has what longer ones would have."""
    shorter = {length: share for length, share in SHARES.items() if 0 < length < nights}
    return [(0, 1 - sum(shorter.values())), *((nights - n, share) for n, share in shorter.items())]


def middle(rows: np.ndarray, scale: float | None = None) -> np.ndarray:
    """Mean of repeats (the last axis), in which one far off counts little, and one far worse than
    another does not count: a repeat that is well refutes the first.

    :arg scale: standard deviation of one repeat; where it is not given, the median.
    """
    ordered = np.sort(rows, axis=-1)
    count = ordered.shape[-1]
    centre = ordered[..., count // 2 : count // 2 + 1]
    if scale is None:
        return centre[..., 0] if count % 2 or count == 2 else ordered[
            ..., count // 2 - 1 : count // 2 + 1].mean(axis=-1)  # fmt: skip
    return np.clip(ordered, centre - 2.5 * scale, centre + 2.5 * scale).mean(axis=-1)


def median(values: np.ndarray, axis: int) -> np.ndarray:
    """The median without what is missing; NaN where all is."""
    if not np.isnan(values).any():
        return np.median(values, axis=axis)
    # As NumPy's nanmedian, many times as fast: sorting puts what is missing last.
    ordered = np.sort(values, axis=axis)
    count = np.isfinite(values).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis)
    return np.where(count > 0, (low + high) / 2, np.nan).squeeze(axis)


def weather(peers: np.ndarray, kinds: np.ndarray, passes: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The nights' levels and how many peers tell them, nights x groups.

    :arg passes: with 1, a night is judged by itself; with 2, the units' own levels over all nights
        are taken off, which matters where some are missing on some nights.
    """
    groups = kinds.max() + 1
    level = np.zeros(peers.shape[1])
    common = np.zeros((len(peers), groups))
    count = np.zeros((len(peers), groups), int)
    for _ in range(passes):
        for group in range(groups):
            mine = kinds == group
            if not mine.any():
                continue
            common[:, group] = median(peers[:, mine] - level[mine], axis=1)
            count[:, group] = np.isfinite(peers[:, mine]).sum(axis=1)
        level = np.nan_to_num(median(peers - common[:, kinds], axis=0))
    return np.nan_to_num(common), count


def floor_of(values: list[float]) -> float:
    """Noise that values have at least, relative: half a digit of the last place that any of them
    has, as programs print few."""
    places = max((-Decimal(repr(float(value))).normalize().as_tuple().exponent for value in values),
                 default=0)  # fmt: skip
    return max(0.5 * 10.0**-places / float(np.median(values)), LEAST_NOISE)


def _noise(
    residual: np.ndarray, factors: np.ndarray, floor: float = LEAST_NOISE
) -> tuple[float, float]:
    """Standard deviation of a single measurement, and its degrees of freedom: from one night to
    the next, which no unit's level touches; of a first night, all of its spread."""
    if len(residual) > 1:
        steps = np.diff(residual, axis=0) / np.sqrt(factors[1:] + factors[:-1])
        steps = steps[np.isfinite(steps)]
        # Those that follow each other share a value: three are worth two.
        worth = len(steps) * 2 / 3
    else:
        steps = (residual / np.sqrt(factors))[np.isfinite(residual)]
        worth = len(steps)
    if not len(steps):
        return floor, 1.0
    scale = MAD_TO_STD * np.median(np.abs(steps))
    if scale < LEAST_NOISE and len(steps) >= _MANY:
        # Most values are equal, and the others tell. Of few, these may be one that is slow.
        scale = np.quantile(np.abs(steps), 0.9) / 1.645
    return max(float(scale), floor), max(_MAD_EFFICIENCY * worth, 1.0)


def _spread(residual: np.ndarray, factors: np.ndarray, noise: float) -> float:
    """Standard deviation of the units' levels, without the noise in their means; 0 of one night,
    whose noise has all of it."""
    if len(residual) < 2:
        return 0.0
    weights = np.where(np.isfinite(residual), 1 / factors, 0.0)
    seen = weights.sum(axis=0) > 0
    if seen.sum() < FEWEST:
        return 0.0
    weight = weights[:, seen].sum(axis=0)
    means = (weights * np.nan_to_num(residual))[:, seen].sum(axis=0) / weight
    wide = (MAD_TO_STD * np.median(np.abs(means - np.median(means)))) ** 2
    return float(np.sqrt(max(wide - noise**2 * np.median(1 / weight), 0.0)))


def _clipped(own, residual, factors, noise, spread) -> np.ndarray:
    """No value counts for more than such values are rare in this fleet: where units have outliers,
    of single nights, one names nobody.

    :arg own: without what is known to be slow; ``residual``: with it.
    """
    nights, units = own.shape
    middle = np.zeros(units)
    scale = np.sqrt(spread**2 + noise**2 * factors)
    if nights >= 5:
        earlier = own[: nights - 3] if nights >= 8 else own
        middle = np.nan_to_num(median(earlier, axis=0))
        seen = np.maximum(np.isfinite(earlier).sum(axis=0), 1)
        scale = noise * np.sqrt(factors + MEDIAN / seen)
    out = np.nan_to_num((residual - middle) / scale)
    total = np.isfinite(residual).sum()
    fast = (out > _RARE).sum()
    alone = (out[1:-1] < -_RARE) & (out[2:] > -_RARE / 2) & (out[:-2] > -_RARE / 2)
    rare = max(fast, alone.sum())
    if rare < _SOME or rare < 10 * stats.norm.sf(_RARE) * total:
        return own
    most = stats.norm.isf(min(rare / total, 0.02)) * scale
    return np.clip(own, middle - most, middle + most)


def _unruly(z: np.ndarray) -> float:
    """How much wider than they should the scores of the fleet lie, by their fast half: levels
    that wander, noise that differs. 1 where chance explains it."""
    known = z[np.isfinite(z)]
    if len(known) < 4 * FEWEST:
        return 1.0
    middle = np.median(known)
    wide = MAD_TO_STD * np.median(middle - known[known <= middle])
    return float(wide) if wide > 1 + 4.8 / np.sqrt(len(known)) else 1.0


def two_groups(levels: np.ndarray, noise: float = LEAST_NOISE) -> np.ndarray | None:
    """Whether the units are of two kinds, as of two generations of hardware: which are of the
    slower one, or ``None``. A quarter or less that is slow is no kind, but slow.

    :arg noise: standard deviation that each group has at least.
    """
    known = np.sort(levels[np.isfinite(levels)])
    total = len(known)
    if total < 2 * FEWEST:
        return None
    sums, squares = np.cumsum(known), np.cumsum(known**2)
    low = np.arange(1, total)
    inside = (squares[:-1] - sums[:-1] ** 2 / low) + (
        squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]) ** 2 / (total - low)
    )
    # Where both groups are closest to their means.
    cut = int(np.argmin(inside)) + 1
    slow, fast = known[:cut], known[cut:]
    around = np.concatenate([slow - np.median(slow), fast - np.median(fast)])
    scatter = max(MAD_TO_STD * np.median(np.abs(around)), noise)
    if total < _FEW:
        # So few fall into two heaps by chance: no half of them may hide how wide the heaps are.
        scatter = max(scatter, np.sqrt(inside.min() / (total - 2)))
    apart = (np.median(fast) - np.median(slow)) / scatter
    if len(slow) <= MOST * total or len(fast) < max(FEWEST, 0.1 * total) or apart < _APART:
        return None
    # Between two groups there are few.
    between = (np.median(fast) + np.median(slow)) / 2
    if np.mean(np.abs(known - between) < scatter) > 0.05:
        return None
    return np.where(np.isfinite(levels), levels < known[cut], False)


def relative(logarithms: np.ndarray, kinds: np.ndarray, better: str) -> np.ndarray:
    """Values to judge, of logarithms: relative to the night's level, on the scale on which noise
    reaches least far to the slow side, be it normal itself or in its logarithm."""
    common, _ = weather(logarithms, kinds)
    above = logarithms - common[:, kinds]
    return np.expm1(above) if better == "higher" else above


def repeats(
    cells: dict[tuple[int, int], list[float]], nights: int, units: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values and variance factors, nights x units, of what was measured once or several times.

    :arg cells: night and unit -> logarithms, in the order of measuring.
    """
    values = np.full((nights, units), np.nan)
    factors = np.ones((nights, units))
    by_count: dict[int, list[tuple[int, int]]] = {}
    for cell, rows in cells.items():
        by_count.setdefault(len(rows), []).append(cell)
        values[cell] = rows[0]
    if set(by_count) <= {1}:
        return values, factors
    usual = max(by_count, key=lambda count: len(by_count[count]))
    inside = _inside(cells, by_count, usual)
    kinds = np.zeros(units, int)
    typical = np.full((nights, units), np.nan)
    for cell in by_count[usual]:
        typical[cell] = np.mean(cells[cell])
    level, _ = weather(typical, kinds)
    noise, _ = _noise(typical - level[:, kinds], factors)
    scale, common = noise, 0.0
    if len(inside) >= 20:
        within = max(MAD_TO_STD * float(np.median(np.abs(inside))), LEAST_NOISE)
        common = max(noise**2 - within**2 / usual, 0.0) / (
            max(noise**2 - within**2 / usual, 0.0) + within**2)  # fmt: skip
        scale = within
        # What repeats have in common is known as well as their noise is.
        if common < 2 * np.sqrt(2 / (_MAD_EFFICIENCY * len(inside))):
            common = 0.0
    for count, listed in by_count.items():
        if count > 1:
            where = tuple(np.transpose(listed))
            values[where] = middle(np.array([cells[cell] for cell in listed]), scale)
            factors[where] = common + (1 - common) / count
    return values, factors


def _inside(cells: dict, by_count: dict, usual: int) -> np.ndarray:
    """Differences of repeats from their mean, as wide as single ones. Where most units are measured
    once, the first of several was what made one repeat it, and is left out."""
    found = []
    for count, listed in by_count.items():
        skip = 1 if usual == 1 else 0
        if count - skip >= 2:
            rows = np.array([cells[cell][skip:] for cell in listed])
            wide = np.sqrt((count - skip) / (count - skip - 1))
            found.append(((rows - rows.mean(axis=1, keepdims=True)) * wide).ravel())
    return np.concatenate(found) if found else np.zeros(0)
