"""``plumbline doctor``: what this machine has."""

from __future__ import annotations

import json

import click
from tabulate import tabulate

from plumbline.cli.common import format_option, system_option, warn
from plumbline.words import counted


@click.command()
@system_option
@format_option
def doctor(system: str | None, form: str):
    """Show what this machine has, and what would run.

    Of what would be skipped, also why and how to mend it.
    """
    from plumbline import doctor as examiner

    found = examiner.examine(system)
    if form == "json":
        click.echo(json.dumps(found, indent=1))
        return
    for line in found["uncertain"]:
        warn(line)
    for part in ("machine", "programs", "environments"):
        if found[part]:
            click.echo(tabulate(found[part].items(), tablefmt="plain"))
            click.echo()
    for line in found["cut off"]:
        click.echo(f"cut off: session {line}")
    for path in found["left over"]:
        click.echo(f"left over by a session that was killed, or in use by one that runs: {path}")
    cases = found["cases"]
    runs = [case for case in cases if case["runs"]]
    for case in runs:
        figures = counted(case["figures"], "figure")
        click.echo(f"runs: {case['case']}: {figures}, {case['asserted']} asserted")
    for case in cases:
        if not case["runs"]:
            click.echo(f"{case['result']}: {case['case']}: {case['reason']}")
    click.echo(f"plumbline: {len(runs)} of {counted(len(cases), 'test case')} would run")
