"""``plumbline refs``: finds and explains reference rows, and lists those that no check uses."""

from __future__ import annotations

import csv
import fnmatch
import json
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from plumbline.core import paths
from plumbline.core.errors import UnknownName
from plumbline.core.paths import Folder, layers_of
from plumbline.core.text import shorten, suggest
from plumbline.parse import Figure
from plumbline.reference import links, lookup
from plumbline.reference.links import Link, Traffic
from plumbline.reference.lookup import Bounds, References, format_bound
from plumbline.reference.row import OF_CHECK, Case, Row
from plumbline.reference.tolerance import Tolerance

#: Title of a part of an explanation, and its lines.
Part: TypeAlias = tuple[str, list[str]]

#: Columns of a listing.
COLUMNS = ("id", "system", "benchmark", "metric", "placement", "message_size", "nodes",
           "conditions", "value", "spread", "unit", "statistic", "kind", "locator")  # fmt: skip

#: Columns of a listing of peaks by what they cap.
CAPPING = ("id", "system", "value", "unit", "times", "placements", "caps")


def select(
    references: References, wanted: dict[str, str | None], words: Iterable[str]
) -> list[Row]:
    """Return the rows whose cells match all patterns (``*`` and ``?`` as in a shell).

    :arg wanted: column -> pattern; ``None`` matches any cell.
    :arg words: each must be in some cell, in upper or lower case; a number must be the row's value.
    """
    printed = references.tables.printed
    return [row for row in references.rows if _matches(printed[row.id], wanted, words)]


def capping(
    references: References, wanted: dict[str, str | None], words: Iterable[str]
) -> list[dict[str, str]]:
    """Return the peaks of links that cap matching figures, which may have no row of their own.

    They match as :func:`select` does, with the figure's benchmark, metric and placement in place of
    the peak's.
    """
    place, others = wanted.get("placement"), wanted | {"placement": None}
    found = []
    for row, link, traffic, times in _peaks(references, references.rows):
        crossing = _crossing(link, traffic)
        where = [p for p in crossing if place is None or _either_matches(p, place)]
        cells = references.tables.printed[row.id] | {"placement": " ".join(where)}
        names = [
            name for name in traffic.metrics
            if where and _matches(cells | _figure(name), others, words)
        ]  # fmt: skip
        if names:
            found.append(cells | {"times": f"{times:g}", "placements": ", ".join(where),
                                  "caps": shorten(names, 1)})  # fmt: skip
    return found


def _peaks(
    references: References, rows: Iterable[Row]
) -> Iterator[tuple[Row, Link, Traffic, float]]:
    """Yield those rows that are the peak of a link, with a traffic and the multiple of the peak
    that it may reach."""
    known = references.tables.links
    for row in rows:
        for link in known.links.values():
            if references.is_peak_of(link, row):
                for name, times in link.carries.items():
                    yield row, link, known.traffic[name], times * references.count(link, row)


def _crossing(link: Link, traffic: Traffic) -> list[str]:
    """Return the placements whose traffic crosses a link; * and ? as in a shell."""
    narrow = [place for place in link.placements if links.applies(traffic.placements, place)]
    wide = [place for place in traffic.placements if links.applies(link.placements, place)]
    return [*dict.fromkeys(narrow + wide)]


def _figure(name: str) -> dict[str, str]:
    benchmark, _, metric = name.partition("/")
    return {"benchmark": benchmark, "metric": metric}


def _either_matches(first: str, second: str) -> bool:
    return fnmatch.fnmatchcase(first, second) or fnmatch.fnmatchcase(second, first)


def _matches(cells: dict[str, str], wanted: dict[str, str | None], words: Iterable[str]) -> bool:
    patterns = ((cells.get(c, ""), p) for c, p in wanted.items() if p is not None)
    matches = all(fnmatch.fnmatchcase(cell, pattern) for cell, pattern in patterns)
    return matches and all(_matches_word(cells, word) for word in words)


def _matches_word(cells: dict[str, str], word: str) -> bool:
    try:
        return float(word) == float(cells["value"])
    except ValueError:
        return any(word.lower() in cell.lower() for cell in cells.values())


def misprints(folder: Folder) -> list[dict]:
    """Return the known misprints: ids of rows, what is printed, what is used, and the arithmetic.

    The list is optional, since a site's own folder has no papers.
    """
    path = layers_of(folder).find("known/misprints.csv")
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def misprints_of(row: Row, known: list[dict]) -> list[dict]:
    """Return the known misprints of a row; each has patterns of ids, separated by semicolons."""
    return [
        fields
        for fields in known
        if any(fnmatch.fnmatchcase(row.id, each.strip()) for each in fields["id"].split(";"))
    ]


def why(references: References, name: str, known: list[dict]) -> list[str]:
    """Explain a row in lines of text, see :func:`explain`."""
    lines = [
        f"{f'{title}:' if number == 0 else '':<10} {line}"
        for title, part in explain(references, name, known)
        for number, line in enumerate(part)
    ]
    where = references.tables.where.get(name)
    return [f"{name}  ({where})" if where else name, *lines]


def explain(references: References, name: str, known: list[dict]) -> list[Part]:
    """Return the source of a row, and what it asserts by which rule; or where the reference is that
    a check declares itself.

    :arg known: misprints.
    :raises Fault: if there is no row of that id.
    """
    tables = references.tables
    row = tables.rows.get(name)
    if row is None and name == OF_CHECK:
        return [("source", ["declared by the check itself, in no table", "docs/own-checks.md"])]
    if row is None:
        some = f"{shorten(tables.rows, 5)}; `plumbline refs` lists them"
        raise UnknownName(f"there is no reference {name!r}; {suggest(name, tables.rows, some)}")
    source = tables.sources[row.source]
    cells = {column: cell for column, cell in tables.printed[name].items() if cell}
    spread = f" ± {cells['spread']}" if "spread" in cells else ""
    value = f"{cells['value']}{spread} {row.unit}, statistic {row.statistic}, {row.kind}"
    about = ("toolchain", "placement", "message_size", "nodes", "ppn", "conditions")
    return [
        ("printed", [value]),
        ("of", [f"{row.system}, {row.benchmark} {row.variable}",
                *(f"{key} {cells[key]}" for key in about if key in cells)]),
        ("source", [": ".join(filter(None, (source.authors, source.short))), row.locator,
                    *([f"doi:{source.doi}"] if source.doi else []),
                    *([source.document] if source.document.startswith("https:") else [])]),
        *([("note", [row.note])] if row.note else []),
        *(("misprint", [f"printed {found['printed']}; used {found['used']}: {found['arithmetic']}"])
          for found in misprints_of(row, known)),
        *_asserts(references, row),
    ]  # fmt: skip


def _asserts(references: References, row: Row) -> list[Part]:
    """Return what a row asserts, and its ceiling or what it is a ceiling of."""
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
        role = f"; it is the tolerance of {', '.join(floor_of)}" if floor_of else ""
        return [("asserts", [f"nothing: {', '.join(data)} makes the row data{role}"])]
    if row.kind == "peak":
        value = references.peak_of(row, fom.unit, rule.better)
        ceiling = f"ceiling {value:g} {fom.unit}: no valid measurement exceeds it"
        return [("asserts", [ceiling]), *_caps(references, row)]
    if rule.better == "neither":
        return [("asserts", [f"nothing: class {fom.tolerance}: {rule.reason}"])]
    if row.kind != "measured" or not references.may_decide(row):
        of = f", of a distribution ({fom.tolerance})" if rule.distribution else ""
        row_is = f"a row of kind {row.kind}, statistic {row.statistic}"
        return [("asserts", [f"nothing: {row_is}{of}, is data"])]
    bounds = references.bounds_of(row)
    if bounds is None:
        return [("asserts", ["nothing: its spread is so large that no measurement could fail"])]
    digit = max(fom.resolution, 2 * references.tables.half_digits(row, fom.unit)[0])
    found = references.tables.rules.exception(row.id)
    printed = f" (printed: {found.variation})" if found and found.variation else ""
    single = f", for the {row.statistic} of {rule.samples} runs" if rule.distribution else ""
    weak = [f"wide: a loss of {bounds.loss:.0%} passes. {references.tables.rules.wide.reason}"]
    return [
        ("asserts", [
            f"[{format_bound(bounds.lower)}, {format_bound(bounds.upper)}] {fom.unit}",
            f"class {fom.tolerance}: {rule.better} is better; the larger of "
            f"{rule.floor:.0%}{printed} and {rule.spreads:g} spreads, at least {digit:g} "
            f"{fom.unit}{single}",
            rule.reason,
            *(weak if references.is_wide(bounds) else []),
            f"{_band(references, rule, bounds)} {fom.unit}: near its bound",
            references.tables.rules.warning.reason,
        ]),
        *_ceiling(references, row),
    ]  # fmt: skip


def _ceiling(references: References, row: Row) -> list[Part]:
    """Return the ceiling of what a row bounds, as far as its cells determine the links used."""
    cells = (row.toolchain, row.benchmark, row.placement, row.nodes or 1, row.ppn or 1)
    case = Case(row.system, row.conditions.get("partition", ""), *cells, row.conditions)
    ceiling = references.ceiling(case, row.metric, row.message_size)
    unit = references.fom(row.benchmark, row.metric).unit
    return [("ceiling", [f"{ceiling.value:g} {unit}: {ceiling}"])] if ceiling else []


def _caps(references: References, row: Row) -> list[Part]:
    """Return what a peak limits besides its own metric."""
    parts: dict[str, list[str]] = {}
    for _, link, traffic, times in _peaks(references, [row]):
        lines = parts.setdefault(link.what, [f"traffic over {link.what}: {link.reason}"])
        each = " for each node" if traffic.per_node else ""
        lines.append(
            f"{times:g} x the peak{each}, placements {', '.join(_crossing(link, traffic))}: "
            f"{', '.join(traffic.metrics)}"
        )
    return [("caps", lines) for lines in parts.values()]


def _band(references: References, rule: Tolerance, bounds: Bounds) -> str:
    """Return the warning band as an interval."""
    share = references.tables.rules.band(rule)
    if rule.better == "higher":
        return f"[{format_bound(bounds.lower)}, {format_bound(bounds.edge(share))})"
    return f"({format_bound(bounds.edge(share))}, {format_bound(bounds.upper)}]"


def unused(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that no check uses, on any system.

    :raises Fault: if a check file cannot be loaded.
    """
    # Imports ReFrame, which nothing else here needs.
    from plumbline.session import plan

    everywhere = ["--skip-system-check", "--skip-prgenv-check"]
    output = plan.reframe([*plan.check_options(paths.checks()), "--describe", *everywhere], "local")
    checks = json.loads(output[output.index("[\n") : output.rindex("]") + 1])
    declared = {
        (check["benchmark"], check["placed"], figure)
        for check in checks
        for figure in check["declared"]
    }
    #: A row's benchmark/metric -> those that it is also a reference of.
    others: dict[str, set[str]] = {}
    for benchmark, metrics in lookup.loaded(paths.reference()).tables.foms.items():
        for metric, fom in metrics.items():
            for same in fom.same_as:
                others.setdefault(same, set()).add(f"{benchmark}/{metric}")

    def is_declared(row: Row) -> bool:
        own = f"{row.benchmark}/{row.metric}"
        return any(_declares(row, name, declared) for name in (own, *others.get(own, ())))

    return [row for row in rows if not is_declared(row)]


def _declares(row: Row, name: str, declared: set[tuple[str, str, str]]) -> bool:
    """Return whether a check declares a row's figure under the name ``benchmark/metric``."""
    benchmark, _, metric = name.partition("/")
    variable = Figure(metric, row.message_size).variable
    return any(
        of == benchmark
        and row.placement in ("", placement)
        and (figure == variable or figure.startswith(f"{variable}_"))
        for of, placement, figure in declared
    )
