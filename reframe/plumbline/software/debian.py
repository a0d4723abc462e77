"""Debian's packages: what is missing is installed where that can be done, and named where not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path


def command(packages: list[str]) -> list[str]:
    """What installs packages."""
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def can_install() -> bool:
    """Whether this is a Debian, and the user root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: list[str], log: Path, say: Callable[[str], None]) -> bool:
    """Installs packages; whether that went well. All that apt says is in the log."""
    say(f"installing {' '.join(packages)} from Debian's packages")
    log.parent.mkdir(parents=True, exist_ok=True)
    patience = ["-o", "Acquire::http::Timeout=15", "-o", "Acquire::Retries=1"]
    settings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("w") as file:
        for step in (["apt-get", "update"], command(packages)):
            done = subprocess.run(
                [*step, *patience], stdout=file, stderr=file, env=settings, check=False
            )
    if done.returncode:
        say(f"apt-get failed, see {log}")
    return done.returncode == 0
