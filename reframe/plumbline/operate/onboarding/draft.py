"""Drafts a system file from what can be detected on a login node.

What cannot be detected is not guessed. A comment in the file marks it as to be confirmed, and
``plumbline lint`` explains how (:mod:`plumbline.operate.onboarding.steps`).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from plumbline.core.errors import Fault
from plumbline.core.process import is_shell_safe, one_line
from plumbline.core.text import pluralize
from plumbline.operate.onboarding import software
from plumbline.placement import placement
from plumbline.placement.topology import Topology
from plumbline.site import slurm

CONFIRM = "to be confirmed on the machine"

#: Command of a scheduler on login nodes -> its name. These are not probed.
OTHERS = {
    "bqueues": "LSF",
    "qstat": "PBS",
    "flux": "Flux",
    "cobalt": "Cobalt",
}

#: Maximum length of a line in the file.
_WIDTH = 96

#: ``max_jobs`` of a drafted partition.
MAX_JOBS = 8

#: Returns a node's description, as :func:`plumbline.operate.onboarding.node.described` does, from a
#: job with these options.
Probe: TypeAlias = Callable[[list[str]], dict]


@dataclass
class Draft:
    """A drafted system file.

    :ivar content: in ReFrame's schema.
    :ivar comments: path in ``content`` -> comments before that item.
    :ivar messages: what was found, and what was skipped or not probed.
    """

    name: str
    content: dict
    comments: dict[tuple, list[str]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def comment(self, *path: object, text: str) -> None:
        """Add a comment before the item at a path."""
        self.comments.setdefault(path, []).append(one_line(text))

    @property
    def system(self) -> dict:
        return self.content["systems"][0]

    def text(self) -> str:
        """Return the file's text."""
        return commented(self.content, self.comments)


def commented(content: dict, comments: dict[tuple, list[str]]) -> str:
    """Return content as YAML, with comments before the items at their paths."""
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=_WIDTH)
    lines = text.splitlines()
    tree = yaml.compose(text)
    by_line = sorted(((_line_of(tree, path), path) for path in comments), reverse=True,
                     key=lambda item: item[0])  # fmt: skip
    for number, path in by_line:
        indent = lines[number][: -len(lines[number].lstrip())] + "# "
        lines[number:number] = [
            line
            for comment in comments[path]
            for line in textwrap.wrap(
                comment, _WIDTH, initial_indent=indent, subsequent_indent=indent
            )
        ]
    return "\n".join(lines) + "\n"


def _line_of(node: Any, path: tuple) -> int:
    """Return the number of the line that the item at a path of a YAML node begins on."""
    start = node
    for step in path:
        if isinstance(node, yaml.MappingNode):
            start, node = next(pair for pair in node.value if pair[0].value == step)
        else:
            start = node = node.value[step]
    return int(start.start_mark.line)


def draft(
    name: str,
    wanted: Iterable[str] = (),
    described: dict[str, dict] | None = None,
    probe: Probe | None = None,
) -> Draft:
    """Draft the system file of the machine that this host is a login node of.

    :arg wanted: the scheduler's partitions to draft; by default all.
    :arg described: drafted partition -> description of a node of it, see
        :func:`plumbline.operate.onboarding.node.described`.
    :arg probe: gets such a description for a partition without one.
    :raises Fault: if partitions are wanted, and no scheduler answers.
    """
    modules, listed, unsafe = software.modules()
    system = {
        "name": name,
        "descr": name,
        "hostnames": _host_patterns(),
        **({"modules_system": modules} if modules else {}),
        "partitions": [],
    }
    drafted = Draft(name, {"systems": [system], "environments": []})
    drafted.comment(text=f"Drafted by plumbline init. What it cannot detect is marked: {CONFIRM}.")
    drafted.comment("systems", 0, "hostnames", text=f"From the name of this host: {CONFIRM}.")
    drafted.messages.append(f"host: {one_line(', '.join(system['hostnames']))}")
    if modules:
        drafted.messages.append(f"modules: {modules}, {len(listed)} listed")
    if unsafe:
        drafted.messages.append(
            f"{unsafe} modules skipped: their names are not safe in a job script"
        )
    nodes = slurm.nodes() if shutil.which("sinfo") else None
    if nodes is not None:
        _draft_slurm(drafted, nodes, list(wanted), described or {}, probe)
    elif wanted:
        raise Fault(
            f"partition {one_line(', '.join(wanted))}: sinfo does not answer on this host",
            code="scheduler.no-answer",
        )
    else:
        _draft_this_machine(drafted)
    _environments(drafted, listed, with_slurm=nodes is not None)
    return drafted


def _host_patterns() -> list[str]:
    """Return a pattern for ReFrame of this host's name, with any numbers in it."""
    name = socket.gethostname()
    return [f"^{re.sub('[0-9]+', lambda _: r'[0-9]+', re.escape(name))}$"]


# -- partitions ---------------------------------------------------------------------------------


def _draft_this_machine(drafted: Draft) -> None:
    """Draft this machine alone, for which no scheduler answers."""
    path = ("systems", 0, "partitions")
    for title in [title for command, title in OTHERS.items() if shutil.which(command)]:
        drafted.messages.append(
            f"{title} is not probed: the draft has this node only. Add its queues as partitions, "
            f"see docs/systems.md; `python -m plumbline.operate.onboarding.node` describes the "
            f"node that it runs on"
        )
        drafted.comment(*path, text=f"{title}'s queues: {CONFIRM}.")
    if shutil.which("sinfo"):
        drafted.messages.append("sinfo does not answer: the draft has this node only")
        drafted.comment(*path, text=f"Slurm's partitions: {CONFIRM}.")
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


def _draft_slurm(
    drafted: Draft,
    all_nodes: list[slurm.SlurmNode],
    wanted: list[str],
    described: dict[str, dict],
    probe: Probe | None,
) -> None:
    """Draft Slurm's partitions, one for each kind of node.

    :raises Fault: if scontrol does not answer.
    """
    settings = slurm.partitions()
    if settings is None:
        raise Fault(
            "scontrol does not answer, although sinfo does: repeat the command when both answer",
            code="scheduler.no-answer",
        )
    scheduler = "squeue" if slurm.setting("AccountingStorageType").endswith("/none") else "slurm"
    drafted.messages.append(
        f"{slurm.version()}: scheduler {scheduler}, {pluralize(len(settings), 'partition')}"
    )
    if not slurm.has_topology():
        drafted.messages.append("Slurm knows no switches: `plumbline screen` cannot flag any")
    if unknown := [name for name in wanted if name not in settings]:
        drafted.messages.append(f"no partition {', '.join(map(one_line, unknown))}: skipped")
    for name, fields in settings.items():
        if wanted and name not in wanted:
            continue
        if not is_shell_safe(name):
            drafted.messages.append(
                f"partition {one_line(name)}: skipped, its name is not safe in a job script"
            )
            continue
        kinds = _draftable(drafted, name, slurm.kinds(name, all_nodes))
        for kind in kinds:
            _partition(drafted, kind, fields, scheduler, described, probe)


def _draftable(drafted: Draft, partition: str, kinds: list[slurm.Kind]) -> list[slurm.Kind]:
    """Return the kinds of a partition's nodes that a job can be sent to, the largest first.

    If no feature distinguishes them, only the first is drafted.
    """
    if not kinds:
        drafted.messages.append(f"partition {partition}: skipped, it has no nodes")
    for number, kind in enumerate(kinds):
        if kind.constraint is None:
            alike_nodes = f"{pluralize(len(kind.nodes), 'node')} like {one_line(kind.node.name)}"
            text = f"{alike_nodes} skipped: no feature distinguishes them"
            if number == 0:
                text = (
                    f"no feature distinguishes its {len(kinds)} kinds of nodes: drafted as the "
                    f"{alike_nodes}; select them in `access`"
                )
            drafted.messages.append(f"partition {partition}: {text}")
    return [kind for number, kind in enumerate(kinds) if number == 0 or kind.constraint is not None]


def _partition(
    drafted: Draft,
    kind: slurm.Kind,
    fields: dict[str, str],
    scheduler: str,
    described: dict[str, dict],
    probe: Probe | None,
) -> None:
    """Draft the partition of one kind of node.

    :arg fields: of Slurm's partition.
    """
    node = kind.node
    name = _identifier(f"{kind.partition}-{kind.constraint}" if kind.constraint else kind.partition)
    access = ["--no-requeue", f"--partition={kind.partition}", "--exclusive"]
    if kind.constraint:
        access.insert(2, f"--constraint={kind.constraint}")
    if node.gpus[1]:
        access.append(f"--gpus-per-node={node.gpus[1]}")
    inside = described.get(name)
    if inside is None and probe:
        try:
            inside = probe(access)
        except Exception as err:
            drafted.messages.append(f"partition {name}: not probed: {one_line(str(err))}")
    processor, devices, extras = _hardware(drafted, name, kind, inside)
    placements = _placements(node, inside, extras)
    if len(kind.nodes) > 1:
        placements += ["off-node", "one-task-per-node"]
    if os.environ.get("SCRATCH"):
        extras["file_systems"] = {"scratch": {"path_variable": "SCRATCH"}}
    drafted.system["partitions"].append(
        {
            "name": name,
            "descr": one_line(
                f"{pluralize(len(kind.nodes), 'node')} of Slurm's partition {kind.partition}"
            ),
            "scheduler": scheduler,
            "launcher": "srun",
            "access": access,
            "sched_options": {"use_nodes_option": True},
            "environs": [],
            "max_jobs": MAX_JOBS,
            "processor": processor,
            **({"devices": devices} if devices else {}),
            "extras": {"placements": placements, **extras},
        }
    )
    _comment_partition(drafted, node, inside, devices, extras)
    limit = one_line(fields.get("MaxTime", "")) or "unknown"
    drafted.messages.append(
        f"partition {name}: {pluralize(len(kind.nodes), 'node')} of {node.sockets} x {node.cores} "
        f"cores x {node.threads} threads, {node.gpus[1]} GPUs, {kind.memory} MiB; state "
        f"{one_line(fields.get('State', '?'))}, time limit {limit}"
    )


def _hardware(
    drafted: Draft, name: str, kind: slurm.Kind, inside: dict | None
) -> tuple[dict, list[dict], dict]:
    """Return the processor, devices and extras of a partition: as a node described them, or else
    as far as Slurm knows them."""
    node = kind.node
    threads = node.cores * node.threads
    processor = {
        "num_cpus": node.sockets * threads,
        "num_cpus_per_core": node.threads,
        "num_cpus_per_socket": threads,
        "num_sockets": node.sockets,
    }
    extras: dict[str, Any] = {"memory": kind.memory * 2**20} if kind.memory > 1 else {}
    model, gpus = node.gpus
    if inside is None:
        device = {"type": "gpu", "num_devices": gpus} | (
            {"model": one_line(model)} if model else {}
        )
        return processor, [device] if gpus else [], extras
    if inside["processor"]["num_cpus"] != processor["num_cpus"]:
        drafted.messages.append(
            f"partition {name}: Slurm reports {processor['num_cpus']} CPUs, "
            f"{one_line(str(inside.get('host')))} has {inside['processor']['num_cpus']}: "
            f"the latter is drafted"
        )
    return inside["processor"], inside["devices"], extras | inside["extras"]


def _comment_partition(
    drafted: Draft, node: slurm.SlurmNode, inside: dict | None, devices: list[dict], extras: dict
) -> None:
    """Add the comments of the partition that was drafted last."""
    path = ("systems", 0, "partitions", len(drafted.system["partitions"]) - 1)
    access = f"Account and quality of service, if jobs need them: {CONFIRM}."
    drafted.comment(*path, "access", text=access)
    drafted.comment(*path, "max_jobs", text="How many jobs are queued at once, at most.")
    if not inside:
        drafted.comment(*path, "processor", text=f"Topology, as Linux numbers the CPUs: {CONFIRM}.")
    if reserved := slurm.reserved_cpus(node.name):
        text = f"usable_cpus: Slurm reserves some ({reserved}): {CONFIRM}."
        drafted.comment(*path, "extras", text=text)
    if devices and inside:
        drafted.comment(*path, "devices", text=f"Classes of pairs (nvidia-smi topo -m): {CONFIRM}.")
    elif devices:
        text = f"{node.gpus[1]} GPUs a node, by Slurm. Architecture, gpu_affinity, gpu_memory and "
        drafted.comment(*path, "devices", text=f"{text}pair_classes: {CONFIRM}.")
    text = f"Ceilings of the machine (docs/systems.md): {CONFIRM}."
    drafted.comment(*path, "extras", text=text)
    if "file_systems" not in extras:
        text = f"scratch or file_systems, for I/O checks: {CONFIRM}."
        drafted.comment(*path, "extras", text=text)


def _placements(node: slurm.SlurmNode, inside: dict | None, extras: dict) -> list[str]:
    """Return the placements within one node. The numbers of its cores and sockets determine them,
    however its CPUs are numbered."""
    if inside:
        return placement.of_one_node(
            Topology.of_partition(inside["processor"], inside["devices"], extras)
        )
    cores = range(node.sockets * node.cores)
    sockets = [
        hex(sum(1 << core for core in cores[number * node.cores : (number + 1) * node.cores]))
        for number in range(node.sockets)
    ]
    topology = {"cores": [hex(1 << core) for core in cores], "sockets": sockets}
    found = placement.of_one_node(Topology.from_processor({"topology": topology}))
    # Slurm does not know the number of NUMA domains.
    return [name for name in found if name != "numa-matrix"]


def _identifier(text: str) -> str:
    """Return a name that ReFrame accepts for a partition or an environment."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", text)
    return name if re.match(r"[A-Za-z_]", name) else f"p{name}"


# -- environments -------------------------------------------------------------------------------


def _environments(drafted: Draft, modules: list[str], with_slurm: bool) -> None:
    """Draft the environments: the embedded MPICH and IMB if they are installed, the programs on
    PATH, and each MPI among the modules."""
    types = slurm.mpi_types() if with_slurm else []
    mpi, mpi_version = software.mpi_on_path()
    if with_slurm:
        listed = ", ".join(types[1:]) or "none"
        drafted.messages.append(f"srun --mpi: available: {listed}; default: {types[0]}")
    drafted.messages.append(f"MPI on PATH: {mpi_version or 'none'}")
    if software.has_wheels():
        _environment(drafted, "pip", ["imb"], {"provider": "pip"} | (
            {"launcher": "hydra"} if with_slurm else {}))  # fmt: skip
        text = "MPICH and IMB from their wheels: no root, no modules."
        drafted.comment("environments", 0, "extras", text=text)
    on_path = software.benchmarks()
    # Without a scheduler the programs on PATH are detected at each run.
    extras = {"provider": "path"} | ({} if with_slurm else {"detect": True})
    features = ["mpi"] if mpi_version else []
    features += on_path if with_slurm else []
    path: tuple = ("environments", len(drafted.content["environments"]))
    _environment(drafted, "path", features, extras, mpi=mpi, types=types)
    text = f"On this node's PATH; on the compute nodes' PATH: {CONFIRM}."
    drafted.comment(*path, "features", text=text)
    drafted.messages.append(f"benchmarks on PATH: {', '.join(on_path) or 'none'}")
    for name, module in software.mpi_modules(modules).items():
        path = ("environments", len(drafted.content["environments"]))
        _environment(drafted, _identifier(name), ["mpi"], {"provider": "path"}, mpi=name,
                     types=types, modules=[module])  # fmt: skip
        text = f"The newest module of this MPI; its compiler: {CONFIRM}."
        drafted.comment(*path, "modules", text=text)
        drafted.comment(*path, "features", text=f"Benchmarks that it provides: {CONFIRM}.")
        drafted.messages.append(f"MPI among the modules: {module}")


def _environment(drafted: Draft, name: str, features: list[str], extras: dict, mpi: str = "",
                 types: Iterable[str] = (), modules: Iterable[str] = ()) -> None:  # fmt: skip
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
    for partition in drafted.system["partitions"]:
        partition["environs"].append(name)
    if mpi and types and not plugin:
        path = ("environments", len(drafted.content["environments"]) - 1)
        drafted.comment(*path, text=f"Value of srun --mpi for {mpi}: {CONFIRM}.")
