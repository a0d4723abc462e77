"""Placements: from a topology to the exact CPUs, memory and GPUs of every task."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from plumbline.core import paths
from plumbline.placement import placement
from plumbline.placement.placement import Layout, lay_out
from plumbline.placement.topology import PlacementError, Topology, cpus_of_list, cpus_of_mask
from plumbline.site import configuration


def mask(*cpus: int) -> str:
    return hex(sum(1 << cpu for cpu in cpus))


def processor(cores: Iterable, sockets: Iterable, numa: Iterable) -> dict:
    """A processor as ReFrame describes it, from lists of CPU numbers."""
    names = {"cores": cores, "sockets": sockets, "numa_nodes": numa}
    return {
        "topology": {key: [mask(*cpus) for cpus in groups] for key, groups in names.items()},
    }


#: One socket, two cores, no hardware threads.
SMALL = processor([[0], [1]], [[0, 1]], [[0, 1]])

#: Two sockets of four cores, two hardware threads each, four NUMA domains. Linux numbers all first
#: threads, then all second ones: the sibling of CPU i is i + 8.
LARGE = processor(
    [[i, i + 8] for i in range(8)],
    [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]],
    [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]],
)

#: Two sockets whose CPUs are numbered in turn, siblings next to each other's cores.
IN_TURN = processor([[3], [1], [2], [0]], [[0, 2], [1, 3]], [[0, 2], [1, 3]])

#: Only the second threads of cores 1 to 3, and both of core 4.
SOME = (9, 10, 11, 4, 12)


def topology(of: dict, usable: Iterable[int] | None = None) -> Topology:
    return Topology.from_processor(of, usable)


def numbers(text: str) -> tuple[int, ...]:
    """``0-8/4,3`` is 0, 4, 8, 3."""
    found: list[int] = []
    for part in text.split(","):
        first, last, step = re.fullmatch(r"(\d+)(?:-(\d+)(?:/(\d+))?)?", part).groups()
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return tuple(found)


def read(text: str) -> list:
    """Layouts from ``NAME+NAME: CPUS[=MEMORY][@GPUS] ...``, a word for each task: nodes are
    separated by ``|``, layouts by ``;``."""
    layouts = []
    for part in filter(None, text.split("; ")):
        names, _, nodes = part.rpartition(": ")
        tasks = []
        for node, words in enumerate(nodes.split(" | ")):
            for word in words.split():
                cpus, memory, gpus = re.fullmatch(r"([^=@]+)(?:=(\d+))?(?:@(.+))?", word).groups()
                domain = None if memory is None else int(memory)
                tasks.append((node, numbers(cpus), domain, numbers(gpus) if gpus else ()))
        layouts.append((tuple(names.split("+")) if names else (), tasks))
    return layouts


def described(layouts: Iterable[Layout]) -> list:
    """What is measured, and node, CPUs, memory and GPUs of each task, as of :func:`read`."""
    return [
        (
            layout.locations,
            [(task.node, task.cpus, task.memory, task.gpus) for task in layout.tasks],
        )
        for layout in layouts
    ]


@contextmanager
def refused(code: str, name: str = "") -> Iterator[pytest.ExceptionInfo]:
    """A refusal with this code; its message begins with the placement, if one is given."""
    with pytest.raises(PlacementError) as refusal:
        yield refusal
    assert refusal.value.code == code
    assert not name or str(refusal.value).startswith(f"placement '{name}': ")


#: Placement, topology, usable CPUs -> the layout, as of :func:`read`.
LAYOUTS = [
    ("one-core", SMALL, None, "0"),
    ("all-cores", SMALL, None, "0-1"),
    ("on-socket", SMALL, None, "0 1"),
    ("off-node", SMALL, None, "0 | 0"),
    ("full-node", SMALL, None, "0 1"),
    ("numa-0-0", SMALL, None, "0-1=0"),
    ("one-core", SMALL, [1], "1"),
    ("one-socket", SMALL, None, "0-1"),
    ("one-core", LARGE, None, "0"),
    ("one-socket", LARGE, None, "0-3"),
    ("one-socket", LARGE, SOME, "9-11"),
    ("one-socket", LARGE, [6, 15], "6,15"),
    ("all-cores", LARGE, None, "0-7"),
    ("on-socket", LARGE, None, "0 1"),
    ("on-node", LARGE, None, "0 4"),
    ("off-node", LARGE, None, "0 | 0"),
    ("full-node", LARGE, None, "0 1 2 3 4 5 6 7"),
    ("numa-0-0", LARGE, None, "0-1=0"),
    ("numa-1-3", LARGE, None, "2-3=3"),
    ("numa-3-0", LARGE, None, "6-7=0"),
    ("one-core", LARGE, SOME, "9"),
    ("all-cores", LARGE, SOME, "9-11,4"),
    ("on-socket", LARGE, SOME, "9 10"),
    ("on-node", LARGE, SOME, "9 4"),
    ("full-node", LARGE, SOME, "9 10 11 4"),
    ("numa-0-2", LARGE, SOME, "9=2"),
    ("numa-1-1", LARGE, SOME, "10-11=1"),
    # The first socket has one usable core: the pair is on the second.
    ("on-socket", LARGE, [3, 5, 6], "5 6"),
    ("all-cores", IN_TURN, None, "0,2,1,3"),
    ("on-socket", IN_TURN, None, "0 2"),
    ("on-node", IN_TURN, None, "0 1"),
    ("numa-1-0", IN_TURN, None, "1,3=0"),
    ("off-rack", LARGE, None, "0 | 0"),
    ("off-rack", LARGE, SOME, "9 | 9"),
    ("one-task-per-node", LARGE, SOME, "9"),
    ("tasks-per-node", LARGE, None, "0-7"),
    ("tasks-per-node", LARGE, SOME, "9-11,4"),
]


@pytest.mark.parametrize(("name", "of", "usable", "expected"), LAYOUTS)
def test_exact_cpus(name: str, of: dict, usable: list | None, expected: str) -> None:
    """GPUs are no concern of these: none is hidden, and the launcher is not asked for any."""
    (layout,) = lay_out(name, topology(of, usable))
    assert described([layout]) == read(expected)
    nodes = [task.node for task in layout.tasks]
    assert (layout.placement, layout.vendor) == (name, "")
    assert (layout.num_tasks, layout.num_nodes) == (len(nodes), len({*nodes}))
    assert layout.num_tasks_per_node == nodes.count(0)
    assert layout.num_cpus_per_task == max(len(task.cpus) for task in layout.tasks)
    assert layout.racks == (2 if name == "off-rack" else 1)


def test_hardware_threads_are_those_of_its_cores_that_are_usable() -> None:
    (layout,) = lay_out("numa-0-1", topology(LARGE))
    (task,) = layout.tasks
    assert task.hardware_threads == {0, 8, 1, 9}
    (layout,) = lay_out("on-node", topology(LARGE, SOME))
    first, second = layout.tasks
    assert first.hardware_threads == {9}
    assert second.hardware_threads == {4, 12}


def test_logical_numbers_count_what_is_usable() -> None:
    cores = topology(LARGE, SOME).cores
    assert [(c.cpus, c.logical_socket, c.logical_core) for c in cores] == [
        ((9,), 0, 0),
        ((10,), 0, 1),
        ((11,), 0, 2),
        ((4, 12), 1, 0),
    ]
    # Without a usable core on the first socket, the second is number 0.
    assert [(c.socket, c.logical_socket) for c in topology(LARGE, [6, 7]).cores] == [(1, 0)] * 2


# -- placements whose number of nodes or tasks is open ------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_nodes_of_a_job_are_alike(nodes: int) -> None:
    expected = {"full-node": "9 10 11 4", "one-task-per-node": "9", "tasks-per-node": "9 4"}
    for name, tasks in expected.items():
        layouts = lay_out(name, topology(LARGE, SOME), nodes, tasks_per_node=2)
        assert described(layouts) == read(" | ".join([tasks] * nodes))
        assert (layouts[0].num_nodes, layouts[0].num_tasks) == (nodes, nodes * len(tasks.split()))


#: Usable CPUs, tasks -> the CPUs of each.
SHARES = [
    (None, 1, "0-7"),
    (None, 2, "0-3 4-7"),
    (None, 4, "0-1 2-3 4-5 6-7"),
    # One core of each socket is left over.
    (None, 6, "0 1 2 4 5 6"),
    (None, 8, "0 1 2 3 4 5 6 7"),
    # Three do not divide among two sockets: of the node as a whole, and two cores are left over.
    (None, 3, "0-1 2-3 4-5"),
    (None, 5, "0 1 2 3 4"),
    # The smaller socket limits the share of each.
    ((0, 1, 2, 3, 4, 5), 2, "0-1 4-5"),
    ((0, 1, 2, 3, 4, 5), 4, "0 1 4 5"),
    # It has not enough for its half of them, and the node has.
    (SOME, 4, "9 10 11 4"),
    ((0, 1, 2, 3, 4), 4, "0 1 2 3"),
    # Nothing is usable on the first socket.
    ((4, 5, 14, 7), 2, "4-5 7,14"),
]


@pytest.mark.parametrize(("usable", "tasks", "expected"), SHARES)
def test_tasks_per_node_get_equal_shares(usable: tuple | None, tasks: int, expected: str) -> None:
    layouts = lay_out("tasks-per-node", topology(LARGE, usable), tasks_per_node=tasks)
    assert described(layouts) == read(expected)


@pytest.mark.parametrize(
    ("usable", "tasks"), [(None, 9), (SOME, 5), ([3], 2), (None, 0), (None, -1)]
)
def test_tasks_without_a_core(usable: tuple | None, tasks: int) -> None:
    with refused("placement.too-few-cores"):
        lay_out("tasks-per-node", topology(LARGE, usable), tasks_per_node=tasks)


# -- GPUs ----------------------------------------------------------------------------------------


#: Four GPUs on the node of LARGE, two to a socket.
GPUS = [{"type": "gpu", "arch": "sm_70", "num_devices": 4}]
NEAR = [{"numa": domain, "cpus": near} for domain, near in
        ((0, "0-3,8-11"), (1, "0-3,8-11"), (2, "4-7,12-15"), (3, "4-7,12-15"))]  # fmt: skip
PAIRS = {"gpu-a": [[0, 1], [3, 2]], "gpu-b": [[0, 2], [2, 0]]}


def with_gpus(usable: Iterable[int] | None = None, **extras: object) -> Topology:
    extras = {"gpu_affinity": NEAR, "pair_classes": PAIRS} | extras
    if usable is not None:
        extras["usable_cpus"] = list(usable)
    return Topology.of_partition(LARGE, GPUS, extras)


#: Placement, usable CPUs -> the layouts.
OF_GPUS = [
    ("per-gpu", None, "gpu0: 0-3@0; gpu1: 0-3@1; gpu2: 4-7@2; gpu3: 4-7@3"),
    ("off-socket", None, "gpu0: 4-7@0; gpu1: 4-7@1; gpu2: 0-3@2; gpu3: 0-3@3"),
    # Two GPUs are near the same cores, and share them.
    ("all-gpus", None, "gpu0+gpu1+gpu2+gpu3: 0-1@0 2-3@1 4-5@2 6-7@3"),
    # Each sees all GPUs, and takes one by its local rank.
    ("gpus-on-node", None, "0-1@0-3 2-3@0-3 4-5@0-3 6-7@0-3"),
    # Both tasks see both GPUs, in the order of the pair, on two cores of the same near set.
    ("gpu-a", None, "gpu0-gpu1: 0@0,1 1@0,1; gpu3-gpu2: 4@3,2 5@3,2"),
    ("gpu-b", None, "gpu0-gpu2: 0@0,2 4@0,2; gpu2-gpu0: 4@2,0 0@2,0"),
    ("per-gpu", (3, 11, 6, 15), "gpu0: 3@0; gpu1: 3@1; gpu2: 6,15@2; gpu3: 6,15@3"),
    ("off-socket", (3, 11, 6, 15), "gpu0: 6,15@0; gpu1: 6,15@1; gpu2: 3@2; gpu3: 3@3"),
    # Three cores for two GPUs: one is left over.
    ("all-gpus", (1, 2, 3, 4, 5), "gpu0+gpu1+gpu2+gpu3: 1@0 2@1 4@2 5@3"),
    ("gpu-a", (1, 2, 7, 12), "gpu0-gpu1: 1@0,1 2@0,1; gpu3-gpu2: 12@3,2 7@3,2"),
]


@pytest.mark.parametrize(("name", "usable", "expected"), OF_GPUS)
def test_exact_gpus(name: str, usable: tuple | None, expected: str) -> None:
    """Memory is the nearest: the kernel's own choice."""
    layouts = lay_out(name, with_gpus(usable))
    assert described(layouts) == read(expected)
    assert {(layout.placement, layout.vendor) for layout in layouts} == {(name, "cuda")}


def test_every_gpu_of_several_nodes() -> None:
    tasks = "0-1@0-3 2-3@0-3 4-5@0-3 6-7@0-3"
    assert described(lay_out("gpus-on-node", with_gpus(), nodes=3)) == read(tasks)
    (layout,) = lay_out("gpus-off-node", with_gpus(), nodes=3)
    assert described([layout]) == read(" | ".join([tasks] * 3))
    assert (layout.placement, layout.vendor, layout.locations) == ("gpus-off-node", "cuda", ())
    assert placement.features("gpus-off-node") == ("all-gpus", "off-node")
    assert not placement.fits_one_node("gpus-off-node", 1)


def test_host_to_host_is_on_a_socket_of_a_node_with_gpus() -> None:
    (layout,) = lay_out("host-to-host", with_gpus(SOME))
    assert described([layout]) == read("9 10")
    assert (layout.placement, layout.vendor) == ("host-to-host", "")


def test_one_process_goes_through_all_by_itself() -> None:
    node = with_gpus()
    for name, names in {
        "per-gpu": "gpu0+gpu1+gpu2+gpu3",
        "gpu-a": "gpu0-gpu1+gpu3-gpu2",
        "gpu-b": "gpu0-gpu2+gpu2-gpu0",
    }.items():
        layouts = lay_out(name, node, one_process=True)
        assert described(layouts) == read(f"{names}: 0-7@0-3")
        assert layouts[0].vendor == "cuda"
    (matrix,) = lay_out("numa-matrix", topology(SMALL), one_process=True)
    assert described([matrix]) == read("numa0-numa0: 0-1")
    assert matrix.vendor == ""
    # All at once is a task for each GPU, whatever the program.
    assert lay_out("all-gpus", node, one_process=True) == lay_out("all-gpus", node)


def test_a_gpu_whose_cores_are_all_near_has_no_far_ones() -> None:
    near = [{"cpus": "0-15"}, *NEAR[1:]]
    layouts = lay_out("off-socket", with_gpus(gpu_affinity=near))
    assert [layout.locations for layout in layouts] == [("gpu1",), ("gpu2",), ("gpu3",)]


def test_gpus_without_affinity_are_near_every_core() -> None:
    node = with_gpus(gpu_affinity=[])
    assert [gpu.cores for gpu in node.gpus] == [node.cores] * 4
    assert described(lay_out("per-gpu", node)) == read(each_gpu(*["0-7"] * 4))
    assert described(lay_out("all-gpus", node)) == read(all_gpus("0-1", "2-3", "4-5", "6-7"))


def test_the_second_task_of_a_pair_finds_the_core_that_is_left() -> None:
    near = [{"cpus": "0,8,1,9"}, {"cpus": "0,8"}, *NEAR[2:]]
    (pair, _) = lay_out("gpu-a", with_gpus(gpu_affinity=near))
    assert [task.cpus for task in pair.tasks] == [(1,), (0,)]


@pytest.mark.parametrize(
    ("arch", "vendor"),
    [("sm_70", "cuda"), ("sm_90", "cuda"), ("gfx90a", "rocm"), ("gfx942", "rocm"), ("xe", "")],
)
def test_vendor(arch: str, vendor: str) -> None:
    devices = [{"type": "gpu", "arch": arch}]
    node = Topology.of_partition(SMALL, devices, {})
    assert (len(node.gpus), node.vendor) == (1, vendor)
    (layout,) = lay_out("per-gpu", node)
    assert layout.vendor == vendor
    # Nothing is asked of the launcher where GPUs play no part.
    assert lay_out("one-core", node)[0].vendor == ""


def test_devices_that_are_no_gpus_do_not_count() -> None:
    devices = [{"type": "nic", "num_devices": 2}, {"type": "gpu", "num_devices": 2, "arch": "gfx"}]
    assert [gpu.number for gpu in Topology.of_partition(SMALL, devices, {}).gpus] == [0, 1]
    assert Topology.of_partition(SMALL, [], {}).gpus == ()


#: Extras that contradict the node -> the code of the refusal.
CONTRADICTIONS = [
    ({"gpu_affinity": NEAR[:3]}, "placement.wrong-topology"),
    ({"gpu_affinity": [*NEAR, {}]}, "placement.wrong-topology"),
    ({"gpu_affinity": [{"cpus": "16-19"}, {}, {}, {}]}, "placement.too-few-cores"),
    # Half a core is not near.
    ({"gpu_affinity": [{}, {"cpus": "0"}, {}, {}]}, "placement.too-few-cores"),
    ({"usable_cpus": [0, 1]}, "placement.too-few-cores"),
    ({"gpu_affinity": [{}, {}, {}, {"cpus": "4-"}]}, "placement.wrong-topology"),
    ({"gpu_affinity": [{}, {}, {"cpus": ""}, {}]}, "placement.wrong-topology"),
    ({"gpu_affinity": [{"numa": 4}, {}, {}, {}]}, "placement.wrong-topology"),
    *(
        ({"pair_classes": {"gpu-a": [pair]}}, "placement.wrong-topology")
        for pair in ([0, 4], [-1, 0], [2, 2], [0, 1, 2], 0)
    ),
    ({"numa_os_numbers": [0, 8]}, "placement.wrong-topology"),
    ({"usable_cpus": [16]}, "placement.no-usable-cpu"),
]


@pytest.mark.parametrize(("extras", "code"), CONTRADICTIONS)
def test_extras_that_contradict_the_node(extras: dict, code: str) -> None:
    with refused(code):
        with_gpus(**extras)


#: Placement, extras -> the code of the refusal.
GPU_REFUSED = [
    ("gpu-c", {}, "placement.no-pair-class"),
    ("gpu-a", {"pair_classes": {}}, "placement.no-pair-class"),
    ("off-socket", {"gpu_affinity": []}, "placement.too-few-sockets"),
    ("off-socket", {"gpu_affinity": [{"cpus": "0-3,8-11"}] * 4, "usable_cpus": [0, 1]},
     "placement.too-few-sockets"),
    ("all-gpus", {"usable_cpus": [0, 4]}, "placement.too-few-cores"),
    ("gpu-a", {"usable_cpus": [0, 8, 4, 5]}, "placement.too-few-cores"),
    ("all-gpus", {"gpu_affinity": [{}, *NEAR[1:]]}, "placement.wrong-topology"),
    ("host-to-host", {"usable_cpus": [0, 4]}, "placement.too-few-cores"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "extras", "code"), GPU_REFUSED)
def test_what_a_node_with_gpus_lacks(name: str, extras: dict, code: str) -> None:
    with refused(code, name):
        lay_out(name, with_gpus(**extras))


# -- NUMA domains --------------------------------------------------------------------------------


def test_memory_goes_by_what_linux_calls_it() -> None:
    processor_ = processor([[0], [1], [2], [3]], [[0, 1], [2, 3]], [[0, 1], [2, 3]])
    node = Topology.of_partition(processor_, [], {"numa_os_numbers": [0, 8]})
    assert [node.os_number(domain) for domain in (0, 1)] == [0, 8]
    layouts = lay_out("numa-matrix", node)
    names = [f"numa-{cores}-{memory}" for cores in (0, 1) for memory in (0, 1)]
    assert [layout.placement for layout in layouts] == names
    pairs = "numa0-numa0: 0-1=0; numa0-numa8: 0-1=8; numa8-numa0: 2-3=0; numa8-numa8: 2-3=8"
    assert described(layouts) == read(pairs)
    assert described(lay_out("numa-1-0", node)) == read("2-3=0")
    (one,) = lay_out("numa-matrix", node, one_process=True)
    assert described([one]) == read("numa0-numa0+numa0-numa8+numa8-numa0+numa8-numa8: 0-3")
    assert one.placement == "numa-matrix"


def test_a_domain_without_usable_cores_is_in_no_matrix() -> None:
    layouts = lay_out("numa-matrix", topology(LARGE, [2, 10, 7]))
    assert [(layout.placement, layout.tasks[0].cpus) for layout in layouts] == [
        ("numa-1-1", (2,)), ("numa-1-3", (2,)), ("numa-3-1", (7,)), ("numa-3-3", (7,)),
    ]  # fmt: skip


# -- the papers' systems, worked out by hand from their node diagrams ----------------------------


def each_gpu(*cpus: str) -> str:
    """A layout for each GPU, on these CPUs."""
    return "; ".join(f"gpu{gpu}: {text}@{gpu}" for gpu, text in enumerate(cpus))


def all_gpus(*cpus: str) -> str:
    """One layout with a task for each GPU, on these CPUs."""
    names = "+".join(f"gpu{gpu}" for gpu in range(len(cpus)))
    return f"{names}: {' '.join(f'{text}@{gpu}' for gpu, text in enumerate(cpus))}"


#: System -> number of usable cores and of GPUs, and their vendor.
NODES = {
    "summit": (42, 6, "cuda"),
    "sierra": (40, 4, "cuda"),
    "frontier": (56, 8, "rocm"),
    "perlmutter": (64, 4, "cuda"),
    "cielo": (16, 0, ""),
}

#: The cores of Summit's sockets, those nearest to its GPUs, and likewise.
SUMMIT = ("0-80/4", "88-168/4")
SUMMIT_GPUS = ("0-24/4", "28-52/4", "56-80/4", "88-112/4", "116-140/4", "144-168/4")
SIERRA_GPUS = ("8-44/4", "48-84/4", "96-132/4", "136-172/4")
FRONTIER = ("1-7", "9-15", "17-23", "25-31", "33-39", "41-47", "49-55", "57-63")
FRONTIER_GPUS = tuple(FRONTIER[domain] for domain in (6, 7, 2, 3, 0, 1, 4, 5))
PERLMUTTER_GPUS = ("48-63", "32-47", "16-31", "0-15")

#: System, placement, numbers of nodes and tasks -> the layouts, and how many more there are.
OF_SYSTEMS = [
    # Two POWER9 of 22 cores with four threads, the last core of each kept; six V100. Cores 0 to 20
    # are CPUs 0, 4 ... 80; cores 22 to 42 are CPUs 88, 92 ... 168.
    ("summit", "one-core", (), "0", 0),
    ("summit", "one-socket", (), SUMMIT[0], 0),
    ("summit", "all-cores", (), ",".join(SUMMIT), 0),
    ("summit", "on-socket", (), "0 4", 0),
    ("summit", "host-to-host", (), "0 4", 0),
    ("summit", "on-node", (), "0 88", 0),
    ("summit", "off-node", (), "0 | 0", 0),
    ("summit", "off-rack", (), "0 | 0", 0),
    ("summit", "one-task-per-node", (3,), "0 | 0 | 0", 0),
    ("summit", "full-node", (2,),
     " | ".join([" ".join(map(str, numbers(",".join(SUMMIT))))] * 2), 0),
    # Two tasks: a socket each. Six: seven cores each.
    ("summit", "tasks-per-node", (1, 2), " ".join(SUMMIT), 0),
    ("summit", "tasks-per-node", (1, 6), " ".join(SUMMIT_GPUS), 0),
    ("summit", "numa-0-1", (), f"{SUMMIT[0]}=8", 0),
    ("summit", "numa-1-1", (), f"{SUMMIT[1]}=8", 0),
    ("summit", "numa-matrix", (), "; ".join(
        f"numa{8 * c}-numa{8 * m}: {SUMMIT[c]}={8 * m}" for c in (0, 1) for m in (0, 1)), 0),
    ("summit", "per-gpu", (), each_gpu(*SUMMIT[:1] * 3, *SUMMIT[1:] * 3), 0),
    ("summit", "off-socket", (), each_gpu(*SUMMIT[1:] * 3, *SUMMIT[:1] * 3), 0),
    # Three GPUs of a socket share its 21 cores.
    ("summit", "all-gpus", (), all_gpus(*SUMMIT_GPUS), 0),
    ("summit", "gpu-a", (), "gpu0-gpu1: 0@0,1 4@0,1; gpu4-gpu5: 88@4,5 92@4,5", 4),
    ("summit", "gpu-b", (), "gpu0-gpu3: 0@0,3 88@0,3", 8),
    # As Summit, but the first two cores of each socket are kept, and there are four V100.
    ("sierra", "all-cores", (), "8-84/4,96-172/4", 0),
    ("sierra", "on-socket", (), "8 12", 0),
    ("sierra", "on-node", (), "8 96", 0),
    ("sierra", "numa-1-0", (), "96-172/4=0", 0),
    ("sierra", "tasks-per-node", (1, 4), " ".join(SIERRA_GPUS), 0),
    ("sierra", "off-socket", (), "gpu3: 8-84/4@3", 3),
    ("sierra", "all-gpus", (), all_gpus(*SIERRA_GPUS), 0),
    ("sierra", "gpu-a", (), "gpu0-gpu1: 8@0,1 12@0,1; gpu2-gpu3: 96@2,3 100@2,3", 0),
    ("sierra", "gpu-b", (), "; ".join(
        f"gpu{a}-gpu{b}: 8@{a},{b} 96@{a},{b}" for a in (0, 1) for b in (2, 3)), 0),
    # One EPYC of 64 cores; the first core of each eight is kept; each die of an MI250X is a GPU
    # next to eight cores of its own, which are not in the GPUs' order.
    ("frontier", "one-core", (), "1", 0),
    ("frontier", "all-cores", (), ",".join(FRONTIER), 0),
    ("frontier", "on-socket", (), "1 2", 0),
    ("frontier", "tasks-per-node", (1, 8), " ".join(FRONTIER), 0),
    ("frontier", "per-gpu", (), each_gpu(*FRONTIER_GPUS), 0),
    # No two GPUs are rivals.
    ("frontier", "all-gpus", (), all_gpus(*FRONTIER_GPUS), 0),
    ("frontier", "gpu-a", (), "gpu0-gpu1: 49@0,1 57@0,1; gpu2-gpu3: 17@2,3 25@2,3; "
     "gpu4-gpu5: 1@4,5 9@4,5; gpu6-gpu7: 33@6,7 41@6,7", 0),
    ("frontier", "gpu-b", (), "gpu0-gpu6: 49@0,6 33@0,6; gpu2-gpu4: 17@2,4 1@2,4", 0),
    ("frontier", "gpu-c", (), "", 6),
    ("frontier", "gpu-d", (), "gpu0-gpu3: 49@0,3 25@0,3", 15),
    ("frontier", "numa-3-0", (), "49-55,57-63=0", 0),
    ("frontier", "numa-matrix", (), "", 16),
    # One EPYC of 64 cores in four domains, and A100s numbered against them.
    ("perlmutter", "per-gpu", (), each_gpu(*PERLMUTTER_GPUS), 0),
    ("perlmutter", "all-gpus", (), all_gpus(*PERLMUTTER_GPUS), 0),
    ("perlmutter", "gpu-a", (), "; ".join(
        f"gpu{a}-gpu{b}: {48 - 16 * a}@{a},{b} {48 - 16 * b}@{a},{b}"
        for a, b in itertools.combinations(range(4), 2)), 0),
    ("perlmutter", "tasks-per-node", (2, 4), " | ".join(["0-15 16-31 32-47 48-63"] * 2), 0),
    ("perlmutter", "numa-2-3", (), "32-47=3", 0),
    # Two Magny-Cours of two dies with four cores each, a CPU a core, no GPU.
    ("cielo", "all-cores", (), "0-15", 0),
    ("cielo", "one-socket", (), "0-7", 0),
    ("cielo", "on-socket", (), "0 1", 0),
    ("cielo", "on-node", (), "0 8", 0),
    ("cielo", "tasks-per-node", (1, 4), "0-3 4-7 8-11 12-15", 0),
    ("cielo", "numa-matrix", (), "; ".join(
        f"numa{c}-numa{m}: {4 * c}-{4 * c + 3}={m}" for c in range(4) for m in range(4)), 0),
]  # fmt: skip


@pytest.fixture(scope="module")
def of_systems() -> dict[str, Topology]:
    """The nodes of the systems' first partitions."""
    found = {}
    for name in NODES:
        content = configuration.read_system(paths.ROOT / "systems" / f"{name}.yaml")
        partition = content["systems"][0]["partitions"][0]
        found[name] = Topology.of_partition(
            partition["processor"], partition.get("devices", []), partition["extras"]
        )
    return found


@pytest.mark.parametrize(("system", "placement", "how", "expected", "more"), OF_SYSTEMS)
def test_layouts_of_a_system(of_systems, system, placement, how, expected, more) -> None:
    found = described(lay_out(placement, of_systems[system], *how))
    listed = read(expected)
    assert [layout for layout in found if layout in listed] == listed
    assert len(found) == len(listed) + more


def test_nodes_of_the_systems(of_systems: dict[str, Topology]) -> None:
    assert {
        name: (len(node.cores), len(node.gpus), node.vendor) for name, node in of_systems.items()
    } == NODES
    # The second hardware threads are of the same cores, and no thread sits on them.
    (layout,) = lay_out("numa-2-3", of_systems["perlmutter"])
    assert layout.tasks[0].hardware_threads == {*numbers("32-47,96-111")}
    for system, names, lacking in (
        ("frontier", ("on-node", "off-socket"), "socket"),
        ("cielo", ("per-gpu", "all-gpus", "gpu-a", "host-to-host"), "GPU"),
    ):
        for name in names:
            assert lacking in placement.why_missing(name, of_systems[system])


# -- any node ------------------------------------------------------------------------------------


@st.composite
def nodes(draw) -> Topology:
    """A node of up to four sockets, some of its CPUs kept, with GPUs near domains or sockets."""
    sockets, domains = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    cores, threads = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    count = sockets * domains * cores
    # Siblings are numbered last, as on x86, or next to each other, as on POWER.
    far = draw(st.booleans())
    numbered = [
        [core + thread * count if far else core * threads + thread for thread in range(threads)]
        for core in range(count)
    ]

    def grouped(size: int) -> list[list[int]]:
        return [
            [cpu for core in numbered[location : location + size] for cpu in core]
            for location in range(0, count, size)
        ]

    of = processor(numbered, grouped(domains * cores), grouped(cores))
    usable = draw(st.sets(st.integers(0, count * threads - 1), min_size=1))
    extras: dict = {"usable_cpus": sorted(usable)}
    if draw(st.booleans()):
        extras["numa_os_numbers"] = [8 * domain for domain in range(sockets * domains)]
    gpus = draw(st.integers(0, 6))
    near = draw(st.sampled_from(["all", "socket", "domain"]))
    if gpus and near != "all":
        groups = grouped(domains * cores if near == "socket" else cores)
        groups = [group for group in groups if usable & set(group)]
        extras["gpu_affinity"] = [
            {"cpus": ",".join(map(str, groups[draw(st.integers(0, len(groups) - 1))]))}
            for _ in range(gpus)
        ]
    pairs = [[a, b] for a in range(gpus) for b in range(gpus) if a != b]
    for name in ("gpu-a", "gpu-b", "gpu-c", "gpu-d"):
        chosen = draw(st.lists(st.sampled_from(pairs), unique_by=tuple)) if pairs else []
        extras.setdefault("pair_classes", {})[name] = chosen
    devices = [{"type": "gpu", "arch": "gfx90a", "num_devices": gpus}] if gpus else []
    found = Topology.of_partition(of, devices, extras)
    assert {cpu for core in found.cores for cpu in core.cpus} == usable
    return found


@pytest.mark.parametrize("one_process", [False, True])
@given(st.data())
def test_what_holds_on_any_node(one_process: bool, data: st.DataObject) -> None:
    node = data.draw(nodes())
    count, tasks = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12))
    usable = {cpu for core in node.cores for cpu in core.cpus}
    memory = {None, *map(node.os_number, node.by_numa())}
    laid_out = 0
    for name in [*placement.PLACEMENTS, "numa-0-1"]:
        try:
            layouts = lay_out(name, node, count, tasks, one_process)
        except PlacementError as err:
            assert str(err).startswith(f"placement '{name}': ")
            continue
        laid_out += 1
        assert layouts
        # One job measures all: as many tasks and nodes for each.
        assert len({(x.num_tasks, x.num_nodes, x.num_tasks_per_node) for x in layouts}) == 1
        names = [location for layout in layouts for location in layout.locations]
        assert len(names) == len(set(names))
        assert len(layouts) == 1 or all(len(layout.locations) == 1 for layout in layouts)
        for layout in layouts:
            assert [t.node for t in layout.tasks] == sorted(t.node for t in layout.tasks)
            assert layout.num_nodes * layout.num_tasks_per_node == layout.num_tasks
            per_node: dict[int, list] = {}
            for task in layout.tasks:
                assert task.cores and set(task.cores) <= set(node.cores)
                assert set(task.cpus) <= task.hardware_threads <= usable
                assert task.memory in memory
                assert set(task.gpus) <= {gpu.number for gpu in node.gpus}
                per_node.setdefault(task.node, []).append(task)
            for on_node in per_node.values():
                cores = [core for task in on_node for core in task.cores]
                assert len(cores) == len(set(cores)), (name, layout)
                # All nodes are alike.
                assert [t.cores for t in on_node] == [t.cores for t in per_node[0]]
    # Every node has one core, and what is made of it.
    assert laid_out >= 4


@given(nodes(), st.sampled_from(["gpu-a", "gpu-b", "per-gpu", "all-gpus", "off-socket"]))
def test_a_task_is_near_its_gpu_or_far_where_that_is_asked(node: Topology, name: str) -> None:
    assume(placement.why_missing(name, node) is None)
    for layout in lay_out(name, node):
        for rank, task in enumerate(layout.tasks):
            gpu = node.gpus[task.gpus[rank] if name.startswith("gpu-") else task.gpus[0]]
            if name == "off-socket":
                assert not {c.socket for c in task.cores} & {c.socket for c in gpu.cores}
            else:
                assert set(task.cores) <= set(gpu.cores)
        if name.startswith("gpu-"):
            assert len({task.gpus for task in layout.tasks}) == 1
            assert layout.locations == (f"gpu{task.gpus[0]}-gpu{task.gpus[1]}",)


# -- what a topology lacks -----------------------------------------------------------------------


#: Placement, topology, usable CPUs -> the code of the refusal.
REFUSED = [
    ("on-node", SMALL, None, "placement.too-few-sockets"),
    ("numa-0-1", SMALL, None, "placement.no-numa-domain"),
    ("numa-1-0", SMALL, None, "placement.no-numa-domain"),
    ("on-socket", SMALL, [0], "placement.too-few-cores"),
    ("full-node", SMALL, [1], "placement.too-few-cores"),
    ("on-node", LARGE, range(4), "placement.too-few-sockets"),
    ("on-socket", LARGE, [0, 8, 4, 12], "placement.too-few-cores"),
    ("numa-4-0", LARGE, None, "placement.no-numa-domain"),
    ("numa-0-3", LARGE, SOME, "placement.no-numa-domain"),
    ("numa-3-0", LARGE, SOME, "placement.no-numa-domain"),
    *(
        (name, LARGE, None, "placement.no-gpu")
        for name in ("gpu-a", "per-gpu", "all-gpus", "off-socket", "host-to-host")
    ),
    *(
        (name, LARGE, None, "placement.unknown")
        for name in ("on-moon", "gpu-e", "numa-0", "numa-0-0-0", "numa--1-0", "on-node ", "")
    ),
]


@pytest.mark.parametrize(("name", "of", "usable", "code"), REFUSED)
def test_what_a_topology_lacks(name: str, of: dict, usable: list | None, code: str) -> None:
    node = topology(of, usable)
    with refused(code, name) as refusal:
        lay_out(name, node)
    assert placement.why_missing(name, node) == str(refusal.value)


@pytest.mark.parametrize(
    "of", [{}, {"topology": None}, {"topology": {}}, {"topology": {"cores": []}}, {"num_cpus": 4}]
)
def test_no_topology(of: dict) -> None:
    with refused("placement.topology-unknown"):
        topology(of)


@pytest.mark.parametrize("usable", [[], [2], [16, 17]])
def test_no_usable_cpu(usable: list) -> None:
    with refused("placement.no-usable-cpu"):
        topology(SMALL, usable)


def test_of_one_node() -> None:
    alone = ["one-core", "all-cores"]
    common = [*alone, "on-socket", "full-node", "tasks-per-node", "numa-matrix"]
    assert placement.of_one_node(topology(SMALL)) == common
    alone += ["tasks-per-node", "numa-matrix"]
    assert placement.of_one_node(topology(SMALL, [0])) == alone
    found = placement.of_one_node(topology(LARGE))
    # With one socket, it would be the same as all-cores.
    assert set(found) == {*common, "one-socket", "on-node"}
    assert len(found) == len(set(found))
    # off-rack and the like take a second node, which one machine has not.
    assert set(placement.of_one_node(with_gpus())) == {
        *found, "host-to-host", "per-gpu", "all-gpus", "off-socket", "gpu-a", "gpu-b",
    }  # fmt: skip
    for name in placement.of_one_node(with_gpus()):
        assert {layout.num_nodes for layout in lay_out(name, with_gpus())} == {1}


def test_known() -> None:
    assert all(placement.exists(name) for name in placement.PLACEMENTS)
    assert placement.exists("numa-10-2")
    assert not any(placement.exists(name) for name in ("", "numa", "numa-M-N", "On-Node", "gpu"))
    assert "off-node" in placement.suggestion("of-node")
    assert all(name in placement.suggestion("nowhere") for name in placement.PLACEMENTS)


def test_last_level_cache_is_one_of_the_largest_level() -> None:
    of = SMALL["topology"] | {
        "caches": [
            {"type": "L1", "size": 32768, "cpusets": ["0x1", "0x2"]},
            {"type": "L3", "size": 33554432, "cpusets": ["0x1", "0x2"]},
            {"type": "L2", "size": 1048576, "cpusets": ["0x1", "0x2"]},
        ]
    }
    assert topology({"topology": of}).last_level_cache == 33554432
    assert topology(SMALL).last_level_cache == 0


#: The CPUs that share each L3 cache of two nodes of hwloc's test suite (tests/hwloc/linux).
OFFLINE = {
    "16em64t-4s2c2t-offlines": [0x1111, 0x8888, 0x0202, 0x0440],
    "offline-cpu0-node0": [0x155550, 0xAAAA0],
}


@pytest.mark.parametrize("shared", OFFLINE.values(), ids=OFFLINE)
def test_last_level_caches_of_cpus_that_are_offline(shared: list[int]) -> None:
    """Those with fewer CPUs online are an entry of their own in ReFrame 4.10."""
    online = sum(shared)
    caches = [
        {"type": "L3", "size": 4194304, "num_cpus": count,
         "cpusets": [hex(mask) for mask in shared if mask.bit_count() == count]}
        for count in {mask.bit_count() for mask in shared}
    ]  # fmt: skip
    cores = [hex(1 << cpu) for cpu in range(24) if online >> cpu & 1]
    for ordered in (caches, caches[::-1]):
        found = topology({"topology": {"cores": cores, "caches": ordered}})
        assert found.num_last_level_caches == len(shared)


def test_last_level_caches_by_their_number_of_cpus() -> None:
    caches = [{"type": "L3", "size": 33554432, "num_cpus": 2}]
    cores = [hex(1 << cpu) for cpu in range(8)]
    found = topology({"topology": {"cores": cores, "caches": caches}})
    assert found.num_last_level_caches == 4


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0x0", []), ("0x1", [0]), ("0x3", [0, 1]), ("0xf0f0", [4, 5, 6, 7, 12, 13, 14, 15])],
)
def test_cpus_of_mask(text: str, cpus: list) -> None:
    assert cpus_of_mask(text) == cpus
    assert cpus_of_mask(hex(1 << 200 | 1)) == [0, 200]


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", {0}), ("0-3", {0, 1, 2, 3}), ("0-1,8", {0, 1, 8}), ("5,3-4\n", {3, 4, 5})],
)
def test_cpus_of_list(text: str, cpus: set) -> None:
    assert cpus_of_list(text) == cpus


@pytest.mark.parametrize(
    "text", ["", "a", "0,", ",0", "0-a", "-1", "0-", "3-2", "0x1", "0;1", "0-1-2"]
)
def test_no_list_of_cpus(text: str) -> None:
    with pytest.raises(ValueError):
        cpus_of_list(text)
