"""``plumbline sweep``: every node of a partition, one job for each."""

from __future__ import annotations

import sys

import click

from plumbline.cli.common import say, system_option
from plumbline.core.errors import Fault
from plumbline.core.text import counted


@click.command(context_settings={"ignore_unknown_options": True})
@system_option
@click.option("--reservation", default="", metavar="NAME",
              help="Within this reservation for maintenance, its nodes alone.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Jobs queued at once, at most; else the partition's max_jobs.")  # fmt: skip
@click.option("--time-limit", "minutes", type=click.IntRange(1), metavar="MINUTES",
              help="Of each job; if not given, what its test cases may take together.")  # fmt: skip
@click.option("--nodes", metavar="LIST", help="These nodes, n[1-4,7] or with commas between them; "
              "if not given, all of the partition that are up.")  # fmt: skip
@click.option("--resume", is_flag=True, help="PARTITION is a sweep that was cut off: the nodes "
              "that it has not measured.")  # fmt: skip
@click.option("--show", is_flag=True, help="PARTITION is a sweep: how far it is; nothing is run.")
@click.argument("partition")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sweep(system, reservation, jobs, minutes, nodes, resume, show, partition, arguments):
    """Measure every node of PARTITION, with one job a node for the whole set.

    ARGUMENTS are ReFrame's own, for each node's session: --mode=smoke if none are given.

    Exits with 1 if a node's session found a fault, with 2 if a node was not measured.
    """
    from plumbline.operate import sweep as sweeps
    from plumbline.site import host

    if resume or show:
        if system or reservation or nodes or minutes or arguments:
            raise Fault(
                "a sweep that was begun has its system, nodes and arguments: leave them out",
                code="input.wrong-option",
            )
        found = sweeps.Sweep.read(sweeps.folder_of(partition))
        if not show:
            found = sweeps.resumed(partition, jobs)
    else:
        found = sweeps.begun(
            host.here(system), partition, list(arguments) or ["--mode=smoke"], reservation, jobs,
            minutes and minutes * 60, _expanded(nodes) if nodes else [],
        )  # fmt: skip
    if not show:
        hours = len(found.nodes) * found.seconds / 3600
        nodes = counted(len(found.nodes), "node")
        say(f"sweep {found.name}: {nodes} of {found.system}:{found.partition}, "
            f"{counted(len(found.cases), 'test case')} on each in one job; at most "
            f"{counted(found.jobs, 'job')} queued at once, and {hours:.2f} node-hours by their "
            f"time limits")  # fmt: skip
        for node, why in found.skipped.items():
            say(f"{node}: skipped: {why}")
        if (code := sweeps.run(found)) == 2:
            say("ReFrame could not run all of it: see above")
    else:
        code = 0
    lines, own = sweeps.told(found)
    for line in lines:
        say(line)
    say(f"slow nodes: plumbline screen --extras sweep={found.name}")
    if own == 2:
        say(f"the rest: plumbline sweep --resume {found.name}")
    sys.exit(own or code)


def _expanded(text: str) -> list[str]:
    """A list of nodes as schedulers write it.

    :raises Fault: if it is none, or a name could not stand in a job script.
    """
    from reframe.utility import nodelist_expand

    from plumbline.operate.sweep.nodes import named

    try:
        names = [*dict.fromkeys(nodelist_expand(text))]
    except Exception as err:
        raise Fault(f"--nodes {text}: no list of nodes: {err}", code="input.wrong-option") from None
    if not names or not all(map(named, names)):
        raise Fault(
            f"--nodes {text}: no list of nodes, such as n[1-4,7]", code="input.wrong-option"
        )
    return names
