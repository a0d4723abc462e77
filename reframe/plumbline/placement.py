"""Placements: where the tasks of a benchmark sit.

Pure: from a processor topology (ReFrame's own ``processor`` dictionary) and the CPUs that
may be used, to the exact CPU set of every task. Knows nothing of ReFrame or of launchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace


class PlacementError(Exception):
    """The placement is unknown, or this topology does not have it."""


@dataclass(frozen=True)
class Core:
    """One physical core: its usable hardware threads, its socket and its NUMA domain.

    :ivar logical_socket: number of its socket among those with usable cores.
    :ivar logical_core: number of the core among the usable ones of its socket.
    """

    cpus: tuple[int, ...]
    socket: int
    numa: int
    logical_socket: int = 0
    logical_core: int = 0


@dataclass(frozen=True)
class Topology:
    """The usable cores of a node, socket by socket, and the last-level cache.

    :ivar cores: cores in order of socket, NUMA domain and first CPU number.
    :ivar last_level_cache: bytes of one last-level cache, all that one core can use; 0 where
        it is not known.
    """

    cores: tuple[Core, ...]
    last_level_cache: int = 0

    @classmethod
    def from_processor(cls, processor: dict, usable: Iterable[int] | None = None) -> Topology:
        """Reads ReFrame's ``processor`` dictionary.

        :arg usable: the CPU numbers that may be used; all where not given. A core counts as
            usable with those of its hardware threads that are.
        :raises PlacementError: if the dictionary has no topology or no CPU is usable.
        """
        topology = processor.get("topology") or {}
        if not topology.get("cores"):
            raise PlacementError("no processor topology is known")
        sockets = [cpus_of_mask(mask) for mask in topology.get("sockets", [])]
        domains = [cpus_of_mask(mask) for mask in topology.get("numa_nodes", [])]
        allowed = None if usable is None else set(usable)
        cores = []
        for mask in topology["cores"]:
            cpus = [c for c in cpus_of_mask(mask) if allowed is None or c in allowed]
            if cpus:
                cores.append(
                    Core(tuple(cpus), _index_of(cpus[0], sockets), _index_of(cpus[0], domains))
                )
        if not cores:
            raise PlacementError("none of the node's CPUs may be used")
        cores.sort(key=lambda core: (core.socket, core.numa, core.cpus))
        by_socket = _grouped(cores, lambda core: core.socket)
        cores = [
            replace(core, logical_socket=socket, logical_core=index)
            for socket, group in enumerate(by_socket)
            for index, core in enumerate(group)
        ]
        caches = topology.get("caches", [])
        level = max((c["type"] for c in caches), default="")
        size = max((c["size"] for c in caches if c["type"] == level), default=0)
        return cls(tuple(cores), size)

    def by_socket(self) -> list[list[Core]]:
        """The usable cores of each socket that has any."""
        return _grouped(self.cores, lambda core: core.socket)

    def by_numa(self) -> dict[int, list[Core]]:
        """The usable cores of each NUMA domain that has any, keyed by the domain's number."""
        groups = _grouped(self.cores, lambda core: core.numa)
        return {group[0].numa: group for group in groups}


@dataclass(frozen=True)
class Task:
    """One task: its node (counted from 0), the cores it may run on and its memory domain.

    :ivar memory: NUMA domain that its memory must come from; ``None`` leaves it free.
    """

    node: int
    cores: tuple[Core, ...]
    memory: int | None = None

    @property
    def cpus(self) -> tuple[int, ...]:
        """The first hardware thread of each of its cores: where its threads sit."""
        return tuple(core.cpus[0] for core in self.cores)

    @property
    def hardware_threads(self) -> frozenset[int]:
        """All hardware threads of its cores: a binding may name no other CPU."""
        return frozenset(cpu for core in self.cores for cpu in core.cpus)


@dataclass(frozen=True)
class Layout:
    """A placement on a topology: every task with its exact CPU set, in rank order."""

    placement: str
    tasks: tuple[Task, ...]

    @property
    def num_tasks(self) -> int:
        return len(self.tasks)

    @property
    def num_nodes(self) -> int:
        return len({task.node for task in self.tasks})

    @property
    def num_tasks_per_node(self) -> int:
        return sum(task.node == 0 for task in self.tasks)

    @property
    def num_cpus_per_task(self) -> int:
        return max(len(task.cores) for task in self.tasks)


#: More than any Linux kernel is built for.
_MOST_CPUS = 2**16


def cpus_of_mask(mask: str) -> list[int]:
    """CPU numbers of a hexadecimal CPU mask (``0x3`` is CPUs 0 and 1)."""
    value = int(mask, 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def cpus_of_list(text: str) -> set[int]:
    """CPU numbers of the kernel's list format (``0-3,8``).

    :raises ValueError: if the text is not in that format.
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        start, end = int(first), int(last or first)
        if not 0 <= start <= end < _MOST_CPUS:
            raise ValueError(f"{part!r} names no CPUs")
        cpus.update(range(start, end + 1))
    return cpus


def _index_of(cpu: int, groups: list[list[int]]) -> int:
    return next((i for i, group in enumerate(groups) if cpu in group), 0)


def _grouped(cores: Iterable[Core], key: Callable[[Core], int]) -> list[list[Core]]:
    groups: dict[int, list[Core]] = {}
    for core in cores:
        groups.setdefault(key(core), []).append(core)
    return list(groups.values())


def _one_core(topology: Topology) -> list[Task]:
    return [Task(0, topology.cores[:1])]


def _all_cores(topology: Topology) -> list[Task]:
    return [Task(0, topology.cores)]


def _one_socket(topology: Topology) -> list[Task]:
    return [Task(0, tuple(topology.by_socket()[0]))]


def _full_node(topology: Topology) -> list[Task]:
    if len(topology.cores) < 2:
        raise PlacementError("it takes two cores, this node has one")
    return [Task(0, (core,)) for core in topology.cores]


def _on_socket(topology: Topology) -> list[Task]:
    for cores in topology.by_socket():
        if len(cores) >= 2:
            return [Task(0, (cores[0],)), Task(0, (cores[1],))]
    raise PlacementError("it takes two cores of one socket")


def _on_node(topology: Topology) -> list[Task]:
    sockets = topology.by_socket()
    if len(sockets) < 2:
        raise PlacementError("it takes two sockets, this node has one")
    return [Task(0, (sockets[0][0],)), Task(0, (sockets[1][0],))]


def _off_node(topology: Topology) -> list[Task]:
    return [Task(0, topology.cores[:1]), Task(1, topology.cores[:1])]


#: Every placement but ``numa-M-N``, and what it means.
PLACEMENTS = {
    "one-core": "one task on one core",
    "all-cores": "one task that may use every core of the node",
    "one-socket": "one task that may use every core of one socket",
    "on-socket": "two tasks on two cores of one socket",
    "on-node": "two tasks on two sockets of one node",
    "off-node": "two tasks on two nodes",
    "off-rack": "two tasks on two nodes of two racks",
    "full-node": "one task on every core of one node",
    "one-task-per-node": "one task on every node of the job",
    "host-to-host": "two tasks on two CPUs of a node that has accelerators",
    "per-gpu": "one task for each GPU of the node, on the cores nearest to it",
    "off-socket": "one task on one socket and a GPU on the other",
    "gpu-a": "two tasks, each with a GPU, of the nearest class of pairs",
    "gpu-b": "two tasks, each with a GPU, of the second class of pairs",
    "gpu-c": "two tasks, each with a GPU, of the third class of pairs",
    "gpu-d": "two tasks, each with a GPU, of the farthest class of pairs",
}

#: How those are laid out that a topology of cores gives; the others need devices, racks or a
#: number of nodes.
_PLACE: dict[str, Callable[[Topology], list[Task]]] = {
    "one-core": _one_core,
    "all-cores": _all_cores,
    "one-socket": _one_socket,
    "on-socket": _on_socket,
    "on-node": _on_node,
    "off-node": _off_node,
    "full-node": _full_node,
}

#: Placements with numbers: cores of NUMA domain M, memory of NUMA domain N.
_NUMA = re.compile(r"numa-(\d+)-(\d+)")


def known(placement: str) -> bool:
    """Whether Plumbline knows a placement of this name."""
    return placement in PLACEMENTS or _NUMA.fullmatch(placement) is not None


def describe() -> str:
    """The names of all placements, for messages."""
    return ", ".join([*PLACEMENTS, "numa-M-N"])


def lay_out(placement: str, topology: Topology) -> Layout:
    """Places the tasks on the topology.

    :raises PlacementError: if the placement is unknown or the topology does not have it.
    """
    numa = _NUMA.fullmatch(placement)
    try:
        if numa:
            domains = topology.by_numa()
            cores, memory = int(numa[1]), int(numa[2])
            for domain in (cores, memory):
                if domain not in domains:
                    raise PlacementError(f"this node has no usable NUMA domain {domain}")
            return Layout(placement, (Task(0, tuple(domains[cores]), memory),))
        if placement not in PLACEMENTS:
            raise PlacementError(f"unknown; Plumbline knows {describe()}")
        if placement not in _PLACE:
            raise PlacementError("no check lays it out yet (docs/roadmap.md, step 3)")
        return Layout(placement, tuple(_PLACE[placement](topology)))
    except PlacementError as err:
        raise PlacementError(f"placement {placement!r}: {err}") from None


def missing(placement: str, topology: Topology) -> str | None:
    """Why a topology does not have a placement; ``None`` if it has, or if the placement needs more
    than a topology of cores tells."""
    if placement in PLACEMENTS and placement not in _PLACE:
        return None
    try:
        lay_out(placement, topology)
    except PlacementError as err:
        return str(err)
    return None


def of_one_node(topology: Topology) -> list[str]:
    """The placements that a single node of this topology really has."""
    names = [name for name in _PLACE if name != "off-node"]
    domains = sorted(topology.by_numa())
    names += [f"numa-{cores}-{memory}" for cores in domains for memory in domains]
    return [name for name in names if missing(name, topology) is None]
