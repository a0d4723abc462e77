"""From the samples of a test case to its verdicts: judged, told to ReFrame, put in words.

What :class:`plumbline.check.benchmark.Benchmark` does in ReFrame's performance phase.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import reframe.utility.sanity as sn
from reframe.utility import nodelist_abbrev

from plumbline.check import outcomes, result
from plumbline.check.parameters import references
from plumbline.check.states import SUSPICIOUS, UNSTABLE, Notice
from plumbline.parse import Figure
from plumbline.reference import lookup
from plumbline.reference.lookup import Bounds, Judgement

if TYPE_CHECKING:
    from plumbline.check.benchmark import Benchmark

#: Failed figures that a message tells of; the table and the record have them all.
MOST_TOLD = 5


def judge(check: Benchmark) -> dict[Figure, Judgement]:
    """Each figure's verdict: waived where a waiver in force covers its failure."""
    judgements = {
        figure: references().judge(check.case_of(figure), figure.metric, figure.size, values)
        for figure, values in check.samples.items()
    }
    if check.shared:
        return {figure: _of_shared(judged) for figure, judged in judgements.items()}
    return {figure: result.waived(check, figure, judged) for figure, judged in judgements.items()}


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


def notices(check: Benchmark) -> list[Notice]:
    """What is to be looked at of figures that passed: too good, or with a sample far off."""
    found = []
    for figure, judged in check.judgements.items():
        unit, bounds = check.unit_of(figure.metric), judged.bounds
        if judged.suspicious:
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
        if judged.beyond:
            values = check.samples[figure]
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


def tell_reframe(check: Benchmark) -> dict[str, dict[str, tuple]]:
    """Gives ReFrame the same numbers for its own store.

    :returns: the bounds, as its ``reference`` takes them.
    """
    bounds = {}
    for figure, judged in check.judgements.items():
        name, unit = _name_in_reframe(figure), check.unit_of(figure.metric)
        check.perf_variables[name] = sn.make_performance_function(sn.defer(judged.value), unit)
        if judged.bounds:
            bounds[name] = (*_relative(judged.bounds), unit)
    return {check.current_partition.fullname: bounds}


def hold(check: Benchmark) -> None:
    """Fails a test case by its verdicts.

    :raises PerformanceError: with system, figure, value, bounds, source and nodes.
    :raises Waived: the same, and the waivers, where these cover all faults.
    """
    partition = check.current_partition.fullname
    faults, known, waivers = [], [], {}
    for figure, judged in check.judgements.items():
        message = _fault_of(check, figure, judged)
        if judged.waiver:
            known.append(message)
            waivers[judged.waiver.id] = judged.waiver
            # ReFrame's own store has its verdict beside the value.
            check.perfvalues[f"{partition}:{_name_in_reframe(figure)}"][-1] = "xfail"
        elif message:
            faults.append(message)
    told = faults or known
    if not told:
        return
    more = len(told) - MOST_TOLD
    rest = [f"and {more} more: see the record"] if more > 0 else []
    # A list of nodes can be long: it comes last.
    nodes = f"measured on {nodelist_abbrev(check.hosts_seen)}"
    above = any(judged.verdict == "above-ceiling" for judged in check.judgements.values())
    code = "figure.above-ceiling" if above else "figure.outside-bounds"
    message = f"{partition}: " + "; ".join([*told[:MOST_TOLD], *rest, nodes])
    if faults:
        raise outcomes.Failed(message, code)
    raise result.Waived([*waivers.values()], message, code)


def _fault_of(check: Benchmark, figure: Figure, judged: Judgement) -> str | None:
    """What is wrong with a figure, ``None`` if nothing is."""
    unit = check.unit_of(figure.metric)
    value = f"{figure.variable} = {judged.value:.6g} {unit}"
    if judged.verdict == "above-ceiling":
        return (
            f"{value} is beyond its ceiling {judged.ceiling:.6g} {unit} ({judged.ceiling_id}): "
            f"a fault of the measurement"
        )
    if judged.verdict in ("fail", "waived"):
        bounds = judged.bounds
        others = f"; as near: {', '.join(bounds.others)}" if bounds.others else ""
        return (
            f"{value} ({judged.statistic} of {check.num_samples}) is outside "
            f"[{lookup.told(bounds.lower)}, {lookup.told(bounds.upper)}] "
            f"(reference {bounds.decides}, {bounds.value:.6g} {unit}: {bounds.source}{others})"
            f"{result.expired_for(check, figure, judged)}"
        )
    return None


def _name_in_reframe(figure: Figure) -> str:
    """The name of a figure's performance variable: ReFrame cuts one with a colon in two."""
    return figure.variable.replace(":", "-")


def _relative(bounds: Bounds) -> tuple[float, float | None, float | None]:
    """Bounds as ReFrame takes them: the reference and what may be lost or gained of it."""
    lower = None if math.isinf(bounds.lower) else max(bounds.lower / bounds.value - 1, -1.0)
    upper = None if math.isinf(bounds.upper) else bounds.upper / bounds.value - 1
    return bounds.value, lower, upper
