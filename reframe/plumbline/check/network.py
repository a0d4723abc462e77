"""What the network interfaces of a test case's nodes moved: which of them the program used, whether
others used them too, and errors.

The task wrapper reports the counters of each node before, at the start and at the end of each run.
``/proc/net/dev`` counts what passes the kernel's network stack. Ports of InfiniBand and Omni-Path
count by themselves what bypasses it. Where nothing counts what the program moved (Slingshot, shared
memory), the interface is unknown, which is no fault. Independent of ReFrame.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from plumbline.check.record import InterfaceRecord
from plumbline.check.states import WARNINGS, Notice
from plumbline.core import units
from plumbline.parse import Figure
from plumbline.placement.proof import Counters, Moments

#: Word of the task wrapper, with the seconds before each run in which only others use the network:
#: ten ticks of the clock that they are timed with (proc(5), uptime).
WORD = "PLUMBLINE_NETWORK=0.1"

#: Prefix of facts about network interfaces: ``net.eth0.mtu``.
FACT = "net."

#: States of an interface that works: the kernel's Documentation/ABI/testing/sysfs-class-net
#: (operstate) and stable/sysfs-class-infiniband (state).
UP = ("up", "4: ACTIVE")

#: Smallest size in bytes whose bandwidth, or latency, shows the rate of the network.
LARGE = 2**16

#: Share of the printed rate that an interface must carry, averaged over each run, to be one that
#: the program used. PingPong carries 20 % over 10 Gbit/s Ethernet, since it also starts and sends
#: small messages, and 95 % over 100 Mbit/s. A tenth of what is printed over a fabric that bypasses
#: the kernel is more than the management network of its nodes carries otherwise. If the rate is
#: unknown, it is the share of the interface's speed.
USED = 0.1

#: Share of the network's rate that others must use before a run to make its figures incomparable:
#: the smallest tolerance of a bandwidth (reference/tolerance.yaml).
FOREIGN = 0.05


@dataclass(frozen=True)
class _Run:
    """The counters of one node around one run, and the rate that the program printed, as of
    :func:`printed_rate`."""

    moments: Moments
    printed: float

    def rate(self, interface: str, since: str, until: str) -> tuple[float, float] | None:
        """Return received and sent bytes per second between two moments; ``None`` if unknown."""
        first, last = self._counters(interface, since), self._counters(interface, until)
        if first is None or last is None or last.time <= first.time:
            return None
        seconds = last.time - first.time
        return (last.received - first.received) / seconds, (last.sent - first.sent) / seconds

    def _counters(self, interface: str, moment: str) -> Counters | None:
        return self.moments.get(moment, {}).get(interface)


@dataclass
class NetworkTraffic:
    """The network traffic of a test case.

    :ivar runs: of each node.
    """

    runs: dict[str, list[_Run]] = field(default_factory=dict)

    def add(self, counters: Mapping[str, Moments], printed: float) -> None:
        """Add a run.

        :arg counters: of each node. :arg printed: as of :func:`printed_rate`.
        """
        for host, moments in counters.items():
            self.runs.setdefault(host, []).append(_Run(moments, printed))

    def interfaces(self, host: str) -> dict[str, InterfaceRecord]:
        """Return what each interface of a node moved, without those that moved nothing."""
        found = {}
        for name in self._names(host):
            pairs = [(run.moments["start"][name], run.moments["end"][name])
                     for run in self.runs[host] if run.rate(name, "start", "end")]  # fmt: skip
            moved = InterfaceRecord(
                received=sum(end.received - start.received for start, end in pairs),
                sent=sum(end.sent - start.sent for start, end in pairs),
                errors=sum(end.errors - start.errors for start, end in pairs),
                drops=sum(end.drops - start.drops for start, end in pairs),
                idle=round(self._idle(host, name), 1),
            )
            if any(vars(moved).values()):
                found[name] = moved
        return found

    def used(self, host: str, facts: Mapping[str, str]) -> list[str]:
        """Return the interfaces that the program used in each run, the busiest first; none if that
        is unknown.

        :arg facts: of the node.
        """
        carried = {name: self._carried(host, name) for name in self._names(host)}
        most = max(carried.values(), default=0)
        known = all(math.isfinite(run.printed) for run in self.runs[host])
        whole = {name: 1 if known else _speed(name, facts) or math.inf for name in carried}
        # One that carries a tenth of another one's traffic is not one that is used as well.
        found = [name for name in carried if carried[name] >= USED * max(whole[name], most)]
        return sorted(found, key=lambda name: -carried[name])

    def others(self, host: str, interfaces: Iterable[str], facts: Mapping[str, str]) -> str:
        """Return a text about an interface that others used before the runs; empty if none was.

        :arg interfaces: of which this matters.
        """
        printed = max((run.printed for run in self.runs[host]), default=0)
        for name in interfaces:
            known = [rate for rate in (printed, _speed(name, facts)) if rate]
            idle = self._idle(host, name)
            if known and idle >= FOREIGN * min(known):
                return (
                    f"{host}: {name} carried {idle / 1e6:.3g} MB/s before the runs, "
                    f"{idle / min(known):.0%} of {min(known) / 1e6:.4g} MB/s"
                )
        return ""

    def _names(self, host: str) -> list[str]:
        return list(dict.fromkeys(
            name for run in self.runs[host] for name in run.moments.get("end", {})
        ))  # fmt: skip

    def _idle(self, host: str, name: str) -> float:
        """Return the rate of the busier direction before the runs. In the first run programs may be
        loaded over the network at that time, so it is not the mean."""
        rates = [rate for run in self.runs[host] if (rate := run.rate(name, "quiet", "start"))]
        return statistics.median_low([max(rate) for rate in rates]) if rates else 0.0

    def _carried(self, host: str, name: str) -> float:
        """Return the traffic of an interface in both directions, in the run in which it was least:
        relative to what the program printed, or in B/s if that rate is unknown; 0 if nothing is
        known."""
        runs = self.runs[host]
        rates = [run.rate(name, "start", "end") for run in runs]
        # A single run may also have loaded the program.
        if len(runs) < 2 or not all(run.printed for run in runs) or None in rates:
            return 0.0
        idle = 2 * self._idle(host, name)
        return min((sum(rate or ()) - idle) / (run.printed if math.isfinite(run.printed) else 1)
                   for run, rate in zip(runs, rates, strict=True))  # fmt: skip


def printed_rate(
    figures: Mapping[Figure, float], unit_of: Mapping[Figure, str], tasks: int
) -> float:
    """Return the largest rate in B/s that figures of large messages show: 0 if there is none, and
    infinite, which is unknown, if more than two tasks sent them.

    Of two tasks it is a lower bound of what a node moves while the largest messages are measured.
    Of many it may be far less than that: an alltoall of 256 tasks sends 255 messages of a task in
    the time that it prints, and each node has many tasks.
    """
    rates = [0.0]
    for figure, value in figures.items():
        quantity = units.quantity(unit_of[figure])
        if figure.size is None or figure.size < LARGE or not value > 0:
            continue
        if quantity == "bandwidth":
            rates.append(value * units.factor(unit_of[figure], "B/s"))
        elif quantity == "latency":
            rates.append(figure.size / (value * units.factor(unit_of[figure], "s")))
    return math.inf if tasks > 2 and any(rates) else max(rates)


def family(patterns: Sequence[str], facts: Mapping[str, str]) -> set[str]:
    """Return the interfaces of a node that carry the traffic of the named ones: these, the RDMA
    device of each, and the parts of a bond or the interface below a VLAN, and the other way round.

    :arg patterns: names, or patterns such as ``hsn*``.
    :arg facts: of the node.
    """
    names: set[str] = set()
    related: list[set[str]] = []
    for fact, value in facts.items():
        name, _, what = fact.removeprefix(FACT).rpartition(".")
        if fact.startswith(FACT) and name:
            names.add(name)
            if what in ("rdma", "lower"):
                related.append({name, *value.split()})
    found = {
        name for name in names | {part for parts in related for part in parts}
        if any(fnmatch.fnmatchcase(_device(name), pattern) for pattern in patterns)
    }  # fmt: skip
    # A VLAN on a bond of two interfaces is three steps.
    for _ in range(3):
        found |= {part for parts in related if parts & found for part in parts}
    return found


def belongs(interface: str, members: set[str]) -> bool:
    """Return whether an interface, or a port of a device, is one of a family."""
    return interface in members or _device(interface) in members


def wrong_interface(
    traffic: NetworkTraffic, stated: Sequence[str], hosts: Mapping[str, Mapping[str, str]]
) -> str:
    """Return a text about a node where the program used another interface than the stated ones;
    empty if there is none, or if it is not known what it used.

    :arg hosts: facts of each node.
    """
    for host in traffic.runs:
        facts = hosts.get(host, {})
        members = family(stated, facts)
        other = [name for name in traffic.used(host, facts) if not belongs(name, members)]
        if stated and other:
            moved = traffic.interfaces(host)
            total = moved[other[0]].received + moved[other[0]].sent
            own = sum(one.received + one.sent for name, one in moved.items()
                      if belongs(name, members))  # fmt: skip
            return (
                f"on {host} the program used {other[0]} ({total / 1e6:.4g} MB in all runs) and not "
                f"the fabric, {', '.join(stated)} ({own / 1e6:.4g} MB)"
            )
    return ""


def of_interest(
    traffic: NetworkTraffic, stated: Sequence[str], host: str, facts: Mapping[str, str]
) -> list[str]:
    """Return the interfaces of a node that are the stated ones, or else those that were used."""
    members = family(stated, facts)
    return [
        name for name in traffic.interfaces(host) if belongs(name, members)
    ] if stated else traffic.used(host, facts)  # fmt: skip


def down(hosts: Mapping[str, Mapping[str, str]], stated: Sequence[str]) -> list[str]:
    """Return a text about each interface whose link is down: one of the fabric, or one that is up
    on another node.

    :arg hosts: facts of each node. :arg stated: the interfaces of the fabric, if any.
    """
    states = [
        (host, fact.removeprefix(FACT).removesuffix(".state"), value)
        for host, facts in hosts.items()
        for fact, value in facts.items()
        if fact.startswith(FACT) and fact.endswith(".state")
    ]
    up = {name for _, name, value in states if value in UP}
    return [
        f"{name} is {value} on {host}"
        for host, name, value in states
        if value not in UP and (name in up or belongs(name, family(stated, hosts[host])))
    ]


def errors(
    traffic: NetworkTraffic, stated: Sequence[str], hosts: Mapping[str, Mapping[str, str]]
) -> list[Notice]:
    """Return a warning for each interface of the fabric that counted errors during the runs."""
    found = []
    for host in traffic.runs:
        moved = traffic.interfaces(host)
        for name in of_interest(traffic, stated, host, hosts.get(host, {})):
            if moved[name].errors:
                detail = (
                    f"{host}: {name} counted {moved[name].errors} errors during the runs, and "
                    f"dropped {moved[name].drops} packets"
                )
                found.append(Notice(WARNINGS, "network.errors", detail, source="/proc/net/dev"))
    return found


def _device(interface: str) -> str:
    """Return the device of a port (``mlx5_0:1``)."""
    return interface.partition(":")[0]


def _speed(interface: str, facts: Mapping[str, str]) -> float:
    """Return the speed of an interface in B/s: sysfs has Mbit/s of Ethernet, and ``100 Gb/sec (4X
    EDR)`` of InfiniBand. 0 if it is unknown."""
    for fact, unit in (("speed", 1e6 / 8), ("rate", 1e9 / 8)):
        value = facts.get(f"{FACT}{interface}.{fact}", "").split()
        try:
            return max(float(value[0]), 0.0) * unit
        except (IndexError, ValueError):
            continue
    return 0.0
