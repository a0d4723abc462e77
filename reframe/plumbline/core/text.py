"""Format names, counts and tables for terminals, Markdown and CSV.

Names come from check files, schedulers and site files, and may contain any character.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

#: Columns of a terminal that every table and message fits.
WIDTH = 100

#: Characters with a meaning in Markdown, GitLab or GitHub, such as users, milestones and links.
#: An underscore within a word emphasizes nothing; a colon makes addresses and emojis.
_MARKDOWN = re.compile(
    r"[\\`*\[\]<>|~@&#$!{}]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|%(?=\S)|:(?=/|\S+:)|(?<=www)\."
)
#: Between the columns of a table, and the width below which none is wrapped.
_SEPARATOR = "  "
_NARROWEST = 10
#: How a cell begins that spreadsheets take for a formula (OWASP, "CSV Injection"), with any
#: apostrophes before it, so that escaping can be undone.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
#: Matches a cell that :func:`escape_formula` changed; the group has the original beginning.
ESCAPED_FORMULA = r"^'('*[=+\-@\t\r\n])"


def printable(text: str) -> str:
    """Return a text with each control or unprintable character replaced by its escape code."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Return a text with each of its lines :func:`printable`."""
    return "\n".join(map(printable, text.split("\n")))


def format_table(rows: Iterable[Iterable[object]], heads: Sequence[str] = ()) -> str:
    """Return a table as text, as wide as its cells: see :func:`table_lines`."""
    head, body = table_lines(rows, heads, sys.maxsize)
    return "\n".join([*head, *itertools.chain.from_iterable(body)])


def table_lines(
    rows: Iterable[Iterable[object]], heads: Sequence[str], width: int = WIDTH
) -> tuple[list[str], list[list[str]]]:
    """Return the lines of a table's head, if it has one, and the lines of each row. Cells are
    printable, ``None`` is an empty one, and the widest columns are wrapped for the width."""
    cells = _printable(rows)
    columns = [*zip(*([heads] if heads else []), *cells, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    left, most = width - len(_SEPARATOR) * (len(widths) - 1), max(widths, default=0)
    while most > _NARROWEST and sum(min(wide, most) for wide in widths) > left:
        most -= 1
    widths = [min(wide, most) for wide in widths]

    def line(row: Iterable[str]) -> str:
        return _SEPARATOR.join(map(str.ljust, row, widths)).rstrip()

    blocks = (itertools.zip_longest(*map(_wrap, row, widths), fillvalue="") for row in cells)
    head = [line(heads), line("-" * wide for wide in widths)] if heads else []
    return head, [[*map(line, block)] for block in blocks]


def _printable(rows: Iterable[Iterable[object]]) -> list[list[str]]:
    return [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]


class _Wrapper(textwrap.TextWrapper):
    """Wraps between words, and after the punctuation in a name."""

    wordsep_simple_re = re.compile(r"(\s+|(?<=[-_/=;,:])(?=[^\s\d]))")


def _wrap(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return _Wrapper(width, break_on_hyphens=False).wrap(text)


def fill(text: str, first: str = "", rest: str = "  ") -> str:
    """Return a printable text in lines of at most :data:`WIDTH` columns. Names stay whole, if they
    fit.

    :arg first: begins the first line. :arg rest: begins the others.
    """
    return textwrap.fill(printable(text), WIDTH, initial_indent=first, subsequent_indent=rest,
                         break_on_hyphens=False)  # fmt: skip


def quote_markdown(text: str) -> str:
    """Return a printable text in which nothing is Markdown or mentions a user or an issue: as it
    is, or else as a code span.

    >>> quote_markdown("triad on n1"), quote_markdown("stream %placement=all-cores")
    ('triad on n1', '`stream %placement=all-cores`')
    """
    text = printable(text)
    if not _MARKDOWN.search(text):
        return text
    mark = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def pluralize(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> pluralize(1, "session"), pluralize(2, "session"), pluralize(0, "entry", "entries")
    ('1 session', '2 sessions', '0 entries')

    :arg plural: the plural, if it is not the singular with an s.
    """
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def shorten(names: Iterable[str], most: int = 3) -> str:
    """Return the first names of a list and the number of the others.

    >>> shorten(["n1", "n2", "n3", "n4", "n5"])
    'n1, n2, n3 and 2 more'
    """
    names = [*names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts texts by the numbers in them.

    >>> sorted(["n10", "n2"], key=natural)
    ['n2', 'n10']
    """
    # Texts and numbers take turns; one of them may be empty.
    parts = enumerate(re.split(r"(\d+)", text))
    return [(int(part), "") if place % 2 else (0, part) for place, part in parts]


def csv_cell(value: object) -> object:
    """Return a value as a CSV cell that is safe to open in a spreadsheet.

    >>> csv_cell(True), csv_cell(0.5), csv_cell("=1+1"), csv_cell(["a", "b"]), csv_cell({"a": 1})
    ('true', 0.5, "'=1+1", 'a; b', 'a=1')
    """
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        value = "; ".join(map(str, value))
    if isinstance(value, dict):
        value = format_pairs(value)
    return escape_formula(printable(value)) if isinstance(value, str) else value


def format_pairs(values: Mapping[str, object]) -> str:
    """Return a mapping in one line.

    >>> format_pairs({"b": 2, "a": 1})
    'a=1;b=2'
    """
    return ";".join(f"{key}={value}" for key, value in sorted(values.items()))


def escape_formula(text: str) -> str:
    """Return a text as a CSV cell, with an apostrophe before it if it could be a formula."""
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def suggest(name: str, known: Iterable[str], available: str = "") -> str:
    """Return the end of a message about an unknown name: similar names, or all that are available.

    >>> suggest("sumit", ["summit", "sierra"]), suggest("gone", ["a", "b"])
    ('did you mean summit?', 'available: a, b')

    :arg available: the text that lists the names, if it is not only the names.
    """
    known = [*known]
    listed = f"available: {available or shorten(known, 50) or 'none'}"
    return did_you_mean(name, known) or listed


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question whether a similar name was meant; empty if there is none."""
    known = [*known]
    # A part of a long name is not similar to the whole name.
    containing = [other for other in known if len(name) > 2 and name in other]
    similar = containing[:3] or difflib.get_close_matches(name, known, 3)
    return f"did you mean {', '.join(similar)}?" if similar else ""


#: A parameter that ReFrame adds for ``--distribute`` or ``--repeat``, as Python and DuckDB read it.
ADDED = r" %\.(?:nid|part|repeat_no)=\S+"


def base_name(check: str) -> str:
    """Return a check's name without what ReFrame adds for ``--distribute`` and ``--repeat``. What
    it adds for ``-P`` is another test case's name, with a dot before the variable.

    >>> base_name("osu_p2p %test=bw %.nid=node1 %.num_samples=5")
    'osu_p2p %test=bw %.num_samples=5'
    """
    return re.sub(ADDED, "", check)
