"""What else runs on this machine: a busy one takes longer to measure, and its figures tell little.

Nothing of it is asked on a system with a scheduler: there a job has its cores for itself.
"""

from __future__ import annotations

import functools
import os
import re
import time
from pathlib import Path

from plumbline.core.errors import Fault

#: Variable with the number of other processes to assume, instead of counting them.
OTHERS = "PLUMBLINE_OTHERS"

#: What has a waiting rank let others run. MPICH (``src/mpid/ch4/src/ch4_progress.h``) polls, and
#: after so many polls without a message sleeps for a nanosecond: a process that slept is scheduled
#: before those that ran, one that called sched_yield(2) after all of them. Open MPI has the latter
#: alone. On an idle machine either would be a part of what is measured.
YIELDING = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}

#: Seconds that they are counted for, and how often.
_SECONDS, _TIMES = 2.0, 50

#: Seconds of a Linux scheduler's slice, which each other process has before a task that waits.
_SLICE = 0.004

#: How many more processes than cores there must be: some daemon runs now and then.
_SLACK = 0.5


#: Launchers that start tasks where they are called, outside of a scheduler's job. Cray's aprun
#: takes them to compute nodes also where ReFrame knows no scheduler: Theta's has no backend.
_HERE = ("local", "mpiexec", "mpirun", "mpirun-intelmpi", "mpirun-openmpi")


def is_here(partition) -> bool:
    """Whether the jobs of a ReFrame partition run on this machine."""
    return partition.scheduler.is_local and partition.launcher_type.registered_name in _HERE


@functools.cache
def others() -> float:
    """Other processes that ran or waited for a core, a mean over two seconds at the session's
    start. The load average would be that of the last minutes, this session's own part included.

    0 where Linux does not tell (``/proc/stat``).

    :raises Fault: if the variable is no number.
    """
    if given := os.environ.get(OTHERS):
        if not re.fullmatch(r"\d+(\.\d+)?", given, re.ASCII):
            raise Fault(
                f"{OTHERS}={given}: give the number of other processes, 0 or more",
                code="input.wrong-option",
            )
        return float(given)
    counts = []
    for _ in range(_TIMES):
        found = running()
        if found is None:
            return 0.0
        # This process is one of them while it asks.
        counts.append(max(0, found - 1))
        time.sleep(_SECONDS / _TIMES)
    return sum(counts) / len(counts)


def running() -> int | None:
    """Processes that run or wait for a core now, this one included."""
    try:
        text = Path("/proc/stat").read_text()
    except OSError:
        return None
    found = [line.split()[1] for line in text.splitlines() if line.startswith("procs_running ")]
    return int(found[0]) if found else None


def shared(wanted: int, cores: int) -> bool:
    """Whether processes that want so many of the cores have to share them with others."""
    return others() + wanted > cores + _SLACK


def slowdown(cores: int) -> float:
    """How many times longer what needs every core takes than on an idle machine, at least 1."""
    return 1 + others() / cores


def wait(cores: int) -> float:
    """Seconds that a message waits until its receiver gets a core."""
    return _SLICE * others() / cores


def told(cores: int) -> str:
    """The load in words, for a message."""
    return f"{others():.1f} other processes run on its {cores} cores"
