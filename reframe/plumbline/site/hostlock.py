"""A lock per host, as two sessions on one machine would disturb each other's measurements.

It does not belong to a results folder, so that it works across checkouts and users. Its file is in
a folder that everybody can write to. So no link is followed, and only a regular file is opened.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.text import printable

NAME = "plumbline-measuring.lock"


class Held(Exception):
    """Another session has the lock; the text describes it, and may be empty."""


class HostLock:
    """A lock that is held until it is released or the process ends.

    :arg text: description of this session, for the message of another one.
    :raises Held: if another session has it.
    :raises Fault: if its file cannot be opened or locked, or is not a regular file.
    """

    def __init__(self, text: str):
        self.path = paths.locks() / NAME
        self._file = _open(self.path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 200, 0).decode(errors="replace").strip()
            os.close(self._file)
            # Any user may have written it.
            raise Held(printable(holder)) from None
        except OSError as err:
            os.close(self._file)
            raise Fault(
                f"{self.path}: cannot be locked ({err.strerror}): set PLUMBLINE_LOCKS to a folder "
                f"on a local disk of this host",
                code="files.no-locks",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text.encode(), 0)

    def release(self) -> None:
        """Release the lock. The file remains, as removing it would be a race."""
        os.ftruncate(self._file, 0)
        os.close(self._file)


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
