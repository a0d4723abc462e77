"""Changes of one cause, their order, which of them are new, and which nodes explain them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plumbline.analysis.trend import series_changes
from plumbline.analysis.trend.series_changes import SeriesChange, night_of
from plumbline.history.series import Key, Series
from plumbline.reference import waivers
from plumbline.reference.waivers import Subject, Waiver

#: Changes of one cause begin within so many days: not all figures show it on the same night.
TOGETHER = np.timedelta64(3, "D")


@dataclass
class Cause:
    """Changes of one kind and check that began together.

    :ivar changes: the earliest first.
    :ivar marked: any of them is one of those that the caller marked: failing, or new.
    """

    changes: list[SeriesChange]
    marked: bool = False

    @property
    def first(self) -> SeriesChange:
        return self.changes[0]

    @property
    def by_size(self) -> list[SeriesChange]:
        """Its changes, the largest certain one first."""
        return sorted(self.changes, key=certain_size, reverse=True)

    @property
    def title(self) -> str:
        """What changed: the test case, or the series of a file."""
        key = self.first.key
        return replace(key, node="").heading if key.system else self.first.series

    @property
    def nodes(self) -> list[str]:
        """The nodes that explain it; see :func:`nodes_of`."""
        return sorted({node for change in self.changes for node in change.nodes.split(",")} - {""})

    @property
    def measured_nodes(self) -> int:
        """Number of nodes, if the figures are of single nodes."""
        return len({change.key.node for change in self.changes})

    @property
    def figures(self) -> int:
        """Number of figures of merit, over all nodes."""
        return len({replace(change.key, node="") for change in self.changes})

    def figure(self, change: SeriesChange) -> str:
        """Return the figure of a change, with its node if the changes are of several."""
        key = change.key
        name = key.figure if key.system else ""
        return f"{name} on {key.node}" if self.measured_nodes > 1 else name

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
    def state(self) -> str:
        """``unconfirmed``, ``waived``, ``active``, ``until`` a night, or ``over``."""
        if self.first.waiver:
            return "waived"
        if not any(change.confirmed for change in self.changes):
            return "unconfirmed"
        if self.active:
            return "active"
        ends = [change.until for change in self.changes if change.until is not None]
        return f"until {night_of(max(ends))}" if ends else "over"

    @property
    def since(self) -> Any:
        """The first changed night."""
        return night_of(self.first.began)

    @property
    def reported(self) -> Any:
        """The night of the first report."""
        return night_of(min(change.found for change in self.changes))

    @property
    def found(self) -> np.datetime64:
        """When the last of its changes was first reported."""
        return max(change.found for change in self.changes)

    @property
    def weight(self) -> tuple[bool, bool]:
        """Sort key: first active changes for the worse, then other changes for the worse."""
        return self.first.worse and self.active, self.first.worse

    def newest(self) -> tuple[np.datetime64, np.datetime64]:
        """Sort key: when it began."""
        return self.first.began, self.found

    def of_nodes(self, nodes: Collection[str]) -> Cause:
        """Return its changes of these nodes."""
        return Cause([change for change in self.changes if change.key.node in nodes])


def grouped(changes: Iterable[SeriesChange]) -> list[Cause]:
    """Return the causes of changes of the history, the newest first. What a waiver covers has
    causes of its own.

    A series is in a cause once: its second change, though of the next night, has another cause.
    """
    found: dict[Hashable, list[list[SeriesChange]]] = {}
    newest: dict[Hashable, set[Key]] = {}  # The series of each newest group.
    for change in sorted(changes, key=lambda change: change.began):
        waiver = change.waiver and change.waiver.id
        about = (*change.key.case[:4], change.word, change.worse, waiver)
        groups = found.setdefault(about, [])
        apart = groups and _day(change.began) - _day(groups[-1][0].began) > TOGETHER
        if not groups or apart or change.key in newest[about]:
            groups.append([])
            newest[about] = set()
        groups[-1].append(change)
        newest[about].add(change.key)
    causes = [Cause(group) for groups in found.values() for group in groups]
    return sorted(causes, key=Cause.newest, reverse=True)


def of(
    changes: list[SeriesChange], marked: Collection[SeriesChange], series: dict[str, Series]
) -> list[Cause]:
    """Return the causes of changes, the most important first: those with a marked change, those
    that are worse, and then by :func:`certain_size`.

    The ``nodes`` of the changes become those of :func:`nodes_of`.

    :arg marked: some of the changes themselves.
    :arg series: by name, of the history; without them each change has its own cause.
    """
    for change in changes if series else ():
        change.nodes = ",".join(nodes_of(series[change.series], change))
    found = grouped(changes) if series else [Cause([change]) for change in changes]
    marks = {*marked}
    for cause in found:
        cause.marked = any(change in marks for change in cause.changes)
    return sorted(found, key=_weight, reverse=True)


def _day(time: Any) -> Any:
    return time.astype("datetime64[D]")


def _weight(cause: Cause) -> tuple[bool, bool, bool, float]:
    return cause.marked, *cause.weight, certain_size(cause.by_size[0])


def certain_size(change: SeriesChange) -> float:
    """Return the end of a change's 95 % interval that is nearer to no change, as the absolute
    logarithm, so that half and double are alike; 0 if the interval includes no change."""
    if not change.low * change.high > 0:
        return 0.0
    return min(abs(math.log1p(max(end, -0.9999))) for end in (change.low, change.high))


def nodes_of(series: Series, change: SeriesChange) -> list[str]:
    """Return the nodes that explain a change: that of a node's own series, or those that all
    changed sessions used, and no other. A node that was merely used is none of them."""
    if series.key.node:
        return [series.key.node]
    nights = series.nights
    changed = nights >= nights[change.start]
    if change.kind == "transient":
        changed &= nights <= nights[change.end]
    used = [{*names.split(",")} - {""} for names in series.nodes]
    with_it = [names for names, is_changed in zip(used, changed, strict=True) if is_changed]
    without = [names for names, is_changed in zip(used, changed, strict=True) if not is_changed]
    if not with_it or not without:
        return []
    return sorted(set.intersection(*with_it) - set.union(*without))


def losses(changes: Iterable[SeriesChange]) -> Iterator[tuple[SeriesChange, Subject]]:
    """Yield the active changes of a series for the worse, oldest first, each with its figure as
    waivers identify it. Its loss is that of all of them so far, so that a second one is a larger
    loss than the first."""
    level = 1.0
    for change in sorted((c for c in changes if c.active and c.worse), key=lambda c: c.start):
        level *= 1 + change.size
        key = change.key
        yield change, Subject(
            key.system, key.partition, key.environment, key.check, key.placement,
            (key.node,) if key.node else (), key.metric, None if key.size < 0 else key.size,
            key.location, abs(level - 1),
        )  # fmt: skip


def waive(
    changes: Iterable[SeriesChange], known: Sequence[Waiver], day: datetime.date | None = None
) -> None:
    """Set the waivers that cover active changes for the worse on a day, by default today.

    :arg changes: all of each series.
    """
    by_series: dict[Key, list[SeriesChange]] = {}
    for change in changes:
        by_series.setdefault(change.key, []).append(change)
    for own in by_series.values():
        for change, subject in losses(own):
            change.waiver = waivers.covering(known, subject, "regression", day)


def new(
    changes: list[SeriesChange], series: dict[str, Series], since: np.datetime64
) -> list[SeriesChange]:
    """Return the changes that the history up to a time does not report, or not as certainly: they
    were first reported, confirmed, or became active again, since then.

    The night of the first report identifies a change, so a second loss of a series is new.
    """
    names = {change.series for change in changes}
    before = [series[name].before(since) for name in sorted(names)]
    known: dict[Hashable, list[SeriesChange]] = {}
    for change in series_changes.of_history(before).changes:
        known.setdefault((change.series, night_of(change.found)), []).append(change)

    def is_known(change: SeriesChange) -> bool:
        return any(
            earlier.confirmed >= change.confirmed and earlier.active >= change.active
            for earlier in known.get((change.series, night_of(change.found)), ())
        )

    return [change for change in changes if not is_known(change)]
