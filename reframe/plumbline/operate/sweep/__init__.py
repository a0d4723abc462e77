"""``plumbline sweep``: measures every node of a partition, with one job for each node.

A node's job is a ``plumbline run`` with the local scheduler inside the allocation. Its records have
the system, partition and node of the cluster, and a job that dies affects one node only. ReFrame
runs the jobs as test cases (``check.py``): it submits them, limits how many are queued, waits, and
cancels them when it is interrupted. Its ``--distribute`` would submit nodes x tests jobs instead.

A sweep has a folder, ``results/sweeps/<name>/``, with ``sweep.json`` and a folder ``nodes/<node>``
for each node on which a job has started. A job claims its node by creating that folder, which only
one job can, so no node is measured twice even if the submitting process is killed.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import fasteners

from plumbline.check import record, session_files
from plumbline.core import files, paths
from plumbline.core.errors import Fault, UnknownName, WrongFile, WrongOption
from plumbline.core.process import is_shell_safe, one_line
from plumbline.core.text import base_name, pluralize, suggest
from plumbline.operate.sweep.nodes import available, check_named
from plumbline.session import plan, preflight
from plumbline.session.inventory_check import case_of, planned_case
from plumbline.site import configuration, slurm

#: The sweep as a ReFrame check.
CHECK = Path(__file__).with_name("check.py")

#: Output of a job whose node another job has claimed.
CLAIMED = "plumbline: another job of this sweep measures this node"

#: Output of a job that runs on another node than it was submitted for.
WRONG_NODE = "plumbline: this job runs on another node than it was submitted for"

#: States of a node.
KINDS = ("measured", "failed", "in progress", "not reached")


@dataclass(frozen=True)
class State:
    """The state of a node in a sweep.

    :ivar kind: of :data:`KINDS`.
    :ivar code: exit code of its session, if that has ended; not 0 if it lacks a test case.
    """

    kind: str
    message: str
    code: int | None = None
    session: str = ""

    @property
    def measured(self) -> bool:
        return self.kind == "measured"


@dataclass
class Sweep:
    """A sweep, as stored in its folder.

    :ivar arguments: ReFrame's, for each node's session.
    :ivar jobs: how many jobs are queued at once, at most.
    :ivar cases: test cases of each node's session.
    :ivar seconds: time limit of each job.
    :ivar nodes: all nodes to measure.
    :ivar skipped: node -> why it is skipped.
    :ivar named: the user named the nodes.
    :ivar now: the nodes that this call measures.
    :ivar runs: those of ``cases`` that would run, by the dry run before the first job.
    """

    name: str
    system: str
    partition: str
    arguments: list[str]
    reservation: str
    jobs: int
    cases: list[str]
    seconds: int
    nodes: list[str]
    skipped: dict[str, str]
    named: bool = False
    now: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    def claim(self, node: str) -> Path:
        """Return the folder that a job creates to claim a node."""
        return self.folder / "nodes" / node

    @classmethod
    def read(cls, folder: Path) -> Sweep:
        """Read the sweep of a folder.

        :raises Fault: if there is none, or its file is damaged.
        """
        path = folder / "sweep.json"
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise UnknownName(
                f"{folder.parent}: no sweep {folder.name!r}; {suggest(folder.name, names())}"
            ) from None
        except (OSError, ValueError, TypeError) as err:
            why = getattr(err, "strerror", None) or err
            raise WrongFile(f"{path}: cannot be read: {why}: start a new sweep") from None

    def write(self) -> None:
        """Store it atomically."""
        path = self.folder / "sweep.json"
        with preflight.writable(path):
            (self.folder / "nodes").mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, json.dumps(asdict(self), indent=1))

    def states(self) -> dict[str, State]:
        """Return the state of each node to measure; each plan is read once."""
        sessions = defaultdict(list)
        for folder, node in self._sessions():
            sessions[node].append(folder)
        return {node: self._state(node, sessions[node]) for node in self.nodes}

    def state(self, node: str) -> State:
        """Return the state of a node."""
        return self._state(node, self.sessions(node))

    def _state(self, node: str, sessions: Iterable[Path]) -> State:
        """Return the state of a node, from its job's files and its sessions, the newest first."""
        claim = self.claim(node)
        if not claim.is_dir():
            return State("not reached", "no job has started on it")
        job = _text(claim / "job")
        code = _text(claim / "code")
        if not code.isdigit():
            state = slurm.job_state(job, claim.stat().st_uid) if job else ""
            if state is None:
                return State("in progress", f"job {job}: may be running: squeue gives no answer or "
                             f"hides it")  # fmt: skip
            if state:
                return State("in progress", f"job {job}: {state.lower()}")
            # It may have ended before Slurm answered.
            code = _text(claim / "code")
        if not code.isdigit():
            return State("failed", f"job {job or '?'} ended before its session did")
        session, ended = self._session(node, sessions)
        if not ended:
            return State("failed", f"job {job or '?'}: its session did not end (exit code {code})",
                         int(code), session)  # fmt: skip
        return self._measured(session, int(code))

    def _measured(self, session: str, code: int) -> State:
        """Return the state of a node whose session ended with this exit code. The session itself
        accepts that a test case is not planned or is skipped; the sweep, whose nodes are alike,
        does not."""
        folder, lacks = paths.results() / "sessions" / session, ""
        planned = {planned_case(case) for case in _plan(folder).get("cases", {}).values()}
        skipped = {
            case_of(found): f"{base_name(found.check)}: {found.why}"
            for found in _records(folder)
            if found.result == "skip" and case_of(found) in self.runs
        }
        if missing := sorted({*self.cases} - planned):
            count = pluralize(len(missing), "test case")
            lacks += f"; it did not plan {count} of the sweep: {missing[0]}"
            code = max(code, 1)
        if skipped:
            count = pluralize(len(skipped), "test case")
            lacks += f"; it skipped {count}: {next(iter(skipped.values()))}"
            code = code or 2
        message = {0: "OK", 1: "faults found"}.get(code, "inconclusive")
        return State("measured", message + lacks, code, session)

    def sessions(self, node: str) -> Iterator[Path]:
        """Yield the folders of a node's sessions in this sweep, the newest first."""
        return (folder for folder, of in self._sessions() if of == node)

    def _sessions(self) -> Iterator[tuple[Path, str]]:
        """Yield the folder and the node of each session in this sweep, the newest first."""
        for folder in reversed(session_files.sessions(paths.results())):
            # Only the day, since a node's clock may be slow.
            if folder.name[:8] < self.name[:8]:
                break
            extras = _plan(folder).get("extras", {})
            if extras.get("sweep") == self.name and "node" in extras:
                yield folder, extras["node"]

    def _session(self, node: str, sessions: Iterable[Path]) -> tuple[str, bool]:
        """Return the session of a node's last job, and whether it has ended."""
        before = {_text(cut / "session") for cut in self._cut(node)}
        for folder in sessions:
            if folder.name not in before:
                return folder.name, (folder / "end.json").is_file()
        return "", False

    def clear(self, node: str) -> None:
        """Move the claim of a job that failed aside, so that the node can be measured again.

        The name of its session is stored there, so that it is not taken for the next job's.
        """
        claim = self.claim(node)
        session, _ = self._session(node, self.sessions(node))
        (claim / "session").write_text(session, encoding="utf-8")
        claim.rename(claim.with_name(f"{node}.cut-{len(self._cut(node)) + 1}"))

    def _cut(self, node: str) -> list[Path]:
        """Return the claims of a node that were moved aside."""
        claim = self.claim(node)
        names = (claim.with_name(f"{node}.cut-{number}") for number in itertools.count(1))
        return [*itertools.takewhile(Path.is_dir, names)]

    def lock(self) -> fasteners.InterProcessLock:
        """Return the lock of the sweep, acquired.

        :raises Fault: if another process holds it, or the file system has no locks.
        """
        try:
            lock = files.lock(self.folder / "lock")
            if files.acquire(lock, blocking=False):
                return lock
        except OSError as err:
            raise Fault(
                f"{self.folder}: cannot be locked ({err}): set PLUMBLINE_RESULTS to a "
                f"folder on a file system with locks",
                code="files.no-locks",
            ) from None
        raise Fault(
            f"sweep {self.name}: another process is running it: wait until it ends",
            code="session.already-running",
        )


def folder_of(name: str) -> Path:
    """Return the folder of a sweep."""
    return paths.results() / "sweeps" / name


def names() -> list[str]:
    """Return the names of all sweeps, oldest first."""
    return sorted(path.parent.name for path in (paths.results() / "sweeps").glob("*/sweep.json"))


def create(
    system: str,
    partition: str,
    arguments: list[str],
    reservation: str,
    jobs: int | None,
    seconds: int | None,
    nodes: list[str],
) -> Sweep:
    """Return a new sweep, which is not stored yet.

    :arg jobs: how many jobs are queued at once, at most; by default the partition's ``max_jobs``.
    :arg seconds: time limit of a job; by default the sum of its test cases' limits.
    :arg nodes: by default all nodes of the partition that are up.
    :raises Fault: if there is no node, or none of a name, or no test case, the scheduler is not
        Slurm, or the reservation's name is not safe in a job script.
    """
    preflight.refuse_dry_run(arguments)
    if reservation and not is_shell_safe(reservation):
        raise WrongOption(f"--reservation {one_line(reservation)}: not a name of a reservation")
    found = partition_of(system, partition)
    if found["scheduler"] not in ("slurm", "squeue"):
        raise Fault(
            f"partition {partition}: its scheduler is {found['scheduler']}: a sweep needs Slurm",
            code="scheduler.unsupported",
        )
    options = found.get("sched_options") or {}
    if slurm.names_clusters(found.get("access", [])) or options.get("slurm_multi_cluster_mode"):
        raise Fault(
            f"partition {partition}: its jobs go to other clusters (--clusters, "
            f"slurm_multi_cluster_mode), whose nodes and jobs are not known here: sweep it with a "
            f"system file without them, on a host of that cluster",
            code="scheduler.unsupported",
        )
    check_named(nodes)
    chosen, skipped = (nodes, {}) if nodes else available(found, reservation)
    if not chosen:
        reasons = "; ".join(f"{node}: {why}" for node, why in skipped.items())
        raise Fault(f"partition {partition}: no node is available: {reasons}",
                    code="scheduler.no-node")  # fmt: skip
    on_node = {configuration.ON_NODE: f"{system}:{partition}"}
    cases = plan.preview(system, paths.checks(), arguments, **on_node).cases
    # Ten seconds for ReFrame's own work on each case.
    limit = seconds or 300 + sum(case.seconds + 10 for case in cases)
    return Sweep(
        configuration.session_id(),
        system,
        partition,
        arguments,
        reservation,
        jobs or found.get("max_jobs") or 8,
        sorted(base_name(case.case) for case in cases),
        int(limit),
        chosen,
        skipped,
        bool(nodes),
        runs=sorted({base_name(case.case) for case in cases if case.runs}),
    )


def resume(name: str, jobs: int | None) -> Sweep:
    """Return a sweep that was cut off, with the nodes that are up now. It is not stored yet:
    another process may be running it.

    :raises Fault: if there is no such sweep.
    """
    found = Sweep.read(folder_of(name))
    if not found.named:
        up, down = available(partition_of(found.system, found.partition), found.reservation)
        known = {*found.nodes, *found.skipped}
        gone = dict.fromkeys(known - {*up, *down}, "no longer in the partition")
        found.skipped = {
            node: why for node, why in {**down, **gone}.items() if not found.state(node).measured
        }
        nodes = dict.fromkeys([*found.nodes, *up])
        found.nodes = [node for node in nodes if node not in found.skipped]
    found.jobs = jobs or found.jobs
    return found


def partition_of(system: str, name: str) -> dict:
    """Return a partition of a system file.

    :raises Fault: if there is none.
    """
    configuration.check_system(system)
    content = configuration.read_system(paths.systems().find(f"{system}.yaml"))
    partitions = {found["name"]: found for found in content["systems"][0]["partitions"]}
    if name not in partitions:
        raise UnknownName(f"{system}: no partition {name!r}; {suggest(name, partitions)}")
    return partitions[name]


def run(sweep: Sweep, budget: float = 0) -> int:
    """Measure the nodes that are not measured yet. Return ReFrame's exit code.

    :arg budget: seconds after which no job starts and running ones are cancelled; no limit if 0.
    """
    from plumbline.session import run as supervisor

    lock = sweep.lock()
    try:
        states = sweep.states()
        for node, state in states.items():
            if state.kind == "failed":
                sweep.clear(node)
        sweep.now = [n for n, s in states.items() if s.kind in ("not reached", "failed")]
        sweep.write()
        if not sweep.now:
            return 0
        os.environ[configuration.SWEEP] = str(sweep.folder)
        options = ["-J", f"reservation={sweep.reservation}"] if sweep.reservation else []
        arguments = ["-c", str(CHECK), "--session-extras", f"sweep={sweep.name}", *options]
        return supervisor.run(sweep.system, arguments, strict=False, budget=budget)
    finally:
        lock.release()


def report(sweep: Sweep) -> tuple[list[str], int]:
    """Return the state of each node, a line each, and the exit code of the sweep.

    The code is 1 if a node's session found a fault, 2 if one is inconclusive or skipped a test case
    that would run, or a node was not measured, also if it was skipped, else 0.
    """
    states = sweep.states()
    lines = [
        f"{node}: {state.kind}: {one_line(state.message)}"
        + (f" (session {state.session})" if state.session else "")
        for node, state in states.items()
        if state.code != 0
    ]
    lines += [f"{node}: skipped: {why}" for node, why in sweep.skipped.items()]
    counts = {kind: sum(state.kind == kind for state in states.values()) for kind in KINDS} | {
        "skipped": len(sweep.skipped)
    }
    summary = [f"{count} {kind}" for kind, count in counts.items() if count or kind == "skipped"]
    lines.append(f"sweep {sweep.name}: {', '.join(summary)}")
    if sweep.skipped or not all(state.measured for state in states.values()):
        lines.append(f"to measure the remaining nodes: plumbline sweep --resume {sweep.name}")
    codes = {state.code if state.measured else 2 for state in states.values()}
    return lines, 1 if 1 in codes else 2 if codes - {0} or sweep.skipped else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _plan(folder: Path) -> session_files.Plan | dict[str, Any]:
    try:
        return session_files.read_plan(folder)
    except (OSError, record.Damaged):
        return {}


def _records(folder: Path) -> list[record.Record]:
    try:
        return [*record.read(folder / "records.jsonl", bad=lambda line: None)]
    except Fault:
        return []
