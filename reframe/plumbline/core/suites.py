"""Format tests as JUnit XML, for all commands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import junitparser

from plumbline.core.text import printable, printable_lines


def case(
    name: str,
    group: str,
    result: junitparser.Result | None = None,
    out: str = "",
    seconds: float | None = None,
) -> junitparser.TestCase:
    """Return a test of a suite, with printable texts.

    :arg group: the class name in JUnit XML.
    :arg result: a failure, error or skip, if it did not pass.
    """
    case = junitparser.TestCase(printable(name), printable(group), seconds)
    case.result = [] if result is None else [result]
    if out:
        case.system_out = printable_lines(out)
    return case


def suite(
    name: str, cases: Iterable[junitparser.TestCase], properties: Mapping[str, str] | None = None
) -> junitparser.TestSuite:
    """Return a suite of tests."""
    suite = junitparser.TestSuite(printable(name))
    for key, value in (properties or {}).items():
        suite.add_property(printable(key), printable(value))
    # In one call: junitparser counts all cases of a suite at each call.
    suite.add_testcases(cases)
    # junitparser rounds its sums.
    suite.time = _seconds(suite)
    return suite


def as_junit(suites: Iterable[junitparser.TestSuite], name: str | None = None) -> str:
    """Return the JUnit XML of suites."""
    xml = junitparser.JUnitXml(name and printable(name))
    for test_suite in suites:
        xml.add_testsuite(test_suite)
    xml.time = _seconds(xml)
    return str(xml.tostring().decode())


def _seconds(timed: Iterable[junitparser.TestCase | junitparser.TestSuite]) -> float:
    return math.fsum(item.time or 0.0 for item in timed)
