"""Which launcher and which MPI a program has, by the libraries that it is linked with."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import MPICH
from plumbline.check import tasks
from plumbline.check.placed import Placed
from plumbline.core import process
from plumbline.software import providers
from reframe.core import runtime
from reframe.core.backends import getlauncher
from reframe.core.environments import Environment
from reframe.core.modules import ModulesSystem


@pytest.fixture(autouse=True)
def without_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """ReFrame on a machine that has no module system."""
    here = SimpleNamespace(modules_system=ModulesSystem.create("nomod"))
    monkeypatch.setattr(runtime, "_runtime_context", here)


def test_intel_mpi_is_distinguished_from_mpich(monkeypatch: pytest.MonkeyPatch):
    """Both have libmpi.so.12 and mpiexec.hydra; the launcher prints whose it is."""
    output = "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1821d9b)\n"
    shell = process.Shell({})
    monkeypatch.setattr(process.Shell, "output", lambda *command: output)
    monkeypatch.setattr(process.Shell, "which", lambda self, name, first: f"/x/{name}")
    found = providers._launcher_of("ior", {"mpich": "/x/libmpi.so.12"}, shell, "local")
    assert found == ("mpirun-intelmpi", "/x/mpiexec.mpich", "Intel MPI 2021.19.0")


@pytest.mark.parametrize(
    ("version", "launcher", "extras", "manager"),
    [
        ("4.1.6", "local", {}, "openmpi"),
        ("5.0.7", "local", {}, "openmpi5"),
        ("5.0.7", "openmpi", {}, "openmpi5"),
        ("6.1.0a1", "srun", {"launcher": "openmpi"}, "openmpi5"),
        ("5.0.7", "mpirun-openmpi", {}, "openmpi5"),
        ("5.0.7", "srun", {}, "srun"),
        ("5.0.7", "mpiexec", {"process_manager": "pals"}, "pals"),
    ],
)
def test_open_mpi_5_has_options_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, launcher: str, extras: dict,
    manager: str,
):  # fmt: skip
    """It reads the rank file of Open MPI 4 as other cores, where CPU numbers are not logical."""
    for name, text in {"ior": "", "mpirun": f"echo 'mpirun (Open MPI) {version}'"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(providers, "_libraries", lambda path, shell: {"openmpi": "/x/libmpi.so.40"})
    monkeypatch.setitem(providers._LAUNCHERS, "openmpi", ("Open MPI", "openmpi", ("mpirun",)))
    place = configured(launcher, **extras)
    check = SimpleNamespace(
        found=tasks.find_program("ior", **place, system="there"),
        current_environ=place["environ"],
        job=SimpleNamespace(launcher=getlauncher(launcher)()),
    )
    assert Placed.choose_launcher(check) == manager


def configured(launcher: str, /, **extras: str) -> dict[str, object]:
    """A partition and an environment, as far as finding a program looks at them."""
    partition = SimpleNamespace(
        launcher_type=SimpleNamespace(registered_name=launcher),
        local_env=Environment("node"),
    )
    environ = Environment("gcc", extras=extras)
    return {"partition": partition, "environ": environ}


@pytest.mark.parametrize(
    ("place", "needs_mpiexec"),
    [
        (configured("srun"), False),
        (configured("mpiexec", process_manager="pals"), False),
        (configured("local"), True),
        (configured("srun", launcher="hydra"), True),
        (configured("mpiexec"), True),
    ],
)
def test_a_schedulers_launcher_needs_no_mpiexec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: dict, needs_mpiexec: bool
):
    """srun starts a program of an MPICH that has no mpiexec; nothing else of MPICH's starts it."""
    ior = tmp_path / "ior"
    ior.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(providers, "_libraries", lambda path, shell: {"mpich": "/x/libmpi.so.12"})
    if needs_mpiexec:
        with pytest.raises(providers.NotProvided) as refusal:
            tasks.find_program("ior", **place, system="there")
        assert refusal.value.code == "build.wrong-launcher"
    else:
        found = tasks.find_program("ior", **place, system="there")
        assert (found.path, found.launcher) == (str(ior), "local")
        # This library cannot be asked.
        assert found.build["mpi"] == "MPICH"


def test_a_library_tells_which_mpi_it_is():
    """The mpiexec on PATH may be that of another version."""
    if not (MPICH / "mpiexec").is_file():
        pytest.skip(f"{MPICH / 'mpiexec'} does not exist: run make setup")
    library, launcher = MPICH.parent / "lib" / "libmpi.so.12", str(MPICH / "mpiexec")
    # A module of another Python sets this one.
    shell = process.Shell({"PATH": "", "PYTHONHOME": "/elsewhere"})
    found = providers._launcher_of("ior", {"mpich": str(library)}, shell, "srun")
    assert found == ("local", "", providers.mpi_version(launcher))
    assert found[2].startswith("MPICH ")


@pytest.mark.parametrize("of_partition", [False, True])
def test_the_mpi_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch, of_partition: bool):
    """IMB has no RPATH: it runs with the library that the environment's variables lead to."""
    if not (MPICH / "mpiexec").is_file():
        pytest.skip(f"{MPICH / 'mpiexec'} does not exist: run make setup")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    folder = providers.prefix_of("imb") / "bin"
    variables = {"PATH": f"{folder}:$PATH", "LD_LIBRARY_PATH": str(MPICH.parent / "lib")}
    place = configured("srun")
    if of_partition:
        place["partition"].local_env = Environment("node", env_vars=variables)
    else:
        place["environ"] = Environment("gcc", env_vars=variables)
    found = tasks.find_program("IMB-MPI1", **place, system="there")
    assert found.build["path"] == str(folder / "IMB-MPI1")
    assert found.build["mpi"] == providers.mpi_version(str(MPICH / "mpiexec"))
