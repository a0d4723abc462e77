"""Screening of the settings of nodes: those that differ from their peers."""

from __future__ import annotations

import json

import pytest
from examples import prints, shown
from fleet import Fleet
from plumbline.analysis.screen import settings
from plumbline.check.record import Record
from plumbline.core.text import WIDTH
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.output.report.slow_nodes import of_system
from plumbline.output.report.status import SystemState
from records import case, dumps, figure, plan, write
from screened import command, measured, remember

NETWORK = {"net.fab0.mtu": "9000", "net.fab0.speed": "200000", "net.fab0.state": "up",
           "net.eth1.mtu": "1500", "net.eth1.state": "down", "kernel": "5.14",
           "gpu.0000:83:00.0.power_limit": "700", "gpu.0000:83:00.0.firmware": "96.00",
           "gpu.0000:83:00.0.compute_mode": "Default",
           "cpu.max_frequency": "3500000", "cpu.quota": "none"}  # fmt: skip


@pytest.mark.parametrize("changed, flagged", [
    ({"net.fab0.mtu": "576"}, True),
    ({"net.fab0.speed": "100000", "net.fab0.state": "down"}, True),
    ({fact: None for fact in NETWORK if "fab0" in fact}, True),
    ({"gpu.0000:83:00.0.power_limit": "500"}, True),
    # One of its GPUs is lost.
    ({"gpu.0000:83:00.0.power_limit": None, "gpu.0000:83:00.0.compute_mode": None,
      "gpu.0000:84:00.0.ecc": "Enabled"}, True),
    ({"gpu.0000:83:00.0.compute_mode": "Exclusive_Process"}, True),
    # Its driver is older and does not print it.
    ({"gpu.0000:83:00.0.compute_mode": None}, False),
    # No case on GPUs ran there.
    ({fact: None for fact in NETWORK if "gpu" in fact}, False),
    ({"cpu.max_frequency": "2000000"}, True),
    ({"cpu.quota": "50 %"}, True),
    # A GPU that was replaced.
    ({"gpu.0000:83:00.0.firmware": "96.01"}, False),
    # The others have none, or do not use theirs; and what is no setting of an interface.
    ({"net.veth1a2b.mtu": "1500", "net.eth1.state": "up", "kernel": "6.1"}, False),
])  # fmt: skip
def test_a_node_whose_interfaces_are_not_set_as_those_of_its_peers(
    tmp_path, changed: dict, flagged: bool
):
    fleet = Fleet(66, nodes=8, nights=1, noise=0.01)
    remember(tmp_path, fleet)
    (path,) = tmp_path.glob("sessions/*/records.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for fields in lines:
        (node,) = fields["nodes"]
        facts = NETWORK | (changed if node == "n003" else {})
        fields["hosts"] = {node: {name: v for name, v in facts.items() if v is not None}}
    path.write_text("".join(dumps(fields) + "\n" for fields in lines))
    done = command("--from", tmp_path, "--format", "json")
    found = [(entry["kind"], entry["node"], entry["drain"]) for entry in json.loads(done.out)]
    assert found == [("setting", "n003", False)] * flagged
    assert done.code == flagged, done.output
    text = command("--from", tmp_path).out
    assert any(name in text for name in ("fab0.", "gpu.0000:83", "cpu.")) == flagged
    if changed == {"net.fab0.mtu": "576"}:
        assert prints(text, shown("network.md", "fab0.mtu is 576")), text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_setting_that_the_peers_do_not_agree_on_is_not_judged():
    """A partition of two kinds of nodes, or of few."""

    def of(*mtus: str) -> list:
        hosts = {f"n{i}": {"net.fab0.mtu": mtu} for i, mtu in enumerate(mtus)}
        return settings.differing([Record.model_validate(case("s", "2026-11-01T00:00:00Z",
                                                              hosts=hosts))], "1")  # fmt: skip

    assert [flag.name for flag in of("9000", "9000", "9000", "9000", "576")] == [("n4",)]
    assert of("9000", "9000", "9000", "1500", "1500") == of("9000", "9000", "9000", "576") == []


def test_the_settings_of_a_night_are_not_those_of_all_nights(tmp_path):
    """Its first session has no figure that is screened, and another node had another MTU once."""
    made = remember(tmp_path, Fleet(67, nodes=8, nights=2, noise=0.01))
    for session in made:
        path = tmp_path / "sessions" / session / "records.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for fields in lines:
            (node,) = fields["nodes"]
            fields["hosts"] = {node: {"net.fab0.mtu": "576" if node == "n003" else "9000"}}
        kept = [fields for fields in lines if session == made[0] or fields["nodes"] != ["n003"]]
        path.write_text("".join(dumps(fields) + "\n" for fields in kept))
    foms = [figure(1.0, metric="seconds", better="neither")]
    earlier = made[1].replace("T22", "T21")
    write(tmp_path, [measured(earlier, ["n001"], foms)], plan(earlier, [], system="big"))
    done = command("--from", tmp_path, "--format", "json")
    assert (done.code, json.loads(done.out)) == (0, []), done.output
    with History(tmp_path) as history:
        state = SystemState("big", history.sessions()[-1], [], None, [])
        assert of_system(history, state, Selection()).now == []


def test_an_accepted_setting_is_no_difference_and_no_peer(monkeypatch):
    """A quarter of the nodes, or more, is of another kind; one of them, and one other, is wrong."""
    accepted = {"cpu": {"accepted_settings": ["fab0.mtu=1500", "eth*=missing"]}}
    monkeypatch.setattr(settings, "extras_of", {"hill": accepted}.__getitem__)
    mtus = ["9000"] * 4 + ["1500"] * 4 + ["576"]
    hosts = {f"n{i}": {"net.fab0.mtu": mtu, "net.eth0.mtu": "1500"} for i, mtu in enumerate(mtus)}
    del hosts["n4"]["net.eth0.mtu"]
    record = Record.model_validate(case("s", "2026-11-01T00:00:00Z", hosts=hosts))
    (flag,) = settings.differing([record], "1")
    assert (flag.name, len(flag.evidence)) == (("n8",), 1)
    accepted["cpu"] = {}
    assert [one.name for one in settings.differing([record], "1")] == [("n4",)]
