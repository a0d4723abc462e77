"""Slurm's srun."""

from __future__ import annotations

import shlex

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    SEVERAL_GPUS,
    Binding,
    Launcher,
    PairBinding,
    gpu_of_each,
    mask,
    own_gpus,
    per_node,
)
from plumbline.placement.placement import Layout
from plumbline.placement.topology import Topology


def srun(layout: Layout, topology: Topology | None) -> Binding:
    """Return one mask for each task of a node.

    A mask needs a step with all CPUs of its nodes. ``--cpus-per-task`` would narrow it, as it
    "implies --exact" (srun(1)).
    """
    tasks = per_node(layout)
    options = [
        f"--nodes={layout.num_nodes}",
        f"--ntasks={layout.num_tasks}",
        f"--ntasks-per-node={len(tasks)}",
        "--distribution=block",
        f"--cpu-bind=mask_cpu:{','.join(mask(task.cpus) for task in tasks)}",
    ]
    if layout.vendor:
        if topology and topology.gpus:
            options.append(f"--gpus-per-node={len(topology.gpus)}")
        gpus = "map_gpu:" + ",".join(gpu_of_each(tasks)) if own_gpus(layout) else "none"
        options.append(f"--gpu-bind={gpus}")
    return Binding(tuple(options))


def _bind_pair(bound: Binding) -> PairBinding:
    """Run the pairs as concurrent steps of one job, each on its own nodes."""
    return PairBinding((), (*map(shlex.quote, bound.options), '--nodelist="$first,$second"'))


SRUN = Launcher("srun", "srun", "launcher", srun, (NODES_DIFFER, SEVERAL_GPUS), _bind_pair)
