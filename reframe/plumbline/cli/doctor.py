"""``plumbline doctor``: shows what this machine has."""

from __future__ import annotations

import shlex

import click

from plumbline.cli.common import checks_option, echo, format_option, say, system_option, warn
from plumbline.core import formats
from plumbline.core.errors import with_code
from plumbline.core.text import format_table, pluralize


@click.command()
@system_option
@checks_option
@format_option
def doctor(system: str | None, checks: tuple[str, ...], form: str):
    """Show what this machine has, and what would run.

    For each case that would be skipped: the reason, and how to fix it.
    """
    from plumbline.operate import doctor as examiner

    found = examiner.examine(system, checks)
    if form == "json":
        echo(formats.as_json(found))
        return
    for line in found["uncertain"]:
        warn(line)
    if not found["machine"]:
        echo(
            f"the configuration of {found['system']} describes its nodes, so this host is not "
            f"examined: `plumbline doctor --system local` does that\n"
        )
    for part in ("machine", "programs", "environments"):
        if found[part]:
            echo(format_table(found[part].items()) + "\n")
    echo(f"the site's own files: {found['site']['folder']}")
    echo(f"the shipped files: {found['site']['shipped']}")
    for line in found["site"]["overrides"]:
        echo(line)
    for line in found["cut off"]:
        echo(f"cut off: session {line}")
    for left in found["left over"]:
        echo(
            f"{left['path']}: scratch folder of {left['owner']}, of a running session or of one "
            f"that was killed: if none of {left['owner']} runs, remove it: "
            f"rm -r {shlex.quote(left['path'])}"
        )
    for line in found["misfits"]:
        echo(line)
    cases = found["cases"]
    for case in sorted(cases, key=lambda case: not case["runs"]):
        result = "runs" if case["runs"] else case["result"]
        if case["runs"]:
            text = f"{pluralize(case['figures'], 'figure')}, {case['asserted']} asserted"
        else:
            text = with_code(case["reason"] or "", case["code"])
        echo(f"{result}: {case['case']}: {text}")
    runs = sum(case["runs"] for case in cases)
    say(f"{runs} of {pluralize(len(cases), 'test case')} would run")
