"""What the tests use of the machine that they run on: two cores, and a PATH without benchmarks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent

#: Names of the benchmarks' programs.
PROGRAM = re.compile(
    r"IMB-MPI1|comm_scope|fio|hpcc|ior|mdtest|network_(load_)?test|osu_\w+|\w+-stream"
)


@functools.cache
def two_cores() -> tuple[int, int]:
    """Return two usable CPUs on two cores of one socket.

    Each test system has these, so that the captures' two tasks fit on it on any machine.
    """
    seen: dict[str, dict[str, int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            socket, core = [
                (folder / name).read_text().strip() for name in ("physical_package_id", "core_id")
            ]
        except OSError:
            continue
        cores = seen.setdefault(socket, {})
        cores.setdefault(core, cpu)
        if len(cores) == 2:
            first, second = cores.values()
            return first, second
    pytest.skip("needs two usable cores on one socket")


@functools.cache
def plain_path() -> str:
    """Return a PATH without the benchmarks' programs, which a test adds itself."""
    folder = tempfile.TemporaryDirectory(prefix="plumbline-path-")
    atexit.register(folder.cleanup)
    for listed in os.get_exec_path():
        with contextlib.suppress(OSError):
            for program in os.scandir(listed):
                with contextlib.suppress(FileExistsError):
                    if not PROGRAM.fullmatch(program.name) and Path(listed) != BIN:
                        Path(folder.name, program.name).symlink_to(Path(listed, program.name))
    return folder.name
