"""LSF's commands with CSM, as on Summit and Sierra: bsub(1), bjobs(1), bkill(1)."""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path

from .batch import (
    Request,
    cancel,
    check_pins,
    directives,
    every_job,
    load,
    submit,
)
from .machine import Machine
from .options import Refused, read

BSUB = """
-J= -o= -oo= -e= -eo= -n= -nnodes= -W= -q= -P= -R= -x -alloc_flags= -core_isolation= -m= -G= -U=
-env= -cwd= -L= -B -N -u= -stage= -w= -H -cn_cu= -cn_mem= -ln_slots= -ln_mem= -jsm= -step_cgroup=
-csm= -I -Is -K -sla= -app= -M= -a= -b= -E= -Ep= -ti -r -rn -V -XF -smt= -data= -gpu= -nohost -i=
"""


def bsub(words: list[str], machine: Machine) -> int:
    options, rest = read(words, BSUB, "bsub", glued=False)
    if rest:
        script = Path(rest[0]).read_text() if Path(rest[0]).is_file() else f"#!/bin/sh\n{rest[0]}\n"
    else:
        script = sys.stdin.read()
    inner, stray = read(directives(script, "#BSUB", anywhere=True), BSUB, "bsub", glued=False)
    if stray:
        raise Refused(f"{stray[0]}: Bad argument. Job not submitted.", 255)
    for name, value in options.given:
        inner.add(name, value)
    options = inner
    facts = machine.facts
    request = Request(str(options.get("J", "bsub")), script, str(Path.cwd()))
    request.queue = str(options.get("q", facts["queues"][0]))
    if request.queue not in facts["queues"]:
        raise Refused(f"{request.queue}: No such queue. Job not submitted.", 255)
    expert = options.get("csm") == "y"
    if expert and {"nnodes", "ln_slots", "cn_cu"} & set(options):
        raise Refused("-nnodes cannot be used with -csm y. Job not submitted.", 255)
    if not expert and "R" in options:
        # Summit User Guide, "Easy Mode vs. Expert Mode".
        raise Refused("-R cannot be used in easy mode: use -csm y. Job not submitted.", 255)
    nodes = options.number("nnodes")
    slots = options.number("n")
    if nodes is None:
        nodes = -(-slots // machine.num_cores) if slots else 1
    if nodes < 1:
        raise Refused(f"{nodes}: Bad argument for option -nnodes. Job not submitted.", 255)
    if nodes > facts["count"]:
        raise Refused(
            "Too many processors requested: the number of nodes exceeds the queue's limit. "
            "Job not submitted.",
            255,
        )
    request.nodes = nodes
    if "m" in options:
        request.pinned = str(options["m"]).split()
    check_pins(request, machine, "{}: Bad host name, host group name. Job not submitted.")
    if "W" in options:
        found = re.fullmatch(r"(?:(\d+):)?(\d+)", str(options["W"]).partition("/")[0])
        minutes = int(found[1] or 0) * 60 + int(found[2]) if found else 0
        if not minutes:
            raise Refused(f"{options['W']}: Bad RUNLIMIT specification. Job not submitted.", 255)
        request.seconds = minutes * 60
    isolation = options.number("core_isolation")
    if isolation is not None and not 0 <= isolation <= 4:
        raise Refused(f"{isolation}: Bad core_isolation specification. Job not submitted.", 255)
    flags = str(options.get("alloc_flags", "")).lower().split()
    known = {"gpumps", "gpudefault", "nvme", "smt1", "smt2", "smt4", "maximizegpfs", "isolategpfs"}
    if set(flags) - known:
        raise Refused(f"{flags}: Bad alloc_flags. Job not submitted.", 255)
    request.output = str(options.get("o", options.get("oo", "")))
    request.error = str(options.get("e", options.get("eo", "")))
    if request.output:
        request.ended = functools.partial(_report, request)
    request.output = request.output or os.devnull
    isolated = machine.isolated_cores(isolation)
    cores = machine.num_cores - len(isolated)
    request.record = {
        "slots": cores,
        "isolated": sorted(isolated),
        "gpus": machine.num_gpus,
        "flags": flags,
    }

    def variables(number, granted, folder):
        hosts = [("batch1", 1), *((node, cores) for node in granted)]
        host_file = folder / "hosts"
        host_file.write_text("".join(f"{node}\n" * count for node, count in hosts))
        found = {
            "LSB_JOBID": number,
            "LSB_JOBNAME": request.name,
            "LSB_QUEUE": request.queue,
            "LSB_SUB_HOST": "login1",
            "LS_SUBCWD": str(Path.cwd()),
            "LSB_DJOB_NUMPROC": str(sum(count for _, count in hosts)),
            "LSB_DJOB_HOSTFILE": str(host_file),
            "LSB_MCPU_HOSTS": " ".join(f"{node} {count}" for node, count in hosts),
            "LSB_BATCH_JID": number,
            "LSB_OUTPUTFILE": request.output,
        }
        hosts_text = " ".join(node for node, count in hosts for _ in range(count))
        # LSF leaves it out where it would not fit (LSF Configuration Reference, LSB_HOSTS).
        if len(hosts_text) < 4096:
            found["LSB_HOSTS"] = hosts_text
        return {key: value for key, value in found.items() if len(value) < 2**17}

    number = submit(request, machine, variables)
    print(f"Job <{number}> is submitted to queue <{request.queue}>.")
    return 0


_STATES = {"PENDING": "PEND", "RUNNING": "RUN", "COMPLETED": "DONE"}


def bjobs(words: list[str], machine: Machine) -> int:
    table = "-o= -noheader -json -a -w -l -d -p -r -s -u= -q= -J= -UF -X -W -x"
    options, numbers = read(words, table, "bjobs", glued=False)
    jobs = []
    lost = []
    for number in numbers:
        job = load(number)
        if job:
            jobs.append(job)
        else:
            lost.append(number)
    if not numbers:
        jobs = [job for job in every_job() if job["state"] in ("PENDING", "RUNNING")]
    text = str(options.get("o", "jobid:7 user:7 stat:5 queue:10 from_host:11 exec_host:11"))
    delimiter = re.search(r"delimiter\s*=\s*'([^']*)'", text)
    text = re.sub(r"delimiter\s*=\s*'[^']*'", "", text)
    fields = []
    for word in text.split():
        name, _, width = word.partition(":")
        fields.append((name.lower(), int(width.lstrip("-") or 0) if width else 0))
    rows = [[name.upper() for name, _ in fields]] if "noheader" not in options else []
    for job in jobs:
        state = _STATES.get(job["state"], "EXIT")
        cells = {
            "jobid": job["number"],
            "user": os.environ.get("USER", "user"),
            "stat": state,
            "queue": job["queue"],
            "job_name": job["name"],
            "from_host": "login1",
            "exec_host": ":".join(f"{machine.num_cores}*{node}" for node in job["nodes"]) or "-",
            "first_host": job["nodes"][0] if job["nodes"] else "-",
            "nexec_host": str(len(job["nodes"])),
            "exit_code": str(job["code"]) if job.get("code") else "-",
            "exit_reason": _reason(job),
            "pend_reason": "-",
        }
        rows.append([cells.get(name, "-") for name, _ in fields])
    for row in rows:
        if delimiter:
            print(delimiter[1].join(row))
        else:
            pairs = zip(row, fields, strict=True)
            print(" ".join(f"{cell:<{width or 10}}" for cell, (_, width) in pairs))
    for number in lost:
        print(f"Job <{number}> is not found", file=sys.stderr)
    return 255 if lost and not jobs else 0


#: Termination reason and exit code, as reports of real jobs have them; of a node that crashed, by
#: the keyword of IBM Spectrum LSF 10.1, "Termination reasons displayed by bacct, bhist, and bjobs".
_KILLED = {
    "TIMEOUT": ("TERM_RUNLIMIT: job killed after reaching LSF run time limit", 140),
    "CANCELLED": ("TERM_OWNER: job killed by owner", 130),
    "NODE_FAIL": ("TERM_ZOMBIE: job exited while LSF is not available", 143),
}


def _reason(job: dict) -> str:
    return _KILLED.get(job["state"], ("-",))[0]


def _report(request: Request, number: str, nodes, state: str, code: int, files: list) -> None:
    """What LSF appends to the output of a job that was submitted with -o."""
    reason, code = _KILLED.get(state, ("", code))
    ended = "Successfully completed." if state == "COMPLETED" else f"Exited with exit code {code}."
    ended = f"{reason}.\n{ended}" if reason else ended
    rule = "------------------------------------------------------------\n"
    with files[0].open("a") as file:
        file.write(
            f"\n{rule}Sender: LSF System <lsfadmin@{nodes[0]}>\n"
            f"Subject: Job {number}: <{request.name}> in cluster <facility> "
            f"{'Done' if state == 'COMPLETED' else 'Exited'}\n\n"
            f"Job <{request.name}> was submitted from host <login1> by user <user> in cluster "
            f"<facility> at Mon Nov 23 10:00:00 2026\n\nYour job looked like:\n\n"
            f"{rule}# LSBATCH: User input\n{request.script}\n{rule}\n{ended}\n\n"
            f"Resource usage summary:\n\n    CPU time :    1.00 sec.\n\n"
            f"The output (if any) is above this job summary.\n"
        )


def bkill(words: list[str], machine: Machine) -> int:
    code = 0
    for number in (word for word in words if not word.startswith("-")):
        if not load(number):
            print(f"Job <{number}>: No matching job found", file=sys.stderr)
            code = 255
        elif cancel(number):
            print(f"Job <{number}> is being terminated")
        else:
            print(f"Job <{number}>: Job has already finished", file=sys.stderr)
            code = 255
    return code
