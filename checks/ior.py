"""IOR: bandwidth of a file system for one process, for many, and at the published scales."""

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.parameters import file_systems, of_scale, published_scales
from plumbline.parse import Fom, Output, check_inputs
from reframe.core.builtins import parameter, variable

GIB = 2**30
MIB = 2**20

#: Kind of access in the papers -> in IOR's output.
ACCESS = {"file-per-process": "file-per-process", "shared": "single-shared-file"}


class Ior(Benchmark):
    """Base class: each task writes, flushes, and reads what a task of another node wrote.

    On a single node, reads would come from the page cache. There POSIX uses direct I/O, and the
    rate of MPI-IO is named ``cached_read_bandwidth``, for which there is no reference.
    """

    benchmark = "ior"
    program = "ior"
    placement = "tasks-per-node"

    #: Bytes of a contiguous block of one task, bytes per transfer, and blocks per task.
    block = variable(int, value=256 * MIB)
    transfer = variable(int, value=MIB)
    segments = variable(int, value=1)

    #: Seconds after which IOR stops writing or reading, once every task has done as much as the
    #: fastest; 0 for no limit.
    cut_after = variable(int, value=0)

    conditions = {
        "access": "{access}",
        "api": "{api}",
        "pattern": "{pattern}",
        "block_size": "{block_size}",
        "transfer_size": "{transfer_size}",
        "segments": "{segments}",
    }
    environ_features = ["{once}"]
    headline = ["write_bandwidth", "read_bandwidth"]
    num_samples = 3
    sample_seconds = 600

    @property
    def once(self) -> str:
        """Excludes all but the first MPI of ``local``, except where MPI itself writes."""
        return "" if self.api == "mpiio" else "-second-ior"

    @property
    def block_size(self) -> str:
        """The block size as in the papers, such as ``256MiB``."""
        return format_size(self.block)

    @property
    def transfer_size(self) -> str:
        """The transfer size as in the papers, such as ``1MiB``."""
        return format_size(self.transfer)

    def lay_out(self, partition, topology):
        settings = (partition.extras.get("file_systems") or {}).get(self.file_system, {})
        if self.access == "shared" and settings.get("node_local"):
            # Nodes cannot share a file if each has its own file system.
            self.nodes = 1
        return super().lay_out(partition, topology)

    @property
    def shifted(self) -> bool:
        """Whether each task reads what a task of another node wrote."""
        return self.layout.num_nodes > 1 and not self.node_local

    @property
    def direct(self) -> bool:
        """Whether direct I/O bypasses the page cache."""
        return self.api == "posix" and not self.shifted

    def figures(self) -> list[Figure]:
        return [Figure("write_bandwidth"), Figure("read_bandwidth")]

    def figures_of(self, layout):
        if self.shifted or self.direct:
            return self.figures()
        return [Figure("write_bandwidth"), Figure("cached_read_bandwidth")]

    def conditions_at(self, location):
        # Whether the data crosses the network, or stays on each node's device.
        return {
            **super().conditions_at(location),
            "storage": "node-local" if self.node_local else "shared",
        }

    def derive(self, printed):
        read = printed.get(Figure("read_bandwidth"))
        if read:
            yield Fom("cached_read_bandwidth", read.value, read.unit)

    def verify(self, output: Output) -> None:
        requested = {
            "api": self.api.upper(),
            "access": ACCESS[self.access],
            "ordering": self.pattern,
            # By what its MPI says of them, IOR selects the task whose data each task reads.
            "nodes": self.layout.num_nodes,
            "tasks_per_node": self.layout.num_tasks_per_node,
            "block_size": self.block,
            "transfer_size": self.transfer,
            "segments": self.segments,
        }
        check_inputs("IOR", output, requested)

    def prepare(self):
        written = self.layout.num_tasks * self.block * self.segments
        self.node_local = self.storage(self.file_system).node_local
        files = self.layout.num_tasks if self.access == "file-per-process" else 1
        folder = self.make_scratch(written, files, self.direct, self.file_system)
        self.executable_opts = [
            *("-a", self.api.upper(), "-w", "-r", "-e"),
            *("-b", str(self.block), "-t", str(self.transfer), "-s", str(self.segments)),
            *(["-F"] if self.access == "file-per-process" else []),
            *(["-z"] if self.pattern == "random" else []),
            *(["-C"] if self.shifted else []),
            *(["--posix.odirect"] if self.direct else []),
            *(self.cut() if self.cut_after else []),
            *("-O", "summaryFormat=JSON", "-o", f"{folder}/ior"),
        ]

    def cut(self) -> list[str]:
        """Return the options that end writing and reading after a time.

        A task reads as many transfers as it wrote, of a file that another one wrote: all must have
        written as many, and read them in the order in which they were written.
        """
        seed = ["--random-offset-seed=1"] if self.pattern == "random" else []
        return ["-D", str(self.cut_after), "-O", "stoneWallingWearOut=1", *seed]


def format_size(size: int) -> str:
    """Return a size in bytes as in the papers, such as ``4GiB``."""
    return f"{size // GIB}GiB" if size % GIB == 0 else f"{size // MIB}MiB"


@rfm.simple_test
class ior(Ior):
    """A small case for any machine: two tasks per node on two nodes, or on one."""

    descr = "IOR"
    file_system = parameter(file_systems())
    api = parameter(["posix", "mpiio"])
    access = parameter(["file-per-process", "shared"])
    pattern = "sequential"
    nodes = 0
    tasks_per_node = 2
    sample_seconds = 300
    tags = {"nightly", "maintenance"}


@rfm.simple_test
class ior_random(Ior):
    """The same case in random order, with a file per task."""

    descr = "IOR in random order"
    file_system = parameter(file_systems())
    api = "posix"
    access = "file-per-process"
    pattern = "random"
    nodes = 0
    tasks_per_node = 2
    sample_seconds = 300
    tags = {"nightly", "maintenance"}


@rfm.simple_test
class ior_building_block(Ior):
    """For 20 minutes, 12 clients per building block of a file system, with 8 processes each and a
    file per process (coral-sc18, section V-C: GL4 units)."""

    descr = "IOR on building blocks of a file system"
    file_system = parameter(file_systems(building_blocks=...))
    pattern = parameter(["sequential", "random"])
    api = "posix"
    access = "file-per-process"
    tasks_per_node = 8
    block = 4 * GIB
    transfer = 32 * MIB
    #: In the paper, 96 processes wrote 40 TB.
    segments = 104
    cut_after = 1200
    num_samples = 1
    num_warmups = 0
    sample_seconds = 2 * 1500
    tags = {"full"}

    def lay_out(self, partition, topology):
        blocks = partition.extras["file_systems"][self.file_system]["building_blocks"]
        self.nodes = 12 * blocks
        return super().lay_out(partition, topology)


@rfm.simple_test
class ior_one_client(Ior):
    """One client on a building block of a file system (coral-sc18, section V-C)."""

    descr = "IOR of one client"
    file_system = parameter(file_systems(building_blocks=1))
    pattern = "sequential"
    api = "posix"
    access = "file-per-process"
    tasks_per_node = 8
    block = 4 * GIB
    transfer = 32 * MIB
    segments = 4
    tags = {"full"}


@rfm.simple_test
class ior_whole(Ior):
    """The whole machine on a whole file system, in blocks of 1 MiB (the slides on Reedbush: 420
    nodes with 1, 2 and 4 processes)."""

    descr = "IOR on the whole of a file system"
    file_system = parameter(file_systems(ior_segments=...))
    api = parameter(["posix", "mpiio"])
    access = parameter(["file-per-process", "shared"])
    pattern = "sequential"
    scale = parameter(published_scales("ior"), fmt=of_scale)
    block = MIB
    num_samples = 1
    num_warmups = 0
    sample_seconds = 3600
    tags = {"full"}

    def lay_out(self, partition, topology):
        settings = partition.extras["file_systems"][self.file_system]
        self.segments = settings["ior_segments"][self.access]
        self.conditions["segments"] = str(self.segments)
        return super().lay_out(partition, topology)
