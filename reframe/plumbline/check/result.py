"""From a test case that ended in ReFrame to its record."""

from __future__ import annotations

import dataclasses
import os
import time

import reframe.core.runtime as rt
from reframe.core.exceptions import (
    ExpectedFailureError,
    PerformanceError,
    ReframeError,
    RunSessionTimeout,
    SanityError,
    UnexpectedSuccessError,
    what,
)

from plumbline import parse
from plumbline.check import outcomes, record
from plumbline.core import paths
from plumbline.core.errors import Coded
from plumbline.reference import lookup, waivers


class Waived(Coded, ExpectedFailureError):
    """A known fault, for ReFrame an expected failure.

    :ivar waivers: those that cover it.
    """

    def __init__(self, covering: list[waivers.Waiver], fault: str, code: str):
        super().__init__("; ".join([fault, *(f"waiver {waiver}" for waiver in covering)]), code)
        self.waivers = covering


def key_of(testcase) -> str:
    """The name of a test case that no other case of the session has."""
    check, partition, environ = testcase
    return f"{check.hashcode} @{partition.fullname}+{environ.name}"


def result_of(error: BaseException | None) -> str:
    """The result of a test case that ended with an error.

    What a check marks with ReFrame's own ``xfail`` is the failure that it is: a mark has no owner
    and no end, so that only a waiver waives.
    """
    if isinstance(error, Waived):
        return "waived"
    if isinstance(error, ExpectedFailureError):
        # ReFrame marks the sanity of a check, or else single figures.
        return result_of(error.__context__) if error.__context__ else "fail"
    if isinstance(error, PerformanceError):
        return "fail"
    return "invalid" if isinstance(error, SanityError) else "error"


def _nodes_of(check) -> list[str]:
    """Where its tasks ran; what the scheduler says is the login node's name under some."""
    return getattr(check, "hosts_seen", []) or list((check.job and check.job.nodelist) or [])


def subject_of(testcase, figure: parse.Figure | None = None) -> waivers.Subject:
    """A test case, or a figure of it, as waivers know it."""
    check, partition, environ = testcase
    case = waivers.Subject(
        rt.runtime().system.name,
        partition.name,
        environ.name,
        check.display_name,
        getattr(check, "placement", ""),
        tuple(_nodes_of(check)),
    )
    if figure is None:
        return case
    placement = check.case_of(figure).placement
    return dataclasses.replace(case, placement=placement, **figure._asdict())


def waived(check, figure: parse.Figure, judged: lookup.Judgement) -> lookup.Judgement:
    """A judgement; waived where a waiver in force covers its failure."""
    if judged.verdict != "fail":
        return judged
    known = waivers.loaded(paths.reference())
    waiver = waivers.covering(known, subject_of(_case_of(check), figure), "fail")
    return dataclasses.replace(judged, verdict="waived", waiver=waiver) if waiver else judged


def expired_for(check, figure: parse.Figure, judged: lookup.Judgement) -> str:
    """The expired waivers that would cover a failed figure, for its message."""
    if judged.waiver:
        return ""
    known = waivers.loaded(paths.reference())
    expired = waivers.expired(known, subject_of(_case_of(check), figure), "fail")
    return "".join(f"; expired waiver {waiver}" for waiver in expired)


def _case_of(check) -> tuple:
    return check, check.current_partition, check.current_environ


def waived_case(task, exc_info: tuple) -> Waived | None:
    """The known fault that a whole test case fails by, if a waiver in force covers it."""
    result = result_of(exc_info[1])
    # What failed after its verdict was the tidying up; of figures, each has a waiver of its own.
    if task.succeeded or (result == "fail" and hasattr(task.check, "judgements")):
        return None
    known = waivers.loaded(paths.reference())
    waiver = waivers.covering(known, subject_of(task.testcase), result)
    return Waived([waiver], _said(exc_info), outcomes.code_of(task)) if waiver else None


def _fields(session, case: str, result: str) -> dict:
    """A record in which nothing was measured."""
    nothing = dict.fromkeys(
        ("benchmark", "program", "version", "placement", "jobid", "samples", "warmups", "phase")
    )
    return {
        **nothing,
        "schema": record.SCHEMA,
        "session": session.name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "case": case,
        "attempt": 0,
        "conditions": {},
        "tags": [],
        "nodes": [],
        "build": {},
        "extras": session.extras,
        "hosts": {},
        "tasks": [],
        "result": result,
        "reason": None,
        "code": None,
        "waiver": None,
        "warnings": [],
        "output": None,
        "seconds": {"total": None, "samples": []},
        "foms": [],
    }


def of_task(session, task, result: str) -> dict:
    """The record of a test case that ended."""
    check, partition, environ = task.testcase
    fields = _fields(session, key_of(task.testcase), result)
    fields |= {
        "system": rt.runtime().system.name,
        "partition": partition.name,
        "environment": environ.name,
        "check": check.display_name,
        "attempt": rt.runtime().current_run,
        "tags": sorted(check.tags),
        "nodes": _nodes_of(check),
        "jobid": str(check.job.jobid) if check.job and check.job.jobid else None,
        "seconds": _seconds(task),
    }
    # A check that is not Plumbline's has none of these, or means something else by them; one that
    # ended early has not all.
    ours = check if hasattr(check, "figures") else None
    for name in ("benchmark", "program", "version", "placement", "conditions", "build", "hosts"):
        fields[name] = getattr(ours, name, fields[name])
    fields["samples"] = getattr(ours, "num_samples", None)
    fields["warmups"] = getattr(ours, "num_warmups", None)
    fields["warnings"] = [vars(notice) for notice in getattr(check, "notices", [])]
    fields["tasks"] = [vars(task) for task in getattr(check, "tasks_seen", [])]
    if fields["tasks"]:
        fields["topology"] = "confirmed" if check.topology_confirmed else "unconfirmed"
    error = task.exc_info[1]
    if result != "pass":
        fields["phase"] = task.failed_stage
        fields["reason"] = _reason(task)
        fields["code"] = outcomes.code_of(task)
    if isinstance(error, Waived):
        fields["waiver"] = error.waivers[0].id
    elif result in ("fail", "invalid", "error") and not hasattr(check, "judgements"):
        known = waivers.loaded(paths.reference())
        expired = waivers.expired(known, subject_of(task.testcase), result)
        fields["reason"] += "".join(f"; expired waiver {waiver}" for waiver in expired)
    folder = check.outputdir if result == "pass" else check.stagedir
    if folder and result != "skip":
        fields["output"] = os.path.relpath(folder, session.folder)
    judgements = getattr(check, "judgements", {})
    fields["foms"] = [_fom(check, figure, judged) for figure, judged in judgements.items()]
    return fields


def _seconds(task) -> dict:
    """How long a case took, without the time that it waited for its turn or in a queue."""
    samples = getattr(task.check, "sample_times", [])
    stages = [task.duration(stage) or 0 for stage in ("setup", "sanity", "performance")]
    ran = task.duration("run_complete") or 0
    if not task.testcase.partition.scheduler.is_local:
        # From submission to end; of the part in which the job ran, the samples are known.
        ran = min(ran, sum(samples))
    return {"total": sum(stages) + ran, "samples": samples}


def _fom(check, figure: parse.Figure, judged) -> dict:
    bounds = judged.bounds
    return {
        "metric": figure.metric,
        "size": figure.size,
        "at": figure.at,
        "placement": check.case_of(figure).placement,
        "value": judged.value,
        "unit": check.unit_of(figure.metric),
        "samples": check.samples[figure],
        "summary": record.summary(check.samples[figure]),
        "statistic": judged.statistic,
        "better": judged.better,
        "verdict": judged.verdict,
        "near": judged.near,
        "waiver": judged.waiver.id if judged.waiver else None,
        "reason": judged.reason,
        "lower": bounds and bounds.lower,
        "upper": bounds and bounds.upper,
        "reference": bounds and bounds.decides,
        "others": list(bounds.others) if bounds else [],
        "ceiling": judged.ceiling,
        "headline": bool({figure.variable, figure._replace(at="").variable} & {*check.headline}),
    }


#: Why a planned case has no result, where its session ended without one, and where it was killed.
LEFT = "started or still planned when the session ended; never finished"
KILLED = "started or still planned when the session was killed; never finished"


def unfinished(session, case: str, plan: dict, reason: str = LEFT) -> dict:
    """The record of a planned case that never ended."""
    return _fields(session, case, "unfinished") | {
        "system": plan["system"],
        "partition": plan["partition"],
        "environment": plan["environment"],
        "check": plan["check"],
        "tags": plan["tags"],
        "reason": reason,
        "code": "case.unfinished",
    }


def _reason(task) -> str:
    """Why a case did not pass, in its own words, or in ReFrame's where it has none."""
    kind, error, _ = task.exc_info
    if kind is None:
        return "not judged: ReFrame was told to leave out its sanity or performance phase"
    if error is not None and task.aborted:
        started = task.check.job is not None and task.check.job.jobid is not None
        if isinstance(error.__cause__, RunSessionTimeout):
            return f"{'stopped while it ran' if started else 'not run'}: budget spent"
        cause = type(error.__cause__).__name__
        return f"{'stopped while it ran' if started else 'not started when stopped'} ({cause})"
    if isinstance(error, ExpectedFailureError) and not isinstance(error, Waived):
        file = waivers.path_of(paths.reference())
        return f"xfail without a waiver: {_said(task.exc_info)}; only a waiver in {file} waives it"
    return str(error) if task.skipped and str(error) else _said(task.exc_info)


def _said(exc_info: tuple) -> str:
    """An error in its own words, or in ReFrame's where it has none."""
    error = exc_info[1]
    if isinstance(error, ExpectedFailureError) and error.__context__:
        return f"{error}: {error.__context__}"
    if isinstance(error, UnexpectedSuccessError):
        return f"marked xfail, and passed: take the mark out: {error}"
    own = isinstance(error, (SanityError, PerformanceError, ReframeError)) and str(error)
    return str(error) if own else " ".join(what(*exc_info).split())
