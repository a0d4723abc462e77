"""What changed around the figures: the nodes, their host facts, and the builds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from plumbline.check.record import Record


@dataclass(frozen=True)
class HostChange:
    """A fact that has another value after.

    :ivar what: the fact of a node (``kernel``), or of a build (``osu @openmpi: version``).
    :ivar before: the value, or "" where it was not told.
    :ivar where: the nodes, or test cases, of which this is so.
    """

    what: str
    before: str
    after: str
    where: list[str]


@dataclass
class Surroundings:
    """What differs between the two sides besides the figures.

    :ivar hosts: facts of nodes that ran on both sides.
    :ivar elsewhere: facts of new nodes, with values that no node had before.
    :ivar known: nodes with facts, on both sides; without any, nothing can be said of them.
    """

    hosts: list[HostChange] = field(default_factory=list)
    elsewhere: list[HostChange] = field(default_factory=list)
    builds: list[HostChange] = field(default_factory=list)
    new_nodes: list[str] = field(default_factory=list)
    gone_nodes: list[str] = field(default_factory=list)
    known: int = 0

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        return bool(
            self.hosts or self.elsewhere or self.builds or self.new_nodes or self.gone_nodes
        )


def differences(records: Iterable[Record], before: set[str], after: set[str]) -> Surroundings:
    """What the records' nodes and builds say of both sides; of several values of one fact on one
    side, the last.

    :arg records: of both sides, oldest session first.
    :arg before: names of its sessions; ``after`` too.
    """
    facts: tuple[dict, dict] = ({}, {})
    nodes: tuple[set, set] = (set(), set())
    builds: tuple[dict, dict] = ({}, {})
    for fields in records:
        if fields.session not in before | after:
            continue
        side = int(fields.session in after)
        nodes[side].update(fields.nodes, fields.hosts)
        for node, told in fields.hosts.items():
            facts[side].setdefault(node, {}).update(told)
        if fields.build:
            case = f"{fields.check} @{fields.system}:{fields.partition}"
            key = fields.benchmark or fields.check, fields.environment, case
            builds[side][key] = fields.build
    result = Surroundings(
        new_nodes=sorted(nodes[1] - nodes[0]) if nodes[0] else [],
        gone_nodes=sorted(nodes[0] - nodes[1]) if nodes[1] else [],
        known=len(facts[0].keys() & facts[1].keys()),
    )
    result.hosts = _changes(
        (name, value, facts[1][node].get(name, ""), node)
        for node in facts[0].keys() & facts[1].keys()
        for name, value in _both(facts[0][node], facts[1][node])
    )
    seen = defaultdict(set)
    for told in facts[0].values():
        for name, value in told.items():
            seen[name].add(value)
    result.elsewhere = _changes(
        (name, ", ".join(sorted(seen[name])), value, node)
        for node in facts[1].keys() - facts[0].keys()
        for name, value in facts[1][node].items()
        if name in seen and value not in seen[name]
    )
    result.builds = _changes(
        (f"{key[0]} @{key[1]}: {name}", value, builds[1][key].get(name, ""), key[2])
        for key in builds[0].keys() & builds[1].keys()
        for name, value in _both(builds[0][key], builds[1][key])
    )
    return result


def _both(before: dict[str, str], after: dict[str, str]) -> Iterable[tuple[str, str]]:
    """Each fact that either side has, with its value before."""
    return ((name, before.get(name, "")) for name in before.keys() | after.keys())


def _changes(told: Iterable[tuple[str, str, str, str]]) -> list[HostChange]:
    """What differs, each pair of values once, with where it is so."""
    found = defaultdict(list)
    for what, before, after, where in told:
        if before != after:
            found[what, before, after].append(where)
    return [HostChange(*key, sorted(set(places))) for key, places in sorted(found.items())]
