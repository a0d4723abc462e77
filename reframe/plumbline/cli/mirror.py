"""``plumbline mirror``: mirrors for a site without a network."""

from __future__ import annotations

from pathlib import Path

import click

from plumbline.cli.common import named, say
from plumbline.core.errors import Fault


@click.group()
def mirror():
    """Carry everything that builds need to a site without a network."""


@mirror.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, required=True, metavar="SYSTEM[:TOOLCHAIN]...")
def create(folder: Path, names: tuple[str, ...]):
    """Make a mirror of everything that environments are built from."""
    from plumbline.software import mirror as mirrors

    mirrors.create(folder.absolute(), named(names), say)


@mirror.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--off", is_flag=True, help="Use the network again.")
def use(folder: Path | None, off: bool):
    """Have builds take everything from the mirror in FOLDER."""
    from plumbline.software import mirror as mirrors

    if off == (folder is not None):
        raise Fault("name the mirror's folder, or --off", code="input.wrong-option")
    mirrors.use(folder, say)
