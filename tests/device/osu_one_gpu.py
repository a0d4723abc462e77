"""OSU between two tasks that share the only GPU of a machine: ``osu_gpu`` needs a pair of them."""

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.parse import Output, ParseError
from reframe.core.builtins import parameter

#: Tests -> their metric.
METRICS = {"latency": "latency", "bw": "bandwidth"}

#: Powers of two of the message sizes in bytes, up to 4 MiB.
SIZES = range(23)


@rfm.simple_test
class osu_one_gpu(Benchmark):
    """Two tasks on one socket, with messages in the memory of the same GPU."""

    descr = "OSU between two tasks on one GPU"
    benchmark = "osu"
    test = parameter([*METRICS])
    program = "osu_{test}"
    environ_features = ["cuda"]
    placement = parameter(["on-socket"])
    conditions = {"buffer": "device"}
    tags = {"nightly"}
    num_samples = 3
    sample_seconds = 30
    headline = ["latency_8", "bandwidth_1048576"]

    def figures(self) -> list[Figure]:
        return [Figure(METRICS[self.test], 2**power) for power in SIZES]

    def prepare(self):
        self.executable_opts = ["-m", f"1:{2 ** SIZES[-1]}", "-d", "cuda", "D", "D"]

    def verify(self, output: Output) -> None:
        for name, wanted in (("accelerator", "cuda"), ("buffer", "device")):
            if output.inputs.get(name, wanted) != wanted:
                raise ParseError(
                    f"OSU ran with {name} {output.inputs[name]}, but {wanted} was requested",
                    code="output.other-inputs",
                )
