"""Binding: from a layout and a launcher to that launcher's options, and the proof of it.

Pure: knows nothing of ReFrame. A launcher that cannot express a layout raises, so that the
check is skipped with that reason instead of measuring somewhere else.

A task is bound to the first hardware thread of each of its cores; a launcher that knows only whole
cores (jsrun, Open MPI) binds it to all threads of them. CPUs are named by the operating system's
numbers wherever the launcher takes them: its own numbers begin anew when cores are kept for the
system. The same options go to every node, so all nodes of a layout have the same tasks.

Memory is bound by ``numactl(8)`` for every launcher: the options that some have for it are hints,
or need a build that has them, and ``numactl`` fails aloud.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from plumbline.placement.binding import flux, hpe, hydra, jsrun, openmpi, slurm
from plumbline.placement.binding.common import (
    Binding,
    BindingError,
    cpu_list,
    per_node_word,
    task_words,
)
from plumbline.placement.binding.node import NodeReport, Told, TopologyMismatch, confirm, nodes
from plumbline.placement.binding.pair import KEPT_TO_PAIR, OnPair, on_pair
from plumbline.placement.placement import Layout
from plumbline.placement.proof import (
    OTHER_MPI,
    BindingMismatch,
    Seen,
    host_facts,
    prove,
    prove_nodes,
    seen,
)
from plumbline.placement.topology import Topology

#: What starts each task: it proves where the task runs, and becomes the program.
WRAPPER = Path(__file__).parents[1] / "task.sh"

__all__ = [
    "KEPT_TO_PAIR",
    "LAUNCHERS",
    "OTHER_MPI",
    "Binding",
    "BindingError",
    "BindingMismatch",
    "NodeReport",
    "OnPair",
    "Seen",
    "Told",
    "TopologyMismatch",
    "bind",
    "confirm",
    "host_facts",
    "nodes",
    "on_pair",
    "prove",
    "prove_nodes",
    "seen",
]


def _local(layout: Layout, _: Topology | None) -> Binding:
    """``taskset(1)`` before a program that no launcher starts."""
    if layout.num_tasks != 1:
        raise BindingError("the local launcher starts one task", code="binding.not-expressible")
    return Binding(("taskset", "-c", cpu_list(layout.tasks[0].cpus)))


#: ReFrame's launcher name, or the environment's ``process_manager`` -> how it binds.
LAUNCHERS: dict[str, Callable[[Layout, Topology | None], Binding]] = {
    "local": _local,
    "hydra": hydra.hydra,
    "mpiexec": hydra.hydra,
    "mpirun-intelmpi": hydra.intel,
    "mvapich": hydra.mvapich,
    "openmpi": openmpi.openmpi,
    "mpirun-openmpi": openmpi.openmpi,
    "openmpi5": openmpi.openmpi5,
    "srun": slurm.srun,
    "jsrun": jsrun.jsrun,
    "alps": hpe.alps,
    "pals": hpe.pals,
    "mpt": hpe.mpt,
    "flux-run": flux.flux,
}


#: Launchers that tell a task its rank and not its local rank: aprun(1), "ALPS_APP_PE"; MPI(1) of
#: MPT, "MPT_MPI_RANK".
_WITHOUT_LOCAL_RANK = ("alps", "mpt")


def bind(layout: Layout, launcher: str, topology: Topology | None = None) -> Binding:
    """The launcher's options for a layout.

    :arg topology: the node's, where known: srun asks for all its GPUs, jsrun can tell that all
        its cores are meant, and Open MPI 5 that it would miscount them.
    :raises BindingError: if this launcher cannot express it, or is not known here.
    """
    if launcher not in LAUNCHERS:
        raise BindingError(
            f"launcher {launcher!r}: no binding is written for it (plumbline/placement/binding has "
            f"{', '.join(LAUNCHERS)})",
            code="binding.launcher-unknown",
        )
    try:
        bound = LAUNCHERS[launcher](layout, topology)
        # Programs choose their GPU by local rank.
        local = layout.vendor or launcher in _WITHOUT_LOCAL_RANK
        derived = (per_node_word(layout),) if local else ()
        return replace(bound, task=(*derived, *bound.task, *task_words(layout)))
    except BindingError as err:
        raise BindingError(
            f"launcher {launcher!r}, placement {layout.placement!r}: {err}", code=err.code
        ) from None
