"""The systems of the papers, on a machine that has none of their schedulers."""

import os
import re
from pathlib import Path

import forked
import pytest
import yaml
from plumbline.core import paths
from plumbline.session import plan
from plumbline.site import configuration

SYSTEMS = [path.stem for path in configuration.system_files()]

#: Scheduler -> a system that has it.
OF_SCHEDULER = {
    yaml.safe_load(path.read_text())["systems"][0]["partitions"][0]["scheduler"]: path.stem
    for path in configuration.system_files()
}


def test_every_system_of_the_papers_is_there():
    expected = {"summit", "sierra", "lassen", "peak", "butte", "frontier", "perlmutter", "polaris",
             "trinity", "theta", "sawtooth", "rzvernal", "eagle", "tioga", "manzano",
             "reedbush-u", "reedbush-h", "cielo", "titan", "xt3", "xt4", "xt5", "xt6", "fx10",
             "local"}  # fmt: skip
    assert expected <= set(SYSTEMS)
    assert SYSTEMS[-1] == "local"


@pytest.mark.parametrize("system", OF_SCHEDULER.values(), ids=OF_SCHEDULER)
def test_checks_of_a_system_are_listed(system: str):
    """Where the scheduler is not installed. ``dry_runs.py`` loads the checks of every system."""
    words = ["-C", paths.SETTINGS, f"--system={system}", "-c", paths.ROOT / "checks", "-l"]
    command = [str(word) for word in (forked.BIN / "reframe", *words)]
    code, out, err = forked.run(command, {**os.environ}, paths.ROOT, patience=300)
    assert code == 0, out + err
    assert "WARNING" not in out + err
    assert re.search(r"^Found \d+ check\(s\)$", out, re.M), out


@pytest.mark.parametrize("path", configuration.system_files(), ids=lambda path: path.stem)
def test_no_shipped_file_writes_to_the_root_of_a_shared_file_system(path: Path):
    """Where everybody writes nobody may: the folder is the user's, by a variable."""
    for partition in yaml.safe_load(path.read_text())["systems"][0]["partitions"]:
        for name, fields in partition.get("extras", {}).get("file_systems", {}).items():
            own = fields.get("node_local") or "path_variable" in fields or "$" in fields["path"]
            assert own, f"{path.stem}: {name}"


def test_cases_of_another_system_are_planned():
    """A dry run lays out the tasks of another machine, and reports what is missing."""
    pingpong = ["-n", "imb_p2p%.*PingPong"]
    cases = plan.preview("reedbush-u", [str(paths.ROOT / "checks")], pingpong).cases
    assert {case.case.rpartition("@")[2].partition("+")[0] for case in cases} == {
        "reedbush-u:u-regular"
    }
    assert {(case.runs, case.code) for case in cases} == {(False, "build.not-built")}
    assert any("off-node" in case.case for case in cases)
