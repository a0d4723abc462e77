"""Inventories: what a system is expected to have and what bounds it, written, read and compared."""

from __future__ import annotations

import dataclasses
import json
import platform
import re
from pathlib import Path

import pytest
import records
import yaml
from conftest import CHECKS, Done, Testbed
from plumbline.check.record import Record, validate
from plumbline.core.errors import Fault
from plumbline.reference.lookup import References
from plumbline.session import inventory_check
from plumbline.session.plan import PlannedCase
from plumbline.site import inventory
from plumbline.site.inventory import Inventory
from reference_tables import LATENCY, references, registers

#: Two figures, of which one has a ceiling too, and what it is of.
ROWS = [{"id": "slow"} | LATENCY, {"id": "fast"}, {"id": "most", "kind": "peak", "value": "2000"}]
CASE = "bench %placement=on-node @sys:batch+gnu"


def planned(
    rows: dict[str, list[str]], case: str = CASE, runs: bool = True, tags=()
) -> PlannedCase:
    return PlannedCase(case, [*tags], runs, "pass" if runs else "skip", None, 60, 2, 2, [], rows)


BOUNDED = {"slow": ["latency_8"], "fast": ["bandwidth"], "most": ["bandwidth"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return registers(tmp_path)


@pytest.fixture
def tables(folder: Path) -> References:
    return references(folder, *ROWS)


@pytest.fixture
def expected(tables: References) -> Inventory:
    return inventory.from_plan([planned(BOUNDED)], tables)


def record(*figures: tuple, case: str = CASE, conditions: dict | None = None) -> Record:
    """A record of figures: metric, size, the row that decides, the ceiling."""
    check, _, where = case.rpartition(" @")
    system, _, rest = where.partition(":")
    partition, _, environment = rest.partition("+")
    keys = ("metric", "size", "reference", "ceiling")
    foms = [
        records.figure(1.0, verdict="pass" if f[2] else "not-asserted",
                       **dict(zip(keys, f, strict=True)))
        for f in figures
    ]  # fmt: skip
    fields = records.case(
        "s", "2026-11-01T00:00:00Z", check=check, system=system, partition=partition,
        environment=environment, conditions=conditions or {}, foms=foms,
    )  # fmt: skip
    return validate(fields)


MEASURED = (("latency", 8, "slow", None), ("bandwidth", None, "fast", 2000.0))


def test_written_and_read(tables: References, monkeypatch, tmp_path: Path) -> None:
    """Each row and its bounds, each case and what bounds it, sorted, a line each."""
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    cases = [planned(BOUNDED), planned({}, "zero @sys:batch+gnu"),
             planned({"fast": ["b", "a"]}, "all @sys:batch+gnu", tags=["full"])]  # fmt: skip
    found = inventory.from_plan(cases, tables)
    path = inventory.write("sys", found)
    assert inventory.read("sys") == found
    content = json.loads(path.read_text())
    assert content["references"] == {
        "fast": {"value": 1000, "lower": 950, "unit": "MB/s"},
        # With half of the last printed digit.
        "most": {"ceiling": 2000.5, "unit": "MB/s"},
        "slow": {"value": 10, "upper": 11, "unit": "us"},
    }
    assert content["cases"] == {CASE: BOUNDED, "zero @sys:batch+gnu": {}}
    assert content["full"] == {"all @sys:batch+gnu": {"fast": ["a", "b"]}}
    again = inventory.from_plan(reversed(cases), tables)
    assert again.text() == path.read_text()
    assert sum('"slow"' in line for line in path.read_text().splitlines()) == 2


def test_one_that_cannot_be_written_is_refused(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "systems").write_text("")
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    with pytest.raises(Fault) as refused:
        inventory.write("sys", inventory.Inventory())
    assert refused.value.code == "files.not-writable"


def test_no_inventory(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    assert inventory.read("sys") is None
    path = inventory.path_of("sys")
    path.parent.mkdir(parents=True)
    for text in (
        *("[]", "{", '{"c": "many"}', '{"cases": [], "x": {}}'),
        *('{"cases": {"c": ["r"]}}', '{"cases": {"c": {"r": 1}}}'),
        *('{"references": {"r": 1}}', '{"references": {"r": {"lower": 1}}}'),
    ):
        path.write_text(text)
        with pytest.raises(Fault, match="lint --system sys --accept") as refusal:
            inventory.read("sys")
        assert refusal.value.code == "system.wrong-inventory", text


def numbers(line: str) -> list[float]:
    """The numbers in a line: of figures, and the limits as they were and as they are."""
    return [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", line)]


#: What is done to a row -> the numbers in the line about it.
EDITS = [
    ("fast", {"value": "133.635"}, [1, 1000, 950, 133.635, 126.95325]),
    ("fast", {"value": "2", "unit": "GB/s"}, [1, 1000, 950, 2000, 1000]),
    ("fast", {"spread": "100"}, [1, 1000, 950, 1000, 700]),
    ("fast", {"statistic": "std"}, [1, 1000, 950]),
    ("fast", {"conditions": "bound=upper"}, [1, 1000, 950]),
    ("fast", None, [1, 1000, 950]),
    ("slow", {"value": "19"}, [1, 10, 11, 19, 20.9]),
    ("slow", None, [1, 10, 11]),
    ("most", {"value": "9000"}, [1, 2000.5, 9000.5]),
    ("most", {"value": "2000.0"}, [1, 2000.5, 2000.05]),
    ("most", {"kind": "measured", "metric": "capped"}, [1, 2000.5, 2000, 1900]),
    ("most", None, [1, 2000.5]),
]


@pytest.mark.parametrize(("name", "edit", "found"), EDITS)
def test_an_edited_row_is_reported(
    folder: Path, expected: Inventory, name: str, edit: dict | None, found: list[float]
) -> None:
    """Also one that was removed: ``None``."""
    rows = [row | edit if row["id"] == name and edit else row for row in ROWS]
    now = references(folder, *(row for row in rows if row["id"] != name or edit))
    (line,) = inventory.changed_references(expected, now)
    assert line.startswith(f"reference {name}, ") and numbers(line) == found


def test_what_was_not_edited_is_not_reported(expected: Inventory, tables: References) -> None:
    assert inventory.changed_references(expected, tables) == []


def test_a_raised_tolerance_is_reported(folder: Path, expected: Inventory) -> None:
    rules = yaml.safe_load((folder / "tolerance.yaml").read_text())
    rules["classes"]["up"]["floor"] = 0.9
    (folder / "tolerance.yaml").write_text(yaml.safe_dump(rules))
    (line,) = inventory.changed_references(expected, references(folder, *ROWS))
    assert "fast" in line and numbers(line) == [1, 1000, 950, 1000, 100]


def compared(expected: Inventory, tables: References, *figures: tuple, case: str = CASE):
    found = inventory_check.of_records(expected, [record(*figures, case=case)])
    return inventory.compare(expected, found, tables)


def test_a_session_as_expected(expected: Inventory, tables: References) -> None:
    assert compared(expected, tables, *MEASURED) == ([], [])
    # One that asserts nothing measured nothing; one that is not expected loses nothing.
    assert compared(expected, tables) == ([], [])
    assert compared(expected, tables, *MEASURED, case="other @sys:batch+gnu") == ([], [])
    # As --repeat names it.
    again = CASE.replace(" %", " %.repeat_no=1 %", 1)
    assert compared(expected, tables, *MEASURED, case=again) == ([], [])


@pytest.mark.parametrize(
    ("figure", "lost"),
    [
        (("bandwidth", None, None, 2000.0), ["fast"]),
        (("bandwidth", None, "other", 2000.0), ["fast"]),
        (("bandwidth", None, "fast", None), ["most"]),
        (("bandwidth", None, None, None), ["fast", "most"]),
    ],
)
def test_a_figure_that_another_row_bounds(expected, tables, figure: tuple, lost: list) -> None:
    (line,), new = compared(expected, tables, MEASURED[0], figure)
    assert line.startswith(f"{CASE}: {len(lost)} figure") and new == []
    assert re.findall(r"bandwidth by (\w+)", line) == lost


def test_a_figure_with_a_new_reference(expected: Inventory, tables: References) -> None:
    lost, (line,) = compared(expected, tables, *MEASURED, ("capped", 4, "more", None))
    assert lost == [] and line.startswith(f"{CASE}: 1 ") and line.endswith(": capped_4")


def test_a_busy_machine_loses_nothing(expected: Inventory, tables: References) -> None:
    """Its figures are compared with nothing, which is no edit: only strict rules fail on it."""
    figures = (("latency", 8, None, None), ("bandwidth", None, None, 2000.0))
    records = [record(*figures, conditions={"busy": "yes"})]
    assert inventory_check.differences("sys", expected, records, tables) == ([], [], [])
    (line,) = inventory_check.uncompared(expected, records)
    assert line.startswith(f"{CASE}: 2 figures ") and line.endswith("[figure.busy]")
    unbounded = record(*figures, case="other @sys:batch+gnu", conditions={"busy": "yes"})
    assert inventory_check.uncompared(expected, [record(*figures), unbounded]) == []


def test_a_row_that_is_gone_is_reported_once(folder: Path, expected: Inventory) -> None:
    now = references(folder, *ROWS[1:])
    figures = (("latency", 8, None, None), MEASURED[1])
    assert compared(expected, now, *figures) == ([], [])
    edited, lost, _ = inventory_check.differences("sys", expected, [record(*figures)], now)
    assert len(edited) == 1 and lost == []
    assert "`plumbline lint --system sys --accept`" in edited[0]


def test_a_baseline_of_another_host_bounds_nothing_here(folder: Path) -> None:
    """`local` is another machine on each host."""
    for host, lines in (("elsewhere", 0), (platform.node(), 1)):
        conditions = yaml.safe_load((folder / "conditions.yaml").read_text())
        conditions["host"] = {"meaning": "the machine"}
        (folder / "conditions.yaml").write_text(yaml.safe_dump(conditions))
        tables = references(folder, {"id": "slow", "conditions": f"host={host}"} | LATENCY)
        expected = inventory.from_plan([planned({"slow": ["latency_8"]})], tables)
        lost, _ = compared(expected, tables, ("latency", 8, None, None))
        assert len(lost) == lines


def test_a_session_reports_the_first_of_many(expected: Inventory, folder: Path) -> None:
    rows = [{"id": f"r{n}", "metric": "bandwidth"} for n in range(8)]
    found = inventory.from_plan(
        [planned({row["id"]: ["bandwidth"] for row in rows})],
        references(
            folder, *({**row, "placement": "on-node", "ppn": n} for n, row in enumerate(rows))
        ),
    )
    edited, _, _ = inventory_check.differences("sys", found, [], references(folder))
    assert len(edited) == 6 and numbers(edited[-1]) == [3]


def test_what_is_skipped_here_keeps_its_rows(folder: Path, expected: Inventory) -> None:
    """A site that cannot tell all figures: what is accepted there forgets nothing of the rest. Of
    a program that is not built, they are known."""
    unbuilt = dataclasses.replace(planned({}, runs=False), figures=0)
    known = planned({"fast": ["bandwidth"]}, runs=False)
    now = references(folder, *ROWS[:2])
    assert inventory.from_plan([known], now, expected).cases[CASE] == {"fast": ["bandwidth"]}
    assert inventory.bounded_figures([known], now)[CASE] == {("bandwidth", "fast")}
    skipped = [unbuilt, planned({"fast": ["b"]}, "new @sys:batch+gnu")]
    found = inventory.from_plan(skipped, now, expected)
    assert found.cases[CASE] == {"slow": ["latency_8"], "fast": ["bandwidth"]}
    assert found.cases["new @sys:batch+gnu"] == {"fast": ["b"]}
    assert inventory.bounded_figures(skipped, now).keys() == {"new @sys:batch+gnu"}


def test_what_is_gone_has_the_folder_to_load(
    tables: References, monkeypatch, tmp_path: Path
) -> None:
    """A line for a case of a loaded check, and one for a check that is not loaded."""
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    names = [f"{check} {case} @sys:batch+gnu" for check in ("own", "bench") for case in "ab"]
    cases = [planned({}, name) for name in names]
    inventory.write("sys", inventory.from_plan(cases, tables, folders=["/a b", "/site/loaded"]))
    found = inventory.read("sys")
    assert found and found.folders == ["/a b", "/site/loaded"]
    *loaded, lost = inventory.gone(names, "sys", found, {"bench"}, ["/site/loaded"])
    assert [line.partition(": ")[0] for line in loaded] == names[2:]
    assert lost.startswith("check own: ") and ", ".join(names[:2]) in lost and "-c '/a b', " in lost
    accept = "`plumbline lint --system sys -c /site/loaded --accept`"
    assert all(line.endswith(accept) for line in (*loaded, lost))


# -- the commands --------------------------------------------------------------------------------

FIO = ["-n", "fio", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]
ACCEPT = "`plumbline lint --system testbed --accept`"

BASELINE = [
    {"id": way, "benchmark": "fio", "metric": f"{way}_bandwidth", "value": value, "unit": "MB/s"}
    for way, value in (("read", 1100), ("write", 1900))
]


@pytest.fixture
def asserted(testbed: Testbed) -> Testbed:
    """A system of two test cases, each of which a row bounds, and its inventory."""
    testbed.environment("disk", "fio")
    testbed.refer(*BASELINE)
    assert testbed.asked("lint").code == 0
    return testbed


def accepting(done: Done) -> list[str]:
    """The lines that name the command which accepts what changed."""
    return [line for line in done.output.splitlines() if ACCEPT in line]


def test_an_edit_fails_a_session_and_lint(asserted: Testbed) -> None:
    """Also of a case that the session does not select."""
    asserted.refer(BASELINE[0], BASELINE[1] | {"value": 190})
    limits = [1, 1900, 1805, 190, 180.5]
    one = ["-n", "fio.*read", *FIO[2:]]
    run = asserted.plumbline("run", *one)
    assert run.code == 1
    assert [fields["result"] for fields in run.records] == ["pass"]
    end = json.loads((run.session / "end.json").read_text())
    assert end["code"] == 1
    # The exit code of the plain command is ReFrame's.
    plain = asserted.reframe("-c", CHECKS, "-r", *one)
    last = plain.out.strip().splitlines()[-1]
    assert plain.code == 0 and "testbed.json" in last and "`plumbline run`" in last
    lint = asserted.asked("lint")
    assert lint.code == 1
    for done in (run, plain, lint):
        (line,) = accepting(done)
        assert "reference write, " in line and numbers(line) == limits
    assert numbers(end["faults"][0]) == limits

    asserted.refer(BASELINE[0])
    assert asserted.asked("lint").code == 1
    assert asserted.asked("lint", "--accept").code == 0
    assert asserted.asked("lint").code == 0


def test_a_figure_that_its_row_no_longer_fits(asserted: Testbed) -> None:
    """Its cells were edited: nothing is gone, and less is asserted; -S may have asked for that."""
    asserted.refer(BASELINE[0], BASELINE[1] | {"conditions": "size=1024MiB"})
    for options, code in ([], 0), (["--strict"], 1):
        done = asserted.plumbline("run", *options, *FIO)
        (line,) = accepting(done)
        assert done.code == code and "write_bandwidth by write;" in line


def test_a_baseline_is_reported_until_it_is_accepted(testbed: Testbed) -> None:
    testbed.environment("disk", "fio")
    assert testbed.asked("lint").code == 0
    testbed.refer(*BASELINE)
    done = testbed.plumbline("run", "--strict", *FIO)
    assert done.code == 0 and len(accepting(done)) == 2
    assert testbed.asked("lint").code == 1
    assert testbed.asked("lint", "--accept").code == 0
    again = testbed.plumbline("run", "--strict", *FIO)
    assert again.code == 0 and accepting(again) == []


def test_a_shipped_inventory_of_what_is_not_built_fails_no_session(testbed: Testbed) -> None:
    """One environment is there, the other is not yet; the inventory has both."""
    testbed.environment("disk", "fio")
    testbed.lacking()
    latency = {"id": "ping", "benchmark": "imb", "metric": "pingpong_latency", "value": "2.00",
               "message_size": 8, "unit": "us"}  # fmt: skip
    testbed.refer(*BASELINE, latency)
    assert testbed.asked("lint").code == 0
    path = testbed.systems / "inventory" / "testbed.json"
    shipped = json.loads(path.read_text())
    (case,) = [name for name in shipped["cases"] if "PingPong" in name and "on-socket" in name]
    shipped["cases"][case] = {"ping": ["pingpong_latency_8"]}
    shipped["references"]["ping"] = {"value": 2.0, "upper": 2.2, "unit": "us"}
    path.write_text(json.dumps(shipped))
    lint = testbed.asked("lint")
    assert lint.code == 0, lint.output
    done = testbed.plumbline("run", "-n", "fio|imb_p2p", *FIO[2:])
    assert done.code == 0, done.output
    assert {fields["result"] for fields in done.records} == {"pass", "skip"}
    assert testbed.asked("lint", "--accept").code == 0
    assert json.loads(path.read_text()) == shipped
