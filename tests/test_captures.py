"""What every parser does with real captures: it reads good ones, refuses those of failed runs and
of other programs, and either refuses a damaged one or reads no other figure from it."""

from __future__ import annotations

import damage
import pytest
import test_parse_babelstream
import test_parse_commscope
import test_parse_gpcnet
import test_parse_ior
import test_parse_mdtest
import test_parse_osu
from damage import Program, changed, read, text_of
from plumbline.parse import ParseError

PROGRAMS = [
    test_parse_babelstream.PROGRAM,
    test_parse_commscope.PROGRAM,
    test_parse_gpcnet.PROGRAM,
    test_parse_ior.PROGRAM,
    test_parse_mdtest.PROGRAM,
    test_parse_osu.PROGRAM,
]
GOOD = [pytest.param(program, name, id=name) for program in PROGRAMS for name in program.good]


@pytest.mark.parametrize(
    ("name", "says"), [failed for program in PROGRAMS for failed in program.failed.items()]
)
def test_failed_run_is_refused(name: str, says: str | None) -> None:
    assert says, f"{name} is in no table"
    with pytest.raises(ParseError, match=says):
        read(name)


@pytest.mark.parametrize(("program", "name"), GOOD)
def test_every_figure_is_registered(program: Program, name: str) -> None:
    damage.assert_registered(name)


@pytest.mark.parametrize(("program", "name"), GOOD)
def test_damaged_lines(program: Program, name: str) -> None:
    if program.closing is None:
        damage.truncate_open(name)
    # A table of comma-separated values ends without a mark.
    elif program.name != "babelstream" or "csv" not in name:
        damage.truncate(name, program.closing)
    damage.behead(name)
    damage.double(name)
    damage.remove(name)
    damage.swap(name)


@pytest.mark.parametrize(("program", "name"), GOOD)
def test_two_runs_in_one_file(program: Program, name: str) -> None:
    damage.two_runs(name, next(other for other in program.good if other != name))


@pytest.mark.parametrize(
    ("name", "pattern"), [cell for program in PROGRAMS for cell in program.cells]
)
def test_no_finite_number(name: str, pattern: str) -> None:
    damage.no_number(name, pattern)


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "says"),
    [fault for program in PROGRAMS for fault in program.faults],
)
def test_fault_is_refused(name: str, pattern: str, replacement: str, says: str) -> None:
    text = changed(text_of(name), pattern, replacement)
    with pytest.raises(ParseError, match=says):
        read(name, text)


@pytest.mark.parametrize(
    ("program", "other"), [(program, other) for program in PROGRAMS for other in program.others]
)
def test_other_program(program: Program, other: str) -> None:
    with pytest.raises(ParseError, match=program.other_says):
        read(program.name, text_of(other))
