"""Queues of a batch system, drafted as ReFrame's partitions.

Each module asks the commands of one batch system, and has

- ``COMMAND``, by which it is known;
- ``find(wanted)``, which returns its :class:`Batch`, or ``None`` if it does not answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.core.process import is_shell_safe, one_line
from plumbline.core.text import pluralize


@dataclass(frozen=True)
class Hardware:
    """A node, as far as a batch system knows it; 0 is unknown.

    :ivar cpus: hardware threads; sockets, cores (of a socket) and threads (of a core) may be
        unknown although these are known.
    :ivar gpus: their model, which may be empty, and their number.
    """

    cpus: int = 0
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    gpus: tuple[str, int] = ("", 0)

    def __str__(self) -> str:
        """Return it as words."""
        inside = f"{self.cpus or 'unknown'} CPUs"
        if self.sockets:
            inside = f"{self.sockets} x {self.cores} cores x {self.threads} threads"
        return f"{inside}, {self.gpus[1]} GPUs" if self.gpus[1] else inside


@dataclass
class Queue:
    """A queue's nodes of one kind, which become a partition.

    :ivar queue: the batch system's name of it.
    :ivar name: the partition's.
    :ivar nodes: names of the nodes; empty if they are not known.
    :ivar memory: MiB of the smallest node, 0 if not known.
    :ivar limits: state and limits, for the reader.
    :ivar extras: of the partition.
    :ivar reserved: what the system keeps of a node, for the reader.
    """

    queue: str
    name: str
    nodes: tuple[str, ...]
    hardware: Hardware
    memory: int = 0
    access: tuple[str, ...] = ()
    limits: str = ""
    extras: Mapping[str, Any] = field(default_factory=dict)
    reserved: str = ""


@dataclass
class Batch:
    """A batch system.

    :ivar title: its name and version.
    :ivar scheduler: ReFrame's name of it, and of the launcher of programs without MPI's own.
    :ivar options: ``sched_options``.
    :ivar of_mpi: whether programs are started by the launcher of their own MPI.
    :ivar messages: what was skipped, and why.
    """

    title: str
    scheduler: str
    launcher: str
    options: dict[str, Any] = field(default_factory=dict)
    of_mpi: bool = False
    queues: list[Queue] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def chosen(self, known: Collection[str], wanted: list[str]) -> Iterator[str]:
        """Yield the queues to draft, and report those that do not exist or have a strange name.

        :arg wanted: by default all. A queue without a name is the only one.
        """
        if unknown := [name for name in wanted if name not in known]:
            self.messages.append(f"no partition {', '.join(map(one_line, unknown))}: skipped")
        for name in known:
            if name in wanted or not (wanted and name):
                if name and not is_shell_safe(name):
                    self.skip(name, "its name is not safe in a job script")
                else:
                    yield name

    def skip(self, name: str, why: str) -> None:
        """Report a queue that is not drafted."""
        self.messages.append(f"partition {one_line(name)}: skipped, {why}")

    def add(
        self, name: str, nodes: Mapping[str, tuple[Hardware, int]], without: str
    ) -> Queue | None:
        """Add and return a queue with the most numerous kind of its nodes, and report that there
        are others. Without nodes, it is skipped.

        :arg nodes: name -> hardware and MiB.
        :arg without: the reason for that.
        """
        if not nodes:
            self.skip(name, without)
            return None
        kinds: dict[Hardware, list[str]] = {}
        for node, (hardware, _) in nodes.items():
            kinds.setdefault(hardware, []).append(node)
        hardware, names = max(kinds.items(), key=lambda kind: len(kind[1]))
        if len(kinds) > 1:
            self.messages.append(
                f"partition {name}: its nodes are of {len(kinds)} kinds: drafted as the "
                f"{pluralize(len(names), 'node')} like {one_line(names[0])}; select them in "
                f"`access`"
            )
        memory = min(nodes[node][1] for node in names)
        queue = Queue(name, identifier(name or "batch"), tuple(names), hardware, memory)
        self.queues.append(queue)
        return queue


def identifier(text: str) -> str:
    """Return a name that ReFrame accepts for a partition or an environment."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", text)
    return name if re.match(r"[A-Za-z_]", name) else f"p{name}"


def mebibytes(text: str) -> int:
    """Return MiB of a size such as ``527950832kb`` or ``251.5G``; 0 if it is none."""
    found = re.fullmatch(r"([\d.]+)\s*([kmgt]?)b?", text.strip(), re.I)
    if not found:
        return 0
    power = " kmgt".index(found[2].lower() or " ")
    return int(float(found[1]) * 1024**power // 2**20)
