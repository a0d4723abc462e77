"""Options and helpers that several commands share."""

from __future__ import annotations

import click

system_option = click.option(
    "--system", metavar="NAME", help="The system; by host name if not given."
)
format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)


def say(line: str) -> None:
    """Tells the user something, on standard output."""
    click.echo(f"plumbline: {line}")


def named(names: tuple[str, ...]) -> list:
    """The Spack environments that a command line names, each once; all of them without a name."""
    from plumbline import environments

    found = [known for name in names for known in environments.named(name)]
    return list(dict.fromkeys(found)) if names else environments.every()
