"""Tests as JUnit XML, as every command writes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import junitparser

from plumbline.core.text import printable


def case(
    name: str,
    group: str,
    result: junitparser.Result | None = None,
    out: str = "",
    seconds: float | None = None,
) -> junitparser.TestCase:
    """A test of a suite, its texts printable.

    :arg group: where it belongs; readers of JUnit XML call it a class.
    :arg result: why it is no plain pass.
    """
    made = junitparser.TestCase(printable(name), printable(group), seconds)
    made.result = [] if result is None else [result]
    if out:
        made.system_out = "\n".join(map(printable, out.split("\n")))
    return made


def suite(
    name: str, cases: Iterable[junitparser.TestCase], properties: Mapping[str, str] | None = None
) -> junitparser.TestSuite:
    """Tests under one name."""
    made = junitparser.TestSuite(name)
    for key, value in (properties or {}).items():
        made.add_property(printable(key), printable(value))
    # All at once: junitparser counts a suite's cases each time that some are added.
    made.add_testcases(cases)
    # It rounds its sums.
    made.time = _seconds(made)
    return made


def as_junit(suites: Iterable[junitparser.TestSuite], name: str | None = None) -> str:
    """JUnit XML of suites."""
    made = junitparser.JUnitXml(name)
    for one in suites:
        made.add_testsuite(one)
    made.time = _seconds(made)
    return str(made.tostring().decode())


def _seconds(timed: Iterable[junitparser.TestCase | junitparser.TestSuite]) -> float:
    return math.fsum(one.time or 0.0 for one in timed)
