"""What the card of a change has beside its size: the command that compares both sides of it, and
the builds, variables and host facts that changed in the same night."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from plumbline.analysis.causes import Cause
from plumbline.analysis.compare import hostfacts, judge
from plumbline.analysis.compare.hostfacts import HostChange, Surroundings
from plumbline.analysis.trend.series_changes import SeriesChange
from plumbline.check.record import Record
from plumbline.core.text import base_name
from plumbline.history.history import History
from plumbline.history.rows import CaseId, SessionRow
from plumbline.history.series import Key, Selection

_SECOND = np.timedelta64(1, "s")


@dataclass(frozen=True)
class ProposedComparison:
    """A comparison of the sessions before a change with those that have it.

    :ivar command: that prints it; both sides end where the figures changed before and after.
    :ivar before: number of sessions before that measured the figure, ``after`` likewise.
    """

    command: str
    before: int
    after: int

    @property
    def missing(self) -> int:
        """How many sessions the smaller side needs before it can be compared."""
        return max(0, judge.LEAST - min(self.before, self.after))


@dataclass(frozen=True)
class Facts:
    """What changed between the last session before a change and the first with it.

    :ivar changes: of the build of the check and its variables, and of the nodes that it used.
    :ivar known: whether the records have facts that can be compared.
    """

    changes: list[HostChange]
    known: bool


class ChangeContext:
    """Finds what surrounds the changes of a history."""

    def __init__(
        self,
        history: History,
        sessions: Iterable[SessionRow],
        changes: dict[Key, list[SeriesChange]],
    ):
        """:arg changes: of each series, oldest first."""
        self._history, self._changes = history, changes
        self._start = {row.session: row.start for row in sessions}
        self._found: dict[tuple[str, str], tuple[Surroundings, dict[CaseId, set[str]]]] = {}

    def comparison(self, cause: Cause) -> ProposedComparison | None:
        """Return the comparison of both sides of a change, ``None`` if a side has no session of its
        own: nothing was measured before, or other changes of these figures lie between."""
        changes = [change for change in cause.changes if change.before]
        if not changes:
            return None
        sides = [self._neighbours(change) for change in changes]
        earlier, later = ([one for one in found if one] for found in zip(*sides, strict=True))
        ends = [one.until for one in changes if one.kind == "transient" and one.until is not None]
        # The innermost sessions of all figures: what is between two of them is on no side.
        last = min(self._start[change.before] for change in changes)
        first = max(self._start[change.after] for change in changes)
        begin = max((self._start[change.after] for change in earlier), default=None)
        end = min([*ends, *(self._start[change.before] for change in later)], default=None)
        if last >= first or (begin or last) > last or (end or first) < first:
            return None
        borders = [(last, first)]
        borders += [(self._start[one.before], self._start[one.after]) for one in earlier + later]
        fine = any(_day(one) == _day(other) for one, other in borders)
        before = f"{_text(begin, fine)}..{_text(last, fine, end=True)}"
        after = f"{_text(first, fine)}..{_text(end, fine, end=True)}"
        key = cause.first.key
        command = ["plumbline", "compare", f"--system={key.system}", f"--check={key.check}"]
        spans = [
            (one.start - (one_before.start if one_before else 0),
             (one_after.start - one.start) if one_after else one.sessions)
            for one, (one_before, one_after) in zip(changes, sides, strict=True)
        ]  # fmt: skip
        smallest = (min(side) for side in zip(*spans, strict=True))
        return ProposedComparison(shlex.join([*command, before, after]), *smallest)

    def _neighbours(self, change: SeriesChange) -> tuple[SeriesChange | None, SeriesChange | None]:
        """Return the last change of the same series that lasted before another one, and the first
        after it, if any."""
        others = self._changes.get(change.key, [])
        lasting = [one for one in others if one.kind not in ("transient", "suspect") and one.before]
        earlier = [one for one in lasting if one.start < change.start]
        later = [one for one in lasting if one.start > change.start]
        return earlier[-1] if earlier else None, later[0] if later else None

    def facts(self, cause: Cause) -> Facts | None:
        """Return what changed in the night of a change, ``None`` if it cannot be known: there is no
        session before it, or the source has no records."""
        first = cause.first
        if not first.before or self._history.from_csv:
            return None
        pair = first.before, first.after
        if pair not in self._found:
            self._found[pair] = self._differences(*pair)
        found, used = self._found[pair]
        keys = dict.fromkeys(change.key for change in cause.changes)
        nodes = {
            node for key in keys for node in ([key.node] if key.node else used.get(key.case, ()))
        }
        own = [fact for fact in (*found.builds, *found.variables)
               if any(_is_of(fact, key) for key in keys)]  # fmt: skip
        hosts = [change for change in (*found.hosts, *found.elsewhere) if nodes & {*change.where}]
        return Facts([*own, *hosts], bool(found.known or found.any))

    def _differences(self, before: str, after: str) -> tuple[Surroundings, dict[CaseId, set[str]]]:
        """Return what differs between two sessions, and the nodes of each case of the second."""
        used: dict[CaseId, set[str]] = {}

        def watched(records: Iterable[Record]) -> Iterator[Record]:
            for record in records:
                if record.session == after:
                    case = CaseId(record.system, record.partition, record.environment,
                                  base_name(record.check), "")  # fmt: skip
                    used.setdefault(case, set()).update(record.nodes)
                yield record

        records = self._history.records(Selection(sessions=(before, after)))
        return hostfacts.differences(watched(records), {before}, {after}), used


def _is_of(change: HostChange, key: Key) -> bool:
    """Return whether a fact is of the build, or a variable, of a series' test case."""
    case = f"{key.check} @{key.system}:{key.partition}"
    return f" @{key.environment}: " in change.what and case in map(base_name, change.where)


def _day(time: np.datetime64) -> np.datetime64:
    return time.astype("datetime64[D]")


def _text(time: np.datetime64 | None, fine: bool, end: bool = False) -> str:
    """Return an end of a span as ``plumbline compare`` reads it, which includes that session.

    :arg fine: whether a date would include sessions of the other side.
    """
    if time is None:
        return ""
    return str(time + _SECOND * end) if fine else str(_day(time))
