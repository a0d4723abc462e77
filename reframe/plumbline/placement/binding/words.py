"""Words between the task wrapper and the program: variables, GPUs and memory of each task."""

from __future__ import annotations

from plumbline.placement.binding.common import (
    BindingError,
    Refusal,
    gpu_of_each,
    own_gpus,
    per_node,
)
from plumbline.placement.placement import Layout

SEVERAL_MEMORIES = Refusal(
    "it binds the memory of all tasks to the same NUMA domain",
    "tasks are to have their memory in different domains",
)
UNKNOWN_VENDOR = Refusal(
    "the vendor of the GPUs is not known: set the arch of the partition's devices (sm_..., gfx...)",
    "the partition's devices have no arch",
)

#: What no launcher can express.
REFUSED_BY_ALL = (SEVERAL_MEMORIES, UNKNOWN_VENDOR)


def per_node_word(layout: Layout) -> str:
    """Return the word from which ``task.sh`` derives a task's local rank."""
    return f"PLUMBLINE_PER_NODE={layout.num_tasks_per_node}"


def gpu_by_local_rank(layout: Layout) -> str:
    """Return the word by which ``task.sh`` gives each task its own GPU."""
    return f"PLUMBLINE_{_visible(layout)}={','.join(gpu_of_each(per_node(layout)))}"


def task_words(layout: Layout) -> tuple[str, ...]:
    """Return the words before the program, which are the same for every task and launcher."""
    words = []
    # Tasks with different numbers of cores: the OpenMP runtime counts them.
    sizes = {len(task.cores) for task in layout.tasks}
    if len(sizes) == 1:
        words.append(f"OMP_NUM_THREADS={sizes.pop()}")
    words.append("OMP_PROC_BIND=close")
    sets = {task.cpus for task in layout.tasks}
    places = ",".join(f"{{{cpu}}}" for cpu in sets.pop()) if len(sets) == 1 else "cores"
    words.append(f"OMP_PLACES={places}")
    return (*words, *_gpu_words(layout), *_memory_words(layout))


def _gpu_words(layout: Layout) -> list[str]:
    gpus = layout.tasks[0].gpus
    words = ["CUDA_DEVICE_ORDER=PCI_BUS_ID"] if layout.vendor == "cuda" else []
    if gpus:
        variable = _visible(layout)
        if not own_gpus(layout):
            words.append(f"{variable}={','.join(map(str, gpus))}")
    return words


def _visible(layout: Layout) -> str:
    """Return the variable that lists the GPUs that a program sees."""
    try:
        return {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}[layout.vendor]
    except KeyError:
        raise BindingError(UNKNOWN_VENDOR.message, code="binding.gpu-vendor-unknown") from None


def _memory_words(layout: Layout) -> list[str]:
    domains = {task.memory for task in layout.tasks}
    if len(domains) > 1:
        raise BindingError(SEVERAL_MEMORIES.message)
    domain = domains.pop()
    return [] if domain is None else ["numactl", f"--membind={domain}"]
