"""Reads CSV files of nights that others wrote, for ``trend --input`` and ``screen --input``.

Whatever is wrong is told with its line; nothing is guessed, and no cell is read as what it is not.
"""

from __future__ import annotations

import csv
import datetime
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from plumbline.core.errors import Fault

#: A line of the file and its cells by column, without blanks around them.
Line = tuple[int, dict[str, str]]

#: Faulty lines that are told one by one.
_TOLD = 10


def read(path: Path, missing: Callable[[list[str]], list[str]], needs: str) -> list[Line]:
    """The lines below the first, which names the columns.

    :arg missing: of the columns there are, which of those needed there are not.
    :arg needs: what the first line is to name.
    :raises Fault: if it cannot be read, lacks a column or has one twice, or if a line has other
        cells than the first.
    """
    lines: list[tuple[int, list[str]]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            lines += ((reader.line_num, cells) for cells in reader if cells)
    except OSError as err:
        raise Fault(
            f"{path}: {err.strerror}: name a CSV file", code="input.unreadable-file"
        ) from None
    except UnicodeDecodeError as err:
        raise Fault(
            f"{path}: byte {err.start} is no text: it is to be CSV in UTF-8",
            code="input.unreadable-file",
        ) from None
    except csv.Error as err:
        raise Fault(
            f"{path}:{reader.line_num}: {err}: it is to be CSV in UTF-8", code="input.wrong-file"
        ) from None
    first, head = lines[0] if lines else (1, [])
    columns = [name.strip() for name in head]
    if absent := missing(columns):
        apart = next((mark for mark in (";", "\t") if mark in "".join(head)), "")
        hint = f"; cells stand apart with a comma, not {apart!r}" if apart else ""
        raise Fault(f"{path}:{first}: no column {', '.join(absent)}: "
                    f"the first line names {needs}{hint}", code="input.wrong-file")  # fmt: skip
    if twice := [name for name in columns if name and columns.count(name) > 1]:
        raise Fault(
            f"{path}:{first}: column {twice[0]} stands twice: which one counts?",
            code="input.wrong-file",
        )
    found: list[Line] = []

    def take(line: int, cells: list[str]) -> None:
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells, not as many as the first line's {len(columns)}: "
                             f"write an empty value for a gap")  # fmt: skip
        found.append((line, dict(zip(columns, map(str.strip, cells), strict=True))))

    each(path, lines[1:], take)
    return found


def each(path: Path, lines: Iterable[tuple[int, object]], take: Callable[..., None]) -> None:
    """Gives each line to ``take``, with its number.

    :raises Fault: naming the lines (the first ten) of which it raises :class:`ValueError`.
    """
    faults = []
    for line, cells in lines:
        try:
            take(line, cells)
        except ValueError as err:
            faults.append(f"{path}:{line}: {err}")
    if faults:
        more = len(faults) - _TOLD
        raise Fault(
            "\n".join([*faults[:_TOLD], *[f"and {more} more faulty lines"] * (more > 0)]),
            code="input.wrong-file",
        )


def night(text: str) -> int | datetime.date:
    """A night: a number, or a date.

    :raises ValueError: if it is neither.
    """
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        try:
            return datetime.date.fromisoformat(text)
        except ValueError:
            pass
    raise ValueError(f"night {text!r}: write a whole number or a date as 2026-11-21")


def value(column: str, text: str) -> float:
    """A figure of merit; NaN where the cell is empty, or says ``nan``.

    :raises ValueError: if it is no finite number above zero.
    """
    if not text:
        return math.nan
    try:
        # Python reads 1_01 as 101.
        found = float(text) if "_" not in text else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"{column} {text!r} is no number: leave it empty for a gap")
    if math.isinf(found) or found <= 0:
        raise ValueError(f"{column} {text} is not finite and above zero: leave it empty for a gap")
    return found
