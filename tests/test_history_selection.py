"""Which sessions, cases and series of the history are selected."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from histories import DAY_2, NIGHT, fom, line, mixed_, results_, store, values_of  # noqa: F401 - fixtures
from plumbline.core import pool
from plumbline.core.errors import Fault
from plumbline.history.history import History
from plumbline.history.series import Selection, moment


@pytest.mark.parametrize(
    ("select", "values"),
    [
        ({}, [10.0, 20.0, 30.0, 40.0, 50.0]),
        ({"system": "alpha"}, [10.0, 20.0, 30.0, 40.0]),
        ({"system": "b*"}, [50.0]),
        ({"system": "[ab]*"}, None),
        ({"system": "' OR true --"}, None),
        ({"partition": "g?u"}, [50.0]),
        ({"environment": "cray"}, [50.0]),
        ({"check": "osu_bw*"}, [20.0, 30.0]),
        ({"check": "osu_bw"}, [20.0, 30.0]),
        ({"check": "osu_bw %placement=off-node"}, [20.0, 30.0]),
        ({"check": "osu_b"}, None),
        ({"benchmark": "ior"}, [50.0]),
        ({"metric": "bw"}, [20.0]),
        ({"placement": "off-node"}, [20.0]),
        ({"since": "2026-11-02"}, [40.0, 50.0]),
        ({"until": "2026-11-01"}, [10.0, 20.0, 30.0]),
        ({"since": "2026-11-02", "until": "2026-11-02"}, [40.0]),
        ({"since": "2026-11-02T01:00:00Z"}, [40.0, 50.0]),
        ({"since": "2026-11-02T01:00:01"}, [50.0]),
        ({"until": "2026-11-02T02:00:00+01:00"}, [10.0, 20.0, 30.0]),
        ({"extras": {"maintenance": "after"}}, [40.0]),
        ({"extras": {"maintenance": "before", "who": "x"}}, None),
        ({"sessions": (NIGHT,)}, [10.0, 20.0, 30.0]),
    ],
)
def test_selection(mixed: Path, select: dict, values: list[float] | None):
    """Each option alone; ``None`` is nothing selected."""
    for name in ("since", "until"):
        if name in select:
            select |= {name: moment(select[name], name == "until")}
    chosen = Selection(**select)
    if values is None:
        with pytest.raises(Fault) as fault:
            values_of(mixed, chosen)
        assert fault.value.code == "history.nothing-selected"
    else:
        assert sorted(values_of(mixed, chosen)) == values


@pytest.mark.parametrize(
    ("select", "suggested"),
    [
        ({"system": "alpa"}, ["'alpa'", "alpha"]),
        ({"check": "osu_latncy"}, ["'osu_latncy'", "osu_latency"]),
        ({"check": "osu_bw %placement=of-node"}, ["osu_bw %placement=off-node, osu_"]),
        ({"placement": "of-node"}, ["'of-node'", "off-node, on-node"]),
        ({"benchmark": "stream"}, ["'stream'", "ior, osu"]),
        ({"system": "gamma", "metric": "latencies"},
         ["'gamma'", "alpha, beta", "'latencies'", "latency"]),
        ({"system": "beta", "metric": "bw"}, []),
        ({"system": "alpha*", "node": "n7"}, []),
    ],
)  # fmt: skip
def test_a_selection_of_nothing_is_a_fault_with_suggestions(mixed, select: dict, suggested: list):
    """Of the names that nothing has; where each name is there, only not together, of none."""
    with pytest.raises(Fault) as fault:
        values_of(mixed, Selection(**select))
    assert fault.value.code == "history.nothing-selected"
    chosen = ", ".join(f"{name}={value}" for name, value in select.items())
    _, _, hints = str(fault.value).partition(chosen)
    assert [name for name in suggested if name not in hints] == []
    assert bool(hints) == bool(suggested)


def test_an_unknown_session_is_a_fault_with_suggestions(mixed: Path):
    with pytest.raises(Fault) as fault:
        values_of(mixed, Selection(sessions=("20261102",)))
    assert fault.value.code == "history.unknown-session"
    assert "20261102T010000Z-000002" in str(fault.value)


def test_cases_and_sessions_are_selected_by_what_they_measured(mixed: Path):
    """By a metric that a case has; by a placement that it, or one of its figures, has."""
    with History(mixed) as found:
        assert [case.check for case in found.cases(Selection(metric="bw"))] == [
            "osu_bw %placement=off-node"
        ]
        away = found.cases(Selection(placement="off-node"))
        assert [case.result for case in away] == ["pass", "skip"]
        assert [row.results for row in found.sessions(Selection(placement="off-node"))] == [
            {"pass": 1}, {"skip": 1}]  # fmt: skip
        assert len(list(found.records(Selection(metric="bw")))) == 1


def test_the_cases_that_ran_and_the_rows_of_some(results: Path):
    """Each with its number of sessions and its last one; a case of two attempts ran once."""
    store(results, line(1, check="a"), line(2, check="b %.part=alpha:cpu %.nid=n7"))
    store(results, line(3, day=2, check="a"), line(4, day=2, check="a", attempt=1))
    with History(results) as found:
        first, second = found.ran()
        assert (first.identity.check, first.sessions, first.session) == ("a", 2, DAY_2)
        assert str(first.time) == "2026-11-02T01:00:04" and first.placement == "on-node"
        assert (second.identity.node, second.sessions, second.session) == ("n7", 1, NIGHT)
        rows = found.cases(only=[first.identity])
        assert [(row.session, row.attempt) for row in rows] == [(NIGHT, 0), (DAY_2, 0), (DAY_2, 1)]
        assert [row.check for row in found.cases(only=[first.identity, second.identity])] == [
            "a", "b", "a", "a"]  # fmt: skip


def test_what_a_retry_measured_counts_nowhere(results: Path):
    """Whether or not the first attempt measured something: it is in no series, and no result of
    its session."""
    invalid = {"result": "invalid", "reason": "x", "code": "output.garbled", "foms": []}
    first = line(1, check="a"), line(2, check="b", **invalid)
    again = [fields | {"attempt": 1, "result": "pass", "foms": [fom(20.0)]} for fields in first]
    store(results, *first, *again)
    assert values_of(results) == [10.0]
    with History(results) as found:
        assert [row.check for row in found.measured()] == ["a"]
        (row,) = found.sessions()
        assert (row.ended, row.results) == (2, {"pass": 1, "invalid": 1})
        assert row.verdicts == {"pass": 1}


def test_two_threads_get_the_answers_to_their_own_questions(results: Path):
    """A report reads the next check while it writes the pages of one."""
    store(results, *(line(n, foms=[fom(float(n))]) for n in range(50)))
    with History(results) as found, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(lambda: [len(found.cases()) for _ in range(200)])
        answers = [len(found.sessions()) for _ in range(200)]
        assert {*answers} == {1} and {*asked.result()} == {50}


def test_what_is_read_ahead_ends_with_its_reader(results: Path):
    """With what its thread raised; and a history that is closed meanwhile rebuilds no index."""
    assert [*pool.ahead(range(3))] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        [*pool.ahead(1 // left for left in (1, 0))]
    store(results, line())
    messages: list[str] = []
    with pytest.raises(KeyError), History(results, say=messages.append) as found:
        asked = pool.ahead(found.sessions() for _ in range(1000))
        next(asked)
        raise KeyError
    asked.close()
    assert messages == []


def test_ages_count_back_from_now():
    """``30d``, ``2w`` and ``12h``."""
    now = datetime.datetime.now(datetime.timezone.utc)
    for text, hours in [("30d", 720), ("2w", 336), ("12h", 12)]:
        assert abs(now - moment(text) - datetime.timedelta(hours=hours)).total_seconds() < 60


def test_a_date_means_its_day_also_without_dashes():
    """Session ids are written so."""
    for end, day in ((False, 15), (True, 16)):
        dashed = moment("2026-11-15", end=end)
        assert moment("20261115", end=end) == dashed and dashed.day == day
