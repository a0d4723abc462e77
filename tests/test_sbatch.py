"""The job scripts of the Slurm systems, before a real controller: ``sbatch --test-only`` and
``srun --test-only`` show whether Slurm would take them.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from dry_runs import DryRun

HERE = Path(__file__).parent

#: Debian keeps daemons where a user's PATH does not look.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
COMMANDS = ("slurmctld", "munged", "sbatch", "srun", "sinfo", "setpriv")
MISSING = [name for name in COMMANDS if not shutil.which(name, path=PATH)]

#: Longest that the controller may take to come up.
PATIENCE = 600


def _on_slurm(system: str) -> bool:
    text = (HERE.parent / "systems" / f"{system}.yaml").read_text(encoding="utf-8")
    return bool(re.search(r"^ +scheduler: slurm$", text, flags=re.M))


#: Systems with Slurm in their file, that are expected to have cases.
SYSTEMS = [
    path.stem
    for path in sorted((HERE.parent / "systems" / "inventory").glob("*.json"))
    if _on_slurm(path.stem)
]


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


def of_system(system: str, most_nodes: int) -> str:
    """Nodes and partitions of Slurm by a system's file: as many nodes as the largest script asks
    for, all alike. ``State=CLOUD``: a node that is off, and counts as one that a job may have."""
    content = yaml.safe_load((HERE.parent / "systems" / f"{system}.yaml").read_text())
    lines = []
    for number, declared in enumerate(content["systems"][0]["partitions"]):
        options = [*declared["access"]]
        for resource in declared.get("resources", []):
            options += resource["options"]
        asked = dict(option.split("=", 1) for option in options if "=" in option)
        features = [
            name
            for option in options
            if option.startswith("--constraint=")
            for name in re.split("[&,]", option.partition("=")[2])
        ]
        processor = declared["processor"]
        threads = processor["num_cpus_per_core"]
        node = {
            "NodeName": f"{declared['name']}[1-{most_nodes}]",
            "CPUs": processor["num_cpus"],
            "Sockets": processor["num_sockets"],
            "CoresPerSocket": processor["num_cpus_per_socket"] // threads,
            "ThreadsPerCore": threads,
            "State": "CLOUD",
        }
        if features:
            node["Feature"] = ",".join(features)
        gpus = [d["num_devices"] for d in declared.get("devices", []) if d["type"] == "gpu"]
        if gpus:
            node["Gres"] = f"gpu:{sum(gpus)}"
        partition = {
            "PartitionName": asked.get("--partition", declared["name"]),
            "Nodes": node["NodeName"],
            "Default": "NO" if number else "YES",
        }
        lines += [
            " ".join(f"{key}={value}" for key, value in entry.items())
            for entry in (node, partition)
        ]
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Cluster:
    """A controller that listens, of one system, and that system's scripts by case."""

    system: str
    configuration: Path
    scripts: dict[str, str]

    def refused(self, *command: str, script: str | None = None) -> str:
        """What the command prints if it does not accept all of its input, be it an error or
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
    with log.open("w") as output:
        daemon = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
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
def controller(system: str, nodes: str, scripts: dict[str, str] | None = None) -> Iterator[Cluster]:
    """A controller in a folder of its own, with its own port and its own munge.

    :arg nodes: lines of its configuration on nodes and partitions.
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
        configuration.write_text(general + nodes)
        munged = stack.enter_context(
            _running(
                *(folder / "munged.out", "munged", "--foreground", "--force"),
                *(f"--key-file={key}", f"--socket={folder}/munge.socket"),
                *(f"--seed-file={folder}/munge.seed", f"--pid-file={folder}/munge.pid"),
                f"--log-file={folder}/munge.log",
            )
        )
        _wait(munged, folder, (folder / "munge.socket").exists)
        slurmctld = stack.enter_context(
            _running(folder / "slurmctld.out", "slurmctld", "-D", "-i", "-f", str(configuration))
        )
        cluster = Cluster(system, configuration, scripts or {})
        _wait(slurmctld, folder, lambda: cluster.run("sinfo").returncode == 0)
        yield cluster


def _wait(daemon: subprocess.Popen, folder: Path, ready) -> None:
    began = time.monotonic()
    while not ready():
        if daemon.poll() is not None or time.monotonic() - began > PATIENCE:
            output = "\n".join(path.read_text() for path in sorted(folder.glob("*.out")))
            pytest.fail(f"{daemon.args} did not come up:\n{output}")
        time.sleep(0.05)


@pytest.fixture(scope="module", params=SYSTEMS)
def cluster(request, dry_run: Callable[[str], DryRun]) -> Iterator[Cluster]:
    if MISSING:
        pytest.skip(f"not installed: {', '.join(MISSING)} (apt-get install slurmctld munge)")
    scripts = {script.case: script.text for script in dry_run(request.param).scripts}
    asked = re.findall(r"^#SBATCH --nodes=(\d+)$", "".join(scripts.values()), flags=re.M)
    nodes = of_system(request.param, max(map(int, asked)))
    with controller(request.param, nodes, scripts) as found:
        yield found


# -- what is checked -------------------------------------------------------------------------------


def test_every_system_on_slurm_is_here(dry_run: Callable[[str], DryRun]):
    """A system without an inventory has no cases."""
    for path in sorted((HERE.parent / "systems").glob("*.yaml")):
        if path.stem != "local" and _on_slurm(path.stem):
            assert bool(dry_run(path.stem).scripts) == (path.stem in SYSTEMS)


def test_sbatch_takes_every_script(cluster: Cluster):
    """What sbatch reads of a script is its directives; once for those that are alike."""
    alike = {
        re.sub(r"--job-name=.*", "", "".join(re.findall(r"^#.*\n", script, flags=re.M))): case
        for case, script in cluster.scripts.items()
    }
    answers = {
        case: cluster.refused("sbatch", "--test-only", script=cluster.scripts[case])
        for case in alike.values()
    }
    assert answers
    assert not {case: answer for case, answer in answers.items() if answer}


def test_srun_takes_the_options_of_every_step(cluster: Cluster):
    answers = {}
    for case, script in cluster.scripts.items():
        # Steps of pairs: two of the nodes that of_system() made.
        partition = case.split("/")[1]
        script = script.replace("$first,$second", f"{partition}1,{partition}2")
        for options in steps(script):
            if (line := shlex.join(options)) not in answers:
                answers[line] = cluster.refused("srun", "--test-only", *options, "true")
    assert answers or not any("srun " in script for script in cluster.scripts.values())
    assert not {line: answer for line, answer in answers.items() if answer}


_CONSTRAINT = re.compile(r"^#SBATCH --constraint=.*$", re.M)

#: A directive that does not fit -> Slurm's message.
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
    script = next(iter(cluster.scripts.values()))
    last = "#SBATCH --exclusive\n"
    wrong = script.replace(last, last + f"#SBATCH {directive}\n")
    assert wrong != script
    assert re.search(WRONG[directive], cluster.refused("sbatch", "--test-only", script=wrong))


@pytest.mark.parametrize("cluster", ["frontier", "perlmutter", "trinity"], indirect=True)
def test_sbatch_wants_each_feature_of_a_constraint(cluster: Cluster):
    """One that no node has, among others that they have: the list is no choice."""
    script = next(text for text in cluster.scripts.values() if _CONSTRAINT.search(text))
    asked = _CONSTRAINT.search(script)[0]
    for sign in "&,":
        wrong = script.replace(asked, f"{asked}{sign}elsewhere")
        assert "Invalid feature" in cluster.refused("sbatch", "--test-only", script=wrong)


#: An option of a step that does not fit -> Slurm's message.
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
