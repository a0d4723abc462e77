"""Slurm's srun."""

from __future__ import annotations

import shlex

from plumbline.placement.binding.common import (
    NODES_DIFFER,
    SEVERAL_GPUS,
    Binding,
    Launcher,
    Option,
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
    """Steps of one job on nodes of their own run beside each other."""
    return PairBinding((), (*map(shlex.quote, bound.options), '--nodelist="$first,$second"'))


SRUN = Launcher(
    "srun",
    "srun",
    "launcher",
    srun,
    (
        Option("--nodes=<n>", "all nodes of the job", 'srun(1), "OPTIONS"'),
        Option("--ntasks=<n>", "all tasks", 'srun(1), "OPTIONS"'),
        Option("--ntasks-per-node=<n>", "tasks on each node", 'srun(1), "OPTIONS"'),
        Option(
            "--distribution=block",
            "consecutive ranks on each node",
            'srun(1), "--distribution"',
        ),
        Option(
            "--cpu-bind=mask_cpu:<masks>",
            "a mask for each task of a node, by the operating system's numbers",
            'srun(1), "--cpu-bind"',
        ),
        Option(
            "--nodelist=<nodes>",
            "the two nodes of a pair, if a job runs pairs of its nodes",
            'srun(1), "--nodelist"',
        ),
        Option(
            "--gpus-per-node=<n>",
            "all GPUs of the node: a step does not have those that the job got by being exclusive",
            'srun(1), "--gpus-per-node"',
        ),
        Option(
            "--gpu-bind=none",
            "every task sees all GPUs, and the words before the program select some",
            'srun(1), "--gpu-bind"',
        ),
        Option(
            "--gpu-bind=map_gpu:<list>",
            "a GPU of its own for each task of a node",
            'srun(1), "--gpu-bind"',
        ),
    ),
    (NODES_DIFFER, SEVERAL_GPUS),
    _bind_pair,
)
