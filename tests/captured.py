"""Captured outputs of the benchmarks: their texts, and what the parsers read in them.

``captures/<benchmark>/`` contains outputs of real runs (``.out``), their commands (``.cmd``) and
standard error, if any (``.err``), without paths of the machine.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from plumbline import parse
from plumbline.parse import Output, ParseError
from plumbline.reference.tables import read_foms

#: A digit to ``int()`` and ``float()``, and to no benchmark.
ARABIC_ONE = "\N{ARABIC-INDIC DIGIT ONE}"

#: The reason codes of refusals.
NOT_PARSED, PROGRAM_ERROR = "output.not-parsed", "output.program-error"

CAPTURES = Path(__file__).with_name("captures")
FOMS = read_foms(Path(__file__).parents[1] / "reference")


@dataclass(frozen=True)
class Program:
    """The table of a program for the tests of all programs.

    :ivar failed: pattern of the ends of the names of captures of failed runs.
    :ivar closing: pattern of the last line of a report, if it has one.
    :ivar others: captures of other programs.
    :ivar reported: pattern of those of the failed runs whose output reports the failure.
    :ivar cells: capture, and pattern with two groups around a number.
    :ivar faults: capture, pattern, replacement (or factor of :data:`FACTORS`), and the reason code
        of the refusal where it is not :data:`NOT_PARSED`.
    :ivar strict: whether a damaged text must be refused unless it has all figures.
    """

    name: str
    failed: str
    closing: str | None
    others: list[str]
    reported: str = "nothing"
    cells: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, ...]] = field(default_factory=list)
    strict: bool = False

    @functools.cached_property
    def good(self) -> list[str]:
        """All captures but those of failed runs."""
        return [name for name in names_of(self.name) if not ends(name, self.failed)]


def path_of(name: str) -> Path:
    """A capture's file: ``.out``, or ``.json`` where the program wrote its report to a file."""
    path = CAPTURES / f"{name}.out"
    return path if "json_file" not in name else path.with_suffix(".json")


@functools.cache
def text_of(name: str) -> str:
    return path_of(name).read_text(encoding="utf-8", errors="replace")


def read(name: str, text: str | None = None) -> Output:
    """Parse a capture, or another text of its benchmark."""
    return parse.parse(name.partition("/")[0], text_of(name) if text is None else text)


@functools.cache
def whole(name: str) -> dict[str, tuple[float, str]]:
    """The figures of an unchanged capture."""
    return figures(read(name))


def figures(output: Output) -> dict[str, tuple[float, str]]:
    return {fom.variable: (fom.value, fom.unit) for fom in output.foms}


def names_of(benchmark: str) -> list[str]:
    """All captures of a benchmark."""
    paths = (CAPTURES / benchmark).glob("*.out")
    return sorted(f"{benchmark}/{path.stem}" for path in paths)


def ends(name: str, pattern: str) -> bool:
    return re.search(f"(?:/|_)(?:{pattern})$", name) is not None


def changed(text: str, pattern: str, replacement: str) -> str:
    """The text with exactly one place changed."""
    new, count = re.subn(pattern, replacement, text, flags=re.M)
    assert count == 1, f"{pattern!r} is there {count} times"
    assert new != text, f"{pattern!r} -> {replacement!r} changes nothing"
    return new


def refusal(name: str, text: str | None = None, benchmark: str = "") -> str:
    """The reason code with which a text is refused."""
    with pytest.raises(ParseError) as refused:
        parse.parse(benchmark or name.partition("/")[0], text_of(name) if text is None else text)
    return refused.value.code


def truncate(name: str, closing: str) -> None:
    """A text that is truncated before its last line is refused, wherever it is cut.

    :arg closing: pattern of the last line.
    """
    text, length = text_of(name), 0
    end = list(re.finditer(closing, text, re.M))[-1].start()
    assert end > 0
    for line in text.splitlines(keepends=True):
        for cut in {length, length + len(line) // 2}:
            if cut <= end:
                with pytest.raises(ParseError):
                    read(name, text[:cut])
        length += len(line)


#: Texts that are not a finite number of zero or more.
NO_NUMBERS = [
    *("", "1 2", "nan", "NaN", "NAN", "-nan", "nan(0x1)"),
    *("inf", "Inf", "INF", "-inf", "infinity", "Infinity", "-Infinity", "1e999", "1e+400"),
    *("******", "--", "-", ".", "e5", "1.2.3", "1,5", "1_0", "0x10", "1e", "1e+", "12us", "-3.14"),
    *("null", "true", '"1.5"', ARABIC_ONE, f"1.{ARABIC_ONE}", f"{ARABIC_ONE}.5"),
    *("\N{SUPERSCRIPT TWO}", "\N{INFINITY}"),
]


def refusal_of_errors(benchmark: str, text: str) -> str | None:
    """The reason code with which what a program wrote on standard error is refused."""
    try:
        parse.check_stderr(benchmark, text)
    except ParseError as err:
        return err.code
    return None
