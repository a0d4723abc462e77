"""The GPUs of this machine, in the form of a partition: ReFrame's ``devices``, and the extras
``gpu_affinity``, ``gpu_memory`` and ``pair_classes``."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from plumbline.placement.topology import cpus_of_list

#: nvidia-smi(1), "--query-gpu".
_QUERY = ["--query-gpu=pci.bus_id,compute_cap,memory.total,name", "--format=csv,noheader,nounits"]

_PCI = Path("/sys/bus/pci/devices")


def nvidia(usable: Iterable[int]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return devices and extras of NVIDIA's GPUs; both are empty if there are none.

    All pairs are of one class: how near two GPUs are to each other is not detected.

    :arg usable: the usable CPUs.
    """
    command = shutil.which("nvidia-smi")
    if not command:
        return [], {}
    done = subprocess.run([command, *_QUERY], capture_output=True, text=True, check=False)
    rows = [line.split(", ", 3) for line in done.stdout.splitlines() if line.count(", ") >= 3]
    if done.returncode or not rows:
        return [], {}
    numbers = range(len(rows))
    _, capability, memory, model = rows[0]
    devices: list[dict[str, Any]] = [
        {
            "type": "gpu",
            "arch": f"sm_{capability.replace('.', '')}",
            "model": model,
            "num_devices": len(rows),
        }
    ]
    extras: dict[str, Any] = {
        "gpu_affinity": [_affinity(bus, set(usable)) for bus, *_ in rows],
        "pair_classes": {"gpu-a": [list(pair) for pair in itertools.combinations(numbers, 2)]},
    }
    # "[N/A]" for a GPU without its own memory. The unit is MiB.
    if memory.strip().isdecimal():
        extras["gpu_memory"] = int(memory) * 2**20
    return devices, extras


def _affinity(bus: str, usable: set[int]) -> dict[str, Any]:
    """Return the CPUs nearest to a device, or nothing if the kernel gives no usable ones."""
    # nvidia-smi prints eight digits of the PCI domain, the kernel four.
    folder = _PCI / bus.lower()[-12:]
    try:
        cpus = (folder / "local_cpulist").read_text().strip()
        return {"cpus": cpus} if cpus_of_list(cpus) & usable else {}
    except (OSError, ValueError):
        return {}
