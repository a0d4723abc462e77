"""From what was probed to a system file.

What a machine does not tell is left out, never guessed: a comment in the file says that it is to be
confirmed on the machine, and ``plumbline lint`` says how (
:mod:`plumbline.operate.onboarding.steps`).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import yaml

from plumbline.core.errors import Fault
from plumbline.core.process import plain, shown
from plumbline.core.text import counted
from plumbline.operate.onboarding import software
from plumbline.placement import placement
from plumbline.placement.topology import Topology
from plumbline.site import slurm

CONFIRM = "to be confirmed on the machine"

#: Command that a batch system has on its login nodes -> its name; none of them is probed.
OTHERS = {
    "bqueues": "LSF",
    "qstat": "PBS",
    "flux": "Flux",
    "cobalt": "Cobalt",
}

#: Characters of a line of the file.
_WIDTH = 96

#: Jobs of a drafted partition that ReFrame keeps queued at once.
MAX_JOBS = 8


@dataclass
class Draft:
    """A system file in the making.

    :ivar content: in ReFrame's schema.
    :ivar comments: path in ``content`` -> the lines that stand before it.
    :ivar told: what was found, and what was not probed or left out, for whoever runs it.
    """

    name: str
    content: dict
    comments: dict[tuple, list[str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def note(self, *path: object, says: str) -> None:
        """Puts a comment before what stands at a path."""
        self.comments.setdefault(path, []).append(shown(says))

    @property
    def system(self) -> dict:
        return self.content["systems"][0]

    def text(self) -> str:
        """The file."""
        return commented(self.content, self.comments)


def commented(content: dict, comments: dict[tuple, list[str]]) -> str:
    """Content as YAML, with comments before what stands at their paths.

    The YAML library writes all of the content; a comment is a line of printable characters.
    """
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=_WIDTH)
    lines = text.splitlines()
    marks = sorted(
        ((_mark(yaml.compose(text), path), said) for path, said in comments.items()),
        key=lambda one: one[0].line,
        reverse=True,
    )
    for mark, said in marks:
        # What begins within a line has its comment before that line.
        column = len(lines[mark.line]) - len(lines[mark.line].lstrip())
        indent = " " * column + "# "
        lines[mark.line : mark.line] = [
            row
            for line in said
            for row in textwrap.wrap(line, _WIDTH, initial_indent=indent, subsequent_indent=indent)
        ]
    return "\n".join(lines) + "\n"


def _mark(node: yaml.Node, path: tuple):
    mark = node.start_mark
    for step in path:
        if isinstance(node, yaml.MappingNode):
            key, node = next(pair for pair in node.value if pair[0].value == step)
            mark = key.start_mark
        else:
            node = node.value[step]
            mark = node.start_mark
    return mark


def draft(
    name: str,
    wanted: Iterable[str] = (),
    nodes: dict[str, dict] | None = None,
    probe: Callable[[list[str]], dict] | None = None,
) -> Draft:
    """Drafts the file of the machine that this is a login node of.

    :arg wanted: the scheduler's partitions to draft; all where none is named.
    :arg nodes: partition (as drafted) -> what
        :func:`plumbline.operate.onboarding.node.described` said of a node of it.
    :arg probe: gives the same by a job with these options.
    :raises Fault: if a partition is named, and no scheduler answers.
    """
    modules, listed, odd = software.modules()
    system = {
        "name": name,
        "descr": name,
        "hostnames": _host_patterns(),
        **({"modules_system": modules} if modules else {}),
        "partitions": [],
    }
    made = Draft(name, {"systems": [system], "environments": []})
    made.note(says=f"Drafted by plumbline init; what it could not know says: {CONFIRM}.")
    made.note("systems", 0, "hostnames", says=f"Of the host that it was drafted on; {CONFIRM}.")
    made.told.append(f"host: {shown(', '.join(system['hostnames']))}")
    if modules:
        made.told.append(f"modules: {modules}, {len(listed)} listed")
    if odd:
        made.told.append(f"{odd} modules left out: their names could not stand in a job script")
    there = slurm.nodes() if shutil.which("sinfo") else None
    if there is None and wanted:
        raise Fault(
            f"partition {shown(', '.join(wanted))}: no scheduler answers here (sinfo)",
            code="scheduler.no-answer",
        )
    if there is None:
        _of_this_machine(made)
    else:
        _of_slurm(made, there, list(wanted), nodes or {}, probe)
    _environments(made, listed, with_slurm=there is not None)
    return made


def _host_patterns() -> list[str]:
    """The names of this host, numbers left open: ReFrame knows a system by them."""
    name = socket.gethostname()
    return [f"^{re.sub('[0-9]+', lambda _: r'[0-9]+', re.escape(name))}$"]


# -- partitions ---------------------------------------------------------------------------------


def _of_this_machine(made: Draft) -> None:
    """A machine without a scheduler that answers: itself, detected each time it is used."""
    known = [title for command, title in OTHERS.items() if shutil.which(command)]
    for title in known:
        made.told.append(
            f"{title} is here, and is not probed: the draft is of this node alone. Enter its "
            f"queues as partitions by hand, as docs/systems.md has them; what a node is like "
            f"inside comes from `python -m plumbline.operate.onboarding.node`, run on it"
        )
        made.note("systems", 0, "partitions", says=f"{title}'s queues: {CONFIRM}.")
    if shutil.which("sinfo"):
        made.told.append("Slurm is here, and sinfo does not answer: this node alone is drafted")
        made.note("systems", 0, "partitions", says=f"Slurm's partitions: {CONFIRM}.")
    if len(made.comments.get(("systems", 0, "partitions"), ())) == 0:
        made.told.append("no scheduler: this node alone")
    made.system["partitions"].append(
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
    made.note("systems", 0, "partitions", 0, "max_jobs",
              says="Two benchmarks at once would measure each other.")  # fmt: skip


def _of_slurm(
    made: Draft, there: list[slurm.SlurmNode], wanted: list[str], nodes: dict, probe
) -> None:
    settings = slurm.partitions()
    if settings is None:
        raise Fault(
            "scontrol does not answer, and sinfo does: draft once both do",
            code="scheduler.no-answer",
        )
    scheduler = "squeue" if slurm.setting("AccountingStorageType").endswith("/none") else "slurm"
    made.told.append(
        f"{slurm.version()}: scheduler {scheduler}, {counted(len(settings), 'partition')}"
    )
    if not slurm.has_topology():
        made.told.append("Slurm knows no switches: `plumbline screen` names none")
    if unknown := [name for name in wanted if name not in settings]:
        made.told.append(f"no partition {', '.join(map(shown, unknown))}: left out")
    for partition, told in settings.items():
        if wanted and partition not in wanted:
            continue
        if not plain(partition):
            made.told.append(
                f"partition {shown(partition)}: left out, its name could not stand in a job script"
            )
            continue
        kinds = slurm.kinds(partition, there)
        if not kinds:
            made.told.append(f"partition {partition}: left out, it has no nodes")
        for number, kind in enumerate(kinds):
            if kind.constraint is None:
                made.told.append(
                    f"partition {partition}: {counted(len(kind.nodes), 'node')} like "
                    f"{shown(kind.node.name)} left out: no feature tells them from the others"
                )
                if number == 0:
                    made.told[-1] = (
                        f"partition {partition}: its nodes are of {len(kinds)} kinds and no "
                        f"feature tells them apart: drafted as the {len(kind.nodes)} like "
                        f"{shown(kind.node.name)}; name them in `access`"
                    )
                else:
                    continue
            _partition(made, kind, told, scheduler, nodes, probe)


def _partition(made: Draft, kind: slurm.Kind, told: dict, scheduler: str, nodes, probe) -> None:
    node, place = kind.node, ("systems", 0, "partitions", len(made.system["partitions"]))
    name = _identifier(f"{kind.partition}-{kind.constraint}" if kind.constraint else kind.partition)
    access = ["--no-requeue", f"--partition={kind.partition}", "--exclusive"]
    if kind.constraint:
        access.insert(2, f"--constraint={kind.constraint}")
    gpus = node.gpus[1]
    if gpus:
        access.append(f"--gpus-per-node={gpus}")
    where = f"partition {name}"
    inside = nodes.get(name)
    if inside is None and probe:
        try:
            inside = probe(access)
        except Exception as err:
            made.told.append(f"{where}: not probed: {shown(str(err))}")
    threads = node.cores * node.threads
    processor = {
        "num_cpus": node.sockets * threads,
        "num_cpus_per_core": node.threads,
        "num_cpus_per_socket": threads,
        "num_sockets": node.sockets,
    }
    extras = {"memory": kind.memory * 2**20} if kind.memory > 1 else {}
    devices = []
    if inside:
        if inside["processor"]["num_cpus"] != processor["num_cpus"]:
            made.told.append(
                f"{where}: {shown(str(inside.get('host')))} has {inside['processor']['num_cpus']} "
                f"CPUs, Slurm says {processor['num_cpus']}: the node's own count is drafted"
            )
        processor, devices = inside["processor"], inside["devices"]
        extras |= inside["extras"]
    elif gpus:
        devices = [{"type": "gpu", "num_devices": gpus}]
        if node.gpus[0]:
            devices[0]["model"] = shown(node.gpus[0])
    placements = _placements(node, inside, extras)
    if len(kind.nodes) > 1:
        placements += ["off-node", "one-task-per-node"]
    if os.environ.get("SCRATCH"):
        extras["file_systems"] = {"scratch": {"path_variable": "SCRATCH"}}
    drafted = {
        "name": name,
        "descr": shown(f"{counted(len(kind.nodes), 'node')} of Slurm's partition {kind.partition}"),
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
    made.system["partitions"].append(drafted)
    made.note(
        *place, "access", says=f"Account and quality of service, if jobs need them: {CONFIRM}."
    )
    made.note(*place, "max_jobs", says="Jobs that are queued at once, at most: the site's choice.")
    if not inside:
        made.note(*place, "processor", says=f"Topology, as Linux numbers the CPUs: {CONFIRM}.")
    kept = slurm.reserved_cpus(node.name)
    if kept:
        made.note(*place, "extras", says=f"usable_cpus: Slurm keeps some ({kept}): {CONFIRM}.")
    if devices and inside:
        made.note(*place, "devices", says=f"Classes of pairs (nvidia-smi topo -m): {CONFIRM}.")
    elif devices:
        made.note(*place, "devices", says=f"Slurm: {gpus} GPUs a node. Architecture, gpu_affinity, "
                  f"gpu_memory and pair_classes: {CONFIRM}.")  # fmt: skip
    made.note(*place, "extras", says=f"Ceilings of the machine (docs/systems.md): {CONFIRM}.")
    if "file_systems" not in extras:
        made.note(*place, "extras", says=f"scratch or file_systems, for I/O checks: {CONFIRM}.")
    limit = shown(told.get("MaxTime", "")) or "unknown"
    made.told.append(
        f"{where}: {counted(len(kind.nodes), 'node')} of {node.sockets} x {node.cores} cores x "
        f"{node.threads} threads, {gpus} GPUs, {kind.memory} MiB; state "
        f"{shown(told.get('State', '?'))}, time limit {limit}"
    )


def _placements(node: slurm.SlurmNode, inside: dict | None, extras: dict) -> list[str]:
    """The placements of one node: which there are, the numbers of cores and sockets tell; how the
    CPUs are numbered does not matter to that."""
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
    # How many NUMA domains there are, the counts do not tell.
    return [name for name in found if name != "numa-matrix"]


def _identifier(text: str) -> str:
    """A name as ReFrame takes it of a partition or an environment."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", text)
    return name if re.match(r"[A-Za-z_]", name) else f"p{name}"


# -- environments -------------------------------------------------------------------------------


def _environments(made: Draft, modules: list[str], with_slurm: bool) -> None:
    """One for the embedded MPICH and IMB where they are installed, one for what is on PATH, one
    for each MPI among the modules."""
    types = slurm.mpi_types() if with_slurm else []
    mpi, mpi_told = software.mpi_on_path()
    if with_slurm:
        made.told.append(f"srun --mpi: {', '.join(types[1:]) or 'none told'}; default {types[0]}")
    made.told.append(f"MPI on PATH: {mpi_told or 'none'}")
    if software.has_wheels():
        _environment(made, "pip", ["imb"], {"provider": "pip"} | (
            {"launcher": "hydra"} if with_slurm else {}))  # fmt: skip
        made.note("environments", 0, "extras",
                  says="MPICH and IMB from their wheels: no root, no modules.")  # fmt: skip
    on_path = software.benchmarks()
    # On a machine that is detected, so is what is on its PATH.
    extras = {"provider": "path"} | ({} if with_slurm else {"detect": True})
    features = ["mpi"] if mpi_told else []
    features += on_path if with_slurm else []
    place = ("environments", len(made.content["environments"]))
    _environment(made, "path", features, extras, mpi=mpi, types=types)
    made.note(*place, "features", says=f"On this node's PATH; on the compute nodes': {CONFIRM}.")
    made.told.append(f"benchmarks on PATH: {', '.join(on_path) or 'none'}")
    for name, module in software.mpi_modules(modules).items():
        place = ("environments", len(made.content["environments"]))
        _environment(made, _identifier(name), ["mpi"], {"provider": "path"}, mpi=name,
                     types=types, modules=[module])  # fmt: skip
        made.note(
            *place, "modules", says=f"The newest of this MPI; with which compiler: {CONFIRM}."
        )
        made.note(*place, "features", says=f"Benchmarks that it has: {CONFIRM}.")
        made.told.append(f"MPI among the modules: {module}")


def _environment(made: Draft, name: str, features: list[str], extras: dict, mpi: str = "",
                 types: Iterable[str] = (), modules: Iterable[str] = ()) -> None:  # fmt: skip
    types = list(types)
    plugin = software.plugin(mpi, types) if types else ""
    made.content["environments"].append(
        {
            "name": name,
            **({"modules": [*modules]} if modules else {}),
            "features": features,
            **({"env_vars": [["SLURM_MPI_TYPE", plugin]]} if plugin else {}),
            "extras": extras,
            "target_systems": [made.name],
        }
    )
    for partition in made.system["partitions"]:
        partition["environs"].append(name)
    if mpi and types and not plugin:
        made.note("environments", len(made.content["environments"]) - 1,
                  says=f"Which srun --mpi starts {mpi}: {CONFIRM}.")  # fmt: skip
