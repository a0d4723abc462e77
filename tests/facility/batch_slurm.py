"""Slurm's commands: sbatch(1), squeue(1), sacct(1), scontrol(1), scancel(1)."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from . import login
from .batch import (
    Request,
    abbreviated,
    cancel_all,
    check_pins,
    clock,
    every_job,
    load,
    submit,
    submitted,
    wait,
)
from .faults import drained
from .launch import expand_nodes
from .machine import Machine
from .options import Refused, read

SBATCH = """
-A|--account= -J|--job-name= -n|--ntasks= -N|--nodes= --ntasks-per-node= -o|--output= -e|--error=
-t|--time= --exclusive -w|--nodelist= -C|--constraint= -p|--partition= -q|--qos= --gpus-per-node=
--no-requeue --wait --quiet --wrap=
"""

_FAILED = "sbatch: error: Batch job submission failed: {}"


def sbatch(words: list[str], machine: Machine) -> int:
    options, rest = read(words, SBATCH, "sbatch")
    path = Path(rest[0] if rest else "wrap")
    script = f"#!/bin/sh\n{options['wrap']}\n" if "wrap" in options else path.read_text()
    options = submitted(words, script, "#SBATCH", SBATCH, "sbatch")
    request = Request(str(options.get("job-name", path.name)), script)
    _judge(request, options, machine)
    number = submit(request, machine, lambda *of: _variables(options, request, machine, *of))
    if "quiet" not in options:
        print(f"Submitted batch job {number}")
    return wait(number) if "wait" in options else 0


def _judge(request: Request, options, machine: Machine) -> None:
    """Fills in a job's request.

    :raises Refused: for what sbatch or slurmctld would not take.
    """
    facts = machine.facts

    request.queue = str(options.get("partition", facts["queues"][0]))
    if request.queue not in facts["queues"]:
        raise Refused(
            f"sbatch: error: invalid partition specified: {request.queue}\n"
            + _FAILED.format("Invalid partition name specified")
        )
    if "qos" in options and options["qos"] not in facts.get("qos", ["normal"]):
        raise Refused(_FAILED.format("Invalid qos specification"))
    features = re.findall(r"[\w.]+", str(options.get("constraint", "")))
    if set(features) - set(facts.get("features", [])):
        raise Refused(_FAILED.format("Invalid feature specification"))
    per_node = options.number("ntasks-per-node", 1)
    nodes = options.number("nodes", 1)
    tasks = options.number("ntasks", nodes * per_node)
    isolated = machine.isolated_cores()
    room = _cpus(machine)
    if nodes > facts["count"] or per_node > room or tasks > nodes * room:
        raise Refused(_FAILED.format("Requested node configuration is not available"))
    if tasks > per_node * nodes:
        raise Refused(_FAILED.format("More processors requested than permitted"))
    request.nodes = nodes
    if "nodelist" in options:
        request.pinned = expand_nodes(str(options["nodelist"]))
    check_pins(request, machine, _FAILED.format("Invalid node name specified"))
    if "time" in options:
        request.seconds = clock(str(options["time"]), "sbatch: error: Invalid --time specification")
    request.output = str(options.get("output", "slurm-%j.out"))
    request.error = str(options.get("error", ""))
    request.record = {
        "slots": per_node,
        "isolated": sorted(isolated),
        **_gpus(options, machine),
        "tasks": tasks,
    }


def _cpus(machine: Machine) -> int:
    """What Slurm counts as CPUs of a node."""
    threads = 1 if machine.facts["slurm"]["cpu"] == "core" else machine.smt
    return (machine.num_cores - len(machine.isolated_cores())) * threads


def _gpus(options, machine: Machine) -> dict[str, int]:
    """GPUs of each node that a job gets. An exclusive one has all of them, but its steps have only
    what the job asked for or they ask for themselves (sbatch(1), "--exclusive"; srun(1),
    "--gres")."""
    asked = options.number("gpus-per-node", 0)
    if asked > machine.num_gpus:
        raise Refused(_FAILED.format("Requested node configuration is not available"))
    return {"gpus": machine.num_gpus if "exclusive" in options else asked, "asked_gpus": asked}


def _variables(options, request, machine, number, nodes, folder) -> dict[str, str]:
    """Of those of sbatch(1), "OUTPUT ENVIRONMENT VARIABLES", what is read, or could mislead."""
    record = request.record
    found = {
        "SLURM_JOB_ID": number,
        "SLURM_JOB_NODELIST": abbreviated(nodes),
        "SLURM_CLUSTER_NAME": machine.name,
        "SLURMD_NODENAME": nodes[0],
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    if "ntasks" in options or "ntasks-per-node" in options:
        found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(record["tasks"])
    if "ntasks-per-node" in options:
        found["SLURM_NTASKS_PER_NODE"] = str(options["ntasks-per-node"])
    if record["asked_gpus"]:
        # The script itself sees the GPUs of the first node.
        name = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}[machine.vendor]
        found[name] = ",".join(map(str, range(record["asked_gpus"])))
    return found


# -- queries ------------------------------------------------------------------------------------


def _chosen(text: object) -> list[dict]:
    if not text:
        return every_job()
    return [job for number in str(text).split(",") if (job := load(number.strip()))]


def _stamp(seconds: float | None) -> str:
    if not seconds:
        return "Unknown"
    if os.environ.get("SLURM_TIME_FORMAT") == "%s":
        return str(int(seconds))
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


#: Fields of sacct(1) -> their heads.
FIELDS = {
    "jobid": "JobID", "state": "State", "exitcode": "ExitCode", "end": "End",
    "nodelist": "NodeList", "elapsed": "Elapsed", "timelimit": "Timelimit",
}  # fmt: skip


def sacct(words: list[str], machine: Machine) -> int:
    table = "-j|--jobs= -S|--starttime= -o|--format= -P|--parsable2 -n|--noheader -X|--allocations"
    options, _ = read(words, table, "sacct")
    wanted = str(options["format"]).split(",")
    if unknown := [word for word in wanted if word not in FIELDS]:
        raise Refused(f'sacct: fatal: Invalid field requested: "{unknown[0]}"')
    if "parsable2" not in options:
        raise Refused("sacct: without --parsable2: no stand-in")
    if "noheader" not in options:
        print("|".join(FIELDS[word] for word in wanted))
    for job in _chosen(options.get("jobs")):
        steps = [""]
        if "allocations" not in options and job["state"] != "PENDING":
            steps += [".batch", ".extern"]
        took = int((job.get("ended") or time.time()) - job.get("started", time.time()))
        for suffix in steps:
            state = job["state"]
            if state == "CANCELLED" and not suffix:
                state = f"CANCELLED by {os.getuid()}"
            cells = {
                "jobid": job["number"] + suffix,
                "state": state,
                "exitcode": f"{job.get('code', 0)}:{job.get('signal', 0)}",
                "end": _stamp(job.get("ended")),
                "nodelist": abbreviated(job["nodes"]) or "None assigned",
                "elapsed": time.strftime("%H:%M:%S", time.gmtime(took)),
                "timelimit": "",
            }
            print("|".join(cells[word] for word in wanted))
    return 0


def squeue(words: list[str], machine: Machine) -> int:
    table = "-a|--all -h|--noheader -j|--jobs= -o|--format= -u|--user="
    options, _ = read(words, table, "squeue")
    if "noheader" not in options or "format" not in options:
        raise Refused("squeue: without -h and -o: no stand-in")
    for job in _chosen(options.get("jobs")):
        waits = job["state"] == "PENDING"
        if not waits and job["state"] != "RUNNING":
            continue
        cells = {
            "A": job["number"],
            "i": job["number"],
            "T": job["state"],
            "N": abbreviated(job["nodes"]),
            "r": "Resources" if waits else "None",
        }
        text = str(options["format"])
        for letter, cell in cells.items():
            text = text.replace(f"%{letter}", cell)
        print(text)
    return 0


def scontrol(words: list[str], machine: Machine) -> int:
    rest = [word for word in words if not word.startswith("-")]
    if rest[:1] != ["show"] or len(rest) < 2:
        raise Refused(f"invalid keyword: {' '.join(rest)}")
    kind, *names = rest[1:]
    if kind in ("hostname", "hostnames"):
        text = names[0] if names else os.environ.get("SLURM_JOB_NODELIST", "")
        print("\n".join(expand_nodes(text)))
    elif kind in ("partition", "config", "topology"):
        login.scontrol(kind, machine)
    elif kind == "partitions":
        # ReFrame asks for the default one when it distributes a check over nodes.
        for number, name in enumerate(machine.facts["queues"]):
            print(f"PartitionName={name} Default={'NO' if number else 'YES'}")
    elif kind in ("node", "nodes"):
        chosen = expand_nodes(names[0]) if names else machine.nodes
        known = set(machine.nodes)
        busy = {node for job in every_job() if job["state"] == "RUNNING" for node in job["nodes"]}
        away = drained()
        for node in chosen:
            if node not in known:
                raise Refused(f"Node {node} not found")
            features = ",".join(machine.facts.get("features", [])) or "(null)"
            print(
                f"NodeName={node} Arch=x86_64 CoresPerSocket={machine.facts['cores']} "
                f"CPUTot={machine.num_cpus} AvailableFeatures={features} "
                f"ActiveFeatures={features} NodeAddr={node} NodeHostName={node} "
                f"Sockets={machine.num_sockets} "
                f"State={'ALLOCATED' if node in busy else 'IDLE'}"
                f"{'+DRAIN' if node in away else ''} "
                f"ThreadsPerCore={machine.smt} Partitions={','.join(machine.facts['queues'])} "
                + ("Reason=bad memory [root@2026-11-20T09:00:00]" if node in away else "")
            )
    else:
        raise Refused(f"invalid entity: {kind} for keyword: show")
    return 0


def scancel(words: list[str], machine: Machine) -> int:
    error = "scancel: error: Kill job error on job id {}: "
    unknown, ended = "Invalid job id specified", "Job/step already completing or completed"
    return cancel_all(words, (error + unknown, 1), (error + ended, 0))
