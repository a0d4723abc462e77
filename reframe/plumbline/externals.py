"""Externals of a Spack environment: whether what it takes as given is there.

A site's compilers and MPI are named in ``externals.yaml`` of the system. Of the tools that tell
their version it is asked; of the others the prefix and the compilers must be there. For the machine
at hand, whose tools no file can know, what differs is detected and written down.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import archspec.cpu
import yaml

from plumbline.environments import Lock


@dataclass(frozen=True)
class Tool:
    """How a tool tells its version.

    :ivar programs: its executable's names under ``bin``, the first that is there counts.
    :ivar options: that ask it.
    :ivar pattern: of its answer, with the version as group.
    :ivar debian: the packages that bring it.
    """

    programs: tuple[str, ...]
    options: tuple[str, ...]
    pattern: str
    debian: tuple[str, ...]


_VERSION = ("--version",)

#: Spack's package -> its tool.
TOOLS = {
    "autoconf": Tool(("autoconf",), _VERSION, r"Autoconf\) (\S+)", ("autoconf",)),
    "automake": Tool(("automake",), _VERSION, r"automake\) (\S+)", ("automake",)),
    "cmake": Tool(("cmake",), _VERSION, r"cmake version (\d[\d.]*)", ("cmake",)),
    "gcc": Tool(("gcc",), ("-dumpfullversion",), r"^(\d\S*)", ("gcc", "g++", "gfortran")),
    "gmake": Tool(("gmake", "make"), _VERSION, r"GNU Make (\S+)", ("make",)),
    "libtool": Tool(("libtoolize",), _VERSION, r"libtool\) (\S+)", ("libtool",)),
    "m4": Tool(("m4",), _VERSION, r"m4 .*?(\d[\d.]+)", ("m4",)),
    "mpich": Tool(
        ("mpiexec.mpich", "mpiexec.hydra"), _VERSION, r"Version:\s+(\S+)", ("mpich", "libmpich-dev")
    ),
    "numactl": Tool(
        ("pkgconf", "pkg-config"), ("--modversion", "numa"), r"^(\d\S*)", ("libnuma-dev",)
    ),
    "openmpi": Tool(
        ("mpirun.openmpi", "mpirun"), _VERSION, r"\(Open MPI\) (\S+)",
        ("openmpi-bin", "libopenmpi-dev"),
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


def lacking(mpi: str) -> list[str]:
    """The tools that a build with one MPI needs, and this machine has nowhere."""
    of_others = {"mpich", "openmpi"} - {mpi}
    return [name for name in TOOLS if name not in of_others and _found(name) is None]


def packages_of(names: list[str]) -> list[str]:
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
        found = _found(name)
        if found is None:
            continue
        prefix, version = found
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


def _found(package: str) -> tuple[str, str] | None:
    """Prefix and version of a tool of this machine; of a compiler and an MPI, what builds too."""
    prefixes = ["/usr"]
    for program in TOOLS[package].programs:
        path = shutil.which(program)
        if path:
            prefixes.append(str(Path(path).resolve().parent.parent))
    for prefix in prefixes:
        version = version_at(package, prefix)
        if version and _compiles(package, Path(prefix) / "bin"):
            return prefix, version
    return None


def _compiles(package: str, folder: Path) -> bool:
    """Whether what builds is beside what runs: Debian has the two in packages of their own."""
    if package == "gcc":
        wanted = ["gcc", "g++", "gfortran"]
    elif package in ("mpich", "openmpi"):
        # Under Debian's names a plain mpicc may be another MPI's.
        named = any((folder / f"{name}.{package}").exists() for name in ("mpirun", "mpiexec"))
        wanted = [f"mpicc.{package}" if named else "mpicc"]
    else:
        return True
    return all((folder / name).exists() for name in wanted)
