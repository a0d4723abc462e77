"""Binding: from a layout and a launcher to that launcher's options, and the proof of it.

Pure: knows nothing of ReFrame. A launcher that cannot express a layout raises, so that the
check is skipped with that reason instead of measuring somewhere else.

A task is bound to the first hardware thread of each of its cores; a launcher that knows only whole
cores (jsrun, Open MPI) binds it to all threads of them. CPUs are named by the operating system's
numbers wherever the launcher takes them: its own numbers begin anew when cores are kept for the
system. The same options go to every node, so all nodes of a layout have the same tasks.

Memory is bound by ``numactl(8)`` for every launcher: the options that some have for it are hints,
or need a build that has them, and ``numactl`` fails aloud.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from plumbline.placement import Layout, Task, Topology, cpus_of_list


class BindingError(Exception):
    """This launcher cannot express this layout."""


class BindingMismatch(Exception):
    """The tasks did not run where the placement says, or not as many as it says."""


@dataclass(frozen=True)
class Binding:
    """What a launcher needs to place the tasks.

    :ivar options: the launcher's options.
    :ivar env_vars: environment variables of the job.
    :ivar files: files to write beside the job script, by name.
    :ivar task: words before the program, behind the task wrapper: ``NAME=VALUE``, ``numactl``.
    """

    options: tuple[str, ...] = ()
    env_vars: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    task: tuple[str, ...] = ()


# -- what every launcher needs -------------------------------------------------------------------


def _per_node(layout: Layout) -> tuple[Task, ...]:
    """The tasks of one node, which are those of every node."""
    count = layout.num_tasks_per_node
    first = layout.tasks[:count]
    for rank, task in enumerate(layout.tasks):
        told = first[rank % count]
        if (task.node, task.cores, task.gpus) != (rank // count, told.cores, told.gpus):
            raise BindingError(
                "it tells every node the same, and the nodes of this layout differ: give each "
                "node the same tasks"
            )
    return first


def _own_gpus(layout: Layout) -> bool:
    """Whether each task of a node has a GPU of its own; else all see the same ones."""
    return len({task.gpus for task in layout.tasks}) > 1


def _gpu_of_each(tasks: tuple[Task, ...]) -> list[str]:
    """The number of each task's own GPU."""
    if any(len(task.gpus) != 1 for task in tasks):
        raise BindingError("it gives each task one GPU, or all tasks the same ones")
    return [str(task.gpus[0]) for task in tasks]


def _no_own_gpus(layout: Layout) -> None:
    if _own_gpus(layout):
        raise BindingError(
            "it cannot give each task a GPU of its own: start the tasks with a launcher that can "
            "(srun, jsrun, flux-run, pals), by the partition's launcher or the environment's "
            "extras.launcher"
        )


def _list(cpus: tuple[int, ...]) -> str:
    """The kernel's list format: ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _mask(cpus: tuple[int, ...]) -> str:
    return hex(sum(1 << cpu for cpu in cpus))


def _file(name: str, layout: Layout) -> str:
    """Name of a file beside the job script: each layout of a job has its own."""
    return f"{name}-{layout.at[0]}" if layout.at else name


def _task_words(layout: Layout) -> tuple[str, ...]:
    """Words before the program, the same for every task."""
    words = []
    # OpenMP API 5.2, chapter 21: OMP_NUM_THREADS, OMP_PROC_BIND, OMP_PLACES. One thread sits on
    # the first hardware thread of each core. Tasks with different CPUs share these words: then a
    # place is a core of those that the task may use. Where they have different numbers of cores,
    # the runtime counts them.
    sizes = {len(task.cores) for task in layout.tasks}
    if len(sizes) == 1:
        words.append(f"OMP_NUM_THREADS={sizes.pop()}")
    words.append("OMP_PROC_BIND=close")
    sets = {task.cpus for task in layout.tasks}
    places = ",".join(f"{{{cpu}}}" for cpu in sets.pop()) if len(sets) == 1 else "cores"
    words.append(f"OMP_PLACES={places}")
    return (*words, *_gpu_words(layout), *_memory_words(layout))


def _gpu_words(layout: Layout) -> list[str]:
    """Which GPUs a task sees, where all tasks see the same ones.

    CUDA C++ Programming Guide, "CUDA Environment Variables"; ROCm, "GPU isolation techniques".
    """
    gpus = layout.tasks[0].gpus
    if gpus and layout.vendor not in ("cuda", "rocm"):
        raise BindingError(
            "whose the GPUs are is not known: give the arch of the partition's devices (sm_..., "
            "gfx...)"
        )
    numbers = ",".join(map(str, gpus)) if not _own_gpus(layout) else ""
    if layout.vendor == "cuda":
        # Without it CUDA counts the fastest GPU first.
        words = ["CUDA_DEVICE_ORDER=PCI_BUS_ID"]
        return [*words, f"CUDA_VISIBLE_DEVICES={numbers}"] if numbers else words
    return [f"ROCR_VISIBLE_DEVICES={numbers}"] if numbers else []


def _memory_words(layout: Layout) -> list[str]:
    domains = {task.memory for task in layout.tasks}
    if len(domains) > 1:
        raise BindingError("all tasks of a layout must have their memory in the same domain")
    domain = domains.pop()
    return [] if domain is None else ["numactl", f"--membind={domain}"]


# -- launchers -----------------------------------------------------------------------------------


def _local(layout: Layout, _: Topology | None) -> Binding:
    """``taskset(1)`` before a program that no launcher starts."""
    if layout.num_tasks != 1:
        raise BindingError("the local launcher starts one task")
    return Binding(("taskset", "-c", _list(layout.tasks[0].cpus)))


def _hydra(layout: Layout, _: Topology | None) -> Binding:
    """``-bind-to user:`` takes one CPU set per local rank (MPICH, "Using the Hydra process
    manager", "Process-core binding")."""
    _no_own_gpus(layout)
    sets = ",".join("+".join(map(str, task.cpus)) for task in _per_node(layout))
    options = ["-bind-to", f"user:{sets}"]
    if layout.num_nodes > 1:
        options += ["-ppn", str(layout.num_tasks_per_node)]
    return Binding(tuple(options))


def _mvapich(layout: Layout, topology: Topology | None) -> Binding:
    """MVAPICH's Hydra binds as MPICH's does, before the program starts. The library's own binding
    (``MV2_CPU_MAPPING``) comes only in ``MPI_Init``, where no wrapper can see it: it is switched
    off (MVAPICH2 User Guide, "MV2_ENABLE_AFFINITY")."""
    return replace(_hydra(layout, topology), env_vars={"MV2_ENABLE_AFFINITY": "0"})


def _intel(layout: Layout, _: Topology | None) -> Binding:
    """``I_MPI_PIN_DOMAIN=[masks]``: one mask per local rank, by the operating system's numbers
    (Intel MPI Library Developer Reference, "Interoperability with OpenMP API", "Explicit
    Shape"). Intel's Hydra ignores ``-bind-to user:``."""
    _no_own_gpus(layout)
    masks = ",".join(_mask(task.cpus) for task in _per_node(layout))
    options = ("-genv", "I_MPI_PIN_DOMAIN", f"[{masks}]")
    if layout.num_nodes == 1:
        return Binding(options)
    # "Hydra Environment Variables": otherwise the job scheduler's own layout overrides -ppn.
    placed = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"}
    return Binding(("-ppn", str(layout.num_tasks_per_node), *options), placed)


def _openmpi(layout: Layout, _: Topology | None) -> Binding:
    """A rank file with physical CPU numbers: each stands for the core that has it, with all its
    threads. Hosts are ``+n0``, ``+n1`` of the allocation (mpirun(1) of Open MPI 4.1, "Rankfiles");
    on one node ``localhost``, as without a scheduler there is no allocation.

    Not ``slot=SOCKET:CORES``, which is logical: 4.1 reads the second core of ``0:0,1`` as a socket.
    """
    slots = [",".join(map(str, task.cpus)) for task in layout.tasks]
    options = ("--mca", "rmaps_rank_file_physical", "1", "--rankfile")
    return _rank_file(layout, options, "{}", slots)


def _openmpi5(layout: Layout, topology: Topology | None) -> Binding:
    """A rank file by ``--map-by rankfile:file=``, with ``slot=PACKAGE:CORES``, both logical among
    the CPUs that may be used (prterun(1) of PRRTE 3.0, "Rankfiles"): it has no physical numbers.

    PRRTE counts the cores of the packages before as if each had as many as the named one. Cores
    that are kept for the system without the kernel's help count too, which the proof tells.
    """
    if topology and len({len(cores) for cores in topology.by_socket()}) > 1:
        raise BindingError(
            "it miscounts the cores of sockets that have different numbers of usable ones: keep as "
            "many of each socket for the system"
        )
    slots = [_slot(task) for task in layout.tasks]
    return _rank_file(layout, ("--map-by",), "rankfile:file={}", slots)


def _rank_file(layout: Layout, options: tuple[str, ...], last: str, slots: list[str]) -> Binding:
    _no_own_gpus(layout)
    several = layout.num_nodes > 1
    hosts = [f"+n{node}" for node in range(layout.num_nodes)] if several else ["localhost"]
    name = _file("rankfile", layout)
    lines = [
        f"rank {rank}={hosts[task.node]} slot={slots[rank]}\n"
        for rank, task in enumerate(layout.tasks)
    ]
    return Binding((*options, last.format(name)), files={name: "".join(lines)})


def _slot(task: Task) -> str:
    by_socket: dict[int, list[int]] = {}
    for core in task.cores:
        by_socket.setdefault(core.logical_socket, []).append(core.logical_core)
    return ";".join(f"{socket}:{','.join(map(str, c))}" for socket, c in by_socket.items())


def _srun(layout: Layout, topology: Topology | None) -> Binding:
    """``--cpu-bind=mask_cpu:`` takes one mask per local task (srun(1)). It needs a step with all
    CPUs of its nodes, which ``--cpus-per-task`` narrows: "implies --exact"."""
    tasks = _per_node(layout)
    options = [
        f"--nodes={layout.num_nodes}",
        f"--ntasks={layout.num_tasks}",
        f"--ntasks-per-node={len(tasks)}",
        "--distribution=block",
        f"--cpu-bind=mask_cpu:{','.join(_mask(task.cpus) for task in tasks)}",
    ]
    if layout.vendor:
        # A step has not the GPUs that a job got for being exclusive (--gres).
        if topology and topology.gpus:
            options.append(f"--gpus-per-node={len(topology.gpus)}")
        own = _own_gpus(layout)
        gpus = "map_gpu:" + ",".join(_gpu_of_each(tasks)) if own else "none"
        options.append(f"--gpu-bind={gpus}")
    return Binding(tuple(options))


def _jsrun(layout: Layout, topology: Topology | None) -> Binding:
    """Resource sets where they are sure to be the layout's cores, an explicit resource file
    otherwise (IBM, "jsrun command" and "Explicit Resource File (ERF) format").

    Sets: jsrun takes the first free cores of the first socket in order, and with GPUs those of
    the GPU's socket; ``-c`` counts cores, and each is given with all its threads (OLCF, Summit
    User Guide, "Job Launcher (jsrun)", whose examples are on a node with core isolation). So a
    layout on the first cores of the first socket, on all usable cores, or with a GPU and the
    next cores of its socket for each task in turn needs no file. The guide knows of times when
    files did not work.
    """
    tasks = _per_node(layout)
    sizes = {len(task.cores) for task in tasks}
    size, count, nodes = len(tasks[0].cores), len(tasks), layout.num_nodes
    if len(sizes) > 1 or tasks[0].memory is not None:
        return _resource_file(layout)
    cores = [core for task in tasks for core in task.cores]
    packed = ("-d", "packed", "-b", f"packed:{size}")
    if _own_gpus(layout):
        in_turn = _gpu_of_each(tasks) == [str(gpu) for gpu in range(count)]
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
    tasks = _per_node(layout)
    own = _own_gpus(layout)
    numbers = _gpu_of_each(tasks) if own else []
    lines = ["cpu_index_using: physical"]
    sets = [f"{{{_list(_threads(task))}}}" for task in tasks]
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
    name = _file("resources", layout)
    return Binding(("--erf_input", name), files={name: "".join(f"{line}\n" for line in lines)})


def _threads(task: Task) -> tuple[int, ...]:
    return tuple(cpu for core in task.cores for cpu in core.cpus)


def _alps(layout: Layout, _: Topology | None) -> Binding:
    """``-cc`` binds each PE of a node to the next CPU of a list (aprun(1), "-cc").

    A list binds the PE's threads to single CPUs as they come, so the wrapper would see the first
    alone: a PE of several cores is bound by ``taskset(1)`` where it is the only one of its node,
    and by ``-cc depth`` where the PEs take blocks of CPUs from CPU 0 on.
    """
    _no_own_gpus(layout)
    tasks = _per_node(layout)
    if all(len(task.cores) == 1 for task in tasks):
        return Binding(("-cc", ",".join(str(task.cpus[0]) for task in tasks)))
    if len(tasks) == 1:
        return Binding(("-cc", "none", "taskset", "-c", _list(tasks[0].cpus)))
    depth = len(tasks[0].cores)
    blocks = [tuple(range(i * depth, (i + 1) * depth)) for i in range(len(tasks))]
    if [task.cpus for task in tasks] != blocks:
        raise BindingError(
            "it binds several tasks of several cores on a node only to equal blocks of CPUs from "
            "CPU 0 on: use so many tasks that they divide the node's cores"
        )
    return Binding(("-cc", "depth"))


def _pals(layout: Layout, _: Topology | None) -> Binding:
    """``--cpu-bind list:`` takes one CPU list per local rank, ``--gpu-bind list:`` one GPU
    (mpiexec(1) of HPE's PALS; ALCF User Guides, Aurora, "Running Jobs", "Binding MPI ranks and
    threads to cores")."""
    tasks = _per_node(layout)
    options = ["--ppn", str(len(tasks))]
    options += ["--cpu-bind", f"list:{':'.join(_list(task.cpus) for task in tasks)}"]
    if _own_gpus(layout):
        options += ["--gpu-bind", f"list:{':'.join(_gpu_of_each(tasks))}"]
    return Binding(tuple(options))


def _mpt(layout: Layout, _: Topology | None) -> Binding:
    """``omplace`` puts each process of a host on the next CPU of a list, before it starts
    (omplace(1) of HPE MPT). ``MPI_DSM_CPULIST`` comes only in ``MPI_Init``, where no wrapper can
    see it. A task of several cores is bound by ``taskset(1)``, with the library's own placement
    off (MPI(1), "MPI_DSM_OFF"), where it is the only one of its node."""
    _no_own_gpus(layout)
    tasks = _per_node(layout)
    where = ("-ppn", str(len(tasks)))
    if len(tasks) == 1:
        alone = (*where, "taskset", "-c", _list(tasks[0].cpus))
        return Binding(alone, {"MPI_DSM_OFF": "1"})
    if any(len(task.cores) > 1 for task in tasks):
        raise BindingError(
            "it binds each thread to a CPU of its own, not a task to several cores: use one task "
            "per node, or one core per task"
        )
    cpus = ",".join(str(task.cpus[0]) for task in tasks)
    return Binding((*where, "omplace", "-nt", "1", "-c", cpus))


def _flux(layout: Layout, _: Topology | None) -> Binding:
    """``cpu-affinity=map:`` takes one CPU list per local task, ``gpu-affinity=map:`` one GPU list
    (flux-shell-options(7)); whole nodes, so that every CPU is the job's (flux-run(1)).

    LLNL's plugin mpibind binds by itself where it is loaded; elsewhere its option is ignored.
    """
    tasks = _per_node(layout)
    gpus = f"map:{';'.join(_gpu_of_each(tasks))}" if _own_gpus(layout) else "off"
    return Binding(
        (
            "-N",
            str(layout.num_nodes),
            f"--tasks-per-node={len(tasks)}",
            "--exclusive",
            "-o",
            "mpibind=off",
            "-o",
            f"cpu-affinity=map:{';'.join(_list(task.cpus) for task in tasks)}",
            "-o",
            f"gpu-affinity={gpus}",
        )
    )


#: ReFrame's launcher name, or the environment's ``process_manager`` -> how it binds.
LAUNCHERS: dict[str, Callable[[Layout, Topology | None], Binding]] = {
    "local": _local,
    "hydra": _hydra,
    "mpiexec": _hydra,
    "mpirun-intelmpi": _intel,
    "mvapich": _mvapich,
    "openmpi": _openmpi,
    "mpirun-openmpi": _openmpi,
    "openmpi5": _openmpi5,
    "srun": _srun,
    "jsrun": _jsrun,
    "alps": _alps,
    "pals": _pals,
    "mpt": _mpt,
    "flux-run": _flux,
}


def bind(layout: Layout, launcher: str, topology: Topology | None = None) -> Binding:
    """The launcher's options for a layout.

    :arg topology: the node's, where known: srun asks for all its GPUs, jsrun can tell that all
        its cores are meant, and Open MPI 5 that it would miscount them.
    :raises BindingError: if this launcher cannot express it, or is not known here.
    """
    if launcher not in LAUNCHERS:
        raise BindingError(
            f"launcher {launcher!r}: no binding is written for it (plumbline/binding.py has "
            f"{', '.join(LAUNCHERS)})"
        )
    try:
        return replace(LAUNCHERS[launcher](layout, topology), task=_task_words(layout))
    except BindingError as err:
        raise BindingError(
            f"launcher {launcher!r}, placement {layout.placement!r}: {err}"
        ) from None


# -- two nodes of a job that has more ------------------------------------------------------------


@dataclass(frozen=True)
class OnPair:
    """What starts a layout of two nodes on the nodes `$first` and `$second` of a job.

    :ivar before: shell commands before the launcher's.
    :ivar words: the launcher's options, as the shell reads them.
    """

    before: tuple[str, ...]
    words: tuple[str, ...]


def _with_nodelist(bound: Binding) -> OnPair:
    """``--nodelist`` "request a specific list of hosts" among the job's (srun(1)). Steps of one job
    on nodes of their own run beside each other."""
    return OnPair((), (*map(shlex.quote, bound.options), '--nodelist="$first,$second"'))


def _with_hosts(bound: Binding) -> OnPair:
    """``-hosts`` (MPICH, "Using the Hydra Process Manager"; Intel MPI Library Developer Reference,
    "Global Hydra Options")."""
    return OnPair((), ("-hosts", '"$first,$second"', *map(shlex.quote, bound.options)))


def _with_host(bound: Binding) -> OnPair:
    """``--host`` (mpirun(1) of Open MPI 4.1; prterun(1) of PRRTE 3.0), so that no daemon starts on
    the job's other nodes, and each pair's own rank file, which names the two."""
    *options, last = map(shlex.quote, bound.options)
    (name,) = bound.files
    named = f'sed "s/=+n0 /=$first /; s/=+n1 /=$second /" {name} >{name}-$sample-$pair'
    words = ("--host", '"$first:1,$second:1"', *options, f"{last}-$sample-$pair")
    return OnPair((named,), words)


def _to_no_pair(_: Binding) -> OnPair:
    raise BindingError(
        "it is not known to keep to two nodes of a job: measure pairs of nodes with a launcher "
        "that is (srun, Hydra, Open MPI's mpirun), by the environment's extras.launcher"
    )


#: Process manager -> how it keeps to two nodes of a job; the others' ways are not proven.
KEPT_TO_PAIR: dict[str, Callable[[Binding], OnPair]] = {
    "srun": _with_nodelist,
    "hydra": _with_hosts,
    "mpiexec": _with_hosts,
    "mvapich": _with_hosts,
    "mpirun-intelmpi": _with_hosts,
    "openmpi": _with_host,
    "mpirun-openmpi": _with_host,
    "openmpi5": _with_host,
}


def on_pair(bound: Binding, launcher: str) -> OnPair:
    """The launcher's options for a layout of two nodes, on two of a job that has more.

    :arg bound: the layout's binding.
    :raises BindingError: if it is not known how this launcher keeps to them.
    """
    try:
        return KEPT_TO_PAIR.get(launcher, _to_no_pair)(bound)
    except BindingError as err:
        raise BindingError(f"launcher {launcher!r}: {err}") from None


# -- proof ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What the task wrapper saw of one task.

    :ivar cpus: the CPUs that it may run on, as the kernel lists them.
    :ivar given: the GPUs as the launcher named them; empty where it named none.
    :ivar gpus: the GPUs as the program sees them; empty where nothing is said, ``none`` where it
        sees none.
    """

    rank: int
    host: str
    cpus: str
    given: str = ""
    gpus: str = ""


def seen(stderr: str) -> list[Seen]:
    """The tasks that reported themselves on standard error (see ``task.sh``), in rank order.

    :raises BindingMismatch: if such a line cannot be read.
    """
    tasks = []
    for line in stderr.splitlines():
        if not line.startswith("plumbline-task "):
            continue
        try:
            _, rank, host, cpus, _, given, gpus = line.split()
            cpus_of_list(cpus)
            given, gpus = ("" if word == "-" else word for word in (given, gpus))
            tasks.append(Seen(int(rank), host, cpus, given, gpus))
        except ValueError:
            raise BindingMismatch(f"a task's report cannot be read: {line!r}") from None
    return sorted(tasks, key=lambda task: task.rank)


def host_facts(stderr: str) -> dict[str, dict[str, str]]:
    """Facts of each host that the tasks reported on standard error: host -> fact -> value."""
    facts: dict[str, dict[str, str]] = {}
    for line in stderr.splitlines():
        words = line.split(maxsplit=3)
        if len(words) == 4 and words[0] == "plumbline-host":
            facts.setdefault(words[1], {})[words[2]] = words[3]
    return facts


def prove(layout: Layout, tasks: list[Seen], racks: Callable[[str], str] | None = None) -> None:
    """Holds what was seen against the layout.

    A task may be allowed any hardware thread of its own cores and no other CPU, and must be
    allowed at least one thread of every one of them. Tasks that share GPUs must see the layout's,
    in its order, and the launcher must not have kept one from them; a GPU of a task's own must be
    the layout's, alone, or where the launcher names it otherwise no other task's of its node.

    Memory is not proven here: the wrapper speaks before ``numactl`` does its work. The words that
    the job script has do it, and ``numactl`` ends with an error where it cannot.

    :arg racks: host -> rack; without it, racks are not looked at.
    :raises BindingMismatch: if the ranks, the nodes, the racks, the CPUs or the GPUs differ.
    """
    count = layout.num_tasks
    if [task.rank for task in tasks] != list(range(count)):
        raise BindingMismatch(
            f"{count} tasks were to start, with ranks 0 to {count - 1}; seen were "
            f"{_ranks_seen(tasks)} (does the launcher belong to the program's MPI?)"
        )
    nodes = {host: n for n, host in enumerate(dict.fromkeys(task.host for task in tasks))}
    for task, told in zip(tasks, layout.tasks, strict=True):
        if nodes[task.host] != told.node:
            raise BindingMismatch(
                f"rank {task.rank} ran on {task.host}, which is node {nodes[task.host]} of "
                f"the job; placement {layout.placement!r} puts it on node {told.node}"
            )
        allowed = cpus_of_list(task.cpus)
        missed = [core for core in told.cores if allowed.isdisjoint(core.cpus)]
        if missed or not allowed <= told.hardware_threads:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} may run on CPUs {task.cpus}; placement "
                f"{layout.placement!r} puts it on {','.join(map(str, told.cpus))}"
            )
    if racks and len(found := {racks(host) for host in nodes}) < layout.racks:
        raise BindingMismatch(
            f"all nodes were of rack {', '.join(sorted(found))}; placement {layout.placement!r} "
            f"takes {layout.racks} racks"
        )
    if _own_gpus(layout):
        _prove_own_gpus(layout, tasks)
    else:
        _prove_shared_gpus(layout, tasks)


def prove_nodes(told: Sequence[str], tasks: list[Seen], others: Iterable[str]) -> None:
    """Holds the nodes that tasks ran on against those that were named to the launcher or the
    scheduler.

    A scheduler may call a node otherwise than the node calls itself; where it does, no more can be
    told than that the task's host is none of the other nodes.

    :arg told: the nodes by the scheduler's names.
    :arg others: names of all nodes that the tasks could have run on.
    :raises BindingMismatch: if a task ran on another of them.
    """
    wanted = {_short(name) for name in told}
    elsewhere = {_short(name) for name in others} - wanted
    for task in tasks:
        if _short(task.host) in elsewhere:
            raise BindingMismatch(
                f"rank {task.rank} ran on {task.host}; it was to run on {' or '.join(told)}"
            )


def _short(host: str) -> str:
    return host.partition(".")[0]


def _ranks_seen(tasks: list[Seen]) -> str:
    """The ranks, for a message that stays short at any size."""
    ranks = [task.rank for task in tasks]
    if len(ranks) > _MOST_TOLD:
        return f"{len(ranks)}, ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {ranks or 'none'}"


#: Ranks that a message lists.
_MOST_TOLD = 16


def _prove_shared_gpus(layout: Layout, tasks: list[Seen]) -> None:
    gpus = layout.tasks[0].gpus
    if not gpus:
        return
    wanted = ",".join(map(str, gpus))
    for task in tasks:
        if task.gpus != wanted:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} sees GPUs {task.gpus or 'that nothing names'}; "
                f"placement {layout.placement!r} wants {wanted}"
            )
        given = task.given.split(",")
        if not task.given:
            continue
        if all(name.isdigit() for name in given):
            kept = not set(map(str, gpus)) <= set(given)
        else:
            # Names that are no numbers (GPU-4a1f...): the n-th of them is GPU n.
            kept = task.given == "none" or len(given) <= max(gpus)
        if kept:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} was given GPUs {task.given} by the launcher; "
                f"placement {layout.placement!r} wants {wanted}"
            )


def _prove_own_gpus(layout: Layout, tasks: list[Seen]) -> None:
    owners: dict[tuple[str, str], int] = {}
    for task, told in zip(tasks, layout.tasks, strict=True):
        wanted = ",".join(map(str, told.gpus))
        named = task.given and task.given != "none" and "," not in task.given
        if not named or task.gpus != task.given or (task.given.isdigit() and task.given != wanted):
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} was given GPUs {task.given or 'without a name'} "
                f"and sees {task.gpus or 'all'}; placement {layout.placement!r} gives it GPU "
                f"{wanted} alone (where each task's own GPU is number 0 to it, the node's device "
                f"cgroups leave no proof of which it is)"
            )
        owner = owners.setdefault((task.host, task.given), task.rank)
        if owner != task.rank:
            raise BindingMismatch(
                f"ranks {owner} and {task.rank} on {task.host} were both given GPU {task.given}; "
                f"placement {layout.placement!r} gives each task one of its own"
            )
