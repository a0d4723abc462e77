"""GPCNeT: latency and bandwidth of a network, idle and under congestion."""

import math
import statistics
from collections.abc import Iterator

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.parameters import NONE, of_scale, published_scales, variants
from plumbline.check.states import SUSPICIOUS, Notice
from plumbline.parse import Output, check_inputs
from reframe.core.builtins import parameter, run_after

#: Bytes of the bandwidth tests' messages, unless the environment's program was built for another
#: size (``extras.gpcnet_message_size``).
MESSAGE = 131072

#: Bytes that each pair of ranks exchanges in the all-to-all.
ALLTOALL = 4096

#: Share of the nodes that cause congestion; their number is rounded down
#: (``CONGESTOR_NODE_FRAC`` in network_load_test.c).
CONGESTORS = 0.8

#: Congestion factor below which GPCNeT prints 1.0X or less, and smallest published slowdown that a
#: measurement must show too.
FACTOR_NONE = 1.05
FACTOR_PUBLISHED = 1.5


class Gpcnet(Benchmark):
    """Base class. A single run under congestion shows nothing, so the verdict is on the mean of
    ten (coral-sc19, section 4.4.1)."""

    benchmark = "gpcnet"
    placement = "tasks-per-node"
    num_samples = 10
    sample_seconds = 300

    #: Kinds of traffic that are measured: an idle network (``isolated``), or also a ``congested``
    #: one.
    traffics = ["isolated"]

    @property
    def message(self) -> int:
        """Bytes of the bandwidth tests' messages."""
        environ = getattr(self, "current_environ", None)
        return environ.extras.get("gpcnet_message_size", MESSAGE) if environ else MESSAGE

    def tests(self) -> list[Figure]:
        """Return what the program measures, each with a mean and a 99th percentile."""
        return [
            Figure("random_ring_latency", 8),
            Figure("random_ring_sync_bandwidth", self.message),
            Figure("multiple_allreduce_latency", 8),
        ]

    def figures(self) -> list[Figure]:
        return [
            test._replace(metric=f"{test.metric}{tail}", location=traffic)
            for traffic in self.traffics
            for test in self.tests()
            for tail in ("", "_p99")
        ]

    def requested_inputs(self) -> dict[str, str]:
        """Return the inputs that the program must print."""
        return {"program": self.program, "nodes": str(self.layout.num_nodes)}

    def verify(self, output: Output) -> None:
        check_inputs("GPCNeT", output, self.requested_inputs())

    def conditions_at(self, location):
        return {"location": location, "congestion": location} if location else {}


@rfm.simple_test
class gpcnet_network(Gpcnet):
    """All communication patterns, on two nodes."""

    descr = "GPCNeT network_test"
    program = "network_test"
    headline = ["random_ring_latency_8_isolated"]
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
    """A fifth of the nodes measures while the others cause congestion.

    It runs on ten nodes, the fewest that the program accepts, and on the published numbers.
    """

    descr = "GPCNeT network_load_test"
    program = "network_load_test"
    headline = ["random_ring_latency_8_isolated", "random_ring_latency_8_congested"]
    variant = parameter(variants("port_policy", "routing"))
    scale = parameter([(10, 2), *published_scales("gpcnet")], fmt=of_scale)
    traffics = ["isolated", "congested"]
    tags = {"full"}

    @run_after("init")
    def mark_whole_system(self):
        if self.scale != NONE and self.scale[0] > 1000:
            self.conditions = {"whole_system": "yes"}

    def requested_inputs(self) -> dict[str, str]:
        nodes = self.layout.num_nodes
        congestors = math.floor(CONGESTORS * nodes)
        split = {"test_nodes": str(nodes - congestors), "congestor_nodes": str(congestors)}
        return super().requested_inputs() | split

    def doubts(self) -> Iterator[Notice]:
        # A network that isolates traffic (as Slingshot does) has factors of 1.0 as well. So only
        # equality in all digits, or a published slowdown of this case, shows a fault.
        pairs = [
            (figure, figure._replace(location="congested"))
            for figure in self.result.figures
            if figure.location == "isolated"
        ]
        samples = {figure: found.samples for figure, found in self.result.figures.items()}
        bounds = {figure: judged.bounds for figure, judged in self.result.judgements.items()}
        published = [
            bounds[congested]
            for isolated, congested in pairs
            if bounds[isolated]
            and bounds[congested]
            and bounds[congested].value >= FACTOR_PUBLISHED * bounds[isolated].value
        ]
        factors = [v for f, v in samples.items() if f.metric.endswith("_congestion_factor")]
        if all(samples[isolated] == samples[congested] for isolated, congested in pairs):
            finding, source = "equals the isolated one in all digits", ""
        elif published and all(statistics.fmean(values) < FACTOR_NONE for values in factors):
            finding = "is as good as the isolated one, but a slowdown was published"
            source = published[0].decides
        else:
            return
        yield Notice(
            SUSPICIOUS,
            "figure.no-congestion",
            f"every figure under congestion {finding}: check that the congestors ran",
            source=source,
        )

    def figures(self) -> list[Figure]:
        factors = [
            Figure(f"{test.metric}{tail}_congestion_factor")
            for test in self.tests()
            for tail in ("", "_p99")
        ]
        return super().figures() + factors
