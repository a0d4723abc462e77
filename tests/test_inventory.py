"""Inventories: what a system is expected to have and what bounds it, written, read and compared."""

from __future__ import annotations

import csv
import json
import platform
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
from test_reference import LATENCY, references, registers

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
    monkeypatch.setenv("PLUMBLINE_SYSTEMS", str(tmp_path / "systems"))
    cases = [planned(BOUNDED), planned({}, "zero @sys:batch+gnu"),
             planned({"fast": ["b", "a"]}, "all @sys:batch+gnu", tags=["full"])]  # fmt: skip
    found = inventory.from_plan(cases, tables)
    path = inventory.write("sys", found)
    assert inventory.read("sys") == found
    content = json.loads(path.read_text())
    assert content["references"] == {
        "fast": {"value": 1000, "lower": 950, "unit": "MB/s"},
        "most": {"ceiling": 2000, "unit": "MB/s"},
        "slow": {"value": 10, "upper": 11, "unit": "us"},
    }
    assert content["cases"] == {CASE: BOUNDED, "zero @sys:batch+gnu": {}}
    assert content["full"] == {"all @sys:batch+gnu": {"fast": ["a", "b"]}}
    again = inventory.from_plan(reversed(cases), tables)
    assert again.text() == path.read_text()
    assert sum('"slow"' in line for line in path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{", '{"c": "many"}', '{"cases": [], "x": {}}'),
        *('{"cases": {"c": ["r"]}}', '{"cases": {"c": {"r": 1}}}'),
    ],
)
def test_no_inventory(text: str, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLUMBLINE_SYSTEMS", str(tmp_path))
    assert inventory.read("sys") is None
    path = inventory.path_of("sys")
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Fault, match=r"no inventory: .*lint --system sys --accept"):
        inventory.read("sys")


#: What is done to the table -> what is reported.
EDITS = [
    ([], []),
    ([{"id": "fast", "value": "133.635"}],
     ["fast, which bounds 1 figure: was 1000, at least 950 MB/s; is 133.635, at least 126.95"]),
    ([{"id": "fast", "value": "2", "unit": "GB/s"}], ["fast, which bounds 1 figure: was 1000"]),
    ([{"id": "fast", "spread": "100"}], ["is 1000, at least 700 MB/s"]),
    ([{"id": "fast", "statistic": "std"}], ["1 figure: bounds nothing any more"]),
    ([{"id": "fast", "conditions": "bound=upper"}], ["bounds nothing any more"]),
    ([{"id": "slow", "value": "19"}], ["1 figure: was 10, at most 11 us; is 19"]),
    ([{"id": "most", "value": "9000"}], ["was ceiling 2000 MB/s; is ceiling 9000 MB/s"]),
    ([{"id": "most", "kind": "measured", "metric": "capped"}], ["was ceiling 2000 MB/s; is 2000"]),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "told"), EDITS)
def test_an_edited_row_is_told(folder: Path, expected: Inventory, edits: list, told: list) -> None:
    cells = {row["id"]: row for row in ROWS}
    for edit in edits:
        cells[edit["id"]] = cells[edit["id"]] | edit
    lines = inventory.changed_references(expected, references(folder, *cells.values()))
    assert len(lines) == len(told)
    assert all(words in line for words, line in zip(told, lines, strict=True)), lines


@pytest.mark.parametrize("name", ["slow", "fast", "most"])
def test_a_row_that_is_gone_is_told(folder: Path, expected: Inventory, name: str) -> None:
    now = references(folder, *(row for row in ROWS if row["id"] != name))
    (line,) = inventory.changed_references(expected, now)
    assert line.startswith(f"reference {name}, which bounds 1 figure: is gone; it was ")


def test_a_raised_tolerance_is_told(folder: Path, expected: Inventory) -> None:
    rules = yaml.safe_load((folder / "tolerance.yaml").read_text())
    rules["classes"]["up"]["floor"] = 0.9
    (folder / "tolerance.yaml").write_text(yaml.safe_dump(rules))
    (line,) = inventory.changed_references(expected, references(folder, *ROWS))
    assert "fast" in line and "was 1000, at least 950 MB/s; is 1000, at least 100 MB/s" in line


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
    ("figure", "told"),
    [
        (("bandwidth", None, None, 2000.0), "1 figure no longer bounded as expected: bandwidth by"),
        (("bandwidth", None, "other", 2000.0), "bandwidth by fast"),
        (("bandwidth", None, "fast", None), "bandwidth by most"),
        (("bandwidth", None, None, None), "2 figures no longer bounded as expected"),
    ],
)
def test_a_figure_that_another_row_bounds(expected, tables, figure: tuple, told: str) -> None:
    (line,), new = compared(expected, tables, MEASURED[0], figure)
    assert line.startswith(f"{CASE}: ") and told in line and new == []


def test_a_figure_that_is_bounded_anew(expected: Inventory, tables: References) -> None:
    lost, (line,) = compared(expected, tables, *MEASURED, ("capped", 4, "more", None))
    assert lost == [] and line == f"{CASE}: 1 figure bounded anew: capped_4"


def test_a_busy_machine_loses_nothing(expected: Inventory, tables: References) -> None:
    """Its figures are compared with nothing, which is no edit: only strict rules fail on it."""
    figures = (("latency", 8, None, None), ("bandwidth", None, None, 2000.0))
    records = [record(*figures, conditions={"busy": "yes"})]
    assert inventory_check.differences("sys", expected, records, tables) == ([], [], [])
    (line,) = inventory_check.uncompared(expected, records)
    assert line.startswith(f"{CASE}: 3 figures not compared")
    unbounded = record(*figures, case="other @sys:batch+gnu", conditions={"busy": "yes"})
    assert inventory_check.uncompared(expected, [record(*figures), unbounded]) == []


def test_a_row_that_is_gone_is_told_once(folder: Path, expected: Inventory) -> None:
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


def test_a_session_tells_the_first_of_many(expected: Inventory, folder: Path) -> None:
    rows = [{"id": f"r{n}", "metric": "bandwidth"} for n in range(8)]
    found = inventory.from_plan(
        [planned({row["id"]: ["bandwidth"] for row in rows})],
        references(
            folder, *({**row, "placement": "on-node", "ppn": n} for n, row in enumerate(rows))
        ),
    )
    edited, _, _ = inventory_check.differences("sys", found, [], references(folder))
    assert len(edited) == 6 and edited[-1] == "and 3 more: `plumbline lint --system sys` lists them"


def test_what_is_skipped_here_keeps_its_rows(folder: Path, expected: Inventory) -> None:
    """A site that has not built all: what is accepted there forgets nothing of the rest."""
    now = references(folder, *ROWS[:2])
    skipped = [planned({}, runs=False), planned({"fast": ["b"]}, "new @sys:batch+gnu")]
    found = inventory.from_plan(skipped, now, expected)
    assert found.cases[CASE] == {"slow": ["latency_8"], "fast": ["bandwidth"]}
    assert found.cases["new @sys:batch+gnu"] == {"fast": ["b"]}
    assert inventory.bounded_figures(skipped, now).keys() == {"new @sys:batch+gnu"}


# -- the commands --------------------------------------------------------------------------------

FIO = ["-n", "fio", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]


@pytest.fixture
def asserted(testbed: Testbed) -> Testbed:
    """A system of two test cases, each of which a row bounds, and its inventory."""
    testbed.environment("disk", "fio")
    testbed.refer(*BASELINE)
    assert testbed.plumbline("lint").code == 0
    return testbed


BASELINE = [
    {"id": way, "benchmark": "fio", "metric": f"{way}_bandwidth", "value": value, "unit": "MB/s"}
    for way, value in (("read", 1100), ("write", 1900))
]


def lines_of(done: Done, words: str) -> list[str]:
    return [line for line in done.said.splitlines() if words in line]


@pytest.mark.parametrize("edit", ["removed", "edited", "raised"])
def test_an_edit_fails_a_session_and_lint(asserted: Testbed, edit: str) -> None:
    """Also of a case that the session does not select."""
    if edit == "raised":
        path = asserted.reference / "tolerance.yaml"
        path.write_text(path.read_text().replace("floor: 0.05", "floor: 0.90"))
    else:
        asserted.refer(BASELINE[0], *([BASELINE[1] | {"value": 190}] if edit == "edited" else []))
    was = "reference write, which bounds 1 figure: "
    words = {
        "removed": f"{was}is gone; it was 1900, at least 1805 MB/s",
        "edited": f"{was}was 1900, at least 1805 MB/s; is 190, at",
        "raised": f"{was}was 1900, at least 1805 MB/s; is 1900, at least 190 MB/s",
    }[edit]
    command = "`plumbline lint --system testbed --accept`"
    run = asserted.plumbline("run", "-n", "fio.*read", *FIO[2:])
    assert run.code == 1
    assert [fields["result"] for fields in run.records] == ["pass"]
    (told,) = lines_of(run, words)
    assert command in told
    end = json.loads((run.session / "end.json").read_text())
    assert end["code"] == 1 and any(words in fault for fault in end["faults"])
    lint = asserted.plumbline("lint")
    assert lint.code == 1 and words in lint.err and command in lint.err
    # The exit code of the plain command is ReFrame's; the words are the same.
    plain = asserted.reframe("-c", CHECKS, "-r", "-n", "fio.*read", *FIO[2:])
    assert plain.code == 0 and lines_of(plain, words)
    last = plain.out.strip().splitlines()[-1]
    assert "not checked: whether 1 other test case of " in last and "plumbline run" in last
    if edit != "edited":
        assert asserted.plumbline("lint", "--accept").code == 0
        assert asserted.plumbline("lint").code == 0


def test_a_figure_that_its_row_no_longer_fits(asserted: Testbed) -> None:
    """Its cells were edited: nothing is gone, and less is asserted; -S may have asked for that."""
    asserted.refer(BASELINE[0], BASELINE[1] | {"conditions": "size=1024MiB"})
    words = "1 figure no longer bounded as expected: write_bandwidth by write; restore it"
    asked = asserted.plumbline("run", *FIO)
    assert asked.code == 0 and lines_of(asked, words)
    strict = asserted.plumbline("run", "--strict", *FIO)
    assert strict.code == 1 and lines_of(strict, words)


def test_a_baseline_is_told_until_it_is_accepted(testbed: Testbed) -> None:
    testbed.environment("disk", "fio")
    assert testbed.plumbline("lint").code == 0
    testbed.refer(*BASELINE)
    done = testbed.plumbline("run", "--strict", *FIO)
    assert done.code == 0
    told = lines_of(done, "1 figure with a new reference")
    assert len(told) == 2 and all("lint --system testbed --accept" in line for line in told)
    assert testbed.plumbline("lint").code == 1
    assert testbed.plumbline("lint", "--accept").code == 0
    again = testbed.plumbline("run", "--strict", *FIO)
    assert again.code == 0 and not lines_of(again, "new reference")


def test_a_shipped_inventory_of_what_is_not_built_fails_no_session(testbed: Testbed) -> None:
    """One environment is there, the other is not yet; the inventory has both."""
    testbed.environment("disk", "fio")
    testbed.refer(*BASELINE)
    testbed.lacking()
    assert testbed.plumbline("lint").code == 0
    path = testbed.systems / "inventory" / "testbed.json"
    shipped = json.loads(path.read_text())
    (case,) = [name for name in shipped["cases"] if "PingPong" in name and "on-socket" in name]
    with (testbed.reference / "site" / "testbed.csv").open() as file:
        rows = [*csv.DictReader(file)]
    latency = {"id": "ping", "benchmark": "imb", "metric": "pingpong_latency", "value": "2.00",
               "message_size": 8, "unit": "us"}  # fmt: skip
    testbed.refer(*rows, latency)
    shipped["cases"][case] = {"ping": ["pingpong_latency_8"]}
    shipped["references"]["ping"] = {"value": 2.0, "upper": 2.2, "unit": "us"}
    path.write_text(json.dumps(shipped))
    lint = testbed.plumbline("lint")
    assert lint.code == 0, lint.said
    done = testbed.plumbline("run", "-n", "fio|imb_p2p", *FIO[2:])
    assert done.code == 0, done.said
    assert {fields["result"] for fields in done.records} == {"pass", "skip"}
    accepted = testbed.plumbline("lint", "--accept")
    assert accepted.code == 0 and "are kept" in accepted.out
    assert json.loads(path.read_text()) == shipped
