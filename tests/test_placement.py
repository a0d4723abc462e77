"""Placements: from a topology to the exact CPU set of every task."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from plumbline import placement
from plumbline.placement import PlacementError, Topology, cpus_of_list, cpus_of_mask, lay_out


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
]


@pytest.mark.parametrize(("name", "of", "usable", "tasks"), LAYOUTS)
def test_exact_cpus(name: str, of: dict, usable: list | None, tasks: list) -> None:
    layout = lay_out(name, topology(of, usable))
    assert layout.placement == name
    assert [(task.node, task.cpus, task.memory) for task in layout.tasks] == tasks


@pytest.mark.parametrize(
    ("name", "tasks", "nodes", "per_node", "cpus"),
    [
        ("one-core", 1, 1, 1, 1),
        ("all-cores", 1, 1, 1, 8),
        ("on-socket", 2, 1, 2, 1),
        ("on-node", 2, 1, 2, 1),
        ("off-node", 2, 2, 1, 1),
        ("full-node", 8, 1, 8, 1),
        ("numa-1-3", 1, 1, 1, 2),
    ],
)
def test_counts(name: str, tasks: int, nodes: int, per_node: int, cpus: int) -> None:
    layout = lay_out(name, topology(LARGE))
    assert layout.num_tasks == tasks
    assert layout.num_nodes == nodes
    assert layout.num_tasks_per_node == per_node
    assert layout.num_cpus_per_task == cpus


def test_hardware_threads_are_those_of_its_cores_that_are_usable() -> None:
    (task,) = lay_out("numa-0-1", topology(LARGE)).tasks
    assert task.hardware_threads == {0, 8, 1, 9}
    first, second = lay_out("on-node", topology(LARGE, SOME)).tasks
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


#: Placement, topology, usable CPUs -> what the refusal says besides the placement's name.
REFUSED = [
    ("on-node", SMALL, None, "two sockets, this node has one"),
    ("numa-0-1", SMALL, None, "no usable NUMA domain 1"),
    ("numa-1-0", SMALL, None, "no usable NUMA domain 1"),
    ("on-socket", SMALL, [0], "two cores of one socket"),
    ("full-node", SMALL, [1], "two cores, this node has one"),
    ("on-node", LARGE, range(4), "two sockets, this node has one"),
    ("on-socket", LARGE, [0, 8, 4, 12], "two cores of one socket"),
    ("numa-4-0", LARGE, None, "no usable NUMA domain 4"),
    ("numa-0-3", LARGE, SOME, "no usable NUMA domain 3"),
    ("numa-3-0", LARGE, SOME, "no usable NUMA domain 3"),
    ("on-moon", LARGE, None, "unknown; Plumbline knows one-core, .*numa-M-N"),
    ("off-rack", LARGE, None, "no check lays it out yet"),
    ("gpu-a", LARGE, None, "no check lays it out yet"),
    ("numa-0", LARGE, None, "unknown"),
    ("numa-0-0-0", LARGE, None, "unknown"),
    ("numa--1-0", LARGE, None, "unknown"),
    ("on-node ", LARGE, None, "unknown"),
    ("", LARGE, None, "unknown"),
]


@pytest.mark.parametrize(("name", "of", "usable", "says"), REFUSED)
def test_what_a_topology_lacks(name: str, of: dict, usable: list | None, says: str) -> None:
    with pytest.raises(PlacementError, match=f"^placement '{name}': .*{says}"):
        lay_out(name, topology(of, usable))


@pytest.mark.parametrize(
    "of", [{}, {"topology": None}, {"topology": {}}, {"topology": {"cores": []}}, {"num_cpus": 4}]
)
def test_no_topology(of: dict) -> None:
    with pytest.raises(PlacementError, match="no processor topology"):
        topology(of)


@pytest.mark.parametrize("usable", [[], [2], [16, 17]])
def test_no_usable_cpu(usable: list) -> None:
    with pytest.raises(PlacementError, match="none of the node's CPUs"):
        topology(SMALL, usable)


def test_of_one_node() -> None:
    alone = ["one-core", "all-cores", "one-socket"]
    common = [*alone, "on-socket", "full-node"]
    assert placement.of_one_node(topology(SMALL)) == [*common, "numa-0-0"]
    assert placement.of_one_node(topology(SMALL, [0])) == [*alone, "numa-0-0"]
    found = placement.of_one_node(topology(LARGE))
    assert set(found) == {*common, "on-node"} | {
        f"numa-{cores}-{memory}" for cores in range(4) for memory in range(4)
    }
    assert len(found) == len(set(found))
    for name in found:
        lay_out(name, topology(LARGE))


def test_missing() -> None:
    assert placement.missing("on-node", topology(LARGE)) is None
    assert "two sockets" in placement.missing("on-node", topology(SMALL))
    assert "unknown" in placement.missing("on-moon", topology(SMALL))
    # A topology of cores does not tell.
    assert placement.missing("gpu-a", topology(SMALL)) is None


def test_known() -> None:
    assert all(placement.known(name) for name in placement.PLACEMENTS)
    assert placement.known("numa-10-2")
    assert not any(placement.known(name) for name in ("", "numa", "numa-M-N", "On-Node", "gpu"))
    assert all(name in placement.describe() for name in placement.PLACEMENTS)


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


@pytest.mark.parametrize("text", ["", "a", "0,", ",0", "0-a", "-1", "0x1", "0;1", "0-1-2"])
def test_no_list_of_cpus(text: str) -> None:
    with pytest.raises(ValueError):
        cpus_of_list(text)
