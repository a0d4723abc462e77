"""Faults on request, from ``FACILITY_FAULT``: one JSON object, or a list of them.

``kind``, and the runs or values that it applies to; a key that is missing does not restrict it:

program  name or pattern of the program; for faults of the batch system, of the job
sample   number, or list of numbers, of the run (the word behind task.sh)
metric, size, gpu   of one value
node     of the run or the value; a list if it is on several nodes
folder   pattern of the last two parts of the folder that it runs in

scale      values within a tenth of ``near`` become ``factor`` times as large, each by the nearest
           such fault; a prefix of the unit (10³) does not matter
slow       values are worse by ``factor``, or are ``value`` in the unit that the program prints
garble     digits of line ``line`` (of the one in the middle), or of the lines that match ``match``,
           become other signs
rewrite    what matches ``match`` (a regular expression) is printed as ``text``
says       ``text`` is written on standard error; the program is otherwise unchanged
quiet      GPCNeT's congestors send nothing: each figure is the isolated one times ``factor``
missing    lines that match ``line`` (a regular expression) are not printed
truncate   only the first half of the output is printed, within a line
crash      the same, then a segmentation fault
hang       the same, then the program waits for ever
exit       the program ends with ``code``, its output complete
package    the node has all CPUs in one package, or where it has one, in two
numa       the node has the CPUs of its first and its last memory domain the other way round
smt        the node has one hardware thread of each core online
gpu-numa   the node has all its GPUs at its last memory domain
throttled  nvidia-smi or rocm-smi reports that GPU ``gpu``, or each, was throttled as it was too hot
narrow     nvidia-smi or amd-smi reports that its PCIe link has half of its lanes
unread     nvidia-smi or amd-smi fails
binding    tasks run on other cores than the launcher was asked for
elsewhere  tasks run on the job's first nodes, whichever the launcher was asked for
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
    *("package", "numa", "smt", "gpu-numa", "throttled", "narrow", "unread"),
    *("state", "drain", "misplace"),
)


class Faults:
    """The faults that apply to one run.

    :arg sample: number of the run, where task.sh passes it.
    :arg nodes: nodes of the run; faults of other nodes are dropped.
    """

    def __init__(self, program: str, sample: int | None = None, nodes: list[str] | None = None):
        text = os.environ.get("FACILITY_FAULT") or "[]"
        # A list can be longer than a variable may be.
        listed = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
        listed = listed if isinstance(listed, list) else [listed]
        wrong = [fault for fault in listed if fault.get("kind") not in KINDS]
        if wrong:
            raise SystemExit(f"FACILITY_FAULT: unknown kind: {wrong[0]}")
        self.faults = [
            fault
            for fault in listed
            if fnmatch.fnmatch(program, fault.get("program", "*"))
            and fnmatch.fnmatch("/".join(Path.cwd().parts[-2:]), fault.get("folder", "*"))
            and _of_sample(fault, sample)
            and (nodes is None or _on(fault, nodes))
        ]

    def one(self, kind: str) -> dict | None:
        """Return the first fault of a kind, if there is one."""
        return next((fault for fault in self.faults if fault["kind"] == kind), None)

    def spoil(self, value: float, lower_is_better: bool, **where: object) -> float:
        """Return a value, worse if a fault applies to it.

        :arg where: metric, size, gpus and nodes of the value.
        """
        scales = [
            (distance, fault["factor"])
            for fault in self.faults
            if fault["kind"] == "scale"
            and (distance := _distance(value, float(fault["near"]))) <= 0.1
        ]
        if scales:
            value *= min(scales)[1]
        for fault in self.faults:
            if fault["kind"] != "slow" or not _applies(fault, where):
                continue
            if "value" in fault:
                return float(fault["value"])
            factor = float(fault.get("factor", 1.5))
            value = value * factor if lower_is_better else value / factor
        return value

    def damaged(self, text: str) -> str:
        """Return the output of a program with the damage that is asked for."""
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
        """Print the output of a program, and return its exit code."""
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
    """Return the relative distance of two values whose units may differ by a prefix."""
    if value <= 0 or near <= 0:
        return math.inf
    ratio = value / near
    return abs(ratio / 1000 ** round(math.log10(ratio) / 3) - 1)


def _of_sample(fault: dict, sample: int | None) -> bool:
    wanted = fault.get("sample")
    if wanted is None:
        return True
    return sample in (wanted if isinstance(wanted, list) else [wanted])


def _on(fault: dict, nodes) -> bool:
    wanted = fault.get("node", [])
    return set([wanted] if isinstance(wanted, str) else wanted) <= set(nodes)


def drained() -> set[str]:
    """Return the nodes that the batch system has drained."""
    listed = Faults("*").faults
    return {fault["node"] for fault in listed if fault["kind"] == "drain"}


def _applies(fault: dict, where: dict) -> bool:
    for key in ("metric", "size"):
        if key in fault and fault[key] != where.get(key):
            return False
    if "gpu" in fault and fault["gpu"] not in (where.get("gpus") or ()):
        return False
    return _on(fault, where.get("nodes") or ())
