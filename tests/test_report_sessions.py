"""Sessions in the report: repeats, retries, and those that run, were cut off, or are ahead."""

from __future__ import annotations

import os
import re
from pathlib import Path

import demo_history
import numpy as np
import pytest
from conftest import asked
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.output.report import figures, session_pages, status, text
from report_states import FAILS, PASSES, count, state, write_inventory
from reports import (
    DAY,
    NOW,
    SLOW,
    assert_links_resolve,
    notes,
    one,
    report_page,
    sessions_of,
    shown,
    write,
)


def test_a_check_run_by_hand_does_not_hide_what_the_night_found(tmp_path):
    folder = sessions_of(
        tmp_path, [{"check": "slow", "figures": [SLOW]}, {"check": "well"}], [{"check": "well"}]
    )
    (red,) = state(folder).red
    assert (red.check, red.late, red.sessions) == ("slow", True, 1)
    assert "late" in notes(report_page(folder))


def test_a_case_that_passes_again_is_red_no_longer(tmp_path):
    assert state(sessions_of(tmp_path, [{"figures": [SLOW]}], [{}])).red == []


@pytest.mark.parametrize("name", ["a*b", "a?b", "x[1]", "[*]"])
def test_a_system_is_selected_by_its_exact_name(name, tmp_path):
    folder = sessions_of(tmp_path, [{"system": name}, {"system": "axb", "check": "other"}])
    with History(folder) as history:
        found = history.cases(Selection(system=status.literal(name)))
    assert [case.system for case in found] == [name]


def test_attempts_of_one_case_count_once(tmp_path):
    """On the page of an old red session, which has only the red cases."""
    failed = [{"figures": [SLOW], "attempt": attempt, "result": "fail"} for attempt in range(4)]
    sessions = [[*failed, {"check": "well"}], *[[{"check": "well"}]] * 3]
    page = report_page(sessions_of(tmp_path, *sessions), "sessions/*000000*.html", latest=1)
    assert "1 more test case" in page.read_text()


def test_a_retry_does_not_replace_the_first_verdict(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}, {"attempt": 1}])
    assert [case.status for case in state(folder).cases] == ["fail"]
    # Nor does its value, on the page of the check and in a CSV file of the history.
    with History(folder) as history:
        (series,) = history.series()
    (panel,) = figures.grouped([series], {})
    assert (panel.verdict, panel.latest) == ("fail", SLOW["value"])
    path = tmp_path / "all.csv"
    assert asked("history", "export", "--from", folder, "-o", path).code == 0
    (case,) = state(folder, source=path).cases
    assert [(finding.verdict, finding.value) for finding in case.findings] == [
        ("fail", SLOW["value"])
    ]


@pytest.mark.parametrize("repeats", [[PASSES, FAILS], [FAILS, PASSES]])
def test_the_worst_repeat_counts(tmp_path, repeats):
    folder = sessions_of(tmp_path, repeats)
    (case,) = state(folder).cases
    assert (case.check, case.status, len(case.findings)) == ("stream", "fail", 1)
    assert count(shown(report_page(folder), "red")) == 1


def test_a_repeated_case_has_what_any_repeat_found(tmp_path):
    copy, worse = SLOW | {"metric": "copy"}, SLOW | {"value": 150.0}
    repeats = [FAILS, FAILS | {"figures": [copy, worse], "nodes": ["n2"]}, PASSES]
    repeats = [one | {"check": f"stream %.repeat_no={n}"} for n, one in enumerate(repeats)]
    (case,) = state(sessions_of(tmp_path, repeats)).red
    found = {one.identity[0]: one.value for one in case.findings}
    assert found == {"copy": 200.0, "triad": 150.0} and len(case.findings) == 2
    assert case.nodes == [*demo_history.NODES[:2], "n2"]


def test_repeats_are_one_session_of_those_that_are_red(tmp_path):
    (red,) = state(sessions_of(tmp_path, [PASSES], *[[FAILS, PASSES]] * 2)).red
    assert (str(red.since), red.sessions) == ("2025-11-20T01:00:00", 2)


def test_a_case_is_red_since_the_last_break(tmp_path):
    slow = [{"figures": [SLOW]}]
    (red,) = state(sessions_of(tmp_path, slow, [{}], slow, slow)).red
    assert (str(red.since), red.sessions) == ("2025-11-20T02:00:00", 2)


def set_date(folder: Path, sessions: slice, date: str) -> None:
    """Moves the results of some sessions to another date."""
    for session in sorted((folder / "sessions").iterdir())[sessions]:
        records = session / "records.jsonl"
        records.write_text(records.read_text().replace("2025-11-20T", f"{date}T"))


def test_a_case_of_the_inventory_that_no_session_has_was_never_run(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    write_inventory(folder, "stream", "gone")
    assert [case.check for case in state(folder).skipped] == ["gone"]
    assert count(shown(report_page(folder), "skipped")) == 1


@pytest.mark.parametrize(
    "select", [{"check": "stream"}, {"since": NOW}, {"placement": "all-cores"}]
)
def test_what_was_not_selected_is_not_called_never_run(select, tmp_path):
    folder = sessions_of(tmp_path, [{}])
    write_inventory(folder, "stream", "gone")
    assert state(folder, Selection(**select)).skipped == []


def test_a_case_of_the_inventory_that_one_session_had_is_red(tmp_path):
    folder = sessions_of(tmp_path, [{"check": "old"}, {}], [{}])
    write_inventory(folder, "old")
    set_date(folder, slice(1), "2025-11-02")
    assert [case.check for case in state(folder).red] == ["old"]


def test_a_case_that_sessions_had_and_the_last_week_lacks_is_red(tmp_path):
    folder = sessions_of(tmp_path, *([[{"check": "old"}, {}]] * 3), [{}])
    set_date(folder, slice(3), "2025-11-02")
    assert [(case.check, case.status) for case in state(folder).red] == [("old", "vanished")]


def test_a_session_that_is_old_cut_off_or_of_the_future_has_a_banner(tmp_path):
    folder = sessions_of(tmp_path, [{}], planned=3)
    states = {"old", "cut-off", "running", "in-the-future"}
    for passed, expected in ((5, {"old", "cut-off"}), (0, {"running"}), (-2, {"in-the-future"})):
        found = notes(report_page(folder, now=NOW + passed * DAY)) & states
        assert found - {"running"} == expected - {"running"}


def test_a_session_of_the_future_hides_nothing(tmp_path):
    slow, ahead = {"check": "slow", "figures": [SLOW]}, {"check": "ahead", "figures": [SLOW]}
    folder = sessions_of(tmp_path, *[[{"check": "gone"}, slow]] * 3, [slow], [{**slow, "figures": [
        SLOW | {"value": 300.0}]}, ahead], [{"check": "well"}])  # fmt: skip
    set_date(folder, slice(3), "2025-11-02")
    set_date(folder, slice(4, 5), "2027-11-20")
    found = state(folder)
    assert {case.check: (case.status, case.sessions) for case in found.red} == {
        "slow": ("fail", 4), "ahead": ("fail", 0), "gone": ("vanished", 0),
    }  # fmt: skip
    assert [row.session for row in found.ahead] == [sorted(
        path.name for path in (folder / "sessions").iterdir())[4]]  # fmt: skip
    assert found.latest.end == np.datetime64("2025-11-20T05:00:00")
    assert notes(report_page(folder)) & {"in-the-future", "old"} == {"in-the-future"}


def test_a_session_that_still_runs_makes_nothing_red(tmp_path):
    night = [{"check": "slow"}, {"check": "well"}, {"check": "well", "attempt": 1}]
    folder = sessions_of(tmp_path, *([night] * 4))
    running = max((folder / "sessions").iterdir())
    lines = (running / "records.jsonl").read_text().splitlines(keepends=True)
    (running / "records.jsonl").write_text("".join(lines[1:]))
    assert state(folder).red == []
    page = report_page(folder)
    content = page.read_text()
    assert "1 of 2 planned" in content and "9 hours" in content
    assert notes(page) & {"running", "cut-off"} == {"running"} and "vanished" not in content
    assert "running" in (page.parent / "sessions.html").read_text()
    assert "2025-11-20 03:00" in content
    own = page.parent / f"sessions/{text.slug(running.name)}.html"
    assert notes(own) == {"running"}
    (running / "end.json").write_text("{}")
    assert notes(report_page(folder)) & {"running", "cut-off"} == {"cut-off"}


def test_a_session_whose_first_case_still_runs_is_running(tmp_path):
    folder = sessions_of(tmp_path, [{}], [{}])
    begun = max((folder / "sessions").iterdir())
    (begun / "records.jsonl").unlink()
    os.utime(begun, ns=(int(NOW.timestamp() - 600) * 10**9,) * 2)
    assert state(folder).red == []
    page = report_page(folder)
    content = page.read_text()
    assert "running" in notes(page) and "0 of 1 planned" in content and "10 minutes" in content
    assert notes(max((tmp_path / "out" / "sessions").iterdir())) == {"running", "no-record"}


def test_what_is_to_be_looked_at_stands_on_the_start_page_and_the_sessions_own(tmp_path):
    notice = {"state": "suspicious", "code": "no-congestion", "figure": "", "detail": "too calm",
              "source": ""}  # fmt: skip
    folder = sessions_of(tmp_path, [{"check": "gpcnet_load", "warnings": [notice]}])
    content = shown(report_page(folder), "noticed")
    for value in ("suspicious", "gpcnet_load", "too calm no-congestion"):
        assert value in content
    page = one(tmp_path / "out", "sessions/*").read_text()
    assert "s-suspicious" in page and "too calm" in page


FOLD = session_pages.FOLD


@pytest.mark.parametrize(("nodes", "rows"), [(FOLD - 1, FOLD), (FOLD, 2)])
def test_many_nodes_with_one_result_are_folded(tmp_path, nodes, rows):
    cases = [{"check": f"stream %.nid=n{n}", "nodes": [f"n{n}"]} for n in range(nodes)]
    folder = sessions_of(tmp_path, [*cases, {"check": "stream %.nid=bad", "figures": [SLOW]}])
    content = report_page(folder, "sessions/*.html").read_text()
    unfolded = re.sub(r"<ul class=\"rows plain-rows\">(?=<li).*?</ul></details>", "", content,
                      flags=re.S)  # fmt: skip
    assert unfolded.count('<li class="row">') == rows
    folded = nodes >= FOLD
    assert content.count('<li class="row">') == nodes + 1 + folded and "s-fail" in unfolded
    assert (f"{nodes} test cases</summary>" in content) == folded


def test_an_older_session_that_is_red_has_a_page_of_its_red_cases(tmp_path):
    red, well = {"check": "slow", "figures": [SLOW]}, {"check": "well"}
    folder = sessions_of(tmp_path, [red, well], [well], [red, well], [well, well | {"check": "x"}])
    set_date(folder, slice(1), "2025-09-20")
    report_page(folder, latest=1)
    made = sorted(path.name for path in (tmp_path / "out" / "sessions").iterdir())
    assert [name[:15] for name in made] == ["20251120t020000", "20251120t030000"]
    older, newest = ((tmp_path / "out" / "sessions" / name) for name in made)
    assert ("red-only" in notes(older), "red-only" in notes(newest)) == (True, False)
    content = older.read_text()
    assert ">slow</a>" in content and ">well</a>" not in content and "1 more test case" in content


def test_an_older_session_that_was_cut_off_has_a_page(tmp_path):
    night = [{"check": "well"}, {"check": "other"}]
    folder = sessions_of(tmp_path, *[night] * 4)
    first, second, *_ = sorted((folder / "sessions").iterdir())
    lines = (first / "records.jsonl").read_text().splitlines(keepends=True)
    (first / "records.jsonl").write_text("".join(lines[1:]))
    (second / "records.jsonl").unlink()
    os.utime(second, ns=(int(NOW.timestamp() - 11 * 3600) * 10**9,) * 2)
    report_page(folder, now=NOW + 2 * DAY, latest=1)
    made = {path.name[:15]: path for path in (tmp_path / "out" / "sessions").iterdir()}
    assert len(made) == 3
    assert notes(made["20251120t000000"]) == {"cut-off", "red-only"}
    assert notes(made["20251120t010000"]) == {"cut-off", "no-record"}
    assert_links_resolve(tmp_path / "out")


def test_cases_that_were_not_asked_for_are_not_missing(tmp_path):
    folder = sessions_of(tmp_path, [{"check": "slow"}, {"check": "well"}])
    page = report_page(folder, select=Selection(check="well"))
    assert not notes(page) & {"cut-off", "running"}


def test_a_clock_that_jumped_back_over_midnight_makes_all_pages(tmp_path):
    folder = sessions_of(tmp_path, *([[{}, {"time": "2025-11-19T23:00:00Z"}]] * 9))
    write(folder, tmp_path / "out", now=NOW)
    assert_links_resolve(tmp_path / "out")


def test_a_session_of_many_nodes_has_a_table_and_the_first_records(tmp_path):
    count = session_pages.RECORDS + 1
    cases = [{"check": f"stream %.nid=n{n}", "nodes": [f"n{n}"]} for n in range(count)]
    content = report_page(sessions_of(tmp_path, cases), "sessions/*.html").read_text()
    assert content.count('<dl class="record">') == session_pages.FOLD
    table = re.search(r"<table>.*?</table>", content[content.index("first-records") :], re.S)[0]
    assert table.count('<tr><th scope="row">') == count
