"""The OSU Micro-Benchmarks 7.4 (c/util/osu_util_options.h, osu_util_mpi.c)."""

from __future__ import annotations

import math
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


_BLOCKING = {
    "allgather": "Allgather",
    "allgatherv": "Allgatherv",
    "allreduce": "Allreduce",
    "alltoall": "All-to-All Personalized Exchange",
    "alltoallv": "All-to-Allv Personalized Exchange",
    "alltoallw": "All-to-Allw Personalized Exchange",
    "barrier": "Barrier",
    "bcast": "Broadcast",
    "gather": "Gather",
    "gatherv": "Gatherv",
    "reduce": "Reduce",
    "reduce_scatter": "Reduce_scatter",
    "reduce_scatter_block": "Reduce_scatter_block",
    "scatter": "Scatter",
    "scatterv": "Scatterv",
}
_NONBLOCKING = _BLOCKING | {
    "alltoall": "All-to-All",
    "bcast": "Broadcast",
}

TESTS: dict[str, Test] = {
    "osu_latency": Test("MPI{} Latency", "lat"),
    "osu_latency_persistent": Test("MPI{} Latency Persistent", "lat"),
    "osu_latency_mt": Test("MPI{} Multi-threaded Latency", "lat-mt"),
    "osu_latency_mp": Test("MPI{} Multi-process Latency", "lat-mp"),
    "osu_multi_lat": Test("MPI Multi Latency", "lat"),
    "osu_bw": Test("MPI{} Bandwidth", "bw"),
    "osu_bw_persistent": Test("MPI{} Bandwidth Persistent", "bw"),
    "osu_bibw": Test("MPI{} Bi-Directional Bandwidth", "bw"),
    "osu_bibw_persistent": Test("MPI{} Bi-Directional Bandwidth Persistent", "bw"),
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
    "osu_init": Test("MPI Init", "startup"),
    "osu_hello": Test("MPI Hello World", "startup"),
    **{
        f"osu_{name}": Test(f"MPI{{}} {title} Latency", "coll") for name, title in _BLOCKING.items()
    },
    **{
        f"osu_{name}_persistent": Test(f"MPI{{}} {title} Persistent Latency", "coll")
        for name, title in _BLOCKING.items()
        if name != "reduce_scatter_block"
    },
    **{
        f"osu_i{name}": Test(f"MPI{{}} Non-blocking {title} Latency", "nbc")
        for name, title in _NONBLOCKING.items()
    },
}
TESTS["osu_ibcast"] = Test("MPI{} Non-Blocking Broadcast Latency", "nbc")

#: Options of each kind, as getopt(3) takes them; an accelerator's build has ``d:`` more.
_OPTIONS = {
    "lat": "hvm:x:i:b:c::u:G:D:P:T:Iz::d:",
    "lat-mt": "hvm:x:i:t:c::u:G:D:T:Iz::d:",
    "lat-mp": "hvm:x:i:t:c::u:G:D:P:T:Iz::d:",
    "bw": "hvm:x:i:t:W:b:c::u:G:D:P:T:Iz::d:",
    "mbw": "p:W:R:x:i:m:Vhvb:c::u:G:D:P:T:Iz::d:",
    "coll": "hvfm:i:x:M:a:c::u:G:D:P:T:Ilz::k:d:",
    "barrier": "hvfm:i:x:M:a:u:G:P:Iz::d:",
    "nbc": "hvfm:i:x:M:t:a:c::u:G:D:P:T:Ilz::k:d:r:",
    "nbc-barrier": "hvfm:i:x:M:t:a:G:P:Iz::d:",
    "one-lat": "w:s:hvm:d:x:i:G:Iz::P:",
    "one-bw": "w:s:hvm:d:x:i:W:G:Iz::P:",
    "startup": "I",
}

_LONG = {
    "help": "h", "version": "v", "full": "f", "message-size": "m", "window-size": "W",
    "num-test-calls": "t", "iterations": "i", "warmup": "x", "array-size": "a",
    "sync-option": "s", "win-options": "w", "mem-limit": "M", "accelerator": "d",
    "cuda-target": "r", "print-rate": "R", "num-pairs": "p", "vary-window": "V",
    "validation": "c", "buffer-num": "b", "validation-warmup": "u", "graph": "G", "papi": "P",
    "ddt": "D", "nhbr": "N", "type": "T", "session": "I", "in-place": "l", "tail-lat": "z",
    "root-rank": "k",
}  # fmt: skip

_HELP = {
    "h": ["print this help"],
    "v": ["print version info"],
    "f": ["print full format listing (MIN/MAX latency and ITERATIONS",
          "displayed in addition to AVERAGE latency)"],
    "m": ["[MIN:]MAX - set the minimum and/or the maximum message size to MIN and/or MAX",
          "bytes respectively. Examples:", "-m 128      // min = default, max = 128",
          "-m 2:128    // min = 2, max = 128", "-m 2:       // min = 2, max = default"],
    "W": ["SIZE - set number of messages to send before synchronization (default 64)"],
    "i": ["ITER - number of iterations for timing (default 10000)"],
    "x": ["ITER - set number of warmup", "iterations to skip before timing (default 200)"],
    "b": ["Use different buffers to perform data transfer (default single)",
          "Options: single, multiple"],
    "c": ["[log:<dir>]Enable validation. Disabled by default.",
          'Results are logged into <dir> by passing "log"'],
    "u": ["ITR Set number of warmup iterations to skip before timing when validation"
          "is enabled (default 5)"],
    "G": ["[tty,png,pdf] - graph output of per iteration values."],
    "D": ["[TYPE]:[ARGS] - Enable DDT support",
          "-D cont                          //Contiguous",
          "-D vect:[stride]:[block_length]  //Vector",
          "-D indx:[ddt file path]          //Index"],
    "P": ["[EVENTS]:[PATH] - Enable PAPI support. OMB must be configured with CUDA support.",
          "[EVENTS]       //Comma seperated list of PAPI events",
          "[PATH]         //PAPI output file path"],
    "T": ["[all,mpi_char,mpi_int,mpi_float] - Set MPI_TYPE . Default:MPI_CHAR."],
    "I": ["Enable session based MPI initialization."],
    "z": ["Print tail latencies.", "-z Outputs P99, P90, P50 percentiles",
          "-z<1-99,1-99,1-99..> Comma seperated percentile range"],
    "w": ["WIN_OPTION - Supports MPI>=3. Can be any of the follows:",
          "create       use MPI_Win_create to create an MPI Window object",
          "allocate     use MPI_Win_allocate to create an MPI Window object(not valid when using"
          " device memory)",
          "dynamic      use MPI_Win_create_dynamic to create an MPI Window object"],
    "s": ["SYNC_OPTION - can be any of the follows:",
          "pscw          use Post/Start/Complete/Wait synchronization calls",
          "fence         use MPI_Win_fence synchronization call",
          "lock          use MPI_Win_lock/unlock synchronizations calls",
          "flush         use MPI_Win_flush synchronization call",
          "flush_local   use MPI_Win_flush_local synchronization call",
          "lock_all      use MPI_Win_lock_all/unlock_all synchronization calls"],
    "M": ["SIZE - set per process maximum memory consumption to SIZE bytes",
          "(default 536870912)"],
    "l": ["Run benchmark with MPI_IN_PLACE support."],
    "R": ["[0|1] - Print uni-directional message rate (default 1)"],
    "p": ["PAIRS - Number of pairs involved (default np / 2)"],
    "V": ["Vary the window size (default no)", "[cannot be used with -W]"],
}  # fmt: skip


class _Bad(Exception):
    """An option that the program does not have, or that lacks its value."""


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    test = TESTS[run.program]
    kind = test.kind
    if kind in ("coll", "nbc") and "barrier" in run.program:
        kind = {"coll": "barrier", "nbc": "nbc-barrier"}[kind]
    try:
        options, rest = _read(run.words[1:], _OPTIONS[kind])
    except _Bad as bad:
        print(f"{bad}\n", file=sys.stderr, flush=True)
        yield 0, _usage(run.program, kind), 1
        return
    if "h" in options:
        yield 0, _usage(run.program, kind), 0
        return
    accelerator = options.get("d", "")
    title = f"# OSU {test.title.format(_DEVICES.get(accelerator, ''))} Test v{VERSION}\n"
    if "v" in options:
        yield 0, title, 0
        return
    if accelerator and accelerator not in _DEVICES:
        print(f"Invalid accelerator [-d {accelerator}]\n", file=sys.stderr, flush=True)
        yield 0, _usage(run.program, kind), 1
        return
    complaint = _too_few(run, kind)
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
    device = bool(accelerator) and "H" not in rest[:2]
    table = _Table(run, kind, options, device)
    text = {
        "lat": table.latency,
        "lat-mt": table.latency,
        "lat-mp": table.latency,
        "bw": table.bandwidth,
        "mbw": table.message_rate,
        "coll": table.collective,
        "barrier": table.barrier,
        "nbc": table.nonblocking,
        "nbc-barrier": table.nonblocking,
        "one-lat": table.one_sided,
        "one-bw": table.one_sided,
        "startup": table.startup,
    }[kind](title)
    yield 0, text, 0


_DEVICES = {"cuda": "-CUDA", "rocm": "-ROCM", "managed": "-CUDA MANAGED", "openacc": "-OPENACC"}


def _read(words: list[str], table: str) -> tuple[dict[str, str], list[str]]:
    """Options, and the words behind them (``D D``)."""
    arity = {letter: len(colons) for letter, colons in re.findall(r"(\w)(:*)", table)}
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            letter = _LONG.get(name, "")
            if letter not in arity:
                raise _Bad(f"Invalid option [-{word[2] if len(word) > 2 else '-'}]")
            if arity[letter] == 1 and not equals:
                if not rest:
                    raise _Bad(f"Option requires an argument. [-{letter}]")
                value = rest.pop(0)
            options[letter] = value
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter not in arity:
                raise _Bad(f"Invalid option [-{letter}]")
            if not arity[letter]:
                options[letter] = ""
                continue
            if arity[letter] == 1 and not letters:
                if not rest:
                    raise _Bad(f"Option requires an argument. [-{letter}]")
                letters = rest.pop(0)
            options[letter], letters = letters, ""
    return options, rest


def _usage(program: str, kind: str) -> str:
    """The help, in the order of the build's own table of options."""
    names = {letter: name for name, letter in _LONG.items()}
    order = _OPTIONS[kind].replace("d:", "")
    lines = [f"Usage: {program} [options]", "Options:"]
    for letter in re.findall(r"\w", order):
        first, *others = _HELP.get(letter, [""])
        lines.append(f"  -{letter}, {'--' + names[letter]:<22}{first}")
        lines += [f"{'':28}{line}" for line in others]
    return "\n".join(lines) + "\n"


def _too_few(run: Run, kind: str) -> str:
    number = len(run.tasks)
    pairs = ("lat", "lat-mt", "lat-mp", "bw", "one-lat", "one-bw")
    if run.program == "osu_multi_lat":
        return "This test requires at least two processes" if number < 2 else ""
    if kind in pairs and number != 2:
        return "This test requires exactly two processes"
    if kind in ("coll", "nbc", "mbw", "barrier", "nbc-barrier") and number < 2:
        return "This test requires at least two processes"
    return ""


def _accelerator_fails(run: Run, accelerator: str, rest: list[str]) -> str:
    """Why device buffers do not work here: no GPU, the other vendor's, or an MPI that was not told
    that messages are in GPU memory."""
    if not accelerator:
        return ""
    if (accelerator == "rocm" and run.machine.vendor != "rocm") or (
        accelerator in ("cuda", "managed") and run.machine.vendor != "cuda"
    ):
        return f"{accelerator.upper()} support not enabled: no device"
    if any(not task.gpus for task in run.tasks):
        return f"[osu_util_mpi.c] {accelerator}: no device is visible"
    if "H" in rest[:2] and "D" not in rest[:2]:
        return ""
    told = run.machine.facts.get("accelerated_by", {})
    if "smpiargs" in told and told["smpiargs"] not in run.env.get("FACILITY_SMPIARGS", "").split():
        return (
            "CUDA Hook Library: Failed to find symbol mem_find_dreg_entries\n"
            "Segmentation fault (core dumped)"
        )
    if "variable" in told and run.env.get(told["variable"]) != "1":
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
        self.validates = "c" in options
        self.percentiles = [int(p) for p in re.findall(r"\d+", options.get("z", ""))]
        if "z" in options and not self.percentiles:
            self.percentiles = [50, 90, 99]
        self.first = run.tasks[0]
        self.last = run.tasks[len(run.tasks) // 2] if len(run.tasks) > 1 else run.tasks[0]

    # -- pieces -----------------------------------------------------------------------------

    @property
    def types(self) -> list[str]:
        wanted = [word for word in self.options.get("T", "mpi_char").split(",") if word]
        if wanted == ["all"]:
            wanted = ["mpi_char", "mpi_int", "mpi_float"]
        # Of a list, the program takes the first.
        return [word.upper() for word in wanted[: None if len(wanted) == 3 else 1]]

    def sizes(self, default_least: int = 1, default_most: int = 1 << 22) -> list[int]:
        """Powers of two between the bounds of ``-m``; 0 and then 1 where it begins with 0."""
        text = self.options.get("m", "")
        least, most = default_least, default_most
        if ":" in text:
            low, _, high = text.partition(":")
            least = _number(low, least)
            most = _number(high, most)
        elif text:
            most = _number(text, 0)
        sizes = []
        size = least
        while size <= most:
            sizes.append(size)
            size = size * 2 if size else 1
        return sizes

    def tail(self, value: float) -> str:
        return "".join(f"{value * (1 + p / 400):18.2f}" for p in self.percentiles)

    def heads(self, unit: str) -> str:
        text = f"{'Validation':>18}" if self.validates else ""
        for p in self.percentiles:
            text += f"{f'P{p} Tail {unit}':>18}"
        return text

    def passes(self) -> str:
        return f"{'Pass':>18}" if self.validates else ""

    def rows(self, header: str, sizes: list[int], value, title: str) -> str:
        """A table of sizes for each data type."""
        text = f"\n{title}"
        for name in self.types:
            text += f"# Datatype: {name}.\n{header}\n"
            step = 1 if name == "MPI_CHAR" else 4
            for size in sizes:
                if size >= step or not size:
                    text += f"{size:<10d}{value(size)}\n"
        return text

    # -- programs ---------------------------------------------------------------------------

    def latency(self, title: str) -> str:
        metric = "multi_latency" if "multi" in self.run.program else "latency"

        def value(size):
            us = self.values.latency(self.first, self.last, size, self.device)
            us = self.told(us, True, metric, size)
            return f"{us:18.2f}{self.passes()}{self.tail(us)}"

        header = f"{'# Size':<10}{'Avg Latency(us)':>18}{self.heads('Lat(us)')}"
        return self.rows(header, self.sizes(), value, title)

    def told(self, value: float, lower: bool, metric: str, size: int | None) -> float:
        gpus = [gpu for task in self.run.tasks[:2] for gpu in task.gpus] if self.device else []
        return self.values.measured(value, lower, metric=metric, size=size, gpus=gpus)

    def bandwidth(self, title: str) -> str:
        both = "bibw" in self.run.program

        def value(size):
            rate = self.values.bandwidth(self.first, self.last, size, self.device)
            rate = self.told(rate * (1.7 if both else 1), False, self.run.program[4:], size)
            return f"{rate:18.2f}{self.passes()}{self.tail(rate)}"

        header = f"{'# Size':<10}{'Bandwidth (MB/s)':>18}{self.heads('BW(MB/s)')}"
        return self.rows(header, self.sizes(), value, title)

    def message_rate(self, title: str) -> str:
        pairs = int(self.options.get("p", len(self.run.tasks) // 2))
        window = self.options.get("W", "64")
        head = f"{title}# [ pairs: {pairs} ] [ window size: {window} ]\n"
        rates = self.options.get("R", "1") != "0"

        def value(size):
            one = self.values.bandwidth(self.first, self.last, size, self.device)
            link = self.values.links["network"] * 1e3
            rate = min(one * pairs, link) if len(self.run.nodes) > 1 else one * pairs
            rate = self.told(rate, False, "mbw_mr", size)
            text = f"{rate:18.2f}"
            if rates:
                text += f"{rate * 1e6 / max(size, 1):18.2f}"
            return text + self.passes() + self.tail(rate)

        header = f"{'# Size':<10}{'MB/s':>18}" + (f"{'Messages/s':>18}" if rates else "")
        header += self.heads("BW(MB/s)")
        return self.rows(header, self.sizes(), value, head)[1:]

    def _metric(self) -> str:
        return self.run.program[4:].removesuffix("_persistent")

    def _full(self, average: float, coll: bool = True) -> str:
        iterations = int(self.options.get("i", 1000))
        return f"{average * 0.96:18.2f}{average * 1.05:18.2f}{iterations:12d}"

    def collective(self, title: str) -> str:
        metric = self._metric()
        full = "f" in self.options
        # Programs that reduce begin with one integer.
        least = 4 if "reduce" in metric else 1
        most = min(1 << 20, self._memory(metric))

        def value(size):
            us = self.told(self.values.collective(metric, size), True, metric, size)
            text = f"{us:18.2f}" + (self._full(us) if full else "")
            return text + self.passes() + self.tail(us)

        header = f"{'# Size':<10}{'Avg Latency(us)':>18}"
        if full:
            header += f"{'Min Latency(us)':>18}{'Max Latency(us)':>18}{'Iterations':>12}"
        return self.rows(header + self.heads("Lat(us)"), self.sizes(least, most), value, title)

    def _memory(self, metric: str) -> int:
        """Largest size for which all tasks' blocks fit the limit of memory."""
        limit = int(self.options.get("M", 1 << 29))
        blocks = (
            len(self.run.tasks) if re.match(r"all(gather|toall)|i?gather|i?scatter", metric) else 1
        )
        return max(1, limit // blocks)

    def barrier(self, title: str) -> str:
        us = self.told(self.values.collective("barrier", 0), True, "barrier", None)
        full = "f" in self.options
        header = "# Avg Latency(us)"
        if full:
            header += f"{'Min Latency(us)':>18}{'Max Latency(us)':>18}{'Iterations':>12}"
        return (
            f"\n{title}{header}{self.heads('Lat(us)')}\n"
            f"{us:17.2f}{self._full(us) if full else ''}{self.tail(us)}\n"
        )

    def nonblocking(self, title: str) -> str:
        metric = self._metric()
        full = "f" in self.options
        least = 4 if "reduce" in metric else 1
        sized = "barrier" not in metric
        heads = ["Compute(us)", "Pure Comm.(us)", "Overlap(%)"]
        if full:
            heads = ["Compute(us)", "Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)"]
            heads += ["Pure Comm.(us)", "Min Comm.(us)", "Max Comm.(us)", "Overlap(%)"]

        def value(size):
            us = self.told(self.values.collective(metric[1:], size), True, metric, size)
            overall, compute, overlap = us * 1.5, us * 1.02, 52.0
            columns = [compute, us, overlap]
            if full:
                columns = [compute, 0.2, 0.0, us * 0.4, us, us * 0.97, us * 1.04, overlap]
            first = f"{overall:18.2f}" if sized else f"{overall:13.2f}"
            columns_text = "".join(f"{column:18.2f}" for column in columns)
            return first + columns_text + self.passes() + self.tail(us)

        note = f"{title}# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
        columns_head = "".join(f"{head:>18}" for head in heads) + self.heads("Lat(us)")
        if not sized:
            return f"\n{note}# Overall(us){columns_head}\n{value(0)}\n"
        header = f"{'# Size':<10}{'Overall(us)':>18}{columns_head}"
        most = min(1 << 20, self._memory(metric))
        return self.rows(header, self.sizes(least, most), value, note)

    def one_sided(self, title: str) -> str:
        program = self.run.program
        window, sync = {"osu_get_acc_latency": ("create", "lock")}.get(
            program, ("allocate", "flush")
        )
        if program == "osu_put_bibw":
            sync = "pscw"
        window = self.options.get("w", window)
        sync = self.options.get("s", sync)
        names = {"create": "MPI_Win_create", "allocate": "MPI_Win_allocate"}
        names["dynamic"] = "MPI_Win_create_dynamic"
        syncs = {
            "lock": "MPI_Win_lock/unlock",
            "pscw": "MPI_Win_post/start/complete/wait",
            "fence": "MPI_Win_fence",
            "flush": "MPI_Win_flush",
            "flush_local": "MPI_Win_flush_local",
            "lock_all": "MPI_Win_lock_all/unlock_all",
        }
        text = f"{title}# Window creation: {names[window]}\n# Synchronization: {syncs[sync]}\n"
        if program != "osu_get_acc_latency":
            text += "# Datatype: MPI_CHAR.\n"
        if "d" in self.options:
            text += "# Rank 0 Memory on DEVICE (D) and Rank 1 Memory on DEVICE (D)\n"
        is_bandwidth = self.kind == "one-bw"
        text += f"{'# Size':<10}{'Bandwidth (MB/s)' if is_bandwidth else 'Latency (us)':>18}\n"
        sizes = self.sizes()
        if program in ("osu_cas_latency", "osu_fop_latency"):
            sizes = [1]
        for size in sizes:
            if is_bandwidth:
                value = self.values.bandwidth(self.first, self.last, size, self.device) * 0.9
                value *= 1.7 if "bibw" in program else 1
            else:
                value = self.values.latency(self.first, self.last, size, self.device) * 1.1
            value = self.told(value, not is_bandwidth, program[4:], size)
            text += f"{size:<10d}{value:18.2f}\n"
        return text

    def startup(self, title: str) -> str:
        number = len(self.run.tasks)
        if self.run.program == "osu_hello":
            return f"{title}This is a test with {number} processes\n"
        average = self.told(100 + 12 * math.log2(max(number, 1)), True, "init", None)
        return (
            f"{title}nprocs: {number}, min: {average * 0.98:.0f} ms, "
            f"max: {average * 1.03:.0f} ms, avg: {average:.0f} ms\n"
        )


def _number(text: str, default: int) -> int:
    """As atoi(3) reads it: 0 of what is no number."""
    if not text:
        return default
    found = re.match(r"\s*\d+", text)
    return int(found.group()) if found else 0
