"""Placements: where the tasks of a benchmark sit.

Pure: from a node's topology to the exact CPUs, memory and GPUs of every task. Knows nothing of
ReFrame or of launchers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from plumbline.core.text import near
from plumbline.placement.topology import Core, Gpu, PlacementError, Topology


@dataclass(frozen=True)
class Task:
    """One task: its node (counted from 0), the cores it may run on, its memory and its GPUs.

    :ivar memory: the operating system's number of the NUMA domain that its memory must come from;
        ``None`` leaves it free.
    :ivar gpus: numbers of the GPUs that it sees, in this order; empty leaves them free.
    """

    node: int
    cores: tuple[Core, ...]
    memory: int | None = None
    gpus: tuple[int, ...] = ()

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
    """One run of a program: every task with its exact CPU set, in rank order, node by node.

    :ivar placement: the placement that references know it by.
    :ivar at: what it measures of several, ``gpu0-gpu1``: one name, or one for each task, or all
        that one process goes through by itself; empty where there is one.
    :ivar racks: racks that its nodes must be of.
    :ivar vendor: ``cuda`` or ``rocm`` where its GPUs matter.
    """

    placement: str
    tasks: tuple[Task, ...]
    at: tuple[str, ...] = ()
    racks: int = 1
    vendor: str = ""

    @property
    def num_tasks(self) -> int:
        return len(self.tasks)

    @property
    def num_nodes(self) -> int:
        return self.tasks[-1].node + 1

    @property
    def num_tasks_per_node(self) -> int:
        return sum(task.node == 0 for task in self.tasks)

    @property
    def num_cpus_per_task(self) -> int:
        return max(len(task.cores) for task in self.tasks)


def _one_core(topology: Topology) -> list[Task]:
    return [Task(0, topology.cores[:1])]


def _all_cores(topology: Topology) -> list[Task]:
    return [Task(0, topology.cores)]


def _one_socket(topology: Topology) -> list[Task]:
    return [Task(0, tuple(topology.by_socket()[0]))]


def _on_socket(topology: Topology) -> list[Task]:
    for cores in topology.by_socket():
        if len(cores) >= 2:
            return [Task(0, (cores[0],)), Task(0, (cores[1],))]
    raise PlacementError("it takes two cores of one socket", code="placement.too-few-cores")


def _on_node(topology: Topology) -> list[Task]:
    sockets = topology.by_socket()
    if len(sockets) < 2:
        raise PlacementError(
            "it takes two sockets, this node has one", code="placement.too-few-sockets"
        )
    return [Task(0, (sockets[0][0],)), Task(0, (sockets[1][0],))]


def _off_node(topology: Topology) -> list[Task]:
    return [Task(0, topology.cores[:1]), Task(1, topology.cores[:1])]


def _host_to_host(topology: Topology) -> list[Task]:
    if not topology.gpus:
        raise PlacementError("it is of nodes that have GPUs", code="placement.no-gpu")
    return _on_socket(topology)


def _full_node(topology: Topology, nodes: int) -> list[Task]:
    if len(topology.cores) < 2:
        raise PlacementError(
            "it takes two cores, this node has one", code="placement.too-few-cores"
        )
    return [Task(node, (core,)) for node in range(nodes) for core in topology.cores]


def _one_task_per_node(topology: Topology, nodes: int) -> list[Task]:
    return [Task(node, topology.cores[:1]) for node in range(nodes)]


def _tasks_per_node(topology: Topology, nodes: int, tasks: int) -> list[Task]:
    """Equal shares; of each socket where the tasks divide evenly among them."""
    if not 1 <= tasks <= len(topology.cores):
        raise PlacementError(
            f"{tasks} tasks need as many cores, this node has {len(topology.cores)}",
            code="placement.too-few-cores",
        )
    groups, per_group = topology.by_socket(), tasks // len(topology.by_socket())
    if tasks % len(groups) or per_group > min(map(len, groups)):
        groups, per_group = [list(topology.cores)], tasks
    share = min(map(len, groups)) // per_group
    return [
        Task(node, tuple(cores[index * share : (index + 1) * share]))
        for node in range(nodes)
        for cores in groups
        for index in range(per_group)
    ]


def _of_gpus(placement: str, topology: Topology, one_process: bool) -> list[Layout]:
    """``per-gpu``, ``all-gpus``, ``off-socket`` and the classes of pairs."""
    if not topology.gpus:
        raise PlacementError("this node has no GPU", code="placement.no-gpu")
    if placement == "all-gpus":
        tasks = tuple(Task(0, _share(gpu, topology), None, (gpu.number,)) for gpu in topology.gpus)
        names = tuple(f"gpu{gpu.number}" for gpu in topology.gpus)
        return [Layout(placement, tasks, names, vendor=topology.vendor)]
    if placement in ("per-gpu", "off-socket"):
        layouts = [
            Layout(placement, (Task(0, cores, None, (gpu.number,)),), (f"gpu{gpu.number}",))
            for gpu in topology.gpus
            if (cores := gpu.cores if placement == "per-gpu" else _far_cores(gpu, topology))
        ]
        if not layouts:
            raise PlacementError("it takes a second socket", code="placement.too-few-sockets")
    else:
        layouts = [
            Layout(placement, _pair(topology, *pair), (f"gpu{pair[0]}-gpu{pair[1]}",))
            for pair in topology.pairs.get(placement, [])
        ]
        if not layouts:
            raise PlacementError(
                "the pair_classes of the node have no such class", code="placement.no-pair-class"
            )
    if one_process:
        names = tuple(name for layout in layouts for name in layout.at)
        return [Layout(placement, (Task(0, topology.cores),), names, vendor=topology.vendor)]
    return [replace(layout, vendor=topology.vendor) for layout in layouts]


def _share(gpu: Gpu, topology: Topology) -> tuple[Core, ...]:
    """This GPU's part of the cores that are as near to other GPUs."""
    near = set(gpu.cores)
    rivals = [other.number for other in topology.gpus if near & set(other.cores)]
    if any(set(topology.gpus[rival].cores) != near for rival in rivals):
        raise PlacementError(
            f"GPU {gpu.number} has some of its cores in common with another GPU, and not all: make "
            f"the cpus of gpu_affinity the same, or have none in common",
            code="placement.wrong-topology",
        )
    share = len(gpu.cores) // len(rivals)
    if not share:
        raise PlacementError(
            f"GPU {gpu.number} has no core for itself", code="placement.too-few-cores"
        )
    first = rivals.index(gpu.number) * share
    return gpu.cores[first : first + share]


def _far_cores(gpu: Gpu, topology: Topology) -> tuple[Core, ...]:
    near = {core.socket for core in gpu.cores}
    return tuple(core for core in topology.cores if core.socket not in near)


def _pair(topology: Topology, first: int, second: int) -> tuple[Task, Task]:
    """Both tasks see both GPUs: OSU's take theirs by local rank, and memory that is shared
    between processes is mapped only if the other's GPU is visible."""
    gpus = (first, second)
    for one, other in itertools.product(*(topology.gpus[gpu].cores for gpu in gpus)):
        if one != other:
            return Task(0, (one,), None, gpus), Task(0, (other,), None, gpus)
    raise PlacementError(
        f"GPUs {first} and {second} have one core between them", code="placement.too-few-cores"
    )


def _numa(topology: Topology, cores: int, memory: int) -> Layout:
    domains = topology.by_numa()
    for domain in (cores, memory):
        if domain not in domains:
            raise PlacementError(
                f"this node has no usable NUMA domain {domain}", code="placement.no-numa-domain"
            )
    task = Task(0, tuple(domains[cores]), topology.os_number(memory))
    return Layout(f"numa-{cores}-{memory}", (task,))


#: Every placement but ``numa-M-N``, and what it means.
PLACEMENTS = {
    "one-core": "one task on one core",
    "all-cores": "one task that may use every core of the node",
    "one-socket": "one task that may use every core of one socket",
    "on-socket": "two tasks on two cores of one socket",
    "on-node": "two tasks on two sockets of one node",
    "off-node": "two tasks on two nodes",
    "off-rack": "two tasks on two nodes of two racks",
    "node-pairs": "two tasks on two nodes, on all nodes of the job at once, in rounds of new pairs",
    "full-node": "one task on every core of every node of the job",
    "one-task-per-node": "one task on one core of every node of the job",
    "tasks-per-node": "so many tasks on every node of the job, each on an equal share of its cores",
    "host-to-host": "two tasks on two cores of one socket, of a node that has GPUs",
    "per-gpu": "each GPU of the node alone, driven from the cores nearest to it",
    "all-gpus": "all GPUs of the node at once, a task for each on the cores nearest to it",
    "off-socket": "each GPU of the node alone, driven from the cores of another socket",
    "gpu-a": "two GPUs of one node, of the nearest class of pairs",
    "gpu-b": "two GPUs of one node, of the second class of pairs",
    "gpu-c": "two GPUs of one node, of the third class of pairs",
    "gpu-d": "two GPUs of one node, of the farthest class of pairs",
    "numa-matrix": "the cores of each NUMA domain with the memory of each",
}

#: Those of one or two nodes, laid out on the cores alone.
_FIXED: dict[str, Callable[[Topology], list[Task]]] = {
    "one-core": _one_core,
    "all-cores": _all_cores,
    "one-socket": _one_socket,
    "on-socket": _on_socket,
    "on-node": _on_node,
    "off-node": _off_node,
    "off-rack": _off_node,
    "node-pairs": _off_node,
    "host-to-host": _host_to_host,
}

_OF_GPUS = ("per-gpu", "all-gpus", "off-socket", "gpu-a", "gpu-b", "gpu-c", "gpu-d")

_NEED_TWO_NODES = ("off-node", "off-rack", "node-pairs", "one-task-per-node")

#: Placements whose number of nodes the check says.
_OPEN = ("full-node", "one-task-per-node", "tasks-per-node")

#: Those that every partition with another one has, too.
_COMES_WITH = {"node-pairs": "off-node"}

#: Placements with numbers: cores of NUMA domain M, memory of NUMA domain N.
_NUMA = re.compile(r"numa-(\d+)-(\d+)")


def known(placement: str) -> bool:
    """Whether Plumbline knows a placement of this name."""
    return placement in PLACEMENTS or _NUMA.fullmatch(placement) is not None


def meant(placement: str) -> str:
    """For a message: the placements that a name was perhaps meant for, or all that there are."""
    names = [*PLACEMENTS, "numa-M-N"]
    return near(placement, names, ", ".join(names))


def feature(placement: str) -> str:
    """The placement that a partition lists if it has this one: itself, or the one it comes with."""
    return _COMES_WITH.get(placement, placement)


def fits_one_node(placement: str, nodes: int) -> bool:
    """Whether a job of this placement can be had on one node.

    :arg nodes: of the placements whose number of nodes is open; 0 leaves it to the partition.
    """
    return placement not in _NEED_TWO_NODES and (placement not in _OPEN or nodes < 2)


def lay_out(
    placement: str,
    topology: Topology,
    nodes: int = 1,
    tasks_per_node: int = 1,
    one_process: bool = False,
) -> tuple[Layout, ...]:
    """Places the tasks on the topology: one layout, or several of one size that a job measures
    one after the other (each GPU, each pair of a class, each pair of NUMA domains).

    :arg nodes: of the placements whose number of nodes is open.
    :arg tasks_per_node: of ``tasks-per-node``.
    :arg one_process: the program goes through GPUs and pairs by itself.
    :raises PlacementError: if the placement is unknown or the topology does not have it.
    """
    try:
        return tuple(_layouts(placement, topology, nodes, tasks_per_node, one_process))
    except PlacementError as err:
        raise PlacementError(f"placement {placement!r}: {err}", code=err.code) from None


def _layouts(
    placement: str, topology: Topology, nodes: int, tasks_per_node: int, one_process: bool
) -> list[Layout]:
    numa = _NUMA.fullmatch(placement)
    if numa:
        return [_numa(topology, int(numa[1]), int(numa[2]))]
    if placement == "numa-matrix":
        domains = sorted(topology.by_numa())
        pairs = [(cores, memory) for cores in domains for memory in domains]
        names = [f"numa{topology.os_number(c)}-numa{topology.os_number(m)}" for c, m in pairs]
        if one_process:
            return [Layout(placement, (Task(0, topology.cores),), tuple(names))]
        return [
            replace(_numa(topology, *pair), at=(name,))
            for pair, name in zip(pairs, names, strict=True)
        ]
    if placement in _OF_GPUS:
        return _of_gpus(placement, topology, one_process)
    if placement == "full-node":
        tasks = _full_node(topology, nodes)
    elif placement == "one-task-per-node":
        tasks = _one_task_per_node(topology, nodes)
    elif placement == "tasks-per-node":
        tasks = _tasks_per_node(topology, nodes, tasks_per_node)
    elif placement in _FIXED:
        tasks = _FIXED[placement](topology)
    else:
        raise PlacementError(f"no such placement; {meant(placement)}", code="placement.unknown")
    return [Layout(placement, tuple(tasks), racks=2 if placement == "off-rack" else 1)]


def missing(placement: str, topology: Topology) -> str | None:
    """Why a topology does not have a placement; ``None`` if it has."""
    try:
        lay_out(placement, topology)
    except PlacementError as err:
        return str(err)
    return None


def of_one_node(topology: Topology) -> list[str]:
    """The placements that a single node of this topology really has."""
    return [
        name
        for name in PLACEMENTS
        if name not in _NEED_TWO_NODES and missing(name, topology) is None
    ]
