"""The usual value of a figure: the level of its own history before a session."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from plumbline.analysis import stats
from plumbline.analysis.trend.series_changes import SeriesChange

#: The usual value is the median of at most so many values: a month of nights.
USUAL = 30
#: A value stands out from at least ``KNOWN`` others if it is worse than their median by more than
#: so many robust standard deviations. With normal noise, 0.5 % of healthy values do with ten
#: others, 0.03 % with 30; at three deviations it would be 2.5 % and 0.75 %, several of a session.
SIGMAS, KNOWN = 5, 10
#: A smaller relative difference never stands out: `plumbline trend` reports none below 0.8 %.
LEAST = 0.01


def usual_values(values: np.ndarray, changes: Iterable[SeriesChange]) -> np.ndarray:
    """Return the values whose median is the usual one: those of one level, before the newest value,
    or before the first loss that lasts, so that a loss does not become usual.

    :arg values: oldest first. :arg changes: what was found in them.
    """
    lasting = [change for change in changes if change.kind not in ("transient", "suspect")]
    losses = [change.start for change in lasting if is_lost(change)]
    end = min([*losses, len(values) - 1])
    begin = max((change.start for change in lasting if change.start < end), default=0)
    return values[max(begin, end - USUAL, 0) : end]


def is_lost(change: SeriesChange) -> bool:
    """Return whether a change is a confirmed loss that lasts."""
    return change.worse and change.active and change.confirmed


def loss_of(value: float, usual: np.ndarray, better: str) -> float:
    """Return how much worse a value is than the median of the usual ones, as a logarithm; negative
    if it is better, 0 if that is unknown.

    :arg better: ``higher``, ``lower`` or ``neither``, of which none is worse.
    """
    median = float(np.median(usual)) if len(usual) else 0.0
    if better == "neither" or value <= 0 or median <= 0:
        return 0.0
    return math.log(median / value) * (1 if better == "higher" else -1)


def stands_out(value: float, usual: np.ndarray, better: str) -> bool:
    """Return whether a value is worse than the usual ones by more than they scatter."""
    logs = np.log(usual[usual > 0])
    if len(logs) < KNOWN:
        return False
    scatter = stats.MAD_TO_STD * float(np.median(np.abs(logs - np.median(logs))))
    return loss_of(value, usual, better) > max(SIGMAS * scatter, LEAST)
