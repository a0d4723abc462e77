"""What a session measured and asserted, compared with the system's inventory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from plumbline.check.record import FigureRecord, Record, case_name
from plumbline.check.session_files import Planned
from plumbline.core import paths
from plumbline.core.errors import Fault, with_code
from plumbline.core.text import base_name, pluralize
from plumbline.reference import lookup
from plumbline.reference.lookup import References
from plumbline.reference.row import OF_CHECK
from plumbline.site import inventory
from plumbline.site.inventory import (
    Inventory,
    accepting,
    changed_references,
    compare,
    linting,
    restoring,
)

#: Lines of a kind that a session reports; `plumbline lint` lists all.
_MOST_SHOWN = 5
#: Replaces the row of an unexpected ceiling, of which a record has only the value.
_CEILING = "a ceiling"


def differences(
    system: str,
    expected: Inventory,
    records: list[Record],
    references: References,
    folders: Sequence[str] = (),
) -> tuple[list[str], list[str], list[str]]:
    """Return how a session differs from its inventory, a line each with the fix: the rows that
    changed or were removed, the cases that lost one, and those with an unexpected one.

    :arg folders: of checks, which ``plumbline lint`` loads with ``-c``.
    """
    restore, accept = restoring(system, folders), accepting(system, folders)
    lost, new = compare(expected, of_records(expected, records), references)
    return (
        _first(changed_references(expected, references), linting(system, folders), restore),
        _first(lost, linting(system, folders), restore),
        _first(new, linting(system, folders), f"{accept}, so that their loss is noticed"),
    )


def of_plain(
    planned: Mapping[str, Planned], records: list[Record], folders: Sequence[str]
) -> tuple[list[str], list[str], str]:
    """Compare a session of the plain command, which need not have all cases, with the inventory.

    :arg folders: of ``-c``.
    :returns: differences that are faults, other differences, and what was not compared.
    """
    system = next(iter(planned.values()))["system"]
    path = inventory.path_of(system)
    try:
        expected = inventory.read(system)
    except Fault as err:
        return [], [], f"nothing was compared with the inventory: {err}"
    if expected is None:
        return [], [], f"nothing was compared with the inventory: {path} does not exist"
    tables = lookup.loaded(paths.reference())
    changed, lost, new = differences(system, expected, records, tables, folders)
    cases = map(planned_case, planned.values())
    others = pluralize(len(expected.cases.keys() - set(cases)), "other test case")
    return changed + lost, new, f"not checked: whether {others} of {path} still exist"


def _first(lines: list[str], command: str, what_to_do: str) -> list[str]:
    """Return the first lines, each with the fix, and the number of the others."""
    more = len(lines) - _MOST_SHOWN
    return [f"{line}; {what_to_do}" for line in lines[:_MOST_SHOWN]] + (
        [f"and {more} more: `{command}` lists them"] if more > 0 else []
    )


def of_records(expected: Inventory, records: list[Record]) -> dict[str, set[tuple[str, str]]]:
    """Return the rows that bounded the figures of each case that measured.

    Figures that were not printed, and those of a busy machine, are as in the inventory.
    """
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for fields in records:
        if not fields.foms:
            continue
        case = case_of(fields)
        foms = [] if fields.busy else fields.foms
        figures = {fom.figure.variable: fom for fom in foms}
        found[case] |= {(name, row) for name, f in figures.items() for row in _rows(f)}
        capped = {name for name, f in figures.items() if f.ceiling is not None}
        expected_caps = {pair for pair in expected.capped(case) if pair[0] in capped}
        found[case] |= expected_caps
        found[case] |= {(name, _CEILING) for name in capped - {name for name, _ in expected_caps}}
        found[case] |= {pair for pair in expected.bounded(case) if pair[0] not in figures}
    return found


def _rows(fom: FigureRecord) -> list[str]:
    """Return the rows that bounded a figure. A plain check's own reference is none: the inventory
    cannot have it, and a baseline is beside it."""
    if fom.reference == OF_CHECK:
        return fom.others
    return [fom.reference] if fom.reference else []


def case_of(fields: Record) -> str:
    """Return the test case of a record as in an inventory."""
    return base_name(fields.name)


def planned_case(planned: Planned) -> str:
    """Return the test case of a plan's entry as in an inventory."""
    names = (planned["system"], planned["partition"], planned["environment"])
    return case_name(base_name(planned["check"]), *names)


def uncompared(expected: Inventory | None, records: list[Record]) -> list[str]:
    """Return the cases with references that were measured on a busy machine, a line each.

    :arg expected: ``None`` if the session is not compared with an inventory.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for fields in records:
        if fields.foms and fields.busy:
            case = case_of(fields)
            found[case] |= {fom.figure.variable for fom in fields.foms if fom.reason}
            found[case] |= {figure for figure, _ in expected.bounded(case)} if expected else set()
    return [
        with_code(
            f"{case}: {pluralize(len(figures), 'figure')} not compared, as others used the "
            f"cores or the network too: measure again when they do not",
            "figure.busy",
        )
        for case, figures in found.items()
        if figures
    ]
