"""The content of the reference tables: their rows, and the registers that rows refer to.

Pure: reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Literal

import pydantic

from plumbline.core import units
from plumbline.core.text import suggest
from plumbline.reference.links import Links
from plumbline.reference.row import Row, Strict, Text
from plumbline.reference.tolerance import Tolerances


class MetricEntry(Strict):
    """The registration of a metric in ``foms.yaml``.

    :ivar resolution: the last digit that the program prints, in ``unit``.
    :ivar unstated_size: message size in bytes of rows that state none.
    :ivar ceilings: metrics, as ``benchmark/metric``, whose peaks also cap this one.
    :ivar same_as: metrics, as ``benchmark/metric``, of other programs for the same quantity. Their
        rows apply if this one has none of its own.
    """

    unit: str
    tolerance: Annotated[str, pydantic.Field(alias="class")]
    resolution: float = 0.0
    unstated_size: int | None = None
    ceilings: tuple[str, ...] = ()
    same_as: tuple[str, ...] = ()


class Source(Strict):
    """The source of rows: an entry of ``sources.yaml``."""

    title: Text
    authors: str = ""
    venue: str = ""
    year: int | None = None
    doi: str = ""
    document: str = ""

    @property
    def short(self) -> str:
        """The citation in messages."""
        return ", ".join(filter(None, (self.title, self.venue, str(self.year or ""))))


class Condition(Strict):
    """A key of the column ``conditions``: an entry of ``conditions.yaml``.

    :ivar role: ``condition``, which a case must meet; ``describes``, which it need not meet;
        ``data``, with which a row gives neither bounds nor a ceiling.
    """

    meaning: Text
    role: Literal["condition", "describes", "data"] = "condition"


@dataclass(frozen=True)
class Tables:
    """All rows by id, with their file, line and printed cells, and the registers and rules.

    :ivar derived: benchmark and metric of figures that only rows have, see :meth:`register`.
    """

    rules: Tolerances
    rows: dict[str, Row] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    printed: dict[str, dict[str, str]] = field(default_factory=dict)
    foms: dict[str, dict[str, MetricEntry]] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    conditions: dict[str, Condition] = field(default_factory=dict)
    links: Links = field(default_factory=Links)
    derived: set[tuple[str, str]] = field(default_factory=set)

    def fault(self, row: Row, column: str, message: str) -> str:
        """Return a message about a cell, with file, line, the row's id and the column."""
        return fault_of_cell(self.where[row.id], row.id, column, message)

    def allow(self, conditions: Iterable[str]) -> None:
        """Register the keys of conditions of a site's own benchmark."""
        for key in conditions:
            self.conditions.setdefault(key, Condition(meaning="of a site's own benchmark"))

    def register(self, benchmark: str, metric: str, unit: str, tolerance: str) -> MetricEntry:
        """Register a figure that neither ``foms.yaml`` nor a loaded check declares, and return its
        entry. The first registration counts; other rows of the figure are converted to its unit.

        :arg tolerance: its class.
        """
        known = self.foms.setdefault(benchmark, {})
        if metric not in known:
            known[metric] = MetricEntry.model_validate({"unit": unit, "class": tolerance})
            self.derived.add((benchmark, metric))
        return known[metric]

    def _declared(self) -> set[str]:
        """Return the benchmarks that a register or a loaded check has."""
        figures = {(name, metric) for name, known in self.foms.items() for metric in known}
        return {benchmark for benchmark, _ in figures - self.derived}

    def unloaded(self) -> list[str]:
        """Return the ids of rows that a baseline made of benchmarks that no register and no loaded
        check has: their check is not loaded."""
        known = self._declared()
        rows = (row for row in self.rows.values() if row.sessions and not row.plain)
        return [row.id for row in rows if row.benchmark not in known]

    def undeclared(self) -> list[str]:
        """Return the other rows of figures that no register and no loaded check has: they assert
        nothing, as if a name were misspelt. A message each."""
        unloaded = {*self.unloaded()}
        return [
            self.fault(
                row,
                "metric",
                f"no loaded check has {row.benchmark} {row.metric}: load its folder with -c, or "
                f"correct the name; {suggest(row.benchmark, sorted(self._declared()))}",
            )
            for row in self.rows.values()
            if (row.benchmark, row.metric) in self.derived
            and not row.plain
            and row.id not in unloaded
        ]

    def half_digits(self, row: Row, unit: str) -> tuple[float, float]:
        """Return half of the last printed digit of a row's value and of its spread, in the given
        unit: the possible error by rounding."""
        cells = self.printed[row.id]
        factor = units.conversion(row.unit_used or row.unit, unit)
        value = cells.get("value_used") or cells["value"]
        return half_digit(value) * factor, half_digit(cells.get("spread") or "") * factor


def half_digit(cell: str) -> float:
    """Return half of the last digit of a cell, 0 if it is empty."""
    return float(Decimal(5).scaleb(int(Decimal(cell).as_tuple().exponent) - 1)) if cell else 0.0


def fault_of_cell(where: str, name: str | None, column: str, message: str) -> str:
    """Return a message about a cell of a table.

    :arg where: file and line.
    """
    row = f"row {name}: " if name else ""
    return f"{where}: {row}column {column}: {message}"
