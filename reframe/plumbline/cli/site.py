"""``plumbline site``: lays out a site's folder."""

from __future__ import annotations

from pathlib import Path

import click

from plumbline.cli.common import say


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def site(folder: Path):
    """Lay out a folder for a site's own systems, builds, references and checks.

    Its README.md has the next commands. PLUMBLINE_SITE=DIR makes Plumbline use it.
    """
    from plumbline.operate import site_folder

    folder = folder.expanduser().absolute()
    site_folder.lay_out(folder)
    say(f"{folder}: laid out; next: `{site_folder.export(folder)}`, and its README.md")
