"""The checkouts of Spack and of its recipes, fetched by git at the commits of ``pins.yaml``."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from plumbline.core.errors import Fault
from plumbline.software import environments
from plumbline.software.spack import WITHOUT_NETWORK, checkout, mirror, root

#: Seconds that a host has to answer, and that git waits for a stalled transfer.
_PATIENCE = 10


def fetch(report: Callable[[str], None]) -> None:
    """Fetch Spack and its packages, from the mirror in use or from where they are published.

    :raises Fault: if they cannot be fetched; the message explains how to use a mirror. Or if a file
        of a checkout was changed or deleted.
    """
    for name, pin in environments.pins().items():
        if _commit(checkout(name)) != pin["commit"]:
            _fetch(name, pin, report)
        _require_unedited(checkout(name))


def _commit(folder: Path) -> str:
    """Return the commit that a folder is checked out at, empty if there is none."""
    head = folder / ".git" / "HEAD"
    return head.read_text(encoding="utf-8").strip() if head.is_file() else ""


def _require_unedited(folder: Path) -> None:
    """Check that the files of a checkout are those of its commit, which records have.

    :raises Fault: if they are not.
    """
    status = ["status", "--porcelain", "--untracked-files=no"]
    words = ["git", "-c", "core.fileMode=false", "-C", str(folder), *status]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=_of_git(), check=True)
    except (OSError, subprocess.CalledProcessError):
        return  # git is needed to fetch alone
    for line in done.stdout.splitlines():
        raise Fault(
            f"{folder / line[3:]}: not as in the commit that is checked out: restore it with `git "
            f"-C {folder} checkout -f`; recipes of your own belong to spack-env/repo of the "
            f"site's folder",
            code="spack.edited",
        )


def _fetch(name: str, pin: dict[str, str], report: Callable[[str], None]) -> None:
    chosen = mirror()
    address = str(chosen / "git" / f"{name}.git") if chosen else pin["git"]
    report(f"fetching {name} {pin['tag']} from {address}")
    if shutil.which("git") is None:
        raise Fault(
            "git is not on PATH: install it (on Debian: apt-get install git), or load its module",
            code="spack.no-git",
        )
    if not chosen:
        _require_reachable(address)
    log = root() / f"{name}.log"
    log.unlink(missing_ok=True)
    fetch = ["fetch", "-q", "--depth=1", address, pin["commit"]]
    switch = ["-c", "advice.detachedHead=false", "checkout", "-q", "FETCH_HEAD"]
    if not make_repository(checkout(name), log, [], fetch, switch):
        raise Fault(
            f"{name} {pin['tag']} ({pin['commit'][:12]}) could not be fetched from {address}"
            f"{_last(log)}; see {log}. {WITHOUT_NETWORK}",
            code="spack.not-fetched",
        )


def make_repository(folder: Path, log: Path, options: list[str], *commands: list[str]) -> bool:
    """Make a git repository by commands in it, in place of an older one; return whether they
    succeeded.

    :arg options: of ``git init``.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    steps = [["init", "-q", *options, str(partial)]]
    steps += [["-C", str(partial), *command] for command in commands]
    with log.open("a", encoding="utf-8") as file:
        if any(_git(step, file) for step in steps):
            shutil.rmtree(partial, ignore_errors=True)
            return False
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return True


def _require_reachable(address: str) -> None:
    """Check that a host answers, since git would wait for minutes.

    :raises Fault: if it does not.
    """
    # A site's git may replace the address (url.<base>.insteadOf).
    rewritten = subprocess.run(
        ["git", "ls-remote", "--get-url", address], capture_output=True, text=True, check=False
    ).stdout.strip()
    parts = urlsplit(rewritten or address)
    proxies = ("https_proxy", "HTTPS_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    if parts.scheme not in ("http", "https") or any(os.environ.get(name) for name in proxies):
        return
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    try:
        socket.create_connection((parts.hostname, port), timeout=_PATIENCE).close()
    except OSError as err:
        raise Fault(
            f"{parts.hostname} cannot be reached ({err}). {WITHOUT_NETWORK}",
            code="spack.not-fetched",
        ) from None


def _git(words: list[str], log: TextIO) -> int:
    """Run git, which gives up on a stalled transfer, and return its exit status."""
    return subprocess.run(
        ["git", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_of_git(),
        check=False,
    ).returncode  # fmt: skip


def _of_git() -> dict[str, str]:
    """Return git's environment variables. Git would refuse a mirror that another user owns; what it
    has is verified by its commit anyway."""
    config = root() / "gitconfig"
    users = os.environ.get("GIT_CONFIG_GLOBAL") or "~/.gitconfig"
    config.write_text(f"[include]\n\tpath = {users}\n[safe]\n\tdirectory = *\n", encoding="utf-8")
    return {
        **os.environ,
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
        "GIT_HTTP_LOW_SPEED_TIME": str(_PATIENCE),
    }


def has_commit(bare: Path, pin: dict[str, str]) -> bool:
    """Return whether a repository has a pinned commit under its tag."""
    words = ["git", "-C", str(bare), "rev-parse", "-q", "--verify", f"refs/tags/{pin['tag']}"]
    done = subprocess.run(words, capture_output=True, text=True, env=_of_git(), check=False)
    return done.stdout.strip() == pin["commit"]


def _last(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""
