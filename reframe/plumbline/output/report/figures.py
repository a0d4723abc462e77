"""What a check's page draws: its figures of merit, each over sessions and over nodes."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from plumbline.history.series import Key, Series
from plumbline.output.report import text
from plumbline.output.report.findings import SeriesChange

#: Figures of one name and several places (``at``) from which on they share a chart.
PLACES = 13
#: Lines of their own in a chart of many.
LINES = 5
#: Sessions that the chart over nodes shows.
LATEST = 10
#: Nodes of a job up to which its value is shown at each of them.
SHARED = 8
#: Values that the usual value is the median of.
USUAL = 30
#: Values that a small chart shows.
SPARK = 120
#: What a series has of each value's limits.
BOUNDS = ("lower", "upper", "ceiling")
#: Verdicts as a letter each, as the page's data has them.
LETTERS = {"pass": "p", "fail": "f", "waived": "w", "above-ceiling": "a", "not-asserted": "n"}


class Glance(NamedTuple):
    """What other pages than its check's show of a figure.

    :ivar spark: as :func:`plumbline.output.report.text.spark` makes it; of one node, where it
        is about one.
    """

    name: str
    anchor: str
    verdict: str
    spark: tuple


@dataclass(eq=False)
class Panel:
    """One figure of merit of a check: of one series, or of one on each node.

    :ivar members: a series for each node or place; one where there is one.
    :ivar changes: of all members, oldest first.
    """

    members: list[Series]
    changes: list[SeriesChange] = field(default_factory=list)

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
    def name(self) -> str:
        return text.figure(self.key.metric, self.key.size, self._at)

    @functools.cached_property
    def anchor(self) -> str:
        key = self.key
        names = (key.partition, key.environment, key.placement, key.conditions)
        return text.slug(key.metric, str(key.size), self._at, *names)

    @property
    def _at(self) -> str:
        return "" if self.several and not self.key.node else self.key.at

    def place_of(self, series: Series) -> str:
        """What tells a member from the others."""
        return series.key.node or series.key.at

    @functools.cached_property
    def latest(self) -> float:
        """The latest value; of several members the median over those of the last session."""
        return float(statistics.median(one.values[-1] for one in self.now))

    @functools.cached_property
    def now(self) -> list[Series]:
        """The members that the figure's last session measured."""
        if not self.several:
            return self.members
        last = max(one.times[-1] for one in self.members)
        session = next(one.sessions[-1] for one in self.members if one.times[-1] == last)
        return [one for one in self.members if one.sessions[-1] == session]

    @functools.cached_property
    def verdicts(self) -> Counter:
        """Of the last values, how many of each verdict."""
        return Counter(str(one.verdicts[-1]) for one in self.now)

    @property
    def verdict(self) -> str:
        """The worst of the last verdicts."""
        order = ("above-ceiling", "fail", "waived", "not-asserted", "pass")
        return next(verdict for verdict in order if self.verdicts[verdict])

    @property
    def share(self) -> str:
        """How many of several members have the worst of the last verdicts."""
        if not self.several or self.verdict in ("pass", "not-asserted"):
            return ""
        return f"{self.verdicts[self.verdict]} of {len(self.now)}"

    @functools.cached_property
    def usual(self) -> float:
        """The median of the values before the latest, of one member's or of all nodes'."""
        before = self.history[2][:-1]
        return statistics.median(before[-USUAL:].tolist()) if len(before) else math.nan

    @property
    def difference(self) -> float:
        """Of the latest value to the usual one, relative."""
        usual = self.usual
        return (self.latest - usual) / abs(usual) if usual else math.nan

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Lower and upper bound and ceiling of the latest value; NaN where there is none."""
        one = self.now[0]
        return float(one.lower[-1]), float(one.upper[-1]), float(one.ceiling[-1])

    @property
    def references(self) -> list[str]:
        """Ids of the references that decided, the latest first."""
        found: dict[str, None] = {}
        for one in self.members:
            for name in one.references[::-1]:
                if name and len(found) < 4:
                    found.setdefault(str(name))
        return list(found)

    @functools.cached_property
    def history(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sessions, their times, and each one's value (of several members the median)."""
        if not self.several:
            return self.first.sessions, self.first.times, self.first.values
        return self._over_members[:3]

    @functools.cached_property
    def _over_members(self):
        """Sessions, times, medians, and the index of the session of each member's values."""
        sessions = np.concatenate([one.sessions.astype(str) for one in self.members])
        times = np.concatenate([one.times for one in self.members])
        values = np.concatenate([one.values for one in self.members])
        names, first, which = np.unique(sessions, return_index=True, return_inverse=True)
        order = np.argsort(times[first], kind="stable")
        rank = np.empty(len(order), int)
        rank[order] = np.arange(len(order))
        which = rank[which]
        by_session = np.split(values[np.argsort(which, kind="stable")],
                              np.cumsum(np.bincount(which))[:-1])  # fmt: skip
        medians = np.array([np.median(part) for part in by_session])
        return names[order], times[first][order], medians, by_session, which

    @property
    def spark(self) -> tuple:
        """The small chart of the history: a path, and the latest value's place."""
        return _spark(self.history[2])

    def glance(self, one: Series) -> Glance:
        """What other pages show of it, where they are about one of its members."""
        spark = _spark(one.values) if one.key.node else self.spark
        return Glance(self.name, self.anchor, self.verdict, spark)

    # -- data of the charts -------------------------------------------------------------------

    def data(self, axes: dict[str, int], target: float | None) -> dict:
        """What the page's script draws the charts and fills the tables from.

        :arg axes: what the page's figures share, as JSON: sessions, times, builds, nodes; one is
            added where none there is this figure's. Each with its place.
        :arg target: value of the reference, in the figure's unit.
        """
        sessions, times, values = self.history
        told = self._many() if self.several else self._one()
        axis = {
            "session": [str(session) for session in sessions],
            "time": (times.astype("datetime64[s]").astype(int) // 60).tolist(),
            "build": told.pop("build"),
            "on": told.pop("on"),
        }
        return told | {
            "id": self.anchor,
            "name": self.name,
            "unit": self.first.unit,
            "better": self.first.better,
            "axis": axes.setdefault(json.dumps(axis), len(axes)),
            "value": _short(values),
            "target": target,
            "changes": [_told_change(change) for change in self.changes],
            "nodes": self.over_nodes,
        }

    def _one(self) -> dict:
        one = self.first
        return {
            "verdict": "".join(LETTERS.get(str(verdict), "?") for verdict in one.verdicts),
            **{name: _number_runs(getattr(one, name)) for name in BOUNDS},
            "reference": runs(one.references.tolist()),
            "build": runs(one.builds.tolist()),
            "on": runs(one.nodes.tolist()),
        }

    def _many(self) -> dict:
        """Of several members the range, and those worth a line of their own."""
        _, _, _, by_session, which = self._over_members
        count = len(by_session)
        ends = np.cumsum([len(one.values) for one in self.members])
        changed = {change.key for change in self.changes if change.worse}
        red = [i for i, one in enumerate(self.members) if one.verdicts[-1] in ("fail", "waived")]
        odd = [i for i, one in enumerate(self.members) if one.key in changed and i not in red]
        lines = []
        for index in (red + odd)[:LINES]:
            one, line = self.members[index], [None] * count
            placed = which[ends[index] - len(one.values) : ends[index]]
            for at, value in zip(placed.tolist(), _short(one.values), strict=True):
                line[at] = value
            lines.append({"name": self.place_of(one), "value": line})
        letters = [["p"] * len(part) for part in by_session]
        at = [0] * count
        for one, end in zip(self.members, ends, strict=True):
            for place, verdict in zip(which[end - len(one.values) : end].tolist(), one.verdicts,
                                      strict=True):  # fmt: skip
                letters[place][at[place]] = LETTERS.get(str(verdict), "?")
                at[place] += 1
        worst = "".join(next(c for c in "afwn?p" if c in listed) for listed in letters)
        return {
            "verdict": worst,
            "low": _short(np.array([part.min() for part in by_session])),
            "high": _short(np.array([part.max() for part in by_session])),
            "count": [len(part) for part in by_session],
            "lines": lines,
            "on": [],
            **{name: _number_runs(self._common(name, which, count, ends)) for name in BOUNDS},
            "build": runs(self._build(which, count, ends)),
        }  # fmt: skip

    def _common(self, name: str, which, count: int, ends) -> np.ndarray:
        """A bound of each session, where all members share it; else NaN."""
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        # A bound that one has and another has not is not common: NaN stays NaN.
        with np.errstate(invalid="ignore"):
            for one, end in zip(self.members, ends, strict=True):
                place = which[end - len(one.values) : end]
                np.minimum.at(low, place, getattr(one, name))
                np.maximum.at(high, place, getattr(one, name))
        low[low != high] = np.nan
        return low

    def _build(self, which, count: int, ends) -> list[str]:
        builds = [""] * count
        for one, end in zip(self.members, ends, strict=True):
            for place, build in zip(which[end - len(one.values) : end].tolist(), one.builds,
                                    strict=True):  # fmt: skip
                builds[place] = str(build)
        return builds

    @functools.cached_property
    def over_nodes(self) -> dict | None:
        """The last sessions' values at each node (or place): names, and for each the values with
        their sessions' places in the history. Fewer than two nodes, or nodes that are always used
        together, are none."""
        if not self.several and len({*self.first.nodes[-LATEST:]}) < 2:
            return None
        sessions = self.history[0]
        oldest = max(0, len(sessions) - LATEST)
        last = {str(name): place for place, name in enumerate(sessions[oldest:], oldest)}
        values: dict[str, list[tuple[int, float]]] = {}
        together: set[str] = set()
        for one in self.members:
            for at in range(max(0, len(one.values) - LATEST), len(one.values)):
                place = last.get(str(one.sessions[at]))
                if place is None:
                    continue
                names = [self.place_of(one)] if self.several else _names(str(one.nodes[at]))
                together.add(",".join(names))
                for name in names:
                    values.setdefault(name, []).append((place, float(f"{one.values[at]:.6g}")))
        if len(values) < 2 or (not self.several and len(together) < 2):
            return None
        names = sorted(values)
        return {"name": names, "value": [values[name] for name in names]}


def _spark(values: np.ndarray) -> tuple:
    shown = values[-SPARK:].tolist()
    return text.spark(shown, (len(shown) - 1,))


def _names(nodes: str) -> list[str]:
    names = [name for name in nodes.split(",") if name]
    return names if len(names) <= SHARED else []


def _told_change(change: SeriesChange) -> dict:
    return {
        "kind": change.word,
        "worse": change.worse,
        "time": _minutes(change.began),
        "until": _minutes(change.until) if change.kind == "transient" else None,
        "size": round(change.size, 5),
        "node": change.key.node,
    }


def _minutes(time: np.datetime64 | None) -> int | None:
    return None if time is None else int(time.astype("datetime64[m]").astype(int))


def _short(values: np.ndarray) -> list[float | None]:
    """Values with the digits that count; what is no number is ``None``."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def runs(values: list) -> list[list]:
    """A list as ``[index, value]`` of each value that differs from the one before."""
    return [[at, v] for at, v in enumerate(values) if at == 0 or v != values[at - 1]]


def _number_runs(values: np.ndarray) -> list[list]:
    """:func:`runs` of numbers with the digits that count, few of which differ from the one
    before."""
    bits = values.view(np.int64)
    at = [0, *(np.flatnonzero(bits[1:] != bits[:-1]) + 1).tolist()]
    return [[at[place], value] for place, value in runs(_short(values[at]))]


def grouped(series: list[Series], changes: dict[Key, list[SeriesChange]]) -> list[Panel]:
    """The figures of one check, in the order of their names: the nodes of one figure together,
    and its places (``at``) where they are many."""
    by_node: dict[tuple, list[Series]] = {}
    for one in series:
        key = one.key
        about = (key.partition, key.environment, key.placement, key.conditions, key.metric)
        by_node.setdefault((*about, key.size, bool(key.node), key.at), []).append(one)
    by_place: dict[tuple, list[tuple]] = {}
    for about in by_node:
        by_place.setdefault(about[:-1], []).append(about)
    found = []
    for places in by_place.values():
        if len(places) >= PLACES:
            found.append([one for about in places for one in by_node[about]])
        else:
            found += [by_node[about] for about in places]
    return [
        Panel(members, sorted((c for m in members for c in changes.get(m.key, ())),
                               key=lambda change: change.began))
        for members in found
    ]  # fmt: skip


@dataclass
class Curve:
    """A metric over message sizes: the latest value of each size, and the usual one.

    :ivar figures: one a size, the smallest first.
    """

    figures: list[Panel]

    @property
    def name(self) -> str:
        key = self.figures[0].key
        return " · ".join(filter(None, (key.metric, key.at)))

    @functools.cached_property
    def anchor(self) -> str:
        return f"curve-{self.figures[0].anchor}"

    def rows(self):
        """The lines of its CSV file, as lists of cells."""
        for figure in self.figures:
            cells = (figure.key.size, figure.latest, figure.usual, *figure.bounds)
            yield [text.cell(cell) for cell in cells]

    def data(self) -> dict:
        """What the page's script draws it from."""
        columns = list(zip(*(figure.bounds for figure in self.figures), strict=True))
        return {
            "unit": self.figures[0].first.unit,
            "size": [max(figure.key.size, 0.5) for figure in self.figures],
            "label": [text.size(figure.key.size) for figure in self.figures],
            "latest": _short(np.array([figure.latest for figure in self.figures])),
            "usual": _short(np.array([figure.usual for figure in self.figures])),
            "lower": _short(np.array(columns[0])),
            "upper": _short(np.array(columns[1])),
        }


def curves(figures: list[Panel]) -> list[Curve]:
    """The metrics that are measured over at least four message sizes."""
    found: dict[tuple, list[Panel]] = {}
    for figure in figures:
        key = figure.key
        if key.size >= 0:
            about = (key.partition, key.environment, key.placement, key.conditions, key.metric)
            found.setdefault((*about, key.at), []).append(figure)
    return [
        Curve(sorted(listed, key=lambda figure: figure.key.size))
        for listed in found.values()
        if len(listed) >= 4
    ]


CURVE_COLUMNS = ("size", "latest", "usual", "lower", "upper", "ceiling")
CSV_COLUMNS = ("session", "time", "at", "node", "value", "lower", "upper", "ceiling", "verdict",
               "reference", "build", "nodes")  # fmt: skip


def csv_rows(figure: Panel) -> Iterator[tuple]:
    """The lines of a figure's CSV file, as cells."""
    for one in figure.members:
        count = len(one.values)
        about = [[text.name_cell(name)] * count for name in (one.key.at, one.key.node)]
        numbers = (one.values, one.lower, one.upper, one.ceiling)
        names = (one.verdicts, one.references, one.builds, one.nodes)
        yield from zip(
            map(text.name_cell, one.sessions),
            np.datetime_as_string(one.times, unit="s").tolist(),
            *about,
            *map(text.number_cells, numbers),
            *(map(text.name_cell, column) for column in names),
            strict=True,
        )
