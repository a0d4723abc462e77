"""LSF's commands with CSM, as on Summit and Sierra: bsub(1), bjobs(1), bkill(1)."""

from __future__ import annotations

import functools
import os
import re
import sys

from .batch import Request, cancel_all, directives, load, submit
from .machine import Machine
from .options import Refused, read

BSUB = "-J= -o= -e= -nnodes= -W= -q= -rn -x -core_isolation= -alloc_flags="


def bsub(words: list[str], machine: Machine) -> int:
    script = sys.stdin.read()
    inner = directives(script, "#BSUB", anywhere=True)
    options, stray = read([*inner, *words], BSUB, "bsub", glued=False)
    if stray:
        raise Refused(f"{stray[0]}: Bad argument. Job not submitted.", 255)
    facts = machine.facts
    request = Request(str(options.get("J", "bsub")), script)
    request.queue = str(options.get("q", facts["queues"][0]))
    if request.queue not in facts["queues"]:
        raise Refused(f"{request.queue}: No such queue. Job not submitted.", 255)
    request.nodes = options.number("nnodes", 1)
    if request.nodes > facts["count"]:
        raise Refused(
            "Too many processors requested: the number of nodes exceeds the queue's limit. "
            "Job not submitted.",
            255,
        )
    if "W" in options:
        found = re.fullmatch(r"(?:(\d+):)?(\d+)", str(options["W"]))
        minutes = int(found[1] or 0) * 60 + int(found[2]) if found else 0
        if not minutes:
            raise Refused(f"{options['W']}: Bad RUNLIMIT specification. Job not submitted.", 255)
        request.seconds = minutes * 60
    request.output = str(options.get("o", ""))
    request.error = str(options.get("e", ""))
    if request.output:
        request.ended = functools.partial(_report, request)
    request.output = request.output or os.devnull
    isolated = machine.isolated_cores(options.number("core_isolation"))
    cores = machine.num_cores - len(isolated)
    request.record = {"slots": cores, "isolated": sorted(isolated), "gpus": machine.num_gpus}

    def variables(number, granted, folder):
        hosts = [("batch1", 1), *((node, cores) for node in granted)]
        host_file = folder / "hosts"
        host_file.write_text("".join(f"{node}\n" * count for node, count in hosts))
        return {"LSB_JOBID": number, "LSB_DJOB_HOSTFILE": str(host_file)}

    number = submit(request, machine, variables)
    print(f"Job <{number}> is submitted to queue <{request.queue}>.")
    return 0


_STATES = {"PENDING": "PEND", "RUNNING": "RUN", "COMPLETED": "DONE"}


def bjobs(words: list[str], machine: Machine) -> int:
    options, numbers = read(words, "-o= -noheader", "bjobs", glued=False)
    fields = []
    for word in str(options["o"]).split():
        name, _, width = word.partition(":")
        fields.append((name, int(width or 0)))
    lost = 0
    for number in numbers:
        job = load(number)
        if not job:
            print(f"Job <{number}> is not found", file=sys.stderr)
            lost += 1
            continue
        cells = {
            "jobid": job["number"],
            "user": os.environ.get("USER", "user"),
            "stat": _STATES.get(job["state"], "EXIT"),
            "queue": job["queue"],
            "exit_reason": _KILLED.get(job["state"], ("-",))[0],
        }
        print(" ".join(f"{cells[name]:<{width or 10}}" for name, width in fields))
    return 255 if lost == len(numbers) else 0


#: Termination reason and exit code, as reports of real jobs have them; of a node that crashed, by
#: the keyword of IBM Spectrum LSF 10.1, "Termination reasons displayed by bacct, bhist, and bjobs".
_KILLED = {
    "TIMEOUT": ("TERM_RUNLIMIT: job killed after reaching LSF run time limit", 140),
    "CANCELLED": ("TERM_OWNER: job killed by owner", 130),
    "NODE_FAIL": ("TERM_ZOMBIE: job exited while LSF is not available", 143),
}


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
    unknown, ended = "No matching job found", "Job has already finished"
    return cancel_all(words, (f"Job <{{}}>: {unknown}", 255), (f"Job <{{}}>: {ended}", 255))
