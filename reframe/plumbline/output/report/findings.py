"""The series of a history that are searched for changes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plumbline.analysis import trend
from plumbline.analysis.trend import series_changes
from plumbline.history import fleets
from plumbline.history.history import History
from plumbline.history.rows import Measured
from plumbline.history.series import Selection, Series
from plumbline.output.report import slow_nodes
from plumbline.output.report.figures import over_nodes


@dataclass
class Candidates:
    """Series that may have enough nights to be judged.

    :ivar count: their number, at most. :ivar judged: whether one had enough nights, so far.
    """

    found: Iterator[Series]
    count: int
    judged: bool = False

    @property
    def series(self) -> Iterator[Series]:
        """The series."""
        for series in self.found:
            self.judged = self.judged or series_changes.enough(series)
            yield series


def choose(
    history: History,
    select: Selection,
    measured: Mapping[tuple[str, str], Measured],
    flagged: Mapping[str, list[slow_nodes.SlowNode]],
) -> Candidates:
    """Return all series; of a figure of many nodes, the median over these, and the nodes that are
    slow now.

    :arg measured: by system and check. :arg flagged: nodes by system.
    """
    medians = fleets.medians(history, select, series_changes.FLEET)
    fleet = {series.key for series, _ in medians}
    nodes: Counter = Counter()
    for series, number in medians:
        nodes[series.key.system, series.key.check] += number
    checks = [
        check
        for name, check in measured.items()
        if check.most >= trend.NIGHTS and check.series > nodes[name]
    ]
    others = itertools.chain.from_iterable(history.by_check(checks, select))
    now = (one for listed in flagged.values() for one in listed if one.now and one.alone)
    of_slow = itertools.chain.from_iterable(
        slow_nodes.series_of(history, select, one) for one in now
    )
    found = itertools.chain(
        (series for series, _ in medians),
        (series for series in others if over_nodes(series.key) not in fleet),
        (series for series in of_slow if fleet and over_nodes(series.key) in fleet),
    )
    return Candidates(found, len(medians) + sum(check.series for check in checks))
