"""The result of a binding, and what the bindings of several launchers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from plumbline.core.errors import Coded
from plumbline.placement.placement import Layout, Task
from plumbline.placement.topology import Topology


class BindingError(Coded):
    """The launcher cannot express the layout."""

    code = "binding.not-expressible"


@dataclass(frozen=True)
class Binding:
    """What places the tasks under a launcher.

    :ivar options: the launcher's options.
    :ivar env_vars: environment variables of the job.
    :ivar files: text of each file next to the job script, by name.
    :ivar task: words between the task wrapper and the program: ``NAME=VALUE``, ``numactl``.
    """

    options: tuple[str, ...] = ()
    env_vars: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    task: tuple[str, ...] = ()


@dataclass(frozen=True)
class PairBinding:
    """What starts a layout of two nodes on the nodes ``$first`` and ``$second`` of a job.

    :ivar before: shell commands before the launcher's.
    :ivar words: the launcher's options, as the shell reads them.
    """

    before: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """A row of docs/launchers.md: the message about what a launcher cannot express, and when."""

    message: str
    when: str


@dataclass(frozen=True)
class Launcher:
    """How a launcher is selected, how it binds and what it refuses.

    :ivar section: its heading in docs/launchers.md, and its key in options.csv.
    :ivar command: its command.
    :ivar key: what selects it: ``launcher`` of the partition or environment, or
        ``process_manager`` of the environment.
    :ivar bind: returns its binding of a layout.
    :ivar bind_pair: restricts a binding to two nodes of a job; ``None`` if no way is known.
    :ivar local_rank: whether it gives tasks their local rank.
    """

    section: str
    command: str
    key: str
    bind: Callable[[Layout, Topology | None], Binding]
    refusals: tuple[Refusal, ...]
    bind_pair: Callable[[Binding], PairBinding] | None = None
    local_rank: bool = True


NODES_DIFFER = Refusal(
    "it places the same tasks on every node, but the nodes of this layout differ",
    "the nodes of a layout differ",
)
OWN_GPUS = Refusal(
    "it cannot give each task a GPU of its own: use srun, jsrun, flux-run or pals, by the "
    "partition's launcher or the environment's extras.launcher",
    "placement `all-gpus` on a node with several GPUs",
)
SEVERAL_GPUS = Refusal(
    "it gives each task one GPU, or all tasks the same GPUs",
    "each task is to have several GPUs of its own",
)
NO_PAIRS = Refusal(
    "no way is known to keep it to two nodes of a job: measure pairs of nodes with srun, Hydra or "
    "Open MPI's mpirun, by the environment's extras.launcher",
    "pairs of nodes",
)


def per_node(layout: Layout) -> tuple[Task, ...]:
    """Return the tasks of one node.

    :raises BindingError: if the nodes of the layout differ.
    """
    count = layout.num_tasks_per_node
    first = layout.tasks[:count]
    for rank, task in enumerate(layout.tasks):
        expected = first[rank % count]
        if (task.node, task.cores, task.gpus) != (rank // count, expected.cores, expected.gpus):
            raise BindingError(NODES_DIFFER.message)
    return first


def own_gpus(layout: Layout) -> bool:
    """Return whether each task of a node has GPUs of its own; otherwise all see the same ones."""
    return len({task.gpus for task in layout.tasks}) > 1


def gpu_of_each(tasks: tuple[Task, ...]) -> list[str]:
    """Return the number of each task's own GPU.

    :raises BindingError: if a task has several.
    """
    if any(len(task.gpus) != 1 for task in tasks):
        raise BindingError(SEVERAL_GPUS.message)
    return [str(task.gpus[0]) for task in tasks]


def refuse_own_gpus(layout: Layout) -> None:
    """Raise an error if each task has a GPU of its own.

    :raises BindingError: if so.
    """
    if own_gpus(layout):
        raise BindingError(OWN_GPUS.message)


def cpu_list(cpus: tuple[int, ...]) -> str:
    """Return CPU numbers in the kernel's list format.

    >>> cpu_list((8, 0, 1, 2, 3))
    '0-3,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def mask(cpus: tuple[int, ...]) -> str:
    """Return CPU numbers as a hexadecimal mask."""
    return hex(sum(1 << cpu for cpu in cpus))


def file_name(name: str, layout: Layout) -> str:
    """Return the name of a layout's file next to the job script."""
    return f"{name}-{layout.locations[0]}" if layout.locations else name
