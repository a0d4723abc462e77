"""Binding: from a layout and a launcher to that launcher's options, and the proof of it.

Pure: knows nothing of ReFrame. A launcher that cannot express a layout raises, so that the
check is skipped with that reason instead of measuring somewhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from plumbline.placement import Layout, Task, cpus_of_list


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
    """

    options: tuple[str, ...] = ()
    env_vars: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


def _local(layout: Layout) -> Binding:
    """``taskset(1)`` before a program that no launcher starts; ``numactl(8)`` where the
    memory's NUMA domain is part of the placement."""
    if layout.num_tasks != 1:
        raise BindingError("the local launcher starts one task")
    (task,) = layout.tasks
    cpus = ",".join(map(str, task.cpus))
    if task.memory is not None:
        return Binding(("numactl", f"--physcpubind={cpus}", f"--membind={task.memory}"))
    return Binding(("taskset", "-c", cpus))


def _hydra(layout: Layout) -> Binding:
    """``-bind-to user:`` takes one CPU set per local rank (MPICH, "Using the Hydra process
    manager": user-defined binding)."""
    _no_memory_domain(layout)
    per_node = [task for task in layout.tasks if task.node == 0]
    cpu_sets = ",".join("+".join(map(str, task.cpus)) for task in per_node)
    options = ["-bind-to", f"user:{cpu_sets}"]
    if layout.num_nodes > 1:
        options += ["-ppn", str(layout.num_tasks_per_node)]
    return Binding(tuple(options))


def _openmpi(layout: Layout) -> Binding:
    """A rank file with ``slot=SOCKET:CORES``, both logical among the CPUs that may be used
    (mpirun(1) of Open MPI 4.1, "Specifying Ranks and Slots")."""
    _no_memory_domain(layout)
    if layout.num_nodes > 1:
        raise BindingError("Open MPI's rank files are written here for one node only")
    lines = [f"rank {rank}=localhost slot={_slot(task)}" for rank, task in enumerate(layout.tasks)]
    text = "".join(f"{line}\n" for line in lines)
    return Binding(("--rankfile", "rankfile"), files={"rankfile": text})


def _slot(task: Task) -> str:
    by_socket: dict[int, list[int]] = {}
    for core in task.cores:
        by_socket.setdefault(core.logical_socket, []).append(core.logical_core)
    return ";".join(f"{socket}:{','.join(map(str, c))}" for socket, c in by_socket.items())


def _srun(layout: Layout) -> Binding:
    """``--cpu-bind=mask_cpu:`` takes one mask per local task (srun(1))."""
    _no_memory_domain(layout)
    per_node = [task for task in layout.tasks if task.node == 0]
    masks = ",".join(hex(sum(1 << cpu for cpu in task.cpus)) for task in per_node)
    return Binding((f"--cpu-bind=mask_cpu:{masks}", "--distribution=block"))


def _no_memory_domain(layout: Layout) -> None:
    if any(task.memory is not None for task in layout.tasks):
        raise BindingError("this launcher cannot place memory in a NUMA domain")


#: ReFrame's launcher name -> how it binds.
LAUNCHERS: dict[str, Callable[[Layout], Binding]] = {
    "local": _local,
    "hydra": _hydra,
    "mpiexec": _hydra,
    "openmpi": _openmpi,
    "mpirun-openmpi": _openmpi,
    "srun": _srun,
}


def bind(layout: Layout, launcher: str) -> Binding:
    """The launcher's options for a layout.

    :raises BindingError: if this launcher cannot express it, or is not known here.
    """
    if launcher not in LAUNCHERS:
        raise BindingError(
            f"launcher {launcher!r}: no binding is written for it (plumbline/binding.py has "
            f"{', '.join(LAUNCHERS)})"
        )
    try:
        return LAUNCHERS[launcher](layout)
    except BindingError as err:
        raise BindingError(
            f"launcher {launcher!r}, placement {layout.placement!r}: {err}"
        ) from None


@dataclass(frozen=True)
class Seen:
    """What the task wrapper saw of one task: its rank, host and allowed CPUs."""

    rank: int
    host: str
    cpus: str


def seen(stderr: str) -> list[Seen]:
    """The tasks that reported themselves on standard error (see ``task.sh``), in rank order.

    :raises BindingMismatch: if such a line cannot be read.
    """
    tasks = []
    for line in stderr.splitlines():
        if not line.startswith("plumbline-task "):
            continue
        try:
            _, rank, host, cpus, _ = line.split()
            cpus_of_list(cpus)
            tasks.append(Seen(int(rank), host, cpus))
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


def prove(layout: Layout, tasks: list[Seen]) -> None:
    """Holds what was seen against the layout.

    A task may be allowed any hardware thread of its own cores and no other CPU, and must be
    allowed at least one thread of every one of them.

    :raises BindingMismatch: if the ranks, the nodes or the CPUs differ.
    """
    ranks = [task.rank for task in tasks]
    if ranks != list(range(layout.num_tasks)):
        raise BindingMismatch(
            f"{layout.num_tasks} tasks were to start, with ranks 0 to {layout.num_tasks - 1}; "
            f"seen were ranks {ranks or 'none'} (does the launcher belong to the program's MPI?)"
        )
    hosts = list(dict.fromkeys(task.host for task in tasks))
    for task, told in zip(tasks, layout.tasks, strict=True):
        if hosts.index(task.host) != told.node:
            raise BindingMismatch(
                f"rank {task.rank} ran on {task.host}, which is node {hosts.index(task.host)} of "
                f"the job; placement {layout.placement!r} puts it on node {told.node}"
            )
        allowed = cpus_of_list(task.cpus)
        missed = [core for core in told.cores if not allowed & set(core.cpus)]
        if missed or not allowed <= told.hardware_threads:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} may run on CPUs {task.cpus}; placement "
                f"{layout.placement!r} puts it on {','.join(map(str, told.cpus))}"
            )
