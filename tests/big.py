"""A system of many nodes that are nowhere, and the plan of a session on it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from plumbline.core import paths
from plumbline.operate import sweep
from plumbline.session import plan
from plumbline.site import configuration

REFRAME = Path(sys.executable).with_name("reframe")

#: Jobs that the site of this system lets be queued at once.
MAX_JOBS = 50


@dataclass(frozen=True)
class Plan:
    """What a session says before its first job, and the CPU seconds until then.

    :ivar at_once: jobs queued at once.
    """

    jobs: int
    at_once: int
    node_hours: float
    seconds: float


def write(folder: Path) -> dict[str, str]:
    """Writes the system's file; what the environment of a command there has beside ours."""
    for name in ("systems", "results"):
        (folder / name).mkdir(parents=True)
    half = (1 << 32) - 1
    sockets = [hex(half), hex(half << 32)]
    cpu = {
        "name": "cpu", "scheduler": "squeue", "launcher": "srun", "access": ["--partition=cpu"],
        "sched_options": {"use_nodes_option": True}, "environs": ["gcc"], "max_jobs": MAX_JOBS,
        "processor": {
            "num_cpus": 64, "num_cpus_per_core": 1, "num_cpus_per_socket": 32, "num_sockets": 2,
            "topology": {"cores": [hex(1 << n) for n in range(64)], "sockets": sockets,
                         "numa_nodes": sockets},
        },
        "extras": {
            "placements": ["one-core", "all-cores", "one-socket", "on-socket", "on-node",
                           "off-node", "full-node", "tasks-per-node", "one-task-per-node",
                           "numa-matrix"],
            "memory": 2**38, "scratch": "/tmp",
        },
    }  # fmt: skip
    gcc = {
        "name": "gcc", "extras": {"provider": "path"}, "target_systems": ["big"],
        "features": ["mpi", "omp", "imb", "hpcc", "fio", "osu", "babelstream", "ior", "mdtest",
                     "gpcnet"],
    }  # fmt: skip
    system = {"name": "big", "hostnames": ["^big$"], "partitions": [cpu]}
    content = {"systems": [system], "environments": [gcc]}
    (folder / "systems" / "big.yaml").write_text(yaml.safe_dump(content))
    return {
        "PLUMBLINE_SITE": str(folder),
        "PLUMBLINE_RESULTS": str(folder / "results"),
        "RFM_CONFIG_FILES": str(paths.SETTINGS),
        "RFM_COLORIZE": "0",
        configuration.PLAN_FILE: str(folder / "plan.json"),
    }


def planned(env: dict[str, str], *arguments: str) -> Plan:
    """The plan of a session, by ReFrame's dry run of it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(
        [REFRAME, "--system=big", "--dry-run", *arguments],
        env=os.environ | env, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = re.search(r"(\d+) jobs?, (\d+) queued at once; at most ([\d.]+) node-hours", said)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Plan(int(found[1]), int(found[2]), float(found[3]), seconds)


def nightly(env: dict[str, str]) -> Plan:
    """Of the nightly."""
    return planned(env, *plan.check_options(paths.checks()), "--mode=nightly")


def swept(folder: Path, env: dict[str, str], nodes: int) -> Plan:
    """Of a sweep over so many nodes, an hour each."""
    names = [f"n{number:04}" for number in range(nodes)]
    made = sweep.Sweep("20261122T000000Z-000000", "big", "cpu", [], "", MAX_JOBS, [], 3600,
                       names, {}, now=names)  # fmt: skip
    place = folder / "results" / "sweeps" / made.name
    place.mkdir(parents=True)
    (place / "sweep.json").write_text(json.dumps(vars(made)))
    return planned(env | {configuration.SWEEP: str(place)}, "-c", str(sweep.CHECK))
