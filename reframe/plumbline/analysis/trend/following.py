"""Findings of many series, from a file of nights or from the history, as rows to be printed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from plumbline.analysis import trend
from plumbline.analysis.trend import table, watch
from plumbline.history.series import Series

#: From so many series on, every core takes its share of them.
MANY = 40


@dataclass
class FoundRow:
    """One finding, as ``plumbline trend`` prints it.

    :ivar night: of the first report. :ivar start: first changed night. :ivar until: last night of a
        transient or of a drift. :ivar first: the kind first reported, where night `revised` made
        another of it. :ivar before: the session before the change, and :ivar after: the first
        changed one, with :ivar nodes: its nodes. :ivar build: what is known of the build there.
    """

    series: str
    night: int | str
    start: int | str
    kind: str
    size: float
    low: float | None
    high: float | None
    confidence: float
    worse: bool
    on: bool
    confirmed: bool
    until: int | str | None = None
    first: str = ""
    revised: int | str | None = None
    before: str = ""
    after: str = ""
    build: str = ""
    nodes: str = ""


@dataclass
class Found:
    """Findings of many series.

    :ivar bad: those of the findings that make the exit code 1.
    :ivar outliers: series, first and last night of what stood out and came back at once.
    :ivar judged: number of series with enough nights, ``too_short`` without.
    """

    rows: list[FoundRow] = field(default_factory=list)
    bad: list[FoundRow] = field(default_factory=list)
    outliers: list[tuple[str, int | str, int | str]] = field(default_factory=list)
    judged: int = 0
    too_short: int = 0
    least: int = watch.NIGHTS

    @property
    def unjudged(self) -> str:
        """What had too few nights, in words; empty if nothing had."""
        short = f"{self.too_short} series with fewer than {self.least} nights"
        return f"not judged: {short}" if self.too_short else ""

    def add(
        self, name: str, nights: list, judgement: trend.SeriesJudgement, about: Callable
    ) -> None:
        """Takes up a series' judgement; `about` tells sessions and build of a finding."""
        if not judgement.judged:
            self.too_short += 1
            return
        self.judged += 1
        self.outliers += [(name, nights[a], nights[b]) for a, b in judgement.outliers]
        for finding in judgement.findings:
            row = _row(name, nights, finding, about(finding))
            self.rows.append(row)
            if finding.bad:
                self.bad.append(row)


def of_file(path: Path, online: bool) -> Found:
    """Findings of a file of nights.

    :raises Fault: if the file is not as it should be.
    """
    series = table.read(path)
    work = [(one.values, one.better, one.second, not online) for one in series]
    found = Found()
    for one, judgement in zip(series, _judged(work), strict=True):
        found.add(one.name, one.nights, judgement, lambda finding: {})
    return found


def of_history(every: list[Series], online: bool) -> Found:
    """Findings of series of the history, one value a date."""
    dated = [trend.nightly(series) for series in every]
    work = [(one.values, series.better, None, not online)
            for series, one in zip(every, dated, strict=True)]  # fmt: skip
    found = Found()
    for series, one, judgement in zip(every, dated, _judged(work), strict=True):
        nights = [str(date) for date in one.dates]
        found.add(name_of(series), nights, judgement,
                  lambda finding, s=series, n=one: _about(s, n, finding))  # fmt: skip
    return found


def name_of(series: Series) -> str:
    """The series' key in one line."""
    key = series.key
    where = f"{key.system}:{key.partition}+{key.environment}"
    what = [key.check, key.metric, "" if key.size < 0 else f"{key.size} B", key.at, key.placement,
            key.conditions, key.node]  # fmt: skip
    return " ".join([where, *(part for part in what if part)])


def _judged(work: list[tuple]) -> Iterable[trend.SeriesJudgement]:
    cores = len(os.sched_getaffinity(0))
    if len(work) < MANY or cores < 2:
        return [_judge(item) for item in work]
    with ProcessPoolExecutor(min(cores, 8)) as pool:
        return list(pool.map(_judge, work, chunksize=max(1, min(50, len(work) // cores // 4))))


def _judge(item: tuple) -> trend.SeriesJudgement:
    values, better, second, hindsight = item
    if second is not None and np.isnan(second).all():
        second = None
    return trend.judge(values, better, second, hindsight)


def _row(name: str, nights: list, found: trend.Finding, about: dict) -> FoundRow:
    def at(index: int | None):
        return None if index is None else nights[index]

    def rounded(value: float) -> float | None:
        return None if math.isnan(value) else round(value, 5)

    return FoundRow(
        series=name,
        night=nights[found.detected],
        start=nights[found.start],
        kind=found.kind,
        size=round(found.size, 5),
        low=rounded(found.low),
        high=rounded(found.high),
        confidence=round(found.confidence, 5),
        worse=found.worse,
        on=found.on,
        confirmed=found.confirmed,
        until=at(found.end),
        first=found.first,
        revised=at(found.revised),
        **about,
    )


def _about(series: Series, nights: trend.Nightly, found: trend.Finding) -> dict:
    """Sessions on both sides of the change, nodes, and whether the build changed there."""
    after = int(nights.first[found.start])
    if not found.start:
        return {"after": str(series.sessions[after]), "nodes": str(series.nodes[after])}
    before = int(nights.last[found.start - 1])
    old, new = str(series.builds[before]), str(series.builds[after])
    return {
        "before": str(series.sessions[before]),
        "after": str(series.sessions[after]),
        "build": "" if old == new else f"{old} to {new}",
        "nodes": str(series.nodes[after]),
    }
