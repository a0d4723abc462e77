"""``plumbline lock``: concretizing Spack environments anew."""

from __future__ import annotations

from pathlib import Path

import click

from plumbline.cli.common import named, say, warn
from plumbline.core.errors import Fault
from plumbline.core.text import counted


@click.command()
@click.argument("names", nargs=-1, metavar="[SYSTEM[:TOOLCHAIN]]...")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Environments at once; each takes some 1.5 GiB of memory.",
)
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE",
              help="Write what was concretized, and how long it took.")  # fmt: skip
def lock(names: tuple[str, ...], jobs: int, page: Path | None):
    """Concretize Spack environments anew, and keep their locks.

    All of them without a SYSTEM.
    """
    from concurrent.futures import ThreadPoolExecutor

    from plumbline.software import build as builder
    from plumbline.software import spack

    failed = []

    def solve(environment):
        try:
            return builder.lock(environment, say)
        except Fault as err:
            failed.append(environment.name)
            for line in err.coded().splitlines():
                warn(line)
            return None

    wanted = named(names)
    say(f"{counted(len(wanted), 'environment')}, about a minute each")
    with spack.locked(say):
        spack.bootstrap(say)
        builder.index(say)
        with ThreadPoolExecutor(jobs) as pool:
            solutions = [solution for solution in pool.map(solve, wanted) if solution]
    if failed:
        raise Fault(f"not concretized: {', '.join(failed)}", code="spack.not-concretized")
    if page:
        page.write_text(builder.page(solutions, jobs), encoding="utf-8")
