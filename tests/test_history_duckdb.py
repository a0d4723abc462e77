"""The oldest DuckDB that is allowed reads the same history."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import asked
from histories import fom, line, mixed_, results_, store  # noqa: F401 - fixtures
from plumbline.core import paths
from reports import demo_  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the oldest DuckDB that pyproject.toml allows; Spack's is not much newer."""
    version = re.search(r'"duckdb>=([^"]+)"', (paths.ROOT / "pyproject.toml").read_text())[1]
    folder = tmp_path_factory.mktemp("duckdb")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--retries=0"]
    done = subprocess.run([*command, f"--target={folder}", f"duckdb=={version}.0"],
                          capture_output=True, text=True, check=False, timeout=300)  # fmt: skip
    if done.returncode:
        pytest.skip(f"DuckDB {version} cannot be downloaded: {done.stderr.strip()[-200:]}")
    return folder


#: Prints where DuckDB is, and what each command of standard input ends with and prints.
ASKED = """\
import json, sys
import duckdb
from conftest import asked
done = [asked(*words) for words in json.load(sys.stdin)]
print(json.dumps([duckdb.__file__, *((one.code, one.out, one.err) for one in done)]))
"""


def test_what_the_oldest_duckdb_reads_is_the_same(
    oldest: Path, mixed: Path, demo: Path, tmp_path: Path
):
    """Of cases without nodes, too."""
    store(mixed, line(day=9, nodes=[], conditions={}, foms=[fom(3.0)]))
    commands = [
        ("history", "export", "--from", mixed),
        ("history", "export", "--from", demo),
        ("history", "list", "--format=json", "--from", mixed),
        ("history", "nodes", "--format=json", "--from", demo),
        ("show", "--format=json", "--from", demo, "--system=alder"),
        ("trend", "--format=json", "--from", demo),
        ("screen", "--format=json", "--from", demo),
        ("compare", "--format=json", "--from", demo, "--system=alder", "last:20", "last:5"),
    ]
    env = os.environ | {"PYTHONPATH": f"{oldest}:{Path(__file__).parent}"}
    done = subprocess.run([sys.executable, "-c", ASKED], env=env, capture_output=True, text=True,
                          input=json.dumps(commands, default=str))  # fmt: skip
    assert done.returncode == 0, done.stderr
    used, *found = json.loads(done.stdout)
    assert Path(used).is_relative_to(oldest)
    for words, (code, out, err) in zip(commands, found, strict=True):
        newest = asked(*words)
        # Without their age in days, which may pass the next tenth meanwhile.
        outputs = [re.sub(r'"days": [\d.]+', "", text) for text in (out, newest.out)]
        assert (code, outputs[0]) == (newest.code, outputs[1]), err
