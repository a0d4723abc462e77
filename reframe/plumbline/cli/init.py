"""``plumbline init``: drafts the files of a new machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from plumbline.cli.common import echo, say, warn
from plumbline.core.errors import Fault, WrongOption


def _of_node(ctx, param, values: tuple[str, ...]) -> dict[str, Path]:
    found = {}
    for value in values:
        partition, equals, path = value.partition("=")
        if not (partition and equals and path):
            raise click.BadParameter(f"{value!r} is not QUEUE=FILE")
        found[partition] = Path(path)
    return found


@click.command()
@click.argument("name")
@click.option("-p", "--partition", "partitions", multiple=True, metavar="PARTITION",
              help="Draft only this queue, or Slurm partition; may be repeated.")  # fmt: skip
@click.option("--node", "nodes", multiple=True, callback=_of_node, metavar="QUEUE=FILE",
              help="What a node of a queue or partition printed about itself.")  # fmt: skip
@click.option("--probe", is_flag=True, help="Submit a job to each queue that "
              "describes a node.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, or - for standard "
              "output, instead of systems/NAME.yaml.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Same as -o -.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(name, partitions, nodes, probe, output, dry_run, force):
    """Draft systems/NAME.yaml on a login node, from what can be detected there, and the Spack
    environments of the toolchains among the modules in spack-env/NAME/.

    Prints what was found, what is unknown, and the next step. No job is submitted without --probe.
    """
    from plumbline.core import paths
    from plumbline.operate.onboarding import draft, node, probing, steps

    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        raise WrongOption(
            f"{name!r} is not a valid system name: use letters, digits, - and _, a letter first"
        )
    printed = dry_run or output == "-"
    path = Path(output) if output and not printed else paths.systems().own / f"{name}.yaml"
    if not printed and path.exists() and not force:
        # Before any job is submitted.
        raise Fault(
            f"{path}: exists already: --force overwrites it, -o - prints the draft",
            code="files.exists",
        )
    described = {partition: node.read(file) for partition, file in nodes.items()}
    # Standard output may be the draft.
    show = warn if printed else say

    def probed(partition: dict) -> dict:
        return probing.describe(partition, sys.executable, show)

    result = draft.draft(name, partitions, described, probed if probe else None)
    files = {path: result.text(), **result.files}
    if printed:
        echo(files[path], nl=False)
    else:
        _write(files, force)
    for line in [
        *result.messages,
        *(f"open: {line}" for line in steps.open_items(name, result.content)),
    ]:
        show(line)
    if printed:
        for file in result.files:
            show(f"{file}: not written, only the system file is printed")
        return
    for file in files:
        show(f"{file}: drafted")
    locking = f"`plumbline lock {name}`, then " if result.files else ""
    show(f"next: read {path}; {locking}`plumbline lint --system {name}`")


def _write(files: dict[Path, str], force: bool) -> None:
    """Write all files, or none.

    :raises Fault: if one exists already, and not ``force``; or if one cannot be written.
    """
    if existing := [path for path in files if path.exists() and not force]:
        raise Fault(
            f"{existing[0]}: exists already: --force overwrites it, -o - prints the draft",
            code="files.exists",
        )
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as err:
            raise Fault(
                f"{path}: cannot be written: {err.strerror}: name another file with -o",
                code="files.not-writable",
            ) from None
