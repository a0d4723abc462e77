"""What a node is by its own kernel, compared with what the system file says of it.

Numbers of packages differ between machines (0 and 8 on POWER9) and mean nothing: what must agree is
which CPUs are of one package, of one core and of one NUMA domain. ``numactl`` takes the operating
system's numbers of NUMA domains, so these must agree too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from plumbline.placement.binding.common import cpu_list
from plumbline.placement.proof import QUOTED, BindingMismatch
from plumbline.placement.topology import cpus_of_list, cpus_of_mask, ranges_of_list

Groups = frozenset[frozenset[int]]


class TopologyMismatch(BindingMismatch):
    """The node is not as the system file says."""


@dataclass(frozen=True)
class NodeReport:
    """A node as its kernel has it (see ``task.sh``); what it does not show is empty.

    :ivar packages: the CPUs of each package, ``cores`` those of each core.
    :ivar numa: the operating system's number of each NUMA domain that has CPUs -> these.
    :ivar gpus: PCI bus id and NUMA domain of each GPU, in the order in which programs count them;
        ``?`` and ``None`` where the node does not show them.
    """

    packages: Groups = frozenset()
    cores: Groups = frozenset()
    numa: dict[int, frozenset[int]] = field(default_factory=dict)
    gpus: tuple[tuple[str, int | None], ...] = ()


def nodes(stderr: str) -> Iterator[tuple[str, NodeReport]]:
    """The nodes that tasks reported on standard error, one by one: host and node.

    :raises BindingMismatch: if such a line cannot be read.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for line in stderr.splitlines():
        words = line.split()
        if words[:1] == ["plumbline-node"] and len(words) > 2:
            found.setdefault(words[1], {})[words[2]] = words[3:]
    for host, facts in found.items():
        try:
            # In a few bytes each may say that it has as many CPUs as there can be.
            yield host, _node(facts)
        except ValueError as err:
            told = f"what {host[:QUOTED]} reports of itself cannot be read: {err}"
            raise BindingMismatch(told, code="proof.unreadable") from None


def _node(facts: dict[str, list[str]]) -> NodeReport:
    numa = dict(word.split("=") for word in facts.get("numa", []))
    gpus = [word.split("=") for word in facts.get("gpus", [])]
    return NodeReport(
        frozenset(_groups(facts.get("packages", []))),
        frozenset(_groups(facts.get("cores", []))),
        dict(zip(map(int, numa), _groups(numa.values()), strict=True)),
        # The kernel's number is -1 where the firmware tells none.
        tuple((bus, int(near) if near.isdigit() else None) for bus, near in gpus),
    )


def _groups(lists: Iterable[str]) -> list[frozenset[int]]:
    """CPUs of each of several lists, which have none in common."""
    lists = list(lists)
    if lists:
        ranges_of_list(",".join(lists))
    return [frozenset(cpus_of_list(cpus)) for cpus in lists]


@dataclass(frozen=True)
class Told:
    """What a partition's entry in the system file says: ReFrame's ``processor`` and ``devices``,
    and its ``extras``."""

    processor: dict[str, Any]
    devices: list[dict[str, Any]]
    extras: dict[str, Any]

    def groups(self, level: str) -> list[frozenset[int]]:
        """The CPUs of each of ``processor.topology.<level>``."""
        masks = self.processor.get("topology", {}).get(level, [])
        return [frozenset(cpus_of_mask(mask)) for mask in masks]

    @property
    def numa_numbers(self) -> list[int]:
        """What the operating system calls each NUMA domain."""
        domains = self.groups("numa_nodes")
        return list(self.extras.get("numa_os_numbers") or range(len(domains)))


def confirm(told: Told, host: str, node: NodeReport, gpus: bool) -> bool:
    """Compares a node with what the system file says of it.

    :arg gpus: whether the GPUs matter.
    :returns: whether the node shows all of it.
    :raises TopologyMismatch: on a difference; it names the entries.
    """
    differences = [*_of_processor(told, node), *(_of_gpus(told, node) if gpus else ())]
    if differences:
        raise TopologyMismatch(
            f"{host} is not the node that is described: {'; '.join(differences)}",
            code="topology.mismatch",
        )
    shown = node.packages and node.cores and node.numa
    return bool(shown and not (gpus and _unknown(told, node)))


def _of_processor(told: Told, node: NodeReport) -> Iterator[str]:
    cores = told.groups("cores")
    online = frozenset[int]().union(*node.cores)
    if node.cores and {*cores} != node.cores:
        threads = {max(map(len, groups)) for groups in (cores, node.cores)}
        smt = (
            f" (SMT: {max(map(len, cores))} hardware threads of a core, on the node "
            f"{max(map(len, node.cores))})"
            if len(threads) > 1
            else ""
        )
        yield _difference("processor.topology.cores", cores, node.cores, "core") + smt
    # CPUs that are offline are a difference of the cores alone.
    sockets, domains = (
        [group & online if node.cores else group for group in told.groups(level)]
        for level in ("sockets", "numa_nodes")
    )
    if sockets and node.packages and {*sockets} - {frozenset()} != node.packages:
        yield _difference("processor.topology.sockets", sockets, node.packages, "package")
    numbers = {cpus: number for number, cpus in node.numa.items()}
    if domains and numbers and {*domains} - {frozenset()} != numbers.keys():
        key = "processor.topology.numa_nodes"
        yield _difference(key, domains, frozenset(numbers), "NUMA domain")
    elif found := [numbers.get(cpus) for cpus in domains if numbers]:
        wanted = [*zip(domains, told.numa_numbers, strict=True)]
        for (cpus, number), its in zip(wanted, found, strict=True):
            if its not in (number, None):
                own = told.extras.get("numa_os_numbers")
                key = "extras.numa_os_numbers" if own else "processor.topology.numa_nodes"
                yield (
                    f"{key} says that CPUs {cpu_list(tuple(cpus))} are NUMA domain {number}; "
                    f"there they are {its}"
                )
                break


def _difference(key: str, told: list[frozenset[int]], found: Groups, what: str) -> str:
    """The first group that is not the node's, and the node's that has its first CPU."""
    group = next((group for group in told if group not in found), frozenset())
    first = min(group, default=None)
    its = next((other for other in found if first in other), None)
    if its is None:
        extra = sorted(frozenset().union(*found) - frozenset().union(*told))
        there = f"CPU {first} is not online" if group else f"has CPUs {cpu_list(tuple(extra))} more"
    else:
        there = f"CPU {first} is in one with {cpu_list(tuple(its))}"
    return f"{key} says that CPUs {cpu_list(tuple(group))} are one {what}; there {there}"


def _gpus_told(told: Told) -> list[int | None]:
    """The NUMA domain of each GPU, by the operating system's numbers; ``None`` where it is not
    said."""
    count = sum(d.get("num_devices", 1) for d in told.devices if d.get("type") == "gpu")
    affinity = told.extras.get("gpu_affinity") or [{}] * count
    domains, found = told.groups("numa_nodes"), []
    for near in affinity:
        index = near.get("numa")
        if index is None and "cpus" in near:
            first = min(cpus_of_list(str(near["cpus"])))
            index = next((n for n, cpus in enumerate(domains) if first in cpus), None)
        found.append(None if index is None else told.numa_numbers[index])
    return found


def _of_gpus(told: Told, node: NodeReport) -> Iterator[str]:
    wanted = _gpus_told(told)
    if node.gpus and len(node.gpus) != len(wanted):
        yield f"devices says that there are {len(wanted)} GPUs; there are {len(node.gpus)}"
        return
    for number, (near, (bus, numa)) in enumerate(zip(wanted, node.gpus, strict=False)):
        if None not in (near, numa) and near != numa:
            yield (
                f"extras.gpu_affinity says that GPU {number} is at NUMA domain {near}; there it is "
                f"({bus}) at {numa}"
            )


def _unknown(told: Told, node: NodeReport) -> bool:
    """Whether the node does not show all that is said of its GPUs."""
    pairs = zip(_gpus_told(told), node.gpus, strict=False)
    return not node.gpus or any(near is not None and numa is None for near, (_, numa) in pairs)
