"""A login node of the virtual cluster: a system file, results, and commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cluster
import pytest
from conftest import BIN, MPICH
from records import records_of


class LoginNode:
    """A system file of the cluster, its results, and its commands there."""

    #: The name of its system.
    system = "virtual"

    def __init__(self, folder: Path, there):
        self.there, self.folder, self.results = there, folder, folder / "results"
        for name in ("systems", "reference", "results"):
            (folder / name).mkdir(parents=True)
        self.env = {
            "PATH": f"{BIN}:{there.env['PATH']}",
            "PLUMBLINE_SITE": str(folder),
            "PLUMBLINE_RESULTS": str(self.results),
            "RFM_COLORIZE": "0",
        }

    def draft(self) -> None:
        """Its system file, with what this machine is like inside."""
        command = [sys.executable, "-m", "plumbline.operate.onboarding.node"]
        node = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (self.folder / "node.json").write_text(node)
        done = self.plumbline(
            "init", self.system, "-p", "cpu", "--node", f"cpu={self.folder}/node.json"
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def plumbline(
        self, *words: str, seconds: float = cluster.PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        return self.there.run(BIN / "plumbline", *words, check=False, seconds=seconds, **self.env)

    def sweep(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.plumbline("sweep", "--system", self.system, *words)

    @property
    def name(self) -> str:
        """The one sweep that there is."""
        (folder,) = (self.results / "sweeps").iterdir()
        return folder.name

    def measured(self) -> list[tuple[str, str]]:
        """Node and result of every case that ran on a node."""
        return sorted(
            (fields["nodes"][0], fields["result"])
            for folder in (self.results / "sessions").iterdir()
            for fields in records_of(folder)
            if fields["extras"].get("node")
        )


@pytest.fixture(name="virtual", scope="module")
def virtual_() -> Iterator[cluster.Cluster]:
    with cluster.brought_up() as found:
        yield found


@pytest.fixture(name="site")
def site_(tmp_path: Path, virtual: cluster.Cluster) -> Iterator[LoginNode]:
    """A login node with a drafted system file."""
    if not (MPICH / "mpiexec").is_file():
        pytest.skip(f"{MPICH / 'mpiexec'} does not exist: run make setup")
    found = LoginNode(tmp_path, virtual)
    found.draft()
    yield found
    virtual.repair()
