"""mdtest of IOR 4.0.0 (src/mdtest.c)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ..options import Refused, read
from ..run import Run
from ..values import Values

TABLE = """
-a= -A -b= -B -c -C -d= -D -e= -E -f= -F -g -G= -h|--help -i= -I= -k -K -l= -L -n= -N= -p= -P -q
-Q -r -R= -s= -S -t -T -u -U -v -V= -w= -W= -x= -X -y -Y -z= -Z --allocateBufferDevice=
--warningAsErrors --dryRun --saveRankPerformanceDetails= --savePerOpDataCSV=
"""

#: Rates of the phases, as multiples of a file's creation.
_FILES = {"File creation": 1.0, "File stat": 60.0, "File read": 40.0, "File removal": 4.0}
_FOLDERS = {
    "Directory creation": 1.0, "Directory stat": 70.0, "Directory rename": 6.0,
    "Directory removal": 1.2,
}  # fmt: skip


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    try:
        options, rest = read(run.words[1:], TABLE, "mdtest")
        if rest:
            raise Refused(f"Error invalid argument: {rest[0]}")
        text = _report(run, options)
    except Refused as refused:
        yield 0, f"{refused}\n", refused.code
        return
    yield 0, text, 0


def _report(run: Run, options) -> str:
    values = Values(run)
    folder = str(options.get("d", "./out"))
    create, stat, remove = (name in options for name in "CTr")
    read_files = "E" in options
    every = not (create or stat or remove or read_files)
    wanted = {
        "creation": every or create, "stat": every or stat, "rename": every,
        "read": every or read_files, "removal": every or remove,
    }  # fmt: skip
    files, folders = "D" not in options, "F" not in options
    iterations = int(options.get("i", 1))
    each = int(options.get("n", options.get("I", 0)))
    tasks = len(run.tasks)
    if not each:
        raise Refused("ERROR: specify either -n or -I, (mdtest.c:2190)", 255)
    if wanted["creation"]:
        try:
            Path(folder).mkdir(exist_ok=True)
            tree(folder).mkdir(exist_ok=True)
        except OSError:
            nodemap = "".join("1" if task.node == run.nodes[0] else "0" for task in run.tasks)
            raise Refused(
                f"WARNING: Unable to create test directory path {folder}\n"
                f"WARNING: Backend returned error during statfs\nNodemap: {nodemap}",
                255,
            ) from None
    now = time.strftime("%m/%d/%Y %H:%M:%S")
    quoted = " ".join(f"'{word}'" for word in run.words[1:])
    warning = "WARNING: Read bytes is 0, thus, a read test will actually just open/close\n"
    warns = warning if wanted["read"] and "e" not in options else ""
    what = {(True, True): "files/directories", (True, False): "files", (False, True): "directories"}
    step = options.get("N")
    shifted = f"V-0: Rank   0 Line  2537 Shifting ranks by {step} for each phase.\n" if step else ""
    kind = what[(files, folders)]
    text = (
        f"-- started at {now} --\n\n"
        f"mdtest-4.0.0 was launched with {tasks} total task(s) on {len(run.nodes)} node(s)\n"
        f"Command line used: {run.words[0]} {quoted}\n{warns}"
        f"Path                : {folder}\n"
        "FS                  : 252.0 GiB   Used FS: 5.8%   Inodes: 16.0 Mi   Used Inodes: 2.7%\n"
        f"Nodemap: {''.join('1' if task.node == run.nodes[0] else '0' for task in run.tasks)}\n"
        f"{shifted}{warns}{tasks} tasks, {each * tasks} {kind}\n"
    )
    if not tree(folder).exists():
        if wanted["read"]:
            raise Refused(text.rstrip("\n"), 255)
        if wanted["stat"]:
            text += "".join(
                f"WARNING: unable to stat file {folder}/test-dir.0-0/mdtest_tree.{task.rank}.0/"
                f"file.mdtest.{task.rank}.{index}\n"
                for task in reversed(run.tasks)
                for index in range(each)
            )
    elif wanted["removal"]:
        tree(folder).rmdir()
    names: dict[str, float] = {}
    if folders:
        names |= _FOLDERS
    if files:
        names |= _FILES
    names |= {"Tree creation": 0.8, "Tree removal": 0.2}
    rows: dict[str, list[float]] = {}
    for name, factor in names.items():
        phase = name.split()[1]
        metric = name.lower().replace(" ", "_") + "_rate"
        rows[name] = [
            values.measured(values.mdtest() * factor, False, metric=metric, size=None)
            if wanted[phase]
            else 0.0
            for _ in range(iterations)
        ]
    text += _table("rate", iterations, rows)
    if "P" in options:
        total = each * tasks
        times = {
            name: [total / rate if rate else 0.0 for rate in found] for name, found in rows.items()
        }
        text += _table("time", iterations, times)
    return f"{text}-- finished at {now} --\n\n"


def tree(folder: str) -> Path:
    """Stands for all that the creation makes."""
    return Path(folder, "test-dir.0-0")


def _table(what: str, iterations: int, rows: dict[str, list[float]]) -> str:
    text = (
        f"\nSUMMARY {what}: (of {iterations} iterations)\n"
        "   Operation                     Max            Min           Mean        Std Dev\n"
        "   ---------                     ---            ---           ----        -------\n"
    )
    for name, found in rows.items():
        mean = sum(found) / len(found)
        spread = max(1, len(found) - 1)
        deviation = (sum((value - mean) ** 2 for value in found) / spread) ** 0.5
        text += f"   {name:<18}{max(found):19.3f}"
        text += "".join(f" {value:14.3f}" for value in (min(found), mean, deviation)) + "\n"
    return text
