"""Other processes on this machine, which slow the measurements down and distort the figures.

This is not used on a system with a scheduler, where a job has its cores for itself.
"""

from __future__ import annotations

import functools
import os
import re
import time
from pathlib import Path

from plumbline.core.errors import WrongOption
from plumbline.site import configuration

#: Variable with the number of other processes to assume, instead of counting them.
OTHERS = "PLUMBLINE_OTHERS"

#: Variables that let other processes run while a rank waits. MPICH
#: (``src/mpid/ch4/src/ch4_progress.h``) sleeps for a nanosecond after so many polls without a
#: message: a process that slept is scheduled before those that ran, one that called sched_yield(2)
#: after all of them. Open MPI has only the latter. On an idle machine, both would be measured too.
YIELDING = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}

#: Seconds for which processes are counted, and how often in each; and the seconds of a brief count.
_SECONDS, _RATE, _BRIEF = 2.0, 25, 0.2

#: Seconds of a Linux scheduler's time slice, which each other process gets before a waiting task.
_SLICE = 0.004

#: Processes beyond the number of cores that are ignored, for daemons that run now and then.
_SLACK = 0.5

#: Launchers that start tasks on the machine where they are called. Cray's aprun starts them on
#: compute nodes, also if ReFrame does not know the scheduler, such as Theta's.
_HERE = ("hydra", "local", "mpiexec", "mpirun", "mpirun-intelmpi", "mpirun-openmpi", "openmpi")


def is_local(check, partition) -> bool:
    """Return whether ReFrame starts the jobs of a check without a scheduler: that of the partition,
    or the check's own ``local``, has none."""
    return check.local or partition.scheduler.is_local


def is_here(check, partition) -> bool:
    """Return whether the jobs of a check on a ReFrame partition run on this machine."""
    # ReFrame starts those with `local` without the partition's launcher, too.
    launcher = "local" if check.local else partition.launcher_type.registered_name
    return is_local(check, partition) and launcher in _HERE


def matters(check, partition) -> bool:
    """Return whether other processes may use the cores of a check's jobs: if they run on this
    machine, and it is no node that is allocated to a job."""
    return is_here(check, partition) and configuration.ON_NODE not in os.environ


def others() -> float:
    """Return the mean number of other processes that ran or waited for a core: the larger of the
    last two counts, so that of before and after the case that ended last.

    The load average would be that of the last minutes, and include this session. It is 0 if Linux
    does not report it (``/proc/stat``).

    :raises Fault: if the variable is not a number.
    """
    if given := os.environ.get(OTHERS):
        if not re.fullmatch(r"\d+(\.\d+)?", given, re.ASCII):
            raise WrongOption(
                f"{OTHERS}={given}: set it to the number of other processes, 0 or more"
            )
        return float(given)
    return max(_counts()[-2:])


def count_again() -> None:
    """Count the other processes again, after a case: some may have started since."""
    if os.environ.get(OTHERS):
        return
    # On an idle machine, a case costs no more than a brief count.
    count = _count(_BRIEF)
    _counts().append(_count(_SECONDS) if count > _SLACK else count)


@functools.cache
def _counts() -> list[float]:
    """The counts of this session. The first is that of before its first case."""
    return [_count(_SECONDS)]


def _count(seconds: float) -> float:
    counts = []
    for _ in range(round(seconds * _RATE)):
        found = running()
        if found is None:
            return 0.0
        # This process is one of them.
        counts.append(max(0, found - 1))
        time.sleep(1 / _RATE)
    return sum(counts) / len(counts)


def running() -> int | None:
    """Return the number of processes that run or wait for a core now, with this one."""
    try:
        found = re.search(r"^procs_running (\d+)", Path("/proc/stat").read_text(), re.M)
    except OSError:
        return None
    return int(found[1]) if found else None


def shared(wanted: int, cores: int) -> bool:
    """Return whether processes that need so many of the cores share them with others."""
    return others() + wanted > cores + _SLACK


def slowdown(cores: int) -> float:
    """Return how many times longer a job on every core takes than on an idle machine."""
    return 1 + others() / cores


def wait(cores: int) -> float:
    """Return the seconds that a message waits until its receiver gets a core."""
    return _SLICE * others() / cores


def description(cores: int) -> str:
    """Return a description of the load, for a message."""
    return f"{others():.1f} other processes run on its {cores} cores"
