"""What changed besides the figures: the nodes, their host facts, the builds, and the variables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from plumbline.check import throttling
from plumbline.check.record import Record
from plumbline.placement.proof import NOT_SET

#: End of the facts that each node has a value of its own for, as an interface's address. Another
#: value is another node under the same name, and a new node's is no change.
_OWN = ".address"

_Facts = tuple[dict[tuple[str, str], dict[str, str]], dict[tuple[str, str], dict[str, str]]]


@dataclass(frozen=True)
class HostChange:
    """A fact with another value after.

    :ivar what: the fact of a node (``kernel``), of a build (``osu @openmpi: version``), or a
        variable (``osu @openmpi: UCX_TLS``).
    :ivar before: the value, or "" if it is not known.
    :ivar where: the nodes or test cases with this change.
    """

    what: str
    before: str
    after: str
    where: list[str]

    def __str__(self) -> str:
        return f"{self.what.rpartition(' ')[2]} from {self.before} to {self.after}"


@dataclass
class Surroundings:
    """What differs between the two sides besides the figures.

    :ivar hosts: facts of nodes that ran on both sides.
    :ivar elsewhere: facts of new nodes, with values that no node had before.
    :ivar variables: of test cases whose variables are known on both sides, as many as ``tuned``.
    :ivar known: number of nodes with facts on both sides; 0 if nothing can be compared.
    """

    hosts: list[HostChange] = field(default_factory=list)
    elsewhere: list[HostChange] = field(default_factory=list)
    builds: list[HostChange] = field(default_factory=list)
    variables: list[HostChange] = field(default_factory=list)
    new_nodes: list[str] = field(default_factory=list)
    gone_nodes: list[str] = field(default_factory=list)
    known: int = 0
    tuned: int = 0

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        changed = self.hosts, self.elsewhere, self.builds, self.variables
        return any((*changed, self.new_nodes, self.gone_nodes))


def differences(records: Iterable[Record], before: set[str], after: set[str]) -> Surroundings:
    """Compare nodes, builds and variables of both sides; of several values on a side, the last
    counts.

    :arg records: of both sides, oldest session first.
    :arg before: names of its sessions; ``after`` likewise.
    """
    nodes: tuple[set[str], set[str]] = (set(), set())
    #: By a prefix of their names, and by node or test case.
    hosts: _Facts = (defaultdict(dict), defaultdict(dict))
    builds: _Facts = (defaultdict(dict), defaultdict(dict))
    variables: _Facts = (defaultdict(dict), defaultdict(dict))
    for record in records:
        if record.session not in before | after:
            continue
        side = int(record.session in after)
        nodes[side].update(record.nodes, record.hosts)
        for node, facts in record.hosts.items():
            hosts[side]["", node].update(facts)
        case = f"{record.check} @{record.system}:{record.partition}"
        program = f"{record.benchmark or record.check} @{record.environment}: "
        if record.build:
            builds[side][program, case] = record.build
        if record.variables is not None:
            variables[side][program, case] = record.variables
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
        variables=_changes(_on_both(variables, NOT_SET)),
        new_nodes=sorted(nodes[1] - nodes[0]) if nodes[0] else [],
        gone_nodes=sorted(nodes[0] - nodes[1]) if nodes[1] else [],
        known=len(hosts[0].keys() & hosts[1].keys()),
        tuned=len(variables[0].keys() & variables[1].keys()),
    )


def _on_both(facts: _Facts, missing: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield fact, values before and after, and place, for all places with facts on both sides.

    :arg missing: the value of a fact that a place does not have.
    """
    for prefix, place in facts[0].keys() & facts[1].keys():
        before, after = (side[prefix, place] for side in facts)
        for name in before.keys() | after.keys():
            # An earlier version did not record it.
            if name.endswith(_OWN) and not (name in before and name in after):
                continue
            if throttling.unknown(name, before) or throttling.unknown(name, after):
                continue
            yield f"{prefix}{name}", before.get(name, missing), after.get(name, missing), place


def _changes(facts: Iterable[tuple[str, str, str, str]]) -> list[HostChange]:
    """Return the facts that differ, each pair of values once, with all its places."""
    found = defaultdict(set)
    for what, before, after, where in facts:
        if before != after:
            found[what, before, after].add(where)
    return [HostChange(*key, sorted(places)) for key, places in sorted(found.items())]
