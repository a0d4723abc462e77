"""The report: a folder of static pages that need no network."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plumbline.analysis import trend
from plumbline.analysis.causes import Cause
from plumbline.analysis.compare import formats
from plumbline.check.record import OUTSIDE, FigureRecord
from plumbline.core import garbage, paths, pool, units
from plumbline.core.text import pluralize
from plumbline.history.history import History
from plumbline.history.rows import SessionRow
from plumbline.history.series import Key, Selection
from plumbline.output.report import (
    by_node,
    change_context,
    charts,
    compare_page,
    curves,
    figures,
    findings,
    heat,
    page_writer,
    provenance,
    published,
    search_index,
    session_pages,
    site_files,
    slow_nodes,
    status,
    text,
    views,
)
from plumbline.output.report.change_context import Facts
from plumbline.output.report.figures import Glance, Panel
from plumbline.output.report.page_writer import PageWriter
from plumbline.output.report.status import CaseState, FigureState
from plumbline.reference.waivers import Waiver

#: A change is recent if it was found this long before its system's latest session.
RECENT = np.timedelta64(30, "D")
#: At most so many sessions before and after changes get a page.
CHANGED = 60
#: How long before a waiver's expiry pages announce it.
SOON = datetime.timedelta(days=14)


@dataclass(frozen=True)
class Written:
    """A report that was written.

    :ivar red: number of test cases that are red.
    :ivar bytes: size of all files.
    :ivar faults: what of the site's references, waivers and inventories was skipped, a line each.
    """

    folder: Path
    pages: int
    series: int
    red: int
    bytes: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.folder / 'index.html'}: {self.pages} pages, {self.bytes / 1e6:.1f} MB; "
            f"{pluralize(self.red, 'test case')} red"
        )


def write(
    history: History,
    out: Path,
    select: Selection,
    now: datetime.datetime | None = None,
    stale: datetime.timedelta = datetime.timedelta(hours=48),
    latest: int = 10,
    say: Callable[[str], None] = lambda line: None,
    warn: Callable[[str], None] = lambda line: None,
) -> Written:
    """Write the report of a history to a folder, atomically.

    :arg now: the time that ages are relative to.
    :arg stale: age above which the latest session is marked as old.
    :arg latest: number of sessions of each system that get a page.
    :arg warn: receives each line of ``faults``, before the slow work.
    :raises Fault: if there is no session, the folder cannot be written or is not a report, or a
        register of the references is faulty.
    """
    now = now or datetime.datetime.now(datetime.timezone.utc)
    with garbage.sought_rarely(), page_writer.replaced(out) as folder:
        valid = site_files.SiteFiles(warn)
        report = _Report(history, select, valid, now, stale, latest, say)
        written = report.write(folder)
    return dataclasses.replace(written, folder=out)


class _Report:
    """The content of the pages; templates use it as ``report``."""

    def __init__(
        self,
        history: History,
        select: Selection,
        valid: site_files.SiteFiles,
        now: datetime.datetime,
        stale: datetime.timedelta,
        latest: int,
        say: Callable[[str], None],
    ):
        self.history, self.select, self.now, self.stale = history, select, now, stale
        found = findings.Findings(history, select, valid, valid.waivers, now, stale, say)
        self.sessions, self.measured = found.sessions, found.measured
        self.triage, self.systems, self.screened = found.triage, found.systems, found.screened
        self.changes, self.judged, self.nights = found.changes, found.judged, trend.NIGHTS
        self.series = found.series
        self.cases: dict[tuple[str, str], list[CaseState]] = {}
        for case in (case for system in self.systems for case in system.cases):
            self.cases.setdefault((case.system, case.check), []).append(case)
        self.slow = {system: one.nodes for system, one in self.screened.items()}
        self.of_nights = by_node.nights(self.sessions)
        #: Figures that other pages show: only one check's figures are in memory at a time.
        self.changed: dict[Key, Glance] = {}
        self._found: dict[tuple, Glance | None] = {
            case.identity + finding.identity: None
            for listed in self.cases.values()
            for case in listed
            for finding in (*case.findings, *case.near_bound)
        }
        self.references = valid
        self.provenance = provenance.Provenance(
            valid.references, valid.misprints, paths.reference()
        )
        self.published = published.Published(valid.references)
        self.waivers = {waiver.id: waiver for waiver in valid.waivers}
        #: What a waiver covers has causes of its own.
        self.every_cause = found.causes
        self.acknowledged = [cause for cause in found.causes if cause.first.waiver]
        self.causes = [cause for cause in found.causes if not cause.first.waiver]
        self._cause_of = {change: cause for cause in self.causes for change in cause.changes}
        self.context = change_context.ChangeContext(history, self.sessions, self.changes)
        newest, red, changed = self._chosen(latest)
        #: Sessions with a page, and those whose page has only their red cases.
        self.paged, self.red_only = newest | red | changed, red - changed
        self.index, self.compared = search_index.SearchIndex(), compare_page.ComparedMedians()

    def _figures(self) -> Iterator[tuple[str, str, list[Panel]]]:
        """Yield the system, the check and its figures, for each check."""
        read = pool.ahead(self.history.by_check(self.measured.values(), self.select))
        for check in sorted({*self.cases, *self.measured}):
            series = map(self.triage.of_series, next(read) if check in self.measured else [])
            listed = figures.grouped([*series], self.changes, self.of_nights)
            for figure in listed:
                self.published.take(figure)
                members = {member.key: member for member in figure.members}
                for change in figure.changes:
                    self.changed[change.key] = figure.glance(members.get(change.key))
                for key in figure.keys:
                    if (identity := status.identity_of(key)) in self._found:
                        self._found[identity] = figure.glance(members.get(key))
            yield check[0], check[1], listed

    def _chosen(self, latest: int) -> tuple[set[str], set[str], set[str]]:
        """Return the sessions that get a page: the latest of each system, those that are red or
        were cut off as far back as red cases are followed, and those of changes."""
        newest, red, changed = set[str](), set[str](), dict[str, None]()
        if self.history.from_csv:
            return newest, red, set()
        seen: Counter = Counter()
        oldest = {one.system: one.latest.end - np.timedelta64(status.BACK) for one in self.systems}
        for row in reversed(self.sessions):
            seen[row.system] += 1
            if seen[row.system] <= latest:
                newest.add(row.session)
            elif row.end >= oldest[row.system] and (
                any(map(row.results.get, status.RED)) or self.missing(row)
            ):
                red.add(row.session)
        for cause in (*self.causes, *self.acknowledged):
            for name in (cause.first.before, cause.first.after):
                if name and name not in newest and len(changed) < CHANGED:
                    changed[name] = None
        return newest, red, {*changed}

    # -- addresses ----------------------------------------------------------------------------

    @staticmethod
    def system_path(system: str) -> str:
        return f"systems/{text.slug(system)}.html"

    @staticmethod
    def check_path(system: str, check: str) -> str:
        return f"checks/{text.slug(system, check)}.html"

    def session_path(self, session: str) -> str:
        """Return the page of a session, empty if it has none."""
        return f"sessions/{text.slug(session)}.html" if session in self.paged else ""

    def figure_path(self, key: Key) -> str:
        """Return page and anchor of the figure of a series."""
        return f"{self.check_path(key.system, key.check)}#{self.changed[key].anchor}"

    def finding_path(self, case: CaseState, finding: FigureState) -> str:
        """Return page and anchor of the figure of a test case's finding."""
        path = self.check_path(case.system, case.check)
        figure = self.figure(case, finding)
        return f"{path}#{figure.anchor}" if figure else path

    # -- pages --------------------------------------------------------------------------------

    def write(self, folder: Path) -> Written:
        """Write all pages."""
        writer = PageWriter(
            folder,
            report=self,
            now=np.datetime64(self.now.replace(tzinfo=None), "s"),
            written=int(self.now.timestamp()),
            stale=int(self.stale.total_seconds()),
            statuses=views.STATUSES,
            views=views,
            short_hashes=formats.short_hashes,
            counted=pluralize,
            latest=figures.LATEST,
            steps=heat.STEPS,
            opacity=heat.OPACITY,
        )
        writer.assets()
        self._systems(writer)
        recent = [cause for cause in self.causes if self._recent(cause)]
        flagged = [one for listed in self.slow.values() for one in listed if one.now]
        links = [(name, flag) for name, one in self.screened.items() for flag in one.links]
        writer.page("index.html", "index.html.j2", systems=self.systems, recent=recent,
                    slow=flagged, screened=self.screened, links=links)  # fmt: skip
        writer.page("changes.html", "changes.html.j2", causes=self.every_cause)
        listed = self.published.tables()
        writer.page("published.html", "published.html.j2", tables=listed)
        for table in listed:
            writer.table(f"data/published/{table.anchor}.csv", table.columns, table.rows())
        writer.page("about.html", "about.html.j2")
        self._search(writer)
        self._nodes(writer)
        writer.page("compare.html", "compare.html.j2", sides=self.compared.index(self.sessions))
        for path, script in self.compared.scripts():
            writer.file(path, script)
        self._sessions(writer)
        writer.page("sessions.html", "sessions.html.j2")
        for path, (title, lead, cards) in self.provenance.pages().items():
            writer.page(path, "references.html.j2", title=title, lead=lead, cards=cards)
        writer.file(page_writer.MARK, json.dumps({"written": self.now.isoformat(), "sessions":
                  len(self.sessions), "series": self.series}) + "\n")  # fmt: skip
        red = sum(len(system.red) for system in self.systems)
        faults = tuple(self.references.faults)
        return Written(folder, writer.pages, self.series, red, writer.bytes, faults)

    def _recent(self, cause: Cause) -> bool:
        latest = [state.latest for state in self.systems if state.system == cause.first.key.system]
        return bool(latest) and bool(cause.found >= latest[0].end - RECENT)

    def _systems(self, writer: PageWriter) -> None:
        """Write the pages of systems. The page of a check is written when the page of its system
        needs its figures, so that only few figures are in memory at a time."""
        systems = {state.system: state for state in self.systems}
        for system, of_system in itertools.groupby(self._figures(), key=lambda found: found[0]):
            checks = self._checks(writer, of_system)
            if system in systems:
                writer.page(self.system_path(system), "system.html.j2", one=systems.pop(system),
                          checks=checks, slow=self.slow[system])  # fmt: skip
            # Records may name a system without a session.
            collections.deque(checks, maxlen=0)
        for state in systems.values():
            self.index.add_system(state.system, self.system_path(state.system))
            writer.page(self.system_path(state.system), "system.html.j2", one=state, checks=(),
                        slow=())  # fmt: skip

    def _checks(
        self, writer: PageWriter, of_system: Iterable[tuple[str, str, list[Panel]]]
    ) -> Iterator[tuple[str, list[Panel]]]:
        """Write the page of each check of a system, and yield its figures."""
        for system, check, listed in of_system:
            self._check(writer, system, check, listed)
            yield check, listed

    def _check(self, writer: PageWriter, system: str, check: str, listed: list[Panel]) -> None:
        number = self.index.add_system(system, self.system_path(system))
        unmeasured = {case.node for case in self.cases.get((system, check), ()) if case.node}
        own = self.slow.get(system, [])
        for count, figure in enumerate(listed, self.index.figures):
            self.compared.add(count, figure)
            page = f"{self.check_path(system, check)}#{figure.anchor}"
            if own:
                slow_nodes.add_figure(own, figure, check, page, self._target(figure))
        self.index.add_check(number, check, self.check_path(system, check), listed, unmeasured)
        axes: dict[str, int] = {}
        drawn = [charts.data(figure, axes, self._target(figure)) for figure in listed]
        folder = f"data/{text.slug(system, check)}"
        over_sizes = curves.curves(listed)
        files = {figure.anchor: curve.file for curve in over_sizes for figure in curve.figures}
        for figure in listed:
            if figure.anchor not in files:
                path = f"{folder}/{figure.anchor}.csv"
                writer.table(path, figures.CSV_COLUMNS, figures.csv_rows(figure))
        for curve in over_sizes:
            writer.table(f"{folder}/{curve.anchor}.csv", curves.CURVE_COLUMNS, curve.rows())
            writer.table(f"{folder}/{curve.file}.csv", curves.VALUE_COLUMNS, curve.value_rows())
        maps = self._maps(writer, folder, listed, self.screened.get(system, slow_nodes.Screened()))
        named = [name for figure in listed for name in figure.all_references]
        data = self._drawn(axes, named, drawn, [curve.data() for curve in over_sizes])
        writer.page(self.check_path(system, check), "check.html.j2", system=system, name=check,
                  figures=listed, cases=self.cases.get((system, check), []), curves=over_sizes,
                  losses=self.triage.of_figures(listed, self._cause_of, self.changes),
                  data=data, folder=folder, files=files, maps=maps)  # fmt: skip

    def _drawn(
        self, axes: Iterable[str], named: list[str], drawn: list[dict], over_sizes: list[dict]
    ) -> dict[str, object]:
        """Return the data of the charts of a page in a folder of the site.

        :arg named: references. :arg drawn: of :func:`charts.data`. :arg over_sizes: of curves.
        """
        shared = [json.loads(axis) for axis in axes]
        sessions = dict.fromkeys(name for axis in shared for name in axis["session"])
        return {
            "pages": {n: f"../{path}" for n in sessions if (path := self.session_path(n))},
            "axes": shared,
            "references": {name: f"../{self.provenance.path(name)}" for name in named},
            "figures": drawn,
            "curves": over_sizes,
        }

    def _maps(
        self, writer: PageWriter, folder: str, listed: list[Panel], screened: slow_nodes.Screened
    ) -> dict[str, heat.HeatMap]:
        """Write the images and the data of the heat maps of a check, and return them by figure."""
        pages = {name: self.session_path(name) for name in self.paged}
        found = {figure.anchor: heat.of(figure, screened) for figure in listed}
        maps = {anchor: made for anchor, made in found.items() if made}
        for anchor, made in maps.items():
            path = f"{folder}/{anchor}"
            writer.image(f"{path}.png", made.image())
            data = json.dumps(made.data(pages), separators=(",", ":"))
            writer.file(f"{path}.js", f'window.heatMap("{anchor}",{data});\n')
        return maps

    def _target(self, figure: Panel) -> float | None:
        """Return the value of the latest reference, in the figure's unit."""
        row = self.provenance.references.tables.rows.get((figure.references or [""])[0])
        if row is None:
            return None
        try:
            return row.used(figure.first.unit)[0]
        except units.UnitError:
            return None

    def _search(self, writer: PageWriter) -> None:
        """Write the search page, which lists the checks of each system, and its index."""
        by_system: dict[str, list[str]] = {state.system: [] for state in self.systems}
        for system, check in sorted({*self.cases, *self.measured}):
            by_system.setdefault(system, []).append(check)
        for system, nodes in self.slow.items():
            number = self.index.add_system(system, self.system_path(system))
            for one in nodes:
                self.index.add_node(number, one.node, one.path)
        writer.page("search.html", "search.html.j2", listed=sorted(by_system.items()))
        writer.file("data/search.js", self.index.script())

    def _sessions(self, writer: PageWriter) -> None:
        """Write the pages of sessions: of the red cases alone of one that is red and not newest."""
        macros = writer.macros("record.html.j2", root="../")
        for row in self.sessions:
            if row.session in self.paged:
                whole = row.session not in self.red_only
                groups = session_pages.groups(self.history, self.select, row, macros, whole)
                # A case has a row for each attempt.
                shown = {case.case for group in groups for case in group.cases}
                others = 0 if whole else row.ended - len(shown)
                writer.page(self.session_path(row.session), "session.html.j2", row=row,
                          groups=groups, fold=session_pages.FOLD, others=others)  # fmt: skip

    def _nodes(self, writer: PageWriter) -> None:
        """Write the pages of flagged nodes."""
        for state in self.systems:
            for one in self.slow[state.system]:
                past = slow_nodes.past_of(self.history, self.select, state, one)
                drawn = [figure.chart for figure in one.figures if figure.chart]
                named = [name for chart in drawn for _, name in chart["reference"] if name]
                writer.page(one.path, "node.html.j2", one=one, past=past,
                            data=self._drawn(one.axes, named, drawn, []))  # fmt: skip

    # -- what templates ask -------------------------------------------------------------------

    def facts(self, cause: Cause) -> Facts | None:
        """Return what else changed in the night of a recent change."""
        return self.context.facts(cause) if self._recent(cause) else None

    def missing(self, row: SessionRow) -> int:
        """Return the number of planned cases of a session without a record."""
        return status.missing(row, self.select)

    def running(self, row: SessionRow) -> bool:
        """Return whether a session seems to be running."""
        return status.running(self.history, row, self.select, self.now)

    def silence(self, row: SessionRow) -> str:
        """Return how long ago the last result of a session was."""
        hours = row.age(self.now).total_seconds() / 3600
        return f"{hours * 60:.0f} minutes" if 0 <= hours < 2 else f"{hours:.0f} hours"

    def waivers_of(self, case: CaseState) -> list[Waiver]:
        """Return the waivers that cover a case or figures of it."""
        return [self.waivers[name] for name in views.waivers_of(case)]

    def expiry(self, waiver: Waiver) -> str:
        """Describe the expiry of a waiver in force."""
        left = waiver.expires - self.now.date()
        soon = f", in {left.days} days" if left <= SOON else ""
        return f"expires {waiver.expires}{soon}"

    def foms(self, listed: list[FigureRecord]) -> Iterator[tuple[str, FigureRecord, str, str]]:
        """Yield the name, the figure, its state and its reference's page, if any."""
        for fom in listed:
            page = self.provenance.path(fom.reference) if fom.reference else ""
            name = text.figure(fom.metric, fom.size, fom.location)
            yield name, fom, "near-bound" if fom.near_bound else fom.verdict, page

    def by_status(self, system: str, check: str) -> Counter:
        """Return the number of cases of a check, by status."""
        return Counter(case.status for case in self.cases.get((system, check), ()))

    def shown(self, system: str, check: str, listed: list[Panel], most: int = 12) -> list[Panel]:
        """Return the figures of a check for its system's page: headlines and problems."""
        heads = {about for case in self.cases.get((system, check), ()) for about in case.headlines}

        def rank(figure: Panel) -> int:
            key = figure.key
            # A loss that lasts is a problem also where no bound is broken.
            if figure.losses or figure.verdict in OUTSIDE:
                return 0
            return 1 if (key.metric, key.size, key.location, key.placement) in heads else 2

        chosen = [figure for figure in listed if rank(figure) < 2] or listed
        kept = sorted(chosen, key=rank)[:most]
        return [figure for figure in listed if figure in kept]

    def figure(self, case: CaseState, finding: FigureState) -> Glance | None:
        """Return the figure of a test case's finding."""
        return self._found[case.identity + finding.identity]

    @property
    def faults(self) -> list[str]:
        """Lines that were skipped, with paths relative to the results' parent."""
        return [f.removeprefix(f"{self.history.source.parent}/") for f in self.history.faults]

    @property
    def wrong_references(self) -> list[str]:
        """What of the site's files was skipped, with paths relative to the site's parent."""
        return [f.removeprefix(f"{paths.site().parent}/") for f in self.references.faults]
