"""The topology of a node: its cores, NUMA domains, caches and GPUs.

Read from ReFrame's ``processor`` and ``devices`` and a partition's ``extras``. Independent of
ReFrame itself and of launchers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from plumbline.core.errors import Coded


class PlacementError(Coded):
    """The placement is unknown, or this topology does not have it."""


@dataclass(frozen=True)
class Core:
    """One physical core: its usable hardware threads, its socket and its NUMA domain.

    :ivar logical_socket: number of its socket among those with usable cores.
    :ivar logical_core: number of the core among the usable ones of its socket.
    """

    cpus: tuple[int, ...]
    socket: int
    numa: int
    logical_socket: int = 0
    logical_core: int = 0


@dataclass(frozen=True)
class Gpu:
    """One GPU as software counts it: each die of an MI250X is one.

    :ivar cores: the usable cores nearest to it.
    """

    number: int
    numa: int
    cores: tuple[Core, ...]


@dataclass(frozen=True)
class Topology:
    """The usable cores of a node, its last-level cache, and its GPUs.

    :ivar cores: cores in order of socket, NUMA domain and first CPU number.
    :ivar last_level_cache: bytes of one last-level cache, all that one core can use; 0 if unknown.
    :ivar num_last_level_caches: how many of them the node has.
    :ivar numa_os_numbers: the operating system's number of each NUMA domain, if that is not its
        index: domains 0 and 1 of a POWER9 node are 0 and 8.
    :ivar pairs: class of GPU pairs (``gpu-a``) -> its pairs of GPU numbers.
    :ivar vendor: ``cuda`` or ``rocm``, by the GPUs' architecture; empty without GPUs.
    """

    cores: tuple[Core, ...]
    last_level_cache: int = 0
    num_last_level_caches: int = 1
    numa_os_numbers: tuple[int, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    pairs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    vendor: str = ""

    @classmethod
    def from_processor(
        cls, processor: dict[str, Any], usable: Iterable[int] | None = None
    ) -> Topology:
        """Return the topology that ReFrame's ``processor`` dictionary describes.

        :arg usable: numbers of the usable CPUs; all if not given. A core counts with those of its
            hardware threads that are usable.
        :raises PlacementError: if the dictionary has no topology or no CPU is usable.
        """
        topology = processor.get("topology") or {}
        if not topology.get("cores"):
            raise PlacementError(
                "the processor topology is not known", code="placement.topology-unknown"
            )
        sockets = [cpus_of_mask(mask) for mask in topology.get("sockets", [])]
        domains = [cpus_of_mask(mask) for mask in topology.get("numa_nodes", [])]
        allowed = None if usable is None else set(usable)
        cores = []
        for mask in topology["cores"]:
            cpus = [c for c in cpus_of_mask(mask) if allowed is None or c in allowed]
            if cpus:
                cores.append(
                    Core(tuple(cpus), _index_of(cpus[0], sockets), _index_of(cpus[0], domains))
                )
        if not cores:
            raise PlacementError("no CPU of the node is usable", code="placement.no-usable-cpu")
        cores.sort(key=lambda core: (core.socket, core.numa, core.cpus))
        cores = [
            replace(core, logical_socket=socket, logical_core=index)
            for socket, group in enumerate(_grouped(cores, lambda core: core.socket))
            for index, core in enumerate(group)
        ]
        caches = topology.get("caches", [])
        level = max((c["type"] for c in caches), default="")
        last = [cache for cache in caches if cache["type"] == level]
        size = max((cache["size"] for cache in last), default=0)
        return cls(tuple(cores), size, _count_caches(last, count_cpus(processor)))

    @classmethod
    def of_partition(
        cls, processor: dict[str, Any], devices: Iterable[dict[str, Any]], extras: dict[str, Any]
    ) -> Topology:
        """Return the topology of a partition, from ReFrame's ``processor`` and ``devices``, and
        ``usable_cpus``, ``numa_os_numbers``, ``gpu_affinity`` and ``pair_classes`` of ``extras``.

        :raises PlacementError: if they have no topology, or contradict it.
        """
        found = cls.from_processor(processor, extras.get("usable_cpus"))
        gpus = [device for device in devices if device.get("type") == "gpu"]
        count = sum(device.get("num_devices", 1) for device in gpus)
        affinity = extras.get("gpu_affinity") or [{}] * count
        if len(affinity) != count:
            raise _wrong(f"gpu_affinity has {len(affinity)} entries; devices has {count} GPUs")
        domains = len(processor["topology"].get("numa_nodes", [])) or 1
        os_numbers = tuple(extras.get("numa_os_numbers", ()))
        if len(os_numbers) not in (0, domains):
            raise _wrong(
                f"numa_os_numbers has {len(os_numbers)} entries; the node has {domains} NUMA "
                f"domains"
            )
        architecture = gpus[0].get("arch", "") if gpus else ""
        return replace(
            found,
            numa_os_numbers=os_numbers,
            gpus=tuple(
                _gpu(number, entry, found.cores, domains) for number, entry in enumerate(affinity)
            ),
            pairs={
                name: [_gpu_pair(count, name, pair) for pair in pairs]
                for name, pairs in (extras.get("pair_classes") or {}).items()
            },
            vendor=next((v for a, v in _VENDORS.items() if architecture.startswith(a)), ""),
        )

    def by_socket(self) -> list[list[Core]]:
        """Return the usable cores of each socket that has any."""
        return _grouped(self.cores, lambda core: core.socket)

    def by_numa(self) -> dict[int, list[Core]]:
        """Return the usable cores of each NUMA domain that has any, keyed by its index."""
        groups = _grouped(self.cores, lambda core: core.numa)
        return {group[0].numa: group for group in groups}

    def os_number(self, domain: int) -> int:
        """Return the operating system's number of a NUMA domain, which ``numactl`` takes."""
        return self.numa_os_numbers[domain] if self.numa_os_numbers else domain


#: Start of ReFrame's name of a device's architecture -> the runtime of its vendor.
_VENDORS = {"sm_": "cuda", "gfx": "rocm"}


#: The architecture of Intel's GPUs in a system file: all of them, as none is measured.
INTEL = "intel"

#: The mode of NVIDIA's GPUs that are divided into instances, as a process sees at most one.
MIG = "MIG"


def gpu_mode(modes: Iterable[str]) -> str:
    """Return how the GPUs of a node are divided, from the mode of each; empty if they are whole.

    >>> gpu_mode(["CPX/NPS4", "CPX/NPS4"]), gpu_mode(["SPX/NPS1", ""]), gpu_mode(["", "MIG"])
    ('CPX/NPS4', '', 'MIG')

    AMD's are whole as a single compute partition (SPX). The kernel prints UNKNOWN where it cannot
    tell.
    """
    found = sorted(mode for mode in {*modes} if mode and not mode.startswith("UNKNOWN"))
    return "" if all(mode.startswith("SPX") for mode in found) else "+".join(found)


def is_instance(name: str) -> bool:
    """Return whether a name is of an instance into which MIG divides a GPU: ``a100_1g.5gb``."""
    return re.search(r"\dg\.\d+gb", name) is not None


def _wrong(message: str) -> PlacementError:
    return PlacementError(message, code="placement.wrong-topology")


def _gpu(number: int, affinity: dict[str, Any], cores: tuple[Core, ...], domains: int) -> Gpu:
    """Return a GPU from its entry of ``gpu_affinity``, which may be empty."""
    if "cpus" in affinity:
        try:
            cpus = cpus_of_list(str(affinity["cpus"]))
        except ValueError:
            raise _wrong(
                f"gpu_affinity of GPU {number}: {affinity['cpus']!r} is not a list of CPUs"
            ) from None
        cores = tuple(core for core in cores if cpus.issuperset(core.cpus))
    if not cores:
        raise PlacementError(
            f"no usable core has affinity to GPU {number}", code="placement.too-few-cores"
        )
    numa = affinity.get("numa", cores[0].numa)
    if numa not in range(domains):
        raise _wrong(f"gpu_affinity of GPU {number}: the node has no NUMA domain {numa}")
    return Gpu(number, numa, cores)


def _gpu_pair(count: int, name: str, pair: object) -> tuple[int, int]:
    """Return an entry of ``pair_classes`` as two GPU numbers."""
    numbers = tuple(pair) if isinstance(pair, list | tuple) else ()
    if len(numbers) != 2 or len({*numbers} & {*range(count)}) != 2:
        raise _wrong(f"pair_classes: {name}: {pair} is not a pair of two of the {count} GPUs")
    return numbers


def _count_caches(caches: list[dict[str, Any]], num_cpus: int) -> int:
    """Return how many caches a node has, by the entries of one level; at least 1.

    A cache some of whose CPUs are offline is of fewer CPUs, so ReFrame has an entry of its own for
    it.

    :arg num_cpus: of the node; a system file may have the number of CPUs of each cache alone.
    """
    masks = {mask for cache in caches for mask in cache.get("cpusets", [])}
    in_each = caches[0].get("num_cpus") if caches else 0
    return len(masks) or max(num_cpus // in_each if in_each else 1, 1)


#: No Linux kernel is built for more.
_MAX_CPUS = 2**16


def count_cpus(processor: dict[str, Any]) -> int:
    """Return the number of CPUs of ReFrame's ``processor`` that are online. Its ``num_cpus`` counts
    the others too, which are in no mask."""
    return sum(len(cpus_of_mask(mask)) for mask in processor["topology"]["cores"])


def cpus_of_mask(mask: str) -> list[int]:
    """Return the CPU numbers of a hexadecimal CPU mask.

    >>> cpus_of_mask("0x13")
    [0, 1, 4]

    :raises ValueError: if it is none.
    """
    try:
        value = int(mask, 16)
    except ValueError:
        raise ValueError(f"{mask!r}: masks are hexadecimal, such as 0x33") from None
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def cpus_of_list(text: str) -> frozenset[int]:
    """Return the CPU numbers of a text in the kernel's list format.

    >>> sorted(cpus_of_list("0-3,8"))
    [0, 1, 2, 3, 8]

    :raises ValueError: if the text is not in that format.
    """
    return frozenset(cpu for part in ranges_of_list(text) for cpu in part)


# The thousands of tasks of a job have few different lists.
@functools.lru_cache(maxsize=1024)
def ranges_of_list(text: str) -> tuple[range, ...]:
    """Return the ranges of a text in the kernel's list format, without expanding them.

    >>> ranges_of_list("0-3,8")
    (range(0, 4), range(8, 9))

    :raises ValueError: if the text is not in that format, or lists more CPUs than a kernel has.
    """
    ranges = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        start, end = int(first), int(last if dash else first)
        if not 0 <= start <= end < _MAX_CPUS:
            raise ValueError(f"{part!r} is not a range of CPUs")
        ranges.append(range(start, end + 1))
    if sum(map(len, ranges)) > _MAX_CPUS:
        raise ValueError("CPUs are listed more than once")
    return tuple(ranges)


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers in the kernel's list format.

    >>> cpu_list((8, 0, 1, 2, 3))
    '0-3,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _index_of(cpu: int, groups: list[list[int]]) -> int:
    return next((i for i, group in enumerate(groups) if cpu in group), 0)


def _grouped(cores: Iterable[Core], key: Callable[[Core], int]) -> list[list[Core]]:
    groups: dict[int, list[Core]] = {}
    for core in cores:
        groups.setdefault(key(core), []).append(core)
    return list(groups.values())
