"""Determines whether a session is running, by the file ``running`` in its folder.

A session locks that file, and removes it at its end. A lock ends with its process, so a file
without a lock belongs to a session that was killed.

Some file systems keep the locks of each host apart. So the file has the name of the host, and only
a session on the same host cleans up after a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
from pathlib import Path

import fasteners

from plumbline.core import files
from plumbline.core.process import one_line
from plumbline.site import slurm

#: How often a session tries to lock its file, while others test the lock.
_TRIES = 10
FILE = "running"
#: Changes with each boot, see random(4).
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: Seconds to wait for a lock.
_TIMEOUT = 60


def _lock(folder: Path) -> fasteners.InterProcessLock:
    """Return the lock of a session, and create its file if necessary.

    :raises OSError: if it is not a regular file, or the folder is a link.
    """
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(folder))
    return files.lock(folder / FILE)


def _acquired(lock: fasteners.InterProcessLock, timeout: float | None = None) -> bool | None:
    """Return whether a lock was acquired, ``None`` if the file system has no locks.

    :arg timeout: in seconds; by default it does not wait.
    """
    try:
        return files.acquire(lock, blocking=timeout is not None, timeout=timeout)
    except OSError:
        return None


def claim(folder: Path) -> fasteners.InterProcessLock | None:
    """Mark a session as running. Return its lock, ``None`` if the file system has no locks.

    Without locks a killed session cannot be distinguished, and counts as running.

    :raises OSError: if the folder cannot be written, or another process holds the lock.
    """
    path = folder / FILE
    for _ in range(_TRIES):
        # Before locking, since closing the file releases the lock.
        with open(path, "w", opener=files.open_regular) as file:
            file.write(json.dumps(_this_process()))
        lock = _lock(folder)
        # Whoever tests the lock holds it for a moment.
        acquired = _acquired(lock, _TIMEOUT)
        if acquired is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            # Whoever tested the lock before may have removed the file.
            if acquired and os.path.samestat(os.fstat(lock.lockfile.fileno()), path.lstat()):
                return lock
        if acquired:
            lock.release()
    raise OSError(errno.EBUSY, "another process holds its lock", str(path))


def release(folder: Path, lock: fasteners.InterProcessLock | None) -> None:
    """Mark a session as ended, once all of it is recorded."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
    if lock:
        lock.release()


def is_running(folder: Path) -> bool:
    """Return whether a session is running, or that cannot be determined."""
    return is_locked(folder) or bool(other_host(folder))


def is_locked(folder: Path) -> bool:
    """Return whether the lock of a session is held, or that cannot be determined."""
    if not os.path.lexists(folder / FILE):
        return False
    with contextlib.suppress(OSError):
        lock = _lock(folder)
        if _acquired(lock):
            lock.release()
            return False
    return True


def _this_process() -> dict[str, str]:
    """Return the host of this process, its boot id, and its job in Slurm."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = _BOOT.read_text().strip()
    job, cluster = (os.environ.get(f"SLURM_{name}", "") for name in ("JOB_ID", "CLUSTER_NAME"))
    return {"host": platform.node(), "boot": boot, "job": job, "cluster": cluster}


def other_host(folder: Path) -> str:
    """Return the other host that a session may be running on without a visible lock.

    It is empty for a session of this host, if its job has ended, or if the file has no host.
    """
    try:
        owner = (folder / FILE).stat().st_uid
        content = json.loads(files.read_text(folder / FILE))
        host, boot, job, cluster = (content[name] for name in ("host", "boot", "job", "cluster"))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    this = _this_process()
    # Containers on this host have the same boot id, but other host names.
    if host == this["host"] or (boot and boot == this["boot"]):
        return ""
    if job and cluster == slurm.setting("ClusterName") and slurm.job_state(job, owner) == "":
        return ""
    return one_line(host)
