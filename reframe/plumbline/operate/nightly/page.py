"""Writes the page of a night as Markdown, and the same as JUnit XML."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

import junitparser

from plumbline.core import formats, paths, suites
from plumbline.core.text import printable, quote_markdown
from plumbline.operate.nightly.parts import MAINTENANCE, NIGHT, Part, worst
from plumbline.output.export import UNASSERTED

if TYPE_CHECKING:
    from plumbline.operate.nightly import NightlyOptions

#: The page shows at most this many lines of a part.
_MAX_LINES = 40


def write(
    options: NightlyOptions,
    system: str,
    sessions: list[str],
    parts: list[Part],
    say: Callable[[str], None],
) -> int:
    """Write both files, and return the exit code of the night.

    If they cannot be written, the page is printed instead, and the night is inconclusive.
    """
    code = worst([part.code for part in parts])
    verdict = (MAINTENANCE if options.maintenance else NIGHT)[code]
    if not code and not options.maintenance and any(part.unasserted for part in parts):
        verdict += UNASSERTED
    title = f"{system}, after maintenance {options.maintenance}" if options.maintenance else system
    for part in parts:
        say(f"{part.title}: {part.message}")
    say(f"{title}: {verdict}")
    page = _markdown(f"{title}: {verdict}", f"{options.name}, exit code {code}", parts)
    folder = options.out
    if folder is None and sessions:
        folder = paths.results() / "sessions" / sessions[-1]
    try:
        if folder is None:
            raise OSError(0, "there is no session")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{options.name}.md").write_text(page, encoding="utf-8")
        (folder / f"{options.name}.xml").write_text(_junit(parts), encoding="utf-8")
        say(f"{folder / options.name}.md")
    except OSError as err:
        say(f"{folder or 'no folder'}: cannot write the page ({err.strerror}): printing it here")
        print(page)
        code = worst([code, 2])
    return code


def _markdown(title: str, outcome: str, parts: list[Part]) -> str:
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"
    rows = [(part.title, str(part.code), part.message) for part in parts]
    lines = [f"# {quote_markdown(title)}", "", f"{now}, {platform.node()}, {outcome}", ""]
    lines.append(formats.as_markdown(("part", "exit code", "result"), rows))
    for part in parts:
        if part.page:
            text = part.page.strip().splitlines()
            rest = len(text) - _MAX_LINES
            more = ["", f"and {rest} more lines: `{part.command}`"] if rest > 0 else []
            lines += ["", f"## {part.title.capitalize()}", "", *text[:_MAX_LINES], *more]
    return "\n".join(lines) + "\n"


def _junit(parts: list[Part]) -> str:
    """Return one test case for each part, followed by the parts' own suites."""
    cases = []
    for part in parts:
        outcome, message = None, printable(part.message)
        if part.skipped:
            outcome = junitparser.Skipped(message, "not judged")
        elif part.code:
            kind = junitparser.Failure if part.code == 1 else junitparser.Error
            outcome = kind(message, NIGHT[part.code])
        cases.append(suites.case(part.title, "nightly", outcome, message))
    own = (suite for part in parts for suite in part.suites)
    return suites.as_junit([suites.suite("nightly", cases), *own])
