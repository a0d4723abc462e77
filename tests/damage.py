"""Damage that every parser's tests do to real outputs: what is left is refused, or read right.

A parser never reads another number from a damaged text: it refuses the text, or gives figures that
the whole text has too. Where a report has a closing line, a text without it is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from plumbline import parse
from plumbline.core.units import factor
from plumbline.parse import Output, ParseError
from plumbline.reference.tables import read_foms

CAPTURES = Path(__file__).with_name("captures")
FOMS = read_foms(Path(__file__).parents[1] / "reference" / "foms.yaml")


@dataclass(frozen=True)
class Program:
    """What the tests that all programs have in common need of one.

    :ivar failed: captures of failed runs -> what the refusal says.
    :ivar closing: pattern of the line that closes a report, if it has one.
    :ivar others: captures of other programs.
    :ivar other_says: how these are refused.
    :ivar cells: capture and pattern with two groups, around a number.
    :ivar faults: capture, pattern, replacement, and what the refusal says.
    """

    name: str
    good: list[str]
    failed: dict[str, str | None]
    closing: str | None
    others: list[str]
    other_says: str
    cells: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, str, str, str]] = field(default_factory=list)


def path_of(name: str) -> Path:
    """A capture's file: ``.out``, or ``.json`` where the program wrote its report to a file."""
    path = CAPTURES / f"{name}.out"
    return path if "json_file" not in name else path.with_suffix(".json")


@functools.cache
def text_of(name: str) -> str:
    return path_of(name).read_text(encoding="utf-8", errors="replace")


def read(name: str, text: str | None = None) -> Output:
    """What the parser of a capture's benchmark makes of it, or of another text."""
    return parse.parse(name.partition("/")[0], text_of(name) if text is None else text)


@functools.cache
def whole(name: str) -> dict[str, tuple[float, str]]:
    """The figures of a capture as it is."""
    return figures(read(name))


def figures(output: Output) -> dict[str, tuple[float, str]]:
    return {fom.variable: (fom.value, fom.unit) for fom in output.foms}


def names_of(benchmark: str) -> list[str]:
    """All captures of a benchmark."""
    paths = (CAPTURES / benchmark).glob("*.out")
    return sorted(f"{benchmark}/{path.stem}" for path in paths)


def good_of(benchmark: str, refused: dict[str, str]) -> list[str]:
    """All captures of a benchmark but those of failed runs.

    :arg refused: end of a capture's name, as a pattern -> what the refusal says.
    """
    return [name for name in names_of(benchmark) if says_of(name, refused) is None]


def says_of(name: str, refused: dict[str, str]) -> str | None:
    """What the refusal of a capture says, ``None`` if it is a good one."""
    found = [says for end, says in refused.items() if re.search(f"(?:/|_)(?:{end})$", name)]
    return found[0] if found else None


def assert_registered(name: str) -> None:
    """Every metric is registered, in a unit that the printed one can be converted to."""
    foms = FOMS[name.partition("/")[0]]
    for fom in read(name).foms:
        assert factor(fom.unit, foms[fom.metric].unit) > 0, fom


def changed(text: str, pattern: str, replacement: str) -> str:
    """The text with exactly one place changed."""
    new, count = re.subn(pattern, replacement, text, flags=re.M)
    assert count == 1, f"{pattern!r} is there {count} times"
    assert new != text, f"{pattern!r} -> {replacement!r} changes nothing"
    return new


def refused(name: str, text: str, what: str) -> bool:
    """Whether a text is refused; if not, all its figures must be the capture's own."""
    try:
        found = figures(read(name, text))
    except ParseError:
        return True
    assert found.items() <= whole(name).items(), what
    return False


def truncate(name: str, closing: str) -> None:
    """Without its closing line, from wherever it is cut, a text is refused.

    :arg closing: pattern of the closing line.
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


def truncate_open(name: str) -> None:
    """Of a report without a closing line, cut within a line, the text is refused; cut at a line's
    end, it has no other figures."""
    text, length, cuts = text_of(name), 0, 0
    for line in text.splitlines(keepends=True):
        cuts += refused(name, text[:length], f"cut after {length} characters")
        if line.strip():
            with pytest.raises(ParseError):
                read(name, text[: length + len(line.rstrip())])
        length += len(line)
    assert cuts > 1


def _lines(name: str) -> Iterator[tuple[int, list[str]]]:
    lines = text_of(name).splitlines(keepends=True)
    for at in range(len(lines)):
        yield at, lines


def behead(name: str) -> None:
    for at, lines in _lines(name):
        refused(name, "".join(lines[at:]), f"without its first {at} lines")


def double(name: str) -> None:
    """Each line twice."""
    count = 0
    for at, lines in _lines(name):
        count += refused(name, "".join([*lines[: at + 1], *lines[at:]]), f"line {at + 1} twice")
    assert count


def remove(name: str) -> None:
    """Each line missing."""
    count = 0
    for at, lines in _lines(name):
        count += refused(name, "".join([*lines[:at], *lines[at + 1 :]]), f"without line {at + 1}")
    assert count


def swap(name: str) -> None:
    """Neighbouring lines swapped."""
    for at, lines in _lines(name):
        swapped = [*lines[:at], *reversed(lines[at : at + 2]), *lines[at + 2 :]]
        refused(name, "".join(swapped), f"lines {at + 1} and {at + 2} swapped")


def two_runs(name: str, other: str) -> None:
    """Two runs in one file, and one beside a half."""
    text, second = text_of(name), text_of(other)
    half = text[: text.rindex("\n", 0, -1) * 2 // 3]
    for both in (text + text, text + second, second + text):
        with pytest.raises(ParseError):
            read(name, both)
    for both in (half + "\n" + text, text + half):
        refused(name, both, "a half beside a whole")


#: What is no finite number of zero or more.
NO_NUMBERS = [
    *("nan", "-nan", "NaN", "inf", "-inf", "Infinity", "1e999", "******", "--", "-", "1,5"),
    *("0x10", "1_0", "-3.14", "null", '"1.5"', "\N{ARABIC-INDIC DIGIT ONE}.5", "1.2.3", ""),
]


def no_number(name: str, pattern: str) -> None:
    """A cell that is no number: the text is refused.

    :arg pattern: with two groups, around the number.
    """
    for number in NO_NUMBERS:
        with pytest.raises(ParseError):
            read(name, changed(text_of(name), pattern, rf"\g<1>{number}\g<2>"))
