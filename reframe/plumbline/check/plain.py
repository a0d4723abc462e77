"""The figures of plain ReFrame checks, which do not use Plumbline's mixin.

ReFrame evaluates the performance variables of such a check and compares them with the check's own
``reference``. Plumbline records the results, and does not compare them again.
"""

from __future__ import annotations

import inspect
import math
import numbers
from pathlib import Path

from reframe.utility.sanity import reference_bounds

from plumbline.check.result import CaseResult, Measurement
from plumbline.check.states import WARNINGS, Notice
from plumbline.core import units
from plumbline.parse import Figure
from plumbline.reference.lookup import Bounds, Judgement
from plumbline.reference.row import Case

#: Id of the reference in records: that of the check itself.
REFERENCE = "check"

#: How ReFrame marks a variable that was compared -> verdict. Its own ``xfail`` waives nothing, and
#: an expected failure that did not occur fails the case, not the figure.
_VERDICTS = {"pass": "pass", "fail": "fail", "xfail": "fail", "xpass": "pass"}


def measured(check, passed: bool) -> CaseResult:
    """Return what ReFrame measured in a plain check, with its verdicts.

    For a check without performance variables, the result has only the program.

    :arg passed: whether the test case passed. A variable that ReFrame could not evaluate is then a
        warning, since ReFrame passes the check without it.
    """
    result = CaseResult(program=Path(str(check.executable or "")).name or None)
    expected = [*check.perf_variables]
    if not expected:
        return result
    result.benchmark = check.display_name.split()[0]
    result.samples, result.warmups, result.judgements = 1, 0, {}
    partition, environ = check.current_partition, check.current_environ
    case = Case(
        check.current_system.name, partition.name, environ.name, result.benchmark,
        placement="", nodes=_nodes(check), ppn=check.num_tasks_per_node or check.num_tasks or 1,
    )  # fmt: skip
    found = {key.rpartition(":")[2]: values for key, values in check.perfvalues.items()}
    for variable in expected:
        value, *reference = found.get(variable, (None,))
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            if passed:
                result.notices.append(_not_evaluated(variable, value))
            continue
        ref, low, high, unit, status = reference
        bounds = _bounds(check, ref, low, high)
        figure = Figure(variable)
        result.figures[figure] = Measurement([float(value)], case, unit or "", headline=True)
        result.judgements[figure] = Judgement(
            float(value),
            "single",
            _VERDICTS[status or "pass"] if bounds else "not-asserted",
            bounds,
            ceiling=None,
            ceiling_id=None,
            better=_better(bounds, unit or ""),
        )
    return result


def _nodes(check) -> int:
    """Return the number of nodes that the tasks were asked for."""
    per_node = check.num_tasks_per_node
    return math.ceil(check.num_tasks / per_node) if check.num_tasks and per_node else 1


def _bounds(check, ref: float, low: float | None, high: float | None) -> Bounds | None:
    """Return the bounds that ReFrame derives from a reference; ``None`` if both are open."""
    if low is None and high is None:
        return None
    lower, upper = reference_bounds(ref, low, high)
    file = Path(inspect.getfile(type(check))).name
    return Bounds(ref, lower, upper, "single", REFERENCE, f"reference of the check, {file}")


def _better(bounds: Bounds | None, unit: str) -> str:
    """Return which values are better: those away from the only bound, or else by the unit."""
    if bounds and math.isinf(bounds.lower) != math.isinf(bounds.upper):
        return "higher" if math.isinf(bounds.upper) else "lower"
    return units.better(unit)


def _not_evaluated(variable: str, value: object) -> Notice:
    cause = "ReFrame could not evaluate it" if value is None else f"{value!r} is not a number"
    message = f"performance variable {variable} was not measured: {cause}; see reframe.log"
    return Notice(WARNINGS, "figure.not-evaluated", message, variable)
