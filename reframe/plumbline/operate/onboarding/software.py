"""Detects the software of this machine: MPI and benchmarks on PATH."""

from __future__ import annotations

import platform
import shutil
from typing import Any

from plumbline.core.process import one_line
from plumbline.session import plan
from plumbline.software import providers

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


#: MPI -> the environment's ``extras`` with which its own launcher is used.
_LAUNCHERS = {
    "openmpi": {"launcher": "openmpi"},
    "hpcx": {"launcher": "openmpi"},
    "mpich": {"launcher": "hydra"},
    "mvapich": {"process_manager": "mvapich"},
    "mvapich2": {"process_manager": "mvapich"},
    "impi": {"launcher": "mpirun-intelmpi"},
    "intel-mpi": {"launcher": "mpirun-intelmpi"},
    "intel-oneapi-mpi": {"launcher": "mpirun-intelmpi"},
    "mpt": {"launcher": "mpt"},
    "cray-mpich": {"process_manager": "pals"},
}


def launcher(mpi: str, version: str) -> dict[str, Any]:
    """Return the extras by which an environment uses its MPI's own launcher; empty if that is not
    known."""
    found = dict(_LAUNCHERS.get(mpi, {}))
    if found.get("launcher") == "openmpi" and (own := providers.open_mpi_manager(version)):
        found["process_manager"] = own
    return found


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
