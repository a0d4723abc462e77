"""Jobs that LSF, PBS and Slurm ended: what their commands and files say, as the real ones do."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import reframe
from plumbline.site import ended_jobs, job_patches, slurm, slurm_jobs
from reframe.core import runtime
from reframe.core.exceptions import JobError
from reframe.core.launchers.local import LocalLauncher
from reframe.core.schedulers import Job
from reframe.core.schedulers.lsf import LsfJobScheduler
from reframe.core.schedulers.pbs import PbsJobScheduler, PbsProJobScheduler, TorqueJobScheduler
from reframe.core.schedulers.slurm import SlurmJobScheduler, SqueueJobScheduler

RUNLIMIT = "TERM_RUNLIMIT: job killed after reaching LSF run time limit"

#: The end of a real job's output (LSF 10.1), whose script printed a line like LSF's own.
REPORT = """\
TERM_OWNER: job killed by owner.
Exited with exit code 130.

------------------------------------------------------------
Sender: LSF System <lsfadmin@n-62-20-9>
Subject: Job 8: <train> in cluster <dcc> Exited

Your job looked like:

------------------------------------------------------------
# LSBATCH: User input
#!/bin/sh
#BSUB -W 10

------------------------------------------------------------

TERM_RUNLIMIT: job killed after reaching LSF run time limit.
Exited with exit code 140.

Resource usage summary:

    CPU time :                                   150.00 sec.

The output (if any) is above this job summary.
"""


def job_of(scheduler: type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that was submitted, on a scheduler that tells why its jobs were lost."""
    monkeypatch.setattr(scheduler, "get_option", lambda *_: ())
    monkeypatch.setattr(ended_jobs, "notes", [])
    reason_of = {
        LsfJobScheduler: ended_jobs._reason_of_lsf,
        PbsJobScheduler: ended_jobs._reason_of_pbs,
        PbsProJobScheduler: ended_jobs._reason_of_pbs,
        TorqueJobScheduler: ended_jobs._reason_of_pbs,
    }
    for watched in (SlurmJobScheduler, scheduler):
        monkeypatch.setattr(watched, "poll", inspect.unwrap(watched.poll))
    if scheduler in reason_of:
        job_patches.wrap_poll(scheduler, ended_jobs._reporting("IT", reason_of[scheduler]))
    else:
        slurm_jobs.watch()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    job = Job.create(scheduler(), LocalLauncher(), name="rfm_job", script_filename="job.sh",
                     stdout="job.out", stderr="job.err", workdir=str(folder))  # fmt: skip
    servers = {PbsJobScheduler: ".pbs01", PbsProJobScheduler: ".pbs01", TorqueJobScheduler: ".sdb"}
    job.scheduler._submit_timeout = None
    job._jobid = f"8{servers.get(scheduler, '')}"
    job._submit_time = 0
    for name in ("job.out", "job.err"):
        (folder / name).write_text("")
    return job


def command(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


#: Branches of a bjobs(1) whose job has exited: what ReFrame asks for, and its state alone.
EXITED = '*jobid*) echo "8 user EXIT batch";; *"-o stat 8") echo EXIT;;'


@pytest.mark.parametrize(
    ("reason", "report", "code"),
    [
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit", "",
         "job.out-of-memory"),
        ("-", REPORT, "job.time-limit"),
        # Of an LSF that does not know the field.
        ("", REPORT, "job.time-limit"),
        ("-", REPORT.replace(f"{RUNLIMIT}.\n", ""), None),
        ("-", "", None),
    ],
)  # fmt: skip
def test_lsf(tmp_path: Path, monkeypatch, reason: str, report: str, code: str | None):
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    asked = f"*exit_reason*) printf '%s\\n' '{reason}';;" if reason else "*exit_reason*) exit 255;;"
    command(tmp_path / "bjobs", f'case "$*" in {asked} {EXITED} esac')
    (tmp_path / "job.out").write_text(report)
    job.scheduler.poll(job)
    assert job.scheduler.finished(job)
    if code is None:
        assert job.exception is None
        return
    assert isinstance(job.exception, ended_jobs.Lost) and job.exception.code == code
    # LSF's own words, from either place.
    assert (RUNLIMIT if reason in ("", "-") else reason) in str(job.exception)


RAN = "Job run at Mon Nov 23 at 10:00 on (x3001c0s13b0n0:ncpus=64)"


@pytest.mark.parametrize(
    ("fields", "errors", "code", "words"),
    [
        ({"Exit_status": 0, "comment": f"{RAN} and finished"}, "", None, []),
        ({"Exit_status": 1, "comment": f"{RAN} and failed"}, "", None, []),
        ({"Exit_status": 140, "comment": f"{RAN} and failed"}, "", None, []),
        ({"Exit_status": 271, "comment": f"{RAN} and terminated by operator@pbs01"}, "",
         "job.cancelled", ["terminated by operator@pbs01", "271"]),
        ({"Exit_status": -29, "comment": f"{RAN} and exceeded resource walltime"}, "",
         "job.time-limit", ["exceeded resource walltime", "-29"]),
        ({"Exit_status": 271}, "=>> PBS: job killed: walltime 3601 exceeded limit 3600\n",
         "job.time-limit", ["walltime 3601 exceeded limit 3600"]),
        ({"Exit_status": -27, "comment": f"{RAN} and exceeded resource mem"}, "",
         "job.out-of-memory", ["exceeded resource mem", "-27"]),
        ({"Exit_status": 265}, "", "job.ended-by-scheduler", ["265", "SIGKILL"]),
        ({"Exit_status": -20}, "", "job.node-failed", ["-20"]),
        # Of a job that may not be rerun, on a node that was restarted.
        ({"Exit_status": -4, "comment": f"{RAN} and failed"}, "", "job.node-failed", ["-4"]),
        # Torque's codes have other meanings here.
        ({"Exit_status": -11}, "", "job.ended-by-scheduler", ["-11"]),
        # Deleted while it was queued: it has neither an exit status nor nodes.
        ({}, "", "job.cancelled", []),
        # Deleted by qdel -W force while it ran.
        ({"comment": RAN}, "", "job.ended-by-scheduler", ["exit status"]),
    ],
)  # fmt: skip
def test_pbs(tmp_path: Path, monkeypatch, fields: dict, errors: str, code, words: list[str]):
    job = job_of(PbsProJobScheduler, tmp_path, monkeypatch)
    listed = {"job_state": "F", "queue": "debug", **fields}
    if fields:
        listed["exec_host"] = "x3001c0s13b0n0/0*64"
    (tmp_path / "qstat.json").write_text(json.dumps({"Jobs": {"8.pbs01": listed}}))
    # qstat folds a line after 79 characters.
    lines = [f"    {name} = {value}" for name, value in listed.items()]
    lines = [line[:79] + ("\n\t" + line[79:] if line[79:] else "") for line in lines]
    (tmp_path / "qstat.txt").write_text("\n".join(["Job Id: 8.pbs01", *lines, ""]))
    # Without -x it has no job that has ended.
    shown = f"*json*) cat {tmp_path}/qstat.json;; -x*) cat {tmp_path}/qstat.txt;; *) exit 35;;"
    command(tmp_path / "qstat", f'case "$*" in {shown} esac')
    (tmp_path / "job.err").write_text(errors)
    job.scheduler.poll(job)
    assert job.scheduler.finished(job)
    if code:
        assert job.exception.code == code
        assert all(word in str(job.exception) for word in words)
    else:
        assert job.exception is None


@pytest.mark.parametrize(
    ("status", "code", "exitcode"),
    [
        (0, None, 0),
        (3, None, 3),
        (265, "job.ended-by-scheduler", 265),
        (-4, "job.node-failed", None),
        (-10, "job.out-of-memory", None),
        (-11, "job.time-limit", None),
        (-12, "job.time-limit", None),
        (-2, "job.ended-by-scheduler", None),
    ],
)
def test_torque(tmp_path: Path, monkeypatch, status: int, code: str | None, exitcode: int):
    """Its `qstat -x` prints XML."""
    job = job_of(TorqueJobScheduler, tmp_path, monkeypatch)
    listed = ["job_state = C", "exec_host = nid00012/0-15", f"exit_status = {status}"]
    (tmp_path / "qstat.txt").write_text("\n    ".join(["Job Id: 8.sdb", *listed, ""]))
    xml = f"<Data><Job><Job_Id>8.sdb</Job_Id><exit_status>{status}</exit_status></Job></Data>"
    command(
        tmp_path / "qstat", f"case \"$*\" in -x*) echo '{xml}';; *) cat {tmp_path}/qstat.txt;; esac"
    )
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and job.exitcode == exitcode
    assert getattr(job.exception, "code", None) == code


#: What the real commands say if their server does not answer.
NO_PBS = "echo 'qstat: cannot connect to server pbs01 (errno=111)' >&2; exit 255"
NO_LSF = "echo 'Failed in an LSF library call: LIM is down; try later' >&2; exit 255"
FINISHED = """echo '{"Jobs": {"8.pbs01": {"job_state": "F", "Exit_status": 0}}}'"""


@pytest.mark.parametrize(
    ("scheduler", "program", "silent", "ended"),
    [
        (LsfJobScheduler, "bjobs", NO_LSF, f'case "$*" in {EXITED} esac'),
        (PbsJobScheduler, "qstat", NO_PBS, "exit 153"),
        (PbsProJobScheduler, "qstat", NO_PBS.replace("255", "111"), FINISHED),
    ],
)
def test_a_scheduler_that_does_not_answer_ends_no_job(
    tmp_path: Path, monkeypatch, scheduler: type, program: str, silent: str, ended: str
):
    job = job_of(scheduler, tmp_path, monkeypatch)
    command(tmp_path / program, silent)
    for _ in range(2 * ended_jobs.MISSES):
        job.scheduler.poll(job)
        assert not job.scheduler.finished(job) and job.exception is None
    assert len(ended_jobs.notes) == 1 and "does not answer" in ended_jobs.notes[0]
    command(tmp_path / program, ended)
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and job.exception is None


#: More seconds than any test may take.
HANGS = "exec sleep 3600"


@pytest.mark.parametrize(
    ("scheduler", "program"),
    [
        (LsfJobScheduler, "bjobs"),
        (PbsJobScheduler, "qstat"),
        (PbsProJobScheduler, "qstat"),
        (TorqueJobScheduler, "qstat"),
        (SlurmJobScheduler, "sacct"),
        (SqueueJobScheduler, "squeue"),
    ],
)
def test_a_scheduler_that_hangs_ends_no_job(tmp_path: Path, monkeypatch, scheduler, program: str):
    monkeypatch.setattr(runtime, "temp_environment", lambda **_: contextlib.nullcontext())
    job = job_of(scheduler, tmp_path, monkeypatch)
    job.scheduler._submit_timeout = 0.1
    job.scheduler._max_sacct_failures = 0
    job_patches.update_job(job, submit_time=0, state="RUNNING")
    # The controller hangs, too.
    for name in (program, "scontrol"):
        command(tmp_path / name, HANGS)
    job.scheduler.poll(job)
    assert not job.scheduler.finished(job) and job.exception is None
    assert job.state == "RUNNING" and "timed out" in ended_jobs.notes[0]


def test_a_job_without_output_while_pbs_hangs(tmp_path: Path, monkeypatch):
    job = job_of(PbsJobScheduler, tmp_path, monkeypatch)
    job.scheduler._submit_timeout = 0.1
    (tmp_path / "job.out").unlink()
    # Each poll asks once, and then whether the job is still unknown.
    command(tmp_path / "qstat", f"cd {tmp_path}; mkdir asked && exit 153; {HANGS}")
    job.misses = ended_jobs.MISSES - 1
    job.scheduler.poll(job)
    assert not job.scheduler.finished(job) and job.exception is None and len(ended_jobs.notes) == 1
    command(tmp_path / "qstat", "exit 153")
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and job.exception.code == "job.ended-by-scheduler"


def test_a_job_that_squeue_lists_as_it_cannot_be_cancelled(tmp_path: Path, slurm_job: Job):
    slurm_job.max_pending_time = 1
    command(tmp_path / "squeue", "echo '8|PENDING||Priority'")
    command(tmp_path / "scancel", NO_CONTROLLER)
    slurm_job.scheduler.poll(slurm_job)
    assert not slurm_job.finished() and len(ended_jobs.notes) == 1
    command(tmp_path / "scancel", "exit 0")
    slurm_job.scheduler.poll(slurm_job)
    assert type(slurm_job.exception) is JobError


@pytest.mark.parametrize("code", [0, 255])
@pytest.mark.parametrize("words", ["Job <8> is not found", "No unfinished job found"])
def test_a_job_that_lsf_has_forgotten(tmp_path: Path, monkeypatch, words: str, code: int):
    """With either value of LSB_BJOBS_CONSISTENT_EXIT_CODE."""
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    command(tmp_path / "bjobs", f"echo '{words}' >&2; exit {code}")
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and not ended_jobs.notes


@pytest.mark.parametrize("code", [0, 255])
def test_a_job_that_lsf_does_not_list_yet(tmp_path: Path, monkeypatch, code: int):
    """What answers bjobs(1) is older than the job."""
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    neighbour = copy.copy(job)
    job_patches.update_job(job, submit_time=time.time())
    job_patches.update_job(neighbour, jobid="9", submit_time=time.time(), state="RUNNING")
    unlisted = [f"echo 'Job <{number}> is not found' >&2" for number in (8, 9)]
    command(tmp_path / "bjobs", "\n".join([*unlisted, f"exit {code}"]))
    job.scheduler.poll(job, neighbour)
    assert not job.scheduler.finished(job) and not ended_jobs.notes
    # One that it listed is gone at once.
    assert job.scheduler.finished(neighbour)
    command(tmp_path / "bjobs", f'case "$*" in {EXITED} esac')
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and job.exception is None


@pytest.mark.parametrize("code", [0, 255])
def test_a_job_beside_one_that_lsf_has_forgotten(tmp_path: Path, monkeypatch, code: int):
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    neighbour = copy.copy(job)
    job_patches.update_job(neighbour, jobid="9")
    alone = f'*"stat 8") echo No unfinished job found >&2; exit {code};; *"stat 9") echo RUN;;'
    both = f"echo '9 user RUN batch'; echo 'Job <8> is not found' >&2; exit {code}"
    command(tmp_path / "bjobs", f'case "$*" in {alone} *jobid*) {both};; esac')
    job.scheduler.poll(job, neighbour)
    assert job.scheduler.finished(job) and not ended_jobs.notes
    assert not job.scheduler.finished(neighbour)


@pytest.mark.parametrize(
    ("stat", "limit", "late"),
    [
        ("PEND", 1, True),
        # Held.
        ("PSUSP", 1, True),
        # Suspended as it ran.
        ("USUSP", 1, False),
        ("RUN", 1, False),
        ("PEND", 9999, False),
        ("PEND", None, False),
    ],
)
def test_a_job_of_lsf_that_waits_too_long(tmp_path: Path, monkeypatch, stat: str, limit, late):
    monkeypatch.setattr(LsfJobScheduler, "cancel", inspect.unwrap(LsfJobScheduler.cancel))
    job_patches.cancel_by_bkill()
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    job.max_pending_time = limit
    job_patches.update_job(job, submit_time=time.time() - 60)
    listed = f'*jobid*) echo "8 user {stat} batch";; *"-o stat 8") echo {stat};;'
    command(tmp_path / "bjobs", f'case "$*" in {listed} esac')
    command(tmp_path / "bkill", "echo 'Failed in an LSF library call' >&2; exit 255")
    job.scheduler.poll(job)
    assert not job.cancelled and job.exception is None and len(ended_jobs.notes) == late
    command(tmp_path / "bkill", f"mkdir {tmp_path}/killed")
    # Only once.
    for _ in range(2):
        job.scheduler.poll(job)
    assert (job.cancelled, isinstance(job.exception, JobError)) == (late, late)
    assert (tmp_path / "killed").exists() == late and len(ended_jobs.notes) == late


@pytest.mark.parametrize("state", ["UNKWN", "PROV", "WAIT", "RUN"])
def test_a_job_of_lsf_that_reframe_takes_for_ended(tmp_path: Path, monkeypatch, state: str):
    """In states that it does not know; or with a number that bjobs(1) has cut to seven digits."""
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    neighbour = copy.copy(job)
    job_patches.update_job(job, jobid="12345678", state="PENDING")
    job_patches.update_job(neighbour, jobid="9")

    def answers(stat: str) -> None:
        whole = f'echo "1234567 user {stat} batch"; echo "9 user {stat} batch"'
        command(tmp_path / "bjobs", f'case "$*" in *jobid*) {whole};; *stat*) echo {stat};; esac')

    answers(state)
    job.scheduler.poll(job, neighbour)
    assert not job.scheduler.finished(job) and job.state == "PENDING"
    assert not job.scheduler.finished(neighbour)
    answers("DONE")
    job.scheduler.poll(job, neighbour)
    assert job.scheduler.finished(job) and job.exception is None


def test_a_job_of_lsf_whose_host_is_unreachable(tmp_path: Path, monkeypatch):
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    command(tmp_path / "bjobs", f'case "$*" in {EXITED.replace("EXIT", "ZOMBI")} *) echo -;; esac')
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and job.exception.code == "job.node-failed"


def test_the_exit_code_of_a_job_of_lsf(tmp_path: Path, monkeypatch):
    """For which ReFrame does not ask, so that a job that a signal ended would pass."""
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    command(tmp_path / "bjobs", f'case "$*" in {EXITED} *exit_code*) echo 137;; *) echo -;; esac')
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and (job.exitcode, job.exception) == (137, None)


def test_a_job_of_lsf_is_cancelled_by_its_own_command(tmp_path: Path, monkeypatch):
    for scheduler in (LsfJobScheduler, *ended_jobs._PBS):
        monkeypatch.setattr(scheduler, "poll", scheduler.poll)
    for owner, name in ((LsfJobScheduler, "cancel"), (LsfJobScheduler, "submit"), (Job, "cancel")):
        monkeypatch.setattr(owner, name, inspect.unwrap(getattr(owner, name)))
    ended_jobs.watch()
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    command(tmp_path / "bkill", f'echo "$*" >{tmp_path}/killed')
    job.cancel()
    assert (tmp_path / "killed").read_text() == "8\n" and not ended_jobs.notes
    # A session that is ended is not hidden by a job that has just ended.
    command(tmp_path / "bkill", "echo 'Job <8>: Job has already finished' >&2; exit 255")
    job.cancel()
    assert len(ended_jobs.notes) == 1 and "Job has already finished" in ended_jobs.notes[0]


@pytest.mark.parametrize("printed", ["", '{"pbs_version": "23.06.06"}'])
def test_pbs_without_a_history_of_jobs(tmp_path: Path, monkeypatch, printed: str):
    """`qstat -x` lists no job there, with exit code 0."""
    job = job_of(PbsProJobScheduler, tmp_path, monkeypatch)

    def answers(plain: str) -> None:
        refusal = f"echo '{printed}'; echo 'PBS is not configured to maintain job history' >&2"
        command(tmp_path / "qstat", f'case "$*" in -x*) {refusal};; *) {plain};; esac')

    answers("echo 'Job Id: 8.pbs01'; echo '    job_state = R'")
    job.scheduler.poll(job)
    assert not job.scheduler.finished(job) and job.state == "RUNNING"
    # The pbspro of 4.9.3 asks for no history.
    assert len(ended_jobs.notes) == (reframe.VERSION != "4.9.3")
    assert all("pbspro" in note for note in ended_jobs.notes)
    answers("exit 153")
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and job.exception is None


def test_a_job_without_output_that_pbs_no_longer_has(tmp_path: Path, monkeypatch):
    """It was deleted before it ran. Its neighbour runs, though ReFrame has it as completed."""
    job = job_of(PbsJobScheduler, tmp_path, monkeypatch)
    neighbour = copy.copy(job)
    job_patches.update_job(neighbour, jobid="9.pbs01")
    (tmp_path / "job.out").unlink()
    command(tmp_path / "qstat", '[ "$*" = "-f 9.pbs01" ] || exit 153')
    for _ in range(ended_jobs.MISSES):
        assert not job.scheduler.finished(job)
        job.scheduler.poll(job, neighbour)
    assert job.scheduler.finished(job) and job.exception.code == "job.ended-by-scheduler"
    assert not job.scheduler.finished(neighbour) and neighbour.exception is None


@pytest.mark.parametrize("scheduler", [PbsJobScheduler, PbsProJobScheduler])
@pytest.mark.parametrize("code", [153, 35])
def test_a_job_beside_one_that_pbs_no_longer_has(tmp_path: Path, monkeypatch, scheduler, code):
    """qstat(1B) exits with the error of one of them. Output files are there from an earlier run, or
    as the job writes them."""
    job = job_of(scheduler, tmp_path, monkeypatch)
    neighbour = copy.copy(job)
    job_patches.update_job(neighbour, jobid="9.pbs01")
    running = "Job Id: 9.pbs01\\n    job_state = R\\n    exec_host = n1/0*4\\n"
    listed = json.dumps({"Jobs": {"9.pbs01": {"job_state": "R", "exec_host": "n1/0*4"}}})
    command(
        tmp_path / "qstat",
        f"""case "$*" in
        *json*9.pbs01) echo '{listed}';; *json*) echo '{{}}';;
        *9.pbs01) printf '{running}';; esac
        case "$*" in *8.pbs01*json* | *json*8.pbs01*) exit 153;; *8.pbs01*) exit {code};; esac""",
    )
    job.scheduler.poll(job, neighbour)
    assert job.scheduler.finished(job) and job.exception is None
    assert not job.scheduler.finished(neighbour) and neighbour.state == "RUNNING"
    assert neighbour.nodelist == ["n1"]


@pytest.mark.parametrize("state", ["M", "U"])
def test_a_job_of_pbs_in_a_state_that_reframe_does_not_know(tmp_path: Path, monkeypatch, state):
    """M is that of a job at another server, which `qstat -f` asks; U that of a suspended one."""
    job = job_of(PbsProJobScheduler, tmp_path, monkeypatch)
    neighbour = copy.copy(job)
    job_patches.update_job(neighbour, jobid="9.pbs01")
    unknown = json.dumps({"Jobs": {"8.pbs01": {"job_state": state}}})
    ended = json.dumps({"Jobs": {"9.pbs01": {"job_state": "F", "Exit_status": 3}}})
    both = json.dumps({"Jobs": json.loads(unknown)["Jobs"] | json.loads(ended)["Jobs"]})

    def answers(plain: str) -> None:
        command(
            tmp_path / "qstat",
            f"""case "$*" in *json*8*9*) echo '{both}';; *json*8*) echo '{unknown}';;
            *json*9*) echo '{ended}';; "-f 8.pbs01") {plain};; "-xf 9.pbs01") echo Exit_status = 3;;
            "-f 8.pbs01 9.pbs01") {plain}; exit 35;; "-f 9.pbs01") exit 35;; esac""",
        )

    running = "echo 'Job Id: 8.pbs01'; echo '    job_state = R'"
    answers(running if state == "M" else running.replace("= R", "= U"))
    job.scheduler.poll(job, neighbour)
    assert not job.scheduler.finished(job) and job.state == ("RUNNING" if state == "M" else None)
    assert job.scheduler.finished(neighbour) and neighbour.exitcode == 3
    if state == "M":
        answers("exit 35")
        job.scheduler.poll(job)
        assert job.scheduler.finished(job) and job.exception is None


NO_CONTROLLER = """\
echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2
exit 1"""

UNKNOWN = """\
echo "slurm_load_jobs error: Invalid job id specified" >&2
exit 1"""


@pytest.fixture
def slurm_job(tmp_path: Path, monkeypatch) -> Job:
    """A job that squeue(1) listed as running, where Slurm has no accounting."""
    job = job_of(SqueueJobScheduler, tmp_path, monkeypatch)
    job_patches.update_job(job, submit_time=0)
    command(tmp_path / "squeue", "echo '8|RUNNING|n1|None'")
    command(tmp_path / "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    job.scheduler.poll(job)
    assert job.state == "RUNNING"
    return job


def shown(state: str) -> str:
    """A script that prints the start of what scontrol(1) shows of a job."""
    return f"echo 'JobId=8 JobName=rfm_job JobState={state} Reason=None ExitCode=1:0 NodeList=n1'"


@pytest.mark.parametrize("squeue", [NO_CONTROLLER, UNKNOWN, ":"])
def test_a_job_that_squeue_does_not_list_runs(tmp_path: Path, slurm_job: Job, squeue: str):
    command(tmp_path / "squeue", squeue)
    for scontrol in (shown("RUNNING"), shown("COMPLETED") + "\n" + shown("RUNNING")):
        command(tmp_path / "scontrol", scontrol)
        slurm_job.scheduler.poll(slurm_job)
        assert not slurm_job.finished() and not ended_jobs.notes
    command(tmp_path / "scontrol", NO_CONTROLLER)
    slurm_job.scheduler.poll(slurm_job)
    assert not slurm_job.finished()
    assert "Unable to contact slurm controller" in ended_jobs.notes[0]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("CANCELLED", "job.cancelled"),
        ("NODE_FAIL", "job.node-failed"),
        ("OUT_OF_MEMORY", "job.out-of-memory"),
        ("PREEMPTED", "job.preempted"),
        ("TIMEOUT", "job.time-limit"),
        ("COMPLETED", None),
        ("FAILED", None),
    ],
)
def test_the_end_of_a_job_by_slurms_controller(tmp_path: Path, slurm_job: Job, state: str, code):
    command(tmp_path / "squeue", UNKNOWN)
    command(tmp_path / "scontrol", shown(state))
    slurm_job.scheduler.poll(slurm_job)
    assert slurm_job.scheduler.finished(slurm_job) and slurm_job.exitcode == 1
    if code is None:
        assert slurm_job.exception is None and slurm_job.state == state
    else:
        assert slurm_job.exception.code == code and state in str(slurm_job.exception)


@pytest.mark.parametrize(
    ("scontrol", "ends"),
    [
        (shown("PREEMPTED"), True),
        (UNKNOWN, True),
        (shown("PENDING"), False),
        (NO_CONTROLLER, False),
    ],
)
def test_a_job_that_slurms_accounting_has_as_preempted(
    tmp_path: Path, monkeypatch, scontrol: str, ends: bool
):
    """It has ended, unless it is to run again."""
    monkeypatch.setattr(runtime, "temp_environment", lambda **_: contextlib.nullcontext())
    job = job_of(SlurmJobScheduler, tmp_path, monkeypatch)
    job.scheduler._pending_job_reason_poll_freq = 10
    job_patches.update_job(job, submit_time=0)
    printed = "8|PREEMPTED|0:0|1700000000|n1"
    command(tmp_path / "sacct", f"echo 'JobID|State|ExitCode|End|NodeList'; echo '{printed}'")
    command(tmp_path / "scontrol", scontrol)
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) == ends
    assert (getattr(job.exception, "code", None) == "job.preempted") == ends


@pytest.mark.parametrize(
    ("state", "printed", "code"),
    [
        ("FAILED", "0:15", 143),
        ("FAILED", "3:0", 3),
        ("FAILED", "0:9\n2:0", 137),
        ("COMPLETED", "0:0", 0),
    ],
)
def test_the_signal_that_ended_a_job_of_slurm(
    tmp_path: Path, monkeypatch, state: str, printed: str, code: int
):
    """ReFrame has 0 as its exit code."""
    monkeypatch.setattr(runtime, "temp_environment", lambda **_: contextlib.nullcontext())
    job = job_of(SlurmJobScheduler, tmp_path, monkeypatch)
    job.scheduler._pending_job_reason_poll_freq = 10
    lines = f"JobID|State|ExitCode|End|NodeList\n8|{state}|{printed[:3]}|1700000000|n1"
    answers = f"""case "$*" in *"-o exitcode") echo '{printed}';; *) echo '{lines}';; esac"""
    command(tmp_path / "sacct", answers)
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and (job.exitcode, job.exception) == (code, None)


def test_the_signal_that_ended_a_job_by_slurms_controller(tmp_path: Path, slurm_job: Job):
    command(tmp_path / "squeue", UNKNOWN)
    command(tmp_path / "scontrol", shown("FAILED").replace("1:0", "0:9"))
    slurm_job.scheduler.poll(slurm_job)
    assert slurm_job.scheduler.finished(slurm_job) and slurm_job.exitcode == 137


@pytest.mark.parametrize("sacct", [NO_CONTROLLER, None])
def test_a_job_without_slurms_accounting(tmp_path: Path, monkeypatch, sacct: str | None):
    """Which does not answer, or whose command is not installed."""
    monkeypatch.setattr(runtime, "temp_environment", lambda **_: contextlib.nullcontext())
    job = job_of(SlurmJobScheduler, tmp_path, monkeypatch)
    job.scheduler._max_sacct_failures = 0
    job_patches.update_job(job, submit_time=0)
    monkeypatch.setenv("PATH", str(tmp_path))
    if sacct:
        command(tmp_path / "sacct", sacct)
    command(tmp_path / "scontrol", shown("RUNNING"))
    job.scheduler.poll(job)
    assert job.state == "RUNNING" and "accounting" in ended_jobs.notes[0]
    command(tmp_path / "scontrol", shown("COMPLETED"))
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and len(ended_jobs.notes) == 1


@pytest.mark.parametrize(("cancels", "state"), [(False, "COMPLETED"), (True, "CANCELLED")])
def test_a_job_that_slurm_has_forgotten(tmp_path: Path, slurm_job: Job, cancels: bool, state: str):
    job_patches.update_job(slurm_job, is_cancelling=cancels)
    for name in ("squeue", "scontrol"):
        command(tmp_path / name, UNKNOWN)
    slurm_job.scheduler.poll(slurm_job)
    assert slurm_job.finished() and slurm_job.state == state


@pytest.mark.parametrize("state", sorted({"PREEMPTED", *slurm_jobs.LOST}))
def test_each_state_of_slurm_that_loses_a_job_has_a_code(state: str):
    assert state in slurm_jobs.LOST
    assert ended_jobs.Lost(f"Slurm reports {state}", "8").code != "job.ended-by-scheduler"


@pytest.mark.parametrize(
    ("printed", "end"),
    [
        ("TIMEOUT|00:01:05|00:01:00", "TIMEOUT after 00:01:05 of 00:01:00"),
        ("CANCELLED by 0|00:00:07|00:05:00", "CANCELLED by 0 after 00:00:07"),
        # Without an answer of the accounting, what the scheduler has.
        ("", "DEADLINE"),
        ("TIMEOUT|00:01:05", "DEADLINE"),
        ("TIMEOUT|00:01:05|00:01:00\nTIMEOUT|00:01:05|00:01:00", "DEADLINE"),
    ],
)
def test_the_end_of_a_job_by_slurms_accounting(monkeypatch, printed: str, end: str):
    monkeypatch.setattr(slurm_jobs, "command_output", lambda *command: printed)
    assert slurm_jobs.end_of(SimpleNamespace(state="DEADLINE", jobid="8")) == end


def test_variables_that_overrule_a_submission_are_unset(monkeypatch):
    for scheduler in (LsfJobScheduler, *job_patches.pbs_schedulers()):
        monkeypatch.setattr(scheduler, "poll", scheduler.poll)
    for name in ("cancel", "submit", "emit_preamble"):
        monkeypatch.setattr(LsfJobScheduler, name, getattr(LsfJobScheduler, name))
    monkeypatch.setattr(Job, "cancel", Job.cancel)
    for variable in ("SLURM_CLUSTERS", "SLURM_HINT", "PBS_DPREFIX", "BSUB_QUIET", "SLURM_CONF"):
        monkeypatch.setenv(variable, "x")
    ended_jobs.watch()
    assert "SLURM_CONF" in os.environ
    assert not {"SLURM_CLUSTERS", "SLURM_HINT", "PBS_DPREFIX", "BSUB_QUIET"} & {*os.environ}


def test_a_job_that_was_cancelled_here_is_not_lost(tmp_path: Path, monkeypatch):
    job = job_of(LsfJobScheduler, tmp_path, monkeypatch)
    command(tmp_path / "bjobs", f'case "$*" in {EXITED} esac')
    (tmp_path / "job.out").write_text(REPORT)
    job._cancelled = True
    job.scheduler.poll(job)
    assert job.scheduler.finished(job) and job.exception is None


@pytest.mark.parametrize(
    ("access", "found"),
    [
        (["--account=climate-prod", "--partition=q"], ["n1", "n3"]),
        (["--partition=x", "-p", "q"], ["n1", "n3"]),
        (["-p", "q,other"], ["n1", "n3"]),
        (["-p", "q", "--constraint=fast"], ["n3"]),
        (["-p", "q", "--constraint=[fast*2]"], []),
    ],
)
def test_nodes_of_slurms_partition_that_take_no_jobs(monkeypatch, access: list, found: list):
    shown = {
        "n1": "State=DOWN+DRAIN Partitions=q,r Reason=fan State=IDLE [root@2026]",
        "n2": "State=DOWN Partitions=x",
        "n3": "State=IDLE+MAINTENANCE+RESERVED Partitions=q",
        "n4": "State=DOWN Partitions=q",
        "n5": "State=ALLOCATED Partitions=q",
    }
    listed = [
        f"{name}|{'x' if name == 'n2' else 'q'}|1|4|1|1000|(null)|{features}|idle|none\n"
        for name, features in zip(shown, ["ib", "fast", "ib,fast", "fast", "fast"], strict=True)
    ]
    monkeypatch.setattr(slurm, "capture", lambda *_, **__: "".join(listed))

    def scontrol(*words: str) -> str:
        # q is hidden.
        assert words[:-1] == ("scontrol", "--all", "-o", "show", "node")
        return "".join(f"NodeName={name} {shown[name]}\n" for name in words[-1].split(","))

    monkeypatch.setattr(slurm_jobs, "command_output", scontrol)
    reasons = {"n1": "n1 is DOWN+DRAIN: fan State=IDLE", "n3": "n3 is IDLE+MAINTENANCE+RESERVED"}
    # n4 is measured, as with --distribute=all.
    unavailable = slurm_jobs._unavailable(SimpleNamespace(access=access), ["n4"])
    assert unavailable == [reasons[name] for name in found]
