"""The compilers, tools and MPI that a machine has, which Spack takes as externals."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from plumbline.parse import osu
from plumbline.software import build, debian, environments, externals, programs, spack
from spack_site import LOCK, hashed


def test_tools_print_their_version(tmp_path: Path):
    """Each as its distribution's program prints it; nothing of a program that prints another."""
    printed = {
        "autoconf": ("autoconf", "autoconf (GNU Autoconf) 2.71\nCopyright"),
        "automake": ("automake", "automake (GNU automake) 1.16.5\n"),
        "cmake": ("cmake", "cmake version 3.25.1\n"),
        "gcc": ("gcc", "12.2.0\n"),
        "gmake": ("make", "GNU Make 4.3\nBuilt for"),
        "libtool": ("libtoolize", "libtoolize (GNU libtool) 2.4.7\n"),
        "m4": ("m4", "m4 (GNU M4) 1.4.19\n"),
        "mpich": ("mpiexec.mpich", "HYDRA build details:\n    Version:       4.0.2\n"),
        "numactl": ("pkgconf", "2.0.16\n"),
        "openmpi": ("mpirun.openmpi", "mpirun.openmpi (OpenRTE) 4.1.4\nmpirun (Open MPI) 4.1.4\n"),
        "perl": ("perl", "5.36.0"),
        "pkgconf": ("pkgconf", "1.8.1\n"),
    }
    assert set(printed) == set(externals.TOOLS)
    for package, (program, text) in printed.items():
        prefix = tmp_path / package
        (prefix / "bin").mkdir(parents=True)
        path = prefix / "bin" / program
        path.write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\n")
        assert externals.version_at(package, str(prefix)) is None
        path.chmod(0o755)
        version = externals.version_at(package, str(prefix))
        assert version and version in text
        path.write_text("#!/bin/sh\necho 'segmentation fault'\n")
        assert externals.version_at(package, str(prefix)) is None


@pytest.fixture
def openmpi(tmp_path: Path) -> Path:
    """A prefix like Debian's: what runs is there, and a wrapper that calls the real compiler with
    headers and libraries of a folder that another package brings."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    run = "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n"
    for name in ("mpicc", "mpicxx"):
        compiler = {"mpicc": "gcc", "mpicxx": "g++"}[name]
        own = f"-I{tmp_path}/include -L{tmp_path}/lib -lmpi_own"
        wrapper = f'#!/bin/sh\nexec {compiler} -nostdinc "$@" {own}\n'
        (bin_ / f"{name}.openmpi").write_text(wrapper)
    (bin_ / "mpirun.openmpi").write_text(run)
    for path in bin_.iterdir():
        path.chmod(0o755)
    return tmp_path


def test_an_mpi_that_only_runs_is_none_to_build_with(openmpi: Path):
    """`mpirun` and `mpicc` without headers, or without libraries: what Debian's openmpi-bin is
    without libopenmpi-dev. The compiler's own words say what is missing."""
    prefix = str(openmpi)
    assert externals.version_at("openmpi", prefix) == "4.1.4"
    assert "mpi.h" in externals.build_error("openmpi", prefix)
    (openmpi / "include").mkdir()
    (openmpi / "include" / "mpi.h").write_text(
        '#ifdef __cplusplus\nextern "C"\n#endif\nint MPI_Init(int *, char ***);\n'
    )
    assert "-lmpi_own" in externals.build_error("openmpi", prefix)
    (openmpi / "lib").mkdir()
    source = openmpi / "mpi.c"
    source.write_text("int MPI_Init(int *n, char ***v) { return n || v; }\n")
    library = openmpi / "lib" / "libmpi_own.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert externals.build_error("openmpi", prefix) is None
    (openmpi / "bin" / "mpicxx.openmpi").unlink()
    assert f"{openmpi}/bin/mpicxx.openmpi" in externals.build_error("openmpi", prefix)


def test_what_cannot_be_built_with_is_installed_or_named(
    openmpi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{openmpi}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(externals, "version_at", lambda name, prefix: (
        "4.1.4" if name != "openmpi" or prefix == str(openmpi) else None
    ))  # fmt: skip
    assert "mpi.h" in externals.missing_tools("openmpi")["openmpi"]
    assert "libopenmpi-dev" in externals.debian_packages(["openmpi"])
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setattr(debian, "can_install", lambda: True)
    wanted = []

    def install(packages: list[str], log: Path, report: Callable[[str], None]) -> bool:
        wanted.extend(packages)
        return False

    monkeypatch.setattr(debian, "install", install)
    with pytest.raises(spack.Fault) as refusal:
        build._install_tools(environments.Environment("local", "openmpi"), print)
    assert refusal.value.code == "build.no-compiler"
    assert "mpi.h" in str(refusal.value) and "libopenmpi-dev" in str(refusal.value)
    assert str(tmp_path / "tools" / "spack" / "apt.log") in str(refusal.value)
    assert "libopenmpi-dev" in wanted


def test_external_mpi_of_a_lock_must_build(openmpi: Path, tmp_path: Path):
    lock = copy.deepcopy(LOCK)
    lock["concrete_specs"]["m" * 32] = lock["concrete_specs"]["g" * 32] | {
        "name": "openmpi", "version": "4.1.4", "external": {"path": str(openmpi), "module": None},
    }  # fmt: skip
    path = tmp_path / "spack.lock"
    path.write_text(json.dumps(hashed(lock)))
    faults = " ".join(externals.faults(environments.read_lock(path)))
    assert "openmpi@4.1.4" in faults and "mpi.h" in faults


def test_detected_settings_are_spacks():
    """What this machine has, in place of the shipped lists."""
    content = yaml.safe_load(externals.detect())["packages"]
    (target,) = content["all"]["require:"]
    assert target == f"target={externals.target()}"
    for name, package in content.items():
        if name != "all":
            (external,) = package["externals:"]
            assert external["spec"].startswith(f"{name}@")
            assert package["buildable"] is False


def test_every_program_of_the_one_sided_checks_has_a_hash():
    """A view without one of them is incomplete, and one that was exchanged is noticed."""
    known = {program for program, _ in osu.TITLES.values()}
    wanted = {name for name in known if re.match("osu_(put|get|acc|cas|fop)_", name)}
    assert len(wanted) == 9
    assert wanted <= {*programs.PROGRAMS["osu-micro-benchmarks"]}
