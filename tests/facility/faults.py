"""Faults on request, from ``FACILITY_FAULT``: one JSON object, or a list of them.

``kind``, and what it is held to; what is left out holds for all:

program  name or pattern of the program; for the batch system's own faults, of the job's name
sample   number, or list of numbers, of the run (the word behind task.sh)
metric, size, gpu   of one value
node     that the run, or the value, is on; a list of nodes, all of which it is on
folder   pattern of the last two parts of the folder that it runs in

scale      values within a tenth of ``near`` become ``factor`` times as large, each by the nearest
           such fault; a prefix of the unit (10³) does not matter
slow       values are worse by ``factor``, or are ``value`` in the unit that the program prints
garble     digits of line ``line`` (of the one in the middle), or of the lines that match ``match``,
           become other signs
rewrite    what matches ``match`` (a regular expression) is printed as ``text``
says       ``text`` is written on standard error, and the program ends as ever
quiet      GPCNeT's congestors send nothing: each figure is the isolated one times ``factor``
missing    lines that match ``line`` (a regular expression) are not printed
truncate   only the first half of the output is printed, within a line
crash      the same, then a segmentation fault
hang       the same, then nothing more ever
exit       the program ends with ``code``, its output complete
package    the node has all CPUs in one package, or where it has one, in two
numa       the node has the CPUs of its first and its last memory domain the other way round
smt        the node has one hardware thread of each core online
gpu-numa   the node has all its GPUs at its last memory domain
binding    tasks sit on other cores than the launcher was told
elsewhere  tasks sit on the job's first nodes, whichever the launcher was told
singletons each task is alone in its world, as under the wrong MPI
state      the batch system ends the job with ``state``
drain      the batch system has ``node`` drained, and starts no job there
misplace   the batch system starts jobs of one node on ``node``, whichever they are pinned to
"""

from __future__ import annotations

import fnmatch
import json
import math
import os
import re
import sys
import time
from pathlib import Path

KINDS = (
    *(
        "scale",
        "slow",
        "garble",
        "rewrite",
        "says",
        "quiet",
        "missing",
        "truncate",
        "crash",
        "hang",
        "exit",
        "binding",
        "elsewhere",
        "singletons",
    ),
    *("package", "numa", "smt", "gpu-numa"),
    *("state", "drain", "misplace"),
)


class Faults:
    """The faults of one run.

    :arg sample: its number; unknown without task.sh.
    :arg nodes: that it runs on, where they matter.
    """

    def __init__(self, program: str, sample: int | None = None, nodes: list[str] | None = None):
        said = os.environ.get("FACILITY_FAULT") or "[]"
        # A list can be longer than a variable may be.
        told = json.loads(Path(said[1:]).read_text() if said.startswith("@") else said)
        told = told if isinstance(told, list) else [told]
        wrong = [fault for fault in told if fault.get("kind") not in KINDS]
        if wrong:
            raise SystemExit(f"FACILITY_FAULT: unknown kind: {wrong[0]}")
        self._told = [
            fault
            for fault in told
            if fnmatch.fnmatch(program, fault.get("program", "*"))
            and fnmatch.fnmatch("/".join(Path.cwd().parts[-2:]), fault.get("folder", "*"))
            and _holds(fault, sample)
            and (nodes is None or _on(fault, nodes))
        ]

    def one(self, kind: str) -> dict | None:
        """The first fault of a kind."""
        return next((fault for fault in self._told if fault["kind"] == kind), None)

    def spoil(self, value: float, lower_is_better: bool, **where: object) -> float:
        """A value, worse where a fault says so.

        :arg where: metric, size, gpus and nodes that it belongs to.
        """
        scales = [
            (distance, fault["factor"])
            for fault in self._told
            if fault["kind"] == "scale"
            and (distance := _distance(value, float(fault["near"]))) <= 0.1
        ]
        if scales:
            value *= min(scales)[1]
        for fault in self._told:
            if fault["kind"] != "slow" or not _here(fault, where):
                continue
            if "value" in fault:
                return float(fault["value"])
            factor = float(fault.get("factor", 1.5))
            value = value * factor if lower_is_better else value / factor
        return value

    def damaged(self, text: str) -> str:
        """What a program writes, as it comes out."""
        garble = self.one("garble")
        missing = self.one("missing")
        lines = text.splitlines(keepends=True)
        if missing:
            pattern = re.compile(missing["line"])
            lines = [line for line in lines if not pattern.search(line)]
        if garble:
            hit = [garble.get("line", len(lines) // 2)] if lines else []
            if "match" in garble:
                hit = [at for at, line in enumerate(lines) if re.search(garble["match"], line)]
            for index in hit:
                lines[index] = re.sub(r"[0-9.]+", "#@!", lines[index])
        text = "".join(lines)
        rewrite = self.one("rewrite")
        if rewrite:
            text = re.sub(rewrite["match"], rewrite["text"], text, flags=re.M)
        if self.one("crash") or self.one("hang") or self.one("truncate"):
            text = text[: len(text) // 2]
        return text

    def print(self, text: str, file, code: int) -> int:
        """Prints a program's output as far as it gets; its exit code."""
        file.write(self.damaged(text))
        file.flush()
        if says := self.one("says"):
            print(says["text"], file=sys.stderr, flush=True)
        if self.one("hang"):
            time.sleep(10**6)
        if self.one("crash"):
            print("Segmentation fault (core dumped)", file=sys.stderr, flush=True)
            return 139
        ended = self.one("exit")
        return int(ended.get("code", 1)) if ended else code


def _distance(value: float, near: float) -> float:
    """Relative distance of two values in units that differ by a prefix."""
    if value <= 0 or near <= 0:
        return math.inf
    ratio = value / near
    return abs(ratio / 1000 ** round(math.log10(ratio) / 3) - 1)


def _holds(fault: dict, sample: int | None) -> bool:
    wanted = fault.get("sample")
    if wanted is None:
        return True
    return sample in (wanted if isinstance(wanted, list) else [wanted])


def _on(fault: dict, nodes) -> bool:
    wanted = fault.get("node", [])
    return set([wanted] if isinstance(wanted, str) else wanted) <= set(nodes)


def drained() -> set[str]:
    """The nodes that the batch system has drained."""
    told = Faults("*")._told
    return {fault["node"] for fault in told if fault["kind"] == "drain"}


def _here(fault: dict, where: dict) -> bool:
    for key in ("metric", "size"):
        if key in fault and fault[key] != where.get(key):
            return False
    if "gpu" in fault and fault["gpu"] not in (where.get("gpus") or ()):
        return False
    return _on(fault, where.get("nodes") or ())
