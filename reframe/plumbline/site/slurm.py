"""What Slurm's commands say of the machine: scontrol(1), sinfo(1), srun(1), sacct(1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from plumbline.core.process import ask, plain, shown

#: Fields of sinfo(1), "--format": node, partition, sockets, cores of each, threads of each, MiB of
#: memory, generic resources, features, state, reason. The last may hold any character.
_FIELDS = "%N|%R|%X|%Y|%Z|%m|%G|%f|%T|%E"


@dataclass(frozen=True)
class SlurmNode:
    """A node as sinfo(1) tells of it.

    :ivar memory: in MiB, as the site configured it.
    :ivar gpus: type (may be empty) and number of its GPUs.
    :ivar state: in long form, ``idle*`` where it does not answer.
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
    def hardware(self) -> tuple:
        """What two nodes of one kind have in common."""
        return self.sockets, self.cores, self.threads, self.gpus


@dataclass(frozen=True)
class Kind:
    """The nodes of a partition that are alike.

    :ivar constraint: a feature that they have and no other node of the partition; empty where
        there is one kind, ``None`` where nothing tells them apart.
    """

    partition: str
    nodes: tuple[SlurmNode, ...]
    constraint: str | None

    @property
    def node(self) -> SlurmNode:
        return self.nodes[0]

    @property
    def memory(self) -> int:
        """MiB of its smallest node."""
        return min(node.memory for node in self.nodes)


def nodes() -> list[SlurmNode] | None:
    """Every node, once for each of its partitions; ``None`` where Slurm does not answer."""
    said = ask("sinfo", "--Node", "--noheader", f"--format={_FIELDS}")
    if said is None:
        return None
    found = []
    for line in said.splitlines():
        cells = line.split("|", _FIELDS.count("|"))
        if len(cells) <= _FIELDS.count("|") or not all(c.isdigit() for c in cells[2:5]):
            continue
        name, partition, sockets, cores, threads, memory, gres, features, state, reason = cells
        found.append(
            SlurmNode(
                name,
                partition,
                int(sockets),
                int(cores),
                int(threads),
                int(memory) if memory.isdigit() else 0,
                _gpus(gres),
                tuple(f for f in features.split(",") if f != "(null)"),
                state,
                reason,
            )
        )
    return found


def _gpus(gres: str) -> tuple[str, int]:
    """``gpu:a100:4(S:0-1)`` -> ``("a100", 4)``; several types count together, without a name."""
    found = re.findall(r"(?:^|,)gpu(?::([^:,(]+))??(?::(\d+))?(?=[,(]|$)", gres)
    kinds = {kind for kind, _ in found}
    return (
        kinds.pop() if len(kinds) == 1 else "",
        sum(int(count or 1) for _, count in found),
    )


def partitions() -> dict[str, dict[str, str]] | None:
    """Partition -> its settings, of scontrol(1), without those that are hidden; ``None`` where
    Slurm does not answer."""
    said = ask("scontrol", "--oneliner", "show", "partition")
    if said is None:
        return None
    found = {}
    for line in said.splitlines():
        settings = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in settings and settings.get("Hidden") != "YES":
            found[settings["PartitionName"]] = settings
    return found


def kinds(partition: str, there: Iterable[SlurmNode]) -> list[Kind]:
    """The kinds of nodes of a partition, the most numerous first."""
    mine = [node for node in there if node.partition == partition]
    groups: dict[tuple, list[SlurmNode]] = {}
    for node in mine:
        groups.setdefault(node.hardware, []).append(node)
    found = []
    for group in sorted(groups.values(), key=len, reverse=True):
        common = set.intersection(*(set(node.features) for node in group))
        others = {f for node in mine if node not in group for f in node.features}
        own = sorted(feature for feature in common - others if plain(feature))
        constraint = "" if len(groups) == 1 else own[0] if own else None
        found.append(Kind(partition, tuple(group), constraint))
    return found


def mpi_types() -> list[str]:
    """The MPI plugins of ``srun``, and before them the one that is the default, if there is one."""
    said = ask("srun", "--mpi=list", both=True) or ""
    listed = [
        word for line in said.splitlines()[1:] for word in re.findall(r"^(?:srun:)?\s*(\w+)$", line)
    ]
    default = setting("MpiDefault")
    return ([default] if default not in ("", "none") else ["none"]) + listed


def setting(name: str) -> str:
    """A setting of the controller, empty where it does not tell."""
    said = ask("scontrol", "show", "config") or ""
    found = re.search(rf"^{re.escape(name)}\s*=\s*(\S+)", said, re.M)
    return found[1] if found else ""


def reserved_cpus(node: str) -> str:
    """What Slurm keeps of a node for the system (``CoreSpecCount``, ``CPUSpecList``), or empty."""
    said = ask("scontrol", "--oneliner", "show", "node", node) or ""
    said = said.partition(" Reason=")[0]
    return ", ".join(re.findall(r"\b(?:CoreSpecCount|CPUSpecList)=\S+", said))


def has_topology() -> bool:
    """Whether Slurm knows which switch a node is on."""
    return "SwitchName=" in (ask("scontrol", "show", "topology") or "")


def version() -> str:
    """As ``sinfo`` tells it."""
    return shown(ask("sinfo", "--version") or "Slurm")


@dataclass(frozen=True)
class Reservation:
    """A reservation, of scontrol(1).

    :ivar maintenance: whether it names itself so (flag ``MAINT``).
    """

    name: str
    nodes: tuple[str, ...]
    maintenance: bool
    state: str


def reservations() -> list[Reservation] | None:
    """The reservations that there are; ``None`` where Slurm does not answer."""
    said = ask("scontrol", "--oneliner", "show", "reservation")
    if said is None:
        return None
    found = []
    for line in said.splitlines():
        told = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "ReservationName" not in told:
            continue
        listed = told.get("Nodes", "(null)")
        names = "" if listed == "(null)" else ask("scontrol", "show", "hostnames", listed)
        if names is None:
            return None
        found.append(
            Reservation(
                told["ReservationName"],
                tuple(names.split()),
                "MAINT" in re.split("[,|]", told.get("Flags", "")),
                told.get("State", ""),
            )
        )
    return found


def job_state(number: str) -> str | None:
    """The state of a job that is queued or runs; empty where Slurm knows of none, ``None`` where
    it does not answer."""
    # Of all jobs: asked for one that is gone, squeue fails as it does without a controller.
    said = ask("squeue", "--noheader", "--format=%A|%T")
    if said is None:
        return None
    states = dict(line.split("|", 1) for line in said.splitlines() if "|" in line)
    return states.get(number, "").strip()
