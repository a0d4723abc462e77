"""Detects the software of this machine: MPI, modules, and benchmarks on PATH."""

from __future__ import annotations

import os
import platform
import re
import shutil

from plumbline.core.process import capture, is_shell_safe, one_line
from plumbline.session import plan
from plumbline.software import providers

#: Name of an MPI's module.
_MPI_MODULE = re.compile(
    r"(?P<name>openmpi|mpich|cray-mpich|mvapich2?|impi|intel-mpi|intel-oneapi-mpi|hpcx|spectrum-mpi"
    r"|mpt|parastationmpi|psmpi)(?:/.+)?",
    re.I,
)

#: MPI -> values of srun(1) ``--mpi`` that it works with, the best first. Sources: MPICH, "Using the
#: Slurm PMI-2"; Open MPI, "Launching with Slurm". HPE Cray MPICH has its own plugin.
_PLUGINS = {
    "openmpi": ("pmix",),
    "hpcx": ("pmix",),
    "mpich": ("pmi2",),
    "mvapich": ("pmi2",),
    "mvapich2": ("pmi2",),
    "cray-mpich": ("cray_shasta",),
}


def modules() -> tuple[str, list[str], int]:
    """Return ReFrame's name of the modules system (or an empty text), the modules that it lists,
    and the number of others, whose names are not safe in a job script."""
    for system, variable, words in (
        ("lmod", "LMOD_CMD", ("bash", "-t", "avail")),
        ("envmod", "MODULES_CMD", ("bash", "avail", "-t")),
    ):
        command = os.environ.get(variable)
        if not command:
            continue
        # Both print the list on standard error, and shell commands on standard output.
        lines = [
            line.strip() for line in (capture(command, *words, stderr=True) or "").splitlines()
        ]
        names = [
            re.sub(r"\s*(?:\(default\)|<[\w:]+>)$", "", line)
            for line in lines
            if line and not line.endswith((":", "/", ";")) and "=" not in line
        ]
        safe = {name for name in names if is_shell_safe(name)}
        return system, sorted(safe), len({*names} - safe)
    return "", [], 0


def mpi_modules(listed: list[str]) -> dict[str, str]:
    """Return MPI -> its newest module."""
    found: dict[str, str] = {}
    for name in sorted(listed, key=_natural):
        if match := _MPI_MODULE.fullmatch(name):
            found[match["name"].lower()] = name
    return found


def _natural(name: str) -> list:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]


#: Name of an MPI in :func:`plumbline.software.providers.mpi_version` -> name here.
_NAMES = {"Open MPI": "openmpi", "MPICH": "mpich", "Intel MPI": "impi"}


def mpi_on_path() -> tuple[str, str]:
    """Return the name of the MPI on PATH (or an empty text), and its name and version as text."""
    for command in ("mpirun", "mpiexec"):
        path = shutil.which(command)
        version = providers.mpi_version(path) if path else ""
        if version:
            return _NAMES[version.rpartition(" ")[0]], one_line(version)
    return "", "an unknown mpicc" if shutil.which("mpicc") else ""


def plugin(mpi: str, types: list[str]) -> str:
    """Return the value of ``srun --mpi`` for an MPI; empty if the default works, or if it is
    unknown."""
    default, *listed = types or ["none"]
    wanted = _PLUGINS.get(mpi, ())
    if default.startswith(wanted or "\0"):
        return ""
    return next((name for name in wanted if name in listed), "")


def benchmarks() -> list[str]:
    """Return the features of an environment with the programs on this machine's PATH."""
    needed = plan.programs()
    found = [needed[program] for program in providers.installed("path", "", needed)]
    return list(dict.fromkeys(feature for features in found for feature in features))


def has_wheels() -> bool:
    """Return whether the embedded MPICH and Intel MPI Benchmarks are installed and can run here."""
    try:
        providers.find("pip", "IMB-MPI1")
    except providers.NotProvided:
        return False
    return platform.machine() == "x86_64"
