"""Options of every launcher, read back on any machine: where they put the tasks at the facility."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from facility import launch, launch_mpi
from facility.job import Job
from facility.job import Task as Placed
from facility.machine import Machine
from hypothesis import given, settings
from hypothesis import strategies as st
from plumbline.placement.binding import (
    LAUNCHERS,
    Binding,
    BindingError,
    bind,
    common,
)
from plumbline.placement.binding.common import OWN_GPUS
from plumbline.placement.placement import PLACEMENTS, Layout, Task, lay_out
from plumbline.placement.topology import PlacementError, Topology, cpus_of_list

#: Launchers that give each task a GPU of its own.
SELECT_GPUS = [name for name, known in LAUNCHERS.items() if OWN_GPUS not in known.refusals]
SELECT_GPUS.remove("local")


class AnyMachine(NamedTuple):
    """A node, as Plumbline and as the facility have it.

    :ivar kept: the cores that are kept for the system.
    """

    topology: Topology
    hardware: Machine
    kept: set[int]


@st.composite
def machines(draw: st.DrawFn) -> AnyMachine:
    """One to three sockets of up to two memory domains, one to four threads a core, numbered core
    by core or thread by thread; some cores kept for the system; GPUs near domains."""
    sockets, domains, size = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 4)),
    )
    # Numbered domain by domain, as on every system here: jsrun gives them in this order.
    near = sorted(draw(st.lists(st.integers(0, sockets * domains - 1), max_size=4)))
    hardware = Machine("any", {
        "sockets": sockets, "cores": domains * size, "smt": draw(st.sampled_from([1, 2, 4])),
        "numbering": draw(st.sampled_from(["near", "far"])), "numa": [*range(sockets * domains)],
        "gpus": near,
    }, [])  # fmt: skip

    def parts(cores: int) -> list[tuple[int, ...]]:
        """The CPUs of each so many cores."""
        starts = range(0, hardware.num_cores, cores)
        return [hardware.cpus_of_cores(range(first, first + cores)) for first in starts]

    kept: set[int] = set()
    for first in range(0, hardware.num_cores, size):
        count = draw(st.integers(0, size - 1))
        start = first if draw(st.booleans()) else first + size - count
        kept.update(range(start, start + count))
    levels = {"cores": 1, "numa_nodes": size, "sockets": domains * size}
    topology = {name: [common.mask(cpus) for cpus in parts(n)] for name, n in levels.items()}
    extras = {
        "usable_cpus": hardware.cpus_of_cores({*range(hardware.num_cores)} - kept),
        "gpu_affinity": [
            {"numa": domain, "cpus": ",".join(map(str, parts(size)[domain]))} for domain in near
        ],
        "pair_classes": {"gpu-a": [[0, 1]] if len(near) > 1 else []},
    }
    devices = [{"type": "gpu", "arch": "sm_80", "num_devices": len(near)}] if near else []
    node = Topology.of_partition({"topology": topology}, devices, extras)
    return AnyMachine(node, hardware, kept)


def alone(words: list[str], job: Job) -> launch.Step:
    return launch.Step([Placed(0, job.nodes[0], 0, job.cpus)], words)


def openmpi5(words: list[str], job: Job) -> launch.Step:
    """Logical numbers, counted through the cores of all sockets that may be used (prterun(1))."""
    hardware, (text,) = job.machine, map(Path.read_text, Path.cwd().glob("rankfile*"))
    found = re.findall(r"^rank (\d+)=(?:localhost|\+n(\d+)) slot=(\S+)$", text, re.M)
    assert [int(rank) for rank, *_ in found] == [*range(text.count("\n"))]
    usable = [
        sum(core in job.cores for core in hardware.cores_of_socket(socket))
        for socket in range(hardware.num_sockets)
    ]
    tasks = []
    for rank, node, slot in found:
        cores = []
        for part in slot.split(";"):
            package, _, cores_of_it = part.partition(":")
            before = usable[int(package)] * int(package)
            cores += [job.cores[before + number] for number in cpus_of_list(cores_of_it)]
        cpus = hardware.cpus_of_cores(cores)
        tasks.append(Placed(int(rank), job.nodes[int(node or 0)], 0, cpus))
    return launch.Step(tasks, words[-1:])


#: Launcher -> the facility's, which reads the options by its manual, and what ReFrame gives it.
STANDINS: dict[str, tuple[Callable[[list[str], Job], launch.Step], str]] = {
    "local": (alone, ""),
    **dict.fromkeys(("hydra", "mpiexec", "mvapich"), (launch_mpi.hydra, "-n {0}")),
    "mpirun-intelmpi": (functools.partial(launch_mpi.hydra, intel=True), "-np {0}"),
    **dict.fromkeys(("openmpi", "mpirun-openmpi"), (launch_mpi.openmpi, "-np {0}")),
    "openmpi5": (openmpi5, ""),
    "srun": (launch.srun, ""),
    "jsrun": (launch.jsrun, ""),
    "alps": (launch_mpi.aprun, "-n {0} -N {1} -d {2}"),
    "pals": (launch_mpi.pals, "-n {0}"),
    "mpt": (launch_mpi.mpt, "-np {0}"),
    "flux-run": (launch_mpi.flux_run, ""),
}


def started(
    launcher: str, layout: Layout, machine: AnyMachine, folder: Path
) -> tuple[Binding, launch.Step]:
    """A binding, and the tasks that the launcher starts by it.

    :raises BindingError: if there is none.
    """
    bound = bind(layout, launcher, machine.topology)
    standin, of_reframe = STANDINS[launcher]
    per_node, gpus = layout.num_tasks_per_node, len(machine.topology.gpus)
    own = of_reframe.format(layout.num_tasks, per_node, layout.num_cpus_per_task).split()
    job = Job(machine.hardware, {
        "nodes": [*map(str, range(layout.num_nodes))], "slots": per_node, "gpus": gpus,
        "isolated": [*machine.kept],
    })  # fmt: skip
    with pytest.MonkeyPatch.context() as script:
        script.chdir(folder)
        for name, value in bound.env_vars.items():
            script.setenv(name, value)
        for name, text in bound.files.items():
            Path(name).write_text(text)
        step = standin([*own, *bound.options, "program"], job)
        for name in bound.files:
            Path(name).unlink()
    return bound, step


def cpus_of(task: Placed, bound: Binding, step: launch.Step) -> set[int]:
    """The CPUs that a task may run on, once ``taskset`` or ``task.sh`` has bound it."""
    if step.command[0] == "taskset":
        return cpus_of_list(step.command[2])
    assert step.command == ["program"]
    if any(word.startswith("PLUMBLINE_CPUS=") for word in bound.task):
        return cpus_of_list(of_words(bound, "PLUMBLINE_CPUS", ":")[task.local])
    return {*task.cpus}


def of_words(bound: Binding, name: str, separator: str) -> list[str]:
    """The values of a word that ``task.sh`` reads, by local rank."""
    (word,) = (word for word in bound.task if word.startswith(f"{name}="))
    return word.partition("=")[2].split(separator)


def layouts_of(topology: Topology) -> list[Layout]:
    """Every layout of every placement, on one node and on three; and one with the tasks of its
    node in the reverse order."""
    found: list[Layout] = []
    for name in PLACEMENTS:
        for numbers in ({}, {"nodes": 3, "tasks_per_node": 2}):
            try:
                found += lay_out(name, topology, **numbers)
            except PlacementError:
                continue
    backwards = tuple(Task(node, (core,)) for node in range(2) for core in reversed(topology.cores))
    return [*found, Layout("backwards", backwards)]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@settings(max_examples=25)
@given(machine=machines())
def test_the_options_name_exactly_the_layouts_cpus(
    tmp_path_factory: pytest.TempPathFactory, launcher: str, machine: AnyMachine
) -> None:
    kept = {*machine.hardware.cpus_of_cores(machine.kept)}
    for layout in layouts_of(machine.topology):
        try:
            bound, step = started(launcher, layout, machine, tmp_path_factory.getbasetemp())
        except BindingError:
            continue
        taken: set[tuple[int, int]] = set()
        for placed, task in zip(step.tasks, layout.tasks, strict=True):
            node, cpus = int(placed.node), cpus_of(placed, bound, step)
            assert node == task.node
            assert not cpus & kept
            assert cpus <= task.hardware_threads
            assert all(cpus & set(core.cpus) for core in task.cores)
            assert not taken & {(node, cpu) for cpu in cpus}
            taken |= {(node, cpu) for cpu in cpus}


@settings(max_examples=25)
@given(machine=machines())
def test_what_each_launcher_refuses(machine: AnyMachine) -> None:
    """Nothing that it could do: each of these takes any layout with one GPU a task at most."""
    for layout in layouts_of(machine.topology):
        own = len({task.gpus for task in layout.tasks}) > 1
        for launcher in ("srun", "jsrun", "pals", "flux-run"):
            bind(layout, launcher, machine.topology)
        for launcher in ("hydra", "mpirun-intelmpi", "mvapich", "openmpi"):
            if own:
                with pytest.raises(BindingError, match=OWN_GPUS.message.split(":")[0]):
                    bind(layout, launcher, machine.topology)
            else:
                bind(layout, launcher, machine.topology)


@settings(max_examples=25)
@given(machine=machines())
def test_own_gpus_by_the_launcher_or_the_wrapper(
    tmp_path_factory: pytest.TempPathFactory, machine: AnyMachine
) -> None:
    """Those that give each task a GPU give the layout's, in rank order."""
    try:
        (layout,) = lay_out("all-gpus", machine.topology)
    except PlacementError:
        return
    wanted = [str(task.gpus[0]) for task in layout.tasks]
    for launcher in SELECT_GPUS:
        bound, step = started(launcher, layout, machine, tmp_path_factory.getbasetemp())
        if len(wanted) == 1:
            assert "CUDA_VISIBLE_DEVICES=0" in bound.task
            continue
        wrapper = launcher in ("pals", "srun") or "ALL_GPUS" in bound.options
        assert wrapper == any("VISIBLE" in word for word in bound.task)
        by_wrapper = wrapper and of_words(bound, "PLUMBLINE_CUDA_VISIBLE_DEVICES", ",")
        assert (by_wrapper or [task.given for task in step.tasks]) == wanted
