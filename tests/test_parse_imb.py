"""The table of the Intel MPI Benchmarks, and what their outputs say."""

from __future__ import annotations

import pytest
from captured import (
    NOT_PARSED,
    PROGRAM_ERROR,
    Program,
    changed,
    figures,
    read,
    refusal,
    text_of,
    whole,
)

IMB = "imb/pingpong"

PROGRAM = Program(
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

IMB_SUFFIXES = {
    "t[usec]": "latency us",
    "t_avg[usec]": "latency us",
    "t_min[usec]": "latency_min us",
    "t_max[usec]": "latency_max us",
    "Mbytes/sec": "bandwidth MB/s",
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


@pytest.mark.parametrize("name", PROGRAM.good)
def test_imb_reads_every_cell(name: str) -> None:
    assert whole(name) == imb_by_eye(text_of(name))


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
