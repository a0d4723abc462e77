"""The proof of a binding: what the task wrapper reported, compared with the layout."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plumbline.core.errors import Coded
from plumbline.core.text import shorten
from plumbline.placement.binding import WORDS, overruled
from plumbline.placement.placement import Layout
from plumbline.placement.topology import MIG, cpus_of_list, ranges_of_list

#: Why each task may be the only one of its world.
OTHER_MPI = "the launcher or its PMI (srun's --mpi) does not belong to the program's MPI"

#: Possible causes of missing or single tasks, as messages have them.
ALONE = f"each task runs alone: {OTHER_MPI}"
TASK_ENDED = "a task ended before it reported itself"

#: Variables with their values.
Variables = frozenset[tuple[str, str]]

#: In place of the value of a variable that is not set.
NOT_SET = "unset"

#: In place of the name of a variable: the number of tasks of which only a checksum is known.
OTHER_TASKS = "(other tasks)"

#: Characters of a line that a message quotes.
QUOTED = 300

#: Ranks that a message lists.
_MAX_LISTED = 16


class BindingMismatch(Coded):
    """The tasks did not run where the placement puts them, or not as many as it has."""


@dataclass(frozen=True)
class TaskReport:
    """What the task wrapper reported of one task.

    :ivar cpus: the CPUs that it may run on, in the kernel's list format.
    :ivar given: the GPUs by the launcher's names; empty if it named none.
    :ivar gpus: the GPUs as the program sees them; empty for all, ``none`` for none.
    :ivar local: its number among the tasks of its node, as the program gets it; -1 if unknown.
    :ivar devices: PCI bus ids of the GPUs that the program sees, in its order, separated by commas;
        empty if the node does not show them.
    """

    rank: int
    host: str
    cpus: str
    given: str = ""
    gpus: str = ""
    local: int = -1
    devices: str = ""


@functools.lru_cache(maxsize=1)
def lines_by_word(stderr: str) -> dict[str, list[str]]:
    """Return the lines of standard error by the word that begins those of ``task.sh``, such as
    ``plumbline-task``; all others by an empty one.

    Each reader needs a few lines of the same text, to which thousands of tasks each write several.
    """
    found: dict[str, list[str]] = {}
    for line in stderr.splitlines():
        word = line.partition(" ")[0] if line.startswith("plumbline-") else ""
        found.setdefault(word, []).append(line)
    return found


def read_tasks(stderr: str) -> list[TaskReport]:
    """Return the tasks that reported on standard error (see ``task.sh``), in rank order.

    :raises BindingMismatch: if such a line cannot be read.
    """
    tasks = []
    for line in lines_by_word(stderr).get("plumbline-task", ()):
        try:
            _, rank, host, cpus, _, given, gpus, local, openable = line.split()
            ranges_of_list(cpus)
            given = "" if given == "-" else given
            gpus = "" if gpus == "-" else gpus
            number = -1 if local == "?" else int(local)
            devices = _visible_devices(gpus, openable)
            tasks.append(TaskReport(int(rank), host, cpus, given, gpus, number, devices))
        except ValueError:
            raise BindingMismatch(
                f"a task's report cannot be read: {line[:QUOTED]!r}", code="proof.unreadable"
            ) from None
    return sorted(tasks, key=lambda task: task.rank)


def _visible_devices(gpus: str, openable: str) -> str:
    """Return the bus ids of the GPUs that a task sees, of those that it can open; empty if it does
    not name them by number.

    :raises ValueError: if it names one twice.
    """
    buses = [] if openable == "-" else openable.split(",")
    numbers = [int(name) if name.isdigit() else len(buses) for name in gpus.split(",")]
    if max(numbers) >= len(buses):
        return ""
    if len({*numbers}) < len(numbers):
        raise ValueError(gpus)
    return ",".join(buses[number] for number in numbers)


def host_facts(stderr: str) -> dict[str, dict[str, str]]:
    """Return the facts that tasks reported of their hosts: host -> fact -> value."""
    facts: dict[str, dict[str, str]] = {}
    for line in lines_by_word(stderr).get("plumbline-host", ()):
        _, *words = line.split(maxsplit=3)
        if len(words) == 3:
            host, fact, value = words
            facts.setdefault(host, {})[fact] = value
    return facts


def variables(stderr: str, jobid: str, words: bool = True) -> set[Variables]:
    """Return the different sets of variables with which tasks tune libraries, without those that
    Plumbline sets; none if no task reported them. In paths, the job's number is ``JOBID``.

    :arg words: whether Plumbline sets those of its words, such as ``OMP_NUM_THREADS``, too.

    Most tasks report only a checksum. Each set has the number of tasks whose own is not printed.
    """
    own = overruled() if words else overruled() - {*WORDS}
    found: dict[str, set[tuple[str, str]]] = {}
    sums: dict[str, str] = {}
    number = re.compile(rf"(?<![0-9A-Za-z]){re.escape(jobid)}(?![0-9A-Za-z])")
    for line in lines_by_word(stderr).get("plumbline-variable", ()):
        _, rank, name, value = [*line.split(" ", 3), "", "", ""][:4]
        if name == "=":
            sums[rank] = value
            continue
        of_task = found.setdefault(rank, set())
        if value and name not in own:
            of_task.add((name, number.sub("JOBID", value) if jobid and "/" in value else value))
    printed = {sums.get(rank) for rank in found}
    others = sum(of_task not in printed for of_task in sums.values())
    more = {(OTHER_TASKS, str(others))} if others else set()
    return {frozenset(of_task | more) for of_task in found.values()}


def merged(found: Iterable[Variables]) -> dict[str, str]:
    """Return each variable with its value, or its values if tasks differ."""
    tasks = [dict(of_task) for of_task in found]
    merged = {}
    for name in sorted({name for of_task in tasks for name in of_task}):
        values = sorted({of_task.get(name, NOT_SET) for of_task in tasks})
        more = f" and {len(values) - 8} more" if len(values) > 8 else ""
        listed = " | ".join(values[:8]) + more
        merged[name] = f"tasks differ: {listed}" if len(values) > 1 else listed
    return merged


@dataclass(frozen=True)
class Counters:
    """The counters of a network interface at one moment.

    :ivar time: seconds since the node booted.
    :ivar received: bytes; ``sent`` likewise.
    """

    time: float
    received: int
    sent: int
    errors: int
    drops: int


#: Counters of the interfaces of one node: moment (``quiet``, ``start``, ``end``) -> interface.
Moments = dict[str, dict[str, Counters]]


def network_counters(stderr: str) -> dict[str, Moments]:
    """Return the counters of network interfaces that tasks reported, by host (see ``task.sh``).

    A line that is garbled is skipped: what the network moved is then not known.
    """
    found: dict[str, Moments] = {}
    for line in lines_by_word(stderr).get("plumbline-net", ()):
        try:
            _, host, moment, now, interface, *counts = line.split()
            received, sent, errors, drops = map(int, counts)
            counters = Counters(float(now), received, sent, errors, drops)
        except ValueError:
            continue
        if not math.isfinite(counters.time):
            continue
        found.setdefault(host, {}).setdefault(moment, {})[interface] = counters
    return found


def prove(layout: Layout, tasks: list[TaskReport]) -> None:
    """Compare the tasks that ran with the layout.

    A task may use any hardware thread of its own cores and no other CPU, and must be allowed at
    least one thread of each of them. Tasks that share GPUs must see those of the layout, in its
    order, and the launcher must not have hidden one. A GPU of a task's own must be the one of the
    layout; if the launcher does not name it by number, no other task of the node may have it.

    Memory is not proven here: the wrapper reports before ``numactl`` runs, which ends with an error
    if it cannot bind.

    :raises BindingMismatch: if the ranks, the nodes, the CPUs or the GPUs differ.
    """
    if [task.rank for task in tasks] != list(range(layout.num_tasks)):
        raise BindingMismatch(_wrong_ranks(layout, tasks), code="proof.task-count")
    nodes = {host: n for n, host in enumerate(dict.fromkeys(task.host for task in tasks))}
    lists: dict[str, frozenset[int]] = {}
    for task, expected in zip(tasks, layout.tasks, strict=True):
        if nodes[task.host] != expected.node:
            raise BindingMismatch(
                f"rank {task.rank} ran on {task.host}, which is node {nodes[task.host]} of "
                f"the job; placement {layout.placement!r} requires node {expected.node}",
                code="proof.wrong-node",
            )
        if task.cpus not in lists:
            lists[task.cpus] = cpus_of_list(task.cpus)
        allowed = lists[task.cpus]
        missed = [core for core in expected.cores if allowed.isdisjoint(core.cpus)]
        if missed or not allowed <= expected.hardware_threads:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} may run on CPUs {task.cpus}; placement "
                f"{layout.placement!r} requires {','.join(map(str, expected.cpus))}",
                code="proof.wrong-cpus",
            )
    if layout.vendor:
        _prove_whole_gpus(tasks)
        _prove_local_ranks(layout, tasks)
        _prove_devices(layout, tasks)
    if layout.own_gpus:
        _prove_own_gpus(layout, tasks)
    else:
        _prove_shared_gpus(layout, tasks)


def prove_nodes(names: Sequence[str], tasks: list[TaskReport], others: Iterable[str]) -> None:
    """Compare the nodes that tasks ran on with those that the launcher or scheduler was given.

    A scheduler's name of a node may differ from the node's own. Then it can only be checked that
    the task's host is none of the other nodes.

    :arg names: the nodes that the tasks should run on, by the scheduler's names.
    :arg others: names of all nodes that the tasks could have run on.
    :raises BindingMismatch: if a task ran on another of them.
    """
    wanted = {_short(name) for name in names}
    elsewhere = {_short(name) for name in others} - wanted
    for task in tasks:
        if _short(task.host) in elsewhere:
            raise BindingMismatch(
                f"rank {task.rank} ran on {task.host}; it should have run on {' or '.join(names)}",
                code="proof.wrong-node",
            )


def _short(host: str) -> str:
    return host.partition(".")[0]


def _wrong_ranks(layout: Layout, tasks: list[TaskReport]) -> str:
    """Return which ranks started, and the possible causes; the nodes, which may be many, last."""
    hosts = list(dict.fromkeys(task.host for task in tasks))
    missing = layout.num_nodes - len(hosts)
    causes = [TASK_ENDED, OTHER_MPI]
    ranks = [task.rank for task in tasks]
    if len({*ranks}) < len(ranks):
        causes = [ALONE]
    elif missing > 0:
        causes = [f"{missing} of {layout.num_nodes} nodes started no task", *causes]
    started = f"ranks {ranks}" if ranks else "no task"
    if len(ranks) > _MAX_LISTED:
        started = f"{len(ranks)} tasks, ranks {ranks[0]} to {ranks[-1]}"
    return (
        f"{layout.num_tasks} tasks expected, ranks 0 to {layout.num_tasks - 1}; {started} "
        f"started; possible causes, the likeliest first: {'; '.join(causes)}; "
        f"tasks on {shorten(hosts) or 'no node'}"
    )


def _prove_whole_gpus(tasks: list[TaskReport]) -> None:
    """Prove that no task was given a part of a GPU: it would be measured as if it were a whole."""
    for task in tasks:
        names = f"{task.given},{task.gpus}".split(",")
        if part := next((name for name in names if name.startswith(f"{MIG}-")), ""):
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} was given {part}, a part of a GPU: its figures "
                f"are not those of a whole one",
                code="topology.gpu-mode",
            )


def _prove_local_ranks(layout: Layout, tasks: list[TaskReport]) -> None:
    """Prove the local ranks, by which programs choose their GPU."""
    for task in tasks:
        local = task.rank % layout.num_tasks_per_node
        if task.local != local:
            found = "no local rank" if task.local < 0 else f"local rank {task.local}"
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} has {found}, not {local}: the program would "
                f"use another GPU than placement {layout.placement!r} gives it",
                code="proof.wrong-local-rank",
            )


def _prove_devices(layout: Layout, tasks: list[TaskReport]) -> None:
    """Prove by bus ids that no two tasks of a node use the same GPU.

    Programs choose their GPU by local rank among those that they see. A layout with fewer GPUs than
    tasks on a node wants them to share.
    """
    if len({gpu for task in layout.tasks for gpu in task.gpus}) < layout.num_tasks_per_node:
        return
    owners: dict[tuple[str, str], int] = {}
    for task, expected in zip(tasks, layout.tasks, strict=True):
        if expected.gpus and task.devices:
            devices = task.devices.split(",")
            device = devices[task.local % len(devices)]
            # A partition of an MI300 but its first is no PCI device.
            if device == "?":
                continue
            _claim(owners, task, device, f"use the GPU at PCI bus id {device}", layout)


def _claim(
    owners: dict[tuple[str, str], int], task: TaskReport, gpu: str, use: str, layout: Layout
) -> None:
    """Enter a task as the owner of a GPU of its node.

    :raises BindingMismatch: if the GPU has one.
    """
    owner = owners.setdefault((task.host, gpu), task.rank)
    if owner != task.rank:
        raise BindingMismatch(
            f"ranks {owner} and {task.rank} on {task.host} both {use}; placement "
            f"{layout.placement!r} gives each task a GPU of its own",
            code="proof.shared-gpu",
        )


def _prove_shared_gpus(layout: Layout, tasks: list[TaskReport]) -> None:
    gpus = layout.tasks[0].gpus
    if not gpus:
        return
    wanted = ",".join(map(str, gpus))
    for task in tasks:
        found = ""
        if task.gpus != wanted:
            found = f"sees {f'GPUs {task.gpus}' if task.gpus else 'all GPUs'}"
        elif task.given and _hidden(task.given, gpus):
            found = f"was given GPUs {task.given} by the launcher or its environment"
        if found:
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} {found}; placement {layout.placement!r} gives "
                f"it GPUs {wanted}",
                code="proof.wrong-gpu",
            )


def _hidden(given: str, gpus: tuple[int, ...]) -> bool:
    """Return whether the launcher hid one of the GPUs."""
    names = given.split(",")
    if all(name.isdigit() for name in names):
        return not set(map(str, gpus)) <= set(names)
    # Names that are not numbers (GPU-4a1f...): the n-th of them is GPU n.
    return given == "none" or len(names) <= max(gpus)


def _prove_own_gpus(layout: Layout, tasks: list[TaskReport]) -> None:
    owners: dict[tuple[str, str], int] = {}
    for task, expected in zip(tasks, layout.tasks, strict=True):
        wanted = ",".join(map(str, expected.gpus))
        # The launcher named it, or the task wrapper chose it among those that the launcher left.
        left = not task.given or wanted in task.given.split(",")
        chosen = task.gpus == wanted and left
        by_name = task.gpus == task.given and "," not in task.given and not task.given.isdigit()
        if not (chosen or by_name) or task.gpus in ("", "none"):
            raise BindingMismatch(
                f"rank {task.rank} on {task.host} was given GPUs {task.given or 'without a name'} "
                f"by the launcher or its environment and sees {task.gpus or 'all'}; placement "
                f"{layout.placement!r} gives it GPU {wanted} alone (if device cgroups make each "
                f"task's own GPU number 0, it cannot be confirmed which GPU it is)",
                code="proof.wrong-gpu",
            )
        _claim(owners, task, task.gpus, f"were given GPU {task.gpus}", layout)
