"""``plumbline doctor``: what this machine has."""

from __future__ import annotations

import json

import click

from plumbline.cli.common import echo, format_option, say, system_option, warn
from plumbline.core.errors import with_code
from plumbline.core.text import counted, table


@click.command()
@system_option
@format_option
def doctor(system: str | None, form: str):
    """Show what this machine has, and what would run.

    Of what would be skipped, also why and how to mend it.
    """
    from plumbline.operate import doctor as examiner

    found = examiner.examine(system)
    if form == "json":
        echo(json.dumps(found, indent=1))
        return
    for line in found["uncertain"]:
        warn(line)
    for part in ("machine", "programs", "environments"):
        if found[part]:
            echo(table(found[part].items()) + "\n")
    for line in found["cut off"]:
        echo(f"cut off: session {line}")
    for path in found["left over"]:
        echo(f"left over by a session that was killed, or in use by one that runs: {path}")
    cases = found["cases"]
    runs = [case for case in cases if case["runs"]]
    for case in runs:
        figures = counted(case["figures"], "figure")
        echo(f"runs: {case['case']}: {figures}, {case['asserted']} asserted")
    for case in cases:
        if not case["runs"]:
            why = with_code(case["reason"] or "", case["code"])
            echo(f"{case['result']}: {case['case']}: {why}")
    say(f"{len(runs)} of {counted(len(cases), 'test case')} would run")
