"""``plumbline history``: lists, exports, prunes and repairs the history."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from plumbline.cli.common import (
    echo,
    facts_option,
    keep_options,
    output_option,
    say,
    selection_options,
    table_format_option,
    warn,
    warn_damaged,
    warn_skipped,
    write,
)
from plumbline.core import files, formats
from plumbline.core.errors import Fault, WrongFile, WrongOption
from plumbline.core.text import csv_cell, escape_formula, format_pairs, format_table, pluralize

if TYPE_CHECKING:
    import numpy as np

_COLUMNS = ("session", "system", "start", "end", "seconds", "planned", "unended", "results",
            "verdicts", "extras")  # fmt: skip


@click.group()
def history():
    """List, export, prune and repair the history of all sessions.

    Records that cannot be read are skipped and listed; the exit code is then 2.
    """


@history.command("list")
@selection_options
@table_format_option
@output_option
def list_(select, source: Path | None, form: str, output: Path | None):
    """List the sessions, oldest first, with their cases by result.

    `measured` is the time that the cases took, without waiting in a queue.
    A session that has not ended is running, or was cut off.
    """
    from plumbline.history.history import History

    with History(source, say=warn) as found:
        sessions = found.sessions(select)
        unended = found.unended(sessions)
        # A plan is of the whole session.
        missing = Counter(name for name, _ in found.missing(select))
        rows = [_cells(row, row.session in unended) | {"planned": row.ended + missing[row.session]}
                for row in sessions]  # fmt: skip
        code = warn_skipped(found)
    write(formats.as_rows(form, _COLUMNS, rows, lambda: _text(rows)), output)
    sys.exit(code)


def _text(rows: list[dict]) -> str:
    lines = [_text_cells(row) for row in rows]
    table = format_table((line.values() for line in lines), [*lines[0]] if lines else ())
    return f"{table}\nplumbline: {pluralize(len(rows), 'session')}"


_OF_NODES = ("node", "system", "partition", "last", "days", "result", "flagged", "sessions",
             "session")  # fmt: skip


@history.command()
@selection_options
@click.option("--flags", is_flag=True,
              help="Screen them too, and show since when each is flagged as slow.")  # fmt: skip
@table_format_option
@output_option
def nodes(select, source: Path | None, flags: bool, form: str, output: Path | None):
    """List the nodes that were measured by themselves, the longest ago first.

    That is by `plumbline sweep` or `clear`, or by --distribute. `result` is the worst one of the
    node's last session, which may have measured nothing.
    """
    from plumbline.history.history import History

    with History(source, say=warn) as found:
        flagged = _flagged(found, select) if flags else {}
        rows = [_node_cells(row, flagged) for row in found.nodes(select)]
        code = warn_skipped(found)
    shown = _OF_NODES[:-2] if flags else (*_OF_NODES[:6], "session")
    write(_table(rows, _OF_NODES, shown, form, pluralize(len(rows), "node")), output)
    sys.exit(code)


_OF_LINKS = ("kind", "name", "system", "partition", "last", "days", "sessions", "session")


@history.command()
@selection_options
@click.option("--topology", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Slurm's topology.conf, for the switch of each node.")  # fmt: skip
@table_format_option
@output_option
def links(select, source: Path | None, topology: Path | None, form: str, output: Path | None):
    """List the links of nodes and between switches that were measured, the longest ago first.

    A node's link is measured by any case on several nodes, and that between two switches by a pair
    of their nodes. The switches are by --topology, or else the racks of the systems' rack_pattern.
    """
    from plumbline.analysis import screen
    from plumbline.history.history import History

    with History(source, say=warn) as found:
        measured = found.together(select)
        code = warn_skipped(found)
    nodes = {node for row in measured for node in row.unit}
    switches = (
        screen.by_name({row.system for row in measured}, nodes)
        if topology is None
        else screen.of_topology(topology)
    )
    rows = [_link_cells(*one) for one in _links(measured, switches)]
    note = pluralize(len(rows), "link")
    if not switches and rows:
        note += ", none between switches: no node's switch is known"
    write(_table(rows, _OF_LINKS, _OF_LINKS[:-1], form, note), output)
    sys.exit(code)


def _table(
    rows: list[dict], columns: tuple[str, ...], shown: tuple[str, ...], form: str, note: str
) -> str:
    """Return rows, the longest ago first, in a format; the text has some columns and a note."""
    rows = sorted(rows, key=lambda row: row["last"])
    cells = ([row[name] for name in shown] for row in rows)
    return formats.as_rows(
        form, columns, rows, lambda: f"{format_table(cells, shown)}\nplumbline: {note}"
    )


def _links(measured, switches: dict[str, str]):
    """Yield kind and name of each link, with its rows: a node, or the pairs across two switches."""
    of: dict[tuple[str, ...], list] = {}
    for row in measured:
        ends = {switches.get(node, "") for node in row.unit}
        if len(row.unit) == 1:
            of.setdefault((row.system, row.partition, "node", *row.unit), []).append(row)
        elif len(ends) == 2 and all(ends):
            name = ":".join(sorted(ends))
            of.setdefault((row.system, row.partition, "link", name), []).append(row)
    for (*_, kind, name), rows in of.items():
        yield kind, name, rows


def _link_cells(kind: str, name: str, rows: list) -> dict:
    """Return a link as JSON shows it."""
    last = max(rows, key=lambda row: row.time)
    sessions = {session for row in rows for session in row.sessions}
    return {
        "kind": kind,
        "name": name,
        "system": last.system,
        "partition": last.partition,
        "last": f"{last.time}Z",
        "days": _days_since(last.time),
        "sessions": len(sessions),
        "session": last.session,
    }


def _days_since(time: np.datetime64) -> float:
    import numpy as np

    return round(float((np.datetime64("now", "s") - time) / np.timedelta64(1, "D")), 1)


def _flagged(found, select) -> dict[tuple[str, str], str]:
    """Return system and node -> since when screening flags it, or a GPU of it."""
    from plumbline.analysis import screen

    try:
        flags = screen.screen_history(found, select).now
    except Fault as err:
        if err.code != "history.no-peers":
            raise
        return {}
    return {(system, flag.name[0]): flag.since for flag in reversed(flags) if flag.drained
            for system in flag.systems}  # fmt: skip


def _node_cells(row, flagged: dict[tuple[str, str], str]) -> dict:
    """Return a node as JSON shows it."""
    return {
        **{name: getattr(row, name) for name in _OF_NODES if hasattr(row, name)},
        "last": f"{row.time}Z",
        "days": _days_since(row.time),
        "flagged": flagged.get((row.system, row.node), ""),
    }


@history.command()
@selection_options
@facts_option
@output_option
def export(select, source: Path | None, facts: bool, output: Path | None):
    """Print the history as CSV, which --from of other commands reads.

    It has a row for each figure of merit, each case without one, and each session without a case.
    With --facts, it has a row for each value of a session, which other commands do not read.
    """
    from plumbline.history.history import History
    from plumbline.output import facts as session_facts

    with History(source, say=warn) as found:
        if facts:
            write(session_facts.as_csv(session_facts.rows(found.records(select))), output)
            sys.exit(warn_skipped(found))
        rows = found.rows(select)
        code = warn_skipped(found)
    with (
        files.writing(output or "standard output"),
        files.overwriting(output) if output else nullcontext(sys.stdout) as to,
    ):
        # On a terminal without control characters; elsewhere --from reads the exact text.
        safe = csv_cell if to.isatty() else escape_formula
        # Of csv, which quotes a carriage return only if one ends the lines (CPython 3.11, _csv.c).
        lines = SimpleNamespace(write=lambda line: to.write(f"{line[:-2]}\n"))
        csv.writer(lines, lineterminator="\r\n").writerows(
            [safe(value) if isinstance(value, str) else value for value in row] for row in rows
        )
    sys.exit(code)


@history.command()
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
              help="The results folder.")  # fmt: skip
def rebuild(source: Path | None):
    """Rebuild the index from all records.

    This is never necessary: each command repairs an index that is missing, damaged or outdated.
    """
    from plumbline.core import paths
    from plumbline.history import index

    folder = source or paths.results()
    db, path, unread = index.open_index(folder, warn, rebuild=True)
    counts = [
        db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
        for table in ("files", "cases", "figures", "faults")
    ]
    sessions, cases, figures, faults = counts
    say(
        f"{path or 'in memory'}: {pluralize(sessions, 'session')}, "
        f"{pluralize(cases, 'test case')}, "
        f"{pluralize(figures, 'figure of merit', 'figures of merit')}"
    )
    if unread or faults:
        places = pluralize(len(unread) + faults, "place")
        warn(f"skipped: {places}: `plumbline history list` lists them")
    sys.exit(2 if unread or faults else 0)


_RESULTS = click.option("--from", "source", type=click.Path(file_okay=False, path_type=Path),
                        metavar="PATH", help="The results folder.")  # fmt: skip


@history.command()
@keep_options
@click.option("--dry-run", is_flag=True, help="Only list what would be removed or compressed.")
@_RESULTS
def prune(keep, dry_run: bool, source: Path | None):
    """Remove or compress old files, by the --keep options.

    Only --keep-sessions removes records. Exits with 2 if something could not be removed.
    """
    from plumbline.core import paths
    from plumbline.history import retention

    if not keep:
        raise WrongOption("no rule is given: add at least one, such as --keep-stage 14d")
    folder = source or paths.results()
    if not folder.is_dir():
        raise Fault(f"{folder}: no such results folder", code="history.not-found")
    done = retention.prune(folder, keep, echo, dry_run)
    for fault in done.faults:
        warn(f"not removed: {fault}")
    say(f"{pluralize(done.count, 'item')}, {done.bytes / 1e6:.1f} MB {'would be ' * dry_run}freed")
    sys.exit(2 if done.faults else 0)


@history.command()
@click.argument("log", type=click.Path(dir_okay=False, path_type=Path))
@_RESULTS
def recover(log: Path, source: Path | None):
    """Store the records that a session could only print, from its output LOG.

    Existing records are kept. Exits with 2 if a record in LOG is incomplete, or there is none.
    """
    from plumbline.core import paths
    from plumbline.history import retention

    stored, existing, faults = retention.recover(source or paths.results(), log, say)
    code = warn_damaged(faults)
    say(f"{pluralize(stored, 'record')} stored, {existing} existed already")
    if not stored + existing and not faults:
        raise WrongFile(f"{log}: contains no line that begins with `plumbline-record`")
    sys.exit(code)


def _cells(row, unended: bool) -> dict:
    """Return a session as JSON shows it."""
    known = {"start": f"{row.start}Z", "end": f"{row.end}Z", "unended": unended}
    return {name: known[name] if name in known else getattr(row, name) for name in _COLUMNS}


def _text_cells(row: dict) -> dict:
    ended = ", ".join(f"{count} {result}" for result, count in sorted(row["results"].items()))
    failed = row["verdicts"].get("fail", 0) + row["verdicts"].get("above-ceiling", 0)
    return {
        "session": row["session"],
        "system": row["system"],
        "start": row["start"],
        "measured": "" if row["seconds"] is None else str(timedelta(seconds=round(row["seconds"]))),
        "cases": row["planned"],
        "results": (ended or "none") + (", has not ended" if row["unended"] else ""),
        "figures": sum(row["verdicts"].values()),
        "failed": failed,
        "extras": format_pairs(row["extras"]),
    }
