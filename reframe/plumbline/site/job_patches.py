"""Patches of ReFrame's schedulers and jobs, and accesses to their private names, one function each.

As in :mod:`plumbline.site.reframe_patches`; the tests are in ``tests/test_job_patches.py``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import reframe
import reframe.utility.osext as osext
from reframe.core.backends import register_scheduler
from reframe.core.exceptions import SpawnedProcessError
from reframe.core.schedulers import Job, JobScheduler, lsf, pbs, slurm

from plumbline.site.reframe_patches import replaces
from plumbline.site.slurm import named_reservation


def cancel_options(reasons: Sequence[str]) -> dict[str, list[str]]:
    """Return the options of a Slurm partition that have ReFrame cancel jobs that wait for one of
    these reasons.

    Why: a job that Slurm never starts would wait for ever.
    Differs: 4.9.3 has no such option. It cancels for ``ReqNodeNotAvail`` if Slurm lists the nodes.
    Remove when: 4.9.3 is not in use.
    """
    return {} if reframe.VERSION == "4.9.3" else {"slurm_job_cancel_reasons": [*reasons]}


def ask_why_jobs_wait() -> None:
    """Give ReFrame the reasons for which jobs of Slurm wait in the form that it expects.

    Why: 4.10.0 fails on a job that waits in its scheduler ``squeue``, and 4.10.1 in ``slurm``.
    Differs: the other versions need no change.
    Remove when: neither version is in use.
    """
    if reframe.VERSION not in ("4.10.0", "4.10.1"):
        return

    @replaces(slurm.SlurmJobScheduler, "_cancel_if_blocked")
    def cancel_blocked(cancel, self, jobs, reasons=None):
        waiting = [job.jobid for job in jobs if slurm.slurm_state_pending(job.state)]
        if reasons is None and waiting:
            listed = osext.run_command(f'{self._squeue} -h -j {",".join(waiting)} -o "%A|%r"')
            pairs = (line.partition("|") for line in listed.stdout.splitlines())
            reasons = {jobid: [reason] for jobid, _, reason in pairs}
        if reasons and reframe.VERSION == "4.10.0":
            reasons = {jobid: reason for jobid, (reason, *_) in reasons.items()}
        if reasons:
            cancel(self, jobs, reasons)


def cancel_without_reservation() -> None:
    """Have ReFrame cancel jobs of Slurm that wait for a reservation that has ended.

    Why: the reason has the name of the reservation, which ReFrame's list of reasons cannot have.
    4.9.3 cancels only jobs that wait for nodes, whatever the list has.
    Remove when: ReFrame cancels such jobs, whose state is ``RESV_DEL_HOLD``.
    """
    if not hasattr(slurm.SlurmJobScheduler, "cancel_many"):
        return

    @replaces(slurm.SlurmJobScheduler, "_cancel_if_blocked")
    def cancel_blocked(cancel, self, jobs, *reasons):
        options = [[*job.sched_access, *job.options, *job.cli_options] for job in jobs]
        names = {*filter(None, map(named_reservation, options))}
        known = self._cancel_reasons
        self._cancel_reasons = [*known, *(f"Reservation {name} was deleted" for name in names)]
        cancel(self, jobs, *reasons)
        self._cancel_reasons = known


def pbs_schedulers() -> tuple[type[JobScheduler], ...]:
    """Return ReFrame's schedulers of PBS, and register ``pbspro`` if ReFrame has none.

    Why: 4.9.3 has only ``pbs``, which also reads the output of PBS Professional.
    Remove when: 4.9.3 is not in use.
    """
    professional = getattr(pbs, "PbsProJobScheduler", None)
    if professional is None:
        # With a poll of its own: wrapped, it must not call the one of `pbs` that is wrapped too.
        own = {"poll": pbs.PbsJobScheduler.poll}
        professional = type("PbsProJobScheduler", (pbs.PbsJobScheduler,), own)
        pbs.PbsProJobScheduler = register_scheduler("pbspro")(professional)
    return pbs.PbsJobScheduler, professional


def cancel_by_bkill() -> None:
    """Have ReFrame cancel jobs of LSF by ``bkill``.

    Why: it inherits the ``qdel`` of PBS, which LSF lacks: a job runs on after its session.
    Remove when: ``LsfJobScheduler`` has a ``cancel`` of its own.
    """

    @replaces(lsf.LsfJobScheduler, "cancel")
    def cancelled(_, self, job):
        osext.run_command(["bkill", job.jobid], check=True, timeout=self._submit_timeout)
        job._cancelled = True


def report_failed_cancels(report: Callable[[Job, SpawnedProcessError], None]) -> None:
    """Have ReFrame call a function if it cannot cancel a job as it aborts a test case.

    Why: the case would count as failed, with that error in place of what ended the session. In
    most cases the job has just ended, for which ``qdel`` and ``bkill`` fail.
    Remove when: ReFrame ignores that error.

    :arg report: takes the job, and the error of the scheduler's command.
    """

    @replaces(Job, "cancel")
    def cancelled(cancel, self):
        try:
            cancel(self)
        except SpawnedProcessError as err:
            report(self, err)


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Give this time limit to the commands that ReFrame starts meanwhile and that have none.

    Why: a scheduler's command that hangs as ReFrame polls its jobs would block the session for
    ever, since the option ``job_submit_timeout`` is for submissions and cancellations only.
    Remove when: each command of ReFrame's schedulers has a time limit.
    """
    run = osext.run_command
    own = run.__defaults__
    run.__defaults__ = (*own[:-1], seconds)
    try:
        yield
    finally:
        run.__defaults__ = own


def limit_in_whole_minutes() -> None:
    """Round the time limits of LSF's jobs up to whole minutes.

    Why: LSF knows no seconds, and ReFrame rounds down: a job would be ended before its limit.
    Remove when: ``LsfJobScheduler`` rounds up.
    """

    @replaces(lsf.LsfJobScheduler, "emit_preamble")
    def emitted(emit, self, job):
        if job.time_limit is not None:
            job.time_limit = math.ceil(job.time_limit / 60) * 60
        return emit(self, job)


def limit_bsub() -> None:
    """Give submissions to LSF the time limit that those to other schedulers have.

    Why: ``bsub`` waits for as long as LSF is down.
    Remove when: ``LsfJobScheduler.submit`` uses ``job_submit_timeout``.
    """

    @replaces(lsf.LsfJobScheduler, "submit")
    def submitted(submit, self, job):
        with time_limit(self._submit_timeout):
            submit(self, job)


def wrap_poll(
    scheduler: type[JobScheduler],
    replacement: Callable[[JobScheduler, list[Job], Callable], None],
) -> None:
    """Replace the poll of a scheduler's jobs by a function that calls it, all of whose commands
    have the time limit of submissions.

    Why: ReFrame keeps the final state of a job but not the scheduler's reason, so that a cancelled
    job looks as if its output were missing.
    Remove when: ReFrame's schedulers raise the reason themselves.

    :arg replacement: takes the scheduler, its jobs, and ReFrame's own poll of them as a function.
    """

    @replaces(scheduler, "poll")
    def wrapped(poll, self, *jobs):
        jobs = [job for job in jobs if job is not None]
        with time_limit(self._submit_timeout):
            replacement(self, jobs, lambda: poll(self, *jobs))


def update_job(job: Job, **found: object) -> None:
    """Set fields of a job, such as ``jobid``, ``state`` or ``exception``.

    Why: these are properties, which only ReFrame's own schedulers can set. ReFrame raises the
    ``exception`` when it next checks whether the job has ended.
    Remove when: ``Job`` has setters, or a public interface for schedulers.

    :raises AttributeError: if the job has no such field.
    """
    for name, value in found.items():
        getattr(job, f"_{name}")
        setattr(job, f"_{name}", value)


def node_spec(job: Job) -> str:
    """Return the nodes of a Slurm job in Slurm's notation; empty if it has none yet.

    Why: the job's ``nodelist`` is empty until it has ended, and calls Slurm to expand it.
    Remove when: the job has a property for it.
    """
    return job._nodespec or ""


def at_submission(job: Job, call: Callable[[], bool]) -> None:
    """Have ReFrame call a function when it is about to submit a job, whose script is written.

    Why: a duet starts two scripts in one job, and ReFrame writes and submits a script in one step.
    Remove when: ReFrame has a hook between the two.

    :arg call: returns whether to submit the job.
    """

    def submit() -> None:
        del job.submit
        if call():
            job.submit()

    job.submit = submit


def share_job(check, other) -> None:
    """Make a check's job that of another check.

    Why: both sides of a duet run in one job, and ReFrame submits only that of the first.
    Remove when: a check's job can be set.
    """
    check._job = other.job
