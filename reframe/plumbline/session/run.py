"""``plumbline run``: ReFrame with the rules of a session that ReFrame itself cannot enforce."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from plumbline.check import states
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.reference import lookup, waivers
from plumbline.session import inventory_check, plan, recovery, session
from plumbline.site import configuration, host, inventory
from plumbline.software import build, environments

#: ReFrame's options that a session cannot have, and why.
REFUSED = {
    "--performance-report": "with -r it stores node lists that cannot be read back; give it to "
    "reframe afterwards",
    "--skip-sanity-check": "a session without it trusts any output",
    "--skip-performance-check": "a session without it asserts nothing",
    **dict.fromkeys(
        ("-l", "-L", "--list", "--list-detailed", "--describe", "--dry-run"),
        "nothing is run by it: `plumbline doctor`, or reframe itself after `. ./env.sh`",
    ),
}

#: ReFrame's options that ask for some checks or environments: who did misses no others.
_NARROWING = (("-n", "--name"), ("-t", "--tag"), ("-p", "--prgenv"), ("-E", "--filter-expr"))


def run(
    system: str | None,
    arguments: list[str],
    strict: bool,
    budget: float = 0,
    orphans: str = "cancel",
) -> int:
    """Runs the checks and gives the session's exit code.

    :arg arguments: ReFrame's own, without ``-r``; ``-c`` only for other checks than ours.
    :arg budget: seconds that the session may take; no limit if 0.
    :arg orphans: what becomes of jobs that a killed session left: ``cancel`` or ``keep``.
    :raises Fault: if a check cannot be loaded, there is no such system or mode, it is not certain
        which system this host is, or the configuration is faulty.
    """
    for option, why in REFUSED.items():
        if option in arguments:
            raise Fault(f"{option}: {why}", code="session.refused-option")
    arguments = _tagged(arguments)
    host.here(system)
    lookup.loaded(paths.reference())
    waivers.loaded(paths.reference())
    states.patterns(paths.reference())
    named_checks = _values(arguments, "-c", "--checkpath")
    own = not named_checks or any(Path(c).resolve() == paths.CHECKS for c in named_checks)
    variables = _values(arguments, "-S", "--setvar")
    everything = plan.FULL if own else ()
    there = plan.listed(system, named_checks or [str(paths.CHECKS)], variables, everything)
    os.environ["RFM_CONFIG_FILES"] = str(paths.SETTINGS)
    os.environ[recovery.ORPHANS] = orphans
    if budget:
        os.environ[session.BUDGET] = str(budget)
    os.environ["PLUMBLINE_STRICT"] = "1" if strict else os.environ.get("PLUMBLINE_STRICT", "0")
    named = [f"--system={system}"] if system else []
    given = [] if named_checks else ["-c", str(paths.CHECKS)]
    sys.argv = ["reframe", *given, *named, "-r", *arguments]
    from reframe.frontend.cli import main

    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 2
    ended = session.current
    if ended is None or not ended.planned:
        return 2
    if configuration.ON_NODE in os.environ:
        ended.notes.append("one node of a sweep: the sweep says what should run on it")
        faults = []
    elif own:
        faults = _against_inventory(ended, there, strict, bool(variables))
    else:
        ended.notes.append("other checks than checks/: not compared with the inventory")
        faults = []
    ended.supervised = True
    if not any(_values(arguments, *option) for option in _NARROWING):
        ended.notes += _unbuilt(there)
    ended.faults = faults
    return ended.close() or (2 if code else 0)


def _tagged(arguments: list[str]) -> list[str]:
    """A command line with tags in the place of modes, which are no more than these here: beside
    ``--mode``, ReFrame 4.10.4 takes ``-p`` for one pattern more than all of them.

    :raises Fault: if there is no such mode.
    """
    found, words = [], iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option == "--mode":
            value = value if equals else next(words, "")
            configuration.check_mode(value)
            word = f"--tag=^{value}$"
        found.append(word)
    return found


def _values(arguments: list[str], short: str, long: str) -> list[str]:
    """The values that a command line gives to an option."""
    found = []
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == long and equals:
            found.append(value)
        elif argument in (short, long):
            found += arguments[index + 1 : index + 2]
        elif argument.startswith(short) and not argument.startswith("--"):
            found.append(argument[len(short) :])
    return found


def _unbuilt(there: set[str]) -> list[str]:
    """What Spack would add on the machine at hand, whose unbuilt environments have no cases that
    could be skipped; in one line."""
    if not any(f"@{build.HERE}:" in case for case in there):
        return []
    names = [e.name for e in environments.every(build.HERE) if not build.built(e)]
    if not names:
        return []
    return [
        f"{' and '.join(names)}: not built; `make build` would add OSU Micro-Benchmarks, "
        f"BabelStream, IOR, mdtest, Comm|Scope and GPCNeT"
    ]


def _against_inventory(
    ended: session.Session, there: set[str], strict: bool, changed: bool
) -> list[str]:
    """What the inventory has and the system no longer has, or no longer bounds, a line each.

    :arg changed: whether the command line sets variables of the checks: what is then bounded
        otherwise is what was asked for, and no fault but under strict rules.
    """
    system = next(iter(ended.planned.values()))["system"]
    expected = inventory.read(system)
    path, lint = inventory.path_of(system), f"plumbline lint --system {system}"
    if expected is None and strict:
        return [f"strict: {path} is not there, so what should run is not known: `{lint}`"]
    if expected is None:
        ended.notes.append(
            f"{path} is not there: `{lint}` writes it, and the next session is compared with it"
        )
        return []
    faults = [
        f"vanished: {case} is in {path} and is no longer there; fix the check or its system, or "
        f"`{lint} --accept`"
        for case in sorted(expected.every.keys() - there)
    ]
    tables = lookup.loaded(paths.reference())
    edited, lost, new = inventory_check.differences(system, expected, ended.records, tables)
    faults += edited
    (ended.notes if changed and not strict else faults).extend(lost)
    ended.notes += new
    if strict:
        faults += [
            f"strict: {line}" for line in inventory_check.uncompared(expected, ended.records)
        ]
    if expected.counts:
        ended.notes.append(f"{path} {inventory.EARLIER}: `{lint} --accept` renews it")
        if strict:
            faults += [f"strict: {line}" for line in inventory_check.fewer(expected, ended.records)]
    return faults
