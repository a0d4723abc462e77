"""Screening of few nodes, and of nodes that fell together: what is inconclusive."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fleet import Fleet
from plumbline.analysis.screen import Group, screen
from screened import found, who


@pytest.mark.parametrize("count", [1, 4])
def test_too_few_peers_are_not_judged(count):
    fleet = Fleet(23, nodes=count, nights=10, slow={("n000",): (5, 0.5)})
    screening = found(fleet.values())
    assert screening.flagged == []
    assert screening.unsure
    (message,) = screening.messages
    assert " 9" in message and f"{count} node" in message


@pytest.mark.parametrize("nodes", [5, 6])
def test_small_partitions_are_judged_with_the_doubt_that_they_have(nodes):
    """No false name in 200 of them, and a node at two thirds is found, though it is no peer."""
    false = 0
    for seed in range(200):
        false += len(found(Fleet(seed, nodes=nodes, nights=6).values()).flagged)
    assert false == 0
    fleet = Fleet(1, nodes=nodes, nights=12, slow={("n003",): (9, 0.33)})
    assert who(found(fleet.values())) == {("node", ("n003",))}


@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize(
    ("nodes", "loss"),
    [(5, 0.5), (5, 0.9), *itertools.product((6, 7, 8, 10), (0.3, 0.5, 0.9))],
)
def test_a_large_loss_against_tight_peers_is_flagged_on_any_night(nodes, loss, earlier):
    """As ten disks at 39.0 to 39.9 MB/s, and one that loses a half."""
    for seed in range(300, 306):
        slow = {("n003",): (earlier, loss)}
        fleet = Fleet(seed, nodes=nodes, nights=earlier + 1, noise=0.006, slow=slow)
        assert who(found(fleet.values())) == {("node", ("n003",))}


def nodes_of(label: str, numbers: range, *losses: float) -> Group:
    """A figure that the nodes with these numbers have for eight nights; the first ones lost so much
    on the last one."""
    random, group = np.random.default_rng(9401), Group(label, "higher")
    for night, number in itertools.product(range(8), numbers):
        lost = losses[number] if night == 7 and number < len(losses) else 0.0
        value = 100 * (1 - lost) * np.exp(random.normal(0, 0.01))
        group.values[f"{night}", (f"n{number:03d}",)] = [float(value)]
    return group


def test_a_figure_in_which_many_fell_is_inconclusive_whatever_others_show():
    well, fell = nodes_of("well", range(40)), nodes_of("fell", range(40), *[0.2] * 20)
    screening = screen([well, fell])
    assert screening.unsure and screening.sure and screening.fell
    assert not screen([well]).unsure


@pytest.mark.parametrize(("usual", "tonight", "unsure"), [
    (4, 4, True), (20, 4, True), (20, 1, True), (2, 1, False), (1, 1, False), (20, 0, False),
])  # fmt: skip
def test_a_figure_of_too_few_nodes_is_inconclusive_whatever_others_show(usual, tonight, unsure):
    """Unless it is measured on one node a night, or was not measured tonight."""
    few = nodes_of("few", range(usual), *[0.5] * tonight)
    for night, unit in [*few.values]:
        if night == "7" and int(unit[0][1:]) >= tonight:
            del few.values[night, unit]
    screening = screen([nodes_of("well", range(40)), few])
    assert (screening.unsure, bool(screening.few)) == (unsure, tonight > 0)
    assert screening.sure and not screening.fell


def test_nodes_that_fell_together_and_are_too_few_for_peers_stay_inconclusive():
    """From the night after."""
    fell = nodes_of("fell", range(12), *[0.3] * 4)
    fell.values |= {("8", unit): rows for (of, unit), rows in fell.values.items() if of == "7"}
    screening = screen([nodes_of("well", range(40)), fell])
    assert screening.unsure and not screening.fell
    assert screening.few == {"4 nodes": ["fell"]}


def few_of(losses: list[float], nights: int, since: int = 0, better: str = "higher") -> Group:
    """A figure of as many nodes as losses, which each has since a night."""
    random, group = np.random.default_rng(9402), Group("", better)
    for night, (number, loss) in itertools.product(range(nights), enumerate(losses)):
        log = random.normal(0, 0.005) + (np.log1p(-loss) if night >= since else 0.0)
        value = 100 * np.exp(log if better == "higher" else -log)
        group.values[f"{night}", (f"n{number:03d}",)] = [float(value)]
    return group


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize("nights", [1, 2, 12])
@pytest.mark.parametrize(("slow", "nodes"), [(2, 6), (3, 8), (4, 8), (3, 9)])
def test_few_nodes_of_which_some_always_were_slow_are_inconclusive(slow, nodes, nights, better):
    group = few_of([0.3] * slow + [0.0] * (nodes - slow), nights, better=better)
    screening = found(group)
    assert (screening.flagged, screening.unsure, screening.fell) == ([], True, False)
    (message,) = screening.messages
    assert f"{slow} of {nodes} nodes 30% slower" in message


def test_few_nodes_of_two_levels_are_compared_with_their_own_past():
    """One of the slower, one of the faster, and one that came later."""
    losses = [0.3, 0.3, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0]
    group = few_of(losses, 12)
    for night in range(6):
        del group.values[f"{night}", ("n002",)]
    for night in range(8, 12):
        group.values[f"{night}", ("n000",)][0] *= 0.8
    screening = found(group)
    assert [(one.name, one.since) for one in screening.flagged] == [(("n000",), "8")]
    assert screening.unsure
    repaired = few_of(losses, 12)
    for night, number in itertools.product(range(6, 12), range(3)):
        repaired.values[f"{night}", (f"n{number:03d}",)][0] /= 0.7
    assert not found(repaired).unsure


@pytest.mark.parametrize(("since", "fell"), [(7, True), (6, False)])
@pytest.mark.parametrize("losses", [[0.3, 0.3, 0.3], [0.1, 0.2, 0.4]])
def test_few_nodes_fell_together_on_one_night_only(losses: list[float], since: int, fell: bool):
    """Of eight nights."""
    screening = found(few_of([*losses, *[0.0] * 6], 8, since))
    assert (screening.flagged, screening.unsure, screening.fell) == ([], True, fell)


@pytest.mark.parametrize("losses", [[0.1, 0.2, 0.4], [0.2, 0.25, 0.3, 0.35]])
@pytest.mark.parametrize("nights", [1, 2, 3, 8])
def test_few_nodes_that_always_were_slow_never_fell(losses: list[float], nights: int):
    """Even if each has a level of its own."""
    screening = found(few_of([*losses, *[0.0] * 5], nights))
    assert not any("fell" in line for line in screening.messages)


def test_few_healthy_nodes_have_one_level():
    fleets = [Fleet(9500 + k, nodes=5 + k % 5, nights=3, levels=0.01 * (k % 3)) for k in range(150)]
    assert sum(found(fleet.figures(1)[0]).unsure for fleet in fleets) <= 1


def test_figures_of_few_nodes_have_one_message_and_no_share_of_the_rate():
    fleet = Fleet(38, nodes=30, nights=10, noise=0.01, slow={("n007",): (8, 0.07)})
    single = [
        Group(f"figure {n}", "higher", {(f"{k}", ("n001",)): [1.0] for k in range(10)})
        for n in range(40)
    ]
    nodes = fleet.values()
    screening = screen([nodes, *single])
    (message,) = screening.messages
    assert "1 node" in message and "figure 0, figure 1 and 38 more" in message
    alone = screen([nodes])
    assert [(one.name, one.night, one.confidence) for one in screening.flagged] == [
        (one.name, one.night, one.confidence) for one in alone.flagged
    ]
