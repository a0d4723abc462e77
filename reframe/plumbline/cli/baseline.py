"""``plumbline baseline``: site references from stored sessions."""

from __future__ import annotations

import getpass
import json
import sys

import click

from plumbline.cli.common import complete_system, echo, say, warn, warn_skipped
from plumbline.core.errors import Fault, with_code
from plumbline.core.text import format_table, pluralize, shorten


@click.command()
@click.argument("system", shell_complete=complete_system)
@click.option("--accept", is_flag=True, help="Also accept looser bounds and dropped rows.")
@click.option(
    "--by", metavar="NAME", help="Who accepts the rows, kept in them.  [default: your login]"
)
@click.option("--last", type=click.IntRange(min=2), default=30, show_default=True,
              metavar="N", help="Newest sessions of a test case that count.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show the changes; write nothing.")
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]), default="text",
              show_default=True, help="csv: the table with the changes.")  # fmt: skip
def baseline(system: str, accept: bool, by: str | None, last: int, dry_run: bool, form: str):
    """Make a system's site references from its stored sessions.

    Writes reference/SYSTEM.csv of the site's folder, which the next run asserts, and shows the
    changes.

    Each row is the median over the sessions that passed with the build, conditions and samples of
    the newest. Test cases with fewer than three sessions, and figures that vary too much, are
    skipped. If a bound would become looser, or a row would be dropped, nothing is written and the
    exit code is 1. Check these changes, then repeat with --accept.
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
        proposals, skipped = baselines.propose(system, records, rules, last)
        if waived := baselines.waived(system, history, last):
            skipped["baseline.waived"] = waived
    code = warn_skipped(history)
    for reason, names in skipped.items():
        message = f"skipped: {baselines.REASONS[reason]}: {shorten(names)}"
        warn(with_code(message, reason))
    if not proposals:
        why = [baselines.REASONS[reason] for reason in skipped]
        raise Fault(
            f"no baseline for {system!r}: {', '.join(why) or 'no session passed'}",
            code="history.too-few-sessions",
        )
    path = paths.reference().own / f"{system}.csv"
    found = baseline_diff.changes(proposals, references, path)
    refused = not accept and any(change.kind in baseline_diff.TO_ACCEPT for change in found)
    write = not (dry_run or refused) and any(change.kind != baseline_diff.SAME for change in found)
    by = by if by is not None else getpass.getuser()
    content = baseline_diff.to_csv(found, references, path, by, str(waivers.today()))
    if write:
        baseline_diff.save(path, content)
    if form == "json":
        result = {"system": system, "path": str(path), "written": write, "by": by,
                "changes": [change.fields() for change in found], "skipped": skipped}  # fmt: skip
        echo(json.dumps(result, indent=1))
    elif form == "csv":
        echo(content, nl=False)
    else:
        _print(found, path, write)
    if refused:
        warn(f"{path}: not written: {baseline_diff.counts(found)}: check which bounds are wider "
             f"or were removed, then repeat with --accept")  # fmt: skip
        sys.exit(1)
    if dry_run:
        warn(f"{path}: not written: a dry run")
    sys.exit(code)


def _print(found: list, path, written: bool) -> None:
    from plumbline.analysis import baseline_diff
    from plumbline.site import inventory

    heads = ["change", "reference", "value", "bounds"]
    lines = baseline_diff.text(found)
    if lines:
        echo(format_table(lines, heads))
    rows = sum(change.new is not None for change in found)
    say(f"{path}: {pluralize(rows, 'reference')}: {baseline_diff.counts(found)}")
    if message := baseline_diff.too_wide(found):
        say(message)
    if message := baseline_diff.of_one_night(found):
        say(with_code(message, "baseline.one-night"))
    if written:
        say(f"the next run asserts {baseline_diff.asserted(found)} of them")
        if known := inventory.read(path.stem):
            accept = inventory.accepting(path.stem, known.folders)
            say(f"next: {accept}; until then, sessions report that these "
                f"references differ from the inventory")  # fmt: skip
