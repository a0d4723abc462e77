"""GPCNeT 1.3 (network_test.c, network_load_test.c, utils.c)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..run import Run
from ..values import Values

#: Bytes of the bandwidth tests' messages, where the machine's program was not built for others.
BYTES = 131072

_LINE = "+" + "-" * 33 + "+" + ("-" * 14 + "+") * 3
_WIDE = "+" + "-" * 78 + "+"


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    nodes = len(run.nodes)
    loaded = run.program == "network_load_test"
    least = 10 if loaded else 2
    if nodes < least:
        yield 0, f"ERROR: this application must be run on at least {least} nodes\n", 1
        return
    table = _Tables(run)
    yield 0, table.loaded() if loaded else table.isolated(), 0


class _Tables:
    def __init__(self, run: Run):
        self.run = run
        self.values = Values(run)
        self.size = run.machine.facts.get("gpcnet_bytes", BYTES)

    def head(self, name: str, title: str, more: str = "", natural: bool = True) -> str:
        text = f"{name} Tests v1.3\n  Test with {len(self.run.tasks)} MPI ranks "
        text += f"({len(self.run.nodes)} nodes)\n{more}\n  Legend\n"
        text += "   RR = random ring communication pattern\n"
        if natural:
            text += "   Nat = natural ring communication pattern\n"
        text += "   Lat = latency\n   BW = bandwidth\n   BW+Sync = bandwidth with barrier\n"
        return text + self.title(title)

    @staticmethod
    def title(title: str) -> str:
        names = f"|{'Name':>32} |{'Avg':>13} |{'99%':>13} |{'Units':>13} |"
        return f"{_WIDE}\n|{title:^78}|\n{_LINE}\n{names}\n{_LINE}\n"

    def pair(self, metric: str, congestion: str, model: tuple[float, float]) -> list[float]:
        """Mean and 99th percentile; of a bandwidth, the low tail."""
        bandwidth = "bandwidth" in metric
        found = []
        for tail, guess in zip((False, True), model, strict=True):
            printed_value = self.values.gpcnet(metric, congestion, tail)
            value = guess if printed_value is None else printed_value
            found.append(self.values.measured(value, not bandwidth))
        return found

    def rows(
        self, congestion: str, names: list[str] | None = None, factor: float = 1.0
    ) -> tuple[str, dict[str, list[float]]]:
        """The table of some tests, or of all, and its numbers."""
        heavy = 8.0 if congestion == "congested" else 1.0
        link = self.values.links["network"] * 1e3 / 1.048576 / self.run.per_node
        kinds = {
            "RR Two-sided Lat (8 B)": ("random_ring_latency", (3.0 * heavy, 7.0 * heavy**2)),
            "RR Get Lat (8 B)": ("random_ring_get_latency", (4.0 * heavy, 9.0 * heavy**2)),
            f"RR Two-sided BW ({self.size} B)": ("ring_bandwidth_only", (link * 0.5, link * 0.3)),
            f"RR Put BW ({self.size} B)": ("put_bandwidth", (link * 0.5, link * 0.3)),
            f"RR Two-sided BW+Sync ({self.size} B)": (
                "random_ring_bandwidth",
                (link * 0.45 / heavy**0.5, link * 0.25 / heavy),
            ),
            f"Nat Two-sided BW ({self.size} B)": ("natural_bandwidth", (link * 0.6, link * 0.4)),
            "Multiple Allreduce (8 B)": ("multiple_allreduce", (15.0 * heavy, 30.0 * heavy**2)),
            "Multiple Alltoall (4096 B)": ("alltoall_bandwidth", (link * 0.3, link * 0.2)),
        }
        text, found = "", {}
        for name in names or kinds:
            metric, model = kinds[name]
            found[name] = [factor * one for one in self.pair(metric, congestion, model)]
            average, tail = found[name]
            unit = "MiB/s/rank" if "bandwidth" in metric else "usec"
            text += f"|{name:>32} |{average:13.1f} |{tail:13.1f} |{unit:>13} |\n{_LINE}\n"
        return text, found

    def isolated(self) -> str:
        text, _ = self.rows("isolated")
        return self.head("Network", "Isolated Network Tests") + text

    def loaded(self) -> str:
        names = [
            "RR Two-sided Lat (8 B)",
            f"RR Two-sided BW+Sync ({self.size} B)",
            "Multiple Allreduce (8 B)",
        ]
        nodes = len(self.run.nodes)
        congestors = math.floor(0.8 * nodes)
        more = (
            f"  {nodes - congestors} nodes running Network Tests\n"
            f"  {congestors} nodes running Congestion Tests "
            f"(min {congestors // 4} nodes per congestor)\n"
        )
        alone_text, alone = self.rows("isolated", names)
        quiet = self.run.faults.one("quiet")
        if quiet:
            under_text, under = self.rows("isolated", names, quiet.get("factor", 1.0))
        else:
            under_text, under = self.rows("congested", names)
        text = self.head("NetworkLoad", "Isolated Network Tests", more, natural=False) + alone_text
        text += "\n" + self.title("Network Tests running with Congestion Tests") + under_text
        half = "+" + "-" * 33 + "+" + "-" * 44 + "+"
        split = "+" + "-" * 33 + "+" + "-" * 22 + "+" + "-" * 21 + "+"
        text += f"\n{_WIDE}\n|{'Network Tests running with Congestion Tests - Key Results':^78}|\n"
        text += f"{half}\n|{'Name':>32} |{'Congestion Impact Factor':>43} |\n{split}\n"
        text += f"|{'':32} |{'Avg':>21} |{'99%':>20} |\n{split}\n"
        for name in names:
            factors = []
            # From the numbers as they are printed.
            printed = [[round(value, 1) for value in found[name]] for found in (alone, under)]
            for before, after in zip(*printed, strict=True):
                factors.append(before / after if "BW" in name else after / before)
            text += f"|{name:>32} |{factors[0]:20.1f}X |{factors[1]:19.1f}X |\n{split}\n"
        return text
