"""The test cases of a system, by ReFrame's dry run."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from plumbline.check import needs
from plumbline.core import paths, process
from plumbline.core.errors import Fault
from plumbline.site import configuration
from plumbline.site.inventory import PlannedCase
from plumbline.software import build

#: Environment of a dry run of all cases, also those at published scale.
FULL = {configuration.PLAN_ALL: "1"}

_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n((?: .*\n)+)(\S.*)$", re.M)
_WARNING = re.compile(r"^WARNING: (.*(?:\n(?!\[|- |WARNING).+)*)", re.M)


def reframe(arguments: list[str], system: str | None = None, **env: str) -> str:
    """Run ReFrame with Plumbline's configuration, and return its output.

    :raises Fault: if the system does not exist, or ReFrame fails or skips a check that it cannot
        load; the message is then ReFrame's.
    """
    if system:
        configuration.check_system(system)
    files = ":".join([str(paths.SETTINGS), *configuration.config_files()])
    settings = {"RFM_CONFIG_FILES": files, "RFM_COLORIZE": "0", **env}
    system_option = [f"--system={system}"] if system else []
    done = subprocess.run(
        [process.command("reframe"), *system_option, *arguments],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    marks = ("skipping test", "check path")
    skipped = [" ".join(w.split()) for w in _WARNING.findall(output) if w.startswith(marks)]
    if skipped:
        # ReFrame warns once for each variant of a check.
        raise Fault("\n".join(dict.fromkeys(skipped)), code="check.not-loaded")
    if done.returncode:
        raise _refusal(output)
    return output


def _refusal(output: str) -> Fault:
    """Return the fault for ReFrame's error message, or for the last line of its traceback."""
    raised = _TRACEBACK.findall(output)
    if raised:
        places, error = raised[-1]
        if ", in setvars\n" in places:
            message = f"-S: a value that its variable cannot have: {error.partition(': ')[2]}"
            return Fault(message, code="input.wrong-option")
        path, line = re.findall(r'^  File "(.+)", line (\d+)', places, re.M)[-1]
        return Fault(f"{path}:{line}: {error}", code="check.not-loaded")
    marks = ("plumbline:", "ERROR", "reframe: error:")
    lines = [line for line in output.splitlines() if any(mark in line for mark in marks)]
    text = "\n".join(lines or output.strip().splitlines()[-2:])
    text = text.replace("plumbline: ", "").replace("ERROR: ", "")
    # A message of Plumbline's own settings or session ends with its code.
    coded = re.fullmatch(r"(.*) \[([a-z]+\.[a-z-]+)\]", text, re.S)
    if coded:
        return Fault(coded[1], code=coded[2])
    return Fault(text, code="session.refused-by-reframe")


@dataclass(frozen=True)
class Preview:
    """What ReFrame would run on a system.

    :ivar misfits: checks of the site that it has no test case of: a message each.
    :ivar programs: those of the loaded checks -> the features of an environment that has it.
    :ivar features: those of environments that loaded checks need.
    :ivar undeclared: reference rows of figures that no loaded check has: a message each.
    :ivar unloaded: ids of the rows of a baseline whose benchmark no loaded check has.
    """

    cases: list[PlannedCase]
    misfits: list[str]
    programs: dict[str, list[str]]
    features: list[str]
    undeclared: list[str]
    unloaded: list[str]


def plan_cases(
    system: str | None, checks: list[str], arguments: list[str], **env: str
) -> list[PlannedCase]:
    """Return the test cases of a system, see :func:`preview`."""
    return preview(system, checks, arguments, **env).cases


@functools.cache
def programs() -> dict[str, list[str]]:
    """Return the programs of the shipped checks -> the features of an environment that has it."""
    here = f"--system={build.HERE}"
    shipped = str(paths.ROOT / "checks")
    return preview(None, [shipped], [here], PLUMBLINE_SITE=str(paths.ROOT), **FULL).programs


def preview(system: str | None, checks: list[str], arguments: list[str], **env: str) -> Preview:
    """Return the test cases of a system, by ReFrame's dry run.

    :arg env: additional variables of its environment.
    :raises Fault: if a check file cannot be loaded or the system is unknown.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        settings = {
            configuration.PLAN_FILE: str(path),
            "PLUMBLINE_RESULTS": folder,
            "PLUMBLINE_STRICT": "0",
        }
        reframe([*check_options(checks), "--dry-run", *arguments], system, **settings, **env)
        found = json.loads(path.read_text())
    cases = [PlannedCase(**fields) for fields in found.pop("cases")]
    misfits = [str(needs.Misfit(*fields)) for fields in found.pop("misfits")]
    return Preview(cases, misfits, **found)


def check_options(checks: list[str]) -> list[str]:
    """Return ReFrame's options for files or folders of checks."""
    return [option for check in checks for option in ("-c", check)]
