"""All that replaces a part of ReFrame, or reaches for a name that it keeps to itself.

One function for each. Nothing else in the package or in ``checks/`` does either, so that a new
version of ReFrame is read against this module alone. Each docstring says why it is needed, which
versions of ReFrame it holds for, and when it can be removed; ``tests/test_reframe_patches.py`` has
a test for each, which fails where ReFrame has changed.

The module is in ``site`` because the schedulers, the lowest of its users, are there.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import reframe.core.config
import reframe.core.fields
import reframe.core.settings
import reframe.core.variables
from reframe.core.exceptions import JobNotStartedError, PerformanceError
from reframe.core.pipeline import RegressionTest
from reframe.core.schedulers import Job, JobScheduler, local
from reframe.core.warnings import ReframeDeprecationWarning, user_deprecation_warning
from reframe.frontend import executors
from reframe.frontend.executors import policies

# -- when the configuration loads ------------------------------------------------------------


def warn_without_stack_walks() -> None:
    """Has ReFrame look for the line that a deprecation is to be blamed on only where it prints it.

    Why: it makes a deprecated variable of its own in each test case, suppresses the warning, and
    walks the stack for it all the same: three quarters of the time that making a test case takes.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: making a suppressed deprecation calls ``inspect.stack`` no more.
    """
    for module in (reframe.core.variables, reframe.core.fields):
        module.user_deprecation_warning = _warn_unless_suppressed


def _warn_unless_suppressed(message: str, from_version: str = "0.0.0") -> None:
    action, *_, kind = next(iter(warnings.filters))[:3]
    if (action, kind) != ("ignore", ReframeDeprecationWarning):
        user_deprecation_warning(message, from_version)


def select_without_copies() -> None:
    """Has ReFrame copy only the part of the configuration that it selects.

    Why: for each partition of a system it copies the whole configuration, so that its time grows
    with the square of their number.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: ``select_subconfig`` copies no partition but the selected one.
    """
    site = reframe.core.config._SiteConfig
    select = site.select_subconfig

    @functools.wraps(select)
    def selected(self, system_fullname=None, *args, **options):
        whole = self._site_config
        system, _, name = (system_fullname or "").partition(":")
        if name:
            of_system = [
                found | {"partitions": [p for p in found["partitions"] if p["name"] == name]}
                for found in whole["systems"]
                if found["name"] == system
            ]
            self._site_config = whole | {"systems": of_system}
        try:
            return select(self, system_fullname, *args, **options)
        finally:
            self._site_config = whole

    site.select_subconfig = selected


def load_first(own: Path) -> None:
    """Have ReFrame load a configuration file before all others of its command line, and once.

    Why: what is loaded later wins. A catch-all host name would hide the systems of files before it,
    and its ``logging`` their handlers.
    Holds for: 4.9.3 to 4.10.4.
    Remove when: a configuration can ask ReFrame to be loaded first.

    :arg own: the file, without links in its path.
    """
    site = reframe.core.config._SiteConfig
    update = site.update_config

    @functools.wraps(update)
    def updated(self, config, filename):
        if Path(filename).resolve() != own:
            update(self, config, filename)
            return
        if any(Path(source).resolve() == own for source in self._sources):
            return
        first, earlier = site(), self._sources[1:]
        update(first, reframe.core.settings.site_configuration, "<builtin>")
        update(first, config, filename)
        for file in earlier:
            load = {".py": first.load_config_python, ".json": first.load_config_json}
            load.get(Path(file).suffix, first.load_config_yaml)(file)
        for name in ("_site_config", "_sources", "_definitions"):
            setattr(self, name, getattr(first, name))

    site.update_config = updated


# -- a session -------------------------------------------------------------------------------


def watch_runs(
    begin: Callable[[list], list],
    listener: executors.TaskEventListener,
    expired: Callable[[], bool],
) -> None:
    """Has ReFrame report all test cases of a session before the first starts, and each that ends.

    Why: ReFrame has no hook before the first case, none that adds a listener, and its own
    ``--duration`` repeats the cases until the time is over.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: ReFrame documents hooks of a session, and a limit that ends one.

    :arg begin: takes the test cases and returns them in the order in which they are to run.
    :arg listener: is called first of all: a case that ReFrame prints as ended is then in the
        records already.
    :arg expired: whether the session is to stop starting test cases.
    """
    run_all = executors.Runner.runall

    @functools.wraps(run_all)
    def watched(self, testcases, restored_cases=None):
        ordered = begin(testcases)
        self.policy.timeout_expired = expired
        self.policy.task_listeners.insert(0, listener)
        return run_all(self, ordered, restored_cases)

    executors.Runner.runall = watched


def measure_by_monotonic_clock() -> None:
    """Has ReFrame measure how long something takes by a clock that nobody sets.

    Why: it sleeps as long as a clock that was set back is behind, and takes a job for timed out
    by one that was set forward. These two modules ask the clock for nothing but durations.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: both modules call ``time.monotonic``.
    """
    policies.time = local.time = SimpleNamespace(time=time.monotonic, sleep=time.sleep)


def expect_known_faults(known: Callable[[executors.RegressionTask, tuple], Exception | None]):
    """Has ReFrame take a failure that is known for an expected one.

    Why: ReFrame's own ``xfail`` marks a check or a figure in its source, and has no owner and no
    end.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: ReFrame lets a listener decide how a failure counts.

    :arg known: takes a task and what it raised (as of :func:`sys.exc_info`), and returns the
        expected failure, or nothing.
    """
    fail, expect = executors.RegressionTask.fail, executors.RegressionTask.xfail

    @functools.wraps(fail)
    def failed(self, exc_info=None, callback="on_task_failure"):
        exc_info = exc_info or sys.exc_info()
        expected = known(self, exc_info) if callback == "on_task_failure" else None
        if expected is None:
            fail(self, exc_info, callback)
            return
        for job in filter(None, (self.check.build_job, self.check.job)):
            with contextlib.suppress(JobNotStartedError):
                job.wait()
        self.xfail((type(expected), expected, exc_info[2]))

    @functools.wraps(expect)
    def xfailed(self, exc_info=None):
        exc_info = exc_info or sys.exc_info()
        expected = known(self, exc_info)
        expect(self, (type(expected), expected, exc_info[2]) if expected else exc_info)

    executors.RegressionTask.fail = failed
    executors.RegressionTask.xfail = xfailed


def judge_after_performance(judge: Callable[[RegressionTest], None]) -> None:
    """Have ReFrame call a function when it has evaluated a check's performance variables.

    Why: it compares them with the check's own ``reference`` only, and has no hook for all checks.
    Holds for: 4.9.3 to 4.10.4.
    Remove when: a listener is notified of the performance phase and may fail it.

    :arg judge: takes the check, and raises what fails it, in place of ReFrame's own error.
    """
    performance = RegressionTest.performance

    @functools.wraps(performance)
    def judged(self):
        try:
            performance(self)
        except PerformanceError:
            judge(self)
            raise
        judge(self)

    RegressionTest.performance = judged


# -- jobs ------------------------------------------------------------------------------------


def wrap_poll(
    scheduler: type[JobScheduler], polled: Callable[[JobScheduler, list[Job], Callable], None]
) -> None:
    """Has something done around each poll of a scheduler's jobs.

    Why: ReFrame keeps the state in which a job ended and not the scheduler's reason, so that one
    that was cancelled reads as output that is missing.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: ReFrame's schedulers raise the reason themselves.

    :arg polled: takes the scheduler, its jobs, and a function that does ReFrame's own poll of them.
    """
    poll = scheduler.poll

    @functools.wraps(poll)
    def wrapped(self, *jobs):
        jobs = [job for job in jobs if job is not None]
        polled(self, jobs, lambda: poll(self, *jobs))

    scheduler.poll = wrapped


def update_job(job: Job, **found: object) -> None:
    """Sets what a scheduler found out about a job: its ``jobid``, ``state``, ``exception`` ...

    Why: a scheduler's job has these as properties that only ReFrame's own schedulers set. What is
    set as ``exception`` is raised when the job is next asked whether it has ended.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: ``Job`` has setters, or an interface for schedulers of others.

    :raises AttributeError: if the job has no such field.
    """
    for name, value in found.items():
        getattr(job, f"_{name}")
        setattr(job, f"_{name}", value)


def node_spec(job: Job) -> str:
    """The nodes of a job of Slurm, as Slurm writes them; empty where it has none.

    Why: the job's ``nodelist`` is empty until it has ended, and asks Slurm to write it out.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: the job has it as a property.
    """
    return job._nodespec or ""


# -- checks ----------------------------------------------------------------------------------


class PinnedTo(NamedTuple):
    """Where ReFrame's ``--distribute`` has a test case run.

    :ivar partition: with the system's name before it.
    :ivar others: all nodes that the session is distributed over.
    """

    partition: str
    node: str
    others: list[str]


def pinned_to(check) -> PinnedTo | None:
    """The node that a test case is for, where ReFrame's ``--distribute`` made it.

    Why: the node is in a parameter whose name is no identifier, and is in no documented one.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: a check that is distributed has its node as an attribute.
    """
    params = type(check).param_space.params
    if ".nid" not in params or ".part" not in params:
        return None
    (node,) = getattr(check, ".nid")
    others = [name for (name,) in params[".nid"].values]
    return PinnedTo(getattr(check, ".part"), node, others)


def parameter_values(check) -> Iterator[object]:
    """The values that a test case has of each of its check's parameters.

    Why: ReFrame has no list of the parameters of a check.
    Holds for: 4.10.0 to 4.10.4.
    Remove when: it has.
    """
    return (getattr(check, name) for name in type(check).param_space.params)
