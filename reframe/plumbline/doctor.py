"""What this machine has, what would run on it, and what would be skipped and why."""

from __future__ import annotations

import os
import platform
import shutil

from plumbline import configuration, paths, placement, provider, record, survey
from plumbline.errors import Fault


def examine(system: str | None) -> dict:
    """The examination, as plain data.

    :raises Fault: if the configuration is faulty.
    """
    return {
        "machine": _machine(),
        "programs": _programs(),
        "cut off": record.unfinished(paths.results()),
        "left over": [str(path) for path in sorted(paths.scratch().glob("plumbline-*"))],
        "cases": [vars(c) for c in survey.surveyed(system, [str(paths.CHECKS)], [])],
    }


def _machine() -> dict[str, str]:
    partition = configuration.this_machine()
    extras = partition["extras"]
    topology = placement.Topology.from_processor(partition["processor"], extras["usable_cpus"])
    scratch = paths.scratch()
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "processor": str(partition["processor"].get("model", "unknown")),
        "cores": f"{len(topology.cores)} usable of {os.cpu_count()} CPUs, "
        f"{len(topology.by_socket())} socket(s), {len(topology.by_numa())} NUMA domain(s)",
        "last-level cache": f"{topology.last_level_cache / 2**20:.0f} MiB",
        "memory": f"{extras['memory'] / 2**30:.1f} GiB",
        "scratch": f"{scratch}, {shutil.disk_usage(scratch).free / 2**30:.1f} GiB free",
        "placements": ", ".join(extras["placements"]),
    }


def _programs() -> dict[str, str]:
    found = {}
    for name in provider.FEATURES:
        for where in provider.PROVIDERS:
            try:
                program = provider.find(where, name)
            except (provider.NotProvided, Fault) as err:
                found[f"{name} ({where})"] = f"no: {err}"
            else:
                mpi = program.build.get("mpi", "none")
                with_mpi = "" if mpi == "none" else f" with {mpi}"
                found[f"{name} ({where})"] = f"{program.path}{with_mpi}"
    return found
