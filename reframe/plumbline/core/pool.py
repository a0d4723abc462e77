"""Work in several processes, and in a thread."""

from __future__ import annotations

import collections
import concurrent.futures
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")

#: Two, since each has what it works on in memory, and a report may be made on a login node.
PROCESSES = 2


def ahead(given: Iterable[Given]) -> Iterator[Given]:
    """Yield the same; while one is used, the next is made in a thread."""
    items, end = iter(given), object()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        made = thread.submit(next, items, end)
        while (item := made.result()) is not end:
            made = thread.submit(next, items, end)
            yield item  # type: ignore[misc]


def mapped(
    function: Callable[[Given], Result], given: Iterable[Given], processes: int = PROCESSES
) -> Iterator[Result]:
    """Yield the results of a function in the order of its arguments, from several processes; only
    a few arguments are in memory at a time."""
    # Spawned, since a fork would not copy the threads of the history's index.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        pending: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
        for argument in given:
            pending.append(pool.submit(function, argument))
            if len(pending) > 2 * processes:
                yield pending.popleft().result()
        for future in pending:
            yield future.result()
