"""Whether a session runs: the file ``running`` in its folder, and the lock on it.

A session that runs holds a lock on that file, and takes the file away at its end. A lock goes with
its process, whatever ended it: so a file that nobody holds is that of a session that was killed.

A file system may keep the locks of each host apart. So the file names the host, too, and a session
of another one is left to the next session there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import threading
from pathlib import Path

import fasteners

from plumbline.core import files
from plumbline.core.process import shown
from plumbline.site import slurm

#: Times that a session's lock is tried for, when others look at it.
_TRIES = 10
FILE = "running"
#: Differs after each start of a kernel, see random(4).
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: Seconds that a lock may take to be had.
_PATIENCE = 60


def _lock(folder: Path) -> fasteners.InterProcessLock:
    """The lock of a session, on its file, which is made where it is not there.

    :raises OSError: if it is no regular file, or the folder is a link.
    """
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(folder))
    return files.lock(folder / FILE)


def _had(lock: fasteners.InterProcessLock, patience: float | None = None) -> bool | None:
    """Whether a lock could be had, within so many seconds; ``None`` where it cannot be told."""
    try:
        return bool(lock.acquire(blocking=patience is not None, timeout=patience))
    except (OSError, threading.ThreadError):
        # The second is what fasteners makes of a file system without locks.
        return None


def claim(folder: Path) -> fasteners.InterProcessLock | None:
    """A lock that says that a session runs; ``None`` where the file system has no locks. There the
    file alone says so: a session that was killed cannot be told, and is left alone.

    :raises OSError: if the folder cannot be written, or another process keeps the lock.
    """
    path = folder / FILE
    for _ in range(_TRIES):
        # Before the lock: to close the file lets go of it.
        with open(path, "w", opener=files.opened) as file:
            file.write(json.dumps(_here()))
        lock = _lock(folder)
        # Whoever looks whether a session runs holds its lock for a moment.
        had = _had(lock, _PATIENCE)
        if had is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            # One that looked before it was held may have taken the file away.
            if had and os.path.samestat(os.fstat(lock.lockfile.fileno()), path.lstat()):
                return lock
        if had:
            lock.release()
    raise OSError(errno.EBUSY, "its lock is kept by another process", str(path))


def release(folder: Path, lock: fasteners.InterProcessLock | None) -> None:
    """Says that a session has ended, and all of it is told."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
    if lock:
        lock.release()


def running(folder: Path) -> bool:
    """Whether a session runs; also where that cannot be told."""
    return held(folder) or bool(elsewhere(folder))


def held(folder: Path) -> bool:
    """Whether the lock of a session is held, or that cannot be told."""
    if not os.path.lexists(folder / FILE):
        return False
    with contextlib.suppress(OSError):
        lock = _lock(folder)
        if _had(lock):
            lock.release()
            return False
    return True


def _here() -> dict[str, str]:
    """Where this process runs: host, start of its kernel, and its job in Slurm."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = _BOOT.read_text().strip()
    job, cluster = (os.environ.get(f"SLURM_{name}", "") for name in ("JOB_ID", "CLUSTER_NAME"))
    return {"host": platform.node(), "boot": boot, "job": job, "cluster": cluster}


def elsewhere(folder: Path) -> str:
    """The host that a session without a held lock may still run on: another one than this. Empty
    where it is this one, or its job has ended, or the session says nothing of it."""
    try:
        told = json.loads(files.text(folder / FILE))
        host, boot, job, cluster = (told[name] for name in ("host", "boot", "job", "cluster"))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    here = _here()
    # Of one kernel are containers, too, whose hosts have names of their own.
    if host == here["host"] or (boot and boot == here["boot"]):
        return ""
    if job and cluster == slurm.setting("ClusterName") and slurm.job_state(job) == "":
        return ""
    return shown(host)
