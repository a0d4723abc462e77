"""Parsers of the benchmarks' outputs, one module each: text in, figures of merit out.

Each module has ``parse(text) -> Output`` and raises nothing but :class:`ParseError`. A parser
never returns a number that the text does not hold, and refuses a text that ends too early,
holds a table twice, or contradicts itself.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from plumbline.core.errors import Coded
from plumbline.parse import outputs

#: Benchmarks that have a parser, in the order they are listed for users.
BENCHMARKS = (
    "babelstream",
    "commscope",
    "fio",
    "gpcnet",
    "hpcc",
    "imb",
    "ior",
    "mdtest",
    "osu",
)


#: Characters of a reason, which goes into records and messages.
_LONGEST = 1000


class ParseError(Coded):
    """The output cannot be trusted: truncated, garbled, contradictory, or a failed run's.

    :arg reason: why; of a long one, such as a line of many megabytes, the start is kept.
    :ivar times: how often it holds what should stand there once.
    """

    code = "output.not-parsed"
    times = 1

    def __init__(self, reason: str, code: str = ""):
        super().__init__(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ...", code)


class Figure(NamedTuple):
    """What tells one figure of merit of a test case from another.

    :ivar metric: its registered name (``reference/foms.yaml``).
    :ivar size: message size in bytes, ``None`` where the metric has none.
    :ivar at: which of several that one test case measures: a pair of GPUs (``gpu0-gpu1``), a
        traffic (``congested``); empty where there is one.
    """

    metric: str
    size: int | None = None
    at: str = ""

    @property
    def variable(self) -> str:
        """ReFrame's name of the performance variable, made here alone."""
        size = None if self.size is None else str(self.size)
        return "_".join(part for part in (self.metric, size, self.at) if part)


@dataclass(frozen=True)
class Fom:
    """One figure of merit of one sample: its :class:`Figure` and

    :ivar value: the number, as printed.
    :ivar unit: its unit, as :mod:`plumbline.core.units` spells it.
    """

    metric: str
    value: float
    unit: str
    size: int | None = None
    at: str = ""

    @property
    def figure(self) -> Figure:
        return Figure(self.metric, self.size, self.at)

    @property
    def variable(self) -> str:
        return self.figure.variable


@dataclass(frozen=True)
class Output:
    """What one sample's output says.

    :ivar foms: figures of merit, in the order they are printed.
    :ivar tasks: MPI world size that the program reports, ``None`` where it reports none.
    :ivar version: the program's version, as printed.
    :ivar inputs: what the program says it ran with, where a check must hold that against what it
        asked for.
    """

    foms: tuple[Fom, ...]
    tasks: int | None
    version: str
    inputs: dict[str, str] = field(default_factory=dict)


def parse(benchmark: str, text: str) -> Output:
    """Reads one sample's output.

    :raises ParseError: if the output cannot be trusted.
    :raises KeyError: if no parser is there for the benchmark.
    """
    if benchmark not in BENCHMARKS:
        raise KeyError(benchmark)
    output: Output = importlib.import_module(f"plumbline.parse.{benchmark}").parse(text)
    seen: set[str] = set()
    for fom in output.foms:
        if fom.variable in seen:
            raise ParseError(f"{fom.variable} is printed twice")
        seen.add(fom.variable)
    if not seen:
        raise ParseError("the output holds no figure of merit")
    return output


def hold_against_errors(benchmark: str, errors: str) -> None:
    """Refuses a run whose standard error says that its results are wrong, where the program prints
    them and exits 0 all the same.

    :raises ParseError: if it says so.
    """
    failed = getattr(importlib.import_module(f"plumbline.parse.{benchmark}"), "FAILED", None)
    found = failed.search(errors) if failed else None
    if found:
        raise ParseError(f"the program says: {found[0].strip()}", code="output.program-error")


def parse_file(benchmark: str, path: Path) -> Output:
    """Reads one sample's output from a file; bytes that are no UTF-8 make it invalid.

    :raises ParseError: if the output cannot be trusted.
    :raises OSError: if the file cannot be read, is no regular file, or is too large.
    """
    try:
        text = outputs.read(path)
    except UnicodeDecodeError as err:
        raise ParseError(f"the output is not text: {err}") from None
    return parse(benchmark, text)


# The shapes that printf(3) gives a finite number. None of the programs measures a negative one, nor
# one with more digits: a double has 17.
_NUMBER = re.compile(r"(\d{1,25}(\.\d{0,25})?|\.\d{1,25})([eE][-+]?\d{1,4})?", re.ASCII)
_NAN = re.compile(r"[-+]?nan(\(\w*\))?", re.ASCII | re.I)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


def quoted(cell: object) -> str:
    """A cell for a message: what is not a number is called so, however printf(3) spells it."""
    return "NaN" if _NAN.fullmatch(str(cell)) else repr(cell)


def number(text: str, what: str) -> float:
    """A finite number that is not negative.

    :raises ParseError: if the text is none.
    """
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ParseError(f"{what}: {quoted(text)} is no finite number of zero or more")
    return float(text)


def whole(text: str, what: str) -> int:
    """A whole number without sign.

    :raises ParseError: if the text is none.
    """
    if not _WHOLE.fullmatch(text):
        raise ParseError(f"{what}: {text!r} is no whole number")
    return int(text)


_Match = TypeVar("_Match")


def sole(matches: Iterable[_Match], what: str) -> _Match:
    """The only one of the matches.

    :raises ParseError: if there are none, or several.
    """
    found = list(matches)
    if len(found) != 1:
        error = ParseError(f"{what}: found {len(found)} times, expected once")
        error.times = len(found)
        raise error
    return found[0]
