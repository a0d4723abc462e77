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


def test_every_system_of_the_papers_is_there():
    expected = {"summit", "sierra", "lassen", "peak", "butte", "frontier", "perlmutter", "polaris",
             "trinity", "theta", "sawtooth", "rzvernal", "eagle", "tioga", "manzano",
             "reedbush-u", "reedbush-h", "cielo", "titan", "xt3", "xt4", "xt5", "xt6", "fx10",
             "local"}  # fmt: skip
    assert expected <= set(SYSTEMS)
    assert SYSTEMS[-1] == "local"


#: `reframe -l` of several systems: all is imported once, and each is a process of its own.
LISTINGS = """
import os, sys
import plumbline.check.benchmark, plumbline.session.session
from reframe.frontend import cli

settings, checks, folder, *systems = sys.argv[1:]
for system in systems:
    if os.fork() == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{folder}/{system}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        sys.argv = ["reframe", "-C", settings, f"--system={system}", "-c", checks, "-l"]
        try:
            cli.main()
        except SystemExit as end:
            print(f"exit code {end.code}", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what `reframe --system=NAME -c checks/ -l` prints for each system."""
    folder = tmp_path_factory.mktemp("listings")
    command = [
        sys.executable,
        "-c",
        LISTINGS,
        paths.SETTINGS,
        paths.ROOT / "checks",
        folder,
        *SYSTEMS,
    ]
    subprocess.run(command, check=True, cwd=paths.ROOT)
    return folder


@pytest.mark.parametrize("system", SYSTEMS)
def test_checks_of_a_system_are_listed(listings: Path, system: str):
    output = (listings / system).read_text()
    assert output.endswith("exit code 0\n"), output
    assert "WARNING" not in output
    assert re.search(r"^Found \d+ check\(s\)$", output, re.M), output


@pytest.mark.parametrize("path", configuration.system_files(), ids=lambda path: path.stem)
def test_no_shipped_file_writes_to_the_root_of_a_shared_file_system(path: Path):
    """Where everybody writes nobody may: the folder is the user's, by a variable."""
    for partition in yaml.safe_load(path.read_text())["systems"][0]["partitions"]:
        for name, fields in partition.get("extras", {}).get("file_systems", {}).items():
            own = fields.get("node_local") or "path_variable" in fields or "$" in fields["path"]
            assert own, f"{path.stem}: {name}"


def test_cases_of_another_system_are_planned():
    """A dry run lays out the tasks of another machine, and reports what is missing."""
    cases = plan.plan_cases(
        "reedbush-u", [str(paths.ROOT / "checks")], ["-n", "imb_p2p%.*PingPong"]
    )
    assert {case.case.rpartition("@")[2].partition("+")[0] for case in cases} == {
        "reedbush-u:u-regular"
    }
    assert {(case.runs, case.code) for case in cases} == {(False, "build.not-built")}
    assert any("off-node" in case.case for case in cases)
