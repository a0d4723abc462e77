"""``plumbline run``: running the checks."""

from __future__ import annotations

import sys

import click

from plumbline.cli.common import budget_option, orphans_option, system_option


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--strict", is_flag=True, help="A skipped case, and a missing reference that the "
              "inventory expects, fail the session.")  # fmt: skip
@budget_option
@orphans_option
@system_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(strict: bool, budget, orphans: str, system: str | None, arguments: tuple[str, ...]):
    """Run the checks through ReFrame, under the rules of a session.

    ARGUMENTS are ReFrame's own: --mode=smoke, -n NAME, -t TAG, -p ENVIRONMENT ...

    The plan is written before the first job, the cases and what bounds their figures are compared
    with the system's inventory, and every planned case is accounted for at the end.
    """
    from plumbline.session import run as supervisor

    seconds = budget.total_seconds() if budget else 0
    sys.exit(supervisor.run(system, list(arguments), strict, seconds, orphans))
