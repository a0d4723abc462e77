"""Read the files of a job, if they are regular and not too large.

A faulty program can fill a disk with one line, and a job can replace its output by a FIFO or a link
to ``/dev/zero``. Neither may block the reading process or fill its memory.
"""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path

from plumbline.core import files

#: Bytes of the largest file that is read. The largest valid one is a job's standard error, to which
#: each task and each node writes a line (``task.sh``): of all of Frontier, 9,408 nodes with 2 KB
#: and 56 tasks with 60 bytes each, it has 50 MB. As much again remains for programs' messages.
#: Reports are smaller: the largest, Comm|Scope's, has 0.6 KB per entry.
LARGEST = 128 * 2**20

_OPENER = functools.partial(files.open_regular, follow_links=True)


def read(path: Path, errors: str = "strict") -> str:
    """Return the text of a file in UTF-8, with line ends as ``\\n``.

    :arg errors: how to decode bytes that are not UTF-8, as for :func:`open`.
    :raises OSError: if it does not exist, cannot be read, is not a regular file, or is larger than
        :data:`LARGEST`; ``strerror`` has the reason.
    :raises UnicodeDecodeError: if it is not in UTF-8.
    """
    with open(path, encoding="utf-8", errors=errors, opener=_OPENER) as stream:
        size = os.fstat(stream.fileno()).st_size
        # The file may grow meanwhile.
        text = stream.read(LARGEST + 1) if size <= LARGEST else ""
    size = max(size, len(text))
    if size > LARGEST:
        raise OSError(errno.EFBIG, f"it has {size} bytes, more than {LARGEST}", str(path))
    return text
