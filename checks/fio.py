"""fio: sequential writes and reads of a file system without the page cache."""

import shlex

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.parse import Output, check_inputs
from reframe.core.builtins import parameter, variable


@rfm.simple_test
class fio(Benchmark):
    """Blocks of 1 MiB with direct I/O, in a scratch folder that is removed at the end."""

    descr = "fio sequential I/O"
    benchmark = "fio"
    program = "fio"
    placement = parameter(["all-cores"])
    direction = parameter(["write", "read"])

    #: Concurrent jobs, each with its own file.
    jobs = variable(int, value=1)

    #: Size of each job's file in MiB.
    size = variable(int, value=1024)

    conditions = {
        "access": "sequential",
        "block": "1MiB",
        "direct": "1",
        "jobs": "{jobs}",
        "size": "{size}MiB",
    }
    headline = ["{direction}_bandwidth"]
    # Six runs of 1 GiB at 0.5 GB/s.
    usual_seconds = 12
    tags = {"smoke", "nightly", "maintenance"}

    def figures(self) -> list[Figure]:
        return [Figure(f"{self.direction}_bandwidth")]

    @property
    def volume(self) -> int:
        """The size of all files in bytes."""
        return self.jobs * self.size * 2**20

    def verify(self, output: Output) -> None:
        check_inputs("fio", output, {"io_bytes": self.volume})

    def prepare(self):
        folder = self.make_scratch(needed=self.volume, direct_io=True)
        self.executable_opts = [
            "--name=plumbline",
            # A colon would separate folders.
            "--directory=" + str(folder).replace(":", r"\:"),
            f"--rw={self.direction}",
            "--bs=1M",
            f"--size={self.size}M",
            f"--numjobs={self.jobs}",
            "--direct=1",
            "--end_fsync=1",
            "--ioengine=psync",
            "--group_reporting",
            "--output-format=json",
        ]
        self.after_sample = [f"rm -f -- {shlex.quote(str(folder))}/plumbline.*"]
