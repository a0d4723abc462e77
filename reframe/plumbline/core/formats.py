"""Tables as JSON, CSV and Markdown, as every command writes them.

:func:`plumbline.core.text.table` writes them as text, :mod:`plumbline.core.suites` writes tests.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from plumbline.core.text import cell, escaped


def as_json(content: object) -> str:
    """Rows, or whatever else JSON can hold, a field a line.

    :raises ValueError: if a number in it is not finite, which JSON cannot hold.
    """
    return json.dumps(content, indent=1, allow_nan=False)


def as_csv(
    columns: Sequence[str],
    rows: Iterable[Mapping[str, object]],
    written: Callable[[object], object] = cell,
) -> str:
    """A header and a line for each row; what a row lacks is empty, and what is of no column is left
    out.

    :arg written: what becomes of a cell.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: written(value) for name, value in row.items()} for row in rows)
    return file.getvalue()


def as_markdown(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in which nothing but its lines has a meaning in Markdown."""
    every = [heads, ["---"] * len(heads), *([escaped(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in every)
