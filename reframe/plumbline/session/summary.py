"""The table that closes a session: what was asserted, what not, what failed or was skipped."""

from __future__ import annotations

import re
import statistics
from collections import Counter

from plumbline import parse
from plumbline.check import record, states
from plumbline.core import text
from plumbline.core.text import base_name, counted, printable, some

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


def table(records: list[dict], planned: int) -> str:
    """The table as text.

    :arg planned: how many test cases the session's plan had.
    """
    lines = [""]
    rows = [
        row
        for cases in _together([f for f in records if f["result"] in _MEASURED])
        for row in (_table_rows(cases[0]) if len(cases) == 1 else _rows_together(cases))
    ]
    if rows:
        lines += [text.table(rows, _HEADS, "simple"), ""]
    for result in _WITH_REASON:
        reasons: dict[str, list[str]] = {}
        for fields in records:
            if fields["result"] == result and fields["reason"]:
                reasons.setdefault(record.why(fields), []).append(_short(fields))
        lines += [f"{result}: {some(cases)}: {reason}" for reason, cases in reasons.items()]
    for state in states.STATES:
        found = [
            f"{state}: {_short(fields)} on {_nodes(fields)}: {notice['detail']} [{notice['code']}]"
            for fields in records
            for notice in fields["warnings"]
            if notice["state"] == state
        ]
        more = len(found) - _MOST_WARNINGS
        lines += found[:_MOST_WARNINGS]
        lines += [f"{state}: {more} more: see `warnings` in the records"] if more > 0 else []
    unasserted = Counter(
        fom["reason"] for fields in records for fom in fields["foms"] if fom["reason"]
    )
    lines += [
        f"not asserted: {counted(count, 'figure')}: {reason}"
        for reason, count in unasserted.items()
    ]
    results = Counter(fields["result"] for fields in records)
    verdicts = Counter(fom["verdict"] for fields in records for fom in fields["foms"])
    failed = verdicts["fail"] + verdicts["above-ceiling"]
    near = sum(fom["near"] for fields in records for fom in fields["foms"])
    notable = {"failed": failed, "waived": verdicts["waived"], "near their bound": near}
    told = ", ".join(f"{n} {what}" for what, n in notable.items() if n or what == "failed")
    asserted = verdicts["pass"] + failed + verdicts["waived"]
    counts = ", ".join(f"{count} {result}" for result, count in results.items()) or "none"
    noticed = states.summed(notice for fields in records for notice in fields["warnings"])
    ended = len({fields["case"] for fields in records})
    return "\n".join(
        [
            *lines,
            f"plumbline: {ended} of {counted(max(planned, ended), 'test case')}: {counts}",
            f"plumbline: figures of merit: {asserted} asserted ({told}), "
            f"{verdicts['not-asserted']} not asserted",
            *([f"plumbline: to be looked at: {noticed}"] if noticed else []),
        ]
    )


def _together(records: list[dict]) -> list[list[dict]]:
    """The cases, those together that ``--distribute`` or ``--repeat`` made of one."""
    found: dict[tuple, list[dict]] = {}
    for number, f in enumerate(records):
        name = base_name(f["check"])
        own = number if name == f["check"] else None
        found.setdefault((name, f["partition"], f["environment"], own), []).append(f)
    return list(found.values())


def _rows_together(cases: list[dict]) -> list[list[str]]:
    """Lines of a case on many nodes: the median of each headline figure and its worst node; then
    the figures that did not pass well, by their nodes."""
    first = cases[0]
    foms = [(f, fom) for f in cases for fom in f["foms"]]
    asserted = sum(fom["verdict"] != "not-asserted" for _, fom in foms)
    rows = []
    for shown in (fom for fom in first["foms"] if fom["headline"]):
        what = parse.Figure(shown["metric"], shown["size"], shown["at"])
        here = [
            (fom["value"], _nodes(f))
            for f, fom in foms
            if parse.Figure(fom["metric"], fom["size"], fom["at"]) == what
        ]
        worst, node = (max if shown["better"] == "lower" else min)(here)
        middle = statistics.median(value for value, _ in here)
        unit = shown["unit"]
        rows += [
            [f"median of {len(here)}", what.variable, f"{middle:.6g} {unit}", ""],
            [f"worst, {node}", what.variable, f"{worst:.6g} {unit}", ""],
        ]
    rows += [
        [_nodes(f), *row[3:6]]
        for f in cases
        for row in _table_rows(f | {"foms": [{**fom, "headline": False} for fom in f["foms"]]})
    ]
    name = re.sub(r" %placement=\S+", "", base_name(first["check"])).replace(" %", " ")
    counted = Counter(f["result"] for f in cases)
    results = ", ".join(f"{count} {result}" for result, count in counted.items())
    head = [name, first["placement"], first["environment"]]
    return [
        [*(head if not index else [f"  {row[0]}", "", ""]), *row[1:],
         "" if index else f"{asserted} of {len(foms)}"]
        for index, row in enumerate([["", "", f"{len(cases)} cases", results], *rows])
    ]  # fmt: skip


def _nodes(fields: dict) -> str:
    return printable(", ".join(fields["nodes"])) or "unknown node"


def _table_rows(fields: dict) -> list[list[str]]:
    """A case's lines of the closing table: its headline figures, and all that did not pass well."""
    verdicts = Counter(fom["verdict"] for fom in fields["foms"])
    asserted = f"{len(fields['foms']) - verdicts['not-asserted']} of {len(fields['foms'])}"
    name = re.sub(r" %placement=\S+", "", fields["check"]).replace(" %", " ")
    case = [name, fields["placement"], fields["environment"]]
    rows = []
    noticed: dict[str, list[str]] = {}
    for notice in fields["warnings"]:
        noticed.setdefault(notice["figure"], []).append(notice["state"])
    for fom in fields["foms"]:
        bad = fom["verdict"] in ("fail", "above-ceiling", "waived")
        name = parse.Figure(fom["metric"], fom["size"], fom["at"]).variable
        notes = [*(["near its bound"] if fom["near"] else []), *noticed.get(name, [])]
        if fom["headline"] or bad or notes:
            told = f"{fom['verdict']} ({', '.join(notes)})" if notes else fom["verdict"]
            rows.append(
                [
                    *(["", "", ""] if rows else case),
                    name,
                    f"{fom['value']:.6g} {fom['unit']}",
                    fom["verdict"].upper() if bad else told,
                    "" if rows else asserted,
                ]
            )
    return rows


def _short(fields: dict) -> str:
    return printable(f"{fields['check']} @{fields['partition']}+{fields['environment']}")
