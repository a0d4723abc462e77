"""The spread of a site baseline: of few sessions, and of message sizes that are quiet by chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import ROOT
from plumbline.analysis import baseline
from plumbline.parse import Figure
from plumbline.reference import lookup, tolerance


def test_one_odd_session_of_many_does_not_widen():
    values = [1000 + (-1) ** n for n in range(14)]
    middle, spread = baseline.spread_of([*values, 500])
    assert middle == pytest.approx(1000, abs=1) and spread < 5
    assert baseline.spread_of([*values[:4], 500])[1] > 100


@pytest.mark.parametrize("sessions", [3, 5, 10, 30])
@pytest.mark.parametrize(("law", "allowed"), [("standard_normal", 1), ("standard_t", 10)])
def test_how_often_a_healthy_figure_fails(sessions: int, law: str, allowed: int):
    """In a thousand sessions, where its noise alone decides the bound: docs/references.md."""
    rules = tolerance.Baseline(sessions=3, noise=0.15, alarms=0.001)
    rule = lookup.loaded(ROOT / "reference").tables.rules.classes["bandwidth"]
    random = np.random.default_rng(sessions)
    factor, trials = baseline.widening(sessions, rule, rules), 20000

    def draw(shape):
        return random.standard_t(3, shape) if law == "standard_t" else random.normal(0, 1, shape)

    alarms = 0
    for values, new in zip(draw((trials, sessions)), draw(trials), strict=True):
        middle, spread = baseline.spread_of(values.tolist())
        alarms += new < middle - rule.spreads * factor * spread
    # A Poisson count exceeds its mean by four of its roots in fewer than 1 of 1,000 draws.
    most = allowed * trials / 1000
    assert alarms <= most + 4 * math.sqrt(most)
    # Nor is it wider than it need be.
    assert law == "standard_t" or alarms >= most / 4


@pytest.mark.parametrize("sessions", [3, 5, 10])
def test_sizes_that_are_quiet_by_chance_do_not_fail(sessions: int):
    """Of a noisy operation, those sizes have bounds whose few values are close together by chance:
    of those alone, the share that fails is that of all."""
    rules = tolerance.Baseline(sessions=3, noise=0.15, alarms=0.001)
    rule = lookup.loaded(ROOT / "reference").tables.rules.classes["latency"]
    random, noise = np.random.default_rng(sessions), 0.08
    factor, sizes = baseline.widening(sessions, rule, rules), [2**n for n in range(20)]
    bounded = {"own": 0, "raised": 0}
    alarms = {"own": 0, "raised": 0}
    for _ in range(500):
        values = random.normal(1, noise, (len(sizes), sessions))
        known = {
            Figure("latency", size): baseline.spread_of([*of_size])
            for size, of_size in zip(sizes, values, strict=True)
        }
        own = {figure: spread / middle for figure, (middle, spread) in known.items()}
        raised = own | baseline.raised(own, sessions, rules)
        for figure, new in zip(own, random.normal(1, noise, len(sizes)), strict=True):
            for kind, spread in (("own", own[figure]), ("raised", raised[figure])):
                if spread * factor <= rules.noise:
                    allowed = 1 + max(rule.floor, rule.spreads * factor * spread)
                    bounded[kind] += 1
                    alarms[kind] += new > known[figure][0] * allowed
    assert alarms["own"] > 2 * alarms["raised"]
    most = bounded["raised"] * rules.alarms
    assert alarms["raised"] <= most + 4 * math.sqrt(most)


def test_a_size_is_as_noisy_as_the_next_ones_unless_its_sessions_exclude_that():
    rules = tolerance.Baseline(sessions=3, noise=0.15, alarms=0.001)
    spreads = {Figure("latency", 2**n): 0.08 for n in range(6)}
    lucky, other = Figure("latency", 4), Figure("bandwidth", 4)
    spreads |= {lucky: 0.005, other: 0.005}
    assert baseline.raised(spreads, 3, rules) == {lucky: 0.08}
    # Of thirty sessions: chi-squared of 29 degrees of freedom is below 10.986 once in 1,000 times.
    most = 0.005 * math.sqrt(29 / 10.986)
    assert baseline.raised(spreads, 30, rules)[lucky] == pytest.approx(most, rel=1e-4)
    # Noise that changes with the size is followed.
    falling = {Figure("latency", 2**n): 0.08 / 2**n for n in range(9)}
    assert {figure.size for figure in baseline.raised(falling, 3, rules)} <= {128, 256}
