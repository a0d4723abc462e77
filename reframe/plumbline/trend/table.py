"""Reads nightly series from a CSV file: series, night, value, better and, if there, retest."""

from __future__ import annotations

import csv
import datetime
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plumbline.errors import Fault

COLUMNS = ("series", "night", "value", "better")
BETTER = ("higher", "lower", "neither")


@dataclass
class Nightly:
    """One series, oldest night first.

    :ivar nights: as the file has them: numbers, or dates as text.
    :ivar values: NaN where the night is a gap. :ivar second: the retests, NaN where there is none.
    """

    name: str
    better: str
    nights: list[int | str]
    values: np.ndarray
    second: np.ndarray


def read(path: Path) -> list[Nightly]:
    """The file's series, in its order; nights are sorted.

    :raises Fault: naming each faulty line (the first ten), if there is any; if there is no row.
    """
    faults: list[str] = []
    found: dict[str, dict] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="more", strict=True)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
            if missing:
                raise Fault(f"{path}:1: no column {', '.join(missing)}: the first line names "
                            f"{', '.join(COLUMNS)} and, if there, retest")  # fmt: skip
            for row in reader:
                try:
                    _add(found, row, reader.line_num)
                except ValueError as err:
                    faults.append(f"{path}:{reader.line_num}: {err}")
    except OSError as err:
        raise Fault(f"{path}: {err.strerror}: name a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as err:
        raise Fault(f"{path}: {err}: it is to be CSV in UTF-8") from None
    if faults:
        more = [f"and {len(faults) - 10} more faulty lines"] if len(faults) > 10 else []
        raise Fault("\n".join([*faults[:10], *more]))
    if not found:
        raise Fault(f"{path}: no row: it needs a line for each night of each series")
    return [_series(name, fields) for name, fields in found.items()]


def _add(found: dict, row: dict, line: int) -> None:
    if "more" in row or None in row.values():
        raise ValueError("not as many cells as the first line has: write an empty value for a gap")
    name, better = row["series"].strip(), row["better"].strip()
    if not name:
        raise ValueError("no series: give it a name")
    if better not in BETTER:
        raise ValueError(f"better {better!r}: say {', '.join(BETTER)}")
    night = _night(row["night"].strip())
    value = _number("value", row["value"])
    second = _number("retest", row.get("retest") or "")
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


def _night(text: str) -> int | datetime.date:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"night {text!r}: write a whole number or a date as 2026-11-21") from None


def _number(column: str, text: str) -> float:
    text = text.strip()
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} {text!r} is no number: leave it empty for a gap") from None
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{column} {text} is not above zero: leave it empty for a gap")
    return value


def _series(name: str, fields: dict) -> Nightly:
    nights = sorted(fields["nights"])
    rows = [fields["nights"][night] for night in nights]
    return Nightly(
        name=name,
        better=fields["better"],
        nights=[night if isinstance(night, int) else night.isoformat() for night in nights],
        values=np.array([row[0] for row in rows]),
        second=np.array([row[1] for row in rows]),
    )
