"""Which row a figure is compared with: of those that match, the most specific one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from reference_tables import (
    CASE,
    LATENCY,
    decided,
    folder_,  # noqa: F401 - a fixture
    references,
    refused,
)

#: Cells of rows r1, r2 ... -> the row that decides, and its equals.
MATCHES = [
    ([], ""),
    ([{}], "r1"),
    # A stated cell must be met ...
    ([{"system": "elsewhere"}], ""),
    ([{"benchmark": "bench", "metric": "peak_bandwidth"}], ""),
    ([{"toolchain": "intel"}], ""),
    ([{"placement": "on-socket"}], ""),
    ([{"nodes": "2"}], ""),
    ([{"ppn": "1"}], ""),
    ([{"conditions": "port=03"}], ""),
    ([{"conditions": "routing=static"}], ""),
    ([{"conditions": "port=0330;routing=static"}], ""),
    ([{"conditions": "partition=debug"}], ""),
    ([{"message_size": "8"}], ""),
    # ... and then counts.
    ([{"toolchain": "gnu"}], "r1"),
    ([{"placement": "on-node", "nodes": "1", "ppn": "2", "conditions": "port=0330"}], "r1"),
    ([{"conditions": "partition=batch"}], "r1"),
    ([{}, {"toolchain": "gnu"}], "r2"),
    ([{"toolchain": "gnu"}, {"toolchain": "gnu", "nodes": "1"}], "r2"),
    ([{"toolchain": "gnu", "nodes": "1"}, {"conditions": "port=0330"}], "r1"),
    ([{"nodes": "1", "ppn": "1"}, {}], "r2"),
    # Equals are all named; the order of `decides` picks, then the id.
    ([{"toolchain": "gnu"}, {"placement": "on-node"}], "r1 r2"),
    ([{"statistic": "single"}, {"statistic": "mean"}, {"statistic": "best"}], "r2 r3 r1"),
    ([{"statistic": "unstated"}, {"statistic": "median"}], "r2 r1"),
    ([{"id": "z"}, {"id": "a", "source": "other"}], "a z"),
    # What is no measurement bounds nothing.
    ([{"kind": "peak"}], ""),
    ([{"kind": "target"}, {"kind": "derived"}], ""),
    ([{"statistic": "std"}], ""),
    ([{"statistic": "min"}, {"statistic": "max"}, {"statistic": "p99"}], ""),
    ([{"statistic": "std"}, {"statistic": "mean"}], "r2"),
    ([{"conditions": "bound=lower"}], ""),
    ([{"conditions": "bound=lower;port=0330"}, {}], "r2"),
    # Nor does a more specific row, or one of the site, hide one that does.
    ([{}, {"statistic": "std", "toolchain": "gnu"}], "r1"),
    ([{}, {"statistic": "max", "nodes": "1"}], "r1"),
    ([{}, {"source": "site", "id": "s", "statistic": "std", "value": "10"}], "r1"),
    # What only describes need not be met and makes nothing more specific.
    ([{"conditions": "runs=5"}], "r1"),
    ([{"conditions": "runs=5"}, {}], "r1 r2"),
    # A site's own rows win, even the less specific one.
    ([{"toolchain": "gnu", "placement": "on-node"}, {"source": "site"}], "r2"),
    ([{"toolchain": "gnu"}, {"source": "site", "id": "s", "statistic": "unstated"}], "s"),
    ([{"toolchain": "gnu"}, {"source": "site", "id": "s", "placement": "on-socket"}], "r1"),
    ([{"source": "site", "id": "s"}, {"source": "site", "id": "t", "nodes": "1"}], "t"),
]


@pytest.mark.parametrize(("rows", "ids"), MATCHES)
def test_matching(folder: Path, rows: list, ids: str) -> None:
    assert decided(references(folder, *rows)) == tuple(ids.split())


def test_a_part_of_a_gpu_is_not_compared_with_a_whole_one(folder: Path) -> None:
    """Nor the other way, by a published row or by a baseline."""
    part = dataclasses.replace(CASE, conditions={**CASE.conditions, "gpu_mode": "CPX/NPS4"})
    of_part = {"id": "p", "conditions": "gpu_mode=CPX/NPS4"}
    assert decided(references(folder, {}), part) == ()
    both = references(folder, {}, of_part)
    assert (decided(both), decided(both, part)) == (("r1",), ("p",))
    baseline = references(folder, {"source": "site", "id": "s"}, of_part | {"source": "site"})
    assert (decided(baseline), decided(baseline, part)) == (("s",), ("p",))


def test_a_baseline_bounds_only_the_variant_that_it_was_measured_under(folder: Path) -> None:
    variant = dataclasses.replace(CASE, conditions={**CASE.conditions, "variant": "tm-off"})
    site = {"source": "site", "id": "s"}
    of_variant = {"source": "site", "id": "v", "conditions": "variant=tm-off"}
    assert decided(references(folder, {}, site)) == ("s",)
    # A published row that states no variant bounds any.
    assert decided(references(folder, {}, site), variant) == ("r1",)
    both = references(folder, {}, site, of_variant)
    assert (decided(both), decided(both, variant)) == (("s",), ("v",))


#: Metric, size of the row, size asked for -> whether it matches.
SIZES = [
    ("bandwidth", "", None, True),
    ("bandwidth", "8", 8, True),
    ("bandwidth", "8", 16, False),
    ("bandwidth", "8", None, False),
    ("bandwidth", "", 8, False),
    ("bandwidth", "0", 0, True),
    ("bandwidth", "0", None, False),
    ("bandwidth", "", 0, False),
    # A latency that states no size is that of the small message that foms.yaml says.
    ("latency", "", 8, True),
    ("latency", "", 16, False),
    ("latency", "", 0, False),
    ("latency", "", None, True),
    ("latency", "16", 8, False),
    ("latency", "16", 16, True),
]


@pytest.mark.parametrize(("metric", "stated", "asked", "matches"), SIZES)
def test_size(folder: Path, metric: str, stated: str, asked: int | None, matches: bool) -> None:
    unit = {"bandwidth": "MB/s", "latency": "us"}[metric]
    refs = references(folder, {"metric": metric, "unit": unit, "message_size": stated})
    assert decided(refs, CASE, metric, asked) == (("r1",) if matches else ())


def test_stated_size_is_more_specific(folder: Path) -> None:
    refs = references(folder, LATENCY, LATENCY | {"message_size": "8"})
    assert decided(refs, CASE, "latency", 8) == ("r2",)


def test_metric_that_is_not_registered(folder: Path) -> None:
    with refused("foms.yaml", "'bench'", "'speed'", code="reference.unknown-metric"):
        references(folder, {}).judge(CASE, "speed", None, [1.0])
