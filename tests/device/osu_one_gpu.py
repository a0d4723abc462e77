"""OSU between two tasks that share the only GPU of a machine: ``osu_gpu`` needs a pair of them."""

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


@rfm.simple_test
class osu_one_gpu(Benchmark):
    """Two tasks on two of the cores nearest to a GPU, with messages in the memory of that GPU."""

    descr = "OSU between two tasks on one GPU"
    benchmark = "osu"
    test = parameter([*METRICS])
    program = "osu_{test}"
    environ_features = ["cuda"]
    placement = parameter(["per-gpu"])
    conditions = {"buffer": "device"}
    tags = {"nightly"}
    num_samples = 3
    sample_seconds = 30
    headline = ["latency_8", "bandwidth_1048576"]
    first_sample_seconds = 180
    first_sample_opts = ["-c"]
    first_sample_inputs = {"validation": "pass"}

    def figures(self) -> list[Figure]:
        return [Figure(METRICS[self.test], 2**power) for power in SIZES]

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

    def prepare(self):
        self.executable_opts = ["-m", f"1:{2 ** SIZES[-1]}", "-d", "cuda", "D", "D"]

    def verify(self, output: Output) -> None:
        for name, wanted in (("accelerator", "cuda"), ("buffer", "device")):
            if output.inputs.get(name, wanted) != wanted:
                raise ParseError(
                    f"OSU ran with {name} {output.inputs[name]}, but {wanted} was requested",
                    code="output.other-inputs",
                )
