"""A dry run shows the job scripts, also of a system that is elsewhere or has nothing built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import CHECKS, ROOT, Done, Testbed, codes_in, refused
from halfway import PINGPONG


def scripts(done: Done) -> dict[str, str]:
    """The scripts at the place that it prints: environment and check -> text."""
    (place,) = re.findall(r"job scripts: (\S+)$", done.out, re.M)
    folder, *names = place.rsplit("/", 5)
    assert names == ["SYSTEM", "PARTITION", "ENVIRONMENT", "CHECK", "rfm_job.sh"]
    found = Path(folder).glob("*/*/*/*/rfm_job.sh")
    return {"/".join(path.parts[-3:-1]): path.read_text() for path in found}


def nothing_recorded(done: Done, testbed: Testbed) -> None:
    assert not done.records and not list(testbed.results.rglob("end.json"))
    assert testbed.asked("history", "list").codes == ["history.empty"]


@pytest.mark.parametrize("plain", [False, True], ids=["plumbline run", "reframe"])
def test_a_system_elsewhere(testbed: Testbed, plain: bool):
    """Nothing of it is here: no build, modules, scheduler or file system."""
    cases = "^ior%|^osu_p2p.*=latency.*off-node|^osu_p2p.*off-node.*=latency"
    wanted = ("--system=perlmutter", "-n", cases, "--dry-run")
    testbed.env.pop("SCRATCH", None)
    done = testbed.reframe("-c", CHECKS, *wanted) if plain else testbed.plumbline("run", *wanted)
    assert done.code == 0, done.output
    found = scripts(done)
    number = len(found)
    assert number == 5 and f"{number} of {number} test cases: {number} rendered" in done.out
    for name, text in found.items():
        program = "ior" if "/ior_" in name else "osu_latency"
        (title,) = re.findall(r"^# (\w+ %.*) /(\w+) @perlmutter:gpu\+cray-mpich$", text, re.M)
        assert name.endswith(f"{title[0].split()[0]}_{title[1]}")
        (launched,) = re.findall(r"^srun .*$", text, re.M)
        assert f" /not-built/cray-mpich/bin/{program} " in launched
        assert "module load cray-mpich" in text and "#SBATCH --constraint=gpu&hbm40g" in text
        assert ("/not-set/SCRATCH/plumbline-" in launched) == (program == "ior")
    lines = [line for line in done.out.splitlines() if "placeholder" in line]
    programs, folders = sorted(lines, key=lambda line: "/not-set/" in line)
    assert codes_in(programs) == ["build.not-built"] and f"{number} job scripts" in programs
    of_ior = sum("/not-set/" in text for text in found.values())
    assert codes_in(folders) == ["scratch.variable-unset"] and f" {of_ior} job scr" in folders
    assert of_ior == number - 1 and f"{ROOT}/systems/perlmutter.yaml" in folders
    nothing_recorded(done, testbed)


def test_what_is_not_installed_here(testbed: Testbed):
    testbed.lacking()
    done = testbed.plumbline("run", *PINGPONG, "--dry-run")
    assert (done.code, codes_in(done.out)) == (0, ["build.wheel-not-installed"])
    (text,) = scripts(done).values()
    assert "/not-built/lacks/bin/IMB-MPI1" in text
    nothing_recorded(done, testbed)


@pytest.mark.parametrize("command", [("nightly",), ("sweep", "node")])
def test_what_has_to_measure_refuses_it(testbed: Testbed, command: tuple[str, ...]):
    testbed.lacking()
    refused(testbed.asked(*command, "--dry-run"), "plumbline run --dry-run")


@pytest.mark.parametrize("plain", [False, True], ids=["plumbline run", "reframe"])
def test_not_all_is_rendered(testbed: Testbed, plain: bool):
    """Only the program would show which MPI starts it."""
    testbed.imb("bare", "path")
    if plain:
        done = testbed.reframe("-c", CHECKS, *PINGPONG, "--dry-run")
    else:
        done = testbed.plumbline("run", *PINGPONG, "--dry-run")
    assert (done.code, scripts(done)) == (2, {}), done.output
    (skipped,) = re.findall(r"^skip: .*$", done.out, re.M)
    assert codes_in(skipped) == ["build.not-on-path"]
    nothing_recorded(done, testbed)
