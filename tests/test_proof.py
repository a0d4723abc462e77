"""What the tasks report of themselves, and the proof that they ran where they should."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from plumbline.check import job_output
from plumbline.check.outcomes import Invalid
from plumbline.check.samples import Run, RunEnd
from plumbline.placement import proof
from plumbline.placement.placement import Layout, Task, lay_out
from plumbline.placement.proof import BindingMismatch, TaskReport, prove, read_tasks
from plumbline.placement.topology import Core, Topology

MASKS = {
    "cores": [hex(1 << i | 1 << i + 8) for i in range(8)],
    "sockets": ["0x0f0f", "0xf0f0"],
    "numa_nodes": ["0x0303", "0x0c0c", "0x3030", "0xc0c0"],
}


def topology(usable: Iterable[int] | None = None) -> Topology:
    """Two sockets of four cores, two hardware threads each; siblings are i and i + 8."""
    return Topology.from_processor({"topology": MASKS}, usable)


def only(placement: str, node: Topology) -> Layout:
    (layout,) = lay_out(placement, node)
    return layout


#: Two usable cores of each socket, by their second threads alone.
SOME = range(10, 14)


# -- what was reported -----------------------------------------------------------------------------

STDERR = """\
plumbline-task 1 node2 8-11,0 0-1 0,1 1 0 0000:07:00.0,0000:46:00.0
plumbline-host node2 kernel 6.1.0-31-amd64
plumbline-host node2 cpu_model AMD EPYC 7A53 64-Core Processor
  plumbline-task 7 is not at the start of its line
some warning
plumbline-task 0 node1 0 ? - none ? -
plumbline-host node1 governor performance
plumbline-host node1
plumbline-hosts node1 kernel 5
"""


def test_tasks_in_rank_order() -> None:
    assert read_tasks(STDERR) == [
        TaskReport(0, "node1", "0", "", "none"),
        TaskReport(1, "node2", "8-11,0", "0,1", "1", 0, "0000:46:00.0"),
    ]
    assert read_tasks("") == []


def test_host_facts() -> None:
    assert proof.host_facts(STDERR) == {
        "node2": {"kernel": "6.1.0-31-amd64", "cpu_model": "AMD EPYC 7A53 64-Core Processor"},
        "node1": {"governor": "performance"},
    }


@pytest.mark.parametrize(
    "line",
    [
        "plumbline-task ",
        "plumbline-task 0",
        "plumbline-task 0 node1 0 0 - - 0",
        "plumbline-task 0 node1 0 0 - - 0 - -",
        "plumbline-task x node1 0 0 - - 0 -",
        "plumbline-task 0 node1 x 0 - - 0 -",
        "plumbline-task 0 node1 0- 0 - - 0 plumbline-task",
        "plumbline-task 0 node1 plumbline-task 1 - - 0 -",
        "plumbline-task 0 node1 -1 0 - - 0 -",
        "plumbline-task 0 node1 1-0 0 - - 0 -",
        "plumbline-task 0 node1 0 0 - - x -",
    ],
)
def test_garbled_report(line: str) -> None:
    with refused("proof.unreadable"):
        read_tasks(f"plumbline-task 0 node1 0 0 - - 0 -\n{line}\n")


def test_garbled_range_does_not_fill_the_memory() -> None:
    """In a process of its own, whose memory is limited: a digit too many must not end the run."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29));"
        "from plumbline.placement import proof\n"
        "try: proof.read_tasks('plumbline-task 0 node1 0-99999999 0 - - 0 -')\n"
        "except proof.BindingMismatch: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- proof: ranks, nodes, CPUs -------------------------------------------------------------------


def report(*tasks: str) -> list[TaskReport]:
    """The reports of tasks, from ``RANK HOST CPUS [GIVEN VISIBLE [LOCAL_RANK [BUS_IDS]]]``; without
    a local rank, the tasks of a host are counted."""
    lines = []
    on_host: Counter[str] = Counter()
    for task in tasks:
        rank, host, cpus, *gpus = task.split()
        columns = [*gpus, *["-", "-", str(on_host[host]), "-"][len(gpus) :]]
        on_host[host] += 1
        lines.append(f"plumbline-task {rank} {host} {cpus} 0 {' '.join(columns)}\n")
    return read_tasks("".join(lines))


@contextmanager
def refused(code: str, words: str = "") -> Iterator[pytest.ExceptionInfo]:
    """A mismatch with this code, and these words in its message."""
    with pytest.raises(BindingMismatch) as refusal:
        yield refusal
    assert refusal.value.code == code
    assert words in str(refusal.value)


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

RANKS = "proof.task-count"
CPUS = "proof.wrong-cpus"
NODES = "proof.wrong-node"

#: Placement, reports -> the code of the refusal.
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
    prove(only(name, topology()), report(*tasks))


@pytest.mark.parametrize(("name", "tasks", "code"), WRONG)
def test_no_proof(name: str, tasks: list, code: str) -> None:
    with refused(code):
        prove(only(name, topology()), report(*tasks))


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
        with refused(NODES):
            prove(two_by_two(), report(*tasks))


def test_usable_threads_alone_count() -> None:
    layout = only("on-socket", topology(SOME))
    prove(layout, report("0 a 10", "1 a 11"))
    with refused(CPUS, "CPUs 2,10;"):
        prove(layout, report("0 a 2,10", "1 a 11"))


def test_a_whole_machine() -> None:
    """27,000 tasks on 4,500 nodes: one that ran elsewhere is found, and a message stays short."""
    (layout,) = lay_out("tasks-per-node", topology(), nodes=4500, tasks_per_node=6)
    ran = report(*(f"{r} n{t.node} {t.cpus[0]}" for r, t in enumerate(layout.tasks)))
    prove(layout, ran)
    with refused(CPUS, "rank 26999 on n4499 "):
        prove(layout, [*ran[:-1], TaskReport(26999, "n4499", "0")])
    with refused(RANKS, "ranks 0 to 26998 ") as missing:
        prove(layout, ran[:-1])
    assert len(str(missing.value)) < 300


# -- proof: GPUs ---------------------------------------------------------------------------------


def with_gpus(*gpus: tuple[int, ...], vendor: str = "cuda") -> Layout:
    """A task on each of the first cores, with these GPUs."""
    cores = topology().cores
    tasks = [Task(0, (core,), None, mine) for core, mine in zip(cores, gpus, strict=False)]
    return Layout("gpus", tuple(tasks), vendor=vendor)


#: GPUs of each task; what each rank's wrapper reported of them, on host a and CPUs 0, 1 ...
GPUS_RIGHT = [
    ([(2,)], ["- 2"]),
    ([(2,)], ["0,1,2,3 2"]),
    ([(2,)], ["2 2"]),
    ([(2,)], ["GPU-a,GPU-b,GPU-c 2"]),
    ([(3, 1), (3, 1)], ["- 3,1", "0,1,2,3 3,1"]),
    # Each its own.
    ([(0,), (1,)], ["0 0", "1 1"]),
    ([(0,), (1,)], ["GPU-a GPU-a", "GPU-b GPU-b"]),
    # Of a launcher that names none or all, the task wrapper chose one.
    ([(1,), (0,)], ["- 1", "- 0"]),
    ([(1,), (0,)], ["0,1 1", "0,1 0"]),
    # By bus ids: among those that they see, the task of local rank n has the n-th.
    ([(3, 1), (3, 1)], ["- 3,1 0 a,b,c,d", "- 3,1 1 a,b,c,d"]),
    ([(0,), (1,)], ["- 0 0 a,b", "- 1 1 a,b"]),
    # Two tasks are to share a GPU.
    ([(0,), (0,)], ["- 0 0 a,b", "- 0 1 a,b"]),
    # Partitions of a GPU, of which the first has the bus id.
    ([(1,), (2,)], ["1 1 0 a,?,?", "2 2 1 a,?,?"]),
]

GPU, SHARED, LOCAL = "proof.wrong-gpu", "proof.shared-gpu", "proof.wrong-local-rank"

GPUS_WRONG = [
    # Not narrowed, narrowed to others, another order, none.
    ([(2,)], ["- -"], GPU),
    ([(2,)], ["0,1,2,3 0,1,2,3"], GPU),
    ([(2,)], ["- 1"], GPU),
    ([(2,)], ["- none"], GPU),
    ([(3, 1), (3, 1)], ["- 1,3", "- 3,1"], GPU),
    ([(3, 1), (3, 1)], ["- 3,1", "- 3"], GPU),
    # The launcher kept one.
    ([(2,)], ["0,1 2"], GPU),
    ([(2,)], ["none 2"], GPU),
    ([(2,)], ["-1 2"], GPU),
    ([(2,)], ["GPU-a,GPU-b 2"], GPU),
    ([(3, 1), (3, 1)], ["0,1,2,3 3,1", "1 3,1"], GPU),
    # Own ones: several, none, swapped, narrowed to another.
    ([(0,), (1,)], ["0,1 0,1", "0,1 0,1"], GPU),
    ([(0,), (1,)], ["- -", "- -"], GPU),
    ([(0,), (1,)], ["none none", "1 1"], GPU),
    ([(0,), (1,)], ["1 1", "0 0"], GPU),
    ([(0,), (1,)], ["0 0", "0 0"], GPU),
    ([(0,), (1,)], ["0 1", "1 1"], GPU),
    ([(0,), (1,)], ["GPU-a GPU-a", "GPU-a GPU-a"], SHARED),
    ([(0,), (1,)], ["1 0", "- 1"], GPU),
    # Both would choose the first GPU that they see, or the program would choose by another rank.
    ([(3, 1), (3, 1)], ["- 3,1 0", "- 3,1 0"], LOCAL),
    ([(3, 1), (3, 1)], ["- 3,1 0", "- 3,1 ?"], LOCAL),
    ([(3, 1), (3, 1)], ["- 3,1 1", "- 3,1 0"], LOCAL),
    # What the numbers say is not what the bus ids say: the same GPU twice.
    ([(0, 1), (0, 1)], ["- 0,1 0 a,a", "- 0,1 1 a,a"], SHARED),
    ([(0,), (1,)], ["- 0 0 a,b", "- 1 1 b,a"], SHARED),
    # They are to share one, and one of them has another.
    ([(0,), (0,)], ["- 0 0 a,b", "- 1 1 a,b"], GPU),
    # Selected by the wrapper among those that the launcher did not give.
    ([(0,), (1,)], ["1,2 0", "1,2 1"], GPU),
]


#: As CUDA takes it, and as it did before driver 470.
INSTANCES = "MIG-41b3359c-e721-56e5-8009-12e5797ed514", "MIG-GPU-9e5f1c2a/3/0"


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize(
    ("gpus", "reported"), [((0,), "- {}"), ((0,), "{0} {0}"), ((0, 1), "{0},{0} 0,1")]
)
def test_a_part_of_a_gpu_is_no_proof(gpus: tuple, reported: str, name: str) -> None:
    """Of a job that was given an instance of MIG, such as by Slurm's gpu:1g.10gb."""
    with refused("topology.gpu-mode"):
        prove(with_gpus(gpus), report(f"0 a 0 {reported.format(name)}"))
    own = [f"{rank} a {rank} {name}{rank} {name}{rank}" for rank in range(2)]
    with refused("topology.gpu-mode"):
        prove(with_gpus((0,), (1,)), report(*own))


@pytest.mark.parametrize(("gpus", "reported"), GPUS_RIGHT)
def test_proof_of_gpus(gpus: list, reported: list) -> None:
    prove(
        with_gpus(*gpus), report(*(f"{rank} a {rank} {word}" for rank, word in enumerate(reported)))
    )


@pytest.mark.parametrize(("gpus", "reported", "code"), GPUS_WRONG)
def test_no_proof_of_gpus(gpus: list, reported: list, code: str) -> None:
    ran = report(*(f"{rank} a {rank} {word}" for rank, word in enumerate(reported)))
    with refused(code):
        prove(with_gpus(*gpus), ran)


@pytest.mark.parametrize("placement", ["per-gpu", "gpu-a"])
def test_one_process_goes_through_the_gpus_in_the_nodes_order(placement: str) -> None:
    """Its "gpu0" is the first that it sees."""
    devices = [{"type": "gpu", "arch": "sm_80", "num_devices": 4}]
    node = Topology.of_partition(
        {"topology": MASKS}, devices, {"pair_classes": {"gpu-a": [[0, 1], [2, 3]]}}
    )
    (layout,) = lay_out(placement, node, one_process=True)
    for right in ("- 0,1,2,3", "0,1,2,3 0,1,2,3", "3,2,1,0 0,1,2,3"):
        prove(layout, report(f"0 a 0-7 {right}"))
    for wrong in ("- -", "3,2,1,0 3,2,1,0", "0,1 0,1", "0,1 0,1,2,3"):
        with refused(GPU):
            prove(layout, report(f"0 a 0-7 {wrong}"))


def test_the_same_gpu_on_two_nodes() -> None:
    """Only one node's tasks compete for it."""
    core = topology().cores[0]
    tasks = [Task(n, (core,), None, (0,)) for n in (0, 1)]
    layout = Layout("gpus", tuple(tasks), vendor="rocm")
    prove(layout, report("0 a 0 - 0 0 c1", "1 b 0 - 0 0 c1"))
    # The rank in the whole job is no local rank.
    with refused(LOCAL, "rank 1 on b"):
        prove(layout, report("0 a 0 - 0 0", "1 b 0 - 0 1"))


def test_a_failed_run_says_that_two_tasks_had_one_gpu() -> None:
    """NCCL refuses it by default, and gives no such reason."""
    layout = with_gpus((0, 1), (0, 1))
    stderr = "".join(f"plumbline-task {rank} a {rank} 0 - 0,1 {rank} b,b\n" for rank in range(2))
    with pytest.raises(BindingMismatch) as shared:
        prove(layout, read_tasks(stderr))
    assert shared.value.code == SHARED
    with pytest.raises(Invalid) as refusal:
        job_output.check_end(Run(0, layout, "0"), {"0": RunEnd(1, 0, 1)}, stderr)
    assert refusal.value.code == "output.exit-code"
    assert str(shared.value) in str(refusal.value)
