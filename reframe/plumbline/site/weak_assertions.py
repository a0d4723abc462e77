"""Weak assertions: those that would also pass the published value of a neighbouring case, and those
whose bounds are wide.

A job that did not run as requested (on another pair of GPUs, without its variant) is detected by
its figures only if their bounds exclude the published value of the case that ran instead. Two
published values of a check are neighbours if they differ only in the placement or in one condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from plumbline.reference.lookup import References
from plumbline.reference.row import Row
from plumbline.site.inventory import Inventory

#: Cells that two cases of a check may differ in, besides conditions, which are compared one by one.
#: Where the tasks ran is proven for each run, so only the placement may differ unnoticed.
_CELLS = ("toolchain", "nodes", "ppn", "placement")
_PROVEN = ("toolchain", "nodes", "ppn")


@dataclass
class Pair:
    """The cases of a check with one value of a condition, if another value had been measured.

    :ivar key: the condition in which they differ, or ``placement``; ``own`` and ``other`` are its
        values.
    :ivar failing: rows whose bounds exclude the other's value: that case would fail.
    :ivar within: rows that pass because the tolerance is so wide.
    :ivar better: rows that pass because the other's value is better.
    """

    system: str
    check: str
    key: str
    own: str
    other: str
    failing: list[str] = field(default_factory=list)
    within: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)

    @property
    def weak(self) -> list[str]:
        """The rows that would pass."""
        return self.within + self.better


def by_check(expected: Inventory, references: References) -> dict[str, set[str]]:
    """Return the published values that bound a figure of each check."""
    found: dict[str, set[str]] = defaultdict(set)
    for case, rows in expected.all_cases.items():
        known = [references.tables.rows[name] for name in rows if name in references.tables.rows]
        found[case.split()[0]] |= {row.id for row in known if row.kind == "measured"}
    return found


def pairs(references: References, checks: Mapping[str, Iterable[str]]) -> list[Pair]:
    """Return the pairs of cases where an assertion would pass whichever of the two was measured.

    :arg checks: check -> ids of the rows that bound a figure of it.
    """
    found: dict[tuple, Pair] = {}
    for check, names in sorted(checks.items()):
        alike: dict[tuple, list[Row]] = defaultdict(list)
        rows = [references.tables.rows[name] for name in names]
        for row in sorted(rows, key=lambda row: (row.metric, row.message_size or 0, row.id)):
            alike[row.system, row.benchmark, row.metric, row.message_size].append(row)
        for group in alike.values():
            for row, neighbour in permutations(group, 2):
                differences = [*_differences(references, row, neighbour)]
                if len(differences) == 1 and differences[0][0] not in _PROVEN:
                    key = (row.system, check, *differences[0])
                    _compare(references, row, neighbour, found.setdefault(key, Pair(*key)))
    return sorted(
        (pair for pair in found.values() if pair.weak),
        key=lambda pair: (pair.system, pair.check, pair.key, pair.own, pair.other),
    )


def _differences(
    references: References, row: Row, neighbour: Row
) -> Iterator[tuple[str, str, str]]:
    """Yield the cells and conditions in which two rows differ, with both values."""
    roles = references.tables.conditions
    for cell in _CELLS:
        if getattr(row, cell) != getattr(neighbour, cell):
            yield cell, str(getattr(row, cell)), str(getattr(neighbour, cell))
    for key in sorted(row.conditions.keys() | neighbour.conditions.keys()):
        own, other = row.conditions.get(key, ""), neighbour.conditions.get(key, "")
        if own != other and roles[key].role == "condition":
            yield key, own, other


def wide(references: References, checks: Mapping[str, Iterable[str]]) -> dict[str, float]:
    """Return the rows with wide bounds -> the largest loss that passes; of a distribution, with the
    least number of samples.

    :arg checks: as of :func:`pairs`.
    """
    names = sorted({name for of_check in checks.values() for name in of_check})
    found = {name: references.bounds_of(references.tables.rows[name]) for name in names}
    return {
        name: bounds.loss for name, bounds in found.items() if bounds and references.is_wide(bounds)
    }


def _compare(references: References, row: Row, neighbour: Row, pair: Pair) -> None:
    bounds, other = references.bounds_of(row), references.bounds_of(neighbour)
    if bounds is None or other is None or bounds.value == other.value:
        return
    higher = references.rule_of(row).better == "higher"
    if not bounds.contains(other.value):
        pair.failing.append(row.id)
    elif (other.value > bounds.value) == higher:
        pair.better.append(row.id)
    else:
        pair.within.append(row.id)


def text(pair: Pair) -> str:
    """Return a pair as a line of text."""
    why = [
        (pair.within, "within the tolerance"),
        (pair.better, "the other is better, which no bound forbids"),
    ]
    passes = "; ".join(f"{', '.join(names)} ({words})" for names, words in why if names)
    fails = f"; fails {', '.join(pair.failing)}" if pair.failing else ""
    return f"{pair.check}, {pair.key} {pair.own} measured as {pair.other}: passes {passes}{fails}"
