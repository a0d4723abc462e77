"""The page of a night, in Markdown and as JUnit XML."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

import junitparser

from plumbline.core import paths, suites
from plumbline.core.text import escaped, printable
from plumbline.operate.nightly.parts import MAINTENANCE, NIGHT, Part, worst
from plumbline.output.export import UNASSERTED

if TYPE_CHECKING:
    from plumbline.operate.nightly import Wanted

#: Lines of a part that are shown.
_MOST = 40


def write(
    wanted: Wanted, system: str, names: list[str], parts: list[Part], say: Callable[[str], None]
) -> int:
    """Writes the page and the JUnit XML, or prints the page where it cannot be written, and gives
    the exit code of all."""
    code = worst([part.code for part in parts])
    verdict = (MAINTENANCE if wanted.maintenance else NIGHT)[code]
    if not code and not wanted.maintenance and any(p.unasserted for p in parts):
        verdict += UNASSERTED
    head = f"{system}, after maintenance {wanted.maintenance}" if wanted.maintenance else system
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"
    rows = [f"| {part.title} | {part.code} | {escaped(part.told)} |" for part in parts]
    lines = [
        f"# {escaped(head)}: {verdict}",
        "",
        f"{now}, {platform.node()}, {wanted.name}, exit code {code}",
        "",
        "| part | exit code | says |",
        "| --- | ---: | --- |",
        *rows,
    ]
    for part in parts:
        if part.page:
            told = part.page.strip().splitlines()
            rest = len(told) - _MOST
            more = ["", f"and {rest} more lines, of `{part.command}`"] if rest > 0 else []
            lines += ["", f"## {part.title.capitalize()}", "", *told[:_MOST], *more]
    page = "\n".join(lines) + "\n"
    folder = wanted.out
    if folder is None and names:
        folder = paths.results() / "sessions" / names[-1]
    for part in parts:
        say(f"{part.title}: {part.told}")
    say(f"{head}: {verdict}")
    try:
        if folder is None:
            raise OSError(0, "there is no session")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{wanted.name}.md").write_text(page, encoding="utf-8")
        (folder / f"{wanted.name}.xml").write_text(_junit(parts), encoding="utf-8")
        say(f"{folder / wanted.name}.md")
    except OSError as err:
        say(f"{folder or 'no folder'}: the page is not written ({err.strerror}); here it is:")
        print(page)
        code = worst([code, 2])
    return code


def _junit(parts: list[Part]) -> str:
    """All parts; those that are in order pass, and what each is made of stands in its own suite."""
    cases = []
    for part in parts:
        result, told = None, printable(part.told)
        if part.skipped:
            result = junitparser.Skipped(told, "not judged")
        elif part.code:
            kind = junitparser.Failure if part.code == 1 else junitparser.Error
            result = kind(told, NIGHT[part.code])
        cases.append(suites.case(part.title, "nightly", result, told))
    whole = suites.suite("nightly", cases)
    return suites.as_junit([whole, *(suite for part in parts for suite in part.suites)])
