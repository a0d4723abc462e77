"""GPCNeT 1.2 and 1.3: ``network_test`` and ``network_load_test`` (times in µs, rates in MiB/s).

A row ``RR Two-sided Lat (8 B)`` with the columns ``Avg`` and ``99%`` becomes
``random_ring_latency`` and ``random_ring_latency_p99`` of 8 bytes (:data:`ROWS`); ``location`` is
the table: ``isolated``, or ``congested`` while the congestors run. ``99%`` of a rate is the one
that 99 % of the measurements exceed. ``MiB/s/rank`` is 2²⁰ bytes per second and rank.

The last table of ``network_load_test`` contains the congestion factors:
``random_ring_latency_congestion_factor`` and ``random_ring_latency_p99_congestion_factor``. A
factor has neither size nor ``location``. Source: ``utils.c`` (``print_results``,
``print_comparison_results``, ``print_header``), ``network_test.c``, ``network_load_test.c``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plumbline.parse import Fom, Output, ParseError, parse_count, parse_number, quote, single

#: Name of a row, without the size -> metric.
ROWS = {
    "RR Two-sided Lat": "random_ring_latency",
    "RR Get Lat": "random_ring_get_latency",
    "RR Two-sided BW": "random_ring_bandwidth",
    "RR Put BW": "random_ring_put_bandwidth",
    "RR Two-sided BW+Sync": "random_ring_sync_bandwidth",
    "Nat Two-sided BW": "natural_ring_bandwidth",
    "Multiple Allreduce": "multiple_allreduce_latency",
    "Multiple Alltoall": "multiple_alltoall_bandwidth",
}

#: Program -> rows of each of its tables.
PROGRAMS = {
    "Network": tuple(ROWS),
    "NetworkLoad": ("RR Two-sided Lat", "RR Two-sided BW+Sync", "Multiple Allreduce"),
}

_ISOLATED = "Isolated Network Tests"
_CONGESTED = "Network Tests running with Congestion Tests"
_FACTORS = "Network Tests running with Congestion Tests - Key Results"

#: Program -> its tables, in the order they are printed.
TABLES = {"Network": [_ISOLATED], "NetworkLoad": [_ISOLATED, _CONGESTED, _FACTORS]}

#: The header rows of each table.
_HEADS = {
    _ISOLATED: [["Name", "Avg", "99%", "Units"]],
    _CONGESTED: [["Name", "Avg", "99%", "Units"]],
    _FACTORS: [["Name", "Congestion Impact Factor"], ["", "Avg", "99%"]],
}

_TITLE = re.compile(r"^(Network|NetworkLoad) Tests v(\d+\.\d+)[ ]*$", re.M)
_RANKS = re.compile(r"^  Test with (\d+) MPI ranks \((\d+) nodes\)[ ]*$", re.M)
_TESTED = re.compile(r"^  (\d+) nodes running Network Tests[ ]*$", re.M)
_CONGESTORS = re.compile(
    r"^  (\d+) nodes running Congestion Tests \(min (\d+) nodes .*\)[ ]*$", re.M
)

# The name is cut after 31 characters, which takes the bracket of a size of seven digits.
_NAME = re.compile(r"(.+) \(\s*(\d+) B\)?")
_TENTH = re.compile(r"\d+\.\d", re.ASCII)

#: Width of a table, separators included.
_WIDTH = 80


def parse(text: str) -> Output:
    """Parse the output of one run of either program.

    :raises ParseError: if it is truncated, garbled, of several runs, or contradictory.
    """
    error = re.search(r"^ERROR: .*$", text, re.M)
    if error:
        raise ParseError(f"GPCNeT reports: {error[0]}", code="output.program-error")
    program, version = single(_TITLE.finditer(text), "the title of GPCNeT").groups()
    tasks, nodes = single(_RANKS.findall(text), "the line with ranks and nodes")
    command = {"Network": "network_test", "NetworkLoad": "network_load_test"}[program]
    inputs = {"program": command, "nodes": nodes}
    if program == "NetworkLoad":
        inputs["test_nodes"] = single(_TESTED.findall(text), "the number of tested nodes")
        congestors, _ = single(_CONGESTORS.findall(text), "the number of congestors' nodes")
        inputs["congestor_nodes"] = congestors
        tested, congesting, total = (
            parse_count(count, "nodes") for count in (inputs["test_nodes"], congestors, nodes)
        )
        if tested + congesting != total:
            raise ParseError(f"{tested} and {congesting} nodes are not {total} nodes")
    tables = _tables(text)
    if [title for title, _ in tables] != TABLES[program]:
        raise ParseError(f"the tables are {[title for title, _ in tables]}")
    foms: dict[str, list[Fom]] = {}
    for title, rows in tables:
        names = [name for name, _, _ in rows]
        if tuple(names) != PROGRAMS[program]:
            raise ParseError(f"{title!r}: rows are missing or duplicated: {names}")
        read = _factor if title == _FACTORS else _measured
        foms[title] = [fom for row in rows for fom in read(title, *row)]
    if program == "NetworkLoad":
        _check_factors(tables, foms)
    figures = tuple(fom for table in foms.values() for fom in table)
    return Output(figures, parse_count(tasks, "MPI ranks"), version, inputs)


def _lines(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of all tables with their cells; a title has one cell."""
    lines = [line for line in text.splitlines() if line[:1] in {"|", "+"}]
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if len(line) != _WIDTH or line[0] != line[-1]:
            raise ParseError(f"a line of a table is truncated or too long: {line!r}")
        if line[0] == "+":
            if set(line) != {"+", "-"}:
                raise ParseError(f"not the line that separates rows: {line!r}")
            continue
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if below[:1] != "+" and len(cells) > 1:
            raise ParseError(f"no line below a row: {line!r}")
        yield line, cells


#: Title of each table, and name, size and cells of its rows.
_Tables = list[tuple[str, list[tuple[str, str, list[str]]]]]


def _tables(text: str) -> _Tables:
    tables: _Tables = []
    heads: list[list[str]] = []
    for line, cells in _lines(text):
        if len(cells) == 1:
            if cells[0] not in _HEADS:
                raise ParseError(f"an unknown table: {cells[0]!r}")
            tables.append((cells[0], []))
            heads = list(_HEADS[cells[0]])
        elif heads:
            if cells != heads.pop(0):
                raise ParseError(f"{tables[-1][0]!r} has an unknown header: {cells}")
        elif not tables:
            raise ParseError(f"a row outside a table: {line!r}")
        elif match := _NAME.fullmatch(cells[0]):
            tables[-1][1].append((match[1], match[2], cells[1:]))
        else:
            raise ParseError(f"{tables[-1][0]!r}: a row without a name and a size: {line!r}")
    return tables


def _measured(title: str, name: str, size: str, cells: list[str]) -> Iterator[Fom]:
    if len(cells) != 3 or name not in ROWS:
        raise ParseError(f"{title!r}: {name}: expected two numbers and a unit: {cells}")
    metric = ROWS[name]
    units = {"usec": "us"} if metric.endswith("latency") else {"MiB/s/rank": "MiB/s"}
    if cells[2] not in units:
        raise ParseError(f"{title!r}: {name}: unexpected unit {cells[2]!r}")
    location = "isolated" if title == _ISOLATED else "congested"
    for ending, cell in zip(("", "_p99"), cells, strict=False):
        yield Fom(
            metric + ending, _tenth(cell, name), units[cells[2]], _bytes(size, name), location
        )


def _factor(title: str, name: str, size: str, cells: list[str]) -> Iterator[Fom]:
    if len(cells) != 2 or name not in ROWS or not all(cell.endswith("X") for cell in cells):
        raise ParseError(f"{title!r}: {name}: expected two factors: {cells}")
    _bytes(size, name)
    for ending, cell in zip(("", "_p99"), cells, strict=True):
        metric = f"{ROWS[name]}{ending}_congestion_factor"
        yield Fom(metric, _tenth(cell.removesuffix("X"), name), "one")


def _bytes(size: str, name: str) -> int:
    return parse_count(size, f"{name}: bytes")


def _tenth(cell: str, name: str) -> float:
    if not _TENTH.fullmatch(cell):
        raise ParseError(f"{name}: {quote(cell)} is not a number with one decimal")
    return parse_number(cell, name)


def _check_factors(tables: _Tables, foms: dict[str, list[Fom]]) -> None:
    """Check the factors against the printed numbers of the two tables."""
    sizes = [[size for _, size, _ in rows] for _, rows in tables]
    if sizes != [sizes[0]] * len(sizes):
        raise ParseError(f"the tables have different message sizes: {sizes}")
    for isolated, congested, factor in zip(
        *(foms[title] for title in TABLES["NetworkLoad"]), strict=True
    ):
        is_latency = isolated.unit == "us"
        above, below = (congested, isolated) if is_latency else (isolated, congested)
        if not below.value:
            raise ParseError(f"{factor.metric}: {below.variable} is 0.0")
        if abs(above.value / below.value - factor.value) > 0.0501:
            raise ParseError(
                f"{factor.metric}: {above.value} / {below.value} contradicts {factor.value}"
            )
