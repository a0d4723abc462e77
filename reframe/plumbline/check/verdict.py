"""The verdicts of a test case, their form in ReFrame, and their messages."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from reframe.utility import nodelist_abbrev

from plumbline.check import outcomes
from plumbline.check.parameters import references
from plumbline.check.record import OUTSIDE
from plumbline.check.result import CaseResult, Waived
from plumbline.check.states import LONE, SUSPICIOUS, UNSTABLE, Notice
from plumbline.core import paths
from plumbline.core.errors import with_code
from plumbline.parse import Figure
from plumbline.reference import lookup, waivers
from plumbline.reference.lookup import Bounds, Judgement
from plumbline.reference.waivers import Subject, Waiver

#: Why a figure of a busy machine is not compared.
BUSY = with_code(
    "other processes ran on this machine's cores: measure again when it is idle", "figure.busy"
)

#: Why one over a busy network is not.
BUSY_NETWORK = "others used the network ({}): measure again when they do not"

#: Failed figures in a message; the table and the record have all of them.
MOST_SHOWN = 5


def judge(result: CaseResult, subject: Subject) -> dict[Figure, Judgement]:
    """Return each figure's verdict; a failure that a valid waiver covers is waived.

    :arg subject: the test case as waivers identify it.
    """
    judgements = {
        figure: references().judge(found.case, figure.metric, figure.size, found.samples)
        for figure, found in result.figures.items()
    }
    if result.shared or result.others:
        reason = BUSY
        if not result.shared:
            reason = with_code(BUSY_NETWORK.format("; ".join(result.others)), "figure.busy")
        return {figure: of_shared(judged, reason) for figure, judged in judgements.items()}
    return waived(result, subject, judgements)


def waived(
    result: CaseResult, subject: Subject, judgements: dict[Figure, Judgement]
) -> dict[Figure, Judgement]:
    """Return the verdicts, in which a failure that a valid waiver covers is waived.

    :arg subject: the test case as waivers identify it.
    """
    known = waivers.loaded(paths.reference())
    return {
        figure: _waived(known, _about(subject, result, figure, judged), judged)
        for figure, judged in judgements.items()
    }


def _about(subject: Subject, result: CaseResult, figure: Figure, judged: Judgement) -> Subject:
    """Return a figure of a test case as waivers identify it."""
    placement = result.figures[figure].case.placement
    return dataclasses.replace(subject, placement=placement, loss=judged.loss, **figure._asdict())


def _waived(known: Iterable[Waiver], figure: Subject, judged: Judgement) -> Judgement:
    waiver = waivers.covering(known, figure, "fail") if judged.verdict == "fail" else None
    return dataclasses.replace(judged, verdict="waived", waiver=waiver) if waiver else judged


def of_shared(judged: Judgement, reason: str = BUSY) -> Judgement:
    """Return the judgement of a figure on shared cores, or over a shared network, which is recorded
    but not compared."""
    if judged.verdict not in ("pass", "fail"):
        return judged
    return dataclasses.replace(
        judged,
        verdict="not-asserted",
        bounds=None,
        near_bound=False,
        suspicious=False,
        beyond=(),
        reason=reason,
    )


def notices(result: CaseResult) -> list[Notice]:
    """Return the warnings about figures that passed: too good, or with a sample out of bounds."""
    found = []
    for figure, judged in (result.judgements or {}).items():
        unit, bounds = result.figures[figure].unit, judged.bounds
        if judged.suspicious and bounds:
            message = (
                f"{figure.variable} = {judged.value:.6g} {unit} is "
                f"{_times(judged.value / bounds.value)} its reference {bounds.value:.6g} {unit}: "
                f"check what was measured"
            )
            code = "figure.better-than-reference"
            found.append(Notice(SUSPICIOUS, code, message, figure.variable, bounds.decides))
        if judged.beyond and bounds:
            values = result.figures[figure].samples
            listed = ", ".join(
                f"sample {number} of {len(values)}: {values[number - 1]:.6g} {unit}"
                for number in judged.beyond
            )
            whole = f"{judged.statistic} {judged.value:.6g} {unit}"
            message = f"{figure.variable} passes ({whole}), but not all samples do: {listed}"
            lone = len(judged.beyond) == 1 and len(values) >= 3
            code = LONE if lone else "figure.sample-beyond-bound"
            found.append(Notice(UNSTABLE, code, message, figure.variable, bounds.decides))
    return found


def _times(ratio: float) -> str:
    """Return how a value compares with another one, as messages have it."""
    if ratio > 1:
        return f"{ratio:.3g} times as much as"
    return f"{1 / ratio:.3g} times less than" if ratio > 0 else "far less than"


def values_for_reframe(result: CaseResult) -> dict[str, tuple[float, str]]:
    """Return name, value and unit of each performance variable, for ReFrame's own store."""
    return {
        _name_in_reframe(figure): (judged.value, result.figures[figure].unit)
        for figure, judged in (result.judgements or {}).items()
    }


def bounds_for_reframe(result: CaseResult) -> dict[str, tuple]:
    """Return the bounds as in ReFrame's ``reference`` of a partition."""
    return {
        _name_in_reframe(figure): (*_relative(judged.bounds), result.figures[figure].unit)
        for figure, judged in (result.judgements or {}).items()
        if judged.bounds
    }


def waived_variables(result: CaseResult) -> list[str]:
    """Return the names of the performance variables whose failure is waived."""
    judgements = (result.judgements or {}).items()
    return [_name_in_reframe(figure) for figure, judged in judgements if judged.waiver]


def failed(result: CaseResult) -> bool:
    """Return whether a figure is outside its bounds or above its ceiling, waived or not."""
    judgements = (result.judgements or {}).values()
    return any(judged.verdict in OUTSIDE for judged in judgements)


def raise_failures(result: CaseResult, subject: Subject) -> None:
    """Fail a test case by its verdicts.

    :raises Failed: with system, figure, value, bounds, source and nodes.
    :raises Waived: the same, and the waivers, if these cover all faults.
    """
    faults, known, covering = [], [], {}
    for figure, judged in (result.judgements or {}).items():
        message = _failure(result, subject, figure, judged)
        if judged.waiver:
            known.append(message)
            covering[judged.waiver.id] = judged.waiver
        elif message:
            faults.append(message)
    shown = faults or known
    if not shown:
        return
    more = len(shown) - MOST_SHOWN
    rest = [f"and {more} more: see the record"] if more > 0 else []
    # A list of nodes can be long: it comes last.
    nodes = f"measured on {nodelist_abbrev(result.nodes or subject.nodes)}"
    where = f"{subject.system}:{subject.partition}"
    message = f"{where}: " + "; ".join([*shown[:MOST_SHOWN], *rest, nodes])
    above = any(judged.verdict == "above-ceiling" for judged in (result.judgements or {}).values())
    code = "figure.above-ceiling" if above else "figure.outside-bounds"
    if faults:
        raise outcomes.Failed(message, code)
    raise Waived([*covering.values()], message, code)


def _failure(result: CaseResult, subject: Subject, figure: Figure, judged: Judgement) -> str:
    """Return the message of a figure that failed; empty if it did not."""
    unit = result.figures[figure].unit
    value = f"{figure.variable} = {judged.value:.6g} {unit}"
    if judged.verdict == "above-ceiling":
        return (
            f"{value} is beyond its ceiling {judged.ceiling:.6g} {unit} ({judged.ceiling_id}): "
            f"the measurement is wrong"
        )
    bounds = judged.bounds
    if bounds and judged.verdict in ("fail", "waived"):
        others = f"; also matching: {', '.join(bounds.others)}" if bounds.others else ""
        uncovered = "" if judged.waiver else _not_covering(_about(subject, result, figure, judged))
        return (
            f"{value} ({judged.statistic} of {result.samples}) is outside "
            f"[{lookup.format_bound(bounds.lower)}, {lookup.format_bound(bounds.upper)}] "
            f"(reference {bounds.decides}, {bounds.value:.6g} {unit}: {bounds.source}{others})"
            f"{uncovered}"
        )
    return ""


def _not_covering(figure: Subject) -> str:
    """Return the waivers of a failed figure that do not cover it, for its message: those that have
    expired, and those of smaller losses."""
    known = waivers.loaded(paths.reference())
    expired = "".join(f"; expired waiver {w}" for w in waivers.expired(known, figure, "fail"))
    return expired + "".join(
        f"; its loss of {figure.loss:.1%} exceeds the {w.match.max_loss:.1%} of waiver {w}"
        for w in waivers.exceeded(known, figure, "fail")
    )


def _name_in_reframe(figure: Figure) -> str:
    """Return the name of a figure's performance variable, which may have no colon in ReFrame."""
    return figure.variable.replace(":", "-")


def _relative(bounds: Bounds) -> tuple[float, float | None, float | None]:
    """Return bounds as in ReFrame: the reference, and the relative loss and gain allowed."""
    lower = None if math.isinf(bounds.lower) else max(bounds.lower / bounds.value - 1, -1.0)
    upper = None if math.isinf(bounds.upper) else bounds.upper / bounds.value - 1
    return bounds.value, lower, upper
