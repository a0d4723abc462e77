"""The test cases of a system, by ReFrame's listing and dry run."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from plumbline.core import paths, process
from plumbline.core.errors import Fault
from plumbline.core.text import suggest
from plumbline.session import session
from plumbline.site import configuration
from plumbline.site.inventory import PlannedCase

#: Makes ReFrame select all cases, also those at published scale.
FULL = ("--tag=.*",)

_CASE = re.compile(r"^- (?P<check>\S.*?) /[0-9a-f]+ @(?P<where>\S+)$", re.M)
_FIXTURE = re.compile(r"^ +\^(\S+)", re.M)
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n((?: .*\n)+)(\S.*)$", re.M)
_UNSET = re.compile(r"test '([^']+)': the following variables were not set: (.*)")
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


def list_cases(
    system: str | None, checks: list[str], variables: list[str], selection: Sequence[str] = ()
) -> set[str]:
    """Return the names of all test cases of a system, by ReFrame's listing.

    :arg variables: values of ReFrame's ``-S``: ``[CHECK.]NAME=VALUE``.
    :arg selection: ReFrame's options that select cases, such as :data:`FULL`.
    :raises Fault: if a check file cannot be loaded, the system is unknown, or a check or variable
        of ``-S`` does not exist. ReFrame would at most warn, and measure something else.
    """
    options = [f"--setvar={variable}" for variable in variables]
    output = reframe([*check_options(checks), *options, *selection, "-lC"], system)
    cases = {f"{case['check']} @{case['where']}" for case in _CASE.finditer(output)}
    names = {case.split()[0] for case in cases}
    # Also checks without a case on this system: one command line may serve several.
    known = names | set(_FIXTURE.findall(output)) | set(_defined(checks))
    without: dict[str, set[str]] = {}
    for check, unset in _UNSET.findall(output):
        for name in re.findall(r"'([^']+)'", unset):
            without.setdefault(name, set()).add(check)
    for variable in variables:
        what, equals, _ = variable.partition("=")
        if not equals:
            raise Fault(
                f"-S {variable}: add its value: -S {variable}=VALUE",
                code="input.wrong-option",
            )
        target, _, name = what.rpartition(".")
        if target and target.partition(".")[0] not in known:
            raise Fault(
                f"-S {variable}: there is no check {target!r}; {suggest(target, sorted(known))}",
                code="input.unknown-name",
            )
        lacking = without.get(name, set())
        if target in lacking if target else names and names <= lacking:
            who = f"check {target}" if target else "no check here"
            raise Fault(
                f"-S {variable}: {who} has {'no' if target else 'a'} variable {name!r}",
                code="input.unknown-name",
            )
    return cases


def _defined(checks: list[str]) -> Iterator[str]:
    """Yield the names of the tests in check files, or in folders of them."""
    for check in map(Path, checks):
        for file in sorted(check.glob("*.py")) if check.is_dir() else [check]:
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and node.decorator_list:
                    yield node.name


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
            session.PLAN_FILE: str(path),
            "PLUMBLINE_RESULTS": folder,
            "PLUMBLINE_STRICT": "0",
        }
        reframe([*check_options(checks), "--dry-run", *arguments], system, **settings, **env)
        return [PlannedCase(**fields) for fields in json.loads(path.read_text())]


def check_options(checks: list[str]) -> list[str]:
    """Return ReFrame's options for files or folders of checks."""
    return [option for check in checks for option in ("-c", check)]
