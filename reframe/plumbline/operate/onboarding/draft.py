"""Drafts a system file from what can be detected on a login node.

What cannot be detected is not guessed. A comment in the file marks it as to be confirmed, and
``plumbline lint`` explains how (:mod:`plumbline.operate.onboarding.steps`).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from plumbline.core import paths
from plumbline.core.errors import Fault, UnknownName
from plumbline.core.process import one_line
from plumbline.core.text import pluralize, suggest
from plumbline.operate.onboarding import manifest, software, toolchains
from plumbline.operate.onboarding.commented import commented
from plumbline.operate.onboarding.modules import Module, Modules, available
from plumbline.operate.onboarding.queues import Batch, Hardware, Queue, flux, identifier, lsf, pbs
from plumbline.operate.onboarding.queues import slurm as of_slurm
from plumbline.placement import placement
from plumbline.placement.topology import MIG, Topology, count_cpus, is_instance
from plumbline.site import slurm

CONFIRM = "to be confirmed on the machine"

#: Batch systems, in the order in which they are asked: Slurm has stand-ins for PBS' commands, and
#: Flux may run inside of another one's job.
BATCH = (of_slurm, lsf, pbs, flux)

#: ``max_jobs`` of a drafted partition.
MAX_JOBS = 8

#: Returns a node's description, as :func:`plumbline.operate.onboarding.node.described` does, from a
#: job in a drafted partition.
Probe: TypeAlias = Callable[[dict], dict]


@dataclass
class Draft:
    """A drafted system file.

    :ivar content: in ReFrame's schema.
    :ivar comments: path in ``content`` -> comments before that item.
    :ivar messages: what was found, and what was skipped.
    :ivar files: further files: path -> text.
    :ivar unprobed: partition -> why no job described a node of it, although one was to.
    """

    name: str
    content: dict
    comments: dict[tuple, list[str]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    files: dict[Path, str] = field(default_factory=dict)
    unprobed: dict[str, Exception] = field(default_factory=dict)

    def comment(self, *path: object, text: str) -> None:
        """Add a comment before the item at a path."""
        self.comments.setdefault(path, []).append(one_line(text))

    @property
    def system(self) -> dict:
        return self.content["systems"][0]

    def text(self) -> str:
        """Return the file's text."""
        return commented(self.content, self.comments)


def draft(
    name: str,
    wanted: Iterable[str] = (),
    described: dict[str, dict] | None = None,
    probe: Probe | None = None,
) -> Draft:
    """Draft the system file of the machine that this host is a login node of.

    :arg wanted: the batch system's queues to draft; by default all.
    :arg described: queue, or drafted partition -> description of a node of it, see
        :func:`plumbline.operate.onboarding.node.described`.
    :arg probe: gets such a description for a partition without one.
    :raises Fault: if queues are wanted or described and no batch system answers, or a described one
        is not drafted.
    """
    modules = available()
    system = {
        "name": name,
        "descr": name,
        "hostnames": _host_patterns(),
        **({"modules_system": modules.system} if modules.system else {}),
        "partitions": [],
    }
    drafted = Draft(name, {"systems": [system], "environments": []})
    drafted.comment(text=f"Drafted by plumbline init. What it cannot detect is marked: {CONFIRM}.")
    drafted.comment("systems", 0, "hostnames", text=f"From the name of this host: {CONFIRM}.")
    drafted.messages.append(f"host: {one_line(', '.join(system['hostnames']))}")
    if modules.system:
        drafted.messages.append(f"modules: {modules.system}, {len(modules.names)} listed")
    if modules.unsafe:
        drafted.messages.append(
            f"{modules.unsafe} modules skipped: their names are not safe in a job script"
        )
    batch = _batch(drafted, list(wanted))
    if batch is not None:
        _draft_queues(drafted, batch, described or {}, probe)
    elif named := [*wanted, *(described or {})]:
        raise Fault(
            f"{one_line(', '.join(named))}: no batch system answers on this host, so there are no "
            f"queues: without one, the draft describes this host itself, and takes neither "
            f"--partition nor --node",
            code="scheduler.no-answer",
        )
    else:
        _draft_this_machine(drafted)
    _environments(drafted, modules, batch)
    return drafted


def _host_patterns() -> list[str]:
    """Return a pattern for ReFrame of this host's name, with any numbers in it."""
    name = socket.gethostname()
    return [f"^{re.sub('[0-9]+', lambda _: r'[0-9]+', re.escape(name))}$"]


# -- partitions ---------------------------------------------------------------------------------


def _batch(drafted: Draft, wanted: list[str]) -> Batch | None:
    """Return the first batch system that answers."""
    for module in BATCH:
        if shutil.which(module.COMMAND) and (batch := module.find(wanted)):
            drafted.messages.append(f"{batch.title}: scheduler {batch.scheduler}")
            drafted.messages += batch.messages
            return batch
    return None


def _draft_this_machine(drafted: Draft) -> None:
    """Draft this machine alone, for which no batch system answers."""
    path = ("systems", 0, "partitions")
    for command in [module.COMMAND for module in BATCH if shutil.which(module.COMMAND)]:
        drafted.messages.append(f"{command} does not answer: the draft has this node only")
        drafted.comment(*path, text=f"The queues that {command} lists: {CONFIRM}.")
    if path not in drafted.comments:
        drafted.messages.append("no scheduler: the draft has this node only")
    drafted.system["partitions"].append(
        {
            "name": "node",
            "descr": "This machine alone, detected each time it is used",
            "scheduler": "local",
            "launcher": "local",
            "environs": [],
            "max_jobs": 1,
            "extras": {"detect": True},
        }
    )
    drafted.comment(*path, 0, "max_jobs", text="Two benchmarks at once would disturb each other.")


def _draft_queues(
    drafted: Draft, batch: Batch, described: dict[str, dict], probe: Probe | None
) -> None:
    """Draft the queues of a batch system.

    :raises Fault: if none is drafted, or not one that is described.
    """
    if not batch.queues:
        raise Fault(
            "no partition to draft: " + "; ".join(drafted.messages), code="scheduler.no-partition"
        )
    _name_apart(batch.queues)
    # A queue of several kinds of nodes is several partitions.
    queues = [queue.queue for queue in batch.queues]
    known = {queue.name: queue.name for queue in batch.queues}
    known |= {queue.queue: queue.name for queue in batch.queues if queues.count(queue.queue) == 1}
    if unknown := sorted(set(described) - set(known)):
        raise UnknownName(
            f"--node {one_line(unknown[0])}: no queue of this name is drafted; "
            f"{suggest(unknown[0], known)}"
        )
    inside = {known[name]: found for name, found in described.items()}
    for queue in batch.queues:
        _partition(drafted, batch, queue, inside.get(queue.name), probe)


def _name_apart(queues: list[Queue]) -> None:
    """Number the partitions that would have one name, such as those of the queues a.b and a-b."""
    taken: set[str] = set()
    for queue in queues:
        name, number = queue.name, 1
        while queue.name in taken:
            number += 1
            queue.name = f"{name}-{number}"
        taken.add(queue.name)


def _partition(
    drafted: Draft, batch: Batch, queue: Queue, inside: dict | None, probe: Probe | None
) -> None:
    """Draft the partition of a queue.

    :arg inside: the description of a node.
    """
    partition: dict[str, Any] = {
        "name": queue.name,
        "descr": one_line(f"{pluralize(len(queue.nodes), 'node')} of queue {queue.queue}"),
        "scheduler": batch.scheduler,
        "launcher": batch.launcher,
        "access": list(queue.access),
        **({"sched_options": batch.options} if batch.options else {}),
        "environs": [],
        "max_jobs": MAX_JOBS,
        "processor": _processor(queue.hardware),
    }
    if inside is None and probe:
        try:
            inside = probe(partition)
        except Exception as err:
            drafted.unprobed[queue.name] = err
    processor, devices, extras = _hardware(drafted, queue, inside)
    placements = _placements(queue.hardware, inside, extras)
    if len(queue.nodes) > 1:
        placements += ["off-node", "one-task-per-node"]
    if batch.launcher == "srun" and len(queue.nodes) > 2:
        extras["rotate_nodes"] = True
        placements.append("node-pairs")
        switches = slurm.leaf_switches()
        if len({switches[name] for name in queue.nodes if name in switches}) > 1:
            placements.append("off-rack")
    if os.environ.get("SCRATCH"):
        extras["file_systems"] = {"scratch": {"path_variable": "SCRATCH"}}
    partition |= {
        "processor": processor,
        **({"devices": devices} if devices else {}),
        "extras": {"placements": placements, **queue.extras, **extras},
    }
    drafted.system["partitions"].append(partition)
    _comment_partition(drafted, queue, inside, devices, extras)
    drafted.messages.append(
        f"partition {queue.name}: {pluralize(len(queue.nodes), 'node')} of {queue.hardware}, "
        f"{queue.memory or 'unknown'} MiB; {queue.limits}"
    )


def _processor(hardware: Hardware) -> dict[str, int]:
    """Return what is known of a node's processor, in ReFrame's form."""
    threads = hardware.cores * hardware.threads
    found = {
        "num_cpus": hardware.cpus,
        "num_cpus_per_core": hardware.threads,
        "num_cpus_per_socket": threads,
        "num_sockets": hardware.sockets,
    }
    return {key: number for key, number in found.items() if number}


def _hardware(
    drafted: Draft, queue: Queue, inside: dict | None
) -> tuple[dict, list[dict], dict[str, Any]]:
    """Return the processor, devices and extras of a partition: as a node described them, or else
    as far as the batch system knows them."""
    extras: dict[str, Any] = {"memory": queue.memory * 2**20} if queue.memory > 1 else {}
    model, gpus = queue.hardware.gpus
    device = {"type": "gpu", "num_devices": gpus} | ({"model": one_line(model)} if model else {})
    devices = [device] if gpus else []
    if inside is None:
        if is_instance(model):
            extras["gpu_mode"] = MIG
        return _processor(queue.hardware), devices, extras
    host, seen = one_line(str(inside.get("host"))), _num_gpus(inside)
    for what, known, found in (
        ("CPUs", queue.hardware.cpus, count_cpus(inside["processor"])),
        ("GPUs", gpus, seen),
    ):
        if known and known != found:
            which = "latter" if found else "former"
            drafted.messages.append(
                f"partition {queue.name}: the batch system reports {known} {what}, {host} has "
                f"{found}: the {which} is drafted"
            )
    return inside["processor"], inside["devices"] if seen else devices, extras | inside["extras"]


def _num_gpus(inside: dict) -> int:
    """Return how many GPUs a node saw."""
    gpus = [device for device in inside["devices"] if device.get("type") == "gpu"]
    return sum(device.get("num_devices", 1) for device in gpus)


def _comment_partition(
    drafted: Draft, queue: Queue, inside: dict | None, devices: list[dict], extras: dict
) -> None:
    """Add the comments of the partition that was drafted last."""
    path = ("systems", 0, "partitions", len(drafted.system["partitions"]) - 1)
    access = f"Account and quality of service, if jobs need them: {CONFIRM}."
    drafted.comment(*path, "access", text=access)
    drafted.comment(
        *path, "max_jobs", text="How many jobs are queued at once; with 1, none disturbs another."
    )
    if not inside:
        drafted.comment(*path, "processor", text=f"Topology, as Linux numbers the CPUs: {CONFIRM}.")
    if queue.reserved:
        text = f"usable_cpus: Slurm reserves some ({queue.reserved}): {CONFIRM}."
        drafted.comment(*path, "extras", text=text)
    if inside and _num_gpus(inside):
        links = inside.get("gpu_links") or {}
        listed = "; ".join(f"{name}: {one_line(str(link))}" for name, link in links.items())
        text = f"Classes of pairs, by their links: {listed or 'not known'}: {CONFIRM}."
        drafted.comment(*path, "devices", text=text)
    elif devices:
        text = f"{queue.hardware.gpus[1]} GPUs a node. Architecture, gpu_affinity, gpu_memory and "
        drafted.comment(*path, "devices", text=f"{text}pair_classes: {CONFIRM}.")
    text = f"Ceilings of the machine (docs/systems.md): {CONFIRM}."
    drafted.comment(*path, "extras", text=text)
    if "file_systems" not in extras:
        text = f"scratch or file_systems, for I/O checks: {CONFIRM}."
        drafted.comment(*path, "extras", text=text)


def _placements(hardware: Hardware, inside: dict | None, extras: dict) -> list[str]:
    """Return the placements within one node. The numbers of its cores and sockets determine them,
    however its CPUs are numbered."""
    if inside:
        return placement.of_one_node(
            Topology.of_partition(inside["processor"], inside["devices"], extras)
        )
    sockets, in_each = hardware.sockets or 1, hardware.cores or max(hardware.cpus, 2)
    cores = range(sockets * in_each)
    masks = [
        hex(sum(1 << core for core in cores[number * in_each : (number + 1) * in_each]))
        for number in range(sockets)
    ]
    topology = {"cores": [hex(1 << core) for core in cores], "sockets": masks}
    found = placement.of_one_node(Topology.from_processor({"topology": topology}))
    # The batch system does not know the number of NUMA domains.
    return [name for name in found if name != "numa-matrix"]


# -- environments -------------------------------------------------------------------------------


def _environments(drafted: Draft, modules: Modules, batch: Batch | None) -> None:
    """Draft the environments: the embedded MPICH and IMB if they are installed, the programs on
    PATH, and the toolchains among the modules."""
    is_slurm = batch is not None and batch.launcher == "srun"
    types = slurm.mpi_types() if is_slurm else []
    mpi, mpi_version = software.mpi_on_path()
    if is_slurm:
        listed = ", ".join(types[1:]) or "none"
        drafted.messages.append(f"srun --mpi: available: {listed}; default: {types[0]}")
        broken = [name for name in types[1:] if not slurm.loads_mpi(name)]
        if broken:
            default = "none" if types[0] in broken else types[0]
            types = [default, *(name for name in types[1:] if name not in broken)]
            drafted.messages.append(
                f"srun --mpi: cannot be loaded, though listed: {', '.join(broken)}: not used; an "
                f"MPI that needs it starts by its own mpirun (extras.launcher)"
            )
    drafted.messages.append(f"MPI on PATH: {mpi_version or 'none'}")
    if software.has_wheels():
        _environment(drafted, "pip", ["imb"], {"provider": "pip"} | (
            {"launcher": "hydra"} if batch else {}))  # fmt: skip
        text = "MPICH and IMB from their wheels: no root, no modules."
        drafted.comment("environments", 0, "extras", text=text)
    on_path = software.benchmarks()
    drafted.messages.append(f"benchmarks on PATH: {', '.join(on_path) or 'none'}")
    known = list(toolchains.find(modules, filter(None, map(_gpu, drafted.system["partitions"]))))
    _toolchains(drafted, known, batch, types)
    if batch and known and not on_path:
        return
    # Without a batch system the programs on PATH are detected at each run.
    extras = {"provider": "path"} | ({} if batch else {"detect": True})
    features = ["mpi"] if mpi_version else []
    features += on_path if batch else []
    path: tuple = ("environments", len(drafted.content["environments"]))
    own = software.launcher(mpi, mpi_version.rpartition(" ")[2]) if batch and batch.of_mpi else {}
    _environment(drafted, "path", features, extras | own, mpi=mpi, types=types)
    text = f"On this node's PATH; on the compute nodes' PATH: {CONFIRM}."
    drafted.comment(*path, "features", text=text)


def _toolchains(
    drafted: Draft, known: list[toolchains.Toolchain], batch: Batch | None, types: Iterable[str]
) -> None:
    """Draft an environment for each toolchain, and its Spack environment if Spack can build for
    it."""
    partitions = drafted.system["partitions"]
    built: list[toolchains.Toolchain] = []
    for found in known:
        members = [
            partition for partition in partitions
            if _gpu(partition) == found.gpu
            or (not found.gpu and not any(other.gpu == _gpu(partition) for other in known))
        ]  # fmt: skip
        if not members:
            continue
        target = manifest.target(p.get("processor", {}).get("arch", "") for p in members)
        why_not = found.why_not or manifest.why_not(target)
        extras: dict[str, Any] = {"provider": "path" if why_not else "spack"}
        if batch and batch.of_mpi:
            extras |= software.launcher(found.mpi, _version(found))
        path = ("environments", len(drafted.content["environments"]))
        _environment(drafted, identifier(found.name),
                     ["mpi"] if why_not else manifest.features(found), extras, mpi=found.mpi,
                     types=types, modules=found.modules, partitions=members)  # fmt: skip
        for doubt in found.doubts:
            drafted.comment(*path, "modules", text=f"{doubt}: {CONFIRM}.")
        modules_text = f"toolchain {identifier(found.name)}: {', '.join(found.modules)}"
        if why_not:
            drafted.comment(*path, "features", text=f"Benchmarks that it provides: {CONFIRM}.")
            drafted.messages.append(
                f"{modules_text}: no Spack environment: {why_not}: see docs/spack.md"
            )
            continue
        drafted.messages.append(f"{modules_text}: Spack builds its benchmarks")
        for partition in members if found.gpu_aware else []:
            partition["extras"].setdefault("variants", {})["gpu-aware"] = _gpu_aware(found.mpi)
        compiler = found.externals[0]
        target = manifest.supported(target, compiler.package, _version(found, 0))
        folder = paths.spack_env().own / drafted.name
        file = folder / identifier(found.name) / "spack.yaml"
        drafted.files[file] = manifest.environment(found, target)
        built.append(found)
        drafted.files[folder / "externals.yaml"] = manifest.externals(built, target)


def _gpu(partition: dict) -> str:
    """Return the architecture of a partition's GPUs; empty without, or if it is not known."""
    return next((device.get("arch", "") for device in partition.get("devices", [])), "")


def _gpu_aware(mpi: str) -> dict[str, Any]:
    """Return the variant with which an MPI takes messages in GPU memory."""
    env_vars = {"env_vars": {"MPICH_GPU_SUPPORT_ENABLED": "1"}} if mpi == "cray-mpich" else {}
    return {**env_vars, "conditions": {"buffer": "device"}}


def _version(found: toolchains.Toolchain, number: int = 1) -> str:
    """Return the version of a toolchain's compiler (0) or MPI (1); of an MPI that is no external,
    that in its module's name."""
    if not found.externals:
        return Module(found.modules[-1]).version
    return re.split("[ +~]", found.externals[number].spec.partition("@=")[2])[0]


def _environment(drafted: Draft, name: str, features: list[str], extras: dict, mpi: str = "",
                 types: Iterable[str] = (), modules: Iterable[str] = (),
                 partitions: list[dict] | None = None) -> None:  # fmt: skip
    """Draft an environment of partitions, by default of all."""
    types = list(types)
    plugin = software.plugin(mpi, types) if types else ""
    drafted.content["environments"].append(
        {
            "name": name,
            **({"modules": [*modules]} if modules else {}),
            "features": features,
            **({"env_vars": [["SLURM_MPI_TYPE", plugin]]} if plugin else {}),
            "extras": extras,
            "target_systems": [drafted.name],
        }
    )
    for partition in drafted.system["partitions"] if partitions is None else partitions:
        partition["environs"].append(name)
    if mpi and types and not plugin:
        path = ("environments", len(drafted.content["environments"]) - 1)
        drafted.comment(*path, text=f"Value of srun --mpi for {mpi}: {CONFIRM}.")
