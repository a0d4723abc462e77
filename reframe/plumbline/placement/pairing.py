"""The rounds of a check that measures pairs of nodes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

Pair = tuple[str, str]

#: Fewest rounds of either kind. In racks of five nodes, these are all pairs. A node's fitted part
#: has a fortieth of the loss of a single slow pair from four partners, and a quarter from three.
FEWEST = 5


def rounds(
    nodes: list[str], seed: int = 0, racks: Mapping[str, str] | None = None
) -> list[list[Pair]]:
    """Return rounds of random pairs: each node is in at most one pair per round, and no pair
    repeats.

    There are 2·log2 of the number of nodes, rounded up, or fewer if all pairs have met by then.
    With an odd number, one node is idle in each round, and none twice before all others.

    If the racks are known, a round has pairs within racks, or pairs between racks, and not both:
    half of the rounds are of either kind, and at least five, as far as there are so many. In each
    round between racks the uplink of a rack carries the same number of pairs, or one less if the
    number of racks is odd. So pairs are slowed by each other's traffic equally, and not by chance.

    :arg seed: the same seed gives the same pairs.
    :arg racks: node -> its rack.
    """
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(nodes))
    if len(names) < 2:
        return []
    count = math.ceil(2 * math.log2(len(names)))
    members: dict[str, list[str]] = defaultdict(list)
    for name in names:
        members[racks[name] if racks else ""].append(name)
    shuffled = [
        [listed[i] for i in random.permutation(len(listed))]
        for _, listed in sorted(members.items())
    ]
    between = _between(shuffled, random)
    of_kind = max(math.ceil(count / 2), FEWEST) if between else count
    return [*_within(shuffled, random, of_kind), *between[:of_kind]]


def sharing(pairs: Iterable[Pair], racks: Mapping[str, str]) -> dict[Pair, int]:
    """Return how many pairs of a round share the uplink with each of them, the pair included.

    Of its two uplinks, the one with more pairs counts. It is 0 within a rack. A pair with a node
    whose rack is not known is omitted.
    """
    known = [pair for pair in pairs if {*pair} <= racks.keys()]
    of = {pair: {racks[node] for node in pair} for pair in known}
    used = Counter(rack for both in of.values() if len(both) > 1 for rack in both)
    return {
        pair: max(used[rack] for rack in both) if len(both) > 1 else 0 for pair, both in of.items()
    }


def _within(members: list[list[str]], random: np.random.Generator, count: int) -> list[list[Pair]]:
    """Return so many rounds of pairs within racks, or fewer if all have met by then."""
    found: list[list[Pair]] = [[] for _ in range(count)]
    for names in members:
        # The circle method: node i meets node -i + 2r (modulo the number) in round r; None idles.
        seats = [*names] + [None] * (len(names) % 2)
        for into, turn in zip(found, random.permutation(len(seats) - 1), strict=False):
            into += [
                (first, second)
                for first, second in _pairs(seats, int(turn))
                if first is not None and second is not None
            ]
    return [pairs for pairs in found if pairs]


def _between(members: list[list[str]], random: np.random.Generator) -> list[list[Pair]]:
    """Return rounds of pairs between racks, until none without a pair of an earlier one is found.

    The racks of the nodes at each place in their rack are paired by the circle method. From round
    to round, another rack's nodes are at this place, and racks are paired in another way.
    """
    most = max(map(len, members))
    # Racks that have a node at each place, and no rack for the one that idles.
    at: list[list[int | None]] = []
    for place in range(most):
        racks: list[int | None] = [k for k, names in enumerate(members) if len(names) > place]
        at.append(racks + [None] * (len(racks) % 2))
    found, met = [], set[frozenset[str]]()
    for turn in random.permutation(most * max(len(at[0]) - 1, 1)).tolist():
        pairs = []
        for place, racks in enumerate(at):
            if len(racks) < 2:
                continue
            for one, other in _pairs(racks, (turn + place) % (len(racks) - 1)):
                if one is not None and other is not None:
                    pairs.append((_at(members, one, place, turn), _at(members, other, place, turn)))
        if pairs and met.isdisjoint(map(frozenset, pairs)):
            met.update(map(frozenset, pairs))
            found.append(pairs)
    return found


def _at(members: list[list[str]], rack: int, place: int, turn: int) -> str:
    """Return the node of a rack at a place, which moves from turn to turn."""
    return members[rack][(place + rack * turn) % len(members[rack])]


_Seat = TypeVar("_Seat")


def _pairs(seats: list[_Seat], turn: int) -> list[tuple[_Seat, _Seat]]:
    """Return the pairs of one turn; the last seat does not move."""
    moving = len(seats) - 1
    return [(seats[turn], seats[-1])] + [
        (seats[(turn + i) % moving], seats[(turn - i) % moving]) for i in range(1, len(seats) // 2)
    ]
