"""Pairs of nodes in rounds, and test cases that ReFrame distributes over nodes: what the job script
does, run by bash and by real launchers, and sessions at the simulated facility."""

from __future__ import annotations

import functools
import math
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
from collections import Counter
from pathlib import Path

import foreign
import pytest
import yaml
from conftest import COLUMNS, MPICH, ROOT, codes_in
from plumbline.check import job_output, outcomes, samples
from plumbline.placement import binding, pairing, proof
from plumbline.placement.binding import BindingError, PairBinding
from plumbline.placement.placement import Layout, features, fits_one_node, lay_out
from plumbline.placement.proof import BindingMismatch, TaskReport
from plumbline.placement.topology import Topology

NODES = ["nid001000", "nid001001", "nid001002", "nid001003"]

TOPOLOGY = Topology.from_processor(
    {"topology": {"cores": ["0x1", "0x2"], "sockets": ["0x3"], "numa_nodes": ["0x3"]}}
)


def layout() -> Layout:
    (found,) = lay_out("node-pairs", TOPOLOGY)
    return found


def rounds_of(count: int, seed: int = 1) -> list[list[tuple[int, int]]]:
    names = [str(place) for place in range(count)]
    return [[(int(a), int(b)) for a, b in pairs] for pairs in pairing.rounds(names, seed)]


# -- the job script ------------------------------------------------------------------------------

#: Records which nodes it was started for, and how long it ran; fails on request.
LAUNCHER = """\
#!/bin/bash
echo "$run $1 $2 $(date +%s%N)" >>begun
sleep 0.05
echo "plumbline-task 0 $1 0 0 - - 0 -" >&2
echo "plumbline-task 1 $2 0 0 - - 0 -" >&2
echo "$run $(date +%s%N)" >>over
[[ " $1 $2 " != *" $HANG "* ]] || exec sleep 60
echo "8 1.25"
[[ " $1 $2 " != *" $FAIL "* ]] || { echo "bad cable" >&2; exit 3; }
"""


class Job:
    """A job script of rounds in a folder of its own, with a launcher that only records."""

    def __init__(
        self, folder: Path, count: int, rounds=None, listed: str | None = None, watch: int = 0
    ):
        self.folder = folder
        self.names = [f"n{place}" for place in range(count)]
        self.rounds = rounds or rounds_of(count)
        (folder / "launch").write_text(LAUNCHER)
        (folder / "launch").chmod(0o755)
        listed = listed or f"printf '%s\\n' {' '.join(self.names)}"
        pair = PairBinding((), ('"$first"', '"$second"'))
        around = samples.watch(watch) if watch else []
        shutil.copy(samples.STARTED, folder)
        loop = samples.rounds_loop(
            self.rounds, count, listed, pair, ["WORD=1"], around[:1], around[1:]
        )
        command = " ".join(["./launch", *pair.words, *loop.words, *loop.redirections])
        # The launcher records which run it is part of.
        lines = ["#!/bin/bash", "export run", *loop.before, command, *loop.after, ""]
        (folder / "job.sh").write_text("\n".join(lines))

    def run(self, fail: str = "no node", hang: str = "no node") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "job.sh"],
            cwd=self.folder,
            env=os.environ | {"FAIL": fail, "HANG": hang},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def table(self, name: str) -> list[list[str]]:
        return [line.split() for line in (self.folder / name).read_text().splitlines()]


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_the_rounds_in_the_script_are_those_of_screen(count: int, tmp_path: Path):
    job = Job(tmp_path, count)
    assert job.run().returncode == 0
    names = job.names
    found_rounds: dict[int, set[tuple[str, str]]] = {}
    for run, first, second, _ in job.table("begun"):
        found_rounds.setdefault(int(run.split("-")[0]), set()).add((first, second))
    wanted = pairing.rounds(names, 1)
    assert found_rounds == {number: set(pairs) for number, pairs in enumerate(wanted)}
    runs = list(samples.pair_runs(job.rounds, samples.nodes_of_job(tmp_path), layout()))
    assert {run.name for run in runs} == set(samples.ends(tmp_path))
    for run in runs:
        first, second = run.name.partition("-")[2].split(":")
        assert [seen.host for seen in proof.read_tasks((tmp_path / run.err).read_text())] == [
            first,
            second,
        ]


def test_a_rounds_pairs_run_at_once_and_rounds_one_after_the_other(tmp_path: Path):
    job = Job(tmp_path, 6)
    assert job.run().returncode == 0
    begun = {run: int(location) for run, _, _, location in job.table("begun")}
    over = {run: int(location) for run, location in job.table("over")}
    for number in range(len(job.rounds)):
        mine = [run for run in begun if run.startswith(f"{number}-")]
        assert len(mine) == 3
        later = [run for run in begun if int(run.split("-")[0]) > number]
        assert max(over[run] for run in mine) <= min(
            (begun[run] for run in later), default=math.inf
        )
    # With three in turn, none would begin before another is over.
    assert any(
        begun[one] < over[other]
        for one in begun
        for other in begun
        if one != other and one.split("-")[0] == other.split("-")[0] and begun[other] < begun[one]
    )


@pytest.mark.parametrize(("nodes", "rounds"), [(2, 1), (4, 2), (7, 2)])
def test_a_run_whose_start_hangs_is_ended_and_the_others_go_on(nodes, rounds, tmp_path: Path):
    """Until it has hung with two other nodes, which shows the node: each time takes a minute."""
    job = Job(tmp_path, nodes, watch=1)
    assert job.run(hang="n1").returncode == 128 + signal.SIGTERM
    ended = samples.ends(tmp_path)
    hung = {name for name in ended if "n1" in name}
    last = max(int(name.split("-")[0]) for name in ended)
    assert len(ended) == sum(map(len, job.rounds[: last + 1])) and len(hung) == rounds
    assert {name for name, end in ended.items() if end.status} == hung
    assert {*samples.not_started(tmp_path)} == hung
    with pytest.raises(outcomes.Invalid) as refusal:
        job_output.check_started(tmp_path, layout(), 1, [])
    assert refusal.value.code == "output.not-started" and "n1" in str(refusal.value)
    assert ("n1 is in all of them" in str(refusal.value)) == (rounds > 1)


def test_after_a_failed_run_the_other_pairs_are_still_measured(tmp_path: Path):
    job = Job(tmp_path, 4)
    assert job.run(fail="n2").returncode == 3
    ended = samples.ends(tmp_path)
    assert len(ended) == sum(map(len, job.rounds))
    assert {name for name, end in ended.items() if end.status} == {
        name for name in ended if "n2" in name
    }


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("printf '%s\\n' n0 n1 n2", "3 nodes are listed of the job, not 4: n0 n1 n2"),
        ("false", "0 nodes are listed of the job, not 4"),
    ],
)
def test_a_job_of_another_number_of_nodes_measures_nothing(
    listed: str, message: str, tmp_path: Path
):
    done = Job(tmp_path, 4, listed=listed).run()
    assert done.returncode == 1
    assert message in done.stderr
    assert not samples.ends(tmp_path)


def test_samples_are_as_many_rounds_each(tmp_path: Path):
    rounds = rounds_of(4) * 3
    runs = list(samples.pair_runs(rounds, NODES, layout(), 3))
    assert Counter(run.sample for run in runs) == {0: 6, 1: 6, 2: 6}
    assert len({run.name for run in runs}) == len(runs)


def test_a_node_that_is_listed_twice_is_refused(tmp_path: Path):
    assert samples.nodes_of_job(tmp_path) == []
    (tmp_path / samples.NODES).write_text("n0\nn1\nn0\n")
    with pytest.raises(samples.SampleError, match="n0") as refused:
        samples.nodes_of_job(tmp_path)
    assert refused.value.code == "output.file-garbled"


# -- launchers -----------------------------------------------------------------------------------

#: Process manager -> its option beside those that any layout of two nodes gets.
KEPT = {
    "srun": '--nodelist="$first,$second"',
    "hydra": '-hosts "$first,$second"',
    "mpiexec": '-hosts "$first,$second"',
    "mvapich": '-hosts "$first,$second"',
    "mpirun-intelmpi": '-hosts "$first,$second"',
    "openmpi": '--host "$first:1,$second:1"',
    "mpirun-openmpi": '--host "$first:1,$second:1"',
    "openmpi5": '--host "$first:1,$second:1"',
}


@pytest.mark.parametrize("manager", [name for name in binding.LAUNCHERS if name != "local"])
def test_how_a_launcher_is_kept_to_a_pair(manager: str):
    bound = binding.bind(layout(), manager, TOPOLOGY)
    if manager not in KEPT:
        with pytest.raises(BindingError, match=f"'{manager}'") as refused:
            binding.bind_pair(bound, manager)
        assert refused.value.code == "binding.not-expressible"
        return
    pair = binding.bind_pair(bound, manager)
    assert KEPT[manager] in " ".join(pair.words)
    # A colon would end the file's name for Open MPI 5.
    for word in pair.words:
        assert not re.search(r"rankfile[^ ]*\$run", word)


#: Used as ssh: a host is a name in a namespace of its own on this machine, with its own /tmp.
SSH = """\
#!/bin/bash
while [ "${1#-}" != "$1" ]; do case $1 in -x|-q|-T|-n) shift;; *) shift 2;; esac; done
host=n${1##*.}; shift
export TMPDIR=${0%/*}/$host; mkdir -p "$TMPDIR"
exec unshare -u sh -c "hostname $host; $*"
"""


@functools.cache
def _has_namespaces() -> bool:
    done = subprocess.run(["unshare", "-u", "true"], capture_output=True, check=False)
    return done.returncode == 0


def openmpi() -> str | None:
    """Open MPI 4's mpirun, where it is the one on PATH."""
    path = shutil.which("mpirun")
    if not path:
        return None
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False
    ).stdout
    return path if "Open MPI) 4" in version else None


@pytest.mark.parametrize("manager", ["hydra", "openmpi"])
def test_real_launchers_keep_to_their_pairs(manager: str, tmp_path: Path):
    """Two jobs of a round at once on four emulated nodes, bound to one CPU each."""
    if not (shutil.which("unshare") and _has_namespaces()):
        pytest.skip("needs root, or user namespaces, for hosts of other names")
    program = {"hydra": str(MPICH / "mpiexec"), "openmpi": openmpi()}[manager]
    if not program or not Path(program).is_file():
        pytest.skip(f"{manager} is not installed")
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    shutil.copy(ROOT / "reframe" / "plumbline" / "placement" / "task.sh", tmp_path)
    cpu = min(os.sched_getaffinity(0))
    one = Topology.from_processor(
        {"topology": {"cores": [hex(1 << cpu)], "sockets": [], "numa_nodes": []}}
    )
    (two,) = lay_out("node-pairs", one)
    bound = binding.bind(two, manager, one)
    pair = binding.bind_pair(bound, manager)
    for name, text in bound.files.items():
        (tmp_path / name).write_text(text)
    shell = {
        "hydra": f"-launcher ssh -launcher-exec {tmp_path}/ssh",
        "openmpi": f"--allow-run-as-root --mca plm_rsh_agent {tmp_path}/ssh",
    }[manager]
    addresses = [f"127.0.0.{number}" for number in (2, 3, 4, 5)]
    listed = f"printf '%s\\n' {' '.join(addresses)}"
    rounds = rounds_of(4)
    loop = samples.rounds_loop(rounds, 4, listed, pair, bound.task)
    start = [program, shell, "-n", "2", *pair.words, "./task.sh", loop.sample, *loop.words]
    command = " ".join([*start, "sleep", "0", *loop.redirections])
    script = "\n".join(["#!/bin/bash", *loop.before, command, *loop.after, ""])
    (tmp_path / "job.sh").write_text(script)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PBS_", "OMPI_"))}
    # The folder that all mpirun of Open MPI 4 on a node share cannot be made.
    (tmp_path / f"ompi.{socket.gethostname()}.{os.getuid()}").touch()
    env["TMPDIR"] = str(tmp_path)
    done = subprocess.run(
        ["bash", "job.sh"], cwd=tmp_path, env=env, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, [p.read_text() for p in tmp_path.glob("sample-*.err")]
    for run in samples.pair_runs(rounds, samples.nodes_of_job(tmp_path), two):
        tasks = proof.read_tasks((tmp_path / run.err).read_text())
        proof.prove(two, tasks)
        wanted = [f"n{address[-1]}" for address in run.name.partition("-")[2].split(":")]
        assert [task.host for task in tasks] == wanted


# -- which nodes it was --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "ran_elsewhere"),
    [
        (["nid001000", "nid001003"], False),
        # The kernel's name may have the domain that the scheduler's has not.
        (["nid001000.site.org", "nid001003"], False),
        # Nodes that call themselves otherwise cannot be distinguished by name.
        (["blade7", "blade9"], False),
        (["nid001000", "nid001002"], True),
        (["nid001001.site.org", "nid001003"], True),
    ],
)
def test_a_task_on_another_node_is_refused(hosts: list[str], ran_elsewhere: bool):
    tasks = [TaskReport(rank, host, "0") for rank, host in enumerate(hosts)]
    named = [NODES[0], NODES[3]]
    if not ran_elsewhere:
        proof.prove_nodes(named, tasks, NODES)
        return
    with pytest.raises(BindingMismatch, match=r"nid\d+ or nid001003$") as refused:
        proof.prove_nodes(named, tasks, NODES)
    assert refused.value.code == "proof.wrong-node"


def test_what_fits_one_node():
    assert features("node-pairs") == ("off-node",)
    assert features("on-socket") == ("on-socket",)
    assert not fits_one_node("node-pairs", 2)
    assert not fits_one_node("off-node", 1)
    assert not fits_one_node("one-task-per-node", 0)
    assert fits_one_node("full-node", 0)
    assert fits_one_node("full-node", 1)
    assert not fits_one_node("full-node", 2)
    assert fits_one_node("all-cores", 1)


# -- sessions at the facility --------------------------------------------------------------------

SEED = ["-S", "osu_node_pairs.pair_seed=1", "-S", "osu_node_pairs.nodes=4"]
ONE = [*SEED, "-S", "osu_node_pairs.num_samples=1", "-n", "osu_node_pairs.*test=latency"]


def session(folder: Path, *arguments: str, system: str = "perlmutter", **of_facility):
    foreign.prepare(system, folder)
    return foreign.run(system, folder, *arguments, **of_facility)


def only(found: foreign.Session) -> dict:
    assert len(found.records) == 1, found.output
    return found.records[0]


def foms_of(fields: dict) -> dict[str, dict]:
    return {fom["location"]: fom for fom in fields["foms"]}


def test_every_pair_is_a_figure_and_the_worst_is_shown(tmp_path: Path):
    slow = {"kind": "slow", "node": NODES[1:3], "factor": 1.5}
    arguments = [*SEED, "-S", "osu_node_pairs.num_samples=2", "-n", "osu_node_pairs"]
    found = session(tmp_path, *arguments, fault=slow, noise=0.01)
    assert found.code == 0, found.output
    for fields in found.records:
        pairs = {pair for listed in pairing.rounds(fields["nodes"], 1) for pair in listed}
        assert len(pairs) == len(fields["foms"]) == 6
        for location, fom in foms_of(fields).items():
            assert location.split(":") == sorted(location.split(":"))
            assert set(location.split(":")) <= set(fields["nodes"])
            assert (fom["verdict"], fom["placement"]) == ("not-asserted", "node-pairs")
            assert len(fom["samples"]) == fields["samples"] == 2
        assert fields["tags"] == ["osu", "screen"]
        assert len(fields["nodes"]) == len(fields["tasks"]) == 4
        assert set(fields["hosts"]) == set(fields["nodes"])
        assert "seed" not in " ".join(fields["conditions"])
    latency = next(f for f in found.records if "latency" in f["check"])
    location = f"{NODES[1]}:{NODES[2]}"
    assert [fom["location"] for fom in latency["foms"] if fom["headline"]] == [location]
    others = [fom["value"] for where, fom in foms_of(latency).items() if where != location]
    assert foms_of(latency)[location]["value"] > 1.4 * statistics.median(others)
    # What it ran with is kept.
    kept = found.folder / latency["output"]
    assert (kept / "nodes.txt").read_text().split() == NODES
    assert "seed 1\n" in (kept / "rfm_job.sh").read_text()
    assert len(list(kept.glob("sample-*.out"))) == 12


#: A check of its own for each fault, each on four nodes of its own.
CHECK = """
@rfm.simple_test
class {name}(NodePairs):
    benchmark = "osu"
    program = "osu_latency"
    nodes = 4
    num_samples = 1
    pair_seed = 1
    after_sample = {after}

    @run_after("setup")
    def own_nodes(self):
        self.job.options = ["--nodelist=nid[{first:06}-{last:06}]"]

    def figures(self):
        return [Figure("latency", 8)]

    def prepare(self):
        self.executable_opts = ["-m", "8:8"]
"""

HEAD = """import reframe as rfm
from plumbline.check.node_pairs import NodePairs
from plumbline.parse import Figure
"""

BETWEEN_B_AND_C = {"node": ["b", "c"]}
AFTER_ONE = "[ $pair != 1-2 ] || "

#: Fault -> what goes wrong at which of the check's nodes a to d, or a command after each run; the
#: reason's code, and the place that it names.
FAULTS: dict[str, tuple[dict | None, str, str, str]] = {
    "breaking_node": ({"kind": "crash", "node": "b"}, "", "output.exit-code",
                      r"3 of 6 runs .* 139: .*a:b.*; b is in all of them: Segmentation fault"),
    "failing_pair": ({"kind": "exit", "code": 7} | BETWEEN_B_AND_C, "", "output.exit-code",
                     r"sample \d-b:c ended with exit code 7"),
    "short_output": ({"kind": "truncate"} | BETWEEN_B_AND_C, "", "output.not-parsed",
                     r"sample-\d-b:c\.out: "),
    "no_figure": ({"kind": "missing", "line": "^8 "} | BETWEEN_B_AND_C, "", "output.not-parsed",
                  r"sample-\d-b:c\.out: "),
    "elsewhere": ({"kind": "elsewhere", "node": ["c", "d"]}, "", "proof.wrong-node",
                  r"rank \d ran on a; .* [cd] or [cd]"),
    "other_cores": ({"kind": "binding"} | BETWEEN_B_AND_C, "", "proof.wrong-cpus",
                    r"sample-\d-b:c\.out: rank \d "),
    "single_ranks": ({"kind": "singletons"} | BETWEEN_B_AND_C, "", "output.exit-code",
                     r"sample \d-b:c "),
    "never_ended": (None, f"{AFTER_ONE}exit 0", "output.sample-unfinished", r"sample \d-b:c "),
    "no_output": (None, f"{AFTER_ONE}rm sample-$run.out", "output.file-missing",
                  r"sample-\d-b:c\.out "),
    "no_errors": (None, f"{AFTER_ONE}rm sample-$run.err", "output.file-missing",
                  r"sample-\d-b:c\.err "),
    "fewer_nodes": (None, f"{AFTER_ONE}sed -i 3,4d nodes.txt", "output.node-count", r"2 nodes"),
    "no_nodes": (None, "rm -f nodes.txt", "output.node-count", r"0 nodes"),
    "sound": (None, "", "", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict, dict[str, str]]]:
    """The record of each fault's check, and the names of its nodes."""
    folder = tmp_path_factory.mktemp("faulty")
    names, faults, text = {}, [], HEAD
    for number, (name, (fault, after, *_)) in enumerate(FAULTS.items()):
        first = 1000 + 4 * number
        own = names[name] = {letter: f"nid{first + n:06}" for n, letter in enumerate("abcd")}
        text += CHECK.format(name=name, after=[after] * bool(after), first=first, last=first + 3)
        if fault and "node" in fault:
            node = fault["node"]
            node = own[node] if isinstance(node, str) else [own[letter] for letter in node]
            faults.append({**fault, "node": node})
    (folder / "checks").mkdir()
    (folder / "checks" / "faulty.py").write_text(text)
    found = session(folder, "-c", str(folder / "checks"), fault=faults)
    assert len(found.records) == len(FAULTS), found.output
    return {fields["check"]: (fields, names[fields["check"]]) for fields in found.records}


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "sound"])
def test_a_run_that_cannot_be_trusted_names_its_pair(fault: str, faulty):
    fields, names = faulty[fault]
    *_, code, place = FAULTS[fault]
    assert (fields["result"], fields["code"], fields["foms"]) == ("invalid", code, [])
    reason = fields["reason"]
    for letter, name in names.items():
        reason = reason.replace(name, letter)
    assert re.search(place, reason), fields["reason"]


def test_without_a_fault_the_same_check_passes(faulty):
    fields, names = faulty["sound"]
    assert fields["result"] == "pass"
    assert set(fields["nodes"]) == {*names.values()}


def test_where_the_jobs_nodes_are_not_known_it_is_skipped(tmp_path: Path):
    fields = only(session(tmp_path, *ONE, system="rzvernal"))
    assert (fields["result"], fields["code"]) == ("skip", "binding.scheduler-unknown")


def test_one_node_has_no_pairs(tmp_path: Path):
    fields = only(session(tmp_path, *ONE, "-S", "osu_node_pairs.nodes=1"))
    assert (fields["result"], fields["code"]) == ("skip", "placement.too-few-nodes")


@pytest.mark.parametrize("system", ["eagle", "reedbush-u"])
def test_the_other_launchers_measure_pairs(system: str, tmp_path: Path):
    """Open MPI's under Slurm; Intel's, Open MPI's and MVAPICH's under PBS, where MPT's
    mpiexec_mpt is none."""
    arguments = ["-n", "_node_pairs", "-S", "nodes=3", "-S", "num_samples=1"]
    found = session(tmp_path, *arguments, system=system, noise=0.01)
    ran = [fields for fields in found.records if fields["result"] == "pass"]
    skipped = [fields["code"] for fields in found.records if fields["result"] == "skip"]
    assert len(ran) + len(skipped) == len(found.records), found.output
    assert {*skipped} <= {"binding.not-expressible"}
    assert {fields["environment"] for fields in ran} == {
        "eagle": {"openmpi"},
        "reedbush-u": {"intel-mpi", "hpcx", "openmpi", "mvapich2"},
    }[system]
    for fields in ran:
        metrics = {fom["metric"] for fom in fields["foms"]}
        assert len(fields["foms"]) == 3 * len(metrics)
        assert len(fields["nodes"]) == 3
        # Also the node that is idle in the first round reports its facts.
        assert [*map(len, fields["hosts"].values())] == [
            len(fields["hosts"][fields["nodes"][0]])
        ] * 3
        assert all("kernel" in facts for facts in fields["hosts"].values())


# -- distributed over nodes ----------------------------------------------------------------------

STREAM = ["-n", "babelstream_gpu.*per-gpu", "-S", "num_samples=1", "-S", "num_warmups=0"]
OF_THREE = "-J=--nodelist=nid[001000-001002]"


def test_a_check_is_distributed_over_the_idle_nodes(tmp_path: Path):
    faults = [
        {"kind": "slow", "node": NODES[2], "factor": 1.3},
        {"kind": "drain", "node": NODES[0]},
    ]
    arguments = ["--distribute=idle", OF_THREE, *STREAM, "-n", "osu_node_pairs|osu_p2p.*off-node"]
    found = session(tmp_path, *arguments, fault=faults)
    assert found.code == 1, found.output
    by_node = {fields["nodes"][0]: fields for fields in found.records}
    assert set(by_node) == set(NODES[1:3])
    assert by_node[NODES[1]]["result"] == "pass"
    assert by_node[NODES[2]]["result"] == "fail"
    reason = by_node[NODES[2]]["reason"]
    assert "memory_bandwidth_gpu0 = " in reason and reason.endswith(f"on {NODES[2]}")
    for node, fields in by_node.items():
        assert len(fields["nodes"]) == 1
        assert f"%.nid={node}" in fields["check"]
        # The references are found by what is measured, not by the case's name.
        assert any(fom["reference"] for fom in fields["foms"])
    assert found.end["faults"] == []
    for skipped in ("osu_node_pairs, placement node-pairs", "osu_p2p, placement off-node"):
        assert found.output.count(f"plumbline: {skipped}: skipped: --distribute") == 1


def test_nothing_but_cases_of_several_nodes_is_nothing_to_distribute(tmp_path: Path):
    found = session(tmp_path, "--distribute=idle", OF_THREE, "-n", "osu_node_pairs")
    assert found.code == 2
    assert codes_in(found.output) == ["session.nothing-selected"]


def test_a_case_that_ran_on_another_node_than_its_own_is_invalid(tmp_path: Path):
    moved = {"kind": "misplace", "node": NODES[0]}
    found = session(tmp_path, "--distribute=idle", OF_THREE, *STREAM, fault=moved)
    results = {fields["check"].partition("%.nid=")[2]: fields for fields in found.records}
    assert results[NODES[0]]["result"] == "pass"
    for node in NODES[1:3]:
        fields = results[node]
        assert (fields["result"], fields["code"]) == ("invalid", "proof.wrong-node")
        assert NODES[0] in fields["reason"] and node in fields["reason"]


def listed(system: str, folder: Path, *arguments: str) -> list[str]:
    code, out, err = foreign.reframe(system, folder, "-lC", *arguments)
    assert code == 0, out + err
    return re.findall(r"^- (.*)$", out, re.M)


def test_a_node_is_measured_in_its_own_partition_alone(tmp_path: Path):
    foreign.prepare("perlmutter", tmp_path)
    path = tmp_path / "systems" / "perlmutter.yaml"
    content = yaml.safe_load(path.read_text())
    partitions = content["systems"][0]["partitions"]
    partitions.append({**partitions[0], "name": "again"})
    path.write_text(yaml.safe_dump(content))
    cases = listed("perlmutter", tmp_path, "--distribute=idle", OF_THREE, *STREAM[:2])
    assert len(cases) == 6
    for case in cases:
        part = re.search(r"%\.part=(\S+)", case)[1]
        assert f"@{part}+" in case


def test_the_mode_of_screening_has_what_one_node_can_tell_and_pairs(tmp_path: Path):
    foreign.prepare("perlmutter", tmp_path)
    cases = listed("perlmutter", tmp_path, "--mode=screen")
    names = {case.split()[0] for case in cases}
    assert {"babelstream_gpu", "commscope_gpu", "osu_gpu", "osu_node_pairs"} <= names
    assert not [case for case in cases if "=off-" in case]
    assert not names & {"osu_collective", "ior", "mdtest", "gpcnet_network"}
    elsewhere = "--tag=^(smoke|nightly|maintenance|full)$"
    assert listed("perlmutter", tmp_path, "-n", "osu_node_pairs", elsewhere) == []


def test_this_machine_is_its_own_only_node(testbed):
    testbed.environment("good")
    done = testbed.plumbline(
        *("run", f"--system={testbed.name}", "-c", str(ROOT / "checks"), "--distribute=all"),
        *("-n", "imb_p2p.*PingPong.*on-socket", "-S", "num_samples=1", "-S", "num_warmups=0"),
    )
    assert done.code == 0, done.output
    (fields,) = done.records
    assert re.search(r"%\.part=testbed:node %\.nid=\S+", fields["check"])
    assert fields["result"] == "pass"


def test_a_sites_own_row_of_a_pair_is_asserted(tmp_path: Path):
    reference = tmp_path / "reference"
    reference.mkdir()
    row = dict.fromkeys(COLUMNS, "") | {
        "id": "pair", "source": "site", "locator": "by hand", "system": "perlmutter",
        "benchmark": "osu", "metric": "latency", "placement": "node-pairs", "message_size": "8",
        "conditions": f"location={NODES[0]}:{NODES[1]}", "value": "0.5", "unit": "us",
        "statistic": "median", "kind": "measured",
    }  # fmt: skip
    text = ",".join(row) + "\n" + ",".join(row.values()) + "\n"
    (reference / "perlmutter.csv").write_text(text)
    foreign.prepare("perlmutter", tmp_path)
    fields = only(foreign.run("perlmutter", tmp_path, *ONE, "-S", "osu_node_pairs.nodes=2"))
    (fom,) = fields["foms"]
    assert (fom["verdict"], fom["reference"]) == ("fail", "pair"), fields
    assert f"latency_8_{NODES[0]}:{NODES[1]} = " in fields["reason"]
