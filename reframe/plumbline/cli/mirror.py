"""``plumbline mirror``: makes and uses mirrors for a site without a network."""

from __future__ import annotations

from pathlib import Path

import click

from plumbline.cli.common import say, spack_environments
from plumbline.core.errors import WrongOption


@click.group()
def mirror():
    """Make and use mirrors of all sources, for a site without a network."""


@mirror.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, required=True, metavar="SYSTEM[:TOOLCHAIN]...")
def create(folder: Path, names: tuple[str, ...]):
    """Make a mirror with all sources of environments."""
    from plumbline.software import mirror as mirrors

    mirrors.create(folder.absolute(), spack_environments(names), say)


@mirror.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--off", is_flag=True, help="Use the network again.")
def use(folder: Path | None, off: bool):
    """Build only from the mirror in FOLDER, until --off."""
    from plumbline.software import mirror as mirrors

    if off == (folder is not None):
        raise WrongOption("give either FOLDER or --off")
    mirrors.use(folder, say)
