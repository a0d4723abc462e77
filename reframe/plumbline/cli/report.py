"""``plumbline report``: writes the report, a static site."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from plumbline.cli.common import say, selection_options, warn, warn_skipped


@click.command()
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path),
              metavar="DIR", help="Folder of the report; replaces an earlier report.")  # fmt: skip
@click.option("--stale", type=click.IntRange(1), default=48, show_default=True, metavar="HOURS",
              help="Age of the latest session above which the report marks it as old.")  # fmt: skip
@click.option("--sessions", "latest", type=click.IntRange(1), default=10, show_default=True,
              metavar="N", help="Latest sessions of each system that get their own page."
              )  # fmt: skip
@selection_options
def report(out: Path, stale: int, latest: int, select, source: Path | None):  # fmt: skip
    """Write the history as static pages, which need neither network nor server.

    Exit codes: 0 the report is written, whatever it shows; 2 it is not, or some records, references
    or waivers could not be read.
    """
    import datetime

    from plumbline.history.history import History
    from plumbline.output import report as reports

    with History(source, warn) as history:
        written = reports.write(history, out, select, stale=datetime.timedelta(hours=stale),
                             latest=latest, say=say, warn=warn)  # fmt: skip
        code = warn_skipped(history)
    say(str(written))
    sys.exit(code or (2 if written.faults else 0))
