"""``plumbline run``: ReFrame with the rules of a session that ReFrame itself cannot enforce."""

from __future__ import annotations

import os
import sys

from plumbline import inventory, paths, reference, session, survey
from plumbline.errors import Fault

#: ReFrame's options that a session cannot have, and why.
REFUSED = {
    "--performance-report": "with -r it stores node lists that cannot be read back; give it to "
    "reframe afterwards",
    "--skip-sanity-check": "a session without it trusts any output",
    "--skip-performance-check": "a session without it asserts nothing",
}


def run(system: str | None, arguments: list[str], strict: bool) -> int:
    """Runs the checks and gives the session's exit code.

    :arg arguments: ReFrame's own, without ``-r``; ``-c`` only for other checks than ours.
    :raises Fault: if a check cannot be loaded, or the configuration is faulty.
    """
    if "--performance-report" in arguments:
        raise Fault("--performance-report with -r stores node lists that cannot be read back: "
                    "run first, then `reframe --performance-report`")  # fmt: skip
    if "--skip-sanity-check" in arguments or "--skip-performance-check" in arguments:
        raise Fault(
            "a session without sanity and performance checks asserts nothing: leave them on"
        )
    reference.loaded(paths.reference())
    checks = _checks_in(arguments) or [str(paths.CHECKS)]
    there = survey.listed(system, checks)
    os.environ["RFM_CONFIG_FILES"] = str(paths.SETTINGS)
    os.environ["PLUMBLINE_STRICT"] = "1" if strict else os.environ.get("PLUMBLINE_STRICT", "0")
    named = [f"--system={system}"] if system else []
    given = [] if _checks_in(arguments) else ["-c", str(paths.CHECKS)]
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
    faults = _against_inventory(ended, there, strict, given != [])
    ended.supervised = True
    ended.notes += faults
    own = ended.close()
    if own == 1 or faults:
        return 1
    return own or (2 if code else 0)


def _checks_in(arguments: list[str]) -> list[str]:
    """The check paths that the arguments name."""
    found = []
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in ("-c", "--checkpath"):
            found.append(value if equals else "".join(arguments[index + 1 : index + 2]))
        elif argument.startswith("-c"):
            found.append(argument[2:])
    return found


def _against_inventory(
    ended: session.Session, there: set[str], strict: bool, own_checks: bool
) -> list[str]:
    """What the inventory has and the system no longer has, or no longer asserts, a line each."""
    if not own_checks:
        return []
    system = next(iter(ended.planned.values()))["system"]
    expected = inventory.read(system)
    path = inventory.path_of(system)
    if expected is None:
        ended.notes.append(f"{path} is not there: `plumbline lint` writes it, and the next session "
                           f"is held against it")  # fmt: skip
        return []
    vanished = sorted(set(expected) - there)
    faults = [
        f"vanished: {case} is in {path} and is no longer there; mend the check or its system, or "
        f"`plumbline lint --accept`"
        for case in vanished
    ]
    if strict:
        for fields in ended.records:
            name = session.case_name(fields["check"], fields)
            asserted = sum(fom["verdict"] != "not-asserted" for fom in fields["foms"])
            if fields["foms"] and asserted < expected.get(name, 0):
                faults.append(
                    f"strict: {name}: {asserted} figures asserted, {path} expects {expected[name]}"
                )
    return faults
