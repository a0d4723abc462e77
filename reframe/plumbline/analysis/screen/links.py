"""What is slow between nodes: from values of pairs to a node's, a link's and a pair's own part.

A pair's value is the night's level, a part of each node, a part of the link
between the switches of the two, and noise. Each night's nodes are told apart by least squares with
Huber's loss, which a few slow pairs do not sway; what they leave over, added up over all pairs
across two switches, is the link's; what that leaves is the pair's own.

Pure: arrays in, arrays out; values as in :mod:`plumbline.analysis.screen.peers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats
from scipy.sparse.linalg import lsmr

from plumbline.analysis.screen import peers
from plumbline.analysis.stats import MAD_TO_STD

#: Fewest partners of a node in a night that tell it from them.
PARTNERS = 3
_HUBER = 1.345


@dataclass
class PairFit:
    """The pairs measured in one night, each once, and what they say.

    :ivar first: number of the one node; ``second``: of the other, which is larger.
    :ivar values: of each; ``repeats``: of how many measurements each is.
    :ivar effects: each node's own part, NaN where its partners are too few.
    :ivar partners: of each node.
    :ivar residual: what is left over of each pair, corrected for what the fit took of it.
    :ivar noise: standard deviation of a single measurement; ``freedom``: its degrees of freedom.
    :ivar told: of each pair, whether both of its nodes are told from their partners.
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
    told: np.ndarray


def fit(first: np.ndarray, second: np.ndarray, values: np.ndarray, nodes: int) -> PairFit:
    """Tells the nodes of one night's pairs apart; several rows of a pair are repeats."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    keys, where = np.unique(low * nodes + high, return_inverse=True)
    low, high = keys // nodes, keys % nodes
    repeats = np.bincount(where)
    values = np.array([peers.middle(values[where == k]) for k in range(len(keys))]) if (
        len(keys) < len(values)) else values[np.argsort(where)]  # fmt: skip
    return _fit(low, high, values, repeats, nodes)


def without(night: PairFit, shift: np.ndarray, nodes: int) -> PairFit:
    """The same with what is known of each pair's link taken off its value."""
    return _fit(night.first, night.second, night.values - shift, night.repeats, nodes)


def _fit(low, high, values, repeats, nodes: int) -> PairFit:
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
        # A little pull to nothing settles what a graph of two halves leaves open.
        scaled = sparse.diags_array(weights) @ design
        solution = lsmr(scaled, weights * centred, damp=0.05, x0=solution)[0]
        left = centred - design @ solution
        left -= np.median(left)
        scale = max(MAD_TO_STD * float(np.median(np.abs(left) * np.sqrt(repeats))), 1e-3)
        out = np.abs(left) * np.sqrt(repeats) / scale
        weights = np.sqrt(repeats * np.minimum(1.0, _HUBER / np.maximum(out, 1e-12)))
    # What the fit took of each: its weight among all of its nodes' pairs.
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
        # Of those left over, each is as much too small as the fit has taken.
        max(scale / float(np.sqrt(np.median(kept))), 1e-3),
        max(0.37 * (len(values) - fitted.sum()), 1.0),
        fitted[low] & fitted[high],
    )


def by_link(night: PairFit, switches: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of what is left over of the pairs across each two switches, and their number;
    NaN where there is none.

    :arg switches: number of each node's switch, -1 where it is not known.
    :return: an item for each ``one * count + other``, one < other.
    """
    one, other = switches[night.first], switches[night.second]
    across = (one != other) & (one >= 0) & (other >= 0) & night.told
    link = np.minimum(one, other)[across] * count + np.maximum(one, other)[across]
    left = _drawn_in(night.residual[across], link, night.noise)
    number = np.bincount(link, weights=night.repeats[across], minlength=count * count)
    total = np.bincount(link, weights=left * night.repeats[across], minlength=count * count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(number > 0, total / number, np.nan), number


def _drawn_in(left: np.ndarray, link: np.ndarray, noise: float) -> np.ndarray:
    """What is left over of pairs, where one far from the others across its link counts for little;
    of fewer than three nobody knows which is."""
    middle = np.zeros(len(left))
    for one in np.flatnonzero(np.bincount(link) >= 3):
        middle[link == one] = np.median(left[link == one])
    return np.clip(left, middle - 4 * noise, middle + 4 * noise)


@dataclass
class Slow:
    """Pairs that are slow for themselves in one night.

    :ivar p: of each pair of the night, its p-value; ``size``: of values.
    """

    p: np.ndarray
    size: np.ndarray
    named: np.ndarray
    suspect: np.ndarray


def judge(
    night: PairFit,
    earlier: dict[tuple[int, int], tuple[float, float]],
    rate: float,
    least: float,
) -> Slow:
    """Judges the pairs of one night by themselves: with what was left over of each on earlier
    nights, where it was measured.

    :arg earlier: pair -> sum of what was left over, and number of measurements; is brought up to
        date.
    """
    left = night.residual
    scale = night.noise * np.sqrt(
        1 + np.where(night.told, 1 / np.maximum(night.partners[night.first], 1)
                     + 1 / np.maximum(night.partners[night.second], 1), 0.0))  # fmt: skip
    single = left / scale * np.sqrt(night.repeats)
    fast = (single > 4).sum()
    rare = fast if fast >= 3 and fast > 10 * stats.norm.sf(4) * len(left) else 0
    if rare:
        # As in peers: no single measurement counts for more than such are rare.
        most = stats.norm.isf(min(rare / len(left), 0.02)) * scale
        left = np.clip(left, -most, most)
    sums, numbers = left * night.repeats, night.repeats.astype(float)
    for k, pair in enumerate(zip(night.first.tolist(), night.second.tolist(), strict=True)):
        before = earlier.get(pair, (0.0, 0.0))
        earlier[pair] = sums[k] + before[0], numbers[k] + before[1]
        sums[k], numbers[k] = earlier[pair]
    alone = stats.t.sf(-left * np.sqrt(night.repeats) / scale, night.freedom)
    long = stats.t.sf(-sums / np.sqrt(numbers) / scale, night.freedom)
    p = np.minimum(alone / 0.6, long / 0.4)
    size = np.where(alone / 0.6 <= long / 0.4, -left, -sums / numbers)
    named = (p < rate) & (size >= least)
    return Slow(p, size, named, (p < 1e-3) & ~named)
