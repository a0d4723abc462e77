"""Duets: two sides of a test case in turns within one job, and what is concluded from them."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import records
from bench.compare import DUETS, Jobs, duets, lognormal, shares
from conftest import STANDINS, Done, Testbed, refused
from examples import headings, prints, shown
from hypothesis import given
from hypothesis import strategies as st
from plumbline.analysis import compare
from plumbline.analysis.compare import duet as comparing
from plumbline.analysis.compare import judge
from plumbline.check import duet, record
from plumbline.check.duet import Side
from plumbline.check.record import DUET, SIDES
from plumbline.core.errors import Fault
from plumbline.site.ended_jobs import Lost

PINGPONG = ["-n", "imb_p2p.*PingPong"]
OUTPUTS = STANDINS / "outputs"

# -- the turns ------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 5))
def test_a_drift_adds_as_much_to_both_sides(samples: int, layouts: int):
    turns = duet.order(samples, layouts)
    assert len(turns) == 2 * samples * layouts
    # Each layout of each sample once on each side, next to each other.
    assert all({*turns[n : n + 2]} == {"a", "b"} for n in range(0, len(turns), 2))
    if samples % 2 == 0:
        for layout in range(layouts):
            places = {"a": 0, "b": 0}
            for sample in range(samples):
                start = 2 * (sample * layouts + layout)
                for place in (start, start + 1):
                    places[turns[place]] += place
            assert places["a"] == places["b"]


class Job:
    """The script of a job with two sides, each of which notes its runs and its environment."""

    def __init__(self, folder: Path):
        self.folder = folder
        for side in "ab":
            (folder / side).mkdir()
        self.side("a")
        self.side("b")

    def side(self, side: str, runs: int = 4, fail_at: int = -1, before: str = "") -> None:
        """Write the script of a side, which fails in one of its runs."""
        lines = [
            "#!/bin/bash",
            before,
            f"export ONLY_{side.upper()}=1",
            f"for sample in $(seq 0 {runs - 1}); do",
            *duet.waiting(side),
            f'echo "{side} $sample ${{ONLY_A:-0}}${{ONLY_B:-0}}" >>../ran',
            f"status=0; [ $sample != {fail_at} ] || status=3",
            *duet.passing(side),
            "[ $status = 0 ] || exit $status",
            "done",
        ]
        name = duet.SCRIPT if side == "a" else "rfm_job.sh"
        script = self.folder / side / name
        script.write_text("\n".join(lines))
        script.chmod(0o755)

    def run(self) -> tuple[int, list[str]]:
        """Run the job, and return its exit code and the runs."""
        text = duet.script(["#!/bin/bash"], duet.order(4, 1), self.folder / "b")
        (self.folder / "a" / "rfm_job.sh").write_text(text)
        done = subprocess.run(
            ["bash", "rfm_job.sh"], cwd=self.folder / "a", timeout=60, check=False
        )
        ran = self.folder / "ran"
        return done.returncode, ran.read_text().splitlines() if ran.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_sides_take_turns_and_share_no_environment(job: Job):
    code, ran = job.run()
    assert code == 0
    assert ran == ["a 0 10", "b 0 01", "b 1 01", "a 1 10", "a 2 10", "b 2 01", "b 3 01", "a 3 10"]


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_run_that_fails_ends_the_job(job: Job, side: str):
    job.side(side, fail_at=1)
    code, ran = job.run()
    assert code == 3
    assert len(ran) in (4, 5) and ran[-1][0] in "ab"


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_side_that_ends_before_its_first_turn_ends_the_job(job: Job, side: str):
    job.side(side, before="exit 7")
    code, ran = job.run()
    assert code == 7
    assert all(line[0] != side for line in ran) and len(ran) <= 1


def test_a_side_with_too_few_runs_ends_the_job(job: Job):
    job.side("b", runs=2)
    code, ran = job.run()
    assert code == duet.STOPPED
    assert sum(line[0] == "b" for line in ran) == 2


# -- the sides ------------------------------------------------------------------------------------


def test_what_a_side_may_be(tmp_path: Path):
    assert Side.of("gnu-mpich").folder is None
    assert Side.of(f"gnu@{tmp_path}") == Side(f"gnu@{tmp_path}", "gnu", tmp_path.resolve())
    assert Side.of("gnu:n[1-2,7]").nodes == ("n1", "n2", "n7")
    assert str(Side.of(f"gnu@{tmp_path}:n1")) == f"gnu@{tmp_path}:n1"


@pytest.mark.parametrize("text", ["", "gnu@", "@/tmp", "gnu@/no/such/folder", "gnu:", "gnu:n[1-",
                                  "gnu:$(id)", "gnu:-w"])  # fmt: skip
def test_what_a_side_may_not_be(text: str):
    with pytest.raises(Fault) as err:
        Side.of(text)
    assert err.value.code == "input.wrong-option"


def outputs(folder: Path, factor: float) -> Path:
    """Captures of PingPong whose latencies and bandwidths are worse by a factor, and vary by less
    than a thousandth from run to run."""
    folder.mkdir()
    good = (OUTPUTS / "PingPong.out").read_text()
    chance = np.random.default_rng(1)
    for run in range(40):
        noise = factor * (1 + chance.normal(0, 0.0005))

        def scaled(found: re.Match, noise: float = noise) -> str:
            size, rounds, latency, _ = found.groups()
            time = round(10 * float(latency) * noise, 2)
            return f"{size}{rounds}{time:13.2f}{int(size) / time:13.2f}"

        text = re.sub(r"^( +\d+)( +\d+) +([\d.]+) +([\d.]+)$", scaled, good, flags=re.M)
        (folder / f"PingPong.{run}.out").write_text(text)
    return folder


class Bench:
    """A system with one MPI in three environments: one whose figures are 4 % worse."""

    def __init__(self, testbed: Testbed):
        self.bed = testbed
        good, slow = (
            outputs(testbed.folder / name, factor) for name, factor in (("g", 1), ("s", 1.04))
        )
        testbed.environment("good", "imb", good)
        testbed.environment("same", "imb", good)
        testbed.environment("slow", "imb", slow)

    def compare(self, first: str, second: str, *arguments: object) -> Done:
        return self.bed.plumbline("compare", "--duet", first, second, *arguments)

    def measure(self, first: str, second: str, *arguments: object) -> Done:
        few = ["--repeat=3", "--samples=2"]
        done = self.compare(first, second, *PINGPONG, *few, "--format=json", *arguments)
        self.printed = done.out
        return done

    @property
    def found(self) -> dict:
        """The comparison, which is alone on standard output."""
        return json.loads(self.printed)


@pytest.fixture(scope="module")
def bench(make_testbed: Callable[..., Testbed]) -> Bench:
    return Bench(make_testbed())


@pytest.fixture(scope="module")
def lost(bench: Bench) -> tuple[Done, dict]:
    """A duet with an environment that is slower, and the comparison."""
    done = bench.measure("good", "slow", "--samples=4")
    return done, bench.found


def test_a_loss_between_environments_is_a_no_go(lost: tuple[Done, dict]):
    done, found = lost
    assert done.code == 1, done.output
    assert found["verdict"] == "no-go"
    latency = [f for f in found["figures"] if f["metric"] == "pingpong_latency" and f["size"] == 8]
    assert [row["environment"] for row in latency] == ["good vs slow"]
    assert latency[0]["verdict"] == "regressed"
    assert latency[0]["low"] < 0.04 < latency[0]["high"]
    assert (latency[0]["n_before"], latency[0]["n_after"]) == (3, 3)


def test_each_side_is_a_record_of_its_own(lost: tuple[Done, dict]):
    done, _ = lost
    assert len(done.records) == 6
    sides = {(fields["extras"]["duet"], fields["environment"]) for fields in done.records}
    assert sides == {("a", "good"), ("b", "slow")}
    assert len({fields["case"] for fields in done.records}) == 6
    for fields in done.records:
        assert fields["result"] == "pass" and fields["samples"] == 4
        assert {"duet-a": "good", "duet-b": "slow"}.items() <= fields["extras"].items()
        folder = done.session / fields["output"]
        assert (folder / "sample-4.out").exists() and (folder / "rfm_job.sh").exists()
    # One job of each pair.
    assert len({fields["jobid"] for fields in done.records}) == 3


def test_the_two_sides_run_in_turns(lost: tuple[Done, dict]):
    done, _ = lost
    for number in range(3):
        ends = []
        for fields in done.records:
            if f"repeat_no={number}" in fields["check"]:
                for line in (done.session / fields["output"] / "samples.txt").open():
                    _, _, began, ended = line.split()
                    ends.append((float(began), float(ended), fields["extras"]["duet"]))
        ends.sort()
        assert "".join(side for *_, side in ends) == duet.order(5, 1)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(ends))


def test_a_plan_has_both_sides(lost: tuple[Done, dict]):
    done, _ = lost
    plan = json.loads((done.session / "plan.json").read_text())
    assert {fields["case"] for fields in done.records} == {*plan["cases"]}


def test_it_is_compared_again_from_the_records(bench: Bench, lost: tuple[Done, dict]):
    again = bench.compare("good", "slow", "--format=json")
    assert again.code == 1, again.output
    found = json.loads(again.out)
    assert [f["p"] for f in found["figures"]] == [f["p"] for f in lost[1]["figures"]]
    assert not again.sessions
    (example,) = headings(shown("compare.md", "updates"))
    assert prints(bench.compare("good", "slow").out, example)
    refused(bench.compare("slow", "good"), "history.nothing-selected")


def test_a_planned_case_without_a_record_prevents_a_go(bench: Bench):
    """One of three jobs: the others show no loss."""
    done = bench.measure("good", "same")
    path = done.session / "records.jsonl"
    before = path.read_text()
    path.write_text("".join(before.splitlines(keepends=True)[:-1]))
    try:
        again = bench.compare("good", "same", "--format=json")
    finally:
        path.write_text(before)
    assert again.code == 2, again.output
    found = json.loads(again.out)
    assert found["verdict"] == "not enough data"
    assert [one["results"] for one in found["unmeasured"]] == [{"no record": 1}]


def test_duets_are_in_no_series(bench: Bench, lost: tuple[Done, dict]):
    assert len(json.loads(bench.bed.plumbline("history", "list", "--format=json").out)) >= 1
    refused(bench.bed.plumbline("trend"), "history.nothing-selected")
    refused(bench.bed.plumbline("compare", lost[0].session.name, "last:1"))


def test_the_same_environment_against_itself_is_a_go(bench: Bench):
    partition = f"--system={bench.bed.name}:node"
    done = bench.measure("good", "good", "--samples=6", partition)
    assert done.code == 0, done.output
    assert bench.found["verdict"] == "go"
    assert {f["environment"] for f in bench.found["figures"]} == {"good"}
    assert len({fields["case"] for fields in done.records}) == len(done.records) == 6


def test_two_builds_of_one_environment(bench: Bench):
    """A folder with the program takes the place of what the environment has."""
    folders = []
    for name in ("old", "new"):
        folder = bench.bed.folder / name / "bin"
        folder.mkdir(parents=True)
        program = folder / "IMB-MPI1"
        program.write_text(f'#!/bin/sh\n# {name}\nexec {STANDINS}/IMB-MPI1 "$@"\n')
        program.chmod(0o755)
        folders.append(folder.parent)
    done = bench.measure(*(f"good@{folder}" for folder in folders))
    assert {fields["result"] for fields in done.records} == {"pass"}, done.output
    for fields in done.records:
        folder = folders["ab".index(fields["extras"]["duet"])]
        assert fields["build"]["path"] == str(folder / "bin" / "IMB-MPI1")
    changed = {change["what"] for change in bench.found["surroundings"]["builds"]}
    assert changed == {"imb @good: path", "imb @good: sha256"}


def test_a_build_without_the_program_is_not_measured(bench: Bench, tmp_path: Path):
    done = bench.measure("good", f"good@{tmp_path}")
    assert done.code == 2, done.output
    assert [(f["result"], f["code"]) for f in done.records] == [
        ("skip", "build.not-in-folder"),
    ] * 6


def test_a_side_that_fails_makes_both_invalid(bench: Bench):
    bench.bed.environment("broken", "imb", OUTPUTS, STANDIN_STATUS=3)
    done = bench.measure("good", "broken")
    assert done.code == 2, done.output
    found = {(f["environment"], f["result"], f["code"]) for f in done.records}
    assert found == {
        ("broken", "invalid", "output.exit-code"),
        ("good", "invalid", "duet.other-side-failed"),
    }
    assert any(": 0 jobs " in note for note in bench.found["notes"]), bench.found["notes"]


def test_a_job_that_the_scheduler_ends_is_an_error_of_both_sides(monkeypatch):
    error = Lost("Slurm reports TIMEOUT", "8")
    ended = SimpleNamespace(
        testcase=None, aborted=False, exc_info=(Lost, error, None),
        check=SimpleNamespace(_job=None, job=SimpleNamespace(jobid="8")),
    )  # fmt: skip
    failed = []
    other = SimpleNamespace(
        check=SimpleNamespace(), fail=failed.append,
        **dict.fromkeys(("skipped", "failed", "aborted", "xfailed"), False),
    )  # fmt: skip
    both = duet.Duet("good", "same")
    monkeypatch.setattr(duet, "key_of", lambda _: "key")
    both.others["key"] = both._tasks["key"] = other
    both.finish(ended)
    assert failed == [ended.exc_info]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--duet", "good", "none", *PINGPONG], "duet.no-case"),
        (["--duet", "good", "same", "--repeat=2"], "input.wrong-option"),
        (["--duet", "good:n1", "same", *PINGPONG], "input.wrong-option"),
        (["--duet", "good", "good@nowhere", *PINGPONG], "input.wrong-option"),
        (["--duet", "good", "good@nowhere"], "history.nothing-selected"),
        (["--duet", "good", "same", "--each-sample"], "input.wrong-option"),
        (["--duet", "good", "same", *PINGPONG, "--", "--dry-run"], "input.wrong-option"),
        (["last:1", "last:2", *PINGPONG], "input.wrong-option"),
        (["last:1", "last:2", "last:3"], "input.wrong-option"),
    ],
)
def test_what_cannot_be_compared_is_refused(bench: Bench, arguments: list[str], code: str):
    done = bench.bed.plumbline("compare", *arguments)
    assert done.code == 2 and code in done.codes, done.output
    assert not done.records


# -- the statistics -------------------------------------------------------------------------------


def test_a_loss_of_five_percent_is_found_where_half_of_the_variance_is_common():
    which = DUETS[0]
    assert (which.common, which.samples) == (0.5, 6)
    found, as_sessions = duets(which, 0.05, 4_000, 900)
    assert shares(found)[0] >= 0.9
    assert shares(as_sessions)[0] < 0.5


@pytest.mark.parametrize("which", DUETS, ids=lambda which: f"{which.name}-{which.samples}")
def test_a_healthy_figure_is_seldom_called_regressed(which: Jobs):
    found, _ = duets(which, 0.0, 8_000, 901)
    # Half of one percent in the worst row of docs/compare-power.md.
    assert shares(found)[0] <= (0.005 if which.apart or which.memory < 1 else 0.002)


def test_jobs_that_differ_by_more_than_their_runs_explain_are_not_conclusive():
    which = Jobs("all of the rest is of the job", apart=1.0)
    found, _ = duets(which, 0.05, 4_000, 902)
    assert shares(found)[0] < 0.5


def test_common_variation_cancels():
    chance = np.random.default_rng(3)
    common = chance.normal(0, 0.3, (1, 5, 6))
    own = chance.normal(0, 0.001, (2, 1, 5, 6))
    found = comparing.estimate(own[1] - own[0] + common - common, np.zeros(1))
    assert abs(found.difference[0]) < 0.002
    assert found.error[0] < 0.002


def test_a_single_bad_run_does_not_decide():
    pairs = lognormal(np.random.default_rng(4), (5, 6), 0.01)[None]
    clean = comparing.estimate(pairs, np.zeros(1))
    pairs = pairs.copy()
    pairs[0, 2, 3] = -3.0
    found = comparing.estimate(pairs, np.zeros(1))
    assert abs(found.difference[0] - clean.difference[0]) < 0.01


def test_two_jobs_are_too_few():
    found = comparing.estimate(np.zeros((1, 2, 6)), np.zeros(1))
    assert np.isnan(found.p[0])
    assert judge.LEAST == 3


def test_missing_pairs_and_jobs_are_left_out():
    pairs = lognormal(np.random.default_rng(5), (30, 6), 0.01).reshape(6, 5, 6)
    pairs[0, 1] = np.nan
    pairs[1, :3] = np.nan
    pairs[2, 4, 2:] = np.nan
    found = comparing.estimate(pairs, np.arange(6))
    assert np.isnan(found.p).tolist() == [False, True, False, False, False, False]
    whole = comparing.group_change(pairs, np.ones(6), found.noise, found.difference)
    assert abs(whole.difference) < 0.02 and whole.direction == 0


@pytest.mark.parametrize(("crashed", "verdict"), [(0, "go"), (1, "not enough data")])
def test_a_job_that_did_not_measure_prevents_a_go(crashed: int, verdict: str):
    """The other eight show no loss."""
    noise = np.random.default_rng(7).normal(0, 1e-3, (9, 2, 6))
    made = []
    for job, of_job in enumerate(noise):
        for side, samples in zip(SIDES, np.exp(of_job), strict=True):
            fields = {"check": f"imb_p2p %.repeat_no={job}", "extras": {DUET: side}}
            if job < crashed:
                fields |= {"foms": [], "result": "invalid", "reason": "the other side failed"}
            else:
                fields["foms"] = [records.figure(1.0, samples=samples.tolist())]
            made.append(record.validate(records.case("s", "2026-11-01T00:00:00Z", **fields)))
    found = comparing.of_records(made, compare.Rules())
    assert {row.verdict for row in found.rows} == {"unchanged"}
    assert found.verdict == verdict


def test_figures_that_move_together_are_a_change_of_the_whole():
    pairs = lognormal(np.random.default_rng(6), (100, 6), 0.02).reshape(20, 5, 6) - 0.03
    found = comparing.estimate(pairs, np.zeros(20))
    whole = comparing.group_change(pairs, np.ones(20), found.noise, found.difference)
    assert whole.direction == -1 and whole.low < -0.03 < whole.high
    mixed = np.where(np.arange(20) % 2, 1, -1)
    assert comparing.group_change(pairs, mixed, found.noise, found.difference).direction == 0
