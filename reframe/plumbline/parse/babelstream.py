"""BabelStream 4.0, 5.0 and main: the table, the CSV table, and ``--triad-only``.

The metrics are ``copy``, ``mul``, ``add``, ``triad``, ``dot`` and ``nstream``: the best rate of a
kernel over all repetitions but the first, as STREAM counts bytes. ``--triad-only`` of 4.0 and 5.0
prints one mean rate over all repetitions instead, in GB/s; it is ``triad`` too.

4.0 and 5.0 say ``Validation failed`` on standard error, print their table and exit with 0; main
says ``FAILED validation``, and goes on with ``--silence-errors``. The parser refuses both
wherever they stand in the text, so standard error must be held against :data:`FAILED` too.

5.0 swaps the names of its phases: what it calls ``Init`` is the time of reading. They are no
figures of merit. Source: ``src/main.cpp``, ``src/Unit.h`` and ``src/benchmark.h``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from plumbline.parse import Fom, Output, ParseError, number, sole, whole

#: What BabelStream says of wrong results.
FAILED = re.compile(r"^(?:Validation failed on|FAILED validation of) .*$", re.M)

#: Kernel, in the order they run -> arrays that it reads and writes.
KERNELS = {"Copy": 2, "Mul": 2, "Add": 3, "Triad": 3, "Dot": 2, "Nstream": 4}

_CLASSIC = ("Copy", "Mul", "Add", "Triad", "Dot")

#: Unit in the table's head (4.0, 5.0: ``MBytes/sec``; main: ``MB/s``; CSV: between ``max_`` and
#: ``_per_sec``) -> unit, and its bytes.
UNITS = {
    "MBytes/sec": ("MB/s", 1e6),
    "MiBytes/sec": ("MiB/s", 2.0**20),
    "mbytes": ("MB/s", 1e6),
    "mibytes": ("MiB/s", 2.0**20),
    "gbytes": ("GB/s", 1e9),
    "gibytes": ("GiB/s", 2.0**30),
}
for _prefix, _bytes in {"M": 1e6, "G": 1e9, "T": 1e12}.items():
    UNITS[f"{_prefix}B/s"] = UNITS[f"{_prefix}B"] = (f"{_prefix}B/s", _bytes)
for _prefix, _bytes in {"Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}.items():
    UNITS[f"{_prefix}B/s"] = UNITS[f"{_prefix}B"] = (f"{_prefix}B/s", _bytes)

#: The units that only main's CSV table has.
_MAIN = {"MB", "MiB", "GB", "GiB", "TB", "TiB"}

_VERSION = re.compile(r"^Version: (\d\S*)[ ]*$", re.M)
_HEAD = re.compile(r"^Function +(\S+) +Min \(sec\) +Max +Average *$", re.M)
_CSV = re.compile(
    r"^function,num_times,n_elements,sizeof,(?:max_)?(\w+)_per_sec,"
    r"(min_runtime,max_runtime,avg_runtime|runtime)$",
    re.M,
)
# --triad-only prints its own head under the one of the other table.
_CSV_HEADS = re.compile(
    r"^function,num_times,.*,avg_runtime\n(?:function,num_times,.*,runtime\n)?", re.M
)
_RATE = re.compile(r"\d+\.\d{3}", re.ASCII)
# A rate of 10 TB/s and more fills its column of twelve.
_JOINED = re.compile(r"(\.\d{3})(?=\d+\.\d{5})", re.ASCII)
_TIME = re.compile(r"\d+\.\d{5}", re.ASCII)
_SIZE = re.compile(r"(\d+\.\d) (\w+)(?: \(=\d+\.\d \w+\))?", re.ASCII)
_RUNTIME = re.compile(r"Runtime \(seconds\): (\d+\.\d{5})", re.ASCII)
_BANDWIDTH = re.compile(r"Bandwidth \((\S+)\):  (\d+\.\d{3})", re.ASCII)

#: Lines before the table -> inputs.
_FACTS = {
    "implementation": r"^Implementation: (.*\S)[ ]*$",
    "precision": r"^Precision: (float|double)[ ]*$",
    "array_volume": r"^Array size: (.*\S)[ ]*$",
}
_OPTIONAL = {
    "num_times": r"^Running .*?(?<!\d)(\d+) times\b.*$",
    "array_size": r"^Number of elements: (\d+)[ ]*$",
    # main's CUDA: CUDA Device 0: "NAME" 132 SMs(9,0) Memory: ...
    "device": r'^(?:Using \w+ device:? |CUDA Device \d+: ")(.*?[^\s"])(?:" \d+ SMs\(.*)?[ ]*$',
    "order": r"^Running .* times in +(\w+) order[ ]*$",
}


@dataclass(frozen=True)
class _KernelRow:
    """One kernel as it is printed: name, rate, times, and half of the times' last digit."""

    kernel: str
    rate: float
    times: tuple[float, ...]
    half: float


def parse(text: str) -> Output:
    """Reads the output of one run.

    :raises ParseError: if it is truncated, garbled, of several runs, contradicts itself, or holds
        a failed validation.
    """
    failed = FAILED.search(text)
    if failed:
        raise ParseError(f"BabelStream says: {failed[0].strip()}", code="output.program-error")
    if _CSV.search(text):
        return _csv(text)
    sole(re.findall(r"^BabelStream[ ]*$", text, re.M), "the banner of BabelStream")
    _closed(text)
    version = sole(_VERSION.findall(text), "the version")
    inputs = {key: sole(re.findall(p, text, re.M), key) for key, p in _FACTS.items()}
    for key, pattern in _OPTIONAL.items():
        found = re.findall(pattern, text, re.M)
        if found:
            inputs[key] = sole(found, key)
    low, high = _volume(inputs)
    head = sole(_HEAD.finditer(text), "the table's head")
    lines = text[head.end() :].splitlines()
    if "-" * 32 in lines:
        rows, unit, divisor = _only_triad(lines, inputs)
    else:
        unit, divisor = _unit(head[1])
        rows = _table(lines)
    names = tuple(row.kernel for row in rows)
    if names != _ran(text):
        raise ParseError(f"rows are missing or doubled: {names}, of {_ran(text)}")
    for row in rows:
        arrays = KERNELS[row.kernel]
        _consistent(row, arrays * low / divisor, arrays * high / divisor, 0.0005)
    return Output(_figures(rows, unit), None, version, inputs)


def _closed(text: str) -> None:
    if not text.endswith("\n"):
        raise ParseError("the last line is cut off")


def _unit(name: str) -> tuple[str, float]:
    if name not in UNITS:
        raise ParseError(f"rates in the unknown unit {name!r}")
    return UNITS[name]


def _volume(inputs: dict[str, str]) -> tuple[float, float]:
    """The bytes of one array: the least and the most that the printed size may mean."""
    found = _SIZE.fullmatch(inputs["array_volume"])
    if not found or found[2] not in UNITS:
        raise ParseError(f"no size of an array: {inputs['array_volume']!r}")
    divisor = UNITS[found[2]][1]
    low, high = ((float(found[1]) + half) * divisor for half in (-0.051, 0.051))
    if "array_size" in inputs:
        exact = whole(inputs["array_size"], "Number of elements")
        exact *= {"float": 4, "double": 8}[inputs["precision"]]
        if not low <= exact <= high:
            raise ParseError(f"{exact} bytes are not {inputs['array_volume']}")
        return exact, exact
    return max(low, 0.0), high


def _table(lines: list[str]) -> list[_KernelRow]:
    rows = []
    for line in lines:
        if not line.strip():
            continue
        cells = _JOINED.sub(r"\1 ", line).split()
        if cells[0] not in KERNELS:
            raise ParseError(f"no row of the table: {line!r}")
        name, *numbers = cells
        if (
            len(numbers) != 4
            or not _RATE.fullmatch(numbers[0])
            or not all(map(_TIME.fullmatch, numbers[1:]))
        ):
            raise ParseError(f"{name}: no rate and three times: {line!r}")
        rate, *times = (number(cell, name) for cell in numbers)
        rows.append(_KernelRow(name, rate, tuple(times), 0.5e-5))
    return rows


def _only_triad(lines: list[str], inputs: dict[str, str]) -> tuple[list[_KernelRow], str, float]:
    """``--triad-only`` of 4.0 and 5.0: the time and rate of all repetitions together."""
    num_times = whole(inputs.get("num_times", "0"), "the number of repetitions")
    told = [line.strip() for line in lines if line.strip()]
    if len(told) != 3 or told[0] != "-" * 32:
        raise ParseError(f"{len(told)} lines of --triad-only, expected three")
    runtime, bandwidth = _RUNTIME.fullmatch(told[1]), _BANDWIDTH.fullmatch(told[2])
    if not runtime or not bandwidth or not num_times:
        raise ParseError(f"no time and rate of --triad-only: {told[1:]}")
    unit, divisor = _unit(bandwidth[1])
    time = number(runtime[1], "Runtime") / num_times
    rate = number(bandwidth[2], "Bandwidth")
    return [_KernelRow("Triad", rate, (time, time, time), 0.5e-5 / num_times)], unit, divisor


def _csv(text: str) -> Output:
    """The CSV table. 5.0 prints one of its phases before; none names program and version."""
    heads = sole(_CSV_HEADS.findall(text), "the CSV table's head")
    head = _CSV.fullmatch(heads.splitlines()[-1])
    _closed(text)
    if not head:
        raise ParseError(f"an unknown head of the CSV table: {heads!r}")
    before = text[: text.index(heads)].splitlines()
    if any(line.split(",")[0].strip() in {"BabelStream", *KERNELS} for line in before):
        raise ParseError("another run stands before the CSV table")
    unit, divisor = _unit(head[1])
    width = 5 + len(head[2].split(","))
    inputs: dict[str, str] = {}
    rows = []
    for line in text[text.index(heads) + len(heads) :].splitlines():
        cells = line.split(",")
        if not line.strip():
            continue
        if len(cells) != width or cells[0] not in KERNELS:
            raise ParseError(f"no row of the CSV table: {line!r}")
        name, num_times, elements, size, *numbers = cells
        if size not in {"4", "8"}:
            raise ParseError(f"{name}: numbers of {size} bytes")
        rate, *times = (number(cell, name) for cell in numbers)
        times = times if len(times) == 3 else [times[0] / max(whole(num_times, "num_times"), 1)] * 3
        told = {
            "num_times": num_times,
            "array_size": elements,
            "precision": {"4": "float", "8": "double"}[size],
        }
        if inputs and told != inputs:
            raise ParseError(f"{name}: other inputs than the row before: {told}")
        inputs = told
        row = _KernelRow(name, rate, tuple(times), times[0] * 1e-5)
        volume = KERNELS[name] * whole(elements, "n_elements") * int(size) / divisor
        _consistent(row, volume, volume, rate * 1e-5)
        rows.append(row)
    names = tuple(row.kernel for row in rows)
    # 4.0 and 5.0 run one kernel alone with --triad-only and --nstream-only; main with --only.
    alone = ("Triad",) if head[2] == "runtime" else ("Nstream",)
    if names not in (_CLASSIC, tuple(KERNELS), alone) and not (
        head[1] in _MAIN and len(names) == 1
    ):
        raise ParseError(f"rows are missing or doubled: {', '.join(names) or 'none'}")
    return Output(_figures(rows, unit), None, "", inputs)


def _ran(text: str) -> tuple[str, ...]:
    """The kernels that ran, from the line that says so. ``--nstream-only`` of 4.0 and 5.0 prints
    none."""
    lines = re.findall(r"^Running (.*\S) +\d+ times", text, re.M)
    if not lines:
        return ("Nstream",)
    name = sole(lines, "the line with the kernels that run").split()[-1]
    several = {"All kernels": tuple(KERNELS), "Classic kernels": _CLASSIC, "kernels": _CLASSIC}
    return several.get(" ".join(lines[0].split()), (name.capitalize(),))


def _consistent(row: _KernelRow, low: float, high: float, half_rate: float) -> None:
    """Holds a row's numbers against each other: the rate was printed from the shortest time.

    :arg low: least volume that the kernel may have moved, in the rate's unit; ``high`` most.
    """
    least, most, mean = row.times
    if not least - 2 * row.half <= mean <= most + 2 * row.half:
        raise ParseError(f"{row.kernel}: minimum, mean, maximum are {least}, {mean}, {most} s")
    slowest = low / (least + row.half) - half_rate if least + row.half else 0.0
    fastest = high / (least - row.half) + half_rate if least > row.half else float("inf")
    if not slowest * (1 - 1e-9) <= row.rate <= fastest * (1 + 1e-9):
        raise ParseError(
            f"{row.kernel}: a rate of {row.rate} cannot be that of {least} s: "
            f"it lies outside {slowest:.3f} .. {fastest:.3f}"
        )


def _figures(rows: list[_KernelRow], unit: str) -> tuple[Fom, ...]:
    return tuple(Fom(row.kernel.lower(), row.rate, unit) for row in rows)
