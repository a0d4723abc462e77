"""``plumbline waive``: acknowledges what is red, slow or has regressed, for a limited time."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import click

from plumbline.cli.common import (
    current_selection_options,
    echo,
    say,
    table_format_option,
    warn,
    warn_skipped,
    write,
)
from plumbline.core import formats
from plumbline.core.errors import Fault, UnknownName, WrongOption
from plumbline.core.text import fill, pluralize, shorten, suggest, table_lines

_HEADS = ("finding", "kind", "since", "loss")
_COLUMNS = (*_HEADS, "case", "figures", "earlier")
#: A finding lists at most so many of its figures.
_MAX_FIGURES = 6


@click.command()
@click.argument("names", metavar="[FINDING]...", nargs=-1)
@click.option("--owner", metavar="NAME", help="Who follows it up.")
@click.option("--until", metavar="TIME",
              help="The last day: a date, or a time from today: 30d, 2w.")  # fmt: skip
@click.option("--reason", metavar="TEXT", help="Why it is accepted.")
@click.option("--ticket", metavar="TEXT", default="", help="Where it is followed up.")
@table_format_option
@current_selection_options
def waive(names: tuple[str, ...], owner: str | None, until: str | None, reason: str | None,
          ticket: str, form: str, select, source: Path | None):  # fmt: skip
    """Add waivers for findings to the site's reference/waivers.yaml.

    A FINDING is the name of a red test case, of an active regression, or of what `plumbline screen`
    flags. Without one, all findings are listed; the report has their names too. For what is flagged
    as slow, the name that `plumbline screen` prints will do.

    A waiver covers a loss of up to two percentage points more than today's. A larger loss is red
    again, and so is one whose waiver has ended.

    Exit codes: 0 the waivers are written, or the list is printed; 2 they are not, or records that
    cannot be read were skipped.
    """
    from plumbline.core import paths
    from plumbline.history.history import History
    from plumbline.output.report import findings
    from plumbline.reference import waivers

    given = {"--owner": owner, "--until": until, "--reason": reason}
    wrong = [name for name, value in given.items() if bool(value) != bool(names)]
    if wrong or (ticket and not names):
        words = ", ".join(wrong or ["--ticket"])
        state = "required with a FINDING" if names else "only with a FINDING"
        raise WrongOption(f"{words}: {state}; `plumbline waive` lists all findings")
    if names and form != "text":
        raise WrongOption(f"--format {form}: is of the list: give it without a FINDING")
    expires = _day(until) if until else None
    with History(source, say=warn) as history:
        now = datetime.datetime.now(datetime.timezone.utc)
        found = findings.to_acknowledge(history, select, now, warn)
        code = warn_skipped(history)
    if not names:
        rows = [_fields(one) for one in found]
        write(formats.as_rows(form, _COLUMNS, rows, lambda: _text(found)), None)
        sys.exit(code)
    chosen: dict[str, findings.OpenFinding] = {}
    for name in names:
        # Nodes of several systems may have one name.
        named = {one.id: one for one in found if name in one.names}
        if not named:
            covering = [str(one) for one in waivers.load(paths.reference())
                        if name in (one.id, one.match.node) and not one.expired()]  # fmt: skip
            if covering:
                raise UnknownName(f"{name}: is waived by {'; '.join(covering)}")
            raise UnknownName(
                f"no finding {name!r} is red, slow or active: it may be over; "
                f"{suggest(name, [known for one in found for known in one.names])}"
            )
        chosen |= named
    text = "".join(one.yaml(owner or "", reason or "", ticket, expires) for one in chosen.values())
    path = waivers.add(paths.reference(), text)
    echo(text, nl=False)
    say(f"{path}: {pluralize(len(chosen), 'waiver')} added, until {expires}")
    sys.exit(code)


def _day(text: str) -> datetime.date:
    """Return the last day of a waiver.

    :raises Fault: if it is neither a date nor a time from today, or is in the past.
    """
    from plumbline.history.series import span
    from plumbline.reference.waivers import today

    try:
        found = datetime.date.fromisoformat(text)
    except ValueError:
        try:
            found = today() + span(text)
        except Fault:
            raise WrongOption(
                f"--until {text}: is neither a date (2026-12-31) nor a time from today (30d, 2w)"
            ) from None
    if found < today():
        raise WrongOption(f"--until {text}: is in the past: a waiver would cover nothing")
    return found


def _fields(one) -> dict:
    return {
        "finding": one.id,
        "kind": one.kind,
        "since": one.since,
        "loss": one.loss,
        "case": one.title,
        "figures": one.figures,
        "earlier": one.earlier,
    }


def _text(found: list) -> str:
    rows = [
        (one.id, one.kind, one.since, "" if one.loss is None else f"{one.loss:.1%}")
        for one in found
    ]
    head, body = table_lines(rows, _HEADS)
    lines = head if found else []
    for one, row in zip(found, body, strict=True):
        figures = shorten(one.figures, _MAX_FIGURES)
        lines += [
            "",
            *row,
            *(fill(line, "  ", "    ") for line in (one.title, figures, one.earlier) if line),
        ]
    count = f"plumbline: {pluralize(len(found), 'finding')} red, slow or active, and not waived"
    return "\n".join([*lines, *([""] if found else []), count])
