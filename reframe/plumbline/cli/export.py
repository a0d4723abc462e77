"""``plumbline export``: exports one session for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from plumbline.cli.common import (
    complete_session,
    output_option,
    session_options,
    warn,
    warn_skipped,
    write,
)
from plumbline.core.errors import Fault, WrongOption

#: Suffix of a file -> format.
_SUFFIXES = {".prom": "prometheus", ".xml": "junit", ".md": "markdown"}


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--last", is_flag=True, help="Export the newest session that has ended; the default.")
@session_options
@click.option("--format", "form", type=click.Choice([*_SUFFIXES.values()]),
              help="[default: by --output's suffix: .prom, .xml, .md; else markdown]")  # fmt: skip
@output_option
def export(
    session: str | None,
    last: bool,
    select,
    source: Path | None,
    form: str | None,
    output: Path | None,
):
    """Write a session as Prometheus' text file, JUnit XML or Markdown.

    Without SESSION, the newest session that has ended is written, of those that the options select.

    Exit codes: 0 the session is written, also one with faults; 2 it cannot be read or written.
    """
    if session and (last or select != type(select)()):
        raise WrongOption(
            "SESSION cannot be combined with --last or with options that select sessions"
        )
    if source and source.is_file():
        raise Fault(
            f"{source}: not a results folder: a CSV file has no plan of a session",
            code="history.csv-only",
        )
    form = form or _format_of(output)
    from plumbline.history.history import History
    from plumbline.output import export as exports

    with History(source, say=warn) as history:
        found = exports.load(history, session, select, warn)
        warn_skipped(history)
    if form == "prometheus" and output:
        exports.write_prometheus(found, output)
    else:
        write(exports.FORMATS[form](found), output)


def _format_of(output: Path | None) -> str:
    """Return the format for a file, by its suffix.

    :raises Fault: if no format has that suffix.
    """
    if output is None:
        return "markdown"
    if output.suffix not in _SUFFIXES:
        known = ", ".join(f"{form} ({suffix})" for suffix, form in _SUFFIXES.items())
        raise WrongOption(
            f"{output}: unknown suffix: choose a format with --format; available: {known}"
        )
    return _SUFFIXES[output.suffix]
