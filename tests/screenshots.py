"""Makes the pictures of the report in the README and the docs (needs chromium)::

    python tests/screenshots.py docs/images [tutorial-report]

The history is a made-up one; ``tutorial.png`` is of the report that docs/tutorial.md makes, if
that is given. They have a palette of 255 colours, so that each is small.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import demo_history
import numpy as np
from bench import chromium
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page
from plumbline.output.report.heat import png
from reports import one

THEMES = ("light", "dark")
#: Width of a window -> its height, of a desktop's and of a phone's.
SIZES = {1440: 900, 390: 844}
#: As a mail program or a chat shows Markdown.
_MESSAGE = """<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 20px 28px; }
code { background: #eef0f2; border-radius: 4px; padding: 1px 4px; }
h3, ul { margin: 8px 0; } p { margin: 12px 0 0; }
</style>"""
_DECODE = """async source => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    const pen = canvas.getContext("2d");
    pen.drawImage(image, 0, 0);
    const { data } = pen.getImageData(0, 0, image.width, image.height);
    let text = "";
    for (let at = 0; at < data.length; at += 32768)
        text += String.fromCharCode(...data.subarray(at, at + 32768));
    return [image.width, image.height, btoa(text)];
}"""


def pages_of(report: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the name of each picture, its page with an address, and what it scrolls to."""
    check = one(report, "checks/alder-babelstream-cpu*.html")
    node = one(report, "nodes/*.html")
    nights = sorted((report / "sessions").glob("*t021*"))
    yield "start", "index.html", ""
    yield "check", f"checks/{check.name}", "section.figure"
    yield "heat", f"checks/{check.name}", "details.heat"
    yield "node", f"nodes/{node.name}", ""
    days = [f"{path.name[:4]}-{path.name[4:6]}-{path.name[6:8]}" for path in nights]
    yield (
        "compare",
        f"compare.html?side.kind=night&side.a={days[0]}+alder&side.b={days[-1]}+alder",
        "",
    )


def made(folder: Path) -> tuple[Path, str]:
    """Makes a report of a made-up history, and the summary of a session in it."""
    demo_history.write(folder)
    env = os.environ | {"PLUMBLINE_SITE": str(folder)}
    out, summary = folder / "report", folder / "summary.md"
    for words in (["report", "--out", out], ["export", "--system=alder", "-o", summary]):
        subprocess.run(["plumbline", *words, "--from", folder], env=env, check=True)
    return out, _MESSAGE + MarkdownIt().render(summary.read_text())


def reduced(page: Page, content: bytes) -> bytes:
    """A picture with the 255 most frequent colours, others by the nearest of these."""
    source = "data:image/png;base64," + base64.b64encode(content).decode()
    width, height, pixels = page.evaluate(_DECODE, source)
    colours = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(-1, 4)[:, :3].astype(int)
    packed = colours @ (1 << 16, 1 << 8, 1)
    names, which, count = np.unique(packed, return_inverse=True, return_counts=True)
    parts = np.column_stack([names >> 16, names >> 8 & 255, names & 255])
    kept = parts[np.argsort(-count, kind="stable")[:255]]
    nearest = ((parts[:, None] - kept[None]) ** 2).sum(axis=2).argmin(axis=1)
    index = nearest[which.ravel()].reshape(height, width).astype(np.uint8)
    return png(index, [tuple(colour) for colour in kept.tolist()], [])


def shot(
    browser: Browser, address: str, target: str, width: int, height: int, theme: str,
    opened: str = "", only: str = "",
) -> bytes:  # fmt: skip
    """A picture of a page, from a place on, with a folded part of it opened; or of a part only."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    page.goto(address)
    if opened:
        page.evaluate("s => { document.querySelector(s).open = true; }", opened)
    if target:
        page.evaluate("s => document.querySelector(s).scrollIntoView()", target)
    page.wait_for_timeout(600)
    content = page.locator(only).first.screenshot() if only else page.screenshot()
    # The policy of a page of the report forbids what an empty one may.
    page.goto("about:blank")
    found = reduced(page, content)
    page.close()
    return found


def main(images: Path, tutorial: Path | None = None) -> None:
    """Makes all pictures.

    :arg tutorial: the report that the tutorial makes.
    """
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        report, message = made(Path(folder))
        start = (report / "index.html").as_uri()
        (images / "report.png").write_bytes(shot(browser, start, "", 1120, 800, "light"))
        waive = shot(browser, start, "#red", 1120, 620, "light", opened="li.row details.waive")
        (images / "waive.png").write_bytes(waive)
        latency = one(report, "checks/alder-osu-p2p-test-latency*").as_uri()
        history = "figure:has(.chart[data-kind=history])"
        trend = shot(browser, latency, history, 1120, 800, "light", only=history)
        (images / "trend.png").write_bytes(trend)
        if tutorial:
            slow = (tutorial / "index.html").resolve().as_uri()
            (images / "tutorial.png").write_bytes(shot(browser, slow, "", 1120, 640, "light"))
        summary = Path(folder, "summary.html")
        summary.write_text(message, encoding="utf-8")
        (images / "summary.png").write_bytes(
            shot(browser, summary.as_uri(), "", 1120, 560, "light")
        )
        for name, path, target in pages_of(report):
            for width, height in SIZES.items():
                for theme in THEMES:
                    address = f"{report.as_uri()}/{path}"
                    content = shot(browser, address, target, width, height, theme)
                    (images / f"report-{name}-{theme}-{width}.png").write_bytes(content)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
