"""What software the machine at hand shows: MPI, modules, and benchmarks on PATH."""

from __future__ import annotations

import os
import platform
import re
import shutil

from plumbline.core.process import ask, plain, shown
from plumbline.software import providers

#: Module of an MPI -> whose it is.
_MPI_MODULE = re.compile(
    r"(?P<name>openmpi|mpich|cray-mpich|mvapich2?|impi|intel-mpi|intel-oneapi-mpi|hpcx|spectrum-mpi"
    r"|mpt|parastationmpi|psmpi)(?:/.+)?",
    re.I,
)

#: MPI -> plugins of srun(1) ``--mpi`` that it works with, the best first: MPICH, "Using the Slurm
#: PMI-2"; Open MPI, "Launching with Slurm"; HPE Cray MPICH has a plugin of its own.
_PLUGINS = {
    "openmpi": ("pmix",),
    "hpcx": ("pmix",),
    "mpich": ("pmi2",),
    "mvapich": ("pmi2",),
    "mvapich2": ("pmi2",),
    "cray-mpich": ("cray_shasta",),
}


def modules() -> tuple[str, list[str], int]:
    """The modules system's name for ReFrame (empty without one), the modules that it lists, and
    how many it lists whose names could not stand in a job script."""
    for system, variable, words in (
        ("lmod", "LMOD_CMD", ("bash", "-t", "avail")),
        ("envmod", "MODULES_CMD", ("bash", "avail", "-t")),
    ):
        command = os.environ.get(variable)
        if not command:
            continue
        # Both print the list on standard error, and what a shell would run on standard output.
        lines = [line.strip() for line in (ask(command, *words, both=True) or "").splitlines()]
        names = [
            re.sub(r"\s*(?:\(default\)|<[\w:]+>)$", "", line)
            for line in lines
            if line and not line.endswith((":", "/", ";")) and "=" not in line
        ]
        good = [name for name in names if plain(name)]
        return system, sorted(set(good)), len(set(names) - set(good))
    return "", [], 0


def mpi_modules(listed: list[str]) -> dict[str, str]:
    """MPI -> its newest module."""
    found: dict[str, str] = {}
    for name in sorted(listed, key=_natural):
        if match := _MPI_MODULE.fullmatch(name):
            found[match["name"].lower()] = name
    return found


def _natural(name: str) -> list:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]


#: What :func:`plumbline.software.providers.mpi_version` calls an MPI -> its name here.
_NAMES = {"Open MPI": "openmpi", "MPICH": "mpich", "Intel MPI": "impi"}


def mpi_on_path() -> tuple[str, str]:
    """Whose MPI is on PATH, empty if none is known; and name and version for whoever reads it."""
    for command in ("mpirun", "mpiexec"):
        path = shutil.which(command)
        said = providers.mpi_version(path) if path else ""
        if said:
            return _NAMES[said.rpartition(" ")[0]], shown(said)
    return "", "an mpicc of unknown origin" if shutil.which("mpicc") else ""


def plugin(mpi: str, types: list[str]) -> str:
    """The plugin that ``srun`` must be told for an MPI; empty where its default does, or where it
    is not known."""
    default, *listed = types or ["none"]
    wanted = _PLUGINS.get(mpi, ())
    if default.startswith(wanted or "\0"):
        return ""
    return next((name for name in wanted if name in listed), "")


def benchmarks() -> list[str]:
    """Features of an environment that takes its programs from this machine's PATH."""
    there = providers.there("path", "")
    found = [feature for program in there for feature in providers.FEATURES[program]]
    return list(dict.fromkeys(found))


def has_wheels() -> bool:
    """Whether the embedded MPICH and Intel MPI Benchmarks are installed and are of this
    architecture."""
    try:
        providers.find("pip", "IMB-MPI1")
    except providers.NotProvided:
        return False
    return platform.machine() == "x86_64"
