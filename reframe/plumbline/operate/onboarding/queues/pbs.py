"""Queues of OpenPBS, PBS Pro and Torque.

Both commands are read in the form that all three print: a name, and below it an attribute a line.
A long line is continued after a tab (OpenPBS, src/cmds/qstat.c, ``prt_attr``).
"""

from __future__ import annotations

import re

from plumbline.core.process import capture, one_line
from plumbline.operate.onboarding.queues import Batch, Hardware, Queue, mebibytes
from plumbline.site import ended_jobs

COMMAND = "qstat"

_DEFAULT_CHUNK = "default_chunk."


def find(wanted: list[str]) -> Batch | None:
    """Return the queues that take jobs; ``None`` if PBS does not answer."""
    queues, nodes = _attributes("qstat", "-Qf"), _attributes("pbsnodes", "-a")
    if not queues:
        return None
    version = one_line((capture("qstat", "--version", stderr=True) or "").split("\n")[0])
    is_pbs = version.startswith("pbs_version")
    title = f"PBS {version.rpartition(' ')[2]}" if is_pbs else f"Torque, {version}"
    batch = Batch(title, "pbspro" if is_pbs else "torque", "mpiexec", of_mpi=True)
    # No job has this number.
    if is_pbs and ended_jobs.NO_HISTORY in (capture("qstat", "-x", "0", stderr=True) or ""):
        batch.scheduler = "pbs"
        batch.messages.append("PBS keeps no job history, which scheduler pbspro needs: pbs is used")
    for name in batch.chosen(queues, wanted):
        fields = queues[name]
        if why := _why_not(fields):
            batch.skip(name, why)
            continue
        members = _members(name, fields, nodes)
        if queue := batch.add(name, members, "pbsnodes lists no node that it can use"):
            queue.access = _access(queue) if is_pbs else ("-r n", f"-q {name}")
            limit = one_line(fields.get("resources_max.walltime", "")) or "unknown"
            queue.limits = f"time limit {limit}"
            if least := _seconds(fields.get("resources_min.walltime", "")):
                queue.extras = {"least_time": least}
    return batch


def _attributes(*command: str) -> dict[str, dict[str, str]]:
    """Return what a command prints: name -> attribute -> value."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in (capture(*command) or "").replace("\n\t", "").splitlines():
        if line.strip() and not line[0].isspace():
            current = found.setdefault(line.removeprefix("Queue:").strip(), {})
        elif " = " in line:
            key, value = line.strip().split(" = ", 1)
            current[key] = value
    return found


def _why_not(fields: dict[str, str]) -> str:
    """Return why a user's jobs cannot run from a queue, or an empty text."""
    if fields.get("queue_type", "").lower().startswith("r"):
        return (
            f"it is a routing queue, to {one_line(fields.get('route_destinations', 'others'))}: if "
            f"jobs must enter through it, enter it in their `access`"
        )
    if fields.get("from_route_only") == "True":
        return "it takes jobs from routing queues only"
    if "False" in (fields.get("enabled"), fields.get("started")):
        return "it is not enabled or not started"
    return ""


def _members(
    queue: str, fields: dict[str, str], nodes: dict[str, dict[str, str]]
) -> dict[str, tuple[Hardware, int]]:
    """Return the nodes that a queue's jobs run on.

    A node belongs to the one queue that its attribute ``queue`` names, or to all whose
    ``default_chunk`` it satisfies (PBS Professional Administrator's Guide, "Associating Vnodes with
    Queues").
    """
    own = {node: found for node, found in nodes.items() if found.get("queue") == queue}
    shared = {node: found for node, found in nodes.items() if "queue" not in found}
    asked = {
        key.removeprefix(_DEFAULT_CHUNK): value
        for key, value in fields.items()
        if key.startswith(_DEFAULT_CHUNK)
    }
    fit = {
        node: found
        for node, found in shared.items()
        if all(
            value in found.get(f"resources_available.{resource}", "").split(",")
            for resource, value in asked.items()
            # Amounts, such as ncpus, select no nodes.
            if not re.fullmatch(r"\d+\w*", value)
        )
    }
    return {node: _hardware(found) for node, found in (own or fit).items()}


def _hardware(node: dict[str, str]) -> tuple[Hardware, int]:
    """Return a node's hardware and MiB."""

    def number(*keys: str) -> int:
        found = next((node[key] for key in keys if node.get(key, "").isdecimal()), "0")
        return int(found)

    status = dict(re.findall(r"(\w+)=([^,]*)", node.get("status", "")))
    memory = node.get("resources_available.mem") or status.get("physmem", "")
    cpus = number("pcpus", "resources_available.ncpus", "np")
    gpus = number("resources_available.ngpus", "gpus")
    return Hardware(cpus, gpus=("", gpus)), mebibytes(memory)


def _access(queue: Queue) -> tuple[str, ...]:
    gpus = queue.hardware.gpus[1]
    chunk = [f"ngpus={gpus}"] if gpus else []
    # Without a hyphen, ReFrame adds it to `select`.
    return ("-r n", f"-q {queue.queue}", "-l place=scatter:excl", *chunk)


def _seconds(text: str) -> int:
    """Return the seconds of ``00:05:00`` or ``300``; 0 if it is neither."""
    parts = text.split(":")
    if not all(part.isdecimal() for part in parts):
        return 0
    return sum(int(part) * 60**power for power, part in enumerate(reversed(parts)))
