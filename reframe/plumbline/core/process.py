"""Asking the machine's own commands: never through a shell, never for longer than they may take."""

from __future__ import annotations

import os
import re
import subprocess

#: Seconds that a command may take: a controller that does not answer must not hold the draft.
PATIENCE = 30

#: What may stand in a job script, a module command or a name without being quoted. A site whose
#: names have other characters is told which were left out.
PLAIN = re.compile(r"[A-Za-z0-9_.+/:@%-]+")


def ask(*words: str, both: bool = False) -> str | None:
    """What a command prints; ``None`` if it is not there, fails, or does not end in time.

    :arg both: whether what it prints on standard error counts too.
    """
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"LC_ALL": "C"},
            check=False,
            timeout=PATIENCE,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return done.stdout + done.stderr if both else done.stdout


def plain(name: str) -> bool:
    """Whether a name that was probed may stand unquoted in a job script."""
    return PLAIN.fullmatch(name) is not None


def shown(text: str) -> str:
    """A text of another program as one printable line, for a message or a comment."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:200]
