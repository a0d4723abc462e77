"""``plumbline bom``: the bill of materials of a Spack environment."""

from __future__ import annotations

import click

from plumbline.cli.common import echo, named, warn
from plumbline.core.errors import Fault


@click.command()
@click.argument("name", metavar="SYSTEM:TOOLCHAIN")
def bom(name: str):
    """Print the bill of materials of a Spack environment.

    As CycloneDX JSON; of what is built, or else of the lock that is kept beside the manifest.
    """
    from plumbline.software import bom as bill
    from plumbline.software import build as builder

    environments = named((name,))
    if len(environments) != 1:
        raise Fault(
            f"{name}: name one of {', '.join(e.name for e in environments)}",
            code="input.unknown-name",
        )
    (environment,) = environments
    built = builder.built(environment)
    of = built.lock if built else environment.lock()
    if of is None:
        raise Fault(
            f"{environment.folder}: no lock there: `plumbline lock {name}`", code="spack.no-lock"
        )
    if built and (reason := builder.why_not(environment)):
        warn(f"{reason}: the bill is of what is built")
    echo(bill.of(environment, of, built.mark if built else builder.of_pins()))
