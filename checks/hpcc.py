"""HPC Challenge: STREAM, DGEMM, HPL, RandomAccess, FFT, and the network's latency and bandwidth."""

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
from plumbline.site import load
from reframe.core.builtins import parameter, run_after, run_before, variable

#: Seconds that a run may take where nothing else says it.
SAMPLE_SECONDS = 600


@rfm.simple_test
class hpcc(Benchmark):
    """One task on every core; all of its sizes follow from the order of HPL's matrix.

    ``cache`` makes the matrix the smallest whose STREAM vectors are four times the last-level
    cache, as STREAM's rules ask, on each task alone, or smaller where a run would take too long:
    the condition ``stream_vector`` says which. ``memory`` fills 80 % of the memory with it, as HPL
    is run for a list of systems.
    """

    descr = "HPC Challenge"
    benchmark = "hpcc"
    program = "hpcc"
    placement = parameter(["full-node"])
    scale = parameter(["cache", "memory"])
    conditions = {"scale": "{scale}", "hpl_block": "{block}"}
    headline = ["star_stream_triad", "single_stream_triad", "hpl", "random_ring_latency"]

    #: Order of the blocks of HPL's matrix.
    #:
    #: :type: :class:`int`
    block = variable(int, value=192)

    #: Order of HPL's matrix; 0 chooses it by ``scale``.
    #:
    #: :type: :class:`int`
    n = variable(int, value=0)

    #: hpcc repeats its own measurements, and a run takes minutes.
    num_samples = 1
    num_warmups = 0
    sample_seconds = SAMPLE_SECONDS
    usual_seconds = 60

    @run_after("init")
    def classify(self):
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
        # With an input file that it rejects, hpcc runs a problem of its own and exits 0.
        if output.inputs["HPL_N"] != str(self.order):
            raise ParseError(
                f"hpcc ran HPL with N = {output.inputs['HPL_N']}, asked for was {self.order}: it "
                f"rejected hpccinf.txt",
                code="output.other-inputs",
            )

    def prepare(self):
        self.size_by(sizing.SLOW)
        self.before_sample = ["rm -f hpccoutf.txt"]
        # hpcc writes its report beside it, and appends to one that is there.
        self.after_sample = ["[ ! -f hpccoutf.txt ] || cat hpccoutf.txt >>sample-$sample.out"]
        if self.shared:
            # Open MPI yields in each MPI_Test too, of which RandomAccess does millions.
            self.env_vars["OMPI_MCA_mpi_yield_when_idle"] = "0"

    @run_before("run")
    def probe(self):
        """Sizes a run on the machine at hand by its speed, in the moment before it starts: nothing
        else is measured then. Where a scheduler runs it, this host's speed would say nothing."""
        if self.on_this_machine and self.scale == "cache" and not self.n:
            # With an order that is known, for the time limit alone.
            self.size_by(self.speed_here())

    def size_by(self, speed: sizing.Speed) -> None:
        """Chooses the order of the matrix, writes the input file, and says how STREAM's vectors
        compare with the cache."""
        self.order = self.order_for(speed)
        self.write_file("hpccinf.txt", self.input_file(self.order, self.num_tasks))
        in_memory = sizing.vector(self.order, self.num_tasks) >= 4 * self.cache
        self.conditions = {
            **self.conditions,
            "hpl_n": str(self.order),
            "stream_vector": "memory" if in_memory else "maybe-cache",
        }
        if self.on_this_machine and not self.limit_given:
            # The limit is for what hangs, not for a prediction that was short.
            needed = 5 * sizing.seconds(self.order, self.num_tasks, speed)
            self.sample_seconds = max(SAMPLE_SECONDS, math.ceil(needed))
            self.limit_time(1)

    @property
    def cache(self) -> int:
        """Bytes of the last-level cache."""
        found = self.topology.last_level_cache
        if not found:
            self.leave_out(
                "the size of the last-level cache is not known: give the caches in the processor's "
                "topology of the partition",
                "placement.cache-unknown",
            )
        return found

    def order_for(self, speed: sizing.Speed) -> int:
        """Order N of HPL's matrix of doubles, a multiple of its blocks."""
        if known := self.n or self.order_of_baseline():
            return known
        memory = self.current_partition.extras.get("memory")
        if not memory:
            self.leave_out(
                "the size of the memory is not known: set the partition's extras.memory",
                "placement.memory-unknown",
            )
        if self.scale == "memory":
            return int(sizing.largest(memory, 0.8)) // self.block * self.block
        if self.on_this_machine:
            return sizing.by_time(self.num_tasks, self.cache, memory, speed, block=self.block)
        return sizing.by_cache(
            self.num_tasks, self.cache, memory, speed, self.sample_seconds, self.block
        )

    def order_of_baseline(self) -> int:
        """The order that the newest baseline of the machine at hand was measured with; 0 without.

        Whatever a probe would say, a run of this order is compared with it. And a dry run, which
        does not probe, finds what would be asserted.
        """
        if not load.is_here(self.current_partition) or self.scale != "cache" or self.shared:
            return 0
        here = platform.node()
        asked = {"scale": self.scale, "hpl_block": str(self.block)}
        known = [
            (row.date, int(row.conditions["hpl_n"]))
            for row in references().tables.rows.values()
            if (row.system, row.toolchain, row.benchmark)
            == (self.current_system.name, self.current_environ.name, "hpcc")
            and row.conditions.get("hpl_n", "").isdigit()
            and asked.items() <= row.conditions.items()
            and row.conditions.get("host", here) == here
        ]
        return max(known, default=("", 0))[1]

    def speed_here(self) -> sizing.Speed:
        """How fast one task is on this machine now: a run of one task takes a second or two."""
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
            # Whatever is wrong with the program, the run itself will say it.
            return sizing.SLOW
        if not (flops > 0 and updates > 0):
            return sizing.SLOW
        return sizing.Speed(flops, updates, load.wait(len(self.topology.cores)))

    def input_file(self, order: int, tasks: int) -> str:
        """``hpccinf.txt``: HPL's own input, then PTRANS' (none beyond HPL's sizes)."""
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
