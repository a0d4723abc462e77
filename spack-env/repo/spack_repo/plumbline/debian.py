"""MPI under Debian's names: mpicc.mpich and mpicc.openmpi, where /usr/bin/mpicc may be either."""

from pathlib import Path

WRAPPERS = {"mpicc": "mpicc", "mpicxx": "mpicxx", "mpif77": "mpif77", "mpifc": "mpif90"}


def own(package, name):
    """The wrapper's path with this MPI's suffix, or None where the prefix has no such name."""
    path = Path(package.prefix.bin) / f"{name}.{package.name}"
    return str(path) if path.exists() else None


def to_dependents(package):
    """Has dependents compile with the wrappers that bear the MPI's name."""
    for attribute, name in WRAPPERS.items():
        if hasattr(package.spec, attribute) and own(package, name):
            setattr(package.spec, attribute, own(package, name))


def to_environment(package, env):
    """The same for whoever loads the MPI."""
    for name in WRAPPERS.values():
        if own(package, name):
            env.set(name.upper(), own(package, name))
