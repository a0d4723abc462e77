"""Screening of one group of peers: nodes and GPUs, and their switches.

:mod:`plumbline.analysis.screen.pairs` has pairs of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from plumbline.analysis.screen import detection, repeats
from plumbline.analysis.screen.combination import combine
from plumbline.analysis.screen.detection import FigureTable
from plumbline.analysis.screen.flag import Flag
from plumbline.analysis.screen.input import Group
from plumbline.analysis.screen.repeats import Cells
from plumbline.analysis.screen.tracking import Tracker, track
from plumbline.analysis.stats import without_warnings
from plumbline.core.text import natural, pluralize

Name = tuple[str, ...]
#: Note of a unit that no figure alone shows.
_TOGETHER = "not certain from any figure alone"
#: Nights that show two kinds of hardware.
_FIRST = 5
_PLURAL = {"node": "nodes", "gpu": "GPUs", "link": "links", "switch": "switches"}


def _with_later(
    slower: np.ndarray, levels: np.ndarray, values: np.ndarray, kinds: np.ndarray
) -> np.ndarray:
    """Return which units are of the slower of two kinds of hardware, also of those that the first
    nights do not have: their own first nights are nearer to the one or to the other kind.

    :arg slower: which are, of those with a level on the first nights.
    """
    known = np.isfinite(levels)
    faster = np.where(known & ~slower, values, np.nan)
    common, count = detection.common_mode(faster, kinds)
    above = values - np.where(count > 0, common, np.nan)[:, kinds]
    early = np.cumsum(np.isfinite(above), axis=0) <= _FIRST
    own = detection.median(np.where(early, above, np.nan), axis=0)
    apart = np.median(levels[slower]) - np.median(levels[known & ~slower])
    return np.where(known, slower, own < apart / 2)


def _levels(values: np.ndarray, kinds: np.ndarray, nights: slice) -> np.ndarray:
    """Return the units' levels on some of the nights that have values."""
    some = values[np.flatnonzero(np.isfinite(values).any(axis=1))[nights]]
    common, _ = detection.common_mode(some, kinds)
    return detection.median(some - common[:, kinds], axis=0)


class PeerGroup:
    """The screening of one group; ``run`` of its kinds screens all nights.

    :ivar flagged: the slow units. :ivar suspects: night, kind and name, and p-value of others.
    :ivar messages: what could not be judged, and why, each with its row.
    :ivar few: numbers of peers that are too few on the last night.
    :ivar judged: number of values that were compared.
    :ivar sure: whether the last night was judged. :ivar fell: whether too many of it fell at once.
    :ivar lacking: whether units of it should be judged and could not be.
    """

    def __init__(self, group: Group, nights: list[str], switches: dict[str, str], rate: float):
        self.group, self.nights, self.switches, self.rate = group, nights, switches, rate
        self.row = {night: row for row, night in enumerate(nights)}
        self.sign = -1.0 if group.better == "lower" else 1.0
        self.floor = detection.floor_of([v for rows in group.pairs.values() for v in rows])
        self.flagged: list[Flag] = []
        self.suspects: list[tuple[int, tuple[str, Name], float]] = []
        self.messages: list[tuple[int, str]] = []
        self.few: list[str] = []
        self.judged = 0
        self.sure = False
        self.fell = False
        self.lacking = False

    def report(self, line: str, row: int | None = None) -> None:
        """Add a message about a night; by default about the last one."""
        row = len(self.nights) - 1 if row is None else row
        self.messages.append((row, f"{self.group.label}: {line}" if self.group.label else line))

    def relative(self, loss: float) -> float:
        """Return a loss relative to the healthy value, from one that is a difference of values."""
        return loss if self.group.better == "higher" else -math.expm1(-loss)

    def flag(
        self,
        kind: str,
        name: Name,
        night: int,
        size: float,
        confidence: float,
        since: int,
        until: int | None,
        note: str = "",
    ) -> Flag:
        """Add a flag; nights are rows.

        :arg size: loss, as a difference of values.
        """
        flag = Flag(
            self.nights[night],
            kind,
            name,
            self.relative(size),
            confidence,
            self.nights[since],
            None if until is None else self.nights[max(until, 0)],
            [self.group.label] if self.group.label else [],
            note,
            {self.group.system},
        )
        self.flagged.append(flag)
        return flag

    def empty(self, count: int) -> FigureTable:
        """Return the table of so many units, whose values are not known yet."""
        shape = len(self.nights), count
        return FigureTable(np.full(shape, np.nan), np.ones(shape), np.zeros(count, int), self.floor)

    def take(self, kind: str, names: list[Name], tracker: Tracker) -> None:
        """Add what a tracker found, with names for numbers."""
        for spell in tracker.spells:
            self.flag(
                kind, names[spell.unit], spell.flagged, spell.size, spell.confidence,
                spell.since, spell.until,
            )  # fmt: skip
        for row, listed in tracker.suspects.items():
            self.suspects += [(row, (kind, names[unit]), p) for unit, p in listed]
        for row, share in tracker.together.items():
            what = f"{self.nights[row]}: {share:.0%} of {len(names)} {_PLURAL[kind]}"
            if row in tracker.always:
                self.report(
                    f"{what} are slower than the others, and always were, so none is flagged: "
                    f"compare them with a reference",
                    row,
                )
                continue
            self.report(
                f"{what} became slower in the same night, so none is flagged: run `plumbline "
                f"trend` for the date of the change",
                row,
            )
        last = len(self.nights) - 1
        if tracker.judged_last > 0:
            self.sure |= last not in tracker.together
            self.fell |= last in tracker.together and last not in tracker.always
            self.lacking |= last in tracker.always

    def too_few(self, row: int, count: int, what: str, most: int = 0) -> None:
        """Record too few peers, if it is the last night.

        :arg most: of a night; 0 if the others are judged. A figure that is measured on one a night
            is not meant to be compared.
        """
        if row == len(self.nights) - 1:
            self.few.append(pluralize(count, what))
            self.lacking |= most >= detection.FEWEST or 1 < count <= most

    def track_all(
        self,
        chain: list[tuple[str, list[Name], Tracker]],
        parents: list[np.ndarray],
        of_switch: np.ndarray,
        switches: list[Name],
        values_of: Callable[[int, Tracker], None] | None = None,
    ) -> None:
        """Track units, the largest kind first, below their switches if these are enough.

        :arg parents: of each tracker but the first, the number of each unit's parent.
        :arg values_of: sets the units' values of a row and of those before it.
        """
        if len(switches) >= detection.FEWEST:
            tracker = Tracker(self.empty(len(switches)), self.rate)
            chain = [("switch", switches, tracker), *chain]
            parents = [of_switch, *parents]
        track([tracker for _, _, tracker in chain], parents, values_of)
        self.judged += chain[-1][2].judged
        for kind, names, tracker in chain:
            self.take(kind, names, tracker)

    def kinds(self, units: list[Name], values: np.ndarray) -> np.ndarray:
        """Return the group of peers of each unit: by the GPU's place in its node, and by two kinds
        of hardware that the first nights show."""
        places = [unit[1] if len(unit) > 1 else "" for unit in units]
        number = {place: i for i, place in enumerate(dict.fromkeys(places))}
        kinds = np.array([number[place] for place in places])
        # A place that only a few nodes have has too few peers.
        if len(number) > 1 and np.bincount(kinds).min() < detection.FEWEST:
            kinds[:] = 0
        levels = _levels(values, kinds, slice(_FIRST))
        slower = detection.two_groups(levels)
        if slower is None:
            return kinds
        slower = _with_later(slower, levels, values, kinds)
        self.report(
            f"two groups of {'GPUs' if len(units[0]) > 1 else 'nodes'}, {int(slower.sum())} slower "
            f"and {int((~slower).sum())} faster ones, probably two kinds of hardware: each is "
            f"compared with its own group"
        )
        return kinds + slower * (kinds.max() + 1)

    def on_one_level(self, values: np.ndarray, kinds: np.ndarray, of: str) -> np.ndarray:
        """Return the values of a few units as if all had one level, if they have two: nothing shows
        which is that of healthy ones, and each is compared with its own past."""
        levels = _levels(values, kinds, slice(_FIRST))
        slower = detection.two_levels(levels, self.floor)
        if slower is None:
            return values
        slower = _with_later(slower, levels, values, kinds)

        def apart(levels: np.ndarray) -> float:
            return float(detection.median(levels[~slower], 0) - detection.median(levels[slower], 0))

        gap, now = apart(levels), apart(_levels(values, kinds, slice(-_FIRST, None)))
        self.lacking |= now > gap / 2 and bool(np.isfinite(values[-1]).any())
        self.report(
            f"{int(slower.sum())} of {pluralize(len(slower), of)} {-math.expm1(-gap):.0%} slower "
            f"than the others since the first night: not flagged, as it is unknown which of so few "
            f"are healthy: compare them with a reference; losses since then are flagged"
        )
        return values + slower * gap

    def switch_of(self, nodes: list[str]) -> tuple[list[Name], np.ndarray]:
        """Return the switches of the nodes, and the number of each node's; -1 if not known."""
        names = sorted({self.switches[n] for n in nodes if n in self.switches}, key=natural)
        number = {name: i for i, name in enumerate(names)}
        return [(n,) for n in names], np.array(
            [number.get(self.switches.get(n, ""), -1) for n in nodes]
        )


class UnitGroup(PeerGroup):
    """Nodes and GPUs.

    :ivar units: their names. :ivar table: their values. :ivar repeated: whether some were measured
        more often than others.
    """

    units: list[Name]
    table: FigureTable
    repeated: bool

    def fill(self, cells: Cells) -> None:
        """Make the table of all that was measured."""
        self.units, self.repeated = cells.units, cells.repeated
        self.floor = detection.floor_of(cells.values.tolist())
        signed = {
            (self.row[night], unit): [self.sign * log for log in logs]
            for night, unit, logs in cells.logarithms()
        }
        values, factors = repeats.combine(signed, len(self.nights), len(self.units))
        kinds = self.kinds(self.units, values)
        self.of = "GPU" if any(len(unit) > 1 for unit in self.units) else "node"
        values = self.on_one_level(values, kinds, self.of)
        values = detection.relative(values, kinds, self.group.better)
        self.table = FigureTable(values, factors, kinds, self.floor)

    def run(self) -> None:
        tracker = self.track_units(self.table)
        last = len(self.nights) - 1
        # Nodes that fell together on an earlier night are a kind of their own since then.
        for kind in np.unique(tracker.table.kinds):
            count = np.isfinite(self.table.values[:, tracker.table.kinds == kind]).sum(axis=1)
            if 0 < count[last] < detection.FEWEST and last not in tracker.together:
                self.too_few(last, int(count[last]), self.of, int(count.max()))

    def track_units(
        self, table: FigureTable, values_of: Callable[[int, Tracker], None] | None = None
    ) -> Tracker:
        """Track the units, and the nodes of GPUs and switches of nodes; return the tracker of the
        units."""
        if self.repeated:
            # A repeated unit is tested twice. And it was chosen by its first value, so that the
            # remaining single values have less spread than the noise.
            self.rate /= 4
        nodes = list(dict.fromkeys(unit[0] for unit in self.units))
        chain: list[tuple[str, list[Name], Tracker]]
        parents = []
        if any(len(unit) > 1 for unit in self.units):
            place = {node: i for i, node in enumerate(nodes)}
            of_node = np.array([place[unit[0]] for unit in self.units])
            # The rate is of a node: one half for the node itself, one for all of its GPUs.
            half = self.rate / 2
            each = half * len(nodes) / len(self.units)
            chain = [
                ("node", [(n,) for n in nodes], Tracker(self.empty(len(nodes)), half)),
                ("gpu", self.units, Tracker(table, each)),
            ]
            parents = [of_node]
        else:
            chain = [("node", self.units, Tracker(table, self.rate))]
        switches, of_switch = self.switch_of(nodes)
        self.track_all(chain, parents, of_switch, switches, values_of)
        return chain[-1][2]


class CombinedGroup(UnitGroup):
    """Several figures of the same nodes or GPUs, as one (:mod:`.combination`).

    :ivar scores: of each night, figures x units.
    """

    def __init__(self, parts: list[UnitGroup]):
        one = parts[0]
        group = Group(f"{len(parts)} figures together", "higher")
        super().__init__(group, one.nights, one.switches, one.rate)
        self.parts = parts
        self.scores: dict[int, np.ndarray] = {}

    def run(self) -> None:
        self.units = sorted(
            {unit for part in self.parts for unit in part.units},
            key=lambda unit: [*map(natural, unit)],
        )
        self.repeated = any(part.repeated for part in self.parts)
        figures = [self.widened(part) for part in self.parts]

        def values_of(row: int, tracker: Tracker) -> None:
            window = slice(max(0, row - detection.MEMORY + 1), row + 1)
            tables = [one.of(window) for one in figures]
            values, factors, scores = combine(tables, tracker.known[window])
            tracker.table.values[window], tracker.table.factors[window] = values, factors
            self.scores[row] = scores[:, -1]

        self.track_units(self.empty(len(self.units)), values_of)
        for flag in self.flagged:
            self.explain(flag)

    def widened(self, part: UnitGroup) -> FigureTable:
        """Return a figure's table with a column for each unit of all figures."""
        place = {unit: i for i, unit in enumerate(self.units)}
        columns = [place[unit] for unit in part.units]
        table = replace(self.empty(len(self.units)), floor=part.floor)
        table.values[:, columns], table.factors[:, columns] = part.table.values, part.table.factors
        table.kinds[columns] = part.table.kinds
        return table

    def explain(self, flag: Flag) -> None:
        """Set the figures in which a flagged unit was slow."""
        name, first, last = flag.name, self.row[flag.since], self.row[flag.night]
        mine = [
            unit[: len(name)] == name or (self.switches.get(unit[0]),) == name
            for unit in self.units
        ]
        slow = np.array([self.scores[row][:, mine] for row in range(first, last + 1)])
        with without_warnings():
            mean = np.nan_to_num(np.nanmean(slow, axis=(0, 2)) * math.sqrt(len(slow)))
        groups = [self.parts[figure].group for figure in np.argsort(mean) if mean[figure] < -1]
        flag.evidence = [group.label for group in groups]
        flag.systems = {group.system for group in groups}
        flag.note = _TOGETHER
