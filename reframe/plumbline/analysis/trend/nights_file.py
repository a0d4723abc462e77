"""Reads nightly series from a CSV file: series, night, value, better and optionally retest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.core import csvfile
from plumbline.core.errors import WrongFile

COLUMNS = ("series", "night", "value", "better")
BETTER = ("higher", "lower", "neither")


@dataclass
class NightlyTable:
    """One series, oldest night first.

    :ivar line: its first line in the file.
    :ivar rows: night -> value, retest and line. NaN where the night is a gap, or has no retest.
    """

    name: str
    better: str
    line: int
    rows: dict[Any, tuple[float, float, int]] = field(default_factory=dict)

    @property
    def nights(self) -> list[int | str]:
        """The nights as the file has them: numbers, or dates as text."""
        return [night if isinstance(night, int) else night.isoformat() for night in self.rows]

    @property
    def values(self) -> np.ndarray:
        return np.array([row[0] for row in self.rows.values()])

    @property
    def second(self) -> np.ndarray:
        return np.array([row[1] for row in self.rows.values()])


def read(path: Path) -> list[NightlyTable]:
    """Return the file's series, in its order; nights are sorted.

    :raises Fault: if the file has no row, or with the first ten faulty lines.
    """
    found: dict[str, NightlyTable] = {}
    lines = csvfile.read(path, lambda columns: [name for name in COLUMNS if name not in columns],
                         f"{', '.join(COLUMNS)} and optionally retest")  # fmt: skip
    csvfile.for_each_line(path, lines, lambda line, row: _add(found, line, row))
    if not found:
        raise WrongFile(f"{path}: no row: write a line for each night of each series")
    for series in found.values():
        series.rows = dict(sorted(series.rows.items()))
    return list(found.values())


def _add(found: dict[str, NightlyTable], line: int, row: dict[str, str]) -> None:
    name, better = row["series"], row["better"]
    if not name:
        raise ValueError("no series: give it a name")
    if better not in BETTER:
        raise ValueError(f"better {better!r}: write {', '.join(BETTER[:-1])} or {BETTER[-1]}")
    night = csvfile.parse_night(row["night"])
    value = csvfile.parse_value("value", row["value"])
    second = csvfile.parse_value("retest", row.get("retest", ""))
    if math.isnan(value) and not math.isnan(second):
        raise ValueError("a retest without a value: write it as the value")
    series = found.setdefault(name, NightlyTable(name, better, line))
    if series.better != better:
        raise ValueError(f"better {better!r} of series {name!r}, but line {series.line} has "
                         f"{series.better!r}: write the same on all lines")  # fmt: skip
    if night in series.rows:
        raise ValueError(f"night {night} of series {name!r} is on line {series.rows[night][2]} "
                         f"too: write a second measurement as retest")  # fmt: skip
    if series.rows and isinstance(next(iter(series.rows)), int) != isinstance(night, int):
        raise ValueError(f"night {night}: series {name!r} mixes numbers and dates: use one of them")
    series.rows[night] = value, second, line
