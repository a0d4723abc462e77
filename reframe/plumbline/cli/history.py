"""``plumbline history``: what is stored, and the index that finds it quickly."""

from __future__ import annotations

import csv
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import click

from plumbline.cli.common import (
    echo,
    keep_options,
    output_option,
    say,
    selection_options,
    tell,
    warn,
    write,
)
from plumbline.core import formats
from plumbline.core.errors import Fault
from plumbline.core.text import cell, counted, guarded, table

_COLUMNS = ("session", "system", "start", "end", "seconds", "planned", "unended", "results",
            "verdicts", "extras")  # fmt: skip
#: Those of them that hold several numbers or words, by name.
_PAIRS = ("results", "verdicts", "extras")


@click.group()
def history():
    """List and export what the sessions measured; remove what is old, take back what was lost.

    What is left out because it cannot be read is told, and makes the exit code 2.
    """


@history.command("list")
@selection_options
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]), default="text",
              show_default=True)  # fmt: skip
@output_option
def list_(select, source: Path | None, form: str, output: Path | None):
    """List the sessions, oldest first, with their cases by result.

    `measured` is the time that the cases took, without waiting for a turn or in a queue.
    One that has not ended still runs, or was cut off.
    """
    from plumbline.history.history import History

    with History(source, say=warn) as found:
        sessions = found.sessions(select)
        unended = found.unended(sessions)
        rows = [_cells(row, row.session in unended) for row in sessions]
        code = tell(found)
    if form == "json":
        text = formats.as_json(rows)
    elif form == "csv":
        flat = (row | {name: _pairs(row[name]) for name in _PAIRS} for row in rows)
        text = formats.as_csv(_COLUMNS, flat)
    else:
        shown = [_shown(row) for row in rows]
        text = table((row.values() for row in shown), shown[0] if shown else ())
        text += f"\nplumbline: {counted(len(rows), 'session')}"
    write(text, output)
    sys.exit(code)


@history.command()
@selection_options
@output_option
def export(select, source: Path | None, output: Path | None):
    """Print the history as CSV, which commands with --from read back.

    A row for each figure of merit, each case without one, and each session without a case.
    """
    from plumbline.history.history import History

    with History(source, say=warn) as found:
        rows = found.rows(select)
        code = tell(found)
    try:
        there = (
            output.open("w", encoding="utf-8", newline="") if output else nullcontext(sys.stdout)
        )
        with there as file:
            # To be read back as it was, unless a person reads it.
            safe = cell if file.isatty() else guarded
            csv.writer(file, lineterminator="\n").writerows(
                [safe(value) if isinstance(value, str) else value for value in row] for row in rows
            )
    except OSError as err:
        where = f"{output or 'standard output'}: cannot be written: {err.strerror}"
        raise Fault(f"{where}: name another file", code="files.not-writable") from None
    sys.exit(code)


@history.command()
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
              help="The results folder.")  # fmt: skip
def rebuild(source: Path | None):
    """Build the index anew from all records.

    Never needed: an index that is missing, damaged or out of date is mended by whichever command
    asks.
    """
    from plumbline.core import paths
    from plumbline.history import index

    folder = source or paths.results()
    db, place, unread = index.opened(folder, warn, anew=True)
    counts = [
        db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
        for table in ("files", "cases", "figures", "faults")
    ]
    sessions, cases, figures, faults = counts
    told = [counted(sessions, "session"), counted(cases, "test case"),
            counted(figures, "figure of merit", "figures of merit")]  # fmt: skip
    say(f"{place or 'in memory'}: {', '.join(told)}")
    if unread or faults:
        places = counted(len(unread) + faults, "place")
        warn(f"left out: {places}: `plumbline history list` tells them")
    sys.exit(2 if unread or faults else 0)


_RESULTS = click.option("--from", "source", type=click.Path(file_okay=False, path_type=Path),
                        metavar="PATH", help="The results folder.")  # fmt: skip


@history.command()
@keep_options
@click.option("--dry-run", is_flag=True, help="Tell what would go, and leave it.")
@_RESULTS
def prune(keep, dry_run: bool, source: Path | None):
    """Remove or compress what is old, by the rules that are given; nothing without one.

    Records go with their whole session only, that is by --keep-sessions. Exits with 2 if something
    could not be removed.
    """
    from plumbline.core import paths
    from plumbline.history import retention

    if not keep:
        raise Fault(
            "give at least one rule, such as --keep-stage 14d: nothing is removed without",
            code="input.wrong-option",
        )
    folder = source or paths.results()
    if not folder.is_dir():
        raise Fault(f"{folder}: no such folder of results", code="history.not-found")
    done = retention.prune(folder, keep, echo, dry_run)
    for fault in done.faults:
        warn(f"not removed: {fault}")
    say(f"{counted(done.count, 'place')}, {done.bytes / 1e6:.1f} MB {'would be ' * dry_run}freed")
    sys.exit(2 if done.faults else 0)


@history.command()
@click.argument("log", type=click.Path(dir_okay=False, path_type=Path))
@_RESULTS
def recover(log: Path, source: Path | None):
    """Take back the records that a session could not store, from its saved output LOG.

    Those that are there already are left as they are. Exits with 2 if a line is no whole record, or
    there is none.
    """
    from plumbline.core import paths
    from plumbline.history import retention

    taken, there, faults = retention.recover(source or paths.results(), log, say)
    for fault in faults:
        warn(f"left out: {fault}")
    say(f"{counted(taken, 'record')} taken, {there} there already")
    if not taken + there and not faults:
        raise Fault(f"{log}: no line `plumbline-record` there", code="input.wrong-file")
    sys.exit(2 if faults else 0)


def _cells(row, unended: bool) -> dict:
    """A session as JSON has it."""
    known = {"start": f"{row.start}Z", "end": f"{row.end}Z", "unended": unended}
    return {name: known[name] if name in known else getattr(row, name) for name in _COLUMNS}


def _pairs(values: dict) -> str:
    return ";".join(f"{key}={value}" for key, value in sorted(values.items()))


def _shown(row: dict) -> dict:
    ended = ", ".join(f"{count} {result}" for result, count in sorted(row["results"].items()))
    failed = row["verdicts"].get("fail", 0) + row["verdicts"].get("above-ceiling", 0)
    return {
        "session": row["session"],
        "system": row["system"],
        "start": row["start"],
        "measured": "" if row["seconds"] is None else str(timedelta(seconds=round(row["seconds"]))),
        "cases": row["planned"],
        "results": (ended or "none ended") + (", has not ended" if row["unended"] else ""),
        "figures": sum(row["verdicts"].values()),
        "failed": failed,
        "extras": _pairs(row["extras"]),
    }
