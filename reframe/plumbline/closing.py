"""The table that closes a session: what was asserted, what not, what failed or was skipped."""

from __future__ import annotations

import re
from collections import Counter

from tabulate import tabulate

from plumbline import parse

#: Results whose reason the closing table gives.
_WITH_REASON = ("fail", "invalid", "error", "aborted", "unfinished", "skip")
_HEADS = ["check", "placement", "env", "figure of merit", "value", "verdict", "asserted"]


def table(records: list[dict], planned: int) -> str:
    """The table as text.

    :arg planned: how many test cases the session's plan had.
    """
    lines = [""]
    rows = [row for f in records if f["result"] in ("pass", "fail") for row in _table_rows(f)]
    if rows:
        lines += [tabulate(rows, _HEADS, tablefmt="simple", disable_numparse=True), ""]
    for result in _WITH_REASON:
        reasons: dict[str, list[str]] = {}
        for fields in records:
            if fields["result"] == result and fields["reason"]:
                reasons.setdefault(fields["reason"], []).append(_short(fields))
        lines += [f"{result}: {_some(cases)}: {reason}" for reason, cases in reasons.items()]
    unasserted = Counter(
        fom["reason"] for fields in records for fom in fields["foms"] if fom["reason"]
    )
    lines += [f"not asserted: {count} figures: {reason}" for reason, count in unasserted.items()]
    results = Counter(fields["result"] for fields in records)
    verdicts = Counter(fom["verdict"] for fields in records for fom in fields["foms"])
    failed = verdicts["fail"] + verdicts["above-ceiling"]
    counts = ", ".join(f"{count} {result}" for result, count in results.items()) or "none"
    ended = len({fields["case"] for fields in records})
    return "\n".join(
        [
            *lines,
            f"plumbline: {ended} of {max(planned, ended)} test cases: {counts}",
            f"plumbline: figures of merit: {verdicts['pass'] + failed} asserted ({failed} failed), "
            f"{verdicts['not-asserted']} not asserted",
        ]
    )


def _table_rows(fields: dict) -> list[list[str]]:
    """A case's lines of the closing table, one for each headline figure and each failed one."""
    verdicts = Counter(fom["verdict"] for fom in fields["foms"])
    asserted = f"{len(fields['foms']) - verdicts['not-asserted']} of {len(fields['foms'])}"
    name = re.sub(r" %placement=\S+", "", fields["check"]).replace(" %", " ")
    case = [name, fields["placement"], fields["environment"]]
    rows = []
    for fom in fields["foms"]:
        bad = fom["verdict"] in ("fail", "above-ceiling")
        if fom["headline"] or bad:
            rows.append(
                [
                    *(["", "", ""] if rows else case),
                    parse.Figure(fom["metric"], fom["size"], fom["at"]).variable,
                    f"{fom['value']:.6g} {fom['unit']}",
                    fom["verdict"].upper() if bad else fom["verdict"],
                    "" if rows else asserted,
                ]
            )
    return rows


def _short(fields: dict) -> str:
    return f"{fields['check']} @{fields['partition']}+{fields['environment']}"


def _some(cases: list[str], most: int = 3) -> str:
    shown = ", ".join(cases[:most])
    return shown if len(cases) <= most else f"{shown} and {len(cases) - most} more"
