"""Changes of one cause, their order, which are new, and which nodes explain them; and
`plumbline trend` over a history."""

from __future__ import annotations

import csv
import datetime
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import records
from conftest import asked
from histories import fom, line, store
from plumbline.analysis import causes
from plumbline.analysis.trend import series_changes
from plumbline.analysis.trend.series_changes import NO_KEY, SeriesChange, name_of, night_of
from plumbline.core.text import WIDTH
from plumbline.history.series import Key, Series


def series_of(values, metric: str = "triad", check: str = "stream", node: str = "", nodes=None):
    """A series of one value a night from 2026-01-01 on."""
    key = Key("sys", "cpu", "gnu", check, metric, -1, "", "all-cores", "", node)
    return records.series(key, values, **({"nodes": np.array(nodes)} if nodes else {}))


def change_of(
    series: Series | str = "a", day: str = "2026-03-01", size: float = -0.1, **fields
) -> SeriesChange:
    """A change of a series of the history, or of one of a file that has only a name."""
    began, of_file = np.datetime64(day), isinstance(series, str)
    known = {"found": began, "kind": "regression", "low": size - 0.01, "high": size + 0.01,
             "start": 0, "detected": 0, "end": None, "confidence": 1.0, "worse": True,
             "active": True}  # fmt: skip
    name, key = (series, NO_KEY) if of_file else (name_of(series), series.key)
    known |= {"series": name, "key": key, "began": began, "size": size}
    return SeriesChange(**known | fields)


def noisy(*levels: tuple[int, float], seed: int = 1) -> np.ndarray:
    """Nights on these levels, each with its number of nights, with noise of 0.5 %."""
    values = np.concatenate([np.full(count, level) for count, level in levels])
    return values * np.exp(np.random.default_rng(seed).normal(0, 0.005, len(values)))


# -- causes --------------------------------------------------------------------------------------


def test_changes_of_a_check_that_begin_together_have_one_cause():
    listed = [series_of([1], metric) for metric in ("copy", "add", "triad")]
    listed += [series_of([1], "copy", check="other"), series_of([1], "copy", node="n7")]
    series = {name_of(item): item for item in listed}
    copy, add, triad, other, seventh = listed
    changes = [
        change_of(copy, "2026-03-01"), change_of(add, "2026-03-04"), change_of(triad, "2026-03-05"),
        change_of(other, "2026-03-01"), change_of(seventh, "2026-03-02"),
        change_of(add, "2026-03-02", 0.1, kind="improvement", worse=False),
    ]  # fmt: skip
    found = causes.of(changes, [], series)
    groups = {frozenset((one.key, one.kind) for one in cause.changes) for cause in found}
    lost = "regression"
    assert groups == {
        frozenset({(copy.key, lost), (add.key, lost), (seventh.key, lost)}),
        frozenset({(triad.key, lost)}),
        frozenset({(other.key, lost)}),
        frozenset({(add.key, "improvement")}),
    }


def test_a_second_loss_of_a_series_has_a_cause_of_its_own():
    listed = [series_of([1], metric) for metric in ("copy", "add")]
    series = {name_of(item): item for item in listed}
    changes = [change_of(one, day) for one in listed for day in ("2026-03-01", "2026-03-03")]
    found = causes.of(changes, [], series)
    starts = sorted([night_of(change.began) for change in cause.changes] for cause in found)
    assert starts == [["2026-03-01"] * 2, ["2026-03-03"] * 2]


def test_what_a_waiver_covers_has_a_cause_of_its_own():
    listed = [series_of([1], metric) for metric in ("copy", "add")]
    waived, other = changes = [change_of(one) for one in listed]
    waived.waiver = SimpleNamespace(id="known")
    found = causes.of(changes, [], {name_of(item): item for item in listed})
    assert {cause.state: cause.changes for cause in found} == {"waived": [waived],
                                                               "active": [other]}  # fmt: skip


def test_what_fails_is_first_and_then_what_is_certainly_largest():
    changes = [
        change_of("improved", size=0.5, kind="improvement", worse=False),
        change_of("over", size=-0.4, active=False),
        change_of("unsure", size=-0.3, low=-0.5, high=0.01),
        change_of("small", size=-0.05),
        change_of("large", size=-0.2),
        change_of("wide", size=-0.25, low=-0.45, high=-0.06),
        change_of("failing", size=-0.02, low=-0.03, high=-0.01),
    ]
    found = causes.of(changes, changes[-1:], {})
    assert [cause.title for cause in found] == [
        "failing", "large", "wide", "small", "unsure", "over", "improved",
    ]  # fmt: skip
    assert [cause.marked for cause in found] == [True] + [False] * 6


def test_half_and_double_are_alike():
    double = causes.certain_size(change_of(size=1.2, low=1.0, high=1.4))
    assert causes.certain_size(change_of(size=-0.55, low=-0.6, high=-0.5)) == pytest.approx(double)
    assert causes.certain_size(change_of(low=math.nan, high=math.nan)) == 0
    assert causes.certain_size(change_of(size=-1.0, low=-1.0, high=-1.0)) > double


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "active"),
        ({"confirmed": False}, "unconfirmed"),
        ({"active": False}, "over"),
        (
            {"active": False, "kind": "transient", "until": np.datetime64("2026-03-04")},
            "until 2026-03-04",
        ),
    ],
)  # fmt: skip
def test_states(fields: dict, state: str):
    (cause,) = causes.of([change_of(**fields)], [], {})
    assert cause.state == state


@pytest.mark.parametrize(
    ("nodes", "fields", "found"),
    [
        (["n1,n2"] * 6, {}, []),  # The same nodes before.
        (["n1", "n2", "n3", "n4", "n5", "n6"], {}, []),  # Each night on another.
        (["n1", "n2", "n1", "n9", "n9", "n9"], {}, ["n9"]),
        (["n1,n2", "n2,n3", "n1,n3", "n2,n9", "n9,n1", "n3,n9"], {}, ["n9"]),
        (["n1", "n2", "n1", "n9", "n9", "n1"], {}, []),
        (["n1", "n2", "n1", "n9", "n9", "n1"], {"kind": "transient", "end": 4}, ["n9"]),
    ],
)
def test_a_node_that_was_merely_used_explains_nothing(nodes, fields, found):
    series = series_of(range(6), nodes=nodes)
    assert causes.nodes_of(series, change_of(series, "2026-01-04", start=3, **fields)) == found


def test_a_series_of_a_node_is_explained_by_it():
    series = series_of([1] * 3, node="n7", nodes=["n7"] * 3)
    assert causes.nodes_of(series, change_of(series, "2026-01-02")) == ["n7"]
    name = name_of(series)
    (cause,) = causes.of([change_of(series, "2026-01-02", nodes="n1")], [], {name: series})
    assert cause.nodes == ["n7"] and cause.first.nodes == "n7"


# -- what is new -----------------------------------------------------------------------------------


def found_in(series: Series) -> list[SeriesChange]:
    return series_changes.of_history([series]).changes


def new_starts(series: Series, since: str) -> list[str]:
    changes = causes.new(found_in(series), {name_of(series): series}, np.datetime64(since))
    return [night_of(change.began) for change in changes]


def test_a_second_loss_of_a_series_is_new():
    values = noisy((60, 100.0), (30, 90.0), (10, 80.0))
    series = series_of(values)
    starts = [night_of(change.began) for change in found_in(series)]
    first, second = "2026-03-02", "2026-04-01"
    assert starts == [first, second]
    assert new_starts(series, "2026-04-01") == [second]
    assert new_starts(series, "2026-03-02") == [first, second]
    assert new_starts(series, "2026-04-08") == []


@pytest.mark.parametrize(
    ("earlier", "is_new"),
    [
        ([], True),
        ([change_of(confirmed=False)], True),
        ([change_of(active=False)], True),
        ([change_of(found=np.datetime64("2026-03-02"))], True),
        ([change_of(day="2026-02-27", found=np.datetime64("2026-03-01"))], False),  # Dated again.
    ],
)
def test_what_is_confirmed_or_active_again_is_new(monkeypatch, earlier, is_new):
    series = series_of([1])
    listing = series_changes.Listing(changes=earlier)
    monkeypatch.setattr(series_changes, "of_history", lambda *_, **__: listing)
    change = change_of()
    found = causes.new([change], {"a": series}, np.datetime64("2026-03-02"))
    assert found == [change] * is_new


def test_before_a_time():
    series = series_of(range(5))
    early = series.before(np.datetime64("2026-01-03T02:00:00"))
    assert early.values.tolist() == [0, 1] and early.samples == [[0.0], [1.0]]
    assert early.sessions.tolist() == ["s0", "s1"] and early.key == series.key


# -- the command ---------------------------------------------------------------------------------

LONG = f"{'very_' * 30}long %with=a %long=list %of=parameters"


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Path:
    """60 nights up to today: a loss of both figures 30 days ago, one of another check 3 days ago,
    on a node that was not used before, and an improvement of it 20 days ago."""
    folder = tmp_path_factory.mktemp("history")
    losses = noisy((30, 100.0), (30, 90.0)), noisy((30, 200.0), (30, 180.0), seed=2)
    late = noisy((40, 100.0), (17, 120.0), (3, 100.0), seed=3)
    today = datetime.datetime.now(datetime.timezone.utc).replace(hour=0, minute=0, second=1)
    for night in range(60):
        ended = today - datetime.timedelta(days=59 - night)
        when = {"session": f"{ended:%Y%m%dT%H%M%SZ}-{night:06x}",
                "time": f"{ended:%Y-%m-%dT%H:%M:%SZ}", "nodes": [f"n{night % 7}"]}  # fmt: skip
        foms = [
            fom(values[night], metric=metric, size=None, unit="GB/s", better="higher")
            for metric, values in zip(("copy", "triad"), losses, strict=True)
        ]
        other = fom(late[night], metric="rate", size=None, unit="GB/s", better="higher")
        node = ["n99" if night > 56 else "n1"]
        store(
            folder, line(check=LONG, foms=foms, **when),
            line(1, check="second", foms=[other], **when | {"nodes": node}),
        )  # fmt: skip
    return folder


def shown(history: Path, *options: str, code: int = 1) -> list[dict]:
    done = asked("trend", "--from", history, "--format=json", *options)
    assert done.code == code, done.output
    return json.loads(done.out)


def day(ago: int) -> str:
    return str(datetime.datetime.now(datetime.timezone.utc).date() - datetime.timedelta(ago))


def test_each_finding_has_the_number_of_its_cause(history: Path):
    metrics = {"copy", "triad", "rate"}
    found = {(*metrics & {*row["series"].split()}, row["kind"]): row for row in shown(history)}
    assert set(found) == {("copy", "regression"), ("triad", "regression"),
                          ("rate", "regression"), ("rate", "improvement")}  # fmt: skip
    number = {about: row["cause"] for about, row in found.items()}
    assert number["copy", "regression"] == number["triad", "regression"]
    assert len(set(number.values())) == 3
    assert number["rate", "regression"] == 1 and number["rate", "improvement"] == 3
    assert found["copy", "regression"]["nodes"] == ""
    assert found["rate", "regression"]["nodes"] == "n99"
    done = asked("trend", "--from", history, "--format=csv")
    assert [row["cause"] for row in csv.DictReader(done.out.splitlines())] == ["1", "2", "2", "3"]


def test_since_filters_findings_and_no_data(history: Path):
    assert {row["start"] for row in shown(history, "--since=10d")} == {day(2)}
    assert {row["start"] for row in shown(history, f"--since={day(29)}")} == {
        day(2), day(19), day(29),
    }  # fmt: skip
    assert shown(history, f"--since={day(1)}", code=0) == []


def test_what_is_new(history: Path):
    assert {row["start"] for row in shown(history, "--new")} == {day(2)}
    assert {row["start"] for row in shown(history, "--new", "25d")} == {day(2), day(19)}
    # The exit code is that of what is printed.
    assert shown(history, f"--new={day(-1)}", code=0) == []


def test_what_is_wrong_now(history: Path):
    found = {(row["start"], row["kind"]) for row in shown(history, "--active")}
    assert found == {(day(29), "regression"), (day(2), "regression")}
    assert {row["start"] for row in shown(history, "--active", "--new=7d")} == {day(2)}


def test_the_table_fits_a_terminal(history: Path):
    done = asked("trend", "--from", history)
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.startswith("regression ") for line in lines) == 2
    assert "  on n99" in lines and not [line for line in lines if "n3" in line.split()]


def test_a_value_above_its_ceiling_is_no_improvement(tmp_path: Path):
    values = noisy((40, 100.0), (10, 120.0))
    for night, value in enumerate(values):
        above = {"verdict": "above-ceiling", "ceiling": 110.0} if night >= 40 else {}
        foms = [fom(value, metric="copy", size=None, unit="GB/s", better="higher", **above),
                fom(value, metric="triad", size=None, unit="GB/s", better="higher")]  # fmt: skip
        month, date = divmod(night, 28)
        when = f"2026{month + 1:02}{date + 1:02}T020000Z"
        ended = f"2026-{month + 1:02}-{date + 1:02}T02:00:00Z"
        store(tmp_path, line(check="stream", session=f"{when}-{night:06x}", time=ended, foms=foms))
    found = {row["series"].split()[2]: row for row in shown(tmp_path, code=0)}
    assert {name: row["above_ceiling"] for name, row in found.items()} == {
        "copy": True,
        "triad": False,
    }
    assert found["copy"]["cause"] != found["triad"]["cause"]
    heads = [line.split()[0] for line in asked("trend", "--from", tmp_path).out.splitlines()
             if "+20." in line or "+19." in line]  # fmt: skip
    assert sorted(heads) == ["above-ceiling", "improvement"]


def test_a_file_of_nights_has_no_times(tmp_path: Path):
    path = tmp_path / "nights.csv"
    values = noisy((30, 100.0), (10, 80.0))
    rows = [f"a,{night},{value},higher" for night, value in enumerate(values)]
    path.write_text("\n".join(["series,night,value,better", *rows, ""]))
    assert json.loads(asked("trend", "--input", path, "--active").out)[0]["start"] == 30
    for option in ("--new", "--since=7d"):
        done = asked("trend", "--input", path, option)
        assert (done.code, done.out, done.codes) == (2, "", ["input.wrong-option"])
