"""What the reason of a case says: what was seen, the possible causes, the program's own words."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from plumbline import parse
from plumbline.check import job_output, outcomes, samples, verdict
from plumbline.check.benchmark import Benchmark
from plumbline.check.result import CaseResult
from plumbline.parse import Figure, Fom, ParseError
from plumbline.placement.proof import (
    ALONE,
    OTHER_MPI,
    TASK_ENDED,
    BindingMismatch,
    TaskReport,
    prove,
)
from plumbline.reference.lookup import Bounds, Judgement
from plumbline.reference.waivers import Subject
from reframe.core.exceptions import SanityError

#: Tasks that started, and that the program reports -> the causes, the likeliest first.
REPORTED = {
    (4, 1): [ALONE, job_output.FEWER_TASKS],
    (4, 2): [job_output.FEWER_TASKS, ALONE],
    (2, 4): [job_output.OTHER_RUN],
}


def in_this_order(message: str, *parts: str) -> bool:
    places = [message.find(part) for part in parts]
    return places[0] >= 0 and places == sorted(places)


@pytest.mark.parametrize(("started", "reported"), REPORTED)
def test_another_number_of_tasks(started: int, reported: int):
    """The nodes, which may be many, come last."""
    tasks = [TaskReport(rank, f"node{rank % 2}", "0") for rank in range(started)]
    layout = SimpleNamespace(num_tasks=started, num_nodes=2)
    result = CaseResult(program="osu_bw", tasks=tasks)
    message = job_output.task_count_message(reported, layout, result)
    assert in_this_order(message, "osu_bw", *REPORTED[started, reported], "node[0-1]")
    others = {ALONE, job_output.FEWER_TASKS, job_output.OTHER_RUN} - {*REPORTED[started, reported]}
    assert not any(cause in message for cause in others)


#: What srun of Slurm 22.05 printed as it was ended 20 s after slurmctld had been restarted.
PENDING = """\
srun: Cancelled pending job step with signal 15
srun: error: Unable to create step for job 1: Job/step already completing or completed
"""


@pytest.mark.parametrize("stderr", [PENDING, ""])
def test_a_step_that_slurm_did_not_create(stderr: str, tmp_path: Path):
    (tmp_path / samples.NOT_STARTED).write_text("0\n")
    (tmp_path / "sample-0.err").write_text(stderr)
    layout = SimpleNamespace(num_tasks=2)
    with pytest.raises(outcomes.Invalid) as refusal:
        job_output.check_started(tmp_path, layout, 60, [])
    assert refusal.value.code == "output.not-started"
    assert (job_output.STEP_NOT_CREATED in str(refusal.value)) == bool(stderr)
    assert in_this_order(str(refusal.value), "run 0", "60 s", "0 of 2 tasks")


@pytest.mark.parametrize(
    ("ranks", "causes"),
    [
        ({0: "x1", 1: "x1"}, ["1 of 2 nodes", TASK_ENDED, OTHER_MPI]),
        ({0: "x1", 1: "x1", 2: "x2"}, [TASK_ENDED, OTHER_MPI]),
        ({}, ["2 of 2 nodes", TASK_ENDED, OTHER_MPI]),
    ],
)
def test_tasks_that_are_missing_are_not_taken_for_another_mpi(ranks: dict, causes: list[str]):
    layout = SimpleNamespace(num_tasks=4, num_nodes=2)
    with pytest.raises(BindingMismatch) as refusal:
        prove(layout, [TaskReport(rank, host, "0") for rank, host in ranks.items()])
    assert refusal.value.code == "proof.task-count"
    assert in_this_order(str(refusal.value), *causes, *dict.fromkeys(ranks.values()))
    assert ALONE not in str(refusal.value)


def test_tasks_that_are_all_rank_0_are_alone():
    layout = SimpleNamespace(num_tasks=2, num_nodes=1)
    with pytest.raises(BindingMismatch) as refusal:
        prove(layout, [TaskReport(0, "a", "0"), TaskReport(0, "a", "1")])
    assert refusal.value.code == "proof.task-count"
    assert ALONE in str(refusal.value) and TASK_ENDED not in str(refusal.value)


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "NaN"), (math.inf, "inf"), (0.0, "0 MB")])
def test_a_figure_that_is_no_number(value: float, shown: str):
    figure = Figure("bandwidth", 8)
    found = {figure: Fom("bandwidth", value, "MB/s", 8)}
    with pytest.raises(ParseError) as refusal:
        job_output.value_of("osu", found, figure)
    assert refusal.value.code == "output.not-positive"
    assert "bandwidth_8" in str(refusal.value) and shown in str(refusal.value)


def test_a_filter_that_fits_nothing_in_commscopes_words():
    errors = Path(__file__).with_name("captures") / "commscope" / "v0120_nomatch_json_file.err"
    with pytest.raises(ParseError, match="regex: zzz"):
        parse.check_stderr("commscope", errors.read_text())


def test_a_failed_figure_names_its_statistic_and_its_nodes_last():
    """Of a reference whose paper does not state the statistic."""
    figure = Figure("latency", 8)
    bounds = Bounds(1.0, 0.0, 1.1, "unstated", "r1", "paper table 1")
    result = CaseResult(samples=1, tasks=[TaskReport(0, "n7", "0")])
    result.figures[figure] = SimpleNamespace(unit="us", case=SimpleNamespace(placement="on-node"))
    result.judgements = {figure: Judgement(1.5, "median", "fail", bounds, None, None)}
    with pytest.raises(outcomes.Failed) as failed:
        verdict.raise_failures(result, Subject("alpha", "cpu", "gnu", "osu", nodes=("n7",)))
    message = str(failed.value)
    assert "median" in message and "unstated" not in message
    assert message.endswith("n7")


def test_the_programs_words_where_its_output_is_missing(tmp_path: Path):
    run = SimpleNamespace(out="sample-0.out", err="sample-0.err")
    (tmp_path / run.err).write_text("plumbline-task 0 a 0 0 - - 0 -\nno space for a report\n")

    def read_run(run, ended):
        return (tmp_path / "sample-0.json").read_text()

    check = SimpleNamespace(
        stagedir=tmp_path,
        result=CaseResult(),
        job=SimpleNamespace(stderr="job.err"),
        num_warmups=0,
        read_ends=dict,
        runs=lambda: [run],
        read_run=read_run,
    )
    with pytest.raises(SanityError) as refusal:
        Benchmark.read_samples(check)
    assert refusal.value.code == "output.file-missing"
    assert "sample-0.json" in str(refusal.value)
    assert str(refusal.value).endswith(": no space for a report")
