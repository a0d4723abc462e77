"""Plain ReFrame checks, which know nothing of Plumbline, and a test system with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import Done, Testbed

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


@pytest.fixture(name="printed", scope="module")
def printed_(make_testbed: Callable[..., Testbed]) -> Testbed:
    testbed = make_testbed("plain")
    testbed.environment("base", "imb")
    (testbed.folder / "printed.py").write_text(CHECKS)
    return testbed


def fom_of(session: Done, check: str, metric: str) -> dict:
    fields = session.record(check)
    return next(fom for fom in fields["foms"] if fom["metric"] == metric)


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
