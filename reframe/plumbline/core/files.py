"""Open files in folders where others may write too: shared results, ``/run/lock``, ``/tmp``.

Existing files are not trusted: links are not followed, only regular files are opened, and nothing
blocks, as opening a FIFO would.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from plumbline.core.errors import Fault
from plumbline.core.text import printable

if TYPE_CHECKING:
    import fasteners


def open_regular(path: Path | str, flags: int = os.O_RDONLY, follow_links: bool = False) -> int:
    """Return a file descriptor of a regular file; also usable as the ``opener`` of :func:`open`.

    :arg follow_links: for a file that the user named, or in a folder of the user's alone.
    :raises OSError: if it cannot be opened, or is a link or not a regular file.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as err:
        if err.errno == errno.ELOOP:
            raise OSError(err.errno, "it is a link", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def open_binary(path: Path) -> BinaryIO:
    """Open a regular file for reading bytes.

    :raises OSError: as :func:`open_regular`.
    """
    return os.fdopen(open_regular(path), "rb", 1 << 20)


def read_text(path: Path) -> str:
    """Return the text of a regular file in UTF-8.

    :raises OSError: as :func:`open_regular`.
    :raises UnicodeDecodeError: if it is not in UTF-8.
    """
    with open(path, encoding="utf-8", opener=open_regular) as file:
        return file.read()


def why_unreadable(err: OSError, folder: Path) -> str:
    """Return why a file in a folder cannot be read, and who can change that."""
    reason = err.strerror or str(err)
    if isinstance(err, PermissionError):
        with contextlib.suppress(OSError, KeyError):  # such as an account that was deleted
            owner = folder.owner()
            reason += f": its owner {owner} can run `chmod -R g+rX {shlex.quote(str(folder))}`"
    return reason


def lock(path: Path) -> fasteners.InterProcessLock:
    """Return a lock on a regular file, which is created if it does not exist.

    :raises OSError: as :func:`open_regular`.
    """
    # The build of a wheel imports all commands, with click as its only dependency.
    import fasteners

    lock = fasteners.InterProcessLock(path)
    # Given an open file, fasteners opens none itself, which would follow links and block on a FIFO.
    lock.lockfile = os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a")
    return lock


def acquire(
    lock: fasteners.InterProcessLock, blocking: bool = True, timeout: float | None = None
) -> bool:
    """Acquire a lock, and return whether it was.

    :arg blocking: whether to wait for it. :arg timeout: for so many seconds; without, for ever.
    :raises OSError: if it cannot be, as file systems without locks have none.
    """
    try:
        return bool(lock.acquire(blocking=blocking, timeout=timeout))
    except threading.ThreadError as err:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), os.fspath(lock.path)) from err


class Held(Exception):
    """Another process has a lock; the text describes it, and may be empty."""


class OwnedLock:
    """A lock whose file says who has it: until it is released, or until this process and those that
    inherited the file have ended.

    :arg file: descriptor of the file at ``path``, which remains, as removing it would be a race.
    :arg owner: description of this process, for the message of another one.
    :arg remedy: what to do if the file system has no locks.
    :raises Held: if another process has it.
    :raises Fault: if it cannot be locked.
    """

    def __init__(self, path: Path, file: int, owner: str, remedy: str):
        self.file = file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 400, 0).decode(errors="replace").strip()
            os.close(file)
            # Any user may have written it.
            raise Held(printable(holder)) from None
        except OSError as err:
            os.close(file)
            raise Fault(
                f"{path}: cannot be locked ({err.strerror}){remedy}", code="files.no-locks"
            ) from None
        # On a full disk the file stays empty; the lock itself needs no space.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, owner.encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, 0)
        os.close(self.file)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file to create, which replaces another one, or is removed if that fails.

    :raises OSError: if it cannot.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        # Always a new file, so that nothing is written through another user's link.
        partial.unlink(missing_ok=True)
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_atomically(path: Path, text: str, mode: int | None = None) -> None:
    """Write a whole file, or leave it unchanged.

    :arg mode: its permissions; by default those that the umask leaves.
    :raises OSError: if it cannot be written.
    """
    with replacing(path) as partial, partial.open("x", encoding="utf-8") as file:
        file.write(text)
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def overwriting(path: Path) -> Iterator[TextIO]:
    """Open the file that the user named for writing: it is written whole, or remains as it is. So
    do its permissions, and a link to it.

    :raises OSError: if it cannot be written.
    """
    in_place = path.exists() and not (path.is_file() and os.access(path.resolve().parent, os.W_OK))
    if in_place:  # a pipe, or in a folder in which no other file can be created
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    path = path.resolve()
    with replacing(path) as partial, partial.open("x", encoding="utf-8", newline="") as file:
        if path.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        yield file


@contextlib.contextmanager
def writing(
    path: object, message: str = "cannot be written: {}: name another file"
) -> Iterator[None]:
    """Convert the errors of writing a file or folder.

    :arg message: what is wrong, and what to do; ``{}`` is the reason.
    :raises Fault: if it cannot be written. A reader that is gone, as ``head``, is no fault.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        reason = message.replace("{}", err.strerror or str(err), 1)
        raise Fault(f"{path}: {reason}", code="files.not-writable") from None
