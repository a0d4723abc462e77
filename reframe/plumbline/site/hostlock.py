"""A lock per host, as two sessions on one machine would disturb each other's measurements.

It does not belong to a results folder, so that it works across checkouts and users. Its file is in
a folder that everybody can write to. So no link is followed, and only a regular file is opened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Fault


def path() -> Path:
    """Return the lock's file."""
    return paths.locks() / "plumbline-measuring.lock"


def claim(owner: str) -> files.OwnedLock:
    """Return the lock of this host.

    :arg owner: description of this session, for the message of another one.
    :raises files.Held: if another session has it.
    :raises Fault: if its file cannot be opened or locked, or is not a regular file.
    """
    remedy = ": set PLUMBLINE_LOCKS to a folder on a local disk of this host"
    return files.OwnedLock(path(), _open(path()), owner, remedy)


def _open(path: Path) -> int:
    """Open the lock's file, which every user can lock.

    :raises Fault: if it cannot be opened, or is not one regular file.
    """
    advice = "find out what it is and remove it, or set PLUMBLINE_LOCKS to another folder"
    try:
        try:
            # Linux refuses O_CREAT on another user's file in such a folder (protected_regular).
            file = files.open_regular(path, os.O_RDWR)
        except FileNotFoundError:
            file = files.open_regular(path, os.O_RDWR | os.O_CREAT)
    except OSError as err:
        raise Fault(
            f"{path}: cannot be opened ({err.strerror}): {advice}", code="files.not-a-file"
        ) from None
    found = os.fstat(file)
    if found.st_nlink != 1:
        os.close(file)
        raise Fault(f"{path}: has {found.st_nlink} names: {advice}", code="files.not-a-file")
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != 0o666:
        # The user's umask may have restricted it.
        os.fchmod(file, 0o666)
    return file
