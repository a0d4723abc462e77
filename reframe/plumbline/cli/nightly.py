"""``plumbline nightly``: measures unattended, each night and after a maintenance."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from plumbline.cli.common import budget_option, keep_options, orphans_option, say, system_option
from plumbline.core.errors import WrongOption

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--after-maintenance", is_flag=True,
              help="Compare with the nights before, and screen the nodes: go or "
                   "no-go.")  # fmt: skip
@click.option("--maintenance", metavar="NAME",
              help="Name of the maintenance, stored in the session extras.  "
                   "[default: today's date, UTC]")  # fmt: skip
@system_option
@click.option("--mode", metavar="MODE",
              help="Cost class of the cases.  [default: nightly, or maintenance]")  # fmt: skip
@click.option("--strict/--no-strict", default=True,
              help="As in `plumbline run`.  [default: strict]")  # fmt: skip
@budget_option
@orphans_option
@click.option("--sessions", type=click.IntRange(1, 100), metavar="N",
              help="Sessions to run, one after the other.  "
                   "[default: 1, or 3 after a maintenance]")  # fmt: skip
@click.option("--nights", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N",
              help="Sessions before the maintenance to compare with.")  # fmt: skip
@click.option("--allow-inconclusive", type=click.FloatRange(0, 100), default=0.0, metavar="PCT",
              help="Share of the figures that may have too little data in a go.  "
                   "[default: 0]")  # fmt: skip
@click.option("--screen/--no-screen", default=None,
              help="Screen the nodes after a maintenance.  "
                   "[default: if the sessions measured enough of them]")  # fmt: skip
@click.option("--report", type=_FOLDER, metavar="DIR", help="Also write the report to DIR.")
@click.option("--out", type=_FOLDER, metavar="DIR",
              help="Folder of page, JUnit XML and metrics.  [default: the session's]")  # fmt: skip
@keep_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def nightly(after_maintenance: bool, maintenance: str | None, budget, sessions: int | None,
            mode: str | None, **options):  # fmt: skip
    """Run a session unattended, and write a page about it.

    ARGUMENTS are ReFrame's own, as in `plumbline run`. While a nightly of the same system runs,
    another one is refused.

    Exit codes: 1 if any part found a fault or a new regression, else 2 if any is inconclusive, else
    0.
    """
    import datetime

    from plumbline.operate import nightly as nights

    if maintenance and not after_maintenance:
        raise WrongOption("--maintenance needs --after-maintenance")
    today = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    name = (maintenance or today) if after_maintenance else ""
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]*", name):
        raise WrongOption(f"--maintenance {name!r}: use only letters, digits and .-_:")
    nightly_options = nights.NightlyOptions(
        mode=mode or ("maintenance" if after_maintenance else "nightly"),
        budget=budget.total_seconds() if budget else 0.0,
        maintenance=name,
        sessions=sessions or (3 if after_maintenance else 1),
        **options,
    )
    sys.exit(nights.run(nightly_options, say))
