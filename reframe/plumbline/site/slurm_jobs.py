"""The reason why Slurm ended a job.

ReFrame's scheduler keeps the state of a job but not the reason, so that a job that was cancelled,
timed out or lost its node would look as if its output were missing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection

import reframe.utility.osext as osext
from reframe.core.exceptions import JobError, SpawnedProcessError, SpawnedProcessTimeout
from reframe.core.schedulers import Job
from reframe.core.schedulers.slurm import SlurmJobScheduler, SqueueJobScheduler

from plumbline.core.errors import Fault
from plumbline.core.process import last_line
from plumbline.site import slurm
from plumbline.site.check_patches import pinned_to
from plumbline.site.ended_jobs import Lost, command_output, note, still_pending, why
from plumbline.site.job_patches import (
    cancel_without_reservation,
    node_spec,
    update_job,
    wrap_poll,
)

#: States of sacct(1), "JOB STATE CODES", of a job that did not end with its script.
LOST = frozenset(
    ["BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)

#: States of scontrol(1) in which a node takes no jobs, as a pattern.
_NOT_UP = "DOWN|DRAIN|FAIL|NOT_RESPONDING"

#: Consecutive polls in which sacct(1) may not list a job before the controller is asked: it does
#: not list a job at once after its submission, and none if the clocks are a day apart.
MISSES = 10


def watch() -> None:
    """Make ReFrame's schedulers report why a job was lost.

    They also ask the controller if the accounting, or squeue(1), does not answer. Otherwise the
    session would end there, or its jobs would count as completed while they run.
    """
    cancel_without_reservation()
    for scheduler, update in ((SlurmJobScheduler, _by_sacct), (SqueueJobScheduler, _by_squeue)):
        wrap_poll(scheduler, functools.partial(_polled, update))


def _polled(update: Callable, scheduler, jobs: list[Job], poll: Callable[[], None]) -> None:
    waited = [job for job in jobs if not job.is_cancelling]
    update(scheduler, jobs, poll)
    for job in waited:
        if job.is_cancelling and job.exception is None:
            update_job(job, exception=still_pending(job))
        elif scheduler.finished(job) and not getattr(job, "reason_known", False):
            job.reason_known = True
            states = set(job.state.split(","))
            if states & LOST:
                update_job(job, exception=Lost(f"Slurm reports {end_of(job)}", job.jobid))
            elif "FAILED" in states and job.exitcode == 0:
                # Of ``0:15``, ReFrame takes the first number alone.
                codes = map(_exit_code, _accounted(job, "exitcode").split())
                update_job(job, exitcode=max(codes, default=0))


def _exit_code(printed: str) -> int:
    """Return an exit code of Slurm, ``CODE:SIGNAL``, as shells have it: 128 more than a signal."""
    code, _, number = printed.partition(":")
    return int(code) or (128 + int(number) if int(number or 0) else 0)


def _by_sacct(_, jobs: list, poll: Callable[[], None]) -> None:
    before = {job: job.state for job in jobs}
    for job in jobs:
        # ReFrame keeps the last known state; this shows whether the job is listed now.
        update_job(job, state=None)
    failed = False
    try:
        poll()
    except (OSError, SpawnedProcessError) as err:
        # The former where sacct(1) is not installed.
        failed = True
        message = f"Slurm's accounting does not answer ({why(err)})"
        note(f"{message}: the states of jobs are its controller's")
    for job in jobs:
        job.misses = 0 if job.state else getattr(job, "misses", 0) + 1
        update_job(job, state=job.state or before[job])
    asked = [job for job in jobs if failed or job.misses >= MISSES or job.state == "PREEMPTED"]
    for job in _ask_controller(asked):
        if job.state == "PREEMPTED":
            _end_preempted(job)
            continue
        # The session would wait forever for a job that neither knows.
        job.reason_known = True
        message = (
            "its end is not known: Slurm's accounting does not list it, and its controller "
            "reports Invalid job id"
        )
        update_job(job, state="FAILED", exception=JobError(message, job.jobid))


def _by_squeue(scheduler, jobs: list, poll: Callable[[], None]) -> None:
    before = {job: job.state for job in jobs}
    try:
        poll()
    except SpawnedProcessError as err:
        _note_controller(why(err))
    # For ReFrame, a job that squeue(1) does not list has ended; it lists none if it fails.
    ended = {job: job.state for job in jobs if scheduler.finished(job)}
    for job in ended:
        update_job(job, state=before[job])
    for job in _ask_controller(list(ended)):
        update_job(job, state=ended[job])


def end_of(job) -> str:
    """Return the final state of a job, of Slurm's accounting or else of its controller, and those
    of its nodes that are not up."""
    state = job.state
    output = _accounted(job, "state,elapsed,timelimit")
    lines = [line.split("|") for line in output.splitlines()]
    if len(lines) == 1 and len(lines[0]) == 3:
        state, elapsed, limit = lines[0]
        state += f" after {elapsed}" + (f" of {limit}" if state == "TIMEOUT" else "")
    if "NODE_FAIL" in state:
        state = "; ".join([state, *_not_up(node_spec(job))])
    return state


def _accounted(job, fields: str) -> str:
    """Return what sacct(1) prints of a job, or of each of an array."""
    return command_output("sacct", "-n", "-X", "-P", "-j", job.jobid, "-o", fields)


def _not_up(nodes: str, states: str = _NOT_UP) -> list[str]:
    """Return the nodes in one of these states, each with the controller's reason."""
    return [
        f"{fields['NodeName']} is {fields['State']}{reason}"
        for fields, reason in _nodes(nodes)
        if re.search(states, fields["State"])
    ]


def _nodes(nodes: str) -> list[tuple[dict[str, str], str]]:
    found = []
    command = ["scontrol", "--all", "-o", "show", "node", *([nodes] if nodes else [])]
    for line in command_output(*command).splitlines():
        fields = slurm.fields_of(line)
        # The last field, followed by time and user.
        reason = re.search(r"\bReason=(.*?)(?: \[.*)?$", line)
        if {"NodeName", "State"} <= set(fields):
            found.append((fields, f": {reason[1].strip()}" if reason else ""))
    return found


def _ask_controller(jobs: list) -> list:
    """Take the states of jobs from the controller, which keeps them for some minutes after their
    end (slurm.conf(5), MinJobAge).

    :returns: those that it does not know.
    """
    unknown = []
    for job in jobs:
        try:
            done = osext.run_command(["scontrol", "-o", "show", "job", job.jobid])
        except SpawnedProcessTimeout as err:
            # The same for the other jobs would take as long for each.
            _note_controller(why(err))
            break
        lines = [slurm.fields_of(line) for line in done.stdout.splitlines()]
        # A line each of an array's jobs, or a heterogeneous job's components.
        if found := [fields for fields in lines if "JobState" in fields]:
            codes = [_exit_code(fields.get("ExitCode", "0")) for fields in found]
            update_job(
                job,
                state=",".join(fields["JobState"] for fields in found),
                nodespec=",".join(filter(None, (fields.get("NodeList") for fields in found))),
                exitcode=max(codes),
            )
            if job.state == "PREEMPTED":
                _end_preempted(job)
        elif "Invalid job id" in done.stderr:
            unknown.append(job)
        else:
            _note_controller(last_line(done.stderr))
    return unknown


def _note_controller(reason: str) -> None:
    note(f"Slurm's controller does not answer ({reason}): waiting")


def _end_preempted(job) -> None:
    """End a job that the controller does not have as pending: it is not to run again. ReFrame would
    wait for it."""
    job.reason_known = True
    lost = Lost(f"Slurm reports {end_of(job)}", job.jobid)
    update_job(job, state="CANCELLED", exception=lost)


def _unavailable(partition, measured: Collection[str]) -> list[str]:
    """Return the nodes of a ReFrame partition on Slurm that take no jobs now or are reserved, with
    the reasons, except those that are measured; none if it is not known which nodes it has."""
    try:
        selected = slurm.members(partition.access, slurm.nodes() or [])
    except Fault:
        return []
    nodes = [name for name in selected if name not in measured]
    return _not_up(",".join(nodes), f"{_NOT_UP}|MAINT|RESERVED") if nodes else []


def skipped_nodes(testcases) -> list[str]:
    """Return the nodes that take no jobs or are reserved, so that ``--distribute`` skips them: a
    line a partition."""
    partitions = {
        case.partition.fullname: (case.partition, pinned.others)
        for case in testcases
        if (pinned := pinned_to(case.check))
        and case.partition.scheduler.registered_name in ("slurm", "squeue")
    }
    found = {name: _unavailable(*distributed) for name, distributed in partitions.items()}
    return [f"{name}: not measured: {'; '.join(nodes)}" for name, nodes in found.items() if nodes]
