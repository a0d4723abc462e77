"""Sessions of two cases that are cut short: in the middle, where one has ended and the other one
waits for the test, or by a disk that one fills.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BIN, PATIENCE, Testbed, stop

#: The session's cases: one in each of its environments.
PINGPONG = ["-n", "imb_p2p.*PingPong", "-S", "num_samples=1", "-S", "num_warmups=0"]

#: As many, whose records no full disk takes: a short one may still fit into the page that the one
#: before it began, and any into what the stage folder of a case leaves that is removed meanwhile.
FILLING = ["-n", "imb_p2p.*PingPong", "-S", "num_samples=2", "-S", "num_warmups=0",
           f"--session-extras=note={'x' * 16384}", "--keep-stage-files"]  # fmt: skip


@pytest.fixture(name="filling_disk")
def filling_disk_(testbed: Testbed, small_disk: Callable[[str], Path]) -> Path:
    """Has a testbed's results on a disk of 2 MB, and the file with which one of its two
    environments fills it."""
    disk = testbed.results = small_disk("2m")
    testbed.env["PLUMBLINE_RESULTS"] = str(disk)
    fill = disk / "fill"
    testbed.environment("quick", "imb")
    testbed.environment("fills", "imb", STANDIN_FILL=fill)
    testbed.write(max_jobs=1)
    return fill


@contextlib.contextmanager
def halfway(
    testbed: Testbed, *command: str, **env: object
) -> Iterator[tuple[subprocess.Popen, Path]]:
    """A command that began such a session, and the file by which the waiting case goes on; at the
    latest at the end of the test."""
    release, log = testbed.folder / "release", testbed.folder / "log"
    testbed.environment("quick", "imb")
    testbed.environment("waits", "imb", STANDIN_WAIT=release, STANDIN_LOG=log)
    process = testbed.start(BIN / "plumbline", *command, *PINGPONG, **env)
    try:
        wait_for(lambda: log.exists() and any(map(_recorded, testbed.session_folders())), process)
        yield process, release
    finally:
        release.touch()
        stop(process)


def _recorded(session: Path) -> bool:
    """Whether a record is whole: a session that runs may be in the middle of its line."""
    path = session / "records.jsonl"
    return path.exists() and path.read_bytes().endswith(b"\n")


def wait_for(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    """Waits until something holds while a process runs."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"it ended with {process.returncode}: {process.communicate()}")
        assert time.monotonic() < deadline, "the session did not come that far"
        time.sleep(0.05)
