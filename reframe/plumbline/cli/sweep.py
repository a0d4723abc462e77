"""``plumbline sweep``: measures every node of a partition, with one job each."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from plumbline.cli.common import SPAN, folded, say, system_option, warn
from plumbline.core.errors import WrongOption
from plumbline.core.text import pluralize


@click.command(context_settings={"ignore_unknown_options": True})
@system_option
@click.option("--reservation", default="", metavar="NAME",
              help="Only the nodes of this maintenance reservation.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Most jobs that are queued at once.  "
                   "[default: the partition's max_jobs, or 8]")  # fmt: skip
@click.option("--time-limit", "minutes", type=click.IntRange(1), metavar="MINUTES",
              help="Time limit of each job.  [default: from its test cases]")  # fmt: skip
@click.option("--nodes", metavar="LIST", help="Only these nodes: n[1-4,7] or n1,n2.  "
              "[default: all nodes of the partition that are up]")  # fmt: skip
@click.option("--older-than", type=SPAN, metavar="AGE",
              help="Only nodes that were last measured longer ago than this, or never, the oldest "
                   "first: 7d.")  # fmt: skip
@click.option("--budget", type=SPAN, metavar="TIME",
              help="Wall time of the sweep: as many nodes are planned as fit in it, the oldest "
                   "first, and what still runs then is cancelled: 2h.")  # fmt: skip
@click.option("--resume", is_flag=True, help="PARTITION is a sweep that was cut off: measure its "
              "remaining nodes.")  # fmt: skip
@click.option("--show", is_flag=True, help="PARTITION is a sweep: only show its progress.")
@click.argument("partition")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sweep(system, reservation, jobs, minutes, nodes, older_than, budget, resume, show, partition,
          arguments):  # fmt: skip
    """Measure every node of PARTITION, with one job for each node.

    ARGUMENTS are ReFrame's own, for the session of each node.  [default: --mode=smoke]

    Exits with 1 if a node's session found a fault, with 2 if a node was not measured, such as one
    that is down, or skipped a test case that would run there.
    """
    from plumbline.operate import sweep as sweeps
    from plumbline.site import host

    if resume or show:
        if system or reservation or nodes or minutes or older_than or arguments or (
                show and budget):  # fmt: skip
            raise WrongOption(
                "--resume and --show take no --system, --nodes, --older-than, --reservation, "
                "--time-limit or arguments of ReFrame, and --show no --budget"
            )
        found = sweeps.Sweep.read(sweeps.folder_of(partition))
        if not show:
            found = sweeps.resume(partition, jobs)
    else:
        found = sweeps.create(
            host.current_system(system), partition, list(arguments) or ["--mode=smoke"],
            reservation, jobs, minutes and minutes * 60,
            expanded(nodes, "--nodes") if nodes else [],
        )  # fmt: skip
        if older_than or budget:
            _select(found, older_than, budget)
        found.write()
    if not show:
        hours = len(found.nodes) * found.seconds / 3600
        nodes = pluralize(len(found.nodes), "node")
        say(
            f"sweep {found.name}: {nodes} of {found.system}:{found.partition}, "
            f"{pluralize(len(found.cases), 'test case')} on each in one job; at most "
            f"{pluralize(found.jobs, 'job')} queued at once and {hours:.2f} node-hours"
        )
        _say_skipped(found)
        if (code := sweeps.run(found, budget.total_seconds() if budget else 0)) == 2:
            say("ReFrame did not run all jobs: see above")
    else:
        code = 0
    lines, own = sweeps.report(found)
    for line in lines:
        say(line)
    say(f"to find slow nodes: plumbline screen --extras sweep={found.name}")
    sys.exit(own or code)


def _select(found, older_than: timedelta | None, budget: timedelta | None) -> None:
    """Select the nodes of a sweep by age and budget, and print how; exit if there are none."""
    from plumbline.operate.sweep import due

    chosen = due.select(found, older_than or timedelta(0), budget.total_seconds() if budget else 0)
    for line in chosen.unread:
        warn(f"skipped: {line}")
    total = len(chosen.nodes) + len(chosen.later)
    message = f"{pluralize(total, 'node')} due, of them {chosen.never} never measured"
    if older_than:
        message += f"; {chosen.recent} measured recently enough"
    say(message)
    if budget and total:
        by = (f"by {pluralize(chosen.known, 'job')} of earlier sweeps" if chosen.known
              else "the time limit of a job, as no earlier sweep is known")  # fmt: skip
        say(f"planned: {pluralize(len(chosen.nodes), 'node')} within the budget, "
            f"{chosen.seconds / 60:.1f} minutes each, {by}")  # fmt: skip
    if chosen.later:
        say(f"left for a later sweep: {pluralize(len(chosen.later), 'node')}: "
            f"{folded(chosen.later)}")  # fmt: skip
    if not total:
        _say_skipped(found)
        sys.exit(2 if found.skipped else 0)
    if not chosen.nodes:
        raise WrongOption(
            f"--budget is too short for a single node, which takes {chosen.seconds / 60:.1f} "
            "minutes"
        )
    found.nodes, found.named = chosen.nodes, True


def _say_skipped(found) -> None:
    for node, why in found.skipped.items():
        say(f"{node}: skipped: {why}")


def expanded(text: str, what: str) -> list[str]:
    """Return the nodes of a list such as ``n[1-4,7]``.

    :arg what: the option or argument, for the message.
    :raises Fault: if it is not a list of nodes, or a name is not safe in a job script.
    """
    from reframe.utility import nodelist_expand

    from plumbline.operate.sweep.nodes import is_valid_name

    try:
        names = [*dict.fromkeys(nodelist_expand(text))]
    except Exception as err:
        raise WrongOption(f"{what} {text}: not a list of nodes: {err}") from None
    if not names or not all(map(is_valid_name, names)):
        raise WrongOption(f"{what} {text}: not a list of nodes such as n[1-4,7]")
    return names
