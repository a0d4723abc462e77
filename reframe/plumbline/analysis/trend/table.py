"""Reads nightly series from a CSV file: series, night, value, better and, if there, retest."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plumbline.core import csvfile
from plumbline.core.errors import Fault

COLUMNS = ("series", "night", "value", "better")
BETTER = ("higher", "lower", "neither")


@dataclass
class NightlyTable:
    """One series, oldest night first.

    :ivar nights: as the file has them: numbers, or dates as text.
    :ivar values: NaN where the night is a gap. :ivar second: the retests, NaN where there is none.
    """

    name: str
    better: str
    nights: list[int | str]
    values: np.ndarray
    second: np.ndarray


def read(path: Path) -> list[NightlyTable]:
    """The file's series, in its order; nights are sorted.

    :raises Fault: naming each faulty line (the first ten), if there is any; if there is no row.
    """
    found: dict[str, dict] = {}
    lines = csvfile.read(path, lambda columns: [name for name in COLUMNS if name not in columns],
                         f"{', '.join(COLUMNS)} and, if there, retest")  # fmt: skip
    csvfile.each(path, lines, functools.partial(_add, found))
    if not found:
        raise Fault(
            f"{path}: no row: it needs a line for each night of each series",
            code="input.wrong-file",
        )
    return [_series(name, fields) for name, fields in found.items()]


def _add(found: dict, line: int, row: dict[str, str]) -> None:
    name, better = row["series"], row["better"]
    if not name:
        raise ValueError("no series: give it a name")
    if better not in BETTER:
        raise ValueError(f"better {better!r}: say {', '.join(BETTER)}")
    night = csvfile.night(row["night"])
    value = csvfile.value("value", row["value"])
    second = csvfile.value("retest", row.get("retest", ""))
    if math.isnan(value) and not math.isnan(second):
        raise ValueError("a retest without a value: put it into value")
    fields = found.setdefault(name, {"better": better, "line": line, "nights": {}})
    if fields["better"] != better:
        raise ValueError(f"better {better!r}, but line {fields['line']} says {fields['better']!r} "
                         f"of series {name!r}: say the same")  # fmt: skip
    known = fields["nights"]
    if night in known:
        raise ValueError(f"night {night} of series {name!r} again (line {known[night][2]}): "
                         f"one line a night, a second measurement in retest")  # fmt: skip
    if known and isinstance(next(iter(known)), int) != isinstance(night, int):
        raise ValueError(f"night {night}: series {name!r} mixes numbers and dates: use one of them")
    known[night] = value, second, line


def _series(name: str, fields: dict) -> NightlyTable:
    nights = sorted(fields["nights"])
    rows = [fields["nights"][night] for night in nights]
    return NightlyTable(
        name=name,
        better=fields["better"],
        nights=[night if isinstance(night, int) else night.isoformat() for night in nights],
        values=np.array([row[0] for row in rows]),
        second=np.array([row[1] for row in rows]),
    )
