"""What records of others hold steers no terminal, and no spreadsheet runs it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import asked
from histories import fom, line, store
from plumbline.check import record
from plumbline.core.text import printable_lines
from plumbline.history.history import History
from plumbline.session import summary

#: Erases the screen, sets the title, begins a sequence in one byte, turns the text around, rings.
STEERS = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\x85\x7f"
FORMULAS = ['=HYPERLINK("http://evil.example","x")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)",
            "\t=1", "'=1", "''@x", "-5", "'-5", "plain"]  # fmt: skip


def hostile(results: Path, name: str, nights: int = 26) -> None:
    """A history of a figure that lost a fifth, all of whose names are the given one."""
    for day in range(1, nights + 1):
        value = 100.0 if day < 22 else 80.0
        store(results, line(
            day=day, foms=[fom(value + 0.1 * (day % 3), location=name)], system=name,
            partition=name, environment=name, check=name, case=name, nodes=[name],
            extras={name: name}, reason=name,
        ))  # fmt: skip


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("PLUMBLINE_SCRATCH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "results"


ANSWERS = [
    ["history", "list"], ["history", "list", "--format=json"], ["history", "list", "--format=csv"],
    ["trend", "--suspects"], ["trend", "--format=json"], ["trend", "--format=csv"],
    ["compare", "..2026-11-20", "last:5", "--all"],
    ["compare", "..2026-11-20", "last:5", "--format=csv"],
    ["compare", "..2026-11-20", "last:5", "--format=markdown"],
    ["screen"], ["screen", "--format=csv"], ["export"], ["export", "--format=junit"],
    ["export", "--format=prometheus"], ["baseline", STEERS], ["history", "list", "--system=x\x1b"],
    ["parse", "osu", f"no{STEERS}"], ["refs", "--why", STEERS],
    ["show"], ["show", "20261126T010000Z-00001a"], ["show", "--format=csv"], ["trend", "--new"],
]  # fmt: skip


@pytest.mark.holds("terminal")
def test_names_of_records_steer_no_terminal(results: Path) -> None:
    hostile(results, f"name{STEERS}")
    store(results, line(day=27, extras={"by": "a\x00b\x1b"}))
    store(results, "{", name=f"20261128T010000Z-00001b{STEERS}")
    for number, command in enumerate(ANSWERS):
        done = asked(*command)
        assert number > 7 or re.search(r"name\\(x|u00)1b", done.out), command
        for output in (done.out, done.err):
            assert all(text.isprintable() for text in output.split("\n")), (command, output)


@pytest.mark.holds("terminal")
def test_what_is_left_in_scratch_steers_no_terminal(results, tmp_path, monkeypatch) -> None:
    from plumbline.operate import doctor

    (tmp_path / f"plumbline-{STEERS}").mkdir()
    store(results, line())
    nothing = doctor.plan.Preview("local", False, [], [], [], {}, [], [], [], [])
    monkeypatch.setattr(doctor.plan, "preview", lambda *_: nothing)
    done = asked("doctor", "--system=local")
    assert "/plumbline-\\x1b" in done.out and "rm -r '" in done.out
    assert all(text.isprintable() for text in done.out.split("\n"))


@pytest.mark.holds("terminal")
def test_the_closing_table_steers_no_terminal() -> None:
    records = [line(check=f"a{STEERS}\nplumbline: forged", nodes=[f"n{STEERS}\nforged"],
                    environment=STEERS, result=result, reason=f"why{STEERS}",
                    warnings=[{"state": "warnings", "code": "c", "figure": "", "detail": STEERS,
                               "source": ""}])
               for result in ("pass", "error")]  # fmt: skip
    told = printable_lines(summary.table([*map(record.validate, records)], 2))
    assert "why" in told and all(text.isprintable() for text in told.split("\n"))
    assert not re.search("^(plumbline: )?forged", told, re.M)


@pytest.mark.holds("spreadsheet")
def test_no_cell_is_a_formula(results: Path) -> None:
    hostile(results, FORMULAS[0])
    for command in ANSWERS:
        if "--format=csv" in command:
            text = asked(*command).out
            cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
            assert "HYPERLINK" in text or command[0] == "screen"
            # A number is one, below zero too.
            begun = [cell for cell in cells if re.match(r"[=+\-@\t\r\n]", cell)]
            assert all(re.fullmatch(r"[+-][0-9.]+(e[+-][0-9]+)?", cell) for cell in begun)


@pytest.mark.holds("spreadsheet")
def test_an_exported_history_is_read_back_as_it_was(results: Path, tmp_path: Path) -> None:
    for day, name in enumerate(FORMULAS, 1):
        store(results, line(day=day, foms=[fom(-1.5 * day, location=name)], partition=name,
                            check=name, environment=name, nodes=[name],
                            extras={name: name}))  # fmt: skip
    path = tmp_path / "history.csv"
    assert asked("history", "export", "-o", path).code == 0
    with path.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["check"] for row in rows] == [
        f"'{name}" if name not in ("-5", "plain") else name for name in FORMULAS
    ]
    assert [float(row["value"]) for row in rows] == [-1.5 * n for n in range(1, 11)]
    with History() as there, History(path) as back:
        assert back.rows() is not None
        assert [*map(list, back.rows())] == [*map(list, there.rows())]


@pytest.mark.holds("terminal")
def test_an_exported_history_steers_no_terminal(results: Path) -> None:
    """A file has it as it is, to be read back; a person sees its code."""
    hostile(results, f"name{STEERS}", nights=2)
    assert "\x1b" in asked("history", "export").out
    leader, follower = os.openpty()
    command = [Path(sys.executable).with_name("plumbline"), "history", "export"]
    with subprocess.Popen(command, stdout=follower):
        os.close(follower)
        said = b""
        # Linux says EIO where a terminal's other end is closed.
        with contextlib.suppress(OSError):
            while data := os.read(leader, 1 << 16):
                said += data
    os.close(leader)
    assert b"name\\x1b" in said and b"\x1b" not in said


def test_json_of_names_is_read_back(results: Path) -> None:
    hostile(results, f"nüme{STEERS}", nights=1)
    (row,) = json.loads(asked("history", "list", "--format=json").out)
    assert row["extras"] == {f"nüme{STEERS}": f"nüme{STEERS}"}
