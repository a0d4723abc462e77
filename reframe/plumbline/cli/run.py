"""``plumbline run``: runs the checks."""

from __future__ import annotations

import sys

import click

from plumbline.cli.common import budget_option, orphans_option, system_option


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--strict", is_flag=True, envvar="PLUMBLINE_STRICT",
              help="A skipped case, a figure that lost its reference, or a warning fails the "
              "session.  [default: $PLUMBLINE_STRICT]")  # fmt: skip
@budget_option
@orphans_option
@system_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(strict: bool, budget, orphans: str, system: str | None, arguments: tuple[str, ...]):
    """Run the checks through ReFrame, under the rules of a session.

    ARGUMENTS are ReFrame's own: --mode=smoke, -n NAME, -t TAG, -p ENVIRONMENT ...

    The plan is written before the first job. Test cases and their bounds are compared with the
    system's inventory. At the end every planned case has a result.
    """
    from plumbline.session import run as supervisor

    seconds = budget.total_seconds() if budget else 0
    sys.exit(supervisor.run(system, list(arguments), strict, seconds, orphans))
