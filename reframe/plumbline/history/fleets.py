"""Figures of many nodes as one series: the median over the nodes of each session."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from plumbline.core import units
from plumbline.history.history import History
from plumbline.history.series import Key, Selection, Series
from plumbline.history.statements import KEY, MEASUREMENTS

_OF_FLEET = ", ".join(name for name in KEY.split(", ") if name != "node")
#: Seconds of a block of days: the nodes of a time are those measured in it or the one before.
_BLOCK = 15 * 24 * 60 * 60
#: A figure has a number, and so has a node: grouping by texts takes four times as long.
_MEDIANS = f"""
WITH alone AS (
    SELECT *, hash({_OF_FLEET}) AS fleet, hash(node) AS number,
        epoch(start)::BIGINT // {_BLOCK} AS block FROM flat
    WHERE {MEASUREMENTS} AND WANTED AND node != ''),
latest AS (
    SELECT fleet, number, arg_max(unit, start) AS unit, max(start) AS start,
        any_value(struct_pack({_OF_FLEET})) AS key, any_value(benchmark) AS benchmark,
        any_value(better) AS better
    FROM alone GROUP BY fleet, number),
fleets AS (
    SELECT fleet, any_value(key) AS key, any_value(benchmark) AS benchmark,
        any_value(better) AS better, arg_max(unit, start) AS unit, count(*) AS nodes
    FROM latest GROUP BY fleet HAVING count(*) >= $least),
around AS (
    SELECT fleet, near AS block, count(DISTINCT number) AS around FROM (
        SELECT fleet, number, block + unnest([0, 1]) AS near
        FROM (SELECT DISTINCT fleet, number, block FROM alone))
    GROUP BY fleet, near),
nights AS (
    SELECT fleet, unit, block, session, start, max(time) AS time, median(value) AS value,
        bool_or(verdict = 'above-ceiling') AS above, count(DISTINCT number) AS measured
    FROM alone GROUP BY fleet, unit, block, session, start)
SELECT key, benchmark, fleets.unit, better, nodes, session, time, nights.unit, value, above
FROM nights JOIN fleets USING (fleet) JOIN around USING (fleet, block)
WHERE 2 * measured >= around
ORDER BY key, start, session
"""
_OTHERWISE = f"SELECT DISTINCT {_OF_FLEET} FROM flat WHERE {MEASUREMENTS} AND WANTED AND node = ''"


def medians(history: History, select: Selection, least: int) -> list[tuple[Series, int]]:
    """Return a series for each figure that at least so many nodes measured, each by itself and none
    otherwise, without bounds, builds and nodes; and the number of nodes.

    Values are converted to the newest unit; those that cannot be are not used, nor sessions of
    fewer than half of the nodes of their time, such as those that measure a suspect again.
    """
    found = history.fetch(_MEDIANS, select, flat=True, of={"least": least})
    # From the unit of the night to the newest one.
    rows = [row for row in found if units.convertible(row[7], row[2])]
    otherwise = {*history.fetch(_OTHERWISE, select, flat=True)} if rows else set()
    return [
        _series([*group])
        for key, group in itertools.groupby(rows, key=lambda row: row[0])
        if (*key.values(),) not in otherwise
    ]


def _series(rows: list[tuple[Any, ...]]) -> tuple[Series, int]:
    """Return the series of one figure."""
    key, benchmark, unit, better, nodes, *_ = rows[-1]
    sessions, times, printed, values, above = (
        np.array(column) for column in [*zip(*rows, strict=True)][5:]
    )
    values = values * np.array([units.conversion(one, unit) for one in printed.tolist()])
    none = np.full(len(rows), np.nan)
    empty = np.full(len(rows), "", object)
    verdicts = np.where(above, "above-ceiling", "pass").astype(object)
    series = Series(
        Key(**key), benchmark, unit, better or "neither", sessions.astype(object),
        times.astype("datetime64[s]"), values.astype(float), none, none, none, verdicts, empty,
        empty, empty, [],
    )  # fmt: skip
    return series, nodes
