"""What the reason of a case says: what was seen, the possible causes, the program's own words."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from plumbline import parse
from plumbline.check.benchmark import Benchmark
from plumbline.check.result import CaseResult
from plumbline.parse import Figure, Fom, ParseError
from plumbline.placement.binding import BindingMismatch, Seen, prove
from reframe.core.exceptions import SanityError
from test_facility_faults import only, session

ALONE = "each task runs alone"
#: Tasks that started, and that the program reports -> the causes, in their order.
REPORTED = {
    (4, 1): [ALONE, "fewer tasks than it is given"],
    (4, 2): ["fewer tasks than it is given", ALONE],
    (2, 4): ["that of another run"],
}


def causes_of(message: str, nodes: list[str]) -> list[str]:
    """The causes of a message, which ends with the nodes."""
    told, _, last = message.rpartition("; tasks on ")
    assert last and all(node in last for node in nodes), message
    return told.partition("the likeliest first: ")[2].split("; ")


@pytest.mark.parametrize(("started", "reported"), REPORTED)
def test_another_number_of_tasks(started: int, reported: int):
    tasks = [Seen(rank, f"node{rank % 2}", "0") for rank in range(started)]
    check = SimpleNamespace(program="osu_bw", result=CaseResult(tasks=tasks))
    layout = SimpleNamespace(num_tasks=started, num_nodes=2)
    message = Benchmark.said_of_tasks(check, reported, layout)
    assert f"reports {reported} tasks, {started} of {started} started" in message
    found = causes_of(message, ["node[0-1]"])
    wanted = REPORTED[started, reported]
    assert len(found) == len(wanted)
    assert all(part in cause for part, cause in zip(wanted, found, strict=True))


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ({0: "a", 1: "a"}, "1 of 2 nodes took no part"),
        ({0: "a", 1: "a", 2: "b"}, "a task ended before it reported itself"),
        ({}, "2 of 2 nodes took no part"),
    ],
)
def test_tasks_that_are_missing_are_not_taken_for_another_mpi(ranks: dict, first: str):
    layout = SimpleNamespace(num_tasks=4, num_nodes=2)
    with pytest.raises(BindingMismatch) as refusal:
        prove(layout, [Seen(rank, host, "0") for rank, host in ranks.items()])
    assert causes_of(str(refusal.value), [*ranks.values()])[0] == first


def test_tasks_that_are_all_rank_0_are_alone():
    layout = SimpleNamespace(num_tasks=2, num_nodes=1)
    with pytest.raises(BindingMismatch) as refusal:
        prove(layout, [Seen(0, "a", "0"), Seen(0, "a", "1")])
    (cause,) = causes_of(str(refusal.value), ["a"])
    assert cause.startswith(ALONE)


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "inf"), (0.0, "0")])
def test_a_figure_that_is_no_number(value: float, word: str):
    figure = Figure("bandwidth", 8)
    found = {figure: Fom("bandwidth", value, "MB/s", 8)}
    with pytest.raises(ParseError, match=rf"bandwidth_8 is .*\b{word}\b"):
        Benchmark.read_figure(SimpleNamespace(benchmark="osu"), found, figure)


def test_a_filter_that_fits_nothing_in_commscopes_words(tmp_path: Path):
    errors = Path(__file__).with_name("captures") / "commscope" / "v0120_nomatch_json_file.err"
    with pytest.raises(ParseError, match="Failed to match any benchmarks against regex: zzz"):
        parse.hold_against_errors("commscope", errors.read_text())


def test_a_failed_figure_names_its_statistic_and_its_nodes_last(tmp_path: Path):
    """Of a reference whose paper does not state the statistic."""
    slow = {"kind": "slow", "gpu": 3, "factor": 1.5}
    fields = only(session(tmp_path, "-n", "osu_gpu.*test=latency.*placement=gpu-a", fault=slow))
    bad = [fom for fom in fields["foms"] if fom["verdict"] == "fail"]
    assert bad and {fom["statistic"] for fom in bad} == {"median"}
    assert "(median of 1)" in fields["reason"] and "unstated" not in fields["reason"]
    assert re.search(rf"; measured on {re.escape(fields['nodes'][0])}$", fields["reason"])


def test_the_programs_words_where_its_output_is_missing(tmp_path: Path):
    run = SimpleNamespace(out="sample-0.out", err="sample-0.err")
    (tmp_path / run.err).write_text("plumbline-task 0 a 0 0 - - 0 -\nno space for a report\n")

    def read_run(run, ended):
        return (tmp_path / "sample-0.json").read_text()

    check = SimpleNamespace(
        stagedir=tmp_path,
        result=CaseResult(),
        read_stderr=list,
        read_ends=dict,
        runs=lambda: [run],
        read_run=read_run,
    )
    with pytest.raises(SanityError) as refusal:
        Benchmark.read_samples(check)
    told = "invalid: sample-0.json was not written: no space for a report"
    assert str(refusal.value) == told
