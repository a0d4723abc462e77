"""`plumbline clear`: verdicts, exit codes, and the whole of it on a real Slurm."""

from __future__ import annotations

import csv
import datetime
import io
import json
from pathlib import Path
from types import SimpleNamespace

import cluster
import numpy as np
import pytest
from conftest import fault_of
from examples import prints, shown
from login_node import LoginNode, site_, virtual_  # noqa: F401 - fixtures
from plumbline.analysis import clear
from plumbline.analysis.screen import detection
from plumbline.history.rows import NodeRow
from plumbline.operate import clear as operating
from plumbline.operate import sweep as sweeps
from plumbline.site import slurm
from records import figure
from test_node_verdict import SCRIPT, hook
from weekly import FIGURES, Fleet, fleet_  # noqa: F401 - fixtures

# -- the verdict ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "verdict", "code"), [(0, "go", 0), (0.05, "no-go", 1)])
def test_a_node_alone_is_judged_by_its_own_nights_and_its_peers(fleet: Fleet, loss, verdict, code):
    """Two days after its peers, and by itself, for which `screen` has too few peers."""
    fleet.weeks(8)
    session = fleet.measure(51, "n003", loss, repeats=5)
    done, (found,) = fleet.clear("n003")
    assert (done.code, found["verdict"], found["exit_code"]) == (code, verdict, code), done.output
    assert found["sessions"] == [session]
    assert {row["verdict"] for row in found["figures"]} == {"regressed" if loss else "unchanged"}
    for row in found["figures"]:
        assert (row["values"], row["nights"], row["number"]) == (5, 8, 11)
        # Relative to what is better, whichever way that is.
        assert row["difference"] == pytest.approx(-loss, abs=0.01)
        assert row["low"] < row["difference"] < row["high"]
        ((name, level, _),) = (one for one in FIGURES if one[0] in row["label"].split())
        assert row["usual"] == pytest.approx(level, rel=0.05), name


def test_a_night_in_which_only_a_retry_measured_does_not_count(fleet: Fleet):
    fleet.weeks(8)
    session = fleet.measure(51, "n003", repeats=5)
    fleet.measure(53, "n003", attempt=1)
    done, (found,) = fleet.clear("n003")
    assert (done.code, found["sessions"]) == (0, [session])


def test_a_node_that_is_faster_than_it_was_is_a_go(fleet: Fleet):
    fleet.weeks(8)
    fleet.measure(51, "n003", -0.08, repeats=5)
    assert fleet.clear("n003")[0].code == 0


def test_what_all_nodes_gained_since_is_expected_of_it_too(fleet: Fleet):
    """An upgrade made all faster by 6 % while the node was away: as it was, it is slow now."""
    fleet.weeks(6)
    for week in (6, 7, 8, 9):
        for node in fleet.nodes:
            if node != "n003":
                fleet.measure(7 * week, node, -0.06)
    fleet.measure(63, "n003", 0.0, repeats=5)
    done, (found,) = fleet.clear("n003")
    assert (done.code, found["verdict"]) == (1, "no-go"), found
    assert found["figures"][0]["difference"] == pytest.approx(-0.06, abs=0.015)


@pytest.mark.parametrize(
    ("nights", "as_before", "as_peers"),
    [(1, "not enough data", "go"), (2, "no-go", "go"), (5, "no-go", "go")],
)
@pytest.mark.parametrize("gain", [0.06, -0.08])
def test_a_node_is_expected_to_have_what_its_peers_changed_in_the_last_nights(
    fleet: Fleet, nights: int, as_before: str, as_peers: str, gain: float
):
    """Measured every night, and without it since all others became faster, or slower."""
    for day in range(18):
        for node in fleet.nodes:
            changed = day >= 18 - nights
            if node != "n003" or not changed:
                fleet.measure(day, node, -gain if changed else 0.0)
    fleet.measure(18.6, "n003", -gain, repeats=5)
    if gain < 0 and nights == 1:
        as_peers = "not enough data"
    assert fleet.clear("n003")[1][0]["verdict"] == as_peers
    if gain > 0:
        fleet.measure(20.6, "n003", 0.0, repeats=5)
        assert fleet.clear("n003")[1][0]["verdict"] == as_before


def test_one_night_on_which_all_were_slow_is_no_change(fleet: Fleet):
    """The last one: a node that is as slow as all were then is not shown to be healthy."""
    for day in range(18):
        for node in fleet.nodes:
            fleet.measure(day, node, 0.08 if day == 17 else 0.0)
    fleet.measure(18.6, "n003", 0.06, repeats=5)
    assert fleet.clear("n003")[0].code == 2


def test_its_slow_nights_are_not_its_usual_ones(fleet: Fleet):
    """Flagged by screening for its last four weeks, and as slow as then: no-go; repaired: go."""
    fleet.weeks(10, n003=(6, 0.08))
    fleet.measure(65, "n003", 0.08, repeats=5)
    done, (found,) = fleet.clear("n003")
    assert (done.code, {row["nights"] for row in found["figures"]}) == (1, {6})
    fleet.measure(67, "n003", 0.0, repeats=5)
    done, (found,) = fleet.clear("n003")
    assert done.code == 0, found


def test_what_was_slow_on_all_of_the_last_nights_is_not_usual(fleet: Fleet):
    """As fast as its peers now, and slower than it was before."""
    fleet.levels["n003"] = 0.08
    weeks = 6 + detection.MEMORY
    fleet.weeks(weeks, n003=(4, 0.08))
    fleet.measure(7 * weeks, "n003", 0.08, repeats=5)
    done, (found,) = fleet.clear("n003")
    assert (done.code, {row["nights"] for row in found["figures"]}) == (1, {4})


def test_none_of_several_slow_spells_is_usual(fleet: Fleet):
    """Slow for three weeks, repaired, and slow again until now."""
    slow = (6, 7, 8, 13, 14, 15, 16)
    for week in range(17):
        for node in fleet.nodes:
            fleet.measure(7 * week, node, 0.08 if node == "n003" and week in slow else 0.0)
    fleet.measure(114, "n003", 0.08, repeats=5)
    done, (found,) = fleet.clear("n003")
    assert (done.code, {row["nights"] for row in found["figures"]}) == (1, {10})


def test_of_sweeps_of_a_seventh_of_the_nodes_a_day_its_own_nights_count(fleet: Fleet, monkeypatch):
    """The peers that were measured last were never measured on its nights."""
    monkeypatch.setattr(clear, "PEERS", 12)
    fleet = Fleet(fleet.results, nodes=42)
    for week in range(8):
        for number, node in enumerate(fleet.nodes):
            fleet.measure(7 * week + number % 3, node)
    fleet.measure(55, "n003", repeats=5)
    done, (found,) = fleet.clear("n003")
    assert (done.code, {row["nights"] for row in found["figures"]}) == (0, {8}), found


@pytest.mark.parametrize("minutes", [-10, 10])
def test_peers_of_the_same_night_cancel_what_moves_all(fleet: Fleet, minutes: int):
    """A night on which all are slow, whichever is measured first."""
    fleet.weeks(8)
    fleet.measure(51, "n003", 0.06, repeats=5)
    assert fleet.clear("n003")[0].code == 1
    for node in fleet.nodes[4:10]:
        fleet.measure(51 + minutes / 1440, node, 0.06)
    done, (found,) = fleet.clear("n003")
    assert (done.code, {row["number"] for row in found["figures"]}) == (0, {11}), found


def test_before_limits_its_usual_nights(fleet: Fleet):
    """Its drain is known, although screening did not flag it."""
    fleet.weeks(8)
    fleet.measure(51, "n003", repeats=5)
    date = f"{fleet.start + datetime.timedelta(days=20):%Y-%m-%d}"
    _, (found,) = fleet.clear("n003", "--before", date)
    assert {row["nights"] for row in found["figures"]} == {3}
    # Half an hour before the fourth night, which began at 22:00 UTC.
    early = f"{fleet.start + datetime.timedelta(days=21):%Y-%m-%d}T23:30+02:00"
    _, (found,) = fleet.clear("n003", "--before", early)
    assert {row["nights"] for row in found["figures"]} == {3}
    done, _ = fleet.clear("n003", "--before", "yesterday")
    assert (done.code, done.codes) == (2, ["input.wrong-option"])


@pytest.mark.parametrize(("loss", "code"), [(0, 0), (0.12, 1)])
def test_a_new_node_is_compared_with_its_peers_alone(fleet: Fleet, loss: float, code: int):
    fleet.nodes.remove("n003")
    fleet.weeks(8)
    fleet.levels["n003"] = 0.0
    fleet.measure(51, "n003", loss, repeats=5)
    done, (found,) = fleet.clear("n003")
    assert done.code == code, found
    assert {(row["nights"], row["usual"]) for row in found["figures"]} == {(0, None)}


def test_a_node_without_peers_is_compared_with_its_own_nights(tmp_path: Path):
    fleet = Fleet(tmp_path / "results", nodes=1)
    fleet.weeks(12)
    fleet.measure(80, "n000", 0.0, repeats=5)
    done, (found,) = fleet.clear("n000")
    assert (done.code, {row["number"] for row in found["figures"]}) == (0, {0}), found
    fleet.measure(82, "n000", 0.08, repeats=5)
    assert fleet.clear("n000")[0].code == 1


def test_too_little_is_known(tmp_path: Path):
    """One earlier night, no peers."""
    fleet = Fleet(tmp_path / "results", nodes=1)
    fleet.measure(0, "n000")
    fleet.measure(7, "n000", repeats=5)
    done, (found,) = fleet.clear("n000")
    assert (done.code, found["verdict"]) == (2, "not enough data")
    assert all(row["reason"] and row["difference"] is None for row in found["figures"])
    assert not (fleet.results / "verdicts" / "n000").exists()


@pytest.mark.parametrize(
    ("result", "nodes", "check", "verdict"),
    [
        ("fail", ["n003"], "other", "no-go"),
        ("error", ["n003"], "other", "not enough data"),
        ("pass", ["n003"], "other", "go"),
        # Without a job, as where modules do not load or a file system is not mounted.
        ("error", [], "other", "not enough data"),
        ("aborted", [], "other", "not enough data"),
        ("unfinished", [], "other", "not enough data"),
        ("skip", [], "io", "not enough data"),
        # No node has ever run it.
        ("skip", [], "other", "go"),
    ],
)
def test_a_case_that_did_not_pass_is_no_go_or_inconclusive(
    fleet: Fleet, result, nodes, check, verdict
):
    """However fast the others are."""
    fleet.weeks(8)
    fleet.add(fleet.measure(50, "n004"), "io", nodes=["n004"], foms=[figure(100.0)])
    session = fleet.measure(51, "n003", repeats=5)
    fleet.add(session, check, result=result, nodes=nodes, reason="broken")
    done, (found,) = fleet.clear("n003")
    assert (found["verdict"], done.code) == (verdict, clear.EXIT[verdict]), found["reasons"]


def test_a_planned_case_without_a_record_has_no_result(fleet: Fleet):
    """As of a node that died, or a disk that was full."""
    fleet.weeks(8)
    path = fleet.results / "sessions" / fleet.measure(51, "n003", repeats=5) / "records.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    done, (found,) = fleet.clear("n003")
    assert (done.code, found["verdict"]) == (2, "not enough data")


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_lost_of_a_distributed_session_prevents_a_go(
    fleet: Fleet, tmp_path: Path, damaged: bool
):
    """Of one node; a line that cannot be read may be of any node, and of one that has a record."""
    for day in range(8):
        fleet.distribute(day)
    fleet.distribute(8, "n003 io", damaged=damaged)
    done, found = fleet.clear("n[003-004]", "--hook", hook(tmp_path))
    expected = ["not enough data", "not enough data" if damaged else "go"]
    assert (done.code, [one["verdict"] for one in found]) == (2, expected), found
    published = [] if damaged else ["n004"]
    assert [path.name for path in fleet.results.glob("verdicts/big/*")] == published
    assert (tmp_path / "called").exists() is not damaged


@pytest.mark.parametrize("distributed", [False, True])
def test_a_night_without_any_record_is_not_replaced_by_an_earlier_one(
    fleet: Fleet, distributed: bool
):
    """As of a node that died before its first test case ended."""
    if distributed:
        for day in range(8):
            fleet.distribute(day)
        session = fleet.distribute(8, "n003")
    else:
        fleet.weeks(8)
        session = fleet.measure(51, "n003")
        (fleet.results / "sessions" / session / "records.jsonl").unlink()
    done, (found,) = fleet.clear("n003")
    assert (done.code, found["sessions"], found["figures"]) == (2, [session], [])


@pytest.mark.parametrize("result", ["error", "skip"])
def test_a_night_without_any_result_is_not_replaced_by_an_earlier_one(fleet: Fleet, result):
    fleet.weeks(8)
    session = fleet.measure(51, "n003", result=result, nodes=[], foms=[], reason="broken")
    done, (found,) = fleet.clear("n003")
    assert (done.code, found["sessions"], found["figures"]) == (2, [session], [])


@pytest.mark.parametrize(
    ("code", "planned", "verdict"),
    [
        ("0", ["stream"], "go"),
        ("1", ["stream"], "not enough data"),
        ("2", ["stream"], "not enough data"),
        ("0", ["stream", "io"], "not enough data"),
    ],
)
def test_a_go_needs_a_session_that_was_ok(
    fleet: Fleet, tmp_path: Path, monkeypatch, code, planned, verdict
):
    """All that it measured is."""
    fleet.weeks(8)
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(fleet.results))
    name = fleet.measure(51, "n003", repeats=5)[:8]
    cases = [f"{check} @big:cpu+gcc" for check in planned]
    made = sweeps.Sweep(name, "big", "cpu", [], "", 1, cases, 60, ["n003"], {})
    made.write()
    made.claim("n003").mkdir()
    (made.claim("n003") / "code").write_text(code)
    monkeypatch.setattr(operating, "sweep_of", lambda *_: made)
    monkeypatch.setattr(sweeps, "run", lambda _: 0)
    options = ["--format=json", "--output", tmp_path / "found", "--hook", hook(tmp_path)]
    done = fleet.plumbline("clear", "n003", *options)
    (found,) = json.loads((tmp_path / "found").read_text())
    assert (found["verdict"], done.code) == (verdict, clear.EXIT[verdict]), found["reasons"]
    assert {row["verdict"] for row in found["figures"]} == {"unchanged"}
    assert (tmp_path / "called").exists() == (verdict == "go")


def test_noise_that_hides_a_loss_is_too_little_data(tmp_path: Path):
    fleet = Fleet(tmp_path / "results", noise=0.05)
    fleet.weeks(8)
    fleet.measure(51, "n003", repeats=5)
    done, (found,) = fleet.clear("n003")
    assert (done.code, found["verdict"]) == (2, "not enough data")
    assert fleet.clear("n003", "--margin", "45")[0].code == 0
    count = len(found["figures"])
    assert 0 < sum(row["verdict"] == "too little data" for row in found["figures"]) <= count


def test_a_list_of_nodes_has_the_worst_exit_code(fleet: Fleet):
    fleet.weeks(8)
    fleet.measure(51, "n003", 0.0, repeats=5)
    fleet.measure(51, "n004", 0.06, repeats=5)
    done, found = fleet.clear("n[003-004]")
    assert (done.code, [one["verdict"] for one in found]) == (1, ["go", "no-go"])


def test_nodes_that_are_judged_together_are_no_peers(fleet: Fleet):
    """Six of twelve, repaired alike and slow alike, in one night."""
    fleet.weeks(8)
    for node in fleet.nodes[:6]:
        fleet.measure(51, node, 0.06, repeats=5)
    done, found = fleet.clear("n[000-005]")
    assert {one["verdict"] for one in found} == {"no-go"}, done.output


def test_the_table_and_csv(fleet: Fleet):
    fleet.weeks(8)
    fleet.measure(51, "n003", 0.06, repeats=5)
    text = fleet.plumbline("clear", "n003", "--no-measure").out
    assert max(map(len, text.splitlines()[:5])) <= 100
    assert prints(text, shown("clear.md", "no-go").replace("n031", "n003")), text
    done = fleet.plumbline("clear", "n003", "--no-measure", "--format=csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {(row["node"], row["verdict"]) for row in rows} == {("n003", "regressed")}
    assert len(rows) == len(FIGURES)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["n777", "--no-measure"], "history.unknown-node"),
        (["n777", "--no-measure", "--system=big", "--partition=cpu"], "history.unknown-node"),
        (["n003", "--no-measure", "--with-peers", "5"], "input.wrong-option"),
        (["n003;id", "--no-measure"], "input.wrong-option"),
        (["n003", "--hook", "/dev/null/none"], ""),
    ],
)
def test_what_cannot_be_judged_is_refused(fleet: Fleet, words: list[str], code: str):
    fleet.weeks(2)
    done = fleet.plumbline("clear", *words)
    assert (done.code, done.codes) == (2, [code] if code else [])


@pytest.mark.parametrize(
    ("node", "reservation", "code"),
    [
        ("n1", "", "scheduler.no-node"),
        # Whose name is another one for Slurm, and which is not in the reservation.
        ("N2", "", "input.unknown-name"),
        ("n1", "m1", "input.unknown-name"),
    ],
)
def test_only_a_node_that_slurm_has_is_to_be_reserved(monkeypatch, node, reservation, code):
    answers = {
        "sinfo": "".join(f"n{n}|q|1|4|1|1|(null)|a|{state}|none\n"
                         for n, state in enumerate(("drained", "idle"), 1)),
        "reservation": "ReservationName=m1 Nodes=n2 Flags=MAINT State=ACTIVE\n",
        "hostnames": "n2\n",
    }  # fmt: skip
    monkeypatch.setattr(
        slurm, "capture", lambda *words, **_: answers[next(w for w in words if w in answers)]
    )
    monkeypatch.setattr(sweeps, "create", lambda *_: None)
    partition = {"name": "p", "access": ["--partition=q"]}
    monkeypatch.setattr(sweeps, "partition_of", lambda *_: partition)
    place = ("alder", "p")
    fault_of(lambda: operating.sweep_of([node], place, [], 1, reservation, None), code)


def test_peers_are_nodes_of_the_same_system(monkeypatch):
    """Of two systems whose nodes and partitions have the same names."""

    def row(node: str, day: int, system: str) -> NodeRow:
        time = np.datetime64(f"2026-11-{day:02}", "s")
        return NodeRow(system, "cpu", node, 1, "s", time, {"pass": 1}, time)

    monkeypatch.setattr(operating, "available", lambda *_: (["n1", "n2", "n3", "n4"], {}))
    monkeypatch.setattr(sweeps, "partition_of", lambda *_: {})
    rows = [row("n2", 1, "alder"), row("n3", 2, "alder"), row("n2", 9, "birch"),
            row("n4", 9, "birch")]  # fmt: skip
    sweep = SimpleNamespace(system="alder", partition="cpu", nodes=["n1"])
    assert operating.peers_tonight(sweep, rows, 5) == ["n3", "n2"]


# -- on a real Slurm ------------------------------------------------------------------------------

SET = ("-n", "imb_p2p%operation=PingPong.*on-socket", "-S", "num_samples=1")


@pytest.mark.cluster
def test_a_node_is_measured_again_in_a_reservation_and_judged(site: LoginNode):
    """A drained node is refused with the commands; these are run, and it is measured."""
    assert site.sweep("cpu", "--nodes", "n[0-1]", *SET).returncode == 0
    site.there.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    refused = site.plumbline("clear", "n1", *SET)
    assert refused.returncode == 2 and "[scheduler.no-node]" in refused.stderr, refused.stderr
    lines = [line.split()[1:] for line in refused.stderr.splitlines() if "  scontrol " in line]
    assert len(lines) == 2
    for words in lines:
        site.there.run(*(word.replace("$USER", "root") for word in words))
    cluster.wait_for(lambda: site.there.state("n1") in ("maint", "idle"))
    done = site.plumbline("clear", "n1", "--reservation", "clear-n1", "--repeat", "3", *SET,
                          "--format=json")  # fmt: skip
    site.there.run("scontrol", "delete", "reservationname=clear-n1")
    assert done.returncode == 2, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)
    assert found["verdict"] == "not enough data"
    assert {row["values"] for row in found["figures"]} == {3}
    nodes = json.loads(site.plumbline("history", "nodes", "--format=json").stdout)
    assert [(one["node"], one["sessions"]) for one in nodes] == [("n0", 1), ("n1", 2)]
    # A sweep by age has the two that were never measured, and then none.
    done = site.sweep("cpu", "--older-than", "7d", "--budget", "30m", "--jobs", "4", *SET)
    assert done.returncode == 0 and "2 nodes due, of them 2 never" in done.stdout, done.stdout
    assert [node for node, _ in site.measured()].count("n2") == 1
    done = site.sweep("cpu", "--older-than", "7d", "--budget", "30m", *SET)
    assert done.returncode == 0 and "0 nodes due" in done.stdout, done.stdout


@pytest.mark.cluster
def test_a_health_check_drains_by_the_last_verdict_and_a_prolog_stops_a_job(
    virtual: cluster.Cluster,
):
    """As slurm.conf names the script; slurmd runs it without PATH."""
    folder = virtual.folder / "results" / "verdicts" / "virtual"
    folder.mkdir(parents=True)
    program = virtual.folder / "ci" / "node-verdict"
    program.parent.mkdir()
    # A site's is in /etc/slurm.
    found = f"export SLURM_CONF={virtual.folder}/slurm.conf\nPATH="
    program.write_text(SCRIPT.read_text().replace("PATH=", found, 1))
    program.chmod(0o755)
    (folder / "n2").write_text("no-go 2026-11-24T18:00:00Z 3 figures regressed\n")
    conf = virtual.folder / "slurm.conf"
    usual = conf.read_text()
    try:
        conf.write_text(
            f"{usual}HealthCheckProgram={program}\nHealthCheckInterval=2\n"
            f"HealthCheckNodeState=ANY\n"
        )
        virtual.run("scontrol", "reconfigure")
        cluster.wait_for(lambda: virtual.state("n2") == "drained")
        reason = virtual.run("scontrol", "show", "node", "n2").stdout
        assert "3 figures regressed" in reason
        assert virtual.state("n1") == "idle"
        # As a prolog: the job is requeued, and Slurm drains the node.
        conf.write_text(f"{usual}Prolog={program}\nPrologFlags=Alloc\n")
        virtual.run("scontrol", "reconfigure")
        virtual.run("scontrol", "update", "nodename=n2", "state=resume")
        virtual.run("sbatch", "--nodelist=n2", "--wrap=true", "--output=/dev/null")
        cluster.wait_for(lambda: "drain" in virtual.state("n2"))
        virtual.run("sbatch", "--wait", "--nodelist=n1", "--wrap=true", "--output=/dev/null")
    finally:
        conf.write_text(usual)
        virtual.run("scontrol", "reconfigure")
        (folder / "n2").unlink()
        virtual.repair()
