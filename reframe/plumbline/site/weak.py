"""Weak assertions: those that would pass the value that is printed of the case beside theirs.

A job that ran as another than it was asked for (GPUs of another pair, a variant that was not
applied) is found by its figures only if their bounds do not admit the other's printed value. Two
printed values of a check are beside each other if they differ in the placement alone, or in one
condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from plumbline.reference.lookup import References
from plumbline.reference.row import Row
from plumbline.site.inventory import Inventory

#: Cells that two cases of a check may differ in, beside conditions, which are looked at one by one.
#: How many tasks ran where is proven of each run: only the placement may be another one unseen.
_CELLS = ("toolchain", "nodes", "ppn", "placement")
_PROVEN = ("toolchain", "nodes", "ppn")


@dataclass
class Pair:
    """The cases of a check under one condition, had they been measured under another.

    :ivar key: the condition in which they differ, or placement; ``own`` and ``other``, its values.
    :ivar tell: rows whose bounds the other's value is beyond: that case would fail.
    :ivar within: rows whose tolerance is so wide that it passes.
    :ivar better: rows that it passes since the other's value is the better one.
    """

    system: str
    check: str
    key: str
    own: str
    other: str
    tell: list[str] = field(default_factory=list)
    within: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)

    @property
    def weak(self) -> list[str]:
        """The rows that cannot tell."""
        return self.within + self.better


def by_check(expected: Inventory, references: References) -> dict[str, set[str]]:
    """The printed values that bound a figure of each check."""
    found: dict[str, set[str]] = defaultdict(set)
    for case, rows in expected.every.items():
        there = [references.tables.rows[name] for name in rows if name in references.tables.rows]
        found[case.split()[0]] |= {row.id for row in there if row.kind == "measured"}
    return found


def pairs(references: References, checks: Mapping[str, Iterable[str]]) -> list[Pair]:
    """The pairs of cases of which an assertion cannot tell which of the two was measured.

    :arg checks: check -> ids of the rows that bound a figure of it.
    """
    found: dict[tuple, Pair] = {}
    for check, names in sorted(checks.items()):
        alike: dict[tuple, list[Row]] = defaultdict(list)
        rows = [references.tables.rows[name] for name in names]
        for row in sorted(rows, key=lambda row: (row.metric, row.message_size or 0, row.id)):
            alike[row.system, row.benchmark, row.metric, row.message_size, row.statistic].append(
                row
            )
        for group in alike.values():
            for row, beside in permutations(group, 2):
                apart = [*_apart(references, row, beside)]
                if len(apart) == 1 and apart[0][0] not in _PROVEN:
                    key = (row.system, check, *apart[0])
                    _compare(references, row, beside, found.setdefault(key, Pair(*key)))
    return sorted(
        (pair for pair in found.values() if pair.weak),
        key=lambda pair: (pair.system, pair.check, pair.key, pair.own, pair.other),
    )


def _apart(references: References, row: Row, beside: Row) -> Iterator[tuple[str, str, str]]:
    """The cells and conditions that tell two rows apart, with both values."""
    roles = references.tables.conditions
    for cell in _CELLS:
        if getattr(row, cell) != getattr(beside, cell):
            yield cell, str(getattr(row, cell)), str(getattr(beside, cell))
    for key in sorted(row.conditions.keys() | beside.conditions.keys()):
        own, other = row.conditions.get(key, ""), beside.conditions.get(key, "")
        if own != other and roles[key].role == "condition":
            yield key, own, other


def _compare(references: References, row: Row, beside: Row, pair: Pair) -> None:
    bounds, other = references.bounds_of(row), references.bounds_of(beside)
    if bounds is None or other is None or bounds.value == other.value:
        return
    higher = references.rule_of(row).better == "higher"
    if not bounds.hold(other.value):
        pair.tell.append(row.id)
    elif (other.value > bounds.value) == higher:
        pair.better.append(row.id)
    else:
        pair.within.append(row.id)


def text(pair: Pair) -> str:
    """A pair in words."""
    why = [
        (pair.within, "within the tolerance"),
        (pair.better, "the other is better, which no bound forbids"),
    ]
    passes = "; ".join(f"{', '.join(names)} ({words})" for names, words in why if names)
    fails = f"; fails {', '.join(pair.tell)}" if pair.tell else ""
    return f"{pair.check}, {pair.key} {pair.own} measured as {pair.other}: passes {passes}{fails}"
