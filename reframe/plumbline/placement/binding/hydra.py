"""Hydra: that of MPICH, of MVAPICH and of the Intel MPI Library."""

from __future__ import annotations

import shlex
from dataclasses import replace

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    OWN_GPUS,
    Binding,
    Launcher,
    PairBinding,
    mask,
    per_node,
    refuse_own_gpus,
)
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology


def hydra(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU set for each task of a node."""
    refuse_own_gpus(layout)
    sets = ",".join("+".join(map(str, task.cpus)) for task in per_node(layout))
    options = ["-bind-to", f"user:{sets}"]
    if layout.num_nodes > 1:
        options += ["-ppn", str(layout.num_tasks_per_node)]
    return Binding(tuple(options))


def intel(layout: Layout, _: Topology | None) -> Binding:
    """Return one mask for each task of a node. Intel's Hydra ignores ``-bind-to user:``."""
    refuse_own_gpus(layout)
    masks = ",".join(mask(task.cpus) for task in per_node(layout))
    options = ("-genv", "I_MPI_PIN_DOMAIN", f"[{masks}]")
    if layout.num_nodes == 1:
        return Binding(options)
    placed = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"}
    return Binding(("-ppn", str(layout.num_tasks_per_node), *options), placed)


def _bind_pair(bound: Binding) -> PairBinding:
    return PairBinding((), ("-hosts", '"$first,$second"', *map(shlex.quote, bound.options)))


_REFUSALS = (OWN_GPUS, NODES_DIFFER)

HYDRA = Launcher("mpiexec of MPICH", "mpiexec.hydra", "launcher", hydra, _REFUSALS, _bind_pair)

MPIEXEC = replace(HYDRA, command="mpiexec")

MVAPICH = replace(MPIEXEC, section="mpiexec of MVAPICH", key="process_manager")

INTEL = Launcher("mpirun of Intel MPI", "mpirun", "launcher", intel, _REFUSALS, _bind_pair)
