"""Which system a host is: named, by the host's name, or not at all; never `local` by default where
something shows that the host belongs to a larger system."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import foreign
import pytest
import yaml
from conftest import BIN, CHECKS, ROOT, Done, Testbed
from plumbline.core.errors import Fault
from plumbline.site import host
from records import records_of

FIO = ["-n", "fio", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]
#: Names of login nodes: whose they are is known by them.
FULL = {
    "login5.summit.olcf.ornl.gov": "summit",
    "login5.summit": "summit",
    "login05.frontier.olcf.ornl.gov": "frontier",
    "login12.chn.perlmutter.nersc.gov": "perlmutter",
    "peak-login1": "peak",
    "polaris-login-01": "polaris",
    "thetalogin4": "theta",
    "tioga11": "tioga",
    "lassen708": "lassen",
    "el3": "eagle",
    "some-laptop": "local",
}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A host without any scheduler's command, and without what a site's login shell sets."""
    for variable in [*os.environ]:
        if variable.startswith(("RFM_", "PLUMBLINE_")) or variable in host._signs()["variables"]:
            monkeypatch.delenv(variable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setattr("sys.argv", ["/somewhere/reframe", "-c", "checks/", "-r"])
    monkeypatch.setattr(socket, "gethostname", lambda: "some-laptop")
    return monkeypatch


def command(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def choices(*words: str) -> list[str]:
    """The systems of the command lines that the refusal gives, in their order.

    :arg words: in its first line, in this order.
    """
    with pytest.raises(Fault) as refusal:
        host.current_system(None)
    assert refusal.value.code == "system.uncertain"
    message = str(refusal.value)
    assert re.match(".*".join(["", *map(re.escape, words)]), message), message
    return re.findall(r"^  reframe -c checks/ -r --system=(\S+)", message, re.M)


@pytest.mark.parametrize(("name", "system"), FULL.items())
def test_a_name_that_one_system_has_is_believed(bare, name: str, system: str):
    bare.setattr(socket, "gethostname", lambda: name)
    assert host.current_system(None) == system


def test_a_name_that_several_systems_have_gives_the_choices(bare):
    bare.setattr(socket, "gethostname", lambda: "login5")
    assert choices("login5") == ["frontier", "peak", "perlmutter", "summit", "local"]
    bare.setenv("LMOD_SYSTEM_NAME", "summit")
    assert choices() == ["summit", "frontier", "peak", "perlmutter", "local"]
    assert host.current_system("local") == "local" and host.current_system("summit") == "summit"
    bare.setenv("RFM_SYSTEM", "summit:batch")
    assert host.current_system(None) == "summit"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LMOD_SYSTEM_NAME", "summit"),
        ("NERSC_HOST", "perlmutter"),
        ("LCSCHEDCLUSTER", "tioga"),
        ("NREL_CLUSTER", "eagle"),
        ("SNLCLUSTER", "manzano"),
        ("SLURM_CLUSTER_NAME", "frontier"),
    ],
)
def test_what_the_site_calls_its_system_is_a_choice(bare, variable: str, value: str):
    bare.setenv(variable, "of-another-site")
    assert host.current_system(None) == "local"
    bare.setenv(variable, value)
    assert choices(variable, value) == [value, "local"]


def test_the_cluster_of_slurms_settings_is_a_choice(bare, tmp_path: Path):
    (tmp_path / "slurm.conf").write_text("#ClusterName=eagle\nclustername = Perlmutter # ours\n")
    assert choices("slurm.conf", "perlmutter") == ["perlmutter", "local"]


SCHEDULERS = {"sinfo": "", "bhosts": "", "jslist": "", "qstat": "-B", "flux": "getattr size"}


@pytest.mark.parametrize(("name", "words"), SCHEDULERS.items())
def test_a_host_on_which_a_scheduler_answers_is_not_local_by_default(
    bare, tmp_path: Path, name: str, words: str
):
    command(tmp_path, name, f'case "$*" in "{words}"*) exit 0;; esac; exit 2')
    assert choices(f"`{name}") == ["NAME", "local"]
    # Within a job too: where its shell is, is not known.
    bare.setenv("SLURM_JOB_ID", "17")
    assert choices(f"`{name}") == ["NAME", "local"]
    assert host.current_system("local") == "local"


def test_a_scheduler_that_is_not_there_changes_nothing(bare, tmp_path: Path):
    for name in SCHEDULERS:
        command(tmp_path, name, "exit 1")
    assert host.current_system(None) == "local"


def test_a_scheduler_that_hangs_is_not_waited_for(bare, tmp_path: Path):
    bare.setattr(host, "PATIENCE", 0.2)
    command(tmp_path, "sinfo", f"exec {shutil.which('sleep', path=os.defpath)} 600")
    assert choices("`sinfo", " 0.2 s") == ["NAME", "local"]


def test_a_sites_own_detection_is_believed_but_for_local(bare):
    hostnames = host.patterns()
    bare.setattr(socket, "gethostname", lambda: "login5")
    bare.setenv("RFM_AUTODETECT_METHODS", "cat /etc/xthostname")
    host.check("frontier", hostnames)
    bare.setenv("LMOD_SYSTEM_NAME", "summit")
    with pytest.raises(Fault) as refusal:
        host.check("local", hostnames)
    assert refusal.value.code == "system.uncertain"


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        ("-r --system=summit", {}, True),
        ("-r --system summit -n fio", {}, True),
        ("--sys=local -r", {}, True),
        ("-r", {"RFM_SYSTEM": "summit"}, True),
        ("-r -n system --setvar=system=1", {}, False),
        ("-r", {"RFM_SYSTEM": ""}, False),
    ],
)
def test_which_command_lines_name_the_system(bare, arguments: str, variables: dict, named: bool):
    for name, value in variables.items():
        bare.setenv(name, value)
    assert bool(host.named_system(arguments.split())) is named


PARTITION = "{name: node, scheduler: local, launcher: local}"
PATTERN = f"systems: [{{name: odd, hostnames: ['['], partitions: [{PARTITION}]}}]"


@pytest.mark.parametrize("content", ["systems: [{name: odd}]", PATTERN])
def test_a_faulty_system_file_is_named(bare, tmp_path: Path, content: str):
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "odd.yaml").write_text(content)
    bare.setenv("PLUMBLINE_SITE", str(tmp_path))
    with pytest.raises(Fault, match=r"odd\.yaml: .*hostnames") as refusal:
        host.current_system(None)
    assert refusal.value.code == "system.wrong-file"


def stopped(done: Done) -> None:
    """Stopped with the choices, and nothing was measured."""
    assert (done.code, done.codes) == (2, ["system.uncertain"]), done.output
    assert "Traceback" not in done.output
    assert all(line.startswith("plumbline: ") for line in done.err.strip().splitlines()), done.err
    assert re.search(r"^plumbline: +\S+ .*--system=local", done.err, re.M), done.err
    assert done.sessions == []


def test_the_commands_stop_on_a_login_node_and_those_that_only_look_do_not(make_testbed):
    """`local` on a host with a scheduler: what measures stops, unless it was asked for."""
    testbed: Testbed = make_testbed("local")
    testbed.environment("disk", "fio")
    commands = testbed.folder / "commands"
    commands.mkdir()
    command(commands, "sinfo", "exit 0")
    testbed.env["PATH"] = f"{commands}:{testbed.env['PATH']}"
    plain = ["-c", CHECKS, *FIO]
    stopped(testbed.reframe(*plain, "-r"))
    stopped(testbed.asked("run", *FIO))
    stopped(testbed.asked("nightly", "--mode=smoke", *FIO))
    stopped(testbed.asked("sweep", "node"))
    stopped(testbed.asked("lint", "--accept"))
    for done in (
        testbed.reframe(*plain, "-r", RFM_SYSTEM="local"),
        testbed.plumbline("run", *FIO, "--system=local"),
    ):
        assert done.code == 0 and {f["system"] for f in done.records} == {"local"}, done.output
        notes = json.loads((done.session / "end.json").read_text())["notes"]
        assert not any(f"host name {socket.gethostname()} " in note for note in notes)
    for option in ("-l", "--dry-run"):
        looked = testbed.reframe(*plain, option)
        assert looked.code == 0 and "fio" in looked.out, looked.output
    doctor = json.loads(testbed.asked("doctor", "--format=json").out)
    assert "--system=local" in "".join(doctor["uncertain"])
    assert any(case["runs"] for case in doctor["cases"])
    lint = testbed.asked("lint")
    assert "--system=local" in lint.out
    assert not (testbed.systems / "inventory").exists()


@pytest.fixture
def login5(tmp_path: Path) -> list[str]:
    """Words before a command that give it the host name login5."""
    # bash passes on the function `module`, which other shells drop from the environment.
    words = ["unshare", "--uts", "bash", "-c", 'hostname login5 && exec "$@"', "bash"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no UTS namespace of its own here")
    return words


@pytest.mark.parametrize(
    "words",
    [
        ["reframe", "-c", CHECKS, "-r", "-n", "hpcc"],
        ["plumbline", "run", "-n", "hpcc"],
        [ROOT / "ci" / "nightly"],
    ],
)
def test_nothing_is_measured_unasked_on_login5(login5, tmp_path: Path, words: list):
    """With the system files as they are shipped."""
    (tmp_path / "home").mkdir()
    env = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "PLUMBLINE_RESULTS": str(tmp_path / "results"),
        "RFM_CONFIG_FILES": str(ROOT / "reframe" / "settings.py"),
    }
    done = subprocess.run(
        [*login5, *map(str, words)], env=env, capture_output=True, text=True, check=False
    )
    found = Done(done.returncode, done.stdout, done.stderr)
    stopped(found)
    assert "--system=summit" in found.err
    assert not [*tmp_path.glob("results/sessions/*")]


def test_a_system_that_is_named_is_measured_from_login5(login5, tmp_path: Path):
    """A night on the simulated Summit; a note reports what the host name did not confirm."""
    for system in ("frontier", "summit"):
        foreign.prepare(system, tmp_path)
        path = tmp_path / "systems" / f"{system}.yaml"
        content = yaml.safe_load(path.read_text())
        shipped = yaml.safe_load((ROOT / "systems" / path.name).read_text())
        content["systems"][0]["hostnames"] = shipped["systems"][0]["hostnames"]
        path.write_text(yaml.safe_dump(content, sort_keys=False))
    one = ["-n", "osu_p2p.*=latency%.*on-node", "-S", "num_samples=1", "-S", "num_warmups=0"]
    done = subprocess.run(
        [*login5, ROOT / "ci" / "nightly", "--no-strict", "--system", "summit", *one],
        env=foreign.variables("summit", tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    (folder,) = tmp_path.glob("results/sessions/*")
    notes = json.loads((folder / "end.json").read_text())["notes"]
    (note,) = [note for note in notes if "login5" in note]
    assert "frontier" in note
    results = {fields["result"] for fields in records_of(folder)}
    assert results == {"pass"}, done.stdout + done.stderr
