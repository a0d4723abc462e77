"""Queues of Flux: flux-queue(1), flux-resource(1) of flux-core, "OUTPUT FORMAT"."""

from __future__ import annotations

from reframe.utility import nodelist_expand

from plumbline.core.process import capture, one_line
from plumbline.operate.onboarding.queues import Batch, Hardware

COMMAND = "flux"

#: Fields of ``flux queue list`` and of ``flux resource list``.
_QUEUES = "{queue}|{submission}|{limits.timelimit!F}"
_RESOURCES = "{queue}|{nnodes}|{ngpus}|{nodelist}"


def find(wanted: list[str]) -> Batch | None:
    """Return the queues; ``None`` if Flux does not answer.

    An instance without named queues has one, which needs no option.
    """
    listed = capture("flux", "queue", "list", "--no-header", f"--format={_QUEUES}")
    if listed is None:
        return None
    # "commands: 0.66.0", and further lines.
    version = (capture("flux", "--version") or "").partition("\n")[0].rpartition(":")[2]
    batch = Batch(f"Flux {one_line(version)}", "flux-batch", "flux-run")
    rows = [[cell.strip() for cell in line.split("|")]
            for line in listed.splitlines() if line.count("|") == 2]  # fmt: skip
    queues = {name: (submission, limit) for name, submission, limit in rows}
    for name in batch.chosen(queues, wanted):
        submission, limit = queues[name]
        if submission != "enabled":
            batch.skip(name, "it does not accept jobs")
            continue
        if queue := batch.add(name, _members(name), "flux resource lists none of its nodes"):
            queue.access = (*([f"--queue={name}"] if name else []), "--exclusive")
            queue.limits = f"time limit {one_line(limit)}"
    return batch


def _members(queue: str) -> dict[str, tuple[Hardware, int]]:
    """Return the nodes of a queue. CPUs are unknown, as Flux counts only cores."""
    found: dict[str, tuple[Hardware, int]] = {}
    words = ("--no-header", "--states=all", f"--format={_RESOURCES}")
    for line in (capture("flux", "resource", "list", *words) or "").splitlines():
        queues, *numbers, nodes = [cell.strip() for cell in line.split("|", 3)]
        if not (len(numbers) == 2 and all(map(str.isdecimal, numbers)) and nodes):
            continue
        if not queue or queue in queues.split(","):
            gpus = int(numbers[1]) // (int(numbers[0]) or 1)
            found |= {node: (Hardware(gpus=("", gpus)), 0) for node in nodelist_expand(nodes)}
    return found
