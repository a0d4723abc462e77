"""The topology of a node: its cores, memory domains, caches and GPUs, as placements see them.

Pure: from ReFrame's own ``processor`` and ``devices``, and the CPUs that may be used. Knows nothing
of ReFrame or of launchers.
"""

from __future__ import annotations

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
    """The usable cores of a node, socket by socket, the last-level cache, and the GPUs.

    :ivar cores: cores in order of socket, NUMA domain and first CPU number.
    :ivar last_level_cache: bytes of one last-level cache, all that one core can use; 0 where
        it is not known.
    :ivar num_last_level_caches: how many of them the node has.
    :ivar numa_os_numbers: what the operating system calls each NUMA domain, where that is not its
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
        """Reads ReFrame's ``processor`` dictionary.

        :arg usable: the CPU numbers that may be used; all where not given. A core counts as
            usable with those of its hardware threads that are.
        :raises PlacementError: if the dictionary has no topology or no CPU is usable.
        """
        topology = processor.get("topology") or {}
        if not topology.get("cores"):
            raise PlacementError(
                "no processor topology is known", code="placement.topology-unknown"
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
            raise PlacementError(
                "none of the node's CPUs may be used", code="placement.no-usable-cpu"
            )
        cores.sort(key=lambda core: (core.socket, core.numa, core.cpus))
        by_socket = _grouped(cores, lambda core: core.socket)
        cores = [
            replace(core, logical_socket=socket, logical_core=index)
            for socket, group in enumerate(by_socket)
            for index, core in enumerate(group)
        ]
        caches = topology.get("caches", [])
        level = max((c["type"] for c in caches), default="")
        last = [cache for cache in caches if cache["type"] == level]
        size = max((cache["size"] for cache in last), default=0)
        every_cpu = sum(len(cpus_of_mask(mask)) for mask in topology["cores"])
        count = every_cpu // last[0]["num_cpus"] if last and last[0].get("num_cpus") else 1
        return cls(tuple(cores), size, max(count, 1))

    @classmethod
    def of_partition(
        cls, processor: dict[str, Any], devices: Iterable[dict[str, Any]], extras: dict[str, Any]
    ) -> Topology:
        """Reads ReFrame's ``processor`` and ``devices`` of a partition, and of its ``extras``
        ``usable_cpus``, ``numa_os_numbers``, ``gpu_affinity`` and ``pair_classes``.

        :raises PlacementError: if they have no topology, or contradict it.
        """
        found = cls.from_processor(processor, extras.get("usable_cpus"))
        gpus = [device for device in devices if device.get("type") == "gpu"]
        count = sum(device.get("num_devices", 1) for device in gpus)
        affinity = extras.get("gpu_affinity") or [{} for _ in range(count)]
        if len(affinity) != count:
            raise PlacementError(
                f"gpu_affinity tells of {len(affinity)} GPUs, devices of {count}",
                code="placement.wrong-topology",
            )
        domains = len(processor["topology"].get("numa_nodes", [])) or 1
        os_numbers = tuple(extras.get("numa_os_numbers", ()))
        if len(os_numbers) not in (0, domains):
            raise PlacementError(
                f"numa_os_numbers has {len(os_numbers)} of {domains} NUMA domains",
                code="placement.wrong-topology",
            )
        architecture = gpus[0].get("arch", "") if gpus else ""
        return replace(
            found,
            numa_os_numbers=os_numbers,
            gpus=tuple(
                _gpu(number, near, found.cores, domains) for number, near in enumerate(affinity)
            ),
            pairs={
                name: [_two_of(count, name, pair) for pair in listed]
                for name, listed in (extras.get("pair_classes") or {}).items()
            },
            vendor=next((v for a, v in _VENDORS.items() if architecture.startswith(a)), ""),
        )

    def by_socket(self) -> list[list[Core]]:
        """The usable cores of each socket that has any."""
        return _grouped(self.cores, lambda core: core.socket)

    def by_numa(self) -> dict[int, list[Core]]:
        """The usable cores of each NUMA domain that has any, keyed by the domain's index."""
        groups = _grouped(self.cores, lambda core: core.numa)
        return {group[0].numa: group for group in groups}

    def os_number(self, domain: int) -> int:
        """What ``numactl`` calls a NUMA domain."""
        return self.numa_os_numbers[domain] if self.numa_os_numbers else domain


#: Start of ReFrame's name of a device's architecture -> whose runtime it needs.
_VENDORS = {"sm_": "cuda", "gfx": "rocm"}


def _gpu(number: int, near: dict[str, Any], cores: tuple[Core, ...], domains: int) -> Gpu:
    """A GPU by its entry of ``gpu_affinity``, which may be empty."""
    if "cpus" in near:
        try:
            cpus = cpus_of_list(str(near["cpus"]))
        except ValueError:
            raise PlacementError(
                f"gpu_affinity of GPU {number}: {near['cpus']!r} is no list of CPUs",
                code="placement.wrong-topology",
            ) from None
        cores = tuple(core for core in cores if cpus.issuperset(core.cpus))
    if not cores:
        raise PlacementError(f"no usable core is near GPU {number}", code="placement.too-few-cores")
    numa = near.get("numa", cores[0].numa)
    if numa not in range(domains):
        raise PlacementError(
            f"gpu_affinity of GPU {number}: there is no NUMA domain {numa}",
            code="placement.wrong-topology",
        )
    return Gpu(number, numa, cores)


def _two_of(count: int, name: str, pair: object) -> tuple[int, int]:
    """A pair of ``pair_classes``."""
    found = tuple(pair) if isinstance(pair, list | tuple) else ()
    if len(found) != 2 or len(set(found)) != 2 or any(gpu not in range(count) for gpu in found):
        raise PlacementError(
            f"pair_classes: {name}: {pair} is no two of the {count} GPUs",
            code="placement.wrong-topology",
        )
    return found


#: More than any Linux kernel is built for.
_MOST_CPUS = 2**16


def cpus_of_mask(mask: str) -> list[int]:
    """CPU numbers of a hexadecimal CPU mask.

    >>> cpus_of_mask("0x13")
    [0, 1, 4]
    """
    value = int(mask, 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def cpus_of_list(text: str) -> set[int]:
    """CPU numbers of the kernel's list format .

    >>> sorted(cpus_of_list("0-3,8"))
    [0, 1, 2, 3, 8]

    :raises ValueError: if the text is not in that format.
    """
    return {cpu for part in ranges_of_list(text) for cpu in part}


def ranges_of_list(text: str) -> list[range]:
    """The same in ranges, which take no longer than the text, whatever it says.

    >>> ranges_of_list("0-3,8")
    [range(0, 4), range(8, 9)]

    :raises ValueError: if the text is not in that format, or lists more CPUs than there can be.
    """
    found = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        start, end = int(first), int(last if dash else first)
        if not 0 <= start <= end < _MOST_CPUS:
            raise ValueError(f"{part!r} names no CPUs")
        found.append(range(start, end + 1))
    if sum(map(len, found)) > _MOST_CPUS:
        raise ValueError("CPUs are listed more than once")
    return found


def _index_of(cpu: int, groups: list[list[int]]) -> int:
    return next((i for i, group in enumerate(groups) if cpu in group), 0)


def _grouped(cores: Iterable[Core], key: Callable[[Core], int]) -> list[list[Core]]:
    groups: dict[int, list[Core]] = {}
    for core in cores:
        groups.setdefault(key(core), []).append(core)
    return list(groups.values())
