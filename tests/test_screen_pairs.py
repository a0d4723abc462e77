"""Screening of GPUs, of pairs of nodes, and of links, switches and uplinks between them."""

from __future__ import annotations

import pytest
from fleet import Fleet, Racks
from plumbline.analysis.screen import screen
from plumbline.placement.pairing import rounds
from screened import found, who


@pytest.mark.parametrize("loss", [0.08, 0.15, 0.3])
def test_a_link_has_its_whole_loss_and_its_pairs_none(loss):
    fleet = Fleet(36, nights=3, slow={("link", "s03", "s07"): (1, loss)})
    (one,) = found(fleet.pairs(), fleet).flagged
    assert (one.kind, one.name, one.since) == ("link", ("s03", "s07"), "1")
    assert one.size == pytest.approx(loss, abs=0.015)


def test_a_slow_link_between_nodes_without_other_partners_hides_nothing_else():
    """On the last night one pair crosses it, whose nodes were measured with no other node."""
    slow = {("link", "s03", "s07"): (1, 0.3), ("n200",): (2, 0.3)}
    fleet = Fleet(36, nights=3, slow=slow)
    group, of = fleet.pairs(), fleet.switch_of()
    tonight = [pair for night, pair in group.pairs if night == "2"]
    across = [pair for pair in tonight if {of[node] for node in pair} == {"s03", "s07"}]
    for pair in tonight:
        if pair != across[0] and (pair in across or {*pair} & {*across[0]}):
            del group.pairs["2", pair]
    assert who(found(group, fleet)) == {("link", ("s03", "s07")), ("node", ("n200",))}


def test_one_slow_gpu_and_a_slow_node_are_distinguished():
    slow = {("n007", "gpu2"): (6, 0.12), ("n090",): (6, 0.08)}
    fleet = Fleet(130, nodes=100, nights=10, slow=slow)
    screening = found(fleet.values(gpus=4))
    assert who(screening) == {("gpu", ("n007", "gpu2")), ("node", ("n090",))}
    assert screening.drain() == ["n007", "n090"]


def test_gpus_are_compared_with_those_of_their_place():
    fleet = Fleet(31, nodes=100, nights=8, noise=0.01)
    group = fleet.values(gpus=4)
    for (_, unit), values in group.values.items():
        values[0] *= {"gpu0": 1.0, "gpu1": 0.9, "gpu2": 1.1, "gpu3": 0.85}[unit[1]]
    assert found(group).flagged == []


def test_a_slow_switch_is_flagged_and_not_its_nodes():
    slow = {("switch", "s04"): (5, 0.06), ("n200",): (6, 0.08)}
    fleet = Fleet(32, nights=10, noise=0.01, slow=slow)
    screening = found(fleet.values(), fleet)
    assert who(screening) == {("switch", ("s04",)), ("node", ("n200",))}
    assert screening.drain() == ["n200"]


def test_pairs_distinguish_node_link_and_switch():
    slow = {("n007",): (1, 0.08), ("link", "s03", "s07"): (1, 0.08), ("switch", "s10"): (1, 0.08)}
    fleet = Fleet(33, nights=3, slow=slow)
    screening = found(fleet.pairs(), fleet)
    assert who(screening) == {
        ("node", ("n007",)), ("link", ("s03", "s07")), ("switch", ("s10",))}  # fmt: skip
    assert {one.since for one in screening.flagged} == {"1"}


def test_a_fixed_cable_recovers():
    fleet = Fleet(37, nodes=12, nights=9, noise=0.01)
    group = fleet.pairs()
    met = [int(night) for night, pair in group.pairs if pair == ("n003", "n005")]
    for night in met[2:-2]:
        group.pairs[f"{night}", ("n003", "n005")][0] *= 0.8
    (one,) = found(group).flagged
    assert (one.kind, one.name) == ("pair", ("n003", "n005"))
    assert (one.since, one.until) == (f"{met[2]}", f"{met[-3]}")
    group.pairs[f"{met[-1]}", ("n003", "n005")] = fleet.pair(met[-1], "n003", "n005", 2)
    for row in range(2):
        group.pairs[f"{met[-1]}", ("n003", "n005")][row] *= 0.8
    again = found(group).flagged
    assert [(two.since, two.until) for two in again[1:]] == [(f"{met[-1]}", None)]


@pytest.mark.parametrize(("nights", "loss"), [(2, 0.08), (3, 0.25)])
def test_the_loss_of_a_node_grows_with_its_last_three_nights(nights, loss):
    fleet = Fleet(39, nodes=60, nights=20, noise=0.01, slow={("n007",): (6, 0.08)})
    group = fleet.values()
    for night in range(20 - nights, 20):
        group.values[f"{night}", ("n007",)][0] *= 0.75 / 0.92
    (one,) = found(group).flagged
    assert (one.until, one.size) == (None, pytest.approx(loss, abs=0.02))


@pytest.mark.parametrize(("nights", "loss"), [(1, 0.2), (2, 0.4)])
def test_the_loss_of_a_pair_grows_with_its_last_two_nights(nights, loss):
    fleet = Fleet(37, nodes=12, nights=14, noise=0.01)
    group = fleet.pairs()
    met = [night for night, pair in group.pairs if pair == ("n003", "n005")]
    for night in met[2:]:
        group.pairs[night, ("n003", "n005")][0] *= 0.6 if night in met[-nights:] else 0.8
    (one,) = found(group).flagged
    assert (one.kind, one.until, one.size) == ("pair", None, pytest.approx(loss, abs=0.03))


@pytest.mark.parametrize("nights", [1, 2])
def test_the_loss_of_an_uplink_of_few_racks_grows_with_its_last_two_nights(nights):
    machine = Racks(3, sizes=(5, 5), slow={"r0": (14, 0.3)})
    groups = machine.groups()
    (before,) = screen(groups, machine.racks).flagged
    for (night, _), values in groups[1].pairs.items():
        if int(night) >= machine.nights - nights:
            values[0] *= 0.7
    (one,) = screen(groups, machine.racks).flagged
    grown = 1 - (1 - before.size) * 0.7 if nights == 2 else before.size
    assert (one.kind, one.until, one.size) == ("link", None, pytest.approx(grown, abs=0.03))


def test_a_single_cable_is_a_pair_and_both_nodes_are_healthy():
    fleet = Fleet(34, nodes=64, nights=1, noise=0.01)
    pair = rounds(fleet.names, seed=1000 * fleet.seed)[0][0]
    fleet.slow[tuple(sorted(pair))] = 0, 0.15
    group = fleet.pairs()
    # A single value is no evidence; it is repeated in the same night.
    screening = found(group)
    assert who(screening) == set() and {*pair} <= {*screening.retest()}
    fleet.again(group, [("pair", tuple(sorted(pair)), "0")], 1)
    screening = found(group)
    assert who(screening) == {("pair", tuple(sorted(pair)))}
    assert screening.flagged[0].note == ""
    assert screening.flagged[0].size == pytest.approx(0.15, abs=0.03)
    assert screening.drain() == []


def test_with_one_partner_each_the_node_is_uncertain():
    fleet = Fleet(35, nodes=200, nights=1, noise=0.01, slow={("n007",): (0, 0.2)})
    group = fleet.pairs(only=1)
    fleet.again(group, [("pair", pair, "0") for _, pair in [*group.pairs] if "n007" in pair], 2)
    (one,) = found(group).flagged
    assert (one.kind, "n007" in one.name) == ("pair", True)
    assert "partners" in one.note


def test_an_outlier_of_one_night_flags_no_pair_and_no_node():
    """Nor does it one of many nights later, if the pair is healthy otherwise."""
    machine = Racks(7, nights=6)
    groups = machine.groups()
    for group, some in zip(groups, (("2", "4"), ("3",)), strict=True):
        for night in some:
            at = next(at for at in group.pairs if at[0] == night)
            group.pairs[at][0] *= 0.6
    screening = screen(groups, machine.racks)
    assert who(screening) == set()


def test_a_value_of_three_samples_is_no_single_measurement():
    fleet = Fleet(34, nodes=64, nights=1, noise=0.01)
    pair = tuple(sorted(rounds(fleet.names, seed=1000 * fleet.seed)[0][0]))
    fleet.slow[pair] = 0, 0.15
    group = fleet.pairs()
    group.steady = {*group.pairs}
    assert who(found(group)) == {("pair", pair)}


def test_a_pair_that_shared_an_uplink_with_another_number_than_all_is_not_judged():
    """It has no peers, and is as slow as before."""
    fleet, pair = Fleet(34, nodes=64, nights=2, noise=0.01), ("n003", "n005")
    group = fleet.pairs()
    group.pairs |= {(night, pair): [70.0] for night in "01"}
    group.steady = {*group.pairs}
    group.across = dict.fromkeys(group.pairs, 4) | {("1", pair): 3}
    screening = found(group)
    assert [(one.name, one.since, one.until) for one in screening.flagged] == [(pair, "0", None)]
    assert screening.few == {"1 pair": [""]}
    assert not screening.unsure


def test_healthy_racks_that_share_uplinks_flag_nothing():
    """With rounds that are arranged by the racks, or not."""
    for arranged in (True, False):
        machine = Racks(8, nights=10, shared=0.05)
        assert screen(machine.groups(arranged), machine.racks).flagged == []


@pytest.mark.parametrize("sizes, kind, name", [
    ((5, 5), "link", ("r0", "r1")),
    ((5, 5, 5), "switch", ("r0",)),
    ((5, 5, 5, 5), "switch", ("r0",)),
])  # fmt: skip
def test_a_slow_uplink_of_few_racks_is_flagged_and_nothing_else(sizes, kind, name):
    # Of three racks of five nodes, a pair shares an uplink with one less in some rounds.
    size = 0.24 if len(sizes) % 2 else 0.3
    machine = Racks(9, sizes, nights=5, slow={"r0": (2, 0.3)})
    (one,) = screen(machine.groups(), machine.racks).flagged
    assert (one.kind, one.name, one.night, one.until) == (kind, name, "2", None)
    assert one.size == pytest.approx(size, abs=0.03)
    # Two racks do not show which of the two it is.
    assert bool(one.note) == (kind == "link")


def test_an_uplink_whose_pairs_vary_is_flagged_by_its_second_slow_night():
    machine = Racks(604, nights=4, shared=0.15, slow={"r0": (2, 0.3)})
    groups = machine.groups()
    (one,) = screen(groups, machine.racks).flagged
    assert (one.kind, one.name) == ("link", ("r0", "r1")) and one.night in ("2", "3")
    # One such night alone is none, among healthy ones.
    healthy = Racks(605, nights=4, shared=0.15).groups()
    assert screen(healthy, machine.racks).flagged == []


def test_an_uplink_that_was_repaired_recovers():
    machine = Racks(10, nights=7, slow={"r1": (2, 0.3)})
    groups = machine.groups()
    healthy = Racks(11, nights=7).groups()
    for group, good in zip(groups, healthy, strict=True):
        group.pairs = {at: rows for at, rows in group.pairs.items() if int(at[0]) < 5}
        group.pairs |= {at: rows for at, rows in good.pairs.items() if int(at[0]) >= 5}
        group.across |= good.across
    (one,) = screen(groups, machine.racks).flagged
    assert (one.kind, one.since, one.until) == ("link", "2", "4")


@pytest.mark.parametrize(
    ("machine", "name", "night", "size", "doubt"),
    [
        # Between racks, the uplink is what limits its pairs.
        (Racks(12, nights=3, uplink=1.5, slow={"r0n3": (2, 0.1)}), "r0n3", "2", 0.1, 0.02),
        # Two partners in its rack do not show which of them is slow: all of its pairs do.
        (Racks(13, (3, 3), nights=3, slow={"r0n2": (1, 0.5)}), "r0n2", "1", 0.5, 0.03),
    ],
    ids=["rack-of-five", "rack-of-three"],
)
def test_a_slow_node_is_found_by_its_pairs(machine: Racks, name, night, size, doubt):
    (one,) = screen(machine.groups(), machine.racks).flagged
    assert (one.kind, one.name, one.night) == ("node", (name,), night)
    assert one.size == pytest.approx(size, abs=doubt)


def test_pairs_of_healthy_machines_flag_nothing():
    for seed in range(40, 43):
        fleet = Fleet(seed, nights=4)
        assert found(fleet.pairs(), fleet).flagged == []


def test_of_unequal_gpus_a_slow_one_is_flagged_and_not_its_node():
    """Healthy ones differ by 8 %: the middle of a node's GPUs would fall if one of them does."""
    for seed in range(95, 101):
        slow = {(f"n{n:03d}", "gpu1"): (8, 0.08) for n in (10, 20, 30)}
        fleet = Fleet(seed, nodes=60, nights=12, noise=0.005, parts=0.08, slow=slow)
        assert who(found(fleet.values(gpus=4))) == {("gpu", name) for name in slow}
