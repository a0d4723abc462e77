"""Flux by its commands: what is submitted, and how each end of a job is reported."""

import os
from pathlib import Path

import pytest
from plumbline.site import ended_jobs, job_patches, launchers, schedulers
from reframe.core.exceptions import JobError
from reframe.core.schedulers import Job

STANDIN = Path(__file__).with_name("standins") / "flux"


@pytest.fixture
def flux(tmp_path, monkeypatch):
    """A scheduler whose `flux` is the stand-in, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{STANDIN}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN_FLUX", str(tmp_path))
    monkeypatch.setattr(schedulers.FluxBatchScheduler, "get_option", lambda *_: None)
    monkeypatch.setattr(schedulers.time, "sleep", lambda _: None)
    return schedulers.FluxBatchScheduler()


def job_of(scheduler, body: str, **given) -> Job:
    """A submitted job of two tasks on two nodes."""
    job = Job.create(scheduler, launchers.FluxRun(), name="rfm_job", script_filename="job.sh",
                     stdout="job.out", stderr="job.err", **given)  # fmt: skip
    job.num_tasks, job.num_tasks_per_node, job.num_cpus_per_task = 2, 1, 3
    job.time_limit = 90
    preamble = scheduler.emit_preamble(job)
    Path("job.sh").write_text("\n".join(["#!/bin/sh", *preamble, body, ""]))
    scheduler.submit(job)
    return job


@pytest.mark.parametrize(("body", "code"), [("true", 0), ("exit 3", 3)])
def test_a_job_that_ends(flux, body, code):
    job = job_of(flux, body)
    assert job.jobid == "81234567890"
    flux.wait(job)
    assert (job.exitcode, job.nodelist, job.exception) == (code, ["node7"], None)


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("TIMEOUT|142|node7|timeout|resource allocation expired",
         "TIMEOUT: resource allocation expired", "job.time-limit"),
        ("CANCELED|||cancel|by an operator", "CANCELED: by an operator", "job.cancelled"),
        ("FAILED|||alloc|unsatisfiable request", "FAILED: unsatisfiable request",
         "job.ended-by-scheduler"),
        # Of 0.66, of 0.60, and of a job whose script went on without the node.
        ("FAILED|1|node7|exec|node failure on node7 (rank 3)", "node7", "job.node-failed"),
        ("FAILED|1|node7|exec|lost contact with job shell on broker node7 (rank 3)", "node7",
         "job.node-failed"),
        ("FAILED|1|node7|node-failure|shell rank 1 (on node8): Killed", "node8",
         "job.node-failed"),
        ("UNKNOWN", "no longer lists", "job.ended-by-scheduler"),
    ],
)  # fmt: skip
def test_a_lost_job_has_the_reason_of_flux(flux, monkeypatch, state, reason, code):
    """It is not reported as missing output."""
    job = job_of(flux, "true")
    monkeypatch.setenv("STANDIN_STATE", state)
    for _ in range(schedulers.MISSES):
        flux.poll(job)
    assert flux.finished(job)
    assert job.exception.code == code
    assert reason in str(job.exception)


def test_a_flux_that_does_not_answer_ends_no_job(flux, monkeypatch):
    monkeypatch.setattr(ended_jobs, "notes", [])
    job = job_of(flux, "true")
    monkeypatch.setenv("STANDIN_STATE", "SILENT")
    for _ in range(2 * schedulers.MISSES):
        flux.poll(job)
    assert not flux.finished(job) and job.exception is None and len(ended_jobs.notes) == 1
    monkeypatch.delenv("STANDIN_STATE")
    flux.wait(job)
    assert (job.exitcode, job.exception) == (0, None)


def test_a_flux_that_hangs_ends_no_job(flux, monkeypatch):
    monkeypatch.setattr(ended_jobs, "notes", [])
    job = job_of(flux, "true")
    flux._submit_timeout = 0.1
    monkeypatch.setenv("STANDIN_STATE", "HANGS")
    flux.poll(job)
    assert not flux.finished(job) and len(ended_jobs.notes) == 1
    flux._submit_timeout = None
    monkeypatch.delenv("STANDIN_STATE")
    flux.wait(job)
    assert (job.exitcode, job.exception) == (0, None)


def test_a_job_that_ends_without_a_node_that_failed(flux, monkeypatch):
    job = job_of(flux, "true")
    monkeypatch.setenv(
        "STANDIN_STATE", "COMPLETED|0|node7|node-failure|node failure on node8 (shell rank 1)"
    )
    flux.poll(job)
    assert flux.finished(job) and job.exception is None


@pytest.mark.parametrize(
    ("state", "limit", "late"),
    [
        ("SCHED||||", 1, True),
        ("SCHED||||", 9999, False),
        ("SCHED||||", None, False),
        ("RUN||node7||", 1, False),
    ],
)
def test_a_job_that_waits_too_long_is_cancelled(flux, monkeypatch, state, limit, late):
    job = job_of(flux, "true")
    job.max_pending_time = limit
    job_patches.update_job(job, submit_time=job.submit_time - 60)
    monkeypatch.setenv("STANDIN_STATE", state)
    flux.poll(job)
    assert (job.cancelled, isinstance(job.exception, JobError)) == (late, late)


@pytest.mark.parametrize(
    ("launcher", "alone", "bound"),
    [
        (launchers.Jsrun, "jsrun -n 12 -a 1 -c 7 -b rs -r 6",
         "jsrun -n 1 -r 1 -a 42 -c 42 -g ALL_GPUS"),
        (launchers.FluxRun, "flux run -N 2 -n 12 -c 7",
         "flux run -N 2 --tasks-per-node=6 -o cpu-affinity=off"),
    ],
)  # fmt: skip
def test_the_options_of_a_binding_are_complete(flux, launcher: type, alone: str, bound: str):
    """Without them, the job's numbers of tasks and cores are the options."""
    job = Job.create(flux, launcher(), name="rfm_job", script_filename="job.sh",
                     stdout="job.out", stderr="job.err")  # fmt: skip
    job.num_tasks, job.num_tasks_per_node, job.num_cpus_per_task = 12, 6, 7
    assert job.launcher.run_command(job) == alone
    command = alone.partition(" -")[0]
    job.launcher.options = bound.removeprefix(command).split()
    assert job.launcher.run_command(job) == bound
