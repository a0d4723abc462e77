"""Flux."""

from __future__ import annotations

from plumbline.placement.binding.common import Binding, cpu_list, gpu_of_each, own_gpus, per_node
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology


def flux(layout: Layout, _: Topology | None) -> Binding:
    """``cpu-affinity=map:`` takes one CPU list per local task, ``gpu-affinity=map:`` one GPU list
    (flux-shell-options(7)); whole nodes, so that every CPU is the job's (flux-run(1)).

    LLNL's plugin mpibind binds by itself where it is loaded; elsewhere its option is ignored.
    """
    tasks = per_node(layout)
    gpus = f"map:{';'.join(gpu_of_each(tasks))}" if own_gpus(layout) else "off"
    return Binding(
        (
            "-N",
            str(layout.num_nodes),
            f"--tasks-per-node={len(tasks)}",
            "--exclusive",
            "-o",
            "mpibind=off",
            "-o",
            f"cpu-affinity=map:{';'.join(cpu_list(task.cpus) for task in tasks)}",
            "-o",
            f"gpu-affinity={gpus}",
        )
    )
