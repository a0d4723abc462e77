"""Run the machine's own commands, without a shell and with a time limit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Seconds after which a command is ended, such as one whose controller does not answer.
TIMEOUT = 30

#: Names that need no quotes in a job script or a module command.
SHELL_SAFE = re.compile(r"[A-Za-z0-9_.+/:@%-]+")


def untranslated(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables with which commands print all that they have, in English."""
    # By variables of sinfo(1) and squeue(1), such as SQUEUE_USERS, they would list only a part.
    env = {k: v for k, v in variables.items() if not k.startswith(("SINFO_", "SQUEUE_"))}
    return env | {"LC_ALL": "C"}


def capture(
    *command: str, stderr: bool = False, variables: Mapping[str, str] = os.environ
) -> str | None:
    """Return the output of a command, or ``None`` if it is missing, fails or takes too long.

    :arg stderr: whether to append its standard error.
    :arg variables: with which it is started.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=untranslated(variables),
            check=True,
            timeout=TIMEOUT,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr if stderr else done.stdout


@dataclass(frozen=True, eq=False)
class Shell:
    """Environment variables with which programs are found and started: by default, those of this
    process."""

    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def which(self, program: str, first: Path | None = None) -> str | None:
        """Return the path of an executable, in one folder or else on PATH."""
        found = first and shutil.which(program, path=first)
        return found or shutil.which(program, path=self.variables.get("PATH"))

    def output(self, *command: str) -> str:
        """Return the output of a command; empty if it is missing, fails or takes too long."""
        return capture(*command, variables=self.variables) or ""


#: This process.
SESSION = Shell()


def last_line(output: str) -> str:
    """Return the last line of what a command printed."""
    return "".join(output.strip().splitlines()[-1:])


def is_shell_safe(name: str) -> bool:
    """Return whether a name needs no quotes in a job script."""
    return SHELL_SAFE.fullmatch(name) is not None


def one_line(text: str) -> str:
    """Return another program's text as one printable line of at most 200 characters."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:200]


def command(name: str) -> str:
    """Return the path of a command of this Python environment: beside its interpreter, or on PATH
    where packages have prefixes of their own, as Spack's."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name
