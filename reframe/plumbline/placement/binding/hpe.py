"""The launchers of Cray, SGI and HPE: ALPS, PALS, MPT."""

from __future__ import annotations

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    OWN_GPUS,
    SEVERAL_GPUS,
    Binding,
    BindingError,
    Launcher,
    Refusal,
    cpu_list,
    own_gpus,
    per_node,
    refuse_own_gpus,
)
from plumbline.placement.binding.words import gpu_by_local_rank
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology

UNEQUAL_BLOCKS = Refusal(
    "it binds several tasks with several cores on a node only to equal blocks of CPUs from CPU 0 "
    "on: use a number of tasks that divides the node's cores",
    "tasks with several cores do not fill CPUs 0, 1, 2, ... in turn",
)
SEVERAL_CORES = Refusal(
    "it binds each thread to one CPU, not a task to several cores: use one task per node, or one "
    "core per task",
    "several tasks with several cores on a node",
)


def alps(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU for each task of a node.

    A list of ``-cc`` binds each thread of a task to a single CPU, so the wrapper would see only the
    first. Tasks with several cores are therefore bound by ``taskset(1)`` if they are alone on their
    node, and by ``-cc depth`` if they take blocks of CPUs from CPU 0 on.
    """
    refuse_own_gpus(layout)
    tasks = per_node(layout)
    if all(len(task.cores) == 1 for task in tasks):
        return Binding(("-cc", ",".join(str(task.cpus[0]) for task in tasks)))
    if len(tasks) == 1:
        return Binding(("-cc", "none", "taskset", "-c", cpu_list(tasks[0].cpus)))
    depth = len(tasks[0].cores)
    blocks = [tuple(range(i * depth, (i + 1) * depth)) for i in range(len(tasks))]
    if [task.cpus for task in tasks] != blocks:
        raise BindingError(UNEQUAL_BLOCKS.message)
    return Binding(("-cc", "depth"))


def pals(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU list for each task of a node.

    ``task.sh`` selects GPUs, by local rank: not every site has ``--gpu-bind``.
    """
    tasks = per_node(layout)
    lists = ":".join(cpu_list(task.cpus) for task in tasks)
    words = (gpu_by_local_rank(layout),) if own_gpus(layout) else ()
    return Binding(("--ppn", str(len(tasks)), "--cpu-bind", f"list:{lists}"), task=words)


def mpt(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU for each task of a node, for ``omplace``.

    ``MPI_DSM_CPULIST`` would bind only in ``MPI_Init``, after the wrapper has reported. A task with
    several cores is bound by ``taskset(1)`` if it is alone on its node.
    """
    refuse_own_gpus(layout)
    tasks = per_node(layout)
    where = ("-ppn", str(len(tasks)))
    if len(tasks) == 1:
        alone = (*where, "taskset", "-c", cpu_list(tasks[0].cpus))
        return Binding(alone, {"MPI_DSM_OFF": "1"})
    if any(len(task.cores) > 1 for task in tasks):
        raise BindingError(SEVERAL_CORES.message)
    cpus = ",".join(str(task.cpus[0]) for task in tasks)
    return Binding((*where, "omplace", "-nt", "1", "-c", cpus))


ALPS = Launcher(
    "aprun",
    "aprun",
    "launcher",
    alps,
    (OWN_GPUS, NODES_DIFFER, UNEQUAL_BLOCKS),
    local_rank=False,
)

PALS = Launcher("mpiexec of PALS", "mpiexec", "process_manager", pals, (NODES_DIFFER, SEVERAL_GPUS))

MPT = Launcher(
    "mpiexec_mpt",
    "mpiexec_mpt",
    "launcher",
    mpt,
    (OWN_GPUS, NODES_DIFFER, SEVERAL_CORES),
    local_rank=False,
)
