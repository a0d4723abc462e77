"""The proving ground itself, a healthy night on it, and some of its faults; `make ground-all` runs
them all."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import records_of
from ground import Ground, faults, ground
from ground.limits import ROOT, Limits
from ground.machine import Machine
from ground.site import CONGESTION, Site

# -- as declared ---------------------------------------------------------------------------------


def test_a_machine_is_declared_as_data():
    machine = Machine.declared(racks=2, nodes=3, link=70)
    assert machine.switches == {"r1": ["r1n1", "r1n2", "r1n3"], "r2": ["r2n1", "r2n2", "r2n3"]}
    assert machine.rates() == dict.fromkeys(machine.names, 70) | dict.fromkeys(
        ("r1", "r2"), Machine.declared().uplink
    )
    assert machine.topology().splitlines() == [
        "SwitchName=r1 Nodes=r1n1,r1n2,r1n3",
        "SwitchName=r2 Nodes=r2n1,r2n2,r2n3",
        "SwitchName=spine Switches=r1,r2",
    ]
    # One rack has no uplink.
    assert {*Machine.declared(racks=1).rates()} == {*Machine.declared(racks=1).names}


@pytest.mark.parametrize("changes", [{"racks": 0}, {"nodes": 200}, {"speed": 1}])
def test_no_machine(changes: dict):
    with pytest.raises((ValueError, TypeError)):
        Machine.declared(**changes)


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("version", [1, 2])
def test_limits(tmp_path: Path, version: int):
    """What is written to the control groups of either version."""
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory")
    else:
        (tmp_path / "cpu").mkdir()
        (tmp_path / "blkio").mkdir()
    assert not Limits.missing(tmp_path)
    limits = Limits("ground", tmp_path)
    entered = limits.create("r1n1")
    limits.cpu("r1n1", 25)
    limits.disk("r1n1", "7:3", 20)
    found = files_of(tmp_path)
    if version == 2:
        assert entered == [tmp_path / "ground/r1n1/cgroup.procs"]
        assert found["ground/r1n1/cpu.max"] == "2500 10000"
        assert found["ground/r1n1/io.max"] == "7:3 rbps=20000000 wbps=20000000"
        assert found["ground/cgroup.subtree_control"] == "+cpu +io"
    else:
        assert entered == [tmp_path / k / "ground/r1n1/cgroup.procs" for k in ("cpu", "blkio")]
        assert found["cpu/ground/r1n1/cpu.cfs_quota_us"] == "2500"
        throttle = "blkio/ground/r1n1/blkio.throttle"
        assert found[f"{throttle}.read_bps_device"] == "7:3 20000000"
        assert found[f"{throttle}.write_bps_device"] == "7:3 20000000"
    limits.create("login", first=False)
    weights = {name: text for name, text in files_of(tmp_path).items() if "cpu." in name
               and name.endswith(("shares", "weight"))}  # fmt: skip
    assert {Path(name).parent.name for name in weights} == {"ground", "r1n1"}
    assert len({*weights.values()}) == 1
    limits.cpu("r1n1", 0)
    unlimited = {"ground/r1n1/cpu.max": "max 10000", "cpu/ground/r1n1/cpu.cfs_quota_us": "-1"}
    assert unlimited.items() & files_of(tmp_path).items()


def test_no_control_groups(tmp_path: Path):
    assert "blkio" in Limits.missing(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    assert Limits.missing(tmp_path) == "no control groups here for io"


# -- up ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def there() -> Iterator[Ground]:
    # Fewer nodes than there are by default, which takes half the time.
    with ground(nodes=3) as found:
        yield found
    assert not found.folder.exists()
    assert not list(ROOT.glob(f"*/{found.folder.name}"))
    assert str(found.folder) not in Path("/proc/mounts").read_text()


@pytest.fixture(scope="module")
def site(there: Ground) -> Site:
    made = Site(there.folder / "site", there)
    made.draft()
    return made


@pytest.fixture(scope="module")
def healthy(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one healthy night, on which nothing failed and nothing is flagged."""
    for done in (site.pairs(1), site.nodes()):
        assert done.returncode == 0, done.stdout + done.stderr
    assert site.screen() == (0, [])
    kept = tmp_path_factory.mktemp("healthy") / "results"
    site.day_passes()
    site.keep(kept)
    return kept


@pytest.mark.cluster
def test_addresses_are_the_machines_own(there: Ground):
    """What the host has for a network is not there, and the other way round."""
    inside = there.run("ip", "-o", "-4", "address", "show").stdout
    assert "192.0.2.1/24" in inside
    assert not there.run("ip", "route", "show", "default").stdout
    assert "198.51.100." not in Path("/proc/net/fib_trie").read_text()
    node = there.on("r1n2", "ip", "-o", "-4", "address", "show").stdout
    assert "198.51.100.3/24" in node and "eth0" in node and "fab0" in node


@pytest.mark.cluster
def test_racks_are_drafted_by_slurms_topology(site: Site):
    """So that cases between racks are not skipped for ever."""
    drafted = yaml.safe_load((site.folder / "systems" / f"{site.system}.yaml").read_text())
    (partition,) = drafted["systems"][0]["partitions"]
    assert {"off-rack", "node-pairs"} <= {*partition["extras"]["placements"]}


@pytest.mark.cluster
def test_the_address_of_a_node_is_a_fact(healthy: Path, there: Ground):
    """By which another unit under the same name is seen."""
    found = {
        node: facts["net.fab0.address"]
        for folder in healthy.glob("sessions/*")
        for fields in records_of(folder)
        for node, facts in fields["hosts"].items()
    }
    # In racks of an odd number, some nodes are idle in the first round, and report theirs later.
    assert found == {name: there.machine.address(name) for name in there.names}


@pytest.mark.cluster
def test_a_healthy_night_measures_what_was_declared(healthy: Path, there: Ground):
    """All links and disks, at their rates, whatever else this machine does."""
    values: dict[str, dict[str, float]] = {}
    for folder in healthy.glob("sessions/*"):
        for fields in records_of(folder):
            for fom in fields["foms"]:
                where = fom["location"] or fields["nodes"][0]
                values.setdefault(fom["metric"], {})[where] = fom["value"]
    pairs, machine = values["pingpong_bandwidth"], there.machine
    assert {node for pair in pairs for node in pair.split(":")} == {*machine.names}
    # Headers, of TCP and Ethernet, take 2.2 %; and IMB's MB are 10^6 bytes, as tc's Mbit are bits.
    assert [*pairs.values()] == pytest.approx([machine.link / 8 * 0.978] * len(pairs), rel=0.05)
    for metric in ("read_bandwidth", "write_bandwidth"):
        assert {*values[metric]} == {*machine.names}
        assert [*values[metric].values()] == pytest.approx(
            [machine.disk] * len(machine.names), rel=0.1
        )


QUICK = ("link of r1n3 at 50 %", "scratch disk at 50 %", "node without power")


@pytest.mark.cluster
@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found_by_name(site: Site, healthy: Path, name: str):
    (fault,) = [fault for fault in faults.FAULTS if fault.name == name]
    found = faults.tried(site, fault, healthy)
    assert (found.night, found.false) == (1, ()), dataclasses.asdict(found)
    if fault.injected:
        assert found.size == pytest.approx(fault.injected, abs=0.05)


GPCNET = shutil.which("network_load_test")
#: Mbit/s of the uplinks: all that the nodes of a rack can send, two fifths, and less than one.
UPLINKS = (250, 100, 40)


@pytest.mark.cluster
@pytest.mark.skipif(not GPCNET, reason="no network_load_test on PATH: docs/proving-ground.md")
def test_congestion_factors_rise_when_the_uplinks_are_narrowed():
    with ground() as there:
        site = Site(there.folder / "site", there)
        site.draft()
        site.add_gpcnet(Path(GPCNET))
        factors = []
        for rate in UPLINKS:
            for switch in there.machine.switches:
                there.rate(switch, 100 * rate / there.machine.uplink)
            done = site.plumbline("run", "--system", site.system, *CONGESTION)
            assert done.returncode == 0, done.stdout + done.stderr
            (record,) = [r for r in site.tonight() if r["foms"]][-1:]
            assert record["result"] == "pass"
            (factor,) = [
                fom["value"]
                for fom in record["foms"]
                if fom["metric"] == "random_ring_latency_congestion_factor"
            ]
            factors.append(factor)
    assert 1 < factors[0] < factors[1] < factors[2], factors
