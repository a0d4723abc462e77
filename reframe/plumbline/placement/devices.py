"""The GPUs of the machine at hand, as a partition tells of them: ReFrame's ``devices``, and the
``gpu_affinity``, ``gpu_memory`` and ``pair_classes`` of its extras."""

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
    """Devices and extras of NVIDIA's GPUs; both empty where there are none.

    How near two GPUs are is not told apart: all pairs are of one class.

    :arg usable: the CPUs that may be used.
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
        "gpu_affinity": [_nearest(bus, set(usable)) for bus, *_ in rows],
        "pair_classes": {"gpu-a": [list(pair) for pair in itertools.combinations(numbers, 2)]},
    }
    # "[N/A]" of a GPU without memory of its own. MiB, by the manual.
    if memory.strip().isdecimal():
        extras["gpu_memory"] = int(memory) * 2**20
    return devices, extras


def _nearest(bus: str, usable: set[int]) -> dict[str, Any]:
    """The CPUs nearest to a device; none said where the kernel knows none that may be used."""
    # nvidia-smi prints eight digits of the domain, the kernel four.
    folder = _PCI / bus.lower()[-12:]
    try:
        cpus = (folder / "local_cpulist").read_text().strip()
        return {"cpus": cpus} if cpus_of_list(cpus) & usable else {}
    except (OSError, ValueError):
        return {}
