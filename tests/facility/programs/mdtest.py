"""mdtest of IOR 4.0.0 (src/mdtest.c), with the options that the checks use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ..options import Refused, read
from ..run import Run
from ..values import Values

TABLE = "-C -d= -e= -F -n= -N= -r -u -w="

#: Phase -> its rate as a multiple of a file's creation.
PHASES = {
    "File creation": 1.0,
    "File stat": 60.0,
    "File read": 40.0,
    "File removal": 4.0,
    "Tree creation": 0.8,
    "Tree removal": 0.2,
}


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    options, rest = read(run.words[1:], TABLE, "mdtest")
    if rest:
        raise Refused(f"Error invalid argument: {rest[0]}")
    yield 0, _report(run, options), 0


def _report(run: Run, options) -> str:
    values = Values(run)
    folder, each, tasks = Path(options["d"]), int(options["n"]), len(run.tasks)
    create, remove = "C" in options, "r" in options
    every = not (create or remove)
    wanted = {
        "creation": every or create, "stat": every, "read": every, "removal": every or remove,
    }  # fmt: skip
    nodemap = "".join("1" if task.node == run.nodes[0] else "0" for task in run.tasks)
    # Stands for all that the creation makes.
    tree = folder / "test-dir.0-0"
    if wanted["creation"]:
        try:
            folder.mkdir(exist_ok=True)
            tree.mkdir(exist_ok=True)
        except OSError:
            raise Refused(
                f"WARNING: Unable to create test directory path {folder}\n"
                f"WARNING: Backend returned error during statfs\nNodemap: {nodemap}",
                255,
            ) from None
    if wanted["removal"] and tree.exists():
        tree.rmdir()
    now = time.strftime("%m/%d/%Y %H:%M:%S")
    quoted = " ".join(f"'{word}'" for word in run.words[1:])
    step = int(options.get("N", 0))
    nodes = [task.node for task in run.tasks]
    if len(run.nodes) > 1 and nodes[0] == nodes[1]:
        step *= nodes.count(nodes[0])
    shifted = f"V-0: Rank   0 Line  2537 Shifting ranks by {step} for each phase.\n" if step else ""
    text = (
        f"-- started at {now} --\n\n"
        f"mdtest-4.0.0 was launched with {tasks} total task(s) on {len(run.nodes)} node(s)\n"
        f"Command line used: {run.words[0]} {quoted}\n"
        f"Path                : {folder}\n"
        "FS                  : 252.0 GiB   Used FS: 5.8%   Inodes: 16.0 Mi   Used Inodes: 2.7%\n"
        f"Nodemap: {nodemap}\n{shifted}{tasks} tasks, {each * tasks} files\n"
        "\nSUMMARY rate: (of 1 iterations)\n"
        "   Operation                     Max            Min           Mean        Std Dev\n"
        "   ---------                     ---            ---           ----        -------\n"
    )
    for name, factor in PHASES.items():
        rate = 0.0
        if wanted[name.split()[1]]:
            rate = values.measured(values.mdtest() * factor, False)
        text += f"   {name:<18}{rate:19.3f} {rate:14.3f} {rate:14.3f} {0:14.3f}\n"
    return f"{text}-- finished at {now} --\n\n"
