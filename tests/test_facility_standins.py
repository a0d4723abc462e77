"""The simulated facility: its launchers by the manuals, its programs' formats by the captures, its
values by the second transcription, and its faults."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import facility
import pytest
from facility import launch, launch_mpi, main, programs
from facility import machine as machines
from facility import run as runs
from facility.faults import Faults
from facility.job import Job, Task
from facility.machine import Machine, list_of, names, numbers
from facility.options import Refused
from facility.programs import osu
from facility.values import Values, variant

ROOT = Path(__file__).resolve().parents[1]
CAPTURES = ROOT / "tests" / "captures"
FOLDER = Path(facility.__file__).parent


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the caller's own job, launcher or GPUs; a folder of the test's own."""
    for name in list(os.environ):
        if name.startswith(("FACILITY_", "SLURM", "OMPI_", "I_MPI_", "MV2_", "OMP_", *runs.VISIBLE)):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def built(system: str) -> Machine:
    return machines.build(system)


def job(system: str, nodes: int = 1, slots: int = 1, **record: object) -> Job:
    machine = built(system)
    return Job(machine, {"nodes": machine.nodes[:nodes], "slots": slots, **record})


def cpus(step: launch.Step) -> list[str]:
    """CPUs of each rank, as the kernel lists them."""
    return [list_of(task.cpus) for task in step.tasks]


def nodes(step: launch.Step, of: Job) -> list[int]:
    return [of.nodes.index(task.node) for task in step.tasks]


def words(text: str) -> list[str]:
    return [*shlex.split(text), "prog", "-x"]


# -- the facility is on its own -------------------------------------------------------------------


def test_it_knows_nothing_of_plumbline() -> None:
    files = [*FOLDER.rglob("*.py"), FOLDER / "bin" / "standin"]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any("plumbline" in name or "reframe" in name for name in found), file
        assert "reference/" not in file.read_text().replace("reference/<", ""), file


def test_every_command_is_a_link_to_one_executable() -> None:
    for path in (FOLDER / "bin").iterdir():
        assert os.access(path, os.X_OK), path
        assert path.resolve() == FOLDER / "bin" / "standin", path
    assert set(osu.TESTS) <= {path.name for path in (FOLDER / "bin").iterdir()}


# -- formats --------------------------------------------------------------------------------------

#: Captures whose text hangs on the machine at hand, on a moment or on another's program.
_APART = re.compile(
    r"killed|WRONG|missing_program|_graph_|neighbor|fan_|latency_mt|unsorted|print_names"
    # What the processes do beyond the table: real files, real memory, real threads.
    r"|broken|validation|float_large_dot|no_memory|tbb|std_"
    r"|data_errors|file_size_limit|no_space|read_short|verbose|verify|stonewall|no_directory"
    r"|csv_stdout|help$|numa1|repetitions|malloc|_tree|branch|missing|bad_|full|rename|remove"
    r"|json_stdout_broken|no_args|hosts"
)


def captured(pattern: str) -> list:
    found = []
    for path in sorted(CAPTURES.glob(pattern)):
        if not _APART.search(path.stem):
            found.append(pytest.param(path, id=f"{path.parent.name}-{path.stem}"))
    return found


def masked(text: str, keep: str = "right") -> str:
    """A text without its numbers.

    :arg keep: the side on which columns are aligned: a number's place is kept with the blanks
        before it (``right``) or behind it (``left``); with neither, its length does not count.
    """
    number = r"-?(?:\d[\d.]*(?:e[+-]?\d+)?|nan|inf)"
    if keep == "right":
        return re.sub(rf" *{number}", lambda found: "#" * len(found[0]), text)
    if keep == "left":
        text = re.sub(rf"\(={number} ", "(=# ", text)
        return re.sub(rf"{number} *", lambda found: "#" * len(found[0]), text)
    return re.sub(rf" *{number}(?: *\w?(?=[ /]))?", "#", text)


def play(
    command: str, system: str = "sawtooth", spread: int = 0
) -> tuple[str, str, int]:
    """What a captured command prints here: standard output, error, exit code.

    :arg spread: ranks of each node, where the capture made several of one.
    """
    parts = shlex.split(command)
    env = {}
    while re.match(r"\w+=", parts[0]):
        name, _, value = parts.pop(0).partition("=")
        env[name] = value
    count = 1
    if parts[0] in ("mpiexec", "mpirun"):
        count = int(parts[parts.index("-n" if "-n" in parts else "-np") + 1])
        start = next(
            index
            for index, word in enumerate(parts)
            if Path(word).name.startswith(("osu_", "ior", "mdtest", "network_"))
        )
        parts = parts[start:]
    machine = built(system)
    each = spread or count
    tasks = [
        Task(rank, machine.nodes[rank // each], rank % each, (rank % each,))
        for rank in range(count)
    ]
    run = runs.Run(machine, Job(machine), tasks, env)
    run.program, run.words = Path(parts[0]).name, parts
    run.faults = Faults(run.program)
    ((_, text, code),) = programs.play(run)
    return text.replace(machine.nodes[0], "node1"), run.program, code


@pytest.mark.parametrize("path", captured("osu/v74_mpich_*.cmd"))
def test_osu_prints_the_captured_format(path: Path, capsys: pytest.CaptureFixture) -> None:
    text, _, code = play(path.read_text())
    assert masked(text) == masked(path.with_suffix(".out").read_text())
    errors = path.with_suffix(".err")
    assert capsys.readouterr().err.strip() == (
        errors.read_text().splitlines()[0] if errors.exists() and errors.stat().st_size else ""
    )
    assert bool(code) == bool(errors.exists() and errors.stat().st_size)


@pytest.mark.parametrize(
    "path", captured("babelstream/v50_*.cmd") + captured("babelstream/omp*.cmd")
)
def test_babelstream_prints_the_captured_format(path: Path) -> None:
    text, _, _ = play(path.read_text())
    expected = path.with_suffix(".out").read_text()
    keep = "" if "csv" in path.stem else "left"
    assert masked(text, keep) == masked(expected, keep)
