"""The simulated facility: its launchers by the manuals, its programs' formats by the captures, and
its machines by the systems' files. What its sessions give is tested in ``test_facility.py``, and
its faults are in ``test_facility_faults.py``."""

from __future__ import annotations

import ast
import functools
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import facility
import pytest
import yaml
from facility import launch, launch_mpi, main, programs
from facility import machine as machines
from facility import run as runs
from facility.job import Job, Task
from facility.machine import Machine, list_of, numbers
from facility.options import Refused
from facility.programs import osu

ROOT = Path(__file__).resolve().parents[1]
CAPTURES = ROOT / "tests" / "captures"
FOLDER = Path(facility.__file__).parent


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


# -- formats --------------------------------------------------------------------------------------

OSU = """
acc_latency allgather allreduce allreduce_int allreduce_one_process alltoall bad_value barrier bcast
bibw bibw_multiple bw bw_c bw_multiple cas_latency fop_latency gather get_acc_latency get_bw
get_latency iallgather iallreduce iallreduce_int ialltoall ibarrier ibcast latency latency_c
latency_float latency_full mbw_mr mbw_mr_4 mbw_mr_multiple multi_lat multi_lat_4 one_process
put_bibw put_bw put_latency reduce reduce_scatter scatter three_processes
"""
GPCNET = "test_1node test_2nodes load_test_1node load_test_9nodes load_test_10nodes"
IMB = "pingpong pingping sendrecv exchange allreduce reduce bcast barrier"

#: Captures of the commands that the checks run, and of what these meet.
CAPTURED = [
    *(f"osu/v74_mpich_{name}" for name in OSU.split()),
    *("babelstream/v50_omp", "babelstream/v50_cuda", "babelstream/v50_cuda_odd_size"),
    *(f"mdtest/v400_mpich_{name}" for name in ("files", "shift", "create_only", "one_process")),
    *(f"gpcnet/v13_mpich_network_{name}" for name in GPCNET.split()),
    *(f"imb/{name}" for name in IMB.split()),
]


def masked(text: str, left: bool) -> str:
    """A text without its numbers and without the names of day and month. A number's place is kept
    with the blanks before it.

    :arg left: whether columns are aligned on the left: with the blanks behind it.
    """
    number = r"-?(?:\d[\d.]*(?:e[+-]?\d+)?|nan|inf)"
    text = re.sub(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2}(?= +\d+ \d+:)", "Day Mon", text)
    if left:
        text = re.sub(rf"(\(=){number}\s", r"\1# ", text)
    pattern = rf"{number} *" if left else rf" *{number}"
    return re.sub(pattern, lambda found: "#" * len(found[0]), text)


def play(command: str, system: str = "sawtooth", spread: int = 0) -> tuple[str, int]:
    """What a captured command prints here: standard output and exit code.

    :arg spread: ranks of each node, where the capture made several of one.
    """
    parts = shlex.split(command)
    env = {}
    while re.match(r"\w+=", parts[0]):
        name, _, value = parts.pop(0).partition("=")
        env[name] = value
    count = int(parts[2]) if parts[0] == "mpiexec" else 1
    while parts[0] == "mpiexec" or not (FOLDER / "bin" / parts[0]).exists():
        parts.pop(0)
    machine = built(system)
    each = spread or count
    gpus = (*range(machine.num_gpus),)
    tasks = [
        Task(rank, machine.nodes[rank // each], rank % each, (rank % each,), gpus)
        for rank in range(count)
    ]
    ((_, text, code),) = programs.play(one_run(system, parts, tasks, **env))
    return text.replace(machine.facts.get("gpu_name", "no GPU"), "Stand-in GPU"), code


@pytest.mark.parametrize("name", CAPTURED)
def test_a_program_prints_the_captured_format(name: str, capsys: pytest.CaptureFixture) -> None:
    path, benchmark = CAPTURES / f"{name}.cmd", name.partition("/")[0]
    Path("data").mkdir()  # of mdtest
    system = "perlmutter" if "cuda" in name else "sawtooth"
    command = path.read_text()
    text, code = play(command, system, spread=int("fakenode" in command))
    expected = path.with_suffix(".out").read_text()
    left = benchmark == "babelstream"
    assert masked(text, left) == masked(expected, left)
    errors = path.with_suffix(".err")
    if benchmark == "osu":
        lines = errors.read_text().splitlines() if errors.exists() else []
        assert capsys.readouterr().err.splitlines()[:1] == lines[:1]
        assert bool(code) == bool(lines)


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


def one_run(system: str, parts: list[str], tasks: list[Task], **env: str) -> runs.Run:
    """A program's run by some tasks."""
    machine = built(system)
    run = runs.Run(machine, Job(machine), tasks, env)
    run.program, run.words = Path(parts[0]).name, parts
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
    ("hydra sawtooth 2 2", "-n 4", ["0-47"] * 4, [0, 0, 1, 1]),
    ("hydra sawtooth 1 2", "-n 2 -bind-to user:0+1,24", ["0-1", "24"], [0, 0]),
    ("hydra sawtooth 2 2", "-n 2 -ppn 1 -bind-to user:0", ["0", "0"], [0, 1]),
    # Intel's Hydra ignores -ppn under a scheduler.
    ("intel sawtooth 1 2", "-n 2 -genv I_MPI_PIN_DOMAIN [0x1,0x1000000]", ["0", "24"], [0, 0]),
    ("intel sawtooth 2 2", "-n 2 -ppn 1 -genv I_MPI_PIN_DOMAIN [0x1,0x2]", ["0", "1"], [0, 0]),
    ("intel sawtooth 2 2", "-genv I_MPI_JOB_RESPECT_PROCESS_PLACEMENT 0 -n 2 -ppn 1 "
     "-genv I_MPI_PIN_DOMAIN [0x1]", ["0", "0"], [0, 1]),
    ("pals polaris 2 1", "-n 4 --ppn 2 --cpu-bind list:0:8-9,40", ["0", "8-9,40"] * 2,
     [0, 0, 1, 1]),
    # Of a list, a PE has one CPU.
    ("aprun theta 1 1", "-n 2 -N 2 -d 4 -cc depth", ["0-3", "4-7"], [0, 0]),
    ("aprun theta 1 1", "-n 2 -N 2 -cc 0,33", ["0", "33"], [0, 0]),
    ("aprun theta 1 1", "-n 1 -cc none", ["0-255"], [0]),
    ("flux tioga 2 1", f"-N 2 --tasks-per-node=2 {_OFF} -o 'cpu-affinity=map:1;9-10'",
     ["1", "9-10"] * 2, [0, 0, 1, 1]),
]  # fmt: skip


def test_flux_removes_a_variable_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCR_VISIBLE_DEVICES", "ROCR_OTHER"):
        monkeypatch.setenv(name, "0")
    launched("flux tioga 1 1", f"-N 1 --env=-ROCR_VISIBLE_DEVICES {_OFF} -o cpu-affinity=map:1")
    assert "ROCR_VISIBLE_DEVICES" not in os.environ and os.environ["ROCR_OTHER"] == "0"


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


def test_mpt_starts_a_shell_and_leaves_it_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPI_DSM_OFF", raising=False)
    monkeypatch.delenv("MPI_SHEPHERD", raising=False)
    for variable, value in (("MPI_DSM_OFF", "1"), ("MPI_SHEPHERD", "true")):
        with pytest.raises(Refused):
            launched("mpt reedbush-u 2 2", "-np 2 -ppn 1")
        monkeypatch.setenv(variable, value)
    step, of = launched("mpt reedbush-u 2 2", "-np 2 -ppn 1")
    assert (cpus(step), nodes(step, of)) == (["0-35"] * 2, [0, 1])


#: Launcher, system, options -> the list of GPUs in the environment of each task.
GPUS = [
    ("srun frontier 1 1", "-n 2 --gpu-bind=none", ["0,1,2,3,4,5,6,7"] * 2),
    ("jsrun summit 1 1", "-n 6 -r 6 -a 1 -c 7 -g 1 -b rs", list("012345")),
    ("jsrun summit 1 1", "-n 1 -a 1 -c ALL_CPUS -g ALL_GPUS -b rs", ["0,1,2,3,4,5"]),
    ("pals polaris 1 1", "-n 1 --cpu-bind list:0", [None]),
    ("flux tioga 1 1", f"-N 1 --tasks-per-node=2 -o cpu-affinity=map:0 {_OFF}", [None, None]),
    ("flux tioga 1 1", "-N 1 --tasks-per-node=2 -x -o mpibind=off -o cpu-affinity=map:0 "
     "-o 'gpu-affinity=map:3;0,1'", ["3", "0,1"]),
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
    for options in (f"-np 2 {physical}", "-np 1 --rankfile ranks", "-np 1"):
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
    "mpirun eagle 2 2": ["--nosuch", "--host nowhere:1"],
    "hydra sawtooth 1 1": ["-n 2 --nosuch", "-bind-to left", "-bind-to user:999", "-hosts nowhere"],
    "intel sawtooth 1 1": ["-n 1", "-genv I_MPI_PIN_DOMAIN left"],
    "pals polaris 1 1": ["--nosuch", "--gpu-bind list:3:0", "-n 2 --ppn 2 --cpu-bind list:0",
                         "-n 3 --ppn 1 --cpu-bind list:0", "--cpu-bind left", "-n 1"],
    "mpt reedbush-u 1 2": ["--nosuch", "-np 3"],
    "aprun cielo 1 1": ["--nosuch", "-n x", "-n 17 -N 17", "-n 99", "-cc 77", "-cc left", "-n 1"],
    "flux tioga 2 1": ["--nosuch", f"-N x {_OFF}", f"-N 3 {_OFF}", "-N 1 -x",
                       f"-N 1 --tasks-per-node=65 {_OFF}", "-N 1 -o mpibind=off",
                       f"-N 1 -o cpu-affinity=left {_OFF}", f"-N 1 --env=ROCR* {_OFF}"],
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


#: Variables of a launcher's ranks -> that in which OSU looks for the local rank.
LOCAL_RANKS = {
    launch._slurm_ranks: "SLURM_PROCID",
    launch._jsm_ranks: "OMPI_COMM_WORLD_LOCAL_RANK",
    launch_mpi._openmpi_ranks: "OMPI_COMM_WORLD_LOCAL_RANK",
    launch_mpi._hydra_ranks: "MPI_LOCALRANKID",
    **dict.fromkeys((launch_mpi._pals_ranks, launch_mpi._mpt_ranks), None),
    **dict.fromkeys((launch_mpi._alps_ranks, launch_mpi._flux_ranks), None),
}


@pytest.mark.parametrize("ranks", LOCAL_RANKS)
def test_where_osu_finds_the_local_rank(ranks: launch.RankVariables) -> None:
    passed = ranks(Task(5, "node", 1, ()))
    found = (name for name in osu.LOCAL_RANKS if name in passed)
    assert next(found, None) == LOCAL_RANKS[ranks]


def test_a_machine_has_its_own_launchers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main.launcher("jsrun", built("summit")) is launch.jsrun
    with pytest.raises(Refused):
        main.launcher("srun", built("summit"))
    assert main.launcher("mpiexec", built("polaris")) is launch_mpi.pals
    reedbush = built("reedbush-u")
    for module, flavour in (("mvapich2/2.2rc1", "mvapich"), ("openmpi/1.10.2", "openmpi")):
        monkeypatch.setenv("LOADEDMODULES", f"intel/16.0.3:{module}")
        assert main.flavour_of(reedbush) == flavour


# -- task.sh --------------------------------------------------------------------------------------


def test_numactl_and_taskset_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    of = job("summit")
    run = runs.Run(of.machine, of, [Task(0, of.nodes[0], 0, of.cpus)], {})
    runs.wrappers(run, ["numactl", "--membind=8", "--physcpubind=0-3", "prog"])
    assert (run.tasks[0].memory, run.tasks[0].cpus) == ((8,), (0, 1, 2, 3))
    runs.wrappers(run, ["taskset", "-c", "4,5", "prog"])
    assert run.tasks[0].cpus == (4, 5)
    with pytest.raises(Refused):
        runs.wrappers(run, ["numactl", "--membind=1", "prog"])
    with pytest.raises(Refused):
        runs.wrappers(run, ["numactl", "--nosuch", "prog"])


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


# -- batch systems --------------------------------------------------------------------------------


def test_a_command_ends_with_the_one_who_called() -> None:
    """Though the server runs it."""
    env = facility.environment("eagle", Path("state").resolve(), fault={"kind": "hang"})
    process = subprocess.Popen(["omp-stream"], env=env, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    process.kill()
    # The output ends when nobody has it any more.
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def script(sentinel: str, options: str) -> str:
    lines = [f"{sentinel} {option}" for option in options.splitlines() if option.strip()]
    return "\n".join(["#!/bin/bash", *lines, "true", ""])


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
        "-l filesystems=home\n-l select=2",
        "-l filesystems=home\n-l walltime=soon", "-l filesystems=home\n-l walltime=0:4:59",
        "-l filesystems=home\n-Y 1", "-l filesystems=home\n-r maybe", "-N 1st\n-l filesystems=home",
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


# -- the machines ---------------------------------------------------------------------------------


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
