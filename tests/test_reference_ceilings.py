"""Ceilings: what the peaks of links, GPUs and disks cap."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.reference import lookup
from plumbline.reference.row import Case
from plumbline.reference.tables import load
from reference_tables import (
    CASE,
    folder_,  # noqa: F401 - a fixture
    references,
    write,
)


def test_the_peak_of_a_gpu_caps_its_parts(folder: Path) -> None:
    """But not what two parts of one GPU exchange, and a part may be quicker than the whole."""
    conditions = {**CASE.conditions, "gpu_mode": "CPX/NPS4"}
    part = dataclasses.replace(CASE, conditions=conditions, placement="per-gpu")
    pair = dataclasses.replace(part, placement="gpu-a")
    all_of_a_node = dataclasses.replace(part, placement="gpus-on-node")
    peak = {"id": "w", "kind": "peak", "value": "200"}
    known = references(folder, peak)
    capped = [known.ceiling(case, "bandwidth", None) for case in (part, pair, all_of_a_node)]
    assert [cap and cap.row for cap in capped] == ["w", None, None]
    # That of the part itself, if it is lower.
    of_part = {"id": "p", "kind": "peak", "value": "50", "conditions": "gpu_mode=CPX/NPS4"}
    both = references(folder, peak, of_part)
    assert [both.ceiling(case, "bandwidth", None).row for case in (part, pair)] == ["p", "p"]
    whole = dataclasses.replace(part, conditions=CASE.conditions)
    assert both.ceiling(whole, "bandwidth", None).row == "w"
    quick = references(folder, {"id": "l", "kind": "peak", "metric": "latency", "unit": "us"})
    assert quick.ceiling(part, "latency", None) is None
    assert quick.ceiling(whole, "latency", None).row == "l"


#: System, benchmark, placement, nodes, conditions of a case, metric -> its ceiling in its unit,
#: and the row that prints the peak. Each is the printed peak, and half of its last digit.
SHARED, OWN_DISK = {"storage": "shared"}, {"storage": "node-local"}
CAPPED = [
    ("summit", "commscope", "gpu-a", 1, {}, "d2d_bandwidth", 50.5, "summit-nvlink-d2d"),
    ("summit", "commscope", "gpu-b", 1, {}, "d2d_bandwidth", 64.5, "summit-architecture-smp-bus"),
    ("summit", "osu", "gpu-a", 1, {}, "bandwidth", 50500, "summit-nvlink-d2d"),
    ("summit", "osu", "gpu-a", 1, {}, "bibandwidth", 101000, "summit-nvlink-d2d"),
    ("reedbush-h", "osu", "gpu-a", 1, {}, "bandwidth", 41000, "reedbush-h-nvlink"),
    ("sierra", "commscope", "per-gpu", 1, {}, "bidir_bandwidth", 151, "sierra-nvlink-gpu-link"),
    ("reedbush-h", "commscope", "per-gpu", 1, {}, "h2d_bandwidth", 15.75, "reedbush-h-commscope"),
    ("tioga", "commscope", "per-gpu", 1, {}, "h2d_bandwidth", 36.5, "tioga-infinity-fabric-host"),
    ("rzvernal", "commscope", "per-gpu", 1, {}, "bidir_bandwidth", 73, "rzvernal-infinity-fabric-"),
    ("lassen", "osu", "gpu-b", 1, {}, "bandwidth", 900500, "lassen-babelstream"),
    ("summit", "osu", "off-node", 2, {}, "bandwidth", 25100, "summit-architecture-injection"),
    ("summit", "imb", "off-node", 2, {}, "exchange_bandwidth", 50200, "summit-architecture-inj"),
    ("reedbush-u", "osu", "off-rack", 2, {}, "bandwidth", 12562.5, "reedbush-u-imb"),
    ("xt5", "osu", "off-node", 2, {}, "bandwidth", 4850, "xt5-network-link"),
    ("summit", "gpcnet", "tasks-per-node", 10, {}, "random_ring_sync_bandwidth",
     25100e6 / 2**20, "summit-architecture-injection"),
    ("summit", "ior", "tasks-per-node", 12, SHARED, "read_bandwidth", 12 * 25100e6 / 2**20,
     "summit-architecture-injection"),
    ("summit", "ior", "tasks-per-node", 2, OWN_DISK, "write_bandwidth", 2 * 2150e6 / 2**20,
     "summit-fio-write-bandwidth-device"),
    ("summit", "ior", "tasks-per-node", 2, SHARED, "cached_read_bandwidth", None, ""),
    ("titan", "ior", "tasks-per-node", 9000, SHARED, "read_bandwidth", 1.05e12 / 2**20,
     "titan-ior-filesystem"),
    ("eagle", "babelstream", "one-core", 1, {}, "triad", 255.915, "eagle-babelstream"),
    ("summit", "babelstream", "all-gpus", 1, {}, "triad", 900.5, "summit-babelstream"),
    # A cache may answer between cores of a node, and a bound from below is no peak.
    ("summit", "osu", "on-node", 1, {}, "bandwidth", None, ""),
    ("theta", "babelstream", "one-core", 1, {}, "triad", None, ""),
    ("summit", "osu", "off-node", 2, {}, "latency", None, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("system", "benchmark", "placement", "nodes", "conditions", "metric", "ceiling", "row"), CAPPED
)
def test_what_crosses_a_link_is_capped_by_its_peak(
    system: str,
    benchmark: str,
    placement: str,
    nodes: int,
    conditions: dict,
    metric: str,
    ceiling: float | None,
    row: str,
) -> None:
    refs = lookup.loaded(paths.reference())
    case = Case(system, "batch", "x", benchmark, placement, nodes, 2, conditions)
    found = refs.ceiling(case, metric, 8 if benchmark in ("osu", "imb") else None)
    if ceiling is None:
        assert found is None
    else:
        assert found.value == pytest.approx(ceiling)
        assert found.row.startswith(row)


def test_no_published_value_is_above_its_ceiling() -> None:
    refs = lookup.loaded(paths.reference())
    for row in refs.rows:
        fom = refs.fom(row.benchmark, row.metric)
        if row.kind == "measured" and refs.may_decide(row) and refs.rule(fom).better == "higher":
            nodes = row.nodes or 10000
            conditions = {"storage": "shared"} | row.conditions
            placed = row.placement or "tasks-per-node"
            case = Case(row.system, "", row.toolchain, row.benchmark, placed, nodes,
                        row.ppn or 1, conditions)  # fmt: skip
            ceiling = refs.ceiling(case, row.metric, row.message_size)
            assert ceiling is None or row.used(fom.unit)[0] <= ceiling.value, row.id


LINK = {"what": "a link", "peaks": ["bench/peak_bandwidth"], "carries": {"t": 1}, "reason": "so"}
TRAFFIC = {"t": {"metrics": ["bench/bandwidth"]}}


@pytest.mark.parametrize(
    ("link", "traffic", "words"),
    [
        ({"peaks": ["bench/peak"]}, {}, "'bench/peak'"),
        ({}, {"metrics": ["bench/bandwith"]}, "'bench/bandwith'"),
        ({}, {"where": {"prt": "1"}}, "'prt'"),
        ({"count": "prts"}, {}, "'prts'"),
        ({"carries": {"t": 1, "u": 1}}, {}, "'u'"),
        ({"carries": {"t": 0}}, {}, "links.a.carries.t: "),
        ({"reason": ""}, {}, "links.a.reason: "),
        ({"caps": 3}, {}, "links.a.caps: "),
        # Nothing carries the traffic.
        (None, {}, "'t'"),
    ],
)
def test_faulty_links_are_refused(folder: Path, link: dict | None, traffic: dict, words: str):
    links = {} if link is None else {"a": LINK | link}
    content = {"links": links, "traffic": {"t": TRAFFIC["t"] | traffic}}
    (folder / "links.yaml").write_text(yaml.safe_dump(content))
    write(folder / "paper.csv", {})
    with pytest.raises(Fault, match=re.escape(words)) as refusal:
        load(folder)
    assert refusal.value.code in ("input.wrong-file", "reference.wrong-table")
