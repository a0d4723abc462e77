"""What a session is refused for before its first job, each with what mends it.

A session that is refused leaves nothing: see :meth:`plumbline.session.session.Session.withdraw`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import reframe.core.runtime as rt

from plumbline.check import states
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.reference import lookup, waivers
from plumbline.reference.tables import SITE
from plumbline.site import configuration, host, system
from plumbline.site.hostlock import NAME, Held, HostLock


def hold_references(site: dict) -> None:
    """Refuses tables with rows that no case could ever meet: they would assert less than it seems.

    A facility that keeps its systems elsewhere need not have those of the papers.

    :arg site: ReFrame's configuration.
    :raises Fault: with a line a row.
    """
    tables = lookup.loaded(paths.reference()).tables
    waivers.loaded(paths.reference())
    states.patterns(paths.reference())
    elsewhere = "PLUMBLINE_SYSTEMS" in os.environ
    rows = [row for row in tables.rows.values() if row.source == SITE or not elsewhere]
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
    faults = list(system.faults_of_rows(rows, tables, systems))
    if faults:
        raise Fault("\n".join(faults), code="reference.wrong-table")


def extras(argv: list[str]) -> dict[str, str]:
    """What ``--session-extras`` says, as ReFrame reads it.

    :raises Fault: if a part has no ``=``: ReFrame would measure, and break when it stores that; or
        it holds what no reader of the records takes.
    """
    pairs = {}
    for index, argument in enumerate(argv):
        option, equals, value = argument.partition("=")
        if option == "--session-extras":
            value = value if equals else "".join(argv[index + 1 : index + 2])
            for part in value.split(","):
                if "=" not in part:
                    raise Fault(
                        f"--session-extras {value}: {part!r} is no KEY=VALUE",
                        code="input.wrong-option",
                    )
                # A byte that is no UTF-8 is half of a surrogate pair here.
                if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in part):
                    raise Fault(
                        f"--session-extras: {part!r}: bytes that are no UTF-8, and control "
                        f"characters, cannot be stored: write it in UTF-8, or without them",
                        code="input.wrong-option",
                    )
                name, _, text = part.partition("=")
                pairs[name] = text
    return pairs


def hold_selection(testcases, announced: bool) -> None:
    """Refuses a session of no cases, and one whose command line was not understood.

    :arg announced: whether the command line said that cases would be run.
    :raises Fault: in either case.
    """
    if not announced:
        raise Fault(
            "an abbreviated option was not understood: write --run or --dry-run in full",
            code="input.wrong-option",
        )
    if not testcases:
        raise Fault(
            "no test case is selected: check the names, tags, system and environments that "
            "were asked for (`plumbline doctor` lists what there is)",
            code="session.nothing-selected",
        )


def hold_host(named: bool) -> str:
    """Refuses to measure where nobody named the system and this host does not say which it is. On
    a node of a sweep, the sweep knows.

    :arg named: whether the system was named.
    :returns: what to report of one that was; empty if nothing.
    :raises Fault: with the choices.
    """
    if configuration.ON_NODE in os.environ:
        return ""
    system, hostnames = rt.runtime().system.name, host.patterns()
    if named:
        return host.unconfirmed(system, hostnames)
    host.hold(system, hostnames)
    return ""


def claim_machine(testcases, name: str) -> HostLock | None:
    """Two sessions that measure on one machine would measure each other, whichever checkout, user
    or results folder they are of. On a node of a sweep its job has the node for itself.

    :arg name: the session's, which another one that starts is told.
    :returns: the lock, or ``None`` where nothing is measured on this machine.
    :raises Fault: if another session has it; it is named.
    """
    if configuration.ON_NODE in os.environ:
        return None
    if not any(testcase.partition.scheduler.is_local for testcase in testcases):
        return None
    try:
        return HostLock(f"{name} (process {os.getpid()}, results {paths.results()})")
    except Held as held:
        raise Fault(
            f"session {held or 'of another user'} measures on this machine; two at once would "
            f"measure each other: wait until it has ended ({paths.locks() / NAME})",
            code="session.already-running",
        ) from None


@contextlib.contextmanager
def of_file_system(folder: Path) -> Iterator[None]:
    """Refuses what is begun within, where the folder's file system does not allow it.

    :raises Fault: if the folder cannot be written, or files in it cannot be locked.
    """
    try:
        yield
    except OSError as err:
        raise Fault(unwritable(folder, err), code="files.not-writable") from None
    except threading.ThreadError as err:
        # What fasteners makes of a file system without locks.
        raise Fault(
            f"{folder}: cannot be locked ({err}): set PLUMBLINE_RESULTS to a folder on a file "
            f"system with locks",
            code="files.no-locks",
        ) from None


def unwritable(folder: Path, err: OSError) -> str:
    """What is told of a file or folder of the results that cannot be written."""
    return (
        f"{folder}: cannot be written ({err.strerror}): free the disk, or set PLUMBLINE_RESULTS "
        f"to a folder that can be"
    )
