"""Externals of a Spack environment: whether they exist on this machine, and build programs.

A site's compilers and MPI are listed in ``externals.yaml`` of the system. Tools that print their
version are run; of others, the prefix and the compilers must exist. On the system ``local``, tools
that differ from the shipped list are detected.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import archspec.cpu
import yaml

from plumbline.core.process import capture
from plumbline.software.environments import Lock


@dataclass(frozen=True)
class Trial:
    """The smallest program that shows that a tool's compiler, headers and libraries fit together.

    :ivar compiler: name of the compiler or wrapper under ``bin``.
    :ivar suffix: suffix of the source file, by which the compiler knows the language.
    :ivar text: the source.
    :ivar options: options of the linker.
    """

    compiler: str
    suffix: str
    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tool:
    """How a tool prints its version.

    :ivar programs: possible names of its executable under ``bin``; the first that exists counts.
    :ivar options: options that print the version.
    :ivar pattern: pattern of the output, with the version as group.
    :ivar debian: the Debian packages that contain it.
    :ivar trials: programs that must compile and link with it.
    """

    programs: tuple[str, ...]
    options: tuple[str, ...]
    pattern: str
    debian: tuple[str, ...]
    trials: tuple[Trial, ...] = ()


_VERSION = ("--version",)

_OF_MPI = "#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n"
_MPI = (Trial("mpicc", ".c", _OF_MPI), Trial("mpicxx", ".cpp", _OF_MPI))

#: Spack's package -> its tool.
TOOLS = {
    "autoconf": Tool(("autoconf",), _VERSION, r"Autoconf\) (\S+)", ("autoconf",)),
    "automake": Tool(("automake",), _VERSION, r"automake\) (\S+)", ("automake",)),
    "cmake": Tool(("cmake",), _VERSION, r"cmake version (\d[\d.]*)", ("cmake",)),
    "gcc": Tool(("gcc",), ("-dumpfullversion",), r"^(\d\S*)", ("gcc", "g++", "gfortran"),
                (Trial("gcc", ".c", "#include <stdio.h>\nint main(void) { return puts(\"\"); }\n"),
                 Trial("g++", ".cpp", "#include <iostream>\nint main() { std::cout << 1; }\n"),
                 Trial("gfortran", ".f90", "print *, 1\nend\n"))),
    "gmake": Tool(("gmake", "make"), _VERSION, r"GNU Make (\S+)", ("make",)),
    "libtool": Tool(("libtoolize",), _VERSION, r"libtool\) (\S+)", ("libtool",)),
    "m4": Tool(("m4",), _VERSION, r"m4 .*?(\d[\d.]+)", ("m4",)),
    "mpich": Tool(
        ("mpiexec.mpich", "mpiexec.hydra"), _VERSION, r"Version:\s+(\S+)",
        ("mpich", "libmpich-dev"), _MPI,
    ),
    "numactl": Tool(
        ("pkgconf", "pkg-config"), ("--modversion", "numa"), r"^(\d\S*)", ("libnuma-dev",),
        (Trial("gcc", ".c", "#include <numa.h>\nint main(void) { return numa_available(); }\n",
               ("-lnuma",)),),
    ),
    "openmpi": Tool(
        ("mpirun.openmpi", "mpirun"), _VERSION, r"\(Open MPI\) (\S+)",
        ("openmpi-bin", "libopenmpi-dev"), _MPI,
    ),
    "perl": Tool(("perl",), ("-e", "print substr($^V, 1)"), r"^(\d\S*)", ("perl",)),
    "pkgconf": Tool(("pkgconf", "pkg-config"), _VERSION, r"^(\d\S*)", ("pkgconf",)),
}  # fmt: skip

#: Target of the shipped files of the system ``local``.
COMMON_TARGET = "x86_64_v3"


def version_at(package: str, prefix: str) -> str | None:
    """Return the version of a tool under a prefix, or ``None`` if it is missing or prints none."""
    tool = TOOLS[package]
    for program in tool.programs:
        printed = capture(str(Path(prefix) / "bin" / program), *tool.options) or ""
        if match := re.search(tool.pattern, printed, re.M):
            return match[1]
    return None


#: Tools whose version a measurement depends on.
MEASURED = ("gcc", "mpich", "openmpi")


def faults(lock: Lock, exact: bool = False) -> Iterator[str]:
    """Yield each external of a lock that is missing, has another version, or does not build.

    :arg exact: whether the versions of build tools count, not only those of compilers and MPI.
    """
    for node in lock.nodes.values():
        if not node.prefix or node.name == "glibc":
            continue
        if not Path(node.prefix).is_dir():
            yield f"external {node.spec}: {node.prefix} does not exist"
            continue
        missing = [path for path in node.compilers.values() if not shutil.which(path)]
        if missing:
            yield f"external {node.spec}: {', '.join(missing)} not found"
        elif node.name in TOOLS and not node.modules:
            found = version_at(node.name, node.prefix)
            if found is None:
                yield f"external {node.spec}: not found in {node.prefix}"
            elif found != node.version and (exact or node.name in MEASURED):
                yield f"external {node.spec}: {node.prefix} has version {found}"
            elif not node.compilers and (fault := build_error(node.name, node.prefix)):
                yield f"external {node.spec}: no program can be built with it: {fault}"


def missing_tools(mpi: str) -> dict[str, str]:
    """Return the tools that a build with one MPI needs and this machine lacks: Spack's package ->
    why no program can be built with those found; empty if none was found."""
    other_mpis = {"mpich", "openmpi"} - {mpi}
    found = {name: _found(name) for name in TOOLS if name not in other_mpis}
    return {name: why for name, (_, _, why) in found.items() if why is not None}


def debian_packages(names: Iterable[str]) -> list[str]:
    """Return the Debian packages that contain tools."""
    return sorted({package for name in names for package in TOOLS[name].debian})


def target() -> str:
    """Return the target to build for on this machine: the common one if it supports that."""
    host = archspec.cpu.host()
    common = archspec.cpu.TARGETS[COMMON_TARGET]
    return COMMON_TARGET if host == common or common in host.ancestors else host.generic.name


def detect() -> str:
    """Return this machine's externals as Spack's settings, in place of the shipped ones.

    Tools are searched under ``/usr``, where distributions put them, and then on PATH.
    """
    packages: dict[str, dict] = {"all": {"require:": [f"target={target()}"]}}
    for name in TOOLS:
        prefix, version, fault = _found(name)
        if fault is not None:
            continue
        external: dict = {"spec": f"{name}@{version}", "prefix": prefix}
        if name == "gcc":
            bin_ = Path(prefix) / "bin"
            compilers = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}
            found = {key: str(bin_ / program) for key, program in compilers.items()}
            found = {key: path for key, path in found.items() if shutil.which(path)}
            languages = {"c": "c", "cxx": "c++", "fortran": "fortran"}
            external["spec"] += f" languages:='{','.join(languages[key] for key in found)}'"
            external["extra_attributes"] = {"compilers": found}
        packages[name] = {"buildable": False, "externals:": [external]}
    return yaml.safe_dump({"packages": packages}, sort_keys=False)


def _found(package: str) -> tuple[str, str, str | None]:
    """Return prefix and version of a tool that programs can be built with, and ``None``; or two
    empty texts and the reason."""
    prefixes = ["/usr"]
    for program in TOOLS[package].programs:
        path = shutil.which(program)
        if path:
            prefixes.append(str(Path(path).resolve().parent.parent))
    why: dict[str, str | None] = {}
    for prefix in dict.fromkeys(prefixes):
        version = version_at(package, prefix)
        if version:
            fault = build_error(package, prefix)
            if fault is None:
                return prefix, version, None
            why[fault] = None
    return "", "", "; ".join(why)


def build_error(package: str, prefix: str) -> str | None:
    """Return the compiler's message if no program can be built with a tool, otherwise ``None``.

    Many distributions have separate packages to run and to build: Debian's ``openmpi-bin`` has
    ``mpirun`` and ``mpicc``, and only ``libopenmpi-dev`` has ``mpi.h``.
    """
    folder = Path(prefix) / "bin"
    # Under Debian's names a plain mpicc may be another MPI's.
    own = any((folder / f"{name}.{package}").exists() for name in ("mpirun", "mpiexec"))
    for trial in TOOLS[package].trials:
        compiler = folder / (f"{trial.compiler}.{package}" if own else trial.compiler)
        if not compiler.exists():
            # A program that uses a library is built with any compiler.
            elsewhere = shutil.which(trial.compiler) if trial.options else None
            if elsewhere is None:
                return f"no {compiler}"
            compiler = Path(elsewhere)
        if fault := _compile_error(compiler, trial):
            return fault
    return None


def _compile_error(compiler: Path, trial: Trial) -> str | None:
    """Return a compiler's message if it cannot build a program, otherwise ``None``."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / f"trial{trial.suffix}"
        source.write_text(trial.text, encoding="utf-8")
        command = [str(compiler), str(source), "-o", f"{name}/trial", *trial.options]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60, check=False, cwd=name
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            return f"{compiler}: {err}"
        if done.returncode == 0:
            return None
        lines = (done.stderr + done.stdout).replace(f"{name}/", "").strip().splitlines()
        worst = [line for line in lines if re.search(r"error|cannot find|undefined", line)]
        return f"{compiler}: {([*worst, *lines] or [f'exit status {done.returncode}'])[0]}"
