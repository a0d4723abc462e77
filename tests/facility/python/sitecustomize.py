"""On PYTHONPATH of a session at the facility: its file systems have the room of real ones, which
the disk below them has not. In a job, what describes a node sees the machine's, not this one."""

import os
import sys
from pathlib import Path

_statvfs = os.statvfs


def _roomy(path):
    found = _statvfs(path)
    if "/file-systems/" not in os.fsdecode(path):
        return found
    blocks = 10**16 // found.f_frsize
    files = 10**12
    numbers = list(found)
    numbers[2:8] = [blocks, blocks, blocks, files, files, files]
    return os.statvfs_result(numbers)


os.statvfs = _roomy


def _hardware():
    """Replace what Linux says of this machine's processors by what it would say on a node."""
    import reframe.utility.cpuinfo as of_reframe

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from facility.machine import here, list_of

    sys.path.pop(0)
    machine = here()

    def mask(cores):
        return hex(sum(1 << cpu for cpu in machine.cpus_of_cores(cores)))

    cores = range(machine.num_cores)
    sockets = [[c for c in cores if machine.socket_of(c) == s] for s in range(machine.num_sockets)]
    domains = [[c for c in cores if machine.numa_of(c) == d]
               for d in range(len(machine.numa_numbers))]  # fmt: skip
    processor = {
        "arch": machine.facts["arch"], "num_cpus": machine.num_cpus,
        "num_cpus_per_core": machine.smt, "num_sockets": machine.num_sockets,
        "num_cpus_per_socket": machine.num_cpus // machine.num_sockets,
        "topology": {
            "numa_nodes": [mask(domain) for domain in domains],
            "sockets": [mask(socket) for socket in sockets],
            "cores": [mask([core]) for core in cores],
            "caches": [{"type": "L3", "size": 2**25, "num_cpus": machine.num_cpus // len(domains)}],
        },
    }  # fmt: skip
    near = {
        f"/sys/bus/pci/devices/{bus}/local_cpulist": list_of(
            machine.cpus_of_cores(machine.cores_of_gpu(gpu))
        )
        for gpu, bus in enumerate(machine.facts.get("pci", []))
    }
    sysconf, read_text = os.sysconf, Path.read_text
    pages = machine.facts["memory"] * 2**30 // sysconf("SC_PAGE_SIZE")
    os.sysconf = lambda name: pages if name == "SC_PHYS_PAGES" else sysconf(name)
    os.sched_getaffinity = lambda process: set(range(machine.num_cpus))
    of_reframe.cpuinfo = lambda: processor
    Path.read_text = lambda path, *words, **more: (
        near.get(str(path)) or read_text(path, *words, **more)
    )


if "FACILITY_JOB" in os.environ and "plumbline.operate.onboarding.node" in sys.orig_argv:
    _hardware()
