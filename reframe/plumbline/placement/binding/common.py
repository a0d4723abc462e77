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
    :ivar bind: returns its binding of a layout.
    :ivar bind_pair: restricts a binding to two nodes of a job; ``None`` if no way is known.
    :ivar key: what selects it: ``launcher`` of the partition or environment, or
        ``process_manager`` of the environment.
    :ivar local_rank: whether it gives tasks their local rank.
    """

    section: str
    command: str
    bind: Callable[[Layout, Topology | None], Binding]
    refusals: tuple[Refusal, ...]
    bind_pair: Callable[[Binding], PairBinding] | None = None
    key: str = "launcher"
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


#: Variables in which launchers number tasks, and which ``task.sh`` reads. A shell that
#: ``srun --pty`` started has some too, of PMIx or PMI: launchers pass them on, jobs inherit them.
RANKS = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "JSM_NAMESPACE_RANK"),
    *("JSM_NAMESPACE_LOCAL_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
    *("MVP_COMM_WORLD_LOCAL_RANK", "MPT_MPI_RANK", "PMI_RANK", "PMI_LOCAL_RANK"),
    *("MPI_LOCALRANKID", "PALS_RANKID", "PALS_LOCAL_RANKID", "ALPS_APP_PE", "FLUX_TASK_RANK"),
    "FLUX_TASK_LOCAL_ID",
)

#: Variables of a user's environment with which launchers place tasks otherwise than by the options
#: of a binding, or start none: MPICH's Hydra 4.3, Intel MPI's 2021.11, and mpirun of Open MPI 4.1.
OVERRULING = (
    *("I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PIN_PROCESSOR_EXCLUDE_LIST", "OMPI_MCA_rmaps"),
    *("OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_rmaps_base_no_schedule_local"),
    *("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"),
)

#: Those of srun(1), "INPUT ENVIRONMENT VARIABLES", that no option of a binding overrides: tasks do
#: not have the job's environment, they have their memory elsewhere or too few CPUs, or their output
#: goes elsewhere. Thirteen changed steps of Slurm 22.05; SLURM_MEM_BIND is from the manual, and
#: older versions read SLURM_CPUS_PER_TASK. A job that a session submits from within another one has
#: those of that one's options.
OF_SRUN = (
    *("SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV", "SLURM_MEM_BIND", "SLURM_EXACT", "SLURM_EXCLUSIVE"),
    *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_GPUS_PER_TASK"),
    *("SLURM_NTASKS_PER_GPU", "SLURM_LABELIO", "SLURM_STDOUTMODE", "SLURM_STDERRMODE"),
    *("SLURM_REMOTE_CWD", "SLURM_WORKING_DIR", "SLURM_TASK_PROLOG"),
)


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
    if layout.own_gpus:
        raise BindingError(OWN_GPUS.message)


def mask(cpus: tuple[int, ...]) -> str:
    """Return CPU numbers as a hexadecimal mask."""
    return hex(sum(1 << cpu for cpu in cpus))


# -- words between the task wrapper and the program -----------------------------------------------

SEVERAL_MEMORIES = Refusal(
    "it binds the memory of all tasks to the same NUMA domain",
    "tasks are to have their memory in different domains",
)
UNKNOWN_VENDOR = Refusal(
    "the vendor of the GPUs is not known: set the arch of the partition's devices (sm_..., "
    "gfx...). On a machine that is detected, nvidia-smi, rocm-smi or amd-smi does not list them: "
    "it fails, or a container or the job's control group hides them (request GPUs, such as "
    "--gpus-per-node=N with Slurm or --gpus=all with Docker)",
    "the partition's devices have no arch",
)

#: What no launcher can express.
REFUSED_BY_ALL = (SEVERAL_MEMORIES, UNKNOWN_VENDOR)


#: Variables that the words set.
WORDS = (
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES"),
    *("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
)


def own_gpu_words(layout: Layout) -> tuple[str, ...]:
    """Return the word by which ``task.sh`` gives each task its own GPU, if each has one."""
    if not layout.own_gpus:
        return ()
    return (f"PLUMBLINE_{_visible(layout)}={','.join(gpu_of_each(per_node(layout)))}",)


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
        if not layout.own_gpus:
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
