"""Options and helpers that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import click

from plumbline.errors import Fault

system_option = click.option(
    "--system", metavar="NAME", help="The system; by host name if not given."
)
format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE instead of standard output.",
)


class _Moment(click.ParamType):
    """A date or time of the history, as :func:`plumbline.series.moment` reads it."""

    name = "time"

    def __init__(self, end: bool):
        self.end = end

    def convert(self, value, param, ctx):
        from plumbline.series import moment

        try:
            return moment(value, self.end) if isinstance(value, str) else value
        except Fault as err:
            self.fail(str(err), param, ctx)


class _Pair(click.ParamType):
    """``KEY=VALUE``, as ``--session-extras`` takes it."""

    name = "key=value"

    def convert(self, value, param, ctx):
        key, equals, text = value.partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


_SELECTION = [
    *(
        click.option(f"--{name}", default="", metavar="NAME", help=f"Only this {what}, * and ?")
        for name, what in [
            ("system", "system"),
            ("partition", "partition"),
            ("environment", "environment"),
            ("check", "check"),
            ("benchmark", "benchmark"),
            ("metric", "figure of merit"),
            ("placement", "placement"),
            ("node", "node of --distribute"),
        ]
    ),
    click.option("--since", type=_Moment(end=False), metavar="TIME",
                 help="Only sessions from then on: a date, a time (UTC), or an age: 30d, 2w, 12h."),
    click.option("--until", type=_Moment(end=True), metavar="TIME",
                 help="Only sessions before then; a date is that day's end."),
    click.option("--extras", type=_Pair(), multiple=True, metavar="KEY=VALUE",
                 help="Only sessions with this of their --session-extras; may be repeated."),
]  # fmt: skip
_SOURCE = click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
                       help="A results folder, or a CSV file of `plumbline history "
                            "export`.")  # fmt: skip
_FIELDS = ("system", "partition", "environment", "check", "benchmark", "metric", "placement",
           "node", "since", "until")  # fmt: skip


def selection_options(command: Callable) -> Callable:
    """Options that say which part of the history a command looks at; it gets them as ``select``,
    a :class:`plumbline.series.Selection`, and ``source``, a path or ``None``."""

    @functools.wraps(command)
    def selecting(*args, extras, **options):
        from plumbline.series import Selection

        chosen = {name: options.pop(name) for name in _FIELDS}
        return command(*args, select=Selection(**chosen, extras=dict(extras)), **options)

    for option in reversed([*_SELECTION, _SOURCE]):
        selecting = option(selecting)
    return selecting


def say(line: str) -> None:
    """Tells the user something, on standard output."""
    click.echo(f"plumbline: {line}")


def warn(line: str) -> None:
    """Tells the user something, on standard error."""
    click.echo(f"plumbline: {line}", err=True)


def tell(history) -> int:
    """Says what of the history was left out.

    :returns: the exit code that this alone makes: 2 if something was, else 0.
    """
    for fault in history.faults:
        warn(f"left out: {fault}")
    return 2 if history.faults else 0


def write(text: str, output: Path | None) -> None:
    """Writes a command's result to a file, or to standard output.

    :raises Fault: if the file cannot be written.
    """
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as err:
        raise Fault(f"{output}: cannot be written: {err.strerror}") from None


def named(names: tuple[str, ...]) -> list:
    """The Spack environments that a command line names, each once; all of them without a name."""
    from plumbline import environments

    found = [known for name in names for known in environments.named(name)]
    return list(dict.fromkeys(found)) if names else environments.every()
