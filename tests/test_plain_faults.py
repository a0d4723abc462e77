"""Odd figures, failures and exit codes of plain checks end neither the session nor another case."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from conftest import ROOT, Done, Testbed
from plain_checks import (
    PRINTED,
    VARYING,
    fom_of,
    printed_,  # noqa: F401 - a fixture
)
from plumbline.check import plain

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
