"""Options and helpers that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from plumbline.core.errors import Fault
from plumbline.core.text import shown

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
    """A date or time of the history, as :func:`plumbline.history.series.moment` reads it."""

    name = "time"

    def __init__(self, end: bool):
        self.end = end

    def convert(self, value, param, ctx):
        from plumbline.history.series import moment

        try:
            return moment(value, self.end) if isinstance(value, str) else value
        except Fault as err:
            self.fail(err.coded(), param, ctx)


class _Pair(click.ParamType):
    """``KEY=VALUE``, as ``--session-extras`` takes it."""

    name = "key=value"

    def convert(self, value, param, ctx):
        key, equals, text = value.partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


class Span(click.ParamType):
    """A length of time, as :func:`plumbline.history.series.span` reads it."""

    name = "time"

    def convert(self, value, param, ctx):
        from plumbline.history.series import span

        try:
            return span(value) if isinstance(value, str) else value
        except Fault as err:
            self.fail(err.coded(), param, ctx)


budget_option = click.option(
    "--budget",
    type=Span(),
    metavar="TIME",
    help="Time after which nothing is begun any more and what runs is cancelled: 90m, 6h.",
)
orphans_option = click.option(
    "--orphans",
    type=click.Choice(["cancel", "keep"]),
    default=lambda: os.environ.get("PLUMBLINE_ORPHANS") or "cancel",
    help="What becomes of jobs that a killed session left in Slurm.  [default: cancel]",
)

_KEEP = {
    "stage": "Remove folders that test cases ran in",
    "output": "Remove outputs of what passed",
    "logs": "Compress ReFrame's logs and reports",
    "sessions": "Remove whole sessions, with their records,",
}


def keep_options(command: Callable) -> Callable:
    """Options that say what of old sessions goes; the command gets them as ``keep``, of
    :class:`plumbline.history.retention.RetentionRules`."""

    @functools.wraps(command)
    def keeping(*args, **options):
        from plumbline.history.retention import RetentionRules

        rules = RetentionRules(**{name: options.pop(f"keep_{name}") for name in _KEEP})
        return command(*args, keep=rules, **options)

    for name, what in reversed(_KEEP.items()):
        option = click.option(f"--keep-{name}", type=Span(), metavar="AGE",
                              help=f"{what} older than this: 14d.")  # fmt: skip
        keeping = option(keeping)
    return keeping


_SELECTION = {
    **{
        name: click.option(
            f"--{name}", default="", metavar="NAME", help=f"Only this {what}, * and ?"
        )
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
    },
    "since": click.option(
        "--since", type=_Moment(end=False), metavar="TIME",
        help="Only sessions from then on: a date, a time (UTC), or an age: 30d, 2w, 12h."),
    "until": click.option(
        "--until", type=_Moment(end=True), metavar="TIME",
        help="Only sessions before then; a date is that day's end."),
    "extras": click.option(
        "--extras", type=_Pair(), multiple=True, metavar="KEY=VALUE",
        help="Only sessions with this of their --session-extras; may be repeated."),
}  # fmt: skip
_SOURCE = click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
                       help="A results folder, or a CSV file of `plumbline history "
                            "export`.")  # fmt: skip
_RESULTS = click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
                        help="Another results folder.")  # fmt: skip


def _selecting(names: Iterable[str], where: Callable) -> Callable:
    """Gives a command the options of a selection.

    :arg where: the option that names the history.
    """

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def selecting(*args, source, **options):
            from plumbline.history.series import Selection

            if source is not None and not source.exists():
                raise Fault(
                    f"{source}: no such folder of results, and no such CSV file",
                    code="history.not-found",
                )
            chosen = {name: options.pop(name) for name in names}
            chosen["extras"] = dict(chosen["extras"])
            return command(*args, select=Selection(**chosen), source=source, **options)

        for option in reversed([*(_SELECTION[name] for name in names), where]):
            selecting = option(selecting)
        return selecting

    return decorate


#: Options that say which part of the history a command looks at; it gets them as ``select``, a
#: :class:`plumbline.history.series.Selection`, and ``source``, a path that is there, or ``None``.
selection_options = _selecting(tuple(_SELECTION), _SOURCE)

#: The same, of whole sessions only.
session_options = _selecting(("system", "since", "until", "extras"), _RESULTS)


def echo(text: str = "", err: bool = False, nl: bool = True) -> None:
    """Prints lines, whatever the names in them hold: nothing in them steers a terminal."""
    click.echo(shown(text), err=err, nl=nl)


def say(line: str) -> None:
    """Tells the user something, on standard output."""
    echo(f"plumbline: {line}")


def warn(line: str) -> None:
    """Tells the user something, on standard error."""
    echo(f"plumbline: {line}", err=True)


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
        echo(text, nl=not text.endswith("\n"))
        return
    try:
        output.write_text(shown(text), encoding="utf-8")
    except OSError as err:
        raise Fault(
            f"{output}: cannot be written: {err.strerror}: name another file",
            code="files.not-writable",
        ) from None


def named(names: tuple[str, ...]) -> list:
    """The Spack environments that a command line names, each once; all of them without a name."""
    from plumbline.software import environments

    found = [known for name in names for known in environments.named(name)]
    return list(dict.fromkeys(found)) if names else environments.every()
