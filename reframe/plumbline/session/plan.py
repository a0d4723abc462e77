"""The test cases of a system, by ReFrame's dry run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.site import configuration
from plumbline.site.inventory import PlannedCase

#: Makes ReFrame select all cases, also those at published scale.
FULL = ("--tag=.*",)

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
        [str(Path(sys.executable).with_name("reframe")), *system_option, *arguments],
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


def plan_cases(
    system: str | None, checks: list[str], arguments: list[str], **env: str
) -> list[PlannedCase]:
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
        reframe([*_check_options(checks), "--dry-run", *arguments], system, **settings, **env)
        return [PlannedCase(**fields) for fields in json.loads(path.read_text())]


def _check_options(checks: list[str]) -> list[str]:
    return [option for check in checks for option in ("-c", check)]
