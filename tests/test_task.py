"""The task wrapper task.sh, for real."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from plumbline.placement import binding, proof
from plumbline.placement.binding import bind
from plumbline.placement.placement import Layout, Task
from plumbline.placement.proof import read_tasks
from plumbline.placement.topology import Topology, cpus_of_list

TASK = binding.WRAPPER

SHELLS = [
    pytest.param(
        shell,
        marks=pytest.mark.skipif(not shutil.which(shell.split()[0]), reason=f"no {shell} here"),
    )
    for shell in ("sh", "dash", "bash", "busybox sh")
]


def here(most: int = 4) -> Topology:
    """The first usable cores of this machine, as Linux lists them."""
    allowed = os.sched_getaffinity(0)
    cores: dict[tuple[int, ...], int] = {}
    for cpu in sorted(allowed):
        folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        threads = cpus_of_list((folder / "thread_siblings_list").read_text()) & allowed
        cores[tuple(sorted(threads))] = int((folder / "physical_package_id").read_text())
    kept = dict(list(cores.items())[:most])
    mask = {core: hex(sum(1 << cpu for cpu in core)) for core in kept}
    sockets = [
        hex(sum(1 << cpu for core, on in kept.items() if on == socket for cpu in core))
        for socket in sorted(set(kept.values()))
    ]
    return Topology.from_processor(
        {"topology": {"cores": list(mask.values()), "sockets": sockets}},
        [cpu for core in kept for cpu in core],
    )


RANK_VARIABLES = (
    *("OMPI_", "PMI", "PALS_", "ALPS_", "FLUX_", "SLURM_", "HYDRA_", "MV2_", "MVP_", "MPT_"),
    *("MPI_LOCAL", "JSM_", "LOCAL_RANK"),
)


def run_task(
    *command: object, folder: Path | None = None, **env: str
) -> subprocess.CompletedProcess:
    left_out = (*RANK_VARIABLES, "CUDA_", "ROCR_", "HIP_", "GPU_DEVICE_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    words = [str(word) for word in command]
    return subprocess.run(
        [*words[0].split(), *words[1:]],
        cwd=folder,
        env=kept | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({}, 0),
        ({"SLURM_PROCID": "3"}, 3),
        ({"PMI_RANK": "2", "SLURM_PROCID": "0"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "7", "SLURM_PROCID": "0"}, 1),
        ({"JSM_NAMESPACE_RANK": "6"}, 6),
        ({"PMIX_RANK": "8", "SLURM_PROCID": "0"}, 8),
        ({"MV2_COMM_WORLD_RANK": "9"}, 9),
        ({"MPT_MPI_RANK": "11"}, 11),
        ({"PALS_RANKID": "4"}, 4),
        ({"ALPS_APP_PE": "10"}, 10),
        ({"FLUX_TASK_RANK": "5"}, 5),
    ],
)
def test_rank_is_the_launchers(env: dict, rank: int) -> None:
    (task,) = read_tasks(run_task("sh", TASK, 1, "true", **env).stderr)
    assert task.rank == rank
    assert task.host == platform.node()
    assert cpus_of_list(task.cpus) == os.sched_getaffinity(0)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_task_becomes_its_program(shell: str) -> None:
    code = "import os, sys; print(os.getppid()); sys.exit(7)"
    done = run_task(shell, TASK, 0, sys.executable, "-c", code)
    assert done.returncode == 7
    # No shell between the launcher and the program.
    assert int(done.stdout) == os.getpid()
    facts = proof.host_facts(done.stderr)
    assert facts[platform.node()]["kernel"] == platform.release()
    assert run_task(shell, TASK, 0, "plumbline-no-such-program").returncode == 127


@pytest.mark.parametrize("shell", SHELLS)
def test_a_task_starts_nothing_but_its_program(shell: str) -> None:
    """It runs for each of thousands of tasks: without a PATH there is no other program."""
    name, *rest = shell.split()
    path = " ".join([shutil.which(name), *rest])
    done = run_task(path, TASK, 1, shutil.which("echo"), "two  words", PATH="")
    assert (done.returncode, done.stdout) == (0, "two  words\n")
    assert len(done.stderr.splitlines()) == 1
    assert len(read_tasks(done.stderr)) == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_words_before_the_program(shell: str, tmp_path: Path) -> None:
    """Values of any kind; a program whose path has a = is no word."""
    program = tmp_path / "a=b"
    program.write_text('#!/bin/sh\nprintf \'%s|\' "$OMP_PLACES" "$EMPTY" "$@"\n')
    program.chmod(0o755)
    words = ["OMP_PLACES={0},{4} $HOME 'x'", "EMPTY="]
    done = run_task(shell, TASK, 1, *words, program, "C=d", EMPTY="no")
    assert done.stdout == f"{words[0].partition('=')[2]}||C=d|"


@pytest.mark.parametrize("shell", SHELLS)
def test_output_of_each_rank(shell: str, tmp_path: Path) -> None:
    code = "import os; print(os.environ.get('PLUMBLINE_OUTPUT'))"
    word = "PLUMBLINE_OUTPUT=sample-0"
    done = run_task(
        shell, TASK, 1, word, "A=b", sys.executable, "-c", code, folder=tmp_path, PMI_RANK="12"
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "sample-0.12.out").read_text() == "None\n"
    assert [task.rank for task in read_tasks(done.stderr)] == [12]


#: Environment, words -> GPUs as given, and as the program sees them.
GPU_COLUMNS = [
    ({}, [], "", ""),
    ({"CUDA_VISIBLE_DEVICES": "3"}, [], "3", "3"),
    ({"ROCR_VISIBLE_DEVICES": "3"}, [], "3", "3"),
    ({"CUDA_VISIBLE_DEVICES": ""}, [], "none", "none"),
    ({}, ["CUDA_VISIBLE_DEVICES=1,0"], "", "1,0"),
    ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, ["CUDA_VISIBLE_DEVICES=1"], "0,1,2", "1"),
    ({"CUDA_VISIBLE_DEVICES": ""}, ["CUDA_VISIBLE_DEVICES=1"], "none", "1"),
    ({"ROCR_VISIBLE_DEVICES": "0,1"}, ["ROCR_VISIBLE_DEVICES=1"], "0,1", "1"),
    # Slurm may set both: the words show which one counts.
    (
        {"CUDA_VISIBLE_DEVICES": "5", "ROCR_VISIBLE_DEVICES": "0,1"},
        ["CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=5"],
        "5",
        "5",
    ),
    ({"CUDA_VISIBLE_DEVICES": "5"}, ["ROCR_VISIBLE_DEVICES=1"], "", "1"),
    # As it does for AMD's, each with its own list.
    (
        {"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "1"},
        ["PLUMBLINE_DEVICES=rocm:0"],
        "1",
        "1",
    ),
    ({"CUDA_VISIBLE_DEVICES": "3"}, ["PLUMBLINE_DEVICES=rocm:0"], "3", "3"),
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("env", "words", "given", "gpus"), GPU_COLUMNS)
def test_gpus_given_and_visible(shell: str, env: dict, words: list, given: str, gpus: str) -> None:
    done = run_task(shell, TASK, 1, *words, "env", **env)
    (task,) = read_tasks(done.stderr)
    assert (task.given, task.gpus) == (given, gpus)
    left = set(done.stdout.splitlines())
    assert {word for word in words if not word.startswith("PLUMBLINE_")} <= left
    if "ROCR_VISIBLE_DEVICES" in env and "PLUMBLINE_DEVICES=rocm:0" in words:
        assert not any(line.startswith("CUDA_VISIBLE_DEVICES=") for line in left)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("prefix", ["", "PLUMBLINE_"])
def test_no_other_list_of_gpus_counts(shell: str, prefix: str) -> None:
    """HIP would count it in what ROCR_VISIBLE_DEVICES leaves, and its own in place of CUDA's."""
    lists = dict.fromkeys(("HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"), "0")
    words = {
        f"{prefix}ROCR_VISIBLE_DEVICES=2,3": {"ROCR_VISIBLE_DEVICES"},
        f"{prefix}CUDA_VISIBLE_DEVICES=2,3": {"CUDA_VISIBLE_DEVICES"},
        # Flux gives AMD's GPUs so.
        "A=B": {"CUDA_VISIBLE_DEVICES"},
    }
    for word, left in words.items():
        env = {**lists, "CUDA_VISIBLE_DEVICES": "0", "PMI_LOCAL_RANK": "1"}
        done = run_task(shell, TASK, 1, word, "env", **env)
        names = {line.partition("=")[0] for line in done.stdout.splitlines()}
        assert names & {*lists, "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} == left


#: What each launcher sets for the second task of the second of two nodes, rank 3.
LOCAL_RANKS = {
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_RANK": "3"},
    "jsrun": {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_LOCAL_RANK": "1", "PMIX_RANK": "3"},
    "MVAPICH2": {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_LOCAL_RANK": "1"},
    "MVAPICH": {"PMI_RANK": "3", "MVP_COMM_WORLD_LOCAL_RANK": "1"},
    "Hydra": {"PMI_RANK": "3", "MPI_LOCALRANKID": "1"},
    "PALS": {"PALS_RANKID": "3", "PALS_LOCAL_RANKID": "1", "PMI_RANK": "3"},
    "PALS's PMI": {"PMI_RANK": "3", "PMI_LOCAL_RANK": "1"},
    "Flux": {"FLUX_TASK_RANK": "3", "FLUX_TASK_LOCAL_ID": "1", "PMI_RANK": "3"},
    "srun": {"SLURM_PROCID": "3", "SLURM_LOCALID": "1"},
    "srun, PMIx": {"PMIX_RANK": "3", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"},
}

#: What those set that give no local rank, and what a batch script's environment adds to any.
ONLY_RANKS = {"ALPS": {"ALPS_APP_PE": "3"}, "MPT": {"MPT_MPI_RANK": "3"}}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "LOCAL_RANK": "0"}


def local_rank(shell: str, *words: str, **env: str) -> tuple[list[str | None], int]:
    """The local rank as the program gets it, in the two variables, and in the task's report."""
    names = ("MV2_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")
    done = run_task(shell, TASK, 1, *words, "env", **env)
    given = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return [given.get(name) for name in names], read_tasks(done.stderr)[0].local


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("launcher", LOCAL_RANKS)
def test_the_local_rank_under_every_launcher(launcher: str, shell: str) -> None:
    env = LOCAL_RANKS[launcher]
    assert local_rank(shell, **env) == (["1", "1"], 1)
    if "SLURM_PROCID" not in env:
        assert local_rank(shell, **BATCH_SCRIPT | env) == (["1", "1"], 1)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("launcher", ONLY_RANKS)
def test_the_local_rank_if_the_launcher_gives_none(launcher: str, shell: str) -> None:
    env = BATCH_SCRIPT | ONLY_RANKS[launcher]
    assert local_rank(shell, "PLUMBLINE_PER_NODE=2", **env) == (["1", "1"], 1)
    # It is not made up.
    assert local_rank(shell, **env) == ([None, "0"], -1)
    assert local_rank(shell) == ([None, None], -1)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_local_rank_from_an_empty_environment(shell: str) -> None:
    command = ["env", "-i", "FLUX_TASK_LOCAL_ID=1", f"PATH={os.environ['PATH']}", *shell.split()]
    done = subprocess.run([*command, TASK, "1", "env"], capture_output=True, text=True, check=True)
    assert {"LOCAL_RANK=1", "MV2_COMM_WORLD_LOCAL_RANK=1"} <= set(done.stdout.splitlines())


@pytest.mark.parametrize("shell", SHELLS)
def test_no_mpi_binds_again_after_the_report(shell: str) -> None:
    """Whatever the launcher: MVAPICH2, MVAPICH and Open MPI 4 do in MPI_Init, and PSM of Omni-Path,
    unless these are set so."""
    names = {"MV2_ENABLE_AFFINITY": "0", "MVP_ENABLE_AFFINITY": "0",
             "HFI_NO_CPUAFFINITY": "1", "PSM3_NO_CPUAFFINITY": "1",
             "OMPI_MCA_hwloc_base_binding_policy": "none"}  # fmt: skip
    # Two older names of the policy, which contradict it.
    older = {f"OMPI_MCA_hwloc_base_bind_to_{which}": "1" for which in ("core", "socket")}
    for env in ({}, {name: "01"[value == "0"] for name, value in names.items()} | older):
        done = run_task(shell, TASK, 1, "env", **env)
        given = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        assert given.items() >= names.items()
        assert not given.keys() & older.keys()


#: What overrules the confirmed ranks, and the words for OpenMP, or slows a GPU.
UNSET_BY_TASK = (
    *("MPICH_RANK_REORDER_METHOD", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "KMP_AFFINITY"),
    *("GOMP_CPU_AFFINITY", "KMP_HW_SUBSET", "KMP_PLACE_THREADS", "KMP_DEVICE_THREAD_LIMIT"),
    *("KMP_ALL_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS"),
    *("MKL_DOMAIN_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_MAX_ACTIVE_LEVELS", "KMP_LIBRARY"),
    *("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "HSA_CU_MASK", "ROC_GLOBAL_CU_MASK"),
    *("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY"),
)


@pytest.mark.parametrize("shell", SHELLS)
def test_no_variable_of_the_user_changes_ranks_or_threads(shell: str) -> None:
    words = ("OMP_NUM_THREADS=2", "OMP_PROC_BIND=close", "OMP_PLACES={0},{1}")
    env = dict.fromkeys((*UNSET_BY_TASK, "OMP_PLACES", "OMP_NUM_THREADS"), "1")
    lines = {*run_task(shell, TASK, 1, *words, "env", **env).stdout.splitlines()}
    assert lines >= {*words}
    assert not {line.partition("=")[0] for line in lines} & {*UNSET_BY_TASK}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_a_gpu_by_local_rank(variable: str, shell: str) -> None:
    word = f"PLUMBLINE_{variable}=3,2,1,0"

    def run(local: str) -> subprocess.CompletedProcess:
        env = {"PALS_RANKID": local, "PALS_LOCAL_RANKID": local, variable: "0,1,2,3"}
        return run_task(shell, TASK, 1, word, "env", **env)

    for local, gpu in ("0", "3"), ("1", "2"), ("3", "0"):
        done = run(local)
        (task,) = read_tasks(done.stderr)
        assert (task.given, task.gpus) == ("0,1,2,3", gpu)
        assert f"{variable}={gpu}" in done.stdout.splitlines()
        assert f"PLUMBLINE_{variable}" not in done.stdout
    # No GPU is left for it, or it is not known which task it is: nothing runs.
    for done in run("4"), run_task(shell, TASK, 1, word, "env"):
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("task.sh: rank ")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("launcher", LOCAL_RANKS)
def test_a_task_is_bound_to_the_cpus_of_its_local_rank(shell: str, launcher: str) -> None:
    cpu = max(os.sched_getaffinity(0))
    code = "import os; print(os.sched_getaffinity(0), 'PLUMBLINE_CPUS' in os.environ)"
    words = [f"PLUMBLINE_CPUS=999:{cpu}:998", sys.executable, "-c", code]
    done = run_task(shell, TASK, 1, *words, **LOCAL_RANKS[launcher])
    (task,) = read_tasks(done.stderr)
    assert (task.cpus, done.stdout) == (str(cpu), f"{{{cpu}}} False\n")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({}, "PLUMBLINE_CPUS=0:0"),
        ({"JSM_NAMESPACE_LOCAL_RANK": "2"}, "PLUMBLINE_CPUS=0:0"),
        ({}, "PLUMBLINE_CPUS=9999"),
    ],
)
def test_a_task_that_cannot_be_bound_does_not_run(shell: str, env: dict, word: str) -> None:
    """Not on another CPU: the case is then invalid, with the wrapper's words."""
    done = run_task(shell, TASK, 1, word, "echo", "ran", **env)
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.startswith(("task.sh: rank 0 on", "taskset: "))


@pytest.mark.skipif(not shutil.which("numactl"), reason="numactl is not installed")
def test_memory_words() -> None:
    """What ``numactl --membind`` does, and that it ends with an error where it cannot."""
    if run_task("numactl", "--membind=0", "true").returncode:
        pytest.skip("numactl may not bind memory here")
    layout = Layout("memory", (Task(0, here().cores[:1], 0),))
    words = bind(layout, "local").task
    done = run_task("sh", TASK, 1, *words, "numactl", "--show")
    assert "policy: bind" in done.stdout
    assert "membind: 0" in done.stdout
    missing = Layout("memory", (Task(0, here().cores[:1], 4095),))
    assert run_task("sh", TASK, 1, *bind(missing, "local").task, "true").returncode != 0
