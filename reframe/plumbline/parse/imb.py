"""Intel MPI Benchmarks, ``IMB-MPI1`` 2019 and later (times in µs, bandwidths in 10⁶ B/s).

A file contains one run, with one table for each benchmark of the command line. The metrics are
``<benchmark>_<what>``: ``pingpong_latency``, ``pingpong_bandwidth``, ``allreduce_latency``
(the mean over the ranks), ``allreduce_latency_min``, ``allreduce_latency_max`` ...
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from plumbline.parse import Fom, Output, ParseError, parse_count, parse_number, single

#: Column -> suffix of the metric, and unit. Papers quote ``t_avg``.
COLUMNS = {
    "t[usec]": ("latency", "us"),
    "t_avg[usec]": ("latency", "us"),
    "t_min[usec]": ("latency_min", "us"),
    "t_max[usec]": ("latency_max", "us"),
    "Mbytes/sec": ("bandwidth", "MB/s"),
    "Msg/sec": ("message_rate", "message/s"),
}

_TIMES = ("t_min[usec]", "t_max[usec]", "t_avg[usec]")

#: The table headers of IMB.
HEADS = (
    ("#bytes", "#repetitions", "t[usec]", "Mbytes/sec"),
    ("#bytes", "#repetitions", *_TIMES),
    ("#bytes", "#repetitions", *_TIMES, "Mbytes/sec"),
    ("#bytes", "#repetitions", "Mbytes/sec", "Msg/sec"),
    ("#repetitions", *_TIMES),
)

#: Benchmarks on 4-byte floats, whose smallest size above 0 is 4.
REDUCTIONS = {"allreduce", "reduce", "reduce_scatter", "reduce_scatter_block"}

#: Messages per repetition in the printed bandwidth.
MESSAGES = {"pingpong": 1, "pingping": 1, "sendrecv": 2, "exchange": 4}

#: Bandwidth in MB/s below which half of the last printed digit, 0.005, is more than 1 %.
COARSE = 0.5

_VERSION = re.compile(r"^#\s+Intel\(R\) MPI Benchmarks (\S+(?: Update \d+)?), MPI-1 part\s*$", re.M)
_LISTED = re.compile(r"^# List of Benchmarks to run:[ ]*\n((?:[ ]*\n|# \w+[ ]*\n)+)", re.M)
_LARGEST = re.compile(r"^# Maximum message length in bytes:\s+(\d+)\s*$", re.M)
_COMMAND = re.compile(r"^# Calling sequence was:[ ]*\n[ ]*\n# (.+)$", re.M)
#: Without a second ``!!``: a build with ``IMB_OPTIONAL``, whose "results may differ".
_ERROR = re.compile(r"^# !! (.*?)(?: !!)?[ ]*$|^(Invalid benchmark name .*)$", re.M)
_END = "# All processes entering MPI_Finalize"


@dataclass(frozen=True)
class _Table:
    """A printed table: benchmark, process count, header, and the cells of the rows."""

    name: str
    tasks: int
    head: tuple[str, ...]
    rows: list[list[str]]


def parse(text: str) -> Output:
    """Parse the output of one run of ``IMB-MPI1``.

    :raises ParseError: if it is truncated, garbled, of several runs, or contradictory.
    """
    version = single(_VERSION.findall(text), "the banner of IMB-MPI1")
    error = _ERROR.search(text)
    if error:
        raise ParseError(
            f"IMB reports: {(error[1] or error[2]).strip()}", code="output.program-error"
        )
    if sum(line.strip() == _END for line in text.splitlines()) != 1:
        raise ParseError(f"the last line {_END!r} is missing or repeated: the run did not end")
    listed = re.findall(r"# (\w+)", single(_LISTED.findall(text), "the list of benchmarks"))
    tables = list(_tables(text))
    tasks = {table.tasks for table in tables}
    if len(tasks) > 1:
        raise ParseError(f"tables for several process counts: {sorted(tasks)}; run with -npmin")
    if not tables or [table.name for table in tables] != listed:
        found = ", ".join(table.name for table in tables) or "none"
        raise ParseError(f"benchmarks {', '.join(listed)} were selected, tables exist for {found}")
    expected = _expected(text)
    foms = [fom for table in tables for fom in _figures(table, expected)]
    return Output(tuple(foms), tasks.pop(), version)


def _tables(text: str) -> Iterator[_Table]:
    """Yield the tables: from the line with the benchmark's name to the next empty line."""
    lines = iter(text.splitlines())
    for line in lines:
        title = re.fullmatch(r"# Benchmarking (\S+)\s*", line)
        if not title:
            continue
        name = title[1]
        counted = re.fullmatch(r"# #processes = (\d+)\s*", next(lines, ""))
        if not counted:
            raise ParseError(f"{name}: the line with its process count is missing")
        line = next(lines, "")
        if re.fullmatch(r"# \( \d+ additional process(?:es)? waiting in MPI_Barrier ?\)\s*", line):
            line = next(lines, "")
        head = tuple(next(lines, "").split())
        if not re.fullmatch(r"#-+", line.strip()) or head not in HEADS:
            raise ParseError(f"{name}: unknown header of its table: {' '.join(head)!r}")
        rows = []
        for line in lines:
            if not line.strip():
                break
            rows.append(line.split())
        yield _Table(name, parse_count(counted[1], f"{name}: #processes"), head, rows)


def _figures(table: _Table, expected: Callable[[str], list[int] | None]) -> Iterator[Fom]:
    """Yield the figures of a table.

    :arg expected: returns the sizes of a benchmark's rows, ``None`` if they are unknown.
    """
    name = table.name.lower()
    sized = table.head[0] == "#bytes"
    if not table.rows or (not sized and len(table.rows) != 1):
        raise ParseError(f"{name}: the table has {len(table.rows)} rows")
    sizes: list[int] = []
    for row in table.rows:
        if "time-out.;" in row:
            raise ParseError(
                f"{name}: IMB reports a time-out at {row[0]} bytes: the machine or the network is "
                f"too slow for its -time, or others use it too",
                code="output.program-error",
            )
        if len(row) != len(table.head):
            raise ParseError(f"{name}: {len(row)} cells for {len(table.head)} columns: {row}")
        cells = dict(zip(table.head, row, strict=True))
        size = parse_count(cells.pop("#bytes"), f"{name}: #bytes") if sized else None
        if not parse_count(cells.pop("#repetitions"), f"{name}: #repetitions"):
            raise ParseError(f"{name}: a row without repetitions: {row}")
        values = {column: parse_number(cell, f"{name}: {column}") for column, cell in cells.items()}
        _check_row(name, size, values)
        if size and name in MESSAGES and values["Mbytes/sec"] < COARSE:
            # One byte in 199 us is printed as 0.01, in 201 us as 0.00; the time has more digits.
            values["Mbytes/sec"] = MESSAGES[name] * size / _time(values)
        for column, value in values.items():
            suffix, unit = COLUMNS[column]
            # IMB prints the bandwidth of an empty message as zero.
            if not (size == 0 and suffix == "bandwidth"):
                yield Fom(f"{name}_{suffix}", value, unit, size)
        if size is not None:
            sizes.append(size)
    if sized:
        _check_sizes(name, sizes, expected(name))


def _check_sizes(name: str, sizes: list[int], expected: list[int] | None) -> None:
    """Check that no row is missing or repeated."""
    rising = all(before < after for before, after in itertools.pairwise(sizes))
    if not rising or (expected is not None and sizes != expected):
        raise ParseError(f"{name}: rows are missing or duplicated: its sizes are {sizes}")


def _expected(text: str) -> Callable[[str], list[int] | None]:
    """Return the function that gives the sizes of a benchmark's rows.

    They are 0, then doubling up to the largest, or ``None`` if the command line chose others.
    """
    command = single(_COMMAND.findall(text), "the calling sequence")
    if re.search(r"\s-(?:msglen|msgsize|zero_size|data_type|red_data_type|input)\b", command):
        # With -msglen IMB prints no maximum either.
        return lambda name: None
    largest = parse_count(single(_LARGEST.findall(text), "the maximum message length"), "its bytes")
    logs = re.search(r"\s-msglog (\d{1,2}):\d", command)
    smallest = 2 ** int(logs[1]) if logs else 1

    def sizes(name: str) -> list[int] | None:
        first = max(smallest, 4) if name in REDUCTIONS else smallest
        powers = itertools.takewhile(lambda size: size <= largest, (first << k for k in range(64)))
        return [0, *powers]

    return sizes


def _check_row(name: str, size: int | None, value: dict[str, float]) -> None:
    """Check the bandwidth of a row against its time."""
    if "t_min[usec]" in value:
        low, high, mean = (value[column] for column in _TIMES)
        if not low <= mean <= high:
            raise ParseError(f"{name}: t_min, t_avg, t_max are {low}, {mean}, {high}")
    if name in MESSAGES and size and "Mbytes/sec" in value:
        time = _time(value)
        volume, printed, half = MESSAGES[name] * size, value["Mbytes/sec"], 0.005
        lowest = volume / (time + half)
        highest = volume / (time - half) if time > half else float("inf")
        if not lowest * 0.999 - half <= printed <= highest * 1.001 + half:
            raise ParseError(
                f"{name}: {size} bytes in {time} us contradict {printed} MB/s (10^6 bytes)"
            )


def _time(value: dict[str, float]) -> float:
    """Return the time of a row that its bandwidth is derived from."""
    return value["t[usec]"] if "t[usec]" in value else value["t_max[usec]"]
