"""``plumbline lint``: checks systems, references and checks for consistency."""

from __future__ import annotations

import sys

import click

from plumbline.cli.common import checks_option, complete_system, say, warn
from plumbline.core.text import pluralize


@click.command()
@click.option("--system", metavar="NAME", shell_complete=complete_system,
              help="Check only this system.  [default: all; of the inventories, that of this "
                   "host's system]")  # fmt: skip
@checks_option
@click.option(
    "--accept", is_flag=True, help="Update the inventory to the present checks and references."
)
@click.option("--weak", is_flag=True, help="List the weak assertions and wide bounds.")
def lint(system: str | None, checks: tuple[str, ...], accept: bool, weak: bool):
    """Check systems, references, checks, Spack environments and waivers for consistency.

    Writes the system's inventory if there is none. A reference that was removed or edited since is
    a fault. Weak assertions, whose bounds admit the printed value of another case, are counted.

    Exits with 1 on any fault.
    """
    from plumbline.operate import lint as linter

    faults, messages = linter.lint(system, accept, weak, checks)
    for message in messages:
        say(message)
    for fault in faults:
        warn(fault)
    say(pluralize(len(faults), "fault"))
    sys.exit(1 if faults else 0)
