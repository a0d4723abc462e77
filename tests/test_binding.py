"""Binding: a launcher's exact options, and the proof that the tasks ran where they should."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from plumbline import binding, paths
from plumbline.binding import Binding, BindingError, BindingMismatch, Seen, bind, prove, seen
from plumbline.placement import Core, Layout, Task, Topology, lay_out

TASK = Path(binding.__file__).with_name("task.sh")
MPIEXEC = paths.tools() / "mpich" / "bin" / "mpiexec"


def topology(usable: Iterable[int] | None = None) -> Topology:
    """Two sockets of four cores, two hardware threads each; siblings are i and i + 8."""
    masks = {
        "cores": [hex(1 << i | 1 << i + 8) for i in range(8)],
        "sockets": ["0x0f0f", "0xf0f0"],
        "numa_nodes": ["0x0303", "0x0c0c", "0x3030", "0xc0c0"],
    }
    return Topology.from_processor({"topology": masks}, usable)


#: Two usable cores of each socket, by their second threads alone.
SOME = range(10, 14)


# -- options -------------------------------------------------------------------------------------

#: Launcher, placement, usable CPUs -> options.
OPTIONS = [
    ("local", "one-core", None, "taskset -c 0"),
    ("local", "one-core", SOME, "taskset -c 10"),
    ("local", "all-cores", None, "taskset -c 0,1,2,3,4,5,6,7"),
    ("local", "one-socket", None, "taskset -c 0,1,2,3"),
    ("local", "numa-1-3", None, "numactl --physcpubind=2,3 --membind=3"),
    ("hydra", "one-core", None, "-bind-to user:0"),
    ("hydra", "all-cores", None, "-bind-to user:0+1+2+3+4+5+6+7"),
    ("hydra", "on-socket", None, "-bind-to user:0,1"),
    ("hydra", "on-node", None, "-bind-to user:0,4"),
    ("hydra", "on-node", SOME, "-bind-to user:10,12"),
    ("hydra", "off-node", None, "-bind-to user:0 -ppn 1"),
    ("hydra", "full-node", None, "-bind-to user:0,1,2,3,4,5,6,7"),
    ("mpiexec", "on-socket", None, "-bind-to user:0,1"),
    ("mpiexec", "off-node", None, "-bind-to user:0 -ppn 1"),
    ("srun", "one-core", None, "--cpu-bind=mask_cpu:0x1 --distribution=block"),
    ("srun", "all-cores", None, "--cpu-bind=mask_cpu:0xff --distribution=block"),
    ("srun", "on-socket", None, "--cpu-bind=mask_cpu:0x1,0x2 --distribution=block"),
    ("srun", "on-node", SOME, "--cpu-bind=mask_cpu:0x400,0x1000 --distribution=block"),
    ("srun", "off-node", None, "--cpu-bind=mask_cpu:0x1 --distribution=block"),
]


@pytest.mark.parametrize(("launcher", "name", "usable", "options"), OPTIONS)
def test_options(launcher: str, name: str, usable: Iterable[int] | None, options: str) -> None:
    assert bind(lay_out(name, topology(usable)), launcher) == Binding(tuple(options.split()))


#: Placement, usable CPUs -> rank file.
RANK_FILES = [
    ("one-core", None, ["0:0"]),
    ("all-cores", None, ["0:0,1,2,3;1:0,1,2,3"]),
    ("on-socket", None, ["0:0", "0:1"]),
    ("on-node", None, ["0:0", "1:0"]),
    ("full-node", None, [f"{socket}:{core}" for socket in (0, 1) for core in range(4)]),
    ("full-node", SOME, ["0:0", "0:1", "1:0", "1:1"]),
    # All that may be used is on the second socket: the only one that Open MPI counts.
    ("on-socket", [5, 14], ["0:0", "0:1"]),
]


@pytest.mark.parametrize("launcher", ["openmpi", "mpirun-openmpi"])
@pytest.mark.parametrize(("name", "usable", "slots"), RANK_FILES)
def test_rank_file(launcher: str, name: str, usable: Iterable[int] | None, slots: list) -> None:
    text = "".join(f"rank {rank}=localhost slot={slot}\n" for rank, slot in enumerate(slots))
    expected = Binding(("--rankfile", "rankfile"), files={"rankfile": text})
    assert bind(lay_out(name, topology(usable)), launcher) == expected


NO_MEMORY = "cannot place memory"

#: Launcher, placement -> what the refusal says.
UNBOUND = [
    ("local", "on-socket", "starts one task"),
    ("local", "off-node", "starts one task"),
    ("local", "full-node", "starts one task"),
    ("openmpi", "off-node", "one node only"),
    ("mpirun-openmpi", "off-node", "one node only"),
    *((name, "numa-0-0", NO_MEMORY) for name in binding.LAUNCHERS if name != "local"),
]


@pytest.mark.parametrize(("launcher", "name", "says"), UNBOUND)
def test_what_a_launcher_cannot_do(launcher: str, name: str, says: str) -> None:
    with pytest.raises(BindingError, match=f"^launcher '{launcher}', placement '{name}': .*{says}"):
        bind(lay_out(name, topology()), launcher)


def test_unknown_launcher() -> None:
    with pytest.raises(BindingError, match=r"'jsrun'.*has local, hydra"):
        bind(lay_out("one-core", topology()), "jsrun")


# -- what was seen -------------------------------------------------------------------------------

STDERR = """\
plumbline-task 1 node2 8-11,0 0-1
plumbline-host node2 kernel 6.1.0-31-amd64
plumbline-host node2 cpu_model AMD EPYC 7A53 64-Core Processor
  plumbline-task 7 is not at the start of its line
some warning
plumbline-task 0 node1 0 ?
plumbline-host node1 governor performance
plumbline-host node1
plumbline-hosts node1 kernel 5
"""


def test_seen_in_rank_order() -> None:
    assert seen(STDERR) == [Seen(0, "node1", "0"), Seen(1, "node2", "8-11,0")]
    assert seen("") == []


def test_host_facts() -> None:
    assert binding.host_facts(STDERR) == {
        "node2": {"kernel": "6.1.0-31-amd64", "cpu_model": "AMD EPYC 7A53 64-Core Processor"},
        "node1": {"governor": "performance"},
    }


@pytest.mark.parametrize(
    "line",
    [
        "plumbline-task ",
        "plumbline-task 0",
        "plumbline-task 0 node1 0",
        "plumbline-task 0 node1 0 0 0",
        "plumbline-task x node1 0 0",
        "plumbline-task 0 node1 x 0",
        "plumbline-task 0 node1 0- 0 plumbline-task",
        "plumbline-task 0 node1 plumbline-task 1",
        "plumbline-task 0 node1 -1 0",
        "plumbline-task 0 node1 1-0 0",
    ],
)
def test_garbled_report(line: str) -> None:
    with pytest.raises(BindingMismatch, match="cannot be read"):
        seen(f"plumbline-task 0 node1 0 0\n{line}\n")


def test_garbled_range_does_not_fill_the_memory() -> None:
    """In a process of its own, whose memory is limited: a digit too many must not end the run."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29));"
        "from plumbline import binding\n"
        "try: binding.seen('plumbline-task 0 node1 0-99999999 0')\n"
        "except binding.BindingMismatch: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- proof ---------------------------------------------------------------------------------------


def report(*tasks: str) -> list[Seen]:
    """What was seen, from ``RANK HOST CPUS``."""
    return seen("".join(f"plumbline-task {task} 0\n" for task in tasks))


#: Placement -> what proves it.
RIGHT = [
    ("one-core", ["0 a 0"]),
    ("one-core", ["0 a 8"]),
    ("one-core", ["0 a 0,8"]),
    ("all-cores", ["0 a 0-15"]),
    ("all-cores", ["0 a 0-7"]),
    ("all-cores", ["0 a 8-11,4-7"]),
    ("on-socket", ["0 a 0", "1 a 1,9"]),
    ("on-node", ["1 a 4", "0 a 0"]),
    ("off-node", ["0 b 0", "1 a 0,8"]),
    ("full-node", [f"{cpu} a {cpu}" for cpu in range(8)]),
    ("numa-1-3", ["0 a 2-3,10-11"]),
]

RANKS = "does the launcher belong"
CPUS = "may run on CPUs"
NODES = "of the job"

#: Placement, what was seen -> what the refusal says.
WRONG = [
    # Ranks: none, too few, too many, twice, N single ones.
    ("one-core", [], RANKS),
    ("on-socket", ["0 a 0"], RANKS),
    ("on-socket", ["1 a 1"], RANKS),
    ("on-socket", ["0 a 0", "0 a 1"], RANKS),
    ("on-socket", ["0 a 0", "2 a 1"], RANKS),
    ("on-socket", ["1 a 0", "2 a 1"], RANKS),
    ("on-socket", ["0 a 0", "1 a 1", "2 a 2"], RANKS),
    ("one-core", ["-1 a 0"], RANKS),
    ("off-node", ["0 a 0", "0 b 0"], RANKS),
    # CPUs: wrong, swapped, too wide, too narrow, none.
    ("one-core", ["0 a 1"], CPUS),
    ("one-core", ["0 a 0-1"], CPUS),
    ("one-core", ["0 a 0-15"], CPUS),
    ("one-core", ["0 a 0,8,9"], CPUS),
    ("on-socket", ["0 a 1", "1 a 0"], CPUS),
    ("on-socket", ["0 a 0", "1 a 0"], CPUS),
    ("on-socket", ["0 a 0-7", "1 a 0-7"], CPUS),
    ("on-node", ["0 a 0", "1 a 1"], CPUS),
    ("all-cores", ["0 a 0"], CPUS),
    ("all-cores", ["0 a 0-6"], CPUS),
    ("all-cores", ["0 a 0-6,8-14"], CPUS),
    ("all-cores", ["0 a 0-16"], CPUS),
    ("numa-1-3", ["0 a 0-1"], CPUS),
    ("numa-1-3", ["0 a 2"], CPUS),
    ("off-node", ["0 a 0", "1 b 1"], CPUS),
    # Nodes: one for two, two for one.
    ("off-node", ["0 a 0", "1 a 0"], NODES),
    ("on-socket", ["0 a 0", "1 b 1"], NODES),
    ("on-node", ["0 a 0", "1 b 4"], NODES),
]


@pytest.mark.parametrize(("name", "tasks"), RIGHT)
def test_proof(name: str, tasks: list) -> None:
    prove(lay_out(name, topology()), report(*tasks))


@pytest.mark.parametrize(("name", "tasks", "says"), WRONG)
def test_no_proof(name: str, tasks: list, says: str) -> None:
    with pytest.raises(BindingMismatch, match=says):
        prove(lay_out(name, topology()), report(*tasks))


def two_by_two() -> Layout:
    cores = [Core((0, 8), 0, 0), Core((1, 9), 0, 0)]
    return Layout("two-by-two", tuple(Task(node, (core,)) for node in (0, 1) for core in cores))


def test_ranks_fill_the_nodes_in_turn() -> None:
    prove(two_by_two(), report("0 b 0", "1 b 1", "2 a 0", "3 a 1"))
    for tasks in (
        ["0 a 0", "1 b 0", "2 a 1", "3 b 1"],
        ["0 a 0", "1 b 1", "2 a 0", "3 b 1"],
        ["0 a 0", "1 a 1", "2 b 0", "3 c 1"],
        ["0 a 0", "1 a 1", "2 b 0", "3 a 1"],
    ):
        with pytest.raises(BindingMismatch, match=NODES):
            prove(two_by_two(), report(*tasks))


def test_usable_threads_alone_count() -> None:
    layout = lay_out("on-socket", topology(SOME))
    prove(layout, report("0 a 10", "1 a 11"))
    with pytest.raises(BindingMismatch, match=r"CPUs 2,10; placement 'on-socket' puts it on 10"):
        prove(layout, report("0 a 2,10", "1 a 11"))


# -- task.sh, for real ---------------------------------------------------------------------------


def here(most: int = 4) -> Topology:
    """The first CPUs that this process may use, each as a core of its own."""
    cpus = sorted(os.sched_getaffinity(0))[:most]
    masks = {
        "cores": [hex(1 << cpu) for cpu in cpus],
        "sockets": [hex(sum(1 << cpu for cpu in cpus))],
    }
    return Topology.from_processor({"topology": masks})


def run_task(*command: object, **env: str) -> subprocess.CompletedProcess:
    ranks = ("OMPI_", "PMI", "PALS_", "ALPS_", "FLUX_", "SLURM_", "HYDRA_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ranks)}
    words = [str(word) for word in command]
    return subprocess.run(words, env=kept | env, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not shutil.which("taskset"), reason="taskset is not installed")
@pytest.mark.parametrize("name", ["one-core", "all-cores"])
def test_taskset_binds_what_task_sh_sees(name: str) -> None:
    layout = lay_out(name, here())
    done = run_task(*bind(layout, "local").options, "sh", TASK, 1, "echo", "two  words")
    assert (done.returncode, done.stdout) == (0, "two  words\n")
    prove(layout, seen(done.stderr))
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not shutil.which("taskset"), reason="taskset is not installed")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU alone may be used")
def test_a_task_that_is_not_bound_is_seen() -> None:
    done = run_task("sh", TASK, 1, "true")
    with pytest.raises(BindingMismatch, match=CPUS):
        prove(lay_out("one-core", here()), seen(done.stderr))


@pytest.mark.skipif(not MPIEXEC.is_file(), reason="MPICH is not among the tools: make setup")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU alone may be used")
@pytest.mark.parametrize("name", ["on-socket", "full-node"])
def test_hydra_binds_what_task_sh_sees(name: str) -> None:
    layout = lay_out(name, here())
    # A batch script's own rank is in the environment under every launcher.
    command = [MPIEXEC, "-n", layout.num_tasks, *bind(layout, "hydra").options]
    done = run_task(*command, "sh", TASK, 0, "true", SLURM_PROCID="0")
    assert done.returncode == 0, done.stderr
    prove(layout, seen(done.stderr))
    (facts,) = binding.host_facts(done.stderr).values()
    assert facts["kernel"] == platform.release()


@pytest.mark.skipif(not MPIEXEC.is_file(), reason="MPICH is not among the tools: make setup")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU alone may be used")
def test_hydra_that_binds_elsewhere_is_seen() -> None:
    layout = lay_out("on-socket", here())
    first, second = (task.cpus[0] for task in layout.tasks)
    command = [MPIEXEC, "-n", 2, "-bind-to", f"user:{second},{first}"]
    done = run_task(*command, "sh", TASK, 1, "true")
    with pytest.raises(BindingMismatch, match=CPUS):
        prove(layout, seen(done.stderr))


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({}, 0),
        ({"SLURM_PROCID": "3"}, 3),
        ({"PMI_RANK": "2", "SLURM_PROCID": "0"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "SLURM_PROCID": "0"}, 1),
        ({"PALS_RANKID": "4"}, 4),
        ({"FLUX_TASK_RANK": "5"}, 5),
    ],
)
def test_rank_is_the_launchers(env: dict, rank: int) -> None:
    (task,) = seen(run_task("sh", TASK, 1, "true", **env).stderr)
    assert task.rank == rank
    assert task.host == platform.node()


def test_the_task_becomes_its_program() -> None:
    code = "import os, sys; print(os.getppid()); sys.exit(7)"
    done = run_task("sh", TASK, 0, sys.executable, "-c", code)
    assert done.returncode == 7
    # No shell between the launcher and the program.
    assert int(done.stdout) == os.getpid()
    facts = binding.host_facts(done.stderr)
    assert facts[platform.node()]["kernel"] == platform.release()
    assert run_task("sh", TASK, 0, "plumbline-no-such-program").returncode == 127
