"""Screening: which nodes, GPUs, pairs of nodes, links or switches of a partition are slow.

Values come from the history (:func:`of_series`) or from a CSV file (:func:`of_file`), as groups of
peers; :func:`screen` follows each group night by night and says who is to blame.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from plumbline import links, peers
from plumbline.follower import Follower, above, follow
from plumbline.grouping import Group, by_name, natural, nights, of_file, of_series, of_topology

__all__ = [
    "Group",
    "Named",
    "Screening",
    "by_name",
    "nights",
    "of_file",
    "of_series",
    "of_topology",
    "rounds",
    "screen",
]


@dataclass
class Named:
    """One that is slow.

    :ivar night: on which it was named, from what was known then.
    :ivar kind: ``node``, ``gpu``, ``pair``, ``link`` (between two switches) or ``switch``.
    :ivar name: the node; node and GPU; the two nodes; the two switches; the switch.
    :ivar size: relative loss against what it would be if it were well.
    :ivar confidence: 1 less the number of such names that chance gives in the fleet and night.
    :ivar since: first slow night, as far as all nights there are tell it.
    :ivar until: last slow night; ``None`` while it lasts.
    :ivar evidence: what it was slow in.
    :ivar note: what could not be told.
    """

    night: str
    kind: str
    name: tuple[str, ...]
    size: float
    confidence: float
    since: str
    until: str | None = None
    evidence: list[str] = field(default_factory=list)
    note: str = ""

    def fields(self) -> dict:
        """As an object of JSON."""
        who = {
            "node": lambda name: {"node": name[0]},
            "gpu": lambda name: {"node": name[0], "gpu": name[1]},
            "pair": lambda name: {"pair": [*name]},
            "link": lambda name: {"link": [*name]},
            "switch": lambda name: {"switch": name[0]},
        }[self.kind](self.name)
        return {
            "night": _number(self.night),
            "kind": self.kind,
            **who,
            "size": round(self.size, 4),
            "confidence": round(self.confidence, 6),
            "since": _number(self.since),
            "until": None if self.until is None else _number(self.until),
            "evidence": self.evidence,
            "note": self.note,
        }


@dataclass
class Screening:
    """What screening found.

    :ivar nights: all nights, oldest first.
    :ivar named: who is slow, by night.
    :ivar suspects: (kind, name) on the last night that a repeat would tell more of, worst first.
    :ivar told: what could not be judged, and why.
    :ivar judged: units and nights that were compared.
    :ivar unsure: whether the last night says nothing: too few peers, or too many that fell at once.
    """

    nights: list[str]
    named: list[Named] = field(default_factory=list)
    suspects: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    judged: int = 0
    unsure: bool = True

    @property
    def now(self) -> list[Named]:
        """Who is slow still, on the last night."""
        return [named for named in self.named if named.until is None]

    def drain(self) -> list[str]:
        """The nodes to drain: slow themselves, or one of their GPUs."""
        nodes = [named.name[0] for named in self.now if named.kind in ("node", "gpu")]
        return sorted(set(nodes), key=natural)

    def retest(self) -> list[str]:
        """The nodes to measure again tonight."""
        nodes = [n for kind, name in self.suspects for n in (name[:1] if kind == "gpu" else name)]
        return sorted(set(nodes), key=natural)


def screen(
    groups: Iterable[Group],
    switches: dict[str, str] | None = None,
    rate: float = peers.RATE,
    least: float = peers.LEAST,
    all_suspects: bool = False,
) -> Screening:
    """Screens groups of peers, night by night from what was known then.

    :arg switches: node -> its switch, where it is known.
    :arg rate: false names that are accepted, of a node and night over all groups.
    :arg least: smallest relative loss that is named.
    :arg all_suspects: as of every night, named ``(kind, name, night)``; for simulations.
    """
    groups = [group for group in groups if group.values or group.pairs]
    every = {night for group in groups for night, _ in [*group.values, *group.pairs]}
    ordered = sorted(every, key=natural)
    found = Screening(ordered)
    rate /= max(len(groups), 1)
    merged: dict[tuple[str, tuple[str, ...]], list[Named]] = {}
    suspects: dict[tuple, float] = {}
    for group in groups:
        for part in (_Units, _Pairs):
            values = group.values if part is _Units else group.pairs
            if not values:
                continue
            one = part(group, values, ordered, switches or {}, rate, least)
            one.run()
            found.judged += one.judged
            found.unsure &= not one.sure
            found.told += [line for line in one.told if line not in found.told]
            for named in one.named:
                _merge(merged.setdefault((named.kind, named.name), []), named, ordered)
            for row, who, p in one.suspects:
                if all_suspects:
                    suspects[(*who, ordered[row])] = p
                elif row == len(ordered) - 1:
                    suspects[who] = min(p, suspects.get(who, 1.0))
    order = {night: row for row, night in enumerate(ordered)}
    found.named = sorted(
        (named for listed in merged.values() for named in listed),
        key=lambda named: (order[named.night], -named.confidence, named.kind, named.name),
    )
    known = {(named.kind, named.name) for named in found.now}
    found.suspects = [who for who in sorted(suspects, key=suspects.get) if who not in known]
    return found


def _merge(listed: list[Named], named: Named, ordered: list[str]) -> None:
    """Adds what one group says of a unit to what others said: one entry for one slow time."""
    row = ordered.index
    for other in listed:
        ends = [len(ordered) if n.until is None else row(n.until) for n in (other, named)]
        if row(named.since) <= ends[0] and row(other.since) <= ends[1]:
            if (row(named.night), named.night) < (row(other.night), other.night):
                other.night = named.night
            other.since = min(other.since, named.since, key=row)
            other.until = None if max(ends) == len(ordered) else ordered[max(ends)]
            if named.size > other.size:
                other.evidence = named.evidence + other.evidence
            else:
                other.evidence = other.evidence + named.evidence
            other.size = max(other.size, named.size)
            other.confidence = max(other.confidence, named.confidence)
            return
    listed.append(named)


class _Part:
    """What one group says: ``named``, ``suspects`` (night, who, p), ``told``, ``judged``."""

    def __init__(self, group, values, ordered, switches, rate, least):
        self.group, self.nights, self.switches = group, ordered, switches
        self.rate, self.least = rate, least
        self.row = {night: row for row, night in enumerate(ordered)}
        self.sign = -1.0 if group.better == "lower" else 1.0
        self.values = values
        self.named: list[Named] = []
        self.suspects: list[tuple] = []
        self.told: list[str] = []
        self.judged = 0
        self.sure = False

    def tell(self, line: str) -> None:
        self.told.append(f"{self.group.label}: {line}" if self.group.label else line)

    def loss(self, size: float) -> float:
        """What a difference of values is, relative to a healthy one's speed."""
        return size if self.group.better == "higher" else -math.expm1(-size)

    def follower(self, values, factors, kinds) -> Follower:
        return Follower(values, factors, kinds, self.rate, self.least)

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

    def few(self, row: int, count: int, what: str) -> None:
        if row == len(self.nights) - 1:
            self.tell(
                f"{self.nights[row]}: {count} {what} are too few peers to compare (fewest "
                f"{peers.FEWEST}): not judged"
            )

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


class _Units(_Part):
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
            chain, parents = [self.follower(*of_parents), self.follower(values, factors, kinds)], [
                of_node]  # fmt: skip
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
                    self.few(int(row), count, "GPUs" if of_gpus else "nodes")
        for (kind, named), follower in zip(names, chain, strict=True):
            self.take(kind, named, follower)


class _Pairs(_Part):
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

    def fits(self, number: dict[str, int]) -> dict[int, links.Pairs]:
        """Each night's pairs, by row; nights with too few are told."""
        rows: dict[int, list[tuple[int, int, float]]] = collections.defaultdict(list)
        for (night, (one, other)), values in self.values.items():
            rows[self.row[night]] += [
                (number[one], number[other], self.sign * math.log(value)) for value in values
            ]
        fitted = {}
        for row, listed in sorted(rows.items()):
            first, second, values = (np.array(column) for column in zip(*listed, strict=True))
            if len({(min(a, b), max(a, b)) for a, b, _ in listed}) < peers.FEWEST:
                self.few(row, len(listed), "pairs")
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

        def known(row: int, night: links.Pairs) -> np.ndarray:
            one, other = of_switch[night.first], of_switch[night.second]
            link = np.minimum(one, other) * count + np.maximum(one, other)
            slow = {e.unit for e in follower.episodes
                    if e.named <= row and (e.until is None or row <= e.until)}  # fmt: skip
            slow |= {unit for unit, p in follower.suspects.get(row, ()) if p < 1e-3}
            units = [place.get(int(k), -1) for k in link]
            return np.array([left[row, used[u]] if u in slow else 0.0 for u in units])

        return known

    def pairs(self, fitted: dict, nodes: list[str]) -> None:
        """Names the pairs that are slow for themselves, each once."""
        earlier: dict[tuple[int, int], tuple[float, float]] = {}
        known: dict[tuple[str, str], Named] = {}
        for row, night in fitted.items():
            # The rate is of a node, and a node is in many pairs.
            rate = self.rate * len(nodes) / len(night.values)
            slow = links.judge(night, earlier, rate, self.least)
            self.judged += len(night.values)
            self.sure |= row == len(self.nights) - 1
            for k in np.flatnonzero(slow.named | slow.suspect):
                pair = nodes[night.first[k]], nodes[night.second[k]]
                if slow.named[k] and pair not in known:
                    note = "" if night.told[k] else (
                        f"cannot tell which of the two: fewer than {links.PARTNERS} partners each"
                    )  # fmt: skip
                    chance = min(float(slow.p[k]) * len(night.values), 1.0)
                    size = self.loss(float(slow.size[k]))
                    label = [self.group.label] if self.group.label else []
                    known[pair] = Named(self.nights[row], "pair", pair, size, 1 - chance,
                                        self.nights[row], None, label, note)  # fmt: skip
                elif slow.suspect[k]:
                    self.suspects.append((row, ("pair", pair), float(slow.p[k])))
        self.named += known.values()


def rounds(nodes: list[str], seed: int = 0) -> list[list[tuple[str, str]]]:
    """Rounds of random pairs: every node is in one pair of a round, and no two meet twice.

    There are 2·log2 of the number of nodes, rounded up, or as many as it takes until all have met.
    Of an odd number one node sits out in each round, none twice before all have.

    :arg seed: another one gives other pairs; the same gives the same.
    """
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(nodes))
    if len(names) < 2:
        return []
    # The circle method: node i meets node -i + 2r (modulo the number) in round r; None sits out.
    seats = [names[i] for i in random.permutation(len(names))] + [None] * (len(names) % 2)
    turning = len(seats) - 1
    count = min(math.ceil(2 * math.log2(len(names))), turning)
    return [
        [
            (first, second)
            for first, second in _meeting(seats, int(turn), turning)
            if first is not None and second is not None
        ]
        for turn in random.permutation(turning)[:count]
    ]


def _meeting(seats: list, turn: int, turning: int) -> list[tuple]:
    """The pairs of one turn; the last seat does not move and meets the one left over."""
    pairs = [(seats[turn], seats[-1])]
    pairs += [
        (seats[(turn + i) % turning], seats[(turn - i) % turning])
        for i in range(1, len(seats) // 2)
    ]
    return pairs


def _number(text: str) -> int | str:
    """A night as JSON has it: a number where the file had one."""
    return int(text) if re.fullmatch(r"0|[1-9]\d{0,14}", text) else text
