"""The bench of detection: its series of several changes, and what it counts."""

from __future__ import annotations

import itertools
import math
import re
from concurrent.futures import ProcessPoolExecutor

import nights
import numpy as np
import oracle
import pytest
from bench import DOCS, constants, detection, real
from bench.detection import beyond_upgrades, changed, kept, known_by, of_last_loss, value_of
from bench.methods import Report
from nights import LEVEL, Plan
from plumbline.analysis import trend
from plumbline.analysis.trend import episodes


def test_series_of_several_changes():
    plan = Plan(level=0, nights=100, steps=((40, 60, 0.10), (5, 5, -0.05)))
    made = nights.make(plan, 20, 1)
    assert len(set(made.start)) > 1
    for values, (first, last), start in zip(made.values, made.starts, made.start, strict=True):
        assert (40 <= first <= 60, last, start) == (True, first + 5, first + 5)
        lengths = [first, 5, 100 - last]
        expected = LEVEL * np.repeat([1, 1.10, 1.10 * 0.95], lengths)
        np.testing.assert_allclose(values, expected)


def test_values_of_few_digits_are_ties():
    exact, rounded = (nights.make(Plan(level=0.001, digits=n), 20, 1).values for n in (15, 3))
    np.testing.assert_allclose(rounded, exact, rtol=0.005)
    assert max(len(set(values)) for values in rounded) < 12 < len(set(exact[0]))


@pytest.mark.parametrize(
    ("report", "counts"),
    [
        (Report("lasting", 100, 113, -0.05), True),
        (Report("lasting", 100, 114, -0.05), False),
        (Report("lasting", 105, 110, -0.05), True),
        (Report("lasting", 94, 110, -0.05), False),
        (Report("lasting", 99, 99, -0.05), False),
        (Report("lasting", 100, 101, 0.05), False),
        (Report("transient", 100, 101, -0.05, 108), False),
        (Report("drift", 60, 70, -0.10, 113), True),
        (Report("drift", 60, 70, -0.10, 99), False),
        (Report("lasting", 60, 70, -0.10, 110), False),
    ],
)
def test_the_last_loss_counts_if_reported_soon(report, counts):
    assert of_last_loss([report], 100) == counts


@pytest.mark.parametrize(
    ("reports", "false"),
    [
        ([], 0),
        ([Report("lasting", 60, 61, 0.05), Report("lasting", 80, 90, 0.05)], 0),
        ([Report("lasting", 55, 61, 0.05)], 0),
        ([Report("lasting", 58, 59, 0.05)], 1),
        ([Report("lasting", 60, 61, 0.05), Report("lasting", 70, 72, 0.05)], 1),
        ([Report("lasting", 60, 61, -0.05)], 1),
        ([Report("transient", 60, 61, 0.05)], 1),
        ([Report("drift", 45, 64, 0.10, 90)], 0),
    ],
)
def test_one_report_of_an_upgrade_is_not_false(reports, false):
    assert beyond_upgrades(reports, np.array([60, 80])) == false


@pytest.mark.parametrize(("size", "share"), [(-0.10, 1.0), (-0.04, 0.0)])
def test_a_bound_knows_a_loss_on_its_first_night(size, share):
    plan = Plan(nights=90, latest=70, change="step", size=size, level=0.001)
    assert known_by("ReFrame, ±5 %", plan, 5, 1) == [share, share]


def a_page(kernel: str, otava: str = "75 / 100") -> str:
    return (
        "|  | Otava | KernelCPD, 3 BIC | ours |\n|--|--|--|--|\n"
        f"| a | {otava} | {kernel} | 1 / 2 |\n\n| b | c |\n|--|--|\n| d | 3 |"
    )


def test_results_of_otava_are_kept_from_the_page():
    assert kept(a_page("0"), "Otava") == {("Otava", "--"): "--", ("Otava", "a"): "75 / 100"}
    assert value_of("several", "75 / 100") == [0.75, 1.0]
    assert value_of("steps", "25.0% / 50.0% / 100.0%") == [0.25, 0.5, 1.0]
    assert (value_of("alarms", "4.167"), value_of("drift", "87.5%")) == (4.167, 0.875)


def test_results_are_kept_only_if_the_series_are_those_of_the_page():
    old = a_page("50 / 100")
    assert changed(old, a_page("50 / 100", otava="0")) == []
    assert changed(old, a_page("50 / 75")) == ["a"]
    assert changed(old, a_page("50 / 100").replace("| a |", "| e |")) == ["a", "e"]


def measured_anew(monkeypatch, tmp_path, *, version: str, kernel: str) -> tuple[str, dict]:
    """The page after `--keep` beside what was kept, where only tables and version are stand-ins."""
    few = detection.OTAVA_IS.format("0.8.0")
    head = f"on 2026-11-25. A cell has 500\nseries, 40 for them. {few}\n"
    (tmp_path / "detection.md").write_text(head + a_page("50 / 100"))
    template, known = tmp_path / "template.md", {}
    template.write_text("{alarms}")

    def measure(count, each, say, results):
        known.update(results)
        return {}

    monkeypatch.setattr("sys.argv", ["bench", "--keep", "--write"])
    monkeypatch.setattr(detection, "PAGE", template)
    monkeypatch.setattr(detection, "DOCS", tmp_path)
    monkeypatch.setattr("bench.DOCS", tmp_path)
    monkeypatch.setattr(detection, "otava_version", lambda: version)
    monkeypatch.setattr(detection, "measure", measure)
    monkeypatch.setattr(detection, "tables", lambda found: {"alarms": a_page(kernel)})
    for name in ("speed", "aims", "small_steps"):
        monkeypatch.setattr(detection, name, lambda *given: [])
    detection.main()
    return (tmp_path / "detection.md").read_text(), known


def test_only_otava_is_kept(monkeypatch, tmp_path):
    page, known = measured_anew(monkeypatch, tmp_path, version="0.8.0", kernel="50 / 100")
    assert page == a_page("50 / 100")
    assert known == {("Otava", "--"): "--", ("Otava", "a"): "75 / 100"}


@pytest.mark.parametrize(("version", "kernel"), [("0.8.0", "50 / 75"), ("0.9.0", "50 / 100")])
def test_nothing_is_kept_of_other_series_or_of_another_otava(
    monkeypatch, tmp_path, version, kernel
):
    with pytest.raises(SystemExit) as stopped:
        measured_anew(monkeypatch, tmp_path, version=version, kernel=kernel)
    assert stopped.value.code not in (0, None)
    assert a_page("50 / 100") in (tmp_path / "detection.md").read_text()


def test_labels_are_rows_of_a_file(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text(
        "series,night,value,better,label\na,5,1,higher,\nb,1,1,higher,1\na,6,1,higher,1\n"
    )
    assert real.labels(path) == {"a": [1], "b": [0]}


@pytest.mark.parametrize(
    ("start", "night", "found"), [(100, 101, 1), (97, 97, 1), (96, 101, 0), (101, 114, 0)]
)
def test_a_label_is_found_near_it_and_soon(start, night, found):
    assert real.hits([Report("lasting", start, night, 0.05)], [100]) == found


def _loaded(*change) -> tuple[int, int]:
    constants.load(*change)
    return episodes.LONGEST, trend.RECENT


def test_what_is_derived_from_a_constant_follows_it():
    # In a process of its own, since the modules are loaded anew.
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(_loaded, "LONGEST", 10).result() == (10, 20)
        assert pool.submit(_loaded).result() == (episodes.LONGEST, trend.RECENT)


def test_the_page_has_each_constant_as_it_is():
    page = (DOCS / "trend-constants.md").read_text()
    assert len(constants.tuned()) <= 15
    for variant in constants.variants(constants.tuned()):
        name = f"`{variant.name}`" if variant.name else ""
        assert re.search(rf"^\| {name} +\| {re.escape(variant.label)} +\|", page, re.MULTILINE)


@pytest.mark.parametrize(("more", "beyond"), [([1] * 9, False), ([1] * 10, True), ([3, -3], False)])
def test_a_difference_is_beyond_chance_by_its_standard_errors(more, beyond):
    first = np.zeros(20)
    values = np.pad(np.array(more, dtype=float), (0, 20 - len(more)))
    assert constants.differs(values, first) == beyond


def test_the_oracle_of_several_changes_tries_every_partition():
    z, cost = np.random.default_rng(1).standard_normal((3, 26)), math.log(26) / 2
    z[:, 14:18] += 3.0
    z[:, 20] += 9.0  # A level of one night does not count.
    fit = {(a, b): z[:, a:b].mean(axis=1) ** 2 * (b - a) / 2
           for a, b in itertools.combinations(range(27), 2)}  # fmt: skip
    slow = [oracle.white_ratio(z, oracle.Autocorrelated(size, oracle.MEMORY))[:, -1]
            for size in oracle.SIZES]  # fmt: skip
    ratio = oracle._losses(z, 2)[:, -1]
    for number in range(3):
        most = max(
            fit[0, a][number] + fit[a, b][number] + fit[b, 26][number]
            for a, b in itertools.combinations(range(1, 26), 2)
            if b - a > 1 and a > 1 and z[number, b:].mean() < z[number, a:b].mean()
        )
        known = most - fit[0, 26][number] + min(one[number] for one in slow)
        assert ratio[number] == pytest.approx(known - 2 * cost)


def test_the_oracle_of_several_changes_keeps_its_false_alarms():
    nights_of, count = 60, 1500
    limit = oracle.limit_beside(nights_of, 2)
    aim, shares = oracle.SLOW * nights_of / 1000, []
    for size in oracle.SIZES:
        factor = oracle.Autocorrelated(size, oracle.MEMORY).factor(nights_of)
        z = np.random.default_rng(2).standard_normal((count, nights_of)) @ factor.T
        shares.append(np.mean(oracle._losses(z, 2)[:, 20:].max(axis=1) >= limit))
    # The limit is that of the worst size; both are of so many series.
    chance = 4 * math.sqrt(aim * (1 / count + 4 / oracle.SERIES))
    assert aim - chance < max(shares) < aim + chance


def test_the_oracle_of_several_changes_finds_a_loss_in_time():
    plan = Plan(nights=60, steps=((25, 25, 0.10), (10, 10, -0.15)))
    assert oracle.last_loss_distinguished(plan, 50, 3, 14) == 1.0
    assert oracle.last_loss_distinguished(plan, 50, 3, 0) == 0.0
    small = plan.but(steps=((25, 25, 0.10), (10, 10, -0.005)))
    assert oracle.last_loss_distinguished(small, 50, 3, 14) < 0.2
