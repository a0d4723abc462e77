"""Captures of all programs: those of failed runs, and damaged or contradictory ones, are refused.

A parser never reads another number from a damaged text: it refuses the text, or gives figures that
the whole text also has. A report without its last line is refused.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from captured import (
    CAPTURES,
    FOMS,
    NO_NUMBERS,
    NOT_PARSED,
    PROGRAM_ERROR,
    Program,
    changed,
    ends,
    figures,
    names_of,
    path_of,
    read,
    refusal,
    text_of,
    truncate,
    whole,
)
from facility import launch_mpi
from plumbline import parse
from plumbline.core.units import factor
from plumbline.parse import ParseError

PROGRAMS: list[Program] = [
    importlib.import_module(f"test_parse_{name}").PROGRAM for name in parse.BENCHMARKS
]
STRICT = {program.name: program.strict for program in PROGRAMS}
GOOD = [pytest.param(program, name, id=name) for program in PROGRAMS for name in program.good]
FACTORS = {"UP": 1.05, "DOWN": 0.95, "BINARY": 1 / 1.048576, "HALF": 0.5}
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


def test_every_parser_has_a_table() -> None:
    assert [program.name for program in PROGRAMS] == [*parse.BENCHMARKS]


@pytest.mark.parametrize(
    ("name", "tasks", "version"),
    [
        ("fio/write_end_fsync", None, "fio-3.33"),
        ("hpcc/n400_2ranks", 2, "1.5.0"),
        ("babelstream/omp", None, "5.0"),
        ("babelstream/omp_csv", None, ""),
        ("commscope/v0120_memcpy_json_file", None, ""),
        ("commscope/v0120_memcpy_json_stdout", None, "0.12.0"),
        ("gpcnet/network_test_2fakenodes_2ranks", 2, "1.3"),
        ("gpcnet/stock_network_load_test_10fakenodes_10ranks_timeout240", 10, "1.3"),
        ("ior/v400_mpich_posix_fpp", 2, "4.0.0"),
        ("ior/v330_mpich_json_i3", 2, "3.3.0"),
        ("ior/v400_mpich_one_process", 1, "4.0.0"),
        ("mdtest/v400_mpich_files", 2, "4.0.0"),
        ("osu/osu_init", 2, "7.4"),
        ("osu/osu_mbw_mr", None, "7.4"),
        ("osu/v53_mpich_put_latency", None, "5.3"),
        ("imb/pingpong", 2, "2021.11"),
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
    for number in NO_NUMBERS:
        with pytest.raises(ParseError) as refusal:
            read(name, changed(text_of(name), pattern, rf"\g<1>{number}\g<2>"))
        is_nan = "nan" in number.lower() and STRICT[name.partition("/")[0]]
        assert not is_nan or "NaN" in str(refusal.value)


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
