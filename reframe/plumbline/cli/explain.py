"""``plumbline explain``: cause and remedy of a reason code."""

from __future__ import annotations

import json

import click

from plumbline.cli.common import echo, format_option
from plumbline.core.errors import Fault
from plumbline.core.text import near, table


@click.command()
@click.argument("code", required=False)
@format_option
def explain(code: str | None, form: str):
    """Show the cause and the remedy of a reason code; without CODE, list all codes.

    Messages, records, JUnit XML and JSON have the code of each refusal, skip, invalid result,
    error and warning.
    """
    from plumbline.check import states
    from plumbline.core import codes, paths

    known = {**codes.REASONS, **states.reasons(paths.reference())}
    if code is not None and code not in known:
        raise Fault(f"no reason code {code!r}; {near(code, known)}", "input.unknown-name")
    chosen = known if code is None else {code: known[code]}
    if form == "json":
        echo(json.dumps([{"code": name, **vars(reason)} for name, reason in chosen.items()],
                        indent=1))  # fmt: skip
    elif code is None:
        echo(table(((name, reason.cause) for name, reason in known.items()), ("code", "cause"),
                   "simple"))  # fmt: skip
    else:
        echo(f"{code}\ncause:  {known[code].cause}\nremedy: {known[code].remedy}")
