"""The OSU Micro-Benchmarks 7.4 (c/util/osu_util_options.h, osu_util_mpi.c, c/xccl): the programs
and the options that the checks use."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from ..job import Task
from ..run import Run
from ..values import Values

VERSION = "7.4"


class Test(NamedTuple):
    """One program.

    :ivar title: its heading; ``{}`` is where the kind of device buffers goes.
    :ivar kind: how its options and its table are.
    """

    title: str
    kind: str


_COLLECTIVES = {
    "allgather": "Allgather",
    "allreduce": "Allreduce",
    "alltoall": "All-to-All Personalized Exchange",
    "barrier": "Barrier",
    "bcast": "Broadcast",
    "gather": "Gather",
    "reduce": "Reduce",
    "reduce_scatter": "Reduce_scatter",
    "scatter": "Scatter",
}

TESTS: dict[str, Test] = {
    "osu_latency": Test("MPI{} Latency", "lat"),
    "osu_multi_lat": Test("MPI Multi Latency", "lat"),
    "osu_bw": Test("MPI{} Bandwidth", "bw"),
    "osu_bibw": Test("MPI{} Bi-Directional Bandwidth", "bw"),
    "osu_mbw_mr": Test("MPI Multiple Bandwidth / Message Rate", "mbw"),
    "osu_acc_latency": Test("MPI_Accumulate{} latency", "one-lat"),
    "osu_cas_latency": Test("MPI_Compare_and_swap{} latency", "one-lat"),
    "osu_fop_latency": Test("MPI_Fetch_and_op{} latency", "one-lat"),
    "osu_get_acc_latency": Test("MPI_Get_accumulate latency", "one-lat"),
    "osu_get_latency": Test("MPI_Get{} latency", "one-lat"),
    "osu_put_latency": Test("MPI_Put{} Latency", "one-lat"),
    "osu_get_bw": Test("MPI_Get{} Bandwidth", "one-bw"),
    "osu_put_bw": Test("MPI_Put{} Bandwidth", "one-bw"),
    "osu_put_bibw": Test("MPI_Put{} Bi-directional Bandwidth", "one-bw"),
    **{
        f"osu_{name}": Test(f"MPI{{}} {title} Latency", "barrier" if name == "barrier" else "coll")
        for name, title in _COLLECTIVES.items()
    },
    "osu_iallgather": Test("MPI{} Non-blocking Allgather Latency", "nbc"),
    "osu_iallreduce": Test("MPI{} Non-blocking Allreduce Latency", "nbc"),
    "osu_ialltoall": Test("MPI{} Non-blocking All-to-All Latency", "nbc"),
    "osu_ibarrier": Test("MPI{} Non-blocking Barrier Latency", "nbc-barrier"),
    "osu_ibcast": Test("MPI{} Non-Blocking Broadcast Latency", "nbc"),
    # print_header() of osu_util.c prints no title.
    "osu_xccl_latency": Test("", "xccl-lat"),
    "osu_xccl_bw": Test("", "xccl-bw"),
    "osu_xccl_bibw": Test("", "xccl-bw"),
    **{
        f"osu_xccl_{name}": Test(f"{{}} {_COLLECTIVES[name]} Latency", "xccl-coll")
        for name in ("allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter")
    },
}

#: Options of each kind, as getopt(3) takes them, where they are not :data:`_USUAL`.
_OPTIONS = {
    **dict.fromkeys(("barrier", "nbc-barrier"), "x:i:d:"),
    **dict.fromkeys(("one-lat", "one-bw"), "m:x:i:d:"),
    **dict.fromkeys(("xccl-lat", "xccl-bw"), "m:x:i:c::d:"),
    "xccl-coll": "m:x:i:M:d:",
    **dict.fromkeys(("lat", "bw", "mbw"), "m:x:i:c::T:b:d:"),
}
_USUAL = "m:x:i:c::T:d:"

_DEVICES = {"cuda": "-CUDA", "rocm": "-ROCM"}


class _Bad(Exception):
    """An option that the program does not have, or that lacks its value."""


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    test = TESTS[run.program]
    try:
        options, rest = _read(run.words[1:], _OPTIONS.get(test.kind, _USUAL))
        accelerator = options.get("d", "")
        if accelerator and accelerator not in _DEVICES:
            raise _Bad(f"Invalid accelerator [-d {accelerator}]")
        if options.get("b", "single") not in ("single", "multiple"):
            raise _Bad("Please use 'single' or 'multiple' for buffer type")
    except _Bad as bad:
        print(f"{bad}\n", file=sys.stderr, flush=True)
        yield 0, "", 1
        return
    if test.kind.startswith("xccl"):
        yield from _over_library(run, test, options)
        return
    title = f"# OSU {test.title.format(_DEVICES.get(accelerator, ''))} Test v{VERSION}\n"
    complaint = _too_few(run, test.kind)
    if complaint:
        print(complaint, file=sys.stderr, flush=True)
        yield 0, "", 1
        return
    crash = _accelerator_fails(run, accelerator, rest)
    if crash:
        print(crash, file=sys.stderr, flush=True)
        yield 0, "" if "no device" in crash else "\n" + title, 139 if "fault" in crash else 1
        return
    if accelerator:
        run.tasks = [task._replace(gpus=(device_of(run, task),)) for task in run.tasks]
    table = _Table(run, test.kind, options, bool(accelerator) and "H" not in rest[:2])
    yield 0, table.tables[test.kind](title), 0


#: Vendor -> library, and the title's word.
_LIBRARIES = {"cuda": ("NCCL", "NCCL-CUDA"), "rocm": ("RCCL", "RCCL-ROCM")}

#: Where OSU 7.4 reports that a library did not start.
_REFUSES = {"NCCL": "osu_util_nccl_impl.c: 53", "RCCL": "osu_util_rccl_impl.c: 50"}


def _over_library(run: Run, test: Test, options: dict[str, str]) -> Iterator[tuple[int, str, int]]:
    """A program over NCCL or RCCL, which takes GPUs also without ``-d``."""
    library, word = _LIBRARIES[run.machine.vendor]
    for task in run.tasks[1:]:
        yield task.rank, f"#Using {library}\n", 0
    using = f"#Using {library}\n"
    complaint = _too_few(run, test.kind)
    if not complaint and any(not task.gpus for task in run.tasks):
        complaint = "[osu_util_mpi.c] no device is visible"
    if not complaint:
        run.tasks = [task._replace(gpus=(device_of(run, task),)) for task in run.tasks]
        if len({(task.node, task.gpus) for task in run.tasks}) < len(run.tasks):
            # With NCCL_DEBUG=WARN, init.cc adds "Duplicate GPU detected", and from 2.30 on
            # "Multiple Ranks are using the same GPU/Partition"; no check sets the variable that
            # then allows it.
            complaint = f"Failed: {library} Error {_REFUSES[library]} 'invalid usage'"
    if complaint:
        print(complaint, file=sys.stderr, flush=True)
        yield 0, using, 1
        return
    title = f"# OSU {test.title.format(word)} Test v{VERSION}\n"
    yield 0, using + _Table(run, test.kind, options, True).tables[test.kind](title), 0


def _read(words: list[str], table: str) -> tuple[dict[str, str], list[str]]:
    """Options, and the words behind them (``D D``)."""
    arity = {letter: len(colons) for letter, colons in re.findall(r"(\w)(:*)", table)}
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        letter, value = word[1:2], word[2:]
        if letter not in arity:
            raise _Bad(f"Invalid option [-{letter}]")
        if arity[letter] == 1 and not value:
            if not rest:
                raise _Bad(f"Option requires an argument. [-{letter}]")
            value = rest.pop(0)
        options[letter] = value
    return options, rest


def _too_few(run: Run, kind: str) -> str:
    number = len(run.tasks)
    pairs = ("lat", "bw", "one-lat", "one-bw", "xccl-lat", "xccl-bw")
    if run.program != "osu_multi_lat" and kind in pairs:
        return "" if number == 2 else "This test requires exactly two processes"
    return "" if number > 1 else "This test requires at least two processes"


def _accelerator_fails(run: Run, accelerator: str, rest: list[str]) -> str:
    """Why device buffers do not work here: no GPU, the other vendor's, or an MPI that was not told
    that messages are in GPU memory."""
    if not accelerator:
        return ""
    if accelerator != run.machine.vendor:
        return f"{accelerator.upper()} support not enabled: no device"
    if any(not task.gpus for task in run.tasks):
        return f"[osu_util_mpi.c] {accelerator}: no device is visible"
    if "H" in rest[:2] and "D" not in rest[:2]:
        return ""
    enabled = run.machine.facts.get("accelerated_by", {})
    if (
        "smpiargs" in enabled
        and enabled["smpiargs"] not in run.env.get("FACILITY_SMPIARGS", "").split()
    ):
        return (
            "CUDA Hook Library: Failed to find symbol mem_find_dreg_entries\n"
            "Segmentation fault (core dumped)"
        )
    if "variable" in enabled and run.env.get(enabled["variable"]) != "1":
        return "Segmentation fault (core dumped)"
    return ""


#: Where omb_get_local_rank() of osu_util_mpi.c looks for the local rank, in its order.
LOCAL_RANKS = (
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_PROCID",
    "LOCAL_RANK",
)

_NO_LOCAL_RANK = """\
Warning: OMB could not identify the local rank of the process.
         This can lead to multiple processes using the same GPU.
         Please use the get_local_rank script in the OMB repo for this.
"""


def device_of(run: Run, task: Task) -> int:
    """The GPU that a process takes before MPI_Init, by the node's numbers: init_accel() of
    osu_util_mpi.c."""
    env = run.env_of(task)
    found = next((env[name] for name in LOCAL_RANKS if name in env), None)
    if found is None:
        sys.stderr.write(_NO_LOCAL_RANK)
    local = -1 if found is None else _number(found, 0)
    return task.gpus[local % len(task.gpus) if local >= 0 else 0]


class _Table:
    """A program's table."""

    def __init__(self, run: Run, kind: str, options: dict[str, str], device: bool):
        self.run = run
        self.kind = kind
        self.options = options
        self.device = device
        self.values = Values(run)
        self.first = run.tasks[0]
        self.last = run.tasks[len(run.tasks) // 2]
        self.tables = {
            "lat": self.latency,
            "bw": self.bandwidth,
            "mbw": self.message_rate,
            "coll": self.collective,
            "barrier": self.barrier,
            "nbc": self.nonblocking,
            "nbc-barrier": self.nonblocking,
            "one-lat": self.one_sided,
            "one-bw": self.one_sided,
            "xccl-lat": self.xccl_pair,
            "xccl-bw": self.xccl_pair,
            "xccl-coll": self.xccl_collective,
        }

    # -- pieces -----------------------------------------------------------------------------

    def sizes(self, least: int = 1, most: int = 1 << 22) -> list[int]:
        """Powers of two between the bounds of ``-m``; 0 and then 1 where it begins with 0."""
        low, colon, high = self.options.get("m", "").rpartition(":")
        if colon:
            least = _number(low, least)
        most = _number(high, most)
        sizes = []
        size = least
        while size <= most:
            sizes.append(size)
            size = size * 2 if size else 1
        return sizes

    @property
    def validated(self) -> str:
        return f"{'Pass':>18}" if "c" in self.options else ""

    def rows(self, columns: list[str], sizes: list[int], value, title: str) -> str:
        """A table of sizes."""
        columns = columns + (["Validation"] if "c" in self.options else [])
        name = self.options.get("T", "mpi_char").upper()
        header = f"{'# Size':<10}" + "".join(f"{column:>18}" for column in columns)
        least = 1 if name == "MPI_CHAR" else 4
        text = "".join(
            f"{size:<10d}{value(size)}{self.validated}\n"
            for size in sizes
            if size >= least or not size
        )
        return f"\n{title}# Datatype: {name}.\n{header}\n{text}"

    def measured(self, value: float, lower: bool) -> float:
        gpus = [gpu for task in self.run.tasks[:2] for gpu in task.gpus] if self.device else []
        return self.values.measured(value, lower, gpus)

    # -- programs ---------------------------------------------------------------------------

    def pair(self, size: int, scale: float = 1.0, more: float = 0.0) -> str:
        """What two processes measure: us of a latency, or MB/s."""
        lower = "lat" in self.kind
        of = self.values.latency if lower else self.values.bandwidth
        value = of(self.first, self.last, size, self.device) * scale + more
        value *= 1.7 if "bibw" in self.run.program else 1
        return f"{self.measured(value, lower):18.2f}"

    def latency(self, title: str) -> str:
        return self.rows(["Avg Latency(us)"], self.sizes(), self.pair, title)

    def bandwidth(self, title: str) -> str:
        return self.rows(["Bandwidth (MB/s)"], self.sizes(), self.pair, title)

    def message_rate(self, title: str) -> str:
        pairs = len(self.run.tasks) // 2
        head = f"{title}# [ pairs: {pairs} ] [ window size: 64 ]\n"

        def value(size):
            one = self.values.bandwidth(self.first, self.last, size, self.device)
            link = self.values.links["network"] * 1e3
            rate = min(one * pairs, link) if len(self.run.nodes) > 1 else one * pairs
            rate = self.measured(rate, False)
            return f"{rate:18.2f}{rate * 1e6 / max(size, 1):18.2f}"

        return self.rows(["MB/s", "Messages/s"], self.sizes(), value, head)[1:]

    def _collective_sizes(self, metric: str) -> list[int]:
        """Programs that reduce begin with one integer; those with a message of each rank end where
        these take more than 512 MiB: check_mem_limit() of osu_util_mpi.c."""
        each = metric.removeprefix("i") in ("allgather", "alltoall", "gather", "scatter")
        ranks = len(self.run.tasks) if each else 1
        sizes = self.sizes(4 if "reduce" in metric else 1, 1 << 20)
        return [size for size in sizes if size * ranks <= 512 << 20]

    def collective(self, title: str) -> str:
        metric = self.run.program[4:]

        def value(size):
            us = self.values.collective(metric, size)
            return f"{self.measured(us, True):18.2f}"

        return self.rows(["Avg Latency(us)"], self._collective_sizes(metric), value, title)

    def barrier(self, title: str) -> str:
        us = self.measured(self.values.collective("barrier", 0), True)
        return f"\n{title}# Avg Latency(us)\n{us:17.2f}\n"

    def nonblocking(self, title: str) -> str:
        metric = self.run.program[4:]
        columns = ["Compute(us)", "Pure Comm.(us)", "Overlap(%)"]
        note = f"{title}# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"

        def cells(size):
            us = self.measured(self.values.collective(metric[1:], size), True)
            return [us * 1.5, us * 1.02, us, 52.0]

        if self.kind == "nbc-barrier":
            heads = "".join(f"{column:>18}" for column in columns)
            first, *others = cells(0)
            text = "".join(f"{cell:18.2f}" for cell in others)
            return f"\n{note}# Overall(us){heads}\n{first:13.2f}{text}\n"

        def value(size):
            return "".join(f"{cell:18.2f}" for cell in cells(size))

        return self.rows(["Overall(us)", *columns], self._collective_sizes(metric), value, note)

    def xccl_pair(self, title: str) -> str:
        """No title, and no column for the validation whose head ``-c`` prints."""
        is_latency = self.kind == "xccl-lat"
        head = "Latency (us)" if is_latency else "Bandwidth (MB/s)"
        text = "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n"
        checked = f"{'Validation':>18}" if "c" in self.options else ""
        text += f"{'# Size':<10}{head:>18}{checked}\n"
        for size in self.sizes(0 if is_latency else 1):
            text += f"{size:<10d}{self.pair(size, more=8.0 * is_latency)}\n"
        return text

    def xccl_collective(self, title: str) -> str:
        metric = self.run.program[4:]
        limit = _number(self.options.get("M", ""), 512 << 20)
        if metric in ("xccl_allgather", "xccl_alltoall"):
            limit //= len(self.run.tasks)
        least = 4 if "reduce" in metric else 1
        sizes = [size for size in self.sizes(1, 1 << 20) if least <= size <= limit]
        text = f"\n{title}{'# Size':<10}{'Avg Latency(us)':>18}\n"
        gpus = [gpu for task in self.run.tasks for gpu in task.gpus]
        for size in sizes:
            us = self.values.gpu_collective(metric[5:], size)
            us = self.values.measured(us, True, gpus)
            text += f"{size:<10d}{us:18.2f}\n"
        return text

    def one_sided(self, title: str) -> str:
        program, is_bandwidth = self.run.program, self.kind == "one-bw"
        window, sync = "MPI_Win_allocate", "MPI_Win_flush"
        if program == "osu_get_acc_latency":
            window, sync = "MPI_Win_create", "MPI_Win_lock/unlock"
        if program == "osu_put_bibw":
            sync = "MPI_Win_post/start/complete/wait"
        text = f"{title}# Window creation: {window}\n# Synchronization: {sync}\n"
        if program != "osu_get_acc_latency":
            text += "# Datatype: MPI_CHAR.\n"
        text += f"{'# Size':<10}{'Bandwidth (MB/s)' if is_bandwidth else 'Latency (us)':>18}\n"
        for size in [1] if program in ("osu_cas_latency", "osu_fop_latency") else self.sizes():
            text += f"{size:<10d}{self.pair(size, 0.9 if is_bandwidth else 1.1)}\n"
        return text


def _number(text: str, default: int) -> int:
    """As atoi(3) reads it: 0 of what is no number."""
    if not text:
        return default
    found = re.match(r"\s*\d+", text)
    return int(found.group()) if found else 0
