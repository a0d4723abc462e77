"""Weak assertions: those that pass the printed value of the case beside theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Testbed
from plumbline.reference.lookup import References
from plumbline.reference.tables import load
from plumbline.site import inventory, weak_assertions
from reference_tables import LATENCY, SHIPPED, references, registers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return registers(tmp_path)


def weak_pairs(folder: Path, *rows: dict) -> list[tuple]:
    """Each pair of one check that asserts all rows: how it differs, and which rows do what."""
    found = references(folder, *rows)
    pairs = weak_assertions.pairs(found, {"check": {row.id for row in found.rows}})
    return [(p.key, p.own, p.other, p.failing, p.within, p.better) for p in pairs]


#: Rows -> the pairs that are weak.
A, B = {"placement": "gpu-a"}, {"placement": "gpu-b"}
TWO = [
    # Higher is better, 5 %: 960 is within 1000's, and 1000 is better than 960.
    ([A, B | {"value": "960"}], [("placement", "gpu-a", "gpu-b", [], ["r1"], []),
                                 ("placement", "gpu-b", "gpu-a", [], [], ["r2"])]),
    # 900 is not within 1000's: r1 distinguishes, r2 does not.
    ([A, B | {"value": "900"}], [("placement", "gpu-b", "gpu-a", [], [], ["r2"])]),
    # Lower is better, 10 %.
    ([A | LATENCY, B | LATENCY | {"value": "10.5"}],
     [("placement", "gpu-a", "gpu-b", [], ["r1"], []),
      ("placement", "gpu-b", "gpu-a", [], [], ["r2"])]),
    # Each decides by its own statistic.
    ([A, B | {"value": "900", "statistic": "median"}],
     [("placement", "gpu-b", "gpu-a", [], [], ["r2"])]),
    # What is the same cannot be distinguished.
    ([A, B], []),
    # What differs in two is not beside it; nor is another size, system or metric.
    ([A, B | {"value": "960", "toolchain": "gnu"}], []),
    # How many tasks ran is proven, not by a figure.
    ([{"ppn": "1"}, {"ppn": "2", "value": "960"}], []),
    ([A, B | {"value": "960", "message_size": "8"}], []),
    ([A, B | {"value": "960", "system": "other"}], []),
    ([A, B | {"value": "960", "metric": "capped"}], []),
    # A condition counts, but one that only describes.
    ([{"conditions": "port=03"}, {"conditions": "port=0330", "value": "960"}],
     [("port", "03", "0330", [], ["r1"], []), ("port", "0330", "03", [], [], ["r2"])]),
    ([{"conditions": "port=03;runs=4"}, {"conditions": "port=0330;runs=5", "value": "900"}],
     [("port", "0330", "03", [], [], ["r2"])]),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "pairs"), TWO)
def test_pairs(folder: Path, rows: list[dict], pairs: list[tuple]) -> None:
    assert weak_pairs(folder, *rows) == pairs


def test_a_value_that_distinguishes_is_listed_beside_those_that_do_not(folder: Path) -> None:
    other = {"metric": "latency", "unit": "us"}
    rows = [A, B | {"value": "960"}, A | other | {"value": "10"}, B | other | {"value": "20"}]
    assert ("placement", "gpu-a", "gpu-b", ["r3"], ["r1"], []) in weak_pairs(folder, *rows)


def test_only_rows_of_one_check_are_beside_each_other(folder: Path) -> None:
    found = references(folder, A, B | {"value": "960"})
    assert weak_assertions.pairs(found, {"one": {"r1"}, "other": {"r2"}}) == []


#: Row -> the loss that its bounds let pass, if they are wide.
WIDE = [
    ({"spread": "100"}, None),
    ({"spread": "120"}, 0.36),
    ({"spread": "400"}, None),  # It bounds nothing.
    (LATENCY | {"spread": "1.0"}, None),
    (LATENCY | {"spread": "1.2"}, 0.36),
]


@pytest.mark.parametrize(("row", "loss"), WIDE)
def test_wide_bounds(folder: Path, row: dict, loss: float | None) -> None:
    found = weak_assertions.wide(references(folder, row), {"check": ["r1"]})
    assert found == ({"r1": pytest.approx(loss)} if loss else {})


@pytest.fixture(scope="module")
def shipped() -> References:
    return References(load(SHIPPED))


def pairs_of(shipped: References, system: str) -> dict[tuple, weak_assertions.Pair]:
    checks = weak_assertions.by_check(inventory.read(system), shipped)
    pairs = weak_assertions.pairs(shipped, checks)
    return {(pair.check, pair.own, pair.other): pair for pair in pairs}


@pytest.mark.parametrize("system", ["summit", "sierra", "lassen"])
@pytest.mark.parametrize("check", ["osu_gpu", "commscope_d2d"])
def test_a_pair_across_the_bus_measured_as_one_of_a_socket_fails(shipped, system, check) -> None:
    """On V100 systems; the other way round the value is better, and is listed."""
    found = pairs_of(shipped, system)
    assert (check, "gpu-a", "gpu-b") not in found
    assert found[check, "gpu-b", "gpu-a"].better
    assert not found[check, "gpu-b", "gpu-a"].within


@pytest.mark.parametrize(("system", "name", "is_wide"), [
    ("summit", "osu-latency-host-to-host", True),
    ("perlmutter", "osu-latency-host-to-host", True),
    ("sierra", "gpcnet-random-ring-latency-p99-congested-03-mean", True),
    ("summit", "gpcnet-random-ring-latency-p99-isolated-03-median", False),
    ("summit", "gpcnet-random-ring-latency-isolated-03-median", False),
])  # fmt: skip
def test_wide_bounds_of_published_values(shipped, system, name, is_wide) -> None:
    checks = weak_assertions.by_check(inventory.read(system), shipped)
    assert f"{system}-{name}" in {name for names in checks.values() for name in names}
    assert (f"{system}-{name}" in weak_assertions.wide(shipped, checks)) == is_wide


def test_tag_matching_is_distinguished_at_three_sizes_each(shipped: References) -> None:
    found = pairs_of(shipped, "summit")
    name = "summit-osu-latency-tm"
    on = found["osu_p2p_variant", "on", "off"]
    assert on.failing == [f"{name}-on-{size}" for size in (1024, 2048, 8192)]
    assert on.within == [f"{name}-on-{size}" for size in (256, 512, 4096)]
    off = found["osu_p2p_variant", "off", "on"]
    assert off.failing == [f"{name}-off-{size}" for size in (1, 2, 4)]


def test_lint_counts_them_and_lists_them(testbed: Testbed) -> None:
    """They are no fault."""
    testbed.environment("disk", "fio")
    read = {"benchmark": "fio", "metric": "read_bandwidth", "unit": "MB/s"}
    testbed.refer(
        {"id": "one", "conditions": "size=1024MiB", "value": "300"} | read,
        {"id": "two", "conditions": "size=8MiB", "value": "310"} | read,
    )
    assert testbed.asked("lint").code == 0
    # Another case of the same check, as another variant of it would be.
    path = testbed.systems / "inventory" / "testbed.json"
    found = inventory.Inventory(**json.loads(path.read_text()))
    (case,) = [case for case, rows in found.cases.items() if rows]
    found.cases[case]["two"] = ["read_bandwidth"]
    path.write_text(found.text())
    counted = testbed.asked("lint")
    assert "--weak" in counted.out and " 2 references " in counted.out
    listed = testbed.asked("lint", "--weak")
    assert counted.out.count("--weak") == 1
    one, two = [line for line in listed.out.splitlines() if line.startswith("plumbline: weak: ")]
    assert " 1024MiB " in one and ": passes one (the other is better" in one
    assert " 8MiB " in two and ": passes two (within" in two
