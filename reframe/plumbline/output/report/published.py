"""Compares published figures with a site's own."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass, field

from plumbline.core import units
from plumbline.core.errors import Fault
from plumbline.output.report import text
from plumbline.output.report.figures import LATEST, Panel
from plumbline.reference.lookup import References
from plumbline.reference.row import SITE, Row


@dataclass
class MeasuredValue:
    """A system's value: the median of its last sessions, over all nodes and places.

    :ivar values: those, in ``unit``. :ivar value: in the unit of the table.
    """

    system: str
    where: str
    check: str
    unit: str
    anchor: str
    values: list[float] = field(default_factory=list)
    value: float = 0.0


@dataclass
class PublishedRow:
    """A published row, in the unit of the table.

    :ivar ratios: of each measured value to it.
    """

    row: Row
    printed: str
    value: float
    ratios: list[float]


@dataclass
class Table:
    """The published values of one figure, the best first, and the measured ones."""

    benchmark: str
    metric: str
    size: int
    placement: str
    unit: str
    better: str
    measured: list[MeasuredValue] = field(default_factory=list)
    published: list[PublishedRow] = field(default_factory=list)

    @property
    def name(self) -> str:
        parts = (self.benchmark, self.metric, text.size(self.size), self.placement)
        return " · ".join(filter(None, parts))

    @property
    def anchor(self) -> str:
        return _anchor(self.benchmark, self.metric, self.size, self.placement)

    @property
    def columns(self) -> list[str]:
        names = [
            text.cell(f"{measured.system} {measured.where} {self.unit}")
            for measured in self.measured
        ]
        return ["reference", "system", "toolchain", "printed", self.unit, *names]

    def rows(self):
        """Yield the rows of its CSV file."""
        values = [measured.value for measured in self.measured]
        for published in self.published:
            row = published.row
            cells = (row.id, row.system, row.toolchain, published.printed, published.value)
            yield [text.cell(cell) for cell in (*cells, *values)]


def _subject(figure: Panel) -> tuple[str, str, int, str]:
    """Return benchmark, metric, size and placement of a figure, which identify its table."""
    key = figure.key
    return figure.first.benchmark, key.metric, key.size, key.placement


def _anchor(benchmark: str, metric: str, size: int, placement: str) -> str:
    return text.slug(benchmark, metric, str(size), placement)


class Published:
    """The published rows, and the measured figures that they are compared with."""

    def __init__(self, references: References):
        self.references = references
        self._rows_of = functools.cache(self.of)
        #: By subject; then by system, partition with environment, and check.
        self._taken: dict[tuple, dict[tuple, MeasuredValue]] = {}
        self._rows: dict[tuple[str, str], list[Row]] = {}
        for row in references.rows:
            if row.source != SITE and row.kind == "measured" and references.may_decide(row):
                self._rows.setdefault((row.benchmark, row.metric), []).append(row)

    def of(self, benchmark: str, metric: str, size: int, placement: str) -> list[Row]:
        """Return the published rows about a figure, of all systems."""
        try:
            fom = self.references.fom(benchmark, metric)
        except Fault:
            return []
        found = []
        for name in [f"{benchmark}/{metric}", *fom.same_as]:
            other, _, of_other = name.partition("/")
            for row in self._rows.get((other, of_other), ()):
                row_size = row.message_size
                if row_size is None:
                    row_size = fom.unstated_size if size >= 0 else None
                same_size = (-1 if row_size is None else row_size) == size
                if same_size and row.placement in ("", placement):
                    found.append(row)
        return found

    def table_of(self, figure: Panel) -> tuple[str, int] | None:
        """Return the anchor of a figure's table and its number of published rows, if it has any."""
        subject = _subject(figure)
        rows = self._rows_of(*subject)
        return (_anchor(*subject), len(rows)) if rows else None

    def take(self, figure: Panel) -> None:
        """Add a figure to its table, if papers print it."""
        subject, key = _subject(figure), figure.key
        if not self._rows_of(*subject):
            return
        place = (key.system, text.where(key), key.check)
        new = MeasuredValue(*place, figure.first.unit, figure.anchor)
        taken = self._taken.setdefault(subject, {}).setdefault(place, new)
        for member in figure.members:
            taken.values += member.values[-LATEST:].tolist()

    def tables(self) -> list[Table]:
        """Return a table for each figure that was taken."""
        return [self._table(subject, places) for subject, places in sorted(self._taken.items())]

    def _table(self, subject: tuple, places: dict[tuple, MeasuredValue]) -> Table:
        benchmark, metric, size, placement = subject
        fom = self.references.fom(benchmark, metric)
        better = self.references.rule(fom).better
        table = Table(benchmark, metric, size, placement, fom.unit, better)
        table.measured = [one for _, one in sorted(places.items())]
        for one in table.measured:
            one.value = statistics.median(one.values) * units.factor(one.unit, fom.unit)
        for row in self._rows_of(*subject):
            value, _ = row.used(fom.unit)
            cells = self.references.tables.printed[row.id]
            spread = f" ± {cells['spread']}" if cells.get("spread") else ""
            ratios = [figure.value / value if value else float("nan") for figure in table.measured]
            printed = f"{cells['value']}{spread} {row.unit}"
            table.published.append(PublishedRow(row, printed, value, ratios))
        table.published.sort(key=lambda published: published.value, reverse=better != "lower")
        return table
