"""Combines the figures of each unit: a loss in all of them is certain before it is in any one.

A unit's scores are its values above what its earlier nights and its peers let expect, over their
standard deviation, one for each figure. Figures that vary together say little more than one of
them: the weights are those of generalized least squares for the same loss in all figures, from the
correlation of all units' scores, clipped and shrunk (OAS: Chen, Wiesel, Eldar and Hero 2010). The
figure that shows the largest loss is omitted for each unit and night. It is judged alone already,
and so no single figure makes a unit slow here: at least two must agree.

Pure: arrays in, arrays out; values as in :mod:`plumbline.analysis.screen.detection`.
"""

from __future__ import annotations

import numpy as np

from plumbline.analysis.screen import detection
from plumbline.analysis.screen.detection import FigureTable

#: Fewest peers whose figures are combined: fewer do not determine weights.
PEERS = 4 * detection.FEWEST
#: Standard deviations at which a score is clipped, so that two outliers are not a loss in all.
_MOST = 4.0
#: Simulated units, from which mean and variance of a combination are known to 2 %.
_DRAWS = 4000


def combine(
    figures: list[FigureTable], known: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one value for each night and unit, its variance factor, and the scores of its figures.

    A value is the mean relative difference from what is expected, negative if it is slow; NaN with
    fewer than two figures. Scores are figures x nights x units.

    :arg known: values that are known to be slow.
    """
    scores, doubts, noises = [], [], []
    for figure in figures:
        fitted = detection.fit(figure, known, known)
        doubt = figure.factors + 1 / (fitted.weight[:-1] + fitted.prior)
        score = (fitted.clipped - fitted.level(slice(-1))) / (fitted.noise * np.sqrt(doubt))
        scores.append(np.where(fitted.count[:, figure.kinds] < PEERS, np.nan, score))
        doubts.append(doubt)
        noises.append(fitted.noise)
    score, doubt = np.clip(scores, -_MOST, _MOST), np.array(doubts)
    correlation = _correlation(np.where(known, np.nan, score).reshape(len(figures), -1))
    weights = np.maximum(np.linalg.solve(correlation, np.ones(len(figures))), 0.0)
    measured = np.isfinite(score)
    combined = _but_worst(np.where(measured, weights[:, None, None] * score, np.nan))
    bias, spread, per_loss = _normal(measured, weights, np.array(noises), correlation)
    square = np.where(measured, weights[:, None, None] ** 2, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        wide = np.sqrt((square * doubt).sum(axis=0) / square.sum(axis=0)) / per_loss
        width = spread * wide
        usual = np.nanmedian(width) if np.isfinite(width).any() else 1.0
        values = (combined - bias) * wide
    return values, np.where(np.isfinite(width), (width / usual) ** 2, 1.0), score


def _but_worst(parts: np.ndarray) -> np.ndarray:
    """Return sums over the first axis without the smallest part; NaN of fewer than two parts."""
    least = np.where(np.isnan(parts), np.inf, parts).min(axis=0)
    several = np.isfinite(parts).sum(axis=0) > 1
    return np.where(several, np.nansum(parts, axis=0) - least, np.nan)


def _correlation(scores: np.ndarray) -> np.ndarray:
    """Return the correlation of figures, x units, shrunk to none by what few units require."""
    measured = np.isfinite(scores).astype(float)
    filled = np.nan_to_num(scores)
    products, squares = filled @ filled.T, filled**2 @ measured.T
    found = products / np.maximum(np.sqrt(squares * squares.T), 1e-12)
    np.fill_diagonal(found, 1.0)
    # Of a pair of figures; all have about as many.
    number = float(np.median(measured @ measured.T))
    size, squared = len(found), float((found**2).sum())
    excess = (number + 1 - 2 / size) * (squared - size)
    share = min(((1 - 2 / size) * squared + size**2) / excess, 1.0) if excess > 0 else 1.0
    return (1 - share) * found + share * np.eye(size)


def _normal(
    measured: np.ndarray, weights: np.ndarray, noises: np.ndarray, correlation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and standard deviation of healthy units' combinations, and how much a combination
    falls for each relative loss in all figures, nights x units.

    They depend on which figures a unit has, and are from simulated normal scores.

    :arg measured: figures x nights x units.
    """
    random = np.random.default_rng(0)
    # A number for each set of figures; a sum of random integers tells sets apart.
    marks = random.integers(2**62, size=len(weights))
    sets = np.tensordot(marks, measured.astype(np.int64), axes=1)
    _, first, where = np.unique(sets, return_index=True, return_inverse=True)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    parts = weights[:, None] * (root @ random.standard_normal((len(weights), _DRAWS)))
    table = []
    for has in measured.reshape(len(weights), -1)[:, first].T:
        if (weights[has] > 0).sum() < 2:
            table.append((np.nan, np.nan, np.nan))
            continue
        sums = _but_worst(parts[has])
        slopes = weights[has] / noises[has]
        table.append((sums.mean(), sums.std(), slopes.sum() - slopes.max()))
    found = np.array(table)[where.reshape(sets.shape)]
    return found[..., 0], found[..., 1], found[..., 2]
