"""Reference tables and registers are read whole, or their faults are named by line and column."""

from __future__ import annotations

import copy
import csv
import re
import shutil
from pathlib import Path

import pytest
import yaml
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.yamlfile import read_yaml
from plumbline.reference import lookup
from plumbline.reference.lookup import References
from plumbline.reference.tables import load, load_valid
from reference_tables import (
    COLUMNS,
    REGISTERS,
    ROW,
    SHIPPED,
    changed,
    folder_,  # noqa: F401 - a fixture
    references,
    refused,
    write,
)


def test_good_rows(folder: Path) -> None:
    full = {
        "toolchain": "gnu",
        "placement": "numa-0-3",
        "message_size": "0",
        "nodes": "2",
        "ppn": "4",
        "conditions": " port=0330 ; routing=static;",
        "value": " 1.5e3 ",
        "spread": "0.02",
        "value_used": "1.5",
        "unit_used": "GB/s",
        "statistic": "mean",
        "note": 'a misprint, "1500" for 1.5',
    }
    tables = references(folder, full, {"metric": "share", "unit": "%", "value": "-3"}).tables
    first, second = tables.rows.values()
    assert (first.id, first.source, first.toolchain) == ("r1", "paper", "gnu")
    assert (first.message_size, first.nodes, first.ppn) == (0, 2, 4)
    assert first.conditions == {"port": "0330", "routing": "static"}
    assert (first.value, first.spread, first.unit) == (1500, 0.02, "MB/s")
    assert first.used("MB/s") == pytest.approx((1500, 20))
    assert first.variable == "bandwidth_0"
    assert first.note == 'a misprint, "1500" for 1.5'
    assert second.variable == "share"
    assert (second.message_size, second.nodes, second.ppn, second.spread) == (None,) * 4
    assert (second.toolchain, second.placement, second.conditions) == ("", "", {})
    assert second.used("percent") == (-3, 0)
    assert tables.where["r2"] == f"{folder / 'paper.csv'}:3"
    assert tables.printed["r1"]["value"] == " 1.5e3 "


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "fast"},
        {"unit": "furlong"},
        {"source": "hearsay"},
        {"metric": "no-such"},
        {"spread": "2000"},
        {"id": "r1"},  # of two rows with one id, and
        {"system": "one"},  # of two with one key, the first is kept.
    ],
)
def test_who_only_shows_references_skips_an_invalid_row(folder: Path, wrong: dict) -> None:
    write(folder / "paper.csv", {"system": "one"}, {"system": "other"} | wrong, {"system": "two"})
    with refused("paper.csv:3"):
        load(folder)
    tables, faults = load_valid(folder)
    assert sorted(tables.rows) == ["r1", "r3"]
    assert len(faults) == 1 and f"{folder / 'paper.csv'}:3: " in faults[0]


def test_an_invalid_table_does_not_hide_the_others(folder: Path) -> None:
    write(folder / "paper.csv", {})
    (folder / "sys.csv").write_text("id,colour\n")
    tables, faults = load_valid(folder)
    assert [*tables.rows] == ["r1"] and f"{folder / 'sys.csv'}:1: " in faults[0]


def test_an_exception_of_a_row_that_was_skipped_is_of_no_row(folder: Path) -> None:
    rules = copy.deepcopy(REGISTERS["tolerance.yaml"])
    rules["exceptions"] = [{"rows": ["r1"], "variation": "r2", "reason": "printed"}]
    (folder / "tolerance.yaml").write_text(yaml.safe_dump(rules))
    write(folder / "paper.csv", {}, {"metric": "share", "value": "x", "unit": "%"})
    tables, faults = load_valid(folder)
    found = References(tables)
    assert len(faults) == 2 and found.rule_of(tables.rows["r1"]) == found.rule(
        found.fom("bench", "bandwidth")
    )


def test_invalid_registers_are_refused_with_any_table(folder: Path) -> None:
    (folder / "foms.yaml").write_text(
        "bench: [{class: no-such, unit: MB/s, metrics: [bandwidth]}]\n"
    )
    write(folder / "paper.csv", {})
    with refused("no-such"):
        load_valid(folder)


def test_every_table_is_read(folder: Path) -> None:
    write(folder / "b.csv", {"id": "b"})
    write(folder / "a.csv", {"id": "a", "system": "a"})
    write(folder / "c.csv", {"id": "c", "source": "site"})
    assert list(load(folder).rows) == ["a", "b", "c"]


def test_no_table(folder: Path) -> None:
    assert load(folder).rows == {}


def test_only_a_key_that_a_mapping_itself_has_twice_is_refused(tmp_path: Path) -> None:
    """One may override what `<<` adds, also in a mapping that another one adds."""
    path = tmp_path / "merged.yaml"
    path.write_text("""\
one: &one {a: 1, b: 2, inner: {a: 0}}
outer: {two: &two {<<: *one, a: 3}}
three: {<<: *two, b: 4}
1: number
"1": text
itself: &itself [*itself]
""")
    content = read_yaml(path)
    assert content["outer"]["two"] == {"a": 3, "b": 2, "inner": {"a": 0}}
    assert content["three"] == {"a": 3, "b": 4, "inner": {"a": 0}}
    assert (content[1], content["1"]) == ("number", "text")
    path.write_text("- {a: 1}\n- x:\n    - {b: 1,\n       b: 1}\n")
    with pytest.raises(Fault, match=r"merged\.yaml:4:8: .* 'b' .* line 3\b") as refusal:
        read_yaml(path)
    assert refusal.value.code == "input.wrong-file"


def test_osu_with_another_number_of_iterations_is_another_measurement() -> None:
    """The number was in the register twice, and the later entry did not need to be met."""
    assert load(paths.reference()).conditions["iterations"].role == "condition"


def test_shipped_tables_are_good(tmp_path: Path) -> None:
    """Those of the repository, without a site's own."""
    for path in [*SHIPPED.glob("*.yaml"), *SHIPPED.glob("*.csv")]:
        shutil.copy(path, tmp_path)
    tables = load(tmp_path)
    lines = sum(
        len(list(csv.DictReader(path.open(encoding="utf-8")))) for path in tmp_path.glob("*.csv")
    )
    assert len(tables.rows) == lines


#: Column -> cells that cannot be in it.
CELLS = {
    "placement": ["on-moon", "numa-0"],
    "value": ["", "fast", "1,000", "> 450", "12 MB/s", "nan", "inf", "-5", "0"],
    "value_used": ["five"],
    "spread": ["1001", "-1", "nan", "0.5 %"],
    "unit": ["parrots/s", "us", "MB", ""],
    "unit_used": ["us"],
    "statistic": ["average", "Mean", ""],
    "kind": ["guessed", ""],
    "source": ["blog", ""],
    "metric": ["bandwith", ""],
    "benchmark": ["bunch"],
    "system": [" "],
    "locator": [""],
    "id": [""],
    "message_size": ["8 B", "-8"],
    "nodes": ["two"],
    "ppn": ["1.5"],
    "conditions": ["port", "port=", "=0330", "port=1;port=2"],
}

#: What is wrong in the second of two rows -> the column that is named, and what of it is quoted.
FAULTY = [
    *(({column: cell}, column, cell) for column, cells in CELLS.items() for cell in cells),
    ({"value_used": "-5"}, "value", "-5"),
    ({"id": "r1"}, "id", "paper.csv:2"),
    ({"id": "r9"}, "id", "paper.csv:2"),
    ({"conditions": "weather=hot"}, "conditions", "'weather'"),
]


@pytest.mark.parametrize(("cells", "column", "quoted"), FAULTY)
def test_faulty_row(folder: Path, cells: dict, column: str, quoted: str) -> None:
    # A repeated key is a fault of its own: only the row that tests it repeats one.
    other = {} if cells.get("id") == "r9" else {"placement": "one-core"}
    write(folder / "paper.csv", {}, other | cells)
    with pytest.raises(Fault) as refusal:
        load(folder)
    (line,) = str(refusal.value).splitlines()
    name = cells.get("id", "r2")
    place = f"{folder / 'paper.csv'}:3: {f'row {name}: ' if name else ''}column {column}: "
    assert line.startswith(place) and quoted in line.removeprefix(place)
    assert refusal.value.code == "reference.wrong-table"


@pytest.mark.parametrize("statistic", ["best", "mean", "median", "single", "unstated"])
def test_zero_is_no_bound_and_may_be_data(folder: Path, statistic: str) -> None:
    for row in ({"value": "0", "statistic": "std"}, {"value": "0", "kind": "target"}):
        references(folder, row)
    with refused("paper.csv:2: row r1: column value: "):
        references(folder, {"value": "0", "statistic": statistic})


def test_all_faults_are_reported(folder: Path) -> None:
    write(folder / "a.csv", {"id": "a", "value": "x", "kind": "y"}, {"source": "z"})
    write(folder / "b.csv", {"id": "a", "system": "b"}, {"id": "r2", "system": "c"})
    with pytest.raises(Fault) as raised:
        load(folder)
    lines = str(raised.value).replace(f"{folder}/", "").splitlines()
    assert sorted(line.split(": ")[:3] for line in lines) == [
        ["a.csv:2", "row a", "column kind"],
        ["a.csv:2", "row a", "column value"],
        ["a.csv:3", "row r2", "column source"],
        ["b.csv:3", "row r2", "column id"],
    ]


@pytest.mark.parametrize("column", sorted(ROW))
def test_missing_column(folder: Path, column: str) -> None:
    write(folder / "paper.csv", {}, columns=[name for name in COLUMNS if name != column])
    with refused("paper.csv:1: ", f" {column}"):
        load(folder)


@pytest.mark.parametrize(
    ("columns", "quoted"),
    [
        ([*COLUMNS, "comment"], "'comment'"),
        ([*COLUMNS, "value"], "repeated"),
        (["\ufeffid", *COLUMNS[1:]], "id"),
        ([name.upper() for name in COLUMNS], "'ID'"),
        ([], "id"),
    ],
)
def test_wrong_header(folder: Path, columns: list, quoted: str) -> None:
    write(folder / "paper.csv", {}, columns=columns)
    with refused("paper.csv:1: columns: ", quoted):
        load(folder)


@pytest.mark.parametrize("change", [lambda line: line + ",extra", lambda line: line[:-1]])
def test_more_or_fewer_cells(folder: Path, change: object) -> None:
    path = folder / "paper.csv"
    write(path, {}, {"placement": "one-core"})
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], change(lines[2])]) + "\n")
    with refused("paper.csv:3: row r2: column note: "):
        load(folder)


@pytest.mark.parametrize(
    ("damage", "line"),
    [(b'r3,"paper', 3), (b'r3,"pa"per,table 1\n', 3), (b"r3,paper\xff,table 1\n", 1)],
    ids=["open quote", "text after a quote", "no UTF-8"],
)
def test_garbled_table(folder: Path, damage: bytes, line: int) -> None:
    path = folder / "paper.csv"
    write(path, {})
    path.write_bytes(path.read_bytes() + damage)
    with refused(f"paper.csv:{line}: "):
        load(folder)


@pytest.mark.parametrize("name", REGISTERS)
@pytest.mark.parametrize(
    ("text", "where", "code"),
    [
        ("a: [1,\n", r":\d+:\d+: ", "input.wrong-file"),
        ("a: 1\n b: 2\n", r":2:\d+: ", "input.wrong-file"),
        ("\tx: 1\n", r":1:1: ", "input.wrong-file"),
        ("a: !!python/none 1\n", r":1:\d+: ", "input.wrong-file"),
        ("a: {b: 1}\nc: 1\na: {}\n", r":3:1: ", "input.wrong-file"),
        ("", ": file: ", "input.wrong-file"),
        ("text\n", ": file: ", "input.wrong-file"),
        ("- 1\n", ": file: ", "input.wrong-file"),
        ("a: 1\n", ": ", "input.wrong-file"),
        ("\0", ": ", "input.unreadable-file"),
        (None, ": ", "input.unreadable-file"),
    ],
)
def test_malformed_register(folder: Path, name: str, text: str | None, where: str, code: str):
    path = folder / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(Fault, match=re.escape(str(path)) + where) as refusal:
        load(folder)
    assert refusal.value.code == code


#: Register, keys to the entry that changes and what takes its place -> how the fault begins.
FAULTY_REGISTERS = [
    ("tolerance.yaml", ("classes", "up", "flor", 0.05), "classes.up.flor: "),
    ("tolerance.yaml", ("classes", "up", "floor", 1.5), "classes.up.floor: "),
    ("tolerance.yaml", ("classes", "up", "floor", -0.1), "classes.up.floor: "),
    ("tolerance.yaml", ("classes", "up", "spreads", -1), "classes.up.spreads: "),
    ("tolerance.yaml", ("classes", "up", "better", "faster"), "classes.up.better: "),
    ("tolerance.yaml", ("classes", "up", "reason", ""), "classes.up.reason: "),
    ("tolerance.yaml", ("decides", ["typical"]), "decides.0: "),
    ("tolerance.yaml", ("baseline", "sessions", 1), "baseline.sessions: "),
    ("tolerance.yaml", ("warning", "share", 1.0), "warning.share: "),
    ("tolerance.yaml", ("warning", "share", 0), "warning.share: "),
    ("tolerance.yaml", ("warning", "reason", ""), "warning.reason: "),
    ("tolerance.yaml", ("classes", "up", "warning_share", 80), "classes.up.warning_share: "),
    ("foms.yaml", ("bench", 0, "class", "sideways"), "bench bandwidth: class 'sideways'"),
    ("foms.yaml", ("bench", 0, "unit", "parrots"), "bench bandwidth: unit: "),
    ("foms.yaml", ("bench", 0, "metrics", ["capped"]), "bench: capped "),
    ("foms.yaml", ("bench", 1, "ceilings", ["bench/no"]), "bench capped: ceiling 'bench/no'"),
    ("foms.yaml", ("bench", 1, "ceilings", ["no"]), "bench capped: ceiling 'no'"),
    ("foms.yaml", ("bench", 0, "klass", "up"), "bench.0.klass: "),
    ("foms.yaml", ("other", 0, "same_as", ["bench/no"]), "other stream: same_as 'bench/no'"),
    ("foms.yaml", ("other", 0, "same_as", ["no"]), "other stream: same_as 'no'"),
    ("foms.yaml", ("other", 0, "same_as", ["bench/latency"]), "other stream: same_as 'bench/lat"),
    ("foms.yaml", ("other", 0, "unit", "flop/s"), "other stream: same_as 'bench/bandwidth'"),
    ("tolerance.yaml", ("classes", "noisy", "samples", 0), "classes.noisy.samples: "),
    ("sources.yaml", ("paper", "title", ""), "paper.title: "),
    ("sources.yaml", ("paper", "yaer", 2030), "paper.yaer: "),
    ("conditions.yaml", ("port", "role", "decoration"), "port.role: "),
    ("conditions.yaml", ("port", "meaning", ""), "port.meaning: "),
]


@pytest.mark.parametrize(("name", "change", "begins"), FAULTY_REGISTERS)
def test_faulty_register(folder: Path, name: str, change: tuple, begins: str) -> None:
    (folder / name).write_text(changed(name, *change))
    with pytest.raises(Fault) as refusal:
        load(folder)
    assert str(refusal.value).startswith(f"{folder / name}: {begins}")
    assert refusal.value.code in ("input.wrong-file", "reference.wrong-table")


def test_site_baseline_keeps_the_published_unit(folder: Path) -> None:
    site = {"source": "site", "id": "s", "value": "1"}
    references(folder, {}, site | {"unit": "Mbytes/sec"})
    with refused("sys.csv:2: row s: column unit: 'GB/s'", "r1"):
        references(folder, {}, site | {"unit": "GB/s"})


@pytest.mark.parametrize("runs", ["many", "0", "-1"])
def test_number_of_runs_is_a_number(folder: Path, runs: str) -> None:
    """Judging by such a row would end in an exception."""
    with refused("column conditions: "):
        references(folder, {"metric": "ring", "unit": "us", "conditions": f"runs={runs}"})


def test_loaded_once(folder: Path) -> None:
    first = lookup.loaded(folder)
    assert lookup.loaded(folder) is first
