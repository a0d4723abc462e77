"""Launchers: from their options to where each task runs.

Each function takes the words behind the launcher's name, and returns the tasks and the command that
they run. It accepts the options that Plumbline and the files in ``systems/`` use, by the rules of
the manual that its docstring names. Any other option is refused, and a binding that is left to the
launcher, unless that is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .job import Job, Task
from .options import Refused, read

#: A task -> the variables in which its launcher passes its rank.
RankVariables = Callable[[Task], dict[str, object]]


class Step:
    """One call of a launcher.

    :ivar tasks: in rank order.
    :ivar command: the command that each of them runs.
    :ivar env: variables that the launcher sets for all tasks.
    :ivar ranks: the variables in which the launcher passes a task its rank.
    :ivar moves: whether the MPI library moves the tasks once they have started.
    :ivar closing: what the launcher prints after a program that succeeded.
    """

    def __init__(
        self,
        tasks: list[Task],
        command: list[str],
        env: dict[str, str] | None = None,
        ranks: RankVariables = lambda _: {},
    ):
        self.tasks = tasks
        self.command = command
        self.env = env or {}
        self.ranks = ranks
        self.moves = False
        self.closing = ""


def spread(count: int, bins: int) -> list[int]:
    """Return a count distributed evenly over bins."""
    return [count // bins + (index < count % bins) for index in range(bins)]


def fill(count: int, slots: list[int]) -> list[int]:
    """Return the number of tasks of each node, where each node is filled before the next.

    :raises Refused: if there are too few slots.
    """
    counts = []
    for room in slots:
        counts.append(min(room, count))
        count -= counts[-1]
    if count:
        raise Refused(f"not enough slots: {count} tasks too many")
    return [used for used in counts if used]


def tasks_of(job: Job, counts: list[int], places: list[tuple]) -> list[Task]:
    """Return tasks in rank order, with the same places on every node.

    :arg counts: tasks of each node.
    :arg places: (CPUs, GPUs, list in the environment) of each local rank.
    """
    tasks: list[Task] = []
    for node, count in zip(job.nodes, counts, strict=False):
        for local in range(count):
            tasks.append(Task(len(tasks), node, local, *places[local]))
    return tasks


def gpu_list(gpus) -> str:
    return ",".join(map(str, gpus))


# -- Slurm ------------------------------------------------------------------------------------

SRUN = """
-n|--ntasks= -N|--nodes= --ntasks-per-node= --cpu-bind= -m|--distribution= --gpu-bind=
--gpus-per-node= -w|--nodelist=
"""


def _slurm_ranks(task: Task) -> dict[str, object]:
    """srun(1), "OUTPUT ENVIRONMENT VARIABLES"."""
    return {"SLURM_PROCID": task.rank, "SLURM_LOCALID": task.local}


def srun(words: list[str], job: Job) -> Step:
    """srun(1) of Slurm, in an allocation. Without ``--cpu-bind``, a task may use the whole node."""
    options, command = read(words, SRUN, "srun")
    if "nodelist" in options:
        wanted = expand_nodes(str(options["nodelist"]))
        if set(wanted) - set(job.nodes):
            raise Refused("srun: error: Requested node configuration is not available")
        job.nodes = wanted
    per_node = options.number("ntasks-per-node", 1)
    nodes = options.number("nodes", len(job.nodes))
    count = options.number("ntasks", per_node * nodes)
    if not 0 < nodes <= len(job.nodes) or not nodes <= count <= nodes * len(job.cpus):
        raise Refused("srun: error: More processors requested than permitted")
    if options.get("distribution", "block") != "block":
        raise Refused(f"srun: error: Invalid --distribution: {options['distribution']}", 255)
    counts = spread(count, nodes)
    most = max(counts)
    cpus = _srun_binding(str(options.get("cpu-bind", "none")), job, most)
    gpus = _srun_gpus(options, job, most)
    places = [(own, *visible) for own, visible in zip(cpus, gpus, strict=True)]
    return Step(tasks_of(job, counts, places), command, ranks=_slurm_ranks)


def _srun_binding(text: str, job: Job, most: int) -> list[tuple[int, ...]]:
    kind, _, values = text.partition(":")
    if kind == "none":
        return [job.cpus] * most
    if kind != "mask_cpu":
        raise Refused(f'srun: error: unrecognized --cpu-bind argument "{kind}"', 255)
    sets = [mask_of(value) for value in values.split(",")]
    for chosen in sets:
        if not chosen or not set(chosen) <= set(job.cpus):
            raise Refused("srun: error: CPU binding outside of job step allocation")
    return [sets[local % len(sets)] for local in range(most)]


def mask_of(text: str) -> tuple[int, ...]:
    """Return the bits of a hexadecimal mask."""
    mask = int(text, 16)
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _srun_gpus(options, job: Job, most: int) -> list[tuple[tuple[int, ...], str | None]]:
    """Return the GPUs of each local rank, and the list in its environment."""
    wanted = options.number("gpus-per-node")
    gpus = job.asked_gpus if wanted is None else tuple(range(wanted))
    if len(gpus) > len(job.gpus):
        raise Refused("srun: error: Invalid generic resource (gres) specification")
    if not gpus:
        return [((), None)] * most
    if (bound := options.get("gpu-bind", "none")) == "none":
        return [(gpus, gpu_list(gpus))] * most
    raise Refused(f"srun: --gpu-bind={bound}: no stand-in", 255)


def expand_nodes(text: str) -> list[str]:
    """Return the names in a list of Slurm or Flux: ``a[01-03,7],b``."""
    found: list[str] = []
    for prefix, inner, suffix in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)(?:,|$)", text):
        if not inner:
            found.append(prefix + suffix)
            continue
        for part in inner.split(","):
            first, dash, last = part.partition("-")
            for number in range(int(first), int(last if dash else first) + 1):
                found.append(f"{prefix}{number:0{len(first)}}{suffix}")
    return found


# -- LSF's jsrun --------------------------------------------------------------------------------

JSRUN = """
-n|--nrs= -a|--tasks_per_rs= -c|--cpu_per_rs= -g|--gpu_per_rs= -r|--rs_per_host= -b|--bind=
-d|--launch_distribution= -l|--latency_priority= -M|--smpiargs=
"""


def _jsm_ranks(task: Task) -> dict[str, object]:
    """JSM's as PyTorch Lightning's plugin for LSF reads them; Open MPI's: OLCF, Summit User Guide,
    "Profiling GPU Code with NVIDIA Developer Tools"."""
    return {
        "JSM_NAMESPACE_RANK": task.rank,
        "JSM_NAMESPACE_LOCAL_RANK": task.local,
        "PMIX_RANK": task.rank,
        "OMPI_COMM_WORLD_RANK": task.rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": task.local,
    }


def jsrun(words: list[str], job: Job) -> Step:
    """jsrun(1) of IBM's Job Step Manager, with the OLCF's defaults (Summit User Guide, "Common
    jsrun Options"). A core has all its hardware threads, and isolated cores do not count."""
    options, command = read(words, JSRUN, "jsrun")
    if not job.batch:
        raise Refused("Error initializing RM connection. Exiting.", 255)
    for name, value in (("cpu_per_rs", len(job.cores)), ("gpu_per_rs", len(job.gpus))):
        if str(options.get(name)).startswith("ALL_"):
            options[name] = value
    cores, gpus = options.number("cpu_per_rs", 1), options.number("gpu_per_rs", 0)
    sets = _pack(job, cores, gpus)
    per_host = options.number("rs_per_host", len(sets))
    num_sets = options.number("nrs", len(job.nodes) * per_host)
    if not 0 < per_host <= len(sets) or not 0 < num_sets <= len(job.nodes) * per_host:
        raise Refused(
            f"Error: It is not possible to create {num_sets} resource sets of {cores} CPUs and "
            f"{gpus} GPUs: a host holds {len(sets)}."
        )
    if options.get("launch_distribution", "packed") != "packed":
        raise Refused(f"Error: invalid launch distribution {options['launch_distribution']}")
    per_set = options.number("tasks_per_rs", 1)
    places = [
        (cpus, own, gpu_list(own) if own else None)
        for chosen, own in sets[:per_host]
        for cpus in _jsrun_binding(str(options.get("bind", "packed:1")), job, chosen, per_set)
    ]
    tasks = tasks_of(job, fill(num_sets * per_set, [len(places)] * len(job.nodes)), places)
    env = {"FACILITY_SMPIARGS": str(options["smpiargs"])} if "smpiargs" in options else {}
    return Step(tasks, command, env, _jsm_ranks)


def _pack(job: Job, size: int, num_gpus: int) -> list[tuple[list[int], tuple[int, ...]]]:
    """Return the resource sets that one host holds. A set with GPUs takes cores of their socket; a
    set that one socket can hold does not span two."""
    machine = job.machine
    free = {
        socket: [core for core in job.cores if machine.socket_of(core) == socket]
        for socket in range(machine.num_sockets)
    }
    idle: dict[int, list[int]] = {socket: [] for socket in free}
    for gpu in job.gpus:
        idle[machine.socket_of(machine.cores_of_gpu(gpu)[0])].append(gpu)
    sets = []
    while True:
        for socket, cores in free.items():
            if len(cores) >= size and len(idle[socket]) >= num_gpus:
                chosen, gpus = cores[:size], idle[socket][:num_gpus]
                break
        else:
            every = [core for cores in free.values() for core in cores]
            all_gpus = [gpu for gpus in idle.values() for gpu in gpus]
            if len(every) < size or len(all_gpus) < num_gpus or sets:
                return sets
            # A set that no socket holds takes an equal share of each, or fills one and goes on.
            if all_gpus[:num_gpus] and num_gpus > len(idle[0]):
                share = -(-size // len(free))
                chosen = [core for cores in free.values() for core in cores[:share]][:size]
            else:
                chosen = every[:size]
            gpus = all_gpus[:num_gpus]
            if len(chosen) < size:
                chosen = every[:size]
        for socket in free:
            free[socket] = [core for core in free[socket] if core not in chosen]
            idle[socket] = [gpu for gpu in idle[socket] if gpu not in gpus]
        sets.append((sorted(chosen), tuple(gpus)))


def _jsrun_binding(text: str, job: Job, cores: list[int], count: int) -> list[tuple[int, ...]]:
    cpus_of = job.machine.cpus_of_cores
    # "Under the covers, a resource set is a cgroup" (Summit User Guide, "Resource Sets").
    if text == "rs":
        return [cpus_of(cores)] * count
    kind, _, size = text.partition(":")
    if kind != "packed" or not size.isdigit():
        raise Refused(f"Error: invalid binding {text}")
    width = min(int(size), max(1, len(cores) // count))
    own = [cores[local * width : (local + 1) * width] for local in range(count)]
    return [cpus_of(mine or [cores[local % len(cores)]]) for local, mine in enumerate(own)]
