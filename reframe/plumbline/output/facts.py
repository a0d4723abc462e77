"""What records have besides figures: builds, tuning variables and facts of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plumbline.check.record import Record, short_name
from plumbline.core import formats
from plumbline.core.text import pluralize, shorten, table_lines

#: Fields of a row. ``where`` has the nodes of a fact of kind ``host``, and else the test cases.
COLUMNS = ("session", "system", "kind", "name", "value", "where")


def rows(records: Iterable[Record]) -> list[dict]:
    """Return a row for each value of a session, by kind and name, with all its places."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for record in records:
        for kind, place, values in _parts(record):
            for name, value in values.items():
                key = (record.session, record.system, kind, name, value)
                found.setdefault(key, {})[place] = None
    return [dict(zip(COLUMNS, (*key, [*found[key]]), strict=True)) for key in sorted(found)]


def _parts(record: Record) -> Iterator[tuple[str, str, dict[str, str]]]:
    case = short_name(record)
    yield "build", case, record.build
    yield "variable", case, record.variables or {}
    for node, facts in record.hosts.items():
        yield "host", node, facts


def as_csv(found: list[dict]) -> str:
    """Return CSV, with the places separated by semicolons."""
    return formats.as_csv(COLUMNS, (row | {"where": "; ".join(row["where"])} for row in found))


def text(found: list[dict]) -> str:
    """Return the rows of one session for a terminal."""
    cells = (
        [row["kind"], row["name"], row["value"], f"{len(row['where'])}: {shorten(row['where'])}"]
        for row in found
    )
    head, body = table_lines(cells, COLUMNS[2:])
    count = f"plumbline: {pluralize(len(found), 'value')}"
    return "\n".join([*head, *(line for row in body for line in row), count])


#: Format -> function that writes it.
FORMATS = {"text": text, "json": formats.as_json, "csv": as_csv}
