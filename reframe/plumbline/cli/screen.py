"""``plumbline screen``: which nodes, GPUs, pairs of nodes, links or switches are slow."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import click

from plumbline.cli.common import (
    complete_session,
    echo,
    folded,
    output_option,
    selection_options,
    warn,
    warn_skipped,
    write,
)
from plumbline.core import formats
from plumbline.core.errors import Fault, WrongOption
from plumbline.core.text import fill, pluralize, table_lines

_FILE = click.Path(path_type=Path, dir_okay=False)
_COLUMNS = ("night", "kind", "name", "size", "confidence", "since", "until", "drain", "evidence",
            "note", "waiver")  # fmt: skip


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=complete_session)
@selection_options
@click.option("--input", "file", type=_FILE, metavar="FILE",
              help="Screen a CSV file instead: night, node, value, better; and gpu, or a and b for "
                   "pairs; switch, or switch_a and switch_b; series.")  # fmt: skip
@click.option("--topology", type=_FILE, metavar="FILE",
              help="Slurm's topology.conf, for the switch of each node.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]),
              help="[default: text, or json with --input]")  # fmt: skip
@output_option
@click.option("--drain", type=_FILE, metavar="FILE", help="Write the nodes to drain, one a line.")
@click.option("--retest", type=_FILE, metavar="FILE",
              help="Write the nodes to measure again tonight, one a line.")  # fmt: skip
def screen(sessions, select, source, file, topology, form, output, drain, retest):
    """Flag the nodes, GPUs, pairs of nodes, links between switches, and switches that are slow, and
    the nodes whose network interfaces or GPUs are set in another way than those of their peers.

    Each is compared with its peers of the same night and with its own earlier nights, up to
    SESSION, or up to the last session. Suspects are listed but not flagged: measure them again,
    several times in the same night, and screen once more.

    Exits with 1 if anything is flagged and not waived, else with 2 if the last night is
    inconclusive, or a record could not be read.
    """
    from plumbline.analysis import screen as screening
    from plumbline.core import paths
    from plumbline.reference import waivers

    switches = None if topology is None else screening.of_topology(topology)
    if file is not None:
        if sessions or source is not None or select != type(select)():
            raise WrongOption(
                "--input reads all nights from its file: omit SESSION, --from and the options that "
                "select sessions"
            )
        groups, known = screening.of_file(file)
        if not groups:
            raise Fault(screening.NOTHING.format(file), code="history.no-peers")
        found, code = screening.screen(groups, known if switches is None else switches), 0
    else:
        from plumbline.history.history import History

        accepted = waivers.load(paths.reference())
        with History(source, say=warn) as history:
            try:
                found = screening.screen_history(history, select, sessions, switches, accepted)
            finally:
                # An unknown session may be one that could not be read.
                code = warn_skipped(history)
    for message in found.messages:
        echo(fill(f"plumbline: {message}"), err=True)
    form = form or ("json" if file is not None else "text")
    rows = [flag.fields() for flag in found.flagged]
    write(formats.as_rows(form, _COLUMNS, rows, lambda: _text(found)), output)
    for path, nodes in ((drain, found.drain()), (retest, found.retest())):
        if path is not None:
            write("".join(f"{node}\n" for node in nodes), path)
    sys.exit(1 if found.failing else 2 if code or found.unsure else 0)


def _text(found) -> str:
    lines = []
    if found.flagged:
        rows = [
            [flag.kind, flag.label, flag.loss, f"{flag.confidence:.3f}",
             _date(flag.since), _date(flag.until or "active"), _date(flag.night)]
            for flag in found.flagged
        ]  # fmt: skip
        heads = ["kind", "name", "slower by", "confidence", "since", "until", "flagged"]
        head, body = table_lines(rows, heads)
        lines += head
        for flag, row in zip(found.flagged, body, strict=True):
            lines += [*row, fill(_evidence(flag), "  ", "  ")]
            lines += [fill(f"waived by {flag.waiver}", "  ", "  ")] if flag.waiver else []
        lines.append("")
    if nodes := found.drain():
        also = any(flag.waiver for flag in found.flagged if flag.drained)
        lines += [
            "to drain them, what is waived included:" if also else "to drain them:",
            f"  scontrol update nodename={shlex.quote(folded(nodes))} state=drain "
            f"reason='plumbline screen: slow'",
        ]
    if nodes := found.retest():
        pairs = sum(kind == "pair" for kind, _ in found.suspects)
        lines += [
            fill(f"plumbline: measure these again tonight, three times each ("
                 f"{pluralize(len(found.suspects), 'suspect')}, of them "
                 f"{pluralize(pairs, 'pair')}; and the newly flagged):"),
            f"  {folded(nodes)}",
        ]  # fmt: skip
    waived = len(found.flagged) - len(found.failing)
    count = f"{len(found.flagged)} flagged" + (f" ({waived} waived)" if waived else "")
    lines.append(f"plumbline: {count}, {found.judged} values compared in "
                 f"{pluralize(len(found.nights), 'night')}")  # fmt: skip
    return "\n".join(lines) + "\n"


def _date(night) -> str:
    """Return the date of a night that is a session; other nights are as they are."""
    return re.sub(r"^(\d{4})(\d\d)(\d\d)T\d{6}Z-.*", r"\1-\2-\3", str(night))


def _evidence(flag) -> str:
    """Return the figures in which it was slow, the worst first, and the note."""
    more = len(flag.evidence) - 1
    figures = [*flag.evidence[:1], f"and {more} more" if more > 0 else ""]
    return "; ".join(filter(None, [*figures, flag.note]))
