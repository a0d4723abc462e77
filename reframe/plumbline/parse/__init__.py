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

#: Benchmarks that have a parser, in the order they are listed for users.
BENCHMARKS = ("fio", "hpcc", "imb")


class ParseError(Exception):
    """The output cannot be trusted: truncated, garbled, contradictory, or a failed run's."""


@dataclass(frozen=True)
class Fom:
    """One figure of merit of one sample.

    :ivar metric: its registered name (``reference/foms.yaml``).
    :ivar value: the number, as printed.
    :ivar unit: its unit, as :mod:`plumbline.units` spells it.
    :ivar size: message size in bytes, ``None`` where the metric has none.
    """

    metric: str
    value: float
    unit: str
    size: int | None = None

    @property
    def variable(self) -> str:
        return variable(self.metric, self.size)


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


def variable(metric: str, size: int | None = None) -> str:
    """ReFrame's name of a performance variable: ``<metric>`` or ``<metric>_<size>``."""
    return metric if size is None else f"{metric}_{size}"


def parse(benchmark: str, text: str) -> Output:
    """Reads one sample's output.

    :raises ParseError: if the output cannot be trusted.
    :raises KeyError: if no parser is there for the benchmark.
    """
    if benchmark not in BENCHMARKS:
        raise KeyError(benchmark)
    output = importlib.import_module(f"plumbline.parse.{benchmark}").parse(text)
    seen: set[str] = set()
    for fom in output.foms:
        if fom.variable in seen:
            raise ParseError(f"{fom.variable} is printed twice")
        seen.add(fom.variable)
    if not seen:
        raise ParseError("the output holds no figure of merit")
    return output


def parse_file(benchmark: str, path: Path) -> Output:
    """Reads one sample's output from a file; bytes that are no UTF-8 make it invalid.

    :raises ParseError: if the output cannot be trusted.
    :raises OSError: if the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise ParseError(f"the output is not text: {err}") from None
    return parse(benchmark, text)


# The shapes that printf(3) gives a finite number. None of the programs measures a negative one.
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


def number(text: str, what: str) -> float:
    """A finite number that is not negative.

    :raises ParseError: if the text is none.
    """
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ParseError(f"{what}: {text!r} is no finite number of zero or more")
    return float(text)


def whole(text: str, what: str) -> int:
    """A whole number without sign.

    :raises ParseError: if the text is none.
    """
    if not _WHOLE.fullmatch(text):
        raise ParseError(f"{what}: {text!r} is no whole number")
    return int(text)


def sole(matches: Iterable[str], what: str) -> str:
    """The only one of the matches.

    :raises ParseError: if there are none, or several.
    """
    found = list(matches)
    if len(found) != 1:
        raise ParseError(f"{what}: found {len(found)} times, expected once")
    return found[0]
