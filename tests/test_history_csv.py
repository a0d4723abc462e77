"""The history as CSV: its export, and what is refused in such a file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from histories import fom, line, mixed_, results_, run, store  # noqa: F401 - fixtures
from plumbline.core.errors import Fault
from plumbline.history.history import History


def exported(source: Path) -> list[list[str]]:
    """The names of the columns, and the rows."""
    return list(csv.reader(run("export", "--from", source).out.splitlines()))


def written(folder: Path, rows: list[list[str]]) -> Path:
    """A CSV file of these rows."""
    path = folder / "some.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def count_of(found: History) -> int:
    """The number of all values."""
    return sum(len(series.values) for series in found.series())


def everything(source: Path) -> tuple:
    with History(source) as found:
        series = [
            (s.key, s.benchmark, s.unit, s.better, s.samples, *(
                str(array.tolist()) for array in (s.sessions, s.times, s.values, s.lower, s.upper,
                s.ceiling, s.verdicts, s.references, s.builds, s.nodes)))
            for s in found.series()
        ]  # fmt: skip
        return series, found.cases(), found.sessions(), found.notes


def test_a_csv_brings_back_the_same_history(mixed: Path, tmp_path: Path):
    """Exactly: every digit, empty cells, cases without figures and sessions without cases."""
    odd = [0.1 + 0.2, 1e-300, 1 / 3, 12345678901234567.0, 5e-324]
    foms = [fom(v, size=n, lower=v, samples=[v / 7]) for n, v in enumerate(odd)]
    store(mixed, line(day=9, foms=foms, nodes=[], output=None, build={"b": "1", "a": "2"}), plan=7)
    store(mixed, b"", name="killed at once", plan=3)
    store(mixed, line(10, day=12), line(5, day=12), plan=None)
    out = tmp_path / "all.csv"
    assert run("export", "--from", mixed, "-o", out).code == 0
    assert everything(out) == everything(mixed)
    again = run("export", "--from", out)
    assert (again.code, again.out) == (0, out.read_text())
    with History(out) as found, pytest.raises(Fault) as fault:
        list(found.records())
    assert fault.value.code == "history.csv-only"


@pytest.mark.holds("spreadsheet")
def test_a_csv_brings_back_what_would_end_a_cell_or_a_line(results: Path, tmp_path: Path):
    texts = ["a\rb", "a\r\nb", 'a\n"b,c', "'=1+1", "=1+1\r", '\\"', "\u2028|"]
    store(results, *(line(number, case=text, check=text, reason=text, nodes=[text, "n2"],
                          foms=[fom(location=text, unit=text)], extras={text: text})
                     for number, text in enumerate(texts)), plan=None)  # fmt: skip
    file = tmp_path / "out.csv"
    assert run("export", "--from", results, "-o", file).code == 0
    assert everything(file) == everything(results)
    with History(file) as found:
        assert [case.check for case in found.cases()] == texts and found.faults == []


def test_a_csv_of_an_earlier_export_is_read(mixed: Path, tmp_path: Path):
    """It has no column `seconds`: all else is as it was, and that is not known."""
    rows = exported(mixed)
    column = rows[0].index("seconds")
    path = written(tmp_path, [row[:column] + row[column + 1 :] for row in rows])
    with History(path) as earlier, History(mixed) as now:
        assert earlier.series()[0].values.tolist() == now.series()[0].values.tolist()
        assert {row.seconds for row in earlier.sessions()} == {None}
        assert None not in {row.seconds for row in now.sessions() if row.ended}


def test_a_csv_with_other_columns_is_refused(mixed: Path, tmp_path: Path):
    """The columns are named; a cell of another type is skipped and reported."""
    rows = exported(mixed)
    # As JSON and the other CSVs spell it.
    assert {row[rows[0].index("near_bound")] for row in rows[1:]} <= {"true", "false", ""}
    assert "false" in {row[rows[0].index("near_bound")] for row in rows[1:]}

    path = written(tmp_path, [["Value" if cell == "value" else cell for cell in rows[0]]])
    with pytest.raises(Fault) as fault:
        History(path)
    assert fault.value.code == "input.wrong-file"
    assert "'value'" in str(fault.value) and "'Value'" in str(fault.value)
    # A CSV of something else is reported with a few of its columns.
    path.write_text("night,value,node\n")
    done = run("list", "--from", path)
    assert (done.code, done.codes) == (2, ["input.wrong-file"]) and len(done.err.splitlines()) == 1
    # Not missing are two that it has, and two that earlier exports did not write.
    left = len(rows[0]) - 2 - 2 - 3
    assert f"'session', 'session_system', 'start' and {left} " in done.err
    written(tmp_path, [rows[0] + ["unit"]])
    with pytest.raises(Fault) as fault:
        History(path)
    assert fault.value.code == "input.wrong-file"
    shuffled = [row[::-1] for row in rows]
    shuffled[2][shuffled[0].index("value")] = "fast"
    shuffled[3][shuffled[0].index("value")] = ""
    shuffled[4][shuffled[0].index("samples")] = ""
    written(tmp_path, shuffled)
    with History(path) as found:
        series = found.series()
        assert count_of(found) == 3
        assert f"{path}:3: value: " in found.faults[0]
        (lost,) = found.faults[1:]
        assert lost.startswith(f"{path}: 1 ")
    assert [40.0] in [samples for s in series for samples in s.samples]
    assert run("list", "--from", path).code == 2


def test_words_that_plumbline_does_not_write_are_reported(mixed: Path, tmp_path: Path):
    """The rows of an edited file that have them are skipped, and the report is still made."""
    head, *rows = exported(mixed)
    first, second, *_ = (row for row in rows if row[head.index("metric")])
    first[head.index("verdict")], second[head.index("result")] = "passed", "ok"
    path = written(tmp_path, [head, *rows])
    with History(path) as edited, History(mixed) as whole:
        assert len(edited.faults) == 2
        assert ["'ok'" in fault for fault in edited.faults] == [True, False]
        assert ["'passed'" in fault for fault in edited.faults] == [False, True]
        assert count_of(edited) == count_of(whole) - 2
    assert run("report", "--from", path, "-o", tmp_path / "site").code == 2


def test_rows_without_a_start_are_reported(mixed: Path, tmp_path: Path):
    """No command can place them in time: they are skipped, and the others are compared."""
    head, *rows = exported(mixed)
    for row in rows[:2]:
        row[head.index("start")] = ""
    with History(written(tmp_path, [head, *rows])) as edited, History(mixed) as whole:
        assert len(edited.faults) == 1
        assert {row.session for row in edited.sessions()} <= {
            row.session for row in whole.sessions()
        }
        assert count_of(edited) == count_of(whole) - 2
