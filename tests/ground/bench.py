"""What is measured on the proving ground beside its faults: ``python -m ground.bench``, or ``python
-m ground.bench times``."""

from __future__ import annotations

import contextlib
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ground import brought_up, missing
from ground.faults import measured
from ground.operations import FASTER, operate
from ground.site import Site

#: How often the machine is brought up and taken down.
TIMES = 5

#: Mbit/s of the uplinks: all that the nodes of a rack can send, two fifths, and less than one.
UPLINKS = (250, 100, 40)

#: GPCNeT's program that measures under congestion.
GPCNET = "network_load_test"

#: It runs once, on the fewest nodes that it accepts.
CONGESTION = ("-t", "full", "-n", "gpcnet_load.*scale=10", "-S", "gpcnet_load.num_samples=1", "-S",
              "gpcnet_load.num_warmups=0")  # fmt: skip

#: Bytes of its messages of bandwidth, as the page has it built.
MESSAGE = 8192

#: Fields of the machine for it: tasks that wait for congested links leave slurmd little of a node's
#: share of the CPUs, and it answers late.
PATIENT = {"timeout": 60}


def times() -> dict[str, float]:
    """Seconds until the machine is up, and until it is gone: the medians."""
    up, down = [], []
    for _ in range(TIMES):
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            stack.enter_context(brought_up())
            up.append(time.monotonic() - began)
            began = time.monotonic()
        down.append(time.monotonic() - began)
        print(f"up in {up[-1]:.1f} s, down in {down[-1]:.1f} s", flush=True)
    return {"count": TIMES, "up": statistics.median(up), "down": statistics.median(down)}


def operations(site: Site) -> list[dict]:
    """What each command of an operator did on a healthy machine."""
    return [asdict(step) for step in operate(site)]


def congestion(site: Site) -> list[dict[str, float]]:
    """GPCNeT's figures at each rate of the uplinks; none where it is not on PATH."""
    program = shutil.which(GPCNET)
    if not program:
        print(f"plumbline: no {GPCNET} on PATH: docs/proving-ground.md", file=sys.stderr)
        return []
    site.draft()
    site.add("gpcnet", ["gpcnet"], [Path(program)], gpcnet_message_size=MESSAGE)
    return [congested(site, rate) for rate in UPLINKS]


def congested(site: Site, rate: float) -> dict[str, float]:
    """GPCNeT's figures with uplinks of a rate in Mbit/s.

    :raises AssertionError: if it did not pass.
    """
    there = site.there
    for switch in there.machine.switches:
        there.rate(switch, 100 * rate / there.machine.uplink)
    site.expect(0, "run", "--system", site.system, *CONGESTION)
    (record,) = [r for r in site.tonight() if r["foms"]][-1:]
    figures = {f"{fom['metric']} {fom['location']}".strip(): fom["value"] for fom in record["foms"]}
    print(f"uplinks of {rate} Mbit/s: {figures}", flush=True)
    return {"uplink": rate, **figures}


#: What is measured on a machine that is up, and its fields that differ from machine.yaml.
PARTS = {"operations": (operations, FASTER), "congestion": (congestion, PATIENT)}


def main(*wanted: str) -> int:
    """Measures parts, or all, and writes them with the page. The exit code is 1 if a command of an
    operator failed on the healthy machine."""
    if why := missing():
        print(f"plumbline: no proving ground: {why}", file=sys.stderr)
        return 2
    code = 0
    for name in wanted or ("times", *PARTS):
        found = times() if name == "times" else on_a_machine(*PARTS[name])
        if not found:
            continue
        if name == "operations":
            code = int(any(step["false"] for step in found))
        with measured() as known:
            known[name] = found
    return code


def on_a_machine(part: Callable[[Site], list[dict]], changes: dict[str, int]) -> list[dict]:
    """Measures a part on a machine of its own."""
    with brought_up(**changes) as there:
        return part(Site(there.folder / "site", there))


if __name__ == "__main__":
    # So that the machine is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(*sys.argv[1:]))
