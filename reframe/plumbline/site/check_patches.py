"""Patches of how ReFrame loads and judges checks, and accesses to their private names.

As in :mod:`plumbline.site.reframe_patches`; the tests are in ``tests/test_check_patches.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import reframe.core.decorators
import reframe.core.hooks
import reframe.core.pipeline
from reframe.core.exceptions import (
    ExpectedFailureError,
    PerformanceError,
    SanityError,
    SkipTestError,
    UnexpectedSuccessError,
)
from reframe.core.fixtures import FixtureSpace
from reframe.core.pipeline import RegressionTest
from reframe.frontend.loader import RegressionCheckLoader

from plumbline.core.errors import WrongOption
from plumbline.site.reframe_patches import replaces

# -- as checks load --------------------------------------------------------------------------


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
            given = f"-S {name}={getattr(value, 'value', value)}"
            raise WrongOption(f"{given}: its variable cannot have this value: {error}") from None
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


# -- of a loaded check ------------------------------------------------------------------------


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
