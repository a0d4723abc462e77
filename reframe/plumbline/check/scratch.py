"""Folders that a test case writes to: where they are, whether they suit, and their removal.

Independent of ReFrame.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plumbline.core.errors import Coded


class ScratchError(Coded):
    """There is no suitable folder; the text has the reason and the fix."""


@dataclass(frozen=True)
class FileSystem:
    """A file system of a partition (``extras.file_systems``), or its scratch folder.

    :ivar folder: where test cases may make folders of their own.
    :ivar node_local: whether each node has its own, which exists only while the job runs.
    :ivar resource: ReFrame resource that the job must request.
    :ivar conditions: conditions of the reference rows.
    """

    name: str
    folder: str
    node_local: bool
    resource: str | None
    conditions: dict[str, str]


#: Where a script has a folder of which the variable is not set.
NOT_SET = "/not-set"


class WithUnset(dict[str, str]):
    """Variables of the environment, in which one that is not set has a visible value, for a job
    script that is only looked at."""

    def __missing__(self, name: str) -> str:
        return f"{NOT_SET}/{name}"


def file_system(extras: dict, name: str, variables: Mapping[str, str] = os.environ) -> FileSystem:
    """Return a file system of a partition, with the variables in its path replaced.

    :arg name: one of ``extras.file_systems``, or ``scratch``.
    :raises ScratchError: if there is none, or a variable of its path is not set.
    """
    listed = extras.get("file_systems") or {}
    if name in listed:
        entry = listed[name]
        folder = entry.get("path") or f"${{{entry.get('path_variable', '')}}}"
    elif name == "scratch" and extras.get("scratch"):
        entry, folder = {}, extras["scratch"]
    else:
        raise ScratchError(
            f"the partition has no {name} folder: set its extras.scratch, or add it to its "
            f"extras.file_systems",
            code="scratch.none",
        )
    try:
        folder = string.Template(folder).substitute(variables)
    except KeyError as err:
        raise ScratchError(
            f"file system {name}: its folder is in the variable {err.args[0]}, which is not set: "
            f"set it to your own folder on that file system",
            code="scratch.variable-unset",
        ) from None
    except ValueError:
        raise ScratchError(
            f"file system {name}: {folder!r} is not a path: set path or path_variable in the "
            f"partition's extras.file_systems",
            code="scratch.not-a-folder",
        ) from None
    # The job does not start in the folder where ReFrame did.
    if not Path(folder).is_absolute():
        raise ScratchError(
            f"file system {name}: its folder {folder!r} is not an absolute path: use one",
            code="scratch.not-a-folder",
        )
    return FileSystem(
        name,
        folder,
        "resource" in entry or bool(entry.get("node_local")),
        entry.get("resource"),
        {"filesystem": name, **entry.get("conditions", {})},
    )


_REMEDY = "set the partition's scratch to another folder"

#: Types of file systems that may take the flag of direct I/O and keep the data in memory
#: nevertheless: tmpfs does since Linux 6.6, ZFS before 2.3, and later as its datasets are set.
_CACHED = ("tmpfs", "ramfs", "zfs")


def own_folder(parent: str, owner: str) -> Path:
    """Return a unique name in a folder."""
    return Path(parent) / f"plumbline-{owner}-{secrets.token_hex(4)}"


def make(folder: Path, needed: int, files: int, direct_io: bool) -> None:
    """Make a test case's own folder, and remove it if its file system is not suitable.

    :arg needed: bytes that will be written to it, in so many files.
    :arg direct_io: whether the file system must have direct I/O.
    :raises ScratchError: if it cannot be made, or is not suitable.
    """
    created = False
    try:
        folder.mkdir(mode=0o700)
        created = True
        _check(folder, needed, files, direct_io)
    except (OSError, ScratchError) as err:
        if created:
            folder.rmdir()
        if isinstance(err, ScratchError):
            raise
        raise ScratchError(
            f"{folder.parent}: {err.strerror}: {_REMEDY}", code="scratch.not-writable"
        ) from None


#: Several tasks of a node may run this at once.
_MAKE = (
    'mkdir -m 700 -p -- "$1" && [ -O "$1" ] && [ ! -h "$1" ] || '
    '{ echo "$0: $1 is not a folder of this job" >&2; exit 1; }'
)

#: Follows it where direct I/O is needed; :func:`refusal` reads what it prints.
_PROVE = (
    f'; type=$(stat -f -c %T -- "$1"); case $type in {"|".join(_CACHED)}) '
    'echo "$0: no direct I/O: ${1%/*} ($type on $(uname -n))" >&2; exit 1 ;; esac'
)


def making(folder: Path, direct_io: bool = False) -> str:
    """Return the command by which a job makes its own folder on a node.

    Others can read the folder's name in the job's script before the job starts, so that a folder
    of theirs is refused.

    :arg direct_io: whether to refuse a file system that is known to keep the data in memory.
    """
    script = _MAKE + (_PROVE if direct_io else "")
    return shlex.join(["sh", "-c", script, "plumbline", str(folder)])


def commands(folder: Path, launch: str = "", direct_io: bool = False) -> list[str]:
    """Return the commands by which a job removes its folder, however it ends.

    :arg launch: start of a command on every node, for a node-local folder, which the job makes too.
    :arg direct_io: whether a node-local file system must have direct I/O.
    """
    removal = f"{launch}rm -rf -- {shlex.quote(str(folder))}"
    creation = [f"{launch}{making(folder, direct_io)} || exit"] if launch else []
    return [f"trap {shlex.quote(removal)} EXIT", *creation]


def refusal(stderr: str) -> ScratchError | None:
    """Return the error of a node-local file system that turned out in the job to have no direct
    I/O, from the job's standard error."""
    found = re.search(r"plumbline: no direct I/O: (.+)$", stderr, re.M)
    return _no_direct_io(found[1]) if found else None


def _check(folder: Path, needed: int, files: int, direct_io: bool) -> None:
    parent, room = folder.parent, os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < needed * 1.05:
        raise ScratchError(
            f"{parent} has {free / 2**30:.2f} GiB free, {needed / 2**30:.2f} GiB are needed: "
            f"delete files there, or {_REMEDY}",
            code="scratch.too-little-space",
        )
    # Some file systems make inodes when they are needed, and report 0.
    if room.f_files and room.f_favail < files * 1.05:
        raise ScratchError(
            f"{parent} has {room.f_favail} inodes free, {files} are needed: delete files there, or "
            f"{_REMEDY}",
            code="scratch.too-little-space",
        )
    if direct_io and not has_direct_io(folder):
        raise _no_direct_io(str(parent))


def _no_direct_io(where: str) -> ScratchError:
    return ScratchError(
        f"{where} does not support direct I/O, so a cache in memory would be measured instead: set "
        f"the partition's extras.scratch, or the path in its extras.file_systems, to a folder on a "
        f"disk or a parallel file system",
        code="scratch.no-direct-io",
    )


def _mounts() -> list[tuple[str, str, str]]:
    """Return device number, mount point and type of each file system: proc_pid_mountinfo(5)."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    parts = [(line.partition(" - ")[0].split(), line.partition(" - ")[2].split()) for line in lines]
    return [(mount[2], mount[4], source[0]) for mount, source in parts]


def kind(folder: Path) -> str:
    """Return type and mount point of a folder's file system; its path if it does not exist."""
    try:
        mounts, place = _mounts(), folder.resolve(strict=True)
    except OSError:
        return str(folder)
    found = [(point, name) for _, point, name in mounts if place.is_relative_to(point)]
    point, name = max(found, key=lambda mount: len(mount[0]), default=(str(folder), "?"))
    return f"{name} {point}"


def has_direct_io(folder: Path) -> bool:
    """Return whether files of a folder can bypass the caches in memory."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    # The device of a subvolume of btrfs is in no mount.
    if next((name for known, _, name in _mounts() if known == number), "") in _CACHED:
        return False
    probe = folder / "direct-io"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True
