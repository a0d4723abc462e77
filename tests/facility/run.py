"""What a launcher's tasks do: ``task.sh`` and the program behind it, for all of them at once."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

from . import smi
from .faults import Faults
from .job import Job, Task
from .launch import RankVariables
from .launch_mpi import mvapich_affinity
from .machine import Machine, list_of, numbers
from .options import Options, Refused, read

BIN = Path(__file__).resolve().parent / "bin"
STANDINS = BIN.parents[1] / "standins"
CAPTURES = BIN.parents[1] / "captures"

#: Variables that say which GPUs a program sees.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class Run:
    """One run of a program by all tasks of a launcher.

    :ivar tasks: where they are, in rank order; their GPUs are those that they see, in order.
    :ivar env: the program's environment.
    :ivar ranks: the variables by which the launcher tells each task which one it is.
    :ivar moves: whether the MPI library moves the tasks once they have started.
    :ivar wrapped: rank -> its environment as the task wrapper leaves it, where that was run.
    :ivar program: its name, without its folder.
    :ivar words: its command line, with the program as it was called.
    :ivar sample: the number behind task.sh.
    """

    def __init__(self, machine: Machine, job: Job, tasks: list[Task], env: dict[str, str]):
        self.machine = machine
        self.job = job
        self.tasks = tasks
        self.env = env
        self.ranks: RankVariables = lambda _: {}
        self.moves = False
        self.wrapped: dict[int, dict[str, str]] = {}
        self.program = ""
        self.words: list[str] = []
        self.sample: int | None = None
        self.faults = Faults()

    def env_of(self, task: Task) -> dict[str, str]:
        """The environment of one task."""
        if task.rank in self.wrapped:
            return self.wrapped[task.rank]
        listed = {} if task.given is None else {variable_of(self.machine): task.given}
        ranks = {name: str(value) for name, value in self.ranks(task).items()}
        return {**self.env, **listed, **ranks}

    @property
    def nodes(self) -> list[str]:
        """Its nodes, in rank order."""
        return list(dict.fromkeys(task.node for task in self.tasks))

    @property
    def per_node(self) -> int:
        return max(task.local for task in self.tasks) + 1


def execute(machine: Machine, job: Job, step) -> int:
    """Run a step of a launcher, and return the exit code."""
    env = {**os.environ, **step.env}
    run = Run(machine, job, step.tasks, env)
    run.ranks = step.ranks
    run.moves = step.moves
    # taskset before task.sh shows in its report.
    command = wrappers(run, list(step.command))
    if Path(command[0]).name == "task.sh":
        if not os.access(command[0], os.X_OK):
            raise Refused(f"{command[0]}: No such file or directory", 127)
        command = _task_script(run, command)
    output = run.env.pop("PLUMBLINE_OUTPUT", None)
    command = wrappers(run, command)
    if run.moves:
        run.tasks = mvapich_affinity(run.tasks, run.env_of(run.tasks[0]), machine)
    code = start(run, command, output)
    if step.closing and not code:
        print(step.closing, flush=True)
    return code


def start(run: Run, command: list[str], output: str | None = None) -> int:
    """Run a program, and return its exit code.

    :arg output: prefix of a file for each rank's standard output.
    """
    path = find(command[0])
    if path is None:
        print(f"execve(): {command[0]}: No such file or directory", file=sys.stderr, flush=True)
        return 127
    run.program = path.name
    run.words = command
    run.faults = Faults(run.nodes)
    run.tasks = [task._replace(gpus=visible(run, task)) for task in run.tasks]
    if path.resolve().parent != BIN:
        return _foreign(run, path, command[1:], output)

    from . import programs

    code = 0
    for rank, text, ended in programs.play(run):
        if output is not None:
            with Path(f"{output}.{rank}.out").open("w") as file:
                code = run.faults.print(text, file, ended) or code
        else:
            code = run.faults.print(text, sys.stdout, ended) or code
    return code


def find(name: str) -> Path | None:
    """Return the file of a program, as execvp(3) finds it."""
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = Path(folder, name)
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def _foreign(run: Run, path: Path, words: list[str], output: str | None) -> int:
    """Run a program that the facility does not stand in for: once, as rank 0."""
    env = run.env | {"PMI_RANK": "0", "PMI_SIZE": str(len(run.tasks))}
    done = subprocess.run([str(path), *words], env=env, stdout=subprocess.PIPE if output else None)
    if output:
        Path(f"{output}.0.out").write_bytes(done.stdout)
    return done.returncode


# -- task.sh ------------------------------------------------------------------------------------


def _task_script(run: Run, command: list[str]) -> list[str]:
    """``task.sh SAMPLE [NAME=VALUE ...] PROGRAM [ARGUMENT ...]``: the report of every task on
    standard error; the program."""
    sample, *rest = command[1:]
    run.sample = int(sample) if sample.isdigit() else None
    words = []
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        words.append(rest.pop(0))
    if not rest:
        raise Refused("task.sh: no program", 127)
    # Of the simulated machine's CPUs, which this one need not have.
    for word in [word for word in words if word.startswith("PLUMBLINE_CPUS=")]:
        words.remove(word)
        lists = word.partition("=")[2].split(":")
        run.tasks = [confined(task, lists) for task in run.tasks]
    fault = Faults(run.nodes)
    if fault.one("binding"):
        run.tasks = displaced(run.machine, run.tasks)
    if fault.one("elsewhere"):
        first = dict(zip(run.nodes, run.job.record["nodes"], strict=False))
        run.tasks = [task._replace(node=first[task.node]) for task in run.tasks]
    reports = _wrap(run, command[0], words)
    lines = []
    # Thousands of tasks share the places of a few.
    listed, memories = functools.cache(list_of), run.machine.memories
    hosts = set()
    alike = {"node": _node(run, fault), "host": _facts(run.machine)} if sample == "0" else {}
    for task in run.tasks:
        about = f"{listed(task.cpus)} {memories} {reports.get(task.rank, '- - ? -')}"
        lines.append(f"plumbline-task {task.rank} {task.node} {about}\n")
        if task.node not in hosts:
            hosts.add(task.node)
            for name, facts in alike.items():
                lines += [f"plumbline-{name} {task.node} {fact} {facts[fact]}\n" for fact in facts]
    lines += _read_gpus(run, words, fault)
    sys.stderr.write("".join(lines))
    sys.stderr.flush()
    run.env = run.env | dict(word.split("=", 1) for word in words if not _OWN_WORD.match(word))
    return rest


#: Most columns that task.sh asks nvidia-smi for.
_COLUMNS = [
    "pci.bus_id", "vbios_version", "pstate", "temperature.gpu", "temperature.memory", "power.limit",
    *(f"clocks.{which}.{what}" for what in ("sm", "memory") for which in ("current", "max")),
    *(f"pcie.link.{what}.{which}" for what in ("gen", "width") for which in ("current", "max")),
    "ecc.mode.current",
    *(f"ecc.errors.{which}.volatile.total" for which in ("corrected", "uncorrected")),
    "clocks_event_reasons.active",
    *(f"clocks_event_reasons_counters.{reason}_slowdown"
      for reason in ("sw_thermal", "hw_thermal", "hw_power_brake")),
]  # fmt: skip


def _read_gpus(run: Run, words: list[str], fault: Faults) -> list[str]:
    """What the wrapper reports of the GPUs of each node."""
    asked = [word for word in words if word.startswith("PLUMBLINE_DEVICES=")]
    if not asked or run.sample is None:
        return []
    vendor, _, warmups = asked[0].partition("=")[2].partition(":")
    moments = ["before"] if run.sample == 0 else []
    moments += ["load-1"] if run.sample < int(warmups) else []
    return [
        f"plumbline-gpu {node} {moment} {line}\n"
        for node in run.nodes
        for moment in [*moments, "after"]
        for line in _printed_of_gpus(run, vendor, moment, fault)
    ]


def _printed_of_gpus(run: Run, vendor: str, moment: str, fault: Faults) -> list[str]:
    """What tools print of a node's GPUs at a moment: name of the tool and a line each."""
    if fault.one("unread"):
        return [f"failed {'nvidia-smi' if vendor == 'cuda' else 'amd-smi'} 9"]
    if vendor == "cuda":
        return [f"nvidia-smi {line}" for line in smi.rows(run.machine, _COLUMNS, fault, moment)]
    return [f"{tool} {line}" for tool, line in smi.readings(run.machine, fault, moment)]


#: Words that are for the wrapper itself.
_OWN_WORD = re.compile("PLUMBLINE_(?!OUTPUT=)")

#: Of more tasks, the wrapper runs for one of each local rank, and only if they use GPUs.
_MANY = 64


def _wrap(run: Run, script: str, words: list[str]) -> dict[int, str]:
    """Runs the task wrapper itself where the environment that it leaves counts: for each task where
    there are GPUs, of which its program chooses one, and for the first task of an MPI that may move
    all. The run keeps these environments; rank -> the report's words on GPUs, with the bus ids of
    the machine."""
    many = len(run.tasks) > _MANY
    uses_gpus = any(word.startswith("PLUMBLINE_DEVICES=") for word in words)
    tasks = run.tasks
    if not run.machine.vendor or (many and not uses_gpus):
        tasks = run.tasks[:1] if run.moves else []
    if not tasks:
        return {}
    buses = ",".join(run.machine.facts.get("pci", []))
    words = [word for word in words if not word.startswith("PLUMBLINE_OUTPUT=")]
    reports: dict[int, str] = {}
    known: dict[int, tuple[str, dict[str, str]]] = {}
    for task in tasks:
        key = task.local if many else task.rank
        if key not in known:
            done = subprocess.run(
                [script, "-", *words, str(find("env")), "-0"],
                env=run.env_of(task),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise Refused(done.stderr, done.returncode)
            given, visible, local = done.stderr.split()[5:8]
            pairs = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
            known[key] = f"{given} {visible} {local} {'-' if visible == '-' else buses}", pairs
        reports[task.rank], run.wrapped[task.rank] = known[key]
    return reports


def _node(run: Run, fault: Faults) -> dict[str, str]:
    """What Linux has of a node in /sys: the CPUs of each package, core and NUMA node, and the NUMA
    node of each GPU."""
    machine = run.machine
    threads = 1 if fault.one("smt") else machine.smt
    # What a job does not get of its cores, some nodes do not have.
    present = run.job.cores if "few_cores" in machine.facts else range(machine.num_cores)
    cores = {core: machine.cpus_of_core(core)[:threads] for core in present}
    packages: dict[int, list[int]] = {}
    domains: dict[int, list[int]] = {}
    for core, cpus in cores.items():
        package = machine.socket_of(core)
        if fault.one("package"):
            package = 0 if machine.num_sockets > 1 else core % 2
        packages.setdefault(package, []).extend(cpus)
        domains.setdefault(machine.numa_of(core), []).extend(cpus)
    if fault.one("numa"):
        first, last = min(domains), max(domains)
        domains[first], domains[last] = domains[last], domains[first]
    near = machine.facts.get("gpus", [])
    if fault.one("gpu-numa"):
        near = [len(domains) - 1] * len(near)
    buses = machine.facts.get("pci", [])
    gpus = [f"{bus}={machine.numa_numbers[n]}" for bus, n in zip(buses, near, strict=True)]
    return {
        "packages": " ".join(map(list_of, packages.values())),
        "cores": " ".join(map(list_of, cores.values())),
        "numa": " ".join(f"{machine.numa_numbers[n]}={list_of(c)}" for n, c in domains.items()),
        "gpus": " ".join(gpus),
    }


def confined(task: Task, lists: list[str]) -> Task:
    """A task bound anew to the list of its local rank: no CPU comes back that its cgroup has not
    (sched_setaffinity(2))."""
    if task.local >= len(lists):
        raise Refused(f"task.sh: local rank {task.local} has none of the {len(lists)} values", 1)
    left = tuple(sorted(set(numbers(lists[task.local])) & set(task.cpus)))
    if not left:
        raise Refused("taskset: failed to set pid 1's affinity: Invalid argument", 1)
    return task._replace(cpus=left)


def _facts(machine: Machine) -> dict[str, object]:
    """What the wrapper reports of a host."""
    arch = "ppc64le" if machine.facts["numbering"] == "near" else "x86_64"
    return {
        "kernel": f"4.18.0-348.el8.{arch}",
        "governor": "performance",
        "board": machine.name,
        "transparent_hugepages": "[always] madvise never",
        "numa_balancing": 0,
        "smt": "on" if machine.smt > 1 else "notsupported",
        "cpu_model": f"processor of {machine.name}",
        "memory": f"{2**28} kB",
    }


def displaced(machine: Machine, tasks: list[Task]) -> list[Task]:
    """Return tasks moved to the next cores, and from the last cores to the first."""
    width = machine.num_cores
    moved = []
    for task in tasks:
        shift = len({machine.core_of(cpu) for cpu in task.cpus})
        cores = {(machine.core_of(cpu) + shift) % width for cpu in task.cpus}
        moved.append(task._replace(cpus=machine.cpus_of_cores(cores)))
    return moved


# -- numactl and taskset ------------------------------------------------------------------------

NUMACTL = "-m|--membind= -C|--physcpubind="


def wrappers(run: Run, command: list[str]) -> list[str]:
    """numactl(8) and taskset(1) before the program: CPUs and memory policy of all tasks."""
    while command:
        name = Path(command[0]).name
        if name == "numactl":
            options, command = read(command[1:], NUMACTL, "numactl")
            run.tasks = _numactl(run, options)
        elif name == "taskset":
            options, command = read(command[1:], "-c|--cpu-list", "taskset")
            text, *command = command
            if "cpu-list" not in options:
                raise Refused("taskset: a mask: no stand-in")
            cpus = tuple(sorted(numbers(text)))
            run.tasks = [task._replace(cpus=cpus) for task in run.tasks]
        else:
            return command
    raise Refused("no program was given", 127)


def _numactl(run: Run, options: Options) -> list[Task]:
    machine = run.machine
    known = {int(number) for number in numbers(machine.memories)}
    changed = {}
    if "membind" in options:
        domains = tuple(numbers(options["membind"]))
        away = [number for number in domains if number not in known]
        if away:
            raise Refused(f"libnuma: Warning: node argument {away[0]} is out of range\n", 1)
        changed["memory"] = domains
    if "physcpubind" in options:
        changed["cpus"] = tuple(sorted(numbers(options["physcpubind"])))
    if any(cpu >= machine.num_cpus for cpu in changed.get("cpus", ())):
        raise Refused("libnuma: Warning: cpu argument is out of range\n", 1)
    return [task._replace(**changed) for task in run.tasks]


# -- GPUs ---------------------------------------------------------------------------------------


def visible(run: Run, task: Task) -> tuple[int, ...]:
    """GPUs that a program sees, in its order. A list ends at the first number that is none
    (CUDA C++ Programming Guide, "CUDA Environment Variables"). On AMD's machines
    ROCR_VISIBLE_DEVICES chooses first, and the others count in what it left (ROCm
    documentation, "GPU isolation techniques")."""
    machine = run.machine
    given = given_lists(run, task)
    if machine.vendor == "cuda":
        return _chosen(given.get(VISIBLE[0]), task.gpus, task.gpus)
    left = _chosen(given.get("ROCR_VISIBLE_DEVICES"), task.gpus, task.gpus)
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in given:
            return _chosen(given[name], left, tuple(range(len(left))), left)
    return left


def variable_of(machine: Machine) -> str:
    """The variable in which a machine's launchers name a task's GPUs."""
    if machine.vendor == "rocm" and machine.facts["batch"] != "flux":
        return VISIBLE[1]
    return VISIBLE[0]


def given_lists(run: Run, task: Task) -> dict[str, str]:
    """The lists of GPUs in a task's environment."""
    env = run.env_of(task)
    return {name: env[name] for name in VISIBLE if name in env}


def _chosen(text, default, known, values=None) -> tuple[int, ...]:
    if text is None:
        return default
    found: list[int] = []
    for word in str(text).split(","):
        if not word.strip().isdigit() or int(word) not in known:
            break
        found.append(int(word) if values is None else values[int(word)])
    return tuple(found)
