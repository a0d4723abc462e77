"""Figures in the report: what is usual, losses, the worst node, and how numbers are shown."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from plumbline.analysis.trend import series_changes
from plumbline.history.series import Key, Series
from plumbline.output import report
from plumbline.output.report import charts, figures, text
from report_states import a_change, of_metric
from reports import (  # noqa: F401 - fixtures
    a_series,
    demo_,
    one,
    pages_,
)


def test_nodes_share_a_chart_and_few_places_do_not():
    nodes = [a_series([1, 2], node=f"n{i}") for i in range(3)]
    places = [a_series([1, 2], location=f"gpu{i}") for i in range(4)]
    assert [len(f.members) for f in figures.grouped(nodes + places, {})] == [3, 1, 1, 1, 1]
    pairs = [a_series([1, 2], location=f"n{i}-n{i + 1}") for i in range(figures.PLACES)]
    assert [len(f.members) for f in figures.grouped(pairs, {})] == [figures.PLACES]


def test_a_figure_over_nodes_is_the_median_of_each_session():
    late = a_series([9.0, 4.0], node="c", sessions=np.array(["s1", "s2"], object),
                    times=a_series([0, 0, 0]).times[1:])  # fmt: skip
    (figure,) = figures.grouped([a_series([1.0, 2.0], node="a"), a_series([3.0, 8.0], node="b"),
                                 late], {})  # fmt: skip
    sessions, _, medians = figure.history
    assert (sessions.tolist(), medians.tolist()) == (["s0", "s1", "s2"], [2.0, 8.0, 4.0])
    data = charts.data(figure, {}, None)
    assert (data["low"], data["high"]) == ([1.0, 2.0, 4.0], [3.0, 9.0, 4.0])
    assert figure.latest == 4.0


def a_fleet(*losses: float) -> tuple[list[Series], dict[Key, list[series_changes.SeriesChange]]]:
    """The series of nodes at 100 that lose a share twenty nights ago, and their changes."""
    series = [
        a_series([100.0 + place] * 30 + [(100.0 + place) * (1 - loss)] * 20, node=f"n{place}")
        for place, loss in enumerate(losses)
    ]
    changes = {
        one.key: [a_change(one, 30, size=-loss)]
        for one, loss in zip(series, losses, strict=True)
        if loss
    }
    return series, changes


@pytest.mark.parametrize("losses", [[0.04], [0.04, 0.04, 0.04]])
def test_usual_is_the_level_before_a_loss_that_lasts(losses: list[float]):
    (figure,) = figures.grouped(*a_fleet(*losses))
    assert figure.usual == 100.0 + len(losses) // 2
    assert figure.difference == pytest.approx(-0.04)
    (healthy,) = figures.grouped(a_fleet(*losses)[0], {})
    assert healthy.difference == 0


def test_the_badge_of_a_figure_is_its_largest_active_loss():
    series, changes = a_fleet(0, 0.02, 0.08)
    changes[series[0].key] = [
        a_change(series[0], 20, size=-0.3, active=False),
        a_change(series[0], 30, size=0.4, worse=False, kind="improvement"),
    ]
    (figure,) = figures.grouped(series, changes)
    assert [(change.key.node, change.size) for change in figure.losses] == [
        ("n2", -0.08), ("n1", -0.02),
    ]  # fmt: skip


def test_a_loss_is_on_the_page_of_its_system_beside_the_headlines():
    series = a_series([100.0] * 30 + [96.0] * 20)
    names = ("head", "lost", "ended", "calm")
    head, lost, ended, calm = (of_metric(name, series) for name in names)
    changes = {lost.key: [a_change(lost, 30)], ended.key: [a_change(ended, 30, active=False)]}
    listed = figures.grouped([head, lost, ended, calm], changes)
    case = SimpleNamespace(headlines=[("head", -1, "", "all-cores")])
    found = SimpleNamespace(cases={("alder", "stream"): [case]})
    chosen = report._Report.shown(found, "alder", "stream", listed)
    assert {figure.key.metric for figure in chosen} == {"head", "lost"}
    (most,) = report._Report.shown(found, "alder", "stream", listed, most=1)
    assert most.key.metric == "lost"


@pytest.mark.parametrize(
    ("better", "worst", "by_session"),
    [
        ("higher", ("a", 1.0), ["b", "a"]),
        ("lower", ("c", 9.0), ["a", "c"]),
        ("neither", ("c", 9.0), ["a", "c"]),
    ],
)
def test_the_worst_node_is_beside_the_median(better, worst, by_session):
    series = [
        a_series(values, node=node, better=better)
        for node, values in (("a", [9.0, 1.0]), ("b", [1.0, 3.0]), ("c", [2.0, 9.0]))
    ]
    (figure,) = figures.grouped(series, {})
    assert figure.worst == worst
    names = charts.data(figure, {}, None)["worst"]
    assert names == charts.runs(by_session)
    assert figures.grouped(series[:1], {})[0].worst is None


def test_tables_have_the_loss_and_the_worst_node(pages):
    system = one(pages, "systems/alder-*.html").read_text()
    check = one(pages, "checks/alder-babelstream-cpu*.html").read_text()
    for content in (system, check):
        rows = [row for row in content.split("<tr>") if ">triad</a>" in row]
        assert rows and all("worst" in row and "nid0007" in row for row in rows)
    latency = next(row for row in system.split("<tr>") if ">latency · 8 B</a>" in row)
    assert "s-regression" in latency and "since" in latency


def test_what_never_varied_is_drawn_in_the_middle():
    path, *_ = text.spark(np.array([5.0, 5.0]))
    assert path.endswith(" 14")


def test_numbers_have_the_digits_that_count():
    numbers = [text.number(v) for v in (0.85123, 183.2512, 11583.1, 1234567.0, 0, 1e-7)]
    assert numbers == ["0.85123", "183.25", "11,583", "1,234,567", "0", "1.0000e-07"]
    assert [text.percent(v) for v in (0.0512, -0.2, 0.00001, 2.5)] == [
        "+5.1\u202f%", "\u221220.0\u202f%", "0.0\u202f%", "+250\u202f%",
    ]  # fmt: skip
    assert [text.size(v) for v in (0, 8, 4096, 1 << 20, -1)] == ["0 B", "8 B", "4 KiB", "1 MiB", ""]
