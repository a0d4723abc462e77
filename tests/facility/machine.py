"""A machine of the facility: nodes, CPUs, memory domains, GPUs.

What the stand-ins need of it lies ready-made in ``machine.json`` in the state's folder, so that a
launcher starts without PyYAML.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECOND = HERE.parent / "second"
STATE_FILE = "machine.json"


class Machine:
    """One system's hardware.

    CPUs are Linux's numbers of hardware threads; cores are counted over the node's sockets.

    :ivar name: the system's.
    :ivar facts: its entry in ``machines.yaml``.
    :ivar rows: its rows of the second transcription.
    """

    def __init__(self, name: str, facts: dict, rows: list[dict]):
        self.name = name
        self.facts = facts
        self.rows = rows
        self.num_sockets: int = facts["sockets"]
        self.num_cores: int = facts["sockets"] * facts["cores"]
        self.smt: int = facts["smt"]
        self.num_cpus = self.num_cores * self.smt
        self.numa_numbers: list[int] = facts["numa"]
        self.num_gpus = len(facts.get("gpus", []))
        self.vendor: str = facts.get("vendor", "")

    # -- cores and CPUs ---------------------------------------------------------------------

    def cpus_of_core(self, core: int) -> tuple[int, ...]:
        if self.facts["numbering"] == "near":
            return tuple(range(core * self.smt, (core + 1) * self.smt))
        return tuple(core + thread * self.num_cores for thread in range(self.smt))

    def core_of(self, cpu: int) -> int:
        return cpu // self.smt if self.facts["numbering"] == "near" else cpu % self.num_cores

    def cpus_of_cores(self, cores) -> tuple[int, ...]:
        return tuple(sorted(cpu for core in cores for cpu in self.cpus_of_core(core)))

    def socket_of(self, core: int) -> int:
        return core // self.facts["cores"]

    def numa_of(self, core: int) -> int:
        """Return the index of the memory domain of a core."""
        return core // (self.num_cores // len(self.numa_numbers))

    def cores_of_socket(self, socket: int) -> list[int]:
        size = self.facts["cores"]
        return list(range(socket * size, (socket + 1) * size))

    def isolated_cores(self, count: int | None = None) -> set[int]:
        """Return the cores that no job gets.

        :arg count: number for each socket, if the job asked for one.
        """
        isolated = self.facts.get("isolated") or {}
        if "cores" in isolated:
            return set(isolated["cores"]) if count is None or count else set()
        if count is None:
            count = self.facts.get("isolation", 0)
        kept: set[int] = set()
        for socket in range(self.num_sockets):
            cores = self.cores_of_socket(socket)
            if count:
                kept |= set(cores[:count] if "first" in isolated else cores[-count:])
        return kept

    @property
    def memories(self) -> str:
        """Return all memory domains, as the kernel lists them for a task without limits."""
        own = list_of(self.numa_numbers)
        return ",".join(filter(None, [own, self.facts.get("memories", "")]))

    # -- GPUs -------------------------------------------------------------------------------

    def cores_of_gpu(self, gpu: int) -> list[int]:
        """Return the cores nearest to a GPU."""
        nearest = self.facts.get("gpu_cores")
        if nearest:
            return sorted(numbers(nearest[gpu]))
        domain = self.facts["gpus"][gpu]
        return [core for core in range(self.num_cores) if self.numa_of(core) == domain]

    def pair_class(self, one: int, other: int) -> str:
        """Return the class of a pair of GPUs (``gpu-a``), or ``same`` for a single GPU."""
        if one == other:
            return "same"
        rest = ""
        for name, pairs in self.facts.get("pairs", {}).items():
            if pairs == "rest":
                rest = name
            elif sorted((one, other)) in pairs:
                return name
        return rest

    # -- nodes ------------------------------------------------------------------------------

    @functools.cached_property
    def nodes(self) -> list[str]:
        return list(itertools.islice(names(self.facts["nodes"]), self.facts["count"]))

    def rack_of(self, node: str) -> str:
        """Return the rack of a node: a part of its name, or its number divided by the rack size."""
        rack = self.facts.get("rack", 0)
        if isinstance(rack, str):
            found = re.match(re.sub(r"\[(\w+)-(\w+)\]", _as_pattern, rack), node)
            return found.group() if found else node
        position = self.nodes.index(node) if rack and node in self.nodes else 0
        return str(position // rack) if rack else "0"


def _as_pattern(found: re.Match) -> str:
    first, last = found.groups()
    return f"[{first}-{last}]" if first.isalpha() else rf"\d{{{len(first)}}}"


def names(pattern: str):
    """Return all names of a pattern such as ``[a-h]n[01-18]``: the last range varies fastest."""
    parts = []
    for text, first, last in re.findall(r"([^\[]+)|\[(\w+)-(\w+)\]", pattern):
        if text:
            parts.append([text])
        elif first.isalpha():
            parts.append([chr(code) for code in range(ord(first), ord(last) + 1)])
        else:
            width = len(first)
            parts.append([f"{n:0{width}}" for n in range(int(first), int(last) + 1)])
    return ("".join(words) for words in itertools.product(*parts))


def numbers(text) -> list[int]:
    """Return the numbers of a list such as ``0-3,8``, in its order.

    :raises ValueError: if the text is no such list.
    """
    found = []
    for part in str(text).split(","):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last) + 1) if dash else [int(first)]
    return found


def list_of(found) -> str:
    """Return numbers as the kernel lists them: ``0-3,8``."""
    parts = []
    for number in sorted(found):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


@functools.cache
def machines() -> dict[str, dict]:
    """Return all entries of ``machines.yaml``, by system."""
    import yaml

    content = yaml.safe_load((HERE / "machines.yaml").read_text())
    return {name: facts for name, facts in content.items() if "nodes" in facts}


@functools.cache
def second_rows() -> list[dict]:
    """Every row of the second transcription; conditions as a dictionary."""
    rows = []
    for path in sorted(SECOND.glob("[0-9]*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                pairs = (pair.split("=", 1) for pair in row["conditions"].split(";") if pair)
                rows.append({**row, "conditions": dict(pairs)})
    return rows


def build(system: str) -> Machine:
    """A machine from its sources.

    :raises KeyError: if there is none of that name.
    """
    facts = machines()[system]
    systems = {system, facts.get("rows_of", system)}
    rows = [
        {key: row[key] for key in _KEPT}
        for row in second_rows()
        if row["system"] in systems and row["conditions"].get("kind") != "peak"
    ]
    return Machine(system, facts, rows)


_KEPT = (
    *("benchmark", "metric", "placement", "message_size", "nodes", "ppn", "conditions"),
    *("value", "unit", "statistic"),
)


def prepare(system: str, state: Path) -> None:
    """Lays a machine ready in the state's folder."""
    machine = build(system)
    state.mkdir(parents=True, exist_ok=True)
    content = {"name": system, "facts": machine.facts, "rows": machine.rows}
    (state / STATE_FILE).write_text(json.dumps(content))


def here() -> Machine:
    """The machine that the environment names."""
    content = json.loads((Path(os.environ["FACILITY_STATE"]) / STATE_FILE).read_text())
    return Machine(content["name"], content["facts"], content["rows"])
