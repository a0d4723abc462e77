"""``plumbline clear``: whether a node that comes back is as fast as it was and as its peers."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import timezone
from pathlib import Path

import click

from plumbline.cli.common import (
    output_option,
    say,
    session_output,
    system_option,
    table_format_option,
    warn,
    warn_skipped,
    write,
)
from plumbline.core import formats
from plumbline.core.errors import Fault, WrongOption, with_code
from plumbline.core.text import format_table, pluralize

_COLUMNS = ("node", "node_verdict", "verdict", "label", "location", "measure", "better", "values",
            "now", "usual", "nights", "peers", "number", "difference", "low", "high", "adjusted",
            "reason")  # fmt: skip
#: Most characters of a figure's name in the text.
_WIDTH = 34


@click.command(context_settings={"ignore_unknown_options": True})
@system_option
@click.option("--partition", default="", metavar="NAME",
              help="The nodes' partition, if they were never measured.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1, 100), default=5, show_default=True, metavar="N",
              help="How many times each test case is measured.")  # fmt: skip
@click.option("--with-peers", type=click.IntRange(0), default=0, metavar="N",
              help="Also measure this many of their peers now. With 5 or more, what changes all "
                   "nodes alike from night to night cancels out.")  # fmt: skip
@click.option("--reservation", default="", metavar="NAME",
              help="The maintenance reservation that the nodes are in.")  # fmt: skip
@click.option("--time-limit", "minutes", type=click.IntRange(1), metavar="MINUTES",
              help="Time limit of each job.  [default: from its test cases]")  # fmt: skip
@click.option("--no-measure", is_flag=True,
              help="Measure nothing: judge the last night of each node.")  # fmt: skip
@click.option(
    "--before",
    default="",
    metavar="DATE",
    help="Take only nights before this date for what is usual of a node, such as that of the "
    "drain: 2026-11-21.  [default: those on which `plumbline screen` does not flag it]",
)
@click.option("--margin", type=click.FloatRange(2, 50), default=5.0, show_default=True,
              metavar="PCT", help="Loss that must be excluded for a go.")  # fmt: skip
@click.option("--allow-inconclusive", type=click.FloatRange(0, 100), default=0.0, metavar="PCT",
              help="Share of the figures that may have too little data in a go.  "
                   "[default: 0]")  # fmt: skip
@click.option("--hook", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              envvar="PLUMBLINE_NODE_HOOK", metavar="PROGRAM",
              help="Program that is called with `drain` or `resume`, the node and the reason. "
                   "[default: $PLUMBLINE_NODE_HOOK, or none]")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show the unchanged figures too.")
@table_format_option
@output_option
@click.argument("nodes")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def clear(system, partition, repeat, with_peers, reservation, minutes, no_measure, before, margin,
          allow_inconclusive, hook, every, form, output, nodes, arguments):  # fmt: skip
    """Measure NODES now, and compare each with its earlier nights and its peers: go or no-go.

    NODES is a list such as n031 or n[1-4,7]. ARGUMENTS are ReFrame's own, for the session of each
    node.  [default: --mode=smoke]

    Commands to resume or drain the nodes are printed, and run by a hook only. The verdicts are
    written to results/verdicts/SYSTEM/ for Slurm's prolog and HealthCheckProgram.

    Exits with 1 if a node is a no-go, else with 2 if there is not enough data for one, the hook
    failed, or a record could not be read.
    """
    from plumbline.analysis import clear as clearing
    from plumbline.cli.sweep import expanded
    from plumbline.history.history import History
    from plumbline.history.series import Selection, moment
    from plumbline.operate import clear as operating

    names = expanded(nodes, "NODES")
    if no_measure and (arguments or with_peers or reservation or minutes):
        raise WrongOption(
            "--no-measure cannot be combined with arguments of ReFrame, --with-peers, "
            "--reservation or --time-limit"
        )
    try:
        # As in the names of sessions.
        usual = f"{moment(before).astimezone(timezone.utc):%Y%m%dT%H%M%S}" if before else ""
    except Fault as err:
        raise Fault(f"--before {err}", code=err.code) from None
    known = operating.known_nodes()
    # ReFrame also takes system:partition.
    system, _, within = (system or "").partition(":")
    place = operating.place_of(names, known, system, partition or within)
    sweep = None
    if not no_measure:
        with session_output(form, output):
            sweep = _measured(names, place, known, list(arguments) or ["--mode=smoke"], repeat,
                              reservation, minutes, with_peers)  # fmt: skip
    rules = clearing.ClearRules(margin=margin / 100, allow_inconclusive=allow_inconclusive / 100)
    found, code = [], 0
    for node in names:
        if sweep and (lost := operating.unmeasured(sweep, node)):
            found.append(lost)
            continue
        with History(say=warn) as history:
            select = Selection(system=place[0], partition=place[1])
            sessions = (sorted(folder.name for folder in sweep.sessions(node)) if sweep
                        else clearing.latest(history, node, select))  # fmt: skip
            one = clearing.clear_node(history, node, sessions, select, usual, names, rules)
            found.append(operating.confirmed(sweep, one) if sweep else one)
            code = warn_skipped(history) or code
    for one in found:
        operating.publish(one, place[0])
        if hook and (failed := operating.call(hook, one)):
            warn(with_code(failed, "scheduler.hook-failed"))
            code = 2
    write(_FORMATS[form](found, every), output)
    codes = {one.exit_code for one in found}
    sys.exit(1 if 1 in codes else max(codes | {code}))


def _measured(names, place, known, arguments, repeat, reservation, minutes, with_peers):
    """Measure the nodes, and return the sweep."""
    from plumbline.operate import clear as operating
    from plumbline.operate import sweep as sweeps

    sweep = operating.sweep_of(names, place, arguments, repeat, reservation,
                               minutes and minutes * 60)  # fmt: skip
    if with_peers:
        if reservation:
            raise WrongOption(
                "--with-peers cannot be combined with --reservation, which the peers are not in: "
                "measure them with `plumbline sweep --nodes`"
            )
        sweep.nodes += operating.peers_tonight(sweep, known, with_peers)
        sweep.jobs = len(sweep.nodes)
    sweep.write()
    hours = len(sweep.nodes) * sweep.seconds / 3600
    say(f"sweep {sweep.name}: {pluralize(len(sweep.nodes), 'node')} of {place[0]}:{place[1]}, "
        f"{pluralize(len(sweep.cases), 'test case')}, each {repeat} times; at most {hours:.2f} "
        f"node-hours")  # fmt: skip
    sweeps.run(sweep)
    return sweep


def _rows(found) -> list[dict[str, object]]:
    return [
        {
            **_plain(asdict(row)),
            "location": ":".join(row.unit[1:]),
            "node": one.node,
            "node_verdict": one.verdict,
        }
        for one in found
        for row in one.rows
    ]


def _plain(fields: dict) -> dict:
    """Return fields without NaN, which JSON does not have."""
    return {name: None if value != value else value for name, value in fields.items()}


def _json(found, every: bool) -> str:
    return formats.as_json([
        {
            "node": one.node,
            "verdict": one.verdict,
            "exit_code": one.exit_code,
            "reasons": one.reasons,
            "sessions": one.sessions,
            "figures": [_plain(asdict(row)) for row in one.rows],
        }
        for one in found
    ])  # fmt: skip


def _csv(found, every: bool) -> str:
    return formats.as_csv(_COLUMNS, _rows(found))


def _text(found, every: bool) -> str:
    from plumbline.operate.clear import commands

    lines = []
    for one in found:
        shown = [row for row in one.rows if every or row.verdict != "unchanged"]
        if shown:
            heads = ["figure", "now", "usual", "peers", "change", "90 % interval", "verdict"]
            lines += [format_table(map(_cells, shown), heads), ""]
        for row in shown:
            if row.verdict == "regressed":
                lines.append(f"{row.label}: {row.reason}")
    for one in found:
        lines.append(f"plumbline: {one.node}: {one.verdict}: {'; '.join(one.reasons)}")
        if any(row.verdict == "too little data" for row in one.rows) and one.exit_code == 2:
            lines.append("  measure again with more repetitions (--repeat), or with its peers "
                         "(--with-peers 8)")  # fmt: skip
    todo = [command for one in found for command in commands(one)]
    if todo:
        lines += ["to act on it:", *(f"  {command}" for command in todo)]
    return "\n".join(lines) + "\n"


def _cells(row) -> list[str]:
    from plumbline.analysis.clear import short_name

    def number(value: float) -> str:
        return "" if value != value else f"{value:.4g}"

    known = row.difference == row.difference
    return [
        short_name(row, _WIDTH),
        f"{number(row.now)} {row.measure}",
        number(row.usual),
        number(row.peers),
        f"{row.difference:+.1%}" if known else "",
        f"{100 * row.low:+.1f} to {100 * row.high:+.1f}" if known else "",
        row.verdict,
    ]


_FORMATS = {"text": _text, "json": _json, "csv": _csv}
