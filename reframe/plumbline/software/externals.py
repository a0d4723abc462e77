"""Externals of a Spack environment: whether what it takes as given is there.

A site's compilers and MPI are named in ``externals.yaml`` of the system. Of the tools that tell
their version it is asked; of the others the prefix and the compilers must be there. For the machine
at hand, whose tools no file can know, what differs is detected and written down.
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

from plumbline.software.environments import Lock


@dataclass(frozen=True)
class Trial:
    """The smallest program that shows that one can build with a tool: that its compiler or wrapper,
    headers and libraries are there and fit together.

    :ivar compiler: its name under ``bin``.
    :ivar suffix: of the source file, which tells the language.
    :ivar text: the source.
    :ivar options: of the linker.
    """

    compiler: str
    suffix: str
    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tool:
    """How a tool tells its version.

    :ivar programs: its executable's names under ``bin``, the first that is there counts.
    :ivar options: that ask it.
    :ivar pattern: of its answer, with the version as group.
    :ivar debian: the packages that bring it.
    :ivar trials: what must compile and link with it.
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

#: What the shipped files of the machine at hand ask of a processor.
COMMON_TARGET = "x86_64_v3"


def version_at(package: str, prefix: str) -> str | None:
    """The version of a tool under a prefix, ``None`` where it is not there or does not tell."""
    tool = TOOLS[package]
    for program in tool.programs:
        path = Path(prefix) / "bin" / program
        try:
            done = subprocess.run(
                [path, *tool.options], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        match = re.search(tool.pattern, done.stdout, re.M)
        if done.returncode == 0 and match:
            return match[1]
    return None


#: Tools whose version a measurement depends on.
MEASURED = ("gcc", "mpich", "openmpi")


def faults(lock: Lock, exact: bool = False) -> Iterator[str]:
    """What is wrong with each external of a lock that is not there, or is another version.

    :arg exact: whether build tools count too; of a site's own only compilers and MPI do.
    """
    for node in lock.nodes.values():
        if not node.prefix or node.name == "glibc":
            continue
        if not Path(node.prefix).is_dir():
            yield f"external {node.spec}: {node.prefix} is not there"
            continue
        missing = [path for path in node.compilers.values() if not shutil.which(path)]
        if missing:
            yield f"external {node.spec}: {', '.join(missing)} not there"
        elif node.name in TOOLS and not node.modules:
            found = version_at(node.name, node.prefix)
            if found is None:
                yield f"external {node.spec}: not in {node.prefix}"
            elif found != node.version and (exact or node.name in MEASURED):
                yield f"external {node.spec}: {node.prefix} has {found}"
            elif not node.compilers and (fault := untried(node.name, node.prefix)):
                yield f"external {node.spec}: cannot be built with: {fault}"


def lacking(mpi: str) -> dict[str, str]:
    """The tools that a build with one MPI needs and this machine does not have: Spack's package ->
    why each one that was found cannot be built with; empty where none was found."""
    of_others = {"mpich", "openmpi"} - {mpi}
    found = {name: _found(name) for name in TOOLS if name not in of_others}
    return {name: why for name, (_, _, why) in found.items() if why is not None}


def packages_of(names: Iterable[str]) -> list[str]:
    """Debian's packages that bring tools."""
    return sorted({package for name in names for package in TOOLS[name].debian})


def target() -> str:
    """The target that programs for this machine are built for: the common one where it can."""
    host = archspec.cpu.host()
    common = archspec.cpu.TARGETS[COMMON_TARGET]
    return COMMON_TARGET if host == common or common in host.ancestors else host.generic.name


def detect() -> str:
    """This machine's externals as Spack's own settings, in place of the shipped ones.

    Tools are looked for under ``/usr``, where distributions put them, and then on PATH.
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
            there = {key: str(bin_ / name) for key, name in compilers.items()}
            there = {key: path for key, path in there.items() if shutil.which(path)}
            languages = {"c": "c", "cxx": "c++", "fortran": "fortran"}
            external["spec"] += f" languages:='{','.join(languages[key] for key in there)}'"
            external["extra_attributes"] = {"compilers": there}
        packages[name] = {"buildable": False, "externals:": [external]}
    return yaml.safe_dump({"packages": packages}, sort_keys=False)


def _found(package: str) -> tuple[str, str, str | None]:
    """Prefix and version of a tool of this machine that one can build with, and ``None``; or two
    empty texts and why there is none."""
    prefixes = ["/usr"]
    for program in TOOLS[package].programs:
        path = shutil.which(program)
        if path:
            prefixes.append(str(Path(path).resolve().parent.parent))
    why: dict[str, str | None] = {}
    for prefix in dict.fromkeys(prefixes):
        version = version_at(package, prefix)
        if version:
            fault = untried(package, prefix)
            if fault is None:
                return prefix, version, None
            why[fault] = None
    return "", "", "; ".join(why)


def untried(package: str, prefix: str) -> str | None:
    """Why a program cannot be compiled and linked with a tool, in the compiler's own words;
    ``None`` if it can.

    What runs and what builds are packages of their own on many distributions: Debian's
    ``openmpi-bin`` has ``mpirun`` and ``mpicc``, and only ``libopenmpi-dev`` has ``mpi.h``.
    """
    folder = Path(prefix) / "bin"
    # Under Debian's names a plain mpicc may be another MPI's.
    own = any((folder / f"{name}.{package}").exists() for name in ("mpirun", "mpiexec"))
    for trial in TOOLS[package].trials:
        compiler = folder / (f"{trial.compiler}.{package}" if own else trial.compiler)
        if not compiler.exists():
            # A library's program is built with any compiler.
            elsewhere = shutil.which(trial.compiler) if trial.options else None
            if elsewhere is None:
                return f"no {compiler}"
            compiler = Path(elsewhere)
        if fault := _said(compiler, trial):
            return fault
    return None


def _said(compiler: Path, trial: Trial) -> str | None:
    """What a compiler says where it cannot make a program, ``None`` where it can."""
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
