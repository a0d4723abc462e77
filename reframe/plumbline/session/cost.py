"""What a session costs at most: nodes and hours of its test cases, by their time limits."""

from __future__ import annotations

import contextlib

import reframe.core.runtime as rt
import reframe.utility.typecheck as typ

from plumbline.check import plain
from plumbline.check.session_files import Planned
from plumbline.core.text import pluralize
from plumbline.placement.topology import PlacementError


def planned_case(testcase) -> Planned:
    """Return a case's entry in the session's plan."""
    check, partition, environ = testcase
    nodes, hours = of_case(check, partition)
    return {
        "check": check.display_name,
        "system": rt.runtime().system.name,
        "partition": partition.name,
        "environment": environ.name,
        "tags": sorted(check.tags),
        "nodes": nodes,
        "hours": hours,
    }


def of_case(check, partition) -> tuple[int, float]:
    """Return the nodes of a case and the hours of its time limit, each 0 if it is not known."""
    try:
        nodes, seconds = check.cost_on(partition)
    except (AttributeError, PlacementError):
        nodes, seconds = plain.nodes_of(check, partition), 0
        # ReFrame reports a wrong one when the case runs.
        with contextlib.suppress(ValueError):
            seconds = typ.Duration(check.time_limit or partition.time_limit or 0)
    return nodes, (seconds and max(seconds, partition.extras.get("least_time", 0))) / 3600


def total(planned: list[Planned]) -> str:
    """Return the node-hours of cases, and how many cases have no known ones."""
    known = [case["nodes"] * case["hours"] for case in planned if case["nodes"] and case["hours"]]
    unknown = {
        "without a time limit": sum(not case["hours"] for case in planned),
        "on an unknown number of nodes": sum(not case["nodes"] for case in planned),
    }
    found = [f"at most {sum(known):.2f} node-hours by their time limits"] if known else []
    return "; ".join(
        found + [f"{pluralize(count, 'job')} {what}" for what, count in unknown.items() if count]
    )
