"""What a machine of the proving ground is: its nodes, racks, networks and rates, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

#: Addresses that no network has (RFC 5737), of the management network and of the fabric.
MANAGEMENT, FABRIC = "192.0.2", "198.51.100"

#: The interface of a node on the fabric.
INTERFACE = "fab0"

#: Hardware addresses that are a site's own, as the second digit 2 says.
HARDWARE = "02:00:00:00"

#: Where a node's scratch disk is mounted.
SCRATCH = "/run/scratch"

#: A token bucket: 32 kB pass at once, and 2 MB wait, which holds a message of 1 MiB.
BUCKET = "burst 32kb limit 2mb"

#: Addresses of a network of 24 bits begin with the login node's, 1; the nodes' follow.
MOST_NODES = 253


@dataclass(frozen=True)
class Machine:
    """A machine: ``racks`` of ``nodes`` each. machine.yaml has the unit of each field.

    :raises ValueError: if it has no node, or more than its networks have addresses.
    """

    racks: int
    nodes: int
    link: float
    uplink: float
    disk: float
    disk_size: int
    cpu: float
    mtu: int
    timeout: int
    mpi: dict[str, str]

    def __post_init__(self) -> None:
        if not 1 <= self.racks * self.nodes <= MOST_NODES:
            raise ValueError(f"1 to {MOST_NODES} nodes, not {self.racks} racks of {self.nodes}")

    @classmethod
    def declared(cls, **changes: object) -> Machine:
        """The machine of machine.yaml with some fields changed."""
        fields = yaml.safe_load(Path(__file__).with_name("machine.yaml").read_text())
        return dataclasses.replace(cls(**fields), **changes)

    @property
    def switches(self) -> dict[str, list[str]]:
        """The switch of each rack, and its nodes."""
        return {
            f"r{rack}": [f"r{rack}n{node}" for node in range(1, self.nodes + 1)]
            for rack in range(1, self.racks + 1)
        }

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes."""
        return tuple(name for names in self.switches.values() for name in names)

    def ends(self, link: str) -> tuple[tuple[str, ...], ...]:
        """Both ends of a link, a node's or a switch's to the spine: options of tc(8) that say in
        which namespace it is, and the device."""
        if link in self.names:
            return (f"f-{link}",), ("-n", link, INTERFACE)
        return (f"up-{link}",), (f"down-{link}",)

    # -- its files ------------------------------------------------------------------------

    def hosts(self, login: str) -> str:
        """``/etc/hosts``, with the addresses of the management network."""
        names = enumerate([login, *self.names], 1)
        return "127.0.0.1 localhost\n" + "".join(f"{MANAGEMENT}.{n} {name}\n" for n, name in names)

    def topology(self) -> str:
        """Slurm's topology.conf."""
        leaves = [f"SwitchName={s} Nodes={','.join(n)}\n" for s, n in self.switches.items()]
        return "".join(leaves) + f"SwitchName=spine Switches={','.join(self.switches)}\n"

    def network(self) -> str:
        """The shell script that makes the networks, in a network namespace of their own."""
        tc = [
            f"tc {' '.join(where)} qdisc add dev {device} root tbf rate {rate}mbit {BUCKET}"
            for link, rate in self.rates().items()
            for *where, device in self.ends(link)
        ]
        nodes = "\n".join(self._node(number, name) for number, name in enumerate(self.names, 2))
        links = "\n".join(self._links())
        return f"mkdir {SCRATCH}\nip -batch - <<END\n{links}\nEND\n{nodes}\n" + "\n".join(tc) + "\n"

    def rates(self) -> dict[str, float]:
        """Link -> its rate in Mbit/s. A link is called as its node, an uplink as its switch."""
        links = dict.fromkeys(self.names, self.link)
        return links | (dict.fromkeys(self.switches, self.uplink) if self.racks > 1 else {})

    def _links(self) -> Iterator[str]:
        for bridge in ("mgmt", "spine", *self.switches):
            yield f"link add {bridge} type bridge forward_delay 0"
            yield f"link set {bridge} addrgenmode none up"
        yield f"address add {MANAGEMENT}.1/24 dev mgmt"
        for switch, names in self.switches.items():
            yield f"link add up-{switch} type veth peer name down-{switch}"
            yield from self._plugged(f"up-{switch}", switch)
            yield from self._plugged(f"down-{switch}", "spine")
            for name in names:
                yield f"netns add {name}"
                yield f"link add m-{name} type veth peer name eth0 netns {name}"
                yield f"link add f-{name} type veth peer name {INTERFACE} netns {name}"
                yield from self._plugged(f"m-{name}", "mgmt")
                yield from self._plugged(f"f-{name}", switch)

    def _plugged(self, port: str, bridge: str) -> Iterator[str]:
        yield f"link set {port} addrgenmode none mtu {self.mtu} master {bridge} up"

    def address(self, name: str, unit: int = 0) -> str:
        """A node's hardware address on the fabric.

        :arg unit: 0, or 1 for the unit that replaces it.
        """
        return f"{HARDWARE}:{unit:02x}:{self.names.index(name) + 2:02x}"

    def _node(self, number: int, name: str) -> str:
        return "\n".join(
            [
                f"ip -n {name} -batch - <<END",
                "link set lo up",
                f"address add {MANAGEMENT}.{number}/24 dev eth0",
                f"address add {FABRIC}.{number}/24 dev {INTERFACE}",
                "link set eth0 addrgenmode none up",
                f"link set {INTERFACE} addrgenmode none address {self.address(name)}",
                f"link set {INTERFACE} mtu {self.mtu} up",
                "END",
            ]
        )
