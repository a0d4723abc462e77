"""Comm|Scope 0.12.0 (src/*, and libscope's Google Benchmark 1.5.1)."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ..job import Task
from ..run import Run
from ..values import Values

MPI = False

BANNER = """\
Comm|Scope 0.12.0 @
  scope 1.1.2 @
    spdlog 1.6.1
    benchmark 1.5.1
"""
USAGE = """\
Usage:
  comm_scope [-?|-h|--help] [--benchmark_...] [--cuda] [--numa]
"""
BEFORE = (
    "[error] unable to record turbo state",
    "[info] recorded CPU goveror",
    "[error] unable to disable CPU turbo: unsupported operation. Run with higher privileges?",
    "[error] unable to set OS CPU governor to maximum: unsupported operation. Run with higher "
    "privileges?",
)
AFTER = (
    "[info] Restored original turbo state",
    "[warning] unable to restore CPU governor: unsupported operation. (use set-minimum tool if "
    "needed)",
)
KNOWN = (
    "benchmark_filter", "benchmark_out", "benchmark_out_format", "benchmark_format",
    "benchmark_list_tests", "benchmark_min_time", "benchmark_repetitions", "benchmark_color",
    "benchmark_report_aggregates_only", "benchmark_display_aggregates_only",
    "benchmark_counters_tabular", "v", "cuda", "hip", "numa",
)  # fmt: skip

ARGUMENTS = (0, 1, 4, 8, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096)


class Test:
    """One benchmark.

    :ivar counters: its own, by name.
    :ivar nanoseconds: of one iteration; taken when it runs.
    """

    def __init__(self, name: str, kind: str, size: int | None, counters: dict[str, int], where=()):
        self.name = name
        self.kind = kind
        self.size = size
        self.counters = counters
        self.where = where


def tests_of(run: Run, task: Task) -> Iterator[Test]:
    """Every benchmark that the program registers for what it sees, in its order."""
    machine = run.machine
    domains = machine.numa_numbers
    gpus = range(len(task.gpus))
    for size in (0, *range(12, 31)):
        name = f"Comm_libc_malloc_memset/0/log2(N):{size}/manual_time"
        yield Test(name, "memset", 2**size, {"numa_id": 0})
    for size in (0, *range(12, 31)):
        yield Test(f"Comm_libc_malloc/0/log2(N):{size}", "malloc", 2**size, {"numa_id": 0})
    for flush in ("", "_flush"):
        for source in domains:
            for target in domains:
                for size in (0, *range(12, 31)):
                    name = f"libc_memcpy_NUMAToNUMA{flush}/{source}/{target}/log2(N):{size}"
                    told = {"src_id": source, "dst_id": target}
                    yield Test(name, "memcpy", 2**size, told)
    if machine.vendor == "cuda":
        yield from _device_tests("cuda", "cudart", domains, gpus, 32)
    elif machine.vendor == "rocm":
        yield from _device_tests("hip", "hip", domains, gpus, 30)


def _device_tests(api, kernel, domains, gpus, largest) -> Iterator[Test]:
    host = "Host" if api == "cuda" else "Pageable"
    for gpu in gpus:
        for domain in domains:
            where = {"gpu": gpu, "domain": domain}
            yield Test(
                f"Comm_{api}DeviceSynchronize/{domain}/{gpu}/real_time/threads:1",
                "sync", None, {"gpu": gpu}, where,
            )  # fmt: skip
            for argument in ARGUMENTS:
                yield Test(
                    f"Comm_{kernel}_kernel/{domain}/{gpu}/{argument}/real_time/threads:1",
                    "launch", None, {"gpu": gpu}, where,
                )  # fmt: skip
    for name in (f"PinnedToGPU GPUToPinned {host}ToGPU GPUTo{host}").split():
        for gpu in gpus:
            for domain in domains:
                for flush in ("", "_flush"):
                    for size in range(8, largest + 1):
                        yield Test(
                            f"Comm_{api}MemcpyAsync_{name}{flush}/{domain}/{gpu}/log2(N):{size}"
                            "/manual_time",
                            "pinned" if "Pinned" in name else "pageable",
                            2**size,
                            {f"{api}_id": gpu, "numa_id": domain},
                            {"gpu": gpu, "domain": domain},
                        )
    for name in ("Pinned", host):
        for gpu in gpus:
            for domain in domains:
                for flush in ("", "_flush"):
                    for size in range(8, largest + 2):
                        yield Test(
                            f"Comm_{api}MemcpyAsync_Duplex_{name}{flush}/{domain}/{gpu}/log2(N):"
                            f"{size}/manual_time",
                            "duplex" if name == "Pinned" else "duplex_pageable",
                            2**size,
                            {},
                            {"gpu": gpu, "domain": domain},
                        )
    for source in gpus:
        for target in gpus:
            where = {"gpu": source, "other": target}
            kinds: list[tuple[str, dict[str, int]]] = []
            pair = {"src_gpu": source, "dst_gpu": target}
            both = {"gpu0": source, "gpu1": target, "wait_cycles": 2**20}
            if api == "cuda":
                kinds = [
                    ("Comm_cudaMemcpyAsync_GPUToGPUPeer", pair),
                    ("Comm_cudaMemcpyPeerAync_GPUToGPU", {"srcGpu": source, "dstGpu": target}),
                    ("Comm_cudaMemcpyPeerAsync_GPUToGPUPeer", {"srcGpu": source, "dstGpu": target}),
                    ("Comm_cudaMemcpyPeerAsync_Duplex_GPUGPU", both),
                    ("Comm_cudaMemcpyPeerAsync_Duplex_GPUGPUPeer", both),
                ]
            else:
                kinds = [("Comm_hipMemcpyAsync_GPUToGPU", {"src_id": source, "dst_id": target})]
            for name, counters in kinds:
                # A GPU is no peer of its own.
                if source == target and name.endswith("GPUToGPUPeer"):
                    continue
                end = 27 if "Duplex" in name else largest + ("PeerA" in name)
                for size in range(8, end + 1):
                    yield Test(
                        f"{name}/{source}/{target}/log2(N):{size}/manual_time",
                        "d2d_duplex" if "Duplex" in name else "d2d", 2**size, counters, where,
                    )  # fmt: skip
            for domain in domains if api == "cuda" else ():
                for size in range(8, largest + 1):
                    yield Test(
                        f"Comm_cudaMemcpyAsync_GPUToGPU/{domain}/{source}/{target}/log2(N):{size}"
                        "/manual_time",
                        "d2d", 2**size, {**pair, "numa_id": domain}, where,
                    )  # fmt: skip


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    for task in run.tasks:
        yield task.rank, *_one(run, task)


def _one(run: Run, task: Task) -> tuple[str, int]:
    told: dict[str, str] = {}
    for word in run.words[1:]:
        key, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") or key not in KNOWN:
            print(
                f"Error in command line: Unrecognized token: {word}\n{USAGE}",
                file=sys.stderr,
                flush=True,
            )
            return BANNER, 1
        told[key] = value if equals else "true"
    stamp = time.strftime("[%Y-%m-%d %H:%M:%S.000] [scope] ")
    text = BANNER + "".join(f"{stamp}{line}\n" for line in BEFORE)
    end = "".join(f"{stamp}{line}\n" for line in AFTER)
    try:
        wanted = re.compile(told.get("benchmark_filter", "."))
    except re.error:
        print("Could not compile benchmark re", file=sys.stderr, flush=True)
        return text + end, 1
    chosen = [test for test in tests_of(run, task) if wanted.search(test.name)]
    if "benchmark_out" in told:
        try:
            Path(told["benchmark_out"]).write_text("")
        except OSError:
            print(f"invalid file name: '{told['benchmark_out']}'", file=sys.stderr, flush=True)
            return text, 1
    if not chosen:
        print(
            f"Failed to match any benchmarks against regex: {wanted.pattern}",
            file=sys.stderr,
            flush=True,
        )
        return text + end, 0
    if told.get("benchmark_list_tests", "false") != "false":
        return text + "".join(f"{test.name}\n" for test in chosen) + end, 0
    values = Values(run)
    rows = []
    for index, test in enumerate(chosen):
        nanoseconds = _nanoseconds(run, values, task, test)
        rows.append(_row(test, nanoseconds, index))
    content = _json(run, rows)
    if "benchmark_out" in told:
        Path(told["benchmark_out"]).write_text(run.faults.damaged(content))
    print(_context(run), file=sys.stderr, flush=True)
    if told.get("benchmark_format", "console") == "json":
        return text + content + end, 0
    return text + _console(rows) + end, 0


def _nanoseconds(run: Run, values: Values, task: Task, test: Test) -> float:
    machine = run.machine
    gpus = task.gpus

    def far() -> float:
        """A memory domain that is not the GPU's own costs something."""
        domain = machine.facts["gpus"][gpus[test.where["gpu"]]]
        return 1.0 if machine.numa_numbers[domain] == test.where["domain"] else 1.25

    metric, value = test.kind, 100.0
    if test.kind == "launch":
        metric = "kernel_launch_latency"
        value = values.commscope(metric) * 1e3
    elif test.kind == "sync":
        metric = "device_sync_latency"
        value = values.commscope(metric) * 1e3
    elif test.kind in ("pinned", "pageable", "duplex", "duplex_pageable"):
        metric = "host_device"
        slow = far() * (1.8 if "pageable" in test.kind else 1.0)
        slow *= 1.1 if "duplex" in test.kind else 1.0
        rate = values.commscope("host_device_bandwidth")
        value = _copy(values.commscope("host_device_latency") * 1e3, rate, test.size) * slow
    elif test.kind in ("d2d", "d2d_duplex"):
        metric = "d2d_latency"
        one, other = gpus[test.where["gpu"]], gpus[test.where["other"]]
        place = machine.pair_class(one, other)
        rate = values.gpu_link(place)
        latency = values.commscope(metric, place if place != "same" else None) * 1e3
        value = _copy(latency, rate, test.size)
    elif test.kind in ("memcpy", "memset"):
        value = 20 + test.size / 20.0
    seen = [gpus[test.where[key]] for key in ("gpu", "other") if key in (test.where or {})]
    return values.measured(value, True, metric=metric, size=test.size, gpus=seen, nodes=[task.node])


def _copy(latency: float, rate: float, size: int) -> float:
    """Nanoseconds of a copy: the latency, hidden behind the bytes once they take longer."""
    moving = size / rate
    return max(latency, moving) + min(latency, moving) * 0.02


def _row(test: Test, nanoseconds: float, index: int) -> dict:
    row: dict[str, object] = {
        "name": test.name,
        "family_index": 0,
        "per_family_instance_index": index,
        "run_name": test.name,
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
        "iterations": max(1, min(10**6, int(5e8 / nanoseconds))),
        "real_time": nanoseconds,
        "cpu_time": nanoseconds * 0.998,
        "time_unit": "ns",
    }
    counters: dict[str, float] = {key: float(value) for key, value in test.counters.items()}
    if test.size is None:
        counters["items_per_second"] = 1e9 / nanoseconds
    else:
        # Without a clock of its own a benchmark's rate is that of CPU time.
        clock = nanoseconds if "_time" in test.name else nanoseconds * 0.998
        moved = test.size * (2 if "duplex" in test.kind else 1)
        counters |= {"bytes": float(test.size), "bytes_per_second": moved * 1e9 / clock}
    return row | dict(sorted(counters.items()))


def _json(run: Run, rows: list[dict]) -> str:
    machine = run.machine
    date = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    text = (
        '{\n  "context": {\n'
        f'    "date": "{date}",\n    "host_name": "{run.tasks[0].node}",\n'
        f'    "executable": "{run.words[0]}",\n    "num_cpus": {machine.num_cpus},\n'
        '    "mhz_per_cpu": 3000,\n    "cpu_scaling_enabled": false,\n    "caches": [\n'
    )
    caches = [("Data", 1, 32768), ("Instruction", 1, 32768), ("Unified", 2, 524288)]
    caches.append(("Unified", 3, 10485760))
    text += ",\n".join(
        f'      {{\n        "type": "{kind}",\n        "level": {level},\n        "size": {size},\n'
        f'        "num_sharing": {machine.smt}\n      }}'
        for kind, level, size in caches
    )
    text += (
        '\n    ],\n    "load_avg": [0.83,0.97,0.79],\n    "library_build_type": "release"\n'
        '  },\n  "benchmarks": [\n'
    )
    blocks = []
    for row in rows:
        members = ",\n".join(
            f'      "{key}": {f"{value:.16e}" if isinstance(value, float) else json.dumps(value)}'
            for key, value in row.items()
        )
        blocks.append(f"    {{\n{members}\n    }}")
    return text + ",\n".join(blocks) + "\n  ]\n}\n"


def _context(run: Run) -> str:
    date = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    smt = run.machine.smt
    return (
        f"{date}\nRunning {run.words[0]}\nRun on ({run.machine.num_cpus} X 3000 MHz CPU s)\n"
        f"CPU Caches:\n  L1 Data 32 KiB (x{smt})\n  L1 Instruction 32 KiB (x{smt})\n"
        f"  L2 Unified 512 KiB (x{smt})\n  L3 Unified 10240 KiB (x{smt})\n"
        "Load Average: 0.83, 0.97, 0.79"
    )


def _console(rows: list[dict]) -> str:
    width = max(len(str(row["name"])) for row in rows)
    line = "-" * (width + 59)
    heads = f"{'Benchmark':<{width}} {'Time':>13} {'CPU':>15} {'Iterations':>12} UserCounters..."
    text = f"{line}\n{heads}\n{line}\n"
    for row in rows:
        extra = "".join(f" {key}={_short(key, value)}" for key, value in list(row.items())[12:])
        text += f"{row['name']:<{width}} {row['real_time']:10.0f} ns {row['cpu_time']:12.0f} ns"
        text += f" {row['iterations']:12d}{extra}\n"
    return text


def _short(key: str, value: float) -> str:
    """A counter as the console has it: powers of 1000, of 1024 for bytes a second."""
    if key.endswith("_per_second"):
        base, end = (1024.0, "/s")
    else:
        base, end = (1000.0, "")
    for letter in ("", "k", "M", "G", "T"):
        if value < base or letter == "T":
            return f"{value:g}{end}" if not letter else f"{value:.6g}{letter}{end}"
        value /= base
    return ""
