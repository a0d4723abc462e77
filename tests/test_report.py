"""`plumbline report`: what its pages show, and how it is written."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import html
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import demo_history
import numpy as np
import pytest
from bench import history as bench_history
from bench import report as bench_report
from conftest import COLUMNS, ROOT, Done, asked
from plumbline.analysis.compare import sides
from plumbline.core.errors import Fault
from plumbline.history import history
from plumbline.history.history import History
from plumbline.history.series import ALL, Key, Selection, Series
from plumbline.operate.nightly import parts
from plumbline.output import report
from plumbline.output.report import (
    around,
    charts,
    figures,
    page_writer,
    series_changes,
    session_pages,
    status,
    text,
)
from plumbline.site import inventory
from reports import (  # noqa: F401 - fixtures
    DAY,
    NOW,
    SLOW,
    UTC,
    a_series,
    assert_links_resolve,
    demo_,
    latencies,
    notes,
    one,
    pages_,
    report_page,
    sessions_of,
    shown,
    write,
)


def test_all_links_and_anchors_resolve(pages):
    assert assert_links_resolve(pages) > 500


def test_a_session_shows_build_hosts_job_and_output(pages, demo):
    folder = max(path for path in (demo / "sessions").iterdir())
    fields = json.loads((folder / "records.jsonl").read_text().splitlines()[0])
    content = max((pages / "sessions").iterdir()).read_text()
    host = fields["hosts"][fields["nodes"][0]]
    for value in (fields["build"]["sha256"], host["kernel"], fields["jobid"], fields["output"]):
        assert value in content


# -- what it shows ------------------------------------------------------------------------------


def test_today_shows_what_is_red(pages):
    content = shown(pages / "index.html", "red")
    assert count(content) == 5
    for value in ("nid0007", "above its ceiling", "truncated", "TIMEOUT", "13 sessions", "new"):
        assert value in content
    assert "fio" not in content
    assert "ior_easy" not in content


def count(section: str) -> int:
    """The number in a section's heading."""
    return int(re.search(r"\d+", section)[0])


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("waived", ["ticket 4711", "storage team", "in 11 days"]),
        ("skipped", ["apt-get install fio"]),
        ("unasserted", ["gpcnet_load", "coral-gpcnet-latency"]),
        ("near-bound", ["file_creation_rate"]),
    ],
)
def test_today_shows_what_is_not_red(pages, section, values):
    content = shown(pages / "index.html", section)
    assert [value for value in values if value not in content] == []


def test_what_passed_and_asserts_nothing_is_no_pass(demo):
    alder, _ = states(demo, now=datetime.datetime.now(UTC))
    statuses = {case.check: case.status for case in alder.cases}
    assert statuses["gpcnet_load"] == "not-asserted"
    assert statuses["mdtest_easy"] == "pass"


def states(
    folder: Path, select: Selection = ALL, source: Path | None = None, now: datetime.datetime = NOW
) -> list[status.SystemState]:
    """The states of the systems of a history, of which a part may be selected, by name."""
    with pytest.MonkeyPatch.context() as patch, History(source or folder) as history:
        patch.setenv("PLUMBLINE_SITE", str(folder))
        found = status.of_systems(
            history, history.sessions(), select, now, datetime.timedelta(hours=48),
            lambda system: inventory.read(system) or inventory.Inventory(),
        )  # fmt: skip
    return sorted(found, key=lambda one: one.system)


def state(folder: Path, select: Selection = ALL, source: Path | None = None) -> status.SystemState:
    (found,) = states(folder, select, source)
    return found


def test_the_page_of_a_system_lists_its_checks(pages):
    content = one(pages, "systems/alder-*.html").read_text()
    checks = [path.name for path in (pages / "checks").glob("alder-*")]
    assert checks and all(f'href="../checks/{name}"' in content for name in checks)


def test_changes_that_began_together_are_one_line(pages):
    content = shown(pages / "index.html", "changed")
    latency = re.search(r"osu_p2p test=latency alder .*?(?=osu_p2p|babelstream|$)", content)[0]
    assert "and 3 more" in latency


def test_a_change_that_is_not_confirmed_has_its_reason(pages):
    assert "above-ceiling" in notes(pages / "changes.html")


def commands(path: Path) -> list[list[str]]:
    """The words of each comparison that a page prints."""
    found = re.findall(r"<code>(plumbline compare [^<]+)</code>", path.read_text())
    return [shlex.split(html.unescape(command)) for command in found]


def test_the_comparison_that_a_change_prints_answers(pages, demo):
    (words,) = [one for one in commands(pages / "index.html") if "test=latency" in str(one)]
    done = asked(*words[1:], "--metric=latency", "--from", demo, "--format=json")
    found = json.loads(done.out)
    assert (done.code, found["verdict"]) == (1, "no-go")
    regressed = {row["size"] for row in found["figures"] if row["verdict"] == "regressed"}
    assert regressed == {8, 64, 512, 4096}


def test_what_changed_in_the_night_of_a_change_is_on_its_card(pages):
    cards = re.findall(r'<li class="row">.*?</details>',
                       (pages / "index.html").read_text(), re.S)  # fmt: skip
    latency, bandwidth, stream = (
        next(card for card in cards if "plumbline compare --system=alder" in card and name in card)
        for name in ("test=latency", "test=bw", "babelstream_cpu")
    )
    fact = r"<li>([^:]*(?:: \w+)?): <code>(\S+)</code> to <code>(\S+)</code> <[^>]*>\(([^)]*)\)"
    ((name, before, after, node),) = re.findall(fact, latency)
    assert (name, before, after) == ("microcode", "0x2b000603", "0x2b000620")
    assert node.startswith(demo_history.NODES[0]) and node.endswith(" and 8 more")
    builds = [found[0] for found in re.findall(fact, bandwidth)]
    assert builds == ["osu @gnu-mpich: path", "osu @gnu-mpich: sha256"]
    assert not re.findall(fact, stream) and 'data-note="no-fact-changed"' in stream


def a_history(times: list[str]) -> tuple[Series, list[SimpleNamespace]]:
    """A series with a session at each of these times, and the rows of the sessions."""
    moments = np.array(times, "datetime64[s]")
    series = a_series(range(1, len(times) + 1), times=moments)
    return series, [
        SimpleNamespace(session=name, start=start)
        for name, start in zip(series.sessions.tolist(), moments, strict=True)
    ]


def around_of(
    series: Series, rows: list[SimpleNamespace], *changes: dict, first: int = 0
) -> tuple[list[str], list[str], around.Comparison | None]:
    """The sessions on both sides of one of the changes of a series, and the comparison."""
    listed = [
        a_change(series, **change | {"before": str(series.sessions[change["start"] - 1]),
                                     "after": str(series.sessions[change["start"]])})
        for change in changes
    ]  # fmt: skip
    found = around.Around(None, rows, {series.key: listed})
    comparison = found.comparison(series_changes.PageCause([listed[first]]))
    if comparison is None:
        return [], [], None
    *_, before, after = shlex.split(comparison.command)
    names = [[row.session for row in sides.sessions_of(side, rows, "side")]
             for side in (before, after)]  # fmt: skip
    return *names, comparison


NIGHTLY = [f"2026-08-{day:02d}T02:00:00" for day in range(1, 21)]


def names_of(*numbers: int) -> list[str]:
    return [f"s{number}" for number in range(*numbers)]


def test_the_sides_of_a_change_are_all_sessions_around_it():
    before, after, found = around_of(*a_history(NIGHTLY), {"start": 8, "sessions": 12})
    assert (before, after) == (names_of(8), names_of(8, 20))
    assert found.command.endswith(" ..2026-08-08 2026-08-09..")
    assert (found.before, found.after, found.missing) == (8, 12, 0)
    *_, newest = around_of(*a_history(NIGHTLY), {"start": 19, "sessions": 1})
    assert newest.missing == 2


def test_other_changes_of_a_figure_end_the_sides_of_one():
    changes = [{"start": 4}, {"start": 9}, {"start": 15}]
    before, after, found = around_of(*a_history(NIGHTLY), *changes, first=1)
    assert (before, after) == (names_of(4, 9), names_of(9, 15))
    assert (found.before, found.after, found.missing) == (5, 6, 0)


def test_a_transient_is_compared_until_it_ended():
    until = np.datetime64("2026-08-12T02:00:00")
    transient = {"start": 8, "kind": "transient", "until": until, "active": False}
    before, after, _ = around_of(*a_history(NIGHTLY), transient)
    assert (before, after) == (names_of(8), names_of(8, 12))


def test_sessions_of_one_day_are_told_apart_by_their_times():
    hourly = [f"2026-08-01T{hour:02d}:00:00" for hour in range(12)]
    before, after, found = around_of(*a_history(hourly), {"start": 5}, {"start": 9})
    assert (before, after) == (names_of(5), names_of(5, 9))
    assert (found.before, found.after) == (5, 4)


def test_a_change_without_a_side_has_no_comparison():
    series, rows = a_history(NIGHTLY[::-1])
    assert around_of(series, rows, {"start": 8})[2] is None
    series, rows = a_history(NIGHTLY)
    change = dataclasses.replace(a_change(series, 0), before="", after="s0")
    assert around.Around(None, rows, {}).comparison(series_changes.PageCause([change])) is None


def test_the_papers_figures_stand_beside_ours(pages, demo):
    content = (pages / "published.html").read_text()
    section = re.search(r'<section id="osu-latency-8-on-socket.*?</section>', content, re.S)[0]
    row = re.search(r"<tr><th[^>]*><a[^>]*>trinity</a>.*?</tr>", section, re.S)[0]
    assert "0.67 ± 0.01 us" in row
    ours = [float(line["value"]) for line in latencies(pages)][-figures.LATEST :]
    ratio = np.median(ours) / 0.67 - 1
    assert f"{ratio:+.1%}".replace("%", "\u202f%") in row
    assert "worse" in row
    assert "alder" in section and "birch" in section


def test_csv_files_have_every_value(pages, demo):
    path = one(pages, "data/alder-babelstream-cpu*/triad-*.csv")
    rows = list(csv.DictReader(path.open()))
    with History(demo) as history:
        select = Selection(system="alder", metric="triad")
        series = history.series(select)
    assert len(rows) == sum(len(one.values) for one in series)
    assert {row["node"] for row in rows} == set(demo_history.NODES)
    nid7 = [float(row["value"]) for row in rows if row["node"] == "nid0007"]
    expected = next(one for one in series if one.key.node == "nid0007").values
    assert nid7 == expected.tolist()


def test_one_csv_file_has_the_values_of_all_sizes(pages, demo):
    path = one(pages, "data/alder-osu-p2p-test-latency*/sizes-latency-*.csv")
    rows = list(csv.DictReader(path.open()))
    with History(demo) as history:
        select = Selection(system="alder", check="osu_p2p %test=latency*", metric="latency")
        series = history.series(select)
    found = {(row["size"], row["session"]): float(row["value"]) for row in rows}
    assert found == {
        (str(one.key.size), session): value
        for one in series
        for session, value in zip(one.sessions.tolist(), one.values.tolist(), strict=True)
    }
    assert len(rows) == len(found) and len({row["size"] for row in rows}) == len(series)


def test_a_csv_history_makes_the_same_report_without_session_pages(demo, pages, tmp_path):
    assert asked("history", "export", "--from", demo, "-o", tmp_path / "all.csv").code == 0
    write(demo, tmp_path / "out", source=tmp_path / "all.csv")
    page = tmp_path / "out" / "index.html"
    for section in ("red", "near-bound"):
        assert count(shown(page, section)) == count(shown(pages / "index.html", section)) > 0
    # What a CSV file does not have is not called absent.
    assert notes(page) & {"warnings-unknown", "no-warning"} == {"warnings-unknown"}
    assert not (tmp_path / "out" / "sessions").exists()
    assert_links_resolve(tmp_path / "out")


# -- sessions that are not as usual -------------------------------------------------------------


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


PASSES = {"check": "stream %.repeat_no=0"}
FAILS = {"check": "stream %.repeat_no=1", "figures": [SLOW]}


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
    assert (str(red.since), red.sessions) == ("2026-11-20T01:00:00", 2)


def test_a_csv_history_has_the_figures_of_repeats_and_retries(tmp_path):
    unasserted = {"figures": [SLOW | {"reference": None}]}
    retried = [unasserted | {"check": "retried", "attempt": n} for n in range(2)]
    folder = sessions_of(tmp_path, [PASSES | unasserted, FAILS | unasserted, *retried])
    path = tmp_path / "all.csv"
    assert asked("history", "export", "--from", folder, "-o", path).code == 0
    for source in (folder, path):
        found = {case.check: case.status for case in state(folder, source=source).cases}
        assert found == dict.fromkeys(("stream", "retried"), "not-asserted")


def test_a_case_is_red_since_the_last_break(tmp_path):
    slow = [{"figures": [SLOW]}]
    (red,) = state(sessions_of(tmp_path, slow, [{}], slow, slow)).red
    assert (str(red.since), red.sessions) == ("2026-11-20T02:00:00", 2)


def write_inventory(folder: Path, *checks: str) -> None:
    path = folder / "systems" / "inventory" / "alder.json"
    path.parent.mkdir(parents=True)
    cases = {f"{check} @alder:cpu+gnu-mpich": {} for check in checks}
    path.write_text(inventory.Inventory(cases=cases).text())


def set_date(folder: Path, sessions: slice, date: str) -> None:
    """Moves the results of some sessions to another date."""
    for session in sorted((folder / "sessions").iterdir())[sessions]:
        records = session / "records.jsonl"
        records.write_text(records.read_text().replace("2026-11-20T", f"{date}T"))


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
    set_date(folder, slice(1), "2026-11-02")
    assert [case.check for case in state(folder).red] == ["old"]


def test_a_case_that_sessions_had_and_the_last_week_lacks_is_red(tmp_path):
    folder = sessions_of(tmp_path, *([[{"check": "old"}, {}]] * 3), [{}])
    set_date(folder, slice(3), "2026-11-02")
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
    set_date(folder, slice(3), "2026-11-02")
    set_date(folder, slice(4, 5), "2027-11-20")
    found = state(folder)
    assert {case.check: (case.status, case.sessions) for case in found.red} == {
        "slow": ("fail", 4), "ahead": ("fail", 0), "gone": ("vanished", 0),
    }  # fmt: skip
    assert [row.session for row in found.ahead] == [sorted(
        path.name for path in (folder / "sessions").iterdir())[4]]  # fmt: skip
    assert found.latest.end == np.datetime64("2026-11-20T05:00:00")
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
    assert "2026-11-20 03:00" in content
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
    set_date(folder, slice(1), "2026-09-20")
    report_page(folder, latest=1)
    made = sorted(path.name for path in (tmp_path / "out" / "sessions").iterdir())
    assert [name[:15] for name in made] == ["20261120t020000", "20261120t030000"]
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
    assert notes(made["20261120t000000"]) == {"cut-off", "red-only"}
    assert notes(made["20261120t010000"]) == {"cut-off", "no-record"}
    assert_links_resolve(tmp_path / "out")


def test_cases_that_were_not_asked_for_are_not_missing(tmp_path):
    folder = sessions_of(tmp_path, [{"check": "slow"}, {"check": "well"}])
    page = report_page(folder, select=Selection(check="well"))
    assert not notes(page) & {"cut-off", "running"}


#: The sections of the start page, and the note of each that has nothing to show.
EMPTY = {
    "red": "nothing-red",
    "changed": "no-change",
    "waived": "nothing-waived",
    "near-bound": "nothing-near-bound",
    "noticed": "no-warning",
    "skipped": "nothing-skipped",
    "unasserted": "all-asserted",
    "slow": "not-screened",
}


def test_a_session_in_which_all_was_skipped(tmp_path):
    skipped = {"result": "skip", "reason": "no network", "figures": [], "output": None}
    folder = sessions_of(tmp_path, [skipped])
    made = write(folder, tmp_path / "out", now=NOW)
    assert (made.series, made.red) == (0, 0)
    page = tmp_path / "out" / "index.html"
    assert notes(page) == {
        *("nothing-measured", "nothing-waived", "nothing-near-bound", "no-warning", "not-screened"),
    }
    assert count(shown(page, "skipped")) == 1 and "no network" in shown(page, "skipped")
    assert notes(one(tmp_path / "out", "checks/alder-stream*.html")) == {"nothing-measured"}
    assert notes(tmp_path / "out" / "published.html") == {"nothing-published"}
    assert_links_resolve(tmp_path / "out")


def test_a_section_with_nothing_in_it_has_a_note(tmp_path):
    first = datetime.date(2026, 10, 30)
    nights = [[{"time": f"{first + datetime.timedelta(night)}T02:00:00Z"}] for night in range(22)]
    page = report_page(sessions_of(tmp_path, *nights))
    assert {count(shown(page, name)) for name in EMPTY} == {0}
    assert notes(page) == {*EMPTY.values()}
    assert notes(page.parent / "changes.html") == {"no-change"}
    assert "gone" in notes(page.parent / "references" / "gone.html")


def test_a_young_history_has_too_few_nights_for_changes(tmp_path):
    page = report_page(sessions_of(tmp_path, [{}]))
    for path in (page, page.parent / "changes.html"):
        assert "too-few-nights" in notes(path) and " 21 nights" in path.read_text()


def test_a_reason_that_was_not_recorded_leaves_no_gap(tmp_path):
    lost = {"reason": None, "figures": [], "output": None}
    folder = sessions_of(tmp_path, [lost | {"check": check, "result": check}
                                    for check in ("error", "skip")])  # fmt: skip
    page = report_page(folder)
    for name in ("red", "skipped"):
        assert "no reason" in shown(page, name)


def test_a_clock_that_jumped_back_over_midnight_makes_all_pages(tmp_path):
    folder = sessions_of(tmp_path, *([[{}, {"time": "2026-11-19T23:00:00Z"}]] * 9))
    write(folder, tmp_path / "out", now=NOW)
    assert_links_resolve(tmp_path / "out")


def run(folder: Path, *arguments: object) -> Done:
    return asked("report", *arguments, PLUMBLINE_SITE=folder, PLUMBLINE_RESULTS=folder)


def test_no_session_is_no_report(tmp_path):
    done = run(tmp_path, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["history.empty"])
    assert not (tmp_path / "out").exists()


def test_a_red_case_is_no_failure_of_the_report(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    assert run(folder, "--out", tmp_path / "out").code == 0
    assert count(shown(tmp_path / "out" / "index.html", "red")) == 1


def test_a_line_that_is_cut_off_is_on_the_page_and_exit_2(tmp_path):
    folder = sessions_of(tmp_path, [{}, {"check": "lost"}])
    path = one(folder, "sessions/*/records.jsonl")
    path.write_text(path.read_text()[:-200])
    done = run(folder, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["history.damaged"])
    assert "records.jsonl:2" in done.err
    assert "records.jsonl:2" in shown(tmp_path / "out" / "index.html", "left")


def a_baseline(folder: Path, *rows: dict) -> Path:
    """Writes a site's own table of references."""
    path = folder / "reference" / "alder.csv"
    path.parent.mkdir()
    usual = {"source": "site", "locator": "baseline", "system": "alder", "statistic": "median",
             "benchmark": "babelstream", "metric": "triad", "placement": "all-cores",
             "value": "290", "unit": "GB/s", "kind": "measured"}  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(usual | row for row in rows)
    return path


def test_one_invalid_row_does_not_cost_the_report(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    name = "alder-babelstream-triad-all-cores"
    table = a_baseline(folder, {"id": "wrong", "metric": "copy", "value": "fast"}, {"id": name})
    (folder / "reference" / "waivers.yaml").write_text("- {id: w, reason: no owner}\n")
    done = run(folder, "--out", tmp_path / "out")
    assert done.code == 2
    assert {*done.codes} == {"reference.wrong-table", "input.wrong-file"}
    assert f"{table}:2" in done.err
    listed = shown(tmp_path / "out" / "index.html", "wrong")
    assert "alder.csv:2" in listed and "waivers.yaml" in listed
    assert count(shown(tmp_path / "out" / "index.html", "red")) == 1
    assert name in one(tmp_path / "out", "references/site-alder*.html").read_text()
    assert_links_resolve(tmp_path / "out")


def test_invalid_references_are_reported_before_the_slow_work(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    a_baseline(folder, {"id": "wrong", "value": "fast"})
    write_inventory(folder, "stream")
    one(folder, "systems/inventory/*").write_text("{")
    lines: list[str] = []
    made = write(folder, tmp_path / "out", now=NOW, say=lines.append, warn=lines.append)
    slow = next(at for at, line in enumerate(lines) if line.startswith("screening"))
    skipped = [f"skipped: {fault}" for fault in made.faults]
    assert len(skipped) == 2 and [*filter(skipped.__contains__, lines[:slow])] == skipped


@pytest.mark.parametrize("content", ["{", "[]", '{"cases": 3}', b"\xff"])
def test_an_invalid_inventory_does_not_cost_the_report(tmp_path, content: str | bytes):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    write_inventory(folder, "stream", "gone")
    path = one(folder, "systems/inventory/alder.json")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    done = run(folder, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["system.wrong-inventory"])
    page = tmp_path / "out" / "index.html"
    assert count(shown(page, "red")) == 1
    listed = shown(page, "wrong")
    assert count(listed) == 1 and "inventory/alder.json" in listed


def test_the_part_of_a_nightly_reports_invalid_references(tmp_path, monkeypatch):
    folder = sessions_of(tmp_path, [{}])
    a_baseline(folder, {"id": "wrong", "value": "fast"})
    monkeypatch.setenv("PLUMBLINE_SITE", str(folder))
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(folder))
    part = parts.report_site(tmp_path / "out")
    assert part.code == 2 and "reference.wrong-table" in part.message


# -- the folder ---------------------------------------------------------------------------------


def test_a_folder_that_is_no_report_is_left_alone(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    done = run(folder, "--out", out)
    assert (done.code, done.codes) == (2, ["files.exists"])
    assert [path.name for path in out.iterdir()] == ["chapter.txt"]


def test_the_next_report_takes_the_place_of_the_last_whole(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    out = tmp_path / "out"
    out.mkdir()
    assert run(folder, "--out", out).code == 0
    (out / "systems" / "gone.html").write_text("of an earlier report")
    assert run(folder, "--out", out).code == 0
    assert not (out / "systems" / "gone.html").exists()
    assert out.stat().st_mode & 0o777 == (tmp_path / "sessions").stat().st_mode & 0o777
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_a_report_that_cannot_be_written_leaves_the_last(tmp_path, monkeypatch):
    folder = sessions_of(tmp_path, [{}])
    assert run(folder, "--out", tmp_path / "out").code == 0
    before = (tmp_path / "out" / "index.html").read_text()

    def full(self, path, content):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(page_writer.PageWriter, "file", full)
    done = run(folder, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["files.not-writable"])
    assert (tmp_path / "out" / "index.html").read_text() == before
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_characters_that_cannot_be_seen_are_shown_as_such():
    assert text.clean("a\u202eb\ud800\x07\n") == "a\ufffdb\ufffd\ufffd\n"


# -- pieces -------------------------------------------------------------------------------------


def test_nodes_share_a_chart_and_few_places_do_not():
    nodes = [a_series([1, 2], node=f"n{i}") for i in range(3)]
    places = [a_series([1, 2], location=f"gpu{i}") for i in range(4)]
    assert [len(f.members) for f in figures.grouped(nodes + places, {})] == [3, 1, 1, 1, 1]
    pairs = [a_series([1, 2], location=f"n{i}-n{i + 1}") for i in range(figures.PLACES)]
    assert [len(f.members) for f in figures.grouped(pairs, {})] == [figures.PLACES]


def test_a_figure_over_nodes_is_the_median_of_each_session():
    late = a_series([9.0, 4.0], node="c", sessions=np.array(["s1", "s2"], object),
                    times=a_series([0, 0, 0]).times[1:])  # fmt: skip
    (figure,) = figures.grouped([a_series([1.0, 2.0], node="a"), a_series([3.0, 8.0], node="b"),
                                 late], {})  # fmt: skip
    sessions, _, medians = figure.history
    assert (sessions.tolist(), medians.tolist()) == (["s0", "s1", "s2"], [2.0, 8.0, 4.0])
    data = charts.data(figure, {}, None)
    assert (data["low"], data["high"]) == ([1.0, 2.0, 4.0], [3.0, 9.0, 4.0])
    assert figure.latest == 4.0


def of_metric(metric: str, series: Series) -> Series:
    return dataclasses.replace(series, key=dataclasses.replace(series.key, metric=metric))


def a_change(series: Series, start: int, **fields) -> series_changes.SeriesChange:
    """A confirmed loss of a series that lasts."""
    began = series.times[start]
    known = {"kind": "regression", "size": -0.05, "worse": True, "active": True, "confirmed": True,
             "before": "a", "after": "b", "until": None}  # fmt: skip
    return series_changes.SeriesChange(series.key, confidence=0.99, start=start, began=began,
                                 detected=began, **known | fields)  # fmt: skip


def a_fleet(*losses: float) -> tuple[list[Series], dict[Key, list[series_changes.SeriesChange]]]:
    """The series of nodes at 100 that lose a share twenty nights ago, and their changes."""
    series = [
        a_series([100.0 + place] * 30 + [(100.0 + place) * (1 - loss)] * 20, node=f"n{place}")
        for place, loss in enumerate(losses)
    ]
    changes = {
        one.key: [a_change(one, 30, size=-loss)]
        for one, loss in zip(series, losses, strict=True)
        if loss
    }
    return series, changes


@pytest.mark.parametrize("losses", [[0.04], [0.04, 0.04, 0.04]])
def test_usual_is_the_level_before_a_loss_that_lasts(losses: list[float]):
    (figure,) = figures.grouped(*a_fleet(*losses))
    assert figure.usual == 100.0 + len(losses) // 2
    assert figure.difference == pytest.approx(-0.04)
    (healthy,) = figures.grouped(a_fleet(*losses)[0], {})
    assert healthy.difference == 0


def test_the_badge_of_a_figure_is_its_largest_active_loss():
    series, changes = a_fleet(0, 0.02, 0.08)
    changes[series[0].key] = [
        a_change(series[0], 20, size=-0.3, active=False),
        a_change(series[0], 30, size=0.4, worse=False, kind="improvement"),
    ]
    (figure,) = figures.grouped(series, changes)
    assert [(change.key.node, change.size) for change in figure.losses] == [
        ("n2", -0.08), ("n1", -0.02),
    ]  # fmt: skip


def test_a_loss_is_on_the_page_of_its_system_beside_the_headlines():
    series = a_series([100.0] * 30 + [96.0] * 20)
    names = ("head", "lost", "ended", "calm")
    head, lost, ended, calm = (of_metric(name, series) for name in names)
    changes = {lost.key: [a_change(lost, 30)], ended.key: [a_change(ended, 30, active=False)]}
    listed = figures.grouped([head, lost, ended, calm], changes)
    case = SimpleNamespace(headlines=[("head", -1, "", "all-cores")])
    found = SimpleNamespace(cases={("alder", "stream"): [case]})
    chosen = report._Report.shown(found, "alder", "stream", listed)
    assert {figure.key.metric for figure in chosen} == {"head", "lost"}
    (most,) = report._Report.shown(found, "alder", "stream", listed, most=1)
    assert most.key.metric == "lost"


@pytest.mark.parametrize(
    ("better", "worst", "by_session"),
    [
        ("higher", ("a", 1.0), ["b", "a"]),
        ("lower", ("c", 9.0), ["a", "c"]),
        ("neither", ("c", 9.0), ["a", "c"]),
    ],
)
def test_the_worst_node_is_beside_the_median(better, worst, by_session):
    series = [
        a_series(values, node=node, better=better)
        for node, values in (("a", [9.0, 1.0]), ("b", [1.0, 3.0]), ("c", [2.0, 9.0]))
    ]
    (figure,) = figures.grouped(series, {})
    assert figure.worst == worst
    names = charts.data(figure, {}, None)["worst"]
    assert names == charts.runs(by_session)
    assert figures.grouped(series[:1], {})[0].worst is None


def test_tables_have_the_loss_and_the_worst_node(pages):
    system = one(pages, "systems/alder-*.html").read_text()
    check = one(pages, "checks/alder-babelstream-cpu*.html").read_text()
    for content in (system, check):
        rows = [row for row in content.split("<tr>") if ">triad</a>" in row]
        assert rows and all("worst" in row and "nid0007" in row for row in rows)
    latency = next(row for row in system.split("<tr>") if ">latency · 8 B</a>" in row)
    assert "s-regression" in latency and "since" in latency


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "single-session"),
        ({"kind": "suspect"}, "outliers-before"),
        ({"sessions": 9}, "within-noise"),
        ({"confirmed": True}, ""),
        ({"kind": "improvement", "above_ceiling": True}, "above-ceiling"),
    ],
)
def test_a_change_that_is_not_confirmed_says_why(fields: dict, code: str):
    change = a_change(a_series([1]), 0, **{"confirmed": False, "sessions": 1} | fields)
    assert change.doubt_code == code
    assert bool(change.doubt) == bool(code)
    assert (change.word == "above-ceiling") == (code == "above-ceiling")


def test_what_never_varied_is_drawn_in_the_middle():
    path, *_ = text.spark(np.array([5.0, 5.0]))
    assert path.endswith(" 14")


def test_changes_of_one_check_that_began_together_have_one_cause():
    def change(metric: str, day: int, **fields):
        return a_change(of_metric(metric, a_series([100.0] * 30)), day, **fields)

    together = series_changes.by_cause(
        [change("a", 3), change("b", 4), change("c", 20), change("a", 3, kind="transient")]
    )
    assert sorted(len(cause.changes) for cause in together) == [1, 1, 2]


def test_many_series_are_judged_as_few_are(monkeypatch):
    noise = np.random.default_rng(3).normal(1, 0.01, (12, 60))
    series = [a_series(np.where(np.arange(60) < 40, 100, 90) * row, location=f"g{i}")
              for i, row in enumerate(noise)]  # fmt: skip
    alone = series_changes.find(series, len(series))
    monkeypatch.setattr(series_changes, "MANY", 2)
    several = series_changes.find(series, len(series))
    assert len(alone) == len(series)

    assert [*several] == [*alone]
    for key, found in several.items():
        assert [(c.kind, c.before, c.after) for c in found] == [
            (c.kind, c.before, c.after) for c in alone[key]
        ]


def test_checks_are_read_in_pieces_as_they_are_at_once(demo, monkeypatch):
    def values_of(series: Iterable[Series]) -> list[tuple]:
        found = ((one.key, one.values.tolist(), one.sessions.tolist()) for one in series)
        return sorted(found, key=lambda item: (item[0].system, item[0].check, item[0]))

    select = Selection(system="alder")
    with History(demo) as found:
        whole, checks = values_of(found.series(select)), found.measured(select)
        assert sum(one.series for one in checks) == len(whole)
        assert sum(one.values for one in checks) == sum(len(values) for _, values, _ in whole)
        assert max(one.most for one in checks) == max(len(values) for _, values, _ in whole)
        for values in (1, 700, 10**6):
            monkeypatch.setattr(history, "_AT_ONCE", values)
            read = list(found.by_check(checks, select))
            assert [{(one.key.system, one.key.check) for one in listed} for listed in read] == [
                {(one.system, one.check)} for one in checks
            ]
            assert values_of(itertools.chain(*read)) == whole


_PEAK = """
import sys
from pathlib import Path
from plumbline.history import history
from plumbline.operate.nightly import parts
from plumbline.output import report
from plumbline.history.series import Selection

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

history._AT_ONCE = 5000
with history.History(Path(sys.argv[1])) as found:
    before = peak()
    made = report.write(found, Path(sys.argv[1], "out"), Selection(), latest=1)
    print(made.series, peak() - before)
"""


def test_memory_does_not_grow_with_the_series(tmp_path):
    """Of what a process takes for a report, beyond what it has with the history open."""
    peaks = {}
    for series in (1000, 4000):
        folder, nights = tmp_path / str(series), series_changes.NIGHTS - 1
        cases = series // bench_report.SIZES * nights
        bench_history.write_year(folder, cases, nights, bench_report.SYSTEMS, bench_report.sizes)
        with History(folder):
            pass  # Its index is made here, and no part of what the report takes.
        content = subprocess.run([sys.executable, "-c", _PEAK, folder], check=True, text=True,
                              capture_output=True).stdout  # fmt: skip
        made, peaks[series] = map(int, content.split())
        assert made == series
    assert peaks[4000] < 1.5 * peaks[1000]


def test_numbers_have_the_digits_that_count():
    numbers = [text.number(v) for v in (0.85123, 183.2512, 11583.1, 1234567.0, 0, 1e-7)]
    assert numbers == ["0.85123", "183.25", "11,583", "1,234,567", "0", "1.0000e-07"]
    assert [text.percent(v) for v in (0.0512, -0.2, 0.00001, 2.5)] == [
        "+5.1\u202f%", "\u221220.0\u202f%", "0.0\u202f%", "+250\u202f%",
    ]  # fmt: skip
    assert [text.size(v) for v in (0, 8, 4096, 1 << 20, -1)] == ["0 B", "8 B", "4 KiB", "1 MiB", ""]


@pytest.mark.parametrize(("bench", "name"), [(bench_history, "history"), (bench_report, "report")])
def test_the_pages_of_the_speed_are_rendered_from_their_figures(bench, name):
    """They hold no figure that the bench did not print."""
    page = ROOT / "docs" / f"{name}-speed.md"
    assert bench.render(json.loads(page.with_suffix(".json").read_text())) == page.read_text()


def test_the_bench_makes_as_many_series_as_it_says(tmp_path):
    written = bench_history.write_year(tmp_path, 4 * 3, 3, bench_report.SYSTEMS, bench_report.sizes)
    with History(tmp_path) as history:
        assert len(history.series()) == 4 * bench_report.SIZES
    assert written == 12


def test_out_may_not_be_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Fault) as fault, page_writer.replaced(tmp_path / "file"):
        pass
    assert fault.value.code == "files.exists"


def test_what_a_killed_report_left_is_removed_by_the_next(tmp_path):
    """A day later, as another may be written now; an old report is kept while there is no other."""
    out = tmp_path / "report"
    names = [".report.0a1b2c3d", ".report.0a1b2c3d.old", ".report.notes", ".other.0a1b2c3d"]
    for name in (*names, ".report.00000000"):
        (tmp_path / name / "checks").mkdir(parents=True)
    for name in names:
        os.utime(tmp_path / name, (0, 0))
    for gone in ([names[0]], names[:2]):
        with page_writer.replaced(out) as folder:
            (folder / page_writer.MARK).write_text("{}")
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"report", ".report.00000000", *names} - {*gone}
