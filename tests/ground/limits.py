"""Limits of a node's processes by control groups, of either version: CPU time and disk rates."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")

#: File -> the largest weight, by version: whatever else this machine does, it is not to be seen in
#: what is measured here. A machine that waits for its links takes little.
WEIGHT = {False: ("cpu.shares", "262144"), True: ("cpu.weight", "10000")}

#: Microseconds. A tenth of the kernel's usual one: a node at half speed pauses for milliseconds.
PERIOD = 10_000


class Limits:
    """The control groups of a machine's nodes, a folder for each node in each hierarchy.

    :ivar root: where control groups are mounted.
    """

    def __init__(self, name: str, root: Path = ROOT):
        self.root = root
        #: Whether it is one hierarchy (cgroup v2), which has both controllers.
        self.unified = (root / "cgroup.controllers").exists()
        kinds = [""] if self.unified else ["cpu", "blkio"]
        self._folders = [root / kind / name for kind in kinds]

    @classmethod
    def missing(cls, root: Path = ROOT) -> str:
        """Why there are no limits here, empty where there are."""
        if (root / "cgroup.controllers").exists():
            lacking = {"cpu", "io"} - {*(root / "cgroup.controllers").read_text().split()}
        else:
            lacking = {kind for kind in ("cpu", "blkio") if not (root / kind).is_dir()}
        if lacking or not os.access(root, os.W_OK):
            return f"no control groups here for {' and '.join(sorted(lacking)) or 'writing'}"
        return ""

    def create(self, node: str, first: bool = True) -> list[Path]:
        """Creates a node's groups. Returns the files into which its first process writes 0.

        :arg first: before other nodes. A login node is not: a real one has CPUs of its own, and
            here ReFrame, as it starts, would take those of nodes that are measured.
        """
        for folder in self._folders:
            if self.unified and not folder.exists():
                folder.mkdir()
                for parent in (self.root, folder):
                    (parent / "cgroup.subtree_control").write_text("+cpu +io")
            (folder / node).mkdir(parents=True, exist_ok=True)
        name, weight = WEIGHT[self.unified]
        for folder in (self._folders[0], *([self._folders[0] / node] if first else [])):
            (folder / name).write_text(weight)
        return [folder / node / "cgroup.procs" for folder in self._folders]

    def cpu(self, node: str, percent: float) -> None:
        """Limits a node to this part of one core; 0: no limit."""
        folder = self._folders[0] / node
        quota = max(1000, int(PERIOD * percent / 100))
        if self.unified:
            (folder / "cpu.max").write_text(f"{quota if percent else 'max'} {PERIOD}")
            return
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
        (folder / "cpu.cfs_quota_us").write_text(str(quota if percent else -1))

    def disk(self, node: str, device: str, rate: float) -> None:
        """Limits reads and writes of a device, ``7:3``, to a rate in MB/s."""
        limit = int(rate * 10**6)
        folder = self._folders[-1] / node
        if self.unified:
            (folder / "io.max").write_text(f"{device} rbps={limit} wbps={limit}")
            return
        for way in ("read", "write"):
            (folder / f"blkio.throttle.{way}_bps_device").write_text(f"{device} {limit}")

    def remove(self) -> None:
        """Removes all groups, once their last processes have ended."""
        for folder in self._folders:
            for group in (*folder.glob("*/"), folder):
                for _ in range(100):
                    with contextlib.suppress(FileNotFoundError):
                        try:
                            group.rmdir()
                        except OSError:
                            time.sleep(0.05)
                            continue
                    break
