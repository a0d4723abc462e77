"""Parsers: real captures are read exactly; what is damaged, wrong or contradictory is refused.

``captures/<benchmark>/`` holds outputs of real runs (``.out``), the command of each (``.cmd``) and
its standard error where it said something (``.err``). Paths of the machine are scrubbed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from plumbline import parse
from plumbline.parse import Figure, Fom, Output, ParseError

CAPTURES = Path(__file__).with_name("captures")

#: A digit to ``int()`` and ``float()``, and to no benchmark.
ARABIC_ONE = "\N{ARABIC-INDIC DIGIT ONE}"

#: Capture, tasks, version, number of figures.
GOOD = [
    ("fio/read_1m_direct", None, "fio-3.33", 1),
    ("fio/read_2jobs", None, "fio-3.33", 1),
    ("fio/write_1m_direct_json", None, "fio-3.33", 1),
    ("fio/write_2jobs_direct", None, "fio-3.33", 1),
    ("fio/write_end_fsync", None, "fio-3.33", 1),
    ("hpcc/hpcc_N400_2ranks", 2, "1.5.0", 28),
    ("hpcc/n400_2ranks", 2, "1.5.0", 28),
    # 24 sizes, one or three times each, and the bandwidth of the 23 that are not empty.
    ("imb/mpichabi_pingpong", 2, "2021.11", 47),
    ("imb/pingpong", 2, "2021.11", 47),
    ("imb/pingping", 2, "2021.11", 47),
    ("imb/sendrecv", 2, "2021.11", 95),
    ("imb/exchange", 2, "2021.11", 95),
    # Reductions work on 4-byte floats: 22 sizes.
    ("imb/allreduce", 2, "2021.11", 66),
    ("imb/reduce", 2, "2021.11", 66),
    ("imb/reduce_scatter", 2, "2021.11", 66),
    ("imb/reduce_scatter_block", 2, "2021.11", 66),
    ("imb/allgather", 2, "2021.11", 72),
    ("imb/allgatherv", 2, "2021.11", 72),
    ("imb/gather", 2, "2021.11", 72),
    ("imb/gatherv", 2, "2021.11", 72),
    ("imb/scatter", 2, "2021.11", 72),
    ("imb/scatterv", 2, "2021.11", 72),
    ("imb/alltoall", 2, "2021.11", 72),
    ("imb/alltoallv", 2, "2021.11", 72),
    ("imb/bcast", 2, "2021.11", 72),
    ("imb/barrier", 2, "2021.11", 3),
    ("imb/mpichabi_allreduce_barrier", 2, "2021.11", 69),
    ("imb/three_benchmarks", 2, "2021.11", 37),
    ("imb/pingpong_multi", 2, "2021.11", 23),
    # Right by itself: that one task ran is for the check to refuse.
    ("imb/one_process", 1, "2021.11", 12),
]
GOOD_NAMES = [name for name, *_ in GOOD]


#: Capture of a run that failed or measured something else; what the refusal says.
REFUSED = [
    ("fio/normal_report", "JSON report is missing"),
    ("fio/read_missing", "failed with error 2"),
    ("fio/readwrite", "2 directions moved data"),
    ("fio/write_2jobs_ungrouped", "2 groups of jobs"),
    ("fio/write_too_large", "0 directions moved data"),
    ("hpcc/killed", "Begin of Summary section"),
    ("hpcc/one_process", "PingPongLatency_usec"),
    ("hpcc/residual_failed", "Success=0"),
    ("imb/killed", "the run did not end"),
    ("imb/one_process_invalid", "invalid for 1 processes"),
    ("imb/openmpi_launcher_WRONG", "banner.*found 2 times"),
    ("imb/out_of_memory", "13 cells"),
    ("imb/time_out", "19 cells"),
    ("imb/process_counts_2_4", "several process counts"),
]


def text_of(name: str) -> str:
    return (CAPTURES / f"{name}.out").read_text(encoding="utf-8")


def read(name: str, text: str) -> Output:
    """What the parser of a capture's benchmark makes of a text."""
    return parse.parse(name.partition("/")[0], text)


def figures(output: Output) -> dict[str, tuple[float, str]]:
    return {fom.variable: (fom.value, fom.unit) for fom in output.foms}


def changed(text: str, pattern: str, replacement: str) -> str:
    """The text with exactly one place changed."""
    new, count = re.subn(pattern, replacement, text, flags=re.M)
    assert count == 1, f"{pattern!r} is there {count} times"
    assert new != text, f"{pattern!r} -> {replacement!r} changes nothing"
    return new


# -- right ---------------------------------------------------------------------------------------

IMB_SUFFIXES = {
    "t[usec]": "latency us",
    "t_avg[usec]": "latency us",
    "t_min[usec]": "latency_min us",
    "t_max[usec]": "latency_max us",
    "Mbytes/sec": "bandwidth MB/s",
}

#: A line of the report above the summary of hpcc -> the figure, and from the line's unit to its.
HPCC_LINES = {
    "hpl Tflop/s": (r"^W[RC]\S+ .* (\S+)$", 1e-3),
    "star_dgemm Gflop/s": (r"StarDGEMM section(?:.*\n)+?Average Gflop/s (\S+)", 1),
    "single_dgemm Gflop/s": (r"Single DGEMM Gflop/s (\S+)", 1),
    "mpi_random_access Gupdate/s": (
        r"MPIRandomAccess section(?:.*\n)+?(\S+) Billion.* Updates    per",
        1,
    ),
    "star_random_access Gupdate/s": (r"StarRandomAccess section(?:.*\n)+?Average GUP/s (\S+)", 1),
    "single_random_access Gupdate/s": (
        r"SingleRandomAccess section(?:.*\n)+?Single GUP/s (\S+)",
        1,
    ),
    "star_stream_copy GB/s": (r"Average Copy GB/s (\S+)", 1),
    "star_stream_scale GB/s": (r"Average Scale GB/s (\S+)", 1),
    "star_stream_add GB/s": (r"Average Add GB/s (\S+)", 1),
    "star_stream_triad GB/s": (r"Average Triad GB/s (\S+)", 1),
    "single_stream_copy GB/s": (r"Single STREAM Copy GB/s (\S+)", 1),
    "single_stream_scale GB/s": (r"Single STREAM Scale GB/s (\S+)", 1),
    "single_stream_add GB/s": (r"Single STREAM Add GB/s (\S+)", 1),
    "single_stream_triad GB/s": (r"Single STREAM Triad GB/s (\S+)", 1),
    "star_fft Gflop/s": (r"StarFFT section(?:.*\n)+?Average Gflop/s (\S+)", 1),
    "single_fft Gflop/s": (r"SingleFFT section(?:.*\n)+?Single FFT Gflop/s (\S+)", 1),
    "mpi_fft Gflop/s": (r"MPIFFT section(?:.*\n)+?Gflop/s: +(\S+)", 1),
    "pingpong_latency_min us": (r"Ping Pong:\nLatency .*: +(\S+) / +\S+ / +\S+ msecs", 1e3),
    "pingpong_latency us": (r"Ping Pong:\nLatency .*: +\S+ / +(\S+) / +\S+ msecs", 1e3),
    "pingpong_latency_max us": (r"Max Ping Pong Latency: +(\S+) msecs", 1e3),
    "pingpong_bandwidth_min GB/s": (r"Min Ping Pong Bandwidth: +(\S+) MB/s", 1e-3),
    "pingpong_bandwidth GB/s": (r"Ping Pong:\n.*\nBandwidth .*: +\S+ / +(\S+) / +\S+ MB", 1e-3),
    "pingpong_bandwidth_max GB/s": (r"Ping Pong:\n.*\nBandwidth .*: .* / +(\S+) MB", 1e-3),
    "natural_ring_latency us": (r"On naturally ordered ring: latency= +(\S+) msec", 1e3),
    "random_ring_latency us": (r"^Randomly Ordered Ring Latency: +(\S+) msecs", 1e3),
    "natural_ring_bandwidth GB/s": (r"Naturally Ordered Ring Bandwidth: +(\S+) MB/s", 1e-3),
    "random_ring_bandwidth GB/s": (r"Randomly  Ordered Ring Bandwidth: +(\S+) MB/s", 1e-3),
}


def imb_by_eye(text: str) -> dict[str, tuple[float, str]]:
    """Every cell of every table, read without any of the parser's care."""
    found = {}
    for block in text.split("# Benchmarking ")[1:]:
        operation = block.split()[0].lower()
        lines = [line.split() for line in block.splitlines()]
        columns = next(words for words in lines if "#repetitions" in words)
        for words in lines:
            if words and words[0].isdigit():
                row = dict(zip(columns, words, strict=True))
                size = f"_{row['#bytes']}" if "#bytes" in row else ""
                for column, what in IMB_SUFFIXES.items():
                    suffix, unit = what.split()
                    if column in row and not (size == "_0" and suffix == "bandwidth"):
                        found[f"{operation}_{suffix}{size}"] = (float(row[column]), unit)
    return found


@pytest.mark.parametrize(("name", "tasks", "version", "count"), GOOD, ids=GOOD_NAMES)
def test_good_capture(name: str, tasks: int | None, version: str, count: int) -> None:
    output = parse.parse_file(name.partition("/")[0], CAPTURES / f"{name}.out")
    assert (output.tasks, output.version) == (tasks, version)
    assert len(output.foms) == len(figures(output)) == count
    assert all(math.isfinite(fom.value) for fom in output.foms)


@pytest.mark.parametrize("name", [name for name in GOOD_NAMES if name.startswith("imb/")])
def test_imb_reads_every_cell(name: str) -> None:
    text = text_of(name)
    assert figures(read(name, text)) == imb_by_eye(text)


def test_imb_spot_values() -> None:
    found = figures(read("imb/mpichabi_pingpong", text_of("imb/mpichabi_pingpong")))
    assert found["pingpong_latency_0"] == (0.16, "us")
    assert found["pingpong_latency_4194304"] == (583.95, "us")
    assert found["pingpong_bandwidth_8192"] == (13529.02, "MB/s")
    assert "pingpong_bandwidth_0" not in found
    text = text_of("imb/mpichabi_allreduce_barrier")
    found = figures(read("imb/mpichabi_allreduce_barrier", text))
    assert found["allreduce_latency_min_8"] == (0.63, "us")
    assert found["allreduce_latency_8"] == (0.65, "us")
    assert found["allreduce_latency_max_8"] == (0.66, "us")
    assert found["barrier_latency"] == (0.43, "us")


@pytest.mark.parametrize("name", ["hpcc/hpcc_N400_2ranks", "hpcc/n400_2ranks"])
def test_hpcc_agrees_with_the_report_above_the_summary(name: str) -> None:
    text = text_of(name)
    found = figures(read(name, text))
    for figure, (pattern, scale) in HPCC_LINES.items():
        metric, unit = figure.split()
        (printed,) = re.search(pattern, text, re.M).groups()
        # Half of the last digit that is printed there, and the six digits of the summary.
        decimals = len(printed.partition("e")[0].partition(".")[2])
        half = 0.5 * 10**-decimals * (10 ** int(printed.partition("e")[2] or 0))
        assert found[metric] == (
            pytest.approx(float(printed) * scale, rel=1e-5, abs=half * scale),
            unit,
        )
    assert found["ptrans"] == (float(text.split("\nPTRANS_GBs=")[1].split()[0]), "GB/s")
    assert set(found) == {figure.split()[0] for figure in HPCC_LINES} | {"ptrans"}


def test_hpcc_spot_values() -> None:
    found = figures(read("hpcc/hpcc_N400_2ranks", text_of("hpcc/hpcc_N400_2ranks")))
    assert found["hpl"] == (0.0101518, "Tflop/s")
    assert found["star_stream_triad"] == (17.9766, "GB/s")
    assert found["random_ring_latency"] == (0.0977975, "us")


@pytest.mark.parametrize("name", [name for name in GOOD_NAMES if name.startswith("fio/")])
def test_fio_reads_bytes_a_second(name: str) -> None:
    text = text_of(name)
    direction = "write" if "write" in name else "read"
    (rate,) = {int(found) for found in re.findall(r'"bw_bytes" : (\d+)', text)} - {0}
    assert figures(read(name, text)) == {f"{direction}_bandwidth": (float(rate), "B/s")}
    (moved,) = {int(found) for found in re.findall(r'"io_bytes" : (\d+)', text)} - {0}
    (took,) = {int(found) for found in re.findall(r'"runtime" : (\d+)', text)} - {0}
    assert rate == pytest.approx(moved / took * 1000, rel=0.02)


def test_fio_spot_value_after_warnings() -> None:
    text = "fio: this is a warning\nnote: {\n" + text_of("fio/write_1m_direct_json")
    found = figures(read("fio/write_1m_direct_json", text))
    assert found == {"write_bandwidth": (2606169475.0, "B/s")}


# -- failed runs ---------------------------------------------------------------------------------


@pytest.mark.holds("outputs")
@pytest.mark.parametrize(("name", "says"), REFUSED)
def test_failed_or_wrong_run_is_refused(name: str, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        parse.parse_file(name.partition("/")[0], CAPTURES / f"{name}.out")


def test_every_capture_is_in_a_table() -> None:
    """Of the three that this file tests; each of the others has a file of its own."""
    told = {*GOOD_NAMES, *(name for name, _ in REFUSED)}
    there = {f"{path.parent.name}/{path.stem}" for path in CAPTURES.glob("*/*.out")}
    assert {name for name in there if name.partition("/")[0] in CLOSED} == told
    files = {path.stem.removeprefix("test_parse_") for path in CAPTURES.parent.glob("test_parse_*")}
    assert {*CLOSED, *files} == set(parse.BENCHMARKS)


def test_captures_name_no_path_of_a_machine() -> None:
    for path in CAPTURES.glob("*/*"):
        # IOR 3.3.0 prints memory that was never set behind an unknown option.
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"/(home|opt|root|scratch|tmp|work)\b", text), path
        assert len(text) < 30_000, path
        if path.suffix == ".out":
            assert path.with_suffix(".cmd").is_file(), path


# -- damage to whole lines -----------------------------------------------------------------------

#: What may stand after the line that closes a report.
CLOSED = {
    "fio": r"}\s*",
    "hpcc": r"End of HPC Challenge tests\.\nCurrent time .*\n\n#+\n",
    "imb": r"# All processes entering MPI_Finalize\s*",
}


def end_of(name: str) -> int:
    """Where the last line of a capture starts."""
    pattern = CLOSED[name.partition("/")[0]]
    return re.search(rf"^{pattern}\Z", text_of(name), re.M).start()


def assert_refused_or_the_same(name: str, text: str, what: str) -> bool:
    """Whether the text is refused; a text that is not must give the capture's own figures."""
    try:
        found = figures(read(name, text))
    except ParseError:
        return True
    assert found == figures(read(name, text_of(name))), what
    return False


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_truncated_at_every_line(name: str) -> None:
    text, end, length = text_of(name), end_of(name), 0
    for line in text.splitlines(keepends=True):
        if length <= end:
            with pytest.raises(ParseError):
                read(name, text[:length])
        length += len(line)
    assert length == len(text) > end > 0


@pytest.mark.parametrize("name", ["fio/write_end_fsync", "imb/barrier", "imb/pingpong"])
def test_truncated_at_every_character(name: str) -> None:
    text = text_of(name)
    for length in range(end_of(name) + 1):
        with pytest.raises(ParseError):
            read(name, text[:length])


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_beheaded_at_every_line(name: str) -> None:
    lines, refused = text_of(name).splitlines(keepends=True), 0
    for first in range(1, len(lines)):
        text = "".join(lines[first:])
        refused += assert_refused_or_the_same(name, text, f"without its first {first} lines")
    assert refused > 10


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_line_twice(name: str) -> None:
    lines, refused = text_of(name).splitlines(keepends=True), 0
    for at, line in enumerate(lines):
        text = "".join([*lines[:at], line, *lines[at:]])
        refused += assert_refused_or_the_same(name, text, f"line {at + 1} twice: {line!r}")
    assert refused > 3


def is_row(line: str) -> bool:
    """Whether a line is a row of one of IMB's tables."""
    words = line.split()
    return len(words) > 2 and words[0].isdigit()


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_line_missing(name: str) -> None:
    lines, refused = text_of(name).splitlines(keepends=True), 0
    for at, line in enumerate(lines):
        if name.startswith("imb/") and is_row(line):
            continue
        text = "".join([*lines[:at], *lines[at + 1 :]])
        refused += assert_refused_or_the_same(name, text, f"without line {at + 1}: {line!r}")
    assert refused > 3


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_neighbouring_lines_swapped(name: str) -> None:
    lines, refused = text_of(name).splitlines(keepends=True), 0
    for at in range(len(lines) - 1):
        swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
        what = f"lines {at + 1} and {at + 2} swapped"
        same = assert_refused_or_the_same(name, "".join(swapped), what)
        refused += same
        if name.startswith("imb/") and is_row(lines[at]) and is_row(lines[at + 1]):
            assert same, f"{what}: not refused"
    assert refused > 1


@pytest.mark.parametrize("row", [0, 1, 12, 23])
def test_imb_row_missing(row: int) -> None:
    lines = text_of("imb/pingpong").splitlines(keepends=True)
    rows = [line for line in lines if is_row(line)]
    lines.remove(rows[row])
    with pytest.raises(ParseError):
        read("imb", "".join(lines))


def test_imb_row_missing_is_no_other_figure() -> None:
    """The figures of a missing row are missing: none takes their place."""
    lines = text_of("imb/pingpong").splitlines(keepends=True)
    whole = figures(read("imb", "".join(lines)))
    for line in filter(is_row, lines):
        size = line.split()[0]
        try:
            found = figures(read("imb", "".join(other for other in lines if other is not line)))
        except ParseError:
            continue
        gone = {f"pingpong_latency_{size}", f"pingpong_bandwidth_{size}"}
        assert found == {key: value for key, value in whole.items() if key not in gone}


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_two_runs_in_one_file(name: str) -> None:
    text = text_of(name)
    other = next(n for n in GOOD_NAMES if n != name and n.split("/")[0] == name.split("/")[0])
    for both in (text + text, text + text_of(other), text_of(other) + text):
        with pytest.raises(ParseError):
            read(name, both)


@pytest.mark.parametrize(
    "name",
    [
        "fio/write_end_fsync",
        "imb/pingpong",
        "hpcc/n400_2ranks",
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_whole_run_beside_one_that_was_cut_off(name: str, first: bool) -> None:
    text = text_of(name)
    half = text[: len(text) // 2] + "\n"
    with pytest.raises(ParseError):
        read(name, half + text if first else text + half)


# -- damage to numbers ---------------------------------------------------------------------------

#: A figure's cell: capture, and a pattern of two groups around the number.
CELLS = {
    "imb time": ("imb/pingpong", r"^( +1024 +1000 +)\S+(.*)$"),
    "imb bandwidth": ("imb/pingpong", r"^( +1024 +1000 +\S+ +)\S+()$"),
    "imb bandwidth of nothing": ("imb/pingpong", r"^( +0 +1000 +\S+ +)\S+()$"),
    "imb minimum": ("imb/allreduce", r"^( +1024 +1000 +)\S+(.*)$"),
    "imb maximum": ("imb/allreduce", r"^( +1024 +1000 +\S+ +)\S+(.*)$"),
    "imb mean": ("imb/allreduce", r"^( +1024 +1000 +\S+ +\S+ +)\S+()$"),
    "imb without sizes": ("imb/barrier", r"^( +1000 +\S+ +\S+ +)\S+()$"),
    "hpcc": ("hpcc/n400_2ranks", r"^(StarSTREAM_Triad=)\S+()$"),
    "hpcc mean": ("hpcc/n400_2ranks", r"^(AvgPingPongLatency_usec=)\S+()$"),
    "hpcc minimum": ("hpcc/n400_2ranks", r"^(MinPingPongLatency_usec=)\S+()$"),
    "fio": ("fio/write_end_fsync", r'^( +"bw_bytes" : )[1-9]\d*(,)$'),
    "fio kibibytes": ("fio/write_end_fsync", r'^( +"bw" : )[1-9]\d*(,)$'),
    "fio moved": ("fio/write_end_fsync", r'^( +"io_bytes" : )[1-9]\d*(,)$'),
    "fio runtime": ("fio/write_end_fsync", r'^( +"runtime" : )[1-9]\d*(,)$'),
}

NO_NUMBERS = [
    *("nan", "NaN", "NAN", "-nan", "nan(0x1)"),
    *("inf", "Inf", "INF", "-inf", "infinity", "Infinity", "-Infinity", "1e999", "1e+400"),
    *("******", "--", "-", ".", "e5", "1.2.3", "1,5", "1_0", "0x10", "1e", "1e+", "12us"),
    *("null", "true", ARABIC_ONE, f"1.{ARABIC_ONE}", "\N{SUPERSCRIPT TWO}", "\N{INFINITY}"),
]


@pytest.mark.parametrize("number", ["", "1 2", *NO_NUMBERS])
@pytest.mark.parametrize("cell", CELLS)
def test_no_finite_number(cell: str, number: str) -> None:
    name, pattern = CELLS[cell]
    with pytest.raises(ParseError) as refusal:
        read(name, changed(text_of(name), pattern, rf"\g<1>{number}\g<2>"))
    assert "nan" not in number.lower() or "NaN" in str(refusal.value)


@pytest.mark.parametrize("cell", CELLS)
def test_negative(cell: str) -> None:
    name, pattern = CELLS[cell]
    with pytest.raises(ParseError):
        read(name, changed(text_of(name), pattern, r"\g<1>-3\g<2>"))


def test_zero_is_left_to_the_check() -> None:
    """A zero is what the program printed; that a figure is positive is ``check.py``'s rule."""
    text = changed(text_of("hpcc/n400_2ranks"), r"^(PTRANS_GBs=)\S+$", r"\g<1>0")
    assert figures(read("hpcc", text))["ptrans"] == (0.0, "GB/s")
    text = changed(text_of("imb/barrier"), r"^( +1000 +).*$", r"\g<1>0.00 0.00 0.00")
    assert figures(read("imb", text))["barrier_latency"] == (0.0, "us")


# -- other faults, one a line --------------------------------------------------------------------

IMB = "imb/pingpong"
HPCC = "hpcc/n400_2ranks"
FIO = "fio/write_end_fsync"
HUGE = "9" * 400
LONG = "9" * 5000

#: Capture, pattern of the one place that changes, what takes its place.
FAULTS = {
    # IMB: columns, units, rows.
    "imb bandwidth in MiB/s": (IMB, r"Mbytes/sec", "MiB/s"),
    "imb time in ms": (IMB, r"t\[usec\]", "t[msec]"),
    "imb unknown column": (IMB, r"Mbytes/sec", "Mbytes/sec  t_p99[usec]"),
    "imb repetitions gone": (IMB, r"#bytes #repetitions", "#bytes"),
    "imb header gone": (IMB, r"^ +#bytes.*\n", ""),
    "imb cell gone": (IMB, r"^( +1024 +1000 +\S+) +\S+$", r"\1"),
    "imb cell more": (IMB, r"^( +1024 +1000 +\S+ +\S+)$", r"\1  1.00"),
    "imb cells run together": (IMB, r"^( +1024 +1000 +\S+) +(\S+)$", r"\1\2"),
    "imb rows run together": (IMB, r"^( +1024 .*)\n", r"\1"),
    "imb size again": (IMB, r"^( +)1024( +1000)", r"\g<1>512\2"),
    "imb negative size": (IMB, r"^( +)1024( +1000)", r"\1-1024\2"),
    "imb size is not a number": (IMB, r"^( +)1024( +1000)", r"\g<1>1024.0\2"),
    "imb no repetitions": (IMB, r"^( +1024 +)1000", r"\g<1>0"),
    "imb message in the table": (IMB, r"^( +1024 +1000)", r"Abort(1) on node 0\n\1"),
    "imb barrier with two rows": ("imb/barrier", r"^( +1000 .*\n)", r"\1\1"),
    "imb barrier without a row": ("imb/barrier", r"^ +1000 .*\n", ""),
    "imb no process": (IMB, r"#processes = 2", "#processes = "),
    "imb other benchmark": (IMB, r"# Benchmarking PingPong", "# Benchmarking PingPing"),
    "imb benchmark listed, not run": (IMB, r"^# PingPong$", "# PingPong\n# Barrier"),
    "imb nothing listed": (IMB, r"^# PingPong$", ""),
    "imb counts differ": ("imb/three_benchmarks", r"(Barrier \n#.*= )2", r"\g<1>4"),
    "imb invalid": (IMB, r"^# PingPong\n", "# PingPong\n\n# !! Benchmark X invalid for 2 !!\n"),
    "imb no banner": (IMB, r"^#    Intel.*\n", ""),
    "imb other program": (IMB, r"MPI-1 part", "NBC part"),
    "imb no end": (IMB, r"^# All processes entering MPI_Finalize\n", ""),
    # IMB: a row's numbers contradict each other.
    "imb bandwidth 5 % up": (IMB, r"^( +4194304 +10 +\S+ +)(\d{5}\.\d\d)$", "UP"),
    "imb bandwidth 5 % down": (IMB, r"^( +4194304 +10 +\S+ +)(\d{5}\.\d\d)$", "DOWN"),
    "imb bandwidth is in MiB/s": (IMB, r"^( +4194304 +10 +\S+ +)(\d{5}\.\d\d)$", "BINARY"),
    "imb bandwidth counted once": ("imb/sendrecv", r"^( +4194304 +10 .* )(\S+)$", "HALF"),
    "imb bandwidth counted twice": ("imb/exchange", r"^( +4194304 +10 .* )(\S+)$", "HALF"),
    "imb mean below minimum": ("imb/allreduce", r"^( +4194304 .* )(\S+)$", "HALF"),
    "imb mean above maximum": ("imb/allreduce", r"^( +4194304 .* )(\S+)$", "UP"),
    # hpcc.
    "hpcc failed": (HPCC, r"^Success=1$", "Success=0"),
    "hpcc success is odd": (HPCC, r"^Success=1$", "Success=11"),
    "hpcc success gone": (HPCC, r"^Success=1\n", ""),
    "hpcc key twice": (HPCC, r"^(HPL_Tflops=.*\n)", r"\1\1"),
    "hpcc key gone": (HPCC, r"^RandomlyOrderedRingLatency_usec=.*\n", ""),
    "hpcc latency in ms": (HPCC, r"^AvgPingPongLatency_usec=", "AvgPingPongLatency_msec="),
    "hpcc DGEMM in Tflop/s": (HPCC, r"^StarDGEMM_Gflops=", "StarDGEMM_Tflops="),
    "hpcc key without value": (HPCC, r"^HPL_Tflops=.*$", "HPL_Tflops"),
    "hpcc message in the summary": (HPCC, r"^(HPL_Tflops=)", r"mpirun: a node died\n\1"),
    "hpcc tasks are no number": (HPCC, r"^CommWorldProcs=2$", "CommWorldProcs=two"),
    "hpcc tasks gone": (HPCC, r"^CommWorldProcs=2\n", ""),
    "hpcc residual failed": (HPCC, r"(\.\.\.\.\.\. )PASSED", r"\1FAILED"),
    "hpcc PTRANS failed": (HPCC, r"(WALL .*)PASSED( .*\n)(?=.*\n\nFinished)", r"\1FAILED\2"),
    "hpcc HPL error": (HPCC, r"^(Begin of HPL section\.\n)", r"\1HPL ERROR from process # 0\n"),
    "hpcc HPL ran twice": (HPCC, r"(Finished +)1( tests with the)", r"\g<1>2\2"),
    "hpcc HPL did not finish": (HPCC, r"^Finished +1 tests with the.*\n", ""),
    "hpcc updates wrong": (HPCC, r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\g<1>0.0101"),
    "hpcc LCG updates wrong": (HPCC, r"^(MPIRandomAccess_LCG_ErrorsFraction=)0$", r"\g<1>0.5"),
    "hpcc updates are nan": (HPCC, r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\1-nan"),
    "hpcc minimum above mean": (HPCC, r"^(MinPingPongLatency_usec=).*$", r"\g<1>1000"),
    "hpcc maximum below mean": (HPCC, r"^(MaxPingPongBandwidth_GBytes=).*$", r"\g<1>0.001"),
    "hpcc marks swapped": (HPCC, r"^End of (Summary section\.)$", r"Begin of \1"),
    "hpcc ends first": (HPCC, r"((?:.*\n)*)(End of HPC Challenge tests\.\n)", r"\2\1"),
    "hpcc no end": (HPCC, r"^End of HPC Challenge tests\.\n", ""),
    # fio.
    "fio error": (FIO, r'"error" : 0', '"error" : 5'),
    "fio error is text": (FIO, r'"error" : 0', '"error" : "5"'),
    "fio error is not a number": (FIO, r'"error" : 0', '"error" : false'),
    "fio error gone": (FIO, r'^ +"error" : 0,\n', ""),
    "fio other program": (FIO, r'"fio-3.33"', '"oif-3.33"'),
    "fio version is a number": (FIO, r'"fio-3.33"', "3.33"),
    "fio rate doubled": (FIO, r'("bw_bytes" : )([1-9]\d*)', "UP"),
    "fio KiB/s differ": (FIO, r'("bw" : )([1-9]\d*)', "UP"),
    "fio KiB/s are kB/s": (FIO, r'("bw" : )([1-9]\d*)', "BINARY"),
    "fio moved half": (FIO, r'("io_bytes" : )([1-9]\d*)', "HALF"),
    "fio took half": (FIO, r'("runtime" : )([1-9]\d*)', "HALF"),
    "fio short transfers": (FIO, r'("bw" : [1-9](?:.*\n)+?.*"short_ios" : )0', r"\g<1>1"),
    "fio dropped transfers": (FIO, r'("bw" : [1-9](?:.*\n)+?.*"drop_ios" : )0', r"\g<1>1"),
    "fio other direction too": (FIO, r'("read" : {\n +"io_bytes" : )0', r"\g<1>4096"),
    "fio renamed unit": (FIO, r'"bw_bytes"( : [1-9])', r'"bw_mib"\1'),
    "fio jobs are none": (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\1[],"),
    "fio jobs are no list": (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\g<1>1,"),
    "fio job is no job": (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\1[[]],"),
    "fio comma gone": (FIO, r'("error" : 0),', r"\1"),
}

FACTORS = {"UP": 1.05, "DOWN": 0.95, "BINARY": 1 / 1.048576, "HALF": 0.5}


def faulty(name: str, pattern: str, replacement: str) -> str:
    text = text_of(name)
    factor = FACTORS.get(replacement)
    if factor is None:
        return changed(text, pattern, replacement)
    found = re.search(pattern, text, re.M)
    number = float(found[2]) * factor
    return changed(text, pattern, rf"\g<1>{number:.{2 if '.' in found[2] else 0}f}")


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_refused(fault: str) -> None:
    name, pattern, replacement = FAULTS[fault]
    read(name, text_of(name))
    with pytest.raises(ParseError):
        read(name, faulty(name, pattern, replacement))


#: Faults that a fuzz or a reading of the parsers once found accepted, or answered otherwise.
FOUND = {
    "imb '#' hides the rows below": (IMB, r"^( +1024 +1000 )", r"\1#"),
    "imb header swapped": (IMB, r"     t\[usec\]   Mbytes/sec", "  Mbytes/sec      t[usec]"),
    "imb column twice": (IMB, r"Mbytes/sec", "t[usec]"),
    "imb column gone": ("imb/barrier", r"t_max\[usec\](.*\n.*?\S+ +\S+ +)\S+", r"\1"),
    "imb time of -0.005": (IMB, r"^( +1024 +1000 +)\S+", r"\g<1>-0.005"),
    "imb unknown benchmark": (IMB, r"^# PingPong$", "# PingPong\nInvalid benchmark name pingpng"),
    "hpcc STREAM in MB/s": (HPCC, r"Rate \(GB/s\)", "Rate (MB/s)"),
    "hpcc share of wrong updates gone": (HPCC, r"^MPIRandomAccess_ErrorsFraction=.*\n", ""),
    "fio field twice": (FIO, r'^( +"bw_bytes" : )([1-9]\d*,\n)', r"\g<1>5,\n\1\2"),
    "fio long number": (FIO, r'"runtime" : [1-9]\d*', f'"runtime" : {LONG}'),
    "fio huge number": (FIO, r'"io_bytes" : [1-9]\d*', f'"io_bytes" : {HUGE}'),
}


@pytest.mark.parametrize("fault", FOUND)
def test_fault_once_found_is_refused(fault: str) -> None:
    name, pattern, replacement = FOUND[fault]
    text = changed(text_of(name), pattern, replacement)
    with pytest.raises(ParseError):
        read(name, text)


def test_every_bandwidth_of_imb_is_held_against_its_time() -> None:
    """Decimal megabytes taken for binary ones contradict the time at every size."""
    for name in ("imb/pingpong", "imb/pingping", "imb/sendrecv", "imb/exchange"):
        text = text_of(name)
        for line in filter(is_row, text.splitlines()):
            size, cells = int(line.split()[0]), line.rsplit(maxsplit=1)
            if size:
                row = f"{cells[0]} {float(cells[1]) / 2:.2f}"
                with pytest.raises(ParseError, match=f"{size} bytes in"):
                    read(name, text.replace(line, row))


def test_random_access_may_err_once_in_a_hundred() -> None:
    text = changed(text_of(HPCC), r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\g<1>0.01")
    assert figures(read("hpcc", text)) == figures(read("hpcc", text_of(HPCC)))


# -- what all parsers share ----------------------------------------------------------------------


@pytest.mark.parametrize("benchmark", parse.BENCHMARKS)
@pytest.mark.parametrize("text", ["", "\n", "Killed\n", "{", "{}", "[]", "[[", "null", "1", "\0"])
def test_no_report(benchmark: str, text: str) -> None:
    with pytest.raises(ParseError):
        parse.parse(benchmark, text)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ParseError):
        parse.parse("fio", '{"jobs" : ' + "[" * 100_000)


@pytest.mark.parametrize("benchmark", parse.BENCHMARKS)
def test_bytes_that_are_no_text(benchmark: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.out"
    capture = next(path for path in sorted((CAPTURES / benchmark).glob("*.out")))
    path.write_bytes(capture.read_bytes() + b"\xff\n")
    with pytest.raises(ParseError, match="not text"):
        parse.parse_file(benchmark, path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        parse.parse_file("imb", tmp_path / "missing.out")


def test_no_parser() -> None:
    with pytest.raises(KeyError):
        parse.parse("linpack", "")


@pytest.mark.parametrize(
    ("foms", "says"),
    [
        ((), "no figure"),
        ((Fom("a", 1.0, "us"), Fom("a", 2.0, "us")), "a is printed twice"),
        ((Fom("a", 1.0, "us", 8), Fom("a", 1.0, "us", 8)), "a_8 is printed twice"),
        ((Fom("a", 1.0, "us", 8, "x"), Fom("a", 1.0, "us", 8, "x")), "a_8_x is printed twice"),
    ],
)
def test_figures_are_there_once(foms: tuple, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plumbline.parse.imb.parse", lambda text: Output(foms, 2, "1"))
    with pytest.raises(ParseError, match=says):
        parse.parse("imb", "")


def test_a_failed_validation_may_stand_on_standard_error_alone() -> None:
    folder = CAPTURES / "babelstream"
    failed = (folder / "v50_omp_float.err").read_text()
    with pytest.raises(ParseError, match="Validation failed on"):
        parse.check_stderr("babelstream", failed)
    parse.check_stderr("babelstream", "plumbline-task 0 node1 0-1 0 - -\n")
    parse.check_stderr("osu", failed)


def test_variable() -> None:
    assert Figure("hpl").variable == Fom("hpl", 1.0, "Tflop/s").variable == "hpl"
    assert Figure("pingpong_latency", 0).variable == "pingpong_latency_0"
    assert Fom("pingpong_latency", 1.0, "us", 8).variable == "pingpong_latency_8"
    pair = Fom("latency", 1.0, "us", 8, "gpu0-gpu1")
    assert pair.figure == Figure("latency", 8, "gpu0-gpu1")
    assert pair.variable == "latency_8_gpu0-gpu1"
    assert Figure("random_ring_latency", at="congested").variable == "random_ring_latency_congested"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("1.50", 1.5), (".5", 0.5), ("2.", 2.0), ("1.015e+01", 10.15), ("4E-3", 0.004)],
)
def test_number(text: str, value: float) -> None:
    assert parse.parse_number(text, "x") == value


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1\n", *NO_NUMBERS])
def test_refused_number(text: str) -> None:
    with pytest.raises(ParseError, match=r"^bandwidth: "):
        parse.parse_number(text, "bandwidth")


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1\n", "1_0", ARABIC_ONE, "9" * 19])
def test_refused_whole_number(text: str) -> None:
    with pytest.raises(ParseError, match=r"^size: "):
        parse.parse_count(text, "size")
    assert parse.parse_count("0012", "size") == 12


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except ParseError:
        return True
    return False


def test_sole() -> None:
    assert parse.single(iter("a"), "letter") == "a"
    assert refuses(lambda: parse.single("", "letter"))
    assert refuses(lambda: parse.single("aa", "letter"))


def test_fio_is_read_as_json() -> None:
    """Layout of the JSON does not matter, the values do."""
    text = json.dumps(json.loads(text_of(FIO)))
    assert figures(read(FIO, text)) == figures(read(FIO, text_of(FIO)))
