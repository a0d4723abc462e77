"""Two groups of sessions, judged: the arithmetic of before and after.

Pure: knows nothing of records. Works on many figures at once. ``before``, ``after`` and ``past``
are matrices of natural logarithms, one row a figure, one column a session, NaN where the figure
was not measured. What is added on the scale of logarithms is a factor on the figure itself, so
differences are relative.

The estimate of a figure (:func:`estimate`) is the mean logarithm after, less the mean before, with
a t-test of Student's kind. Five sessions a side alone know their own noise badly (8 degrees of
freedom), so what else is known of the noise is used:

* **the past**: up to some sixty sessions before BEFORE. They tell the noise, and, where they
  hold the same level as BEFORE and do not wander, the level too;
* **the peers**: the other figures of the same benchmark. The noise of each is drawn toward
  theirs as far as theirs agree (an empirical Bayes prior on variances; Smyth 2004, "limma"). Peers
  that move together say less than they seem to, and count for as much less.

Where the noise is well known from either, one value in five that lies far from its group is set
aside (and told). Where it is not, it stays in, and makes the interval wide.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from plumbline.analysis.stats import MAD_TO_STD

#: Share of healthy figures that may be called regressed: one-sided level of a figure's own test.
LEVEL = 0.0007
#: One-sided level at which a whole group of figures is said to have moved together.
GROUP_LEVEL = 0.00005
#: One-sided level of a figure of a group that moved together.
MEMBER_LEVEL = 0.05
#: Share of a group's figures that must have moved with it, each by that share of its move.
AGREEING, SIMILAR = 0.9, 1 / 3
#: False discovery rate over all figures of a comparison, both directions.
DISCOVERY = 0.01
#: Probability with which the smallest loss that could have been seen would have been.
POWER = 0.95
#: Confidence of the interval, and, one-sided, of "no loss as large as".
CONFIDENCE = 0.95
#: Sessions a side below which nothing is judged.
LEAST = 3
#: Sessions of the past from which on they count.
LEAST_PAST = 10
#: Figures of one benchmark from which on they are peers.
LEAST_PEERS = 12
#: Figures from which on a group is one.
LEAST_GROUP = 3
#: Noise that no figure is believed to fall below: of a session's value, relative.
FLOOR = 0.002
#: Distance from its group, in standard deviations, at which a value is set aside.
FAR = 5.0
#: Degrees of freedom from which on the noise is known well enough for that.
WELL_KNOWN = 20
#: Share of a group that may be set aside.
ASIDE = 0.2

#: Share of the sessions after that must lie on the side of a loss, by half of what counts: a mean
#: of five can be carried by one or two of them.
MOST = 0.75
#: Distance, in standard deviations, to which a value's pull on its mean is limited.
TAMED = 2.0
#: The same to which a value of the past is drawn in.
CLIP = 3.5
#: Chance with which a peer would be so much noisier than the others by accident.
UNLIKE = 0.05
#: Correlation with the night before, in units of chance, from which on it is taken for wander.
WANDERING = 2.0
#: Correlation from which on the past's level says nothing of today's.
STRAYING = 0.5
#: Chance with which BEFORE would lie so far from its past, above or below, by accident.
APART = 0.0005


@dataclass
class Estimate:
    """Every array has one item a figure; logarithms, NaN where there is too little.

    :ivar difference: mean after less mean before.
    :ivar error: its standard error; ``df`` that error's degrees of freedom.
    :ivar noise: standard deviation of one session's value.
    :ivar past: sessions of the past that the level rests on.
    :ivar p: two-sided.
    :ivar shifts: matrix like ``after``: each session's value less the mean before; NaN where it
        was set aside.
    :ivar aside: matrices like ``before`` and ``after``, true where a value was set aside.
    """

    difference: np.ndarray
    error: np.ndarray
    df: np.ndarray
    noise: np.ndarray
    past: np.ndarray
    p: np.ndarray
    shifts: np.ndarray
    aside: tuple[np.ndarray, np.ndarray]

    def interval(self, confidence: float = CONFIDENCE) -> tuple[np.ndarray, np.ndarray]:
        """The two-sided confidence interval of the difference."""
        half = stats.t.ppf((1 + confidence) / 2, self.df) * self.error
        return self.difference - half, self.difference + half


def estimate(
    before: np.ndarray, after: np.ndarray, past: np.ndarray, peers: np.ndarray
) -> Estimate:
    """What each figure did from before to after.

    :arg past: earlier sessions, oldest first; may have no columns.
    :arg peers: a number for each figure, equal for peers.
    """
    with warnings.catch_warnings():
        # Means of rows without any value: they end as NaN, which says so.
        warnings.simplefilter("ignore", RuntimeWarning)
        return _estimate(before, after, past, peers)


def _estimate(before, after, past, peers) -> Estimate:
    past = np.where(_count(past)[:, None] >= LEAST_PAST, past, np.nan)
    past = _clipped(past)
    enough = (_count(before) >= LEAST) & (_count(after) >= LEAST)
    before, after = (np.where(enough[:, None], side, np.nan) for side in (before, after))

    # The noise as the past and the peers know it, then once more without what is far off.
    first = _shrunk(*_pooled(before, after, past), before, after, peers, _pooled(past))
    aside = tuple(_far(side, *first) for side in (before, after))
    before, after = (
        np.where(far, np.nan, side) for far, side in zip(aside, (before, after), strict=True)
    )
    variance, df = _shrunk(*_pooled(before, after, past), before, after, peers, None)
    variance = np.maximum(variance, FLOOR**2)
    kept = after
    before, after = (_tamed(side, variance, df) for side in (before, after))

    n_after = _count(after)
    wander = _wander(past, peers)
    level = _same_level(before, past, variance, df) & (wander < STRAYING)
    base = np.hstack([np.where(level[:, None], past, np.nan), before])
    n_base = _count(base)
    difference = np.nanmean(after, 1) - np.nanmean(base, 1)
    inflated = variance * (1 + wander) / (1 - wander)
    error = np.sqrt(inflated * (1 / n_base + 1 / n_after))

    # After a change of the noise itself, one variance for both sides would mislead.
    own, other = np.nanvar(after, 1, ddof=1), np.nanvar(base, 1, ddof=1)
    changed = stats.f.sf(own / np.maximum(variance, other), n_after - 1, df) < 0.005
    parts = own / n_after, np.maximum(other, FLOOR**2) / n_base
    welch = sum(parts) ** 2 / (parts[0] ** 2 / (n_after - 1) + parts[1] ** 2 / (n_base - 1))
    error = np.where(changed, np.maximum(error, np.sqrt(sum(parts))), error)
    df = np.where(changed, np.minimum(welch, df), df)

    return Estimate(
        difference=difference,
        error=error,
        df=df,
        noise=np.sqrt(variance),
        past=np.where(level, _count(past), 0),
        p=2 * stats.t.sf(np.abs(difference) / error, df),
        shifts=kept - np.nanmean(base, 1)[:, None],
        aside=aside,
    )


def _count(values: np.ndarray) -> np.ndarray:
    return np.sum(~np.isnan(values), axis=1)


def _clipped(values: np.ndarray) -> np.ndarray:
    """A past without the weight of its outliers."""
    if not values.shape[1]:
        return values
    middle = np.nanmedian(values, 1, keepdims=True)
    reach = CLIP * MAD_TO_STD * np.nanmedian(np.abs(values - middle), 1, keepdims=True)
    return np.clip(values, middle - reach, middle + reach)


def _pooled(*groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variance within the groups, and its degrees of freedom."""
    squares = sum(np.nansum((g - np.nanmean(g, 1, keepdims=True)) ** 2, 1) for g in groups)
    df = sum(np.maximum(_count(g) - 1, 0) for g in groups)
    return np.where(df > 0, squares / np.maximum(df, 1), np.nan), df


def _shrunk(variance, df, before, after, peers, instead):
    """The variances drawn toward those of their peers, with the degrees of freedom that they then
    have.

    :arg instead: variances and degrees of freedom of the past alone: where given, they or the
        peers' common variance are taken, never a figure's own before and after.
    """
    own, own_df = (variance, df.astype(float)) if instead is None else instead
    result, result_df = own.copy(), own_df.astype(float).copy()
    for group in np.unique(peers):
        rows = np.flatnonzero((peers == group) & (df > 0))
        if len(rows) < LEAST_PEERS:
            continue
        common, weight = _prior(np.maximum(variance[rows], FLOOR**2), df[rows])
        weight = min(weight, np.median(df[rows]) * (_independent(before[rows], after[rows]) - 1))
        mine = np.where(np.isnan(own[rows]), 0.0, own[rows])
        # One that is plainly noisier is none of them: only its own values speak for it.
        own_rows = np.maximum(own_df[rows], 1)
        alike = stats.chi2.sf(own_rows * mine / common, own_rows) >= UNLIKE
        weight = np.where(alike, weight, 0.0)
        total = own_df[rows] + weight
        result[rows] = (own_df[rows] * mine + weight * common) / np.maximum(total, 1e-9)
        result_df[rows] = total
    return result, result_df


def _prior(variance: np.ndarray, df: np.ndarray) -> tuple[float, float]:
    """The variance that peers have in common, and the degrees of freedom that it is worth: the
    moments of their logarithms (Smyth 2004), robustly, with one standard error less of agreement
    than seen, since a few peers may agree by chance."""
    spread = np.log(variance) - special.digamma(df / 2) + np.log(df / 2)
    seen = stats.median_abs_deviation(spread, scale="normal") ** 2
    excess = seen * (1 + np.sqrt(2 / (len(spread) - 1))) - np.mean(special.polygamma(1, df / 2))
    excess = max(excess, 1e-3)
    half = optimize.brentq(lambda d: special.polygamma(1, d) - excess, 1e-6, 1e6)
    return float(np.exp(np.median(spread) + special.digamma(half) - np.log(half))), 2 * half


def _independent(before: np.ndarray, after: np.ndarray) -> float:
    """How many independent figures these are worth: sessions with a weather move them together."""
    parts = [side - np.nanmean(side, 1, keepdims=True) for side in (before, after)]
    rows = np.nan_to_num(np.hstack(parts))
    size = np.linalg.norm(rows, axis=1)
    rows = rows[size > 0] / size[size > 0, None]
    count = len(rows)
    if count < 2:
        return 1.0
    df = max(rows.shape[1] - 2, 2)
    squared = (np.linalg.norm(rows.T @ rows) ** 2 - count) / (count * (count - 1))
    shared = max((squared - 1 / df) / (1 - 1 / df), 0.0)
    return count / (1 + (count - 1) * shared)


def _tamed(side: np.ndarray, variance: np.ndarray, df: np.ndarray) -> np.ndarray:
    """A side in which no value lies beyond :data:`TAMED` of its middle, where the noise is well
    known: a mean of five that one of them cannot carry away."""
    reach = np.where(df >= WELL_KNOWN, TAMED * np.sqrt(np.maximum(variance, FLOOR**2)), np.inf)
    middle = np.nanmedian(side, 1)
    return np.clip(side, (middle - reach)[:, None], (middle + reach)[:, None])


def _far(side: np.ndarray, variance: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Where a value is so far off its group that it is set aside, one in five at most."""
    distance = np.abs(side - np.nanmedian(side, 1, keepdims=True))
    reach = FAR * np.sqrt(np.maximum(variance, FLOOR**2))
    far = distance > reach[:, None]
    few = far.sum(1) <= ASIDE * _count(side)
    return far & (few & (df >= WELL_KNOWN))[:, None]


def _wander(past: np.ndarray, peers: np.ndarray) -> np.ndarray:
    """Correlation of a night with the next, as far as it is more than chance; at most 0.9. Peers
    share theirs."""
    count = _count(past)
    if not (count >= LEAST_PAST).any():
        return np.zeros(len(past))
    rest = past - np.nanmean(past, 1, keepdims=True)
    lagged = np.nansum(rest[:, 1:] * rest[:, :-1], 1) / np.nansum(rest**2, 1)
    # A correlation about the values' own mean comes out too small by about that much.
    lagged = np.where(count >= LEAST_PAST, lagged + 1 / np.maximum(count, 1), np.nan)
    chance = WANDERING / np.sqrt(np.maximum(count, 1))
    result = np.where(lagged > chance, lagged, 0.0)
    for group in np.unique(peers):
        rows = (peers == group) & ~np.isnan(lagged)
        if rows.sum() >= LEAST_PEERS:
            shared = np.mean(lagged[rows])
            result[rows] = np.where(shared > 0.1, np.maximum(result[rows], shared), result[rows])
    return np.clip(result, 0, 0.9)


def _same_level(before, past, variance, df) -> np.ndarray:
    """Where BEFORE lies where its past did."""
    count = _count(past)
    error = np.sqrt(variance * (1 / np.maximum(count, 1) + 1 / np.maximum(_count(before), 1)))
    apart = np.abs(np.nanmean(before, 1) - np.nanmean(past, 1)) / error if past.size else np.inf
    return (count >= LEAST_PAST) & (apart < stats.t.ppf(1 - APART, df))


def _share_beyond(found: Estimate, size: np.ndarray) -> np.ndarray:
    """The share of the sessions after that lie on the difference's side, by at least ``size``."""
    there = ~np.isnan(found.shifts)
    way = np.sign(found.difference)[:, None] * found.shifts
    beyond = there & (np.where(there, way, 0) >= np.abs(size)[:, None])
    return beyond.sum(1) / np.maximum(there.sum(1), 1)


def corrected(p: np.ndarray) -> np.ndarray:
    """The p-values corrected for their number (Benjamini and Hochberg)."""
    found = ~np.isnan(p)
    result = np.full(p.shape, np.nan)
    if found.any():
        result[found] = stats.false_discovery_control(p[found])
    return result


def certain(p, adjusted):
    """Where a figure's own test says that it moved, from its p-value and the corrected one."""
    return (p <= 2 * LEVEL) & (adjusted <= DISCOVERY)


def detectable(found: Estimate, comparisons: int) -> np.ndarray:
    """The smallest loss, on logarithms, that a figure that moved alone would have shown."""
    level = min(LEVEL, DISCOVERY / 2 / max(comparisons, 1))
    return (stats.t.isf(level, found.df) + stats.t.ppf(POWER, found.df)) * found.error


def sessions_needed(found: Estimate, comparisons: int, loss: np.ndarray) -> np.ndarray:
    """How many sessions a side would show a loss (on logarithms), at this noise."""
    level = min(LEVEL, DISCOVERY / 2 / max(comparisons, 1))
    reach = stats.norm.isf(level) + stats.norm.ppf(POWER)
    return np.ceil(2 * (reach * found.noise / loss) ** 2) + 2


@dataclass(frozen=True)
class Together:
    """What a group of figures did as one; logarithms, worse being negative."""

    difference: float
    low: float
    high: float
    #: Two-sided.
    p: float
    #: The smallest loss that would have been seen.
    detectable: float
    #: Whether the group moved together, and which way: -1 worse, 0 not, 1 better.
    moved: int


NOT_TOLD = Together(np.nan, np.nan, np.nan, np.nan, np.nan, 0)


def together(
    before: np.ndarray, after: np.ndarray, signs: np.ndarray, noise: np.ndarray, difference
) -> Together:
    """Whether figures moved as one: a t-test on each session's weighted mean over them.

    Figures of one session share its weather; a session counts once here, so that this needs no
    independence of the figures.

    :arg signs: 1 where higher is better, -1 where lower is, 0 of figures that take no part.
    """
    part = (signs != 0) & ~np.isnan(difference)
    if part.sum() < LEAST_GROUP:
        return NOT_TOLD
    before, after, noise = before[part], after[part], noise[part]
    signs, difference = signs[part], difference[part]
    weight = 1 / np.maximum(noise, np.median(noise)) ** 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        start = np.nanmean(before, 1, keepdims=True)
        sides = [_weighted(signs[:, None] * (side - start), weight) for side in (before, after)]
    if min(map(len, sides)) < LEAST:
        return NOT_TOLD
    sides = [_quieted(side) for side in sides]
    test = stats.ttest_ind(sides[1], sides[0])
    low, high = test.confidence_interval(CONFIDENCE)
    moved = np.mean(sides[1]) - np.mean(sides[0])
    agreeing = np.mean(signs * difference / moved >= SIMILAR) >= AGREEING
    certain = test.pvalue <= 2 * GROUP_LEVEL and agreeing
    error = (high - low) / 2 / stats.t.isf((1 - CONFIDENCE) / 2, test.df)
    reach = stats.t.isf(GROUP_LEVEL, test.df) + stats.t.ppf(POWER, test.df)
    return Together(
        difference=float(moved),
        low=float(low),
        high=float(high),
        p=float(test.pvalue),
        detectable=float(reach * error),
        moved=int(np.sign(moved)) if certain else 0,
    )


def _weighted(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Each session's weighted mean, of the sessions that measured anything."""
    there = ~np.isnan(rows)
    total = there.T @ weight
    return (np.nan_to_num(rows).T @ weight)[total > 0] / total[total > 0]


def _quieted(values: np.ndarray) -> np.ndarray:
    """Values that are equal to the last bit have no test: a noise far below the floor."""
    if np.ptp(values) > 0:
        return values
    return values + 1e-6 * np.linspace(-1, 1, len(values))


def verdicts(
    found: Estimate,
    signs: np.ndarray,
    moved: np.ndarray,
    within: float,
    loss: float,
    adjusted: np.ndarray | None = None,
) -> np.ndarray:
    """A verdict for each figure.

    * It moved (``regressed``, ``improved``; ``changed`` where neither is better) if the difference
      is at least ``within``, most sessions after lie on its side by half of that, and the test
      says so: its p-value is at most twice :data:`LEVEL`, and at most :data:`DISCOVERY` once
      corrected; or its group moved together, and it moved its way at :data:`MEMBER_LEVEL`.
    * Else it is ``unchanged`` if a loss of ``loss`` or more (for ``changed``: or as large a gain)
      lies outside the one-sided interval.
    * Else there is ``too little data``.

    :arg signs: 1 where higher is better, -1 where lower is, 0 where neither is.
    :arg moved: which way the figure's group moved together, as :class:`Together` has it.
    :arg within: relative, 0.02 for 2 %; ``loss`` too.
    :arg adjusted: corrected p-values; by default of all figures given.
    """
    adjusted = corrected(found.p) if adjusted is None else adjusted
    size = np.where(found.difference < 0, -np.log1p(-within), np.log1p(within))
    sized = np.abs(found.difference) >= size
    alone = certain(found.p, adjusted)
    gain = signs * found.difference
    member = (found.p <= 2 * MEMBER_LEVEL) & (moved != 0) & (np.sign(gain) == moved)
    most = _share_beyond(found, size / 2) >= MOST
    shown = sized & most & (alone | member)
    low, high = found.interval(2 * CONFIDENCE - 1)
    no_fall, no_rise = low > np.log1p(-loss), high < np.log1p(loss)
    excluded = np.select([signs > 0, signs < 0], [no_fall, no_rise], no_fall & no_rise)
    return np.select(
        [shown & (signs == 0), shown & (gain < 0), shown, excluded],
        ["changed", "regressed", "improved", "unchanged"],
        "too little data",
    )
