"""Open MPI's mpirun: a rank file."""

from __future__ import annotations

import shlex

from plumbline.placement.binding.common import (
    OWN_GPUS,
    Binding,
    BindingError,
    Launcher,
    PairBinding,
    Refusal,
    file_name,
    refuse_own_gpus,
)
from plumbline.placement.placement import Layout, Task
from plumbline.placement.topology import Topology

UNEQUAL_SOCKETS = Refusal(
    "it miscounts cores if sockets have different numbers of usable ones: keep the same number of "
    "cores of each socket for the system",
    "sockets have different numbers of usable cores",
)


def openmpi(layout: Layout, _: Topology | None) -> Binding:
    """Return a rank file with physical CPU numbers, each of which means the core that has it, with
    all its threads.

    Logical numbers (``slot=SOCKET:CORES``) are not used: Open MPI 4.1 reads the second core of
    ``0:0,1`` as a socket.
    """
    slots = [",".join(map(str, task.cpus)) for task in layout.tasks]
    options = ("--mca", "rmaps_rank_file_physical", "1", "--rankfile")
    return _rank_file(layout, options, "{}", slots)


def openmpi5(layout: Layout, topology: Topology | None) -> Binding:
    """Return a rank file with ``slot=PACKAGE:CORES``, both logical among the usable CPUs: it has no
    physical numbers.

    PRRTE counts the cores of the packages before as if each had as many as this one. It also counts
    cores that are kept for the system without the kernel's help, which the proof detects.
    """
    if topology and len({len(cores) for cores in topology.by_socket()}) > 1:
        raise BindingError(UNEQUAL_SOCKETS.message)
    slots = [_slot(task) for task in layout.tasks]
    return _rank_file(layout, ("--map-by",), "rankfile:file={}", slots)


def _rank_file(layout: Layout, options: tuple[str, ...], last: str, slots: list[str]) -> Binding:
    """Return a rank file.

    Its hosts are ``+n0``, ``+n1`` of the allocation, or ``localhost`` without a scheduler.
    """
    refuse_own_gpus(layout)
    several = layout.num_nodes > 1
    hosts = [f"+n{node}" for node in range(layout.num_nodes)] if several else ["localhost"]
    name = file_name("rankfile", layout)
    lines = [
        f"rank {rank}={hosts[task.node]} slot={slots[rank]}\n"
        for rank, task in enumerate(layout.tasks)
    ]
    return Binding((*options, last.format(name)), files={name: "".join(lines)})


def _slot(task: Task) -> str:
    by_socket: dict[int, list[int]] = {}
    for core in task.cores:
        by_socket.setdefault(core.logical_socket, []).append(core.logical_core)
    return ";".join(f"{socket}:{','.join(map(str, c))}" for socket, c in by_socket.items())


def _bind_pair(bound: Binding) -> PairBinding:
    """Use a rank file for each pair, with the names of its two nodes."""
    *options, last = map(shlex.quote, bound.options)
    (name,) = bound.files
    edit = f'sed "s/=+n0 /=$first /; s/=+n1 /=$second /" {name} >{name}-$sample-$pair'
    words = ("--host", '"$first:1,$second:1"', *options, f"{last}-$sample-$pair")
    return PairBinding((edit,), words)


def _bind_pair_of_4(bound: Binding) -> PairBinding:
    """Give each ``mpirun`` a session folder of its own.

    All that one user runs at once on a node make and remove the same ``/tmp/ompi.HOST.UID``, and
    one that loses the race ends with "orte_session_dir failed" (open-mpi/ompi#8510).
    """
    pair = _bind_pair(bound)
    own = "session=$(mktemp -d) || exit; trap 'rm -rf \"$session\"' EXIT"
    return PairBinding(
        (own, *pair.before), ("--mca", "orte_local_tmpdir_base", '"$session"', *pair.words)
    )


OPENMPI = Launcher(
    "mpirun of Open MPI 4", "mpirun", "launcher", openmpi, (OWN_GPUS,), _bind_pair_of_4
)

OPENMPI5 = Launcher(
    "mpirun of Open MPI 5",
    "mpirun",
    "process_manager",
    openmpi5,
    (OWN_GPUS, UNEQUAL_SOCKETS),
    _bind_pair,
)
