"""The page that compares two sides, in a real browser."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from node_reports import (
    measured,
    triad_,  # noqa: F401 - a fixture
)
from playwright.sync_api import expect
from plumbline.analysis.compare import sides
from plumbline.history.history import History
from reports import (  # noqa: F401 - fixtures
    DAY,
    NOW,
    chromium_,
    demo_,
    latencies,
    new_window_,
    one,
    pages_,
    report_page,
    sessions_of,
    tab_to,
    window_,
    windows_,
)


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
        "2025-11-20T00:00:00..2025-11-20T04:00:01",
        "2025-11-20T05:00:00..2025-11-20T08:00:01",
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
