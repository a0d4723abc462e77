"""The package's own types: what a reader may rely on."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from plumbline.check import verdict
from plumbline.check.result import CaseResult, Measurement, of_check
from plumbline.parse import Figure
from plumbline.placement.proof import TaskReport
from plumbline.reference.lookup import Bounds, Judgement
from plumbline.reference.row import Case
from plumbline.reference.waivers import Subject
from reframe.core.exceptions import PerformanceError

PACKAGE = Path(__file__).parents[1] / "reframe" / "plumbline"


def test_no_class_name_is_used_twice() -> None:
    names = Counter(
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"^class (\w+)", path.read_text(), re.M)
    )
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


LATENCY = Figure("pingpong_latency", 8)
SUBJECT = Subject("hill", "cpu", "gnu", "mine")


def measured(**fields: object) -> CaseResult:
    """A result with one figure, as a check fills it."""
    case = Case("hill", "cpu", "gnu", "imb", "on-node", 1, 2)
    return CaseResult(
        samples=2, figures={LATENCY: Measurement([1.0, 3.0], case, "us", True)}, **fields
    )


def test_a_result_is_judged_without_its_check() -> None:
    result = measured()
    result.judgements = verdict.judge(result, SUBJECT)
    judged = result.judgements[LATENCY]
    assert (judged.verdict, judged.value, judged.statistic) == ("not-asserted", 2.0, "median")
    assert verdict.values_for_reframe(result) == {LATENCY.variable: (2.0, "us")}
    assert verdict.bounds_for_reframe(result) == {} == dict.fromkeys(verdict.notices(result))
    verdict.raise_failures(result, SUBJECT)


#: Values of samples, and the numbers of those beyond the bound -> code of the warning.
BEYOND = [
    ([1.0, 1.0, 3.0], (3,), "figure.one-sample-beyond-bound"),
    ([1.0, 1.2], (2,), "figure.sample-beyond-bound"),
    ([1.0, 1.0, 1.0, 3.0, 3.0], (4, 5), "figure.sample-beyond-bound"),
]


@pytest.mark.parametrize(("values", "beyond", "code"), BEYOND)
def test_one_sample_of_three_or_more_is_a_warning_of_its_own(
    values: list[float], beyond: tuple[int, ...], code: str
) -> None:
    result = measured()
    result.figures[LATENCY] = dataclasses.replace(result.figures[LATENCY], samples=values)
    bounds = Bounds(1.0, 0.0, 1.1, "median", "row", "paper")
    judged = Judgement(1.0, "median", "pass", bounds, None, None, "", "lower", beyond=beyond)
    result.judgements = {LATENCY: judged}
    (notice,) = verdict.notices(result)
    assert (notice.state, notice.code) == ("unstable", code)


def test_a_result_outside_its_bounds_fails_and_names_its_nodes() -> None:
    result = measured(tasks=[TaskReport(0, "n1", "0"), TaskReport(1, "n2", "0")])
    bounds = Bounds(1.0, 0.0, 1.1, "median", "row", "paper")
    judged = Judgement(2.0, "median", "fail", bounds, None, None, "", "lower")
    result.judgements = {LATENCY: judged}
    assert result.nodes == ["n1", "n2"] and result.topology == "unconfirmed"
    with pytest.raises(PerformanceError) as failed:
        verdict.raise_failures(result, dataclasses.replace(SUBJECT, nodes=("n1", "n2")))
    assert failed.value.code == "figure.outside-bounds"
    assert all(name in str(failed.value) for name in ("hill:cpu", " row,", "paper", "n[1-2]"))


def test_a_check_of_another_package_has_no_result() -> None:
    assert of_check(SimpleNamespace(result="passed", figures=[1])) is None
    ours = CaseResult()
    assert of_check(SimpleNamespace(result=ours)) is ours
