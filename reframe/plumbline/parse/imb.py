"""Intel MPI Benchmarks, ``IMB-MPI1`` 2019 and later (times in µs, bandwidths in 10⁶ B/s).

A file holds one run; each benchmark named on its command line has one table. The metrics are
``<benchmark>_<what>``: ``pingpong_latency``, ``pingpong_bandwidth``, ``allreduce_latency``
(the mean over the ranks), ``allreduce_latency_min``, ``allreduce_latency_max`` ...
"""

from __future__ import annotations

import re

from plumbline.parse import Fom, Output, ParseError, number, sole, whole

#: Column of a table -> suffix of the metric and unit. ``t_avg`` is the one that papers quote.
COLUMNS = {
    "t[usec]": ("latency", "us"),
    "t_avg[usec]": ("latency", "us"),
    "t_min[usec]": ("latency_min", "us"),
    "t_max[usec]": ("latency_max", "us"),
    "Mbytes/sec": ("bandwidth", "MB/s"),
    "Msg/sec": ("message_rate", "message/s"),
}

#: Messages per repetition that the printed bandwidth counts.
MESSAGES = {"pingpong": 1, "pingping": 1, "sendrecv": 2, "exchange": 4}

_VERSION = re.compile(r"^#\s+Intel\(R\) MPI Benchmarks (\S+), MPI-1 part\s*$", re.M)
_COMMAND = re.compile(r"^# Calling sequence was:\s*\n\s*\n# (.+?)\s*$", re.M)
_LISTED = re.compile(r"^# List of Benchmarks to run:\s*\n((?:\s*\n|# \w+\s*\n)+)", re.M)
_TABLE = re.compile(
    r"^#-+\s*\n# Benchmarking (\w+)\s*\n# #processes = (\d+)\s*\n#-+\s*\n"
    r"[ ]*(#(?:bytes|repetitions).*)\n((?:[^#\n]*\n)*)",
    re.M,
)
_END = "# All processes entering MPI_Finalize"


def parse(text: str) -> Output:
    """Reads the output of one run of ``IMB-MPI1``.

    :raises ParseError: if it is truncated, garbled, of several runs, or contradicts itself.
    """
    version = sole(_VERSION.findall(text), "the banner of IMB-MPI1")
    invalid = re.search(r"^# !! (.*?) !!", text, re.M)
    if invalid:
        raise ParseError(f"IMB says: {invalid[1].strip()}")
    if sum(line.strip() == _END for line in text.splitlines()) != 1:
        raise ParseError(f"the closing line {_END!r} is not there once: the run did not end")
    listed = re.findall(r"# (\w+)", sole(_LISTED.findall(text), "the list of benchmarks"))
    tables = _TABLE.findall(text)
    if [table[0] for table in tables] != listed:
        raise ParseError(f"benchmarks {listed} were to run, tables are there for "
                         f"{[table[0] for table in tables]}")  # fmt: skip
    tasks = {whole(table[1], "#processes") for table in tables}
    if len(tasks) != 1:
        raise ParseError(f"tables for several process counts: {sorted(tasks)}; run with -npmin")
    foms = [fom for name, _, head, body in tables for fom in _table(name.lower(), head, body)]
    return Output(tuple(foms), tasks.pop(), version)


def _table(name: str, head: str, body: str) -> list[Fom]:
    columns = head.split()
    sized = columns[0] == "#bytes"
    measured = columns[2:] if sized else columns[1:]
    if columns[: 2 if sized else 1] != ["#bytes", "#repetitions"][0 if sized else 1 :] or any(
        column not in COLUMNS for column in measured
    ):
        raise ParseError(f"{name}: unknown columns {columns}")
    rows = [line.split() for line in body.splitlines() if line.strip()]
    if not rows or (not sized and len(rows) != 1):
        raise ParseError(f"{name}: the table has {len(rows)} rows")
    foms, before = [], -1
    for row in rows:
        if len(row) != len(columns):
            raise ParseError(
                f"{name}: a row has {len(row)} cells for {len(columns)} columns: {row}"
            )
        size = None
        if sized:
            size = whole(row[0], f"{name}: #bytes")
            if size <= before:
                raise ParseError(f"{name}: size {size} follows {before}")
            before = size
        if not whole(row[1 if sized else 0], f"{name}: #repetitions"):
            raise ParseError(f"{name}: a row without repetitions: {row}")
        cells = dict(zip(measured, row[len(columns) - len(measured) :], strict=True))
        _consistent(name, size, cells)
        for column, cell in cells.items():
            suffix, unit = COLUMNS[column]
            # Zero bytes a second is how IMB prints the bandwidth of an empty message.
            if not (size == 0 and suffix == "bandwidth"):
                value = number(cell, f"{name}: {column}")
                foms.append(Fom(f"{name}_{suffix}", value, unit, size))
    return foms


def _consistent(name: str, size: int | None, cells: dict[str, str]) -> None:
    """Holds a row's numbers against each other: each was printed from the same time."""
    value = {column: number(cell, f"{name}: {column}") for column, cell in cells.items()}
    if "t_min[usec]" in value:
        low, mean, high = (value[f"t_{which}[usec]"] for which in ("min", "avg", "max"))
        if not low <= mean <= high:
            raise ParseError(f"{name}: t_min, t_avg, t_max are {low}, {mean}, {high}")
    if name in MESSAGES and size and "Mbytes/sec" in value:
        time = value["t[usec]"] if "t[usec]" in value else value["t_max[usec]"]
        volume, printed, half = MESSAGES[name] * size, value["Mbytes/sec"], 0.005
        lowest = volume / (time + half)
        highest = volume / (time - half) if time > half else float("inf")
        if not lowest * 0.999 - half <= printed <= highest * 1.001 + half:
            raise ParseError(
                f"{name}: {size} bytes in {time} us cannot be {printed} MB/s (10^6 bytes)"
            )
