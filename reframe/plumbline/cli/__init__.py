"""The ``plumbline`` command: a module for each subcommand, by its name.

Exit codes: 0 as it should be, 1 a regression or fault found, 2 could not tell (bad input, a broken
set-up, too little data).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys

import click

from plumbline.cli.common import warn
from plumbline.core.errors import Fault


class _Group(click.Group):
    """Finds each subcommand in the module of its name, and has a fault printed in a line or two,
    with exit code 2, instead of a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(
            found.name for found in pkgutil.iter_modules(__path__) if found.name != "common"
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return _summarized(getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name))

    def invoke(self, ctx: click.Context):
        try:
            return self._invoke(ctx)
        except BrokenPipeError:
            # Of `plumbline trend | head -1`: click would exit with 1, which says regression. What
            # is left to write has no reader.
            nobody = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(nobody, stream.fileno())
            ctx.exit(2)

    def _invoke(self, ctx: click.Context):
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            warn("stopped")
            ctx.exit(2)
        except Fault as err:
            for line in err.coded().splitlines():
                warn(line)
            ctx.exit(2)


def _summarized(command: click.Command) -> click.Command:
    """A command whose first sentence stands whole in the list of commands, where click would cut
    it."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    command.short_help = command.short_help or re.sub(r"(?<=\.) .*", "", paragraph).rstrip(".")
    for under in getattr(command, "commands", {}).values():
        _summarized(under)
    return command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="plumbline")
def main():
    """Holds a machine against what it is known to do.

    Exit codes: 0 as it should be, 1 a regression or fault found, 2 could not tell.
    """
