"""``plumbline screen``: which nodes, GPUs, pairs of nodes, links or switches are slow."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from plumbline.cli.common import output_option, selection_options, tell, warn, write
from plumbline.core import formats
from plumbline.core.errors import Fault
from plumbline.core.text import counted, table

_FILE = click.Path(path_type=Path, dir_okay=False)
_COLUMNS = ("night", "kind", "name", "size", "confidence", "since", "until", "drain", "evidence",
            "note")  # fmt: skip


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@selection_options
@click.option("--input", "file", type=_FILE, metavar="FILE",
              help="Screen a CSV file instead: night, node, value, better; and gpu, or a and b for "
                   "pairs; switch, or switch_a and switch_b; series.")  # fmt: skip
@click.option("--topology", type=_FILE, metavar="FILE",
              help="Slurm's topology.conf: which switch a node is on.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]),
              help="[default: text, or json with --input]")  # fmt: skip
@output_option
@click.option("--drain", type=_FILE, metavar="FILE", help="Write the nodes to drain, one a line.")
@click.option("--retest", type=_FILE, metavar="FILE",
              help="Write the nodes to measure again tonight, one a line.")  # fmt: skip
def screen(sessions, select, source, file, topology, form, output, drain, retest):
    """Name the nodes, GPUs, pairs of nodes, links between switches, or switches that are slow.

    Each is held against its peers of the same night and against its own earlier nights, up to
    SESSION, or up to the last one. Suspects are told too, and are not named: measure them again,
    several times in the same night, and screen once more.

    Exits with 1 where something is named, with 2 where it could not be told.
    """
    from plumbline.analysis import screen as screening

    switches = None if topology is None else screening.of_topology(topology)
    if file is not None:
        if sessions or source is not None:
            raise Fault(
                "--input has its own nights: leave SESSION and --from out",
                code="input.wrong-option",
            )
        groups, known = screening.of_file(file)
        if not groups:
            raise Fault(screening.NOTHING.format(file), code="history.no-peers")
        found, code = screening.screen(groups, known if switches is None else switches), 0
    else:
        from plumbline.history.history import History

        with History(source, say=warn) as history:
            try:
                found = screening.screen_history(history, select, sessions, switches)
            finally:
                # A session that is not there may be one that cannot be read.
                code = tell(history)
    for line in found.told:
        warn(line)
    form = form or ("json" if file is not None else "text")
    if form == "json":
        text = formats.as_json([one.fields() for one in found.named])
    elif form == "csv":
        text = formats.as_csv(_COLUMNS, _rows(found.named))
    else:
        text = _text(found)
    write(text, output)
    for path, nodes in ((drain, found.drain()), (retest, found.retest())):
        if path is not None:
            write("".join(f"{node}\n" for node in nodes), path)
    sys.exit(1 if found.named else 2 if code or found.unsure else 0)


def _rows(named: list) -> list[dict]:
    return [
        {
            **one.fields(),
            "name": ":".join(one.name),
            "until": one.until or "",
            "drain": "yes" if one.drained else "no",
            "evidence": "; ".join(one.evidence),
        }
        for one in named
    ]


def _text(found) -> str:
    named, lines = found.named, []
    if named:
        rows = [
            [row["kind"], row["name"], f"{one.size:.1%}", f"{one.confidence:.3f}", row["since"],
             row["until"] or "still", row["night"], _evidence(one)]
            for one, row in zip(named, _rows(named), strict=True)
        ]  # fmt: skip
        headers = ["kind", "name", "slower by", "confidence", "since", "until", "named", "in"]
        lines += [table(rows, headers, "simple"), ""]
    if nodes := found.drain():
        told = shlex.quote(_folded(nodes))
        lines += [
            "to drain them:",
            f"  scontrol update nodename={told} state=drain reason='plumbline screen: slow'",
        ]
    if nodes := found.retest():
        pairs = sum(kind == "pair" for kind, _ in found.suspects)
        lines += [
            f"plumbline: to measure again tonight, three times each (suspects: "
            f"{len(found.suspects)}, of them pairs: {pairs}; and who is first named tonight):",
            f"  {_folded(nodes)}",
        ]
    lines.append(f"plumbline: {len(named)} named, {found.judged} values compared in "
                 f"{counted(len(found.nights), 'night')}")  # fmt: skip
    return "\n".join(lines) + "\n"


def _evidence(one) -> str:
    """What it was slow in, the worst first."""
    told = one.evidence[:1] + ([f"and {len(one.evidence) - 1} more"] if one.evidence[1:] else [])
    return "; ".join(filter(None, [*told, one.note]))


def _folded(nodes: list[str]) -> str:
    """A list of nodes as schedulers write it: n[1-3,7]."""
    from reframe.utility import nodelist_abbrev

    try:
        return nodelist_abbrev(nodes)
    except Exception:
        # Names that are no host names.
        return ",".join(nodes)
