"""OSU Micro-Benchmarks 5.x to 7.x, the programs over MPI, and those of 7.x over NCCL and RCCL
(times in µs, bandwidths in 10⁶ B/s).

The title line contains the program; the metrics are

====================================  =========================================================
program                               metrics
====================================  =========================================================
osu_latency, osu_multi_lat            ``latency``, ``multi_latency``
osu_bw, osu_bibw                      ``bandwidth``, ``bibandwidth``
osu_mbw_mr                            ``multi_bandwidth``, ``message_rate`` (sums over the pairs)
osu_allreduce and others              ``allreduce_latency`` (the mean over the ranks); with
                                      ``-f`` also ``allreduce_latency_min``, ``..._max``
osu_iallreduce and others             ``iallreduce_latency`` (overall), ``iallreduce_compute``,
                                      ``iallreduce_pure_latency``, ``iallreduce_overlap`` (%)
osu_put_latency, osu_put_bw, ...      ``put_latency``, ``put_bandwidth``, ``put_bibandwidth``
osu_latency_persistent, ...           ``persistent_latency``, ``allreduce_persistent_latency``
osu_init                              ``init_time`` (the mean over the ranks), ``init_time_min``,
                                      ``init_time_max`` (ms)
osu_xccl_allreduce and others         ``xccl_allreduce_latency`` (the mean over the ranks)
osu_xccl_latency, osu_xccl_bw,        ``xccl_latency``, ``xccl_bandwidth``
osu_xccl_bibw
====================================  =========================================================

Each rank of a program over NCCL or RCCL first prints ``#Using NCCL``, so that the number of these
lines is that of the tasks. osu_xccl_latency, osu_xccl_bw and osu_xccl_bibw print no title (7.4).
The last two print the same otherwise, so that only the caller knows which of them ran.

The table has no last line: an output that is truncated after a complete row is a shorter table. The
check, which knows the requested sizes and the exit code, must verify that no size is missing.

5.3's osu_init prints neither title nor unit, and is refused. Some programs share a title:
osu_bw_fan_in and osu_bw_fan_out print osu_bw's, osu_neighbor_alltoallw prints osu_alltoallw's, and
osu_ialltoallw prints osu_ialltoallv's in 5.3.

Source: the programs' ``BENCHMARK`` macros, ``osu_util_mpi.c`` (7.4), ``osu_coll.c``,
``osu_pt2pt.c`` and ``osu_1sc.c`` (5.3); ``osu_util_xccl_interface.c`` (7.4).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from plumbline.parse import Fom, Output, ParseError, parse_count, parse_number, quote, single

_COLLECTIVES = {
    "allgather": "allgather",
    "allgatherv": "allgatherv",
    "allreduce": "allreduce",
    "all-to-all personalized exchange": "alltoall",
    "all-to-allv personalized exchange": "alltoallv",
    "all-to-allw personalized exchange": "alltoallw",
    "barrier": "barrier",
    "broadcast": "bcast",
    "gather": "gather",
    "gatherv": "gatherv",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_block": "reduce_scatter_block",
    "scatter": "scatter",
    "scatterv": "scatterv",
}

#: On standard error: ``omb_get_local_rank()`` of ``osu_util_mpi.c`` (5.4.4 to 7.5), whose program
#: then takes the first GPU that it sees in every process.
FAILED = re.compile(
    r"Warning: OMB could not identify the local rank of the process"
    r"|This can lead to multiple processes using the same GPU"
)

#: Title in lower case, without accelerator and version -> program, and prefix of its metrics.
TITLES = {
    "osu mpi latency test": ("osu_latency", ""),
    "osu mpi bandwidth test": ("osu_bw", ""),
    "osu mpi bi-directional bandwidth test": ("osu_bibw", "bi"),
    "osu mpi latency persistent test": ("osu_latency_persistent", "persistent_"),
    "osu mpi bandwidth persistent test": ("osu_bw_persistent", "persistent_"),
    "osu mpi bi-directional bandwidth persistent test": ("osu_bibw_persistent", "persistent_bi"),
    "osu mpi multiple bandwidth / message rate test": ("osu_mbw_mr", "multi_"),
    "osu mpi multi latency test": ("osu_multi_lat", "multi_"),
    "osu mpi_put latency test": ("osu_put_latency", "put_"),
    "osu mpi_put bandwidth test": ("osu_put_bw", "put_"),
    "osu mpi_put bi-directional bandwidth test": ("osu_put_bibw", "put_bi"),
    "osu mpi_get latency test": ("osu_get_latency", "get_"),
    "osu mpi_get bandwidth test": ("osu_get_bw", "get_"),
    "osu mpi_accumulate latency test": ("osu_acc_latency", "acc_"),
    "osu mpi_get_accumulate latency test": ("osu_get_acc_latency", "get_acc_"),
    "osu mpi_fetch_and_op latency test": ("osu_fop_latency", "fop_"),
    "osu mpi_compare_and_swap latency test": ("osu_cas_latency", "cas_"),
    "osu mpi init test": ("osu_init", ""),
    "osu mpi non-blocking all-to-all latency test": ("osu_ialltoall", "ialltoall_"),
}
for _title in (
    *("allgather", "allreduce", "all-to-all personalized exchange", "broadcast", "reduce"),
    "reduce_scatter",
):
    _name = f"xccl_{_COLLECTIVES[_title]}"
    TITLES[f"osu xccl {_title} latency test"] = (f"osu_{_name}", f"{_name}_")
for _title, _name in _COLLECTIVES.items():
    TITLES[f"osu mpi {_title} latency test"] = (f"osu_{_name}", f"{_name}_")
    TITLES[f"osu mpi non-blocking {_title} latency test"] = (f"osu_i{_name}", f"i{_name}_")
    TITLES[f"osu mpi {_title} persistent latency test"] = (
        f"osu_{_name}_persistent",
        f"{_name}_persistent_",
    )

#: Column -> suffix of the metric, and unit; ``None`` for an accepted column without a figure.
COLUMNS = {
    "Latency (us)": ("latency", "us"),
    "Avg Latency(us)": ("latency", "us"),
    "Min Latency(us)": ("latency_min", "us"),
    "Max Latency(us)": ("latency_max", "us"),
    "Bandwidth (MB/s)": ("bandwidth", "MB/s"),
    "MB/s": ("bandwidth", "MB/s"),
    "Messages/s": ("rate", "message/s"),
    "Overall(us)": ("latency", "us"),
    "Compute(us)": ("compute", "us"),
    "Pure Comm.(us)": ("pure_latency", "us"),
    "Overlap(%)": ("overlap", "percent"),
    "Coll. Init(us)": None,
    "MPI_Test(us)": None,
    "MPI_Wait(us)": None,
    "Min Comm.(us)": None,
    "Max Comm.(us)": None,
}

_LATENCY = (("Latency (us)",), ("Avg Latency(us)",))
_FULL = ("Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations")
_OVERLAP = ("Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)")
_PARTS = ("Overall(us)", "Compute(us)", "Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)")

#: The known headers, without size, percentiles and validation.
HEADS = {
    *_LATENCY,
    _FULL,
    ("Bandwidth (MB/s)",),
    ("MB/s", "Messages/s"),
    ("MB/s",),
    _OVERLAP,
    (*_PARTS, "Pure Comm.(us)", "Overlap(%)"),
    (*_PARTS, "Pure Comm.(us)", "Min Comm.(us)", "Max Comm.(us)", "Overlap(%)"),
}

_TITLE = re.compile(r"^# (OSU .*?) v(\d[\w.]*)[ ]*$", re.M)
#: 7.0 to 7.3 print this title twice (main() of osu_mbw_mr.c, and print_header() of osu_util.c).
_TWICE = re.compile(r"^(# OSU MPI Multiple Bandwidth / Message Rate Test v.*\n)\1", re.M)
_ACCELERATOR = re.compile(r"-(CUDA MANAGED|CUDA|OPENACC|ROCM|MANAGED)(?= )")
_TAIL = re.compile(r"P(\d{1,3}) Tail (?:Lat\(us\)|BW\(MB/s\))")
#: Between columns. Before the name of a percentile of bandwidths, there is room for one blank.
_GAP = re.compile(r"\s{2,}| (?=P\d{1,3} Tail BW)")
_FRACTION = re.compile(r"\d+\.\d\d", re.ASCII)
_INIT = re.compile(r"^nprocs: (\d+), min: (\d+) ms, max: (\d+) ms, avg: (\d+) ms$", re.M)

_DATATYPE = r"# Datatype: (\S+)\."
#: Lines between title and table -> the inputs in them.
_FACTS = {
    _DATATYPE: ("datatype",),
    r"# \[ pairs: (\d+) \] \[ window size: (\d+) \]": ("pairs", "window_size"),
    r"# Window creation: (\S+)": ("window_creation",),
    r"# Synchronization: (\S+)": ("synchronization",),
    # With NCCL_DEBUG=VERSION.
    r"[NR]CCL version \S.*": (),
    r"# Overall = Coll\. Init \+ Compute \+ MPI_Test \+ MPI_Wait": (),
}
_BUFFERS = re.compile(
    r"# (?:Send Buffer|Rank 0 Memory) on (HOST|DEVICE|MANAGED) \(M?[HDM]\) and "
    r"(?:Receive Buffer|Rank 1 Memory) on (HOST|DEVICE|MANAGED) \(M?[HDM]\)"
)

#: Library -> the kind of accelerator of its buffers.
_ACCELERATORS = {"nccl": "cuda", "rccl": "rocm"}

#: A line that each rank of a program over NCCL or RCCL prints, before MPI_Init.
_USING = re.compile(r"^#Using ([NR])CCL\n", re.M)


def parse(text: str) -> Output:
    """Parse the output of one run of one program.

    :raises ParseError: if it is garbled, of several runs, of an unknown program, ends within a
        line, or a validation failed.
    """
    if text and not text.endswith("\n"):
        raise ParseError("the last line is truncated")
    text, library, tasks = _library(text)
    if library and not _TITLE.search(text):
        return _untitled(text.splitlines(), library, tasks)
    text = _TWICE.sub(r"\1", text)
    title = single(_TITLE.finditer(text), "the title of an OSU program")
    full, version = title.groups()
    accelerator = _ACCELERATOR.search(full)
    key = _ACCELERATOR.sub("", full).lower()
    if library:
        key = key.replace(library, "xccl", 1)
    if key not in TITLES:
        raise ParseError(f"unknown program: {full!r}")
    program, stem = TITLES[key]
    inputs = {"program": program, "accelerator": "none"}
    if accelerator:
        inputs["accelerator"] = accelerator[1].lower()
    else:
        inputs["buffer"] = "host"
    before = text[: title.start()].splitlines()
    if any(re.match(r"\s*[\d.]+\s+[\d.]+", line) for line in before):
        raise ParseError("rows of a table before the title")
    lines = text[title.end() :].splitlines()
    if program == "osu_init":
        return _init(lines, version, inputs)
    foms = _table(program, stem, lines, inputs)
    return Output(foms, tasks, version, inputs)


def _library(text: str) -> tuple[str, str, int | None]:
    """Return a text without the line of each rank, ``nccl`` or ``rccl``, and the number of ranks;
    the text, an empty name and ``None`` for a program over MPI."""
    found = _USING.findall(text)
    if len(set(found)) > 1:
        raise ParseError("some ranks use NCCL and others RCCL")
    return (
        (_USING.sub("", text), f"{found[0].lower()}ccl", len(found)) if found else (text, "", None)
    )


def _untitled(lines: list[str], library: str, tasks: int | None) -> Output:
    """Parse the output of a program between two ranks over NCCL or RCCL."""
    inputs = {"accelerator": _ACCELERATORS[library]}
    foms = _table("osu_xccl", "xccl_", lines, inputs)
    # Those between two ranks print where their buffers are; the others have a title.
    if "buffer" not in inputs:
        raise ParseError("the title of an OSU program is missing")
    if foms[0].metric == "xccl_latency":
        inputs["program"] = "osu_xccl_latency"
    return Output(foms, tasks, "", inputs)


def _table(program: str, stem: str, lines: list[str], inputs: dict[str, str]) -> tuple[Fom, ...]:
    """Parse the lines behind a title: inputs, header and rows."""
    index = _preamble(lines, inputs)
    head = _head(lines[index])
    if ("barrier" in program) == (head[0] == "# Size"):
        raise ParseError(f"{program}: an unexpected header: {lines[index]!r}")
    inputs["validation"] = "pass" if "Validation" in head else "off"
    lines = lines[index + 1 :]
    # 7.1 to 7.3 print it below the header of tests between two tasks (osu_latency.c).
    if lines and (found := re.fullmatch(_DATATYPE, lines[0].strip())):
        _add_input(inputs, "datatype", found[1])
        lines = lines[1:]
    rows = list(_rows(lines, head))
    return tuple(_figures(program, stem, head, rows))


def _init(lines: list[str], version: str, inputs: dict[str, str]) -> Output:
    """Parse the line of osu_init."""
    line = single([line for line in lines if line.strip()], "osu_init's line of times")
    found = _INIT.fullmatch(line)
    if not found:
        raise ParseError(f"unexpected times of osu_init: {line!r}")
    tasks, low, high, mean = (parse_count(cell, "osu_init") for cell in found.groups())
    if not low <= mean <= high:
        raise ParseError(f"osu_init: minimum, mean, maximum are {low}, {mean}, {high} ms")
    times = {"init_time": mean, "init_time_min": low, "init_time_max": high}
    foms = tuple(Fom(metric, float(value), "ms") for metric, value in times.items())
    return Output(foms, tasks, version, inputs)


def _preamble(lines: list[str], inputs: dict[str, str]) -> int:
    """Parse the lines between title and table into the inputs.

    :return: the index of the table's header.
    """
    for index, line in enumerate(lines):
        bare = line.strip()
        if not bare:
            continue
        if re.split(r"\s{2,}", bare.removeprefix("# "))[0] in {"Size", *COLUMNS}:
            return index
        buffers = _BUFFERS.fullmatch(bare)
        facts = [(re.fullmatch(pattern, bare), names) for pattern, names in _FACTS.items()]
        found = next(((match, names) for match, names in facts if match), None)
        if buffers:
            _add_input(inputs, "buffer", "-".join(dict.fromkeys(map(str.lower, buffers.groups()))))
        elif found:
            for name, value in zip(found[1], found[0].groups(), strict=True):
                _add_input(inputs, name, value)
        else:
            raise ParseError(f"an unknown line before the table: {line!r}")
    raise ParseError("the table is missing")


def _add_input(inputs: dict[str, str], name: str, value: str) -> None:
    if name in inputs:
        raise ParseError(f"{name} is printed twice")
    inputs[name] = value


def _head(line: str) -> tuple[str, ...]:
    """Return the columns: ``# Size`` or none, those of ``HEADS``, and those of options."""
    cells = _GAP.split(line.strip())
    sized = cells[0] == "# Size"
    cells[0] = cells[0].removeprefix("# ")
    columns = cells[1:] if sized else cells
    extra = [c for c in columns if c in {"Validation", "Transmit Size"} or _TAIL.fullmatch(c)]
    if tuple(columns[: len(columns) - len(extra)]) not in HEADS or len(set(cells)) != len(cells):
        raise ParseError(f"a table with an unknown header: {line!r}")
    return ("# Size", *columns) if sized else tuple(columns)


def _rows(lines: list[str], head: tuple[str, ...]) -> Iterator[dict[str, str]]:
    ended = False
    for line in lines:
        cells = line.split()
        if "DATA VALIDATION ERROR" in line:
            raise ParseError(f"OSU reports: {line.strip()}", code="output.program-error")
        elif cells and ended:
            raise ParseError(f"a line after the table: {line!r}")
        elif cells:
            if len(cells) != len(head):
                raise ParseError(f"{len(cells)} cells for {len(head)} columns: {line!r}")
            yield dict(zip(head, cells, strict=True))
        else:
            ended = True


def _figures(
    program: str, stem: str, head: tuple[str, ...], rows: list[dict[str, str]]
) -> Iterator[Fom]:
    sized = head[0] == "# Size"
    if not rows or (not sized and len(rows) != 1):
        raise ParseError(f"{program}: the table has {len(rows)} rows")
    sizes: list[int] = []
    for row in rows:
        if row.get("Validation", "Pass") != "Pass":
            raise ParseError(
                f"{program}: the validation reports {row['Validation']!r}: {row}",
                code="output.program-error",
            )
        size = parse_count(row["# Size"], f"{program}: size") if sized else None
        values = {
            column: _value(program, column, cell)
            for column, cell in row.items()
            if column not in {"# Size", "Validation"}
        }
        _check_row(program, size, values)
        for column, value in values.items():
            if known := COLUMNS.get(column):
                ending, unit = known
                metric = "message_rate" if ending == "rate" else stem + ending
                yield Fom(metric, value, unit, size)
        if size is not None:
            sizes.append(size)
    # Each size is twice the one before; one byte follows an empty message.
    for before, after in itertools.pairwise(sizes):
        if after != (2 * before or 1):
            raise ParseError(f"{program}: rows are missing or duplicated: its sizes are {sizes}")


def _value(program: str, column: str, cell: str) -> float:
    if column in {"Iterations", "Transmit Size"}:
        return float(parse_count(cell, f"{program}: {column}"))
    if not _FRACTION.fullmatch(cell):
        raise ParseError(f"{program}: {column}: {quote(cell)} is not a number with two decimals")
    return parse_number(cell, f"{program}: {column}")


def _check_row(program: str, size: int | None, value: dict[str, float]) -> None:
    """Check the numbers of a row against each other."""
    half = 0.005
    if "Min Latency(us)" in value:
        low, mean, high = (value[f"{which} Latency(us)"] for which in ("Min", "Avg", "Max"))
        if not low - 2 * half <= mean <= high + 2 * half:
            raise ParseError(f"{program}: minimum, mean, maximum are {low}, {mean}, {high} us")
    # Percentiles of times or rates rise, in any order of -z.
    tail = [(int(match[1]), value[c]) for c in value if (match := _TAIL.fullmatch(c))]
    if [v for _, v in sorted(tail)] != sorted(v for _, v in tail):
        raise ParseError(f"{program}: percentiles out of order: {tail}")
    if value.get("Overlap(%)", 0.0) > 100:
        raise ParseError(f"{program}: an overlap of {value['Overlap(%)']} % is above 100 %")
    if size and "Messages/s" in value:
        bandwidth, rate = value["MB/s"], value["Messages/s"]
        if abs(bandwidth - rate * size / 1e6) > half + half * size / 1e6 + bandwidth * 1e-9:
            raise ParseError(
                f"{program}: {rate} messages/s of {size} bytes contradict {bandwidth} MB/s (10^6)"
            )
