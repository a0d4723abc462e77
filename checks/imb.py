"""Intel MPI Benchmarks: point-to-point and collective MPI over message sizes."""

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.node_pairs import NodePairs
from reframe.core.builtins import parameter

#: Reductions work on 4-byte floats.
REDUCTIONS = {"Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block"}


class Imb(Benchmark):
    """What all of them share."""

    benchmark = "imb"
    program = "IMB-MPI1"

    #: Logarithm of the largest message's size: 4 MiB, as IMB's own.
    largest = 22

    tags = {"nightly", "maintenance"}

    @property
    def metric(self) -> str:
        """What the names of the operation's figures begin with."""
        return self.operation.lower()

    @property
    def sizes(self) -> list[int]:
        """0 bytes, then powers of two."""
        return [0, *(2**exponent for exponent in range(self.largest + 1))]

    def prepare(self):
        # One table, on all tasks: without -npmin IMB repeats it for smaller process counts.
        sizes = f"0:{self.largest}"
        self.executable_opts = [self.operation, "-npmin", str(self.num_tasks), "-msglog", sizes]
        if self.shared:
            # A message waits until its receiver gets a core: a thousand of each size take hours.
            self.executable_opts += ["-iter", "4", "-iter_policy", "off"]


@rfm.simple_test
class imb_p2p(Imb):
    """Latency and bandwidth between two tasks."""

    descr = "IMB point-to-point"
    operation = parameter(["PingPong", "PingPing", "Sendrecv", "Exchange"])
    placement = parameter(["on-socket", "on-node", "off-node"])
    headline = ["{metric}_latency_8", "{metric}_bandwidth_4194304"]
    tags_where = {"smoke": {"operation": ["PingPong"]}}

    def figures(self) -> list[Figure]:
        # An empty message has a latency and no bandwidth; and IMB prints hundredths of MB/s, which
        # small messages do not come to where each waits for a core.
        smallest = 2**16 if self.shared else 1
        return [Figure(f"{self.metric}_latency", size) for size in self.sizes] + [
            Figure(f"{self.metric}_bandwidth", size) for size in self.sizes if size >= smallest
        ]


@rfm.simple_test
class imb_node_pairs(NodePairs):
    """PingPong between all nodes of a job, in rounds of random pairs."""

    descr = "IMB between pairs of nodes"
    benchmark = "imb"
    program = "IMB-MPI1"

    def figures(self) -> list[Figure]:
        return [Figure("pingpong_latency", 8), Figure("pingpong_bandwidth", 2**20)]

    def prepare(self):
        self.executable_opts = ["PingPong", "-npmin", "2", "-msglog", "3:20"]


@rfm.simple_test
class imb_collective(Imb):
    """Time of a collective, mean over the ranks."""

    descr = "IMB collective"

    #: 64 KiB: a collective's buffers are as many as its tasks, which are hundreds on some nodes.
    largest = 16

    operation = parameter(
        [
            "Allreduce",
            "Reduce",
            "Reduce_scatter",
            "Reduce_scatter_block",
            "Allgather",
            "Allgatherv",
            "Gather",
            "Gatherv",
            "Scatter",
            "Scatterv",
            "Alltoall",
            "Alltoallv",
            "Bcast",
            "Barrier",
        ]
    )
    placement = parameter(["full-node"])
    # A barrier has the first alone, all others the second.
    headline = ["barrier_latency", "{metric}_latency_1024"]
    tags_where = {"smoke": {"operation": ["Allreduce", "Barrier"]}}

    def figures(self) -> list[Figure]:
        metric = f"{self.metric}_latency"
        if self.operation == "Barrier":
            return [Figure(metric)]
        # An empty collective moves nothing, and some libraries return at once.
        smallest = 4 if self.operation in REDUCTIONS else 1
        return [Figure(metric, size) for size in self.sizes if size >= smallest]
