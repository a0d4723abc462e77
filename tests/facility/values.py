"""The values that the stand-in programs print.

From the second transcription of the papers where it has a number for the place where the tasks
really are; from a simple model, the same at each call, where it has none. A variant (collective
library, tag matching, port policy, routing) follows from the job's variables and the launcher's
options, never from a name.
"""

from __future__ import annotations

import math
import os
import random
import zlib
from collections.abc import Iterable

from .job import Task
from .run import Run

#: Sizes up to this one have the latency of an empty message (the papers state no size).
SMALL = 256

_PREFERRED = ("median", "mean", "best", "unstated", "single")


class Values:
    """Values of one run; noise and faults included."""

    def __init__(self, run: Run):
        self.run = run
        self.machine = run.machine
        self.rows = run.machine.rows
        self.links = run.machine.facts["links"]
        self._noise = float(os.environ.get("FACILITY_NOISE", "0"))
        words = f"{run.machine.name} {' '.join(run.words)} {run.sample} {run.nodes[:2]}"
        self._random = random.Random(zlib.crc32(words.encode()))
        self.variant = variant(run.env)

    def measured(
        self,
        value: float,
        lower_is_better: bool,
        gpus: Iterable[int] = (),
        nodes: list[str] | None = None,
    ) -> float:
        """Return a value as the program measures it: with noise and faults.

        :arg nodes: those of the value; all of the run without.
        """
        if self._noise:
            value *= max(0.1, 1 + self._random.gauss(0, self._noise))
        return self.run.faults.spoil(value, lower_is_better, gpus, nodes or self.run.nodes)

    # -- rows -------------------------------------------------------------------------------

    def find(self, benchmark: str, metric: str, placement: str | None = None, **conditions):
        """Return rows by their columns. A condition that a row does not state matches."""
        found = []
        for row in self.rows:
            if row["benchmark"] != benchmark or row["metric"] != metric:
                continue
            if placement is not None and row["placement"] != placement:
                continue
            stated = row["conditions"]
            if all(stated.get(key, value) == value for key, value in conditions.items()):
                found.append(row)
        return found

    def number(self, rows: list[dict]) -> float | None:
        """Return the value of rows that differ only by statistic: the usual run's, the median."""
        ordered = sorted(
            (row for row in rows if row["statistic"] in _PREFERRED),
            key=lambda row: _PREFERRED.index(row["statistic"]),
        )
        return float(ordered[0]["value"]) if ordered else None

    # -- MPI --------------------------------------------------------------------------------

    def place(self, one: Task, other: Task, device: bool = False) -> str:
        """Return the placement of two tasks, by the names in the papers."""
        machine = self.machine
        if one.node != other.node:
            racks = {machine.rack_of(one.node), machine.rack_of(other.node)}
            return "off-rack" if len(racks) > 1 and machine.facts.get("rack") else "off-node"
        if device:
            gpus = [gpu_of(one), gpu_of(other)]
            return machine.pair_class(*gpus)
        mine, theirs = core_range(machine, one), core_range(machine, other)
        if len({machine.socket_of(core) for core in {*mine, *theirs}}) > 1:
            return "on-node"
        apart = abs(mine[0] - theirs[0])
        if machine.num_sockets == 1 and not machine.num_gpus and apart >= machine.num_cores // 2:
            return "on-node"
        return "host-to-host" if self._has("host-to-host") else "on-socket"

    def _has(self, placement: str) -> bool:
        return any(row["placement"] == placement for row in self.rows)

    def looseness(self, tasks: list[Task], device: bool = False) -> float:
        """Return the factor by which badly placed tasks are slower: tasks that may use several
        cores, that share one, or that are far from their GPU."""
        machine = self.machine
        factor = 1.0
        cores = [core_range(machine, task) for task in tasks]
        for task, mine in zip(tasks, cores, strict=True):
            if len({machine.socket_of(core) for core in mine}) > 1:
                factor = max(factor, 1.6)
            elif len(mine) > 1 and not device:
                factor = max(factor, 1.25)
            if device and not set(mine) & set(machine.cores_of_gpu(gpu_of(task))):
                factor = max(factor, 1.2)
        own = [
            (task.node, mine[0]) for task, mine in zip(tasks, cores, strict=True) if len(mine) == 1
        ]
        if len(set(own)) < len(own):
            factor = 40.0
        return factor

    def latency(self, one: Task, other: Task, size: int, device: bool = False) -> float:
        """Half a ping-pong, in us."""
        place = self.place(one, other, device)
        base, sizes = self._latency_base(place, device)
        link = self._link(place, device)
        if place == "same":
            # Within one GPU no link is crossed: better than the nearest pair.
            base *= 0.9
        known = max(sizes, default=SMALL)
        if sizes and size <= known:
            value = _line(sizes, size)
        else:
            start = sizes[known] if sizes else base
            value = start + max(0, size - known) / (link * 1e3)
        return value * self.looseness([one, other], device)

    def _latency_base(self, place: str, device: bool) -> tuple[float, dict[int, float]]:
        sizes = {
            int(row["message_size"]): float(row["value"])
            for row in self.find(
                "osu", "latency", "off-node", tag_matching=self.variant["tag_matching"]
            )
            if row["message_size"] and place in ("off-node", "off-rack")
        }
        if place == "off-rack" and sizes:
            sizes = {size: value + 0.3 for size, value in sizes.items()}
        if sizes:
            return sizes[min(sizes)], sizes
        instead = {"off-rack": "off-node", "same": "gpu-a"}
        for name in dict.fromkeys((place, instead.get(place, place))):
            value = self.number(self.find("osu", "latency", name))
            if value is not None:
                return value, {}
        model = {"on-node": 0.9, "on-socket": 0.5, "host-to-host": 0.5, "off-node": 1.6}
        model |= {"off-rack": 1.9, "same": 8.0}
        near = self.number(self.find("osu", "latency", "host-to-host"))
        if place == "on-node" and near is not None:
            return near + 0.4, {}
        return (20.0 if device and place not in model else model[place]), {}

    def _link(self, place: str, device: bool) -> float:
        """GB/s between two tasks."""
        if place.startswith("off-"):
            return self.links["network"]
        if device:
            return self.gpu_link(place)
        core = self.links["core"]
        return core * (0.6 if place == "on-node" else 0.8)

    def gpu_link(self, place: str) -> float:
        """GB/s between two GPUs, or within one."""
        usual = {"gpu-a": 45.0, "gpu-b": 35.0, "same": 400.0}.get(place, 25.0)
        return self.links.get(place, usual)

    def bandwidth(self, one: Task, other: Task, size: int, device: bool = False) -> float:
        """Of a window of messages one way, in MB/s."""
        place = self.place(one, other, device)
        loose = self.looseness([one, other], device)
        peak = self._link(place, device) * 1e3
        base, _ = self._latency_base(place, device)
        return max(size, 1) / (max(size, 1) / peak + base * 0.2) / loose

    def collective(self, metric: str, size: int) -> float:
        """Average latency of a collective over all tasks, in us."""
        tasks = self.run.tasks
        value = self._collective_row(metric, size)
        loose = self.looseness(tasks[:2])
        steps = math.log2(max(2, len(tasks)))
        if value is None:
            base, _ = self._latency_base(
                "off-node" if len(self.run.nodes) > 1 else self._near(), False
            )
            value = base * steps * 1.2 + size * steps / (self.links["core"] * 1e3)
        return value * loose

    def gpu_collective(self, metric: str, size: int) -> float:
        """Average latency in us of a collective over NCCL or RCCL: a ring of the ranks in their
        order, which is as fast as its slowest link (nccl-tests, doc/PERFORMANCE.md)."""
        tasks = self.run.tasks
        ranks = len(tasks)
        ring = list(zip(tasks, [*tasks[1:], tasks[0]], strict=True))
        link = min(self._link(self.place(one, other, True), True) for one, other in ring)
        share = (ranks - 1) / ranks
        moved = {
            "allreduce": 2 * share * size,
            "reduce_scatter": share * (size // 4 // ranks * ranks * 4),
            "allgather": (ranks - 1) * size,
            "alltoall": (ranks - 1) * size,
        }.get(metric, size)
        steps = math.log2(ranks)
        return (12 + 4 * steps + moved / (link * 1e3)) * self.looseness(tasks, True)

    def _near(self) -> str:
        return "host-to-host" if self._has("host-to-host") else "on-socket"

    def _collective_row(self, metric: str, size: int) -> float | None:
        """The papers' number for these many nodes, or from the one nearest to them by the
        logarithm of the nodes; across sizes by a line."""
        nodes = len(self.run.nodes)
        if nodes < 2:
            return None
        library = self.variant["library"]
        libraries = {"ibm", "spectrum-mpi"} if library == "ibm" else {library}
        rows = [
            row
            for row in self.rows
            if row["benchmark"] == "osu"
            and row["metric"] == f"{metric}_latency"
            and row["conditions"].get("collectives") in libraries
            and row["nodes"]
        ]
        if not rows:
            return None
        best = min(rows, key=lambda row: abs(math.log2(int(row["nodes"]) / nodes)))["nodes"]
        points = {
            int(row["message_size"] or 0): float(row["value"])
            for row in rows
            if row["nodes"] == best
        }
        scale = math.log2(nodes) / math.log2(int(best)) * (1 + 0.1 * (self.run.per_node - 1))
        return _line(points, size) * scale

    # -- memory -----------------------------------------------------------------------------

    def stream_gpu(self, kernel: str, gpu: int) -> float:
        """GB/s of a GPU's memory."""
        value = self.number(self.find("babelstream", kernel, "per-gpu"))
        if value is None:
            value = self.number(self.find("babelstream", "bandwidth", "per-gpu"))
            value = value and value * _KERNELS[kernel]
        return value or {"cuda": 500.0, "rocm": 1300.0}[self.machine.vendor] * _KERNELS[kernel]

    def stream_cpu(self, kernel: str, task: Task, threads: int, bound: bool) -> float:
        """GB/s of the memory that a task's threads use."""
        machine = self.machine
        cores = core_range(machine, task)
        one = self.number(self.find("babelstream", "bandwidth", "one-core"))
        every = self.number(self.find("babelstream", "bandwidth", "all-cores"))
        one = one or self.links["core"]
        every = every or machine.facts["node_bandwidth"]
        used = min(threads, len(cores))
        domains = sorted({machine.numa_of(core) for core in cores})
        remote = task.memory and machine.numa_numbers.index(task.memory[0]) not in domains
        if threads == 1:
            value = one * (0.6 if remote else 1.0)
        else:
            value = self._node_row(kernel, used)
            if value is not None:
                return value
            value = self._numa_row(kernel, domains, task)
            if value is not None:
                return value * min(1.0, used / (machine.num_cores // len(machine.numa_numbers)))
            of = machine.num_cores - len(machine.isolated_cores())
            sockets = len({machine.socket_of(core) for core in cores}) / machine.num_sockets
            share = min(1.0, used / of)
            value = min(used * one, every * sockets) if share < 0.9 else every
            value *= 0.6 if remote else 1.0
            if not bound:
                value *= 0.85
            if threads > len(cores):
                value *= 0.9
        return value * _KERNELS[kernel]

    def _node_row(self, kernel: str, cores: int) -> float | None:
        """STREAM on so many cores: what it calls scale is BabelStream's mul."""
        name = {"mul": "scale"}.get(kernel, kernel)
        rows = self.find("stream", name, "full-node", cores=str(cores))
        return self.number([row for row in rows if "cores" in row["conditions"]])

    def _numa_row(self, kernel: str, domains: list[int], task: Task) -> float | None:
        """The printed matrix has the memory's domain before the cores' one."""
        if len(domains) != 1 or not task.memory:
            return None
        memory = self.machine.numa_numbers.index(task.memory[0])
        return self.number(self.find("stream", kernel, f"numa-{memory}-{domains[0]}"))

    # -- GPUs' copies -----------------------------------------------------------------------

    def commscope(self, metric: str, place: str | None = None) -> float:
        """Comm|Scope's numbers: us, or GB/s of a bandwidth."""
        value = self.number(self.find("commscope", metric, place))
        if value is None:
            value = {
                "kernel_launch_latency": 4.0,
                "device_sync_latency": 3.0,
                "host_device_latency": 8.0,
                "host_device_bandwidth": 12.0,
                "d2d_latency": 20.0,
            }[metric]
        return value

    # -- network ----------------------------------------------------------------------------

    def gpcnet(self, metric: str, congestion: str, tail: bool) -> float | None:
        """A printed median for this variant, for as many nodes as are nearest."""
        rows = self.find(
            "gpcnet",
            metric + ("_p99" if tail else ""),
            congestion=congestion,
            port_policy=self.variant["port_policy"],
            routing=self.variant["routing"],
        )
        stated = [row for row in rows if row["nodes"]]
        return self.number(stated or rows)

    # -- files ------------------------------------------------------------------------------

    def ior(self, access: str, order: str, **conditions: str) -> float:
        """MiB/s of a file system.

        :arg access: write or read; ``order``: sequential or random.
        """
        nodes = len(self.run.nodes)
        conditions["access"] = order
        every = self.find("ior", f"{access}_bandwidth", **conditions)
        rows = [row for row in every if row["nodes"]]
        if every and not rows:
            return float(every[0]["value"]) * {"GB/s": 1e9}.get(every[0]["unit"], 1e6) / 2**20
        if rows:
            rows = [row for row in rows if int(row["nodes"]) == nodes] or rows
            same = [row for row in rows if int(row["ppn"] or 1) == self.run.per_node] or rows
            row = min(same, key=lambda row: abs(int(row["nodes"]) - nodes))
            value = float(row["value"]) * {"GB/s": 1e9}.get(row["unit"], 1e6) / 2**20
            return value * min(1.0, nodes / int(row["nodes"]))
        single = 1500.0 if access == "write" else 1800.0
        return single * nodes

    def mdtest(self) -> float:
        """Files created a second."""
        rows = [row for row in self.find("mdtest", "file_creation_rate") if row["nodes"]]
        nodes = len(self.run.nodes)
        if not rows:
            return 5000.0 * nodes
        return float(rows[0]["value"]) * min(1.0, nodes / int(rows[0]["nodes"]))


#: Bandwidth of a kernel of BabelStream, as a share of Triad's.
_KERNELS = {"copy": 0.995, "mul": 0.99, "add": 0.998, "triad": 1.0, "dot": 0.985, "nstream": 0.99}


def gpu_of(task: Task) -> int:
    """The GPU that a program took of those that its task sees."""
    return task.gpus[0] if task.gpus else -1


def core_range(machine, task: Task) -> list[int]:
    """Cores that a task may run on, ascending."""
    return sorted({machine.core_of(cpu) for cpu in task.cpus})


def _line(points: dict[int, float], size: int) -> float:
    """A number between those of other sizes."""
    below = max((number for number in points if number <= size), default=min(points))
    above = min((number for number in points if number >= size), default=max(points))
    if below == above or size in points:
        return points.get(size, points[below])
    if size > max(points):
        return points[max(points)] * size / max(points)
    return points[below] + (size - below) / (above - below) * (points[above] - points[below])


def variant(env: dict[str, str]) -> dict[str, str]:
    """What Spectrum MPI's and Open MPI's variables choose (coral-sc19, appendix; Summit User
    Guide, "Spectrum MPI tunings needed for maximum bandwidth")."""
    arguments = env.get("FACILITY_SMPIARGS", "")
    hcoll = "coll_hcoll_enable 1" in arguments or env.get("OMPI_MCA_coll_hcoll_enable") == "1"
    sharp = hcoll and env.get("HCOLL_ENABLE_SHARP", "0") not in ("0", "")
    matching = env.get("PAMI_IBV_ENABLE_TAG_MATCHING") == "1"
    matching = matching and "pml_pami_use_2sided 1" in arguments
    ports = [
        "".join(
            word.partition(":")[0].removeprefix("mlx5_") for word in env.get(name, "").split(",")
        )
        for name in ("PAMI_IBV_DEVICE_NAME", "PAMI_IBV_DEVICE_NAME_1")
    ]
    striped = env.get("PAMI_ENABLE_STRIPING") == "1"
    policy = {("03", "30"): "0330", ("01", "23"): "0123"}.get(tuple(ports), "03")
    static = env.get("PAMI_IBV_ENABLE_OOO_AR") == "0"
    return {
        "library": "sharp" if sharp else "hcoll" if hcoll else "ibm",
        "tag_matching": "hardware" if matching else "off",
        "port_policy": policy if striped else "03",
        "routing": "static" if static else "adaptive",
    }
