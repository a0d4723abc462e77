"""The GPUs of this machine, in the form of a partition: ReFrame's ``devices``, and the extras
``gpu_affinity``, ``gpu_memory``, ``gpu_mode`` and ``pair_classes``."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.core.process import capture
from plumbline.placement.readings import amd_smi_entries, part, read_json
from plumbline.placement.topology import INTEL, MIG, cpus_of_list, gpu_mode

#: What nvidia-smi(1) is asked for by "--query-gpu". A name may have commas, so it is the last.
_FIELDS = ("pci.bus_id", "compute_cap", "mig.mode.current", "memory.total", "name")

#: Fields that older drivers do not have: they refuse a query with one of them. Driver 470 has no
#: compute_cap, and those before 450 know nothing of MIG.
_NEWER = ((), ("compute_cap",), ("compute_cap", "mig.mode.current"))

_PCI = Path("/sys/bus/pci/devices")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")

#: PCI vendor -> the programs that list its GPUs; Intel's are not supported. Start of the PCI class
#: of displays, and of accelerators such as MI300 (``linux/pci_ids.h``, PCI Code and ID Assignment).
_TOOLS = {"0x10de": ("nvidia-smi",), "0x1002": ("rocm-smi", "amd-smi"), "0x8086": ()}
_GPU_CLASSES = ("0x03", "0x12")

#: Links between two GPUs, the nearest first: legend of ``nvidia-smi topo -m``. Before them come
#: NVLinks, ``NV#``, the more the nearer.
_LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")

#: Placements of pairs of GPUs, the nearest first.
_CLASSES = ("gpu-a", "gpu-b", "gpu-c", "gpu-d")


class _LinkedPair(NamedTuple):
    """Two GPUs and their link; pairs sort by nearness."""

    rank: int
    link: str
    gpus: list[int]


class Gpus(NamedTuple):
    """The GPUs of a node.

    :ivar devices: ReFrame's ``devices``.
    :ivar extras: ``gpu_affinity``, ``gpu_memory``, ``gpu_mode`` and ``pair_classes`` as far as they
        are known.
    :ivar links: class of pairs -> the link of its pairs, and the command that printed it.
    """

    devices: list[dict[str, Any]]
    extras: dict[str, Any]
    links: dict[str, str]


def detect(usable: Iterable[int]) -> Gpus:
    """Return this node's GPUs; all is empty if there are none.

    :arg usable: the usable CPUs.
    """
    cpus, found = set(usable), None
    for tool in (_nvidia, _rocm_smi, _amd_smi):
        gpus = tool(cpus)
        if gpus and all("arch" in device for device in gpus.devices):
            return gpus
        found = found or gpus
    return found or _on_bus(cpus)


def _on_bus(usable: set[int]) -> Gpus:
    """Return the GPUs that the kernel has and their tool does not list: its driver failed, or they
    are not given to this process. Cases that need them have a reason not to run then; without
    these devices, the node would be one that has no GPUs, and have no such cases."""
    for vendor, tools in _TOOLS.items():
        if tools and not any(map(shutil.which, tools)):
            continue
        # Intel's with VGA are in the processor; those for data centers are other displays.
        arch, classes = ("", _GPU_CLASSES) if tools else (INTEL, ("0x0380",))
        buses = sorted(
            file.parent.name
            for file in _PCI.glob("*/vendor")
            if _read(file) == vendor and _read(file.with_name("class")).startswith(classes)
        )
        if buses:
            return _found([(arch, "")] * len(buses), _extras(buses, [0], usable), [], "")
    return Gpus([], {}, {})


def _nvidia(usable: set[int]) -> Gpus | None:
    for unknown in _NEWER:
        fields = [field for field in _FIELDS if field not in unknown]
        words = (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        if (printed := capture("nvidia-smi", *words)) is not None:
            break
    lines = [line.split(", ", len(fields) - 1) for line in (printed or "").splitlines()]
    rows = [dict(zip(fields, cells, strict=True)) for cells in lines if len(cells) == len(fields)]
    if not rows:
        return None
    extras = _extras(
        [row["pci.bus_id"] for row in rows],
        # "[N/A]" for a GPU without its own memory. The unit is MiB.
        [int(m) * 2**20 if (m := row["memory.total"].strip()).isdecimal() else 0 for row in rows],
        usable,
    )
    # One row for each GPU, with all of its memory, however MIG divides it.
    if any(row.get("mig.mode.current") == "Enabled" for row in rows):
        extras["gpu_mode"] = MIG
    kinds = [
        (f"sm_{match[1]}{match[2]}" if match else "", row["name"])
        for row in rows
        for match in [re.fullmatch(r"(\d+)\.(\d+)", row.get("compute_cap", ""))]
    ]
    pairs = []
    if len(rows) > 1:
        for one, other, link in _cells(capture("nvidia-smi", "topo", "-m") or ""):
            if link in _LINKS:
                pairs.append(_LinkedPair(_LINKS.index(link), link, [one, other]))
            elif re.fullmatch(r"NV\d+", link):
                pairs.append(_LinkedPair(-int(link[2:]), link, [one, other]))
    return _found(kinds, extras, pairs, "nvidia-smi topo -m")


def _rocm_smi(usable: set[int]) -> Gpus | None:
    words = ("--showbus", "--showproductname", "--showmeminfo", "vram", "--json")
    printed = read_json(capture("rocm-smi", *words) or "")
    cards = [
        # Releases of ROCm differ in the second word's case.
        {key.lower(): str(value) for key, value in fields.items()}
        for name, fields in sorted(printed.items(), key=_number)
        if "card" in name and isinstance(fields, dict)
    ] if isinstance(printed, dict) else []  # fmt: skip
    if not cards:
        return None
    order = _counted([card.get("pci bus", "") for card in cards])
    cards = [cards[number] for number in order]
    pairs = []
    if len(cards) > 1:
        tables = dict(re.findall(
            r"(\w+) between two GPUs =*\n(.*?)(?=\n=|\Z)",
            capture("rocm-smi", "--showtopo") or "", re.S,
        ))  # fmt: skip
        weights, kinds = (
            {(one, other): cell for one, other, cell in _cells(tables.get(name, ""))}
            for name in ("Weight", "Type")
        )
        pairs = [
            _LinkedPair(int(weight), f"{kinds[pair]}, weight {weight}",
                        sorted(map(order.index, pair)))
            for pair, weight in weights.items()
            if weight.isdecimal() and pair in kinds and {*pair} <= {*order}
        ]  # fmt: skip
    sizes = [card.get("vram total memory (b)", "") for card in cards]
    extras = _extras(
        [card.get("pci bus", "") for card in cards],
        [int(size) if size.isdecimal() else 0 for size in sizes],
        usable,
    )
    # Releases since ROCm 6 print the architecture of each card.
    archs = _architectures([card.get("gfx version", "") for card in cards])
    models = [card.get("card series", "") for card in cards]
    return _found([*zip(archs, models, strict=True)], extras, pairs, "rocm-smi --showtopo")


def _amd_smi(usable: set[int]) -> Gpus | None:
    """Return AMD's GPUs by ``amd-smi``, which replaces ``rocm-smi`` from ROCm 7 on."""
    printed = capture("amd-smi", "static", "--asic", "--bus", "--vram", "--json")
    cards = [card for card in amd_smi_entries(printed or "") if isinstance(card.get("gpu"), int)]
    if not cards:
        return None
    order = _counted([str(part(card, "bus").get("bdf", "")) for card in cards])
    cards = [cards[number] for number in order]
    number_of = {card["gpu"]: number for number, card in enumerate(cards)}
    pairs = []
    if len(cards) > 1:
        pairs = [
            _LinkedPair(link["weight"], f"{link['link_type']}, weight {link['weight']}",
                        sorted([number_of[row["gpu"]], number_of[link["gpu"]]]))
            for row in amd_smi_entries(capture("amd-smi", "topology", "--json") or "")
            for link in row.get("links") or []
            if isinstance(link, dict) and {row.get("gpu"), link.get("gpu")} <= {*number_of}
            and row["gpu"] < link["gpu"]
            and isinstance(link.get("weight"), int) and "link_type" in link
        ]  # fmt: skip
    # What a virtual machine does not know is "N/A".
    asics, buses, vrams = ([part(card, name) for card in cards] for name in ("asic", "bus", "vram"))
    sizes = [part(vram, "size") for vram in vrams]
    extras = _extras(
        [str(bus.get("bdf", "")) for bus in buses],
        [
            size["value"] * 2**20
            if size.get("unit") == "MB" and isinstance(size.get("value"), int) else 0
            for size in sizes
        ],
        usable,
    )  # fmt: skip
    archs = _architectures([str(asic.get("target_graphics_version")) for asic in asics])
    models = [str(asic.get("market_name", "")).replace("N/A", "") for asic in asics]
    return _found([*zip(archs, models, strict=True)], extras, pairs, "amd-smi topology")


def _counted(buses: list[str]) -> list[int]:
    """Return the places of AMD's GPUs in a tool's list, in the order in which programs count them.

    The tools sort them by bus id (rocm_smi_main.cc), and the runtime has the kernel's order, which
    may be the reverse (llama-toolchest issue 121).
    """
    nodes = sorted(_KFD.glob("[0-9]*/properties"), key=lambda file: int(file.parent.name))
    known = [_kfd_device(_read(file)) for file in nodes]
    # Without the function: of a partition, it may be its number.
    devices = [bus.lower()[-12:-2] for bus in buses]
    places = [*range(len(buses))]
    if not {*devices} <= {*known}:
        return places
    return sorted(places, key=lambda place: known.index(devices[place]))


def _kfd_device(properties: str) -> str:
    """Return PCI domain, bus and device of a node of the kernel's GPU driver; empty of a
    processor, or if a device cgroup hides it."""
    facts = {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", properties, re.M)}
    if not facts.get("simd_count"):
        return ""
    at = facts.get("location_id", 0)
    return f"{facts.get('domain', 0):04x}:{at >> 8 & 0xFF:02x}:{at >> 3 & 0x1F:02x}"


def _architectures(printed: list[str]) -> list[str]:
    """Return the architecture of each of AMD's GPUs, as a tool printed it or the runtime lists it;
    empty if neither does."""
    known = [name if name.startswith("gfx") else "" for name in printed]
    if all(known):
        return known
    # The CPUs are listed too, as gfx000.
    listed = re.findall(r"^gfx(?!000)\w+$", capture("rocm_agent_enumerator") or "", re.M)
    if len({*listed}) == 1:
        listed = listed[:1] * len(known)
    if len(listed) != len(known):
        return known
    return [name or other for name, other in zip(known, listed, strict=True)]


def _extras(buses: list[str], sizes: list[int], usable: set[int]) -> dict[str, Any]:
    """Return the extras of GPUs.

    :arg sizes: of each one's memory; 0 if it is not known.
    """
    extras: dict[str, Any] = {"gpu_affinity": [_affinity(bus, usable) for bus in buses]}
    # AMD's tools print the memory of the whole GPU for each of its partitions (ROCm issue 4750).
    if mode := gpu_mode(map(_partitions, map(_device, buses))):
        return extras | {"gpu_mode": mode}
    return extras | ({"gpu_memory": min(sizes)} if all(sizes) else {})


def _partitions(device: Path) -> str:
    """Return the compute and memory partitions of a GPU of AMD's, ``CPX/NPS4``; empty if it has
    none."""
    kinds = ("compute", "memory")
    return "/".join(filter(None, (_read(device / f"current_{kind}_partition") for kind in kinds)))


def _number(card: tuple[str, Any]) -> int:
    """Return the number of rocm-smi's ``card10``."""
    digits = re.sub(r"\D", "", card[0])
    return int(digits) if digits else -1


def _found(
    known: list[tuple[str, str]], extras: dict[str, Any], pairs: list[_LinkedPair], command: str
) -> Gpus:
    """Return GPUs with their pairs in classes. A pair whose link was not printed would be measured
    in a wrong class, so there are no classes then; links beyond the fourth have none.

    :arg known: architecture and model of each GPU; empty if they are not known.
    """
    found: list[dict[str, Any]] = []
    for (arch, model), number in Counter(known).items():
        named = {"arch": arch, "model": model}
        stated = {name: text for name, text in named.items() if text}
        found.append({"type": "gpu", **stated, "num_devices": number})
    count = len(known)
    links = {}
    if len(pairs) == count * (count - 1) // 2 > 0:
        kinds = list(dict.fromkeys(pair.link for pair in sorted(pairs)))
        named = dict(zip(_CLASSES, kinds, strict=False))
        links = {name: f"{link} ({command})" for name, link in named.items()}
        extras["pair_classes"] = {
            name: [pair.gpus for pair in pairs if pair.link == link] for name, link in named.items()
        }
    return Gpus(found, extras, links)


def _cells(text: str) -> list[tuple[int, int, str]]:
    """Return the cells above the diagonal of the first table of GPUs with GPUs in a text."""
    found = []
    columns: list[int] = []
    for line in text.splitlines():
        # nvidia-smi underlines its header on a terminal.
        first, *words = re.sub(r"\x1b\[\d*m", "", line).split() or [""]
        if not columns:
            columns = [int(word[3:]) for word in (first, *words) if re.fullmatch(r"GPU\d+", word)]
        elif re.fullmatch(r"GPU\d+", first):
            row = int(first[3:])
            found += [(row, column, word) for column, word in zip(columns, words, strict=False)
                      if row < column]  # fmt: skip
        elif found:
            break
    return found


def _affinity(bus: str, usable: set[int]) -> dict[str, Any]:
    """Return the CPUs nearest to a device, or nothing if the kernel gives no usable ones."""
    cpus = _read(_device(bus) / "local_cpulist")
    try:
        return {"cpus": cpus} if cpus_of_list(cpus) & usable else {}
    except ValueError:
        return {}


def _device(bus: str) -> Path:
    """Return the kernel's folder of a device."""
    # nvidia-smi prints eight digits of the PCI domain, the kernel four.
    folder = _PCI / bus.lower()[-12:]
    # Some releases of ROCm 6 print the number of a partition as the function of its GPU, which is 0
    # (rocm_smi.py, getBus).
    return folder if folder.exists() or not bus else folder.with_name(f"{folder.name[:-1]}0")


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
