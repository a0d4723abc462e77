"""On PYTHONPATH of a session at the facility: its file systems have the room of real ones, which
the disk below them has not."""

import os

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
