"""Selects the nodes of a partition that a sweep measures."""

from __future__ import annotations

from plumbline.core.errors import Fault, UnknownName
from plumbline.core.process import is_shell_safe, one_line
from plumbline.core.text import suggest
from plumbline.site import slurm


def available(partition: dict, reservation: str = "") -> tuple[list[str], dict[str, str]]:
    """Return the nodes that the ``access`` of a partition selects and that are up, and for each of
    the others the reason.

    :arg reservation: selects only its nodes; by default nodes of reservations, except one that
        ``access`` names, are not available.
    :raises Fault: if Slurm does not answer, there is no such partition or reservation, or the
        reservation is not for maintenance.
    """
    every = slurm.nodes()
    if every is None:
        raise Fault(
            "sinfo does not answer, so it is unknown which nodes are up: repeat the command when "
            "it does; only `plumbline sweep --nodes` does without",
            code="scheduler.no-answer",
        )
    try:
        selected = slurm.members(partition.get("access", []), every)
    except Fault as err:
        raise Fault(
            f"partition {partition['name']}: {err}; `plumbline sweep --nodes` does without",
            code=err.code,
        ) from None
    reserved = _reserved(reservation, slurm.named_reservation(partition.get("access", [])))
    if reservation:
        selected = {
            name: node
            for name, node in selected.items()
            if name in reserved and reserved[name].name == reservation
        }
        if not selected:
            raise Fault(
                f"reservation {reservation} has no node of partition {partition['name']}",
                code="scheduler.reservation",
            )
    up, down = [], {}
    for name, node in selected.items():
        reason = _why_not(node, reserved.get(name), reservation)
        if reason:
            down[name] = one_line(reason)
        else:
            up.append(name)
    return up, down


def check_named(names: list[str]) -> None:
    """Check that there are such nodes, as far as Slurm answers.

    :raises UnknownName: if there is one that Slurm does not have.
    """
    known = dict.fromkeys(node.name for node in slurm.nodes() or ())
    unknown = [name for name in names if name not in known]
    if known and unknown:
        listed = ", ".join(unknown)
        raise UnknownName(f"Slurm has no node {listed}; {suggest(unknown[0], known)}")


def is_valid_name(name: str) -> bool:
    """Return whether a node's name is safe in a job script and as a file name."""
    return is_shell_safe(name) and "/" not in name and not name.startswith(".")


def _reserved(reservation: str, own: str) -> dict[str, slurm.Reservation]:
    """Return node -> the reservation without which no job starts on it, preferably the given one.

    :arg own: that jobs name anyway.
    :raises Fault: if the given one is not active or not for maintenance, or Slurm does not answer.
    """
    known = slurm.reservations()
    if known is None:
        raise Fault(
            "scontrol does not answer, so reserved nodes are unknown: repeat the command "
            "when it does; only `plumbline sweep --nodes` does without",
            code="scheduler.no-answer",
        )
    active = [found for found in known if found.closed and found.state in ("ACTIVE", "")]
    if reservation:
        chosen = next((found for found in known if found.name == reservation), None)
        if chosen is None:
            problem = "does not exist"
        elif not chosen.maintenance:
            problem = "is not for maintenance (flag MAINT)"
        else:
            problem = "" if chosen in active else f"is {chosen.state.lower()}, not active"
        if chosen is None or problem:
            names = ", ".join(sorted(found.name for found in active if found.maintenance)) or "none"
            raise Fault(
                f"reservation {reservation} {problem}; active ones for maintenance: {names}",
                code="scheduler.reservation",
            )
        # The last one counts.
        active = [found for found in active if found is not chosen] + [chosen]
    active = [found for found in active if found.maintenance or found.name != own]
    return {node: found for found in active for node in found.nodes}


def _why_not(node: slurm.SlurmNode, reserved: slurm.Reservation | None, reservation: str) -> str:
    """Return why a node is not available, or an empty text."""
    if not is_valid_name(node.name):
        return "its name is not safe in a job script"
    reason = "" if node.reason in ("", "none") else f" ({node.reason})"
    if "*" in node.state:
        return f"{node.state}: it does not respond{reason}"
    if reserved and not reservation:
        if reserved.maintenance:
            return (
                f"in reservation {reserved.name} for maintenance: use --reservation {reserved.name}"
            )
        return f"in reservation {reserved.name}: only jobs that name it start there"
    if node.is_up or (reservation and node.base_state == "maint"):
        return ""
    return f"{node.state}{reason}"
