"""The launchers of Cray, SGI and HPE: ALPS, PALS, MPT."""

from __future__ import annotations

from plumbline.placement.binding.common import (
    Binding,
    BindingError,
    cpu_list,
    gpu_by_local_rank,
    no_own_gpus,
    own_gpus,
    per_node,
)
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology


def alps(layout: Layout, _: Topology | None) -> Binding:
    """``-cc`` binds each PE of a node to the next CPU of a list (aprun(1), "-cc").

    A list binds the PE's threads to single CPUs as they come, so the wrapper would see the first
    alone: a PE of several cores is bound by ``taskset(1)`` where it is the only one of its node,
    and by ``-cc depth`` where the PEs take blocks of CPUs from CPU 0 on.
    """
    no_own_gpus(layout)
    tasks = per_node(layout)
    if all(len(task.cores) == 1 for task in tasks):
        return Binding(("-cc", ",".join(str(task.cpus[0]) for task in tasks)))
    if len(tasks) == 1:
        return Binding(("-cc", "none", "taskset", "-c", cpu_list(tasks[0].cpus)))
    depth = len(tasks[0].cores)
    blocks = [tuple(range(i * depth, (i + 1) * depth)) for i in range(len(tasks))]
    if [task.cpus for task in tasks] != blocks:
        raise BindingError(
            "it binds several tasks of several cores on a node only to equal blocks of CPUs from "
            "CPU 0 on: use so many tasks that they divide the node's cores",
            code="binding.not-expressible",
        )
    return Binding(("-cc", "depth"))


def pals(layout: Layout, _: Topology | None) -> Binding:
    """``--cpu-bind list:`` takes one CPU list per local rank (mpiexec(1) of HPE's PALS; ALCF User
    Guides, Aurora, "Running Jobs", "Binding MPI ranks and threads to cores").

    GPUs are selected by ``task.sh``, from the local rank: ``--gpu-bind`` is not everywhere. "The
    Cray MPI on Polaris does not currently support binding MPI ranks to GPUs", and the guide has a
    wrapper for it (ALCF User Guides, Polaris, "Using GPUs", "Binding MPI ranks to GPUs").
    """
    tasks = per_node(layout)
    lists = ":".join(cpu_list(task.cpus) for task in tasks)
    words = (gpu_by_local_rank(layout),) if own_gpus(layout) else ()
    return Binding(("--ppn", str(len(tasks)), "--cpu-bind", f"list:{lists}"), task=words)


def mpt(layout: Layout, _: Topology | None) -> Binding:
    """``omplace`` puts each process of a host on the next CPU of a list, before it starts
    (omplace(1) of HPE MPT). ``MPI_DSM_CPULIST`` comes only in ``MPI_Init``, where no wrapper can
    see it. A task of several cores is bound by ``taskset(1)``, with the library's own placement
    off (MPI(1), "MPI_DSM_OFF"), where it is the only one of its node."""
    no_own_gpus(layout)
    tasks = per_node(layout)
    where = ("-ppn", str(len(tasks)))
    if len(tasks) == 1:
        alone = (*where, "taskset", "-c", cpu_list(tasks[0].cpus))
        return Binding(alone, {"MPI_DSM_OFF": "1"})
    if any(len(task.cores) > 1 for task in tasks):
        raise BindingError(
            "it binds each thread to a CPU of its own, not a task to several cores: use one task "
            "per node, or one core per task",
            code="binding.not-expressible",
        )
    cpus = ",".join(str(task.cpus[0]) for task in tasks)
    return Binding((*where, "omplace", "-nt", "1", "-c", cpus))
