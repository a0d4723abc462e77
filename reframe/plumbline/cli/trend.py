"""``plumbline trend``: what changed in the history of each figure, and when."""

from __future__ import annotations

import itertools
import sys
from dataclasses import asdict
from pathlib import Path

import click

from plumbline.cli.common import output_option, selection_options, tell, warn, write
from plumbline.core import formats
from plumbline.core.errors import Fault
from plumbline.core.text import counted, printable, table


@click.command()
@selection_options
@click.option("--input", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="A CSV file of nights (series, night, value, better; if there, retest) "
                   "instead of the history.")  # fmt: skip
@click.option(
    "--online",
    is_flag=True,
    help="Give start (first changed night) and size as they were known when the finding was first "
    "sure, not as the whole series shows them. Which findings there are is the same.",
)
@click.option(
    "--suspects",
    is_flag=True,
    help="Say also which nights stood out and were back before anything bore them out.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]),
              help="[default: json with --input, else text]")  # fmt: skip
@output_option
def trend(select, source: Path | None, file: Path | None, online: bool, suspects: bool,
          form: str | None, output: Path | None):  # fmt: skip
    """Find lasting changes, blips that came back, and slow drifts, series by series.

    Each night is judged from the nights up to it, from the 21st measured one on; a finding's night
    is the first on which it was told.

    Exits with 1 if a regression or a drift to the worse is still on, 2 if no series had enough
    nights.
    """
    from plumbline.analysis.trend import following

    if file is not None and (source is not None or select != type(select)()):
        raise Fault(
            "--input reads a file of its own: leave --from and the selection out",
            code="input.wrong-option",
        )
    if file is not None:
        found, code = following.of_file(file, online), 0
    else:
        from plumbline.history.history import History

        with History(source, say=warn) as history:
            found = following.of_history(history.series(select), online)
            code = tell(history)
    write(_FORMS[form or ("json" if file is not None else "text")](found), output)
    if suspects:
        for name, first, last in found.outliers:
            warn(f"stood out and came back: {name}: night {first}"
                 + ("" if first == last else f" to {last}"))  # fmt: skip
    if found.unjudged:
        warn(found.unjudged)
    if found.bad:
        sys.exit(1)
    sys.exit(code if found.judged else 2)


def _json(found) -> str:
    return formats.as_json([asdict(row) for row in found.rows])


def _csv(found) -> str:
    from plumbline.analysis.trend.following import FoundRow

    return formats.as_csv([*FoundRow.__dataclass_fields__], map(asdict, found.rows))


def _text(found) -> str:
    shown = [
        {
            "kind": row.kind + ("" if row.confirmed else " (unconfirmed)"),
            "since": row.start,
            "until": row.until or "",
            "found": row.night,
            "size": f"{row.size:+.1%}",
            "95 %": f"{row.low:+.1%} to {row.high:+.1%}" if row.low is not None else "",
            "still on": "yes" if row.on else "",
            "before": row.before,
            "after": row.after,
            "nodes": row.nodes,
            "build": row.build,
        }
        for row in found.rows
    ]
    lines = []
    if shown:
        # Columns that say nothing, as those of the sessions for an --input, are left out.
        kept = [name for name in shown[0] if any(row[name] for row in shown)]
        heads, *rest = table(([row[name] for name in kept] for row in shown), kept).splitlines()
        told = zip((row.series for row in found.rows), rest, strict=True)
        # A series' name is longer than all columns: it has a line of its own.
        for name, group in itertools.groupby(told, key=lambda one: one[0]):
            lines += [printable(name), *(f"  {line.rstrip()}" for _, line in group)]
        lines.insert(0, f"  {heads}")
    lines.append(f"plumbline: {counted(len(shown), 'finding')} in {found.judged} series judged")
    return "\n".join(lines)


_FORMS = {"json": _json, "csv": _csv, "text": _text}
