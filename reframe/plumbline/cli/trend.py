"""``plumbline trend``: what changed in the history of each figure, and when."""

from __future__ import annotations

import itertools
import sys
from dataclasses import asdict
from pathlib import Path

import click

from plumbline.cli.common import output_option, selection_options, warn, warn_skipped, write
from plumbline.core import formats
from plumbline.core.errors import Fault
from plumbline.core.text import format_table, pluralize, printable


@click.command()
@selection_options
@click.option("--input", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="Read a CSV file of nights (series, night, value, better and optionally "
                   "retest) instead of the history.")  # fmt: skip
@click.option("--online", is_flag=True,
              help="Print start (first changed night) and size as they were known when the "
                   "finding was first certain, not from the whole series. The findings are the "
                   "same.")  # fmt: skip
@click.option("--suspects", is_flag=True,
              help="Also report nights that stood out and came back unconfirmed.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]),
              help="[default: json with --input, else text]")  # fmt: skip
@output_option
def trend(select, source: Path | None, file: Path | None, online: bool, suspects: bool,
          form: str | None, output: Path | None):  # fmt: skip
    """Find lasting changes, transients that came back, and slow drifts, series by series.

    Each night is judged from the nights up to it, from the 21st measured night on. A finding's
    night is that of its first report.

    Exits with 1 if a regression or a drift to the worse is active, with 2 if no series had enough
    nights.
    """
    from plumbline.analysis.trend import following

    if file is not None:
        if source is not None or select != type(select)():
            raise Fault(
                "--input reads the series from its file: omit --from and the options that select "
                "sessions",
                code="input.wrong-option",
            )
        found, code = following.of_file(file, online), 0
    else:
        from plumbline.history.history import History

        with History(source, say=warn) as history:
            found = following.of_history(history.series(select), online)
            code = warn_skipped(history)
    form = form or ("json" if file is not None else "text")
    if form == "json":
        text = formats.as_json([asdict(row) for row in found.rows])
    elif form == "csv":
        columns = list(following.FoundRow.__dataclass_fields__)
        text = formats.as_csv(columns, map(asdict, found.rows))
    else:
        text = _text(found)
    write(text, output)
    if suspects:
        for name, first, last in found.outliers:
            nights = f"night {first}" if first == last else f"nights {first} to {last}"
            warn(f"single outliers that came back: {name}: {nights}")
    if found.unjudged:
        warn(found.unjudged)
    if found.failing:
        sys.exit(1)
    sys.exit(code if found.judged else 2)


def _text(found) -> str:
    rows = [
        {
            "kind": row.kind + ("" if row.confirmed else " (unconfirmed)"),
            "since": row.start,
            "until": row.until or "",
            "found": row.night,
            "size": f"{row.size:+.1%}",
            "95 %": f"{row.low:+.1%} to {row.high:+.1%}" if row.low is not None else "",
            "active": "yes" if row.active else "",
            "before": row.before,
            "after": row.after,
            "nodes": row.nodes,
            "build": row.build,
        }
        for row in found.rows
    ]
    lines = []
    if rows:
        # Empty columns, such as those of the sessions for an --input, are skipped.
        heads = [name for name in rows[0] if any(row[name] for row in rows)]
        head, *body = format_table(
            ([row[name] for name in heads] for row in rows), heads
        ).splitlines()
        lines.append(f"  {head}")
        series = zip((row.series for row in found.rows), body, strict=True)
        # A series' name is longer than all columns, so it has a line of its own.
        for name, group in itertools.groupby(series, key=lambda pair: pair[0]):
            lines += [printable(name), *(f"  {line.rstrip()}" for _, line in group)]
    lines.append(f"plumbline: {pluralize(len(rows), 'finding')} in {found.judged} series judged")
    return "\n".join(lines)
