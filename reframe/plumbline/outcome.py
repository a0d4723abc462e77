"""From a test case that ended in ReFrame to its record."""

from __future__ import annotations

import os
import time

import reframe.core.runtime as rt
from reframe.core.exceptions import PerformanceError, ReframeError, SanityError, what

from plumbline import parse, record


def key_of(testcase) -> str:
    """The name of a test case that no other case of the session has."""
    check, partition, environ = testcase
    return f"{check.hashcode} @{partition.fullname}+{environ.name}"


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
        "nodes": list(check.job.nodelist or []) if check.job else [],
        "jobid": str(check.job.jobid) if check.job and check.job.jobid else None,
        "seconds": {"total": task.duration("total"), "samples": getattr(check, "sample_times", [])},
    }
    # A check that is not Plumbline's has none of these, one that ended early not all.
    for name in ("benchmark", "program", "version", "placement", "conditions", "build", "hosts"):
        fields[name] = getattr(check, name, fields[name])
    # Where its tasks ran; what the scheduler says is the login node's name under some.
    fields["nodes"] = getattr(check, "hosts_seen", []) or fields["nodes"]
    fields["samples"] = getattr(check, "num_samples", None)
    fields["warmups"] = getattr(check, "num_warmups", None)
    fields["tasks"] = [vars(task) for task in getattr(check, "tasks_seen", [])]
    if result != "pass":
        fields["phase"] = task.failed_stage
        fields["reason"] = _reason(task)
    folder = check.outputdir if result == "pass" else check.stagedir
    if folder and result != "skip":
        fields["output"] = os.path.relpath(folder, session.folder)
    judgements = getattr(check, "judgements", {})
    fields["foms"] = [_fom(check, figure, judged) for figure, judged in judgements.items()]
    return fields


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
        "verdict": judged.verdict,
        "reason": judged.reason,
        "lower": bounds and bounds.lower,
        "upper": bounds and bounds.upper,
        "reference": bounds and bounds.decides,
        "others": list(bounds.others) if bounds else [],
        "ceiling": judged.ceiling,
        "headline": bool({figure.variable, figure._replace(at="").variable} & {*check.headline}),
    }


def unfinished(session, case: str, plan: dict) -> dict:
    """The record of a planned case that never ended."""
    return _fields(session, case, "unfinished") | {
        "system": plan["system"],
        "partition": plan["partition"],
        "environment": plan["environment"],
        "check": plan["check"],
        "tags": plan["tags"],
        "reason": "started or still planned when the session ended; never finished",
    }


def _reason(task) -> str:
    """Why a case did not pass, in its own words, or in ReFrame's where it has none."""
    kind, error, _ = task.exc_info
    if kind is None:
        return "not judged: ReFrame was told to leave out its sanity or performance phase"
    if error is not None and task.aborted:
        cause = type(error.__cause__).__name__
        started = task.check.job is not None and task.check.job.jobid is not None
        return f"{'stopped while it ran' if started else 'not started when stopped'} ({cause})"
    own = task.skipped or isinstance(error, (SanityError, PerformanceError, ReframeError))
    return str(error) if own and str(error) else " ".join(what(*task.exc_info).split())
