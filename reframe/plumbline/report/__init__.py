"""The report: a folder of static pages that ask nothing of any network."""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plumbline import paths, reference, refs, units, waivers
from plumbline.errors import Fault
from plumbline.history import History, SessionRow
from plumbline.report import figures, findings, provenance, published, site, standing, text
from plumbline.report.figures import Figure
from plumbline.report.findings import Change
from plumbline.report.standing import Case, Standing
from plumbline.series import Key, Selection, Series
from plumbline.words import counted

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
        try:
            series = [_lean(one) for one in history.series(select, samples=False)]
        except Fault:
            # Sessions in which nothing was measured: the pages say so.
            series = []
        say(f"{counted(len(self.sessions), 'session')}, {len(series)} series")
        self.standings = standing.of_all(history, self.sessions, select, now, stale)
        say("looking for changes")
        self.nights = findings.NIGHTS
        self.judged = any(findings.judged(one) for one in series)
        self.changes: dict[Key, list[Change]] = findings.of_all(series)
        by_check: dict[tuple[str, str], list] = {
            (case.system, case.check): [] for one in self.standings for case in one.cases
        }
        for one in series:
            by_check.setdefault((one.key.system, one.key.check), []).append(one)
        self.checks: dict[tuple[str, str], list[Figure]] = {
            about: figures.grouped(listed, self.changes)
            for about, listed in sorted(by_check.items())
        }
        self._figure_of = {
            one.key: figure
            for listed in self.checks.values()
            for figure in listed
            for one in figure.members
        }
        self._figures = {_about(key): figure for key, figure in self._figure_of.items()}
        self.series = len(series)
        folder = paths.reference()
        references = reference.loaded(folder)
        self.provenance = provenance.Provenance(references, refs.misprints(folder), folder)
        self.published = published.Published(references)
        self.tables = self.published.tables(self.checks)
        self.waivers = {waiver.id: waiver for waiver in waivers.load(folder)}
        self.events = findings.events([c for listed in self.changes.values() for c in listed])
        self.paged = self._paged(latest)
        self.say = say

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
        return f"{self.check_path(key.system, key.check)}#{self._figure_of[key].anchor}"

    def named(self, key: Key) -> str:
        """The name of the figure that a series is part of."""
        return self._figure_of[key].name

    def found_path(self, case: Case, finding) -> str:
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
        recent = [event for event in self.events if self._recent(event)]
        made.page("index.html", "index.html.j2", standings=self.standings, recent=recent)
        made.page("changes.html", "changes.html.j2", events=self.events)
        made.page("published.html", "published.html.j2", tables=self.tables)
        for table in self.tables:
            made.table(f"data/published/{table.anchor}.csv", table.columns, table.rows())
        made.page("about.html", "about.html.j2")
        for one in self.standings:
            checks = {c: f for (system, c), f in self.checks.items() if system == one.system}
            made.page(self.system_path(one.system), "system.html.j2", one=one, checks=checks)
        for (system, check), listed in self.checks.items():
            self._check(made, system, check, listed)
        self._sessions(made)
        made.page("sessions.html", "sessions.html.j2")
        for path, (title, lead, cards) in self.provenance.pages().items():
            made.page(path, "references.html.j2", title=title, lead=lead, cards=cards)
        made.file(site.MARK, json.dumps({"written": self.now.isoformat(), "sessions":
                  len(self.sessions), "series": self.series}) + "\n")  # fmt: skip
        red = sum(len(one.red) for one in self.standings)
        pages = sum(path.endswith(".html") for path in made.bytes)
        return Written(folder, pages, self.series, len(self.sessions), red,
                       sum(made.bytes.values()))  # fmt: skip

    def _recent(self, event) -> bool:
        latest = next((one.latest for one in self.standings
                       if one.system == event.first.key.system), None)  # fmt: skip
        return latest is not None and event.detected >= latest.end - RECENT

    def _check(self, made: site.Site, system: str, check: str, listed: list[Figure]) -> None:
        axes: list[dict] = []
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
        ids = {session: None for axis in axes for session in axis["session"]}
        data = {
            "pages": {i: f"../{self.session_path(i)}" for i in ids if i in self.paged},
            "axes": axes,
            "references": {
                name: f"../{self.provenance.path(name)}"
                for figure in listed
                for name in sorted({str(n) for one in figure.members for n in one.references if n})
            },
            "figures": charts,
            "curves": [curve.data() for curve in curves],
        }
        one = next((s for s in self.standings if s.system == system), None)
        cases = [case for case in one.cases if case.check == check] if one else []
        made.page(self.check_path(system, check), "check.html.j2", system=system, name=check,
                  figures=listed, cases=cases, data=site.data(data),
                  folder=f"data/{text.slug(system, check)}",
                  curves=curves)  # fmt: skip

    def _target(self, figure: Figure) -> float | None:
        """The value of the reference that decided last, in the figure's unit."""
        row = self.provenance.references.tables.rows.get((figure.references or [""])[0])
        if row is None:
            return None
        try:
            return row.used(figure.first.unit)[0]
        except units.UnitError:
            return None

    def theirs(self, figure: Figure) -> published.Table | None:
        """The table of what papers print of a figure, if some do."""
        key = figure.key
        about = (figure.first.benchmark, key.metric, key.size, key.placement)
        for table in self.tables:
            if (table.benchmark, table.metric, table.size, table.placement) == about:
                return table
        return None

    def _sessions(self, made: site.Site) -> None:
        """The pages of single sessions, from their whole records."""
        if not self.paged:
            return
        chosen = dataclasses.replace(self.select, sessions=tuple(sorted(self.paged)))
        rows = {(r.session, r.case, r.attempt): r for r in standing.cases_of(self.history, chosen)}
        records: dict[str, list[tuple]] = {}
        for fields in self.history.records(chosen) if rows else ():
            row = rows.get((fields["session"], fields["case"], fields["attempt"]))
            if row is not None:
                records.setdefault(fields["session"], []).append((fields, row))
        for row in self.sessions:
            if row.session in self.paged:
                listed = sorted(records.get(row.session, ()), key=_worst_first)
                made.page(self.session_path(row.session), "session.html.j2", row=row,
                          records=listed)  # fmt: skip

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
    def grouped(cases: list[Case]) -> list[list[Case]]:
        """Cases of one check and status that differ in their node alone, the worst first."""
        found: dict[tuple, list[Case]] = {}
        for case in cases:
            about = (case.system, case.partition, case.environment, case.check, case.status)
            found.setdefault(about, []).append(case)
        return [sorted(listed, key=_beyond) for listed in found.values()]

    @staticmethod
    def by_reason(cases: list[Case]) -> list[tuple[str, list[Case]]]:
        """Cases that say the same, together."""
        found: dict[str, list[Case]] = {}
        for case in cases:
            found.setdefault(case.reason, []).append(case)
        return sorted(found.items(), key=lambda pair: -len(pair[1]))

    @staticmethod
    def by_facts(hosts: dict[str, dict]) -> list[tuple[list[str], dict]]:
        """Nodes with the same facts, together."""
        found: dict[str, tuple[list[str], dict]] = {}
        for node, facts in sorted(hosts.items()):
            found.setdefault(json.dumps(facts, sort_keys=True), ([], facts))[0].append(node)
        return list(found.values())

    @staticmethod
    def pairs(cases: list[Case], *verdicts: str) -> list[tuple]:
        """Findings of these verdicts with their cases, the worst first."""
        found = [(case, f) for case in cases for f in case.findings if f.verdict in verdicts]
        return sorted(found, key=lambda pair: pair[1].beyond)

    @staticmethod
    def pairs_near(cases: list[Case]) -> list[tuple]:
        """Figures near their bounds with their cases, the nearest first."""
        found = [(case, finding) for case in cases for finding in case.near]
        return sorted(found, key=lambda pair: pair[1].beyond)

    @staticmethod
    def unasserted(cases: list[Case]) -> int:
        """How many figures of these cases nothing is asserted of."""
        return sum(case.unasserted.total() for case in cases)

    @staticmethod
    def statuses(one: Standing, check: str) -> Counter:
        """How many cases of a check stand how."""
        return Counter(case.status for case in one.cases if case.check == check)

    @staticmethod
    def shown(one: Standing, check: str, listed: list[Figure], most: int = 12) -> list[Figure]:
        """The figures of a check that a system's page shows: headlines, and what is not well."""
        heads = {about for case in one.cases if case.check == check for about in case.headlines}

        def rank(figure: Figure) -> int:
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

    def figure(self, case: Case, finding) -> Figure | None:
        """The figure that a test case's finding is about."""
        return self._figures.get((*case.identity, *finding.about))

    def of_key(self, key: Key) -> Figure:
        """The figure that a series is part of."""
        return self._figure_of[key]

    @property
    def faults(self) -> list[str]:
        """What was left out, without the folders above the results."""
        return [f.removeprefix(f"{self.history.source.parent}/") for f in self.history.faults]

    @staticmethod
    def spark(figure: Figure, node: str = "") -> tuple:
        """The small chart of a figure, or of its one node: a path, and the latest value's place."""
        own = [one.values for one in figure.members if node and figure.place_of(one) == node]
        values = (own[0] if own else figure.history[2])[-120:]
        return text.spark(values, (len(values) - 1,))


def _lean(series: Series) -> Series:
    """A series with each name once in memory: of a thousand series over a year they are most."""
    names = ("sessions", "verdicts", "references", "builds", "nodes")
    numbers = ("times", "values", "lower", "upper", "ceiling")
    return dataclasses.replace(
        series,
        **{name: np.array([*map(sys.intern, getattr(series, name))], object) for name in names},
        **{name: getattr(series, name).copy() for name in numbers},
    )


def _about(key: Key) -> tuple:
    """A series by its test case and its figure, as :class:`standing.Finding` tells of it."""
    case = (key.system, key.partition, key.environment, key.check, key.node)
    return (*case, key.metric, key.size, key.at, key.placement)


def _beyond(case: Case) -> float:
    return min((finding.beyond for finding in [*case.findings, *case.near]), default=0.0)


def _worst_first(pair: tuple) -> tuple:
    order = ("fail", "invalid", "error", "aborted", "unfinished", "waived", "skip", "pass")
    return order.index(pair[1].result), pair[1].check, pair[1].node


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
