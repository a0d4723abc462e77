"""CSV files of the report, and a report of a CSV file."""

from __future__ import annotations

import csv

import demo_history
from conftest import asked
from plumbline.history.history import History
from plumbline.history.series import Selection
from report_states import FAILS, PASSES, count, state
from reports import (  # noqa: F401 - fixtures
    SLOW,
    assert_links_resolve,
    demo_,
    notes,
    one,
    pages_,
    sessions_of,
    shown,
    write,
)


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


def test_a_csv_history_has_the_figures_of_repeats_and_retries(tmp_path):
    unasserted = {"figures": [SLOW | {"reference": None}]}
    retried = [unasserted | {"check": "retried", "attempt": n} for n in range(2)]
    folder = sessions_of(tmp_path, [PASSES | unasserted, FAILS | unasserted, *retried])
    path = tmp_path / "all.csv"
    assert asked("history", "export", "--from", folder, "-o", path).code == 0
    for source in (folder, path):
        found = {case.check: case.status for case in state(folder, source=source).cases}
        assert found == dict.fromkeys(("stream", "retried"), "not-asserted")
