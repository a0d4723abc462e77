"""IOR 3.3.0 and 4.0.0: the text and ``-O summaryFormat=JSON``; one test of one file.

``write_bandwidth`` and ``read_bandwidth`` are the mean over the repetitions, in MiB/s (2²⁰ B/s):
``Mean(MiB)`` of the summary, or ``bwMeanMIB``. With one repetition that is its only rate.

IOR continues after most errors that falsify a rate, and prints ``WARNING`` on standard output, also
within the JSON: lost or short transfers, wrong data read back, fewer tasks than requested, an
unexpected file size. Every warning makes the run invalid, with two exceptions: :data:`HARMLESS`
ones, and a smaller file because a stonewall (``-D``) ended the writing, as the rate is then of the
moved data. Source: ``src/ior.c``
(``CheckFileSize``, ``CompareData``), ``src/ior-output.c``, ``src/aiori-POSIX.c``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from plumbline.parse import Fom, Output, ParseError, json_report, parse_count, parse_number, single

#: Warnings that do not affect the rates.
HARMLESS = re.compile(
    r"exists already and will be overwritten"
    r"|unable to (?:use realpath|statfs)\(\)"
    r"|Backend (?:doesn't implement|returned error during) statfs"
    r"|uname failed|cannot get platform name",
)

#: Warnings of a file that is smaller than the options require, as after a stonewall.
_SMALLER = re.compile(
    r"Expected aggregate file size|Stat\(\) of aggregate file size"
    r"|Using actual aggregate bytes moved|[Mm]aybe caused by deadlineForStonewalling"
)

#: Bytes of the file, and those that were moved.
_SIZES = re.compile(
    r"Stat\(\) of aggregate file size\s+= (\d+).*\n.*Using actual aggregate bytes moved\s+= (\d+)"
)

_MESSAGE = re.compile(r"(?:ior )?(?:WARNING|ERROR): [^\n]*\n?|^.*FAILED comparison.*$", re.M)

#: What ``stoneWallingWearOut`` prints, also within the JSON.
_WORN_OUT = re.compile(r"(?:stonewalling pairs accessed|Pairs deadlineForStonewalling)[^\n]*\n?")

_BANNER = re.compile(r"^IOR-(\S+): MPI Coordinated Test of Parallel I/O[ ]*$", re.M)
_FINISHED = re.compile(r"^Finished +: .*\d$", re.M)
_COMMAND = re.compile(r"^Command line +: (.*)$", re.M)
_OPTION = re.compile(r"(\w[\w ]*): (.*)")

RESULTS = (
    *("access", "bw(MiB/s)", "IOPS", "Latency(s)", "block(KiB)", "xfer(KiB)"),
    *("open(s)", "wr/rd(s)", "close(s)", "total(s)", "iter"),
)
SUMMARY = (
    *("Operation", "Max(MiB)", "Min(MiB)", "Mean(MiB)", "StdDev", "Max(OPs)", "Min(OPs)"),
    *("Mean(OPs)", "StdDev", "Mean(s)", "Stonewall(s)", "Stonewall(MiB)", "Test#", "#Tasks"),
    *("tPN", "reps", "fPP", "reord", "reordoff", "reordrand", "seed", "segcnt", "blksiz"),
    *("xsize", "aggs(MiB)", "API", "RefNum"),
)

_OPERATIONS = ("write", "read")


@dataclass(frozen=True)
class _Rate:
    """A printed number and half of its last digit."""

    value: float
    half: float


@dataclass(frozen=True)
class _Summary:
    """One operation's summary: rates, and the values they were computed from."""

    operation: str
    high: _Rate
    low: _Rate
    mean: _Rate
    time: _Rate
    moved: _Rate
    tasks: int
    repetitions: int
    segments: int
    block: int
    transfer: int
    shared: bool
    api: str


def parse(text: str) -> Output:
    """Parse the output of one run.

    :raises ParseError: if it is truncated, garbled, of several tests, contradictory, or with a
        warning that affects the rates.
    """
    messages = [line.strip() for line in _MESSAGE.findall(text)]
    for line in messages:
        if not HARMLESS.search(line) and not _SMALLER.search(line):
            raise ParseError(f"IOR reports: {line}", code="output.program-error")
    if lost := [size for size, moved in _SIZES.findall(text) if int(size) < int(moved)]:
        raise ParseError(
            f"IOR reports a file of {lost[0]} bytes, less than it moved: data were lost",
            code="output.program-error",
        )
    smaller = any(map(_SMALLER.search, messages))
    text = _WORN_OUT.sub("", _MESSAGE.sub("", text))
    if not _BANNER.search(text):
        return _json(text, smaller)
    if re.search(r"^\{", text, re.M):
        raise ParseError("both a text and a JSON report")
    return _text(text, smaller)


def _text(text: str, smaller: bool) -> Output:
    version = single(_BANNER.findall(text), "the banner of IOR")
    end = single((match[0] for match in _FINISHED.finditer(text)), "the last line of IOR")
    command = single(_COMMAND.findall(text), "the command line").split()
    lines = text[: text.index(end)].splitlines()
    options = _options(_between(lines, "Options:", "Results:"))
    rates = _results(_between(lines, "Results:", "Summary of all tests:"))
    below = lines[_index(lines, "Summary of all tests:") + 1 :]
    if not below or tuple(below[0].split()) != SUMMARY:
        raise ParseError("the summary has an unknown header")
    summaries = [_summary(line.split()) for line in below[1:] if line.strip()]
    keep = "-k" in command
    return _output(version, options, rates, summaries, keep, smaller)


def _index(lines: list[str], mark: str) -> int:
    found = (index for index, line in enumerate(lines) if line.strip() == mark)
    return single(found, f"the line {mark!r}")


def _between(lines: list[str], first: str, last: str) -> list[str]:
    begin, end = _index(lines, first), _index(lines, last)
    return [line for line in lines[begin + 1 : end] if line.strip()]


def _options(lines: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for line in lines:
        found = _OPTION.fullmatch(line)
        name = found[1].strip() if found else ""
        if not found or name in options:
            raise ParseError(f"not an option, or a repeated one: {line!r}")
        options[name] = found[2].strip()
    return options


def _rate(cell: str, what: str) -> _Rate:
    decimals = len(cell.partition(".")[2])
    return _Rate(parse_number(cell, what), 0.5 * 10.0**-decimals)


def _results(lines: list[str]) -> dict[str, list[_Rate]]:
    """Return the rates of the repetitions, by operation."""
    if len(lines) < 2 or tuple(lines[0].split()) != RESULTS or set(lines[1]) != {"-", " "}:
        raise ParseError("the results have an unknown header")
    rates: dict[str, list[_Rate]] = {name: [] for name in _OPERATIONS}
    for line in lines[2:]:
        cells = line.split()
        # 3.3.0 also prints the time of removing, and the best rates below the table.
        if cells[0] in {"remove", "Max"}:
            continue
        if len(cells) != len(RESULTS) or cells[0] not in rates:
            raise ParseError(f"unexpected line in the results: {line!r}")
        if parse_count(cells[-1], "iter") != len(rates[cells[0]]):
            raise ParseError(f"{cells[0]}: repetitions are missing or duplicated: {line!r}")
        rates[cells[0]].append(_rate(cells[1], f"{cells[0]}: bw"))
    return rates


def _summary(cells: list[str]) -> _Summary:
    if len(cells) != len(SUMMARY) or cells[0] not in _OPERATIONS:
        raise ParseError(f"unexpected line in the summary: {' '.join(cells)!r}")
    cell = dict(zip(SUMMARY, cells, strict=True))

    def rate(name: str) -> _Rate:
        return _rate(cell[name], f"{cells[0]}: {name}")

    def count(name: str) -> int:
        return parse_count(cell[name], f"{cells[0]}: {name}")

    return _Summary(
        operation=cells[0],
        high=rate("Max(MiB)"),
        low=rate("Min(MiB)"),
        mean=rate("Mean(MiB)"),
        time=rate("Mean(s)"),
        moved=rate("aggs(MiB)"),
        tasks=count("#Tasks"),
        repetitions=count("reps"),
        segments=count("segcnt"),
        block=count("blksiz"),
        transfer=count("xsize"),
        shared=not count("fPP"),
        api=cell["API"],
    )


def _json(text: str, smaller: bool) -> Output:
    report = json_report.read(text)
    tests = json_report.objects(report, "tests")
    if len(tests) != 1:
        raise ParseError(f"{len(tests)} tests, expected one")
    json_report.string(report, "Finished")
    printed = json_report.field(tests[0], "Options")
    if not isinstance(printed, dict):
        raise ParseError("the options are not an object")
    rates: dict[str, list[_Rate]] = {name: [] for name in _OPERATIONS}
    for result in json_report.objects(tests[0], "Results"):
        operation = json_report.string(result, "access")
        if operation in rates:
            rates[operation].append(_four_decimals(result, "bwMiB"))
        elif operation != "remove":
            raise ParseError(f"an unknown operation {operation!r}")
    summaries = [_json_summary(fields) for fields in json_report.objects(report, "summary")]
    keep = json_report.count(json_report.field(tests[0], "Parameters"), "keepFile")
    options = {key: str(value) for key, value in printed.items()}
    version = json_report.string(report, "Version")
    return _output(version, options, rates, summaries, bool(keep), smaller)


def _four_decimals(fields: dict[str, Any], key: str) -> _Rate:
    """Return a number of IOR's JSON, which has four decimals."""
    return _Rate(json_report.number(fields, key), 0.5e-4)


def _json_summary(fields: dict[str, Any]) -> _Summary:
    operation = json_report.string(fields, "operation")
    if operation not in _OPERATIONS:
        raise ParseError(f"an unknown operation {operation!r}")

    def count(key: str) -> int:
        return json_report.count(fields, key)

    return _Summary(
        operation=operation,
        high=_four_decimals(fields, "bwMaxMIB"),
        low=_four_decimals(fields, "bwMinMIB"),
        mean=_four_decimals(fields, "bwMeanMIB"),
        time=_four_decimals(fields, "MeanTime"),
        moved=_four_decimals(fields, "xsizeMiB"),
        tasks=count("numTasks"),
        repetitions=count("repetitions"),
        segments=count("segmentCount"),
        block=count("blockSize"),
        transfer=count("transferSize"),
        shared=not count("filePerProc"),
        api=json_report.string(fields, "API"),
    )


def _output(
    version: str,
    options: dict[str, str],
    rates: dict[str, list[_Rate]],
    summaries: list[_Summary],
    keep: bool,
    smaller: bool,
) -> Output:
    operations = [summary.operation for summary in summaries]
    if not operations or operations != [name for name in _OPERATIONS if rates[name]]:
        raise ParseError(
            f"results of {[n for n in rates if rates[n]]}, but a summary of {operations}"
        )
    needed = ("api", "test filename", "access", "type", "ordering in a file", "nodes", "tasks")
    missing = [name for name in (*needed, "clients per node", "segments") if name not in options]
    if missing:
        raise ParseError(f"options missing: {', '.join(missing)}")
    stonewall = options.get("stonewallingTime", "0")
    if smaller and stonewall == "0":
        raise ParseError("IOR warns of an unexpected file size without a stonewall")
    tasks = parse_count(options["tasks"], "tasks")
    for summary in summaries:
        _check_summary(summary, rates[summary.operation], smaller)
        printed = (summary.tasks, summary.segments, summary.api, summary.shared)
        requested = (
            tasks,
            parse_count(options["segments"], "segments"),
            options["api"],
            options["access"] != "file-per-process",
        )
        if printed != requested:
            raise ParseError(
                f"{summary.operation}: the summary has {printed}, the options {requested}"
            )
    shape = {(s.block, s.transfer, s.segments, s.repetitions) for s in summaries}
    if len(shape) != 1:
        raise ParseError(f"writing and reading have different sizes: {sorted(shape)}")
    block, transfer, segments, repetitions = shape.pop()
    inputs = {
        "api": options["api"],
        "access": options["access"],
        "type": options["type"],
        "ordering": options["ordering in a file"],
        "file": options["test filename"],
        "nodes": options["nodes"],
        "tasks": options["tasks"],
        "tasks_per_node": options["clients per node"],
        "transfer_size": str(transfer),
        "block_size": str(block),
        "segments": str(segments),
        "repetitions": str(repetitions),
        "stonewall": stonewall,
        "keep_file": str(int(keep)),
    }
    foms = tuple(Fom(f"{s.operation}_bandwidth", s.mean.value, "MiB/s") for s in summaries)
    return Output(foms, tasks, version, inputs)


def _check_summary(summary: _Summary, rates: list[_Rate], smaller: bool) -> None:
    """Check a summary against its results, and against volume and time."""
    name, reps = summary.operation, summary.repetitions
    if len(rates) != reps:
        raise ParseError(f"{name}: {len(rates)} results of {reps} repetitions")
    values = [rate.value for rate in rates]
    pairs = (
        (summary.low, min(values)),
        (summary.high, max(values)),
        (summary.mean, sum(values) / reps),
    )
    for printed, computed in pairs:
        if abs(printed.value - computed) > printed.half + max(r.half for r in rates) + 1e-6:
            raise ParseError(f"{name}: the summary has {printed.value}, the results {values}")
    expected = summary.tasks * summary.segments * summary.block / 2**20
    excess = summary.moved.value - expected
    if abs(excess) > summary.moved.half + expected * 1e-6 and not (smaller and excess < 0):
        raise ParseError(f"{name}: moved {summary.moved.value} MiB, expected {expected:.1f}")
    if reps == 1:
        most, least = summary.time.value + summary.time.half, summary.time.value - summary.time.half
        slowest = (summary.moved.value - summary.moved.half) / most
        fastest = (summary.moved.value + summary.moved.half) / least if least > 0 else float("inf")
        if not slowest * 0.999 <= summary.mean.value <= fastest * 1.001:
            raise ParseError(
                f"{name}: {summary.moved.value} MiB in {summary.time.value} s contradict "
                f"{summary.mean.value} MiB/s"
            )
