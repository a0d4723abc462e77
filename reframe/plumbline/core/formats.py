"""Format tables as JSON, CSV and Markdown, for all commands.

:func:`plumbline.core.text.format_table` formats text, :mod:`plumbline.core.suites` JUnit XML.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from plumbline.core.text import csv_cell, quote_markdown


def as_json(content: object) -> str:
    """Return rows, or any other value, as JSON with one field per line.

    :raises ValueError: if a number is not finite, which JSON does not support.
    """
    return json.dumps(content, indent=1, allow_nan=False)


def as_csv(
    columns: Sequence[str],
    rows: Iterable[Mapping[str, object]],
    convert: Callable[[object], object] = csv_cell,
) -> str:
    """Return CSV with a header; missing fields are empty, and fields without a column are skipped.

    :arg convert: returns the printed value of a cell.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: convert(value) for name, value in row.items()} for row in rows)
    return file.getvalue()


def as_rows(
    form: str, columns: Sequence[str], rows: Sequence[Mapping[str, object]], text: Callable[[], str]
) -> str:
    """Return the rows of a command in the format that its user chose.

    :arg columns: of the CSV. :arg text: returns the text for a terminal.
    """
    if form == "json":
        return as_json(rows)
    return as_csv(columns, rows) if form == "csv" else text()


def as_markdown(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table with quoted cells."""
    cells = [[quote_markdown(cell).replace("|", r"\|") for cell in row] for row in rows]
    return markdown_table(heads, cells)


def markdown_table(
    heads: Sequence[str], rows: Iterable[Iterable[object]], numbers: Collection[str] = ()
) -> str:
    """Return a table of cells that are Markdown.

    :arg numbers: heads of the columns that are aligned on the right.
    """
    lines = [heads, ["---:" if head in numbers else "---" for head in heads], *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
