"""Why something in a series was reported, or was not: its levels, the noise, and the evidence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.analysis import trend
from plumbline.analysis.trend import episodes, nights_file
from plumbline.analysis.trend.partition import NOISES, Partitions
from plumbline.analysis.trend.series_changes import Night, name_of
from plumbline.core.errors import WrongOption
from plumbline.core.text import pluralize
from plumbline.history.series import Series

#: Most series that are explained at once.
MANY = 20


@dataclass(frozen=True)
class Level:
    """One level of a series, as all nights together show it.

    :ivar start: first night; ``end``: last night. :ivar values: number of measured values.
    :ivar level: median, in the series' unit. :ivar change: from the level before, relative.
    :ivar evidence: nats for that change beyond what it costs, on the first night that had as many
        as ``needed``, or else on the best one.
    :ivar sigma: relative standard deviation of a night about its prediction. :ivar slow: that of
        the autocorrelated noise that explains the series best, with ``memory``, its correlation
        from one night to the next; 0 without.
    """

    series: str
    start: Night
    end: Night
    values: int
    level: float
    change: float | None
    evidence: float | None
    needed: float | None
    sigma: float
    slow: float
    memory: float


def of_file(path: Path, wanted: str) -> list[Level]:
    """Return the levels of the series of a file of nights whose names have that text.

    :raises Fault: if the file is faulty, or the text is in no name or in too many.
    """
    series = nights_file.read(path)
    return _of((item.name, item.nights, item.values, item.second)
               for item in _chosen(series, [item.name for item in series], wanted))  # fmt: skip


def of_history(every: list[Series], wanted: str) -> list[Level]:
    """Return the levels of the series of the history whose names have that text.

    :raises Fault: if it is in no name or in too many.
    """
    chosen = _chosen(every, [name_of(series) for series in every], wanted)
    dated = [(name_of(series), trend.nightly(series)) for series in chosen]
    return _of((name, nights.days, nights.values, None) for name, nights in dated)


def _chosen(series: list[Any], names: list[str], wanted: str) -> list[Any]:
    found = [item for item, name in zip(series, names, strict=True) if wanted in name]
    if not found:
        raise WrongOption(
            f"--why: no series has {wanted!r} in its name; plumbline trend --format json "
            "prints the names of those with a change"
        )
    if len(found) > MANY:
        raise WrongOption(
            f"--why: {len(found)} series have {wanted!r} in their names, {MANY} at most: "
            "give more of the name, or select with --check, --metric ..."
        )
    return found


def _of(series: Iterable[tuple[str, list[Night], np.ndarray, np.ndarray | None]]) -> list[Level]:
    every = list(series)
    read = episodes.read([(values, second) for _, _, values, second in every])
    levels = []
    for (name, nights, values, _), one in zip(every, read, strict=True):
        if one is None:
            count = int(np.isfinite(values).sum())
            raise WrongOption(
                f"--why: {name}: {pluralize(count, 'measured night')}; a series needs "
                f"{trend.NIGHTS} to be judged"
            )
        levels += _levels(name, nights, one)
    return levels


def _levels(name: str, nights: list[Night], read: episodes.Reader) -> list[Level]:
    found, last = read.found, len(read.x) - 1
    memory, share = NOISES[found.noise[last]]
    sigma = float(found.sigma[last])
    # Of the prediction's variance, the white noise is about one part, the fresh noise the rest.
    slow = sigma * math.sqrt(share / (1 + share * (1 - memory**2)))
    bounds = [0, *found.changes(last), last + 1]
    levels: list[Level] = []
    for start, end in itertools.pairwise(bounds):
        level = float(np.exp(np.median(read.x[start:end])))
        evidence, needed = _evidence(found, start, last) if start else (None, None)
        levels.append(Level(
            series=name, start=nights[read.nights[start]], end=nights[read.nights[end - 1]],
            values=end - start, level=level,
            change=round(level / levels[-1].level - 1, 5) if levels else None,
            evidence=evidence, needed=needed,
            sigma=round(sigma, 5), slow=round(slow, 5), memory=memory,
        ))  # fmt: skip
    return levels


def _evidence(found: Partitions, start: int, last: int) -> tuple[float, float] | tuple[None, None]:
    """Return the evidence for a change, and what it needed: of the first night that had enough, or
    of the best one."""
    nights = np.flatnonzero(found.start[: last + 1] == start)
    # Infinite where no other partition is kept, which JSON has no number for: as much as 20 sigma.
    every = [(round(float(min(found.evidence[night], 20**2 / 2)), 2),
              episodes.needed(found, start, int(night))) for night in nights]  # fmt: skip
    enough = [pair for pair in every if pair[0] >= pair[1]]
    return enough[0] if enough else max(every, default=(None, None))
