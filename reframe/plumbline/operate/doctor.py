"""What this machine has, what would run on it, and what would be skipped and why."""

from __future__ import annotations

import os
import platform
import shutil

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import counted
from plumbline.placement.topology import Topology
from plumbline.session import plan, recovery
from plumbline.site import configuration, host
from plumbline.software import build, environments, providers, spack


def examine(system: str | None) -> dict:
    """The examination, as plain data.

    :raises Fault: if the configuration is faulty.
    """
    cases = plan.surveyed(system, [str(paths.CHECKS)], [])
    name = cases[0].case.rpartition("@")[2].partition(":")[0] if cases else system or build.HERE
    return {
        "uncertain": _uncertain(system),
        "machine": _machine(),
        "programs": _programs(),
        "environments": _environments(name),
        "cut off": recovery.cut_off(paths.results()),
        "left over": [str(path) for path in sorted(paths.scratch().glob("plumbline-*"))],
        "cases": [vars(case) for case in cases],
    }


def _uncertain(system: str | None) -> list[str]:
    """Why it is not certain which system this host is, in lines, and how to say it."""
    try:
        host.here(system)
    except Fault as err:
        return str(err).splitlines()
    return []


def _machine() -> dict[str, str]:
    partition = configuration.this_machine()
    extras = partition["extras"]
    topology = Topology.from_processor(partition["processor"], extras["usable_cpus"])
    scratch = paths.scratch()
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "processor": str(partition["processor"].get("model", "unknown")),
        "cores": f"{len(topology.cores)} usable of {os.cpu_count()} CPUs, "
        f"{counted(len(topology.by_socket()), 'socket')}, "
        f"{counted(len(topology.by_numa()), 'NUMA domain')}",
        "last-level cache": f"{topology.last_level_cache / 2**20:.0f} MiB",
        "memory": f"{extras['memory'] / 2**30:.1f} GiB",
        "scratch": f"{scratch}, {shutil.disk_usage(scratch).free / 2**30:.1f} GiB free",
        "placements": ", ".join(extras["placements"]),
    }


def _programs() -> dict[str, str]:
    """Program -> where it is, from each provider that has it, or why none has it."""
    found = {}
    for name in providers.FEATURES:
        why = ""
        for source, environment in _sources():
            try:
                program = providers.find(source, name, environment=environment)
            except (providers.NotProvided, Fault) as err:
                # What Spack would bring is best had from there.
                if not why or (source == "spack" and _brings(environment, name)):
                    why = str(err)
                continue
            mpi = program.build.get("mpi", "none")
            with_mpi = "" if mpi == "none" else f" with {mpi}"
            found[f"{name} ({environment or source})"] = f"{program.path}{with_mpi}"
        if not any(key.startswith(f"{name} (") for key in found):
            found[name] = f"no: {why}"
    return found


def _brings(environment: str, program: str) -> bool:
    """Whether a Spack environment has a program once it is built."""
    lock = environments.Environment(*environment.split(":")).lock()
    return lock is not None and program in dict(build.programs_of(lock))


def _sources() -> list[tuple[str, str]]:
    """Where this machine's programs may come from: provider, and Spack environment."""
    of_spack = [("spack", environment.name) for environment in environments.every(build.HERE)]
    return [("path", ""), ("pip", ""), *of_spack]


def _environments(system: str) -> dict[str, str]:
    """Spack environment -> where it is built, or what would build it."""
    told = {}
    for environment in environments.every(system):
        reason = build.why_not(environment) or build.outlived(environment)
        folder = spack.folder_of(environment)
        told[environment.name] = f"{reason}: plumbline build {environment.name}" if reason else (
            f"{folder}, built {build.built(environment).mark['built']}"
        )  # fmt: skip
    return told
