"""Slurm's commands: sbatch(1), squeue(1), sacct(1), scontrol(1), scancel(1)."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from .batch import (
    Request,
    abbreviated,
    cancel,
    check_pins,
    clock,
    directives,
    every_job,
    load,
    submit,
)
from .faults import drained
from .launch import expand_nodes
from .machine import Machine
from .options import Refused, read

SBATCH = """
-J|--job-name= -n|--ntasks= -N|--nodes= --ntasks-per-node= --ntasks-per-core= --ntasks-per-socket=
-c|--cpus-per-task= -o|--output= -e|--error= -t|--time= --time-min= --exclusive? -w|--nodelist=
-x|--exclude= -C|--constraint= -p|--partition= -q|--qos= -A|--account= --hint= -G|--gpus=
--gpus-per-node= --gpus-per-task= --gpus-per-socket= --gres= --gres-flags= --mem= --mem-per-cpu=
--mem-per-gpu= --no-requeue --requeue -S|--core-spec= --thread-spec= --threads-per-core=
-D|--chdir= --export= --get-user-env? -H|--hold --wrap= -W|--wait --parsable --reservation=
--mail-type= --mail-user= --comment= -d|--dependency= -a|--array= --signal= -L|--licenses=
-s|--oversubscribe -m|--distribution= --switches= --network= -O|--overcommit -k|--no-kill?
--open-mode= -b|--begin= --cpu-freq= --ntasks-per-gpu= --gpu-bind= --gpu-freq= --mem-bind=
-i|--input= --nice? --priority= --tmp= --use-min-nodes --spread-job --contiguous -v|--verbose
-Q|--quiet -V|--version --test-only -M|--clusters= --bb= --bbf= --uid= --gid= --wckey=
--acctg-freq= --deadline= --power= --profile= --delay-boot= --propagate? -B|--extra-node-info=
--cores-per-socket= --sockets-per-node= --kill-on-invalid-dep=
"""

_FAILED = "sbatch: error: Batch job submission failed: {}"


def sbatch(words: list[str], machine: Machine) -> int:
    options, rest = read(words, SBATCH, "sbatch")
    if "version" in options:
        print(f"slurm {machine.facts['slurm']['version']}")
        return 0
    if not rest:
        raise Refused("sbatch: error: This stand-in takes a script's file")
    path = Path(rest[0])
    try:
        script = path.read_text()
    except OSError:
        raise Refused(f"sbatch: error: Unable to open file {path}") from None
    if not script.startswith("#!"):
        raise Refused(
            "sbatch: error: This does not look like a batch script.  The first\n"
            "sbatch: error: line must start with #! followed by the path to an interpreter.\n"
            "sbatch: error: For instance: #!/bin/sh"
        )
    inner, stray = read(directives(script, "#SBATCH"), SBATCH, "sbatch")
    if stray:
        raise Refused(f"sbatch: error: Invalid directive found in batch script: {stray[0]}")
    for name, value in options.given:
        inner.add(name, value)
    options = inner
    request = Request(str(options.get("job-name", path.name)), script, str(Path.cwd()))
    _judge(request, options, machine)
    number = submit(request, machine, lambda *told: _variables(options, request, machine, *told))
    print(f"{number}" if "parsable" in options else f"Submitted batch job {number}")
    return 0


def _judge(request: Request, options, machine: Machine) -> None:
    """Fills in a job's request.

    :raises Refused: for what sbatch or slurmctld would not take.
    """
    facts = machine.facts

    def number(name):
        value = options.number(name)
        if value is not None and value < 1 and name != "core-spec":
            raise Refused(f'sbatch: error: Invalid numeric value "{value}" for --{name}.', 255)
        return value

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
    nodes_text = str(options.get("nodes", "")).partition("-")[0]
    if nodes_text and not nodes_text.isdigit():
        raise Refused(f"sbatch: error: Invalid node count specification: {nodes_text}", 255)
    per_node, tasks = number("ntasks-per-node"), number("ntasks")
    nodes = int(nodes_text) if nodes_text else None
    spec = number("core-spec")
    isolated = machine.isolated_cores(spec)
    cores = machine.num_cores - len(isolated)
    threads = 1 if facts["slurm"]["cpu"] == "core" else machine.smt
    width = number("cpus-per-task") or 1
    room = cores * threads
    if nodes is None and tasks:
        nodes = -(-tasks // (per_node or max(1, room // width)))
    nodes = nodes or 1
    if tasks is None:
        tasks = nodes * (per_node or 1)
    if tasks < nodes:
        nodes = tasks
    on_node = per_node or -(-tasks // nodes)
    if nodes > facts["count"] or on_node * width > room or tasks > nodes * room:
        raise Refused(_FAILED.format("Requested node configuration is not available"))
    if per_node and tasks > per_node * nodes:
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
        "slots": on_node,
        "isolated": sorted(isolated),
        **_gpus(options, machine, on_node, nodes),
        "tasks": tasks,
        "width": width,
    }
    if "chdir" in options:
        request.folder = str(options["chdir"])


def _gpus(options, machine: Machine, on_node: int, nodes: int) -> dict[str, int]:
    """GPUs of each node that a job gets. An exclusive one has all of them, but its steps have only
    what the job asked for or they ask for themselves (sbatch(1), "--exclusive"; srun(1),
    "--gres")."""
    total = machine.num_gpus

    def count(name):
        text = str(options[name]).rpartition(":")[2]
        if not text.isdigit():
            raise Refused(f"sbatch: error: Invalid --{name} specification: {options[name]}", 255)
        return int(text)

    wanted = None
    if "gpus-per-node" in options:
        wanted = count("gpus-per-node")
    elif "gres" in options and str(options["gres"]).startswith(("gpu", "gres/gpu")):
        wanted = count("gres")
    elif "gpus-per-task" in options:
        wanted = count("gpus-per-task") * on_node
    elif "gpus" in options:
        wanted = -(-count("gpus") // nodes)
    if wanted is not None and wanted > total:
        if not total:
            raise Refused(_FAILED.format("Invalid generic resource (gres) specification"))
        raise Refused(_FAILED.format("Requested node configuration is not available"))
    asked = wanted or 0
    return {"gpus": total if "exclusive" in options else asked, "asked_gpus": asked}


def _variables(options, request, machine, number, nodes, folder) -> dict[str, str]:
    record = request.record
    threads = 1 if machine.facts["slurm"]["cpu"] == "core" else machine.smt
    cpus = (machine.num_cores - len(record["isolated"])) * threads
    per_node = f"{record['slots']}" + (f"(x{len(nodes)})" if len(nodes) > 1 else "")
    text = abbreviated(nodes)
    found = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": request.name,
        "SLURM_JOB_NODELIST": text,
        "SLURM_NODELIST": text,
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_JOB_CPUS_PER_NODE": f"{cpus}" + (f"(x{len(nodes)})" if len(nodes) > 1 else ""),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_PARTITION": request.queue,
        "SLURM_SUBMIT_DIR": str(Path.cwd()),
        "SLURM_CLUSTER_NAME": machine.name,
        "SLURMD_NODENAME": nodes[0],
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
    }
    if "ntasks" in options or "ntasks-per-node" in options:
        found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(record["tasks"])
    if "ntasks-per-node" in options:
        found["SLURM_NTASKS_PER_NODE"] = str(options["ntasks-per-node"])
    if "cpus-per-task" in options:
        found["SLURM_CPUS_PER_TASK"] = str(options["cpus-per-task"])
    if record["asked_gpus"]:
        found["SLURM_GPUS_ON_NODE"] = str(record["asked_gpus"])
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


def sacct(words: list[str], machine: Machine) -> int:
    table = """
    -j|--jobs= -S|--starttime= -E|--endtime= -o|--format= -P|--parsable2 -p|--parsable -n|--noheader
    -X|--allocations -a|--allusers -u|--user= -s|--state= -D|--duplicates -M|--clusters=
    --delimiter= -V|--version --units=
    """
    options, _ = read(words, table, "sacct")
    wanted = [
        word.partition("%")[0].lower()
        for word in str(options.get("format", "jobid,jobname,partition,state,exitcode")).split(",")
    ]
    heads = {
        "jobid": "JobID", "jobname": "JobName", "state": "State", "exitcode": "ExitCode",
        "start": "Start", "end": "End", "nodelist": "NodeList",
        "elapsed": "Elapsed", "timelimit": "Timelimit",
    }  # fmt: skip
    for word in wanted:
        if word not in heads:
            raise Refused(f'sacct: fatal: Invalid field requested: "{word}"')
    lines = []
    for job in _chosen(options.get("jobs")):
        steps = [("", job["name"])]
        if "allocations" not in options and job["state"] != "PENDING":
            steps += [(".batch", "batch"), (".extern", "extern")]
        for suffix, name in steps:
            state = job["state"]
            if state == "CANCELLED" and not suffix:
                state = f"CANCELLED by {os.getuid()}"
            took = int((job.get("ended") or time.time()) - job.get("started", time.time()))
            code = f"{job.get('code', 0)}:{job.get('signal', 0)}"
            cells = dict.fromkeys(heads, "") | {
                "jobid": job["number"] + suffix,
                "jobname": name,
                "state": state,
                "exitcode": code,
                "end": _stamp(job.get("ended")),
                "start": _stamp(job.get("started")),
                "nodelist": abbreviated(job["nodes"]) or "None assigned",
                "elapsed": time.strftime("%H:%M:%S", time.gmtime(took)),
            }
            lines.append([cells[word] for word in wanted])
    if "noheader" not in options:
        lines.insert(0, [heads[word] for word in wanted])
    if "parsable2" not in options:
        raise Refused("sacct: without --parsable2: no stand-in")
    for cells in lines:
        print("|".join(cells))
    return 0


def squeue(words: list[str], machine: Machine) -> int:
    table = "-h|--noheader -j|--jobs= -o|--format= -u|--user= -t|--states="
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
    elif kind == "partitions":
        # ReFrame asks for the default one when it distributes a check over nodes.
        for index, queue in enumerate(machine.facts["queues"]):
            print(f"PartitionName={queue} Default={'NO' if index else 'YES'} State=UP")
    else:
        raise Refused(f"invalid entity: {kind} for keyword: show")
    return 0


def scancel(words: list[str], machine: Machine) -> int:
    _, numbers = read(words, "-s|--signal= -f|--full -Q|--quiet -v|--verbose -b|--batch", "scancel")
    code = 0
    for number in numbers:
        if not load(number):
            print(f"scancel: error: Kill job error on job id {number}: Invalid job id specified")
            code = 1
        cancel(number)
    return code
