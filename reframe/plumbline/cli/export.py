"""``plumbline export``: one session for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from plumbline.cli.common import output_option, session_options, tell, warn, write
from plumbline.core.errors import Fault

#: Ending of a file -> the format that it is for.
_ENDINGS = {".prom": "prometheus", ".xml": "junit", ".md": "markdown"}


@click.command()
@click.argument("session", required=False)
@click.option("--last", is_flag=True, help="The newest session that has ended, as without SESSION.")
@session_options
@click.option("--format", "form", type=click.Choice([*_ENDINGS.values()]),
              help="[default: by the ending of --output (.prom, .xml, .md), or else "
                   "markdown]")  # fmt: skip
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

    Without SESSION the newest that has ended, of those that the options choose.

    Exits with 0 once it is written, whatever the session found, which is in what is written; with 2
    if it could not be written or the session not be read.
    """
    if session and (last or select != type(select)()):
        raise Fault("name a session, or have the newest one, not both", code="input.wrong-option")
    if source and source.is_file():
        raise Fault(
            f"{source}: no results folder: a CSV file does not tell a session's plan",
            code="history.csv-only",
        )
    form = form or _format_of(output)
    from plumbline.history.history import History
    from plumbline.output import export as exports

    with History(source, say=warn) as history:
        found = exports.load(history, session, select, warn)
        tell(history)
    if form == "prometheus" and output:
        exports.write_prometheus(found, output)
    else:
        write(exports.FORMATS[form](found), output)


def _format_of(output: Path | None) -> str:
    """The format that a file's name asks for.

    :raises Fault: if it asks for none.
    """
    if output is None:
        return "markdown"
    if output.suffix not in _ENDINGS:
        known = ", ".join(f"{form} ({ending})" for ending, form in _ENDINGS.items())
        raise Fault(
            f"{output}: its ending is of no format: say --format, of {known}",
            code="input.wrong-option",
        )
    return _ENDINGS[output.suffix]
