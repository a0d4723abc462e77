"""BabelStream 5.0 (src/main.cpp, src/cuda/CUDAStream.cu, src/hip/HIPStream.cpp,
src/sycl/SYCLStream.cpp), with its table of all kernels and the options that the checks use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fnmatch import fnmatch

from ..job import Task
from ..options import Options, Refused, read
from ..run import Run
from ..values import Values

#: Each process runs alone, under any MPI or none.
MPI = False

NAMES = {
    "omp-stream": "OpenMP",
    "serial-stream": "Serial",
    "cuda-stream": "CUDA",
    "hip-stream": "HIP",
    "sycl-stream": "SYCL",
}
ON_GPU = {"cuda-stream": "cuda", "hip-stream": "rocm"}

#: Arrays that a kernel moves.
KERNELS = {"copy": 2, "mul": 2, "add": 3, "triad": 3, "dot": 2}


class _Stop(Exception):
    """The program ends early: with what it printed, its message on standard error, its code."""

    def __init__(self, code: int, out: str, err: str):
        super().__init__(err)
        self.code, self.out = code, out


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    values = Values(run)
    options, rest = read(run.words[1:], "-s= -n=", run.program)
    if rest:
        raise Refused(f"Unrecognized argument '{rest[0]}' (try '--help')")
    for task in run.tasks:
        try:
            yield task.rank, _one(run, values, task, options), 0
        except _Stop as stop:
            print(stop, file=sys.stderr, flush=True)
            yield task.rank, stop.out, stop.code


def _one(run: Run, values: Values, task: Task, options: Options) -> str:
    program = run.program
    size, times = options.number("s", 2**25), options.number("n", 100)
    total = size * 8
    text = (
        f"BabelStream\nVersion: 5.0\nImplementation: {NAMES[program]}\n"
        f"Running kernels {times} times\nPrecision: double\n"
    )
    for name, amount in (("Array", total), ("Total", 3 * total)):
        text += f"{name} size: {amount / 1e6:.1f} MB (={amount / 1e9:.1f} GB)\n"
    gpu = None
    if program in ON_GPU:
        text += _device(run, size, task.gpus, ON_GPU[program], text)
        gpu = task.gpus[0]
    elif program == "sycl-stream":
        kind, name = _sycl_device(run)
        text += f"Using SYCL device {name}\nDriver: 1.0\n"
        text += "Reduction kernel config: 432 groups of size 1024\n"
        gpu = task.gpus[0] if kind == "gpu" else None

    def rate(kernel):
        if gpu is not None:
            value = values.stream_gpu(kernel, gpu)
        else:
            value = values.stream_cpu(kernel, task, *_threads(run, task))
        gpus = [gpu] if gpu is not None else []
        return values.measured(value, False, gpus, [task.node])

    first = rate("copy") * 1e9
    for name, share in (("Init", 0.25), ("Read", 0.1)):
        seconds = 3 * total / (first * share)
        text += f"{name}: {seconds:.6f} s (={3 * total / 1e6 / seconds:.6f} MBytes/sec)\n"
    heads = ("Function", "MBytes/sec", "Min (sec)", "Max", "Average")
    text += "".join(f"{name:<12}" for name in heads) + "\n"
    for kernel, arrays in KERNELS.items():
        best = rate(kernel) * 1e3
        seconds = arrays * total / 1e6 / best
        cells = [f"{best:.3f}", *(f"{seconds * more:.5f}" for more in (1, 1.09, 1.02))]
        text += f"{kernel.title():<12}" + "".join(f"{cell:<12}" for cell in cells) + "\n"
    return text


def _device(run: Run, size: int, gpus: tuple, vendor: str, before: str) -> str:
    """What the device's stream says of its device.

    :raises _Stop: if there is none, or too little memory.
    """
    facts = run.machine.facts
    if run.machine.vendor != vendor:
        raise _Stop(1, before, f"no {vendor} driver was found")
    complaint = ""
    if size % 1024:
        complaint = "Array size must be a multiple of 1024"
    elif not gpus:
        complaint = "Invalid device index"
    elif 3 * 8 * size > facts["gpu_memory"] * 2**30:
        complaint = "Device does not have enough memory for all 3 buffers"
    if complaint:
        raise _Stop(
            134,
            before,
            "terminate called after throwing an instance of 'std::runtime_error'\n"
            f"  what():  {complaint}\nAborted (core dumped)",
        )
    name = facts["gpu_name"]
    if vendor == "rocm":
        return f"Using HIP device {name}\nDriver: 50322062\nMemory: DEFAULT\n"
    return (
        f"Using CUDA device {name}\nDriver: 11040\nMemory: DEFAULT\n"
        "Reduction kernel config: 432 groups of (fixed) size 1024\n"
    )


def _sycl_device(run: Run) -> tuple[str, str]:
    """Kind and name of the first device that oneAPI's runtime shows where it has OpenCL for CPUs,
    too: ALCF User Guides, Polaris, "SYCL"."""
    backend = {"cuda": "cuda", "rocm": "hip"}[run.machine.vendor]
    devices = {
        "opencl:fpga": "Intel(R) FPGA Emulation Device",
        "opencl:cpu": "AMD EPYC 7543P 32-Core Processor",
        f"{backend}:gpu": run.machine.facts["gpu_name"],
    }
    shown = run.env.get("ONEAPI_DEVICE_SELECTOR", "*:*")
    place, name = next(item for item in devices.items() if fnmatch(item[0], shown))
    return place.partition(":")[2], name


def _threads(run: Run, task: Task) -> tuple[int, bool]:
    """Threads of a task, and whether each keeps to its place."""
    if run.program == "serial-stream":
        return 1, True
    text = run.env.get("OMP_NUM_THREADS", "").split(",")[0]
    threads = int(text) if text.isdigit() else len(task.cpus)
    binding = run.env.get("OMP_PROC_BIND", "false").lower().split(",")[0]
    return threads, binding not in ("false", "") or threads == 1
