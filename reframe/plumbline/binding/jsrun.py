"""IBM's jsrun: resource sets, or a resource file."""

from __future__ import annotations

from plumbline.binding.common import Binding, cpu_list, file_name, gpu_of_each, own_gpus, per_node
from plumbline.placement import Layout, Task, Topology


def jsrun(layout: Layout, topology: Topology | None) -> Binding:
    """Resource sets where they are sure to be the layout's cores, an explicit resource file
    otherwise (IBM, "jsrun command" and "Explicit Resource File (ERF) format").

    Sets: jsrun takes the first free cores of the first socket in order, and with GPUs those of
    the GPU's socket; ``-c`` counts cores, and each is given with all its threads (OLCF, Summit
    User Guide, "Job Launcher (jsrun)", whose examples are on a node with core isolation). So a
    layout on the first cores of the first socket, on all usable cores, or with a GPU and the
    next cores of its socket for each task in turn needs no file. The guide knows of times when
    files did not work.
    """
    tasks = per_node(layout)
    sizes = {len(task.cores) for task in tasks}
    size, count, nodes = len(tasks[0].cores), len(tasks), layout.num_nodes
    if len(sizes) > 1 or tasks[0].memory is not None:
        return _resource_file(layout)
    cores = [core for task in tasks for core in task.cores]
    packed = ("-d", "packed", "-b", f"packed:{size}")
    if own_gpus(layout):
        in_turn = gpu_of_each(tasks) == [str(gpu) for gpu in range(count)]
        if not (in_turn and _first_of_sockets(tasks)):
            return _resource_file(layout)
        sets = ("-n", str(nodes * count), "-r", str(count), "-a", "1", "-c", str(size), "-g", "1")
        return Binding((*sets, "-l", "gpu-cpu", *packed))
    numbers = [(core.logical_socket, core.logical_core) for core in cores]
    first = numbers == [(0, index) for index in range(len(cores))]
    whole = topology is not None and cores == list(topology.cores)
    # With GPUs in the set, it is their socket that gives the first cores.
    if not (whole or (first and not layout.vendor)):
        return _resource_file(layout)
    sets = ("-n", str(nodes), "-r", "1", "-a", str(count), "-c", str(len(cores)))
    return Binding((*sets, "-g", "ALL_GPUS" if layout.vendor else "0", *packed))


def _first_of_sockets(tasks: tuple[Task, ...]) -> bool:
    """Whether the tasks in turn take the first cores of one socket, then of the next."""
    taken: dict[int, int] = {}
    for core in (core for task in tasks for core in task.cores):
        if core.logical_core != taken.setdefault(core.logical_socket, 0):
            return False
        taken[core.logical_socket] += 1
    return list(taken) == list(range(len(taken)))


def _resource_file(layout: Layout) -> Binding:
    """One resource set for each node, whose tasks are bound to one group of its CPUs each; one for
    each task where each has a GPU of its own. Hosts are counted from 1.

    CPUs by their physical numbers: the logical ones leave out isolated cores and change with
    the SMT mode (OLCF, "Explicit Resource File (ERF) CPU Indexing"). In a set that a node has
    alone, all memory and all GPUs stay reachable, and the words before the program narrow them;
    several sets may not name the same resource.
    """
    tasks = per_node(layout)
    own = own_gpus(layout)
    numbers = gpu_of_each(tasks) if own else []
    lines = ["cpu_index_using: physical"]
    sets = [f"{{{cpu_list(_threads(task))}}}" for task in tasks]
    for node in range(layout.num_nodes):
        first = node * len(tasks)
        if own:
            lines += [
                f"rank: {first + i}: {{ host: {node + 1}; cpu: {cpus}; gpu: {{{gpu}}} }}"
                for i, (cpus, gpu) in enumerate(zip(sets, numbers, strict=True))
            ]
        else:
            ranks = ",".join(str(first + i) for i in range(len(tasks)))
            gpus = " gpu: *;" if layout.vendor else ""
            lines.append(
                f"rank: {ranks}: {{ host: {node + 1}; cpu: {','.join(sets)};{gpus} mem: * }}"
            )
    name = file_name("resources", layout)
    return Binding(("--erf_input", name), files={name: "".join(f"{line}\n" for line in lines)})


def _threads(task: Task) -> tuple[int, ...]:
    return tuple(cpu for core in task.cores for cpu in core.cpus)
