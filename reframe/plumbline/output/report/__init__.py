"""The report: a folder of static pages that ask nothing of any network."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import itertools
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plumbline.check.record import FigureRecord
from plumbline.core import paths, units
from plumbline.core.text import counted
from plumbline.history.history import CaseRow, History, SessionRow
from plumbline.history.series import Key, Selection, Series
from plumbline.output import query
from plumbline.output.report import figures, findings, provenance, published, site, standing, text
from plumbline.output.report.figures import Glance, Panel
from plumbline.output.report.findings import SeriesChange
from plumbline.output.report.standing import CaseState
from plumbline.reference import lookup, waivers

#: Days before a system's latest session in which a change was detected that is told as new.
RECENT = np.timedelta64(30, "D")
#: Sessions of changes, beside the latest ones, that get a page at most.
CHANGED = 60
#: Days before a waiver expires from which on that is said.
SOON = datetime.timedelta(days=14)


@dataclass(frozen=True)
class Written:
    """What was written.

    :ivar red: test cases that are red.
    :ivar bytes: of all files.
    """

    folder: Path
    pages: int
    series: int
    sessions: int
    red: int
    bytes: int

    def __str__(self) -> str:
        """In a line."""
        return (
            f"{self.folder / 'index.html'}: {self.pages} pages, {self.bytes / 1e6:.1f} MB; "
            f"{self.red} of the test cases red"
        )


def write(
    history: History,
    out: Path,
    select: Selection,
    now: datetime.datetime | None = None,
    stale: datetime.timedelta = datetime.timedelta(hours=48),
    latest: int = 10,
    say: Callable[[str], None] = lambda line: None,
) -> Written:
    """Writes the report of a history to a folder, whole or not at all.

    :arg now: the time that ages are told from.
    :arg stale: age from which a latest session is told to be old.
    :arg latest: sessions of each system that get a page of their own.
    :raises Fault: if there is no session, or the folder cannot be written or is no report.
    """
    now = now or datetime.datetime.now(datetime.timezone.utc)
    with site.replaced(out) as folder:
        report = _Report(history, select, now, stale, latest, say)
        made = report.write(folder)
    return dataclasses.replace(made, folder=out)


class _Report:
    """What the pages tell, gathered once."""

    def __init__(self, history, select, now, stale, latest, say):
        self.history, self.select, self.now, self.stale = history, select, now, stale
        self.sessions: list[SessionRow] = history.sessions(select)
        self.measured = {(one.system, one.check): one for one in history.measured(select)}
        self.series = sum(one.series for one in self.measured.values())
        say(f"{counted(len(self.sessions), 'session')}, {self.series} series")
        self.standings = standing.of_all(history, self.sessions, select, now, stale)
        self.cases: dict[tuple[str, str], list[CaseState]] = {}
        for case in (case for one in self.standings for case in one.cases):
            self.cases.setdefault((case.system, case.check), []).append(case)
        say("looking for changes")
        self.nights = findings.NIGHTS
        self.judged = False
        self.changes: dict[Key, list[SeriesChange]] = findings.of_all(*self._of_many_nights())
        #: What other pages show of figures, which are there only while their check's is made.
        self._changed: dict[Key, Glance] = {}
        self._found: dict[tuple, Glance | None] = {
            (*case.identity, *finding.about): None
            for listed in self.cases.values()
            for case in listed
            for finding in (*case.findings, *case.near)
        }
        folder = paths.reference()
        references = lookup.loaded(folder)
        self.provenance = provenance.Provenance(references, query.misprints(folder), folder)
        self.published = published.Published(references)
        self.waivers = {waiver.id: waiver for waiver in waivers.load(folder)}
        self.events = findings.events([c for listed in self.changes.values() for c in listed])
        self.paged = self._paged(latest)
        self.say = say

    def _of_many_nights(self) -> tuple[Iterator[Series], int]:
        """The series that may have nights enough to be judged, and how many there are."""
        checks = [one for one in self.measured.values() if one.most >= findings.NIGHTS]

        def read() -> Iterator[Series]:
            for one in itertools.chain.from_iterable(self.history.by_check(checks, self.select)):
                self.judged = self.judged or findings.judged(one)
                yield one

        return read(), sum(one.series for one in checks)

    def _figures(self) -> Iterator[tuple[str, str, list[Panel]]]:
        """System, check and figures, of one check after another; those without figures as well."""
        read = self.history.by_check(self.measured.values(), self.select)
        for about in sorted({*self.cases, *self.measured}):
            series = next(read) if about in self.measured else []
            listed = figures.grouped(series, self.changes)
            for figure in listed:
                self.published.take(figure)
                for one in figure.members:
                    if one.key in self.changes:
                        self._changed[one.key] = figure.glance(one)
                    if _about(one.key) in self._found:
                        self._found[_about(one.key)] = figure.glance(one)
            yield *about, listed

    def _paged(self, latest: int) -> set[str]:
        """The sessions with a page: the latest of each system, and those of recent changes."""
        if self.history.source.is_file():
            return set()
        seen: Counter = Counter()
        chosen: dict[str, None] = {}
        for row in reversed(self.sessions):
            seen[row.system] += 1
            if seen[row.system] <= latest:
                chosen[row.session] = None
        changed: dict[str, None] = {}
        for event in self.events:
            for name in (event.first.before, event.first.after):
                if name and name not in chosen and len(changed) < CHANGED:
                    changed[name] = None
        return {*chosen, *changed}

    # -- addresses ----------------------------------------------------------------------------

    @staticmethod
    def system_path(system: str) -> str:
        return f"systems/{text.slug(system)}.html"

    @staticmethod
    def check_path(system: str, check: str) -> str:
        return f"checks/{text.slug(system, check)}.html"

    def session_path(self, session: str) -> str:
        """Page of a session, or empty where it has none."""
        return f"sessions/{text.slug(session)}.html" if session in self.paged else ""

    def figure_path(self, key: Key) -> str:
        """Page and anchor of the figure that a series is part of."""
        return f"{self.check_path(key.system, key.check)}#{self._changed[key].anchor}"

    def named(self, key: Key) -> str:
        """The name of the figure that a series is part of."""
        return self._changed[key].name

    def found_path(self, case: CaseState, finding) -> str:
        """Page and anchor of the figure that a test case's finding is about."""
        path = self.check_path(case.system, case.check)
        figure = self.figure(case, finding)
        return f"{path}#{figure.anchor}" if figure else path

    # -- pages --------------------------------------------------------------------------------

    def write(self, folder: Path) -> Written:
        """Writes all pages."""
        made = site.Site(
            folder,
            report=self,
            now=np.datetime64(self.now.replace(tzinfo=None), "s"),
            written=int(self.now.timestamp()),
            stale=int(self.stale.total_seconds()),
            words=WORDS,
            counted=counted,
            latest=figures.LATEST,
        )
        made.assets()
        self._systems(made)
        recent = [event for event in self.events if self._recent(event)]
        made.page("index.html", "index.html.j2", standings=self.standings, recent=recent)
        made.page("changes.html", "changes.html.j2", events=self.events)
        tables = self.published.tables()
        made.page("published.html", "published.html.j2", tables=tables)
        for table in tables:
            made.table(f"data/published/{table.anchor}.csv", table.columns, table.rows())
        made.page("about.html", "about.html.j2")
        self._sessions(made)
        made.page("sessions.html", "sessions.html.j2")
        for path, (title, lead, cards) in self.provenance.pages().items():
            made.page(path, "references.html.j2", title=title, lead=lead, cards=cards)
        made.file(site.MARK, json.dumps({"written": self.now.isoformat(), "sessions":
                  len(self.sessions), "series": self.series}) + "\n")  # fmt: skip
        red = sum(len(one.red) for one in self.standings)
        return Written(folder, made.pages, self.series, len(self.sessions), red, made.bytes)

    def _recent(self, event) -> bool:
        latest = next((one.latest for one in self.standings
                       if one.system == event.first.key.system), None)  # fmt: skip
        return latest is not None and event.detected >= latest.end - RECENT

    def _systems(self, made: site.Site) -> None:
        """The pages of systems, and of each check when its system's page comes to it: the figures
        of no more than some checks are there at a time."""
        standings = {one.system: one for one in self.standings}
        for system, of_system in itertools.groupby(self._figures(), key=lambda found: found[0]):
            checks = self._checks(made, of_system)
            if system in standings:
                made.page(self.system_path(system), "system.html.j2", one=standings.pop(system),
                          checks=checks)  # fmt: skip
            # Records may name a system that no session is of.
            collections.deque(checks, maxlen=0)
        for one in standings.values():
            made.page(self.system_path(one.system), "system.html.j2", one=one, checks=())

    def _checks(self, made: site.Site, of_system) -> Iterator[tuple[str, list[Panel]]]:
        """The checks of a system and their figures; the page of each is written before."""
        for system, check, listed in of_system:
            self._check(made, system, check, listed)
            yield check, listed

    def _check(self, made: site.Site, system: str, check: str, listed: list[Panel]) -> None:
        axes: dict[str, int] = {}
        charts = []
        for figure in listed:
            target = self._target(figure)
            charts.append(figure.data(axes, target))
            path = f"data/{text.slug(system, check)}/{figure.anchor}.csv"
            made.table(path, figures.CSV_COLUMNS, figures.csv_rows(figure))
        curves = figures.curves(listed)
        for curve in curves:
            path = f"data/{text.slug(system, check)}/{curve.anchor}.csv"
            made.table(path, figures.CURVE_COLUMNS, curve.rows())
        shared = [json.loads(axis) for axis in axes]
        ids = {session: None for axis in shared for session in axis["session"]}
        data = {
            "pages": {i: f"../{self.session_path(i)}" for i in ids if i in self.paged},
            "axes": shared,
            "references": {
                name: f"../{self.provenance.path(name)}"
                for figure in listed
                for name in sorted({str(n) for one in figure.members for n in one.references if n})
            },
            "figures": charts,
            "curves": [curve.data() for curve in curves],
        }
        made.page(self.check_path(system, check), "check.html.j2", system=system, name=check,
                  figures=listed, cases=self.cases.get((system, check), []), data=site.data(data),
                  folder=f"data/{text.slug(system, check)}",
                  curves=curves)  # fmt: skip

    def _target(self, figure: Panel) -> float | None:
        """The value of the reference that decided last, in the figure's unit."""
        row = self.provenance.references.tables.rows.get((figure.references or [""])[0])
        if row is None:
            return None
        try:
            return row.used(figure.first.unit)[0]
        except units.UnitError:
            return None

    def _sessions(self, made: site.Site) -> None:
        """The pages of single sessions, from their whole records."""
        macros = made.macros("record.html.j2", root="../")
        for row in self.sessions:
            if row.session in self.paged:
                records = sorted(self._records(row, macros), key=operator.itemgetter(0))
                made.page(self.session_path(row.session), "session.html.j2", row=row,
                          records=[told for _, told in records])  # fmt: skip

    def _records(self, row: SessionRow, macros) -> Iterator[tuple[tuple, str]]:
        """What a session's page says of each of its cases, and where: the worst first. A record
        takes far more memory than its text."""
        chosen = dataclasses.replace(self.select, sessions=(row.session,))
        rows = {(r.case, r.attempt): r for r in standing.cases_of(self.history, chosen)}
        for fields in self.history.records(chosen) if rows else ():
            case = rows.get((fields.case, fields.attempt))
            if case is not None:
                yield _worst_first(case), macros.record(fields, case)

    # -- what templates ask -------------------------------------------------------------------

    def missing(self, row: SessionRow) -> int:
        """Planned cases of a session that no record tells of."""
        return standing.missing(row, self.select)

    def running(self, row: SessionRow) -> bool:
        """Whether a session seems to run still."""
        return standing.running(self.history, row, self.select, self.now)

    def silent(self, row: SessionRow) -> str:
        """How old a session's last sign of life is."""
        hours = (np.datetime64(self.now.replace(tzinfo=None), "s") - row.end) / np.timedelta64(
            1, "h"
        )
        return f"{hours * 60:.0f} minutes" if 0 <= hours < 2 else f"{hours:.0f} hours"

    def expiry(self, name: str) -> str:
        """What is to be said of a waiver's expiry."""
        waiver = self.waivers.get(name)
        if waiver is None:
            return "no longer in waivers.yaml"
        left = waiver.expires - self.now.date()
        if left < datetime.timedelta():
            return f"expired {waiver.expires}"
        soon = f", in {left.days} days" if left <= SOON else ""
        return f"expires {waiver.expires}{soon}"

    @staticmethod
    def grouped(cases: list[CaseState]) -> list[list[CaseState]]:
        """Cases of one check and status that differ in their node alone, the worst first."""
        found: dict[tuple, list[CaseState]] = {}
        for case in cases:
            about = (case.system, case.partition, case.environment, case.check, case.status)
            found.setdefault(about, []).append(case)
        return [sorted(listed, key=_beyond) for listed in found.values()]

    @staticmethod
    def by_reason(cases: list[CaseState]) -> list[tuple[str, list[CaseState]]]:
        """Cases that say the same, together."""
        found: dict[str, list[CaseState]] = {}
        for case in cases:
            found.setdefault(case.reason, []).append(case)
        return sorted(found.items(), key=lambda pair: -len(pair[1]))

    def foms(self, listed: list[FigureRecord]) -> Iterator[tuple[str, FigureRecord, str, str]]:
        """Figures of a record, each with its name, its state and its reference's page, if any."""
        for fom in listed:
            page = self.provenance.path(fom.reference) if fom.reference else ""
            name = text.figure(fom.metric, fom.size, fom.at)
            yield name, fom, "near" if fom.near else fom.verdict, page

    @staticmethod
    def by_facts(hosts: dict[str, dict]) -> list[tuple[list[str], dict]]:
        """Nodes with the same facts, together."""
        found: dict[str, tuple[list[str], dict]] = {}
        for node, facts in sorted(hosts.items()):
            found.setdefault(repr(sorted(facts.items())), ([], facts))[0].append(node)
        return list(found.values())

    @staticmethod
    def pairs(cases: list[CaseState], *verdicts: str) -> list[tuple]:
        """Findings of these verdicts with their cases, the worst first."""
        found = [(case, f) for case in cases for f in case.findings if f.verdict in verdicts]
        return sorted(found, key=lambda pair: pair[1].beyond)

    @staticmethod
    def pairs_near(cases: list[CaseState]) -> list[tuple]:
        """Figures near their bounds with their cases, the nearest first."""
        found = [(case, finding) for case in cases for finding in case.near]
        return sorted(found, key=lambda pair: pair[1].beyond)

    @staticmethod
    def unasserted(cases: list[CaseState]) -> int:
        """How many figures of these cases nothing is asserted of."""
        return sum(case.unasserted.total() for case in cases)

    def statuses(self, system: str, check: str) -> Counter:
        """How many cases of a check stand how."""
        return Counter(case.status for case in self.cases.get((system, check), ()))

    def shown(self, system: str, check: str, listed: list[Panel], most: int = 12) -> list[Panel]:
        """The figures of a check that a system's page shows: headlines, and what is not well."""
        heads = {about for case in self.cases.get((system, check), ()) for about in case.headlines}

        def rank(figure: Panel) -> int:
            key = figure.key
            if figure.verdict in ("fail", "above-ceiling", "waived"):
                return 0
            return 1 if (key.metric, key.size, key.at, key.placement) in heads else 2

        chosen = [figure for figure in listed if rank(figure) < 2] or listed
        kept = sorted(chosen, key=rank)[:most]
        return [figure for figure in listed if figure in kept]

    @staticmethod
    def stated(row) -> str:
        """What a published row states of its conditions."""
        told = [
            counted(row.nodes, "node") if row.nodes else "",
            f"{row.ppn} a node" if row.ppn else "",
        ]
        told += [f"{key}={value}" for key, value in row.conditions.items()]
        return ", ".join(filter(None, told))

    @staticmethod
    def way(ratio: float, better: str) -> str:
        """Whether a ratio to a printed figure is good."""
        if better == "neither" or not abs(ratio - 1) >= 0.0005:
            return ""
        return "better" if (ratio > 1) == (better == "higher") else "worse"

    def figure(self, case: CaseState, finding) -> Glance | None:
        """The figure that a test case's finding is about."""
        return self._found[(*case.identity, *finding.about)]

    def of_key(self, key: Key) -> Glance:
        """The figure that a changed series is part of."""
        return self._changed[key]

    @property
    def faults(self) -> list[str]:
        """What was left out, without the folders above the results."""
        return [f.removeprefix(f"{self.history.source.parent}/") for f in self.history.faults]


def _about(key: Key) -> tuple:
    """A series by its test case and its figure, as :class:`standing.FigureState` tells of it."""
    case = (key.system, key.partition, key.environment, key.check, key.node)
    return (*case, key.metric, key.size, key.at, key.placement)


def _beyond(case: CaseState) -> float:
    return min((finding.beyond for finding in [*case.findings, *case.near]), default=0.0)


def _worst_first(case: CaseRow) -> tuple:
    order = ("fail", "invalid", "error", "aborted", "unfinished", "waived", "skip", "pass")
    return order.index(case.result), case.check, case.node


#: What each word of a status means, as ``docs/verdicts.md`` has it, and its mark.
WORDS = {
    "pass": ("✓", "every sample can be trusted, and no figure is outside its bounds"),
    "fail": ("✕", "a figure is outside its bounds"),
    "above-ceiling": ("▲", "better than the hardware can be: the measurement is at fault"),
    "invalid": ("!", "the output cannot be trusted"),
    "error": ("!", "it ended before it could be judged: set-up, submission, time limit"),
    "aborted": ("■", "the session was stopped while it ran"),
    "unfinished": ("…", "planned, and never ended"),
    "running": ("▸", "of a session that has not ended: no result yet"),
    "vanished": ("∅", "it should be there, and no session has it any more"),
    "never-run": ("◌", "the inventory has it, and no session ran it yet"),
    "waived": ("~", "a known fault, with reason, owner and expiry; no pass"),
    "near": ("△", "it passed, within the warning band near its bound"),
    "suspicious": ("◇", "a figure is far better than its reference: check what was measured"),
    "unstable": ("≈", "it passed, with single samples beyond the bound"),
    "warnings": ("⚠", "its standard error tells of a fault, whatever the numbers say"),
    "skip": ("-", "it could not run here; nothing was measured"),
    "not-asserted": ("○", "measured and recorded; no reference says what it should be"),
    "regression": ("↘", "a lasting change for the worse"),
    "improvement": ("↗", "a lasting change for the better"),
    "transient": ("↕", "a few sessions away from its level, and back"),
    "change": ("→", "a lasting change of a figure without a better side"),
    "suspect": (
        "?",
        "far off, in a figure that also has outliers or goes up and down by itself: "
        "not sure yet, measure it again",
    ),
    "drift": ("⇘", "a slow change"),
}
