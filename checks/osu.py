"""OSU Micro-Benchmarks: latency, bandwidth and collectives of MPI, on CPUs and GPUs, and of NCCL
and RCCL."""

import dataclasses
from collections.abc import Iterable, Iterator

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.node_pairs import NodePairs
from plumbline.check.parameters import (
    gpu_variants,
    of_scale,
    of_variants,
    published_scales,
    references,
    variants,
)
from plumbline.parse import Fom, Output, ParseError, check_inputs
from plumbline.placement.placement import Layout
from reframe.core.builtins import parameter, variable
from reframe.utility import typecheck as typ

#: Tests between two tasks -> the metrics that they print.
POINT_TO_POINT = {
    "latency": ["latency"],
    "bw": ["bandwidth"],
    "bibw": ["bibandwidth"],
    "mbw_mr": ["multi_bandwidth", "message_rate"],
    "multi_lat": ["multi_latency"],
}

#: Atomics on one element, which have no message size.
ATOMICS = ["cas_latency", "fop_latency"]

#: One-sided tests between two tasks; each prints one metric.
ONE_SIDED = [
    *("put_latency", "get_latency", "put_bw", "get_bw", "put_bibw"),
    *("acc_latency", "get_acc_latency", *ATOMICS),
]

COLLECTIVES = [
    *("allgather", "allreduce", "alltoall", "barrier", "bcast", "gather"),
    *("reduce", "reduce_scatter", "scatter"),
]

#: Collectives that return at once and are completed later.
NON_BLOCKING = ["iallgather", "iallreduce", "ialltoall", "ibarrier", "ibcast"]

#: Tests that send windows of 64 messages.
WINDOWED = {"bw", "bibw", "mbw_mr"}

#: Reductions work on 4-byte floats, or integers.
REDUCTIONS = {"allreduce", "reduce", "reduce_scatter", "iallreduce"}

#: Collectives in which a rank has a message for, or of, each other one. OSU ends their tables where
#: these take more than 512 MiB (check_mem_limit() of osu_util_mpi.c).
OF_EACH_RANK = {"allgather", "alltoall", "gather", "scatter", "iallgather", "ialltoall"}

#: Tests between two tasks over NCCL or RCCL -> the metrics that they print.
XCCL_PAIRS = {"latency": ["xccl_latency"], "bw": ["xccl_bandwidth"], "bibw": ["xccl_bibandwidth"]}

#: Collectives over NCCL or RCCL -> the largest size in bytes: what each rank sends to each other
#: one in the first two, and the whole vector of a rank in the others.
XCCL_COLLECTIVES = {
    **dict.fromkeys(("allgather", "alltoall"), 4 * 2**20),
    **dict.fromkeys(("allreduce", "bcast", "reduce", "reduce_scatter"), 64 * 2**20),
}


def powers_of_two(smallest: int, largest: int) -> list[int]:
    """Return the powers of two from ``smallest`` to ``largest``."""
    return [2**k for k in range(largest.bit_length()) if smallest <= 2**k <= largest]


def check_program(output: Output, program: str, vendor: str | None = None) -> None:
    """Check the program that ran, and the memory of its messages.

    :arg vendor: of the GPUs with the messages; ``None`` for host memory.
    :raises ParseError: if one is not as requested.
    """
    accelerator, buffer = ("none", "host") if vendor is None else (vendor, "device")
    requested = {"program": program, "accelerator": accelerator, "buffer": buffer}
    # OSU 5 prints the buffers' memory for all programs, 7.4 only for one-sided ones.
    printed = {name: value for name, value in requested.items() if name in output.inputs}
    check_inputs("OSU", output, printed)


class Osu(Benchmark):
    """Base class. OSU itself adapts iterations and warm-up to the message size."""

    benchmark = "osu"
    program = "osu_{test}"

    #: Largest message in bytes.
    largest = variable(int, value=4 * 2**20)

    #: Whether the first sample validates the received data (``-c``).
    validate = variable(typ.Bool, value=True)

    #: Iterations per size, after a tenth as many for warm-up; 0 for OSU's defaults.
    iterations = variable(int, value=0)
    first_sample_seconds = 180
    start_seconds = 60

    tags = {"nightly", "maintenance"}

    #: Whether the messages are in GPU memory.
    on_gpus = False

    def verify(self, output: Output) -> None:
        check_program(output, self.program, self.topology.vendor if self.on_gpus else None)

    @property
    def sized(self) -> bool:
        """Whether the test varies the message size."""
        return "barrier" not in self.test and self.test not in ATOMICS

    @property
    def validates(self) -> bool:
        """Whether the first sample validates the received data."""
        return self.validate and self.sized

    def prepare(self):
        repeated = []
        if self.iterations:
            repeated = ["-i", str(self.iterations), "-x", str(self.iterations // 10)]
            self.conditions = {**self.conditions, "iterations": str(self.iterations)}
        if self.sized:
            # A single number is the largest size. The smallest depends on OSU's version.
            self.executable_opts = ["-m", str(self.largest)]
        if self.validates:
            self.first_sample_opts = ["-c"]
            self.first_sample_inputs = {"validation": "pass"}
            if self.num_warmups:
                # In each iteration OSU fills and compares all bytes, one by one: all iterations of
                # osu_latency take a minute. Of a warm-up the times do not count, and two are
                # enough to validate. With several buffers, 7.1 to 7.3 never end more than 65.
                self.first_sample_opts += ["-i", "2", "-x", "0"]
                self.later_sample_opts, repeated = repeated, []
        self.executable_opts += repeated


class TwoTasks(Osu):
    """Two tasks that send each other messages."""

    #: Test -> the metrics that it prints.
    metrics_of: dict[str, list[str]] = POINT_TO_POINT
    headline = ["{headline_figure}"]

    @property
    def headline_figure(self) -> str:
        """The figure in the summary: the latency at 8 bytes, or the bandwidth at 1 MiB."""
        metric, *_ = self.metrics_of[self.test]
        return Figure(metric, 8 if "lat" in metric else 2**20).variable

    def figures(self) -> list[Figure]:
        sizes = powers_of_two(1, self.largest)
        return [Figure(metric, size) for metric in self.metrics_of[self.test] for size in sizes]


class PointToPoint(TwoTasks):
    """With messages in host memory."""

    usual_seconds = 20  # On two cores of a virtual machine; a third of it is the validation.

    def optional(self) -> list[Figure]:
        # OSU 5 begins with an empty message, OSU 7 with one byte.
        return [Figure(metric, 0) for metric in POINT_TO_POINT[self.test]]

    def prepare(self):
        super().prepare()
        if self.test in WINDOWED and self.validates and self.num_warmups:
            # By default a window's messages share a buffer, which shows the last one alone.
            self.first_sample_opts += ["-b", "multiple"]


@rfm.simple_test
class osu_p2p(PointToPoint):
    """Within a socket, within a node, between nodes, and between racks."""

    descr = "OSU point-to-point"
    test = parameter(list(POINT_TO_POINT))
    placement = parameter(["on-socket", "on-node", "host-to-host", "off-node", "off-rack"])
    tags_where = {
        "smoke": {"test": ["latency", "bw"]},
        # Between nodes, osu_node_pairs screens all nodes.
        "screen": {
            "test": ["latency", "bw"],
            "placement": ["on-socket", "on-node", "host-to-host"],
        },
    }


@rfm.simple_test
class osu_node_pairs(NodePairs):
    """Between all nodes of a job, in rounds of random pairs of nodes.

    It measures one message size, as all sizes would take a day.
    """

    descr = "OSU between pairs of nodes"
    benchmark = "osu"
    program = "osu_{test}"
    # It prints its only value at its end: 1.5 GB are sent before that.
    start_seconds = 180
    test = parameter(["latency", "bw"])

    @property
    def figure(self) -> Figure:
        """The figure of each pair."""
        return Figure("latency", 8) if self.test == "latency" else Figure("bandwidth", 2**20)

    def figures(self) -> list[Figure]:
        return [self.figure]

    def verify(self, output: Output) -> None:
        check_program(output, self.program)

    def prepare(self):
        self.executable_opts = ["-m", f"{self.figure.size}:{self.figure.size}"]


@rfm.simple_test
class osu_p2p_variant(PointToPoint):
    """Between nodes, with and without tag matching in the network."""

    descr = "OSU point-to-point by variant"
    test = parameter(["latency", "bw"])
    placement = parameter(["off-node"])
    variant = parameter(of_variants("tag_matching"))


class BetweenGpus(TwoTasks):
    """Two tasks, each on the CPU nearest to its GPU, with messages in GPU memory."""

    on_gpus = True
    test = parameter()
    placement = parameter(["gpu-a", "gpu-b", "gpu-c", "gpu-d"])
    conditions = {"buffer": "device"}
    # One job measures all pairs of a class: on Frontier, 16 of the most distant class.
    num_samples = 3
    sample_seconds = 20
    tags_where = {"screen": {"test": ["latency"]}}


@rfm.simple_test
class osu_gpu(BetweenGpus):
    """With messages over MPI."""

    descr = "OSU between GPUs"
    test = parameter(["latency", "bw", "bibw"])
    variant = parameter(gpu_variants())
    environ_features = ["cuda", "hip"]

    def prepare(self):
        super().prepare()
        self.executable_opts += ["-d", self.topology.vendor, "D", "D"]


@rfm.simple_test
class osu_xccl_gpu(BetweenGpus):
    """With messages over NCCL or RCCL."""

    descr = "OSU between GPUs over NCCL or RCCL"
    program = "osu_xccl_{test}"
    metrics_of = XCCL_PAIRS
    test = parameter(list(XCCL_PAIRS))
    environ_features = ["xccl"]
    # These programs validate nothing, although they have the option.
    validate = False

    def parse(self, text: str) -> Output:
        output = super().parse(text)
        if self.test != "bibw":
            return output
        # The program prints what osu_xccl_bw prints.
        (metric,) = XCCL_PAIRS["bibw"]
        foms = (dataclasses.replace(fom, metric=metric) for fom in output.foms)
        return dataclasses.replace(output, foms=tuple(foms))

    def derive(self, printed: dict[Figure, Fom]) -> Iterable[Fom]:
        figure, times = [*printed][-1], [fom.value for fom in printed.values()]
        if self.test == "latency" and figure.size >= 4 * 2**20:
            # osu_xccl_latency of 7.4 ignores NCCL's errors: all sizes take as long. 4 MiB in a
            # microsecond would be 4 TB/s.
            peak = references().ceiling(self.case_of(figure), "xccl_bandwidth", figure.size)
            if times[-1] < times[0] + 1 or (peak and figure.size > times[-1] * peak.value):
                raise ParseError(
                    f"{figure.variable} is {times[-1]:g} us after {times[0]:g} us of the smallest "
                    f"size: no link is so fast. NCCL or RCCL failed, and {self.program} ignores it",
                    code="output.program-error",
                )
        return ()

    def prepare(self):
        super().prepare()
        # Without a smallest size, osu_xccl_latency begins with an empty message.
        self.executable_opts[:2] = ["-m", f"1:{self.largest}"]


class XcclCollective(Osu):
    """A collective operation of NCCL or RCCL between all GPUs, as the mean over the ranks.

    From 1 MiB on, two bandwidths are computed of each latency, as NVIDIA's nccl-tests define them
    (doc/PERFORMANCE.md). The algorithm's is S / t, where S is all that a rank has at the end
    (allgather), or at the start (the others). The bus bandwidth is that times a factor for n ranks:
    2(n - 1)/n of an allreduce, (n - 1)/n of allgather, reduce_scatter and alltoall, and 1 of bcast
    and reduce. It is what each GPU sends at least, and can be compared with a link's rate whatever
    n is.

    OSU prints the bytes that a rank sends to each other one in allgather and alltoall, an nth of S.
    In reduce_scatter it prints S, of which each rank gets whole floats (osu_xccl_*.c of 7.4).
    """

    program = "osu_xccl_{test}"
    on_gpus = True
    test = parameter(list(XCCL_COLLECTIVES))
    conditions = {"buffer": "device"}
    environ_features = ["xccl"]
    # These programs have no option for it.
    validate = False
    largest = 64 * 2**20
    num_samples = 3
    sample_seconds = 60
    start_seconds = 120
    headline = ["xccl_{test}_latency_{smallest}", "xccl_{test}_bus_bandwidth_{largest_of_test}"]

    @property
    def smallest(self) -> int:
        """The smallest size in bytes: in a reduce_scatter, with a float for each of 1,024 ranks."""
        return 4096 if self.test == "reduce_scatter" else 8

    @property
    def largest_of_test(self) -> int:
        """The largest size in bytes."""
        return min(self.largest, XCCL_COLLECTIVES[self.test])

    def figures(self) -> list[Figure]:
        sizes = powers_of_two(self.smallest, self.largest_of_test)
        found = [Figure(f"xccl_{self.test}_latency", size) for size in sizes]
        return found + [
            Figure(f"xccl_{self.test}_{which}", size)
            for which in ("bandwidth", "bus_bandwidth")
            for size in sizes
            if size >= 2**20
        ]

    def figures_of(self, layout: Layout) -> list[Figure]:
        found = super().figures_of(layout)
        if self.test != "reduce_scatter":
            return found
        # With fewer floats than ranks it moves nothing, and OSU prints a time all the same.
        return [figure for figure in found if figure.size // 4 >= layout.num_tasks]

    def derive(self, printed: dict[Figure, Fom]) -> Iterator[Fom]:
        ranks = self.layout.num_tasks
        factor = {"allreduce": 2 * (ranks - 1) / ranks, "bcast": 1.0, "reduce": 1.0}
        for figure, fom in printed.items():
            if figure.metric != f"xccl_{self.test}_latency" or not (size := figure.size):
                continue
            if fom.value <= 0:
                raise ParseError(f"{figure.variable} is {fom.value} {fom.unit}")
            if self.test in ("allgather", "alltoall"):
                size *= ranks
            elif self.test == "reduce_scatter":
                size = size // 4 // ranks * ranks * 4
            # Bytes in a microsecond are 10^6 bytes a second.
            bandwidth = size / fom.value
            bus = bandwidth * factor.get(self.test, (ranks - 1) / ranks)
            for which, value in (("bandwidth", bandwidth), ("bus_bandwidth", bus)):
                yield Fom(f"xccl_{self.test}_{which}", value, "MB/s", figure.size)

    def prepare(self):
        super().prepare()
        largest = self.largest_of_test
        # The limit of memory would otherwise end the table earlier on many nodes.
        memory = str(max(2**29, largest * self.layout.num_tasks))
        self.executable_opts[:2] = ["-m", f"{self.smallest}:{largest}", "-M", memory]


@rfm.simple_test
class osu_xccl_node(XcclCollective):
    """All GPUs of a node."""

    descr = "OSU collective over NCCL or RCCL within a node"
    placement = parameter(["gpus-on-node"])
    tags_where = {"screen": {"test": ["allreduce"]}}


@rfm.simple_test
class osu_xccl_nodes(XcclCollective):
    """All GPUs of several nodes."""

    descr = "OSU collective over NCCL or RCCL between nodes"
    placement = parameter(["gpus-off-node"])
    nodes = 0


@rfm.simple_test
class osu_one_sided(Osu):
    """Two tasks, one of which accesses the other's memory."""

    descr = "OSU one-sided"
    test = parameter(ONE_SIDED)
    placement = parameter(["on-node", "off-node"])
    # These programs do not have the option.
    validate = False

    def figures(self) -> list[Figure]:
        metric = self.test.replace("bw", "bandwidth")
        # The size of an element depends on the atomic's type: a character or 8 bytes.
        sizes = powers_of_two(1, self.largest) if self.sized else [1]
        return [Figure(metric, size) for size in sizes]


class Collective(Osu):
    """A collective operation of all tasks, as the mean over the ranks."""

    #: 64 KiB: a collective has a buffer per task.
    largest = 64 * 2**10

    # A barrier has only the first, all other operations only the second.
    headline = ["{test}_latency", "{test}_latency_8"]

    def metrics(self) -> list[str]:
        """Return the metrics that the program prints."""
        return [f"{self.test}_latency"]

    def figures(self) -> list[Figure]:
        sizes = [None]
        if self.sized:
            sizes = powers_of_two(4 if self.test in REDUCTIONS else 1, self.largest)
        return [Figure(metric, size) for metric in self.metrics() for size in sizes]

    def figures_of(self, layout: Layout) -> list[Figure]:
        found = super().figures_of(layout)
        if self.test not in OF_EACH_RANK:
            return found
        return [figure for figure in found if figure.size <= 2**29 // layout.num_tasks]

    @property
    def validates(self) -> bool:
        # OSU looks at reduce_scatter's result on the first rank alone (osu_util_mpi.c of 7.4).
        return (
            super().validates
            and self.test != "reduce_scatter"
            and (self.test not in REDUCTIONS or self.num_warmups > 0)
        )

    def prepare(self):
        super().prepare()
        if self.test not in REDUCTIONS:
            return
        # Sums of 1-byte characters overflow; some libraries saturate them, some wrap around.
        floats = ["-T", "mpi_float"]
        if self.validates:
            # Of floats OSU compares whole numbers, and accepts NaN. The sums of integers are exact,
            # but another figure, so only a warm-up has them.
            self.first_sample_opts += ["-T", "mpi_int"]
            self.later_sample_opts += floats
        else:
            self.executable_opts += floats


@rfm.simple_test
class osu_collective(Collective):
    """On all cores of two nodes, and on one core per node."""

    descr = "OSU collective"
    test = parameter(COLLECTIVES)
    placement = parameter(["full-node", "one-task-per-node"])
    nodes = 0
    tags_where = {"smoke": {"test": ["allreduce", "barrier"]}}


@rfm.simple_test
class osu_overlap(Collective):
    """Non-blocking collectives: how much of them overlaps with computation."""

    descr = "OSU non-blocking collective"
    test = parameter(NON_BLOCKING)
    placement = parameter(["full-node"])
    nodes = 0

    def metrics(self) -> list[str]:
        return [f"{self.test}_{part}" for part in ("latency", "pure_latency", "overlap")]


@rfm.simple_test
class osu_collective_published(Collective):
    """Published collectives on the published number of nodes, by collective library."""

    descr = "OSU collective at published scale"
    test = parameter(["allreduce", "barrier"])
    placement = parameter(["one-task-per-node"])
    variant = parameter(variants("library"))
    scale = parameter(published_scales("osu", "one-task-per-node"), fmt=of_scale)
    #: MPI starts on thousands of nodes.
    start_seconds = 600
    tags = {"full"}
