"""What tests of the report share: a made-up history, its report, a browser, odd sessions."""

from __future__ import annotations

import csv
import datetime
import html.parser
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import demo_history
import pytest
import records
from conftest import valid
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.output import report

UTC = datetime.timezone.utc
NIGHTS = 45
#: What every text that a record may hold is made of in the hostile history.
HOSTILE = "<script>hacked=1</script><img src=x onerror=hacked=1>\"'&</title>"


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


@pytest.fixture(scope="session", name="pages")
def pages_(demo, tmp_path_factory) -> Path:
    """The report of the made-up history."""
    out = tmp_path_factory.mktemp("report") / "out"
    write(demo, out)
    return out


@pytest.fixture(scope="module", name="chromium")
def chromium_():
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


@pytest.fixture(name="new_window")
def new_window_(chromium) -> Iterator[Callable[..., Window]]:
    """Opens windows with options of a browser's context; nothing may go wrong in any."""
    opened = []

    def make(**options) -> Window:
        context = chromium.new_context(**options)
        opened.append((context, Window(context.new_page())))
        return opened[-1][1]

    yield make
    for context, window in opened:
        context.close()
        assert not window.wrong, window.wrong


@pytest.fixture(name="window")
def window_(new_window) -> Window:
    return new_window(viewport={"width": 1280, "height": 900})


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


def drawn(page, kind: str = "") -> int:
    """How many charts have marks or lines in them."""
    kind = f'[data-kind="{kind}"]' if kind else ""
    page.wait_for_timeout(50)
    return page.evaluate(
        f"[...document.querySelectorAll('.chart{kind}')].filter("
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
    demo = demo_history.Demo(1, datetime.datetime(2026, 11, 20, tzinfo=UTC), 1)
    figure = {"metric": "triad", "value": 300.0, "unit": "GB/s", "better": "higher",
              "reference": 290.0}  # fmt: skip
    for number, changes in enumerate(listed):
        start = datetime.datetime(2026, 11, 20, tzinfo=UTC) + number // a_night * apart
        start += number % a_night * datetime.timedelta(minutes=1)
        session = f"{start:%Y%m%dT%H%M%SZ}-{number:06x}"
        made = folder / "sessions" / session
        made.mkdir(parents=True)
        lines = []
        for changed in map(dict, changes):
            figures_of = changed.pop("figures", [figure])
            check = changed.pop("check", "stream")
            attempt = changed.get("attempt", 0)
            demo.sessions.clear()
            fields = demo.case("alder", 0, check, "babelstream", "all-cores", figures_of)
            fields |= {"session": session, "time": f"{start:%Y-%m-%dT%H:%M:%SZ}"}
            fields["attempt"] = attempt
            lines.append(json.dumps(valid(fields | changed)))
        (made / "records.jsonl").write_text("\n".join(lines) + "\n")
        cases = [json.loads(line)["case"] for line in lines]
        cases += [f"more {more}" for more in range(planned)]
        (made / "plan.json").write_text(
            records.plan(
                session, cases, system="alder", extras=fields["extras"] | changed.get("extras", {})
            )
        )
    return folder


def swept(folder: Path, *nights: dict[str, float]) -> Path:
    """A history of sweeps: each night has a session of each node, and the node's value."""
    figure = {"metric": "triad", "unit": "GB/s", "better": "higher", "reference": 200.0}
    sessions = [
        [{"nodes": [node], "extras": {"sweep": "w1", "node": node},
          "figures": [figure | {"value": value}]}]
        for night in nights
        for node, value in night.items()
    ]  # fmt: skip
    day = datetime.timedelta(days=1)
    return sessions_of(folder, *sessions, apart=day, a_night=len(nights[0]))


SLOW = {"metric": "triad", "value": 200.0, "unit": "GB/s", "better": "higher", "reference": 290.0}
NOW = datetime.datetime(2026, 11, 20, 12, tzinfo=UTC)
