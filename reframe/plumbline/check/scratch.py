"""Folders that a test case writes to: found, held against what is needed, and removed.

Knows nothing of ReFrame.
"""

from __future__ import annotations

import os
import secrets
import shlex
import string
from dataclasses import dataclass
from pathlib import Path

from plumbline.core.errors import Coded


class ScratchError(Coded):
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
        folder = told.get("path") or f"${{{told.get('path_variable', '')}}}"
    elif name == "scratch" and extras.get("scratch"):
        told, folder = {}, extras["scratch"]
    else:
        raise ScratchError(
            f"the partition has no {name} folder: set its extras.scratch, or name it among its "
            f"extras.file_systems",
            code="scratch.none",
        )
    try:
        folder = string.Template(folder).substitute(os.environ)
    except KeyError as err:
        raise ScratchError(
            f"file system {name}: its folder is in the variable {err.args[0]}, which is not set: "
            f"set it to a folder of yours there",
            code="scratch.variable-unset",
        ) from None
    except ValueError:
        raise ScratchError(
            f"file system {name}: {folder!r} is no folder: give its path or path_variable in the "
            f"partition's extras.file_systems",
            code="scratch.not-a-folder",
        ) from None
    # The job does not start where ReFrame did.
    if not Path(folder).is_absolute():
        raise ScratchError(
            f"file system {name}: its folder {folder!r} is no absolute path: make it one",
            code="scratch.not-a-folder",
        )
    return FileSystem(
        name,
        folder,
        "resource" in told or bool(told.get("node_local")),
        told.get("resource"),
        {"filesystem": name, **told.get("conditions", {})},
    )


_MEND = "point the partition's scratch elsewhere"


def own_folder(parent: str, owner: str) -> Path:
    """A name in a folder that nobody else has."""
    return Path(parent) / f"plumbline-{owner}-{secrets.token_hex(4)}"


def make(folder: Path, needed: int, files: int, direct_io: bool) -> None:
    """Makes a test case's own folder; where it will not do, none is left.

    :arg needed: bytes that will be written to it, in so many files.
    :arg direct_io: refuses a file system that has none.
    :raises ScratchError: if it cannot be made, or will not hold that.
    """
    try:
        folder.mkdir(mode=0o700)
    except OSError as err:
        raise ScratchError(
            f"{folder.parent}: {err.strerror}: {_MEND}", code="scratch.not-writable"
        ) from None
    try:
        _hold_against(folder, needed, files, direct_io)
    except ScratchError:
        folder.rmdir()
        raise


#: Several tasks of a node may do it at once.
_MAKING = (
    'mkdir -m 700 -p -- "$1" && [ -O "$1" ] && [ ! -h "$1" ] || '
    '{ echo "$0: $1 is no folder that this job made" >&2; exit 1; }'
)


def making(folder: Path) -> str:
    """The command by which a job makes a folder of its own on a node. The folder's name stands in
    the job's script, for others to read, until the job starts: what they put there is refused."""
    return shlex.join(["sh", "-c", _MAKING, "plumbline", str(folder)])


def _hold_against(folder: Path, needed: int, files: int, direct_io: bool) -> None:
    """Whether the folder's file system will do."""
    parent = folder.parent
    try:
        room = os.statvfs(folder)
    except OSError as err:
        raise ScratchError(
            f"{parent}: {err.strerror}: {_MEND}", code="scratch.not-writable"
        ) from None
    free = room.f_bavail * room.f_frsize
    if free < needed * 1.05:
        raise ScratchError(
            f"{parent} has {free / 2**30:.2f} GiB free, {needed / 2**30:.2f} GiB are needed: free "
            f"some, or {_MEND}",
            code="scratch.too-little-space",
        )
    # Some file systems make inodes as they are needed, and count none.
    if room.f_files and room.f_favail < files * 1.05:
        raise ScratchError(
            f"{parent} has {room.f_favail} inodes free, {files} are needed: free some, or {_MEND}",
            code="scratch.too-little-space",
        )
    if direct_io and not has_direct_io(folder):
        raise ScratchError(
            f"{parent} has no direct I/O, and what the page cache says is no file system's "
            f"bandwidth: point the partition's scratch at a disk",
            code="scratch.no-direct-io",
        )


def kind(folder: Path) -> str:
    """The type and the mount point of the file system that a folder is on; only its path where it
    is not there."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        place = folder.resolve(strict=True)
    except OSError:
        return str(folder)
    found = [(words[4], words[words.index("-") + 1]) for words in map(str.split, lines)]
    on = [(point, name) for point, name in found if place.is_relative_to(point)]
    point, name = max(on, key=lambda told: len(told[0]), default=(str(folder), "?"))
    return f"{name} {point}"


def has_direct_io(folder: Path) -> bool:
    """Whether files of a folder can be opened past the page cache, and are not in memory anyway:
    tmpfs takes the flag since Linux 6.6, and has nothing but the page cache."""
    if _type_of(folder) in ("tmpfs", "ramfs"):
        return False
    probe = folder / "direct-io"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def _type_of(folder: Path) -> str:
    """The kernel's name of a folder's file system; empty where its device is in no mount, as a
    subvolume's of btrfs: proc_pid_mountinfo(5)."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        mount, _, told = line.partition(" - ")
        if mount.split()[2] == wanted:
            return told.split()[0]
    return ""
