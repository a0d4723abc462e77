"""The proving ground itself, a healthy night on it, and some of its faults; `make ground-all` runs
them all."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import statistics
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
import yaml
from cluster import wait_for
from conftest import ROOT as CHECKOUT
from conftest import records_of
from ground import Ground, bench, faults, ground
from ground.__main__ import variables
from ground.limits import ROOT, Limits
from ground.machine import Machine
from ground.operations import FASTER, operate
from ground.site import Site

TUTORIAL = CHECKOUT / "docs" / "tutorial.md"

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


class Told:
    """A site whose night had faults, as its commands tell them."""

    names = ("r1n1", "r1n2", "r1n3", "r2n1", "r2n2", "r2n3")

    def __init__(self, lines: str = "", slow: tuple[str, ...] = (), swapped: tuple[str, ...] = ()):
        self.there, self.lines, self.slow, self.swapped = self, lines, slow, swapped

    def nodes(self, *_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], bool(self.lines), self.lines, "")

    pairs = nodes

    def screen(self) -> tuple[int, list[dict]]:
        return 1, [{"kind": "node", "node": name, "size": 0.5} for name in self.slow]

    def tonight(self) -> list[dict]:
        return []

    def changed(self, fact: str) -> set[str]:
        return {*self.swapped} if fact == "address" else set()


def told(site: Told, **places: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """Night, name and false names of faults at nodes."""
    known = {fault.name.replace(" ", "_"): fault for fault in faults.FAULTS}
    injected = [known[name].at(node) for name, node in places.items()]
    return [(f.night, f.named, f.false) for f in faults.night(site, injected, 1, set())]


def test_faults_of_one_night_are_told_from_each_other():
    both = {"slurmd_killed": "r2n3", "scratch_disk_full": "r2n1"}
    slow = Told("skipped: r2n3 is down", slow=("r1n1", "r1n2"))
    assert told(slow, slurmd_killed="r2n3") == [(1, "r2n3", ("node r1n1", "node r1n2"))]
    assert [f.at("r1n2").expected for f in faults.FAULTS if f.name == "wrong MTU, 576"] == [
        ("node r1n2", "setting r1n2")
    ]
    # A node that is named though nothing happened to it is no answer.
    for lines, nights in (("failed: r2n1\nskipped: r2n3", [1, 1]), ("skipped: r2n3, r1n3", [0, 0])):
        assert [night for night, *_ in told(Told(lines), **both)] == nights
    swapped = {"another_node_under_the_same_name": "r2n3"}
    assert told(Told(swapped=("r2n3",)), **swapped) == [(1, "r2n3", ())]
    assert told(Told(swapped=("r2n2",)), **swapped) == [(0, "r2n2", ())]


# -- up ------------------------------------------------------------------------------------------


def namespaces(process: Path) -> set[str]:
    """Of a process, by its folder in /proc; none if it has ended."""
    with contextlib.suppress(OSError):
        return {str(link.readlink()) for link in (process / "ns").iterdir()}
    return set()


def traces(folder: Path, spaces: set[str]) -> dict[str, list[str]]:
    """What there is of a machine, by kind.

    :arg spaces: its namespaces.
    """
    processes = [*Path("/proc").glob("[0-9]*")]
    mounts = set()
    for process in processes:
        with contextlib.suppress(OSError):
            mounts |= {*(process / "mountinfo").read_text().splitlines()}
    disks = Path("/sys/block").glob("loop*/loop/backing_file")
    found = {
        "folder": [str(folder)] if folder.exists() else [],
        "processes": [p.name for p in processes if namespaces(p) & spaces],
        "mounts": [m for m in mounts if str(folder) in m or any(s in m for s in spaces)],
        "disks": [str(disk) for disk in disks if str(folder) in disk.read_text()],
        "control groups": [str(g) for g in (ROOT, *ROOT.glob("*/")) if (g / folder.name).exists()],
    }
    return {kind: names for kind, names in found.items() if names}


@pytest.fixture(scope="module")
def there() -> Iterator[Ground]:
    # Fewer nodes than there are by default, which takes half the time.
    with ground(nodes=3) as found:
        yield found
        firsts = [Path("/proc", str(found.first_of(name))) for name in found.names]
        firsts.append(found.seen(Path("/")).parent)
        spaces = set().union(*map(namespaces, firsts)) - namespaces(Path("/proc/self"))
        up = traces(found.folder, spaces)
    assert {*up} == {"folder", "processes", "mounts", "disks", "control groups"}, up
    # The kernel lets go of a disk once it has taken the last namespace apart.
    wait_for(lambda: not traces(found.folder, spaces), 10)


@pytest.fixture(scope="module")
def site(there: Ground) -> Site:
    made = Site(there.folder / "site", there)
    # Two thirds of the others': on these uplinks, pairs need not send at the same time.
    made.repetitions = "400,8"
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


def assert_at_rate(values: Collection[float], rate: float, tolerance: float = 0.05) -> None:
    """Nothing exceeds its limit, and most come near it; but the other work of these cores
    may hold one of them up."""
    assert max(values) <= rate * (1 + tolerance), values
    assert statistics.median(values) >= rate * (1 - tolerance), values
    assert min(values) >= rate * (1 - 3 * tolerance), values


@pytest.mark.cluster
def test_a_healthy_night_measures_what_was_declared(healthy: Path, there: Ground):
    """All links and disks, at their rates."""
    values: dict[str, dict[str, float]] = {}
    for folder in healthy.glob("sessions/*"):
        for fields in records_of(folder):
            for fom in fields["foms"]:
                where = fom["location"] or fields["nodes"][0]
                values.setdefault(fom["metric"], {})[where] = fom["value"]
    pairs, machine = values["pingpong_bandwidth"], there.machine
    assert {node for pair in pairs for node in pair.split(":")} == {*machine.names}
    # Headers, of TCP and Ethernet, take 2.2 %; and IMB's MB are 10^6 bytes, as tc's Mbit are bits.
    assert_at_rate(pairs.values(), machine.link / 8 * 0.978)
    for metric in ("read_bandwidth", "write_bandwidth"):
        assert {*values[metric]} == {*machine.names}
        assert_at_rate(values[metric].values(), machine.disk)


#: Faults that are there at once, and where. Of each figure, one node of the six is slow: if more
#: than a quarter were, screening would say that it is unsure. So the MTU costs 0.3 %.
AT_ONCE = {
    "links": {
        "another node under the same name": "r2n3",
        "link of r1n3 at 50 %": "r1n3",
        "wrong MTU, 1400": "r2n2",
    },
    "nodes": {
        "scratch disk at 50 %": "r1n1",
        "CPUs at half by quota": "r1n2",
        "node without power": "r2n3",
    },
}


@pytest.mark.cluster
@pytest.mark.parametrize("where", AT_ONCE.values(), ids=AT_ONCE)
def test_faults_are_found_by_name(site: Site, healthy: Path, where: dict[str, str]):
    """Each on the first night, and nothing beside them."""
    known = {fault.name: fault for fault in faults.FAULTS}
    injected = [known[name].at(node) for name, node in where.items()]
    for fault, found in zip(injected, faults.tried(site, injected, healthy), strict=True):
        assert (found.night, found.false) == (1, ()), dataclasses.asdict(found)
        # Where other work takes the cores, half of them may be seen by their quota alone.
        if fault.injected and found.named.startswith("node"):
            assert found.size == pytest.approx(fault.injected, abs=fault.injected / 10)


# -- programs of the site's own, where they are on PATH -------------------------------------------


def built(*names: str) -> list[Path]:
    """The programs, or the test is skipped."""
    found = {name: shutil.which(name) for name in names}
    if lacking := [name for name, path in found.items() if not path]:
        pytest.skip(f"not on PATH: {', '.join(lacking)}: docs/proving-ground.md")
    return [Path(path) for path in found.values()]


#: The share of a link's rate that is data: 1,448 of 1,514 bytes of a frame are (Ethernet, IP, and
#: TCP with time stamps have the others).
PAYLOAD = 1448 / 1514
#: Bytes that a link lets pass at once (:data:`ground.machine.BUCKET`), and of the largest message.
BURST, LARGEST = 32 * 1024, 64 * 1024


@pytest.mark.cluster
def test_own_builds_measure_what_was_declared(there: Ground, site: Site):
    """OSU, IOR and mdtest, as an environment of the site."""
    programs = built("osu_bw", "osu_latency", "ior", "mdtest")
    file = site.folder / "systems" / f"{site.system}.yaml"
    drafted = file.read_text()
    site.add("own", ["osu", "ior", "mdtest"], programs)
    # Ten windows of OSU's bandwidth, each of 64 messages, take 7 s.
    settings = (f"osu_p2p.largest={LARGEST}", "osu_p2p.iterations=10", "ior.block=16777216",
                "mdtest.files=100", "num_samples=1", "num_warmups=0")  # fmt: skip
    cases = r"^osu_p2p%.*=(bw|latency)%.*=off-node|^ior%.*=posix.*=file-per|^mdtest%"
    options = [word for setting in settings for word in ("-S", setting)]
    site.expect(0, "run", "--system", site.system, "-p", "own", "-n", cases, *options)
    file.write_text(drafted)
    records = [record for record in site.tonight() if record["environment"] == "own"]
    assert [record["result"] for record in records] == ["pass"] * 4
    values = {(fom["metric"], fom["size"]): fom["value"] for r in records for fom in r["foms"]}
    rate, disk = there.machine.link / 8, there.machine.disk
    # A window of 4 MB ends with an answer, meanwhile the link may save one burst.
    assert values["bandwidth", LARGEST] == pytest.approx(rate * PAYLOAD, rel=0.03)
    # A message waits for what exceeds a burst, and at most for all of it: twice, if its answer's
    # way is busy.
    least = (LARGEST / PAYLOAD - BURST) / rate
    assert least < values["latency", LARGEST] < 4 * LARGEST / PAYLOAD / rate
    assert 0 < values["latency", 8] < least
    # Each of two nodes writes, and reads, 2 x 16 MiB past its page cache; IOR's MiB are 2^20 bytes.
    for metric in ("write_bandwidth", "read_bandwidth"):
        assert values[metric, None] == pytest.approx(2 * disk * 10**6 / 2**20, rel=0.1)
    assert all(value > 0 for (metric, _), value in values.items() if metric.startswith("file_"))


@pytest.mark.cluster
def test_congestion_factors_rise_when_the_uplinks_are_narrowed():
    built(bench.GPCNET)
    with ground(**bench.PATIENT) as there:
        site = Site(there.folder / "site", there)
        found = bench.congestion(site)
        print(found)
    factors = [figures["random_ring_latency_congestion_factor"] for figures in found]
    assert factors == sorted({*factors}) and factors[0] > 1, factors
    assert len(factors) == len(bench.UPLINKS)
    # Without congestion, two tasks share a node's link, or the uplink: what OSU has is what both
    # have. GPCNeT prints a decimal of MiB (2^20 bytes).
    rates = [min(there.machine.link, rate) / 8 * PAYLOAD / 2 for rate in bench.UPLINKS]
    isolated = [figures["random_ring_sync_bandwidth isolated"] for figures in found]
    assert isolated == pytest.approx([rate * 10**6 / 2**20 for rate in rates], rel=0.1)


# -- what takes minutes: make ground-all ---------------------------------------------------------


@pytest.mark.ground
def test_the_tutorial_finds_a_slow_link():
    """Step 8 of docs/tutorial.md, followed literally."""
    step = re.search(r"^## 8\. .*?(?=^## )", TUTORIAL.read_text(), re.M | re.S)[0]
    steps = [text for text in re.findall(r"^login\$ (.*)", step, re.M) if text != "exit"]
    script = "\n".join(f'{text}\necho "exit code: $?"' for text in steps)
    with ground() as there:
        site = Site(there.folder / "site", there)
        site.draft()
        words = ("env", "-C", site.folder, "bash", "-c", script)
        done = there.run(*words, check=False, **variables(site))
    print(done.stdout, done.stderr)
    codes = [int(code) for code in re.findall(r"^exit code: (\d+)", done.stdout, re.M)]
    assert codes == [int("screen" in text) for text in steps]
    (size,) = re.findall(r"^node +r1n3 +([\d.]+)% .*active", done.stdout, re.M)
    assert float(size) == pytest.approx(10, abs=2)


@pytest.mark.ground
def test_nothing_fails_on_a_healthy_machine():
    with ground(nodes=3, **FASTER) as there:
        site = Site(there.folder / "site", there)
        steps = operate(site)
    assert [step for step in steps if step.false] == []
    assert all(step.cases for step in steps)
