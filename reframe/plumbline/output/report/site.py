"""A folder of pages: rendered from templates, written beside its place, put there whole."""

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
from typing import TextIO

import jinja2
from jinja2.utils import htmlsafe_json_dumps

from plumbline.core.errors import Fault
from plumbline.output.report import text

#: File that says that a folder is a report, and may be replaced by the next.
MARK = "plumbline-report.json"
_HERE = Path(__file__).parent


class Site:
    """The pages of one report while they are written.

    :ivar pages: how many were written; ``bytes``: of all files.
    """

    def __init__(self, folder: Path, **common: object):
        """:arg common: what every template may use."""
        self.folder = folder
        self.pages = self.bytes = 0
        self._folders: set[str] = set()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        names = ("number", "percent", "size", "day", "minute", "check", "slug", "confidence")
        self._templates.filters |= {name: getattr(text, name) for name in names}
        self._templates.globals |= common
        # The one macro that tables ask a million times for one of a few answers.
        badge = self._templates.get_template("badge.html.j2").module.badge
        kept = functools.lru_cache(1 << 10)(badge)
        self._templates.globals["badge"] = self._templates.filters["badge"] = kept

    def page(self, path: str, template: str, **context: object) -> None:
        """Writes a page, piece by piece.

        :arg path: within the site.
        """
        root = "../" * path.count("/")
        made = self._templates.get_template(template).generate(root=root, path=path, **context)
        with self._opened(path) as file:
            file.writelines(made)
        self.pages += 1

    def macros(self, template: str, root: str) -> object:
        """The macros of a template, for pages of one folder, to be called."""
        return self._templates.get_template(template).make_module({"root": root})

    def table(self, path: str, columns: Iterable[str], rows: Iterable[Sequence]) -> None:
        """Writes a CSV file.

        :arg rows: of cells, texts as :func:`plumbline.output.report.text.cell` makes them.
        """
        with self._opened(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    def file(self, path: str, content: str) -> None:
        """Writes a file."""
        with self._opened(path) as file:
            file.write(content)

    def copy(self, path: str, source: Path) -> None:
        """Copies a file, its notices of licence included."""
        self.bytes += shutil.copyfile(source, self._place(path)).stat().st_size

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[TextIO]:
        """A file to be written; what cannot be encoded is a question mark."""
        with self._place(path).open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file
            file.flush()
            self.bytes += os.fstat(file.fileno()).st_size

    def _place(self, path: str) -> Path:
        """Where a file comes, in a folder that is there."""
        folder, _, _ = path.rpartition("/")
        if folder not in self._folders:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        return self.folder / path

    def assets(self) -> None:
        """Writes style and scripts, notices of licence included."""
        for source in sorted((_HERE / "static").iterdir()):
            self.copy(f"assets/{source.name}", source)


def _shown(content: object) -> object:
    return text.clean(content) if type(content) is str else content


def data(content: object) -> object:
    """Data for a script of a page, with nothing that could end the script."""
    return htmlsafe_json_dumps(content, dumps=_dumps)


def _dumps(content: object, **_) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


@contextlib.contextmanager
def replaced(out: Path) -> Iterator[Path]:
    """A new folder that takes the place of ``out`` once it is whole; if not, ``out`` stays.

    :raises Fault: if ``out`` is there and no report, or cannot be written.
    """
    out = Path(os.path.realpath(out))
    _refuse_what_is_no_report(out)
    made = out.parent / f".{out.name}.{secrets.token_hex(4)}"
    try:
        made.mkdir(parents=True)
        try:
            yield made
            _swap(made, out)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as err:
        where = err.filename or made
        raise Fault(
            f"{where}: cannot be written: {err.strerror or err}: free the disk, or give --out a "
            f"folder that can be",
            code="files.not-writable",
        ) from None


def _refuse_what_is_no_report(out: Path) -> None:
    if out.is_dir():
        if not (out / MARK).is_file() and any(out.iterdir()):
            raise Fault(
                f"{out}: is no report: give --out a new folder, or an earlier report's",
                code="files.exists",
            )
    elif out.exists():
        raise Fault(f"{out}: is a file: give --out a folder", code="files.exists")


def _swap(made: Path, out: Path) -> None:
    """Puts a folder in the place of another, which is there again if that fails."""
    # Checked anew: somebody may have made it while the pages were written.
    _refuse_what_is_no_report(out)
    old = made.with_name(f"{made.name}.old")
    had = out.exists()
    if had:
        out.rename(old)
    try:
        made.rename(out)
    except OSError:
        if had:
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
