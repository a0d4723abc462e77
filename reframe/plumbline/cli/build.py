"""``plumbline build``: building a system's benchmarks with Spack."""

from __future__ import annotations

import click

from plumbline.cli.common import named, say, warn
from plumbline.core.errors import Fault


@click.command()
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compilations at once.")
@click.argument("names", nargs=-1, metavar="[SYSTEM[:TOOLCHAIN]]...")
def build(jobs: int | None, names: tuple[str, ...]):
    """Build a system's benchmarks with Spack.

    For each of its toolchains, or for one. Spack itself is brought first, at a pinned commit;
    without a SYSTEM only that is done. What is built is left alone. A run never builds: checks are
    skipped where this was not done.
    """
    from plumbline.software import build as builder
    from plumbline.software import spack

    if not names:
        with spack.locked(say):
            spack.bootstrap(say)
        say(f"Spack is in {spack.checkout('spack')}; `plumbline build SYSTEM` builds with it")
        return
    failed = []
    for environment in named(names):
        try:
            builder.build(environment, jobs, say)
        except Fault as err:
            # One toolchain's trouble is no reason to leave the others unbuilt.
            failed.append(environment.name)
            for line in err.coded().splitlines():
                warn(line)
    if failed:
        raise Fault(f"failed to build: {', '.join(failed)}", code="build.failed")
