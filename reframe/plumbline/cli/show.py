"""``plumbline show``: what a session measured, figure by figure."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from plumbline.cli.common import (
    complete_session,
    output_option,
    selection_options,
    table_format_option,
    warn,
    warn_skipped,
    write,
)


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@selection_options
@click.option("--failed", is_flag=True,
              help="Only figures that are out of their bounds or worse than usual.")  # fmt: skip
@table_format_option
@output_option
def show(session: str | None, select, source: Path | None, failed: bool, form: str,
         output: Path | None):  # fmt: skip
    """Print what a session measured, figure by figure: value, usual value, change, reference.

    Without SESSION it is the newest one that the options select. The usual value is the median of
    the figure's own earlier sessions, up to 30; after a loss that lasts, of those before the loss.
    Figures that failed or are worse than usual are first.

    Exit codes: 0 the session is printed, also one with faults; 2 it has no figures, or cannot be
    read.
    """
    from plumbline.history.history import History
    from plumbline.output import session_figures

    if session:
        select = replace(select, sessions=(session,))
    with History(source, say=warn) as history:
        found = session_figures.load(history, select, failed, warn)
        code = warn_skipped(history)
    if not found.figures:
        code = 2
    write(session_figures.FORMATS[form](found), output)
    sys.exit(code)
