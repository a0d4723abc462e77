"""How names and counts are written: safe to print, without a meaning in Markdown, in the plural.

Names come from check files, schedulers and site files, and may hold anything.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

#: What Markdown, or GitLab's and GitHub's, gives a meaning: also a user, a milestone, a link. An
#: underscore within a word emphasizes nothing; a colon makes addresses and emojis.
_MARKDOWN = re.compile(
    r"[\\`*\[\]<>|~@&#$!{}]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|%(?=\S)|:(?=/|\S+:)|(?<=www)\."
)


def printable(text: str) -> str:
    """A text without what would steer a terminal, break a line, or be no XML: each such character
    is written as its code."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped(text: str) -> str:
    """A text, printable, in which nothing has a meaning in Markdown, nor calls anybody or anything
    by name."""
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", printable(text))


def counted(number: int, what: str, several: str = "") -> str:
    """So many of something: ``1 session``, ``2 sessions``.

    :arg several: the plural, where it is not the word with an s.
    """
    return f"{number} {what if number == 1 else several or f'{what}s'}"


def some(names: Iterable[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    listed = [*names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def cell(value: object) -> object:
    """A value as a CSV cell: true and false as JSON writes them, anything else as it is."""
    return json.dumps(value) if isinstance(value, bool) else value


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
