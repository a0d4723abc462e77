"""Compares the figures of a unit, measured now, with what is expected of it: a loss, or none.

Each is a t-test on a prediction error. Its variance is the sum of four parts: the noise of the
values now, the night's common-mode variation (0 if the peers were measured in the same night), the
error of the expected level, and, against the peers, their spread. Degrees of freedom are
Satterthwaite's. The tests of a node, one or two a figure, share one rate of false alarms (Holm).
Differences are of logarithms, so relative; negative is slower.

Pure: arrays in, comparisons out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from plumbline.analysis.distributions import chi2_sf, t_isf, t_sf
from plumbline.analysis.screen import detection, repeats
from plumbline.analysis.stats import MAD_TO_STD

#: Probability that some figure of a healthy node is a no-go: half of the 1 % that is the aim, since
#: noise with heavy tails doubles it (docs/clearing-power.md).
RATE = 0.005
#: Confidence with which a loss is excluded.
CONFIDENCE = 0.95
#: Fewest earlier nights that make a usual level of the node.
NIGHTS = 3
#: P-value below which the node's own noise is larger than its peers', and is used instead.
NOISIER = 0.05
#: Differences between nights are clipped at this many robust standard deviations: heavy tails widen
#: the noise, and a node that fell does so no more than they do.
CLIP = 6.0
#: P-value below which the peers' level of the recent nights has changed: of a hundred windows
#: without a change one is cut short, which only makes the interval wider.
CHANGED = 0.01
#: Of successive differences, which share values, two thirds count.
_SUCCESSIVE = 2 / 3


@dataclass(frozen=True)
class ClearRules:
    """What a ``go`` needs.

    :ivar margin: relative loss that must be excluded.
    :ivar allow_inconclusive: share of the figures that may have too little data.
    """

    margin: float = 0.05
    allow_inconclusive: float = 0.0


@dataclass
class Expected:
    """The comparison of a figure with one expectation; logarithms.

    :ivar level: of the expectation. :ivar count: nights or peers behind it.
    :ivar difference: of the values now. :ivar error: its standard error if the node is healthy.
    :ivar sharp: its standard error for an excluded loss; without the spread of the peers.
    :ivar df: degrees of freedom.
    """

    level: float
    count: int
    difference: float
    error: float
    sharp: float
    df: float

    @property
    def p(self) -> float:
        """One-sided p-value of a loss."""
        return float(t_sf(-self.difference / self.error, self.df))

    @property
    def reach(self) -> float:
        """Distance of the one-sided bounds of the difference from it."""
        return float(t_isf(1 - CONFIDENCE, self.df)) * self.sharp


@dataclass
class NodeFigure:
    """The values of one figure for the judgement of one unit; signed logarithms, more is better.

    :ivar values: nights x units; the unit itself is the first column. :ivar factors: the variance
        of each over that of a single value.
    :ivar recent: nights of which the peers' level is the present one.
    :ivar tonight: row of the night of ``now``, if its peers were measured then; else -1.
    :ivar now: the values that are judged.
    :ivar floor: smallest noise.
    :ivar inside: sum of squares and degrees of freedom of repeats about their mean.
    :ivar family: figures of one family are not independent.
    """

    values: np.ndarray
    factors: np.ndarray
    recent: np.ndarray
    tonight: int
    now: np.ndarray
    floor: float = detection.LEAST_NOISE
    inside: tuple[float, int] = (0.0, 0)
    family: str = ""


@dataclass
class Fleet:
    """What the peers of a figure show.

    :ivar own: the unit's values relative to its peers, and their variance factors.
    :ivar noise: variance of a single value. :ivar spread: variance of the peers' levels.
    :ivar level: their present level, of which ``shift`` is the variance of its error.
    :ivar *_df: degrees of freedom.
    """

    number: int
    own: np.ndarray
    own_factors: np.ndarray
    noise: float
    noise_df: float
    spread: float
    level: float
    shift: float
    shift_df: float


def compare(figures: list[NodeFigure]) -> list[tuple[Expected | None, Expected | None]]:
    """Return the comparisons of each figure: with the unit's own nights, and with its peers."""
    fleets = [fleet_of(figure) for figure in figures]
    common = _common_part(figures, fleets)
    return [_expectations(f, fleet, common) for f, fleet in zip(figures, fleets, strict=True)]


def fleet_of(figure: NodeFigure) -> Fleet | None:
    """Return what the peers show; ``None`` if they are too few, or their level now is unknown."""
    peers = figure.values[:, 1:]
    if not peers.size:
        return None
    kinds = np.zeros(peers.shape[1], int)
    common, count = detection.common_mode(peers, kinds, passes=2)
    level, enough = common[:, 0], count[:, 0] >= detection.FEWEST
    residual = np.where(enough[:, None], peers - level[:, None], np.nan)
    faster = _kind(figure, residual, level, enough)
    if faster is not None:
        rest = figure.values[:, [True, *faster]], figure.factors[:, [True, *faster]]
        return fleet_of(replace(figure, values=rest[0], factors=rest[1]))
    noise, df = _noise(residual, figure.factors[:, 1:], figure.floor)
    spread = detection.spread_of(residual, figure.factors[:, 1:], math.sqrt(noise)) ** 2
    number = int(np.isfinite(residual[figure.recent | (np.arange(len(level)) == figure.tonight)])
                 .any(axis=0).sum())  # fmt: skip
    error = detection.MEDIAN * noise * float(np.median(figure.factors))
    if figure.tonight >= 0 and enough[figure.tonight]:
        # Each peer's own level is uncertain too.
        usual = 1 + 1 / max(int(enough.sum()) - 1, 1)
        shift = error * usual / count[figure.tonight, 0]
        present, shift_df = level[figure.tonight], df
    else:
        recent = int((figure.recent & enough).sum())
        if not recent or enough.sum() < NIGHTS:
            return None
        present, shift, shift_df = _present(level[enough], recent)
        # Of sweeps of a part of the nodes each night, the levels of other peers are in it.
        shift += (error + detection.MEDIAN * spread) / max(number, 1)
    own = np.where(enough, figure.values[:, 0] - level, np.nan)
    return Fleet(
        number, own, figure.factors[:, 0], noise, df, spread, float(present), shift, shift_df
    )


def _present(levels: np.ndarray, recent: int) -> tuple[float, float, float]:
    """Return the peers' present level, and the variance of another night's distance from it with
    its degrees of freedom: the mean of the recent nights, or of those since the last change.

    One night does not show whether it is a change or an outlier: the level is then one of two, and
    taken as halfway, with half of the step as a standard error.

    :arg levels: of all nights, oldest first; the last so many are ``recent``.
    """
    steps, change = np.diff(levels), 0.0
    while recent > 1 and len(steps) >= NIGHTS:
        # Each split of the recent nights, by how many are after it.
        after = np.arange(1, recent)
        before = recent - after
        sums = np.cumsum(levels[-recent:])
        changes = (sums[-1] - sums[before - 1]) / after - sums[before - 1] / before
        others = (np.sum(steps**2) - steps[-after] ** 2) / (len(steps) - 1) / 2
        t = np.abs(changes) / np.sqrt((others + 1e-12) * (1 / after + 1 / before))
        best = int(np.argmax(t))
        if 2 * t_sf(t[best], _SUCCESSIVE * (len(steps) - 1)) > CHANGED:
            break
        recent = int(after[best])
        steps = np.delete(steps, -recent)
        change = float(changes[best]) if recent == 1 else 0.0
    night = float(np.mean(steps**2) / 2) * (1 + 1 / recent)
    present = float(np.mean(levels[-recent:])) - change / 2
    return present, night + (change / 2) ** 2, _SUCCESSIVE * len(steps)


def _kind(
    figure: NodeFigure, residual: np.ndarray, level: np.ndarray, enough: np.ndarray
) -> np.ndarray | None:
    """Return which peers are of the unit's own kind of hardware, if there are two kinds and its
    own nights show which it is."""
    levels = detection.median(residual, axis=0)
    slower = detection.two_groups(levels)
    own = np.where(enough, figure.values[:, 0] - level, np.nan)
    if slower is None or not np.isfinite(own).any():
        return None
    centres = [float(np.nanmedian(levels[kind])) for kind in (slower, ~slower)]
    mine = float(np.nanmedian(own))
    return slower if abs(mine - centres[0]) < abs(mine - centres[1]) else ~slower


def _noise(residual: np.ndarray, factors: np.ndarray, floor: float) -> tuple[float, float]:
    """Return the variance of a single value and its degrees of freedom: from the differences of
    each peer's successive values, or, if each has one, from the spread of all."""
    known = np.isfinite(residual.T)
    of, _ = np.nonzero(known)
    values, factor = residual.T[known], factors.T[known]
    same = of[1:] == of[:-1]
    found = (np.diff(values) / np.sqrt(factor[1:] + factor[:-1]))[same]
    worth = _SUCCESSIVE
    if len(found) < detection.FEWEST:
        found, worth = values / np.sqrt(factor), 1.0
    if not len(found):
        return floor**2, 1.0
    reach = CLIP * max(MAD_TO_STD * float(np.median(np.abs(found))), floor)
    scale = math.sqrt(float(np.mean(np.clip(found, -reach, reach) ** 2)))
    return max(scale, floor) ** 2, max(worth * len(found), 1.0)


def _common_part(figures: list[NodeFigure], fleets: list[Fleet | None]) -> float:
    """Return the share of a value's variance that repeats in one job have in common.

    The variance within repeats is compared with that between nights, over all figures; one
    standard error is added, so that few repeats do not pass for independent ones. Figures of one
    family count once.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    degrees: dict[str, int] = defaultdict(int)
    for figure, fleet in zip(figures, fleets, strict=True):
        if fleet is not None and figure.inside[1]:
            squares, df = figure.inside
            ratios[figure.family].append(squares / df / fleet.noise)
            degrees[figure.family] = max(degrees[figure.family], df)
    if not ratios:
        return 1.0
    total = sum(degrees.values())
    share = sum(degrees[name] * float(np.mean(found)) for name, found in ratios.items()) / total
    return float(np.clip(1 - share * (1 - math.sqrt(2 / total)), 0, 1)) if total > 2 else 1.0


def _expectations(
    figure: NodeFigure, fleet: Fleet | None, common: float
) -> tuple[Expected | None, Expected | None]:
    count = len(figure.now)
    if fleet is None:
        return _alone(figure), None
    now = float(repeats.middle(figure.now[None], math.sqrt(fleet.noise))[0])
    factor = common + (1 - common) / count
    distance = now - fleet.level
    error = fleet.noise * factor
    parts = [(error, fleet.noise_df), (fleet.shift, fleet.shift_df)]
    of_peers = (fleet.spread, detection.MAD_EFFICIENCY * fleet.number)
    peers = _expected(fleet.level, fleet.number, distance, [*parts, of_peers], fleet.spread)
    known = np.isfinite(fleet.own)
    if known.sum() < NIGHTS:
        return None, peers
    weights = 1 / fleet.own_factors[known]
    middle = float(np.median(fleet.own[known]))
    reach = 2.5 * np.sqrt(fleet.noise / weights)
    values = np.clip(fleet.own[known], middle - reach, middle + reach)
    usual = float(np.sum(weights * values) / weights.sum())
    noise, df = fleet.noise, fleet.noise_df
    squares, nights = float(np.sum(weights * (values - usual) ** 2)), int(known.sum())
    if chi2_sf(squares / noise, nights - 1) < NOISIER:
        noise, df = squares / (nights - 1), nights - 1
    parts = [(noise * (factor + 1 / weights.sum()), df), (fleet.shift, fleet.shift_df)]
    return _expected(fleet.level + usual, nights, distance - usual, parts), peers


def _alone(figure: NodeFigure) -> Expected | None:
    """Return the comparison with the unit's own nights without any peers: a prediction interval
    from their variance, which contains the common-mode variation."""
    own = figure.values[:, 0]
    own = own[np.isfinite(own)]
    if len(own) < NIGHTS:
        return None
    middle = float(np.median(own))
    now = float(repeats.middle(figure.now[None], None)[0])
    variance = max(float(np.var(own, ddof=1)), figure.floor**2) * (1 + 1 / len(own))
    return _expected(middle, len(own), now - middle, [(variance, len(own) - 1)])


def _expected(
    level: float,
    count: int,
    difference: float,
    parts: list[tuple[float, float]],
    spread: float = 0.0,
) -> Expected:
    """Return a comparison whose error has these variances, each with its degrees of freedom."""
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / freedom for part, freedom in parts if part > 0)
    sharp = math.sqrt(max(variance - spread, 1e-12))
    return Expected(level, count, difference, math.sqrt(variance), sharp, df)


def holm(p: np.ndarray) -> np.ndarray:
    """Correct p-values for their number (Holm)."""
    order = np.argsort(p)
    scaled = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(scaled, 1.0)
    return found


def verdicts(
    compared: list[tuple[Expected | None, Expected | None]], better: list[str], margin: float
) -> tuple[list[str], list[float]]:
    """Return each figure's verdict and its corrected p-value (NaN if nothing could be compared).

    * ``regressed`` if it is slower than either expectation, significantly and by
      :data:`plumbline.analysis.screen.detection.LEAST` at least;
    * else ``unchanged`` if a loss of ``margin`` is excluded, compared with its own nights, or with
      its peers if these are too few;
    * else ``too little data``.
    """
    tests = [(n, one) for n, pair in enumerate(compared) for one in pair if one is not None]
    adjusted = holm(np.array([one.p for _, one in tests])) if tests else np.zeros(0)
    found, smallest = ["too little data"] * len(compared), [math.nan] * len(compared)
    for n, pair in enumerate(compared):
        decides = pair[0] or pair[1]
        if decides and decides.difference - decides.reach > -as_difference(margin, better[n]):
            found[n] = "unchanged"
    for (n, one), p in zip(tests, adjusted.tolist(), strict=True):
        smallest[n] = min(p, smallest[n]) if smallest[n] == smallest[n] else p
        if p <= RATE and one.difference <= -as_difference(detection.LEAST, better[n]):
            found[n] = "regressed"
    return found, smallest


def as_difference(loss: float, better: str) -> float:
    """Return a relative loss as a positive difference of logarithms."""
    return math.log1p(loss) if better == "lower" else -math.log1p(-loss)
