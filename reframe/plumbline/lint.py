"""Holds systems, references, tolerances and checks against each other."""

from __future__ import annotations

from plumbline import configuration, inventory, paths, reference, survey
from plumbline.errors import Fault


def lint(system: str | None, accept: bool) -> tuple[list[str], list[str]]:
    """All faults, and what was done.

    :arg accept: whether the system's inventory is written anew.
    """
    faults: list[str] = []
    said: list[str] = []
    systems = []
    for path in configuration.system_files():
        try:
            configuration.read_system(path)
            systems.append(path.stem)
        except Fault as err:
            faults += str(err).splitlines()
    try:
        tables = reference.loaded(paths.reference())
        said.append(f"{len(systems)} system(s), {len(tables.rows)} reference(s)")
        faults += [
            f"reference {row.id}: column system: no systems/{row.system}.yaml"
            for row in tables.rows
            if row.system not in systems
        ]
    except Fault as err:
        faults += str(err).splitlines()
    if not faults:
        faults += _inventory(system, accept, said)
    return faults, said


def _inventory(system: str | None, accept: bool, said: list[str]) -> list[str]:
    try:
        cases = {c.case: c for c in survey.surveyed(system, [str(paths.CHECKS)], [])}
    except Fault as err:
        return str(err).splitlines()
    if not cases:
        return [f"system {system or 'of this host'}: no check fits any of its partitions"]
    name = next(iter(cases)).rpartition("@")[2].partition(":")[0]
    now = {case: found.asserted for case, found in cases.items()}
    before = inventory.read(name)
    if before is None or accept:
        said.append(f"{inventory.write(name, now)}: {len(now)} test cases")
        return []
    faults = [f"{case}: in {inventory.path_of(name)}, and no longer there" for case in before
              if case not in now]  # fmt: skip
    faults += [f"{case}: not in {inventory.path_of(name)} yet: --accept" for case in now
               if case not in before]  # fmt: skip
    faults += [
        f"{case}: {now[case]} figures asserted, {inventory.path_of(name)} expects {before[case]}"
        for case in now
        if case in before and cases[case].runs and now[case] < before[case]
    ]
    said.append(f"{name}: {len(now)} test cases, {sum(now.values())} figures asserted")
    return faults
