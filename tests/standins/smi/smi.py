#!/usr/bin/env python3
"""Stands in for nvidia-smi, amd-smi and rocm-smi, by the name that it is called with.

It prints what the real programs printed (``tests/captures/smi``). ``STANDIN_SMI`` is a folder with
``NAME.0``, ``NAME.1`` ...: what each call prints, the last one from then on. Of nvidia-smi's rows
it prints the columns that are asked for; it lists, and knows, those of the first answer.
``STANDIN_OLD`` makes it an older release, which refuses what it does not know: nvidia-smi on
standard output, rocm-smi by Python's argparse; both exit with 2. ``STANDIN_VIRTUAL`` makes it one
in a virtual machine, where amd-smi (commit 0ceca28) refuses an option with exit code 0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAME = Path(sys.argv[0]).name
FOLDER = Path(os.environ["STANDIN_SMI"])
OLD = "STANDIN_OLD" in os.environ
VIRTUAL = "STANDIN_VIRTUAL" in os.environ


def answer(name: str) -> str:
    """Return the next answer of a program; without one it fails, as it does without a GPU."""
    answers = sorted(FOLDER.glob(f"{name}.[0-9]"))
    if not answers:
        raise SystemExit(9)
    count = FOLDER / f"{name}.calls"
    calls = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (calls + 1))
    return answers[min(calls, len(answers) - 1)].read_text()


def nvidia_smi(words: list[str]) -> str:
    if words == ["--help-query-gpu"]:
        return "".join(f'"{name}"\nWhat it is.\n\n' for name in known())
    if not any(word.startswith("--query-gpu=") for word in words):
        return f"stand-in: nvidia-smi {' '.join(words)}\n"
    (query,) = (word.partition("=")[2] for word in words if word.startswith("--query-gpu="))
    formats = next(w.partition("=")[2] for w in words if w.startswith("--format=")).split(",")
    assert formats[0] == "csv"
    for name in query.split(","):
        if name not in known():
            print(f'Field "{name}" is not a valid field to query.\n')
            raise SystemExit(2)
    head, *rows = (line.split(", ") for line in answer("nvidia-smi").splitlines())
    names = [column.partition(" ")[0] for column in head]
    new = [name.replace("throttle_reasons", "event_reasons") for name in query.split(",")]
    at = [names.index(name) for name in new]
    if OLD:
        head = [name.replace("event_reasons", "throttle_reasons") for name in head]
    lines = [] if "noheader" in formats else [head]
    return "".join(", ".join(row[n] for n in at) + "\n" for row in [*lines, *rows])


def known() -> list[str]:
    """Return the columns that nvidia-smi knows."""
    answers = sorted(FOLDER.glob("nvidia-smi.[0-9]"))
    if not answers:
        raise SystemExit(9)
    head = answers[0].read_text().partition("\n")[0].split(", ")
    names = [column.partition(" ")[0] for column in head]
    if not OLD:
        return names
    # Before driver 450.
    newer = ("remapped_rows", "gpu_recovery_action", "clocks_event_reasons_counters")
    old = [name for name in names if not name.startswith(newer)]
    return [name.replace("event_reasons", "throttle_reasons") for name in old]


def amd_smi(words: list[str]) -> str:
    assert words[-1] == "--json", words
    if VIRTUAL and "--limit" in words:
        return "Parameter '--limit' is invalid. Run '--help' for more info. Error code: -2\n"
    return answer(f"amd-smi-{words[0]}")


def rocm_smi(words: list[str]) -> str:
    if OLD and "--showmetrics" in words:
        print("usage: rocm-smi [-h]\nrocm-smi: error: unrecognized arguments: --showmetrics",
              file=sys.stderr)  # fmt: skip
        raise SystemExit(2)
    return answer("rocm-smi")


PROGRAMS = {"nvidia-smi": nvidia_smi, "amd-smi": amd_smi, "rocm-smi": rocm_smi}

if __name__ == "__main__":
    sys.stdout.write(PROGRAMS[NAME](sys.argv[1:]))
