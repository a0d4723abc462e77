"""On PYTHONPATH of a session at the facility: its file systems have the room of real ones, which
the disk below them has not. In a job, what describes a node sees the machine's, not this one."""

import builtins
import glob
import io
import json
import os
import sys
from pathlib import Path

_statvfs = os.statvfs


def _roomy(path):
    found = _statvfs(path)
    if "/file-systems/" not in os.fsdecode(path):
        return found
    blocks = 10**16 // found.f_frsize
    files = 10**12
    numbers = list(found)
    numbers[2:8] = [blocks, blocks, blocks, files, files, files]
    return os.statvfs_result(numbers)


os.statvfs = _roomy


def _hardware():
    """Show this process the kernel and the processor of a node of the machine."""
    import archspec.cpu

    state = Path(os.environ["FACILITY_STATE"])
    facts = json.loads((state / "machine.json").read_text())["facts"]
    sysfs = state / "sys"

    def there(path):
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        return f"{sysfs}/{text[5:]}" if text.startswith("/sys/") else path

    def on_node(function):
        return lambda path, *more, **named: function(there(path), *more, **named)

    found = glob.glob
    glob.glob = lambda path: [
        name.replace(str(sysfs), "/sys", 1) for name in found(str(there(path)))
    ]
    builtins.open = io.open = on_node(builtins.open)
    os.scandir = on_node(os.scandir)
    os.sched_getaffinity = lambda process: set(
        range(facts["sockets"] * facts["cores"] * facts["smt"])
    )
    sysconf = os.sysconf
    pages = facts["memory"] * 2**30 // sysconf("SC_PAGE_SIZE")
    os.sysconf = lambda name: pages if name == "SC_PHYS_PAGES" else sysconf(name)
    archspec.cpu.host = lambda: archspec.cpu.TARGETS[facts["arch"]]


if "FACILITY_JOB" in os.environ and "plumbline.operate.onboarding.node" in sys.orig_argv:
    _hardware()
