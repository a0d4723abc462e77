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

import functools
import re
from dataclasses import replace
from pathlib import Path

from plumbline.placement.binding.common import (
    NO_PAIRS,
    OF_SRUN,
    OVERRULING,
    RANKS,
    WORDS,
    Binding,
    BindingError,
    PairBinding,
    task_words,
)
from plumbline.placement.binding.launchers import LAUNCHERS
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology

__all__ = [
    "LAUNCHERS",
    "OVERRULING",
    "UNSET",
    "WORDS",
    "WRAPPER",
    "Binding",
    "BindingError",
    "PairBinding",
    "bind",
    "bind_pair",
    "overruled",
]

#: Variables that a job unsets before it calls a launcher.
UNSET = (*RANKS, *OVERRULING, *OF_SRUN)

#: The task wrapper: it reports where the task runs, and becomes the program.
WRAPPER = Path(__file__).parents[1] / "task.sh"


@functools.cache
def overruled() -> frozenset[str]:
    """Return the variables that nobody can set for a program: the job or the wrapper sets or unsets
    them."""
    text = WRAPPER.read_text(encoding="utf-8").replace("\\\n", "")
    lines = re.findall(r"^(?:unset|export) (.+)$", text, re.M)
    of_wrapper = [word.partition("=")[0] for line in lines for word in line.split()]
    return frozenset((*UNSET, *WORDS, *of_wrapper))


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
        # From which task.sh derives the local rank, by which programs choose their GPU.
        needed = layout.vendor or not known.local_rank
        per_node = (f"PLUMBLINE_PER_NODE={layout.num_tasks_per_node}",) if needed else ()
        return replace(bound, task=(*per_node, *bound.task, *task_words(layout)))
    except BindingError as err:
        raise BindingError(
            f"launcher {launcher!r}, placement {layout.placement!r}: {err}", code=err.code
        ) from None


def bind_pair(bound: Binding, launcher: str) -> PairBinding:
    """Restrict a binding of a layout of two nodes to two nodes of a larger job.

    :raises BindingError: if no way to do that with this launcher is known.
    """
    restrict = LAUNCHERS[launcher].bind_pair
    if restrict is None:
        raise BindingError(f"launcher {launcher!r}: {NO_PAIRS.message}")
    return restrict(bound)
