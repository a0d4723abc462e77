"""How quickly the history answers, compared with ReFrame's own store.

``python -m bench.history`` in ``tests/`` prints the figures for a million stored test cases;
``--write`` also keeps them as ``docs/history-speed.json`` and renders ``docs/history-speed.md``
from it. ``--cases`` and ``--reframe-cases`` take less.
"""

from __future__ import annotations

import copy
import datetime
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import records
import reframe
from plumbline.core.formats import markdown_table

from bench import BIN, arguments, keep

NIGHTS = 365
SYSTEMS = 10
#: Figures of each ten cases, in turn.
FIGURES = (1, 1, 1, 1, 1, 1, 4, 4, 4, 12)
LAST_NIGHT = datetime.datetime(2026, 11, 20, 1)


def figure(size: int, number: int) -> dict:
    """A figure of merit whose value, samples and summary are marks to be filled."""
    mark = f"@{number}@"
    return records.figure(
        mark, size=size, placement="off-node", samples=[mark] * 5,
        summary=dict.fromkeys(("min", "median", "mean", "max"), mark) | {"std": 8.25},
        verdict="pass", lower=18000.5, reference=f"alpha-osu_bw-bandwidth-{size}-off-node",
        ceiling=25000.0, headline=size == 1 << 20,
    )  # fmt: skip


def case(number: int, system: str) -> dict:
    """A record as ``--distribute`` over nodes makes it; its session and time are marks."""
    nodes = [f"nid{number:06}", f"nid{number + 1:06}"]
    facts = {"kernel": "6.4.0-150600.23.33-default", "governor": "performance",
             "memory": "527 GB", "cpu": "AMD EPYC 7A53 64-Core Processor"}  # fmt: skip
    figures = FIGURES[number % len(FIGURES)]
    about = {
        "system": system,
        "check": f"osu_p2p %operation=osu_bw %placement=off-node %.part={system}:cpu "
                 f"%.nid={nodes[0]}",
        "case": f"{number:08x} @{system}:cpu+gnu",
        "benchmark": "osu",
        "program": "osu_bw",
        "version": "7.5.1",
        "placement": "off-node",
        "jobid": "1234567",
        "samples": 5,
        "warmups": 1,
        "conditions": {"buffers": "host", "window": "64"},
        "tags": ["nightly", "smoke"],
        "nodes": nodes,
        "build": {"hash": "6bx3wkjqsrqmhwqj5cx3n4xpc4rxc7xs", "sha256": "ab" * 32,
                  "spec": "osu-micro-benchmarks@7.5.1%gcc@14.2.0"},
        "extras": {"maintenance": "no"},
        "hosts": dict.fromkeys(nodes, facts),
        "tasks": [{"rank": rank, "host": node, "cpus": "0", "given": "", "gpus": ""}
                  for rank, node in enumerate(nodes)],
        "output": f"output/{system}/cpu/gnu/osu_p2p_{number:08x}",
        "seconds": {"total": 31.25, "samples": [4.5] * 6},
        "foms": [figure(1 << (20 - n), n) for n in range(figures)],
    }  # fmt: skip
    return records.unvalidated("@session@", "@time@", **about)


def write_year(
    results: Path,
    cases: int,
    nights: int = NIGHTS,
    systems: int = SYSTEMS,
    of: Callable[[int, str], dict] = case,
    level: Callable[[int, int], float] = lambda night, number: 1.0,
) -> int:
    """Writes a session for each system and night.

    :arg of: makes a session's case of that number, as :func:`case` does.
    :arg level: what the values of a case are multiplied by, by nights before the last one and the
        case's number.
    :returns: how many cases were written, at least one a session.
    """
    noise = np.random.default_rng(6)
    each = max(1, cases // nights // systems)
    for index in range(systems):
        system = f"system{index}"
        lines = [records.dumps(of(number, system)) for number in range(each)]
        # A string's mark, with its quotes, gives way to a number.
        shapes = [
            line.replace("%", "%%")
            .replace("@session@", "%(session)s")
            .replace("@time@", "%(time)s")
            for line in lines
        ]
        for number in range(max(FIGURES)):
            shapes = [shape.replace(f'"@{number}@"', f"%({number})r") for shape in shapes]
        planned = [f"{number:08x} @{system}:cpu+gnu" for number in range(each)]
        for night in range(nights):
            begin = LAST_NIGHT - datetime.timedelta(days=nights - 1 - night, minutes=-index)
            session = f"{begin:%Y%m%dT%H%M%SZ}-{index:06x}"
            folder = results / "sessions" / session
            folder.mkdir(parents=True)
            plan = records.plan(session, planned, system=system, extras={"maintenance": "no"})
            (folder / "plan.json").write_text(plan)
            levels = [[20000 * level(nights - 1 - night, number)] for number in range(each)]
            values = (levels * noise.lognormal(0, 0.01, (each, max(FIGURES)))).tolist()
            with (folder / "records.jsonl").open("w") as file:
                for number, shape in enumerate(shapes):
                    ended = begin + datetime.timedelta(seconds=10 * number)
                    fields = {str(n): value for n, value in enumerate(values[number])}
                    fields |= {"session": session, "time": f"{ended:%Y-%m-%dT%H:%M:%SZ}"}
                    file.write(shape % fields + "\n")
    return each * nights * systems


#: What a fresh process is asked, each after the history was opened.
QUESTIONS = {
    "nothing: the index is up to date": "found = []",
    "one system's last month, sessions and cases": (
        "month = Selection(system='system1', since=moment('{month}'));"
        "found = history.sessions(month) + history.cases(month)"
    ),
    "one system's last month, all series": (
        "found = history.series(Selection(system='system1', since=moment('{month}')))"
    ),
    "a whole year of one series": (
        "(found,) = history.series(Selection(system='system1', check='osu_p2p*',"
        "metric='bandwidth', node='nid000001')); found = found.values.tolist()"
    ),
    "a whole year of one system, all series": (
        "found = history.series(Selection(system='system1'))"
    ),
    "a year of all systems, the sessions": "found = history.sessions()",
}
_ASK = """
import sys, time, json, resource
from pathlib import Path
import plumbline.history.history, plumbline.reference.tables
from plumbline.history.history import History
from plumbline.history.series import Selection, moment
began, cpu = time.perf_counter(), time.process_time()
with History(Path(sys.argv[1])) as history:
    {question}
took, cpu = time.perf_counter() - began, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": round(took, 2), "cpu": round(cpu, 2), "MiB": round(peak)}))
"""


def ask(results: Path, question: str) -> dict:
    """Seconds, those of its cores, and peak memory in MiB, of a question in a fresh process."""
    month = LAST_NIGHT - datetime.timedelta(days=30)
    question = question.format(month=f"{month:%Y-%m-%d}")
    code = _ASK.replace("{question}", question)
    done = subprocess.run(
        [sys.executable, "-c", code, results], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def rebuild(results: Path) -> dict:
    """Seconds and peak memory of building the index from all lines, by the command."""
    return command([BIN / "plumbline", "history", "rebuild", "--from", results])


def command(words: list, **options: object) -> dict:
    """Seconds, those of the cores, and peak memory of a command, its start included."""
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, **options) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words}: exit code {process.returncode}")
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu": round(usage.ru_utime + usage.ru_stime, 2),
        "MiB": round(usage.ru_maxrss / 1024),
    }


# -- ReFrame's own store ----------------------------------------------------------------------

_CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Bandwidth(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'echo bandwidth 20000.5'

    @sanity_function
    def validate(self):
        return sn.assert_found('bandwidth', self.stdout)

    @performance_function('MB/s')
    def bandwidth(self):
        return sn.extractsingle(r'bandwidth (\\S+)', self.stdout, 1, float)
"""
_STORE = """
import json, sys
from reframe.core import config, runtime
site = config.load_config('<builtin>')
site.select_subconfig('generic')
runtime.init_runtime(site)
from reframe.frontend.reporting.storage import StorageBackend
store = StorageBackend.default()
for line in sys.stdin:
    store.store(json.loads(line), None)
"""


def reframe_store(folder: Path, cases: int) -> dict[str, str]:
    """Fills a store of ReFrame's own with a year of a system, by its own storage backend, from the
    report of a test that it ran.

    :returns: the environment in which ``reframe`` finds the store.
    """
    (folder / "check.py").write_text(_CHECK)
    env = {key: value for key, value in os.environ.items() if not key.startswith("RFM_")}
    env |= {"HOME": str(folder), "RFM_COLORIZE": "0", "RFM_SYSTEM": "generic",
            "RFM_PREFIX": str(folder / "runs"), "RFM_ENABLE_RESULTS_STORAGE": "1"}  # fmt: skip
    run_one(folder, env)
    # Where ReFrame keeps it by default, below the home folder.
    path = folder / ".reframe" / "reports" / "results.db"
    with sqlite3.connect(path) as db:
        ((blob,),) = db.execute("SELECT json_blob FROM sessions").fetchall()
    report = json.loads(blob)
    (shape,) = report["runs"][0]["testcases"]
    ((name, (_, *rest)),) = shape["perfvalues"].items()
    noise = np.random.default_rng(6)
    each = cases // NIGHTS
    with subprocess.Popen(
        [sys.executable, "-c", _STORE], stdin=subprocess.PIPE, env=env, cwd=folder, text=True
    ) as storing:
        for night in range(NIGHTS):
            ended = time.time() - 86400 * (NIGHTS - night)
            info = report["session_info"]
            info |= {"uuid": str(uuid.uuid4()), "time_start_unix": ended, "time_end_unix": ended,
                     "num_cases": each}  # fmt: skip
            made = []
            for number in range(each):
                made.append(copy.copy(shape))
                values = 20000 * noise.lognormal(0, 0.01, FIGURES[number % len(FIGURES)])
                # One list of figures for each case, as the lines of the other side have.
                made[-1] |= {
                    # A report looks for the sessions that ran the tests of its own session.
                    "name": f"Bandwidth_{number}" if number else "Bandwidth",
                    "session_uuid": info["uuid"],
                    "uuid": f"{info['uuid']}:0:{number}", "job_completion_time_unix": ended,
                    "perfvalues": {f"{name}_{n}": [value, *rest]
                                   for n, value in enumerate(values.tolist())},
                }  # fmt: skip
            report["runs"][0]["testcases"] = made
            storing.stdin.write(json.dumps(report) + "\n")
    with sqlite3.connect(path) as db:
        ((stored,),) = db.execute("SELECT count(*) FROM testcases").fetchall()
    if stored != 1 + each * NIGHTS:
        raise SystemExit(f"ReFrame's store could not be filled: {stored} cases")
    return env


def run_one(folder: Path, env: dict[str, str], *options: str) -> dict:
    """Seconds and peak memory of ReFrame running one test."""
    words = [BIN / "reframe", "-c", "check.py", "-r", *options]
    return command(words, env=env, cwd=folder)


def measure(folder: Path, cases: int, reframe_cases: int) -> dict:
    """All figures with their conditions."""
    year = folder / "year"
    written = write_year(year, cases)
    size = sum(path.stat().st_size for path in year.glob("sessions/*/records.jsonl"))
    built = rebuild(year)
    figures = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(),
                    "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")},
        "versions": {"python": platform.python_version(), "duckdb": duckdb.__version__,
                     "reframe": reframe.VERSION},
        "date": time.strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 1),
        "nice": os.nice(0),
        "cases": written,
        "sessions": len(list(year.glob("sessions/*"))),
        "bytes": size,
        "index_bytes": (year / "history.duckdb").stat().st_size,
        "rebuild": built,
        "questions": {what: ask(year, question) for what, question in QUESTIONS.items()},
    }  # fmt: skip
    grown = next(year.glob("sessions/*/records.jsonl"))
    os.utime(grown)
    figures["questions"]["one session of all has changed"] = ask(year, "found = []")
    shutil.rmtree(year)
    small = folder / "small"
    figures["reframe_cases"] = write_year(small, reframe_cases, systems=1)
    figures["small_rebuild"] = rebuild(small)
    figures["small"] = ask(small, "found = history.series()")
    store = folder / "reframe"
    store.mkdir()
    env = reframe_store(store, reframe_cases)
    figures["reframe_alone"] = run_one(store, env)
    report = "--performance-report=now-400d:now/mean:/"
    figures["reframe"] = run_one(store, env, report)
    return figures


def render(figures: dict) -> str:
    """The figures as the docs' page."""
    machine, versions = figures["machine"], figures["versions"]
    aims = {
        "one system's last month, sessions and cases": "≤ 1 s",
        "one system's last month, all series": "≤ 1 s",
        "a whole year of one series": "≤ 1 s",
    }
    heads, of = ["query", "seconds", "CPU seconds", "MiB"], ("seconds", "cpu", "MiB")
    rows = [("the index built from all lines", figures["rebuild"], "≤ 60 s, ≤ 1 GiB")]
    rows += [(what, found, aims.get(what, "")) for what, found in figures["questions"].items()]
    alone, year = figures["reframe_alone"], figures["reframe"]
    beside = [
        ("ReFrame: run one test", alone),
        ("ReFrame: run one test with `--performance-report` over the year", year),
        ("Plumbline: build the index of the year from scratch, once", figures["small_rebuild"]),
        ("Plumbline: all series of the year", figures["small"]),
    ]
    return "\n".join(
        [
            "# How quickly the history answers",
            "",
            "Rendered by `make bench ARGS=--write` from `history-speed.json`; do not edit.",
            "",
            "Time and memory of queries of a large history, such as `plumbline history list "
            "--since 30d`, and of building its index.",
            "",
            f"Measured on {figures['date']}: {machine['cpus']} CPUs, "
            f"{machine['memory'] / 2**30:.0f} GiB, Linux {machine['kernel']}, Python "
            f"{versions['python']}, DuckDB {versions['duckdb']}, ReFrame {versions['reframe']}; "
            f"load average {figures['load']} before the first query, nice {figures['nice']}.",
            "",
            f"{figures['cases']:,} stored test cases in {figures['sessions']:,} sessions of "
            f"{SYSTEMS} systems over {NIGHTS} nights, {figures['bytes'] / 1e9:.1f} GB of lines, "
            f"{figures['index_bytes'] / 1e6:.0f} MB of index. Each query is a process of its "
            "own, which also opens the index. CPU seconds are those of the process, independent of "
            "other load; memory is its peak.",
            "",
            markdown_table(
                [*heads, "aim"], ([what, *map(f.get, of), aim] for what, f, aim in rows)
            ),
            "",
            f"A year of {figures['reframe_cases']:,} test cases, in ReFrame's own store and in the "
            "history. ReFrame reports only with a run, so the table also has a run of one test "
            "without the report. Its store was written by its own storage backend, with as many "
            "figures for each case.",
            "",
            markdown_table(heads, ([what, *map(f.get, of)] for what, f in beside)),
            "",
        ]
    )


def main() -> None:
    """Measures, prints, and keeps the figures if that is asked."""
    parser = arguments(__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--reframe-cases", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the year is written for a while")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures = measure(Path(folder), options.cases, options.reframe_cases)
    keep("history-speed", figures, render, options.write)


if __name__ == "__main__":
    main()
