"""The changes of many series, of a file of nights or of the history."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.analysis import trend
from plumbline.analysis.trend import episodes, nights_file
from plumbline.analysis.trend.nights_file import NightlyTable
from plumbline.core import pool
from plumbline.core.text import pluralize
from plumbline.history.series import Key, Series
from plumbline.reference.waivers import Waiver

#: Fewest series that are judged in several processes.
MANY = 200
#: So many series are judged in each at once.
_PART = 2 * episodes.TOGETHER
#: From so many nodes on, a report searches for changes in the median over the nodes of a figure,
#: and in those that are slow now: with 0.1 false alarms in 1,000 nights of a series
#: (docs/detection.md), 50 nodes with 60 figures each would have a hundred a year.
FLEET = 50
#: Of the series of a file of nights.
NO_KEY = Key("", "", "", "", "", -1, "", "", "")

Night = int | str

#: Fields of a change, as ``plumbline trend`` prints it: nights instead of times.
COLUMNS = ("series", "night", "start", "kind", "size", "low", "high", "confidence", "worse",
           "active", "confirmed", "until", "first", "revised", "before", "after", "build", "nodes",
           "above_ceiling")  # fmt: skip

#: Why a change is not confirmed, and what to do.
DOUBTS = {
    "above-ceiling": "Above its ceiling: the measurement is wrong, the machine is not better.",
    "within-noise": "It has lasted for {sessions} sessions, but is within the outliers or the "
    "autocorrelated noise of this figure: measure it again.",
    "outliers-before": "Only the newest session has it, and this figure has had outliers before: "
    "measure it again.",
    "single-session": "Only the newest session has it, and a single session may be an outlier: "
    "measure it again, or wait for the next one.",
}


@dataclass(eq=False, kw_only=True)
class SeriesChange(trend.Change):
    """A change of one series. Its times are nights, if the series is of a file of nights.

    :ivar key: of its series in the history.
    :ivar began: time of ``start``. :ivar found: of ``detected``. :ivar until: of ``end``.
    :ivar revised_on: of ``revised``.
    :ivar before: the last session before it, if any. :ivar after: the first with it.
    :ivar build: old and new build, if it changed there.
    :ivar nodes: of the first session with it, or those that explain it.
    :ivar above_ceiling: the figure was above its ceiling when it was found: the measurement is
        wrong, the machine is not better.
    :ivar sessions: number of sessions since it began; of a transient, until it ended.
    :ivar waiver: that covers it.
    """

    series: str
    key: Key
    began: Any
    found: Any
    until: Any = None
    revised_on: Any = None
    before: str = ""
    after: str = ""
    build: str = ""
    nodes: str = ""
    above_ceiling: bool = False
    sessions: int = 0
    waiver: Waiver | None = None

    @property
    def word(self) -> str:
        """Its kind as it is printed: a value above the ceiling is not an improvement."""
        return "above-ceiling" if self.above_ceiling else self.kind

    @property
    def badge(self) -> str:
        """Its state on pages."""
        return "waived" if self.waiver and not self.above_ceiling else self.word

    @property
    def doubt_code(self) -> str:
        """Why it is not confirmed, a key of :data:`DOUBTS`; empty if it is."""
        if self.above_ceiling:
            return "above-ceiling"
        if self.confirmed:
            return ""
        if self.sessions > 1:
            return "within-noise"
        return "outliers-before" if self.kind == "suspect" else "single-session"

    @property
    def doubt(self) -> str:
        """Why it is not confirmed, and what to do; empty if it is."""
        return DOUBTS[self.doubt_code].format(sessions=self.sessions) if self.doubt_code else ""

    def fields(self) -> dict[str, Any]:
        """Return it as an object of JSON, see :data:`COLUMNS`."""
        times = {"night": self.found, "start": self.began, "until": self.until,
                 "revised": self.revised_on}  # fmt: skip
        numbers = {name: getattr(self, name) for name in ("size", "low", "high", "confidence")}
        found = vars(self) | {name: night_of(time) for name, time in times.items()}
        found |= {name: None if math.isnan(n) else round(n, 5) for name, n in numbers.items()}
        return {name: found[name] for name in COLUMNS}


def night_of(time: Any) -> Any:
    """Return the date of a time as text; a night of a file as it is."""
    return str(time.astype("datetime64[D]")) if isinstance(time, np.datetime64) else time


@dataclass
class Listing:
    """Changes of many series.

    :ivar outliers: series, first and last night of what stood out and came back unconfirmed.
    :ivar judged: number of series with enough nights; ``too_short``: without.
    :ivar skipped: number of values that are not positive, of which no change has a relative size.
    :ivar ahead: number of values in the future.
    """

    changes: list[SeriesChange] = field(default_factory=list)
    outliers: list[tuple[str, Night, Night]] = field(default_factory=list)
    judged: int = 0
    too_short: int = 0
    skipped: int = 0
    ahead: int = 0

    @property
    def unjudged(self) -> str:
        """A message about series with too few nights, and about values; empty if all is judged."""
        short = f"{self.too_short} series with fewer than {trend.NIGHTS} nights"
        skipped = f"{pluralize(self.skipped, 'value')} of 0 or less"
        ahead = f"{pluralize(self.ahead, 'value')} in the future, a clock was wrong"
        listed = [short] * bool(self.too_short) + [skipped] * bool(self.skipped)
        listed += [ahead] * bool(self.ahead)
        return f"not judged: {'; '.join(listed)}" if listed else ""

    def by_key(self) -> dict[Key, list[SeriesChange]]:
        """Return the changes of each series of the history that has any, oldest first."""
        found: dict[Key, list[SeriesChange]] = {}
        for change in self.changes:
            found.setdefault(change.key, []).append(change)
        return {key: sorted(own, key=lambda change: change.start) for key, own in found.items()}

    def add(
        self,
        name: str,
        times: Any,
        judgement: trend.SeriesJudgement,
        about: Callable[[trend.Change], dict[str, Any]] = lambda change: {"key": NO_KEY},
    ) -> None:
        """Add a series' judgement.

        :arg times: of its values. :arg about: returns the other fields of a change.
        """
        self.too_short += not judgement.judged
        self.judged += judgement.judged
        self.outliers += [
            (name, night_of(times[first]), night_of(times[last]))
            for first, last in judgement.outliers
        ]
        for change in judgement.changes:
            places = {"began": change.start, "found": change.detected, "until": change.end,
                      "revised_on": change.revised}  # fmt: skip
            at = {field: times[place] for field, place in places.items() if place is not None}
            self.changes.append(SeriesChange(**vars(change), series=name, **at, **about(change)))


def of_file(path: Path, online: bool) -> Listing:
    """Return the changes of a file of nights.

    :raises Fault: if the file is faulty.
    """
    tables = nights_file.read(path)
    return _in_parts(functools.partial(_of_tables, not online), tables, len(tables))


def of_history(
    every: Iterable[Series], online: bool = False, count: int | None = None, processes: int = 0
) -> Listing:
    """Return the changes of series of the history, one value a date.

    :arg count: number of series, if they are no list.
    :arg processes: at most so many; by default one for each core, up to eight.
    """
    if count is None:
        every = [*every]
        count = len(every)
    return _in_parts(functools.partial(_of_series, not online), every, count, processes)


def name_of(series: Series) -> str:
    """Return the series' key in one line."""
    key = series.key
    where = f"{key.system}:{key.partition}+{key.environment}"
    what = [key.check, key.metric, "" if key.size < 0 else f"{key.size} B", key.location,
            key.placement, key.conditions, key.node]  # fmt: skip
    return " ".join([where, *filter(None, what)])


def _in_parts(
    judge: Callable[[list[Any]], Listing], every: Iterable[Any], count: int, processes: int = 0
) -> Listing:
    """Return the changes of many series; only some parts of them are in memory at a time."""
    remaining = iter(every)
    parts = iter(lambda: [*itertools.islice(remaining, _PART)], [])
    processes = processes or min(len(os.sched_getaffinity(0)), 8)
    several = count >= MANY and processes > 1
    found = Listing()
    for part in pool.mapped(judge, parts, processes) if several else map(judge, parts):
        found.changes += part.changes
        found.outliers += part.outliers
        found.judged += part.judged
        found.too_short += part.too_short
        found.skipped += part.skipped
        found.ahead += part.ahead
    return found


def _of_tables(hindsight: bool, tables: list[NightlyTable]) -> Listing:
    found = Listing()
    judged = trend.judge_all([(one.values, one.better, one.second) for one in tables], hindsight)
    for table, judgement in zip(tables, judged, strict=True):
        found.add(table.name, table.nights, judgement)
    return found


def _of_series(hindsight: bool, every: list[Series]) -> Listing:
    found = Listing(
        skipped=sum(int((series.values <= 0).sum()) for series in every),
        ahead=sum(int(series.ahead.sum()) for series in every),
    )
    for series, judgement in zip(every, trend.judge_history(every, hindsight), strict=True):
        about = functools.partial(_about, series)
        found.add(name_of(series), series.times, judgement, about)
    return found


def _about(series: Series, change: trend.Change) -> dict[str, Any]:
    """Return what the history has about a change of a series."""
    start, end, sessions = change.start, change.end, series.sessions
    old, new = (str(series.builds[place]) for place in (max(start - 1, 0), start))
    until = end + 1 if end is not None and change.kind == "transient" else len(sessions)
    return {
        "key": series.key,
        "before": str(sessions[start - 1]) if start else "",
        "after": str(sessions[start]),
        "build": "" if old == new else f"{old} to {new}",
        "nodes": str(series.nodes[start]),
        "above_ceiling": str(series.verdicts[change.detected]) == "above-ceiling",
        "sessions": until - start,
    }
