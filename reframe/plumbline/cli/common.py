"""Options and helpers that several commands share."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import click

from plumbline.core import files, paths
from plumbline.core.errors import Fault, with_code
from plumbline.core.text import printable_lines


def _completing(found: Callable[[], Iterable[str]]) -> Callable:
    """Return how a shell completes a name: from those found; from none if they cannot be read."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        with contextlib.suppress(Fault, OSError):
            return [name for name in found() if name.startswith(incomplete)]
        return []

    return complete


def _sessions() -> list[str]:
    """Return the ids of all sessions, the newest first."""
    return sorted((path.name for path in (paths.results() / "sessions").iterdir()), reverse=True)


def _checks() -> list[str]:
    """Return the names of the checks, each with its parameters."""
    files = [file for path in map(Path, paths.checks())
             for file in (path.glob("*.py") if path.is_dir() else [path])]  # fmt: skip
    declared = r"^@rfm\.simple_test\nclass (\w+)"
    return sorted({
        name for file in files for name in re.findall(declared, file.read_text("utf-8"), re.M)
    })  # fmt: skip


def _codes() -> Iterable[str]:
    from plumbline.core import codes

    return codes.registered()


complete_system = _completing(lambda: sorted(path.stem for path in paths.systems().files("*.yaml")))
complete_session = _completing(_sessions)
complete_check = _completing(_checks)
complete_code = _completing(_codes)

checks_option = click.option(
    "-c", "--checkpath", "checks", multiple=True, metavar="PATH",
    type=click.Path(exists=True, resolve_path=True),
    help="A folder or file of your own checks, beside the shipped ones; repeatable.",
)  # fmt: skip
system_option = click.option(
    "--system", metavar="NAME", shell_complete=complete_system,
    help="The system; by host name if not given.",
)  # fmt: skip
format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
table_format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json", "csv"]), default="text",
    show_default=True,
)  # fmt: skip
facts_option = click.option(
    "--facts", is_flag=True, help="Builds, tuning variables and facts of nodes instead of figures."
)

output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=lambda context, option, path: None if path == Path("-") else path,
    metavar="FILE",
    help="Write to FILE instead of standard output.",
)


class _Time(click.ParamType):
    """A time or duration, read by a function of :mod:`plumbline.history.series`."""

    name = "time"

    def __init__(self, function: str, **arguments: bool):
        self.function, self.arguments = function, arguments

    def convert(self, value, param, ctx):
        from plumbline.history import series

        try:
            return getattr(series, self.function)(value, **self.arguments)
        except Fault as err:
            self.fail(err.coded(), param, ctx)


class KeyValue(click.ParamType):
    """``KEY=VALUE``, as for ``--session-extras``.

    :arg empty: whether the value may be empty.
    """

    name = "key=value"

    def __init__(self, form: str = "KEY=VALUE", empty: bool = True):
        self.form, self.empty = form, empty

    def convert(self, value, param, ctx):
        key, equals, text = value.partition("=")
        if not (key and equals and (text or self.empty)):
            self.fail(f"{value!r} is not {self.form}", param, ctx)
        return key, text


#: A duration.
SPAN = _Time("span")
#: A date, a time or an age.
MOMENT = _Time("moment")

budget_option = click.option(
    "--budget",
    type=SPAN,
    metavar="TIME",
    help="Time after which no case starts and running cases are cancelled: 90m, 6h.",
)
orphans_option = click.option(
    "--orphans",
    type=click.Choice(["cancel", "keep"]),
    default=lambda: os.environ.get("PLUMBLINE_ORPHANS") or "cancel",
    help="What to do with jobs that a killed session left in Slurm.  [default: "
    "$PLUMBLINE_ORPHANS, or cancel]",
)

_KEEP = {
    "stage": "Remove the stage folders of test cases",
    "output": "Remove the outputs of passed test cases",
    "logs": "Compress ReFrame's logs and reports",
    "sessions": "Remove whole sessions, with their records,",
}


def keep_options(command: Callable) -> Callable:
    """Add the options of :class:`plumbline.history.retention.RetentionRules`; the command gets them
    as ``keep``."""

    @functools.wraps(command)
    def keeping(*args, **options):
        from plumbline.history.retention import RetentionRules

        rules = RetentionRules(**{name: options.pop(f"keep_{name}") for name in _KEEP})
        return command(*args, keep=rules, **options)

    for name, what in reversed(_KEEP.items()):
        option = click.option(f"--keep-{name}", type=SPAN, metavar="AGE",
                              help=f"{what} older than this: 14d.")  # fmt: skip
        keeping = option(keeping)
    return keeping


_COMPLETED = {"system": complete_system, "check": complete_check}
_SELECTION = {
    **{
        name: click.option(
            f"--{name}", default="", metavar="NAME", shell_complete=_COMPLETED.get(name),
            help=f"Only this {what} (wildcards: * ?)."
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
        "--since", type=MOMENT, metavar="TIME",
        help="Only sessions since a date, a time (UTC), or an age: 30d, 2w, 12h."),
    "until": click.option(
        "--until", type=_Time("moment", end=True), metavar="TIME",
        help="Only sessions before this time; a date means the end of that day."),
    "extras": click.option(
        "--extras", type=KeyValue(), multiple=True, metavar="KEY=VALUE",
        help="Only sessions with these --session-extras; may be repeated."),
}  # fmt: skip
_SOURCE = click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
                       help="A results folder, or a CSV file of `plumbline history "
                            "export`.")  # fmt: skip
_RESULTS = click.option("--from", "source", type=click.Path(path_type=Path), metavar="PATH",
                        help="Another results folder.")  # fmt: skip


def _selecting(names: Iterable[str], where: Callable) -> Callable:
    """Return a decorator that adds the options of a selection to a command.

    :arg where: the option for the source of the history.
    """

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def selecting(*args, source, **options):
            from plumbline.history.series import Selection

            if source is not None and not source.exists():
                raise Fault(
                    f"{source}: not found: give a results folder or a CSV file",
                    code="history.not-found",
                )
            chosen = {name: options.pop(name) for name in names}
            chosen["extras"] = dict(chosen["extras"])
            return command(*args, select=Selection(**chosen), source=source, **options)

        for option in reversed([*(_SELECTION[name] for name in names), where]):
            selecting = option(selecting)
        return selecting

    return decorate


#: Options that select a part of the history. The command gets them as ``select``, a
#: :class:`plumbline.history.series.Selection`, and ``source``, an existing path or ``None``.
selection_options = _selecting(tuple(_SELECTION), _SOURCE)

#: The same without the first time, for a command that needs all nights.
long_selection_options = _selecting([name for name in _SELECTION if name != "since"], _SOURCE)

#: The same without times, for a command about today.
current_selection_options = _selecting(
    [name for name in _SELECTION if name not in ("since", "until")], _SOURCE
)

#: Options that select whole sessions.
session_options = _selecting(("system", "since", "until", "extras"), _RESULTS)


def echo(text: str = "", err: bool = False, nl: bool = True) -> None:
    """Print text, without control characters that a name in it may contain."""
    click.echo(printable_lines(text), err=err, nl=nl)


def say(line: str) -> None:
    """Print a message on standard output."""
    echo(f"plumbline: {line}")


def warn(line: str) -> None:
    """Print a message on standard error."""
    echo(f"plumbline: {line}", err=True)


def warn_lines(text: str) -> None:
    """Print each line of a text as a message on standard error."""
    for line in text.splitlines():
        warn(line)


def warn_skipped(history) -> int:
    """Print the skipped parts of the history. Return 2 if there are any, else 0."""
    return warn_damaged(history.faults)


def warn_damaged(faults: Collection[str]) -> int:
    """Print the places that could not be read. Return 2 if there are any, else 0."""
    for fault in faults:
        warn(with_code(f"skipped: {fault}", "history.damaged"))
    return 2 if faults else 0


@contextlib.contextmanager
def session_output(form: str, output: Path | None) -> Iterator[None]:
    """Print what a session prints on standard error, where JSON or CSV follows on standard output.

    :arg form: of the command's result; text may follow the session's.
    :arg output: the file that the result is written to.
    """
    if form == "text" or output is not None:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def write(text: str, output: Path | None) -> None:
    """Write a command's result to a file, or to standard output.

    :raises Fault: if the file cannot be written.
    """
    if output is None:
        echo(text, nl=not text.endswith("\n"))
        return
    with files.writing(output), files.overwriting(output) as file:
        file.write(printable_lines(text))


def spack_environments(names: tuple[str, ...]) -> list:
    """Return the Spack environments of these names, each once; without a name, all of them."""
    from plumbline.software import environments

    found = [known for name in names for known in environments.find(name)]
    return list(dict.fromkeys(found)) if names else environments.list_environments()


def folded(nodes: list[str]) -> str:
    """Return a list of nodes in the notation of schedulers: n[1-3,7]."""
    from reframe.utility import nodelist_abbrev

    try:
        return nodelist_abbrev(nodes)
    except Exception:
        # Names that are not host names.
        return ",".join(nodes)
