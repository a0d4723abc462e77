"""``plumbline doctor``: shows what this machine has."""

from __future__ import annotations

import shlex

import click

from plumbline.cli.common import checks_option, echo, format_option, say, system_option, warn
from plumbline.core import formats, paths
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

    for line in paths.missing_site():
        warn(line)
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
    missing = "" if found["site"]["exists"] else " (does not exist)"
    echo(f"the site's own files: {found['site']['folder']}{missing}")
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
    cases = sorted(found["cases"], key=lambda case: not case["runs"])
    for case in cases:
        echo(_line(case))
    runs = sum(case["runs"] for case in cases)
    say(f"{runs} of {pluralize(len(cases), 'test case')} would run")


def _line(case: dict) -> str:
    """Return whether a case would run, what it would measure, or why it would not."""
    if case["runs"]:
        figures = pluralize(case["figures"], "figure")
        return f"runs: {case['case']}: {figures}, {case['asserted']} asserted"
    reason = with_code(case["reason"] or "", case["code"])
    return f"{case['result']}: {case['case']}: {reason}"
