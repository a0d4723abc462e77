"""Pages of flagged nodes, and what screening flags on the first page."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from node_reports import (
    of_pairs,
    pixels,
    shares,
    triad_,  # noqa: F401 - a fixture
)
from plumbline.analysis.screen import Flag
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.output.report import charts, figures, heat, slow_nodes
from plumbline.output.report.status import SystemState
from plumbline.placement.pairing import rounds
from plumbline.reference.waivers import Waiver
from reports import (  # noqa: F401 - fixtures
    DAY,
    NOW,
    a_series,
    chart_of,
    chromium_,
    demo_,
    kinds,
    new_window_,
    notes,
    one,
    pages_,
    report_page,
    sessions_of,
    swept,
    tab_to,
    window_,
    windows_,
)


def test_a_flagged_node_has_a_page_with_its_figures_and_commands(pages, window):
    page = window.open(pages / "index.html")
    tab_to(page, "a[href*='nid0007']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/*nid0007*")
    commands = page.locator("#again ~ dl code").all_inner_texts()
    assert "plumbline clear nid0007" in commands
    assert "plumbline sweep cpu --nodes nid0007 --mode=screen" in commands
    names = page.locator("table.figures tbody th a").all_inner_texts()
    assert sorted(names) == ["copy", "memory_bandwidth", "triad"]
    assert page.locator("[data-note=no-clearance]").count() == 1
    assert page.locator("section[aria-labelledby=sessions] tbody tr").count() > 20
    page.get_by_role("link", name="All checks that ran on it").click()
    page.wait_for_url("**/search.html#nid0007")
    page.locator("#results a[href*='osu-p2p']").first.wait_for()


def node_chart(pages, window):
    """The chart of the triad on the page of the slow node, in sight."""
    page = window.open(kinds(pages)["node"])
    figure = page.locator("section.figure", has=page.locator("h2:text('triad of')"))
    return page, figure, chart_of(figure)


def test_the_chart_of_a_node_has_its_values_and_the_median_of_its_peers(pages, window):
    rows = list(csv.DictReader(one(pages, "data/alder-babelstream-cpu*/triad-*.csv").open()))
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        values.setdefault(row["node"], {})[row["session"]] = float(row["value"])
    own = values.pop("nid0007")
    peers = [np.median([of[name] for of in values.values() if name in of]) for name in own]
    _, figure, chart = node_chart(pages, window)
    shown = chart.evaluate("c => c.chart.traces.map(t => [t.name ?? '', t.y])")
    assert dict(shown)["median of its peers"] == pytest.approx(peers, rel=1e-5)
    assert dict(shown)[""] == pytest.approx([*own.values()], rel=1e-5)
    labels = chart.locator("text.rule").all_text_contents()
    assert labels == ["flagged"]
    figure.locator("summary").press("Enter")
    figure.locator("td").first.wait_for()
    cells = figure.locator("tbody tr").first.locator("td").all_inner_texts()
    assert [float(cell) for cell in cells[1:3]] == pytest.approx(
        [[*own.values()][-1], peers[-1]], rel=1e-4
    )


def test_the_chart_of_a_node_is_read_and_zoomed_with_the_keyboard(pages, window):
    page, figure, chart = node_chart(pages, window)
    tab_to(page, "table.figures td a[href*='triad']")
    page.keyboard.press("Enter")
    anchor = page.evaluate("location.hash.slice(1)")
    assert page.locator(f"[id='{anchor}'] .chart").count() == 1
    tab_to(page, f"[id='{anchor}'] .chart")
    page.keyboard.press("ArrowRight")
    newest = chart.locator(".hint div").all_inner_texts()
    page.keyboard.press("ArrowUp")
    assert chart.locator(".hint div").nth(1).inner_text() == "median of its peers"
    page.keyboard.press("ArrowDown")
    assert chart.locator(".hint div").all_inner_texts() == newest
    page.keyboard.press("+")
    near = chart.evaluate("c => c.chart.view()")
    assert f"zoom.{anchor}.history" in page.url
    page.reload()
    chart_of(figure)
    assert chart.evaluate("c => c.chart.view().x") == pytest.approx(near["x"], rel=1e-9)


def test_the_last_clearance_and_changed_facts_are_on_the_page_of_a_node(demo, tmp_path, pages):
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("sessions", "reference"):
        (folder / name).symlink_to(demo / name)
    verdict = folder / "verdicts" / "alder" / "nid0007"
    verdict.parent.mkdir(parents=True)
    verdict.write_text("no-go 2025-11-20T10:00:00Z slower <b>\n")
    content = report_page(folder, "nodes/*.html", now=None).read_text()
    assert "no-go 2025-11-20T10:00:00Z slower &lt;b&gt;" in content
    assert 'data-note="clearance"' in content


def test_without_slow_nodes_there_is_no_page_of_one(tmp_path):
    page = report_page(sessions_of(tmp_path, [{}]))
    assert not (page.parent / "nodes").exists() and "not-screened" in notes(page)


@pytest.fixture(scope="session", name="swept_slow")
def swept_slow_(tmp_path_factory) -> Path:
    """The report of nights in which each node is swept, and n3 is 10 % slower from the 21st on."""
    random = np.random.default_rng(16)
    nights = [
        {f"n{n}": 300 * random.normal(1, 0.003) * (0.9 if n == 3 and night > 19 else 1)
         for n in range(8)}
        for night in range(60)
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("swept")
    return report_page(swept(folder, *nights), now=NOW + 60 * DAY).parent


def test_the_page_of_a_node_that_a_sweep_found_has_its_figures(swept_slow):
    content = one(swept_slow, "nodes/*n3*.html").read_text()
    (row,) = re.findall(r'<tr><th scope="row"><a href="[^"]*#triad.*?</tr>', content)
    # From its usual value before it was slow, 40 nights ago, and from its peers.
    assert shares(row) == pytest.approx([10, 10], abs=1.5)
    found = pixels(one(swept_slow, "data/*/*.png"))
    assert found.shape == (8, 60)
    worse = np.isin(found, range(1, 1 + len(heat.STEPS)))
    assert worse[3, 20:].all() and worse[[0, 1, 2, 4, 5, 6, 7]].sum() == 0


def test_a_node_that_is_flagged_by_its_pairs_has_a_figure_and_a_map(tmp_path):
    random = np.random.default_rng(17)
    nodes = [f"n{number}" for number in range(10)]
    nights = []
    for night in range(30):
        pairs = [pair for of_round in rounds(nodes, night) for pair in of_round]
        nights.append(of_pairs({
            ":".join(sorted(pair)): 300 * random.normal(1, 0.004)
            * (0.8 if "n3" in pair and night > 19 else 1)
            for pair in pairs
        }))  # fmt: skip
    folder = sessions_of(tmp_path, *nights, apart=DAY)
    content = report_page(folder, "nodes/*n3*.html", now=NOW + 30 * DAY).read_text()
    (row,) = re.findall(r'<tr><th scope="row"><a href="[^"]*#bandwidth.*?</tr>', content)
    assert shares(row) == pytest.approx([20, 20], abs=2)
    found = pixels(one(tmp_path / "out", "data/*/*.png"))
    worse = np.isin(found, range(1, 1 + len(heat.STEPS)))
    assert found.shape == (10, 30)
    assert worse[3, 20:].all() and worse.sum() == 10


def flag(kind: str, *name: str, size: float = 0.1, until: str | None = None) -> Flag:
    return Flag("20251120", kind, name, size, 1.0, "20251118", until)


def a_panel(*nights: dict[str, float], location: str = "") -> figures.Panel:
    """A figure of nodes with a session each, of which some measured it in each night."""
    names = sorted({name for night in nights for name in night})
    start = np.datetime64("2025-11-20T01", "s")
    members = []
    for name in names:
        at = [number for number, night in enumerate(nights) if name in night]
        sessions = np.array([f"2025112{day}T01-{name}" for day in at], object)
        times = start + np.array(at) * np.timedelta64(1, "D")
        values = [nights[day][name] for day in at]
        members.append(a_series(values, location, name, sessions=sessions, times=times))
    every = sorted({session for one in members for session in one.sessions.tolist()})
    night_of = {name: min(n for n in every if n[:8] == name[:8]) for name in every}
    return figures.Panel(members, night_of=night_of)


def test_peers_are_the_other_nodes_of_the_same_night():
    figure = a_panel({"a": 1.0, "b": 3.0, "c": 9.0}, {"a": 2.0}, {"a": 5.0, "b": 5.0},
                     {"b": 4.0, "c": 8.0, "d": 6.0})  # fmt: skip
    a, b, _, d = figure.of_nodes
    assert figure.peers.medians(a)[[0, 2]].tolist() == [6.0, 5.0]
    assert np.isnan(figure.peers.medians(a)[1])
    assert figure.peers.medians(b).tolist() == [5.0, 5.0, 7.0]
    assert figure.peers.medians(d).tolist() == [6.0]


def test_a_chart_of_a_node_marks_the_nights_on_which_it_was_flagged():
    figure = a_panel(*[{"a": 1.0, "b": 2.0}] * 6)
    nights = [figure.night(name) for name in figure.members[1].sessions]
    assert nights[2].endswith("-a")
    since = figure.members[1].sessions
    flags = [Flag(since[5], "node", ("b",), 0.1, 1.0, since[4], None),
             Flag(since[2], "node", ("b",), 0.1, 1.0, since[1], nights[2]),
             Flag(since[2], "pair", ("a", "b"), 0.1, 1.0, since[1], since[2]),
             Flag("20251130", "node", ("b",), 0.1, 1.0, "20251130", None)]  # fmt: skip
    made = charts.of_node(figure, figure.members[1], flags, {}, None)
    minutes = (figure.members[1].times.astype("datetime64[m]").astype(int)).tolist()
    assert [(one["time"], one["until"]) for one in made["changes"]] == [
        (minutes[4], None), (minutes[1], minutes[2]),
    ]  # fmt: skip
    assert (made["value"], made["peers"]) == ([2.0] * 6, [1.0] * 6)


def test_the_evidence_of_a_flag_names_its_figures():
    (gpu, other) = (a_panel({"a": 1.0}, location=f"gpu{number}") for number in (1, 2))
    about = "alder:cpu+gnu stream all-cores triad"
    flags = [Flag("n", "node", ("a",), 0.1, 1.0, "n", evidence=[f"{about} at side", about]),
             Flag("n", "gpu", ("a", "gpu1"), 0.1, 1.0, "n", evidence=[about]),
             Flag("n", "pair", ("a", "b"), 0.1, 1.0, "n", evidence=[f"{about} within racks"]),
             Flag("n", "node", ("a",), 0.1, 1.0, "n", evidence=[f"{about} of 8 B"])]  # fmt: skip
    node = slow_nodes.SlowNode("alder", "cpu", "a", True, flags)
    assert node.flags_of(gpu.key) == flags[:3]
    assert node.flags_of(other.key) == [flags[0], flags[2]]
    assert node.flags_of(a_panel({"a": 1.0}, location="side").key) == flags[:1]


def test_the_page_of_a_node_has_so_many_charts_at_most(monkeypatch):
    monkeypatch.setattr(slow_nodes, "CHARTS", 2)
    about = "alder:cpu+gnu stream all-cores triad"
    of = [Flag("2026", "node", ("b",), 0.1, 1.0, "2026", evidence=[about])]
    nodes = [
        slow_nodes.SlowNode("alder", "cpu", name, True, of if name == "b" else []) for name in "ab"
    ]
    for _ in range(3):
        slow_nodes.add_figure(nodes, a_panel({"a": 1.0, "b": 2.0}), "stream", "", None)
    assert [(len(one.figures), len(one.charted)) for one in nodes] == [(3, 0), (3, 2)]


def test_what_screening_flags_without_a_page_is_counted():
    flags = [flag("node", f"n{n:03}", size=0.1 + n / 1000) for n in range(slow_nodes.PAGES + 1)]
    flags += [flag("link", "r1", "r2"), flag("link", "r1", "r3", until="20251119")]
    flags += [flag("switch", "r1"), flag("pair", "n060", "n059")]
    found = slow_nodes.screened("alder", {}, flags)
    assert (len(found.nodes), found.omitted) == (slow_nodes.PAGES, 1)
    # The one with the smallest loss has no page.
    assert "n000" not in {one.node for one in found.nodes}
    assert [(one.kind, one.name) for one in found.links] == [
        ("link", ("r1", "r2")),
        ("switch", ("r1",)),
    ]


@pytest.mark.parametrize(("later", "old"), [(6, False), (8, True)])
def test_a_night_of_more_than_a_week_ago_tells_nothing_of_today(tmp_path, later, old):
    random = np.random.default_rng(19)
    nights = [{f"n{n}": 300 * random.normal(1, 0.003) for n in range(8)} for _ in range(3)]
    with History(swept(tmp_path, *nights)) as history:
        latest = history.sessions()[-1]
        latest = replace(latest, end=latest.end + np.timedelta64(later, "D"))
        state = SystemState("alder", latest, [], None, [])
        found = slow_nodes.of_system(history, state, Selection())
    assert (found.night[:8], found.old, found.judged) == ("20251122", old, not old)


KNOWN = Waiver(
    id="cable", reason="a cable is worn", owner="me", expires=NOW.date(),
    match={"system": "alder", "node": "r1:r2", "results": ["slow"]},
)  # fmt: skip

#: A session.
NIGHT = "20250920T020000Z-000001"


@pytest.mark.parametrize(
    ("screened", "notes"),
    [
        (slow_nodes.Screened(), {"not-screened"}),
        (slow_nodes.Screened(night=NIGHT, judged=True), {"no-slow-node"}),
        (slow_nodes.Screened(night=NIGHT, old=True), {"screened-before"}),
        (slow_nodes.Screened(links=[flag("link", "r1", "<r2>")], judged=True), {"slow-link"}),
        (slow_nodes.Screened(omitted=3, judged=True), {"more-slow-nodes", "no-slow-node"}),
        (
            slow_nodes.Screened(
                links=[replace(flag("link", "r1", "<r2>"), waiver=KNOWN)], judged=True
            ),
            {"slow-waived"},
        ),
    ],
)
def test_slow_links_and_nodes_without_a_page_are_on_the_first_page(
    screened, notes, tmp_path, monkeypatch
):
    monkeypatch.setattr(slow_nodes, "of_system", lambda *_: screened)
    content = report_page(sessions_of(tmp_path, [{}])).read_text()
    section = content[content.index('aria-labelledby="slow"') :]
    section = section[: section.index("</section>")]
    assert {*re.findall(r'data-note="([^"]*)"', section)} == notes
    assert ("2025-09-20" in section) == bool(screened.night)
    assert "<r2>" not in content
