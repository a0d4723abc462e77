"""fio 3: its captured reports, with what the run itself decides put in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ..options import Refused
from ..run import STANDINS, Run
from ..values import Values


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    """Leaves the job's file in ``--directory``, prints the report of ``--rw``."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in run.words[1:])
    direction, folder = options["rw"], Path(options["directory"])
    try:
        (folder / f"{options['name']}.0.0").write_bytes(b"data\n")
    except OSError as err:
        raise Refused(f"fio: {folder}: {err.strerror}") from None
    report = json.loads((STANDINS / "outputs" / f"{direction}.out").read_text())
    part = report["jobs"][0][direction]
    rate = Values(run).measured(part["bw_bytes"], False)
    if rate != part["bw_bytes"]:
        part["bw_bytes"], part["bw"] = int(rate), int(rate / 1024)
    part["io_bytes"] = int(options["size"].removesuffix("M")) * 2**20
    part["runtime"] = round(part["io_bytes"] * 1000 / rate)
    yield 0, json.dumps(report, indent=2) + "\n", 0
