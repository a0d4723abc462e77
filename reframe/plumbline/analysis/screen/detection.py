"""The statistics of screening: which units are slow among their peers, night by night.

A value is the night's own level (the common-mode variation of all peers), plus the unit's own level
relative to its peers, plus noise. All three are estimated from the fleet, robustly. A unit is slow
if its last nights lie below the prediction from its earlier nights and its peers. Each test over
the last 1, 2, 3 … nights has a share of the one rate of false alarms, so their sum keeps to it even
if the tests are dependent.

Pure: arrays in, findings out. Rows are nights, columns units; differences of values are relative
differences of what was measured (:func:`relative`); larger is better; NaN is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from plumbline.analysis.distributions import normal_isf, normal_sf, t_isf, t_sf
from plumbline.analysis.stats import MAD_TO_STD

#: Fewest units that can be compared.
FEWEST = 5
#: Accepted rate of false alarms, per unit and night.
RATE = 7e-6
#: Smallest loss that is flagged, relative.
LEAST = 0.02
#: Largest share of a fleet that is flagged; more units are not outliers.
MOST = 0.25
#: Previous nights that are used.
MEMORY = 60
#: Length of a test in nights -> its share of the rate. 0 means all nights.
SHARES = {1: 0.6, 2: 0.1, 3: 0.2} | dict.fromkeys((4, 6, 8, 12, 16, 24, 32, 48, 0), 0.1 / 9)

#: Smallest noise that is assumed, relative.
LEAST_NOISE = 1e-3
#: Noise that is expected before anything is measured, relative; it counts as one value. It matters
#: for fewer than seven peers: among five nodes of 0.6 % on a first night, it lowers the smallest
#: loss that keeps to the rate from 36 % to 19 %.
USUAL_NOISE = 0.01
#: Variance of a median over that of a mean; its inverse, nearly, for a standard deviation by MAD.
MEDIAN = np.pi / 2
MAD_EFFICIENCY = 0.37
#: Two means this many standard deviations apart (Ashman's D) are two groups.
_DISTANCE = 4.0
_FEW = 50
#: P-value below which a few units have two levels: once in some thousand fleets by chance.
_TWO_LEVELS = 2e-4
#: Differences of which a tenth are several.
_MANY = 20
#: A value this many standard deviations off is rare; if there are more, the tails are heavy.
_RARE = 4.0
_SOME = 5
#: P-value below which a unit is far off, and no peer.
_FAR = 1e-3
#: P-value below which one night, and several, make a suspect.
_SUSPECT = {1: 0.03}
SUSPECT_LONG = 1e-3


@dataclass
class FigureTable:
    """One figure of all units, nights x units.

    :ivar values: NaN where a unit has none.
    :ivar factors: variance of each over that of a single measurement.
    :ivar kinds: number of each unit's group of peers, counted from 0.
    :ivar floor: smallest noise of the values, such as their last digit (:func:`floor_of`).
    """

    values: np.ndarray
    factors: np.ndarray
    kinds: np.ndarray
    floor: float

    def of(self, nights: slice) -> FigureTable:
        """Return the table of some nights."""
        return replace(self, values=self.values[nights], factors=self.factors[nights])


@dataclass
class Night:
    """The judgement of the last night of a window, an item for each unit.

    :ivar p: smallest p-value of its tests, each divided by its share; 1 where not judged.
    :ivar slow: whether it is flagged.
    :ivar suspect: whether a repeat tonight would help to decide.
    :ivar start: first row of the nights that are slow.
    :ivar size: how much slower than expected.
    :ivar expected: its value above the night's level if it were healthy.
    :ivar residual: the values above the night's level, all rows.
    :ivar noise: standard deviation of a value of variance factor 1.
    :ivar judged: whether it was measured, among enough peers.
    :ivar together: share of the judged that would be flagged, if that is too many for outliers.
    :ivar always: whether these were as slow on all nights, so that none fell.
    :ivar fallen: which units fell together, if they are two groups now, or few; else ``None``.
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
    always: bool = False
    fallen: np.ndarray | None = None


@dataclass
class Model:
    """The parts of the values of a window: the nights' levels, the units' own, and noise.

    :ivar residual: values above the night's level, nights x units; ``clipped``: without outliers,
        if these are usual.
    :ivar count: number of peers behind each night's level, nights x groups.
    :ivar noise: standard deviation of a value of variance factor 1.
    :ivar scale: the same from the values of all other units, of each unit; ``freedom``: its degrees
        of freedom.
    :ivar weight: of the values before each row, and of all, nights + 1 x units; ``total``: their
        weighted sums.
    :ivar prior: weight of the peers' level as that of a unit without earlier nights.
    """

    residual: np.ndarray
    clipped: np.ndarray
    count: np.ndarray
    noise: float
    scale: np.ndarray
    freedom: np.ndarray
    weight: np.ndarray
    total: np.ndarray
    prior: float

    def level(self, row: int | slice | np.ndarray) -> np.ndarray:
        """Return the units' levels by the nights before a row."""
        if self.prior == np.inf:
            return np.zeros_like(self.total[row])
        return self.total[row] / (self.weight[row] + self.prior)


def judge(table: FigureTable, known: np.ndarray, rate: float) -> Night:
    """Judge the last row, compared with the rows before it.

    :arg known: values that are known to be slow: they count neither as peers nor as a baseline.
    """
    found = _test(fit(table, known, known), table, known, rate)
    # Units that are far off must not affect the others: once more without them.
    far = found.p < _FAR
    if 0 < far.mean() <= MOST:
        out = known | (far & (np.arange(len(known))[:, None] >= found.start))
        found = _test(fit(table, out, known), table, known, rate)
    share = found.slow.sum() / max(found.judged.sum(), 1)
    if len(known) > 1:
        change = np.where(found.judged, found.residual[-1] - found.expected, np.nan)
        found.fallen = two_groups(change, 1.2 * found.noise)
    if found.fallen is not None:
        share = found.fallen.sum() / found.judged.sum()
    if share > MOST:
        found.together = share
        found.always = found.fallen is None and not np.median(found.start[found.slow])
        if found.fallen is None and len(known) > 1 and found.judged.sum() < 2 * FEWEST:
            found.fallen = found.slow.copy()
        found.slow[:] = False
    return found


def fit(table: FigureTable, out: np.ndarray, known: np.ndarray) -> Model:
    """Fit the nights' levels, the units' own and the noise.

    :arg out: values that are no peers. :arg known: as of :func:`judge`.
    """
    values, factors, kinds, floor = table.values, table.factors, table.kinds, table.floor
    peers = np.where(out, np.nan, values)
    common, count = common_mode(peers, kinds, passes=2)
    # What was measured alone, or only with slow ones, is compared with nothing.
    others = count[:, kinds] - np.isfinite(peers)
    residual = np.where(others > 0, values - common[:, kinds], np.nan)
    steps, worth = steps_of(peers - common[:, kinds], factors)
    noise, freedom = noise_of(steps, worth, floor)
    scale, freedoms = _by_others(steps, worth, count, noise, freedom, floor)
    own = np.where(known, np.nan, residual)
    precise = np.where(np.isfinite(own), 1 / factors, 0.0)
    spread = spread_of(np.where(out, np.nan, residual), factors, noise)
    clipped = _clipped(own, residual, factors, noise, spread)
    zero = np.zeros((1, values.shape[1]))
    return Model(
        residual,
        clipped,
        count,
        noise,
        scale,
        freedoms,
        np.vstack([zero, np.cumsum(precise, axis=0)]),
        np.vstack([zero, np.cumsum(precise * np.nan_to_num(clipped), axis=0)]),
        # Without earlier nights, a unit's level is that of its peers, with their spread.
        noise**2 / spread**2 if spread > 0 else np.inf,
    )


def _test(fitted: Model, table: FigureTable, known: np.ndarray, rate: float) -> Night:
    nights, units = fitted.residual.shape
    kinds = table.kinds
    measured = np.isfinite(fitted.residual[-1])
    # One of the fewest may itself be far off, and is no peer then.
    enough = np.bincount(kinds[measured], minlength=fitted.count.shape[1]) >= FEWEST
    enough &= fitted.count[-1] >= FEWEST - 1
    judged = measured & ~known[-1] & enough[kinds]
    # The level of a few peers is uncertain too.
    doubt_of_level = MEDIAN * np.median(table.factors) / np.maximum(fitted.count[-1, kinds], 1)
    # Tests x units.
    first, share, limit = _tests(nights)
    weight, level = fitted.weight[-1] - fitted.weight[first], fitted.level(first)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (fitted.total[-1] - fitted.total[first]) / weight
        doubt = 1 / (fitted.weight[first] + fitted.prior) + 1 / weight
        doubt += doubt_of_level / (nights - first)[:, None]
        z = (level - mean) / (fitted.scale * np.sqrt(doubt))
    z = np.where(judged & (weight > 0), z, np.nan)
    z /= excess_width(z)[:, None]
    chance = np.nan_to_num(t_sf(z, fitted.freedom), nan=1.0)
    p = chance / share[:, None]
    best = np.argmin(p, axis=0), np.arange(units)
    size = np.where(judged, level - mean, 0.0)[best]
    slow = (p[best] < rate) & (size >= LEAST)
    suspect = (chance < limit[:, None]).any(axis=0) & judged & ~slow
    return Night(
        p[best], slow, suspect, first[best[0]], size, level[best],
        fitted.residual, fitted.noise, judged,
    )  # fmt: skip


def _tests(nights: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return first row, share, and p-value of a suspect of each test; that of all nights has the
    share of longer ones."""
    shorter = {length: share for length, share in SHARES.items() if 0 < length < nights}
    lengths = [nights, *shorter]
    limits = [_SUSPECT.get(length, SUSPECT_LONG) for length in lengths]
    shares = [1 - sum(shorter.values()), *shorter.values()]
    return nights - np.array(lengths), np.array(shares), np.array(limits)


def median(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the median of the values that are not missing; NaN if all are."""
    # As NumPy's nanmedian, many times as fast: sorting puts what is missing last, and takes less
    # time than the partition of NumPy's median.
    ordered = np.sort(values, axis=axis)
    count = np.isfinite(values).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis)
    return np.where(count > 0, (low + high) / 2, np.nan).squeeze(axis)


def common_mode(
    peers: np.ndarray, kinds: np.ndarray, passes: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nights' levels and the number of peers behind them, nights x groups.

    :arg passes: with 1, each night is taken by itself; with 2, the units' own levels over all
        nights are subtracted, which matters if some units are missing on some nights.
    """
    groups = kinds.max() + 1
    level = np.zeros(peers.shape[1])
    common = np.zeros((len(peers), groups))
    count = np.zeros((len(peers), groups), int)
    for number in range(passes):
        if number:
            level = np.nan_to_num(median(peers - common[:, kinds], axis=0))
        for group in range(groups):
            mine = kinds == group
            if not mine.any():
                continue
            common[:, group] = median(peers[:, mine] - level[mine], axis=1)
            count[:, group] = np.isfinite(peers[:, mine]).sum(axis=1)
    return np.nan_to_num(common), count


def floor_of(values: list[float]) -> float:
    """Return the smallest relative noise of values: half a digit of the last printed place. Whole
    numbers are known to the one: 1000 has four digits."""
    if not values:
        return LEAST_NOISE
    middle, floor = float(np.median(values)), np.inf
    for value in values:
        exponent = int(Decimal(repr(float(value))).normalize().as_tuple().exponent)
        floor = min(floor, 0.5 * 10.0 ** min(exponent, 0) / middle)
        if floor <= LEAST_NOISE:
            return LEAST_NOISE
    return floor


def steps_of(residual: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, float]:
    """Return differences as wide as the noise, and how many independent ones each is worth.

    They are of successive values of a unit, which do not contain the units' levels; of a single
    night they are the values, whose noise includes them.
    """
    if len(residual) == 1:
        return residual / np.sqrt(factors), 1.0
    # Where a part of the nodes is measured each night, none may be on two successive ones.
    measured = np.argsort(np.isnan(residual), axis=0, kind="stable")
    residual, factors = (np.take_along_axis(one, measured, axis=0) for one in (residual, factors))
    # Successive differences share a value: of many, three are worth two.
    count = len(residual) - 1
    steps = np.diff(residual, axis=0) / np.sqrt(factors[1:] + factors[:-1])
    return steps, 2 * count / (3 * count - 1)


def noise_of(steps: np.ndarray, worth: float, floor: float = LEAST_NOISE) -> tuple[float, float]:
    """Return the standard deviation of a single measurement by the median of all differences, and
    its degrees of freedom."""
    known = np.abs(steps[np.isfinite(steps)])
    if not len(known):
        return floor, 1.0
    scale = MAD_TO_STD * median(known, axis=0)
    if scale < LEAST_NOISE and len(known) >= _MANY:
        # Most values are equal: use the others. Of a few, these may be one slow unit.
        scale = np.quantile(known, 0.9) / 1.645
    return max(float(scale), floor), max(MAD_EFFICIENCY * worth * len(known), 1.0)


def _by_others(
    steps: np.ndarray, worth: float, count: np.ndarray, noise: float, freedom: float, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviation of a single measurement by the differences of all other units,
    and its degrees of freedom, of each unit.

    A unit that is far off does not hide itself so, and the few of a small fleet are used as well
    as they can be. Differences are clipped by their median (:func:`noise_of`).
    """
    most = t_isf(_FAR, freedom) * noise
    squares = np.nan_to_num(np.clip(steps, -most, most)) ** 2
    measured = np.isfinite(steps).sum(axis=0)
    # A level of each night and group was fitted.
    number = measured.sum() - measured - np.count_nonzero(count[-len(steps) :])
    number = np.maximum(number, 1)
    variance = np.maximum((squares.sum() - squares.sum(axis=0)) / number, floor**2)
    freedoms = worth * number
    return np.sqrt((freedoms * variance + USUAL_NOISE**2) / (freedoms + 1)), freedoms + 1


def spread_of(residual: np.ndarray, factors: np.ndarray, noise: float) -> float:
    """Return the standard deviation of the units' levels, without the noise in their means; 0 for a
    single night, whose noise includes it."""
    if len(residual) < 2:
        return 0.0
    weights = np.where(np.isfinite(residual), 1 / factors, 0.0)
    measured = weights.sum(axis=0) > 0
    if measured.sum() < FEWEST:
        return 0.0
    weight = weights[:, measured].sum(axis=0)
    means = (weights * np.nan_to_num(residual))[:, measured].sum(axis=0) / weight
    wide = (MAD_TO_STD * np.median(np.abs(means - np.median(means)))) ** 2
    return float(np.sqrt(max(wide - noise**2 * np.median(1 / weight), 0.0)))


def _clipped(
    own: np.ndarray, residual: np.ndarray, factors: np.ndarray, noise: float, spread: float
) -> np.ndarray:
    """Clip outliers by how rare they are in this fleet: if single outliers are usual, one flags no
    unit.

    :arg own: without what is known to be slow.
    :arg residual: with it.
    """
    nights, units = own.shape
    middle = np.zeros(units)
    scale = np.sqrt(spread**2 + noise**2 * factors)
    if nights >= 5:
        earlier = own[: nights - 3] if nights >= 8 else own
        middle = np.nan_to_num(median(earlier, axis=0))
        measured = np.maximum(np.isfinite(earlier).sum(axis=0), 1)
        scale = noise * np.sqrt(factors + MEDIAN / measured)
    out = np.nan_to_num((residual - middle) / scale)
    total = np.isfinite(residual).sum()
    fast = (out > _RARE).sum()
    alone = (out[1:-1] < -_RARE) & (out[2:] > -_RARE / 2) & (out[:-2] > -_RARE / 2)
    rare = max(fast, alone.sum())
    if rare < _SOME or rare < 10 * normal_sf(_RARE) * total:
        return residual
    most = normal_isf(min(rare / total, 0.02)) * scale
    return np.clip(residual, middle - most, middle + most)


def excess_width(z: np.ndarray) -> np.ndarray:
    """Return how much wider the scores of the fleet are than they should, by their fast half: from
    autocorrelated levels, or different noise. 1 if chance explains it.

    :arg z: tests x units, NaN where not judged; the result has an item for each test.
    """
    below = median(z, axis=1)[:, None] - z
    wide = MAD_TO_STD * median(np.where(below >= 0, below, np.nan), axis=1)
    count = np.isfinite(z).sum(axis=1)
    certain = (count >= 4 * FEWEST) & (wide > 1 + 4.8 / np.sqrt(np.maximum(count, 1)))
    return np.where(certain, wide, 1.0)


def two_groups(levels: np.ndarray, noise: float = LEAST_NOISE) -> np.ndarray | None:
    """Return which units are of the slower of two kinds, such as two generations of hardware, or
    ``None`` if there is one kind. A quarter or less is not a kind of its own, but slow.

    :arg noise: smallest standard deviation of a group.
    """
    known = np.sort(levels[np.isfinite(levels)])
    total = len(known)
    if total < 2 * FEWEST:
        return None
    cut, inside = _cut(known)
    slow, fast = known[:cut], known[cut:]
    around = np.concatenate([slow - np.median(slow), fast - np.median(fast)])
    scatter = max(MAD_TO_STD * np.median(np.abs(around)), noise)
    if total < _FEW:
        # A few units form two groups by chance: use all of them for the width of the groups.
        scatter = max(scatter, np.sqrt(inside / (total - 2)))
    distance = (np.median(fast) - np.median(slow)) / scatter
    if len(slow) <= MOST * total or len(fast) < max(FEWEST, 0.1 * total) or distance < _DISTANCE:
        return None
    # Few units are between two groups.
    between = (np.median(fast) + np.median(slow)) / 2
    if np.mean(np.abs(known - between) < scatter) > 0.05:
        return None
    return np.where(np.isfinite(levels), levels < known[cut], False)


def two_levels(levels: np.ndarray, noise: float) -> np.ndarray | None:
    """Return which of a few units are of the slower of two levels, or ``None`` if there is one.
    They are too few for two kinds (:func:`two_groups`). A quarter or less is slow, or fast.

    :arg noise: as there.
    """
    known = np.sort(levels[np.isfinite(levels)])
    total = len(known)
    if not FEWEST <= total < 2 * FEWEST:
        return None
    cut, inside = _cut(known)
    if min(cut, total - cut) <= MOST * total:
        return None
    apart = known[cut:].mean() - known[:cut].mean()
    error = max(np.sqrt(inside / (total - 2)), noise) * np.sqrt(1 / cut + 1 / (total - cut))
    # Any of so many sets of units could be the slower one.
    chance = math.comb(total, cut) * t_sf(apart / error, total - 2)
    return levels < known[cut] if chance < _TWO_LEVELS and apart >= LEAST else None


def _cut(ordered: np.ndarray) -> tuple[int, float]:
    """Return where to cut values into two groups with the least squares inside them, and these."""
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    low = np.arange(1, len(ordered))
    inside = (squares[:-1] - sums[:-1] ** 2 / low) + (
        squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]) ** 2 / low[::-1]
    )
    best = int(np.argmin(inside))
    return best + 1, max(float(inside[best]), 0.0)


def relative(logarithms: np.ndarray, kinds: np.ndarray, better: str) -> np.ndarray:
    """Return logarithms relative to the night's level, on the scale with the shorter tail of noise
    on the slow side, whether it is normal or lognormal."""
    common, _ = common_mode(logarithms, kinds)
    above = logarithms - common[:, kinds]
    return np.expm1(above) if better == "higher" else above
