"""The proving ground: a real small machine on this one, whose physics is known.

Nodes in racks, a management network and a fabric whose links are shaped to declared rates, a
scratch disk and a share of the CPUs for each node, and real Slurm. What is measured on it is set by
what :file:`machine.yaml` declares, and a fault is a change of that. It is the cluster of
:mod:`cluster`, with networks and limits of its own: all of it is in namespaces, and is gone when
their first process is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import cluster
import nap
import pytest
import yaml
from cluster import Cluster

from ground.limits import Limits
from ground.machine import BUCKET, INTERFACE, SCRATCH, Machine

CONF = """\
TopologyPlugin=topology/tree
TaskProlog={folder}/prolog
{nodes}
PartitionName=batch Nodes={names} Default=YES MaxTime=60 State=UP
"""

#: The first process of a node. It stays when slurmd is gone, as a node does.
FIRST_OF_NODE = f"""\
set -e
hostname "$1"
mkdir -p /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs none /sys
mount --rbind /run/cgroup /sys/fs/cgroup
mount -t tmpfs none /dev/shm
mount -o loop "$2/disks/$1" {SCRATCH}
slurmd -D -N "$1" &
sleep infinity & wait
"""

#: Where a node keeps the number of a process that keeps it busy.
BUSY = "/run/busy"

#: Seconds after which a job measures: it starts its steps in less.
RUNS = 10

#: Enters control groups, and becomes a command that follows them after ``--``.
ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1"; shift; done; shift; exec "$@"'


class Ground(Cluster):
    """A machine that is up. What sets its physics runs from outside, and from its login node.

    :ivar machine: what was declared.
    """

    host = "login"
    patience = 60

    def __init__(self, folder: Path, machine: Machine):
        super().__init__(folder)
        self.machine, self.names, self.timeout = machine, machine.names, machine.timeout
        self.limits = Limits(folder.name)
        self.env |= {"PLUMBLINE_SCRATCH": SCRATCH, "GROUND": str(folder)}

    @classmethod
    def of_login_node(cls) -> Ground:
        """The machine on whose login node this process runs.

        :raises KeyError: if it runs elsewhere.
        """
        folder = Path(os.environ["GROUND"])
        fields = yaml.safe_load((folder / "machine.yaml").read_text())
        found = cls(folder, Machine(**fields))
        found.inside = []
        return found

    def __enter__(self) -> Ground:
        self._stack.callback(self.limits.remove)
        super().__enter__()
        return self

    def files(self) -> dict[str, str]:
        cpus = os.cpu_count() or 1
        nodes = "\n".join(
            cluster.NODE.format(name=name, port=6818, cpus=cpus, more="") for name in self.names
        )
        conf = CONF.format(folder=self.folder, nodes=nodes, names=",".join(self.names))
        variables = {**self.machine.mpi, "LD_PRELOAD": self.folder / "nap.so"}
        exports = [f"echo export {name}={value}\n" for name, value in variables.items()]
        return {
            "slurm.conf": self.slurm_conf() + conf,
            "slurmdbd.conf": cluster.SLURMDBD_CONF.format(host=self.host, folder=self.folder),
            "machine.yaml": yaml.safe_dump(dataclasses.asdict(self.machine)),
            "topology.conf": self.machine.topology(),
            "hosts": self.machine.hosts(self.host),
            "network": f'mount -t tmpfs none "$1/disks"\n{self.machine.network()}',
            "prolog": "#!/bin/sh\n" + "".join(exports),
        }

    def _write(self) -> None:
        super()._write()
        (self.folder / "disks").mkdir()
        (self.folder / "prolog").chmod(0o755)
        nap.library(self.folder)

    # -- its nodes ------------------------------------------------------------------------

    def node_command(self, name: str) -> list[str]:
        spaces = ["--uts", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        spaces += ["--mount", "--propagation=slave"]
        return [
            *(*self.inside, *self._entered(name)),
            *("nsenter", f"--net=/run/netns/{name}", "--", "unshare", *spaces),
            *("bash", "-c", FIRST_OF_NODE, "node", name, str(self.folder)),
        ]

    def _entered(self, name: str) -> list[str]:
        """What a command begins with to run in a control group of the machine."""
        files = self.limits.create(name, first=name != self.host)
        return ["bash", "-c", ENTER, "enter", *map(str, files), "--"]

    @functools.cached_property
    def inside(self) -> list[str]:
        return [*self._entered(self.host), *super().inside]

    def start_node(self, name: str) -> None:
        disk = self.folder / "disks" / name
        self.run("truncate", f"--size={self.machine.disk_size}M", disk)
        # The kernel lets go of a killed node's some time after its last process.
        self._wait(lambda: not self._device(name))
        self.run("mkfs.ext2", "-q", "-F", disk)
        super().start_node(name)
        self.cpu(name, 100)

    def on(self, node: str, *command: object, check: bool = True, **env: str):
        """Runs a command on a node."""
        spaces = ["--mount", "--net", "--pid", "--uts", "--ipc"]
        entered = [*self._entered(node), "nsenter", f"--target={self.first_of(node)}", *spaces]
        return self.run(*command, check=check, inside=[*entered, "--"], **env)

    # -- its physics ----------------------------------------------------------------------

    def rate(self, link: str, percent: float, bucket: str = BUCKET) -> None:
        """Sets both directions of a link to this part of its rate. A link is called as its node,
        and an uplink as its switch.

        :arg bucket: what may pass at once, and what may wait: the rest is dropped.
        """
        mbits = self.machine.rates()[link] * percent / 100
        for *where, device in self.machine.ends(link):
            self.run(
                *("tc", *where, "qdisc", "change", "dev", device, "root", "tbf", "rate"),
                *(f"{mbits}mbit", *bucket.split()),
            )

    def cable(self, node: str, plugged: bool, network: str = "f") -> None:
        """Unplugs a node's cable to the fabric, or plugs it in.

        :arg network: ``f`` for the fabric, ``m`` for the management network.
        """
        self.run("ip", "link", "set", f"{network}-{node}", "up" if plugged else "down")

    def mtu(self, node: str, size: int) -> None:
        """Sets the MTU of a node's interface on the fabric."""
        self.run("ip", "-n", node, "link", "set", INTERFACE, "mtu", size)

    def cpu(self, node: str, percent: float) -> None:
        """Limits a node to this part of its share of the CPUs."""
        self.limits.cpu(node, self.machine.cpu * percent / 100)

    def disk(self, node: str, percent: float) -> None:
        """Limits a node's scratch disk to this part of its rate."""
        self.limits.disk(node, self._device(node), self.machine.disk * percent / 100)

    def _device(self, node: str) -> str:
        disk = self.folder / "disks" / node
        return self.run("losetup", "-n", "-O", "MAJ:MIN", "-j", disk).stdout.strip()

    def fill(self, node: str) -> None:
        """Fills a node's scratch disk."""
        self.on(node, "dd", "if=/dev/zero", f"of={SCRATCH}/fill", "bs=1M", check=False)

    def empty(self, node: str) -> None:
        """Empties it again."""
        self.on(node, "rm", "-f", f"{SCRATCH}/fill")

    def busy(self, node: str) -> None:
        """Starts a process on a node that keeps a core busy."""
        self._start(node, "while :; do :; done")

    def hang(self, node: str, program: str) -> None:
        """Stops a program as soon as it starts on a node, as a driver does that hangs."""
        self._start(node, f"while :; do pkill -STOP -x {program}; sleep 0.02; done")

    def _start(self, node: str, loop: str) -> None:
        """Starts a shell on a node that ends with :meth:`idle`."""
        background = f"setsid sh -c '{loop}' >/dev/null 2>&1 & echo $! >{BUSY}.{node}"
        self.on(node, "sh", "-c", background)

    def idle(self, node: str) -> None:
        """Ends it."""
        self.on(node, "sh", "-c", f'kill "$(cat {BUSY}.{node})"')

    def swap(self, node: str, unit: int = 1) -> None:
        """Replaces a node with another unit of the same name, or with the first one, 0."""
        began = self._began(node)
        self.kill_node(node)
        within = ("ip", "netns", "exec", node)
        # Its neighbours have the old address until it announces its own.
        self.run(*within, "sysctl", "-qw", "net.ipv4.conf.all.arp_notify=1")
        self.run(
            *within, "ip", "link", "set", INTERFACE, "address", self.machine.address(node, unit)
        )
        self.start_node(node)
        self._wait(lambda: self._began(node) != began and self.all_idle())

    def _began(self, node: str) -> str:
        """When a node's slurmd was started, as Slurm knows it."""
        text = self.run("scontrol", "show", "node", node).stdout
        return re.search(r"SlurmdStartTime=(\S+)", text)[1]

    def lose_management(self) -> None:
        """Takes the management network down once a session's job has run for some seconds."""

        def lose() -> None:
            while not self._kept.wait(1):
                if self.run("squeue", "--noheader", "--states=R", check=False).stdout.strip():
                    if not self._kept.wait(RUNS):
                        self.run("ip", "link", "set", "mgmt", "down")
                    return

        self._kept = threading.Event()
        self._losing = threading.Thread(target=lose, daemon=True)
        self._losing.start()

    def regain_management(self) -> None:
        """Brings it up again."""
        self._kept.set()
        self._losing.join()
        self.run("ip", "link", "set", "mgmt", "up")

    def kill_slurmd(self, node: str) -> None:
        """Kills a node's slurmd; the node itself stays."""
        self.on(node, "bash", "-c", f'kill -9 "$(cat /run/slurmd.{node}.pid)"')
        self.until_down(node)

    def until_down(self, node: str) -> None:
        """Waits until Slurm takes a node for down."""
        self._wait(lambda: self.state(node).startswith("down"))

    def all_idle(self) -> bool:
        if not super().all_idle():
            return False
        # The disk of a node that answers is mounted.
        for name in self.names:
            self.disk(name, 100)
        return True


def missing() -> str:
    """Why there can be no machine here, empty where there can."""
    return cluster.missing() or Limits.missing()


@contextlib.contextmanager
def brought_up(**changes: object) -> Iterator[Ground]:
    """A machine, brought up and taken down.

    :arg changes: fields that differ from machine.yaml.
    """
    machine = Machine.declared(**changes)
    # A socket's path has 107 characters at most: too few for a test's own folder.
    with (
        tempfile.TemporaryDirectory(prefix="ground-") as folder,
        Ground(Path(folder), machine) as found,
    ):
        yield found


@contextlib.contextmanager
def ground(**changes: object) -> Iterator[Ground]:
    """The same; skips, with the reason, where there can be none."""
    if why := missing():
        pytest.skip(why)
    with brought_up(**changes) as found:
        yield found
