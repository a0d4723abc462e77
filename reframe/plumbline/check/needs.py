"""What the loaded checks need of a system, and which of them it has no test case of.

ReFrame makes no test case of a check that fits no partition or environment, and does not report it.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import reframe.core.runtime as rt

from plumbline.check import declaration
from plumbline.check.result import of_check
from plumbline.core import paths
from plumbline.core.errors import with_code
from plumbline.core.text import shorten
from plumbline.site import configuration
from plumbline.software import providers


class Misfit(NamedTuple):
    """A check of which a system has no test case.

    :ivar reason: why, and what to do about it.
    :ivar wanted: whether it should have one: a site's own check on Plumbline's mixin that is not
        meant for other systems.
    """

    check: str
    reason: str
    code: str
    wanted: bool

    def __str__(self) -> str:
        return with_code(f"check {self.check}: {self.reason}", self.code)


def alternatives(check) -> list[frozenset[str]]:
    """Return the features that environments of a check need: one set for each choice."""
    return [
        frozenset(word[1:] for word in spec.split() if word.startswith("+"))
        for spec in check.valid_prog_environs
    ]


def features(checks: Iterable) -> set[str]:
    """Return all features of environments that checks need."""
    return {feature for check in checks for choice in alternatives(check) for feature in choice}


def is_named(check: str, names: Iterable[str]) -> bool:
    """Return whether ReFrame's option ``-n`` selects variants of a check.

    :arg names: patterns, as ReFrame takes them: ``imb_p2p%operation=PingPong``.
    """
    try:
        return any(re.match(re.split("[ %@]", name)[0], check) for name in names)
    except re.error:
        return False


def programs(checks: Iterable) -> dict[str, list[str]]:
    """Return the programs of the checks on Plumbline's mixin -> the features of an environment that
    has it: those that all checks of the program need. A check with several choices requires
    features, and gives none."""
    found: dict[str, frozenset[str]] = {}
    for check in checks:
        choices = alternatives(check)
        if of_check(check) and len(choices) == 1 and choices[0]:
            found[check.program] = found.get(check.program, choices[0]) & choices[0]
    return {program: sorted(common) for program, common in found.items() if common}


def detect(checks: Iterable) -> None:
    """Give each environment with ``detect`` the features of the programs that it has.

    Spack installs a program that does not use MPI once for all MPIs. Of its environments only the
    first has it, as the same file would be measured twice. A program that is there once for each
    MPI gives all but the first the feature ``second-PROGRAM``, too: what hardly depends on the MPI
    excludes it.
    """
    system, needed = rt.runtime().system, programs(checks)
    measured: set[Path | None] = set()
    known: set[str] = set()
    for environment in {id(e): e for p in system.partitions for e in p.environs}.values():
        if environment.extras.get("detect"):
            name = f"{system.name}:{environment.name}"
            provider = environment.extras.get("provider", "path")
            files = providers.installed(provider, name, needed)
            for program in (p for p, file in files.items() if file not in measured):
                new = {*needed[program]} | ({f"second-{program}"} if program in known else set())
                environment.features.extend(sorted(new - {*environment.features}))
            measured |= {*files.values()} - {None}
            known |= {*files}


def cases(check) -> list[str]:
    """Return the names of a check's test cases."""
    if check.is_fixture():
        return []
    found = rt.valid_sysenv_comb(check.valid_systems, check.valid_prog_environs)
    return [
        f"{check.display_name} @{part.fullname}+{environ.name}"
        for part, environs in found.items()
        for environ in environs
    ]


def misfits(checks: Iterable) -> tuple[list[Misfit], bool]:
    """Return the checks of which no variant has a test case, and whether any other has one."""
    variants = defaultdict(list)
    for check in checks:
        if not check.is_fixture():
            variants[type(check)].append(check)
    found = [_misfit(same) for same in variants.values() if not any(map(cases, same))]
    return found, len(found) < len(variants)


def _misfit(variants: list) -> Misfit:
    first, name = variants[0], variants[0].display_name.split()[0]
    of_plumbline = of_check(first) is not None
    shipped = paths.ROOT / "checks" in Path(inspect.getfile(type(first))).resolve().parents
    partitions = [part for check in variants for part in _partitions(check)]
    elsewhere = first.elsewhere if of_plumbline else not partitions
    wanted = of_plumbline and not shipped and not elsewhere
    if elsewhere:
        reason = f"it is meant for other systems: {_no_system(first)}"
    elif not partitions:
        reason = _no_partition(variants)
    else:
        return Misfit(name, _no_environment(variants, partitions), "check.no-environment", wanted)
    return Misfit(name, reason, "check.no-partition", wanted)


def _partitions(check) -> list:
    """Return the partitions that a check may run on, whether or not published scale is selected."""
    specs = [spec.replace(f" +{configuration.FULL_SCALE}", "") for spec in check.valid_systems]
    return [*rt.valid_sysenv_comb(specs, ["*"])]


def _no_system(check) -> str:
    """Return why a check's ``valid_systems`` match no partition: a feature that none has, or their
    names."""
    system = rt.runtime().system
    # The mixin has replaced those of the class by partitions, of which there is none.
    named = check.valid_systems or getattr(type(check), "valid_systems", [])
    wanted = {word for spec in named for word in spec.split()}
    known = {f"+{feature}" for part in system.partitions for feature in part.features}
    if lacking := sorted(word[1:] for word in wanted - known if word.startswith("+")):
        features = " or ".join(lacking)
        return f"no partition of {system.name} has the feature {features} of its valid_systems"
    return (
        f"its valid_systems match no partition of {system.name}; if it should run there too, add "
        f"{system.name} to them"
    )


def _no_partition(variants: list) -> str:
    """Return what each partition lacks for a check, and the remedy."""
    system = rt.runtime().system
    wanted = [{*declaration.features(check)} for check in variants]
    lacking = {
        part.name: min((features - {*part.features} for features in wanted), key=len)
        for part in system.partitions
    }
    lines = [f"{name} lacks {' and '.join(sorted(of))}" for name, of in lacking.items() if of]
    known = dict.fromkeys(
        p for part in system.partitions for p in part.extras.get("placements", [])
    )
    return (
        f"no partition of {system.name} can run it ({shorten(lines)}): use another placement in "
        f"the check ({system.name} has {', '.join(known) or 'none'}), or add what is missing to "
        f"`extras.placements` (a variant: to `extras.variants`) of the partition in "
        f"{paths.systems().find(f'{system.name}.yaml')}, or, if the check is meant for other "
        f"systems, list them in its `valid_systems`"
    )


def _no_environment(variants: list, partitions: list) -> str:
    """Return what the environments of a check's partitions lack, and the remedy."""
    system, first = rt.runtime().system.name, variants[0]
    choices = [choice for check in variants for choice in alternatives(check) if choice]
    if not choices:
        named = dict.fromkeys(e for check in variants for e in check.valid_prog_environs)
        return (
            f"{system} has none of the environments in its valid_prog_environs: {', '.join(named)}"
        )
    environments = {e.name: e for part in partitions for e in part.environs}.values()
    known = {feature for environment in environments for feature in environment.features}
    lacking = min((choice - known for choice in choices), key=len)
    features = " and ".join(sorted(lacking or choices[0]))
    remedy = f"add it to an environment's features in systems/{system}.yaml"
    detecting = [e.name for e in environments if e.extras.get("detect")]
    if detecting and of_check(first):
        remedy += f", or install {first.program} where one of {', '.join(detecting)} finds it"
    return f"no environment of {system} has the feature {features}: {remedy}"
