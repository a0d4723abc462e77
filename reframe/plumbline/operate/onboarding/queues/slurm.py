"""Slurm's partitions, each of its kinds of nodes as one."""

from __future__ import annotations

from plumbline.core.errors import Fault
from plumbline.core.process import one_line
from plumbline.core.text import pluralize
from plumbline.operate.onboarding.queues import Batch, Hardware, Queue, identifier
from plumbline.site import slurm

COMMAND = "sinfo"


def find(wanted: list[str]) -> Batch | None:
    """Return Slurm's partitions; ``None`` if it does not answer.

    :raises Fault: if only half of it answers.
    """
    nodes = slurm.nodes()
    if nodes is None:
        return None
    settings = slurm.partitions()
    if settings is None:
        raise Fault(
            "scontrol does not answer, although sinfo does: repeat the command when both answer",
            code="scheduler.no-answer",
        )
    # Newer versions print "(null)" for none. It is empty if scontrol fails.
    accounting = slurm.setting("AccountingStorageType")
    scheduler = "squeue" if accounting.endswith(("/none", "(null)")) else "slurm"
    batch = Batch(slurm.version(), scheduler, "srun", {"use_nodes_option": True})
    if not slurm.has_topology():
        batch.messages.append("Slurm knows no switches: `plumbline screen` cannot flag any")
    for name in batch.chosen(settings, wanted):
        kinds = _draftable(batch, name, slurm.kinds(name, nodes))
        batch.queues += [_queue(kind, settings[name]) for kind in kinds]
    return batch


def _draftable(batch: Batch, partition: str, kinds: list[slurm.Kind]) -> list[slurm.Kind]:
    """Return the kinds of a partition's nodes that a job can be sent to, the largest first.

    If no feature distinguishes them, only the first is drafted.
    """
    if not kinds:
        batch.skip(partition, "it has no nodes")
    for number, kind in enumerate(kinds):
        if kind.constraint is None:
            first = one_line(kind.nodes[0].name)
            alike_nodes = f"{pluralize(len(kind.nodes), 'node')} like {first}"
            text = f"{alike_nodes} skipped: no feature distinguishes them"
            if number == 0:
                text = (
                    f"no feature distinguishes its {len(kinds)} kinds of nodes: drafted as the "
                    f"{alike_nodes}; select them in `access`"
                )
            batch.messages.append(f"partition {partition}: {text}")
    return [kind for number, kind in enumerate(kinds) if number == 0 or kind.constraint is not None]


def _queue(kind: slurm.Kind, fields: dict[str, str]) -> Queue:
    """Return one kind of a partition's nodes.

    :arg fields: of the partition.
    """
    node = kind.nodes[0]
    access = ["--no-requeue", f"--partition={node.partition}", "--exclusive"]
    if kind.constraint:
        access.insert(2, f"--constraint={kind.constraint}")
    if node.gpus[1]:
        access.append(f"--gpus-per-node={node.gpus[1]}")
    limit = one_line(fields.get("MaxTime", "")) or "unknown"
    return Queue(
        queue=node.partition,
        name=identifier(
            f"{node.partition}-{kind.constraint}" if kind.constraint else node.partition
        ),
        nodes=tuple(node.name for node in kind.nodes),
        hardware=Hardware(
            node.sockets * node.cores * node.threads,
            node.sockets, node.cores, node.threads, node.gpus,
        ),
        access=tuple(access),
        memory=min(node.memory for node in kind.nodes),
        limits=f"state {one_line(fields.get('State', '?'))}, time limit {limit}",
        reserved=slurm.reserved_cpus(node.name),
    )  # fmt: skip
