"""The statistics of before and after. Pure: independent of records; many figures at once.

``before``, ``after`` and ``past`` are matrices of natural logarithms, one row a figure, one column
a session, NaN where the figure was not measured. Differences of logarithms are relative.

The estimate of a figure (:func:`estimate`) is the mean logarithm after, less the mean before, with
a t-test of Student's kind. Five sessions a side alone give a poor estimate of their noise (8
degrees of freedom), so two more sources are used:

* **the past**: up to some sixty sessions before BEFORE. They give the noise and, if they have the
  same level as BEFORE and no strong autocorrelation, the level too;
* **the peers**: the other figures of the same benchmark. The variance of each is shrunk toward
  theirs, as far as theirs agree (an empirical Bayes prior on variances; Smyth 2004, "limma"). Peers
  that move together count for less.

Where the noise is well known from either, one value in five that lies far from its group is set
aside (and reported). Otherwise it stays in, and makes the interval wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special

from plumbline.analysis.distributions import chi2_sf, f_sf, normal_isf, t_isf, t_sf
from plumbline.analysis.stats import MAD_TO_STD, without_warnings

#: One-sided level of a figure's own test: the share of healthy figures that may be regressed.
LEVEL = 0.0007
#: One-sided level of the test of a whole group.
GROUP_LEVEL = 0.00005
#: One-sided level of a figure whose group moved.
MEMBER_LEVEL = 0.05
#: Share of a group's figures that must have moved with it, each by at least SIMILAR of its move.
AGREEING, SIMILAR = 0.9, 1 / 3
#: False discovery rate over all figures of a comparison, both directions.
DISCOVERY = 0.01
#: Probability with which the smallest detectable loss is detected.
POWER = 0.95
#: Confidence of the interval; also the one-sided one with which a loss is excluded.
CONFIDENCE = 0.95
#: Sessions a side below which nothing is judged.
LEAST = 3
#: Fewest sessions of the past that are used.
LEAST_PAST = 10
#: Fewest figures of one benchmark that are peers.
LEAST_PEERS = 12
#: Figures of the smallest group.
LEAST_GROUP = 3
#: Smallest noise of a session's value that is assumed, relative.
FLOOR = 0.002
#: Distance from its group, in standard deviations, at which a value is set aside.
FAR = 5.0
#: Fewest degrees of freedom with which the noise is known well enough for that.
WELL_KNOWN = 20
#: Share of a group that may be set aside.
ASIDE = 0.2

#: Share of the sessions after that must lie on the side of a loss, by half of the minimum effect:
#: one or two of five sessions can move the mean of all.
MOST = 0.75
#: Values are clipped to this distance from their median for a mean, in standard deviations.
MEAN_CLIP = 2.0
#: The same for values of the past.
PAST_CLIP = 3.5
#: Probability of a peer's variance by chance below which it is noisier than the others.
UNLIKE = 0.05
#: Smallest correlation with the night before, in units of chance, that is autocorrelation.
AUTOCORRELATED = 2.0
#: Smallest autocorrelation at which the level of the past is not used.
UNSTABLE = 0.5
#: Probability by chance of the distance of BEFORE from its past below which the levels differ.
APART = 0.0005


@dataclass
class Estimate:
    """Every array has one item a figure; logarithms, NaN where there is too little data.

    :ivar difference: mean after less mean before.
    :ivar error: its standard error. :ivar df: degrees of freedom of the error.
    :ivar noise: standard deviation of one session's value.
    :ivar past: sessions of the past that the level is from.
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
        """Return the two-sided confidence interval of the difference."""
        half = t_isf((1 - confidence) / 2, self.df) * self.error
        return self.difference - half, self.difference + half


@without_warnings()
def estimate(
    before: np.ndarray, after: np.ndarray, past: np.ndarray, peers: np.ndarray
) -> Estimate:
    """Estimate the change of each figure from before to after.

    :arg past: earlier sessions, oldest first; may have no columns.
    :arg peers: a number for each figure, equal for peers.
    """
    past = _clip_past(np.where(_count(past)[:, None] >= LEAST_PAST, past, np.nan))
    enough = (_count(before) >= LEAST) & (_count(after) >= LEAST)
    before, after = (np.where(enough[:, None], side, np.nan) for side in (before, after))

    # The noise as the past and the peers have it, then once more without outliers.
    first = _shrink(*_pool(before, after, past), before, after, peers, _pool(past))
    far_before, far_after = (_far_off(side, *first) for side in (before, after))
    before, after = np.where(far_before, np.nan, before), np.where(far_after, np.nan, after)
    variance, df = _shrink(*_pool(before, after, past), before, after, peers, None)
    variance = np.maximum(variance, FLOOR**2)
    kept = after
    before, after = (_clip_side(side, variance, df) for side in (before, after))

    n_after = _count(after)
    correlation = _autocorrelation(past, peers)
    level = _same_level(before, past, variance, df) & (correlation < UNSTABLE)
    base = np.hstack([np.where(level[:, None], past, np.nan), before])
    n_base = _count(base)
    difference = np.nanmean(after, 1) - np.nanmean(base, 1)
    inflated = variance * (1 + correlation) / (1 - correlation)
    error = np.sqrt(inflated * (1 / n_base + 1 / n_after))

    # After a change of the noise itself, one variance for both sides would mislead (Welch).
    own, other = np.nanvar(after, 1, ddof=1), np.nanvar(base, 1, ddof=1)
    changed = f_sf(own / np.maximum(variance, other), n_after - 1, df) < 0.005
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
        p=2 * t_sf(np.abs(difference) / error, df),
        shifts=kept - np.nanmean(base, 1)[:, None],
        aside=(far_before, far_after),
    )


def _count(values: np.ndarray) -> np.ndarray:
    return np.sum(~np.isnan(values), axis=1)


def _clip_past(values: np.ndarray) -> np.ndarray:
    if not values.shape[1]:
        return values
    median = np.nanmedian(values, 1, keepdims=True)
    reach = PAST_CLIP * MAD_TO_STD * np.nanmedian(np.abs(values - median), 1, keepdims=True)
    return np.clip(values, median - reach, median + reach)


def _pool(*groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance within the groups, and its degrees of freedom."""
    squares = sum(np.nansum((g - np.nanmean(g, 1, keepdims=True)) ** 2, 1) for g in groups)
    df = sum(np.maximum(_count(g) - 1, 0) for g in groups)
    return np.where(df > 0, squares / np.maximum(df, 1), np.nan), df


def _shrink(
    variance: np.ndarray,
    df: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    peers: np.ndarray,
    instead: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Shrink the variances toward those of their peers; return them and their degrees of freedom.

    :arg instead: variances and degrees of freedom of the past alone. Where given, they or the
        peers' common variance are used, and never a figure's own before and after.
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
        # A figure that is clearly noisier than the others uses its own values alone.
        own_rows = np.maximum(own_df[rows], 1)
        alike = chi2_sf(own_rows * mine / common, own_rows) >= UNLIKE
        weights = np.where(alike, weight, 0.0)
        total = own_df[rows] + weights
        result[rows] = (own_df[rows] * mine + weights * common) / np.maximum(total, 1e-9)
        result_df[rows] = total
    return result, result_df


def _prior(variance: np.ndarray, df: np.ndarray) -> tuple[float, float]:
    """Return the variance that peers have in common, and its degrees of freedom: the moments of
    their logarithms (Smyth 2004), robustly. The agreement is reduced by one standard error, since
    a few peers may agree by chance."""
    spread = np.log(variance) - special.digamma(df / 2) + np.log(df / 2)
    observed = (MAD_TO_STD * np.median(np.abs(spread - np.median(spread)))) ** 2
    excess = observed * (1 + np.sqrt(2 / (len(spread) - 1))) - np.mean(special.polygamma(1, df / 2))
    excess = max(excess, 1e-3)
    half = optimize.brentq(lambda d: special.polygamma(1, d) - excess, 1e-6, 1e6)
    return float(np.exp(np.median(spread) + special.digamma(half) - np.log(half))), 2 * half


def _independent(before: np.ndarray, after: np.ndarray) -> float:
    """Return how many independent figures these are worth; common-mode variation correlates
    them."""
    parts = [side - np.nanmean(side, 1, keepdims=True) for side in (before, after)]
    rows = np.nan_to_num(np.hstack(parts))
    size = np.linalg.norm(rows, axis=1)
    rows = rows[size > 0] / size[size > 0, None]
    count = len(rows)
    if count < 2:
        return 1.0
    df = max(rows.shape[1] - 2, 2)
    squared = float((np.linalg.norm(rows.T @ rows) ** 2 - count) / (count * (count - 1)))
    shared = max((squared - 1 / df) / (1 - 1 / df), 0.0)
    return count / (1 + (count - 1) * shared)


def _clip_side(side: np.ndarray, variance: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Clip a side to :data:`MEAN_CLIP` about its median, where the noise is well known."""
    reach = np.where(df >= WELL_KNOWN, MEAN_CLIP * np.sqrt(np.maximum(variance, FLOOR**2)), np.inf)
    median = np.nanmedian(side, 1)
    return np.clip(side, (median - reach)[:, None], (median + reach)[:, None])


def _far_off(side: np.ndarray, variance: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Return where a value is so far off its group that it is set aside, one in five at most."""
    distance = np.abs(side - np.nanmedian(side, 1, keepdims=True))
    reach = FAR * np.sqrt(np.maximum(variance, FLOOR**2))
    far = distance > reach[:, None]
    few = far.sum(1) <= ASIDE * _count(side)
    return far & (few & (df >= WELL_KNOWN))[:, None]


def _autocorrelation(past: np.ndarray, peers: np.ndarray) -> np.ndarray:
    """Return the correlation of a night with the next, as far as it exceeds chance; at most 0.9.
    Peers share theirs."""
    count = _count(past)
    if not (count >= LEAST_PAST).any():
        return np.zeros(len(past))
    rest = past - np.nanmean(past, 1, keepdims=True)
    lagged = np.nansum(rest[:, 1:] * rest[:, :-1], 1) / np.nansum(rest**2, 1)
    # A correlation about the values' own mean is biased by about -1/n.
    lagged = np.where(count >= LEAST_PAST, lagged + 1 / np.maximum(count, 1), np.nan)
    chance = AUTOCORRELATED / np.sqrt(np.maximum(count, 1))
    result = np.where(lagged > chance, lagged, 0.0)
    for group in np.unique(peers):
        rows = (peers == group) & ~np.isnan(lagged)
        if rows.sum() >= LEAST_PEERS:
            shared = np.mean(lagged[rows])
            result[rows] = np.where(shared > 0.1, np.maximum(result[rows], shared), result[rows])
    return np.clip(result, 0, 0.9)


def _same_level(
    before: np.ndarray, past: np.ndarray, variance: np.ndarray, df: np.ndarray
) -> np.ndarray:
    """Return where BEFORE has the level of its past."""
    count = _count(past)
    error = np.sqrt(variance * (1 / np.maximum(count, 1) + 1 / np.maximum(_count(before), 1)))
    shift = np.abs(np.nanmean(before, 1) - np.nanmean(past, 1)) / error if past.size else np.inf
    return (count >= LEAST_PAST) & (shift < t_isf(APART, df))


def _share_beyond(found: Estimate, size: np.ndarray) -> np.ndarray:
    """Return the share of the sessions after that lie on the difference's side, by at least
    ``size``."""
    measured = ~np.isnan(found.shifts)
    shift = np.sign(found.difference)[:, None] * found.shifts
    beyond = measured & (np.where(measured, shift, 0) >= np.abs(size)[:, None])
    return beyond.sum(1) / np.maximum(measured.sum(1), 1)


def corrected(p: np.ndarray) -> np.ndarray:
    """Correct p-values for their number (Benjamini and Hochberg)."""
    found = ~np.isnan(p)
    result = np.full(p.shape, np.nan)
    if found.any():
        known = p[found]
        order = np.argsort(known)[::-1]
        steps = known[order] * len(known) / np.arange(len(known), 0, -1)
        known[order] = np.minimum(np.minimum.accumulate(steps), 1)
        result[found] = known
    return result


def certain(p: np.ndarray, adjusted: np.ndarray) -> np.ndarray:
    """Return where a figure's own test is significant, from its p-value and the corrected one."""
    return (p <= 2 * LEVEL) & (adjusted <= DISCOVERY)


def detectable(found: Estimate, comparisons: int) -> np.ndarray:
    """Return the smallest detectable loss of each figure that moved alone, on logarithms."""
    level = min(LEVEL, DISCOVERY / 2 / max(comparisons, 1))
    factor = t_isf(level, found.df) + t_isf(1 - POWER, found.df)
    return factor * found.error


def sessions_needed(found: Estimate, comparisons: int, loss: np.ndarray) -> np.ndarray:
    """Return how many sessions a side would show a loss (on logarithms), at this noise."""
    level = min(LEVEL, DISCOVERY / 2 / max(comparisons, 1))
    reach = normal_isf(level) + normal_isf(1 - POWER)
    return np.ceil(2 * (reach * found.noise / loss) ** 2) + 2


@dataclass(frozen=True)
class GroupChange:
    """The change of a group of figures as one; logarithms, negative is worse.

    :ivar p: two-sided. :ivar detectable: smallest detectable loss.
    :ivar direction: -1 if the group became worse, 1 better, 0 neither.
    """

    difference: float
    low: float
    high: float
    p: float
    detectable: float
    direction: int

    def relative(self) -> GroupChange:
        """Return it with relative numbers."""
        moved, low, high = (float(np.expm1(one)) for one in (self.difference, self.low, self.high))
        loss = float(-np.expm1(-self.detectable))
        return replace(self, difference=moved, low=low, high=high, detectable=loss)


NO_GROUP = GroupChange(np.nan, np.nan, np.nan, np.nan, np.nan, 0)


def group_change(
    before: np.ndarray,
    after: np.ndarray,
    signs: np.ndarray,
    noise: np.ndarray,
    difference: np.ndarray,
) -> GroupChange:
    """Test whether figures moved as one: a t-test on each session's weighted mean over them.

    Figures of one session share its common-mode variation. A session counts once here, so the
    figures need not be independent.

    :arg signs: 1 where higher is better, -1 where lower is, 0 of figures that take no part.
    """
    part = (signs != 0) & ~np.isnan(difference)
    if part.sum() < LEAST_GROUP:
        return NO_GROUP
    before, after, noise = before[part], after[part], noise[part]
    signs, difference = signs[part], difference[part]
    weight = 1 / np.maximum(noise, np.median(noise)) ** 2
    with without_warnings():
        start = np.nanmean(before, 1, keepdims=True)
        sides = [_weighted(signs[:, None] * (side - start), weight) for side in (before, after)]
    if min(map(len, sides)) < LEAST:
        return NO_GROUP
    # Equal values have no test: give them a noise far below the floor.
    sides = [s if np.ptp(s) > 0 else s + 1e-6 * np.linspace(-1, 1, len(s)) for s in sides]
    # Student's t-test of two sides of one variance.
    df = sum(map(len, sides)) - 2
    variance = sum(float(np.sum((side - side.mean()) ** 2)) for side in sides) / df
    error = math.sqrt(variance * sum(1 / len(side) for side in sides))
    return moved_as_one(float(sides[1].mean() - sides[0].mean()), error, df, signs * difference)


def moved_as_one(moved: float, error: float, df: float, gains: np.ndarray) -> GroupChange:
    """Return the change of a group by its t-test.

    :arg error: standard error of how far it moved, with its degrees of freedom.
    :arg gains: of its figures, on logarithms.
    """
    p = float(2 * t_sf(abs(moved) / error, df))
    half = float(t_isf((1 - CONFIDENCE) / 2, df)) * error
    reach = float(t_isf(GROUP_LEVEL, df) + t_isf(1 - POWER, df)) * error
    agreeing = moved and np.mean(gains / moved >= SIMILAR) >= AGREEING
    direction = int(np.sign(moved)) if p <= 2 * GROUP_LEVEL and agreeing else 0
    return GroupChange(moved, moved - half, moved + half, p, reach, direction)


def _weighted(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the weighted mean of each session that measured anything."""
    total = (~np.isnan(rows)).T @ weight
    return (np.nan_to_num(rows).T @ weight)[total > 0] / total[total > 0]


def verdicts(
    found: Estimate,
    signs: np.ndarray,
    direction: np.ndarray,
    min_effect: float,
    margin: float,
    adjusted: np.ndarray | None = None,
) -> np.ndarray:
    """Return a verdict for each figure.

    * It moved (``regressed``, ``improved``; ``changed`` where neither is better) if three
      conditions hold. The difference is at least ``min_effect``. Most sessions after lie on its
      side by half of that. And it is significant: its p-value is at most twice :data:`LEVEL`, and
      at most :data:`DISCOVERY` once corrected; or its group moved, and it moved the same way at
      :data:`MEMBER_LEVEL`.
    * Else it is ``unchanged`` if a loss of ``margin`` or more lies outside the one-sided interval.
      For ``changed`` the same holds for a gain.
    * Else there is ``too little data``.

    :arg signs: 1 where higher is better, -1 where lower is, 0 where neither is.
    :arg direction: of the figure's group, as :class:`GroupChange` has it.
    :arg min_effect: relative, 0.02 for 2 %; ``margin`` likewise.
    :arg adjusted: corrected p-values; by default of all figures given.
    """
    adjusted = corrected(found.p) if adjusted is None else adjusted
    size = np.where(found.difference < 0, -np.log1p(-min_effect), np.log1p(min_effect))
    gain = signs * found.difference
    member = (found.p <= 2 * MEMBER_LEVEL) & (direction != 0) & (np.sign(gain) == direction)
    significant = certain(found.p, adjusted) | member
    most = _share_beyond(found, size / 2) >= MOST
    moved = (np.abs(found.difference) >= size) & most & significant
    low, high = found.interval(2 * CONFIDENCE - 1)
    no_fall, no_rise = low > np.log1p(-margin), high < np.log1p(margin)
    excluded = np.select([signs > 0, signs < 0], [no_fall, no_rise], no_fall & no_rise)
    return np.select(
        [moved & (signs == 0), moved & (gain < 0), moved, excluded],
        ["changed", "regressed", "improved", "unchanged"],
        "too little data",
    )
