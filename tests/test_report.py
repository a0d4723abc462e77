"""`plumbline report`: what its pages tell, and that they do so in a real browser."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import html.parser
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import bench_history
import bench_report
import demo_history
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import valid
from plumbline import cli, report
from plumbline.errors import Fault
from plumbline.history import History
from plumbline.report import figures, findings, site, standing, text
from plumbline.series import Key, Selection, Series

UTC = datetime.timezone.utc
NIGHTS = 45
#: What every text that a record may hold is made of in the hostile history.
HOSTILE = "<script>hacked=1</script><img src=x onerror=hacked=1>\"'&</title>"


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """A made-up history with its references."""
    folder = tmp_path_factory.mktemp("demo")
    demo_history.write(folder, nights=NIGHTS)
    return folder


def write(folder: Path, out: Path, *, select: Selection | None = None, source=None, **options):
    """Writes a report of a folder's sessions and references."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_REFERENCE", str(folder / "reference"))
        patch.setenv("PLUMBLINE_SYSTEMS", str(folder / "systems"))
        with History(source or folder) as history:
            return report.write(history, out, select or Selection(), **options)


@pytest.fixture(scope="module")
def pages(demo, tmp_path_factory) -> Path:
    """The report of the made-up history."""
    out = tmp_path_factory.mktemp("report") / "out"
    write(demo, out)
    return out


@pytest.fixture(scope="module")
def chromium():
    """A real browser, without any network."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium here: apt-get install chromium")
    sync = pytest.importorskip("playwright.sync_api")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Window:
    """A browser's page that remembers what went wrong in it."""

    def __init__(self, page):
        self.page = page
        self.wrong: list[str] = []
        page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", self._requested)
        page.on("requestfailed", self._failed)

    def _failed(self, request) -> None:
        # The next page may be opened before the icon of this one is read.
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(f"failed: {request.url}: {request.failure}")

    def _requested(self, request) -> None:
        if not request.url.startswith("file://"):
            self.wrong.append(f"request: {request.url}")

    def open(self, path: Path, anchor: str = ""):
        self.page.goto(f"{path.as_uri()}{anchor}")
        return self.page


@pytest.fixture
def window(chromium) -> Iterator[Window]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    found = Window(context.new_page())
    yield found
    context.close()
    assert found.wrong == []


def one(folder: Path, pattern: str) -> Path:
    """The one page of a name."""
    (found,) = folder.glob(pattern)
    return found


def kinds(folder: Path) -> dict[str, Path]:
    """A page of each kind."""
    return {
        "today": folder / "index.html",
        "changes": folder / "changes.html",
        "sessions": folder / "sessions.html",
        "published": folder / "published.html",
        "about": folder / "about.html",
        "system": one(folder, "systems/alder*.html"),
        "nodes": one(folder, "checks/alder-babelstream-cpu*.html"),
        "sizes": one(folder, "checks/alder-osu-p2p-operation-latency*.html"),
        "nothing measured": one(folder, "checks/alder-fio*.html"),
        "session": max((folder / "sessions").iterdir()),
        "session over nodes": max((folder / "sessions").glob("*t021*")),
        "references": one(folder, "references/site-alder*.html"),
    }


def drawn(page, kind: str = "") -> int:
    """How many charts have marks or lines in them."""
    kind = f'[data-kind="{kind}"]' if kind else ""
    page.wait_for_timeout(50)
    return page.evaluate(
        f"[...document.querySelectorAll('.chart{kind}')].filter("
        "c => c.querySelector('svg .scatterlayer .trace path')).length"
    )


def shown(path: Path, name: str) -> str:
    """The text of one section of a page."""
    part = re.search(rf'aria-labelledby="{name}">(.*?)</section>', path.read_text(), re.S)[1]
    return " ".join(re.sub(r"<[^>]+>", " ", part).split())


# -- in the browser -----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_page_opens_without_a_fault_or_a_request(pages, chromium, scheme):
    context = chromium.new_context(color_scheme=scheme)
    window = Window(context.new_page())
    grounds = set()
    for path in kinds(pages).values():
        page = window.open(path)
        assert page.locator("main h1").inner_text()
        grounds.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    context.close()
    assert window.wrong == []
    assert grounds == {"rgb(18, 21, 24)" if scheme == "dark" else "rgb(247, 247, 245)"}


def test_charts_are_drawn_when_they_come_into_sight(pages, window):
    page = window.open(kinds(pages)["sizes"])
    page.wait_for_selector(".chart svg .scatterlayer")
    every = page.locator(".chart").count()
    assert 0 < drawn(page) < every
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        page.wait_for_timeout(30)
    page.wait_for_timeout(300)
    assert drawn(page) == every


def test_a_chart_shows_bounds_changes_and_builds(pages, window):
    page = window.open(one(pages, "checks/alder-osu-p2p-operation-bandwidth*.html"))
    page.wait_for_selector('.chart[data-kind="history"] svg .scatterlayer')
    chart = page.locator('.chart[data-kind="history"]').first
    told = chart.evaluate("c => [c.data.map(t => t.name), c.layout.shapes.map(s => s.type)]")
    assert {"lower bound", "reference", "passed", "new build"} <= set(told[0])
    assert "rect" in told[1]


def test_nodes_have_a_chart_and_the_slow_one_stands_out(pages, window):
    page = window.open(kinds(pages)["nodes"])
    page.wait_for_selector('.chart[data-kind="nodes"] svg .scatterlayer')
    chart = page.locator('.chart[data-kind="nodes"]').first
    ticks, medians = chart.evaluate("c => [c.layout.xaxis.ticktext, c.data[2].y]")
    assert len(ticks) == len(demo_history.NODES)
    assert ticks[int(np.argmin(medians))] == "nid0007"
    lines = page.locator('.chart[data-kind="history"]').first.evaluate("c => c.data.map(t=>t.name)")
    assert "nid0007" in lines


def test_the_table_of_a_chart_opens_by_keyboard(pages, window):
    page = window.open(kinds(pages)["sizes"])
    summary = page.locator("details[data-table=history] summary").first
    assert page.locator("details[data-table=history] td").count() == 0
    summary.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("details[data-table=history] td")
    details = page.locator("details[data-table=history]").first
    path = one(pages, "data/alder-osu-p2p-operation-latency*/latency-8-*.csv")
    rows = list(csv.DictReader(path.open()))
    assert details.locator("tbody tr").count() == len(rows)
    newest = details.locator("tbody tr").first.inner_text()
    assert rows[-1]["session"] in newest
    assert f"{float(rows[-1]['value']):.5g}" in newest
    assert "failed" in newest
    assert details.locator("caption").count() == 1
    assert details.locator("tbody th[scope=row] + td a").first.get_attribute("href")


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
    page.wait_for_selector(".chart svg")
    dark = page.evaluate("document.querySelector('.chart').layout.font.color")
    page.locator("#theme").click()
    assert page.evaluate("document.querySelector('.chart').layout.font.color") != dark


def test_on_paper_every_chart_is_drawn_in_light(pages, chromium):
    context = chromium.new_context(color_scheme="dark")
    window = Window(context.new_page())
    page = window.open(kinds(pages)["sizes"])
    page.wait_for_selector(".chart svg")
    dark = page.evaluate("document.querySelector('.chart').layout.font.color")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawn(page) == page.locator(".chart").count()
    assert page.evaluate("document.querySelector('.chart').layout.font.color") != dark
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelector('.chart').layout.font.color") == dark
    context.close()
    assert window.wrong == []


def test_no_page_is_wider_than_a_phone(pages, chromium):
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    window = Window(context.new_page())
    for name, path in kinds(pages).items():
        page = window.open(path)
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    context.close()
    assert window.wrong == []


def test_without_scripts_the_content_is_there(pages, chromium):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(kinds(pages)["sizes"].as_uri())
    said = page.locator("main").inner_text()
    assert "latency · 8 B" in said
    assert "CSV file has every value" in said
    path = one(pages, "data/alder-osu-p2p-operation-latency*/latency-8-*.csv")
    newest = list(csv.DictReader(path.open()))[-1]
    assert f"{float(newest['value']):.5g} us" in said
    href = page.locator("#" + path.stem).locator(".files a").get_attribute("href")
    assert (kinds(pages)["sizes"].parent / href).resolve() == path
    context.close()


def test_the_site_forbids_what_is_external(pages):
    for path in kinds(pages).values():
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', path.read_text())[1]
        assert "default-src 'none'" in policy
        assert not re.search(r"https?:|\*", policy)
        assert not re.search(r"(src|href)=\"(https?:)?//", path.read_text())


def test_accessibility_of_names_roles_and_tables(pages, window):
    for path in kinds(pages).values():
        page = window.open(path)
        faults = page.evaluate("""() => {
            const named = (e) => e.getAttribute("aria-label") || e.textContent.trim();
            const names = [...document.querySelectorAll("section, [role=region]")].map(
                e => e.getAttribute("aria-label") ||
                    document.getElementById(e.getAttribute("aria-labelledby")).textContent);
            const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
            return [
                ...[...document.querySelectorAll("a, button, summary")].filter(e => !named(e)),
                ...[...document.querySelectorAll("[role=img], [role=region]")].filter(
                    e => !e.getAttribute("aria-label")),
                ...[...document.querySelectorAll("table")].filter(e => !e.caption),
                ...[...document.querySelectorAll("th")].filter(e => !e.scope),
                ...[...document.querySelectorAll("[aria-labelledby]")].filter(
                    e => !document.getElementById(e.getAttribute("aria-labelledby"))),
                ...names.filter((name, at) => names.indexOf(name) !== at),
                ...ids.filter((id, at) => ids.indexOf(id) !== at),
            ].map(e => e.outerHTML || e);
        }""")
        assert faults == []
        for landmark in ("header", "nav", "main", "footer"):
            assert page.locator(landmark).count() == 1


# -- links --------------------------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """What a page links to, and the ids that it has."""

    def __init__(self, path: Path):
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src"):
                self.found.append(value)
            elif name == "id":
                self.ids.add(value)


def assert_links_resolve(folder: Path) -> int:
    seen = {path.resolve(): Links(path) for path in folder.rglob("*.html")}
    count = 0
    for path, page in seen.items():
        data = re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)
        more = []
        if data:
            content = json.loads(data[1])
            more = [*content["pages"].values(), *content["references"].values()]
        for link in [*page.found, *more]:
            parts = urlsplit(link)
            assert not parts.scheme and not parts.netloc, link
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.name}: {link}"
            assert target.is_relative_to(folder.resolve())
            if parts.fragment:
                assert parts.fragment in seen[target].ids, f"{path.name}: {link}"
            count += 1
    return count


def test_all_links_and_anchors_resolve(pages):
    assert assert_links_resolve(pages) > 500


def test_provenance_is_one_click_away(pages, window):
    page = window.open(kinds(pages)["sizes"])
    page.locator("section.figure dl.facts a", has_text="alder-osu-latency-8-").first.click()
    target = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    card = page.locator(f'[id="{target}"]').inner_text()
    assert "alder-osu-latency-8-on-socket" in card
    assert "baseline of 2026-07-30" in card
    assert "median" in card
    assert "reference/site/alder.csv:" in card
    assert "10%" in card


def test_a_session_tells_build_hosts_job_and_output(pages, demo):
    folder = max(path for path in (demo / "sessions").iterdir())
    fields = json.loads((folder / "records.jsonl").read_text().splitlines()[0])
    said = max((pages / "sessions").iterdir()).read_text()
    for told in (
        fields["build"]["sha256"],
        fields["hosts"][fields["nodes"][0]]["kernel"],
        fields["jobid"],
        fields["output"],
    ):
        assert told in said


# -- what it tells ------------------------------------------------------------------------------


def test_today_tells_what_is_red(pages):
    said = shown(pages / "index.html", "red")
    assert said.startswith("Red now 5 ")
    for told in ("nid0007", "above its ceiling", "truncated", "TIMEOUT", "13 sessions", "new"):
        assert told in said
    assert "fio" not in said
    assert "ior_easy" not in said


def test_today_tells_waivers_skips_and_what_is_not_asserted(pages):
    path = pages / "index.html"
    waived = shown(path, "waived")
    assert "ticket 4711" in waived and "storage team" in waived and "in 11 days" in waived
    assert "apt-get install fio" in shown(path, "skipped")
    unasserted = shown(path, "unasserted")
    assert "gpcnet_load" in unasserted and "asserted from 3 samples on" in unasserted
    assert "file_creation_rate" in shown(path, "near")


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
        found = standing.of_all(
            history, history.sessions(), Selection(), now, datetime.timedelta(hours=48)
        )
    return sorted(found, key=lambda one: one.system), now


def test_changes_are_told_together(pages):
    said = shown(pages / "index.html", "changed")
    latency = re.search(r"osu_p2p operation=latency alder .*?(?=osu_p2p|babelstream|$)", said)[0]
    assert "and 3 more" in latency


def test_a_change_that_cannot_be_sure_says_why(pages):
    said = (pages / "changes.html").read_text()
    assert "Above its ceiling: the measurement is at fault" in said


def test_the_papers_figures_stand_beside_ours(pages, demo):
    said = (pages / "published.html").read_text()
    section = re.search(r'<section id="osu-latency-8-on-socket.*?</section>', said, re.S)[0]
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


def sessions_of(folder: Path, *listed: list[dict], planned: int = 0) -> Path:
    """A history of sessions, each a list of changes to a usual record; one hour apart."""
    shutil.copytree(demo_history.ROOT / "reference", folder / "reference")
    demo = demo_history.Demo(1, datetime.datetime(2026, 11, 20, tzinfo=UTC), 1)
    figure = {"metric": "triad", "value": 300.0, "unit": "GB/s", "better": "higher",
              "reference": 290.0}  # fmt: skip
    for number, changes in enumerate(listed):
        session = f"20261120T{number:02d}0000Z-{number:06x}"
        made = folder / "sessions" / session
        made.mkdir(parents=True)
        lines = []
        for changed in map(dict, changes):
            figures_of = changed.pop("figures", [figure])
            check = changed.pop("check", "stream")
            attempt = changed.get("attempt", 0)
            demo.sessions.clear()
            fields = demo.case("alder", 0, check, "babelstream", "all-cores", figures_of)
            fields |= {"session": session, "time": f"2026-11-20T{number:02d}:00:00Z"}
            fields["attempt"] = attempt
            lines.append(json.dumps(valid(fields | changed)))
        (made / "records.jsonl").write_text("\n".join(lines) + "\n")
        cases = {json.loads(line)["case"]: {} for line in lines}
        cases |= {f"more {more}": {} for more in range(planned)}
        plan = {"schema": 3, "session": session, "extras": {}, "system": "alder", "cases": cases}
        (made / "plan.json").write_text(json.dumps(plan))
    return folder


SLOW = {"metric": "triad", "value": 200.0, "unit": "GB/s", "better": "higher", "reference": 290.0}
NOW = datetime.datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_a_check_run_by_hand_does_not_hide_what_the_night_found(tmp_path):
    folder = sessions_of(
        tmp_path, [{"check": "slow", "figures": [SLOW]}, {"check": "well"}], [{"check": "well"}]
    )
    with History(folder) as history:
        (alder,), _ = _standings(history, folder, NOW)
    (red,) = alder.red
    assert (red.check, red.late, red.sessions) == ("slow", True, 1)
    write(folder, tmp_path / "out", now=NOW)
    assert "the latest did not run them" in (tmp_path / "out" / "index.html").read_text()


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
    assert "the inventory has it, and no session" in (tmp_path / "out" / "index.html").read_text()


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
    said = (tmp_path / "out" / "index.html").read_text()
    assert "The latest session is 6 days old" in said
    assert "was cut off: 3 of 4 planned cases have no result" in said
    assert "has not ended" not in said
    write(folder, tmp_path / "out", now=NOW)
    assert "old: what follows" not in (tmp_path / "out" / "index.html").read_text()


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
    said = (tmp_path / "out" / "index.html").read_text()
    assert "1 of 2 planned cases have a result; its last sign of life is 9 hours old" in said
    assert "cut off" not in said and "vanished" not in said
    assert "running" in (tmp_path / "out" / "sessions.html").read_text()
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
    said = (tmp_path / "out" / "index.html").read_text()
    assert "0 of 1 planned cases have a result; its last sign of life is 10 minutes old" in said


def test_cases_that_were_not_asked_for_are_not_missing(tmp_path):
    folder = sessions_of(tmp_path, [{"check": "slow"}, {"check": "well"}])
    write(folder, tmp_path / "out", select=Selection(check="well"), now=NOW)
    said = (tmp_path / "out" / "index.html").read_text()
    assert "cut off" not in said and "has not ended" not in said


def test_a_session_of_the_future_is_told(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    write(folder, tmp_path / "out", now=NOW - datetime.timedelta(days=2))
    assert "is of the future" in (tmp_path / "out" / "index.html").read_text()
    write(folder, tmp_path / "out", now=NOW)
    assert "is of the future" not in (tmp_path / "out" / "index.html").read_text()


def test_a_report_that_is_opened_late_says_so(tmp_path, window):
    folder = sessions_of(tmp_path, [{}])
    write(folder, tmp_path / "out", now=datetime.datetime.now(UTC) - datetime.timedelta(days=9))
    page = window.open(tmp_path / "out" / "index.html")
    assert "written 9 days ago" in page.locator("#age").inner_text()


def test_one_session_alone_makes_all_pages(tmp_path, window):
    folder = sessions_of(tmp_path, [{}])
    write(folder, tmp_path / "out", now=NOW)
    assert_links_resolve(tmp_path / "out")
    page = window.open(one(tmp_path / "out", "checks/*.html"))
    page.wait_for_selector(".chart svg .scatterlayer")
    assert drawn(page) == 1
    assert "no earlier session" in page.locator("main").inner_text()


def test_a_session_in_which_all_was_skipped_is_told_as_such(tmp_path):
    skipped = {"result": "skip", "reason": "no network", "figures": [], "output": None}
    folder = sessions_of(tmp_path, [skipped])
    made = write(folder, tmp_path / "out", now=NOW)
    assert (made.series, made.red) == (0, 0)
    assert "no network" in shown(tmp_path / "out" / "index.html", "skipped")
    assert_links_resolve(tmp_path / "out")


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
    assert "1 of the test cases red" in done.output


def test_a_line_that_is_cut_off_is_told_on_the_page_and_with_2(tmp_path):
    folder = sessions_of(tmp_path, [{}, {"check": "lost"}])
    path = one(folder, "sessions/*/records.jsonl")
    path.write_text(path.read_text()[:-200])
    done = run(folder, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "left out:" in done.output and "records.jsonl:2" in done.output
    assert "records.jsonl:2" in shown(tmp_path / "out" / "index.html", "left")


# -- the folder ---------------------------------------------------------------------------------


def test_a_folder_that_is_no_report_is_left_alone(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    done = run(folder, "--out", out)
    assert done.exit_code == 2
    assert "is no report" in done.output
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
                        dict(SLOW, metric=f"={attack}", at=attack, reason=attack, headline=True),
                    ],
                }
            ]
            for night in range(9)
        ),
    )
    for path in folder.glob("sessions/*/*.json*"):
        path.write_text(path.read_text().replace("alder", "<b>alder</b>"))
    write(folder, folder / "out", now=NOW)
    return folder / "out"


def test_hostile_texts_are_texts(hostile, chromium):
    context = chromium.new_context()
    window = Window(context.new_page())
    for path in hostile.rglob("*.html"):
        page = window.open(path)
        page.wait_for_timeout(150)
        for summary in page.locator("summary").all():
            summary.click()
        for chart in page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
            chart.hover()
        assert page.evaluate("typeof hacked") == "undefined", path
        assert page.locator("img").count() == 0
        assert page.locator("main b, main script[src]").count() == 0
    page = window.open(one(hostile, "checks/*.html"))
    assert HOSTILE in page.locator("main").inner_text()
    assert page.locator(".chart a").count() == 0
    context.close()
    assert window.wrong == []


def test_hostile_names_stay_in_their_folder_and_out_of_formulas(hostile):
    assert_links_resolve(hostile)
    for path in hostile.rglob("*"):
        assert re.fullmatch(r"[a-z0-9.-]+", path.name), path
        if path.suffix == ".csv":
            for row in csv.reader(io.StringIO(path.read_text())):
                for cell in row:
                    if not re.fullmatch(r"-?[0-9.e+-]+", cell):
                        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell


def test_characters_that_cannot_be_seen_are_shown_as_such():
    assert text.clean("a\u202eb\ud800\x07\n") == "a\ufffdb\ufffd\ufffd\n"


# -- pieces -------------------------------------------------------------------------------------


def a_series(values, at="", node="", **fields) -> Series:
    count = len(values)
    times = np.datetime64("2026-08-01", "s") + np.arange(count) * np.timedelta64(1, "D")
    empty = np.full(count, np.nan)
    made = Series(
        Key("alder", "cpu", "gnu", "stream", "triad", -1, at, "all-cores", "", node),
        "babelstream", "GB/s", "higher", np.array([f"s{i}" for i in range(count)], object), times,
        np.array(values, float), empty, empty, empty, np.array(["pass"] * count, object),
        np.array([""] * count, object), np.array(["b"] * count, object),
        np.array([node] * count, object), [[v] for v in values],
    )  # fmt: skip
    return dataclasses.replace(made, **fields)


def test_nodes_share_a_chart_and_few_places_do_not():
    nodes = [a_series([1, 2], node=f"n{i}") for i in range(3)]
    places = [a_series([1, 2], at=f"gpu{i}") for i in range(4)]
    assert [len(f.members) for f in figures.grouped(nodes + places, {})] == [3, 1, 1, 1, 1]
    pairs = [a_series([1, 2], at=f"n{i}-n{i + 1}") for i in range(figures.PLACES)]
    assert [len(f.members) for f in figures.grouped(pairs, {})] == [figures.PLACES]


def test_a_figure_over_nodes_is_the_median_of_each_session():
    late = a_series([9.0, 4.0], node="c", sessions=np.array(["s1", "s2"], object),
                    times=a_series([0, 0, 0]).times[1:])  # fmt: skip
    (figure,) = figures.grouped([a_series([1.0, 2.0], node="a"), a_series([3.0, 8.0], node="b"),
                                 late], {})  # fmt: skip
    sessions, _, medians = figure.history
    assert (sessions.tolist(), medians.tolist()) == (["s0", "s1", "s2"], [2.0, 8.0, 4.0])
    data = figure.data([], None)
    assert (data["low"], data["high"]) == ([1.0, 2.0, 4.0], [3.0, 9.0, 4.0])
    assert figure.latest == 4.0


def test_changes_of_one_check_that_began_together_are_one_event():
    def change(metric: str, day: int, kind: str = "regression"):
        began = np.datetime64("2026-08-01", "s") + np.timedelta64(day, "D")
        key = dataclasses.replace(a_series([1]).key, metric=metric)
        return findings.Change(
            key, kind, -0.05, 0.9, True, day, began, began, "a", "b", None, True, True
        )

    events = findings.events(
        [change("a", 3), change("b", 4), change("c", 20), change("a", 3, "transient")]
    )
    assert sorted(len(event.changes) for event in events) == [1, 1, 2]


def test_many_series_are_judged_as_few_are(monkeypatch):
    noise = np.random.default_rng(3).normal(1, 0.01, (12, 60))
    series = [a_series(np.where(np.arange(60) < 40, 100, 90) * row, at=f"g{i}")
              for i, row in enumerate(noise)]  # fmt: skip
    alone = findings.of_all(series)
    monkeypatch.setattr(findings, "MANY", 2)
    several = findings.of_all(series)
    assert len(alone) == len(series)

    def told(all_of):
        return {k: [(c.kind, c.before, c.after) for c in found] for k, found in all_of.items()}

    assert told(several) == told(alone)


def test_numbers_are_told_with_the_digits_that_count():
    told = [text.number(v) for v in (0.85123, 183.2512, 11583.1, 1234567.0, 0, 1e-7)]
    assert told == ["0.85123", "183.25", "11,583", "1,234,567", "0", "1.0000e-07"]
    assert [text.percent(v) for v in (0.0512, -0.2, 0.00001, 2.5)] == [
        "+5.1\u202f%", "\u221220.0\u202f%", "0.0\u202f%", "+250\u202f%",
    ]  # fmt: skip
    assert [text.size(v) for v in (0, 8, 4096, 1 << 20, -1)] == ["0 B", "8 B", "4 KiB", "1 MiB", ""]


def test_a_waiver_that_is_gone_or_expired_is_told(demo):
    found = SimpleNamespace(waivers={}, now=NOW)
    assert "no longer" in report._Report.expiry(found, "x")
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
