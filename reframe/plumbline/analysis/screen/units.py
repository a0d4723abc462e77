"""Screening of one group of peers: nodes and GPUs, or pairs of nodes; and their switches."""

from __future__ import annotations

import abc
import collections
import math
import warnings
from collections.abc import Callable

import numpy as np

from plumbline.analysis.screen import detection, links, repeats, uplinks
from plumbline.analysis.screen.combination import FigureTable, combine
from plumbline.analysis.screen.finding import Flag
from plumbline.analysis.screen.input import Group, natural
from plumbline.analysis.screen.links import PairFit
from plumbline.analysis.screen.tracking import Tracker, track
from plumbline.core.text import pluralize

Values = dict[tuple[str, tuple[str, ...]], list[float]]
Name = tuple[str, ...]
#: Note of a pair of which either node may be the slow one.
_UNRESOLVED = (
    f"either of the two may be the slow one: each has fewer than {links.PARTNERS} partners"
)
#: Note of a link between two racks.
_WHICH_END = "the uplink of either, or what joins them: its pairs alone do not show which"
#: Note of a unit that no figure alone shows.
_TOGETHER = "not certain from any figure alone"
_PLURAL = {"node": "nodes", "gpu": "GPUs", "link": "links", "switch": "switches"}


class PeerGroup(abc.ABC):
    """The screening of one group.

    :ivar flagged: the slow units. :ivar suspects: night, kind and name, and p-value of others.
    :ivar messages: what could not be judged, and why.
    :ivar few: numbers of peers that are too few on the last night.
    :ivar judged: number of values that were compared.
    :ivar sure: whether the last night was judged.
    """

    def __init__(
        self,
        group: Group,
        values: Values,
        nights: list[str],
        switches: dict[str, str],
        rate: float,
        least: float,
    ):
        self.group, self.nights, self.switches = group, nights, switches
        self.rate, self.least = rate, least
        self.row = {night: row for row, night in enumerate(nights)}
        self.sign = -1.0 if group.better == "lower" else 1.0
        self.values = values
        self.floor = detection.floor_of([value for rows in values.values() for value in rows])
        self.flagged: list[Flag] = []
        self.suspects: list[tuple[int, tuple[str, Name], float]] = []
        self.messages: list[str] = []
        self.few: list[str] = []
        self.judged = 0
        self.sure = False

    @abc.abstractmethod
    def run(self) -> None:
        """Screen all nights."""

    def report(self, line: str) -> None:
        """Add a message."""
        self.messages.append(f"{self.group.label}: {line}" if self.group.label else line)

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
            size if self.group.better == "higher" else -math.expm1(-size),
            confidence,
            self.nights[since],
            None if until is None else self.nights[max(until, 0)],
            [self.group.label] if self.group.label else [],
            note,
        )
        self.flagged.append(flag)
        return flag

    def tracker(
        self, values: np.ndarray, factors: np.ndarray, kinds: np.ndarray, rate: float = 0.0
    ) -> Tracker:
        return Tracker(values, factors, kinds, rate or self.rate, self.least, self.floor)

    def parent_tracker(self, count: int, rate: float = 0.0) -> Tracker:
        """Return a tracker of so many parents, whose values are not known yet."""
        shape = len(self.nights), count
        return self.tracker(np.full(shape, np.nan), np.ones(shape), np.zeros(count, int), rate)

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
            self.report(
                f"{self.nights[row]}: {share:.0%} of {len(names)} {_PLURAL[kind]} fell together, "
                f"so none is flagged: run `plumbline trend` for the date of the change"
            )
        last = len(self.nights) - 1
        self.sure |= tracker.judged_last > 0 and last not in tracker.together

    def too_few(self, row: int, count: int, what: str) -> None:
        """Record too few peers, if it is the last night."""
        if row == len(self.nights) - 1:
            self.few.append(pluralize(count, what))

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
            chain = [("switch", switches, self.parent_tracker(len(switches))), *chain]
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
        first = values[np.flatnonzero(np.isfinite(values).any(axis=1))[:5]]
        common, _ = detection.common_mode(first, kinds)
        slower = detection.two_groups(detection.median(first - common[:, kinds], axis=0))
        if slower is None:
            return kinds
        self.report(
            f"two groups of {'GPUs' if len(units[0]) > 1 else 'nodes'}, {int(slower.sum())} slower "
            f"and {int((~slower).sum())} faster ones, probably two kinds of hardware: each is "
            f"compared with its own group"
        )
        return kinds + slower * (kinds.max() + 1)

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
        more often than others. All are known once it has run.
    """

    units: list[Name]
    table: FigureTable
    repeated: bool

    def run(self) -> None:
        self.units = sorted(
            {unit for _, unit in self.values}, key=lambda unit: [*map(natural, unit)]
        )
        number = {unit: i for i, unit in enumerate(self.units)}
        cells = {
            (self.row[night], number[unit]): [self.sign * math.log(v) for v in rows]
            for (night, unit), rows in self.values.items()
        }
        self.repeated = len({len(rows) for rows in cells.values()}) > 1
        values, factors = repeats.combine(cells, len(self.nights), len(self.units))
        kinds = self.kinds(self.units, values)
        values = detection.relative(values, kinds, self.group.better)
        self.table = FigureTable(values, factors, kinds, self.floor)
        of_gpus = any(len(unit) > 1 for unit in self.units)
        for row in np.flatnonzero(np.isfinite(values).any(axis=1)):
            measured = np.isfinite(values[row])
            for kind in np.unique(kinds[measured]):
                count = int((measured & (kinds == kind)).sum())
                if count < detection.FEWEST:
                    self.too_few(int(row), count, "GPU" if of_gpus else "node")
        self.track_units(values, factors, kinds)

    def track_units(
        self,
        values: np.ndarray,
        factors: np.ndarray,
        kinds: np.ndarray,
        values_of: Callable[[int, Tracker], None] | None = None,
    ) -> None:
        """Track the units, and the nodes of GPUs and switches of nodes."""
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
                ("node", [(node,) for node in nodes], self.parent_tracker(len(nodes), half)),
                ("gpu", self.units, self.tracker(values, factors, kinds, each)),
            ]
            parents = [of_node]
        else:
            chain = [("node", self.units, self.tracker(values, factors, kinds))]
        switches, of_switch = self.switch_of(nodes)
        self.track_all(chain, parents, of_switch, switches, values_of)


class CombinedGroup(UnitGroup):
    """Several figures of the same nodes or GPUs, as one (:mod:`.combination`).

    :ivar scores: of each night, figures x units.
    """

    def __init__(self, parts: list[UnitGroup], rate: float):
        one = parts[0]
        group = Group(f"{len(parts)} figures together", "higher")
        super().__init__(group, one.values, one.nights, one.switches, rate, one.least)
        self.parts = parts
        self.floor = detection.LEAST_NOISE
        self.scores: dict[int, np.ndarray] = {}

    def run(self) -> None:
        self.units = sorted(
            {unit for part in self.parts for unit in part.units},
            key=lambda unit: [*map(natural, unit)],
        )
        self.repeated = any(part.repeated for part in self.parts)
        figures = [self.widened(part) for part in self.parts]
        empty = np.full((len(self.nights), len(self.units)), np.nan)

        def values_of(row: int, tracker: Tracker) -> None:
            window = slice(max(0, row - detection.MEMORY + 1), row + 1)
            tables = [
                FigureTable(one.values[window], one.factors[window], one.kinds, one.floor)
                for one in figures
            ]
            values, factors, scores = combine(tables, tracker.known[window])
            tracker.values[window], tracker.factors[window] = values, factors
            self.scores[row] = scores[:, -1]

        kinds = np.zeros(len(self.units), int)
        self.track_units(empty, np.ones(empty.shape), kinds, values_of)

    def widened(self, part: UnitGroup) -> FigureTable:
        """Return a figure's table with a column for each unit of all figures."""
        place = {unit: i for i, unit in enumerate(self.units)}
        columns = [place[unit] for unit in part.units]
        shape = len(self.nights), len(self.units)
        values, factors = np.full(shape, np.nan), np.ones(shape)
        kinds = np.zeros(len(self.units), int)
        values[:, columns], factors[:, columns] = part.table.values, part.table.factors
        kinds[columns] = part.table.kinds
        return FigureTable(values, factors, kinds, part.floor)

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
        flag = super().flag(kind, name, night, size, confidence, since, until, _TOGETHER)
        mine = [
            unit[: len(name)] == name or (self.switches.get(unit[0]),) == name
            for unit in self.units
        ]
        slow = np.array([self.scores[row][:, mine] for row in range(since, night + 1)])
        with warnings.catch_warnings():
            # A figure that was not measured on these nights.
            warnings.simplefilter("ignore", RuntimeWarning)
            mean = np.nan_to_num(np.nanmean(slow, axis=(0, 2)) * math.sqrt(len(slow)))
        flag.evidence = [
            self.parts[figure].group.label for figure in np.argsort(mean) if mean[figure] < -1
        ]
        return flag


class PairGroup(PeerGroup):
    """Pairs of nodes, and their nodes, links and switches.

    :ivar within: of pairs between racks, those within racks, which were screened before.
    :ivar known: the nodes that had enough partners on some night. Where pairs within racks know a
        node, those between racks do not judge it: how long a node is alone on an uplink is no
        property of it.
    """

    within: PairGroup | None = None
    known: frozenset[str] = frozenset()

    def run(self) -> None:
        # Nodes, switches, links and pairs share it.
        self.rate /= 4
        #: Row and link -> what the pairs across it lost together.
        self.lost: dict[tuple[int, uplinks.Link], float] = {}
        self.few_links()
        nodes = sorted({node for _, pair in self.values for node in pair}, key=natural)
        number = {node: i for i, node in enumerate(nodes)}
        switches, of_switch = self.switch_of(nodes)
        fits = self.fits(number)
        known_loss = self.links(fits, of_switch, switches)
        for row, night in fits.items():
            # A slow link would be attributed to the nodes that have many pairs across it.
            if (loss := known_loss(row, night)).any():
                fits[row] = links.without(night, loss, len(nodes))
        effects = np.full((len(self.nights), len(nodes)), np.nan)
        factors = np.ones(effects.shape)
        for row, night in fits.items():
            effects[row] = night.effects
            self.known |= {nodes[k] for k in np.flatnonzero(np.isfinite(night.effects))}
            factors[row] = links.PARTNERS / np.maximum(night.partners, 1)
        if np.isfinite(effects).any():
            units: list[Name] = [(node,) for node in nodes]
            tracker = self.tracker(effects, factors, self.kinds(units, effects))
            self.track_all([("node", units, tracker)], [], of_switch, switches)
        if self.within:
            known = self.within.known
            self.flagged = [f for f in self.flagged if f.kind != "node" or f.name[0] not in known]
            self.suspects = [
                s for s in self.suspects if s[1][0] != "node" or s[1][1][0] not in known
            ]
        self.pairs(fits, nodes)

    def fits(self, number: dict[str, int]) -> dict[int, PairFit]:
        """Fit each night's pairs, by row; nights with too few are skipped."""
        rows: dict[int, list[tuple[int, int, float, int]]] = collections.defaultdict(list)
        for (night, pair), values in self.values.items():
            row, (one, other) = self.row[night], pair
            lost = self.lost.get((row, self.link_of(pair)), 0.0)
            across = self.group.across.get((night, pair), 0)
            rows[row] += [
                (number[one], number[other], self.sign * math.log(value) + lost, across)
                for value in values
            ]
        fits = {}
        for row, listed in sorted(rows.items()):
            first, second, logs, shared = (np.array(column) for column in zip(*listed, strict=True))
            count = len({(min(a, b), max(a, b)) for a, b, *_ in listed})
            if count < detection.FEWEST:
                self.too_few(row, count, "pair")
                continue
            # Pairs are peers of those that shared an uplink with as many others.
            _, kinds = np.unique(shared, return_inverse=True)
            logs = detection.relative(logs[None], kinds, self.group.better)
            fits[row] = links.fit(first, second, logs[0], len(number))
        return fits

    def link_of(self, pair: Name) -> uplinks.Link:
        """Return the switches of a pair's nodes; both are empty if one is not known, or both are
        the same."""
        one, other = sorted((self.switches.get(node, "") for node in pair), key=natural)
        return (one, other) if one and one != other else ("", "")

    def few_links(self) -> None:
        """Compare each link with its own earlier nights, if there are too few for peers."""
        names = {self.switches.get(node) for _, pair in self.values for node in pair}
        if self.group.within is None or len(names) >= detection.FEWEST:
            return
        healthy = self.healthy_nodes()
        levels: dict[int, list[float]] = collections.defaultdict(list)
        for (night, _), values in self.group.within.pairs.items():
            levels[self.row[night]] += [self.sign * math.log(value) for value in values]
        cells: dict[int, dict[tuple[uplinks.Link, int], list[float]]] = {}
        for (night, pair), values in self.values.items():
            row, link = self.row[night], self.link_of(pair)
            if link[0] and levels[row] and healthy(row, pair):
                level = float(np.median(levels[row]))
                of = link, self.group.across.get((night, pair), 0)
                cell = cells.setdefault(row, {}).setdefault(of, [])
                cell += [self.sign * math.log(value) - level for value in values]
        history, active = uplinks.LinkHistory(), dict[Name, tuple[Flag, float]]()
        for row, night_cells in sorted(cells.items()):
            losses = history.judge(night_cells)
            self.judged += len(losses)
            self.sure |= bool(losses) and row == len(self.nights) - 1
            slow = {link: one for link, one in losses.items() if self.is_slow(link, one, active)}
            if slow:
                # One slow uplink makes several links slow, not all of them as certainly.
                slow |= {link: one for link, one in losses.items() if uplinks.is_suspect(one)}
            # What another night may show to be slow is no level of a healthy one.
            suspects = [link for link, one in losses.items() if uplinks.is_suspect(one)]
            history.add(night_cells, {*slow, *suspects})
            self.lost |= {(row, link): one.loss for link, one in slow.items()}
            self.track_links(row, uplinks.explained(slow, losses), losses, active)
            self.suspects += [
                (row, ("link", link), losses[link].p) for link in suspects if link not in slow
            ]
        for flag, _ in active.values():
            flag.until = None

    def healthy_nodes(self) -> Callable[[int, Name], bool]:
        """Return a function of row and pair: whether the pairs within racks flagged neither node by
        then."""
        flagged = self.within.flagged if self.within else []
        slow = [flag for flag in flagged if flag.kind == "node"]

        def healthy(row: int, pair: Name) -> bool:
            return not any(
                flag.name[0] in pair
                and self.row[flag.night] <= row
                and (flag.until is None or row <= self.row[flag.until])
                for flag in slow
            )

        return healthy

    def is_slow(
        self, link: uplinks.Link, one: uplinks.LinkLoss, active: dict[Name, tuple[Flag, float]]
    ) -> bool:
        """Return whether a link is slow tonight, or has not recovered."""
        lost = max((lost for name, (_, lost) in active.items() if {*name} <= {*link}), default=0.0)
        if lost:
            return one.loss > lost / 2
        return one.p < self.rate and one.loss >= self.least

    def track_links(
        self,
        row: int,
        slow: dict[Name, float],
        losses: dict[uplinks.Link, uplinks.LinkLoss],
        active: dict[Name, tuple[Flag, float]],
    ) -> None:
        """Flag the switches and links that are slow tonight.

        :arg slow: each with its loss. :arg active: those that were slow before; is updated.
        """
        for name in [name for name in active if name not in slow]:
            if any({*name} <= {*link} for link in losses):
                del active[name]
        for name, loss in slow.items():
            if name in active:
                active[name][0].until = self.nights[row]
                continue
            worst = max(one.p for link, one in losses.items() if {*name} <= {*link})
            note = "" if len(name) == 1 else _WHICH_END
            size = loss if self.group.better == "lower" else -math.expm1(-loss)
            kind = "switch" if len(name) == 1 else "link"
            flag = self.flag(kind, name, row, size, 1 - worst * len(losses), row, row, note)
            active[name] = flag, loss

    def links(
        self, fits: dict[int, PairFit], of_switch: np.ndarray, switches: list[Name]
    ) -> Callable[[int, PairFit], np.ndarray]:
        """Track the links between switches. Returns a function of a night that returns the known
        loss of each pair's link."""
        count = len(switches)
        residual = np.full((len(self.nights), count * count), np.nan)
        numbers = np.ones(residual.shape)
        for row, night in fits.items():
            if count:
                residual[row], numbers[row] = links.by_link(night, of_switch, count)
        used = np.flatnonzero(np.isfinite(residual).any(axis=0))
        if len(used) < detection.FEWEST:
            return lambda row, night: np.zeros(len(night.values))
        tracker = self.tracker(
            residual[:, used], 1 / np.maximum(numbers[:, used], 1), np.zeros(len(used), int)
        )
        track([tracker], [])
        names: list[Name] = [
            (switches[k // count][0], switches[k % count][0]) for k in used.tolist()
        ]
        self.take("link", names, tracker)
        self.judged += tracker.judged
        place = {link: i for i, link in enumerate(used.tolist())}

        def known_loss(row: int, night: PairFit) -> np.ndarray:
            one, other = of_switch[night.first], of_switch[night.second]
            link = np.minimum(one, other) * count + np.maximum(one, other)
            slow = {spell.unit for spell in tracker.spells
                    if spell.flagged <= row
                    and (spell.ended is None or row < spell.ended)}  # fmt: skip
            slow |= {unit for unit, p in tracker.suspects.get(row, ()) if p < 1e-3}
            units = [place.get(int(k), -1) for k in link]
            return np.array([residual[row, used[u]] if u in slow else 0.0 for u in units])

        return known_loss

    def pairs(self, fits: dict[int, PairFit], nodes: list[str]) -> None:
        """Flag the pairs that are slow themselves, until a measurement shows a recovery."""
        earlier: dict[tuple[int, int], links.PairNights] = {}
        # With the loss of each. Until it recovers, `until` is the last night on which it was slow.
        active: dict[tuple[int, int], tuple[Flag, float]] = {}
        for row, night in fits.items():
            # The rate is of a node, and a node is in many pairs.
            rate = self.rate * len(nodes) / len(night.values)
            ends_of = [*zip(night.first.tolist(), night.second.tolist(), strict=True)]
            named = [(nodes[one], nodes[other]) for one, other in ends_of]
            of_several = [(self.nights[row], pair) in self.group.steady for pair in named]
            steady = np.array(of_several) | (night.repeats > 1)
            slow = links.judge(night, earlier, steady, row, rate, self.least)
            self.judged += len(night.values)
            self.sure |= row == len(self.nights) - 1
            for k, (ends, pair) in enumerate(zip(ends_of, named, strict=True)):
                size, p = float(slow.size[k]), float(slow.p[k])
                if ends in active:
                    flag, lost = active[ends]
                    if night.residual[k] > -lost / 2:
                        del active[ends], earlier[ends]
                    else:
                        flag.until = self.nights[row]
                elif slow.flagged[k]:
                    confidence = 1 - min(p * len(night.values), 1.0)
                    note = "" if night.resolved[k] else _UNRESOLVED
                    since = int(slow.since[k])
                    flag = self.flag("pair", pair, row, size, confidence, since, row, note)
                    active[ends] = flag, size
                elif slow.suspect[k]:
                    self.suspects.append((row, ("pair", pair), p))
        for flag, _ in active.values():
            flag.until = None
