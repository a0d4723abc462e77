"""Intel MPI Benchmarks: point-to-point and collective MPI by message size."""

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.node_pairs import NodePairs
from reframe.core.builtins import parameter

#: Reductions work on 4-byte floats.
REDUCTIONS = {"Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block"}


class Imb(Benchmark):
    """Base class: one operation of IMB-MPI1 for all message sizes."""

    benchmark = "imb"
    program = "IMB-MPI1"

    #: 5 s for each size, which is twice what a run takes over 100 Mbit/s. The usual run takes two.
    sample_seconds = 120

    #: The first row takes a few seconds, also over a slow network.
    start_seconds = 60

    #: Binary logarithm of the largest message size: 4 MiB, IMB's default.
    largest = 22

    tags = {"nightly", "maintenance"}

    @property
    def metric(self) -> str:
        """The prefix of the operation's metrics."""
        return self.operation.lower()

    @property
    def sizes(self) -> list[int]:
        """Message sizes in bytes: 0, then powers of two."""
        return [0, *(2**exponent for exponent in range(self.largest + 1))]

    def prepare(self):
        # One table, for all tasks: without -npmin, IMB repeats it for smaller process counts.
        sizes = f"0:{self.largest}"
        self.executable_opts = [self.operation, "-npmin", str(self.num_tasks), "-msglog", sizes]
        if self.shared:
            # A message waits until its receiver gets a core: a thousand per size would take hours.
            self.executable_opts += ["-iter", "4", "-iter_policy", "off"]
        else:
            # IMB repeats a size less often if that would take longer, and prints a time-out once
            # the run takes so long for each size. Its default is 10 s, with which a run over
            # 100 Mbit/s, or on cores that others use, exceeds the job's time limit.
            share = self.sample_seconds / len(self.sizes)
            self.executable_opts += ["-time", f"{share:.1f}"]


@rfm.simple_test
class imb_p2p(Imb):
    """Latency and bandwidth between two tasks."""

    descr = "IMB point-to-point"
    operation = parameter(["PingPong", "PingPing", "Sendrecv", "Exchange"])
    placement = parameter(["on-socket", "on-node", "off-node"])
    headline = ["{metric}_latency_8", "{metric}_bandwidth_4194304"]
    tags_where = {"smoke": {"operation": ["PingPong"]}}

    def figures(self) -> list[Figure]:
        # An empty message has no bandwidth. IMB prints two decimals of MB/s: on shared cores, where
        # each message waits for a core, small messages would show as 0.00.
        smallest = 2**16 if self.shared else 1
        return [Figure(f"{self.metric}_latency", size) for size in self.sizes] + [
            Figure(f"{self.metric}_bandwidth", size) for size in self.sizes if size >= smallest
        ]


@rfm.simple_test
class imb_node_pairs(NodePairs):
    """PingPong between all nodes of a job, in rounds of random pairs of nodes."""

    descr = "IMB between pairs of nodes"
    benchmark = "imb"
    program = "IMB-MPI1"
    start_seconds = 60

    def figures(self) -> list[Figure]:
        return [Figure("pingpong_latency", 8), Figure("pingpong_bandwidth", 2**20)]

    def prepare(self):
        # No other size is read, and those between would take four fifths of the time.
        sizes = [str(figure.size) for figure in self.figures()]
        self.write_file("sizes", "\n".join(sizes) + "\n")
        self.executable_opts = ["PingPong", "-npmin", "2", "-msglen", "sizes"]


@rfm.simple_test
class imb_collective(Imb):
    """Time of a collective operation, as the mean over the ranks."""

    descr = "IMB collective"

    #: 64 KiB: a collective has a buffer per task, and some nodes have hundreds of tasks.
    largest = 16

    operation = parameter([
        *("Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Allgather"),
        *("Allgatherv", "Gather", "Gatherv", "Scatter", "Scatterv", "Alltoall", "Alltoallv"),
        *("Bcast", "Barrier"),
    ])  # fmt: skip
    placement = parameter(["full-node"])
    # Barrier has only the first, all other operations only the second.
    headline = ["barrier_latency", "{metric}_latency_1024"]
    tags_where = {"smoke": {"operation": ["Allreduce", "Barrier"]}}

    def figures(self) -> list[Figure]:
        metric = f"{self.metric}_latency"
        if self.operation == "Barrier":
            return [Figure(metric)]
        # A collective of 0 bytes moves nothing, and some libraries return at once.
        smallest = 4 if self.operation in REDUCTIONS else 1
        return [Figure(metric, size) for size in self.sizes if size >= smallest]
