"""The launchers, for real."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from plumbline.core import paths
from plumbline.placement import binding, proof
from plumbline.placement.binding import bind
from plumbline.placement.placement import Layout, Task
from plumbline.placement.proof import prove, read_tasks
from plumbline.placement.topology import Core
from test_proof import CPUS, only, refused
from test_task import TASK, here, run_task

MPICH = paths.tools() / "mpich" / "bin" / "mpiexec"
INTEL = paths.tools() / "imb" / "bin" / "mpiexec.hydra"

AS_ROOT = {
    f"{name}_ALLOW_RUN_AS_ROOT{more}": "1" for name in ("OMPI", "PRTE") for more in ("", "_CONFIRM")
}


def local() -> Sequence[object]:
    if not shutil.which("taskset"):
        pytest.skip("taskset is not installed")
    return []


def wheel(path: Path) -> Sequence[object]:
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the tools: make setup")
    return [path, "-n", "{tasks}"]


def open_mpi(version: int) -> Sequence[object]:
    output = ""
    if shutil.which("mpirun"):
        output = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if f"(Open MPI) {version}." not in output:
        pytest.skip(f"the mpirun on PATH is not Open MPI {version}'s: {output[:40] or 'none'!r}")
    return ["mpirun", "-np", "{tasks}"]


def srun() -> Sequence[object]:
    if not (shutil.which("srun") and "SLURM_JOB_ID" in os.environ):
        pytest.skip("not in a Slurm allocation")
    return ["srun"]


def flux() -> Sequence[object]:
    if not shutil.which("flux"):
        pytest.skip("flux is not installed")
    return ["flux", "start", "flux", "run"]


#: Launcher -> the command that it starts with; skips where it is not here.
COMMANDS: dict[str, Callable[[], Sequence[object]]] = {
    "local": local,
    "hydra": functools.partial(wheel, MPICH),
    "mpirun-intelmpi": functools.partial(wheel, INTEL),
    "openmpi": functools.partial(open_mpi, 4),
    "openmpi5": functools.partial(open_mpi, 5),
    "srun": srun,
    "flux-run": flux,
}


def layouts_here() -> dict[str, Layout]:
    """Layouts of this machine: none is what a launcher does by default."""
    first, second, *_ = here().cores
    backwards = (Task(0, (second,)), Task(0, (first,)))
    both = tuple(Task(0, (core,), None, (3, 1)) for core in (second, first))
    return {
        "second core": Layout("second core", (Task(0, (second,)),)),
        "two cores": Layout("two cores", (Task(0, (first, second)),)),
        "backwards": Layout("backwards", backwards),
        "two GPUs": Layout("two GPUs", both, ("gpu3-gpu1",), vendor="cuda"),
    }


def run_bound(
    launcher: str, layout: Layout, folder: Path, *program: object, sample: int = 1, **user: str
):
    """A program under a launcher, bound; the tests' own launcher variables are left out."""
    command = [str(word).format(tasks=layout.num_tasks) for word in COMMANDS[launcher]()]
    bound = bind(layout, launcher)
    for name, text in bound.files.items():
        (folder / name).write_text(text)
    slurm = {k: v for k, v in os.environ.items() if launcher == "srun" and k.startswith("SLURM")}
    env = AS_ROOT | bound.env_vars | slurm | user
    return run_task(
        *command, *bound.options, "sh", TASK, sample, *bound.task, *program, folder=folder, **env
    )


@pytest.mark.skipif(len(here().cores) < 2, reason="one core alone may be used")
@pytest.mark.parametrize(
    ("launcher", "name"),
    [
        (launcher, name)
        for launcher in COMMANDS
        for name in ("second core", "two cores", "backwards", "two GPUs")
        # It starts one task.
        if launcher != "local" or "core" in name
    ],
)
def test_a_launcher_binds_what_task_sh_sees(launcher: str, name: str, tmp_path: Path) -> None:
    layout = layouts_here()[name]
    done = run_bound(launcher, layout, tmp_path, "true")
    assert done.returncode == 0, done.stderr
    prove(layout, read_tasks(done.stderr))


#: Launcher, and a variable of a user's environment with which it does not do what its options say.
OBSTINATE = [
    ("mpirun-intelmpi", "I_MPI_PIN_PROCESSOR_LIST", "0,0"),
    ("mpirun-intelmpi", "I_MPI_PIN_PROCESSOR_EXCLUDE_LIST", "{first}"),
    ("openmpi", "OMPI_MCA_rmaps", "round_robin"),
    ("openmpi", "OMPI_MCA_rmaps_base_mapping_policy", "node"),
    ("openmpi", "OMPI_MCA_rmaps_base_no_schedule_local", "1"),
    # They start nothing if it names hosts that are not there.
    ("hydra", "HYDRA_HOST_FILE", "/dev/null/hosts"),
    ("mpirun-intelmpi", "I_MPI_HYDRA_HOST_FILE", "/dev/null/hosts"),
]


def test_the_job_unsets_what_overrules_a_binding() -> None:
    assert {name for _, name, _ in OBSTINATE} == {*binding.OVERRULING}


def test_overruled_has_all_that_the_job_and_task_sh_set() -> None:
    """Also in lines that are continued; and all words of a task."""
    core = Core((0,), 0, 0)
    words = [
        word.partition("=")[0]
        for vendor in ("cuda", "rocm")
        for word in binding.task_words(Layout("", (Task(0, (core,), None, (0,)),), vendor=vendor))
        if "=" in word
    ]
    unset = {"MPICH_RANK_REORDER_METHOD", "BLIS_NUM_THREADS", "MV2_ENABLE_AFFINITY"}
    found = binding.overruled()
    assert {*words, *unset, *binding.UNSET} <= found
    assert all(re.fullmatch(r"\w+", name) for name in found)


@pytest.mark.skipif(len(here().cores) < 2, reason="one core alone may be used")
@pytest.mark.parametrize(("launcher", "name", "value"), OBSTINATE)
def test_a_launcher_does_not_do_what_its_options_say(
    launcher: str, name: str, value: str, tmp_path: Path
) -> None:
    layout = layouts_here()["backwards"]
    user = {name: value.format(first=here().cores[0].cpus[0])}
    done = run_bound(launcher, layout, tmp_path, "true", **user)
    with pytest.raises(proof.BindingMismatch):
        prove(layout, read_tasks(done.stderr))


@pytest.mark.skipif(len(here().cores) < 2, reason="one core alone may be used")
@pytest.mark.parametrize("launcher", [name for name in COMMANDS if name != "local"])
def test_a_launcher_that_binds_elsewhere_is_detected(launcher: str, tmp_path: Path) -> None:
    layouts = layouts_here()
    done = run_bound(launcher, layouts["backwards"], tmp_path, "true")
    forwards = Layout("forwards", tuple(reversed(layouts["backwards"].tasks)))
    with refused(CPUS):
        prove(forwards, read_tasks(done.stderr))


@pytest.mark.skipif(len(here().cores) < 2, reason="one core alone may be used")
def test_a_task_that_is_not_bound_is_detected() -> None:
    done = run_task("sh", TASK, 1, "true")
    with refused(CPUS):
        prove(only("one-core", here()), read_tasks(done.stderr))


@pytest.mark.skipif(len(here().cores) < 2, reason="one core alone may be used")
@pytest.mark.parametrize("launcher", ["hydra", "mpirun-intelmpi"])
def test_a_batch_scripts_rank_is_not_the_tasks(launcher: str, tmp_path: Path) -> None:
    """It is in the environment under every launcher; each host reports its facts."""
    layout = layouts_here()["backwards"]
    command = [str(word).format(tasks=2) for word in COMMANDS[launcher]()]
    bound = bind(layout, launcher)
    done = run_task(
        *command, *bound.options, "sh", TASK, 0, "true", folder=tmp_path, SLURM_PROCID="0"
    )
    prove(layout, read_tasks(done.stderr))
    (facts,) = proof.host_facts(done.stderr).values()
    assert facts["kernel"] == platform.release()
