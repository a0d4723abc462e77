"""``plumbline run``: ReFrame with the session rules that ReFrame itself cannot enforce."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import reframe.core.runtime as rt

from plumbline.check import duet, states
from plumbline.core import paths
from plumbline.core.errors import Fault, WrongFile, WrongOption, origin
from plumbline.core.text import did_you_mean, pluralize, shorten
from plumbline.reference import lookup, waivers
from plumbline.session import inventory_check, plan, recovery, session, start
from plumbline.session.loading import selects
from plumbline.site import configuration, host, inventory, reframe_patches
from plumbline.software import build, environments, providers

#: ReFrame's options that a session does not accept, and why.
REFUSED = {
    "--performance-report": "with -r it stores node lists that cannot be read back; give it to "
    "reframe afterwards",
    "--skip-sanity-check": "a session without it trusts any output",
    "--skip-performance-check": "a session without it asserts nothing",
    **dict.fromkeys(
        (
            *("-l", "-L", "--list", "--list-detailed", "--list-tags", "--describe", "-V"),
            *("--version", "--ci-generate", "--detect-host-topology", "--show-config"),
            *("--list-stored-sessions", "--list-stored-testcases", "--describe-stored-sessions"),
            *("--describe-stored-testcases", "--delete-stored-sessions", "--performance-compare"),
        ),
        "it runs nothing: use reframe itself (docs/using.md), or `plumbline doctor` for a list",
    ),
}


#: The options of ``plumbline run`` itself.
OPTIONS = {"--strict", "--budget", "--orphans", "--system"}


def run(
    system: str | None,
    arguments: list[str],
    strict: bool,
    budget: float = 0,
    orphans: str = "cancel",
) -> int:
    """Run the checks, or show their job scripts, and return the session's exit code.

    :arg arguments: ReFrame's own, without ``-r``; ``-c`` only for other checks than ours.
        ``--dry-run`` only shows the scripts.
    :arg budget: seconds that the session may take; no limit if 0.
    :arg orphans: what to do with the jobs of a killed session: ``cancel`` or ``keep``.
    :raises Fault: if a check cannot be loaded, the system or mode does not exist, it is uncertain
        which system this host is, or the configuration is faulty.
    """
    _refuse_options(arguments)
    arguments = _restoring(_tagged(configuration.take_config_files(arguments)))
    dry_run = "--dry-run" in arguments
    elsewhere = dry_run or configuration.config_files()
    if not elsewhere and host.current_system(system) == host.LOCAL and _selects("pip", arguments):
        providers.prepare()
    lookup.loaded(paths.reference())
    waivers.loaded(paths.reference())
    states.patterns(paths.reference())
    named_checks = configuration.option_values(arguments, "-c", "--checkpath")
    configuration.check_system(system)
    start.complete = True
    exempt = _exempt(named_checks)
    start.compared = not exempt
    os.environ[recovery.ORPHANS] = orphans
    if budget:
        os.environ[session.BUDGET] = str(budget)
    strict = strict or os.environ.get("PLUMBLINE_STRICT") == "1"
    os.environ["PLUMBLINE_STRICT"] = "1" if strict else "0"
    system_option = [f"--system={system}"] if system else []
    given = [] if named_checks else plan.check_options(paths.checks())
    run_option = [] if dry_run else ["-r"]
    sys.argv = ["reframe", *given, *system_option, *run_option, *arguments]
    reframe_patches.refuse_options(_refuse_option)
    from reframe.frontend.cli import main

    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 2
    except Exception as error:
        if start.current and start.current.planned:
            raise
        # ReFrame executes the site's configuration files, and lets their errors through.
        files = map(Path, configuration.config_files())
        start.refuse(WrongFile(origin(error, files)))
    ended = start.current
    if ended is None or not ended.planned:
        return 2
    ended.supervised = True
    if dry_run:
        return ended.close()
    ended.faults += _against_inventory(ended, system, arguments, strict, exempt)
    ended.notes += _unbuilt(ended)
    return ended.close(code)


def _refuse_options(arguments: list[str]) -> None:
    """Refuse the options that a session does not accept, also with a value or abbreviated. What may
    be short for others as well, ReFrame refuses itself.

    :raises Fault: if there is one.
    """
    for word in arguments:
        given = word.partition("=")[0]
        for option, why in REFUSED.items():
            if given == option or (len(given) > 2 and option.startswith(given)):
                name = option if given == option else f"{given}, which may be {option}"
                raise Fault(f"{name}: {why}", code="session.refused-option")


def _refuse_option(message: str, known: set[str]) -> NoReturn:
    """Refuse a command line that ReFrame cannot read.

    :arg message: argparse's. :arg known: ReFrame's options.
    """
    words = message.removeprefix("unrecognized arguments: ").split()
    if (option := words[0].partition("=")[0]).startswith("-"):
        message = f"no option {option}: {did_you_mean(option, known | OPTIONS)}".rstrip(": ")
    remedy = "`plumbline run --help` and `reframe --help` list the options"
    start.refuse(WrongOption(f"{message}{' ' if message[-1] == '?' else ': '}{remedy}"))


def _selects(environment: str, arguments: list[str]) -> bool:
    """Return whether ReFrame's option ``-p`` selects an environment."""
    patterns = configuration.option_values(arguments, "-p", "--prgenv")
    return not patterns or any(selects(re.match, pattern, [environment]) for pattern in patterns)


def unnamed(checks: list[str]) -> list[str]:
    """Return the shipped checks and the site's, as files or folders, that ``-c`` does not name. If
    it names nothing, all run."""
    named = {Path(check).resolve() for check in checks}
    return [check for check in paths.checks() if checks and Path(check).resolve() not in named]


def _exempt(checks: list[str]) -> str:
    """Return why a session is not compared with the inventory; empty if it is.

    :arg checks: those of ``-c``.
    """
    if duet.current:
        return "a duet"
    if configuration.ON_NODE in os.environ:
        return "one node of a sweep"
    missing = unnamed(checks)
    return f"only the checks of -c ran, not those of {shorten(missing)}" if missing else ""


def _tagged(arguments: list[str]) -> list[str]:
    """Return a command line with Plumbline's modes replaced by tags, as ReFrame 4.10.4 combines
    ``--mode`` and ``-p`` wrongly. Those of the site's own configuration win, as in ReFrame.

    :raises Fault: if a mode does not exist.
    """
    found, words = [], iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option == "--mode":
            value = value if equals else next(words, "")
            own = configuration.check_mode(value)
            word = f"--mode={value}" if own else f"--tag=^{value}$"
        found.append(word)
    return found


def _restoring(arguments: list[str]) -> list[str]:
    """Return a command line in which ``--restore-session`` has a file: by default the report of the
    newest session. ReFrame would take the file that it is going to write, the new session's own.

    :raises Fault: if there is none.
    """
    found = [*arguments]
    for index, word in enumerate(arguments):
        if word == "--restore-session" and "".join(arguments[index + 1 : index + 2])[:1] in "-":
            # A dry run has a report, too.
            known = sorted(paths.results().glob("sessions/*/plan.json"))
            planned = [each for each in known if configuration.is_session_name(each.parent.name)]
            reports = [p for each in planned if (p := each.with_name("report.json")).exists()]
            if not reports:
                raise Fault(
                    f"{word}: no session in {paths.results()} has a report: give one: "
                    f"{word}=SESSION/report.json",
                    code="history.empty",
                )
            found[index] = f"{word}={reports[-1]}"
    return found


def _unbuilt(ended: session.Session) -> list[str]:
    """Return a line about the Spack environments of the system that are not built: the cases that
    ran in them nevertheless, or what a build on this machine would add."""
    system = rt.runtime().system
    of_spack = {
        environ.name
        for partition in system.partitions
        for environ in partition.environs
        if environ.extras.get("provider") == "spack"
    }
    left = {
        known.toolchain: known.name
        for known in environments.list_environments(system.name)
        if known.toolchain in of_spack and not build.find_built(known)
    }
    ran = [f.environment for f in ended.records if f.environment in left and f.result != "skip"]
    if ran:
        names = " and ".join(left[name] for name in sorted(set(ran)))
        return [
            f"{names}: not built; {pluralize(len(ran), 'test case')} ran there nevertheless, with "
            f"the compilers and libraries that the job found: `plumbline build {system.name}`"
        ]
    if not left or system.name != build.HERE or ended.loading.narrowing:
        return []
    return [
        f"{' and '.join(left.values())}: not built; `plumbline build {build.HERE}` would add OSU "
        f"Micro-Benchmarks, BabelStream, IOR, mdtest, Comm|Scope and GPCNeT"
    ]


def _against_inventory(
    ended: session.Session, named: str | None, arguments: list[str], strict: bool, exempt: str
) -> list[str]:
    """Return what is in the inventory and no longer exists or no longer has bounds, a line each.

    If the command line or a mode sets variables of the checks, other bounds are faults only under
    strict rules.

    :arg named: the system of the command line, with a partition if one is named.
    :arg arguments: the other arguments.
    :arg exempt: why it is not compared; or empty.
    """
    if exempt:
        ended.notes.append(f"{exempt}: not compared with the inventory")
        return _uncompared(None, ended) if strict else []
    system, expected = rt.runtime().system.name, ended.expected
    folders = ended.loading.folders
    path, lint = inventory.path_of(system), inventory.linting(system, folders)
    if expected is None:
        # Nothing is faulty, but under strict rules that nothing vanished must be certain.
        ended.inconclusive |= strict
        ended.notes.append(
            f"{path} does not exist, so it is not known what should run: `{lint}` writes it, and "
            f"the next session is compared with it"
        )
        return []
    full = configuration.asked_for(configuration.FULL_SCALE, arguments)
    known = expected.all_cases if full else expected.cases
    partition = (named or os.environ.get("RFM_SYSTEM", "")).partition(":")[2]
    missing = filter(_loader(system, partition), sorted(known.keys() - ended.loading.cases))
    gone = inventory.gone(missing, system, expected, ended.loading.checks, folders)
    faults = [f"vanished: {line}" for line in gone]
    tables = lookup.loaded(paths.reference())
    edited, lost, new = inventory_check.differences(
        system, expected, ended.records, tables, folders
    )
    faults += edited
    changed = configuration.option_values(arguments, "-S", "--setvar") or ended.loading.changed
    (ended.notes if changed and not strict else faults).extend(lost)
    ended.notes += new
    return faults + (_uncompared(expected, ended) if strict else [])


def _loader(system: str, partition: str) -> Callable[[str], bool]:
    """Return what tells whether ReFrame would load a test case of an inventory: of no other
    partition or environment than those that the session names.

    :arg partition: that it names; empty if it names none.
    """
    patterns = rt.runtime().get_option("general/0/valid_env_names") or [""]

    def loads(case: str) -> bool:
        place, _, environment = case.rpartition(" @")[2].partition("+")
        of, _, on = place.partition(":")
        named = of == system and partition in ("", on)
        return named and any(selects(re.match, pattern, [environment]) for pattern in patterns)

    return loads


def _uncompared(expected: inventory.Inventory | None, ended: session.Session) -> list[str]:
    """Return what strict rules require to be compared, and was not on a busy machine."""
    return [f"strict: {line}" for line in inventory_check.uncompared(expected, ended.records)]
