"""The GPUs of this machine, in the form of a partition: ReFrame's ``devices``, and the extras
``gpu_affinity``, ``gpu_memory`` and ``pair_classes``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.core.process import capture
from plumbline.placement.readings import amd_smi_entries, read_json
from plumbline.placement.topology import cpus_of_list

#: nvidia-smi(1), "--query-gpu".
_QUERY = ["--query-gpu=pci.bus_id,compute_cap,memory.total,name", "--format=csv,noheader,nounits"]

_PCI = Path("/sys/bus/pci/devices")

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
    :ivar extras: ``gpu_affinity``, ``gpu_memory`` and ``pair_classes`` as far as they are known.
    :ivar links: class of pairs -> the link of its pairs, and the command that printed it.
    """

    devices: list[dict[str, Any]]
    extras: dict[str, Any]
    links: dict[str, str]


def detect(usable: Iterable[int]) -> Gpus:
    """Return this node's GPUs; all is empty if there are none.

    :arg usable: the usable CPUs.
    """
    cpus = set(usable)
    return _nvidia(cpus) or _rocm_smi(cpus) or _amd_smi(cpus) or Gpus([], {}, {})


def _nvidia(usable: set[int]) -> Gpus | None:
    printed = capture("nvidia-smi", *_QUERY) or ""
    rows = [line.split(", ", 3) for line in printed.splitlines() if line.count(", ") >= 3]
    if not rows:
        return None
    _, capability, memory, model = rows[0]
    extras: dict[str, Any] = {"gpu_affinity": [_affinity(bus, usable) for bus, *_ in rows]}
    # "[N/A]" for a GPU without its own memory. The unit is MiB.
    if memory.strip().isdecimal():
        extras["gpu_memory"] = int(memory) * 2**20
    pairs = []
    if len(rows) > 1:
        for one, other, link in _cells(capture("nvidia-smi", "topo", "-m") or ""):
            if link in _LINKS:
                pairs.append(_LinkedPair(_LINKS.index(link), link, [one, other]))
            elif re.fullmatch(r"NV\d+", link):
                pairs.append(_LinkedPair(-int(link[2:]), link, [one, other]))
    return _found(f"sm_{capability.replace('.', '')}", model, len(rows), extras, pairs,
                  "nvidia-smi topo -m")  # fmt: skip


def _rocm_smi(usable: set[int]) -> Gpus | None:
    words = ("--showbus", "--showproductname", "--showmeminfo", "vram", "--json")
    printed = read_json(capture("rocm-smi", *words) or "")
    cards = [
        # Releases of ROCm differ in the second word's case.
        {key.lower(): str(value) for key, value in fields.items()}
        for name, fields in sorted(printed.items(), key=_number)
        if "card" in name and isinstance(fields, dict)
    ] if isinstance(printed, dict) else []  # fmt: skip
    # The CPUs are listed too, as gfx000. Releases since ROCm 6 print the name for each card.
    listed = [
        *re.findall(r"^gfx(?!000)\w+$", capture("rocm_agent_enumerator") or "", re.M),
        *filter(None, (card.get("gfx version") for card in cards)),
    ]
    if not cards or not listed:
        return None
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
            _LinkedPair(int(weight), f"{kinds[pair]}, weight {weight}", list(pair))
            for pair, weight in weights.items()
            if weight.isdecimal() and pair in kinds
        ]
    memory = cards[0].get("vram total memory (b)", "")
    extras = _amd_extras(
        [card.get("pci bus", "") for card in cards],
        int(memory) if memory.isdecimal() else 0,
        usable,
    )
    return _found(listed[0], cards[0].get("card series", ""), len(cards), extras, pairs,
                  "rocm-smi --showtopo")  # fmt: skip


def _amd_smi(usable: set[int]) -> Gpus | None:
    """Return AMD's GPUs by ``amd-smi``, which replaces ``rocm-smi`` from ROCm 7 on."""
    cards = amd_smi_entries(
        capture("amd-smi", "static", "--asic", "--bus", "--vram", "--json") or ""
    )
    parts = [{name: card.get(name) or {} for name in ("asic", "bus", "vram")} for card in cards]
    if not all(isinstance(part, dict) for card in parts for part in card.values()):
        return None
    arch = next((str(card["asic"].get("target_graphics_version", "")) for card in parts), "")
    if not arch.startswith("gfx"):
        return None
    pairs = []
    if len(parts) > 1:
        pairs = [
            _LinkedPair(link["weight"], f"{link['link_type']}, weight {link['weight']}",
                        [row["gpu"], link["gpu"]])
            for row in amd_smi_entries(capture("amd-smi", "topology", "--json") or "")
            for link in row.get("links") or []
            if isinstance(link, dict) and row.get("gpu", 0) < link.get("gpu", 0)
            and isinstance(link.get("weight"), int) and "link_type" in link
        ]  # fmt: skip
    size = parts[0]["vram"].get("size")
    megabytes = size.get("value") if isinstance(size, dict) and size.get("unit") == "MB" else 0
    extras = _amd_extras(
        [str(card["bus"].get("bdf", "")) for card in parts],
        megabytes * 2**20 if isinstance(megabytes, int) else 0,
        usable,
    )
    model = str(parts[0]["asic"].get("market_name", ""))
    return _found(arch, model, len(parts), extras, pairs, "amd-smi topology")


def _amd_extras(buses: list[str], memory: int, usable: set[int]) -> dict[str, Any]:
    extras: dict[str, Any] = {"gpu_affinity": [_affinity(bus, usable) for bus in buses]}
    return extras | ({"gpu_memory": memory} if memory else {})


def _number(card: tuple[str, Any]) -> int:
    """Return the number of rocm-smi's ``card10``."""
    digits = re.sub(r"\D", "", card[0])
    return int(digits) if digits else -1


def _found(arch: str, model: str, count: int, extras: dict[str, Any], pairs: list[_LinkedPair],
           command: str) -> Gpus:  # fmt: skip
    """Return GPUs with their pairs in classes. A pair whose link was not printed would be measured
    in a wrong class, so there are no classes then; links beyond the fourth have none."""
    device: dict[str, Any] = {"type": "gpu", "arch": arch}
    device |= {"model": model} if model else {}
    links = {}
    if len(pairs) == count * (count - 1) // 2 > 0:
        kinds = list(dict.fromkeys(pair.link for pair in sorted(pairs)))
        named = dict(zip(_CLASSES, kinds, strict=False))
        links = {name: f"{link} ({command})" for name, link in named.items()}
        extras["pair_classes"] = {
            name: [pair.gpus for pair in pairs if pair.link == link] for name, link in named.items()
        }
    return Gpus([device | {"num_devices": count}], extras, links)


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
    # nvidia-smi prints eight digits of the PCI domain, the kernel four.
    folder = _PCI / bus.lower()[-12:]
    try:
        cpus = (folder / "local_cpulist").read_text().strip()
        return {"cpus": cpus} if cpus_of_list(cpus) & usable else {}
    except (OSError, ValueError):
        return {}
