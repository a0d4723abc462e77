"""As in ``test_reframe_patches.py``: a test for each function of ``plumbline.site.job_patches``."""

from __future__ import annotations

import contextlib
import inspect
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import reframe
import reframe.utility.osext as osext
from plumbline.site import job_patches
from reframe.core.backends import getlauncher, getscheduler
from reframe.core.exceptions import JobError, SpawnedProcessError, SpawnedProcessTimeout
from reframe.core.pipeline import RegressionTest
from reframe.core.schedulers import Job, lsf, pbs
from reframe.core.schedulers.lsf import LsfJobScheduler
from reframe.core.schedulers.pbs import PbsJobScheduler
from reframe.core.schedulers.slurm import SlurmJobScheduler, SqueueJobScheduler

SCHEDULERS = [
    SlurmJobScheduler, SqueueJobScheduler, LsfJobScheduler, *job_patches.pbs_schedulers(),
]  # fmt: skip


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """ReFrame's schedulers as they are, and again after the test."""
    for scheduler in SCHEDULERS:
        monkeypatch.setattr(scheduler, "poll", inspect.unwrap(scheduler.poll))
        monkeypatch.setattr(scheduler, "get_option", lambda *_: ())


def job_of(scheduler: type) -> Job:
    job = Job.create(scheduler(), getlauncher("local")(), name="job", workdir=".")
    job.scheduler._submit_timeout = None
    return job


def test_cancel_options():
    schema = Path(reframe.__file__).with_name("schemas").joinpath("config.json").read_text()
    options = job_patches.cancel_options(["PartitionConfig"])
    assert options == (
        {"slurm_job_cancel_reasons": ["PartitionConfig"]}
        if "slurm_job_cancel_reasons" in schema
        else {}
    )


@pytest.mark.parametrize("listed", [None, {"7": ["ReqNodeNotAvail, and more"]}])
def test_ask_why_jobs_wait(plain, monkeypatch: pytest.MonkeyPatch, listed: dict | None):
    """A job that waits is cancelled for its reason, and no version of ReFrame fails on it."""
    if reframe.VERSION == "4.9.3":
        pytest.skip("it asks for each job alone")
    own = SlurmJobScheduler._cancel_if_blocked
    monkeypatch.setattr(SlurmJobScheduler, "_cancel_if_blocked", own)
    done = SimpleNamespace(stdout="7|ReqNodeNotAvail, and more\n8|Priority\n")
    monkeypatch.setattr(osext, "run_command", lambda *_, **__: done)
    monkeypatch.setattr(SlurmJobScheduler, "cancel_many", lambda self, jobs: cancelled.extend(jobs))
    cancelled: list = []
    jobs = [job_of(SlurmJobScheduler) for _ in range(2)]
    for number, job in enumerate(jobs):
        job.scheduler._cancel_reasons = ["ReqNodeNotAvail"]
        job.scheduler._squeue = "squeue"
        job_patches.update_job(job, jobid=str(7 + number), state="PENDING")
    fails = reframe.VERSION in (["4.10.1"] if listed is None else ["4.10.0"])
    with pytest.raises((KeyError, AttributeError)) if fails else contextlib.nullcontext():
        jobs[0].scheduler._cancel_if_blocked(jobs, listed)
    cancelled.clear()
    job_patches.ask_why_jobs_wait()
    jobs[0].scheduler._cancel_if_blocked(jobs, listed)
    assert [job.jobid for job in cancelled] == ["7"]
    assert "ReqNodeNotAvail" in str(jobs[0].exception) and jobs[1].exception is None


@pytest.mark.parametrize(
    ("options", "cancelled"),
    [(["--reservation=maint"], True), (["--reservation=other"], False), ([], False)],
)
def test_cancel_without_reservation(plain, monkeypatch: pytest.MonkeyPatch, options, cancelled):
    monkeypatch.setattr(
        SlurmJobScheduler, "_cancel_if_blocked", SlurmJobScheduler._cancel_if_blocked
    )
    found = []
    monkeypatch.setattr(SlurmJobScheduler, "cancel", lambda _, job: found.append(job))
    if not hasattr(SlurmJobScheduler, "cancel_many"):
        pytest.skip("it cancels only jobs that wait for nodes")
    monkeypatch.setattr(SlurmJobScheduler, "cancel_many", lambda _, jobs: found.extend(jobs))
    job_patches.cancel_without_reservation()
    job = job_of(SlurmJobScheduler)
    job.options = options
    job.scheduler._cancel_reasons = ["ReqNodeNotAvail"]
    job_patches.update_job(job, jobid="7", state="PENDING")
    reason = "Reservation maint was deleted"
    reasons = {"7": reason if reframe.VERSION == "4.10.0" else [reason]}
    job.scheduler._cancel_if_blocked([job], reasons)
    assert found == [job] * cancelled
    assert job.scheduler._cancel_reasons == ["ReqNodeNotAvail"]


def test_pbs_schedulers():
    """ReFrame's own if it has both, each registered under its name, with a poll to be wrapped."""
    own = [getattr(pbs, name, None) for name in ("PbsJobScheduler", "PbsProJobScheduler")]
    assert all("poll" in vars(scheduler) for scheduler in own)
    assert [*job_patches.pbs_schedulers()] == own
    assert [getscheduler(name) for name in ("pbs", "pbspro")] == own


def test_cancel_by_bkill(plain, monkeypatch: pytest.MonkeyPatch):
    """ReFrame itself calls the command of PBS."""
    monkeypatch.setattr(LsfJobScheduler, "cancel", inspect.unwrap(LsfJobScheduler.cancel))
    called: list = []
    monkeypatch.setattr(osext, "run_command", lambda command, **_: called.append(command))
    monkeypatch.setattr(pbs, "_run_strict", osext.run_command)
    job = job_of(LsfJobScheduler)
    job_patches.update_job(job, jobid="7", submit_time=0, cancelled=False)
    job.scheduler._submit_timeout = None
    job.cancel()
    assert called == ["qdel 7"]
    job_patches.update_job(job, cancelled=False)
    job_patches.cancel_by_bkill()
    job.cancel()
    assert called[1:] == [["bkill", "7"]] and job.cancelled


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_report_failed_cancels(plain, monkeypatch: pytest.MonkeyPatch, scheduler: type):
    """ReFrame itself would raise the error."""
    monkeypatch.setattr(Job, "cancel", inspect.unwrap(Job.cancel))

    def cancel(*_):
        raise SpawnedProcessError("qdel 7", "", "has finished", 35)

    monkeypatch.setattr(scheduler, "cancel", cancel)
    job = job_of(scheduler)
    job_patches.update_job(job, jobid="7")
    with pytest.raises(SpawnedProcessError):
        job.cancel()
    reported: list = []
    job_patches.report_failed_cancels(lambda *failed: reported.append(failed))
    job.cancel()
    ((reported_job, err),) = reported
    assert reported_job is job and err.exitcode == 35


@pytest.mark.parametrize("run", [osext.run_command, pbs._run_strict, lsf._run_strict])
def test_time_limit(run):
    """Of commands that have none of their own, also where ReFrame has the function as another."""
    with job_patches.time_limit(0.1):
        with pytest.raises(SpawnedProcessTimeout):
            run("sleep 3600")
        assert run("echo done", timeout=None).stdout == "done\n"
    assert osext.run_command.__defaults__ == (False, None)


@pytest.mark.parametrize(("seconds", "minutes"), [(30, 1), (60, 1), (61, 2), (90, 2), (None, None)])
def test_limit_in_whole_minutes(plain, monkeypatch: pytest.MonkeyPatch, seconds, minutes):
    own = inspect.unwrap(LsfJobScheduler.emit_preamble)
    monkeypatch.setattr(LsfJobScheduler, "emit_preamble", own)

    def limits() -> list[str]:
        job = job_of(LsfJobScheduler)
        job.time_limit = seconds
        return [line for line in job.scheduler.emit_preamble(job) if "-W" in line]

    given = limits()
    assert given == ([f"#BSUB -W {seconds // 60}"] if seconds else [])
    job_patches.limit_in_whole_minutes()
    assert limits() == ([f"#BSUB -W {minutes}"] if minutes else [])


def test_limit_bsub(plain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It waits for as long as LSF is down."""
    monkeypatch.setattr(LsfJobScheduler, "submit", inspect.unwrap(LsfJobScheduler.submit))
    (tmp_path / "bsub").write_text("#!/bin/sh\nexec sleep 3600\n")
    (tmp_path / "bsub").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    job = job_of(LsfJobScheduler)
    Path(job.script_filename).touch()
    job.scheduler._submit_timeout = 0.1
    job_patches.limit_bsub()
    with pytest.raises(SpawnedProcessTimeout):
        job.submit()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_wrap_poll(plain, monkeypatch: pytest.MonkeyPatch, scheduler: type):
    polled, own = [], []
    monkeypatch.setattr(scheduler, "poll", lambda self, *jobs: own.append(jobs))
    job_patches.wrap_poll(scheduler, lambda one, jobs, poll: polled.append((one, jobs, poll())))
    job = job_of(scheduler)
    job.scheduler.poll(None, job)
    assert polled == [(job.scheduler, [job], None)] and own == [(job,)]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_update_job(plain, scheduler: type):
    job = job_of(scheduler)
    found = {"jobid": "7", "exitcode": 3, "submit_time": time.time(), "exception": JobError("lost")}
    job_patches.update_job(job, state="COMPLETED", **found)
    assert {name: getattr(job, name) for name in found} == found
    assert job.state == "COMPLETED"
    if issubclass(scheduler, PbsJobScheduler):
        job_patches.update_job(job, completed=True)
    with pytest.raises(JobError, match="lost"):
        job.finished()
    with pytest.raises(AttributeError):
        job_patches.update_job(job, node="n1")


def test_node_spec(plain):
    job = job_of(SlurmJobScheduler)
    assert job_patches.node_spec(job) == "" and job.nodelist == []
    job_patches.update_job(job, nodespec="n[1-2]")
    assert job_patches.node_spec(job) == "n[1-2]" and job.nodelist == []


@pytest.mark.parametrize("wanted", [True, False])
def test_at_submission(plain, monkeypatch: pytest.MonkeyPatch, wanted: bool):
    submitted, called = [], []
    monkeypatch.setattr(SlurmJobScheduler, "submit", lambda self, job: submitted.append(job))
    job = job_of(SlurmJobScheduler)
    fields = {*vars(job)}
    job_patches.at_submission(job, lambda: called.append(1) or wanted)
    job.submit()
    assert called == [1] and submitted == [job] * wanted
    # Once: nothing of it is left in what ReFrame stores of the job.
    assert {*vars(job)} == fields
    job.submit()
    assert called == [1]


def test_share_job(plain):
    first, second = (RegressionTest.__new__(RegressionTest) for _ in range(2))
    first._job, second._job = job_of(SlurmJobScheduler), None
    assert second.job is None
    job_patches.share_job(second, first)
    assert second.job is first.job is not None
