"""Comm|Scope 0.9 to 0.12: the JSON of ``--benchmark_out`` or ``--benchmark_format=json``.

A benchmark's name contains what was copied, where, and how much:
``Comm_cudaMemcpyAsync_PinnedToGPU/0/1/log2(N):20/manual_time`` is NUMA domain 0, GPU 1, 2²⁰ bytes.
Each copy of :data:`NAMES` gives ``<what>_latency`` (``real_time``, in the printed unit) and
``<what>_bandwidth`` (``bytes_per_second``), with the size and a ``location``: ``gpu0``,
``gpu0-gpu1`` or ``numa0-numa1``. A duplex copy has no latency. Kernel launches and synchronizations
have a latency alone; the size of a launch is that of its arguments, none for no arguments.

A suffix ``_flush`` (caches flushed before each copy) is also added to ``what``. If one GPU is
measured from several NUMA domains, ``location`` begins with the domain: ``numa0-gpu1``. Other
benchmarks, and calls from several threads at once, give no figures. Nor does
``Comm_cudaMemcpyAsync_Duplex_GPUGPUPeer``: both of its targets are on the second GPU, so it copies
within that GPU instead of backwards.

``bytes_per_second`` counts both directions of a duplex copy. With repetitions the value is their
mean. That of ``libc_memcpy`` is computed from CPU time, as the benchmark requests no real time. It
stops the timer twice for each copy, and Google Benchmark then adds the copy's time twice, with that
of two system calls (``ScopedBind``) once. So its bandwidth is twice the printed one, of copies that
take much longer than 4 us, and it has no latency.

Source: the ``registerer`` of each file of ``src/``, ``src/libc/memcpy.cpp``; Google Benchmark's
``json_reporter.cc`` and ``StopTimer`` of ``thread_timer.h``.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from plumbline.parse import Fom, Output, ParseError, json_report, parse_count

_GPU, _PAIR, _NUMA_PAIR = ("numa", "gpu"), ("gpu", "gpu"), ("numa", "numa")
_STAGED_PAIR = ("numa", "gpu", "gpu")

#: Name -> what, and the kinds of the places in the name.
NAMES = {
    "Comm_cudart_kernel": ("kernel_launch", _GPU),
    "Comm_hip_kernel": ("kernel_launch", _GPU),
    "Comm_cudaDeviceSynchronize": ("device_sync", _GPU),
    "Comm_hipDeviceSynchronize": ("device_sync", _GPU),
    "Comm_cudaMemcpyAsync_PinnedToGPU": ("h2d", _GPU),
    "Comm_hipMemcpyAsync_PinnedToGPU": ("h2d", _GPU),
    "Comm_cudaMemcpyAsync_GPUToPinned": ("d2h", _GPU),
    "Comm_hipMemcpyAsync_GPUToPinned": ("d2h", _GPU),
    "Comm_cudaMemcpyAsync_HostToGPU": ("h2d_pageable", _GPU),
    "Comm_hipMemcpyAsync_PageableToGPU": ("h2d_pageable", _GPU),
    "Comm_cudaMemcpyAsync_GPUToHost": ("d2h_pageable", _GPU),
    "Comm_hipMemcpyAsync_GPUToPageable": ("d2h_pageable", _GPU),
    "Comm_hipMemcpy_NUMAToGPU": ("h2d_blocking", _GPU),
    "Comm_hipMemcpy_GPUToNUMA": ("d2h_blocking", _GPU),
    "Comm_hipMemcpy_GPUToGPU": ("d2d_blocking", _PAIR),
    "Comm_cudaMemcpyAsync_GPUToGPU": ("d2d", _STAGED_PAIR),
    "Comm_hipMemcpyAsync_GPUToGPU": ("d2d", _PAIR),
    "Comm_cudaMemcpyAsync_GPUToGPUPeer": ("d2d_peer", _PAIR),
    # Spelt so upstream.
    "Comm_cudaMemcpyPeerAync_GPUToGPU": ("d2d_peerasync", _PAIR),
    "Comm_cudaMemcpyPeerAsync_GPUToGPUPeer": ("d2d_peerasync_peer", _PAIR),
    "Comm_cudaMemcpyAsync_Duplex_Pinned": ("bidir", _GPU),
    "Comm_hipMemcpyAsync_Duplex_Pinned": ("bidir", _GPU),
    "Comm_cudaMemcpyAsync_Duplex_Host": ("bidir_pageable", _GPU),
    "Comm_hipMemcpyAsync_Duplex_Pageable": ("bidir_pageable", _GPU),
    "Comm_cudaMemcpyPeerAsync_Duplex_GPUGPU": ("d2d_bidir", _PAIR),
    "Comm_cudaMemcpyPeerAsync_Duplex_GPUGPUPeer": ("d2d_bidir_peer", _PAIR),
    "libc_memcpy_NUMAToNUMA": ("numa_copy", _NUMA_PAIR),
}

_CALLS = {"kernel_launch", "device_sync"}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

_NAME = re.compile(
    r"(?P<name>\w+?)(?P<flush>_flush)?(?P<places>(?:/\d+)+)(?:/log2\(N\):(?P<log>\d{1,2}))?"
    r"(?:/(?P<clock>manual_time|real_time))?(?:/threads:(?P<threads>\d+))?",
    re.ASCII,
)
#: Google Benchmark's message (``benchmark.cc``) on standard error if the filter matches no
#: benchmark. It exits with 0 and writes no JSON report.
FAILED = re.compile(r"^Failed to match any benchmarks against regex: .*$", re.M)
_VERSION = re.compile(r"^Comm\|Scope (\S+)", re.M)


@dataclass(frozen=True)
class _Entry:
    """One benchmark of the report: what it measured, where and how much, and its JSON object."""

    what: str
    kinds: tuple[str, ...]
    places: tuple[str, ...]
    size: int | None
    clock: str
    entry: dict[str, Any]


def parse(text: str) -> Output:
    """Parse the JSON report of one run.

    :raises ParseError: if it is not such a report, is truncated or contradictory, or a benchmark
        failed.
    """
    report = json_report.read(text)
    context = json_report.field(report, "context")
    entries = json_report.objects(report, "benchmarks")
    rows = [row for row in map(_row, _values(entries)) if row]
    domains: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for row in rows:
        domains[row.what, _gpus(row)].add(_domain(row))
    foms = []
    for row in rows:
        several = len(domains[row.what, _gpus(row)]) > 1
        foms += _figures(row, "-".join([*([_domain(row)] if several else []), *_gpus(row)]))
    versions = _VERSION.findall(text)
    if len(versions) > 1:
        raise ParseError(f"Comm|Scope's banner is printed {len(versions)} times")
    inputs = {
        "library_build_type": json_report.string(context, "library_build_type"),
        "num_cpus": str(json_report.count(context, "num_cpus")),
        "date": json_report.string(context, "date"),
    }
    return Output(tuple(foms), None, versions[0] if versions else "", inputs)


def _values(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry of each benchmark: its only repetition, or the mean of several."""
    single: dict[str, list[dict[str, Any]]] = defaultdict(list)
    means: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name = json_report.string(entry, "run_name")
        if entry.get("error_occurred") or "error_message" in entry:
            raise ParseError(
                f"{name} failed: {entry.get('error_message', '')}", code="output.program-error"
            )
        kind = json_report.string(entry, "run_type")
        if kind == "iteration":
            single[name].append(entry)
        elif kind != "aggregate":
            raise ParseError(f"{name}: unknown run type {kind!r}")
        elif json_report.string(entry, "aggregate_name") == "mean":
            if name in means:
                raise ParseError(f"{name}: two means")
            means[name] = entry
    for name, entry in means.items():
        _check_mean(name, entry, single.get(name, []))
    for name, several in single.items():
        repetitions = {json_report.count(entry, "repetitions") for entry in several}
        indices = [json_report.count(entry, "repetition_index") for entry in several]
        if repetitions != {len(several)} or indices != list(range(len(several))):
            raise ParseError(f"{name}: repetitions are missing or duplicated: {indices}")
        if len(several) > 1 and name not in means:
            raise ParseError(f"{name}: {len(several)} repetitions without their mean")
    return [means.get(name) or single[name][0] for name in dict.fromkeys([*single, *means])]


def _check_mean(name: str, entry: dict[str, Any], several: list[dict[str, Any]]) -> None:
    for key in ("real_time", "bytes_per_second"):
        if several and key in entry:
            mean = math.fsum(json_report.number(repetition, key) for repetition in several) / len(
                several
            )
            if not math.isclose(mean, json_report.number(entry, key), rel_tol=1e-9):
                raise ParseError(f"{name}: the mean of {key} is {entry[key]}, not {mean}")


def _row(entry: dict[str, Any]) -> _Entry | None:
    """Return what an entry measured, ``None`` if it gives no figures."""
    name = json_report.string(entry, "run_name")
    found = _NAME.fullmatch(name)
    if not found or found["name"] not in NAMES or found["threads"] not in {None, "1"}:
        return None
    what, kinds = NAMES[found["name"]]
    numbers = [parse_count(place, "a place") for place in found["places"].split("/")[1:]]
    size = None
    if what == "kernel_launch":
        size = numbers.pop() or None
    elif what not in _CALLS:
        if not found["log"]:
            raise ParseError(f"{name} has no size in its name")
        size = 2 ** int(found["log"])
        if json_report.number(entry, "bytes") != size:
            raise ParseError(f"{name}: its bytes are {entry['bytes']}, not {size}")
    if len(numbers) != len(kinds):
        raise ParseError(f"{name}: expected {len(kinds)} places")
    places = tuple(f"{kind}{number}" for kind, number in zip(kinds, numbers, strict=True))
    what += found["flush"] or ""
    return _Entry(what, kinds, places, size, found["clock"] or "", entry)


def _domain(row: _Entry) -> str:
    """Return the NUMA domain of the calling thread or of the host's memory, if any."""
    return row.places[0] if row.kinds in (_GPU, _STAGED_PAIR) else ""


def _gpus(row: _Entry) -> tuple[str, ...]:
    """Return the places without :func:`_domain`."""
    return row.places[1:] if _domain(row) else row.places


def _figures(row: _Entry, location: str) -> list[Fom]:
    unit = json_report.string(row.entry, "time_unit")
    if unit not in _TIMES:
        raise ParseError(f"{row.what}: unknown time unit {unit!r}")
    time = json_report.number(row.entry, "real_time")
    latency = Fom(f"{row.what}_latency", time, unit, row.size, location)
    if row.what in _CALLS:
        return [latency]
    rate = json_report.number(row.entry, "bytes_per_second")
    # The timer of copies within the host stops twice.
    used = 2 * rate if row.kinds == _NUMA_PAIR else rate
    bandwidth = Fom(f"{row.what}_bandwidth", used, "B/s", row.size, location)
    duplex = "bidir" in row.what
    clock = "real_time" if row.clock else "cpu_time"
    seconds = json_report.number(row.entry, clock) * _TIMES[unit]
    # The mean of rates is not the rate of the mean time.
    if row.entry["run_type"] == "iteration" and not math.isclose(
        rate * seconds, (row.size or 0) * (2 if duplex else 1), rel_tol=1e-6
    ):
        raise ParseError(f"{row.what}: {row.size} bytes in {seconds} s contradict {rate} B/s")
    if row.kinds == _NUMA_PAIR:
        return [bandwidth]
    return [bandwidth] if duplex else [latency, bandwidth]
