"""Finds the changes of all series, in several processes if there are many."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from plumbline.analysis import causes, trend
from plumbline.analysis.trend import NIGHTS
from plumbline.core import pool
from plumbline.history.series import Key, Series

#: Number of series from which further processes are worth their start.
MANY = 200
_CHUNK = 64
#: From so many nodes on, a figure's changes are searched in the median over its nodes, and in the
#: nodes that are slow now: with 0.1 false alarms in 1,000 nights of a series (docs/detection.md),
#: 50 nodes with 60 figures each would have a hundred a year.
FLEET = 50


@dataclass(frozen=True)
class SeriesChange:
    """A change of one series.

    :ivar kind: see :class:`plumbline.analysis.trend.Change`.
    :ivar size: relative change of the value.
    :ivar before: the last session before it, if any.
    :ivar after: the first session with it.
    :ivar until: when a transient was last measured.
    :ivar active: it is active: it lasts, and no later change took it back.
    :ivar confirmed: more than the newest session has it.
    :ivar above_ceiling: the figure was above its ceiling when it was found.
    :ivar waiver: id of the waiver that covers it, or empty.
    :ivar sessions: number of sessions since it began; of a transient, until it ended.
    """

    key: Key
    kind: str
    size: float
    confidence: float
    worse: bool
    start: int
    began: np.datetime64
    detected: np.datetime64
    before: str
    after: str
    until: np.datetime64 | None
    active: bool
    confirmed: bool
    above_ceiling: bool = False
    sessions: int = 0
    waiver: str = ""

    @property
    def word(self) -> str:
        """Its kind on pages: a value above the ceiling is not an improvement."""
        return "above-ceiling" if self.above_ceiling else "waived" if self.waiver else self.kind

    @property
    def doubt_code(self) -> str:
        """Why it is not confirmed, a key of :data:`DOUBTS`; empty if it is."""
        if self.above_ceiling:
            return "above-ceiling"
        if self.confirmed:
            return ""
        if self.sessions > 1:
            return "within-noise"
        return "outliers-before" if self.kind == "suspect" else "single-session"

    @property
    def doubt(self) -> str:
        """Why it is not confirmed, and what to do; empty if it is."""
        return DOUBTS[self.doubt_code].format(sessions=self.sessions) if self.doubt_code else ""


#: Why a change is not confirmed, and what to do.
DOUBTS = {
    "above-ceiling": "Above its ceiling: the measurement is wrong, the machine is not better.",
    "within-noise": "It has lasted for {sessions} sessions, but is within the outliers or the "
    "autocorrelated noise of this figure: measure it again.",
    "outliers-before": "Only the newest session has it, and this figure has had outliers before: "
    "measure it again.",
    "single-session": "Only the newest session has it, and a single session may be an outlier: "
    "measure it again, or wait for the next one.",
}


@dataclass
class PageCause:
    """Changes of one cause: of one check, and began together. One line of a page."""

    changes: list[SeriesChange] = field(default_factory=list)

    @property
    def first(self) -> SeriesChange:
        return self.changes[0]

    @property
    def figures(self) -> int:
        """Number of figures of merit, over all nodes."""
        keys = (change.key for change in self.changes)
        return len(
            {(key.metric, key.size, key.location, key.placement, key.conditions) for key in keys}
        )

    @property
    def nodes(self) -> int:
        """Number of nodes, if the figures are of single nodes."""
        return len({change.key.node for change in self.changes})

    def of_nodes(self, nodes: Collection[str]) -> PageCause:
        """Return its changes of these nodes."""
        return PageCause([change for change in self.changes if change.key.node in nodes])

    @property
    def sizes(self) -> tuple[float, float]:
        """The smallest and the largest change, by magnitude."""
        sizes = sorted((change.size for change in self.changes), key=abs)
        return sizes[0], sizes[-1]

    @property
    def active(self) -> bool:
        """Whether any of its changes is active."""
        return any(change.active for change in self.changes)

    @property
    def weight(self) -> tuple:
        """Sort key: first active changes for the worse, then other changes for the worse."""
        return self.first.worse and self.active, self.first.worse

    def newest(self) -> tuple:
        """Sort key: when it began."""
        return self.first.began, self.detected

    @property
    def detected(self) -> np.datetime64:
        return max(change.detected for change in self.changes)


def judged(series: Series) -> bool:
    """Return whether a series has enough nights to find changes in."""
    return len(np.unique(series.times.astype("datetime64[D]"))) >= NIGHTS


def find(series: Iterable[Series], count: int) -> dict[Key, list[SeriesChange]]:
    """Return the changes of each series that has any, oldest first.

    :arg count: number of series.
    """
    remaining = iter(series)
    chunks = iter(lambda: list(itertools.islice(remaining, _CHUNK)), [])
    found = map(_of_chunk, chunks) if count < MANY else pool.mapped(_of_chunk, chunks)
    return {key: changes for chunk in found for key, changes in chunk.items()}


def _of_chunk(series: list[Series]) -> dict[Key, list[SeriesChange]]:
    found = {}
    for item, judged_changes in zip(series, trend.changes(series), strict=True):
        if judged_changes:
            changes = [_of_series(item, change) for change in judged_changes]
            found[item.key] = sorted(changes, key=lambda change: change.start)
    return found


def _of_series(series: Series, change: trend.Change) -> SeriesChange:
    start, end = change.start, change.end
    return SeriesChange(
        series.key,
        change.kind,
        change.size,
        change.confidence,
        change.worse,
        start,
        series.times[start],
        series.times[change.detected],
        str(series.sessions[start - 1]) if start else "",
        str(series.sessions[start]),
        None if end is None else series.times[end],
        change.active,
        change.confirmed,
        str(series.verdicts[change.detected]) == "above-ceiling",
        (end + 1 if end is not None and change.kind == "transient" else len(series.values)) - start,
    )


def by_cause(changes: list[SeriesChange]) -> list[PageCause]:
    """Group changes of one cause; newest first."""
    groups = causes.grouped(
        changes,
        about=lambda change: (*change.key.case[:4], change.kind, change.worse, change.waiver),
        series=lambda change: change.key,
        began=lambda change: change.began,
    )
    return sorted(map(PageCause, groups), key=PageCause.newest, reverse=True)
