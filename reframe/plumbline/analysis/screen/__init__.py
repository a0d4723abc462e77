"""Screening: which nodes, GPUs, pairs of nodes, links or switches of a partition are slow.

Values come from the history (:func:`of_series`) or from a CSV file (:func:`of_file`), as groups of
peers; :func:`screen` follows each group night by night and says who is to blame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from plumbline.analysis.screen import parts, peers
from plumbline.analysis.screen.grouping import (
    Group,
    by_name,
    natural,
    nights,
    of_file,
    of_series,
    of_topology,
)
from plumbline.analysis.screen.named import Named
from plumbline.core.errors import Fault
from plumbline.core.text import near, some
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.placement.pairing import rounds

__all__ = [
    "Group",
    "Named",
    "Screening",
    "by_name",
    "nights",
    "of_file",
    "of_series",
    "of_topology",
    "rounds",
    "screen",
    "screen_history",
]


#: What is said of a source in which nothing has peers.
NOTHING = (
    "{}: no value of a single node, a GPU or a pair of nodes there: see docs/screening.md for what "
    "can be screened"
)


@dataclass
class Screening:
    """What screening found.

    :ivar nights: all nights, oldest first.
    :ivar named: who is slow, by night.
    :ivar suspects: (kind, name) on the last night that a repeat would tell more of, worst first.
    :ivar told: what could not be judged, and why.
    :ivar few: groups of which too few peers were measured on the last night, by how many.
    :ivar judged: units and nights that were compared.
    :ivar unsure: whether the last night says nothing: too few peers, or too many that fell at once.
    """

    nights: list[str]
    named: list[Named] = field(default_factory=list)
    suspects: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    few: dict[str, list[str]] = field(default_factory=dict)
    judged: int = 0
    unsure: bool = True

    @property
    def now(self) -> list[Named]:
        """Who is slow still, on the last night."""
        return [named for named in self.named if named.until is None]

    def drain(self) -> list[str]:
        """The nodes to drain: slow themselves, or one of their GPUs."""
        return sorted({named.name[0] for named in self.named if named.drained}, key=natural)

    def retest(self) -> list[str]:
        """The nodes to measure again tonight: suspects, and those first named tonight, which
        repeats bear out or refute."""
        fresh = [(one.kind, one.name) for one in self.now if one.night == self.nights[-1]]
        nodes = {node for kind, name in [*self.suspects, *fresh] for node in _nodes(kind, name)}
        return sorted(nodes, key=natural)


def screen(
    groups: Iterable[Group],
    switches: dict[str, str] | None = None,
    rate: float = peers.RATE,
    least: float = peers.LEAST,
    all_suspects: bool = False,
) -> Screening:
    """Screens groups of peers, night by night from what was known then.

    :arg switches: node -> its switch, where it is known.
    :arg rate: false names that are accepted, of a node and night over all groups.
    :arg least: smallest relative loss that is named.
    :arg all_suspects: those of every night, and whom it named first, as ``(kind, name, night)``;
        for simulations.
    """
    groups = [group for group in groups if group.values or group.pairs]
    every = {night for group in groups for night, _ in [*group.values, *group.pairs]}
    ordered = sorted(every, key=natural)
    found = Screening(ordered)
    # Those that too few were measured in name nobody, and cost no rate.
    rate /= max(sum(group.widest >= peers.FEWEST for group in groups), 1)
    merged: dict[tuple[str, tuple[str, ...]], list[Named]] = {}
    suspects: dict[tuple, float] = {}
    for group in groups:
        for part in (parts.Units, parts.PairGroup):
            values = group.values if part is parts.Units else group.pairs
            if not values:
                continue
            one = part(group, values, ordered, switches or {}, rate, least)
            one.run()
            found.judged += one.judged
            found.unsure &= not one.sure
            found.told += [line for line in one.told if line not in found.told]
            for count in one.few:
                found.few.setdefault(count, []).append(group.label)
            for named in one.named:
                if all_suspects:
                    suspects[named.kind, named.name, named.night] = 0.0
                _merge(merged.setdefault((named.kind, named.name), []), named, ordered)
            for row, who, p in one.suspects:
                if all_suspects:
                    suspects[(*who, ordered[row])] = p
                elif row == len(ordered) - 1:
                    suspects[who] = min(p, suspects.get(who, 1.0))
    found.told += [_too_few(ordered[-1], count, labels) for count, labels in found.few.items()]
    order = {night: row for row, night in enumerate(ordered)}
    found.named = sorted(
        (named for listed in merged.values() for named in listed),
        key=lambda named: (order[named.night], -named.confidence, named.kind, named.name),
    )
    known = {(named.kind, named.name) for named in found.now}
    found.suspects = [who for who in sorted(suspects, key=suspects.get) if who not in known]
    return found


def screen_history(
    history: History,
    select: Selection,
    sessions: Collection[str] = (),
    switches: dict[str, str] | None = None,
) -> Screening:
    """Screens the peers of a history, up to the last of some sessions: what is slow still, or was
    flagged in one of their nights.

    :arg sessions: their names; the last one of the history if there are none.
    :arg switches: node -> its switch; by the names of the nodes if ``None``.
    :raises Fault: if such a session is not selected, or nothing there has peers.
    """
    series = history.series(select)
    there = {session for one in series for session in one.sessions.tolist()}
    if unknown := [session for session in sessions if session not in there]:
        raise Fault(
            f"no session {unknown[0]!r} in the history, or none of it is selected; "
            f"{near(unknown[0], sorted(there, reverse=True))}",
            code="history.unknown-session",
        )
    groups = of_series(series, max(sessions, default=""))
    if not groups:
        raise Fault(NOTHING.format("the history"), code="history.no-peers")
    if switches is None:
        nodes = {node for one in groups for _, unit in [*one.values, *one.pairs] for node in unit}
        switches = by_name({one.key.system for one in series}, nodes)
    found = screen(groups, switches)
    night_of = nights(there)
    shown = {night_of[session] for session in sessions or sorted(there)[-1:]}
    found.named = [one for one in found.named if one.until is None or one.night in shown]
    return found


def _nodes(kind: str, name: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes to measure for a name; a link's or switch's own are not known."""
    return {"node": name, "gpu": name[:1], "pair": name}.get(kind, ())


def _too_few(night: str, count: str, labels: list[str]) -> str:
    """What was not judged on the last night, as so few measured it."""
    of = some(sorted(filter(None, labels)), 2)
    told = f"night {night}: too few peers to compare (fewest {peers.FEWEST}), not judged: {count}"
    return f"{told}, of {of}" if of else told


def _merge(listed: list[Named], named: Named, ordered: list[str]) -> None:
    """Adds what one group says of a unit to what others said: one entry for one slow time."""
    row = ordered.index
    for other in listed:
        ends = [len(ordered) if n.until is None else row(n.until) for n in (other, named)]
        if row(named.since) <= ends[0] and row(other.since) <= ends[1]:
            other.night = min(other.night, named.night, key=row)
            other.since = min(other.since, named.since, key=row)
            other.until = None if max(ends) == len(ordered) else ordered[max(ends)]
            if named.size > other.size:
                other.evidence = named.evidence + other.evidence
            else:
                other.evidence = other.evidence + named.evidence
            other.size = max(other.size, named.size)
            other.confidence = max(other.confidence, named.confidence)
            return
    listed.append(named)
