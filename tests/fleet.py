"""Synthetic fleets for screening: seeded values of nodes, GPUs and pairs, some of them slow.

All values are of a figure that is better where it is higher, about 100. Noise is relative and
gaussian; common-mode variation moves a whole night.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from plumbline.analysis.screen import Group
from plumbline.placement.pairing import rounds, sharing


@dataclass
class Racks:
    """A machine whose racks are joined by uplinks, which carry less than the links of their nodes
    together.

    :ivar sizes: nodes of each rack. :ivar uplink: of each rack, relative to a node's link.
    :ivar noise: of a pair within a rack, and ``shared`` of one that shares an uplink.
    :ivar outliers: share of values that are 10 to 50 % lower.
    :ivar slow: node, ``r0``, or two nodes -> first slow night, loss.
    """

    seed: int
    sizes: tuple[int, ...] = (5, 5)
    nights: int = 20
    uplink: float = 2.0
    noise: float = 0.007
    shared: float = 0.03
    outliers: float = 0.0
    slow: dict[str | tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.racks = {
            f"r{rack}n{node}": f"r{rack}"
            for rack, size in enumerate(self.sizes)
            for node in range(size)
        }

    def groups(self, arranged: bool = True) -> list[Group]:
        """The pairs of all nights, within racks and between racks.

        :arg arranged: whether the rounds are arranged by the racks.
        """
        within = Group("figure within racks", "higher")
        between = Group("figure between racks", "higher", within=within)
        for night in range(self.nights):
            seed = 1000 * self.seed + night
            for listed in rounds([*self.racks], seed, self.racks if arranged else None):
                for pair, across in sharing(listed, self.racks).items():
                    at = f"{night}", tuple(sorted(pair))
                    group = between if across else within
                    group.pairs[at] = [self.value(night, pair, across)]
                    if across:
                        group.across[at] = across
        return [within, between]

    def value(self, night: int, pair: tuple[str, str], across: int) -> float:
        """What a pair measures that shares an uplink with so many."""

        def left(unit: str | tuple[str, str]) -> float:
            since, loss = self.slow.get(unit, (np.inf, 0.0))
            return 1 - loss if night >= since else 1.0

        # A PingPong fills one direction at a time: two of them share what one can carry.
        rates = [left(node) for node in pair]
        if across:
            rates += [2 * self.uplink * left(self.racks[node]) / across for node in pair]
        spread = self.shared if across else self.noise
        value = 100 * min(rates) * left(tuple(sorted(pair))) * np.exp(self.random.normal(0, spread))
        if self.random.random() < self.outliers:
            value *= 1 - self.random.uniform(0.1, 0.5)
        return float(value)


@dataclass
class Fleet:
    """What a simulated machine is like.

    :ivar noise: of one measurement.
    :ivar common_mode: standard deviation of the nights' levels.
    :ivar levels: standard deviation of what each node always has above or below the others.
    :ivar parts: by how much the fastest and the slowest of its GPUs differ, always.
    :ivar slow: unit -> first slow night, loss. A unit is ``("n7",)``, ``("n7", "gpu2")``, two
        nodes, or with ``link`` before two switches.
    """

    seed: int
    nodes: int = 500
    nights: int = 40
    noise: float = 0.02
    common_mode: float = 0.02
    levels: float = 0.0
    parts: float = 0.0
    switches: int = 25
    slow: dict[tuple[str, ...], tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)
        self.names = [f"n{i:03d}" for i in range(self.nodes)]
        each = -(-self.nodes // self.switches)
        self.of_switch = [f"s{i // each:02d}" for i in range(self.nodes)]
        self.of_nights = 100 * np.exp(self.random.normal(0, self.common_mode, self.nights))
        self.of_nodes = np.exp(self.random.normal(0, self.levels, self.nodes))
        self.of_parts = 1 - np.random.default_rng([self.seed, 1]).uniform(
            0, self.parts, (self.nodes, 8)
        )

    def switch_of(self) -> dict[str, str]:
        """Node -> switch, in order of their names."""
        return dict(zip(self.names, self.of_switch, strict=True))

    def loss(self, night: int, *units: tuple[str, ...]) -> float:
        """What is left of a value that any of these units shapes."""
        found = [self.slow[unit] for unit in units if unit in self.slow]
        return float(np.prod([1 - size for since, size in found if night >= since]))

    def measured(self, night: int, node: int, rows: int, *units: tuple[str, ...]) -> list[float]:
        """So many measurements of a unit in a night."""
        level = self.of_nights[night] * self.of_nodes[node] * self.loss(night, *units)
        return (level * (1 + self.random.normal(0, self.noise, rows))).tolist()

    def values(self, rows: int = 1, gpus: int = 0) -> Group:
        """Every node's values, or those of its GPUs, night by night."""
        group = Group("", "higher")
        for night in range(self.nights):
            for i, name in enumerate(self.names):
                for g, unit in enumerate([(name, f"gpu{g}") for g in range(gpus)] or [(name,)]):
                    above = {(name,), unit, ("switch", self.of_switch[i])}
                    values = self.measured(night, i, rows, *above)
                    group.values[f"{night}", unit] = [v * self.of_parts[i, g] for v in values]
        return group

    def figures(
        self,
        count: int,
        correlation: float = 0.0,
        tails: float = np.inf,
        outliers: float = 0.0,
        only: Iterable[tuple[str, ...]] = (),
    ) -> list[Group]:
        """Several figures of every node.

        :arg correlation: of the noise of each two. :arg tails: degrees of freedom of Student's t.
        :arg outliers: share of values, of each figure for itself, that are 10 to 40 % lower.
        :arg only: nodes that are slow in the first figure only.
        """
        shape = self.nights, self.nodes, count
        noise = np.sqrt(correlation) * self.random.standard_normal((*shape[:2], 1))
        noise = noise + np.sqrt(1 - correlation) * self.random.standard_normal(shape)
        if tails < np.inf:
            noise /= np.sqrt(self.random.chisquare(tails, shape) / tails)
        out = self.random.random(shape) < outliers
        values = (1 + self.noise * noise) * (1 - out * self.random.uniform(0.1, 0.4, shape))
        values *= (self.of_nights[:, None] * self.of_nodes)[..., None]
        groups = [Group(f"figure {k}", "higher") for k in range(count)]
        for night, (i, name), (k, group) in itertools.product(
            range(self.nights), enumerate(self.names), enumerate(groups)
        ):
            left = 1.0 if k and (name,) in only else self.loss(night, (name,))
            group.values[f"{night}", (name,)] = [float(values[night, i, k]) * left]
        return groups

    def again(self, group: Group, suspects: Iterable[tuple], rows: int) -> None:
        """Measures suspects again in their night, as a second stage does.

        :arg suspects: kind, name and night of each.
        """
        of_node: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for night, unit in group.values:
            of_node.setdefault((night, unit[0]), []).append(unit)
        for kind, name, night in suspects:
            if kind in ("node", "gpu"):
                for unit in of_node.get((night, name[0]), []) if kind == "node" else [name]:
                    i = int(unit[0][1:])
                    above = {unit[:1], unit, ("switch", self.of_switch[i])}
                    more = self.measured(int(night), i, rows, *above)
                    group.values[night, unit] = [*group.values[night, unit][:1], *more]
            elif kind == "pair":
                first = group.pairs[night, name][:1]
                group.pairs[night, name] = [*first, *self.pair(int(night), *name, rows)]

    def pair(self, night: int, one: str, other: str, rows: int = 1) -> list[float]:
        """Measurements between two nodes."""
        first, second = int(one[1:]), int(other[1:])
        across = sorted({self.of_switch[first], self.of_switch[second]})
        units = {(one,), (other,), (one, other), ("link", *across),
                 *(("switch", name) for name in across)}  # fmt: skip
        level = np.sqrt(self.of_nodes[first] * self.of_nodes[second])
        level *= self.of_nights[night] * self.loss(night, *units)
        return (level * (1 + self.random.normal(0, self.noise, rows))).tolist()

    def pairs(self, only: int | None = None) -> Group:
        """Random pairs of all nodes in rounds, every night anew.

        :arg only: number of rounds; of all that screening takes where not given.
        """
        group = Group("", "higher")
        for night in range(self.nights):
            for listed in rounds(self.names, seed=1000 * self.seed + night)[:only]:
                for one, other in listed:
                    pair = tuple(sorted((one, other)))
                    group.pairs[f"{night}", pair] = self.pair(night, *pair)
        return group
