"""``plumbline build``: builds a system's benchmarks with Spack."""

from __future__ import annotations

import click

from plumbline.cli.common import say, spack_environments, warn_lines
from plumbline.core.errors import Fault


@click.command()
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Number of parallel compilations.")
@click.argument("names", nargs=-1, metavar="[SYSTEM[:TOOLCHAIN]]...")
def build(jobs: int | None, names: tuple[str, ...]):
    """Build a system's benchmarks with Spack.

    SYSTEM builds all of its toolchains. Spack itself is installed first, at a pinned commit;
    without a SYSTEM only that is done. What is already built is kept. `plumbline run` never builds:
    it skips checks whose programs are not built.
    """
    from plumbline.software import build as builder
    from plumbline.software import checkouts, spack

    if not names:
        with spack.locked(say):
            checkouts.fetch(say)
        say(f"Spack is in {spack.checkout('spack')}: `plumbline build SYSTEM` uses it")
        return
    failed: dict[str, str] = {}
    for environment in spack_environments(names):
        try:
            builder.build(environment, jobs, say)
        except Fault as err:
            # The other toolchains are built all the same.
            if err.coded() not in failed.values():  # such as no network
                warn_lines(err.coded())
            failed[environment.name] = err.coded()
    if failed:
        raise Fault(f"failed to build: {', '.join(failed)}", code="build.failed")
