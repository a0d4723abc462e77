"""Heat maps, pages of flagged nodes and the comparison of two sides, in a real browser."""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import re
import struct
import zlib
from pathlib import Path

import demo_history
import numpy as np
import pytest
from plumbline.output.report import heat, session_pages
from reports import (  # noqa: F401 - fixtures
    NOW,
    chromium_,
    demo_,
    kinds,
    new_window_,
    one,
    pages_,
    sessions_of,
    tab_to,
    window_,
    write,
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
    page.wait_for_function(f"document.querySelector('#{triad} .heat-cursor').hidden === false")
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    page.wait_for_function(
        f"document.querySelector('#{triad} .heat-cell').textContent.startsWith('nid0007')"
    )
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
    page.wait_for_function(
        f"document.querySelector('#{triad} .heat-cell').textContent.startsWith('nid0007')"
    )
    page.locator(f'.heat-map[data-name="{triad}"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/*nid0007*")


def test_a_pointer_shows_a_cell(pages, window, triad):
    page = window.open(kinds(pages)["nodes"])
    place = page.locator(f'.heat-map[data-name="{triad}"]')
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] - 2)
    page.wait_for_function(
        f"document.querySelector('#{triad} .heat-cell').textContent.startsWith('nid0012')"
    )


def test_without_scripts_the_heat_map_is_a_picture_with_its_text(pages, chromium, triad):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(kinds(pages)["nodes"].as_uri())
    image = page.locator(f"#{triad} .heat-map img")
    image.scroll_into_view_if_needed()
    page.wait_for_function(f"document.querySelector('#{triad} .heat-map img').complete")
    assert image.evaluate("i => i.naturalHeight") == len(demo_history.NODES)
    assert "nid0007 flagged" in image.get_attribute("alt")
    assert page.locator(f"#{triad} .heat-flags a").all_inner_texts() == ["nid0007"]
    page.goto((pages / "compare.html").as_uri())
    assert page.locator("[data-note=no-script]").is_visible()
    assert not page.locator("#choice").is_visible()
    context.close()


@pytest.mark.parametrize("nodes", [400])
def test_a_heat_map_of_many_nodes_is_legible(nodes):
    made = heat.HeatMap(
        figure=None, nights=[f"202611{day:02}T000000Z-0" for day in range(1, 31)] * 3, sessions=[],
        nodes=[f"n{node:03}" for node in range(nodes)], usual=np.ones(nodes),
        values=np.ones((nodes, 90)), signed=np.zeros((nodes, 90)), marks=[], flagged=[],
    )  # fmt: skip
    assert made.row >= 2
    # Names do not overlap, and the first and the last date are shown.
    tops = [label.at for label in made.names]
    assert min(b - a for a, b in itertools.pairwise(tops)) >= 14
    assert len(made.image()) < 5000


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


def test_the_last_clearance_and_changed_facts_are_on_the_page_of_a_node(demo, tmp_path, pages):
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("sessions", "reference"):
        (folder / name).symlink_to(demo / name)
    (folder / "verdicts").mkdir()
    (folder / "verdicts" / "nid0007").write_text("no-go 2026-11-20T10:00:00Z slower <b>\n")
    write(folder, tmp_path / "out")
    content = one(tmp_path / "out", "nodes/*.html").read_text()
    assert "no-go 2026-11-20T10:00:00Z slower &lt;b&gt;" in content
    assert 'data-note="clearance"' in content


def test_without_slow_nodes_there_is_no_page_of_one(tmp_path):
    write(sessions_of(tmp_path, [{}]), tmp_path / "out", now=NOW)
    assert not (tmp_path / "out" / "nodes").exists()
    assert 'data-note="no-slow-node"' in (tmp_path / "out" / "index.html").read_text()


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
    page.wait_for_function("document.querySelector('#found').textContent.includes('figures')")
    first, second = page.locator("#a").input_value(), page.locator("#b").input_value()
    assert first != second
    command = page.locator("#command code").inner_text()
    assert command.startswith("plumbline compare") and first in command and second in command


def test_a_comparison_shows_the_medians_of_both_sides_and_is_in_the_address(pages, window):
    path = one(pages, "data/alder-osu-p2p-operation-latency*/latency-8-*.csv")
    values = {row["session"]: float(row["value"]) for row in csv.DictReader(path.open())}
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
    page.wait_for_function("document.querySelector('#table td:last-child').textContent === 'better'"
                           " || document.querySelector('#table tr td:last-child')")  # fmt: skip
    assert f"side.a={new}" in page.url
    page.goto("about:blank")
    page.goto(page_url := (pages / "compare.html").as_uri() + f"?side.kind=session&side.a={new}"
              f"&side.b={old}")  # fmt: skip
    page.wait_for_selector("#table td")
    (cells,) = [c for name, c in rows(page).items() if name.startswith("latency · 8 B ")]
    assert cells[5] == "better", page_url


def test_two_builds_are_compared(pages, window):
    page = window.open(pages / "compare.html", "?side.kind=build")
    page.wait_for_selector("#table td, #found:not(:empty)")
    sides = json.loads(page.locator("#sides").inner_text())
    assert len(sides["builds"]) >= 2
    (osu,) = {tuple(sorted(b[0] for b in sides["builds"] if b[1] == "alder"))}
    assert len(osu) >= 2


def test_an_address_of_a_comparison_that_is_wrong_does_no_harm(pages, window):
    page = window.open(pages / "compare.html", "?side.kind=%3Cimg%3E&side.a=x&side.b=../../etc")
    page.wait_for_selector("#table td")
    assert page.locator("#kind").input_value() == "night"


# -- large sessions ----------------------------------------------------------------------------


def test_a_session_of_many_nodes_has_a_table_and_the_first_records(tmp_path):
    count = session_pages.RECORDS + 1
    cases = [{"check": f"stream %.nid=n{n}", "nodes": [f"n{n}"]} for n in range(count)]
    write(sessions_of(tmp_path, cases), tmp_path / "out", now=NOW)
    content = one(tmp_path / "out", "sessions/*.html").read_text()
    assert content.count('<dl class="record">') == session_pages.FOLD
    table = re.search(r"<table>.*?</table>", content[content.index("first-records") :], re.S)[0]
    assert table.count('<tr><th scope="row">') == count


def test_the_median_of_many_nodes_is_searched_for_changes(tmp_path, monkeypatch):
    from plumbline.output.report import findings

    monkeypatch.setattr(findings, "FLEET", 12)
    folder = tmp_path / "site"
    demo_history.write(folder, nights=45)
    end = datetime.datetime.now(datetime.timezone.utc)
    write(folder, tmp_path / "out", now=end)
    content = one(tmp_path / "out", "checks/alder-babelstream-cpu*.html").read_text()
    assert "on nid0007" in content
