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

from plumbline.core import paths, process
from plumbline.core.errors import Fault
from plumbline.site import configuration, host
from plumbline.site.inventory import PlannedCase
from plumbline.software import build

_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n((?: .*\n)+)(\S.*)$", re.M)


def reframe(arguments: list[str], system: str | None = None, **env: str) -> str:
    """Run ReFrame with Plumbline's configuration, and return its output.

    :raises Fault: if the system does not exist, or ReFrame fails or cannot load a check; the
        message is then ReFrame's.
    """
    configuration.check_system(system)
    files = ":".join([str(paths.SETTINGS), *configuration.config_files()])
    settings = {"RFM_CONFIG_FILES": files, "RFM_COLORIZE": "0", configuration.COMPLETE: "1", **env}
    system_option = [f"--system={system}"] if system else []
    done = subprocess.run(
        [process.command("reframe"), *system_option, *arguments],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    if done.returncode:
        raise _refusal(output)
    return output


def _refusal(output: str) -> Fault:
    """Return the fault for ReFrame's error message, or for the last line of its traceback."""
    raised = _TRACEBACK.findall(output)
    if raised:
        places, error = raised[-1]
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


def current_system(system: str | None) -> str:
    """Return the system that a session would measure: with a configuration of the site's own, the
    one that ReFrame chooses.

    :arg system: of the command line.
    :raises Fault: if none is named and it is uncertain which system this host is.
    """
    if system or os.environ.get("RFM_SYSTEM") or not configuration.config_files():
        return host.current_system(system)
    found = json.loads(reframe(["--show-config=systems/0/name"]).splitlines()[-1])
    if found in (known := host.patterns()):
        host.check(found, known)
    return found


@dataclass(frozen=True)
class Preview:
    """What ReFrame would run on a system.

    :ivar detected: whether this machine is a partition of the system.
    :ivar checks: names of the loaded ones.
    :ivar misfits: checks of the site that it has no test case of: a message each.
    :ivar programs: those of the loaded checks -> the features of an environment that has it.
    :ivar features: those of environments that loaded checks need.
    :ivar metrics: all that are registered, or that a figure of a test case has.
    :ivar undeclared: reference rows of figures that no loaded check has: a message each.
    :ivar unloaded: ids of the rows of a baseline whose benchmark no loaded check has.
    """

    system: str
    detected: bool
    cases: list[PlannedCase]
    checks: list[str]
    misfits: list[str]
    programs: dict[str, list[str]]
    features: list[str]
    metrics: list[str]
    undeclared: list[str]
    unloaded: list[str]


@functools.cache
def programs() -> dict[str, list[str]]:
    """Return the programs of the shipped checks -> the features of an environment that has it."""
    shipped = str(paths.ROOT / "checks")
    return preview(build.HERE, [shipped], [], PLUMBLINE_SITE=str(paths.ROOT)).programs


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
    return Preview(cases=cases, **found)


def check_options(checks: list[str]) -> list[str]:
    """Return ReFrame's options for files or folders of checks."""
    return [option for check in checks for option in ("-c", check)]
