"""The nodes that checks on several nodes request, night by night."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from plumbline.check import rotation
from plumbline.site import slurm

NAMES = [f"r{rack}n{number}" for rack in (1, 2) for number in range(1, 6)]


def nights(check: str, count: int, idle: list[str] = NAMES, racks: int = 1) -> list[list[str]]:
    return [
        rotation.chosen(rotation.order(NAMES, check, day), idle, 2, racks, lambda name: name[:2])
        for day in range(739_000, 739_000 + count)
    ]


@pytest.mark.parametrize("check", ["imb_p2p", "osu_p2p %test=latency", ""])
def test_every_node_is_measured_within_as_many_nights_as_there_are_pairs(check: str) -> None:
    found = nights(check, 5)
    assert {node for pair in found for node in pair} == {*NAMES}
    assert all(len({*pair}) == 2 for pair in found)
    assert found == nights(check, 5)


def test_nodes_that_are_not_idle_are_not_waited_for() -> None:
    idle = NAMES[::3]
    found = nights("imb_p2p", 10, idle)
    assert {node for pair in found for node in pair} == {*idle}
    assert nights("imb_p2p", 3, NAMES[:1]) == [[]] * 3


def test_nodes_of_two_racks() -> None:
    for pair in nights("osu_p2p", 10, racks=2):
        assert {name[:2] for name in pair} == {"r1", "r2"}
    # One rack alone is idle: the scheduler decides.
    assert nights("osu_p2p", 2, NAMES[:5], racks=2) == [[]] * 2


STATES = {"r1n1": "idle", "r1n2": "idle*", "r1n3": "mixed", "r2n1": "idle~", "r2n2": "drained",
          "r2n3": "idle"}  # fmt: skip


#: ``scontrol show topology`` of Slurm 23.02, topology/tree.
TOPOLOGY = """\
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=r1n[1-3]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=r2n[1-3]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=r1n[1-3],r2n[1-3] Switches=s[1-2]
"""


def answer(monkeypatch, topology: str = "") -> None:
    """Let Slurm's commands print the nodes and a topology."""
    lines = [f"{name}|q|1|2|1|100|(null)|a|{state}|none" for name, state in STATES.items()]
    nodes = "\n".join([*lines, "x|other"])
    slurm.leaf_switches.cache_clear()
    monkeypatch.setattr(
        slurm, "capture", lambda command, *_, **__: nodes if command == "sinfo" else topology
    )


def job(
    monkeypatch,
    racks: int = 1,
    options: tuple = (),
    access: tuple = (),
    scheduler: str = "slurm",
    topology: str = "",
    **extras,
):
    answer(monkeypatch, topology)
    partition = SimpleNamespace(
        scheduler=SimpleNamespace(registered_name=scheduler),
        access=["--partition=q", *access],
        extras=extras,
    )
    of = SimpleNamespace(options=[], cli_options=[*options], pin_nodes=[])
    return rotation.of_job(partition, of, 2, racks, "imb_p2p")


def test_a_job_requests_idle_nodes_if_its_partition_says_so(monkeypatch) -> None:
    found = job(monkeypatch, rotate_nodes=True)
    assert len(found) == 2 and {*found} < {"r1n1", "r2n1", "r2n3"}
    assert job(monkeypatch) == job(monkeypatch, scheduler="pbs", rotate_nodes=True) == []


def test_two_racks_are_requested_anyway(monkeypatch) -> None:
    found = job(monkeypatch, racks=2, rack_pattern=r"(r\d)n")
    assert {name[:2] for name in found} == {"r1", "r2"}


def test_racks_are_the_leaf_switches_of_slurm_without_a_pattern(monkeypatch) -> None:
    found = job(monkeypatch, racks=2, topology=TOPOLOGY)
    assert {name[:2] for name in found} == {"r1", "r2"}
    assert job(monkeypatch, racks=2) == []


@pytest.mark.parametrize(("topology", "scheduler", "known"), [
    (TOPOLOGY, "slurm", True), (TOPOLOGY, "squeue", True), (TOPOLOGY, "pbs", False),
    # One leaf switch has no other rack.
    (TOPOLOGY.splitlines()[0], "slurm", False), ("", "slurm", False),
])  # fmt: skip
def test_whether_racks_are_known(monkeypatch, topology: str, scheduler: str, known: bool) -> None:
    answer(monkeypatch, topology)
    name = SimpleNamespace(registered_name=scheduler)
    partition = SimpleNamespace(scheduler=name, extras={})
    assert rotation.racks_known(partition) == known
    # The kernel's name has a domain, Slurm's has none.
    found = rotation.racks_of(partition, ["r1n1.site.org", "r2n1", "login"])
    if known:
        assert found == {"r1n1.site.org": "s1", "r2n1": "s2"}
    assert rotation.racks_known(SimpleNamespace(scheduler=name, extras={"rack_pattern": "(r.)"}))


@pytest.mark.parametrize("option", [
    "nodelist=r1n1", "#SBATCH --nodelist=r1n1", "-w r1n1", "exclude=r1n1", "reservation=maint",
    "switches=1", "#SBATCH --switches=1@5",
])  # fmt: skip
def test_the_users_own_choice_counts(monkeypatch, option: str) -> None:
    assert job(monkeypatch, options=(option,), rotate_nodes=True) == []
    assert job(monkeypatch, access=("--account=x", option), rotate_nodes=True) == []
    assert job(monkeypatch, options=("account=x", "wckey=y"), rotate_nodes=True) != []


def test_without_an_answer_the_scheduler_chooses(monkeypatch) -> None:
    partition = SimpleNamespace(
        scheduler=SimpleNamespace(registered_name="slurm"),
        access=["--partition=q"],
        extras={"rotate_nodes": True},
    )
    monkeypatch.setattr(slurm, "capture", lambda *_, **__: None)
    of = SimpleNamespace(options=[], cli_options=[], pin_nodes=[])
    assert rotation.of_job(partition, of, 2, 1, "imb_p2p") == []
