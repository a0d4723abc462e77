"""Read and validate the reference tables.

Pure: independent of ReFrame. A table with an invalid row is refused as a whole, since a run without
the row would assert less than expected.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path

from pydantic import RootModel, ValidationError

from plumbline.core import units
from plumbline.core.errors import Fault
from plumbline.core.paths import Folder, layers_of
from plumbline.core.text import suggest
from plumbline.core.yamlfile import read_layers
from plumbline.reference import table_faults
from plumbline.reference.links import Links
from plumbline.reference.registers import Condition, MetricEntry, Source, Tables, fault_of_cell
from plumbline.reference.row import SITE, Row
from plumbline.reference.tolerance import Tolerances


class _MetricGroup(MetricEntry):
    metrics: list[str]


def read_foms(folder: Folder) -> dict[str, dict[str, MetricEntry]]:
    """Return the register of figures of merit: benchmark -> metric -> registration.

    :raises Fault: if the file is invalid or registers a metric twice.
    """
    foms: dict[str, dict[str, MetricEntry]] = {}
    groups_of = RootModel[dict[str, list[_MetricGroup]]]
    path = layers_of(folder).find("foms.yaml")
    for benchmark, groups in read_layers(folder, "foms.yaml", groups_of).root.items():
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
                    faults.append(fault_of_cell(where, name, columns[-1], why))
                    continue
                try:
                    rows.append((line, cells, Row.model_validate(cells)))
                except ValidationError as err:
                    for fault in err.errors():
                        column = str(fault["loc"][0]) if fault["loc"] else "row"
                        why = f"{cells.get(column)!r}: {fault['msg']}"
                        faults.append(fault_of_cell(where, name, column, why))
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


def declare(tables: Tables, benchmark: str, metric: str, entry: MetricEntry) -> list[str]:
    """Register a figure as a check declares it, and return what is wrong."""
    known, key = tables.foms.setdefault(benchmark, {}), (benchmark, metric)
    if metric in known and key not in tables.derived:
        if known[metric] == entry:
            return []
        return [f"{benchmark} {metric} is declared differently in foms.yaml or another check"]
    tables.derived.discard(key)
    known[metric] = entry
    return [
        *table_faults.of_fom(f"{benchmark} {metric}", entry, tables),
        *(
            tables.fault(row, column, message)
            for row in tables.rows.values()
            if (row.benchmark, row.metric) == key
            for column, message in table_faults.of_row(row, tables)
        ),
    ]


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
    tables, of_registers, of_cells = _read(folder)
    of_rows = [message for _, message in table_faults.of_rows(tables, layers_of(folder))]
    if faults := [*of_registers, *of_cells, *of_rows]:
        raise Fault("\n".join(faults), code="reference.wrong-table")
    return tables


def load_valid(folder: Folder) -> tuple[Tables, list[str]]:
    """Return the tables of a folder without invalid rows, and a message about each of these. For
    those who only show references: a run asserts less without a row.

    :raises Fault: with all faults of the registers, one per line.
    """
    tables, of_registers, faults = _read(folder)
    if of_registers:
        raise Fault("\n".join(of_registers), code="reference.wrong-table")
    for name, message in [*table_faults.of_rows(tables, layers_of(folder))]:
        faults.append(message)
        tables.rows.pop(name, None)
    usable = [
        one for one in tables.rules.exceptions if not one.variation or one.variation in tables.rows
    ]
    rules = tables.rules.model_copy(update={"exceptions": usable})
    return dataclasses.replace(tables, rules=rules), faults


def _read(folder: Folder) -> tuple[Tables, list[str], list[str]]:
    """Return the registers and all rows that are valid one by one, the faults of the registers, and
    those of the other rows.

    :raises Fault: if a register cannot be read.
    """
    layers = layers_of(folder)
    foms = read_foms(folder)
    registered = {*foms}
    tables = Tables(
        foms=foms,
        rules=read_rules(folder),
        sources=read_layers(folder, "sources.yaml", RootModel[dict[str, Source]]).root,
        conditions=read_layers(folder, "conditions.yaml", RootModel[dict[str, Condition]]).root,
        links=read_layers(folder, "links.yaml", Links),
    )
    # Before the rows, which register what only they have.
    of_registers = [*table_faults.of_registers(tables, layers)]
    faults = []
    for path in layers.files("*.csv"):
        rows, wrong = read_rows(path)
        faults += wrong
        for line, cells, row in rows:
            where = f"{path}:{line}"
            if row.id in tables.rows:
                message = f"{row.id!r} is also in {tables.where[row.id]}"
                faults.append(fault_of_cell(where, row.id, "id", message))
                continue
            tables.rows[row.id], tables.where[row.id] = row, where
            tables.printed[row.id] = cells
            if row.source == SITE and row.benchmark not in registered:
                # Of a site's own check, which need not be loaded now.
                by_unit = tables.rules.of_unit(row.unit, units.better(row.unit))
                tolerance = row.conditions.get("class", by_unit)
                tables.register(row.benchmark, row.metric, row.unit, tolerance)
                tables.allow(row.conditions)
    return tables, of_registers, faults
