"""IMB-MPI1 of the Intel MPI Benchmarks 2021."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator

from ..run import Run
from ..values import Values

#: Benchmarks of two processes, and the messages that their bandwidth counts.
PAIRS = {"PingPong": 1, "PingPing": 1}
EXCHANGES = {"Sendrecv": 2, "Exchange": 4}
REDUCTIONS = ("Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block")
COLLECTIVES = (
    *REDUCTIONS,
    *("Allgather", "Allgatherv", "Gather", "Gatherv", "Scatter", "Scatterv", "Alltoall"),
    *("Alltoallv", "Bcast", "Barrier"),
)
ALL = (*PAIRS, *EXCHANGES, *COLLECTIVES)

_VALUED = (
    "-npmin",
    "-msglog",
    "-iter",
    "-iter_policy",
    "-time",
    "-mem",
    "-multi",
    "-map",
    "-input",
)
_VALUED += (
    "-msglen",
    "-off_cache",
    "-root_shift",
    "-sync",
    "-imb_barrier",
    "-data_type",
    "-red_data_type",
)


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    words = run.words[1:]
    chosen, options = [], {}
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            if word not in _VALUED or not words:
                print(f"Invalid option {word}", file=sys.stderr, flush=True)
                yield 0, "", 1
                return
            options[word] = words.pop(0)
        else:
            chosen.append({name.lower(): name for name in ALL}.get(word.lower(), word))
    wrong = [name for name in chosen if name not in ALL]
    if wrong:
        yield 0, f"Invalid benchmark name {wrong[0]}\n", 1
        return
    yield 0, _Report(run, chosen or list(ALL), options).text(), 0


class _Report:
    def __init__(self, run: Run, chosen: list[str], options: dict[str, str]):
        self.run = run
        self.chosen = chosen
        self.options = options
        self.values = Values(run)
        least, _, most = options.get("-msglog", "22").rpartition(":")
        self.sizes = [0, *(2**n for n in range(int(least or 0), int(most) + 1))]

    def text(self) -> str:
        text = (
            "#----------------------------------------------------------------\n"
            "#    Intel(R) MPI Benchmarks 2021.11, MPI-1 part\n"
            "#----------------------------------------------------------------\n"
            f"# Date                  : {time.strftime('%a %b %d %H:%M:%S %Y')}\n"
            "# Machine               : x86_64\n# System                : Linux\n"
            "# Release               : 4.18.0-348.el8.x86_64\n"
            "# Version               : #1 SMP\n# MPI Version           : 3.1\n"
            "# MPI Thread Environment: \n\n\n# Calling sequence was: \n\n"
            f"# {' '.join(self.run.words)} \n\n"
            f"# Minimum message length in bytes:   0\n"
            f"# Maximum message length in bytes:   {self.sizes[-1]}\n#\n"
            "# MPI_Datatype                   :   MPI_BYTE \n"
            "# MPI_Datatype for reductions    :   MPI_FLOAT \n"
            "# MPI_Op                         :   MPI_SUM  \n# \n# \n\n"
            "# List of Benchmarks to run:\n\n"
        )
        text += "".join(f"# {name}\n" for name in self.chosen)
        for name in self.chosen:
            text += self.table(name)
        return text + "\n# All processes entering MPI_Finalize\n\n"

    def table(self, name: str) -> str:
        everyone = len(self.run.tasks)
        least = min(int(self.options.get("-npmin", 2)), everyone)
        if name in PAIRS:
            counts = [min(2, everyone)]
        else:
            counts = [everyone]
            while counts[0] // 2 >= least:
                counts.insert(0, 1 << (counts[0] - 1).bit_length() - 1)
        return "".join(self.one(name, count) for count in counts)

    def one(self, name: str, count: int) -> str:
        times = "  t_min[usec]  t_max[usec]  t_avg[usec]"
        sized = name != "Barrier"
        if name in PAIRS:
            head, width = "      t[usec]   Mbytes/sec", 51
        elif name in EXCHANGES:
            head, width = f"{times}   Mbytes/sec", 77
        else:
            head, width = times, 64 if sized else 51
        line = f"#{'-' * width}\n"
        text = f"\n{line}# Benchmarking {name} \n# #processes = {count} \n"
        left = len(self.run.tasks) - count
        if left:
            text += f"# ( {left} additional processes waiting in MPI_Barrier)\n"
        text += line + ("       #bytes" if sized else "") + f" #repetitions{head}\n"
        for size in self.sizes if sized else [0]:
            if name in REDUCTIONS and 0 < size < 4:
                continue
            text += self.row(name, size, sized)
        return text + "\n"

    def row(self, name: str, size: int, sized: bool) -> str:
        metric = f"{name.lower()}_latency"
        if name in PAIRS or name in EXCHANGES:
            us = self._pair(name, size)
        else:
            us = self._collective(name, size)
        us = self.values.measured(us, True, metric=metric, size=size if sized else None)
        repetitions = min(1000, max(10, 41943040 // max(size, 1)))
        text = f"{size:13d}" if sized else ""
        text += f"{repetitions:13d}"
        count = {**PAIRS, **EXCHANGES}.get(name)
        cells = [us] if name in PAIRS else [us * 0.97, us * 1.02, us]
        if count:
            # The slowest process' time counts.
            cells.append(count * size / (us if name in PAIRS else us * 1.02))
        return text + "".join(f"{cell:13.2f}" for cell in cells) + "\n"

    def _pair(self, name: str, size: int) -> float:
        """A small message as long as the papers' one, a large one at their bandwidth."""
        values, tasks = self.values, self.run.tasks
        first, last = tasks[0], tasks[-1]
        us = values.latency(first, last, size)
        if len(self.run.nodes) > 1:
            printed = values.number(values.find("imb", "pingpong_latency", "off-node"))
            if printed is not None:
                rate = values.number(values.find("imb", "pingpong_bandwidth", "off-node"))
                rate = rate or values.links["network"]
                us = max(printed, size / (rate * 1e3)) * values.looseness([first, last])
        return us * {"PingPong": 1.0, "PingPing": 1.2, "Sendrecv": 1.3, "Exchange": 2.2}[name]

    def _collective(self, name: str, size: int) -> float:
        values, nodes = self.values, len(self.run.nodes)
        metric = f"{name.lower()}_latency"
        library = values.variant["library"]
        rows = [row for row in values.find("imb", metric, library=library) if row["nodes"]]
        printed = values.number(rows)
        if printed is not None and nodes > 1:
            return printed * math.log2(nodes) / math.log2(int(rows[0]["nodes"]))
        return values.collective(name.lower(), size)
