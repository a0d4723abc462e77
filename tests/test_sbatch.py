"""The job scripts of the Slurm systems, before a real controller: ``sbatch --test-only`` and
``srun --test-only`` say whether Slurm would take them.

A controller (slurmctld) knows nodes without any being there: no slurmd runs, and nothing starts.
Its nodes, partitions, features and GPUs are those that the system's file speaks of. Accounts and
qualities of service are taken as they come: only an accounting database could refuse them.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent

#: Debian keeps daemons where a user's PATH does not look.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
COMMANDS = ("slurmctld", "munged", "sbatch", "srun", "sinfo", "setpriv")
MISSING = [name for name in COMMANDS if not shutil.which(name, path=PATH)]

#: Longest that the controller may take to come up.
PATIENCE = 60


def _golden(system: str) -> str:
    return (HERE / "golden" / f"{system}.txt").read_text(encoding="utf-8")


#: Systems whose file says Slurm, and that have scripts.
SYSTEMS = [
    path.stem
    for path in sorted((HERE.parent / "systems").glob("*.yaml"))
    if re.search(r"^ +scheduler: slurm$", path.read_text(encoding="utf-8"), flags=re.M)
    and (HERE / "golden" / f"{path.stem}.txt").exists()
    and "#SBATCH" in _golden(path.stem)
]


def scripts(system: str) -> dict[str, str]:
    """The job scripts of a system's golden file: ``system/partition/environment/case`` -> text."""
    found = re.findall(
        rf"^### ({re.escape(system)}/\S+)\n(.*?)(?=^### |^--- |\Z)", _golden(system), re.M | re.S
    )
    return dict(found)


def steps(script: str) -> list[list[str]]:
    """The options of each ``srun`` of a script."""
    found = re.findall(r"\bsrun ((?:(?!\./task\.sh).)*)\./task\.sh", script)
    found = [options for options in found if "${binding[@]}" not in options]
    if re.search(r"\bsrun ", script):
        found += re.findall(r"\bbinding=\((.*?)\) words=", script)
    return [shlex.split(options) for options in found]


# -- a controller --------------------------------------------------------------------------------

CONFIGURATION = """\
ClusterName=golden
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
GresTypes=gpu
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=INFINITE
"""


def of_system(system: str) -> str:
    """Nodes and partitions of Slurm by a system's file: as many nodes as the largest script asks
    for, all alike. ``State=CLOUD``: a node that is off, and counts as one that a job may have."""
    content = yaml.safe_load((HERE.parent / "systems" / f"{system}.yaml").read_text())
    lines = []
    for number, told in enumerate(content["systems"][0]["partitions"]):
        options = [*told["access"]]
        for resource in told.get("resources", []):
            options += resource["options"]
        asked = dict(option.split("=", 1) for option in options if "=" in option)
        features = [
            name
            for option in options
            if option.startswith("--constraint=")
            for name in re.split("[&,]", option.partition("=")[2])
        ]
        processor = told["processor"]
        threads = processor["num_cpus_per_core"]
        node = {
            "NodeName": f"{told['name']}[1-{_most_nodes(system)}]",
            "CPUs": processor["num_cpus"],
            "Sockets": processor["num_sockets"],
            "CoresPerSocket": processor["num_cpus_per_socket"] // threads,
            "ThreadsPerCore": threads,
            "State": "CLOUD",
        }
        if features:
            node["Feature"] = ",".join(features)
        gpus = [d["num_devices"] for d in told.get("devices", []) if d["type"] == "gpu"]
        if gpus:
            node["Gres"] = f"gpu:{sum(gpus)}"
        partition = {
            "PartitionName": asked.get("--partition", told["name"]),
            "Nodes": node["NodeName"],
            "Default": "NO" if number else "YES",
        }
        lines += [
            " ".join(f"{key}={value}" for key, value in entry.items())
            for entry in (node, partition)
        ]
    return "".join(f"{line}\n" for line in lines)


def _most_nodes(system: str) -> int:
    return max(map(int, re.findall(r"^#SBATCH --nodes=(\d+)$", _golden(system), flags=re.M)))


@dataclass(frozen=True)
class Cluster:
    """A controller that listens, of one system."""

    system: str
    configuration: Path

    def refused(self, *command: str, script: str | None = None) -> str:
        """What the command answers where it does not take all that it was told, be it an error or
        a warning; empty where it does.

        :arg script: to read from standard input.
        """
        done = self.run(*command, script=script)
        if done.returncode:
            return done.stderr.strip() or f"exit code {done.returncode}"
        started = r"^s(batch|run): Job \d+ to start at .*\n"
        assert re.search(started, done.stderr, flags=re.M), done
        return re.sub(started, "", done.stderr, flags=re.M).strip()

    def run(self, *command: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
        # Slurm's variables override the options of a script.
        env = {key: value for key, value in os.environ.items() if not _of_slurm(key)}
        return subprocess.run(
            command,
            input=script,
            env=env | {"SLURM_CONF": str(self.configuration), "PATH": PATH},
            cwd=self.configuration.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )


def _of_slurm(variable: str) -> bool:
    return variable.startswith(("SLURM_", "SBATCH_", "SRUN_", "SALLOC_"))


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("", 0))
        return taken.getsockname()[1]


@contextlib.contextmanager
def _running(log: Path, *command: str) -> Iterator[subprocess.Popen]:
    """A daemon that ends with this block, and with this process however that ends."""
    with log.open("w") as said:
        daemon = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=os.environ | {"PATH": PATH},
        )
    try:
        yield daemon
    finally:
        daemon.terminate()
        try:
            daemon.wait(timeout=10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


@contextlib.contextmanager
def controller(system: str, nodes: str | None = None) -> Iterator[Cluster]:
    """A controller in a folder of its own, with its own port and its own munge.

    :arg nodes: lines of its configuration on nodes and partitions; by the system's file if not
        given.
    """
    with contextlib.ExitStack() as stack:
        # A socket's path has 107 characters at most: too few for a test's own folder.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm")))
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        configuration = folder / "slurm.conf"
        general = CONFIGURATION.format(port=_free_port(), user=getpass.getuser(), folder=folder)
        configuration.write_text(general + (nodes or of_system(system)))
        munged = stack.enter_context(
            _running(
                *(folder / "munged.said", "munged", "--foreground", "--force"),
                *(f"--key-file={key}", f"--socket={folder}/munge.socket"),
                *(f"--seed-file={folder}/munge.seed", f"--pid-file={folder}/munge.pid"),
                f"--log-file={folder}/munge.log",
            )
        )
        _wait(munged, folder, (folder / "munge.socket").exists)
        slurmctld = stack.enter_context(
            _running(folder / "slurmctld.said", "slurmctld", "-D", "-i", "-f", str(configuration))
        )
        cluster = Cluster(system, configuration)
        _wait(slurmctld, folder, lambda: cluster.run("sinfo").returncode == 0)
        yield cluster


def _wait(daemon: subprocess.Popen, folder: Path, ready) -> None:
    began = time.monotonic()
    while not ready():
        if daemon.poll() is not None or time.monotonic() - began > PATIENCE:
            said = "\n".join(path.read_text() for path in sorted(folder.glob("*.said")))
            pytest.fail(f"{daemon.args} did not come up:\n{said}")
        time.sleep(0.05)


@pytest.fixture(scope="module", params=SYSTEMS)
def cluster(request) -> Iterator[Cluster]:
    if MISSING:
        pytest.skip(f"not installed: {', '.join(MISSING)} (apt-get install slurmctld munge)")
    with controller(request.param) as found:
        yield found


# -- what is held --------------------------------------------------------------------------------


def test_every_system_on_slurm_is_here():
    """A golden file with Slurm's directives is of a system that is looked at."""
    with_directives = {
        path.stem for path in (HERE / "golden").glob("*.txt") if "#SBATCH" in path.read_text()
    }
    assert with_directives == set(SYSTEMS)
    for system in SYSTEMS:
        assert len(scripts(system)) == _golden(system).count(f"### {system}/")


def test_sbatch_takes_every_script(cluster: Cluster):
    answers = {
        case: cluster.refused("sbatch", "--test-only", script=script)
        for case, script in scripts(cluster.system).items()
    }
    assert answers
    assert not {case: answer for case, answer in answers.items() if answer}


def test_srun_takes_the_options_of_every_step(cluster: Cluster):
    answers = {}
    for case, script in scripts(cluster.system).items():
        # Steps of pairs: two of the nodes that of_system() made.
        partition = case.split("/")[1]
        script = script.replace("$first,$second", f"{partition}1,{partition}2")
        for options in steps(script):
            if (line := shlex.join(options)) not in answers:
                answers[line] = cluster.refused("srun", "--test-only", *options, "true")
    assert answers or "srun " not in _golden(cluster.system)
    assert not {line: answer for line, answer in answers.items() if answer}


_CONSTRAINT = re.compile(r"^#SBATCH --constraint=.*$", re.M)
WITH_CONSTRAINT = [system for system in SYSTEMS if _CONSTRAINT.search(_golden(system))]

#: A directive that does not fit -> what Slurm says of it.
WRONG = {
    "--no-such-option": "unrecognized option '--no-such-option'",
    "--partition=elsewhere": "invalid partition specified: elsewhere",
    "--constraint=elsewhere": "Invalid feature specification",
    "--nodes=1000 --ntasks=1000": "node configuration is not available",
    "--ntasks-per-node=1000": "node configuration is not available",
    "--gpus-per-node=9": "(Requested node configuration is not available|Invalid generic resource)",
    "--time=soon": "Invalid --time specification",
}


@pytest.mark.parametrize("directive", WRONG)
def test_sbatch_refuses_a_wrong_directive(cluster: Cluster, directive: str):
    """The same script, with one directive more: what comes last holds."""
    script = next(iter(scripts(cluster.system).values()))
    last = "#SBATCH --exclusive\n"
    wrong = script.replace(last, last + f"#SBATCH {directive}\n")
    assert wrong != script
    assert re.search(WRONG[directive], cluster.refused("sbatch", "--test-only", script=wrong))


@pytest.mark.parametrize("cluster", WITH_CONSTRAINT, indirect=True)
def test_sbatch_wants_each_feature_of_a_constraint(cluster: Cluster):
    """One that no node has, among others that they have: the list is no choice."""
    script = next(text for text in scripts(cluster.system).values() if _CONSTRAINT.search(text))
    asked = _CONSTRAINT.search(script)[0]
    for sign in "&,":
        wrong = script.replace(asked, f"{asked}{sign}elsewhere")
        assert "Invalid feature" in cluster.refused("sbatch", "--test-only", script=wrong)


#: An option of a step that does not fit -> what Slurm says of it.
WRONG_STEP = {
    "--cpu-bind=masks:0x1": "unrecognized --cpu-bind argument",
    "--gpu-bind=mapgpu:0": "Invalid --gpu-bind argument",
    "--distribution=blocks": "Invalid --distribution specification",
    "--gpus-per-node=9": "(Requested node configuration is not available|Invalid generic resource)",
    "--no-such-option": "unrecognized option '--no-such-option'",
}


@pytest.mark.parametrize("option", WRONG_STEP)
def test_srun_refuses_a_wrong_option(cluster: Cluster, option: str):
    answer = cluster.refused("srun", "--test-only", "--nodes=1", "--ntasks=1", option, "true")
    assert re.search(WRONG_STEP[option], answer)
