"""OSU between two tasks that share the only GPU of a machine: ``osu_gpu``, ``osu_xccl_gpu`` and
``osu_xccl_node`` need several."""

import dataclasses

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.parse import Output, ParseError
from plumbline.placement.topology import PlacementError
from reframe.core.builtins import parameter

#: Tests -> their metric.
METRICS = {"latency": "latency", "bw": "bandwidth"}

#: Powers of two of the message sizes in bytes, up to 4 MiB.
SIZES = range(23)

#: Without CUDA's MPS a GPU runs one process at a time, for 2.5 ms each on an H100: OSU's thousands
#: of messages would take minutes.
FEW = ["-i", "10", "-x", "1"]


#: Programs over NCCL -> the metric that they print, and that of their figures. ``osu_xccl_bibw``
#: prints what ``osu_xccl_bw`` prints.
XCCL = {
    "latency": ("xccl_latency", "xccl_latency"),
    "bw": ("xccl_bandwidth", "xccl_bandwidth"),
    "bibw": ("xccl_bandwidth", "xccl_bibandwidth"),
    **{
        test: (f"xccl_{test}_latency", f"xccl_{test}_latency")
        for test in ("allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter")
    },
}


class OnOneGpu(Benchmark):
    """Two tasks on two of the cores nearest to a GPU, with messages in the memory of that GPU."""

    benchmark = "osu"
    placement = parameter(["per-gpu"])
    conditions = {"buffer": "device"}
    tags = {"nightly"}
    num_samples = 1
    sample_seconds = 30

    def lay_out(self, partition, topology):
        # The placement has one task on all cores of the GPU. Both are to see this GPU alone.
        layouts = super().lay_out(partition, topology)
        cores = [layout.tasks[0].cores[:2] for layout in layouts]
        if any(len(two) < 2 for two in cores):
            raise PlacementError("two tasks need two cores", code="placement.too-few-cores")
        return tuple(
            dataclasses.replace(
                layout,
                tasks=tuple(dataclasses.replace(layout.tasks[0], cores=(core,)) for core in two),
            )
            for layout, two in zip(layouts, cores, strict=True)
        )

    def verify(self, output: Output) -> None:
        for name, wanted in (("accelerator", "cuda"), ("buffer", "device")):
            if output.inputs.get(name, wanted) != wanted:
                raise ParseError(
                    f"OSU ran with {name} {output.inputs[name]}, but {wanted} was requested",
                    code="output.other-inputs",
                )


@rfm.simple_test
class osu_one_gpu(OnOneGpu):
    """Over MPI."""

    descr = "OSU between two tasks on one GPU"
    test = parameter([*METRICS])
    program = "osu_{test}"
    environ_features = ["cuda"]
    headline = ["latency_8", "bandwidth_1048576"]
    first_sample_seconds = 180
    first_sample_opts = ["-c"]
    first_sample_inputs = {"validation": "pass"}

    def figures(self) -> list[Figure]:
        return [Figure(METRICS[self.test], 2**power) for power in SIZES]

    def prepare(self):
        self.executable_opts = ["-m", f"1:{2 ** SIZES[-1]}", *FEW, "-d", "cuda", "D", "D"]


@rfm.simple_test
class osu_xccl_one_gpu(OnOneGpu):
    """Over NCCL, which refuses two ranks on one GPU before 2.30, and since then without the first
    variable ("experimental": NCCL's user guide)."""

    descr = "OSU over NCCL between two tasks on one GPU"
    test = parameter([*XCCL])
    program = "osu_xccl_{test}"
    environ_features = ["xccl"]
    start_seconds = 120
    headline = ["{metric}_8"]
    env_vars = {
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        # The ranks share the multiprocessors, and each waits for the other while it runs.
        "NCCL_MAX_CTAS": "2",
        # Why NCCL refuses. Its lines would otherwise be within OSU's table.
        "NCCL_DEBUG": "WARN",
        "NCCL_DEBUG_FILE": "/dev/stderr",
    }

    @property
    def metric(self) -> str:
        """The metric of the figures."""
        return XCCL[self.test][1]

    def figures(self) -> list[Figure]:
        return [Figure(self.metric, 2**power) for power in SIZES if 2**power >= 8]

    def parse(self, text: str) -> Output:
        output = super().parse(text)
        printed, metric = XCCL[self.test]
        foms = (
            dataclasses.replace(fom, metric=metric) if fom.metric == printed else fom
            for fom in output.foms
        )
        return dataclasses.replace(output, foms=tuple(foms))

    def prepare(self):
        window = ["-W", "4"] if self.test in ("bw", "bibw") else []
        self.executable_opts = ["-m", f"8:{2 ** SIZES[-1]}", *FEW, *window]
