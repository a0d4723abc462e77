"""Changes of one cause, their order, which of them are new, and which nodes explain them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from plumbline.analysis.trend import listing
from plumbline.analysis.trend.listing import ChangeRow
from plumbline.history.series import Key, Series
from plumbline.reference import waivers
from plumbline.reference.waivers import Subject, Waiver

T = TypeVar("T")

#: Changes of one cause begin within so many days: not all figures show it on the same night.
TOGETHER = np.timedelta64(3, "D")


def grouped(
    changes: Iterable[T],
    about: Callable[[T], Hashable],
    series: Callable[[T], Hashable],
    began: Callable[[T], np.datetime64],
) -> list[list[T]]:
    """Group changes that are about the same and began within three days.

    A series is in a group once: its second change, though of the next night, has another cause.
    """
    found: dict[Hashable, list[list[T]]] = {}
    newest: dict[Hashable, set[Hashable]] = {}  # The series of each newest group.
    for change in sorted(changes, key=began):
        case, name = about(change), series(change)
        groups = found.setdefault(case, [])
        if not groups or began(change) - began(groups[-1][0]) > TOGETHER or name in newest[case]:
            groups.append([])
            newest[case] = set()
        groups[-1].append(change)
        newest[case].add(name)
    return [group for groups in found.values() for group in groups]


@dataclass
class Cause:
    """Changes of one kind and check that began together.

    :ivar rows: the largest certain change first.
    :ivar keys: of their series; empty for a file of nights.
    :ivar marked: any of them is one of those that the caller marked: failing, or new.
    :ivar waivers: of the rows that waivers cover, by the id() of the row.
    """

    rows: list[ChangeRow]
    keys: dict[str, Key]
    marked: bool
    waivers: dict[int, Waiver]

    @property
    def first(self) -> ChangeRow:
        return self.rows[0]

    @property
    def title(self) -> str:
        """What changed: the test case, or the series of a file."""
        key = self.keys.get(self.first.series)
        return replace(key, node="").heading if key else self.first.series

    @property
    def nodes(self) -> list[str]:
        """The nodes that explain it; see :func:`nodes_of`."""
        return sorted({node for row in self.rows for node in row.nodes.split(",") if node})

    def figure(self, row: ChangeRow) -> str:
        """Return the figure of a change, with its node if the changes are of several."""
        key = self.keys.get(row.series)
        if key is None:
            return ""
        nodes = {self.keys[row.series].node for row in self.rows}
        return f"{key.figure} on {key.node}" if len(nodes) > 1 else key.figure

    @property
    def state(self) -> str:
        """``unconfirmed``, ``waived``, ``active``, ``until`` a night, or ``over``."""
        active = [row for row in self.rows if row.active]
        if active and all(id(row) in self.waivers for row in active):
            return "waived"
        if not any(row.confirmed for row in self.rows):
            return "unconfirmed"
        if active:
            return "active"
        until = max((row.until for row in self.rows if row.until is not None), default=None)
        return "over" if until is None else f"until {until}"


def of(
    rows: list[ChangeRow],
    marked: list[ChangeRow],
    series: dict[str, Series],
    waived: dict[int, Waiver] | None = None,
) -> list[Cause]:
    """Return the causes of changes, the most important first: those with a marked change, those
    that are worse, and then by :func:`certain_size`.

    The ``nodes`` of the changes become those of :func:`nodes_of`.

    :arg marked: some of the changes themselves.
    :arg series: by name, of the history; without them each change has its own cause.
    :arg waived: see :func:`waived_rows`.
    """
    keys = {name: item.key for name, item in series.items()}
    marks = {*map(id, marked)}
    groups = [[row] for row in rows]
    if keys:

        def about(row: ChangeRow) -> Hashable:
            key = keys[row.series]
            return key.system, key.partition, key.environment, key.check, row.word, row.worse

        for row in rows:
            row.nodes = ",".join(nodes_of(series[row.series], row))
        groups = grouped(rows, about, lambda row: row.series, lambda row: _date(row.start))
    found = [
        Cause(
            sorted(group, key=certain_size, reverse=True),
            keys,
            any(id(row) in marks for row in group),
            {id(row): waived[id(row)] for row in group if id(row) in waived} if waived else {},
        )
        for group in groups
    ]
    return sorted(found, key=_weight, reverse=True)


def _date(night: listing.Night | None) -> np.datetime64:
    return np.datetime64(str(night), "D")


def _weight(cause: Cause) -> tuple[bool, bool, bool, float]:
    first, active = cause.first, any(row.active for row in cause.rows)
    return cause.marked, first.worse and active, first.worse, certain_size(first)


def certain_size(row: ChangeRow) -> float:
    """Return the end of a change's 95 % interval that is nearer to no change, as the absolute
    logarithm, so that half and double are alike; 0 if the interval includes no change."""
    if row.low is None or row.high is None or row.low * row.high <= 0:
        return 0.0
    return min(abs(math.log1p(max(end, -0.9999))) for end in (row.low, row.high))


def nodes_of(series: Series, row: ChangeRow) -> list[str]:
    """Return the nodes that explain a change: that of a node's own series, or those that all
    changed sessions used, and no other. A node that was merely used is none of them."""
    if series.key.node:
        return [series.key.node]
    days = series.times.astype("datetime64[D]")
    changed = days >= _date(row.start)
    if row.kind == "transient":
        changed &= days <= _date(row.until)
    used = [{*names.split(",")} - {""} for names in series.nodes]
    with_it = [names for names, is_changed in zip(used, changed, strict=True) if is_changed]
    without = [names for names, is_changed in zip(used, changed, strict=True) if not is_changed]
    if not with_it or not without:
        return []
    return sorted(set.intersection(*with_it) - set.union(*without))


class PossibleLoss(Protocol):
    """A change of a series, as far as its loss is concerned."""

    @property
    def start(self) -> Any: ...
    @property
    def size(self) -> float: ...
    @property
    def worse(self) -> bool: ...
    @property
    def active(self) -> bool: ...


C = TypeVar("C", bound=PossibleLoss)


def losses(key: Key, changes: Iterable[C]) -> Iterator[tuple[C, Subject]]:
    """Yield the active changes of a series for the worse, oldest first, each with its figure as
    waivers identify it. Its loss is that of all of them so far, so that a second one is a larger
    loss than the first."""
    level = 1.0
    for change in sorted((c for c in changes if c.active and c.worse), key=lambda c: c.start):
        level *= 1 + change.size
        yield change, Subject(
            key.system, key.partition, key.environment, key.check, key.placement,
            (key.node,) if key.node else (), key.metric, None if key.size < 0 else key.size,
            key.location, abs(level - 1),
        )  # fmt: skip


def waived(
    key: Key, changes: Iterable[C], known: Sequence[Waiver], day: datetime.date | None = None
) -> Iterator[tuple[C, Waiver]]:
    """Yield the active changes of a series for the worse that a waiver covers on a day, by default
    today, each with that waiver."""
    for change, subject in losses(key, changes):
        waiver = waivers.covering(known, subject, "regression", day)
        if waiver:
            yield change, waiver


def waived_rows(
    rows: Iterable[ChangeRow], series: dict[str, Series], known: Sequence[Waiver]
) -> dict[int, Waiver]:
    """Return the waivers of the changes that are covered today, by the id() of the change.

    :arg rows: all changes of each series. :arg series: by name.
    """
    by_series: dict[str, list[ChangeRow]] = {}
    for row in rows:
        by_series.setdefault(row.series, []).append(row)
    return {
        id(row): waiver
        for name, own in by_series.items()
        for row, waiver in waived(series[name].key, own, known)
    }


def new(rows: list[ChangeRow], series: dict[str, Series], since: np.datetime64) -> list[ChangeRow]:
    """Return the changes that the history up to a time does not report, or not as certainly: they
    were first reported, confirmed, or became active again, since then.

    The night of the first report identifies a change, so a second loss of a series is new.
    """
    names = {row.series for row in rows}
    before = [series[name].before(since) for name in sorted(names)]
    known: dict[Hashable, list[ChangeRow]] = {}
    for row in listing.of_history(before, online=False).rows:
        known.setdefault((row.series, row.night), []).append(row)

    def is_known(row: ChangeRow) -> bool:
        return any(
            earlier.confirmed >= row.confirmed and earlier.active >= row.active
            for earlier in known.get((row.series, row.night), ())
        )

    return [row for row in rows if not is_known(row)]
