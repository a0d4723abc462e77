"""Flux."""

from __future__ import annotations

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    SEVERAL_GPUS,
    Binding,
    Launcher,
    cpu_list,
    gpu_of_each,
    own_gpus,
    per_node,
)
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology


def flux(layout: Layout, _: Topology | None) -> Binding:
    """Return one CPU list, and if each has its own GPU one GPU list, for each task of a node."""
    tasks = per_node(layout)
    gpus = f"map:{';'.join(gpu_of_each(tasks))}" if own_gpus(layout) else "off"
    cpus = ";".join(cpu_list(task.cpus) for task in tasks)
    size = ("-N", str(layout.num_nodes), f"--tasks-per-node={len(tasks)}", "--exclusive")
    shell = ("mpibind=off", f"cpu-affinity=map:{cpus}", f"gpu-affinity={gpus}")
    return Binding((*size, *(word for option in shell for word in ("-o", option))))


FLUX = Launcher("flux run", "flux run", "launcher", flux, (NODES_DIFFER, SEVERAL_GPUS))
