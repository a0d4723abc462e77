"""The order of HPL's matrix for a run of HPC Challenge, by a model of how long the run takes.

hpcc 1.5 cannot omit parts: ``HPCC_Init`` (``src/io.c``) sets every ``Run...`` to 1, and all sizes
follow from the order N. With P tasks, a task's share of the matrix is M = 8 N²/P bytes:

- HPL does 2/3 N³ operations on all tasks.
- DGEMM (star and single) does 2 n³ operations on one task, with three matrices of n² in M.
- RandomAccess has a table of T words, the power of two in (M/16, M/8]. Four parts (star and
  single, with two generators) do 4 T updates, and 4 T to verify them, on one task. Two MPI parts
  do the same on all tasks, with messages of up to 1024 updates, and stop after 60 s
  (``time_bound.h``).
- STREAM, FFT and PTRANS pass over M a few times.
- The latency and bandwidth part exchanges a fixed number of messages.

If cores are shared, each message also waits until its receiver gets a core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Smallest order. Larger ones double step by step, so that a probe with a slightly different result
#: does not change the size, and with it what the figures mean.
SMALLEST = 960

#: Longest predicted time of a run on this machine, in seconds.
BUDGET = 100.0

#: Largest share of the memory for the matrix, if the size is chosen by time.
MEMORY = 0.5

#: Bytes per number.
DOUBLE = 8

#: Rate of HPL relative to DGEMM's; rates of random updates relative to a table in cache: of a table
#: in memory, and of each task if the updates are messages. Measured on two cores (AMD EPYC of 2024,
#: Open MPI 4.1).
_HPL, _IN_MEMORY, _AS_MESSAGES = 0.6, 0.1, 0.008

#: Longest time of an MPI RandomAccess with its verification, in seconds: twice its 60 s.
_BOUND = 120.0

#: Total bytes per second of the parts that pass over a task's share.
_PASSES = 1e8

#: Waits for another task: in the latency and bandwidth part, STREAM's barriers and PTRANS; per row
#: of HPL's matrix; per update of an MPI RandomAccess.
_WAITS, _WAITS_HPL, _WAITS_UPDATE = 2650, 0.65, 1 / 2048


@dataclass(frozen=True)
class Speed:
    """Speed of one task.

    :ivar flops: operations per second in DGEMM.
    :ivar updates: random updates per second in a table of 4 MiB.
    :ivar wait: seconds that a message waits until its receiver gets a core.
    """

    flops: float
    updates: float
    wait: float = 0.0


#: Speed to assume if the machine cannot be probed: a slow core of the last ten years.
SLOW = Speed(8e9, 0.3e9)


def share(order: int, tasks: int) -> float:
    """Return the bytes of the matrix per task."""
    return DOUBLE * order**2 / tasks


def vector(order: int, tasks: int) -> float:
    """Return the bytes per task of one of STREAM's three vectors."""
    return share(order, tasks) / 3


def table(order: int, tasks: int) -> int:
    """Return the words per task of RandomAccess' table."""
    return 2 ** (math.floor(math.log2(share(order, tasks) / 16)) + 1)


def seconds(order: int, tasks: int, speed: Speed) -> float:
    """Return the predicted time of a run in seconds."""
    hpl = 2 / 3 * order**3 / (tasks * _HPL * speed.flops)
    dgemm = 2 * 2 * (share(order, tasks) / DOUBLE / 3) ** 1.5 / speed.flops
    updates = 4 * table(order, tasks)
    single = 4 * 2 * updates / (_IN_MEMORY * speed.updates)
    waits = updates * tasks * _WAITS_UPDATE * speed.wait
    parallel = 2 * min(_BOUND, updates / (_AS_MESSAGES * speed.updates) + waits)
    rest = share(order, tasks) / _PASSES + (_WAITS + _WAITS_HPL * order) * speed.wait
    return hpl + dgemm + single + parallel + rest


def smallest_valid(cache: int, tasks: int) -> float:
    """Return the smallest order at which STREAM's vectors on each task are four times the cache, as
    STREAM's rules require."""
    return math.sqrt(3 * tasks * 4 * cache / DOUBLE)


def largest(memory: int, fraction: float) -> float:
    """Return the order of the matrix that fills a fraction of the memory."""
    return math.sqrt(fraction * memory / DOUBLE)


def order_by_time(
    tasks: int, cache: int, memory: int, speed: Speed, budget: float = BUDGET, block: int = 192
) -> int:
    """Return the order for a run within a budget of seconds.

    It is the smallest order that satisfies STREAM's rules. If that exceeds budget or memory, it is
    the largest of the doubling orders that does not, but at least :data:`SMALLEST`.

    :arg cache: bytes of the last-level cache.
    :arg memory: bytes of the machine's memory.
    """
    needed, chosen = multiple(smallest_valid(cache, tasks), block), multiple(SMALLEST, block)
    doubling = (multiple(SMALLEST * 2**step, block) for step in range(1, 20))
    for order in [*(order for order in doubling if order < needed), needed]:
        if order <= largest(memory, MEMORY) and seconds(order, tasks, speed) <= budget:
            chosen = order
    return chosen


def multiple(order: float, block: int) -> int:
    """Return the order, rounded up to a multiple of HPL's blocks."""
    return max(1, math.ceil(order / block)) * block


def order_by_cache(
    tasks: int, cache: int, memory: int, speed: Speed, budget: float, block: int = 192
) -> int:
    """Return the order for a machine that cannot be probed, by its declared properties alone.

    It is the smallest order that satisfies STREAM's rules, or a smaller one if a run would take
    longer than the budget's seconds or need too much memory.

    :arg cache: bytes of the last-level cache.
    :arg memory: bytes of a node's memory.
    """
    order = multiple(min(smallest_valid(cache, tasks), largest(memory, 0.8) - block), block)
    while order > block and seconds(order, tasks, speed) > budget:
        order -= block
    return order
