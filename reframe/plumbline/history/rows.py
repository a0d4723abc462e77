"""What queries of the history return: sessions, test cases, nodes, and how much was measured."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plumbline.check.record import DUET

#: All results, the worst first.
WORST_FIRST = (
    "invalid", "error", "fail", "aborted", "unfinished", "waived", "skip", "pass",
)  # fmt: skip

#: If the last result of a session is further ahead, a clock is wrong.
AHEAD = datetime.timedelta(hours=1)


class CaseId(NamedTuple):
    """What a test case has in common in all sessions."""

    system: str
    partition: str
    environment: str
    check: str
    node: str


@dataclass
class SessionRow:
    """One session.

    :ivar start: when its first case ended, UTC.
    :ivar end: when its last case ended, UTC.
    :ivar planned: number of planned cases; without a plan, of those that ended.
    :ivar results: number of cases by the result of their first attempt.
    :ivar verdicts: number of figures of those by verdict.
    :ivar ended: number of cases with a record.
    :ivar seconds: time of all its cases, from set-up to verdict, without waiting in a queue;
        ``None`` if no record has it.
    """

    session: str
    system: str
    start: np.datetime64
    end: np.datetime64
    extras: dict[str, str]
    planned: int
    results: dict[str, int]
    verdicts: dict[str, int]
    ended: int
    seconds: float | None

    @property
    def is_duet(self) -> bool:
        """Whether it is a job of ``plumbline compare --duet``, which is on no side of another
        comparison."""
        return f"{DUET}-a" in self.extras

    def age(self, now: datetime.datetime) -> datetime.timedelta:
        """Return the time since its last result."""
        end: datetime.datetime = self.end.astype(datetime.datetime)
        return now - end.replace(tzinfo=datetime.timezone.utc)

    def is_ahead(self, now: datetime.datetime) -> bool:
        """Return whether it is in the future: its clock is wrong, or that of this host."""
        return self.age(now) < -AHEAD


@dataclass
class CaseRow:
    """One test case of one session, from its record.

    :ivar time: when it ended, UTC.
    :ivar check: name with parameters, without the node of ``--distribute``.
    :ivar node: the node of ``--distribute``, or empty.
    :ivar build: short hash of the build, equal for equal builds.
    """

    session: str
    time: np.datetime64
    system: str
    partition: str
    environment: str
    check: str
    case: str
    attempt: int
    benchmark: str
    placement: str
    result: str
    reason: str
    waiver: str
    nodes: list[str]
    node: str
    build: str
    output: str

    @property
    def identity(self) -> CaseId:
        return CaseId(self.system, self.partition, self.environment, self.check, self.node)


@dataclass
class RanRow:
    """A test case in all sessions.

    :ivar sessions: number of those that ran it. :ivar session: the last one.
    :ivar time: when it ended in that, UTC.
    """

    identity: CaseId
    sessions: int
    session: str
    time: np.datetime64
    placement: str


@dataclass
class NodeRow:
    """A node that was measured by itself, by a sweep or ``--distribute``.

    :ivar session: the last one on it. :ivar results: number of that session's cases by result.
    :ivar sessions: number of sessions that measured it.
    :ivar time: when the last case of the last of them ended, UTC.
    :ivar whole: the same of the last of them that was not cut off and is not in the future;
        ``None`` if there is none.
    """

    system: str
    partition: str
    node: str
    sessions: int
    session: str
    time: np.datetime64
    results: dict[str, int]
    whole: np.datetime64 | None

    @property
    def result(self) -> str:
        """The worst result of the last session."""
        return next((r for r in WORST_FIRST if r in self.results), "")


@dataclass
class TogetherRow:
    """A node that was measured with others over the network, or a pair of nodes.

    :ivar unit: the node, or both nodes of the pair.
    :ivar sessions: those that measured it. :ivar session: the last one.
    :ivar time: when its last case ended, UTC.
    """

    system: str
    partition: str
    unit: list[str]
    sessions: list[str]
    session: str
    time: np.datetime64


@dataclass(frozen=True)
class Measured:
    """How much was measured by a check of a system.

    :ivar series: number of series.
    :ivar values: number of values of all series.
    :ivar most: number of values of the longest series.
    """

    system: str
    check: str
    series: int
    values: int
    most: int
