"""The summary of a session: what was asserted, what failed, and what was skipped."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from plumbline.check import states
from plumbline.check.parameters import references
from plumbline.check.record import MEASURED, OUTSIDE, FigureRecord, Record, short_name
from plumbline.core import text
from plumbline.core.errors import with_code
from plumbline.core.text import base_name, pluralize, printable, shorten
from plumbline.reference.waivers import OF_HISTORY, Subject, Waiver, applies_to

#: Results whose reason is in the summary.
_WITH_REASON = ("fail", "invalid", "error", "aborted", "unfinished", "waived", "skip")
#: Warnings of a state in the table; the records have all of them.
_MOST_WARNINGS = 10
#: Results of a test case that measured.
_HEADS = ["check", "placement", "env", "figure of merit", "value", "verdict", "asserted"]


def exit_code(results: Counter) -> int:
    """Return a session's exit code, by its number of test cases of each result: 0 OK, 1 a fault
    was found, 2 inconclusive."""
    if results["fail"] or results["invalid"] or results["error"]:
        return 1
    if results["aborted"] or results["unfinished"]:
        return 2
    return 0 if results["pass"] or results["waived"] else 2


def table(records: list[Record], planned: int, dry_run: str = "") -> str:
    """Return the table as text.

    :arg planned: the number of test cases in the session's plan.
    :arg dry_run: if nothing was measured, what a case that passed counts as.
    """
    lines = [""]
    if not dry_run and (rows := _rows([f for f in records if f.result in MEASURED])):
        lines += [text.format_table(rows, _HEADS), ""]
    for result in _WITH_REASON:
        lines += reasons(records, result)
    for state in states.STATES:
        found = [
            f"{state}: {_short(fields)}{printable(fields.place_of(notice))}: {notice.detail} "
            f"[{notice.code}]"
            for fields in records
            for notice in fields.warnings
            if notice.state == state
        ]
        more = len(found) - _MOST_WARNINGS
        lines += found[:_MOST_WARNINGS]
        lines += [f"{state}: {more} more: see `warnings` in the records"] if more > 0 else []
    foms = [fom for fields in records for fom in fields.foms]
    uncompared = Counter(f.reason for f in foms if f.reason and f.verdict == "not-asserted")
    lines += [
        f"not compared: {pluralize(count, 'figure')}: {reason}"
        for reason, count in uncompared.items()
    ]
    would = {"pass": dry_run} if dry_run else {}
    results = Counter(would.get(fields.result, fields.result) for fields in records)
    verdicts = Counter(fom.verdict for fom in foms)
    failed = verdicts["fail"] + verdicts["above-ceiling"]
    near_bound = sum(fom.near_bound for fom in foms)
    notable = {
        "failed": failed,
        "waived": verdicts["waived"],
        "near their bound": near_bound,
        "passed wide bounds": sum(map(_passed_wide_bounds, foms)),
    }
    details = ", ".join(f"{n} {what}" for what, n in notable.items() if n or what == "failed")
    asserted = verdicts["pass"] + failed + verdicts["waived"]
    counts = ", ".join(f"{count} {result}" for result, count in results.items()) or "none"
    warnings = states.summed(notice.state for fields in records for notice in fields.warnings)
    ended = len({fields.case for fields in records})
    not_compared = f"{uncompared.total()} not compared, " if uncompared else ""
    figures = (
        f"plumbline: figures of merit: {asserted} asserted ({details}), "
        f"{not_compared}{verdicts['not-asserted'] - uncompared.total()} without a reference"
    )
    return "\n".join(
        [
            *lines,
            f"plumbline: {ended} of {pluralize(max(planned, ended), 'test case')}: {counts}",
            *([] if dry_run else [figures]),
            *([f"plumbline: warning states: {warnings}"] if warnings else []),
        ]
    )


def reasons(records: list[Record], result: str) -> list[str]:
    """Return why test cases have a result, a line for each reason."""
    found: dict[str, dict[str, None]] = {}
    for fields in records:
        if fields.result == result and fields.reason:
            # Once, also if it has several attempts.
            found.setdefault(fields.why, {})[_short(fields)] = None
    return [f"{result}: {shorten(cases)}: {reason}" for reason, cases in found.items()]


def _rows(records: list[Record]) -> list[list[str]]:
    """Return the rows of the test cases that measured, with the partition if there are several."""
    if len({fields.partition for fields in records}) > 1:
        records = [
            fields.model_copy(update={"environment": f"{fields.partition}+{fields.environment}"})
            for fields in records
        ]
    return [
        row
        for cases in _grouped(records)
        for row in (_table_rows(cases[0]) if len(cases) == 1 else _rows_together(cases))
    ]


def _grouped(records: list[Record]) -> list[list[Record]]:
    """Return the cases, grouped by the case that ``--distribute`` or ``--repeat`` multiplied."""
    found: dict[tuple, list[Record]] = {}
    for number, f in enumerate(records):
        name = base_name(f.check)
        own = number if name == f.check else None
        found.setdefault((name, f.partition, f.environment, own), []).append(f)
    return list(found.values())


def _rows_together(cases: list[Record]) -> list[list[str]]:
    """Return the rows of a case on many nodes: the median of each headline figure and its worst
    node, then the figures that failed or have warnings, by node."""
    first = cases[0]
    foms = [(f, fom) for f in cases for fom in f.foms]
    asserted = sum(fom.verdict != "not-asserted" for _, fom in foms)
    rows = []
    for shown in (fom for fom in first.foms if fom.headline):
        what = shown.figure
        values = [(fom.value, _nodes(f)) for f, fom in foms if fom.figure == what]
        worst, node = (max if shown.better == "lower" else min)(values)
        middle = statistics.median(value for value, _ in values)
        unit = shown.unit
        rows += [
            [f"median of {len(values)}", what.variable, f"{middle:.6g} {unit}", ""],
            [f"worst, {node}", what.variable, f"{worst:.6g} {unit}", ""],
        ]
    rows += [[_nodes(f), *row[3:6]] for f in cases for row in _table_rows(f, headlines=False)]
    name = re.sub(r" %placement=\S+", "", base_name(first.check)).replace(" %", " ")
    counted = Counter(f.result for f in cases)
    results = ", ".join(f"{count} {result}" for result, count in counted.items())
    head = [name, first.placement or "", first.environment]
    return [
        [*(head if not index else [f"  {row[0]}", "", ""]), *row[1:],
         "" if index else f"{asserted} of {len(foms)}"]
        for index, row in enumerate([["", "", f"{len(cases)} cases", results], *rows])
    ]  # fmt: skip


def _nodes(fields: Record) -> str:
    return printable(", ".join(fields.nodes)) or "unknown node"


def _table_rows(fields: Record, headlines: bool = True) -> list[list[str]]:
    """Return a case's rows: its headline figures, and those that failed or have warnings."""
    verdicts = Counter(fom.verdict for fom in fields.foms)
    asserted = f"{len(fields.foms) - verdicts['not-asserted']} of {len(fields.foms)}"
    name = re.sub(r" %placement=\S+", "", fields.check).replace(" %", " ")
    case = [name, fields.placement or "", fields.environment]
    rows: list[list[str]] = []
    noticed: dict[str, list[str]] = {}
    for notice in fields.warnings:
        noticed.setdefault(notice.figure, []).append(notice.state)
    for fom in fields.foms:
        bad = fom.verdict in OUTSIDE
        name = fom.figure.variable
        notes = [*(["near its bound"] if fom.near_bound else []), *noticed.get(name, [])]
        if (headlines and fom.headline) or bad or notes:
            verdict: str = fom.verdict
            if verdict == "not-asserted":
                verdict = "not compared" if fom.reason else "no reference"
                notes = [*(["busy"] if fields.busy else []), *notes]
            if _passed_wide_bounds(fom):
                notes = ["wide bounds", *notes]
            noted = f"{verdict} ({', '.join(notes)})" if notes else verdict
            rows.append(
                [
                    *(["", "", ""] if rows else case),
                    name,
                    f"{fom.value:.6g} {fom.unit}",
                    fom.verdict.upper() if bad else noted,
                    "" if rows else asserted,
                ]
            )
    return rows


def _passed_wide_bounds(fom: FigureRecord) -> bool:
    """Return whether a figure passed bounds that find no ordinary fault; not one of an older
    session whose reference is gone."""
    known = references()
    row = known.tables.rows.get(fom.reference or "")
    bounds = known.bounds_of(row) if row and fom.verdict == "pass" else None
    return bounds is not None and known.is_wide(bounds)


def _short(fields: Record) -> str:
    return printable(short_name(fields))


# -- waivers -------------------------------------------------------------------------------------


def waiver_notes(known: Iterable[Waiver], records: list[Record]) -> list[str]:
    """Return the waivers that have expired or are no longer needed, a line each. A session cannot
    tell whether a regression is still there, or a node is still slow."""
    lines = []
    for waiver in known:
        used, passed = _covered(waiver, records)
        if waiver.expired() and (used or passed):
            message = (
                f"expired waiver {waiver}: it no longer covers anything: renew it with a new date, "
                f"or remove it"
            )
            lines.append(with_code(message, "waiver.expired"))
        elif passed and not used and not {*OF_HISTORY} & {*waiver.match.results}:
            message = (
                f"waiver {waiver.id} is no longer needed: {passed}, and none failed: remove it"
            )
            lines.append(with_code(message, "waiver.not-needed"))
    return lines


def _covered(waiver: Waiver, records: list[Record]) -> tuple[int, str]:
    """Return how many faults a waiver matches, expired or not, and a text about what it matches
    and passed, which is empty if nothing did."""
    faults, cases, figures = 0, 0, 0
    for fields in records:
        case = Subject(
            fields.system,
            fields.partition,
            fields.environment,
            fields.check,
            fields.placement or "",
            tuple(fields.nodes),
        )
        if applies_to(waiver.match, case):
            faults += fields.result in waiver.match.results or fields.waiver == waiver.id
            cases += bool(fields.foms) and "fail" not in waiver.match.results
        if "fail" not in waiver.match.results:
            continue
        for fom in fields.foms:
            figure = replace(case, placement=fom.placement, **fom.figure._asdict())
            if applies_to(waiver.match, figure):
                faults += fom.verdict == "fail" or fom.waiver == waiver.id
                figures += fom.verdict == "pass"
    if figures:
        return faults, f"{pluralize(figures, 'figure')} that it matches passed"
    return faults, f"{pluralize(cases, 'test case')} that it matches measured" if cases else ""
