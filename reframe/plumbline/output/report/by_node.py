"""The values of each node, of figures that sweeps measured: one series of the history has those of
all nodes, since each session of a sweep measures one."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np

from plumbline.analysis import screen
from plumbline.history.rows import SessionRow
from plumbline.history.series import Series


@dataclass(frozen=True)
class Nights:
    """What the sessions of a history tell about its values.

    :ivar of: first session of each session's night. :ivar sweeps: the sessions that are of a sweep.
    """

    of: Mapping[str, str]
    sweeps: Set[str]


def nights(sessions: Collection[SessionRow]) -> Nights:
    """Return what sessions tell."""
    swept = {row.session for row in sessions if "sweep" in row.extras}
    return Nights(screen.nights(row.session for row in sessions), swept)


def first_of(sessions: Iterable[str], night_of: Mapping[str, str]) -> dict[str, str]:
    """Return the first of these sessions of each one's night."""
    first: dict[str, str] = {}
    return {name: first.setdefault(night_of.get(name, name), name) for name in sorted({*sessions})}


def of_sweeps(series: Series, sweeps: Set[str]) -> list[Series]:
    """Return a series for each node of one that sweeps measured: each value is of one node, and
    most are of a sweep. Nothing of any other."""
    names = series.nodes.tolist()
    number = {name: place for place, name in enumerate(sorted({*names}))}
    if series.key.node or len(number) < 2 or any(not n or "," in n for n in number):
        return []
    if 2 * sum(map(sweeps.__contains__, series.sessions.tolist())) < len(names):
        return []
    which = np.fromiter(map(number.__getitem__, names), int, len(names))
    parts = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    return [
        dataclasses.replace(series.at(part), key=dataclasses.replace(series.key, node=name))
        for name, part in zip(number, parts, strict=True)
    ]
