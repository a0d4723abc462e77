"""References: tables are read whole or refused by name, matched, and turned into bounds."""

from __future__ import annotations

import copy
import csv
import dataclasses
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.yamlfile import read_yaml
from plumbline.reference import lookup
from plumbline.reference.lookup import References, summarize
from plumbline.reference.row import Case, Row, key_of
from plumbline.reference.tables import load, load_valid

SHIPPED = Path(__file__).parents[1] / "reference"

#: A class of figures of which one run says little.
DISTRIBUTED = {"floor": 0, "spreads": 3, "distribution": True, "samples": 3, "reason": "it varies"}

#: Registers with round numbers, so that the tests' arithmetic is done by hand.
REGISTERS = {
    "sources.yaml": {
        "site": {"title": "Site baseline"},
        "paper": {"title": "A paper", "venue": "SC", "year": 2030},
        "other": {"title": "Another paper"},
    },
    "conditions.yaml": {
        "partition": {"meaning": "the partition"},
        "port": {"meaning": "the ports in use"},
        "routing": {"meaning": "static or adaptive"},
        "variant": {"meaning": "the variant"},
        "gpu_mode": {"meaning": "how GPUs are divided"},
        "runs": {"meaning": "runs behind the mean", "role": "describes"},
        "bound": {"meaning": "the number is a bound", "role": "data"},
    },
    "tolerance.yaml": {
        "classes": {
            "up": {"better": "higher", "floor": 0.05, "spreads": 3, "reason": "more is better"},
            "down": {"better": "lower", "floor": 0.10, "spreads": 3, "reason": "less is better"},
            "noisy": DISTRIBUTED | {"better": "lower"},
            "noisy-up": DISTRIBUTED | {"better": "higher"},
            "data": {"better": "neither", "floor": 0, "spreads": 0, "reason": "nothing to hold"},
        },
        "decides": ["median", "mean", "best", "single", "unstated"],
        "warning": {"share": 0.8, "reason": "most of what is allowed"},
        "wide": {"loss": 0.33, "reason": "too wide"},
        "suspicious": {"distances": 2, "times": 1.5, "reason": "too good"},
        "baseline": {"sessions": 3, "noise": 0.15, "alarms": 0.001},
    },
    "links.yaml": {},
    "foms.yaml": {
        "bench": [
            {"class": "up", "unit": "MB/s", "metrics": ["bandwidth", "peak_bandwidth"]},
            {"class": "up", "unit": "MB/s", "unstated_size": 4096, "metrics": ["capped"],
             "ceilings": ["bench/peak_bandwidth"]},
            {"class": "down", "unit": "us", "resolution": 0.01, "unstated_size": 8,
             "metrics": ["latency"]},
            {"class": "noisy", "unit": "us", "metrics": ["ring"]},
            {"class": "noisy-up", "unit": "MB/s", "metrics": ["ring_bandwidth"]},
            {"class": "data", "unit": "percent", "metrics": ["share"]},
        ],
        "other": [
            {"class": "up", "unit": "GB/s", "same_as": ["bench/bandwidth", "bench/capped"],
             "metrics": ["stream"]},
        ],
    },
}  # fmt: skip

COLUMNS = [
    *("id", "source", "locator", "system", "toolchain", "benchmark", "metric", "placement"),
    *("message_size", "nodes", "ppn", "conditions", "value", "spread", "unit"),
    *("value_used", "unit_used", "statistic", "kind", "note"),
]

#: What a row says that a test does not change.
ROW = {
    "id": "r",
    "source": "paper",
    "locator": "table 1",
    "system": "sys",
    "benchmark": "bench",
    "metric": "bandwidth",
    "value": "1000",
    "unit": "MB/s",
    "statistic": "unstated",
    "kind": "measured",
}

LATENCY = {"metric": "latency", "unit": "us", "value": "10"}

#: A row of a distribution that decides.
RING = LATENCY | {"metric": "ring", "spread": "2.0", "statistic": "mean", "value": "10.0"}

CASE = Case("sys", "batch", "gnu", "bench", "on-node", 1, 2, {"port": "0330"})


def registers(folder: Path) -> Path:
    """Writes what tables need beside them into a folder."""
    for name, content in REGISTERS.items():
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return registers(tmp_path)


@contextmanager
def refused(*words: str, code: str = "reference.wrong-table") -> Iterator[None]:
    """A refusal with this code, whose message has these words."""
    with pytest.raises(Fault) as refusal:
        yield
    assert refusal.value.code == code
    assert [word for word in words if word not in str(refusal.value)] == []


def write(path: Path, *rows: dict, columns: list[str] = COLUMNS) -> None:
    """Writes a table; each row changes some cells of the usual one."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(ROW | {"id": f"r{n}"} | row for n, row in enumerate(rows, start=1))


def references(folder: Path, *rows: dict) -> References:
    """The references of published rows, and of a site's own where a row says so."""
    named = [{"id": f"r{n}"} | row for n, row in enumerate(rows, start=1)]
    write(folder / "paper.csv", *(row for row in named if row.get("source") != "site"))
    write(folder / "sys.csv", *(row for row in named if row.get("source") == "site"))
    return References(load(folder))


# -- reading -------------------------------------------------------------------------------------


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


def changed(name: str, *keys: object) -> str:
    """A register with one entry changed: the keys to it, then what takes its place."""
    content = yaml.safe_load(yaml.safe_dump(REGISTERS[name]))
    inner = content
    for key in keys[:-2]:
        inner = inner[key]
    inner[keys[-2]] = keys[-1]
    return yaml.safe_dump(content, sort_keys=False)


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


# -- matching ------------------------------------------------------------------------------------


def decided(refs: References, case: Case = CASE, metric: str = "bandwidth", size=None) -> tuple:
    """Id of the row that decides, then those of its equals."""
    bounds = refs.bounds(case, metric, size)
    return (bounds.decides, *bounds.others) if bounds else ()


#: Cells of rows r1, r2 ... -> the row that decides, and its equals.
MATCHES = [
    ([], ""),
    ([{}], "r1"),
    # A stated cell must be met ...
    ([{"system": "elsewhere"}], ""),
    ([{"benchmark": "bench", "metric": "peak_bandwidth"}], ""),
    ([{"toolchain": "intel"}], ""),
    ([{"placement": "on-socket"}], ""),
    ([{"nodes": "2"}], ""),
    ([{"ppn": "1"}], ""),
    ([{"conditions": "port=03"}], ""),
    ([{"conditions": "routing=static"}], ""),
    ([{"conditions": "port=0330;routing=static"}], ""),
    ([{"conditions": "partition=debug"}], ""),
    ([{"message_size": "8"}], ""),
    # ... and then counts.
    ([{"toolchain": "gnu"}], "r1"),
    ([{"placement": "on-node", "nodes": "1", "ppn": "2", "conditions": "port=0330"}], "r1"),
    ([{"conditions": "partition=batch"}], "r1"),
    ([{}, {"toolchain": "gnu"}], "r2"),
    ([{"toolchain": "gnu"}, {"toolchain": "gnu", "nodes": "1"}], "r2"),
    ([{"toolchain": "gnu", "nodes": "1"}, {"conditions": "port=0330"}], "r1"),
    ([{"nodes": "1", "ppn": "1"}, {}], "r2"),
    # Equals are all named; the order of `decides` picks, then the id.
    ([{"toolchain": "gnu"}, {"placement": "on-node"}], "r1 r2"),
    ([{"statistic": "single"}, {"statistic": "mean"}, {"statistic": "best"}], "r2 r3 r1"),
    ([{"statistic": "unstated"}, {"statistic": "median"}], "r2 r1"),
    ([{"id": "z"}, {"id": "a", "source": "other"}], "a z"),
    # What is no measurement bounds nothing.
    ([{"kind": "peak"}], ""),
    ([{"kind": "target"}, {"kind": "derived"}], ""),
    ([{"statistic": "std"}], ""),
    ([{"statistic": "min"}, {"statistic": "max"}, {"statistic": "p99"}], ""),
    ([{"statistic": "std"}, {"statistic": "mean"}], "r2"),
    ([{"conditions": "bound=lower"}], ""),
    ([{"conditions": "bound=lower;port=0330"}, {}], "r2"),
    # Nor does a more specific row, or one of the site, hide one that does.
    ([{}, {"statistic": "std", "toolchain": "gnu"}], "r1"),
    ([{}, {"statistic": "max", "nodes": "1"}], "r1"),
    ([{}, {"source": "site", "id": "s", "statistic": "std", "value": "10"}], "r1"),
    # What only describes need not be met and makes nothing more specific.
    ([{"conditions": "runs=5"}], "r1"),
    ([{"conditions": "runs=5"}, {}], "r1 r2"),
    # A site's own rows win, even the less specific one.
    ([{"toolchain": "gnu", "placement": "on-node"}, {"source": "site"}], "r2"),
    ([{"toolchain": "gnu"}, {"source": "site", "id": "s", "statistic": "unstated"}], "s"),
    ([{"toolchain": "gnu"}, {"source": "site", "id": "s", "placement": "on-socket"}], "r1"),
    ([{"source": "site", "id": "s"}, {"source": "site", "id": "t", "nodes": "1"}], "t"),
]


@pytest.mark.parametrize(("rows", "ids"), MATCHES)
def test_matching(folder: Path, rows: list, ids: str) -> None:
    assert decided(references(folder, *rows)) == tuple(ids.split())


def test_a_part_of_a_gpu_is_not_compared_with_a_whole_one(folder: Path) -> None:
    """Nor the other way, by a published row or by a baseline."""
    part = dataclasses.replace(CASE, conditions={**CASE.conditions, "gpu_mode": "CPX/NPS4"})
    of_part = {"id": "p", "conditions": "gpu_mode=CPX/NPS4"}
    assert decided(references(folder, {}), part) == ()
    both = references(folder, {}, of_part)
    assert (decided(both), decided(both, part)) == (("r1",), ("p",))
    baseline = references(folder, {"source": "site", "id": "s"}, of_part | {"source": "site"})
    assert (decided(baseline), decided(baseline, part)) == (("s",), ("p",))


def test_the_peak_of_a_gpu_caps_its_parts(folder: Path) -> None:
    """But not what two parts of one GPU exchange, and a part may be quicker than the whole."""
    conditions = {**CASE.conditions, "gpu_mode": "CPX/NPS4"}
    part = dataclasses.replace(CASE, conditions=conditions, placement="per-gpu")
    pair = dataclasses.replace(part, placement="gpu-a")
    all_of_a_node = dataclasses.replace(part, placement="gpus-on-node")
    peak = {"id": "w", "kind": "peak", "value": "200"}
    known = references(folder, peak)
    capped = [known.ceiling(case, "bandwidth", None) for case in (part, pair, all_of_a_node)]
    assert [cap and cap.row for cap in capped] == ["w", None, None]
    # That of the part itself, if it is lower.
    of_part = {"id": "p", "kind": "peak", "value": "50", "conditions": "gpu_mode=CPX/NPS4"}
    both = references(folder, peak, of_part)
    assert [both.ceiling(case, "bandwidth", None).row for case in (part, pair)] == ["p", "p"]
    whole = dataclasses.replace(part, conditions=CASE.conditions)
    assert both.ceiling(whole, "bandwidth", None).row == "w"
    quick = references(folder, {"id": "l", "kind": "peak", "metric": "latency", "unit": "us"})
    assert quick.ceiling(part, "latency", None) is None
    assert quick.ceiling(whole, "latency", None).row == "l"


def test_a_baseline_bounds_only_the_variant_that_it_was_measured_under(folder: Path) -> None:
    variant = dataclasses.replace(CASE, conditions={**CASE.conditions, "variant": "tm-off"})
    site = {"source": "site", "id": "s"}
    of_variant = {"source": "site", "id": "v", "conditions": "variant=tm-off"}
    assert decided(references(folder, {}, site)) == ("s",)
    # A published row that states no variant bounds any.
    assert decided(references(folder, {}, site), variant) == ("r1",)
    both = references(folder, {}, site, of_variant)
    assert (decided(both), decided(both, variant)) == (("s",), ("v",))


#: Metric, size of the row, size asked for -> whether it matches.
SIZES = [
    ("bandwidth", "", None, True),
    ("bandwidth", "8", 8, True),
    ("bandwidth", "8", 16, False),
    ("bandwidth", "8", None, False),
    ("bandwidth", "", 8, False),
    ("bandwidth", "0", 0, True),
    ("bandwidth", "0", None, False),
    ("bandwidth", "", 0, False),
    # A latency that states no size is that of the small message that foms.yaml says.
    ("latency", "", 8, True),
    ("latency", "", 16, False),
    ("latency", "", 0, False),
    ("latency", "", None, True),
    ("latency", "16", 8, False),
    ("latency", "16", 16, True),
]


@pytest.mark.parametrize(("metric", "stated", "asked", "matches"), SIZES)
def test_size(folder: Path, metric: str, stated: str, asked: int | None, matches: bool) -> None:
    unit = {"bandwidth": "MB/s", "latency": "us"}[metric]
    refs = references(folder, {"metric": metric, "unit": unit, "message_size": stated})
    assert decided(refs, CASE, metric, asked) == (("r1",) if matches else ())


def test_stated_size_is_more_specific(folder: Path) -> None:
    refs = references(folder, LATENCY, LATENCY | {"message_size": "8"})
    assert decided(refs, CASE, "latency", 8) == ("r2",)


def test_metric_that_is_not_registered(folder: Path) -> None:
    with refused("foms.yaml", "'bench'", "'speed'", code="reference.unknown-metric"):
        references(folder, {}).judge(CASE, "speed", None, [1.0])


# -- bounds --------------------------------------------------------------------------------------

INF = math.inf

#: Cells of the row, number of runs -> reference, lower and upper bound.
BOUNDS = [
    # Higher is better: minus the larger of 5 % and three spreads.
    ({}, 1, (1000, 950, INF)),
    ({"spread": "0"}, 1, (1000, 950, INF)),
    ({"spread": "10"}, 1, (1000, 950, INF)),
    ({"spread": "20"}, 1, (1000, 940, INF)),
    ({"unit": "GB/s", "value": "2.00", "spread": "0.1"}, 1, (2000, 1700, INF)),
    ({"unit": "MiB/s", "value": "1000"}, 1, (1048.576, 996.1472, INF)),
    ({"value_used": "500"}, 1, (500, 475, INF)),
    ({"unit_used": "GB/s", "value_used": "3.0", "spread": "0.1"}, 1, (3000, 2700, INF)),
    # Lower is better: plus the larger of 10 % and three spreads, at least the resolution.
    (LATENCY, 1, (10, -INF, 11)),
    (LATENCY | {"spread": "0.1"}, 1, (10, -INF, 11)),
    (LATENCY | {"spread": "0.5"}, 1, (10, -INF, 11.5)),
    (LATENCY | {"value": "0.05"}, 1, (0.05, -INF, 0.06)),
    (LATENCY | {"value": "0.050"}, 1, (0.05, -INF, 0.06)),
    (LATENCY | {"value": "0.10"}, 1, (0.1, -INF, 0.11)),
    (LATENCY | {"value": "0.0020", "unit": "ms"}, 1, (2, -INF, 2.2)),
    # Never less than the last printed digit: what is printed as 2 may have been 1.5.
    ({"value": "2", "unit": "GB/s"}, 1, (2000, 1000, INF)),
    ({"value": "2.0", "unit": "GB/s"}, 1, (2000, 1900, INF)),
    ({"value": "9.9e2"}, 1, (990, 940.5, INF)),
    ({"value": "1e3", "unit_used": "GB/s", "value_used": "7"}, 1, (7000, 6000, INF)),
    (LATENCY | {"value": "0.1"}, 1, (0.1, -INF, 0.2)),
]


@pytest.mark.parametrize(("cells", "runs", "expected"), BOUNDS)
def test_bounds(folder: Path, cells: dict, runs: int, expected: tuple) -> None:
    row = ROW | cells
    bounds = references(folder, cells).bounds(CASE, row["metric"], None, runs)
    assert (bounds.value, bounds.lower, bounds.upper) == pytest.approx(expected, rel=1e-12)
    assert (bounds.decides, bounds.statistic) == ("r1", "unstated")
    assert bounds.source == "A paper, SC, 2030, table 1"


def excepting(folder: Path, **fields: object) -> None:
    """Writes an exception for row r1 into the folder's tolerances."""
    found = REGISTERS["tolerance.yaml"] | {"exceptions": [{"rows": ["r1"], **fields}]}
    (folder / "tolerance.yaml").write_text(yaml.safe_dump(found))


VARIATION = {"id": "v", "metric": "share", "unit": "%", "value": "9", "conditions": "bound=upper"}


def test_an_exception_takes_the_place_of_the_floor_of_its_class(folder: Path) -> None:
    excepting(folder, floor=0.02, reason="it repeats well")
    found = references(folder, {}, {"metric": "capped"})
    assert found.bounds(CASE, "bandwidth", None).lower == pytest.approx(980)
    assert found.bounds(CASE, "capped", 4096).lower == pytest.approx(950)
    # The printed spread is as it was.
    wide = references(folder, {"spread": "10"})
    assert wide.bounds(CASE, "bandwidth", None).lower == pytest.approx(970)


def test_an_exception_may_be_a_printed_variation_also_for_another_program(folder: Path) -> None:
    excepting(folder, variation="v", reason="so it is printed")
    found = references(folder, {}, VARIATION)
    assert found.bounds(CASE, "bandwidth", None).lower == pytest.approx(910)
    other = replace(CASE, benchmark="other")
    assert found.bounds(other, "stream", None).lower == pytest.approx(0.910)


def test_an_exception_may_be_the_statistic_that_decides_of_a_distribution(folder: Path) -> None:
    """By the rule of its class, of as many samples; the mean is data then."""
    excepting(folder, rows=["r?"], statistic="median", reason="an outlier")
    median = RING | {"statistic": "median", "value": "8.0", "spread": ""}
    refs = references(folder, RING, median)
    assert decided(refs, CASE, "ring") == ("r2",)
    bounds = refs.bounds(CASE, "ring", None)
    assert (bounds.upper, bounds.statistic) == (pytest.approx(8.1), "median")
    assert refs.judge(CASE, "ring", None, [8, 99, 8]).verdict == "pass"
    assert refs.judge(CASE, "ring", None, [8, 9, 9]).verdict == "fail"
    assert refs.judge(CASE, "ring", None, [8, 9]).verdict == "not-asserted"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"floor": 0.1, "variation": "v"}, "input.wrong-file", ["exceptions.0: "]),
        ({"floor": 0.1, "statistic": "median"}, "input.wrong-file", ["exceptions.0: "]),
        ({}, "input.wrong-file", ["exceptions.0: "]),
        ({"variation": "w"}, "reference.wrong-table", ["exceptions.0.variation: ", "'w'"]),
        ({"variation": "r1"}, "reference.wrong-table", ["exceptions.0.variation: r1 ", "'MB/s'"]),
        ({"floor": 0.1, "rows": ["q*"]}, "reference.wrong-table", ["exceptions.0.rows: ", "'q*'"]),
    ],
)
def test_faulty_exception(folder: Path, fields: dict, code: str, words: list[str]) -> None:
    excepting(folder, reason="why not", **fields)
    with refused(*words, code=code):
        references(folder, {}, VARIATION)


def test_a_row_has_one_exception(folder: Path) -> None:
    excepting(folder, floor=0.1, reason="one", rows=["r1"])
    content = yaml.safe_load((folder / "tolerance.yaml").read_text())
    content["exceptions"] *= 2
    (folder / "tolerance.yaml").write_text(yaml.safe_dump(content))
    with refused("exceptions: r1 "):
        references(folder, {})


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("peak-stream-triad-44c", 0.09),
        ("sierra-stream-copy-40c", 0.09),
        ("peak-babelstream-triad", 0.10),
        ("summit-osu-latency-tm-on-1024", 0.03),
        ("summit-osu-latency-tm-on-512", 0.10),
    ],
)
def test_printed_variation_is_the_tolerance_of_its_rows(name: str, share: float) -> None:
    found = References(load(SHIPPED))
    bounds = found.bounds_of(found.tables.rows[name])
    bound = bounds.lower if math.isinf(bounds.upper) else bounds.upper
    assert abs(bound / bounds.value - 1) == pytest.approx(share)


#: Cells of a distribution's row, number of runs -> reference, lower and upper bound: three standard
#: errors, sqrt(1/runs + 1/n), of the spread and half of its last digit, and half of the value's.
DISTRIBUTIONS = [
    ({"conditions": "runs=3"}, 3, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(2 / 3))),
    ({"conditions": "runs=4"}, 4, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(1 / 2))),
    ({"conditions": "runs=20"}, 10, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(3 / 20))),
    # A row that tells no runs is one run, and a caller that tells none has as few as must be.
    ({}, 4, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(5 / 4))),
    ({"conditions": "runs=6"}, None, (10, -INF, 10.05 + 3 * 2.05 * math.sqrt(1 / 2))),
    # A spread printed as 0.0 is anything below 0.05.
    ({"spread": "0.0", "conditions": "runs=4"}, 4, (10, -INF, 10.05 + 0.15 * math.sqrt(1 / 2))),
    # The printed digit is the least, as of any class.
    ({"spread": "0.00", "value": "10", "conditions": "runs=9"}, 9, (10, -INF, 11)),
    ({"spread": "2", "unit": "ms", "value": "10"}, 4, (1e4, -INF, 10500 + 7500 * 5**0.5 / 2)),
    ({"metric": "ring_bandwidth", "unit": "MB/s", "value": "1000", "spread": "100",
      "conditions": "runs=9"}, 16, (1000, 999.5 - 301.5 * 5 / 12, INF)),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "runs", "expected"), DISTRIBUTIONS)
def test_bounds_of_a_distribution(
    folder: Path, cells: dict, runs: int | None, expected: tuple
) -> None:
    row = RING | cells
    bounds = references(folder, row).bounds(CASE, row["metric"], None, runs)
    assert (bounds.value, bounds.lower, bounds.upper) == pytest.approx(expected, rel=1e-12)
    assert bounds.statistic == "mean"


def test_a_distribution_has_the_floor_of_other_figures() -> None:
    """Sierra's ten runs of 7.1 ± 0.0 us were of one night, on one set of nodes."""
    found = References(load(SHIPPED))
    bounds = found.bounds_of(
        found.tables.rows["sierra-gpcnet-random-ring-latency-p99-isolated-03-mean"]
    )
    assert bounds.upper == pytest.approx(7.1 * 1.1)
    classes = found.tables.rules.classes
    for kind in ("bandwidth", "latency"):
        assert classes[f"distribution-{kind}"].floor == classes[kind].floor


@pytest.mark.parametrize("statistic", ["median", "best", "single", "unstated"])
def test_of_a_distribution_only_the_mean_decides(folder: Path, statistic: str) -> None:
    """A median printed without a spread would allow no more than its last digit."""
    other = RING | {"statistic": statistic, "value": "8", "spread": ""}
    assert decided(references(folder, other, RING), CASE, "ring") == ("r2",)
    assert decided(references(folder, other), CASE, "ring") == ()
    # One that states more conditions does not shadow the mean either.
    assert decided(references(folder, other | {"nodes": "1"}, RING), CASE, "ring") == ("r2",)


def test_a_distribution_is_asserted_from_some_samples_on(folder: Path) -> None:
    refs = references(folder, RING)
    few = refs.judge(CASE, "ring", None, [99.0, 90.0])
    assert (few.verdict, few.bounds) == ("not-asserted", None)
    assert (few.statistic, few.value) == ("mean", 94.5)
    assert re.findall(r"r1|\d", few.reason) == ["r1", "3", "2"]
    enough = refs.judge(CASE, "ring", None, [99.0, 90.0, 90.0])
    assert (enough.verdict, enough.statistic, enough.value) == ("fail", "mean", 93)
    assert enough.reason == ""
    # What no row tells of is not asserted either, and there is nothing to add to it.
    assert references(folder).judge(CASE, "ring", None, [99.0]).reason == ""


# -- the same quantity from another program ------------------------------------------------------

STREAM = replace(CASE, benchmark="other")


OWN = {"benchmark": "other", "metric": "stream", "unit": "GB/s", "value": "1.000"}

#: Rows -> the row that decides `other stream`, and its equals.
SAME = [
    ([{}], "r1"),
    ([{"metric": "peak_bandwidth"}], ""),
    ([{"toolchain": "intel"}], ""),
    ([{"statistic": "std"}], ""),
    # Of several that are the same, the one that matches best, or all.
    ([{}, {"metric": "capped", "message_size": "8"}], "r1"),
    ([{}, {"toolchain": "gnu"}], "r2"),
    ([{}, {"source": "site", "id": "s"}], "s"),
    # Its own win: less specific, or published beside a site's own of the other program.
    ([{"toolchain": "gnu", "nodes": "1"}, OWN], "r2"),
    ([{"source": "site", "id": "s"}, OWN], "r2"),
    ([{}, OWN | {"toolchain": "intel"}], "r1"),
    ([{}, OWN | {"kind": "target"}], "r1"),
]


@pytest.mark.parametrize(("rows", "ids"), SAME)
def test_same_quantity(folder: Path, rows: list, ids: str) -> None:
    assert decided(references(folder, *rows), STREAM, "stream") == tuple(ids.split())


def test_same_quantity_is_judged_in_its_own_unit_by_its_own_class(folder: Path) -> None:
    refs = references(folder, {"spread": "100"})
    judged = refs.judge(STREAM, "stream", None, [0.69])
    assert (judged.verdict, judged.bounds.decides) == ("fail", "r1")
    assert (judged.bounds.value, judged.bounds.lower) == pytest.approx((1.0, 0.7))
    assert judged.bounds.source == "A paper, SC, 2030, table 1"
    assert refs.judge(STREAM, "stream", None, [0.71]).verdict == "pass"


def test_same_quantity_does_not_bound_the_other_way(folder: Path) -> None:
    assert decided(references(folder, OWN)) == ()


#: Rows -> the ceiling of `other stream` in its unit, with half of the last printed digit.
SAME_CEILINGS = [
    ([{"kind": "peak", "value": "2000"}], 2.0005),
    ([{"kind": "peak", "value": "2000"}, OWN | {"kind": "peak", "value": "3"}], 2.0005),
    ([{"kind": "peak", "value": "2000"}, OWN | {"kind": "peak", "value": "1.5"}], 1.55),
    # What caps the other program's metric caps this one.
    ([{"kind": "peak", "value": "1800", "metric": "peak_bandwidth"}], 1.8005),
    ([{"kind": "peak", "value": "1800", "placement": "on-socket"}], None),
]


@pytest.mark.parametrize(("rows", "ceiling"), SAME_CEILINGS)
def test_ceiling_of_the_same_quantity(folder: Path, rows: list, ceiling: float | None) -> None:
    found = references(folder, *rows).ceiling(STREAM, "stream", None)
    assert (found and found.value) == (ceiling and pytest.approx(ceiling))


def test_shipped_babelstream_kernels_are_streams() -> None:
    """Each is bound by the STREAM kernel of the same arithmetic: Cielo's triad by NUMA domain."""
    tables = load(SHIPPED)
    kernels = {"copy": "copy", "mul": "scale", "add": "add", "triad": "triad"}
    for ours, theirs in kernels.items():
        assert tables.foms["babelstream"][ours].same_as == (f"stream/{theirs}",)
    case = Case("cielo", "compute", "gcc", "babelstream", "numa-2-2", 1, 1)
    assert decided(References(tables), case, "triad") == ("cielo-stream-triad-numa-2-2",)


# -- verdicts ------------------------------------------------------------------------------------

PEAK = {"kind": "peak", "value": "2000"}
OTHER_PEAK = [{"metric": "capped"}, PEAK | {"metric": "peak_bandwidth"}]
REPEATED = RING | {"spread": "1.0", "conditions": "runs=100"}

#: Rows, metric, samples -> verdict.
VERDICTS = [
    ([{}], "bandwidth", [950.0], "pass"),
    ([{}], "bandwidth", [949.999], "fail"),
    ([{}], "bandwidth", [1e9], "pass"),
    ([{}], "bandwidth", [math.nan], "fail"),
    ([{"spread": "100"}], "bandwidth", [700.0], "pass"),
    ([{"spread": "100"}], "bandwidth", [699.999], "fail"),
    ([LATENCY], "latency", [11.0], "pass"),
    ([LATENCY], "latency", [11.001], "fail"),
    ([LATENCY], "latency", [0.01], "pass"),
    ([LATENCY | {"value": "0.05"}], "latency", [0.06], "pass"),
    ([LATENCY | {"value": "0.05"}], "latency", [0.0601], "fail"),
    # The summary is held against the bounds, each sample against the ceiling.
    ([{"statistic": "median"}], "bandwidth", [900.0, 950.0, 2000.0], "pass"),
    ([{"statistic": "mean"}], "bandwidth", [900.0, 900.0, 1050.0], "pass"),
    ([{"statistic": "mean"}], "bandwidth", [900.0, 900.0, 1049.0], "fail"),
    ([{"statistic": "best"}], "bandwidth", [1.0, 950.0], "pass"),
    ([LATENCY | {"statistic": "best"}], "latency", [11.0, 99.0], "pass"),
    ([{}, PEAK], "bandwidth", [2000.5], "pass"),
    ([{}, PEAK], "bandwidth", [1000.0, 1000.0, 2000.6], "above-ceiling"),
    ([{}, PEAK], "bandwidth", [900.0], "fail"),
    ([PEAK], "bandwidth", [2000.6], "above-ceiling"),
    ([PEAK], "bandwidth", [1999.0], "not-asserted"),
    # A device whose printed peak is what was measured, 2.1 GB/s, may be a little faster.
    ([PEAK | {"value": "2.1", "unit": "GB/s"}], "bandwidth", [2149.0], "not-asserted"),
    ([PEAK | {"value": "2.1", "unit": "GB/s"}], "bandwidth", [2151.0], "above-ceiling"),
    ([LATENCY | {"kind": "peak"}], "latency", [9.5], "not-asserted"),
    ([LATENCY | {"kind": "peak"}], "latency", [10.0, 9.4], "above-ceiling"),
    ([PEAK, PEAK | {"value": "1500", "source": "other"}], "bandwidth", [1600.0], "above-ceiling"),
    ([{}, PEAK | {"placement": "on-socket"}], "bandwidth", [3000.0], "pass"),
    ([{}, PEAK | {"conditions": "bound=lower"}], "bandwidth", [3000.0], "pass"),
    # The peak of another metric caps this one, whatever size it has.
    (OTHER_PEAK, "capped", [2001.0], "above-ceiling"),
    (OTHER_PEAK, "capped", [1999.0], "pass"),
    # The more samples of a distribution, the closer their mean must be, whatever their median.
    ([REPEATED], "ring", [11.5] * 3, "pass"),
    ([REPEATED], "ring", [11.5] * 9, "fail"),
    ([REPEATED], "ring", [10.0, 10.0, 10.0, 10.0, 30.0], "fail"),
    ([RING | {"spread": ""}], "ring", [99.0] * 9, "not-asserted"),
    # Three spreads below the value are less than nothing.
    ([{"spread": "400"}], "bandwidth", [0.001], "not-asserted"),
    # It has no direction.
    ([{"metric": "share", "unit": "%", "value": "50"}], "share", [99.0], "not-asserted"),
    ([], "bandwidth", [1.0], "not-asserted"),
    ([{"system": "elsewhere"}], "bandwidth", [1.0], "not-asserted"),
    ([{"kind": "target"}], "bandwidth", [1.0], "not-asserted"),
]


@pytest.mark.parametrize(("rows", "metric", "samples", "verdict"), VERDICTS)
def test_verdict(folder: Path, rows: list, metric: str, samples: list, verdict: str) -> None:
    refs = references(folder, *rows)
    size = 4096 if metric == "capped" else None
    judged = refs.judge(CASE, metric, size, samples)
    assert judged.verdict == verdict
    assert (judged.bounds is None) == (not any(decided(refs, CASE, metric, size)))


#: Row, metric, samples -> whether it passes and is too good to be credible: more than twice the
#: distance to its bound away (50 MB/s, 1 us), and half as good again.
TOO_GOOD = [
    ({}, "bandwidth", 1499, False),
    ({}, "bandwidth", 1500, True),
    ({"spread": "200"}, "bandwidth", 2199, False),
    ({"spread": "200"}, "bandwidth", 2201, True),
    ({}, "bandwidth", 940, False),
    (LATENCY, "latency", 6.67, False),
    (LATENCY, "latency", 6.66, True),
    (LATENCY, "latency", 1.0, True),
    (LATENCY | {"spread": "1.5"}, "latency", 1.1, False),
    (LATENCY | {"spread": "1.5"}, "latency", 0.9, True),
]


@pytest.mark.parametrize(("row", "metric", "value", "suspicious"), TOO_GOOD)
def test_a_figure_that_is_too_good(
    folder: Path, row: dict, metric: str, value: float, suspicious: bool
) -> None:
    size = 8 if metric == "latency" else None
    assert references(folder, row).judge(CASE, metric, size, [value]).suspicious == suspicious
    # Above its ceiling it has failed already.
    peak = ROW | row | {"id": "peak", "kind": "peak"}
    assert not references(folder, row, peak).judge(CASE, metric, size, [value]).suspicious


#: Row, metric, samples -> those beyond the bound of a single one, of a figure that passes.
BEYOND = [
    ({}, "bandwidth", [1000, 100, 1010, 95, 1001], (2, 4)),
    ({}, "bandwidth", [1000, 951, 2000], ()),
    ({}, "bandwidth", [100, 100, 1000], ()),  # It fails: its verdict tells of it.
    (LATENCY, "latency", [10, 10, 100], (3,)),
    ({"statistic": "best"}, "bandwidth", [100, 1000], (1,)),
    # A single run of a distribution lies as far as 3 x 2.0 x sqrt(2) off; the mean of three less.
    (RING, "ring", [10, 10, 18], ()),
    (RING, "ring", [1, 1, 19], (3,)),
]


@pytest.mark.parametrize(("row", "metric", "samples", "beyond"), BEYOND)
def test_single_samples_beyond_the_bound(
    folder: Path, row: dict, metric: str, samples: list[float], beyond: tuple[int, ...]
) -> None:
    refs = references(folder, row)
    judged = refs.judge(CASE, metric, 8 if metric == "latency" else None, samples)
    assert judged.beyond == beyond
    nothing = references(folder, row | {"system": "other"})
    assert nothing.judge(CASE, metric, None, samples).beyond == ()


#: System, benchmark, placement, nodes, conditions of a case, metric -> its ceiling in its unit,
#: and the row that prints the peak. Each is the printed peak, and half of its last digit.
SHARED, OWN_DISK = {"storage": "shared"}, {"storage": "node-local"}
CAPPED = [
    ("summit", "commscope", "gpu-a", 1, {}, "d2d_bandwidth", 50.5, "summit-nvlink-d2d"),
    ("summit", "commscope", "gpu-b", 1, {}, "d2d_bandwidth", 64.5, "summit-architecture-smp-bus"),
    ("summit", "osu", "gpu-a", 1, {}, "bandwidth", 50500, "summit-nvlink-d2d"),
    ("summit", "osu", "gpu-a", 1, {}, "bibandwidth", 101000, "summit-nvlink-d2d"),
    ("reedbush-h", "osu", "gpu-a", 1, {}, "bandwidth", 41000, "reedbush-h-nvlink"),
    ("sierra", "commscope", "per-gpu", 1, {}, "bidir_bandwidth", 151, "sierra-nvlink-gpu-link"),
    ("reedbush-h", "commscope", "per-gpu", 1, {}, "h2d_bandwidth", 15.75, "reedbush-h-commscope"),
    ("tioga", "commscope", "per-gpu", 1, {}, "h2d_bandwidth", 36.5, "tioga-infinity-fabric-host"),
    ("rzvernal", "commscope", "per-gpu", 1, {}, "bidir_bandwidth", 73, "rzvernal-infinity-fabric-"),
    ("lassen", "osu", "gpu-b", 1, {}, "bandwidth", 900500, "lassen-babelstream"),
    ("summit", "osu", "off-node", 2, {}, "bandwidth", 25100, "summit-architecture-injection"),
    ("summit", "imb", "off-node", 2, {}, "exchange_bandwidth", 50200, "summit-architecture-inj"),
    ("reedbush-u", "osu", "off-rack", 2, {}, "bandwidth", 12562.5, "reedbush-u-imb"),
    ("xt5", "osu", "off-node", 2, {}, "bandwidth", 4850, "xt5-network-link"),
    ("summit", "gpcnet", "tasks-per-node", 10, {}, "random_ring_sync_bandwidth",
     25100e6 / 2**20, "summit-architecture-injection"),
    ("summit", "ior", "tasks-per-node", 12, SHARED, "read_bandwidth", 12 * 25100e6 / 2**20,
     "summit-architecture-injection"),
    ("summit", "ior", "tasks-per-node", 2, OWN_DISK, "write_bandwidth", 2 * 2150e6 / 2**20,
     "summit-fio-write-bandwidth-device"),
    ("summit", "ior", "tasks-per-node", 2, SHARED, "cached_read_bandwidth", None, ""),
    ("titan", "ior", "tasks-per-node", 9000, SHARED, "read_bandwidth", 1.05e12 / 2**20,
     "titan-ior-filesystem"),
    ("eagle", "babelstream", "one-core", 1, {}, "triad", 255.915, "eagle-babelstream"),
    ("summit", "babelstream", "all-gpus", 1, {}, "triad", 900.5, "summit-babelstream"),
    # A cache may answer between cores of a node, and a bound from below is no peak.
    ("summit", "osu", "on-node", 1, {}, "bandwidth", None, ""),
    ("theta", "babelstream", "one-core", 1, {}, "triad", None, ""),
    ("summit", "osu", "off-node", 2, {}, "latency", None, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("system", "benchmark", "placement", "nodes", "conditions", "metric", "ceiling", "row"), CAPPED
)
def test_what_crosses_a_link_is_capped_by_its_peak(
    system: str,
    benchmark: str,
    placement: str,
    nodes: int,
    conditions: dict,
    metric: str,
    ceiling: float | None,
    row: str,
) -> None:
    refs = lookup.loaded(paths.reference())
    case = Case(system, "batch", "x", benchmark, placement, nodes, 2, conditions)
    found = refs.ceiling(case, metric, 8 if benchmark in ("osu", "imb") else None)
    if ceiling is None:
        assert found is None
    else:
        assert found.value == pytest.approx(ceiling)
        assert found.row.startswith(row)


def test_no_published_value_is_above_its_ceiling() -> None:
    refs = lookup.loaded(paths.reference())
    for row in refs.rows:
        fom = refs.fom(row.benchmark, row.metric)
        if row.kind == "measured" and refs.may_decide(row) and refs.rule(fom).better == "higher":
            nodes = row.nodes or 10000
            conditions = {"storage": "shared"} | row.conditions
            placed = row.placement or "tasks-per-node"
            case = Case(row.system, "", row.toolchain, row.benchmark, placed, nodes,
                        row.ppn or 1, conditions)  # fmt: skip
            ceiling = refs.ceiling(case, row.metric, row.message_size)
            assert ceiling is None or row.used(fom.unit)[0] <= ceiling.value, row.id


LINK = {"what": "a link", "peaks": ["bench/peak_bandwidth"], "carries": {"t": 1}, "reason": "so"}
TRAFFIC = {"t": {"metrics": ["bench/bandwidth"]}}


@pytest.mark.parametrize(
    ("link", "traffic", "words"),
    [
        ({"peaks": ["bench/peak"]}, {}, "'bench/peak'"),
        ({}, {"metrics": ["bench/bandwith"]}, "'bench/bandwith'"),
        ({}, {"where": {"prt": "1"}}, "'prt'"),
        ({"count": "prts"}, {}, "'prts'"),
        ({"carries": {"t": 1, "u": 1}}, {}, "'u'"),
        ({"carries": {"t": 0}}, {}, "links.a.carries.t: "),
        ({"reason": ""}, {}, "links.a.reason: "),
        ({"caps": 3}, {}, "links.a.caps: "),
        # Nothing carries the traffic.
        (None, {}, "'t'"),
    ],
)
def test_faulty_links_are_refused(folder: Path, link: dict | None, traffic: dict, words: str):
    links = {} if link is None else {"a": LINK | link}
    content = {"links": links, "traffic": {"t": TRAFFIC["t"] | traffic}}
    (folder / "links.yaml").write_text(yaml.safe_dump(content))
    write(folder / "paper.csv", {})
    with pytest.raises(Fault, match=re.escape(words)) as refusal:
        load(folder)
    assert refusal.value.code in ("input.wrong-file", "reference.wrong-table")


#: Row, metric, single sample -> whether it passes near its bound, with four fifths allowed. The
#: bandwidth's bound is 950, the latency's 11, and with a spread of 1 it is 13.
NEAR = [
    ({}, "bandwidth", 961, False),
    ({}, "bandwidth", 959, True),
    ({}, "bandwidth", 949, None),
    ({}, "bandwidth", 1100, False),
    (LATENCY, "latency", 10.79, False),
    (LATENCY, "latency", 10.81, True),
    (LATENCY, "latency", 11.01, None),
    (LATENCY, "latency", 5, False),
    (LATENCY | {"spread": "1"}, "latency", 12.39, False),
    (LATENCY | {"spread": "1"}, "latency", 12.41, True),
]


@pytest.mark.parametrize(("row", "metric", "value", "near"), NEAR)
def test_warning_band(
    folder: Path, row: dict, metric: str, value: float, near: bool | None
) -> None:
    judged = references(folder, row).judge(CASE, metric, None if not row else 8, [value])
    assert (judged.verdict, judged.near_bound) == ("fail" if near is None else "pass", bool(near))
    assert judged.better == ("higher" if metric == "bandwidth" else "lower")


def test_warning_band_of_a_class(folder: Path) -> None:
    text = changed("tolerance.yaml", "classes", "up", "warning_share", 0.5)
    (folder / "tolerance.yaml").write_text(text)
    known = references(folder, {})
    assert known.judge(CASE, "bandwidth", None, [974]).near_bound
    assert not known.judge(CASE, "bandwidth", None, [976]).near_bound


def test_what_is_not_asserted_is_near_no_bound(folder: Path) -> None:
    judged = references(folder).judge(CASE, "bandwidth", None, [959])
    assert (judged.verdict, judged.near_bound) == ("not-asserted", False)


def test_judgement_has_its_ceiling(folder: Path) -> None:
    judged = references(folder, PEAK | {"unit": "GB/s", "value": "2"}).judge(
        CASE, "bandwidth", None, [3.0, 1.0, 2.0]
    )
    assert (judged.ceiling, judged.ceiling_id) == (2500, "r1")
    assert (judged.value, judged.statistic, judged.bounds) == (2.0, "median", None)


@pytest.mark.parametrize(
    ("statistic", "metric", "expected"),
    [
        ("best", "bandwidth", 9.0),
        ("best", "latency", 1.0),
        ("best", "share", 2.0),
        ("mean", "bandwidth", 3.75),
        ("median", "latency", 2.5),
        ("single", "latency", 2.5),
        ("unstated", "bandwidth", 2.5),
    ],
)
def test_summary(folder: Path, statistic: str, metric: str, expected: float) -> None:
    refs = references(folder)
    rule = refs.rule(refs.fom("bench", metric))
    samples = [3.0, 1.0, 9.0, 2.0] if metric != "share" else [3.0, 1.0, 2.0]
    assert summarize(samples, statistic, rule) == expected


def test_row_is_frozen() -> None:
    row = Row.model_validate(ROW)
    with pytest.raises(ValueError, match="frozen"):
        row.value = 1.0
    assert key_of(row) == key_of(Row.model_validate(ROW | {"id": "other"}))
