"""docs/two-sites.md, followed literally at the simulated facility: from a checkout to the first
plan of all six benchmarks. Only Spack has a stand-in, which solves whatever it is given."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import facility
import pytest
import yaml
from conftest import ROOT, STANDINS, Testbed
from examples import prints
from spack_site import CAPTURES, LOCK, PINS, hashed

PAGE = ROOT / "docs" / "two-sites.md"

#: The benchmarks of the papers, as checks' names begin.
SIX = ("osu", "babelstream", "ior", "mdtest", "commscope", "gpcnet")


def story(site: str) -> tuple[list[str], list[str]]:
    """Return the commands of a site's section, and the lines that are edited by hand."""
    section = re.search(rf"^## {site}:.*?(?=^## )", PAGE.read_text(), re.M | re.S)
    assert section
    (commands,) = re.findall(r"^```\n(.*?)^```", section[0], re.M | re.S)
    (edited,) = re.findall(r"^```yaml\n(.*?)^```", section[0], re.M | re.S)
    return commands.splitlines(), edited.splitlines()


def edit(path: Path, lines: list[str]) -> None:
    """Replace the lines with the same key, and insert those that are indented more below it."""
    text = path.read_text()
    for line in lines:
        key = line.partition(":")[0]
        if line.endswith(":"):
            above = line
        elif re.search(rf"^{key}:", text, re.M):
            text = re.sub(rf"^{key}:.*(\n{key[:4]}  .*)*", line, text, count=1, flags=re.M)
        else:
            text = text.replace(f"{above}\n", f"{above}\n{line}\n", 1)
    path.write_text(text)


@pytest.fixture
def login_node(make_testbed: Callable[..., Testbed], request: pytest.FixtureRequest) -> Testbed:
    """A login node of a site: the commands of its batch system, and no benchmark."""
    site = request.param
    testbed = make_testbed(site)
    state = testbed.folder / "state"
    testbed.env.pop("SCRATCH", None)
    found = facility.environment(site, state, base=testbed.env)
    commands = testbed.folder / "bin"
    commands.mkdir()
    for name in ("sinfo", "scontrol", "srun", "sbatch", "squeue", "qsub", "qstat", "pbsnodes",
                 "nvidia-smi"):  # fmt: skip
        (commands / name).symlink_to(facility.BIN / name)
    testbed.env |= found | {"PATH": f"{commands}:{testbed.env['PATH']}"}
    spack_env, tools = testbed.folder / "spack-env", testbed.folder / "tools"
    for name in ("common", "config", "repo"):
        shutil.copytree(ROOT / "spack-env" / name, spack_env / name)
    shutil.copy(ROOT / "spack-env" / "pins.yaml", spack_env)
    for name, pin in PINS.items():
        git = tools / "spack" / name / ".git"
        git.mkdir(parents=True)
        (git / "HEAD").write_text(pin["commit"] + "\n")
    (tools / "spack" / "spack" / "bin").mkdir()
    shutil.copy(STANDINS / "spack" / "spack", tools / "spack" / "spack" / "bin")
    testbed.env |= {
        "PLUMBLINE_TOOLS": str(tools),
        "STANDIN_LOCK": str(testbed.folder / "lock.json"),
        "STANDIN_CAPTURES": str(CAPTURES),
    }
    return testbed


def solve(login_node: Testbed) -> None:
    """Has the stand-in of Spack use the compiler that was drafted."""
    drafted = login_node.folder / "spack-env" / login_node.name / "externals.yaml"
    (gcc,) = yaml.safe_load(drafted.read_text())["packages"]["gcc"]["externals"]
    lock = copy.deepcopy(LOCK)
    (node,) = [node for node in lock["concrete_specs"].values() if node["name"] == "gcc"]
    node["external"] |= {"path": gcc["prefix"], "module": gcc["modules"]}
    (login_node.folder / "lock.json").write_text(json.dumps(hashed(lock)))


@pytest.mark.parametrize("login_node", ["larch", "birch"], indirect=True)
def test_from_nothing_to_a_plan(login_node: Testbed):
    site = login_node.name
    commands, edited = story(site)
    # With `git clone` and `cd`, ten at most; one file is edited by hand.
    assert len(commands) <= 8 and [c for c in commands if "$EDITOR" in c] == [
        f"$EDITOR site/systems/{site}.yaml"
    ]
    assert commands[:2] == ["make setup", ". ./env.sh"]
    for command in commands[2:]:
        if command.startswith("$EDITOR"):
            edit(login_node.systems / f"{site}.yaml", edited)
            continue
        if command.startswith("plumbline lock"):
            solve(login_node)
        done = login_node.asked(*command.split()[1:])
        assert done.code == 0, f"{command}\n{done.output}"
        output = done.output.replace(str(login_node.folder), "/srv/plumbline/site")
        for shown in re.findall(rf"^\$ {command}\n(.*?)^```", PAGE.read_text(), re.M | re.S):
            assert prints(output, shown), output
    # The plan: each case waits for the build alone.
    planned = re.findall(r"^skip: (.*) @\S+: (\d+) test cases: .* \[([\w.-]+)\]$", done.out, re.M)
    assert {code for *_, code in planned} == {"build.not-built"}
    checks = [check for names, *_ in planned for check in names.split(", ")]
    assert not [name for name in SIX if not any(check.startswith(name) for check in checks)]
    cases = sum(int(count) for _, count, _ in planned)
    assert f" of {cases} test cases would run" in done.out
    again = login_node.asked("init", site)
    assert (again.code, again.codes) == (2, ["files.exists"])
    inventory = json.loads((login_node.systems / "inventory" / f"{site}.json").read_text())
    assert len(inventory["cases"]) == cases
    check_files(login_node, site)


def check_files(login_node: Testbed, site: str) -> None:
    """Compare what was drafted with the machine's facts, and with what was edited."""
    content = yaml.safe_load((login_node.systems / f"{site}.yaml").read_text())
    (partition,) = content["systems"][0]["partitions"]
    folder = login_node.folder / "spack-env" / site
    apps = login_node.folder / "state" / "apps"
    packages = yaml.safe_load((folder / "externals.yaml").read_text())["packages"]
    found = {name: package["externals"][0] for name, package in packages.items()}
    prefixes = {name: one["prefix"].removeprefix(f"{apps}/") for name, one in found.items()}
    modules = {name: one["modules"] for name, one in found.items()}
    environment = content["environments"][-1]
    manifest = yaml.safe_load((folder / environment["name"] / "spack.yaml").read_text())["spack"]
    roots, (architecture,) = manifest["specs"][0]["matrix"]
    if site == "larch":
        assert partition["access"][-1] == "--account=bench"
        assert partition["extras"]["pair_classes"]["gpu-a"] == [[0, 1], [2, 3]]
        assert len(partition["extras"]["pair_classes"]["gpu-b"]) == 4
        assert environment["name"] == "openmpi-cuda"
        assert environment["env_vars"] == [["SLURM_MPI_TYPE", "pmix"]]
        assert prefixes == {"gcc": "GCCcore/13.2.0", "openmpi": "OpenMPI/4.1.6-GCC-13.2.0",
                            "cuda": "CUDA/12.4.0"}  # fmt: skip
        assert environment["modules"] == ["GCC/13.2.0", "CUDA/12.4.0", "OpenMPI/4.1.6"]
        assert {"osu-micro-benchmarks+cuda cuda_arch=80", "comm-scope+cuda cuda_arch=80"} < {*roots}
        assert "zen3 %gcc_openmpi" in architecture
    else:
        assert partition["access"][-1] == "-A bench"
        assert (partition["extras"]["least_time"], partition["launcher"]) == (300, "mpiexec")
        assert environment["extras"] == {"provider": "spack", "launcher": "openmpi"}
        assert prefixes == {"gcc": "gcc-12.3.0", "openmpi": "openmpi-4.1.6-gcc12.3"}
        assert modules["openmpi"] == ["mpi/openmpi/4.1.6-gcc12.3"]
        assert "zen4 %gcc_openmpi" in architecture
