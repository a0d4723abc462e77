"""The papers' figures beside a site's own: a table for each figure that both have."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from plumbline import units
from plumbline.errors import Fault
from plumbline.reference import References
from plumbline.report import text
from plumbline.report.figures import LATEST, Figure
from plumbline.table import SITE, Row


@dataclass
class Ours:
    """A system's own value: the median of the last sessions, over all nodes and places."""

    system: str
    where: str
    value: float
    count: int
    check: str
    anchor: str


@dataclass
class Theirs:
    """A published row, in the unit of the table.

    :ivar ratios: of each of our values to it.
    """

    row: Row
    printed: str
    value: float
    ratios: list[float]


@dataclass
class Table:
    """What papers print of one figure, the best first, and what this site measures of it."""

    benchmark: str
    metric: str
    size: int
    placement: str
    unit: str
    better: str
    ours: list[Ours] = field(default_factory=list)
    theirs: list[Theirs] = field(default_factory=list)

    @property
    def name(self) -> str:
        parts = (self.benchmark, self.metric, text.size(self.size), self.placement)
        return " · ".join(filter(None, parts))

    @property
    def anchor(self) -> str:
        return text.slug(self.benchmark, self.metric, str(self.size), self.placement)

    @property
    def columns(self) -> list[str]:
        ours = [text.cell(f"{o.system} {o.where} {self.unit}") for o in self.ours]
        return ["reference", "system", "toolchain", "printed", self.unit, *ours]

    def rows(self):
        """The lines of its CSV file, as lists of cells."""
        for one in self.theirs:
            cells = (one.row.id, one.row.system, one.row.toolchain, one.printed, one.value)
            yield [text.cell(cell) for cell in (*cells, *(ours.value for ours in self.ours))]


class Published:
    """The published rows, by what they are of."""

    def __init__(self, references: References):
        self.references = references
        self._rows: dict[tuple[str, str], list[Row]] = {}
        for row in references.rows:
            if row.source != SITE and row.kind == "measured" and references.may_decide(row):
                self._rows.setdefault((row.benchmark, row.metric), []).append(row)

    def of(self, benchmark: str, metric: str, size: int, placement: str) -> list[Row]:
        """The rows that are about a figure as it is measured here, on whatever system."""
        try:
            fom = self.references.fom(benchmark, metric)
        except Fault:
            return []
        names = [(benchmark, metric), *(tuple(s.split("/", 1)) for s in fom.same_as)]
        found = []
        for name in names:
            for row in self._rows.get(name, ()):
                means = row.message_size
                if means is None and size >= 0:
                    means = fom.unstated_size
                if (means if means is not None else -1) == size and row.placement in (
                    "",
                    placement,
                ):
                    found.append(row)
        return found

    def tables(self, figures: dict[tuple[str, str], list[Figure]]) -> list[Table]:
        """A table of each figure that papers print and this site measures.

        :arg figures: (system, check) -> its figures.
        """
        groups: dict[tuple, dict[tuple, list[Figure]]] = {}
        for (system, check), listed in figures.items():
            for figure in listed:
                key = figure.key
                about = (figure.first.benchmark, key.metric, key.size, key.placement)
                place = (system, text.where(key), check)
                groups.setdefault(about, {}).setdefault(place, []).append(figure)
        made = []
        for about, places in sorted(groups.items()):
            rows = self.of(*about)
            if rows:
                made.append(self._table(about, places, rows))
        return made

    def _table(self, about: tuple, places: dict[tuple, list[Figure]], rows: list[Row]) -> Table:
        benchmark, metric, size, placement = about
        fom = self.references.fom(benchmark, metric)
        better = self.references.rule(fom).better
        table = Table(benchmark, metric, size, placement, fom.unit, better)
        for (system, where, check), figures in sorted(places.items()):
            series = [one for figure in figures for one in figure.members]
            values = np.concatenate([one.values[-LATEST:] for one in series])
            factor = units.factor(series[0].unit, fom.unit)
            table.ours.append(Ours(system, where, float(np.median(values)) * factor, len(values),
                                   check, figures[0].anchor))  # fmt: skip
        for row in rows:
            value, _ = row.used(fom.unit)
            cells = self.references.tables.printed[row.id]
            spread = f" ± {cells['spread']}" if cells.get("spread") else ""
            ratios = [ours.value / value if value else float("nan") for ours in table.ours]
            table.theirs.append(Theirs(row, f"{cells['value']}{spread} {row.unit}", value, ratios))
        table.theirs.sort(key=lambda one: one.value, reverse=better != "lower")
        return table
