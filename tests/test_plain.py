"""Plain ReFrame checks, which know nothing of Plumbline, are recorded with what they measured."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from conftest import Done, Testbed
from test_waivers import waive, waiver

CHECKS = '''
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    parameter, performance_function, run_before, sanity_function, variable, xfail
)


class Printed(rfm.RunOnlyRegressionTest):
    """Prints a rate of 12.5 GB/s and a time of 3 s."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    executable_opts = ["rate 12.5 time 3.0"]

    @sanity_function
    def ran(self):
        return sn.assert_found("rate", self.stdout)

    @performance_function("GB/s")
    def rate(self):
        return sn.extractsingle(r"rate (\\S+)", self.stdout, 1, float)

    @performance_function("s")
    def seconds(self):
        return sn.extractsingle(r"time (\\S+)", self.stdout, 1, float)


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


@rfm.simple_test
class unread(Printed):
    """One of its variables finds nothing in the output."""

    @performance_function("MB")
    def size(self):
        return sn.extractsingle(r"size (\\S+)", self.stdout, 1, float)


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
'''


@pytest.fixture(scope="module")
def session(make_testbed: Callable[..., Testbed]) -> Done:
    testbed = make_testbed("plain")
    testbed.environment("base", "imb")
    checks = testbed.folder / "checks" / "printed.py"
    checks.parent.mkdir()
    checks.write_text(CHECKS)
    return testbed.reframe("-c", checks, "-r")


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
    "required": ("fail", "figure.outside-bounds"),
    "unread": ("pass", None),
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


def test_the_summary_counts_them(session: Done):
    assert session.code == 1
    assert "7 asserted (2 failed)" in session.out


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
