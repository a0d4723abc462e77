"""Changes in the report: their causes, and the comparison of the sessions around each."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import demo_history
import numpy as np
import pytest
from conftest import asked
from plumbline.analysis import causes
from plumbline.analysis.causes import Cause
from plumbline.analysis.compare import sides
from plumbline.analysis.trend import series_changes
from plumbline.history.series import Series
from plumbline.output.report import change_context
from report_states import a_change, of_metric
from reports import (  # noqa: F401 - fixtures
    a_series,
    demo_,
    notes,
    pages_,
    report_page,
    sessions_of,
    shown,
)


def test_changes_that_began_together_are_one_line(pages):
    content = shown(pages / "index.html", "changed")
    latency = re.search(r"osu_p2p test=latency alder .*?(?=osu_p2p|babelstream|$)", content)[0]
    assert "and 3 more" in latency


def test_a_change_that_is_not_confirmed_has_its_reason(pages):
    assert "above-ceiling" in notes(pages / "changes.html")


def commands(path: Path) -> list[list[str]]:
    """The words of each comparison that a page prints."""
    found = re.findall(r"<code>(plumbline compare [^<]+)</code>", path.read_text())
    return [shlex.split(html.unescape(command)) for command in found]


def test_the_comparison_that_a_change_prints_answers(pages, demo):
    (words,) = [one for one in commands(pages / "index.html") if "test=latency" in str(one)]
    done = asked(*words[1:], "--metric=latency", "--from", demo, "--format=json")
    found = json.loads(done.out)
    assert (done.code, found["verdict"]) == (1, "no-go")
    regressed = {row["size"] for row in found["figures"] if row["verdict"] == "regressed"}
    assert regressed == {8, 64, 512, 4096}


def test_what_changed_in_the_night_of_a_change_is_on_its_card(pages):
    cards = re.findall(r'<li class="row">.*?</details>',
                       (pages / "index.html").read_text(), re.S)  # fmt: skip
    latency, bandwidth, stream = (
        next(card for card in cards if "plumbline compare --system=alder" in card and name in card)
        for name in ("test=latency", "test=bw", "babelstream_cpu")
    )
    fact = r"<li>([^:]*(?:: \w+)?): <code>(\S+)</code> to <code>(\S+)</code> <[^>]*>\(([^)]*)\)"
    ((name, before, after, node),) = re.findall(fact, latency)
    assert (name, before, after) == ("microcode", "0x2b000603", "0x2b000620")
    assert node.startswith(demo_history.NODES[0]) and node.endswith(" and 8 more")
    builds = [found[0] for found in re.findall(fact, bandwidth)]
    assert builds == ["osu @gnu-mpich: path", "osu @gnu-mpich: sha256"]
    assert not re.findall(fact, stream) and 'data-note="no-fact-changed"' in stream


def a_history(times: list[str]) -> tuple[Series, list[SimpleNamespace]]:
    """A series with a session at each of these times, and the rows of the sessions."""
    moments = np.array(times, "datetime64[s]")
    series = a_series(range(1, len(times) + 1), times=moments)
    return series, [
        SimpleNamespace(session=name, start=start)
        for name, start in zip(series.sessions.tolist(), moments, strict=True)
    ]


def around_of(
    series: Series, rows: list[SimpleNamespace], *changes: dict, first: int = 0
) -> tuple[list[str], list[str], change_context.ProposedComparison | None]:
    """The sessions on both sides of one of the changes of a series, and the comparison."""
    listed = [
        a_change(series, **change | {"before": str(series.sessions[change["start"] - 1]),
                                     "after": str(series.sessions[change["start"]])})
        for change in changes
    ]  # fmt: skip
    found = change_context.ChangeContext(None, rows, {series.key: listed})
    comparison = found.comparison(Cause([listed[first]]))
    if comparison is None:
        return [], [], None
    *_, before, after = shlex.split(comparison.command)
    names = [[row.session for row in sides.sessions_of(side, rows, "side")]
             for side in (before, after)]  # fmt: skip
    return *names, comparison


NIGHTLY = [f"2025-08-{day:02d}T02:00:00" for day in range(1, 21)]


def names_of(*numbers: int) -> list[str]:
    return [f"s{number}" for number in range(*numbers)]


def test_the_sides_of_a_change_are_all_sessions_around_it():
    before, after, found = around_of(*a_history(NIGHTLY), {"start": 8, "sessions": 12})
    assert (before, after) == (names_of(8), names_of(8, 20))
    assert found.command.endswith(" ..2025-08-08 2025-08-09..")
    assert (found.before, found.after, found.missing) == (8, 12, 0)
    *_, newest = around_of(*a_history(NIGHTLY), {"start": 19, "sessions": 1})
    assert newest.missing == 2


def test_other_changes_of_a_figure_end_the_sides_of_one():
    changes = [{"start": 4}, {"start": 9}, {"start": 15}]
    before, after, found = around_of(*a_history(NIGHTLY), *changes, first=1)
    assert (before, after) == (names_of(4, 9), names_of(9, 15))
    assert (found.before, found.after, found.missing) == (5, 6, 0)


def test_a_transient_is_compared_until_it_ended():
    until = np.datetime64("2025-08-12T02:00:00")
    transient = {"start": 8, "kind": "transient", "until": until, "active": False}
    before, after, _ = around_of(*a_history(NIGHTLY), transient)
    assert (before, after) == (names_of(8), names_of(8, 12))


def test_sessions_of_one_day_are_told_apart_by_their_times():
    hourly = [f"2025-08-01T{hour:02d}:00:00" for hour in range(12)]
    before, after, found = around_of(*a_history(hourly), {"start": 5}, {"start": 9})
    assert (before, after) == (names_of(5), names_of(5, 9))
    assert (found.before, found.after) == (5, 4)


def test_a_change_without_a_side_has_no_comparison():
    series, rows = a_history(NIGHTLY[::-1])
    assert around_of(series, rows, {"start": 8})[2] is None
    series, rows = a_history(NIGHTLY)
    change = dataclasses.replace(a_change(series, 0), before="", after="s0")
    assert change_context.ChangeContext(None, rows, {}).comparison(Cause([change])) is None


def test_a_young_history_has_too_few_nights_for_changes(tmp_path):
    page = report_page(sessions_of(tmp_path, [{}]))
    for path in (page, page.parent / "changes.html"):
        assert "too-few-nights" in notes(path) and " 21 nights" in path.read_text()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "single-session"),
        ({"kind": "suspect"}, "outliers-before"),
        ({"sessions": 9}, "within-noise"),
        ({"confirmed": True}, ""),
        ({"kind": "improvement", "above_ceiling": True}, "above-ceiling"),
    ],
)
def test_a_change_that_is_not_confirmed_says_why(fields: dict, code: str):
    change = a_change(a_series([1]), 0, **{"confirmed": False, "sessions": 1} | fields)
    assert change.doubt_code == code
    assert bool(change.doubt) == bool(code)
    assert (change.word == "above-ceiling") == (code == "above-ceiling")


def test_changes_of_one_check_that_began_together_have_one_cause():
    def change(metric: str, day: int, **fields):
        return a_change(of_metric(metric, a_series([100.0] * 30)), day, **fields)

    together = causes.grouped(
        [change("a", 3), change("b", 4), change("c", 20), change("a", 3, kind="transient")]
    )
    assert sorted(len(cause.changes) for cause in together) == [1, 1, 2]


def test_many_series_are_judged_as_few_are(monkeypatch):
    noise = np.random.default_rng(3).normal(1, 0.01, (12, 60))
    series = [a_series(np.where(np.arange(60) < 40, 100, 90) * row, location=f"g{i}")
              for i, row in enumerate(noise)]  # fmt: skip
    alone = series_changes.of_history(series).by_key()
    monkeypatch.setattr(series_changes, "MANY", 2)
    several = series_changes.of_history(series).by_key()
    assert len(alone) == len(series)

    assert [*several] == [*alone]
    for key, found in several.items():
        assert [(c.kind, c.before, c.after) for c in found] == [
            (c.kind, c.before, c.after) for c in alone[key]
        ]
