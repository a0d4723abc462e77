"""What a binding is, and what every launcher needs of a layout."""

from __future__ import annotations

from dataclasses import dataclass, field

from plumbline.core.errors import Coded
from plumbline.placement.placement import Layout, Task


class BindingError(Coded):
    """This launcher cannot express this layout."""


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


def per_node(layout: Layout) -> tuple[Task, ...]:
    """The tasks of one node, which are those of every node."""
    count = layout.num_tasks_per_node
    first = layout.tasks[:count]
    for rank, task in enumerate(layout.tasks):
        told = first[rank % count]
        if (task.node, task.cores, task.gpus) != (rank // count, told.cores, told.gpus):
            raise BindingError(
                "it tells every node the same, and the nodes of this layout differ: give each "
                "node the same tasks",
                code="binding.not-expressible",
            )
    return first


def own_gpus(layout: Layout) -> bool:
    """Whether each task of a node has a GPU of its own; else all see the same ones."""
    return len({task.gpus for task in layout.tasks}) > 1


def gpu_of_each(tasks: tuple[Task, ...]) -> list[str]:
    """The number of each task's own GPU."""
    if any(len(task.gpus) != 1 for task in tasks):
        raise BindingError(
            "it gives each task one GPU, or all tasks the same ones", code="binding.not-expressible"
        )
    return [str(task.gpus[0]) for task in tasks]


def per_node_word(layout: Layout) -> str:
    """The word from which the task wrapper derives a task's local rank (``task.sh``)."""
    return f"PLUMBLINE_PER_NODE={layout.num_tasks_per_node}"


def gpu_by_local_rank(layout: Layout) -> str:
    """The word by which the task wrapper gives each task its own GPU, under a launcher that cannot
    (``task.sh``)."""
    return f"PLUMBLINE_{_visible(layout)}={','.join(gpu_of_each(per_node(layout)))}"


def no_own_gpus(layout: Layout) -> None:
    if own_gpus(layout):
        raise BindingError(
            "it cannot give each task a GPU of its own: start the tasks with a launcher that can "
            "(srun, jsrun, flux-run, pals), by the partition's launcher or the environment's "
            "extras.launcher",
            code="binding.not-expressible",
        )


def cpu_list(cpus: tuple[int, ...]) -> str:
    """The kernel's list format.

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
    return hex(sum(1 << cpu for cpu in cpus))


def file_name(name: str, layout: Layout) -> str:
    """Name of a file beside the job script: each layout of a job has its own."""
    return f"{name}-{layout.at[0]}" if layout.at else name


def task_words(layout: Layout) -> tuple[str, ...]:
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
    # Without it CUDA counts the fastest GPU first.
    words = ["CUDA_DEVICE_ORDER=PCI_BUS_ID"] if layout.vendor == "cuda" else []
    if gpus:
        variable = _visible(layout)
        if not own_gpus(layout):
            words.append(f"{variable}={','.join(map(str, gpus))}")
    return words


def _visible(layout: Layout) -> str:
    """The variable in which the GPUs that a program sees are listed."""
    try:
        return {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}[layout.vendor]
    except KeyError:
        raise BindingError(
            "whose the GPUs are is not known: give the arch of the partition's devices (sm_..., "
            "gfx...)",
            code="binding.gpu-vendor-unknown",
        ) from None


def _memory_words(layout: Layout) -> list[str]:
    domains = {task.memory for task in layout.tasks}
    if len(domains) > 1:
        raise BindingError(
            "all tasks of a layout must have their memory in the same domain",
            code="binding.not-expressible",
        )
    domain = domains.pop()
    return [] if domain is None else ["numactl", f"--membind={domain}"]
