"""Opens files where others may write too: a results folder that a group shares, ``/run/lock``,
``/tmp``.

What lies there already is not trusted: no link is followed, nothing but a regular file is opened,
and nothing is waited for, as opening a FIFO would wait for its other end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

import fasteners


def opened(path: Path | str, flags: int = os.O_RDONLY, links: bool = False) -> int:
    """A file descriptor of a regular file; also for the ``opener`` of :func:`open`.

    :arg links: whether a link is followed: where the user named the file, or its folder is the
        user's alone.
    :raises OSError: if it cannot be opened, or is a link or anything but a regular file.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    try:
        file = os.open(path, flags, 0o666)
    except OSError as err:
        if err.errno == errno.ELOOP:
            raise OSError(err.errno, "it is a link", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def binary(path: Path) -> BinaryIO:
    """A regular file, for reading.

    :raises OSError: as :func:`opened`.
    """
    return os.fdopen(opened(path), "rb", 1 << 20)


def text(path: Path) -> str:
    """What a regular file in UTF-8 says.

    :raises OSError: as :func:`opened`.
    :raises UnicodeDecodeError: if it is not in UTF-8.
    """
    with open(path, encoding="utf-8", opener=opened) as file:
        return file.read()


def lock(path: Path) -> fasteners.InterProcessLock:
    """A lock on a regular file, which is made where it is not there.

    :raises OSError: as :func:`opened`.
    """
    made = fasteners.InterProcessLock(path)
    # It opens a file by itself only where it has none; it would follow links, and wait for a FIFO.
    made.lockfile = os.fdopen(opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a")
    return made


def store(path: Path, text: str) -> None:
    """Writes a file whole, or leaves it as it was.

    :raises OSError: if it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        # Made anew, so that nothing is written where a link of somebody else's leads.
        partial.unlink(missing_ok=True)
        with partial.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
