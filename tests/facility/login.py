"""What a login node says of its machine: queues and nodes, by the commands of each batch system,
and modules.

The forms are those of the commands' sources and manuals: Slurm 23.02 (sinfo(1), scontrol(1)),
OpenPBS (src/cmds/qstat.c, pbsnodes.c), Torque (qstat(1B), pbsnodes(8)), IBM Spectrum LSF 10.1
(bqueues, lshosts), flux-core (flux-queue(1), flux-resource(1)), Lmod 8 and Environment Modules 5.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from .batch import abbreviated
from .machine import Machine, list_of
from .options import Refused, read


def memory(machine: Machine) -> int:
    """GiB of a node."""
    return machine.facts.get("memory", 256)


# -- Slurm ----------------------------------------------------------------------------------------


def sinfo(words: list[str], machine: Machine) -> int:
    options, _ = read(words, "--all --Node --noheader --format= --version", "sinfo")
    if "version" in options:
        print(f"slurm {machine.facts['slurm']['version']}")
        return 0
    model = f":{machine.facts['gres']}" if "gres" in machine.facts else ""
    cells = {
        "X": machine.num_sockets,
        "Y": machine.facts["cores"],
        "Z": machine.smt,
        "m": memory(machine) * 1000,
        "G": f"gpu{model}:{machine.num_gpus}(S:0-1)" if machine.num_gpus else "(null)",
        "f": ",".join(machine.facts.get("features", [])) or "(null)",
        "T": "idle",
        "E": "none",
    }
    for node in machine.nodes:
        for queue in machine.facts["queues"]:
            line = cells | {"N": node, "R": queue}
            print(re.sub("%(.)", lambda found, line=line: str(line[found[1]]), options["format"]))
    return 0


def scontrol(kind: str, machine: Machine) -> None:
    """``scontrol show`` of a kind of thing that is not a node."""
    if kind == "config":
        print("Configuration data as of 2026-11-23T10:00:00")
        print("AccountingStorageType   = accounting_storage/slurmdbd")
        print("MpiDefault              = none")
    for number, name in enumerate(machine.facts["queues"] if kind == "partition" else []):
        print(f"PartitionName={name} AllowGroups=ALL Default={'NO' if number else 'YES'} "
              f"Hidden=NO MaxTime=1-00:00:00 State=UP TotalNodes={len(machine.nodes)}")  # fmt: skip


def mpi_types() -> None:
    """``srun --mpi=list``."""
    print("MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
          "specific pmix plugin versions available: pmix_v4")  # fmt: skip


# -- PBS ------------------------------------------------------------------------------------------


def attributes(name: str, fields: dict[str, object], indent: str) -> None:
    """Print a job, queue or node with its attributes."""
    print(name)
    for key, value in fields.items():
        # Long lines go on after a line break and a tab.
        line = f"{indent}{key} = {value}"
        print("\n\t".join(line[start : start + 79] for start in range(0, len(line), 79)))
    print()


def qstat_queues(machine: Machine) -> None:
    """``qstat -Qf``."""
    facts = machine.facts
    least = facts.get("least_time", 0)
    for name in facts["queues"]:
        found: dict[str, object] = {
            "queue_type": "Execution",
            "total_jobs": 3,
            "state_count": "Transit:0 Queued:1 Held:0 Waiting:0 Running:2 Exiting:0 Begun:0 ",
            "resources_max.walltime": "24:00:00",
        }
        if least:
            found["resources_min.walltime"] = f"{least // 3600:02}:{least // 60 % 60:02}:00"
        found |= facts.get("of_queue", {}).get(name, {})
        attributes(f"Queue: {name}", found | {"enabled": "True", "started": "True"}, "    ")
    for name, targets in facts.get("routing", {}).items():
        found = {"queue_type": "Route", "route_destinations": ",".join(targets)}
        attributes(f"Queue: {name}", found | {"enabled": "True", "started": "True"}, "    ")


def pbsnodes(words: list[str], machine: Machine) -> int:
    read(words, "-a", "pbsnodes")
    torque = machine.facts["batch"] == "torque"
    size = memory(machine) * 2**20
    for node in machine.nodes:
        if torque:
            found: dict[str, object] = {
                "state": "free", "power_state": "Running", "np": machine.num_cpus,
                "ntype": "cluster",
                "status": f"rectime=1795428000,ncpus={machine.num_cpus},physmem={size}kb",
                "gpus": machine.num_gpus,
            }  # fmt: skip
        else:
            found = {
                "Mom": f"{node}.facility", "ntype": "PBS", "state": "free",
                "pcpus": machine.num_cpus, "resources_available.arch": "linux",
                "resources_available.host": node, "resources_available.mem": f"{size}kb",
                "resources_available.ncpus": machine.num_cpus,
                **({"resources_available.ngpus": machine.num_gpus} if machine.num_gpus else {}),
                "resources_available.vnode": node, "resources_assigned.mem": "0kb",
                "resources_assigned.ncpus": 0, "resv_enable": "True",
                "sharing": "default_shared", **machine.facts.get("of_node", {}),
            }  # fmt: skip
        attributes(node, found, "     ")
    return 0


# -- LSF ------------------------------------------------------------------------------------------


def bqueues(words: list[str], machine: Machine) -> int:
    options, names = read(words, "-w -l", "bqueues", glued=False)
    facts = machine.facts
    if "l" in options:
        if names[0] not in facts["queues"]:
            raise Refused(f"{names[0]}: No such queue", 255)
        print(f"\nQUEUE: {names[0]}\n  -- {names[0]} jobs.\n")
        print("PARAMETERS/STATISTICS\nPRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS\n"
              " 30   20  Open:Active       -    -    -    -     0\n\n"
              "MAXIMUM LIMITS:\n RUNLIMIT                \n 1440.0 min            \n\n"
              "SCHEDULING POLICIES:  EXCLUSIVE\n\nUSERS: all  \nHOSTS:  all  ")  # fmt: skip
        return 0
    print(
        "QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP  RSV PJOBS"
    )
    for name in facts["queues"]:
        print(
            f"{name:<15}  30  Open:Active       -    -    -    -     0     0     0     0     0    0"
        )
    return 0


def lshosts(words: list[str], machine: Machine) -> int:
    options, _ = read(words, "-o=", "lshosts", glued=False)
    size = f"{memory(machine)}.0G"
    cells = {
        "server": "Yes", "maxmem": size, "nprocs": machine.num_sockets,
        "ncores": machine.facts["cores"], "nthreads": machine.smt,
    }  # fmt: skip
    fields = str(options["o"]).split()
    print(" ".join(fields))
    for node in machine.nodes:
        print(" ".join(str({"HOST_NAME": node, **cells}[field]) for field in fields))
    return 0


def lsid(words: list[str], machine: Machine) -> int:
    print("IBM Spectrum LSF Standard 10.1.0.13, Apr 15 2022", file=sys.stderr)
    return 0


# -- Flux -----------------------------------------------------------------------------------------


def flux_queue(words: list[str], machine: Machine) -> None:
    options, _ = read(words[1:], "--no-header --format=", "flux-queue")
    for name in machine.facts["queues"]:
        cells = {"queue": name, "submission": "enabled", "limits.timelimit": "1d"}
        formatted(str(options["format"]), cells)


def flux_resource(words: list[str], machine: Machine) -> None:
    options, _ = read(words[1:], "--no-header --format= --states=", "flux-resource")
    count = len(machine.nodes)
    cells = {
        "queue": ",".join(machine.facts["queues"]), "nnodes": count,
        "ngpus": count * machine.num_gpus, "nodelist": abbreviated(machine.nodes),
    }  # fmt: skip
    formatted(str(options["format"]), cells)


def formatted(text: str, cells: dict) -> None:
    """Print cells in a format such as ``{queue}|{ngpus}``."""
    print(re.sub(r"\{([\w.]+)[^}]*\}", lambda found: str(cells[found[1]]), text))


# -- modules --------------------------------------------------------------------------------------


def lay_out(modules: dict, apps: Path) -> None:
    """Install the programs of a machine's modules, which print their versions."""
    for folder, programs in modules.get("programs", {}).items():
        for name, printed in programs.items():
            path = apps / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.parent.name == ".info":
                path.write_text(f"{printed}\n")
                continue
            path.write_text(f"#!/bin/sh\necho '{printed}'\n")
            path.chmod(0o755)


def modulecmd(words: list[str], machine: Machine) -> int:
    """Lmod's and Environment Modules' own commands, which the function ``module`` calls: what is
    for the shell on standard output, what is for the user on standard error."""
    modules = machine.facts["modules"]
    lmod = modules.get("release", "lmod") == "lmod"
    apps = Path(os.environ["FACILITY_STATE"]) / "apps"
    path = os.environ.get("MODULEPATH", "")
    # The trees on MODULEPATH, by the last part of each folder.
    trees = {Path(part).name for part in path.split(":") if part} or {"core"}
    found = {
        name: lines
        for tree, content in modules["trees"].items()
        if tree in trees
        for name, lines in content.items()
    }
    if words == ["--version"]:
        print("\nModules based on Lua: Version 8.7.37 2024-03-13", file=sys.stderr)
    elif "avail" in words:
        print(f"{apps}/modules:", file=sys.stderr)
        for name in found:
            family = name.rpartition("/")[0]
            print(*([f"{family}/"] if lmod and family else []), name, sep="\n", file=sys.stderr)
    elif words[1:2] == ["show"]:
        if words[2] not in found:
            print(f"Unable to locate a modulefile for '{words[2]}'", file=sys.stderr)
            return 1
        rule = "-" * 40
        print(f"{rule}\n   {apps}/modules/{words[2]}:\n{rule}", file=sys.stderr)
        for line in found[words[2]]:
            verb, *rest = line.replace("APPS", str(apps)).split()
            quoted = ",".join(f'"{word}"' for word in rest)
            print(f"{verb}({quoted})" if lmod else f"{verb}\t{' '.join(rest)}", file=sys.stderr)
    return 0


# -- a node ---------------------------------------------------------------------------------------


def lay_out_kernel(machine: Machine, sysfs: Path) -> None:
    """Write what Linux shows of a node in /sys, as far as it is read."""
    everything = range(machine.num_cores)
    domains = [[core for core in everything if machine.numa_of(core) == number]
               for number in range(len(machine.numa_numbers))]  # fmt: skip

    def mask(cores) -> str:
        text = f"{sum(1 << cpu for cpu in machine.cpus_of_cores(cores)):x}"
        return ",".join(re.findall("[0-9a-f]{1,8}", text.zfill(-(-len(text) // 8) * 8))) + "\n"

    files = {}
    for core in everything:
        socket = machine.cores_of_socket(machine.socket_of(core))
        for cpu in machine.cpus_of_core(core):
            topology = f"devices/system/cpu/cpu{cpu}/topology"
            files |= {
                f"{topology}/core_cpus": mask([core]),
                f"{topology}/package_cpus": mask(socket),
            }
    for number, cores in zip(machine.numa_numbers, domains, strict=True):
        files[f"devices/system/node/node{number}/cpumap"] = mask(cores)
        cache = f"devices/system/cpu/cpu{cores[0]}/cache/index3"
        facts = {"level": "3", "type": "Unified", "size": "32768K", "coherency_line_size": "64",
                 "number_of_sets": "32768", "shared_cpu_map": mask(cores)}  # fmt: skip
        files |= {f"{cache}/{name}": text for name, text in facts.items()}
    vendors = {"cuda": "0x10de\n", "rocm": "0x1002\n"}
    host_bridge = "bus/pci/devices/0000:00:00.0"
    files |= {f"{host_bridge}/vendor": "0x8086\n", f"{host_bridge}/class": "0x060000\n"}
    for gpu, bus in enumerate(machine.facts.get("pci", [])):
        device = f"bus/pci/devices/{bus}"
        cpus = machine.cpus_of_cores(machine.cores_of_gpu(gpu))
        files |= {
            f"{device}/vendor": vendors[machine.vendor],
            f"{device}/class": "0x030200\n",
            f"{device}/local_cpulist": list_of(cpus) + "\n",
        }
    for name, text in files.items():
        path = sysfs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
