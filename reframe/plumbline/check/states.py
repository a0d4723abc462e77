"""Warning states: what a person should look at, also if the test case passed.

``suspicious``  a figure is far better than its reference: something else was probably measured
                (a cache, an idle network)
``unstable``    single samples are beyond a bound that their summary meets
``warnings``    the job's standard error reports a fault, although the program ended with 0

None of them is a result: they are in the record, the summary and the report, and strict
rules fail on them, except on :data:`LONE` samples. Output that cannot be trusted is not a
warning: it makes the case ``invalid``. Independent of ReFrame.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import pydantic

from plumbline.core.codes import Reason
from plumbline.core.errors import Fault
from plumbline.core.paths import Folder, layers_of
from plumbline.core.text import pluralize, printable
from plumbline.core.yamlfile import read_model
from plumbline.placement import proof
from plumbline.reference.row import Strict, Text

SUSPICIOUS, UNSTABLE, WARNINGS = STATES = ("suspicious", "unstable", "warnings")

#: Code of a warning that one sample of three or more is beyond a bound. Strict rules do not fail on
#: it: one of some hundred short runs of a healthy machine meets an interruption each night.
LONE = "figure.one-sample-beyond-bound"

#: Characters of a line that a warning quotes.
_QUOTED = 160


@dataclass(frozen=True)
class Notice:
    """One warning of a test case.

    :ivar state: one of :data:`STATES`.
    :ivar code: stable id of the reason.
    :ivar detail: the message.
    :ivar figure: name of the figure; empty if it is about the whole case.
    :ivar source: id of the reference that a figure was compared with, or the origin of a pattern.
    """

    state: str
    code: str
    detail: str
    figure: str = ""
    source: str = ""


class Pattern(Strict):
    """A pattern of lines of standard error: an entry of ``reference/stderr.yaml``."""

    id: Annotated[str, pydantic.Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
    regex: re.Pattern
    meaning: Text
    remedy: Text = "Look at the node's logs and counters; the warning names the node."
    source: Text

    @pydantic.field_validator("regex", mode="before")
    @classmethod
    def _compiled(cls, text: object) -> object:
        try:
            return re.compile(text, re.IGNORECASE) if isinstance(text, str) else text
        except re.error as err:
            raise ValueError(f"not a regular expression: {err}") from None


@functools.cache
def patterns(folder: Folder) -> tuple[Pattern, ...]:
    """Return the patterns of ``stderr.yaml``: the shipped ones and a site's own.

    :arg folder: of the references.
    :raises Fault: if a file is faulty, or an id is used twice.
    """
    layers = layers_of(folder)
    entries = pydantic.RootModel[list[Pattern]]
    files = layers.all("stderr.yaml")[::-1] or [layers.find("stderr.yaml")]
    found = [pattern for path in files for pattern in read_model(path, entries, "pattern").root]
    twice = [name for name, count in Counter(pattern.id for pattern in found).items() if count > 1]
    if twice:
        raise Fault(f"{files[-1]}: the id {twice[0]!r} is used twice", code="reference.wrong-table")
    return tuple(found)


def reasons(folder: Folder) -> dict[str, Reason]:
    """Return the reason of each pattern's warning, by code.

    :raises Fault: as :func:`patterns`.
    """
    return {
        code_of(pattern): Reason(
            f"Standard error: {pattern.meaning}.",
            f"{pattern.remedy} Source of the words: {pattern.source}.",
        )
        for pattern in patterns(folder)
    }


def code_of(pattern: Pattern) -> str:
    """Return the code of a pattern's warnings."""
    return f"stderr.{pattern.id}"


def of_stderr(texts: Iterable[tuple[str, str]], known: Iterable[Pattern]) -> list[Notice]:
    """Return the warnings in a job's standard error: one of each pattern, with its first line.

    Lines of ``task.sh`` are skipped.

    :arg texts: name and content of each file.
    """
    lines = [
        (name, line.strip())
        for name, text in texts
        for line in proof.lines_by_word(text).get("", ())
        if line.strip()
    ]
    found = []
    for pattern in known:
        hits = [(name, line) for name, line in lines if pattern.regex.search(line)]
        if hits:
            name, line = hits[0]
            more = f", and {pluralize(len(hits) - 1, 'more line')}" if len(hits) > 1 else ""
            detail = f"{pattern.meaning}: {name}: {printable(line[:_QUOTED])}{more}"
            found.append(Notice(WARNINGS, code_of(pattern), detail, source=pattern.source))
    return found


def summed(states: Iterable[str]) -> str:
    """Return the number of warnings of each state as text; empty for none."""
    counts = Counter(states)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
