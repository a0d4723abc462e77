"""IBM's jsrun: resource sets."""

from __future__ import annotations

from plumbline.placement.binding.common import (
    Binding,
    cpu_list,
    gpu_by_local_rank,
    gpu_of_each,
    own_gpus,
    per_node,
)
from plumbline.placement.placement import Layout, Task
from plumbline.placement.topology import Topology


def jsrun(layout: Layout, topology: Topology | None) -> Binding:
    """Resource sets that jsrun itself puts on the layout's cores, where its guide says that it
    does; else one set with the whole node, in which ``task.sh`` binds each task by its local rank.

    No explicit resource file (ERF): "a known bug is currently preventing execution of most ERF use
    cases" (OLCF, Summit User Guide, "Explicit Resource Files (ERF)"), and physical CPU numbers end
    with "error in ptssup_mkcltsock_afunix()" (RADICAL-Pilot, agent/launch_method/jsrun.py). One set
    and a wrapper is the guide's own advice where tasks share GPUs (the same, "CUDA Aware MPI with
    >1 resource set per node").
    """
    tasks = per_node(layout)
    found = _sets(layout, tasks, topology)
    if found is None:
        return _whole_node(layout, tasks)
    sets, tasks_per_set, cores, gpus = found
    request = _request(layout, sets, tasks_per_set, str(cores), gpus)
    return Binding((*request, "-b", f"packed:{len(tasks[0].cores)}"))


def _request(layout: Layout, sets: int, tasks: int, cores: str, gpus: str) -> tuple[str, ...]:
    """The options for so many sets on each node, with so many tasks, cores and GPUs in each. The
    guide advises to rely on no default."""
    count = ("-n", str(layout.num_nodes * sets), "-r", str(sets), "-a", str(tasks))
    near = ("-l", "gpu-cpu") if gpus == "1" else ()
    return (*count, "-c", cores, "-g", gpus, *near, "-d", "packed")


def _sets(
    layout: Layout, tasks: tuple[Task, ...], topology: Topology | None
) -> tuple[int, int, int, str] | None:
    """Sets on each node, and tasks, cores and GPUs in each, where jsrun puts them on the layout's
    cores; ``None`` where it is not sure to.

    ``-c`` counts cores that are not isolated, and each is given with all its threads. Sets take
    them in order from the first socket on; a set with a GPU takes those of the GPU's socket; and
    ``-b packed:<n>`` gives the tasks of a set n cores each, in order (Summit User Guide, "Common
    jsrun Options", "Jsrun Examples", "Using Multithreading in a Job").
    """
    size, count = len(tasks[0].cores), len(tasks)
    # A set has the memory of its sockets alone, so memory elsewhere takes the whole node.
    if any(len(task.cores) != size for task in tasks) or tasks[0].memory is not None:
        return None
    if own_gpus(layout):
        in_turn = gpu_of_each(tasks) == [str(gpu) for gpu in range(count)]
        return (count, 1, size, "1") if in_turn and _first_of_sockets(tasks) else None
    cores = [core for task in tasks for core in task.cores]
    if topology is not None and cores == list(topology.cores):
        return 1, count, len(cores), "ALL_GPUS" if layout.vendor else "0"
    # With GPUs in the set, it is their socket that gives the first cores.
    if layout.vendor:
        return None
    if [(c.logical_socket, c.logical_core) for c in cores] == [(0, i) for i in range(len(cores))]:
        return 1, count, len(cores), "0"
    # A set as large as a socket is that socket, and each takes as many of the tasks.
    sockets = topology.by_socket() if topology is not None else []
    share = count // max(len(sockets), 1)
    if len({*map(len, sockets)}) == 1 and cores == [c for s in sockets for c in s[: share * size]]:
        return len(sockets), share, len(sockets[0]), "0"
    return None


def _first_of_sockets(tasks: tuple[Task, ...]) -> bool:
    """Whether the tasks in turn take the first cores of one socket, then of the next."""
    taken: dict[int, int] = {}
    for core in (core for task in tasks for core in task.cores):
        if core.logical_core != taken.setdefault(core.logical_socket, 0):
            return False
        taken[core.logical_socket] += 1
    return list(taken) == list(range(len(taken)))


def _whole_node(layout: Layout, tasks: tuple[Task, ...]) -> Binding:
    """One set with all cores of a node, and all GPUs where they matter (IBM, "jsrun command",
    ALL_CPUS and ALL_GPUS), to which jsrun binds each task as a whole."""
    options = _request(layout, 1, len(tasks), "ALL_CPUS", "ALL_GPUS" if layout.vendor else "0")
    threads = [tuple(cpu for core in task.cores for cpu in core.cpus) for task in tasks]
    words = [f"PLUMBLINE_CPUS={':'.join(map(cpu_list, threads))}"]
    if own_gpus(layout):
        words.append(gpu_by_local_rank(layout))
    return Binding((*options, "-b", "rs"), task=tuple(words))
