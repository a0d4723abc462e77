"""What the configuration takes from ReFrame's command line, and what it refuses of it."""

from __future__ import annotations

import json
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
        assert chosen or {*default, "PartitionConfig", "PartitionTimeLimit"} < {*found}


def test_a_machine_whose_topology_cannot_be_detected_is_refused(monkeypatch: pytest.MonkeyPatch):
    def lost(usable: list[int]):
        raise PlacementError("GPU 3 is lost")

    monkeypatch.setattr(devices, "detect", lost)
    with pytest.raises(Fault, match=r"GPU 3 is lost$") as refusal:
        configuration.this_machine()
    assert refusal.value.code == "system.topology-undetected"


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
