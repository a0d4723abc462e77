"""Comm|Scope: kernel launches on GPUs, and copies between GPUs, hosts and NUMA domains."""

import os

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.parse import Fom, Output, ParseError
from plumbline.site import host_load
from reframe.core.builtins import parameter

#: Binary logarithms of the sizes that give a latency and a bandwidth: the smallest size that the
#: GPU tests copy, and 1 GiB. pmbs23 prints no sizes; its numbers are read as of these.
SMALL, LARGE = 8, 30

#: Logarithm of the largest size that Comm|Scope 0.12.0 copies between two CUDA GPUs both ways.
PEER_DUPLEX = 27

#: Logarithm of the size of copies within the host: 64 MiB, which take milliseconds.
HOST = 26

#: Settings of the host that Comm|Scope changes when it starts, if the user is allowed to.
CPU_SETTINGS = [
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
]

#: Vendor -> prefix of its copies' names, name of its empty kernel, name of the device's
#: synchronization.
NAMES = {
    "cuda": ("Comm_cudaMemcpyAsync", "Comm_cudart_kernel", "Comm_cudaDeviceSynchronize"),
    "rocm": ("Comm_hipMemcpyAsync", "Comm_hip_kernel", "Comm_hipDeviceSynchronize"),
}


class Commscope(Benchmark):
    """Base class: one process on all CPUs of the node, which measures one place after another."""

    benchmark = "commscope"
    program = "comm_scope"
    one_process = True
    output_suffix = "json"
    num_samples = 3
    sample_seconds = 300
    #: Four runs on an H200 took 144 s.
    usual_seconds = 140
    tags = {"nightly", "maintenance", "screen"}

    def verify(self, output: Output) -> None:
        built = output.inputs["library_build_type"]
        if built != "release":
            raise ParseError(
                f"Comm|Scope's Google Benchmark is a {built} build, which measures other times "
                f"than a release build: build it with CMAKE_BUILD_TYPE=Release",
                code="build.debug",
            )

    def prepare(self):
        guard = (
            f"for setting in {' '.join(CPU_SETTINGS)}; do [ ! -w $setting ] || "
            f'{{ echo "comm_scope would change $setting" >&2; exit 1; }}; done'
        )
        if host_load.is_local(self, self.current_partition) and any(
            os.access(setting, os.W_OK) for setting in CPU_SETTINGS
        ):
            self.skip_case(
                "comm_scope would change this host's CPU settings, as this user can write them: "
                "run it as another user",
                "case.would-change-host",
            )
        self.before_sample = [guard]
        self.after_sample = ["[ ! -f commscope.json ] || mv commscope.json sample-$run.json"]
        self.executable_opts = [
            f"--benchmark_filter=^({'|'.join(self.tests())})$",
            "--benchmark_out=commscope.json",
            "--benchmark_out_format=json",
        ]


def size_suffix(log: int) -> str:
    """Return the end of a copy's name, as a regular expression, for 2**log bytes."""
    return rf"log2\(N\):{log}/manual_time"


@rfm.simple_test
class commscope_gpu(Commscope):
    """For each GPU of the node: launch of an empty kernel, synchronization with the device, and
    copies from and to the nearest host memory."""

    descr = "Comm|Scope between CPU and GPU"
    placement = parameter(["per-gpu"])
    headline = ["host_device_bandwidth"]
    tags = {"smoke", "nightly", "maintenance", "screen"}

    def figures(self) -> list[Figure]:
        return [
            Figure("kernel_launch_latency"),
            Figure("device_sync_latency"),
            Figure("host_device_latency"),
            Figure("host_device_bandwidth"),
            *(Figure(f"{way}_latency", 2**SMALL) for way in ("h2d", "d2h")),
            *(Figure(f"{way}_bandwidth", 2**LARGE) for way in ("h2d", "d2h", "bidir")),
        ]

    def derive(self, printed):
        # pmbs23 prints the mean of both directions.
        for location in self.layout.locations:
            for metric, size in (("latency", 2**SMALL), ("bandwidth", 2**LARGE)):
                ways = [
                    printed.get(Figure(f"{way}_{metric}", size, location)) for way in ("h2d", "d2h")
                ]
                if all(ways) and ways[0].unit == ways[1].unit:
                    mean = (ways[0].value + ways[1].value) / 2
                    yield Fom(f"host_device_{metric}", mean, ways[0].unit, location=location)

    def tests(self) -> list[str]:
        copy, kernel, synchronize = NAMES[self.topology.vendor]
        names = []
        for gpu in self.topology.gpus:
            place = f"{self.topology.os_number(gpu.numa)}/{gpu.number}"
            names += [
                f"{kernel}/{place}/0/real_time/threads:1",
                f"{synchronize}/{place}/real_time/threads:1",
                *(
                    f"{copy}_{way}/{place}/{size_suffix(log)}"
                    for way in ("PinnedToGPU", "GPUToPinned")
                    for log in (SMALL, LARGE)
                ),
                f"{copy}_Duplex_Pinned/{place}/{size_suffix(LARGE)}",
            ]
        return names


@rfm.simple_test
class commscope_d2d(Commscope):
    """For each pair of a class: copies from one GPU to the other with and without peer access, and
    copies both ways at once."""

    descr = "Comm|Scope between GPUs"
    placement = parameter(["gpu-a", "gpu-b", "gpu-c", "gpu-d"])
    headline = ["d2d_latency"]

    def figures(self) -> list[Figure]:
        return [
            Figure("d2d_latency"),
            Figure("d2d_latency", 2**SMALL),
            Figure("d2d_bandwidth", 2**LARGE),
        ]

    def figures_of(self, layout):
        figures = super().figures_of(layout)
        if layout.vendor == "cuda":
            figures += [
                Figure(metric, 2**log, location)
                for location in layout.locations
                for metric, log in (
                    ("d2d_peer_latency", SMALL),
                    ("d2d_peer_bandwidth", LARGE),
                    ("d2d_bidir_bandwidth", PEER_DUPLEX),
                    ("d2d_bidir_peer_bandwidth", PEER_DUPLEX),
                )
            ]
        return figures

    def derive(self, printed):
        for location in self.layout.locations:
            latency = printed.get(Figure("d2d_latency", 2**SMALL, location))
            if latency:
                yield Fom("d2d_latency", latency.value, latency.unit, location=location)

    def tests(self) -> list[str]:
        vendor = self.topology.vendor
        copy, *_ = NAMES[vendor]
        names = []
        for first, second in self.topology.pairs[self.placement]:
            numa = self.topology.os_number(self.topology.gpus[first].numa)
            pair = f"{first}/{second}"
            staged = f"{numa}/{pair}" if vendor == "cuda" else pair
            names += [f"{copy}_GPUToGPU/{staged}/{size_suffix(log)}" for log in (SMALL, LARGE)]
            if vendor == "cuda":
                duplex = "Comm_cudaMemcpyPeerAsync_Duplex_GPUGPU"
                names += [
                    *(f"{copy}_GPUToGPUPeer/{pair}/{size_suffix(log)}" for log in (SMALL, LARGE)),
                    f"{duplex}/{pair}/{size_suffix(PEER_DUPLEX)}",
                    f"{duplex}Peer/{pair}/{size_suffix(PEER_DUPLEX)}",
                ]
        return names


@rfm.simple_test
class commscope_host(Commscope):
    """Copies from the memory of each NUMA domain to that of each, also on machines without GPUs."""

    descr = "Comm|Scope within the host"
    placement = parameter(["numa-matrix"])
    headline = [Figure("numa_copy_bandwidth", 2**HOST).variable]

    def figures(self) -> list[Figure]:
        return [Figure("numa_copy_bandwidth", 2**HOST)]

    def tests(self) -> list[str]:
        domains = [self.topology.os_number(domain) for domain in sorted(self.topology.by_numa())]
        return [
            rf"libc_memcpy_NUMAToNUMA/{source}/{target}/log2\(N\):{HOST}"
            for source in domains
            for target in domains
        ]
