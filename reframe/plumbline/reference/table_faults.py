"""What is wrong with reference tables whose rows are valid one by one.

Each function yields messages with file and place; those of rows with the row's id, which is empty
if the fault is no row's.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from pathlib import Path

from plumbline.core import units
from plumbline.core.paths import Layers
from plumbline.core.text import suggest
from plumbline.reference.registers import MetricEntry, Tables
from plumbline.reference.row import SITE, Row, key_of


def of_registers(tables: Tables, layers: Layers) -> Iterator[str]:
    """Yield the faults of ``foms.yaml`` and ``links.yaml``."""
    yield from _of_foms(layers.find("foms.yaml"), tables)
    yield from _of_links(layers.find("links.yaml"), tables)


def of_rows(tables: Tables, layers: Layers) -> Iterator[tuple[str, str]]:
    """Yield the faults of all rows, and of what ``tolerance.yaml`` has about them."""
    for row in tables.rows.values():
        yield from ((row.id, tables.fault(row, *fault)) for fault in of_row(row, tables))
    yield from _of_pairs(tables)
    for message in _of_exceptions(layers.find("tolerance.yaml"), tables):
        yield "", message


def _of_foms(path: Path, tables: Tables) -> Iterator[str]:
    for benchmark, metrics in tables.foms.items():
        for metric, fom in metrics.items():
            where = f"{path}: {benchmark} {metric}"
            yield from of_fom(where, fom, tables)
            try:
                units.factor(fom.unit, fom.unit)
            except units.UnitError as err:
                yield f"{where}: unit: {err}"


def of_fom(where: str, fom: MetricEntry, tables: Tables) -> Iterator[str]:
    if fom.tolerance not in tables.rules.classes:
        hint = suggest(fom.tolerance, tables.rules.classes)
        yield f"{where}: class {fom.tolerance!r} is not in tolerance.yaml; {hint}"
    for ceiling in fom.ceilings:
        other, _, capped = ceiling.partition("/")
        if capped not in tables.foms.get(other, {}):
            yield f"{where}: ceiling {ceiling!r} is not registered"
    for same in fom.same_as:
        if wrong := _of_same(same, fom, tables):
            yield f"{where}: same_as {same!r} {wrong}"


def _of_links(path: Path, tables: Tables) -> Iterator[str]:
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


def _of_same(same: str, fom: MetricEntry, tables: Tables) -> str | None:
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


def of_row(row: Row, tables: Tables) -> Iterator[tuple[str, str]]:
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
        yield from _of_value(row, fom, tables)


def _of_value(row: Row, fom: MetricEntry, tables: Tables) -> Iterator[tuple[str, str]]:
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
    bounding = row.kind == "measured" and tables.rules.may_decide(row, rule)
    if bounding and value == 0:
        yield "value", "0 gives no bounds"


def _of_exceptions(path: Path, tables: Tables) -> Iterator[str]:
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


def _of_pairs(tables: Tables) -> Iterator[tuple[str, str]]:
    seen: dict[tuple[object, ...], Row] = {}
    for row in tables.rows.values():
        key = (row.source, *key_of(row))
        if key in seen:
            other = tables.where[seen[key].id]
            yield row.id, tables.fault(row, "id", f"the same key as {seen[key].id} ({other})")
        seen.setdefault(key, row)
    published: dict[tuple[str, str, str], Row] = {}
    for row in tables.rows.values():
        if row.source != SITE:
            published.setdefault((row.system, row.benchmark, row.metric), row)
    for row in tables.rows.values():
        shadowed = published.get((row.system, row.benchmark, row.metric))
        if row.source == SITE and shadowed and not units.same(row.unit, shadowed.unit):
            message = f"{row.unit!r}: use {shadowed.unit!r}, as {shadowed.id}, which it overrides"
            yield row.id, tables.fault(row, "unit", message)
