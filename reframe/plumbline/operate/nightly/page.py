"""Writes the page of a night as Markdown, the same as JUnit XML, and metrics for Prometheus."""

from __future__ import annotations

import contextlib
import datetime
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

import junitparser
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from plumbline.core import files, formats, paths, suites
from plumbline.core.errors import Fault
from plumbline.core.text import printable, quote_markdown
from plumbline.operate.nightly.parts import MAINTENANCE, NIGHT, Part, worst
from plumbline.output import export

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
    """Write the files, and return the exit code of the night.

    If they cannot be written, the page is printed instead, and the night is inconclusive.
    """
    code = worst([part.code for part in parts])
    verdict = (MAINTENANCE if options.maintenance else NIGHT)[code]
    if not code and not options.maintenance and any(part.unasserted for part in parts):
        verdict += export.UNASSERTED
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
        # A part of a page, as on a full disk, would pass for a new one.
        files.write_atomically(folder / f"{options.name}.md", page)
        files.write_atomically(folder / f"{options.name}.xml", _junit(parts))
        if options.out and not options.maintenance:
            metrics = _prometheus(printable(system), code, parts)
            files.write_atomically(folder / "nightly.prom", metrics, export.PROMETHEUS_MODE)
        say(f"{folder / options.name}.md")
    except OSError as err:
        say(f"{folder or 'no folder'}: cannot write the page ({err.strerror}): printing it here")
        print(page)
        code = worst([code, 2])
    return code


def _markdown(title: str, outcome: str, parts: list[Part]) -> str:
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"
    rows = [(part.title, str(part.code), part.message) for part in parts]
    facts = f"{now}, {platform.node()}, {outcome}, {_site()}"
    lines = [f"# {quote_markdown(title)}", "", facts, ""]
    lines.append(formats.as_markdown(("part", "exit code", "result"), rows))
    for part in parts:
        if part.page:
            text = part.page.strip().splitlines()
            rest = len(text) - _MAX_LINES
            more = ["", f"and {rest} more lines: `{part.command}`"] if rest > 0 else []
            lines += ["", f"## {part.title.capitalize()}", "", *text[:_MAX_LINES], *more]
    return "\n".join(lines) + "\n"


def _site() -> str:
    """Return the site's folder that was used: a job has it in no profile that it reads."""
    with contextlib.suppress(Fault):
        if paths.site().is_dir():
            return f"site folder {quote_markdown(str(paths.site()))}"
    return "no site folder"


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


def _prometheus(system: str, code: int, parts: list[Part]) -> str:
    """Return the metrics of the night, and those of its last session."""
    metrics = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"plumbline_nightly_{name}", text, ["system", *labels], registry=metrics)

    gauge("exit_code", "0: OK, 1: faults found, 2: inconclusive.").labels(system).set(code)
    gauge("timestamp_seconds", "When the nightly ended.").labels(system).set_to_current_time()
    findings = gauge("findings", "Changes for the worse that are active, by state.", "state")
    for part in parts:
        for state, number in part.findings.items():
            findings.labels(system, state).set(number)
    sessions = [part.exported for part in parts if part.exported]
    text = generate_latest(metrics).decode()
    return text + (export.prometheus(sessions[-1]) if sessions else "")
