"""What Slurm says of its jobs: ReFrame's scheduler keeps the state of a job and not its words, so
that one that was cancelled, timed out or lost its node reads as output that is missing."""

from __future__ import annotations

import re
from collections.abc import Callable

import reframe.utility.osext as osext
from reframe.core.exceptions import JobError, SpawnedProcessError
from reframe.core.schedulers import Job
from reframe.core.schedulers.slurm import SlurmJobScheduler

from plumbline.site.lost import Lost
from plumbline.site.reframe_patches import node_spec, update_job, wrap_poll

#: States of sacct(1), "JOB STATE CODES", in which a job ended otherwise than by its script's end.
LOST = frozenset(
    ["BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)

#: Polls in a row that sacct(1) may not list a job before the controller is asked: a job that was
#: just submitted is not listed at once, and none is where the clocks are a day apart.
MISSES = 10

#: What of Slurm's did not answer in this session, a line each.
notes: list[str] = []


def watch() -> None:
    """Has ReFrame's scheduler say why a job was lost, and ask the controller where the accounting
    does not answer: without that the session would end there, and all that still ran be lost."""
    wrap_poll(SlurmJobScheduler, _polled)


def _polled(scheduler, jobs: list[Job], poll: Callable[[], None]) -> None:
    waited = [job for job in jobs if not job.is_cancelling]
    before = {job: job.state for job in jobs}
    for job in jobs:
        # Whether it is listed now: ReFrame keeps the last state that it saw.
        update_job(job, state=None)
    lost = ""
    try:
        poll()
    except SpawnedProcessError as err:
        lost = f"Slurm's accounting does not answer ({_last(err.stderr)})"
        _note(f"{lost}: the states of jobs are its controller's")
    for job in jobs:
        job.misses = 0 if job.state else getattr(job, "misses", 0) + 1
        update_job(job, state=job.state or before[job])
    _ask_controller([job for job in jobs if lost or job.misses >= MISSES])
    for job in waited:
        if job.is_cancelling and job.exception is None:
            waited_for = f"still pending after max_pending_time, {job.max_pending_time:g} s"
            update_job(job, exception=JobError(f"{waited_for}: cancelled", job.jobid))
        elif scheduler.finished(job) and not getattr(job, "told", False):
            job.told = True
            if set(job.state.split(",")) & LOST:
                update_job(job, exception=Lost(f"Slurm says {said(job)}", job.jobid))


def said(job) -> str:
    """How a job ended, in the words of Slurm's accounting, or of its controller where that does not
    answer; and which of its nodes are not up."""
    state = job.state
    fields = _run("sacct", "-n", "-X", "-P", "-j", job.jobid, "-o", "state,elapsed,timelimit")
    told = [line.split("|") for line in fields.splitlines()]
    if len(told) == 1 and len(told[0]) == 3:
        state, elapsed, limit = told[0]
        state += f" after {elapsed}" + (f" of {limit}" if state == "TIMEOUT" else "")
    if "NODE_FAIL" in state:
        state = "; ".join([state, *_not_up(node_spec(job))])
    return state


def _not_up(nodes: str | None) -> list[str]:
    """Those of some nodes that take no jobs, with what the controller says of each."""
    return [
        f"{fields['NodeName']} is {fields['State']}{reason}"
        for fields, reason in _nodes(nodes)
        if re.search("DOWN|DRAIN|FAIL|NOT_RESPONDING", fields["State"])
    ]


def _nodes(nodes: str | None) -> list[tuple[dict[str, str], str]]:
    found = []
    for line in _run("scontrol", "-o", "show", "node", nodes or "").splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        # Its last field, with the time and the user after it.
        reason = re.search(r"\bReason=(.*?)(?: \[.*)?$", line)
        if {"NodeName", "State"} <= set(fields):
            found.append((fields, f": {reason[1].strip()}" if reason else ""))
    return found


def _ask_controller(jobs: list) -> None:
    """The states of jobs from the controller, which knows them for some minutes after their end
    (slurm.conf(5), MinJobAge)."""
    for job in jobs:
        done = osext.run_command(["scontrol", "-o", "show", "job", job.jobid])
        fields = dict(re.findall(r"(\w+)=(\S+)", done.stdout))
        if "JobState" in fields:
            update_job(
                job,
                state=fields["JobState"],
                nodespec=fields.get("NodeList", ""),
                exitcode=int(fields.get("ExitCode", "0").partition(":")[0]),
            )
        elif "Invalid job id" in done.stderr:
            # A state that ends it: neither knows the job any more.
            job.told = True
            unknown = JobError(
                "what became of it is not known: Slurm's accounting does not list it, and its "
                "controller says Invalid job id", job.jobid,
            )  # fmt: skip
            update_job(job, state="FAILED", exception=unknown)
        else:
            _note(
                f"Slurm's controller does not answer either ({_last(done.stderr)}): waited for it"
            )


def _run(*command: str) -> str:
    """What a command prints; nothing where it is not there, as sacct(1) on some systems."""
    try:
        return osext.run_command([word for word in command if word]).stdout
    except OSError:
        return ""


def _note(text: str) -> None:
    if text not in notes:
        notes.append(text)


def _last(said: str) -> str:
    return "".join(said.strip().splitlines()[-1:])


def unavailable(partition) -> list[str]:
    """The nodes of a ReFrame partition on Slurm that take no jobs now, with Slurm's reasons."""
    access = re.search(r"(?:--partition[= ]|-p ?)(\S+)", " ".join(partition.access))
    mine = [
        fields["NodeName"]
        for fields, _ in _nodes(None)
        if access is None or access[1] in fields.get("Partitions", "").split(",")
    ]
    return _not_up(",".join(mine)) if mine else []
