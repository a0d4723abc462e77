"""BabelStream: bandwidth of a node's memory, of each NUMA domain's, and of each GPU's."""

import math

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.parse import Fom, Output, ParseError
from reframe.core.builtins import parameter, run_after, variable

KERNELS = ["copy", "mul", "add", "triad", "dot"]

#: Bytes of one number.
DOUBLE = 8


class BabelStream(Benchmark):
    """What all of them share: arrays of at least four times the last-level cache."""

    benchmark = "babelstream"

    #: Times that a sample runs each kernel; the best of them is printed.
    #:
    #: :type: :class:`int`
    times = variable(int, value=20)

    headline = ["triad"]
    tags = {"nightly", "maintenance", "screen"}
    sample_seconds = 90

    def figures(self) -> list[Figure]:
        return [*map(Figure, KERNELS), Figure("memory_bandwidth")]

    def derive(self, printed):
        # pmbs23 does not print which kernel its one number is of: read as the best of a run's.
        for location in {figure.location for figure in printed}:
            rates = [fom for figure, fom in printed.items() if figure.location == location]
            best = max(rates, key=lambda fom: fom.value)
            yield Fom("memory_bandwidth", best.value, best.unit, location=location)

    def verify(self, output: Output) -> None:
        # Versions 4.0 and 5.0 print the volume of an array, later ones its elements too.
        volume = f"{self.elements * DOUBLE / 1e6:.1f} MB"
        count = output.inputs.get("array_size", str(self.elements))
        if count != str(self.elements) or output.inputs["array_volume"].split(" (")[0] != volume:
            raise ParseError(
                f"arrays of {count} numbers, {output.inputs['array_volume']}; asked for were "
                f"{self.elements}, {volume}",
                code="output.other-inputs",
            )
        if output.inputs["precision"] != "double":
            raise ParseError(
                f"numbers of {output.inputs['precision']} precision, not double",
                code="output.other-inputs",
            )

    def prepare(self):
        self.elements = self.array_elements()
        self.conditions = {"array_size": str(self.elements), **self.conditions}
        if not self.layout.vendor:
            self.conditions["cores"] = str(self.layout.num_cpus_per_task)
        self.executable_opts = ["-s", str(self.elements), "-n", str(self.times)]

    def array_elements(self) -> int:
        """Numbers in each of the three arrays, a multiple of 1024 as its GPU kernels need."""
        least = 2**25
        if self.layout.vendor:
            memory = self.current_partition.extras.get("gpu_memory", 0)
            # A GPU's cache is far below 256 MiB an array.
            elements, room = least, 0.8 * memory
        else:
            cache = self.topology.last_level_cache
            if not cache:
                self.skip_case(
                    "the size of the last-level cache is not known: give the caches in the "
                    "processor's topology of the partition",
                    "placement.cache-unknown",
                )
            memory = self.current_partition.extras.get("memory", 0)
            share = self.layout.num_cpus_per_task / len(self.topology.cores)
            cache *= math.ceil(share * self.topology.num_last_level_caches)
            elements, room = max(least, 4 * cache // DOUBLE), 0.8 * memory
        elements = -(-elements // 1024) * 1024
        if memory and 3 * elements * DOUBLE > room:
            self.skip_case(
                "arrays of four times the last-level cache do not fit the memory",
                "placement.too-little-memory",
            )
        return elements


@rfm.simple_test
class babelstream(BabelStream):
    """One core, one socket, every core: threads of OpenMP on the cores of the placement."""

    descr = "BabelStream on CPUs"
    program = "omp-stream"
    environ_features = ["omp"]
    placement = parameter(["one-core", "one-socket", "all-cores"])
    tags_where = {"smoke": {"placement": ["all-cores"]}}


@rfm.simple_test
class babelstream_numa(BabelStream):
    """The cores of each NUMA domain with the memory of each."""

    descr = "BabelStream between NUMA domains"
    program = "omp-stream"
    environ_features = ["omp"]
    placement = parameter(["numa-matrix"])
    # A job of every domain with every other, within a debug queue's half hour.
    num_samples = 3
    sample_seconds = 20


@rfm.simple_test
class babelstream_serial(BabelStream):
    """One core without threads."""

    descr = "BabelStream without threads"
    program = "serial-stream"
    environ_features = ["serial"]
    placement = parameter(["one-core"])


@rfm.simple_test
class babelstream_model(BabelStream):
    """The programming models that run on CPUs too, on every core."""

    descr = "BabelStream by programming model"
    program = "{model}-stream"
    environ_features = ["{model}"]
    model = parameter(["kokkos", "sycl"])
    placement = parameter(["all-cores"])


@rfm.simple_test
class babelstream_gpu(BabelStream):
    """Each GPU of a node alone, then all at once."""

    descr = "BabelStream on GPUs"
    program = "{model}-stream"
    environ_features = ["{built_for}"]
    model = parameter(["cuda", "hip", "kokkos", "sycl"])
    placement = parameter(["per-gpu", "all-gpus"])
    tags_where = {"smoke": {"placement": ["per-gpu"]}}
    times = 100
    num_samples = 3
    sample_seconds = 20

    @property
    def built_for(self) -> str:
        """What the environment must have: Kokkos and SYCL are built for CPUs or for GPUs."""
        return self.model if self.model in ("cuda", "hip") else f"{self.model} gpu"

    @run_after("init")
    def separate(self):
        self.output_per_task = self.placement == "all-gpus"
