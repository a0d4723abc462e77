"""How names and counts are written: safe to print, without a meaning in Markdown, in the plural.

Names come from check files, schedulers and site files, and may hold anything.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

from tabulate import tabulate

#: What Markdown, or GitLab's and GitHub's, gives a meaning: also a user, a milestone, a link. An
#: underscore within a word emphasizes nothing; a colon makes addresses and emojis.
_MARKDOWN = re.compile(
    r"[\\`*\[\]<>|~@&#$!{}]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|%(?=\S)|:(?=/|\S+:)|(?<=www)\."
)
#: How a cell begins that spreadsheets take for a formula (OWASP, "CSV Injection"); with what
#: stands before one already, so that reading gives back what was written.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
#: A cell of :func:`guarded` that has its apostrophe: what is in the group was written.
GUARD = r"^'('*[=+\-@\t\r\n])"


def printable(text: str) -> str:
    """A text without what would steer a terminal, break a line, or be no XML: each such character
    is written as its code."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(text: str) -> str:
    """Lines of text for a terminal or a log, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def table(rows: Iterable[Iterable[object]], heads: Iterable[str] = (), form: str = "plain") -> str:
    """A table as text, its cells printable; an empty one where a cell is ``None``.

    :arg form: of tabulate.
    """
    shown = [["" if found is None else printable(str(found)) for found in row] for row in rows]
    return tabulate(shown, tuple(heads), tablefmt=form, disable_numparse=True)


def escaped(text: str) -> str:
    """A text, printable, in which nothing has a meaning in Markdown, nor calls anybody or anything
    by name."""
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", printable(text))


def counted(number: int, what: str, several: str = "") -> str:
    """So many of something.

    >>> counted(1, "session"), counted(2, "session"), counted(0, "entry", "entries")
    ('1 session', '2 sessions', '0 entries')

    :arg several: the plural, where it is not the word with an s.
    """
    return f"{number} {what if number == 1 else several or f'{what}s'}"


def some(names: Iterable[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are.

    >>> some(["n1", "n2", "n3", "n4", "n5"])
    'n1, n2, n3 and 2 more'
    """
    listed = [*names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def cell(value: object) -> object:
    """A value as a CSV cell: true and false as JSON writes them, a text printable and none that a
    spreadsheet would run, anything else as it is.

    >>> cell(True), cell(0.5), cell("=1+1")
    ('true', 0.5, "'=1+1")
    """
    if isinstance(value, bool):
        return json.dumps(value)
    return guarded(printable(value)) if isinstance(value, str) else value


def guarded(text: str) -> str:
    """A text as a CSV cell that no spreadsheet takes for a formula: where it begins as one does, an
    apostrophe stands before it. :data:`GUARD` finds it, to be taken away again."""
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def near(name: str, known: Iterable[str], there: str = "") -> str:
    """The names that one was perhaps meant for, or else those that there are.

    :arg there: how those are told; by the first of them, if not given.
    """
    known = [*known]
    # A part of a long name is unlike the whole.
    parts = [other for other in known if len(name) > 2 and name in other]
    if found := parts[:3] or difflib.get_close_matches(name, known, 3):
        return f"near: {', '.join(found)}"
    return f"there are: {there or some(known, 5) or 'none'}"


def base_name(check: str) -> str:
    """A check's name without what ReFrame adds for ``--distribute`` and ``--repeat``, such as
    ``%.nid=node1``.

    >>> base_name("osu_p2p %test=bw %.nid=node1")
    'osu_p2p %test=bw'
    """
    return re.sub(r" %\.\S+", "", check)
