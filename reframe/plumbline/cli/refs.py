"""``plumbline refs``: lists and explains the references."""

from __future__ import annotations

import sys

import click

from plumbline.cli.common import complete_system, echo, say, table_format_option, write
from plumbline.core import formats
from plumbline.core.text import format_table


@click.command()
@click.argument("words", nargs=-1)
@click.option("--system", shell_complete=complete_system)
@click.option("--benchmark")
@click.option("--metric")
@click.option("--placement")
@click.option("--source")
@click.option("--kind", type=click.Choice(["measured", "peak", "target", "derived"]))
@click.option("--why", "name", metavar="ID", help="Explain one row: source, note, bounds, reason.")
@click.option("--unused", is_flag=True, help="Only rows that no check uses.")
@table_format_option
def refs(words: tuple[str, ...], name: str | None, unused: bool, form: str, **wanted: str | None):
    """List the references.

    The options, which take * and ?, and WORDS, which may be anywhere in a row, narrow the list. A
    number among the WORDS selects the rows with that printed value. If a figure has no row, the
    peaks of links that are its ceilings are listed.

    Exits with 2 if no row matches.
    """
    from plumbline.core import paths
    from plumbline.output import reference_rows
    from plumbline.reference import lookup

    references = lookup.loaded(paths.reference())
    if name:
        known = reference_rows.misprints(paths.reference())
        echo("\n".join(reference_rows.why(references, name, known)))
        return
    rows = reference_rows.select(references, wanted, words)
    if unused:
        rows = reference_rows.unused(rows)
    cells = [references.tables.printed[row.id] for row in rows]
    if form == "json":
        echo(formats.as_json(cells))
    elif form == "csv":
        columns = list(dict.fromkeys(column for row in cells for column in row))
        write(formats.as_csv(columns, cells), None)
    else:
        shown = [[row.get(column, "") for column in reference_rows.COLUMNS] for row in cells]
        echo(format_table(shown, reference_rows.COLUMNS if shown else ()))
        say(f"{len(rows)} of {len(references.rows)} references")
        if not (rows or unused) and (peaks := reference_rows.capping(references, wanted, words)):
            say(
                "no reference is of these figures, but each has a ceiling: the peak of a link, "
                "times the number in the column `times`:"
            )
            shown = [[peak[column] for column in reference_rows.CAPPING] for peak in peaks]
            echo(format_table(shown, reference_rows.CAPPING))
    if not rows:
        sys.exit(2)
