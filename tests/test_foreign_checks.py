"""Checks that nobody here wrote: ReFrame's own library, and the EESSI test suite.

What cannot run is dry-run; what cannot be downloaded is skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Testbed

#: The last version whose wheel has the library.
WITH_LIBRARY = "reframe-hpc==4.9.3"
EESSI = "eessi-testsuite==1.1.0"


def download(package: str, folder: Path) -> Path:
    """The archive of a package, from the index that pip is set up for; skips if it is not there."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries=0"]
    command += ["--disable-pip-version-check", f"--dest={folder}", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"{package} cannot be downloaded: {done.stderr.strip().splitlines()[-1]}")
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ReFrame's own library of checks, ``hpctestlib``."""
    folder = tmp_path_factory.mktemp("library")
    with zipfile.ZipFile(download(WITH_LIBRARY, tmp_path_factory.mktemp("wheel"))) as archive:
        archive.extractall(
            folder, [name for name in archive.namelist() if name.startswith("hpctestlib/")]
        )
    return folder / "hpctestlib"


@pytest.fixture(scope="module")
def testbed(make_testbed: Callable[..., Testbed]) -> Testbed:
    testbed = make_testbed("foreign")
    testbed.environment("base", "imb")
    return testbed


@pytest.fixture(scope="module")
def eessi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the EESSI test suite's package."""
    folder = tmp_path_factory.mktemp("eessi")
    # Python 3.11.3 and earlier do not know the filters of tarfile.
    shutil.unpack_archive(download(EESSI, tmp_path_factory.mktemp("sdist")), folder)
    (found,) = folder.iterdir()
    return found


#: Of each check of the library that can be selected here: any system, any environment.
ANYWHERE = ("-S", "valid_systems=*", "-S", "valid_prog_environs=*")


#: What ``np_ops.py`` prints. The real one takes minutes on two cores.
PRINTED = """\
Numpy version: 2.4.6
Dotted two 4096x4096 matrices in 13.24 s.
SVD of a 2048x1024 matrix in 29.55 s.
Cholesky decomposition of a 2048x2048 matrix in 3.24 s.
Eigendecomposition of a 2048x2048 matrix in 41.02 s.
Inversion of a 2048x2048 matrix in 5.10 s.
"""


def test_numpy(testbed: Testbed, library: Path):
    """The check is theirs; its program is replaced."""
    numpy = Path(library, "python", "numpy", "numpy_ops.py")
    printed = testbed.folder / "printed"
    printed.write_text(PRINTED)
    options = (*ANYWHERE, "-S", "executable=cat", "-S", f"executable_opts={printed}")
    done = testbed.plumbline("run", "-c", numpy, *options)
    assert done.code == 0, done.output
    (fields,) = done.records
    assert (fields["check"], fields["result"]) == ("numpy_ops_check", "pass")
    assert {fom["metric"]: fom["value"] for fom in fields["foms"]} == {
        "dot": 13.24, "svd": 29.55, "cholesky": 3.24, "eigendec": 41.02, "inv": 5.10
    }  # fmt: skip
    assert {(fom["unit"], fom["better"]) for fom in fields["foms"]} == {("s", "lower")}


#: What only needs its inputs or programs: file -> options that it cannot do without.
DRY = {
    "microbenchmarks/mpi/osu.py": ("-n", "osu_run", "-S", "num_tasks=2"),
    "ml/pytorch/horovod.py": ("-S", "num_tasks=2"),
}


@pytest.mark.parametrize("file", DRY)
def test_what_cannot_run_is_dry_run(testbed: Testbed, library: Path, file: str):
    plan = testbed.folder / "plan.json"
    plan.unlink(missing_ok=True)
    done = testbed.reframe(
        "-c", library / file, *ANYWHERE, *DRY[file], "--dry-run", PLUMBLINE_PLAN_FILE=plan
    )
    assert "Traceback" not in done.output, done.output
    planned = json.loads(plan.read_text())["cases"]
    assert planned and all(case["runs"] and case["figures"] for case in planned), done.output


# -- the EESSI test suite ------------------------------------------------------------------------

#: As a site has it, without the features for scales: they begin with a digit, which ReFrame 4.10.1
#: to 4.10.4 refuse.
SITE = """
site_configuration = {
    "systems": [{"name": "theirs", "hostnames": [".*"], "modules_system": "lmod", "partitions": [{
        "name": "cpu", "scheduler": "local", "launcher": "local", "environs": ["default"],
        "features": ["cpu"], "extras": {"mem_per_node": 65536}, "processor": {
            "num_cpus": 4, "num_cpus_per_socket": 4, "num_sockets": 1, "num_cpus_per_core": 1,
            "topology": {"numa_nodes": ["0xf"]}}}]}],
    "environments": [{"name": "default", "target_systems": ["theirs"]}],
}
"""
#: What the suite asks for modules.
LMOD = """#!/bin/sh
case "$*" in
    *version*) echo "Modules based on Lua: Version 8.7.59 2025-01-01" >&2 ;;
    *avail*) echo "OSU-Micro-Benchmarks/7.2-gompi-2023b" >&2 ;;
esac
"""


def test_eessi_is_dry_run(testbed: Testbed, eessi: Path):
    (testbed.folder / "site.py").write_text(SITE)
    lmod, plan = testbed.folder / "lmod", testbed.folder / "eessi.json"
    lmod.write_text(LMOD)
    lmod.chmod(0o755)
    checks = eessi / "eessi" / "testsuite" / "tests" / "apps" / "osu.py"
    options = ("--system=theirs", "--skip-system-check", "--skip-prgenv-check", "--dry-run")
    done = testbed.reframe(
        "-c", checks, *options, "-n", "EESSI_OSU_pt2pt_CPU.*1_node",
        PYTHONPATH=eessi, LMOD_CMD=lmod, PLUMBLINE_PLAN_FILE=plan,
        RFM_CONFIG_FILES=f"{testbed.env['RFM_CONFIG_FILES']}:{testbed.folder / 'site.py'}",
    )  # fmt: skip
    assert done.code == 0, done.output
    planned = json.loads(plan.read_text())["cases"]
    assert len(planned) == 4 and all(case["runs"] and case["figures"] for case in planned)
    assert all("@theirs:cpu+default" in case["case"] for case in planned)
