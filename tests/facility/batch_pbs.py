"""The commands of PBS Pro and of Torque: qsub(1B), qstat(1B), qdel(1B)."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from . import login
from .batch import Request, cancel_all, jobs_folder, load, submit, submitted, wait
from .machine import Machine
from .options import Refused, read

QSUB = "-N= -o= -e= -q= -l= -j= -r= -W="

#: Resources of ``-l`` and of a chunk of ``select``.
RESOURCES = {"walltime", "place", "select", "filesystems", "nodes"}
CHUNK = {"mpiprocs", "ncpus", "ngpus"}


def _suffix(machine: Machine) -> str:
    return "sdb" if machine.facts["batch"] == "torque" else "pbs01"


def qsub(words: list[str], machine: Machine) -> int:  # noqa: C901 - refusals in PBS' order
    options, rest = read(words, QSUB, "qsub")
    path = Path("STDIN" if "--" in words else rest[0])
    script = f"#!/bin/sh\nexec {shlex.join(rest)}\n" if "--" in words else path.read_text()
    options = submitted(words, script, "#PBS", QSUB, "qsub")
    request = Request(str(options.get("N", path.name)), script)
    if not re.fullmatch(r"[A-Za-z_][\w.+-]{0,229}", request.name):
        raise Refused("qsub: illegal -N value")
    facts = machine.facts
    request.queue = str(options.get("q", facts["queues"][0]))
    if request.queue not in facts["queues"]:
        raise Refused("qsub: Unknown queue", 170)
    if options.get("r", "y") not in ("y", "n"):
        raise Refused("qsub: illegal -r value")
    resources: dict[str, str] = {}
    for text in options.all("l"):
        # A value may hold commas only in a chunk's or a host's list; resources are separated by
        # them as well.
        for part in re.split(r",(?=\w+=)", str(text)):
            key, _, value = part.partition("=")
            if key not in RESOURCES:
                raise Refused(f"qsub: Unknown resource: {key}", 188)
            resources[key] = value
    torque = facts["batch"] == "torque"
    if torque and "select" in resources:
        raise Refused("qsub: Unknown resource type  select", 188)
    if "select" in resources and "nodes" in resources:
        raise Refused('qsub: "-lnodes=" cannot be used with "-lselect"', 2)
    if "filesystems" in facts:
        wanted = set(filter(None, resources.get("filesystems", "").split(":")))
        if not wanted:
            raise Refused("qsub: Resource: filesystems is required to be set.", 1)
        if wanted - set(facts["filesystems"]):
            raise Refused("qsub: Invalid filesystems resource", 1)
    if "walltime" in resources:
        request.seconds = _seconds(resources["walltime"])
        if request.seconds < facts.get("least_time", 0):
            raise Refused("qsub: Job violates queue and/or server resource limits", 188)
    _chunks(request, resources, machine)
    request.output = str(options.get("o", f"{request.name}.o%J"))
    request.error = str(options.get("e", "" if "j" in options else f"{request.name}.e%J"))
    request.fresh_login = True
    request.ended = functools.partial(_killed, request)
    suffix = _suffix(machine)

    def variables(number, granted, folder):
        file = folder / "nodefile"
        file.write_text("".join(f"{node}\n" * request.record["slots"] for node in granted))
        found = {
            "PBS_JOBID": f"{number}.{suffix}",
            "PBS_NODEFILE": str(file),
            "PBS_O_WORKDIR": request.folder,
        }
        if torque:
            return found
        # PBS Professional User's Guide, "Environment Variables": both are the chunk's ncpus.
        cpus = str(request.record["cpus"])
        return found | {"NCPUS": cpus, "OMP_NUM_THREADS": cpus}

    number = submit(request, machine, variables)
    print(f"{number}.{suffix}")
    if options.get("W", "block=true") != "block=true":
        raise Refused("qsub: illegal -W value")
    return wait(number) if "W" in options else 0


def _seconds(text: str) -> float:
    parts = text.split(":")
    if not all(part.isdigit() for part in parts) or len(parts) > 3:
        raise Refused("qsub: Illegal attribute or resource value Resource_List.walltime", 1)
    return float(sum(int(part) * 60**n for n, part in enumerate(reversed(parts))))


def _chunks(request: Request, resources: dict[str, str], machine: Machine) -> None:
    """Nodes of ``select`` (PBS Pro) or ``nodes`` (Torque)."""
    kind = "nodes" if "nodes" in resources else "select"
    first, *settings = resources.get(kind, "1").split(":")
    values = dict(setting.partition("=")[::2] for setting in settings)
    unknown = set(values) - ({"ppn"} if kind == "nodes" else CHUNK)
    if unknown:
        raise Refused(f"qsub: Unknown resource: {unknown.pop()}", 188)
    request.nodes = int(first)
    if kind == "nodes":
        slots = cpus = int(values.get("ppn", "1"))
    else:
        slots, cpus = int(values.get("mpiprocs", "1")), int(values.get("ncpus", "1"))
    place = resources.get("place", "free")
    if place not in ("free", "scatter:excl"):
        raise Refused("qsub: Illegal attribute or resource value Resource_List.place", 1)
    if kind == "select" and place == "free" and request.nodes > 1:
        raise Refused("qsub: chunks that may share a host: no stand-in")
    gpus = int(values.get("ngpus", "0"))
    count = machine.facts["count"]
    if request.nodes > count or cpus > machine.num_cpus or gpus > machine.num_gpus:
        raise Refused("qsub: Job exceeds queue and/or server resource limits", 188)
    few = machine.facts.get("few_cores")
    isolated = list(range(few, machine.num_cores)) if few and cpus <= few else []
    request.record = {
        "slots": slots,
        "cpus": cpus,
        "isolated": isolated,
        "gpus": machine.num_gpus,
    }


# -- queries ------------------------------------------------------------------------------------


def _fields(job: dict, machine: Machine) -> dict[str, object]:
    torque = machine.facts["batch"] == "torque"
    state = {"PENDING": "Q", "RUNNING": "R"}.get(job["state"], "C" if torque else "F")
    record = {}
    file = jobs_folder() / job["number"] / "job.json"
    if file.exists():
        record = json.loads(file.read_text())
    found: dict[str, object] = {
        "Job_Name": job["name"],
        "Job_Owner": f"{os.environ.get('USER', 'user')}@login1",
        "job_state": state,
        "queue": job["queue"],
        "server": _suffix(machine),
    }
    if job["nodes"]:
        if torque:
            span = f"0-{record['slots'] - 1}" if record["slots"] > 1 else "0"
            found["exec_host"] = "+".join(f"{node}/{span}" for node in job["nodes"])
        else:
            found["exec_host"] = "+".join(f"{node}/0*{record['cpus']}" for node in job["nodes"])
    ran = job["nodes"]
    if state in "CF" and ran:
        # OpenPBS, src/include/job.h: -29 where the time is over, -20 where the first node is lost;
        # else what wait(2) says, a signal with 256 added. Torque, src/include/pbs_job.h: -11, and
        # -4 where the node is back.
        limit, lost = (-11, -4) if torque else (-29, -20)
        codes = {"TIMEOUT": limit, "CANCELLED": 271, "NODE_FAIL": lost}
        found["exit_status" if torque else "Exit_status"] = codes.get(job["state"], job["code"])
    if ran and not torque:
        # OpenPBS, src/server/svr_jobfunc.c, update_job_finish_comment.
        ways = {"TIMEOUT": " and exceeded resource walltime", "COMPLETED": " and finished",
                "CANCELLED": f" and terminated by {found['Job_Owner']}",
                "RUNNING": ""}  # fmt: skip
        found["comment"] = (
            f"Job run at Mon Nov 23 at 10:00 on ({'+'.join(f'{node}:ncpus=1' for node in ran)})"
            + ways.get(job["state"], " and failed")
        )
    return found


def _killed(request: Request, number: str, nodes, state: str, code: int, files: list) -> None:
    """What the first node's mom writes to the errors of a job that it kills: OpenPBS,
    src/resmom/mom_main.c."""
    if state == "TIMEOUT":
        seconds = int(request.seconds or 0)
        with files[1].open("a") as file:
            file.write(f"=>> PBS: job killed: walltime {seconds + 1} exceeded limit {seconds}\n")


def qstat(words: list[str], machine: Machine) -> int:
    options, numbers = read(words, "-f -x -F= -Qf --version", "qstat")
    if "version" in options:
        of_torque = "Version: 6.1.2\nCommit: 661e092552de43a785c15d39a3634a541d86898e"
        print(of_torque if _suffix(machine) == "sdb" else "pbs_version = 22.05.11", file=sys.stderr)
        return 0
    if "Qf" in options:
        login.qstat_queues(machine)
        return 0
    torque = machine.facts["batch"] == "torque"
    jobs, code = [], 0
    for text in numbers:
        job = load(text.partition(".")[0])
        if not job:
            print(f"qstat: Unknown Job Id {text}", file=sys.stderr)
            code = 153
            continue
        fields = _fields(job, machine)
        if fields["job_state"] == "F" and "x" not in options:
            # OpenPBS, src/cmds/qstat.c: PBSE_HISTJOBID.
            hint = "use -x or -H to obtain historical job information"
            print(f"qstat: {text} Job has finished, {hint}", file=sys.stderr)
            code = 35
            continue
        jobs.append((f"{job['number']}.{_suffix(machine)}", fields))
    if options.get("F") == "json" and not torque:
        content = {
            "timestamp": 0,
            "pbs_version": "2022.1.1",
            "pbs_server": _suffix(machine),
            **({"Jobs": dict(jobs)} if jobs else {}),
        }
        print(json.dumps(content, indent=4))
        return code
    if "x" in options and torque:
        # src/cmds/qstat.c, display_statjob: with `-x` all fields, and as XML.
        listed = "".join(
            f"<Job><Job_Id>{name}</Job_Id>"
            + "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in fields.items())
            + "</Job>"
            for name, fields in jobs
        )
        print(f'<?xml version="1.0"?>\n<Data>{listed}</Data>\n')
        return code
    for name, fields in jobs:
        login.attributes(f"Job Id: {name}", fields, "    ")
    return code


def qdel(words: list[str], machine: Machine) -> int:
    unknown, ended = "qdel: Unknown Job Id {}", "qdel: Job has finished {}"
    return cancel_all(words, (unknown, 153), (ended, 35))
