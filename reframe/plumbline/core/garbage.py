"""How often Python looks for cyclic garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def sought_rarely() -> Iterator[None]:
    """Seek cyclic garbage rarely: among millions of objects, that takes half of the time of making
    them. With a threshold of 200,000, the garbage of a report that waits would take half as much
    memory again."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, 30, 30)
    try:
        yield
    finally:
        gc.set_threshold(*before)
