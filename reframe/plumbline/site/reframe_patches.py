"""Patches of ReFrame, and accesses to its private names, one function each.

Those of its schedulers and jobs are in :mod:`plumbline.site.job_patches`. Nothing else in the
package or in ``checks/`` does either, so that only these two modules depend on the version of
ReFrame. All hold for each of :data:`plumbline.site.reframe_version.VERSIONS`. Each docstring gives
the reason, how the versions differ, and when it can be removed. ``tests/test_reframe_patches.py``
has a test for each, which fails if ReFrame has changed; ``tests/test_reframe_versions.py`` runs it
with each version.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import reframe
import reframe.core.config
import reframe.core.decorators
import reframe.core.fields
import reframe.core.hooks
import reframe.core.modules
import reframe.core.pipeline
import reframe.core.settings
import reframe.core.variables
from reframe.core.exceptions import (
    ExpectedFailureError,
    ForceExitError,
    JobNotStartedError,
    PerformanceError,
    SanityError,
    SkipTestError,
    UnexpectedSuccessError,
)
from reframe.core.fixtures import FixtureSpace
from reframe.core.pipeline import RegressionTest
from reframe.core.schedulers import local
from reframe.core.warnings import ReframeDeprecationWarning, user_deprecation_warning
from reframe.frontend import executors
from reframe.frontend.executors import policies
from reframe.frontend.loader import RegressionCheckLoader

from plumbline.core.errors import WrongOption


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


# -- when the configuration loads ------------------------------------------------------------


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
    or a variable names another one.

    Why: ReFrame's default is the current folder, where the next session overwrites them. A
    configuration can only set it for its own systems, not for those of the site's other files.
    Remove when: the section ``general`` may have a ``prefix`` for all systems.
    """

    @replaces(reframe.core.config._SiteConfig, "validate")
    def validated(validate, self):
        validate(self)
        self.schema["defaults"]["systems/prefix"] = str(folder)


def wrap_load(
    replacement: Callable[
        [RegressionCheckLoader, Callable[[], list[RegressionTest]]], list[RegressionTest]
    ],
) -> None:
    """Replace the loading of all checks by a function that calls it.

    Why: ReFrame warns of a check that it cannot load, and runs the others. No hook has all checks
    before some are selected.
    Remove when: ReFrame has an option to refuse them, and a hook.

    :arg replacement: takes ReFrame's loader, and its own ``load_all`` as a function; returns the
        checks.
    """

    @replaces(RegressionCheckLoader, "load_all")
    def wrapped(load_all, self, *args, **options):
        return replacement(self, lambda: load_all(self, *args, **options))


def load_other_files(failed: Callable[[str, Exception], None]) -> None:
    """Have ReFrame load the other files if one of them cannot be read at all.

    Why: it warns of most errors in a file and loads the others, but ends at a syntax error.
    Remove when: it warns of a syntax error, too.

    :arg failed: takes the file and the error, and may raise.
    """

    @replaces(RegressionCheckLoader, "load_from_file")
    def loaded(load, self, filename, *args, **options):
        try:
            return load(self, filename, *args, **options)
        except Exception as error:
            failed(filename, error)
            return []


def note_set_variables() -> None:
    """Remember what ``-S`` changes, for :func:`set_variables`.

    Why: ReFrame replaces the default values in the classes, and keeps no list of that.
    Remove when: a check has a list of the variables that ``-S`` set.
    """

    @replaces(reframe.core.decorators, "_setvars")
    def noted(set_all, registry, variables):
        return set_all([*map(_Noting, registry)], variables)


class _Noting:
    """A class of checks, as ReFrame sets its variables."""

    def __init__(self, test: type[RegressionTest]):
        self._test, self.__name__ = test, test.__name__
        _set.setdefault(test, {})

    def setvar(self, name: str, value: object) -> bool:
        owner, variable = self._test, name
        while (first := variable.partition("."))[1] and first[0] in owner.fixture_space:
            owner, variable = owner.fixture_space[first[0]].cls, first[2]
        before = _default(owner, variable)
        try:
            done = self._test.setvar(name, value)
        except (TypeError, ValueError) as error:
            # To ReFrame, it would be an error of the file of checks, as it passed through here.
            raise WrongOption(f"-S: a value that its variable cannot have: {error}") from None
        if done and _default(owner, variable) != before:
            _set.setdefault(owner, {})[variable] = getattr(value, "value", "@none")
        return bool(done)


def _default(owner: type[RegressionTest], variable: str) -> object:
    return owner.var_space[variable]._default_value if variable in owner.var_space else None


#: Class of a check or fixture -> the variables that ``-S`` changed, with their values as given.
_set: dict[type[RegressionTest], dict[str, str]] = {}


def set_variables(check) -> dict[str, str]:
    """Return the variables that ``-S`` changed from their default in a check, and in its fixtures:
    ``name`` or ``fixture.name`` -> value as it was given. Those that the check's author declared
    with ``loggable=False`` are not in it.

    Why: as of :func:`note_set_variables`.
    Remove when: likewise.
    """
    return _set_variables(type(check))


def _set_variables(owner: type[RegressionTest]) -> dict[str, str]:
    # The classes of --repeat, --distribute and -P are derived from one whose variables were set.
    known = next((_set[base] for base in owner.__mro__ if base in _set), {})
    found = {
        name: value
        for name, value in known.items()
        if name in RegressionTest.var_space or owner.var_space[name].is_loggable()
    }
    for name, fixture in owner.fixture_space.fixtures.items():
        for variable, value in _set_variables(fixture.cls).items():
            # One option may set a variable of the same name in a check and in its fixtures.
            if found.get(variable) != value:
                found[f"{name}.{variable}"] = value
    return found


def postpone_skips() -> None:
    """Have a check that skips itself as it is initialized be selected, and skipped at its set-up.

    Why: ReFrame makes no test case of it, so that nothing lists or counts it.
    Remove when: ReFrame reports it as skipped.
    """

    # Until 4.9.3, the pipeline looks it up in its own module.
    late = hasattr(reframe.core.pipeline, "attach_hooks")

    @replaces(reframe.core.pipeline if late else reframe.core.hooks, "attach_hooks")
    def attached(attach, hooks):
        def decorated(stage):
            with_hooks = attach(hooks)(stage)

            @functools.wraps(stage)
            def run(check, *args, **options):
                if stage.__name__ == "setup" and (reason := getattr(check, "_skips", None)):
                    raise SkipTestError(reason)
                try:
                    with_hooks(check, *args, **options)
                except SkipTestError as err:
                    if stage.__name__ != "__init__":
                        raise
                    check._skips = str(err)
                    # Hooks that did not run may define these, and ReFrame refuses a check without.
                    for places in ("valid_systems", "valid_prog_environs"):
                        if not hasattr(check, places):
                            setattr(check, places, ["*"])

            return run

        return decorated

    @replaces(FixtureSpace, "inject")
    def injected(inject, self, check, *args, **options):
        # Nothing is to be built for it.
        if not hasattr(check, "_skips"):
            inject(self, check, *args, **options)


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


def judge_after_performance(
    judge: Callable[[RegressionTest], None], is_compared: Callable[[RegressionTest], bool]
) -> None:
    """Have ReFrame call a function when it has evaluated a check's performance variables.

    Why: it compares them with the check's own ``reference`` only, and has no hook for all checks.
    Remove when: a listener is notified of the performance phase and may fail it.

    :arg judge: takes the check, and raises what fails it, in place of ReFrame's own error.
    :arg is_compared: takes the check, and returns whether its own ``reference`` and marks count.
    """

    @replaces(RegressionTest, "performance")
    def judged(performance, self):
        try:
            performance(self)
        except SanityError:
            # A value that is no number, which has no other verdict.
            judge(self)
            raise
        except (PerformanceError, ExpectedFailureError, UnexpectedSuccessError) as err:
            if is_compared(self):
                if isinstance(err, PerformanceError):
                    judge(self)
                raise
        judge(self)


# -- checks ----------------------------------------------------------------------------------


def rename(check, hashcode: str) -> None:
    """Give a check another hash, which is in the names of its case and its folders.

    Why: the sides of a duet may be the same check in the same environment.
    Remove when: a test case can be given a name of its own.
    """
    check._rfm_hashcode = hashcode


class PinnedTo(NamedTuple):
    """The node on which ReFrame's ``--distribute`` runs a test case.

    :ivar partition: with the name of the system, ``system:partition``.
    :ivar others: all nodes over which the session is distributed.
    """

    partition: str
    node: str
    others: list[str]


def pinned_to(check) -> PinnedTo | None:
    """Return the node of a test case, or ``None`` if ReFrame's ``--distribute`` did not create it.

    Why: the node is only in an undocumented parameter, whose name is not an identifier.
    Remove when: a distributed check has its node as an attribute.
    """
    params = type(check).param_space.params
    if ".nid" not in params or ".part" not in params:
        return None
    (node,) = getattr(check, ".nid")
    others = [name for (name,) in params[".nid"].values]
    return PinnedTo(getattr(check, ".part"), node, others)


def reference_of(check, variable: str) -> tuple | None:
    """Return a check's own reference of a performance variable in its current partition, without
    ReFrame's mark of an expected failure; ``None`` if it has none.

    Why: from 4.10 on, a private method looks it up by the index that the check declares.
    Remove when: ReFrame has a public one.
    """
    resolve = getattr(check, "_resolve_reference", lambda: check.reference)
    try:
        found = resolve()[f"{check.current_partition.fullname}:{variable}"]
    except KeyError:
        return None
    return getattr(found, "data", found)


def sanity_function(check) -> Callable | None:
    """Return the function that ReFrame calls in the sanity phase of a check, or ``None``.

    Why: a derived class may have another one, also of another name, which replaces it.
    Remove when: ReFrame has a public attribute for it.
    """
    return getattr(type(check), "_rfm_sanity", None)


def parameter_values(check) -> Iterator[object]:
    """Yield the values of a test case's parameters.

    Why: ReFrame has no public list of a check's parameters.
    Remove when: ReFrame has one.
    """
    return (getattr(check, name) for name in type(check).param_space.params)
