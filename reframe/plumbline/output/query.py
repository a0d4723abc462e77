"""``plumbline refs``: the reference rows, found, explained, and held against the checks."""

from __future__ import annotations

import csv
import fnmatch
import json
from collections.abc import Iterable
from pathlib import Path

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import near
from plumbline.parse import Figure
from plumbline.reference import lookup
from plumbline.reference.lookup import Bounds, References, told
from plumbline.reference.row import Case, Row
from plumbline.reference.tolerance import Tolerance

#: Columns of a listing.
COLUMNS = ("id", "system", "benchmark", "metric", "placement", "message_size", "nodes",
           "conditions", "value", "spread", "unit", "statistic", "kind", "locator")  # fmt: skip


def select(
    references: References, wanted: dict[str, str | None], words: Iterable[str]
) -> list[Row]:
    """The rows whose cells match all patterns (``*`` and ``?`` as in a shell).

    :arg wanted: column -> pattern; ``None`` matches any.
    :arg words: each must stand in some cell, in any case; a number must be the row's value.
    """
    patterns = {column: pattern for column, pattern in wanted.items() if pattern is not None}
    found = []
    for row in references.rows:
        cells = references.tables.printed[row.id]
        fits = all(fnmatch.fnmatchcase(cells.get(c, ""), p) for c, p in patterns.items())
        if fits and all(_has(cells, word) for word in words):
            found.append(row)
    return found


def _has(cells: dict[str, str], word: str) -> bool:
    try:
        return float(word) == float(cells["value"])
    except ValueError:
        return any(word.lower() in cell.lower() for cell in cells.values())


def misprints(folder: Path) -> dict[str, list[dict]]:
    """Known misprints by row id: what is printed, what is used, and the arithmetic. A site's own
    folder has no papers, and need not have the list."""
    found: dict[str, list[dict]] = {}
    path = folder / "known" / "misprints.csv"
    if not path.exists():
        return found
    with path.open(newline="", encoding="utf-8") as file:
        for fields in csv.DictReader(file):
            for pattern in fields["id"].split(";"):
                found.setdefault(pattern.strip(), []).append(fields)
    return found


def misprints_of(row: Row, known: dict[str, list[dict]]) -> list[dict]:
    """The known misprints of a row; an id of the list may be a pattern."""
    return [
        fields
        for pattern, listed in known.items()
        if fnmatch.fnmatchcase(row.id, pattern)
        for fields in listed
    ]


def why(references: References, name: str, known: dict[str, list[dict]]) -> list[str]:
    """What a row is, where it comes from, and what it asserts by which rule: lines of text.

    :raises Fault: if there is no row of that id.
    """
    tables = references.tables
    row = tables.rows.get(name)
    if row is None:
        raise Fault(f"no reference {name!r}; {near(name, tables.rows)}", code="input.unknown-name")
    source = tables.sources[row.source]
    cells = {column: cell for column, cell in tables.printed[name].items() if cell}
    spread = f" ± {cells['spread']}" if "spread" in cells else ""
    about = ("toolchain", "placement", "message_size", "nodes", "ppn", "conditions")
    lines = [
        f"{row.id}  ({tables.where[row.id]})",
        f"printed:   {cells['value']}{spread} {row.unit}, statistic {row.statistic}, {row.kind}",
        f"of:        {row.system}, {row.benchmark} {row.variable}",
        *(f"           {key} {cells[key]}" for key in about if key in cells),
        f"source:    {': '.join(filter(None, (source.authors, source.short)))}",
        f"           {row.locator}",
    ]
    if source.doi:
        lines.append(f"           doi:{source.doi}")
    if row.note:
        lines.append(f"note:      {row.note}")
    for fields in misprints_of(row, known):
        lines.append(f"misprint:  printed {fields['printed']}; used {fields['used']}: "
                     f"{fields['arithmetic']}")  # fmt: skip
    return [*lines, *_asserts(references, row)]


def _asserts(references: References, row: Row) -> list[str]:
    fom = references.fom(row.benchmark, row.metric)
    rule = references.rule_of(row)
    data = [key for key in row.conditions if references.tables.conditions[key].role == "data"]
    if data:
        floor_of = [
            pattern
            for found in references.tables.rules.exceptions
            if found.variation == row.id
            for pattern in found.rows
        ]
        tells = f"; it is the tolerance of {', '.join(floor_of)}" if floor_of else ""
        return [f"asserts:   nothing: {', '.join(data)} makes the row data{tells}"]
    if row.kind == "peak":
        value, _ = row.used(fom.unit)
        return [
            f"asserts:   ceiling {value:g} {fom.unit}: no honest measurement exceeds it",
            *_caps(references, row),
        ]
    if rule.better == "neither":
        return [f"asserts:   nothing: class {fom.tolerance}: {rule.reason}"]
    if row.kind != "measured" or not references.may_decide(row):
        what = f"a row of kind {row.kind}, statistic {row.statistic}"
        where = f", of a distribution ({fom.tolerance})" if rule.distribution else ""
        return [f"asserts:   nothing: {what}{where}, is data"]
    bounds = references.bounds_of(row)
    if bounds is None:
        return ["asserts:   nothing: its spread is so wide that no measurement could fail"]
    interval = f"[{told(bounds.lower)}, {told(bounds.upper)}] {fom.unit}"
    digit = max(fom.resolution, 2 * references.tables.half_digits(row, fom.unit)[0])
    least = f", at least {digit:g} {fom.unit}"
    found = references.tables.rules.exception(row.id)
    printed = f" (printed: {found.variation})" if found and found.variation else ""
    single = f", for the mean of {rule.samples} runs" if rule.distribution else ""
    return [
        f"asserts:   {interval}",
        f"           class {fom.tolerance}: {rule.better} is better; the larger of "
        f"{rule.floor:.0%}{printed} and {rule.spreads:g} spreads{least}{single}",
        f"           {rule.reason}",
        f"           {_band(references, rule, bounds)} {fom.unit}: near its bound",
        f"           {references.tables.rules.warning.reason}",
        *_capped(references, row),
    ]


def _capped(references: References, row: Row) -> list[str]:
    """The ceiling of what a row bounds, as far as its cells say which links are crossed."""
    cells = (row.toolchain, row.benchmark, row.placement, row.nodes or 1, row.ppn or 1)
    case = Case(row.system, row.conditions.get("partition", ""), *cells, row.conditions)
    ceiling = references.ceiling(case, row.metric, row.message_size)
    unit = references.fom(row.benchmark, row.metric).unit
    return [f"ceiling:   {ceiling.value:g} {unit}: {ceiling}"] if ceiling else []


def _caps(references: References, row: Row) -> list[str]:
    """What a peak caps beside its own metric: lines of text."""
    lines = []
    links = references.tables.links
    for link in links.links.values():
        if not references.is_peak_of(link, row):
            continue
        lines.append(f"caps:      what crosses {link.what}: {link.reason}")
        for name, times in link.carries.items():
            traffic = links.traffic[name]
            where = ", ".join(traffic.placements if link.placements == ("*",) else link.placements)
            each = " for each node" if traffic.per_node else ""
            lines.append(
                f"           {times * references.count(link, row):g} x the peak{each}, placements "
                f"{where}: {', '.join(traffic.metrics)}"
            )
    return lines


def _band(references: References, rule: Tolerance, bounds: Bounds) -> str:
    """The warning band inside the bounds, in words."""
    share = references.tables.rules.band(rule)
    if rule.better == "higher":
        return f"[{told(bounds.lower)}, {told(bounds.edge(share))})"
    return f"({told(bounds.edge(share))}, {told(bounds.upper)}]"


def unused(rows: Iterable[Row]) -> list[Row]:
    """The rows that no check declares, whatever the system: data to read, not to assert.

    :raises Fault: if a check file cannot be loaded.
    """
    # It brings ReFrame, which nothing else here needs.
    from plumbline.session import plan

    everywhere = ["--skip-system-check", "--skip-prgenv-check"]
    said = plan.reframe(["-c", str(paths.CHECKS), "--describe", *everywhere], "local")
    described = json.loads(said[said.index("[\n") : said.rindex("]") + 1])
    declared = {
        (check["benchmark"], check["placed"], figure)
        for check in described
        for figure in check["declared"]
    }
    standing_in: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for benchmark, metrics in lookup.loaded(paths.reference()).tables.foms.items():
        for metric, fom in metrics.items():
            for same in fom.same_as:
                standing_in.setdefault(tuple(same.split("/", 1)), set()).add((benchmark, metric))
    return [
        row
        for row in rows
        if not any(
            _declared(row, *name, declared)
            for name in [
                (row.benchmark, row.metric),
                *standing_in.get((row.benchmark, row.metric), ()),
            ]
        )
    ]


def _declared(row: Row, benchmark: str, metric: str, declared: set[tuple[str, str, str]]) -> bool:
    """Whether a check declares what a row tells of a benchmark's metric."""
    variable = Figure(metric, row.message_size).variable
    return any(
        of == benchmark
        and row.placement in ("", placement)
        and (figure == variable or figure.startswith(f"{variable}_"))
        for of, placement, figure in declared
    )
