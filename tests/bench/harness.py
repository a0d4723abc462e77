"""What the harness itself costs, measured on this machine with the real programs.

``make bench`` prints the figures; ``make bench ARGS=--write`` also keeps them as
``docs/bench.json`` and renders ``docs/bench.md`` from it.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import big
from plumbline import parse
from plumbline.check import record, session_files
from plumbline.core import paths
from plumbline.core.formats import markdown_table
from plumbline.placement import placement
from plumbline.placement.topology import Topology
from plumbline.reference.tables import load
from plumbline.site import configuration
from plumbline.software import providers

from bench import BIN, arguments, keep


def timed(command: list[str], results: str) -> float:
    """Wall-clock seconds of a command of ours."""
    env = {**os.environ, "PLUMBLINE_RESULTS": results, "RFM_CONFIG_FILES": str(paths.SETTINGS)}
    began = time.perf_counter()
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def last_records(results: str) -> list[record.Record]:
    """The records of the newest session."""
    return list(record.read(session_files.sessions(Path(results))[-1] / "records.jsonl"))


def session(results: str, *arguments: str) -> tuple[float, list[record.Record]]:
    """One session's wall-clock seconds and records."""
    command = [str(BIN / "reframe"), "-c", str(paths.ROOT / "checks"), "-r", *arguments]
    return timed(command, results), last_records(results)


def listing(results: str, repeats: int) -> list[float]:
    """Seconds of ``reframe -c checks/ -l``."""
    command = [str(BIN / "reframe"), "-c", str(paths.ROOT / "checks"), "-l"]
    return [timed(command, results) for _ in range(repeats)]


def tables(repeats: int) -> list[float]:
    """Seconds of reading all reference tables."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        load(paths.reference())
        found.append(time.perf_counter() - began)
    return found


def overhead(results: str, repeats: int) -> list[float]:
    """Seconds a test case beyond its program's own: of a whole session, shared out."""
    found = []
    for _ in range(repeats):
        wall, records = session(results, "-n", "imb_collective", "-S", "num_samples=1")
        programs = sum(sum(fields.seconds.samples) for fields in records)
        found.append((wall - programs) / len(records))
    return found


def by_hand(samples: int) -> float:
    """Median 8-byte latency of PingPong, started by hand with the same binding, in us."""
    partition = configuration.this_machine()
    topology = Topology.from_processor(partition["processor"], partition["extras"]["usable_cpus"])
    tasks = placement.lay_out("on-socket", topology).tasks
    program = providers.find("pip", "IMB-MPI1")
    cpus = ",".join(str(task.cpus[0]) for task in tasks)
    command = [program.launcher_path, "-n", "2", "-bind-to", f"user:{cpus}", program.path]
    env = {**os.environ, "LD_LIBRARY_PATH": str(providers.prefix_of("mpich") / "lib")}
    latencies = []
    for _ in range(samples + 1):
        done = subprocess.run(
            [*command, "PingPong", "-npmin", "2", "-msglog", "0:22"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        foms = {fom.variable: fom.value for fom in parse.parse("imb", done.stdout).foms}
        latencies.append(foms["pingpong_latency_8"])
    return statistics.median(latencies[1:])


def through_harness(results: str, samples: int) -> float:
    """The same through ReFrame and Plumbline."""
    _, (fields,) = session(
        results, "-n", "imb_p2p%operation=PingPong.*on-socket", "-S", f"num_samples={samples}"
    )
    return next(fom.value for fom in fields.foms if fom.figure == ("pingpong_latency", 8, ""))


def latency(results: str, pairs: int, samples: int) -> list[float]:
    """Harness / by hand, pair by pair, the order alternating."""
    ratios = []
    for pair in range(pairs):
        both = {}
        for side in ("harness", "hand") if pair % 2 else ("hand", "harness"):
            both[side] = by_hand(samples) if side == "hand" else through_harness(results, samples)
        ratios.append(both["harness"] / both["hand"])
        print(f"pair {pair + 1} of {pairs}: {ratios[-1]:.3f}", file=sys.stderr, flush=True)
    return ratios


def measure(pairs: int) -> dict:
    """All figures with their conditions."""
    with tempfile.TemporaryDirectory() as results:
        costs = overhead(results, repeats=3)
        ratios = latency(results, pairs, samples=5)
        return {
            "machine": {"cpus": os.cpu_count(), "kernel": platform.release(),
                        "python": platform.python_version()},
            "date": time.strftime("%Y-%m-%d"),
            "tables_seconds": round(statistics.median(tables(repeats=5)), 3),
            "listing_seconds": round(statistics.median(listing(results, repeats=5)), 3),
            "overhead_seconds_per_case": round(statistics.median(costs), 3),
            "plans": plans(nodes=500),
            "latency_pairs": pairs,
            "latency_ratio_median": round(statistics.median(ratios), 4),
            "latency_ratio_quartiles": [round(q, 4) for q in statistics.quantiles(ratios, n=4)],
        }  # fmt: skip


def plans(nodes: int) -> dict:
    """The plans of a nightly, and of a sweep of all nodes, of a system of so many."""
    with tempfile.TemporaryDirectory() as folder:
        env = big.write(Path(folder))
        return {
            "nodes": nodes,
            "nightly": vars(big.nightly(env)),
            "sweep": vars(big.swept(Path(folder), env, nodes)),
        }


def render(figures: dict) -> str:
    """The figures as the docs' page."""
    machine = figures["machine"]
    low, _, high = figures["latency_ratio_quartiles"]
    plans = figures["plans"]
    rows = [
        ("seconds that Plumbline adds to each test case",
         figures["overhead_seconds_per_case"], "≤ 1"),
        ("seconds to list all checks (`reframe -c checks/ -l`)", figures["listing_seconds"], "≤ 3"),
        *((f"CPU seconds to plan a {name} of {plans['nodes']} nodes ({plan['jobs']} jobs, "
           f"{plan['at_once']} queued at once, at most {plan['node_hours']:.0f} node-hours)",
           round(plan["seconds"], 1), "≤ 10")
          for name, plan in plans.items() if name != "nodes"),
        ("seconds to read all reference tables", figures["tables_seconds"], "≤ 0.2"),
        (f"IMB 8-byte latency under Plumbline divided by that of the same command by hand: median "
         f"of {figures['latency_pairs']} pairs (quartiles)",
         f"{figures['latency_ratio_median']} ({low}, {high})", "median 0.97 to 1.03"),
    ]  # fmt: skip
    lines = [
        "# The overhead of Plumbline",
        "",
        "This page is rendered by `make bench ARGS=--write` from `bench.json`: do not edit it.",
        "",
        "This page shows the time that Plumbline adds to a test case, to listing checks and to",
        "planning a large session, and its effect on a measured latency. `make bench` measures and",
        "prints these numbers.",
        "",
        f"Measured on {figures['date']}: {machine['cpus']} CPUs, Linux {machine['kernel']}, "
        f"Python {machine['python']}.",
        "",
        markdown_table(["what", "measured", "aim"], rows),
        "",
        "The time added to a test case is that of a whole session of IMB's collectives, from its",
        "start to its summary, minus the time of the programs, divided by the number of",
        "test cases. The time of a program includes its launcher. In each latency pair, the run",
        "under Plumbline and the run by hand use the same installation of MPICH and IMB and the",
        "same two cores, with one warm-up and five samples each. The order of the two alternates",
        "from pair to pair.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measures, prints, and keeps the figures if that is asked."""
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of the latency ratio")
    options = parser.parse_args()
    keep("bench", measure(options.pairs), render, options.write)


if __name__ == "__main__":
    main()
