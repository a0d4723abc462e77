"""What changed besides the figures: the nodes, their host facts, and the builds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from plumbline.check.record import Record

#: End of the facts that each node has a value of its own for, as an interface's address. Another
#: value is another node under the same name, and a new node's is no change.
_OWN = ".address"

_Facts = tuple[dict[tuple[str, str], dict[str, str]], dict[tuple[str, str], dict[str, str]]]


@dataclass(frozen=True)
class HostChange:
    """A fact with another value after.

    :ivar what: the fact of a node (``kernel``), or of a build (``osu @openmpi: version``).
    :ivar before: the value, or "" if it is not known.
    :ivar where: the nodes or test cases with this change.
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
    :ivar known: number of nodes with facts on both sides; 0 if nothing can be compared.
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
        return any((self.hosts, self.elsewhere, self.builds, self.new_nodes, self.gone_nodes))


def differences(records: Iterable[Record], before: set[str], after: set[str]) -> Surroundings:
    """Compare the nodes and builds of both sides; of several values on one side, the last counts.

    :arg records: of both sides, oldest session first.
    :arg before: names of its sessions; ``after`` likewise.
    """
    nodes: tuple[set[str], set[str]] = (set(), set())
    #: By a prefix of their names, and by node or test case.
    hosts: _Facts = (defaultdict(dict), defaultdict(dict))
    builds: _Facts = (defaultdict(dict), defaultdict(dict))
    for record in records:
        if record.session not in before | after:
            continue
        side = int(record.session in after)
        nodes[side].update(record.nodes, record.hosts)
        for node, facts in record.hosts.items():
            hosts[side]["", node].update(facts)
        if record.build:
            case = f"{record.check} @{record.system}:{record.partition}"
            build = f"{record.benchmark or record.check} @{record.environment}: "
            builds[side][build, case] = record.build
    previous = defaultdict(set)
    for facts in hosts[0].values():
        for name, value in facts.items():
            previous[name].add(value)
    return Surroundings(
        hosts=_changes(_on_both(hosts)),
        elsewhere=_changes(
            (name, ", ".join(sorted(previous[name])), value, place[1])
            for place in hosts[1].keys() - hosts[0].keys()
            for name, value in hosts[1][place].items()
            if name in previous and value not in previous[name] and not name.endswith(_OWN)
        ),
        builds=_changes(_on_both(builds)),
        new_nodes=sorted(nodes[1] - nodes[0]) if nodes[0] else [],
        gone_nodes=sorted(nodes[0] - nodes[1]) if nodes[1] else [],
        known=len(hosts[0].keys() & hosts[1].keys()),
    )


def _on_both(facts: _Facts) -> Iterator[tuple[str, str, str, str]]:
    """Yield fact, values before and after, and place, for all places with facts on both sides."""
    for prefix, place in facts[0].keys() & facts[1].keys():
        before, after = (side[prefix, place] for side in facts)
        for name in before.keys() | after.keys():
            # An earlier version did not record it.
            if name.endswith(_OWN) and not (name in before and name in after):
                continue
            yield f"{prefix}{name}", before.get(name, ""), after.get(name, ""), place


def _changes(facts: Iterable[tuple[str, str, str, str]]) -> list[HostChange]:
    """Return the facts that differ, each pair of values once, with all its places."""
    found = defaultdict(set)
    for what, before, after, where in facts:
        if before != after:
            found[what, before, after].add(where)
    return [HostChange(*key, sorted(places)) for key, places in sorted(found.items())]
