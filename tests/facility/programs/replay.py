"""hpcc 1.5 and fio 3: their captured reports, with what the run itself decides put in."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ..run import STANDINS, Run
from ..values import Values

OUTPUTS = STANDINS / "outputs"


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    yield from {"hpcc": _hpcc, "fio": _fio}[run.program](run)


def _hpcc(run: Run) -> Iterator[tuple[int, str, int]]:
    """Reads the matrix' order from hpccinf.txt, appends its report to hpccoutf.txt."""
    try:
        order = Path("hpccinf.txt").read_text().splitlines()[5].split()[0]
    except (OSError, IndexError):
        print("HPCC: no hpccinf.txt", file=sys.stderr, flush=True)
        yield 0, "", 1
        return
    values = Values(run)
    number = len(run.tasks)
    text = (OUTPUTS / "hpcc.out").read_text()
    text = re.sub(r"^HPL_N=.*", f"HPL_N={order}", text, flags=re.M)
    text = re.sub(r"^(CommWorldProcs|MPIFFT_Procs)=.*", rf"\1={number}", text, flags=re.M)

    def spoilt(found: re.Match) -> str:
        lower = "Latency" in found[1]
        value = values.measured(float(found[2]), lower, metric=found[1], size=None)
        return f"{found[1]}={value:.6g}"

    pattern = r"^(\w+(?:STREAM_\w+|flops|GBs|GUPs|Latency_usec|Bandwidth_GBytes))=([\d.e+-]+)$"
    text = re.sub(pattern, spoilt, text, flags=re.M)
    with Path("hpccoutf.txt").open("a") as file:
        file.write(text)
    yield 0, "", 0


def _fio(run: Run) -> Iterator[tuple[int, str, int]]:
    """Leaves the job's file in ``--directory``, prints the report of ``--rw``."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in run.words[1:])
    direction = options.get("rw", "read")
    capture = OUTPUTS / f"{direction}.out"
    if not capture.exists():
        print(f"fio: this stand-in has no report of --rw={direction}", file=sys.stderr, flush=True)
        yield 0, "", 1
        return
    folder = Path(options.get("directory", "."))
    try:
        (folder / f"{options.get('name', 'job')}.0.0").write_bytes(b"data\n")
    except OSError as err:
        print(f"fio: {folder}: {err.strerror}", file=sys.stderr, flush=True)
        yield 0, "", 1
        return
    report = json.loads(capture.read_text())
    values = Values(run)
    part = report["jobs"][0][direction]
    captured = part["bw_bytes"]
    new = values.measured(captured, False, metric=f"{direction}_bandwidth", size=None)
    if new != captured:
        part["bw_bytes"], part["bw"] = int(new), int(new / 1024)
    yield 0, json.dumps(report, indent=2) + "\n", 0
