"""GPCNeT: a network's latency and bandwidth, alone and under congestion."""

import reframe as rfm
from plumbline.check import Benchmark, Figure
from plumbline.parameters import NONE, of_scale, published_scales, variants

#: Bytes of the bandwidth tests' messages, unless the environment's program was built for others
#: (``extras.gpcnet_message_size``).
MESSAGE = 131072

#: Bytes that each pair of ranks exchanges in the all-to-all.
ALLTOALL = 4096


class Gpcnet(Benchmark):
    """What both programs share. One run under congestion says nothing: the verdict rests on the
    mean of ten (coral-sc19, section 4.4.1)."""

    benchmark = "gpcnet"
    placement = "tasks-per-node"
    num_samples = 10
    sample_seconds = 300

    #: What is measured of: the network alone, or also while others use it.
    traffics = ["isolated"]

    @property
    def message(self) -> int:
        """Bytes of the bandwidth tests' messages."""
        environ = getattr(self, "current_environ", None)
        return environ.extras.get("gpcnet_message_size", MESSAGE) if environ else MESSAGE

    def tests(self) -> list[Figure]:
        """What the program measures, each by its mean and its 99 % tail."""
        return [
            Figure("random_ring_latency", 8),
            Figure("random_ring_sync_bandwidth", self.message),
            Figure("multiple_allreduce_latency", 8),
        ]

    def figures(self) -> list[Figure]:
        return [
            test._replace(metric=f"{test.metric}{tail}", at=traffic)
            for traffic in self.traffics
            for test in self.tests()
            for tail in ("", "_p99")
        ]

    def conditions_at(self, at):
        return {"at": at, "congestion": at} if at else {}

    @run_after("init")
    def head(self):
        self.headline = [Figure("random_ring_latency", 8, at).variable for at in self.traffics]


@rfm.simple_test
class gpcnet_network(Gpcnet):
    """Every pattern of communication, on two nodes."""

    descr = "GPCNeT network_test"
    program = "network_test"
    nodes = 2
    tasks_per_node = 2
    num_samples = 5
    tags = {"nightly", "maintenance"}

    def tests(self) -> list[Figure]:
        return [
            *super().tests(),
            Figure("random_ring_get_latency", 8),
            Figure("random_ring_bandwidth", self.message),
            Figure("random_ring_put_bandwidth", self.message),
            Figure("natural_ring_bandwidth", self.message),
            Figure("multiple_alltoall_bandwidth", ALLTOALL),
        ]


@rfm.simple_test
class gpcnet_load(Gpcnet):
    """A fifth of the nodes measures while the others congest the network: on ten nodes, the
    fewest that the program takes, and on as many as was published."""

    descr = "GPCNeT network_load_test"
    program = "network_load_test"
    variant = parameter(variants("port_policy", "routing"))
    scale = parameter([(10, 2), *published_scales("gpcnet")], fmt=of_scale)
    traffics = ["isolated", "congested"]
    tags = {"full"}

    @run_after("init")
    def choose(self):
        if self.scale != NONE:
            self.nodes, self.tasks_per_node = self.scale
        if self.nodes > 1000:
            self.conditions = {"whole_system": "yes"}

    def figures(self) -> list[Figure]:
        factors = [
            Figure(f"{test.metric}{tail}_congestion_factor")
            for test in self.tests()
            for tail in ("", "_p99")
        ]
        return super().figures() + factors
