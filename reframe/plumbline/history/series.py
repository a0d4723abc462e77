"""Series: the values of one figure of merit over sessions, and which records to look at."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field

import numpy as np

from plumbline.core.errors import Fault

_AGES = {"h": "hours", "d": "days", "w": "weeks"}
_SHORT = {"s": "seconds", "m": "minutes"}


@dataclass(frozen=True, order=True)
class Key:
    """What one series is of."""

    system: str
    partition: str
    environment: str
    #: Name with parameters, as ReFrame displays it, without the node of ``--distribute``.
    check: str
    metric: str
    #: Bytes; -1 where the figure has none.
    size: int
    #: Which of several in one case (``gpu0-gpu1``), or empty.
    at: str
    placement: str
    #: ``key=value;key=value``, sorted.
    conditions: str
    #: The one node of a case that ReFrame distributed over nodes; else empty.
    node: str = ""


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
    #: NaN where open or not asserted.
    lower: np.ndarray
    upper: np.ndarray
    ceiling: np.ndarray
    verdicts: np.ndarray
    #: Id of the reference that decided, or empty.
    references: np.ndarray
    #: Short hash of the build's fields, equal for equal builds.
    builds: np.ndarray
    #: Names of the nodes, comma separated.
    nodes: np.ndarray
    #: The single samples of each value.
    samples: list[list[float]]


@dataclass(frozen=True)
class Selection:
    """Which records to look at; what is empty selects all. Names may hold ``*`` and ``?``."""

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
    #: ``--session-extras`` that a session must have.
    extras: dict[str, str] = field(default_factory=dict)


#: All there is.
ALL = Selection()


def span(text: str) -> datetime.timedelta:
    """A length of time: ``45s``, ``90m``, ``6h``, ``14d``, ``2w``.

    >>> span("90m"), span("2w")
    (datetime.timedelta(seconds=5400), datetime.timedelta(days=14))

    :raises Fault: if it is none.
    """
    found = re.fullmatch(r"(\d{1,5})([smhdw])", text)
    if not found or not int(found[1]):
        raise Fault(
            f"{text!r} is not a length of time (45s, 90m, 6h, 14d, 2w)", code="input.wrong-option"
        )
    return datetime.timedelta(**{{**_SHORT, **_AGES}[found[2]]: int(found[1])})


def moment(text: str, end: bool = False) -> datetime.datetime:
    """A time, UTC where no zone is given, from an ISO date or time, or an age as ``30d``, ``2w`` or
    ``12h``.

    >>> moment("2026-11-21").isoformat(), moment("2026-11-21", end=True).isoformat()
    ('2026-11-21T00:00:00+00:00', '2026-11-22T00:00:00+00:00')
    >>> moment("2026-11-21T15:00+01:00").isoformat()
    '2026-11-21T15:00:00+01:00'

    :arg end: whether a date means its day's end instead of its beginning.
    :raises Fault: if it is none of these.
    """
    age = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if age:
        back = datetime.timedelta(**{_AGES[age[2]]: int(age[1])})
        return datetime.datetime.now(datetime.timezone.utc) - back
    try:
        if day := re.fullmatch(r"(\d{4})-?(\d\d)-?(\d\d)", text):
            year, month, number = map(int, day.groups())
            found = datetime.datetime(year, month, number) + datetime.timedelta(days=end)
        else:
            found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, OverflowError):
        told = "a date (2026-11-21), a time (2026-11-21T15:00) or an age (30d, 2w, 12h)"
        raise Fault(f"{text!r} is not {told}", code="input.wrong-option") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)
