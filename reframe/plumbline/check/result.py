"""What a test case measured, and from a test case that ended in ReFrame to its record."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

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
from plumbline.check.states import Notice
from plumbline.core import paths
from plumbline.core.errors import Coded
from plumbline.placement.binding import Seen
from plumbline.reference import lookup, waivers
from plumbline.reference.row import Case


@dataclass(frozen=True)
class Measurement:
    """One figure of a test case.

    :ivar samples: what each sample printed, in ``unit``, warm-ups left out.
    :ivar case: the conditions that references know it by.
    :ivar headline: whether the closing table shows it.
    """

    samples: list[float]
    case: Case
    unit: str
    headline: bool


@dataclass
class CaseResult:
    """What a test case ran with, what it measured, and how that was judged.

    The check fills it, phase by phase, and nothing else does. Verdict and record read it, and
    nothing of the check. One that ended early has what was known by then.

    :ivar samples: complete runs that the verdict rests on, and ``warmups`` those before them.
    :ivar shared: whether the cores had other processes too.
    :ivar hosts: facts of each node.
    :ivar tasks: where they ran in the last run.
    :ivar confirmed: of each node, whether it showed that it is as the system file says.
    :ivar seconds: that each run took, warm-ups first.
    :ivar judgements: of each figure; ``None`` before the performance phase.
    """

    benchmark: str | None = None
    program: str | None = None
    version: str | None = None
    placement: str | None = None
    conditions: dict[str, str] = field(default_factory=dict)
    samples: int | None = None
    warmups: int | None = None
    build: dict[str, str] = field(default_factory=dict)
    shared: bool = False
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    tasks: list[Seen] = field(default_factory=list)
    confirmed: dict[str, bool] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    figures: dict[parse.Figure, Measurement] = field(default_factory=dict)
    judgements: dict[parse.Figure, lookup.Judgement] | None = None

    @property
    def nodes(self) -> list[str]:
        """The nodes that tasks ran on; not every scheduler tells them to ReFrame."""
        return list(dict.fromkeys(task.host for task in self.tasks))

    @property
    def topology(self) -> str | None:
        """Whether every node that tasks ran on showed that it is as the system file says."""
        if not self.tasks:
            return None
        confirmed = all(self.confirmed.get(node) for node in self.nodes)
        return "confirmed" if confirmed else "unconfirmed"


def of_check(check) -> CaseResult | None:
    """What a check measured; ``None`` if it is not one of Plumbline's."""
    found = getattr(check, "result", None)
    return found if isinstance(found, CaseResult) else None


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
    seen = (of_check(check) or CaseResult()).nodes
    return seen or list((check.job and check.job.nodelist) or [])


def subject_of(testcase) -> waivers.Subject:
    """A test case as waivers know it."""
    check, partition, environ = testcase
    measured = of_check(check) or CaseResult()
    return waivers.Subject(
        rt.runtime().system.name,
        partition.name,
        environ.name,
        check.display_name,
        measured.placement or "",
        tuple(_nodes_of(check)),
    )


def _judged(check) -> bool:
    """Whether each of its figures has a verdict, and a waiver of its own."""
    measured = of_check(check)
    return measured is not None and measured.judgements is not None


def waived_case(task, exc_info: tuple) -> Waived | None:
    """The known fault that a whole test case fails by, if a waiver in force covers it."""
    result = result_of(exc_info[1])
    # What failed after its verdict was the tidying up; of figures, each has a waiver of its own.
    if task.succeeded or (result == "fail" and _judged(task.check)):
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


def of_task(session, task, result: str) -> record.Record:
    """The record of a test case that ended. A site's own check may fill in anything: of what fits
    no record it says only that, as a result that cannot be trusted."""
    fields = _of_task(session, task, result)
    try:
        return record.made(fields)
    except record.Damaged as err:
        bare = _fields(session, fields["case"], "invalid")
        bare |= {name: fields[name] for name in _IDENTITY}
        bare["reason"] = f"invalid: what the check measured fits no record: {err}"
        bare["code"] = "check.wrong-result"
        return record.made(bare)


#: What a record has of a test case, whatever came of it.
_IDENTITY = ("system", "partition", "environment", "check", "attempt", "tags")


def _of_task(session, task, result: str) -> dict:
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
    # Of a check that is not Plumbline's nothing more is known.
    measured = of_check(check) or CaseResult()
    for name in ("benchmark", "program", "version", "placement", "conditions", "build", "hosts"):
        fields[name] = getattr(measured, name)
    fields["samples"], fields["warmups"] = measured.samples, measured.warmups
    fields["warnings"] = [vars(notice) for notice in measured.notices]
    fields["tasks"] = [vars(task) for task in measured.tasks]
    if measured.topology:
        fields["topology"] = measured.topology
    error = task.exc_info[1]
    if result != "pass":
        fields["phase"] = task.failed_stage
        fields["reason"] = _reason(task)
        fields["code"] = outcomes.code_of(task)
    if isinstance(error, Waived):
        fields["waiver"] = error.waivers[0].id
    elif result in ("fail", "invalid", "error") and not _judged(check):
        known = waivers.loaded(paths.reference())
        expired = waivers.expired(known, subject_of(task.testcase), result)
        fields["reason"] += "".join(f"; expired waiver {waiver}" for waiver in expired)
    folder = check.outputdir if result == "pass" else check.stagedir
    if folder and result != "skip":
        fields["output"] = os.path.relpath(folder, session.folder)
    fields["foms"] = [
        _fom(figure, measured.figures[figure], judged)
        for figure, judged in (measured.judgements or {}).items()
    ]
    return fields


def _seconds(task) -> dict:
    """How long a case took, without the time that it waited for its turn or in a queue."""
    samples = (of_check(task.check) or CaseResult()).seconds
    stages = [task.duration(stage) or 0 for stage in ("setup", "sanity", "performance")]
    ran = task.duration("run_complete") or 0
    if not task.testcase.partition.scheduler.is_local:
        # From submission to end; of the part in which the job ran, the samples are known.
        ran = min(ran, sum(samples))
    return {"total": sum(stages) + ran, "samples": samples}


def _fom(figure: parse.Figure, measured: Measurement, judged: lookup.Judgement) -> dict:
    bounds = judged.bounds
    return {
        "metric": figure.metric,
        "size": figure.size,
        "at": figure.at,
        "placement": measured.case.placement,
        "value": judged.value,
        "unit": measured.unit,
        "samples": measured.samples,
        "summary": record.Summary.of(measured.samples).model_dump(),
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
        "headline": measured.headline,
    }


#: Why a planned case has no result, where its session ended without one, and where it was killed.
LEFT = "started or still planned when the session ended; never finished"
KILLED = "started or still planned when the session was killed; never finished"


def unfinished(
    session, case: str, plan: record.Planned, reason: str = LEFT, then: str = ""
) -> record.Record:
    """The record of a planned case that never ended.

    :arg then: when, if not now.
    """
    fields = _fields(session, case, "unfinished") | {
        "system": plan["system"],
        "partition": plan["partition"],
        "environment": plan["environment"],
        "check": plan["check"],
        "tags": plan["tags"],
        "reason": reason,
        "code": "case.unfinished",
    }
    return record.made(fields | ({"time": then} if then else {}))


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
