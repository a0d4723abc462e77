"""Schedulers that ReFrame lacks, which are registered when ReFrame's configuration loads.

ReFrame's own ``flux`` needs Flux's Python bindings even for listing. ``flux-batch`` uses the
commands of flux-core, and only once a job is submitted.
"""

from __future__ import annotations

import itertools
import shlex
import time

import reframe.utility.osext as osext
from reframe.core.backends import register_scheduler
from reframe.core.exceptions import JobError, JobSchedulerError, SpawnedProcessTimeout
from reframe.core.schedulers import Job, JobScheduler
from reframe.utility import nodelist_expand

from plumbline.core.process import last_line
from plumbline.site.ended_jobs import Lost, note, why
from plumbline.site.job_patches import update_job

#: Statuses of a job, of flux-jobs(1), "JOB STATUS".
PENDING = frozenset({"DEPEND", "PRIORITY", "SCHED"})
RUNNING = frozenset({"RUN", "CLEANUP"})
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELED", "TIMEOUT"})

#: Consecutive polls in which Flux may not know a job before it counts as lost: a job is not listed
#: at once after its submission.
MISSES = 10

#: Fields of flux-jobs(1), "OUTPUT FORMAT"; the last one may have any character.
_FIELDS = ("id.dec", "status", "returncode", "nodelist", "exception.type", "exception.note")
_FORMAT = "|".join(f"{{{field}}}" for field in _FIELDS)

#: How Flux begins the note of an exception of a node's failure, of type ``exec``: flux-core,
#: src/modules/job-exec, from 0.63 on and before. If the job can go on without the node, the type
#: is ``node-failure``.
_NODE_FAILED = ("node failure on ", "lost contact with job shell")


class _FluxJob(Job):
    """A job, and how often it was not listed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cancelled = False
        self.completed = False
        self.misses = 0


@register_scheduler("flux-batch")
class FluxBatchScheduler(JobScheduler):
    """Flux by its commands: flux-batch(1), flux-jobs(1) and flux-cancel(1) of flux-core.

    Submission options are directives in the job script (``#flux:``; flux-batch(1), "SUBMISSION
    DIRECTIVES"), which must have one sentinel and be one block. In the job, the launcher's ``flux
    run`` uses the job's own Flux instance.
    """

    def __init__(self):
        self._submit_timeout = self.get_option("job_submit_timeout")
        self._in_submit = self.get_option("sched_access_in_submit")

    def make_job(self, *args, **kwargs):
        return _FluxJob(*args, **kwargs)

    def emit_preamble(self, job):
        options = [f"--job-name={job.name}", f"--output={job.stdout}", f"--error={job.stderr}"]
        if job.num_tasks is not None:
            # Options of flux-batch(1), "JOB PARAMETERS": a slot holds one task.
            nodes = -(-job.num_tasks // (job.num_tasks_per_node or 1))
            options += [f"--nodes={nodes}", f"--nslots={job.num_tasks}"]
            if job.num_cpus_per_task:
                options.append(f"--cores-per-slot={job.num_cpus_per_task}")
        if job.exclusive_access:
            options.append("--exclusive")
        if job.time_limit is not None:
            # Flux standard duration; a bare number would be minutes.
            options.append(f"--time-limit={int(job.time_limit)}s")
        if job.pin_nodes:
            options.append(f"--requires=hosts:{','.join(job.pin_nodes)}")
        directives = [f"#flux: {shlex.quote(option)}" for option in options]
        others = [] if self._in_submit else list(job.sched_access)
        others += [*job.options, *job.cli_options]
        # A user's option is a part of a command line. Directives of other programs come last, as
        # they would be an error between Flux's own.
        directives += [f"#flux: {option}" for option in others if not option.startswith("#")]
        return directives + [option for option in others if option.startswith("#")]

    def submit(self, job):
        command = ["flux", "batch"]
        if self._in_submit:
            for option in job.sched_access:
                command += shlex.split(option)
        command.append(job.script_filename)
        done = osext.run_command(command, check=True, timeout=self._submit_timeout)
        printed = done.stdout.split()
        if not printed:
            raise JobSchedulerError("flux batch printed no job id")
        # The id is printed in base 58, which may begin with a letter outside ASCII; all commands
        # accept the decimal form.
        done = osext.run_command(["flux", "job", "id", "--to=dec", printed[-1]], check=True)
        update_job(job, jobid=done.stdout.strip(), submit_time=time.time())

    def cancel(self, job):
        job.cancelled = True
        completed = osext.run_command(["flux", "cancel", job.jobid], timeout=self._submit_timeout)
        if completed.returncode != 0:
            # In most cases the job has just ended, which the next poll shows.
            self.log(f"flux cancel {job.jobid}: {completed.stderr.strip()}")

    def poll(self, *jobs):
        jobs = [job for job in jobs if job is not None and not job.completed]
        if not jobs:
            return
        command = ["flux", "jobs", "--no-header", f"--format={_FORMAT}"]
        command += [job.jobid for job in jobs]
        try:
            completed = osext.run_command(command, timeout=self._submit_timeout)
        except SpawnedProcessTimeout as err:
            note(f"Flux does not answer ({why(err)}): waiting")
            return
        lines = [line.split("|", len(_FIELDS) - 1) for line in completed.stdout.splitlines()]
        found = {line[0]: line[1:] for line in lines if len(line) == len(_FIELDS)}
        for job in jobs:
            if job.jobid in found:
                job.misses = 0
                self._update(job, *found[job.jobid])
                continue
            reason = last_line(completed.stderr)
            # src/bindings/python/flux/job/list.py (JobListIdsFuture). Any other message is of an
            # instance that does not answer, in which the job may run.
            if f"JobID {job.jobid} unknown" not in completed.stderr:
                note(f"Flux does not answer ({reason}): waiting")
                continue
            job.misses += 1
            self.log(f"job {job.jobid} is not listed: {reason}")
            if job.misses >= MISSES:
                self._end(job, f"Flux no longer lists the job: {reason}")

    def _update(self, job, status, returncode, nodes, kind, text):
        update_job(job, state=status)
        if nodes and not job.nodelist:
            update_job(job, nodelist=nodelist_expand(nodes))
        if status in ENDED:
            if returncode:
                update_job(job, exitcode=int(returncode))
            message = f"Flux reports {status}" + (f": {text} (exception {kind})" if kind else "")
            lost = status in ("CANCELED", "TIMEOUT") and not job.cancelled
            if status == "FAILED":
                # A job that failed before it ran has no output.
                node_failed = kind == "node-failure" or text.startswith(_NODE_FAILED)
                lost = node_failed or not job.nodelist
            self._end(job, message if lost else None)
        elif status in PENDING and job.max_pending_time:
            if time.time() - job.submit_time >= job.max_pending_time:
                self.cancel(job)
                late = JobError("maximum pending time exceeded", job.jobid)
                update_job(job, exception=late)
        elif status not in PENDING | RUNNING:
            self.log(f"job {job.jobid} has an unknown status: {status}")

    def _end(self, job, fault):
        if fault and job.exception is None:
            update_job(job, exception=Lost(fault, job.jobid))
        job.completed = True

    def wait(self, job):
        pauses = itertools.cycle([1, 2, 3])
        while not self.finished(job):
            self.poll(job)
            time.sleep(next(pauses))

    def finished(self, job):
        return job.completed

    def allnodes(self):
        raise JobSchedulerError("flux-batch cannot list nodes: set them with -J --requires=")

    def filternodes(self, job, nodes):
        return self.allnodes()
