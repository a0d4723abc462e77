"""Heat maps, pages of flagged nodes and the comparison of two sides, in a real browser."""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
import shlex
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import demo_history
import numpy as np
import pytest
from playwright.sync_api import expect
from plumbline.analysis.compare import sides
from plumbline.analysis.screen import Flag
from plumbline.core.errors import Fault
from plumbline.history import fleets
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.output.report import (
    by_node,
    charts,
    figures,
    heat,
    series_changes,
    session_pages,
    slow,
    triage,
)
from plumbline.output.report.status import SystemState
from plumbline.placement.pairing import rounds
from plumbline.reference.waivers import Waiver
from reports import (  # noqa: F401 - fixtures
    DAY,
    NOW,
    TRIAD,
    a_series,
    chart_of,
    chromium_,
    demo_,
    kinds,
    latencies,
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


def pixels(path: Path) -> np.ndarray:
    """The places in the palette of a heat map's image."""
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    at = content.index(b"IDAT")
    (length,) = struct.unpack(">I", content[at - 4 : at])
    rows = np.frombuffer(zlib.decompress(content[at + 4 : at + 4 + length]), np.uint8)
    return rows.reshape(height, width + 1)[:, 1:]


@pytest.fixture(name="triad")
def triad_(pages) -> str:
    """The anchor of a figure of many nodes."""
    return one(pages, "data/alder-babelstream-cpu*/triad-*.png").stem


def test_a_heat_map_shows_each_node_and_night_and_what_is_slow(pages, triad):
    found = pixels(one(pages, f"data/alder-babelstream-cpu*/{triad}.png"))
    slow = demo_history.NODES.index("nid0007")
    rows = list(csv.DictReader(one(pages, f"data/alder-babelstream-cpu*/{triad}.csv").open()))
    sessions = {row["session"] for row in rows}
    assert found.shape == (len(demo_history.NODES), len(sessions))
    # Its last six nights are 8 % worse: the second or the third step.
    worse = np.isin(found, range(1, 1 + len(heat.STEPS)))
    assert worse[slow, -6:].all()
    assert np.isin(found[slow, -6:], (1, 2, 3)).all()
    assert worse.sum() < 30
    content = one(pages, "checks/alder-babelstream-cpu*.html").read_text()
    assert re.search(r'<rect x="\d+" y="6" width="6" height="1"/>', content)


def test_the_cells_of_a_heat_map_are_read_with_the_keyboard(pages, window, triad):
    page = window.open(kinds(pages)["nodes"])
    tab_to(page, f'.heat-map[data-name="{triad}"]')
    cell = page.locator(f"#{triad} .heat-cell")
    expect(page.locator(f"#{triad} .heat-cursor")).to_be_visible()
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    expect(page.locator(f"#{triad} .heat-cell")).to_contain_text(re.compile("^nid0007"))
    shown = cell.inner_text()
    path = one(pages, f"data/alder-babelstream-cpu*/{triad}.csv")
    last = [row for row in csv.DictReader(path.open()) if row["node"] == "nid0007"][-1]
    value = float(re.search(r": ([\d.]+) GB/s", shown)[1])
    assert value == pytest.approx(float(last["value"]), rel=2e-3)
    assert shown.endswith("flagged")
    page.keyboard.press("ArrowLeft")
    written = page.url
    assert "cell." in written
    page.goto("about:blank")
    page.goto(written)
    expect(page.locator(f"#{triad} .heat-cell")).to_contain_text(re.compile("^nid0007"))
    page.locator(f'.heat-map[data-name="{triad}"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/*nid0007*")


def test_a_pointer_shows_a_cell(pages, window, triad):
    page = window.open(kinds(pages)["nodes"])
    place = page.locator(f'.heat-map[data-name="{triad}"]')
    cell = page.locator(f"#{triad} .heat-cell")
    # Charts above it move it until they are drawn, and the pointer then rests on another row.
    for _ in range(20):
        place.hover(position={"x": 2, "y": place.bounding_box()["height"] - 2})
        page.wait_for_timeout(100)
        if cell.inner_text().startswith("nid0012"):
            break
        page.mouse.move(0, 0)
    expect(cell).to_contain_text(re.compile("^nid0012"))


def test_without_scripts_the_heat_map_is_a_picture_with_its_text(pages, new_window, triad):
    page = new_window(java_script_enabled=False).open(kinds(pages)["nodes"])
    image = page.locator(f"#{triad} .heat-map img")
    image.scroll_into_view_if_needed()
    expect(image).to_have_js_property("complete", True)
    assert image.evaluate("i => i.naturalHeight") == len(demo_history.NODES)
    assert "nid0007 flagged" in image.get_attribute("alt")
    assert page.locator(f"#{triad} .heat-flags a").all_inner_texts() == ["nid0007"]
    page.goto((pages / "compare.html").as_uri())
    assert page.locator("[data-note=no-script]").is_visible()
    assert not page.locator("#choice").is_visible()


@pytest.mark.parametrize("nodes", [400])
def test_a_heat_map_of_many_nodes_is_legible(nodes):
    made = heat.HeatMap(
        figure=None, nights=[f"202611{day:02}T000000Z-0" for day in range(1, 31)] * 3, sessions=[],
        nodes=[f"n{node:03}" for node in range(nodes)], usual=np.ones(nodes),
        values=np.ones((nodes, 90)), signed=np.zeros((nodes, 90)), marks=[], flagged=[],
    )  # fmt: skip
    assert made.row >= 2
    # Names do not overlap, and the first and the last date are shown.
    tops = [top for _, top in made.names]
    assert min(b - a for a, b in itertools.pairwise(tops)) >= 14
    assert len(made.image()) < 5000


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The contrast of two colours, as WCAG 2 reckons it."""

    def luminance(colour: tuple[float, ...]) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
                  for part in (part / 255 for part in colour)]  # fmt: skip
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_each_step_of_a_heat_map_stands_out_in_both_themes():
    style = (Path(heat.__file__).parent / "static" / "report.css").read_text()
    assert "background: var(--grid)" in re.search(r"\.heat-map {(.*?)}", style)[1]
    grounds = {tuple(bytes.fromhex(found)) for found in re.findall("--grid: #(\\w{6});", style)}
    assert len(grounds) == 2
    for colour, ground in itertools.product((heat.WORSE, heat.BETTER), grounds):
        painted = [
            tuple(share * part + (1 - share) * under
                  for part, under in zip(colour, ground, strict=True))
            for share in heat.OPACITY
        ]  # fmt: skip
        found = [contrast(step, ground) for step in painted]
        assert found[0] >= 2.0 and found[-1] >= 3.0
        # Each step can be told from the one before.
        assert min(b / a for a, b in itertools.pairwise(found)) > 1.1


def a_large_map(figure: figures.Panel, *_) -> heat.HeatMap:
    """A map of 400 nodes and 90 nights; eight nodes are flagged, the last rows among them."""
    random = np.random.default_rng(19)
    nodes = [f"nid{node:06}" for node in range(400)]
    nights = [f"{NOW + night * DAY:%Y%m%dT%H%M%SZ}-0" for night in range(90)]
    values = 300 * random.normal(1, 0.02, (400, 90))
    rows = (0, 1, 200, 395, 396, 397, 398, 399)
    return heat.HeatMap(
        figure, nights, nights, nodes, np.full(400, 300.0), values, values / 300 - 1,
        marks=[heat.Mark(80, row, 10, True) for row in rows],
        flagged=[slow.SlowNode("alder", "cpu", nodes[row], True) for row in rows],
    )  # fmt: skip


#: Of a map: its box, those of the visible labels of each kind, and whether the page is too wide.
LAYOUT = """() => {
    const sides = b => [b.left, b.top, b.right, b.bottom];
    const box = e => sides(e.getBoundingClientRect());
    const shown = e => getComputedStyle(e).display !== "none" && e.offsetParent;
    const of = s => [...document.querySelectorAll(s)].filter(shown).map(box);
    const root = document.documentElement;
    return {map: of(".heat-map")[0], image: of(".heat-map img")[0], names: of(".heat-names span"),
            flags: of(".heat-flags a"), dates: of(".heat-dates span"),
            over: root.scrollWidth - root.clientWidth};
}"""


@pytest.mark.parametrize("width", [1440, 390])
def test_a_map_of_400_nodes_is_drawn_legibly(width, tmp_path, monkeypatch, new_window):
    monkeypatch.setattr(heat, "of", a_large_map)
    folder = sessions_of(tmp_path, of_nodes({"n0": 300.0, "n1": 300.0}))
    window = new_window(viewport={"width": width, "height": 900})
    page = window.open(report_page(folder, "checks/*.html"))
    page.locator(".heat-map img").scroll_into_view_if_needed()
    expect(page.locator(".heat-map img")).to_have_js_property("complete", True)
    found = page.evaluate(LAYOUT)
    left, top, right, bottom = found["map"]
    assert found["over"] == 0 and found["image"] == found["map"]
    assert (bottom - top) / 400 >= 1 and (right - left) / 90 >= 1
    assert len(found["names"]) > 50 and len(found["dates"]) == (5 if width > 1000 else 2)
    assert len(found["flags"]) == (8 if width > 1000 else 0)
    for labels in (found["names"], found["flags"]):
        assert all(lower[1] >= upper[3] - 0.5 for upper, lower in itertools.pairwise(labels))
    assert all(label[0] >= 0 and label[2] <= left for label in found["names"])
    assert all(b[0] >= a[2] for a, b in itertools.pairwise(found["dates"]))
    # None is beside what follows the map.
    assert all(label[3] <= bottom + heat.NAME / 2 for label in found["names"] + found["flags"])


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
    verdict.write_text("no-go 2026-11-20T10:00:00Z slower <b>\n")
    content = report_page(folder, "nodes/*.html", now=None).read_text()
    assert "no-go 2026-11-20T10:00:00Z slower &lt;b&gt;" in content
    assert 'data-note="clearance"' in content


def test_without_slow_nodes_there_is_no_page_of_one(tmp_path):
    page = report_page(sessions_of(tmp_path, [{}]))
    assert not (page.parent / "nodes").exists() and "not-screened" in notes(page)


# -- comparing ---------------------------------------------------------------------------------


def rows(page) -> dict[str, list[str]]:
    """The cells of the comparison, by figure."""
    found = page.evaluate(
        "[...document.querySelectorAll('#table tbody tr')].map(r => [...r.cells].map("
        "c => c.textContent))"
    )
    return {" ".join(cells[:2]): cells for cells in found}


def test_two_sessions_are_compared_with_the_keyboard(pages, window):
    page = window.open(pages / "compare.html")
    tab_to(page, "#kind")
    page.keyboard.type("sess")
    page.wait_for_selector("#table td")
    tab_to(page, "#a")
    page.keyboard.press("End")
    expect(page.locator("#found")).to_contain_text("figures")
    first, second = page.locator("#a").input_value(), page.locator("#b").input_value()
    assert first != second
    command = page.locator("#command code").inner_text()
    assert command.startswith("plumbline compare") and first in command and second in command


def test_a_comparison_shows_the_medians_of_both_sides_and_is_in_the_address(pages, window):
    values = {row["session"]: float(row["value"]) for row in latencies(pages)}
    old, new = min(values), max(values)
    chosen = f"?side.kind=session&side.a={old}&side.b={new}"
    page = window.open(pages / "compare.html", chosen)
    page.wait_for_selector("#table td")
    (cells,) = [c for name, c in rows(page).items() if name.startswith("latency · 8 B ")]
    shown = [float(cell.split()[0]) for cell in cells[2:4]]
    assert shown == pytest.approx([values[old], values[new]], rel=1e-4)
    share = float(cells[4].replace("\u2212", "-").split("\u202f")[0])
    assert share == pytest.approx(100 * (values[new] / values[old] - 1), abs=0.06)
    assert cells[5] == "worse"
    page.locator("#swap").press("Enter")
    row = page.locator("#table tr", has_text="latency · 8 B ")
    expect(row.locator("td").last).to_have_text("better")
    assert f"side.a={new}" in page.url
    page.goto("about:blank")
    page.goto(page_url := (pages / "compare.html").as_uri() + f"?side.kind=session&side.a={new}"
              f"&side.b={old}")  # fmt: skip
    page.wait_for_selector("#table td")
    (cells,) = [c for name, c in rows(page).items() if name.startswith("latency · 8 B ")]
    assert cells[5] == "better", page_url


def rests(page) -> list[str]:
    """What is below both medians of the one figure."""
    return page.locator("#table tbody tr td.num").evaluate_all(
        "cells => cells.slice(0, 2).map(c => c.querySelector('.muted')?.textContent ?? '')"
    )


def test_the_number_of_sessions_and_their_range_are_below_each_median(tmp_path, window):
    values = [(0, 300.0), (0, 310.0), (0, 296.0), (1, 270.0)]
    cases = [[build_of(build) | measured(value)] for build, value in values]
    page = window.open(report_page(sessions_of(tmp_path, *cases), COMPARE), "?side.kind=build")
    page.wait_for_selector("#table td")
    several, single = rests(page)
    assert [float(part) for part in re.findall(r"[\d.]+", several)] == [3, 296, 310]
    assert single == ""
    note = page.locator("[data-note=one-session]")
    assert note.is_visible() and note.get_attribute("data-sides") == "B"
    page.locator("#swap").press("Enter")
    expect(note).to_have_attribute("data-sides", "A")


def test_a_night_of_several_sessions_shows_a_figure_that_one_of_them_measured(tmp_path, window):
    first = [[measured(300.0)], [measured(310.0)]]
    later = [[measured(295.0)], [measured(280.0) | {"check": "other"}]]
    folder = sessions_of(tmp_path, *first, *later, apart=DAY, a_night=2)
    page = window.open(report_page(folder, COMPARE, now=NOW + DAY), "?side.kind=night")
    page.wait_for_selector("#table td")
    before, after = rests(page)
    assert [float(part) for part in re.findall(r"[\d.]+", before)] == [2, 300, 310]
    assert re.findall(r"[\d.]+", after) == ["1"]
    assert not page.locator("[data-note=one-session]").is_visible()
    # With sessions, both sides are one.
    page.locator("#kind").select_option("session")
    expect(page.locator("[data-note=one-session]")).to_have_attribute("data-sides", "A B")


COMPARE = "compare.html"


def build_of(number: int) -> dict:
    return {"build": {"path": f"/opt/stream-{number}", "sha256": f"{number}" * 64}}


def measured(value: float, **figure) -> dict:
    """A test case that measured this."""
    return {"figures": [TRIAD | {"value": value} | figure]}


def compared_builds(window, folder: Path, *builds: int) -> tuple[list[str], Path]:
    """The row of the one figure of the last two builds, of sessions an hour apart that used these
    builds and measured 300 GB/s with the first, 30 less with each other; and the page."""
    sessions = [[build_of(number) | measured(300.0 - 30 * number)] for number in builds]
    page = window.open(report_page(sessions_of(folder, *sessions), COMPARE), "?side.kind=build")
    page.wait_for_selector("#table td")
    (cells,) = rows(page).values()
    return cells, page


def test_two_builds_of_one_day_are_compared(tmp_path, window):
    """The command that is printed selects the sessions of each."""
    cells, page = compared_builds(window, tmp_path, *[0] * 5, *[1] * 4)
    assert [cell.split()[0] for cell in cells[2:4]] == ["300", "270"]
    assert (cells[4], cells[5]) == ("\u221210.0\u202f%", "worse")
    command = page.locator("#command code").inner_text()
    *words, before, after = shlex.split(command)
    assert words == ["plumbline", "compare", "--system=alder"]
    assert (before, after) == (
        "2026-11-20T00:00:00..2026-11-20T04:00:01",
        "2026-11-20T05:00:00..2026-11-20T08:00:01",
    )
    with History(tmp_path) as history:
        known = history.sessions()
    assert sides.sessions_of(before, known, "BEFORE") == known[:5]
    assert sides.sessions_of(after, known, "AFTER") == known[5:]
    page.locator("#swap").press("Enter")
    row = page.locator("#table tbody tr")
    expect(row.locator("td").last).to_have_text("better")
    assert page.locator("#command code").inner_text().split()[-2:] == [after, before]


def test_builds_that_were_used_in_turns_have_no_command(tmp_path, window):
    _, page = compared_builds(window, tmp_path, 0, 0, 1, 1, 0, 1)
    assert not page.locator("#command").is_visible()


def test_builds_of_different_days_are_compared_by_their_days(pages, window):
    by_build: dict[str, list[dict]] = {}
    for row in latencies(pages):
        by_build.setdefault(row["build"], []).append(row)
    (old, before), (new, after) = by_build.items()
    page = window.open(pages / "compare.html", f"?side.kind=build&side.a={old}&side.b={new}")
    page.wait_for_selector("#table td")
    (cells,) = [c for name, c in rows(page).items() if name.startswith("latency · 8 B ")]
    medians = [np.median([float(row["value"]) for row in side]) for side in (before, after)]
    assert [float(cell.split()[0]) for cell in cells[2:4]] == pytest.approx(medians, rel=1e-4)
    days = [f"{side[0]['time'][:10]}..{side[-1]['time'][:10]}" for side in (before, after)]
    words = ["plumbline", "compare", "--system=alder", *days]
    assert shlex.split(page.locator("#command code").inner_text()) == words


def test_an_address_of_a_comparison_that_is_wrong_does_no_harm(pages, window):
    page = window.open(pages / "compare.html", "?side.kind=%3Cimg%3E&side.a=x&side.b=../../etc")
    page.wait_for_selector("#table td")
    assert page.locator("#kind").input_value() == "night"


def test_a_file_that_is_missing_from_the_site_is_named(pages, tmp_path, chromium, triad):
    shutil.copytree(pages, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "data" / "sides")
    one(tmp_path / "out", f"data/alder-babelstream-cpu*/{triad}.js").unlink()
    with contextlib.closing(chromium.new_context()) as context:
        page = context.new_page()
        page.goto((tmp_path / "out" / "compare.html").as_uri() + "?side.kind=session")
        expect(page.locator("#found")).to_contain_text("data/sides/")
        page.goto(one(tmp_path / "out", "checks/alder-babelstream-cpu*.html").as_uri())
        page.locator(f'.heat-map[data-name="{triad}"]').focus()
        expect(page.locator(f"#{triad} .heat-cell")).to_contain_text(f"{triad}.js")


# -- over message sizes ------------------------------------------------------------------------


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


# -- large sessions ----------------------------------------------------------------------------


def test_a_session_of_many_nodes_has_a_table_and_the_first_records(tmp_path):
    count = session_pages.RECORDS + 1
    cases = [{"check": f"stream %.nid=n{n}", "nodes": [f"n{n}"]} for n in range(count)]
    content = report_page(sessions_of(tmp_path, cases), "sessions/*.html").read_text()
    assert content.count('<dl class="record">') == session_pages.FOLD
    table = re.search(r"<table>.*?</table>", content[content.index("first-records") :], re.S)[0]
    assert table.count('<tr><th scope="row">') == count


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


# -- what screening flags ------------------------------------------------------------------------


def of_nodes(values: dict[str, float], **figure) -> list[dict]:
    """The cases of nodes of which each was measured by itself."""
    return [
        {"check": f"stream %.nid={node}", "nodes": [node]} | measured(value, **figure)
        for node, value in values.items()
    ]


def changes_of(page: Path, figures: int | None = None) -> list[str]:
    """The changes that a page has, of the first figures or of all."""
    listed = re.findall(r'<ul class="plain changes">(.*?)</ul>', page.read_text(), re.S)[:figures]
    return [re.sub("<[^>]*>", "", item) for item in "".join(listed).split("<li>")[1:]]


def shares(text: str) -> list[float]:
    """The losses in a text, in per cent."""
    return [float(size) for size in re.findall("\u2212([\\d.]+)\u202f%", text)]


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
        found = triage.load(history, Selection(), NOW + 26 * DAY)
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


def figures_of(folder: Path) -> list[figures.Panel]:
    """The figures of the one check of a history."""
    with History(folder) as history:
        nights = by_node.nights(history.sessions())
        return figures.grouped(history.series(), {}, nights)


def test_the_map_of_a_sweep_has_all_of_its_nodes_on_its_last_nights(tmp_path, monkeypatch):
    monkeypatch.setattr(heat, "NIGHTS", 3)
    fleet = {f"n{node:03}": 300.0 + node for node in range(100)}
    (figure,) = figures_of(swept(tmp_path, *[fleet] * 4))
    made = heat.of(figure, slow.Screened())
    assert made.values.shape == (100, 3)
    assert made.values[:, -1].tolist() == [*fleet.values()]
    assert [night[:8] for night in made.nights] == ["20261121", "20261122", "20261123"]


def test_the_latest_of_a_sweep_is_the_median_of_its_night_with_the_worst_node_beside(tmp_path):
    before = {f"n{node}": 300.0 for node in range(6)}
    now = {"n0": 310.0, "n1": 311.0, "n2": 312.0, "n3": 211.0, "n4": 314.0, "n5": 315.0}
    (figure,) = figures_of(swept(tmp_path, before, before, now))
    assert (figure.latest, figure.worst, figure.usual) == (311.5, ("n3", 211.0), 300.0)
    sessions, _, medians = figure.history
    assert [name[:15] for name in sessions] == [f"202611{day}T000000" for day in (20, 21, 22)]
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


def of_pairs(values: dict[str, float], **figure) -> list[dict]:
    """The case of pairs of nodes such as ``n1:n2``."""
    usual = {"metric": "bandwidth", "unit": "MB/s", "better": "higher", "reference": 200.0}
    nodes = sorted({node for pair in values for node in pair.split(":")})
    of = [usual | {"value": value, "location": pair} | figure for pair, value in values.items()]
    return [{"check": "pairs", "nodes": nodes, "figures": of}]


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
    made = heat.of(figure, slow.Screened())
    assert (made.nodes, made.values[:, 1].tolist()) == (["n1", "n2", "n3"], [195.0, 160.0, 215.0])
    # Of one night, though in two sessions.
    folder = sessions_of(tmp_path / "more", of_pairs(first), of_pairs({"n1:n2": 400.0}))
    (figure,) = figures_of(folder)
    assert [one.values.tolist() for one in figure.of_nodes] == [[210.0], [300.0], [255.0]]


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


def test_a_node_above_its_ceiling_has_a_line_of_its_own(tmp_path):
    nights = [
        of_nodes({f"n{n}": 300.0 if n else 500.0 for n in range(6)}, ceiling=460.8)
        for _ in range(3)
    ]
    (panel,) = figures_of(sessions_of(tmp_path, *nights))
    assert [line["name"] for line in charts.data(panel, {}, None)["lines"]] == ["n0"]


def test_a_fault_of_the_history_is_not_taken_for_no_cases(tmp_path, monkeypatch):
    def cases(*_):
        raise Fault("no memory", code="history.not-indexed")

    folder = sessions_of(tmp_path, [{}])
    monkeypatch.setattr(History, "cases", cases)
    with pytest.raises(Fault) as refused:
        report_page(folder)
    assert refused.value.code == "history.not-indexed"


@pytest.mark.parametrize(("expires", "red"), [("2026-11-19", 1), ("2026-11-21", 0)])
def test_an_invalid_case_is_red_again_when_its_waiver_has_ended(expires, red, tmp_path):
    waived = {"result": "waived", "reason": "truncated", "waiver": "hang", "figures": []}
    folder = sessions_of(tmp_path, [waived])
    (folder / "reference").mkdir()
    (folder / "reference" / "waivers.yaml").write_text(
        f"- {{id: hang, reason: it hangs, owner: me, expires: {expires}, "
        "match: {system: alder, check: stream, results: [invalid]}}\n"
    )
    content = report_page(folder).read_text()
    assert f'<h2 id="red">Red now <span class="count">{red}</span></h2>' in content


def flag(kind: str, *name: str, size: float = 0.1, until: str | None = None) -> Flag:
    return Flag("20261120", kind, name, size, 1.0, "20261118", until)


def a_panel(*nights: dict[str, float], location: str = "") -> figures.Panel:
    """A figure of nodes with a session each, of which some measured it in each night."""
    names = sorted({name for night in nights for name in night})
    start = np.datetime64("2026-11-20T01", "s")
    members = []
    for name in names:
        at = [number for number, night in enumerate(nights) if name in night]
        sessions = np.array([f"2026112{day}T01-{name}" for day in at], object)
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
             Flag("20261130", "node", ("b",), 0.1, 1.0, "20261130", None)]  # fmt: skip
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
    node = slow.SlowNode("alder", "cpu", "a", True, flags)
    assert node.flags_of(gpu.key) == flags[:3]
    assert node.flags_of(other.key) == [flags[0], flags[2]]
    assert node.flags_of(a_panel({"a": 1.0}, location="side").key) == flags[:1]


def test_the_page_of_a_node_has_so_many_charts_at_most(monkeypatch):
    monkeypatch.setattr(slow, "CHARTS", 2)
    about = "alder:cpu+gnu stream all-cores triad"
    of = [Flag("2026", "node", ("b",), 0.1, 1.0, "2026", evidence=[about])]
    nodes = [slow.SlowNode("alder", "cpu", name, True, of if name == "b" else []) for name in "ab"]
    for _ in range(3):
        slow.add_figure(nodes, a_panel({"a": 1.0, "b": 2.0}), "stream", "", None)
    assert [(len(one.figures), len(one.charted)) for one in nodes] == [(3, 0), (3, 2)]


def test_what_screening_flags_without_a_page_is_counted():
    flags = [flag("node", f"n{n:03}", size=0.1 + n / 1000) for n in range(slow.PAGES + 1)]
    flags += [flag("link", "r1", "r2"), flag("link", "r1", "r3", until="20261119")]
    flags += [flag("switch", "r1"), flag("pair", "n060", "n059")]
    found = slow.screened("alder", {}, flags)
    assert (len(found.nodes), found.omitted) == (slow.PAGES, 1)
    # The one with the smallest loss has no page.
    assert "n000" not in {one.node for one in found.nodes}
    assert [(one.kind, one.name) for one in found.links] == [
        ("link", ("r1", "r2")),
        ("switch", ("r1",)),
    ]


def test_flags_without_a_page_are_framed_in_the_heat_map(tmp_path, monkeypatch):
    monkeypatch.setattr(slow, "PAGES", 1)
    (figure,) = figures_of(swept(tmp_path, *[{f"n{node}": 300.0 for node in range(4)}] * 6))
    nights = [name[:8] for name in figure.history[0]]
    flags = [Flag(nights[5], "node", (name,), size, 1.0, nights[since], None)
             for name, size, since in (("n0", 0.2, 4), ("n1", 0.1, 3))]  # fmt: skip
    older = [Flag(nights[1], "node", (name,), 0.1, 1.0, nights[1], nights[2] + "T23")
             for name in ("n0", "n3")]  # fmt: skip
    found = slow.screened("alder", {}, flags, older)
    assert ([one.node for one in found.nodes], found.omitted) == (["n0"], 1)
    made = heat.of(figure, found)
    # n1 has no page, as only one may have, and what ended makes none.
    assert [one.node for one in made.flagged] == ["n0"]
    assert [(mark.top, mark.left, mark.width) for mark in made.marks] == [
        (0, 4, 2), (0, 1, 2), (1, 3, 3), (3, 1, 2),
    ]  # fmt: skip


def test_a_flag_that_ended_long_ago_is_in_the_map_alone(tmp_path):
    random = np.random.default_rng(18)
    nights = [
        {f"n{n}": 300 * random.normal(1, 0.003) * (0.9 if n == 3 and 12 <= night < 18 else 1)
         for n in range(8)}
        for night in range(52)
    ]  # fmt: skip
    page = report_page(swept(tmp_path, *nights), "checks/*.html", now=NOW + 52 * DAY)
    assert not (tmp_path / "out" / "nodes").exists()
    content = page.read_text()
    assert re.findall('<rect x="(.*?)" y="3" width="(.*?)"', content) == [("12", "6")]


@pytest.mark.parametrize(("later", "old"), [(6, False), (8, True)])
def test_a_night_of_more_than_a_week_ago_tells_nothing_of_today(tmp_path, later, old):
    random = np.random.default_rng(19)
    nights = [{f"n{n}": 300 * random.normal(1, 0.003) for n in range(8)} for _ in range(3)]
    with History(swept(tmp_path, *nights)) as history:
        latest = history.sessions()[-1]
        latest = replace(latest, end=latest.end + np.timedelta64(later, "D"))
        state = SystemState("alder", latest, [], None, [])
        found = slow.of_system(history, state, Selection())
    assert (found.night[:8], found.old, found.judged) == ("20261122", old, not old)


KNOWN = Waiver(
    id="cable", reason="a cable is worn", owner="me", expires=NOW.date(),
    match={"system": "alder", "node": "r1:r2", "results": ["slow"]},
)  # fmt: skip

#: A session.
NIGHT = "20260920T020000Z-000001"


@pytest.mark.parametrize(
    ("screened", "notes"),
    [
        (slow.Screened(), {"not-screened"}),
        (slow.Screened(night=NIGHT, judged=True), {"no-slow-node"}),
        (slow.Screened(night=NIGHT, old=True), {"screened-before"}),
        (slow.Screened(links=[flag("link", "r1", "<r2>")], judged=True), {"slow-link"}),
        (slow.Screened(omitted=3, judged=True), {"more-slow-nodes", "no-slow-node"}),
        (
            slow.Screened(links=[replace(flag("link", "r1", "<r2>"), waiver=KNOWN)], judged=True),
            {"slow-waived"},
        ),
    ],
)
def test_slow_links_and_nodes_without_a_page_are_on_the_first_page(
    screened, notes, tmp_path, monkeypatch
):
    monkeypatch.setattr(slow, "of_system", lambda *_: screened)
    content = report_page(sessions_of(tmp_path, [{}])).read_text()
    section = content[content.index('aria-labelledby="slow"') :]
    section = section[: section.index("</section>")]
    assert {*re.findall(r'data-note="([^"]*)"', section)} == notes
    assert ("2026-09-20" in section) == bool(screened.night)
    assert "<r2>" not in content


def test_a_cell_of_a_node_that_usually_measures_nothing_has_its_value(tmp_path, new_window):
    """A share of 0 is not known, and 0 itself is usual."""
    nights = [of_nodes({"n0": 0.0 if night < 5 else 4.0, "n1": 300.0}) for night in range(6)]
    folder = sessions_of(tmp_path / "site", *nights, apart=DAY)
    content = report_page(folder, "checks/*.html", now=NOW + 6 * DAY)
    page = new_window().open(content)
    tab_to(page, ".heat-map")
    cell = page.locator(".heat-cell")
    page.keyboard.press("End")
    expect(cell).to_contain_text(re.compile("^n0.*: 4 GB/s"))
    page.keyboard.press("ArrowLeft")
    expect(cell).to_contain_text(re.compile("^n0.*: 0 GB/s"))
