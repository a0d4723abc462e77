"""The real Spack builds the machine's own environments from a mirror, and the checks run them.

Needs what CI does not have: PLUMBLINE_TEST_MIRROR names a mirror of `local`, as `plumbline mirror
create FOLDER local` makes it. It takes some twenty minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BIN, Done
from plumbline.software import environments
from records import records_of

MIRROR = os.environ.get("PLUMBLINE_TEST_MIRROR", "")
TOOLCHAINS = ("openmpi", "mpich")

pytestmark = pytest.mark.skipif(
    not MIRROR,
    reason="PLUMBLINE_TEST_MIRROR names no mirror, so nothing is built with the real Spack",
)

#: Check -> what its program's own output must have given.
MEASURED = {
    "osu_p2p": "osu",
    "osu_collective": "osu",
    "babelstream": "babelstream",
    "babelstream_serial": "babelstream",
    "ior": "ior",
    "mdtest": "mdtest",
    "commscope_host": "commscope",
}


class Machine:
    """An install root of the tests' own, no network for its builds, a home that none may read."""

    def __init__(self, folder: Path):
        self.home, self.tools = folder / "home", folder / "tools"
        (self.home / ".spack").mkdir(parents=True)
        # Spack would stop at it.
        (self.home / ".spack" / "config.yaml").write_text("config: [")
        self.results = folder / "results"
        self.env = os.environ | {
            "HOME": str(self.home),
            "PLUMBLINE_TOOLS": str(self.tools),
            "PLUMBLINE_RESULTS": str(self.results),
            "RFM_COLORIZE": "0",
        }
        self.offline = ["unshare", "-n"] if os.geteuid() == 0 and shutil.which("unshare") else []

    def start(self, *words: str) -> subprocess.Popen:
        # MPI wants a network interface, if only the machine's own.
        offline = self.offline if words[0] == "build" else []
        return subprocess.Popen(
            [*offline, str(BIN / "plumbline"), *words], env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def plumbline(self, *words: str) -> Done:
        process = self.start(*words)
        outputs = process.communicate()[0]
        sessions = sorted((self.results / "sessions").glob("*"), key=os.path.getmtime)
        return Done(process.returncode, outputs, "", sessions[-1:])


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    used = machine.plumbline("mirror", "use", MIRROR)
    assert used.code == 0, used.output
    return machine


@pytest.fixture(scope="module")
def seconds(machine: Machine) -> float:
    """Both toolchains are built, by two that start at once; how long it took."""
    began = time.monotonic()
    builds = [machine.start("build", "local") for _ in range(2)]
    outputs = [process.communicate()[0] for process in builds]
    assert [process.returncode for process in builds] == [0, 0], outputs
    for toolchain in TOOLCHAINS:
        output = "".join(outputs)
        assert output.count(f"local:{toolchain}: built in") == 1
        assert output.count(f"local:{toolchain}: is built") == 1
    return time.monotonic() - began


def test_nothing_of_the_users_is_read_or_written(machine: Machine, seconds: float):
    assert [path.name for path in machine.home.rglob("*")] == [".spack", "config.yaml"]


def test_second_build_changes_nothing(machine: Machine, seconds: float):
    before = {path: path.lstat().st_mtime_ns for path in (machine.tools / "spack").rglob("*")}
    began = time.monotonic()
    assert machine.plumbline("build", "local").code == 0
    assert time.monotonic() - began < seconds / 10
    lock = machine.tools / "spack" / "lock"
    after = {path: path.lstat().st_mtime_ns for path in (machine.tools / "spack").rglob("*")}
    assert {k: v for k, v in after.items() if k != lock} == {
        k: v for k, v in before.items() if k != lock
    }


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_checks_run_what_is_built(machine: Machine, seconds: float, toolchain: str):
    done = machine.plumbline(
        "run", "-p", f"^{toolchain}$", "-S", "num_samples=1", "-S", "num_warmups=0",
        *[word for check in MEASURED for word in ("-n", f"^{check}")],
    )  # fmt: skip
    (session,) = done.sessions
    records = records_of(session)
    failed = [(r["check"], r["reason"]) for r in records if r["result"] != "pass"]
    assert failed == [], done.output
    lock = environments.read_lock(
        machine.tools / "spack" / "environments" / "local" / toolchain / "spack.lock"
    )
    for check in MEASURED:
        of_check = [r for r in records if r["check"].split()[0] == check]
        assert of_check, check
        for record in of_check:
            assert record["foms"]
            assert record["build"]["provider"] == "spack"
            assert record["build"]["lock"] == lock.sha256
            assert record["build"]["hash"] in lock.nodes
            assert record["build"]["mpi"].partition("@")[0] in (toolchain, "none")


def test_gpcnet_is_built_and_wants_nodes(machine: Machine, seconds: float):
    """On one node it refuses to measure."""
    view = machine.tools / "spack" / "environments" / "local" / "mpich" / "view"
    done = subprocess.run(
        ["mpiexec.mpich", "-n", "2", view / "bin" / "network_test"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "2 nodes" in done.stdout + done.stderr


def test_programs_are_linked_with_their_own_mpi(machine: Machine, seconds: float):
    for toolchain, library in (("openmpi", "libmpi.so.40"), ("mpich", "libmpich.so.12")):
        view = machine.tools / "spack" / "environments" / "local" / toolchain / "view"
        for program in ("bin/ior", "bin/network_test"):
            listed = subprocess.run(
                ["ldd", view / program], capture_output=True, text=True, check=True
            )
            assert library in listed.stdout
