"""Figures over many nodes: medians of fleets and sweeps, and their changes."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import demo_history
import numpy as np
import pytest
from node_reports import figures_of, measured, of_nodes, of_pairs, pixels, shares
from plumbline.analysis.trend import series_changes
from plumbline.history import fleets
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.output.report import charts, figures, findings, heat, slow_nodes
from reports import DAY, NOW, TRIAD, one, report_page, sessions_of, swept


def test_the_worst_node_is_beside_the_median_of_each_message_size(tmp_path):
    usual = {"metric": "bandwidth", "unit": "GB/s", "better": "higher"}
    speeds = {"n0": 300.0, "n1": 290.0, "n2": 200.0}
    cases = [
        {
            "check": f"p2p %.nid={node}",
            "nodes": [node],
            "figures": [usual | {"size": 8 << at, "value": speed + at} for at in range(4)],
        }
        for node, speed in speeds.items()
    ]
    content = report_page(sessions_of(tmp_path, cases), "checks/*.html").read_text()
    section = re.search(r'<section class="figure" id="curve-.*?</section>', content, re.S)[0]
    cells = re.findall(r'</th><td class="num">(.*?)</td>', section)
    shown = [re.sub("<[^>]*>", " ", cell).split() for cell in cells]
    assert shown == [[f"{290 + at}", "GB/s", "worst", f"{200 + at},", "n2"] for at in range(4)]
    rows = list(csv.DictReader(one(tmp_path / "out", "data/*/curve-*.csv").open()))
    found = [(float(row["latest"]), float(row["worst"]), row["worst_at"]) for row in rows]
    assert found == [(290.0 + at, 200.0 + at, "n2") for at in range(4)]


@pytest.mark.parametrize("fleet", [12, 13])
def test_a_step_of_many_nodes_is_found_in_their_median(fleet, tmp_path, monkeypatch):
    """Nodes that are fewer than a fleet are searched one by one; a slow node is found in both."""
    case = demo_history.Demo.case

    def slower(demo, system, night, check, benchmark, placement, figures, **fields):
        if benchmark == "babelstream" and system == "alder" and night >= 30:
            figures = [one | {"value": one["value"] * 0.9} for one in figures]
        return case(demo, system, night, check, benchmark, placement, figures, **fields)

    monkeypatch.setattr(demo_history.Demo, "case", slower)
    monkeypatch.setattr(series_changes, "FLEET", fleet)
    demo_history.write(tmp_path, nights=45)
    page = report_page(tmp_path, "checks/alder-babelstream-cpu*.html", now=None)
    shown = changes_of(page, figures=1)
    sizes = shares(" ".join(shown))
    assert any(size == pytest.approx(10, abs=0.5) for size in sizes)
    assert any("nid0007" in item for item in shown)
    assert any("nid" not in item and "since" in item for item in shown) == (fleet == 12)


def changes_of(page: Path, figures: int | None = None) -> list[str]:
    """The changes that a page has, of the first figures or of all."""
    listed = re.findall(r'<ul class="plain changes">(.*?)</ul>', page.read_text(), re.S)[:figures]
    return [re.sub("<[^>]*>", "", item) for item in "".join(listed).split("<li>")[1:]]


def test_a_loss_at_one_of_many_places_of_nodes_is_found(tmp_path, monkeypatch):
    """Neither is the report lost, nor does another place hide a value in the heat map."""
    monkeypatch.setattr(series_changes, "FLEET", 5)
    random = np.random.default_rng(11)
    nights = []
    for night in range(26):
        cases = of_nodes({f"n{n}": 300.0 for n in range(5)})
        for case in cases:
            case["figures"] = [
                TRIAD | {"location": f"gpu0-gpu{place + 1:02}", "value": 300
                         * random.normal(1, 0.003) * (0.8 if night > 17 and not place else 1)}
                for place in range(13)
            ]  # fmt: skip
        nights.append(cases)
    folder = sessions_of(tmp_path, *nights, apart=DAY)
    page = report_page(folder, "checks/*.html", now=NOW + 26 * DAY)
    assert shares(changes_of(page)[0]) == [pytest.approx(20, abs=1)]
    maps = sorted((tmp_path / "out" / "data").glob("*/*.png"))
    assert len(maps) == 13
    worse = [np.isin(pixels(path)[:, -3:], range(1, 1 + len(heat.STEPS))).all() for path in maps]
    assert worse.count(True) == 1


def test_a_loss_is_found_of_a_check_that_also_ran_on_each_node(tmp_path, monkeypatch):
    monkeypatch.setattr(series_changes, "FLEET", 5)
    random = np.random.default_rng(12)
    nights = []
    for night in range(26):
        value = 300 * random.normal(1, 0.004) * (0.8 if night > 17 else 1)
        cases = [{"nodes": ["n0", "n1"]} | measured(value, reference=None)]
        if night % 5 == 0:
            cases += of_nodes({f"n{n}": 300 * random.normal(1, 0.004) for n in range(5)})
        nights.append(cases)
    folder = sessions_of(tmp_path, *nights, apart=DAY)
    page = report_page(folder, "checks/*.html", now=NOW + 26 * DAY)
    assert pytest.approx(20, abs=1) in shares(" ".join(changes_of(page)))
    ids = re.findall(r'<section[^>]* id="(triad[^"]*)"', page.read_text())
    assert len(ids) == len({*ids}) == 2


def test_a_suspect_that_is_measured_again_is_not_the_fleet(tmp_path, monkeypatch):
    monkeypatch.setattr(series_changes, "FLEET", 5)
    random = np.random.default_rng(13)
    sessions = []
    for night in range(26):
        factor = {"n7": 0.8 if night > 17 else 1.0}
        sessions.append(of_nodes(
            {f"n{n}": 300 * random.normal(1, 0.003) * factor.get(f"n{n}", 1) for n in range(8)}
        ))  # fmt: skip
        for _ in range(3):
            again = {"n7": 300 * random.normal(1, 0.003) * factor["n7"]}
            sessions.append(of_nodes(again if night > 17 else {"n0": again["n7"]}))
    folder = sessions_of(tmp_path / "site", *sessions, apart=DAY / 4)
    with History(folder) as history:
        ((series, number),) = fleets.medians(history, Selection(), 5)
    assert (number, len(series.values)) == (8, 26)
    assert series.values.min() > 295


def test_a_fleet_of_which_most_nodes_are_gone_is_searched_again(tmp_path):
    """Its nights with the others stay; for at most thirty days it seems to be measured in part."""
    nights = [of_nodes({f"n{n}": 300.0 for n in range(8)})] * 60
    nights += [of_nodes({f"n{n}": 300.0 for n in range(3)})] * 60
    with History(sessions_of(tmp_path, *nights, apart=DAY)) as history:
        ((series, _),) = fleets.medians(history, Selection(), 5)
    of = {int(name[-6:], 16) for name in series.sessions}
    assert {*range(120)} - of <= {*range(60, 90)}


def test_the_nights_of_a_fleet_are_in_its_newest_unit(tmp_path):
    nights = [of_nodes({f"n{n}": 300.0 for n in range(5)}, unit="GB/s")] * 2
    nights += [of_nodes({f"n{n}": 3e5 for n in range(5)}, unit="MB/s")] * 2
    with History(sessions_of(tmp_path, *nights, apart=DAY)) as history:
        ((series, _),) = fleets.medians(history, Selection(), 5)
    assert (series.unit, series.values.tolist()) == ("MB/s", pytest.approx([3e5] * 4))


def test_the_terminal_acknowledges_what_the_page_proposes(tmp_path, monkeypatch):
    """The loss of a fleet's median, and not that of each node."""
    monkeypatch.setattr(series_changes, "FLEET", 5)
    random = np.random.default_rng(14)
    nights = [
        of_nodes(
            {f"n{n}": 300 * random.normal(1, 0.003) * (0.9 if night > 17 else 1) for n in range(6)},
            reference=200.0,
        )
        for night in range(26)
    ]
    folder = sessions_of(tmp_path, *nights, apart=DAY)
    monkeypatch.setenv("PLUMBLINE_SITE", str(folder))
    content = report_page(folder, "changes.html", now=NOW + 26 * DAY).read_text()
    (proposed,) = {*re.findall(r"plumbline waive ([\w-]+)", content)}
    with History(folder) as history:
        found = findings.to_acknowledge(history, Selection(), NOW + 26 * DAY)
    assert [one.id for one in found] == [proposed]


def test_a_later_session_of_one_node_does_not_hide_that_another_failed(tmp_path):
    nodes = {f"n{n}": 300.0 for n in range(6)}
    folder = sessions_of(tmp_path, of_nodes(nodes | {"n3": 200.0}), of_nodes({"n5": 300.0}))
    content = report_page(folder, "systems/*.html").read_text()
    assert re.search(r"1 of 6[^<]*fail|1 of 6", content)
    assert "200" in content


def test_each_node_of_a_sweep_keeps_its_result(tmp_path):
    def swept(node: str, value: float) -> list[dict]:
        return [{"nodes": [node], "extras": {"sweep": "w1", "node": node}} | measured(value)]

    values = {"n1": 300.0, "n2": 200.0, "n3": 300.0}
    folder = sessions_of(tmp_path / "site", *[swept(*one) for one in values.items()])
    content = report_page(folder).read_text()
    assert '<strong class="t-red">1 red</strong> of 3 test cases' in content
    (row,) = re.findall(r'<li class="row">.*?</li>', content[content.index('id="red"') :], re.S)[:1]
    assert "n2" in row
    # Measured again, it is red no longer.
    folder = sessions_of(
        tmp_path / "more", *[swept(*one) for one in values.items()], swept("n2", 300)
    )
    assert "None red of 3 test cases" in report_page(folder).read_text()


def test_the_latest_of_a_sweep_is_the_median_of_its_night_with_the_worst_node_beside(tmp_path):
    before = {f"n{node}": 300.0 for node in range(6)}
    now = {"n0": 310.0, "n1": 311.0, "n2": 312.0, "n3": 211.0, "n4": 314.0, "n5": 315.0}
    (figure,) = figures_of(swept(tmp_path, before, before, now))
    assert (figure.latest, figure.worst, figure.usual) == (311.5, ("n3", 211.0), 300.0)
    sessions, _, medians = figure.history
    assert [name[:15] for name in sessions] == [f"202511{day}T000000" for day in (20, 21, 22)]
    assert medians.tolist() == [300.0, 300.0, 311.5]
    assert figure.over_nodes["name"] == [*now]
    assert figure.over_nodes["value"][3] == [(0, 300.0), (1, 300.0), (2, 211.0)]
    data = charts.data(figure, {}, None)
    assert (data["low"], data["count"]) == ([300.0, 300.0, 211.0], [6, 6, 6])
    # Sessions can still be compared one by one.
    assert len({*figure.by_session[0]}) == 18


def test_values_of_other_sessions_are_no_sweep(tmp_path):
    """Neither those of a job that a scheduler puts on one of many nodes."""
    cases = [[{"nodes": [f"n{number}"]}] for number in range(5)]
    (figure,) = figures_of(sessions_of(tmp_path, *cases))
    assert (len(figure.members), figure.swept, len(figure.history[0])) == (1, False, 5)


def test_a_change_of_a_sweep_is_that_of_its_median(tmp_path):
    random = np.random.default_rng(15)
    nights = [
        {f"n{n}": 300 * random.normal(1, 0.003) * (0.9 if night > 17 else 1) for n in range(5)}
        for night in range(26)
    ]
    page = report_page(swept(tmp_path, *nights), "checks/*.html", now=NOW + 26 * DAY)
    (found,) = changes_of(page)
    assert shares(found) == [pytest.approx(10, abs=0.25)]
    content = page.read_text()
    assert "Table of 26 nights" in content
    # The loss does not become usual.
    assert re.search("<dt>Usual</dt>.*?\u2212(9|10)", content)


def test_the_value_of_a_node_is_the_median_over_its_pairs_of_a_night(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "PLACES", 3)
    first = {"n1:n2": 100.0, "n2:n3": 300.0, "n1:n3": 210.0}
    later = {"n1:n2": 140.0, "n2:n3": 180.0, "n1:n3": 250.0}
    folder = sessions_of(tmp_path, of_pairs(first), of_pairs(later), apart=DAY)
    (figure,) = figures_of(folder)
    assert [one.key.node for one in figure.of_nodes] == ["n1", "n2", "n3"]
    assert [one.values.tolist() for one in figure.of_nodes] == [
        [155.0, 195.0], [200.0, 160.0], [255.0, 215.0],
    ]  # fmt: skip
    verdicts = [one.verdicts.tolist() for one in figure.of_nodes]
    assert verdicts == [["fail", "fail"], ["fail", "fail"], ["pass", "fail"]]
    made = heat.of(figure, slow_nodes.Screened())
    assert (made.nodes, made.values[:, 1].tolist()) == (["n1", "n2", "n3"], [195.0, 160.0, 215.0])
    # Of one night, though in two sessions.
    folder = sessions_of(tmp_path / "more", of_pairs(first), of_pairs({"n1:n2": 400.0}))
    (figure,) = figures_of(folder)
    assert [one.values.tolist() for one in figure.of_nodes] == [[210.0], [300.0], [255.0]]


def test_a_node_above_its_ceiling_has_a_line_of_its_own(tmp_path):
    nights = [
        of_nodes({f"n{n}": 300.0 if n else 500.0 for n in range(6)}, ceiling=460.8)
        for _ in range(3)
    ]
    (panel,) = figures_of(sessions_of(tmp_path, *nights))
    assert [line["name"] for line in charts.data(panel, {}, None)["lines"]] == ["n0"]
