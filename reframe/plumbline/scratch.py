"""Folders that a test case writes to: found, held against what is needed, and removed.

Knows nothing of ReFrame.
"""

from __future__ import annotations

import os
import secrets
import string
from dataclasses import dataclass
from pathlib import Path


class ScratchError(Exception):
    """There is no folder to write to; the text is the reason and the mend."""


@dataclass(frozen=True)
class FileSystem:
    """A file system of a partition (``extras.file_systems``), or its scratch folder.

    :ivar folder: where test cases may make folders of their own.
    :ivar node_local: each node has its own, and none is there before the job starts.
    :ivar resource: ReFrame resource that the job must ask for.
    :ivar conditions: what a reference row may ask for.
    """

    name: str
    folder: str
    node_local: bool
    resource: str | None
    conditions: dict[str, str]


def file_system(extras: dict, name: str) -> FileSystem:
    """A file system of a partition, its folder's variables replaced.

    :arg name: of one of ``extras.file_systems``, or ``scratch``.
    :raises ScratchError: if it is not there, or a variable of its path is not set.
    """
    listed = extras.get("file_systems") or {}
    if name in listed:
        told = listed[name]
        folder = told.get("path") or f"${told.get('path_variable')}"
    elif name == "scratch" and extras.get("scratch"):
        told, folder = {}, extras["scratch"]
    else:
        raise ScratchError(
            f"the partition has no {name} folder: set its extras.scratch, or name it among its "
            f"extras.file_systems"
        )
    try:
        folder = string.Template(folder).substitute(os.environ)
    except KeyError as err:
        raise ScratchError(
            f"file system {name}: its folder is in the variable {err.args[0]}, which is not set: "
            f"set it to a folder of yours there"
        ) from None
    return FileSystem(
        name,
        folder,
        "resource" in told or bool(told.get("node_local")),
        told.get("resource"),
        {"filesystem": name, **told.get("conditions", {})},
    )


def own_folder(parent: str, owner: str) -> Path:
    """A name in a folder that nobody else has."""
    return Path(parent) / f"plumbline-{owner}-{secrets.token_hex(4)}"


def make(folder: Path, needed: int, files: int, direct_io: bool) -> None:
    """Makes a test case's own folder.

    :arg needed: bytes that will be written to it, in so many files.
    :arg direct_io: refuses a file system that has none.
    :raises ScratchError: if it cannot be made, or will not hold that.
    """
    parent = folder.parent
    mend = "point the partition's scratch elsewhere"
    try:
        folder.mkdir(mode=0o700)
        room = os.statvfs(folder)
    except OSError as err:
        raise ScratchError(f"{parent}: {err.strerror}: {mend}") from None
    free = room.f_bavail * room.f_frsize
    if free < needed * 1.05:
        raise ScratchError(
            f"{parent} has {free / 2**30:.2f} GiB free, {needed / 2**30:.2f} GiB are needed: free "
            f"some, or {mend}"
        )
    # Some file systems make inodes as they are needed, and count none.
    if room.f_files and room.f_favail < files * 1.05:
        raise ScratchError(
            f"{parent} has {room.f_favail} inodes free, {files} are needed: free some, or {mend}"
        )
    if direct_io and not has_direct_io(folder):
        raise ScratchError(
            f"{parent} has no direct I/O, and what the page cache says is no file system's "
            f"bandwidth: point the partition's scratch at a disk"
        )


def has_direct_io(folder: Path) -> bool:
    """Whether files of a folder can be opened past the page cache."""
    probe = folder / "direct-io"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True
