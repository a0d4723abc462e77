"""The proof of a binding: what the task wrapper saw, held against the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from plumbline.core.errors import Coded
from plumbline.core.text import some
from plumbline.placement.binding.common import own_gpus
from plumbline.placement.placement import Layout
from plumbline.placement.topology import cpus_of_list, ranges_of_list

#: Why each task may be the only one of its world.
OTHER_MPI = "the launcher, or its PMI (srun's --mpi), is not that of the program's MPI"


#: Characters of a line that a message quotes.
QUOTED = 300


class BindingMismatch(Coded):
    """The tasks did not run where the placement says, or not as many as it says."""


@dataclass(frozen=True)
class Seen:
    """What the task wrapper saw of one task.

    :ivar cpus: the CPUs that it may run on, as the kernel lists them.
    :ivar given: the GPUs as the launcher named them; empty where it named none.
    :ivar gpus: the GPUs as the program sees them; empty where nothing is said, ``none`` where it
        sees none.
    :ivar local: its number among the tasks of its node, as the program gets it; -1 where unknown.
    :ivar devices: PCI bus ids of the GPUs that the program sees, in its order, separated by commas;
        empty where the node does not show them.
    """

    rank: int
    host: str
    cpus: str
    given: str = ""
    gpus: str = ""
    local: int = -1
    devices: str = ""


def seen(stderr: str) -> list[Seen]:
    """The tasks that reported themselves on standard error (see ``task.sh``), in rank order.

    :raises BindingMismatch: if such a line cannot be read.
    """
    tasks = []
    for line in stderr.splitlines():
        if not line.startswith("plumbline-task "):
            continue
        try:
            _, rank, host, cpus, _, given, gpus, local, reachable = line.split()
            ranges_of_list(cpus)
            given, gpus = ("" if word == "-" else word for word in (given, gpus))
            number = -1 if local == "?" else int(local)
            devices = _visible(gpus, reachable)
            tasks.append(Seen(int(rank), host, cpus, given, gpus, number, devices))
        except ValueError:
            raise BindingMismatch(
                f"a task's report cannot be read: {line[:QUOTED]!r}", code="proof.unreadable"
            ) from None
    return sorted(tasks, key=lambda task: task.rank)


def _visible(gpus: str, reachable: str) -> str:
    """Bus ids of the GPUs that a task sees, of those that it can open; empty where it names them
    otherwise than by number.

    :raises ValueError: if it names one twice.
    """
    buses = [] if reachable == "-" else reachable.split(",")
    numbers = [int(name) if name.isdigit() else len(buses) for name in gpus.split(",")]
    if max(numbers) >= len(buses):
        return ""
    if len({*numbers}) < len(numbers):
        raise ValueError(gpus)
    return ",".join(buses[number] for number in numbers)


def host_facts(stderr: str) -> dict[str, dict[str, str]]:
    """Facts of each host that the tasks reported on standard error: host -> fact -> value."""
    facts: dict[str, dict[str, str]] = {}
    for line in stderr.splitlines():
        words = line.split(maxsplit=3)
        if len(words) == 4 and words[0] == "plumbline-host":
            facts.setdefault(words[1], {})[words[2]] = words[3]
    return facts


def prove(layout: Layout, tasks: list[Seen], racks: Callable[[str], str] | None = None) -> None:
    """Holds what was seen against the layout.

    A task may be allowed any hardware thread of its own cores and no other CPU, and must be
    allowed at least one thread of every one of them. Tasks that share GPUs must see the layout's,
    in its order, and the launcher must not have kept one from them; a GPU of a task's own must be
    the layout's, alone, or where the launcher names it otherwise no other task's of its node.

    Memory is not proven here: the wrapper speaks before ``numactl`` does its work. The words that
    the job script has do it, and ``numactl`` ends with an error where it cannot.

    :arg racks: host -> rack; without it, racks are not looked at.
    :raises BindingMismatch: if the ranks, the nodes, the racks, the CPUs or the GPUs differ.
    """
    count = layout.num_tasks
    if [task.rank for task in tasks] != list(range(count)):
        raise BindingMismatch(_said_of_ranks(layout, tasks), code="proof.task-count")
    nodes = {host: n for n, host in enumerate(dict.fromkeys(task.host for task in tasks))}
    for task, told in zip(tasks, layout.tasks, strict=True):
        if nodes[task.host] != told.node:
            raise BindingMismatch(
                f"rank {task.rank} ran on {task.host}, which is node {nodes[task.host]} of "
                f"the job; placement {layout.placement!r} puts it on node {told.node}",
                code="proof.wrong-node",
            )
        allowed = cpus_of_list(task.cpus)
        missed = [core for core in told.cores if allowed.isdisjoint(core.cpus)]
        if missed or not allowed <= told.hardware_threads:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} may run on CPUs {task.cpus}; placement "
                f"{layout.placement!r} puts it on {','.join(map(str, told.cpus))}",
                code="proof.wrong-cpus",
            )
    if layout.vendor:
        _prove_local_ranks(layout, tasks)
        _prove_devices(layout, tasks)
    if racks and len(found := {racks(host) for host in nodes}) < layout.racks:
        raise BindingMismatch(
            f"all nodes were of rack {', '.join(sorted(found))}; placement {layout.placement!r} "
            f"takes {layout.racks} racks",
            code="proof.one-rack",
        )
    if own_gpus(layout):
        _prove_own_gpus(layout, tasks)
    else:
        _prove_shared_gpus(layout, tasks)


def prove_nodes(told: Sequence[str], tasks: list[Seen], others: Iterable[str]) -> None:
    """Holds the nodes that tasks ran on against those that were named to the launcher or the
    scheduler.

    A scheduler may call a node otherwise than the node calls itself; where it does, no more can be
    told than that the task's host is none of the other nodes.

    :arg told: the nodes by the scheduler's names.
    :arg others: names of all nodes that the tasks could have run on.
    :raises BindingMismatch: if a task ran on another of them.
    """
    wanted = {_short(name) for name in told}
    elsewhere = {_short(name) for name in others} - wanted
    for task in tasks:
        if _short(task.host) in elsewhere:
            raise BindingMismatch(
                f"rank {task.rank} ran on {task.host}; it was to run on {' or '.join(told)}",
                code="proof.wrong-node",
            )


def _short(host: str) -> str:
    return host.partition(".")[0]


def _said_of_ranks(layout: Layout, tasks: list[Seen]) -> str:
    """Which ranks were seen, and what may be the cause, the likeliest first; the nodes last."""
    hosts = list(dict.fromkeys(task.host for task in tasks))
    missing = layout.num_nodes - len(hosts)
    causes = ["a task ended before it reported itself", OTHER_MPI]
    if len({task.rank for task in tasks}) < len(tasks):
        causes = [f"each task runs alone: {OTHER_MPI}"]
    elif missing > 0:
        causes = [f"{missing} of {layout.num_nodes} nodes took no part", *causes]
    return (
        f"{layout.num_tasks} tasks were to start, with ranks 0 to {layout.num_tasks - 1}; seen "
        f"were {_ranks_seen(tasks)}; possible causes, the likeliest first: {'; '.join(causes)}; "
        f"tasks on {some(hosts) or 'no node'}"
    )


def _ranks_seen(tasks: list[Seen]) -> str:
    """The ranks, for a message that stays short at any size."""
    ranks = [task.rank for task in tasks]
    if len(ranks) > _MOST_TOLD:
        return f"{len(ranks)}, ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {ranks or 'none'}"


#: Ranks that a message lists.
_MOST_TOLD = 16


def _prove_local_ranks(layout: Layout, tasks: list[Seen]) -> None:
    """Programs choose their GPU by local rank."""
    for task in tasks:
        local = task.rank % layout.num_tasks_per_node
        if task.local != local:
            found = "no local rank" if task.local < 0 else f"local rank {task.local}"
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} has {found}, not {local}: the program would "
                f"choose another GPU than placement {layout.placement!r} gives it",
                code="proof.wrong-local-rank",
            )


def _prove_devices(layout: Layout, tasks: list[Seen]) -> None:
    """Each task of a node must have another GPU than the others, by the GPUs' bus ids: the one that
    programs choose by local rank among those that they see."""
    owners: dict[tuple[str, str], int] = {}
    for task, told in zip(tasks, layout.tasks, strict=True):
        devices = task.devices.split(",")
        if not told.gpus or not task.devices:
            continue
        device = devices[task.local % len(devices)]
        owner = owners.setdefault((task.host, device), task.rank)
        if owner != task.rank:
            raise BindingMismatch(
                f"ranks {owner} and {task.rank} on {task.host} both use the GPU at PCI bus id "
                f"{device}; placement {layout.placement!r} gives each task one of its own",
                code="proof.shared-gpu",
            )


def _prove_shared_gpus(layout: Layout, tasks: list[Seen]) -> None:
    gpus = layout.tasks[0].gpus
    if not gpus:
        return
    wanted = ",".join(map(str, gpus))
    for task in tasks:
        if task.gpus != wanted:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} sees GPUs {task.gpus or 'that nothing names'}; "
                f"placement {layout.placement!r} wants {wanted}",
                code="proof.wrong-gpu",
            )
        given = task.given.split(",")
        if not task.given:
            continue
        if all(name.isdigit() for name in given):
            kept = not set(map(str, gpus)) <= set(given)
        else:
            # Names that are no numbers (GPU-4a1f...): the n-th of them is GPU n.
            kept = task.given == "none" or len(given) <= max(gpus)
        if kept:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} was given GPUs {task.given} by the launcher; "
                f"placement {layout.placement!r} wants {wanted}",
                code="proof.wrong-gpu",
            )


def _prove_own_gpus(layout: Layout, tasks: list[Seen]) -> None:
    owners: dict[tuple[str, str], int] = {}
    for task, told in zip(tasks, layout.tasks, strict=True):
        wanted = ",".join(map(str, told.gpus))
        # The launcher named it, or the task wrapper chose it among those that the launcher left.
        left = not task.given or wanted in task.given.split(",")
        chosen = task.gpus == wanted and left
        named = task.gpus == task.given and "," not in task.given and not task.given.isdigit()
        if not (chosen or named) or task.gpus in ("", "none"):
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} was given GPUs {task.given or 'without a name'} "
                f"and sees {task.gpus or 'all'}; placement {layout.placement!r} gives it GPU "
                f"{wanted} alone (where each task's own GPU is number 0 to it, the node's device "
                f"cgroups leave no proof of which it is)",
                code="proof.wrong-gpu",
            )
        owner = owners.setdefault((task.host, task.gpus), task.rank)
        if owner != task.rank:
            raise BindingMismatch(
                f"ranks {owner} and {task.rank} on {task.host} were both given GPU {task.gpus}; "
                f"placement {layout.placement!r} gives each task one of its own",
                code="proof.shared-gpu",
            )
