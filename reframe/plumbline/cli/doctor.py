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
    # First what is to be done.
    for line in found["misfits"]:
        echo(line)
    for line in found["cut off"]:
        echo(f"cut off: session {line}")
    for left in found["left over"]:
        echo(
            f"{left['path']}: scratch folder of {left['owner']}, of a running session or of one "
            f"that was killed: if none of {left['owner']} runs, remove it: "
            f"rm -r {shlex.quote(left['path'])}"
        )
    cases = found["cases"]
    for line in _lines(cases):
        echo(line)
    echo()
    for part in ("machine", "programs", "environments"):
        if found[part]:
            echo(format_table(found[part].items()) + "\n")
    if not found["machine"]:
        echo(
            f"the configuration of {found['system']} describes its nodes, so this host is not "
            f"examined: `plumbline doctor --system local` does that"
        )
    missing = "" if found["site"]["exists"] else " (does not exist)"
    echo(f"the site's own files: {found['site']['folder']}{missing}")
    echo(f"the shipped files: {found['site']['shipped']}")
    for line in found["site"]["overrides"]:
        echo(line)
    runs = sum(case["runs"] for case in cases)
    others = "" if runs == len(cases) else "; why the others would not is at the beginning"
    say(f"{runs} of {pluralize(len(cases), 'test case')} would run{others}")


def _lines(cases: list[dict]) -> list[str]:
    """Return which cases would not run and why, a line for each reason, and then which would, a
    line for each check; of each partition and environment."""
    found: dict[tuple[str, str, str], list[dict]] = {}
    for case in sorted(cases, key=lambda case: case["runs"]):
        name, _, where = case["case"].rpartition(" @")
        if case["runs"]:
            key = "runs", name.split()[0], where
        else:
            key = case["result"], with_code(case["reason"] or "", case["code"]), where
        found.setdefault(key, []).append(case)
    lines = []
    for (result, why, where), group in found.items():
        what = group[0]["case"]
        if len(group) > 1:
            checks = dict.fromkeys(case["case"].split()[0] for case in group)
            what = f"{', '.join(checks)} @{where}: {len(group)} test cases"
        if result == "runs":
            figures, asserted = (
                sum(case[key] for case in group) for key in ("figures", "asserted")
            )
            why = f"{pluralize(figures, 'figure')}, {asserted} asserted"
        lines.append(f"{result}: {what}: {why}")
    return lines
