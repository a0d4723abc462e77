"""What the node at hand is like inside, as a system file tells it: ``python -m
plumbline.operate.onboarding.node`` prints it as JSON, to be run on a compute node.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

from reframe.utility.cpuinfo import cpuinfo

from plumbline.core.errors import Fault
from plumbline.core.process import ask
from plumbline.parse import outputs
from plumbline.placement import devices
from plumbline.placement.topology import PlacementError, Topology


def described() -> dict:
    """Keys of a partition: ``processor``, ``devices``, and of its extras what can be told here.

    ``host`` and ``gpu_links`` (the table of ``nvidia-smi topo -m``) are for whoever reads it.

    :raises Fault: if this machine's topology cannot be told.
    """
    usable = sorted(os.sched_getaffinity(0))
    processor = cpuinfo()
    try:
        found, of_gpus = devices.nvidia(usable)
        Topology.of_partition(processor, found, of_gpus)
    except PlacementError as err:
        raise Fault(
            f"{platform.node()}: its topology cannot be told: {err}",
            code="system.topology-undetected",
        ) from None
    extras = {**of_gpus, "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    if len(usable) < processor["num_cpus"]:
        extras["usable_cpus"] = usable
    links = ask("nvidia-smi", "topo", "-m") if found else None
    return {
        "host": platform.node(),
        "processor": processor,
        "devices": found,
        "extras": extras,
        "gpu_links": links or "",
    }


def read(path: Path) -> dict:
    """What :func:`described` printed on another node; what a job's shell printed before is left
    out.

    :raises Fault: if it is not that.
    """
    try:
        found = json.loads(outputs.read(path).strip().rpartition("\n")[2])
        Topology.of_partition(found["processor"], found["devices"], found["extras"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise Fault(
            f"{path}: not what `python -m plumbline.operate.onboarding.node` prints on a "
            f"node: {err!r}",
            code="input.wrong-file",
        ) from None
    except PlacementError as err:
        raise Fault(f"{path}: {err}", code="input.wrong-file") from None
    return found


if __name__ == "__main__":
    print(json.dumps(described()))
