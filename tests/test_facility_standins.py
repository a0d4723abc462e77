"""The simulated facility: its launchers by the manuals, its programs' formats by the captures, its
values by the second transcription, and its faults."""

from __future__ import annotations

import ast
import functools
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import facility
import pytest
import yaml
from facility import launch, launch_mpi, main, programs, server
from facility import machine as machines
from facility import run as runs
from facility.faults import Faults
from facility.job import Job, Task
from facility.machine import Machine, list_of, numbers
from facility.options import Refused
from facility.programs import osu
from facility.values import variant

ROOT = Path(__file__).resolve().parents[1]
CAPTURES = ROOT / "tests" / "captures"
FOLDER = Path(facility.__file__).parent
TASK = ROOT / "reframe" / "plumbline" / "placement" / "task.sh"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the caller's own job, launcher or GPUs; a folder of the test's own."""
    for name in list(os.environ):
        if name.startswith(
            ("FACILITY_", "SLURM", "OMPI_", "I_MPI_", "MV2_", "MVP_", "OMP_", *runs.VISIBLE)
        ):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@functools.cache
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

OSU = """
acc_latency allgather allreduce allreduce_one_process alltoall bad_value barrier bcast bibw bw bw_c
cas_latency fop_latency gather get_acc_latency get_bw get_latency iallgather iallreduce ialltoall
ibarrier ibcast latency latency_c latency_float latency_full mbw_mr mbw_mr_4 multi_lat multi_lat_4
one_process put_bibw put_bw put_latency reduce reduce_scatter scatter three_processes
"""
GPCNET = "test_1node test_2nodes load_test_1node load_test_9nodes load_test_10nodes"
IMB = "pingpong pingping sendrecv exchange allreduce reduce bcast barrier"

#: Captures of the commands that the checks run, and of what these meet.
CAPTURED = [
    *(f"osu/v74_mpich_{name}" for name in OSU.split()),
    *("babelstream/v50_omp", "babelstream/v50_cuda", "babelstream/v50_cuda_odd_size"),
    "ior/v400_mpich_json",
    *(f"mdtest/v400_mpich_{name}" for name in ("files", "shift", "create_only", "one_process")),
    *(f"gpcnet/v13_mpich_network_{name}" for name in GPCNET.split()),
    *(f"imb/{name}" for name in IMB.split()),
]

#: Benchmark -> the side on which the columns of its report are aligned.
ALIGNED = {"babelstream": "left", "ior": ""}


def masked(text: str, keep: str = "right") -> str:
    """A text without its numbers and without the names of day and month.

    :arg keep: the side on which columns are aligned: a number's place is kept with the blanks
        before it (``right``) or behind it (``left``); with neither, its length does not count.
    """
    number = r"-?(?:\d[\d.]*(?:e[+-]?\d+)?|nan|inf)"
    text = re.sub(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2}(?= +\d+ \d+:)", "Day Mon", text)
    if keep == "right":
        return re.sub(rf" *{number}", lambda found: "#" * len(found[0]), text)
    if keep == "left":
        text = re.sub(rf"(\(=){number}\s", r"\1# ", text)
        return re.sub(rf"{number} *", lambda found: "#" * len(found[0]), text)
    return re.sub(rf" *{number}(?: *\w?(?=[ /]))?", "#", text)


def in_bytes(size: re.Match[str]) -> str:
    """IOR's sizes as the checks have them: without a unit."""
    return f"{int(size[1]) * 2 ** {'m': 20, 'g': 30}[size[2]]} "


def play(command: str, system: str = "sawtooth", spread: int = 0) -> tuple[str, int]:
    """What a captured command prints here: standard output and exit code.

    :arg spread: ranks of each node, where the capture made several of one.
    """
    parts = shlex.split(re.sub(r"(?<= )(\d+)([mg]) ", in_bytes, command))
    env = {}
    while re.match(r"\w+=", parts[0]):
        name, _, value = parts.pop(0).partition("=")
        env[name] = value
    count = int(parts[2]) if parts[0] == "mpiexec" else 1
    while parts[0] == "mpiexec" or not (FOLDER / "bin" / parts[0]).exists():
        parts.pop(0)
    machine = built(system)
    each = spread or count
    tasks = [
        Task(
            rank,
            machine.nodes[rank // each],
            rank % each,
            (rank % each,),
            (*range(machine.num_gpus),),
        )
        for rank in range(count)
    ]
    ((_, text, code),) = programs.play(one_run(system, parts, tasks=tasks, **env))
    return on_node1(text, machine), code


def on_node1(text: str, machine: Machine) -> str:
    """A text that names the captures' host and GPU instead of the machine's."""
    node = machine.nodes[0]
    text = text.replace(node, "node1").replace(f'"{node.rstrip("0123456789")}(', '"node(')
    return text.replace(machine.facts.get("gpu_name", "Stand-in GPU"), "Stand-in GPU")


@pytest.mark.parametrize("name", CAPTURED)
def test_a_program_prints_the_captured_format(name: str, capsys: pytest.CaptureFixture) -> None:
    path, benchmark = CAPTURES / f"{name}.cmd", name.partition("/")[0]
    Path("data").mkdir()
    system = "perlmutter" if "cuda" in name else "sawtooth"
    command = path.read_text()
    text, code = play(command, system, spread=int("fakenode" in command))
    expected = path.with_suffix(".out").read_text()
    if benchmark == "imb":
        begin = "# List of Benchmarks"
        text, expected = (both[both.index(begin) :] for both in (text, expected))
    side = ALIGNED.get(benchmark, "right")
    assert masked(text, side) == masked(expected, side)
    errors = path.with_suffix(".err")
    if benchmark == "osu":
        lines = errors.read_text().splitlines() if errors.exists() else []
        assert capsys.readouterr().err.splitlines()[:1] == lines[:1]
        assert bool(code) == bool(lines)
    assert not [*Path("data").glob("f*")]


@pytest.mark.parametrize("name", ["cuda_gpu", "cuda_d2d", "memcpy"])
def test_commscope_writes_the_captured_report(name: str) -> None:
    path = CAPTURES / "commscope" / f"v0120_{name}_json_file.cmd"
    play(path.read_text(), "perlmutter" if "cuda" in name else "theta")
    (mine,) = Path().glob("*.json")

    def keys(report: Path) -> dict[str, list[str]]:
        entries = json.loads(report.read_text())["benchmarks"]
        return {entry["run_name"]: [*entry] for entry in entries}

    assert keys(mine) == keys(path.with_suffix(".json"))


def test_commscope_has_no_benchmark_that_the_program_has_not() -> None:
    """Of two GPUs and one NUMA domain with two CPUs; the capture lists some of the sizes."""
    listed = (CAPTURES / "commscope" / "v0120_cuda_list.out").read_text().splitlines()
    run = SimpleNamespace(machine=SimpleNamespace(numa_numbers=[0], vendor="cuda"))
    tests = programs.commscope.tests_of(run, Task(0, "", 0, (), (0, 1)))
    sizes = re.compile(r"log2\(N\):\d+")
    assert {sizes.sub("", test.name) for test in tests} <= {sizes.sub("", line) for line in listed}


def one_run(
    system: str,
    parts: list[str],
    count: int = 1,
    tasks: list[Task] | None = None,
    **env: str,
) -> runs.Run:
    """A program's run on the first cores of a system's first node, or of given tasks."""
    machine = built(system)
    if tasks is None:
        tasks = [
            Task(rank, machine.nodes[0], rank, machine.cpus_of_core(rank)[:1])
            for rank in range(count)
        ]
    run = runs.Run(machine, Job(machine), tasks, env)
    run.program, run.words = Path(parts[0]).name, parts
    run.faults = Faults(run.program)
    return run


# -- launchers, by their manuals ------------------------------------------------------------------

LAUNCHERS = {
    "srun": launch.srun,
    "jsrun": launch.jsrun,
    "mpirun": launch_mpi.openmpi,
    "hydra": launch_mpi.hydra,
    "intel": functools.partial(launch_mpi.hydra, intel=True),
    "pals": launch_mpi.pals,
    "mpt": launch_mpi.mpt,
    "aprun": launch_mpi.aprun,
    "flux": launch_mpi.flux_run,
}

_SIX = ["0-3", "4-7", "8-11", "88-91", "92-95", "96-99"]
_TWELVE = [f"{4 * core}-{4 * core + 3}" for core in [*range(6), *range(22, 28)]]
_ALL = [f"{4 * core}-{4 * core + 3}" for core in [*range(21), *range(22, 43)]]
_OFF = "--exclusive -o mpibind=off -o gpu-affinity=off"

#: Launcher, system, nodes, slots of each, options -> CPUs of each rank, node of each rank.
PLACED = [
    # A mask is of the node, and repeated on every node.
    ("srun eagle 2 2", "-N 2 -n 4 --cpu-bind=map_cpu:0,1", ["0", "1"] * 2, [0, 0, 1, 1]),
    ("srun eagle 2 2", "-N2 -n4 --cpu-bind=mask_cpu:0x3,0xc0000", ["0-1", "18-19"] * 2,
     [0, 0, 1, 1]),
    ("srun eagle 1 1", "-n 3", ["0-35"] * 3, [0] * 3),
    ("srun frontier 1 1", "-n 2 --cpu-bind=mask_cpu:0x2,0x2000000000000", ["1", "49"], [0, 0]),
    # OLCF's defaults: -c 1, -b packed:1, -d packed. A core has four hardware threads.
    ("jsrun summit 2 1", "-n 4 -a 1 -c 1 -r 2", ["0-3", "4-7"] * 2, [0, 0, 1, 1]),
    ("jsrun summit 1 1", "-n 1 -a 2 -c 42", ["0-3", "4-7"], [0, 0]),
    ("jsrun summit 1 1", "-n 1 -a 1 -c 42 -b rs", ["0-83,88-171"], [0]),
    ("jsrun summit 1 1", "-n 1 -a 2 -c 42 -b packed:21", ["0-83", "88-171"], [0, 0]),
    # A set is on one socket, next to its GPUs.
    ("jsrun summit 1 1", "-n 6 -r 6 -a 1 -c 7 -g 1 -b rs",
     ["0-27", "28-55", "56-83", "88-115", "116-143", "144-171"], [0] * 6),
    ("jsrun summit 1 1", "-n 2 -r 2 -a 1 -c 21 -b rs", ["0-83", "88-171"], [0, 0]),
    # OLCF, Summit User Guide, "Jsrun Examples", "Using Multithreading in a Job".
    ("jsrun summit 2 1", "-n12 -r6 -a1 -g1 -c1", _SIX * 2, [0] * 6 + [1] * 6),
    ("jsrun summit 2 1", "-n12 -a2 -g1 -c2 -dpacked", _TWELVE * 2, [0] * 12 + [1] * 12),
    ("jsrun summit 2 1", "-n 4 -a 6 -c 6 -g 3 -d packed -l GPU-CPU", _TWELVE * 2,
     [0] * 12 + [1] * 12),
    ("jsrun summit 2 1", "-n12 -a1 -c4 -g1 -b packed:4 -d packed",
     ["0-15", "16-31", "32-47", "88-103", "104-119", "120-135"] * 2, [0] * 6 + [1] * 6),
    ("jsrun summit 1 1", "-n1 -a2 -c8 -g1 -bpacked:4 -dpacked", ["0-15", "16-31"], [0, 0]),
    ("jsrun summit 1 1", "-n1 -a2 -c8 -g1 -brs -dpacked", ["0-31"] * 2, [0, 0]),
    ("jsrun summit 1 1", "-n1 -a42 -c42 -g0", _ALL, [0] * 42),
    # Few tasks are bound to cores, many to sockets; the slots of a node are filled first.
    ("mpirun eagle 1 36", "-np 2", ["0", "1"], [0, 0]),
    ("mpirun eagle 1 36", "-np 4", ["0-17", "18-35"] * 2, [0] * 4),
    ("mpirun eagle 2 1", "-np 2", ["0", "0"], [0, 1]),
    ("hydra sawtooth 2 2", "-n 4", ["0-47"] * 4, [0, 0, 1, 1]),
    ("hydra sawtooth 1 2", "-n 2 -bind-to user:0+1,24", ["0-1", "24"], [0, 0]),
    ("hydra sawtooth 2 2", "-n 2 -ppn 1 -bind-to user:0", ["0", "0"], [0, 1]),
    # Intel's Hydra ignores -bind-to user:, and -ppn under a scheduler.
    ("intel sawtooth 1 2", "-n 2", ["0-23", "24-47"], [0, 0]),
    ("intel sawtooth 1 2", "-n 2 -genv I_MPI_PIN_DOMAIN [0x1,0x1000000]", ["0", "24"], [0, 0]),
    ("intel sawtooth 1 2", "-n 2 -bind-to user:0,24", ["0-23", "24-47"], [0, 0]),
    ("intel sawtooth 2 2", "-n 2 -ppn 1", ["0-23", "24-47"], [0, 0]),
    ("intel sawtooth 2 2", "-genv I_MPI_JOB_RESPECT_PROCESS_PLACEMENT 0 -n 2 -ppn 1",
     ["0-47"] * 2, [0, 1]),
    ("pals polaris 2 1", "-n 4 --ppn 2 --cpu-bind list:0:8-9,40", ["0", "8-9,40"] * 2,
     [0, 0, 1, 1]),
    ("pals polaris 1 1", "-n 2 --ppn 2", ["0", "1"], [0, 0]),
    ("mpt reedbush-u 1 2", "-np 2", ["0", "1"], [0, 0]),
    ("mpt reedbush-u 1 2", "-np 2 omplace -nt 2 -c 0-1,18-19", ["0-1", "18-19"], [0, 0]),
    # Of a list, a PE has one CPU.
    ("aprun theta 2 1", "-n 2 -N 1", ["0", "0"], [0, 1]),
    ("aprun theta 1 1", "-n 2 -N 2 -d 4 -cc depth", ["0-3", "4-7"], [0, 0]),
    ("aprun theta 1 1", "-n 2 -N 2 -cc 0,33", ["0", "33"], [0, 0]),
    ("aprun theta 1 1", "-n 1 -cc none", ["0-255"], [0]),
    ("flux tioga 2 1", f"-N 2 --tasks-per-node=2 {_OFF} -o 'cpu-affinity=map:1;9-10'",
     ["1", "9-10"] * 2, [0, 0, 1, 1]),
    ("flux tioga 1 1", f"-N 1 --tasks-per-node=2 {_OFF}", ["0-127"] * 2, [0, 0]),
    # mpibind takes the place of both affinities where the site has it.
    ("flux tioga 1 1", "-N1 --tasks-per-node=8 -x -o cpu-affinity=off",
     ["48-55", "56-63", "16-23", "24-31", "0-7", "8-15", "32-39", "40-47"], [0] * 8),
]  # fmt: skip


def launched(where: str, options: str, **record: object) -> tuple[launch.Step, Job]:
    """Call a launcher in a job, which ``where`` describes: launcher, system, nodes, slots."""
    launcher, system, count, slots = where.split()
    of = job(system, nodes=int(count), slots=int(slots), **record)
    return LAUNCHERS[launcher](words(options), of), of


@pytest.mark.parametrize(("where", "options", "expected", "on"), PLACED)
def test_tasks_are_where_the_manual_says(
    where: str, options: str, expected: list[str], on: list[int]
) -> None:
    step, of = launched(where, options)
    assert (cpus(step), nodes(step, of)) == (expected, on)
    assert step.command == ["prog", "-x"]


#: Launcher, system, options -> the list of GPUs in the environment of each task.
GPUS = [
    ("srun frontier 1 1", "-n 2 --gpu-bind=map_gpu:4,6", ["4", "6"]),
    ("srun frontier 1 1", "-n 2 --gpu-bind=none", ["0,1,2,3,4,5,6,7"] * 2),
    ("jsrun summit 1 1", "-n 6 -r 6 -a 1 -c 7 -g 1 -b rs", list("012345")),
    ("jsrun summit 1 1", "-n 1 -a 1 -c ALL_CPUS -g ALL_GPUS -b rs", ["0,1,2,3,4,5"]),
    ("pals polaris 1 1", "-n 1", [None]),
    ("flux tioga 1 1", f"-N 1 --tasks-per-node=2 {_OFF}", [None, None]),
    ("flux tioga 1 1", "-N 1 --tasks-per-node=2 -x -o mpibind=off -o 'gpu-affinity=map:3;0,1'",
     ["3", "0,1"]),
    ("flux tioga 1 1", "-N 1 --tasks-per-node=8 -x", list("01234567")),
]  # fmt: skip


@pytest.mark.parametrize(("where", "options", "expected"), GPUS)
def test_tasks_are_given_gpus_as_the_manual_says(where: str, options: str, expected: list) -> None:
    count = built(where.split()[1]).num_gpus
    step, _ = launched(where, options, gpus=count, asked_gpus=count)
    assert [task.given for task in step.tasks] == expected


def test_a_step_has_the_gpus_that_it_or_its_job_asks_for() -> None:
    """srun(1): an exclusive job has them all, and a step only those that it asks for."""
    only = {"gpus": 8, "asked_gpus": 0}
    for options, expected in (("-n 1", ()), ("-n 1 --gpus-per-node=8", (*range(8),))):
        step, _ = launched("srun frontier 1 1", options, **only)
        assert step.tasks[0].gpus == expected


def test_jsrun_counts_the_cores_that_isolation_leaves() -> None:
    kept = sorted(built("sierra").isolated_cores(2))
    assert cpus(launched("jsrun sierra 1 1", "-n 1 -c 1", isolated=kept)[0]) == ["8-11"]
    with pytest.raises(Refused):
        launched("jsrun sierra 1 1", "-n 1 -c 41", isolated=kept)
    step, _ = launched("jsrun sierra 1 1", "-n 1 -c 44 -b rs", isolated=[])
    assert len(step.tasks[0].cpus) == 176


def test_openmpi_reads_rank_files() -> None:
    physical = "--mca rmaps_rank_file_physical 1 --rankfile ranks"
    Path("ranks").write_text("rank 0=+n1 slot=18\nrank 1=localhost slot=17\n")
    step, of = launched("mpirun eagle 2 1", f"-np 2 {physical}")
    assert (nodes(step, of), cpus(step)) == ([1, 0], ["18", "17"])
    # A CPU stands for its core.
    Path("ranks").write_text("rank 0=localhost slot=1,65\n")
    assert cpus(launched("mpirun perlmutter 1 1", f"-np 1 {physical}")[0]) == ["1,65"]
    for options in (f"-np 2 {physical}", "-np 1 --rankfile ranks"):
        with pytest.raises(Refused):
            launched("mpirun perlmutter 1 1", options)


#: Launcher, system, nodes, slots -> what it refuses.
REFUSED = {
    "srun perlmutter 1 1": ["--nosuch", "-n x", "--cpu-bind=sideways", "-n 0", "-n 999", "-N 2",
                            "--gpu-bind=left --gpus-per-node=4", "-m sideways",
                            "--gpus-per-node=5", "--nodelist=nowhere"],
    # Core 0 of each L3 is the system's.
    "srun frontier 1 1": ["-n 1 --cpu-bind=mask_cpu:0x1"],
    "jsrun summit 1 1": ["--nosuch", "-n x", "-g 7", "-r 43", "-b sideways", "-d left",
                         "--erf_input erf"],
    "mpirun eagle 2 2": ["--nosuch", "-np 5", "--host nowhere:1"],
    "hydra sawtooth 1 1": ["-n 2 --nosuch", "-bind-to left", "-bind-to user:999", "-hosts nowhere"],
    "intel sawtooth 1 1": ["-genv I_MPI_PIN_DOMAIN left"],
    "pals polaris 1 1": ["--nosuch", "--gpu-bind list:3:0", "-n 2 --ppn 2 --cpu-bind list:0",
                         "-n 3 --ppn 1", "--cpu-bind left"],
    "mpt reedbush-u 1 2": ["--nosuch", "-np 3", "-np 2 omplace -nt 2 -c 0,1"],
    "aprun cielo 1 1": ["--nosuch", "-n x", "-n 17 -N 17", "-n 99", "-cc 77", "-cc left"],
    "flux tioga 2 1": ["--nosuch", "-N x -x", "-N 3 -x", "-N 1 --tasks-per-node=65 -x", "-N 1",
                       "-N 1 -x -o mpibind=off -o cpu-affinity=left"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("where", "options"), [(where, text) for where, texts in REFUSED.items() for text in texts]
)
def test_a_launcher_refuses(where: str, options: str) -> None:
    with pytest.raises(Refused):
        launched(where, options)


def test_jsrun_needs_an_allocation() -> None:
    with pytest.raises(Refused):
        launch.jsrun(words("-n 1"), Job(built("summit")))


#: Launcher, system -> options for a task on each of two sockets.
ON_TWO_SOCKETS = [
    ("hydra reedbush-u 1 2", "-n 2 -bind-to user:0,18"),
    ("srun llnl-broadwell 1 1", "-n 2 --cpu-bind=mask_cpu:0x1,0x40000"),
]


@pytest.mark.parametrize(("where", "options"), ON_TWO_SOCKETS)
def test_mvapich_moves_its_processes_in_mpi_init(where: str, options: str) -> None:
    """Under every launcher, unless the variable of MVAPICH2 and that of MVAPICH 3 forbid it."""
    step, of = launched(where, options)
    names = ("MV2_ENABLE_AFFINITY", "MVP_ENABLE_AFFINITY")
    for env in ({}, *({name: "0"} for name in names)):
        moved = launch_mpi.mvapich_affinity(step.tasks, env, of.machine)
        assert [task.cpus for task in moved] == [(0,), (1,)]
    kept = launch_mpi.mvapich_affinity(step.tasks, dict.fromkeys(names, "0"), of.machine)
    assert [task.cpus for task in kept] == [(0,), (18,)]


@pytest.mark.parametrize(("where", "options"), ON_TWO_SOCKETS)
def test_the_task_wrapper_keeps_mvapich_from_moving_its_processes(
    where: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    monkeypatch.setattr(runs, "start", lambda run, *_: measured.append(run.tasks) or 0)
    step, of = launched(where, options)
    step.moves = True
    for command in (["./task.sh", "1", "true"], ["true"]):
        stand_in(command, where.split()[1], monkeypatch, of, step)
    assert [[task.cpus for task in tasks] for tasks in measured] == [[(0,), (18,)], [(0,), (1,)]]


def test_mpt_binds_nothing_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI_DSM_OFF", "1")
    assert cpus(launched("mpt reedbush-u 1 1", "-np 1")[0]) == ["0-35"]


def test_a_machine_has_its_own_launchers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main.launcher("jsrun", built("summit")) is launch.jsrun
    with pytest.raises(Refused):
        main.launcher("srun", built("summit"))
    assert main.launcher("mpiexec", built("polaris")) is launch_mpi.pals
    reedbush = built("reedbush-u")
    for module, flavour in (("mvapich2/2.2rc1", "mvapich"), ("openmpi/1.10.2", "openmpi")):
        monkeypatch.setenv("LOADEDMODULES", f"intel/16.0.3:{module}")
        assert main.flavour_of(reedbush) == flavour


def test_thousands_of_nodes_cost_little() -> None:
    """27,000 tasks share the places of six: none is worked out for itself."""
    step, _ = launched("jsrun summit 4500 1", "-n 27000 -r 6 -a 1 -c 7 -g 1 -b rs")
    assert len(step.tasks) == 27000
    assert len({id(task.cpus) for task in step.tasks}) == 6


# -- task.sh --------------------------------------------------------------------------------------


def stand_in(
    command: list[str], system: str, monkeypatch: pytest.MonkeyPatch, of: Job, step: launch.Step
) -> int:
    """Runs a step with the stand-ins first on PATH, in this process."""
    for name, value in facility.environment(system, Path("state").resolve()).items():
        monkeypatch.setenv(name, value)
    script = Path("task.sh")
    shutil.copy(TASK, script)
    step.command = command
    return runs.execute(of.machine, of, step)


@pytest.mark.parametrize(
    ("given", "words_"),
    [
        ("", []),
        ("", ["OMP_NUM_THREADS=2"]),
        ("CUDA_VISIBLE_DEVICES=0,1,2", []),
        ("CUDA_VISIBLE_DEVICES=0,1,2", ["CUDA_VISIBLE_DEVICES=1,0"]),
        ("CUDA_VISIBLE_DEVICES=", []),
        ("CUDA_VISIBLE_DEVICES=", ["CUDA_VISIBLE_DEVICES=1"]),
        ("CUDA_VISIBLE_DEVICES=0", ["CUDA_VISIBLE_DEVICES="]),
        ("ROCR_VISIBLE_DEVICES=0,1", ["CUDA_VISIBLE_DEVICES=1"]),
        ("ROCR_VISIBLE_DEVICES=0,1", ["ROCR_VISIBLE_DEVICES=1"]),
        ("", ["PLUMBLINE_CUDA_VISIBLE_DEVICES=2,0"]),
        (
            "CUDA_VISIBLE_DEVICES=0,1,2",
            ["PLUMBLINE_CPUS=0:1", "PLUMBLINE_CUDA_VISIBLE_DEVICES=2,0"],
        ),
    ],
)
def test_reports_are_those_of_the_real_task_script(
    given: str, words_: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """The real script runs on this machine, the stand-in's tasks on the simulated one: CPUs,
    memory and host differ, the GPUs do not."""
    script = TASK
    env = {"PATH": os.environ["PATH"], "PMI_LOCAL_RANK": "0"}
    monkeypatch.setenv("PMI_LOCAL_RANK", "0")
    if given:
        name, _, value = given.partition("=")
        env[name] = value
        monkeypatch.setenv(name, value)
    command = [str(script), "0", *words_, "true"]
    real = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    of = job("summit")
    step = launch.Step([Task(0, of.nodes[0], 0, (0, 1, 2, 3), (0, 1, 2))], [])
    assert stand_in(["./task.sh", "0", *words_, "true"], "summit", monkeypatch, of, step) == 0
    mine = capfd.readouterr().err
    lines = [
        {line.split()[0]: line.split() for line in text.splitlines()}
        for text in (real.stderr, mine)
    ]
    first, second = (found["plumbline-task"] for found in lines)
    assert (first[1], first[5:8]) == (second[1], second[5:8])
    bound = any(word.startswith("PLUMBLINE_CPUS") for word in words_)
    assert second[2:5] == [of.nodes[0], "0" if bound else "0-3", "0,8,250-255"]
    assert len(lines[0]["plumbline-host"]) >= 4
    known = {line.split()[2] for line in script.read_text().splitlines() if "fact " in line} | set(
        re.findall(r"plumbline-host %s (\w+)", script.read_text())
    )
    facts = {line.split()[2] for line in mine.splitlines() if line.startswith("plumbline-host")}
    assert facts <= known | set(re.findall(r"fact (\w+)", script.read_text()))


def test_each_rank_has_its_output_in_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    of = job("summit", gpus=6)
    step = launch.jsrun(words("-n 6 -r 6 -a 1 -c 7 -g 1"), of)
    command = ["./task.sh", "1", "PLUMBLINE_OUTPUT=out", "cuda-stream", "-s", "33554432", "-n", "5"]
    assert stand_in(command, "summit", monkeypatch, of, step) == 0
    texts = [Path(f"out.{rank}.out").read_text() for rank in range(6)]
    assert all("Triad" in text for text in texts)


def test_words_before_the_program_narrow_what_it_sees(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    of = job("summit")
    texts = []
    for gpus in ("3,5", "0,5"):
        step = launch.jsrun(words("-n 1 -a 2 -c 42 -g 6 --smpiargs=-gpu"), of)
        command = f"./task.sh 1 CUDA_VISIBLE_DEVICES={gpus} osu_latency -m 8:8 -d cuda D D"
        stand_in(command.split(), "summit", monkeypatch, of, step)
        texts.append(capfd.readouterr().out)
    assert texts[0] != texts[1]


def test_words_by_local_rank_bind_and_narrow(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    of = job("summit")
    before = ["PLUMBLINE_CPUS=88-91:92-95", "PLUMBLINE_CUDA_VISIBLE_DEVICES=4,3", "true"]
    step = launch.jsrun(words("-n 1 -a 2 -c ALL_CPUS -g ALL_GPUS -b rs"), of)
    assert stand_in(["./task.sh", "1", *before], "summit", monkeypatch, of, step) == 0
    reports = [line.split()[3:7] for line in capfd.readouterr().err.splitlines()]
    memories = "0,8,250-255"
    assert reports == [
        ["88-91", memories, "0,1,2,3,4,5", "4"],
        ["92-95", memories, "0,1,2,3,4,5", "3"],
    ]
    for few in (["PLUMBLINE_CPUS=0-3"], ["PLUMBLINE_CPUS=84-87:0-3"]):
        step = launch.jsrun(words("-n 1 -a 2 -c ALL_CPUS -b rs"), of)
        with pytest.raises(Refused):
            stand_in(["./task.sh", "1", *few, "true"], "summit", monkeypatch, of, step)


def test_numactl_and_taskset_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    of = job("summit")
    run = runs.Run(of.machine, of, [Task(0, of.nodes[0], 0, of.cpus)], {})
    runs._wrappers(run, ["numactl", "--membind=8", "--physcpubind=0-3", "prog"])
    assert (run.tasks[0].memory, run.tasks[0].cpus) == ((8,), (0, 1, 2, 3))
    runs._wrappers(run, ["taskset", "-c", "4,5", "prog"])
    assert run.tasks[0].cpus == (4, 5)
    with pytest.raises(Refused):
        runs._wrappers(run, ["numactl", "--membind=1", "prog"])
    with pytest.raises(Refused):
        runs._wrappers(run, ["numactl", "--nosuch", "prog"])


# -- values ---------------------------------------------------------------------------------------


def pair(system: str, one: int, other: int, far: int = 0) -> list[Task]:
    """Two tasks on cores of a system; the second ``far`` nodes away."""
    machine = built(system)
    return [
        Task(0, machine.nodes[0], 0, machine.cpus_of_core(one)[:1]),
        Task(1, machine.nodes[far], 0 if far else 1, machine.cpus_of_core(other)[:1]),
    ]


def latency(text: str, size: int = 8) -> float:
    return float(re.search(rf"^{size} +([\d.]+)", text, re.M)[1])


def second(system: str, benchmark: str, metric: str, placement: str, **conditions: str) -> float:
    """The one number of the second transcription."""
    found = {
        row["value"]
        for row in machines.second_rows()
        if (row["system"], row["benchmark"], row["metric"], row["placement"])
        == (system, benchmark, metric, placement)
        and conditions.items() <= row["conditions"].items()
    }
    (value,) = found
    return float(value)


def test_a_wrong_place_shows_as_a_wrong_number() -> None:
    def of(tasks: list[Task]) -> float:
        run = one_run("eagle", ["osu_latency", "-m", "8:8"], tasks=tasks)
        ((_, text, _),) = programs.play(run)
        return latency(text)

    right = of(pair("eagle", 0, 1))
    unbound = [task._replace(cpus=tuple(range(36))) for task in pair("eagle", 0, 1)]
    assert of(unbound) > 1.5 * right
    assert of(pair("eagle", 0, 18)) > 1.5 * right
    assert of(pair("eagle", 4, 4)) > 10 * right
    assert of(pair("eagle", 0, 0, far=1)) > 5 * right
    # A machine whose GPUs make it a class of its own: the other socket is not host-to-host.
    run = one_run("summit", ["osu_latency", "-m", "8:8"], tasks=pair("summit", 0, 22))
    ((_, text, _),) = programs.play(run)
    assert latency(text) > 1.5 * second("summit", "osu", "latency", "host-to-host")


#: What the launchers of GPU systems tell two tasks of a node, and OSU's devices of two by itself.
OF_ITSELF = [
    ("srun", launch.srun, "-n 2 --gpu-bind=none", "perlmutter", [0, 1]),
    ("jsrun", launch.jsrun, "-n 1 -r 1 -a 2 -c 2 -g 6", "summit", [0, 1]),
    ("Hydra", launch_mpi.hydra, "-n 2", "reedbush-h", [0, 1]),
    ("Open MPI", launch_mpi.openmpi, "-np 2", "reedbush-h", [0, 1]),
    ("PALS", launch_mpi.pals, "-n 2 --ppn 2", "polaris", [0, 0]),
    (
        "Flux",
        launch_mpi.flux_run,
        "-N 1 --tasks-per-node=2 -x -o mpibind=off -o gpu-affinity=off",
        "tioga",
        [0, 0],
    ),
    ("MPT", launch_mpi.mpt, "-np 2 -ppn 2", "reedbush-h", [0, 0]),
    ("ALPS", launch_mpi.aprun, "-n 2 -N 2", "titan", [0, 0]),
]


@pytest.mark.parametrize(
    ("function", "options", "system", "devices"), [pytest.param(*o[1:], id=o[0]) for o in OF_ITSELF]
)
def test_the_gpu_that_osu_takes_of_itself(
    function, options: str, system: str, devices: list[int], capfd: pytest.CaptureFixture
) -> None:
    """By the variables that it knows, in its order; else the first one, with a warning."""
    of = job(system, slots=2, gpus=built(system).num_gpus, asked_gpus=built(system).num_gpus)
    step = function([*shlex.split(options), "osu_latency"], of)
    run = runs.Run(of.machine, of, step.tasks, {})
    run.ranks = step.ranks
    assert [osu.device_of(run, task) for task in step.tasks] == devices
    known = any(name in step.ranks(step.tasks[0]) for name in osu.LOCAL_RANKS)
    assert ("local rank" in capfd.readouterr().err) is not known
    # The rank in the whole job, where srun's is the first that there is.
    run.ranks = lambda task: {"SLURM_PROCID": 3, "LOCAL_RANK": 0}
    count = len(step.tasks[0].gpus)
    assert osu.device_of(run, step.tasks[0]) == 3 % count
    run.ranks = lambda task: {"MV2_COMM_WORLD_LOCAL_RANK": 1, "SLURM_PROCID": 3}
    assert osu.device_of(run, step.tasks[0]) == 1 % count


def test_variants_are_told_from_variables() -> None:
    ports = {
        "PAMI_ENABLE_STRIPING": "1",
        "PAMI_IBV_DEVICE_NAME": "mlx5_0:1,mlx5_3:1",
        "PAMI_IBV_DEVICE_NAME_1": "mlx5_3:1,mlx5_0:1",
    }
    assert variant(ports)["port_policy"] == "0330"
    assert variant({**ports, "PAMI_ENABLE_STRIPING": "0"})["port_policy"] == "03"
    both = {"PAMI_IBV_DEVICE_NAME": "mlx5_0:1,mlx5_1:1"}
    both["PAMI_IBV_DEVICE_NAME_1"] = "mlx5_2:1,mlx5_3:1"
    assert variant({**ports, **both})["port_policy"] == "0123"
    assert variant({"PAMI_IBV_ENABLE_OOO_AR": "0"})["routing"] == "static"
    # SHARP without the launcher's switch does nothing.
    assert variant({"HCOLL_ENABLE_SHARP": "3"})["library"] == "ibm"
    assert variant({"PAMI_IBV_ENABLE_TAG_MATCHING": "1"})["tag_matching"] == "off"


def triad(text: str) -> float:
    """GB/s."""
    return float(re.search(r"^Triad +([\d.]+)", text, re.M)[1]) / 1e3


def stream(system: str, task: Task, program: str = "omp-stream", **env: str) -> float:
    run = one_run(system, [program, "-s", "33554432", "-n", "10"], tasks=[task], **env)
    ((_, text, code),) = programs.play(run)
    assert code == 0
    return triad(text)


def test_a_stream_on_a_gpu_that_is_not_there_ends_as_the_program_does(
    capsys: pytest.CaptureFixture,
) -> None:
    task = Task(0, built("summit").nodes[0], 0, (1,), ())
    ((_, _, code),) = programs.play(one_run("summit", ["cuda-stream"], tasks=[task]))
    assert code == 134
    assert "device index" in capsys.readouterr().err
    task = task._replace(gpus=(0,))
    ((_, _, code),) = programs.play(one_run("summit", ["hip-stream"], tasks=[task]))
    assert code == 1


def commscope(system: str, name: str, gpus: tuple[int, ...]) -> dict:
    command = ["comm_scope", f"--benchmark_filter={name}", "--benchmark_out=x.json"]
    task = Task(0, built(system).nodes[0], 0, (1,), gpus)
    ((_, _, code),) = programs.play(one_run(system, command, tasks=[task]))
    assert code == 0
    (row,) = json.loads(Path("x.json").read_text())["benchmarks"]
    return row


def test_a_read_of_what_the_node_just_wrote_comes_from_its_memory() -> None:
    def read(*more: str, count: int = 2) -> float:
        tasks = [Task(n, built("eagle").nodes[n], 0, (0,)) for n in range(count)]
        command = f"ior -a POSIX -F -w -r -b {2**24} -t {2**20} -O summaryFormat=JSON -o f"
        ((_, text, _),) = programs.play(one_run("eagle", [*command.split(), *more], tasks=tasks))
        return json.loads(text)["summary"][1]["bwMeanMIB"]

    assert read() > 5 * read("-C")
    assert read("-C", count=1) > 5 * read("-C") / 2
    assert read("--posix.odirect") == read("-C")


def test_values_are_the_same_at_each_call_and_noise_is_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(sample: int) -> float:
        run = one_run("eagle", ["osu_bw", "-m", "1048576:1048576"], tasks=pair("eagle", 0, 1))
        run.sample = sample
        ((_, text, _),) = programs.play(run)
        return latency(text, 1048576)

    calm = {found(sample) for sample in range(40)}
    assert len(calm) == 1
    monkeypatch.setenv("FACILITY_NOISE", "0.05")
    noisy = [found(sample) for sample in range(40)]
    assert noisy == [found(sample) for sample in range(40)]
    mean = sum(noisy) / len(noisy)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in noisy) / len(noisy))
    assert 0.02 < deviation / mean < 0.1


# -- faults ---------------------------------------------------------------------------------------


def faulty(monkeypatch: pytest.MonkeyPatch, **fault: object) -> None:
    monkeypatch.setenv("FACILITY_FAULT", json.dumps(fault))


def test_a_slow_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(program: str, sample: int = 1) -> float:
        run = one_run("eagle", [program, "-m", "8:8"], tasks=pair("eagle", 0, 1))
        run.sample = sample
        run.faults = Faults(program, sample)
        ((_, text, _),) = programs.play(run)
        return latency(text)

    right, wide = found("osu_latency"), found("osu_bw")
    faulty(monkeypatch, kind="slow", program="osu_*", factor=2, sample=[1, 2])
    assert found("osu_latency") == pytest.approx(2 * right, abs=0.01)
    assert found("osu_bw") == pytest.approx(wide / 2, abs=0.01)
    assert found("osu_latency", sample=3) == right
    faulty(monkeypatch, kind="slow", program="osu_bw", value=1.5)
    assert (found("osu_latency"), found("osu_bw")) == (right, 1.5)
    faulty(monkeypatch, kind="slow", metric="latency", size=16, value=9)
    assert found("osu_latency") == right


def test_a_slow_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty(monkeypatch, kind="slow", gpu=3, factor=1.5)
    node = built("summit").nodes[0]
    rates = [stream("summit", Task(0, node, 0, (1,), (gpu,)), "cuda-stream") for gpu in range(6)]
    assert rates[3] == pytest.approx(rates[0] / 1.5, rel=1e-3)
    assert len({*rates[:3], *rates[4:]}) == 1


Printed = Callable[[], tuple[str, str, int]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> Printed:
    """Standard output, error and exit code of two tasks of osu_latency on Eagle."""
    for name, value in facility.environment("eagle", Path("state").resolve()).items():
        monkeypatch.setenv(name, value)
    shutil.copy(TASK, "task.sh")

    def run() -> tuple[str, str, int]:
        code = main.main("mpirun", ["-np", "2", "./task.sh", "1", "osu_latency", "-m", "1:64"])
        return *capfd.readouterr(), code

    return run


def test_faults_of_the_output(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    right, _, code = printed()
    assert code == 0
    faulty(monkeypatch, kind="garble", line=-1)
    text, _, code = printed()
    assert (text.splitlines()[:-1], code) == (right.splitlines()[:-1], 0)
    assert "#@!" in text.splitlines()[-1]
    faulty(monkeypatch, kind="missing", line=r"^(8|16) ")
    text, _, _ = printed()
    assert len(text.splitlines()) == len(right.splitlines()) - 2
    faulty(monkeypatch, kind="truncate")
    text, _, code = printed()
    assert (code, right.startswith(text), len(text)) == (0, True, len(right) // 2)
    faulty(monkeypatch, kind="crash")
    assert printed()[2] == 139
    faulty(monkeypatch, kind="exit", code=3)
    text, _, code = printed()
    assert (text, code) == (right, 3)


def test_a_fault_of_the_binding_shows_in_the_reports(
    monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    faulty(monkeypatch, kind="binding", program="osu_latency")
    _, errors, _ = printed()
    assert [line.split()[3] for line in errors.splitlines()] == ["1", "2"]


def test_singletons_are_each_alone(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    faulty(monkeypatch, kind="singletons")
    text, errors, code = printed()
    assert errors.count("two processes") == 2
    assert (text, code) == ("", 1)


def test_an_unknown_fault_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty(monkeypatch, kind="nosuch")
    with pytest.raises(SystemExit, match="nosuch"):
        Faults("osu_latency")


# -- batch systems --------------------------------------------------------------------------------

#: Longest that a command or a job may take, in seconds.
PATIENCE = 60


class Site:
    """A system's commands, in an environment with the stand-ins."""

    def __init__(self, system: str, **how: object):
        self.state = Path("state").resolve()
        self.env = facility.environment(system, self.state, **how)

    def run(self, *command: str, stdin: str | None = None) -> tuple[str, str, int]:
        done = subprocess.run(
            command, env=self.env, input=stdin, capture_output=True, text=True, timeout=PATIENCE
        )
        return done.stdout, done.stderr, done.returncode

    def until(self, ended, *command: str) -> str:
        """Asks until an answer says that the job ended."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            text, _, _ = self.run(*command)
            if ended(text):
                return text
            time.sleep(0.05)
        raise AssertionError(f"{command}: {text}")


def script(sentinel: str, options: str, body: str = "true") -> str:
    lines = [f"{sentinel} {option}" for option in options.splitlines() if option.strip()]
    return "\n".join(["#!/bin/bash", *lines, body, ""])


SACCT = ("sacct", "-S", "2020-01-01", "-P", "-j", "1001", "-o", "jobid,state,exitcode,end,nodelist")


def test_slurm_runs_a_job() -> None:
    site = Site("frontier")
    body = "env >env.txt; srun --gpu-bind=none ./task.sh 0 osu_latency -m 8:8; exit 3"
    shutil.copy(TASK, "task.sh")
    options = (
        '--job-name="a b"\n--ntasks=2\n--ntasks-per-node=1\n--nodes=2\n--output=out\n--error=err\n'
        "--time=0:10:0\n--no-requeue\n--partition=batch\n--exclusive\n--gpus-per-node=8"
    )
    Path("job.sh").write_text(script("#SBATCH", options, body))
    assert site.run("sbatch", "job.sh") == ("Submitted batch job 1001\n", "", 0)
    text = site.until(lambda text: "FAILED" in text, *SACCT)
    assert re.search(r"^1001\|FAILED\|3:0\|[\dT:-]+\|frontier\[00001-00002\]$", text, re.M)
    assert site.run("scontrol", "show", "hostname", "frontier[00001-00002]")[0].split() == [
        "frontier00001",
        "frontier00002",
    ]
    env = dict(
        line.split("=", 1) for line in Path("env.txt").read_text().splitlines() if "=" in line
    )
    assert env["SLURM_JOB_NODELIST"] == "frontier[00001-00002]"
    assert (env["SLURM_NNODES"], env["SLURM_NTASKS"]) == ("2", "2")
    assert "OSU MPI Latency" in Path("out").read_text()
    hosts = re.findall(r"^plumbline-task \d (\S+)", Path("err").read_text(), re.M)
    assert hosts == ["frontier00001", "frontier00002"]


def test_slurm_ends_a_job_at_its_limit_or_when_told() -> None:
    site = Site("eagle")
    Path("job.sh").write_text(script("#SBATCH", "--time=0:0:1", "sleep 60"))
    site.run("sbatch", "job.sh")
    site.until(lambda text: "1001|TIMEOUT" in text, *SACCT)
    Path("job.sh").write_text(script("#SBATCH", "--time=10", "sleep 60"))
    site.run("sbatch", "job.sh")
    site.until(lambda text: "RUNNING" in text, "squeue", "-h", "-j", "1002", "-o", "%i|%T|%N|%r")
    assert site.run("scancel", "1002")[2] == 0
    ask = [*SACCT]
    ask[5] = "1002"
    site.until(lambda text: "1002|CANCELLED by" in text, *ask)


def test_jobs_wait_for_nodes() -> None:
    site = Site("peak")
    wide = script("#BSUB", "-nnodes 18\n-W 5\n-o out", "until [ -e go ]; do sleep 0.05; done")
    site.run("bsub", stdin=wide)
    site.run("bsub", stdin=script("#BSUB", "-nnodes 1\n-W 5\n-o other"))
    ask = ("bjobs", "-o", "jobid: user:10 stat: queue:", "-noheader")
    text = site.until(lambda text: "RUN" in text, *ask, "1001", "1002")
    assert re.search(r"^1002 .*PEND", text, re.M)
    Path("go").touch()
    site.until(lambda text: text.count("DONE") == 2, *ask, "1001", "1002")


@pytest.mark.parametrize("served", [True, False])
def test_a_command_has_the_callers_streams_folder_and_environment(served: bool) -> None:
    """Run by the server, or where it is gone by the process that was started."""
    site = Site("frontier")
    if not served:
        site.env[server.VARIABLE] = "gone"
    Path("job.sh").write_text(script("#SBATCH", "--partition=batch\n--time=1", "exit $CODE"))
    site.env["CODE"] = "3"
    assert site.run("sbatch", "--wait", "job.sh") == ("Submitted batch job 1001\n", "", 3)
    out, err, code = site.run("sbatch", "elsewhere.sh")
    assert (out, code) == ("", 1) and "FileNotFoundError" in err
    (site.state / "machine.json").unlink()
    assert site.run("srun", "true")[2] == 1
    lsf = Site("peak")
    if not served:
        lsf.env[server.VARIABLE] = "gone"
    assert "Job <1002>" in lsf.run("bsub", stdin=script("#BSUB", "-nnodes 1\n-W 5"))[0]


def test_a_command_of_the_server_ends_with_the_one_who_called() -> None:
    site = Site("eagle", fault={"kind": "hang"})
    process = subprocess.Popen(["omp-stream"], env=site.env, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    process.kill()
    # The output ends when nobody has it any more.
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL


def test_lsf_runs_a_job() -> None:
    site = Site("summit")
    body = "env >env.txt; jsrun -n 2 -r 1 ./task.sh 1 osu_latency -m 8:8; exit 2"
    shutil.copy(TASK, "task.sh")
    text = script("#BSUB", "-J test\n-o out\n-e err\n-nnodes 2\n-W 10\n-x", body)
    out, _, code = site.run("bsub", stdin=text)
    assert (out, code) == ("Job <1001> is submitted to queue <batch>.\n", 0)
    ask = ("bjobs", "-o", "jobid: user:10 stat: queue:", "-noheader", "1001")
    site.until(lambda text: re.match(r"1001\s+\S+\s+EXIT\s+batch", text), *ask)
    env = dict(
        line.split("=", 1) for line in Path("env.txt").read_text().splitlines() if "=" in line
    )
    assert env["LSB_MCPU_HOSTS"] == "batch1 1 a01n01 42 a01n02 42"
    # LSF adds its own report to standard output.
    assert "Sender: LSF System" in Path("out").read_text()
    assert Path("err").read_text().count("plumbline-task") == 2
    assert site.run("bjobs", "-o", "stat", "5")[2] == 255


def test_core_isolation_is_the_job_s() -> None:
    site = Site("sierra")
    shutil.copy(TASK, "task.sh")
    for index, (isolation, first) in enumerate((("", "8-11"), ("-core_isolation 0", "0-3"))):
        body = f"jsrun -n 1 ./task.sh 1 true 2>err{index}"
        site.run("bsub", stdin=script("#BSUB", f"{isolation}\n-W 5", body))
        ask = ("bjobs", "-o", "stat", "-noheader", str(1001 + index))
        site.until(lambda text: "DONE" in text, *ask)
        assert Path(f"err{index}").read_text().split()[3] == first


def test_pbs_pro_runs_a_job() -> None:
    site = Site("polaris")
    folder = Path.cwd()
    shutil.copy(TASK, "task.sh")
    body = (
        f"cd {folder}\nenv >env.txt\nmpiexec -n 4 --ppn 2 --cpu-bind list:0:8 ./task.sh 1 true\n"
        "cat $PBS_NODEFILE; exit 4"
    )
    options = (
        "-N test\n-o out\n-e err\n-l walltime=0:10:0\n-l select=2:mpiprocs=2:ncpus=2\n-q debug\n"
        "-l filesystems=home:eagle\n-l place=scatter:excl"
    )
    Path("job.sh").write_text(script("#PBS", options, body))
    site.env["NOT_MINE"] = "x"
    out, _, code = site.run("qsub", "job.sh")
    assert (out, code) == ("1001.pbs01\n", 0)
    ask = ("qstat", "-xf", "-F", "json", "1001.pbs01")
    text = site.until(lambda text: '"F"' in text, *ask)
    (fields,) = json.loads(text)["Jobs"].values()
    assert (fields["Exit_status"], fields["exec_host"]) == (
        4,
        "x3001c0s01b0n0/0*2+x3001c0s02b0n0/0*2",
    )
    hosts = ["x3001c0s01b0n0"] * 2 + ["x3001c0s02b0n0"] * 2
    assert Path("out").read_text().split() == hosts
    assert re.findall(r"^plumbline-task \d (\S+)", Path("err").read_text(), re.M) == hosts
    # A login of its own: the submitter's variables are not there.
    env = Path("env.txt").read_text()
    assert "NOT_MINE" not in env
    assert "NCPUS=2" in env
    assert site.run("qstat", "-f", "1001.pbs01")[2] == 35
    assert site.run("qstat", "-xf", "-F", "json", "9.pbs01")[2] == 153


def test_pbs_pro_packs_chunks_onto_a_host_unless_scattered() -> None:
    site = Site("reedbush-u")
    for number, place, hosts in ((1001, "free", 1), (1002, "scatter:excl", 2)):
        options = f"-l select=2:mpiprocs=1:ncpus=1\n-l place={place}\n-o out{number}\n-e err"
        Path("job.sh").write_text(script("#PBS", options, "sort -u $PBS_NODEFILE"))
        Path("home").mkdir(exist_ok=True)
        site.run("qsub", "job.sh")
        ask = ("qstat", "-xf", "-F", "json", f"{number}.pbs01")
        site.until(lambda text: '"F"' in text, *ask)
        assert len(Path(f"out{number}").read_text().split()) == hosts


def test_torque_runs_a_job() -> None:
    site = Site("cielo")
    shutil.copy(TASK, "task.sh")
    body = f"cd {Path.cwd()}\naprun -n 2 -N 1 ./task.sh 1 true"
    options = "-N test\n-o out\n-e err\n-l walltime=0:10:0\n-l nodes=2:ppn=16"
    Path("job.sh").write_text(script("#PBS", options, body))
    out, _, _ = site.run("qsub", "job.sh")
    assert out == "1001.sdb\n"
    text = site.until(lambda text: "job_state = C" in text, "qstat", "-f", "1001.sdb")
    assert re.search(r"^Job Id: 1001\.sdb$", text, re.M)
    assert "exec_host = nid00001/0-15+nid00002/0-15" in text
    assert re.search(r"^\s*exit_status = 0$", text, re.M)
    assert Path("err").read_text().count("plumbline-task") == 2


def test_xt4_has_nodes_of_two_and_of_four_cores() -> None:
    machine = built("xt4")
    two = Job(machine, {"nodes": machine.nodes[:1], "isolated": [2, 3]})
    assert cpus(launch_mpi.aprun(words("-n 1 -cc none"), two)) == ["0-1"]


def test_flux_runs_a_job() -> None:
    site = Site("rzvernal")
    shutil.copy(TASK, "task.sh")
    options = (
        "--job-name=test\n--output=out\n--error=err\n--nodes=1\n--nslots=2\n--exclusive\n"
        "--time-limit=60s\n--queue=pdebug"
    )
    body = (
        "flux run -N1 --tasks-per-node=2 --exclusive -o mpibind=off "
        "-o 'cpu-affinity=map:0-31,64-95;32-63,96-127' ./task.sh 1 true"
    )
    Path("job.sh").write_text(script("#flux:", options, body))
    out, err, code = site.run("flux", "batch", "job.sh")
    assert (out[:1], err, code) == ("ƒ", "", 0)
    number = site.run("flux", "job", "id", "--to=dec", out.strip())[0].strip()
    assert number.isdigit()
    form = "{id.dec}|{status}|{returncode}|{nodelist}|{exception.note}"
    ask = ("flux", "jobs", "--no-header", f"--format={form}", number)
    text = site.until(lambda text: "COMPLETED" in text, *ask)
    assert text == f"{number}|COMPLETED|0|rzvernal1|\n"
    assert [line.split()[3] for line in Path("err").read_text().splitlines()] == [
        "0-31,64-95",
        "32-63,96-127",
    ]
    Path("job.sh").write_text(
        script("#flux:", "--nodes=1\n--nslots=1\n--time-limit=60s", "sleep 60")
    )
    other = site.run("flux", "batch", "job.sh")[0].strip()
    site.until(lambda text: "RUN" in text, *ask[:-1], other)
    assert site.run("flux", "cancel", other)[2] == 0
    site.until(lambda text: "CANCELED" in text, *ask[:-1], other)


#: Command, system, sentinel of directives -> directives that it refuses.
REFUSED_JOBS = {
    ("sbatch", "frontier", "#SBATCH"): [
        "--nosuch", "no-requeue", "--partition=nosuch", "--constraint=nosuch", "--nodes=9409",
        "--ntasks=65 \n--nodes=1", "--gpus-per-node=9", "--ntasks=x", "--time=soon",
        "--nodelist=nowhere", "--qos=nosuch", "--ntasks=4\n--nodes=1\n--ntasks-per-node=2",
    ],
    ("bsub", "summit", "#BSUB"): [
        "-nosuch", "-q nosuch", "-nnodes 4609", "-nnodes x", "-W 0", "-W soon",
    ],
    ("qsub", "polaris", "#PBS"): [
        "-l select=1", "-l filesystems=home\n-q nosuch", "-l filesystems=nosuch",
        "-l filesystems=home\n-l nosuch=1", "-l filesystems=home\n-l select=2:nosuch=1",
        "-l filesystems=home\n-l select=1:ncpus=65",
        "-l filesystems=home\n-l select=561\n-l place=scatter:excl",
        "-l filesystems=home\n-l place=sideways", "-l filesystems=home\n-l select=1\n-l nodes=1",
        "-l filesystems=home\n-l walltime=soon", "-l filesystems=home\n-l walltime=0:4:59",
        "-l filesystems=home\n-Y 1", "-N 1st\n-l filesystems=home",
    ],
    ("qsub", "cielo", "#PBS"): ["-l select=1"],
    ("flux", "tioga", "#flux:"): [
        "--nosuch", "--nodes=2\n--nslots=1", "--nslots=x", "", "--nslots=1\n--queue=nosuch",
        "--nslots=1\n--nodes=1\n--cores-per-slot=65", "--nslots=39\n--nodes=39",
        "--nslots=1\n--time-limit=soon", "--nslots=1\n--requires=colour:red",
        "--nslots=1\n\n#flux: --nodes=1",
    ],
    ("sbatch", "summit", "#SBATCH"): ["--nodes=1"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "system", "sentinel", "options"),
    [(*key, options) for key, listed in REFUSED_JOBS.items() for options in listed],
)
def test_a_batch_system_refuses(
    command: str,
    system: str,
    sentinel: str,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """With a message, an exit code, and no number of a job."""
    Path("job.sh").write_text(script(sentinel, options))
    monkeypatch.setattr(sys, "stdin", io.StringIO(Path("job.sh").read_text()))
    for name, value in facility.environment(system, Path("state").resolve()).items():
        monkeypatch.setenv(name, value)
    arguments = {"bsub": [], "flux": ["batch", "job.sh"]}.get(command, ["job.sh"])
    assert main.main(command, arguments) != 0
    out, err = capsys.readouterr()
    assert (out, bool(err)) == ("", True)


def test_a_batch_system_ends_a_job_on_request() -> None:
    site = Site("eagle", fault={"kind": "state", "state": "NODE_FAIL", "program": "doomed"})
    Path("job.sh").write_text(script("#SBATCH", "--job-name=doomed", "sleep 60"))
    site.run("sbatch", "job.sh")
    site.until(lambda text: "1001|NODE_FAIL" in text, *SACCT)


# -- the machines ---------------------------------------------------------------------------------


def test_a_facility_must_be_prepared(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, FOLDER / "bin" / "srun"], env=env, capture_output=True, text=True
    )
    assert done.returncode == 1 and "FACILITY_STATE" in done.stderr
    with pytest.raises(KeyError):
        facility.environment("nosuch", tmp_path / "state")


def _bits(mask: str) -> list[int]:
    value = int(mask, 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def _described() -> list:
    """Every partition of every simulated system."""
    found = []
    for path in sorted((ROOT / "systems").glob("*.yaml")):
        (system,) = yaml.safe_load(path.read_text())["systems"]
        if system["name"] != "local":
            for part in system["partitions"]:
                found.append(pytest.param(system["name"], part, id=f"{path.stem}-{part['name']}"))
    return found


@pytest.mark.parametrize("system, part", _described())
def test_the_system_s_file_describes_the_same_machine(system: str, part: dict) -> None:
    """Two descriptions, written apart."""
    machine = built(system)
    topology, extras = part["processor"]["topology"], part["extras"]
    cores = range(len(topology["cores"]))
    assert len(cores) in (machine.num_cores, machine.facts.get("few_cores"))
    if len(cores) == machine.num_cores:
        assert sorted(map(_bits, topology["cores"])) == sorted(
            sorted(machine.cpus_of_core(core)) for core in cores
        )
        for name, of in (("sockets", machine.socket_of), ("numa_nodes", machine.numa_of)):
            groups: dict[int, list[int]] = {}
            for core in cores:
                groups.setdefault(of(core), []).append(core)
            assert [_bits(mask) for mask in topology[name]] == [
                list(machine.cpus_of_cores(members)) for members in groups.values()
            ]
    assert extras.get("numa_os_numbers", [*range(len(machine.numa_numbers))]) == (
        machine.numa_numbers
    )
    asked = re.search(r"-core_isolation (\d)", " ".join(part.get("access") or []))
    isolated = machine.isolated_cores(int(asked[1]) if asked else None)
    if len(cores) == machine.num_cores:
        free = machine.cpus_of_cores(core for core in cores if core not in isolated)
        assert extras.get("usable_cpus", [*free]) == [*free]
        assert "usable_cpus" in extras or not isolated
    devices = part.get("devices", [])
    assert sum(device["num_devices"] for device in devices) == machine.num_gpus
    for gpu, near in enumerate(extras.get("gpu_affinity", [])):
        assert near["numa"] == machine.facts["gpus"][gpu]
        own = [core for core in machine.cores_of_gpu(gpu) if core not in isolated]
        if machine.facts["batch"] != "torque":
            assert numbers(near["cpus"]) == [*machine.cpus_of_cores(own)]
    for name, pairs in extras.get("pair_classes", {}).items():
        assert all(machine.pair_class(*two) == name for two in pairs)
        every = [
            [one, other]
            for one in range(machine.num_gpus)
            for other in range(one + 1, machine.num_gpus)
            if machine.pair_class(one, other) == name
        ]
        assert sorted(pairs) == every
    if "rack_pattern" in extras:
        racks = {node: re.match(extras["rack_pattern"], node)[1] for node in machine.nodes}
        assert all(machine.rack_of(node) == rack for node, rack in racks.items())
    batch = {"flux-batch": "flux", "local": "none"}.get(part["scheduler"], part["scheduler"])
    assert batch == machine.facts["batch"]


@pytest.mark.parametrize(
    "system, reach, given, words_, seen",
    [
        # CUDA: numbers of the node's GPUs; the list ends at the first that is none.
        ("summit", (0, 1, 2), "0,1,2", {}, (0, 1, 2)),
        ("summit", (0, 1, 2), "0,1,2", {"CUDA_VISIBLE_DEVICES": "2,0"}, (2, 0)),
        ("summit", (0, 1, 2), "0,1,2", {"CUDA_VISIBLE_DEVICES": "1,5,0"}, (1,)),
        ("summit", (0, 1, 2), "0,1,2", {"CUDA_VISIBLE_DEVICES": ""}, ()),
        ("summit", (), None, {"CUDA_VISIBLE_DEVICES": "0"}, ()),
        # ROCm: HIP's and CUDA's variables count in what ROCR's leaves.
        ("frontier", (*range(8),), "4,5", {}, (4, 5)),
        ("frontier", (*range(8),), None, {"ROCR_VISIBLE_DEVICES": "6,7"}, (6, 7)),
        ("frontier", (*range(8),), "4,5", {"HIP_VISIBLE_DEVICES": "1"}, (5,)),
        ("frontier", (*range(8),), "4,5", {"HIP_VISIBLE_DEVICES": "4"}, ()),
        # Flux names GPUs in CUDA's variable everywhere.
        ("tioga", (*range(8),), "7", {}, (7,)),
        ("tioga", (*range(8),), "-1", {}, ()),
        ("tioga", (*range(8),), "2", {"ROCR_VISIBLE_DEVICES": "6,7"}, ()),
    ],
)
def test_gpus_that_a_program_sees(
    system: str, reach: tuple, given: str | None, words_: dict, seen: tuple
) -> None:
    machine = built(system)
    task = Task(0, machine.nodes[0], 0, (1,), reach, given)
    run = runs.Run(machine, Job(machine), [task], words_)
    # Words behind the task wrapper take the place of what the launcher gave.
    run.wrapped = {0: run.env_of(task) | words_}
    assert runs.visible(run, task) == seen


def test_hpcc_answers_for_its_input() -> None:
    run = one_run("eagle", ["hpcc"], count=36)
    ((_, _, code),) = programs.play(run)
    assert code == 1
    lines = ["title", "title", "HPL.out", "8", "1", "19200  N"]
    Path("hpccinf.txt").write_text("\n".join(lines))
    ((_, text, code),) = programs.play(run)
    report = Path("hpccoutf.txt").read_text()
    assert (text, code) == ("", 0)
    assert "\nHPL_N=19200\n" in report
    assert "\nCommWorldProcs=36\n" in report


def test_fio_leaves_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("data").mkdir()
    command = ["fio", "--name=plumbline", "--directory=data", "--rw=read", "--output-format=json"]
    ((_, text, _),) = programs.play(one_run("eagle", command))
    assert json.loads(text)["jobs"][0]["read"]["bw_bytes"] > 0
    assert Path("data/plumbline.0.0").exists()
    ((_, _, code),) = programs.play(one_run("eagle", ["fio", "--directory=nosuch", "--rw=read"]))
    assert code == 1


def test_hydra_leaves_the_program_its_words() -> None:
    text = "-n 1 ./task.sh 1 numactl --membind=0 prog --x"
    step = launch_mpi.hydra(shlex.split(text), job("sawtooth"))
    assert step.command == shlex.split(text)[2:]
    assert len(step.tasks) == 1
