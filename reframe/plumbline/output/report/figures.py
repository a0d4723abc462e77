"""The figures of merit of a check's page, over sessions and over nodes."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from plumbline.analysis.trend import series_changes
from plumbline.analysis.trend.series_changes import SeriesChange
from plumbline.history.series import Key, Series
from plumbline.output.report import by_node, text
from plumbline.output.report.by_node import Nights
from plumbline.output.report.status import WINDOW
from plumbline.output.report.usual_values import usual_values

#: Figures of one name share a chart if they have at least so many places (``location``).
PLACES = 13
#: Number of sessions in the chart over nodes.
LATEST = 10
#: The value of a job with at most so many nodes is shown at each of them.
SHARED = 8
#: The CSV file of a figure of many nodes has so many values of each.
KEPT = 30


class Glance(NamedTuple):
    """What other pages show of a figure.

    :ivar spark: see :func:`plumbline.output.report.text.spark`; of the node that they are about.
    """

    name: str
    anchor: str
    verdict: str
    spark: tuple


@dataclass(eq=False)
class Panel:
    """One figure of merit of a check, with one or several series.

    :ivar members: a series for each node or place.
    :ivar changes: of all members, oldest first.
    :ivar night_of: first session of each session's night.
    :ivar swept: whether sweeps measured it, a node in each session: its history is by night.
    """

    members: list[Series]
    changes: list[SeriesChange] = field(default_factory=list)
    night_of: Mapping[str, str] = field(default_factory=dict)
    swept: bool = False

    @property
    def first(self) -> Series:
        return self.members[0]

    @property
    def key(self) -> Key:
        return self.first.key

    @property
    def several(self) -> bool:
        return len(self.members) > 1

    @property
    def kept(self) -> int:
        """How many values of each member its CSV file has, 0 for all."""
        return KEPT if self.key.node and len(self.members) >= series_changes.FLEET else 0

    @functools.cached_property
    def name(self) -> str:
        return text.figure(self.key.metric, self.key.size, self._location)

    @functools.cached_property
    def anchor(self) -> str:
        key = self.key
        names = [key.partition, key.environment, key.placement, key.conditions]
        if key.node and not self.swept:
            # A check may run both with and without --distribute.
            names.append("nodes")
        return text.slug(key.metric, str(key.size), self._location, *names)

    @property
    def _location(self) -> str:
        return "" if self.several and not self.key.node else self.key.location

    def place_of(self, series: Series) -> str:
        """Return the node or place of a member."""
        return series.key.node or series.key.location

    @property
    def keys(self) -> list[Key]:
        """The keys of its series in the history, where a sweep's is of no node."""
        if self.swept:
            return [over_nodes(self.key)]
        return [member.key for member in self.members]

    @functools.cached_property
    def of_nodes(self) -> list[Series]:
        """A series for each node, measured by itself or in pairs; else none."""
        if self.key.node:
            return self.members
        if self.several and all(m.key.location.count(":") == 1 for m in self.members):
            return by_node.of_pairs(self.members, self.night_of)
        return []

    @functools.cached_property
    def peers(self) -> by_node.Peers:
        """The values of each node, by night."""
        return by_node.Peers(self.of_nodes, self.night_of)

    @functools.cached_property
    def _nights(self) -> dict[str, str]:
        """Of a sweep, the first session of each session's night that measured the figure."""
        if not self.swept:
            return {}
        return by_node.first_of(self.of_members("sessions").tolist(), self.night_of)

    def night(self, session: str) -> str:
        """Return the first session of a session's night, whatever that measured."""
        return self.night_of.get(session, session)

    def first_of(self, session: str) -> str:
        """Return the session that a session is shown as: of a sweep, the first of its night."""
        return self._nights.get(session, session)

    @functools.cached_property
    def latest(self) -> float:
        """The latest value, or the median over the members that were measured lately."""
        return float(statistics.median(member.values[-1] for member in self.now))

    @functools.cached_property
    def now(self) -> list[Series]:
        """The members that were measured lately: a later session of some hides none of the
        others."""
        last = max(member.times[-1] for member in self.members)
        return [member for member in self.members if member.times[-1] >= last - WINDOW]

    @functools.cached_property
    def verdicts(self) -> Counter:
        """Number of latest values, by verdict."""
        return Counter(str(member.verdicts[-1]) for member in self.now)

    @functools.cached_property
    def verdict(self) -> str:
        """The worst of the latest verdicts."""
        return next(verdict for verdict in by_node.WORST_FIRST if self.verdicts[verdict])

    @functools.cached_property
    def share(self) -> str:
        """How many of several members have the worst verdict."""
        if not self.several or self.verdict in ("pass", "not-asserted"):
            return ""
        return f"{self.verdicts[self.verdict]} of {len(self.now)}"

    @functools.cached_property
    def usual(self) -> float:
        """The level before the latest value, and before a loss that lasts; the median of those of
        several members, as the latest value is."""
        before = [usual_values(m.values, self.changes_of(m)) for m in self.now]
        levels = [statistics.median(values.tolist()) for values in before if len(values)]
        return statistics.median(levels) if levels else math.nan

    def changes_of(self, member: Series) -> list[SeriesChange]:
        """Return the changes of a member, or else those of the median over the nodes, oldest
        first."""
        if member.key in self._by_key or not member.key.node:
            return self._by_key.get(member.key, [])
        return [
            dataclasses.replace(change, start=int(np.searchsorted(member.sessions, change.after)))
            for change in self._by_key.get(over_nodes(member.key), ())
        ]

    @functools.cached_property
    def _by_key(self) -> dict[Key, list[SeriesChange]]:
        found: dict[Key, list[SeriesChange]] = {}
        for change in self.changes:
            found.setdefault(change.key, []).append(change)
        return found

    @functools.cached_property
    def losses(self) -> list[SeriesChange]:
        """The active changes for the worse, the largest first."""
        active = [change for change in self.changes if change.active and change.worse]
        return sorted(active, key=lambda change: abs(change.size), reverse=True)

    @functools.cached_property
    def worst(self) -> tuple[str, float] | None:
        """Name and latest value of the worst of several members that the last session measured."""
        if len(self.now) < 2:
            return None
        values = np.array([member.values[-1] for member in self.now])
        place = int(np.argmax(badness_of(values, self.latest, self.first.better)))
        return self.place_of(self.now[place]), float(values[place])

    @functools.cached_property
    def difference(self) -> float:
        """Relative difference of the latest value from the usual one."""
        usual = self.usual
        return (self.latest - usual) / abs(usual) if usual else math.nan

    @functools.cached_property
    def bounds(self) -> tuple[float, float, float]:
        """Lower bound, upper bound and ceiling of the latest value; NaN if there is none."""
        member = self.now[0]
        return float(member.lower[-1]), float(member.upper[-1]), float(member.ceiling[-1])

    @functools.cached_property
    def references(self) -> list[str]:
        """Ids of the latest references, the newest first."""
        found: dict[str, None] = {}
        for member in self.members:
            found |= dict.fromkeys(filter(None, member.references[::-1].tolist()))
            if len(found) >= 4:
                break
        return [*found][:4]

    @property
    def all_references(self) -> list[str]:
        """Ids of all references that its values had, sorted."""
        return sorted(set[str]().union(*(m.references.tolist() for m in self.members)) - {""})

    @functools.cached_property
    def history(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sessions, their times and their values, or medians of several members; of a sweep, the
        first session of each night."""
        if not self.several:
            return self.first.sessions, self.first.times, self.first.values
        return self.over_members[:3]

    @property
    def by_session(self) -> tuple[np.ndarray, np.ndarray]:
        """Every session that measured it, and its value."""
        if self.swept:
            return self.of_members("sessions"), self.of_members("values")
        return self.history[0], self.history[2]

    @functools.cached_property
    def over_members(self) -> tuple:
        """Sessions, times, medians, values by session, and the session's index of each value."""
        sessions = [self.first_of(one) for one in self.of_members("sessions").tolist()]
        times, values = self.of_members("times"), self.of_members("values")
        place = {name: number for number, name in enumerate(dict.fromkeys(sessions))}
        which = np.fromiter(map(place.__getitem__, sessions), int, len(sessions))
        first = np.unique(which, return_index=True)[1]
        order = np.argsort(times[first], kind="stable")
        rank = np.empty(len(order), int)
        rank[order] = np.arange(len(order))
        which = rank[which]
        by_session = np.split(values[np.argsort(which, kind="stable")],
                              np.cumsum(np.bincount(which))[:-1])  # fmt: skip
        medians = np.array([np.median(part) for part in by_session])
        names = np.array([*place], object)
        return names[order], times[first][order], medians, by_session, which

    @functools.cached_property
    def builds(self) -> dict[str, str]:
        """Session -> its build."""
        names = (self.of_members(name).tolist() for name in ("sessions", "builds"))
        return dict(zip(*names, strict=True))

    @property
    def spark(self) -> tuple:
        """Small chart of the history, with a mark at the latest value."""
        return text.spark(self.history[2])

    def glance(self, member: Series | None) -> Glance:
        """Return what other pages show about one of its members, or about the median of all."""
        spark = text.spark(member.values) if member and member.key.node else self.spark
        return Glance(self.name, self.anchor, self.verdict, spark)

    def of_members(self, name: str) -> np.ndarray:
        """Return an array of all members, one after the other."""
        return np.concatenate([getattr(member, name) for member in self.members])

    @functools.cached_property
    def over_nodes(self) -> dict | None:
        """Names of nodes (or places), and for each the indices of the last sessions and their
        values; ``None`` for fewer than two nodes, or nodes that are always used together."""
        if not self.several and len({*self.first.nodes[-LATEST:]}) < 2:
            return None
        sessions = self.history[0]
        oldest = max(0, len(sessions) - LATEST)
        last = {str(name): place for place, name in enumerate(sessions[oldest:], oldest)}
        values: dict[str, list[tuple[int, float]]] = {}
        together: set[str] = set()
        for member in self.members:
            latest = (member.sessions[-LATEST:], member.values[-LATEST:], member.nodes[-LATEST:])
            for session, value, nodes in zip(*latest, strict=True):
                place = last.get(self.first_of(str(session)))
                if place is None:
                    continue
                names = [self.place_of(member)] if self.several else _names(str(nodes))
                together.add(",".join(names))
                for name in names:
                    values.setdefault(name, []).append((place, float(f"{value:.6g}")))
        if len(values) < 2 or (not self.several and len(together) < 2):
            return None
        names = sorted(values)
        return {"name": names, "value": [values[name] for name in names]}


def badness_of(values: np.ndarray, median: np.ndarray | float, better: str) -> np.ndarray:
    """Return numbers of which the largest is that of the worst value: without a better side, of the
    one farthest from the median."""
    return {"higher": -values, "lower": values}.get(better, np.abs(values - median))


def _names(nodes: str) -> list[str]:
    names = [name for name in nodes.split(",") if name]
    return names if len(names) <= SHARED else []


def over_nodes(key: Key) -> Key:
    """Return the key of the median over the nodes of a figure."""
    return dataclasses.replace(key, node="") if key.node else key


def grouped(
    series: list[Series], changes: dict[Key, list[SeriesChange]], nights: Nights | None = None
) -> list[Panel]:
    """Return the figures of one check, sorted by name. All nodes of a figure are one panel, or else
    all its places (``location``) if they are many.

    :arg nights: of the history's sessions; without them, nothing is known to be of a sweep.
    """
    nights = nights or Nights({}, set())
    by_about: dict[tuple, list[Series]] = {}
    for member in series:
        key = member.key
        about = (key.partition, key.environment, key.placement, key.conditions, key.metric)
        swept = by_node.of_sweeps(member, nights.sweeps)
        kind = "swept" if swept else "node" if key.node else ""
        by_about.setdefault((*about, key.size, kind, key.location), []).extend(swept or [member])
    by_place: dict[tuple, list[tuple]] = {}
    for about in by_about:
        by_place.setdefault(about[:-1], []).append(about)
    alone = {member.key for member in series}
    panels = []
    for (*_, kind), places in by_place.items():
        found = [by_about[about] for about in places]
        # Nodes are the members of their panels, so that their places have panels of their own.
        if len(places) >= PLACES and not kind:
            found = [[member for members in found for member in members]]
        for members in found:
            panel = Panel(members, [], nights.of, kind == "swept")
            keys = {*panel.keys}
            if not panel.swept:
                keys |= {over_nodes(panel.key)} - alone
            mine = [change for key in sorted(keys) for change in changes.get(key, ())]
            panel.changes = sorted(mine, key=lambda change: change.began)
            panels.append(panel)
    return panels


CSV_COLUMNS = ("session", "time", "location", "node", "value", "lower", "upper", "ceiling",
               "verdict", "reference", "build", "nodes")  # fmt: skip


def csv_rows(figure: Panel) -> Iterator[tuple]:
    """Yield the rows of a figure's CSV file: of many nodes, those of the last nights."""
    last = slice(-figure.kept, None)
    for member in figure.members:
        count = len(member.values[last])
        about = [[text.name_cell(name)] * count for name in (member.key.location, member.key.node)]
        numbers = (member.values, member.lower, member.upper, member.ceiling)
        names = (member.verdicts, member.references, member.builds, member.nodes)
        yield from zip(
            map(text.name_cell, member.sessions[last]),
            np.datetime_as_string(member.times[last], unit="s").tolist(),
            *about,
            *(text.number_cells(column[last]) for column in numbers),
            *(map(text.name_cell, column[last]) for column in names),
            strict=True,
        )
