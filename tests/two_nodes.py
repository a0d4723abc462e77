"""Two nodes on this machine: network, UTS and mount namespaces of their own, joined by a management
network and a fabric (veth). They end with this process."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

#: Interface -> network of its addresses, 10.NETWORK.0.1 and .2.
NETWORKS = {"mgmt0": 77, "fab0": 78}

#: A node: its interfaces in /sys, its name, and an end with its standard input.
NODE = 'mount -t sysfs sysfs /sys && hostname "$0" && ip link set lo up && echo ready && exec cat'


class TwoNodes:
    """Nodes n0, on which commands run, and n1.

    :ivar launcher: program that Hydra starts instead of ssh.
    """

    def __init__(self, folder: Path, nodes: dict[str, subprocess.Popen]):
        self.pids = {name: process.pid for name, process in nodes.items()}
        self.launcher = folder / "enter"
        cases = "\n".join(f"{name}) pid={pid} ;;" for name, pid in self.pids.items())
        self.launcher.write_text(
            "#!/bin/sh\n# Options of ssh, then the node.\n"
            'while [ "${1#-}" != "$1" ]; do shift; done\n'
            f"case $1 in\n{cases}\nesac\nshift\n"
            'exec nsenter -t $pid -n -u -m sh -c "$*"\n'
        )
        self.launcher.chmod(0o755)
        (folder / "hosts").write_text("n0\nn1\n")
        self.env = {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": str(self.launcher),
            # As in a job of PBS.
            "HYDRA_RMK": "pbs",
            "PBS_NODEFILE": str(folder / "hosts"),
            "HYDRA_IFACE": "mgmt0",
        }

    def inside(self, node: str) -> list[str]:
        """Return the words before a command that runs on a node."""
        return ["nsenter", "-t", str(self.pids[node]), "-n", "-u", "-m"]

    def do(self, node: str, *command: str) -> None:
        subprocess.run([*self.inside(node), *command], check=True, capture_output=True)


@contextlib.contextmanager
def two_nodes(folder: Path, rate: str = "100mbit") -> Iterator[TwoNodes]:
    """Make the nodes; the fabric has a rate.

    :raises OSError: if this machine has no namespaces for that.
    """
    nodes: dict[str, subprocess.Popen] = {}
    try:
        for name in ("n0", "n1"):
            words = ["unshare", "--net", "--uts", "--mount", "sh", "-c", NODE, name]
            nodes[name] = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert nodes[name].stdout is not None
            if nodes[name].stdout.readline() != b"ready\n":
                raise OSError("no network namespaces")
        found = TwoNodes(folder, nodes)
        for interface, network in NETWORKS.items():
            found.do("n0", "ip", "link", "add", interface, "type", "veth", "peer", "name",
                     interface, "netns", str(found.pids["n1"]))  # fmt: skip
            for number, node in enumerate(nodes, 1):
                address = f"10.{network}.0.{number}/24"
                found.do(node, "ip", "addr", "add", address, "dev", interface)
                found.do(node, "ip", "link", "set", interface, "up")
        for node in nodes:
            found.do(node, "tc", "qdisc", "add", "dev", "fab0", "root", "tbf", "rate", rate,
                     "burst", "32kb", "limit", "2mb")  # fmt: skip
        for node in nodes:
            # The kernel reports it a moment later.
            found.do(node, "sh", "-c", "until grep -q up /sys/class/net/fab0/operstate; do "
                     "sleep 0.1; done")  # fmt: skip
        yield found
    except (OSError, subprocess.CalledProcessError) as err:
        raise OSError(str(err)) from err
    finally:
        for process in nodes.values():
            process.kill()
            process.communicate()
