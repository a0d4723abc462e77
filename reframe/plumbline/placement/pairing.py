"""The rounds of a check that measures pairs of nodes."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np


def rounds(nodes: list[str], seed: int = 0) -> list[list[tuple[str, str]]]:
    """Return rounds of random pairs: each node is in one pair per round, and no pair repeats.

    There are 2·log2 of the number of nodes, rounded up, or fewer if all pairs have met by then.
    With an odd number, one node is idle in each round, and none twice before all others.

    :arg seed: the same seed gives the same pairs.
    """
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(nodes))
    if len(names) < 2:
        return []
    # The circle method: node i meets node -i + 2r (modulo the number) in round r; None is idle.
    seats = [names[i] for i in random.permutation(len(names))] + [None] * (len(names) % 2)
    turns = len(seats) - 1
    count = min(math.ceil(2 * math.log2(len(names))), turns)
    return [
        [
            (first, second)
            for first, second in _pairs(seats, int(turn))
            if first is not None and second is not None
        ]
        for turn in random.permutation(turns)[:count]
    ]


_Seat = TypeVar("_Seat")


def _pairs(seats: list[_Seat], turn: int) -> list[tuple[_Seat, _Seat]]:
    """Return the pairs of one turn; the last seat does not move."""
    moving = len(seats) - 1
    return [(seats[turn], seats[-1])] + [
        (seats[(turn + i) % moving], seats[(turn - i) % moving]) for i in range(1, len(seats) // 2)
    ]
