"""``python -m ground``: a shell on the login node of a machine. There, ``python -m ground rate r1n3
90`` changes its physics."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from ground import Ground, brought_up, missing
from ground.site import NODES, PAIRS, Site

#: What may be changed, and by what.
CHANGES = {
    "rate": "LINK PERCENT", "disk": "NODE PERCENT", "cpu": "NODE PERCENT", "mtu": "NODE BYTES",
    "cable": "NODE 0|1",
}  # fmt: skip

#: As a shell takes them.
QUOTED = shlex.join(NODES)

HELP = f"""\
Nodes: {{nodes}}. `cat $GROUND/machine.yaml` has what each link, disk and CPU can do, and
`cat systems/ground.yaml` how Plumbline knows them.
Measure it:   plumbline run --system ground --mode=smoke -S fio.size=32
              plumbline run --system ground {" ".join(PAIRS)} -S imb_node_pairs.nodes={{count}}
              plumbline sweep --system ground batch {QUOTED}
              plumbline screen
Change it:    {", ".join(f"ground {name} {words}" for name, words in CHANGES.items())}
Take it down: exit
"""


def shell() -> int:
    """Brings the machine up, opens a shell on its login node, and takes it down again."""
    if why := missing():
        print(f"plumbline: no proving ground: {why}", file=sys.stderr)
        return 2
    with brought_up() as ground:
        site = Site(ground.folder / "site", ground)
        site.draft()
        print(HELP.format(nodes=" ".join(ground.names), count=len(ground.names)), flush=True)
        words = [*ground.inside, "env", "-C", str(site.folder), "PS1=login$ ", "bash", "--norc"]
        env = os.environ | ground.env | variables(site)
        return subprocess.run(words, env=env, check=False).returncode


def variables(site: Site) -> dict[str, str]:
    """The variables of a shell on the login node, which has the command ``ground``."""
    command = site.there.folder / "bin" / "ground"
    command.parent.mkdir(exist_ok=True)
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={Path(__file__).parents[1]} exec {sys.executable} -m ground "$@"\n'
    )
    command.chmod(0o755)
    return site.env | {"PATH": f"{command.parent}:{site.env['PATH']}"}


def change(name: str, where: str, value: str) -> None:
    """Changes the machine on whose login node this runs."""
    ground = Ground.of_login_node()
    known = ground.machine.rates() if name == "rate" else ground.names
    if where not in known:
        sys.exit(f"ground: {where}: not one of {' '.join(known)}")
    getattr(ground, name)(where, float(value) if name in ("rate", "disk", "cpu") else int(value))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(shell())
    if sys.argv[1] not in CHANGES or len(sys.argv) != 4:
        sys.exit("usage: ground " + "\n       ground ".join(f"{n} {w}" for n, w in CHANGES.items()))
    change(*sys.argv[1:])
