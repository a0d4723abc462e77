"""What tests of the report share: a made-up history, its report, a browser, odd sessions."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import functools
import html.parser
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import demo_history
import jinja2
import numpy as np
import pytest
import records
from bench import browser_here
from conftest import PATIENCE
from plumbline.history.history import History
from plumbline.history.series import Key, Selection, Series
from plumbline.output import report
from plumbline.output.report import page_writer

UTC = datetime.timezone.utc
NOW = datetime.datetime(2025, 11, 20, 12, tzinfo=UTC)
DAY = datetime.timedelta(days=1)
NIGHTS = 45
#: A figure without its value, and one that failed.
TRIAD = {"metric": "triad", "unit": "GB/s", "better": "higher", "reference": 290.0}
SLOW = TRIAD | {"value": 200.0}
#: What every text that a record may hold is made of in the hostile history.
HOSTILE = "<script>hacked=1</script><img src=x onerror=hacked=1>\"'&</title>"


class Compiled(jinja2.BytecodeCache):
    """The templates, compiled once for all reports of this process, which takes as long as the rest
    of a small report."""

    def __init__(self):
        self.code: dict[str, bytes] = {}

    def load_bytecode(self, bucket):
        if bucket.key in self.code:
            bucket.bytecode_from_string(self.code[bucket.key])

    def dump_bytecode(self, bucket):
        self.code[bucket.key] = bucket.bytecode_to_string()


page_writer.jinja2 = SimpleNamespace(**vars(jinja2))
page_writer.jinja2.Environment = functools.partial(jinja2.Environment, bytecode_cache=Compiled())


@pytest.fixture(scope="session", name="demo")
def demo_(tmp_path_factory) -> Path:
    """A made-up history with its references."""
    folder = tmp_path_factory.mktemp("demo")
    demo_history.write(folder, nights=NIGHTS)
    return folder


def write(folder: Path, out: Path, *, select: Selection | None = None, source=None, **options):
    """Writes a report of a folder's sessions and references."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_SITE", str(folder))
        with History(source or folder) as history:
            return report.write(history, out, select or Selection(), **options)


def report_page(folder: Path, pattern: str = "index.html", **options) -> Path:
    """Writes a report of a folder's history, by default of today, and returns its one page of a
    name."""
    write(folder, folder / "out", **{"now": NOW, **options})
    return one(folder / "out", pattern)


@pytest.fixture(scope="session", name="pages")
def pages_(demo, tmp_path_factory) -> Path:
    """The report of the made-up history."""
    out = tmp_path_factory.mktemp("report") / "out"
    write(demo, out)
    return out


#: The size of a window, unless a test says otherwise.
DESKTOP = {"width": 1280, "height": 900}


@pytest.fixture(scope="module", name="chromium")
def chromium_():
    """A real browser, without any network."""
    if (path := browser_here()) is None:
        pytest.skip("no chromium here: apt-get install chromium-headless-shell")
    sync = pytest.importorskip("playwright.sync_api")
    # In ms. Five seconds of playwright's own are few on a busy machine.
    patience = PATIENCE * 1000
    sync.expect.set_options(timeout=patience)
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=patience
        )
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


@pytest.fixture(scope="module", name="windows")
def windows_() -> dict[tuple, Window]:
    """The windows of a browser, by the options of their contexts: each has a process of its own,
    which takes longer than most tests, and so is shared by them."""
    return {}


@pytest.fixture(name="new_window")
def new_window_(chromium, windows) -> Iterator[Callable[..., Window]]:
    """Opens windows as if they were new; nothing may go wrong in any."""
    opened = []

    def make(*, viewport=DESKTOP, color_scheme="null", **options) -> Window:
        kind = tuple(sorted(options.items()))
        if kind not in windows:
            context = chromium.new_context(**options)
            context.set_default_timeout(PATIENCE * 1000)
            windows[kind] = Window(context.new_page())
        opened.append(windows[kind])
        page = windows[kind].page
        page.set_viewport_size(viewport)
        page.emulate_media(media="null", color_scheme=color_scheme)
        return windows[kind]

    yield make
    for window in opened:
        window.page.evaluate("location.protocol === 'file:' && localStorage.clear()")
        window.page.mouse.move(0, 0)
        window.page.goto("about:blank")
        wrong, window.wrong = window.wrong, []
        assert not wrong, wrong


@pytest.fixture(name="window")
def window_(new_window) -> Window:
    return new_window()


def one(folder: Path, pattern: str) -> Path:
    """The one page of a name."""
    (found,) = folder.glob(pattern)
    return found


def latencies(folder: Path) -> list[dict[str, str]]:
    """The rows of the CSV file of the latency of 8 B."""
    path = one(folder, "data/alder-osu-p2p-test-latency*/sizes-latency-*.csv")
    with path.open() as file:
        return [row for row in csv.DictReader(file) if row["size"] == "8"]


def kinds(folder: Path) -> dict[str, Path]:
    """A page of each kind."""
    return {
        "today": folder / "index.html",
        "changes": folder / "changes.html",
        "sessions": folder / "sessions.html",
        "published": folder / "published.html",
        "about": folder / "about.html",
        "search": folder / "search.html",
        "compare": folder / "compare.html",
        "node": one(folder, "nodes/alder-nid0007*.html"),
        "system": one(folder, "systems/alder*.html"),
        "nodes": one(folder, "checks/alder-babelstream-cpu*.html"),
        "sizes": one(folder, "checks/alder-osu-p2p-test-latency*.html"),
        "nothing measured": one(folder, "checks/alder-fio*.html"),
        "session": max((folder / "sessions").iterdir()),
        "session over nodes": max((folder / "sessions").glob("*t021*")),
        "references": one(folder, "references/site-alder*.html"),
    }


def chart_of(place, kind: str = "history"):
    """The first chart of a kind in a page or a part of one, drawn and in sight."""
    chart = place.locator(f'.chart[data-kind="{kind}"]').first
    chart.scroll_into_view_if_needed()
    chart.locator("svg .mark").first.wait_for()
    return chart


def drawn(page) -> int:
    """How many charts have marks or lines in them."""
    page.wait_for_timeout(50)
    return page.evaluate(
        "[...document.querySelectorAll('.chart')].filter("
        "c => c.querySelector('svg .plot path')).length"
    )


def tab_to(page, selector: str, most: int = 200) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            return
    raise AssertionError(f"{selector}: the keyboard does not come to it")


def shown(path: Path, name: str) -> str:
    """The text of one section of a page."""
    part = re.search(rf'aria-labelledby="{name}">(.*?)</section>', path.read_text(), re.S)[1]
    return " ".join(re.sub(r"<[^>]+>", " ", part).split())


def notes(path: Path) -> set[str]:
    """The ids of the notes and banners of a page."""
    return set(re.findall(r'data-note="([a-z-]+)"', path.read_text()))


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
            # That of the search is what it searches for.
            if parts.fragment and target.name != "search.html":
                assert parts.fragment in seen[target].ids, f"{path.name}: {link}"
            count += 1
    return count


def sessions_of(
    folder: Path,
    *listed: list[dict],
    planned: int = 0,
    apart: datetime.timedelta = datetime.timedelta(hours=1),
    a_night: int = 1,
) -> Path:
    """A history of sessions, each a list of changes to a usual record.

    :arg a_night: so many begin a minute after the other, and the next so long apart.
    """
    first = datetime.datetime(2025, 11, 20, tzinfo=UTC)
    demo = demo_history.Demo(1, first, 1)
    for number, changes in enumerate(listed):
        start = first + number // a_night * apart
        start += number % a_night * datetime.timedelta(minutes=1)
        session = f"{start:%Y%m%dT%H%M%SZ}-{number:06x}"
        made = folder / "sessions" / session
        made.mkdir(parents=True)
        lines = []
        for changed in map(dict, changes):
            figures_of = changed.pop("figures", [TRIAD | {"value": 300.0}])
            check = changed.pop("check", "stream")
            demo.sessions.clear()
            fields = demo.case("alder", 0, check, "babelstream", "all-cores", figures_of)
            fields |= {"session": session, "time": f"{start:%Y-%m-%dT%H:%M:%SZ}"}
            lines.append(records.stored(fields | changed))
        (made / "records.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        cases = [*(line["case"] for line in lines), *map("more {}".format, range(planned))]
        extras = fields["extras"] | lines[-1]["extras"]
        plan = records.plan(session, cases, system="alder", extras=extras)
        (made / "plan.json").write_text(plan)
    return folder


def swept(folder: Path, *nights: dict[str, float]) -> Path:
    """A history of sweeps: each night has a session of each node, and the node's value."""
    sessions = [
        [{"nodes": [node], "extras": {"sweep": "w1", "node": node},
          "figures": [TRIAD | {"value": value, "reference": 200.0}]}]
        for night in nights
        for node, value in night.items()
    ]  # fmt: skip
    return sessions_of(folder, *sessions, apart=DAY, a_night=len(nights[0]))


def a_series(values, location="", node="", **fields) -> Series:
    """A series of a figure, a value a day, all of which passed."""
    count = len(values)
    times = np.datetime64("2025-08-01", "s") + np.arange(count) * np.timedelta64(1, "D")
    empty = np.full(count, np.nan)
    made = Series(
        Key("alder", "cpu", "gnu", "stream", "triad", -1, location, "all-cores", "", node),
        "babelstream", "GB/s", "higher", np.array([f"s{i}" for i in range(count)], object), times,
        np.array(values, float), empty, empty, empty,
        *(np.full(count, text, object) for text in ("pass", "", "b", node)), [[v] for v in values],
    )  # fmt: skip
    return dataclasses.replace(made, **fields)
