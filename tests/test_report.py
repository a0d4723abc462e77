"""`plumbline report`: what its pages tell, and how it is written."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import itertools
import json
import os
import re
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
from click.testing import CliRunner
from plumbline import cli
from plumbline.core.errors import Fault
from plumbline.history import history
from plumbline.history.history import History
from plumbline.history.series import Key, Selection, Series
from plumbline.output import report
from plumbline.output.report import figures, findings, site, status, text
from reports import (  # noqa: F401 - fixtures
    NOW,
    SLOW,
    UTC,
    assert_links_resolve,
    demo_,
    one,
    pages_,
    sessions_of,
    shown,
    write,
)

#: What each section of the start page says when there is nothing in it.
EMPTY = {
    "red": "Nothing that was measured is red. What was not measured or not asserted is listed "
           "below.",
    "changed": "No change was found in the last 30 days.",
    "waived": "Nothing is waived.",
    "near-bound": "No figure that passed is in the warning band.",
    "noticed": "No figure is too good, no single sample is far off, and no fault was found on "
               "standard error.",
    "skipped": "Nothing was skipped.",
    "unasserted": "Every figure that was measured was compared with a reference.",
}  # fmt: skip


def test_all_links_and_anchors_resolve(pages):
    assert assert_links_resolve(pages) > 500


def test_a_session_tells_build_hosts_job_and_output(pages, demo):
    folder = max(path for path in (demo / "sessions").iterdir())
    fields = json.loads((folder / "records.jsonl").read_text().splitlines()[0])
    content = max((pages / "sessions").iterdir()).read_text()
    for told in (
        fields["build"]["sha256"],
        fields["hosts"][fields["nodes"][0]]["kernel"],
        fields["jobid"],
        fields["output"],
    ):
        assert told in content


# -- what it tells ------------------------------------------------------------------------------


def test_today_tells_what_is_red(pages):
    content = shown(pages / "index.html", "red")
    assert content.startswith("Red now 5 ")
    for told in ("nid0007", "above its ceiling", "truncated", "TIMEOUT", "13 sessions", "new"):
        assert told in content
    assert "fio" not in content
    assert "ior_easy" not in content


def test_today_tells_waivers_skips_and_what_is_not_asserted(pages):
    path = pages / "index.html"
    waived = shown(path, "waived")
    assert "ticket 4711" in waived and "storage team" in waived and "in 11 days" in waived
    assert "apt-get install fio" in shown(path, "skipped")
    unasserted = shown(path, "unasserted")
    assert "gpcnet_load" in unasserted and "it needs 3 samples" in unasserted
    assert "file_creation_rate" in shown(path, "near-bound")


def test_what_passed_and_asserts_nothing_is_no_pass(demo):
    with History(demo) as history:
        (alder, *_), _ = _standings(history, demo)
    statuses = {case.check: case.status for case in alder.cases}
    assert statuses["gpcnet_load"] == "not-asserted"
    assert statuses["mdtest_easy"] == "pass"


def _standings(history, folder: Path, now: datetime.datetime | None = None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_SYSTEMS", str(folder / "systems"))
        now = now or datetime.datetime.now(UTC)
        found = status.of_systems(
            history, history.sessions(), Selection(), now, datetime.timedelta(hours=48)
        )
    return sorted(found, key=lambda one: one.system), now


def test_the_page_of_a_system_lists_its_checks(pages):
    content = one(pages, "systems/alder-*.html").read_text()
    checks = [path.name for path in (pages / "checks").glob("alder-*")]
    assert checks and all(f'href="../checks/{name}"' in content for name in checks)


def test_changes_are_told_together(pages):
    content = shown(pages / "index.html", "changed")
    latency = re.search(r"osu_p2p operation=latency alder .*?(?=osu_p2p|babelstream|$)", content)[0]
    assert "and 3 more" in latency


def test_a_change_that_cannot_be_sure_says_why(pages):
    content = (pages / "changes.html").read_text()
    assert "Above its ceiling: the measurement is wrong" in content


def test_the_papers_figures_stand_beside_ours(pages, demo):
    content = (pages / "published.html").read_text()
    section = re.search(r'<section id="osu-latency-8-on-socket.*?</section>', content, re.S)[0]
    row = re.search(r"<tr><th[^>]*><a[^>]*>trinity</a>.*?</tr>", section, re.S)[0]
    assert "0.67 ± 0.01 us" in row
    path = one(pages, "data/alder-osu-p2p-operation-latency*/latency-8-*.csv")
    ours = [float(line["value"]) for line in csv.DictReader(path.open())][-figures.LATEST :]
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


def test_a_csv_history_makes_the_same_report_without_session_pages(demo, pages, tmp_path):
    exported = ["history", "export", "--from", str(demo), "-o", str(tmp_path / "all.csv")]
    assert CliRunner().invoke(cli.main, exported).exit_code == 0
    write(demo, tmp_path / "out", source=tmp_path / "all.csv")
    assert shown(tmp_path / "out" / "index.html", "red").startswith("Red now 5 ")
    assert not (tmp_path / "out" / "sessions").exists()
    assert_links_resolve(tmp_path / "out")


# -- sessions that are not as usual -------------------------------------------------------------


def test_a_check_run_by_hand_does_not_hide_what_the_night_found(tmp_path):
    folder = sessions_of(
        tmp_path, [{"check": "slow", "figures": [SLOW]}, {"check": "well"}], [{"check": "well"}]
    )
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    (red,) = alder.red
    assert (red.check, red.late, red.sessions) == ("slow", True, 1)
    write(folder, tmp_path / "out", now=NOW)
    assert (
        "The latest session did not run 1 of them" in (tmp_path / "out" / "index.html").read_text()
    )


def test_a_case_that_passes_again_is_red_no_longer(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}], [{}])
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    assert alder.red == []


def test_a_retry_does_not_replace_the_first_verdict(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}, {"attempt": 1}])
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    assert [case.status for case in alder.cases] == ["fail"]


def test_since_when_a_case_is_red_is_told_without_a_break(tmp_path):
    folder = sessions_of(
        tmp_path, [{"figures": [SLOW]}], [{}], [{"figures": [SLOW]}], [{"figures": [SLOW]}]
    )
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    (red,) = alder.red
    assert (str(red.since), red.sessions) == ("2026-11-20T02:00:00", 2)


def test_a_case_of_the_inventory_that_no_session_has_is_told(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    path = folder / "systems" / "inventory" / "alder.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"stream @alder:cpu+gnu-mpich": 1, "gone @alder:cpu+gnu-mpich": 2}))
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    assert [case.check for case in alder.having("never-run")] == ["gone"]
    write(folder, tmp_path / "out", now=NOW)
    assert "the inventory has it, but no session" in (tmp_path / "out" / "index.html").read_text()


def test_a_case_of_the_inventory_that_one_session_had_is_red(tmp_path):
    folder = sessions_of(tmp_path, [{"check": "old"}, {}], [{}])
    path = folder / "systems" / "inventory" / "alder.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"old @alder:cpu+gnu-mpich": 1}))
    records = min((folder / "sessions").iterdir()) / "records.jsonl"
    records.write_text(records.read_text().replace("2026-11-20T", "2026-11-02T"))
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    assert [case.check for case in alder.red] == ["old"]


def test_a_case_that_sessions_had_and_the_last_week_lacks_is_red(tmp_path):
    folder = sessions_of(tmp_path, *([[{"check": "old"}, {}]] * 3), [{}])
    for path in sorted((folder / "sessions").iterdir())[:3]:
        records = path / "records.jsonl"
        records.write_text(records.read_text().replace("2026-11-20T", "2026-11-02T"))
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    (gone,) = alder.having("vanished")
    assert gone.check == "old"


def test_a_session_that_is_old_or_cut_off_has_a_banner(tmp_path):
    folder = sessions_of(tmp_path, [{}], planned=3)
    write(folder, tmp_path / "out", now=NOW + datetime.timedelta(days=5))
    content = (tmp_path / "out" / "index.html").read_text()
    assert "The latest session is 6 days old" in content
    assert "was cut off: 3 of 4 planned cases have no result" in content
    assert "has not ended" not in content
    write(folder, tmp_path / "out", now=NOW)
    assert "may be out of date" not in (tmp_path / "out" / "index.html").read_text()


def test_a_session_that_still_runs_is_told_as_such_and_makes_nothing_red(tmp_path):
    night = [{"check": "slow"}, {"check": "well"}, {"check": "well", "attempt": 1}]
    folder = sessions_of(tmp_path, *([night] * 4))
    running = max((folder / "sessions").iterdir())
    lines = (running / "records.jsonl").read_text().splitlines(keepends=True)
    (running / "records.jsonl").write_text("".join(lines[1:]))
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    assert (alder.red, alder.missing, alder.running) == ([], 1, True)
    write(folder, tmp_path / "out", now=NOW)
    content = (tmp_path / "out" / "index.html").read_text()
    assert "1 of 2 planned cases have a result; its last result is 9 hours old" in content
    assert "cut off" not in content and "vanished" not in content
    assert "running" in (tmp_path / "out" / "sessions.html").read_text()
    assert "last result 2026-11-20 03:00" in content and "ended 2026" not in content
    assert "It has not ended" in (tmp_path / "out" / f"sessions/{text.slug(running.name)}.html"
                                  ).read_text()  # fmt: skip
    (running / "end.json").write_text("{}")
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    assert (alder.missing, alder.running) == (1, False)


def test_a_session_whose_first_case_still_runs_is_told_as_such(tmp_path):
    folder = sessions_of(tmp_path, [{}], [{}])
    begun = max((folder / "sessions").iterdir())
    (begun / "records.jsonl").unlink()
    os.utime(begun, ns=(int(NOW.timestamp() - 600) * 10**9,) * 2)
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    assert (alder.running, alder.missing, alder.red) == (True, 1, [])
    write(folder, tmp_path / "out", now=NOW)
    content = (tmp_path / "out" / "index.html").read_text()
    assert "0 of 1 planned cases have a result; its last result is 10 minutes old" in content
    page = max((tmp_path / "out" / "sessions").iterdir()).read_text()
    assert "No record of this session can be read." in page


def test_what_is_to_be_looked_at_stands_on_the_start_page_and_the_sessions_own(tmp_path):
    notice = {"state": "suspicious", "code": "no-congestion", "figure": "", "detail": "too calm",
              "source": ""}  # fmt: skip
    folder = sessions_of(tmp_path, [{"check": "gpcnet_load", "warnings": [notice]}])
    write(folder, tmp_path / "out", now=NOW)
    content = shown(tmp_path / "out" / "index.html", "noticed")
    for text_part in ("suspicious", "gpcnet_load", "too calm no-congestion"):
        assert text_part in content
    page = max((tmp_path / "out" / "sessions").iterdir()).read_text()
    assert "s-suspicious" in page and "too calm" in page


def test_cases_that_were_not_asked_for_are_not_missing(tmp_path):
    folder = sessions_of(tmp_path, [{"check": "slow"}, {"check": "well"}])
    write(folder, tmp_path / "out", select=Selection(check="well"), now=NOW)
    content = (tmp_path / "out" / "index.html").read_text()
    assert "cut off" not in content and "has not ended" not in content


def test_a_session_of_the_future_is_told(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    write(folder, tmp_path / "out", now=NOW - datetime.timedelta(days=2))
    assert "is in the future" in (tmp_path / "out" / "index.html").read_text()
    write(folder, tmp_path / "out", now=NOW)
    assert "is in the future" not in (tmp_path / "out" / "index.html").read_text()


def test_a_session_in_which_all_was_skipped_is_told_as_such(tmp_path):
    skipped = {"result": "skip", "reason": "no network", "figures": [], "output": None}
    folder = sessions_of(tmp_path, [skipped])
    made = write(folder, tmp_path / "out", now=NOW)
    assert (made.series, made.red) == (0, 0)
    content = " ".join((tmp_path / "out" / "index.html").read_text().split())
    assert "None red of 1 test case, but none passed" in content
    assert "Nothing is red, but nothing was measured." in content
    assert "from 1 session and 0 series" in content
    assert "no network" in shown(tmp_path / "out" / "index.html", "skipped")
    for name in ("changed", "unasserted"):
        assert shown(tmp_path / "out" / "index.html", name).endswith(" 0 Nothing was measured.")
    check = one(tmp_path / "out", "checks/alder-stream*.html")
    assert "This check measured nothing." in check.read_text()
    told = "No paper in the reference tables has a figure that was measured here."
    assert told in (tmp_path / "out" / "published.html").read_text()
    assert_links_resolve(tmp_path / "out")


def test_a_section_with_nothing_in_it_says_so(tmp_path):
    first = datetime.date(2026, 10, 30)
    nights = [[{"time": f"{first + datetime.timedelta(night)}T02:00:00Z"}] for night in range(22)]
    write(sessions_of(tmp_path, *nights), tmp_path / "out", now=NOW)
    today = tmp_path / "out" / "index.html"
    assert {name: shown(today, name).partition(" 0 ")[2] for name in EMPTY} == EMPTY
    changes = (tmp_path / "out" / "changes.html").read_text()
    assert '<p class="calm">No change was found.</p>' in changes
    gone = (tmp_path / "out" / "references" / "gone.html").read_text()
    assert "No reference table has this row any more." in gone


def test_a_reason_that_was_not_recorded_is_told_as_such(tmp_path):
    lost = {"reason": None, "figures": [], "output": None}
    folder = sessions_of(tmp_path, [lost | {"check": check, "result": check}
                                    for check in ("error", "skip")])  # fmt: skip
    write(folder, tmp_path / "out", now=NOW)
    for name in ("red", "skipped"):
        assert "no reason was recorded" in shown(tmp_path / "out" / "index.html", name)


def test_a_clock_that_jumped_back_over_midnight_makes_all_pages(tmp_path):
    folder = sessions_of(tmp_path, *([[{}, {"time": "2026-11-19T23:00:00Z"}]] * 9))
    write(folder, tmp_path / "out", now=NOW)
    assert_links_resolve(tmp_path / "out")


def run(folder: Path, *arguments: object):
    env = {
        "PLUMBLINE_REFERENCE": str(folder / "reference"),
        "PLUMBLINE_SYSTEMS": str(folder / "systems"),
        "PLUMBLINE_RESULTS": str(folder),
    }
    return CliRunner().invoke(cli.main, ["report", *map(str, arguments)], env=env)


def test_no_session_is_said_in_words_with_2(tmp_path):
    done = run(tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "plumbline:" in done.output and "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_a_red_case_is_no_failure_of_the_report(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    done = run(folder, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "1 test case red" in done.output


def test_a_line_that_is_cut_off_is_told_on_the_page_and_with_2(tmp_path):
    folder = sessions_of(tmp_path, [{}, {"check": "lost"}])
    path = one(folder, "sessions/*/records.jsonl")
    path.write_text(path.read_text()[:-200])
    done = run(folder, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "skipped:" in done.output and "records.jsonl:2" in done.output
    assert "records.jsonl:2" in shown(tmp_path / "out" / "index.html", "left")


# -- the folder ---------------------------------------------------------------------------------


def test_a_folder_that_is_no_report_is_left_alone(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    done = run(folder, "--out", out)
    assert done.exit_code == 2
    assert "is not a report" in done.output
    assert [path.name for path in out.iterdir()] == ["chapter.txt"]


def test_the_next_report_takes_the_place_of_the_last_whole(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    out = tmp_path / "out"
    out.mkdir()
    assert run(folder, "--out", out).exit_code == 0
    (out / "systems" / "gone.html").write_text("of an earlier report")
    assert run(folder, "--out", out).exit_code == 0
    assert not (out / "systems" / "gone.html").exists()
    assert out.stat().st_mode & 0o777 == (tmp_path / "sessions").stat().st_mode & 0o777
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_a_report_that_cannot_be_written_leaves_the_last(tmp_path, monkeypatch):
    folder = sessions_of(tmp_path, [{}])
    assert run(folder, "--out", tmp_path / "out").exit_code == 0
    before = (tmp_path / "out" / "index.html").read_text()

    def full(self, path, content):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(site.Site, "file", full)
    done = run(folder, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "No space left" in done.output
    assert (tmp_path / "out" / "index.html").read_text() == before
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_characters_that_cannot_be_seen_are_shown_as_such():
    assert text.clean("a\u202eb\ud800\x07\n") == "a\ufffdb\ufffd\ufffd\n"


# -- pieces -------------------------------------------------------------------------------------


def a_series(values, location="", node="", **fields) -> Series:
    count = len(values)
    times = np.datetime64("2026-08-01", "s") + np.arange(count) * np.timedelta64(1, "D")
    empty = np.full(count, np.nan)
    made = Series(
        Key("alder", "cpu", "gnu", "stream", "triad", -1, location, "all-cores", "", node),
        "babelstream", "GB/s", "higher", np.array([f"s{i}" for i in range(count)], object), times,
        np.array(values, float), empty, empty, empty, np.array(["pass"] * count, object),
        np.array([""] * count, object), np.array(["b"] * count, object),
        np.array([node] * count, object), [[v] for v in values],
    )  # fmt: skip
    return dataclasses.replace(made, **fields)


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
    data = figure.data({}, None)
    assert (data["low"], data["high"]) == ([1.0, 2.0, 4.0], [3.0, 9.0, 4.0])
    assert figure.latest == 4.0


def test_a_change_that_is_not_sure_yet_says_what_that_means():
    def change(**fields) -> findings.SeriesChange:
        began = np.datetime64("2026-08-01", "s")
        known = {"kind": "regression", "confirmed": False, "sessions": 1} | fields
        return findings.SeriesChange(key=a_series([1]).key, size=-0.05, confidence=0.9, worse=True,
                               start=1, began=began, detected=began, before="a", after="b",
                               until=None, active=True, **known)  # fmt: skip

    assert "a single session may be an outlier" in change().doubt
    assert "has had outliers before" in change(kind="suspect").doubt
    assert "It has lasted for 9 sessions" in change(sessions=9).doubt
    assert change(confirmed=True).doubt == ""
    above = change(kind="improvement", above_ceiling=True)
    assert above.word == "above-ceiling" and "the measurement is wrong" in above.doubt


def test_a_young_history_says_from_when_on_changes_are_looked_for(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    write(folder, tmp_path / "out", now=NOW)
    told = "Changes can be found once a figure has been measured on 21 nights. None has been yet."
    assert told in shown(tmp_path / "out" / "index.html", "changed")
    assert told in (tmp_path / "out" / "changes.html").read_text()


def test_what_never_varied_is_drawn_in_the_middle():
    path, _ = text.spark(np.array([5.0, 5.0]), height=28)
    assert path.endswith(" 14")


def test_changes_of_one_check_that_began_together_are_one_event():
    def change(metric: str, day: int, kind: str = "regression"):
        began = np.datetime64("2026-08-01", "s") + np.timedelta64(day, "D")
        key = dataclasses.replace(a_series([1]).key, metric=metric)
        return findings.SeriesChange(
            key, kind, -0.05, 0.9, True, day, began, began, "a", "b", None, True, True
        )

    events = findings.events(
        [change("a", 3), change("b", 4), change("c", 20), change("a", 3, "transient")]
    )
    assert sorted(len(event.changes) for event in events) == [1, 1, 2]


def test_many_series_are_judged_as_few_are(monkeypatch):
    noise = np.random.default_rng(3).normal(1, 0.01, (12, 60))
    series = [a_series(np.where(np.arange(60) < 40, 100, 90) * row, location=f"g{i}")
              for i, row in enumerate(noise)]  # fmt: skip
    alone = findings.of_all(series, len(series))
    monkeypatch.setattr(findings, "MANY", 2)
    several = findings.of_all(series, len(series))
    assert len(alone) == len(series)

    def told(all_of):
        return {k: [(c.kind, c.before, c.after) for c in found] for k, found in all_of.items()}

    assert told(several) == told(alone)


def test_checks_are_read_in_pieces_as_they_are_at_once(demo, monkeypatch):
    def told(series: Iterable[Series]) -> list[tuple]:
        found = ((one.key, one.values.tolist(), one.sessions.tolist()) for one in series)
        return sorted(found, key=lambda item: (item[0].system, item[0].check, item[0]))

    select = Selection(system="alder")
    with History(demo) as found:
        whole, checks = told(found.series(select)), found.measured(select)
        assert sum(one.series for one in checks) == len(whole)
        assert sum(one.values for one in checks) == sum(len(values) for _, values, _ in whole)
        assert max(one.most for one in checks) == max(len(values) for _, values, _ in whole)
        for values in (1, 700, 10**6):
            monkeypatch.setattr(history, "_AT_ONCE", values)
            read = list(found.by_check(checks, select))
            assert [{(one.key.system, one.key.check) for one in listed} for listed in read] == [
                {(one.system, one.check)} for one in checks
            ]
            assert told(itertools.chain(*read)) == whole


_PEAK = """
import sys
from pathlib import Path
from plumbline.history import history
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
        folder, nights = tmp_path / str(series), findings.NIGHTS - 1
        cases = series // bench_report.SIZES * nights
        bench_history.write_year(folder, cases, nights, bench_report.SYSTEMS, bench_report.sizes)
        with History(folder):
            pass  # Its index is made here, and no part of what the report takes.
        content = subprocess.run([sys.executable, "-c", _PEAK, folder], check=True, text=True,
                              capture_output=True).stdout  # fmt: skip
        made, peaks[series] = map(int, content.split())
        assert made == series
    assert peaks[4000] < 1.5 * peaks[1000]


def test_numbers_are_told_with_the_digits_that_count():
    told = [text.number(v) for v in (0.85123, 183.2512, 11583.1, 1234567.0, 0, 1e-7)]
    assert told == ["0.85123", "183.25", "11,583", "1,234,567", "0", "1.0000e-07"]
    assert [text.percent(v) for v in (0.0512, -0.2, 0.00001, 2.5)] == [
        "+5.1\u202f%", "\u221220.0\u202f%", "0.0\u202f%", "+250\u202f%",
    ]  # fmt: skip
    assert [text.size(v) for v in (0, 8, 4096, 1 << 20, -1)] == ["0 B", "8 B", "4 KiB", "1 MiB", ""]


def test_a_waiver_that_is_gone_or_expired_is_told(demo):
    found = SimpleNamespace(waivers={}, now=NOW)
    assert "any more" in report._Report.expiry(found, "x")
    found.waivers["x"] = SimpleNamespace(expires=NOW.date() - datetime.timedelta(days=1))
    assert "expired" in report._Report.expiry(found, "x")


def test_the_page_of_the_speed_is_rendered_from_its_figures():
    docs = demo_history.ROOT / "docs"
    told = json.loads((docs / "report-speed.json").read_text())
    assert bench_report.render(told) == (docs / "report-speed.md").read_text()


def test_the_bench_makes_as_many_series_as_it_says(tmp_path):
    written = bench_history.write_year(tmp_path, 4 * 3, 3, bench_report.SYSTEMS, bench_report.sizes)
    with History(tmp_path) as history:
        assert len(history.series()) == 4 * bench_report.SIZES
    assert written == 12


def test_out_may_not_be_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Fault, match="is a file"), site.replaced(tmp_path / "file"):
        pass
