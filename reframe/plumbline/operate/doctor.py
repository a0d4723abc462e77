"""``plumbline doctor``: reports what this machine has, and which test cases would run."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from plumbline.core import paths
from plumbline.core.errors import Fault, with_code
from plumbline.core.text import pluralize, suggest
from plumbline.placement.topology import Topology
from plumbline.session import plan, recovery
from plumbline.site import configuration, host, slurm
from plumbline.software import build, environments, providers, spack
from plumbline.software.programs import programs_of


def examine(system: str | None, checks: Sequence[str] = ()) -> dict:
    """Return the report as plain data.

    :arg checks: folders of further checks, or their files.
    :raises Fault: if the configuration is faulty.
    """
    planned = plan.preview(system, [*paths.checks(), *checks], [])
    name = planned.system
    return {
        "uncertain": _uncertain(system),
        "system": name,
        "machine": _machine() if planned.detected else {},
        "site": {
            "folder": str(paths.site()),
            "exists": paths.site().exists(),
            "shipped": str(paths.ROOT),
            "overrides": paths.overrides(),
        },
        "programs": _programs(name, planned.programs) if planned.detected else {},
        "environments": _environments(name),
        "cut off": recovery.unfinished(paths.results()),
        "left over": [_left_over(path) for path in sorted(paths.scratch().glob("plumbline-*"))],
        "misfits": [*_wrong_partitions(name), *planned.misfits],
        "cases": [vars(case) for case in planned.cases],
    }


def _uncertain(system: str | None) -> list[str]:
    """Return why it is not certain which system this host is."""
    try:
        plan.current_system(system)
    except Fault as err:
        return str(err).splitlines()
    return []


def _wrong_partitions(name: str) -> Iterator[str]:
    """Yield the partitions of a system of this host that Slurm here does not have."""
    path = paths.systems().find(f"{name}.yaml")
    if not path.is_file():
        return
    (system,) = configuration.read_system(path)["systems"]
    if not host.matching_systems({name: system["hostnames"]}):
        # Slurm here is another system's.
        return
    for partition in system["partitions"]:
        if partition["scheduler"] not in ("slurm", "squeue"):
            continue
        unknown, known = slurm.unknown_partitions(partition.get("access", []))
        for queue in unknown:
            yield with_code(
                f"{path}: partition {partition['name']}: access: Slurm has no partition "
                f"{queue!r}; {suggest(queue, known)}",
                "scheduler.no-partition",
            )


def _left_over(path: Path) -> dict[str, str]:
    """Return a scratch folder and its owner, of a session of any results folder."""
    with contextlib.suppress(OSError, KeyError):
        return {"path": str(path), "owner": path.owner()}
    return {"path": str(path), "owner": "unknown"}


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
        f"{pluralize(len(topology.by_socket()), 'socket')}, "
        f"{pluralize(len(topology.by_numa()), 'NUMA domain')}",
        "last-level cache": f"{topology.last_level_cache / 2**20:.0f} MiB",
        "memory": f"{extras['memory'] / 2**30:.1f} GiB",
        "scratch": f"{scratch}, {shutil.disk_usage(scratch).free / 2**30:.1f} GiB free",
        "placements": ", ".join(extras["placements"]),
    }


def _programs(system: str, needed: dict[str, list[str]]) -> dict[str, str]:
    """Return program -> its path from each provider that has it, or why none has it.

    :arg needed: the programs of the checks, with their features; one is shown for the same ones.
    """
    found: dict[str, str] = {}
    first = {tuple(features): name for name, features in reversed(needed.items())}
    for name in sorted(first.values()):
        reason, available = "", False
        for source, environment in _sources(system):
            try:
                program = providers.find(source, name, environment=environment)
            except (providers.NotProvided, Fault) as err:
                # Building it with Spack is the best remedy, if Spack has it.
                if not reason or (source == "spack" and _provides(environment, name)):
                    reason = str(err)
                continue
            available = True
            mpi = program.build.get("mpi", "none")
            with_mpi = "" if mpi == "none" else f" with {mpi}"
            found[f"{name} ({environment or source})"] = f"{program.path}{with_mpi}"
        if not available:
            found[name] = f"no: {reason}"
    return found


def _provides(environment: str, program: str) -> bool:
    """Return whether a Spack environment has a program once it is built."""
    lock = environments.Environment(*environment.split(":")).lock()
    return lock is not None and program in dict(programs_of(lock))


def _sources(system: str) -> list[tuple[str, str]]:
    """Return the providers of this machine's programs, each with its Spack environment."""
    with_spack = [
        ("spack", environment.name) for environment in environments.list_environments(system)
    ]
    return [("path", ""), ("pip", ""), *with_spack]


def _environments(system: str) -> dict[str, str]:
    """Return Spack environment -> where it is built, or how to build it."""
    found = {}
    for environment in environments.list_environments(system):
        name, built = environment.name, build.find_built(environment)
        reason = build.why_unusable(environment) or build.why_incomplete(environment)
        if reason or built is None:
            found[name] = f"{reason}: plumbline build {name}"
        else:
            found[name] = f"{spack.folder_of(environment)}, built {built.mark['built']}"
    return found
