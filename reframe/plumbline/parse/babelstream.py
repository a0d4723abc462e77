"""BabelStream 4.0, 5.0 and main: the table, the CSV table, and ``--triad-only``.

The metrics are ``copy``, ``mul``, ``add``, ``triad``, ``dot`` and ``nstream``: the best rate of a
kernel over all repetitions but the first, with STREAM's count of bytes. ``--triad-only`` of 4.0 and
5.0 instead prints one mean rate over all repetitions, in GB/s, which is ``triad`` too.

After a failed validation, 4.0 and 5.0 print ``Validation failed`` on standard error, then their
table, and exit with 0. main prints ``FAILED validation``, and continues with ``--silence-errors``.
The parser refuses both, so standard error must be searched for :data:`FAILED` too.

5.0 swaps the names of its phases: ``Init`` is the time of reading. Phases are not figures of merit.
Source: ``src/main.cpp``, ``src/Unit.h`` and ``src/benchmark.h``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from plumbline.parse import Fom, Output, ParseError, parse_count, parse_number, single

#: BabelStream's messages about wrong results.
FAILED = re.compile(r"^(?:Validation failed on|FAILED validation of) .*$", re.M)

#: In names of SYCL devices that are no GPU.
NO_GPU = re.compile(r"\bcpu\b|processor|xeon|epyc|core\(tm\)|fpga|emulat|host device", re.I)

#: Kernels in the order in which they run -> number of arrays that each reads and writes.
KERNELS = {"Copy": 2, "Mul": 2, "Add": 3, "Triad": 3, "Dot": 2, "Nstream": 4}

_CLASSIC = ("Copy", "Mul", "Add", "Triad", "Dot")

#: Unit in the table's header (4.0, 5.0: ``MBytes/sec``; main: ``MB/s``; CSV: between ``max_`` and
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
# --triad-only prints its own header below the header of the other table.
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
    """A printed row: kernel, rate, times, and half of the last digit of the times."""

    kernel: str
    rate: float
    times: tuple[float, ...]
    half: float


def parse(text: str) -> Output:
    """Parse the output of one run.

    :raises ParseError: if it is truncated, garbled, of several runs, contradictory, or of a failed
        validation.
    """
    failed = FAILED.search(text)
    if failed:
        raise ParseError(f"BabelStream reports: {failed[0].strip()}", code="output.program-error")
    if _CSV.search(text):
        return _csv(text)
    single(re.findall(r"^BabelStream[ ]*$", text, re.M), "the banner of BabelStream")
    _check_end(text)
    version = single(_VERSION.findall(text), "the version")
    inputs = {key: single(re.findall(p, text, re.M), key) for key, p in _FACTS.items()}
    for key, pattern in _OPTIONAL.items():
        found = re.findall(pattern, text, re.M)
        if found:
            inputs[key] = single(found, key)
    low, high = _volume(inputs)
    head = single(_HEAD.finditer(text), "the table's header")
    lines = text[head.end() :].splitlines()
    if "-" * 32 in lines:
        rows, unit, divisor = _only_triad(lines, inputs)
    else:
        unit, divisor = _unit(head[1])
        rows = _table(lines)
    names = tuple(row.kernel for row in rows)
    if names != _kernels(text):
        raise ParseError(f"rows are missing or duplicated: {names}, expected {_kernels(text)}")
    for row in rows:
        arrays = KERNELS[row.kernel]
        _check_row(row, arrays * low / divisor, arrays * high / divisor, 0.0005)
    return Output(_figures(rows, unit), None, version, inputs)


def _check_end(text: str) -> None:
    if not text.endswith("\n"):
        raise ParseError("the last line is truncated")


def _unit(name: str) -> tuple[str, float]:
    if name not in UNITS:
        raise ParseError(f"unknown unit {name!r}")
    return UNITS[name]


def _volume(inputs: dict[str, str]) -> tuple[float, float]:
    """Return the least and most bytes of one array that the printed size allows."""
    found = _SIZE.fullmatch(inputs["array_volume"])
    if not found or found[2] not in UNITS:
        raise ParseError(f"not an array size: {inputs['array_volume']!r}")
    divisor = UNITS[found[2]][1]
    low, high = ((float(found[1]) + half) * divisor for half in (-0.051, 0.051))
    if "array_size" in inputs:
        exact = parse_count(inputs["array_size"], "Number of elements")
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
            raise ParseError(f"unexpected line in the table: {line!r}")
        name, *numbers = cells
        if (
            len(numbers) != 4
            or not _RATE.fullmatch(numbers[0])
            or not all(map(_TIME.fullmatch, numbers[1:]))
        ):
            raise ParseError(f"{name}: expected a rate and three times: {line!r}")
        rate, *times = (parse_number(cell, name) for cell in numbers)
        rows.append(_KernelRow(name, rate, tuple(times), 0.5e-5))
    return rows


def _only_triad(lines: list[str], inputs: dict[str, str]) -> tuple[list[_KernelRow], str, float]:
    """Parse ``--triad-only`` of 4.0 and 5.0: one time and one rate of all repetitions."""
    num_times = parse_count(inputs.get("num_times", "0"), "the number of repetitions")
    printed = [line.strip() for line in lines if line.strip()]
    if len(printed) != 3 or printed[0] != "-" * 32:
        raise ParseError(f"{len(printed)} lines of --triad-only, expected three")
    runtime, bandwidth = _RUNTIME.fullmatch(printed[1]), _BANDWIDTH.fullmatch(printed[2])
    if not runtime or not bandwidth or not num_times:
        raise ParseError(f"expected a time and a rate of --triad-only: {printed[1:]}")
    unit, divisor = _unit(bandwidth[1])
    time = parse_number(runtime[1], "Runtime") / num_times
    rate = parse_number(bandwidth[2], "Bandwidth")
    return [_KernelRow("Triad", rate, (time, time, time), 0.5e-5 / num_times)], unit, divisor


def _csv(text: str) -> Output:
    """Parse the CSV table, before which 5.0 prints a phase; none has the program and version."""
    heads = single(_CSV_HEADS.findall(text), "the CSV table's header")
    head = _CSV.fullmatch(heads.splitlines()[-1])
    _check_end(text)
    if not head:
        raise ParseError(f"an unknown header of the CSV table: {heads!r}")
    before = text[: text.index(heads)].splitlines()
    if any(line.split(",")[0].strip() in {"BabelStream", *KERNELS} for line in before):
        raise ParseError("another run before the CSV table")
    unit, divisor = _unit(head[1])
    width = 5 + len(head[2].split(","))
    inputs: dict[str, str] = {}
    rows = []
    for line in text[text.index(heads) + len(heads) :].splitlines():
        cells = line.split(",")
        if not line.strip():
            continue
        if len(cells) != width or cells[0] not in KERNELS:
            raise ParseError(f"unexpected line in the CSV table: {line!r}")
        name, num_times, elements, size, *numbers = cells
        if size not in {"4", "8"}:
            raise ParseError(f"{name}: numbers have {size} bytes")
        rate, *times = (parse_number(cell, name) for cell in numbers)
        if len(times) == 1:
            times = [times[0] / max(parse_count(num_times, "num_times"), 1)] * 3
        row_inputs = {
            "num_times": num_times,
            "array_size": elements,
            "precision": {"4": "float", "8": "double"}[size],
        }
        if inputs and row_inputs != inputs:
            raise ParseError(f"{name}: the inputs differ from the row before: {row_inputs}")
        inputs = row_inputs
        row = _KernelRow(name, rate, tuple(times), times[0] * 1e-5)
        volume = KERNELS[name] * parse_count(elements, "n_elements") * int(size) / divisor
        _check_row(row, volume, volume, rate * 1e-5)
        rows.append(row)
    names = tuple(row.kernel for row in rows)
    # 4.0 and 5.0 run one kernel alone with --triad-only and --nstream-only; main with --only.
    alone = ("Triad",) if head[2] == "runtime" else ("Nstream",)
    if names not in (_CLASSIC, tuple(KERNELS), alone) and not (
        head[1] in _MAIN and len(names) == 1
    ):
        raise ParseError(f"rows are missing or duplicated: {', '.join(names) or 'none'}")
    return Output(_figures(rows, unit), None, "", inputs)


def _kernels(text: str) -> tuple[str, ...]:
    """Return the kernels that ran; ``--nstream-only`` of 4.0 and 5.0 does not print them."""
    lines = re.findall(r"^Running (.*\S) +\d+ times", text, re.M)
    if not lines:
        return ("Nstream",)
    name = single(lines, "the line with the kernels that run").split()[-1]
    several = {"All kernels": tuple(KERNELS), "Classic kernels": _CLASSIC, "kernels": _CLASSIC}
    return several.get(" ".join(lines[0].split()), (name.capitalize(),))


def _check_row(row: _KernelRow, low: float, high: float, half_rate: float) -> None:
    """Check a row's rate against its shortest time, from which the program computed it.

    :arg low: the least volume that the kernel moved, in the rate's unit; ``high``: the most.
    """
    least, most, mean = row.times
    if not least - 2 * row.half <= mean <= most + 2 * row.half:
        raise ParseError(f"{row.kernel}: minimum, mean, maximum are {least}, {mean}, {most} s")
    slowest = low / (least + row.half) - half_rate if least + row.half else 0.0
    fastest = high / (least - row.half) + half_rate if least > row.half else float("inf")
    if not slowest * (1 - 1e-9) <= row.rate <= fastest * (1 + 1e-9):
        raise ParseError(
            f"{row.kernel}: a rate of {row.rate} contradicts a time of {least} s: "
            f"it is outside {slowest:.3f} .. {fastest:.3f}"
        )


def _figures(rows: list[_KernelRow], unit: str) -> tuple[Fom, ...]:
    return tuple(Fom(row.kernel.lower(), row.rate, unit) for row in rows)
