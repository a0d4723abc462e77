"""``plumbline init``: drafts the system file of a new machine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from plumbline.cli.common import echo, say, warn
from plumbline.core.errors import Fault
from plumbline.core.text import suggest


def _of_node(ctx, param, values: tuple[str, ...]) -> dict[str, Path]:
    found = {}
    for value in values:
        partition, equals, path = value.partition("=")
        if not (partition and equals and path):
            raise click.BadParameter(f"{value!r} is not PARTITION=FILE")
        found[partition] = Path(path)
    return found


@click.command()
@click.argument("name")
@click.option("-p", "--partition", "partitions", multiple=True, metavar="PARTITION",
              help="Draft only this partition of the scheduler; may be repeated.")  # fmt: skip
@click.option("--node", "nodes", multiple=True, callback=_of_node, metavar="PARTITION=FILE",
              help="What a node of a drafted partition printed about itself.")  # fmt: skip
@click.option("--probe", is_flag=True, help="Submit a job to each partition that "
              "describes its nodes.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, or - for standard "
              "output, instead of systems/NAME.yaml.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Same as -o -.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(name, partitions, nodes, probe, output, dry_run, force):
    """Draft systems/NAME.yaml on a login node, from what can be detected there.

    Prints what was found, what is unknown, and the next step. No job is submitted without --probe.
    """
    from plumbline.core import paths
    from plumbline.operate.onboarding import draft, node, steps

    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        raise Fault(
            f"{name!r} is not a valid system name: use letters, digits, - and _, a letter first",
            code="input.wrong-option",
        )
    printed = dry_run or output == "-"
    path = Path(output) if output and not printed else paths.systems().own / f"{name}.yaml"
    if not printed and path.exists() and not force:
        raise Fault(
            f"{path}: exists already: --force overwrites it, -o - prints the draft",
            code="files.exists",
        )
    described = {partition: node.read(file) for partition, file in nodes.items()}
    # Standard output may be the draft.
    show = warn if printed else say

    def probe_node(access: list[str]) -> dict:
        partition = {"scheduler": "slurm", "access": access}
        # In a folder that the node can write.
        paths.results().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="init-", dir=paths.results()) as folder:
            file = Path(folder, "node.json")
            python = (sys.executable, *steps.DESCRIBE[1:])
            command = steps.probe_command(partition, str(file), python)
            show(f"submitting: {shlex.join(command)}")
            _submit(command)
            return node.read(file)

    result = draft.draft(name, partitions, described, probe_node if probe else None)
    drafted = [partition["name"] for partition in result.system["partitions"]]
    if not drafted:
        raise Fault(
            "no partition to draft: " + "; ".join(result.messages),
            code="scheduler.no-partition",
        )
    if unknown := sorted(set(described) - set(drafted)):
        raise Fault(
            f"--node {unknown[0]}: the scheduler has no partition of this name; "
            f"{suggest(unknown[0], drafted)}",
            code="input.unknown-name",
        )
    text = result.text()
    if printed:
        echo(text, nl=False)
    else:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as err:
            raise Fault(
                f"{path}: cannot be written: {err.strerror}: name another file with -o",
                code="files.not-writable",
            ) from None
    for line in [
        *result.messages,
        *(f"open: {line}" for line in steps.open_items(name, result.content)),
    ]:
        show(line)
    if not printed:
        show(f"{path}: drafted; next: `plumbline lint --system {name}`")


def _submit(command: list[str]) -> None:
    """Submit a job and wait for its end.

    :raises Fault: if it fails or does not end in ten minutes.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
            check=False, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as err:
        raise Fault(f"{command[0]}: {err}", code="scheduler.no-answer") from None
    if done.returncode:
        raise Fault(
            (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1],
            code="scheduler.no-answer",
        )
