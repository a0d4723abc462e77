"""``plumbline show``: what a session measured, figure by figure."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from plumbline.cli.common import (
    complete_session,
    facts_option,
    output_option,
    selection_options,
    table_format_option,
    warn,
    warn_skipped,
    write,
)
from plumbline.core.errors import WrongOption


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@selection_options
@click.option("--failed", is_flag=True,
              help="Only figures that are out of their bounds or worse than usual.")  # fmt: skip
@facts_option
@table_format_option
@output_option
def show(session: str | None, select, source: Path | None, failed: bool, facts: bool, form: str,
         output: Path | None):  # fmt: skip
    """Print what a session measured, figure by figure: value, usual value, change, reference.

    Without SESSION it is the newest one that the options select. The usual value is the median of
    the figure's own earlier sessions, up to 30; after a loss that lasts, of those before the loss.
    Figures that failed or are worse than usual are first.

    Exit codes: 0 the session is printed, also one with faults; 2 it has no figures, or no facts, or
    cannot be read.
    """
    from plumbline.history.history import History
    from plumbline.output import facts as session_facts
    from plumbline.output import session_figures

    if facts and failed:
        raise WrongOption("--facts cannot be combined with --failed")
    if session:
        select = replace(select, sessions=(session,))
    with History(source, say=warn) as history:
        if facts:
            newest = history.sessions(select)[-1].session
            rows = session_facts.rows(history.records(replace(select, sessions=(newest,))))
            shown, known = session_facts.FORMATS[form](rows), bool(rows)
        else:
            found = session_figures.load(history, select, failed, warn)
            shown, known = session_figures.FORMATS[form](found), bool(found.figures)
        code = warn_skipped(history)
    write(shown, output)
    sys.exit(code if known else 2)
