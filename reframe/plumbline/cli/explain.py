"""``plumbline explain``: shows cause and remedy of a reason code."""

from __future__ import annotations

import click

from plumbline.cli.common import complete_code, echo, format_option
from plumbline.core import formats
from plumbline.core.errors import UnknownName
from plumbline.core.text import format_table, suggest


@click.command()
@click.argument("code", required=False, shell_complete=complete_code)
@format_option
def explain(code: str | None, form: str):
    """Show the cause and the remedy of a reason code. Without CODE, list all codes; with the part
    before the dot, such as `build`, list the codes that begin with it.

    Each refusal, skip, invalid result, error and warning has a code, in messages, records, JUnit
    XML and JSON.
    """
    from plumbline.check import states
    from plumbline.core import codes, paths

    known = {**codes.registered(), **states.reasons(paths.reference())}
    chosen = {name: found for name, found in known.items()
              if code in (None, name, name.partition(".")[0])}  # fmt: skip
    if not chosen:
        raise UnknownName(f"no reason code {code!r}; {suggest(str(code), known)}")
    if form == "json":
        echo(formats.as_json([{"code": name, **vars(found)} for name, found in chosen.items()]))
    elif code not in known:
        rows = ((name, reason.cause) for name, reason in chosen.items())
        echo(format_table(rows, ("code", "cause")))
    else:
        echo(f"{code}\ncause:  {known[code].cause}\nremedy: {known[code].remedy}")
