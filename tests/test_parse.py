"""Parsers: real outputs are read exactly; damaged, wrong or contradictory ones are refused.

``captures/<benchmark>/`` contains outputs of real runs (``.out``), their commands (``.cmd``) and
standard error, if any (``.err``), without paths of the machine. A parser never reads another
number from a damaged text: it refuses the text, or gives figures that the whole text also has. A
report without its last line is refused.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from facility import launch_mpi
from plumbline import parse
from plumbline.core.units import factor
from plumbline.parse import Figure, Fom, Output, ParseError, babelstream, gpcnet, mdtest, osu
from plumbline.parse.commscope import NAMES
from plumbline.reference.tables import read_foms

#: A digit to ``int()`` and ``float()``, and to no benchmark.
ARABIC_ONE = "\N{ARABIC-INDIC DIGIT ONE}"
#: The reason codes of refusals.
NOT_PARSED, PROGRAM_ERROR = "output.not-parsed", "output.program-error"

CAPTURES = Path(__file__).with_name("captures")
FOMS = read_foms(Path(__file__).parents[1] / "reference")


@dataclass(frozen=True)
class Program:
    """The table of a program for the tests of all programs.

    :ivar failed: pattern of the ends of the names of captures of failed runs.
    :ivar closing: pattern of the last line of a report, if it has one.
    :ivar others: captures of other programs.
    :ivar reported: pattern of those of the failed runs whose output reports the failure.
    :ivar cells: capture, and pattern with two groups around a number.
    :ivar faults: capture, pattern, replacement (or factor of :data:`FACTORS`), and the reason code
        of the refusal where it is not :data:`NOT_PARSED`.
    :ivar strict: whether a damaged text must be refused unless it has all figures.
    """

    name: str
    failed: str
    closing: str | None
    others: list[str]
    reported: str = "nothing"
    cells: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, ...]] = field(default_factory=list)
    strict: bool = False

    @functools.cached_property
    def good(self) -> list[str]:
        """All captures but those of failed runs."""
        return [name for name in names_of(self.name) if not ends(name, self.failed)]


def path_of(name: str) -> Path:
    """A capture's file: ``.out``, or ``.json`` where the program wrote its report to a file."""
    path = CAPTURES / f"{name}.out"
    return path if "json_file" not in name else path.with_suffix(".json")


@functools.cache
def text_of(name: str) -> str:
    return path_of(name).read_text(encoding="utf-8", errors="replace")


def read(name: str, text: str | None = None) -> Output:
    """Parse a capture, or another text of its benchmark."""
    return parse.parse(name.partition("/")[0], text_of(name) if text is None else text)


@functools.cache
def whole(name: str) -> dict[str, tuple[float, str]]:
    """The figures of an unchanged capture."""
    return figures(read(name))


def figures(output: Output) -> dict[str, tuple[float, str]]:
    return {fom.variable: (fom.value, fom.unit) for fom in output.foms}


def names_of(benchmark: str) -> list[str]:
    """All captures of a benchmark."""
    paths = (CAPTURES / benchmark).glob("*.out")
    return sorted(f"{benchmark}/{path.stem}" for path in paths)


def ends(name: str, pattern: str) -> bool:
    return re.search(f"(?:/|_)(?:{pattern})$", name) is not None


def changed(text: str, pattern: str, replacement: str) -> str:
    """The text with exactly one place changed."""
    new, count = re.subn(pattern, replacement, text, flags=re.M)
    assert count == 1, f"{pattern!r} is there {count} times"
    assert new != text, f"{pattern!r} -> {replacement!r} changes nothing"
    return new


#: Captures whose sizes were in a file: which ones are missing is known to the check alone.
CHOSEN = {"imb/pingpong_two_sizes"}


def refused(name: str, text: str, what: str) -> bool:
    """Whether a text is refused; if not, all its figures must be the capture's own."""
    try:
        found = figures(read(name, text))
    except ParseError:
        return True
    assert found.items() <= whole(name).items(), what
    strict = STRICT.get(name.partition("/")[0]) and name not in CHOSEN
    assert not strict or found == whole(name), what
    return False


def refusal(name: str, text: str | None = None, benchmark: str = "") -> str:
    """The reason code with which a text is refused."""
    with pytest.raises(ParseError) as refused:
        parse.parse(benchmark or name.partition("/")[0], text_of(name) if text is None else text)
    return refused.value.code


def truncate(name: str, closing: str) -> None:
    """A text that is truncated before its last line is refused, wherever it is cut.

    :arg closing: pattern of the last line.
    """
    text, length = text_of(name), 0
    end = list(re.finditer(closing, text, re.M))[-1].start()
    assert end > 0
    for line in text.splitlines(keepends=True):
        for cut in {length, length + len(line) // 2}:
            if cut <= end:
                with pytest.raises(ParseError):
                    read(name, text[:cut])
        length += len(line)


def truncate_open(name: str) -> None:
    """Without a last line: cut within a line, a text is refused; cut between lines, it has no
    other figures."""
    text, length, cuts = text_of(name), 0, 0
    for line in text.splitlines(keepends=True):
        cuts += refused(name, text[:length], f"cut after {length} characters")
        if line.strip():
            with pytest.raises(ParseError):
                read(name, text[: length + len(line.rstrip())])
        length += len(line)
    assert cuts > 1


def damaged_lines(name: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of a capture with each kind of damage at each line."""
    lines = text_of(name).splitlines(keepends=True)
    for at in range(len(lines)):
        before, line, after = lines[:at], lines[at], lines[at + 1 :]
        yield "beheaded", lines[at:]
        yield "doubled", [*before, line, line, *after]
        yield "missing", [*before, *after]
        yield "swapped", [*before, *after[:1], line, *after[1:]]


#: Texts that are not a finite number of zero or more.
NO_NUMBERS = [
    *("", "1 2", "nan", "NaN", "NAN", "-nan", "nan(0x1)"),
    *("inf", "Inf", "INF", "-inf", "infinity", "Infinity", "-Infinity", "1e999", "1e+400"),
    *("******", "--", "-", ".", "e5", "1.2.3", "1,5", "1_0", "0x10", "1e", "1e+", "12us", "-3.14"),
    *("null", "true", '"1.5"', ARABIC_ONE, f"1.{ARABIC_ONE}", f"{ARABIC_ONE}.5"),
    *("\N{SUPERSCRIPT TWO}", "\N{INFINITY}"),
]


def no_number(name: str, pattern: str) -> None:
    """A text with a cell that is not a number is refused.

    :arg pattern: with two groups, around the number.
    """
    for number in NO_NUMBERS:
        with pytest.raises(ParseError) as refusal:
            read(name, changed(text_of(name), pattern, rf"\g<1>{number}\g<2>"))
        is_nan = "nan" in number.lower() and STRICT[name.partition("/")[0]]
        assert not is_nan or "NaN" in str(refusal.value)


IMB = "imb/pingpong"
HPCC = "hpcc/n400_2ranks"
FIO = "fio/write_end_fsync"
HUGE = "9" * 400
LONG = "9" * 5000


# -- Intel MPI Benchmarks --------------------------------------------------------------------------

IMB_PROGRAM = Program(
    "imb",
    failed="killed|one_process_invalid|openmpi_launcher_WRONG|out_of_memory|time_out"
    "|process_counts_2_4",
    closing=r"^# All processes entering MPI_Finalize",
    others=["osu/osu_bw", "fio/write_end_fsync"],
    reported="one_process_invalid|time_out",
    strict=True,
    cells=[
        ("imb/pingpong", r"^( +1024 +1000 +)\S+(.*)$"),
        ("imb/pingpong", r"^( +1024 +1000 +\S+ +)\S+()$"),
        ("imb/pingpong", r"^( +0 +1000 +\S+ +)\S+()$"),
        ("imb/allreduce", r"^( +1024 +1000 +)\S+(.*)$"),
        ("imb/allreduce", r"^( +1024 +1000 +\S+ +)\S+(.*)$"),
        ("imb/allreduce", r"^( +1024 +1000 +\S+ +\S+ +)\S+()$"),
        ("imb/barrier", r"^( +1000 +\S+ +\S+ +)\S+()$"),
    ],
    faults=[
        (IMB, r"Mbytes/sec", "MiB/s"),
        (IMB, r"t\[usec\]", "t[msec]"),
        (IMB, r"Mbytes/sec", "Mbytes/sec  t_p99[usec]"),
        (IMB, r"#bytes #repetitions", "#bytes"),
        (IMB, r"^ +#bytes.*\n", ""),
        (IMB, r"^( +1024 +1000 +\S+) +\S+$", r"\1"),
        (IMB, r"^( +1024 +1000 +\S+ +\S+)$", r"\1  1.00"),
        (IMB, r"^( +1024 +1000 +\S+) +(\S+)$", r"\1\2"),
        (IMB, r"^( +1024 .*)\n", r"\1"),
        (IMB, r"^( +)1024( +1000)", r"\g<1>512\2"),
        (IMB, r"^( +)1024( +1000)", r"\1-1024\2"),
        (IMB, r"^( +)1024( +1000)", r"\g<1>1024.0\2"),
        (IMB, r"^( +1024 +)1000", r"\g<1>0"),
        (IMB, r"^( +1024 +1000)", r"Abort(1) on node 0\n\1"),
        ("imb/barrier", r"^( +1000 .*\n)", r"\1\1"),
        ("imb/barrier", r"^ +1000 .*\n", ""),
        (IMB, r"#processes = 2", "#processes = "),
        (IMB, r"# Benchmarking PingPong", "# Benchmarking PingPing"),
        (IMB, r"^# PingPong$", "# PingPong\n# Barrier"),
        (IMB, r"^# PingPong$", ""),
        ("imb/three_benchmarks", r"(Barrier \n#.*= )2", r"\g<1>4"),
        (IMB, r"^# PingPong\n", "# PingPong\n\n# !! Benchmark X invalid for 2 !!\n", PROGRAM_ERROR),
        (IMB, r"^#    Intel.*\n", ""),
        (IMB, r"MPI-1 part", "NBC part"),
        (IMB, r"^# All processes entering MPI_Finalize\n", ""),
        (IMB, r"^( +4194304 +10 +\S+ +)(\d{5}\.\d\d)$", "UP"),
        (IMB, r"^( +4194304 +10 +\S+ +)(\d{5}\.\d\d)$", "DOWN"),
        (IMB, r"^( +4194304 +10 +\S+ +)(\d{5}\.\d\d)$", "BINARY"),
        ("imb/sendrecv", r"^( +4194304 +10 .* )(\S+)$", "HALF"),
        ("imb/exchange", r"^( +4194304 +10 .* )(\S+)$", "HALF"),
        ("imb/allreduce", r"^( +4194304 .* )(\S+)$", "HALF"),
        ("imb/allreduce", r"^( +4194304 .* )(\S+)$", "UP"),
        (IMB, r"^( +1024 +1000 )", r"\1#"),
        (IMB, r"     t\[usec\]   Mbytes/sec", "  Mbytes/sec      t[usec]"),
        (IMB, r"Mbytes/sec", "t[usec]"),
        ("imb/barrier", r"t_max\[usec\](.*\n.*?\S+ +\S+ +)\S+", r"\1"),
        (IMB, r"^( +1024 +1000 +)\S+", r"\g<1>-0.005"),
        (IMB, r"^# PingPong$", "# PingPong\nInvalid benchmark name pingpng", PROGRAM_ERROR),
    ],
)


# -- HPC Challenge ---------------------------------------------------------------------------------

HPCC_PROGRAM = Program(
    "hpcc",
    failed="killed|one_process|residual_failed",
    closing=r"^End of HPC Challenge tests\.",
    others=["osu/osu_bw", "imb/pingpong"],
    reported="residual_failed",
    strict=True,
    cells=[
        ("hpcc/n400_2ranks", r"^(StarSTREAM_Triad=)\S+()$"),
        ("hpcc/n400_2ranks", r"^(AvgPingPongLatency_usec=)\S+()$"),
        ("hpcc/n400_2ranks", r"^(MinPingPongLatency_usec=)\S+()$"),
    ],
    faults=[
        (HPCC, r"^Success=1$", "Success=0", PROGRAM_ERROR),
        (HPCC, r"^Success=1$", "Success=11", PROGRAM_ERROR),
        (HPCC, r"^Success=1\n", ""),
        (HPCC, r"^(HPL_Tflops=.*\n)", r"\1\1"),
        (HPCC, r"^RandomlyOrderedRingLatency_usec=.*\n", ""),
        (HPCC, r"^AvgPingPongLatency_usec=", "AvgPingPongLatency_msec="),
        (HPCC, r"^StarDGEMM_Gflops=", "StarDGEMM_Tflops="),
        (HPCC, r"^HPL_Tflops=.*$", "HPL_Tflops"),
        (HPCC, r"^(HPL_Tflops=)", r"mpirun: a node died\n\1"),
        (HPCC, r"^CommWorldProcs=2$", "CommWorldProcs=two"),
        (HPCC, r"^CommWorldProcs=2\n", ""),
        (HPCC, r"(\.\.\.\.\.\. )PASSED", r"\1FAILED", PROGRAM_ERROR),
        (HPCC, r"(WALL .*)PASSED( .*\n)(?=.*\n\nFinished)", r"\1FAILED\2", PROGRAM_ERROR),
        (HPCC, r"^(Begin of HPL section\.\n)", r"\1HPL ERROR from process # 0\n", PROGRAM_ERROR),
        (HPCC, r"(Finished +)1( tests with the)", r"\g<1>2\2"),
        (HPCC, r"^Finished +1 tests with the.*\n", ""),
        (HPCC, r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\g<1>0.0101"),
        (HPCC, r"^(MPIRandomAccess_LCG_ErrorsFraction=)0$", r"\g<1>0.5"),
        (HPCC, r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\1-nan"),
        (HPCC, r"^(MinPingPongLatency_usec=).*$", r"\g<1>1000"),
        (HPCC, r"^(MaxPingPongBandwidth_GBytes=).*$", r"\g<1>0.001"),
        (HPCC, r"^End of (Summary section\.)$", r"Begin of \1"),
        (HPCC, r"((?:.*\n)*)(End of HPC Challenge tests\.\n)", r"\2\1"),
        (HPCC, r"^End of HPC Challenge tests\.\n", ""),
        (HPCC, r"Rate \(GB/s\)", "Rate (MB/s)"),
        (HPCC, r"^MPIRandomAccess_ErrorsFraction=.*\n", ""),
        # malloc() failed in a task's StarRandomAccess: the mean is halved, with Success=1.
        (HPCC, r"^(Node\(s\) with error )0(\nMinimum GUP/s 0\.76)", r"\g<1>1\2", PROGRAM_ERROR),
    ],
)


# -- fio -------------------------------------------------------------------------------------------

FIO_PROGRAM = Program(
    "fio",
    failed="normal_report|read_missing|readwrite|write_2jobs_ungrouped|write_too_large",
    closing=r"^}",
    others=["ior/v400_mpich_json", "osu/osu_bw"],
    reported="read_missing",
    strict=True,
    cells=[
        ("fio/write_end_fsync", r'^( +"bw_bytes" : )[1-9]\d*(,)$'),
        ("fio/write_end_fsync", r'^( +"bw" : )[1-9]\d*(,)$'),
        ("fio/write_end_fsync", r'^( +"io_bytes" : )[1-9]\d*(,)$'),
        ("fio/write_end_fsync", r'^( +"runtime" : )[1-9]\d*(,)$'),
    ],
    faults=[
        (FIO, r"^}\s*\Z", r"}\nfio: terminating on signal 2\n", PROGRAM_ERROR),
        (FIO, r"\A", "\nfio: terminating on signal 15\n", PROGRAM_ERROR),
        (FIO, r"^}\s*\Z", r"}\nfio: a later line\n"),
        (FIO, r'"error" : 0', '"error" : 5', PROGRAM_ERROR),
        (FIO, r'"error" : 0', '"error" : "5"'),
        (FIO, r'"error" : 0', '"error" : false'),
        (FIO, r'^ +"error" : 0,\n', ""),
        (FIO, r'"fio-3.33"', '"oif-3.33"'),
        (FIO, r'"fio-3.33"', "3.33"),
        (FIO, r'("bw_bytes" : )([1-9]\d*)', "UP"),
        (FIO, r'("bw" : )([1-9]\d*)', "UP"),
        (FIO, r'("bw" : )([1-9]\d*)', "BINARY"),
        (FIO, r'("io_bytes" : )([1-9]\d*)', "HALF"),
        (FIO, r'("runtime" : )([1-9]\d*)', "HALF"),
        (FIO, r'("bw" : [1-9](?:.*\n)+?.*"short_ios" : )0', r"\g<1>1", PROGRAM_ERROR),
        (FIO, r'("bw" : [1-9](?:.*\n)+?.*"drop_ios" : )0', r"\g<1>1", PROGRAM_ERROR),
        (FIO, r'("read" : {\n +"io_bytes" : )0', r"\g<1>4096"),
        (FIO, r'"bw_bytes"( : [1-9])', r'"bw_mib"\1'),
        (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\1[],"),
        (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\g<1>1,"),
        (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\1[[]],"),
        (FIO, r'("error" : 0),', r"\1"),
        (FIO, r'^( +"bw_bytes" : )([1-9]\d*,\n)', r"\g<1>5,\n\1\2"),
        (FIO, r'"runtime" : [1-9]\d*', f'"runtime" : {LONG}'),
        (FIO, r'"io_bytes" : [1-9]\d*', f'"io_bytes" : {HUGE}'),
    ],
)


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
    """Every cell of every table, read without the parser's checks."""
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
                        value = float(row[column])
                        if suffix == "bandwidth" and value < 0.5 and "t[usec]" in row:
                            # Of two digits after the point, less than the time has.
                            value = float(row["#bytes"]) / float(row["t[usec]"])
                        found[f"{operation}_{suffix}{size}"] = (value, unit)
    return found


def is_row(line: str) -> bool:
    """Whether a line is a row of one of IMB's tables."""
    words = line.split()
    return len(words) > 2 and words[0].isdigit()


@pytest.mark.parametrize("name", IMB_PROGRAM.good)
def test_imb_reads_every_cell(name: str) -> None:
    assert whole(name) == imb_by_eye(text_of(name))


@pytest.mark.parametrize("name", ["hpcc/hpcc_N400_2ranks", "hpcc/n400_2ranks"])
def test_hpcc_agrees_with_the_report_above_the_summary(name: str) -> None:
    text, found = text_of(name), whole(name)
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


@pytest.mark.parametrize("name", FIO_PROGRAM.good)
def test_fio_reads_bytes_a_second(name: str) -> None:
    text = text_of(name)
    direction = "write" if "write" in name else "read"
    (rate,) = {int(found) for found in re.findall(r'"bw_bytes" : (\d+)', text)} - {0}
    assert whole(name) == {f"{direction}_bandwidth": (float(rate), "B/s")}
    (moved,) = {int(found) for found in re.findall(r'"io_bytes" : (\d+)', text)} - {0}
    (took,) = {int(found) for found in re.findall(r'"runtime" : (\d+)', text)} - {0}
    assert rate == pytest.approx(moved / took * 1000, rel=0.02)


def test_fio_spot_value_after_warnings() -> None:
    text = "fio: this is a warning\nnote: {\n" + text_of("fio/write_1m_direct_json")
    found = figures(read("fio/write_1m_direct_json", text))
    assert found == {"write_bandwidth": (2606169475.0, "B/s")}


def test_zero_is_left_to_the_check() -> None:
    """A zero is what the program printed; that a figure is positive is ``check.py``'s rule."""
    text = changed(text_of("hpcc/n400_2ranks"), r"^(PTRANS_GBs=)\S+$", r"\g<1>0")
    assert figures(read("hpcc", text))["ptrans"] == (0.0, "GB/s")
    text = changed(text_of("imb/barrier"), r"^( +1000 +).*$", r"\g<1>0.00 0.00 0.00")
    assert figures(read("imb", text))["barrier_latency"] == (0.0, "us")


@pytest.mark.parametrize(
    ("name", "columns", "bandwidth"),
    [("imb/pingpong", "400.00 0.00", 1 / 400), ("imb/pingpong", "199.00 0.01", 1 / 199),
     ("imb/pingpong", "0.80 1.25", 1.25), ("imb/sendrecv", "390.00 400.00 395.00 0.01", 2 / 400),
     ("imb/exchange", "900.00 950.00 925.00 0.00", 4 / 950)],
)  # fmt: skip
def test_a_bandwidth_below_imbs_two_decimals(name: str, columns: str, bandwidth: float) -> None:
    text = changed(text_of(name), r"^( +1 +1000 +).*$", rf"\g<1>{columns}")
    found = figures(read(name, text))
    assert found[f"{name.removeprefix('imb/')}_bandwidth_1"] == (bandwidth, "MB/s")


def test_every_bandwidth_of_imb_contradicts_another_time() -> None:
    """Decimal megabytes taken for binary ones contradict the time at every size."""
    for name in ("imb/pingpong", "imb/pingping", "imb/sendrecv", "imb/exchange"):
        text = text_of(name)
        for line in filter(is_row, text.splitlines()):
            size, cells = int(line.split()[0]), line.rsplit(maxsplit=1)
            if size:
                row = f"{cells[0]} {float(cells[1]) / 2:.2f}"
                assert refusal(name, text.replace(line, row)) == NOT_PARSED


@pytest.mark.parametrize("waiting", ["1 additional process", "2 additional processes"])
def test_imb_other_processes_wait(waiting: str) -> None:
    line = f"# ( {waiting} waiting in MPI_Barrier)"
    text = changed(text_of(IMB), r"^(# #processes = 2 )$", rf"\1\n{line}")
    assert read(IMB, text) == read(IMB)


def test_random_access_may_err_once_in_a_hundred() -> None:
    text = changed(text_of(HPCC), r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\g<1>0.01")
    assert figures(read("hpcc", text)) == whole(HPCC)


# -- BabelStream -----------------------------------------------------------------------------------

BABEL_TABLE = "babelstream/main_omp"
BABEL_OLD = "babelstream/omp"
BABEL_CSV = "babelstream/omp_csv"
BABEL_TRIAD = "babelstream/v50_omp_triad_only"
BABEL_PROGRAM = Program(
    "babelstream",
    # Main stops at a failed validation, before the table.
    failed="help|list|print_names|bad_option|bad_size|one_time|only_wrong|killed|no_memory"
    "|main_(?:cuda_)?broken|main_broken_csv|v[45]0_cuda_odd_size"
    "|cuda_(?:no_driver|no_device|third|illegal)",
    closing=r"^(?:Bandwidth|Dot|Nstream|Copy|Triad) .*\n",
    others=["osu/osu_bw", "hpcc/n400_2ranks"],
    cells=[
        (BABEL_TABLE, r"^(Add +)\S+(.*)$"),
        (BABEL_TABLE, r"^(Add +\S+ +)\S+(.*)$"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+( *)$"),
        (BABEL_CSV, r"^(Add,20,33554432,8,)[^,]+(.*)$"),
        (BABEL_CSV, r"^(Add,20,33554432,8,[^,]+,)[^,]+(.*)$"),
        (BABEL_CSV, r"^(Add,20,)\d+(.*)$"),
        (BABEL_TRIAD, r"^(Bandwidth .*:  )\S+()$"),
        (BABEL_TRIAD, r"^(Runtime .*: )\S+()$"),
    ],
    faults=[
        (BABEL_TABLE, r"^Add .*\n", ""),
        (BABEL_TABLE, r"^(Add .*\n)", r"\1\1"),
        (BABEL_TABLE, r"^(Add .*)$", r"\1 1.00000"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+) .*$", r"\1"),
        (BABEL_TABLE, r"^Add ", "Sum "),
        (BABEL_TABLE, r"^(Add .*\n)", r"\1Abort(1)\n"),
        (BABEL_TABLE, r"MB/s  ", "MFlops"),
        (BABEL_TABLE, r"MB/s  ", "MiB/s "),
        (BABEL_TABLE, r"MB/s  ", "GB/s  "),
        (BABEL_TABLE, r"^(Add +)\d", r"\g<1>9"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+", r"\g<1>9.00000"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+", r"\g<1>0.00000"),
        (BABEL_TABLE, r"^(Number of elements: )\d+", r"\g<1>1024"),
        (BABEL_TABLE, r"^(Precision: )double", r"\1float"),
        (BABEL_TABLE, r"^(Precision: )double", r"\1half"),
        (BABEL_TABLE, r"^Version.*\n", ""),
        (BABEL_TABLE, r"^Array size.*$", "Array size: big"),
        (BABEL_TABLE, r"^(Implementation.*\n)", r"\1\1"),
        (BABEL_TABLE, r"Classic kernels", "All kernels"),
        (BABEL_CSV, r"^Add,.*\n", ""),
        (BABEL_CSV, r"^(Add,.*\n)", r"\1\1"),
        (BABEL_CSV, r"^Add,20,", "Add,30,"),
        (BABEL_CSV, r"^(Add,.*)$", r"\1,1"),
        (BABEL_CSV, r"^(Add,20,33554432,8,)3", r"\g<1>9"),
        (BABEL_CSV, r"^(function.*)max_mbytes", r"\1max_mibytes"),
        (BABEL_CSV, r"^(function.*)max_mbytes", r"\1max_mflops"),
        (BABEL_CSV, r"^(Copy,20,33554432,)8", r"\g<1>2"),
        (BABEL_TRIAD, r"^Runtime.*\n", ""),
        (BABEL_TRIAD, r"GB/s", "GFlop/s"),
        (BABEL_TRIAD, r"^(Running triad )\d+", r"\g<1>2"),
        (BABEL_TRIAD, r"^Bandwidth.*$", "Bandwidth: 5"),
    ],
)


def stderr_of(name: str) -> str:
    """The standard error of a run."""
    path = path_of(name).with_suffix(".err")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@pytest.mark.parametrize("name", BABEL_PROGRAM.good)
def test_babelstream_every_rate_is_read(name: str) -> None:
    """Row by row, read without the parser's checks."""
    kernels = {"Copy", "Mul", "Add", "Triad", "Dot", "Nstream"}
    expected = {}
    for line in text_of(name).splitlines():
        kernel, *_ = re.split(r"[\s,]", line)
        if kernel in kernels:
            rate = line.split(",")[4] if "csv" in name else line[12:24]
            expected[kernel.lower()] = float(rate)
    alone = re.search(r"^Bandwidth \((\w+)/s\): +(\S+)$", text_of(name), re.M)
    if alone:
        expected = {"triad": float(alone[2])}
    found = whole(name)
    assert {kernel: value for kernel, (value, _) in found.items()} == expected
    assert len({unit for _, unit in found.values()}) == 1


def test_babelstream_spot_values() -> None:
    output = read(BABEL_OLD)
    assert figures(output) == {
        "copy": (37223.630, "MB/s"),
        "mul": (36750.766, "MB/s"),
        "add": (37671.726, "MB/s"),
        "triad": (38894.460, "MB/s"),
        "dot": (40296.696, "MB/s"),
    }
    assert output.inputs == {
        "implementation": "OpenMP",
        "precision": "double",
        "num_times": "20",
        "array_volume": "268.4 MB (=0.3 GB)",
    }
    output = read(BABEL_CSV)
    assert figures(output)["triad"] == (38693.6, "MB/s")
    assert output.inputs == {"num_times": "20", "array_size": "33554432", "precision": "double"}
    assert whole("babelstream/v40_omp_triad_only") == {"triad": (68.196, "GB/s")}
    assert whole("babelstream/v40_omp_triad_only_csv") == {"triad": (90.3881, "GB/s")}
    assert whole("babelstream/v40_omp_nstream_only") == {"nstream": (178977.016, "MB/s")}
    assert whole("babelstream/main_omp_tebibytes")["copy"] == (0.112, "TiB/s")
    assert whole("babelstream/main_omp_gibibytes")["copy"] == (110.989, "GiB/s")
    assert whole("babelstream/v50_omp_mibibytes")["copy"] == (114090.945, "MiB/s")
    output = read(BABEL_TABLE)
    assert output.inputs["array_size"] == "33554432"
    assert output.inputs["order"] == "Classic"


def test_babelstream_device() -> None:
    text = changed(
        text_of(BABEL_TABLE), r"^(Function )", r"Using CUDA device: NVIDIA H200\nDriver: 1\n\1"
    )
    assert read(BABEL_TABLE, text).inputs["device"] == "NVIDIA H200"
    text = changed(
        text_of(BABEL_TABLE), r"^(Function )", r"Using HIP device AMD Instinct MI250X\n\1"
    )
    assert read(BABEL_TABLE, text).inputs["device"] == "AMD Instinct MI250X"
    devices = {"v40": "Stand-in GPU", "v50": "Stand-in GPU", "main": "NVIDIA H100 80GB HBM3"}
    for version, device in devices.items():
        inputs = read(f"babelstream/{version}_cuda").inputs
        assert (inputs["implementation"], inputs["device"]) == ("CUDA", device)
    # Of 3,352 GB/s that the program prints as peak.
    assert whole("babelstream/main_cuda")["triad"] == (2914366.043, "MB/s")


@pytest.mark.parametrize(
    "name",
    [
        "Intel(R) FPGA Emulation Device", "Intel(R) Xeon(R) CPU E5-2697 v2 @ 2.70GHz",
        "AMD EPYC 7543P 32-Core Processor", "INTEL(R) XEON(R) PLATINUM 8592+",
        "12th Gen Intel(R) Core(TM) i7-12700", "cpu-haswell-AMD EPYC 7543P",
        "AdaptiveCpp OpenMP host device", "SYCL host device",
    ],
)  # fmt: skip
def test_babelstream_sycl_devices_that_are_no_gpu(name: str) -> None:
    assert babelstream.NO_GPU.search(name)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-40GB", "NVIDIA GH200 480GB", "Tesla V100-SXM2-16GB", "Fiji",
        "AMD Instinct MI250X", "gfx90a:sramecc+:xnack-", "Intel(R) Data Center GPU Max 1550",
    ],
)  # fmt: skip
def test_babelstream_sycl_devices_that_may_be_gpus(name: str) -> None:
    assert not babelstream.NO_GPU.search(name)


def test_babelstream_a_rate_that_fills_its_column() -> None:
    """From 10 TB/s on, no blank stands between rate and time."""
    name = "babelstream/v50_cuda_broken"
    assert re.search(r"^Triad +\d{8}\.\d{4}\.\d{5} ", text_of(name), re.M)
    assert len(whole(name)) == 5
    # Half the bytes of a triad cannot be moved at that rate in a time of five digits.
    text = changed(text_of("babelstream/v50_cuda"), r"^(Triad +)\S+ +", r"\g<1>24409140.640")
    with pytest.raises(ParseError, match=r"24409140\.64"):
        read("babelstream/v50_cuda", text)


BABEL_FAILURES = [name for name in BABEL_PROGRAM.good if babelstream.FAILED.search(stderr_of(name))]


@pytest.mark.parametrize("name", BABEL_FAILURES)
def test_babelstream_failed_validation_stands_on_standard_error(name: str) -> None:
    """The program prints its table and exits with 0."""
    read(name)
    for both in (text_of(name) + stderr_of(name), stderr_of(name) + text_of(name)):
        assert refusal(name, both) == PROGRAM_ERROR


def test_babelstream_failed_validation() -> None:
    assert "babelstream/omp_float" in BABEL_FAILURES
    line = "FAILED validation of a[0]: 1 (is) != 2 (should), diff=1 > 0.1 (largest=2, max_rel=1)\n"
    assert refusal(BABEL_TABLE, text_of(BABEL_TABLE) + line) == PROGRAM_ERROR


@pytest.mark.parametrize(
    "name", [name for name in BABEL_PROGRAM.good if "main" not in name and "csv" in name]
)
def test_babelstream_truncated_csv(name: str) -> None:
    truncate(name, r"^(?:Dot|Nstream|Triad),.*\n(?!.)")


# -- Comm|Scope ------------------------------------------------------------------------------------

COMM_REPORT = "commscope/v0120_memcpy_json_file"
COMM_REPEATED = "commscope/v0120_repetitions_json_file"
COMM_FIRST = r'(^ +"name": "libc_memcpy_NUMAToNUMA/0/0/log2\(N\):20",(?:.*\n)+?'
COMM_PROGRAM = Program(
    "commscope",
    # And all without a report in JSON, whatever their names end with.
    failed=r"(?:cuda_error|cuda_no_peer|nomatch|malloc)_json_file|(?<=/)(?!\w*json)\w+",
    closing=r"^}",
    others=["ior/v400_mpich_json", "fio/write_end_fsync", "osu/osu_bw"],
    reported="cuda_(?:error|no_peer)_json_file",
    cells=[
        (COMM_REPORT, rf'{COMM_FIRST} +"{key}": )[^,]+(,)')
        for key in ("real_time", "bytes_per_second", "bytes", "cpu_time")
    ],
    faults=[(COMM_REPORT, rf'{COMM_FIRST} +"real_time": )', r'\g<1>5, "real_time": ')],
)


def comm_entry(name: str, log: int | None, real_time: float, **fields: Any) -> dict[str, Any]:
    """An entry of Google Benchmark's report."""
    made = {
        "name": name,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
        "iterations": 100,
        "real_time": real_time,
        "cpu_time": real_time,
        "time_unit": "ns",
    }
    if log is not None:
        made["bytes"] = float(2**log)
        made["bytes_per_second"] = 2**log / (real_time * 1e-9) * (2 if "Duplex" in name else 1)
    return made | fields


def comm_report(*entries: dict[str, Any]) -> str:
    context = {"library_build_type": "release", "num_cpus": 64, "date": "2026-11-21"}
    return json.dumps({"context": context, "benchmarks": list(entries)}, indent=2)


def test_commscope_report_of_a_killed_run() -> None:
    text = (CAPTURES / "commscope" / "v0120_killed.json").read_text(encoding="utf-8")
    assert refusal("commscope", text) == NOT_PARSED


def test_commscope_every_name_has_registered_metrics() -> None:
    for what, _ in NAMES.values():
        alone = "bidir" in what or "numa_copy" in what
        ends = ["bandwidth"] if alone else ["latency", "bandwidth"]
        for end in ["latency"] if what in {"kernel_launch", "device_sync"} else ends:
            assert f"{what}_{end}" in FOMS["commscope"]


def test_commscope_host_copies() -> None:
    output = read(COMM_REPORT)
    assert list(figures(output)) == [
        f"numa_copy_bandwidth_{size}_numa0-numa0" for size in (4096, 2**20, 2**21, 2**22)
    ]
    assert output.inputs["library_build_type"] == "release"
    assert output.inputs["num_cpus"] == "2"
    assert list(output.inputs) == ["library_build_type", "num_cpus", "date"]
    found = whole("commscope/v0120_flush_json_file")
    assert next(iter(found)) == "numa_copy_flush_bandwidth_4096_numa0-numa0"


@pytest.mark.parametrize("which", ["cuda_gpu", "cuda_d2d", "cuda_kernel", "cuda_others", "memcpy"])
def test_commscope_every_benchmark_is_read(which: str) -> None:
    """Entry by entry, read without the parser's checks."""
    name = f"commscope/v0120_{which}_json_file"
    expected = set()
    for one in json.loads(text_of(name))["benchmarks"]:
        host = one["name"].startswith("libc")
        if "Duplex" not in one["name"] and not host:
            expected.add((one["real_time"], one["time_unit"]))
        if "bytes_per_second" in one:
            expected.add((one["bytes_per_second"] * (2 if host else 1), "B/s"))
    assert set(whole(name).values()) == expected


def test_commscope_gpu_copies() -> None:
    assert whole("commscope/v0120_cuda_gpu_json_file") == {
        "d2h_latency_256_gpu0": (3128.76159589618, "ns"),
        "d2h_bandwidth_256_gpu0": (81821510.57331462, "B/s"),
        "d2h_latency_1073741824_gpu0": (19500566.18079543, "ns"),
        "d2h_bandwidth_1073741824_gpu0": (55062084559.23929, "B/s"),
        "h2d_latency_256_gpu0": (4342.541492013666, "ns"),
        "h2d_bandwidth_256_gpu0": (58951653.1899137, "B/s"),
        "h2d_latency_1073741824_gpu0": (19510939.30337164, "ns"),
        "h2d_bandwidth_1073741824_gpu0": (55032810430.323524, "B/s"),
        "bidir_bandwidth_1073741824_gpu0": (87810583717.59128, "B/s"),
        "device_sync_latency_gpu0": (597.7809780520404, "ns"),
        "kernel_launch_latency_gpu0": (3768.3800656208377, "ns"),
    }
    assert {
        "d2d_latency_256_gpu0-gpu1",
        "d2d_peer_bandwidth_1073741824_gpu0-gpu1",
        "d2d_bidir_bandwidth_134217728_gpu0-gpu1",
        "d2d_bidir_peer_bandwidth_134217728_gpu0-gpu1",
    } <= set(whole("commscope/v0120_cuda_d2d_json_file"))


def test_commscope_the_program_has_every_benchmark_that_the_checks_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two GPUs and one NUMA domain: the program silently skips what does not exist."""
    path = Path(__file__).parents[1] / "checks" / "commscope.py"
    spec = importlib.util.spec_from_file_location("checks_commscope", path)
    checks = importlib.util.module_from_spec(spec)
    # ReFrame asks for the file of a check's class.
    monkeypatch.setitem(sys.modules, spec.name, checks)
    spec.loader.exec_module(checks)
    topology = SimpleNamespace(
        vendor="cuda",
        gpus=[SimpleNamespace(number=number, numa=0) for number in (0, 1)],
        pairs={"gpu-a": [(0, 1)]},
        os_number=int,
    )
    self = SimpleNamespace(topology=topology, placement="gpu-a")
    listed = text_of("commscope/v0120_cuda_list").splitlines()
    for check, number in (("gpu", 14), ("d2d", 6)):
        asked = getattr(checks, f"commscope_{check}").tests(self)
        assert len(asked) == number
        for name in asked:
            assert [line for line in listed if re.fullmatch(name, line)] == [name.replace("\\", "")]


def test_commscope_mean_of_repetitions() -> None:
    assert whole(COMM_REPEATED) == {
        # The timer adds each copy twice.
        "numa_copy_bandwidth_1048576_numa0-numa0": (2 * 2.1849039985088989e10, "B/s"),
    }
    report = json.loads(text_of(COMM_REPEATED))
    means = [one for one in report["benchmarks"] if one["run_type"] == "aggregate"]
    only = json.dumps(report | {"benchmarks": means})
    assert figures(read(COMM_REPEATED, only)) == whole(COMM_REPEATED)


COMM_CUDA, COMM_HIP = "Comm_cudaMemcpyAsync", "Comm_hipMemcpyAsync"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        (f"{COMM_CUDA}_PinnedToGPU/0/1", "h2d_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_PinnedToGPU_flush/0/1", "h2d_flush_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_GPUToPinned/0/1", "d2h_bandwidth_1048576_gpu1"),
        (f"{COMM_HIP}_PinnedToGPU/3/7", "h2d_bandwidth_1048576_gpu7"),
        (f"{COMM_CUDA}_HostToGPU/0/1", "h2d_pageable_bandwidth_1048576_gpu1"),
        (f"{COMM_HIP}_GPUToPageable/0/1", "d2h_pageable_bandwidth_1048576_gpu1"),
        ("Comm_hipMemcpy_GPUToNUMA/0/1", "d2h_blocking_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_GPUToGPU/0/1/2", "d2d_bandwidth_1048576_gpu1-gpu2"),
        (f"{COMM_HIP}_GPUToGPU/1/2", "d2d_bandwidth_1048576_gpu1-gpu2"),
        (f"{COMM_CUDA}_GPUToGPUPeer/1/2", "d2d_peer_bandwidth_1048576_gpu1-gpu2"),
        ("Comm_cudaMemcpyPeerAync_GPUToGPU/1/2", "d2d_peerasync_bandwidth_1048576_gpu1-gpu2"),
        (
            "Comm_cudaMemcpyPeerAsync_GPUToGPUPeer/1/2",
            "d2d_peerasync_peer_bandwidth_1048576_gpu1-gpu2",
        ),
        (f"{COMM_CUDA}_Duplex_Pinned/0/1", "bidir_bandwidth_1048576_gpu1"),
        (f"{COMM_CUDA}_Duplex_Host/0/1", "bidir_pageable_bandwidth_1048576_gpu1"),
        ("Comm_cudaMemcpyPeerAsync_Duplex_GPUGPU/0/3", "d2d_bidir_bandwidth_1048576_gpu0-gpu3"),
    ],
)
def test_commscope_copies_of_gpus(name: str, variable: str) -> None:
    made = comm_entry(f"{name}/log2(N):20/manual_time", 20, 50_000.0)
    found = figures(read("commscope", comm_report(made)))
    assert found.pop(variable) == (made["bytes_per_second"], "B/s")
    time = {} if "bidir" in variable else {variable.replace("bandwidth", "latency"): (5e4, "ns")}
    assert found == time


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("Comm_cudart_kernel/0/2/0/real_time/threads:1", "kernel_launch_latency_gpu2"),
        ("Comm_hip_kernel/0/2/0/real_time/threads:1", "kernel_launch_latency_gpu2"),
        ("Comm_cudart_kernel/0/2/256/real_time/threads:1", "kernel_launch_latency_256_gpu2"),
        ("Comm_cudaDeviceSynchronize/0/2/real_time/threads:1", "device_sync_latency_gpu2"),
        ("Comm_hipDeviceSynchronize/0/2/real_time/threads:1", "device_sync_latency_gpu2"),
    ],
)
def test_commscope_calls(name: str, variable: str) -> None:
    found = figures(read("commscope", comm_report(comm_entry(name, None, 1234.5, time_unit="us"))))
    assert found == {variable: (1234.5, "us")}


def test_commscope_one_gpu_from_several_domains() -> None:
    names = [f"{COMM_CUDA}_PinnedToGPU/{numa}/{gpu}" for numa, gpu in ((0, 0), (1, 0), (1, 1))]
    made = [comm_entry(f"{name}/log2(N):10/manual_time", 10, 100.0) for name in names]
    output = read("commscope", comm_report(*made))
    assert [fom.location for fom in output.foms[::2]] == ["numa0-gpu0", "numa1-gpu0", "gpu1"]


@pytest.mark.parametrize(
    "name",
    [
        "Comm_cudart_kernel/0/2/0/real_time/threads:2",
        "Comm_cudaDeviceSynchronize/0/2/real_time/threads:16",
        "Comm_cudaMemcpyAsync_Duplex_GPUGPUPeer/0/1/log2(N):20/manual_time",
        "Comm_cudart_cudaMallocManaged/0/log2(N):20",
        "Comm_cudaMemcpyAsync_GPUToWC/0/1/log2(N):20/manual_time",
    ],
)
def test_commscope_what_gives_no_figures(name: str) -> None:
    assert refusal("commscope", comm_report(comm_entry(name, 20, 50_000.0))) == NOT_PARSED


COMM_GPU = f"{COMM_CUDA}_PinnedToGPU/0/1/log2(N):20/manual_time"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"error_occurred": True, "error_message": "failed to memcpy"}, PROGRAM_ERROR),
        ({"error_message": "unexpected"}, PROGRAM_ERROR),
        ({"bytes": 2.0**21}, NOT_PARSED),
        ({"bytes_per_second": 1e9}, NOT_PARSED),
        ({"time_unit": "us"}, NOT_PARSED),
        ({"time_unit": "fortnight"}, NOT_PARSED),
        ({"run_type": "repetition"}, NOT_PARSED),
        ({"run_name": f"{COMM_CUDA}_PinnedToGPU/0/log2(N):20/manual_time"}, NOT_PARSED),
        ({"run_name": f"{COMM_CUDA}_PinnedToGPU/0/1/manual_time"}, NOT_PARSED),
        ({"run_name": 5}, NOT_PARSED),
        ({"repetition_index": 1}, NOT_PARSED),
        ({"repetitions": 2}, NOT_PARSED),
    ],
)
def test_commscope_fault_is_refused(fields: dict[str, Any], code: str) -> None:
    made = comm_entry(COMM_GPU, 20, 50_000.0)
    read("commscope", comm_report(made))
    assert refusal("commscope", comm_report(made | fields)) == code


def test_commscope_repetitions_have_one_mean() -> None:
    made = comm_entry(COMM_GPU, 20, 50_000.0)
    several = [made | {"repetitions": 2, "repetition_index": k} for k in (0, 1)]
    mean = made | {"run_type": "aggregate", "aggregate_name": "mean", "repetitions": 2}
    assert figures(read("commscope", comm_report(*several, mean))) == figures(
        read("commscope", comm_report(made))
    )
    wrong = ([made, made], several, [*several, mean, mean], [*several, mean | {"real_time": 1.0}])
    for entries in wrong:
        assert refusal("commscope", comm_report(*entries)) == NOT_PARSED


@pytest.mark.parametrize(
    "key", ["run_name", "run_type", "real_time", "time_unit", "bytes", "bytes_per_second"]
)
def test_commscope_fields_that_are_missing(key: str) -> None:
    made = comm_entry(COMM_GPU, 20, 50_000.0)
    del made[key]
    with pytest.raises(ParseError, match=key):
        read("commscope", comm_report(made))


def test_commscope_build_that_is_missing() -> None:
    text = changed(comm_report(comm_entry(COMM_GPU, 20, 5e4)), r'"library_build_type"', '"build"')
    with pytest.raises(ParseError, match="library_build_type"):
        read("commscope", text)


# -- GPCNeT ----------------------------------------------------------------------------------------

#: Ends of the names of captures of failed runs: too few nodes, or cut. Open MPI's shared windows
#: clash where a node is emulated, and it aborts.
GPCNET_TOO_FEW = r"network_(?:load_)?test(?:_\d+ranks)?_[149]nodes?|one_process|[24]ranks_1node"

GPCNET_PLAIN = "gpcnet/network_test_2fakenodes_2ranks"
GPCNET_LOAD = "gpcnet/stock_network_load_test_10fakenodes_10ranks_timeout240"
GPCNET_PROGRAM = Program(
    "gpcnet",
    failed=rf"{GPCNET_TOO_FEW}|\w*(?:killed|20ranks_10nodes|verbose|WRONG)\w*",
    closing=r"^\+-.*\+$",
    others=["osu/osu_bw", "hpcc/n400_2ranks"],
    reported=GPCNET_TOO_FEW,
    faults=[
        (GPCNET_PLAIN, r"^\| +RR Get Lat.*\n.*\n", ""),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*\n.*\n)", r"\1\1"),
        (GPCNET_PLAIN, r"RR Get Lat", "RR Got Lat"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*)usec", r"\1msec"),
        (GPCNET_PLAIN, r"^(\| +RR Put BW.*)MiB/s/rank", r"\1 MB/s/rank"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*) \|$", r"\1"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*\|)$", r"\1 |"),
        (GPCNET_PLAIN, r"99% \|        Units", r"9.9% |       Units"),
        (GPCNET_PLAIN, r"Isolated Network Tests", "Isolated Natwork Tests"),
        (GPCNET_PLAIN, r"^Network Tests v1.3.*\n", ""),
        (GPCNET_PLAIN, r"\(2 nodes\)", "(two nodes)"),
        (GPCNET_PLAIN, r"RR Get Lat \(8 B\)", "RR Get Lat (8 M)"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*\n)\+.*\n", r"\1"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*)0\.1( \| +usec)", r"\1.01\2"),
        (GPCNET_LOAD, r"^  8 nodes running", "  7 nodes running"),
        (GPCNET_LOAD, r" 5\.6X ", " 5.7X "),
        (GPCNET_LOAD, r" 1\.3X ", " 0.8X "),
        (GPCNET_LOAD, r"154\.5X", "154.5x"),
        (GPCNET_LOAD, r"        5\.6X", "        infX"),
        (GPCNET_LOAD, r" 11\.2 ", " 0.0  "),
    ],
)


@pytest.mark.parametrize("name", GPCNET_PROGRAM.good)
def test_gpcnet_every_cell_is_read(name: str) -> None:
    """Row by row, read without the parser's checks."""
    expected, tables = {}, text_of(name).split("Network Tests")
    for row, size, mean, tail, unit in re.findall(
        r"^\| +(.+) \((\d+) B\)? +\| +(\S+) \| +(\S+) \| +(\w\S*) \|$", text_of(name), re.M
    ):
        first = f"{row} ({size} B" not in "".join(map(str, expected.values()))
        place = "isolated" if first else "congested"
        printed = ("MiB/s" if unit != "usec" else "us", f"{row} ({size} B")
        expected[f"{gpcnet.ROWS[row]}_{size}_{place}"] = (float(mean), *printed)
        expected[f"{gpcnet.ROWS[row]}_p99_{size}_{place}"] = (float(tail), *printed)
    expected = {key: value[:2] for key, value in expected.items()}
    factors = r"^\| +(.+) \(\d+ B\)? +\| +(\S+)X \| +(\S+)X \|$"
    for row, mean, tail in re.findall(factors, text_of(name), re.M):
        expected[f"{gpcnet.ROWS[row]}_congestion_factor"] = (float(mean), "one")
        expected[f"{gpcnet.ROWS[row]}_p99_congestion_factor"] = (float(tail), "one")
    assert whole(name) == expected
    assert len(tables) > 1


def test_gpcnet_inputs() -> None:
    assert read(GPCNET_PLAIN).inputs == {"program": "network_test", "nodes": "2"}
    assert read(GPCNET_LOAD).inputs == {
        "program": "network_load_test",
        "nodes": "10",
        "test_nodes": "2",
        "congestor_nodes": "8",
    }


def test_gpcnet_name_that_the_table_cuts() -> None:
    """31 characters: the bracket of a size of seven digits is lost."""
    text = text_of(GPCNET_LOAD).replace("BW+Sync (131072 B)", "BW+Sync (1048576 B")
    found = figures(read(GPCNET_LOAD, text))
    assert found["random_ring_sync_bandwidth_1048576_isolated"] == (4701.2, "MiB/s")
    text = text_of(GPCNET_LOAD).replace("BW+Sync (131072 B)", "BW+Sync (10485760 ")
    assert refusal(GPCNET_LOAD, text) == NOT_PARSED


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (GPCNET_PLAIN, r"^(\| +RR Get Lat \(8 B\) \|) {10}\S+( .*)$"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat \(8 B\) \|.{14}\|) {10}\S+( .*)$"),
        (GPCNET_LOAD, r"^(\| +RR Two-sided Lat \(8 B\) \|) {7} +\d+\.\d(X .*)$"),
    ],
)
def test_gpcnet_no_finite_number(name: str, pattern: str) -> None:
    for number in NO_NUMBERS:
        with pytest.raises(ParseError):
            width = 20 if "X" in pattern else 13
            cell = f"{number:>{width}.{width}}"
            read(name, changed(text_of(name), pattern, rf"\g<1>{cell}\2"))


def test_gpcnet_table_of_a_size_of_its_own() -> None:
    first, last = text_of(GPCNET_LOAD).rsplit("(131072 B)", 1)
    assert refusal(GPCNET_LOAD, f"{first}(131073 B){last}") == NOT_PARSED


# -- IOR -------------------------------------------------------------------------------------------

IOR_TEXT = "ior/v400_mpich_posix_fpp"
IOR_OLD = "ior/v330_mpich_posix_i3"
IOR_JSON = "ior/v400_mpich_json"
IOR_OLD_JSON = "ior/v330_mpich_json_i3"
IOR_STONEWALL = "ior/v330_mpich_posix_stonewall"
IOR_REPORTED = r"bad_api|bad_sizes|data_errors\w*|no_(?:directory|space)\w*|read_(?:missing|short)"
IOR_PROGRAM = Program(
    "ior",
    failed=rf"{IOR_REPORTED}|bad_option|file_size_limit|killed|killed_json|verbose"
    r"|\w+_launcher_WRONG|posix_fpp_json_file",
    closing=r"^(?:Finished +: .*\d|})$",
    others=["mdtest/v400_mpich_files", "fio/write_end_fsync", "osu/osu_bw"],
    reported=IOR_REPORTED,
    cells=[
        (IOR_TEXT, r"^(write +)\S+( .* 0   )$"),
        (IOR_TEXT, r"^(write +\S+ +\S+ +)\S+(.*POSIX +0)$"),
        (IOR_TEXT, r"^(write +)\S+(.*POSIX +0)$"),
        (IOR_TEXT, r"^(tasks +: )\S+()$"),
        (IOR_JSON, r'("access": "write", *\n +"bwMiB": )[\d.]+(,)'),
        (IOR_JSON, r'("operation": "write"(?:.*\n)+?.*"bwMeanMIB": )[\d.]+(,)'),
        (IOR_JSON, r'("operation": "write"(?:.*\n)+?.*"numTasks": )[\d.]+(,)'),
    ],
    faults=[
        (IOR_TEXT, r"^read .* 0   \n", ""),
        (IOR_TEXT, r"^read .*POSIX.*\n", ""),
        (IOR_TEXT, r"^(read .* 0   \n)", r"\1\1"),
        (IOR_TEXT, r"^(read .*POSIX.*\n)", r"\1\1"),
        (IOR_TEXT, r"^(read .*) 0   $", r"\1 1   "),
        (IOR_TEXT, r"^(read .*POSIX +)0$", r"\g<1>0 0"),
        (IOR_TEXT, r"^(read .*POSIX) +0$", r"\1"),
        (IOR_TEXT, r"^(read .*\n)(?=\nSummary)", r"\1Abort(1) on node 1\n"),
        (IOR_TEXT, r"bw\(MiB/s\)", "bw(MB/s) "),
        (IOR_TEXT, r"Mean\(MiB\)", "Mean(MB) "),
        (IOR_TEXT, r"^(write +)438\.53( +438\.90)", r"\g<1>439.53\2"),
        (IOR_TEXT, r"^(write +\S+ +\S+ +)438\.53", r"\g<1>439.53"),
        (IOR_TEXT, r"^(write .*)0\.07297 ", r"\g<1>0.08297 "),
        (IOR_TEXT, r"^(write .*)   32\.0 ", r"\1   16.0 "),
        (IOR_TEXT, r"^(write .*)   32\.0 ", r"\1   64.0 "),
        (IOR_TEXT, r"^tasks   ", "tusks   "),
        (IOR_TEXT, r"^(tasks .*: )2", r"\g<1>4"),
        (IOR_TEXT, r"^(access +: )file-per-process", r"\1single-shared-file"),
        (IOR_TEXT, r"^(api +: )POSIX", r"\1MPIIO"),
        (IOR_TEXT, r"^(tasks .*\n)", r"\1\1"),
        (IOR_TEXT, r"^IOR-.*\n", ""),
        (IOR_TEXT, r"^Finished.*\n", ""),
        (IOR_TEXT, r"^Options.*\n", ""),
        (IOR_OLD, r"^(write .*) 1   $", r"\1 2   "),
        (IOR_OLD, r"^(read +)3605", r"\g<1>3705"),
        (IOR_STONEWALL, r"^(write .*) 531\.0 ", r"\1 1131.0 "),
        (IOR_JSON, r'"Version"', '"Vorsion"'),
        (IOR_JSON, r'^(.*"bwMeanMIB".*\n)(?=(?:.*\n)+.*"read")', ""),
        (IOR_JSON, r'("operation": )"read"', r'\1"erase"'),
        (IOR_JSON, r'("access": )"read"', r'\1"erase"'),
        (IOR_JSON, r'("access": )"read"', r'\1"write"'),
        (IOR_JSON, r'("tests": )\[', r"\1[{}, "),
        (IOR_JSON, r'"Finished"', '"Finish"'),
        (IOR_JSON, r'("keepFile": )0', r"\1false"),
        (IOR_OLD_JSON, r'("bwMaxMIB": )1727\.3702', r"\g<1>1727.3802"),
    ],
)


@pytest.mark.parametrize("name", IOR_PROGRAM.good)
def test_ior_every_mean_is_read(name: str) -> None:
    """Read without any of the parser's care."""
    summary = re.split('Summary of all tests:|"summary"', text_of(name))[1]
    if text_of(name).lstrip().startswith("{"):
        rows = re.findall(r'"operation": "(\w+)"(?:.*\n)+?.*"bwMeanMIB": (\S+),', summary)
    else:
        rows = re.findall(r"^(write|read) +\S+ +\S+ +(\S+)", summary, re.M)
    expected = {f"{name}_bandwidth": (float(mean), "MiB/s") for name, mean in rows}
    assert whole(name) == expected != {}


def test_ior_inputs() -> None:
    assert read(IOR_TEXT).inputs == {
        "api": "POSIX",
        "access": "file-per-process",
        "type": "independent",
        "ordering": "sequential",
        "file": "data/f",
        "nodes": "1",
        "tasks": "2",
        "tasks_per_node": "2",
        "transfer_size": "1048576",
        "block_size": "16777216",
        "segments": "1",
        "repetitions": "1",
        "stonewall": "0",
        "keep_file": "0",
    }
    assert read("ior/v400_mpich_posix_shared").inputs["access"] == "single-shared-file"
    assert read("ior/v400_mpich_mpiio_collective").inputs["type"] == "collective"
    assert read("ior/v400_mpich_posix_random_4k").inputs["ordering"] == "random"
    assert read("ior/v400_mpich_posix_random_4k").inputs["transfer_size"] == "4096"
    assert read(IOR_OLD).inputs["repetitions"] == read(IOR_OLD_JSON).inputs["repetitions"] == "3"
    assert list(whole("ior/v400_mpich_write_only")) == ["write_bandwidth"]
    assert list(whole("ior/v330_mpich_read_only")) == ["read_bandwidth"]


def test_ior_json_tells_the_same_inputs_as_the_text() -> None:
    assert read(IOR_JSON).inputs == read(IOR_TEXT).inputs
    assert read("ior/v330_mpich_json").inputs == read("ior/v330_mpich_posix_fpp").inputs


def test_ior_layout_of_the_json_does_not_matter() -> None:
    text = "mpiexec: a warning\n" + json.dumps(json.loads(text_of(IOR_JSON)))
    assert figures(read(IOR_JSON, text)) == whole(IOR_JSON)


@pytest.mark.parametrize("which", ["stonewall", "worn_out"])
def test_ior_stonewall_in_json(which: str) -> None:
    output = read(f"ior/v400_mpich_posix_{which}_json")
    assert output.inputs["stonewall"] == "1"
    assert [fom.metric for fom in output.foms] == ["write_bandwidth", "read_bandwidth"]


def test_ior_stonewall() -> None:
    """A stonewall leaves a smaller file: its rate is of what was moved."""
    output = read(IOR_STONEWALL)
    assert output.inputs["stonewall"] == "1"
    assert figures(output)["write_bandwidth"] == (529.00, "MiB/s")
    text = text_of(IOR_STONEWALL).replace("stonewallingTime    : 1\n", "")
    assert refusal(IOR_STONEWALL, text) == NOT_PARSED


IOR_WARNING = "WARNING: unable to statfs() file system.\n"


def test_ior_warnings_in_the_middle() -> None:
    for name, before in ((IOR_TEXT, r"^(api )"), (IOR_JSON, r'^( +"Options")')):
        text = changed(text_of(name), before, rf"{IOR_WARNING}\1")
        assert figures(read(name, text)) == whole(name)
        for line in ("WARNING: write(7, 0x1, 8) failed No space", "ior ERROR: cannot open file"):
            text = changed(text_of(name), before, rf"{line}\n\1")
            assert refusal(name, text) == PROGRAM_ERROR


# -- mdtest ----------------------------------------------------------------------------------------

MDTEST_FILES = "mdtest/v400_mpich_files"
MDTEST_BOTH = "mdtest/v400_mpich_files_and_dirs"
MDTEST_OLD = "mdtest/v330_openmpi_files_i3"
MDTEST_TIMES = "mdtest/v400_openmpi_P"
MDTEST_PROGRAM = Program(
    "mdtest",
    failed="bad_option|help|killed|stonewall|verbose|no_directory|no_space|not_writable"
    r"|(?:read|stat|remove)_missing|\w+_launcher_WRONG",
    closing=r"^-- finished at .*",
    others=["ior/v400_mpich_posix_fpp", "osu/osu_bw"],
    reported=r"no_\w+|not_writable|(?:remove|stat)_missing|(?:v330_mpich|openmpi)_read_missing"
    r"|v330_openmpi_mpich_launcher_WRONG|v400_\w+_WRONG",
    cells=[
        (MDTEST_FILES, r"^(   File creation +\S+ +\S+ +)\S+(.*)$"),
        (MDTEST_FILES, r"^(   Tree removal +)\S+(.*)$"),
        (MDTEST_OLD, r"^(   File stat +: +\S+ +\S+ +)\S+(.*)$"),
        (MDTEST_FILES, r"(launched with )\d+( total)"),
    ],
    faults=[
        (MDTEST_FILES, r"^   File stat .*\n", ""),
        (MDTEST_FILES, r"^(   File stat .*\n)", r"\1\1"),
        (MDTEST_FILES, r"^(   File stat .*)$", r"\1 1.000"),
        (MDTEST_FILES, r"^(   File stat .*) \S+$", r"\1"),
        (MDTEST_FILES, r"^   File stat ", "   File unlink"),
        (MDTEST_FILES, r"^(   File stat .*\n)", r"\1Abort(1)\n"),
        (MDTEST_FILES, r"^(   File stat .*\n)", r"\1\n"),
        (MDTEST_FILES, r"Mean", "Median"),
        (MDTEST_FILES, r"^   -----.*\n", ""),
        (MDTEST_FILES, r"^SUMMARY rate", "SUMMARY time"),
        (MDTEST_FILES, r"^SUMMARY.*$", "SUMMARY"),
        (MDTEST_FILES, r"^(   File stat +\S+ +\S+ +)\S+", r"\g<1>1.000"),
        (MDTEST_FILES, r"^(   File stat +\S+ +\S+ +)\S+", r"\g<1>900000.000"),
        (MDTEST_FILES, r"^2 tasks", "1 tasks"),
        (MDTEST_FILES, r"^(2 tasks.*\n)", r"\1\1"),
        (MDTEST_FILES, r"^mdtest-.*\n", ""),
        (MDTEST_FILES, r"^-- started.*\n", ""),
        (MDTEST_FILES, r"^-- finished.*\n", ""),
        (MDTEST_FILES, r"(-- finished.*\n)", r"\1SUMMARY rate: (of 1 iterations)\n"),
        (MDTEST_FILES, r"'data/t'$", "'data/t"),
        (MDTEST_FILES, r"^(2 tasks.*\n)", r"\1WARNING: unable to create file x\n", PROGRAM_ERROR),
        (MDTEST_FILES, r"^(2 tasks.*\n)", r"\1ior ERROR: write failed\n", PROGRAM_ERROR),
        (
            MDTEST_FILES,
            r"^(-- finished)",
            r"\nERROR: verifying the data read! Take the performance values with care!\n\1",
            PROGRAM_ERROR,
        ),
        (MDTEST_TIMES, r"^SUMMARY time: \(of 1", "SUMMARY time: (of 3"),
        (MDTEST_TIMES, r"^SUMMARY time", "SUMMARY rate"),
        (MDTEST_TIMES, "20 files", "30 files"),
        (MDTEST_FILES, r"\(of 1 iterations", "(of 0 iterations"),
        (MDTEST_BOTH, r"^   Directory stat .*\n", ""),
    ],
)


@pytest.mark.parametrize("name", MDTEST_PROGRAM.good)
def test_mdtest_every_mean_is_read(name: str) -> None:
    """Row by row, read without the parser's checks; zero is a phase that did not run."""
    table = text_of(name).split("SUMMARY rate")[1].split("SUMMARY time")[0]
    expected = {}
    for phase, mean in re.findall(r"^   (\w+ \w+) *:? +\S+ +\S+ +(\S+) +\S+$", table, re.M):
        if float(mean):
            expected[f"{phase.lower().replace(' ', '_')}_rate"] = (float(mean), "operation/s")
    assert whole(name) == expected != {}


def test_mdtest_inputs() -> None:
    assert read(MDTEST_FILES).inputs == {
        "nodes": "1",
        "items_per_task": "10",
        "write_bytes": "32768",
        "read_bytes": "32768",
        "unique_dir": "1",
        "files_only": "1",
        "path": "data/t",
        "items": "20",
        "items_are": "files",
        "shift": "0",
        "iterations": "1",
    }
    for name in ("v330_mpich_shift", "v400_openmpi_shift"):
        assert read(f"mdtest/{name}").inputs["shift"] == "1"
    assert read(MDTEST_BOTH).inputs["write_bytes"] == "0"
    assert read("mdtest/v400_mpich_files_i3").inputs["iterations"] == "3"


@pytest.mark.parametrize("name", ["mdtest/v330_mpich_P", MDTEST_TIMES])
def test_mdtest_rates_agree_with_times_however_they_are_rounded(name: str) -> None:
    """Runs as ``summarize_results`` of the two versions sums them up: 3.3.0 over tasks and
    iterations, 4.0.0 over iterations."""
    rng = random.Random(f"20261121 {name}")
    for _ in range(200):
        iterations, tasks = rng.randint(1, 4), 2 if "v330" in name else 1
        items, folders = 2 * rng.choice([1, 11, 4096, 10**6]), rng.randint(1, 9)
        text = changed(text_of(name), "20 files", f"{items} files")
        rates, times = text.replace("(of 1 ", f"(of {iterations} ").split("SUMMARY time")
        for phase in mdtest.ROWS[2]:
            done = folders if phase.startswith("Tree") else items
            usual = 10 ** rng.uniform(-4, 3)
            took = [usual * rng.uniform(1, 2) for _ in range(iterations * tasks)]
            line = re.compile(rf"^(   {phase} *:?).*$", re.M)
            rates = line.sub(mdtest_row([done / seconds for seconds in took]), rates)
            times = line.sub(mdtest_row(took), times)
        assert len(read(name, f"{rates}SUMMARY time{times}").foms) == 6


def mdtest_row(values: list[float]) -> str:
    cells = (max(values), min(values), statistics.fmean(values), statistics.pstdev(values))
    return r"\1" + "".join(f" {cell:14.3f}" for cell in cells)


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        # 20 files in half a second are 40 a second, and not thousands.
        ("File creation +0", "0.500 0.500 0.500"),
        ("File creation +1", "16507.160 16507.160 16507.160"),
        ("File creation +1", "165.071 165.071 165.071"),
        ("File creation +1", "1650.716 0.000 1650.716"),
        # A tree has one directory or more.
        ("Tree creation +3", "10.000 10.000 10.000"),
    ],
)
def test_mdtest_rates_that_do_not_agree_with_their_times(row: str, numbers: str) -> None:
    phase = row.partition(" +")[0]
    text = changed(text_of(MDTEST_TIMES), rf"^   {row}\S+ +\S+ +\S+", f"   {phase} {numbers}")
    with pytest.raises(ParseError, match=phase):
        read(MDTEST_TIMES, text)


def test_mdtest_files_that_are_not_counted_have_no_time_to_agree_with() -> None:
    """With -S mdtest reports "1 file"; with -n and -I it counts anew in each iteration."""
    assert len(read(MDTEST_TIMES, changed(text_of(MDTEST_TIMES), "20 files", "1 file")).foms) == 6
    other = changed(text_of(MDTEST_TIMES), "20 files", "60 files")
    assert len(read(MDTEST_TIMES, changed(other, "'-n' '10'", "'-n' '10' '-I' '3'")).foms) == 6


def test_mdtest_title_of_main() -> None:
    text = changed(text_of(MDTEST_FILES), "SUMMARY rate:", "SUMMARY rate (in ops/sec):")
    assert figures(read(MDTEST_FILES, text)) == whole(MDTEST_FILES)


@pytest.mark.parametrize("name", [name for name in MDTEST_PROGRAM.good if "v330" in name])
def test_mdtest_old_version_prints_colons(name: str) -> None:
    assert read(name).version == "3.3.0"
    assert " : " in text_of(name)


# -- OSU Micro-Benchmarks --------------------------------------------------------------------------

OSU_LATENCY = "osu/v74_mpich_latency_full"
OSU_FULL = "osu/v74_mpich_allreduce_f"
OSU_OVERLAP = "osu/v74_mpich_iallreduce"
OSU_RATE = "osu/v74_mpich_mbw_mr"
OSU_CHECKED = "osu/v74_mpich_allreduce_c"
OSU_TAIL = "osu/v74_mpich_allreduce_z"
OSU_PROGRAM = Program(
    "osu",
    failed="osu_latency_1rank|one_process|three_processes|missing_program|bad_option|m_unknown|help"
    "|latency_f|latency_G|put_latency_c|neighbor_alltoall|bw_fan_in|bw_fan_out"
    # 5.3's osu_init prints neither title nor unit.
    r"|v53_\w+_(?:init|bad_value)|v74_\w+_bad_value|v53_openmpi_cas_latency"
    # Every rank that a foreign launcher starts is a world of its own.
    "|(?:mpich|openmpi)_launcher_WRONG"
    "|hello|latency_mt|mbw_mr_v|types_all|v74_mpich_graph_tty|v74_openmpi_allreduce_c"
    "|cuda_(?:no_device|no_driver|no_memory|not_built|rocm|no_copy)|mpich_killed_rank"
    "|nccl_(?:allreduce_c|latency_c|bw_version|error_comm|error_table|no_device|no_memory"
    "|one_gpu_refused)",
    closing=None,
    others=["gpcnet/network_test_2fakenodes_2ranks", "imb/pingpong"],
    reported="v74_openmpi_allreduce_c",
    cells=[
        (OSU_LATENCY, r"^(1024 +)\S+()$"),
        ("osu/v74_mpich_bw", r"^(16 +)\S+()$"),
        (OSU_FULL, r"^(16 +)\S+(.*)$"),
        (OSU_FULL, r"^(16 +\S+ +)\S+(.*)$"),
        (OSU_FULL, r"^(16 +\S+ +\S+ +)\S+(.*)$"),
        (OSU_FULL, r"^(16 +\S+ +\S+ +\S+ +)\S+()$"),
        (OSU_OVERLAP, r"^(16 +)\S+(.*)$"),
        (OSU_OVERLAP, r"^(16 .* )\S+()$"),
        (OSU_RATE, r"^(16 +)\S+(.*)$"),
        (OSU_RATE, r"^(16 .* )\S+()$"),
        ("osu/v74_mpich_barrier", r"^( +)\S+()$"),
        ("osu/v74_mpich_init", r"^(.*avg: )\d+( ms)$"),
    ],
    faults=[
        (OSU_LATENCY, r"^1024 .*\n", ""),
        (OSU_LATENCY, r"^1024( .*)\n", r"1024\1\n1024\1\n"),
        (OSU_LATENCY, r"^1024 ", "512  "),
        (OSU_LATENCY, r"^1024 ", "1024.0 "),
        (OSU_LATENCY, r"^(1024 .*)$", r"\1 1.00"),
        (OSU_LATENCY, r"^(1024) .*$", r"\1"),
        (OSU_LATENCY, r"^(1024 .*)\n", r"\1"),
        (OSU_LATENCY, r"^(1024 +\d+\.\d)\d$", r"\1"),
        (OSU_LATENCY, r"^(1024 .*)\n", r"\1\n\n"),
        (OSU_LATENCY, r"Latency\(us\)", "Latency(ms)"),
        (OSU_LATENCY, r"^# Size.*\n", ""),
        (OSU_LATENCY, r"^(# Size)(.*)$", r"\1\2\2"),
        (OSU_LATENCY, r"Avg Latency\(us\)", "Avg Latency(us)  Overlap(%)"),
        (OSU_LATENCY, r"^# Datatype.*\n", r"\g<0>\g<0>"),
        (OSU_LATENCY, r"^(# OSU.*\n)", r"\1mpirun: a warning\n"),
        (OSU_LATENCY, r"Latency Test", "Letency Test"),
        (OSU_LATENCY, r" v7.4", ""),
        (OSU_LATENCY, r"^# OSU MPI Latency", "# OSU MPI Barrier Latency"),
        ("osu/v74_mpich_barrier", r"Barrier Latency", "Allreduce Latency"),
        ("osu/v74_mpich_barrier", r"^( +\d.*\n)", r"\1\1"),
        (OSU_FULL, r"^(16 +)\S+", r"\g<1>99.00"),
        (OSU_FULL, r"^(16 +)\S+", r"\g<1>0.00"),
        (OSU_OVERLAP, r"^(16 .* )\S+$", r"\g<1>100.01"),
        (OSU_RATE, r"^(16 +)\S+", r"\g<1>272.40"),
        (OSU_TAIL, r"^(16 .* )0\.58( +0\.72 +1\.00)$", r"\g<1>0.73\2"),
        (OSU_TAIL, r"^(16 .* 0\.72 +)1\.00$", r"\g<1>0.71"),
        (OSU_CHECKED, r"^(16 .* )Pass$", r"\g<1>Fail", PROGRAM_ERROR),
        (OSU_CHECKED, r"^(16 .* )Pass$", r"\g<1>Psas", PROGRAM_ERROR),
        ("osu/v74_mpich_init", r"avg: \d+", "avg: 5"),
        ("osu/v74_mpich_init", r"avg: (\d+) ms", r"avg: \1 s"),
    ],
)


#: Column by its start -> end of the metric.
OSU_ENDINGS = {
    "Latency": "latency",
    "Avg": "latency",
    "Min L": "latency_min",
    "Max L": "latency_max",
    "Bandwidth": "bandwidth",
    "MB/s": "bandwidth",
    "Messages": "message_rate",
    "Overall": "latency",
    "Compute": "compute",
    "Pure": "pure_latency",
    "Overlap": "overlap",
}


@pytest.mark.parametrize("name", [name for name in OSU_PROGRAM.good if "init" not in name])
def test_osu_every_cell_is_read(name: str) -> None:
    """Cell by cell, read without the parser's checks."""
    lines = [line for line in text_of(name).splitlines() if line.strip()]
    head = next(n for n, line in enumerate(lines) if re.search(r"# Size|\(us\)\s+\S|\(us\)$", line))
    text = lines[head].replace("# Size", "Size").strip("# ")
    columns = re.split(r"\s{2,}| (?=P\d+ Tail BW)", text)
    expected = []
    for line in lines[head + 1 :]:
        if line == "# Datatype: MPI_CHAR.":
            continue
        if line.startswith("--"):
            break
        cells = dict(zip(columns, line.split(), strict=True))
        for column, cell in cells.items():
            for start, ending in OSU_ENDINGS.items():
                if column.startswith(start):
                    expected.append((ending, cells.get("Size"), float(cell)))
    foms = read(name).foms
    assert len(foms) == len(expected) > 0
    for fom, (ending, size, value) in zip(foms, expected, strict=True):
        assert fom.metric.endswith(ending)
        assert (fom.size, fom.value) == (None if size is None else int(size), value)


#: Capture -> some of its figures, each with its unit.
OSU_FIGURES = {
    "osu/osu_latency": "latency_1 us",
    "osu/osu_bw": "bandwidth_65536 MB/s",
    "osu/osu_bibw": "bibandwidth_2097152 MB/s",
    "osu/osu_barrier": "barrier_latency us",
    "osu/osu_mbw_mr": "multi_bandwidth_8 MB/s, message_rate_8 message/s",
    "osu/osu_allreduce_f": "allreduce_latency_8 us, allreduce_latency_min_8 us",
    OSU_OVERLAP: "iallreduce_latency_16 us, iallreduce_compute_16 us, "
    "iallreduce_pure_latency_16 us, iallreduce_overlap_16 percent",
    "osu/v71_bibw": "bibandwidth_4194304 MB/s",
    "osu/v71_mbw_mr": "multi_bandwidth_1 MB/s, message_rate_1 message/s",
    "osu/v71_multi_lat": "multi_latency_1 us",
    "osu/v74_mpich_multi_lat": "multi_latency_16 us",
    "osu/v74_openmpi_mbw_mr_z": "multi_bandwidth_4 MB/s, message_rate_64 message/s",
    "osu/v74_openmpi_put_bw_z": "put_bandwidth_4 MB/s",
    "osu/v74_mpich_put_bibw": "put_bibandwidth_8 MB/s",
    "osu/v74_mpich_get_latency": "get_latency_64 us",
    "osu/v74_mpich_fop_latency": "fop_latency_1 us",
    "osu/v53_mpich_put_latency": "put_latency_0 us",
    "osu/v53_mpich_ibarrier": "ibarrier_latency us, ibarrier_overlap percent",
}


@pytest.mark.parametrize("name", OSU_FIGURES)
def test_osu_names_and_units(name: str) -> None:
    found = {f"{variable} {unit}" for variable, (_, unit) in whole(name).items()}
    assert {*OSU_FIGURES[name].split(", ")} <= found


def test_osu_init() -> None:
    assert whole("osu/osu_init") == {
        "init_time": (236.0, "ms"),
        "init_time_min": (235.0, "ms"),
        "init_time_max": (237.0, "ms"),
    }


def test_osu_inputs() -> None:
    assert read("osu/osu_mbw_mr").inputs == {
        "program": "osu_mbw_mr",
        "accelerator": "none",
        "buffer": "host",
        "pairs": "1",
        "window_size": "64",
        "datatype": "MPI_CHAR",
        "validation": "off",
    }
    inputs = read("osu/v53_mpich_put_latency").inputs
    assert inputs["window_creation"] == "MPI_Win_allocate"
    assert inputs["synchronization"] == "MPI_Win_flush"
    assert read(OSU_CHECKED).inputs["validation"] == "pass"


@pytest.mark.parametrize(
    ("tag", "line", "accelerator", "buffer"),
    [
        ("-CUDA", "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)", "cuda", "device"),
        (
            "-CUDA",
            "# Rank 0 Memory on HOST (H) and Rank 1 Memory on DEVICE (D)",
            "cuda",
            "host-device",
        ),
        ("-ROCM", "", "rocm", None),
        ("-CUDA MANAGED", "", "cuda managed", None),
    ],
)
def test_osu_buffers(tag: str, line: str, accelerator: str, buffer: str | None) -> None:
    text = changed(text_of(OSU_LATENCY), "OSU MPI Latency", f"OSU MPI{tag} Latency")
    text = changed(text, r"^(# Size)", rf"{line}\n\1")
    output = read(OSU_LATENCY, text)
    assert output.inputs["accelerator"] == accelerator
    assert output.inputs.get("buffer") == buffer
    assert figures(output) == whole(OSU_LATENCY)


@pytest.mark.parametrize("program", ["latency", "bw", "bibw", "put_latency", "allreduce"])
def test_osu_device_buffers_of_a_cuda_build(program: str) -> None:
    output = read(f"osu/v74_cuda_{program}")
    assert (output.inputs["program"], output.inputs["accelerator"]) == (f"osu_{program}", "cuda")
    # 7.4 says where the buffers were for one-sided programs alone.
    assert output.inputs.get("buffer") == ("device" if program == "put_latency" else None)


@pytest.mark.parametrize("name", ["latency_HH", "latency_plain", "latency_HD", "latency_MD"])
def test_osu_a_title_of_cuda_does_not_say_where_the_buffers_were(name: str) -> None:
    inputs = read(f"osu/v74_cuda_{name}").inputs
    assert inputs["accelerator"] == "cuda"
    assert "buffer" not in inputs


XCCL_COLLECTIVES = ["allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter"]


@pytest.mark.parametrize("program", XCCL_COLLECTIVES)
def test_osu_collectives_over_nccl(program: str) -> None:
    output = read(f"osu/v74_nccl_{program}")
    assert (output.tasks, output.version) == (2, "7.4")
    assert output.inputs["program"] == f"osu_xccl_{program}"
    assert output.inputs["accelerator"] == "cuda"
    assert {fom.metric for fom in output.foms} == {f"xccl_{program}_latency"}


def test_osu_pairs_over_nccl_print_no_title() -> None:
    latency = read("osu/v74_nccl_latency")
    expected = {"accelerator": "cuda", "buffer": "device", "validation": "off"}
    assert latency.inputs == expected | {"program": "osu_xccl_latency"}
    assert (latency.tasks, latency.version) == (2, "")
    assert figures(latency)["xccl_latency_8"] == (2548.50, "us")
    # Without a smallest size, the first message is empty.
    assert read("osu/v74_nccl_latency_plain").foms[0].size == 0
    for program in ("bw", "bibw"):
        output = read(f"osu/v74_nccl_{program}")
        assert output.inputs == expected
        assert {fom.metric for fom in output.foms} == {"xccl_bandwidth"}


@pytest.mark.parametrize("program", ["latency", "bw", "allreduce", "alltoall"])
def test_osu_over_rccl(program: str) -> None:
    output = read(f"osu/v74_rccl_{program}")
    assert output.inputs["accelerator"] == "rocm"
    assert {fom.metric.partition("_")[0] for fom in output.foms} == {"xccl"}


@pytest.mark.parametrize(("tasks", "latency"), [(8, 8955.18), (16, 13482.19)])
def test_osu_collective_of_real_gpus(tasks: int, latency: float) -> None:
    output = read(f"osu/v75_nccl_allreduce_{tasks}gpus")
    assert (output.tasks, output.version) == (tasks, "7.5")
    assert figures(output) == {"xccl_allreduce_latency_1073741824": (latency, "us")}


@pytest.mark.parametrize("name", ["allreduce", "latency"])
def test_osu_version_of_nccl(name: str) -> None:
    assert read(f"osu/v74_nccl_{name}_version").tasks == 2


@pytest.mark.parametrize("name", ["osu/v74_nccl_allreduce", "osu/v74_nccl_bw"])
def test_osu_lines_of_ranks_may_come_late(name: str) -> None:
    """A launcher passes on what the ranks print in any order."""
    text = text_of(name)
    late = text.removeprefix("#Using NCCL\n") + "#Using NCCL\n"
    assert read(name, late) == read(name)
    assert refusal(name, "#Using RCCL\n" + text) == NOT_PARSED
    # With NCCL_DEBUG, NCCL prints an error between the lines: before 2.30 the first one.
    for said in ("Duplicate GPU detected", "Multiple Ranks are using the same GPU/Partition."):
        warning = f"n1:12:34 [0] init.cc:1234 NCCL WARN {said}\n"
        assert refusal(name, changed(text, r"^(# Size.*\n)", rf"\1{warning}")) == NOT_PARSED


def test_osu_a_run_that_was_killed_has_fewer_sizes() -> None:
    """Nothing in its text says so: the check misses the figures that it declared."""
    found = read("osu/v74_mpich_killed")
    assert [fom.size for fom in found.foms] == [2**k for k in range(10)]


def test_osu_percentiles_stand_in_the_order_that_was_asked_for() -> None:
    """``-z99,90,50``: from right to left they rise."""
    rows = r"^(\d.* )(\S+)( +\S+ +)(\S+)$"
    text = re.sub(rows, r"\1\4\3\2", text_of(OSU_TAIL), flags=re.M)
    assert refusal(OSU_TAIL, text) == NOT_PARSED
    text = changed(text, r"P50( Tail.*)P99( Tail)", r"P99\1P50\2")
    assert figures(read(OSU_TAIL, text)) == whole(OSU_TAIL)


def test_osu_percentiles_of_bandwidths() -> None:
    """Their names leave one blank between the columns."""
    name = "osu/v74_openmpi_bw_zc"
    assert read(name).inputs["validation"] == "pass"
    text = text_of(name)
    assert refusal(name, changed(text, "P5 Tail BW", "P5 Tail Lat")) == NOT_PARSED
    assert refusal(name, changed(text, "P5( Tail.*)", r"P100\1")) == NOT_PARSED


@pytest.mark.parametrize(
    ("name", "datatype", "rows"),
    [("bw_cb", "MPI_CHAR", 17), ("mbw_mr_cb", "MPI_CHAR", 34), ("iallreduce_c", "MPI_INT", 44)],
)
def test_osu_7_2_as_the_checks_validate(name: str, datatype: str, rows: int) -> None:
    output = read(f"osu/v72_mpich_{name}")
    assert (output.version, len(output.foms)) == ("7.2", rows)
    assert (output.inputs["validation"], output.inputs["datatype"]) == ("pass", datatype)


def test_osu_the_datatype_below_the_header() -> None:
    """7.1 to 7.3 print it there in tests between two tasks."""
    output = read("osu/v71_mbw_mr")
    assert output.version == "7.1"
    assert output.inputs == {
        "program": "osu_mbw_mr",
        "accelerator": "none",
        "buffer": "host",
        "pairs": "1024",
        "window_size": "64",
        "datatype": "MPI_CHAR",
        "validation": "off",
    }
    name, line = "osu/v71_bibw", "# Datatype: MPI_CHAR.\n"
    text = text_of(name)
    assert refusal(name, text.replace(line, 2 * line)) == NOT_PARSED
    assert refusal(name, changed(text, r"^(# OSU.*\n)", rf"\1{line}")) == NOT_PARSED
    # Only osu_mbw_mr prints its title twice.
    assert refusal(name, changed(text, r"^(# OSU.*\n)", r"\1\1")) == NOT_PARSED
    text = changed(text, "MPI Bi", "MPI-CUDA Bi")
    buffers = "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n"
    output = read(name, changed(text, r"^(# Size)", rf"{buffers}\1"))
    assert (output.inputs["buffer"], output.inputs["datatype"]) == ("device", "MPI_CHAR")
    assert figures(output) == whole(name)


def test_osu_titles_are_those_of_programs() -> None:
    assert len({program for program, _ in osu.TITLES.values()}) == len(osu.TITLES) - 1
    assert all(program.startswith("osu_") for program, _ in osu.TITLES.values())


def refusal_of_errors(benchmark: str, text: str) -> str | None:
    """The reason code with which what a program wrote on standard error is refused."""
    try:
        parse.check_stderr(benchmark, text)
    except ParseError as err:
        return err.code
    return None


@pytest.mark.parametrize("where", ["", "from right: "])
def test_hpcc_goes_on_after_wrong_bytes(where: str) -> None:
    """With `Success=1`; the first rank says so in the report, the others on standard error."""
    line = f"[1]: ERROR: {where}expected 3 and 4 as first and last byte, but got 3 and 0 instead\n"
    text = changed(text_of(HPCC), r"^(Begin of Summary section\.)$", rf"{line}\1")
    assert refusal("hpcc", text) == "output.program-error"
    assert refusal_of_errors("hpcc", line) == "output.program-error"


@pytest.mark.parametrize(
    "line",
    [
        "fio: pid=23581, got signal=9",
        "fio: pid=23581 disappeared 10",
        "fio: job 'plumbline' (state=5) hasn't exited in 300 seconds, it appears to be stuck. "
        "Doing forceful exit of this job.",
    ],
)
def test_fio_goes_on_without_a_job(line: str) -> None:
    """It prints the report of what was moved, and exits with 0."""
    assert refusal_of_errors("fio", f"{line}\n") == PROGRAM_ERROR
    assert refusal_of_errors("fio", "fio: file hash not empty on exit\n") is None


def test_osu_without_a_local_rank_every_process_takes_the_first_gpu() -> None:
    """What ``omb_get_local_rank()`` of 7.4 writes on standard error; the program exits 0."""
    report = "plumbline-task 0 node1 0-1 0 - - 0 -\n"
    warning = (
        "Warning: OMB could not identify the local rank of the process.\n"
        "         This can lead to multiple processes using the same GPU.\n"
        "         Please use the get_local_rank script in the OMB repo for this.\n"
    )
    assert refusal_of_errors("osu", report + warning) == PROGRAM_ERROR
    assert refusal_of_errors("osu", report) is None


# -- all programs ----------------------------------------------------------------------------------

PROGRAMS = [BABEL_PROGRAM, COMM_PROGRAM, FIO_PROGRAM, GPCNET_PROGRAM, HPCC_PROGRAM, IMB_PROGRAM]
PROGRAMS += [IOR_PROGRAM, MDTEST_PROGRAM, OSU_PROGRAM]
STRICT = {program.name: program.strict for program in PROGRAMS}
GOOD = [pytest.param(program, name, id=name) for program in PROGRAMS for name in program.good]
FACTORS = {"UP": 1.05, "DOWN": 0.95, "BINARY": 1 / 1.048576, "HALF": 0.5}


def test_every_parser_has_a_table() -> None:
    assert [program.name for program in PROGRAMS] == [*parse.BENCHMARKS]


@pytest.mark.parametrize(
    ("name", "tasks", "version"),
    [
        (FIO, None, "fio-3.33"),
        (HPCC, 2, "1.5.0"),
        (BABEL_OLD, None, "5.0"),
        (BABEL_CSV, None, ""),
        (COMM_REPORT, None, ""),
        ("commscope/v0120_memcpy_json_stdout", None, "0.12.0"),
        (GPCNET_PLAIN, 2, "1.3"),
        (GPCNET_LOAD, 10, "1.3"),
        (IOR_TEXT, 2, "4.0.0"),
        (IOR_OLD_JSON, 2, "3.3.0"),
        ("ior/v400_mpich_one_process", 1, "4.0.0"),
        (MDTEST_FILES, 2, "4.0.0"),
        ("osu/osu_init", 2, "7.4"),
        ("osu/osu_mbw_mr", None, "7.4"),
        ("osu/v53_mpich_put_latency", None, "5.3"),
        (IMB, 2, "2021.11"),
        ("imb/v2019_update6_pingpong", 2, "2019 Update 6"),
        # Valid: the check refuses a run of one task.
        ("imb/one_process", 1, "2021.11"),
    ],
)
def test_tasks_and_version(name: str, tasks: int | None, version: str) -> None:
    output = parse.parse_file(name.partition("/")[0], path_of(name))
    assert (output.tasks, output.version) == (tasks, version)


FAILED = [
    pytest.param(name, PROGRAM_ERROR if ends(name, program.reported) else NOT_PARSED, id=name)
    for program in PROGRAMS
    for name in names_of(program.name)
    if ends(name, program.failed) and path_of(name).exists()
]


@pytest.mark.holds("outputs")
@pytest.mark.parametrize(("name", "code"), FAILED)
def test_failed_run_is_refused(name: str, code: str) -> None:
    assert refusal(name) == code


@pytest.mark.parametrize(("program", "name"), GOOD)
def test_every_figure_is_registered(program: Program, name: str) -> None:
    """In a unit that the printed one can be converted to."""
    # The checks run only some of the benchmarks of IMB.
    for fom in read(name).foms if program.name != "imb" else ():
        assert factor(fom.unit, FOMS[program.name][fom.metric].unit) > 0, fom


@pytest.mark.parametrize(("program", "name"), GOOD)
def test_a_line_of_aprun(program: Program, name: str) -> None:
    """It closes the output of every program that ends without an error."""
    assert read(name, f"{text_of(name)}{launch_mpi.USAGE}\n") == read(name)


@pytest.mark.parametrize(("program", "name"), GOOD)
def test_damaged_lines(program: Program, name: str) -> None:
    if program.closing is None:
        truncate_open(name)
    # A table of comma-separated values ends without a mark.
    elif program.name != "babelstream" or "csv" not in name:
        truncate(name, program.closing)
    counts: Counter[str] = Counter()
    for number, (kind, lines) in enumerate(damaged_lines(name)):
        counts[kind] += refused(name, "".join(lines), f"{kind} at line {number // 4 + 1}")
    assert counts["doubled"] and counts["missing"]


@pytest.mark.parametrize(("program", "name"), GOOD)
def test_two_runs_in_one_file(program: Program, name: str) -> None:
    text, second = text_of(name), text_of(next(one for one in program.good if one != name))
    for both in (text + text, text + second, second + text):
        with pytest.raises(ParseError):
            read(name, both)
    half = text[: text.rindex("\n", 0, -1) * 2 // 3]
    for both in (half + "\n" + text, text + half):
        refused(name, both, "a half beside a whole")


@pytest.mark.parametrize(
    ("name", "pattern"), [cell for program in PROGRAMS for cell in program.cells]
)
def test_no_finite_number(name: str, pattern: str) -> None:
    no_number(name, pattern)


@pytest.mark.parametrize("fault", [fault for program in PROGRAMS for fault in program.faults])
def test_fault_is_refused(fault: tuple[str, ...]) -> None:
    name, pattern, replacement, *code = fault
    text = text_of(name)
    if replacement in FACTORS:
        number = re.search(pattern, text, re.M)[2]
        decimals = 2 if "." in number else 0
        replacement = rf"\g<1>{float(number) * FACTORS[replacement]:.{decimals}f}"
    assert [refusal(name, changed(text, pattern, replacement))] == (code or [NOT_PARSED])


@pytest.mark.parametrize(
    ("program", "other"), [(program, other) for program in PROGRAMS for other in program.others]
)
def test_other_program(program: Program, other: str) -> None:
    assert refusal(other, benchmark=program.name) == NOT_PARSED


def test_captures_name_no_path_of_a_machine() -> None:
    for path in CAPTURES.glob("*/*"):
        # IOR 3.3.0 prints memory that was never set behind an unknown option.
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"/(home|opt|root|scratch|tmp|work)\b", text), path
        assert len(text) < 30_000, path
        if path.suffix == ".out":
            assert path.with_suffix(".cmd").is_file(), path


def last_line(name: str) -> int:
    """Where the last line of a capture begins."""
    closing = next(p.closing for p in PROGRAMS if p.name == name.partition("/")[0])
    return list(re.finditer(closing, text_of(name), re.M))[-1].start()


@pytest.mark.parametrize("name", ["fio/write_end_fsync", "imb/barrier", "imb/pingpong"])
def test_truncated_at_every_character(name: str) -> None:
    text = text_of(name)
    for length in range(last_line(name) + 1):
        with pytest.raises(ParseError):
            read(name, text[:length])


# -- what all parsers share ------------------------------------------------------------------------


@pytest.mark.parametrize("benchmark", parse.BENCHMARKS)
@pytest.mark.parametrize("text", ["", "\n", "Killed\n", "{", "{}", "[]", "[[", "null", "1", "\0"])
def test_no_report(benchmark: str, text: str) -> None:
    with pytest.raises(ParseError):
        parse.parse(benchmark, text)


@pytest.mark.parametrize("benchmark", ["fio", "ior", "commscope"])
def test_deep_nesting_is_refused(benchmark: str) -> None:
    assert refusal(benchmark, '{"tests" : ' + "[" * 100_000) == NOT_PARSED


@pytest.mark.parametrize("benchmark", parse.BENCHMARKS)
def test_bytes_that_are_no_text(benchmark: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.out"
    capture = next(path for path in sorted((CAPTURES / benchmark).glob("*.out")))
    path.write_bytes(capture.read_bytes() + b"\xff\n")
    with pytest.raises(ParseError, match="0xff"):
        parse.parse_file(benchmark, path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        parse.parse_file("imb", tmp_path / "missing.out")


def test_no_parser() -> None:
    with pytest.raises(KeyError):
        parse.parse("linpack", "")


@pytest.mark.parametrize(
    ("foms", "name"),
    [
        ((), "."),
        ((Fom("a", 1.0, "us"), Fom("a", 2.0, "us")), "^a "),
        ((Fom("a", 1.0, "us", 8), Fom("a", 1.0, "us", 8)), "^a_8 "),
        ((Fom("a", 1.0, "us", 8, "x"), Fom("a", 1.0, "us", 8, "x")), "^a_8_x "),
    ],
)
def test_figures_are_there_once(foms: tuple, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plumbline.parse.imb.parse", lambda text: Output(foms, 2, "1"))
    with pytest.raises(ParseError, match=name):
        parse.parse("imb", "")


def test_a_failed_validation_may_stand_on_standard_error_alone() -> None:
    failed = (CAPTURES / "babelstream" / "v50_omp_float.err").read_text()
    assert refusal_of_errors("babelstream", failed) == PROGRAM_ERROR
    assert refusal_of_errors("babelstream", "plumbline-task 0 node1 0-1 0 - -\n") is None
    assert refusal_of_errors("osu", failed) is None


def test_variable() -> None:
    assert Figure("hpl").variable == Fom("hpl", 1.0, "Tflop/s").variable == "hpl"
    assert Figure("pingpong_latency", 0).variable == "pingpong_latency_0"
    assert Fom("pingpong_latency", 1.0, "us", 8).variable == "pingpong_latency_8"
    pair = Fom("latency", 1.0, "us", 8, "gpu0-gpu1")
    assert pair.figure == Figure("latency", 8, "gpu0-gpu1")
    assert pair.variable == "latency_8_gpu0-gpu1"
    assert (
        Figure("random_ring_latency", location="congested").variable
        == "random_ring_latency_congested"
    )


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


@pytest.mark.parametrize("letters", ["", "aa"])
def test_single(letters: str) -> None:
    assert parse.single(iter("a"), "letter") == "a"
    with pytest.raises(ParseError) as refusal:
        parse.single(letters, "letter")
    assert refusal.value.times == len(letters)


def test_fio_is_read_as_json() -> None:
    """The layout of the JSON does not matter."""
    text = json.dumps(json.loads(text_of(FIO)))
    assert figures(read(FIO, text)) == whole(FIO)


@pytest.mark.parametrize("inputs", [{}, {"nodes": "4"}, {"tasks": "2"}])
def test_an_input_that_differs_or_is_not_printed_is_refused(inputs: dict[str, str]) -> None:
    parse.check_inputs("mdtest", Output((), inputs={"nodes": "2"}), {"nodes": 2})
    with pytest.raises(ParseError) as refusal:
        parse.check_inputs("mdtest", Output((), inputs=inputs), {"nodes": 2})
    assert refusal.value.code == "output.other-inputs"
