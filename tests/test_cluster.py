"""The whole of it on a real Slurm: ReFrame's own scheduler and launcher, real MPI, real I/O."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cluster as virtual
import nap
import pytest
import yaml
from conftest import BIN, ROOT, Done, Testbed, codes_in, stop
from own_machine import plain_path
from plumbline.placement.binding.common import OF_SRUN
from plumbline.placement.proof import OTHER_MPI
from plumbline.software import build, environments, spack
from records import records_of, valid

pytestmark = pytest.mark.cluster

TOOLS = ROOT / ".tools"
LMOD = Path("/usr/share/lmod/lmod")
SYSTEM = Path(__file__).with_name("virtual.yaml")

#: What is built with Debian's MPICH, which speaks PMI with srun as the cluster does.
BUILT = environments.Environment("local", "mpich")

PINGPONG = "imb_p2p.*PingPong.*on-socket"

#: One run of each program on little data: what they say of these nodes is of no interest.
QUICK = [
    *("-S", "num_warmups=0", "-S", "num_samples=1"),
    *("-S", "fio.size=16"),
]


class Virtual(Testbed):
    """The virtual cluster as a test system; its commands run within the cluster."""

    forks = False

    def __init__(self, cluster: virtual.Cluster, folder: Path, scratch: Path):
        super().__init__(folder, scratch, "virtual")
        self.cluster = cluster
        self.patience = 600
        programs = folder / "programs"
        programs.mkdir()
        (programs / "fio").symlink_to(shutil.which("fio", path=virtual.PATH))
        modules = folder / "modules"
        (modules / "bin").mkdir(parents=True)
        imb = modules / "bin" / "IMB-MPI1"
        imb.write_text(
            f"#!/bin/sh\nexport LD_PRELOAD={nap.library(folder)}\n"
            f'exec {TOOLS}/imb/bin/IMB-MPI1 "$@" -iter 200\n'
        )
        imb.chmod(0o755)
        (modules / "mpich-imb.lua").write_text(
            f'prepend_path("LD_LIBRARY_PATH", "{TOOLS}/mpich/lib")\n'
            f'prepend_path("PATH", "{imb.parent}")\n'
        )
        self.env |= cluster.env | {
            "PATH": f"{BIN}:{programs}:{plain_path()}",
            # What a login shell has by Lmod's own start-up file.
            "LMOD_CMD": f"{LMOD}/libexec/lmod",
            "LMOD_DIR": f"{LMOD}/libexec",
            "LMOD_PKG": str(LMOD),
            "BASH_ENV": f"{LMOD}/init/bash",
            "MODULEPATH": str(modules),
        }
        self.write()

    def write(self, **partition: object) -> Path:
        """Writes the system's file, with the environments that the test added."""
        content = yaml.safe_load(SYSTEM.read_text())
        for environment in self.environments:
            environment["extras"].pop("launcher", None)
            content["environments"].append(environment)
            content["systems"][0]["partitions"][0]["environs"].append(environment["name"])
        content["systems"][0]["partitions"][0] |= partition
        path = self.systems / "virtual.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def start(self, *command: object, **env: object):
        return super().start(*self.cluster.inside, *command, **env)

    def session(self, *arguments: object, **env: object) -> Done:
        """Runs ``plumbline run`` on the cluster."""
        return self.plumbline("run", "--system=virtual", *arguments, **env)

    def disk(self, size: str) -> Path:
        """A small file system with direct I/O, on all of the cluster and nowhere else."""
        image, folder = self.folder / "image", self.folder / "disk"
        folder.mkdir()
        subprocess.run(["truncate", f"--size={size}", str(image)], check=True)
        self.cluster.run("mkfs.ext2", "-q", image)
        self.cluster.run("mount", "-o", "loop", image, folder)
        return folder

    def standin(self, name: str, **variables: object) -> None:
        """Adds an environment whose IMB prints a captured run."""
        self.environment(name, "imb", **variables)

    def spack(self) -> None:
        """Gives the partition what Spack has built for this machine, which is each of the nodes:
        the cluster's own manifests and install root lead to the machine's."""
        manifests, tools = self.folder / "spack-env", self.folder / "tools" / "spack"
        # Debian 12's MPICH, 4.0.2, does not always end where there are several nodes
        # (pmodels/mpich#6596). The wheel's takes its place: their ABI is one.
        library = self.folder / "library"
        links = {
            manifests / self.name: BUILT.folder.parent,
            tools / "environments" / self.name: spack.folder_of(BUILT).parent,
            tools / "cache": spack.root() / "cache",
            library / "libmpich.so.12": TOOLS / "mpich" / "lib" / "libmpi.so.12",
            library / "mpich": TOOLS / "mpich" / "lib" / "mpich",
        }
        for link, target in links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        module = self.folder / "modules" / "mpich-newer.lua"
        module.write_text(f'prepend_path("LD_LIBRARY_PATH", "{library}")\n')
        self.env["PLUMBLINE_TOOLS"] = str(tools.parent)
        pip = yaml.safe_load(SYSTEM.read_text())["environments"][0]
        features = ["osu", "ior", "mdtest", "gpcnet"]
        own = {"name": BUILT.toolchain, "features": features, "modules": [module.stem]}
        self.environments.append(pip | own | {"extras": {"provider": "spack"}})
        # Tasks that wait for a message keep their cores busy: no two jobs at once.
        self.write(max_jobs=1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[virtual.Cluster]:
    with virtual.brought_up() as found:
        yield found


@pytest.fixture
def bed(cluster: virtual.Cluster, tmp_path: Path, disk: Path) -> Iterator[Virtual]:
    scratch = disk / tmp_path.name
    scratch.mkdir()
    yield Virtual(cluster, tmp_path, scratch)
    cluster.repair()


@pytest.fixture
def spack_bed(bed: Virtual) -> Virtual:
    """The cluster with what Spack has built; skips where it has not."""
    if why := build.why_unusable(BUILT):
        pytest.skip(f"{why}: plumbline build {BUILT.name}")
    bed.spack()
    return bed


# -- the nightly, for real -----------------------------------------------------------------------


def test_the_nightly_in_smoke_form(bed: Virtual):
    """Tasks that share a core, or a machine that is busy, take so long for a byte that IMB prints
    no bandwidth, which is refused: PingPong is left out here."""
    done = bed.session("--mode=smoke", *QUICK, "-x", "PingPong")
    assert done.code == 0, done.output
    ran = {(f["partition"], f["environment"], f["benchmark"], f["result"]) for f in done.records}
    assert ran == {
        ("cpu", "lmod", "imb", "pass"),
        ("cpu", "path", "fio", "pass"),
        ("gpu", "pip", "imb", "pass"),
    }
    for fields in done.records:
        assert fields["jobid"].isdigit()
        assert [task["host"] for task in fields["tasks"]][:1] == fields["nodes"]
        assert all(fom["value"] > 0 for fom in fields["foms"])
    # The partition asks for the feature `fast`, which one of its nodes has.
    on_gpu = [fields["nodes"] for fields in done.records if fields["partition"] == "gpu"]
    assert on_gpu == [["n3"], ["n3"]]
    assert not list(bed.scratch.iterdir())


def test_every_node_is_measured(bed: Virtual):
    done = bed.session("--distribute", "-n", "Barrier", "-p", "lmod", *QUICK)
    assert done.code == 0, done.output
    assert sorted(fields["nodes"] for fields in done.records) == [[name] for name in virtual.NODES]


def test_pairs_are_measured_and_screened(bed: Virtual):
    done = bed.session("-n", "imb_node_pairs", *QUICK, "-S", "imb_node_pairs.nodes=4")
    assert done.code == 0, done.output
    (fields,) = done.records
    assert sorted(fields["nodes"]) == [*virtual.NODES]
    pairs = {fom["location"] for fom in fields["foms"]}
    assert len(pairs) == 6 and len(fields["foms"]) == 12
    screened = bed.plumbline("screen", done.session.name)
    # The nodes share their cores: that one is slower than another is no news.
    assert screened.code in (0, 1), screened.output
    assert re.search(r"^.*\b12 values\b.*\b1 night$", screened.out, re.M)


#: Of OSU what the smoke mode has, of the others what the nightly has.
BY_SPACK = "osu_p2p.*=(latency|bw)%|osu_collective.*=(allreduce|barrier)%|^ior%|^mdtest%|gpcnet_net"


def test_what_spack_has_built(spack_bed: Virtual):
    """But for GPCNeT under congestion, which begins with ten nodes."""
    little = [
        *("-S", "osu_p2p.iterations=10", "-S", f"osu_p2p.largest={2**20}"),
        *("-S", "osu_collective.iterations=10", "-S", "osu_collective.largest=64"),
        *("-S", f"ior.block={2**20}", "-S", "mdtest.files=10"),
        *("-S", "gpcnet_network.tasks_per_node=1"),
    ]
    done = spack_bed.session("-n", BY_SPACK, "-p", "mpich", *QUICK, *little)
    assert done.code == 0, done.output
    two_nodes = set()
    for fields in done.records:
        assert fields["result"] == "pass", fields["reason"]
        assert all(fom["value"] > 0 for fom in fields["foms"])
        assert fields["build"]["provider"] == "spack"
        if len(fields["nodes"]) == 2:
            two_nodes.add(fields["benchmark"])
    assert two_nodes == {"osu", "ior", "mdtest", "gpcnet"}


# -- faults --------------------------------------------------------------------------------------


class Running:
    """A session of two cases: one has ended, the job of the other waits for its release."""

    def __init__(self, bed: Virtual, *arguments: object, **env: object):
        self.bed = bed
        self.release, self.started = bed.folder / "release", bed.folder / "started"
        self.before = bed.session_folders()
        bed.standin("quick")
        bed.standin("held", STANDIN_WAIT=self.release, STANDIN_LOG=self.started)
        wanted = ["-n", PINGPONG, "-p", "quick|held|later", *QUICK]
        self.process = bed.start(
            BIN / "plumbline", "run", "--system=virtual", *wanted, *arguments, **env
        )
        try:
            virtual.wait_for(lambda: self.process.poll() is not None or self._held_alone())
            assert self.process.poll() is None, self.process.communicate()
        except BaseException:
            self.stop()
            raise

    def _held_alone(self) -> bool:
        made = self.bed.session_folders() - self.before
        # A record that is being written, or that a full disk cut short, is none yet.
        texts = [path.read_text() for folder in made for path in folder.glob("records.jsonl")]
        # slurmctld that is restarted before srun has its job step lets srun wait for two minutes.
        if not (self.started.exists() and any("\n" in text for text in texts)):
            return False
        self.jobs = self.bed.cluster.jobs("running")
        return len(self.jobs) == 1

    @property
    def job(self) -> str:
        """The number of the job that waits."""
        (job,) = self.jobs
        return job

    def ended(self) -> Done:
        return self.bed.ended(self.process, self.before)

    def stop(self) -> None:
        self.release.touch()
        stop(self.process)


@pytest.fixture
def running(bed: Virtual) -> Iterator[Running]:
    found = Running(bed)
    yield found
    found.stop()


def lost_by(done: Done, code: str, *words: str) -> None:
    """The case that was lost is an error with this code and these words of Slurm, in its record and
    in the closing table; the other one passed."""
    assert done.code == 1, done.output
    assert len(done.records) == 2
    assert done.record("imb_p2p", "quick")["result"] == "pass"
    lost = done.record("imb_p2p", "held")
    assert (lost["result"], lost["code"]) == ("error", code), lost["reason"]
    assert lost["foms"] == []
    (line,) = [line for line in done.out.splitlines() if line.startswith("error: imb_p2p")]
    assert codes_in(line) == [code]
    for word in words:
        assert word in lost["reason"] and word in line, lost["reason"]


def test_a_job_is_cancelled(running: Running):
    running.bed.cluster.run("scancel", running.job)
    lost_by(running.ended(), "job.cancelled", "CANCELLED by 0", f"jobid={running.job}")


def test_a_node_dies_under_a_job(running: Running):
    node = running.bed.cluster.node_of(running.job)
    running.bed.cluster.kill_node(node)
    done = running.ended()
    lost_by(done, "job.node-failed", "NODE_FAIL", f"{node} is DOWN", "Not responding")
    assert done.record("imb_p2p", "held")["nodes"] == [node]


def test_a_node_dies_under_osu(spack_bed: Virtual):
    """The second of two, while messages go between them: nothing that was printed counts."""
    before = spack_bed.session_folders()
    process = spack_bed.start(
        *(BIN / "plumbline", "run", "--system=virtual", "-n", "osu_p2p.*=latency%.*off-node"),
        *("-p", "mpich", *QUICK, "-S", f"osu_p2p.iterations={10**7}"),
    )
    printed = "sessions/*/stage/**/sample-0.out"
    virtual.wait_for(lambda: any("Size" in f.read_text() for f in spack_bed.results.glob(printed)))
    spack_bed.cluster.kill_node("n1")
    done = spack_bed.ended(process, before)
    assert done.code == 1, done.output
    (lost,) = done.records
    assert lost["nodes"] == ["n0", "n1"]
    assert (lost["result"], lost["code"], lost["foms"]) == ("error", "job.node-failed", [])
    assert "NODE_FAIL" in lost["reason"] and "n1 is DOWN" in lost["reason"]


def test_a_time_limit_is_hit(bed: Virtual):
    running = Running(bed, "-J", "time=0:1")
    lost_by(running.ended(), "job.time-limit", "TIMEOUT", " 00:01:", " 00:01:00")
    running.stop()


def test_a_node_is_down_before_the_job(bed: Virtual):
    """The one node of its kind: the job could wait for ever."""
    bed.cluster.kill_node("n3")
    bed.cluster.run("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=no power")
    bed.standin("quick")
    done = bed.session("-n", PINGPONG, "-p", "quick|pip", *QUICK)
    assert done.code == 1, done.output
    assert done.record("imb_p2p", "quick")["result"] == "pass"
    lost = done.record("imb_p2p", "pip")
    assert (lost["result"], lost["code"]) == ("error", "case.not-submitted")
    assert "ReqNodeNotAvail, UnavailableNodes:n3" in lost["reason"]
    assert "UnavailableNodes:n3" in done.out
    # Nothing of it waits for the node to come back.
    assert not bed.cluster.jobs()


def test_a_job_is_larger_than_its_partition(bed: Virtual):
    """Slurm takes it, and it would wait for ever."""
    bed.standin("quick")
    done = bed.session("-n", "Barrier.*full-node", "-p", "quick", *QUICK, "-S", "nodes=10")
    assert done.code == 1, done.output
    lost = done.record("imb_collective", "quick")
    assert (lost["result"], lost["code"]) == ("error", "case.not-submitted")
    assert "PartitionConfig" in lost["reason"]
    assert not bed.cluster.jobs()


def test_a_partition_is_down(bed: Virtual):
    """Slurm takes a job, and it would wait until somebody notices."""
    bed.standin("quick")
    bed.cluster.run("scontrol", "update", "PartitionName=cpu", "State=DOWN")
    try:
        done = bed.session("-n", PINGPONG, "-p", "quick", *QUICK)
    finally:
        bed.cluster.run("scontrol", "update", "PartitionName=cpu", "State=UP")
    assert done.code == 1, done.output
    lost = done.record("imb_p2p", "quick")
    assert (lost["result"], lost["code"]) == ("error", "case.not-submitted")
    assert "PartitionDown" in lost["reason"]
    assert not bed.cluster.jobs()


def test_a_reservation_ends_as_a_job_waits(bed: Virtual):
    short = ["ReservationName=short"]
    of_an_hour = ["StartTime=now", "Duration=60", "Users=root", "Nodes=n0"]
    bed.cluster.run("scontrol", "create", "reservation", *short, *of_an_hour)
    bed.standin("quick")
    before = bed.session_folders()
    process = bed.start(
        *(BIN / "plumbline", "run", "--system=virtual", "-n", PINGPONG, "-p", "quick", *QUICK),
        *("-J", "reservation=short", "-J", "begin=now+1hour"),
    )
    virtual.wait_for(lambda: bed.cluster.jobs("pending"))
    bed.cluster.run("scontrol", "update", *short, "EndTime=now+1second")
    done = bed.ended(process, before)
    (lost,) = done.records
    assert (lost["result"], lost["code"]) == ("error", "case.not-submitted"), done.output
    assert "Reservation short was deleted" in lost["reason"]
    assert not bed.cluster.jobs()


#: A variable of srun -> a value by which the tasks would run otherwise, or their output be lost.
HARMFUL = {
    **dict.fromkeys(["SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"], "NONE"),
    **dict.fromkeys(["SLURM_REMOTE_CWD", "SLURM_WORKING_DIR"], "/"),
    **dict.fromkeys(["SLURM_STDOUTMODE", "SLURM_STDERRMODE"], "/dev/null"),
    "SLURM_TASK_PROLOG": "/nowhere",
    "SLURM_MEM_BIND": "nowhere",
}


def test_variables_of_srun_that_the_shell_has(bed: Virtual):
    shell = {name: HARMFUL.get(name, "1") for name in OF_SRUN}
    done = bed.session("-n", PINGPONG, "-p", "lmod", *QUICK, **shell)
    assert (done.code, [fields["result"] for fields in done.records]) == (0, ["pass"]), done.output


#: A plain check that has printed all as a signal ends its job.
SIGNALLED = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class signalled(rfm.RunOnlyRegressionTest):
    valid_systems, valid_prog_environs = ["virtual:cpu"], ["path"]
    executable, executable_opts = "echo", ["done"]
    postrun_cmds = ["kill -TERM $$"]

    @sanity_function
    def printed(self):
        return sn.assert_found("done", self.stdout)
"""


def test_a_signal_ends_a_job_that_has_printed_all(bed: Virtual):
    """Slurm reports 0:15, of which ReFrame takes the 0."""
    checks = bed.folder / "signalled.py"
    checks.write_text(SIGNALLED)
    done = bed.session("-c", checks, "-n", "signalled")
    (fields,) = done.records
    assert (fields["result"], [w["code"] for w in fields["warnings"]]) == (
        "pass", ["output.exit-code"],
    ), done.output  # fmt: skip


def test_a_job_waits_for_too_long(bed: Virtual):
    bed.standin("quick")
    held = ["-J", "#SBATCH --hold", "-S", "max_pending_time=3s"]
    done = bed.session("-n", PINGPONG, "-p", "quick", *QUICK, *held)
    assert done.code == 1, done.output
    lost = done.record("imb_p2p", "quick")
    assert (lost["result"], lost["code"]) == ("error", "case.not-submitted")
    assert "max_pending_time, 3 s" in lost["reason"]


def test_a_node_is_drained(bed: Virtual):
    bed.cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan is broken")
    done = bed.session("--distribute", "-n", "Barrier", "-p", "lmod", *QUICK)
    assert done.code == 0, done.output
    assert sorted(fields["nodes"] for fields in done.records) == [["n0"], ["n1"], ["n3"]]
    assert [note for note in done.end["notes"] if "n2 is IDLE+DRAIN: fan is broken" in note]


def test_the_controller_is_restarted(bed: Virtual):
    bed.standin("later")
    bed.write(max_jobs=1)
    running = Running(bed)
    bed.cluster.stop_controller()
    running.release.touch()
    bed.cluster.start_controller()
    done = running.ended()
    assert done.code == 0, done.output
    assert [fields["result"] for fields in done.records] == ["pass"] * 3


def test_the_accounting_is_lost(running: Running):
    running.bed.cluster.stop_accounting()
    running.release.touch()
    done = running.ended()
    assert done.code == 0, done.output
    assert [fields["result"] for fields in done.records] == ["pass"] * 2
    assert [note for note in done.end["notes"] if "accounting" in note]


def test_a_job_is_cancelled_while_the_accounting_is_lost(running: Running):
    running.bed.cluster.stop_accounting()
    running.bed.cluster.run("scancel", running.job)
    lost_by(running.ended(), "job.cancelled", "CANCELLED", f"jobid={running.job}")


def test_a_module_is_missing(bed: Virtual):
    bed.standin("quick")
    bed.standin("held")
    bed.environments[-1]["modules"] = ["gone/1.0"]
    bed.write()
    done = bed.session("-n", PINGPONG, "-p", "quick|held", *QUICK)
    lost_by(done, "build.modules-not-loaded", "gone/1.0", "unknown")


def test_the_wrong_pmi_starts_single_ranks(bed: Virtual):
    bed.standin("quick")
    alone = {"name": "alone", "features": ["imb"], "extras": {"provider": "pip"}}
    no_pmi = {"env_vars": [["SLURM_MPI_TYPE", "none"]], "target_systems": ["virtual"]}
    bed.environments.append(alone | no_pmi)
    bed.write()
    done = bed.session("-n", PINGPONG, "-p", "quick|alone", *QUICK)
    assert done.code == 1, done.output
    assert done.record("imb_p2p", "quick")["result"] == "pass"
    found = done.record("imb_p2p", "alone")
    assert (found["result"], found["code"]) == ("invalid", "output.task-count")
    assert found["foms"] == [] and OTHER_MPI in found["reason"]


def test_scratch_fills_up(bed: Virtual):
    """Between set-up, where there was room, and the job."""
    scratch = bed.disk("64M")
    bed.standin("quick")
    held = ["-n", f"{PINGPONG}|fio.*write", "-p", "quick|path", *QUICK]
    before = bed.session_folders()
    process = bed.start(
        *(BIN / "plumbline", "run", "--system=virtual", *held, "-J", "#SBATCH --hold"),
        PLUMBLINE_SCRATCH=scratch,
    )
    virtual.wait_for(lambda: len(bed.cluster.jobs("pending")) == 2)
    bed.cluster.fill(scratch)
    for job in bed.cluster.jobs("pending"):
        bed.cluster.run("scontrol", "release", job)
    done = bed.ended(process, before)
    assert done.code == 1, done.output
    assert done.record("imb_p2p", "quick")["result"] == "pass"
    full = done.record("fio", "path")
    assert full["result"] == "invalid" and os.strerror(errno.ENOSPC) in full["reason"]


def test_the_record_disk_fills_up(bed: Virtual):
    results = bed.disk("8M")
    bed.results = bed.cluster.seen(results)
    # As FILLING of halfway.py.
    full = [f"--session-extras=note={'x' * 16384}", "--keep-stage-files"]
    running = Running(bed, *full, PLUMBLINE_RESULTS=results)
    bed.cluster.fill(results)
    running.release.touch()
    done = running.ended()
    assert [fields["environment"] for fields in done.records] == ["quick"]
    (lost,) = lost_records(done)
    # What the job itself wrote may have found no room either.
    assert lost["environment"] == "held" and lost["result"] in ("pass", "invalid", "error")
    assert done.code == (2 if lost["result"] == "pass" else 1), done.output
    assert os.strerror(errno.ENOSPC) in done.out


def lost_records(done: Done) -> list[dict]:
    """The records that standard output got instead of the disk."""
    lines = re.findall(r"^plumbline-record (.*)$", done.out, re.M)
    return [valid(json.loads(line)) for line in lines]


def test_reframe_is_killed(running: Running):
    os.killpg(running.process.pid, signal.SIGKILL)
    done = running.ended()
    assert [(f["environment"], f["result"]) for f in done.records] == [("quick", "pass")]
    doctor = running.bed.plumbline("doctor", "--system=virtual", "--format=json")
    (cut_off,) = json.loads(doctor.out)["cut off"]
    assert done.session.name in cut_off and "1 of 2" in cut_off
    later = running.bed.session("-n", PINGPONG, "-p", "quick", *QUICK)
    assert later.code == 0, later.output
    # What ended before is as it was; what did not is recorded as such by the later session.
    first, second = records_of(done.session)
    assert (first["environment"], first["result"]) == ("quick", "pass")
    assert second["result"] == "unfinished"


def test_two_sessions_at_once(running: Running):
    """What measures on Slurm's nodes may run beside another."""
    (first_folder,) = running.bed.session_folders() - running.before
    second = running.bed.session("-n", PINGPONG, "-p", "quick", *QUICK)
    assert second.code == 0, second.output
    running.release.touch()
    first = running.ended()
    assert first.code == 0, first.output
    # Each has its own, and ended() saw both folders.
    assert sorted(f["environment"] for f in records_of(first_folder)) == ["held", "quick"]
    assert [f["environment"] for f in second.records] == ["quick"]


#: The clock of a Python process, with the seconds of a file on top; its monotonic clock is as ever.
CLOCK = """\
import os, time
real = time.time
time.time = lambda: real() + float(open(os.environ["CLOCK"]).read())
for name in ("localtime", "gmtime"):
    of_time = getattr(time, name)
    setattr(time, name, lambda at=None, f=of_time: f(time.time() if at is None else at))
to_text = time.strftime
time.strftime = lambda form, at=None: to_text(form, time.localtime() if at is None else at)
"""

#: What the login node's clock has too much, in hours: at first, and while a job runs.
CLOCKS = {"jumps-back": (0, -3), "jumps-ahead": (0, 48), "is-ahead": (48, 48)}


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_clock(bed: Virtual, clock: str):
    first, then = CLOCKS[clock]
    (bed.folder / "sitecustomize.py").write_text(CLOCK)
    ahead = bed.folder / "clock"
    ahead.write_text(str(first * 3600))
    running = Running(bed, CLOCK=ahead, PYTHONPATH=bed.folder)
    # At once: a process that reads the clock now finds one or the other.
    (bed.folder / "then").write_text(str(then * 3600))
    (bed.folder / "then").replace(ahead)
    running.release.touch()
    try:
        done = running.ended()
    finally:
        running.stop()
    if first:
        # Files of two days ago would look alike.
        assert done.code == 1, done.output
        found = [(fields["result"], fields["code"]) for fields in done.records]
        assert found == [("invalid", "output.other-job")] * 2
        return
    assert done.code == 0, done.output
    assert [fields["result"] for fields in done.records] == ["pass"] * 2


def test_two_sets_of_nodes_take_turns_in_one_job(bed: Virtual):
    done = bed.plumbline(
        *("compare", "--duet", "lmod:n[0-1]", "lmod:n[2-3]", "-n", "imb_p2p.*PingPong.*off-node"),
        *("--system=virtual", "--repeat=1", "--samples=2", "--", "-S", "num_warmups=0"),
    )
    # One job is too little data.
    assert done.code == 2, done.output
    nodes = {fields["extras"]["duet"]: fields["nodes"] for fields in done.records}
    assert nodes == {"a": ["n0", "n1"], "b": ["n2", "n3"]}, done.output
    assert {fields["result"] for fields in done.records} == {"pass"}
    assert len({fields["jobid"] for fields in done.records}) == 1


def test_a_side_with_the_wrong_number_of_nodes_is_not_measured(bed: Virtual):
    done = bed.plumbline(
        *("compare", "--duet", "lmod:n[0-1]", "lmod:n2", "-n", "imb_p2p.*PingPong.*off-node"),
        *("--system=virtual", "--repeat=1", "--samples=2"),
    )
    assert done.code == 2, done.output
    assert [fields["code"] for fields in done.records] == ["duet.not-possible"] * 2, done.output
