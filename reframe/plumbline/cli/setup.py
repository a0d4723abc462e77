"""``plumbline setup``: installs what the checks need."""

from __future__ import annotations

import click

from plumbline.cli.common import echo


@click.command()
def setup():
    """Install what the checks need.

    These are the wheels of provider `pip`, and as root also Debian's hpcc and fio. If all are
    installed, it does nothing and needs no network.
    """
    from plumbline.software import providers

    providers.install(echo)
    providers.install_packages(echo)
