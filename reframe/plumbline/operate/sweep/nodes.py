"""Which nodes of a partition a sweep measures, and which it leaves out and why."""

from __future__ import annotations

import re

from plumbline.core.errors import Fault
from plumbline.core.process import plain, shown
from plumbline.site import slurm

#: States of sinfo(1), "NODE STATE CODES", in which a node takes a job now or later; what stands
#: behind them (``~``, ``#``: saving power, waking up) changes nothing, but for ``*``: it does not
#: answer.
_UP = frozenset({"allocated", "completing", "idle", "mixed", "planned", "reserved"})
_FLAGS = "*~#!%$@^+-"

#: How sbatch(1) is told the partition, and features.
_PARTITION = re.compile(r"(?:-p\s*|--partition[= ])(\S+)")
_CONSTRAINT = re.compile(r"(?:-C\s*|--constraint[= ])(\S+)")


def chosen(partition: dict, reservation: str = "") -> tuple[list[str], dict[str, str]]:
    """The nodes of a partition of a system file, as its ``access`` chooses them: those that can be
    had, and of the others the reason.

    :arg reservation: whose nodes alone are looked at; without it, those under maintenance are left
        out.
    :raises Fault: if Slurm does not answer, the partition or the reservation is not there, or the
        reservation is not for maintenance.
    """
    every = slurm.nodes()
    if every is None:
        raise Fault(
            "sinfo does not answer: no node is known; name them with --nodes",
            code="scheduler.no-answer",
        )
    access = " ".join(partition.get("access", []))
    queue = _queue(access)
    mine = {node.name: node for node in every if node.partition == queue}
    if not mine:
        raise Fault(
            f"partition {partition['name']}: Slurm has no node in its partition {queue!r}",
            code="scheduler.no-node",
        )
    for found in _CONSTRAINT.findall(access):
        features = re.split("[&,]", found.strip("'\""))
        if not all(map(plain, features)):
            raise Fault(
                f"partition {partition['name']}: which nodes --constraint={found} means is "
                f"not worked out here: name them with --nodes",
                code="scheduler.unsupported",
            )
        mine = {name: node for name, node in mine.items() if set(features) <= {*node.features}}
    under = _maintained(reservation)
    if reservation:
        mine = {name: node for name, node in mine.items() if under.get(name) == reservation}
        if not mine:
            raise Fault(
                f"reservation {reservation}: no node of partition {partition['name']} in it",
                code="scheduler.reservation",
            )
    taken, out = [], {}
    for name, node in sorted(mine.items(), key=lambda one: _natural(one[0])):
        why = _why_not(node, under.get(name, ""), reservation)
        if why:
            out[name] = shown(why)
        else:
            taken.append(name)
    return taken, out


def named(name: str) -> bool:
    """Whether a node's name may stand in a job script, and be that of a file."""
    return plain(name) and "/" not in name and not name.startswith(".")


def _queue(access: str) -> str:
    """Slurm's partition that a job with these options goes to."""
    found = _PARTITION.findall(access)
    if found:
        return found[-1].strip("'\"")
    known = slurm.partitions()
    if known is None:
        raise Fault(
            "scontrol does not answer: no partition is known; name the nodes with --nodes",
            code="scheduler.no-answer",
        )
    for name, told in known.items():
        if told.get("Default") == "YES":
            return name
    raise Fault(
        "Slurm has no default partition, and `access` names none", code="scheduler.no-partition"
    )


def _maintained(reservation: str) -> dict[str, str]:
    """Node -> the reservation for maintenance that it is in; the one that is named wins.

    :raises Fault: if the one that is named is none, or Slurm does not answer.
    """
    known = slurm.reservations()
    if known is None:
        raise Fault("scontrol does not answer: which nodes are under maintenance is not known; "
                    "name those to measure with --nodes", code="scheduler.no-answer")  # fmt: skip
    there = {found.name: found for found in known}
    active = [r for r in there.values() if r.maintenance and r.state in ("ACTIVE", "")]
    told = ", ".join(sorted(found.name for found in active)) or "none"
    if reservation:
        named = there.get(reservation)
        if named is None:
            raise Fault(
                f"no reservation {reservation}; for maintenance, and active: {told}",
                code="scheduler.reservation",
            )
        if not named.maintenance:
            raise Fault(
                f"reservation {reservation} does not say that it is for maintenance (flag "
                f"MAINT); those that do, and are active: {told}",
                code="scheduler.reservation",
            )
        if named not in active:
            raise Fault(
                f"reservation {reservation} is {named.state.lower()}, not active",
                code="scheduler.reservation",
            )
        active = [*active, named]
    return {node: found.name for found in active for node in found.nodes}


def _why_not(node: slurm.SlurmNode, under: str, reservation: str) -> str:
    if not named(node.name):
        return "its name could not stand in a job script"
    state = node.state.rstrip(_FLAGS)
    reason = "" if node.reason in ("", "none") else f" ({node.reason})"
    if "*" in node.state:
        return f"{node.state}: it does not answer{reason}"
    if under and not reservation:
        return f"in reservation {under}, for maintenance: --reservation {under} sweeps it"
    if state in _UP or (reservation and state == "maint"):
        return ""
    return f"{node.state}{reason}"


def _natural(name: str) -> list:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]
