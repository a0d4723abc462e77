"""On PYTHONPATH of a session at the facility: its file systems have the room of real ones, which
the disk below them has not."""

import os

_statvfs = os.statvfs


def _roomy(path):
    told = _statvfs(path)
    if "/file-systems/" not in os.fsdecode(path):
        return told
    blocks = 10**16 // told.f_frsize
    files = 10**12
    numbers = list(told)
    numbers[2:8] = [blocks, blocks, blocks, files, files, files]
    return os.statvfs_result(numbers)


os.statvfs = _roomy
