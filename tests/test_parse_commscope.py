"""The parser of Comm|Scope: real captures, read exactly; reports of GPUs, by the program's own and
made after the source; damage, refused.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import damage
import pytest
from damage import FOMS, changed, figures, read, text_of
from plumbline.parse import ParseError
from plumbline.parse.commscope import NAMES

#: Reports: files of ``--benchmark_out``, and what stood on standard output.
GOOD = [
    "commscope/v0120_cuda_d2d_json_file",
    "commscope/v0120_cuda_gpu_json_file",
    "commscope/v0120_cuda_kernel_json_file",
    "commscope/v0120_cuda_others_json_file",
    "commscope/v0120_flush_json_file",
    "commscope/v0120_memcpy_json_file",
    "commscope/v0120_memcpy_json_stdout",
    "commscope/v0120_repetitions_json_file",
]
FAILED = {
    "commscope/v0120_cuda_error_json_file": "GPUToPinned.* failed: .*failed to perform memcpy",
    "commscope/v0120_cuda_no_peer_json_file": "failed: failed to enable peer access to gpu1",
    "commscope/v0120_nomatch_json_file": "JSON report is missing",
    "commscope/v0120_malloc_json_file": "no figure of merit",
}

REPORT = "commscope/v0120_memcpy_json_file"
REPEATED = "commscope/v0120_repetitions_json_file"


def entry(name: str, log: int | None, real_time: float, **fields: Any) -> dict[str, Any]:
    """What Google Benchmark writes of one benchmark."""
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


def report(*entries: dict[str, Any]) -> str:
    context = {"library_build_type": "release", "num_cpus": 64, "date": "2026-11-21"}
    return json.dumps({"context": context, "benchmarks": list(entries)}, indent=2)


def test_every_output_without_json_is_refused() -> None:
    names = [name for name in damage.names_of("commscope") if "json" not in name]
    assert len(names) > 5
    for name in names:
        with pytest.raises(ParseError, match="JSON report is missing"):
            read(name)
    text = (damage.CAPTURES / "commscope" / "v0120_killed.json").read_text(encoding="utf-8")
    with pytest.raises(ParseError, match="no whole JSON report"):
        read("commscope", text)


def test_every_capture_of_a_report_is_in_a_table() -> None:
    there = {f"commscope/{p.stem}" for p in (damage.CAPTURES / "commscope").glob("*_json_file.out")}
    assert {name for name in there if "v0120" in name} == {
        name for name in [*GOOD, *FAILED] if name.endswith("file")
    }


def test_every_name_has_registered_metrics() -> None:
    for what, _ in NAMES.values():
        ends = ["bandwidth"] if "bidir" in what else ["latency", "bandwidth"]
        for end in ["latency"] if what in {"kernel_launch", "device_sync"} else ends:
            assert f"{what}_{end}" in FOMS["commscope"]


def test_host_copies() -> None:
    output = read(REPORT)
    assert (output.tasks, output.version) == (None, "")
    assert figures(output) == {
        "numa_copy_latency_4096_numa0-numa0": (4.3299247770377151e03, "ns"),
        "numa_copy_bandwidth_4096_numa0-numa0": (9.5734681677266455e08, "B/s"),
        "numa_copy_latency_1048576_numa0-numa0": (4.6971443728338898e04, "ns"),
        "numa_copy_bandwidth_1048576_numa0-numa0": (2.2406953398849693e10, "B/s"),
        "numa_copy_latency_2097152_numa0-numa0": (9.1500729664594081e04, "ns"),
        "numa_copy_bandwidth_2097152_numa0-numa0": (2.2941025150989155e10, "B/s"),
        "numa_copy_latency_4194304_numa0-numa0": (1.5677392236875815e05, "ns"),
        "numa_copy_bandwidth_4194304_numa0-numa0": (2.6766417799819439e10, "B/s"),
    }
    assert output.inputs["library_build_type"] == "release"
    assert output.inputs["num_cpus"] == "2"
    assert list(output.inputs) == ["library_build_type", "num_cpus", "date"]
    found = figures(read("commscope/v0120_flush_json_file"))
    assert list(found)[:2] == [
        "numa_copy_flush_latency_4096_numa0-numa0",
        "numa_copy_flush_bandwidth_4096_numa0-numa0",
    ]
    assert read("commscope/v0120_memcpy_json_stdout").version == "0.12.0"


@pytest.mark.parametrize("which", ["gpu", "d2d", "kernel", "others"])
def test_every_benchmark_of_a_cuda_build_is_read(which: str) -> None:
    """Entry by entry, read without any of the parser's care."""
    name = f"commscope/v0120_cuda_{which}_json_file"
    expected = set()
    for one in json.loads(text_of(name))["benchmarks"]:
        if "Duplex" not in one["name"]:
            expected.add((one["real_time"], one["time_unit"]))
        if "bytes_per_second" in one:
            expected.add((one["bytes_per_second"], "B/s"))
    assert set(figures(read(name)).values()) == expected


def test_gpu_copies() -> None:
    assert figures(read("commscope/v0120_cuda_gpu_json_file")) == {
        "d2h_latency_256_gpu0": (5.9746325264442070e01, "ns"),
        "d2h_bandwidth_256_gpu0": (4.2847823504947505e09, "B/s"),
        "d2h_latency_1073741824_gpu0": (1.0246349658284868e08, "ns"),
        "d2h_bandwidth_1073741824_gpu0": (1.0479261979233814e10, "B/s"),
        "h2d_latency_256_gpu0": (7.2282961981036109e01, "ns"),
        "h2d_bandwidth_256_gpu0": (3.5416368253858109e09, "B/s"),
        "h2d_latency_1073741824_gpu0": (1.6472776979207993e08, "ns"),
        "h2d_bandwidth_1073741824_gpu0": (6.5182805871486111e09, "B/s"),
        "bidir_bandwidth_1073741824_gpu0": (4.0889975907775064e09, "B/s"),
        "device_sync_latency_gpu0": (4.7262752577423193e01, "ns"),
        "kernel_launch_latency_gpu0": (2.6579119088025817e02, "ns"),
    }
    assert {
        "d2d_latency_256_gpu0-gpu1",
        "d2d_peer_bandwidth_1073741824_gpu0-gpu1",
        "d2d_bidir_bandwidth_134217728_gpu0-gpu1",
        "d2d_bidir_peer_bandwidth_134217728_gpu0-gpu1",
    } <= set(figures(read("commscope/v0120_cuda_d2d_json_file")))


def test_the_program_has_every_benchmark_that_the_checks_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two GPUs and one NUMA domain: what is not there, the program leaves out in silence."""
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


def test_mean_of_repetitions() -> None:
    assert figures(read(REPEATED)) == {
        "numa_copy_latency_1048576_numa0-numa0": (4.8096845727354237e04, "ns"),
        "numa_copy_bandwidth_1048576_numa0-numa0": (2.1849039985088989e10, "B/s"),
    }
    whole = json.loads(text_of(REPEATED))
    means = [one for one in whole["benchmarks"] if one["run_type"] == "aggregate"]
    only = json.dumps(whole | {"benchmarks": means})
    assert figures(read(REPEATED, only)) == figures(read(REPEATED))


CUDA, HIP = "Comm_cudaMemcpyAsync", "Comm_hipMemcpyAsync"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        (f"{CUDA}_PinnedToGPU/0/1", "h2d_bandwidth_1048576_gpu1"),
        (f"{CUDA}_PinnedToGPU_flush/0/1", "h2d_flush_bandwidth_1048576_gpu1"),
        (f"{CUDA}_GPUToPinned/0/1", "d2h_bandwidth_1048576_gpu1"),
        (f"{HIP}_PinnedToGPU/3/7", "h2d_bandwidth_1048576_gpu7"),
        (f"{CUDA}_HostToGPU/0/1", "h2d_pageable_bandwidth_1048576_gpu1"),
        (f"{HIP}_GPUToPageable/0/1", "d2h_pageable_bandwidth_1048576_gpu1"),
        ("Comm_hipMemcpy_GPUToNUMA/0/1", "d2h_blocking_bandwidth_1048576_gpu1"),
        (f"{CUDA}_GPUToGPU/0/1/2", "d2d_bandwidth_1048576_gpu1-gpu2"),
        (f"{HIP}_GPUToGPU/1/2", "d2d_bandwidth_1048576_gpu1-gpu2"),
        (f"{CUDA}_GPUToGPUPeer/1/2", "d2d_peer_bandwidth_1048576_gpu1-gpu2"),
        ("Comm_cudaMemcpyPeerAync_GPUToGPU/1/2", "d2d_peerasync_bandwidth_1048576_gpu1-gpu2"),
        (
            "Comm_cudaMemcpyPeerAsync_GPUToGPUPeer/1/2",
            "d2d_peerasync_peer_bandwidth_1048576_gpu1-gpu2",
        ),
        (f"{CUDA}_Duplex_Pinned/0/1", "bidir_bandwidth_1048576_gpu1"),
        (f"{CUDA}_Duplex_Host/0/1", "bidir_pageable_bandwidth_1048576_gpu1"),
        ("Comm_cudaMemcpyPeerAsync_Duplex_GPUGPU/0/3", "d2d_bidir_bandwidth_1048576_gpu0-gpu3"),
    ],
)
def test_copies_of_gpus(name: str, variable: str) -> None:
    made = entry(f"{name}/log2(N):20/manual_time", 20, 50_000.0)
    found = figures(read("commscope", report(made)))
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
def test_calls(name: str, variable: str) -> None:
    found = figures(read("commscope", report(entry(name, None, 1234.5, time_unit="us"))))
    assert found == {variable: (1234.5, "us")}


def test_one_gpu_from_several_domains() -> None:
    names = [f"{CUDA}_PinnedToGPU/{numa}/{gpu}" for numa, gpu in ((0, 0), (1, 0), (1, 1))]
    made = [entry(f"{name}/log2(N):10/manual_time", 10, 100.0) for name in names]
    output = read("commscope", report(*made))
    assert [fom.at for fom in output.foms[::2]] == ["numa0-gpu0", "numa1-gpu0", "gpu1"]


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
def test_what_gives_no_figures(name: str) -> None:
    with pytest.raises(ParseError, match="no figure of merit"):
        read("commscope", report(entry(name, 20, 50_000.0)))


# -- damage --------------------------------------------------------------------------------------


FIRST = r'(^ +"name": "libc_memcpy_NUMAToNUMA/0/0/log2\(N\):20",(?:.*\n)+?'


@pytest.mark.parametrize("key", ["real_time", "bytes_per_second", "bytes", "cpu_time"])
def test_no_finite_number(key: str) -> None:
    damage.no_number(REPORT, rf'{FIRST} +"{key}": )[^,]+(,)')


GPU = f"{CUDA}_PinnedToGPU/0/1/log2(N):20/manual_time"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"error_occurred": True, "error_message": "failed to memcpy"}, "failed to memcpy"),
        ({"error_message": "unexpected"}, "failed: unexpected"),
        ({"bytes": 2.0**21}, "its bytes are"),
        ({"bytes_per_second": 1e9}, "cannot be"),
        ({"time_unit": "us"}, "cannot be"),
        ({"time_unit": "fortnight"}, "a time in 'fortnight'"),
        ({"run_type": "repetition"}, "no kind of run"),
        ({"run_name": f"{CUDA}_PinnedToGPU/0/log2(N):20/manual_time"}, "expected 2 places"),
        ({"run_name": f"{CUDA}_PinnedToGPU/0/1/manual_time"}, "names no size"),
        ({"run_name": 5}, "is no text"),
        ({"repetition_index": 1}, "missing or doubled"),
        ({"repetitions": 2}, "missing or doubled"),
    ],
)
def test_fault_is_refused(fields: dict[str, Any], says: str) -> None:
    made = entry(GPU, 20, 50_000.0)
    read("commscope", report(made))
    with pytest.raises(ParseError, match=says):
        read("commscope", report(made | fields))


def test_benchmark_twice() -> None:
    made = entry(GPU, 20, 50_000.0)
    with pytest.raises(ParseError, match="missing or doubled"):
        read("commscope", report(made, made))
    several = [made | {"repetitions": 2, "repetition_index": k} for k in (0, 1)]
    with pytest.raises(ParseError, match="without their mean"):
        read("commscope", report(*several))
    mean = made | {"run_type": "aggregate", "aggregate_name": "mean", "repetitions": 2}
    assert figures(read("commscope", report(*several, mean))) == figures(
        read("commscope", report(made))
    )
    with pytest.raises(ParseError, match="two means"):
        read("commscope", report(*several, mean, mean))
    with pytest.raises(ParseError, match=r"the mean of real_time is 1\.0"):
        read("commscope", report(*several, mean | {"real_time": 1.0}))


def test_fields_that_are_missing() -> None:
    made = entry(GPU, 20, 50_000.0)
    for key in ("run_name", "run_type", "real_time", "time_unit", "bytes", "bytes_per_second"):
        with pytest.raises(ParseError, match=f"lacks '{key}'"):
            read("commscope", report({k: value for k, value in made.items() if k != key}))
    text = changed(report(made), r'"library_build_type"', '"build"')
    with pytest.raises(ParseError, match="lacks 'library_build_type'"):
        read("commscope", text)


def test_field_twice() -> None:
    text = changed(text_of(REPORT), rf'{FIRST} +"real_time": )', r'\g<1>5, "real_time": ')
    with pytest.raises(ParseError, match="stands twice"):
        read(REPORT, text)


PROGRAM = damage.Program(
    "commscope",
    GOOD,
    FAILED,
    r"^}",
    ["ior/v400_mpich_json", "fio/write_end_fsync", "osu/osu_bw"],
    r"lacks|missing",
)
