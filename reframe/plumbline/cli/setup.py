"""``plumbline setup``: installing what the checks need."""

from __future__ import annotations

import click

from plumbline.cli.common import echo


@click.command()
def setup():
    """Install what the checks need.

    The wheels of provider `pip`, and with root Debian's hpcc and fio. Does nothing, and needs no
    network, where all is there.
    """
    from plumbline.software import providers

    providers.install(echo)
    providers.install_packages(echo)
