"""What a session measured and asserted, compared with the system's inventory."""

from __future__ import annotations

from collections import defaultdict

from plumbline.check.record import Planned, Record, case_name
from plumbline.core.text import base_name, counted
from plumbline.reference.lookup import References
from plumbline.site.inventory import Inventory, accepting, compared, edited, restoring

#: Lines of a kind that a session reports; `plumbline lint` lists all.
_MOST_TOLD = 5
#: Stands for the row of a ceiling that is not expected: a record has its value alone.
_CEILING = "a ceiling"


def differences(
    system: str, expected: Inventory, records: list[Record], references: References
) -> tuple[list[str], list[str], list[str]]:
    """How a session differs from its inventory, a line each with what to do: the rows that were
    edited or are gone, the cases that lost one, and those with one that is not expected."""
    lost, new = compared(expected, of_records(expected, records), references)
    return (
        _first(edited(expected, references), system, restoring(system)),
        _first(lost, system, restoring(system)),
        _first(new, system, f"{accepting(system)}, so that their loss is noticed"),
    )


def _first(lines: list[str], system: str, what_to_do: str) -> list[str]:
    """The first lines, each with what to do, and how many more there are."""
    more = len(lines) - _MOST_TOLD
    return [f"{line}; {what_to_do}" for line in lines[:_MOST_TOLD]] + (
        [f"and {more} more: `plumbline lint --system {system}` lists them"] if more > 0 else []
    )


def of_records(expected: Inventory, records: list[Record]) -> dict[str, set[tuple[str, str]]]:
    """What bounded the figures of each case that measured; a figure that was not printed is as
    the inventory has it, and so are those of a busy machine, which nothing is compared with."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for fields in records:
        if not fields.foms:
            continue
        case = case_of(fields)
        foms = [] if fields.busy else fields.foms
        figures = {fom.figure.variable: fom for fom in foms}
        found[case] |= {(name, f.reference) for name, f in figures.items() if f.reference}
        capped = {name for name, f in figures.items() if f.ceiling is not None}
        expected_caps = {pair for pair in expected.capped(case) if pair[0] in capped}
        found[case] |= expected_caps
        found[case] |= {(name, _CEILING) for name in capped - {name for name, _ in expected_caps}}
        found[case] |= {pair for pair in expected.bounded(case) if pair[0] not in figures}
    return found


def case_of(fields: Record) -> str:
    """The test case of a record as an inventory has it."""
    return base_name(fields.name)


def planned_case(planned: Planned) -> str:
    """The test case of a plan's entry as an inventory has it."""
    names = (planned["system"], planned["partition"], planned["environment"])
    return case_name(base_name(planned["check"]), *names)


def uncompared(expected: Inventory, records: list[Record]) -> list[str]:
    """The cases that a busy machine measured although something bounds their figures, a line
    each."""
    return [
        f"{case}: {counted(len(bounded), 'figure')} not compared, as other processes ran on the "
        f"same cores: measure again when the machine is idle"
        for case, bounded in (
            (case, expected.bounded(case))
            for case in dict.fromkeys(case_of(f) for f in records if f.foms and f.busy)
        )
        if bounded
    ]


def fewer(expected: Inventory, records: list[Record]) -> list[str]:
    """The cases of an inventory of the earlier format that assert fewer figures than it counts."""
    lines = []
    for fields in records:
        case = case_of(fields)
        asserted = sum(fom.verdict != "not-asserted" for fom in fields.foms)
        if fields.foms and asserted < expected.counts.get(case, 0):
            lines.append(
                f"{case}: {counted(asserted, 'figure')} asserted, not {expected.counts[case]}"
            )
    return lines
