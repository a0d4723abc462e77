"""``plumbline init``: drafts the files of a new machine."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from plumbline.cli.common import KeyValue, echo, say, warn
from plumbline.core.errors import Fault, WrongOption, with_code
from plumbline.core.process import one_line


@click.command()
@click.argument("name")
@click.option("-p", "--partition", "partitions", multiple=True, metavar="PARTITION",
              help="Draft only this queue, or Slurm partition; may be repeated.")  # fmt: skip
@click.option("--node", "nodes", multiple=True, type=KeyValue("QUEUE=FILE", empty=False),
              metavar="QUEUE=FILE",
              help="Describe the nodes of a queue by the FILE that `python -m "
                   "plumbline.operate.onboarding.node` printed on one of them.")  # fmt: skip
@click.option("--probe", is_flag=True, help="Submit a job to each queue, which "
              "describes its node.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, or - for standard "
              "output, instead of systems/NAME.yaml.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Same as -o -.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init(name, partitions, nodes, probe, output, dry_run, force):
    """Draft systems/NAME.yaml on a login node, from what can be detected there, and the Spack
    environments of the toolchains among the modules in spack-env/NAME/.

    Prints what was found, what is unknown, and the next step. No job is submitted without --probe.
    With it, the exit code is 2 if a partition is drafted without a description of a node.
    """
    from plumbline.core import files, paths
    from plumbline.operate.onboarding import draft, node, probing, steps

    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        raise WrongOption(
            f"{name!r} is not a valid system name: use letters, digits, - and _, a letter first"
        )
    printed = dry_run or output == "-"
    path = Path(output) if output and not printed else paths.systems().own / f"{name}.yaml"
    if not (printed or force):
        # Before any job is submitted.
        _refuse_existing([path])
    described = {partition: node.read(Path(file)) for partition, file in nodes}
    # Standard output may be the draft.
    show = warn if printed else say
    probing_job = functools.partial(probing.describe, show=show) if probe else None
    result = draft.draft(name, partitions, described, probing_job)
    drafted = {path: result.text(), **result.files}
    if printed:
        echo(drafted[path], nl=False)
    else:
        if not force:
            _refuse_existing(drafted)
        for file, text in drafted.items():
            with files.writing(file, "cannot be written: {}: name another file with -o"):
                file.parent.mkdir(parents=True, exist_ok=True)
                with files.overwriting(file) as written:
                    written.write(text)
    for line in [
        *result.messages,
        *(f"open: {line}" for line in steps.open_items(name, result.content)),
    ]:
        show(line)
    if printed:
        for file in result.files:
            show(f"{file}: not written, only the system file is printed")
    else:
        for file in drafted:
            show(f"{file}: drafted")
        locking = f"`plumbline lock {name}`, then " if result.files else ""
        show(f"next: read {path}; {locking}`plumbline lint --system {name}`")
    for partition in result.system["partitions"]:
        if err := result.unprobed.get(partition["name"]):
            message = (
                f"partition {partition['name']}: not probed: {one_line(str(err))}: correct "
                f"that, or describe a node of it: {steps.describing(name, partition)}"
            )
            warn(with_code(message, getattr(err, "code", None)))
    sys.exit(2 if result.unprobed else 0)


def _refuse_existing(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            raise Fault(
                f"{path}: exists already: --force overwrites it, -o - prints the draft",
                code="files.exists",
            )
