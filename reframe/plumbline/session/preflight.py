"""The checks before the first job of a session, which refuse it with the fix.

A refused session leaves nothing: see :meth:`plumbline.session.session.Session.withdraw`.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import reframe.core.runtime as rt

from plumbline.check import states
from plumbline.core import files, paths
from plumbline.core.errors import Fault, WrongOption
from plumbline.core.text import pluralize
from plumbline.reference import lookup, waivers
from plumbline.session.loading import Loading
from plumbline.site import configuration, host, host_load, hostlock, system


def check_strict() -> None:
    """Check the variable for strict rules, which would otherwise not apply without a message.

    :raises WrongOption: if it is neither 0 nor 1.
    """
    given = os.environ.get("PLUMBLINE_STRICT") or "0"
    if given not in ("0", "1"):
        raise WrongOption(f"PLUMBLINE_STRICT={given}: set it to 1 for strict rules, or to 0")


def check_references(site: dict) -> None:
    """Check that every row of the tables can match a case; otherwise it would assert nothing.

    :arg site: ReFrame's configuration.
    :raises Fault: with a line a row.
    """
    tables = lookup.loaded(paths.reference()).tables
    waivers.loaded(paths.reference())
    states.patterns(paths.reference())
    systems = {
        found["name"]: {
            "systems": [found],
            "environments": [
                environment
                for environment in site["environments"]
                if found["name"] in environment["target_systems"]
            ],
        }
        for found in site["systems"]
    }
    faults = list(system.faults_of_rows(tables.rows.values(), tables, systems))
    if faults:
        raise Fault("\n".join(faults), code="reference.wrong-table")


def extras(argv: list[str]) -> dict[str, str]:
    """Return the values of ``--session-extras``, as ReFrame reads them.

    :raises Fault: if a part has no ``=``, with which ReFrame would fail after measuring; or if it
        has characters that records cannot have.
    """
    pairs = {}
    for index, argument in enumerate(argv):
        option, equals, value = argument.partition("=")
        # ReFrame also takes what is short for it; less than this may be --setvar.
        if len(option) >= len("--ses") and "--session-extras".startswith(option):
            value = value if equals else "".join(argv[index + 1 : index + 2])
            for part in value.split(","):
                if "=" not in part:
                    raise WrongOption(f"--session-extras {value}: {part!r} is not KEY=VALUE")
                # A byte that is not UTF-8 is half of a surrogate pair here.
                if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in part):
                    raise WrongOption(
                        f"--session-extras: {part!r}: control characters and bytes that are not "
                        f"UTF-8 cannot be stored: use printable text in UTF-8"
                    )
                name, _, text = part.partition("=")
                pairs[name] = text
    return pairs


def refuse_dry_run(arguments: Iterable[str]) -> None:
    """Refuse ReFrame's option where sessions have to measure.

    :raises Fault: if it is among the arguments.
    """
    if "--dry-run" in arguments:
        raise Fault(
            "--dry-run: it measures nothing: use `plumbline run --dry-run`",
            code="session.refused-option",
        )


def refuse_not_loaded(found: Loading) -> None:
    """Refuse a session without the checks that could not be loaded.

    :raises Fault: if there are any, with a line each.
    """
    if found.not_loaded:
        lines = [*found.unmatched, *found.not_loaded]
        raise Fault("\n".join(lines), code="check.not-loaded")


#: Checks without a test case that a message lists.
_MOST = 5


def check_selection(testcases, announced: bool, found: Loading) -> None:
    """Check that there are cases, and that the command line was understood.

    :arg announced: whether the command line has an option that runs cases.
    :arg found: what is loaded for it.
    :raises Fault: if not.
    """
    if not announced:
        raise WrongOption("an abbreviated option is ambiguous: write --run or --dry-run in full")
    if testcases:
        return
    refuse_not_loaded(found)
    lines = [*found.unmatched, *map(str, found.misfits[:_MOST])]
    if more := len(found.misfits[_MOST:]):
        lines.append(f"and {pluralize(more, 'more check')} without a test case")
    lines.append(
        "no test case is selected: check the names, tags, system and environments of the command "
        "line (`plumbline doctor` lists the test cases)"
    )
    raise Fault("\n".join(lines), code="session.nothing-selected")


def check_host(named: bool) -> str:
    """Check that it is certain which system this host is. On a node of a sweep it is.

    :arg named: whether the command line names the system.
    :returns: a note about a system that the host's name does not confirm; empty if there is none.
    :raises Fault: with the choices.
    """
    if configuration.ON_NODE in os.environ:
        return ""
    system, hostnames = rt.runtime().system.name, host.patterns()
    if named:
        return host.unconfirmed(system, hostnames) if system in hostnames else ""
    # ReFrame chose another one by the site's own configuration.
    if system in hostnames:
        host.check(system, hostnames)
    return ""


def claim_machine(testcases, name: str) -> files.OwnedLock | None:
    """Lock this machine, so that sessions do not disturb each other, whichever checkout, user or
    results folder they are of. On a node of a sweep, its job has the node for itself.

    :arg name: the session's, for the message of another one.
    :returns: the lock, or ``None`` if nothing is measured on this machine.
    :raises Fault: if another session has it.
    """
    if configuration.ON_NODE in os.environ:
        return None
    if not any(host_load.is_local(check, partition) for check, partition, _ in testcases):
        return None
    try:
        return hostlock.claim(f"{name} (process {os.getpid()}, results {paths.results()})")
    except files.Held as held:
        raise Fault(
            f"session {held or 'of another user'} is measuring on this machine, and two at once "
            f"would disturb each other: wait until it ends (its lock file: {hostlock.path()})",
            code="session.already-running",
        ) from None


def writable(path: Path) -> contextlib.AbstractContextManager[None]:
    """Convert the errors of writing to a file or folder of the results.

    :raises Fault: if it cannot be written.
    """
    return files.writing(path, "cannot be written ({}): free some space, or set PLUMBLINE_RESULTS "
                               "to a writable folder")  # fmt: skip
