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
    """ReFrame's own reasons and one more; the site's where its file names any."""
    testbed.environment("disk", "fio")
    testbed.write(scheduler=scheduler, sched_options=chosen | {"use_nodes_option": True})
    monkeypatch.setenv("PLUMBLINE_SYSTEMS", str(testbed.systems))
    (found,) = configuration.gather("name", False, False)["systems"]
    (partition,) = found["partitions"]
    told = partition["sched_options"]
    assert told["use_nodes_option"]
    schema = json.loads((Path(reframe.__file__).parent / "schemas" / "config.json").read_text())
    default = schema["defaults"]["systems*/sched_options/slurm_job_cancel_reasons"]
    if scheduler == "local":
        assert told == chosen | {"use_nodes_option": True}
    else:
        expected = chosen.get("slurm_job_cancel_reasons", [*default, "PartitionConfig"])
        assert told["slurm_job_cancel_reasons"] == expected


def test_a_machine_whose_topology_cannot_be_told_is_refused(monkeypatch: pytest.MonkeyPatch):
    def nvidia(usable: list[int]):
        raise PlacementError("GPU 3 is lost")

    monkeypatch.setattr(devices, "nvidia", nvidia)
    with pytest.raises(Fault, match=r"topology could not be detected: GPU 3 is lost"):
        configuration.this_machine()


FIO = ["-n", "fio", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--system=testbad", "testbad.yaml: no such system; near: testbed"),
        ("--system=testbed:nod", "testbed:nod"),
        ("--mode=smoek", "--mode smoek: no such mode; near: smoke"),
        ("--mode=often", "--mode often: no such mode; there are: smoke, nightly"),
        ("--prgenv=nosuch", "no test case is selected"),
    ],
)
def test_what_is_not_there_is_refused_and_leaves_nothing(testbed: Testbed, option: str, says: str):
    testbed.environment("disk", "fio")
    refused(testbed.plumbline("run", *FIO, option), says)
    assert list(testbed.results.glob("sessions/*")) == []


def test_the_plain_command_leaves_nothing_of_a_session_that_it_refused(testbed: Testbed):
    testbed.environment("disk", "fio")
    refused(testbed.reframe("-c", CHECKS, "-r", "-n", "nosuch"), "no test case is selected")
    assert "smoek" in testbed.reframe("-c", CHECKS, "-r", "--mode=smoek").said
    assert list(testbed.results.glob("sessions/*")) == []


def test_a_system_that_is_named_is_measured_whatever_the_hosts_name(testbed: Testbed):
    testbed.environment("disk", "fio")
    path = testbed.write()
    text = path.read_text()
    here = f"^{re.escape(socket.gethostname())}$"
    assert here in text
    path.write_text(text.replace(here, "^elsewhere$"))
    said = (
        f"measured as testbed, as named: the host name {socket.gethostname()} does not confirm it"
    )
    for command in (testbed.plumbline, testbed.reframe):
        words = ["run"] if command == testbed.plumbline else ["-c", CHECKS, "-r"]
        for done in (
            command(*words, "--system=testbed", *FIO),
            command(*words, *FIO, RFM_SYSTEM="testbed"),
        ):
            assert done.code == 0 and done.records, done.said
            assert json.loads((done.session / "end.json").read_text())["notes"].count(said) == 1
    # What would run elsewhere can be looked at, and a site may have its own ways to name a host.
    done = testbed.plumbline("doctor", "--system=testbed")
    assert done.code == 0 and re.search(r"plumbline: [1-9] of .* would run", done.out), done.said
    done = testbed.plumbline("run", *FIO, RFM_AUTODETECT_METHODS="echo elsewhere")
    assert done.code == 0, done.said
