"""Placements: from a topology to the exact CPUs, memory and GPUs of every task."""

from __future__ import annotations

import functools
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


@contextmanager
def refused(code: str, name: str = "") -> Iterator[pytest.ExceptionInfo]:
    """A refusal with this code; its message begins with the placement, if one is given."""
    with pytest.raises(PlacementError) as refusal:
        yield refusal
    assert refusal.value.code == code
    assert not name or str(refusal.value).startswith(f"placement '{name}': ")


#: Placement, topology, usable CPUs -> node, CPUs and memory domain of each task.
LAYOUTS = [
    ("one-core", SMALL, None, [(0, (0,), None)]),
    ("all-cores", SMALL, None, [(0, (0, 1), None)]),
    ("on-socket", SMALL, None, [(0, (0,), None), (0, (1,), None)]),
    ("off-node", SMALL, None, [(0, (0,), None), (1, (0,), None)]),
    ("full-node", SMALL, None, [(0, (0,), None), (0, (1,), None)]),
    ("numa-0-0", SMALL, None, [(0, (0, 1), 0)]),
    ("one-core", SMALL, [1], [(0, (1,), None)]),
    ("one-socket", SMALL, None, [(0, (0, 1), None)]),
    ("one-core", LARGE, None, [(0, (0,), None)]),
    ("one-socket", LARGE, None, [(0, (0, 1, 2, 3), None)]),
    ("one-socket", LARGE, SOME, [(0, (9, 10, 11), None)]),
    ("one-socket", LARGE, [6, 15], [(0, (6, 15), None)]),
    ("all-cores", LARGE, None, [(0, (0, 1, 2, 3, 4, 5, 6, 7), None)]),
    ("on-socket", LARGE, None, [(0, (0,), None), (0, (1,), None)]),
    ("on-node", LARGE, None, [(0, (0,), None), (0, (4,), None)]),
    ("off-node", LARGE, None, [(0, (0,), None), (1, (0,), None)]),
    ("full-node", LARGE, None, [(0, (cpu,), None) for cpu in range(8)]),
    ("numa-0-0", LARGE, None, [(0, (0, 1), 0)]),
    ("numa-1-3", LARGE, None, [(0, (2, 3), 3)]),
    ("numa-3-0", LARGE, None, [(0, (6, 7), 0)]),
    ("one-core", LARGE, SOME, [(0, (9,), None)]),
    ("all-cores", LARGE, SOME, [(0, (9, 10, 11, 4), None)]),
    ("on-socket", LARGE, SOME, [(0, (9,), None), (0, (10,), None)]),
    ("on-node", LARGE, SOME, [(0, (9,), None), (0, (4,), None)]),
    ("full-node", LARGE, SOME, [(0, (cpu,), None) for cpu in (9, 10, 11, 4)]),
    ("numa-0-2", LARGE, SOME, [(0, (9,), 2)]),
    ("numa-1-1", LARGE, SOME, [(0, (10, 11), 1)]),
    # The first socket has one usable core: the pair is on the second.
    ("on-socket", LARGE, [3, 5, 6], [(0, (5,), None), (0, (6,), None)]),
    ("all-cores", IN_TURN, None, [(0, (0, 2, 1, 3), None)]),
    ("on-socket", IN_TURN, None, [(0, (0,), None), (0, (2,), None)]),
    ("on-node", IN_TURN, None, [(0, (0,), None), (0, (1,), None)]),
    ("numa-1-0", IN_TURN, None, [(0, (1, 3), 0)]),
    ("off-rack", LARGE, None, [(0, (0,), None), (1, (0,), None)]),
    ("off-rack", LARGE, SOME, [(0, (9,), None), (1, (9,), None)]),
    ("one-task-per-node", LARGE, SOME, [(0, (9,), None)]),
    ("tasks-per-node", LARGE, None, [(0, (0, 1, 2, 3, 4, 5, 6, 7), None)]),
    ("tasks-per-node", LARGE, SOME, [(0, (9, 10, 11, 4), None)]),
]


@pytest.mark.parametrize(("name", "of", "usable", "tasks"), LAYOUTS)
def test_exact_cpus(name: str, of: dict, usable: list | None, tasks: list) -> None:
    (layout,) = lay_out(name, topology(of, usable))
    assert layout.placement == name
    assert [(task.node, task.cpus, task.memory) for task in layout.tasks] == tasks
    nodes = [node for node, *_ in tasks]
    assert (layout.num_tasks, layout.num_nodes) == (len(tasks), len({*nodes}))
    assert layout.num_tasks_per_node == nodes.count(0)
    assert layout.num_cpus_per_task == max(len(cpus) for _, cpus, _ in tasks)
    # GPUs are no concern of these: none is hidden, and the launcher is not asked for any.
    assert {task.gpus for task in layout.tasks} == {()}
    assert (layout.vendor, layout.locations) == ("", ())
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


def cpus_by_node(layout: Layout) -> list[list[tuple[int, ...]]]:
    """The CPUs of the tasks of each node, in rank order."""
    nodes = [[] for _ in range(layout.num_nodes)]
    for task in layout.tasks:
        nodes[task.node].append(task.cpus)
    # All ranks of a node come before those of the next.
    assert [task.node for task in layout.tasks] == sorted(task.node for task in layout.tasks)
    return nodes


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_nodes_of_a_job_are_alike(nodes: int) -> None:
    expected = {
        "full-node": [(9,), (10,), (11,), (4,)],
        "one-task-per-node": [(9,)],
        "tasks-per-node": [(9,), (4,)],
    }
    for name, cpus in expected.items():
        (layout,) = lay_out(name, topology(LARGE, SOME), nodes, tasks_per_node=2)
        assert cpus_by_node(layout) == [cpus] * nodes
        assert (layout.num_nodes, layout.num_tasks) == (nodes, nodes * len(cpus))


#: Usable CPUs, tasks -> the CPUs of each.
SHARES = [
    (None, 1, [(0, 1, 2, 3, 4, 5, 6, 7)]),
    (None, 2, [(0, 1, 2, 3), (4, 5, 6, 7)]),
    (None, 4, [(0, 1), (2, 3), (4, 5), (6, 7)]),
    # One core of each socket is left over.
    (None, 6, [(0,), (1,), (2,), (4,), (5,), (6,)]),
    (None, 8, [(cpu,) for cpu in range(8)]),
    # Three do not divide among two sockets: of the node as a whole, and two cores are left over.
    (None, 3, [(0, 1), (2, 3), (4, 5)]),
    (None, 5, [(0,), (1,), (2,), (3,), (4,)]),
    # The smaller socket limits the share of each.
    ((0, 1, 2, 3, 4, 5), 2, [(0, 1), (4, 5)]),
    ((0, 1, 2, 3, 4, 5), 4, [(0,), (1,), (4,), (5,)]),
    # It has not enough for its half of them, and the node has.
    (SOME, 4, [(9,), (10,), (11,), (4,)]),
    ((0, 1, 2, 3, 4), 4, [(0,), (1,), (2,), (3,)]),
    # Nothing is usable on the first socket.
    ((4, 5, 14, 7), 2, [(4, 5), (7, 14)]),
]


@pytest.mark.parametrize(("usable", "tasks", "cpus"), SHARES)
def test_tasks_per_node_get_equal_shares(usable: tuple | None, tasks: int, cpus: list) -> None:
    (layout,) = lay_out("tasks-per-node", topology(LARGE, usable), tasks_per_node=tasks)
    assert cpus_by_node(layout) == [cpus]


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


def described(layouts: Iterable[Layout]) -> list:
    """What is measured, and CPUs and GPUs of each task."""
    return [
        (layout.locations, [(task.node, task.cpus, task.gpus) for task in layout.tasks])
        for layout in layouts
    ]


FIRST, SECOND = (0, 1, 2, 3), (4, 5, 6, 7)
EVERY = (0, 1, 2, 3)
#: Placement, usable CPUs -> names, CPUs and GPUs of each layout.
OF_GPUS = [
    ("per-gpu", None, [
        (("gpu0",), [(0, FIRST, (0,))]), (("gpu1",), [(0, FIRST, (1,))]),
        (("gpu2",), [(0, SECOND, (2,))]), (("gpu3",), [(0, SECOND, (3,))]),
    ]),
    ("off-socket", None, [
        (("gpu0",), [(0, SECOND, (0,))]), (("gpu1",), [(0, SECOND, (1,))]),
        (("gpu2",), [(0, FIRST, (2,))]), (("gpu3",), [(0, FIRST, (3,))]),
    ]),
    # Two GPUs are near the same cores, and share them.
    ("all-gpus", None, [
        (("gpu0", "gpu1", "gpu2", "gpu3"),
         [(0, (0, 1), (0,)), (0, (2, 3), (1,)), (0, (4, 5), (2,)), (0, (6, 7), (3,))]),
    ]),
    # Each sees all GPUs, and takes one by its local rank.
    ("gpus-on-node", None, [
        ((), [(0, (0, 1), EVERY), (0, (2, 3), EVERY), (0, (4, 5), EVERY), (0, (6, 7), EVERY)]),
    ]),
    # Both tasks see both GPUs, in the order of the pair, on two cores of the same near set.
    ("gpu-a", None, [
        (("gpu0-gpu1",), [(0, (0,), (0, 1)), (0, (1,), (0, 1))]),
        (("gpu3-gpu2",), [(0, (4,), (3, 2)), (0, (5,), (3, 2))]),
    ]),
    ("gpu-b", None, [
        (("gpu0-gpu2",), [(0, (0,), (0, 2)), (0, (4,), (0, 2))]),
        (("gpu2-gpu0",), [(0, (4,), (2, 0)), (0, (0,), (2, 0))]),
    ]),
    ("per-gpu", (3, 11, 6, 15), [
        (("gpu0",), [(0, (3,), (0,))]), (("gpu1",), [(0, (3,), (1,))]),
        (("gpu2",), [(0, (6, 15), (2,))]), (("gpu3",), [(0, (6, 15), (3,))]),
    ]),
    ("off-socket", (3, 11, 6, 15), [
        (("gpu0",), [(0, (6, 15), (0,))]), (("gpu1",), [(0, (6, 15), (1,))]),
        (("gpu2",), [(0, (3,), (2,))]), (("gpu3",), [(0, (3,), (3,))]),
    ]),
    # Three cores for two GPUs: one is left over.
    ("all-gpus", (1, 2, 3, 4, 5), [
        (("gpu0", "gpu1", "gpu2", "gpu3"),
         [(0, (1,), (0,)), (0, (2,), (1,)), (0, (4,), (2,)), (0, (5,), (3,))]),
    ]),
    ("gpu-a", (1, 2, 7, 12), [
        (("gpu0-gpu1",), [(0, (1,), (0, 1)), (0, (2,), (0, 1))]),
        (("gpu3-gpu2",), [(0, (12,), (3, 2)), (0, (7,), (3, 2))]),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "usable", "expected"), OF_GPUS)
def test_exact_gpus(name: str, usable: tuple | None, expected: list) -> None:
    layouts = lay_out(name, with_gpus(usable))
    assert described(layouts) == expected
    assert {(layout.placement, layout.vendor) for layout in layouts} == {(name, "cuda")}
    # Memory is the nearest: the kernel's own choice.
    assert {task.memory for layout in layouts for task in layout.tasks} == {None}


def test_every_gpu_of_several_nodes() -> None:
    (one,) = lay_out("gpus-on-node", with_gpus(), nodes=3)
    (layout,) = lay_out("gpus-off-node", with_gpus(), nodes=3)
    assert (one.num_nodes, layout.num_nodes, layout.num_tasks_per_node) == (1, 3, 4)
    assert [task.node for task in layout.tasks] == [0] * 4 + [1] * 4 + [2] * 4
    assert {(task.cpus, task.gpus) for task in layout.tasks} == {
        (task.cpus, task.gpus) for task in one.tasks
    }
    assert (layout.placement, layout.vendor, layout.locations) == ("gpus-off-node", "cuda", ())
    assert placement.features("gpus-off-node") == ("all-gpus", "off-node")
    assert not placement.fits_one_node("gpus-off-node", 1)


def test_host_to_host_is_on_a_socket_of_a_node_with_gpus() -> None:
    (layout,) = lay_out("host-to-host", with_gpus(SOME))
    assert described([layout]) == [((), [(0, (9,), ()), (0, (10,), ())])]
    assert (layout.placement, layout.vendor) == ("host-to-host", "")


def test_one_process_goes_through_all_by_itself() -> None:
    node, every = with_gpus(), (0, 1, 2, 3, 4, 5, 6, 7)
    for name, names in {
        "per-gpu": ("gpu0", "gpu1", "gpu2", "gpu3"),
        "gpu-a": ("gpu0-gpu1", "gpu3-gpu2"),
        "gpu-b": ("gpu0-gpu2", "gpu2-gpu0"),
    }.items():
        layouts = lay_out(name, node, one_process=True)
        assert described(layouts) == [(names, [(0, every, EVERY)])]
        assert layouts[0].vendor == "cuda"
    (matrix,) = lay_out("numa-matrix", topology(SMALL), one_process=True)
    assert described([matrix]) == [(("numa0-numa0",), [(0, (0, 1), ())])]
    assert (matrix.vendor, matrix.tasks[0].memory) == ("", None)
    # All at once is a task for each GPU, whatever the program.
    assert lay_out("all-gpus", node, one_process=True) == lay_out("all-gpus", node)


def test_a_gpu_whose_cores_are_all_near_has_no_far_ones() -> None:
    near = [{"cpus": "0-15"}, *NEAR[1:]]
    layouts = lay_out("off-socket", with_gpus(gpu_affinity=near))
    assert [layout.locations for layout in layouts] == [("gpu1",), ("gpu2",), ("gpu3",)]


def test_gpus_without_affinity_are_near_every_core() -> None:
    node = with_gpus(gpu_affinity=[])
    assert [gpu.cores for gpu in node.gpus] == [node.cores] * 4
    assert [cpus for _, ((_, cpus, _),) in described(lay_out("per-gpu", node))] == [
        tuple(range(8))
    ] * 4
    (layout,) = lay_out("all-gpus", node)
    assert [task.cpus for task in layout.tasks] == [(0, 1), (2, 3), (4, 5), (6, 7)]


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


def test_of_partition_without_a_topology() -> None:
    with refused("placement.topology-unknown"):
        Topology.of_partition({"num_cpus": 4}, GPUS, {"gpu_affinity": NEAR})


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
    assert [
        (layout.placement, layout.locations, layout.tasks[0].cpus, layout.tasks[0].memory)
        for layout in layouts
    ] == [
        ("numa-0-0", ("numa0-numa0",), (0, 1), 0),
        ("numa-0-1", ("numa0-numa8",), (0, 1), 8),
        ("numa-1-0", ("numa8-numa0",), (2, 3), 0),
        ("numa-1-1", ("numa8-numa8",), (2, 3), 8),
    ]
    (alone,) = lay_out("numa-1-0", node)
    assert (alone.tasks[0].cpus, alone.tasks[0].memory, alone.locations) == ((2, 3), 0, ())
    (one,) = lay_out("numa-matrix", node, one_process=True)
    assert one.locations == ("numa0-numa0", "numa0-numa8", "numa8-numa0", "numa8-numa8")
    assert (one.placement, one.tasks[0].cpus, one.tasks[0].memory) == (
        "numa-matrix", (0, 1, 2, 3), None,
    )  # fmt: skip


def test_a_domain_without_usable_cores_is_in_no_matrix() -> None:
    layouts = lay_out("numa-matrix", topology(LARGE, [2, 10, 7]))
    assert [(layout.placement, layout.tasks[0].cpus) for layout in layouts] == [
        ("numa-1-1", (2,)), ("numa-1-3", (2,)), ("numa-3-1", (7,)), ("numa-3-3", (7,)),
    ]  # fmt: skip


# -- the papers' systems, worked out by hand from their node diagrams ----------------------------


@functools.cache
def of_system(name: str) -> Topology:
    content = configuration.read_system(paths.ROOT / "systems" / f"{name}.yaml")
    partition = content["systems"][0]["partitions"][0]
    return Topology.of_partition(
        partition["processor"], partition.get("devices", []), partition["extras"]
    )


def by_task(name: str, placement: str, *how: int) -> list:
    """CPUs and memory of each task of the one layout."""
    (layout,) = lay_out(placement, of_system(name), *how)
    return [(task.node, task.cpus, task.memory) for task in layout.tasks]


def firsts(start: int, end: int, step: int = 1) -> tuple[int, ...]:
    """CPU numbers from one to another, the last one too."""
    return tuple(range(start, end + 1, step))


def test_summit() -> None:
    """Two POWER9 of 22 cores with four threads, the last core of each kept; six V100."""
    node = of_system("summit")
    assert len(node.cores) == 42 and node.vendor == "cuda" and len(node.gpus) == 6
    # Cores 0 to 20 are CPUs 0, 4 ... 80; cores 22 to 42 are CPUs 88, 92 ... 168.
    first, second = firsts(0, 80, 4), firsts(88, 168, 4)
    assert by_task("summit", "one-core") == [(0, (0,), None)]
    assert by_task("summit", "one-socket") == [(0, first, None)]
    assert by_task("summit", "all-cores") == [(0, first + second, None)]
    assert by_task("summit", "on-socket") == [(0, (0,), None), (0, (4,), None)]
    assert by_task("summit", "host-to-host") == [(0, (0,), None), (0, (4,), None)]
    assert by_task("summit", "on-node") == [(0, (0,), None), (0, (88,), None)]
    assert by_task("summit", "off-node") == [(0, (0,), None), (1, (0,), None)]
    assert by_task("summit", "off-rack") == [(0, (0,), None), (1, (0,), None)]
    assert by_task("summit", "one-task-per-node", 3) == [(n, (0,), None) for n in range(3)]
    assert by_task("summit", "full-node", 2) == [
        (n, (cpu,), None) for n in range(2) for cpu in first + second
    ]
    # Two tasks: a socket each. Six: seven cores each.
    assert by_task("summit", "tasks-per-node", 1, 2) == [(0, first, None), (0, second, None)]
    assert by_task("summit", "tasks-per-node", 1, 6) == [
        (0, firsts(start, start + 24, 4), None) for start in (0, 28, 56, 88, 116, 144)
    ]
    assert by_task("summit", "numa-0-1") == [(0, first, 8)]
    assert by_task("summit", "numa-1-1") == [(0, second, 8)]
    assert described(lay_out("per-gpu", node)) == [
        ((f"gpu{gpu}",), [(0, first if gpu < 3 else second, (gpu,))]) for gpu in range(6)
    ]
    assert described(lay_out("off-socket", node)) == [
        ((f"gpu{gpu}",), [(0, second if gpu < 3 else first, (gpu,))]) for gpu in range(6)
    ]
    # Three GPUs of a socket share its 21 cores.
    assert described(lay_out("all-gpus", node)) == [(
        tuple(f"gpu{gpu}" for gpu in range(6)),
        [
            (0, firsts(start, start + 24, 4), (gpu,))
            for gpu, start in enumerate((0, 28, 56, 88, 116, 144))
        ],
    )]  # fmt: skip
    near, far = lay_out("gpu-a", node), lay_out("gpu-b", node)
    assert (len(near), len(far)) == (6, 9)
    assert described(near[:1]) == [(("gpu0-gpu1",), [(0, (0,), (0, 1)), (0, (4,), (0, 1))])]
    assert described(near[5:]) == [(("gpu4-gpu5",), [(0, (88,), (4, 5)), (0, (92,), (4, 5))])]
    assert described(far[:1]) == [(("gpu0-gpu3",), [(0, (0,), (0, 3)), (0, (88,), (0, 3))])]
    assert [layout.locations for layout in lay_out("numa-matrix", node)] == [
        ("numa0-numa0",), ("numa0-numa8",), ("numa8-numa0",), ("numa8-numa8",),
    ]  # fmt: skip


def test_sierra() -> None:
    """As Summit, but the first two cores of each socket are kept, and there are four V100."""
    node = of_system("sierra")
    first, second = firsts(8, 84, 4), firsts(96, 172, 4)
    assert len(node.cores) == 40 and len(node.gpus) == 4
    assert by_task("sierra", "all-cores") == [(0, first + second, None)]
    assert by_task("sierra", "on-socket") == [(0, (8,), None), (0, (12,), None)]
    assert by_task("sierra", "on-node") == [(0, (8,), None), (0, (96,), None)]
    assert by_task("sierra", "numa-1-0") == [(0, second, 0)]
    assert by_task("sierra", "tasks-per-node", 1, 4) == [
        (0, firsts(start, start + 36, 4), None) for start in (8, 48, 96, 136)
    ]
    assert described(lay_out("off-socket", node))[3] == (("gpu3",), [(0, first, (3,))])
    # Two GPUs of a socket share its 20 cores.
    assert described(lay_out("all-gpus", node)) == [(
        ("gpu0", "gpu1", "gpu2", "gpu3"),
        [
            (0, firsts(start, start + 36, 4), (gpu,))
            for gpu, start in enumerate((8, 48, 96, 136))
        ],
    )]  # fmt: skip
    assert described(lay_out("gpu-a", node)) == [
        (("gpu0-gpu1",), [(0, (8,), (0, 1)), (0, (12,), (0, 1))]),
        (("gpu2-gpu3",), [(0, (96,), (2, 3)), (0, (100,), (2, 3))]),
    ]
    assert [layout.locations for layout in lay_out("gpu-b", node)] == [
        ("gpu0-gpu2",), ("gpu0-gpu3",), ("gpu1-gpu2",), ("gpu1-gpu3",),
    ]  # fmt: skip
    assert {layout.tasks[1].cpus for layout in lay_out("gpu-b", node)} == {(96,)}


def test_frontier() -> None:
    """One EPYC of 64 cores; the first core of each eight is kept; each die of an MI250X is a GPU
    next to eight cores of its own, which are not in the GPUs' order."""
    node = of_system("frontier")
    assert len(node.cores) == 56 and node.vendor == "rocm"
    every = tuple(cpu for cpu in range(64) if cpu % 8)
    near = [firsts(start, start + 6) for start in (49, 57, 17, 25, 1, 9, 33, 41)]
    assert by_task("frontier", "one-core") == [(0, (1,), None)]
    assert by_task("frontier", "all-cores") == [(0, every, None)]
    assert by_task("frontier", "on-socket") == [(0, (1,), None), (0, (2,), None)]
    # One socket: a task each of eight cores less the kept one.
    assert by_task("frontier", "tasks-per-node", 1, 8) == [
        (0, every[start : start + 7], None) for start in range(0, 56, 7)
    ]
    assert described(lay_out("per-gpu", node)) == [
        ((f"gpu{gpu}",), [(0, cpus, (gpu,))]) for gpu, cpus in enumerate(near)
    ]
    # No two GPUs are rivals.
    assert described(lay_out("all-gpus", node)) == [
        (tuple(f"gpu{gpu}" for gpu in range(8)),
         [(0, cpus, (gpu,)) for gpu, cpus in enumerate(near)]),
    ]  # fmt: skip
    assert described(lay_out("gpu-a", node)) == [
        (("gpu0-gpu1",), [(0, (49,), (0, 1)), (0, (57,), (0, 1))]),
        (("gpu2-gpu3",), [(0, (17,), (2, 3)), (0, (25,), (2, 3))]),
        (("gpu4-gpu5",), [(0, (1,), (4, 5)), (0, (9,), (4, 5))]),
        (("gpu6-gpu7",), [(0, (33,), (6, 7)), (0, (41,), (6, 7))]),
    ]
    assert described(lay_out("gpu-b", node)) == [
        (("gpu0-gpu6",), [(0, (49,), (0, 6)), (0, (33,), (0, 6))]),
        (("gpu2-gpu4",), [(0, (17,), (2, 4)), (0, (1,), (2, 4))]),
    ]
    assert [len(lay_out(name, node)) for name in ("gpu-c", "gpu-d")] == [6, 16]
    assert described(lay_out("gpu-d", node)[:1]) == [
        (("gpu0-gpu3",), [(0, (49,), (0, 3)), (0, (25,), (0, 3))])
    ]
    assert by_task("frontier", "numa-3-0") == [(0, near[0] + near[1], 0)]
    assert len(lay_out("numa-matrix", node)) == 16
    for name in ("on-node", "off-socket"):
        assert "socket" in placement.why_missing(name, node)


def test_perlmutter() -> None:
    """One EPYC of 64 cores in four domains, and A100s numbered against them."""
    node = of_system("perlmutter")
    near = [firsts(start, start + 15) for start in (48, 32, 16, 0)]
    assert len(node.cores) == 64 and node.vendor == "cuda"
    assert described(lay_out("per-gpu", node)) == [
        ((f"gpu{gpu}",), [(0, cpus, (gpu,))]) for gpu, cpus in enumerate(near)
    ]
    (together,) = lay_out("all-gpus", node)
    assert [task.cpus for task in together.tasks] == near
    assert [task.gpus for task in together.tasks] == [(0,), (1,), (2,), (3,)]
    assert described(lay_out("gpu-a", node)) == [
        ((f"gpu{a}-gpu{b}",), [(0, near[a][:1], (a, b)), (0, near[b][:1], (a, b))])
        for a, b in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    ]
    assert by_task("perlmutter", "tasks-per-node", 2, 4) == [
        (n, firsts(start, start + 15), None) for n in range(2) for start in (0, 16, 32, 48)
    ]
    assert by_task("perlmutter", "numa-2-3") == [(0, firsts(32, 47), 3)]
    # The second hardware threads are of the same cores, and no thread sits on them.
    (layout,) = lay_out("numa-2-3", node)
    assert layout.tasks[0].hardware_threads == {*firsts(32, 47), *firsts(96, 111)}


def test_cielo() -> None:
    """Two Magny-Cours of two dies with four cores each, a CPU a core, no GPU."""
    node = of_system("cielo")
    assert by_task("cielo", "all-cores") == [(0, firsts(0, 15), None)]
    assert by_task("cielo", "one-socket") == [(0, firsts(0, 7), None)]
    assert by_task("cielo", "on-socket") == [(0, (0,), None), (0, (1,), None)]
    assert by_task("cielo", "on-node") == [(0, (0,), None), (0, (8,), None)]
    assert by_task("cielo", "tasks-per-node", 1, 4) == [
        (0, firsts(start, start + 3), None) for start in (0, 4, 8, 12)
    ]
    matrix = lay_out("numa-matrix", node)
    assert [
        (layout.placement, layout.locations, layout.tasks[0].cpus, layout.tasks[0].memory)
        for layout in matrix
    ] == [
        (f"numa-{c}-{m}", (f"numa{c}-numa{m}",), firsts(4 * c, 4 * c + 3), m)
        for c in range(4)
        for m in range(4)
    ]
    assert (node.gpus, node.vendor) == ((), "")
    for name in ("per-gpu", "all-gpus", "gpu-a", "host-to-host"):
        assert "GPU" in placement.why_missing(name, node)


@pytest.mark.parametrize(
    "path", [path for path in configuration.system_files() if path.stem != "local"],
    ids=lambda path: path.stem,
)  # fmt: skip
def test_every_system_has_the_placements_that_it_says(path) -> None:
    for partition in configuration.read_system(path)["systems"][0]["partitions"]:
        if "topology" not in partition.get("processor", {}):
            continue
        node = Topology.of_partition(
            partition["processor"], partition.get("devices", []), partition["extras"]
        )
        for name in partition["extras"]["placements"]:
            assert placement.why_missing(name, node) is None, (partition["name"], name)


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
    alone = ["one-core", "all-cores", "one-socket"]
    common = [*alone, "on-socket", "full-node", "tasks-per-node", "numa-matrix"]
    assert placement.of_one_node(topology(SMALL)) == common
    alone += ["tasks-per-node", "numa-matrix"]
    assert placement.of_one_node(topology(SMALL, [0])) == alone
    found = placement.of_one_node(topology(LARGE))
    assert set(found) == {*common, "on-node"}
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
