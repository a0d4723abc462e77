"""Jobs that ended otherwise than by their script's end, and why, in the words of their scheduler.

ReFrame keeps the state of a job and not the reason, so that one that was cancelled or ran into its
limit reads as output that is missing. Here are LSF, PBS and Torque; Slurm is in
:mod:`plumbline.site.slurm_jobs`, Flux in :mod:`plumbline.site.schedulers`.
"""

from __future__ import annotations

import functools
import re
import signal
from collections.abc import Callable
from pathlib import Path

import reframe.utility.osext as osext
from reframe.core.exceptions import JobError
from reframe.core.schedulers import Job
from reframe.core.schedulers.lsf import LsfJobScheduler
from reframe.core.schedulers.pbs import PbsJobScheduler, PbsProJobScheduler

from plumbline.parse import outputs
from plumbline.reference.tables import read_yaml
from plumbline.site.reframe_patches import update_job, wrap_poll


class Lost(JobError):
    """A scheduler ended the job, not its script.

    :arg said: the scheduler's name and words.
    :ivar code: stable id of the reason (``lost.yaml``), or ``job.ended-by-scheduler``.
    """

    def __init__(self, said: str, jobid: str):
        super().__init__(said, jobid)
        known = (reason["code"] for reason in _reasons() if re.search(reason["words"], said))
        self.code = next(known, "job.ended-by-scheduler")


@functools.cache
def _reasons() -> list[dict[str, str]]:
    return read_yaml(Path(__file__).with_suffix(".yaml"))


def watch() -> None:
    """Has ReFrame's schedulers of LSF, PBS and Torque say why a job was lost."""
    wrap_poll(LsfJobScheduler, _reporting("LSF", _said_by_lsf))
    for scheduler in (PbsJobScheduler, PbsProJobScheduler):
        wrap_poll(scheduler, _reporting("PBS", _said_by_pbs))


def _reporting(name: str, said_by: Callable[[Job], str]) -> Callable:
    def polled(scheduler, jobs, poll):
        try:
            poll()
        except KeyError as err:
            if err.args != ("Exit_status",):
                raise
            # PBS has none of a job that was deleted before it ran.
            for job in jobs:
                update_job(job, completed=job.completed or _never_ran(job))
        for job in jobs:
            ended = scheduler.finished(job) and not (job.cancelled or getattr(job, "told", False))
            if ended and job.exception is None:
                job.told = True
                if said := said_by(job):
                    update_job(job, exception=Lost(f"{name} says {said}", job.jobid))

    return polled


def _said_by_lsf(job) -> str:
    """The termination reason, of bjobs(1) or of the report at the end of the job's output; empty
    where the job ended by itself."""
    asked = _run("bjobs", "-noheader", "-o", "exit_reason", job.jobid)
    report = _text(job, job.stdout).rpartition("\nSender: LSF System")[2]
    found = re.findall(r"^TERM_[A-Z_]+\b.*", asked, re.M) or re.findall(
        r"^(TERM_[A-Z_]+\b.*)\nExited", report, re.M
    )
    return found[-1].strip().rstrip(".") if found else ""


def _said_by_pbs(job) -> str:
    """Why PBS ended a job: by the line that it writes to the job's standard error, by the job's
    comment, or by its exit status; empty where the job ended by itself."""
    killed = re.findall(r"^=>> PBS: (job killed: .*)$", _text(job, job.stderr), re.M)
    if killed:
        return killed[-1]
    fields = _fields(job)
    comment = re.search(r"\band ((?:terminated|exceeded resource)\b.*)", fields.get("comment", ""))
    status = fields.get("exit_status", "0")
    told = f"Exit_status {status}"
    if comment:
        return f"{comment[1]} ({told})"
    if re.fullmatch(r"-\d+", status):
        return f"{told}: ended by PBS itself"
    if (number := int(status) - 256) > 0:
        # PBS Professional Administrator's Guide, "Job Exit Status Codes". qdel's is SIGTERM.
        return f"{told}: ended by {_name_of(number)}"
    return "that it ended before it ran" if _never_ran(job) else ""


def _never_ran(job) -> bool:
    fields = _fields(job)
    return fields.get("job_state") == "F" and not {"exit_status", "exec_host"} & set(fields)


def _fields(job) -> dict[str, str]:
    """What qstat(1B) says of a job, by names in small letters: Torque's are; long lines go on
    after a line break and a tab."""
    said = _run("qstat", "-xf", job.jobid) or _run("qstat", "-f", job.jobid)
    lines = said.replace("\n\t", "").splitlines()
    return {
        name.strip().lower(): value
        for name, equals, value in (line.partition(" = ") for line in lines)
        if equals
    }


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(job, name: str) -> str:
    try:
        return outputs.read(Path(job.workdir, name), errors="replace")
    except OSError:
        return ""


def _run(*command: str) -> str:
    try:
        return osext.run_command([*command]).stdout
    except OSError:
        return ""
