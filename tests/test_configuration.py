"""What the configuration takes from ReFrame's command line, and what it refuses of it."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest
import reframe
from conftest import CHECKS, Testbed, refused
from plumbline.core.errors import Fault
from plumbline.placement import devices
from plumbline.placement.topology import PlacementError
from plumbline.site import configuration


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        ([], "verbose"),
        (["-r", "-n", "very"], "verbose"),
        (["-v"], "verbose"),
        (["-vv"], "debug"),
        (["-v", "-r", "-v"], "debug"),
        (["--verbose", "--verbose"], "debug"),
        (["-rvvv"], "debug2"),
        (["-vvvvv"], "debug2"),
    ],
)
def test_how_much_is_logged(arguments: list[str], level: str) -> None:
    assert configuration.log_level(arguments) == level


def test_a_variant_is_a_feature_of_its_own() -> None:
    assert configuration.variant_feature("tag-matching") == "variant-tag-matching"


@pytest.mark.parametrize("scheduler", ["slurm", "squeue", "local"])
@pytest.mark.parametrize("chosen", [{}, {"slurm_job_cancel_reasons": ["JobHeldUser"]}])
def test_what_ends_a_job_that_would_wait_for_ever(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch, scheduler: str, chosen: dict
):
    """ReFrame's own reasons and a few more; the site's where its file names any."""
    testbed.environment("disk", "fio")
    testbed.write(scheduler=scheduler, sched_options=chosen | {"use_nodes_option": True})
    files = [testbed.systems / "testbed.yaml"]
    (found,) = configuration.gather(files, "name", False, False)["systems"]
    (partition,) = found["partitions"]
    options = partition["sched_options"]
    assert options["use_nodes_option"]
    schema = json.loads((Path(reframe.__file__).parent / "schemas" / "config.json").read_text())
    default = schema["defaults"]["systems*/sched_options/slurm_job_cancel_reasons"]
    if scheduler == "local":
        assert options == chosen | {"use_nodes_option": True}
    else:
        found = options["slurm_job_cancel_reasons"]
        assert found == chosen.get("slurm_job_cancel_reasons", found)
        wanted = {*default, "PartitionConfig", "PartitionTimeLimit", "InvalidAccount"}
        assert chosen or wanted < {*found}


def test_a_machine_whose_topology_cannot_be_detected_is_refused(monkeypatch: pytest.MonkeyPatch):
    def lost(usable: list[int]):
        raise PlacementError("GPU 3 is lost")

    monkeypatch.setattr(devices, "detect", lost)
    with pytest.raises(Fault, match=r"GPU 3 is lost$") as refusal:
        configuration.this_machine()
    assert refusal.value.code == "system.topology-undetected"


@pytest.fixture
def power9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """A node of POWER9 with six V100, whose memory Linux has as NUMA domains without CPUs: hwloc's
    tests/hwloc/linux/nvidiagpunumanodes, with 8 CPUs for its 176.

    :returns: ReFrame's ``processor``.
    """
    nodes, gpus = tmp_path / "node", tmp_path / "gpus"
    cpumaps = {0: "0000000f", 8: "000000f0"} | dict.fromkeys(range(250, 256), "00000000")
    for number, cpumap in cpumaps.items():
        (nodes / f"node{number}").mkdir(parents=True)
        (nodes / f"node{number}/cpumap").write_text(f"00000000,{cpumap}\n")
        memory = {0: 129839104, 8: 133952000}.get(number, 15728640)
        text = f"\nNode {number} MemTotal:       {memory} kB\nNode {number} MemFree:        0 kB\n"
        (nodes / f"node{number}/meminfo").write_text(text)
    for number, bus in enumerate(
        ["0004:05", "0004:06", "0006:00", "0007:00", "0035:04", "0035:05"]
    ):
        (gpus / f"{bus}:00.0").mkdir(parents=True)
        (gpus / f"{bus}:00.0/numa_status").write_text(
            f"Node:      {255 - number}\nStatus:    online\nAddress:   40000000000\n"
            f"Size:      3f0000000\n"
        )
    monkeypatch.setattr(configuration, "_DOMAINS", nodes)
    monkeypatch.setattr(configuration, "_GPUS", gpus)
    pages = 358162944 * 1024 // os.sysconf("SC_PAGE_SIZE")
    sysconf = os.sysconf
    monkeypatch.setattr(
        os, "sysconf", lambda name: pages if name == "SC_PHYS_PAGES" else sysconf(name)
    )
    return {"topology": {"numa_nodes": sorted(f"0x00000000{cpus}" for cpus in cpumaps.values())}}


def test_numa_domains_without_cpus_have_their_own_numbers(power9: dict) -> None:
    assert configuration.numa_numbers(power9) == [250, 251, 252, 253, 254, 255, 0, 8]


def test_the_memory_of_gpus_is_not_the_hosts(power9: dict, tmp_path: Path) -> None:
    assert configuration.host_memory() == (129839104 + 133952000) * 1024
    # As before the driver's daemon has made it available to Linux.
    status = tmp_path / "gpus/0006:00:00.0/numa_status"
    status.write_text("Node:      253\nStatus:    offline\n")
    assert configuration.host_memory() == (129839104 + 133952000 + 15728640) * 1024


FIO = ["-n", "fio", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]


def test_what_is_not_there_is_refused_and_leaves_nothing(testbed: Testbed):
    testbed.environment("disk", "fio")
    for option, code, near in (
        ("--system=testbad", "system.not-found", "testbed"),
        ("--system=testbed:nod", "system.not-found", "node"),
        ("--mode=smoek", "input.unknown-name", "smoke"),
        ("--mode=often", "input.unknown-name", "nightly"),
    ):
        refused(testbed.asked("run", *FIO, option), f"[{code}]", near)
    nothing = "[session.nothing-selected]"
    unknown = "[input.unknown-name]"
    refused(testbed.plumbline("run", *FIO, "--prgenv=disk-oi"), "disk-io?", unknown, nothing)
    # The plain command, too; a mode is ReFrame's own matter there.
    refused(testbed.reframe("-c", CHECKS, "-r", "-n", "foi%op"), "fio", unknown, nothing)
    refused(testbed.reframe("-c", CHECKS, "-r", "-n", "imb_p2q"), "imb_p2p?", unknown, nothing)
    for command in ("run", "lint", "doctor"):
        done = testbed.asked(command, RFM_SYSTEM="testbad")
        refused(done, "RFM_SYSTEM", "mean testbed", "[system.not-found]")
    assert "smoek" in testbed.reframe("-c", CHECKS, "-r", "--mode=smoek").output
    assert list(testbed.results.glob("sessions/*")) == []


def test_an_empty_name_selects_all_as_in_reframe(testbed: Testbed):
    """Of a variable of a script that is not set."""
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", "--dry-run", *FIO[2:], "-n", "")
    assert done.code == 0, done.output
    assert "2 rendered" in done.out


def test_a_system_that_is_named_is_measured_whatever_the_hosts_name(testbed: Testbed):
    """By an option and by the variable; one note reports it."""
    testbed.environment("disk", "fio")
    path = testbed.write()
    path.write_text(path.read_text().replace(re.escape(socket.gethostname()), "elsewhere"))
    for done in (
        testbed.plumbline("run", "--system=testbed", *FIO),
        testbed.reframe("-c", CHECKS, "-r", *FIO, RFM_SYSTEM="testbed"),
    ):
        assert done.code == 0 and done.records, done.output
        notes = json.loads((done.session / "end.json").read_text())["notes"]
        assert sum(f"the host name {socket.gethostname()} " in note for note in notes) == 1
    # What would run elsewhere can be looked at, and a site may have its own ways to name a host.
    doctor = json.loads(testbed.asked("doctor", "--system=testbed", "--format=json").out)
    assert any(case["runs"] for case in doctor["cases"])
    done = testbed.plumbline("run", *FIO, RFM_AUTODETECT_METHODS="echo elsewhere")
    assert done.code == 0, done.output
