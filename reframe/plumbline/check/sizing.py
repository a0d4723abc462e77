"""The size of HPC Challenge: how long a run takes for an order of HPL's matrix, and which to take.

hpcc 1.5 has no switch for its parts: ``HPCC_Init`` (``src/io.c``) sets every ``Run...`` to 1, and
all sizes follow from the order N. With N and P tasks, a task's share is M = 8 N²/P bytes, and

- HPL does 2/3 N³ operations on all tasks;
- DGEMM (star and single) does 2 n³ on one task, with three matrices of n² in M;
- RandomAccess has a table of T words, the power of two in (M/16, M/8]. Four parts (star and
  single, with two generators) do 4 T updates and 4 T to verify them on one task, two MPI parts the
  same on all tasks with messages of up to 1024 updates, and stop after 60 s (``time_bound.h``);
- STREAM, FFT and PTRANS pass over M a few times;
- the latency and bandwidth part exchanges a fixed number of messages.

Where cores are shared, each message waits until its receiver gets a core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Smallest order, and the first of a ladder whose rungs double: a probe that comes out somewhat
#: different on another day shall not change the size, and with it what the figures mean.
SMALLEST = 960

#: Seconds that a run may be predicted to take on the machine at hand.
BUDGET = 100.0

#: Share of the memory for the matrix where the size is chosen by time.
MEMORY = 0.5

#: Bytes of one number.
DOUBLE = 8

#: Against DGEMM's rate: HPL's. Against the rate of a table in cache: that of one in memory, and of
#: each task where the updates are messages. Measured on two cores (AMD EPYC of 2024, Open MPI 4.1).
_HPL, _IN_MEMORY, _AS_MESSAGES = 0.6, 0.1, 0.008

#: Seconds after which an MPI RandomAccess stops, and its verification takes no longer.
_BOUND = 120.0

#: Bytes a second of the parts that pass over a task's share, all of them together.
_PASSES = 1e8

#: Waits for another task: of the latency and bandwidth part, STREAM's barriers and PTRANS; for
#: each row of HPL's matrix; for each update of an MPI RandomAccess.
_WAITS, _WAITS_HPL, _WAITS_UPDATE = 2650, 0.65, 1 / 2048


@dataclass(frozen=True)
class Speed:
    """How fast one task is.

    :ivar flops: operations a second of DGEMM.
    :ivar updates: random updates a second of a table of 4 MiB.
    :ivar wait: seconds that a message waits for its receiver to get a core.
    """

    flops: float
    updates: float
    wait: float = 0.0


#: A slow core of the last ten years, where the machine cannot be probed.
SLOW = Speed(8e9, 0.3e9)


def share(order: int, tasks: int) -> float:
    """Bytes of the matrix on each task."""
    return DOUBLE * order**2 / tasks


def vector(order: int, tasks: int) -> float:
    """Bytes of one of STREAM's three vectors on each task."""
    return share(order, tasks) / 3


def table(order: int, tasks: int) -> int:
    """Words of RandomAccess' table on each task."""
    return 2 ** (math.floor(math.log2(share(order, tasks) / 16)) + 1)


def seconds(order: int, tasks: int, speed: Speed) -> float:
    """Seconds that a run takes."""
    hpl = 2 / 3 * order**3 / (tasks * _HPL * speed.flops)
    dgemm = 2 * 2 * (share(order, tasks) / DOUBLE / 3) ** 1.5 / speed.flops
    updates = 4 * table(order, tasks)
    single = 4 * 2 * updates / (_IN_MEMORY * speed.updates)
    waits = updates * tasks * _WAITS_UPDATE * speed.wait
    several = 2 * min(_BOUND, updates / (_AS_MESSAGES * speed.updates) + waits)
    rest = share(order, tasks) / _PASSES + (_WAITS + _WAITS_HPL * order) * speed.wait
    return hpl + dgemm + single + several + rest


def enough(cache: int, tasks: int) -> float:
    """The order from which on STREAM's vectors on each task are four times the cache, as STREAM's
    rules ask."""
    return math.sqrt(3 * tasks * 4 * cache / DOUBLE)


def largest(memory: int, part: float) -> float:
    """The order of the matrix that fills a part of the memory."""
    return math.sqrt(part * memory / DOUBLE)


def by_time(
    tasks: int, cache: int, memory: int, speed: Speed, budget: float = BUDGET, block: int = 192
) -> int:
    """The order for a run within a budget of seconds: the smallest that STREAM's rules take, or
    else the largest rung of the ladder that is predicted to keep to budget and memory.

    :arg cache: bytes of the last-level cache.
    :arg memory: bytes of the machine's memory.
    """
    needed, chosen = multiple(enough(cache, tasks), block), multiple(SMALLEST, block)
    rungs = (multiple(SMALLEST * 2**rung, block) for rung in range(1, 20))
    for order in [*(rung for rung in rungs if rung < needed), needed]:
        if order <= largest(memory, MEMORY) and seconds(order, tasks, speed) <= budget:
            chosen = order
    return chosen


def multiple(order: float, block: int) -> int:
    """The next multiple of HPL's blocks."""
    return max(1, math.ceil(order / block)) * block


def by_cache(
    tasks: int, cache: int, memory: int, speed: Speed, budget: float, block: int = 192
) -> int:
    """The smallest order that STREAM's rules take; smaller where a run would take longer than the
    budget's seconds, or memory ends. For a machine that cannot be probed, so that what is declared
    of it decides alone.

    :arg cache: bytes of the last-level cache.
    :arg memory: bytes of a node's memory.
    """
    order = multiple(min(enough(cache, tasks), largest(memory, 0.8) - block), block)
    while order > block and seconds(order, tasks, speed) > budget:
        order -= block
    return order
