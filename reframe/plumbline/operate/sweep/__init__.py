"""Sweeps: every node of a partition measured with one job for the whole set.

Each node's job is a ``plumbline run`` of its own on the node, with the local scheduler inside the
allocation: records, verdicts and exit codes are the usual ones, of the cluster's system, partition
and node, and a job that dies takes one node's session with it. The jobs themselves are test cases
of ReFrame (``check.py``), one for each node: it submits, keeps to the cap on queued jobs, waits,
says how a job ended, and cancels when it is interrupted. ``--distribute`` would do none of the
first: it makes nodes x tests jobs.

A sweep has a folder, ``results/sweeps/<name>/``: ``sweep.json``, and for each node that a job began
on a folder ``nodes/<node>``. A job takes its node by making that folder, which but one can; so no
node is measured twice, whatever becomes of the process that submitted the jobs.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import fasteners

from plumbline.check import record
from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.process import plain, shown
from plumbline.core.text import base_name, counted, near
from plumbline.session import preflight
from plumbline.session.inventory_check import planned_case
from plumbline.site import configuration, slurm

#: The check of ReFrame that is a sweep.
CHECK = Path(__file__).with_name("check.py")

#: What a job says that finds its node taken.
TAKEN = "plumbline: another job of this sweep has this node"

#: What a job says that is not on the node that it was submitted for.
ELSEWHERE = "plumbline: this job is on another node than its own"


@dataclass(frozen=True)
class State:
    """How far a sweep is with a node.

    :ivar kind: ``measured``, ``failed``, ``under way`` or ``not reached``.
    :ivar code: exit code of its session, where that ended.
    :ivar told: in words.
    """

    kind: str
    told: str
    code: int | None = None
    session: str = ""

    @property
    def measured(self) -> bool:
        return self.kind == "measured"


@dataclass
class Sweep:
    """A sweep, as its folder keeps it.

    :ivar arguments: ReFrame's, of each node's session.
    :ivar cases: test cases of each node's session.
    :ivar seconds: time limit of each job.
    :ivar nodes: all that it is to measure; ``now`` are those of this call.
    :ivar skipped: node -> why it is left out.
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

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    def claim(self, node: str) -> Path:
        """What a job makes to take a node."""
        return self.folder / "nodes" / node

    @classmethod
    def read(cls, folder: Path) -> Sweep:
        """The sweep of a folder.

        :raises Fault: if there is none.
        """
        path = folder / "sweep.json"
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as err:
            why = getattr(err, "strerror", None) or err
            raise Fault(
                f"{path}: no sweep: {why}; {near(folder.name, every())}", code="input.unknown-name"
            ) from None

    def write(self) -> None:
        """Keeps it, whole or not at all."""
        path = self.folder / "sweep.json"
        try:
            (self.folder / "nodes").mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
            part.replace(path)
        except OSError as err:
            raise Fault(preflight.unwritable(path, err), code="files.not-writable") from None

    # -- how far it is ------------------------------------------------------------------------

    def state(self, node: str) -> State:
        """How far a node is, by what its job left and what its session recorded."""
        claim = self.claim(node)
        if not claim.is_dir():
            return State("not reached", "no job began on it")
        job = _text(claim / "job")
        code = _text(claim / "code")
        if not code.isdigit():
            state = slurm.job_state(job) if job else ""
            if state is None:
                return State("under way", f"job {job}: squeue does not answer, so it may run")
            if state:
                return State("under way", f"job {job}: {state.lower()}")
            return State("failed", f"job {job or '?'} ended within its session")
        session, ended = self._session(node)
        if not ended:
            return State("failed", f"job {job or '?'}: no session ended (exit code {code})",
                         int(code), session)  # fmt: skip
        told = {"0": "as it should be", "1": "a fault found"}.get(code, "could not tell")
        missing = self._missing(session)
        if missing:
            lacks = f"without {counted(len(missing), 'case')} that the others have: {missing[0]}"
            return State("measured", f"{told}; and {lacks}", max(int(code), 1), session)
        return State("measured", told, int(code), session)

    def _session(self, node: str) -> tuple[str, bool]:
        """A node's session of this sweep, and whether it came to its end."""
        nodes = self.claim(node).parent
        before = {_text(cut / "session") for cut in nodes.glob(f"{node}.cut-*")}
        for folder in reversed(record.sessions(paths.results())):
            # A node's clock may be a little behind.
            if folder.name[:8] < self.name[:8]:
                break
            extras = _plan(folder).get("extras", {})
            ours = (extras.get("sweep"), extras.get("node")) == (self.name, node)
            if ours and folder.name not in before:
                return folder.name, (folder / "end.json").is_file()
        return "", False

    def _missing(self, session: str) -> list[str]:
        """Cases of the sweep that a session did not plan."""
        planned = {
            planned_case(case) for case in _plan(_sessions() / session).get("cases", {}).values()
        }
        return sorted(set(self.cases) - planned)

    def clear(self, node: str) -> None:
        """Gives a node free whose job did not finish; what that left is kept beside it. Its session
        is named there: it may be closed by now, and is not to be taken for the next job's."""
        claim = self.claim(node)
        (claim / "session").write_text(self._session(node)[0], encoding="utf-8")
        number = 1 + len([*claim.parent.glob(f"{node}.cut-*")])
        claim.rename(claim.with_name(f"{node}.cut-{number}"))

    def locked(self) -> fasteners.InterProcessLock:
        """What but one process has at a time.

        :raises Fault: if another one has it.
        """
        try:
            lock = files.lock(self.folder / "lock")
            if lock.acquire(blocking=False):
                return lock
        except (OSError, threading.ThreadError) as err:
            raise Fault(
                f"{self.folder}: cannot be locked ({err}): set PLUMBLINE_RESULTS to a "
                f"folder on a file system with locks",
                code="files.no-locks",
            ) from None
        raise Fault(
            f"sweep {self.name}: another process is at it; wait until it has ended",
            code="session.already-running",
        )


def folder_of(name: str) -> Path:
    """The folder of a sweep."""
    return paths.results() / "sweeps" / name


def every() -> list[str]:
    """The names of all sweeps, oldest first."""
    return sorted(path.parent.name for path in (paths.results() / "sweeps").glob("*/sweep.json"))


def begun(
    system: str,
    partition: str,
    arguments: list[str],
    reservation: str,
    jobs: int | None,
    seconds: int | None,
    nodes: list[str],
) -> Sweep:
    """A new sweep: its nodes, what each is to run, and for how long at most.

    :arg jobs: queued at once, at most; the partition's ``max_jobs`` where not given.
    :arg seconds: time limit of a job; by the test cases' own where not given.
    :arg nodes: the nodes, where not all of the partition are meant.
    :raises Fault: if there is none, no test case for them, another scheduler than Slurm, or the
        reservation's name could not stand in a job script.
    """
    from plumbline.operate.sweep import nodes as of_nodes
    from plumbline.session import plan

    if reservation and not plain(reservation):
        raise Fault(
            f"--reservation {shown(reservation)}: no name of a reservation",
            code="input.wrong-option",
        )
    found = _partition(system, partition)
    if found["scheduler"] not in ("slurm", "squeue"):
        raise Fault(
            f"partition {partition}: its scheduler is {found['scheduler']}; a sweep gives Slurm "
            f"the node of each job, and asks it for nodes and jobs",
            code="scheduler.unsupported",
        )
    taken, skipped = (nodes, {}) if nodes else of_nodes.chosen(found, reservation)
    if not taken:
        told = "; ".join(f"{node}: {why}" for node, why in skipped.items())
        raise Fault(f"partition {partition}: no node can be had: {told}", code="scheduler.no-node")
    cases = plan.surveyed(system, [str(paths.CHECKS)], arguments,
                            **{configuration.ON_NODE: f"{system}:{partition}"})  # fmt: skip
    # Each case has ReFrame's own work before and after.
    limit = seconds or 300 + sum(case.seconds + 10 for case in cases)
    made = Sweep(
        configuration.session_id(),
        system,
        partition,
        arguments,
        reservation,
        jobs or found.get("max_jobs") or 8,
        sorted(base_name(case.case) for case in cases),
        int(limit),
        taken,
        skipped,
        bool(nodes),
    )
    made.write()
    return made


def resumed(name: str, jobs: int | None) -> Sweep:
    """A sweep that was cut off; a node that came back since is in it too.

    :raises Fault: if there is no such sweep.
    """
    from plumbline.operate.sweep import nodes as of_nodes

    found = Sweep.read(folder_of(name))
    if not found.named:
        partition = _partition(found.system, found.partition)
        taken, skipped = of_nodes.chosen(partition, found.reservation)
        known = {*found.nodes, *found.skipped}
        found.nodes = [*dict.fromkeys([*found.nodes, *taken])]
        # One that is measured was there when it counted.
        gone = dict.fromkeys(known - {*taken, *skipped}, "no longer in the partition")
        found.skipped = {
            node: why for node, why in {**skipped, **gone}.items() if not found.state(node).measured
        }
        found.nodes = [node for node in found.nodes if node not in found.skipped]
    found.jobs = jobs or found.jobs
    found.write()
    return found


def _partition(system: str, name: str) -> dict:
    configuration.check_system(system)
    content = configuration.read_system(paths.systems() / f"{system}.yaml")
    partitions = {found["name"]: found for found in content["systems"][0]["partitions"]}
    if name not in partitions:
        raise Fault(
            f"{system}: no partition {name!r}; {near(name, partitions)}", code="input.unknown-name"
        )
    return partitions[name]


def run(sweep: Sweep) -> int:
    """Measures the nodes that are not measured yet, through ReFrame; its exit code."""
    from plumbline.session import run as supervisor

    lock = sweep.locked()
    try:
        states = {node: sweep.state(node) for node in sweep.nodes}
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
        return supervisor.run(sweep.system, arguments, strict=False)
    finally:
        lock.release()


def told(sweep: Sweep) -> tuple[list[str], int]:
    """Each node's state in lines, and the exit code of the sweep: 1 if a node's session found a
    fault, 2 if one could not tell or was not measured, else 0. What is left out counts for
    nothing, and is told."""
    states = {node: sweep.state(node) for node in sweep.nodes}
    lines = [
        f"{node}: {state.kind}: {shown(state.told)}"
        + (f" (session {state.session})" if state.session else "")
        for node, state in states.items()
        if state.code != 0
    ]
    lines += [f"{node}: skipped: {why}" for node, why in sweep.skipped.items()]
    counts = {
        kind: sum(state.kind == kind for state in states.values())
        for kind in ("measured", "failed", "under way", "not reached")
    }
    counted = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    lines.append(f"sweep {sweep.name}: {counted}, {len(sweep.skipped)} skipped")
    # One of which every node was left out measured nothing.
    codes = {state.code if state.measured else 2 for state in states.values()} or {2}
    return lines, 1 if 1 in codes else 2 if codes - {0} else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _plan(folder: Path) -> record.Plan | dict[str, Any]:
    try:
        return record.plan(folder)
    except (OSError, record.Damaged):
        return {}


def _sessions() -> Path:
    return paths.results() / "sessions"
