"""Which nodes meet in which round of a check that measures pairs."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np


def rounds(nodes: list[str], seed: int = 0) -> list[list[tuple[str, str]]]:
    """Rounds of random pairs: every node is in one pair of a round, and no two meet twice.

    There are 2·log2 of the number of nodes, rounded up, or as many as it takes until all have met.
    Of an odd number one node sits out in each round, none twice before all have.

    :arg seed: another one gives other pairs; the same gives the same.
    """
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(nodes))
    if len(names) < 2:
        return []
    # The circle method: node i meets node -i + 2r (modulo the number) in round r; None sits out.
    seats = [names[i] for i in random.permutation(len(names))] + [None] * (len(names) % 2)
    turning = len(seats) - 1
    count = min(math.ceil(2 * math.log2(len(names))), turning)
    return [
        [
            (first, second)
            for first, second in _meeting(seats, int(turn), turning)
            if first is not None and second is not None
        ]
        for turn in random.permutation(turning)[:count]
    ]


_Seat = TypeVar("_Seat")


def _meeting(seats: list[_Seat], turn: int, turning: int) -> list[tuple[_Seat, _Seat]]:
    """The pairs of one turn; the last seat does not move and meets the one left over."""
    pairs = [(seats[turn], seats[-1])]
    pairs += [
        (seats[(turn + i) % turning], seats[(turn - i) % turning])
        for i in range(1, len(seats) // 2)
    ]
    return pairs
