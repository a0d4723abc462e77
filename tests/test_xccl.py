"""OSU over NCCL and RCCL: which systems have it, and the bandwidths that are computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import foreign
import pytest
import yaml
from dry_runs import DryRun
from plumbline.core import paths
from plumbline.reference import lookup
from plumbline.reference.row import Case

#: Systems with nodes that have several GPUs, and an environment of today.
WITH_GPUS = sorted(
    path.stem
    for path in (foreign.ROOT / "systems").glob("*.yaml")
    if path.stem not in ("local", "titan")
    and any(
        device["num_devices"] > 1
        for partition in yaml.safe_load(path.read_text())["systems"][0]["partitions"]
        for device in partition.get("devices", [])
    )
)

COLLECTIVES = ("allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter")


def test_systems_with_gpus() -> None:
    assert {"frontier", "perlmutter", "polaris", "summit"} <= set(WITH_GPUS)
    assert len(WITH_GPUS) == 11


@pytest.mark.parametrize("system", WITH_GPUS)
def test_every_system_with_gpus_has_the_checks(
    system: str, dry_run: Callable[[str], DryRun]
) -> None:
    names = {case.case.partition(" @")[0] for case in dry_run(system).cases}
    pairs = {f"osu_xccl_gpu %test={test} %placement=gpu-a" for test in ("latency", "bw", "bibw")}
    assert pairs <= names
    for check, placement in (("node", "gpus-on-node"), ("nodes", "gpus-off-node")):
        expected = {f"osu_xccl_{check} %test={t} %placement={placement}" for t in COLLECTIVES}
        assert expected <= names


def expected(test: str, size: int, ranks: int, microseconds: float) -> tuple[float, float]:
    """The algorithm's bandwidth and the bus bandwidth in MB/s: nccl-tests, doc/PERFORMANCE.md."""
    if test == "allreduce":
        return size / microseconds, size / microseconds * 2 * (ranks - 1) / ranks
    if test in ("bcast", "reduce"):
        return size / microseconds, size / microseconds
    if test == "reduce_scatter":
        whole = size - size % (4 * ranks)
        return whole / microseconds, whole / microseconds * (ranks - 1) / ranks
    return size * ranks / microseconds, size * (ranks - 1) / microseconds


@pytest.mark.parametrize(
    ("placement", "ranks"), [("gpus-on-node", 6), ("gpus-off-node", 12)]
)  # fmt: skip
def test_bandwidths_of_collectives(tmp_path: Path, placement: str, ranks: int) -> None:
    """Six GPUs a node: no vector of a power of two divides evenly."""
    found = foreign.session(tmp_path, "-n", f"osu_xccl.*{placement}", fault=None, system="summit")
    assert (found.code, len(found.records)) == (0, len(COLLECTIVES)), found.output
    for fields in found.records:
        foms = {(fom["metric"], fom["size"]): fom for fom in fields["foms"]}
        (test,) = {metric[5:-8] for metric, _ in foms if metric.endswith("_latency")}
        sizes = {size for metric, size in foms if metric.endswith("_bus_bandwidth")}
        largest = 4 if test in ("allgather", "alltoall") else 64
        assert sizes == {2**k for k in range(20, 27) if 2**k <= largest * 2**20}
        for size in sizes:
            latency = foms[f"xccl_{test}_latency", size]["value"]
            for which, value in zip(
                ("bandwidth", "bus_bandwidth"), expected(test, size, ranks, latency), strict=True
            ):
                fom = foms[f"xccl_{test}_{which}", size]
                assert fom["value"] == pytest.approx(value, rel=1e-9)
                assert (fom["unit"], fom["verdict"]) == ("MB/s", "not-asserted")
                assert fom["ceiling"] > fom["value"]


@pytest.mark.parametrize("system", ["frontier", "perlmutter", "polaris", "lassen"])
def test_a_peak_caps_collectives_on_any_number_of_nodes(system: str) -> None:
    """That of a GPU's memory is printed for one node; between nodes, the network's may be lower."""
    references = lookup.loaded(paths.ROOT / "reference")
    toolchains = {row.toolchain for row in references.rows if row.system == system}

    def ceiling(placement: str, nodes: int) -> float:
        found = [
            references.ceiling(
                Case(system, "", toolchain, "osu", placement, nodes, 4, {}),
                "xccl_allreduce_bus_bandwidth", 2**20,
            )
            for toolchain in toolchains
        ]  # fmt: skip
        (value,) = {one.value for one in found if one}
        return value

    assert ceiling("gpus-off-node", 2) == ceiling("gpus-off-node", 64) <= ceiling("gpus-on-node", 1)


def test_more_ranks_than_floats_are_not_measured(tmp_path: Path) -> None:
    many = ["-S", "osu_xccl_nodes.nodes=129", "-n", "osu_xccl_nodes%test=reduce_scatter"]
    found = foreign.session(tmp_path, *many, fault=None, system="frontier")
    fields = foreign.only(found)
    assert fields["result"] == "pass", found.output
    sizes = {f["size"] for f in fields["foms"] if f["metric"] == "xccl_reduce_scatter_latency"}
    # 1,032 ranks, and four bytes for each.
    assert min(sizes) == 8192


def test_between_nodes_is_not_within_one(tmp_path: Path) -> None:
    one = ["-S", "osu_xccl_nodes.nodes=1", "-n", "osu_xccl_nodes%test=bcast"]
    fields = foreign.only(foreign.session(tmp_path, *one, fault=None, system="summit"))
    assert (fields["result"], fields["code"]) == ("skip", "placement.too-few-nodes")
