"""The methods that find changes in the benches: ours, ReFrame's fixed bounds, KernelCPD and Otava.

Apache Otava needs versions of its own of our libraries, and is skipped if it is not installed:
``python3 -m venv .tools/otava && .tools/otava/bin/pip install apache-otava``
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nights
import numpy as np
import ruptures
from plumbline.analysis import stats, trend
from plumbline.core import paths

#: The Python of Apache Otava's environment.
OTAVA = paths.ROOT / ".tools" / "otava" / "bin" / "python"


@dataclass(frozen=True)
class Report:
    """One finding of a method.

    :ivar kind: ``lasting``, ``transient``, ``drift`` or ``suspect``. :ivar revised: night on which
        it became that.
    """

    kind: str
    start: int
    night: int
    size: float
    revised: int | None = None
    confirmed: bool = True


def judged(made: nights.Nights) -> list[trend.SeriesJudgement]:
    pairs = zip(made.values, made.second, strict=True)
    return trend.judge_all([(values, "higher", second) for values, second in pairs], False)


def reports(judgement: trend.SeriesJudgement) -> list[Report]:
    kinds = {"regression": "lasting", "improvement": "lasting"}
    return [
        Report(kinds.get(f.kind, f.kind), f.start, f.detected, f.size, f.revised, f.confirmed)
        for f in judgement.changes
    ]


def ours(made: nights.Nights) -> list[list[Report]]:
    return list(map(reports, judged(made)))


Method = Callable[[nights.Nights], list[list[Report]]]


def each(method: Callable[[np.ndarray], list[Report]]) -> Method:
    """A method that judges series one by one."""
    return lambda made: [method(values) for values in made.values]


def fixed(limit: float) -> Method:
    """ReFrame's fixed bounds about the reference, which is the true first level here. An episode
    ends after three nights within the bounds."""

    def method(values: np.ndarray) -> list[Report]:
        reports, last = [], -9
        for night in np.flatnonzero(np.abs(values / nights.LEVEL - 1) > limit):
            if night - last > 3:
                reports.append(Report("lasting", night, night, values[night] / nights.LEVEL - 1))
            last = night
        return reports

    return each(method)


def change_points(logs: np.ndarray) -> list[int]:
    """First index of each new level: KernelCPD at 3 x BIC, which is ``noise² · log n``."""
    clipped = stats.hampel(logs)
    noise = stats.MAD_TO_STD * np.median(np.abs(np.diff(clipped))) / np.sqrt(2)
    penalty = 3 * max(noise, 1e-9) ** 2 * np.log(len(logs))
    search = ruptures.KernelCPD(kernel="linear", min_size=2).fit(clipped[:, None])
    return search.predict(pen=penalty)[:-1]


def kernel(values: np.ndarray) -> list[Report]:
    """KernelCPD at 3 x BIC on Hampel-clipped logarithms of the last 120 nights, every night; a
    change point further than a week from any reported before is new."""
    at = np.flatnonzero(~np.isnan(values))
    logs = np.log(values[at])
    reports: list[Report] = []
    for night in range(20, len(logs)):
        low = max(0, night - 119)
        for point in change_points(logs[low : night + 1]):
            start = low + point
            if all(abs(at[start] - t.start) > 7 for t in reports):
                size = np.median(logs[start : night + 1]) - np.median(logs[low:start])
                reports.append(Report("lasting", int(at[start]), int(at[night]), float(size)))
    return reports


def otava(made: nights.Nights) -> list[list[Report]]:
    """Apache Otava with its defaults on all nights, every night; what is new is as of `kernel`."""
    at = [np.flatnonzero(~np.isnan(values)) for values in made.values]
    known = [values[nights].tolist() for values, nights in zip(made.values, at, strict=True)]
    script = Path(__file__).with_name("otava_nightly.py")
    done = subprocess.run(
        [OTAVA, script], input=json.dumps(known), stdout=subprocess.PIPE, text=True, check=True
    )
    return [
        [Report("lasting", int(nights[start]), int(nights[night]), size)
         for start, night, size in points]
        for points, nights in zip(json.loads(done.stdout), at, strict=True)
    ]  # fmt: skip


@functools.cache
def otava_version() -> str:
    """The version that is installed; empty without."""
    if not OTAVA.exists():
        return ""
    ask = "import importlib.metadata; print(importlib.metadata.version('apache-otava'))"
    done = subprocess.run([OTAVA, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip()


OURS = "plumbline trend"
KERNEL = "KernelCPD, 3 BIC"
METHODS = {
    "ReFrame, ±5 %": fixed(0.05),
    "ReFrame, ±10 %": fixed(0.10),
    KERNEL: each(kernel),
    **({"Otava": otava} if otava_version() else {}),
    OURS: ours,
}
#: They judge fewer series.
SLOW = KERNEL, "Otava"


def run(method: str, made: nights.Nights) -> list[list[Report]]:
    """The confirmed findings of each series."""
    return [[t for t in reports if t.confirmed] for reports in METHODS[method](made)]
