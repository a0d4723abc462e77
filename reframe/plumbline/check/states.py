"""Warning states: what should be looked at, whatever the result of a test case.

``suspicious``  a figure is far better than its reference: it was probably not measured as it
                should have been (a cache answered, nothing else was running)
``unstable``    a single sample lies beyond the bound that their summary keeps
``warnings``    the job's standard error tells of a fault, and the program ended well all the same

None of them is a result: they are in the record, the closing table and the report, and strict
rules fail on them. What makes an output untrustworthy is no warning: it makes the case ``invalid``.
Knows nothing of ReFrame.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic

from plumbline.core.codes import Reason
from plumbline.core.errors import Fault
from plumbline.core.text import counted, printable
from plumbline.reference import tables
from plumbline.reference.row import Text

SUSPICIOUS, UNSTABLE, WARNINGS = STATES = ("suspicious", "unstable", "warnings")

#: Characters of a line that a warning quotes.
_QUOTED = 160


@dataclass(frozen=True)
class Notice:
    """One warning of a test case.

    :ivar state: one of :data:`STATES`.
    :ivar code: stable id of the reason.
    :ivar detail: what was seen, in words.
    :ivar figure: name of the figure that it is about; empty where it is about the whole case.
    :ivar source: id of the reference that a figure was compared with, or where a pattern's words
        come from.
    """

    state: str
    code: str
    detail: str
    figure: str = ""
    source: str = ""


class Pattern(pydantic.BaseModel):
    """What a line of standard error may say: an entry of ``reference/stderr.yaml``."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, pydantic.Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
    regex: re.Pattern
    meaning: Text
    source: Text

    @pydantic.field_validator("regex", mode="before")
    @classmethod
    def _compiled(cls, text: object) -> object:
        try:
            return re.compile(text, re.IGNORECASE) if isinstance(text, str) else text
        except re.error as err:
            raise ValueError(f"no regular expression: {err}") from None


class _Patterns(pydantic.RootModel[list[Pattern]]):
    pass


@functools.cache
def patterns(folder: Path) -> tuple[Pattern, ...]:
    """The patterns of ``stderr.yaml`` and of a facility's own ``site/stderr.yaml``.

    :arg folder: of the references.
    :raises Fault: if a file is faulty, or has an id twice.
    """
    site = folder / "site" / "stderr.yaml"
    files = [folder / "stderr.yaml", *([site] if site.exists() else [])]
    found = [
        pattern for path in files for pattern in tables.read_model(path, _Patterns, "pattern").root
    ]
    twice = [name for name, count in Counter(pattern.id for pattern in found).items() if count > 1]
    if twice:
        raise Fault(
            f"{files[-1]}: the id {twice[0]!r} is there twice", code="reference.wrong-table"
        )
    return tuple(found)


def reasons(folder: Path) -> dict[str, Reason]:
    """Code -> reason of each warning that a pattern gives.

    :raises Fault: as :func:`patterns`.
    """
    remedy = "Look at the node's logs and counters; the warning names the node. Source of the words"
    return {
        code_of(pattern): Reason(
            f"Standard error: {pattern.meaning}.", f"{remedy}: {pattern.source}."
        )
        for pattern in patterns(folder)
    }


def code_of(pattern: Pattern) -> str:
    """The code of the warnings that a pattern gives."""
    return f"stderr.{pattern.id}"


def of_stderr(texts: Iterable[tuple[str, str]], known: Iterable[Pattern]) -> list[Notice]:
    """What the standard error of a job tells of: one warning of each pattern, with its first line.

    Lines of ``task.sh`` are no program's.

    :arg texts: name and content of each file.
    """
    lines = [
        (name, line.strip())
        for name, text in texts
        for line in text.splitlines()
        if line.strip() and not line.startswith("plumbline-")
    ]
    found = []
    for pattern in known:
        hits = [(name, line) for name, line in lines if pattern.regex.search(line)]
        if hits:
            name, line = hits[0]
            more = f", and {counted(len(hits) - 1, 'more line')}" if len(hits) > 1 else ""
            told = f"{pattern.meaning}: {name}: {printable(line[:_QUOTED])}{more}"
            found.append(Notice(WARNINGS, code_of(pattern), told, source=pattern.source))
    return found


def summed(states: Iterable[str]) -> str:
    """How many warnings there are of each state, by the states of all; empty for none."""
    counts = Counter(states)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
