"""Nodes, partitions and settings of a machine, by Slurm's commands."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from plumbline.core.errors import Fault
from plumbline.core.process import capture, is_shell_safe, one_line
from plumbline.core.text import natural
from plumbline.placement.topology import is_instance

#: Fields of sinfo(1), "--format": node, partition, sockets, cores of each, threads of each, MiB of
#: memory, generic resources, features, state, reason. The last may have any character.
_FIELDS = "%N|%R|%X|%Y|%Z|%m|%G|%f|%T|%E"

#: States of sinfo(1), "NODE STATE CODES", in which a node takes a job now or later. A suffix such
#: as ``~`` (saving power) does not change that, except ``*``: the node does not respond.
_UP = frozenset({"allocated", "blocked", "completing", "idle", "mixed", "planned", "reserved"})
_FLAGS = "*~#!%$@^+-"

#: Options of sbatch(1). In others, such as --account=climate-prod, these letters mean nothing.
_PARTITION = re.compile(r"(?:^|\s)(?:-p\s*|--partition[= ])(\S+)")
_CLUSTERS = re.compile(r"(?:^|\s)(?:-M|--clusters?[= ])")
_CONSTRAINT = re.compile(r"(?:^|\s)(?:-C\s*|--constraint[= ])(\S+)")
_RESERVATION = re.compile(r"(?:^|\s)--reservation[= ](\S+)")


@dataclass(frozen=True)
class SlurmNode:
    """A node, of sinfo(1).

    :ivar memory: in MiB, as the site configured it.
    :ivar gpus: type (may be empty) and number of its GPUs.
    :ivar state: in long form, ``idle*`` if it does not respond.
    """

    name: str
    partition: str
    sockets: int
    cores: int
    threads: int
    memory: int
    gpus: tuple[str, int]
    features: tuple[str, ...]
    state: str
    reason: str

    @property
    def base_state(self) -> str:
        """The state without its flags."""
        return self.state.rstrip(_FLAGS)

    @property
    def is_up(self) -> bool:
        """Whether it takes a job now or later."""
        return "*" not in self.state and self.base_state in _UP

    @property
    def is_idle(self) -> bool:
        """Whether it takes a job now."""
        return self.is_up and self.base_state == "idle"

    @property
    def hardware(self) -> tuple:
        """The hardware that two nodes of one kind have in common."""
        return self.sockets, self.cores, self.threads, self.gpus


class Kind(NamedTuple):
    """The nodes of a partition with the same hardware.

    :ivar constraint: a feature that only they have in the partition; empty if there is one kind,
        ``None`` if there is no such feature.
    """

    nodes: tuple[SlurmNode, ...]
    constraint: str | None


def nodes() -> list[SlurmNode] | None:
    """Return every node, once for each of its partitions; ``None`` if Slurm does not answer."""
    output = capture("sinfo", "--all", "--Node", "--noheader", f"--format={_FIELDS}")
    if output is None:
        return None
    found = []
    for line in output.splitlines():
        cells = line.split("|", _FIELDS.count("|"))
        if len(cells) <= _FIELDS.count("|") or not all(c.isdigit() for c in cells[2:5]):
            continue
        name, partition, sockets, cores, threads, memory, gres, features, state, reason = cells
        found.append(SlurmNode(
            name, partition, int(sockets), int(cores), int(threads),
            int(memory) if memory.isdigit() else 0, _gpus(gres),
            tuple(f for f in features.split(",") if f != "(null)"), state, reason,
        ))  # fmt: skip
    return found


def members(access: Sequence[str], nodes: Iterable[SlurmNode]) -> dict[str, SlurmNode]:
    """Return the nodes that options of sbatch(1) select, by name, in natural order.

    :raises Fault: if that is not known.
    """
    if names_clusters(access):
        raise Fault(
            "--clusters in `access`: nodes of another cluster are not known here",
            code="scheduler.unsupported",
        )
    queue = named_partition(access) or _default_partition()
    selected = {node.name: node for node in nodes if node.partition in queue.split(",")}
    if not selected:
        raise Fault(f"Slurm's partition {queue!r} has no node", code="scheduler.no-node")
    # The last one counts.
    for found in _CONSTRAINT.findall(" ".join(access))[-1:]:
        text = found.strip("'\"")
        features = re.split("[|]" if "|" in text else "[&,]", text)
        if not all(map(is_shell_safe, features)):
            raise Fault(
                f"--constraint={found} cannot be resolved to nodes", code="scheduler.unsupported"
            )
        enough = any if "|" in text else all
        selected = {
            name: node
            for name, node in selected.items()
            if enough(feature in node.features for feature in features)
        }
    return dict(sorted(selected.items(), key=lambda item: natural(item[0])))


def names_clusters(access: Sequence[str]) -> bool:
    """Return whether options of sbatch(1) send jobs to a cluster by its name."""
    return _CLUSTERS.search(" ".join(access)) is not None


def named_partition(access: Sequence[str]) -> str:
    """Return the partition that options of sbatch(1) name, or several with commas; empty if they
    name none. The last counts."""
    return next(reversed(_PARTITION.findall(" ".join(access))), "").strip("'\"")


def named_reservation(access: Sequence[str]) -> str:
    """Return the reservation that options of sbatch(1) name; empty if they name none."""
    return next(reversed(_RESERVATION.findall(" ".join(access))), "").strip("'\"")


def _default_partition() -> str:
    """Return Slurm's partition for a job that names none.

    :raises Fault: if there is none, or Slurm does not answer.
    """
    known = partitions()
    if known is None:
        raise Fault(
            "scontrol does not answer, so partitions are unknown", code="scheduler.no-answer"
        )
    for name, fields in known.items():
        if fields.get("Default") == "YES":
            return name
    raise Fault(
        "Slurm has no default partition: add --partition to `access`",
        code="scheduler.no-partition",
    )


def _gpus(gres: str) -> tuple[str, int]:
    """Return ``("a100", 4)`` for ``gpu:a100:4(S:0-1)``; several types are added, with the name of
    one whose GPUs are parts of one, or else without."""
    found = re.findall(r"(?:^|,)gpu(?::([^:,(]+))??(?::(\d+))?(?=[,(]|$)", gres)
    kinds = {kind for kind, _ in found}
    named = kinds if len(kinds) == 1 else sorted(filter(is_instance, kinds))[:1]
    return "".join(named), sum(int(count or 1) for _, count in found)


def _shown(what: str) -> list[dict[str, str]] | None:
    """Return the fields of each line of ``scontrol show``; ``None`` if Slurm does not answer."""
    output = capture("scontrol", "--oneliner", "show", what)
    if output is None:
        return None
    return [fields_of(line) for line in output.splitlines()]


def fields_of(line: str) -> dict[str, str]:
    """Return the fields of a line of ``scontrol --oneliner``: name -> value, of a text its first
    word."""
    # The first of a name counts: a comment or a reason, which come last, may have any words.
    return dict(word.split("=", 1) for word in reversed(line.split()) if "=" in word)


def partitions() -> dict[str, dict[str, str]] | None:
    """Return the settings of each partition that is not hidden, of scontrol(1); ``None`` if Slurm
    does not answer."""
    shown = _shown("partition")
    if shown is None:
        return None
    return {
        settings["PartitionName"]: settings
        for settings in shown
        if "PartitionName" in settings and settings.get("Hidden") != "YES"
    }


def unknown_partitions(access: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the partitions that options of sbatch(1) name and this cluster does not have, and
    those that it has, also for other users. There is none of the first if Slurm does not answer."""
    if names_clusters(access):
        return [], []
    known = (capture("sinfo", "--all", "--noheader", "--format=%R") or "").split()
    named = [name for name in named_partition(access).split(",") if name]
    return [name for name in named if known and name not in known], sorted({*known})


def kinds(partition: str, nodes: Iterable[SlurmNode]) -> list[Kind]:
    """Return the kinds of nodes of a partition, the most numerous first."""
    members = [node for node in nodes if node.partition == partition]
    groups: dict[tuple, list[SlurmNode]] = {}
    for node in members:
        groups.setdefault(node.hardware, []).append(node)
    found = []
    for group in sorted(groups.values(), key=len, reverse=True):
        common = set.intersection(*(set(node.features) for node in group))
        hardware = group[0].hardware
        others = {f for node in members if node.hardware != hardware for f in node.features}
        own = sorted(feature for feature in common - others if is_shell_safe(feature))
        constraint = "" if len(groups) == 1 else own[0] if own else None
        found.append(Kind(tuple(group), constraint))
    return found


def mpi_types() -> list[str]:
    """Return the MPI plugins of ``srun``, after the default one."""
    output = capture("srun", "--mpi=list", stderr=True) or ""
    listed = [
        word
        for line in output.splitlines()[1:]
        for word in re.findall(r"^(?:srun:)?\s*(\w+)$", line)
    ]
    default = setting("MpiDefault")
    return ([default] if default not in ("", "none") else ["none"]) + listed


def loads_mpi(name: str) -> bool:
    """Return whether ``srun`` can load an MPI plugin that it lists: the plugin is one library, and
    PMIx, which it opens, another. Nothing is submitted."""
    command = 'srun --mpi="$1" --test-only --nodes=1 true 2>&1 || :'
    output = capture("sh", "-c", command, "srun", name) or ""
    return "invalid mpi type" not in output.lower()


def setting(name: str) -> str:
    """Return a setting of the controller; empty if it is not known."""
    output = capture("scontrol", "show", "config") or ""
    found = re.search(rf"^{re.escape(name)}\s*=\s*(\S+)", output, re.M)
    return found[1] if found else ""


def reserved_cpus(node: str) -> str:
    """Return what Slurm reserves of a node for the system (``CoreSpecCount``, ``CPUSpecList``)."""
    output = capture("scontrol", "--oneliner", "show", "node", node) or ""
    output = output.partition(" Reason=")[0]
    return ", ".join(re.findall(r"\b(?:CoreSpecCount|CPUSpecList)=\S+", output))


def has_topology() -> bool:
    """Return whether Slurm knows the switches of the nodes."""
    return "SwitchName=" in (capture("scontrol", "show", "topology") or "")


@functools.cache
def leaf_switches() -> dict[str, str]:
    """Return the leaf switch of each node, by ``scontrol show topology``; empty if it is not
    known."""
    # Imported here: ReFrame is slow to load.
    from reframe.utility import nodelist_expand

    found: dict[str, str] = {}
    for line in (capture("scontrol", "show", "topology") or "").splitlines():
        fields = fields_of(line)
        if fields.get("Level") == "0" and "Nodes" in fields:
            found |= dict.fromkeys(nodelist_expand(fields["Nodes"]), fields["SwitchName"])
    return found


def version() -> str:
    """Return Slurm's version, as ``sinfo`` prints it."""
    return one_line(capture("sinfo", "--version") or "Slurm")


@dataclass(frozen=True)
class Reservation:
    """A reservation, of scontrol(1).

    :ivar maintenance: whether it has the flag ``MAINT``.
    :ivar closed: whether jobs that do not name it never start on its nodes, as they may on those of
        which it has only some cores, and if their users may use it with the flag ``MAGNETIC``.
    """

    name: str
    nodes: tuple[str, ...]
    maintenance: bool
    closed: bool
    state: str


def reservations() -> list[Reservation] | None:
    """Return all reservations; ``None`` if Slurm does not answer."""
    shown = _shown("reservation")
    if shown is None:
        return None
    found = []
    for fields in shown:
        if "ReservationName" not in fields:
            continue
        listed = fields.get("Nodes", "(null)")
        names = "" if listed == "(null)" else capture("scontrol", "show", "hostnames", listed)
        if names is None:
            return None
        flags = re.split("[,|]", fields.get("Flags", ""))
        maintenance = "MAINT" in flags
        found.append(
            Reservation(
                fields["ReservationName"],
                tuple(names.split()),
                maintenance,
                maintenance or not ("MAGNETIC" in flags or "CoreIDs" in fields),
                fields.get("State", ""),
            )
        )
    return found


def job_state(number: str, owner: int) -> str | None:
    """Return the state of a job that is queued or runs; empty if Slurm does not know it, ``None``
    if Slurm does not answer or hides it.

    :arg owner: number of its user; Slurm may hide the jobs of others (slurm.conf(5),
        PrivateData).
    """
    # For a job that has ended, squeue fails as without a controller; so all jobs are listed.
    output = capture("squeue", "--all", "--noheader", "--format=%A|%T")
    if output is None:
        return None
    states = dict(line.split("|", 1) for line in output.splitlines() if "|" in line)
    if number not in states and os.geteuid() not in (0, owner):
        return None if "jobs" in setting("PrivateData").split(",") else ""
    return states.get(number, "").strip()
