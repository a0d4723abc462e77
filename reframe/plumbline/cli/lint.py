"""``plumbline lint``: systems, references and checks against each other."""

from __future__ import annotations

import sys

import click

from plumbline.cli.common import say, system_option, warn
from plumbline.core.text import counted


@click.command()
@system_option
@click.option("--accept", is_flag=True, help="Write the inventory anew, as the system is now.")
@click.option("--weak", is_flag=True, help="List the references that cannot tell two cases apart.")
def lint(system: str | None, accept: bool, weak: bool):
    """Hold systems, references and checks against each other.

    Also Spack environments, tolerances and waivers. Writes the system's inventory where there is
    none; a reference that was removed or edited since is a fault. Exits with 1 on any fault.
    Weak assertions, whose bounds admit the printed value of another case, are counted and no fault.
    """
    from plumbline.operate import lint as linter

    faults, said = linter.lint(system, accept, weak)
    for line in said:
        say(line)
    for fault in faults:
        warn(fault)
    say(counted(len(faults), "fault"))
    sys.exit(1 if faults else 0)
