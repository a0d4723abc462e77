"""Slurm's srun."""

from __future__ import annotations

from plumbline.placement.binding.common import Binding, gpu_of_each, mask, own_gpus, per_node
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology


def srun(layout: Layout, topology: Topology | None) -> Binding:
    """``--cpu-bind=mask_cpu:`` takes one mask per local task (srun(1)). It needs a step with all
    CPUs of its nodes, which ``--cpus-per-task`` narrows: "implies --exact"."""
    tasks = per_node(layout)
    options = [
        f"--nodes={layout.num_nodes}",
        f"--ntasks={layout.num_tasks}",
        f"--ntasks-per-node={len(tasks)}",
        "--distribution=block",
        f"--cpu-bind=mask_cpu:{','.join(mask(task.cpus) for task in tasks)}",
    ]
    if layout.vendor:
        # A step has not the GPUs that a job got for being exclusive (--gres).
        if topology and topology.gpus:
            options.append(f"--gpus-per-node={len(topology.gpus)}")
        own = own_gpus(layout)
        gpus = "map_gpu:" + ",".join(gpu_of_each(tasks)) if own else "none"
        options.append(f"--gpu-bind={gpus}")
    return Binding(tuple(options))
