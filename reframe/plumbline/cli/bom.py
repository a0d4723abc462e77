"""``plumbline bom``: the bill of materials of a Spack environment."""

from __future__ import annotations

import click

from plumbline.cli.common import echo, spack_environments, warn
from plumbline.core.errors import Fault, UnknownName


@click.command()
@click.argument("name", metavar="SYSTEM:TOOLCHAIN")
def bom(name: str):
    """Print the bill of materials of a Spack environment.

    It is CycloneDX JSON, for the installed environment, or for its lock if it is not built.
    """
    from plumbline.software import bom as bill
    from plumbline.software import build as builder

    environments = spack_environments((name,))
    if len(environments) != 1:
        raise UnknownName(f"{name}: choose one of {', '.join(e.name for e in environments)}")
    (environment,) = environments
    built = builder.find_built(environment)
    lock = built.lock if built else environment.lock()
    if lock is None:
        raise Fault(
            f"{environment.manifest.parent}: no spack.lock: create it with `plumbline lock {name}`",
            code="spack.no-lock",
        )
    if built and (reason := builder.why_unusable(environment)):
        warn(f"{reason}: the list below has what is installed")
    echo(bill.render(environment, lock, built.mark if built else builder.pin_labels()))
