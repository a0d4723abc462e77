"""Files that a job left: regular ones of a bounded size, or none at all.

A program that goes wrong can fill a disk with one line, and a job can leave a FIFO or a link to
``/dev/zero`` where its output should be: neither may hang or fill the process that reads it.
"""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path

from plumbline.core import files

#: Bytes of the largest file that is read. The largest honest one is a job's standard error, on
#: which each task and each node reports itself (``task.sh``): of all of Frontier, 9,408 nodes with
#: 2 KB each and 56 tasks with 60 bytes each, 50 MB. As much again, and more, is left for what
#: programs say. Their reports are smaller: Comm|Scope's, the largest, has 0.6 KB an entry.
LARGEST = 128 * 2**20

_OPENED = functools.partial(files.opened, links=True)


def read(path: Path, errors: str = "strict") -> str:
    """What a file in UTF-8 holds, with line ends as ``\\n``.

    :arg errors: what becomes of bytes that are no UTF-8, as for :func:`open`.
    :raises OSError: if it is not there, cannot be read, is no regular file, or is larger than
        :data:`LARGEST`; its ``strerror`` says which.
    :raises UnicodeDecodeError: if it is not in UTF-8.
    """
    with open(path, encoding="utf-8", errors=errors, opener=_OPENED) as stream:
        size = os.fstat(stream.fileno()).st_size
        # It may grow meanwhile.
        text = stream.read(LARGEST + 1) if size <= LARGEST else ""
    size = max(size, len(text))
    if size > LARGEST:
        told = f"it has {size} bytes; of no output are more than {LARGEST} read"
        raise OSError(errno.EFBIG, told, str(path))
    return text
