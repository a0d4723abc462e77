"""HPC Challenge: STREAM, DGEMM, HPL, RandomAccess, FFT, and network latency and bandwidth."""

import math
import platform
import re
import subprocess
from pathlib import Path

import reframe as rfm
from plumbline.check import sizing
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.parameters import references
from plumbline.parse import Output, ParseError, outputs
from plumbline.parse.hpcc import KEYS
from plumbline.site import host_load
from reframe.core.builtins import parameter, run_after, run_before, variable

#: Default time limit of a run in seconds.
SAMPLE_SECONDS = 600


@rfm.simple_test
class hpcc(Benchmark):
    """One task on each core. All problem sizes follow from the order of HPL's matrix.

    With ``cache``, the matrix is the smallest whose STREAM vectors on each single task are four
    times the last-level cache, as STREAM's rules require. It is smaller if a run would take too
    long; the condition ``stream_vector`` records which. With ``memory``, it fills 80 % of the
    memory, as HPL is run for rankings.
    """

    descr = "HPC Challenge"
    benchmark = "hpcc"
    program = "hpcc"
    placement = parameter(["full-node"])
    scale = parameter(["cache", "memory"])
    conditions = {"scale": "{scale}", "hpl_block": "{block}"}
    headline = ["star_stream_triad", "single_stream_triad", "hpl", "random_ring_latency"]

    #: Order of the blocks in HPL's matrix.
    block = variable(int, value=192)

    #: Order of HPL's matrix; 0 chooses it by ``scale``.
    n = variable(int, value=0)

    #: hpcc itself repeats its measurements, and a run takes minutes.
    num_samples = 1
    num_warmups = 0
    sample_seconds = SAMPLE_SECONDS
    usual_seconds = 60

    @run_after("init")
    def set_tags_and_limit(self):
        self.limit_given = self.sample_seconds != SAMPLE_SECONDS
        if self.scale == "memory":
            self.tags = {"full"}
            if not self.limit_given:
                self.sample_seconds = 4 * 3600
        else:
            self.tags = {"nightly", "maintenance", "screen"}

    def figures(self) -> list[Figure]:
        return [Figure(metric) for metric, _ in KEYS.values()]

    def verify(self, output: Output) -> None:
        # If hpcc rejects the input file, it runs a default problem and exits with 0.
        if output.inputs["HPL_N"] != str(self.order):
            raise ParseError(
                f"hpcc ran HPL with N = {output.inputs['HPL_N']}, but {self.order} was requested: "
                f"it rejected hpccinf.txt",
                code="output.other-inputs",
            )

    def prepare(self):
        self.set_size(sizing.SLOW)
        # hpcc writes its report to this file, and appends to an existing one.
        self.before_sample = ["rm -f hpccoutf.txt"]
        self.after_sample = ["[ ! -f hpccoutf.txt ] || cat hpccoutf.txt >>sample-$sample.out"]
        if self.shared:
            # Open MPI would also yield in each MPI_Test, and RandomAccess calls millions of them.
            self.env_vars["OMPI_MCA_mpi_yield_when_idle"] = "0"

    @run_before("run")
    def probe(self):
        """Set the size by the speed of this machine, just before the run, when nothing else is
        measured. If a scheduler runs it, this host's speed has no meaning."""
        if self.on_this_machine and self.scale == "cache" and not self.n:
            # If the order is known, the speed only sets the time limit.
            self.set_size(self.measure_speed())

    def set_size(self, speed: sizing.Speed) -> None:
        """Choose the order of the matrix, write the input file, and set conditions and limit."""
        self.order = self.choose_order(speed)
        self.write_file("hpccinf.txt", self.input_file(self.order, self.num_tasks))
        in_memory = sizing.vector(self.order, self.num_tasks) >= 4 * self.last_level_cache
        self.conditions = {
            **self.conditions,
            "hpl_n": str(self.order),
            "stream_vector": "memory" if in_memory else "maybe-cache",
        }
        if self.on_this_machine and not self.limit_given:
            # The limit is for a run that hangs, not for one that takes longer than predicted.
            needed = 5 * sizing.seconds(self.order, self.num_tasks, speed)
            self.sample_seconds = max(SAMPLE_SECONDS, math.ceil(needed))
            self.limit_time(1)

    def choose_order(self, speed: sizing.Speed) -> int:
        """Return the order N of HPL's matrix of doubles, a multiple of its blocks."""
        if known := self.n or self.baseline_order():
            return known
        memory = self.current_partition.extras.get("memory")
        if not memory:
            self.skip_case(
                "the size of the memory is not known: set the partition's extras.memory",
                "placement.memory-unknown",
            )
        if self.scale == "memory":
            return int(sizing.largest(memory, 0.8)) // self.block * self.block
        run = (self.num_tasks, self.last_level_cache, memory, speed)
        if self.on_this_machine:
            return sizing.order_by_time(*run, block=self.block)
        return sizing.order_by_cache(*run, self.sample_seconds, self.block)

    def baseline_order(self) -> int:
        """Return the order of this machine's newest baseline; 0 if there is no baseline.

        A run must have the same order to be compared with it, whatever the probe shows. Also a dry
        run, which does not probe, then finds the assertions.
        """
        if (
            not host_load.is_here(self, self.current_partition)
            or self.scale != "cache"
            or self.shared
        ):
            return 0
        host = platform.node()
        conditions = {"scale": self.scale, "hpl_block": str(self.block)}
        orders = [
            (row.date, int(row.conditions["hpl_n"]))
            for row in references().tables.rows.values()
            if (row.system, row.toolchain, row.benchmark)
            == (self.current_system.name, self.current_environ.name, "hpcc")
            and row.conditions.get("hpl_n", "").isdigit()
            and conditions.items() <= row.conditions.items()
            and row.conditions.get("host", host) == host
        ]
        return max(orders, default=("", 0))[1]

    def measure_speed(self) -> sizing.Speed:
        """Measure the speed of one task on this machine, which takes one or two seconds."""
        folder = Path(self.stagedir, "probe")
        folder.mkdir(exist_ok=True)
        (folder / "hpccinf.txt").write_text(self.input_file(sizing.SMALLEST, 1), encoding="utf-8")
        report = folder / "hpccoutf.txt"
        report.unlink(missing_ok=True)
        try:
            self.run_here(folder, seconds=min(120, self.time_limit))
            text = outputs.read(report)
            flops, updates = (
                float(re.search(rf"^{key}=(\S+)$", text, re.M)[1]) * 1e9
                for key in ("SingleDGEMM_Gflops", "SingleRandomAccess_GUPs")
            )
        except (OSError, subprocess.SubprocessError, TypeError, ValueError):
            # The run itself will report what is wrong with the program.
            return sizing.SLOW
        if not (flops > 0 and updates > 0):
            return sizing.SLOW
        return sizing.Speed(flops, updates, host_load.wait(len(self.topology.cores)))

    def input_file(self, order: int, tasks: int) -> str:
        """Return ``hpccinf.txt``: the input of HPL, then that of PTRANS (no further sizes)."""
        rows = max(p for p in range(1, math.isqrt(tasks) + 1) if tasks % p == 0)
        values = [
            ("HPL.out", "output file"),
            ("8", "device out"),
            ("1", "number of problem sizes"),
            (order, "N"),
            ("1", "number of block sizes"),
            (self.block, "NB"),
            ("0", "row-major process mapping"),
            ("1", "number of process grids"),
            (rows, "P"),
            (tasks // rows, "Q"),
            ("16.0", "threshold"),
            ("1", "number of panel factorizations"),
            ("2", "right-looking"),
            ("1", "number of stopping criteria"),
            ("4", "NBMIN"),
            ("1", "number of panels in recursion"),
            ("2", "NDIV"),
            ("1", "number of recursive panel factorizations"),
            ("1", "Crout"),
            ("1", "number of broadcasts"),
            ("1", "1-ring, modified"),
            ("1", "number of lookahead depths"),
            ("1", "depth"),
            ("2", "swapping: mix"),
            ("64", "swapping threshold"),
            ("0", "L1 transposed"),
            ("0", "U transposed"),
            ("1", "equilibration"),
            ("8", "alignment in doubles"),
            ("#", "separator"),
            ("0", "additional sizes for PTRANS"),
            ("0", "values of N"),
            ("0", "additional block sizes for PTRANS"),
            ("0", "values of NB"),
        ]
        lines = [f"{value}  {meaning}" for value, meaning in values]
        return "\n".join(["HPC Challenge", "written by checks/hpcc.py", *lines, ""])
