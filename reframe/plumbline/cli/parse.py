"""``plumbline parse``: shows what is read from a benchmark's output."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from plumbline.cli.common import echo, warn
from plumbline.core import formats
from plumbline.core.errors import UnknownName, UnreadableFile
from plumbline.core.text import suggest


@click.command()
@click.argument("benchmark")
@click.argument("file", type=click.Path(path_type=Path))
def parse(benchmark: str, file: Path):
    """Print as JSON what is read from a benchmark's output.

    Exits with 1 if the output cannot be trusted.
    """
    from plumbline import parse as parsers

    if benchmark not in parsers.BENCHMARKS:
        hint = suggest(benchmark, parsers.BENCHMARKS, ", ".join(parsers.BENCHMARKS))
        raise UnknownName(f"there is no parser for {benchmark!r}; {hint}")
    try:
        output = parsers.parse_file(benchmark, file)
    except parsers.ParseError as err:
        warn(f"{file}: invalid: {err.coded()}")
        sys.exit(1)
    except OSError as err:
        raise UnreadableFile(f"{file}: {err.strerror}") from None
    foms = [vars(fom) for fom in output.foms]
    echo(formats.as_json({"version": output.version, "tasks": output.tasks, "foms": foms}))
