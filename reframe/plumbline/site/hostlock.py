"""One lock per host: two sessions that measure one machine at once would measure each other.

It is the host's, not a results folder's, so that two checkouts and two users know of each other.
Its file lies in a folder where anybody may write, so that what lies there already is not trusted:
no link is followed, and no other than a regular file is opened.
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
    """Another session has the lock; the text is what it left of itself, which may be nothing."""


class HostLock:
    """The lock, held until it is released or the process ends.

    :arg text: what a session that starts meanwhile reports.
    :raises Held: if another session has it.
    :raises Fault: if its file cannot be opened, or is none.
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
                f"of this host's own disk",
                code="files.no-locks",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text.encode(), 0)

    def release(self) -> None:
        """Lets others measure. The file stays: who waits for its removal would have a race."""
        os.ftruncate(self._file, 0)
        os.close(self._file)


def _open(path: Path) -> int:
    """The lock's file, made for every user to lock.

    :raises Fault: if it cannot be opened, or is a link or anything but one regular file.
    """
    advice = "look at what it is and remove it, or set PLUMBLINE_LOCKS to another folder"
    try:
        try:
            # Linux refuses O_CREAT on another user's file in such a folder (protected_regular).
            file = files.opened(path, os.O_RDWR)
        except FileNotFoundError:
            file = files.opened(path, os.O_RDWR | os.O_CREAT)
    except OSError as err:
        raise Fault(
            f"{path}: cannot be opened ({err.strerror}): {advice}", code="files.not-a-file"
        ) from None
    found = os.fstat(file)
    if found.st_nlink != 1:
        os.close(file)
        raise Fault(f"{path}: has {found.st_nlink} names: {advice}", code="files.not-a-file")
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != 0o666:
        # Whatever this user's umask made of it.
        os.fchmod(file, 0o666)
    return file
