"""``plumbline lock``: concretizes Spack environments."""

from __future__ import annotations

import click

from plumbline.cli.common import say, spack_environments, warn_lines
from plumbline.core.errors import Fault
from plumbline.core.text import pluralize


@click.command()
@click.argument("names", nargs=-1, metavar="[SYSTEM[:TOOLCHAIN]]...")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Environments in parallel; each needs about 1.5 GiB of memory.",
)
def lock(names: tuple[str, ...], jobs: int):
    """Concretize Spack environments, and store their locks.

    Without a SYSTEM, all of them.
    """
    from concurrent.futures import ThreadPoolExecutor

    from plumbline.software import build as builder
    from plumbline.software import checkouts, spack

    failed = []

    def solve(environment):
        try:
            builder.lock(environment, say)
        except Fault as err:
            failed.append(environment.name)
            warn_lines(err.coded())

    wanted = spack_environments(names)
    say(f"{pluralize(len(wanted), 'environment')}, one to three minutes each")
    with spack.locked(say):
        checkouts.fetch(say)
        builder.index(say)
        with ThreadPoolExecutor(jobs) as pool:
            try:
                list(pool.map(solve, wanted))  # raises what one raised
            except KeyboardInterrupt:
                say(spack.WAITING)
                raise
    if failed:
        raise Fault(f"not concretized: {', '.join(failed)}", code="spack.not-concretized")
