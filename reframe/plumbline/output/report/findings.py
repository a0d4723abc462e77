"""What changed: the findings of every series, in several processes where there are many."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from plumbline.analysis import trend
from plumbline.analysis.trend.watch import NIGHTS
from plumbline.history.series import Key, Series

#: Series from which on further processes pay for their start.
MANY = 200
#: Processes at most: a report is no reason to fill a login node.
PROCESSES = 2
_CHUNK = 50


@dataclass(frozen=True)
class SeriesChange:
    """A finding of one series, with what the pages say of it.

    :ivar kind: as :class:`plumbline.analysis.trend.Finding` has it.
    :ivar size: relative change of the value.
    :ivar before: the last session before it; empty where there is none.
    :ivar after: the first session that it shows in.
    :ivar until: when a transient was last seen.
    :ivar on: it lasts, and nothing since took it back.
    :ivar confirmed: more than the newest session alone bears it out.
    :ivar doubtful: the figure was above its ceiling when it was found, which no machine can be.
    :ivar held: sessions since it began.
    """

    key: Key
    kind: str
    size: float
    confidence: float
    worse: bool
    start: int
    began: np.datetime64
    detected: np.datetime64
    before: str
    after: str
    until: np.datetime64 | None
    on: bool
    confirmed: bool
    doubtful: bool = False
    held: int = 0

    @property
    def word(self) -> str:
        """What pages call it: one that no machine can make is no improvement."""
        return "above-ceiling" if self.doubtful else self.kind

    @property
    def doubt(self) -> str:
        """Why it is not sure, and what would make it so; empty where it is."""
        if self.doubtful:
            return "Above its ceiling: the measurement is at fault, not the machine better."
        if self.confirmed:
            return ""
        if self.held > 1:
            return (
                f"It has held for {self.held} sessions, but this figure has outliers or goes up "
                f"and down by itself, and the change does not stand out from that yet: measure it "
                f"again."
            )
        if self.kind == "suspect":
            return (
                "Only the newest session shows it, and this figure has had outliers before: "
                "measure it again."
            )
        return (
            "Only the newest session shows it, and one session alone may be an outlier: measure "
            "it again, or wait for the next."
        )


@dataclass
class Event:
    """Changes of one check that began together: one line of a page."""

    changes: list[SeriesChange] = field(default_factory=list)

    @property
    def first(self) -> SeriesChange:
        return self.changes[0]

    @property
    def figures(self) -> int:
        """How many figures of merit it is about, at whatever nodes."""
        keys = (change.key for change in self.changes)
        return len({(key.metric, key.size, key.at, key.placement, key.conditions) for key in keys})

    @property
    def nodes(self) -> int:
        """How many nodes it is about, where the figures are of single nodes."""
        return len({change.key.node for change in self.changes})

    @property
    def sizes(self) -> tuple[float, float]:
        """The least and the largest change, by magnitude."""
        sizes = sorted((change.size for change in self.changes), key=abs)
        return sizes[0], sizes[-1]

    @property
    def on(self) -> bool:
        """Whether a change of it still holds."""
        return any(change.on for change in self.changes)

    @property
    def weight(self) -> tuple:
        """What comes first: what is worse and still holds, then what is worse."""
        return self.first.worse and self.on, self.first.worse

    @property
    def detected(self) -> np.datetime64:
        return max(change.detected for change in self.changes)

    @property
    def confidence(self) -> float:
        return max(change.confidence for change in self.changes)


def judged(series: Series) -> bool:
    """Whether a series has nights enough for its changes to be looked for."""
    return len(np.unique(series.times.astype("datetime64[D]"))) >= NIGHTS


def of_all(series: Iterable[Series], count: int) -> dict[Key, list[SeriesChange]]:
    """The changes of each series that has some, oldest first.

    :arg count: how many series there are.
    """
    chunks = _chunks(series)
    found = map(_of_chunk, chunks) if count < MANY else _in_processes(chunks)
    return {key: changes for chunk in found for key, changes in chunk.items()}


def _chunks(series: Iterable[Series]) -> Iterator[list[Series]]:
    left = iter(series)
    while chunk := list(itertools.islice(left, _CHUNK)):
        yield chunk


def _in_processes(chunks: Iterable[list[Series]]) -> Iterator[dict[Key, list[SeriesChange]]]:
    """The changes of each chunk, in their order; a few chunks are there at a time."""
    # Not forked: the history's index has threads, which a fork would leave behind.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        given = collections.deque()
        for chunk in chunks:
            given.append(pool.submit(_of_chunk, chunk))
            if len(given) > 2 * PROCESSES:
                yield given.popleft().result()
        for done in given:
            yield done.result()


def _of_chunk(series: list[Series]) -> dict[Key, list[SeriesChange]]:
    found = {}
    for one in series:
        changes = [_change(one, finding) for finding in trend.findings(one)]
        if changes:
            found[one.key] = sorted(changes, key=lambda change: change.start)
    return found


def _change(series: Series, finding) -> SeriesChange:
    start, detected = int(finding.start), int(finding.detected)
    return SeriesChange(
        series.key,
        finding.kind,
        float(finding.size),
        float(finding.confidence),
        bool(finding.worse),
        start,
        series.times[start],
        series.times[detected],
        str(series.sessions[start - 1]) if start else "",
        str(series.sessions[start]),
        None if finding.end is None else series.times[int(finding.end)],
        bool(finding.on),
        bool(finding.confirmed),
        str(series.verdicts[detected]) == "above-ceiling",
        len(series.values) - start,
    )


def events(changes: list[SeriesChange]) -> list[Event]:
    """Changes of one kind, of one check, that began within three days, as one; newest first."""
    found: dict[tuple, list[Event]] = {}
    for change in sorted(changes, key=lambda change: change.began):
        key = change.key
        about = (key.system, key.partition, key.environment, key.check, change.kind, change.worse)
        listed = found.setdefault(about, [Event()])
        last = listed[-1]
        if last.changes and change.began - last.first.began > np.timedelta64(3, "D"):
            last = Event()
            listed.append(last)
        last.changes.append(change)
    made = [event for listed in found.values() for event in listed]
    return sorted(made, key=lambda event: (event.first.began, event.detected), reverse=True)
