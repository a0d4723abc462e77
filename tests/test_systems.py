"""Every system of the papers, listed on a machine that has none of their schedulers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from plumbline.core import paths
from plumbline.session import plan
from plumbline.site import configuration

SYSTEMS = [path.stem for path in configuration.system_files()]
REFRAME = Path(sys.executable).with_name("reframe")


def test_every_system_of_the_papers_is_there():
    named = {"summit", "sierra", "lassen", "peak", "butte", "frontier", "perlmutter", "polaris",
             "trinity", "theta", "sawtooth", "rzvernal", "eagle", "tioga", "manzano",
             "reedbush-u", "reedbush-h", "cielo", "titan", "xt3", "xt4", "xt5", "xt6", "fx10",
             "local"}  # fmt: skip
    assert named <= set(SYSTEMS)
    assert SYSTEMS[-1] == "local"


@pytest.mark.parametrize("system", SYSTEMS)
def test_checks_of_a_system_are_listed(system: str):
    """`reframe --system=NAME -c checks/ -l` works."""
    command = [REFRAME, "-C", paths.SETTINGS, f"--system={system}", "-c", paths.CHECKS, "-l"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout
    assert re.search(r"^Found \d+ check\(s\)$", done.stdout, re.M)


@pytest.mark.parametrize("path", configuration.system_files(), ids=lambda path: path.stem)
def test_no_shipped_file_writes_to_the_root_of_a_shared_file_system(path: Path):
    """Where everybody writes nobody may: the folder is the user's, by a variable."""
    for partition in yaml.safe_load(path.read_text())["systems"][0]["partitions"]:
        for name, told in partition.get("extras", {}).get("file_systems", {}).items():
            own = told.get("node_local") or "path_variable" in told or "$" in told["path"]
            assert own, f"{path.stem}: {name}"


def test_cases_of_another_system_are_planned():
    """A dry run lays out the tasks of a machine that is not this one, and tells what is missing."""
    cases = plan.plan_cases("reedbush-u", [str(paths.CHECKS)], ["-n", "imb_p2p%.*PingPong"])
    assert {case.case.rpartition("@")[2].partition("+")[0] for case in cases} == {
        "reedbush-u:u-regular"
    }
    assert all(not case.runs and "Spack" in case.reason for case in cases)
    assert any("off-node" in case.case for case in cases)
