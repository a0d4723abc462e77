"""The rounds in which nodes are measured in pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from plumbline.placement.pairing import rounds, sharing


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 33, 500])
def test_rounds_pair_every_node_once_a_round_and_no_two_twice(count):
    names = [f"n{i}" for i in range(count)]
    made = rounds(names, seed=3)
    assert len(made) == min(np.ceil(2 * np.log2(count)), count - 1 + count % 2)
    for listed in made:
        assert len({name for pair in listed for name in pair}) == 2 * len(listed)
        assert len(listed) == count // 2
    met = [frozenset(pair) for listed in made for pair in listed]
    assert len(met) == len(set(met))


def test_of_an_odd_number_each_node_sits_out_at_most_once_until_all_have():
    names = [f"n{i}" for i in range(9)]
    out = [({*names} - {n for pair in listed for n in pair}).pop() for listed in rounds(names, 1)]
    assert len(out) == len(set(out))


SIZES = [(5, 5), (3, 7), (4, 4, 4), (5, 5, 5, 5), (2,) * 10, (1, 1, 1, 1), (16, 16, 3), (20,) * 24]


@pytest.mark.parametrize("sizes", SIZES)
def test_rounds_of_racks_are_within_or_between_them(sizes):
    racks = {
        f"r{rack}n{node}": f"r{rack}" for rack, size in enumerate(sizes) for node in range(size)
    }
    listed = rounds([*racks], 5, racks)
    assert listed == rounds([*racks], 5, racks) != rounds([*racks], 6, racks)
    out = [frozenset(pair) for pairs in listed for pair in pairs]
    assert len(out) == len(set(out)) and all(len(pair) == 2 for pair in out)
    carried = []
    for pairs in listed:
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)
        across = sharing(pairs, racks)
        assert {*across} == {*pairs}
        of = Counter(racks[node] for pair in pairs if across[pair] for node in pair)
        assert all(across[pair] == max(of[racks[node]] for node in pair)
                   for pair in pairs if across[pair])  # fmt: skip
        # A round has pairs of one kind, and each uplink carries as many in each.
        assert len({number > 0 for number in across.values()}) == 1
        carried += [of] * bool(of)
    # One less of one rack, if their number is odd.
    assert carried
    for rack in {*racks.values()}:
        assert max(of[rack] for of in carried) - min(of[rack] for of in carried) <= len(sizes) % 2
    # All uplinks of equal racks carry the same.
    if len(sizes) % 2 == 0 and len(set(sizes)) == 1:
        assert {*carried[0].values()} == {sizes[0]}
    assert sharing(out and [tuple(out[0])], {}) == {}


def test_a_seed_gives_its_pairs_again_and_another_gives_others():
    names = [f"n{i}" for i in range(20)]
    assert rounds(names, 7) == rounds(names, 7) != rounds(names, 8)


def test_one_node_or_none_has_no_pair():
    assert rounds([]) == rounds(["n1"]) == rounds(["n1", "n1"]) == []
