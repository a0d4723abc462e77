"""BabelStream: memory bandwidth of a node, of its NUMA domains, and of its GPUs."""

import math

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.declaration import fault
from plumbline.parse import Fom, Output, ParseError
from plumbline.parse.babelstream import NO_GPU
from reframe.core.builtins import parameter, run_after, variable

KERNELS = ["copy", "mul", "add", "triad", "dot"]

#: Bytes per number.
DOUBLE = 8

#: Smallest array, in numbers: 256 MiB, as in the published tables.
SMALLEST = 2**25

#: Arrays that a repetition of the five kernels passes over.
PASSES = 2 + 2 + 3 + 3 + 2

#: Arrays in the memory of the host: three, and up to version 5.0 three copies of them at the end,
#: which it validates.
IN_MEMORY = 6

#: Repetitions of a kernel that are enough if the arrays are so large that one takes 0.1 s.
FEWEST = 6

#: Numbers that a thread may sum. It adds them one after another, and the sum is validated to 2.2e-9
#: (main.cpp at 57637d5). The rounding error depends on the numbers, so on the repetitions: that of
#: a correct sum is less up to here, and 2.2e-9 of 1.4e8 numbers after 6 repetitions.
LONGEST_SUM = 2**27

#: Slowest rates to expect, in bytes per second: of a core that shares the memory with all others,
#: and of the first access to memory (0.5 GB/s on a virtual machine).
PER_CORE, FIRST_ACCESS = 1e9, 0.5e9

#: GPUs of the layout -> SYCL devices that oneAPI's runtime is to show. sycl-stream takes the first
#: device of any kind: where oneAPI's OpenCL is installed, an FPGA that is emulated on the CPU.
SYCL_DEVICES = {"cuda": "cuda:gpu", "rocm": "hip:gpu", "": "*:cpu"}


class BabelStream(Benchmark):
    """Base class: arrays of at least four times the last-level cache."""

    benchmark = "babelstream"

    #: How often a sample runs each kernel. The best rate is printed. Few cores with a large cache,
    #: as of a virtual machine, run it fewer times: each moves what it does of the smallest arrays.
    times = variable(int, value=20)

    headline = ["triad"]
    tags = {"nightly", "maintenance", "screen"}
    sample_seconds = 90
    # Six runs with the smallest arrays that move 64 GB each, at 12 GB/s of one core.
    usual_seconds = 30

    def figures(self) -> list[Figure]:
        return [*map(Figure, KERNELS), Figure("memory_bandwidth")]

    def derive(self, printed):
        # pmbs23 prints one number without its kernel: it is read as the best kernel of a run.
        for location in {figure.location for figure in printed}:
            rates = [fom for figure, fom in printed.items() if figure.location == location]
            best = max(rates, key=lambda fom: fom.value)
            yield Fom("memory_bandwidth", best.value, best.unit, location=location)

    def verify(self, output: Output) -> None:
        # Versions 4.0 and 5.0 print only the volume of an array, later ones also its elements.
        volume = f"{self.elements * DOUBLE / 1e6:.1f} MB"
        count = output.inputs.get("array_size", str(self.elements))
        if count != str(self.elements) or output.inputs["array_volume"].split(" (")[0] != volume:
            raise ParseError(
                f"BabelStream ran with arrays of {count} numbers "
                f"({output.inputs['array_volume']}), but {self.elements} ({volume}) were requested",
                code="output.other-inputs",
            )
        if output.inputs["precision"] != "double":
            raise ParseError(
                f"BabelStream ran in {output.inputs['precision']} precision, not in double",
                code="output.other-inputs",
            )

    def prepare(self):
        self.elements = self.array_elements()
        # Several programs of an environment may have the same placement.
        model = self.program.removesuffix("-stream")
        self.conditions = {"array_size": str(self.elements), "model": model, **self.conditions}
        if not self.layout.vendor:
            self.conditions["cores"] = str(self.layout.num_cpus_per_task)
            self.allow_for_size()
        self.executable_opts = ["-s", str(self.elements), "-n", str(self.times)]
        if self.program == "sycl-stream":
            # The environment or its modules may have selected the devices.
            devices = SYCL_DEVICES[self.layout.vendor]
            self.env_vars["ONEAPI_DEVICE_SELECTOR"] = f"${{ONEAPI_DEVICE_SELECTOR:-{devices}}}"

    def allow_for_size(self) -> None:
        """Raise the time limit, and the estimate, for arrays of large caches."""
        array, cores = self.elements * DOUBLE, self.layout.num_cpus_per_task
        most = max(FEWEST, self.times * SMALLEST * cores // self.elements)
        self.times = min(self.times, most)
        kernels = self.times * PASSES * array / (PER_CORE * cores)
        needed = math.ceil(kernels + IN_MEMORY * array / FIRST_ACCESS)
        self.sample_seconds = max(self.sample_seconds, needed)
        self.result.usual_seconds *= self.elements / SMALLEST

    def array_elements(self) -> int:
        """Return the numbers in each of the three arrays.

        It is a multiple of 1024, which BabelStream's GPU kernels need.
        """
        if self.layout.vendor:
            memory, arrays = self.current_partition.extras.get("gpu_memory", 0), 3
            # As in the published tables. The largest GPUs have as much cache as one array.
            elements = SMALLEST
        else:
            memory, arrays = self.current_partition.extras.get("memory", 0), IN_MEMORY
            share = self.layout.num_cpus_per_task / len(self.topology.cores)
            caches = math.ceil(share * self.topology.num_last_level_caches)
            cache = self.last_level_cache * caches
            elements = max(SMALLEST, 4 * cache // DOUBLE)
        elements = -(-elements // 1024) * 1024
        if memory and arrays * elements * DOUBLE > 0.8 * memory:
            self.skip_case(
                "arrays of four times the last-level cache do not fit in 80 % of the memory",
                "placement.too-little-memory",
            )
        if not self.layout.vendor and elements > LONGEST_SUM * self.layout.num_cpus_per_task:
            self.skip_case(
                f"BabelStream may not validate a correct sum of more than {LONGEST_SUM} numbers "
                f"by each thread, and arrays of four times the last-level cache have {elements}",
                "placement.too-large-cache",
            )
        return elements


@rfm.simple_test
class babelstream(BabelStream):
    """OpenMP threads on one core, on the cores of one socket, and on all cores."""

    descr = "BabelStream on CPUs"
    program = "omp-stream"
    environ_features = ["omp"]
    placement = parameter(["one-core", "one-socket", "all-cores"])
    tags_where = {"smoke": {"placement": ["all-cores"]}}


@rfm.simple_test
class babelstream_numa(BabelStream):
    """The cores of each NUMA domain with the memory of each domain.

    With a single domain, it would be ``all-cores`` of :class:`babelstream` again.
    """

    valid_systems = ["+several-numa-domains"]
    descr = "BabelStream between NUMA domains"
    program = "omp-stream"
    environ_features = ["omp"]
    placement = parameter(["numa-matrix"])
    # One job measures each domain with each: it must fit a debug queue's half hour.
    num_samples = 3
    sample_seconds = 20


@rfm.simple_test
class babelstream_serial(BabelStream):
    """One core, without threads."""

    descr = "BabelStream without threads"
    program = "serial-stream"
    environ_features = ["serial"]
    placement = parameter(["one-core"])


@rfm.simple_test
class babelstream_model(BabelStream):
    """Programming models that also run on CPUs, on all cores."""

    descr = "BabelStream by programming model"
    program = "{model}-stream"
    environ_features = ["{model} -gpu"]
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

    #: The same for all GPUs at once. Nothing makes the tasks wait for each other, so a run has to
    #: be much longer than the starts of processes and CUDA differ: on an H100, on which the five
    #: kernels take 1.14 ms, 5 s.
    times_at_once = variable(int, value=4400)

    @property
    def built_for(self) -> str:
        """Features of the environment. Kokkos and SYCL are built either for CPUs or for GPUs."""
        return self.model if self.model in ("cuda", "hip") else f"{self.model} gpu"

    @run_after("init")
    def set_up_all_gpus(self):
        if self.times_at_once > 8000:
            raise fault(
                self,
                "times_at_once must be at most 8000: each repetition makes the numbers of two "
                "arrays smaller, and after 8,700 their product is 0, which BabelStream cannot "
                "validate",
            )
        if self.placement == "all-gpus":
            self.output_per_task = True
            self.times = self.times_at_once
            # The kernels move 3.2 GB, 50 times a second on the slowest GPU (K20X: 180 GB/s).
            self.sample_seconds += self.times // 50
            self.usual_seconds = 40

    def verify(self, output: Output) -> None:
        super().verify(output)
        device = output.inputs.get("device", "")
        if self.model == "sycl" and (not device or NO_GPU.search(device)):
            raise ParseError(
                f"BabelStream ran on SYCL device {device!r}, which is no GPU: in the environment's "
                f"env_vars, set ONEAPI_DEVICE_SELECTOR, or ACPP_VISIBILITY_MASK of AdaptiveCpp, so "
                f"that only GPUs are visible",
                code="output.other-inputs",
            )
