"""Holds systems, Spack environments, references, tolerances and checks against each other."""

from __future__ import annotations

from plumbline.check import states
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import counted, some
from plumbline.operate.onboarding import steps
from plumbline.reference import lookup, waivers
from plumbline.session import plan
from plumbline.site import configuration, host, inventory, weak
from plumbline.site import system as of_systems
from plumbline.software import environments


def lint(system: str | None, accept: bool, list_weak: bool = False) -> tuple[list[str], list[str]]:
    """All faults, and what was done.

    :arg system: the system whose checks are held against its inventory; by host name if ``None``.
    :arg accept: whether the system's inventory is written anew.
    :arg list_weak: whether the system's weak assertions are listed, not only counted.
    :raises Fault: if there is no such system, or an inventory is to be written and it is not
        certain which system this host is.
    """
    if system:
        configuration.check_system(system)
    faults: list[str] = []
    said: list[str] = []
    systems: dict[str, dict] = {}
    for path in configuration.system_files():
        try:
            content = configuration.read_system(path)
        except Fault as err:
            faults += str(err).splitlines()
            continue
        systems[path.stem] = content
    try:
        tables = lookup.loaded(paths.reference()).tables
        said.append(
            f"{counted(len(systems), 'system')}, "
            f"{counted(len(environments.every()), 'Spack environment')}, "
            f"{counted(len(tables.rows), 'reference')}"
        )
        faults += of_systems.faults_of_rows(tables.rows.values(), tables, systems)
        faults += of_systems.faults_of_words(systems, tables)
        faults += environments.faults(systems)
        metrics = {metric for known in tables.foms.values() for metric in known}
        where = waivers.path_of(paths.reference())
        faults += waivers.faults_of(_waivers(), where, systems, metrics)
        states.patterns(paths.reference())
    except Fault as err:
        faults += str(err).splitlines()
    if not faults:
        try:
            name = host.here(system)
        except Fault as err:
            if accept:
                raise
            return faults, [*said, *f"no inventory was checked: {err}".splitlines()]
        content = systems.get(name)
        if content is None or steps.has_checks(content):
            # A host that no system has is ReFrame's own to refuse.
            faults += _inventory(system, accept, list_weak, said)
        if content is not None:
            said += _open(name, content)
    return faults, said


def _open(name: str, content: dict) -> list[str]:
    """What is still open of a system on the way to its first baseline."""
    following = steps.following(name, content)
    lines = [f"open: {line}" for line in steps.opens(name, content)]
    return lines + ([f"next: {following}"] if following else [])


def _waivers() -> tuple[waivers.Waiver, ...]:
    return waivers.loaded(paths.reference())


def _inventory(system: str | None, accept: bool, list_weak: bool, said: list[str]) -> list[str]:
    """Compares the system's cases with its inventory, or writes it."""
    try:
        surveyed = plan.surveyed(system, [str(paths.CHECKS)], [*plan.FULL])
        name = surveyed[0].case.rpartition("@")[2].partition(":")[0]
        before = inventory.read(name)
    except Fault as err:
        return str(err).splitlines()
    tables = lookup.loaded(paths.reference())
    cases = dict.fromkeys(case.case for case in surveyed)
    faults = [*waivers.about_no_case(_waivers(), waivers.path_of(paths.reference()), cases)]
    path, command = inventory.path_of(name), inventory.accepting(name)
    if before is None or accept:
        now = inventory.of_cases(surveyed, tables, before)
        said.append(f"{inventory.write(name, now)}: {_counts(now)}")
        if skipped := [case for case in surveyed if not case.runs]:
            said.append(
                f"{counted(len(skipped), 'test case')} skipped here: what bounds their figures "
                f"{'stays as it was' if before and not before.counts else 'is not known'}: "
                f"{some(case.case for case in skipped)}"
            )
        said += _weak(name, now, tables, list_weak)
        return faults
    if before.counts:
        faults.append(f"{path} {inventory.EARLIER}: {command} renews it")
    faults += [
        f"{case}: in {path}, and no longer there" for case in before.every if case not in cases
    ]
    faults += [
        f"{case}: not in {path} yet: {command}" for case in cases if case not in before.every
    ]
    lost, new = inventory.compared(before, inventory.of_survey(surveyed, tables), tables)
    changed = inventory.edited(before, tables) + lost
    faults += [f"{line}; {inventory.restoring(name)}" for line in changed]
    faults += [f"{line}; {command}" for line in new]
    said.append(f"{name}: {_counts(before)}")
    said += _weak(name, before, tables, list_weak)
    return faults


def _weak(
    system: str, expected: inventory.Inventory, tables: lookup.References, listed: bool
) -> list[str]:
    """The weak assertions of a system: no fault, since no other bound may be honest."""
    found = weak.pairs(tables, weak.by_check(expected, tables))
    names = {name for pair in found for name in pair.weak}
    if not names:
        return []
    lines = [f"weak: {weak.text(pair)}" for pair in found] if listed else []
    more = "" if listed else ": --weak lists them"
    return [
        *lines,
        f"{counted(len(names), 'reference')} of {system} would pass the printed value of a case "
        f"beside theirs{more}",
    ]


def _counts(found: inventory.Inventory) -> str:
    figures = {pair for case in found.every for pair in found.bounded(case)}
    return (
        f"{counted(len(found.every), 'test case')}, "
        f"{counted(len(found.references), 'reference')} bound {counted(len(figures), 'figure')}"
    )
