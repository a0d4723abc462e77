"""The reason why a scheduler ended a job, of LSF, PBS and Torque.

ReFrame keeps the state of a job but not the reason, so that a job that was cancelled or reached its
limit would look as if its output were missing. For Slurm see :mod:`plumbline.site.slurm_jobs`, for
Flux :mod:`plumbline.site.schedulers`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import reframe.utility.osext as osext
from reframe.core.exceptions import (
    JobError,
    JobSchedulerError,
    SpawnedProcessError,
    SpawnedProcessTimeout,
)
from reframe.core.schedulers import Job
from reframe.core.schedulers.lsf import LsfJobScheduler

from plumbline.core.errors import with_code
from plumbline.core.process import last_line, one_line
from plumbline.core.yamlfile import read_yaml
from plumbline.parse import outputs
from plumbline.site.job_patches import (
    cancel_by_bkill,
    limit_bsub,
    limit_in_whole_minutes,
    pbs_schedulers,
    report_failed_cancels,
    update_job,
    wrap_poll,
)

#: Registered when system files are validated.
_PBS = pbs_schedulers()

#: Consecutive polls for which PBS may not have a job whose output is missing before it counts as
#: lost.
MISSES = 10

#: What qstat(1B) says of `-x` if PBS keeps no history: OpenPBS, src/lib/Liblog/pbs_messages.c. Its
#: exit code is 0.
NO_HISTORY = "not configured to maintain job history"

#: What bjobs(1) says, maybe with exit code 0, if LSF has forgotten a job: IBM Spectrum LSF 10.1,
#: lsf.conf, LSB_BJOBS_CONSISTENT_EXIT_CODE. The latter is of all jobs that it was asked for.
_FORGOTTEN = "Job <{}> is not found|No unfinished job found"

#: The longest time in seconds for which bjobs(1) may not list a new job: IBM Spectrum LSF 10.1,
#: lsb.params, MBD_REFRESH_TIME, which is at most 300, after which the child of mbatchd that answers
#: queries is replaced.
_REFRESH = 300

#: States of a job that has ended: IBM Spectrum LSF 10.1, "LSF terms and concepts". In ZOMBI, it was
#: killed while its host was unreachable.
_ENDED_IN_LSF = frozenset({"DONE", "EXIT", "POST_DONE", "POST_ERR", "ZOMBI"})

#: States of a job that waits, or is held.
_WAITS_IN_LSF = frozenset({"PEND", "PSUSP"})

#: Variables of a user's shell that overrule a job script, or with which bsub(1) does not print the
#: number of a job, which then runs without its session: sbatch(1), "INPUT ENVIRONMENT VARIABLES"
#: (ReFrame unsets those that begin with SBATCH_); qsub(1B); IBM Spectrum LSF 10.1, "Environment
#: variable reference".
_OF_SUBMISSIONS = ("SLURM_CLUSTERS", "SLURM_HINT", "PBS_DPREFIX", "BSUB_QUIET")

#: What schedulers do not do in this session, a line each.
notes: list[str] = []


class Lost(JobError):
    """A scheduler ended the job, not its script.

    :arg message: the scheduler's name and its reason.
    :ivar code: stable id of the reason (``ended_jobs.yaml``), or ``job.ended-by-scheduler``.
    """

    def __init__(self, message: str, jobid: str):
        super().__init__(message, jobid)
        known = (reason["code"] for reason in _reasons() if re.search(reason["words"], message))
        self.code = next(known, "job.ended-by-scheduler")


@functools.cache
def _reasons() -> list[dict[str, str]]:
    return read_yaml(Path(__file__).with_suffix(".yaml"))


def watch() -> None:
    """Make ReFrame report why LSF, PBS or Torque lost a job, and cancel it; and have each job
    submitted as its script has it."""
    for variable in _OF_SUBMISSIONS:
        os.environ.pop(variable, None)
    report_failed_cancels(_note_cancel)
    cancel_by_bkill()
    limit_bsub()
    limit_in_whole_minutes()
    wrap_poll(LsfJobScheduler, _reporting("LSF", _reason_of_lsf))
    for scheduler in _PBS:
        wrap_poll(scheduler, _reporting("PBS", _reason_of_pbs))


#: ReFrame's schedulers whose jobs are watched: here, in :mod:`plumbline.site.slurm_jobs` and in
#: :mod:`plumbline.site.schedulers`; of `local`, ReFrame itself has signal and time limit.
WATCHED = frozenset(["local", "slurm", "squeue", "pbs", "pbspro", "torque", "lsf", "flux-batch"])


def unwatched(schedulers: Mapping[str, str]) -> list[str]:
    """Return a message about each scheduler of which jobs are not watched.

    :arg schedulers: partition -> its scheduler.
    """
    return [
        with_code(
            f"{partition}: scheduler {name}: its jobs are not watched: one that was killed or "
            f"cancelled looks as if its output were missing, and a scheduler that does not answer "
            f"ends the session or blocks it: look up failed jobs in its own accounting",
            "scheduler.not-watched",
        )
        for partition, name in schedulers.items()
        if name not in WATCHED
    ]


def _note_cancel(job: Job, err: SpawnedProcessError) -> None:
    note(f"job {job.jobid} was not cancelled ({why(err)}): if it still runs, cancel it by hand")


def _reporting(name: str, reason_of: Callable[[Job], str]) -> Callable:
    def polled(scheduler, jobs, poll):
        _update(name, scheduler, jobs, poll)
        for job in jobs:
            ended = scheduler.finished(job) and not (
                job.cancelled or getattr(job, "reason_known", False)
            )
            if ended and job.exception is None:
                job.reason_known = True
                if reason := reason_of(job):
                    update_job(job, exception=Lost(f"{name} reports {reason}", job.jobid))

    return polled


def _update(name: str, scheduler, jobs: list, poll: Callable[[], None]) -> None:
    """Update the states of jobs. If the scheduler does not answer they stay as they are: an error
    would end the session and leave its jobs queued."""
    try:
        _poll(scheduler, jobs, poll)
        for job in jobs:
            _end_without_output(name, scheduler, job)
            if isinstance(scheduler, LsfJobScheduler):
                _cancel_if_late(scheduler, job)
    except JobSchedulerError as err:
        note(f"{name} does not answer ({last_line(str(err))}): waiting")
    except SpawnedProcessError as err:
        for job in jobs:
            if _has_forgotten(job, err.stderr):
                update_job(job, state="COMPLETED", completed=True)
        if not any(_is_not_listed(job, err.stderr) for job in jobs):
            note(f"{name} does not answer ({why(err)}): waiting")


def _poll(scheduler, jobs: list, poll: Callable[[], None]) -> None:
    """Let ReFrame update jobs, and ask of each alone that has ended by its answer."""
    before = {job: job.state for job in jobs if not scheduler.finished(job)}
    try:
        poll()
    except (KeyError, json.JSONDecodeError) as err:
        key = err.args[0] if isinstance(err, KeyError) else ""
        if len(jobs) > 1 and key not in ("", "Jobs"):
            # The answer of one job keeps ReFrame from those of the others.
            for job in jobs:
                _poll_alone(scheduler, job)
        else:
            _poll_otherwise(scheduler, jobs, key)
    of_lsf = isinstance(scheduler, LsfJobScheduler)
    ended = [job for job in before if job.state == "COMPLETED"] if of_lsf or len(jobs) > 1 else []
    for job in ended:
        update_job(job, state=before[job], completed=False)
    for job in ended:
        if of_lsf:
            _poll_lsf(job)
        else:
            # qstat(1B) exits with 153 or 35 if it does not know one of several jobs (OpenPBS,
            # src/cmds/qstat.c), which ReFrame takes for the end of all that have output files.
            _poll_alone(scheduler, job)


def _poll_alone(scheduler, job) -> None:
    own = inspect.unwrap(type(scheduler).poll)
    _poll(scheduler, [job], lambda: own(scheduler, job))


def _poll_otherwise(scheduler, jobs: list, key: str) -> None:
    """Update jobs of PBS after ReFrame failed on the answer.

    :arg key: that ReFrame missed; empty if it was no JSON.
    """
    if key == "Exit_status":
        # PBS has none of a job that was deleted before it ran, or by ``qdel -W force``.
        for job in jobs:
            update_job(job, completed=True)
    elif key in ("", "Jobs", "M"):
        # `qstat -x` lists none of them: PBS keeps no history of jobs, or no longer theirs. Or it
        # has the state on this server of a job that was moved to another (qstat(1B), "M").
        if key != "M" and NO_HISTORY in osext.run_command(["qstat", "-x", jobs[0].jobid]).stderr:
            note("PBS keeps no job history, which scheduler pbspro needs: set `scheduler: pbs`")
        with contextlib.suppress(KeyError):
            inspect.unwrap(_PBS[0].poll)(scheduler, *jobs)
    elif len(key) != 1:
        raise KeyError(key)
    # Else a state that ReFrame does not know, such as U of qstat(1B): the job has not ended.


def _poll_lsf(job) -> None:
    """End a job if LSF says that it has ended. For ReFrame, so has one in a state that it does not
    know, such as UNKWN, and one whose number bjobs(1) has cut to seven digits (lsf.conf,
    LSB_JOBID_DISP_LENGTH).

    :raises SpawnedProcessError: if LSF does not answer.
    """
    done = osext.run_command(["bjobs", "-noheader", "-o", "stat", job.jobid])
    job.stat = done.stdout.strip()
    if job.stat in _ENDED_IN_LSF or _has_forgotten(job, done.stderr):
        update_job(job, state="COMPLETED", completed=True)
        # ReFrame does not ask for it.
        code = command_output("bjobs", "-noheader", "-o", "exit_code", job.jobid).strip()
        update_job(job, exitcode=int(code) if code.isdigit() else job.exitcode)
    elif done.returncode:
        raise SpawnedProcessError(done.args, done.stdout, done.stderr, done.returncode)


def _is_not_listed(job, stderr: str) -> bool:
    return re.search(_FORGOTTEN.format(job.jobid), stderr) is not None


def _has_forgotten(job, stderr: str) -> bool:
    """Return whether LSF no longer has a job, as it ended a while ago: not of one that is so new
    that it was not listed yet."""
    new = job.state is None and time.time() - job.submit_time < _REFRESH
    return not new and _is_not_listed(job, stderr)


def _cancel_if_late(scheduler, job) -> None:
    """Cancel a job of LSF that waits for too long, as ReFrame does with those of other schedulers.

    :raises SpawnedProcessError: if it cannot be cancelled.
    """
    if scheduler.finished(job) or job.cancelled or not job.max_pending_time:
        return
    if time.time() - job.submit_time < job.max_pending_time:
        return
    # In ReFrame's states, one that is held is like one that was suspended as it ran.
    if command_output("bjobs", "-noheader", "-o", "stat", job.jobid).strip() in _WAITS_IN_LSF:
        scheduler.cancel(job)
        update_job(job, exception=still_pending(job))


def still_pending(job: Job) -> JobError:
    """Return the error of a job that was cancelled as it waited for too long."""
    limit = f"{job.max_pending_time:g} s"
    return JobError(f"still pending after max_pending_time, {limit}: cancelled", job.jobid)


def _end_without_output(name: str, scheduler, job) -> None:
    """End a job that PBS no longer has, such as one that was deleted before it ran: ReFrame's
    scheduler ``pbs`` would wait for its output."""
    waits = job.state == "COMPLETED" and not scheduler.finished(job)
    job.misses = getattr(job, "misses", 0) + 1 if waits else 0
    if job.misses >= MISSES and _is_unknown(job):
        lost = Lost(f"{name} no longer has the job, and it has no output", job.jobid)
        update_job(job, completed=True, exception=lost)


def _is_unknown(job) -> bool:
    # Torque has a job that has ended for some minutes (keep_completed), before its output is there.
    return osext.run_command(["qstat", "-f", job.jobid]).returncode in (153, 35)


def _reason_of_lsf(job) -> str:
    """Return the termination reason, of bjobs(1) or of the report at the end of the job's output.

    It is empty if the job ended by itself.
    """
    answer = command_output("bjobs", "-noheader", "-o", "exit_reason", job.jobid)
    report = _text(job, job.stdout).rpartition("\nSender: LSF System")[2]
    found = re.findall(r"^TERM_[A-Z_]+\b.*", answer, re.M) or re.findall(
        r"^(TERM_[A-Z_]+\b.*)\nExited", report, re.M
    )
    if found:
        return found[-1].strip().rstrip(".")
    killed = getattr(job, "stat", "") == "ZOMBI"
    return "ZOMBI: killed while its host was unreachable" if killed else ""


def _reason_of_pbs(job) -> str:
    """Return why PBS ended a job: by its line in the job's standard error, by the job's comment, or
    by its exit status.

    It is empty if the job ended by itself.
    """
    killed = re.findall(r"^=>> PBS: (job killed: .*)$", _text(job, job.stderr), re.M)
    if killed:
        return killed[-1]
    fields = _fields(job)
    comment = re.search(r"\band ((?:terminated|exceeded resource)\b.*)", fields.get("comment", ""))
    # Their negative codes differ.
    name = "exit_status" if "exit_status" in fields else "Exit_status"
    status = fields.get(name, "0")
    if comment:
        return f"{comment[1]} ({name} {status})"
    if re.fullmatch(r"-\d+", status):
        return f"{name} {status}: ended by PBS itself"
    if (number := int(status) - 256) > 0:
        # PBS Professional Administrator's Guide, "Job Exit Status Codes". qdel's is SIGTERM.
        names = {known.value: known.name for known in signal.Signals}
        return f"{name} {status}: ended by {names.get(number, f'signal {number}')}"
    if fields.get("job_state") == "F" and name not in fields:
        ran = "exec_host" in fields
        return f"that it ended {'without an exit status' if ran else 'before it ran'}"
    return ""


def _fields(job) -> dict[str, str]:
    """Return what qstat(1B) prints of a job; a long line continues after a line break and a tab.
    Torque has ``exit_status`` where PBS has ``Exit_status``."""
    # PBS shows a job that has ended with `-x` only, for which Torque's qstat(1B) prints XML.
    output = command_output("qstat", "-f", job.jobid) or command_output("qstat", "-xf", job.jobid)
    pairs = (line.partition(" = ") for line in output.replace("\n\t", "").splitlines())
    return {name.strip(): value for name, equals, value in pairs if equals}


def _text(job, name: str) -> str:
    try:
        return outputs.read(Path(job.workdir, name), errors="replace")
    except OSError:
        return ""


def command_output(*command: str) -> str:
    """Return what a command prints; nothing if it is not installed, as sacct(1) on some systems, or
    hangs."""
    try:
        return osext.run_command([*command]).stdout
    except (OSError, SpawnedProcessTimeout):
        return ""


def why(err: Exception) -> str:
    """Return why a command failed, in its own words if it has any."""
    return last_line(getattr(err, "stderr", None) or "") or one_line(str(err).partition(":\n")[0])


def note(text: str) -> None:
    """Add a line to the notes of the session, once, whatever reason it has in brackets."""
    if text.partition(" (")[0] not in {known.partition(" (")[0] for known in notes}:
        notes.append(text)
