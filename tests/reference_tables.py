"""Reference tables and registers of tests, in a folder of each, and a case that they match."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from plumbline.core.errors import Fault
from plumbline.reference.lookup import References
from plumbline.reference.row import Case
from plumbline.reference.tables import load

SHIPPED = Path(__file__).parents[1] / "reference"

#: A class of figures of which one run says little.
DISTRIBUTED = {"floor": 0, "spreads": 3, "distribution": True, "samples": 3, "reason": "it varies"}

#: Registers with round numbers, so that the tests' arithmetic is done by hand.
REGISTERS = {
    "sources.yaml": {
        "site": {"title": "Site baseline"},
        "paper": {"title": "A paper", "venue": "SC", "year": 2030},
        "other": {"title": "Another paper"},
    },
    "conditions.yaml": {
        "partition": {"meaning": "the partition"},
        "port": {"meaning": "the ports in use"},
        "routing": {"meaning": "static or adaptive"},
        "variant": {"meaning": "the variant"},
        "gpu_mode": {"meaning": "how GPUs are divided"},
        "runs": {"meaning": "runs behind the mean", "role": "describes"},
        "bound": {"meaning": "the number is a bound", "role": "data"},
    },
    "tolerance.yaml": {
        "classes": {
            "up": {"better": "higher", "floor": 0.05, "spreads": 3, "reason": "more is better"},
            "down": {"better": "lower", "floor": 0.10, "spreads": 3, "reason": "less is better"},
            "noisy": DISTRIBUTED | {"better": "lower"},
            "noisy-up": DISTRIBUTED | {"better": "higher"},
            "data": {"better": "neither", "floor": 0, "spreads": 0, "reason": "nothing to hold"},
        },
        "decides": ["median", "mean", "best", "single", "unstated"],
        "warning": {"share": 0.8, "reason": "most of what is allowed"},
        "wide": {"loss": 0.33, "reason": "too wide"},
        "suspicious": {"distances": 2, "times": 1.5, "reason": "too good"},
        "baseline": {"sessions": 3, "noise": 0.15, "alarms": 0.001},
    },
    "links.yaml": {},
    "foms.yaml": {
        "bench": [
            {"class": "up", "unit": "MB/s", "metrics": ["bandwidth", "peak_bandwidth"]},
            {"class": "up", "unit": "MB/s", "unstated_size": 4096, "metrics": ["capped"],
             "ceilings": ["bench/peak_bandwidth"]},
            {"class": "down", "unit": "us", "resolution": 0.01, "unstated_size": 8,
             "metrics": ["latency"]},
            {"class": "noisy", "unit": "us", "metrics": ["ring"]},
            {"class": "noisy-up", "unit": "MB/s", "metrics": ["ring_bandwidth"]},
            {"class": "data", "unit": "percent", "metrics": ["share"]},
        ],
        "other": [
            {"class": "up", "unit": "GB/s", "same_as": ["bench/bandwidth", "bench/capped"],
             "metrics": ["stream"]},
        ],
    },
}  # fmt: skip

COLUMNS = [
    *("id", "source", "locator", "system", "toolchain", "benchmark", "metric", "placement"),
    *("message_size", "nodes", "ppn", "conditions", "value", "spread", "unit"),
    *("value_used", "unit_used", "statistic", "kind", "note"),
]

#: What a row says that a test does not change.
ROW = {
    "id": "r",
    "source": "paper",
    "locator": "table 1",
    "system": "sys",
    "benchmark": "bench",
    "metric": "bandwidth",
    "value": "1000",
    "unit": "MB/s",
    "statistic": "unstated",
    "kind": "measured",
}

LATENCY = {"metric": "latency", "unit": "us", "value": "10"}

#: A row of a distribution that decides.
RING = LATENCY | {"metric": "ring", "spread": "2.0", "statistic": "mean", "value": "10.0"}

CASE = Case("sys", "batch", "gnu", "bench", "on-node", 1, 2, {"port": "0330"})


def registers(folder: Path) -> Path:
    """Writes what tables need beside them into a folder."""
    for name, content in REGISTERS.items():
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


@pytest.fixture(name="folder")
def folder_(tmp_path: Path) -> Path:
    return registers(tmp_path)


@contextmanager
def refused(*words: str, code: str = "reference.wrong-table") -> Iterator[None]:
    """A refusal with this code, whose message has these words."""
    with pytest.raises(Fault) as refusal:
        yield
    assert refusal.value.code == code
    assert [word for word in words if word not in str(refusal.value)] == []


def write(path: Path, *rows: dict, columns: list[str] = COLUMNS) -> None:
    """Writes a table; each row changes some cells of the usual one."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(ROW | {"id": f"r{n}"} | row for n, row in enumerate(rows, start=1))


def references(folder: Path, *rows: dict) -> References:
    """The references of published rows, and of a site's own where a row says so."""
    named = [{"id": f"r{n}"} | row for n, row in enumerate(rows, start=1)]
    write(folder / "paper.csv", *(row for row in named if row.get("source") != "site"))
    write(folder / "sys.csv", *(row for row in named if row.get("source") == "site"))
    return References(load(folder))


def changed(name: str, *keys: object) -> str:
    """A register with one entry changed: the keys to it, then what takes its place."""
    content = yaml.safe_load(yaml.safe_dump(REGISTERS[name]))
    inner = content
    for key in keys[:-2]:
        inner = inner[key]
    inner[keys[-2]] = keys[-1]
    return yaml.safe_dump(content, sort_keys=False)


def decided(refs: References, case: Case = CASE, metric: str = "bandwidth", size=None) -> tuple:
    """Id of the row that decides, then those of its equals."""
    bounds = refs.bounds(case, metric, size)
    return (bounds.decides, *bounds.others) if bounds else ()
