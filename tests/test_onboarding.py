"""`plumbline init` drafts a system file, and `plumbline lint` leads on from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster import brought_up
from conftest import BIN, ROOT, Done, Testbed, fault_of
from login_node import LoginNode
from plumbline.core import process
from plumbline.operate.onboarding import (
    draft,
    modules,
    node,
    probing,
    queues,
    software,
    steps,
    toolchains,
)
from plumbline.operate.onboarding.queues import slurm as queues_of_slurm
from plumbline.placement import placement
from plumbline.placement.topology import Topology
from plumbline.site import configuration, slurm
from reframe.utility import cpuinfo
from test_sbatch import MISSING, PATH, Cluster, controller

#: Nodes of a controller alone: a partition of one kind, one of two kinds with features, one of two
#: kinds without, one that is hidden, and one without nodes.
NODES = """\
NodeName=cpu[001-004] NodeHostname=localhost NodeAddr=127.0.0.1 \
Port=[17001-17004] Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 \
RealMemory=257000 Feature=milan,ib
NodeName=gpu[01-02] NodeHostname=localhost NodeAddr=127.0.0.1 \
Port=[17005-17006] Sockets=1 CoresPerSocket=64 ThreadsPerCore=2 \
RealMemory=250000 Feature=gpu,hbm40g Gres=gpu:a100:4 CoreSpecCount=2
NodeName=gpu[03-04] NodeHostname=localhost NodeAddr=127.0.0.1 \
Port=[17007-17008] Sockets=1 CoresPerSocket=64 ThreadsPerCore=2 \
RealMemory=240000 Feature=gpu,hbm80g Gres=gpu:a100:8
NodeName=odd[1-3] NodeHostname=localhost NodeAddr=127.0.0.1 \
Port=[17009-17011] Sockets=1 CoresPerSocket=8 RealMemory=1000
NodeName=odd4 NodeHostname=localhost NodeAddr=127.0.0.1 \
Port=17012 Sockets=1 CoresPerSocket=4 RealMemory=1000
PartitionName=batch Nodes=cpu[001-004] Default=YES MaxTime=1-00:00:00
PartitionName=accel Nodes=gpu[01-04] MaxTime=04:00:00 OverSubscribe=EXCLUSIVE
PartitionName=odd Nodes=odd[1-4]
PartitionName=secret Nodes=cpu[001-004] Hidden=YES
PartitionName=empty
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if MISSING:
        pytest.skip(f"not installed: {', '.join(MISSING)} (apt-get install slurmctld munge)")
    with controller("maia", NODES) as found:
        yield found


@pytest.fixture
def on_login_node(testbed: Testbed, cluster: Cluster) -> Testbed:
    """A test system's folders, on a login node of the cluster; nothing of Slurm's is installed on
    the test's PATH but its commands."""
    testbed.env |= {
        "SLURM_CONF": str(cluster.configuration),
        "PATH": f"{testbed.env['PATH']}:{PATH}",
    }
    testbed.env.pop("SCRATCH", None)
    return testbed


def only(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """This command is on PATH, and no other."""
    monkeypatch.setattr(
        draft.shutil, "which", lambda name: f"/bin/{name}" if name == command else None
    )


def written(testbed: Testbed, name: str) -> dict:
    return yaml.safe_load((testbed.systems / f"{name}.yaml").read_text())


def test_draft_of_slurms_partitions(on_login_node: Testbed):
    """Every fact of it is in slurm.conf; what is not there is open, and not guessed."""
    done = on_login_node.asked("init", "maia")
    assert done.code == 0, done.output
    system = written(on_login_node, "maia")["systems"][0]
    partitions = {partition["name"]: partition for partition in system["partitions"]}
    assert [*partitions] == ["batch", "accel-hbm40g", "accel-hbm80g", "odd"]
    batch, accel = partitions["batch"], partitions["accel-hbm40g"]
    # The controller has no accounting database: `slurm` would need sacct.
    assert (batch["scheduler"], batch["launcher"]) == ("squeue", "srun")
    assert "--partition=batch" in batch["access"]
    assert batch["processor"] == {
        "num_cpus": 128, "num_cpus_per_core": 2, "num_cpus_per_socket": 64, "num_sockets": 2,
    }  # fmt: skip
    assert batch["extras"]["memory"] == 257000 * 2**20
    assert {"on-node", "off-node", "node-pairs", "tasks-per-node"} <= set(
        batch["extras"]["placements"]
    )
    assert "numa-matrix" not in batch["extras"]["placements"]
    assert {"--constraint=hbm40g", "--gpus-per-node=4"} <= set(accel["access"])
    assert "on-node" not in accel["extras"]["placements"]
    assert accel["devices"] == [{"type": "gpu", "num_devices": 4, "model": "a100"}]
    assert "--gpus-per-node=8" in partitions["accel-hbm80g"]["access"]
    # Nothing distinguishes odd's kinds: the greater one is drafted, and that is reported.
    assert partitions["odd"]["processor"]["num_cpus"] == 8
    for words in (" 2 kinds ", " odd4 ", "empty:", "--partition=accel --constraint=hbm40g"):
        assert words in done.out
    assert open_topologies(done) == ["batch", "accel-hbm40g", "accel-hbm80g", "odd"]
    assert "CoreSpecCount=2" in (on_login_node.systems / "maia.yaml").read_text()
    for _ in range(2):
        lint = on_login_node.asked("lint", "--system", "maia")
        assert lint.code == 0, lint.output
        assert open_topologies(lint) == open_topologies(done)
        # Without a topology, each case of a first run would be skipped.
    assert "`plumbline run --system maia" not in lint.out


def test_doctor_has_the_partitions_that_slurm_does_not_have(on_login_node: Testbed):
    """Hidden ones, and those without nodes, exist; another system's are not asked for here."""
    on_login_node.environment("disk", "fio")
    access = ["--partition=batch,secret,acel", "-p empty,secret,acel"]

    def wrong() -> list[str]:
        done = on_login_node.asked("doctor", "--system=testbed", "--format=json")
        assert done.code == 0, done.output
        return json.loads(done.out)["misfits"]

    path = on_login_node.write(scheduler="squeue", launcher="srun", access=access)
    (line,) = wrong()
    assert line.startswith(f"{path}: partition node: ") and "'acel'; did you mean accel?" in line
    assert line.endswith("[scheduler.no-partition]")
    text = path.read_text()
    path.write_text(text.replace(re.escape(socket.gethostname()), "elsewhere"))
    assert wrong() == []
    path.write_text(text.replace("-p empty", "-M other -p empty"))
    assert wrong() == []


def open_topologies(done: Done) -> list[str]:
    """The partitions whose topology is still open."""
    return re.findall(r"open: partition (\S+): .*processor\.topology", done.out)


def test_a_node_that_was_looked_at_closes_what_was_open(on_login_node: Testbed, tmp_path: Path):
    """What a node prints of itself becomes the partition's topology."""
    command = [sys.executable, "-m", "plumbline.operate.onboarding.node"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    file = tmp_path / "node.json"
    file.write_text(output)
    done = on_login_node.asked("init", "maia", "-p", "batch", "--node", f"batch={file}")
    assert done.code == 0, done.output
    (partition,) = written(on_login_node, "maia")["systems"][0]["partitions"]
    assert partition["processor"] == json.loads(output)["processor"]
    # Slurm reports another number of CPUs than this machine has.
    assert " 128 CPUs" in done.output
    lint = on_login_node.asked("lint", "--system", "maia")
    assert lint.code == 0 and open_topologies(done) == open_topologies(lint) == []
    assert "`plumbline run --system maia --mode=smoke`" in lint.out


def test_a_file_that_is_there_is_kept(testbed: Testbed, monkeypatch: pytest.MonkeyPatch):
    found = {"systems": [{"name": "maia", "partitions": []}], "environments": []}
    made = draft.Draft("maia", found, messages=["found nothing"])
    monkeypatch.setattr(draft, "draft", lambda *_: made)
    path = testbed.systems / "maia.yaml"
    path.write_text("mine")
    done = testbed.asked("init", "maia")
    assert (done.code, done.codes) == (2, ["files.exists"]) and path.read_text() == "mine"
    for option in (["--dry-run"], ["-o", "-"]):
        done = testbed.asked("init", "maia", *option)
        assert done.code == 0 and path.read_text() == "mine"
        # The messages are beside the file, not in it.
        assert "found nothing" in done.err and "found nothing" not in done.out
        assert yaml.safe_load(done.out) == found
    assert testbed.asked("init", "maia", "--force").code == 0
    assert path.read_text() != "mine"


@pytest.mark.parametrize("arguments, code, words", [
    (["$(touch x)"], "input.wrong-option", "$(touch x)"),
    (["maia", "--node", "batch=nowhere.json"], "input.unreadable-file", "nowhere.json"),
    (["maia", "--node", f"batch={__file__}"], "input.wrong-file", __file__),
    (["maia", "-p", "elsewhere"], "scheduler.no-partition", "elsewhere"),
])  # fmt: skip
def test_bad_input(on_login_node: Testbed, arguments: list[str], code: str, words: str):
    done = on_login_node.asked("init", *arguments)
    assert (done.code, done.codes) == (2, [code]) and words in done.err, done.output
    assert on_login_node.asked("init", "maia", "--node", "batch").code == 2
    assert not list(on_login_node.systems.glob("*.yaml"))


def test_a_machine_without_a_scheduler(testbed: Testbed, monkeypatch: pytest.MonkeyPatch):
    """Itself, detected; the first run of the draft measures it."""
    folder = testbed.folder / "bin"
    folder.mkdir()
    for program in Path(testbed.env["PATH"].split(":")[1]).iterdir():
        if program.name not in ("sinfo", "scontrol", "srun"):
            (folder / program.name).symlink_to(program)
    testbed.env["PATH"] = f"{BIN}:{folder}"
    assert testbed.asked("init", "bench").code == 0
    lint = testbed.asked("lint", "--system", "bench")
    assert lint.code == 0 and "`plumbline run --system bench" in lint.out, lint.output
    done = testbed.plumbline(
        *("run", "--system", "bench", "-n", "imb_p2p%operation=PingPong.*on-socket"),
        *("-S", "num_samples=1"),
    )
    assert done.code == 0, done.output
    # As if it had been measured three times.
    testbed.enter(monkeypatch)
    content = configuration.read_system(testbed.systems / "bench.yaml")
    for number in range(1, 4):
        if number > 1:
            shutil.copytree(done.session, done.session.with_name(f"{done.session.name}{number}"))
        step = steps.next_step("bench", content)
        assert step.startswith(f"{number} session") and ("--accept" in step) == (number == 3)


@pytest.mark.cluster
def test_the_pages_lead_to_a_baseline_and_a_sweep(tmp_path: Path):
    """Each command of docs/onboarding.md and docs/sweep.md as it stands there, on a real cluster;
    sessions are cut down to one check, or these would take long."""
    few = ["-n", "imb_p2p%operation=PingPong.*on-socket", "-S", "num_samples=2"]
    with brought_up() as there:
        there.run("scontrol", "create", "reservation", "ReservationName=maint-1121", "Nodes=n1",
                  "StartTime=now", "Duration=60", "Users=root", "Flags=MAINT")  # fmt: skip
        site = LoginNode(tmp_path, there)
        site_table = tmp_path / "reference" / "mycluster.csv"
        output = []
        for page in ("onboarding", "sweep"):
            text = (ROOT / "docs" / f"{page}.md").read_text()
            for line in re.search(r"```\n(.*?)```", text, re.S)[1].splitlines():
                _, *words = line.split()
                done = site.plumbline(*words, *(few if words[0] in ("run", "sweep") else []))
                assert "Traceback" not in done.stderr, done.stderr
                # A machine that does other things too may be too noisy for a baseline.
                noisy = words[0] == "baseline" and "%" in done.stderr
                # Outside its reservation, a sweep skips n1.
                skips = words[0] == "sweep" and "--reservation" not in words
                expected = (2,) if skips else (0, 2) if noisy else (0,)
                assert done.returncode in expected, f"{line}\n{done.stderr}"
                output.append(done.stdout)
            if page == "onboarding":
                made = site_table.exists()
                # Such a machine may also be slower in the sweep than its baseline allows.
                site_table.unlink(missing_ok=True)
    init, lint, *_, baseline, accepted, sweep, maintained = output
    assert "processor.topology" not in init
    assert "`plumbline run --system mycluster" in lint
    assert ("`plumbline baseline mycluster`" in accepted) != made, baseline
    assert re.findall(r"(\d+) measured, (\d+) skipped", sweep + maintained) == [
        *(("3", "1"), ("1", "0")),
    ]


# -- what a machine may say -----------------------------------------------------------------------

HOSTILE = [
    "a$(touch${IFS}x)",
    "a$(touch x)",
    'b"; touch x #',
    "c\u202etxt",
    "d'e",
    "f: [g",
    "h\x1b[2J",
    "*",
]


@pytest.mark.holds("draft")
@pytest.mark.parametrize("odd", HOSTILE)
def test_hostile_names_break_neither_file_nor_shell(monkeypatch, tmp_path: Path, odd: str):
    """A partition, features, a GPU, states and modules of any name: the file is read back as what
    it is, and whatever is in a job script is plain."""
    answers = {
        "sinfo": f"n1|{odd}|1|4|1|1000|gpu:{odd}:2|{odd},x|idle|{odd}\n"
        f"n2|ok|1|4|1|1000|gpu:{odd}:2|{odd}|idle|{odd}\n"
        f"n3|ok|1|8|1|1000|(null)|{odd}2|idle|{odd}\n",
        "scontrol": f"PartitionName={odd} State=UP\nPartitionName=ok State={odd} MaxTime={odd}\n",
        "lmod": f"/modules/{odd}:\nopenmpi/{odd}\nmpich/4.1\n",
    }
    asked = []

    def capture(*words, stderr=False):
        words = words[1:] if words[0] == "env" else words
        asked.append(words)
        return answers.get(words[0])

    for module in (slurm, modules):
        monkeypatch.setattr(module, "capture", capture)
    only(monkeypatch, "sinfo")
    monkeypatch.setattr(draft.socket, "gethostname", lambda: odd)
    monkeypatch.setenv("LMOD_CMD", "lmod")
    made = draft.draft("x")
    content = yaml.safe_load(made.text())
    assert content == json.loads(json.dumps(made.content))
    assert re.match(content["systems"][0]["hostnames"][0], odd)
    output = json.dumps(content["systems"][0]["partitions"])
    for partition in content["systems"][0]["partitions"]:
        assert all(
            process.is_shell_safe(option.replace("=", "", 1)) for option in partition["access"]
        ), output
    loaded = [m for e in content["environments"] for m in e.get("modules", [])]
    assert loaded == ["mpich/4.1"]
    assert all(line.isprintable() for line in made.messages)
    assert any("skipped" in line and "script" in line for line in made.messages)


def test_a_command_that_hangs_is_given_up(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(process, "TIMEOUT", 0.2)
        assert process.capture("sleep", "60") is None
    assert process.capture("no-such-command") is None
    assert process.capture("printf", "%s", "$(touch x)") == "$(touch x)"


#: As scontrol(1) and sinfo(1) write generic resources -> type and number of GPUs.
GRES = {
    "(null)": ("", 0),
    "gpu:4": ("", 4),
    "gpu:a100:4(S:0-1)": ("a100", 4),
    "nvme:1,gpu:h100:8(S:0,1),shard:16": ("h100", 8),
    "gpu:a100:2,gpu:v100:2": ("", 4),
    "gpu": ("", 1),
    # Instances of MIG, as of CSC's Mahti and Narval of the Alliance; beside whole GPUs.
    "gpu:a100_1g.5gb:28(S:0-1)": ("a100_1g.5gb", 28),
    "gpu:a100:2,gpu:a100_1g.5gb:14": ("a100_1g.5gb", 16),
}


@pytest.mark.parametrize("text", GRES)
def test_gres(monkeypatch, text: str):
    monkeypatch.setattr(slurm, "capture", lambda *words, **_: f"n1|p|1|4|1|10|{text}|f|idle|none\n")
    assert slurm.nodes()[0].gpus == GRES[text]


def test_modules_of_lmod(monkeypatch, tmp_path: Path):
    """The real Lmod, where it is installed."""
    lmod = Path("/usr/share/lmod/lmod/libexec/lmod")
    if not lmod.exists():
        pytest.skip("not installed: lmod")
    for name in ("openmpi/4.1.6", "openmpi/4.1.10", "gcc/13", "odd name/1"):
        path = tmp_path / f"{name}.lua"
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    monkeypatch.setenv("LMOD_CMD", str(lmod))
    monkeypatch.setenv("MODULEPATH", str(tmp_path))
    found = modules.available()
    assert (found.system, found.unsafe) == ("lmod", 1)
    assert found.names == ["gcc/13", "openmpi/4.1.10", "openmpi/4.1.6"]
    assert toolchains.mpi_modules(found.names) == {"openmpi": "openmpi/4.1.10"}


@pytest.mark.parametrize(
    ("mpi", "types", "option"),
    [
        ("mpich", ["none", "pmi2", "pmix"], "pmi2"),
        ("openmpi", ["none", "pmi2", "pmix"], "pmix"),
        # The default works, no plugin fits, or the MPI is unknown.
        ("openmpi", ["pmix_v4", "pmi2", "pmix"], ""),
        ("openmpi", ["none", "pmi2"], ""),
        ("other", ["none", "pmi2", "pmix"], ""),
        ("mpich", [], ""),
    ],
)
def test_plugin_of_srun(mpi: str, types: list[str], option: str):
    assert software.plugin(mpi, types) == option


def test_plugin_that_srun_lists_and_cannot_load(monkeypatch, tmp_path: Path):
    """As Debian's Slurm 22.05 does without the development files of PMIx."""
    program = tmp_path / "srun"
    program.write_text(
        "#!/bin/sh\n[ $1 != --mpi=pmix ] || { echo \"srun: error: Invalid MPI type 'pmix', "
        '--mpi=list for acceptable types" >&2; exit 1; }\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert not slurm.loads_mpi("pmix")
    assert slurm.loads_mpi("pmi2")


def test_probe_command_asks_as_a_job_does():
    partition = {"scheduler": "slurm", "access": ["--no-requeue", "--partition=a", "--qos=b"]}
    assert probing.command(partition, "x.json", ("show", "a b")) == [
        "sbatch", "--wait", "--quiet", "--no-requeue", "--partition=a", "--qos=b", "--nodes=1",
        "--ntasks=1", "--time=5", "--output=x.json", "--wrap=show 'a b'",
    ]  # fmt: skip


def test_placements_need_no_numbering():
    """Those that the counts of a node give are those that its topology gives."""
    node = queues.Hardware(8, 2, 4, 1)
    topology = {"cores": [hex(1 << cpu) for cpu in range(8)], "sockets": ["0x55", "0xaa"]}
    real = placement.of_one_node(Topology.from_processor({"topology": topology}))
    assert draft._placements(node, None, {}) == [n for n in real if n != "numa-matrix"]


def test_cpus_that_are_offline_are_not_reserved(monkeypatch):
    """ReFrame counts them, as without SMT."""
    real = cpuinfo.cpuinfo()
    of_linux = real | {"num_cpus": 2 * real["num_cpus"]}
    monkeypatch.setattr(cpuinfo, "cpuinfo", lambda: of_linux)
    usable = node.described()["extras"].get("usable_cpus")
    assert usable is None or len(usable) < real["num_cpus"]


def empty() -> draft.Draft:
    return draft.Draft("x", {"systems": [{"partitions": []}], "environments": []})


def test_partitions_have_names_of_their_own():
    batch = queues.Batch("x", "pbs", "mpiexec")
    for name in ("a.b", "a-b", "a_b", "a+b"):
        batch.add(name, {"n1": (queues.Hardware(4), 0)}, "")
    made = empty()
    draft._draft_queues(made, batch, {}, None)
    names = [partition["name"] for partition in made.system["partitions"]]
    assert names == ["a-b", "a-b-2", "a_b", "a-b-3"]


def test_no_placement_is_drafted_twice():
    batch = queues.Batch("x", "slurm", "srun")
    batch.add("q", {f"n{number}": (queues.Hardware(4), 0) for number in range(3)}, "")
    made = empty()
    draft._draft_queues(made, batch, {}, None)
    placements = made.system["partitions"][0]["extras"]["placements"]
    assert {"tasks-per-node", "off-node", "node-pairs"} <= {*placements}
    assert len({*placements}) == len(placements)


@pytest.mark.parametrize(("seen", "expected"), [(8, 8), (7, 7), (0, 8)])
def test_gpus_that_a_probe_does_not_see(seen: int, expected: int):
    """One fell off, or the job does not have the program that lists them."""
    batch = queues.Batch("x", "slurm", "srun")
    batch.add("q", {"n1": (queues.Hardware(4, gpus=("mi250x", 8)), 0)}, "")
    cores = {"cores": [hex(1 << cpu) for cpu in range(4)], "sockets": ["0xf"]}
    device = {"type": "gpu", "arch": "gfx90a", "num_devices": seen}
    inside = {
        "host": "n1",
        "processor": {"num_cpus": 4, "topology": cores},
        "devices": [device] if seen else [],
        "extras": {},
    }
    made = empty()
    draft._draft_queues(made, batch, {}, lambda _: inside)
    (partition,) = made.system["partitions"]
    assert [device["num_devices"] for device in partition["devices"]] == [expected]
    assert ("arch" in partition["devices"][0]) == (seen > 0)
    said = [line for line in made.messages if f"reports 8 GPUs, n1 has {seen}" in line]
    assert len(said) == (seen != 8)
    (comment,) = made.comments["systems", 0, "partitions", 0, "devices"]
    assert ("gpu_affinity" in comment) == (seen == 0)


@pytest.mark.parametrize(("model", "mode"), [("a100_1g.5gb", "MIG"), ("a100", None)])
def test_instances_of_mig_in_a_queue(model: str, mode: str | None):
    """They are drafted as what they are, and there is one thing to do about them."""
    batch = queues.Batch("x", "slurm", "srun")
    batch.add("q", {"n1": (queues.Hardware(4, gpus=(model, 7)), 0)}, "")
    made = empty()
    draft._draft_queues(made, batch, {}, None)
    (partition,) = made.system["partitions"]
    assert partition["extras"].get("gpu_mode") == mode
    items = [*steps._of_gpus(partition)]
    assert ["gpu_mode" in item for item in items] == ([True] if mode else [False] * 3)


def test_why_a_node_was_not_described(monkeypatch, tmp_path: Path):
    """The job says it in its output; and of one that waits, that it has to be cancelled."""
    output = tmp_path / "node.json"
    job = ["sh", "-c", f"echo 'GPU 3 is lost' > {output}; exit 1"]
    fault_of(lambda: probing._submit(job, output), "scheduler.no-answer", "GPU 3 is lost")
    monkeypatch.setattr(probing, "PATIENCE", 0.1)
    waiting = ["sleep", "60"]
    fault_of(lambda: probing._submit(waiting, output), "scheduler.no-answer", "0.1 s", "queued")


def test_the_default_plugin_of_srun_cannot_be_loaded(monkeypatch):
    """No other is the default then."""
    monkeypatch.setattr(slurm, "mpi_types", lambda: ["pmix", "pmix", "pmi2"])
    monkeypatch.setattr(slurm, "loads_mpi", lambda name: name != "pmix")
    monkeypatch.setattr(software, "mpi_on_path", lambda: ("mpich", "MPICH 4.2"))
    made = empty()
    draft._environments(made, modules.Modules("lmod"), queues.Batch("Slurm", "slurm", "srun"))
    (on_path,) = [e for e in made.content["environments"] if e["name"] == "path"]
    assert on_path["env_vars"] == [["SLURM_MPI_TYPE", "pmi2"]]


@pytest.mark.parametrize(
    ("accounting", "scheduler"),
    [
        ("accounting_storage/slurmdbd", "slurm"),
        ("accounting_storage/none", "squeue"),
        ("(null)", "squeue"),
    ],
)
def test_scheduler_without_accounting(monkeypatch, accounting: str, scheduler: str):
    answers = {
        "sinfo": "n1|q|1|4|1|1000|(null)|a|idle|none\n",
        "scontrol": f"PartitionName=q State=UP\nAccountingStorageType   = {accounting}\n",
    }
    monkeypatch.setattr(slurm, "capture", lambda *words, **_: answers.get(words[0]))
    assert queues_of_slurm.find([]).scheduler == scheduler


def test_a_system_file_without_environments():
    content = {"systems": [{"name": "x", "partitions": [{"name": "node", "scheduler": "local"}]}]}
    assert not steps.has_checks(content)
    # Where no batch system answers, `plumbline init` takes no --node.
    (topology, *_) = steps.open_items("x", content)
    assert "`plumbline init x -o -`" in topology and "--node" not in topology


@pytest.mark.parametrize(
    ("processor", "step"), [({}, "topology"), ({"topology": {"cores": ["0x1"]}}, "plumbline run")]
)
def test_the_first_run_is_next_once_a_node_is_described(processor: dict, step: str):
    """Until then each case of the run would be skipped, and it would end with 2."""
    partition = {"name": "q", "scheduler": "slurm", "environs": ["e"], "processor": processor,
                 "extras": {"placements": ["one-core"]}}  # fmt: skip
    content = {
        "systems": [{"name": "x", "partitions": [partition]}],
        "environments": [{"name": "e", "features": ["imb"]}],
    }
    assert step in steps.next_step("x", content)
