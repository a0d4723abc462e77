"""Writes a folder of pages from templates, and moves it to its place as a whole."""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import jinja2
from jinja2.utils import htmlsafe_json_dumps

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.output.report import text

#: A folder with this file is a report, so the next report may replace it.
MARK = "plumbline-report.json"
_HERE = Path(__file__).parent


class Site:
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

        :arg path: within the site.
        """
        root = "../" * path.count("/")
        parts = self._templates.get_template(template).generate(root=root, path=path, **context)
        with self._open(path) as file:
            file.writelines(parts)
        self.pages += 1

    def macros(self, template: str, root: str) -> Any:
        """Return the macros of a template, for pages of one folder."""
        return self._templates.get_template(template).make_module({"root": root})

    def table(self, path: str, columns: Iterable[str], rows: Iterable[Sequence]) -> None:
        """Write a CSV file.

        :arg rows: of cells, texts as :func:`plumbline.output.report.text.cell` makes them.
        """
        with self._open(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    def file(self, path: str, content: str) -> None:
        """Write a file."""
        with self._open(path) as file:
            file.write(content)

    def image(self, path: str, content: bytes) -> None:
        """Write an image."""
        self.bytes += self._place(path).write_bytes(content)

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[TextIO]:
        """Open a file for writing; characters that cannot be encoded become question marks."""
        with self._place(path).open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file
            file.flush()
            self.bytes += os.fstat(file.fileno()).st_size

    def _place(self, path: str) -> Path:
        """Return the path of a file, and create its folder."""
        folder, _, _ = path.rpartition("/")
        if folder not in self._folders:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        return self.folder / path

    def assets(self) -> None:
        """Write the style sheet and the scripts, with their licences."""
        for source in sorted((_HERE / "static").iterdir()):
            target = self._place(f"assets/{source.name}")
            self.bytes += shutil.copyfile(source, target).stat().st_size


def _visible(content: object) -> object:
    return text.clean(content) if type(content) is str else content


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
