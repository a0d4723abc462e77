"""Whether GPUs and CPUs ran at the speed that they are built for while a test case was measured.

The task wrapper reads them around each run (``placement/readings.py``). Their settings become facts
of the host, which peers have in common. A GPU that was throttled, a PCIe link that was slower or
narrower than it can be, an ECC error that could not be corrected, a GPU that needs a repair, and
CPUs that were too hot are warnings: the figures keep their values. Independent of ReFrame.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.check.record import ProcessorsRecord
from plumbline.check.states import WARNINGS, Notice
from plumbline.placement import readings
from plumbline.placement.proof import TaskReport
from plumbline.placement.readings import CpuReading, GpuReading, PcieLink

#: Prefix of facts about GPUs: ``gpu.0000:18:00.0.power_limit``.
FACT = "gpu."


def word(vendor: str, warmups: int) -> list[str]:
    """Return the word of the task wrapper by which it reads the GPUs; none without GPUs.

    :arg warmups: the number of first runs during which they may be read, too.
    """
    return [f"PLUMBLINE_DEVICES={vendor}:{warmups}"] if vendor else []


def unknown(fact: str, facts: Mapping[str, str]) -> bool:
    """Return whether a fact is missing only because the GPU does not show it: other facts of the
    GPU are there. An older driver, or a version of Plumbline that did not read it, is no change."""
    gpu = fact.rpartition(".")[0] + "."
    return fact.startswith(FACT) and fact not in facts and any(f.startswith(gpu) for f in facts)


def restricted(stderr: str) -> str:
    """Return, for the end of a message, which GPUs accept one process only, or none."""
    read = NodeReadings()
    read.add(stderr, ())
    facts = ((host, *fact) for host in read.gpus for fact in read.facts(host).items())
    return "".join(
        f"; {name} of {host} is {value}" for host, name, value in facts
        if name.endswith(".compute_mode") and value != "Default"
    )  # fmt: skip


@dataclass(frozen=True)
class Device:
    """A GPU during all runs of a test case.

    :ivar throttled: why it was slower than it should be: reason -> how long, or an empty text if
        only that is known; ``None`` if the GPU reported neither reasons nor counters of the runs.
    :ivar temperature: the highest, in degrees Celsius. :ivar clock: the highest, in MHz;
        ``memory_clock`` likewise.
    :ivar link: the best state of its PCIe link while it worked; ``max_link`` what it can be. Both
        are ``None`` for one that has another link to its host: what PCIe shows is not its speed.
    :ivar corrected: ECC errors during the runs and between them, ``uncorrected`` likewise.
    :ivar faults: why it needs a reset or a repair.
    """

    throttled: dict[str, str] | None
    temperature: float | None
    clock: float | None
    memory_clock: float | None
    link: PcieLink | None
    max_link: PcieLink | None
    corrected: int | None
    uncorrected: int | None
    faults: list[str] | None

    @property
    def narrow(self) -> bool:
        """Whether the link was slower or narrower than it can be."""
        if self.link is None or self.max_link is None:
            return False
        return any(now < most for now, most in zip(self.link, self.max_link, strict=True))

    def recorded(self) -> dict[str, Any]:
        """Return the fields of its record, without those that are unknown."""
        links = {name: str(link) for name in ("link", "max_link") if (link := getattr(self, name))}
        fields = vars(self) | links
        if self.throttled is not None:
            fields["throttled"] = sorted(self.throttled)
        return {name: value for name, value in fields.items() if value is not None}


@dataclass
class NodeReadings:
    """What the nodes of a test case reported of their GPUs and CPUs.

    :ivar gpus: by host; empty if it has a tool, of which nothing could be read.
    :ivar used: bus ids of the GPUs that tasks saw, by host.
    :ivar static: what amd-smi reports once, by host.
    """

    gpus: dict[str, list[dict[str, GpuReading]]] = field(default_factory=dict)
    cpus: dict[str, list[CpuReading]] = field(default_factory=dict)
    used: dict[str, set[str]] = field(default_factory=dict)
    static: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, stderr: str, tasks: Iterable[TaskReport]) -> None:
        """Add a run.

        :arg stderr: of its tasks.
        """
        for host, gpus in readings.gpu_readings(stderr, self.static).items():
            self.gpus.setdefault(host, []).extend(gpus)
        for host, cpus in readings.cpu_readings(stderr).items():
            self.cpus.setdefault(host, []).extend(cpus)
        for task in tasks:
            self.used.setdefault(task.host, set()).update(filter(None, task.devices.split(",")))

    def devices(self, host: str) -> dict[str, Device]:
        """Return the GPUs of a node that its tasks saw; all of it if it does not show that."""
        of_bus: dict[str, list[GpuReading]] = {}
        for gpus in self.gpus.get(host, []):
            for bus, gpu in gpus.items():
                of_bus.setdefault(bus, []).append(gpu)
        used = self.used.get(host) or of_bus.keys()
        return {bus: _device(of_bus[bus]) for bus in sorted(of_bus) if bus in used}

    def processors(self, host: str) -> ProcessorsRecord | None:
        """Return the CPUs of a node; ``None`` if it does not show them."""
        every = self.cpus.get(host, [])
        # The counters belong to the node: what happens between the runs is not of the program.
        pairs = [
            (one, other) for one, other in itertools.pairwise(every)
            if one.moment == "before" and other.moment == "after"
        ]  # fmt: skip
        found = ProcessorsRecord(
            cores=_total([_growth([one.cores, other.cores]) for one, other in pairs]),
            packages=_total([_growth([one.packages, other.packages]) for one, other in pairs]),
            clock=min((a.clock for _, a in pairs if a.clock is not None), default=None),
        )
        return found if found.model_dump(exclude_none=True) else None

    def facts(self, host: str) -> dict[str, str]:
        """Return the settings of a node's GPUs, as facts of the host."""
        return {
            f"{FACT}{bus}.{name}": value
            for gpus in self.gpus.get(host, [])
            for bus, gpu in sorted(gpus.items())
            for name, value in gpu.settings.items()
        }

    def notices(self) -> list[Notice]:
        """Return the warnings."""
        return [
            *(notice for host in self.gpus for notice in _of_devices(host, self.devices(host))),
            *(notice for host in self.gpus for notice in self._not_read(host)),
            *(notice for host in self.cpus for notice in self._of_processors(host)),
        ]

    def _not_read(self, host: str) -> Iterator[Notice]:
        read = {
            bus for gpus in self.gpus[host] for bus, gpu in gpus.items() if gpu.moment != "before"
        }
        # The wrapper reports a GPU whose bus id the kernel does not show as "?".
        used = self.used.get(host, set()) - {"?"}
        if missing := sorted(used - read) or ([] if used or read else ["of unknown bus id"]):
            detail = f"{host}: nothing was read during the runs of GPU {', '.join(missing)}"
            source = "nvidia-smi, amd-smi, rocm-smi"
            yield Notice(WARNINGS, "device.not-read", detail, source=source)

    def _of_processors(self, host: str) -> Iterator[Notice]:
        found = self.processors(host)
        if found and (found.cores or found.packages):
            detail = (
                f"{host}: the CPUs were too hot and ran slower during the runs: cores "
                f"{found.cores or 0} times, packages {found.packages or 0} times"
            )
            source = "/sys/devices/system/cpu/cpu*/thermal_throttle"
            yield Notice(WARNINGS, "cpu.throttled", detail, source=source)


def _of_devices(host: str, devices: Mapping[str, Device]) -> Iterator[Notice]:
    for bus, device in devices.items():
        if device.throttled:
            reasons = ", ".join(
                f"{reason} ({long})" if long else reason
                for reason, long in sorted(device.throttled.items())
            )
            hot = "" if device.temperature is None else f"; at most {device.temperature:.0f} C"
            detail = f"{host}: GPU {bus} was throttled during the runs: {reasons}{hot}"
            yield Notice(WARNINGS, "device.throttled", detail, source="clock event reasons")
        if device.narrow:
            detail = (
                f"{host}: the PCIe link of GPU {bus} was {device.link} while it worked; it can be "
                f"{device.max_link}"
            )
            yield Notice(WARNINGS, "device.narrow-link", detail, source="PCIe link state")
        if device.uncorrected:
            detail = (
                f"{host}: GPU {bus} counted {device.uncorrected} ECC errors during the runs that "
                f"could not be corrected"
            )
            yield Notice(WARNINGS, "device.uncorrected-errors", detail, source="ECC counters")
        if device.faults:
            detail = f"{host}: GPU {bus} needs a reset or a repair: {', '.join(device.faults)}"
            yield Notice(WARNINGS, "device.needs-repair", detail, source="state of the GPU")


def _device(every: list[GpuReading]) -> Device:
    """Return what readings of one GPU show. Its counters contain what happened between the runs:
    they are read after each one, but before the first one alone, to call the tool less often."""
    faults = [gpu.faults for gpu in every if gpu.faults is not None]
    pcie = not any("host_link" in gpu.settings for gpu in every)
    best = [gpu.link for gpu in every if pcie and gpu.link and gpu.active]
    return Device(
        _throttled(every),
        temperature=max((g.temperature for g in every if g.temperature is not None), default=None),
        clock=max((g.clock for g in every if g.clock is not None), default=None),
        memory_clock=max(
            (g.memory_clock for g in every if g.memory_clock is not None), default=None
        ),
        # A link that reached its best state once is sound: it is slower when the GPU is not in use.
        link=PcieLink(max(link.generation for link in best), max(link.width for link in best))
        if best
        else None,
        max_link=every[-1].max_link if pcie else None,
        corrected=_growth([gpu.corrected for gpu in every]),
        uncorrected=_growth([gpu.uncorrected for gpu in every]),
        faults=sorted(frozenset().union(*faults)) if faults else None,
    )


def _growth(counts: list[int | None]) -> int | None:
    """Return by how much a counter grew; ``None`` if that is unknown. It starts again from 0 when
    the driver does."""
    known = [count for count in counts if count is not None]
    if len(known) < 2:
        return None
    return sum(max(after - before, 0) for before, after in itertools.pairwise(known))


def _total(counts: list[int | None]) -> int | None:
    """Return the sum of the counts that are known; ``None`` without any."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _throttled(every: list[GpuReading]) -> dict[str, str] | None:
    """Return why a GPU was throttled: what it reported during the runs, or just after them, and
    what its counters show; ``None`` if it has neither."""
    known = [
        (gpu.moment, gpu.reasons)
        for gpu in every
        if gpu.moment != "before" and gpu.reasons is not None
    ]
    reasons = {reason for _, active in known for reason in active}
    # It "may be also reported during P-state or clock change" (NVML), as at the end of a program.
    load = [active for moment, active in known if moment == "load"]
    if not load or not all("hw-slowdown" in active for active in load):
        reasons.discard("hw-slowdown")
    found = dict.fromkeys(sorted(reasons & readings.THROTTLED), "")
    counted = {reason for gpu in every for reason in gpu.slowed}
    growth = {
        reason: _growth([gpu.slowed.get(reason) for gpu in every]) for reason in sorted(counted)
    }
    if not known and all(grew is None for grew in growth.values()):
        return None
    for reason, grew in growth.items():
        if grew:
            # AMD's firmware counts steps whose length it does not print.
            seconds = reason in ("sw-thermal", "hw-thermal", "power-brake")
            found[reason] = f"{grew / 1e6:.3g} s" if seconds else ""
    return found
