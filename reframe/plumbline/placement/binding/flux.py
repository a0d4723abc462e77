"""Flux."""

from __future__ import annotations

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    SEVERAL_GPUS,
    Binding,
    Launcher,
    Option,
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


_RUN = 'flux-run(1), "Common resource options"'
_GPUS = 'flux-shell-options(7), "GPU AFFINITY"'

FLUX = Launcher(
    "flux run",
    "flux run",
    "launcher",
    flux,
    (
        Option("-N <n>", "all nodes of the job", _RUN),
        Option("--tasks-per-node=<n>", "tasks on each node", 'flux-run(1), "Per-resource options"'),
        Option("--exclusive", "whole nodes, so that every CPU is the job's", _RUN),
        Option(
            "-o mpibind=off",
            "LLNL's plugin, if loaded, does not bind by itself; ignored otherwise",
            "LLNL mpibind, `flux/options.md`",
        ),
        Option(
            "-o cpu-affinity=map:<list>",
            "CPUs of each task of a node",
            'flux-shell-options(7), "CPU AFFINITY"',
        ),
        Option(
            "-o gpu-affinity=off",
            "every task sees all GPUs, and the words before the program select some",
            _GPUS,
        ),
        Option("-o gpu-affinity=map:<list>", "a GPU of its own for each task of a node", _GPUS),
    ),
    (NODES_DIFFER, SEVERAL_GPUS),
)
