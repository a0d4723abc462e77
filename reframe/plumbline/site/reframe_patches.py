"""Patches of ReFrame's configuration and sessions, and accesses to their private names.

Those of checks are in :mod:`plumbline.site.check_patches`, and those of schedulers and jobs in
:mod:`plumbline.site.job_patches`. Nothing else in the package or in ``checks/`` does either, so
that only these three modules depend on the version of ReFrame. There is one function for each. All
hold for each of :data:`plumbline.site.reframe_version.VERSIONS`. Each docstring gives the reason,
how the versions differ, and when it can be removed. ``tests/test_reframe_patches.py`` has a test
for each, which fails if ReFrame has changed; ``tests/test_reframe_versions.py`` runs it with each
version.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import reframe
import reframe.core.config
import reframe.core.decorators
import reframe.core.fields
import reframe.core.hooks
import reframe.core.logging
import reframe.core.modules
import reframe.core.pipeline
import reframe.core.settings
import reframe.core.variables
from reframe.core.exceptions import (
    ForceExitError,
    JobNotStartedError,
)
from reframe.core.schedulers import local
from reframe.core.warnings import ReframeDeprecationWarning, user_deprecation_warning
from reframe.frontend import executors
from reframe.frontend.executors import policies


def replaces(owner: type | ModuleType, name: str) -> Callable[[Callable], Callable]:
    """Return a decorator: its function, which gets the original first, replaces a method."""

    def replace(replacement: Callable) -> Callable:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replaced(*args, **options):
            return replacement(original, *args, **options)

        setattr(owner, name, replaced)
        return replaced

    return replace


# -- when the command line is read, and the configuration loads ------------------------------------


def refuse_options(refuse: Callable[[str, set[str]], None]) -> None:
    """Have ReFrame report what is wrong with its command line, and not all of its options first.

    Why: argparse prints the usage before an error, which takes ReFrame 80 lines.
    Remove when: ReFrame prints only the error.

    :arg refuse: takes argparse's message and ReFrame's options, and does not return.
    """

    @replaces(argparse.ArgumentParser, "error")
    def error(_, self, message):
        refuse(message, {*re.findall(r"--\w[\w-]*", self.format_help())})


def accept_later_names() -> None:
    """Have ReFrame accept the names that system files may use with other versions.

    Why: 4.9.3 knows the module system ``envmod`` by its old name only, ``tmod4``. 4.10.1 refuses a
    feature with a hyphen, such as ``one-core``.
    Differs: the other versions need no change.
    Remove when: neither version is in use.
    """
    modules = reframe.core.modules.ModulesSystem
    create = modules.create

    @replaces(reframe.core.config._SiteConfig, "validate")
    def validated(validate, self):
        self._schema = schema_with_later_names(self._schema)
        validate(self)

    def created(cls, modules_kind=None, validate=True):
        return create("tmod4" if modules_kind == "envmod" else modules_kind, validate)

    if reframe.VERSION == "4.9.3":
        modules.create = classmethod(created)


def schema_with_later_names(schema: dict) -> dict:
    """Return the schema of ReFrame's configuration as :func:`accept_later_names` needs it.

    Why: system files are also validated without ReFrame.
    Differs: the schemas of the other versions are as they were.
    Remove when: neither version is in use.
    """
    defs, properties = schema["defs"], schema["properties"]["systems"]["items"]["properties"]
    if reframe.VERSION == "4.9.3":
        properties["modules_system"] = {"enum": [*properties["modules_system"]["enum"], "envmod"]}
    if reframe.VERSION == "4.10.1":
        # In that version only features are of this type.
        defs["alphanum_string"] = defs["alphanum_ext_string"]
    return schema


def warn_without_stack_walks() -> None:
    """Search the source line of a deprecation only if ReFrame prints it.

    Why: each test case creates a deprecated variable of ReFrame itself. The warning is suppressed,
    but still walks the stack: three quarters of the time that creating a test case takes.
    Remove when: a suppressed deprecation no longer calls ``inspect.stack``.
    """
    for module in (reframe.core.variables, reframe.core.fields):
        module.user_deprecation_warning = _warn_unless_suppressed


def _warn_unless_suppressed(message: str, from_version: str = "0.0.0") -> None:
    action, *_, kind = next(iter(warnings.filters))[:3]
    if (action, kind) != ("ignore", ReframeDeprecationWarning):
        user_deprecation_warning(message, from_version)


def select_without_copies() -> None:
    """Copy only the part of the configuration that ReFrame selects.

    Why: ReFrame copies the whole configuration for each partition, so that its time grows with the
    square of the number of partitions.
    Remove when: ``select_subconfig`` copies only the selected partition.
    """

    @replaces(reframe.core.config._SiteConfig, "select_subconfig")
    def select_small(select, self, system_fullname=None, *args, **options):
        whole = self._site_config
        system_name, _, name = (system_fullname or "").partition(":")
        if name:
            selected = [
                system | {"partitions": [p for p in system["partitions"] if p["name"] == name]}
                for system in whole["systems"]
                if system["name"] == system_name
            ]
            self._site_config = whole | {"systems": selected}
        try:
            return select(self, system_fullname, *args, **options)
        finally:
            self._site_config = whole


def load_first(own: Path) -> None:
    """Have ReFrame load a configuration file before all others of its command line, and once.

    Why: what is loaded later wins. A catch-all host name would hide the systems of files before it,
    and its ``logging`` their handlers.
    Remove when: a configuration can ask ReFrame to be loaded first.

    :arg own: the file, without links in its path.
    """
    site = reframe.core.config._SiteConfig

    @replaces(site, "update_config")
    def updated(update, self, config, filename):
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


def keep_in(folder: Path) -> None:
    """Have ReFrame keep stage and output folders in a folder, unless the system, the command line
    or a variable names another one. Performance logs stay where they are without Plumbline.

    Why: ReFrame's default is the current folder, where the next session overwrites them, but
    appends to performance logs. A configuration can only set it for its own systems, not for those
    of the site's other files.
    Remove when: the section ``general`` may have a ``prefix`` for all systems, which the logs do
    not use.
    """

    @replaces(reframe.core.config._SiteConfig, "validate")
    def validated(validate, self):
        validate(self)
        self.schema["defaults"]["systems/prefix"] = str(folder)

    @replaces(reframe.core.logging, "_create_logger")
    def created(create, site_config, *groups):
        defaults = site_config.schema["defaults"]
        before, defaults["systems/prefix"] = defaults["systems/prefix"], "."
        try:
            return create(site_config, *groups)
        finally:
            defaults["systems/prefix"] = before


# -- a session -------------------------------------------------------------------------------


def watch_runs(
    begin: Callable[[list], list],
    listener: executors.TaskEventListener,
    expired: Callable[[], bool],
) -> None:
    """Add hooks before the first test case of a session, and for each that ends.

    Why: ReFrame has no hook before the first case, and none to add a listener. Its option
    ``--duration`` repeats the cases until the time is over.
    Remove when: ReFrame documents hooks of a session, and a limit that ends one.

    :arg begin: takes the test cases, and returns them in the order in which they are to run.
    :arg listener: is called before other listeners, so that a case is in the records when ReFrame
        prints that it has ended.
    :arg expired: returns whether to start no further test cases.
    """

    @replaces(executors.Runner, "runall")
    def watched(run_all, self, testcases, restored_cases=None):
        ordered = begin(testcases)
        # Of --duration, which ends no session otherwise.
        of_reframe = self.policy.timeout_expired
        self.policy.timeout_expired = lambda: expired() or of_reframe()
        self.policy.task_listeners.insert(0, listener)
        return run_all(self, ordered, restored_cases)


def end_on_signals() -> None:
    """Have SIGTERM and SIGHUP end a session wherever they arrive, as SIGINT does.

    Why: ReFrame raises a :class:`ForceExitError`, which ``except Exception`` takes: a signal that
    arrives while a log is written is lost, and all later ones are ignored.
    Remove when: ``ForceExitError`` is no ``Exception``.
    """

    @replaces(executors, "_force_exit")
    def force_exit(of_reframe, number, frame):
        try:
            of_reframe(number, frame)
        except ForceExitError as err:
            raise KeyboardInterrupt(str(err)) from None


def measure_by_monotonic_clock() -> None:
    """Measure ReFrame's durations by the monotonic clock.

    Why: if the clock is set back, ReFrame sleeps for as long; if it is set forward, a job counts as
    timed out. These two modules use the clock for durations, and for the time of a local job's
    submission, which perf logs show.
    Remove when: both modules call ``time.monotonic``.
    """
    began = time.time() - time.monotonic()
    clock = SimpleNamespace(time=lambda: began + time.monotonic(), sleep=time.sleep)
    policies.time = local.time = clock


def expect_known_faults(known: Callable[[executors.RegressionTask, tuple], Exception | None]):
    """Let ReFrame count known failures as expected ones.

    Why: ReFrame's own ``xfail`` marks a check or a figure in the source, without an owner or an
    end.
    Remove when: ReFrame lets a listener decide how a failure counts.

    :arg known: takes a task and the exception that it raised (as :func:`sys.exc_info` has it), and
        returns the expected failure, or ``None``.
    """

    @replaces(executors.RegressionTask, "fail")
    def failed(fail, self, exc_info=None, callback="on_task_failure"):
        exc_info = exc_info or sys.exc_info()
        expected = known(self, exc_info) if callback == "on_task_failure" else None
        if expected is None:
            fail(self, exc_info, callback)
            return
        for job in filter(None, (self.check.build_job, self.check.job)):
            with contextlib.suppress(JobNotStartedError):
                job.wait()
        self.xfail((type(expected), expected, exc_info[2]))

    @replaces(executors.RegressionTask, "xfail")
    def xfailed(expect, self, exc_info=None):
        exc_info = exc_info or sys.exc_info()
        expected = known(self, exc_info)
        expect(self, (type(expected), expected, exc_info[2]) if expected else exc_info)
