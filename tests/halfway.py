"""Sessions in the middle: one case has ended, and the other one waits for the test."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BIN, Testbed, records_of, stop

#: The session's cases: one in each of its environments.
PINGPONG = ["-n", "imb_p2p.*PingPong", "-S", "num_samples=1", "-S", "num_warmups=0"]


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
        wait_for(lambda: log.exists() and any(map(records_of, testbed.session_folders())), process)
        yield process, release
    finally:
        release.touch()
        stop(process)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    """Waits until something holds while a process runs."""
    deadline = time.monotonic() + 60
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"it ended with {process.returncode}: {process.communicate()}")
        assert time.monotonic() < deadline, "the session did not come that far"
        time.sleep(0.05)
