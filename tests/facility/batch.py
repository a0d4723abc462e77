"""The batch systems: their commands, and the jobs, which run here in the background.

A job is a folder of the state: ``job.json`` (what was granted, from when it starts), ``script``,
``meta.json`` (what was asked for) and ``status.json`` (how far it is).
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .faults import Faults, drained
from .machine import Machine, list_of
from .options import Options, Refused, read

#: Seconds between two looks for free nodes.
PAUSE = 0.1

#: What a batch system that starts jobs with a fresh login keeps of the submitter's environment;
#: the rest is the facility's own.
LOGIN = ("HOME", "PATH", "LANG", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "TZ")
KEPT = ("FACILITY_", "STANDIN_", "BASH_FUNC_module")


@dataclass
class Request:
    """What a job asks for.

    :ivar record: what its launchers must know: nodes come to it when it starts.
    :ivar seconds: time limit.
    :ivar fresh_login: whether it starts in a login of its own, and not where it was submitted.
    :ivar ended: what the batch system does as the job ends: called with its number, nodes, state
        and exit code, and the files of its output and errors.
    """

    name: str
    script: str
    folder: str = field(default_factory=os.getcwd)
    nodes: int = 1
    pinned: list[str] = field(default_factory=list)
    record: dict = field(default_factory=dict)
    seconds: float | None = None
    output: str = ""
    error: str = ""
    queue: str = ""
    fresh_login: bool = False
    ended: Callable[..., None] = lambda *_: None


# -- state --------------------------------------------------------------------------------------


def jobs_folder() -> Path:
    folder = Path(os.environ["FACILITY_STATE"]) / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked():
    """Nobody else changes the state."""
    with (jobs_folder() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def load(number: str) -> dict | None:
    """A job's status and what it asked for."""
    folder = jobs_folder() / number
    try:
        meta = json.loads((folder / "meta.json").read_text())
        return meta | json.loads((folder / "status.json").read_text()) | {"number": number}
    except OSError:
        return None


def put(folder: Path, **status: object) -> None:
    path = folder / "status.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    new = folder / f"status.{os.getpid()}"
    new.write_text(json.dumps(old | status))
    new.rename(path)


def wait(number: str) -> int:
    """Wait for a job's end; its exit code."""
    while (job := load(number)) and job["state"] in ("PENDING", "RUNNING"):
        time.sleep(PAUSE)
    return job.get("code", 1) if job else 1


def every_job() -> list[dict]:
    numbers = sorted((path.name for path in jobs_folder().iterdir() if path.is_dir()), key=int)
    return [job for number in numbers if (job := load(number))]


#: A job's number, nodes and folder -> the variables of its batch system.
Variables = Callable[[str, list[str], Path], dict[str, str]]


def submit(request: Request, machine: Machine, variables: Variables = lambda *_: {}) -> str:
    """Takes a job; its number."""
    with locked():
        taken = [int(path.name) for path in jobs_folder().iterdir() if path.name.isdigit()]
        number = str(max(taken, default=1000) + 1)
        folder = jobs_folder() / number
        folder.mkdir()
        meta = {
            "name": request.name,
            "queue": request.queue,
            "folder": request.folder,
            "submitted": time.time(),
            "wanted": request.nodes,
        }
        (folder / "meta.json").write_text(json.dumps(meta))
        (folder / "script").write_text(request.script)
        (folder / "script").chmod(0o755)
        put(folder, state="PENDING", nodes=[])
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() == 0:
        os.setsid()
        with Path(os.devnull).open("r+b") as null:
            for stream in (0, 1, 2):
                os.dup2(null.fileno(), stream)
        code = 0
        try:
            _run(request, machine, variables, number, folder)
        except BaseException as err:
            put(folder, state="FAILED", code=1, ended=time.time(), note=repr(err))
            code = 1
        os._exit(code)
    return number


def _run(request, machine, variables, number, folder) -> None:
    """A job's life, in a process of its own."""
    while True:
        with locked():
            if load(number)["state"] != "PENDING":
                return
            nodes = _free_nodes(request, machine)
            if nodes:
                record = request.record | {"nodes": nodes}
                (folder / "job.json").write_text(json.dumps(record))
                put(folder, state="RUNNING", nodes=nodes, started=time.time(), pid=os.getpid())
                break
        time.sleep(PAUSE)
    env = dict(os.environ)
    if request.fresh_login:
        env = {k: v for k, v in env.items() if k in LOGIN or k.startswith(KEPT)}
    env |= variables(number, nodes, folder) | {"FACILITY_JOB": number} | _of_node(machine)
    output, error = (
        Path(request.folder, _named(name, number)) for name in (request.output, request.error)
    )
    spool = [folder / "out", folder / "err"] if request.fresh_login else [output, error]
    merged = not request.error or error == output
    start = os.environ.get("HOME", "/") if request.fresh_login else request.folder
    fault = Faults().one("state")
    limit = request.seconds
    other = Path(os.devnull) if merged else spool[1]
    with spool[0].open("wb") as out, other.open("wb") as err:
        process = subprocess.Popen(
            [str(folder / "script")],
            cwd=start,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT if merged else err,
            start_new_session=True,
        )
        put(folder, group=process.pid)
        state, code = "", 0
        try:
            code = process.wait(timeout=0.5 if fault else limit)
        except subprocess.TimeoutExpired:
            state = fault["state"] if fault else "TIMEOUT"
            _kill(process.pid)
            process.wait()
    if load(number)["state"] == "CANCELLED":
        state = "CANCELLED"
    signaled = -code if code < 0 else 0
    if not state:
        state = "FAILED" if code else "COMPLETED"
    request.ended(number, nodes, state, code, spool)
    if request.fresh_login:
        for made, wanted in zip(spool, (output, error), strict=True):
            if not merged or wanted is output:
                wanted.write_bytes(made.read_bytes() if made.exists() else b"")
    put(folder, state=state, code=max(code, 0), signal=signaled, ended=time.time())


def _of_node(machine: Machine) -> dict[str, str]:
    """Variables of a node whose Python sees the node, not this machine."""
    described = machine.facts.get("described")
    return {"PYTHONPATH": str(Path(__file__).parent / "python")} if described else {}


def _named(name: str, number: str) -> str:
    return name.replace("%j", number).replace("%J", number)


def _free_nodes(request: Request, machine: Machine) -> list[str]:
    """Nodes for a job, of one rack where one has enough; none while there are too few."""
    busy = {
        node for job in every_job() if job["state"] == "RUNNING" for node in job.get("nodes", ())
    }
    busy |= drained()
    misplaced = Faults().one("misplace")
    if misplaced:
        return [] if misplaced["node"] in busy else [misplaced["node"]]
    if request.pinned:
        return [] if busy & set(request.pinned) else request.pinned
    free = [node for node in machine.nodes if node not in busy]
    racks: dict[str, list[str]] = {}
    for node in free:
        together = racks.setdefault(machine.rack_of(node), [])
        together.append(node)
        if len(together) == request.nodes:
            return together
    return free[: request.nodes] if len(free) >= request.nodes else []


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def cancel(number: str) -> bool:
    """Ends a job; whether there was one to end."""
    with locked():
        job = load(number)
        if not job or job["state"] not in ("PENDING", "RUNNING"):
            return False
        ended = {"ended": time.time()} if job["state"] == "PENDING" else {}
        put(jobs_folder() / number, state="CANCELLED", **ended)
    if "group" in job:
        _kill(job["group"])
    return True


def cancel_all(words: list[str], unknown: tuple[str, int], ended: tuple[str, int]) -> int:
    """End the jobs of a command line; its exit code.

    :arg unknown: message, with the job's id, and exit code for a job that there is not;
        ``ended``: for one that has ended.
    """
    code = 0
    for text in (word for word in words if not word.startswith("-")):
        number = text.partition(".")[0]
        if not cancel(number):
            message, code = ended if load(number) else unknown
            print(message.format(text), file=sys.stderr)
    return code


def directives(text: str, sentinel: str, anywhere: bool = False) -> list[str]:
    """Words of a script's directives: up to the first command, or anywhere."""
    words: list[str] = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith(sentinel) and (line[len(sentinel) :][:1] in (" ", "\t", "")):
            words += shlex.split(line[len(sentinel) :])
        elif line and not line.startswith("#") and not anywhere:
            break
    return words


def submitted(words: list[str], script: str, sentinel: str, table: str, command: str) -> Options:
    """The options of a command line, which win over those of the script's directives."""
    _, rest = read(words, table, command)
    options, found = read([*directives(script, sentinel), *words], table, command)
    if found != rest:
        raise Refused(f"{command}: error: not an option in a directive: {found[0]}", 2)
    return options


def check_pins(request: Request, machine: Machine, complaint: str) -> None:
    known = set(machine.nodes)
    away = [node for node in request.pinned if node not in known]
    if away:
        raise Refused(complaint.format(away[0]))
    if request.pinned:
        request.nodes = max(request.nodes, len(request.pinned))
        extra = [node for node in machine.nodes if node not in set(request.pinned)]
        request.pinned += extra[: request.nodes - len(request.pinned)]


def abbreviated(nodes: list[str]) -> str:
    """Names in Slurm's and Flux's short form: ``a[01-03,7]``."""
    groups: dict[tuple[str, str, int], list[str]] = {}
    for node in nodes:
        prefix, number, suffix = re.fullmatch(r"(.*?)(\d*)(\D*)", node).groups()
        groups.setdefault((prefix, suffix, len(number)), []).append(number)
    parts = []
    for (prefix, suffix, width), found in groups.items():
        inner = found[0]
        if len(found) > 1:
            ranges = list_of(map(int, found))
            padded = re.sub(r"\d+", lambda number, width=width: number[0].zfill(width), ranges)
            inner = f"[{padded}]"
        parts.append(f"{prefix}{inner}{suffix}")
    return ",".join(parts)


def clock(text: str, complaint: str) -> float:
    """Seconds of a time limit: ``[days-][[hours:]minutes:]seconds`` with two colons, minutes with
    none, as sbatch(1) has it."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not found:
        raise Refused(complaint)
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[4]:
        seconds = first * 3600 + second * 60 + third
    elif found[1]:
        seconds = first * 3600 + second * 60
    else:
        seconds = first * 60 + second
    return days * 86400 + seconds


def main(name: str, words: list[str], machine: Machine) -> int:
    kind = machine.facts["batch"]
    module = f"batch_{'pbs' if kind in ('pbspro', 'torque') else kind}"
    if name in ("sinfo", "pbsnodes", "bqueues", "lshosts", "lsid"):
        module = "login"
    function = getattr(importlib.import_module(f".{module}", __package__), name)
    return function(words, machine) or 0
