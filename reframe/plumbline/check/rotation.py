"""Nodes that a test case on several nodes requests from Slurm, so that each node is measured by
some night: a scheduler alone gives every night the same ones, its first.

They are chosen among the nodes that are idle when the job is submitted, by the date and the name of
the check. So two checks of one night measure different nodes, and the next night the next ones.
"""

from __future__ import annotations

import datetime
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence

from plumbline.core.errors import Fault
from plumbline.site import slurm

#: ReFrame's schedulers that are Slurm.
SLURM = ("slurm", "squeue")

#: Options of sbatch(1) by which a user chooses the nodes.
_OWN_CHOICE = re.compile(
    r"(?:#SBATCH\s+)?(?:-w|-x|-F|--nodelist|--exclude|--nodefile|--reservation|--switches)\b"
    r"|(?:nodelist|exclude|nodefile|reservation|switches|w|x|F)="
)


def order(names: Sequence[str], check: str, day: int) -> list[str]:
    """Return nodes in the order in which a check takes them on a day: two places further each day.

    :arg day: number of the day. :arg check: name of the check, which gives its own start.
    """
    start = (2 * day + zlib.crc32(check.encode())) % max(len(names), 1)
    return [*names[start:], *names[:start]]


def chosen(
    ordered: Sequence[str],
    idle: Collection[str],
    number: int,
    racks: int = 1,
    rack_of: Callable[[str], str] = str,
) -> list[str]:
    """Return the first idle nodes in an order, of at least so many racks; empty if there are not
    enough."""
    free = [name for name in ordered if name in idle]
    first: dict[str, str] = {}
    if racks > 1:
        for name in free:
            first.setdefault(rack_of(name), name)
        if len(first) < racks:
            return []
    picked = [*first.values()][:racks]
    picked += [name for name in free if name not in picked][: number - len(picked)]
    return picked if len(picked) == number else []


def of_job(partition, job, number: int, racks: int, check: str) -> list[str]:
    """Return the nodes that a job requests; empty if the scheduler is to choose.

    :arg number: of nodes, in at least so many racks. :arg check: the check's name.
    """
    extras = partition.extras
    rotates = extras.get("rotate_nodes") or racks > 1
    options = [*partition.access, *job.options, *job.cli_options]
    if (
        partition.scheduler.registered_name not in SLURM
        or number < 2
        or not rotates
        or job.pin_nodes
        or any(_OWN_CHOICE.match(option) for option in options)
    ):
        return []
    try:
        members = slurm.members([*partition.access], slurm.nodes() or [])
    except Fault:
        # Then the job itself shows what is wrong.
        return []
    names = [name for name, node in members.items() if node.is_up]
    rack_of = racks_of(partition, names) if racks > 1 else {}
    ordered = order(names, check, datetime.date.today().toordinal())
    idle = {name for name in rack_of or names if members[name].is_idle}
    return chosen(ordered, idle, number, racks, lambda name: rack_of.get(name, ""))


def racks_of(partition, nodes: Iterable[str]) -> dict[str, str]:
    """Return the rack of each node: by the partition's ``extras.rack_pattern``, or else its leaf
    switch in Slurm's topology. A node that neither knows is missing."""
    if pattern := partition.extras.get("rack_pattern"):
        return {name: match[1] for name in nodes if (match := re.match(pattern, name))}
    switches = _switches(partition)
    # The kernel's name may have the domain that Slurm's has not.
    short = {name: name if name in switches else name.partition(".")[0] for name in nodes}
    return {name: switches[known] for name, known in short.items() if known in switches}


def racks_known(partition) -> bool:
    """Return whether :func:`racks_of` can tell nodes of several racks apart."""
    pattern = partition.extras.get("rack_pattern")
    return bool(pattern) or len({*_switches(partition).values()}) > 1


def _switches(partition) -> dict[str, str]:
    """Return the leaf switch of each node, empty without Slurm."""
    return slurm.leaf_switches() if partition.scheduler.registered_name in SLURM else {}
