"""What docs/security.md promises of files and secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from conftest import Testbed

SECRET = "sesame-7f3c9a"


@pytest.fixture
def session(testbed: Testbed) -> Path:
    """A session's folder: the account has the usual umask, and a secret in its environment."""
    testbed.environment("mpich", "imb")
    before = os.umask(0o022)
    try:
        done = testbed.plumbline("run", "-n", "imb_p2p.*PingPong", SITE_API_TOKEN=SECRET)
    finally:
        os.umask(before)
    assert done.code == 0, done.said
    return done.session


def test_nobody_else_may_write_what_a_session_leaves(session: Path):
    results = session.parents[1]
    everything = [results, *results.rglob("*")]
    assert len(everything) > 10
    for path in everything:
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            assert not mode & (stat.S_IWGRP | stat.S_IWOTH), f"{path} has mode {mode:o}"


def test_no_secret_of_the_environment_is_kept(session: Path):
    results = session.parents[1]
    files = [path for path in results.rglob("*") if path.is_file()]
    assert session / "records.jsonl" in files
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), f"{path} holds it"
