"""What tools print of GPUs, as the wrapper reports it, and what a record has of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conftest import ROOT
from plumbline.check.throttling import NodeReadings
from plumbline.placement.proof import TaskReport

SMI = ROOT / "tests" / "captures" / "smi"

#: GPU of the captures of the H200.
H200 = "0000:83:00.0"


def text_of(name: str, **columns: str) -> str:
    """A capture of nvidia-smi, with other cells in some columns."""
    head, row = (line.split(", ") for line in (SMI / name).read_text().splitlines())
    names = [column.partition(" ")[0] for column in head]
    for column, cell in columns.items():
        (at,) = [n for n, known in enumerate(names) if known.replace(".", "_") == column]
        row[at] = cell
    # The wrapper asks for the bus id first.
    at = names.index("pci.bus_id")
    return ", ".join([*head[at:], *head[:at]]) + "\n" + ", ".join([*row[at:], *row[:at]]) + "\n"


def reported(text: str, moment: str, tool: str = "nvidia-smi", host: str = "n1") -> str:
    """What the wrapper reports of a tool's output."""
    if tool != "nvidia-smi":
        text = text.replace(" ", "").replace("\n", "")
    return "".join(f"plumbline-gpu {host} {moment} {tool} {line}\n" for line in text.splitlines())


def of(*runs: str, gpus: str = "") -> NodeReadings:
    found = NodeReadings()
    for stderr in runs:
        found.add(stderr, [TaskReport(0, "n1", "0", devices=gpus)])
    return found


def run(shell: str, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a shell, whose node is then called n1."""
    done = subprocess.run(
        [*shell.split(), *words], env={"PATH": os.environ["PATH"], **env},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    done.stderr = done.stderr.replace(os.uname().nodename, "n1")
    return done


def codes(found: NodeReadings) -> list[str]:
    notices = found.notices()
    assert all(notice.state == "warnings" and "n1" in notice.detail for notice in notices)
    return [notice.code for notice in notices]


#: What amd-smi of ROCm 6.4 prints before its JSON (amdsmi issue 130; amdsmi_helpers.py).
OUTSIDE_GROUPS = (
    "WARNING: User is missing the following required groups: render, video. Please add user to "
    "these groups.\n"
)
