"""The changes of many series, from a file of nights or from the history, as rows of an output."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.analysis import trend
from plumbline.analysis.trend import episodes, nights_file
from plumbline.core import pool
from plumbline.core.text import pluralize
from plumbline.history.series import Series

#: Fewest series that are judged in several processes, so many in each at once.
MANY = 4 * episodes.TOGETHER

Night = int | str


@dataclass
class ChangeRow:
    """One change of a series, as ``plumbline trend`` prints it.

    :ivar night: of the first report. :ivar start: first changed night. :ivar until: last night of a
        transient or of a drift. :ivar first: the kind first reported, if night ``revised`` changed
        it.
    :ivar before: the session before the change. :ivar after: the first changed session, with its
        ``nodes``. :ivar build: old and new build, if it changed there.
    :ivar above_ceiling: the figure was above its ceiling when it was found: the measurement is
        wrong, the machine is not better.
    """

    series: str
    night: Night
    start: Night
    kind: str
    size: float
    low: float | None
    high: float | None
    confidence: float
    worse: bool
    active: bool
    confirmed: bool
    until: Night | None = None
    first: str = ""
    revised: Night | None = None
    before: str = ""
    after: str = ""
    build: str = ""
    nodes: str = ""
    above_ceiling: bool = False

    @property
    def word(self) -> str:
        """Its kind as it is printed: a value above the ceiling is not an improvement."""
        return "above-ceiling" if self.above_ceiling else self.kind


@dataclass
class Listing:
    """Changes of many series.

    :ivar failing: the changes that make the exit code 1.
    :ivar outliers: series, first and last night of what stood out and came back unconfirmed.
    :ivar judged: number of series with enough nights; ``too_short``: without.
    :ivar skipped: number of values that are not positive, of which no change has a relative size.
    """

    rows: list[ChangeRow] = field(default_factory=list)
    failing: list[ChangeRow] = field(default_factory=list)
    outliers: list[tuple[str, Night, Night]] = field(default_factory=list)
    judged: int = 0
    too_short: int = 0
    skipped: int = 0

    @property
    def unjudged(self) -> str:
        """A message about series with too few nights, and about values; empty if all is judged."""
        short = f"{self.too_short} series with fewer than {trend.NIGHTS} nights"
        skipped = f"{pluralize(self.skipped, 'value')} of 0 or less"
        listed = [short] * bool(self.too_short) + [skipped] * bool(self.skipped)
        return f"not judged: {'; '.join(listed)}" if listed else ""

    def add(
        self,
        name: str,
        nights: list[Night],
        judgement: trend.SeriesJudgement,
        context: Callable[[trend.Change], dict[str, Any]] = lambda change: {},
    ) -> None:
        """Add a series' judgement.

        :arg context: returns sessions, nodes and build of a change, and whether it is above the
            ceiling.
        """
        if not judgement.judged:
            self.too_short += 1
            return
        self.judged += 1
        self.outliers += [(name, nights[a], nights[b]) for a, b in judgement.outliers]
        for change in judgement.changes:
            row = _row(name, nights, change, context(change))
            self.rows.append(row)
            if change.failing:
                self.failing.append(row)


def of_file(path: Path, online: bool) -> Listing:
    """Return the changes of a file of nights.

    :raises Fault: if the file is faulty.
    """
    series = nights_file.read(path)
    work = [(item.values, item.better, item.second) for item in series]
    found = Listing()
    for item, judgement in zip(series, _judge_all(work, not online), strict=True):
        found.add(item.name, item.nights, judgement)
    return found


def of_history(every: list[Series], online: bool) -> Listing:
    """Return the changes of series of the history, one value a date."""
    dated = [trend.nightly(series) for series in every]
    work = [(night.values, series.better, None)
            for series, night in zip(every, dated, strict=True)]  # fmt: skip
    found = Listing(skipped=sum(int((series.values <= 0).sum()) for series in every))
    for series, night, judgement in zip(every, dated, _judge_all(work, not online), strict=True):
        context = functools.partial(_context, series, night)
        found.add(name_of(series), night.days, judgement, context)
    return found


def name_of(series: Series) -> str:
    """Return the series' key in one line."""
    key = series.key
    where = f"{key.system}:{key.partition}+{key.environment}"
    what = [key.check, key.metric, "" if key.size < 0 else f"{key.size} B", key.location,
            key.placement, key.conditions, key.node]  # fmt: skip
    return " ".join([where, *filter(None, what)])


def _judge_all(work: Sequence[trend.Work], hindsight: bool) -> list[trend.SeriesJudgement]:
    cores = len(os.sched_getaffinity(0))
    if len(work) < MANY or cores < 2:
        return trend.judge_all(work, hindsight)
    parts = [work[begin : begin + MANY] for begin in range(0, len(work), MANY)]
    judge = functools.partial(trend.judge_all, hindsight=hindsight)
    return [*itertools.chain.from_iterable(pool.mapped(judge, parts, min(cores, 8)))]


def _row(name: str, nights: list[Night], found: trend.Change, context: dict[str, Any]) -> ChangeRow:
    return ChangeRow(
        series=name,
        night=nights[found.detected],
        start=nights[found.start],
        kind=found.kind,
        size=round(found.size, 5),
        low=None if math.isnan(found.low) else round(found.low, 5),
        high=None if math.isnan(found.high) else round(found.high, 5),
        confidence=round(found.confidence, 5),
        worse=found.worse,
        active=found.active,
        confirmed=found.confirmed,
        until=None if found.end is None else nights[found.end],
        first=found.first,
        revised=None if found.revised is None else nights[found.revised],
        **context,
    )


def _context(series: Series, nights: trend.Nightly, found: trend.Change) -> dict[str, Any]:
    """Return the sessions on both sides of the change, the nodes, a change of the build, and
    whether the figure was above its ceiling when it was found."""
    after, detected = int(nights.first[found.start]), int(nights.last[found.detected])
    context = {
        "after": str(series.sessions[after]),
        "nodes": str(series.nodes[after]),
        "above_ceiling": str(series.verdicts[detected]) == "above-ceiling",
    }
    if found.start:
        before = int(nights.last[found.start - 1])
        old, new = str(series.builds[before]), str(series.builds[after])
        context["before"] = str(series.sessions[before])
        context["build"] = "" if old == new else f"{old} to {new}"
    return context
