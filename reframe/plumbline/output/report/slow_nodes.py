"""The nodes that ``plumbline screen`` flags, each with a page of its own: its figures, what changed
on it, the verdict of its last clearance, and the commands that measure it again."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from plumbline.analysis import screen
from plumbline.analysis.compare import hostfacts
from plumbline.analysis.compare.hostfacts import HostChange
from plumbline.analysis.screen import Flag, settings
from plumbline.analysis.screen.detection import FEWEST
from plumbline.core import files
from plumbline.core.process import one_line
from plumbline.history.history import History
from plumbline.history.rows import CaseRow
from plumbline.history.series import Key, Selection, Series
from plumbline.output.report import charts, text
from plumbline.output.report.figures import Panel
from plumbline.output.report.status import WINDOW, SystemState, cases_of, literal, selected
from plumbline.output.report.usual_values import usual_values
from plumbline.reference.waivers import Waiver

#: A node keeps its page for so long after it was slow, and its page has as many nights.
RECENT = datetime.timedelta(days=30)
#: At most so many nodes have a page, those that are slow now first.
PAGES = 60
#: The page of a node has so many charts at most; its other figures have a small one.
CHARTS = 12


class SlowFigure(NamedTuple):
    """One figure of a node, beside the same of its peers.

    :ivar check: its check; ``page`` of it, with the figure's anchor.
    :ivar peers: median of the latest values of the other nodes, NaN without one.
    :ivar chart: data of its chart, see :func:`plumbline.output.report.charts.of_node`; ``None`` of
        a figure that is not flagged, or beyond :data:`CHARTS`. :ivar anchor: of the chart.
    """

    check: str
    page: str
    name: str
    unit: str
    verdict: str
    latest: float
    usual: float
    peers: float
    time: np.datetime64
    spark: tuple
    anchor: str
    chart: dict | None

    @property
    def difference(self) -> float:
        """Relative difference from the usual value."""
        return self.latest / self.usual - 1 if self.usual else np.nan

    @property
    def beside(self) -> float:
        """Relative difference from the peers."""
        return self.latest / self.peers - 1 if self.peers else np.nan


@dataclass
class SlowNode:
    """A flagged node.

    :ivar alone: whether ``--distribute`` measured it, so that a selection can name it.
    :ivar flags: of it, of its GPUs and of pairs with it, the latest first.
    :ivar figures: filled as the pages of checks are written, with ``axes``: see
        :func:`plumbline.output.report.charts.data`.
    """

    system: str
    partition: str
    node: str
    alone: bool
    flags: list[Flag] = field(default_factory=list)
    figures: list[SlowFigure] = field(default_factory=list)
    axes: dict[str, int] = field(default_factory=dict)

    @property
    def charted(self) -> list[SlowFigure]:
        """The figures with a chart."""
        return [figure for figure in self.figures if figure.chart]

    def flags_of(self, key: Key) -> list[Flag]:
        """Return its flags of which a figure is part of the evidence."""
        return [
            flag
            for flag in self.flags
            if (flag.kind != "gpu" or flag.name[1] == key.location)
            and any(screen.is_of(line, key) for line in flag.evidence)
        ]

    @property
    def path(self) -> str:
        """Its page, within the site."""
        return f"nodes/{text.slug(self.system, self.node)}.html"

    @property
    def now(self) -> bool:
        """Whether it is slow on the last night."""
        return any(flag.until is None for flag in self.flags)

    @property
    def first(self) -> Flag:
        """What its row on other pages shows: the largest loss, of those that last if any does, and
        that are not waived if any is not."""
        return max(self.flags, key=lambda flag: (flag.until is None, not flag.waiver, flag.size))

    @property
    def waiver(self) -> Waiver | None:
        """That of its row, if all that lasts is waived."""
        return self.first.waiver if self.now else None

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands that measure it again, each with what it is for."""
        system, partition, node = map(shlex.quote, (self.system, self.partition, self.node))
        sweep = f"plumbline sweep {partition} --nodes {node} --mode=screen"
        return [
            ("measure it now, and judge whether it may take jobs", f"plumbline clear {node}"),
            ("judge its last night, without measuring", f"plumbline clear {node} --no-measure"),
            ("measure it for screening", sweep),
            ("screen its system again", f"plumbline screen --system={system}"),
        ]


@dataclass(frozen=True)
class Screened:
    """What screening flags of a system.

    :ivar nodes: that are slow, or were in the last days, the worst first. :ivar omitted: how many
        more there are. :ivar links: flags of links and switches that are slow on the last night.
    :ivar now: all flags that are slow on the last night.
    :ivar framed: node -> flags that are on no page of it: they ended earlier, or it has none.
    :ivar night: the last night on which anything is screened; empty without one.
    :ivar old: whether it is too long ago to tell anything of today.
    :ivar judged: whether it is not, and could be judged: enough nodes were measured, and not too
        many fell at once.
    """

    nodes: list[SlowNode] = field(default_factory=list)
    omitted: int = 0
    links: list[Flag] = field(default_factory=list)
    now: list[Flag] = field(default_factory=list)
    framed: dict[str, list[Flag]] = field(default_factory=dict)
    night: str = ""
    old: bool = False
    judged: bool = False


def of_system(
    history: History,
    state: SystemState,
    select: Selection,
    known: Sequence[Waiver] = (),
    day: datetime.date | None = None,
) -> Screened:
    """Screen a system as it is on its last night.

    :arg known: waivers, which cover on a day, by default today, what is slow.
    """
    chosen = dataclasses.replace(select, system=literal(state.system))
    series = screen.read(history, chosen, {row.session for row in state.ahead})
    nodes = {one.key: screen.nodes_of([one]) for one in series}
    night_of = screen.nights_of(series)
    if len(set[str]().union(*nodes.values())) < FEWEST:
        return Screened()
    switches = screen.by_name({state.system}, screen.nodes_of(series))
    groups = screen.of_series(series)
    # What is read of it is not needed any more, and is most of what is in memory.
    del series
    found = screen.screen(groups, switches, sampled=True)
    if not found.nights:
        return Screened()
    oldest = _began(state.latest.end - np.timedelta64(RECENT))
    older = [flag for flag in found.flagged if flag.until is not None and flag.until < oldest]
    flags = [flag for flag in found.flagged if flag not in older]
    night = found.nights[-1]
    flags += settings.of_night(history, chosen, night_of, night)
    for flag in flags:
        flag.waive(known, day)
    old = night < _began(state.latest.end - WINDOW)
    return dataclasses.replace(
        screened(state.system, nodes, flags, older),
        night=night, old=old, judged=not old and found.sure and not found.fell,
    )  # fmt: skip


def _began(time: np.datetime64) -> str:
    """Return the beginning of the names of sessions that began at a time."""
    return str(time.astype("datetime64[s]")).replace("-", "").replace(":", "")


def series_of(history: History, select: Selection, one: SlowNode) -> list[Series]:
    """Return all series of a node."""
    chosen = dataclasses.replace(select, system=literal(one.system), node=literal(one.node))
    return selected(lambda: history.series(chosen, samples=False))


def _recent(select: Selection, state: SystemState) -> Selection:
    """Return a selection of a system's last days."""
    since = (state.latest.end.astype(datetime.datetime) - RECENT).replace(
        tzinfo=datetime.timezone.utc
    )
    return dataclasses.replace(
        select, system=literal(state.system), since=max(filter(None, (select.since, since)))
    )


def screened(
    system: str, nodes: Mapping[Key, set[str]], flags: list[Flag], older: Iterable[Flag] = ()
) -> Screened:
    """Return the flags of a system's series by node, and those of no node.

    :arg nodes: of each series. :arg older: flags that make no page.
    """
    partitions = {name: key.partition for key, listed in nodes.items() for name in listed}
    alone = {key.node for key in nodes}
    found = {
        node: SlowNode(system, partitions.get(node, ""), node, node in alone, of_node)
        for node, of_node in _by_node(flags).items()
    }
    for one in found.values():
        one.flags.sort(key=lambda flag: flag.night, reverse=True)
    listed = sorted(found.values(), key=lambda one: (one.now, one.first.size), reverse=True)
    now = [flag for flag in flags if flag.until is None]
    links = [flag for flag in now if flag.kind in ("link", "switch")]
    framed = _by_node(older)
    for one in listed[PAGES:]:
        framed.setdefault(one.node, []).extend(one.flags)
    return Screened(listed[:PAGES], len(listed[PAGES:]), links, now, framed)


def _by_node(flags: Iterable[Flag]) -> dict[str, list[Flag]]:
    """Return the flags of nodes, of their GPUs and of pairs with them."""
    found: dict[str, list[Flag]] = {}
    for flag in flags:
        names = {"node": flag.name, "gpu": flag.name[:1], "pair": flag.name, "setting": flag.name}
        for node in names.get(flag.kind, ()):
            found.setdefault(node, []).append(flag)
    return found


def add_figure(
    slow: Iterable[SlowNode], figure: Panel, check: str, page: str, target: float | None
) -> None:
    """Give flagged nodes their values of a figure.

    :arg target: value of its reference.
    """
    wanted = {one.node: one for one in slow}
    members = figure.of_nodes or figure.members
    paired = "" if figure.key.node or not figure.of_nodes else "median over its pairs"
    for member in [m for m in members if (m.key.node or _alone(m)) in wanted]:
        one = wanted[member.key.node or _alone(member)]
        peers = [m.values[-1] for m in figure.of_nodes if m is not member]
        usual = usual_of(figure, member, one)
        shown = text.figure(figure.key.metric, figure.key.size, paired or member.key.location)
        flags = one.flags_of(figure.key) if len(one.charted) < CHARTS else []
        one.figures.append(
            SlowFigure(
                check, page, shown, member.unit, str(member.verdicts[-1]),
                float(member.values[-1]), float(np.median(usual)) if len(usual) else np.nan,
                float(np.median(peers)) if peers else np.nan, member.times[-1],
                figure.glance(member).spark, text.slug(check, figure.anchor),
                charts.of_node(figure, member, flags, one.axes, target) if flags else None,
            )
        )  # fmt: skip


def usual_of(figure: Panel, member: Series, one: SlowNode | None) -> np.ndarray:
    """Return the usual values of a node, which end before it became slow: changes of sweeps and of
    pairs are not searched in each node.

    :arg one: what is flagged of it, if anything.
    """
    changes, values = figure.changes_of(member), member.values
    lasting = [flag.since for flag in one.flags if flag.until is None] if one else []
    before = int(np.searchsorted(member.sessions, min(lasting))) if lasting else 0
    return usual_values(values[: before + 1] if before else values, changes)


def _alone(series: Series) -> str:
    """Return the node of a series that was always measured on the same one."""
    names = set(series.nodes.tolist())
    return str(names.pop()) if len(names) == 1 else ""


@dataclass(frozen=True)
class Past:
    """What the records have about a node.

    :ivar cases: of its last sessions, the newest first: session, time, and number by result.
    :ivar changed: facts of the host between its sessions around the first slow night, and between
        that and the last one.
    :ivar verdict: the line of its last clearance, empty without one.
    """

    cases: list[tuple[str, np.datetime64, Counter[str]]]
    changed: list[tuple[str, str, list[HostChange]]]
    verdict: str


def past_of(history: History, select: Selection, state: SystemState, one: SlowNode) -> Past:
    """Return what the records have about a node."""
    chosen = dataclasses.replace(
        _recent(select, state),
        partition=literal(one.partition),
        node=literal(one.node) if one.alone else select.node,
    )
    by_session: dict[str, list[CaseRow]] = {}
    for case in cases_of(history, chosen):
        if one.node in case.nodes:
            by_session.setdefault(case.session, []).append(case)
    rows = [
        (session, max(case.time for case in listed), Counter(case.result for case in listed))
        for session, listed in sorted(by_session.items(), reverse=True)
    ]
    return Past(rows, _changed(history, chosen, one, sorted(by_session)), _verdict(history, one))


def _changed(
    history: History, chosen: Selection, one: SlowNode, sessions: list[str]
) -> list[tuple[str, str, list[HostChange]]]:
    if history.from_csv or not sessions:
        return []
    since = min(flag.since for flag in one.flags)
    before = [name for name in sessions if name < since]
    after = [name for name in sessions if name >= since]
    pairs = [(before[-1:], after[:1]), (after[:1], after[-1:])]
    found = []
    for old, new in pairs:
        if not (old and new) or old == new:
            continue
        both = dataclasses.replace(chosen, sessions=(*old, *new))
        records = [record for record in history.records(both) if one.node in record.hosts]
        differ = hostfacts.differences(records, {*old}, {*new})
        found.append((old[0], new[0],
                      [*differ.builds, *differ.variables,
                       *(fact for fact in differ.hosts if one.node in fact.where)]))  # fmt: skip
    return found


def _verdict(history: History, one: SlowNode) -> str:
    """Return the line that the last `plumbline clear` left for Slurm."""
    # Names of records may hold anything.
    if any("/" in name or name.startswith(".") for name in (one.system, one.node)):
        return ""
    try:
        with files.open_binary(history.source / "verdicts" / one.system / one.node) as file:
            return one_line(file.read(2000).decode(errors="replace"))
    except OSError:
        return ""
