"""Faults on request, from ``FACILITY_FAULT``: one JSON object, or a list of them.

``kind``, and the runs or values that it applies to; a key that is missing does not restrict it:

gpu      of one value
node     of the run or the value; a list if it is on several nodes
folder   pattern of the last two parts of the folder that it runs in

scale      values within a tenth of ``near`` become ``factor`` times as large, each by the nearest
           such fault; a prefix of the unit (10³) does not matter
slow       values are worse by ``factor``
garble     digits of the lines that match ``match`` become other signs
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
from collections.abc import Iterable
from pathlib import Path

KINDS = {
    "scale", "slow", "garble", "rewrite", "says", "quiet", "missing", "truncate", "crash", "hang",
    "exit", "package", "numa", "smt", "gpu-numa", "throttled", "narrow", "unread", "binding",
    "elsewhere", "singletons", "state", "drain", "misplace",
}  # fmt: skip


class Faults:
    """The faults that apply in this folder.

    :arg nodes: nodes of the run; faults of other nodes are dropped.
    """

    def __init__(self, nodes: list[str] | None = None):
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
            if fnmatch.fnmatch("/".join(Path.cwd().parts[-2:]), fault.get("folder", "*"))
            and (nodes is None or _on(fault, nodes))
        ]

    def one(self, kind: str) -> dict | None:
        """Return the first fault of a kind, if there is one."""
        return next((fault for fault in self.faults if fault["kind"] == kind), None)

    def spoil(
        self, value: float, lower_is_better: bool, gpus: Iterable[int], nodes: list[str]
    ) -> float:
        """Return a value of some GPUs and nodes, worse if a fault applies to it."""
        scales = [
            (distance, fault["factor"])
            for fault in self.faults
            if fault["kind"] == "scale"
            and (distance := _distance(value, float(fault["near"]))) <= 0.1
        ]
        if scales:
            value *= min(scales)[1]
        for fault in self.faults:
            gpu = fault.get("gpu")
            if fault["kind"] == "slow" and _on(fault, nodes) and (gpu is None or gpu in gpus):
                value = value * fault["factor"] if lower_is_better else value / fault["factor"]
        return value

    def damaged(self, text: str) -> str:
        """Return the output of a program with the damage that is asked for."""
        lines = text.splitlines(keepends=True)
        if missing := self.one("missing"):
            lines = [line for line in lines if not re.search(missing["line"], line)]
        if garble := self.one("garble"):
            lines = [
                re.sub(r"[0-9.]+", "#@!", line) if re.search(garble["match"], line) else line
                for line in lines
            ]
        text = "".join(lines)
        if rewrite := self.one("rewrite"):
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


def _on(fault: dict, nodes) -> bool:
    wanted = fault.get("node", [])
    return set([wanted] if isinstance(wanted, str) else wanted) <= set(nodes)


def drained() -> set[str]:
    """Return the nodes that the batch system has drained."""
    return {fault["node"] for fault in Faults().faults if fault["kind"] == "drain"}
