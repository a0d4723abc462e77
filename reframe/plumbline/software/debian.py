"""Installs Debian packages if this is a Debian and the user is root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path


def command(packages: list[str]) -> list[str]:
    """Return the command that installs packages."""
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def can_install() -> bool:
    """Return whether this is a Debian and the user is root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: list[str], log: Path, report: Callable[[str], None]) -> bool:
    """Install packages and return whether that succeeded; apt's output is in the log."""
    report(f"installing {' '.join(packages)} from Debian's packages")
    log.parent.mkdir(parents=True, exist_ok=True)
    timeouts = ["-o", "Acquire::http::Timeout=15", "-o", "Acquire::Retries=1"]
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("w") as file:
        for step in (["apt-get", "update"], command(packages)):
            done = subprocess.run(
                [*step, *timeouts], stdout=file, stderr=file, env=variables, check=False
            )
    if done.returncode:
        report(f"apt-get failed, see {log}")
    return done.returncode == 0
