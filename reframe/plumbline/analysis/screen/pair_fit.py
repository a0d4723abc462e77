"""Splits values of pairs of nodes into parts of nodes, links between switches, and pairs.

A pair's value is the sum of the night's level, a part of each node, a part of the link between
their switches, and noise. The parts of the nodes are estimated by least squares with Huber's loss,
which a few slow pairs hardly change. The mean residual of all pairs across two switches is
the link's part, and the rest is the pair's own.

Pure: arrays in, arrays out; values as in :mod:`plumbline.analysis.screen.detection`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsmr

from plumbline.analysis.distributions import normal_isf, normal_sf, t_sf
from plumbline.analysis.screen.detection import LEAST, MAD_EFFICIENCY
from plumbline.analysis.screen.repeats import middle
from plumbline.analysis.stats import MAD_TO_STD

#: Fewest partners in a night from which a node can be distinguished.
PARTNERS = 3
_HUBER = 1.345


@dataclass
class PairFit:
    """The pairs of one night, each once, and the fitted parts.

    :ivar first: number of the one node; ``second``: of the other, which is larger.
    :ivar values: of each; ``repeats``: of how many measurements each is.
    :ivar effects: each node's own part, NaN where its partners are too few.
    :ivar partners: of each node.
    :ivar residual: of each pair, corrected for the part that the fit absorbed.
    :ivar noise: standard deviation of a single measurement; ``freedom``: its degrees of freedom.
    :ivar resolved: of each pair, whether both of its nodes have enough partners.
    """

    first: np.ndarray
    second: np.ndarray
    values: np.ndarray
    repeats: np.ndarray
    effects: np.ndarray
    partners: np.ndarray
    residual: np.ndarray
    noise: float
    freedom: float
    resolved: np.ndarray


def fit(first: np.ndarray, second: np.ndarray, values: np.ndarray, nodes: int) -> PairFit:
    """Fit the nodes' parts to one night's pairs; several rows of a pair are repeats."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    keys, where = np.unique(low * nodes + high, return_inverse=True)
    low, high = keys // nodes, keys % nodes
    repeats = np.bincount(where)
    values = np.array([middle(values[where == k]) for k in range(len(keys))]) if (
        len(keys) < len(values)) else values[np.argsort(where)]  # fmt: skip
    return _fit(low, high, values, repeats, nodes)


def without(night: PairFit, shift: np.ndarray, nodes: int) -> PairFit:
    """Fit again with the known part of each pair's link subtracted."""
    return _fit(night.first, night.second, night.values - shift, night.repeats, nodes)


def _fit(
    low: np.ndarray, high: np.ndarray, values: np.ndarray, repeats: np.ndarray, nodes: int
) -> PairFit:
    partners = np.bincount(np.concatenate([low, high]), minlength=nodes)
    fitted = partners >= PARTNERS
    column = np.cumsum(fitted) - 1
    rows = np.arange(len(values))
    ends = [(rows[fitted[end]], column[end[fitted[end]]]) for end in (low, high)]
    design = sparse.csr_array(
        (
            np.ones(sum(len(r) for r, _ in ends)),
            (np.concatenate([r for r, _ in ends]), np.concatenate([c for _, c in ends])),
        ),
        shape=(len(values), max(int(fitted.sum()), 1)),
    )
    centred = values - np.median(values)
    weights = np.sqrt(repeats.astype(float))
    solution, scale = np.zeros(design.shape[1]), 1.0
    for _ in range(5):
        # Slight damping makes the solution unique for a disconnected graph.
        scaled = sparse.diags_array(weights) @ design
        solution = lsmr(scaled, weights * centred, damp=0.05, x0=solution)[0]
        left = centred - design @ solution
        left -= np.median(left)
        scale = max(MAD_TO_STD * float(np.median(np.abs(left) * np.sqrt(repeats))), 1e-3)
        out = np.abs(left) * np.sqrt(repeats) / scale
        weights = np.sqrt(repeats * np.minimum(1.0, _HUBER / np.maximum(out, 1e-12)))
    # The part of each residual that the fit absorbed: its weight among its nodes' pairs.
    weight = weights**2
    shared = np.bincount(np.concatenate([low, high]), np.concatenate([weight, weight]), nodes)
    taken = weight * sum(np.where(fitted[end], 1 / shared[end], 0.0) for end in (low, high))
    kept = np.clip(1 - taken, 0.2, 1.0)
    effects = np.where(fitted, solution[np.maximum(column, 0)], np.nan)
    return PairFit(
        low,
        high,
        values,
        repeats,
        effects - np.nanmedian(effects) if fitted.any() else effects,
        partners,
        left / kept,
        # Residuals are too small by the part that the fit absorbed.
        max(scale / float(np.sqrt(np.median(kept))), 1e-3),
        max(MAD_EFFICIENCY * (len(values) - fitted.sum()), 1.0),
        fitted[low] & fitted[high],
    )


def by_link(night: PairFit, switches: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean residual of the pairs across each two switches (NaN without any), and their
    number.

    :arg switches: number of each node's switch, -1 if it is not known.
    :return: an item for each ``one * count + other``, one < other.
    """
    one, other = switches[night.first], switches[night.second]
    across = (one != other) & (one >= 0) & (other >= 0) & night.resolved
    link = np.minimum(one, other)[across] * count + np.maximum(one, other)[across]
    left = _clipped(night.residual[across], link, night.noise)
    number = np.bincount(link, weights=night.repeats[across], minlength=count * count)
    total = np.bincount(link, weights=left * night.repeats[across], minlength=count * count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(number > 0, total / number, np.nan), number


def _clipped(left: np.ndarray, link: np.ndarray, noise: float) -> np.ndarray:
    """Clip each residual about the median of its link, if that has three pairs or more."""
    middle = np.zeros(len(left))
    for number in np.flatnonzero(np.bincount(link) >= 3):
        middle[link == number] = np.median(left[link == number])
    return np.clip(left, middle - 4 * noise, middle + 4 * noise)


@dataclass
class Slow:
    """Pairs that are slow themselves in one night.

    :ivar p: of each pair of the night, its p-value; ``size``: of values.
    :ivar since: row of the first of the nights that show it.
    """

    p: np.ndarray
    size: np.ndarray
    flagged: np.ndarray
    suspect: np.ndarray
    since: np.ndarray


@dataclass
class PairNights:
    """What is known of a pair from earlier nights.

    :ivar total: sum of its residuals; ``number`` of measurements; ``worst``: the smallest residual
        that a single measurement shows, 0 if there is none.
    :ivar p: of the last night; ``left``: its residual; ``row``: which night it was.
    """

    total: float = 0.0
    number: float = 0.0
    worst: float = 0.0
    p: float = 1.0
    left: float = 0.0
    row: int = 0


def judge(
    night: PairFit,
    earlier: dict[tuple[int, int], PairNights],
    steady: np.ndarray,
    row: int,
    rate: float,
) -> Slow:
    """Judge the pairs of one night, with their residuals on earlier nights.

    A single measurement is no evidence: it counts with that of the night on which the pair was
    measured before, or with a repetition, and the worst one does not count for the mean of many.

    :arg earlier: is updated. :arg steady: whether each pair's value is of several measurements.
    :arg row: of the night.
    """
    left = night.residual
    scale = night.noise * np.sqrt(
        1 + np.where(night.resolved, 1 / np.maximum(night.partners[night.first], 1)
                     + 1 / np.maximum(night.partners[night.second], 1), 0.0))  # fmt: skip
    single = left / scale * np.sqrt(night.repeats)
    fast = (single > 4).sum()
    rare = fast if fast >= 3 and fast > 10 * normal_sf(4) * len(left) else 0
    if rare:
        # As in detection: clip outliers by how rare they are.
        most = normal_isf(min(rare / len(left), 0.02)) * scale
        left = np.clip(left, -most, most)
    alone = t_sf(-left * np.sqrt(night.repeats) / scale, night.freedom)
    # Both nights must be slow: the chance is that of the less certain one, twice.
    p, size, since = alone.copy(), -left, np.full(len(left), row)
    sums, numbers = left * night.repeats, night.repeats.astype(float)
    for k, pair in enumerate(zip(night.first.tolist(), night.second.tolist(), strict=True)):
        before = earlier.setdefault(pair, PairNights(row=row))
        if not steady[k]:
            p[k] = max(alone[k], before.p) ** 2
            size[k] = -(left[k] + before.left) / 2
            since[k] = before.row
            before.worst = min(before.worst, left[k])
        before.total += sums[k]
        before.number += numbers[k]
        before.p, before.left, before.row = alone[k], left[k], row
        single = before.worst < 0
        sums[k], numbers[k] = before.total - before.worst, before.number - single
    measured = np.maximum(numbers, 1)
    long = t_sf(-sums / np.sqrt(measured) / scale, night.freedom)
    many = long / 0.4 < p / 0.6
    p = np.minimum(p / 0.6, long / 0.4)
    size = np.where(many, -sums / measured, size)
    flagged = (p < rate) & (size >= LEAST)
    suspect = (np.minimum(p, alone) < 1e-3) & ~flagged
    return Slow(p, size, flagged, suspect, np.where(many, row, since))
