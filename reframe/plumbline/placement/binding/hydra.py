"""Hydra: that of MPICH, of MVAPICH and of the Intel MPI Library."""

from __future__ import annotations

from dataclasses import replace

from plumbline.placement.binding.common import Binding, mask, no_own_gpus, per_node
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology


def hydra(layout: Layout, _: Topology | None) -> Binding:
    """``-bind-to user:`` takes one CPU set per local rank (MPICH, "Using the Hydra process
    manager", "Process-core binding")."""
    no_own_gpus(layout)
    sets = ",".join("+".join(map(str, task.cpus)) for task in per_node(layout))
    options = ["-bind-to", f"user:{sets}"]
    if layout.num_nodes > 1:
        options += ["-ppn", str(layout.num_tasks_per_node)]
    return Binding(tuple(options))


def mvapich(layout: Layout, topology: Topology | None) -> Binding:
    """MVAPICH's Hydra binds as MPICH's does, before the program starts. The library's own binding
    (``MV2_CPU_MAPPING``) comes only in ``MPI_Init``, where no wrapper can see it: it is switched
    off (MVAPICH2 User Guide, "MV2_ENABLE_AFFINITY")."""
    return replace(hydra(layout, topology), env_vars={"MV2_ENABLE_AFFINITY": "0"})


def intel(layout: Layout, _: Topology | None) -> Binding:
    """``I_MPI_PIN_DOMAIN=[masks]``: one mask per local rank, by the operating system's numbers
    (Intel MPI Library Developer Reference, "Interoperability with OpenMP API", "Explicit
    Shape"). Intel's Hydra ignores ``-bind-to user:``."""
    no_own_gpus(layout)
    masks = ",".join(mask(task.cpus) for task in per_node(layout))
    options = ("-genv", "I_MPI_PIN_DOMAIN", f"[{masks}]")
    if layout.num_nodes == 1:
        return Binding(options)
    # "Hydra Environment Variables": otherwise the job scheduler's own layout overrides -ppn.
    placed = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"}
    return Binding(("-ppn", str(layout.num_tasks_per_node), *options), placed)
