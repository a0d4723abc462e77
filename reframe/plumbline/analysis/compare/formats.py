"""A comparison as text, JSON, CSV, JUnit XML and Markdown.

Names come from check files, schedulers and site files, and may hold anything. Characters that are
not printable are written as their codes, and what has a meaning in Markdown as a reference.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict

import junitparser

from plumbline.analysis.compare import ORDER, Comparison, FigureRow
from plumbline.analysis.compare.hostfacts import HostChange, Surroundings
from plumbline.core import formats, suites
from plumbline.core.text import fill, pluralize, printable, quote_markdown, shorten, table_lines

#: Verdicts that the text shows only on request.
COLLAPSED = ("unchanged", "only after")
#: Sessions a side that are feasible at all.
FEASIBLE = 100
_HEADS = ["verdict", "check", "figure", "placement", "n", "before", "after", "difference",
          "95 % interval", "p", "detectable loss"]  # fmt: skip
#: Columns of the text, whose headings have verdict and check; the other formats have all.
_TEXT_HEADS = ["figure", "n", "before", "after", "unit", "difference", "95 % interval",
               "detectable"]  # fmt: skip
#: A hash of a build; the text has its first digits.
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
#: The text lists at most so many nodes of one kind.
_MAX_NODES = 12
#: Columns of the CSV, and fields of a figure in the JSON.
_FIELDS = ["verdict", "system", "partition", "environment", "check", "node", "benchmark", "metric",
           "size", "location", "placement", "conditions", "unit", "better", "n_before", "n_after",
           "n_past", "median_before", "median_after", "spread_before", "spread_after", "noise",
           "difference", "low", "high", "p", "adjusted", "detectable", "needed", "failed_before",
           "failed_after", "together", "aside", "reason"]  # fmt: skip
#: Fields of all figures as one in the JSON.
_OF_WHOLE = ("difference", "low", "high", "p", "detectable")


def _check(row: FigureRow) -> str:
    return printable(f"{row.key.check} @{row.key.place}")


def _percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:+.2f} %"


def _interval(low: float, high: float) -> str:
    return f"{_percent(low)} to {_percent(high)}"


def _cells(row: FigureRow) -> dict[str, str]:
    """Return the printable cells of a figure, by column."""

    def number(value: float) -> str:
        return "" if math.isnan(value) else f"{value:.6g} {row.unit}".strip()

    past = f" (+{row.n_past})" if row.n_past else ""
    cells = [
        row.verdict,
        _check(row),
        row.key.figure,
        row.key.placement,
        f"{row.n_before}{past}, {row.n_after}",
        number(row.median_before),
        number(row.median_after),
        _percent(row.difference),
        "" if math.isnan(row.p) else _interval(row.low, row.high),
        "" if math.isnan(row.p) else f"{row.p:.2g}",
        "" if math.isnan(row.detectable) else f"{row.detectable:.1%}",
    ]
    return dict(zip(_HEADS, map(printable, cells), strict=True))


def _summary(row: FigureRow) -> str:
    """Return a figure as one printable line."""
    if math.isnan(row.difference):
        return printable(f"{row.verdict}: {row.reason}")
    cells = _cells(row)
    return (
        f"{row.verdict}: {cells['before']} before, {cells['after']} after: {cells['difference']} "
        f"({cells['95 % interval']}), p = {cells['p']}; smallest detectable loss "
        f"{cells['detectable loss']}"
    )


def _headline(found: Comparison) -> str:
    return printable(f"{found.verdict}: {'; '.join(found.reasons)}")


def _effects(found: Comparison) -> list[str]:
    """Return printable lines with effect, interval and smallest detectable loss of all figures as
    one, if there are enough, and of the figure with the largest loss."""
    lines = []
    whole, row = found.whole, found.worst
    if not math.isnan(whole.difference):
        direction = "better" if whole.difference >= 0 else "worse"
        lines.append(
            f"all figures as one: {abs(whole.difference):.2%} {direction}, 95 % interval "
            f"{_interval(whole.low, whole.high)} (+ is better), p = {whole.p:.2g}; smallest "
            f"detectable loss in all of them {whole.detectable:.1%}"
        )
    if row is not None:
        lines.append(f"largest loss: {_check(row)} {printable(row.key.figure)}: {_summary(row)}")
    return lines


def _details(found: Comparison) -> list[str]:
    """Return what the table has no column for, as printable lines."""
    aside = []
    #: label, reason -> figures; and the sessions that each of them needs.
    figures: dict[tuple[str, str], list[str]] = defaultdict(list)
    needed: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in found.rows:
        name = f"{row.key.check} @{row.key.place} {row.key.figure}"
        if row.verdict in ("too little data", "only before"):
            key = row.verdict, f": {row.reason}"
            figures[key].append(name)
            needed[key] += [row.needed] * bool(row.needed)
        if row.together:
            figures[f"{row.verdict} with its group, which moved as one", ""].append(name)
        if row.failed_after:
            before = f", {row.failed_before} before" if row.failed_before else ""
            label = f"outside its bounds in {pluralize(row.failed_after, 'session')} after{before}"
            figures[label, ""].append(name)
        if row.aside:
            aside.append(f"set aside, far off all others: {name}: {', '.join(row.aside)}")
    lines = [
        f"{label}: {shorten(names)}{reason}{_needed(needed[label, reason])}"
        for (label, reason), names in figures.items()
    ]
    for case in found.unmeasured:
        results = ", ".join(f"{count} {result}" for result, count in case.results.items())
        where = f"in {pluralize(case.after, 'session')} after ({case.before or 'none'} before)"
        lines.append(f"not measured {where}: {case.case}: {results}: {case.reason}")
    return [printable(line) for line in [*aside, *lines, *found.notes]]


def _needed(sessions: list[int]) -> str:
    """Return how many sessions per side the figures with too little data need."""
    if not sessions:
        return ""
    least, most = min(sessions), max(sessions)
    if least > FEASIBLE:
        return f"; too noisy: more than {FEASIBLE} sessions a side are needed"
    upto = f" to more than {FEASIBLE}" if most > FEASIBLE else f" to {most}" * (least < most)
    return f"; {least}{upto} sessions a side are needed"


def _side(names: list[str]) -> str:
    ends = names[:1] + names[1:][-1:]
    return f"{pluralize(len(names), 'session')}, {' to '.join(ends)}" if names else "no session"


def _counts(found: Comparison) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    return f"{pluralize(len(found.rows), 'figure')}: {counts}"


def _change_tables(around: Surroundings | None) -> list[tuple[list[str], list[list[str]]]]:
    """Return header and rows of each table of changed facts."""
    if around is None:
        return []
    tables = {
        "host facts of nodes that ran on both sides": around.hosts,
        "host facts that only new nodes have": around.elsewhere,
        "builds": around.builds,
        "tuning variables": around.variables,
    }
    return [
        ([title, "before", "after", "where"], [_change_cells(change) for change in changes])
        for title, changes in tables.items()
        if changes
    ]


def _change_cells(change: HostChange) -> list[str]:
    where = f"{len(change.where)}: {shorten(change.where, 4)}"
    values = (short_hashes(value) or "-" for value in (change.before, change.after))
    return [change.what, *values, where]


def short_hashes(text: str) -> str:
    """Return a text with the first digits of each hash of a build."""
    return _HASH.sub(r"\1", text)


def _host_lines(around: Surroundings | None) -> list[str]:
    """Return printable lines with new and gone nodes, and on what did not change."""
    if around is None:
        return []
    nodes = {"new": around.new_nodes, "gone": around.gone_nodes}
    lines = [
        f"nodes {word}: {len(names)}: {shorten(names, _MAX_NODES)}"
        for word, names in nodes.items()
        if names
    ]
    if not around.any:
        lines.append(
            f"host facts of {pluralize(around.known, 'node')} and all builds are the same on both "
            f"sides"
            if around.known
            else "no node has host facts on both sides"
        )
    if not around.variables:
        lines.append(
            f"tuning variables of {pluralize(around.tuned, 'test case')} are the same on both sides"
            if around.tuned
            else "no test case has its tuning variables in records of both sides"
        )
    return [printable(line) for line in lines]


def _shown(found: Comparison, every: bool) -> list[FigureRow]:
    return [row for row in found.rows if every or row.verdict not in COLLAPSED]


def text(found: Comparison, every: bool = False) -> str:
    """Return the comparison for a terminal, the worst first.

    Unchanged figures are only counted, unless ``every`` is true.
    """
    lines = [*map(fill, (f"before: {_side(found.before)}", f"after:  {_side(found.after)}"))]
    if shown := _shown(found, every):
        lines += ["", *_by_check(shown), ""]
    lines += map(fill, [_counts(found), *_effects(found), *_details(found)])
    for heads, rows in _change_tables(found.surroundings):
        head, body = table_lines(rows, heads)
        lines += ["", *head, *itertools.chain.from_iterable(body)]
    lines += map(fill, _host_lines(found.surroundings))
    return "\n".join([*lines, "", fill(f"plumbline: {_headline(found)}"), ""])


def _by_check(rows: list[FigureRow]) -> list[str]:
    """Return a table with a heading for each verdict and check, the worst first."""
    groups: dict[str, list[list[str]]] = defaultdict(list)
    for row in rows:
        groups[f"{row.verdict}: {row.key.heading}"].append(_text_cells(row))
    head, body = table_lines((cells for group in groups.values() for cells in group), _TEXT_HEADS)
    lines, blocks = head, iter(body)
    for heading, group in groups.items():
        lines += ["", fill(heading), *(line for _ in group for line in next(blocks))]
    return lines


def _text_cells(row: FigureRow) -> list[str]:
    """Return the cells of a figure that the text has, with fewer digits."""
    cells = _cells(row) | {"unit": printable(row.unit)}
    for side in ("before", "after"):
        cells[side] = cells[side].removesuffix(f" {cells['unit']}")
    if not math.isnan(row.difference):
        cells["difference"] = f"{100 * row.difference:+.1f} %"
    if not math.isnan(row.p):
        cells["95 % interval"] = f"{100 * row.low:+.1f} to {100 * row.high:+.1f} %"
    cells["detectable"] = cells["detectable loss"]
    return [cells[head] for head in _TEXT_HEADS]


def _number(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fields(row: FigureRow) -> dict[str, object]:
    """Return a figure as a flat mapping; an unknown number is ``None``."""
    values = vars(row.key) | vars(row) | {"size": None if row.key.size < 0 else row.key.size}
    return {name: _number(values[name]) for name in _FIELDS}


def as_json(found: Comparison, every: bool = True) -> str:
    """Return all results as JSON with stable fields (docs/compare.md)."""
    return formats.as_json(
        {
            "verdict": found.verdict,
            "exit_code": found.exit_code,
            "reasons": found.reasons,
            "before": found.before,
            "after": found.after,
            "min_effect": found.rules.min_effect,
            "equivalence_margin": found.rules.equivalence_margin,
            "counts": {name: found.counts.get(name, 0) for name in ORDER},
            "whole": {name: _number(getattr(found.whole, name)) for name in _OF_WHOLE},
            "worst": found.worst and _fields(found.worst),
            "figures": [_fields(row) for row in found.rows],
            "unmeasured": [vars(case) for case in found.unmeasured],
            "surroundings": found.surroundings and asdict(found.surroundings),
            "notes": found.notes,
        }
    )


def as_csv(found: Comparison, every: bool = True) -> str:
    """Return the comparison as CSV, with a row for each figure."""
    rows = ({**_fields(row), "aside": " ".join(row.aside)} for row in found.rows)
    return formats.as_csv(_FIELDS, rows)


def suite_of(found: Comparison) -> junitparser.TestSuite:
    """Return a JUnit test case for each figure, and one for the overall verdict.

    A figure that was not compared never passes: with too little data it is skipped, and one that
    vanished is an error.
    """
    cases = []
    for row in found.rows:
        line = _summary(row)
        result = _result(row.verdict, line)
        name = f"{row.key.figure} {row.key.placement}"
        cases.append(suites.case(name, _check(row), result, "" if result else line))
    headline = _headline(found)
    output = "\n".join([headline, *_effects(found)])
    result = _result(found.verdict, headline)
    overall = suites.case("verdict", "plumbline compare", result, output)
    return suites.suite("plumbline compare", [*cases, overall])


def junit(found: Comparison, every: bool = True) -> str:
    """Return the comparison as JUnit XML."""
    suite = suite_of(found)
    return suites.as_junit([suite], suite.name)


def _result(verdict: str, line: str) -> junitparser.Result | None:
    """Return the JUnit result of a verdict, or ``None`` for a pass."""
    if verdict in ("regressed", "no-go"):
        return junitparser.Failure(line, verdict)
    if verdict in ("changed", "only before"):
        return junitparser.Error(line, verdict)
    return None if verdict in ("improved", "unchanged", "go") else junitparser.Skipped(line)


def markdown(found: Comparison, every: bool = False) -> str:
    """Return the comparison for a merge request or a chat.

    Unchanged figures are only counted, unless ``every`` is true.
    """
    lines = [
        f"### Before and after: {found.verdict}",
        "",
        quote_markdown("; ".join(found.reasons)),
        "",
        f"- before: {quote_markdown(_side(found.before))}",
        f"- after: {quote_markdown(_side(found.after))}",
        f"- {_counts(found)}",
        *(f"- {quote_markdown(line)}" for line in _effects(found)),
    ]
    if shown := _shown(found, every):
        lines += ["", formats.as_markdown(_HEADS, (_cells(row).values() for row in shown))]
    if details := [*_details(found), *_host_lines(found.surroundings)]:
        lines += ["", *(f"- {quote_markdown(line)}" for line in details)]
    for heads, rows in _change_tables(found.surroundings):
        lines += ["", formats.as_markdown(heads, rows)]
    return "\n".join([*lines, ""])


#: Format -> renderer; the second argument includes the unchanged figures.
FORMATS: dict[str, Callable[[Comparison, bool], str]] = {
    "text": text,
    "json": as_json,
    "csv": as_csv,
    "junit": junit,
    "markdown": markdown,
}
