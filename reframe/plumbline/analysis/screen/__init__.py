"""Screening: which nodes, GPUs, pairs of nodes, links or switches of a partition are slow.

Values come from the history (:func:`of_series`) or from a CSV file (:func:`of_file`), as groups of
peers. :func:`screen` judges each group night by night, and decides which unit explains a loss.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from threadpoolctl import threadpool_limits

from plumbline.analysis.screen import combination, detection, peer_groups, settings
from plumbline.analysis.screen.flag import Flag
from plumbline.analysis.screen.input import (
    Group,
    by_name,
    chosen,
    is_of,
    joined,
    nights,
    nights_of,
    nodes_of,
    of_file,
    of_series,
    of_topology,
)
from plumbline.analysis.screen.pairs import PairGroup
from plumbline.analysis.screen.repeats import Cells
from plumbline.core import pool
from plumbline.core.errors import Fault
from plumbline.core.text import natural, pluralize, shorten, suggest
from plumbline.history.history import History
from plumbline.history.series import Selection, Series
from plumbline.reference.waivers import Waiver

__all__ = [
    "Flag",
    "Group",
    "Screening",
    "by_name",
    "chosen",
    "is_of",
    "nights",
    "nights_of",
    "nodes_of",
    "of_file",
    "of_series",
    "of_topology",
    "read",
    "screen",
    "screen_history",
]

#: Number of values from which further processes are worth their start: they take about 5 s.
MANY = 500_000
#: Message for a source in which nothing has peers.
NOTHING = (
    "{}: no values of single nodes, GPUs or pairs of nodes: docs/screening.md lists what can be "
    "screened"
)

#: Note of what became slow on a night of which not all nights around it were read.
_BEGAN = "it became slow after {}: of the nights of that time, only some are read"


@dataclass
class Screening:
    """What screening found.

    :ivar nights: all nights, oldest first.
    :ivar flagged: the slow units, by night.
    :ivar suspects: (kind, name) on the last night that a repeat would help to decide, worst first.
    :ivar messages: what could not be judged, and why.
    :ivar few: groups with too few peers on the last night, by how many.
    :ivar judged: number of values that were compared.
    :ivar sure: whether a figure of the last night was judged. :ivar fell: whether too many fell at
        once in one. :ivar lacking: whether one could not be judged.
    """

    nights: list[str]
    flagged: list[Flag] = field(default_factory=list)
    suspects: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    few: dict[str, list[str]] = field(default_factory=dict)
    judged: int = 0
    sure: bool = False
    fell: bool = False
    lacking: bool = False

    @property
    def unsure(self) -> bool:
        """Whether the last night is inconclusive, of all figures or of some."""
        return not self.sure or self.fell or self.lacking

    @property
    def now(self) -> list[Flag]:
        """The units that are slow on the last night."""
        return [flag for flag in self.flagged if flag.until is None]

    @property
    def failing(self) -> list[Flag]:
        """What no waiver covers."""
        return [flag for flag in self.flagged if flag.waiver is None]

    def drain(self) -> list[str]:
        """Return the nodes to drain: those that are slow, or that have a slow GPU. What is waived
        is slow nevertheless."""
        return sorted({flag.name[0] for flag in self.flagged if flag.drained}, key=natural)

    def retest(self) -> list[str]:
        """Return the nodes to measure again tonight: suspects, and those first flagged tonight."""
        new = [(flag.kind, flag.name) for flag in self.now if flag.night == self.nights[-1]]
        nodes = {node for kind, name in [*self.suspects, *new] for node in _nodes(kind, name)}
        return sorted(nodes, key=natural)


def screen(
    groups: Iterable[Group],
    switches: dict[str, str] | None = None,
    all_suspects: bool = False,
    sampled: bool = False,
) -> Screening:
    """Screen groups of peers, night by night, each from what was known then.

    :arg groups: if they are yielded, only one at a time is in memory with its dictionary of nodes
        or GPUs.
    :arg switches: node -> its switch, if known.
    :arg all_suspects: return the suspects of every night, and those first flagged, as
        ``(kind, name, night)``; for simulations.
    :arg sampled: whether the nights before the last :data:`~detection.MEMORY` are some of many
        (:func:`chosen`): they date no change, and have no messages.
    """
    measured, of_pairs = _taken(groups)
    every = {night for _, cells in measured for night in cells.nights}
    every |= {night for group in of_pairs for night, _ in group.pairs}
    ordered = sorted(every, key=natural)
    row = {night: number for number, night in enumerate(ordered)}
    first = max(len(ordered) - detection.MEMORY, 0) if sampled else 0
    found = Screening(ordered)
    together = _combinable([(group.system, cells.units) for group, cells in measured])
    # Figures that are combined count as one more.
    rate = detection.RATE / max(_judged(measured, of_pairs) + len(together), 1)
    about = ordered, switches or {}, rate
    flags: dict[tuple[str, tuple[str, ...]], list[Flag]] = defaultdict(list)
    suspects: dict[tuple, float] = {}  # type: ignore[type-arg]
    combined, alone = _units_run(measured, together, about)
    for screening in [*alone, *_pairs_run(of_pairs, about), *combined]:
        if screening not in combined:
            found.judged += screening.judged
            found.sure |= screening.sure
            found.fell |= screening.fell
            found.lacking |= screening.lacking
        found.messages += [line for number, line in screening.messages
                           if number >= first and line not in found.messages]  # fmt: skip
        for count in screening.few:
            found.few.setdefault(count, []).append(screening.group.label)
        for flag in screening.flagged:
            if all_suspects:
                suspects[flag.kind, flag.name, flag.night] = 0.0
            _merge(flags[flag.kind, flag.name], flag, row)
        for number, who, p in screening.suspects:
            if all_suspects:
                suspects[who[0], who[1], ordered[number]] = p
            elif number == len(ordered) - 1:
                suspects[who] = min(p, suspects.get(who, 1.0))
    found.messages += [_too_few(ordered[-1], count, labels) for count, labels in found.few.items()]
    found.flagged = sorted(
        (flag for listed in flags.values() for flag in listed),
        key=lambda flag: (row[flag.night], -flag.confidence, flag.kind, flag.name),
    )
    for flag in found.flagged:
        if 0 < row[flag.since] < first:
            began = _BEGAN.format(ordered[row[flag.since] - 1])
            flag.note = "; ".join(filter(None, [flag.note, began]))
    known = {(flag.kind, flag.name) for flag in found.now}
    found.suspects = [
        who for who in sorted(suspects, key=lambda s: suspects[s]) if who not in known
    ]
    return found


def screen_history(
    history: History,
    select: Selection,
    sessions: Collection[str] = (),
    switches: dict[str, str] | None = None,
    accepted: Sequence[Waiver] = (),
) -> Screening:
    """Screen the peers of a history, up to the last of some sessions.

    Returns what is still slow, or was flagged in one of their nights.

    :arg sessions: their names; by default the last one of the history that is not in the future.
    :arg switches: node -> its switch; from the names of the nodes if ``None``.
    :arg accepted: waivers; what they cover today has its waiver.
    :raises Fault: if such a session is not selected, or nothing has peers.
    """
    rows = history.sessions(select)
    known = {row.session for row in rows}
    if unknown := [session for session in sessions if session not in known]:
        raise Fault(
            f"no session {unknown[0]!r} in the history, or none of it is selected; "
            f"{suggest(unknown[0], sorted(known, reverse=True))}",
            code="history.unknown-session",
        )
    now = datetime.datetime.now(datetime.timezone.utc)
    ahead = {row.session for row in rows if row.is_ahead(now)}
    series = read(history, select, ahead, max(sessions, default=""))
    night_of = nights_of(series)
    sessions = sessions or [max(night_of, default="")]
    if switches is None:
        switches = by_name({item.key.system for item in series}, nodes_of(series))
    found = screen(of_series(series), switches, sampled=True)
    if not found.nights:
        raise Fault(NOTHING.format("the history"), code="history.no-peers")
    if skipped := sorted(name for name in ahead if name > max(sessions)):
        found.messages.append(
            f"{pluralize(len(skipped), 'session')} in the future not judged, a clock was wrong: "
            f"{shorten(skipped, 2)}"
        )
    shown = {night_of.get(session) for session in sessions}
    found.flagged = [flag for flag in found.flagged if flag.until is None or flag.night in shown]
    found.flagged += settings.of_night(history, select, night_of, found.nights[-1])
    for flag in found.flagged:
        flag.waive(accepted)
    return found


def read(
    history: History, select: Selection, ahead: Collection[str], last: str = ""
) -> list[Series]:
    """Return what was measured of single nodes and of pairs, on the nights to use.

    :arg ahead: sessions in the future, as a clock was wrong: they count only if all are.
    :arg last: the newest session to use; by default the last of all.
    """
    units = history.units(select)
    last = last or max(units.keys() - ahead, default=max(units, default=""))
    used = chosen({name: of for name, of in units.items() if name <= last})
    # Without a session, those of all nights would be selected.
    return history.of_units(replace(select, sessions=tuple(sorted(used)))) if used else []


def _taken(groups: Iterable[Group]) -> tuple[list[tuple[Group, Cells]], list[Group]]:
    """Return what was measured of single units, without the groups' values, and groups of pairs."""
    measured, of_pairs = [], []
    for group in groups:
        if group.values:
            about = replace(group, values={}, pairs={}, within=None)
            measured.append((about, Cells(group.values, group.units)))
        if group.pairs:
            of_pairs.append(group)
    return measured, joined(of_pairs)


def _judged(measured: list[tuple[Group, Cells]], of_pairs: list[Group]) -> int:
    """Return the number of groups with enough peers: others cannot flag anything, and use up no
    rate."""
    found = [cells.units for _, cells in measured]
    # Those with few units, or none, may have many pairs.
    found += [
        list({pair for _, pair in group.pairs})
        for group in of_pairs
        if len(group.units) < detection.FEWEST
    ]
    return sum(len(names) >= detection.FEWEST for names in found)


def _units_run(
    measured: list[tuple[Group, Cells]],
    together: list[set[int]],
    about: tuple[list[str], dict[str, str], float],
) -> tuple[list[peer_groups.UnitGroup], list[peer_groups.UnitGroup]]:
    """Return the screenings of several figures together, and of each, after they have run, in
    several processes if they have many values.

    :arg measured: it is emptied, as the tables take its place in memory.
    :arg together: the numbers of the figures to combine.
    :arg about: nights, switches and rate.
    """
    alone = []
    while measured:
        group, cells = measured.pop(0)
        alone.append(peer_groups.UnitGroup(group, *about))
        alone[-1].fill(cells)
    # Those that take longest first.
    parts = [
        peer_groups.CombinedGroup([alone[number] for number in sorted(listed)])
        for listed in together
    ] + alone
    many = sum(part.table.values.size for part in alone) >= MANY
    parts = [*(pool.mapped if many else map)(_run, parts)]
    return parts[: len(together)], parts[len(together) :]


def _pairs_run(
    groups: list[Group], about: tuple[list[str], dict[str, str], float]
) -> Iterator[PairGroup]:
    """Yield the screenings of pairs, those within racks first."""
    found: dict[int, PairGroup] = {}
    for group in sorted(groups, key=lambda group: group.within is not None):
        found[id(group)] = PairGroup(group, *about)
        found[id(group)].within = found.get(id(group.within))
        found[id(group)].run()
        yield found[id(group)]


def _run(part: peer_groups.UnitGroup) -> peer_groups.UnitGroup:
    # Of the threads of a product of matrices, those that wait for the others keep their cores busy:
    # with other processes on two cores, a correlation of 60 figures took four times the CPU time.
    with threadpool_limits(1, user_api="blas"):
        part.run()
    return part


def _combinable(figures: list[tuple[str, list[tuple[str, ...]]]]) -> list[set[int]]:
    """Return the numbers of the figures to combine: those of the nodes of a system, and those of
    its GPUs, if enough of them have several. Nodes of two systems may have one name.

    :arg figures: the system and the units of each.
    """
    found: dict[tuple[str, bool], set[int]] = defaultdict(set)
    numbers: dict[tuple[str, bool], Counter[tuple[str, ...]]] = defaultdict(Counter)
    for number, (system, of) in enumerate(figures):
        if len(of) >= combination.PEERS:
            kind = system, any(len(unit) > 1 for unit in of)
            found[kind].add(number)
            numbers[kind].update(of)
    return [
        listed
        for kind, listed in found.items()
        if sum(number > 1 for number in numbers[kind].values()) >= combination.PEERS
    ]


def _nodes(kind: str, name: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes to measure for a unit; those of a link or switch are not known."""
    return {"node": name, "gpu": name[:1], "pair": name}.get(kind, ())


def _too_few(night: str, count: str, labels: list[str]) -> str:
    of = shorten(sorted(filter(None, labels)), 2)
    message = (
        f"night {night}: not judged: {count}, with fewer than {detection.FEWEST} peers to compare"
    )
    return f"{message}, of {of}" if of else message


def _merge(flags: list[Flag], new: Flag, row: dict[str, int]) -> None:
    """Add a flag from one group to those of the same unit from others; overlapping ones become
    one."""

    def end(flag: Flag) -> int:
        return len(row) if flag.until is None else row[flag.until]

    for flag in flags:
        if row[new.since] <= end(flag) and row[flag.since] <= end(new):
            flag.until = max(flag, new, key=end).until
            flag.night = min(flag.night, new.night, key=row.__getitem__)
            flag.since = min(flag.since, new.since, key=row.__getitem__)
            larger, smaller = (new, flag) if new.size > flag.size else (flag, new)
            flag.evidence = list(dict.fromkeys(larger.evidence + smaller.evidence))
            flag.size = larger.size
            flag.confidence = max(flag.confidence, new.confidence)
            flag.systems |= new.systems
            return
    flags.append(new)
