"""Selects the nodes of a sweep by the time of their last measurement, the oldest first.

A node that is tried and not measured, as its jobs end in errors, comes first once more. After that,
the others come before it until they are older: within a budget, it would take their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.history.history import History
from plumbline.history.rows import NodeRow
from plumbline.history.series import Selection
from plumbline.operate import sweep as sweeps
from plumbline.operate.sweep import Sweep
from plumbline.site import configuration

#: Earlier sweeps of the same set whose durations are used.
SWEEPS = 10
#: Quantile of the durations that is planned for each node.
MOST = 0.9
#: Seconds of a job before its session's name is made and after its last case ends: Python and
#: ReFrame start, and the summary. Twice the 7 to 9 s that it took on two busy cores.
AROUND = 15


@dataclass
class Due:
    """What a sweep by age measures.

    :ivar nodes: to measure now, the oldest first. :ivar later: due, but not within the budget.
    :ivar recent: number of the nodes that were measured recently enough.
    :ivar never: number of the due that were never measured.
    :ivar unread: why earlier sweeps cannot be read, a line each.
    :ivar seconds: planned for each node; 0 if nothing is known. :ivar known: number of jobs that
        it is from; 0 if it is the time limit of a job.
    """

    nodes: list[str]
    later: list[str] = field(default_factory=list)
    recent: int = 0
    never: int = 0
    seconds: float = 0.0
    known: int = 0
    unread: list[str] = field(default_factory=list)


def select(sweep: Sweep, older_than: timedelta, budget: float) -> Due:
    """Select the nodes of a sweep that were last measured longer ago than ``older_than``, or never,
    and of the skipped nodes those that are due too.

    :arg budget: seconds of wall time; as many nodes are planned as fit in it, with so many jobs at
        once as the sweep has; 0 for no limit.
    """
    earlier, unread = _earlier(sweep)
    rows, durations = _history(sweep, earlier)
    tried = _tried(earlier)
    until = np.datetime64("now", "s") - np.timedelta64(older_than)
    found = oldest_first(sweep.nodes, rows, until, sweep.partition, tried)
    found.unread = unread
    skipped = {*oldest_first(sweep.skipped, rows, until, sweep.partition, {}).nodes}
    sweep.skipped = {node: why for node, why in sweep.skipped.items() if node in skipped}
    if budget:
        found.known = len(durations)
        found.seconds = sweep.seconds
        if durations:
            found.seconds = float(np.quantile(durations, MOST, method="lower")) + AROUND
        # Jobs run at once; a node whose job would end after the budget is left for the next sweep.
        count = sweep.jobs * int(budget // found.seconds)
        found.nodes, found.later = found.nodes[:count], found.nodes[count:]
    return found


def oldest_first(
    nodes: Iterable[str],
    rows: Iterable[NodeRow],
    until: np.datetime64,
    partition: str,
    tried: Mapping[str, np.datetime64],
) -> Due:
    """Return the nodes that were last measured as a whole before a time: those never measured
    first, then by that time.

    :arg tried: when each was last tried but one, which counts if it is later.
    """
    last = {row.node: row.whole for row in rows if row.partition == partition and row.whole}
    nodes = list(nodes)
    due = [node for node in nodes if node not in last or last[node] < until]
    never = np.datetime64(0, "s")
    # Sorting is stable: nodes of equal age stay in the order of their names.
    due.sort(key=lambda node: max(last.get(node, never), tried.get(node, never)))
    return Due(due, [], len(nodes) - len(due), sum(node not in last for node in due))


def _history(sweep: Sweep, earlier: list[Sweep]) -> tuple[list[NodeRow], list[float]]:
    """Return the nodes of the history, and the durations of the sessions of earlier sweeps with the
    same arguments, in seconds."""
    alike = [other.name for other in earlier if other.arguments == sweep.arguments][:SWEEPS]
    try:
        with History() as history:
            rows = history.nodes(Selection(system=sweep.system))
            sessions = history.sessions(Selection(system=sweep.system)) if alike else []
    except Fault as fault:
        if not fault.code.startswith("history."):
            raise
        # Nothing was measured yet.
        return [], []
    durations, folder = [], paths.results() / "sessions"
    for row in sessions:
        began = configuration.began(folder / row.session).replace(tzinfo=None)
        if row.extras.get("sweep") in alike and "node" in row.extras:
            durations.append(float((row.end - np.datetime64(began, "s")) / np.timedelta64(1, "s")))
    return rows, durations


def _earlier(sweep: Sweep) -> tuple[list[Sweep], list[str]]:
    """Return the earlier sweeps of the partition, the newest first, and why others cannot be
    read."""
    found, unread = [], []
    for name in reversed(sweeps.names()):
        try:
            other = Sweep.read(sweeps.folder_of(name))
        except Fault as fault:
            unread.append(fault.coded())
            continue
        if (other.name, other.system, other.partition) == (name, sweep.system, sweep.partition):
            found.append(other)
    return found, unread


def _tried(earlier: Iterable[Sweep]) -> dict[str, np.datetime64]:
    """Return when each node was last tried but one: in the last but one of these sweeps, which are
    sorted from the newest on, in which a job started on it."""
    times = defaultdict(list)
    for sweep in earlier:
        began = np.datetime64(configuration.began(sweep.folder).replace(tzinfo=None), "s")
        claims = (sweep.folder / "nodes").glob("*")
        for node in {path.name.partition(".cut-")[0] for path in claims}:
            times[node].append(began)
    return {node: found[1] for node, found in times.items() if len(found) > 1}
