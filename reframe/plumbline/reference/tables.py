"""Read and validate the reference tables.

Pure: independent of ReFrame. A table with an invalid row is refused as a whole, since a run without
the row would assert less than expected.
"""

from __future__ import annotations

import csv
import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic
import yaml
from pydantic_core import ErrorDetails

from plumbline.core import units
from plumbline.core.errors import Fault
from plumbline.core.paths import Folder, layers_of
from plumbline.core.text import suggest
from plumbline.reference.links import Links
from plumbline.reference.row import Row, Text
from plumbline.reference.tolerance import Tolerances

#: Source of a site's own rows.
SITE = "site"


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
            *_faults_of_fom(f"{benchmark} {metric}", entry, self),
            *(
                self.fault(row, column, message)
                for row in self.rows.values()
                if (row.benchmark, row.metric) == key
                for column, message in _faults_of_row(row, self)
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


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    :raises Fault: if it cannot be read; with file, line and column.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise Fault(
            f"{path}{where}: not valid YAML: {err.problem or err.context}", code="input.wrong-file"
        ) from None
    except (OSError, ValueError, yaml.YAMLError) as err:
        # An invalid date, such as 2026-13-01, is a ValueError.
        raise Fault(f"{path}: cannot be read: {err}", code="input.unreadable-file") from None


_Model = TypeVar("_Model", bound=pydantic.BaseModel)


def read_register(folder: Folder, name: str, model: type[_Model]) -> _Model:
    """Return the validated content of a register. A site's file adds to the shipped one: mappings
    are merged by their keys, and any other value replaces the shipped one.

    :raises Fault: with all faults, each with its file.
    """
    layers = layers_of(folder)
    return read_model(layers.all(name) or [layers.find(name)], model)


def _merged(higher: Any, lower: Any) -> Any:
    if higher is None:
        # A file of the site may have comments only.
        return lower
    if isinstance(higher, dict) and isinstance(lower, dict):
        common = {key: _merged(higher[key], lower[key]) for key in higher.keys() & lower.keys()}
        return {**lower, **higher, **common}
    return higher


def _has(content: Any, place: Sequence[str | int]) -> bool:
    for key in place[:2]:
        if not isinstance(content, dict) or key not in content:
            return False
        content = content[key]
    return True


def read_model(path: Path | Sequence[Path], model: type[_Model], entry: str = "") -> _Model:
    """Return the validated content of a YAML file, or of several mappings merged.

    :arg path: a file, or several, of which the first ones override.
    :arg entry: the name of an entry in messages, if the file is a list; each entry has an ``id``.
    :raises Fault: with all faults, one per line, each with its file.
    """
    contents = {file: read_yaml(file) for file in ([path] if isinstance(path, Path) else path)}
    content = functools.reduce(_merged, contents.values())

    def file_of(place: Sequence[str | int]) -> Path:
        first, *_ = contents
        return next((file for file, own in contents.items() if _has(own, place)), first)

    return validated(content, model, file_of, entry)


def validated(
    content: object,
    model: type[_Model],
    where: str | Callable[[Sequence[str | int]], object],
    entry: str = "",
    code: str = "input.wrong-file",
) -> _Model:
    """Return validated content.

    :arg where: the beginning of each message; or returns that of one about a value, by its keys.
    :raises Fault: with all faults, one per line.
    """
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as err:
        faults = err.errors()
        # A list without its faulty items is too short for pydantic, but not for the user.
        lists = {fault["loc"][:-1] for fault in faults}
        of = (lambda _: where) if isinstance(where, str) else where
        raise Fault(
            "\n".join(
                f"{of(fault['loc'])}: {_describe(fault, content, model, entry)}"
                for fault in faults
                if fault["type"] != "too_short" or fault["loc"] not in lists
            ),
            code=code,
        ) from None


#: Type of pydantic's error -> the expected value in terms of YAML.
_MUST_BE = {
    "date_from_datetime_parsing": "a day, such as 2026-12-31",
    "int_type": "a whole number",
    "model_type": "keys with their values, such as {key: value}",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_short": "a list that is not empty",
    "tuple_type": "a list, such as [one, two]",
}


def _describe(
    fault: ErrorDetails, content: Any, model: type[pydantic.BaseModel], entry: str
) -> str:
    """Return a message about an error that pydantic found, with its place."""
    place, start = list(fault["loc"]), ""
    if entry and place:
        number = int(place.pop(0))
        name = content[number].get("id") if isinstance(content[number], dict) else None
        start = f"{entry} {number + 1}{f' ({name})' if name else ''}: "
    key = place[-1] if place else ""
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = f"no such key; {suggest(str(key), _keys(model, fault['loc'][:-1]))}"
    elif fault["type"] == "missing":
        message = "is missing"
    elif fault["type"] == "literal_error":
        message = f"must be {fault['ctx']['expected']}"
    elif fault["type"] in _MUST_BE:
        message = f"must be {_MUST_BE[fault['type']]}"
    where = f"{'.'.join(map(str, place))}: " if place else "" if start else "file: "
    return f"{start}{where}{message}"


def _keys(model: type[pydantic.BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the valid keys at a place of a file."""
    schema = model.model_json_schema()
    part = schema
    for key in [*place, None]:
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        if key is None:
            break
        value = part.get("properties", {}).get(key) or part.get("additionalProperties")
        part = value or part.get("items", {})
    return list(part.get("properties", {}))


def read_foms(folder: Folder) -> dict[str, dict[str, MetricEntry]]:
    """Return the register of figures of merit: benchmark -> metric -> registration.

    :raises Fault: if the file is invalid or registers a metric twice.
    """
    foms: dict[str, dict[str, MetricEntry]] = {}
    path = layers_of(folder).find("foms.yaml")
    for benchmark, groups in read_register(folder, "foms.yaml", _Foms).root.items():
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
    return read_register(folder, "tolerance.yaml", Tolerances)


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
        sources=read_register(folder, "sources.yaml", _Sources).root,
        conditions=read_register(folder, "conditions.yaml", _Conditions).root,
        links=read_register(folder, "links.yaml", Links),
    )
    faults = [
        *_faults_of_foms(layers.find("foms.yaml"), tables),
        *_faults_of_links(layers.find("links.yaml"), tables),
    ]
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
    for row in tables.rows.values():
        faults += [tables.fault(row, *fault) for fault in _faults_of_row(row, tables)]
    faults += _faults_between(tables)
    faults += _faults_of_exceptions(layers.find("tolerance.yaml"), tables)
    if faults:
        raise Fault("\n".join(faults), code="reference.wrong-table")
    return tables


def _faults_of_foms(path: Path, tables: Tables) -> Iterator[str]:
    for benchmark, metrics in tables.foms.items():
        for metric, fom in metrics.items():
            where = f"{path}: {benchmark} {metric}"
            yield from _faults_of_fom(where, fom, tables)
            try:
                units.factor(fom.unit, fom.unit)
            except units.UnitError as err:
                yield f"{where}: unit: {err}"


def _faults_of_fom(where: str, fom: MetricEntry, tables: Tables) -> Iterator[str]:
    if fom.tolerance not in tables.rules.classes:
        hint = suggest(fom.tolerance, tables.rules.classes)
        yield f"{where}: class {fom.tolerance!r} is not in tolerance.yaml; {hint}"
    for ceiling in fom.ceilings:
        other, _, capped = ceiling.partition("/")
        if capped not in tables.foms.get(other, {}):
            yield f"{where}: ceiling {ceiling!r} is not registered"
    for same in fom.same_as:
        if wrong := _fault_of_same(same, fom, tables):
            yield f"{where}: same_as {same!r} {wrong}"


def _faults_of_links(path: Path, tables: Tables) -> Iterator[str]:
    """Yield unknown names in ``links.yaml``, with which a ceiling would cap nothing."""
    links = tables.links
    keys = {key for traffic in links.traffic.values() for key in traffic.where}
    for link in links.links.values():
        keys |= {*link.seen_as.conditions, *([link.count] if link.count else [])}
    metrics = [name for traffic in links.traffic.values() for name in traffic.metrics]
    metrics += [name for link in links.links.values() for name in link.peaks]
    registered = {
        f"{benchmark}/{metric}" for benchmark, known in tables.foms.items() for metric in known
    }
    carried = {name for link in links.links.values() for name in link.carries}
    for what, names, known in (
        ("condition", keys, tables.conditions),
        ("metric", metrics, registered),
        ("traffic", carried, links.traffic),
    ):
        for name in dict.fromkeys(names):
            if name not in known:
                yield f"{path}: no {what} {name!r}; {suggest(name, known)}"
    for name in links.traffic.keys() - carried:
        yield f"{path}: no link carries traffic {name!r}"


def _fault_of_same(same: str, fom: MetricEntry, tables: Tables) -> str | None:
    """Return why a metric cannot be the same quantity as another, if it cannot."""
    benchmark, _, metric = same.partition("/")
    other = tables.foms.get(benchmark, {}).get(metric)
    if other is None:
        return "is not registered"
    if other.tolerance != fom.tolerance:
        return f"is of class {other.tolerance!r}, not {fom.tolerance!r}"
    try:
        units.factor(other.unit, fom.unit)
    except units.UnitError as err:
        return f"has another unit: {err}"
    return None


def _faults_of_row(row: Row, tables: Tables) -> Iterator[tuple[str, str]]:
    """Yield the faults of a row: column and message."""
    if row.source not in tables.sources:
        yield "source", f"{row.source!r} is not in sources.yaml"
    for key in row.conditions:
        if key not in tables.conditions:
            yield "conditions", f"key {key!r} is not in conditions.yaml"
    runs = row.conditions.get("runs", "1")
    if not runs.isdecimal() or int(runs) < 1:
        yield "conditions", f"runs={runs} is not a number of runs"
    fom = tables.foms.get(row.benchmark, {}).get(row.metric)
    if row.benchmark not in tables.foms:
        yield "benchmark", f"{row.benchmark!r} is not in foms.yaml"
    elif fom is None:
        yield "metric", f"{row.benchmark} {row.metric!r} is not in foms.yaml"
    elif fom.tolerance not in tables.rules.classes:
        yield "unit", f"{row.unit!r}: its class {fom.tolerance!r} is not in tolerance.yaml"
    else:
        yield from _faults_of_value(row, fom, tables)


def _faults_of_value(row: Row, fom: MetricEntry, tables: Tables) -> Iterator[tuple[str, str]]:
    """Yield the faults of a row's value and spread in the unit of its metric."""
    try:
        value, spread = row.used(fom.unit)
    except units.UnitError as err:
        yield "unit_used" if row.unit_used else "unit", str(err)
        return
    if spread > abs(value):
        yield "spread", f"{row.spread:g} is larger than the value"
    rule = tables.rules.classes[fom.tolerance]
    if rule.better != "neither" and value < 0:
        yield "value", f"{value:g} is negative"
    bounding = row.kind == "measured" and rule.decides(row, tables.rules.decides)
    if bounding and value == 0:
        yield "value", "0 gives no bounds"


def _faults_of_exceptions(path: Path, tables: Tables) -> Iterator[str]:
    """Yield the faults of ``exceptions`` in ``tolerance.yaml``.

    A folder with only a site's own tables has none of the rows of these exceptions.
    """
    if all(row.source == SITE for row in tables.rows.values()):
        return
    for number, found in enumerate(tables.rules.exceptions):
        where = f"{path}: exceptions.{number}"
        for pattern in found.rows:
            if not fnmatch.filter(tables.rows, pattern):
                yield f"{where}.rows: no reference matches {pattern!r}"
        if found.variation:
            row = tables.rows.get(found.variation)
            if row is None:
                yield f"{where}.variation: no reference {found.variation!r}"
            elif not units.same(row.unit, "%"):
                yield f"{where}.variation: {row.id} has the unit {row.unit!r}, not percent"
    for name in tables.rows:
        if sum(found.matches(name) for found in tables.rules.exceptions) > 1:
            yield f"{path}: exceptions: {name} matches several of them"


def key_of(row: Row) -> tuple[object, ...]:
    """Return what a row describes; rows of one source with the same key are duplicates."""
    conditions = tuple(sorted(row.conditions.items()))
    cells = (row.system, row.toolchain, row.benchmark, row.metric, row.placement)
    return (*cells, row.message_size, row.nodes, row.ppn, conditions, row.statistic, row.kind)


def _faults_between(tables: Tables) -> Iterator[str]:
    seen: dict[tuple[object, ...], Row] = {}
    for row in tables.rows.values():
        key = (row.source, *key_of(row))
        if key in seen:
            other = tables.where[seen[key].id]
            yield tables.fault(row, "id", f"the same key as {seen[key].id} ({other})")
        seen.setdefault(key, row)
    published: dict[tuple[str, str, str], Row] = {}
    for row in tables.rows.values():
        if row.source != SITE:
            published.setdefault((row.system, row.benchmark, row.metric), row)
    for row in tables.rows.values():
        shadowed = published.get((row.system, row.benchmark, row.metric))
        if row.source == SITE and shadowed and not units.same(row.unit, shadowed.unit):
            message = f"{row.unit!r}: use {shadowed.unit!r}, as {shadowed.id}, which it overrides"
            yield tables.fault(row, "unit", message)
