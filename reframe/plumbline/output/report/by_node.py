"""The values of each node, of figures whose series in the history are none of single nodes: those
that sweeps measured, of which one series has all nodes, and those of pairs of nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np

from plumbline.analysis import screen
from plumbline.history.rows import SessionRow
from plumbline.history.series import Series

#: Verdicts, the worst first.
WORST_FIRST = ("above-ceiling", "fail", "waived", "not-asserted", "pass")


@dataclass(frozen=True)
class Nights:
    """What the sessions of a history tell about its values.

    :ivar of: first session of each session's night. :ivar sweeps: the sessions that are of a sweep.
    """

    of: Mapping[str, str]
    sweeps: Set[str]


def nights(sessions: Collection[SessionRow]) -> Nights:
    """Return what sessions tell."""
    swept = {row.session for row in sessions if "sweep" in row.extras}
    return Nights(screen.nights(row.session for row in sessions), swept)


def first_of(sessions: Iterable[str], night_of: Mapping[str, str]) -> dict[str, str]:
    """Return the first of these sessions of each one's night."""
    of_night: dict[str, list[str]] = {}
    for name in {*sessions}:
        of_night.setdefault(night_of.get(name, name), []).append(name)
    first = {night: min(listed) for night, listed in of_night.items()}
    return {name: first[night] for night, listed in of_night.items() for name in listed}


class Peers:
    """The values of several nodes by night, for the median over all but one of them."""

    def __init__(self, members: list[Series], night_of: Mapping[str, str]):
        """:arg members: a series for each node."""
        self._night_of = night_of
        nights = [self._night(name) for one in members for name in one.sessions.tolist()]
        self._place = {name: place for place, name in enumerate(dict.fromkeys(nights))}
        night = np.fromiter(map(self._place.__getitem__, nights), int, len(nights))
        values = np.concatenate([one.values for one in members])
        self._number = {one.key.node: number for number, one in enumerate(members)}
        owner = np.repeat(np.arange(len(members)), [len(one.values) for one in members])
        order = np.lexsort((values, night))
        self._nights, self._values, self._owner = night[order], values[order], owner[order]

    def _night(self, session: str) -> str:
        return self._night_of.get(session, session)

    def medians(self, member: Series) -> np.ndarray:
        """Return the median over the others on the night of each of a member's values; NaN where
        none was measured."""
        others = self._owner != self._number[member.key.node]
        nights, values = self._nights[others], self._values[others]
        wanted = [self._place[self._night(name)] for name in member.sessions.tolist()]
        begin = np.searchsorted(nights, wanted)
        count = np.searchsorted(nights, wanted, side="right") - begin
        found, some = np.full(len(wanted), np.nan), count > 0
        low, high = begin + (count - 1) // 2, begin + count // 2
        found[some] = (values[low[some]] + values[high[some]]) / 2
        return found


def of_sweeps(series: Series, sweeps: Set[str]) -> list[Series]:
    """Return a series for each node of one that sweeps measured: each value is of one node, and
    most are of a sweep. Nothing of any other."""
    names = series.nodes.tolist()
    number = {name: place for place, name in enumerate(sorted({*names}))}
    if series.key.node or len(number) < 2 or any(not n or "," in n for n in number):
        return []
    if 2 * sum(map(sweeps.__contains__, series.sessions.tolist())) < len(names):
        return []
    which = np.fromiter(map(number.__getitem__, names), int, len(names))
    parts = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    return [
        dataclasses.replace(series.at(part), key=dataclasses.replace(series.key, node=name))
        for name, part in zip(number, parts, strict=True)
    ]


def of_pairs(members: list[Series], night_of: Mapping[str, str]) -> list[Series]:
    """Return a series for each node of pairs of nodes, which are the series' locations: the medians
    over its pairs of each night. It has the worst of their verdicts, and no bounds."""
    counts = [len(member.values) for member in members]
    pairs = [member.key.location.split(":") for member in members]
    names = sorted({name for pair in pairs for name in pair})
    number = {name: place for place, name in enumerate(names)}
    node = np.concatenate([np.repeat([number[pair[end]] for pair in pairs], counts)
                           for end in (0, 1)])  # fmt: skip

    def column(name: str) -> np.ndarray:
        return np.tile(np.concatenate([getattr(member, name) for member in members]), 2)

    sessions, values = column("sessions"), column("values")
    first = first_of(sessions.tolist(), night_of)
    labels = sorted({*first.values()})
    place = {name: index for index, name in enumerate(labels)}
    night = np.fromiter((place[first[name]] for name in sessions.tolist()), int, len(sessions))
    badness = {name: -index for index, name in enumerate(WORST_FIRST)}
    worst = np.fromiter((badness.get(str(v), badness["pass"]) for v in column("verdicts").tolist()),
                        int, len(values))  # fmt: skip
    order = np.lexsort((values, night, node))
    cells = (node * len(labels) + night)[order]
    begin = np.flatnonzero(np.diff(cells, prepend=-1))
    count = np.diff(begin, append=len(cells))
    sorted_values = values[order]
    medians = (sorted_values[begin + (count - 1) // 2] + sorted_values[begin + count // 2]) / 2
    of_night = {
        "sessions": np.array(labels, object)[night[order][begin]],
        "times": np.maximum.reduceat(column("times")[order], begin),
        "values": medians,
        "verdicts": np.array(WORST_FIRST, object)[-np.maximum.reduceat(worst[order], begin)],
        **{name: column(name)[order][begin] for name in ("references", "builds")},
        **{name: np.full(len(begin), np.nan) for name in ("lower", "upper", "ceiling")},
    }
    bounds = np.searchsorted(node[order][begin], np.arange(len(names) + 1))
    return [
        dataclasses.replace(
            members[0], key=dataclasses.replace(members[0].key, location="", node=name),
            **{column_: whole[start:end] for column_, whole in of_night.items()},
            nodes=np.full(end - start, name, object), samples=[], across=None, near_bound=None,
            taken=None,
        )
        for name, start, end in zip(names, bounds[:-1], bounds[1:], strict=True)
    ]  # fmt: skip
