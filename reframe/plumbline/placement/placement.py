"""Placements: from a node's topology to the exact CPUs, memory and GPUs of every task.

Independent of ReFrame and of launchers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from plumbline.core.text import suggest
from plumbline.placement.topology import Core, Gpu, PlacementError, Topology


@dataclass(frozen=True)
class Task:
    """One task: its node (counted from 0), the cores it may run on, its memory and its GPUs.

    :ivar memory: the operating system's number of the NUMA domain that its memory must come from;
        ``None`` for any.
    :ivar gpus: numbers of the GPUs that it sees, in this order; empty for any.
    """

    node: int
    cores: tuple[Core, ...]
    memory: int | None = None
    gpus: tuple[int, ...] = ()

    @property
    def cpus(self) -> tuple[int, ...]:
        """The first hardware thread of each of its cores, where its threads run."""
        return tuple(core.cpus[0] for core in self.cores)

    @property
    def hardware_threads(self) -> frozenset[int]:
        """All hardware threads of its cores; it may run on no other CPU."""
        return frozenset(cpu for core in self.cores for cpu in core.cpus)


@dataclass(frozen=True)
class Layout:
    """One run of a program: every task with its exact CPU set, in rank order, node by node.

    :ivar placement: the placement's name in reference rows.
    :ivar locations: which of several it measures, such as ``gpu0-gpu1``: one name, one
        for each task, or all that one process goes through by itself; empty if there is only one.
    :ivar racks: the number of racks that its nodes must be in.
    :ivar vendor: ``cuda`` or ``rocm`` if its GPUs matter.
    """

    placement: str
    tasks: tuple[Task, ...]
    locations: tuple[str, ...] = ()
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

    @property
    def own_gpus(self) -> bool:
        """Whether each task of a node has GPUs of its own; otherwise all see the same ones."""
        return len({task.gpus for task in self.tasks}) > 1


def _on_socket(topology: Topology) -> list[Task]:
    for cores in topology.by_socket():
        if len(cores) >= 2:
            return [Task(0, (cores[0],)), Task(0, (cores[1],))]
    raise PlacementError(
        "needs two cores on one socket; no socket has two usable ones",
        code="placement.too-few-cores",
    )


def _on_node(topology: Topology) -> list[Task]:
    sockets = topology.by_socket()
    if len(sockets) < 2:
        raise PlacementError(
            "needs two sockets; this node has one", code="placement.too-few-sockets"
        )
    return [Task(0, (sockets[0][0],)), Task(0, (sockets[1][0],))]


def _one_task_per_node(topology: Topology, nodes: int) -> list[Task]:
    return [Task(node, topology.cores[:1]) for node in range(nodes)]


def _host_to_host(topology: Topology) -> list[Task]:
    _require_gpus(topology)
    return _on_socket(topology)


def _full_node(topology: Topology, nodes: int) -> list[Task]:
    if len(topology.cores) < 2:
        raise PlacementError("needs two cores; this node has one", code="placement.too-few-cores")
    return [Task(node, (core,)) for node in range(nodes) for core in topology.cores]


def _tasks_per_node(topology: Topology, nodes: int, tasks: int) -> list[Task]:
    """Give each task an equal share of the cores, within a socket if the tasks divide evenly among
    the sockets."""
    if not 1 <= tasks <= len(topology.cores):
        raise PlacementError(
            f"{tasks} tasks per node requested; this node has {len(topology.cores)} usable cores, "
            f"and each task needs one",
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


def _require_gpus(topology: Topology) -> None:
    if not topology.gpus:
        raise PlacementError("needs a GPU; this node has none", code="placement.no-gpu")


def _with_gpus(placement: str, topology: Topology, one_process: bool) -> list[Layout]:
    """Return the layouts of ``per-gpu``, ``all-gpus``, ``off-socket`` or a class of pairs."""
    _require_gpus(topology)
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
            raise PlacementError(
                "needs cores on a socket that is not the GPU's; this node has none",
                code="placement.too-few-sockets",
            )
    else:
        layouts = [
            Layout(placement, _pair(topology, *pair), (f"gpu{pair[0]}-gpu{pair[1]}",))
            for pair in topology.pairs.get(placement, [])
        ]
        if not layouts:
            raise PlacementError(
                "extras.pair_classes of the partition has no such class",
                code="placement.no-pair-class",
            )
    if one_process:
        names = tuple(name for layout in layouts for name in layout.locations)
        task = Task(0, topology.cores, None, tuple(gpu.number for gpu in topology.gpus))
        return [Layout(placement, (task,), names, vendor=topology.vendor)]
    return [replace(layout, vendor=topology.vendor) for layout in layouts]


def _every_gpu(topology: Topology, nodes: int) -> list[Task]:
    """Return a task for each GPU, on its part of the GPU's cores.

    Each sees all GPUs of its node, for the reasons of :func:`_pair`.
    """
    _require_gpus(topology)
    if nodes * len(topology.gpus) < 2:
        raise PlacementError("needs two GPUs; this node has one", code="placement.no-gpu")
    numbers = tuple(gpu.number for gpu in topology.gpus)
    shares = [_share(gpu, topology) for gpu in topology.gpus]
    return [Task(node, cores, None, numbers) for node in range(nodes) for cores in shares]


def _share(gpu: Gpu, topology: Topology) -> tuple[Core, ...]:
    """Return a GPU's part of its cores, which other GPUs may be as near to."""
    cores = set(gpu.cores)
    sharing = [other for other in topology.gpus if cores & set(other.cores)]
    if any(set(other.cores) != cores for other in sharing):
        raise PlacementError(
            f"GPU {gpu.number} shares some of its cores with another GPU, but not all: in "
            f"extras.gpu_affinity, give the two GPUs the same cpus, or none in common",
            code="placement.wrong-topology",
        )
    share = len(gpu.cores) // len(sharing)
    if not share:
        raise PlacementError(
            f"GPU {gpu.number} has no core of its own: {len(sharing)} GPUs share {len(cores)}",
            code="placement.too-few-cores",
        )
    first = sharing.index(gpu) * share
    return gpu.cores[first : first + share]


def _far_cores(gpu: Gpu, topology: Topology) -> tuple[Core, ...]:
    sockets = {core.socket for core in gpu.cores}
    return tuple(core for core in topology.cores if core.socket not in sockets)


def _pair(topology: Topology, first: int, second: int) -> tuple[Task, Task]:
    """Return two tasks that both see both GPUs.

    OSU's programs choose theirs by local rank, and memory that processes share is mapped only if
    the other's GPU is visible.
    """
    gpus = (first, second)
    for one, other in itertools.product(*(topology.gpus[gpu].cores for gpu in gpus)):
        if one != other:
            return Task(0, (one,), None, gpus), Task(0, (other,), None, gpus)
    raise PlacementError(
        f"GPUs {first} and {second} share a single core; their two tasks need two",
        code="placement.too-few-cores",
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


def _numa_matrix(topology: Topology, one_process: bool) -> list[Layout]:
    domains = sorted(topology.by_numa())
    pairs = {
        f"numa{topology.os_number(cores)}-numa{topology.os_number(memory)}": (cores, memory)
        for cores, memory in itertools.product(domains, domains)
    }
    if one_process:
        return [Layout("numa-matrix", (Task(0, topology.cores),), tuple(pairs))]
    return [replace(_numa(topology, *pair), locations=(name,)) for name, pair in pairs.items()]


#: Every placement except ``numa-M-N`` -> its meaning.
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
    "tasks-per-node": "N tasks on every node of the job, each on an equal share of its cores",
    "host-to-host": "two tasks on two cores of one socket, of a node that has GPUs",
    "per-gpu": "each GPU of the node alone, driven from the cores nearest to it",
    "all-gpus": "all GPUs of the node at once, a task for each on the cores nearest to it",
    "gpus-on-node": "a task for each GPU of a node, on the cores nearest to it; it sees all GPUs",
    "gpus-off-node": "a task for each GPU of every node of the job, as in gpus-on-node",
    "off-socket": "each GPU of the node alone, driven from the cores of another socket",
    "gpu-a": "two GPUs of one node, of the nearest class of pairs",
    "gpu-b": "two GPUs of one node, of the second class of pairs",
    "gpu-c": "two GPUs of one node, of the third class of pairs",
    "gpu-d": "two GPUs of one node, of the farthest class of pairs",
    "numa-matrix": "the cores of each NUMA domain with the memory of each",
}

#: How the tasks of a placement are laid out, from the topology, the number of nodes and the number
#: of tasks on each.
_TASKS: dict[str, Callable[[Topology, int, int], list[Task]]] = {
    "one-core": lambda node, *_: _one_task_per_node(node, 1),
    "all-cores": lambda node, *_: [Task(0, node.cores)],
    "one-socket": lambda node, *_: [Task(0, tuple(node.by_socket()[0]))],
    "on-socket": lambda node, *_: _on_socket(node),
    "on-node": lambda node, *_: _on_node(node),
    "off-node": lambda node, *_: _one_task_per_node(node, 2),
    "off-rack": lambda node, *_: _one_task_per_node(node, 2),
    "node-pairs": lambda node, *_: _one_task_per_node(node, 2),
    "host-to-host": lambda node, *_: _host_to_host(node),
    "full-node": lambda node, nodes, _: _full_node(node, nodes),
    "one-task-per-node": lambda node, nodes, _: _one_task_per_node(node, nodes),
    "tasks-per-node": _tasks_per_node,
    "gpus-on-node": lambda node, *_: _every_gpu(node, 1),
    "gpus-off-node": lambda node, nodes, _: _every_gpu(node, nodes),
}

_OF_GPUS = ("per-gpu", "all-gpus", "off-socket", "gpu-a", "gpu-b", "gpu-c", "gpu-d")

_NEED_TWO_NODES = ("off-node", "off-rack", "node-pairs", "one-task-per-node", "gpus-off-node")

#: Placements whose number of nodes the check sets.
_OPEN = ("full-node", "one-task-per-node", "tasks-per-node", "gpus-off-node")

#: Placement -> those that a partition lists if it has this one too.
_COMES_WITH = {
    "node-pairs": ("off-node",),
    "gpus-on-node": ("all-gpus",),
    "gpus-off-node": ("all-gpus", "off-node"),
}

#: Placements with numbers: cores of NUMA domain M, memory of NUMA domain N.
_NUMA = re.compile(r"numa-(\d+)-(\d+)")


def exists(placement: str) -> bool:
    """Return whether there is a placement of this name."""
    return placement in PLACEMENTS or _NUMA.fullmatch(placement) is not None


def suggestion(placement: str) -> str:
    """Return, for a message, the placements that a wrong name resembles, or else all of them."""
    names = [*PLACEMENTS, "numa-M-N"]
    return suggest(placement, names, ", ".join(names))


def features(placement: str) -> tuple[str, ...]:
    """Return the placements that a partition lists if it has this one."""
    return _COMES_WITH.get(placement, (placement,))


def fits_one_node(placement: str, nodes: int) -> bool:
    """Return whether a job of this placement can run on one node.

    :arg nodes: number of nodes, for placements that leave it open; 0 if the partition decides.
    """
    return placement not in _NEED_TWO_NODES and (placement not in _OPEN or nodes < 2)


def lay_out(
    placement: str,
    topology: Topology,
    nodes: int = 1,
    tasks_per_node: int = 1,
    one_process: bool = False,
) -> tuple[Layout, ...]:
    """Return one layout, or several of one size that a job measures one after the other: each GPU,
    each pair of a class, each pair of NUMA domains.

    :arg nodes: number of nodes, for placements that leave it open.
    :arg tasks_per_node: for ``tasks-per-node``.
    :arg one_process: whether the program goes through GPUs and pairs by itself.
    :raises PlacementError: if the placement is unknown or the topology does not have it.
    """
    try:
        if numa := _NUMA.fullmatch(placement):
            return (_numa(topology, int(numa[1]), int(numa[2])),)
        if placement == "numa-matrix":
            return tuple(_numa_matrix(topology, one_process))
        if placement in _OF_GPUS:
            return tuple(_with_gpus(placement, topology, one_process))
        if placement not in _TASKS:
            message = f"no such placement; {suggestion(placement)}"
            raise PlacementError(message, code="placement.unknown")
        tasks = tuple(_TASKS[placement](topology, nodes, tasks_per_node))
        racks = 2 if placement == "off-rack" else 1
        vendor = topology.vendor if tasks[0].gpus else ""
        return (Layout(placement, tasks, racks=racks, vendor=vendor),)
    except PlacementError as err:
        raise PlacementError(f"placement {placement!r}: {err}", code=err.code) from None


def why_missing(placement: str, topology: Topology) -> str | None:
    """Return why a topology does not have a placement, or ``None`` if it has."""
    try:
        lay_out(placement, topology)
    except PlacementError as err:
        return str(err)
    return None


def of_one_node(topology: Topology) -> list[str]:
    """Return the placements that a single node of this topology has.

    With one socket, ``one-socket`` would measure the same as ``all-cores``.
    """
    unlisted = {*_NEED_TWO_NODES, *_COMES_WITH}
    if len(topology.by_socket()) == 1:
        unlisted.add("one-socket")
    return [
        name for name in PLACEMENTS if name not in unlisted and why_missing(name, topology) is None
    ]
