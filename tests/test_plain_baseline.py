"""Plain checks and a site baseline: its rows, and what is compared with them."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import records
from conftest import Done, Testbed
from plain_checks import PRINTED, VARYING, fom_of
from plumbline.analysis import baseline
from plumbline.check import record
from plumbline.check.verdict import BUSY
from plumbline.core import paths
from plumbline.operate import lint
from plumbline.reference import tables
from plumbline.session.plan import Preview
from plumbline.site.inventory import PlannedCase
from test_waivers import waive, waiver


class Baselined:
    """A test system with a baseline of three sessions of ``VARYING``."""

    def __init__(self, testbed: Testbed):
        testbed.environment("base", "imb")
        self.testbed, self.checks = testbed, testbed.folder / "varying.py"
        self.checks.write_text(VARYING)
        for _ in range(3):
            assert self.session().code == 0
        self.made = testbed.plumbline("baseline", testbed.name, "--format=json")

    def session(self, *options: object, **env: object) -> Done:
        return self.testbed.reframe("-c", self.checks, "-r", *options, **env)

    def rows(self) -> dict[str, dict]:
        with (self.testbed.reference / "based.csv").open(newline="") as file:
            return {row["id"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def baselined(make_testbed: Callable[..., Testbed]) -> Baselined:
    return Baselined(make_testbed("based"))


RATE_OF_BARE = "based-node-base-bare-rate"


def test_a_baseline_has_what_identifies_the_figure(baselined: Baselined):
    assert baselined.made.code == 0, baselined.made.output
    rows = baselined.rows()
    checks = ("bare-rate", "bare-seconds", "own-rate", "own-seconds", "lenient-rate",
              "lenient-seconds", "patterns-size=8-done", "patterns-size=16-done")  # fmt: skip
    assert {*rows} == {f"based-node-base-{check}" for check in checks}
    row = SimpleNamespace(**rows[RATE_OF_BARE])
    assert (row.source, row.system, row.toolchain) == ("site", "based", "base")
    assert (row.benchmark, row.metric, row.conditions) == ("check:bare", "rate", "partition=node")
    assert (row.value, row.unit, row.nodes, row.ppn) == ("12.5", "GB/s", "", "")
    assert row.note == "class bandwidth, by its unit GB/s"
    row = SimpleNamespace(**rows["based-node-base-patterns-size=8-done"])
    assert (row.benchmark, row.unit) == ("check:patterns %size=8", "items")
    assert row.conditions == "class=rate;partition=node"
    assert "class rate" in row.note


def test_a_figure_without_a_direction_has_no_baseline(baselined: Baselined):
    (names,) = json.loads(baselined.made.out)["skipped"].values()
    assert len(names) == 2 and all("left" in name for name in names)


def test_a_baseline_is_explained(baselined: Baselined):
    done = baselined.testbed.plumbline("refs", "--why", RATE_OF_BARE)
    assert done.code == 0, done.output
    assert "[11.875, open] GB/s" in done.out and "class bandwidth" in done.out


def test_the_next_session_is_compared_with_it(baselined: Baselined):
    done = baselined.session()
    assert done.code == 0, done.output
    fom = fom_of(done, "bare", "rate")
    assert (fom["verdict"], fom["reference"], fom["others"]) == ("pass", RATE_OF_BARE, [])
    assert (fom["lower"], fom["upper"]) == (pytest.approx(11.875), None)
    # The check's own reference applies as well.
    fom = fom_of(done, "own", "rate")
    assert (fom["reference"], fom["others"]) == ("based-node-base-own-rate", ["check"])
    assert "10 asserted (0 failed), 0 without" in done.out


def test_a_baseline_does_not_fail_a_busy_machine(baselined: Baselined):
    done = baselined.session("-n", "^(bare|own)$", RATE=10, PLUMBLINE_OTHERS=10)
    assert done.code == 0, done.output
    for check in ("bare", "own"):
        fom = fom_of(done, check, "rate")
        assert (fom["verdict"], fom["reason"]) == ("not-asserted", BUSY)
    made = baselined.testbed.asked("baseline", "based", "--dry-run")
    assert made.code == 0 and "baseline.busy" in made.codes, made.output


@pytest.mark.parametrize("command", ["reframe", "plumbline run"])
def test_a_figure_that_misses_it_fails_the_session(baselined: Baselined, command: str):
    only = ("-n", "^(bare|own)$")
    if command == "reframe":
        done = baselined.session(*only, RATE=10)
    else:
        done = baselined.testbed.plumbline("run", "-c", baselined.checks, *only, RATE=10)
    assert done.code == 1, done.output
    assert "FAILED" in done.out  # ReFrame's own word for it
    for check in ("bare", "own"):
        fields, fom = done.record(check), fom_of(done, check, "rate")
        assert (fields["result"], fields["code"]) == ("fail", "figure.outside-bounds")
        assert (fom["verdict"], fom["reference"]) == ("fail", f"based-node-base-{check}-rate")
        assert fom_of(done, check, "seconds")["verdict"] == "pass"
    assert "4 asserted (2 failed)" in done.out


def test_the_checks_own_reference_still_fails_it(baselined: Baselined):
    done = baselined.session("-n", "^(bare|own)$", SECONDS=3.1)
    assert done.code == 1, done.output
    assert done.record("bare")["result"] == "pass"
    fom = fom_of(done, "own", "seconds")
    assert (fom["verdict"], fom["reference"]) == ("fail", "check")
    assert fom["others"] == ["based-node-base-own-seconds"]


def test_a_check_that_is_not_strict_is_not_failed(baselined: Baselined):
    done = baselined.session("-n", "^lenient$", RATE=10)
    assert done.code == 0, done.output
    assert done.record("lenient")["result"] == "pass"
    assert fom_of(done, "lenient", "rate")["verdict"] == "fail"


@pytest.mark.parametrize(
    ("unit", "rate", "result", "code"),
    [
        ("MB/s", 12500, "pass", None),
        ("MB/s", 11000, "fail", "figure.outside-bounds"),
        ("items", 12.5, "invalid", "output.unit"),
    ],
)
def test_another_unit(baselined: Baselined, unit: str, rate: float, result: str, code: str | None):
    done = baselined.session("-n", "^bare$", UNIT=unit, RATE=rate)
    fields, fom = done.record("bare"), fom_of(done, "bare", "rate")
    assert (fields["result"], fields["code"], done.code) == (result, code, int(result != "pass"))
    expected = (None, None) if result == "invalid" else (pytest.approx(11875), RATE_OF_BARE)
    assert (fom["lower"], fom["reference"]) == expected


@pytest.mark.parametrize(
    ("check", "rate", "seconds", "result", "code"),
    [
        ("bare", "0", "3.0", "invalid", "output.not-positive"),
        ("bare", "-1", "3.0", "invalid", "output.not-positive"),
        ("bare", "12.5", "-3.0", "invalid", "output.not-positive"),
        # Less than the program's clock shows.
        ("bare", "12.5", "0", "pass", None),
        ("own", "12.5", "0.00", "pass", None),
        ("lenient", "0", "3.0", "pass", None),
    ],
)
def test_a_figure_that_cannot_be(
    baselined: Baselined, check: str, rate: str, seconds: str, result: str, code: str | None
):
    done = baselined.session("-n", f"^{check}$", RATE=rate, SECONDS=seconds)
    fields = done.record(check)
    assert (fields["result"], fields["code"], done.code) == (result, code, int(result != "pass"))
    if seconds.startswith("0"):
        assert {w["code"] for w in fields["warnings"]} == {"figure.better-than-reference"}


@pytest.mark.parametrize("rate", ["inf", "nan", "lost"])
def test_a_figure_with_a_baseline_that_was_not_measured(baselined: Baselined, rate: str):
    done = baselined.session("-n", "^bare$", RATE=rate)
    fields = done.record("bare")
    assert (fields["result"], fields["code"], done.code) == ("invalid", "figure.not-evaluated", 1)
    assert RATE_OF_BARE in fields["reason"]


@pytest.mark.parametrize(("match", "code"), [({"metric": "rate"}, 0), ({"metric": "seconds"}, 1)])
def test_a_waiver_covers_a_figure_that_misses_it(baselined: Baselined, match: dict, code: int):
    path = waive(baselined.testbed, waiver("known", check="bare", system="based", **match))
    done = baselined.session("-n", "^bare$", RATE=10)
    path.unlink()
    assert done.code == code, done.output
    fom = fom_of(done, "bare", "rate")
    assert (fom["verdict"], fom["waiver"]) == (("fail", None) if code else ("waived", "known"))


def test_lint_lists_rows_of_a_check_that_is_not_loaded(baselined: Baselined):
    found = tables.load(paths.Layers((baselined.testbed.reference, paths.ROOT / "reference")))
    names = ["lenient", "own", "patterns %size=8"]
    cases = [PlannedCase(f"{name} @based:node+base", [], True, "pass", None, 60, 1, 0, [], {})
             for name in names]  # fmt: skip
    lines = lint.unloaded(Preview("based", False, cases, [], [], {}, [], [], [], []), found)
    assert [re.findall(r"check has (.*), so (\d)", line) for line in lines] == [
        [("bare", "2")],
        [("patterns %size=16", "1")],
    ]
    cases = [dataclasses.replace(case, case="other @other:node+base") for case in cases]
    assert lint.unloaded(Preview("based", False, cases, [], [], {}, [], [], [], []), found) == []


def test_a_dry_run_says_what_it_would_compare(baselined: Baselined):
    plan = baselined.testbed.folder / "plan.json"
    done = baselined.testbed.reframe(
        "-c", baselined.checks, "--dry-run", "-n", "^(bare|patterns)", PLUMBLINE_PLAN_FILE=plan
    )
    assert done.code == 0 and "figure.not-evaluated" not in done.output, done.output
    planned = {case["case"].split(" @")[0]: case for case in json.loads(plan.read_text())["cases"]}
    assert planned["bare"]["rows"][RATE_OF_BARE] == ["rate"]
    assert (planned["bare"]["figures"], planned["bare"]["asserted"]) == (2, 2)
    assert [planned["patterns %size=8"][key] for key in ("figures", "asserted")] == [2, 1]


def test_a_distributed_check_has_one_baseline(tmp_path: Path):
    """Of all nodes: the median of a session's nodes counts, not the node whose case comes first."""
    found = []
    for night in range(1, 4):
        for node, value in (("n1", 80.0 + night), ("n2", 100.0 + night), ("n3", 101.0 + night)):
            figure = records.figure(value, metric="rate", unit="GB/s", placement="")
            line = records.case(
                f"202611{night:02}T000000Z-{night:06x}", f"2026-11-{night:02}T00:00:00Z",
                check=f"bare %.nid={node}", case=f"{node} @hill:cpu+gnu", benchmark="bare",
                placement=None, nodes=[node], foms=[figure],
            )  # fmt: skip
            found.append(record.validate(line))
    rules = tables.load(paths.reference()).rules.baseline
    (proposal,), skipped = baseline.propose("hill", found, rules, last=10)
    assert (proposal.row.id, proposal.row.value) == ("hill-cpu-gnu-bare-rate", 102.0)
    assert (len(proposal.row.sessions.split()), skipped) == (3, {})


def test_each_value_of_a_parameterized_variable_has_its_own_baseline(make_testbed):
    """The plain check's own name stays without one: it was not measured."""
    testbed = make_testbed("varied")
    testbed.environment("base", "imb")
    checks = testbed.folder / "varied.py"
    checks.write_text(PRINTED + VARIED)
    words = ("run", "-c", checks, "-P", "size=1,200")
    rates: dict[str, list[float]] = {}
    for _ in range(3):
        for fields in testbed.plumbline(*words).records:
            rate = next(fom["value"] for fom in fields["foms"] if fom["metric"] == "rate")
            rates.setdefault(fields["check"], []).append(rate)
    assert rates == {"varied %.size=1": [1.0] * 3, "varied %.size=200": [200.0] * 3}
    done = testbed.plumbline("baseline", "varied")
    assert done.code == 0, done.output
    with (testbed.reference / "varied.csv").open() as file:
        rows = {row["benchmark"]: row["value"] for row in csv.DictReader(file)
                if row["metric"] == "rate"}  # fmt: skip
    assert {name: float(value) for name, value in rows.items()} == {
        "check:varied %.size=1": 1.0,
        "check:varied %.size=200": 200.0,
    }
    session = testbed.plumbline(*words)
    assert {fom["verdict"] for fields in session.records for fom in fields["foms"]} == {"pass"}
    shown = json.loads(testbed.plumbline("show", "--format=json").out)["figures"]
    assert {found["check"] for found in shown} == {*rates}


VARIED = """
from reframe.core.builtins import variable


@rfm.simple_test
class varied(Printed):
    size = variable(int, value=1)

    @run_before("run")
    def print_size(self):
        self.executable_opts = [f"rate {self.size} time 3"]
"""


def test_a_warning_keeps_only_its_figure_from_the_baseline():
    """One figure was not evaluated in any session, and another one is in a wrong unit in one."""
    found = []
    for night in range(1, 4):
        foms = [
            records.figure(value + night / 100, metric=metric, unit="GB/s", placement="")
            for metric, value in (("rate", 100.0), ("copy", 80.0))
        ]
        doubted = [
            ("more", "figure.not-evaluated"),
            *([("copy", "figure.other-unit")] * (night == 2)),
        ]
        warnings = [
            {"state": "warnings", "code": code, "detail": "", "figure": figure, "source": ""}
            for figure, code in doubted
        ]
        line = records.case(
            f"202611{night:02}T000000Z-{night:06x}", f"2026-11-{night:02}T00:00:00Z", check="bare",
            benchmark="bare", placement=None, foms=foms, warnings=warnings,
        )  # fmt: skip
        found.append(record.validate(line))
    rules = tables.load(paths.reference()).rules.baseline
    (proposal,), skipped = baseline.propose("hill", found, rules, last=10)
    assert (proposal.row.metric, proposal.row.value) == ("rate", 100.02)
    (names,) = skipped.values()
    assert [*skipped] == ["baseline.figure-warnings"]
    assert [re.findall(r": (\w+): (\d) session", name) for name in names] == [
        [("more", "3")],
        [("copy", "1")],
    ]
