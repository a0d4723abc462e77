"""The figures of plain ReFrame checks, which do not use Plumbline's mixin.

ReFrame evaluates the performance variables of such a check and compares them with its own
``reference``. A site baseline applies as well: a figure must be within both.
"""

from __future__ import annotations

import dataclasses
import decimal
import inspect
import math
import numbers
import os
import platform
import reprlib
import shlex
import signal
from pathlib import Path

import reframe.core.runtime as rt
from reframe.utility.sanity import reference_bounds

from plumbline.check import outcomes, verdict
from plumbline.check.parameters import references
from plumbline.check.result import CaseResult, Measurement, of_check, subject_of
from plumbline.check.states import WARNINGS, Notice
from plumbline.core import units
from plumbline.core.errors import with_code
from plumbline.core.text import base_name
from plumbline.parse import Figure, outputs
from plumbline.placement import binding, proof
from plumbline.reference.lookup import Bounds, Judgement
from plumbline.reference.row import OF_CHECK, PLAIN, SETVAR, Case
from plumbline.site import check_patches, host_load

#: How ReFrame marks a variable that was compared -> verdict. Its own ``xfail`` waives nothing, and
#: an expected failure that did not occur fails the case, not the figure.
_VERDICTS = {"pass": "pass", "fail": "fail", "xfail": "fail", "xpass": "pass"}

#: Variables of ReFrame that choose where a check runs, how long it may take, what is kept of it and
#: how it is judged: not what it measures.
_NOT_MEASURED = {
    *("valid_systems", "valid_prog_environs", "descr", "tags", "maintainers", "ci_extras"),
    *("time_limit", "build_time_limit", "max_pending_time", "build_locally"),
    *("keep_files", "readonly_files", "strict_check", "reference", "require_reference"),
    "_rfm_dry_run",
}


#: What the job of a plain check reports of its environment, in the stage folder.
_ENVIRONMENT = "plumbline-environment.txt"


def reports(check) -> list[str]:
    """Return the commands of a job by which a plain check reports the variables that tune
    libraries, as its launcher gets them; none for a check of Plumbline's, whose tasks do that."""
    if of_check(check):
        return []
    wrapper = shlex.join(["sh", str(binding.WRAPPER), "0", "true"])
    file = shlex.quote(str(Path(check.stagedir, _ENVIRONMENT)))
    return [f"({wrapper} >/dev/null 2>{file}) 2>/dev/null || :"]


def _variables(check) -> set[proof.Variables]:
    """Return these variables; none if the job did not report them."""
    try:
        text = outputs.read(Path(check.stagedir or "", _ENVIRONMENT), errors="replace")
    except OSError:
        return set()
    return proof.variables(text, str(check.job.jobid or ""), words=False)


def judge(check) -> None:
    """Fail a plain check by its figures, once ReFrame has evaluated them.

    ReFrame's ``strict_check = False`` is respected: then no figure fails the case.

    :raises Failed: if a figure is outside its own reference or its baseline.
    :raises Waived: if waivers cover all of these figures.
    :raises Invalid: if a figure is a NaN, or one with a reference or a baseline was not measured,
        its unit is not that of these, or a rate is not positive or a time negative.
    """
    testcase = check, check.current_partition, check.current_environ
    if not is_compared(check):
        # As ReFrame records a figure without a reference.
        for values in check.perfvalues.values():
            values[1:] = [0, None, None, values[4], "pass"]
    if of_check(check) or check.is_dry_run():
        return
    _check_numbers(values := _values(check))
    if not check.strict_check:
        return
    _check_references(check)
    result = measured(testcase, passed=True)
    # ReFrame fails a NaN, which differs from itself, also if it has no reference.
    undefined = {variable for variable, (value, *_) in values.items() if value != value}
    for notice in result.notices:
        if notice.code == "figure.other-unit":
            raise outcomes.Invalid(notice.detail, code=notice.code)
        if notice.code == "figure.not-evaluated":
            by = _reference(testcase, notice.figure)
            if by or notice.figure in undefined:
                has = f"; it has {by}" if by else ""
                raise outcomes.Invalid(f"{notice.detail}{has}", code=notice.code)
    _check_signs(result)
    for figure, judged in (result.judgements or {}).items():
        if judged.reason not in ("", verdict.BUSY):
            raise outcomes.Invalid(f"{figure.variable}: {judged.reason}", code="output.unit")
    verdict.raise_failures(result, subject_of(testcase))


def is_compared(check) -> bool:
    """Return whether the figures of a check are compared by its own reference: not those of a plain
    check that shares its cores with other processes."""
    return of_check(check) is not None or not _is_shared(check, check.current_partition)


def _is_shared(check, partition) -> bool:
    """Return whether other processes use the cores of a plain check too.

    One that does not declare its CPUs may use all of them: nothing binds it.
    """
    if check.is_dry_run() or not host_load.matters(check, partition):
        return False
    cores = len(os.sched_getaffinity(0))
    declared = max(check.num_tasks or 0, 0) * (check.num_cpus_per_task or 0)
    return host_load.shared(min(declared or cores, cores), cores)


def _check_numbers(values: dict[str, list]) -> None:
    """Check that the performance variables are numbers, as ReFrame does, strict or not.

    :raises Invalid: with the first that is not, in place of ReFrame's error.
    """
    for variable, (value, *_) in values.items():
        if not isinstance(value, numbers.Number):
            notice = _not_evaluated(variable, values)
            raise outcomes.Invalid(notice.detail, code=notice.code)


def _check_signs(result: CaseResult) -> None:
    """Check that rates are positive, and times not negative.

    :raises Invalid: if one is not.
    """
    for figure, one in result.figures.items():
        (value,), better = one.samples, units.better(one.unit)
        # A program with a coarse clock prints a time of zero.
        if (value < 0 and better != "neither") or (value == 0 and better == "higher"):
            raise outcomes.Invalid(
                f"{figure.variable} is {value:g} {one.unit}: it must be positive",
                code="output.not-positive",
            )


def _check_references(check) -> None:
    """Check that no reference is missing that the check requires.

    :raises Failed: with the variables, in place of ReFrame's error for the first one.
    """
    variables = {**check.perf_variables, **(getattr(check, "perf_patterns", None) or {})}
    missing = [name for name in variables if check_patches.reference_of(check, name) is None]
    if check.require_reference and missing:
        file = inspect.getfile(type(check))
        raise outcomes.Failed(
            f"{file}: no reference of {', '.join(missing)} for {check.current_partition.fullname}: "
            f"the check has require_reference, so add it to its reference",
            code="figure.no-reference",
        )


def _reference(testcase, variable: str) -> str:
    """Return what a figure would be compared with; empty if with nothing."""
    case = _case(testcase)
    registered = variable in references().tables.foms.get(case.benchmark, {})
    if registered and (bounds := references().bounds(case, variable, None)):
        return f"the baseline {bounds.decides}"
    own = check_patches.reference_of(testcase[0], variable)
    return "a reference in the check" if own and own[1:3] != (None, None) else ""


def measured(testcase, passed: bool, dry_run: bool = False) -> CaseResult:
    """Return what ReFrame measured in a plain check, and how it is judged.

    For a check without performance variables, the result has only the program.

    :arg passed: whether the test case passed. A variable that ReFrame could not evaluate is then a
        warning, since ReFrame passes the check without it.
    :arg dry_run: whether nothing ran, so that the figures are only expected.
    """
    check, partition, _ = testcase
    result = CaseResult(program=Path(str(check.executable or "")).name or None)
    result.variables = set() if dry_run else _variables(check)
    if passed and (notice := _ended_by_signal(check)):
        result.notices.append(notice)
    expected = [*check.perf_variables]
    if not expected:
        return result
    result.benchmark = check.display_name.split()[0]
    result.samples, result.warmups, result.judgements = 1, 0, {}
    result.shared = _is_shared(check, partition)
    result.conditions = ({"busy": "yes"} if result.shared else {}) | conditions(check)
    case = _case(testcase)
    if dry_run:
        result.expected = [(Figure(variable), case) for variable in expected]
        return result
    found = _values(check)
    for variable in expected:
        given, *_, unit, status = found.get(variable, (None, "", None))
        value = _finite(given)
        if value is None:
            if passed:
                result.notices.append(_not_evaluated(variable, found))
            continue
        figure = Figure(variable)
        own = _of_reframe(check, variable, value, unit, status)
        if own.bounds and (notice := _other_unit(check, variable, unit)):
            result.notices.append(notice)
            reason = with_code(notice.detail, notice.code)
            own = dataclasses.replace(own, verdict="not-asserted", bounds=None, reason=reason)
        result.figures[figure] = Measurement([value], case, unit, headline=True)
        judged = _both(own, _of_baseline(case, variable, value, unit))
        if result.shared and not judged.reason:
            judged = verdict.of_shared(judged)
        result.judgements[figure] = judged
    result.judgements = verdict.waived(result, subject_of(testcase), result.judgements)
    result.notices += verdict.notices(result)
    return result


def _values(check) -> dict[str, list]:
    """Return what ReFrame has of each performance variable; one may have a colon in its name."""
    place = f"{check.current_partition.fullname}:"
    return {key.removeprefix(place): values for key, values in check.perfvalues.items()}


def nodes_of(check, partition) -> int:
    """Return the number of nodes of a plain check before it runs; 0 if its scheduler decides it."""
    tasks = getattr(check, "num_tasks", 0) or 0
    if host_load.is_local(check, partition) or tasks == 1:
        return 1
    return math.ceil(max(tasks, 0) / check.num_tasks_per_node) if check.num_tasks_per_node else 0


def _case(testcase) -> Case:
    """Return what a baseline of a plain check identifies it by."""
    check, partition, environ = testcase
    per_node = check.num_tasks_per_node
    nodes = math.ceil(check.num_tasks / per_node) if check.num_tasks and per_node else 1
    system = rt.runtime().system.name
    # `local` is another machine on another host.
    host = {"host": platform.node()} if system == "local" else {}
    return Case(
        system, partition.name, environ.name, PLAIN + base_name(check.display_name), placement="",
        nodes=nodes, ppn=per_node or check.num_tasks or 1, conditions=host | conditions(check),
    )  # fmt: skip


def conditions(check) -> dict[str, str]:
    """Return the conditions of a plain check: the variables that ``-S`` changed, as it was given.

    ReFrame has them in no name. A site's own variable that does not matter has ``loggable=False``.
    """
    return {
        # As a cell of a table can have it.
        SETVAR + name: " ".join(value.replace(";", ",").split()) or "''"
        for name, value in check_patches.set_variables(check).items()
        if name.rpartition(".")[2] not in _NOT_MEASURED
    }


def _finite(value: object) -> float | None:
    """Return the value of a performance variable; ``None`` if no record can have it."""
    try:
        found = float(value) if isinstance(value, numbers.Real | decimal.Decimal) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _of_reframe(check, variable: str, value: float, unit: str, status: str | None) -> Judgement:
    """Return the verdict by the check's own reference."""
    bounds = _bounds(check, *(check_patches.reference_of(check, variable) or (0, None, None))[:3])
    found = _VERDICTS[status or "pass"] if bounds else "not-asserted"
    if bounds and not status:
        # ReFrame ended at the figure before, which is no number.
        found = "pass" if bounds.lower <= value <= bounds.upper else "fail"
    better = _better(bounds, unit)
    return Judgement(value, "single", found, bounds, ceiling=None, ceiling_id=None, better=better)


def _bounds(check, ref: float, low: float | None, high: float | None) -> Bounds | None:
    """Return the bounds that ReFrame derives from a reference; ``None`` if both are open."""
    if low is None and high is None:
        return None
    lower, upper = reference_bounds(ref, low, high)
    file = Path(inspect.getfile(type(check))).name
    return Bounds(ref, lower, upper, "single", OF_CHECK, f"reference of the check, {file}")


def _better(bounds: Bounds | None, unit: str) -> str:
    """Return which values are better: those away from the only bound, or else by the unit."""
    if bounds and math.isinf(bounds.lower) != math.isinf(bounds.upper):
        return "higher" if math.isinf(bounds.upper) else "lower"
    return units.better(unit)


def _of_baseline(case: Case, variable: str, value: float, unit: str) -> Judgement | None:
    """Return the verdict by the site's baseline, in the figure's unit; ``None`` if it has none."""
    fom = references().tables.foms.get(case.benchmark, {}).get(variable)
    bounds = references().bounds(case, variable, None) if fom else None
    if fom is None or bounds is None:
        return None
    try:
        factor = units.conversion(unit, fom.unit)
    except units.UnitError as err:
        reason = (
            f"{err}, the unit of its baseline {bounds.decides}: correct the check, or remove that "
            f"row ({references().tables.where[bounds.decides]}) and make a new baseline"
        )
        return Judgement(value, "single", "not-asserted", None, None, None, reason)
    judged = references().judge(case, variable, None, [value * factor])
    value_of, lower, upper = (x / factor for x in (bounds.value, bounds.lower, bounds.upper))
    bounds = dataclasses.replace(bounds, value=value_of, lower=lower, upper=upper)
    return dataclasses.replace(judged, value=value, bounds=bounds)


def _both(own: Judgement, baseline: Judgement | None) -> Judgement:
    """Return the verdict that decides: the baseline's, unless only the check's own reference
    fails. The other is named beside it."""
    if baseline is None or own.bounds is None:
        return baseline or own
    if baseline.bounds is None:
        return dataclasses.replace(own, reason=baseline.reason)
    decides, other = baseline, own
    if own.verdict == "fail" and baseline.verdict == "pass":
        decides, other = own, baseline
    bounds = (
        decides.bounds
        and other.bounds
        and dataclasses.replace(decides.bounds, others=(other.bounds.decides,))
    )
    return dataclasses.replace(decides, bounds=bounds)


def _ended_by_signal(check) -> Notice | None:
    """Return a warning if a signal ended a job or its last command. Other exit codes are for the
    check to judge: that of a ``grep`` which finds no error is 1."""
    # A shell and the launchers add 128; ReFrame's local scheduler has the signal itself, and Flux
    # its negative (flux-jobs(1), "returncode").
    code = getattr(check.job, "exitcode", None) or 0
    number = getattr(check.job, "signal", None) or (-code if code < 0 else code - 128)
    try:
        name = signal.Signals(number).name
    except ValueError:
        return None
    message = f"{name} ended the job, and the check accepts its output"
    return Notice(WARNINGS, "output.exit-code", message)


def _not_evaluated(variable: str, values: dict[str, list]) -> Notice:
    cause = "ReFrame could not evaluate it; see reframe.log"
    if variable in values:
        value, kind = reprlib.repr(values[variable][0]), type(values[variable][0]).__name__
        cause = f"its function returned {value} ({kind}): it must return one finite number"
    message = f"performance variable {variable} was not measured: {cause}"
    return Notice(WARNINGS, "figure.not-evaluated", message, variable)


def _other_unit(check, variable: str, unit: str) -> Notice | None:
    """Return a warning if a figure's own reference is in another unit: ReFrame does not convert."""
    other = (check_patches.reference_of(check, variable) or ())[3:]
    if not other or other[0] is None or units.same(other[0], unit):
        return None
    message = (
        f"performance variable {variable} is in {unit or 'no unit'}, its reference in {other[0]}: "
        f"ReFrame compares the bare numbers, so give the reference in the unit of the variable"
    )
    return Notice(WARNINGS, "figure.other-unit", message, variable, OF_CHECK)
