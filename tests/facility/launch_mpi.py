"""Launchers that come with an MPI, with Flux or with ALPS; see ``launch.py``."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from .job import Job, Task
from .launch import (
    Step,
    fill,
    gpu_list,
    mask_of,
    ranks,
    spread,
    tasks_of,
    telling,
)
from .machine import Machine, numbers
from .options import Refused, read


def inherited(job: Job) -> tuple[tuple[int, ...], str | None]:
    """GPUs of a task whose launcher knows nothing of GPUs."""
    return job.gpus, None


def same_everywhere(job: Job, cpus: list[tuple[int, ...]]) -> list[tuple]:
    return [(chosen, *inherited(job)) for chosen in cpus]


# -- Open MPI -----------------------------------------------------------------------------------

OPENMPI = """
-c|-n|-np= -host|--host|-H= -hostfile|--hostfile|-machinefile|--machinefile= -rf|--rankfile=
-bind-to|--bind-to= -map-by|--map-by= -rank-by|--rank-by= -npernode|--npernode|-N=
-npersocket|--npersocket= -pernode|--pernode -x= -mca|--mca== -gmca|--gmca== --prefix=
-report-bindings|--report-bindings -oversubscribe|--oversubscribe
-nooversubscribe|--nooversubscribe -allow-run-as-root|--allow-run-as-root
-use-hwthread-cpus|--use-hwthread-cpus -cpu-set|--cpu-set|-cpu-list|--cpu-list=
-display-map|--display-map -display-allocation|--display-allocation -tag-output|--tag-output
-timeout|--timeout= -wdir|--wdir|-wd= -path|--path= -q|--quiet -v|--verbose -V|--version
-stdin|--stdin= -output-filename|--output-filename= -bycore|--bycore -bynode|--bynode
-byslot|--byslot -bind-to-core|--bind-to-core -bind-to-socket|--bind-to-socket
-bind-to-none|--bind-to-none -display|--display= -prtemca|--prtemca== -pmixmca|--pmixmca==
-cpus-per-proc|--cpus-per-proc=
"""


def _openmpi_ranks(task: Task) -> dict[str, object]:
    """mpirun(1) of Open MPI 4.1, "Environment Variables"."""
    return {
        "OMPI_COMM_WORLD_RANK": task.rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": task.local,
        "OMPI_COMM_WORLD_NODE_RANK": task.local,
        "PMIX_RANK": task.rank,
    }


@telling(_openmpi_ranks)
def openmpi(words: list[str], job: Job, release: int = 4) -> Step:
    """mpirun(1) of Open MPI 4.1 (and before); of 5.0 where its rules differ."""
    machine = job.machine

    def unknown(word):
        raise Refused(
            "--------------------------------------------------------------------------\n"
            f"mpirun: Error: unknown option \"{word}\"\nType 'mpirun --help' for usage.\n"
            "--------------------------------------------------------------------------",
            213 if release == 5 else 1,
        )

    options, command = read(words, OPENMPI, unknown, glued=False)
    if "version" in options:
        print(f"mpirun (Open MPI) {'5.0.3' if release == 5 else '4.1.0'}")
        raise SystemExit(0)
    if not command:
        raise Refused(
            "mpirun could not find anything to do.\n\nIt is possible that you forgot to specify "
            'how many processes to run\nvia the "-np" argument.'
        )
    env = {}
    for pair in options.all("x"):
        name, equals, value = str(pair).partition("=")
        env[name] = value if equals else os.environ.get(name, "")
    for name, value in options.all("mca"):
        env[f"OMPI_MCA_{name}"] = value
    _hosts(options, job)
    rank_file = options.get("rankfile")
    mapping = str(options.get("map-by", ""))
    for name, value in (("bycore", "core"), ("bynode", "node"), ("byslot", "slot")):
        mapping = value if name in options else mapping
    if mapping.startswith("rankfile:"):
        rank_file = mapping.partition("file=")[2]
    if rank_file:
        wanted = options.number("np")
        physical = env.get("OMPI_MCA_rmaps_rank_file_physical") in ("1", "true")
        tasks = _rank_file(Path(str(rank_file)), job, wanted, release, physical)
        return Step(tasks, command, env)

    per_node = options.number("N")
    if "pernode" in options:
        per_node = 1
    kind, *modifiers = mapping.split(":")
    per_object = None
    if kind == "ppr":
        per_object = int(modifiers.pop(0))
        kind = modifiers.pop(0) if modifiers else ""
    modifiers = [word.lower() for part in modifiers for word in part.split(",")]
    width = options.number("cpus-per-proc") or 1
    for word in modifiers:
        if word.startswith("pe="):
            width = int(word[3:])
        elif word not in ("oversubscribe", "nooversubscribe", "span", "hwtcpus", "corecpus"):
            raise Refused(f'mpirun: Error: The map-by directive "{word}" is not recognized.')
    over = "oversubscribe" in options or "oversubscribe" in modifiers
    seen = {**os.environ, **env}
    over = over or seen.get("OMPI_MCA_rmaps_base_oversubscribe") in ("1", "true")

    slots = list(job.slots)
    count = options.number("np")
    if per_node is not None:
        count = count or per_node * len(job.nodes)
    if count is None and per_object and kind == "node":
        count = per_object * len(job.nodes)
    if count is None and per_object and kind in ("socket", "package"):
        count = per_object * len(job.nodes) * machine.num_sockets
    count = count or sum(slots)
    if count > sum(slots) and not over:
        raise Refused(_NO_SLOTS.format(count=count, program=command[0]))

    if per_object and kind in ("socket", "package"):
        per_node = per_object * machine.num_sockets
    elif per_object and kind == "node":
        per_node = per_object
    if per_node is not None:
        if per_node > len(job.cores) * machine.smt and not over:
            raise Refused(_NO_SLOTS.format(count=count, program=command[0]))
        counts = _fill_or_refuse(count, [per_node] * len(job.nodes), command)
    elif kind == "node":
        counts = spread(count, len(job.nodes))
    else:
        counts = _fill_or_refuse(
            count, [max(room, count) if over else room for room in slots], command
        )

    few = count <= 2
    by = kind or ("core" if few else ("numa" if release == 5 else "socket"))
    binding = str(options.get("bind-to", "")).split(":")[0]
    for name in ("core", "socket", "none"):
        binding = name if f"bind-to-{name}" in options else binding
    if not binding:
        binding = "core" if few or width > 1 else ("numa" if release == 5 else "socket")
        if max(counts) > len(job.cores):
            binding = "none"
    listed = options.get("cpu-list")
    cpus = _openmpi_places(job, max(counts), by, binding, width, listed)
    order = ranks(job, counts, cyclic=kind == "node" and options.get("rank-by") != "slot")
    if kind == "node" and "pe" not in mapping and per_object:
        order = ranks(job, counts)
    return Step(tasks_of(job, order, same_everywhere(job, cpus)), command, env)


_NO_SLOTS = """\
--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the {count}
slots that were requested by the application:

  {program}

Either request fewer slots for your application, or make more slots
available for use.
--------------------------------------------------------------------------"""


def _fill_or_refuse(count: int, slots: list[int], command: list[str]) -> list[int]:
    try:
        return [used for used in fill(count, slots) if used]
    except ValueError:
        raise Refused(_NO_SLOTS.format(count=count, program=command[0])) from None


def _hosts(options, job: Job) -> None:
    """``--host`` and ``--hostfile`` choose among the job's nodes."""
    if "H" in options:
        listed = [word.partition(":") for word in str(options["H"]).split(",")]
        chosen: dict[str, int] = {}
        for node, _, room in listed:
            chosen[node] = chosen.get(node, 0) + int(room or 1)
    elif "machinefile" in options or any("hostfile" in name for name in options):
        name = "--machinefile" if "machinefile" not in options else "machinefile"
        path = Path(str(options[name]))
        try:
            lines = [line.split() for line in path.read_text().splitlines()]
        except OSError:
            raise Refused(f"Open RTE was unable to open the hostfile:\n    {path}") from None
        chosen = {}
        for line in filter(None, lines):
            room = [int(word[6:]) for word in line[1:] if word.startswith("slots=")]
            chosen[line[0]] = chosen.get(line[0], 0) + (room or [1])[0]
    else:
        return
    job.nodes = [job.nodes[0] if node == "localhost" else node for node in chosen]
    job.slots = list(chosen.values())


def _openmpi_places(job, most, by, binding, width, listed) -> list[tuple[int, ...]]:
    machine = job.machine
    if listed is not None:
        chosen = numbers(listed)
        if binding.startswith("cpu"):
            return [(chosen[local % len(chosen)],) for local in range(most)]
    own: list[list[int]] = []
    groups = {
        "socket": machine.socket_of,
        "package": machine.socket_of,
        "numa": machine.numa_of,
    }
    free = list(job.cores)
    for local in range(most):
        if by in groups:
            domains = sorted({groups[by](core) for core in job.cores})
            domain = domains[local % len(domains)]
            pool = [core for core in free if groups[by](core) == domain] or free
        else:
            pool = free
        if len(pool) < width:
            pool = free if len(free) >= width else list(job.cores)
        own.append(pool[:width])
        free = [core for core in free if core not in own[-1]]
    if binding == "none":
        return [job.cpus] * most
    if binding == "core":
        return [machine.cpus_of_cores(cores) for cores in own]
    if binding == "hwthread":
        return [tuple(machine.cpus_of_core(core)[0] for core in cores) for cores in own]
    if binding in groups:
        found = []
        for cores in own:
            domain = groups[binding](cores[0])
            found.append(
                machine.cpus_of_cores([c for c in job.cores if groups[binding](c) == domain])
            )
        return found
    raise Refused(f'mpirun: Error: unknown binding "{binding}".')


def _cpus_of_slot(slot: str, machine: Machine) -> list[int]:
    """CPUs of a slot in physical numbers."""
    try:
        cpus = numbers(slot)
    except ValueError:
        raise Refused(f"Error, invalid slot in the rankfile: {slot}") from None
    if max(cpus) >= machine.num_cpus:
        raise Refused(f"The rankfile that was used claimed a CPU that does not exist: {slot}")
    return cpus


def _rank_file(
    path: Path, job: Job, wanted: int | None, release: int, physical: bool
) -> list[Task]:
    """``rank N=HOST slot=SOCKET:CORES[;...]``, logical numbers; ``slot=CPUS``, cores in a row, or
    the kernel's numbers with the parameter ``rmaps_rank_file_physical`` (mpirun(1),
    "Rankfiles")."""
    machine = job.machine
    try:
        text = path.read_text()
    except OSError:
        raise Refused(f"Open RTE was unable to open the rank file:\n    {path}") from None
    found: dict[int, tuple[str, tuple[int, ...]]] = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"rank\s*(\d+)\s*=\s*(\S+)\s+slots?\s*=\s*(\S+)", line)
        if not match:
            raise Refused(f"Error, invalid syntax in the rankfile ({path})\nat: {line}")
        rank, host, slot = int(match[1]), match[2], match[3]
        if host.startswith("+n"):
            index = int(host[2:])
            host = job.nodes[index] if index < len(job.nodes) else host
        elif host == "localhost":
            host = job.nodes[0]
        if host not in job.nodes:
            raise Refused(
                "A host was specified in the rankfile that is not in the allocation:\n"
                f"  host: {host}"
            )
        cores: list[int] = []
        if physical:
            cpus = _cpus_of_slot(slot, machine)
            found[rank] = (host, machine.cpus_of_cores(sorted({*map(machine.core_of, cpus)})))
            continue
        for part in slot.split(";"):
            socket, colon, inner = part.partition(":")
            for piece in inner.split(",") if colon else part.split(","):
                if release == 4 and colon and piece != inner.split(",")[0] and ":" not in piece:
                    # 4.1 takes what stands behind a comma for a socket.
                    cores += machine.cores_of_socket(int(piece))
                    continue
                if colon and ":" in piece:
                    socket, _, piece = piece.partition(":")
                listed = (
                    [core for core in job.cores if machine.socket_of(core) == int(socket)]
                    if colon
                    else job.cores
                )
                wanted_cores = range(len(listed)) if piece == "*" else numbers(piece)
                for index in wanted_cores:
                    if index >= len(listed):
                        raise Refused(
                            "The rankfile that was used claimed that a CPU was available that "
                            f"is not:\n  rank {rank}, slot {slot}"
                        )
                    cores.append(listed[index])
        found[rank] = (host, machine.cpus_of_cores(cores))
    count = wanted if wanted is not None else len(found)
    missing = [rank for rank in range(count) if rank not in found]
    if missing:
        raise Refused(
            f"Rank {missing[0]} is not in the rankfile {path}, but {count} were asked for."
        )
    return number_locally(
        [(found[rank][0], found[rank][1], *inherited(job)) for rank in range(count)]
    )


def number_locally(places: list[tuple]) -> list[Task]:
    """Tasks of (node, CPUs, GPUs, given) in rank order."""
    seen: dict[str, int] = {}
    tasks = []
    for rank, (node, cpus, gpus, given) in enumerate(places):
        local = seen[node] = seen.get(node, -1) + 1
        tasks.append(Task(rank, node, local, cpus, gpus, given))
    return tasks


# -- Hydra: MPICH and Intel MPI -----------------------------------------------------------------

HYDRA = """
-np|-n= -ppn|-perhost= -f|-hostfile|-machinefile= -host|-hosts= -genv== -env== -genvlist=
-envlist= -genvall -envall -genvnone -envnone -bind-to|-binding= -map-by= -membind=
-launcher|-bootstrap= -launcher-exec= -rmk= -print-rank-map -print-all-exitcodes -l|-prepend-rank=
-v|-verbose -info|-version|-V -iface= -wdir= -order-nodes= -outfile-pattern= -errfile-pattern=
-usize= -localhost= -disable-auto-cleanup -disable-hostname-propagation -nolocal
"""


def _hydra_ranks(task: Task) -> dict[str, object]:
    """What ``mpiexec -n 2 env`` prints under MPICH 4.1 and Intel MPI 2021."""
    return {"PMI_RANK": task.rank, "MPI_LOCALRANKID": task.local}


@telling(_hydra_ranks)
def hydra(words: list[str], job: Job, intel: bool = False) -> Step:
    """mpiexec.hydra of MPICH ("Using the Hydra process manager"), which binds nothing unless told;
    of Intel MPI (Developer Reference, "Process Pinning"), whose library pins by I_MPI_PIN."""
    name = "mpiexec.hydra" if intel else "mpiexec"

    def unknown(word):
        raise Refused(
            f"[mpiexec@{job.nodes[0]}] match_arg (lib/utils/args.c:166): unrecognized argument "
            f"{word.lstrip('-')}\n[mpiexec@{job.nodes[0]}] HYDU_parse_array (lib/utils/args.c:182"
            "): argument matching returned error\nUsage: ./"
            f"{name} [global opts] [local opts for exec1] [exec1] [exec1 args]",
            255,
        )

    # Either number of hyphens will do.
    doubled = (re.sub(r"(^|\|)(?=-)", r"\1-", entry.rstrip("=")) for entry in HYDRA.split())
    table = " ".join(
        f"{double}|{entry}" for double, entry in zip(doubled, HYDRA.split(), strict=True)
    )
    options, command = read(words, table, unknown, glued=False)
    if "V" in options:
        print(
            "Intel(R) MPI Library for Linux* OS, Version 2019 Update 5"
            if intel
            else "HYDRA build details:\n    Version:                                 4.1.2"
        )
        raise SystemExit(0)
    if not command:
        raise Refused(
            f"[mpiexec@{job.nodes[0]}] HYD_uii_mpx_get_parameters: no executable provided", 255
        )
    env = dict(pair for key in ("genv", "env") for pair in options.all(key))
    seen = {**os.environ, **env}
    if "hosts" in options:
        _only(job, str(options["hosts"]).split(","))
    if "machinefile" in options:
        lines = Path(str(options["machinefile"])).read_text().split()
        _only(job, [line.partition(":")[0] for line in lines])
    slots = list(job.slots)
    per_node = options.number("perhost")
    if per_node is None and intel and seen.get("I_MPI_PERHOST", "").isdigit():
        per_node = int(seen["I_MPI_PERHOST"])
    respects = seen.get("I_MPI_JOB_RESPECT_PROCESS_PLACEMENT", "on") not in _OFF
    if per_node and not (intel and job.batch and respects):
        slots = [per_node] * len(job.nodes)
    count = options.number("n") or sum(slots)
    counts = [0] * len(job.nodes)
    left = count
    while left:
        # Once every node is full, Hydra begins anew with the first one.
        for index, room in enumerate(slots):
            taken = min(room, left)
            counts[index] += taken
            left -= taken
    used = [number for number in counts if number]
    if intel:
        cpus = _intel_pins(job, max(used), seen)
    else:
        cpus = _hydra_binding(job, max(used), str(options.get("binding", "none")))
    return Step(tasks_of(job, ranks(job, used), same_everywhere(job, cpus)), command, env)


_OFF = ("0", "off", "no", "disable")


def _only(job: Job, nodes: list[str]) -> None:
    """Chooses among the job's nodes."""
    room = dict(zip(job.nodes, job.slots, strict=True))
    found = [job.nodes[0] if node == "localhost" else node for node in nodes]
    away = [node for node in found if node not in room]
    if away:
        raise Refused(f"ssh: Could not resolve hostname {away[0]}: Name or service not known", 255)
    job.nodes = list(dict.fromkeys(found))
    job.slots = [room[node] for node in job.nodes]


def _hydra_binding(job: Job, most: int, text: str) -> list[tuple[int, ...]]:
    machine = job.machine
    kind, _, listed = text.partition(":")
    if kind == "none":
        return [job.cpus] * most
    if kind == "user":
        try:
            sets = [tuple(sorted(map(int, word.split("+")))) for word in listed.split(",")]
        except ValueError:
            raise Refused(f"invalid user binding: {listed}", 255) from None
        if any(cpu >= machine.num_cpus for chosen in sets for cpu in chosen):
            raise Refused("HYDT_topo_hwloc_init: process binding to a CPU that does not exist", 255)
        return [sets[local % len(sets)] for local in range(most)]
    width = int(listed or 1)
    if kind in ("rr", "hwthread"):
        order = [cpu for core in job.cores for cpu in machine.cpus_of_core(core)]
        return [
            tuple(order[(local * width + n) % len(order)] for n in range(width))
            for local in range(most)
        ]
    if kind == "core":
        return [
            machine.cpus_of_cores(
                job.cores[(local * width + n) % len(job.cores)] for n in range(width)
            )
            for local in range(most)
        ]
    domain = {"socket": machine.socket_of, "numa": machine.numa_of}.get(kind)
    if not domain:
        raise Refused(f'unrecognized binding mode "{text}"', 255)
    domains = sorted({domain(core) for core in job.cores})
    return [
        machine.cpus_of_cores(
            [core for core in job.cores if domain(core) == domains[local % len(domains)]]
        )
        for local in range(most)
    ]


def _intel_pins(job: Job, most: int, seen: dict) -> list[tuple[int, ...]]:
    machine = job.machine
    if seen.get("I_MPI_PIN", "on").lower() in _OFF:
        return [job.cpus] * most
    domain = seen.get("I_MPI_PIN_DOMAIN", "")
    listed = seen.get("I_MPI_PIN_PROCESSOR_LIST", "")
    if domain.startswith("["):
        masks = domain.strip("[]").split(",")
        return [mask_of(masks[local % len(masks)]) for local in range(most)]
    if listed and not domain:
        chosen = numbers(listed.split(":")[0])
        return [(chosen[local % len(chosen)],) for local in range(most)]
    kind = domain.split(":")[0] or "auto"
    if kind == "core":
        return [machine.cpus_of_core(job.cores[n % len(job.cores)]) for n in range(most)]
    if kind in ("socket", "sock", "numa"):
        of = machine.numa_of if kind == "numa" else machine.socket_of
        domains = sorted({of(core) for core in job.cores})
        return [
            machine.cpus_of_cores([c for c in job.cores if of(c) == domains[n % len(domains)]])
            for n in range(most)
        ]
    if kind == "node":
        return [job.cpus] * most
    if kind == "omp":
        width = int(seen.get("OMP_NUM_THREADS", "1"))
    elif kind.isdigit():
        width = -(-int(kind) // machine.smt)
    elif kind == "auto":
        width = max(1, len(job.cores) // most)
    else:
        raise Refused(f"MPI startup(): I_MPI_PIN_DOMAIN={domain} is not recognized.", 255)
    return [
        machine.cpus_of_cores(job.cores[(local * width + n) % len(job.cores)] for n in range(width))
        for local in range(most)
    ]


# -- MVAPICH2 -----------------------------------------------------------------------------------


def _mvapich_ranks(task: Task) -> dict[str, object]:
    """MVAPICH2 User Guide, "Run MPI applications using mpirun_rsh"."""
    return {"MV2_COMM_WORLD_RANK": task.rank, "MV2_COMM_WORLD_LOCAL_RANK": task.local}


@telling(_mvapich_ranks)
def mpirun_rsh(words: list[str], job: Job) -> Step:
    """mpirun_rsh of MVAPICH2 2.2 (User Guide, "Run MPI applications using mpirun_rsh")."""

    def unknown(word):
        raise Refused(
            f"mpirun_rsh: unrecognized option '{word}'\nusage: mpirun_rsh [-v] [-sg group] "
            "[-rsh|-ssh] [-debug] -[tv] [-xterm] [-show] [-legacy] [-export|-export-all] -np N "
            "(-hostfile hfile | h1 h2 ... hN) a.out args | -config configfile ",
            1,
        )

    table = "-np|-n= -hostfile= -ssh -rsh -export -export-all -show -debug -sg= -legacy -v"
    options, rest = read(words, table, unknown, glued=False)
    count = options.number("n")
    if not count:
        raise Refused("mpirun_rsh: -np was not given")
    if "hostfile" in options:
        hosts = Path(str(options["hostfile"])).read_text().split()
        hosts = [word.partition(":")[0] for word in hosts]
    else:
        hosts = []
        while rest and rest[0] in job.nodes:
            hosts.append(rest.pop(0))
    if not hosts:
        raise Refused("mpirun_rsh: no hosts were given: -hostfile or h1 h2 ...")
    env = {}
    while rest and re.match(r"\w+=", rest[0]):
        name, _, value = rest.pop(0).partition("=")
        env[name] = value
    places = [(hosts[rank % len(hosts)], job.cpus, *inherited(job)) for rank in range(count)]
    return Step(number_locally(places), rest, env)


def mvapich_affinity(tasks: list[Task], env: dict, machine: Machine) -> list[Task]:
    """Where MVAPICH2's library moves its processes in MPI_Init, after anything that looked at them
    from outside: a core of its own for each, packed, unless MV2_ENABLE_AFFINITY=0 (User Guide,
    "Running with Efficient CPU (Core) Mapping")."""
    if env.get("MV2_ENABLE_AFFINITY", "1") == "0":
        return tasks
    mapping = env.get("MV2_CPU_MAPPING", "")
    sets = [tuple(sorted(numbers(word))) for word in mapping.split(":") if word]
    order = list(range(machine.num_cores))
    if env.get("MV2_CPU_BINDING_POLICY") == "scatter":
        order.sort(key=lambda core: (core % machine.facts["cores"], machine.socket_of(core)))
    moved = []
    for task in tasks:
        if sets:
            cpus = sets[task.local % len(sets)]
        else:
            cpus = machine.cpus_of_core(order[task.local % len(order)])
        moved.append(task._replace(cpus=cpus))
    return moved


# -- HPE: PALS and MPT --------------------------------------------------------------------------

PALS = """
-n|-np|--np= -ppn|--ppn= -d|--depth= --cpu-bind= --mem-bind= -env|--env= -genv==
--genvall -envall -genvall -l|--label -H|--hosts|-hosts|-host=
-f|--hostfile|-hostfile|--host-file= --line-buffer --exclusive --shared --no-abort-on-failure
--abort-on-failure --pmi= --version --rlimits= --wdir|-wdir= --no-transfer --transfer -v|--verbose
--umask= --fanout= --procinfo= --no-vni
"""


def _pals_ranks(task: Task) -> dict[str, object]:
    """ALCF User Guides: Aurora, "Running Jobs" (``PALS_LOCAL_RANKID``); Polaris, "Using GPUs"
    (``PMI_LOCAL_RANK``)."""
    return {
        "PALS_RANKID": task.rank,
        "PALS_LOCAL_RANKID": task.local,
        "PMI_RANK": task.rank,
        "PMI_LOCAL_RANK": task.local,
    }


@telling(_pals_ranks)
def pals(words: list[str], job: Job) -> Step:
    """mpiexec(1) of HPE's Parallel Application Launch Service, as Polaris has it: it does not bind
    ranks to GPUs (ALCF User Guides, Polaris, "Binding MPI ranks to GPUs"). CPU lists are separated
    by colons, one a rank of the node, each of commas and ranges."""

    def unknown(word):
        raise Refused(f"mpiexec: unrecognized option '{word}'\nTry 'mpiexec --help'.", 1)

    machine = job.machine
    options, command = read(words, PALS, unknown)
    if "version" in options:
        print("mpiexec version 1.3.4")
        raise SystemExit(0)
    if not command:
        raise Refused("mpiexec: no command given", 1)
    env = {}
    for pair in options.all("env"):
        name, _, value = str(pair).partition("=")
        env[name] = value
    env |= dict(options.all("genv"))
    if "host" in options:
        _only(job, str(options["host"]).split(","))
    per_node = options.number("ppn")
    count = options.number("np")
    if per_node is None:
        per_node = -(-count // len(job.nodes)) if count else 1
    count = count or per_node * len(job.nodes)
    if count > per_node * len(job.nodes):
        raise Refused(
            f"mpiexec: {count} ranks do not fit on {len(job.nodes)} hosts with {per_node} each"
        )
    counts = [used for used in fill(count, [per_node] * len(job.nodes)) if used]
    most = max(counts)
    depth = options.number("depth") or 1
    kind, _, listed = str(options.get("cpu-bind", "depth")).removeprefix("verbose,").partition(":")
    firsts = [machine.cpus_of_core(core)[0] for core in job.cores]
    threads = sorted(job.cpus)
    if kind == "none":
        cpus = [job.cpus] * most
    elif kind == "list":
        sets = [tuple(sorted(numbers(word))) for word in listed.split(":")]
        if len(sets) < most:
            raise Refused(f"mpiexec: CPU bind list has {len(sets)} entries for {most} ranks")
        cpus = sets[:most]
    elif kind == "mask":
        sets = [mask_of(word) for word in re.split("[:,]", listed)]
        cpus = [sets[local % len(sets)] for local in range(most)]
    elif kind in ("depth", "thread", "core"):
        if kind == "core":
            own = [
                machine.cpus_of_cores(job.cores[local * depth : (local + 1) * depth])
                for local in range(most)
            ]
        else:
            own = [tuple(threads[n * depth : (n + 1) * depth]) for n in range(most)]
        if not all(own):
            raise Refused(
                f"mpiexec: depth {depth} does not fit {most} ranks on {len(firsts)} cores"
            )
        cpus = own
    elif kind in ("numa", "socket"):
        of = machine.numa_of if kind == "numa" else machine.socket_of
        domains = sorted({of(core) for core in job.cores})
        cpus = [
            machine.cpus_of_cores([c for c in job.cores if of(c) == domains[n % len(domains)]])
            for n in range(most)
        ]
    else:
        raise Refused(f"mpiexec: invalid --cpu-bind {options['cpu-bind']}")
    for chosen in cpus:
        if not set(chosen) <= set(job.cpus):
            raise Refused(f"mpiexec: cannot bind to CPUs {gpu_list(chosen)}")
    places = [(cpu, *inherited(job)) for cpu in cpus]
    return Step(tasks_of(job, ranks(job, counts), places), command, env)


def _mpt_ranks(task: Task) -> dict[str, object]:
    """No local one. RADICAL-Pilot's launch method for MPT reads this one."""
    return {"MPT_MPI_RANK": task.rank}


@telling(_mpt_ranks)
def mpt(words: list[str], job: Job) -> Step:
    """mpiexec_mpt(1) of HPE's MPT under PBS, and omplace(1) behind it. One CPU each, in a row,
    unless MPI_DSM_CPULIST or omplace says otherwise (mpi(1))."""
    machine = job.machine

    def unknown(word):
        raise Refused(f"mpiexec_mpt: ERROR: unknown option {word}", 1)

    table = "-np|-n= -ppn|-perhost= -v -tv -prefix= -stats -spawn -machinefile|-hostfile="
    options, command = read(words, table, unknown, glued=False)
    if not command:
        raise Refused("mpiexec_mpt: ERROR: no command given", 1)
    per_node = options.number("perhost")
    slots = [per_node] * len(job.nodes) if per_node else list(job.slots)
    count = options.number("n") or sum(slots)
    try:
        counts = [used for used in fill(count, slots) if used]
    except ValueError:
        raise Refused(
            "mpiexec_mpt error: number of ranks exceeds the slots of the job", 1
        ) from None
    most = max(counts)
    listed = os.environ.get("MPI_DSM_CPULIST", "")
    cpus: list[tuple[int, ...]]
    if command[0] == "omplace":
        inner, command = read(
            command[1:],
            "-nt= -c= -b= -s= -tm= -v -vv -ht=",
            lambda word: (_ for _ in ()).throw(Refused(f"omplace: unknown option {word}", 1)),
        )
        width = int(inner.get("nt", os.environ.get("OMP_NUM_THREADS", "1")))
        order = numbers(str(inner["c"])) if "c" in inner else list(job.cpus)
        cpus = [tuple(sorted(order[n * width : (n + 1) * width])) for n in range(most)]
    elif os.environ.get("MPI_DSM_OFF") is not None:
        cpus = [job.cpus] * most
    elif listed:
        order = numbers(listed.removesuffix(":allhosts").split(":")[0])
        cpus = [(order[n % len(order)],) for n in range(most)]
    else:
        cpus = [machine.cpus_of_core(job.cores[n % len(job.cores)])[:1] for n in range(most)]
    if not all(cpus):
        raise Refused("MPT ERROR: CPU list is too short", 1)
    return Step(tasks_of(job, ranks(job, counts), same_everywhere(job, cpus)), command)


def fujitsu(words: list[str], job: Job) -> Step:
    """mpiexec of Fujitsu's Technical Computing Suite: processes in a row over the cores."""

    def unknown(word):
        raise Refused(f"[mpi::mpi-runtime::option] unknown option {word}", 1)

    table = "-n|-np= -ofout|--ofout= -oferr|--oferr= -stdin= -nompi -of= -mca== -x="
    options, command = read(words, table, unknown, glued=False)
    count = options.number("np") or 1
    counts = [used for used in fill(count, job.slots) if used]
    cpus = [job.machine.cpus_of_core(job.cores[n]) for n in range(max(counts))]
    return Step(tasks_of(job, ranks(job, counts), same_everywhere(job, cpus)), command)


# -- ALPS ---------------------------------------------------------------------------------------

APRUN = """
-n|--pes= -N|--pes-per-node= -d|--cpus-per-pe= -j|--cpus-per-cu= -S|--pes-per-numa-node= -sn= -sl=
-ss -cc|--cpu-binding= -cp|--cpu-binding-file= -D|--debug= -F|--access-mode= -L|--node-list=
-m|--memory-per-pe= -r|--specialized-cpus= -q|--quiet -T|--sync-output -t|--cpu-time-limit=
-e|--environment-override= -b|--bypass-app-transfer -B|--batch-args
-p|--protection-domain-identifier= -P|--pipes= -R|--relaunch= -V|--version -a|--architecture=
-C|--reconnect -k
"""


def _alps_ranks(task: Task) -> dict[str, object]:
    """No local one: aprun(1), "ENVIRONMENT VARIABLES"."""
    return {"ALPS_APP_PE": task.rank}


@telling(_alps_ranks)
def aprun(words: list[str], job: Job) -> Step:
    """aprun(1) of Cray's ALPS. CPU lists are separated by colons, one a PE of the node."""
    machine = job.machine

    def unknown(word):
        raise Refused(f"aprun: unrecognized option '{word}'\naprun: Exiting due to errors.", 1)

    options, command = read(words, APRUN, unknown)
    if not command:
        raise Refused("aprun: No executable was given.\naprun: Exiting due to errors.", 1)
    env = {}
    for pair in options.all("environment-override"):
        name, _, value = str(pair).partition("=")
        env[name] = value
    complaint = "aprun: -{0} value {1} is not a number\naprun: Exiting due to errors."
    count = options.number("pes", complaint) or 1
    depth = options.number("cpus-per-pe", complaint) or 1
    streams = options.number("cpus-per-cu", complaint) or machine.smt
    if streams > machine.smt:
        raise Refused(f"aprun: -j value {streams} exceeds {machine.smt}", 1)
    if "node-list" in options:
        _only(job, str(options["node-list"]).split(","))
    kept = options.number("specialized-cpus", complaint) or 0
    cores = job.cores[: len(job.cores) - kept]
    columns = [[machine.cpus_of_core(core)[t] for core in cores] for t in range(streams)]
    order = [cpu for column in columns for cpu in column]
    per_node = options.number("pes-per-node", complaint)
    if per_node is None:
        per_node = max(1, min(count, len(order) // depth))
    if per_node * depth > len(order):
        raise Refused(
            f"aprun: -N value {per_node} cannot exceed largest node size {len(order) // depth}\n"
            "aprun: Exiting due to errors."
        )
    try:
        counts = [used for used in fill(count, [per_node] * len(job.nodes)) if used]
    except ValueError:
        raise Refused("apsched: claim exceeds reservation's node-count", 1) from None
    most = max(counts)
    per_domain = options.number("pes-per-numa-node", complaint)
    starts = _aprun_starts(machine, cores, order, most, depth, per_domain)
    binding = str(options.get("cpu-binding", "cpu"))
    domain_of = {cpu: machine.numa_of(machine.core_of(cpu)) for cpu in order}
    if binding == "none":
        cpus = [tuple(sorted(order))] * most
    elif binding == "cpu":
        cpus = [(own[0],) for own in starts]
    elif binding == "depth":
        cpus = [tuple(sorted(own)) for own in starts]
    elif binding == "numa_node":
        cpus = [
            tuple(sorted(cpu for cpu in order if domain_of[cpu] == domain_of[own[0]]))
            for own in starts
        ]
    else:
        try:
            sets = [
                tuple(sorted(order)) if word == "x" else tuple(sorted(numbers(word)))
                for word in binding.split(":")
            ]
        except ValueError:
            raise Refused(f"aprun: -cc value {binding} is not valid", 1) from None
        outside = {cpu for chosen in sets for cpu in chosen} - set(order)
        if outside:
            raise Refused(f"aprun: -cc CPU {min(outside)} is not among the reserved CPUs", 1)
        # A PE itself sits on the first CPU of its list; the threads that it makes take the others.
        if ":" not in binding and binding != "x":
            order = numbers(binding)
            cpus = [(order[local % len(order)],) for local in range(most)]
        else:
            own = [sets[local % len(sets)] for local in range(most)]
            cpus = [mine if len(mine) == len(order) else mine[:1] for mine in own]
    tasks = tasks_of(job, ranks(job, counts), same_everywhere(job, cpus))
    if "ss" in options:
        tasks = [
            task._replace(
                memory=tuple(sorted({machine.numa_numbers[domain_of[cpu]] for cpu in task.cpus}))
            )
            for task in tasks
        ]
    return Step(tasks, command, env)


def _aprun_starts(machine, cores, order, most, depth, per_domain) -> list[list[int]]:
    """CPUs of each PE of a node: in a row, or so many PEs in each memory domain."""
    if not per_domain:
        return [order[local * depth : (local + 1) * depth] for local in range(most)]
    own = []
    for domain in range(len(machine.numa_numbers)):
        inside = [cpu for cpu in order if machine.numa_of(machine.core_of(cpu)) == domain]
        own += [inside[n * depth : (n + 1) * depth] for n in range(per_domain)]
    if len(own) < most or not all(own[:most]):
        raise Refused("aprun: -S value does not fit the node\naprun: Exiting due to errors.", 1)
    return own[:most]


# -- Flux ---------------------------------------------------------------------------------------

FLUX_RUN = """
-N|--nodes= -n|--ntasks= -c|--cores-per-task= -g|--gpus-per-task= --tasks-per-node= --cores=
--tasks-per-core= --gpus-per-node= -x|--exclusive -o|--setopt= -t|--time-limit= --job-name=
-q|--queue= -B|--bank= --requires= --dependency= --begin-time= --env= --env-remove= --env-file=
--rlimit= --input= --output= --error= -l|--label-io -u|--unbuffered --signal= --taskmap=
-S|--setattr= --add-file= --dry-run --debug --flags= --urgency= -v|--verbose --cwd= --quiet
"""


def _flux_ranks(task: Task) -> dict[str, object]:
    """src/shell/task.c and src/shell/pmi/pmi.c of flux-core; flux-environment(7)."""
    return {
        "FLUX_TASK_RANK": task.rank,
        "FLUX_TASK_LOCAL_ID": task.local,
        "PMI_RANK": task.rank,
    }


@telling(_flux_ranks)
def flux_run(words: list[str], job: Job) -> Step:
    """flux-run(1) and flux-shell-options(7) of flux-core; with the site's mpibind plugin loaded,
    which takes the place of cpu-affinity and gpu-affinity unless ``-o mpibind=off``."""
    machine = job.machine

    def unknown(word):
        raise Refused(
            "usage: flux run [OPTIONS...] COMMAND [ARGS...]\n"
            f"flux-run: error: unrecognized arguments: {word}",
            2,
        )

    options, command = read(words, FLUX_RUN, unknown)
    if not command:
        raise Refused("flux-run: ERROR: job command and arguments are missing", 1)
    env = {}
    for rule in options.all("env"):
        name, equals, value = str(rule).partition("=")
        if equals:
            env[name] = value
    complaint = "flux-run: error: argument --{0}: invalid int value: '{1}'"
    nodes = options.number("nodes", complaint)
    count = options.number("ntasks", complaint)
    per_node = options.number("tasks-per-node", complaint)
    by_resource = {"tasks-per-node", "tasks-per-core", "cores"} & set(options)
    if by_resource and {"ntasks", "cores-per-task", "gpus-per-task"} & set(options):
        raise Refused("flux-run: ERROR: Per-resource options can't be used with per-task options.")
    if count is None:
        count = (per_node or 1) * (nodes or 1)
    width = options.number("cores-per-task", complaint) or 1
    gpus_per_task = options.number("gpus-per-task", complaint) or 0
    gpus_per_node = options.number("gpus-per-node", complaint)
    # Nodes asked for by resource are the job's alone.
    exclusive = "exclusive" in options or bool(by_resource and nodes)
    if nodes is None:
        nodes = -(-count * width // len(job.cores))
        counts = [used for used in fill(count, [len(job.cores) // width] * len(job.nodes)) if used]
    else:
        if nodes > count:
            raise Refused("flux-run: ERROR: node count must not be greater than task count", 1)
        counts = spread(count, nodes)
    most = max(counts)
    short = most * width > len(job.cores) or most * gpus_per_task > len(job.gpus)
    if nodes > len(job.nodes) or short:
        raise Refused(
            "flux-job: alloc  unsatisfiable request\n"
            "flux-run: ERROR: job exception type=alloc note=unsatisfiable request",
            1,
        )
    own_cores = job.cores if exclusive else job.cores[: most * width]
    held = gpus_per_node if gpus_per_node is not None else most * gpus_per_task
    own_gpus = job.gpus if exclusive else job.gpus[:held]
    shell = {}
    for pair in options.all("setopt"):
        key, equals, value = str(pair).partition("=")
        shell[key] = value if equals else "1"
    off = ("off", "0", "no")
    if machine.facts.get("mpibind") and shell.get("mpibind", "on") not in off:
        cpus, gpus = _mpibind(machine, own_cores, own_gpus, most)
    else:
        cpus = _flux_cpus(shell.get("cpu-affinity", "on"), job, own_cores, most)
        gpus = _flux_gpus(shell.get("gpu-affinity", "on"), job, own_gpus, most)
    places = [(cpu, *gpu) for cpu, gpu in zip(cpus, gpus, strict=True)]
    return Step(tasks_of(job, ranks(job, counts), places), command, env)


def shares(items, bins: int) -> list[tuple]:
    """Items in equal runs; where there are too few, each bin shares one."""
    if len(items) < bins:
        return [(items[n * len(items) // bins],) if items else () for n in range(bins)]
    bounds = [n * len(items) // bins for n in range(bins + 1)]
    return [tuple(items[a:b]) for a, b in itertools.pairwise(bounds)]


def _mpibind(machine, cores, gpus, most):
    """mpibind: an equal share of the GPUs each, and of the cores near to them."""
    own_gpus = shares(gpus, most)
    if not gpus:
        picked = shares(cores, most)
    else:
        picked = []
        for local, mine in enumerate(own_gpus):
            near = [c for c in cores if any(c in machine.cores_of_gpu(gpu) for gpu in mine)]
            others = [n for n, theirs in enumerate(own_gpus) if theirs == mine]
            picked.append(shares(near or cores, len(others))[others.index(local)])
    cpus = [tuple(sorted(machine.cpus_of_core(core)[0] for core in mine)) for mine in picked]
    return cpus, [(gpus, gpu_list(mine) if mine else None) for mine in own_gpus]


def _flux_cpus(text: str, job: Job, cores: list[int], most: int) -> list[tuple[int, ...]]:
    machine = job.machine
    text = text.removeprefix("verbose,")
    if text == "off":
        return [job.cpus] * most
    if text in ("on", "1"):
        return [machine.cpus_of_cores(cores)] * most
    if text == "per-task":
        return [machine.cpus_of_cores(share) for share in shares(cores, most)]
    if text.startswith("map:"):
        sets = [
            mask_of(word.removeprefix("0x")) if word.startswith("0x") else tuple(numbers(word))
            for word in text[4:].split(";")
        ]
        if len(sets) < most:
            sets += [sets[-1]] * (most - len(sets))
        return [tuple(sorted(chosen)) for chosen in sets[:most]]
    raise Refused(f"flux-shell: FATAL: cpu-affinity: invalid option: {text}", 1)


def _flux_gpus(text: str, job: Job, gpus: tuple[int, ...], most: int) -> list[tuple]:
    if text == "off":
        return [inherited(job)] * most
    # It names GPUs in a variable alone: a task can reach all of the node's.
    if text in ("on", "1"):
        return [(job.gpus, gpu_list(gpus) if gpus else "-1")] * most
    if text == "per-task":
        return [(job.gpus, gpu_list(own) if own else "-1") for own in shares(gpus, most)]
    if text.startswith("map:"):
        lists = [gpu_list(numbers(word)) for word in text[4:].split(";")]
        lists += [lists[-1]] * (most - len(lists))
        return [(job.gpus, listed) for listed in lists[:most]]
    raise Refused(f"flux-shell: FATAL: gpu-affinity: invalid option: {text}", 1)
