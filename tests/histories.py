"""Sessions and their lines for tests of the history, in a results folder of each test."""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import records
from conftest import Done, asked
from plumbline.history.history import History
from plumbline.history.series import Selection

NIGHT, DAY_2 = "20261101T010000Z-000001", "20261102T010000Z-000002"


def fom(value: float = 10.0, **fields: object) -> dict:
    """A figure of merit as a record has it, of two samples."""
    about = {
        "metric": "latency",
        "size": 8,
        "placement": "on-node",
        "unit": "us",
        "samples": [value, value + 1],
        "summary": {"min": value, "median": value, "mean": value, "max": value + 1, "std": 0.0},
        "better": "lower",
        "verdict": "pass",
        "upper": 12.5,
        "reference": "r1",
    }
    return records.figure(value, **{**about, **fields})


def line(second: int = 0, day: int = 1, foms: list[dict] | None = None, **fields: object) -> dict:
    """A record; its case ended some seconds after the day's first hour."""
    ended = datetime.datetime(2026, 11, day, 1) + datetime.timedelta(seconds=second)
    about = {
        "session": f"202611{day:02}T010000Z-{day:06x}",
        "time": f"{ended:%Y-%m-%dT%H:%M:%SZ}",
        "system": "alpha",
        "check": "osu_latency %placement=on-node",
        "case": f"{second & 0xFFFFFFFF:08x} @alpha:cpu+gnu",
        "benchmark": "osu",
        "program": "osu_latency",
        "version": "7.5",
        "placement": "on-node",
        "conditions": {"window": "64", "buffers": "host"},
        "tags": ["nightly"],
        "nodes": ["n1", "n2"],
        "jobid": "7",
        "samples": 2,
        "warmups": 1,
        "build": {"sha256": "a" * 64},
        "extras": {"maintenance": "before"},
        "output": "output/x",
        "seconds": {"total": 1.0, "samples": [0.5]},
        "foms": [fom()] if foms is None else foms,
    }
    return records.unvalidated(**{**about, **fields})


def store(results: Path, *lines: dict | bytes | str, plan: int | None = 1, name: str = "") -> Path:
    """Writes a session's folder with these lines, and a plan of as many cases."""
    session = name or next((x["session"] for x in lines if isinstance(x, dict)), NIGHT)
    folder = results / "sessions" / session
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "records.jsonl").open("wb") as file:
        for fields in lines:
            if isinstance(fields, dict):
                fields = records.dumps(fields | {"session": session}) + "\n"
            file.write(fields if isinstance(fields, bytes) else fields.encode())
    if plan is not None:
        extras = next((x["extras"] for x in lines if isinstance(x, dict)), {})
        cases = [*(x["case"] for x in lines if isinstance(x, dict)), *map(str, range(plan))]
        planned = records.plan(session, cases[:plan], extras=extras, system="alpha")
        (folder / "plan.json").write_text(planned)
    return folder


@pytest.fixture(name="own_cache", autouse=True)
def own_cache_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PLUMBLINE_RESULTS", raising=False)
    return tmp_path / "cache"


@pytest.fixture(name="results")
def results_(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def run(*arguments: object) -> Done:
    """Runs ``plumbline history``."""
    return asked("history", *arguments)


def rows_of(*arguments: object) -> list[dict]:
    """The sessions that it lists, as JSON."""
    return json.loads(run("list", "--format=json", *arguments).out)


def values_of(results: Path, select: Selection | None = None) -> list[float]:
    with History(results) as found:
        return [v for series in found.series(select or Selection()) for v in series.values]


@contextlib.contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen]:
    """Another process, which holds a lock until its input ends."""
    code = (
        "import sys, fasteners\n"
        "with fasteners.InterProcessLock(sys.argv[1]): print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


@pytest.fixture(name="mixed")
def mixed_(results: Path) -> Path:
    """Three sessions of two systems."""
    store(results, line(day=1), line(1, placement="off-node", check="osu_bw %placement=off-node",
          foms=[fom(metric="bw", placement="off-node", value=20.0), fom(30.0)]))  # fmt: skip
    store(results, line(day=2, extras={"maintenance": "after", "who": "x"}, foms=[fom(40.0)]))
    store(results, line(day=3, system="beta", partition="gpu", environment="cray", benchmark="ior",
                        foms=[fom(50.0)]), line(4, day=3, foms=[], result="skip",
                        placement="off-node", reason="no GPU"))  # fmt: skip
    return results
