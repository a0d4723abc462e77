"""IMB-MPI1 of the Intel MPI Benchmarks 2021."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ..options import Options, Refused, read
from ..run import CAPTURES, Run
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

TABLE = "-npmin= -msglog= -msglen= -iter= -iter_policy= -time="

#: A report, whose heading others have.
REPORT = CAPTURES / "imb" / "pingpong.out"


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    words = run.words[1:]
    chosen = []
    while words and not words[0].startswith("-"):
        word = words.pop(0)
        chosen.append({name.lower(): name for name in ALL}.get(word.lower(), word))
    options, rest = read(words, TABLE, "IMB-MPI1", glued=False)
    if wrong := [name for name in (*chosen, *rest) if name not in ALL]:
        raise Refused(f"Invalid benchmark name {wrong[0]}")
    yield 0, _Report(run, chosen, options).text(), 0


class _Report:
    def __init__(self, run: Run, chosen: list[str], options: Options):
        self.run = run
        self.chosen = chosen
        self.options = options
        self.values = Values(run)
        least, _, most = str(options.get("msglog", "22")).rpartition(":")
        self.sizes = [0, *(2**n for n in range(int(least or 0), int(most) + 1))]

    def text(self) -> str:
        head, mark, _ = REPORT.read_text().partition("# List of Benchmarks to run:\n\n")
        head = re.sub(r"(Calling sequence.*\n.*\n# ).*", rf"\g<1>{' '.join(self.run.words)} ", head)
        head = re.sub(r"(Maximum message.* )\d+", rf"\g<1>{self.sizes[-1]}", head)
        text = head + mark + "".join(f"# {name}\n" for name in self.chosen)
        for name in self.chosen:
            text += self.table(name)
        return text + "\n# All processes entering MPI_Finalize\n\n"

    def table(self, name: str) -> str:
        everyone = len(self.run.tasks)
        least = min(int(self.options.get("npmin", 2)), everyone)
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
        if name in PAIRS or name in EXCHANGES:
            us = self._pair(name, size)
        else:
            us = self._collective(name, size)
        us = self.values.measured(us, True)
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
