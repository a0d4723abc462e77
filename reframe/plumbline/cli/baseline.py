"""``plumbline baseline``: site references from stored sessions."""

from __future__ import annotations

import getpass
import json
import sys

import click

from plumbline.cli.common import echo, say, warn
from plumbline.core.errors import Fault
from plumbline.core.text import counted, some, table


@click.command()
@click.argument("system")
@click.option("--accept", is_flag=True, help="Take bounds that are looser, and drop rows, too.")
@click.option("--by", metavar="NAME", help="Who takes it; kept in the rows (default: your login).")
@click.option("--last", type=click.IntRange(min=2), default=30, show_default=True,
              metavar="N", help="The newest sessions of a test case that count.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would change, with --accept too.")
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]), default="text",
              show_default=True, help="csv: the table as it would be.")  # fmt: skip
def baseline(system: str, accept: bool, by: str | None, last: int, dry_run: bool, form: str):
    """Make a system's site references from its stored sessions.

    Writes reference/site/SYSTEM.csv, which the next run asserts, and shows what that changes; with
    --dry-run it only shows.

    Each row is the median over the sessions that passed as the newest did: same build, conditions
    and samples. Fewer than three are refused, and figures that vary too much are left out. A bound
    that would be looser than the one in force, and a row that would be dropped, stop it, with
    exit code 1 and nothing written, unless --accept says that somebody looked.
    """
    from plumbline.analysis import baseline as baselines
    from plumbline.analysis import baseline_diff
    from plumbline.core import paths
    from plumbline.history.history import History
    from plumbline.reference import lookup, waivers

    references = lookup.loaded(paths.reference())
    rules = references.tables.rules.baseline
    with History(say=warn) as history:
        records = baselines.records_of(system, history, last)
        proposals, left_out = baselines.propose(system, records, rules, last)
        if waived := baselines.waived(system, history, last):
            left_out["waived: a known fault is no baseline"] = waived
    for fault in history.faults:
        warn(f"left out: {fault}")
    for reason, names in left_out.items():
        warn(f"left out: {reason}: {some(names)}")
    if not proposals:
        raise Fault(
            f"no baseline for {system!r}: {', '.join(left_out) or 'no session passed'}",
            code="history.too-few-sessions",
        )
    path = paths.reference() / "site" / f"{system}.csv"
    found = baseline_diff.changes(proposals, references, path)
    refused = not accept and any(change.kind in baseline_diff.TO_ACCEPT for change in found)
    write = not (dry_run or refused) and any(change.kind != baseline_diff.SAME for change in found)
    by = by if by is not None else getpass.getuser()
    content = baseline_diff.to_csv(found, references, path, by, str(waivers.today()))
    if write:
        baseline_diff.save(path, content)
    if form == "json":
        told = {"system": system, "path": str(path), "written": write, "by": by,
                "changes": [change.fields() for change in found], "left_out": left_out}  # fmt: skip
        echo(json.dumps(told, indent=1))
    elif form == "csv":
        echo(content, nl=False)
    else:
        _tell(found, path, write)
    if refused:
        warn(f"{path}: not written: {baseline_diff.counts(found)}: look at what is loosened or "
             f"gone, then say --accept")  # fmt: skip
        sys.exit(1)
    if dry_run:
        warn(f"{path}: not written: a dry run")
    sys.exit(2 if history.faults else 0)


def _tell(found: list, path, written: bool) -> None:
    from plumbline.analysis import baseline_diff
    from plumbline.site import inventory

    heads = ["change", "reference", "value", "bounds"]
    lines = baseline_diff.text(found)
    if lines:
        echo(table(lines, heads, "simple"))
    rows = sum(change.new is not None for change in found)
    say(f"{path}: {counted(rows, 'reference')}: {baseline_diff.counts(found)}")
    if wanting := baseline_diff.wanting(found):
        say(wanting)
    if written:
        say(f"the next run asserts {baseline_diff.asserted(found)} of them")
        if inventory.path_of(path.stem).exists():
            say(f"next: {inventory.accepting(path.stem)}; until then, sessions report that these "
                f"references are not as the inventory has them")  # fmt: skip
