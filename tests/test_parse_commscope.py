"""The table of Comm|Scope, and what its reports say."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from captured import (
    CAPTURES,
    FOMS,
    NOT_PARSED,
    PROGRAM_ERROR,
    Program,
    changed,
    figures,
    read,
    refusal,
    text_of,
    whole,
)
from plumbline.parse import ParseError
from plumbline.parse.commscope import NAMES

COMM_REPORT = "commscope/v0120_memcpy_json_file"
COMM_REPEATED = "commscope/v0120_repetitions_json_file"
COMM_FIRST = r'(^ +"name": "libc_memcpy_NUMAToNUMA/0/0/log2\(N\):20",(?:.*\n)+?'
PROGRAM = Program(
    "commscope",
    # And all without a report in JSON, whatever their names end with.
    failed=r"(?:cuda_error|cuda_no_peer|nomatch|malloc)_json_file|(?<=/)(?!\w*json)\w+",
    closing=r"^}",
    others=["ior/v400_mpich_json", "fio/write_end_fsync", "osu/osu_bw"],
    reported="cuda_(?:error|no_peer)_json_file",
    cells=[
        (COMM_REPORT, rf'{COMM_FIRST} +"{key}": )[^,]+(,)')
        for key in ("real_time", "bytes_per_second", "bytes", "cpu_time")
    ],
    faults=[(COMM_REPORT, rf'{COMM_FIRST} +"real_time": )', r'\g<1>5, "real_time": ')],
)


def comm_entry(name: str, log: int | None, real_time: float, **fields: Any) -> dict[str, Any]:
    """An entry of Google Benchmark's report."""
    made = {
        "name": name,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
        "iterations": 100,
        "real_time": real_time,
        "cpu_time": real_time,
        "time_unit": "ns",
    }
    if log is not None:
        made["bytes"] = float(2**log)
        made["bytes_per_second"] = 2**log / (real_time * 1e-9) * (2 if "Duplex" in name else 1)
    return made | fields


def comm_report(*entries: dict[str, Any]) -> str:
    context = {"library_build_type": "release", "num_cpus": 64, "date": "2026-11-21"}
    return json.dumps({"context": context, "benchmarks": list(entries)}, indent=2)


def test_commscope_report_of_a_killed_run() -> None:
    text = (CAPTURES / "commscope" / "v0120_killed.json").read_text(encoding="utf-8")
    assert refusal("commscope", text) == NOT_PARSED


def test_commscope_every_name_has_registered_metrics() -> None:
    for what, _ in NAMES.values():
        alone = "bidir" in what or "numa_copy" in what
        ends = ["bandwidth"] if alone else ["latency", "bandwidth"]
        for end in ["latency"] if what in {"kernel_launch", "device_sync"} else ends:
            assert f"{what}_{end}" in FOMS["commscope"]


def test_commscope_host_copies() -> None:
    output = read(COMM_REPORT)
    assert list(figures(output)) == [
        f"numa_copy_bandwidth_{size}_numa0-numa0" for size in (4096, 2**20, 2**21, 2**22)
    ]
    assert output.inputs["library_build_type"] == "release"
    assert output.inputs["num_cpus"] == "2"
    assert list(output.inputs) == ["library_build_type", "num_cpus", "date"]
    found = whole("commscope/v0120_flush_json_file")
    assert next(iter(found)) == "numa_copy_flush_bandwidth_4096_numa0-numa0"


@pytest.mark.parametrize("which", ["cuda_gpu", "cuda_d2d", "cuda_kernel", "cuda_others", "memcpy"])
def test_commscope_every_benchmark_is_read(which: str) -> None:
    """Entry by entry, read without the parser's checks."""
    name = f"commscope/v0120_{which}_json_file"
    expected = set()
    for one in json.loads(text_of(name))["benchmarks"]:
        host = one["name"].startswith("libc")
        if "Duplex" not in one["name"] and not host:
            expected.add((one["real_time"], one["time_unit"]))
        if "bytes_per_second" in one:
            expected.add((one["bytes_per_second"] * (2 if host else 1), "B/s"))
    assert set(whole(name).values()) == expected


def test_commscope_gpu_copies() -> None:
    assert whole("commscope/v0120_cuda_gpu_json_file") == {
        "d2h_latency_256_gpu0": (3128.76159589618, "ns"),
        "d2h_bandwidth_256_gpu0": (81821510.57331462, "B/s"),
        "d2h_latency_1073741824_gpu0": (19500566.18079543, "ns"),
        "d2h_bandwidth_1073741824_gpu0": (55062084559.23929, "B/s"),
        "h2d_latency_256_gpu0": (4342.541492013666, "ns"),
        "h2d_bandwidth_256_gpu0": (58951653.1899137, "B/s"),
        "h2d_latency_1073741824_gpu0": (19510939.30337164, "ns"),
        "h2d_bandwidth_1073741824_gpu0": (55032810430.323524, "B/s"),
        "bidir_bandwidth_1073741824_gpu0": (87810583717.59128, "B/s"),
        "device_sync_latency_gpu0": (597.7809780520404, "ns"),
        "kernel_launch_latency_gpu0": (3768.3800656208377, "ns"),
    }
    assert {
        "d2d_latency_256_gpu0-gpu1",
        "d2d_peer_bandwidth_1073741824_gpu0-gpu1",
        "d2d_bidir_bandwidth_134217728_gpu0-gpu1",
        "d2d_bidir_peer_bandwidth_134217728_gpu0-gpu1",
    } <= set(whole("commscope/v0120_cuda_d2d_json_file"))


def test_commscope_the_program_has_every_benchmark_that_the_checks_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two GPUs and one NUMA domain: the program silently skips what does not exist."""
    path = Path(__file__).parents[1] / "checks" / "commscope.py"
    spec = importlib.util.spec_from_file_location("checks_commscope", path)
    checks = importlib.util.module_from_spec(spec)
    # ReFrame asks for the file of a check's class.
    monkeypatch.setitem(sys.modules, spec.name, checks)
    spec.loader.exec_module(checks)
    topology = SimpleNamespace(
        vendor="cuda",
        gpus=[SimpleNamespace(number=number, numa=0) for number in (0, 1)],
        pairs={"gpu-a": [(0, 1)]},
        os_number=int,
    )
    self = SimpleNamespace(topology=topology, placement="gpu-a")
    listed = text_of("commscope/v0120_cuda_list").splitlines()
    for check, number in (("gpu", 14), ("d2d", 6)):
        asked = getattr(checks, f"commscope_{check}").tests(self)
        assert len(asked) == number
        for name in asked:
            assert [line for line in listed if re.fullmatch(name, line)] == [name.replace("\\", "")]


def test_commscope_mean_of_repetitions() -> None:
    assert whole(COMM_REPEATED) == {
        # The timer adds each copy twice.
        "numa_copy_bandwidth_1048576_numa0-numa0": (2 * 2.1849039985088989e10, "B/s"),
    }
    report = json.loads(text_of(COMM_REPEATED))
    means = [one for one in report["benchmarks"] if one["run_type"] == "aggregate"]
    only = json.dumps(report | {"benchmarks": means})
    assert figures(read(COMM_REPEATED, only)) == whole(COMM_REPEATED)


COMM_CUDA, COMM_HIP = "Comm_cudaMemcpyAsync", "Comm_hipMemcpyAsync"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        (f"{COMM_CUDA}_PinnedToGPU/0/1", "h2d_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_PinnedToGPU_flush/0/1", "h2d_flush_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_GPUToPinned/0/1", "d2h_bandwidth_1048576_gpu1"),
        (f"{COMM_HIP}_PinnedToGPU/3/7", "h2d_bandwidth_1048576_gpu7"),
        (f"{COMM_CUDA}_HostToGPU/0/1", "h2d_pageable_bandwidth_1048576_gpu1"),
        (f"{COMM_HIP}_GPUToPageable/0/1", "d2h_pageable_bandwidth_1048576_gpu1"),
        ("Comm_hipMemcpy_GPUToNUMA/0/1", "d2h_blocking_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_GPUToGPU/0/1/2", "d2d_bandwidth_1048576_gpu1-gpu2"),
        (f"{COMM_HIP}_GPUToGPU/1/2", "d2d_bandwidth_1048576_gpu1-gpu2"),
        (f"{COMM_CUDA}_GPUToGPUPeer/1/2", "d2d_peer_bandwidth_1048576_gpu1-gpu2"),
        ("Comm_cudaMemcpyPeerAync_GPUToGPU/1/2", "d2d_peerasync_bandwidth_1048576_gpu1-gpu2"),
        (
            "Comm_cudaMemcpyPeerAsync_GPUToGPUPeer/1/2",
            "d2d_peerasync_peer_bandwidth_1048576_gpu1-gpu2",
        ),
        (f"{COMM_CUDA}_Duplex_Pinned/0/1", "bidir_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_Duplex_Host/0/1", "bidir_pageable_bandwidth_1048576_gpu1"),
        ("Comm_cudaMemcpyPeerAsync_Duplex_GPUGPU/0/3", "d2d_bidir_bandwidth_1048576_gpu0-gpu3"),
    ],
)
def test_commscope_copies_of_gpus(name: str, variable: str) -> None:
    made = comm_entry(f"{name}/log2(N):20/manual_time", 20, 50_000.0)
    found = figures(read("commscope", comm_report(made)))
    assert found.pop(variable) == (made["bytes_per_second"], "B/s")
    time = {} if "bidir" in variable else {variable.replace("bandwidth", "latency"): (5e4, "ns")}
    assert found == time


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("Comm_cudart_kernel/0/2/0/real_time/threads:1", "kernel_launch_latency_gpu2"),
        ("Comm_hip_kernel/0/2/0/real_time/threads:1", "kernel_launch_latency_gpu2"),
        ("Comm_cudart_kernel/0/2/256/real_time/threads:1", "kernel_launch_latency_256_gpu2"),
        ("Comm_cudaDeviceSynchronize/0/2/real_time/threads:1", "device_sync_latency_gpu2"),
        ("Comm_hipDeviceSynchronize/0/2/real_time/threads:1", "device_sync_latency_gpu2"),
    ],
)
def test_commscope_calls(name: str, variable: str) -> None:
    found = figures(read("commscope", comm_report(comm_entry(name, None, 1234.5, time_unit="us"))))
    assert found == {variable: (1234.5, "us")}


def test_commscope_one_gpu_from_several_domains() -> None:
    names = [f"{COMM_CUDA}_PinnedToGPU/{numa}/{gpu}" for numa, gpu in ((0, 0), (1, 0), (1, 1))]
    made = [comm_entry(f"{name}/log2(N):10/manual_time", 10, 100.0) for name in names]
    output = read("commscope", comm_report(*made))
    assert [fom.location for fom in output.foms[::2]] == ["numa0-gpu0", "numa1-gpu0", "gpu1"]


@pytest.mark.parametrize(
    "name",
    [
        "Comm_cudart_kernel/0/2/0/real_time/threads:2",
        "Comm_cudaDeviceSynchronize/0/2/real_time/threads:16",
        "Comm_cudaMemcpyAsync_Duplex_GPUGPUPeer/0/1/log2(N):20/manual_time",
        "Comm_cudart_cudaMallocManaged/0/log2(N):20",
        "Comm_cudaMemcpyAsync_GPUToWC/0/1/log2(N):20/manual_time",
    ],
)
def test_commscope_what_gives_no_figures(name: str) -> None:
    assert refusal("commscope", comm_report(comm_entry(name, 20, 50_000.0))) == NOT_PARSED


COMM_GPU = f"{COMM_CUDA}_PinnedToGPU/0/1/log2(N):20/manual_time"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"error_occurred": True, "error_message": "failed to memcpy"}, PROGRAM_ERROR),
        ({"error_message": "unexpected"}, PROGRAM_ERROR),
        ({"bytes": 2.0**21}, NOT_PARSED),
        ({"bytes_per_second": 1e9}, NOT_PARSED),
        ({"time_unit": "us"}, NOT_PARSED),
        ({"time_unit": "fortnight"}, NOT_PARSED),
        ({"run_type": "repetition"}, NOT_PARSED),
        ({"run_name": f"{COMM_CUDA}_PinnedToGPU/0/log2(N):20/manual_time"}, NOT_PARSED),
        ({"run_name": f"{COMM_CUDA}_PinnedToGPU/0/1/manual_time"}, NOT_PARSED),
        ({"run_name": 5}, NOT_PARSED),
        ({"repetition_index": 1}, NOT_PARSED),
        ({"repetitions": 2}, NOT_PARSED),
    ],
)
def test_commscope_fault_is_refused(fields: dict[str, Any], code: str) -> None:
    made = comm_entry(COMM_GPU, 20, 50_000.0)
    read("commscope", comm_report(made))
    assert refusal("commscope", comm_report(made | fields)) == code


def test_commscope_repetitions_have_one_mean() -> None:
    made = comm_entry(COMM_GPU, 20, 50_000.0)
    several = [made | {"repetitions": 2, "repetition_index": k} for k in (0, 1)]
    mean = made | {"run_type": "aggregate", "aggregate_name": "mean", "repetitions": 2}
    assert figures(read("commscope", comm_report(*several, mean))) == figures(
        read("commscope", comm_report(made))
    )
    wrong = ([made, made], several, [*several, mean, mean], [*several, mean | {"real_time": 1.0}])
    for entries in wrong:
        assert refusal("commscope", comm_report(*entries)) == NOT_PARSED


@pytest.mark.parametrize(
    "key", ["run_name", "run_type", "real_time", "time_unit", "bytes", "bytes_per_second"]
)
def test_commscope_fields_that_are_missing(key: str) -> None:
    made = comm_entry(COMM_GPU, 20, 50_000.0)
    del made[key]
    with pytest.raises(ParseError, match=key):
        read("commscope", comm_report(made))


def test_commscope_build_that_is_missing() -> None:
    text = changed(comm_report(comm_entry(COMM_GPU, 20, 5e4)), r'"library_build_type"', '"build"')
    with pytest.raises(ParseError, match="library_build_type"):
        read("commscope", text)
