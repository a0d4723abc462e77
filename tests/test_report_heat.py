"""Heat maps of nodes and nights: cells, colours, flags, and their layout in a real browser."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path

import demo_history
import numpy as np
import pytest
from node_reports import (
    figures_of,
    of_nodes,
    pixels,
    triad_,  # noqa: F401 - a fixture
)
from playwright.sync_api import expect
from plumbline.analysis.screen import Flag
from plumbline.output.report import figures, heat, slow_nodes
from reports import (  # noqa: F401 - fixtures
    DAY,
    NOW,
    chromium_,
    demo_,
    kinds,
    new_window_,
    one,
    pages_,
    report_page,
    sessions_of,
    swept,
    tab_to,
    window_,
    windows_,
)


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
        figure=None, nights=[f"202511{day:02}T000000Z-0" for day in range(1, 31)] * 3, sessions=[],
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
        flagged=[slow_nodes.SlowNode("alder", "cpu", nodes[row], True) for row in rows],
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


def test_the_map_of_a_sweep_has_all_of_its_nodes_on_its_last_nights(tmp_path, monkeypatch):
    monkeypatch.setattr(heat, "NIGHTS", 3)
    fleet = {f"n{node:03}": 300.0 + node for node in range(100)}
    (figure,) = figures_of(swept(tmp_path, *[fleet] * 4))
    made = heat.of(figure, slow_nodes.Screened())
    assert made.values.shape == (100, 3)
    assert made.values[:, -1].tolist() == [*fleet.values()]
    assert [night[:8] for night in made.nights] == ["20251121", "20251122", "20251123"]


def test_flags_without_a_page_are_framed_in_the_heat_map(tmp_path, monkeypatch):
    monkeypatch.setattr(slow_nodes, "PAGES", 1)
    (figure,) = figures_of(swept(tmp_path, *[{f"n{node}": 300.0 for node in range(4)}] * 6))
    nights = [name[:8] for name in figure.history[0]]
    flags = [Flag(nights[5], "node", (name,), size, 1.0, nights[since], None)
             for name, size, since in (("n0", 0.2, 4), ("n1", 0.1, 3))]  # fmt: skip
    older = [Flag(nights[1], "node", (name,), 0.1, 1.0, nights[1], nights[2] + "T23")
             for name in ("n0", "n3")]  # fmt: skip
    found = slow_nodes.screened("alder", {}, flags, older)
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
