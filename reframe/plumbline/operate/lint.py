"""``plumbline lint``: checks that systems, environments, references and checks are consistent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from plumbline.check import states
from plumbline.core import paths
from plumbline.core.errors import Fault, with_code
from plumbline.core.text import base_name, pluralize, shorten
from plumbline.operate.onboarding import steps
from plumbline.reference import lookup, waivers
from plumbline.reference.registers import Tables
from plumbline.reference.row import PLAIN
from plumbline.session import plan
from plumbline.site import configuration, inventory, weak_assertions
from plumbline.site import system as of_systems
from plumbline.software import environment_faults, environments


def lint(
    system: str | None, accept: bool, list_weak: bool = False, checks: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return all faults, and messages about the rest.

    :arg system: the only system to look at; by default all, and the inventory of this host's.
    :arg checks: folders of further checks, or their files.
    :arg accept: whether the system's inventory is updated.
    :arg list_weak: whether the system's weak assertions are listed, not only counted.
    :raises Fault: if there is no such system, or an inventory is to be written and it is not
        certain which system this host is.
    """
    configuration.check_system(system)
    faults: list[str] = []
    messages = paths.missing_site()
    systems: dict[str, dict] = {}
    only = (system or "").partition(":")[0]
    for path in configuration.system_files():
        if only not in ("", path.stem):
            continue
        try:
            systems[path.stem] = configuration.read_system(path)
        except Fault as err:
            faults += str(err).splitlines()
    try:
        tables = lookup.loaded(paths.reference()).tables
        messages.append(
            f"{pluralize(len(systems), 'system')}, "
            f"{pluralize(len(environments.list_environments(only)), 'Spack environment')}, "
            f"{pluralize(len(tables.rows), 'reference')}"
        )
        faults += of_systems.faults_of_rows(tables.rows.values(), tables, systems)
        faults += of_systems.unknown_names(systems, tables)
        faults += environment_faults.faults(systems, bool(only))
        metrics = None
        if not _has_own(checks):
            metrics = {metric for known in tables.foms.values() for metric in known}
        path = waivers.path_of(paths.reference())
        known = waivers.loaded(paths.reference())
        of_systems_here = [w for w in known if not only or waivers.matches(w.match.system, only)]
        faults += waivers.faults_of(of_systems_here, path, systems, metrics)
        states.patterns(paths.reference())
    except Fault as err:
        faults += str(err).splitlines()
    messages += [*paths.overrides(), *of_systems.warnings(systems)]
    if faults:
        return faults, messages
    try:
        name = plan.current_system(system)
    except Fault as err:
        if accept:
            raise
        return [], [*messages, *f"no inventory was checked: {err}".splitlines()]
    content = systems.get(name)
    if content is None or _has_own(checks) or steps.has_checks(content):
        # ReFrame itself reports a host that matches no system.
        faults += _checks(name, system, checks, systems, accept, list_weak, messages)
    if content is not None:
        messages += [f"open: {line}" for line in steps.open_items(name, content)]
        if step := steps.next_step(name, content, checks):
            messages.append(f"next: {step}")
    return faults, messages


def _has_own(checks: Sequence[str]) -> bool:
    """Return whether there are further checks than the shipped ones."""
    return bool(checks) or paths.checks() != [str(paths.ROOT / "checks")]


def _checks(
    name: str,
    system: str | None,
    checks: Sequence[str],
    systems: dict[str, dict],
    accept: bool,
    list_weak: bool,
    messages: list[str],
) -> list[str]:
    """Compare the checks with the systems, and with the system's inventory. Return the faults.

    :arg name: of the system that ``system`` or this host's name means.
    """
    tables = lookup.loaded(paths.reference())
    known = tables.tables.foms.keys()
    try:
        everything = {configuration.ALL_SCALES: "1"}
        found = plan.preview(system, [*paths.checks(), *checks], [], **everything)
    except Fault as err:
        if err.code == "session.nothing-selected" and name not in systems:
            return [_no_case(name)]
        return [*err.coded().splitlines(), *of_systems.unknown_features(systems, known)]
    messages += unloaded(found, tables.tables)
    path, names = waivers.path_of(paths.reference()), [case.case for case in found.cases]
    known_waivers = waivers.loaded(paths.reference())
    faults = [
        *found.misfits,
        *found.undeclared,
        *of_systems.unknown_features(systems, known | {*found.features}),
        *waivers.about_no_case(known_waivers, path, names),
    ]
    if _has_own(checks):
        faults += waivers.about_metrics(known_waivers, path, found.system, found.metrics)
    try:
        before = inventory.read(found.system)
    except Fault as err:
        return [*faults, *str(err).splitlines()]
    if before and not accept:
        faults += _differences(found, before, tables, checks)
        messages.append(f"{found.system}: {_counts(before)}")
        messages += _weak(found.system, before, tables, list_weak)
    elif faults:
        messages.append(
            with_code(
                f"{inventory.path_of(found.system)}: not written, as there are faults: correct "
                f"them, then {inventory.accepting(found.system, checks)}",
                "system.inventory-not-written",
            )
        )
    else:
        now = inventory.from_plan(found.cases, tables, before, checks)
        messages.append(f"{inventory.write(found.system, now)}: {_counts(now)}")
        if unknown := [case.case for case in found.cases if not case.known]:
            messages.append(
                f"{pluralize(len(unknown), 'test case')} skipped here; the bounds of their figures "
                f"are {'kept' if before else 'unknown'}: {shorten(unknown)}"
            )
        messages += _weak(found.system, now, tables, list_weak)
    return faults


def unloaded(found: plan.Preview, tables: Tables) -> list[str]:
    """Return messages about rows of a baseline that assert nothing, as their check is not loaded.

    Of plain checks, these are rows of the system that was looked at.
    """
    loaded = {PLAIN + base_name(case.case.partition(" @")[0]) for case in found.cases}
    here = {case.case.rpartition("@")[2].partition(":")[0] for case in found.cases}
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in tables.rows.values():
        is_lost = row.plain and row.system in here and row.benchmark not in loaded
        if is_lost or row.id in found.unloaded:
            file = tables.where[row.id].rpartition(":")[0]
            rows[file, row.benchmark.removeprefix(PLAIN)].append(row.id)
    return [
        with_code(
            f"{file}: no loaded check has {check}, so {pluralize(len(ids), 'reference')} of it "
            f"assert nothing: add its folder with -c, or move it to {paths.site() / 'checks'}: "
            f"{shorten(ids)}",
            "reference.not-loaded",
        )
        for (file, check), ids in rows.items()
    ]


def _no_case(system: str) -> str:
    """Return the fault of a system that only the site's own configuration has, without a case."""
    before = inventory.read(system)
    folders = before.folders if before else []
    return with_code(
        f"{system}: no loaded check has a test case there: load your own checks with "
        f"{inventory.loading(folders)}; Plumbline's own checks need a system file "
        f"(docs/onboarding.md)",
        "session.nothing-selected",
    )


def _differences(
    found: plan.Preview,
    before: inventory.Inventory,
    tables: lookup.References,
    checks: Sequence[str],
) -> list[str]:
    """Return how the system's test cases differ from its inventory, a line each."""
    name, names = found.system, dict.fromkeys(case.case for case in found.cases)
    missing = [case for case in before.all_cases if case not in names]
    path, command = inventory.path_of(name), inventory.accepting(name, checks)
    lost, new = inventory.compare(before, inventory.bounded_figures(found.cases, tables), tables)
    changed = inventory.changed_references(before, tables) + lost
    return [
        *inventory.gone(missing, name, before, found.checks, checks),
        *(f"{case}: not in {path}: {command}" for case in names if case not in before.all_cases),
        *(f"{line}; {inventory.restoring(name, checks)}" for line in changed),
        *(f"{line}; {command}" for line in new),
    ]


def _weak(
    system: str, expected: inventory.Inventory, tables: lookup.References, listed: bool
) -> list[str]:
    """Return messages about the weak assertions of a system.

    They are not faults, since no other bounds may be justified.
    """
    checks = weak_assertions.by_check(expected, tables)
    found, wide = weak_assertions.pairs(tables, checks), weak_assertions.wide(tables, checks)
    lines = [f"weak: {weak_assertions.text(pair)}" for pair in found]
    lines += [f"weak: {name}: a loss of {loss:.0%} passes" for name, loss in wide.items()]
    hint = "" if listed else ": --weak lists them"
    weak_names = {name for pair in found for name in pair.weak}
    counts = {
        "would also pass the value of a neighbouring case": weak_names,
        f"would pass with a loss of more than {tables.tables.rules.wide.loss:.0%}": wide,
    }
    return [
        *(lines if listed else []),
        *(
            f"{pluralize(len(names), 'reference')} of {system} {would}{hint}"
            for would, names in counts.items()
            if names
        ),
    ]


def _counts(found: inventory.Inventory) -> str:
    figures = {pair for case in found.all_cases for pair in found.bounded(case)}
    full = f" and {len(found.full)} at published scale" if found.full else ""
    return (
        f"{pluralize(len(found.cases), 'test case')}{full}, "
        f"{pluralize(len(found.references), 'reference')} bound {pluralize(len(figures), 'figure')}"
    )
