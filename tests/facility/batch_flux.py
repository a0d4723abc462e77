"""Flux's commands: flux-batch(1), flux-job(1), flux-jobs(1), flux-cancel(1)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from . import login
from .batch import Request, abbreviated, cancel_all, check_pins, load, submit, submitted
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
    path = Path(words[-1])
    script = path.read_text()
    _one_block(script)
    options = submitted(words, script, "#flux:", BATCH, "flux-batch")
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
    request = Request(str(options.get("job-name", path.name)), script)
    request.queue = str(options.get("queue", machine.facts["queues"][0]))
    if request.queue not in machine.facts["queues"]:
        raise Refused(f"flux-batch: ERROR: [Errno 22] Invalid queue '{request.queue}' specified")
    if nodes > machine.facts["count"] or per_node * width > cores:
        raise Refused("flux-batch: ERROR: [Errno 22] unsatisfiable request")
    request.nodes = nodes
    if "requires" in options:
        kind, _, names = str(options["requires"]).partition(":")
        if kind != "hosts":
            raise Refused(f"flux-batch: ERROR: [Errno 22] unsatisfiable constraint: {kind}")
        request.pinned = expand_nodes(names)
    check_pins(request, machine, "flux-batch: ERROR: [Errno 22] Invalid hosts in constraint: {}")
    if "time-limit" in options:
        found = re.fullmatch(r"(\d+)s", str(options["time-limit"]))
        if not found:
            raise Refused(f"flux-batch: ERROR: invalid time limit: {options['time-limit']}")
        request.seconds = float(found[1])
    request.output = str(options.get("output", "flux-{{id}}.out")).replace("{{id}}", "%J")
    request.error = str(options.get("error", "")).replace("{{id}}", "%J")
    request.record = {
        "slots": per_node,
        "isolated": [] if exclusive else list(range(per_node * width, cores)),
        "gpus": machine.num_gpus if exclusive else 0,
    }
    print(f58(BASE + int(submit(request, machine))))


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


#: State of a job -> its status and exit code, and the type and note of its exception, where they
#: are not its own. Of a node's failure: flux-core 0.66, src/modules/job-exec/exec.c.
_ENDED = {
    "PENDING": ("SCHED", "", "", ""),
    "RUNNING": ("RUN", "", "", ""),
    "TIMEOUT": ("TIMEOUT", "142", "timeout", "resource allocation expired"),
    "CANCELLED": ("CANCELED", "143", "cancel", ""),
    "NODE_FAIL": ("FAILED", "1", "exec", "node failure on {} (rank 0)"),
}


def jobs(words: list[str], machine: Machine) -> int:
    options, numbers = read(words, "--no-header --format=", "flux-jobs")
    # src/cmd/flux-jobs.py: the exit code of one that it finds.
    code = 1
    for text in numbers:
        found = load(own(text))
        if not found:
            print(f"JobID {text} unknown", file=sys.stderr)
            continue
        state = found["state"]
        own_code = str(found.get("code", 0))
        status, returned, kind, note = _ENDED.get(state, (state, own_code, "", ""))
        cells = {
            "id.dec": BASE + int(found["number"]),
            "status": status,
            "returncode": returned if found["nodes"] else "",
            "nodelist": abbreviated(found["nodes"]),
            "exception.type": kind,
            "exception.note": note.format(*found["nodes"][:1]),
        }
        code = 0
        login.formatted(str(options["format"]), cells)
    return code


def cancel_jobs(words: list[str], machine: Machine) -> int:
    inactive = "flux-cancel: ERROR: {}: job is inactive", 1
    return cancel_all([own(word) for word in words], inactive, inactive)
