"""``plumbline lock``: concretizes Spack environments."""

from __future__ import annotations

from pathlib import Path

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
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE",
              help="Write a page of what was concretized, and how long it took.")  # fmt: skip
def lock(names: tuple[str, ...], jobs: int, page: Path | None):
    """Concretize Spack environments, and store their locks.

    Without a SYSTEM, all of them.
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
            warn_lines(err.coded())
            return None

    wanted = spack_environments(names)
    # docs/environments.md has the times of all shipped ones.
    say(f"{pluralize(len(wanted), 'environment')}, one to three minutes each")
    with spack.locked(say):
        spack.bootstrap(say)
        builder.index(say)
        with ThreadPoolExecutor(jobs) as pool:
            solutions = [solution for solution in pool.map(solve, wanted) if solution]
    if failed:
        raise Fault(f"not concretized: {', '.join(failed)}", code="spack.not-concretized")
    if page:
        page.write_text(builder.page(solutions, jobs), encoding="utf-8")
