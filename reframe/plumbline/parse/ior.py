"""IOR 3.3.0 and 4.0.0: the text and ``-O summaryFormat=JSON``; one test of one file.

``write_bandwidth`` and ``read_bandwidth`` are the mean over the repetitions, in MiB/s (2²⁰ B/s):
``Mean(MiB)`` of the summary, or ``bwMeanMIB``. With one repetition that is its only rate.

IOR goes on after much of what falsifies a rate, and says so with ``WARNING`` on standard output,
in the middle of the JSON too: lost or short transfers, data that are read back wrong, fewer tasks
than asked for, a file of another size than expected. Every warning voids the run, but for
:data:`HARMLESS` ones, and but for a file that is smaller because a stonewall (``-D``) ended the
writing, which IOR warns of and whose rate is of what was moved. Source: ``src/ior.c``
(``CheckFileSize``, ``CompareData``), ``src/ior-output.c``, ``src/aiori-POSIX.c``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from plumbline.parse import Fom, Output, ParseError, json_report, number, sole, whole

#: Warnings that say nothing about the rates.
HARMLESS = re.compile(
    r"exists already and will be overwritten"
    r"|unable to (?:use realpath|statfs)\(\)"
    r"|Backend (?:doesn't implement|returned error during) statfs"
    r"|uname failed|cannot get platform name",
)

#: What a stonewall leads to: the file is smaller than its options say.
_SMALLER = re.compile(
    r"Expected aggregate file size|Stat\(\) of aggregate file size"
    r"|Using actual aggregate bytes moved|[Mm]aybe caused by deadlineForStonewalling"
)

_SAID = re.compile(r"(?:ior )?(?:WARNING|ERROR): [^\n]*\n?|^.*FAILED comparison.*$", re.M)

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
    """A number in MiB/s and half of its last printed digit."""

    value: float
    half: float


@dataclass(frozen=True)
class _Summary:
    """One operation's summary: rates, and what they were taken from."""

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
    """Reads the output of one run.

    :raises ParseError: if it is truncated, garbled, of several tests, contradicts itself, or IOR
        warns of what falsifies its rates.
    """
    said = [line.strip() for line in _SAID.findall(text)]
    for line in said:
        if not HARMLESS.search(line) and not _SMALLER.search(line):
            raise ParseError(f"IOR says: {line}", code="output.program-error")
    smaller = any(map(_SMALLER.search, said))
    text = _SAID.sub("", text)
    if not _BANNER.search(text):
        return _json(text, smaller)
    if re.search(r"^\{", text, re.M):
        raise ParseError("a text and a JSON report in one output")
    return _text(text, smaller)


def _text(text: str, smaller: bool) -> Output:
    version = sole(_BANNER.findall(text), "the banner of IOR")
    end = sole((match[0] for match in _FINISHED.finditer(text)), "the closing line of IOR")
    command = sole(_COMMAND.findall(text), "the command line").split()
    lines = text[: text.index(end)].splitlines()
    options = _options(_between(lines, "Options:", "Results:"))
    rates = _results(_between(lines, "Results:", "Summary of all tests:"))
    below = lines[_index(lines, "Summary of all tests:") + 1 :]
    if not below or tuple(below[0].split()) != SUMMARY:
        raise ParseError("the summary has an unknown head")
    summaries = [_summary(line.split()) for line in below[1:] if line.strip()]
    keep = "-k" in command
    return _output(version, options, rates, summaries, keep, smaller)


def _index(lines: list[str], mark: str) -> int:
    found = [at for at, line in enumerate(lines) if line.strip() == mark]
    if len(found) != 1:
        raise ParseError(f"the line {mark!r}: found {len(found)} times, expected once")
    return found[0]


def _between(lines: list[str], first: str, last: str) -> list[str]:
    begin, end = _index(lines, first), _index(lines, last)
    return [line for line in lines[begin + 1 : end] if line.strip()]


def _options(lines: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for line in lines:
        found = _OPTION.fullmatch(line)
        name = found[1].strip() if found else ""
        if not found or name in options:
            raise ParseError(f"no option, or one twice: {line!r}")
        options[name] = found[2].strip()
    return options


def _rate(cell: str, what: str) -> _Rate:
    decimals = len(cell.partition(".")[2])
    return _Rate(number(cell, what), 0.5 * 10.0**-decimals)


def _results(lines: list[str]) -> dict[str, list[_Rate]]:
    """The rates of each repetition, by operation."""
    if len(lines) < 2 or tuple(lines[0].split()) != RESULTS or set(lines[1]) != {"-", " "}:
        raise ParseError("the results have an unknown head")
    rates: dict[str, list[_Rate]] = {name: [] for name in _OPERATIONS}
    for line in lines[2:]:
        cells = line.split()
        # 3.3.0 prints what removing took, and the best rates again below the table.
        if cells[0] in {"remove", "Max"}:
            continue
        if len(cells) != len(RESULTS) or cells[0] not in rates:
            raise ParseError(f"no row of the results: {line!r}")
        if whole(cells[-1], "iter") != len(rates[cells[0]]):
            raise ParseError(f"{cells[0]}: repetitions are missing or doubled: {line!r}")
        rates[cells[0]].append(_rate(cells[1], f"{cells[0]}: bw"))
    return rates


def _summary(cells: list[str]) -> _Summary:
    if len(cells) != len(SUMMARY) or cells[0] not in _OPERATIONS:
        raise ParseError(f"no row of the summary: {' '.join(cells)!r}")
    cell = dict(zip(SUMMARY, cells, strict=True))

    def rate(name: str) -> _Rate:
        return _rate(cell[name], f"{cells[0]}: {name}")

    def count(name: str) -> int:
        return whole(cell[name], f"{cells[0]}: {name}")

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
    told = json_report.field(tests[0], "Options")
    if not isinstance(told, dict):
        raise ParseError("the options are no object")
    rates: dict[str, list[_Rate]] = {name: [] for name in _OPERATIONS}
    for result in json_report.objects(tests[0], "Results"):
        operation = json_report.string(result, "access")
        if operation in rates:
            rates[operation].append(_four(result, "bwMiB"))
        elif operation != "remove":
            raise ParseError(f"an unknown operation {operation!r}")
    summaries = [_json_summary(fields) for fields in json_report.objects(report, "summary")]
    keep = json_report.count(json_report.field(tests[0], "Parameters"), "keepFile")
    options = {key: str(value) for key, value in told.items()}
    version = json_report.string(report, "Version")
    return _output(version, options, rates, summaries, bool(keep), smaller)


def _four(fields: dict[str, Any], key: str) -> _Rate:
    """IOR prints numbers of its JSON with four decimals."""
    return _Rate(json_report.number(fields, key), 0.5e-4)


def _json_summary(fields: dict[str, Any]) -> _Summary:
    operation = json_report.string(fields, "operation")
    if operation not in _OPERATIONS:
        raise ParseError(f"an unknown operation {operation!r}")

    def count(key: str) -> int:
        return json_report.count(fields, key)

    return _Summary(
        operation=operation,
        high=_four(fields, "bwMaxMIB"),
        low=_four(fields, "bwMinMIB"),
        mean=_four(fields, "bwMeanMIB"),
        time=_four(fields, "MeanTime"),
        moved=_four(fields, "xsizeMiB"),
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
    ran = [summary.operation for summary in summaries]
    if not ran or ran != [name for name in _OPERATIONS if rates[name]]:
        raise ParseError(f"results of {[n for n in rates if rates[n]]}, a summary of {ran}")
    needed = ("api", "test filename", "access", "type", "ordering in a file", "nodes", "tasks")
    missing = [name for name in (*needed, "clients per node", "segments") if name not in options]
    if missing:
        raise ParseError(f"the options lack {', '.join(missing)}")
    stonewall = options.get("stonewallingTime", "0")
    if smaller and stonewall == "0":
        raise ParseError("IOR warns of a file of another size than expected, without a stonewall")
    tasks = whole(options["tasks"], "tasks")
    for summary in summaries:
        _consistent(summary, rates[summary.operation], smaller)
        told = (summary.tasks, summary.segments, summary.api, summary.shared)
        asked = (
            tasks,
            whole(options["segments"], "segments"),
            options["api"],
            options["access"] != "file-per-process",
        )
        if told != asked:
            raise ParseError(f"{summary.operation}: the summary is of {told}, the test of {asked}")
    shape = {(s.block, s.transfer, s.segments, s.repetitions) for s in summaries}
    if len(shape) != 1:
        raise ParseError(f"writing and reading differ in size: {sorted(shape)}")
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


def _consistent(summary: _Summary, rates: list[_Rate], smaller: bool) -> None:
    """Holds a summary against the results that it sums up, and against volume and time."""
    name, reps = summary.operation, summary.repetitions
    if len(rates) != reps:
        raise ParseError(f"{name}: {len(rates)} results of {reps} repetitions")
    values = [rate.value for rate in rates]
    told = (
        (summary.low, min(values)),
        (summary.high, max(values)),
        (summary.mean, sum(values) / reps),
    )
    for printed, computed in told:
        if abs(printed.value - computed) > printed.half + max(r.half for r in rates) + 1e-6:
            raise ParseError(f"{name}: the summary says {printed.value}, the results {values}")
    expected = summary.tasks * summary.segments * summary.block / 2**20
    away = summary.moved.value - expected
    if abs(away) > summary.moved.half + expected * 1e-6 and not (smaller and away < 0):
        raise ParseError(f"{name}: moved {summary.moved.value} MiB, expected {expected:.1f}")
    if reps == 1:
        most, least = summary.time.value + summary.time.half, summary.time.value - summary.time.half
        slowest = (summary.moved.value - summary.moved.half) / most
        fastest = (summary.moved.value + summary.moved.half) / least if least > 0 else float("inf")
        if not slowest * 0.999 <= summary.mean.value <= fastest * 1.001:
            raise ParseError(
                f"{name}: {summary.moved.value} MiB in {summary.time.value} s cannot be "
                f"{summary.mean.value} MiB/s"
            )
