"""Screening of the sessions of the history."""

from __future__ import annotations

import datetime
import json
import shutil

import foreign
import numpy as np
import pytest
import records
from fleet import Fleet
from plumbline.analysis.screen import chosen, detection, of_series, screen_history
from plumbline.core.text import WIDTH
from plumbline.history.history import History
from plumbline.history.series import Key, Selection
from plumbline.output.report.slow_nodes import of_system
from plumbline.output.report.status import SystemState
from plumbline.placement.pairing import rounds
from records import figure, plan, write
from screened import command, measured, remember


def test_sessions_of_the_history_are_screened_up_to_the_one_named(tmp_path):
    fleet = Fleet(60, nodes=20, nights=8, noise=0.01, slow={("n007",): (6, 0.15)})
    made = remember(tmp_path, fleet)
    done = command("--from", tmp_path)
    assert done.code == 1, done.output
    assert "n007" in done.out
    assert f"2026-11-{made[6][6:8]}  active" in done.out
    assert max(map(len, done.out.splitlines())) <= WIDTH
    assert "bandwidth" in done.out
    assert command(made[4], "--from", tmp_path).code == 0
    done = command(made[6], "--from", tmp_path, "--format", "json")
    assert [(o["night"], o["node"]) for o in json.loads(done.out)] == [(made[6], "n007")]


def test_a_session_in_the_future_is_not_the_last_night(tmp_path):
    """Its clock was wrong. On it the node that is slow now was as fast as the others."""
    fleet = Fleet(60, nodes=20, nights=8, noise=0.01, slow={("n007",): (6, 0.15)})
    first, *_, last = remember(tmp_path, fleet)
    ahead = last.replace("2026", "2999")
    folder = tmp_path / "sessions" / ahead
    shutil.copytree(tmp_path / "sessions" / first, folder)
    for path in folder.iterdir():
        text = path.read_text().replace(first, ahead)
        path.write_text(text.replace("2026-11-01T22:00:10Z", "2999-11-08T22:00:10Z"))
    done = command("--from", tmp_path, "--format=json")
    assert done.code == 1, done.output
    assert [(o["node"], o["until"]) for o in json.loads(done.out)] == [("n007", None)]
    assert ahead in done.err
    with History(tmp_path) as history:
        rows = {row.session: row for row in history.sessions()}
        state = SystemState("big", rows[last], [], None, [rows[ahead]])
        found = of_system(history, state, Selection())
    assert [(one.node, found.night) for one in found.nodes] == [("n007", last)]


def test_a_node_that_has_been_slow_for_longer_than_the_last_nights_is_still_flagged(tmp_path):
    """Until it is measured as healthy, as the other one was."""
    slow = {("n003",): (12, 0.15), ("n007",): (12, 0.15)}
    fleet = Fleet(62, nodes=24, nights=18 + detection.MEMORY, noise=0.01, slow=slow)
    values = fleet.values()
    for (night, unit), rows in values.values.items():
        if unit == ("n003",) and int(night) >= fleet.nights - 4:
            rows[0] /= 1 - 0.15
    fleet.values = lambda: values
    made = remember(tmp_path, fleet, first="2026-08-01")
    done = command("--from", tmp_path, "--format", "json")
    (one,) = json.loads(done.out)
    assert (done.code, one["node"], one["until"]) == (1, "n007", None)
    # The first of its slow nights that was read, and the last one before it that was.
    assert made[12] <= one["since"] < made[18]
    (before,) = (name for name in made if name in one["note"])
    assert before < made[12]
    with History(tmp_path) as history:
        state = SystemState("big", history.sessions()[-1], [], None, [])
        slow_now = of_system(history, state, Selection()).now
    assert [flag.fields() for flag in slow_now] == [one]
    assert command(made[11], "--from", tmp_path).code == 0


@pytest.mark.parametrize("parts", [1, 7])
def test_fewer_of_the_older_nights_are_used(parts: int):
    """Of sweeps of a seventh of the nodes each night, as many as have half of the nodes."""
    first = datetime.date(2026, 1, 1)
    days = [f"{first + datetime.timedelta(days=day):%Y%m%dT220000Z}-000000" for day in range(365)]
    units = {name: range(day % parts, 70, parts) for day, name in enumerate(days)}
    used = sorted(chosen(units))
    assert used[-detection.MEMORY :] == days[-detection.MEMORY :]
    older = used[: -detection.MEMORY]
    assert older[:8] == days[:8] and len(older) <= 8 + 14 * -(-parts // 2)
    for begin in range(64, 256, 64):
        measured = {unit for name in older if name in days[begin : begin + 64]
                    for unit in units[name]}  # fmt: skip
        assert len(measured) >= 35
    # Tomorrow the same nights are used, but for those at the ends of spans of time.
    later = chosen({name: units[name] for name in days[:-1]})
    assert len(later ^ {*used}) <= 10


def test_pairs_of_the_history_flag_the_node(tmp_path):
    fleet = Fleet(61, nodes=40, nights=2, noise=0.01, slow={("n007",): (1, 0.15)})
    remember(tmp_path, fleet, location="pairs")
    done = command("--from", tmp_path, "--format", "json")
    assert [(o["kind"], o["node"]) for o in json.loads(done.out)] == [("node", "n007")]


def test_a_slow_pair_of_three_samples_is_flagged_by_the_report_too(tmp_path):
    """On its first night, of one record of all pairs."""
    fleet = Fleet(34, nodes=64, nights=1, noise=0.01)
    pair = tuple(sorted(rounds(fleet.names, seed=1000 * fleet.seed)[0][0]))
    fleet.slow[pair] = 0, 0.15
    foms = [figure(value, samples=[value] * 3, location=":".join(unit))
            for (_, unit), (value,) in fleet.pairs().pairs.items()]  # fmt: skip
    session = "20261101T220000Z-000000"
    write(tmp_path, [measured(session, fleet.names, foms)], plan(session, [], system="big"))
    with History(tmp_path) as history:
        state = SystemState("big", history.sessions()[-1], [], None, [])
        found = screen_history(history, Selection()), of_system(history, state, Selection())
    assert [{flag.name for flag in one.now} for one in found] == [{pair}] * 2


def test_pairs_and_nodes_that_a_run_measured_are_screened(tmp_path):
    """At the simulated facility: pairs of ten nodes, and a check distributed over six of them."""
    slow = {"kind": "slow", "node": "nid001004", "factor": 1.4}
    foreign.prepare("perlmutter", tmp_path)
    one = ["-S", "num_samples=1", "-S", "num_warmups=0"]
    for arguments in (
        ["-n", "osu_node_pairs.*test=latency", "-S", "osu_node_pairs.nodes=10", *one],
        ["-n", "osu_p2p.*test=latency.*on-socket", "--distribute=idle",
         "-J=--nodelist=nid[001000-001005]", *one],
    ):  # fmt: skip
        run = foreign.run("perlmutter", tmp_path, *arguments, fault=slow, noise=0.005)
        assert run.records, run.output
    done = command("--from", tmp_path / "results", "--format", "json")
    assert done.code == 1, done.output
    (named,) = json.loads(done.out)
    assert (named["kind"], named["node"], named["drain"]) == ("node", "nid001004", True)
    assert any("osu_node_pairs" in what for what in named["evidence"])
    # Six peers of one night are enough for a loss of 29 %.
    only = command("--from", tmp_path / "results", "--check", "osu_p2p*", "--format", "json")
    assert [(flag["kind"], flag["node"]) for flag in json.loads(only.out)] == [
        ("node", "nid001004")]  # fmt: skip


def test_a_history_without_such_values_an_empty_one_and_a_session_that_is_not_there(tmp_path):
    remember(tmp_path, Fleet(62, nodes=10, nights=2))
    done = command("20200101T000000Z-000000", "--from", tmp_path)
    assert (done.code, done.codes) == (2, ["history.unknown-session"])
    assert "20200101T000000Z-000000" in done.err
    (tmp_path / "none").mkdir()
    done = command("--from", tmp_path / "none")
    assert (done.code, done.codes) == (2, ["history.empty"])


def test_of_a_latency_the_smallest_size_counts_and_of_a_bandwidth_the_largest():
    def series(metric, better, size):
        key = Key("s", "p", "e", "c", metric, size, "", "off-node", "", "n1")
        session, node = np.array(["20261101T220000Z-000000"]), np.array(["n1"])
        return records.series(key, [5.0], better=better, sessions=session, nodes=node)

    made = of_series(
        series(m, b, size)
        for m, b in (("bw", "higher"), ("latency", "lower"))
        for size in (8, 1024, 4194304)
    )
    assert sorted(group.label.split()[-2] for group in made) == ["4194304", "8"]


def test_a_size_that_is_no_longer_measured_is_not_screened():
    """As after a release of OSU that has no size 0, or a smaller `largest`."""
    night = [f"202611{day:02d}T220000Z-000000" for day in (1, 2, 3)]

    def of(size: int, *sessions: str, better: str = "lower"):
        key = Key("s", "p", "e", "c", "latency", size, "", "off-node", "", "n1")
        count, names = len(sessions), np.array(sessions, object)
        nodes = np.full(count, "n1", object)
        return records.series(key, [5.0] * count, better=better, sessions=names, nodes=nodes)

    (group,) = of_series([of(0, night[0]), of(1, *night[:2])])
    assert {at for at, _ in group.values} == {*night[:2]}
    (group,) = of_series([of(8, *night[:2], better="higher"), of(9, night[0], better="higher")])
    assert {at for at, _ in group.values} == {*night[:2]}
    # A night on which the figure was not measured at all tells nothing.
    groups = of_series([of(0, *night[:2]), of(1, *night[:2]), of(8, *night, better="higher")])
    assert [group.label.split()[-2] for group in groups] == ["0", "8"]
    # Nor does one after the session that is asked for.
    (group,) = of_series([of(0, night[0]), of(1, *night[:2])], night[:1])
    assert group.label.split()[-2] == "0"
