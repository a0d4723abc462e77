"""``plumbline refs``: the published references."""

from __future__ import annotations

import csv
import json
import sys

import click
from tabulate import tabulate


@click.command()
@click.argument("words", nargs=-1)
@click.option("--system")
@click.option("--benchmark")
@click.option("--metric")
@click.option("--placement")
@click.option("--source")
@click.option("--kind", type=click.Choice(["measured", "peak", "target", "derived"]))
@click.option("--why", "name", metavar="ID", help="Explain one row: source, note, bounds, reason.")
@click.option("--unused", is_flag=True, help="Only the rows that no check declares.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv", "json"]),
    default="text",
    show_default=True,
)
def refs(
    words: tuple[str, ...],
    name: str | None,
    unused: bool,
    form: str,
    **wanted: str | None,
):
    """List the references. WORDS and the options, which take * and ?, narrow the list; a number
    among the WORDS finds the rows of that printed value.

    Exits with 2 where nothing matches.
    """
    from plumbline import paths, reference
    from plumbline import refs as finder

    references = reference.loaded(paths.reference())
    if name:
        known = finder.misprints(paths.reference())
        click.echo("\n".join(finder.why(references, name, known)))
        return
    rows = finder.select(references, wanted, words)
    if unused:
        rows = finder.unused(rows)
    cells = [references.tables.printed[row.id] for row in rows]
    if form == "json":
        click.echo(json.dumps(cells, indent=1, ensure_ascii=False))
    elif form == "csv":
        columns = list(dict.fromkeys(column for cell in cells for column in cell))
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(cells)
    else:
        shown = [{column: cell.get(column, "") for column in finder.COLUMNS} for cell in cells]
        click.echo(tabulate(shown, headers="keys", tablefmt="plain", disable_numparse=True))
        click.echo(f"plumbline: {len(rows)} of {len(references.rows)} references")
    if not rows:
        sys.exit(2)
