"""What would run on a system, found out by ReFrame's own listing and dry run."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import near
from plumbline.session import session
from plumbline.site import configuration
from plumbline.site.inventory import PlannedCase

#: Has ReFrame select all cases, those at published scale too.
FULL = ("--tag=.*",)

_CASE = re.compile(r"^- (?P<check>\S.*?) /[0-9a-f]+ @(?P<where>\S+)$", re.M)
_FIXTURE = re.compile(r"^ +\^(\S+)", re.M)
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n((?: .*\n)+)(\S.*)$", re.M)
_UNSET = re.compile(r"test '([^']+)': the following variables were not set: (.*)")
_WARNING = re.compile(r"^WARNING: (.*(?:\n(?!\[|- |WARNING).+)*)", re.M)


def reframe(arguments: list[str], system: str | None = None, **env: str) -> str:
    """Runs ReFrame under Plumbline's configuration and gives what it prints.

    :raises Fault: if there is no such system, or it fails, or left out a check that it could not
        load; the text is then its own.
    """
    if system:
        configuration.check_system(system)
    settings = {"RFM_CONFIG_FILES": str(paths.SETTINGS), "RFM_COLORIZE": "0", **env}
    named = [f"--system={system}"] if system else []
    done = subprocess.run(
        [str(Path(sys.executable).with_name("reframe")), *named, *arguments],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    left_out = [w for w in _WARNING.findall(said) if w.startswith(("skipping test", "check path"))]
    if left_out:
        raise Fault(
            "\n".join(" ".join(warning.split()) for warning in left_out), code="check.not-loaded"
        )
    if done.returncode:
        raise _refusal(said)
    return said


def _refusal(said: str) -> Fault:
    """What ReFrame said of a failure, without its traceback: where it was raised, and the words."""
    raised = _TRACEBACK.findall(said)
    if raised:
        places, words = raised[-1]
        if ", in setvars\n" in places:
            why = f"-S: a value that its variable cannot have: {words.partition(': ')[2]}"
            return Fault(why, code="input.wrong-option")
        path, line = re.findall(r'^  File "(.+)", line (\d+)', places, re.M)[-1]
        return Fault(f"{path}:{line}: {words}", code="check.not-loaded")
    words = ("plumbline:", "ERROR", "reframe: error:")
    lines = [line for line in said.splitlines() if any(word in line for word in words)]
    text = "\n".join(lines or said.strip().splitlines()[-2:])
    text = text.replace("plumbline: ", "").replace("ERROR: ", "")
    # A refusal of our own settings or session ends with its code.
    ours = re.fullmatch(r"(.*) \[([a-z]+\.[a-z-]+)\]", text, re.S)
    if ours:
        return Fault(ours[1], code=ours[2])
    return Fault(text, code="session.refused-by-reframe")


def listed(
    system: str | None, checks: list[str], variables: list[str], selection: Sequence[str] = ()
) -> set[str]:
    """The names of all test cases of a system, by ReFrame's listing.

    :arg variables: what is set of the checks, as ReFrame's ``-S`` takes it: ``[CHECK.]NAME=VALUE``.
    :arg selection: ReFrame's options that say which; :data:`FULL` for those at published scale too.
    :raises Fault: if a check file cannot be loaded, the system is unknown, or a variable is none
        of any check's or set of a check that there is none of: ReFrame warns of the first at most,
        and then measures something else.
    """
    options = [f"--setvar={variable}" for variable in variables]
    said = reframe([*_from(checks), *options, *selection, "-lC"], system)
    cases = {f"{case['check']} @{case['where']}" for case in _CASE.finditer(said)}
    names = {case.split()[0] for case in cases}
    # Also checks without a case on this system: one command line may serve several.
    there = names | set(_FIXTURE.findall(said)) | set(_defined(checks))
    without: dict[str, set[str]] = {}
    for check, unset in _UNSET.findall(said):
        for name in re.findall(r"'([^']+)'", unset):
            without.setdefault(name, set()).add(check)
    for variable in variables:
        what, equals, _ = variable.partition("=")
        if not equals:
            raise Fault(
                f"-S {variable}: say what it is set to: -S {variable}=VALUE",
                code="input.wrong-option",
            )
        target, _, name = what.rpartition(".")
        if target and target.partition(".")[0] not in there:
            raise Fault(
                f"-S {variable}: no check {target!r}; {near(target, sorted(there))}",
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
    """The names of the tests in check files, or in folders of these."""
    for check in map(Path, checks):
        for file in sorted(check.glob("*.py")) if check.is_dir() else [check]:
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and node.decorator_list:
                    yield node.name


def surveyed(
    system: str | None, checks: list[str], arguments: list[str], **env: str
) -> list[PlannedCase]:
    """The test cases of a system, by ReFrame's dry run.

    :arg env: what its environment has beside this one.
    :raises Fault: if a check file cannot be loaded or the system is unknown.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "survey.json"
        settings = {session.SURVEY: str(path), "PLUMBLINE_RESULTS": folder, "PLUMBLINE_STRICT": "0"}
        reframe([*_from(checks), "--dry-run", *arguments], system, **settings, **env)
        return [PlannedCase(**fields) for fields in json.loads(path.read_text())]


def _from(checks: list[str]) -> list[str]:
    return [option for check in checks for option in ("-c", check)]
