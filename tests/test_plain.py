"""Plain ReFrame checks, which know nothing of Plumbline, are recorded with what they measured."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import junitparser
import numpy as np
import pytest
import records
from click.testing import CliRunner
from conftest import ROOT, Done, Testbed
from plumbline.analysis import baseline
from plumbline.check import plain, record
from plumbline.check.verdict import BUSY
from plumbline.cli import main
from plumbline.core import paths
from plumbline.operate import lint
from plumbline.reference import tables
from plumbline.session import cost as costs
from plumbline.session.plan import Preview
from plumbline.site import configuration, host_load
from plumbline.site.inventory import PlannedCase
from test_waivers import waive, waiver

PRINTED = '''
import os

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    parameter, performance_function, run_before, sanity_function, xfail
)

RATE, SECONDS = os.environ.get("RATE", "12.5"), os.environ.get("SECONDS", "3.0")


class Printed(rfm.RunOnlyRegressionTest):
    """Prints a rate of 12.5 GB/s and a time of 3 s, or those of the environment."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    tags = {"nightly"}
    executable_opts = [f"rate {RATE} time {SECONDS}"]

    @sanity_function
    def ran(self):
        return sn.assert_found("rate", self.stdout)

    @performance_function(os.environ.get("UNIT", "GB/s"))
    def rate(self):
        return sn.extractsingle(r"rate (\\S+)", self.stdout, 1, float)

    @performance_function("s")
    def seconds(self):
        return sn.extractsingle(r"time (\\S+)", self.stdout, 1, float)


'''

CHECKS = PRINTED + '''
@rfm.simple_test
class within(Printed):
    reference = {"*": {"rate": (12.0, -0.1, None, "GB/s"), "seconds": (3.1, None, 0.1, "s")}}


@rfm.simple_test
class beyond(Printed):
    reference = {"*": {"rate": (20.0, -0.1, None, "GB/s"), "seconds": (3.0, -0.1, 0.1, "s")}}


@rfm.simple_test
class bare(Printed):
    """Has no reference."""


@rfm.simple_test
class marked(Printed):
    reference = {"*": {"rate": xfail("known", (20.0, -0.1, None, "GB/s"))}}


@rfm.simple_test
class unmarked(Printed):
    reference = {"*": {"rate": xfail("known", (12.0, -0.1, None, "GB/s"))}}


@rfm.simple_test
class required(Printed):
    require_reference = True


class Unmeasured(Printed):
    """Its rate is no number; a reference with an open side lets ReFrame pass it."""

    found = float("inf")
    reference = {"*": {"rate": (12.0, -0.1, None, "GB/s")}}

    @performance_function("GB/s")
    def rate(self):
        return self.found


@rfm.simple_test
class infinite(Unmeasured):
    pass


@rfm.simple_test
class undefined(Unmeasured):
    """ReFrame fails a NaN, also one without a reference."""

    found = float("nan")
    reference = {}


@rfm.simple_test
class raising(Unmeasured):
    @performance_function("GB/s")
    def rate(self):
        raise ValueError("no rate")


@rfm.simple_test
class indexed(raising):
    """Its reference is found by an index of its own."""

    reference = {"$index": ("$environ",), "base": {"rate": (12.0, -0.1, None, "GB/s")}}


@rfm.simple_test
class mixed(Printed):
    """References in other units: of the same name in another spelling, and of another size."""

    # ReFrame passes 12.5 GB/s.
    reference = {"*": {"rate": (12.0, -0.1, None, "MB/s"), "seconds": (3.0, None, 0.1, "sec")}}


@rfm.simple_test
class mixed_lenient(mixed):
    strict_check = False


@rfm.simple_test
class named(Printed):
    """Has what it requires, for one of two systems only."""

    require_reference = True
    reference = {"plain": {"rate": (12.0, -0.1, None, "GB/s"), "seconds": (3, None, 0.1, "s")},
                 "other": {"rate": (99.0, -0.1, None, "GB/s"), "seconds": (1, None, 0.1, "s")}}


@rfm.simple_test
class unread(Printed):
    """One of its variables finds nothing in the output."""

    @performance_function("MB")
    def size(self):
        return sn.extractsingle(r"size (\\S+)", self.stdout, 1, float)


@rfm.simple_test
class grouped(Printed):
    """The names of its variables differ before the colon. Some units have no direction."""

    reference = {"*": {"same": (1, 0, 0, ""), "cycles": (100, -0.1, 0.1, "cycles"),
                       "misses": (100, None, 0.1, "misses")}}

    @run_before("performance")
    def group(self):
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit)
            for name, value, unit in (
                ("copy", 1.0, "GB/s"), ("gpu:copy", 2.0, "GB/s"), ("same", True, ""),
                ("cycles", 100, "cycles"), ("misses", 100, "misses"),
            )
        }


@rfm.simple_test
class patterns(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    executable_opts = ["5000 42"]
    size = parameter([8])
    reference = {"*": {"ops": (4000, -0.5, 0.5, "operation/s"), "left": (0, None, None, "items")}}

    @sanity_function
    def ran(self):
        return sn.assert_found("42", self.stdout)

    @run_before("performance")
    def read(self):
        self.perf_patterns = {
            "ops": sn.extractsingle(r"^(\\S+) (\\S+)", self.stdout, 1, float),
            "left": sn.extractsingle(r"^(\\S+) (\\S+)", self.stdout, 2, int),
        }


@rfm.simple_test
class functional(rfm.RunOnlyRegressionTest):
    """Measures nothing."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "true"

    @sanity_function
    def ran(self):
        return True
'''  # fmt: skip


@pytest.fixture(scope="module")
def printed(make_testbed: Callable[..., Testbed]) -> Testbed:
    testbed = make_testbed("plain")
    testbed.environment("base", "imb")
    (testbed.folder / "printed.py").write_text(CHECKS)
    return testbed


@pytest.fixture(scope="module")
def session(printed: Testbed) -> Done:
    return printed.reframe("-c", printed.folder / "printed.py", "-r")


def fom_of(session: Done, check: str, metric: str) -> dict:
    fields = session.record(check)
    return next(fom for fom in fields["foms"] if fom["metric"] == metric)


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


# -- what ends neither the session nor another case ----------------------------------------------

ODD = (
    PRINTED
    + '''
from decimal import Decimal


@rfm.simple_test
class counted(Printed):
    """Leaves the number of its tasks to the scheduler."""

    num_tasks = None


@rfm.simple_test
class vast(Printed):
    reference = {"*": {"rate": (12.0, -0.1, None, "GB/s")}}

    @performance_function("GB/s")
    def rate(self):
        return 10**400


class NoNumber(Printed):
    """ReFrame fails it, and compares no other figure."""

    found = None
    reference = {"*": {"seconds": (1.0, None, 0.1, "s")}}

    @performance_function("GB/s")
    def rate(self):
        return self.found


@rfm.simple_test
class nothing(NoNumber):
    pass


@rfm.simple_test
class listed(NoNumber):
    found = [12.5]


@rfm.simple_test
class textual(NoNumber):
    found = "12.5"
    strict_check = False


@rfm.simple_test
class beneath(Printed):
    """Its lower threshold is above zero."""

    reference = {"*": {"rate": (12.0, 0.1, None, "GB/s")}}


class Unreadable(str):
    def __str__(self):
        raise ValueError("no name")


@rfm.simple_test
class nameless(Printed):
    """ReFrame passes it, and the name of its program cannot be recorded."""

    strict_check = False

    @run_before("performance")
    def rename(self):
        self.executable = Unreadable("echo")


@rfm.simple_test
class unbuilt(rfm.CompileOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    build_system = "CustomBuild"

    @run_before("compile")
    def fail(self):
        self.build_system.commands = ["exit 3"]


@rfm.simple_test
class crashed(Printed):
    """Ends by a signal after it has printed all."""

    postrun_cmds = ["sh -c 'kill -SEGV $$'"]


@rfm.simple_test
class killed(Printed):
    postrun_cmds = ["kill -KILL $$"]


@rfm.simple_test
class decimal(Printed):
    reference = {"*": {"rate": (12.0, -0.1, None, "GB/s")}}

    @performance_function("GB/s")
    def rate(self):
        return Decimal("12.5")


@rfm.simple_test
class searched(Printed):
    postrun_cmds = ["grep error rfm_job.out"]


@rfm.simple_test
class last(Printed):
    pass
'''
)

#: check -> result, reason code, and what its reason contains.
ODD_RESULTS = {
    "counted": ("pass", None, ""),
    "vast": ("invalid", "figure.not-evaluated", "rate"),
    "nothing": ("invalid", "figure.not-evaluated", "rate"),
    "listed": ("invalid", "figure.not-evaluated", "rate"),
    "textual": ("invalid", "figure.not-evaluated", "rate"),
    "beneath": ("error", "case.error", "0.1"),
    "nameless": ("invalid", "check.wrong-result", "no name"),
    "unbuilt": ("error", "case.build-failed", "3"),
    "crashed": ("pass", None, ""),
    "killed": ("pass", None, ""),
    "searched": ("pass", None, ""),
    "decimal": ("pass", None, ""),
    "last": ("pass", None, ""),
}


@pytest.fixture(scope="module")
def odd(printed: Testbed) -> Done:
    checks = printed.folder / "odd.py"
    checks.write_text(ODD)
    return printed.plumbline("run", "-c", checks)


@pytest.mark.parametrize("check", ODD_RESULTS)
def test_one_check_does_not_end_the_session(odd: Done, check: str):
    """ReFrame does, if the record of a case that ended cannot be made."""
    result, code, part = ODD_RESULTS[check]
    fields = odd.record(check)
    assert (fields["result"], fields["code"]) == (result, code)
    assert part in (fields["reason"] or "")
    assert odd.code == 1


@pytest.mark.parametrize("check", ["nothing", "listed", "textual"])
def test_beside_what_is_no_number_other_figures_are_compared(odd: Done, check: str):
    assert [fom["metric"] for fom in odd.record(check)["foms"]] == ["seconds"]
    assert fom_of(odd, check, "seconds")["verdict"] == "fail"


def test_a_job_that_a_signal_ended_is_a_warning(odd: Done):
    warned = {f["check"]: [w["code"] for w in f["warnings"]] for f in odd.records if f["warnings"]}
    assert warned == {"crashed": ["output.exit-code"], "killed": ["output.exit-code"]}


@pytest.mark.parametrize(
    ("job", "warned"),
    [
        ({"exitcode": 143}, True),
        # Of Flux.
        ({"exitcode": -15}, True),
        # Of ReFrame's local scheduler.
        ({"exitcode": None, "signal": 15}, True),
        ({"exitcode": 1}, False),
        ({"exitcode": -128}, False),
    ],
)
def test_exit_codes_of_jobs_that_a_signal_ended(job: dict, warned: bool):
    notice = plain._ended_by_signal(SimpleNamespace(job=SimpleNamespace(**job)))
    assert (notice and notice.code) == ("output.exit-code" if warned else None)


# -- what ReFrame's own exit code does not show --------------------------------------------------

HIDDEN = (
    PRINTED
    + """
from reframe.core.runtime import runtime


@rfm.simple_test
@rfm.xfail("known", lambda test: True)
class unverified(Printed):
    @sanity_function
    def ran(self):
        return sn.assert_found("nothing", self.stdout)


@rfm.simple_test
class slow_at_first(Printed):
    reference = {"*": {"rate": (12.0, -0.1, None, "GB/s")}}

    @run_before("run")
    def choose(self):
        self.executable_opts = [f"rate {runtime().current_run * 12.5} time 3"]


@rfm.simple_test
class marked(Printed):
    reference = {"*": {"rate": xfail("known", (20.0, -0.1, None, "GB/s"))}}


@rfm.simple_test
class hangs_when_repeated(Printed):
    @run_before("run")
    def choose(self):
        if runtime().current_run:
            self.postrun_cmds = ["sleep 600"]


@rfm.simple_test
class fine(Printed):
    pass


@rfm.simple_test
class other(Printed):
    pass
"""
)

UNCLEAN = (
    PRINTED
    + """
@rfm.simple_test
class unclean(Printed):
    @run_before("cleanup")
    def fail(self):
        raise RuntimeError("not cleaned up")
"""
)


def test_a_failure_that_no_case_shows_is_inconclusive(printed: Testbed):
    """ReFrame exits with 1; the case has passed."""
    checks = printed.folder / "unclean.py"
    checks.write_text(UNCLEAN)
    done = printed.plumbline("run", "-c", checks)
    assert [fields["result"] for fields in done.records] == ["pass"]
    assert (done.code, done.end["code"]) == (2, 2)
    assert any("exit code 2" in note for note in done.end["notes"])


#: check, further arguments, and budget -> the results of its attempts, and the exit code.
EXITS = [
    ("marked", [], "", ["fail"], 1),
    ("unverified", [], "", ["invalid"], 1),
    ("slow_at_first", ["--max-retries=1"], "", ["invalid", "pass"], 1),
    ("fine|other", ["--exec-policy=serial"], "0.001", ["pass", "unfinished"], 2),
    ("fine", ["--exec-policy=serial", "--reruns=2"], "0.001", ["pass"], 2),
    ("fine", ["--reruns=2"], "", ["pass", "pass", "pass"], 0),
    # ReFrame aborts the last repetition, as there is always one.
    ("hangs_when_repeated", ["--duration=5s"], "", ["pass"], 0),
    ("fine", [], "", ["pass"], 0),
]


@pytest.mark.parametrize(("check", "options", "budget", "results", "code"), EXITS)
def test_the_plain_command_exits_with_the_code_of_its_results(
    printed: Testbed, check: str, options: list[str], budget: str, results: list[str], code: int
):
    """ReFrame exits with 0."""
    checks = printed.folder / "hidden.py"
    checks.write_text(HIDDEN)
    words = ("-c", checks, "-r", "-n", f"^({check})$", *options)
    done = printed.reframe(*words, PLUMBLINE_BUDGET=budget)
    assert [fields["result"] for fields in done.records] == results
    assert (done.code, done.end["code"]) == (code, code)


# -- a busy machine ------------------------------------------------------------------------------

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


# -- what a session costs at most ----------------------------------------------------------------


def test_a_job_without_a_time_limit_is_no_job_of_zero_hours(session: Done):
    (cost,) = re.findall(r"^plumbline: session .*; (.*)$", session.out, re.M)
    assert cost == f"{len(RESULTS)} jobs without a time limit"


#: Of a check: tasks, tasks per node, time limit; whether it runs here, time limit of its partition.
#: Then its nodes and hours.
COSTS = [
    ((1, None, 7200.0), (True, None), (1, 2.0)),
    ((4, None, None), (True, "1h"), (1, 1.0)),
    ((4, None, 3600.0), (False, None), (0, 1.0)),
    ((5, 2, 3600.0), (False, "9h"), (3, 1.0)),
    ((-2, 2, None), (False, None), (0, 0)),
    ((None, 2, None), (False, None), (0, 0)),
    ((1, None, None), (True, "an hour"), (1, 0)),
]


@pytest.mark.parametrize(("check", "partition", "cost"), COSTS)
def test_what_it_costs(check: tuple, partition: tuple, cost: tuple):
    tasks, per_node, limit = check
    here, partition_limit = partition
    of_check = SimpleNamespace(
        num_tasks=tasks, num_tasks_per_node=per_node, time_limit=limit, local=False
    )
    on = SimpleNamespace(
        scheduler=SimpleNamespace(is_local=here), time_limit=partition_limit, extras={}
    )
    assert costs.of_case(of_check, on) == cost
    of_check.local = True
    assert costs.of_case(of_check, on) == (1, cost[1])


def test_the_costs_that_are_known():
    planned = [{"nodes": nodes, "hours": hours} for *_, (nodes, hours) in COSTS]
    found = costs.total(planned)
    assert re.findall(r"[\d.]+", found) == ["6.00", "3", "3"]


def test_one_without_figures_has_none(session: Done):
    fields = session.record("functional")
    assert (fields["benchmark"], fields["foms"], fields["program"]) == (None, [], "true")


def test_what_ran_where_nothing_is_built_is_reported(testbed: Testbed):
    """It needs no program of the environment, whose compilers and libraries are not those of the
    build. What needs one is skipped."""
    for name in ("base", "gcc"):
        testbed.environment(name, "imb", provider="spack")
    manifest = testbed.folder / "spack-env" / "testbed" / "gcc" / "spack.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("spack: {specs: [ior]}\n")
    (testbed.folder / "varying.py").write_text(VARYING)
    both = ("-c", "varying.py", "-c", ROOT / "checks", "-n", "^bare$", "-n", "PingPong")
    done = testbed.plumbline("run", *both, "-p", "gcc")
    assert {f["check"].split()[0]: f["result"] for f in done.records} == {
        "bare": "pass", "imb_p2p": "skip",
    }, done.output  # fmt: skip
    (note,) = [note for note in done.end["notes"] if "testbed:gcc" in note]
    assert " 1 test case " in note and "`plumbline build testbed`" in note


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


# -- a site baseline -----------------------------------------------------------------------------

VARYING = PRINTED + '''
@rfm.simple_test
class bare(Printed):
    pass


@rfm.simple_test
class own(Printed):
    reference = {"*": {"rate": (12.5, -0.5, None, "GB/s"), "seconds": (3.0, None, 0.01, "s")}}


@rfm.simple_test
class lenient(Printed):
    strict_check = False


@rfm.simple_test
class patterns(rfm.RunOnlyRegressionTest):
    """Units that nobody knows: of one, the reference shows the direction."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    size = parameter([8, 16])
    reference = {"*": {"done": (4, -0.9, None, "items"), "left": (4, -0.9, 9.0, "items")}}

    @run_before("run")
    def print(self):
        self.executable_opts = [f"{RATE} {self.size}"]

    @sanity_function
    def ran(self):
        return sn.assert_found(r"\\d", self.stdout)

    @run_before("performance")
    def read(self):
        value = sn.extractsingle(r"^(\\S+)", self.stdout, 1, float)
        self.perf_patterns = {"done": value, "left": value}
'''  # fmt: skip


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


# -- the same commands as for others -------------------------------------------------------------


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


#: A healthy value, nights, nodes, and the node that is slow from the last night but one on.
HEALTHY, NIGHTS, NODES, SLOW = 100.0, 6, 24, "n7"


def test_screening_flags_a_slow_node(tmp_path: Path):
    """By a plain check that ReFrame distributed over the nodes."""
    random = np.random.default_rng(1)
    for night in range(1, NIGHTS + 1):
        name = f"202611{night:02}T000000Z-{night:06x}"
        lines = []
        for number in range(1, NODES + 1):
            node = f"n{number}"
            value = HEALTHY * random.normal(1, 0.005)
            if node == SLOW and night >= NIGHTS - 1:
                value *= 0.8
            figure = records.figure(value, metric="rate", unit="GB/s", placement="")
            lines.append(
                records.case(
                    name, f"2026-11-{night:02}T00:{number:02}:00Z", check=f"bare %.nid={node}",
                    benchmark="bare", placement=None, nodes=[node], foms=[figure],
                )
            )  # fmt: skip
        folder = tmp_path / "sessions" / name
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(records.plan(name, [line["case"] for line in lines]))
        (folder / "end.json").write_text(json.dumps({"code": 0, "notes": [], "faults": []}))
        text = "".join(f"{records.dumps(line)}\n" for line in lines)
        (folder / "records.jsonl").write_text(text)
    screened = CliRunner().invoke(main, ["screen", f"--from={tmp_path}", "--format=json"])
    assert screened.exit_code == 1, screened.output
    (flag,) = json.loads(screened.stdout)
    assert (flag["kind"], flag["node"], flag["drain"]) == ("node", SLOW, True)
    assert flag["size"] == pytest.approx(0.2, abs=0.02)


# -- the check of ReFrame's tutorial ---------------------------------------------------------------

#: As in ReFrame's tutorial, "Run-only tests", with a reference.
TUTORIAL = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class stream_test(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "stream.x"
    reference = {"tutorial:node": {"copy_bw": (23000, -0.10, None, "MB/s")}}

    @sanity_function
    def validate(self):
        return sn.assert_found(r"Solution Validates", self.stdout)

    @performance_function("MB/s")
    def copy_bw(self):
        return sn.extractsingle(r"Copy:\\s+(\\S+)", self.stdout, 1, float)

    @performance_function("MB/s")
    def triad_bw(self):
        return sn.extractsingle(r"Triad:\\s+(\\S+)", self.stdout, 1, float)
"""

STREAM = """#!/bin/sh
echo "Function    Best Rate MB/s  Avg time     Min time     Max time"
echo "Copy:           24939.4     0.021905     0.021527     0.022382"
echo "Triad:          17064.9     0.018867     0.018755     0.019159"
echo "Solution Validates: avg error less than 1.000000e-13 on all three arrays"
"""


def as_of(night: int, session: Path, factor: float) -> None:
    """Store a session once more, as of another night, with its values times a factor."""
    name = f"202611{night:02}T010000Z-{night:06x}"
    folder = session.with_name(name)
    folder.mkdir()
    for path in (session / "plan.json", session / "end.json", session / "records.jsonl"):
        text = path.read_text().replace(session.name, name)
        if path.name == "records.jsonl":
            fields = json.loads(text)
            fields["time"] = f"2026-11-{night:02}T01:05:00Z"
            for fom in fields["foms"]:
                fom["value"] *= factor
                fom["samples"] = [fom["value"]]
                if fom["lower"] and fom["value"] < fom["lower"]:
                    fom["verdict"] = fields["result"] = "fail"
            text = json.dumps(fields) + "\n"
        (folder / path.name).write_text(text)


def test_the_check_of_the_tutorial(make_testbed: Callable[..., Testbed], tmp_path: Path):
    """Its values and verdict are recorded; after 21 nights it has a trend and a report."""
    testbed = make_testbed("tutorial")
    testbed.environment("base", "imb")
    program = testbed.folder / "bin" / "stream.x"
    checks = testbed.folder / "checks" / "stream.py"
    for path, text in ((program, STREAM), (checks, TUTORIAL)):
        path.parent.mkdir()
        path.write_text(text)
    program.chmod(0o755)
    testbed.env["PATH"] = f"{program.parent}:{testbed.env['PATH']}"
    done = testbed.plumbline("run", "-c", checks.parent)
    assert done.code == 0, done.output
    found = {fom["metric"]: (fom["value"], fom["unit"], fom["verdict"], fom["lower"])
             for fom in done.record("stream_test")["foms"]}  # fmt: skip
    assert found == {
        "copy_bw": (24939.4, "MB/s", "pass", 20700.0),
        "triad_bw": (17064.9, "MB/s", "not-asserted", None),
    }
    random = np.random.default_rng(1)
    for night in range(1, 22):
        level = 0.8 if night > 14 else 1.0
        as_of(night, done.session, level * random.normal(1, 0.003))
    shutil.rmtree(done.session)
    trend = testbed.asked("trend", "--format=json")
    assert trend.code == 1, trend.output
    changes = {change["series"].split()[-1]: change for change in json.loads(trend.out)}
    assert changes.keys() == {"copy_bw", "triad_bw"}
    for change in changes.values():
        assert (change["kind"], change["start"]) == ("regression", "2026-11-15")
        assert change["size"] == pytest.approx(-0.2, abs=0.01)
    report = testbed.asked("report", "--out", tmp_path / "report")
    assert report.code == 0, report.output
    start = (tmp_path / "report" / "index.html").read_text()
    assert re.findall(r'<span class="b-(\w+)" style="flex-grow:(\d+)">', start) == [("fail", "1")]
    (page,) = (tmp_path / "report").glob("**/*stream-test*.html")
    for name in ("copy_bw", "triad_bw"):
        assert name in page.read_text()
