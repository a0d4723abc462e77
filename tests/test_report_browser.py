"""The report in a real browser: drawn, printed, reached by keyboard, and harmless."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import shutil
from pathlib import Path

import demo_history
import numpy as np
import pytest
import records
from reports import (  # noqa: F401 - fixtures
    DAY,
    HOSTILE,
    SLOW,
    UTC,
    assert_links_resolve,
    chart_of,
    chromium_,
    demo_,
    drawn,
    kinds,
    latencies,
    new_window_,
    notes,
    one,
    pages_,
    report_page,
    sessions_of,
    tab_to,
    window_,
    windows_,
)

BANDWIDTH = "checks/alder-osu-p2p-test-bw*.html"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 360)])
def test_every_kind_of_page(pages, new_window, scheme, width):
    """Opens without a fault or a request; and what holds of each, in one visit."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    window = new_window(color_scheme=scheme, viewport={"width": width, "height": 900})
    grounds, passed, filtered = set(), 0, set()
    for name, path in kinds(pages).items():
        page = window.open(path)
        assert page.locator("main h1").inner_text()
        grounds.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        filtered |= assert_long_lists_have_a_filter(page, name)
        assert_nothing_is_wider(page, width, name)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.wait_for_timeout(200)
        # What is open must fit too, within its own scroll bar.
        assert_nothing_is_wider(page, width, name)
        assert_tables_are_sorted_and_filtered(page, name)
        assert_tables_have_captions_and_ids_are_unique(page, name)
        # Its preload would request the style sheet, which the page's policy forbids. Of what
        # passes, which are thousands of nodes, one for each rule is enough.
        found = axe.run(page, options={"preload": False, "resultTypes": ["violations"]})
        assert [one["id"] for one in found.response["violations"]] == [], name
        passed += len(found.response["passes"])
        assert_paper_is_light_and_cuts_no_table(page, name)
    assert grounds == {"rgb(18, 21, 24)" if scheme == "dark" else "rgb(247, 247, 245)"}
    assert passed > 10 * len(kinds(pages))
    assert filtered and not all(filtered)


def assert_long_lists_have_a_filter(page, name: str) -> set[bool]:
    """And short ones have none; whether there is one, of each list."""
    lists = page.locator(".rows[aria-label]").evaluate_all(
        "lists => lists.map(l => [l.children.length, "
        "Boolean(l.previousElementSibling?.matches('.filter-state'))])"
    )
    assert all(filtered == (count >= 5) for count, filtered in lists), name
    return {filtered for _, filtered in lists}


def assert_nothing_is_wider(page, width: int, name: str) -> None:
    """No page is wider than a window, be it a phone's."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    cut = page.evaluate(
        "[...document.querySelectorAll('.row-main, .figure, .card')].filter("
        "place => place.getBoundingClientRect().right > innerWidth).length"
    )
    assert cut == 0, name


def assert_tables_are_sorted_and_filtered(page, name: str) -> None:
    rows = page.evaluate(
        """[...document.querySelectorAll("table")].map(table => [
            [...table.tBodies].flatMap(b => [...b.rows]).filter(
                row => !row.classList.contains("group")).length,
            table.querySelectorAll(".sort").length,
            Boolean(table.closest(".scroll").previousElementSibling?.matches(".filter-state")),
        ])"""
    )
    for count, buttons, filtered in rows:
        assert (buttons > 0, filtered) == (count > 1, count >= 5), name


def assert_tables_have_captions_and_ids_are_unique(page, name: str) -> None:
    """And heads: what axe does not look at."""
    faults = page.evaluate("""() => {
        const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
        return [
            ...[...document.querySelectorAll("table")].filter(e => !e.caption),
            ...[...document.querySelectorAll("th")].filter(e => !e.scope),
            ...ids.filter((id, at) => ids.indexOf(id) !== at),
        ].map(e => e.outerHTML || e);
    }""")
    assert faults == [], name


def assert_paper_is_light_and_cuts_no_table(page, name: str) -> None:
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)", name
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every("
        "place => getComputedStyle(place).overflowX === 'visible')"
    ), name
    assert not page.locator(".top nav").is_visible(), name
    page.emulate_media(media="screen")


def test_charts_are_drawn_when_they_come_into_sight(pages, window):
    page = window.open(kinds(pages)["sizes"])
    page.wait_for_selector(".chart svg .mark")
    every = page.locator(".chart").count()
    assert 0 < drawn(page) < every
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        chart.locator("svg .plot path").first.wait_for(state="attached")
    assert drawn(page) == every


def test_a_chart_shows_bounds_changes_and_builds(pages, window):
    chart = chart_of(window.open(one(pages, BANDWIDTH)))
    names, areas = chart.evaluate(
        "c => [c.chart.traces.map(t => t.name), c.querySelectorAll('.plot rect:not(.zoom)').length]"
    )
    assert {"lower bound", "reference", "passed", "new build"} <= set(names)
    assert areas > 0


def test_nodes_have_a_chart_and_the_slow_one_stands_out(pages, window):
    page = window.open(kinds(pages)["nodes"])
    ticks, medians = chart_of(page, "nodes").evaluate(
        "c => [[...c.querySelectorAll('.tick text')].map(t => t.textContent), c.chart.traces[2].y]"
    )
    ticks = [tick for tick in ticks if tick.startswith("nid")]
    assert len(ticks) == len(demo_history.NODES)
    assert ticks[int(np.argmin(medians))] == "nid0007"
    assert "nid0007" in chart_of(page).evaluate("c => c.chart.traces.map(t => t.name)")


def test_the_table_of_a_chart_opens_by_keyboard(pages, window):
    page = window.open(kinds(pages)["sizes"])
    summary = page.locator("details[data-table=history] summary").first
    assert page.locator("details[data-table=history] td").count() == 0
    summary.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("details[data-table=history] td")
    details = page.locator("details[data-table=history]").first
    rows = latencies(pages)
    assert details.locator("tbody tr").count() == len(rows)
    newest = details.locator("tbody tr").first.inner_text()
    assert rows[-1]["session"] in newest
    assert f"{float(rows[-1]['value']):.5g}" in newest
    assert "failed" in newest
    assert details.locator("caption").count() == 1
    assert details.locator("tbody th[scope=row] + td a").first.get_attribute("href")


# -- sorting and filtering ----------------------------------------------------------------------


def cells(page, column: int, table: str = "table") -> list[str]:
    """The visible texts of a column, without the rows of groups."""
    return page.evaluate(
        """([table, column]) => [...document.querySelector(table).tBodies].filter(b => !b.hidden)
            .flatMap(body => [...body.rows])
            .filter(row => !row.hidden && !row.classList.contains("group"))
            .map(row => row.cells[column].textContent.trim())""",
        [table, column],
    )


def numbers(texts: list[str]) -> list[float]:
    return [float(text.split("\u202f")[0].replace("\u2212", "-")) for text in texts if text]


def test_a_table_is_sorted_with_the_keyboard(pages, window):
    page = window.open(kinds(pages)["system"])
    written = numbers(cells(page, 4))
    assert written != sorted(written)
    tab_to(page, "th:nth-child(5) .sort")
    page.keyboard.press("Enter")
    head = page.locator("thead th").nth(4)
    assert head.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    # Within each group; and the groups by their first rows.
    groups = page.evaluate(
        """[...document.querySelectorAll("tbody")].map(body => [...body.rows].map(
            row => row.classList.contains("group") ? null : row.cells[4].textContent.trim()))"""
    )
    assert all(rows[0] is None and None not in rows[1:] for rows in groups)
    sorted_rows = [numbers(rows[1:]) for rows in groups if any(rows[1:])]
    assert sorted_rows and all(rows == sorted(rows) for rows in sorted_rows)
    firsts = [rows[0] for rows in sorted_rows if rows]
    assert firsts == sorted(firsts) and firsts[0] == min(written)
    assert sorted(numbers(cells(page, 4))) == sorted(written)
    tab_to(page, "th:nth-child(1) .sort")
    page.keyboard.press("Enter")
    assert page.locator("th:nth-child(6) .sort").count() == 0  # Of pictures.
    assert head.get_attribute("aria-sort") is None


def test_a_table_is_filtered_with_the_keyboard(pages, window):
    page = window.open(kinds(pages)["system"])
    every = cells(page, 0)
    tab_to(page, "input[type=search]")
    page.keyboard.type("OSU_P2P  latency")
    found = cells(page, 0)
    assert found and all("latency" in text for text in found) and len(found) < len(every)
    assert page.locator("[role=status].filter-state").inner_text() == (
        f"{len(found)} of {len(every)} rows"
    )
    assert page.locator("tbody:visible").count() == 1
    page.keyboard.press("Control+a")
    page.keyboard.type("no such figure")
    assert cells(page, 0) == []
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    assert cells(page, 0) == every
    assert page.locator("[role=status].filter-state").inner_text() == ""


def test_a_table_that_is_opened_has_its_controls(pages, window):
    page = window.open(kinds(pages)["nodes"])
    summary = page.locator("details[data-table=history] summary").first
    summary.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("details[data-table=history] td")
    tab_to(page, "details[data-table=history] th:nth-child(6) .sort")
    assert page.evaluate("document.activeElement.textContent") == "Worst"
    page.keyboard.press("Enter")
    names = cells(page, 5, "details[data-table=history] table")
    assert names == sorted(names) and "nid0007" in names
    page = window.open(kinds(pages)["session"])
    closed = page.locator("main details:not([open]) table").first
    assert closed.locator(".sort").count() == 0
    summary = page.locator("main details summary").first
    summary.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("main details[open] .sort")


def test_a_table_is_sorted_by_size_and_not_by_its_number(pages, window):
    page = window.open(kinds(pages)["sizes"])
    sizes = page.locator("section", has=page.locator("[data-kind=curve]")).first
    sizes.locator("details summary").click()
    sizes.locator("th:nth-child(1) .sort").click()
    factors = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
    texts = map(str.split, sizes.locator("tbody th").all_inner_texts())
    found = [int(number) * factors[unit] for number, unit in texts]
    assert len(found) > 3 and found == sorted(found, reverse=True)


def test_no_table_is_sorted_or_filtered_without_scripts(pages, new_window):
    page = new_window(java_script_enabled=False).open(kinds(pages)["system"])
    assert page.locator("tbody td").count() and not page.locator("button.sort, input").count()


def test_the_order_and_the_filter_of_a_table_are_in_the_address(pages, window):
    page = window.open(kinds(pages)["system"])
    tab_to(page, "input[type=search]")
    page.keyboard.type("osu")
    tab_to(page, "th:nth-child(4) .sort")
    page.keyboard.press("Enter")
    chosen, written = cells(page, 3), page.url
    assert "filter" in written and "sort" in written
    page = window.open(pages / "index.html")
    page.goto(written)
    assert cells(page, 3) == chosen
    assert page.locator("thead th").nth(3).get_attribute("aria-sort") == "descending"
    assert page.locator("input[type=search]").input_value() == "osu"
    page.locator("input[type=search]").fill("")
    assert "filter" not in page.url and "sort" in page.url
    page.goto(written.split("?")[0] + "?sort.Figures+of+merit+of+alder=99&filter.x=%3Cimg%3E")
    assert len(cells(page, 3)) > len(chosen)


@pytest.fixture(scope="module", name="red")
def red_(tmp_path_factory) -> Path:
    """The start page of a session: five checks failed, and one was invalid on nine nodes."""
    cases = [{"check": f"osu_{number}", "nodes": ["n0"], "figures": [SLOW]} for number in range(5)]
    cases += [{"check": f"stream %.nid=n{number}", "nodes": [f"n{number}"], "figures": [],
               "result": "invalid", "reason": "truncated"} for number in range(1, 10)]  # fmt: skip
    return report_page(sessions_of(tmp_path_factory.mktemp("red"), cases))


def entries(page, name: str = "Red now") -> list[str]:
    """The names of the visible entries of a list."""
    return page.locator(f"ul[aria-label='{name}'] > li:visible .name").all_inner_texts()


def test_a_list_is_filtered_with_the_keyboard_as_a_table_is(red, window):
    page = window.open(red)
    every = entries(page)
    assert sorted(every) == [*(f"osu_{number}" for number in range(5)), "stream"]
    tab_to(page, "[aria-label='Filter Red now']")
    page.keyboard.type("OSU_3  alder")
    assert entries(page) == ["osu_3"]
    state = page.locator("section[aria-labelledby=red] [role=status].filter-state")
    assert state.inner_text().startswith("1 of 6 ")
    written = page.url
    # The row of the nodes names six of them.
    page.keyboard.press("Control+a")
    page.keyboard.type("n9")
    assert entries(page) == ["stream"]
    page.keyboard.press("Control+a")
    page.keyboard.type("no such check")
    assert entries(page) == [] and state.inner_text().startswith("0 of 6 ")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    assert entries(page) == every and "filter" not in page.url
    page = window.open(red.parent / "about.html")
    page.goto(written)
    assert entries(page) == ["osu_3"]


def test_a_filtered_list_has_no_barrier_and_all_is_there_without_scripts(red, window, new_window):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = window.open(red)
    assert any(assert_long_lists_have_a_filter(page, "red"))
    page = window.open(red, "?filter.Red+now=osu")
    assert len(entries(page)) == 5
    found = axe.run(page, options={"preload": False})
    assert [one["id"] for one in found.response["violations"]] == []
    page = new_window(java_script_enabled=False).open(red, "?filter.Red+now=osu")
    assert len(entries(page)) == 6 and page.locator("input").count() == 0


def test_the_lists_of_what_is_red_changed_and_slow_have_names(pages):
    content = (pages / "index.html").read_text() + (pages / "changes.html").read_text()
    named = set(re.findall(r'<ul class="rows" aria-label="([^"]*)"', content))
    assert {"Red now", "What changed", "Slow nodes", "Changes"} <= named
    assert '<ul class="rows">' not in content


# -- search --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "kind", "page", "heading"),
    [
        ("birch", "Systems", "systems/birch-*.html", "birch"),
        ("osu latency alder", "Checks", "checks/alder-osu-p2p-test-latency*.html",
         "osu_p2p test=latency"),
        ("NID0007", "Nodes", "checks/alder-babelstream-cpu*.html", "babelstream_cpu"),
        ("triad alder", "Figures of merit", "checks/alder-babelstream-cpu*.html",
         "babelstream_cpu"),
    ],
)  # fmt: skip
def test_a_word_finds_its_page_with_the_keyboard(pages, window, query, kind, page, heading):
    found = window.open(pages / "search.html")
    assert found.evaluate("document.activeElement.id") == "query"
    found.keyboard.type(query)
    section = found.locator("#results section", has=found.locator(f"h2:text('{kind}')"))
    target = one(pages, page)
    assert section.count() == 1 and not found.locator("#every").is_visible()
    for _ in range(40):
        found.keyboard.press("Tab")
        if target.name in (found.evaluate("document.activeElement.href") or ""):
            break
    found.keyboard.press("Enter")
    found.wait_for_url(f"**/{target.name}*")
    assert found.locator("h1").inner_text() == heading
    if kind == "Figures of merit":
        anchor = found.evaluate("location.hash.slice(1)")
        assert found.locator(f"#{anchor} h2").inner_text().startswith("triad")


def test_the_own_page_of_a_flagged_node_is_its_first_link(pages, window):
    page = window.open(pages / "search.html", "#nid00")
    nodes = page.locator("#results section", has=page.locator("h2:text('Nodes')")).locator("li")
    links = {
        node.locator("strong").inner_text(): node.locator("a").evaluate_all(
            "links => links.map(a => a.getAttribute('href'))"
        )
        for node in nodes.all()
    }
    own = one(pages, "nodes/alder-nid0007*.html").relative_to(pages)
    assert links["nid0007"][0] == str(own) and links["nid0007"][1:]
    assert not any(href.startswith("nodes/") for name, of in links.items() for href in of
                   if name != "nid0007")  # fmt: skip
    page.locator("#query").fill("nid0007")
    tab_to(page, "#results a")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{own.name}")


def test_a_search_is_in_its_address(pages, window):
    page = window.open(pages / "search.html", "#nid0003%20")
    assert page.locator("#query").input_value() == "nid0003 "
    assert page.locator("#results strong").all_inner_texts() == ["nid0003"]
    assert page.locator("#found").inner_text() == "1 found"
    page.locator("#query").fill("no such word")
    assert page.locator("#found").inner_text() == "0 found"
    assert page.evaluate("location.hash") == "#no%20such%20word"
    page.locator("#query").fill("")
    assert page.locator("#every").is_visible() and page.locator("#results a").count() == 0
    page = window.open(pages / "search.html", "#%E0%A4")
    assert page.locator("#query").input_value() == ""


def test_without_scripts_all_checks_are_listed(pages, new_window):
    page = new_window(java_script_enabled=False).open(pages / "search.html")
    assert not page.locator("#query").is_visible()
    checks = page.locator("#every li a").evaluate_all("links => links.map(a => a.href)")
    assert {Path(link).name for link in checks} == {p.name for p in (pages / "checks").iterdir()}


def test_tab_comes_to_the_content_first(pages, window):
    page = window.open(pages / "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_theme_is_remembered(pages, window):
    page = window.open(pages / "index.html")
    assert page.locator("#theme").inner_text() == "Dark"
    page.locator("#theme").press("Enter")
    page = window.open(kinds(pages)["sizes"])
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.wait_for_selector(".chart svg text")
    dark = ink(page)
    page.locator("#theme").click()
    assert ink(page) != dark


def ink(page) -> str:
    """The colour of a chart's words."""
    return page.evaluate("getComputedStyle(document.querySelector('.chart svg text')).fill")


def test_on_paper_every_chart_is_drawn_in_light(pages, new_window):
    window = new_window(color_scheme="dark")
    page = window.open(kinds(pages)["sizes"])
    page.wait_for_selector(".chart svg text")
    dark = ink(page)
    width = page.evaluate("document.querySelector('.chart').chart.frame().width")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert drawn(page) == page.locator(".chart").count()
    assert ink(page) == "rgb(87, 96, 106)"
    assert page.evaluate("document.querySelector('.chart').chart.frame().width") < width
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert ink(page) == dark
    assert page.evaluate("document.querySelector('.chart').chart.frame().width") == width


def test_a_plain_check_of_two_partitions_on_a_phone(tmp_path, new_window):
    """It has no placement, and a reference that no table has."""
    figure = records.figure(300.0, placement="", verdict="pass", lower=290.0, reference="check")
    cases = [
        {"partition": name, "case": f"one @alder:{name}+gnu-mpich", "placement": None,
         "conditions": {"array": "x" * 60}, "foms": [figure]}
        for name in ("cpu", "fat")
    ]  # fmt: skip
    path = report_page(sessions_of(tmp_path, cases), "checks/alder-stream*.html")
    page = new_window(viewport={"width": 390, "height": 844}).open(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    places = page.locator(".figures .narrow:visible").all_inner_texts()
    assert places == ["cpu + gnu-mpich", "fat + gnu-mpich"]
    about = page.locator("section.figure > p.muted").first.inner_text()
    assert about.split(" · ")[:2] == ["cpu + gnu-mpich", f"array={'x' * 60}"]
    assert notes(path.parent.parent / "references" / "check.html") == set()
    page.set_viewport_size({"width": 1280, "height": 844})
    assert page.locator(".figures .narrow:visible").count() == 0


def test_without_scripts_the_content_is_there(pages, new_window):
    page = new_window(java_script_enabled=False).open(kinds(pages)["sizes"])
    content = page.locator("main").inner_text()
    assert "latency · 8 B" in content
    newest = latencies(pages)[-1]
    assert f"{float(newest['value']):.5g} us" in content
    href = page.locator("[id^=latency-8-] .files a").first.get_attribute("href")
    path = one(pages, "data/alder-osu-p2p-test-latency*/sizes-latency-*.csv")
    assert (kinds(pages)["sizes"].parent / href).resolve() == path


def test_the_site_forbids_what_is_external(pages):
    for path in kinds(pages).values():
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', path.read_text())[1]
        assert "default-src 'none'" in policy
        assert not re.search(r"https?:|\*", policy)
        assert not re.search(r"(src|href)=\"(https?:)?//", path.read_text())


def test_the_scripts_are_small_and_bring_their_licence(pages):
    scripts = {path.name: path.read_text() for path in (pages / "assets").glob("*.js")}
    assert sum(map(len, scripts.values())) < 150_000
    notice, _, _ = scripts["d3.min.js"].partition("*/")
    assert "Copyright" in notice
    assert "permission notice appear in all copies" in " ".join(notice.split())


def test_provenance_is_one_click_away(pages, window):
    page = window.open(kinds(pages)["sizes"])
    page.locator("section.figure dl.facts a", has_text="alder-osu-latency-8-").first.click()
    target = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    card = page.locator(f'[id="{target}"]').inner_text()
    assert "alder-osu-latency-8-on-socket" in card
    assert "baseline of 2026-07-30" in card
    assert "median" in card
    assert "reference/alder.csv:" in card
    assert "10%" in card


def test_a_report_that_is_opened_late_shows_its_age(tmp_path, window):
    folder, now = sessions_of(tmp_path, [{}]), datetime.datetime.now(UTC)
    page = window.open(report_page(folder, now=now - 9 * DAY))
    assert " 9 days " in page.locator("#age").inner_text()


def test_one_session_alone_makes_all_pages(tmp_path, window):
    path = report_page(sessions_of(tmp_path, [{}]), "checks/*.html")
    assert_links_resolve(tmp_path / "out")
    page = window.open(path)
    page.wait_for_selector(".chart svg .mark")
    assert drawn(page) == 1
    assert "no earlier session" in page.locator("main").inner_text()


# -- hostile texts ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """The report of a history whose every text is out for harm."""
    folder = tmp_path_factory.mktemp("hostile")
    attack = f"{HOSTILE}/../../{HOSTILE}\u202e\x07"
    sessions_of(
        folder,
        *(
            [
                {
                    "check": f"=cmd|{attack} {night // 9}",
                    "partition": f"+{attack}",
                    "environment": f"@{attack}",
                    "nodes": [f"-{attack}{night % 3}"],
                    "reason": attack,
                    "result": "fail",
                    "extras": {attack: attack},
                    "build": {attack: f"{attack}{night // 3}"},
                    "hosts": {attack: {attack: attack}},
                    "conditions": {"a": attack},
                    "output": attack,
                    "jobid": attack,
                    "version": attack,
                    "figures": [
                        dict(
                            SLOW, metric=f"={attack}", location=attack, reason=attack, headline=True
                        ),
                    ],
                }
            ]
            for night in range(9)
        ),
    )
    for path in folder.glob("sessions/*/*.json*"):
        path.write_text(path.read_text().replace("alder", "<b>alder</b>"))
    return report_page(folder).parent


@pytest.mark.holds("pages")
def test_hostile_texts_are_texts(hostile, new_window):
    window = new_window()
    for path in hostile.rglob("*.html"):
        page = window.open(path)
        page.wait_for_timeout(150)
        for summary in page.locator("summary").all():
            summary.click()
        for chart in page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
            chart.hover()
        assert page.evaluate("typeof hacked") == "undefined", path
        # Those of the heat maps are our own.
        assert page.locator('img:not([src^="../data/"])').count() == 0
        assert page.locator("main b, main script[src]").count() == 0
    page = window.open(one(hostile, "checks/*.html"))
    assert HOSTILE in page.locator("main").inner_text()
    assert page.locator(".chart a").count() == 0


@pytest.mark.holds("spreadsheet")
@pytest.mark.holds("pages")
def test_hostile_names_stay_in_their_folder_and_out_of_formulas(hostile):
    assert_links_resolve(hostile)
    for path in hostile.rglob("*"):
        assert re.fullmatch(r"[a-z0-9.-]+", path.name), path
        if path.suffix == ".csv":
            for row in csv.reader(io.StringIO(path.read_text())):
                for cell in row:
                    if not re.fullmatch(r"-?[0-9.e+-]+", cell):
                        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell


# -- what reads well ----------------------------------------------------------------------------


#: The contrast of a colour on grounds that are painted one over the other, as WCAG 2 reckons it.
CONTRAST = """
    const pen = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const light = (colours) => {
        pen.clearRect(0, 0, 1, 1);
        colours.forEach(colour => { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); });
        const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map(
            v => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b;
    };
    const contrast = (ink, grounds) => {
        const [low, high] = [light([...grounds, ink]), light(grounds)].sort((a, b) => a - b);
        return (high + .05) / (low + .05);
    };
"""
#: Of each word, mark and ground of the style sheet, its contrast.
OF_STYLE = f"""() => {{{CONTRAST}
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
    const of = (words) => words.flatMap(word => ["--page", "--surface", "--hover"].map(
        ground => [word, ground, contrast(colour(word), [colour(ground)])]));
    return [of(["--text", "--muted", "--accent", "--red", "--amber", "--green", "--violet",
                "--grey"]), of(["--bound", "--line-data"])];
}}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_lines_stand_out_from_their_ground(pages, new_window, scheme):
    page = new_window(color_scheme=scheme).open(pages / "index.html")
    words, lines = page.evaluate(OF_STYLE)
    assert [one for one in words if one[2] < 4.5] == []
    assert [one for one in lines if one[2] < 3] == []


def test_every_chart_has_a_legend_and_leaves_room_for_the_plot(pages, new_window):
    window = new_window(viewport={"width": 400, "height": 900})
    chart = chart_of(window.open(kinds(pages)["nodes"]))
    legend = chart.locator("xpath=following-sibling::ul").inner_text().split("\n")
    assert {"lower bound", "nid0007", "median", "new build"} <= {*legend}
    assert any(name.startswith("ceiling 460.8 GB/s, ") for name in legend)
    tall = chart.evaluate("c => c.chart.frame().height")
    assert tall > 150


def test_changes_that_lie_close_are_labelled_in_rows(pages, window, tmp_path):
    source = one(pages, "checks/alder-osu-p2p-test-latency*.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', source, re.S)[1])
    first = data["figures"][0]["changes"][0]
    transient = first | {
        "kind": "transient",
        "time": first["time"] + 3000,
        "until": first["time"] + 6000,
    }
    data["figures"][0]["changes"] = [first, transient]
    for name in ("assets", "data"):
        shutil.copytree(pages / name, tmp_path / name)
    (tmp_path / "checks").mkdir()
    path = tmp_path / "checks" / "page.html"
    path.write_text(re.sub(r'(id="data">).*?(</script>)',
                           lambda found: found[1] + json.dumps(data) + found[2], source,
                           flags=re.S))  # fmt: skip
    chart = chart_of(window.open(path))
    labels = chart.evaluate(
        "c => [...c.querySelectorAll('text.rule')].map("
        "t => [t.textContent.split(' ')[0], t.getBoundingClientRect().bottom])"
    )
    assert {name for name, _ in labels} == {first["kind"], "transient"}
    assert abs(labels[0][1] - labels[1][1]) > 10
    strips = chart.evaluate(
        "c => [...c.querySelectorAll('.plot rect')].filter(r => r.style.fill.includes('range') && "
        "+r.getAttribute('height') === c.chart.frame().height).length"
    )
    assert strips == 1


# -- pointers -----------------------------------------------------------------------------------


@pytest.fixture(name="chart")
def chart_(pages, window):
    """The first history of a page, in sight."""
    return chart_of(window.open(one(pages, BANDWIDTH)))


def middle_of(chart) -> tuple[float, float]:
    """Where the plot's middle is on the screen."""
    box = chart.locator("svg svg.plot").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, start, end) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=3)
    page.mouse.up()


def test_a_mark_shows_its_value_and_a_click_opens_its_session(chart):
    page = chart.page
    passed = chart.evaluate("c => c.chart.traces.find(t => t.name === 'passed')")
    mark = chart.locator('.mark[style*="--line-data"]').last.bounding_box()
    at = mark["x"] + mark["width"] / 2 + 2, mark["y"] + mark["height"] / 2
    hint = chart.locator(".hint")
    page.mouse.move(*at)
    assert hint.locator("div").all_inner_texts() == passed["hint"][-1]
    page.mouse.move(at[0], at[1] + 2000)
    assert not hint.is_visible()
    page.mouse.click(*at)
    page.wait_for_url(f"**/{passed['page'][-1].removeprefix('../')}")


def test_a_chart_is_read_and_zoomed_with_the_keyboard_alone(pages, window):
    page = window.open(one(pages, BANDWIDTH))
    tab_to(page, '.chart[data-kind="history"]')
    chart = page.locator(".chart:focus")
    page.wait_for_selector(".chart:focus svg .mark")
    assert chart.evaluate("c => getComputedStyle(c).outlineStyle") == "solid"
    passed = chart.evaluate("c => c.chart.traces.find(t => t.name === 'passed')")
    hint = chart.locator(".hint div")
    page.keyboard.press("ArrowRight")
    assert hint.all_inner_texts() == passed["hint"][-1]
    page.keyboard.press("ArrowLeft")
    assert hint.all_inner_texts() == passed["hint"][-2]
    spoken = chart.locator("xpath=..").locator("[role=status]")
    assert spoken.text_content() == ", ".join(passed["hint"][-2])
    assert float(chart.locator(".cursor").get_attribute("r")) > 0

    home = chart.evaluate("c => c.chart.view()")
    width = home["x"][1] - home["x"][0]
    page.keyboard.press("+")
    page.keyboard.press("+")
    near = chart.evaluate("c => c.chart.view()")
    assert near["x"][1] - near["x"][0] == pytest.approx(width / 4)
    assert near["x"][0] < passed["x"][-2] < near["x"][1] and near["y"] == home["y"]
    assert "zoom." in page.url and hint.all_inner_texts() == passed["hint"][-2]
    page.keyboard.press("-")
    wider = chart.evaluate("c => c.chart.view()")
    assert wider["x"][1] - wider["x"][0] == pytest.approx(width / 2)
    page.keyboard.press("0")
    assert chart.evaluate("c => c.chart.view()") == home and "zoom." not in page.url

    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert hint.all_inner_texts() == passed["hint"][-1]  # It is the last.
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{passed['page'][-1].removeprefix('../')}")


def test_the_marks_of_one_node_are_read_upwards_and_downwards(pages, window):
    page = window.open(kinds(pages)["nodes"])
    tab_to(page, '.chart[data-kind="nodes"]')
    page.wait_for_selector(".chart:focus svg .mark")
    hint = page.locator(".chart:focus .hint div")
    page.keyboard.press("Home")
    texts = []
    for _ in range(2):
        page.keyboard.press("ArrowDown")
        texts.append(hint.all_inner_texts())
    assert {text[1] for text in texts} == {demo_history.NODES[0]}
    values = [float(text[0].split()[0]) for text in texts]
    assert values[0] > values[1]
    page.keyboard.press("ArrowRight")
    assert hint.all_inner_texts()[1] == demo_history.NODES[1]
    page.keyboard.press("Tab")
    assert page.locator(".hint:not([hidden])").count() == 0


#: Of each text of a hint, its contrast with what is painted behind it.
OF_HINT = f"""() => {{{CONTRAST}
    return [...document.querySelectorAll(".hint:not([hidden]) div")].map(text => {{
        const grounds = [];
        for (let part = text; part; part = part.parentElement)
            grounds.unshift(getComputedStyle(part).backgroundColor);
        return contrast(getComputedStyle(text).color, grounds);
    }});
}}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["history", "nodes", "curve"])
def test_the_hint_of_a_mark_is_readable(pages, new_window, scheme, kind):
    window = new_window(color_scheme=scheme)
    page = window.open(kinds(pages)["sizes" if kind == "curve" else "nodes"])
    chart = chart_of(page, kind)
    mark = chart.locator(".mark").last.bounding_box()
    page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    contrasts = page.evaluate(OF_HINT)
    assert len(contrasts) >= 2 and min(contrasts) >= 4.5


@pytest.mark.parametrize("along", ["x", "y", "both"])
def test_a_drag_zooms_along_the_axes_it_follows_and_a_double_click_goes_back(chart, along):
    home = chart.evaluate("c => c.chart.view()")
    left, top = middle_of(chart)
    right = left + (100 if along in ("x", "both") else 2)
    bottom = top + (60 if along in ("y", "both") else 2)
    drag(chart.page, (left, top), (right, bottom))
    zoomed = chart.evaluate("c => c.chart.view()")
    frame = chart.evaluate("c => c.chart.frame()")
    share = {
        axis: (zoomed[axis][1] - zoomed[axis][0]) / (home[axis][1] - home[axis][0]) for axis in "xy"
    }
    assert share["x"] == pytest.approx(1 if along == "y" else 100 / frame["width"], rel=0.05)
    assert share["y"] == pytest.approx(1 if along == "x" else 60 / frame["height"], rel=0.05)
    chart.page.mouse.dblclick(left, top + 30)
    assert chart.evaluate("c => c.chart.view()") == home


def test_a_zoom_is_in_the_address(chart, window):
    page = chart.page
    home = chart.evaluate("c => c.chart.view()")
    left, top = middle_of(chart)
    drag(page, (left, top), (left + 100, top + 60))
    zoomed, written = chart.evaluate("c => c.chart.view()"), page.url
    page.goto("about:blank")
    page.goto(written)
    again = chart_of(page).evaluate("c => c.chart.view()")
    assert again["x"] == pytest.approx(zoomed["x"], rel=1e-9)
    assert again["y"] == pytest.approx(zoomed["y"], rel=1e-5)
    page.mouse.dblclick(*middle_of(chart))
    assert chart.evaluate("c => c.chart.view()") == home and "zoom" not in page.url
    name = written.split("zoom.")[1].split("=")[0]
    for wrong in ("", "1,2", "a,b,c,d", "2,1,2,1", "NaN,1,1,2"):
        page.goto("about:blank")
        page.goto(f"{written.split('?')[0]}?zoom.{name}={wrong}")
        assert chart_of(page).evaluate("c => c.chart.view()") == home


def test_a_zoomed_chart_shows_finer_dates_that_name_the_year(chart):
    left, top = middle_of(chart)
    drag(chart.page, (left, top), (left + 60, top))
    ticks = chart.locator(".axis").nth(1).locator("text").all_text_contents()
    assert len(ticks) >= 2
    assert all(re.fullmatch(r"[A-Z][a-z]{2} \d+, \d{4}", tick) for tick in ticks)


def test_a_chart_follows_the_width_of_the_window(chart):
    wide = chart.evaluate("c => c.chart.frame().width")
    chart.page.set_viewport_size({"width": 400, "height": 900})
    chart.page.wait_for_function(
        "w => document.querySelector('.chart[data-kind=history]').chart.frame().width < w - 200",
        arg=wide,
    )


def test_the_first_tap_on_a_mark_shows_its_hint(pages, new_window):
    window = new_window(has_touch=True, viewport={"width": 400, "height": 900})
    path = one(pages, BANDWIDTH)
    page = window.open(path)
    chart = chart_of(page)
    at = chart.locator(".mark").nth(3).bounding_box()
    page.touchscreen.tap(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    assert chart.locator(".hint").is_visible()
    page.wait_for_timeout(200)
    assert page.url == path.as_uri()
