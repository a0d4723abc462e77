"""What a history shows as of today: the states of test cases, what is slow, and what changed."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from plumbline.analysis import causes, trend
from plumbline.analysis.trend import series_changes
from plumbline.core import paths, pool
from plumbline.core.text import pluralize
from plumbline.history import fleets
from plumbline.history.history import History
from plumbline.history.rows import Measured
from plumbline.history.series import Selection, Series
from plumbline.output.report import slow_nodes, status
from plumbline.output.report.figures import over_nodes
from plumbline.output.report.site_files import SiteFiles
from plumbline.output.report.triage import OpenFinding, Triage
from plumbline.reference import waivers
from plumbline.reference.waivers import Waiver


class Findings:
    """What a history shows, with the waivers of today.

    :ivar sessions: of the selection, oldest first.
    :ivar measured: its checks, by system and name; ``series``: number of their series.
    :ivar screened: of each system.
    :ivar changes: of each series that has any, oldest first. :ivar causes: the newest first.
    :ivar judged: whether a series had enough nights to find changes in.
    """

    def __init__(
        self,
        history: History,
        select: Selection,
        valid: SiteFiles,
        known: Sequence[Waiver],
        now: datetime.datetime,
        stale: datetime.timedelta,
        say: Callable[[str], None] | None,
    ):
        """:arg known: waivers. :arg stale: age above which a latest session is old.
        :arg say: receives a line for each step."""
        say, day = say or (lambda line: None), now.date()
        self.sessions = history.sessions(select)
        self.measured = {(check.system, check.check): check for check in history.measured(select)}
        self.series = sum(check.series for check in self.measured.values())
        say(f"{pluralize(len(self.sessions), 'session')}, {self.series} series")
        self.triage = Triage(known, valid.references, day)
        self.systems = status.of_systems(
            history, self.sessions, select, now, stale, valid.inventory, self.triage.apply
        )
        say("screening nodes")
        self.screened = {one.system: slow_nodes.of_system(history, one, select, known, day)
                         for one in self.systems}  # fmt: skip
        say("searching for changes")
        nodes = [one for found in self.screened.values() for one in found.nodes]
        slow = [one for one in nodes if one.now and one.alone]
        searched, count = _searched(history, select, self.measured, slow)
        listing = series_changes.of_history(searched, count=count, processes=pool.PROCESSES)
        causes.waive(listing.changes, known, day)
        self.changes, self.judged = listing.by_key(), bool(listing.judged)
        self.causes = causes.grouped(listing.changes)


def _searched(
    history: History,
    select: Selection,
    measured: dict[tuple[str, str], Measured],
    slow: list[slow_nodes.SlowNode],
) -> tuple[Iterator[Series], int]:
    """Return the series that are searched for changes, and their number, at most: all that may have
    enough nights; of a figure of many nodes, the median over these, and the slow nodes."""
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
    of_slow = (series for one in slow for series in slow_nodes.series_of(history, select, one))
    found = itertools.chain(
        (series for series, _ in medians),
        (series for series in others if over_nodes(series.key) not in fleet),
        (series for series in of_slow if fleet and over_nodes(series.key) in fleet),
    )
    return found, len(medians) + sum(check.series for check in checks)


def to_acknowledge(
    history: History,
    select: Selection,
    now: datetime.datetime,
    say: Callable[[str], None] = lambda line: None,
) -> list[OpenFinding]:
    """Return what can be acknowledged, as on the report's start page: red test cases, then what is
    slow, and then active losses, the newest first.

    :arg say: receives also what of the site's references and inventories is invalid, and skipped.
    :raises Fault: if nothing is selected, or a register of the references or a waiver is invalid:
        the file of the waivers is about to be edited.
    """
    known = waivers.load(paths.reference())
    many = sum(check.series for check in history.measured(select)) >= series_changes.MANY
    found = Findings(history, select, SiteFiles(say), known, now, datetime.timedelta.max,
                     say if many else None)  # fmt: skip
    triage = found.triage
    cases = triage.of_cases(case for system in found.systems for case in system.cases)
    slow = (one for name, of in found.screened.items() for one in triage.of_flags(name, of.now))
    losses = (one for cause in found.causes for one in triage.of_cause(cause, found.changes))
    return [*cases, *slow, *losses]
