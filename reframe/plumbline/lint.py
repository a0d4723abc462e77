"""Holds systems, Spack environments, references, tolerances and checks against each other."""

from __future__ import annotations

from plumbline import (
    configuration,
    environments,
    host,
    inventory,
    paths,
    reference,
    states,
    survey,
    waivers,
)
from plumbline import system as of_systems
from plumbline.errors import Fault
from plumbline.onboarding import steps
from plumbline.words import counted


def lint(system: str | None, accept: bool) -> tuple[list[str], list[str]]:
    """All faults, and what was done.

    :arg system: the system whose checks are held against its inventory; by host name if ``None``.
    :arg accept: whether the system's inventory is written anew.
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
        tables = reference.loaded(paths.reference()).tables
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
            faults += _inventory(system, accept, said)
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


def _inventory(system: str | None, accept: bool, said: list[str]) -> list[str]:
    try:
        cases = {c.case: c for c in survey.surveyed(system, [str(paths.CHECKS)], [])}
        name = next(iter(cases)).rpartition("@")[2].partition(":")[0]
        before = inventory.read(name)
    except Fault as err:
        return str(err).splitlines()
    faults = [*waivers.about_no_case(_waivers(), waivers.path_of(paths.reference()), cases)]
    now = {case: found.asserted for case, found in cases.items()}
    path = inventory.path_of(name)
    if before is None or accept:
        said.append(f"{inventory.write(name, now)}: {counted(len(now), 'test case')}")
        return faults
    faults += [f"{case}: in {path}, and no longer there" for case in before if case not in now]
    faults += [f"{case}: not in {path} yet: --accept" for case in now if case not in before]
    faults += [
        f"{case}: {counted(now[case], 'figure')} asserted, {path} expects {before[case]}"
        + (": --accept" if now[case] > before[case] else "")
        for case in now
        if case in before and cases[case].runs and now[case] != before[case]
    ]
    said.append(
        f"{name}: {counted(len(now), 'test case')}, {counted(sum(now.values()), 'figure')} asserted"
    )
    return faults
