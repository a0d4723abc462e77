"""`plumbline show`: what a session measured, beside what is usual."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import Done, asked
from histories import fom, line, store
from plumbline.analysis.trend import series_changes
from plumbline.core.text import WIDTH
from plumbline.output.report import usual_values

NIGHTS = 50
LOST = 12
LONG = "random_ring_latency_between_all_pairs_of_nodes_with_congestion_by_many_others"
NAME = f"stream %of={'very_' * 15}many %parameters={'and_' * 15}more"


def change(start: int, kind: str = "regression", **fields: object) -> SimpleNamespace:
    about = {"kind": kind, "start": start, "worse": True, "active": True, "confirmed": True}
    return SimpleNamespace(**{**about, **fields})


BETTER = {"kind": "improvement", "worse": False}


@pytest.mark.parametrize(
    ("changes", "first", "end"),
    [
        ([], 69, 99),
        ([change(40)], 10, 40),  # It has become usual in the last 30 nights, which hides it.
        ([change(40), change(80)], 10, 40),
        ([change(40, active=False), change(60, **BETTER)], 69, 99),
        ([change(99, confirmed=False)], 69, 99),
        ([change(90, "transient")], 69, 99),
        ([change(90, **BETTER)], 90, 99),
        ([change(50, **BETTER), change(60)], 50, 60),
        ([change(60, "drift")], 30, 60),
        ([change(0)], 0, 0),
    ],
)
def test_the_usual_values_are_of_one_level_before_a_loss_that_lasts(changes, first, end):
    found = usual_values.usual_values(np.arange(100.0), changes)
    assert found.tolist() == list(range(first, end))


@pytest.mark.parametrize(
    ("value", "better", "out"),
    [(94, "higher", False), (92, "higher", True), (106, "lower", False), (109, "lower", True),
     (109, "higher", False), (92, "lower", False), (50, "neither", False), (0.0, "higher", False)],
)  # fmt: skip
def test_a_value_stands_out_on_the_worse_side_only(value, better, out):
    nights = np.tile([99.0, 100.0, 101.0], 10)
    assert usual_values.stands_out(value, nights, better) == out
    assert not usual_values.stands_out(value, nights[: usual_values.KNOWN - 1], better)


def test_a_value_above_the_level_before_a_loss_is_not_worse(monkeypatch, history: Path):
    """It came back, but a single night does not end the loss."""
    lost = change(NIGHTS - 10, key=None, began=np.datetime64("2026-10-01"))
    monkeypatch.setattr(
        series_changes, "of_history", lambda series, **_: SimpleNamespace(
            by_key=lambda: {item.key: [lost] for item in series})
    )  # fmt: skip
    found = figures(history)
    assert (found["copy"]["worse"], found["copy"]["since"]) == (False, "2026-10-01")
    assert found["triad"]["worse"] and not found["peak"]["worse"]
    assert found["peak"]["earlier"] == usual_values.USUAL


def test_a_last_digit_does_not_stand_out():
    assert not usual_values.stands_out(9.95, np.full(30, 10.0), "higher")
    assert usual_values.stands_out(9.8, np.full(30, 10.0), "higher")


def foms(night: int) -> list[dict]:
    wiggle = 1 + 0.004 * (night * 7 % 5 - 2)
    last = night == NIGHTS - 1
    lost = 0.9 if night >= LOST + 20 else 1.0
    about = {"size": None, "unit": "GB/s", "better": "higher", "upper": None}
    none = {"verdict": "not-asserted", "reference": None}
    return [
        fom(300 * wiggle, metric="copy", lower=280.0, **about),
        fom(200 * wiggle * lost, metric="triad", lower=190.0, **about,
            **({"verdict": "fail"} if lost < 1 else {})),
        fom(100 * wiggle * (0.9 if last else 1), metric="once", **about, **none),
        fom(10 * wiggle, metric=LONG, **about, **none),
        fom(50 * (2 if last else 1), metric="peak", lower=40.0, ceiling=60.0, **about,
            **({"verdict": "above-ceiling"} if last else {})),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Path:
    """50 nights: a loss that lasts, one value that stands out, and one above its ceiling."""
    folder = tmp_path_factory.mktemp("history")
    for night in range(NIGHTS):
        ended = datetime.datetime(2026, 9, 1, 2) + datetime.timedelta(days=night)
        when = {"session": name_of(night), "time": f"{ended:%Y-%m-%dT%H:%M:%SZ}"}
        skip = {"check": "fio", "result": "skip", "reason": "fio is not on PATH", "foms": []}
        store(folder, line(check=NAME, foms=foms(night), **when), line(1, **skip, **when), plan=2)
    return folder


def name_of(night: int) -> str:
    ended = datetime.datetime(2026, 9, 1, 2) + datetime.timedelta(days=night)
    return f"{ended:%Y%m%dT%H%M%SZ}-{night:06x}"


def show(history: Path, *options: object) -> Done:
    return asked("show", *options, "--from", history)


def figures(history: Path, *options: object) -> dict[str, dict]:
    done = show(history, "--format=json", *options)
    assert done.code == 0, done.output
    return {figure["metric"]: figure for figure in json.loads(done.out)["figures"]}


def test_the_newest_session_by_default(history: Path):
    found = json.loads(show(history, "--format=json").out)
    assert (found["session"], found["system"], found["ended"]) == (name_of(49), "alpha", True)
    assert (found["planned"], found["results"]) == (2, {"pass": 1, "skip": 1})
    assert [(case["check"], case["reason"]) for case in found["unmeasured"]] == [
        ("fio", "fio is not on PATH")
    ]
    # What failed is first, then what is worse than usual.
    assert [figure["metric"] for figure in found["figures"]][:3] == ["peak", "triad", "once"]


def test_cases_that_are_not_selected_are_not_unfinished(history: Path):
    done = show(history, "--check=fio", "--format=json")
    found = json.loads(done.out)
    assert (done.code, found["planned"], found["results"]) == (2, 1, {"skip": 1})
    listed = asked("history", "list", "--check=fio", "--format=json", "--from", history)
    assert {(row["planned"], *row["results"]) for row in json.loads(listed.out)} == {(1, "skip")}


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_the_worst_repeat_counts(tmp_path: Path, failed: int):
    about = {"metric": "triad", "size": None, "unit": "GB/s", "better": "higher", "upper": None,
             "lower": 190.0}  # fmt: skip
    values = [150.0 if n == failed else 200.0 for n in range(3)]
    store(tmp_path, *(
        line(n, check=f"stream %.repeat_no={n}",
             foms=[fom(value, **about, verdict="pass" if value == 200 else "fail")])
        for n, value in enumerate(values)
    ), plan=3)  # fmt: skip
    found = figures(tmp_path, "--failed")
    assert (found["triad"]["value"], found["triad"]["verdict"]) == (150.0, "fail")


def test_values_usual_values_and_bounds(history: Path):
    found = figures(history)
    lost = found["triad"]
    # 18 nights have lost a tenth; it has not become usual.
    assert lost["usual"] == pytest.approx(200, rel=0.01)
    assert lost["change"] == pytest.approx(-0.1, abs=0.01)
    assert (lost["worse"], lost["since"], lost["verdict"]) == (True, "2026-10-03", "fail")
    assert (lost["lower"], lost["upper"], lost["reference"]) == (190, None, "r1")
    once = found["once"]
    assert once["change"] == pytest.approx(-0.1, abs=0.01) and once["earlier"] == usual_values.USUAL
    assert (once["worse"], once["since"], once["reference"]) == (True, "", "")
    calm = found["copy"]
    assert (calm["worse"], calm["verdict"]) == (False, "pass")
    assert abs(calm["change"]) < 0.02
    assert (found["peak"]["worse"], found["peak"]["ceiling"]) == (False, 60)


def test_a_session_is_shown_with_what_came_before_it(history: Path):
    found = figures(history, name_of(LOST + 19))
    assert not found["triad"]["worse"] and found["triad"]["earlier"] == usual_values.USUAL
    assert figures(history, name_of(3))["copy"]["earlier"] == 3
    first = figures(history, name_of(0))["copy"]
    assert (first["usual"], first["change"], first["worse"]) == (None, None, False)


def test_only_what_failed(history: Path):
    assert set(figures(history, "--failed")) == {"peak", "triad", "once"}
    # All are counted nevertheless.
    counts = show(history, "--failed").out.splitlines()[-1]
    assert counts.startswith("plumbline: 5 figures") and "1 fail" in counts
    assert set(figures(history, "--metric=copy")) == {"copy"}


def test_the_table_fits_a_terminal(history: Path):
    lines = show(history).out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    (triad,) = [row for row in lines if row.startswith("triad ")]
    assert triad.split()[-3:] == ["FAIL", ">=", "190"] and " worse " in triad
    assert lines[lines.index(triad) + 1] == "  by r1"
    assert [row.split()[0] for row in lines if "% worse" in row] == ["triad", "once"]
    assert any(row.startswith("skip: fio @cpu+gnu: fio is not on PATH") for row in lines)


def test_csv_and_a_csv_of_the_history(history: Path, tmp_path: Path):
    rows = list(csv.DictReader(show(history, "--format=csv").out.splitlines()))
    assert {row["metric"]: row["worse"] for row in rows}["triad"] == "true"
    assert {row["nodes"] for row in rows} == {"n1 n2"}
    assert asked("history", "export", "--from", history, "-o", tmp_path / "all.csv").code == 0
    assert figures(tmp_path / "all.csv") == figures(history)


def test_the_newest_that_is_selected(history: Path):
    done = show(history, "--format=json", "--until=2026-09-10")
    assert json.loads(done.out)["session"] == name_of(9)


@pytest.mark.parametrize(
    ("options", "code"),
    [(["nosuch"], "history.unknown-session"), (["--system=nosuch"], "history.nothing-selected")],
)
def test_no_such_session(history: Path, options, code):
    done = show(history, *options)
    assert (done.code, done.out, done.codes) == (2, "", [code])


def test_a_session_without_figures_is_inconclusive(tmp_path: Path):
    store(tmp_path, line(foms=[fom()]))
    assert show(tmp_path).code == 0
    store(tmp_path, line(day=2, result="error", reason="time limit", foms=[]), plan=3)
    done = show(tmp_path)
    assert done.code == 2 and "error: " in done.out and "time limit" in done.out
    assert "2 unfinished" in done.out and "has not ended" in done.out
    (folder,) = [path for path in (tmp_path / "sessions").iterdir() if "20261102" in path.name]
    (folder / "records.jsonl").write_text("")
    assert show(tmp_path).code == 2


def test_the_first_attempt_counts(tmp_path: Path):
    store(tmp_path, line(foms=[fom(10.0)]), line(9, attempt=1, foms=[fom(20.0)]))
    assert figures(tmp_path)["latency"]["value"] == 10
    store(tmp_path, line(day=2, result="error", reason="x", foms=[]), line(day=2, attempt=1))
    done = show(tmp_path, "--format=json")
    assert (done.code, json.loads(done.out)["figures"]) == (2, [])


def test_the_facts_of_a_session(tmp_path: Path):
    """One row for each value, of the newest session; a fact that nodes share has both."""
    hosts = {"n1": {"kernel": "5.14"}, "n2": {"kernel": "5.14", "firmware": "=1"}}
    of_case = {"hosts": hosts, "build": {"mpi": "openmpi@5"}, "foms": foms(0)}
    for day, tls in ((1, "rc"), (2, "tcp")):
        when = {"session": f"2026090{day}T020000Z-00000{day}", "time": f"2026-09-0{day}T02:00:00Z"}
        store(
            tmp_path,
            line(check="a", variables={"UCX_TLS": tls}, **of_case, **when),
            line(1, check="b", **of_case, **when),
            plan=2,
        )
    done = show(tmp_path, "--facts", "--format=json")
    rows = {(row["kind"], row["name"], row["value"]): row["where"] for row in json.loads(done.out)}
    assert done.code == 0 and rows == {
        ("build", "mpi", "openmpi@5"): ["a @cpu+gnu", "b @cpu+gnu"],
        ("variable", "UCX_TLS", "tcp"): ["a @cpu+gnu"],
        ("host", "kernel", "5.14"): ["n1", "n2"],
        ("host", "firmware", "=1"): ["n2"],
    }
    only = json.loads(show(tmp_path, "--facts", "--format=json", "--check=b").out)
    assert {row["kind"] for row in only} == {"build", "host"}
    text = show(tmp_path, "--facts").out
    assert max(map(len, text.splitlines())) <= WIDTH and "UCX_TLS" in text
    exported = asked("history", "export", "--facts", "--from", tmp_path)
    cells = [*csv.DictReader(exported.out.splitlines())]
    assert exported.code == 0 and len(cells) == 8
    assert {row["value"] for row in cells if row["kind"] == "variable"} == {"rc", "tcp"}
    # No formula in a spreadsheet.
    assert {row["value"] for row in cells if row["name"] == "firmware"} == {"'=1"}
    assert {row["where"] for row in cells if row["name"] == "kernel"} == {"n1; n2"}
    assert show(tmp_path, "--facts", "--failed").code == 2


def test_a_session_without_facts(tmp_path: Path):
    store(tmp_path, line(build={}, hosts={}, foms=foms(0)), plan=1)
    done = show(tmp_path, "--facts", "--format=json")
    assert (done.code, json.loads(done.out)) == (2, [])
    assert show(tmp_path, "--facts").out.endswith("plumbline: 0 values\n")
