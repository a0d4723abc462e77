"""What a report costs, and how that grows with nights and series.

``python -m bench.report`` in ``tests/`` prints the figures; ``--write`` also keeps them as
``docs/report-speed.json`` and renders ``docs/report-speed.md`` from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from plumbline.core.formats import markdown_table

from bench import BIN, DOCS, arguments, chromium, fleet, keep
from bench.history import case, figure, rebuild, write_year

SYSTEMS = 2
#: Message sizes of a check.
SIZES = 10
#: Series and nights; and what is chosen of them, where not all is.
SHAPES = [
    (250, 365, ()),
    (500, 365, ()),
    (1000, 90, ()),
    (1000, 180, ()),
    (1000, 365, ()),
    (1000, 365, ("--since", "90d")),
    (50000, 12, ()),
]

#: Nodes and nights of the large site.
SITE = 500, 365
#: Kind of a page -> its files, what its address ends with, and what shows that it is drawn.
PAGES = {
    "start": ("index.html", "", "main h1"),
    "system": ("systems/*.html", "", "main table"),
    "check": ("checks/*.html", "", ".chart svg path"),
    "node": ("nodes/*.html", "", "main table"),
    "session": ("sessions/*.html", "", "main h1"),
    "changes": ("changes.html", "", "main h1"),
    "sessions": ("sessions.html", "", "main table"),
    "compare": ("compare.html", "", "#table td"),
    "search": ("search.html", "#nid000001", "#results a"),
}


def sizes(number: int, system: str) -> dict:
    """A record of a check of its own, over message sizes."""
    check = f"osu_p2p_{number} %operation=osu_bw %placement=off-node"
    foms = [figure(1 << (20 - n), n) for n in range(SIZES)]
    return case(number, system) | {"check": check, "foms": foms}


def level(before: int, number: int) -> float:
    """Every fifth check lost 6 % some weeks ago, or gained as much."""
    return 1.0 if number % 5 or before > 20 + number else 0.94 if number % 2 else 1.06


def memory(session: int) -> int:
    """What the processes of a session hold now, in bytes; what they share counts once."""
    held = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # One that has just ended.
            if int(status.read_text().rpartition(")")[2].split()[3]) == session:
                rollup = (status.parent / "smaps_rollup").read_text()
                held += 1024 * int(re.search(r"^Pss: +(\d+)", rollup, re.M)[1])
    return held


def measured(words: list, codes: tuple[int, ...]) -> dict:
    """Seconds of a command, seconds of the cores and peak memory of all its processes, in MiB.

    :arg codes: exit codes with which it has done its work.
    """
    began, peak = time.perf_counter(), 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            peak = max(peak, memory(process.pid))
            # What it costs to look must not be what is measured.
            time.sleep(0.5)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise SystemExit(f"{words}: exit code {process.returncode}")
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu": round(usage.ru_utime + usage.ru_stime, 1),
        "MiB": round(peak / 2**20),
    }


def report(
    folder: Path,
    chosen: tuple[str, ...],
    look: Callable[[Path], object] = lambda out: None,
    codes: tuple[int, ...] = (0,),
) -> dict:
    """What a report costs, and what it is made of.

    :arg look: looks at it before it is removed.
    """
    out = folder / "report"
    found = measured([BIN / "plumbline", "report", "--from", folder, "--out", out, *chosen], codes)
    files = [path for path in out.rglob("*") if path.is_file()]
    parts = {"data": "CSV files", "checks": "pages of checks", "sessions": "pages of sessions",
             "assets": "chart library, style"}  # fmt: skip
    for path in files:
        top = path.relative_to(out).parts[0]
        name = parts.get(top, "other pages")
        found.setdefault("bytes", {}).setdefault(name, 0)
        found["bytes"][name] += path.stat().st_size
    found["pages"] = sum(path.suffix == ".html" for path in files)
    found["load"] = round(os.getloadavg()[0], 1)
    look(out)
    shutil.rmtree(out)
    return found


def loads(out: Path) -> dict[str, float]:
    """Seconds until the largest page of each kind is loaded and has drawn what is in sight."""
    largest = {
        kind: max(out.glob(pattern), key=lambda path: path.stat().st_size, default=None)
        for kind, (pattern, _, _) in PAGES.items()
    }
    found = {}
    with chromium() as browser:
        for kind, path in largest.items():
            if path is None:
                continue
            _, fragment, drawn = PAGES[kind]
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            began = time.perf_counter()
            page.goto(path.as_uri() + fragment, wait_until="load")
            page.wait_for_selector(drawn, state="attached")
            page.evaluate(
                "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
            )
            found[kind] = round(time.perf_counter() - began, 2)
            page.close()
    return found


def site(folder: Path, nodes: int, nights: int) -> dict:
    """What the report of a site costs, and how long its pages load."""
    fleet.write(folder, nodes, nights)
    opened: dict[str, float] = {}
    # With 2 it has skipped records: those around a false alarm in the nights that have none.
    found = report(folder, (), lambda out: opened.update(loads(out)), (0, 2))
    return found | {"nodes": nodes, "nights": nights, "figures": fleet.FIGURES * fleet.CHECKS,
                    "loads": opened, "date": time.strftime("%Y-%m-%d"),
                    "cpus": os.cpu_count()}  # fmt: skip


def measure(folder: Path) -> dict:
    """All figures with their conditions."""
    made = {}
    for series, nights in sorted({(series, nights) for series, nights, _ in SHAPES}):
        year = folder / f"{series}-{nights}"
        write_year(year, series // SIZES * nights, nights, SYSTEMS, sizes, level)
        rebuild(year)
        for chosen in [options for *shape, options in SHAPES if shape == [series, nights]]:
            made[series, nights, chosen] = report(year, chosen)
        shutil.rmtree(year)
    return {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(),
                    "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")},
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "nice": os.nice(0),
        "reports": [{"series": series, "nights": nights, "options": " ".join(chosen)}
                    | made[series, nights, chosen] for series, nights, chosen in SHAPES],
    }  # fmt: skip


HEADS = ["series x nights", "seconds", "CPU seconds", "CPU µs per value", "MiB", "pages",
         "MB written", "load"]  # fmt: skip


def render(figures: dict) -> str:
    """The figures as the docs' page."""
    machine = figures["machine"]
    rows = []
    for found in figures["reports"]:
        size = sum(found["bytes"].values())
        per = found["cpu"] / found["series"] / found["nights"] * 1e6
        chosen = f", `{found['options']}`" if found["options"] else ""
        what = f"{found['series']:,} x {found['nights']}{chosen}"
        rows.append([what, found["seconds"], found["cpu"], "" if chosen else f"{per:.0f}",
                     found["MiB"], found["pages"], f"{size / 1e6:.0f}", found["load"]])  # fmt: skip
    largest = max(
        figures["reports"],
        key=lambda found: (found["series"] * found["nights"], not found["options"]),
    )
    parts = ", ".join(f"{name} {count / 1e6:.1f} MB"
                      for name, count in sorted(largest["bytes"].items(),
                                                key=lambda item: -item[1]))  # fmt: skip
    return "\n".join(
        [
            "# How quickly a report is made",
            "",
            "Rendered by `make bench ARGS=--write` from `report-speed.json`; do not edit.",
            "",
            "Time, memory and disk space of `plumbline report --out DIR`, for histories of several "
            "sizes.",
            "",
            f"Measured on {figures['date']}: {machine['cpus']} CPUs, "
            f"{machine['memory'] / 2**30:.0f} GiB, Linux {machine['kernel']}, Python "
            f"{figures['python']}; nice {figures['nice']}. {SYSTEMS} systems with a session each a "
            f"night, checks over {SIZES} message sizes, a step of 6 % in every fifth check. The "
            "index of the history existed. CPU seconds are those of all processes, independent of "
            "other load; memory is the peak of all processes together; load is the average of the "
            "last minute, including the report itself. The aim: "
            "1,000 series x 365 nights, and 50,000 x 12, each in ≤ 60 s on 2 cores, ≤ 1 GiB.",
            "",
            markdown_table(HEADS, rows),
            "",
            f"Disk space of the largest: {parts}.",
            "",
            *_of_site(figures.get("site")),
        ]
    )


def _of_site(found: dict | None) -> list[str]:
    """The lines about the large site, if it was measured."""
    if not found:
        return []
    opened = ", ".join(f"{kind} {seconds}" for kind, seconds in found["loads"].items())
    return [
        "## A large site",
        "",
        f"{found['nodes']} nodes, each measured by itself on {found['nights']} nights in "
        f"{found['figures']} figures, on {found['date']} with {found['cpus']} CPUs at a load of "
        f"{found['load']}: {found['seconds']} s, {found['cpu']} CPU seconds, {found['MiB']} MiB, "
        f"{found['pages']} pages, {sum(found['bytes'].values()) / 1e6:.0f} MB. The aim, for "
        f"{SITE[0]} nodes: ≤ 120 s on 2 cores, ≤ 1.5 GiB, each page loads in ≤ 1 s.",
        "",
        f"Seconds until the largest page of each kind is loaded in Chromium: {opened}.",
        "",
    ]


def main() -> None:
    """Measures, prints, and keeps the figures if that is asked."""
    parser = arguments(__doc__)
    parser.add_argument("--folder", type=Path, help="where the years are written for a while")
    parser.add_argument("--site", type=int, nargs="?", const=SITE[0], metavar="NODES",
                        help=f"only the large site, of {SITE[0]} nodes by default")  # fmt: skip
    options = parser.parse_args()
    figures = json.loads((DOCS / "report-speed.json").read_text())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.site:
            figures["site"] = site(Path(folder), options.site, SITE[1])
        else:
            figures |= measure(Path(folder))
    keep("report-speed", figures, render, options.write)


if __name__ == "__main__":
    main()
