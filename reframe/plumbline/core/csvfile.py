"""Read CSV files of nights from elsewhere, for ``trend --input`` and ``screen --input``.

Each fault is reported with its line, and nothing is guessed.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from plumbline.core.errors import UnreadableFile, WrongFile

#: Number of a line, and its cells by column, without surrounding blanks.
Line = tuple[int, dict[str, str]]

#: Number of invalid lines that are reported.
_MOST = 10


def read(path: Path, missing: Callable[[list[str]], list[str]], needs: str) -> list[Line]:
    """Return the lines below the first, which has the names of the columns.

    :arg missing: returns the required columns that are not among the given ones.
    :arg needs: the required columns, as text.
    :raises Fault: if it cannot be read, lacks or repeats a column, or a line has too few or too
        many cells.
    """
    lines: list[tuple[int, list[str]]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            lines += ((reader.line_num, cells) for cells in reader if cells)
    except OSError as err:
        raise UnreadableFile(f"{path}: {err.strerror}: give a CSV file") from None
    except UnicodeDecodeError as err:
        raise UnreadableFile(
            f"{path}: byte {err.start} is not text: the file must be CSV in UTF-8"
        ) from None
    except csv.Error as err:
        raise WrongFile(f"{path}:{reader.line_num}: {err}: the file must be CSV in UTF-8") from None
    first, head = lines[0] if lines else (1, [])
    columns = [name.strip() for name in head]
    where = f"{path}:{first}"
    if absent := missing(columns):
        separator = next((mark for mark in (";", "\t") if mark in "".join(head)), "")
        hint = f"; separate cells with a comma, not {separator!r}" if separator else ""
        raise WrongFile(
            f"{where}: no column {', '.join(absent)}: the first line must have {needs}{hint}"
        )
    if repeated := [name for name in columns if name and columns.count(name) > 1]:
        raise WrongFile(f"{where}: column {repeated[0]} is repeated")
    found: list[Line] = []

    def add(line: int, cells: list[str]) -> None:
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells, but {len(columns)} columns in the first line: "
                             f"write an empty value for a gap")  # fmt: skip
        found.append((line, dict(zip(columns, map(str.strip, cells), strict=True))))

    for_each_line(path, lines[1:], add)
    return found


def for_each_line(
    path: Path, lines: Iterable[tuple[int, object]], function: Callable[..., None]
) -> None:
    """Call a function with the number and the content of each line.

    :raises Fault: with the (first ten) lines for which it raises :class:`ValueError`.
    """
    faults = []
    for line, content in lines:
        try:
            function(line, content)
        except ValueError as err:
            faults.append(f"{path}:{line}: {err}")
    if faults:
        more = len(faults) - _MOST
        listed = [*faults[:_MOST], *([f"and {more} more invalid lines"] if more > 0 else [])]
        raise WrongFile("\n".join(listed))


def parse_night(text: str) -> int | datetime.date:
    """Return a night: a whole number or a date.

    :raises ValueError: if it is neither.
    """
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        with contextlib.suppress(ValueError):
            return datetime.date.fromisoformat(text)
    raise ValueError(f"night {text!r}: write a whole number or a date such as 2026-11-21")


def parse_value(column: str, text: str) -> float:
    """Return a figure of merit, NaN if the cell is empty or ``nan``.

    :raises ValueError: if it is not a finite number above zero.
    """
    if not text:
        return math.nan
    try:
        # Python reads 1_01 as 101.
        value = float(text) if "_" not in text else None
    except ValueError:
        value = None
    if value is None:
        raise ValueError(f"{column} {text!r} is not a number: leave it empty for a gap")
    if math.isinf(value) or value <= 0:
        raise ValueError(f"{column} {text} is not finite and above zero: leave it empty for a gap")
    return value
