"""Parsers of the benchmarks' outputs, one module each: text in, figures of merit out.

Each module has ``parse(text) -> Output``, which raises only :class:`ParseError`. A parser never
returns a number that is not in the text, and refuses a text that is truncated, contains a table
twice, or contradicts itself.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from plumbline.core.errors import Coded
from plumbline.parse import outputs

#: Benchmarks with a parser, in the order of listings.
BENCHMARKS = ("babelstream", "commscope", "fio", "gpcnet", "hpcc", "imb", "ior", "mdtest", "osu")

#: Characters of the longest reason, which is copied into records and messages.
_LONGEST = 1000


class ParseError(Coded):
    """The output cannot be trusted: it is truncated, garbled, contradictory, or of a failed run.

    :arg reason: why; only the start of a long reason is kept.
    :ivar times: how often something that is expected once was found.
    """

    code = "output.not-parsed"
    times = 1

    def __init__(self, reason: str, code: str = ""):
        super().__init__(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ...", code)


class Figure(NamedTuple):
    """The identity of a figure of merit within a test case.

    :ivar metric: its registered name (``reference/foms.yaml``).
    :ivar size: message size in bytes, ``None`` if the metric has none.
    :ivar location: where a test case measures the metric, if at several places: a pair of GPUs
        (``gpu0-gpu1``), a kind of traffic (``congested``).
    """

    metric: str
    size: int | None = None
    location: str = ""

    @property
    def variable(self) -> str:
        """The name of ReFrame's performance variable."""
        size = None if self.size is None else str(self.size)
        return "_".join(part for part in (self.metric, size, self.location) if part)


@dataclass(frozen=True)
class Fom:
    """One measured :class:`Figure` of one sample.

    :ivar value: the printed number.
    :ivar unit: its unit, in the spelling of ``plumbline.core.units``.
    """

    metric: str
    value: float
    unit: str
    size: int | None = None
    location: str = ""

    @property
    def figure(self) -> Figure:
        return Figure(self.metric, self.size, self.location)

    @property
    def variable(self) -> str:
        return self.figure.variable


@dataclass(frozen=True)
class Output:
    """The parsed output of one sample.

    :ivar foms: figures of merit, in printed order.
    :ivar tasks: MPI world size, ``None`` if the program does not print it.
    :ivar version: the program's version, empty if it does not print it.
    :ivar inputs: the printed inputs that a check compares with the requested ones.
    """

    foms: tuple[Fom, ...]
    tasks: int | None = None
    version: str = ""
    inputs: dict[str, str] = field(default_factory=dict)


#: What aprun prints on standard output after a program that ended with exit code 0.
_APRUN = re.compile(r"^Application \d+ resources: .*\n\Z", re.M)


def parse(benchmark: str, text: str) -> Output:
    """Parse one sample's output, without the line that ALPS may have added.

    :raises ParseError: if the output cannot be trusted.
    :raises KeyError: if the benchmark has no parser.
    """
    if benchmark not in BENCHMARKS:
        raise KeyError(benchmark)
    return checked(
        importlib.import_module(f"plumbline.parse.{benchmark}").parse(_APRUN.sub("", text))
    )


def checked(output: Output) -> Output:
    """Return what a parser found.

    :raises ParseError: if it is nothing, or has a figure twice.
    """
    seen: set[str] = set()
    for fom in output.foms:
        if fom.variable in seen:
            raise ParseError(f"{fom.variable} is printed twice")
        seen.add(fom.variable)
    if not seen:
        raise ParseError("the output has no figure of merit")
    return output


def check_inputs(program: str, output: Output, requested: Mapping[str, object]) -> None:
    """Compare the inputs that a program printed with the requested ones.

    :raises ParseError: on a difference, or if one was not printed.
    """
    for key, value in requested.items():
        printed = output.inputs.get(key, "not printed")
        if printed != str(value):
            raise ParseError(
                f"{program} ran with {key.replace('_', ' ')} {printed}, but {value} was requested",
                code="output.other-inputs",
            )


def check_stderr(benchmark: str, errors: str) -> None:
    """Check standard error for a message that the results are wrong.

    Some programs print such a message, and then results and exit code 0.

    :raises ParseError: if there is such a message.
    """
    if benchmark not in BENCHMARKS:
        return
    failed = getattr(importlib.import_module(f"plumbline.parse.{benchmark}"), "FAILED", None)
    found = failed.search(errors) if failed else None
    if found:
        raise ParseError(f"the program reports: {found[0].strip()}", code="output.program-error")


def parse_file(benchmark: str, path: Path) -> Output:
    """Parse one sample's output file; bytes that are not UTF-8 make it invalid.

    :raises ParseError: if the output cannot be trusted.
    :raises OSError: if the file cannot be read, is not a regular file, or is too large.
    """
    return parse(benchmark, read_file(path))


def read_file(path: Path) -> str:
    """Return a sample's output.

    :raises ParseError: if it has bytes that are not UTF-8.
    :raises OSError: if the file cannot be read, is not a regular file, or is too large.
    """
    try:
        return outputs.read(path)
    except UnicodeDecodeError as err:
        raise ParseError(f"the output is not text: {err}") from None


# Finite numbers as printf(3) prints them. No program measures negative ones, or prints more digits:
# a double has 17.
_NUMBER = re.compile(r"(\d{1,25}(\.\d{0,25})?|\.\d{1,25})([eE][-+]?\d{1,4})?", re.ASCII)
_NAN = re.compile(r"[-+]?nan(\(\w*\))?", re.ASCII | re.I)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


def quote(cell: object) -> str:
    """Return a cell for a message; each of printf's spellings of not-a-number as NaN."""
    return "NaN" if _NAN.fullmatch(str(cell)) else repr(cell)


def parse_number(text: str, what: str) -> float:
    """Return a finite, non-negative number.

    :raises ParseError: if the text is not one.
    """
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ParseError(f"{what}: {quote(text)} is not a finite number of zero or more")
    return float(text)


def parse_count(text: str, what: str) -> int:
    """Return a whole number without a sign.

    :raises ParseError: if the text is not one.
    """
    if not _WHOLE.fullmatch(text):
        raise ParseError(f"{what}: {text!r} is not a whole number")
    return int(text)


_Match = TypeVar("_Match")


def single(matches: Iterable[_Match], what: str) -> _Match:
    """Return the only match.

    :raises ParseError: if there is none, or several.
    """
    found = list(matches)
    if len(found) != 1:
        error = ParseError(f"{what}: found {len(found)} times, expected once")
        error.times = len(found)
        raise error
    return found[0]
