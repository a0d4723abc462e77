"""Benches of the harness itself: `make bench`, `make detection`."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from plumbline.core import paths

DOCS = paths.ROOT / "docs"
BIN = Path(sys.executable).parent


def arguments(doc: str) -> argparse.ArgumentParser:
    """The options of a bench, which is described by its docstring."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep what is measured in docs/")
    return parser


def publish(name: str, page: str, write: bool) -> None:
    """Print a page, and keep it if that is asked."""
    print(page)
    if write:
        (DOCS / f"{name}.md").write_text(page, encoding="utf-8")


def keep(name: str, figures: dict, render: Callable[[dict], str], write: bool) -> None:
    """Print figures, and keep them with their page if that is asked."""
    text = json.dumps(figures, indent=1)
    print(text)
    if write:
        (DOCS / f"{name}.json").write_text(f"{text}\n")
        (DOCS / f"{name}.md").write_text(render(figures))


def browser_here() -> str | None:
    """The program of a browser, if there is one."""
    # The first one has no windows, and takes half of the other's CPU time.
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    return next(filter(None, map(shutil.which, names)), None)


@contextlib.contextmanager
def chromium() -> Iterator:
    """A browser, in which pages of a report are opened."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_here(), args=["--no-sandbox"])
        yield browser
        browser.close()
