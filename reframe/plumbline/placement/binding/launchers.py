"""How each launcher binds the tasks of a layout, and what it refuses."""

from __future__ import annotations

import shlex
from dataclasses import replace

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    OWN_GPUS,
    SEVERAL_GPUS,
    Binding,
    BindingError,
    Launcher,
    PairBinding,
    Refusal,
    gpu_of_each,
    mask,
    own_gpu_words,
    per_node,
    refuse_own_gpus,
)
from plumbline.placement.placement import Layout, Task
from plumbline.placement.topology import Topology, cpu_list

# -- none ---------------------------------------------------------------------------------------

SEVERAL_TASKS = Refusal("the local launcher starts one task", "several tasks")


def _local(layout: Layout, _: Topology | None) -> Binding:
    if layout.num_tasks != 1:
        raise BindingError(SEVERAL_TASKS.message)
    return Binding(("taskset", "-c", cpu_list(layout.tasks[0].cpus)))


# -- Hydra: that of MPICH, of MVAPICH and of the Intel MPI Library ------------------------------


def _hydra(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU set for each task of a node."""
    refuse_own_gpus(layout)
    sets = ",".join("+".join(map(str, task.cpus)) for task in per_node(layout))
    options = ["-bind-to", f"user:{sets}"]
    if layout.num_nodes > 1:
        options += ["-ppn", str(layout.num_tasks_per_node)]
    return Binding(tuple(options))


def _intel(layout: Layout, _: Topology | None) -> Binding:
    """Return one mask for each task of a node. Intel's Hydra ignores ``-bind-to user:``."""
    refuse_own_gpus(layout)
    masks = ",".join(mask(task.cpus) for task in per_node(layout))
    options = ("-genv", "I_MPI_PIN_DOMAIN", f"[{masks}]")
    if layout.num_nodes == 1:
        return Binding(options)
    placed = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"}
    return Binding(("-ppn", str(layout.num_tasks_per_node), *options), placed)


def _hydra_pair(bound: Binding) -> PairBinding:
    return PairBinding((), ("-hosts", '"$first,$second"', *map(shlex.quote, bound.options)))


# -- Open MPI: a rank file ----------------------------------------------------------------------

UNEQUAL_SOCKETS = Refusal(
    "it miscounts cores if sockets have different numbers of usable ones: keep the same number of "
    "cores of each socket for the system",
    "sockets have different numbers of usable cores",
)


MANY_RANGES = Refusal(
    "a line of its rank file has room for 63 characters, and the CPUs of a task make it longer",
    "the CPUs of a task are more ranges than a line of 63 characters has room for",
)


def _openmpi(layout: Layout, _: Topology | None) -> Binding:
    """Return a rank file with physical CPU numbers, each of which means the core that has it, with
    all its threads.

    Logical numbers (``slot=SOCKET:CORES``) are not used: Open MPI 4.1 reads the second core of
    ``0:0,1`` as a socket.
    """
    slots = []
    for task in layout.tasks:
        threads = [cpu for core in task.cores for cpu in core.cpus]
        # Where the threads of a core have neighbouring numbers, all of them are one range.
        slots.append(min(cpu_list(task.cpus), cpu_list(threads), key=len))
    options = ("--mca", "rmaps_rank_file_physical", "1", "--rankfile")
    return _rank_file(layout, options, "{}", slots)


def _openmpi5(layout: Layout, topology: Topology | None) -> Binding:
    """Return a rank file with ``slot=PACKAGE:CORES``, both logical among the usable CPUs: it has no
    physical numbers.

    PRRTE counts the cores of the packages before as if each had as many as this one. It also counts
    cores that are kept for the system without the kernel's help, which the proof detects.
    """
    if topology and len({len(cores) for cores in topology.by_socket()}) > 1:
        raise BindingError(UNEQUAL_SOCKETS.message)
    slots = [_slot(task) for task in layout.tasks]
    return _rank_file(layout, ("--map-by",), "rankfile:file={}", slots)


def _rank_file(layout: Layout, options: tuple[str, ...], last: str, slots: list[str]) -> Binding:
    """Return a rank file.

    Its hosts are ``+n0``, ``+n1`` of the allocation, or ``localhost`` without a scheduler.

    Open MPI 4 and PRRTE 3.0 copy ``HOST slot=SLOTS`` to 64 bytes without a look at its length
    (``rmaps_rank_file.c``): a longer one ends ``mpirun`` with SIGABRT.
    """
    refuse_own_gpus(layout)
    several = layout.num_nodes > 1
    hosts = [f"+n{node}" for node in range(layout.num_nodes)] if several else ["localhost"]
    name = f"rankfile-{layout.locations[0]}" if layout.locations else "rankfile"
    places = [f"{hosts[task.node]} slot={slots[rank]}" for rank, task in enumerate(layout.tasks)]
    if max(map(len, places)) > 63:
        raise BindingError(MANY_RANGES.message)
    lines = [f"rank {rank}={place}\n" for rank, place in enumerate(places)]
    return Binding((*options, last.format(name)), files={name: "".join(lines)})


def _slot(task: Task) -> str:
    """Return the cores of a task, each range with its package: PRRTE has no list of ranges."""
    by_socket: dict[int, list[int]] = {}
    for core in task.cores:
        by_socket.setdefault(core.logical_socket, []).append(core.logical_core)
    ranges = {socket: cpu_list(cores).split(",") for socket, cores in by_socket.items()}
    return ";".join(f"{socket}:{cores}" for socket in ranges for cores in ranges[socket])


def _openmpi_pair(bound: Binding) -> PairBinding:
    """Use a rank file for each pair, with the names of its two nodes."""
    *options, last = map(shlex.quote, bound.options)
    (name,) = bound.files
    edit = f'sed "s/=+n0 /=$first /; s/=+n1 /=$second /" {name} >{name}-$sample-$pair'
    words = ("--host", '"$first:1,$second:1"', *options, f"{last}-$sample-$pair")
    return PairBinding((edit,), words)


def _openmpi4_pair(bound: Binding) -> PairBinding:
    """Give each ``mpirun`` a session folder of its own.

    All that one user runs at once on a node make and remove the same ``/tmp/ompi.HOST.UID``, and
    one that loses the race ends with "orte_session_dir failed" (open-mpi/ompi#8510).
    """
    pair = _openmpi_pair(bound)
    own = "session=$(mktemp -d) || exit; trap 'rm -rf \"$session\"' EXIT"
    return PairBinding(
        (own, *pair.before), ("--mca", "orte_local_tmpdir_base", '"$session"', *pair.words)
    )


# -- Slurm --------------------------------------------------------------------------------------


def _srun(layout: Layout, topology: Topology | None) -> Binding:
    """Return one mask for each task of a node.

    A mask needs a step with all CPUs of its nodes. ``--cpus-per-task`` would narrow it, as it
    "implies --exact" (srun(1)). ``task.sh`` selects GPUs, by local rank: where Slurm constrains
    devices, ``--gpu-bind=map_gpu`` gives each task its own GPU as number 0, which confirms nothing.
    """
    tasks = per_node(layout)
    options = [
        f"--nodes={layout.num_nodes}",
        f"--ntasks={layout.num_tasks}",
        f"--ntasks-per-node={len(tasks)}",
        "--distribution=block",
        f"--cpu-bind=mask_cpu:{','.join(mask(task.cpus) for task in tasks)}",
    ]
    if layout.vendor:
        if topology and topology.gpus:
            options.append(f"--gpus-per-node={len(topology.gpus)}")
        options.append("--gpu-bind=none")
    return Binding(tuple(options), task=own_gpu_words(layout))


def _srun_pair(bound: Binding) -> PairBinding:
    """Run the pairs as concurrent steps of one job, each on its own nodes."""
    return PairBinding((), (*map(shlex.quote, bound.options), '--nodelist="$first,$second"'))


# -- IBM's jsrun: resource sets -----------------------------------------------------------------


def _jsrun(layout: Layout, topology: Topology | None) -> Binding:
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
    if layout.own_gpus:
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
    lists = f"PLUMBLINE_CPUS={':'.join(map(cpu_list, threads))}"
    return Binding((*options, "-b", "rs"), task=(lists, *own_gpu_words(layout)))


# -- Cray, SGI and HPE: ALPS, PALS, MPT ---------------------------------------------------------

UNEQUAL_BLOCKS = Refusal(
    "it binds several tasks with several cores on a node only to equal blocks of CPUs from CPU 0 "
    "on: use a number of tasks that divides the node's cores",
    "tasks with several cores do not fill CPUs 0, 1, 2, ... in turn",
)


def _alps(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU for each task of a node.

    A list of ``-cc`` binds each thread of a task to a single CPU, so the wrapper would see only the
    first. Tasks with several cores are therefore bound by ``taskset(1)`` if they are alone on their
    node, and by ``-cc depth`` if they take blocks of CPUs from CPU 0 on.
    """
    refuse_own_gpus(layout)
    tasks = per_node(layout)
    if all(len(task.cores) == 1 for task in tasks):
        return Binding(("-cc", ",".join(str(task.cpus[0]) for task in tasks)))
    if len(tasks) == 1:
        return Binding(("-cc", "none", "taskset", "-c", cpu_list(tasks[0].cpus)))
    depth = len(tasks[0].cores)
    blocks = [tuple(range(i * depth, (i + 1) * depth)) for i in range(len(tasks))]
    if [task.cpus for task in tasks] != blocks:
        raise BindingError(UNEQUAL_BLOCKS.message)
    return Binding(("-cc", "depth"))


def _pals(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU list for each task of a node.

    ``task.sh`` selects GPUs, by local rank: not every site has ``--gpu-bind``.
    """
    tasks = per_node(layout)
    lists = ":".join(cpu_list(task.cpus) for task in tasks)
    options = ("--ppn", str(len(tasks)), "--cpu-bind", f"list:{lists}")
    return Binding(options, task=own_gpu_words(layout))


def _mpt(layout: Layout, _: Topology | None) -> Binding:
    """Return the number of tasks on each node; ``task.sh`` binds each by its local rank.

    ``omplace`` gives a CPU of its list to each process in the order in which they are created
    (dplace(1)), those that ``task.sh`` starts included, and ``MPI_DSM_CPULIST`` would bind only in
    ``MPI_Init``, after the report. A program that a shell starts needs ``MPI_SHEPHERD``.
    """
    refuse_own_gpus(layout)
    tasks = per_node(layout)
    lists = f"PLUMBLINE_CPUS={':'.join(cpu_list(task.cpus) for task in tasks)}"
    job = {"MPI_DSM_OFF": "1", "MPI_SHEPHERD": "true"}
    return Binding(("-ppn", str(len(tasks))), job, task=(lists,))


# -- Flux ---------------------------------------------------------------------------------------


def _flux(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU list, and if each has its own GPU one GPU list, for each task of a node."""
    tasks = per_node(layout)
    gpus = f"map:{';'.join(gpu_of_each(tasks))}" if layout.own_gpus else "off"
    cpus = ";".join(cpu_list(task.cpus) for task in tasks)
    size = ("-N", str(layout.num_nodes), f"--tasks-per-node={len(tasks)}", "--exclusive")
    # Flux's own choice is in CUDA_VISIBLE_DEVICES (gpubind.c), which HIP counts in what that of the
    # environment leaves.
    env = ("--env=-ROCR_VISIBLE_DEVICES",) if layout.own_gpus else ()
    shell = ("mpibind=off", f"cpu-affinity=map:{cpus}", f"gpu-affinity={gpus}")
    return Binding((*size, *env, *(word for option in shell for word in ("-o", option))))


# -- all -----------------------------------------------------------------------------------------

_SAME_GPUS, _OWN_GPUS = (OWN_GPUS, NODES_DIFFER), (NODES_DIFFER, SEVERAL_GPUS)

_HYDRA = Launcher("mpiexec of MPICH", "mpiexec.hydra", _hydra, _SAME_GPUS, _hydra_pair)
_OPENMPI = Launcher(
    "mpirun of Open MPI 4", "mpirun", _openmpi, (OWN_GPUS, MANY_RANGES), _openmpi4_pair
)

#: ReFrame's launcher name, or the environment's ``process_manager`` -> the launcher.
LAUNCHERS: dict[str, Launcher] = {
    "local": Launcher("No launcher", "", _local, (SEVERAL_TASKS,)),
    "hydra": _HYDRA,
    "mpiexec": replace(_HYDRA, command="mpiexec"),
    "mpirun-intelmpi": Launcher("mpirun of Intel MPI", "mpirun", _intel, _SAME_GPUS, _hydra_pair),
    "mvapich": replace(
        _HYDRA, section="mpiexec of MVAPICH", command="mpiexec", key="process_manager"
    ),
    "openmpi": _OPENMPI,
    "mpirun-openmpi": _OPENMPI,
    "openmpi5": Launcher(
        "mpirun of Open MPI 5", "mpirun", _openmpi5, (OWN_GPUS, UNEQUAL_SOCKETS, MANY_RANGES),
        _openmpi_pair, key="process_manager",
    ),
    "srun": Launcher("srun", "srun", _srun, _OWN_GPUS, _srun_pair),
    "jsrun": Launcher("jsrun", "jsrun", _jsrun, _OWN_GPUS),
    "alps": Launcher("aprun", "aprun", _alps, (*_SAME_GPUS, UNEQUAL_BLOCKS), local_rank=False),
    "pals": Launcher("mpiexec of PALS", "mpiexec", _pals, _OWN_GPUS, key="process_manager"),
    "mpt": Launcher("mpiexec_mpt", "mpiexec_mpt", _mpt, _SAME_GPUS, local_rank=False),
    "flux-run": Launcher("flux run", "flux run", _flux, _OWN_GPUS),
}  # fmt: skip
