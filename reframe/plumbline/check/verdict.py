"""From what a test case measured to its verdicts: judged, as ReFrame has them, put in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from reframe.utility import nodelist_abbrev

from plumbline.check import outcomes
from plumbline.check.parameters import references
from plumbline.check.result import CaseResult, Waived
from plumbline.check.states import SUSPICIOUS, UNSTABLE, Notice
from plumbline.core import paths
from plumbline.parse import Figure
from plumbline.reference import lookup, waivers
from plumbline.reference.lookup import Bounds, Judgement
from plumbline.reference.waivers import Subject, Waiver

#: Failed figures that a message tells of; the table and the record have them all.
MOST_TOLD = 5


def judge(result: CaseResult, subject: Subject) -> dict[Figure, Judgement]:
    """Each figure's verdict: waived where a waiver in force covers its failure.

    :arg subject: the test case as waivers know it.
    """
    judgements = {
        figure: references().judge(found.case, figure.metric, figure.size, found.samples)
        for figure, found in result.figures.items()
    }
    if result.shared:
        return {figure: _of_shared(judged) for figure, judged in judgements.items()}
    known = waivers.loaded(paths.reference())
    return {
        figure: _waived(known, _about(subject, result, figure), judged)
        for figure, judged in judgements.items()
    }


def _about(subject: Subject, result: CaseResult, figure: Figure) -> Subject:
    """A figure of a test case as waivers know it."""
    placement = result.figures[figure].case.placement
    return dataclasses.replace(subject, placement=placement, **figure._asdict())


def _waived(known: Iterable[Waiver], figure: Subject, judged: Judgement) -> Judgement:
    waiver = waivers.covering(known, figure, "fail") if judged.verdict == "fail" else None
    return dataclasses.replace(judged, verdict="waived", waiver=waiver) if waiver else judged


def _of_shared(judged: Judgement) -> Judgement:
    """A figure of cores that other processes had too: measured, and compared with nothing."""
    if judged.verdict not in ("pass", "fail"):
        return judged
    reason = "the cores were shared with other processes: measure again when the machine is idle"
    return dataclasses.replace(
        judged,
        verdict="not-asserted",
        bounds=None,
        near=False,
        suspicious=False,
        beyond=(),
        reason=reason,
    )


def notices(result: CaseResult) -> list[Notice]:
    """What is to be looked at of figures that passed: too good, or with a sample far off."""
    found = []
    for figure, judged in (result.judgements or {}).items():
        unit, bounds = result.figures[figure].unit, judged.bounds
        if judged.suspicious and bounds:
            ratio = judged.value / bounds.value
            better = f"{max(ratio, 1 / ratio):.3g} times {'as much' if ratio > 1 else 'less'}"
            told = (
                f"{figure.variable} = {judged.value:.6g} {unit} is {better} than its reference "
                f"{bounds.value:.6g} {unit}: check what was measured"
            )
            found.append(
                Notice(
                    SUSPICIOUS,
                    "figure.better-than-reference",
                    told,
                    figure.variable,
                    bounds.decides,
                )
            )
        if judged.beyond and bounds:
            values = result.figures[figure].samples
            told = ", ".join(
                f"sample {number} of {len(values)}: {values[number - 1]:.6g} {unit}"
                for number in judged.beyond
            )
            whole = f"{judged.statistic} {judged.value:.6g} {unit}"
            told = f"{figure.variable} passes ({whole}), with samples beyond the bound: {told}"
            found.append(
                Notice(
                    UNSTABLE, "figure.sample-beyond-bound", told, figure.variable, bounds.decides
                )
            )
    return found


def values_for_reframe(result: CaseResult) -> dict[str, tuple[float, str]]:
    """The name of each performance variable, with value and unit, for ReFrame's own store."""
    return {
        _name_in_reframe(figure): (judged.value, result.figures[figure].unit)
        for figure, judged in (result.judgements or {}).items()
    }


def bounds_for_reframe(result: CaseResult) -> dict[str, tuple]:
    """The bounds, as ReFrame's ``reference`` of a partition takes them."""
    return {
        _name_in_reframe(figure): (*_relative(judged.bounds), result.figures[figure].unit)
        for figure, judged in (result.judgements or {}).items()
        if judged.bounds
    }


def waived_variables(result: CaseResult) -> list[str]:
    """The names of the performance variables whose failure is waived."""
    judgements = (result.judgements or {}).items()
    return [_name_in_reframe(figure) for figure, judged in judgements if judged.waiver]


def hold(result: CaseResult, subject: Subject) -> None:
    """Fails a test case by its verdicts.

    :raises PerformanceError: with system, figure, value, bounds, source and nodes.
    :raises Waived: the same, and the waivers, where these cover all faults.
    """
    faults, known, covering = [], [], {}
    for figure, judged in (result.judgements or {}).items():
        message = _fault_of(result, subject, figure, judged)
        if judged.waiver:
            known.append(message)
            covering[judged.waiver.id] = judged.waiver
        elif message:
            faults.append(message)
    told = faults or known
    if not told:
        return
    more = len(told) - MOST_TOLD
    rest = [f"and {more} more: see the record"] if more > 0 else []
    # A list of nodes can be long: it comes last.
    nodes = f"measured on {nodelist_abbrev(result.nodes)}"
    where = f"{subject.system}:{subject.partition}"
    message = f"{where}: " + "; ".join([*told[:MOST_TOLD], *rest, nodes])
    above = any(judged.verdict == "above-ceiling" for judged in (result.judgements or {}).values())
    code = "figure.above-ceiling" if above else "figure.outside-bounds"
    if faults:
        raise outcomes.Failed(message, code)
    raise Waived([*covering.values()], message, code)


def _fault_of(result: CaseResult, subject: Subject, figure: Figure, judged: Judgement) -> str:
    """What is wrong with a figure, empty if nothing is."""
    unit = result.figures[figure].unit
    value = f"{figure.variable} = {judged.value:.6g} {unit}"
    if judged.verdict == "above-ceiling":
        return (
            f"{value} is beyond its ceiling {judged.ceiling:.6g} {unit} ({judged.ceiling_id}): "
            f"a fault of the measurement"
        )
    bounds = judged.bounds
    if bounds and judged.verdict in ("fail", "waived"):
        others = f"; as near: {', '.join(bounds.others)}" if bounds.others else ""
        expired = "" if judged.waiver else _expired(_about(subject, result, figure))
        return (
            f"{value} ({judged.statistic} of {result.samples}) is outside "
            f"[{lookup.told(bounds.lower)}, {lookup.told(bounds.upper)}] "
            f"(reference {bounds.decides}, {bounds.value:.6g} {unit}: {bounds.source}{others})"
            f"{expired}"
        )
    return ""


def _expired(figure: Subject) -> str:
    """The expired waivers that would cover a failed figure, for its message."""
    expired = waivers.expired(waivers.loaded(paths.reference()), figure, "fail")
    return "".join(f"; expired waiver {waiver}" for waiver in expired)


def _name_in_reframe(figure: Figure) -> str:
    """The name of a figure's performance variable: ReFrame cuts one with a colon in two."""
    return figure.variable.replace(":", "-")


def _relative(bounds: Bounds) -> tuple[float, float | None, float | None]:
    """Bounds as ReFrame takes them: the reference and what may be lost or gained of it."""
    lower = None if math.isinf(bounds.lower) else max(bounds.lower / bounds.value - 1, -1.0)
    upper = None if math.isinf(bounds.upper) else bounds.upper / bounds.value - 1
    return bounds.value, lower, upper
