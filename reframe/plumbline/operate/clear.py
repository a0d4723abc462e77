"""``plumbline clear``: measures nodes that come back, publishes the verdicts, and calls the site's
hook.

A verdict is published as a file of one line, ``results/verdicts/<system>/<node>``, which Slurm's
prolog or HealthCheckProgram reads in a millisecond (``ci/node-verdict``). It is a copy for them:
the records are the truth, and Plumbline only shows it, in the report.
"""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from plumbline.analysis.clear import Clearance
from plumbline.core import files, paths
from plumbline.core.errors import Fault, UnknownName, WrongOption
from plumbline.core.process import one_line
from plumbline.core.text import pluralize, shorten, suggest
from plumbline.history.history import History
from plumbline.history.rows import NodeRow
from plumbline.operate import sweep as sweeps
from plumbline.operate.sweep import State, Sweep
from plumbline.operate.sweep.nodes import available, is_valid_name
from plumbline.session import preflight

#: Verdict -> what the hook is called with; nothing is done without enough data.
ACTIONS = {"go": "resume", "no-go": "drain"}
#: Seconds that a hook may take.
PATIENCE = 60


def place_of(
    nodes: Iterable[str], rows: list[NodeRow], system: str, partition: str
) -> tuple[str, str]:
    """Return the system and partition of nodes: those given, or those of their last measurement.

    :raises Fault: if they are not of one partition, or were never measured.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        known = [row for row in rows if row.node == node and row.system == (system or row.system)
                 and row.partition == (partition or row.partition)]  # fmt: skip
        last = max(known, key=lambda row: row.time, default=None)
        place = (last.system, last.partition) if last else (system, partition)
        if not all(place):
            raise Fault(
                f"node {node} was never measured by itself, so its partition is unknown: add "
                f"--system and --partition",
                code="history.unknown-node",
            )
        found.setdefault(place, []).append(node)
    if len(found) > 1:
        listed = "; ".join(f"{of[0]}:{of[1]}: {shorten(names)}" for of, names in found.items())
        raise WrongOption(
            f"the nodes are of several partitions: {listed}: run `plumbline clear` once for each"
        )
    return next(iter(found))


def sweep_of(
    nodes: list[str],
    place: tuple[str, str],
    arguments: list[str],
    repeat: int,
    reservation: str,
    seconds: int | None,
) -> Sweep:
    """Return the sweep that measures these nodes so many times, all at once.

    :raises Fault: if Slurm would not start a job on a node, as on one that is drained, or does not
        have it there.
    """
    repeats = [f"--repeat={repeat}"] if repeat > 1 else []
    sweep = sweeps.create(*place, [*arguments, *repeats], reservation, len(nodes), seconds, nodes)
    up, down = available(sweeps.partition_of(*place), reservation)
    if out := [node for node in nodes if node not in up]:
        if out[0] not in down:
            where = f" in reservation {reservation}" if reservation else ""
            raise UnknownName(
                f"{place[0]}:{place[1]}: no node {out[0]}{where}; {suggest(out[0], [*up, *down])}"
            )
        name = f"clear-{out[0]}"
        raise Fault(
            f"{place[0]}:{place[1]}: {out[0]}: {down[out[0]]}: Slurm starts no job on it. "
            f"Reserve it, and resume it there:\n"
            f"  scontrol create reservation reservationname={name} nodes={out[0]} users=$USER "
            f"starttime=now duration=120 flags=maint,ignore_jobs\n"
            f"  scontrol update nodename={out[0]} state=resume\n"
            f"then repeat this command with --reservation {name}",
            code="scheduler.no-node",
        )
    return sweep


def peers_tonight(sweep: Sweep, rows: list[NodeRow], count: int) -> list[str]:
    """Return nodes of the partition to measure with those of a sweep: the ones measured last that
    are up."""
    up, _ = available(sweeps.partition_of(sweep.system, sweep.partition))
    place = sweep.system, sweep.partition
    last = {row.node: row.time for row in rows if (row.system, row.partition) == place}
    others = [node for node in up if node in last and node not in sweep.nodes]
    return sorted(others, key=lambda node: last[node], reverse=True)[:count]


def commands(clearance: Clearance) -> list[str]:
    """Return what to do with a node, as commands of Slurm."""
    node = clearance.node
    if clearance.verdict == "go":
        return [f"scontrol update nodename={node} state=resume"]
    if clearance.verdict == "no-go":
        return [f"scontrol update nodename={node} state=drain reason='plumbline clear: no-go'"]
    return []


def publish(clearance: Clearance, system: str) -> None:
    """Write the verdict of a node of a system for Slurm. Not enough data leaves the last one.

    :raises Fault: if it cannot be written.
    """
    if clearance.verdict not in ACTIONS:
        return
    for kind, name in ("system", system), ("node", clearance.node):
        if not is_valid_name(name):
            raise WrongOption(f"{name!r} is not the name of a {kind}")
    time = datetime.datetime.now(datetime.timezone.utc)
    path = paths.results() / "verdicts" / system / clearance.node
    line = f"{clearance.verdict} {time:%Y-%m-%dT%H:%M:%SZ} {_reason(clearance)}\n"
    with preflight.writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, line)
        path.chmod(0o644)


def call(hook: Path, clearance: Clearance) -> str:
    """Call the site's hook with ``drain`` or ``resume``, node and reason. Return why it failed, or
    an empty text."""
    action = ACTIONS.get(clearance.verdict)
    if action is None:
        return ""
    command = [str(hook), action, clearance.node, f"plumbline clear: {_reason(clearance)}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=PATIENCE, check=False,
        )  # fmt: skip
    except OSError as err:
        return f"{hook}: cannot be run: {err.strerror}"
    except subprocess.TimeoutExpired:
        return f"{hook} {action} {clearance.node}: did not end within {PATIENCE} s"
    if done.returncode:
        output = one_line(done.stderr or done.stdout)
        return f"{hook} {action} {clearance.node}: exit code {done.returncode}: {output}"
    return ""


def unmeasured(sweep: Sweep, node: str) -> Clearance | None:
    """Return the verdict on a node that the sweep did not measure; ``None`` if it did."""
    state = sweep.state(node)
    return None if state.measured else Clearance(node, "not enough data", [_about(state)], [], [])


def confirmed(sweep: Sweep, clearance: Clearance) -> Clearance:
    """Return the verdict on a node that the sweep measured: no go unless its session was OK, as its
    records need not show what it lacks."""
    state = sweep.state(clearance.node)
    if clearance.verdict != "go" or state.code == 0:
        return clearance
    reasons = [_about(state), *clearance.reasons]
    return replace(clearance, verdict="not enough data", reasons=reasons)


def known_nodes() -> list[NodeRow]:
    """Return the nodes of the history; none if there is no history yet."""
    try:
        with History() as history:
            return history.nodes()
    except Fault as fault:
        if fault.code not in ("history.empty", "history.not-found"):
            raise
        return []


def _about(state: State) -> str:
    return f"{state.kind}: {one_line(state.message)}"


def _reason(clearance: Clearance) -> str:
    count = pluralize(len(clearance.sessions), "session")
    return one_line("; ".join(clearance.reasons) + f" ({count})")
