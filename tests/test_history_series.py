"""What the history reads of the lines of sessions: series, cases and links."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import records
from conftest import BIN
from histories import (
    NIGHT,
    fom,
    line,
    results_,  # noqa: F401 - a fixture
    store,
    values_of,
)
from plumbline.check import record
from plumbline.history import history
from plumbline.history.history import History
from records import valid


def test_a_series_has_what_the_lines_say(results: Path):
    """One series over two sessions, its arrays in the order of time."""
    store(results, line(day=2, foms=[fom(11.0, upper=None, verdict="not-asserted", reference=None,
                                         ceiling=20.0)], nodes=["n3"], build={}))  # fmt: skip
    store(results, line(day=1, foms=[fom(10.0)]))
    with History(results) as found:
        (series,) = found.series()
        assert found.faults == found.notes == []
    assert series.key == history.Key(
        "alpha", "cpu", "gnu", "osu_latency %placement=on-node", "latency", 8, "", "on-node",
        "buffers=host;window=64", "",
    )  # fmt: skip
    assert (series.benchmark, series.unit, series.better) == ("osu", "us", "lower")
    assert series.sessions.tolist() == ["20261101T010000Z-000001", "20261102T010000Z-000002"]
    assert series.times.dtype == "datetime64[s]"
    assert series.times.tolist() == [datetime.datetime(2026, 11, day, 1) for day in (1, 2)]
    assert series.values.tolist() == [10.0, 11.0]
    assert np.isnan(series.lower).all()
    np.testing.assert_array_equal(series.upper, [12.5, np.nan])
    np.testing.assert_array_equal(series.ceiling, [np.nan, 20.0])
    assert series.verdicts.tolist() == ["pass", "not-asserted"]
    assert series.references.tolist() == ["r1", ""]
    sha = hashlib.md5(f"sha256={'a' * 64}".encode()).hexdigest()[:12]
    assert series.builds.tolist() == [sha, ""]
    assert series.nodes.tolist() == ["n1,n2", "n3"]
    assert series.samples == [[10.0, 11.0], [11.0, 12.0]]


def test_series_hold_only_what_was_measured(results: Path):
    """A case that was skipped, or whose output cannot be trusted, gives no value; but is a case."""
    kinds = ["pass", "fail", "waived", "invalid", "error", "skip", "aborted", "unfinished"]
    store(results, *(line(n, result=kind, foms=[fom(float(n))]) for n, kind in enumerate(kinds)))
    assert values_of(results) == [0.0, 1.0, 2.0]
    with History(results) as found:
        assert [case.result for case in found.cases()] == kinds
        (session,) = found.sessions()
    assert session.results == dict.fromkeys(kinds, 1)
    assert session.verdicts == {"pass": 8}


def test_figures_of_one_case_are_series_of_their_own(results: Path):
    """By metric, size, position and placement; and the node of ``--distribute`` by itself."""
    foms = [fom(1.0), fom(2.0, size=16), fom(3.0, location="gpu0-gpu1"),
            fom(4.0, placement="numa-0-1"), fom(5.0, metric="bandwidth", size=None)]  # fmt: skip
    pinned = "osu_latency %placement=on-node %.part=alpha:cpu %.nid=n7 %.repeat_no=2"
    store(results, line(foms=foms), line(1, check=pinned, foms=[fom(6.0)]))
    with History(results) as found:
        series = found.series()
    assert [s.key for s in series] == sorted(s.key for s in series)
    assert {s.values[0]: (s.key.metric, s.key.size, s.key.location, s.key.placement, s.key.node)
            for s in series} == {
        1.0: ("latency", 8, "", "on-node", ""),
        2.0: ("latency", 16, "", "on-node", ""),
        3.0: ("latency", 8, "gpu0-gpu1", "on-node", ""),
        4.0: ("latency", 8, "", "numa-0-1", ""),
        5.0: ("bandwidth", -1, "", "on-node", ""),
        6.0: ("latency", 8, "", "on-node", "n7"),
    }  # fmt: skip
    assert {s.key.check for s in series} == {"osu_latency %placement=on-node"}


def test_reframe_names_a_distributed_case_as_is_read_here(tmp_path: Path):
    """The real name of ``reframe --distribute`` gives check and node."""
    (tmp_path / "check.py").write_text(
        "import reframe as rfm\n"
        "@rfm.simple_test\n"
        "class Hello(rfm.RunOnlyRegressionTest):\n"
        "    size = parameter([1])\n"
        "    valid_systems = ['*']\n"
        "    valid_prog_environs = ['*']\n"
    )
    (tmp_path / "settings.py").write_text("site_configuration = {}\n")
    done = subprocess.run(
        [BIN / "reframe", "-c", "check.py", "-C", "settings.py", "--distribute=all", "-L"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "RFM_COLORIZE": "0", "HOME": str(tmp_path)},
    )  # fmt: skip
    names = [text[2:].split(" /")[0] for text in done.stdout.splitlines() if ".nid" in text]
    assert names, done.stdout + done.stderr
    store(tmp_path, line(check=names[0]))
    with History(tmp_path) as found:
        (case,) = found.cases()
    assert case.check == "Hello %size=1"
    assert case.node and f"%.nid={case.node}" in names[0]


def test_lines_of_older_schemas_are_read_as_what_they_stand_for(results: Path):
    """Schema 1 had one placement for the whole case; neither 1 nor 2 said what is better."""
    one = line(schema=1, benchmark="imb", placement="on-socket",
               foms=[fom(1.0, metric="pingpong_latency")])  # fmt: skip
    for name in ("location", "placement", "summary", "reason", "better", "near_bound", "waiver"):
        del one["foms"][0][name]
    two = line(1, schema=2, foms=[fom(2.0, metric="made_up")])
    for name in ("better", "near_bound", "waiver"):
        del two["foms"][0][name]
    for fields in (one, two):
        del fields["waiver"]
    store(results, one, two)
    with History(results) as found:
        series = {s.key.metric: s for s in found.series()}
        assert found.faults == []
        assert [fields.schema_version for fields in found.records()] == [record.SCHEMA] * 2
    assert series["pingpong_latency"].better == "lower"
    assert series["pingpong_latency"].key.placement == "on-socket"
    assert series["made_up"].better == "neither"


def test_values_are_converted_to_the_newest_unit(results: Path):
    """With their bounds and samples. What cannot be converted is skipped and reported."""
    bounds = {"lower": None, "upper": 1500.0, "ceiling": 500.0}
    store(results, line(day=1, foms=[fom(1.0, unit="MB/s")]))
    store(results, line(day=2, foms=[fom(1000.0, unit="ns", samples=[900.0, 1000.0], **bounds)]))
    store(results, line(day=3, foms=[fom(1.0, unit="us")]))
    with History(results) as found:
        (series,) = found.series()
        assert (series.unit, series.values.tolist()) == ("us", pytest.approx([1.0, 1.0]))
        assert series.samples == [pytest.approx([0.9, 1.0]), [1.0, 2.0]]
        assert (series.upper[0], series.ceiling[0]) == pytest.approx((1.5, 0.5))
        assert np.isnan(series.lower[0])
        (fault,) = found.faults
        assert fault.startswith(f"{series.key.check} @alpha latency: 1 ")
        (series,) = found.series(samples=False)
        assert series.values.tolist() == pytest.approx([1.0, 1.0])


def test_sessions_are_in_the_order_of_their_times(results: Path):
    """Not of their names: a clock may have been wrong when they were named."""
    store(results, line(day=5, foms=[fom(5.0)]), name="20200101T000000Z-000000")
    store(results, line(day=4, foms=[fom(4.0)]), name="20300101T000000Z-000000")
    assert values_of(results) == [4.0, 5.0]


def test_a_clock_that_jumped_back_is_reported(results: Path):
    """The lines' order is kept, and the session counts to the time of its first."""
    store(
        results, line(10, foms=[fom(1.0)]), line(-7200, foms=[fom(2.0)]), line(20, foms=[fom(3.0)])
    )
    messages = []
    with History(results, say=messages.append) as found:
        (series,) = found.series()
        assert series.values.tolist() == [1.0, 2.0, 3.0]
        assert found.faults == []
        (note,) = found.notes
        assert note.startswith(f"{NIGHT}: ")
        assert messages == [note]
        (session,) = found.sessions()
    assert session.start == np.datetime64("2026-11-01T01:00:10")


def test_records_of_the_tests_keep_to_the_schema():
    """What these tests write is what Plumbline writes."""
    valid(json.loads(records.dumps(line())))
