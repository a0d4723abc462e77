"""``plumbline env``: the shell commands for plain ReFrame."""

from __future__ import annotations

import click


@click.command()
def env():
    """Print the shell commands after which plain `reframe` works.

    `eval "$(plumbline env)"` puts ReFrame on PATH, with Plumbline's configuration and checks.
    """
    from plumbline.operate import site_folder

    click.echo(site_folder.shell_commands())
