"""What docs/security.md promises: each of its lines has a test, and files and secrets are here."""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Testbed
from plumbline.core import paths

PAGE = paths.ROOT / "docs" / "security.md"
SECRET = "sesame-7f3c9a"


@pytest.fixture(scope="module")
def session(make_testbed: Callable[..., Testbed]) -> Path:
    """A session's folder: the account has the usual umask, and a secret in its environment."""
    testbed = make_testbed()
    testbed.environment("mpich", "imb")
    before = os.umask(0o022)
    try:
        done = testbed.plumbline("run", "-n", "imb_p2p.*PingPong", SITE_API_TOKEN=SECRET)
    finally:
        os.umask(before)
    assert done.code == 0, done.output
    return done.session


@pytest.mark.holds("results-modes")
def test_nobody_else_may_write_what_a_session_leaves(session: Path):
    results = session.parents[1]
    everything = [results, *results.rglob("*")]
    assert len(everything) > 10
    for path in everything:
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            assert not mode & (stat.S_IWGRP | stat.S_IWOTH), f"{path} has mode {mode:o}"


@pytest.mark.holds("secrets")
def test_no_secret_of_the_environment_is_kept(session: Path):
    results = session.parents[1]
    files = [path for path in results.rglob("*") if path.is_file()]
    assert session / "records.jsonl" in files
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), f"{path} holds it"


def marked() -> Iterator[tuple[str, str]]:
    """The lines that tests are marked with, and the test of each."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for test in ast.parse(file.read_text()).body:
            for mark in getattr(test, "decorator_list", []):
                if ast.unparse(mark).startswith("pytest.mark.holds("):
                    yield ast.literal_eval(mark.args[0]), f"{file.name}::{test.name}"


def test_each_line_of_the_page_has_a_test():
    lines = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.M)
    assert len(lines) == len(set(lines)) > 10
    held = dict(marked())
    assert [line for line in lines if line not in held] == []
    assert {line: test for line, test in held.items() if line not in lines} == {}
