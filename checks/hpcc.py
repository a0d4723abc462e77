"""HPC Challenge: STREAM, DGEMM, HPL, RandomAccess, FFT, and the network's latency and bandwidth."""

import math

import reframe as rfm
from plumbline.check import Benchmark, Figure
from plumbline.parse import Output, ParseError
from plumbline.parse.hpcc import KEYS


@rfm.simple_test
class hpcc(Benchmark):
    """One task on every core; all of its sizes follow from the order of HPL's matrix.

    ``cache`` makes the matrix the smallest whose STREAM vectors are four times the last-level
    cache, as STREAM's rules ask, on each task alone; ``memory`` fills 80 % of the memory with it,
    as HPL is run for a list of systems.
    """

    descr = "HPC Challenge"
    benchmark = "hpcc"
    program = "hpcc"
    placement = parameter(["full-node"])
    scale = parameter(["cache", "memory"])
    headline = ["star_stream_triad", "single_stream_triad", "hpl", "random_ring_latency"]

    #: Order of the blocks of HPL's matrix.
    #:
    #: :type: :class:`int`
    block = variable(int, value=192)

    #: hpcc repeats its own measurements, and a run takes minutes.
    num_samples = 1
    num_warmups = 0
    sample_seconds = 600

    @run_after("init")
    def classify(self):
        self.conditions = {"scale": self.scale, "hpl_block": str(self.block)}
        if self.scale == "memory":
            self.tags = {"full"}
            self.sample_seconds = 4 * 3600
        else:
            self.tags = {"nightly", "maintenance", "screen"}

    def figures(self) -> list[Figure]:
        return [Figure(metric) for metric, _ in KEYS.values()]

    def verify(self, output: Output) -> None:
        # With an input file that it rejects, hpcc runs a problem of its own and exits 0.
        if output.inputs["HPL_N"] != str(self.order()):
            raise ParseError(
                f"hpcc ran HPL with N = {output.inputs['HPL_N']}, asked for was {self.order()}: it "
                f"rejected hpccinf.txt"
            )

    def prepare(self):
        self.write_file("hpccinf.txt", self.input_file())
        self.before_sample = ["rm -f hpccoutf.txt"]
        # hpcc writes its report beside it, and appends to one that is there.
        self.after_sample = ["[ ! -f hpccoutf.txt ] || cat hpccoutf.txt >>sample-$sample.out"]

    def order(self) -> int:
        """Order N of HPL's matrix of doubles, a multiple of its blocks.

        STREAM has three vectors in a task's share of the matrix, so each holds N*N/(3*tasks)
        numbers of 8 bytes.
        """
        memory = self.current_partition.extras.get("memory")
        if not memory:
            self.leave_out("the size of the memory is not known: set the partition's extras.memory")
        largest = math.isqrt(int(0.8 * memory) // 8)
        if self.scale == "memory":
            return largest // self.block * self.block
        cache = self.topology.last_level_cache
        vector = 4 * cache // 8
        wanted = math.isqrt(3 * self.num_tasks * vector)
        if not cache:
            self.leave_out(
                "the size of the last-level cache is not known: give the caches in the processor's "
                "topology of the partition"
            )
        if wanted > largest:
            self.leave_out("vectors of four times the last-level cache do not fit the memory")
        return math.ceil(wanted / self.block) * self.block

    def input_file(self) -> str:
        """``hpccinf.txt``: HPL's own input, then PTRANS' (none beyond HPL's sizes)."""
        rows = max(p for p in range(1, math.isqrt(self.num_tasks) + 1) if self.num_tasks % p == 0)
        values = [
            ("HPL.out", "output file"),
            ("8", "device out"),
            ("1", "number of problem sizes"),
            (self.order(), "N"),
            ("1", "number of block sizes"),
            (self.block, "NB"),
            ("0", "row-major process mapping"),
            ("1", "number of process grids"),
            (rows, "P"),
            (self.num_tasks // rows, "Q"),
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
