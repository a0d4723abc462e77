"""The result of a test case, and its record."""

from __future__ import annotations

import dataclasses
import os
import time as clock
from dataclasses import dataclass, field
from pathlib import Path

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
from plumbline.check import outcomes, record, session_files
from plumbline.check.network import NetworkTraffic
from plumbline.check.states import Notice
from plumbline.check.throttling import NodeReadings
from plumbline.core import paths
from plumbline.core.errors import Coded
from plumbline.placement.proof import TaskReport, Variables, merged
from plumbline.reference import lookup, waivers
from plumbline.reference.row import Case
from plumbline.site import host_load


@dataclass(frozen=True)
class Measurement:
    """One figure of a test case.

    :ivar samples: the value of each sample but the warm-ups, in ``unit``.
    :ivar case: its conditions, for the references.
    :ivar headline: whether it is in the summary.
    :ivar across: of a pair of nodes, how many pairs shared the uplink between racks with it, as in
        :class:`plumbline.check.record.FigureRecord`.
    """

    samples: list[float]
    case: Case
    unit: str
    headline: bool
    across: int | None = None


@dataclass
class CaseResult:
    """Settings, measurements and judgements of a test case.

    Only the check fills it, phase by phase. Verdict, record and session read it, and nothing else
    of the check. If the case ended early, it has what was known by then.

    :ivar samples: complete runs that are judged, and ``warmups`` those before them.
    :ivar shared: whether other processes used the cores too.
    :ivar others: who else used the network, a text for each node.
    :ivar hosts: facts of each node.
    :ivar variables: that tune libraries, a set of them for all tasks that have the same.
    :ivar traffic: what the network interfaces of each node moved.
    :ivar readings: of the GPUs and CPUs of each node.
    :ivar tasks: where they ran in the last run.
    :ivar confirmed: of each node, whether it showed that it agrees with the system file.
    :ivar seconds: of each run, warm-ups first.
    :ivar judgements: of each figure; ``None`` before the performance phase.
    :ivar usual_seconds: estimate of what all samples take on an idle machine.
    :ivar scratch: folder that the session removes when the case has ended.
    :ivar expected: figures that a dry run would measure, with their conditions.
    :ivar placeholders: those of the job script of a dry run -> why they are there.
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
    others: list[str] = field(default_factory=list)
    traffic: NetworkTraffic = field(default_factory=NetworkTraffic)
    readings: NodeReadings = field(default_factory=NodeReadings)
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    variables: set[Variables] = field(default_factory=set)
    tasks: list[TaskReport] = field(default_factory=list)
    confirmed: dict[str, bool] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    figures: dict[parse.Figure, Measurement] = field(default_factory=dict)
    judgements: dict[parse.Figure, lookup.Judgement] | None = None
    usual_seconds: float = 0
    scratch: Path | None = None
    expected: list[tuple[parse.Figure, Case]] = field(default_factory=list)
    placeholders: dict[str, Coded] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        """The nodes that tasks ran on; ReFrame does not get them from every scheduler."""
        return list(dict.fromkeys(task.host for task in self.tasks))

    def waive(self, waiver: waivers.Waiver) -> None:
        """Mark the figures that fail as waived, where no waiver of their own decided that."""
        judgements = self.judgements or {}
        for figure, judged in judgements.items():
            if judged.verdict == "fail":
                judgements[figure] = dataclasses.replace(judged, verdict="waived", waiver=waiver)

    @property
    def topology(self) -> str | None:
        """Whether every node that tasks ran on showed that it agrees with the system file."""
        if not self.tasks:
            return None
        confirmed = all(self.confirmed.get(node) for node in self.nodes)
        return "confirmed" if confirmed else "unconfirmed"


def of_check(check) -> CaseResult | None:
    """Return a check's result; ``None`` if the check is not one of Plumbline's."""
    found = getattr(check, "result", None)
    return found if isinstance(found, CaseResult) else None


class Waived(Coded, ExpectedFailureError):
    """A known fault, which is an expected failure for ReFrame.

    :ivar waivers: those that cover it.
    """

    def __init__(self, covering: list[waivers.Waiver], fault: str, code: str):
        super().__init__("; ".join([fault, *(f"waiver {waiver}" for waiver in covering)]), code)
        self.waivers = covering


def key_of(testcase) -> str:
    """Return the name of a test case, which is unique in its session."""
    check, partition, environ = testcase
    return f"{check.hashcode} @{partition.fullname}+{environ.name}"


def result_of(error: BaseException | None) -> str:
    """Return the result of a test case that ended with an error.

    ReFrame's own ``xfail`` waives nothing, as it has no owner and no end; only a waiver does.
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
    """Return where its tasks ran; some schedulers report the login node instead."""
    seen = (of_check(check) or CaseResult()).nodes
    return seen or list((check.job and check.job.nodelist) or [])


def subject_of(testcase) -> waivers.Subject:
    """Return a test case as waivers identify it."""
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
    """Return whether its figures are judged, each with a waiver of its own."""
    measured = of_check(check)
    return measured is not None and measured.judgements is not None


def waived_case(task, exc_info: tuple) -> Waived | None:
    """Return the known fault of a failed test case, if a valid waiver covers it."""
    result = result_of(exc_info[1])
    # After its verdict, only the clean-up can fail. Figures have waivers of their own.
    if task.succeeded or (result == "fail" and _judged(task.check)):
        return None
    known = waivers.loaded(paths.reference())
    waiver = waivers.covering(known, subject_of(task.testcase), result)
    return Waived([waiver], _message(exc_info), outcomes.code_of(task)) if waiver else None


def _fields(session, case: str, result: str) -> dict:
    """Return the fields of a record without measurements."""
    nothing = dict.fromkeys(
        ("benchmark", "program", "version", "placement", "jobid", "samples", "warmups", "phase")
    )
    return {
        **nothing,
        "schema": record.SCHEMA,
        "session": session.name,
        "time": clock.strftime("%Y-%m-%dT%H:%M:%SZ", clock.gmtime()),
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


def of_task(session, task, result: str, measured: CaseResult, wrong: str = "") -> record.Record:
    """Return the record of a test case that ended.

    A site's own check may put anything into its result. If that does not conform to the schema of a
    record, the case is invalid.

    :arg wrong: the error for which there is no result. What did not pass has its own reason.
    """
    fields = _of_task(session, task, result, measured)
    try:
        if wrong and result == "pass":
            raise record.Damaged(wrong)
        return record.create(fields)
    except record.Damaged as err:
        bare = _fields(session, fields["case"], "invalid")
        bare |= {name: fields[name] for name in _IDENTITY}
        bare["reason"] = f"invalid: the result of the check cannot be recorded: {err}"
        bare["code"] = "check.wrong-result"
        return record.create(bare)


#: Fields that identify a test case, whatever its result.
_IDENTITY = ("system", "partition", "environment", "check", "attempt", "tags", "extras")


def _of_task(session, task, result: str, measured: CaseResult) -> dict:
    check, partition, environ = task.testcase
    fields = _fields(session, key_of(task.testcase), result)
    side = getattr(check, "duet_side", "")
    fields |= {
        "system": rt.runtime().system.name,
        "partition": partition.name,
        "environment": environ.name,
        "check": check.display_name,
        "attempt": rt.runtime().current_run,
        "tags": sorted(check.tags),
        "extras": session.extras | ({record.DUET: side} if side else {}),
        "nodes": _nodes_of(check),
        "jobid": str(check.job.jobid) if check.job and check.job.jobid else None,
        "seconds": _seconds(task),
    }
    for name in ("benchmark", "program", "version", "placement", "conditions", "build", "hosts"):
        fields[name] = getattr(measured, name)
    fields["samples"], fields["warmups"] = measured.samples, measured.warmups
    fields["warnings"] = [vars(notice) for notice in measured.notices]
    fields["tasks"] = [vars(task) for task in measured.tasks]
    moved = {host: measured.traffic.interfaces(host) for host in measured.traffic.runs}
    if any(moved.values()):
        fields["network"] = {
            host: {name: vars(one) for name, one in found.items()} for host, found in moved.items()
        }
    fields |= _readings(measured.readings)
    if measured.variables:
        own = host_load.YIELDING.items() if measured.shared else ()
        found = merged(measured.variables).items()
        fields["variables"] = dict(one for one in found if one not in own)
    if measured.topology:
        fields["topology"] = measured.topology
    error = task.exc_info[1]
    if result != "pass":
        fields["phase"] = task.failed_stage
        fields["reason"] = _reason(task)
        fields["code"] = outcomes.code_of(task)
    if isinstance(error, Waived):
        fields["waiver"] = error.waivers[0].id
        measured.waive(error.waivers[0])
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
    """Return the seconds that a case took, without the time that it waited."""
    samples = (of_check(task.check) or CaseResult()).seconds
    stages = [task.duration(stage) or 0 for stage in ("setup", "sanity", "performance")]
    ran = task.duration("run_complete") or 0
    if not host_load.is_local(task.check, task.testcase.partition):
        # This includes the queue; of the time in which the job ran, the samples are known.
        ran = min(ran, sum(samples))
    return {"total": sum(stages) + ran, "samples": samples}


def _fom(figure: parse.Figure, measured: Measurement, judged: lookup.Judgement) -> dict:
    bounds = judged.bounds
    foms = lookup.loaded(paths.reference()).tables.foms
    entry = foms.get(measured.case.benchmark, {}).get(figure.metric)
    same = ("value", "statistic", "better", "verdict", "near_bound", "reason", "ceiling")
    return {
        **figure._asdict(),
        **{name: getattr(judged, name) for name in same},
        "placement": measured.case.placement,
        "unit": measured.unit,
        "samples": measured.samples,
        "summary": record.Summary.of(measured.samples).model_dump(),
        "waiver": judged.waiver.id if judged.waiver else None,
        "lower": bounds and bounds.lower,
        "upper": bounds and bounds.upper,
        "reference": bounds and bounds.decides,
        "others": list(bounds.others) if bounds else [],
        "headline": measured.headline,
        "tolerance": entry and entry.tolerance,
        **({} if measured.across is None else {"across": measured.across}),
    }


#: Why a planned case has no result: its session ended without one, or was killed.
ENDED = "started or still planned when the session ended; never finished"
KILLED = "started or still planned when the session was killed; never finished"


def unfinished(
    session, case: str, plan: session_files.Planned, reason: str = ENDED, time: str = ""
) -> record.Record:
    """Return the record of a planned case that never ended.

    :arg time: of the record, if not now.
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
    return record.create(fields | ({"time": time} if time else {}))


def _readings(measured: NodeReadings) -> dict:
    """Return the fields of a record about GPUs and CPUs, without those that nothing was read of."""
    devices = {host: measured.devices(host) for host in measured.gpus}
    processors = {host: measured.processors(host) for host in measured.cpus}
    fields = {
        "devices": {
            host: {bus: device.recorded() for bus, device in found.items()}
            for host, found in devices.items()
            if found
        },
        "processors": {
            host: found.model_dump(exclude_none=True) for host, found in processors.items() if found
        },
    }
    return {name: found for name, found in fields.items() if found}


def _reason(task) -> str:
    """Return why a case did not pass: its own message, or ReFrame's if it has none."""
    kind, error, _ = task.exc_info
    if kind is None:
        return "not judged: ReFrame was started with an option that skips a phase or a hook"
    if error is not None and task.aborted:
        started = task.check.job is not None and task.check.job.jobid is not None
        if isinstance(error.__cause__, RunSessionTimeout):
            return f"{'stopped while it ran' if started else 'not run'}: budget spent"
        cause = str(error.__cause__) or type(error.__cause__).__name__
        cause = cause.replace("KeyboardInterrupt", "Ctrl-C")
        return f"{'stopped while it ran' if started else 'not started when stopped'} ({cause})"
    if isinstance(error, ExpectedFailureError) and not isinstance(error, Waived):
        file = waivers.path_of(paths.reference())
        return (
            f"xfail without a waiver: {_message(task.exc_info)}; only a waiver in {file} waives it"
        )
    return str(error) if task.skipped and str(error) else _message(task.exc_info)


def _message(exc_info: tuple) -> str:
    """Return the message of an error, or ReFrame's description if it has none."""
    error = exc_info[1]
    if isinstance(error, ExpectedFailureError) and error.__context__:
        return f"{error}: {error.__context__}"
    if isinstance(error, UnexpectedSuccessError):
        return f"marked xfail, and passed: remove the mark: {error}"
    own = isinstance(error, (SanityError, PerformanceError, ReframeError)) and str(error)
    return str(error) if own else " ".join(what(*exc_info).split())
