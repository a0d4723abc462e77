"""The manual page of the command, from its own help.

``setup.py`` writes it into a wheel, so it needs click and no other dependency.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
from plumbline.cli import main

_HEAD = r""".TH PLUMBLINE 1 "" "Plumbline {version}"
.nh
.ad l
.SH NAME
plumbline \- {about}
.SH SYNOPSIS
.B plumbline
COMMAND [OPTIONS] [ARGUMENTS]
.SH DESCRIPTION
"""

#: What roff reads, or prints as another character.
_ESCAPED = str.maketrans({
    "\\": r"\e", "-": r"\-", "`": r"\(ga", "'": r"\(aq", '"': r"\(dq", "^": r"\(ha", "~": r"\(ti",
})  # fmt: skip


def write(page: Path, version: str) -> None:
    """Write the page of a version of Plumbline."""
    context = click.Context(main, info_name="plumbline", **main.context_settings)
    about = inspect.cleandoc(main.help or "").partition(".\n")[0]
    lines = [_HEAD.format(version=version, about=_roff(about[0].lower() + about[1:]))[:-1]]
    lines += [*_described(main, context), ".SH OPTIONS"]
    lines += [*_options(main.get_params(context), context), ".SH COMMANDS"]
    lines += _commands(main, context)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n", encoding="ascii")


def _commands(group: click.Group, above: click.Context) -> Iterator[str]:
    """Return the lines of the commands of a group, each with its usage, help and options."""
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=above)
        usage = [context.command_path, *command.collect_usage_pieces(context)]
        yield f".SS {_roff(' '.join(usage))}"
        yield from _described(command, context)
        yield from _options(command.params, context)
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from (".PP", _roff(paragraph))


def _options(parameters: list[click.Parameter], context: click.Context) -> Iterator[str]:
    for parameter in parameters:
        record = parameter.get_help_record(context)
        # Arguments, which have no help, are in the usage.
        if record and isinstance(parameter, click.Option):
            names, about = map(_roff, record)
            yield from (".TP", f".B {names}", *([about] if about else []))


def _roff(text: str) -> str:
    """Return text as one line of roff."""
    line = " ".join(text.split()).translate(_ESCAPED)
    return rf"\&{line}" if line.startswith(".") else line


if __name__ == "__main__":
    write(Path(sys.argv[1]), metadata.version("plumbline"))
