"""BabelStream 5.0 (src/main.cpp, src/cuda/CUDAStream.cu, src/hip/HIPStream.cpp)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ..job import Task
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
    "kokkos-stream": "Kokkos",
}
ON_GPU = {"cuda-stream": "cuda", "hip-stream": "rocm"}

#: Arrays that a kernel moves.
KERNELS = {"copy": 2, "mul": 2, "add": 3, "triad": 3, "dot": 2, "nstream": 4}

_HELP = """
Usage: {program} [OPTIONS]

Options:
  -h  --help               Print the message
      --list               List available devices
      --device     INDEX   Select device at INDEX
  -s  --arraysize  SIZE    Use SIZE elements in the array
  -n  --numtimes   NUM     Run the test NUM times (NUM >= 2)
      --float              Use floats (rather than doubles)
      --triad-only         Only run triad
      --nstream-only       Only run nstream
      --csv                Output as csv table
      --mibibytes          Use MiB=2^20 for bandwidth calculation (default MB=10^6)

"""


class _Stop(Exception):
    """The program ends early: what it says on which stream, and its exit code."""

    def __init__(self, code: int, out: str = "", err: str = ""):
        super().__init__(out or err)
        self.code, self.out, self.err = code, out, err


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    values = Values(run)
    for task in run.tasks:
        try:
            yield task.rank, _one(run, values, task), 0
        except _Stop as stop:
            if stop.err:
                print(stop.err, file=sys.stderr, flush=True)
            yield task.rank, stop.out, stop.code


def _options(run: Run) -> dict:
    told = {"size": 33554432, "times": 100, "device": 0, "float": False, "csv": False}
    told |= {"mebi": False, "only": "", "list": False}
    words = run.words[1:]

    def number(complaint):
        if not words or not words[0].isdigit():
            raise _Stop(1, err=complaint)
        return int(words.pop(0))

    while words:
        word = words.pop(0)
        if word == "--list":
            told["list"] = True
            return told
        if word == "--device":
            told["device"] = number("Invalid device index.")
        elif word in ("-s", "--arraysize"):
            told["size"] = number("Invalid array size.")
            if not 0 < told["size"] < 2**31:
                raise _Stop(1, err="Invalid array size.")
        elif word in ("-n", "--numtimes"):
            told["times"] = number("Invalid number of times.")
            if told["times"] < 2:
                raise _Stop(1, err="Number of times must be 2 or more")
        elif word in ("--float", "--csv"):
            told[word[2:]] = True
        elif word in ("--triad-only", "--nstream-only"):
            told["only"] = word[2:-5]
        elif word == "--mibibytes":
            told["mebi"] = True
        elif word in ("-h", "--help"):
            raise _Stop(0, out=_HELP.format(program=run.words[0]))
        else:
            raise _Stop(1, err=f"Unrecognized argument '{word}' (try '--help')")
    return told


def _one(run: Run, values: Values, task: Task) -> str:
    program = run.program
    told = _options(run)
    gpus = task.gpus if program in ON_GPU or (program != "omp-stream" and task.gpus) else ()
    if program == "serial-stream":
        gpus = ()
    if told["list"]:
        names = [run.machine.facts["gpu_name"]] * len(gpus) if gpus else ["CPU"]
        text = "".join(f"{index}: {name}\n" for index, name in enumerate(names))
        return f"\nDevices:\n{text}\n" if gpus else text
    size, times, csv = told["size"], told["times"], told["csv"]
    width = 4 if told["float"] else 8
    total = size * width
    unit, mega = ("Mi", 2.0**20) if told["mebi"] else ("M", 1e6)
    giga = 2.0**30 if told["mebi"] else 1e9
    text = ""
    if not csv:
        text += f"BabelStream\nVersion: 5.0\nImplementation: {NAMES[program]}\n"
        if told["only"] == "triad":
            text += f"Running triad {times} times\nNumber of elements: {size}\n"
        elif not told["only"]:
            text += f"Running kernels {times} times\n"
        text += f"Precision: {'float' if told['float'] else 'double'}\n"
        for name, amount in (("Array", total), ("Total", 3 * total)):
            large = "GiB" if told["mebi"] else "GB"
            text += f"{name} size: {amount / mega:.1f} {unit}B (={amount / giga:.1f} {large})\n"
    if program in ON_GPU:
        text += _device(run, told, gpus, ON_GPU[program], 3 * total, text)
    gpu = gpus[told["device"] % len(gpus)] if gpus else None

    def rate(kernel):
        if gpu is not None:
            value = values.stream_gpu(kernel, gpu)
        else:
            threads, bound = _threads(run, task)
            value = values.stream_cpu(kernel, task, threads, bound)
        gpus_told = [gpu] if gpu is not None else []
        return values.measured(
            value, False, metric=kernel, size=None, gpus=gpus_told, nodes=[task.node]
        )

    first = rate("copy") * 1e9
    took = {"Init": 3 * total / (first * 0.25), "Read": 3 * total / (first * 0.1)}
    column = f"max_{'mi' if told['mebi'] else 'm'}bytes_per_sec"
    if csv:
        text += f"phase,n_elements,sizeof,{column},runtime\n"
        for name, seconds in took.items():
            text += f"{name},{size},{width},{3 * total / mega / seconds:.6g},{seconds:.6g}\n"
    else:
        for name, seconds in took.items():
            text += f"{name}: {seconds:.6f} s (={3 * total / mega / seconds:.6f} {unit}Bytes/sec)\n"
    if told["only"] == "triad":
        text += _heads(told, unit, column)
        return text + _triad(told, rate("triad"), total, size, width)
    text += _heads(told, unit, column)
    kernels = [told["only"]] if told["only"] else list(KERNELS)[:5]
    for kernel in kernels:
        moved = KERNELS[kernel] * total
        seconds = moved / (rate(kernel) * 1e9)
        mean, most = seconds * 1.02, seconds * 1.09
        best = moved / mega / seconds
        if csv:
            cells = (kernel.title(), times, size, width, f"{best:.6g}")
            text += ",".join(map(str, cells)) + f",{seconds:.6g},{most:.6g},{mean:.6g}\n"
        else:
            text += f"{kernel.title():<12}{best:<12.3f}{seconds:<12.5f}{most:<12.5f}{mean:<12.5f}\n"
    return text


def _heads(told: dict, unit: str, column: str) -> str:
    if told["csv"]:
        return (
            f"function,num_times,n_elements,sizeof,{column},min_runtime,max_runtime,avg_runtime\n"
        )
    names = ("Function", f"{unit}Bytes/sec", "Min (sec)", "Max", "Average")
    return "".join(f"{name:<12}" for name in names) + "\n"


def _device(run: Run, told: dict, gpus: tuple, vendor: str, needed: int, before: str) -> str:
    """What the device's stream says of its device, or why there is none."""
    facts = run.machine.facts

    def throws(what: str) -> _Stop:
        return _Stop(
            134,
            before,
            "terminate called after throwing an instance of 'std::runtime_error'\n"
            f"  what():  {what}\nAborted (core dumped)",
        )

    if run.machine.vendor != vendor:
        return _raise(_Stop(1, before, f"no {vendor} driver was found"))
    if told["size"] % 1024:
        return _raise(throws("Array size must be a multiple of 1024"))
    if told["device"] >= len(gpus):
        return _raise(throws("Invalid device index"))
    if needed > facts["gpu_memory"] * 2**30:
        return _raise(throws("Device does not have enough memory for all 3 buffers"))
    name = facts["gpu_name"]
    if vendor == "rocm":
        return f"Using HIP device {name}\nDriver: 50322062\nMemory: DEFAULT\n"
    return (
        f"Using CUDA device {name}\nDriver: 11040\nMemory: DEFAULT\n"
        "Reduction kernel config: 432 groups of (fixed) size 1024\n"
    )


def _raise(stop: _Stop) -> str:
    raise stop


def _threads(run: Run, task: Task) -> tuple[int, bool]:
    """Threads of a task, and whether each keeps to its place."""
    if run.program == "serial-stream":
        return 1, True
    text = run.env.get("OMP_NUM_THREADS", "").split(",")[0]
    threads = int(text) if text.isdigit() else len(task.cpus)
    binding = run.env.get("OMP_PROC_BIND", "false").lower().split(",")[0]
    return threads, binding not in ("false", "") or threads == 1


def _triad(told: dict, rate: float, total: int, size: int, width: int) -> str:
    seconds = told["times"] * 3 * total / (rate * 1e9)
    giga = 2.0**30 if told["mebi"] else 1e9
    bandwidth = told["times"] * 3 * total / giga / seconds
    prefix = "gi" if told["mebi"] else "g"
    if told["csv"]:
        return (
            f"function,num_times,n_elements,sizeof,{prefix}bytes_per_sec,runtime\n"
            f"Triad,{told['times']},{size},{width},{bandwidth:.6g},{seconds:.6g}\n"
        )
    return (
        f"--------------------------------\nRuntime (seconds): {seconds:.5f}\n"
        f"Bandwidth ({'GiB/s' if told['mebi'] else 'GB/s'}):  {bandwidth:.3f}\n"
    )
