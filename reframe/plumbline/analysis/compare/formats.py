"""A comparison, told: as text, JSON, CSV, JUnit XML and Markdown.

Names come from check files, schedulers and site files, and may hold anything: what is no printable
character is written as its code, and what has a meaning in Markdown as a character reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import junitparser

from plumbline.analysis.compare import ORDER, Comparison, FigureRow
from plumbline.analysis.compare.hostfacts import HostChange, Surroundings
from plumbline.core import formats, suites
from plumbline.core.text import counted, escaped, printable, some, table

#: Verdicts that the text shows only on request.
COLLAPSED = ("unchanged", "only after")
#: Sessions a side that nobody would wait for.
FEASIBLE = 100
_HEADS = ["verdict", "check", "figure", "placement", "n", "before", "after", "difference",
          "95 % interval", "p", "seen from"]  # fmt: skip
#: Those that the text shows: a terminal is no wider, and the CSV has all.
_SHOWN = ["verdict", "figure", "n", "before", "after", "difference", "95 % interval", "seen from"]
#: Columns of the CSV, and fields of a figure in the JSON.
_FIELDS = ["verdict", "system", "partition", "environment", "check", "node", "benchmark", "metric",
           "size", "at", "placement", "conditions", "unit", "better", "n_before", "n_after",
           "n_past", "median_before", "median_after", "spread_before", "spread_after", "noise",
           "difference", "low", "high", "p", "adjusted", "detectable", "needed", "failed_before",
           "failed_after", "together", "aside", "reason"]  # fmt: skip


def _name(row: FigureRow) -> str:
    return printable(f"{row.key.check} @{row.place}")


def _percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:+.2f} %"


def _cells(row: FigureRow) -> list[str]:
    """A figure's cells under :data:`_HEADS`, printable."""

    def number(value: float) -> str:
        return "" if math.isnan(value) else f"{value:.6g} {row.unit}".strip()

    past = f" (+{row.n_past})" if row.n_past else ""
    cells = [
        row.verdict,
        f"{row.key.check} @{row.place}",
        row.figure,
        row.key.placement,
        f"{row.n_before}{past}, {row.n_after}",
        number(row.median_before),
        number(row.median_after),
        _percent(row.difference),
        f"{_percent(row.low)} to {_percent(row.high)}" if row.p == row.p else "",
        "" if math.isnan(row.p) else f"{row.p:.2g}",
        "" if math.isnan(row.detectable) else f"{row.detectable:.1%}",
    ]
    return [printable(cell) for cell in cells]


def _headline(found: Comparison) -> str:
    return f"{found.verdict}: {'; '.join(found.reasons)}"


def _worst(found: Comparison) -> str:
    row = found.worst
    return f"lost most: {_name(row)} {printable(row.figure)}: {_told(row)}" if row else ""


def _as_one(found: Comparison) -> str:
    whole = found.whole
    if math.isnan(whole.difference):
        return ""
    way = "better" if whole.difference >= 0 else "worse"
    return (
        f"all figures as one: {abs(whole.difference):.2%} {way}, 95 % interval "
        f"{_percent(whole.low)} to {_percent(whole.high)} (+ is better), p = {whole.p:.2g}; a loss "
        f"of {whole.detectable:.1%} in all of them would have been seen"
    )


def _effects(found: Comparison) -> list[str]:
    """Effect, interval and smallest loss seen: of all as one, where they are enough, and of the
    figure that lost most; printable."""
    return [line for line in (_as_one(found), _worst(found)) if line]


def _details(found: Comparison) -> list[str]:
    """What the table has no column for, a line each; printable."""
    lines: list[str] = []
    alike: dict[tuple[str, str], list[str]] = {}
    needed: dict[tuple[str, str], list[int]] = {}
    for row in found.rows:
        what = f"{row.key.check} @{row.place} {row.figure}"
        if row.verdict in ("too little data", "only before"):
            alike.setdefault((row.verdict, f": {row.reason}"), []).append(what)
            if row.needed:
                needed.setdefault((row.verdict, f": {row.reason}"), []).append(row.needed)
        if row.together:
            told = f"{row.verdict} with its group, which moved as one"
            alike.setdefault((told, ""), []).append(what)
        if row.failed_after:
            before = f", {row.failed_before} before" if row.failed_before else ""
            told = f"outside its bounds in {counted(row.failed_after, 'session')} after{before}"
            alike.setdefault((told, ""), []).append(what)
        if row.aside:
            lines.append(f"set aside, far off all others: {what}: {', '.join(row.aside)}")
    for key, names in alike.items():
        told, reason = key
        lines.append(f"{told}: {some(names)}{reason}{_needed(needed.get(key, []))}")
    for case in found.unmeasured:
        results = ", ".join(f"{count} {result}" for result, count in case.results.items())
        before = f" ({case.before} before)" if case.before else " (none before)"
        where = f"in {counted(case.after, 'session')} after{before}"
        lines.append(f"not measured {where}: {case.case}: {results}: {case.reason}")
    return [printable(line) for line in [*lines, *found.notes]]


def _needed(sessions: list[int]) -> str:
    """How many sessions a side would tell of figures that have too little data."""
    if not sessions:
        return ""
    least, most = min(sessions), max(sessions)
    if least > FEASIBLE:
        return f"; not even {FEASIBLE} sessions a side would tell: too noisy"
    if most > FEASIBLE:
        return f"; {least} to more than {FEASIBLE} sessions a side would tell"
    return f"; {least if least == most else f'{least} to {most}'} sessions a side would tell"


def _side(names: list[str]) -> str:
    ends = names[:1] + names[1:][-1:]
    return f"{counted(len(names), 'session')}, {' to '.join(ends)}" if names else "no session"


def _where(change: HostChange, most: int = 4) -> str:
    return f"{len(change.where)}: {some(change.where, most)}"


def _changes(around: Surroundings) -> list[tuple[str, list[HostChange]]]:
    titles = {
        "host facts of nodes that ran on both sides": around.hosts,
        "host facts that only new nodes have": around.elsewhere,
        "builds": around.builds,
    }
    return [(title, changes) for title, changes in titles.items() if changes]


def _nodes(around: Surroundings) -> list[str]:
    told = {"new": around.new_nodes, "gone": around.gone_nodes}
    return [
        printable(f"nodes {word}: {len(nodes)}: {', '.join(nodes)}")
        for word, nodes in told.items()
        if nodes
    ]


def _same(around: Surroundings) -> str:
    if not around.known:
        return "no node told facts of its host on both sides"
    return (
        f"host facts of {counted(around.known, 'node')} and all builds are the same on both sides"
    )


def text(found: Comparison, every: bool = False) -> str:
    """For a terminal: what needs a look first; unchanged figures are a count unless ``every``."""
    shown = [row for row in found.rows if every or row.verdict not in COLLAPSED]
    lines = [
        printable(f"before: {_side(found.before)}"),
        printable(f"after:  {_side(found.after)}"),
    ]
    if shown:
        lines += ["", *_by_check(shown)]
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    lines += ["", f"{counted(len(found.rows), 'figure')}: {counts}"]
    lines += _effects(found) + _details(found)
    if found.surroundings is not None:
        for title, changes in _changes(found.surroundings):
            rows = ([c.what, c.before or "-", c.after or "-", _where(c)] for c in changes)
            heads = [title, "before", "after", "where"]
            lines += ["", table(rows, heads, "simple")]
        lines += _nodes(found.surroundings)
        if not found.surroundings.any:
            lines.append(_same(found.surroundings))
    return "\n".join([*lines, "", f"plumbline: {printable(_headline(found))}", ""])


def _by_check(rows: list[FigureRow]) -> list[str]:
    """A table in which each check is a heading of its own, the worst first."""
    groups: dict[str, list[FigureRow]] = {}
    for row in rows:
        placed = "" if f"={row.key.placement}" in row.key.check else f", {row.key.placement}"
        groups.setdefault(f"{_name(row)}{printable(placed)}", []).append(row)
    cells = [dict(zip(_HEADS, _cells(row), strict=True)) for group in groups.values()
             for row in group]  # fmt: skip
    lines = table(([row[name] for name in _SHOWN] for row in cells), _SHOWN, "simple").splitlines()
    head, body = lines[:2], iter(lines[2:])
    for name, group in groups.items():
        head += ["", name, *(next(body) for _ in group)]
    return head


def _number(value: float) -> float | None:
    return None if not math.isfinite(value) else value


def _fields(row: FigureRow) -> dict:
    """A figure as a flat mapping; a number that there is not is ``None``."""
    of_key = {**vars(row.key), "size": None if row.key.size < 0 else row.key.size}
    known = {**of_key, **vars(row)}
    return {
        name: _number(known[name]) if isinstance(known[name], float) else known[name]
        for name in _FIELDS
    }


def as_json(found: Comparison, every: bool = True) -> str:
    """All there is, in stable fields (docs/compare.md)."""
    whole = {name: _number(value) for name, value in vars(found.whole).items()}
    around = found.surroundings
    told = around and {
        **{name: [vars(change) for change in getattr(around, name)]
           for name in ("hosts", "elsewhere", "builds")},
        "new_nodes": around.new_nodes,
        "gone_nodes": around.gone_nodes,
        "known": around.known,
    }  # fmt: skip
    return formats.as_json(
        {
            "verdict": found.verdict,
            "exit_code": found.exit_code,
            "reasons": found.reasons,
            "before": found.before,
            "after": found.after,
            "within": found.within,
            "loss": found.loss,
            "counts": {name: found.counts.get(name, 0) for name in ORDER},
            "whole": whole,
            "worst": found.worst and _fields(found.worst),
            "figures": [_fields(row) for row in found.rows],
            "unmeasured": [vars(case) for case in found.unmeasured],
            "surroundings": told,
            "notes": found.notes,
        }
    )


def as_csv(found: Comparison, every: bool = True) -> str:
    """A row for each figure."""
    rows = ({name: " ".join(value) if isinstance(value, list) else value
             for name, value in _fields(row).items()} for row in found.rows)  # fmt: skip
    return formats.as_csv(_FIELDS, rows)


def suite_of(found: Comparison) -> junitparser.TestSuite:
    """A JUnit test case for each figure, and one for the whole. What was not compared is never a
    pass: too little data is skipped, and what vanished is an error."""
    cases = []
    for row in found.rows:
        told = _told(row)
        result = _result(row.verdict, told)
        name = f"{row.figure} {row.key.placement}"
        cases.append(suites.case(name, _name(row), result, "" if result else told))
    told = printable(_headline(found))
    result = _result(found.verdict, told)
    out = "\n".join([told, *_effects(found)])
    whole = suites.case("verdict", "plumbline compare", result, out)
    return suites.suite("plumbline compare", [*cases, whole])


def junit(found: Comparison, every: bool = True) -> str:
    """JUnit XML."""
    suite = suite_of(found)
    return suites.as_junit([suite], suite.name)


def _result(verdict: str, told: str) -> junitparser.Result | None:
    """Why a figure, or the whole, is no plain pass."""
    if verdict in ("regressed", "no-go"):
        return junitparser.Failure(told, verdict)
    if verdict in ("changed", "only before"):
        return junitparser.Error(told, verdict)
    return None if verdict in ("improved", "unchanged", "go") else junitparser.Skipped(told)


def _told(row: FigureRow) -> str:
    """A figure in one line; printable."""
    cells = dict(zip(_HEADS, _cells(row), strict=True))
    if math.isnan(row.difference):
        return printable(f"{row.verdict}: {row.reason}")
    return (
        f"{row.verdict}: {cells['before']} before, {cells['after']} after: {cells['difference']} "
        f"({cells['95 % interval']}), p = {cells['p']}; a loss of {cells['seen from']} would have "
        f"been seen"
    )


def markdown(found: Comparison, every: bool = False) -> str:
    """For a merge request or a chat: what needs a look; the rest is a count."""
    shown = [row for row in found.rows if every or row.verdict not in COLLAPSED]
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    lines = [
        f"### Before and after: {found.verdict}",
        "",
        escaped("; ".join(found.reasons)),
        "",
        f"- before: {escaped(_side(found.before))}",
        f"- after: {escaped(_side(found.after))}",
        f"- {counted(len(found.rows), 'figure')}: {counts}",
        *(f"- {escaped(line)}" for line in _effects(found)),
    ]
    if shown:
        lines += ["", formats.as_markdown(_HEADS, map(_cells, shown))]
    details = _details(found)
    if found.surroundings is not None:
        details += _nodes(found.surroundings)
        if not found.surroundings.any:
            details.append(_same(found.surroundings))
    lines += ["", *(f"- {escaped(line)}" for line in details)] if details else []
    for title, changes in _changes(found.surroundings) if found.surroundings else []:
        rows = ([c.what, c.before or "-", c.after or "-", _where(c)] for c in changes)
        lines += ["", formats.as_markdown([title, "before", "after", "where"], rows)]
    return "\n".join([*lines, ""])


#: Format -> how it is told; the second argument asks for the unchanged figures too.
FORMATS: dict[str, Callable[[Comparison, bool], str]] = {
    "text": text,
    "json": as_json,
    "csv": as_csv,
    "junit": junit,
    "markdown": markdown,
}
