"""What the pages show of lists of cases: groups, orders, marks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from markupsafe import Markup

from plumbline.check.record import FigureRecord
from plumbline.core.text import pluralize
from plumbline.history.rows import CaseRow
from plumbline.output.report.status import WORST_FIRST, CaseState
from plumbline.output.report.text import html, number
from plumbline.reference.row import Row

#: Status -> its mark, and its meaning.
STATUSES = {
    "pass": ("✓", "every sample can be trusted, and no figure is outside its bounds"),
    "fail": ("✕", "a figure is outside its bounds"),
    "above-ceiling": ("▲", "better than the hardware can be: the measurement is wrong"),
    "invalid": ("!", "the output cannot be trusted"),
    "error": ("!", "it ended before it was measured: set-up, submission, time limit"),
    "aborted": ("■", "the session was stopped while it ran"),
    "unfinished": ("…", "planned, but never ended"),
    "running": ("▸", "no result yet, its session has not ended"),
    "vanished": ("∅", "expected, but no recent session ran it"),
    "never-run": ("◌", "in the inventory, but no session has run it"),
    "waived": ("~", "a known fault, with reason, owner and expiry; not a pass"),
    "near-bound": ("△", "passed, but within the warning band near its bound"),
    "suspicious": ("◇", "a figure is far better than its reference: check what was measured"),
    "unstable": ("≈", "passed, but single samples are beyond the bound"),
    "warnings": ("⚠", "its standard error reports a fault"),
    "skip": ("-", "it cannot run here; nothing was measured"),
    "not-asserted": ("○", "measured and recorded, but compared with no reference"),
    "regression": ("↘", "a lasting change for the worse"),
    "improvement": ("↗", "a lasting change for the better"),
    "transient": ("↕", "a change that came back after a few sessions"),
    "change": ("→", "a lasting change of a figure without a better side"),
    "suspect": (
        "?",
        "far off, but not confirmed: the figure has outliers or autocorrelated noise; measure it "
        "again",
    ),
    "drift": ("⇘", "a slow change"),
}


def grouped(cases: list[CaseState]) -> list[list[CaseState]]:
    """Group cases that differ only in their node and figures, the worst first."""
    found: dict[tuple, list[CaseState]] = {}
    for case in cases:
        group = (case.system, case.partition, case.environment, case.check, case.status)
        reason = "" if case.findings else case.reason
        found.setdefault((*group, reason, *waivers_of(case)), []).append(case)
    return [sorted(listed, key=_beyond) for listed in found.values()]


def waivers_of(case: CaseState) -> list[str]:
    """Return the ids of the waivers that cover a case or figures of it."""
    return sorted({case.waiver, *(one.waiver for one in case.findings)} - {""})


def by_reason(cases: list[CaseState]) -> list[tuple[str, list[CaseState]]]:
    """Group cases with the same reason, the largest group first."""
    found: dict[str, list[CaseState]] = {}
    for case in cases:
        found.setdefault(case.reason, []).append(case)
    return sorted(found.items(), key=lambda pair: -len(pair[1]))


# A large site's session has tens of thousands of figures, and its hosts the same facts in each
# record: a template takes a multiple of the time of the joins below.


def by_facts(hosts: dict[str, dict[str, str]]) -> list[tuple[list[str], Markup]]:
    """Group nodes with the same facts, and return these as HTML."""
    found: dict[tuple, list[str]] = {}
    for node, facts in sorted(hosts.items()):
        found.setdefault(tuple(sorted(facts.items())), []).append(node)
    return [(nodes, _facts(facts)) for facts, nodes in found.items()]


def variables(values: dict[str, str]) -> Markup:
    """Return the variables of a record as HTML."""
    return _facts(tuple(values.items()))


@functools.lru_cache(1 << 12)
def _facts(facts: tuple[tuple[str, str], ...]) -> Markup:
    listed = sorted(facts, key=lambda fact: fact[0].lower())
    return Markup("; ".join(f"{html(name)} <code>{html(value)}</code>" for name, value in listed))


def figure_rows(
    listed: Iterable[tuple[str, FigureRecord, str, str]], root: str, badge: Callable[[str], str]
) -> Markup:
    """Return the rows of the table of a record's figures as HTML.

    :arg listed: name, figure, state and page of the reference, if any.
    :arg root: way from the page to the site's. :arg badge: returns the mark of a state as HTML.
    """
    return Markup("".join(
        f'<tr><th scope="row">{html(name)}</th>'
        f'<td class="num">{number(fom.value)} {html(fom.unit)}</td>'
        f'<td class="num">{number(fom.lower)}</td><td class="num">{number(fom.upper)}</td>'
        f'<td class="num">{number(fom.ceiling)}</td><td>{badge(state)}</td><td>'
        + (f'<a href="{root}{page}">{html(fom.reference or "")}</a>' if page else html(fom.reason))
        + "</td></tr>"
        for name, fom, state, page in listed
    ))  # fmt: skip


def pairs(cases: list[CaseState], *verdicts: str) -> list[tuple]:
    """Return figures with these verdicts and their cases, the worst first: of those that passed,
    the ones near their bounds."""
    found = [(case, one) for case in cases for one in (*case.findings, *case.near_bound)]
    return sorted(
        (pair for pair in found if pair[1].verdict in verdicts), key=lambda pair: pair[1].beyond
    )


def unasserted(cases: list[CaseState]) -> int:
    """Return the number of figures that were compared with no reference."""
    return sum(case.unasserted.total() for case in cases)


def conditions(row: Row) -> str:
    """Return the conditions of a published row."""
    parts = [
        pluralize(row.nodes, "node") if row.nodes else "",
        f"{row.ppn} a node" if row.ppn else "",
        *(f"{key}={value}" for key, value in row.conditions.items()),
    ]
    return ", ".join(filter(None, parts))


def compared(ratio: float, better: str) -> str:
    """Return whether a ratio to a published value is better or worse, if either."""
    if better == "neither" or not abs(ratio - 1) >= 0.0005:
        return ""
    return "better" if (ratio > 1) == (better == "higher") else "worse"


def _beyond(case: CaseState) -> float:
    return min((finding.beyond for finding in [*case.findings, *case.near_bound]), default=0.0)


def worst_first(case: CaseRow) -> tuple:
    return WORST_FIRST.index(case.result), case.check, case.node
