"""Selects the nodes of a partition that a sweep measures."""

from __future__ import annotations

from plumbline.core.errors import Fault
from plumbline.core.process import is_shell_safe, one_line
from plumbline.site import slurm


def available(partition: dict, reservation: str = "") -> tuple[list[str], dict[str, str]]:
    """Return the nodes that the ``access`` of a partition selects and that are up, and for each of
    the others the reason.

    :arg reservation: selects only its nodes; by default nodes under maintenance are not available.
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
    reserved = _under_maintenance(reservation)
    if reservation:
        selected = {
            name: node for name, node in selected.items() if reserved.get(name) == reservation
        }
        if not selected:
            raise Fault(
                f"reservation {reservation} has no node of partition {partition['name']}",
                code="scheduler.reservation",
            )
    up, down = [], {}
    for name, node in selected.items():
        reason = _why_not(node, reserved.get(name, ""), reservation)
        if reason:
            down[name] = one_line(reason)
        else:
            up.append(name)
    return up, down


def is_valid_name(name: str) -> bool:
    """Return whether a node's name is safe in a job script and as a file name."""
    return is_shell_safe(name) and "/" not in name and not name.startswith(".")


def _under_maintenance(reservation: str) -> dict[str, str]:
    """Return node -> its reservation for maintenance, preferably the given one.

    :raises Fault: if the given one is not active or not for maintenance, or Slurm does not answer.
    """
    known = slurm.reservations()
    if known is None:
        raise Fault(
            "scontrol does not answer, so nodes under maintenance are unknown: repeat the command "
            "when it does; only `plumbline sweep --nodes` does without",
            code="scheduler.no-answer",
        )
    active = [found for found in known if found.maintenance and found.state in ("ACTIVE", "")]
    if reservation:
        chosen = next((found for found in known if found.name == reservation), None)
        if chosen is None:
            problem = "does not exist"
        elif not chosen.maintenance:
            problem = "is not for maintenance (flag MAINT)"
        else:
            problem = "" if chosen in active else f"is {chosen.state.lower()}, not active"
        if chosen is None or problem:
            names = ", ".join(sorted(found.name for found in active)) or "none"
            raise Fault(
                f"reservation {reservation} {problem}; active ones for maintenance: {names}",
                code="scheduler.reservation",
            )
        # The last one counts.
        active = [found for found in active if found is not chosen] + [chosen]
    return {node: found.name for found in active for node in found.nodes}


def _why_not(node: slurm.SlurmNode, reserved: str, reservation: str) -> str:
    """Return why a node is not available, or an empty text."""
    if not is_valid_name(node.name):
        return "its name is not safe in a job script"
    reason = "" if node.reason in ("", "none") else f" ({node.reason})"
    if "*" in node.state:
        return f"{node.state}: it does not respond{reason}"
    if reserved and not reservation:
        return f"in reservation {reserved} for maintenance: use --reservation {reserved}"
    if node.is_up or (reservation and node.base_state == "maint"):
        return ""
    return f"{node.state}{reason}"
