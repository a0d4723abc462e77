"""Figures of many nodes as one series: the median over the nodes of each session."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from plumbline.history.history import KEY, MEASUREMENTS, History
from plumbline.history.series import Key, Selection, Series

_OF_FLEET = ", ".join(name for name in KEY.split(", ") if name != "node")
_MEDIANS = f"""
WITH alone AS (SELECT * FROM flat WHERE {MEASUREMENTS} AND WANTED AND node != ''),
fleets AS (
    SELECT {_OF_FLEET}, arg_max(unit, start) AS unit, count(DISTINCT node) AS number
    FROM alone GROUP BY ALL HAVING count(DISTINCT node) >= $least)
SELECT {_OF_FLEET}, any_value(benchmark), unit, any_value(better), session,
    max(time), median(value), bool_or(verdict = 'above-ceiling'), any_value(number)
FROM alone JOIN fleets USING ({_OF_FLEET}, unit) GROUP BY {_OF_FLEET}, unit, session, start
HAVING 2 * count(DISTINCT node) >= any_value(number)
ORDER BY {_OF_FLEET}, start, session
"""
_OTHERWISE = f"SELECT DISTINCT {_OF_FLEET} FROM flat WHERE {MEASUREMENTS} AND WANTED AND node = ''"


def medians(history: History, select: Selection, least: int) -> list[tuple[Series, int]]:
    """Return a series for each figure that at least so many nodes measured, each by itself and none
    otherwise, without bounds, builds and nodes; and the number of nodes.

    Values in another unit than the newest are not used, nor sessions of fewer than half of the
    nodes, such as those that measure a suspect again.
    """
    rows = history.fetch(_MEDIANS, select, flat=True, of={"least": least})
    count = len(_OF_FLEET.split(", "))
    otherwise = {*history.fetch(_OTHERWISE, select, flat=True)} if rows else set()
    return [
        _series(Key(*key), [row[count:] for row in group])
        for key, group in itertools.groupby(rows, key=lambda row: row[:count])
        if key not in otherwise
    ]


def _series(key: Key, rows: list[tuple[Any, ...]]) -> tuple[Series, int]:
    benchmark, unit, better, *_, number = rows[-1]
    sessions, times, values, above = (
        np.array(column) for column in [*zip(*rows, strict=True)][3:7]
    )
    none = np.full(len(rows), np.nan)
    empty = np.full(len(rows), "", object)
    verdicts = np.where(above, "above-ceiling", "pass").astype(object)
    series = Series(
        key, benchmark, unit, better or "neither", sessions.astype(object),
        times.astype("datetime64[s]"), values.astype(float), none, none, none, verdicts, empty,
        empty, empty, [],
    )  # fmt: skip
    return series, number
