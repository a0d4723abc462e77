"""Hydra: that of MPICH, of MVAPICH and of the Intel MPI Library."""

from __future__ import annotations

import shlex
from dataclasses import replace

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    OWN_GPUS,
    Binding,
    Launcher,
    Option,
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


def mvapich(layout: Layout, topology: Topology | None) -> Binding:
    """Return the binding of MPICH's Hydra, with the library's own binding switched off."""
    return replace(hydra(layout, topology), env_vars={"MV2_ENABLE_AFFINITY": "0"})


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


_MPICH = 'MPICH, "Using the Hydra Process Manager"'
_INTEL = "Intel MPI Library Developer Reference"
_PER_NODE = "tasks on each node, on several nodes"
_PAIR = "the two nodes of a pair, if a job runs pairs of its nodes"

_OPTIONS = (
    Option("-n <n>", "all tasks", _MPICH),
    Option("-ppn <n>", _PER_NODE, _MPICH),
    Option(
        "-bind-to user:<sets>",
        "a set of CPUs for each task of a node",
        f'{_MPICH}, "Process-core Binding"',
    ),
    Option("-hosts <nodes>", _PAIR, '`mpiexec -help`, "Other global options"'),
)

_REFUSALS = (OWN_GPUS, NODES_DIFFER)

HYDRA = Launcher(
    "mpiexec of MPICH", "mpiexec.hydra", "launcher", hydra, _OPTIONS, _REFUSALS, _bind_pair
)

MPIEXEC = replace(HYDRA, command="mpiexec")

MVAPICH = Launcher(
    "mpiexec of MVAPICH",
    "mpiexec",
    "process_manager",
    mvapich,
    (
        *_OPTIONS,
        Option(
            "MV2_ENABLE_AFFINITY=0",
            "variable of the job: the library does not bind again in `MPI_Init`, after the wrapper "
            "has reported",
            'MVAPICH2 User Guide, "MV2_ENABLE_AFFINITY"',
        ),
    ),
    _REFUSALS,
    _bind_pair,
)

INTEL = Launcher(
    "mpirun of Intel MPI",
    "mpirun",
    "launcher",
    intel,
    (
        Option("-np <n>", "all tasks", f'{_INTEL}, "Global Hydra Options"'),
        Option("-ppn <n>", _PER_NODE, f'{_INTEL}, "Global Hydra Options"'),
        Option(
            "-genv I_MPI_PIN_DOMAIN [<masks>]",
            "a mask for each task of a node, by the operating system's numbers",
            f'{_INTEL}, "Interoperability with OpenMP API", "Explicit Shape"',
        ),
        Option("-hosts <nodes>", _PAIR, f'{_INTEL}, "Global Hydra Options"'),
        Option(
            "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0",
            "variable of the job, on several nodes: otherwise the scheduler's own layout overrides "
            "`-ppn`",
            f'{_INTEL}, "Hydra Environment Variables"',
        ),
    ),
    _REFUSALS,
    _bind_pair,
)
