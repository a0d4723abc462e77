"""Launchers that come with an MPI, with Flux or with ALPS; see ``launch.py``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .job import Job, Task
from .launch import Step, fill, gpu_list, mask_of, tasks_of
from .machine import Machine, numbers
from .options import Refused, read


def all_gpus(job: Job, cpus: list[tuple[int, ...]]) -> list[tuple]:
    """Return the places of a launcher that does not assign GPUs: a task can reach all of them."""
    return [(chosen, job.gpus, None) for chosen in cpus]


def choose_hosts(job: Job, names: list[str]) -> None:
    """Restrict a job to some of its nodes.

    :raises Refused: if one of them is not the job's.
    """
    room = dict(zip(job.nodes, job.slots, strict=True))
    for name in names:
        if name not in room:
            raise Refused(f"{name} is not in the allocation", 255)
    job.nodes = list(dict.fromkeys(names))
    job.slots = [room[node] for node in job.nodes]


# -- Open MPI -----------------------------------------------------------------------------------


def _openmpi_ranks(task: Task) -> dict[str, object]:
    """mpirun(1) of Open MPI 4.1, "Environment Variables"."""
    return {
        "OMPI_COMM_WORLD_RANK": task.rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": task.local,
        "OMPI_COMM_WORLD_NODE_RANK": task.local,
        "PMIX_RANK": task.rank,
    }


def openmpi(words: list[str], job: Job) -> Step:
    """mpirun(1) of Open MPI 4.1, with a rank file of physical numbers."""
    table = "-n|-np= -mca|--mca== --host= --rankfile="
    options, command = read(words, table, "mpirun", glued=False)
    env = {f"OMPI_MCA_{name}": value for name, value in options.all("mca")}
    if "host" in options:
        choose_hosts(job, [name.partition(":")[0] for name in str(options["host"]).split(",")])
    if "rankfile" not in options or env.get("OMPI_MCA_rmaps_rank_file_physical") != "1":
        raise Refused("mpirun: without a rank file of physical numbers: no stand-in")
    tasks = _rank_file(str(options["rankfile"]), job, options.number("np", sum(job.slots)))
    return Step(tasks, command, env, _openmpi_ranks)


def _rank_file(path: str, job: Job, count: int) -> list[Task]:
    """Read the tasks from lines ``rank N=HOST slot=CPUS``. The numbers are the kernel's, and a CPU
    stands for its core (mpirun(1), "Rankfiles")."""
    machine = job.machine
    places: dict[int, tuple[str, tuple[int, ...]]] = {}
    for line in Path(path).read_text().splitlines():
        found = re.fullmatch(r"rank\s*(\d+)\s*=\s*(\S+)\s+slots?\s*=\s*([\d,-]+)", line.strip())
        if not found:
            raise Refused(f"Error, invalid syntax in the rankfile ({path})\nat: {line}")
        # orte/mca/rmaps/rank_file/rmaps_rank_file.c copies it to 64 bytes.
        if len(f"{found[2]} slot={found[3]}") > 63:
            raise Refused("*** buffer overflow detected ***: terminated", 134)
        host = found[2]
        if host == "localhost":
            host = job.nodes[0]
        elif host.startswith("+n") and int(host[2:]) < len(job.nodes):
            host = job.nodes[int(host[2:])]
        cpus = numbers(found[3])
        if host not in job.nodes or max(cpus) >= machine.num_cpus:
            raise Refused(f"{path}: not in the allocation: {line}")
        places[int(found[1])] = (host, machine.cpus_of_cores({*map(machine.core_of, cpus)}))
    local = dict.fromkeys(job.nodes, 0)
    tasks = []
    for rank in range(count):
        if rank not in places:
            raise Refused(f"Rank {rank} is not in the rankfile {path}, of {count} ranks.")
        node, cpus = places[rank]
        tasks.append(Task(rank, node, local[node], cpus, job.gpus))
        local[node] += 1
    return tasks


# -- Hydra: MPICH, MVAPICH2 and Intel MPI -------------------------------------------------------


def _hydra_ranks(task: Task) -> dict[str, object]:
    """What ``mpiexec -n 2 env`` prints under MPICH 4.1 and Intel MPI 2021."""
    return {"PMI_RANK": task.rank, "MPI_LOCALRANKID": task.local}


def hydra(words: list[str], job: Job, intel: bool = False) -> Step:
    """mpiexec.hydra of MPICH ("Using the Hydra process manager"), which binds only on request; of
    Intel MPI (Developer Reference, "Process Pinning"), whose library pins by I_MPI_PIN_DOMAIN."""
    table = "-n|-np= -ppn= -hosts= -genv== -bind-to="
    options, command = read(words, table, "mpiexec.hydra", glued=False)
    env = dict(options.all("genv"))
    settings = {**os.environ, **env}
    if "hosts" in options:
        choose_hosts(job, str(options["hosts"]).split(","))
    slots = list(job.slots)
    # Under a scheduler, Intel MPI ignores -ppn unless this variable is off.
    respects = settings.get("I_MPI_JOB_RESPECT_PROCESS_PLACEMENT") != "0"
    if "ppn" in options and not (intel and job.batch and respects):
        slots = [options.number("ppn")] * len(job.nodes)
    counts = fill(options.number("np", sum(slots)), slots)
    if intel:
        cpus = _intel_pins(max(counts), settings.get("I_MPI_PIN_DOMAIN", ""))
    else:
        cpus = _hydra_binding(job, max(counts), str(options.get("bind-to", "none")))
    return Step(tasks_of(job, counts, all_gpus(job, cpus)), command, env, _hydra_ranks)


def _hydra_binding(job: Job, most: int, text: str) -> list[tuple[int, ...]]:
    kind, _, values = text.partition(":")
    if kind == "none":
        return [job.cpus] * most
    if kind != "user":
        raise Refused(f'unrecognized binding mode "{text}"', 255)
    sets = [tuple(sorted(map(int, word.split("+")))) for word in values.split(",")]
    if max(map(max, sets)) >= job.machine.num_cpus:
        raise Refused("process binding to a CPU that does not exist", 255)
    return [sets[local % len(sets)] for local in range(most)]


def _intel_pins(most: int, domain: str) -> list[tuple[int, ...]]:
    if not domain.startswith("["):
        raise Refused(f"MPI startup(): I_MPI_PIN_DOMAIN={domain}: no stand-in", 255)
    masks = domain.strip("[]").split(",")
    return [mask_of(masks[local % len(masks)]) for local in range(most)]


def mvapich_affinity(tasks: list[Task], env: dict, machine: Machine) -> list[Task]:
    """Return where MVAPICH's library moves its processes in MPI_Init: to a core of its own for
    each, packed, unless MV2_ENABLE_AFFINITY=0 (MVAPICH2) and MVP_ENABLE_AFFINITY=0 (MVAPICH 3). No
    report from before MPI_Init shows that (MVAPICH2 User Guide, "Running with Efficient CPU (Core)
    Mapping")."""
    if env.get("MV2_ENABLE_AFFINITY") == env.get("MVP_ENABLE_AFFINITY") == "0":
        return tasks
    return [
        task._replace(cpus=machine.cpus_of_core(task.local % machine.num_cores)) for task in tasks
    ]


# -- HPE: PALS and MPT --------------------------------------------------------------------------


def _pals_ranks(task: Task) -> dict[str, object]:
    """ALCF User Guides: Aurora, "Running Jobs" (``PALS_LOCAL_RANKID``); Polaris, "Using GPUs"
    (``PMI_LOCAL_RANK``)."""
    return {
        "PALS_RANKID": task.rank,
        "PALS_LOCAL_RANKID": task.local,
        "PMI_RANK": task.rank,
        "PMI_LOCAL_RANK": task.local,
    }


def pals(words: list[str], job: Job) -> Step:
    """mpiexec(1) of HPE's Parallel Application Launch Service, as Polaris has it: it does not bind
    ranks to GPUs (ALCF User Guides, Polaris, "Binding MPI ranks to GPUs"). CPU lists are separated
    by colons, one for each rank of the node."""
    options, command = read(words, "-n= --ppn= --cpu-bind=", "mpiexec")
    count = options.number("n", len(job.nodes) * options.number("ppn", 1))
    per_node = options.number("ppn", -(-count // len(job.nodes)))
    counts = fill(count, [per_node] * len(job.nodes))
    most = max(counts)
    kind, _, lists = str(options.get("cpu-bind", "")).partition(":")
    if kind != "list":
        raise Refused(f"mpiexec: --cpu-bind {kind}: no stand-in")
    cpus = [tuple(sorted(numbers(text))) for text in lists.split(":")]
    if len(cpus) < most or not all(set(chosen) <= set(job.cpus) for chosen in cpus):
        raise Refused(f"mpiexec: cannot bind {most} ranks to {lists}")
    return Step(tasks_of(job, counts, all_gpus(job, cpus)), command, ranks=_pals_ranks)


def _mpt_ranks(task: Task) -> dict[str, object]:
    """No local one. RADICAL-Pilot's launch method for MPT reads this one."""
    return {"MPT_MPI_RANK": task.rank}


def mpt(words: list[str], job: Job) -> Step:
    """mpiexec_mpt(1) of HPE's MPT under PBS. MPI_DSM_OFF must say that it does not bind, and
    MPI_SHEPHERD that a shell may start the program (mpi(1))."""
    options, command = read(words, "-np= -ppn=", "mpiexec_mpt", glued=False)
    slots = [options.number("ppn")] * len(job.nodes) if "ppn" in options else job.slots
    counts = fill(options.number("np", sum(slots)), slots)
    if "MPI_DSM_OFF" not in os.environ:
        raise Refused("mpiexec_mpt: binding of its own: no stand-in")
    if os.environ.get("MPI_SHEPHERD") != "true":
        raise Refused("MPT ERROR: could not run executable.")
    cpus = [job.cpus] * max(counts)
    return Step(tasks_of(job, counts, all_gpus(job, cpus)), command, ranks=_mpt_ranks)


# -- ALPS ---------------------------------------------------------------------------------------


def _alps_ranks(task: Task) -> dict[str, object]:
    """No local one: aprun(1), "ENVIRONMENT VARIABLES"."""
    return {"ALPS_APP_PE": task.rank}


#: What aprun prints at the end (HPE, "Additional aprun Information", "Usage Output String").
USAGE = "Application 2634 resources: utime ~0s, stime ~0s, Rss ~4284, inblocks ~0, outblocks ~0"


def aprun(words: list[str], job: Job) -> Step:
    """aprun(1) of Cray's ALPS. A PE has ``-d`` CPUs in a row, or of a list one."""
    machine = job.machine
    options, command = read(words, "-n= -N= -d= -cc=", "aprun")
    # ALPS counts one hardware thread of each core after the other.
    threads = range(machine.smt)
    order = [machine.cpus_of_core(core)[thread] for thread in threads for core in job.cores]
    count, depth = options.number("n", 1), options.number("d", 1)
    per_node = options.number("N", max(1, min(count, len(order) // depth)))
    if per_node * depth > len(order):
        raise Refused(f"aprun: -N value {per_node} cannot exceed {len(order) // depth}")
    counts = fill(count, [per_node] * len(job.nodes))
    most = max(counts)
    binding = str(options.get("cc", ""))
    if binding == "none":
        cpus = [tuple(sorted(order))] * most
    elif binding == "depth":
        cpus = [tuple(sorted(order[n * depth : (n + 1) * depth])) for n in range(most)]
    elif re.fullmatch(r"[\d,-]+", binding) and set(numbers(binding)) <= set(order):
        listed = numbers(binding)
        cpus = [(listed[local % len(listed)],) for local in range(most)]
    else:
        raise Refused(f"aprun: -cc value {binding} is not valid")
    step = Step(tasks_of(job, counts, all_gpus(job, cpus)), command, ranks=_alps_ranks)
    step.closing = USAGE
    return step


# -- Flux ---------------------------------------------------------------------------------------


def _flux_ranks(task: Task) -> dict[str, object]:
    """src/shell/task.c and src/shell/pmi/pmi.c of flux-core; flux-environment(7)."""
    return {
        "FLUX_TASK_RANK": task.rank,
        "FLUX_TASK_LOCAL_ID": task.local,
        "PMI_RANK": task.rank,
    }


def flux_run(words: list[str], job: Job) -> Step:
    """flux-run(1) and flux-shell-options(7) of flux-core, with the nodes of the job to itself, and
    without the site's mpibind plugin, which would take the place of both affinities."""
    options, command = read(words, "-N= --tasks-per-node= -x|--exclusive --env= -o=", "flux-run")
    nodes, most = options.number("N", 1), options.number("tasks-per-node", 1)
    shell = options.pairs("o")
    for rule in options.all("env"):
        if not re.fullmatch(r"-\w+", rule):
            raise Refused(f"flux-run: --env={rule}: no stand-in")
        os.environ.pop(rule[1:], None)
    if "exclusive" not in options or shell.get("mpibind") != "off":
        raise Refused("flux-run: shared nodes, or mpibind: no stand-in")
    if nodes > len(job.nodes) or not 0 < most <= len(job.cores):
        raise Refused("flux-run: ERROR: unsatisfiable request")
    cpus = [tuple(sorted(mine)) for mine in _flux_map(shell, "cpu-affinity", most)]
    gpus: list[str | None] = [None] * most
    if shell.get("gpu-affinity") != "off":
        gpus = [gpu_list(mine) for mine in _flux_map(shell, "gpu-affinity", most)]
    # GPUs are listed in a variable alone: a task can reach all of the node's.
    places = [(mine, job.gpus, listed) for mine, listed in zip(cpus, gpus, strict=True)]
    return Step(tasks_of(job, [most] * nodes, places), command, ranks=_flux_ranks)


def _flux_map(shell: dict[str, str], name: str, most: int) -> list[list[int]]:
    """Return the numbers of each local rank; the last list is that of all further ones."""
    text = shell.get(name, "")
    if not text.startswith("map:"):
        raise Refused(f"flux-shell: FATAL: {name}: invalid option: {text}")
    lists = [numbers(word) for word in text[4:].split(";")]
    return (lists + [lists[-1]] * most)[:most]
