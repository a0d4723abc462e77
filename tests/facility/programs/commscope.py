"""Comm|Scope 0.12.0 (src/*, and libscope's Google Benchmark 1.5.1): the benchmarks that the checks
ask for, in a report of JSON."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ..job import Task
from ..options import read
from ..run import CAPTURES, Run
from ..values import Values

MPI = False

TABLE = "--benchmark_filter= --benchmark_out= --benchmark_out_format="

#: What it prints without a benchmark that matches, and beside a report in a file.
PRINTED, CONTEXT = (
    CAPTURES / "commscope" / name for name in ("v0120_nomatch.out", "v0120_memcpy_json_file.err")
)


class Test:
    """One benchmark, with its own counters by name, and its GPUs and memory domain."""

    def __init__(self, name: str, kind: str, size: int | None, counters: dict[str, int], **where):
        self.name = name
        self.kind = kind
        self.size = size
        self.counters = counters
        self.where = where


def tests_of(run: Run, task: Task) -> Iterator[Test]:
    """The benchmarks that the program registers for what it sees, in its order."""
    domains = run.machine.numa_numbers
    for source in domains:
        for target in domains:
            for size in (0, *range(12, 31)):
                name = f"libc_memcpy_NUMAToNUMA/{source}/{target}/log2(N):{size}"
                yield Test(name, "memcpy", 2**size, {"src_id": source, "dst_id": target})
    if run.machine.vendor:
        names = {"cuda": ("cuda", "cudart", 32), "rocm": ("hip", "hip", 30)}
        yield from _device_tests(*names[run.machine.vendor], domains, range(len(task.gpus)))


def _device_tests(api: str, kernel: str, largest: int, domains, gpus) -> Iterator[Test]:
    def copies(name: str, kind: str, most: int, counters: dict, **where) -> Iterator[Test]:
        for size in range(8, most + 1):
            yield Test(f"{name}/log2(N):{size}/manual_time", kind, 2**size, counters, **where)

    for gpu in gpus:
        for domain in domains:
            at, where = f"{domain}/{gpu}", {"gpu": gpu, "domain": domain}
            end = "real_time/threads:1"
            yield Test(
                f"Comm_{api}DeviceSynchronize/{at}/{end}", "sync", None, {"gpu": gpu}, **where
            )
            yield Test(f"Comm_{kernel}_kernel/{at}/0/{end}", "launch", None, {"gpu": gpu}, **where)
            both = {f"{api}_id": gpu, "numa_id": domain}
            for name in ("PinnedToGPU", "GPUToPinned"):
                of_api = f"Comm_{api}MemcpyAsync_{name}/{at}"
                yield from copies(of_api, "pinned", largest, both, **where)
            duplex = f"Comm_{api}MemcpyAsync_Duplex_Pinned/{at}"
            yield from copies(duplex, "duplex", largest + 1, {}, **where)
    for source in gpus:
        for target in gpus:
            at, where = f"{source}/{target}", {"gpu": source, "other": target}
            if api == "hip":
                pair = {"src_id": source, "dst_id": target}
                name = f"Comm_hipMemcpyAsync_GPUToGPU/{at}"
                yield from copies(name, "d2d", largest, pair, **where)
                continue
            pair = {"src_gpu": source, "dst_gpu": target}
            # A GPU is no peer of its own.
            if source != target:
                name = f"Comm_cudaMemcpyAsync_GPUToGPUPeer/{at}"
                yield from copies(name, "d2d", largest, pair, **where)
            both = {"gpu0": source, "gpu1": target, "wait_cycles": 2**20}
            for peer in ("", "Peer"):
                name = f"Comm_cudaMemcpyPeerAsync_Duplex_GPUGPU{peer}/{at}"
                yield from copies(name, "d2d_duplex", 27, both, **where)
            for domain in domains:
                name = f"Comm_cudaMemcpyAsync_GPUToGPU/{domain}/{at}"
                yield from copies(name, "d2d", largest, {**pair, "numa_id": domain}, **where)


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    for task in run.tasks:
        yield task.rank, *_one(run, task)


def _one(run: Run, task: Task) -> tuple[str, int]:
    options, _ = read(run.words[1:], TABLE, "comm_scope")
    wanted = re.compile(options["benchmark_filter"])
    report = Path(options["benchmark_out"])
    report.write_text("")
    chosen = [test for test in tests_of(run, task) if wanted.search(test.name)]
    if not chosen:
        print(f"Failed to match any benchmarks against regex: {wanted.pattern}", file=sys.stderr)
        return PRINTED.read_text(), 0
    values = Values(run)
    rows = [
        _row(test, _nanoseconds(run, values, task, test), index)
        for index, test in enumerate(chosen)
    ]
    report.write_text(run.faults.damaged(_json(run, rows)))
    print(CONTEXT.read_text(), file=sys.stderr, flush=True)
    return PRINTED.read_text(), 0


def _nanoseconds(run: Run, values: Values, task: Task, test: Test) -> float:
    machine = run.machine
    gpus = task.gpus

    def far() -> float:
        """A memory domain that is not the GPU's own costs something."""
        domain = machine.facts["gpus"][gpus[test.where["gpu"]]]
        return 1.0 if machine.numa_numbers[domain] == test.where["domain"] else 1.25

    if test.kind == "launch":
        value = values.commscope("kernel_launch_latency") * 1e3
    elif test.kind == "sync":
        value = values.commscope("device_sync_latency") * 1e3
    elif test.kind in ("pinned", "duplex"):
        slow = far() * (1.1 if test.kind == "duplex" else 1.0)
        rate = values.commscope("host_device_bandwidth")
        value = _copy(values.commscope("host_device_latency") * 1e3, rate, test.size) * slow
    elif test.kind in ("d2d", "d2d_duplex"):
        one, other = gpus[test.where["gpu"]], gpus[test.where["other"]]
        place = machine.pair_class(one, other)
        rate = values.gpu_link(place)
        latency = values.commscope("d2d_latency", place if place != "same" else None) * 1e3
        value = _copy(latency, rate, test.size)
    else:
        # Each copy is timed twice, and the system calls around it once.
        value = 2 * test.size / 20.0 + 4000
    seen = [gpus[test.where[key]] for key in ("gpu", "other") if key in test.where]
    return values.measured(value, True, seen, [task.node])


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
    caches = [("Data", 1, 32768), ("Instruction", 1, 32768), ("Unified", 2, 524288),
              ("Unified", 3, 10485760)]  # fmt: skip
    context = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "host_name": run.tasks[0].node,
        "executable": run.words[0],
        "num_cpus": machine.num_cpus,
        "mhz_per_cpu": 3000,
        "cpu_scaling_enabled": False,
        "caches": [
            {"type": kind, "level": level, "size": size, "num_sharing": machine.smt}
            for kind, level, size in caches
        ],
        "load_avg": [0.83, 0.97, 0.79],
        "library_build_type": "release",
    }
    return json.dumps({"context": context, "benchmarks": rows}, indent=2) + "\n"
