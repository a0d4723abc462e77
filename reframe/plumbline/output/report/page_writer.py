"""Writes a folder of pages from templates, and moves it to its place as a whole."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.utils import htmlsafe_json_dumps

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.output.report import text

#: A folder with this file is a report, so the next report may replace it.
MARK = "plumbline-report.json"
_HERE = Path(__file__).parent
#: Seconds after which the folder of a report that is not complete is one that was killed.
_LEFT = 24 * 60 * 60


class PageWriter:
    """The folder of one report.

    :ivar pages: number of pages written.
    :ivar bytes: size of all files.
    """

    def __init__(self, folder: Path, **common: object):
        """:arg common: variables for all templates."""
        self.folder = folder
        self.pages = self.bytes = 0
        self._folders: set[str] = set()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_visible,
            auto_reload=False,
        )
        names = ("number", "percent", "size", "day", "minute", "check", "slug", "confidence",
                 "night")  # fmt: skip
        self._templates.filters |= {name: getattr(text, name) for name in names}
        self._templates.filters["script_data"] = script_data
        self._templates.globals |= common
        # Tables call this macro a million times with few different arguments.
        macros: Any = self._templates.get_template("badge.html.j2").module
        badge = functools.lru_cache(1 << 10)(macros.badge)
        self._templates.globals["badge"] = self._templates.filters["badge"] = badge

    def page(self, path: str, template: str, **context: object) -> None:
        """Write a page.

        :arg path: within the folder.
        """
        root = "../" * path.count("/")
        made = self._templates.get_template(template)
        self.file(path, made.render(root=root, path=path, **context))
        self.pages += 1

    def macros(self, template: str, root: str) -> Any:
        """Return the macros of a template, for pages of one folder."""
        return self._templates.get_template(template).make_module({"root": root})

    def table(self, path: str, columns: Iterable[str], rows: Iterable[Sequence]) -> None:
        """Write a CSV file.

        :arg rows: of cells, texts as :func:`plumbline.output.report.text.cell` makes them.
        """
        content = io.StringIO(newline="")
        writer = csv.writer(content, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        self.file(path, content.getvalue())

    def file(self, path: str, content: str) -> None:
        """Write a file; characters that cannot be encoded become question marks."""
        self.image(path, content.encode(errors="replace"))

    def image(self, path: str, content: bytes) -> None:
        """Write an image."""
        # A report has tens of thousands of small files, and Python's buffers take longer than each.
        file = os.open(self._place(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
        self.bytes += len(content)

    def _place(self, path: str) -> str:
        """Return the path of a file, and create its folder."""
        folder, _, _ = path.rpartition("/")
        if folder not in self._folders:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        return f"{self.folder}/{path}"

    def assets(self) -> None:
        """Write the style sheet and the scripts, with their licences."""
        for source in sorted((_HERE / "static").iterdir()):
            self.image(f"assets/{source.name}", source.read_bytes())


def _visible(content: object) -> object:
    # Called for each expression of each page.
    if type(content) is str and not (content.isascii() and content.isprintable()):
        return text.clean(content)
    return content


def script_data(content: object) -> object:
    """Return data as JSON that is safe within a page's script element."""
    return htmlsafe_json_dumps(
        content,
        dumps=lambda data, **_: json.dumps(data, separators=(",", ":"), allow_nan=False),
    )


@contextlib.contextmanager
def replaced(out: Path) -> Iterator[Path]:
    """Yield a new folder, which replaces ``out`` at the end unless an exception is raised.

    :raises Fault: if ``out`` exists and is not a report, or cannot be written.
    """
    out = Path(os.path.realpath(out))
    _check_replaceable(out)
    _remove_left(out)
    new = out.parent / f".{out.name}.{secrets.token_hex(4)}"
    try:
        new.mkdir(parents=True)
        try:
            yield new
            _replace(out, new)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except OSError as err:
        where = err.filename or new
        raise Fault(
            f"{where}: cannot be written: {err.strerror or err}: free disk space, or choose a "
            f"writable folder with --out",
            code="files.not-writable",
        ) from None


def _remove_left(out: Path) -> None:
    """Remove the folders of reports that were killed before they replaced ``out``."""
    pattern = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{8}}(\.old)?")
    with contextlib.suppress(OSError):
        for path in out.parent.iterdir():
            if not pattern.fullmatch(path.name) or time.time() - path.lstat().st_mtime < _LEFT:
                continue
            # An old report is kept while there is no other.
            if path.suffix != ".old" or out.exists():
                shutil.rmtree(path, ignore_errors=True)


def _check_replaceable(out: Path) -> None:
    if paths.site().resolve().is_relative_to(out):
        raise Fault(
            f"{out}: has the site's own files (PLUMBLINE_SITE), which the report would replace: "
            f"choose another folder with --out",
            code="files.exists",
        )
    if out.is_dir():
        if not (out / MARK).is_file() and any(out.iterdir()):
            raise Fault(
                f"{out}: is not a report: choose a new folder, or that of an earlier report, with "
                f"--out",
                code="files.exists",
            )
    elif out.exists():
        raise Fault(f"{out}: is a file: choose a folder with --out", code="files.exists")


def _replace(out: Path, new: Path) -> None:
    """Replace a folder by a new one; if that fails, restore the old one."""
    # It may have been created while the pages were written.
    _check_replaceable(out)
    old = new.with_name(f"{new.name}.old")
    existed = out.exists()
    if existed:
        out.rename(old)
    try:
        new.rename(out)
    except OSError:
        if existed:
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
