"""nvidia-smi, rocm-smi and rocm_agent_enumerator on a node, by name; and what ``task.sh`` passes on
of nvidia-smi, amd-smi and rocm-smi.

Columns, keys and cells are those of the captures in ``tests/captures/smi``; the values are of a
healthy GPU under load, but for a fault of the kind ``throttled`` or ``narrow``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from .faults import Faults
from .machine import Machine
from .options import Refused

#: Units that nvidia-smi prints behind the name of a column, and its cells.
UNITS = {
    "memory.total": "MiB", "power.limit": "W", "clocks.current.sm": "MHz", "clocks.max.sm": "MHz",
    "clocks.current.memory": "MHz", "clocks.max.memory": "MHz",
    "clocks_event_reasons_counters.sw_thermal_slowdown": "us",
    "clocks_event_reasons_counters.hw_thermal_slowdown": "us",
    "clocks_event_reasons_counters.hw_power_brake_slowdown": "us",
}  # fmt: skip


def _ill(number: int, faults: Faults) -> Iterator[bool]:
    """Whether a GPU is too hot, and whether its link is narrow."""
    for fault in (faults.one("throttled"), faults.one("narrow")):
        yield fault is not None and fault.get("gpu", number) == number


def gpu(machine: Machine, number: int, faults: Faults, moment: str) -> dict[str, str]:
    """A GPU as nvidia-smi reports it: column -> cell without its unit."""
    hot, narrow = _ill(number, faults)
    works = moment != "before"
    facts = machine.facts
    return {
        "pci.bus_id": f"0000{facts['pci'][number].upper()}",
        "name": facts["gpu_name"],
        "compute_cap": str(facts.get("capability", "7.0")),
        "mig.mode.current": "Disabled",
        "memory.total": str(facts["gpu_memory"] * 1024),
        "vbios_version": "92.00.36.00.01",
        "pstate": "P0",
        "temperature.gpu": "91" if hot and works else "52",
        "temperature.memory": "N/A",
        "power.limit": "400.00",
        "clocks.current.sm": "705" if hot and works else "1410" if works else "210",
        "clocks.max.sm": "1410",
        "clocks.current.memory": "1593",
        "clocks.max.memory": "1593",
        "pcie.link.gen.current": "4",
        "pcie.link.gen.max": "4",
        "pcie.link.width.current": "8" if narrow else "16",
        "pcie.link.width.max": "16",
        "ecc.mode.current": "Enabled",
        "ecc.errors.corrected.volatile.total": "0",
        "ecc.errors.uncorrected.volatile.total": "0",
        # Power, as it is normal under load; and the hardware's reasons if it is too hot.
        "clocks_event_reasons.active": f"{0x4C if hot and works else 0x4:#018x}",
        "clocks_event_reasons_counters.sw_thermal_slowdown": "0",
        "clocks_event_reasons_counters.hw_thermal_slowdown": "2500000" if hot and works else "0",
        "clocks_event_reasons_counters.hw_power_brake_slowdown": "0",
    }


def rows(machine: Machine, names: list[str], faults: Faults, moment: str = "load") -> list[str]:
    """What nvidia-smi prints of columns in CSV: the header, and a row for each GPU."""
    if unknown := [name for name in names if name not in gpu(machine, 0, faults, moment)]:
        raise Refused(f'Field "{unknown[0]}" is not a valid field to query.', 2)
    head = [f"{name} [{UNITS[name]}]" if name in UNITS else name for name in names]
    cells = (
        [f"{of[name]} {UNITS[name]}" if name in UNITS else of[name] for name in names]
        for of in (gpu(machine, n, faults, moment) for n in range(machine.num_gpus))
    )
    return [", ".join(line) for line in [head, *cells]]


#: Reasons of ``amd-smi metric``, which it does not know of GPUs before MI300.
_THROTTLERS = [
    f"{what}_{which}"
    for which in ("accumulated", "violation_status")
    for what in ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")
]


def readings(machine: Machine, faults: Faults, moment: str) -> Iterator[tuple[str, str]]:
    """What the wrapper passes on of a node with MI250X: tool and line, in JSON without blanks, of
    ``amd-smi static`` (before the first run), ``amd-smi metric``, and rocm-smi."""
    numbers = range(machine.num_gpus)
    works = moment != "before"
    ill = [tuple(_ill(n, faults)) for n in numbers]
    buses = [bus.lower() for bus in machine.facts["pci"]]
    static = [
        {
            "gpu": n,
            "bus": {"bdf": buses[n], "max_pcie_width": 16, "max_pcie_speed": _with(16, "GT/s")},
            "limit": {"max_power": _with(560, "W"), "socket_power": _with(560, "W")},
        }
        for n in numbers
    ]
    metric = [
        {
            "gpu": n,
            "clock": {
                "gfx_0": {
                    "clk": _with(900 if hot and works else 1700 if works else 800, "MHz"),
                    "max_clk": _with(1700, "MHz"),
                },
                "mem_0": {"clk": _with(1600, "MHz"), "max_clk": _with(1600, "MHz")},
            },
            "temperature": {
                "edge": _with(45, "C"), "hotspot": _with(105 if hot and works else 60, "C"),
                "mem": _with(58, "C"),
            },
            "pcie": {"width": 8 if narrow else 16, "speed": _with(16, "GT/s")},
            "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0},
            "throttle": dict.fromkeys(_THROTTLERS, "N/A"),
        }
        for n, (hot, narrow) in zip(numbers, ill, strict=True)
    ]  # fmt: skip
    # The limit of the power, as it is normal under load; and the temperature of the hottest sensor.
    cards = {
        f"card{n}": {
            "PCI Bus": buses[n].upper(),
            "indep_throttle_status": str((1 | 1 << 36 if hot else 1) if works else 0),
        }
        for n, (hot, _) in zip(numbers, ill, strict=True)
    }
    printed = {"amd-smi": metric, "rocm-smi": cards}
    if moment == "before":
        printed = {"amd-smi-static": static, **printed}
    for tool, found in printed.items():
        text = json.dumps(found).replace(" ", "")
        yield from ((tool, text[at : at + 2000]) for at in range(0, len(text), 2000))


def _with(value: int, unit: str) -> dict[str, object]:
    return {"value": value, "unit": unit}


def _on_node(name: str, machine: Machine, vendor: str) -> None:
    if machine.vendor != vendor or "FACILITY_JOB" not in os.environ:
        raise Refused(f"bash: {name}: command not found", 127)


def nvidia_smi(words: list[str], machine: Machine) -> int:
    """nvidia-smi(1), on a node."""
    _on_node("nvidia-smi", machine, "cuda")
    gpus = range(machine.num_gpus)
    if words[:2] != ["topo", "-m"]:
        names = next(word for word in words if word.startswith("--query-gpu=")).partition("=")[2]
        formats = next(word for word in words if word.startswith("--format=")).partition("=")[2]
        lines = rows(machine, names.split(","), Faults())
        if "nounits" in formats.split(","):
            for unit in {*UNITS.values()}:
                lines[1:] = [f"{line}, ".replace(f" {unit},", ",")[:-2] for line in lines[1:]]
        print("\n".join(lines["noheader" in formats.split(",") :]))
        return 0
    links = machine.facts["gpu_links"]
    print("\t" + "\t".join(f"GPU{n}" for n in gpus) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID")
    for one in gpus:
        cells = ["X" if one == n else links[machine.pair_class(one, n)] for n in gpus]
        print(f"GPU{one}", *(f"{cell:^3}" for cell in cells), "", "", "N/A", sep="\t")
    print("\nLegend:\n\n  X    = Self")
    return 0


def rocm_agent_enumerator(_: list[str], machine: Machine) -> int:
    """rocm_agent_enumerator, on a node: the processors first."""
    _on_node("rocm_agent_enumerator", machine, "rocm")
    arch = [machine.facts["arch_of_gpus"]] * machine.num_gpus
    print("\n".join(["gfx000"] * machine.num_sockets + arch))
    return 0


def rocm_smi(words: list[str], machine: Machine) -> int:
    """rocm-smi, on a node: ``--showtopo``, or the cards as JSON."""
    _on_node("rocm-smi", machine, "rocm")
    gpus = range(machine.num_gpus)
    if "--showtopo" not in words:
        facts = machine.facts
        cards = {
            f"card{n}": {
                "PCI Bus": bus.upper(), "Card series": facts["gpu_name"],
                "VRAM Total Memory (B)": str(facts["gpu_memory"] * 2**30),
            }
            for n, bus in enumerate(facts["pci"])
        }  # fmt: skip
        print(json.dumps(cards))
        return 0
    # The nearer, the less: 15 for a hop over the fabric, more for several.
    weights = {"gpu-a": "15", "gpu-b": "30", "gpu-c": "45", "gpu-d": "60"}
    for title, cell in (
        ("Weight", lambda one, other: weights[machine.pair_class(one, other)]),
        ("Hops", lambda one, other: "1"),
        ("Link Type", lambda one, other: "XGMI"),
    ):
        print(f"\n{f' {title} between two GPUs ':=^90}")
        print(" " * 7 + "".join(f"GPU{n:<10}" for n in gpus))
        for one in gpus:
            cells = ("0" if one == n else cell(one, n) for n in gpus)
            print(f"GPU{one:<4}" + "".join(f"{text:<13}" for text in cells))
    print(f"\n{' End of ROCm SMI Log ':=^90}")
    return 0
