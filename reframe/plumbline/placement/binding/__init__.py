"""Binding: from a layout and a launcher to that launcher's options.

options.csv lists each option with its purpose and manual; docs/launchers.md is rendered from it.

Independent of ReFrame. A launcher that cannot express a layout raises an error, so that the case
is skipped with that reason instead of measured somewhere else.

A task is bound to the first hardware thread of each of its cores, or by a launcher that knows only
whole cores (jsrun, Open MPI) to all threads of them. CPUs have the operating system's numbers if
the launcher takes them: a launcher's own numbers start again from 0 when cores are kept for the
system. Every node gets the same options, so all nodes of a layout have the same tasks.

Memory is bound by ``numactl(8)`` under every launcher.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plumbline.placement.binding import flux, hpe, hydra, jsrun, openmpi, slurm
from plumbline.placement.binding.common import (
    NO_PAIRS,
    Binding,
    BindingError,
    Launcher,
    PairBinding,
    Refusal,
    cpu_list,
)
from plumbline.placement.binding.node import (
    NodeDescription,
    NodeReport,
    TopologyMismatch,
    compare_node,
    read_nodes,
)
from plumbline.placement.binding.words import per_node_word, task_words
from plumbline.placement.placement import Layout
from plumbline.placement.proof import (
    ALONE,
    OTHER_MPI,
    BindingMismatch,
    Counters,
    Moments,
    TaskReport,
    host_facts,
    network_counters,
    prove,
    prove_nodes,
    read_tasks,
)
from plumbline.placement.topology import Topology

#: The task wrapper: it reports where the task runs, and becomes the program.
WRAPPER = Path(__file__).parents[1] / "task.sh"

__all__ = [
    "ALONE",
    "LAUNCHERS",
    "OTHER_MPI",
    "Binding",
    "BindingError",
    "BindingMismatch",
    "Counters",
    "Moments",
    "NodeDescription",
    "NodeReport",
    "PairBinding",
    "TaskReport",
    "TopologyMismatch",
    "bind",
    "bind_pair",
    "compare_node",
    "host_facts",
    "network_counters",
    "prove",
    "prove_nodes",
    "read_nodes",
    "read_tasks",
]

_SEVERAL_TASKS = Refusal("the local launcher starts one task", "several tasks")


def _local(layout: Layout, _: Topology | None) -> Binding:
    if layout.num_tasks != 1:
        raise BindingError(_SEVERAL_TASKS.message)
    return Binding(("taskset", "-c", cpu_list(layout.tasks[0].cpus)))


_LOCAL = Launcher("No launcher", "", "launcher", _local, (_SEVERAL_TASKS,))

#: ReFrame's launcher name, or the environment's ``process_manager`` -> the launcher.
LAUNCHERS: dict[str, Launcher] = {
    "local": _LOCAL,
    "hydra": hydra.HYDRA,
    "mpiexec": hydra.MPIEXEC,
    "mpirun-intelmpi": hydra.INTEL,
    "mvapich": hydra.MVAPICH,
    "openmpi": openmpi.OPENMPI,
    "mpirun-openmpi": openmpi.OPENMPI,
    "openmpi5": openmpi.OPENMPI5,
    "srun": slurm.SRUN,
    "jsrun": jsrun.JSRUN,
    "alps": hpe.ALPS,
    "pals": hpe.PALS,
    "mpt": hpe.MPT,
    "flux-run": flux.FLUX,
}


def bind(layout: Layout, launcher: str, topology: Topology | None = None) -> Binding:
    """Return the launcher's binding of a layout.

    :arg topology: the node's, if known: srun needs the number of its GPUs, jsrun whether all its
        cores are meant, and Open MPI 5 whether it would miscount them.
    :raises BindingError: if this launcher cannot express the layout, or is not known.
    """
    if launcher not in LAUNCHERS:
        raise BindingError(
            f"launcher {launcher!r}: Plumbline has no binding for it; available: "
            f"{', '.join(LAUNCHERS)}",
            code="binding.launcher-unknown",
        )
    known = LAUNCHERS[launcher]
    try:
        bound = known.bind(layout, topology)
        # Programs choose their GPU by local rank.
        needed = layout.vendor or not known.local_rank
        derived = (per_node_word(layout),) if needed else ()
        return replace(bound, task=(*derived, *bound.task, *task_words(layout)))
    except BindingError as err:
        raise BindingError(
            f"launcher {launcher!r}, placement {layout.placement!r}: {err}", code=err.code
        ) from None


def bind_pair(bound: Binding, launcher: str) -> PairBinding:
    """Restrict a binding of a layout of two nodes to two nodes of a larger job.

    :raises BindingError: if no way to do that with this launcher is known.
    """
    known = LAUNCHERS.get(launcher)
    if known is None or known.bind_pair is None:
        raise BindingError(f"launcher {launcher!r}: {NO_PAIRS.message}")
    return known.bind_pair(bound)
