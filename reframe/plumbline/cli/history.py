"""``plumbline history``: what is stored, and the index that finds it quickly."""

from __future__ import annotations

import csv
import io
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import click
from tabulate import tabulate

from plumbline.cli.common import output_option, selection_options, tell, warn, write
from plumbline.errors import Fault

_COLUMNS = ("session", "system", "start", "end", "planned", "results", "verdicts", "extras")


@click.group()
def history():
    """List and export what the sessions measured; rebuild the index of it.

    What is left out because it cannot be read is told, and makes the exit code 2.
    """


@history.command("list")
@selection_options
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]), default="text",
              show_default=True)  # fmt: skip
@output_option
def list_(select, source: Path | None, form: str, output: Path | None):
    """List the sessions, oldest first, with their cases by result."""
    from plumbline.history import History

    with History(source, say=warn) as found:
        rows = [_cells(row) for row in found.sessions(select)]
        code = tell(found)
    if form == "json":
        text = json.dumps(rows, indent=1, ensure_ascii=False)
    elif form == "csv":
        lines = io.StringIO()
        writer = csv.DictWriter(lines, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {name: _pairs(row[name]) for name in _COLUMNS[5:]} for row in rows)
        text = lines.getvalue()
    else:
        shown = [_shown(row) for row in rows]
        text = tabulate(shown, headers="keys", tablefmt="plain", disable_numparse=True)
        text += f"\nplumbline: {len(rows)} sessions"
    write(text, output)
    sys.exit(code)


@history.command()
@selection_options
@output_option
def export(select, source: Path | None, output: Path | None):
    """Print the history as CSV: a row for each figure of merit, each case without one, and each
    session without a case. Commands with --from read it back."""
    from plumbline.history import History

    with History(source, say=warn) as found:
        rows = found.rows(select)
        code = tell(found)
    try:
        there = (
            output.open("w", encoding="utf-8", newline="") if output else nullcontext(sys.stdout)
        )
        with there as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    except OSError as err:
        raise Fault(f"{output or 'standard output'}: cannot be written: {err.strerror}") from None
    sys.exit(code)


@history.command()
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
              help="The results folder.")  # fmt: skip
def rebuild(source: Path | None):
    """Build the index anew from all records. Never needed: an index that is missing, damaged or out
    of date is mended by whichever command asks."""
    from plumbline import index, paths

    folder = source or paths.results()
    db, place, unread = index.opened(folder, warn, anew=True)
    counts = [
        db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("files", "cases", "figures", "faults")
    ]
    sessions, cases, figures, faults = counts
    click.echo(f"plumbline: {place or 'in memory'}: {sessions} sessions, {cases} test cases, "
               f"{figures} figures of merit")  # fmt: skip
    if unread or faults:
        warn(f"left out: {len(unread) + faults} places: `plumbline history list` tells them")
    sys.exit(2 if unread or faults else 0)


def _cells(row) -> dict:
    """A session as JSON has it."""
    cells = {name: getattr(row, name) for name in _COLUMNS}
    return cells | {"start": f"{row.start}Z", "end": f"{row.end}Z"}


def _pairs(values: dict) -> str:
    return ";".join(f"{key}={value}" for key, value in sorted(values.items()))


def _shown(row: dict) -> dict:
    ended = ", ".join(f"{count} {result}" for result, count in sorted(row["results"].items()))
    failed = row["verdicts"].get("fail", 0) + row["verdicts"].get("above-ceiling", 0)
    return {
        "session": row["session"],
        "system": row["system"],
        "start": row["start"],
        "cases": row["planned"],
        "results": ended or "none ended",
        "figures": sum(row["verdicts"].values()),
        "failed": failed,
        "extras": _pairs(row["extras"]),
    }
