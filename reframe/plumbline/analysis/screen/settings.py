"""Settings of network interfaces, GPUs and CPUs in which a node differs from its peers: MTU, speed,
state; power cap, clocks, ECC mode, compute mode; limit of CPU time.

They are facts of the hosts in the records. A difference needs no statistics: a node whose interface
has another MTU than the same interface of its peers is flagged on the night on which it is seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from plumbline.analysis.screen.detection import FEWEST
from plumbline.analysis.screen.flag import Flag
from plumbline.analysis.screen.input import extras_of
from plumbline.check import network, throttling
from plumbline.check.record import Record
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.reference.waivers import matches

#: The facts that peers have in common, by their prefix: of an Ethernet or InfiniBand interface, and
#: of a bond; of a GPU; of the CPUs.
COMPARED = {
    network.FACT: ("mtu", "speed", "rate", "state", "lower"),
    throttling.FACT: (
        *("power_limit", "max_clock", "max_memory_clock", "max_link", "host_link", "ecc"),
        *("application_clock", "application_memory_clock", "compute_mode"),
        *("persistence", "performance_level"),
    ),
    "cpu.": ("max_frequency", "quota"),
}

#: Share of the nodes that must agree. As for values, up to a quarter may be wrong at once.
AGREE = 0.75


def of_night(
    history: History, select: Selection, night_of: Mapping[str, str], night: str
) -> list[Flag]:
    """Return the flags of :func:`differing` of a night; none of a CSV file, which has no facts.

    :arg night_of: of each session.
    """
    tonight = tuple(session for session, of in night_of.items() if of == night)
    # Without a session, those of all nights would be selected.
    if not tonight or history.from_csv:
        return []
    return differing(history.records(replace(select, sessions=tonight)), night)


def differing(records: Iterable[Record], night: str) -> list[Flag]:
    """Return a flag for each node whose interfaces differ from those of its peers.

    What the ``accepted_settings`` of the system file have is no difference.

    :arg records: of one night, oldest first. Peers are the nodes of one partition, and the last
        fact of a node counts.
    """
    partitions: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    for record in records:
        of_partition = partitions[record.system, record.partition]
        for node, facts in record.hosts.items():
            of_partition.setdefault(node, {}).update(facts)
    found = []
    for (system, partition), nodes in partitions.items():
        accepted = extras_of(system).get(partition, {}).get("accepted_settings", [])
        differences: dict[str, list[str]] = defaultdict(list)
        for prefix in COMPARED:
            for node, text in _of_kind(nodes, prefix, accepted):
                differences[node].append(text)
        found += [
            Flag(night, "setting", (node,), 0.0, 1.0, night, evidence=evidence)
            for node, evidence in differences.items()
        ]
    return sorted(found, key=lambda flag: flag.name)


def _of_kind(
    nodes: Mapping[str, Mapping[str, str]], prefix: str, accepted: Sequence[str]
) -> Iterable[tuple[str, str]]:
    """Yield node and difference, of the facts with a prefix. A node without any of them did not
    report them: the GPUs are read by cases on GPUs alone. One with an accepted fact is no peer."""
    kind = {
        node: {
            name: value for name, value in facts.items()
            if name.startswith(prefix) and name.rpartition(".")[2] in COMPARED[prefix]
        }
        for node, facts in nodes.items()
    }  # fmt: skip
    reported = {node: facts for node, facts in kind.items() if facts}
    for fact in sorted({fact for facts in reported.values() for fact in facts}):
        name = fact.removeprefix(network.FACT)
        texts = {node: facts.get(fact, "") for node, facts in reported.items()}
        peers = {
            node: text for node, text in texts.items()
            if not throttling.unknown(fact, reported[node])
            and not any(matches(pattern, f"{name}={text or 'missing'}") for pattern in accepted)
        }  # fmt: skip
        value, count = next(iter(Counter(peers.values()).most_common(1)), ("", 0))
        works = not fact.endswith(".state") or value in network.UP
        # An interface or GPU that most nodes do not have, or a link that is down on most, is none.
        agreed = value not in ("", "-1") and works and count >= AGREE * len(peers)
        if agreed and count >= FEWEST - 1:
            for node, text in peers.items():
                if text != value:
                    differs = f"{name} is {text or 'missing'}"
                    yield node, f"{differs}; {value} on {count} of {len(peers)} nodes"
