"""A job: which nodes, cores and GPUs its launchers may use."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from .machine import Machine


class Task(NamedTuple):
    """Where one task runs.

    :ivar local: its number among the tasks of its node.
    :ivar cpus: what the kernel allows it, ascending.
    :ivar gpus: GPUs that it can reach, by the node's numbers.
    :ivar given: the list of GPUs that the launcher put into the environment, if it did.
    :ivar memory: NUMA domains (OS numbers) that its memory must come from, where numactl says so.
    """

    rank: int
    node: str
    local: int
    cpus: tuple[int, ...]
    gpus: tuple[int, ...] = ()
    given: str | None = None
    memory: tuple[int, ...] = ()


class Job:
    """What the batch system granted.

    :ivar nodes: names, in their order.
    :ivar slots: tasks that the job was given room for, of each node.
    :ivar cores: cores of each node that the job may use, ascending.
    :ivar gpus: GPUs of each node that the job may use.
    :ivar asked_gpus: those that it asked for by name; a step has the others only where it asks.
    :ivar batch: whether a batch system granted it; otherwise the machine is all its own.
    """

    def __init__(self, machine: Machine, record: dict | None = None):
        self.machine = machine
        self.batch = record is not None
        record = record or {}
        self.record = record
        self.nodes: list[str] = record.get("nodes") or machine.nodes
        isolated = set(record.get("isolated", machine.isolated_cores()))
        self.cores = [core for core in range(machine.num_cores) if core not in isolated]
        self.gpus = tuple(range(record.get("gpus", machine.num_gpus)))
        self.asked_gpus = tuple(range(record.get("asked_gpus", len(self.gpus))))
        room = record.get("slots", 0) or (1 if self.batch else len(self.cores))
        self.slots = [room] * len(self.nodes)

    @property
    def cpus(self) -> tuple[int, ...]:
        return self.machine.cpus_of_cores(self.cores)


def current(machine: Machine) -> Job:
    """The job that this process belongs to."""
    number = os.environ.get("FACILITY_JOB")
    if not number:
        return Job(machine)
    folder = Path(os.environ["FACILITY_STATE"]) / "jobs" / number
    return Job(machine, json.loads((folder / "job.json").read_text()))
