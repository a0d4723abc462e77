"""The papers' figures beside a site's own: a table for each figure that both have."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass, field

from plumbline.core import units
from plumbline.core.errors import Fault
from plumbline.output.report import text
from plumbline.output.report.figures import LATEST, Panel
from plumbline.reference.lookup import References
from plumbline.reference.row import Row
from plumbline.reference.tables import SITE


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
        return _anchor(self.benchmark, self.metric, self.size, self.placement)

    @property
    def columns(self) -> list[str]:
        ours = [text.cell(f"{o.system} {o.where} {self.unit}") for o in self.ours]
        return ["reference", "system", "toolchain", "printed", self.unit, *ours]

    def rows(self):
        """The lines of its CSV file, as lists of cells."""
        for one in self.theirs:
            cells = (one.row.id, one.row.system, one.row.toolchain, one.printed, one.value)
            yield [text.cell(cell) for cell in (*cells, *(ours.value for ours in self.ours))]


@dataclass
class _Taken:
    """The latest values of a figure at one place."""

    unit: str
    anchor: str
    values: list[float] = field(default_factory=list)


def _about(figure: Panel) -> tuple[str, str, int, str]:
    """What a figure's table is of."""
    key = figure.key
    return figure.first.benchmark, key.metric, key.size, key.placement


def _anchor(benchmark: str, metric: str, size: int, placement: str) -> str:
    return text.slug(benchmark, metric, str(size), placement)


class Published:
    """The published rows, by what they are of, and the figures that are measured here."""

    def __init__(self, references: References):
        self.references = references
        self._rows_of = functools.cache(self.of)
        #: By what a table is of; then by system, where and check.
        self._taken: dict[tuple, dict[tuple, _Taken]] = {}
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

    def beside(self, figure: Panel) -> tuple[str, int] | None:
        """Where the table of a figure stands, and how many rows papers print; none where they
        print none."""
        about = _about(figure)
        rows = self._rows_of(*about)
        return (_anchor(*about), len(rows)) if rows else None

    def take(self, figure: Panel) -> None:
        """Has the tables show a figure, if papers print it."""
        about, key = _about(figure), figure.key
        if not self._rows_of(*about):
            return
        place = (key.system, text.where(key), key.check)
        taken = self._taken.setdefault(about, {}).setdefault(
            place, _Taken(figure.first.unit, figure.anchor)
        )
        for one in figure.members:
            taken.values += one.values[-LATEST:].tolist()

    def tables(self) -> list[Table]:
        """A table of each figure that papers print and that was taken."""
        return [self._table(about, places) for about, places in sorted(self._taken.items())]

    def _table(self, about: tuple, places: dict[tuple, _Taken]) -> Table:
        benchmark, metric, size, placement = about
        fom = self.references.fom(benchmark, metric)
        better = self.references.rule(fom).better
        table = Table(benchmark, metric, size, placement, fom.unit, better)
        for (system, where, check), taken in sorted(places.items()):
            value = statistics.median(taken.values) * units.factor(taken.unit, fom.unit)
            table.ours.append(Ours(system, where, value, len(taken.values), check, taken.anchor))
        for row in self._rows_of(*about):
            value, _ = row.used(fom.unit)
            cells = self.references.tables.printed[row.id]
            spread = f" ± {cells['spread']}" if cells.get("spread") else ""
            ratios = [ours.value / value if value else float("nan") for ours in table.ours]
            table.theirs.append(Theirs(row, f"{cells['value']}{spread} {row.unit}", value, ratios))
        table.theirs.sort(key=lambda one: one.value, reverse=better != "lower")
        return table
