"""IBM's jsrun: resource sets."""

from __future__ import annotations

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    SEVERAL_GPUS,
    Binding,
    Launcher,
    cpu_list,
    gpu_of_each,
    own_gpus,
    per_node,
)
from plumbline.placement.binding.words import gpu_by_local_rank
from plumbline.placement.placement import Layout, Task
from plumbline.placement.topology import Topology


def jsrun(layout: Layout, topology: Topology | None) -> Binding:
    """Return resource sets that jsrun puts on the layout's cores, if its guide says that it does;
    otherwise one set with the whole node, in which ``task.sh`` binds each task by its local rank.

    docs/launchers.md explains why, and why no explicit resource files are used.
    """
    tasks = per_node(layout)
    found = _sets(layout, tasks, topology)
    if found is None:
        return _whole_node(layout, tasks)
    sets, tasks_per_set, cores, gpus = found
    request = _request(layout, sets, tasks_per_set, str(cores), gpus)
    return Binding((*request, "-b", f"packed:{len(tasks[0].cores)}"))


def _request(layout: Layout, sets: int, tasks: int, cores: str, gpus: str) -> tuple[str, ...]:
    """Return all options, as the guide advises to rely on no default.

    :arg sets: number of sets on each node; ``tasks``, ``cores`` and ``gpus`` are those of each.
    """
    count = ("-n", str(layout.num_nodes * sets), "-r", str(sets), "-a", str(tasks))
    affinity = ("-l", "gpu-cpu") if gpus == "1" else ()
    return (*count, "-c", cores, "-g", gpus, *affinity, "-d", "packed")


def _sets(
    layout: Layout, tasks: tuple[Task, ...], topology: Topology | None
) -> tuple[int, int, int, str] | None:
    """Return the number of sets on each node, and of tasks, cores and GPUs in each, if jsrun is
    certain to put them on the layout's cores; otherwise ``None``.

    ``-c`` counts cores that are not isolated, each with all its threads. Sets take them in order
    from the first socket on; a set with a GPU takes those of the GPU's socket; ``-b packed:<n>``
    gives the tasks of a set n cores each, in order (Summit User Guide, "Common jsrun Options",
    "Jsrun Examples", "Using Multithreading in a Job").
    """
    size, count = len(tasks[0].cores), len(tasks)
    # A set has only the memory of its sockets, so memory elsewhere needs the whole node.
    if any(len(task.cores) != size for task in tasks) or tasks[0].memory is not None:
        return None
    if own_gpus(layout):
        in_turn = gpu_of_each(tasks) == [str(gpu) for gpu in range(count)]
        return (count, 1, size, "1") if in_turn and _first_of_sockets(tasks) else None
    cores = [core for task in tasks for core in task.cores]
    if topology is not None and cores == list(topology.cores):
        return 1, count, len(cores), "ALL_GPUS" if layout.vendor else "0"
    # The cores of a set with GPUs are those of their socket.
    if layout.vendor:
        return None
    if [(c.logical_socket, c.logical_core) for c in cores] == [(0, i) for i in range(len(cores))]:
        return 1, count, len(cores), "0"
    # A set as large as a socket is that socket, and each takes an equal part of the tasks.
    sockets = topology.by_socket() if topology is not None else []
    share = count // max(len(sockets), 1)
    if len({*map(len, sockets)}) == 1 and cores == [c for s in sockets for c in s[: share * size]]:
        return len(sockets), share, len(sockets[0]), "0"
    return None


def _first_of_sockets(tasks: tuple[Task, ...]) -> bool:
    """Return whether the tasks take the first cores of one socket, then of the next, in order."""
    taken: dict[int, int] = {}
    for core in (core for task in tasks for core in task.cores):
        if core.logical_core != taken.setdefault(core.logical_socket, 0):
            return False
        taken[core.logical_socket] += 1
    return list(taken) == list(range(len(taken)))


def _whole_node(layout: Layout, tasks: tuple[Task, ...]) -> Binding:
    """Return one set with all cores of a node, and all GPUs if they matter."""
    options = _request(layout, 1, len(tasks), "ALL_CPUS", "ALL_GPUS" if layout.vendor else "0")
    threads = [tuple(cpu for core in task.cores for cpu in core.cpus) for task in tasks]
    words = [f"PLUMBLINE_CPUS={':'.join(map(cpu_list, threads))}"]
    if own_gpus(layout):
        words.append(gpu_by_local_rank(layout))
    return Binding((*options, "-b", "rs"), task=tuple(words))


JSRUN = Launcher("jsrun", "jsrun", "launcher", jsrun, (NODES_DIFFER, SEVERAL_GPUS))
