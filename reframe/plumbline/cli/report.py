"""``plumbline report``: the static site that staff open every morning."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from plumbline.cli.common import say, selection_options, tell, warn


@click.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the report; an earlier report there is replaced.",
)
@click.option(
    "--stale",
    type=click.IntRange(1),
    default=48,
    show_default=True,
    metavar="HOURS",
    help="Age of the latest session from which on the report says that it is old.",
)
@click.option(
    "--sessions",
    "latest",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Latest sessions of each system that get a page of their own.",
)
@selection_options
def report(out: Path, stale: int, latest: int, select, source: Path | None):  # fmt: skip
    """Write the history as static pages, which need no network and no server.

    Exit codes: 0 the report is written, whatever it tells; 2 it is not, or lines of the records
    were left out of it.
    """
    import datetime

    from plumbline.history.history import History
    from plumbline.output import report as reports

    with History(source, warn) as history:
        made = reports.write(history, out, select, stale=datetime.timedelta(hours=stale),
                             latest=latest, say=say)  # fmt: skip
        code = tell(history)
    say(str(made))
    sys.exit(code)
