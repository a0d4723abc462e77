"""Queues of IBM Spectrum LSF: bqueues(1), lshosts(1), bmgroup(1)."""

from __future__ import annotations

import re
import shutil

from plumbline.core.process import capture, one_line
from plumbline.operate.onboarding.queues import Batch, Hardware, mebibytes

COMMAND = "bqueues"

#: Fields of lshosts(1), "-o": sockets, cores of each, threads of each come last.
FIELDS = "HOST_NAME server maxmem nprocs ncores nthreads"


def find(wanted: list[str]) -> Batch | None:
    """Return the open queues; ``None`` if LSF does not answer.

    LSF's GPUs are not read: a job that describes its node sees them.
    """
    listed = capture("bqueues", "-w")
    if listed is None:
        return None
    # QUEUE_NAME PRIO STATUS ...
    status = {
        words[0]: words[2] for line in listed.splitlines()[1:] if len(words := line.split()) > 2
    }
    hosts = _hosts()
    version = one_line((capture("lsid", "-V", stderr=True) or "LSF").strip().split("\n")[0])
    # CSM, as on Summit: jobs get whole nodes, and jsrun starts the tasks of any MPI.
    csm = shutil.which("jsrun") is not None
    batch = Batch(version.partition(",")[0], "lsf", "jsrun" if csm else "mpiexec", of_mpi=not csm)
    for name in batch.chosen(status, wanted):
        state = status[name]
        if not state.startswith("Open"):
            batch.skip(name, f"its status is {one_line(state)}")
            continue
        details = capture("bqueues", "-l", name) or ""
        members = {host: hosts[host] for host in _members(details, [*hosts]) if host in hosts}
        limit = re.search(r"^\s*RUNLIMIT\s*\n\s*([\d.]+ min)", details, re.M)
        if queue := batch.add(name, members, "lshosts lists none of its hosts"):
            queue.access = ("-rn", f"-q {name}", *([] if csm else ["-x"]))
            longest = limit[1] if limit else "unknown"
            queue.limits = f"status {one_line(state)}, time limit {longest}"
    return batch


def _hosts() -> dict[str, tuple[Hardware, int]]:
    """Return the hosts that run jobs: name -> hardware and MiB."""
    found = {}
    for line in (capture("lshosts", "-o", FIELDS) or "").splitlines()[1:]:
        words = line.split()
        if len(words) != len(FIELDS.split()) or words[1] != "Yes":
            continue
        numbers = [int(word) if word.isdecimal() else 0 for word in words[3:]]
        sockets, cores, threads = numbers if all(numbers) else (0, 0, 0)
        hardware = Hardware(sockets * cores * threads, sockets, cores, threads)
        found[words[0]] = hardware, mebibytes(words[2])
    return found


def _members(details: str, hosts: list[str]) -> list[str]:
    """Return the hosts in the long output of a queue: all, names with a preference behind a plus,
    groups with a slash, and after a tilde those that are excepted."""
    found = re.search(r"^HOSTS:\s*(.*)", details, re.M)
    words = found[1].split() if found else []
    chosen: list[str] = []
    for word in words:
        name = word.lstrip("~").partition("+")[0]
        of_word = [name]
        if name == "all":
            of_word = hosts
        elif name.endswith("/"):
            group = (capture("bmgroup", "-r", "-w", name.rstrip("/")) or "").splitlines()[1:]
            of_word = [host for line in group for host in line.split()[1:]]
        if word.startswith("~"):
            chosen = [host for host in chosen if host not in of_word]
        else:
            chosen += of_word
    return list(dict.fromkeys(chosen))
