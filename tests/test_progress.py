"""What a session says while it runs, the order of its cases, and what else runs on the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import SimpleNamespace as Given

import pytest
from conftest import CHECKS, Testbed, fault_of
from plumbline.check.result import CaseResult, _seconds
from plumbline.session import progress
from plumbline.session.session import Session
from plumbline.site import host_load
from reframe.core.exceptions import JobError


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch):
    """Has so many other processes run."""

    def set_to(others: float | str) -> None:
        monkeypatch.setenv(host_load.OTHERS, str(others))
        host_load._counts.cache_clear()

    yield set_to
    host_load._counts.cache_clear()


def case(name: str, limit: float | None, local: bool = True, deps: tuple = ()) -> Given:
    scheduler = Given(is_local=local)
    return Given(
        name=name,
        check=Given(time_limit=limit, local=False),
        partition=Given(scheduler=scheduler),
        deps=deps,
    )


def names(cases: list) -> str:
    return "".join(case.name for case in cases)


def test_short_ones_first() -> None:
    cases = [case("h", 660.0), case("b", 420.0), case("c", 420.0), case("a", 60.0)]
    assert names(progress.in_order(cases)) == "abch"


def test_a_scheduler_keeps_its_order() -> None:
    cases = [case("h", 660.0, local=False), case("a", 60.0, local=False)]
    assert names(progress.in_order(cases)) == "ha"
    for each in cases:
        each.check.local = True
    assert names(progress.in_order(cases)) == "ah"


def test_dependencies_keep_their_order() -> None:
    first = case("h", 660.0)
    assert names(progress.in_order([first, case("a", 60.0, deps=(first,))])) == "ha"


def test_the_rest_follows_what_the_first_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    a, b, c = (CaseResult(usual_seconds=seconds) for seconds in (10, 10, 6))
    cases = progress.Progress({"a": a, "b": b, "c": c})
    # Where the case runs, its check knew more of its size.
    c.usual_seconds = 60
    line = cases.starts("a", "first")
    assert "first" in line and re.findall(r"\d+", line) == ["1", "3", "80"] and line[-1] == "s"
    # Three times slower than estimated, of which one case in eight is evidence.
    now += 30
    line = cases.starts("b", "second")
    assert "second" in line and re.findall(r"\d+", line) == ["2", "3", "88"] and line[-1] == "s"
    now += 70
    line = cases.starts("c", "third")
    assert re.findall(r"\d+", line) == ["3", "3", "2"] and line[-3:] == "min"
    assert cases.starts("a", "a retry") == ""


def test_cases_that_are_estimated_to_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = progress.Progress({"a": CaseResult(usual_seconds=0)})
    assert re.findall(r"\d+", cases.starts("a", "first")) == ["1", "1", "1"]


@pytest.mark.parametrize(
    ("others", "wanted", "cores", "shared"),
    [(0, 2, 2, False), (0.4, 2, 2, False), (1, 2, 2, True), (10, 2, 64, False), (10, 64, 64, True)],
)
def test_when_cores_are_shared(busy, others, wanted, cores, shared) -> None:
    busy(others)
    assert host_load.shared(wanted, cores) is shared


@pytest.mark.parametrize("given", ["many", "-1", "nan", "inf", "1e3 "])
def test_others_that_are_no_number(busy, given: str) -> None:
    busy(given)
    fault_of(host_load.others, "input.wrong-option", given)


def test_who_runs_is_counted() -> None:
    assert host_load.running() >= 1


@pytest.mark.parametrize("found, expected", [
    ([11], 10),
    # After each case a brief count, and a whole one if something runs.
    ([11, 1], 10), ([11, 1, 1], 0), ([1, 1, 6, 11], 10), ([1, 6, 1], 0),
    ([None, None], 0),
])  # fmt: skip
def test_the_others_are_those_beside_this_process(busy, monkeypatch, found, expected) -> None:
    monkeypatch.delenv(host_load.OTHERS, raising=False)
    monkeypatch.setattr(host_load, "_RATE", 1)
    monkeypatch.setattr(host_load, "_SECONDS", 1)
    monkeypatch.setattr(host_load, "_BRIEF", 1)
    monkeypatch.setattr(host_load.time, "sleep", lambda seconds: None)
    left = [*found]
    monkeypatch.setattr(host_load, "running", lambda: left.pop(0))
    host_load._counts.cache_clear()
    host_load.others()
    while left:
        host_load.count_again()
    assert host_load.others() == expected


def task(local: bool, **durations: float) -> Given:
    return Given(
        check=Given(result=CaseResult(seconds=[2.0, 3.0]), local=False),
        testcase=Given(partition=Given(scheduler=Given(is_local=local))),
        duration=durations.get,
    )


def test_seconds_without_waiting() -> None:
    """ReFrame's total is from the set-up of all cases to the end of this one."""
    stages = {"total": 900.0, "setup": 1.0, "sanity": 0.5, "performance": 0.5}
    assert _seconds(task(True, run_complete=6.0, **stages))["total"] == 8.0
    # From submission on: ten minutes in the queue.
    assert _seconds(task(False, run_complete=606.0, **stages))["total"] == 7.0


PINGPONG = ["-n", "imb_p2p.*PingPong"]


@pytest.fixture(scope="module")
def bed(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A system with a reference that its stand-in does not meet."""
    testbed = make_testbed()
    testbed.environment("one", STANDIN_LOG=testbed.folder / "log")
    testbed.write(max_jobs=1)
    testbed.refer(
        {"id": "out", "toolchain": "one", "benchmark": "imb", "metric": "pingpong_latency",
         "placement": "on-socket", "message_size": 8, "value": 0.1, "unit": "us"}
    )  # fmt: skip
    assert testbed.plumbline("lint").code == 0
    return testbed


def test_an_idle_machine(bed: Testbed) -> None:
    """It says what starts, and hpcc is last."""
    selected = ["-n", "imb_p2p.*PingPong|hpcc|fio", "-S", "fio.size=8"]
    done = bed.plumbline("run", *selected, "-S", "num_samples=1", "-S", "num_warmups=0")
    assert done.code == 1
    assert not any("busy" in fields["conditions"] for fields in done.records)
    started = re.findall(r"^plumbline: (\d) of 4 starts: (\w+)", done.out, re.M)
    assert [number for number, _ in started] == ["1", "2", "3", "4"]
    assert started[-1][1] == "hpcc"
    assert "starts" not in bed.reframe("-c", CHECKS, "-l").out


def test_a_busy_machine_is_marked_and_not_red(bed: Testbed) -> None:
    done = bed.plumbline("run", *PINGPONG, PLUMBLINE_OTHERS=10)
    assert done.code == 0, done.output
    (fields,) = done.records
    assert fields["conditions"]["busy"] == "yes"
    assert (fields["samples"], fields["warmups"]) == (1, 0)
    assert {fom["verdict"] for fom in fields["foms"]} == {"not-asserted"}
    (fom,) = [f for f in fields["foms"] if (f["metric"], f["size"]) == ("pingpong_latency", 8)]
    assert "figure.busy" in fom["reason"]
    assert re.search(r"pingpong_latency_8 .* not compared \(busy\) +0 of", done.out)
    assert re.search(r"0 asserted \(0 failed\), 1 not compared, \d+ without", done.out)
    # IMB prints hundredths of MB/s.
    measured = {(fom["metric"], fom["size"]) for fom in fields["foms"]}
    assert ("pingpong_latency", 1) in measured and ("pingpong_bandwidth", 1) not in measured
    script = next(done.session.glob("output/**/rfm_job.sh")).read_text()
    assert "export MPIR_CVAR_ENABLE_HEAVY_YIELD=1" in script and "-iter_policy off" in script
    # Printed before the first case starts, and again at the end.
    assert done.out.count("10.0 ") == 2


def test_a_busy_machine_by_strict_rules_and_by_the_plain_command(bed: Testbed) -> None:
    strict = bed.plumbline("run", "--strict", *PINGPONG, PLUMBLINE_OTHERS=10)
    assert strict.code == 1
    (fault,) = strict.end["faults"]
    assert "imb_p2p" in fault and "1 figure" in fault
    plain = bed.reframe("-c", CHECKS, "-r", *PINGPONG, PLUMBLINE_OTHERS=10)
    assert (plain.code, plain.end["faults"]) == (0, [])


#: Partitions whose jobs run on this machine, and elsewhere: what matters of them here.
HERE, ELSEWHERE = (
    Given(scheduler=Given(is_local=local), launcher_type=Given(registered_name="mpiexec"))
    for local in (True, False)
)


@pytest.mark.parametrize(
    ("load_now", "partition", "notes"), [(50.0, HERE, 1), (0.1, HERE, 0), (50.0, ELSEWHERE, 0)]
)
@pytest.mark.parametrize("error", ["job timed out (61.000000s > 60.0s)", "something else"])
def test_the_load_at_a_time_out(
    monkeypatch: pytest.MonkeyPatch, load_now: float, partition: Given, notes: int, error: str
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load_now, 0.0, 0.0))
    ended = Session("name", dry_run=False, extras={})
    monkeypatch.setattr(ended, "keep", lambda task, result: None)
    check = Given(display_name="hpcc", local=False)
    ended.on_task_failure(
        Given(
            failed_stage="run",
            exc_info=(None, JobError(error), None),
            check=check,
            testcase=Given(partition=partition),
        )
    )
    assert len(ended.notes) == (notes if "timed out" in error else 0)
    assert all("hpcc" in note and "50.0" in note for note in ended.notes)


@pytest.mark.parametrize(
    ("scheduler", "launcher", "here"),
    [
        (True, "local", True),
        (True, "mpiexec", True),
        (True, "hydra", True),
        (True, "openmpi", True),
        # Theta: its scheduler has no backend, and aprun takes tasks to compute nodes.
        (True, "alps", False),
        (True, "srun", False),
        (False, "mpiexec", False),
    ],
)
def test_whose_load_matters(scheduler: bool, launcher: str, here: bool) -> None:
    partition = Given(
        scheduler=Given(is_local=scheduler), launcher_type=Given(registered_name=launcher)
    )
    assert host_load.is_here(Given(local=False), partition) is here
    # ReFrame starts a check with `local` by itself.
    assert host_load.is_here(Given(local=True), partition)


def test_a_machine_that_becomes_busy(bed: Testbed) -> None:
    """Others begin while a case runs, which is marked."""
    log = bed.folder / "log"
    log.unlink(missing_ok=True)
    hook = bed.folder / "late" / "sitecustomize.py"
    hook.parent.mkdir()
    hook.write_text(
        "import os, sys\n"
        "if 'plumbline' in sys.argv[0]:\n"
        "    from plumbline.site import host_load\n"
        f"    host_load.running = lambda: 11 if os.path.exists({str(log)!r}) else 1\n"
    )
    selected = [*PINGPONG, "-S", "num_samples=2"]
    done = bed.plumbline("run", *selected, PLUMBLINE_OTHERS="", PYTHONPATH=hook.parent)
    assert done.code == 0, done.output
    (fields,) = done.records
    assert (fields["conditions"].get("busy"), fields["samples"]) == ("yes", 2)
    assert {fom["verdict"] for fom in fields["foms"]} == {"not-asserted"}
    assert "figure.busy" in done.codes and done.out.count("10.0 ") == 2
