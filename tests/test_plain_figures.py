"""Plain ReFrame checks are recorded and judged with what they measured, also on a busy machine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from types import SimpleNamespace

import junitparser
import pytest
from click.testing import CliRunner
from conftest import Done, Testbed
from plain_checks import (
    CHECKS,
    PRINTED,
    fom_of,
    printed_,  # noqa: F401 - a fixture
)
from plumbline.check import plain
from plumbline.check.verdict import BUSY
from plumbline.cli import main
from plumbline.site import configuration, host_load
from test_waivers import waive, waiver


@pytest.fixture(scope="module")
def session(printed: Testbed) -> Done:
    return printed.reframe("-c", printed.folder / "printed.py", "-r")


#: check, figure: value, unit, direction, verdict, bounds.
FOMS = [
    ("within", "rate", 12.5, "GB/s", "higher", "pass", (10.8, None)),
    ("within", "seconds", 3.0, "s", "lower", "pass", (None, 3.41)),
    ("beyond", "rate", 12.5, "GB/s", "higher", "fail", (18.0, None)),
    ("beyond", "seconds", 3.0, "s", "lower", "pass", (2.7, 3.3)),
    ("bare", "rate", 12.5, "GB/s", "higher", "not-asserted", (None, None)),
    ("bare", "seconds", 3.0, "s", "lower", "not-asserted", (None, None)),
    ("marked", "rate", 12.5, "GB/s", "higher", "fail", (18.0, None)),
    ("unmarked", "rate", 12.5, "GB/s", "higher", "pass", (10.8, None)),
    ("mixed", "rate", 12.5, "GB/s", "higher", "not-asserted", (None, None)),
    ("mixed", "seconds", 3.0, "s", "lower", "pass", (None, 3.3)),
    ("mixed_lenient", "rate", 12.5, "GB/s", "higher", "not-asserted", (None, None)),
    ("named", "rate", 12.5, "GB/s", "higher", "pass", (10.8, None)),
    ("grouped", "copy", 1.0, "GB/s", "higher", "not-asserted", (None, None)),
    ("grouped", "gpu:copy", 2.0, "GB/s", "higher", "not-asserted", (None, None)),
    ("grouped", "same", 1.0, "", "neither", "pass", (1.0, 1.0)),
    ("grouped", "cycles", 100.0, "cycles", "neither", "pass", (90.0, 110.0)),
    ("grouped", "misses", 100.0, "misses", "lower", "pass", (None, 110.0)),
    ("patterns", "ops", 5000.0, "operation/s", "higher", "pass", (2000.0, 6000.0)),
    ("patterns", "left", 42.0, "items", "neither", "not-asserted", (None, None)),
]


@pytest.mark.parametrize(("check", "metric", "value", "unit", "better", "verdict", "bounds"), FOMS)
def test_its_figures(session, check, metric, value, unit, better, verdict, bounds):
    fom = fom_of(session, check, metric)
    found = SimpleNamespace(**fom)
    assert (found.value, found.unit, found.better, found.verdict) == (value, unit, better, verdict)
    assert (found.lower, found.upper) == pytest.approx(bounds)
    assert found.reference == ("check" if any(bounds) else None)


#: check -> result and reason code.
RESULTS = {
    "within": ("pass", None),
    "beyond": ("fail", "figure.outside-bounds"),
    "bare": ("pass", None),
    "marked": ("fail", "case.xfail"),
    "unmarked": ("error", "case.xfail"),
    "required": ("fail", "figure.no-reference"),
    "infinite": ("invalid", "figure.not-evaluated"),
    "undefined": ("invalid", "figure.not-evaluated"),
    "raising": ("invalid", "figure.not-evaluated"),
    "indexed": ("invalid", "figure.not-evaluated"),
    "mixed": ("invalid", "figure.other-unit"),
    "mixed_lenient": ("pass", None),
    "named": ("pass", None),
    "unread": ("pass", None),
    "grouped": ("pass", None),
    "patterns": ("pass", None),
    "functional": ("pass", None),
}


@pytest.mark.parametrize("check", RESULTS)
def test_its_result(session: Done, check: str):
    fields = session.record(check)
    assert (fields["result"], fields["code"]) == RESULTS[check]


def test_a_variable_that_was_not_evaluated_is_a_warning(session: Done):
    fields = session.record("unread")
    assert [fom["metric"] for fom in fields["foms"]] == ["rate", "seconds"]
    assert [(w["code"], w["figure"]) for w in fields["warnings"]] == [
        ("figure.not-evaluated", "size")
    ]


@pytest.mark.parametrize("check", ["mixed", "mixed_lenient"])
def test_a_reference_in_another_unit_is_not_compared(session: Done, check: str):
    """ReFrame compares the bare numbers."""
    warnings = session.record(check)["warnings"]
    assert [(w["code"], w["figure"]) for w in warnings] == [("figure.other-unit", "rate")]
    assert "figure.other-unit" in fom_of(session, check, "rate")["reason"]


def test_the_variables_that_tune_libraries(printed: Testbed):
    """Of its environment, its shell and the check itself, also those that Plumbline sets for its
    own checks; in an output of the check there is nothing of that."""
    tuned = """
@rfm.simple_test
class tuned(Printed):
    env_vars = {"OMP_NUM_THREADS": "4", "UCX_TLS": "rc"}

    @sanity_function
    def ran(self):
        return sn.assert_eq(sn.count(sn.extractall(r"\\S", self.stderr)), 0)
"""
    (printed.folder / "tuned.py").write_text(PRINTED + tuned)
    done = printed.reframe("-c", printed.folder / "tuned.py", "-r", NCCL_ALGO="Ring")
    fields = done.record("tuned")
    assert fields["result"] == "pass", done.output
    mine = {"OMP_NUM_THREADS": "4", "UCX_TLS": "rc", "NCCL_ALGO": "Ring"}
    assert mine.items() <= fields["variables"].items()
    # Nothing of the wrapper itself.
    assert not {"MV2_ENABLE_AFFINITY", "HFI_NO_CPUAFFINITY"} & {*fields["variables"]}


def test_the_summary_counts_them(session: Done):
    assert session.code == 1
    assert "14 asserted (2 failed), 2 not compared" in session.out


@pytest.mark.parametrize("option", ["--skip-sanity-check", "--skip-pe"])
def test_without_a_phase_it_is_not_verified(printed: Testbed, option: str):
    """ReFrame passes it."""
    checks = ("-c", printed.folder / "printed.py", "-n", "^(bare|functional)$")
    done = printed.reframe(*checks, "-r", option)
    assert [(f["result"], f["code"], f["foms"]) for f in done.records] == [
        ("invalid", "case.phase-skipped", [])
    ] * 2
    assert (done.code, done.end["code"]) == (1, 1)


#: Checks whose figures have a reference, and no other fault; and these figures.
COMPARED = {"within", "beyond", "marked", "unmarked", "mixed_lenient", "named", "grouped",
            "patterns"}  # fmt: skip
BOUNDED = {(check, metric) for check, metric, *_, bounds in FOMS if bounds != (None, None)}


@pytest.fixture(scope="module")
def busy(printed: Testbed) -> Done:
    return printed.plumbline(
        "run", "--strict", "-c", printed.folder / "printed.py", PLUMBLINE_OTHERS=10
    )


@pytest.mark.parametrize("check", RESULTS)
def test_on_a_busy_machine_nothing_is_compared(busy: Done, check: str):
    """What was not measured, or is not declared, is as invalid as on an idle one."""
    fields = busy.record(check)
    result, code = ("pass", None) if check in COMPARED else RESULTS[check]
    assert (fields["result"], fields["code"]) == (result, code)
    assert fields["conditions"] == ({} if check == "functional" else {"busy": "yes"})
    for fom in fields["foms"]:
        assert (fom["verdict"], fom["lower"], fom["reference"]) == ("not-asserted", None, None)
        assert fom["reason"] == BUSY or (check, fom["metric"]) not in BOUNDED


def test_a_busy_machine_is_shown(busy: Done):
    line = next(line for line in busy.out.splitlines() if line.startswith("beyond"))
    assert "not compared (busy)" in line
    assert re.search(r"^ .* seconds +3 s +no reference \(busy\)", busy.out, re.M)
    assert {*busy.codes} >= {"figure.busy"}
    strict = {fault.split()[1] for fault in busy.end["faults"] if fault.endswith("[figure.busy]")}
    # One of its two figures has a reference in the right unit.
    assert strict == {*COMPARED, "mixed"}
    (suite,) = junitparser.JUnitXml.fromstring(exported(busy, "junit"))
    (skipped,) = next(case.result for case in suite if case.name == "beyond")
    assert "figure.busy" in skipped.message
    _, _, unasserted = exported(busy, "markdown").partition("nothing asserted")
    (line,) = re.findall(r"^- `beyond.*", unasserted, re.M)
    assert "figure.busy" in line
    # ReFrame's own report has a figure without a reference.
    report = json.loads((busy.session / "report.json").read_text())
    found = {case["name"]: case["perfvalues"] for case in report["runs"][0]["testcases"]}
    assert found["beyond"]["plain:node:rate"] == [12.5, 0, None, None, "GB/s", "pass"]


@pytest.mark.parametrize(
    ("others", "tasks", "cpus", "shared"),
    [(0, 1, None, False), (0, 99, 1, False), (1, 1, None, True), (1, 1, 1, False), (1, 2, 1, True),
     (1, 0, 1, True), (1, -2, None, True), (1, None, 1, True)],
)  # fmt: skip
def test_which_share_their_cores(monkeypatch, others: int, tasks, cpus: int, shared: bool):
    """On two cores. One that does not declare its CPUs may use all of them."""
    monkeypatch.setattr(host_load, "others", lambda: others)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    here = SimpleNamespace(
        scheduler=SimpleNamespace(is_local=True),
        launcher_type=SimpleNamespace(registered_name="local"),
    )
    check = SimpleNamespace(
        num_tasks=tasks, num_cpus_per_task=cpus, is_dry_run=lambda: False, current_partition=here,
        local=False,
    )  # fmt: skip
    assert plain.is_compared(check) is not shared
    here.scheduler.is_local = False
    assert plain.is_compared(check)
    # Its jobs are started here, whatever the scheduler.
    check.local = True
    assert plain.is_compared(check) is not shared
    # A node of a sweep is allocated to its job.
    monkeypatch.setenv(configuration.ON_NODE, "plain:node")
    assert plain.is_compared(check)


def test_a_job_without_a_time_limit_is_no_job_of_zero_hours(session: Done):
    (cost,) = re.findall(r"^plumbline: session .*; (.*)$", session.out, re.M)
    assert cost == f"{len(RESULTS)} jobs without a time limit"


def test_one_without_figures_has_none(session: Done):
    fields = session.record("functional")
    assert (fields["benchmark"], fields["foms"], fields["program"]) == (None, [], "true")


def test_a_waiver_covers_its_figures(make_testbed: Callable[..., Testbed]):
    testbed = make_testbed("waived")
    testbed.environment("base", "imb")
    checks = testbed.folder / "printed.py"
    checks.write_text(CHECKS)
    waive(testbed, waiver("known", check="beyond", system="waived"))
    done = testbed.reframe("-c", checks, "-r", "-n", "^beyond$")
    (fields,) = done.records
    assert (fields["result"], fields["waiver"]) == ("waived", "known")
    assert {fom["metric"]: (fom["verdict"], fom["waiver"]) for fom in fields["foms"]} == {
        "rate": ("waived", "known"),
        "seconds": ("pass", None),
    }


def exported(session: Done, form: str) -> str:
    results = session.session.parents[1]
    options = ["export", session.session.name, f"--from={results}", f"--format={form}"]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_prometheus_gets_its_figures(session: Done):
    found = {
        (dict(re.findall(r'(\w+)="([^"]*)"', labels))["check"], float(value))
        for labels, value in re.findall(r"^plumbline_fom\{(.*)\} (\S+)$",
                                        exported(session, "prometheus"), re.M)
        if 'metric="rate"' in labels
    }  # fmt: skip
    assert {("beyond", 12.5), ("bare", 12.5)} <= found


def test_junit_gets_its_results(session: Done):
    (suite,) = junitparser.JUnitXml.fromstring(exported(session, "junit"))
    results = {case.name: [type(result).__name__ for result in case.result] for case in suite}
    assert results["within"] == [] and results["bare"] == ["Skipped"]
    assert results["beyond"] == ["Failure"] and results["unmarked"] == ["Error"]
