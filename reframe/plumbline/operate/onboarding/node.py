"""Describes the hardware of this node for a system file.

Run on a compute node, ``python -m plumbline.operate.onboarding.node`` prints it as JSON.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

from plumbline.core.errors import Fault, UnreadableFile, WrongFile
from plumbline.parse import outputs
from plumbline.placement import devices
from plumbline.placement.topology import PlacementError, Topology, count_cpus
from plumbline.site import configuration


def described() -> dict:
    """Return a partition's ``processor``, ``devices``, and those ``extras`` that can be detected.

    ``host`` and ``gpu_links`` (class of pairs of GPUs -> their link) are for the reader.

    :raises Fault: if this node's topology cannot be detected.
    """
    # All of ReFrame, which none needs who reads a description.
    from reframe.utility.cpuinfo import cpuinfo

    usable = sorted(os.sched_getaffinity(0))
    processor = cpuinfo()
    try:
        found, of_gpus, links = devices.detect(usable)
        Topology.of_partition(processor, found, of_gpus)
    except PlacementError as err:
        raise Fault(
            f"{platform.node()}: its topology cannot be detected: {err}",
            code="system.topology-undetected",
        ) from None
    extras = {**of_gpus, "memory": configuration.host_memory()}
    if (numbers := configuration.numa_numbers(processor)) != [*range(len(numbers))]:
        extras["numa_os_numbers"] = numbers
    if len(usable) < count_cpus(processor):
        extras["usable_cpus"] = usable
    return {
        "host": platform.node(),
        "processor": processor,
        "devices": found,
        "extras": extras,
        "gpu_links": links,
    }


def read(path: Path) -> dict:
    """Read what :func:`described` printed on another node.

    Only the last line is read, since a job's shell may print lines before it.

    :raises Fault: if it is not such a description.
    """
    try:
        found = json.loads(outputs.read(path).strip().rpartition("\n")[2])
        Topology.of_partition(found["processor"], found["devices"], found["extras"])
    except OSError as err:
        raise UnreadableFile(f"{path}: {err.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise WrongFile(
            f"{path}: not an output of `python -m plumbline.operate.onboarding.node`: {err!r}"
        ) from None
    except PlacementError as err:
        raise WrongFile(f"{path}: {err}") from None
    return found


if __name__ == "__main__":
    print(json.dumps(described()))
