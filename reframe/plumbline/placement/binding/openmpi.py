"""Open MPI's mpirun: a rank file."""

from __future__ import annotations

from plumbline.placement.binding.common import Binding, BindingError, file_name, no_own_gpus
from plumbline.placement.placement import Layout, Task
from plumbline.placement.topology import Topology


def openmpi(layout: Layout, _: Topology | None) -> Binding:
    """A rank file with physical CPU numbers: each stands for the core that has it, with all its
    threads. Hosts are ``+n0``, ``+n1`` of the allocation (mpirun(1) of Open MPI 4.1, "Rankfiles");
    on one node ``localhost``, as without a scheduler there is no allocation.

    Not ``slot=SOCKET:CORES``, which is logical: 4.1 reads the second core of ``0:0,1`` as a socket.
    """
    slots = [",".join(map(str, task.cpus)) for task in layout.tasks]
    options = ("--mca", "rmaps_rank_file_physical", "1", "--rankfile")
    return _rank_file(layout, options, "{}", slots)


def openmpi5(layout: Layout, topology: Topology | None) -> Binding:
    """A rank file by ``--map-by rankfile:file=``, with ``slot=PACKAGE:CORES``, both logical among
    the CPUs that may be used (prterun(1) of PRRTE 3.0, "Rankfiles"): it has no physical numbers.

    PRRTE counts the cores of the packages before as if each had as many as the named one. Cores
    that are kept for the system without the kernel's help count too, which the proof tells.
    """
    if topology and len({len(cores) for cores in topology.by_socket()}) > 1:
        raise BindingError(
            "it miscounts the cores of sockets that have different numbers of usable ones: keep as "
            "many of each socket for the system",
            code="binding.not-expressible",
        )
    slots = [_slot(task) for task in layout.tasks]
    return _rank_file(layout, ("--map-by",), "rankfile:file={}", slots)


def _rank_file(layout: Layout, options: tuple[str, ...], last: str, slots: list[str]) -> Binding:
    no_own_gpus(layout)
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
