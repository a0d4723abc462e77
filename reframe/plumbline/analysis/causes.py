"""Findings of one cause, their order, which of them are new, and which nodes explain them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from plumbline.analysis.trend import following
from plumbline.analysis.trend.following import FoundRow
from plumbline.history.series import Key, Series

T = TypeVar("T")

#: Findings of one cause begin within so many days: not all figures show it on the same night.
TOGETHER = np.timedelta64(3, "D")


def grouped(
    findings: Iterable[T],
    about: Callable[[T], Hashable],
    series: Callable[[T], Hashable],
    began: Callable[[T], np.datetime64],
) -> list[list[T]]:
    """Group findings that are about the same and began within three days.

    A series is in a group once: its second finding, though of the next night, has another cause.
    """
    found: dict[Hashable, list[list[T]]] = {}
    newest: dict[Hashable, set[Hashable]] = {}  # The series of each newest group.
    for finding in sorted(findings, key=began):
        case, name = about(finding), series(finding)
        groups = found.setdefault(case, [])
        if not groups or began(finding) - began(groups[-1][0]) > TOGETHER or name in newest[case]:
            groups.append([])
            newest[case] = set()
        groups[-1].append(finding)
        newest[case].add(name)
    return [group for groups in found.values() for group in groups]


@dataclass
class Cause:
    """Findings of one kind and check that began together.

    :ivar rows: the largest certain change first.
    :ivar keys: of their series; empty for a file of nights.
    :ivar marked: any of them is one of those that the caller marked: failing, or new.
    """

    rows: list[FoundRow]
    keys: dict[str, Key]
    marked: bool

    @property
    def first(self) -> FoundRow:
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

    def figure(self, row: FoundRow) -> str:
        """Return the figure of a finding, with its node if the findings are of several."""
        key = self.keys.get(row.series)
        if key is None:
            return ""
        nodes = {self.keys[row.series].node for row in self.rows}
        return f"{key.figure} on {key.node}" if len(nodes) > 1 else key.figure

    @property
    def state(self) -> str:
        """``unconfirmed``, ``active``, ``until`` a night, or ``over``."""
        if not any(row.confirmed for row in self.rows):
            return "unconfirmed"
        if any(row.active for row in self.rows):
            return "active"
        until = max((row.until for row in self.rows if row.until is not None), default=None)
        return "over" if until is None else f"until {until}"


def of(rows: list[FoundRow], marked: list[FoundRow], series: dict[str, Series]) -> list[Cause]:
    """Return the causes of findings, the most important first: those with a marked finding, those
    that are worse, and then by :func:`certain_size`.

    The ``nodes`` of the findings become those of :func:`nodes_of`.

    :arg marked: some of the findings themselves.
    :arg series: by name, of the history; without them each finding has its own cause.
    """
    keys = {name: item.key for name, item in series.items()}
    marks = {*map(id, marked)}
    groups = [[row] for row in rows]
    if keys:

        def about(row: FoundRow) -> Hashable:
            key = keys[row.series]
            return key.system, key.partition, key.environment, key.check, row.kind, row.worse

        for row in rows:
            row.nodes = ",".join(nodes_of(series[row.series], row))
        groups = grouped(rows, about, lambda row: row.series, lambda row: _date(row.start))
    found = [
        Cause(
            sorted(group, key=certain_size, reverse=True),
            keys,
            any(id(row) in marks for row in group),
        )
        for group in groups
    ]
    return sorted(found, key=_weight, reverse=True)


def _date(night: following.Night | None) -> np.datetime64:
    return np.datetime64(str(night), "D")


def _weight(cause: Cause) -> tuple[bool, bool, bool, float]:
    first, active = cause.first, any(row.active for row in cause.rows)
    return cause.marked, first.worse and active, first.worse, certain_size(first)


def certain_size(row: FoundRow) -> float:
    """Return the end of a change's 95 % interval that is nearer to no change, as the absolute
    logarithm, so that half and double are alike; 0 if the interval includes no change."""
    if row.low is None or row.high is None or row.low * row.high <= 0:
        return 0.0
    return min(abs(math.log1p(max(end, -0.9999))) for end in (row.low, row.high))


def nodes_of(series: Series, row: FoundRow) -> list[str]:
    """Return the nodes that explain a finding: that of a node's own series, or those that all
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


def new(rows: list[FoundRow], series: dict[str, Series], since: np.datetime64) -> list[FoundRow]:
    """Return the findings that the history up to a time does not report, or not as certainly: they
    were first reported, confirmed, or became active again, since then.

    The night of the first report identifies a finding, so a second loss of a series is new.
    """
    names = {row.series for row in rows}
    before = [series[name].before(since) for name in sorted(names)]
    known: dict[Hashable, list[FoundRow]] = {}
    for row in following.of_history(before, online=False).rows:
        known.setdefault((row.series, row.night), []).append(row)

    def is_known(row: FoundRow) -> bool:
        return any(
            earlier.confirmed >= row.confirmed and earlier.active >= row.active
            for earlier in known.get((row.series, row.night), ())
        )

    return [row for row in rows if not is_known(row)]
