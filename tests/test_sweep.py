"""`plumbline sweep`: every node once, one job a node, whatever becomes of who submitted them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import big
import cluster
import numpy as np
import pytest
import records
from click.testing import CliRunner, Result
from conftest import BIN, CHECKS, Testbed, codes_in, fault_of, stop
from login_node import LoginNode, site_, virtual_  # noqa: F401 - fixtures
from plumbline.check import session_files
from plumbline.cli import main
from plumbline.cli.sweep import expanded
from plumbline.core import paths
from plumbline.history.rows import NodeRow
from plumbline.operate import sweep
from plumbline.operate.sweep import due, nodes
from plumbline.session.plan import preview, reframe
from plumbline.site import configuration, slurm
from records import records_of

#: The whole set of each node's session in these tests.
SET = ("-n", "imb_p2p%operation=PingPong.*on-socket", "-S", "num_samples=1")


@pytest.mark.cluster
def test_every_node_that_is_up_is_measured_once(site: LoginNode):
    """With a cap of two jobs: nodes, cluster's names in the records, and the codes."""
    site.there.run("scontrol", "update", "nodename=n3", "state=drain", "reason=disk $(touch x)")
    done = site.sweep("cpu", "--jobs", "2", *SET)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "3 nodes of virtual:cpu" in done.stdout
    skipped, *again = re.findall(r"^.*\bn3: skipped: (.*)$", done.stdout, re.M)
    assert {*again} <= {skipped}
    assert "drained" in skipped and "disk $(touch x)" in skipped
    assert f"sweep {site.name}: 3 measured, 1 skipped" in done.stdout
    assert site.measured() == [("n0", "pass"), ("n1", "pass"), ("n2", "pass")]
    for folder in (site.results / "sessions").iterdir():
        for fields in records_of(folder):
            assert (fields["system"], fields["partition"]) == ("virtual", "cpu")
            if node := fields["extras"].get("node"):
                assert fields["environment"] == "pip" and fields["extras"]["sweep"] == site.name
                assert {task["host"] for task in fields["tasks"]} == {node}
    jobs = site.there.run("sacct", "-X", "-n", "-o", "JobName%40", "-S", "now-1hour").stdout
    assert jobs.count("rfm_node_sweep") == 3, jobs
    # The node that was fixed is measured by the same sweep; the others are not again.
    site.there.run("scontrol", "update", "nodename=n3", "state=resume")
    cluster.wait_for(lambda: site.there.state("n3") == "idle")
    done = site.plumbline("sweep", "--resume", site.name)
    assert done.returncode == 0 and "4 measured, 0 skipped" in done.stdout, done.stdout
    assert [node for node, _ in site.measured()] == ["n0", "n1", "n2", "n3"]
    done = site.plumbline("screen", "--extras", f"sweep={site.name}")
    assert done.returncode == 2 and "4 nodes" in done.stderr


@pytest.mark.cluster
def test_killed_and_resumed(site: LoginNode, tmp_path: Path):
    """The one who submitted is gone (-9): its job goes on, and no node is measured twice."""
    pid = tmp_path / "pid"
    words = [str(BIN / "plumbline"), "sweep", "--system", "virtual", "--nodes", "n[0-1]", "--jobs",
             "1", "cpu", *SET]  # fmt: skip
    script = f'echo $$ > {pid}; exec "$@"'
    env = {**site.there.env, **site.env}
    process = subprocess.Popen(
        [*site.there.inside, "bash", "-c", script, "sweep", *words],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        cluster.wait_for(lambda: [*site.results.glob("sweeps/*/nodes/n?/job")])
        # On a busy machine the next job may have begun by now, or that have ended too.
        site.there.run("kill", f"-{signal.SIGKILL.value}", pid.read_text().strip(), check=False)
    finally:
        process.wait()
        stop(process)
    left = max(site.results.glob("sweeps/*/nodes/n?/job"))
    done = site.plumbline("sweep", "--resume", site.name)
    # Either it was still at it, which is no result, or it had just ended.
    if f"{left.parent.name}: in progress" in done.stdout + done.stderr:
        assert done.returncode == 2, done.stdout + done.stderr
    cluster.wait_for(lambda: (left.parent / "code").exists())
    done = site.plumbline("sweep", "--resume", site.name)
    assert done.returncode == 0 and "2 measured" in done.stdout, done.stdout + done.stderr
    assert site.measured() == [("n0", "pass"), ("n1", "pass")]
    # A job that died within its session left its node to be measured again.
    (left.parent / "code").unlink()
    shown = site.plumbline("sweep", "--show", site.name)
    assert shown.returncode == 2 and "failed: job" in shown.stdout, shown.stdout
    again = site.plumbline("sweep", "--resume", site.name)
    assert again.returncode == 0 and "2 measured" in again.stdout, again.stdout + again.stderr
    assert [*left.parent.parent.glob("*.cut-1")] and len(site.measured()) == 3


@pytest.mark.cluster
def test_within_a_reservation_for_maintenance(site: LoginNode):
    """Its nodes alone, and where it is not named, all but these."""
    reserve = ["scontrol", "create", "reservation", "StartTime=now", "Duration=60", "Users=root"]
    site.there.run(*reserve, "ReservationName=m1", "Flags=MAINT,IGNORE_JOBS", "Nodes=n1")
    site.there.run(*reserve, "ReservationName=course", "Flags=IGNORE_JOBS", "Nodes=n2")
    try:
        refused = site.sweep("cpu", "--reservation", "course", *SET)
        unknown = site.sweep("cpu", "--reservation", "nowhere")
        for done in (refused, unknown):
            assert done.returncode == 2 and "m1" in done.stderr, done.stderr
            assert codes_in(done.stderr) == ["scheduler.reservation"]
        done = site.sweep("cpu", "--reservation", "m1", *SET)
        assert done.returncode == 0 and "1 measured, 0 skipped" in done.stdout, done.stderr
        assert site.measured() == [("n1", "pass")]
    finally:
        for name in ("m1", "course"):
            site.there.run("scontrol", "delete", f"ReservationName={name}")


# -- without a cluster ---------------------------------------------------------------------------

PARTITION = {"name": "p", "scheduler": "slurm", "access": ["--partition=q", "--constraint=a&b"]}


def ask(answers: dict):
    return lambda *words, **_: answers.get(words[0])


def of_sinfo(state: str, reason: str = "none", name: str = "n1", features: str = "a,b") -> str:
    return f"{name}|q|1|4|1|1000|(null)|{features}|{state}|{reason}\n"


@pytest.mark.parametrize("state, up", [
    ("idle", True), ("allocated", True), ("mixed", True), ("completing", True), ("idle~", True),
    ("reserved", True), ("planned", True), ("blocked", True), ("idle*", False), ("down*", False),
    ("down", False), ("drained", False), ("draining", False), ("drained*", False), ("fail", False),
    ("unknown", False), ("maint", False), ("reboot^", False), ("no-such-state", False),
])  # fmt: skip
def test_states(monkeypatch, state: str, up: bool):
    """A node that cannot be had is left out with Slurm's own words."""
    monkeypatch.setattr(
        slurm, "capture", ask({"sinfo": of_sinfo(state, "fan\x1b[2J broken"), "scontrol": ""})
    )
    taken, out = nodes.available(PARTITION)
    assert (taken == ["n1"], set(out)) == (up, set() if up else {"n1"})
    if not up:
        assert state in out["n1"] and "broken" in out["n1"] and out["n1"].isprintable()


def test_nodes_in_order_of_their_numbers_and_by_constraint(monkeypatch):
    output = of_sinfo("idle", name="n10") + of_sinfo("idle", name="n9")
    output += of_sinfo("idle", name="n1", features="a") + of_sinfo("idle", name="n$(x)")
    monkeypatch.setattr(slurm, "capture", ask({"sinfo": output, "scontrol": ""}))
    taken, out = nodes.available(PARTITION)
    assert taken == ["n9", "n10"]
    assert out.keys() == {"n$(x)"}


@pytest.mark.parametrize("command, line, seen", [
    ("sinfo", of_sinfo("idle"), lambda: slurm.nodes()[0].name == "n1"),
    ("squeue", "7|RUNNING\n", lambda: slurm.job_state("7", 0) == "RUNNING"),
], ids=["sinfo", "squeue"])  # fmt: skip
def test_what_slurm_hides_by_default_counts_too(
    tmp_path: Path, monkeypatch, command: str, line: str, seen
):
    """Nodes and jobs of a hidden partition, and what the variables of a user hide."""
    program = tmp_path / command
    program.write_text(f"""#!/bin/sh
[ -z "$SINFO_PARTITION$SQUEUE_USERS" ] || exit 0
case "$*" in *--all*) printf %s '{line}' ;; esac
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SINFO_PARTITION", "other")
    monkeypatch.setenv("SQUEUE_USERS", "other")
    assert seen()


@pytest.mark.parametrize("access", [
    ["--partition=q", "--account=climate-prod"],
    ["--partition=q", "--qos=ABC-CPU"],
    ["--account=climate-prod", "-p q", "-C a"],
    ["--partition=other", "-pq"],
    ["--partition=other,q"],
    ["--partition=q", "--constraint=c|a"],
    ["--partition=q", "--constraint=c", "-C a"],
])  # fmt: skip
def test_options_that_end_like_a_partition_or_a_constraint(monkeypatch, access: list):
    monkeypatch.setattr(slurm, "capture", ask({"sinfo": of_sinfo("idle"), "scontrol": ""}))
    assert nodes.available(PARTITION | {"access": access}) == (["n1"], {})


@pytest.mark.parametrize("access, code, name", [
    (["--partition=elsewhere"], "scheduler.no-node", "'elsewhere'"),
    (["--partition=q", "-M other"], "scheduler.unsupported", "--clusters"),
    (["--partition=q", "--constraint=a|b&c"], "scheduler.unsupported", "--constraint=a|b&c"),
    ([], "scheduler.no-partition", ""),
])  # fmt: skip
def test_nodes_that_are_not_known_are_a_fault(monkeypatch, access: list, code: str, name: str):
    monkeypatch.setattr(slurm, "capture", ask({"sinfo": of_sinfo("idle"), "scontrol": ""}))
    fault_of(lambda: nodes.available(PARTITION | {"access": access}), code, name)


@pytest.mark.parametrize("asked", ["partition", "reservation", "hostnames"])
def test_no_answer_is_not_taken_for_none(monkeypatch, asked: str):
    """A node under maintenance would be measured."""
    answers = {
        "partition": "PartitionName=q Default=YES\n",
        "reservation": "ReservationName=m Nodes=n1 Flags=MAINT State=ACTIVE\n",
        "hostnames": "n1\n",
    }

    def answer(*command, **_):
        if command[0] == "sinfo":
            return of_sinfo("idle")
        (what,) = answers.keys() & {*command}
        return None if what == asked else answers[what]

    monkeypatch.setattr(slurm, "capture", answer)
    fault_of(lambda: nodes.available({"name": "p", "access": []}), "scheduler.no-answer")


@pytest.mark.parametrize("access, listed, up", [
    ([], "Flags=SPEC_NODES", False),
    ([], "Flags=MAINT,SPEC_NODES", False),
    # A job may start there that does not name it.
    ([], "Flags=SPEC_NODES,MAGNETIC", True),
    ([], "Flags=SPEC_NODES NodeName=n1 CoreIDs=0", True),
    (["--reservation=course"], "Flags=SPEC_NODES", True),
    (["--reservation=other"], "Flags=SPEC_NODES", False),
    ([], "Flags=SPEC_NODES State=INACTIVE", True),
])  # fmt: skip
def test_a_node_in_a_reservation(monkeypatch, access: list, listed: str, up: bool):
    answers = {
        "reservation": f"ReservationName=course Nodes=n1 {listed} State=ACTIVE\n",
        "hostnames": "n1\n",
    }

    def answer(*command, **_):
        if command[0] == "sinfo":
            return of_sinfo("idle")
        (what,) = answers.keys() & {*command}
        return answers[what]

    monkeypatch.setattr(slurm, "capture", answer)
    taken, out = nodes.available({"name": "p", "access": ["--partition=q", *access]})
    assert (taken == ["n1"], "course" in out.get("n1", "")) == (up, not up)


@pytest.mark.parametrize("names, unknown", [(["n1", "n2"], ""), (["n1", "n11"], "n11")])
def test_nodes_that_are_named(monkeypatch, names: list, unknown: str):
    """As far as Slurm answers."""
    listed = of_sinfo("idle") + of_sinfo("down", name="n2")
    monkeypatch.setattr(slurm, "capture", ask({"sinfo": listed}))
    if unknown:
        fault_of(lambda: nodes.check_named(names), "input.unknown-name", unknown)
    else:
        nodes.check_named(names)
    monkeypatch.setattr(slurm, "capture", ask({}))
    nodes.check_named(names)


@pytest.mark.holds("shell")
@pytest.mark.parametrize("name", ["m1\n#SBATCH --wrap=id", "m1 x", "$(id)"])
def test_a_reservation_that_could_not_stand_in_a_job_script(name: str):
    """With --nodes, Slurm is not asked for it."""
    made = ("alpha", "p", [], name, None, None, ["n1"])
    fault_of(lambda: sweep.create(*made), "input.wrong-option")


def test_the_set_on_a_node_needs_no_other_node(testbed: Testbed, monkeypatch):
    """What a node's session runs are the partition's cases of one node, by the local scheduler."""
    testbed.environment("pip", features="imb")
    testbed.write(scheduler="slurm", launcher="srun", extras={"detect": True, "placements": [
        "on-socket", "off-node", "full-node"]})  # fmt: skip
    testbed.enter(monkeypatch)
    every = {case.case for case in preview(testbed.name, [str(CHECKS)], []).cases}
    variables = {configuration.ON_NODE: f"{testbed.name}:node"}
    on_node = preview(testbed.name, [str(CHECKS)], [], **variables).cases
    assert {case.case for case in on_node} == {
        case for case in every if "off-node" not in case and "node_pairs" not in case
    }
    assert any("off-node" in case for case in every)
    assert all(case.seconds > 60 for case in on_node)


def swept(folder: Path, monkeypatch, **states: tuple[str, str]) -> sweep.Sweep:
    """A sweep whose nodes' jobs left a job's number and an exit code each, and a session."""
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(folder))
    monkeypatch.setattr(slurm, "capture", ask({"squeue": ""}))
    made = sweep.Sweep("20261122T000000Z-000000", "s", "p", [], "", 2, ["c @s:p+e"], 60,
                       [*states], {})  # fmt: skip
    made.write()
    for number, (node, (job, code)) in enumerate(states.items()):
        if not job:
            continue
        made.claim(node).mkdir()
        (made.claim(node) / "job").write_text(job)
        if code:
            (made.claim(node) / "code").write_text(code)
            session = folder / "sessions" / f"20261122T00000{number}Z-000000"
            session.mkdir(parents=True)
            about = {"check": "c", "system": "s", "partition": "p", "environment": "e"}
            extras = {"sweep": made.name, "node": node}
            plan = records.plan(session.name, ["1"], extras=extras, **about)
            (session / "plan.json").write_text(plan)
            (session / "end.json").write_text("{}")
    return made


def test_the_session_of_a_job_that_was_cut_off_is_not_taken_for_the_next_ones(
    tmp_path: Path, monkeypatch
):
    """The session that found it killed has closed it."""
    made = swept(tmp_path, monkeypatch, n1=("1", "2"))
    (session,) = (tmp_path / "sessions").iterdir()
    (session / "end.json").unlink()
    assert made.state("n1").kind == "failed"
    made.clear("n1")
    (session / "end.json").write_text("{}")
    assert made.state("n1").kind == "not reached"
    # The next job ends before its session has begun, and another one's is there in the end.
    made.claim("n1").mkdir()
    (made.claim("n1") / "job").write_text("7")
    (made.claim("n1") / "code").write_text("2")
    state = made.state("n1")
    assert (state.kind, state.session) == ("failed", ""), state
    again = session.with_name("20261122T000009Z-000000")
    shutil.copytree(session, again)
    assert (made.state("n1").kind, made.state("n1").session) == ("measured", again.name)


@pytest.mark.parametrize("states, down, code", [
    ({"n1": ("1", "0"), "n2": ("2", "0")}, [], 0),
    ({"n1": ("1", "0"), "n2": ("2", "1"), "n3": ("", "")}, [], 1),
    ({"n1": ("1", "0"), "n2": ("2", "2")}, [], 2),
    ({"n1": ("1", "0"), "n2": ("2", "")}, [], 2),
    ({"n1": ("1", "0"), "n2": ("", "")}, [], 2),
    ({"n1": ("1", "0")}, ["n2"], 2),
    ({"n1": ("1", "1")}, ["n2"], 1),
    ({}, ["n2"], 2),
])  # fmt: skip
def test_the_sweeps_exit_code(tmp_path: Path, monkeypatch, states: dict, down: list, code: int):
    made = swept(tmp_path, monkeypatch, **states)
    made.skipped = dict.fromkeys(down, "down*: it does not respond")
    plans = []
    read = session_files.read_plan
    monkeypatch.setattr(session_files, "read_plan", lambda of: plans.append(of) or read(of))
    lines, found = sweep.report(made)
    assert found == code, lines
    # Thousands of nodes have thousands of sessions: each is looked at, and read if it has ended.
    assert len(plans) <= 2 * len(states)


@pytest.mark.parametrize(
    "age, skipped", [(timedelta(days=7), ["n3"]), (timedelta(0), ["n2", "n3"])]
)
def test_of_the_nodes_that_are_down_those_that_are_due_count(
    tmp_path: Path, monkeypatch, age: timedelta, skipped: list
):
    """Else a node that was measured yesterday would make each sweep by age inconclusive."""
    made = swept(tmp_path, monkeypatch, n1=("", ""))
    made.skipped = {"n2": "down", "n3": "down"}
    yesterday = np.datetime64("now", "s") - np.timedelta64(1, "D")
    rows = [NodeRow("s", "p", "n2", 1, "", yesterday, {}, yesterday)]
    monkeypatch.setattr(due, "_history", lambda *_: (rows, []))
    due.select(made, age, 0)
    assert [*made.skipped] == skipped


@pytest.mark.parametrize("output, user, private, kind", [
    ("1|RUNNING\n12|PENDING\n", 0, "none", "in progress"), ("12|RUNNING\n", 0, "none", "failed"),
    ("", 0, "none", "failed"), (None, 0, "none", "in progress"),
    # Of another user, whose jobs Slurm may hide, but not from root.
    ("", 1, "none", "failed"), ("", 1, "accounts,jobs", "in progress"),
    ("1|RUNNING\n", 1, "jobs", "in progress"), ("", 0, "jobs", "failed"),
])  # fmt: skip
def test_a_job_that_slurm_does_not_list_is_not_taken_for_ended(
    tmp_path: Path, monkeypatch, output: str | None, user: int, private: str, kind: str
):
    """Else its node would be measured once more."""
    made = swept(tmp_path, monkeypatch, n1=("1", ""))
    config = f"PrivateData             = {private}\n"
    monkeypatch.setattr(slurm, "capture", ask({"squeue": output, "scontrol": config}))
    monkeypatch.setattr(os, "geteuid", lambda: user and made.claim("n1").stat().st_uid + user)
    assert made.state("n1").kind == kind
    assert sweep.report(made)[1] == 2


def test_a_job_that_ends_while_slurm_is_asked_has_measured(tmp_path: Path, monkeypatch):
    made = swept(tmp_path, monkeypatch, n1=("1", "0"))
    code = made.claim("n1") / "code"
    later = code.rename(tmp_path / "later")

    def capture(*_, **__) -> str:
        later.rename(code)
        return ""

    monkeypatch.setattr(slurm, "capture", capture)
    assert made.state("n1").measured


def test_a_session_that_lacks_a_case_is_reported(tmp_path: Path, monkeypatch):
    made = swept(tmp_path, monkeypatch, n1=("1", "0"))
    made.cases.append("other @s:p+e")
    lines, code = sweep.report(made)
    assert code == 1 and "other @s:p+e" in lines[0]


@pytest.mark.parametrize(
    "session, case, code", [("0", "c @s:p+e", 2), ("1", "c @s:p+e", 1), ("0", "not-here @s:p+e", 0)]
)
def test_a_case_that_a_node_skipped_is_inconclusive(
    tmp_path: Path, monkeypatch, session: str, case: str, code: int
):
    """If it would run there: its session alone is OK."""
    made = swept(tmp_path, monkeypatch, n1=("1", session), n2=("2", "0"))
    made.cases.append("not-here @s:p+e")
    made.runs = ["c @s:p+e"]
    for folder in (tmp_path / "sessions").iterdir():
        plan = json.loads((folder / "plan.json").read_text())
        (one,) = plan["cases"].values()
        plan["cases"]["2"] = one | {"check": "not-here"}
        (folder / "plan.json").write_text(json.dumps(plan))
    name = made.state("n1").session
    check, _, place = case.partition(" @")
    lines = [
        records.dumps(records.case(
            name, "2026-11-22T00:01:00Z", system="s", partition="p", environment="e", nodes=[],
            check=f"{check} %.repeat_no={number}", case=f"/{number} @{place}", result="skip",
            reason="/pfs: No such file or directory", code="scratch.not-writable",
        ))
        for number in range(2)
    ]  # fmt: skip
    (tmp_path / "sessions" / name / "records.jsonl").write_text("\n".join(lines) + "\n")
    assert made.state("n1").kind == "measured"
    lines, found = sweep.report(made)
    assert found == code, lines
    assert ("[scratch.not-writable]" in lines[0]) == (case in made.runs)
    assert not any("--resume" in line for line in lines)


def test_the_cases_that_would_run_are_known_before_the_first_job(testbed: Testbed, monkeypatch):
    """The program of an environment is not installed."""
    testbed.environment("pip", features="imb")
    testbed.lacking()
    testbed.write(scheduler="slurm", launcher="srun")
    testbed.enter(monkeypatch)
    made = sweep.create(testbed.name, "node", ["--mode=smoke"], "", None, None, ["n1"])
    assert made.runs and {*made.runs} < {*made.cases}
    assert {case.rpartition("+")[2] for case in {*made.cases} - {*made.runs}} == {"lacks"}


def test_two_at_once_are_refused(tmp_path: Path, monkeypatch):
    """Of one sweep."""
    made = swept(tmp_path, monkeypatch, n1=("", ""))
    made.named = True
    made.write()
    code = "import sys, time; from plumbline.operate import sweep; from pathlib import Path\n" \
           "s = sweep.Sweep.read(Path(sys.argv[1])); l = s.lock(); print('held', flush=True)\n" \
           "time.sleep(60)"  # fmt: skip
    other = subprocess.Popen([sys.executable, "-c", code, made.folder], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"held\n"
        fault_of(lambda: sweep.run(sweep.resume(made.name, 9)), "session.already-running")
        assert sweep.Sweep.read(made.folder) == made
    finally:
        other.kill()
        other.communicate()


@pytest.mark.holds("shell")
def test_the_jobs_script_quotes_its_words(testbed: Testbed, tmp_path: Path, monkeypatch):
    """Folders and arguments of any kind: the script is ReFrame's own, of a dry run."""
    folder = tmp_path / "a b$(touch x)"
    testbed.enter(monkeypatch)
    testbed.environment("pip", features="imb")
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(folder))
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    made = sweep.Sweep("20261122T000000Z-000000", testbed.name, "node", ["$(touch y); 'z"], "",
                       2, [], 60, ["n1"], {}, now=["n1"])  # fmt: skip
    made.write()
    reframe(
        ["-c", str(sweep.CHECK), "--dry-run", "--keep-stage-files"], testbed.name,
        **{configuration.SWEEP: str(made.folder), "PLUMBLINE_RESULTS": str(tmp_path)},
    )  # fmt: skip
    (script,) = tmp_path.glob("sessions/*/stage/**/rfm_job.sh")
    text = script.read_text()
    assert "n1" in text and "$(touch y)" in text
    wrong = tmp_path / "ran"
    wrong.mkdir()
    program = f"{BIN}/plumbline"
    printing = "printf '%s\\n'"
    done = subprocess.run(
        ["bash", "-c", text.replace(program, f"env; {printing}")], cwd=wrong, check=True,
        env=os.environ | {"SLURMD_NODENAME": "n1", "SLURM_TASKS_PER_NODE": "1",
                          "SLURM_CPUS_ON_NODE": "8"}, capture_output=True, text=True,
    )  # fmt: skip
    assert not [*wrong.glob("[xy]")]
    # The slots of Open MPI's mpirun, which the session on the node may start.
    assert "SLURM_TASKS_PER_NODE=8" in done.stdout.splitlines()
    assert (made.claim("n1") / "code").read_text() == "0\n"
    # On another node, and where the node is taken, nothing is run.
    for node, words in (("n2", sweep.WRONG_NODE), ("n1", sweep.CLAIMED)):
        output = subprocess.run(
            ["bash", "-c", text.replace(program, printing)], capture_output=True, text=True,
            env=os.environ | {"SLURMD_NODENAME": node},
        ).stdout  # fmt: skip
        assert words in output and "run" not in output.split()
    # And where it cannot be claimed, the job fails.
    made.claim("n1").parent.rename(tmp_path / "unmounted")
    done = subprocess.run(["bash", "-c", text.replace(program, printing)], capture_output=True,
                          text=True, env=os.environ | {"SLURMD_NODENAME": "n1"})  # fmt: skip
    assert done.returncode == 1 and not {sweep.CLAIMED, "run"} & {*done.stdout.split("\n")}
    assert "mkdir" in done.stderr


@pytest.mark.parametrize("name", ["../../../sessions", ".", "n1;id", "$(id)", "n 1", ""])
def test_a_node_is_named_as_a_file_may_be(monkeypatch, name: str):
    """Its folder is made, and moved aside."""
    fault_of(lambda: expanded(name, "--nodes"), "input.wrong-option")
    monkeypatch.setattr(
        slurm, "capture", ask({"sinfo": of_sinfo("idle", name=name), "scontrol": ""})
    )
    taken, out = nodes.available({"name": "p", "access": ["--partition=q"]})
    assert not taken and name in out


@pytest.fixture
def system(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Testbed:
    """A system that this process has for its own."""
    testbed.environment("pip", features="imb")
    testbed.enter(monkeypatch)
    return testbed


def swept_by(*words: str) -> Result:
    return CliRunner().invoke(main, ["sweep", *words])


@pytest.mark.parametrize("scheduler", ["local", "pbs", "lsf", "flux-batch"])
def test_another_scheduler_is_refused(system: Testbed, scheduler: str):
    """It might put a job on another node."""
    system.write(scheduler=scheduler, launcher="local")
    for nodes_option in ([], ["--nodes", "n[1-2]"]):
        done = swept_by("--system", system.name, "node", *nodes_option)
        assert (done.exit_code, codes_in(done.stderr)) == (2, ["scheduler.unsupported"])
        assert scheduler in done.stderr


@pytest.mark.parametrize("partition", [
    {"access": ["--partition=q", "--clusters=other"]},
    {"sched_options": {"slurm_multi_cluster_mode": ["other"]}},
])  # fmt: skip
def test_a_partition_of_another_cluster_is_refused(system: Testbed, partition: dict):
    """Its jobs would not be among those of this cluster, and so have ended."""
    system.write(scheduler="slurm", launcher="srun", **partition)
    done = swept_by("--system", system.name, "node", "--nodes", "n[1-2]")
    assert (done.exit_code, codes_in(done.stderr)) == (2, ["scheduler.unsupported"])


def test_a_sweep_of_what_is_not_there_is_refused(system: Testbed):
    for name, partition in (("testbad", "node"), ("testbed", "nodes")):
        done = swept_by("--system", name, partition)
        assert done.exit_code == 2 and (partition if name == "testbed" else name) in done.stderr
        assert codes_in(done.stderr)[0] in ("system.not-found", "input.unknown-name")
    path = system.results / sweep.folder_of("damaged").relative_to(paths.results()) / "sweep.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    for way in ("--resume", "--show"):
        done = swept_by(way, "damagd")
        assert (done.exit_code, codes_in(done.stderr)) == (2, ["input.unknown-name"])
        assert "'damagd'" in done.stderr and "damaged?" in done.stderr
        done = swept_by(way, "damaged")
        assert (done.exit_code, codes_in(done.stderr)) == (2, ["input.wrong-file"])
        assert str(path) in done.stderr
        done = swept_by(way, "lost", "--system=testbed")
        assert (done.exit_code, codes_in(done.stderr)) == (2, ["input.wrong-option"])


# -- what it costs --------------------------------------------------------------------------------


def test_plans_of_many_nodes(tmp_path: Path):
    """One job a node, and no more of them queued than the site's file has. The bench has 500 nodes,
    for which ReFrame's dry run waits for most of a minute."""
    env = big.write(tmp_path)
    swept_plan = big.swept(tmp_path, env, 60)
    assert (swept_plan.jobs, swept_plan.at_once) == (60, big.MAX_JOBS)
    assert swept_plan.node_hours == 60
    nightly = big.nightly(env)
    # However many nodes there are.
    assert nightly.at_once == big.MAX_JOBS < nightly.jobs < 200


COUNT = """\
import inspect, runpy, sys
walk, walks = inspect.stack, []
inspect.stack = lambda *given: walks.append(1) or walk(*given)
sys.argv = ["reframe", *sys.argv[1:]]
try:
    runpy.run_path(sys.argv.pop(1), run_name="__main__")
finally:
    print("walks:", len(walks))
"""


def test_making_a_test_case_walks_no_stack(tmp_path: Path):
    """ReFrame did so twice for each, which was three quarters of the time."""
    env = os.environ | big.write(tmp_path)
    command = [sys.executable, "-c", COUNT, big.REFRAME, "--system=big", "-c", CHECKS, "-lC"]
    output = subprocess.run(command, env=env, capture_output=True, text=True).stdout
    assert re.search(r"Concretized \d\d+ test case", output), output
    # What is left is of ReFrame's start, however many cases there are.
    assert int(re.search(r"walks: (\d+)", output)[1]) < 5
