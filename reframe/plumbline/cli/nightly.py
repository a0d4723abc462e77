"""``plumbline nightly``: the night's run, and the look after a maintenance."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from plumbline.cli.common import budget_option, keep_options, orphans_option, say, system_option
from plumbline.core.errors import Fault

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--after-maintenance", is_flag=True,
              help="Hold the machine against the nights before, and screen its nodes: "
                   "go or no-go.")  # fmt: skip
@click.option("--maintenance", metavar="NAME",
              help="What the maintenance is called in --session-extras.  "
                   "[default: today's date, UTC]")  # fmt: skip
@system_option
@click.option("--mode", metavar="MODE",
              help="Cost class of the cases.  [default: nightly, or maintenance]")  # fmt: skip
@click.option("--strict/--no-strict", default=True,
              help="As of `plumbline run`.  [default: strict]")  # fmt: skip
@budget_option
@orphans_option
@click.option("--sessions", type=click.IntRange(1, 100), metavar="N",
              help="Sessions to run, one after the other.  "
                   "[default: 1, or 3 after a maintenance]")  # fmt: skip
@click.option("--nights", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N",
              help="Last nights that a maintenance is held against.")  # fmt: skip
@click.option("--untold", type=click.FloatRange(0, 100), default=0.0, metavar="PCT",
              help="As of `plumbline compare`.  [default: 0]")  # fmt: skip
@click.option("--screen/--no-screen", default=True,
              help="Screen the nodes after a maintenance.  [default: screen]")  # fmt: skip
@click.option("--report", type=_FOLDER, metavar="DIR", help="Write the report there, too.")
@click.option("--out", type=_FOLDER, metavar="DIR",
              help="Folder of the page and the JUnit XML.  [default: the session's]")  # fmt: skip
@keep_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def nightly(after_maintenance: bool, maintenance: str | None, budget, sessions: int | None,
            mode: str | None, **options):  # fmt: skip
    """Run a session unattended, say what it changed, and write a page.

    ARGUMENTS are ReFrame's own, as of `plumbline run`. Two of one system never run at once: the
    second ends with 2 and names the first.

    Exits with 1 if any part found a regression or fault, else with 2 if any could not tell.
    """
    import datetime

    from plumbline.operate import nightly as nights

    if maintenance and not after_maintenance:
        raise Fault(
            "--maintenance is the name of one: it goes with --after-maintenance",
            code="input.wrong-option",
        )
    today = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    name = (maintenance or today) if after_maintenance else ""
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]*", name):
        raise Fault(
            f"--maintenance {name!r}: letters, digits and .-_: only", code="input.wrong-option"
        )
    wanted = nights.Wanted(
        mode=mode or ("maintenance" if after_maintenance else "nightly"),
        budget=budget.total_seconds() if budget else 0.0,
        maintenance=name,
        sessions=sessions or (3 if after_maintenance else 1),
        **options,
    )
    sys.exit(nights.run(wanted, say))
