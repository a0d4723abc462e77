"""Whether a node that comes back is as fast as it was, and as its peers are: go, no-go, or not
enough data.

Each figure of the node, measured now, is compared with what is expected of it, twice:

* **own**: the present level of its peers, plus the node's usual distance from them in its earlier
  nights, without those on which ``plumbline screen`` flags it;
* **peers**: the present level of its peers, from whom healthy nodes differ by their usual spread.

The tests are in :mod:`plumbline.analysis.clear.comparison`.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from plumbline.analysis import screen
from plumbline.analysis.clear.comparison import (
    ClearRules,
    Expected,
    NodeFigure,
    as_difference,
    compare,
    verdicts,
)
from plumbline.analysis.screen import detection, repeats
from plumbline.analysis.screen.input import NIGHT_HOURS, Group, of_series
from plumbline.check.record import MEASURED
from plumbline.core.errors import Fault
from plumbline.core.text import natural, pluralize, printable
from plumbline.history.history import History
from plumbline.history.rows import CaseId, CaseRow, SessionRow
from plumbline.history.series import Selection, Series

#: Overall verdict -> exit code.
EXIT = {"go": 0, "no-go": 1, "not enough data": 2}
#: Verdicts of a figure, the worst first.
ORDER = ("regressed", "too little data", "unchanged")

#: In place of the sessions that are judged: sorts after the names of all other sessions, and has no
#: time, so that it is a night of its own (:func:`plumbline.analysis.screen.nights`).
NOW = "~now"
#: Most peers that are used: the error of the median of 100 is an eighth of the noise of one value.
PEERS = 100
#: Age in days up to which a night of the peers is used for their present level.
DAYS = 14

#: The test case of a record or of the key of a series, the same on all nodes.
_check_of = attrgetter("system", "partition", "environment", "check")


@dataclass
class ClearedFigure:
    """One figure of the node. Numbers that are not known are NaN.

    :ivar unit: the node, or node and GPU. :ivar measure: unit of measurement.
    :ivar now: level of the values now, in that unit. :ivar values: how many there are.
    :ivar usual: what the node usually has, at the present level of its peers; from ``nights``.
    :ivar peers: the peers' present level; from ``number`` of them.
    :ivar difference: from usual, or without that from the peers; relative, positive is better.
    :ivar low, high: its 90 % interval, so that ``low`` is the one-sided 95 % bound.
    :ivar adjusted: p-value of a loss, by Holm, the smaller of both comparisons.
    """

    label: str
    unit: tuple[str, ...]
    better: str
    measure: str
    values: int
    now: float
    usual: float = math.nan
    nights: int = 0
    peers: float = math.nan
    number: int = 0
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    adjusted: float = math.nan
    verdict: str = "too little data"
    reason: str = ""


@dataclass
class Clearance:
    """The verdict on a node, for ``reasons``."""

    node: str
    verdict: str
    reasons: list[str]
    rows: list[ClearedFigure]
    sessions: list[str]

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]


def clear_node(
    history: History,
    node: str,
    sessions: Collection[str],
    select: Selection,
    before: str,
    aside: Collection[str],
    rules: ClearRules,
) -> Clearance:
    """Judge a node by sessions of the history.

    :arg sessions: those in which it was measured now, one at least.
    :arg aside: nodes that are no peers, as they are judged too: they may be slow alike.
    :arg before: name of a session, or the beginning of one; the node's own nights are those before
        it. If it is empty, all on which screening does not flag it.
    """
    wanted = set(sessions)
    found = history.series(select, samples=False)
    known = {_check_of(s.key) for s in found}
    measured = {_check_of(s.key) for s in found if _of_node(s, node, wanted).any()}
    found = [s for s in found if _check_of(s.key) in measured]
    first = min(wanted)
    marked = _marked(found, node, wanted)
    tonight = _night_of(marked, first)
    cutoff = f"{_start(first) - datetime.timedelta(days=DAYS):%Y%m%dT%H%M%S}"
    used = screen.chosen(history.units(select)) | {NOW}
    groups = [_few(group, node, {*aside} - {node}) for group in of_series(marked, used)]
    slow = _slow_nights(groups, node)
    rows, figures = [], []
    for group in groups:
        for unit in sorted({u for night, u in group.values if night == NOW and u[0] == node}):
            figures.append(_figure(group, unit, tonight, cutoff, slow, before))
            rows.append(_row(group, unit, figures[-1]))
    compared = compare(figures)
    names, adjusted = verdicts(compared, [row.better for row in rows], rules.margin)
    for row, pair, name, p in zip(rows, compared, names, adjusted, strict=True):
        _fill(row, pair, name, p, rules.margin)
    rows.sort(key=lambda row: (ORDER.index(row.verdict), row.difference, row.label, row.unit))
    chosen = Selection(sessions=tuple(wanted))
    cases = _cases(history, node, chosen)
    failed = sum(case.result == "fail" for case in cases)
    # What neither the node nor a peer has ever run cannot run on the partition.
    without = [
        f"{case.check}: {printable(case.reason)}"
        for case in cases
        if case.result not in MEASURED and (case.result != "skip" or _check_of(case) in known)
    ]
    lost = _missing(history, node, chosen)
    without += [f"{case.check}: planned, and has no record" for _, case in lost]
    folders = [f"{history.source / 'sessions' / name}/" for name in wanted]
    unread = sum(fault.startswith((*folders,)) for fault in history.faults)
    verdict, reasons = _verdict(rows, failed, without, unread, rules)
    return Clearance(node, verdict, reasons, rows, sorted(wanted))


def _own_sessions(history: History, node: str, select: Selection) -> list[SessionRow]:
    """Return the sessions that ran on the node, in a job of a sweep."""
    return [row for row in history.sessions(select) if row.extras.get("node") == node]


def _cases(history: History, node: str, select: Selection) -> list[CaseRow]:
    """Return the test cases of a node. One that ended before its job started has no nodes in its
    record, and is known by its session."""
    own = {row.session for row in _own_sessions(history, node, select)}
    try:
        cases = history.cases(select)
    except Fault as err:
        if err.code != "history.nothing-selected":
            raise
        cases = []
    return [case for case in cases if not case.attempt
            and (node in case.nodes or case.node == node or case.session in own)]  # fmt: skip


def _missing(history: History, node: str, select: Selection) -> list[tuple[str, CaseId]]:
    """Return the planned test cases of a node without a record, each with its session."""
    lost = history.missing(select)
    # Without a record, a session has no partition that could be selected.
    names = {name for name, case in lost if case.node != node}
    own = _own_sessions(history, node, Selection(sessions=(*names,))) if names else []
    of_node = {row.session for row in own}
    return [(name, case) for name, case in lost if case.node == node or name in of_node]


def _of_node(series: Series, node: str, sessions: Collection[str]) -> np.ndarray:
    """Return which values are of the node alone, in these sessions."""
    alone = np.asarray(series.nodes == node) | (series.key.node == node)
    return np.asarray(alone & np.isin(series.sessions.astype(str), [*sessions]))


def _marked(found: Iterable[Series], node: str, sessions: Collection[str]) -> list[Series]:
    """Return series in which the node's values of these sessions are of :data:`NOW`."""
    marked = []
    for series in found:
        now = _of_node(series, node, sessions)
        names = np.where(now, NOW, series.sessions.astype(object))
        marked.append(replace(series, sessions=names))
    return marked


def _night_of(marked: Iterable[Series], first: str) -> str:
    """Return the night of the peers that is nearest to a session, if it is the same night."""
    night_of = screen.nights_of(marked)
    start = _start(first)
    away = {name: abs(_start(name) - start) for name in night_of.keys() - {NOW}}
    nearest = min(away, key=lambda name: (away[name], name), default="")
    if not nearest or away[nearest] > datetime.timedelta(hours=NIGHT_HOURS):
        return ""
    return night_of[nearest]


def _start(session: str) -> datetime.datetime:
    return datetime.datetime.strptime(session[:15], "%Y%m%dT%H%M%S")


def _few(group: Group, node: str, aside: Collection[str]) -> Group:
    """Return a group with the node and :data:`PEERS` others: those measured on most of the node's
    nights, and those measured last. In sweeps of a part of the nodes each day these differ."""
    own = {night for night, unit in group.values if unit[0] == node}
    last: dict[str, str] = {}
    shared: Counter[str] = Counter()
    for night, (name, *_) in group.values:
        last[name] = max(night, last.get(name, ""))
        shared[name] += night in own
    ordered = sorted(last.keys() - {node, *aside}, key=natural)
    kept = {node, *sorted(ordered, key=lambda name: -shared[name])[: PEERS // 2]}
    for name in sorted(ordered, key=lambda name: last[name], reverse=True):
        if len(kept) > PEERS:
            break
        kept.add(name)
    values = {key: rows for key, rows in group.values.items() if key[1][0] in kept}
    return replace(group, values=values, pairs={})


def _slow_nights(groups: list[Group], node: str) -> list[tuple[str, str]]:
    """Return the first and the last night of each slow spell of the node and its GPUs."""
    earlier = [
        replace(group, values={k: rows for k, rows in group.values.items() if k[0] != NOW})
        for group in groups
    ]
    return [
        (flag.since, flag.until or NOW)
        for flag in screen.screen(earlier, sampled=True).flagged
        if flag.name[0] == node and flag.kind in ("node", "gpu")
    ]


def _figure(
    group: Group,
    unit: tuple[str, ...],
    tonight: str,
    cutoff: str,
    slow: list[tuple[str, str]],
    before: str,
) -> NodeFigure:
    sign = -1.0 if group.better == "lower" else 1.0
    now = sign * np.log(group.values[NOW, unit])
    place = unit[1:]
    units = [unit, *sorted({u for _, u in group.values if u[1:] == place and u != unit})]
    ordered = sorted({night for night, _ in group.values if night != NOW})
    healthy = [night for night in ordered if night < (before or NOW)
               and not any(first <= night <= last for first, last in slow)]  # fmt: skip
    own = healthy[-detection.MEMORY :]
    # Older nights are only used where the last ones were slow.
    begin = min([*own, *ordered[-detection.MEMORY :]], default="")
    ordered = [night for night in ordered if night >= begin]
    row, column = ({name: n for n, name in enumerate(names)} for names in (ordered, units))
    cells: dict[tuple[int, int], list[float]] = {}
    for (night, of), listed in group.values.items():
        if night not in row or of not in column:
            continue
        if of == unit and night not in own:
            continue
        cells[row[night], column[of]] = [sign * math.log(value) for value in listed]
    values, factors = repeats.combine(cells, len(ordered), len(units))
    squares, df = float(np.sum((now - now.mean()) ** 2)), len(now) - 1
    for listed in cells.values():
        # The first of several values may be what caused the repeats.
        logs = np.array(listed[1:])
        if len(logs) > 1:
            squares, df = squares + float(np.sum((logs - logs.mean()) ** 2)), df + len(logs) - 1
    return NodeFigure(
        values,
        factors,
        np.array([night[:15] >= cutoff for night in ordered], bool),
        row.get(tonight, -1),
        now,
        detection.floor_of([value for listed in group.values.values() for value in listed]),
        (squares, df),
        " ".join(group.label.split()[:2]),
    )


def _row(group: Group, unit: tuple[str, ...], figure: NodeFigure) -> ClearedFigure:
    sign = -1.0 if group.better == "lower" else 1.0
    level = float(np.exp(sign * np.median(figure.now)))
    return ClearedFigure(group.label, unit, group.better, group.unit, len(figure.now), level)


def _fill(
    row: ClearedFigure,
    pair: tuple[Expected | None, Expected | None],
    verdict: str,
    adjusted: float,
    margin: float,
) -> None:
    sign = -1.0 if row.better == "lower" else 1.0
    row.verdict, row.adjusted = verdict, adjusted
    own, peers = pair
    if own is not None:
        row.usual, row.nights = math.exp(sign * own.level), own.count
    if peers is not None:
        row.peers, row.number = math.exp(sign * peers.level), peers.count
    decides = own or peers
    if decides is None:
        row.reason = "neither earlier nights of the node nor enough peers to compare with"
        return
    row.difference, row.low, row.high = (
        math.expm1(decides.difference + step) for step in (0.0, -decides.reach, decides.reach)
    )
    if verdict == "too little data":
        row.reason = f"a loss of {100 * margin:g} % can neither be shown nor excluded"
    elif verdict == "regressed":
        slower = [
            f"{-math.expm1(one.difference):.1%} slower than {what}"
            for what, one in (("usual", own), ("its peers", peers))
            if one is not None and one.difference <= -as_difference(detection.LEAST, row.better)
        ]
        row.reason = "; ".join(slower)


def short_name(row: ClearedFigure, width: int) -> str:
    """Return the name of a figure without the place, shortened in its middle."""
    name = " ".join([*row.label.split()[1:], *row.unit[1:]])
    half = (width - 3) // 2
    return name if len(name) <= width else f"{name[:half]}...{name[-half:]}"


def _verdict(
    rows: list[ClearedFigure], failed: int, without: list[str], unread: int, rules: ClearRules
) -> tuple[str, list[str]]:
    """Return the verdict on the node, and the reasons for it.

    :arg failed: number of test cases that failed.
    :arg without: those without a valid result, each with the reason.
    :arg unread: number of places in the files of its sessions that could not be read.
    """
    counts, total = Counter(row.verdict for row in rows), len(rows)
    reasons = [f"{row.label}: {row.reason}" for row in rows if row.verdict == "regressed"][:1]
    if counts["regressed"]:
        reasons.insert(0, f"{counts['regressed']} of {total} figures regressed")
    if failed:
        reasons.append(f"{pluralize(failed, 'test case')} failed")
    if counts["regressed"] or failed:
        return "no-go", reasons
    few = counts["too little data"]
    if few:
        reasons.append(f"{few} of {total} figures have too little data")
    if without:
        count = pluralize(len(without), "test case")
        reasons.append(f"{count} without a valid result: {without[0]}")
    if unread:
        reasons.append(f"{pluralize(unread, 'line')} of its sessions could not be read")
    if not total:
        return "not enough data", reasons or ["no figure of the node was measured"]
    if without or unread or few > rules.allow_inconclusive * total or few == total:
        return "not enough data", reasons
    return "go", [f"no loss in {counts['unchanged']} of {total} figures", *reasons]


def latest(history: History, node: str, select: Selection) -> list[str]:
    """Return the sessions of the last night in which a node was measured by itself, also if all
    its test cases ended without a result.

    :raises Fault: if it never was.
    """
    cases = _cases(history, node, select)
    names = {case.session for case in cases if len(case.nodes) < 2}
    # What began earlier is of no night with the last of these.
    since = _start(max(names)) - datetime.timedelta(hours=NIGHT_HOURS) if names else None
    names |= {name for name, _ in _missing(history, node, replace(select, since=since))}
    if not names:
        raise Fault(
            f"node {node} was never measured by itself: measure it with `plumbline clear {node}`",
            code="history.unknown-node",
        )
    night_of = screen.nights(names)
    last = max(night_of.values())
    return sorted(name for name in names if night_of[name] == last)
