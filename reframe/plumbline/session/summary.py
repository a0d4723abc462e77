"""The table that closes a session: what was asserted, what not, what failed or was skipped."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from plumbline.check import states
from plumbline.check.record import Record
from plumbline.core import text
from plumbline.core.text import base_name, counted, printable, some
from plumbline.reference.waivers import Subject, Waiver, fits

#: Results whose reason the closing table gives.
_WITH_REASON = ("fail", "invalid", "error", "aborted", "unfinished", "waived", "skip")
#: Warnings of a state that the table lists; the records have them all.
_MOST_WARNINGS = 10
#: Results of a test case that measured.
_MEASURED = ("pass", "fail", "waived")
_HEADS = ["check", "placement", "env", "figure of merit", "value", "verdict", "asserted"]


def exit_code(results: Counter) -> int:
    """The exit code of a session from the number of its test cases by result: 0 as it should be, 1
    a fault found, 2 could not tell."""
    if results["fail"] or results["invalid"] or results["error"]:
        return 1
    if results["aborted"] or results["unfinished"]:
        return 2
    return 0 if results["pass"] or results["waived"] else 2


def table(records: list[Record], planned: int, dry_run: bool = False) -> str:
    """The table as text.

    :arg planned: how many test cases the session's plan had.
    :arg dry_run: whether nothing was measured, so that what passed would run.
    """
    lines = [""]
    rows = [
        row
        for cases in _together([f for f in records if f.result in _MEASURED and not dry_run])
        for row in (_table_rows(cases[0]) if len(cases) == 1 else _rows_together(cases))
    ]
    if rows:
        lines += [text.table(rows, _HEADS, "simple"), ""]
    for result in _WITH_REASON:
        reasons: dict[str, list[str]] = {}
        for fields in records:
            if fields.result == result and fields.reason:
                reasons.setdefault(fields.why, []).append(_short(fields))
        lines += [f"{result}: {some(cases)}: {reason}" for reason, cases in reasons.items()]
    for state in states.STATES:
        found = [
            f"{state}: {_short(fields)} on {_nodes(fields)}: {notice.detail} [{notice.code}]"
            for fields in records
            for notice in fields.warnings
            if notice.state == state
        ]
        more = len(found) - _MOST_WARNINGS
        lines += found[:_MOST_WARNINGS]
        lines += [f"{state}: {more} more: see `warnings` in the records"] if more > 0 else []
    unasserted = Counter(fom.reason for fields in records for fom in fields.foms if fom.reason)
    lines += [
        f"not asserted: {counted(count, 'figure')}: {reason}"
        for reason, count in unasserted.items()
    ]
    would = {"pass": "would run"} if dry_run else {}
    results = Counter(would.get(fields.result, fields.result) for fields in records)
    verdicts = Counter(fom.verdict for fields in records for fom in fields.foms)
    failed = verdicts["fail"] + verdicts["above-ceiling"]
    near = sum(fom.near for fields in records for fom in fields.foms)
    notable = {"failed": failed, "waived": verdicts["waived"], "near their bound": near}
    told = ", ".join(f"{n} {what}" for what, n in notable.items() if n or what == "failed")
    asserted = verdicts["pass"] + failed + verdicts["waived"]
    counts = ", ".join(f"{count} {result}" for result, count in results.items()) or "none"
    noticed = states.summed(notice.state for fields in records for notice in fields.warnings)
    ended = len({fields.case for fields in records})
    return "\n".join(
        [
            *lines,
            f"plumbline: {ended} of {counted(max(planned, ended), 'test case')}: {counts}",
            f"plumbline: figures of merit: {asserted} asserted ({told}), "
            f"{verdicts['not-asserted']} not asserted",
            *([f"plumbline: to be looked at: {noticed}"] if noticed else []),
        ]
    )


def _together(records: list[Record]) -> list[list[Record]]:
    """The cases, those together that ``--distribute`` or ``--repeat`` made of one."""
    found: dict[tuple, list[Record]] = {}
    for number, f in enumerate(records):
        name = base_name(f.check)
        own = number if name == f.check else None
        found.setdefault((name, f.partition, f.environment, own), []).append(f)
    return list(found.values())


def _rows_together(cases: list[Record]) -> list[list[str]]:
    """Lines of a case on many nodes: the median of each headline figure and its worst node; then
    the figures that did not pass well, by their nodes."""
    first = cases[0]
    foms = [(f, fom) for f in cases for fom in f.foms]
    asserted = sum(fom.verdict != "not-asserted" for _, fom in foms)
    rows = []
    for shown in (fom for fom in first.foms if fom.headline):
        what = shown.figure
        here = [(fom.value, _nodes(f)) for f, fom in foms if fom.figure == what]
        worst, node = (max if shown.better == "lower" else min)(here)
        middle = statistics.median(value for value, _ in here)
        unit = shown.unit
        rows += [
            [f"median of {len(here)}", what.variable, f"{middle:.6g} {unit}", ""],
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
    """A case's lines of the closing table: its headline figures, and all that did not pass well."""
    verdicts = Counter(fom.verdict for fom in fields.foms)
    asserted = f"{len(fields.foms) - verdicts['not-asserted']} of {len(fields.foms)}"
    name = re.sub(r" %placement=\S+", "", fields.check).replace(" %", " ")
    case = [name, fields.placement or "", fields.environment]
    rows: list[list[str]] = []
    noticed: dict[str, list[str]] = {}
    for notice in fields.warnings:
        noticed.setdefault(notice.figure, []).append(notice.state)
    for fom in fields.foms:
        bad = fom.verdict in ("fail", "above-ceiling", "waived")
        name = fom.figure.variable
        notes = [*(["near its bound"] if fom.near else []), *noticed.get(name, [])]
        if (headlines and fom.headline) or bad or notes:
            told = f"{fom.verdict} ({', '.join(notes)})" if notes else fom.verdict
            rows.append(
                [
                    *(["", "", ""] if rows else case),
                    name,
                    f"{fom.value:.6g} {fom.unit}",
                    fom.verdict.upper() if bad else told,
                    "" if rows else asserted,
                ]
            )
    return rows


def _short(fields: Record) -> str:
    return printable(f"{fields.check} @{fields.partition}+{fields.environment}")


# -- waivers -------------------------------------------------------------------------------------


def of_waivers(known: Iterable[Waiver], records: list[Record]) -> list[str]:
    """What a session's records say of the waivers: expired, or no longer needed; a line each."""
    lines = []
    for waiver in known:
        used, passed = _covered(waiver, records)
        if waiver.expired() and (used or passed):
            lines.append(
                f"expired waiver {waiver}: it covers nothing any more: renew it with a new date, "
                f"or take it out"
            )
        elif passed and not used:
            lines.append(
                f"waiver {waiver.id} is no longer needed: {passed}, and none failed: take it out"
            )
    return lines


def _covered(waiver: Waiver, records: list[Record]) -> tuple[int, str]:
    """How many faults a waiver is about, expired or not; and in words what is about it and passed,
    which is empty if nothing did."""
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
        if fits(waiver.match, case):
            faults += fields.result in waiver.match.results or fields.waiver == waiver.id
            cases += bool(fields.foms) and "fail" not in waiver.match.results
        if "fail" not in waiver.match.results:
            continue
        for fom in fields.foms:
            figure = replace(case, placement=fom.placement, **fom.figure._asdict())
            if fits(waiver.match, figure):
                faults += fom.verdict == "fail" or fom.waiver == waiver.id
                figures += fom.verdict == "pass"
    if figures:
        return faults, f"{counted(figures, 'figure')} that it names passed"
    return faults, f"{counted(cases, 'test case')} that it names measured" if cases else ""
