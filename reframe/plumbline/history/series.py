"""Series of a figure of merit over sessions, and selections of records."""

from __future__ import annotations

import datetime
import functools
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from plumbline.core.errors import WrongOption
from plumbline.history.rows import AHEAD, CaseId
from plumbline.parse import Figure
from plumbline.site import configuration

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, order=True)
class Key:
    """The identity of a series."""

    system: str
    partition: str
    environment: str
    #: Name with parameters, as ReFrame displays it, without the node of ``--distribute``.
    check: str
    metric: str
    #: Message size in bytes; -1 if the figure has none.
    size: int
    #: Place within a case, such as ``gpu0-gpu1``, or empty.
    location: str
    placement: str
    #: ``key=value;key=value``, sorted.
    conditions: str
    #: The node, if ReFrame distributed the case over nodes; else empty.
    node: str = ""

    @property
    def case(self) -> CaseId:
        """The test case."""
        return CaseId(self.system, self.partition, self.environment, self.check, self.node)

    @property
    def figure(self) -> str:
        """The figure's name: metric, size and which of several."""
        return Figure(self.metric, None if self.size < 0 else self.size, self.location).variable

    @property
    def place(self) -> str:
        """System, partition, environment, and the node if it is of one node."""
        node = f" on {self.node}" if self.node else ""
        return f"{self.system}:{self.partition}+{self.environment}{node}"

    @property
    def heading(self) -> str:
        """The test case, as the heading of its figures: check, place, placement, conditions."""
        placement = "" if f"={self.placement}" in self.check else self.placement
        parts = [f"{self.check} @{self.place}", placement, self.conditions.replace(";", "; ")]
        return ", ".join(filter(None, parts))


@functools.cache
def began_on(session: str) -> np.datetime64:
    """Return the day on which a session began, UTC, by its name; not a time for another name."""
    dated = configuration.is_session_name(session)
    return np.datetime64(f"{session[:4]}-{session[4:6]}-{session[6:8]}" if dated else "NaT", "D")


@dataclass
class Series:
    """A figure's values, oldest first; every array has one item for each value."""

    key: Key
    benchmark: str
    unit: str
    #: ``higher``, ``lower`` or ``neither``.
    better: str
    sessions: np.ndarray
    #: End of the test case, UTC, datetime64[s].
    times: np.ndarray
    values: np.ndarray
    #: NaN if open or not asserted.
    lower: np.ndarray
    upper: np.ndarray
    ceiling: np.ndarray
    verdicts: np.ndarray
    #: Id of the reference that gave the bounds, or empty.
    references: np.ndarray
    #: Short hash of the build, equal for equal builds.
    builds: np.ndarray
    #: Names of the nodes, separated by commas.
    nodes: np.ndarray
    #: The single samples of each value.
    samples: list[list[float]]
    #: Of pairs of nodes: how many pairs shared an uplink between racks; -1 if not known.
    across: np.ndarray | None = None
    #: Whether each passed, but is within the warning band.
    near_bound: np.ndarray | None = None
    #: Number of samples of each value, also where they are not read.
    taken: np.ndarray | None = None

    @property
    def nights(self) -> np.ndarray:
        """The day on which the session of each value began, UTC, datetime64[D]."""
        # Not on which the case ended: 01:00 in central Europe is an hour before midnight in summer.
        days = [began_on(name) for name in self.sessions.tolist()]
        ended = self.times.astype("datetime64[D]")
        return np.where(np.isnat(days), ended, days) if days else ended

    @property
    def ahead(self) -> np.ndarray:
        """Whether each value is in the future: a clock is wrong, or that of this host."""
        now = np.datetime64("now", "s")
        found: np.ndarray = self.times > now + np.timedelta64(AHEAD)
        return found

    def before(self, time: np.datetime64) -> Series:
        """Return the values that were measured before a time."""
        return self.at(np.flatnonzero(self.times < time))

    def at(self, indices: np.ndarray) -> Series:
        """Return some of the values."""
        arrays: dict[str, Any] = {
            name: column[indices]
            for name, column in vars(self).items()
            if isinstance(column, np.ndarray)
        }
        samples = [self.samples[index] for index in indices] if self.samples else []
        return replace(self, **arrays, samples=samples)


@dataclass(frozen=True)
class Selection:
    """Selects records; an empty field selects all. Names may contain ``*`` and ``?``."""

    system: str = ""
    partition: str = ""
    environment: str = ""
    #: With or without its parameters.
    check: str = ""
    benchmark: str = ""
    metric: str = ""
    placement: str = ""
    #: Of ``--distribute``.
    node: str = ""
    sessions: tuple[str, ...] = ()
    #: Sessions whose first case ended at or after this; UTC without a time zone.
    since: datetime.datetime | None = None
    #: Sessions whose first case ended before this; UTC without a time zone.
    until: datetime.datetime | None = None
    #: Required ``--session-extras``.
    extras: dict[str, str] = field(default_factory=dict)


#: Selects all records.
ALL = Selection()


def span(text: str) -> datetime.timedelta:
    """Return the duration of a text such as ``45s``, ``90m``, ``6h``, ``14d`` or ``2w``.

    >>> span("90m"), span("2w")
    (datetime.timedelta(seconds=5400), datetime.timedelta(days=14))

    :raises Fault: if it is not a duration.
    """
    found = re.fullmatch(r"(\d{1,5})([smhdw])", text)
    if not found or not int(found[1]):
        raise WrongOption(f"{text!r} is not a duration, such as 45s, 90m, 6h, 14d, 2w")
    return datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})


def moment(text: str, end: bool = False) -> datetime.datetime:
    """Return the time of an ISO date or time (UTC by default), or of an age such as ``30d``, ``2w``
    or ``12h``.

    >>> moment("2026-11-21").isoformat(), moment("2026-11-21", end=True).isoformat()
    ('2026-11-21T00:00:00+00:00', '2026-11-22T00:00:00+00:00')
    >>> moment("2026-11-21T15:00+01:00").isoformat()
    '2026-11-21T15:00:00+01:00'

    :arg end: whether a date means the end of that day instead of its beginning.
    :raises Fault: if it is none of these.
    """
    age = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if age:
        back = datetime.timedelta(**{_UNITS[age[2]]: int(age[1])})
        return datetime.datetime.now(datetime.timezone.utc) - back
    try:
        if day := re.fullmatch(r"(\d{4})-?(\d\d)-?(\d\d)", text):
            year, month, number = map(int, day.groups())
            found = datetime.datetime(year, month, number) + datetime.timedelta(days=end)
        else:
            found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, OverflowError):
        raise WrongOption(
            f"{text!r} is not a date (2026-11-21), a time (2026-11-21T15:00) or an age (30d, 2w, "
            f"12h)"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)
