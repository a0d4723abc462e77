"""A node as its own kernel reports it, compared with its description in the system file.

Package numbers differ between machines (0 and 8 on POWER9) and mean nothing. What must agree is
which CPUs are of one package, of one core and of one NUMA domain, and the operating system's
numbers of the NUMA domains, which ``numactl`` takes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plumbline.placement.proof import QUOTED, BindingMismatch, lines_by_word
from plumbline.placement.topology import (
    cpu_list,
    cpus_of_list,
    cpus_of_mask,
    gpu_mode,
    ranges_of_list,
)

Groups = frozenset[frozenset[int]]


class TopologyMismatch(BindingMismatch):
    """The node differs from its description in the system file."""


@dataclass(frozen=True)
class NodeReport:
    """A node as its kernel has it (see ``task.sh``); what it does not show is empty.

    :ivar packages: the CPUs of each package, ``cores`` those of each core.
    :ivar numa: the operating system's number of each NUMA domain that has CPUs -> these.
    :ivar gpus: PCI bus id and NUMA domain of each GPU, in the order in which programs count them;
        ``?`` and ``None`` if the node does not show them.
    :ivar gpu_modes: of those that can be divided: ``MIG``, ``SPX/NPS1``.
    """

    packages: Groups = frozenset()
    cores: Groups = frozenset()
    numa: dict[int, frozenset[int]] = field(default_factory=dict)
    gpus: tuple[tuple[str, int | None], ...] = ()
    gpu_modes: frozenset[str] = frozenset()


def read_nodes(stderr: str) -> Iterator[tuple[list[str], NodeReport]]:
    """Yield each node that tasks reported on standard error, with all hosts that are like it.

    :raises BindingMismatch: if such a line cannot be read.
    """
    reported: dict[str, dict[str, str]] = {}
    for line in lines_by_word(stderr).get("plumbline-node", ()):
        words = line.split(maxsplit=3)
        if len(words) > 2:
            reported.setdefault(words[1], {})[words[2]] = "".join(words[3:])
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for host, facts in reported.items():
        alike.setdefault(tuple(facts.items()), []).append(host)
    # One by one: a report of a few bytes may claim as many CPUs as there can be.
    for values, hosts in alike.items():
        try:
            yield hosts, _node({fact: value.split() for fact, value in values})
        except ValueError as err:
            raise BindingMismatch(
                f"the report of node {hosts[0][:QUOTED]} cannot be read: {err}",
                code="proof.unreadable",
            ) from None


def _node(facts: dict[str, list[str]]) -> NodeReport:
    numa = dict(word.split("=") for word in facts.get("numa", []))
    gpus = [word.split("=") for word in facts.get("gpus", [])]
    return NodeReport(
        frozenset(_groups(facts.get("packages", []))),
        frozenset(_groups(facts.get("cores", []))),
        dict(zip(map(int, numa), _groups([*numa.values()]), strict=True)),
        # The kernel reports -1 if the firmware does not give the domain.
        tuple((bus, int(domain) if domain.isdigit() else None) for bus, domain in gpus),
        frozenset(facts.get("modes", [])),
    )


def _groups(lists: list[str]) -> list[frozenset[int]]:
    """Return the CPUs of each list.

    :raises ValueError: if a list cannot be read, or they have CPUs in common.
    """
    if lists:
        ranges_of_list(",".join(lists))
    return [cpus_of_list(cpus) for cpus in lists]


@functools.cache
def _described(mask: str) -> frozenset[int]:
    """Return the CPUs of a mask in a system file."""
    return frozenset(cpus_of_mask(mask))


@dataclass(frozen=True)
class NodeDescription:
    """A partition's entry in the system file: ``processor``, ``devices`` and ``extras``."""

    processor: dict[str, Any]
    devices: list[dict[str, Any]]
    extras: dict[str, Any]

    def groups(self, level: str) -> list[frozenset[int]]:
        """Return the CPUs of each of ``processor.topology.<level>``."""
        masks = self.processor.get("topology", {}).get(level, [])
        return [_described(mask) for mask in masks]

    @property
    def numa_numbers(self) -> list[int]:
        """The operating system's number of each NUMA domain."""
        domains = self.groups("numa_nodes")
        return list(self.extras.get("numa_os_numbers") or range(len(domains)))

    def gpu_domains(self) -> list[int | None]:
        """Return the NUMA domain of each GPU, by the operating system's numbers; ``None`` if it is
        not given."""
        count = sum(d.get("num_devices", 1) for d in self.devices if d.get("type") == "gpu")
        found = []
        for affinity in self.extras.get("gpu_affinity") or [{}] * count:
            index = affinity.get("numa")
            if index is None and "cpus" in affinity:
                first = min(cpus_of_list(str(affinity["cpus"])))
                domains = enumerate(self.groups("numa_nodes"))
                index = next((n for n, cpus in domains if first in cpus), None)
            found.append(None if index is None else self.numa_numbers[index])
        return found


def compare_node(described: NodeDescription, host: str, node: NodeReport, gpus: bool) -> bool:
    """Compare a node with its description in the system file.

    :arg gpus: whether the GPUs matter.
    :returns: whether the node shows all that is described.
    :raises TopologyMismatch: on a difference; the message names the entries.
    """
    if gpus and node.gpu_modes:
        _compare_modes(described.extras.get("gpu_mode", ""), host, gpu_mode(node.gpu_modes))
    differences = [*_compare_groups(described, node)] or [*_compare_numbers(described, node)]
    differences += _compare_gpus(described, node) if gpus else ()
    if differences:
        raise TopologyMismatch(
            f"{host} differs from its description in the system file: {'; '.join(differences)}",
            code="topology.mismatch",
        )
    if gpus and not node.gpus:
        return False
    pairs = zip(described.gpu_domains(), node.gpus, strict=False) if gpus else ()
    hidden = any(domain is not None and found is None for domain, (_, found) in pairs)
    return bool(node.packages and node.cores and node.numa and not hidden)


def _compare_groups(described: NodeDescription, node: NodeReport) -> Iterator[str]:
    """Yield the differences of cores, packages and NUMA domains, as groups of CPUs."""
    cores = described.groups("cores")
    if node.cores and {*cores} != node.cores:
        threads = [max(map(len, groups)) for groups in (cores, node.cores)]
        smt = f" (SMT: {threads[0]} hardware threads per core, on the node {threads[1]})"
        yield _difference("cores", cores, node.cores, "core") + smt * (threads[0] != threads[1])
    # CPUs that are offline are a difference of the cores alone.
    online = frozenset[int]().union(*node.cores)
    for level, found, what in (
        ("sockets", node.packages, "package"),
        ("numa_nodes", frozenset(node.numa.values()), "NUMA domain"),
    ):
        groups = [group & online if node.cores else group for group in described.groups(level)]
        if groups and found and {*groups} - {frozenset()} != found:
            yield _difference(level, groups, found, what)


def _difference(level: str, described: list[frozenset[int]], found: Groups, what: str) -> str:
    """Return the first group of CPUs that the node does not have, and what it has instead."""
    group = next((group for group in described if group not in found), frozenset())
    first = min(group, default=None)
    actual = next((other for other in found if first in other), None)
    if actual is not None:
        on_node = f"CPU {first} is in one with {cpu_list(actual)}"
    elif group:
        on_node = f"CPU {first} is not online"
    else:
        extra = frozenset().union(*found) - frozenset().union(*described)
        on_node = f"CPUs {cpu_list(extra)} exist in addition"
    key = f"processor.topology.{level}"
    return f"{key} has CPUs {cpu_list(group)} as one {what}, but on the node {on_node}"


def _compare_numbers(described: NodeDescription, node: NodeReport) -> Iterator[str]:
    """Yield the first NUMA domain that the node has with the same CPUs and another number."""
    online = frozenset[int]().union(*node.cores)
    numbers = {cpus: number for number, cpus in node.numa.items()}
    for group, number in zip(described.groups("numa_nodes"), described.numa_numbers, strict=True):
        cpus = group & online if node.cores else group
        found = numbers.get(cpus, number)
        if found != number:
            own = described.extras.get("numa_os_numbers")
            key = "extras.numa_os_numbers" if own else "processor.topology.numa_nodes"
            yield (
                f"{key} has CPUs {cpu_list(cpus)} as NUMA domain {number}, but on the node "
                f"they are {found}"
            )
            return


def _compare_modes(described: str, host: str, found: str) -> None:
    if described != found:
        on_file, on_node = (f"divided ({mode})" if mode else "whole" for mode in (described, found))
        raise TopologyMismatch(
            f"the GPUs of {host} are {on_node}, but by extras.gpu_mode in the system file they are "
            f"{on_file}",
            code="topology.gpu-mode",
        )


def _compare_gpus(described: NodeDescription, node: NodeReport) -> Iterator[str]:
    domains = described.gpu_domains()
    if node.gpus and len(node.gpus) != len(domains):
        hidden = described.extras.get("detect") and len(node.gpus) > len(domains)
        cause = ": a control group may hide the others, so request all of them" if hidden else ""
        yield f"devices has {len(domains)} GPUs, but the node has {len(node.gpus)}{cause}"
        return
    for number, (domain, (bus, found)) in enumerate(zip(domains, node.gpus, strict=False)):
        if None not in (domain, found) and domain != found:
            yield (
                f"extras.gpu_affinity has GPU {number} at NUMA domain {domain}, but on the node it "
                f"is ({bus}) at {found}"
            )
