"""``plumbline export``: one session for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from plumbline.cli.common import output_option, warn, write
from plumbline.errors import Fault


@click.command()
@click.argument("session", required=False)
@click.option("--last", is_flag=True, help="The newest session, as without SESSION.")
@click.option("--system", default="", metavar="NAME", help="The newest session of this system.")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
              help="Another results folder.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["prometheus", "junit", "markdown"]),
              required=True)  # fmt: skip
@output_option
def export(
    session: str | None,
    last: bool,
    system: str,
    source: Path | None,
    form: str,
    output: Path | None,
):
    """Write a SESSION as Prometheus' text file, JUnit XML, or a summary in Markdown.

    Exits with 0 once it is written, whatever the session found, which is in what is written; with 2
    if it could not be written or the session not be read.
    """
    from plumbline import export as exports
    from plumbline.history import History

    if session and (last or system):
        raise Fault("name a session, or have the newest one, not both")
    if source and source.is_file():
        raise Fault(f"{source}: no results folder")
    with History(source, say=warn) as history:
        found = exports.load(history, session, system)
    for line in found.unread:
        warn(f"left out: {line}")
    if form == "prometheus" and output:
        exports.write_prometheus(found, output)
    else:
        write(exports.FORMATS[form](found), output)
