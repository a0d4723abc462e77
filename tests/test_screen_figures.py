"""Screening of nodes by several figures together."""

from __future__ import annotations

import numpy as np
import pytest
from fleet import Fleet
from plumbline.analysis.screen import Group, screen
from plumbline.analysis.screen.combination import combine
from plumbline.analysis.screen.detection import FigureTable
from screened import who


def test_groups_in_several_processes_find_the_same(monkeypatch):
    """Single nodes, several figures together, and what has too few peers."""
    fleets = [Fleet(n, nodes=30, nights=8, noise=0.01, slow={("n007",): (5, 0.04)})
              for n in (41, 42, 43)]  # fmt: skip
    groups = [fleet.values() for fleet in fleets]
    few = Group("of one node", "higher", {(f"{k}", ("n001",)): [1.0] for k in range(8)})
    one = screen([*groups, few])
    monkeypatch.setattr("plumbline.analysis.screen.MANY", 0)
    several = screen([*groups, few])
    assert who(one) == {("node", ("n007",))} and one.few
    assert several == one


def test_a_loss_in_all_figures_is_flagged_before_any_alone_shows_it():
    """8 % at 2 % noise, from one value of each: one figure finds a quarter on the first night."""
    at_once = 0
    for seed in range(80, 84):
        slow = {(f"n{n:03d}",): (n % 7 + 2, 0.08) for n in (10, 20, 30, 40, 50)}
        fleet = Fleet(seed, nodes=200, nights=10, slow=slow)
        flags = screen(fleet.figures(4)).flagged
        assert {flag.name for flag in flags} == set(slow)
        for flag in flags:
            at_once += int(flag.night) == slow[flag.name][0]
            assert flag.kind == "node" and len(flag.evidence) >= 2
    assert at_once >= 18


def test_the_evidence_is_the_figures_in_which_it_is_slow():
    slow = {("n010",): (5, 0.07), ("n020",): (5, 0.3)}
    groups = Fleet(85, nodes=200, nights=10, slow=slow).figures(5, only={("n020",)})
    for (_, unit), rows in groups[4].values.items():
        if unit == ("n010",):
            rows[0] /= 0.93 if int(_) >= 5 else 1
    found = {flag.name: flag for flag in screen(groups).flagged}
    assert set(found) == set(slow)
    assert set(found["n010",].evidence) == {f"figure {k}" for k in range(4)}
    assert (found["n020",].evidence, found["n020",].note) == (["figure 0"], "")


@pytest.mark.parametrize("options", [{"correlation": 0.9}, {"correlation": 0.5}, {"tails": 5}])
def test_healthy_nodes_are_none_of_several_figures_at_once(options):
    """12,000 node-nights, of which 0.02 in 1,000 would be 0.24; a note is of those together."""
    flags = screen(Fleet(86, nodes=600, nights=20).figures(3, **options)).flagged
    assert not [flag for flag in flags if flag.note]


@pytest.mark.parametrize("figures", [2, 4])
def test_an_outlier_of_one_figure_is_no_loss_in_several(figures):
    random = np.random.default_rng(1)
    values = random.normal(0, 0.02, (figures, 10, 100))
    values[0, -1, :10] = -0.5
    values[:, -1, 50] = -0.08
    tables = [FigureTable(rows, np.ones((10, 100)), np.zeros(100, int), 1e-3) for rows in values]
    combined, _, scores = combine(tables, np.zeros((10, 100), bool))
    noise = 1.4826 * np.median(np.abs(combined[:-1]))
    assert np.median(combined[-1, :10]) > -noise > combined[-1, 50] / 3
    assert scores[0, -1, :10].max() < -3 < np.median(scores[1, -1, :10])


def test_figures_that_say_the_same_count_as_one():
    random = np.random.default_rng(2)
    same, other = random.normal(0, 0.02, (2, 1, 10, 500))
    values = [*(same + random.normal(0, 1e-3, (3, 10, 500))), *other, *random.permuted(other)]
    tables = [FigureTable(rows, np.ones((10, 500)), np.zeros(500, int), 1e-3) for rows in values]
    combined, _, scores = combine(tables, np.zeros((10, 500), bool))
    with_same = np.corrcoef(combined.ravel(), scores[0].ravel())[0, 1]
    with_other = np.corrcoef(combined.ravel(), scores[3].ravel())[0, 1]
    assert with_same < 1.6 * with_other


def test_nodes_with_different_figures_and_gaps_are_combined():
    slow = {("n010",): (6, 0.10), ("n150",): (6, 0.10)}
    fleet = Fleet(87, nodes=200, nights=10, slow=slow)
    groups = fleet.figures(6)
    for k, group in enumerate(groups):
        for key in [*group.values]:
            half = int(key[1][0][1:]) < 100
            if half != (k < 3) or (fleet.random.random() < 0.2 and key[1] not in slow):
                del group.values[key]
    flags = screen(groups).flagged
    assert {(flag.name, flag.night) for flag in flags} == {(name, "6") for name in slow}


@pytest.mark.parametrize(("nodes", "some"), [(19, False), (40, True)])
def test_figures_of_few_nodes_are_not_combined(nodes, some):
    slow = {("n003",): (6, 0.07)}
    flags = [
        flag
        for seed in range(300, 306)
        for flag in screen(Fleet(seed, nodes=nodes, nights=7, slow=slow).figures(4)).flagged
    ]
    assert any(flag.note for flag in flags) is some


def test_a_switch_that_is_slow_in_all_figures_is_flagged_and_not_its_nodes():
    fleet = Fleet(92, nodes=500, nights=8)
    groups = fleet.figures(3)
    for group in groups:
        for (night, unit), rows in group.values.items():
            rows[0] *= 0.95 if int(night) >= 5 and fleet.switch_of()[unit[0]] == "s04" else 1.0
    assert who(screen(groups, fleet.switch_of())) == {("switch", ("s04",))}


def test_a_node_that_is_slow_in_all_figures_recovers():
    slow = {("n010",): (8, 0.06)}
    groups = Fleet(93, nodes=200, nights=34, slow=slow).figures(4)
    for group in groups:
        for night in range(28, 34):
            group.values[f"{night}", ("n010",)][0] /= 0.94
    (flag,) = screen(groups).flagged
    assert flag.name == ("n010",)
    assert abs(int(flag.since) - 8) <= 1 and abs(int(flag.until) - 27) <= 1


def test_a_judgement_from_several_figures_uses_what_was_known_on_the_night():
    slow = {("n050",): (5, 0.05), ("n060",): (8, 0.06)}
    groups = Fleet(94, nodes=100, nights=14, slow=slow).figures(3)
    whole = {(one.name, one.night) for one in screen(groups).flagged}
    assert whole
    for last in (6, 9):
        early = [
            Group(g.label, g.better, {k: v for k, v in g.values.items() if int(k[0]) <= last})
            for g in groups
        ]
        cut = {(one.name, one.night) for one in screen(early).flagged}
        assert cut == {(name, night) for name, night in whole if int(night) <= last}


def test_a_unit_slow_in_several_figures_has_one_flag():
    groups = []
    for metric in ("copy", "triad"):
        fleet = Fleet(63, nodes=60, nights=10, noise=0.01, slow={("n007",): (6, 0.1)})
        groups.append(Group(metric, "higher", fleet.values().values))
    (one,) = screen(groups).flagged
    assert sorted(one.evidence) == ["copy", "triad"]
