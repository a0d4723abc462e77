"""What one group of peers says: of nodes and GPUs, or of pairs of nodes; and of their switches."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable

import numpy as np

from plumbline.analysis.screen import links, peers
from plumbline.analysis.screen.follower import Follower, above, follow
from plumbline.analysis.screen.grouping import natural
from plumbline.analysis.screen.named import Named
from plumbline.core.text import counted


class PeerGroup:
    """What one group says.

    :ivar named: who is slow; ``suspects``: night, who and p-value of who may be.
    :ivar told: what could not be judged, and why; ``few``: of how many peers alone the last night
        has values.
    :ivar judged: number of values that were compared.
    :ivar sure: whether the last night was judged.
    """

    def __init__(self, group, values, ordered, switches, rate, least):
        self.group, self.nights, self.switches = group, ordered, switches
        self.rate, self.least = rate, least
        self.row = {night: row for row, night in enumerate(ordered)}
        self.sign = -1.0 if group.better == "lower" else 1.0
        self.values = values
        self.floor = peers.floor_of([value for rows in values.values() for value in rows])
        self.named: list[Named] = []
        self.suspects: list[tuple] = []
        self.told: list[str] = []
        self.few: list[str] = []
        self.judged = 0
        self.sure = False

    def tell(self, line: str) -> None:
        self.told.append(f"{self.group.label}: {line}" if self.group.label else line)

    def loss(self, size: float) -> float:
        """What a difference of values is, relative to a healthy one's speed."""
        return size if self.group.better == "higher" else -math.expm1(-size)

    def follower(self, values, factors, kinds, rate: float = 0.0) -> Follower:
        return Follower(values, factors, kinds, rate or self.rate, self.least, self.floor)

    def take(self, kind: str, names: list, follower: Follower) -> None:
        """What a Follower found, with names for numbers."""
        for episode in follower.episodes:
            self.named.append(
                Named(
                    self.nights[episode.named],
                    kind,
                    names[episode.unit],
                    self.loss(episode.size),
                    episode.confidence,
                    self.nights[episode.since],
                    None if episode.until is None else self.nights[max(episode.until, 0)],
                    [self.group.label] if self.group.label else [],
                )
            )
        for row, listed in follower.suspects.items():
            self.suspects += [(row, (kind, names[unit]), p) for unit, p in listed]
        for row, share in follower.together.items():
            self.tell(
                f"{self.nights[row]}: {share:.0%} of {len(names)} {_PLURAL[kind]} fell together, "
                f"so that none is named: `plumbline trend` says since when"
            )
        last = len(self.nights) - 1
        self.sure |= follower.judged_last > 0 and last not in follower.together

    def too_few(self, row: int, count: int, what: str) -> None:
        if row == len(self.nights) - 1:
            self.few.append(counted(count, what))

    def kinds(self, units: list, values: np.ndarray) -> np.ndarray:
        """The group of peers of each unit: by the GPU's place in its node, and by the two groups
        that the first nights show."""
        places = [unit[1] if len(unit) > 1 else "" for unit in units]
        number = {place: i for i, place in enumerate(dict.fromkeys(places))}
        kinds = np.array([number[place] for place in places])
        # A place that few nodes have cannot be compared for itself.
        if len(number) > 1 and np.bincount(kinds).min() < peers.FEWEST:
            kinds[:] = 0
        first = values[np.flatnonzero(np.isfinite(values).any(axis=1))[:5]]
        weather, _ = peers.weather(first, kinds)
        slower = peers.two_groups(peers.median(first - weather[:, kinds], axis=0))
        if slower is None:
            return kinds
        self.tell(
            f"two groups of {'GPUs' if len(units[0]) > 1 else 'nodes'}, {int(slower.sum())} slower "
            f"and {int((~slower).sum())} faster ones, as of two kinds of hardware: each is "
            f"compared with its own"
        )
        return kinds + slower * (kinds.max() + 1)

    def switch_of(self, nodes: list[str]) -> tuple[list[tuple[str]], np.ndarray]:
        """The switches of the nodes, and the number of each node's; -1 where not known."""
        names = sorted({self.switches[n] for n in nodes if n in self.switches}, key=natural)
        number = {name: i for i, name in enumerate(names)}
        return [(n,) for n in names], np.array(
            [number.get(self.switches.get(n), -1) for n in nodes]
        )


_PLURAL = {"node": "nodes", "gpu": "GPUs", "link": "links", "switch": "switches"}


class Units(PeerGroup):
    """Nodes and GPUs."""

    def run(self) -> None:
        units = sorted({unit for _, unit in self.values}, key=lambda unit: [*map(natural, unit)])
        number = {unit: i for i, unit in enumerate(units)}
        cells = {
            (self.row[night], number[unit]): [self.sign * math.log(v) for v in rows]
            for (night, unit), rows in self.values.items()
        }
        if len({len(rows) for rows in cells.values()}) > 1:
            # Who was measured again was looked at twice. And it was chosen by its first value, so
            # that the single values left lie closer together than the noise puts them.
            self.rate /= 4
        values, factors = peers.repeats(cells, len(self.nights), len(units))
        kinds = self.kinds(units, values)
        values = peers.relative(values, kinds, self.group.better)
        nodes = list(dict.fromkeys(unit[0] for unit in units))
        place = {node: i for i, node in enumerate(nodes)}
        chain, parents, names = [], [], []
        of_gpus = any(len(unit) > 1 for unit in units)
        if of_gpus:
            of_node = np.array([place[unit[0]] for unit in units])
            of_parents = above(values, factors, of_node, kinds)
            # The rate is of a node: one half for the node itself, one for all of its GPUs.
            half = self.rate / 2
            chain = [
                self.follower(*of_parents, half),
                self.follower(values, factors, kinds, half * len(nodes) / len(units)),
            ]
            parents = [of_node]
            names = [("node", [(node,) for node in nodes]), ("gpu", units)]
        else:
            chain = [self.follower(values, factors, kinds)]
            names = [("node", units)]
        switches, of_switch = self.switch_of(nodes)
        if len(switches) >= peers.FEWEST:
            top = chain[0]
            of_parents = above(top.values, top.factors, of_switch, top.kinds)
            chain.insert(0, self.follower(*of_parents))
            parents.insert(0, of_switch)
            names.insert(0, ("switch", switches))
        follow(chain, parents)
        lowest = chain[-1]
        self.judged = lowest.judged
        for row in np.flatnonzero(np.isfinite(values).any(axis=1)):
            measured = np.isfinite(values[row])
            for kind in np.unique(kinds[measured]):
                count = int((measured & (kinds == kind)).sum())
                if count < peers.FEWEST:
                    self.too_few(int(row), count, "GPU" if of_gpus else "node")
        for (kind, named), follower in zip(names, chain, strict=True):
            self.take(kind, named, follower)


class PairGroup(PeerGroup):
    """Pairs of nodes, and what they say of nodes, links and switches."""

    def run(self) -> None:
        # Nodes, switches, links and pairs share it.
        self.rate /= 4
        nodes = sorted({node for _, pair in self.values for node in pair}, key=natural)
        number = {node: i for i, node in enumerate(nodes)}
        switches, of_switch = self.switch_of(nodes)
        fitted = self.fits(number)
        linked = self.links(fitted, of_switch, switches)
        for row, night in fitted.items():
            # A link that is slow would be blamed on the nodes that have many pairs across it.
            if (shift := linked(row, night)).any():
                fitted[row] = links.without(night, shift, len(nodes))
        effects = np.full((len(self.nights), len(nodes)), np.nan)
        factors = np.ones(effects.shape)
        for row, night in fitted.items():
            effects[row] = night.effects
            factors[row] = links.PARTNERS / np.maximum(night.partners, 1)
        units = [(node,) for node in nodes]
        if np.isfinite(effects).any():
            kinds = self.kinds(units, effects)
            chain, parents, names = [self.follower(effects, factors, kinds)], [], [("node", units)]
            if len(switches) >= peers.FEWEST:
                of_parents = above(effects, factors, of_switch, kinds)
                chain.insert(0, self.follower(*of_parents))
                parents, names = [of_switch], [("switch", switches), *names]
            follow(chain, parents)
            self.judged += chain[-1].judged
            for (kind, named), follower in zip(names, chain, strict=True):
                self.take(kind, named, follower)
        self.pairs(fitted, nodes)

    def fits(self, number: dict[str, int]) -> dict[int, links.PairFit]:
        """Each night's pairs, by row; nights with too few are told."""
        rows: dict[int, list[tuple[int, int, float]]] = collections.defaultdict(list)
        for (night, (one, other)), values in self.values.items():
            rows[self.row[night]] += [
                (number[one], number[other], self.sign * math.log(value)) for value in values
            ]
        fitted = {}
        for row, listed in sorted(rows.items()):
            first, second, values = (np.array(column) for column in zip(*listed, strict=True))
            count = len({(min(a, b), max(a, b)) for a, b, _ in listed})
            if count < peers.FEWEST:
                self.too_few(row, count, "pair")
            else:
                values = peers.relative(values[None], np.zeros(len(values), int), self.group.better)
                fitted[row] = links.fit(first, second, values[0], len(number))
        return fitted

    def links(self, fitted: dict, of_switch: np.ndarray, switches: list) -> Callable:
        """Follows the links between switches; gives, for a night, by how much each pair's link is
        known to be slow."""
        count = len(switches)
        left = np.full((len(self.nights), count * count), np.nan)
        numbers = np.ones(left.shape)
        for row, night in fitted.items():
            if count:
                left[row], numbers[row] = links.by_link(night, of_switch, count)
        used = np.flatnonzero(np.isfinite(left).any(axis=0))
        if len(used) < peers.FEWEST:
            return lambda row, night: np.zeros(len(night.values))
        follower = self.follower(
            left[:, used], 1 / np.maximum(numbers[:, used], 1), np.zeros(len(used), int)
        )
        follow([follower], [])
        names = [(switches[k // count][0], switches[k % count][0]) for k in used.tolist()]
        self.take("link", names, follower)
        self.judged += follower.judged
        place = {link: i for i, link in enumerate(used.tolist())}

        def known(row: int, night: links.PairFit) -> np.ndarray:
            one, other = of_switch[night.first], of_switch[night.second]
            link = np.minimum(one, other) * count + np.maximum(one, other)
            slow = {e.unit for e in follower.episodes
                    if e.named <= row and (e.ended is None or row < e.ended)}  # fmt: skip
            slow |= {unit for unit, p in follower.suspects.get(row, ()) if p < 1e-3}
            units = [place.get(int(k), -1) for k in link]
            return np.array([left[row, used[u]] if u in slow else 0.0 for u in units])

        return known

    def pairs(self, fitted: dict, nodes: list[str]) -> None:
        """Names the pairs that are slow for themselves, until they are measured well again."""
        earlier: dict[tuple[int, int], tuple[float, float]] = {}
        # With what each lost; until they are well, `until` is the last night that says so.
        going: dict[tuple[int, int], tuple[Named, float]] = {}
        for row, night in fitted.items():
            # The rate is of a node, and a node is in many pairs.
            rate = self.rate * len(nodes) / len(night.values)
            slow = links.judge(night, earlier, rate, self.least)
            self.judged += len(night.values)
            self.sure |= row == len(self.nights) - 1
            for k, met in enumerate(zip(night.first.tolist(), night.second.tolist(), strict=True)):
                pair = nodes[met[0]], nodes[met[1]]
                if met in going:
                    one, lost = going[met]
                    if night.residual[k] > -lost / 2:
                        del going[met], earlier[met]
                    else:
                        one.until = self.nights[row]
                elif slow.named[k]:
                    one = self._pair(row, pair, night, slow, k)
                    going[met] = one, float(slow.size[k])
                    self.named.append(one)
                elif slow.suspect[k]:
                    self.suspects.append((row, ("pair", pair), float(slow.p[k])))
        for one, _ in going.values():
            one.until = None

    def _pair(self, row: int, pair: tuple, night: links.PairFit, slow: links.Slow, k: int) -> Named:
        note = f"cannot tell which of the two: fewer than {links.PARTNERS} partners each"
        chance = min(float(slow.p[k]) * len(night.values), 1.0)
        return Named(
            self.nights[row],
            "pair",
            pair,
            self.loss(float(slow.size[k])),
            1 - chance,
            self.nights[row],
            self.nights[row],
            [self.group.label] if self.group.label else [],
            "" if night.told[k] else note,
        )
