"""Launchers: from their real options to where each task runs.

Each function takes the words behind the launcher's name and gives the tasks and the command that
they run. Rules and defaults are those of the manual named in its docstring.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable

from .job import Job, Task
from .options import Refused, read


class Step:
    """One call of a launcher.

    :ivar tasks: in rank order.
    :ivar command: what each of them runs.
    :ivar env: variables that the launcher adds to those of all tasks.
    :ivar ranks: a task -> the variables by which the launcher tells it which task it is.
    :ivar moves: whether the MPI library moves the tasks once they have started.
    """

    moves = False

    def __init__(self, tasks: list[Task], command: list[str], env: dict[str, str] | None = None):
        self.tasks = tasks
        self.command = command
        self.env = env or {}
        self.ranks: Ranks = lambda _: {}


Ranks = Callable[[Task], dict[str, object]]


def telling(ranks: Ranks):
    """For a launcher's function: the variables by which it tells a task which one it is."""

    def decorate(function):
        @functools.wraps(function)
        def launched(*words, **more) -> Step:
            step = function(*words, **more)
            step.ranks = ranks
            return step

        return launched

    return decorate


def spread(count: int, bins: int) -> list[int]:
    """A count over bins, one by one."""
    return [count // bins + (index < count % bins) for index in range(bins)]


def fill(count: int, slots: list[int]) -> list[int]:
    """A count over nodes, each filled before the next one is begun.

    :raises ValueError: if they do not hold it.
    """
    counts = []
    for room in slots:
        counts.append(min(room, count))
        count -= counts[-1]
    if count:
        raise ValueError(f"{count} too many")
    return counts


def ranks(job: Job, counts: list[int], cyclic: bool = False) -> list[tuple[str, int]]:
    """(node, local number) of each rank."""
    if not cyclic:
        return [
            (node, local)
            for node, count in zip(job.nodes, counts, strict=False)
            for local in range(count)
        ]
    return [
        (node, local)
        for local in range(max(counts, default=0))
        for node, count in zip(job.nodes, counts, strict=False)
        if local < count
    ]


def tasks_of(job: Job, order: list[tuple[str, int]], places) -> list[Task]:
    """Tasks in an order, the same places on every node.

    :arg places: for each local number (CPUs, GPUs, list in the environment).
    """
    return [Task(rank, node, local, *places[local]) for rank, (node, local) in enumerate(order)]


def gpu_list(gpus) -> str:
    return ",".join(map(str, gpus))


# -- Slurm ------------------------------------------------------------------------------------

SRUN = """
-n|--ntasks= -N|--nodes= --ntasks-per-node= -c|--cpus-per-task= --cpu_bind|--cpu-bind=
-m|--distribution= --gpu-bind= -G|--gpus= --gpus-per-node= --gpus-per-task= --gpus-per-socket=
--gres= --gres-flags= --mem_bind|--mem-bind= --mem= --mem-per-cpu= --mem-per-gpu= --hint=
--exclusive? --exact --overlap --whole -s|--oversubscribe -O|--overcommit -w|--nodelist=
-x|--exclude= -r|--relative= --export= -l|--label -u|--unbuffered -K|--kill-on-bad-exit? --mpi=
-J|--job-name= -o|--output= -e|--error= -i|--input= -t|--time= --threads-per-core=
--ntasks-per-core= --ntasks-per-socket= --cores-per-socket= -B|--extra-node-info= -S|--core-spec=
-A|--account= -p|--partition= -q|--qos= -C|--constraint= --reservation= --network= --signal=
-D|--chdir= -v|--verbose -Q|--quiet -V|--version --test-only -W|--wait= --cpu-freq= --comment=
--multi-prog --ntasks-per-gpu= --spread-job --use-min-nodes -X|--disable-status -Z|--no-allocate
"""


def _slurm_ranks(task: Task) -> dict[str, object]:
    """srun(1), "OUTPUT ENVIRONMENT VARIABLES"."""
    return {"SLURM_PROCID": task.rank, "SLURM_LOCALID": task.local}


@telling(_slurm_ranks)
def srun(words: list[str], job: Job) -> Step:
    """srun(1) of Slurm, in an allocation. An explicit ``--cpus-per-task`` implies ``--exact``
    since 22.05, where srun also stopped to read SLURM_CPUS_PER_TASK."""
    machine = job.machine
    told = machine.facts["slurm"]
    version = tuple(map(int, told["version"].split(".")))
    if words[:1] in (["--version"], ["-V"]):
        numbers_ = ".".join(f"{part:02}" if n == 1 else str(part) for n, part in enumerate(version))
        print(f"slurm {numbers_}")
        raise SystemExit(0)

    def unknown(word):
        kind = "unrecognized" if word.startswith("--") else "invalid"
        what = f"'{word}'" if word.startswith("--") else f"-- '{word[1:2]}'"
        raise Refused(f'srun: {kind} option {what}\nTry "srun --help" for more information', 255)

    options, command = read(words, SRUN, unknown)
    if not command:
        raise Refused("srun: fatal: No command given to execute.")
    env = os.environ

    def number(name, *variables):
        found = options.number(name, 'srun: error: Invalid numeric value "{1}" for --{0}.')
        for variable in variables:
            if found is None and env.get(variable, "").isdigit():
                found = int(env[variable])
        if found is not None and found < 1:
            raise Refused(f'srun: error: Invalid numeric value "{found}" for --{name}.', 255)
        return found

    if "nodelist" in options:
        wanted = expand_nodes(str(options["nodelist"]))
        missing = [node for node in wanted if node not in set(job.nodes)]
        if missing:
            raise Refused(
                "srun: error: Unable to create step for job: Requested node configuration is "
                "not available"
            )
        job.nodes = wanted
    per_node = number("ntasks-per-node")
    explicit = options.number("nodes")
    nodes = explicit or len(job.nodes)
    if nodes > len(job.nodes):
        raise Refused(
            "srun: error: Unable to create step for job: More processors requested than permitted"
        )
    count = number("ntasks")
    if count is None and (explicit or "nodelist" in options) and per_node is None:
        count = nodes
    if count is None and per_node:
        count = per_node * nodes
    if count is None:
        count = number("ntasks", "SLURM_NTASKS", "SLURM_NPROCS") or nodes
    if count < nodes:
        if explicit:
            print_error(
                f"srun: warning: can't run {count} processes on {nodes} nodes, setting nnodes to "
                f"{count}"
            )
        nodes = count
    counts = spread(count, nodes)
    if per_node is None and env.get("SLURM_NTASKS_PER_NODE", "").isdigit():
        per_node = int(env["SLURM_NTASKS_PER_NODE"])
    if per_node and "ntasks" not in options and "nodes" not in options:
        counts = fill_or_refuse(count, [per_node] * len(job.nodes))
    relative = options.number("relative") or 0
    job.nodes = job.nodes[relative:]

    exact_since = version >= (22, 5)
    per_task = number("cpus-per-task", "SRUN_CPUS_PER_TASK")
    exact = "exact" in options or (per_task is not None and exact_since)
    if per_task is None and not exact_since:
        per_task = number("cpus-per-task", "SLURM_CPUS_PER_TASK")
    threads = number("threads-per-core") or (1 if told["cpu"] == "core" else machine.smt)
    if options.get("hint") == "nomultithread":
        threads = 1
    cores_per_task = -(-(per_task or 1) // threads)

    level, _, within = str(options.get("distribution", "block")).partition(":")
    if level.partition("=")[0] not in ("block", "cyclic", "plane", "arbitrary", "*"):
        raise Refused(f"srun: error: Invalid --distribution specification: {level}", 255)
    within = within.split(",")[0].split(":")[0]
    ordered = job.cores if within in ("block", "fcyclic") else _over_sockets(job)
    most = max(counts)
    if most * cores_per_task > len(job.cores) and "overcommit" not in options:
        raise Refused(
            "srun: error: Unable to create step for job: More processors requested than permitted"
        )
    own = [
        sorted(ordered[local * cores_per_task : (local + 1) * cores_per_task])
        for local in range(most)
    ]
    step_cores = sorted(core for cores in own for core in cores) if exact else job.cores

    def cpus(cores):
        return tuple(sorted(cpu for core in cores for cpu in machine.cpus_of_core(core)[:threads]))

    places = _srun_binding(options, job, most, own, step_cores, per_task or 1, cpus)
    gpus = _srun_gpus(options, job, places)
    filled = [(place, *gpus[local]) for local, place in enumerate(places)]
    order = ranks(job, counts, cyclic=level == "cyclic")
    return Step(tasks_of(job, order, filled), command)


def fill_or_refuse(count: int, slots: list[int]) -> list[int]:
    try:
        return [used for used in fill(count, slots) if used]
    except ValueError:
        raise Refused(
            "srun: error: Unable to create step for job: More processors requested than permitted"
        ) from None


def _over_sockets(job: Job) -> list[int]:
    """Cores in turn from each socket: Slurm's default within a node."""
    machine = job.machine
    by_socket = [
        [core for core in job.cores if machine.socket_of(core) == socket]
        for socket in range(machine.num_sockets)
    ]
    longest = max(map(len, by_socket))
    return [cores[n] for n in range(longest) for cores in by_socket if n < len(cores)]


def _srun_binding(options, job, most, own, step_cores, per_task, cpus) -> list[tuple[int, ...]]:
    machine = job.machine
    words = [word for word in str(options.get("cpu-bind", "")).split(",") if word]
    while words and words[0] in ("quiet", "q", "verbose", "v"):
        words.pop(0)
    kind, _, first = (words or [""])[0].partition(":")
    listed = [first, *words[1:]]
    everything = cpus(step_cores)
    if not kind:
        wanted = most * per_task
        if wanted == len(step_cores):
            kind = "cores"
        elif wanted == len(everything):
            kind = "threads"
        elif wanted == len({machine.socket_of(core) for core in step_cores}):
            kind = "sockets"
        else:
            kind = "none"
    if kind in ("none", "no"):
        return [everything] * most
    if kind in ("map_cpu", "mask_cpu"):
        try:
            sets = [
                mask_of(word) if kind == "mask_cpu" else (int(word, 0),)
                for word in repeated(listed)
            ]
        except ValueError:
            raise Refused(f"srun: error: Failed to validate number: {listed}", 255) from None
        for chosen in sets:
            if not chosen or not set(chosen) <= set(everything):
                allowed = sum(1 << cpu for cpu in everything)
                raise Refused(
                    "srun: error: CPU binding outside of job step allocation, allocated CPUs "
                    f"are: {allowed:#034X}.\n"
                    f"srun: error: Task launch for StepId=1.0 failed on node {job.nodes[0]}: "
                    "Unable to satisfy cpu bind request\n"
                    "srun: error: Application launch failed: Unable to satisfy cpu bind request"
                )
        return [sets[local % len(sets)] for local in range(most)]
    if kind in ("cores", "core", "rank"):
        return [cpus(cores) for cores in own]
    if kind in ("threads", "thread"):
        order = [cpu for core in _over_sockets(job) for cpu in cpus([core])]
        order = [cpu for cpu in order if cpu in set(everything)]
        return [
            tuple(sorted(order[local * per_task : (local + 1) * per_task])) for local in range(most)
        ]
    if kind in ("sockets", "socket", "ldoms", "ldom"):
        domain = machine.socket_of if kind.startswith("socket") else machine.numa_of
        found = []
        for cores in own:
            domains = {domain(core) for core in cores}
            found.append(cpus([core for core in step_cores if domain(core) in domains]))
        return found
    raise Refused(f'srun: error: unrecognized --cpu-bind argument "{kind}"', 255)


def repeated(words: list[str]) -> list[str]:
    """Words of a list in which ``0x3*2`` stands for two."""
    found: list[str] = []
    for word in words:
        one, _, times = word.partition("*")
        found += [one] * (int(times) if times else 1)
    return found


def mask_of(text: str) -> tuple[int, ...]:
    """The bits of a hexadecimal mask."""
    mask = int(text, 16)
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _srun_gpus(options, job, places) -> list[tuple[tuple[int, ...], str | None]]:
    """GPUs of each local task, and the list in its environment."""
    machine = job.machine
    per_task = options.number("gpus-per-task")
    wanted = None
    for name in ("gpus-per-node", "gpus", "gres"):
        if name in options:
            wanted = int(str(options[name]).split(":")[-1])
            wanted = -(-wanted // len(job.nodes)) if name == "gpus" else wanted
    if wanted is None and per_task:
        wanted = per_task * len(places)
    if wanted is not None and wanted > len(job.gpus):
        raise Refused(
            "srun: error: Unable to create step for job: Invalid generic resource (gres) "
            "specification"
        )
    gpus = job.asked_gpus if wanted is None else tuple(range(wanted))
    if not gpus:
        return [((), None)] * len(places)
    binding = str(options.get("gpu-bind", f"per_task:{per_task}" if per_task else ""))
    binding = binding.removeprefix("verbose,").removeprefix("v,")
    kind, _, listed = binding.partition(":")
    found = []
    for local, cpus in enumerate(places):
        if kind in ("", "none"):
            chosen = gpus
        elif kind == "closest":
            domains = {machine.numa_of(machine.core_of(cpu)) for cpu in cpus}
            chosen = tuple(g for g in gpus if machine.facts["gpus"][g] in domains) or gpus
        elif kind in ("map_gpu", "map"):
            picks = [int(word, 0) for word in repeated(listed.split(","))]
            chosen = (picks[local % len(picks)],)
        elif kind in ("mask_gpu", "mask"):
            masks = repeated(listed.split(","))
            chosen = mask_of(masks[local % len(masks)])
        elif kind == "per_task":
            size = int(listed)
            chosen = gpus[local * size : (local + 1) * size]
        elif kind == "single":
            chosen = (gpus[(local // int(listed)) % len(gpus)],)
        else:
            raise Refused(f"srun: error: Invalid --gpu-bind argument: {binding}", 255)
        if not chosen or not set(chosen) <= set(gpus):
            raise Refused(
                "srun: error: Unable to create step for job: Invalid generic resource (gres) "
                "specification"
            )
        found.append((tuple(chosen), gpu_list(chosen)))
    return found


def expand_nodes(text: str) -> list[str]:
    """Names of a list as Slurm and Flux write it: ``a[01-03,7],b``."""
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
-d|--launch_distribution= -l|--latency_priority= -p|--np= -m|--memory_per_rs= -K|--rs_per_socket=
-E|--env= -D|--env_eval= -h|--chdir= -M|--smpiargs= -S|--save_resources= -U|--use_resources=
-k|--stdio_stderr= -o|--stdio_stdout= -t|--stdio_input= -e|--stdio_mode= -X|--exit_on_error=
--erf_input= --erf_output= -x|--exclude_hosts= -P|--pre_post_exec= -i|--immediate -u|--use_all?
-V|--version -?|--help -L|--use_spindle= -z|--disable_hosts= -F|--env_no_propagate --progress=
-H|--hosts=
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


@telling(_jsm_ranks)
def jsrun(words: list[str], job: Job) -> Step:
    """jsrun(1) of IBM's Job Step Manager, with the OLCF's defaults (Summit User Guide, "Common
    jsrun Options"). A core has all its hardware threads, and isolated ones are not counted."""
    machine = job.machine

    def unknown(word):
        raise Refused(f"jsrun: unrecognized option '{word}'\nError: Invalid option.", 1)

    options, command = read(words, JSRUN, unknown)
    if not job.batch:
        raise Refused("Error initializing RM connection. Exiting.", 255)
    if not command:
        raise Refused("Error: No executable was given.", 1)
    env = {}
    if "smpiargs" in options:
        env["FACILITY_SMPIARGS"] = str(options["smpiargs"])
    for pair in options.all("env"):
        name, _, value = str(pair).partition("=")
        env[name] = value
    if "erf_input" in options:
        # "A known bug is currently preventing execution of most ERF use cases" (Summit User Guide,
        # "Explicit Resource Files (ERF)"); what it prints: RADICAL-Pilot, launch_method/jsrun.py.
        raise Refused("error in ptssup_mkcltsock_afunix()", 1)

    def number(name, default):
        value = options.get(name, default)
        if value is default:
            return default
        if str(value) in ("ALL_CPUS", "ALL_GPUS", "ALL_HOSTS"):
            kind = str(value)[4:]
            sizes = {"CPUS": len(job.cores), "GPUS": len(job.gpus), "HOSTS": len(job.nodes)}
            return sizes[kind]
        found = options.number(name, "Error: invalid value for --{0}: {1}")
        if found < 0 or (found == 0 and name != "gpu_per_rs"):
            raise Refused(f"Error: invalid value for --{name}: {found}")
        return found

    cores_per_set = number("cpu_per_rs", 1)
    gpus_per_set = number("gpu_per_rs", 0)
    sets = _pack(job, cores_per_set, gpus_per_set)
    per_host = number("rs_per_host", None)
    per_socket = number("rs_per_socket", None)
    if per_socket:
        taken: dict[int, int] = {}
        kept = []
        for cores, gpus in sets:
            socket = machine.socket_of(cores[0])
            taken[socket] = taken.get(socket, 0) + 1
            if taken[socket] <= per_socket:
                kept.append((cores, gpus))
        sets = kept
    if per_host is not None and per_host > len(sets):
        raise Refused(
            "Error: Resource sets per host of "
            f"{per_host} does not fit on host {job.nodes[0]}: {len(sets)} fit."
        )
    sets = sets[: per_host or len(sets)]
    num_sets = number("nrs", None)
    per_set = number("tasks_per_rs", None)
    total = number("np", None)
    if num_sets is None:
        num_sets = len(job.nodes) * len(sets) if sets else 0
    if not sets or num_sets > len(job.nodes) * len(sets):
        raise Refused(
            f"Error: It is not possible to create {num_sets} resource sets of {cores_per_set} "
            f"CPUs and {gpus_per_set} GPUs: {len(job.nodes)} hosts hold "
            f"{len(job.nodes) * len(sets)}."
        )
    if per_set is None:
        per_set = -(-(total or num_sets) // num_sets)
    total = total or num_sets * per_set

    distribution, _, plane = str(options.get("launch_distribution", "packed")).partition(":")
    if distribution not in ("packed", "cyclic", "plane"):
        raise Refused(f"Error: invalid launch distribution {distribution}")
    binding = str(options.get("bind", "packed:1"))
    bound = [_jsrun_binding(binding, machine, cores, per_set) for cores, _ in sets]
    placed = []
    for index in range(num_sets):
        node, _ = divmod(index, len(sets))
        gpus = sets[index % len(sets)][1]
        placed.append([(job.nodes[node], cpus, gpus) for cpus in bound[index % len(sets)]])
    if distribution == "packed":
        flat = [place for one in placed for place in one]
    else:
        run = int(plane or 1)
        flat = []
        for start in range(0, per_set, run):
            for one in placed:
                flat += one[start : start + run]
    seen: dict[str, int] = {}
    tasks = []
    for rank, (node, cpus, gpus) in enumerate(flat[:total]):
        local = seen[node] = seen.get(node, -1) + 1
        tasks.append(Task(rank, node, local, cpus, gpus, gpu_list(gpus) if gpus else None))
    return Step(tasks, command, env)


def _pack(job: Job, size: int, num_gpus: int) -> list[tuple[list[int], tuple[int, ...]]]:
    """Resource sets that one host holds: a set with GPUs takes cores of their socket; a set that
    fits a socket does not span two."""
    machine = job.machine
    free = {
        socket: [core for core in job.cores if machine.socket_of(core) == socket]
        for socket in range(machine.num_sockets)
    }
    idle = {socket: [g for g in job.gpus if machine.facts["gpus"][g] == socket] for socket in free}
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


def _jsrun_binding(text: str, machine, cores: list[int], count: int) -> list[tuple[int, ...]]:
    # "Under the covers, a resource set is a cgroup" (Summit User Guide, "Resource Sets").
    if text in ("none", "rs"):
        return [machine.cpus_of_cores(cores)] * count
    kind, _, size = text.partition(":")
    if kind not in ("packed", "proportional-packed") or not (size.isdigit() or not size):
        raise Refused(f"Error: invalid binding {text}")
    width = int(size or 1)
    if width * count > len(cores):
        width = max(1, len(cores) // count)
    return [
        machine.cpus_of_cores(
            cores[local * width : (local + 1) * width] or [cores[local % len(cores)]]
        )
        for local in range(count)
    ]


def print_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
