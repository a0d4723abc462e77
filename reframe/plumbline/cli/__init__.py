"""The ``plumbline`` command, with one module for each subcommand.

Exit codes: 0 OK, 1 a regression or fault was found, 2 inconclusive (bad input, a broken set-up, or
too little data).
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import re
import sys
import traceback

import click

from plumbline.cli.common import warn, warn_lines
from plumbline.core.errors import Fault, UnknownName, with_code
from plumbline.core.text import suggest

#: Standard output is a pipe whose reader is gone, or a file on a full disk.
_NOT_WRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT)


class _Group(click.Group):
    """Loads each subcommand from its module, and prints a fault as a message instead of a
    traceback, with exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(
            found.name for found in pkgutil.iter_modules(__path__) if found.name != "common"
        )

    def resolve_command(self, ctx: click.Context, args: list[str]):
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            raise UnknownName(f"no command {args[0]!r}; {suggest(args[0], known)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return _summarized(getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name))

    def invoke(self, ctx: click.Context):
        try:
            return self._invoke(ctx)
        except OSError as err:
            # As for `plumbline trend | head -1`: click would exit with 1, which means regression.
            if not isinstance(err, BrokenPipeError):
                reason = f"{err.filename or 'standard output'}: cannot be written ({err.strerror})"
                warn(with_code(f"{reason}: free disk space", "files.not-writable"))
            null = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(null, stream.fileno())
            ctx.exit(2)

    def _invoke(self, ctx: click.Context):
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            warn("stopped")
            ctx.exit(2)
        except Fault as err:
            warn_lines(err.coded())
            ctx.exit(2)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as err:
            if isinstance(err, OSError) and err.errno in _NOT_WRITTEN:
                raise
            # Python would exit with 1, which means regression.
            traceback.print_exc()
            warn(f"internal error: {type(err).__name__}: {err}: please report it with these lines")
            ctx.exit(2)


def _summarized(command: click.Command) -> click.Command:
    """Give a command its whole first sentence as its short help, where click would cut it."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    command.short_help = command.short_help or re.sub(r"(?<=\.) .*", "", paragraph).rstrip(".")
    for subcommand in getattr(command, "commands", {}).values():
        _summarized(subcommand)
    return command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="plumbline")
def main():
    """Performance regression testing for HPC systems, on ReFrame and Spack.

    Exit codes: 0 OK, 1 a regression or fault was found, 2 inconclusive.
    """
