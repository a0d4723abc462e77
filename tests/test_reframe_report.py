"""What is recorded of plain ReFrame checks agrees with ReFrame's own report, figure by figure.

The checks declare what is measured as the suites of CSCS, EESSI and ExCALIBUR do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from conftest import Done, Testbed
from plain_checks import PRINTED
from reframe.utility.sanity import reference_bounds

SUITES = (
    PRINTED
    + '''
from reframe.core.builtins import fixture, run_after, variable
from reframe.core.runtime import runtime


class measured_fixture(Printed):
    """A fixture that measures something itself."""

    reference = {"*": {"rate": (12.5, -0.1, None, "GB/s")}}


@rfm.simple_test
class with_fixture(Printed):
    first = fixture(measured_fixture, scope="environment")


@rfm.simple_test
class keyed(Printed):
    """As ExCALIBUR's stream: one function, several variables; and references without units."""

    reference = {"report:node": {"Copy": (1, -0.1, 0.1), "Scale": (4, -0.1, 0.1)},
                 "report": {"Copy": (9, -0.1, 0.1)}, "*": {"Scale": (9, -0.1, 0.1)}}

    @performance_function("MBytes/sec", perf_key="Copy")
    def copy(self):
        return self.column(1)

    @performance_function("MBytes/sec", perf_key="Scale")
    def scale(self):
        return self.column(2)

    def column(self, number):
        return sn.avg(sn.defer([number, number]))


@rfm.simple_test
class swept(Printed):
    """As EESSI's blas and CSCS's coralgemm: a table of variables, with a reference of each."""

    size = parameter([1, 2])

    @run_before("performance")
    def table(self):
        values = {f"time step {n} %": n * self.size for n in (1, 2, 3)}
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), "ms")
            for name, value in values.items()
        }
        self.reference = {"*": {name: (3, None, 0.1, "ms") for name in values}}


@rfm.simple_test
class patterned(Printed):
    """As ExCALIBUR's imb: units by references that assert nothing."""

    @run_after("init")
    def refer(self):
        self.perf_variables = {}
        self.reference["max_bandwidth"] = (0, None, None, "Mbytes/sec")
        self.reference["*:latency"] = (0, None, None, "us")

    @run_before("performance")
    def read(self):
        self.perf_variables = {}
        self.perf_patterns = {"max_bandwidth": sn.defer(3), "latency": sn.defer(0.5)}


@rfm.simple_test
class signed(Printed):
    """References below zero, and of zero, as energies and errors have them."""

    reference = {"*": {"energy": (-3270799.9, -0.01, 0.01, "kJ/mol"), "error": (0, None, 0.1, "m")}}

    @performance_function("kJ/mol")
    def energy(self):
        return -3270000.5

    @performance_function("m")
    def error(self):
        return 0.2


@rfm.simple_test
class counted(Printed):
    """ReFrame takes a truth value as a number."""

    @performance_function("")
    def found(self):
        return True


@rfm.simple_test
class known(Printed):
    reference = {"*": {"rate": xfail("known", (20, -0.1, None, "GB/s")),
                       "seconds": (9, None, 0.1, "s")}}


@rfm.simple_test
class lenient(Printed):
    strict_check = False
    reference = {"*": {"rate": (20, -0.1, None, "GB/s")}}


@rfm.simple_test
class slow_at_first(Printed):
    reference = {"*": {"rate": (12, -0.1, None, "GB/s")}}

    @run_before("run")
    def choose(self):
        self.executable_opts = [f"rate {10 + 5 * runtime().current_run} time 3"]


@rfm.simple_test
class wrong(Printed):
    @sanity_function
    def ran(self):
        return sn.assert_found("nothing", self.stdout)
'''
)

#: Options of ReFrame that repeat, distribute or vary its cases.
OPTIONS = [
    [],
    ["--repeat=2", "--exec-policy=serial"],
    ["--reruns=1"],
    ["--max-retries=1"],
    ["--distribute=all", "-n", "keyed|swept"],
    ["-P", "num_tasks=1,2", "-n", "keyed|swept"],
    ["-S", "num_tasks=2", "-J", "#X", "-p", "base", "-n", "keyed|swept"],
]

#: ReFrame's status of a figure -> verdicts. ``xfail`` needs a waiver.
VERDICTS = {"pass": {"pass", "not-asserted"}, "fail": {"fail"}, "xfail": {"fail"}}
#: ReFrame's result of a case -> ours.
RESULTS = {"pass": {"pass"}, "fail": {"fail", "invalid", "error"}, "xfail": {"fail"}}


@pytest.fixture(scope="module")
def testbed(make_testbed: Callable[..., Testbed]) -> Testbed:
    testbed = make_testbed("report")
    testbed.environment("base", "imb")
    testbed.environment("other", "imb")
    (testbed.folder / "suites.py").write_text(SUITES)
    return testbed


def reported(done: Done) -> dict[tuple[str, int], dict]:
    """The test cases of ReFrame's report, by the name and the attempt in the records."""
    report = json.loads((done.session / "report.json").read_text())
    return {
        (f"{c['hashcode']} @{c['system']}:{c['partition']}+{c['environ']}", c["run_index"]): c
        for run in report["runs"]
        for c in run["testcases"]
    }


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_records_agree_with_the_report(testbed: Testbed, options: list[str]):
    done = testbed.plumbline("run", "-c", "suites.py", *options)
    recorded = {(fields["case"], fields["attempt"]): fields for fields in done.records}
    theirs = reported(done)
    assert recorded.keys() == theirs.keys() and recorded, done.output
    for key, fields in recorded.items():
        assert fields["result"] in RESULTS[theirs[key]["result"]], fields
        figures = {fom["metric"]: fom for fom in fields["foms"]}
        place = f"{testbed.name}:node:"
        # Of a case that failed before, ReFrame has the names only.
        values = {k: v for k, v in (theirs[key]["perfvalues"] or {}).items() if v[0] is not None}
        assert {place + name for name in figures} == {*values}
        for name, fom in figures.items():
            value, reference, low, high, unit, status = values[place + name]
            assert (fom["value"], fom["unit"]) == (value, unit)
            assert fom["verdict"] in VERDICTS[status], (key, name)
            assert (fom["verdict"] == "not-asserted") == (low is high is None)
            bounds = (-math.inf, math.inf)
            if not low is high is None:
                bounds = reference_bounds(reference, low, high)
            assert (fom["lower"], fom["upper"]) == tuple(
                None if math.isinf(bound) else bound for bound in bounds
            )
