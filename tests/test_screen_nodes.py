"""Screening of nodes: which of them are flagged, on which night, and which recover."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fleet import Fleet
from plumbline.analysis.screen import Group, detection, repeats, screen
from screened import found, who


def test_healthy_fleets_have_hardly_a_flag_under_common_mode_variation():
    """60,000 healthy values: 0.02 in 1,000 would be 1.2."""
    fleets = [Fleet(seed, nights=20, common_mode=0.05).values() for seed in range(6)]
    assert sum(len(found(group).flagged) for group in fleets) <= 1


def test_a_slow_node_is_flagged_with_date_and_size():
    fleet = Fleet(5, nights=20, noise=0.01, slow={("n123",): (9, 0.08)})
    (one,) = found(fleet.values()).flagged
    assert (one.kind, one.name, one.night, one.since, one.until) == (
        "node", ("n123",), "9", "9", None)  # fmt: skip
    assert one.size == pytest.approx(0.08, abs=0.01)
    assert one.confidence > 0.999


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_slow_is_the_side_that_is_worse(better):
    fleet = Fleet(6, nights=10, noise=0.01, slow={("n001",): (5, 0.10)})
    fast = ("n002",)
    group = fleet.values()
    for (_, unit), values in group.values.items():
        if unit == fast:
            values[0] *= 1.1
    if better == "lower":
        group.better = "lower"
        group.values = {key: [1 / v for v in values] for key, values in group.values.items()}
    (one,) = found(group).flagged
    assert one.name == ("n001",)
    assert one.size == pytest.approx(0.10, abs=0.015)


def test_the_first_session_flags_what_stands_out_enough():
    """11 % at 2 % noise is 5.5 standard deviations."""
    names = [
        who(found(Fleet(seed, nights=1, slow={("n123",): (0, 0.11)}).values()))
        for seed in range(100, 110)
    ]
    assert names.count({("node", ("n123",))}) >= 7
    assert all(named <= {("node", ("n123",))} for named in names)


def test_nodes_that_always_differ_are_compared_with_their_own_past():
    fleet = Fleet(7, nights=25, noise=0.005, levels=0.05, slow={("n050",): (15, 0.04)})
    (one,) = found(fleet.values()).flagged
    assert one.name == ("n050",)
    assert one.since == "15"


def test_a_small_loss_is_flagged_after_enough_nights():
    fleet = Fleet(8, nights=30, noise=0.02, slow={("n050",): (10, 0.04)})
    (one,) = found(fleet.values()).flagged
    assert 12 <= int(one.night) <= 25
    assert abs(int(one.since) - 10) <= 3


def test_a_judgement_uses_what_was_known_on_the_night():
    """Later nights change no earlier judgement."""
    fleet = Fleet(9, nights=30, slow={("n050",): (10, 0.05), ("n060",): (14, 0.08)})
    group = fleet.values()
    whole = {(one.name, one.night) for one in found(group).flagged}
    for last in (11, 15, 29):
        early = {key: rows for key, rows in group.values.items() if int(key[0]) <= last}
        cut = {(one.name, one.night) for one in found(Group("", "higher", early)).flagged}
        assert cut == {(name, night) for name, night in whole if int(night) <= last}


def test_repeats_of_suspects_flag_on_the_same_night():
    """Eight per cent of single values of 2 % noise is not enough; three more of suspects are."""
    at_once, false = {1: 0, 4: 0}, 0
    for seed in range(100, 108):
        slow = {(f"n{n:03d}",): (n % 15 + 2, 0.08) for n in (10, 20, 30, 40, 50)}
        fleet = Fleet(seed, nights=20, slow=slow)
        group = fleet.values()
        for rows in at_once:
            if rows == 4:
                fleet.again(group, screen([group], all_suspects=True).suspects, 3)
            for one in found(group).flagged:
                false += one.name not in slow
                at_once[rows] += int(one.night) == slow.get(one.name, (None,))[0]
    assert at_once[4] >= 36 > 25 > at_once[1]
    assert false <= 2


@pytest.mark.parametrize(
    ("more", "named"), [([], True), ([1.0], False), ([1.0, 1.004, 0.997], False), ([0.81], True)]
)
def test_a_healthy_repeat_refutes_the_first_value(more, named):
    group = Fleet(11, nights=10, noise=0.01).values()
    level = np.median([v[0] for (night, _), v in group.values.items() if night == "9"])
    group.values["9", ("n007",)] = [0.8 * level, *(value * level for value in more)]
    assert who(found(group)) == ({("node", ("n007",))} if named else set())


@pytest.mark.parametrize("others", [0, 5])
def test_a_node_that_is_measured_alone_or_with_slow_ones_has_not_recovered(others: int):
    slow = {(f"n{number:03d}",): (10, 0.1) for number in range(1 + others)}
    group = Fleet(81, nodes=40, nights=16, noise=0.01, slow=slow).values()
    group.values = {
        at: rows for at, rows in group.values.items() if int(at[0]) < 12 or at[1] in slow
    }
    assert {flag.name for flag in found(group).now} == {*slow}


@pytest.mark.parametrize("figures", [1, 4])
def test_nodes_of_which_a_part_is_measured_each_night_are_screened(figures: int):
    """None on two successive nights."""
    groups = Fleet(79, nodes=120, nights=60, slow={("n007",): (30, 0.1)}).figures(figures)
    for group in groups:
        group.values = {
            (night, unit): rows for (night, unit), rows in group.values.items()
            if (int(night) + int(unit[0][1:])) % 3 == 0
        }  # fmt: skip
    (one,) = screen(groups).flagged
    assert (one.name, one.until) == (("n007",), None)
    assert one.size == pytest.approx(0.1, abs=0.02)


def test_nodes_of_two_systems_with_one_name_are_two():
    """Only that of the first is slow."""
    first, second = (
        Fleet(seed, nodes=200, nights=20, slow=slow).figures(4)
        for seed, slow in ((90, {("n007",): (15, 0.08)}), (1090, {}))
    )
    for number, group in enumerate([*first, *second]):
        group.system, group.label = ("one", "two")[number // 4], f"figure {number}"
    (one,) = screen([*first, *second]).flagged
    assert one.systems == {"one"}
    assert {*one.evidence} <= {group.label for group in first}


def test_a_fixed_node_recovers_and_can_be_flagged_again():
    fleet = Fleet(12, nights=30, noise=0.01, slow={("n010",): (8, 0.10)})
    group = fleet.values()
    for night in [*range(14, 22)]:
        group.values[f"{night}", ("n010",)][0] /= 0.9
    first, again = found(group).flagged
    assert (first.since, first.until) == ("8", "13")
    assert (again.since, again.until) == ("22", None)


def test_suspects_are_of_the_last_night_and_not_flagged():
    fleet = Fleet(13, nights=10, slow={("n010",): (9, 0.07), ("n011",): (3, 0.2)})
    screening = found(fleet.values())
    assert ("node", ("n010",)) in {*screening.suspects, *who(screening)}
    assert ("node", ("n011",)) not in screening.suspects
    assert 1 <= len(screening.suspects) <= 50
    assert screening.retest() == sorted({name[0] for _, name in screening.suspects})


def test_the_newly_flagged_are_measured_again_too():
    fleet = Fleet(14, nodes=60, nights=10, slow={("n010",): (9, 0.2), ("n011",): (3, 0.2)})
    screening = found(fleet.values())
    assert screening.drain() == ["n010", "n011"]
    assert "n010" in screening.retest()
    assert "n011" not in screening.retest()


def test_usual_outliers_of_one_night_flag_nothing():
    """One value in a hundred is far too slow for a night: a name takes more than one such night."""
    fleet = Fleet(20, nights=40, noise=0.01, slow={("n123",): (30, 0.06)})
    group = fleet.values()
    for values in group.values.values():
        if fleet.random.random() < 0.01:
            values[0] *= 1 - fleet.random.uniform(0.1, 0.4)
    named = found(group).flagged
    assert [one.name for one in named if int(one.night) >= 10].count(("n123",)) == 1
    # Nothing is known of the first nights' outliers but the outliers.
    assert len([one for one in named if one.name != ("n123",) and int(one.night) >= 10]) <= 2


def test_missing_nodes_do_not_move_the_others():
    fleet = Fleet(21, nights=20, noise=0.01, levels=0.05, slow={("n123",): (12, 0.08)})
    group = fleet.values()
    for key in [*group.values]:
        if fleet.random.random() < 0.3 and key[1] != ("n123",):
            del group.values[key]
    (one,) = found(group).flagged
    assert one.name == ("n123",)


def test_a_node_that_was_not_measured_is_not_flagged():
    fleet = Fleet(22, nights=12, noise=0.01, slow={("n123",): (10, 0.3)})
    group = fleet.values()
    for night in ("10", "11"):
        del group.values[night, ("n123",)]
    assert found(group).flagged == []


def test_a_slow_node_is_slow_since_a_night_on_which_it_was_measured():
    """It was away for five nights before, and for one later."""
    fleet = Fleet(25, nodes=40, nights=15, noise=0.01, slow={("n003",): (10, 0.2)})
    group = fleet.values()
    for night in (5, 6, 7, 8, 9, 11):
        del group.values[f"{night}", ("n003",)]
    (one,) = found(group).flagged
    assert (one.since, one.night, one.until) == ("10", "10", None)
    del group.values["10", ("n003",)]
    (one,) = found(group).flagged
    assert one.since == "12"


def test_equal_values_flag_and_hide_nothing():
    group = Group("", "higher")
    for night, node in itertools.product(range(10), range(50)):
        slow = node == 7 and night >= 6
        group.values[f"{night}", (f"n{node}",)] = [95.0 if slow else 100.0]
    assert who(found(group)) == {("node", ("n7",))}
    still = {key: [100.0] for key in group.values}
    assert found(Group("", "higher", still)).flagged == []


def test_a_last_digit_is_no_slowness():
    """Printed as 9.9 or 10.0, mostly the latter."""
    random = np.random.default_rng(3)
    group = Group("", "higher")
    for night, node in itertools.product(range(20), range(100)):
        value = 9.9 if random.random() < 0.1 else 10.0
        group.values[f"{night}", (f"n{node}",)] = [value]
    assert found(group).flagged == []


@pytest.mark.parametrize(("values", "floor"), [
    ([1000.0], 1e-3), ([1000.0, 900.0], 1e-3), ([2400e6], 1e-3), ([8.0, 7.0], 0.5 / 7.5),
    ([20.0], 0.5 / 20), ([0.46], 0.005 / 0.46), ([9.9, 10.0], 0.05 / 9.95), ([1.2345], 1e-3),
])  # fmt: skip
def test_the_last_digit_of_a_whole_number_is_the_one(values: list[float], floor: float):
    assert detection.floor_of(values) == pytest.approx(floor)


def test_a_loss_from_a_round_number_is_flagged():
    slow = ("n007",)
    values = {
        (f"{night}", (f"n{node:03d}",)): [900.0 if node == 7 and night >= 5 else 1000.0]
        for night, node in itertools.product(range(8), range(100))
    }
    assert who(found(Group("", "higher", values))) == {("node", slow)}


@pytest.mark.parametrize(("value", "first"), [(0.65, "flagged"), (0.52, "suspect"), (0.47, "")])
def test_among_few_equal_values_one_far_off_does_not_hide_and_a_digit_is_none(value, first):
    """Six nodes, two digits printed; what is a suspect at first is flagged once nights agree."""
    values = {("0", (f"n{node}",)): [value if node == 4 else 0.46] for node in range(6)}
    screening = found(Group("", "lower", values))
    unit = ("node", ("n4",))
    assert (unit in screening.suspects, who(screening)) == (
        first == "suspect", {unit} if first == "flagged" else set())  # fmt: skip
    more = {(f"{night}", unit): rows for night in range(8) for (_, unit), rows in values.items()}
    assert who(found(Group("", "lower", more))) == ({unit} if first else set())


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_two_generations_of_hardware_are_compared_apart(share):
    slow = {("n005",): (0, 0.06), ("n007",): (6, 0.1), ("n193",): (0, 0.06), ("n195",): (7, 0.1)}
    fleet = Fleet(24, nodes=200, nights=12, noise=0.01, slow=slow)
    fleet.of_nodes[: int(200 * share)] *= 0.8
    screening = found(fleet.values())
    assert {name for _, name in who(screening)} == set(slow)
    (message,) = screening.messages
    assert f"{int(200 * share)} slower" in message


@pytest.mark.parametrize("name", ["n000", "n199"])
def test_a_node_that_came_later_is_compared_with_its_own_generation(name):
    fleet = Fleet(24, nodes=200, nights=12, noise=0.01, slow={("n007",): (6, 0.1)})
    fleet.of_nodes[:100] *= 0.8
    group = fleet.values()
    for night in range(6):
        del group.values[f"{night}", (name,)]
    screening = found(group)
    assert who(screening) == {("node", ("n007",))}
    assert "100 slower and 100 faster" in screening.messages[0]


@pytest.mark.parametrize("since", [0, 6])
def test_a_fifth_of_the_nodes_slow_at_once_is_flagged(since):
    slow = {(f"n{i:03d}",): (since, 0.10) for i in range(0, 200, 5)}
    fleet = Fleet(25, nodes=200, nights=12, noise=0.02, slow=slow)
    names = {name for _, name in who(found(fleet.values()))}
    assert names <= set(slow)
    assert len(names) >= 38


def test_when_half_of_the_nodes_fall_none_is_flagged():
    slow = {(f"n{i:03d}",): (6, 0.10) for i in range(0, 200, 2)}
    screening = found(Fleet(26, nodes=200, nights=12, noise=0.01, slow=slow).values())
    assert len(screening.flagged) <= 2
    assert screening.messages


def test_the_width_of_scores_is_of_the_fast_half_of_each_test():
    random = np.random.default_rng(3)
    z = random.standard_normal((4, 101)) * np.array([[1.0], [3.0], [3.0], [1.0]])
    z[0, :50] = np.nan
    z[2, 4 * detection.FEWEST - 1 :] = np.nan
    z[3] = np.nan
    known = z[1] - np.median(z[1])
    fast = detection.MAD_TO_STD * np.median(-known[known <= 0])
    assert detection.excess_width(z).tolist() == [1.0, fast, 1.0, 1.0]


def test_autocorrelated_levels_widen_the_limits():
    """Each node has its own autocorrelated noise: no flag of a fleet of 300 in 60 nights."""
    random = np.random.default_rng(8)
    slow = np.zeros(300)
    group = Group("", "higher")
    for night in range(60):
        slow = 0.8 * slow + random.normal(0, 0.012, 300)
        for i, value in enumerate(100 * np.exp(slow + random.normal(0, 0.01, 300))):
            group.values[f"{night}", (f"n{i}",)] = [value]
    assert len(found(group).flagged) <= 1


def test_the_shares_of_the_tests_sum_up_to_the_rate():
    assert sum(detection.SHARES.values()) == pytest.approx(1)


def test_what_repeats_have_in_common_does_not_shrink():
    """Five repeats that share a night's noise say little more than one."""
    random = np.random.default_rng(1)
    cells = {}
    for night, unit in itertools.product(range(20), range(100)):
        shared = random.normal(0, 0.02)
        cells[night, unit] = (shared + random.normal(0, 0.005, 5)).tolist()
    _, factors = repeats.combine(cells, 20, 100)
    assert factors[0, 0] == pytest.approx(1, abs=0.1)
    apart = {cell: random.normal(0, 0.02, 5).tolist() for cell in cells}
    _, factors = repeats.combine(apart, 20, 100)
    assert factors[0, 0] == pytest.approx(0.2, abs=0.05)


def test_a_node_that_is_not_measured_any_more_is_not_listed():
    group = Fleet(62, nodes=24, nights=20 + detection.MEMORY, slow={("n007",): (12, 0.15)}).values()
    left = dict(group.values)
    for last, until in ((19, "19"), (20, None)):
        group.values = {
            (night, unit): rows for (night, unit), rows in left.items()
            if unit != ("n007",) or int(night) <= last
        }  # fmt: skip
        (one,) = found(group).flagged
        assert (one.name, one.until) == (("n007",), until)
