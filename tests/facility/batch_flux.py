"""Flux's commands: flux-batch(1), flux-job(1), flux-jobs(1), flux-cancel(1)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from . import login
from .batch import (
    Request,
    abbreviated,
    cancel,
    check_pins,
    directives,
    load,
    submit,
)
from .launch import expand_nodes
from .machine import Machine
from .options import Refused, read

BATCH = """
--nodes= --nslots= --cores-per-slot= --exclusive --time-limit= --job-name= --output= --error=
--queue= --requires=
"""

#: A job's number in Flux is a large one; the facility's own counts from 1001.
BASE = 81234567890
_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def f58(number: int) -> str:
    """A job's number as Flux prints it (RFC 19)."""
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = _DIGITS[digit] + text
    return f"ƒ{text or '1'}"


def from_f58(text: str) -> int:
    """The number of a printed one, or of a decimal one.

    :raises Refused: if it is neither.
    """
    if text.isdigit():
        return int(text)
    number = 0
    for letter in text.lstrip("ƒf"):
        if letter not in _DIGITS:
            raise Refused(f"flux-job: error parsing jobid: {text}")
        number = number * 58 + _DIGITS.index(letter)
    return number


def own(text: str) -> str:
    """The facility's number of a job."""
    return str(from_f58(text) - BASE)


def flux(words: list[str], machine: Machine) -> int:
    command, *rest = words or [""]
    if command == "--version":
        print("commands:    \t0.66.0\nlibflux-core:\t0.66.0")
        return 0
    known = {"batch": batch, "job": job, "jobs": jobs, "cancel": cancel_jobs,
             "queue": login.flux_queue, "resource": login.flux_resource}  # fmt: skip
    if command not in known:
        raise Refused(f"flux: `{command}' is not a flux command.  See 'flux --help'")
    return known[command](rest, machine) or 0


def batch(words: list[str], machine: Machine) -> None:
    options, rest = read(words, BATCH, "flux-batch")
    path = Path(rest[0])
    script = path.read_text()
    _one_block(script)
    inner, stray = read(directives(script, "#flux:"), BATCH, "flux-batch")
    if stray:
        raise Refused(f"flux-batch: ERROR: {stray[0]} in a directive")
    for name, value in options.given:
        inner.add(name, value)
    options = inner
    slots = options.number("nslots")
    width = options.number("cores-per-slot", 1)
    exclusive = "exclusive" in options
    if slots is None:
        raise Refused("flux-batch: ERROR: Number of slots to allocate must be specified")
    cores = machine.num_cores
    nodes = options.number("nodes", -(-slots * width // cores))
    if nodes > slots:
        raise Refused("flux-batch: ERROR: node count must not be greater than slot count")
    per_node = -(-slots // nodes)
    request = Request(str(options.get("job-name", path.name)), script, str(Path.cwd()))
    request.queue = str(options.get("queue", machine.facts["queues"][0]))
    if request.queue not in machine.facts["queues"]:
        raise Refused(f"flux-batch: ERROR: [Errno 22] Invalid queue '{request.queue}' specified")
    if nodes > machine.facts["count"] or per_node * width > cores:
        raise Refused("flux-batch: ERROR: [Errno 22] unsatisfiable request")
    request.nodes = nodes
    for rule in options.all("requires"):
        if str(rule).startswith("hosts:"):
            request.pinned = expand_nodes(str(rule).partition(":")[2])
        else:
            raise Refused(f"flux-batch: ERROR: [Errno 22] unsatisfiable constraint: {rule}")
    check_pins(request, machine, "flux-batch: ERROR: [Errno 22] Invalid hosts in constraint: {}")
    if "time-limit" in options:
        found = re.fullmatch(r"(\d+)s", str(options["time-limit"]))
        if not found:
            raise Refused(f"flux-batch: ERROR: invalid time limit: {options['time-limit']}")
        request.seconds = float(found[1])
    request.output = str(options.get("output", "flux-{{id}}.out")).replace("{{id}}", "%J")
    request.error = str(options.get("error", "")).replace("{{id}}", "%J")
    kept = list(range(per_node * width, cores)) if not exclusive else []
    request.record = {
        "slots": per_node,
        "isolated": kept,
        "gpus": machine.num_gpus if exclusive else 0,
    }

    def variables(number, granted, folder):
        return {
            "FLUX_JOB_ID": f58(BASE + int(number)),
            "FLUX_URI": f"local://{folder}/local-0",
            "FLUX_JOB_NNODES": str(len(granted)),
            "FLUX_JOB_SIZE": str(slots),
            "FLUX_ENCLOSING_ID": f58(BASE + int(number)),
        }

    print(f58(BASE + int(submit(request, machine, variables))))


def _one_block(script: str) -> None:
    """Directives must stand in one block (flux-batch(1), "SUBMISSION DIRECTIVES")."""
    seen = ended = False
    for line in script.splitlines():
        if line.startswith("#flux:"):
            if ended:
                raise Refused("flux-batch: ERROR: directives are not in one block of comments")
            seen = True
        elif seen and not line.startswith("#"):
            ended = True


def job(words: list[str], machine: Machine) -> None:
    if words[:2] != ["id", "--to=dec"]:
        raise Refused(f"flux-job: unknown subcommand {' '.join(words[:2])}")
    for word in words[2:]:
        print(from_f58(word))


_STATUS = {"PENDING": "SCHED", "RUNNING": "RUN", "CANCELLED": "CANCELED", "NODE_FAIL": "FAILED"}


def jobs(words: list[str], machine: Machine) -> int:
    options, numbers = read(words, "--no-header --format=", "flux-jobs")
    chosen, code = [], 0
    for text in numbers:
        found = load(own(text))
        if found:
            chosen.append(found)
        else:
            print(f"flux-jobs: ERROR: JobID {text} unknown", file=sys.stderr)
            code = 1
    text = str(options["format"])
    notes = {
        "TIMEOUT": "resource allocation expired",
        "CANCELLED": "",
        "NODE_FAIL": "lost contact with job shell",
    }
    for found in chosen:
        ended = found["state"] not in ("PENDING", "RUNNING")
        number = BASE + int(found["number"])
        status = _STATUS.get(found["state"], found["state"])
        cells = {
            "id.dec": str(number),
            "status": status,
            "returncode": str(_code(found)) if ended and found["nodes"] else "",
            "nodelist": abbreviated(found["nodes"]),
            "exception.note": notes.get(found["state"], ""),
        }

        def cell(match, cells=cells):
            if match[1] not in cells:
                raise Refused(f"flux-jobs: ERROR: Unknown format field: {match[1]}")
            return cells[match[1]]

        print(re.sub(r"\{([\w.]+)[^}]*\}", cell, text))
    return code


def _code(found: dict) -> int:
    return {"TIMEOUT": 142, "CANCELLED": 143, "NODE_FAIL": 1}.get(
        found["state"], found.get("code", 0)
    )


def cancel_jobs(words: list[str], machine: Machine) -> int:
    code = 0
    for text in (word for word in words if not word.startswith("-")):
        if not cancel(own(text)):
            print(f"flux-cancel: ERROR: {text}: job is inactive", file=sys.stderr)
            code = 1
    return code
