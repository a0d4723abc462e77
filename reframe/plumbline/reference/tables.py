"""Read and validate the reference tables.

Pure: independent of ReFrame. A table with an invalid row is refused as a whole, since a run without
the row would assert less than expected.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from plumbline.core import units
from plumbline.core.errors import Fault
from plumbline.core.paths import Folder, layers_of
from plumbline.core.text import suggest
from plumbline.core.yamlfile import read_layers
from plumbline.reference import table_faults
from plumbline.reference.links import Links
from plumbline.reference.row import SITE, Row, Text
from plumbline.reference.tolerance import Tolerances


class MetricEntry(pydantic.BaseModel):
    """The registration of a metric in ``foms.yaml``.

    :ivar resolution: the last digit that the program prints, in ``unit``.
    :ivar unstated_size: message size in bytes of rows that state none.
    :ivar ceilings: metrics, as ``benchmark/metric``, whose peaks also cap this one.
    :ivar same_as: metrics, as ``benchmark/metric``, of other programs for the same quantity. Their
        rows apply if this one has none of its own.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    unit: str
    tolerance: Annotated[str, pydantic.Field(alias="class")]
    resolution: float = 0.0
    unstated_size: int | None = None
    ceilings: tuple[str, ...] = ()
    same_as: tuple[str, ...] = ()


class _MetricGroup(MetricEntry):
    metrics: list[str]


class Source(pydantic.BaseModel):
    """The source of rows: an entry of ``sources.yaml``."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

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


class Condition(pydantic.BaseModel):
    """A key of the column ``conditions``: an entry of ``conditions.yaml``.

    :ivar role: ``condition``, which a case must meet; ``describes``, which it need not meet;
        ``data``, with which a row gives neither bounds nor a ceiling.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

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
        return _fault_of_cell(self.where[row.id], row.id, column, message)

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

    def declare(self, benchmark: str, metric: str, entry: MetricEntry) -> list[str]:
        """Register a figure as a check declares it, and return what is wrong."""
        known, key = self.foms.setdefault(benchmark, {}), (benchmark, metric)
        if metric in known and key not in self.derived:
            if known[metric] == entry:
                return []
            return [f"{benchmark} {metric} is declared differently in foms.yaml or another check"]
        self.derived.discard(key)
        known[metric] = entry
        return [
            *table_faults.of_fom(f"{benchmark} {metric}", entry, self),
            *(
                self.fault(row, column, message)
                for row in self.rows.values()
                if (row.benchmark, row.metric) == key
                for column, message in table_faults.of_row(row, self)
            ),
        ]

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


class _Foms(pydantic.RootModel[dict[str, list[_MetricGroup]]]):
    pass


class _Sources(pydantic.RootModel[dict[str, Source]]):
    pass


class _Conditions(pydantic.RootModel[dict[str, Condition]]):
    pass


def half_digit(cell: str) -> float:
    """Return half of the last digit of a cell, 0 if it is empty."""
    return float(Decimal(5).scaleb(int(Decimal(cell).as_tuple().exponent) - 1)) if cell else 0.0


def read_foms(folder: Folder) -> dict[str, dict[str, MetricEntry]]:
    """Return the register of figures of merit: benchmark -> metric -> registration.

    :raises Fault: if the file is invalid or registers a metric twice.
    """
    foms: dict[str, dict[str, MetricEntry]] = {}
    path = layers_of(folder).find("foms.yaml")
    for benchmark, groups in read_layers(folder, "foms.yaml", _Foms).root.items():
        metrics = foms.setdefault(benchmark, {})
        for group in groups:
            for metric in group.metrics:
                if metric in metrics:
                    raise Fault(
                        f"{path}: {benchmark}: {metric} is registered twice",
                        code="reference.wrong-table",
                    )
                metrics[metric] = group
    return foms


def _fault_of_cell(where: str, name: str | None, column: str, message: str) -> str:
    row = f"row {name}: " if name else ""
    return f"{where}: {row}column {column}: {message}"


def read_rows(path: Path) -> tuple[list[tuple[int, dict[str, str], Row]], list[str]]:
    """Return the rows of a table with line and cells, and its faults with file, line, column."""
    rows, faults = [], []
    line = 0
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames or []
            required = [name for name, cell in Row.model_fields.items() if cell.is_required()]
            missing = [name for name in required if name not in columns]
            unknown = [name for name in columns if name not in Row.model_fields]
            if missing or unknown or len(set(columns)) != len(columns):
                wrong = [f"missing {name}" for name in missing]
                wrong += [f"unknown {name!r}" for name in unknown]
                wrong += [suggest(unknown[0], Row.model_fields)] if unknown else []
                return [], [f"{path}:1: columns: {', '.join(wrong) or 'a repeated one'}"]
            for cells in reader:
                line = reader.line_num
                where = f"{path}:{line}"
                name = cells.get("id")
                if None in cells or None in cells.values():
                    why = "more or fewer cells than columns"
                    faults.append(_fault_of_cell(where, name, columns[-1], why))
                    continue
                try:
                    rows.append((line, cells, Row.model_validate(cells)))
                except pydantic.ValidationError as err:
                    for fault in err.errors():
                        column = str(fault["loc"][0]) if fault["loc"] else "row"
                        why = f"{cells.get(column)!r}: {fault['msg']}"
                        faults.append(_fault_of_cell(where, name, column, why))
    except (csv.Error, UnicodeDecodeError) as err:
        faults.append(f"{path}:{line + 1}: not a valid table from here on: {err}")
    except OSError as err:
        faults.append(f"{path}: cannot be read: {err.strerror}")
    return rows, faults


def read_rules(folder: Folder) -> Tolerances:
    """Return the content of ``tolerance.yaml``.

    :raises Fault: if it is invalid.
    """
    return read_layers(folder, "tolerance.yaml", Tolerances)


@functools.cache
def directions(folder: Folder) -> dict[tuple[str, str], str]:
    """Return benchmark and metric of each registered figure -> ``higher``, ``lower``, ``neither``.

    :raises Fault: if a register is invalid.
    """
    classes = read_rules(folder).classes
    return {
        (benchmark, metric): classes[fom.tolerance].better
        for benchmark, metrics in read_foms(folder).items()
        for metric, fom in metrics.items()
        if fom.tolerance in classes
    }


def load(folder: Folder) -> Tables:
    """Read all tables of a folder, and validate them.

    :raises Fault: with all faults of all tables, one per line.
    """
    layers = layers_of(folder)
    foms = read_foms(folder)
    registered = {*foms}
    tables = Tables(
        foms=foms,
        rules=read_rules(folder),
        sources=read_layers(folder, "sources.yaml", _Sources).root,
        conditions=read_layers(folder, "conditions.yaml", _Conditions).root,
        links=read_layers(folder, "links.yaml", Links),
    )
    # Before the rows, which register what only they have.
    faults = [*table_faults.of_registers(tables, layers)]
    for path in layers.files("*.csv"):
        rows, wrong = read_rows(path)
        faults += wrong
        for line, cells, row in rows:
            where = f"{path}:{line}"
            if row.id in tables.rows:
                message = f"{row.id!r} is also in {tables.where[row.id]}"
                faults.append(_fault_of_cell(where, row.id, "id", message))
                continue
            tables.rows[row.id], tables.where[row.id] = row, where
            tables.printed[row.id] = cells
            if row.source == SITE and row.benchmark not in registered:
                # Of a site's own check, which need not be loaded now.
                by_unit = tables.rules.of_unit(row.unit, units.better(row.unit))
                tolerance = row.conditions.get("class", by_unit)
                tables.register(row.benchmark, row.metric, row.unit, tolerance)
                tables.allow(row.conditions)
    faults += table_faults.of_rows(tables, layers)
    if faults:
        raise Fault("\n".join(faults), code="reference.wrong-table")
    return tables
