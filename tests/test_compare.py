"""`plumbline compare`: before and after, by sessions written here."""

from __future__ import annotations

import re
from pathlib import Path

import junitparser
import numpy as np
import pytest
from labs import (
    BUILD,
    FIRST,
    Lab,
    fom,
    lab_,  # noqa: F401 - a fixture
    rows_of,
    unwrapped,
    wild,
)
from plumbline.analysis.compare import formats, sides
from records import plan

# -- verdicts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "factor", "verdict", "whole", "code"),
    [
        ("higher", 1.0, "unchanged", "go", 0),
        ("higher", 0.94, "regressed", "no-go", 1),
        ("higher", 1.06, "improved", "go", 0),
        ("lower", 1.06, "regressed", "no-go", 1),
        ("lower", 0.94, "improved", "go", 0),
        ("neither", 0.94, "changed", "not enough data", 2),
        ("neither", 1.06, "changed", "not enough data", 2),
        ("neither", 1.0, "unchanged", "go", 0),
    ],
)
def test_a_verdict_knows_which_way_is_better(lab: Lab, better, factor, verdict, whole, code):
    lab.nights(range(1, 6), 1000, better=better)
    lab.nights(range(6, 11), 1000 * factor, better=better)
    found = lab.json()
    (row,) = found["figures"]
    assert (row["verdict"], found["verdict"], found["exit_code"]) == (verdict, whole, code)
    assert row["low"] < factor - 1 < row["high"]
    assert row["median_after"] / row["median_before"] == pytest.approx(factor, rel=0.01)
    assert (row["n_before"], row["n_after"]) == (5, 5)
    assert 0 < row["detectable"] < 0.03


def test_the_other_way_round_it_is_an_improvement(lab: Lab):
    lab.nights(range(1, 6), 1000)
    lab.nights(range(6, 11), 940)
    there, back = lab.figure(), lab.figure(before="2026-11-06..", after="..2026-11-05")
    assert (there["verdict"], back["verdict"]) == ("regressed", "improved")
    assert (1 + there["difference"]) * (1 + back["difference"]) == pytest.approx(1)


def test_a_difference_below_the_minimum_effect_counts_as_unchanged(lab: Lab):
    """However significant it is."""
    lab.nights(range(1, 6), 1000)
    lab.nights(range(6, 11), 965)
    assert lab.figure("--min-effect=2")["verdict"] == "regressed"
    row = lab.figure("--min-effect=5")
    assert row["verdict"] == "unchanged" and row["p"] < 1e-3


def test_noise_that_could_hide_a_loss_is_too_little_data(lab: Lab):
    for day in range(1, 11):
        lab.session(day, {"foms": [fom(wild(day))]})
    found = lab.json()
    (row,) = found["figures"]
    assert (row["verdict"], found["verdict"], found["exit_code"]) == (
        *("too little data", "not enough data", 2),
    )
    assert row["needed"] > 5 and row["detectable"] > 0.05
    assert row["needed"] > formats.FEASIBLE
    assert f" {formats.FEASIBLE} " in lab.compare().out
    assert lab.json("--equivalence-margin=80")["verdict"] == "go"


def test_figures_that_need_more_sessions_are_one_line(lab: Lab):
    for day in range(1, 11):
        off = 3 if day % 2 else -3
        foms = [fom(100 + scale * off, metric=f"m{scale}") for scale in (1, 2, 9)]
        lab.session(day, {"foms": foms})
    needed = [row["needed"] for row in lab.json()["figures"] if row["needed"]]
    assert min(needed) < formats.FEASIBLE < max(needed)
    lines = unwrapped(lab.compare().out).splitlines()
    (line,) = [line for line in lines if f"; {min(needed)} " in line]
    assert f" {formats.FEASIBLE} " in line
    row = lab.figure("--metric=m2")
    assert 5 < row["needed"] < formats.FEASIBLE
    assert f"; {row['needed']} " in unwrapped(lab.compare("--metric=m2").out)


def test_allow_inconclusive_is_a_share_of_the_figures(lab: Lab):
    for day in range(1, 11):
        foms = [fom(lab.noisy(100), size=n) for n in range(4)]
        lab.session(day, {"foms": [*foms, fom(wild(day), metric="wild")]})
    assert lab.json()["verdict"] == "not enough data"
    assert lab.json("--allow-inconclusive=10")["verdict"] == "not enough data"
    assert lab.json("--allow-inconclusive=20")["verdict"] == "go"


def test_two_sessions_are_too_few(lab: Lab):
    """And the figures with this reason share a line, which has no number of sessions."""
    for day in range(4, 11):
        level = 1000 if day < 6 else 500
        lab.session(day, {"foms": [fom(lab.noisy(level), size=n) for n in range(30)]})
    found = lab.json()
    assert {row["verdict"] for row in found["figures"]} == {"too little data"}
    assert {row["p"] for row in found["figures"]} == {None}
    assert {row["needed"] for row in found["figures"]} == {0}
    reason = found["figures"][0]["reason"]
    (line,) = [line for line in lab.compare().out.splitlines() if reason in line]
    assert " 27 more" in line and line.endswith(reason)


# -- what counts ----------------------------------------------------------------------------


def test_a_session_counts_once(lab: Lab):
    """Three cases of one session share its hour: they are no three sessions."""
    for day in range(1, 11):
        level = wild(day)
        lab.session(day, *({"case": f"{n}", "foms": [fom(level + n)]} for n in (1, 0, -50)))
    row = lab.figure()
    assert (row["n_before"], row["n_after"]) == (5, 5)
    assert (row["median_before"], row["median_after"]) == (wild(1), wild(2))
    assert row["verdict"] == "too little data"
    each = lab.json("--each-sample")
    assert each["figures"][0]["n_before"] == 15
    assert len(each["notes"]) == len(lab.json()["notes"]) + 1


def test_a_retry_does_not_replace_the_first_attempt(lab: Lab):
    lab.nights(range(1, 6), 1000)
    for day in range(6, 11):
        retry = {"foms": [fom(lab.noisy(1000))], "attempt": 1}
        lab.session(day, {"foms": [fom(lab.noisy(900))], "result": "fail"}, retry)
    found = lab.json()
    assert found["figures"][0]["verdict"] == "regressed"
    (note,) = found["notes"]
    assert note.startswith("5 ")


def test_figures_outside_their_bounds_are_reported(lab: Lab):
    lab.nights(range(1, 6), 1000)
    lab.nights(range(6, 11), 1000, verdict="fail")
    row = lab.figure()
    assert (row["failed_before"], row["failed_after"]) == (0, 5)
    assert re.search(r"outside its bounds\D* 5 ", lab.compare().out)


def test_a_check_that_vanished_prevents_a_go(lab: Lab):
    """A check that no longer runs after the maintenance is a finding, with its reason."""
    for day in range(1, 11):
        other = {"check": "ior", "foms": [fom(lab.noisy(50), metric="write")]}
        skip = {"check": "ior", "result": "skip", "reason": "ior is not on PATH"}
        case = {"foms": [fom(lab.noisy(1000))]}
        lab.session(day, case, other if day < 6 else skip)
    found = lab.json()
    assert (found["verdict"], found["exit_code"]) == ("not enough data", 2)
    assert found["counts"]["only before"] == 1
    (case,) = found["unmeasured"]
    assert case["results"] == {"skip": 5} and case["before"] == 0
    assert case["reason"] == "ior is not on PATH" and case["reason"] in lab.compare().out
    backwards = lab.json(before="2026-11-06..", after="..2026-11-05")
    assert backwards["counts"]["only after"] == 1 and backwards["verdict"] == "go"


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(0, 1, "not enough data"), (1, 1, "go"), (2, 1, "go")]
)
def test_crashes_after_prevent_a_go(lab: Lab, before: int, after: int, verdict: str):
    """Of six sessions a side, so many crashed, and the others measured no loss."""
    for day in range(1, 13):
        crashed = day <= before or 6 < day <= 6 + after
        crash = {"foms": [], "result": "error", "reason": "srun: error: node failure"}
        stable = {"check": "ior", "foms": [fom(lab.noisy(50), metric="write")]}
        lab.session(day, stable, crash if crashed else {"foms": [fom(lab.noisy(1000))]})
    found = lab.json(before="..2026-11-06", after="2026-11-07..")
    assert {row["verdict"] for row in found["figures"]} == {"unchanged"}
    assert (found["verdict"], found["exit_code"]) == (verdict, 0 if verdict == "go" else 2)


def lose(lab: Lab, days: set[int], ended: bool) -> None:
    """Writes ten nights of two planned cases; on some days one has no record."""
    for day in range(1, 11):
        ior = {"check": "ior", "benchmark": "io", "foms": [fom(lab.noisy(50), metric="write")]}
        cases = [{"foms": [fom(lab.noisy(1000))]}, *([] if day in days else [ior])]
        folder = lab.results / "sessions" / lab.session(day, *cases)
        planned = plan(folder.name, ["imb_p2p @hill:cpu+gnu", "ior @hill:cpu+gnu"])
        (folder / "plan.json").write_text(planned)
        if ended:
            (folder / "end.json").write_text('{"code": 0, "notes": [], "faults": []}')


@pytest.mark.parametrize(
    ("days", "ended", "verdict"),
    [
        ({6, 7}, True, "not enough data"),
        ({6, 7}, False, "not enough data"),
        ({1, 2, 6, 7}, True, "go"),
        # It may still measure in those before, which have no end.
        ({1, 2, 6, 7}, False, "not enough data"),
        ({1, 2}, True, "go"),
    ],
)
def test_a_planned_case_without_a_record_did_not_measure(lab: Lab, days, ended, verdict):
    lose(lab, days, ended)
    found = lab.json()
    assert found["verdict"] == verdict
    results = [(case["case"], case["results"]) for case in found["unmeasured"]]
    assert results == ([("ior @hill:cpu+gnu", {"no record": 2})] if 6 in days else [])


def test_a_selection_has_its_planned_cases(lab: Lab, tmp_path: Path):
    """Also those of sessions that recorded nothing else of it. A CSV file has none."""
    lose(lab, {6, 7}, ended=True)
    for option in ("--check=ior", "--benchmark=io", "--metric=write"):
        found = lab.json(option)
        assert (found["verdict"], len(found["after"])) == ("not enough data", 5), option
    assert lab.json("--check=imb_p2p")["verdict"] == "go"
    path = tmp_path / "history.csv"
    path.write_text(lab.plumbline("history", "export").out)
    assert lab.json(f"--from={path}")["unmeasured"] == []


#: Sessions before and after, each with the results of a test case in it -> whether it was lost
#: more often after.
LOST = [
    ([["pass"]] * 5, [["pass"]] * 4 + [["error"]], True),
    ([["pass"]] * 4 + [["error"]], [["pass"]] * 4 + [["error"]], False),
    # A session counts once, with what was repeated in it.
    ([["error", "error", "error"], *[["pass"]] * 7], [["error"]] * 3 + [["pass"]] * 5, True),
    ([["error"], *[["pass"]] * 4], [["error", "error", "error"], *[["pass"]] * 4], False),
    # Sessions without the case do not count.
    ([[]] * 100 + [["pass"]] * 4 + [["error"]], [["pass"]] * 4 + [["error"]], False),
    # It never measured before, or is new.
    ([["skip"]] * 3, [["skip"]] * 5, False),
    ([[]] * 3, [["error"], ["pass"]], False),
]


@pytest.mark.parametrize(("before", "after", "more_often"), LOST)
def test_what_was_lost_more_often(before: list, after: list, more_often: bool):
    cases = [
        ("ior @hill:cpu+gnu", side, f"{side}{number}", result, None)
        for side, sessions in (("before", before), ("after", after))
        for number, results in enumerate(sessions)
        for result in results
    ]
    (found,) = sides.unmeasured(cases)
    assert found.more_often == more_often
    assert found.after == sum("error" in of or "skip" in of for of in after)


def test_a_duet_is_no_session(lab: Lab):
    lab.nights(range(1, 11), 1000)
    duet = {"duet": "b", "duet-a": "gnu", "duet-b": "other"}
    lab.session(12, {"foms": [], "result": "invalid", "reason": "it crashed"}, **duet)
    found = lab.json()
    assert (len(found["after"]), found["verdict"], found["unmeasured"]) == (5, "go", [])


def test_a_regression_outweighs_what_vanished(lab: Lab):
    for day in range(1, 11):
        gone = [fom(100, metric="gone")] if day < 6 else []
        lab.session(day, {"foms": [fom(lab.noisy(1000 if day < 6 else 900)), *gone]})
    assert lab.json()["exit_code"] == 1


@pytest.mark.parametrize(
    ("units", "level"), [(("MB/s", "GB/s"), 0.1), (("MBytes/sec", "MB/s"), 100.0)]
)
def test_a_figure_that_changes_its_unit_is_compared(lab: Lab, units: tuple[str, str], level: float):
    lab.nights(range(1, 6), 100.0, unit=units[0])
    lab.nights(range(6, 11), level, unit=units[1])
    found = lab.json()
    assert found["verdict"] == "go"
    (row,) = found["figures"]
    assert (row["verdict"], row["unit"]) == ("unchanged", units[1])
    assert row["median_before"] == pytest.approx(level, rel=0.05)


def test_no_go_if_a_unit_cannot_be_converted(lab: Lab):
    """In every format, as in the exit code."""
    for day in range(1, 11):
        other = fom(100.0, metric="rate", unit="GB/s" if day < 6 else "operation/s")
        lab.session(day, {"foms": [fom(lab.noisy(1000)), other]})
    found = lab.json()
    assert (found["verdict"], found["exit_code"]) == ("not enough data", 2)
    assert {row["metric"]: row["verdict"] for row in found["figures"]} == {
        "bandwidth": "unchanged", "rate": "only after"}  # fmt: skip
    done = lab.compare("--format=junit")
    assert (done.code, done.codes) == (2, ["history.damaged"])
    (suite,) = junitparser.JUnitXml.fromstring(done.out)
    (result,) = next(case for case in suite if case.name == "verdict").result
    assert isinstance(result, junitparser.Skipped)


@pytest.mark.parametrize(("far", "verdict"), [((8,), "unchanged"), ((7, 8), "too little data")])
def test_one_session_far_off_is_set_aside_and_two_are_not(lab: Lab, far, verdict):
    """Where the noise is well known from the past."""
    lab.nights(range(-40, 11), lambda day: 600 if day in far else 1000)
    row = lab.figure(before=FIRST)
    assert row["verdict"] == verdict
    aside = ["20261108"] if len(far) == 1 else []
    assert [name[:8] for name in row["aside"]] == aside
    (cells,) = rows_of(lab.compare("--format=csv", before=FIRST))
    assert cells["aside"] == " ".join(row["aside"])


def test_the_past_gives_noise_and_level(lab: Lab):
    """A loss that five sessions a side cannot show; unless BEFORE has a past that agrees."""
    lab.nights(range(-40, 6), 1000, noise=0.02)
    lab.nights(range(6, 11), 950, noise=0.02)
    alone, known = lab.figure("--no-past", before=FIRST), lab.figure(before=FIRST)
    assert (alone["n_past"], known["n_past"] >= 30) == (0, True)
    assert known["detectable"] < 0.055 < alone["detectable"]
    assert known["verdict"] == "regressed"


@pytest.mark.parametrize(
    ("level", "n_past"),
    [
        # Another level until five days before.
        (lambda day: 1200 if day < -5 else 1000, 0),
        # Three nights of a transient.
        (lambda day: 900 if -20 <= day < -17 else 1000, 41 - 3),
        # The last night before is far off; it is not confirmed, so no change.
        (lambda day: 800 if day == 0 else 1000, 41),
    ],
)
def test_the_past_that_counts(lab: Lab, level, n_past: int):
    lab.nights(range(-40, 11), level)
    row = lab.figure(before=FIRST)
    assert (row["n_past"], row["verdict"]) == (n_past, "unchanged")


def test_a_past_of_another_build_does_not_count(lab: Lab):
    for day in range(-40, 11):
        build = BUILD | {"mpi": "mpich 4.1"} if day < 1 else BUILD
        lab.session(day, {"foms": [fom(lab.noisy(1000))], "build": build})
    assert lab.figure(before=FIRST)["n_past"] == 0


def test_figures_of_small_benchmarks_share_their_noise(lab: Lab):
    """Five of each benchmark are too few; twenty-five of all are not."""
    for day in range(1, 11):
        lab.session(day, *(
            {"benchmark": f"b{n}", "check": f"c{n}",
             "foms": [fom(lab.noisy(100, 0.02), size=size) for size in range(5)]}
            for n in range(5)
        ))  # fmt: skip
    together = [row["noise"] for row in lab.json()["figures"]]
    apart = [row["noise"] for n in range(5) for row in lab.json(f"--benchmark=b{n}")["figures"]]
    assert len(together) == len(apart) == 25
    assert np.std(np.log(together)) < np.std(np.log(apart)) / 2


def test_what_moved_in_some_sessions_only_is_too_little_data(lab: Lab):
    lab.nights(range(-40, 14), lambda day: 1000 if day < 9 else 930)
    row = lab.figure(before=FIRST)
    assert row["verdict"] == "too little data" and row["reason"]


# -- the two sides --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2026-11-01..2026-11-05", "2026-11-06..2026-11-10"),
        ("..2026-11-05T12:00", "2026-11-05T12:00.."),
        ("2026110*", "last:1"),
        ("2026110[1-5]*", "last:5"),
        ("20261101T*,20261102T*,20261103T*", "maintenance=2026-11"),
        ("maintenance=2026-10", "maintenance=*-11,kind=short"),
    ],
)
def test_the_ways_to_select_a_side(lab: Lab, before: str, after: str):
    for day in range(1, 11):
        month = "2026-10" if day < 6 else "2026-11"
        lab.session(day, {"foms": [fom(lab.noisy(1))]}, maintenance=month, kind="short")
    found = lab.json(before=before, after=after)
    days = [[int(name[6:8]) for name in found[side]] for side in ("before", "after")]
    last = {"last:1": 1}.get(after, 5)
    first = {"2026110*": 9, "20261101T*,20261102T*,20261103T*": 3}.get(before, 5)
    assert days == [list(range(1, first + 1)), list(range(11 - last, 11))]


@pytest.mark.parametrize(
    ("before", "after", "code", "word"),
    [
        ("20261101T020000Z-1", "last:1", "history.unknown-session", "20261101T020000Z-0001f5"),
        ("rubbish", "last:1", "history.unknown-session", "7 older, 20261108T"),
        ("last:11", "last:1", "input.wrong-option", "1 to 10"),
        ("last:0", "last:1", "input.wrong-option", "1 to 10"),
        ("lst:5", "last:1", "history.unknown-session", "last:5"),
        ("2026-11-04", "last:1", "history.unknown-session", "2026-11-04..2026-11-04"),
        ("last:x", "last:1", "input.wrong-option", "BEFORE"),
        ("last:5", "last:3", "history.shared-sessions", "..2026-11-08T02:01"),
        ("2027-01-01..", "last:1", "history.unknown-session", "BEFORE"),
        ("2026-11-09..2026-11-01", "last:1", "input.wrong-option", "BEFORE"),
        ("maintenance=", "last:1", "history.unknown-session", "BEFORE"),
        ("maintenance=*", "last:1", "history.unknown-session", "BEFORE"),
        ("2026-11-31..", "last:1", "input.wrong-option", "'2026-11-31'"),
        ("last:1", "maintenance=none", "history.unknown-session", "AFTER"),
        ("maintenance=x,y", "last:1", "input.wrong-option", "'y'"),
        ("", "last:1", "history.unknown-session", "BEFORE"),
    ],
)
def test_a_wrong_side_is_refused(lab: Lab, before: str, after: str, code: str, word: str):
    lab.nights(range(1, 11), 1000)
    done = lab.compare(before=before, after=after)
    assert (done.code, done.out, done.codes) == (2, "", [code])
    assert word in done.err


@pytest.mark.parametrize("ended", [False, True])
def test_a_session_that_still_runs_is_not_the_newest(lab: Lab, ended: bool):
    """Two cases are planned, and one has a record; once there is an end, it counts."""
    lab.nights(range(1, 12), 1000)
    newest = max(lab.results.glob("sessions/*"))
    planned = plan(newest.name, ["imb_p2p @hill:cpu+gnu", "another"])
    (newest / "plan.json").write_text(planned)
    if ended:
        (newest / "end.json").write_text('{"code": 0, "notes": [], "faults": []}')
    found = lab.json(after="last:5")
    assert (newest.name in found["after"]) is ended
    assert len(found["after"]) == 5
    assert any(newest.name in note for note in found["notes"]) is not ended
    assert newest.name in lab.json(after="2026-11-06..")["after"]


def test_a_history_without_sessions_is_refused(tmp_path: Path):
    done = Lab(tmp_path / "none").compare()
    assert (done.code, done.codes) == (2, ["history.not-found"])


def test_a_margin_below_the_minimum_effect_is_refused(lab: Lab):
    lab.nights(range(1, 11), 1000)
    done = lab.compare("--min-effect=3", "--equivalence-margin=2")
    assert (done.code, done.codes) == (2, ["input.wrong-option"])


def test_a_selection_narrows_it(lab: Lab):
    for day in range(1, 11):
        foms = [fom(lab.noisy(1000)), fom(lab.noisy(1000 if day < 6 else 500), metric="latency")]
        lab.session(day, {"foms": foms})
    assert lab.compare().code == 1
    assert lab.compare("--metric=bandwidth").code == 0
    assert lab.compare("--metric=nothing").code == 2


def test_a_broken_line_is_reported_and_prevents_a_go(lab: Lab):
    lab.nights(range(1, 11), 1000)
    path = sorted(lab.results.glob("sessions/*/records.jsonl"))[0]
    path.write_text(path.read_text() + '{"schema": 3, "ses')
    done = lab.compare()
    assert (done.code, done.codes) == (2, ["history.damaged"])
    assert "records.jsonl:2" in done.err


def test_a_csv_of_the_history_is_read_too(lab: Lab, tmp_path: Path):
    lab.nights(range(1, 6), 1000)
    lab.nights(range(6, 11), 900)
    there = lab.plumbline("history", "export")
    assert there.code == 0, there.output
    path = tmp_path / "history.csv"
    path.write_text(there.out)
    found = lab.json(f"--from={path}")
    assert found["figures"] == lab.json()["figures"]
    assert found["surroundings"] is None and "CSV" in found["notes"][0]
